"""Methods that use hypergradients, on the same solver and the same implicit differentiation as ours.

HOAG       Pedregosa (2016): solves to eps_k = 0.1 * 0.9^k, projected steps of 1/L, L by sufficient decrease.
MAID       Salehi, Mukherjee, Roberts and Ehrhardt (2023): a line search for proven decrease by inexact values; after
           one that fails, solves twice as accurate; after one that succeeds, looser by 1.05 and steps longer by 10/9.
L-BFGS-B   SciPy's, on values and gradients of the protocol's accuracy.

Accuracies of the weights are in units of their norm after the first training. theta is scaled to the box, [0, 1]^m; the
first step is a tenth of it long.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import suffice
from benchmarks.tuners.protocol import Run, Vector

FIRST = 0.1


class NoDerivatives(Exception):  # noqa: N818
    """The problem offers none."""


class _Path:
    """A method's way: theta in the box, evaluations with their slopes."""

    def __init__(self, run: Run) -> None:
        self.run, self.width = run, run.upper - run.lower
        self.start = (run.start - run.lower) / self.width
        first = run.train(run.start, 0.1, offer=False)
        size = float(np.sqrt(sum(float(one.x @ one.x) for one in first.solutions)))
        self.unit = size if size > 0.0 else 1.0
        self.last = first

    def at(self, u: Vector, eps: float, slope: bool = True) -> suffice.Evaluation:
        """Weights to eps of their norm, warm from the latest."""
        theta, began = self.run.inside(self.run.lower + u * self.width), time.process_time()
        made = self.run.problem.evaluate_weights(theta, within=eps * self.unit, warm=self.last)
        self.run.training_seconds += time.process_time() - began
        self.run.add_steps(made.work)
        self.last = made
        return self.slope(made) if slope else made

    def slope(self, made: suffice.Evaluation) -> suffice.Evaluation:
        began = time.process_time()
        made = self.run.problem.differentiate(made)
        self.run.training_seconds += time.process_time() - began
        if made.slope is None:
            raise NoDerivatives
        return made

    def gradient(self, made: suffice.Evaluation) -> Vector:
        assert made.slope is not None
        return np.asarray(made.slope * self.width)

    def note(self, made: suffice.Evaluation, value: float) -> None:
        self.run.offer(made.point, value)


def hoag(run: Run) -> None:
    path = _Path(run)
    u, eps = path.start, 0.1
    made = path.at(u, eps)
    path.note(made, made.cost)
    step = FIRST / max(float(np.linalg.norm(path.gradient(made))), 1e-300)
    while True:
        eps *= 0.9
        moved = np.clip(u - step * path.gradient(made), 0.0, 1.0)
        there = path.at(moved, eps)
        change, slack = float(np.sum((moved - u) ** 2)), made.error + there.error
        run.evaluations += 1
        if there.cost <= made.cost + slack - 0.5 * change / step:
            u, made, step = moved, there, step / 0.95
        elif there.cost <= made.cost + slack:
            u, made = moved, there
        else:
            step *= 0.5
        run.returns(made.point)  # the current iterate, as published
        run.check()
        if step < 1e-12 or eps < 1e-12:
            return


def maid(run: Run) -> None:
    path = _Path(run)
    u, eps = path.start, 0.1
    made = path.at(u, eps)
    path.note(made, made.interval[1])
    step = FIRST / max(float(np.linalg.norm(path.gradient(made))), 1e-300)
    while eps > 1e-12:
        for _ in range(5):
            moved = np.clip(u - step * path.gradient(made), 0.0, 1.0)
            there = path.at(moved, eps, slope=False)
            run.evaluations += 1
            run.check()
            if there.interval[1] <= made.interval[0] - 0.1 * float(np.sum((moved - u) ** 2)) / step:
                break
            step *= 0.5
        else:
            eps, step = 0.5 * eps, step * 2.0**5
            path.last = made
            made = path.at(u, eps)
            continue
        u, eps, step = moved, 1.05 * eps, step * 10.0 / 9.0
        made = path.slope(there)
        path.last = made
        path.note(made, made.interval[1])


def lbfgsb(run: Run) -> None:
    from scipy.optimize import minimize

    width = run.upper - run.lower

    def fun(u: Vector) -> tuple[float, Vector]:
        made = run.train(run.lower + u * width)
        sloped: Any = run.problem.differentiate(made)
        if sloped.slope is None:
            raise NoDerivatives
        return made.cost, sloped.slope * width

    u0 = (run.start - run.lower) / width
    bounds = [(0.0, 1.0)] * run.m
    minimize(fun, u0, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxfun": 10_000, "ftol": 1e-12})
