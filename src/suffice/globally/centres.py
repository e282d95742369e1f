r"""Weights at the centre of a cell, and what is proven from them: one fold of one cell is a task for any worker.

Weights come by Newton's method without proofs (`suffice.solvers.unproven`), from a neighbour's in a few steps. Nothing
is proven of what comes out: `suffice.globally.surfaces` does that, whatever it is, and better weights only make a
better bound. Where it does not converge, the package's solver goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.globally.models import CertifiableFold
from suffice.globally.paths import PenaltyBox
from suffice.globally.surfaces import LossSurface, part_of
from suffice.penalties.prox import L1
from suffice.solvers.problem import Composite
from suffice.solvers.solver import solve
from suffice.solvers.unproven import MarginProblem

ENOUGH = 1e-9  # of the root of Phi: what a Newton step promises, its decrement
STEPS = 40
OTHERWISE = 150  # steps of the package's own solver


@dataclass(frozen=True, eq=False)
class CellLook:
    """A box to be looked at by fold j, from weights of a neighbour; None: from 0."""

    j: int
    low: Array
    high: Array
    start: Array | None


@dataclass(frozen=True, eq=False)
class CellAnswer:
    """The weights at the centre, the fold's share of F by them, the steps to them, and what is proven in the box."""

    w: Array
    cost: float
    steps: int
    part: LossSurface


@dataclass(frozen=True, eq=False)
class CellWorker:
    """What a worker has to know."""

    folds: tuple[CertifiableFold, ...]

    def solve(self, task: CellLook) -> CellAnswer:
        fold, box = self.folds[task.j], PenaltyBox(task.low, task.high)
        w, steps = np.zeros(fold.design.shape[1]), 0
        if box.bounded:
            l1, l2 = (float(one) for one in fold.B @ box.centre)
            w, steps = minimised(fold, l1, l2, w if task.start is None else task.start)
        return CellAnswer(w, fold.cost(w), steps, part_of(fold, w, box))

    def complaint(self, task: CellLook, answer: Any) -> str | None:
        """What is wrong with a worker's answer, as far as can be seen without looking again."""
        if not isinstance(answer, CellAnswer):
            return f"CellAnswer was expected, got {type(answer).__name__}"
        if answer.w.shape != (self.folds[task.j].design.shape[1],):
            return f"w has the shape {answer.w.shape}"
        return None


def minimised(fold: CertifiableFold, l1: float, l2: float, w: Array) -> tuple[Array, int]:
    """Nearly a minimiser, and the steps to it."""
    curved = MarginProblem(fold.design.X, fold.a, fold.y, fold.loss, fold.intercept)
    with np.errstate(all="ignore"):
        near, steps, done = curved.minimised(w, l1, l2, optimal=ENOUGH, least=ENOUGH**2, steps=STEPS)
    if done:
        return near, steps
    smooth = replace(fold.model, l2=l2)
    problem = Composite(smooth, L1(l1), mu=l2, L=smooth.L, size=len(w))
    found = solve(problem, within=ENOUGH, warm=near, max_steps=OTHERWISE)
    return found.x, steps + found.steps
