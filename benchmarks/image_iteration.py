"""What an iteration of FISTA on a 256 x 256 image costs beyond its one gradient, certificate included.

Processor time of `step` and of the certificate, over that of the gradient inside the step: both in the same
iterations, so that other work on the machine changes neither.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from suffice.imaging.variation import Variation
from suffice.problems import Denoising
from suffice.solvers.certificate import certify_step
from suffice.solvers.fista import Fista

STEPS, REPEATS = 200, 7


def ratio(y: Any) -> tuple[float, float]:
    """(milliseconds of an iteration, in units of its gradient)."""
    problem = Denoising(y, eps_l2=1e-3, eps_tv=1e-2).at(alpha=0.1)
    canonical, solver, clock = problem.canonical, Fista(), time.process_time
    spent = 0.0
    plain = Variation.gradient_at

    def timed(self: Variation, x: Any, image: Any) -> Any:
        nonlocal spent
        began = clock()
        result = plain(self, x, image)
        spent += clock() - began
        return result

    Variation.gradient_at = timed  # type: ignore[method-assign]
    try:
        state = solver.start(canonical, np.zeros(problem.size))
        began = clock()
        for _ in range(STEPS):
            state = solver.step(canonical, state)
            certify_step(canonical, state.x, state.image, state.evidence, "tightest")
        total = clock() - began
    finally:
        Variation.gradient_at = plain  # type: ignore[method-assign]
    return 1e3 * total / STEPS, total / spent


def main() -> None:
    rng = np.random.default_rng(0)
    real = rng.random((256, 256))
    for name, y in (("real", real), ("complex", real + 1j * rng.random((256, 256)))):
        times = [ratio(y) for _ in range(REPEATS)]
        print(f"{name}: {min(t for t, _ in times):.2f} ms, {np.median([r for _, r in times]):.2f} gradients (median)")


if __name__ == "__main__":
    main()
