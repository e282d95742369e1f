"""A learned regulariser: a small field of experts that denoises photographs, 312 parameters tuned at once.

    minimise over x   1/2 ||x - y||^2 + sum_k a_k sum_i phi((k_k * x)_i),        phi(t) = sqrt(t^2 + eps^2),

with 12 filters k_k of 5 x 5 pixels and their weights a_k. It begins with differences of neighbours and one weight for
all, tuned first. The lower level is one function in torch; mu = 1, and L = 1 + ||sum_k a_k (k_k correlated with
itself)||_1 / eps is proven, since the Fourier transform of that correlation is sum_k a_k |k_k^|^2. Training patches and
the test image come from scikit-image's photographs.

    python examples/field_of_experts.py --evaluations 60 --out field_of_experts.png

Needs the extras gpu, imaging and plot.
"""

import argparse
import math
import time

import numpy as np
import torch
from scipy.fft import idctn
from scipy.signal import correlate2d

import suffice
from suffice.losses import LossAt
from suffice.problems import Denoising
from suffice.prove.loss_at import Linear

NOISE, EPS = 0.1, 0.01
SHAPE = (12, 5, 5)


def photographs():
    """Grey images between 0 and 1, averaged down by two: some to learn from, one to be judged by."""
    from skimage import data

    def grey(image):
        image = np.asarray(image, dtype=float)
        image = image.mean(axis=2) / 255.0 if image.ndim == 3 else image / 255.0
        h, w = (n - n % 2 for n in image.shape)
        return image[:h, :w].reshape(h // 2, 2, w // 2, 2).mean(axis=(1, 3))

    known = [grey(one()) for one in (data.astronaut, data.coffee, data.chelsea, data.coins)]
    return known, grey(data.camera())[20:148, 40:168]


def patches(images, count, size, rng):
    """`count` patches of every image."""
    found = []
    for image in images:
        for _ in range(count):
            i, j = (int(rng.integers(n - size)) for n in image.shape)
            found.append(image[i : i + size, j : j + size])
    return np.array(found)


def field_of_experts(y):
    """Denoising of a stack of images of one size as a lower-level problem in all their pixels."""
    n, h, w = y.shape
    data = torch.tensor(y.ravel())

    def fun(x, filters, weights):
        responses = torch.nn.functional.conv2d(x.reshape(n, 1, h, w), filters[:, None])
        experts = torch.sqrt(responses**2 + EPS**2).sum(dim=(0, 2, 3))
        return 0.5 * ((x - data) ** 2).sum() + (weights * experts).sum()

    function = suffice.autodiff.smooth(fun, arrays={"filters": SHAPE, "weights": SHAPE[:1]})

    def L(params):  # noqa: N802 (a symbol)
        filters = np.array([params[name] for name in function.names("filters")]).reshape(SHAPE)
        weights = [params[name] for name in function.names("weights")]
        both = sum(a * correlate2d(k, k) for a, k in zip(weights, filters, strict=True))
        return 1.0 + float(np.abs(both).sum()) / EPS * (1.0 + 1e-12)

    return function, function.problem(y.size, mu=1.0, L=L)


def first_filters():
    """Differences to four neighbours and, a tenth as large, the smoothest filters of a cosine basis."""
    filters = np.zeros(SHAPE)
    filters[:4, 2, 2] = -1.0
    filters[range(4), [2, 3, 3, 3], [3, 2, 3, 1]] = [1.0, 1.0, 1.0, 1.0]
    order = sorted(((i, j) for i in range(5) for j in range(5)), key=lambda ij: (ij[0] ** 2 + ij[1] ** 2, ij))
    for k, place in enumerate(order[1 : SHAPE[0] - 3]):
        filters[4 + k][place] = 1.0
    filters[4:] = 0.1 * idctn(filters[4:], axes=(1, 2), norm="ortho")
    return filters


class Inside:
    """||x - clean||^2 without the two outermost pixels, where filters see no neighbours: a loss with its derivative."""

    def __init__(self, clean):
        inside = np.zeros(clean.shape, dtype=bool)
        inside[..., 2:-2, 2:-2] = True
        self.places, self.clean = np.flatnonzero(inside), clean.ravel()

    def at(self, x):
        residuals = (x - self.clean)[self.places]
        rounding = 1e-15 * len(x) * (np.linalg.norm(residuals) + 1.0)

        def adjoint(u):
            whole = np.zeros(len(x))
            whole[self.places] = u
            return whole

        linear = Linear(lambda V: V[self.places], adjoint)
        return LossAt(residuals, lambda radius: radius + rounding, linear=linear)


class OneWeight:
    """The same with the first filters and one weight for all: what learning begins with."""

    def __init__(self, function, lower):
        self.lower, self.weights = lower, function.names("weights")
        self.filters = dict(zip(function.names("filters"), first_filters().ravel().tolist(), strict=True))

    def params(self, weight):
        return self.filters | dict.fromkeys(self.weights, weight)

    def at(self, weight):
        return self.lower.at(**self.params(weight))


def bilevel(clean, noisy):
    """The problem in all parameters, and where to start: at the best common weight."""
    function, lower = field_of_experts(noisy)
    ranges = dict.fromkeys(function.names("filters"), (-1.0, 1.0)) | dict.fromkeys(
        function.names("weights"), (1e-4, 1.0)
    )
    losses, one = [Inside(clean)], OneWeight(function, lower)
    first = suffice.BilevelProblem([one], losses, space=suffice.Space(weight=(1e-4, 1.0)))
    found = suffice.tune(first, {"weight": 0.03}, options=suffice.Options(max_evaluations=15, final_radius=1e-2))
    return suffice.BilevelProblem([lower], losses, space=suffice.Space(**ranges)), one.params(**found.params)


def denoised(noisy, params):
    _, lower = field_of_experts(noisy[None])
    return suffice.solve(lower.at(**params), within=1e-3, warm=noisy.ravel()).x.reshape(noisy.shape)


def total_variation(clean, noisy, image):
    """The same image by smoothed total variation, its alpha tuned on the same patches."""
    problem = suffice.BilevelProblem(
        [Denoising(one, eps_l2=0.0, eps_tv=EPS) for one in noisy],
        [Inside(one) for one in clean],
        space=suffice.Space(alpha=(1e-3, 10.0)),
    )
    best = suffice.tune(problem, {"alpha": 0.1}, options=suffice.Options(max_evaluations=15, final_radius=1e-2))
    print(f"total variation: F {best.cost:.4f} at alpha = {best.params['alpha']:.3g}")
    lower = Denoising(image, eps_l2=0.0, eps_tv=EPS)
    return lower.image(suffice.solve(lower.at(**best.params), within=1e-3, warm=image.ravel()))


def psnr(image, truth):
    return -10.0 * math.log10(float(np.mean((image - truth)[2:-2, 2:-2] ** 2)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--patches", type=int, default=2, help="of each of four photographs")
    parser.add_argument("--size", type=int, default=28)
    parser.add_argument("--out", default="field_of_experts.png")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    known, truth = photographs()
    clean = patches(known, given.patches, given.size, rng)
    noisy = clean + NOISE * rng.standard_normal(clean.shape)
    image = truth + NOISE * rng.standard_normal(truth.shape)

    problem, start = bilevel(clean, noisy)
    began = time.perf_counter()
    options = suffice.Options(max_evaluations=given.evaluations, final_radius=1e-4)
    result = suffice.tune(problem, start, options=options)
    first = problem.evaluate(problem.space.theta(start), within=1e-2)
    print(f"{len(start)} parameters, {clean.size} pixels, {result.evaluations} evaluations, work {result.work:.0f}")
    print(result.message)
    print(f"F {first.cost:.4f} -> {result.cost:.4f} in {result.interval}, {time.perf_counter() - began:.0f} s")
    shown = {
        "noisy": image,
        "total variation, tuned": total_variation(clean, noisy, image),
        "experts before": denoised(image, start),
        "experts, learned": denoised(image, result.params),
        "truth": truth,
    }
    for name, one in shown.items():
        if name != "truth":
            print(f"{name:24s} {psnr(one, truth):.2f} dB")
    filters = np.array([result.params[f"filters{i}"] for i in range(math.prod(SHAPE))]).reshape(SHAPE)
    weights = np.array([result.params[f"weights{k}"] for k in range(SHAPE[0])])
    draw(shown, truth, filters, weights, given.out)


def draw(shown, truth, filters, weights, path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 5, figsize=(15, 3.4))
    for axis, (name, one) in zip(axes, shown.items(), strict=True):
        axis.imshow(one, cmap="gray", vmin=0.0, vmax=1.0)
        axis.set_title(name if name == "truth" else f"{name}: {psnr(one, truth):.2f} dB", fontsize=10)
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    figure, axes = plt.subplots(2, SHAPE[0], figsize=(SHAPE[0], 2.4))
    order = np.argsort(-weights * np.abs(filters).sum(axis=(1, 2)))
    for row, (title, ones) in enumerate((("before", first_filters()), ("learned", filters[order]))):
        for k, axis in enumerate(axes[row]):
            axis.imshow(ones[k], cmap="coolwarm", vmin=-np.abs(ones[k]).max(), vmax=np.abs(ones[k]).max())
            axis.set_xticks([])
            axis.set_yticks([])
            if row:
                axis.set_xlabel(f"{weights[order[k]]:.3f}", fontsize=8)
        axes[row][0].set_ylabel(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path.replace(".png", "_filters.png"), dpi=110)


if __name__ == "__main__":
    main()
