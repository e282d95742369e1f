r"""Minimisers without proofs, for many penalties in a row:

    Phi(w) = sum_i a_i psi(x_i . w + b, y_i) + (l2/2) ||w||^2 + l1 ||w||_1,        b free or 0.

Newton's method: a step minimises the model of Phi on the weights that are not zero and those that might leave zero
(`suffice.solvers.minimise`) and in b, and is halved until Phi falls. From weights nearby that takes a few steps of one
Hessian each. Certificates, which most of the time of `suffice.solve` goes into, are left
to whoever needs them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.models.margin_losses import slope_and_bend
from suffice.penalties.prox import Indices
from suffice.rows.gram import dense_rows
from suffice.solvers.minimise import from_face_to_face
from suffice.solvers.quadratic import NoFactorError, Quadratic, Wide, with_ridge

LIKELY = 0.7  # of l1: a gradient that is larger may leave zero
HALVINGS, BLUR = 20, 1e-14  # of a step; of Phi: what rounding may hide
LEVELS, FARTHEST = 40, 2.0  # steps to the level b, and the longest of them
LARGEST = 2000  # weights that are solved for at a time


@dataclass(frozen=True, eq=False)
class MarginProblem:
    """Rows, their weights and targets, and psi; `free`: whether there is an intercept."""

    X: Any
    a: Array
    y: Array
    psi: Any
    free: bool

    def level(self, m: Array, b: float = 0.0) -> float:
        """b that minimises the loss at these margins."""
        if not self.free:
            return 0.0
        for _ in range(LEVELS):
            slope, bend = (float(self.a @ part) for part in slope_and_bend(self.psi, m + b, self.y))
            step = math.copysign(FARTHEST, slope) if FARTHEST * bend < abs(slope) else slope / bend if bend else 0.0
            b -= step
            if abs(step) <= 1e-6:
                break
        return b

    def minimised(
        self, w: Array, l1: float, l2: float, *, optimal: float, least: float, steps: int
    ) -> tuple[Array, int, bool]:
        """Weights near the minimiser, from w, the steps to them, and whether the last one promised no more than `least`
        of Phi. Models are minimised to an `optimal` share of l1."""
        w, _, step, done = self.from_both(w, self.level(self.X @ w), l1, l2, optimal, least, steps)
        return w, step, done

    def from_both(
        self, w: Array, b: float, l1: float, l2: float, optimal: float, least: float, steps: int
    ) -> tuple[Array, float, int, bool]:
        """The same from w and b near its level, and b. A whole step that moves no margin by more than r leaves about
        r^2 of what it promised: where psi'' is alike before and after."""
        X, a, y, psi, m = self.X, self.a, self.y, self.psi, self.X @ w
        excess = getattr(psi, "excess", psi.value)  # psi of counts may be negative

        def phi(w: Array, m: Array, b: float) -> float:
            return float(a @ excess(m + b, y)) + 0.5 * l2 * float(w @ w) + l1 * float(np.abs(w).sum())

        height = phi(w, m, b)
        for step in range(steps):
            slopes, bends = slope_and_bend(psi, m + b, y)
            C, slopes = a * bends, a * slopes
            up = float(slopes.sum()) / float(C.sum()) if self.free else 0.0  # the model is least at b - up for this w
            pull = X.T @ (C * up - slopes) - l2 * w
            W = np.flatnonzero((w != 0.0) | (np.abs(pull) > LIKELY * l1))
            if len(W) > LARGEST:
                return w, b, step, False
            try:
                change = self._step(W, C, pull[W], w[W], l1, l2, optimal)
            except NoFactorError:
                return w, b, step, False
            promised = float(pull[W] @ change) - l1 * float(np.abs(w[W] + change).sum() - np.abs(w[W]).sum())
            promised += up * up * float(C.sum())
            if not promised > least * height:
                return w, b, step, promised == promised
            moved = X[:, W] @ change
            lifted = -up - float(C @ moved) / float(C.sum()) if self.free else 0.0
            for halving in range(HALVINGS):
                t, there = 0.5**halving, w.copy()
                there[W] += t * change
                reached = phi(there, m + t * moved, b + t * lifted)
                if reached < height + BLUR * abs(height):
                    break
            else:
                return w, b, step, False
            w, m, b, height = there, m + t * moved, b + t * lifted, reached
            if t == 1.0 and promised * float(np.abs(moved + lifted).max()) ** 2 <= least * height:
                return w, b, step + 1, True
        return w, b, steps, False

    def _step(self, W: Indices, C: Array, pull: Array, w: Array, l1: float, l2: float, optimal: float) -> Array:
        """To the minimiser of the model on a working set."""
        if not len(W):
            return w
        ((_, B),) = dense_rows(self.X, W, len(C))
        if self.free:
            B = B - (C @ B) / C.sum()
        H = quadratic(np.sqrt(C)[:, None] * B, l2)
        if l1 == 0.0:
            return H.solver()(pull)
        goal = max(optimal * l1 * math.sqrt(len(W)), 8.0 * EPS * norm(np.abs(pull) + l1))
        return from_face_to_face(w, H, -pull, w, l1, goal) - w


def quadratic(B: Array, l2: float) -> Quadratic:
    """B^T B + l2; with a little more where rows are fewer than columns."""
    if B.shape[1] > len(B):
        return Wide(B, max(l2, EPS * float(np.sum(B * B)), 1e-300))
    return with_ridge(B.T @ B, l2)
