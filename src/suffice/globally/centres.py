r"""Weights at the centre of a cell, and what is proven from them: one fold of one cell is a task for any worker.

Newton's method on the weights that are not zero and those that ought not to be,

    (X^T C X + l2) delta = -(grad f(w) + l2 w + l1 sigma)    on S,      C = diag(a psi''),

with weights that would change their sign set to zero and the step halved until the objective falls. From a neighbour's
weights that takes a few steps. Nothing is proven of what comes out: `suffice.globally.surfaces` does that,
whatever it is, and better weights only make a better bound. Where it does not converge, the package's solver goes on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from suffice.arrays import Array, host
from suffice.globally.expansions import second
from suffice.globally.models import Fold
from suffice.globally.paths import Box
from suffice.globally.surfaces import Surface, part_of
from suffice.penalties.prox import L1
from suffice.rows.gram import gram
from suffice.solvers.problem import Composite
from suffice.solvers.solver import solve

ENOUGH = 1e-9  # of the Newton decrement
STEPS, HALVINGS = 40, 12
LARGEST = 2000  # weights that are solved for at a time
OTHERWISE = 150  # steps of the package's own solver


@dataclass(frozen=True, eq=False)
class Look:
    """A box to be looked at by fold j, from weights of a neighbour; None: from 0."""

    j: int
    low: Array
    high: Array
    start: Array | None


@dataclass(frozen=True, eq=False)
class Looked:
    """The weights at the centre, the fold's share of F by them, the steps to them, and what is proven in the box."""

    w: Array
    cost: float
    steps: int
    part: Surface


@dataclass(frozen=True, eq=False)
class Looking:
    """What a worker has to know."""

    folds: tuple[Fold, ...]

    def solve(self, task: Look) -> Looked:
        fold, box = self.folds[task.j], Box(task.low, task.high)
        w, steps = np.zeros(fold.design.shape[1]), 0
        if box.bounded:
            l1, l2 = (float(one) for one in fold.B @ box.centre)
            w, steps = minimised(fold, l1, l2, w if task.start is None else task.start)
        return Looked(w, fold.cost(w), steps, part_of(fold, w, box))

    def complaint(self, task: Look, answer: Any) -> str | None:
        """What is wrong with a worker's answer, as far as can be seen without looking again."""
        if not isinstance(answer, Looked):
            return f"Looked was expected, got {type(answer).__name__}"
        if answer.w.shape != (self.folds[task.j].design.shape[1],):
            return f"w has the shape {answer.w.shape}"
        return None


def minimised(fold: Fold, l1: float, l2: float, w: Array) -> tuple[Array, int]:
    """Nearly a minimiser, and the steps to it."""
    for step in range(STEPS):
        with np.errstate(all="ignore"):
            following, decrement = _step(fold, l1, l2, w)
        if decrement <= ENOUGH:
            return w, step
        if following is None:
            break
        w = following
    smooth = replace(fold.model, l2=l2)
    problem = Composite(smooth, L1(l1), mu=l2, L=smooth.L, size=len(w))
    found = solve(problem, within=ENOUGH, warm=w, max_steps=OTHERWISE)
    return found.x, STEPS + found.steps


def _step(fold: Fold, l1: float, l2: float, w: Array) -> tuple[Array | None, float]:
    """The next weights, None where there are none, and the Newton decrement of these."""
    a, loss, y = host(fold.design.weights), fold.model.loss, host(fold.model.y)
    m, _ = fold.start(w)
    g = fold.design.adjoint(a * loss.derivative(m, y)) + l2 * w
    sigma = np.where(w != 0.0, np.sign(w), -np.sign(g)) if l1 > 0.0 else np.zeros(len(w))
    over = np.abs(g) - l1
    S = np.flatnonzero((w != 0.0) | (over > 0.0))
    if len(S) > min(LARGEST, len(m) if l2 == 0.0 else len(w)):
        here = np.count_nonzero(w)
        most = min(LARGEST, len(m) if l2 == 0.0 else len(w)) - here - 1
        if most < 1:
            return None, math.inf
        new = np.flatnonzero((w == 0.0) & (over > 0.0))
        S = np.sort(np.append(np.flatnonzero(w), new[np.argsort(-over[new])[:most]]))
    if not len(S):
        return w, 0.0
    H, _ = gram(fold.columns(fold.design.X, S), scale=np.sqrt(a * second(loss, m, y)))
    at = np.arange(len(S))
    H[at, at] += l2
    u = np.zeros(H.shape[0])
    u[: len(S)] = g[S] + l1 * sigma[S]
    try:
        delta = -cho_solve(cho_factor(H), u)[: len(S)]
    except (LinAlgError, ValueError):
        return None, math.inf
    decrement = math.sqrt(max(float(-delta @ u[: len(S)]), 0.0))
    if not math.isfinite(decrement):
        return None, math.inf
    before, t = _objective(fold, l1, l2, w, m), 1.0
    for _ in range(HALVINGS):
        after = w.copy()
        after[S] += t * delta
        if l1 > 0.0:
            after[S[sigma[S] * after[S] < 0.0]] = 0.0
        if _objective(fold, l1, l2, after, fold.start(after)[0]) <= before + 1e-14 * abs(before):
            return after, decrement
        t *= 0.5
    return None, decrement


def _objective(fold: Fold, l1: float, l2: float, w: Array, m: Array) -> float:
    losses: npt.NDArray[Any] = fold.model.loss.value(m, host(fold.model.y))
    return float(host(fold.design.weights) @ losses) + 0.5 * l2 * float(w @ w) + l1 * float(np.abs(w).sum())
