"""Bring your own operator: learn how to deblur. The blur is a pylops operator, taken as it is.

The weight of the total variation is learned from a pair of a clean and a blurred, noisy image. `norm=1` is what we know
about the blur, whose kernel is non-negative and sums to 1; without it, it is found from products with the operator.
"""

import numpy as np
import pylops

import suffice
from suffice import losses, problems


def main() -> suffice.Result:
    rng = np.random.default_rng(0)
    clean = np.zeros((32, 32))
    clean[8:24, 6:20] = 1.0
    clean[14:28, 14:26] += 0.5
    kernel = np.outer([1, 4, 6, 4, 1], [1, 4, 6, 4, 1]) / 256.0
    blur = pylops.signalprocessing.Convolve2D(clean.shape, h=kernel, offset=(2, 2))
    measured = blur @ clean + 0.02 * rng.standard_normal(clean.shape)

    deblurring = problems.Reconstruction(blur, measured, norm=1.0, eps_l2=1e-3, eps_tv=1e-2)
    problem = suffice.BilevelProblem(
        lower=[deblurring], losses=[losses.SquaredDistance(clean)], space=suffice.Space(alpha=(1e-5, 1.0))
    )
    result = suffice.tune(problem, {"alpha": 0.1}, options=suffice.Options(max_evaluations=15, final_radius=1e-3))
    image = deblurring.image(result.solutions[0])
    print(f"alpha = {result.params['alpha']:.2e}, F in {result.interval}, {result.work:.0f} gradients")
    print(
        f"mean squared error: {np.mean((measured - clean) ** 2):.5f} before, {np.mean((image - clean) ** 2):.5f} after"
    )
    return result


if __name__ == "__main__":
    main()
