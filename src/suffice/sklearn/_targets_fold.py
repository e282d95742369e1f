r"""A fold of squares of several targets (`suffice.models.targets`), with penalties of rows of W or of single weights.

The intercept, one for each target, is eliminated by centring X and Y. What is held out counts by the mean over targets
of squared errors, as scikit-learn's scores do; for r2 each target is in units of its own variance.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from suffice.arrays import EPS, Array, positive
from suffice.lazy import cached_property
from suffice.losses import SquaredErrors
from suffice.models.targets import Targets, of_zero
from suffice.problems.targets import with_targets
from suffice.rows.design import Design
from suffice.sklearn.folds import FLOOR, SMALL
from suffice.sklearn.scores import SCORES
from suffice.solvers.newton_hessian import NewtonHessian
from suffice.solvers.problem import Composite

MOST_WHOLE = 2000  # variables of a Hessian that is one matrix


class TargetsFold:
    """Training rows with Y of N x t; `by_rows`: whether l1 is the penalty of norms of rows."""

    def __init__(self, X: Any, Y: Array, sample_weight: Array, intercept: bool, by_rows: bool) -> None:
        self.by_rows, self.intercept, self.count = by_rows, intercept, Y.shape[1]
        X = self._rows(X)
        a = sample_weight / sample_weight.sum()
        self.shift, self.Y_shift = np.zeros(X.shape[1]), np.zeros(Y.shape[1])
        if intercept:
            self.shift, self.Y_shift = a @ X, a @ Y
            rows, Y = X - self.shift, Y - self.Y_shift
            self.rest, self.Y_rest = a @ rows, a @ Y  # of means that are rounded more coarsely than data vary
            X, Y = rows - self.rest, Y - self.Y_rest
            self.shift, self.Y_shift = self.shift + self.rest, self.Y_shift + self.Y_rest
        self.design, self.Y = Design.of(np.ascontiguousarray(X) if intercept else X, sample_weight), Y

    def _rows(self, X: Any) -> Any:
        if not sp.issparse(X) or not self.intercept:
            return X
        if 8 * math.prod(X.shape) > SMALL:
            raise ValueError("several targets with intercepts take dense rows: set fit_intercept=False, or X.toarray()")
        return X.toarray()

    @property
    def solver(self) -> Any:
        size = self.design.shape[1] * self.count
        return NewtonHessian() if not self.by_rows and size <= MOST_WHOLE else "auto"

    @cached_property
    def l1_max(self) -> float:
        """The smallest l1 for which W = 0 is the solution."""
        return of_zero(Targets(self.design, self.Y), self.by_rows)

    @cached_property
    def l2_floor(self) -> float:
        """FLOOR L."""
        return max(FLOOR * self.design.squared_norm, 1e-300)

    @property
    def l2_in_place_of_none(self) -> float:
        """0 where the data supply the curvature."""
        return 0.0 if self.design.least_curvature > 0.0 else self.l2_floor

    def at(self, *, l1: float | Array, l2: float | Array) -> Composite:
        """The problem at fixed penalties."""
        if isinstance(l1, np.ndarray) or isinstance(l2, np.ndarray):
            raise ValueError("groups_of_features are for one target")
        model = Targets(self.design, self.Y, positive(l2, "l2", zero=True))
        return with_targets(model, l1, self.by_rows, self.l2_floor)

    def held_out(self, X: Any, y: Array, sample_weight: Array, scoring: str, folds: int) -> SquaredErrors:
        """This fold's part of minus the mean score (r2: of 1 - r2) over `folds` folds."""
        v, X = sample_weight / sample_weight.sum(), self._rows(X)
        units = np.array([SCORES[scoring].unit(one, v) for one in y.T])
        shifted = X - self.shift if self.intercept else X
        blur = 0.0
        if self.intercept:  # rows and targets are rounded when they are shifted
            size = float(np.max(np.abs(y), initial=0.0)) + float(np.max(np.abs(self.Y_shift)))
            blur = 4.0 * EPS * size
        scales = 1.0 / (folds * self.count * units)
        return SquaredErrors(shifted, y - self.Y_shift, sample_weight=v, scales=scales, blur=blur)

    def coefficients(self, w: Array) -> tuple[Array, Array]:
        """W, one row per target, and the intercepts of the data as they were given."""
        W = w.reshape(self.count, -1)
        return W, self.Y_shift - W @ self.shift
