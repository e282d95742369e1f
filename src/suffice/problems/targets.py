"""Squares of several targets, whose weights come and go together, as a lower-level problem in l1 and l2."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from suffice.arrays import positive
from suffice.lazy import cached_property
from suffice.models.targets import Targets, of_zero, rows, rows_of_targets
from suffice.penalties.groups import SparseGroup
from suffice.penalties.prox import L1
from suffice.rows.design import Design
from suffice.solvers.problem import Composite


class MultiTaskElasticNet:
    """Elastic-net least squares of several targets, Y of N x t: (1/2) sum_i a_i ||x_i W - y_i||^2 + (l2/2) ||W||^2 +
    l1 sum_j ||W_j||_2, W_j the weights of column j for all targets.

    With `by_rows=False` the l1 penalty is sum_jk |W_jk|, which makes t separate problems of it. Solutions x hold W
    target by target: `x.reshape(t, d)` is scikit-learn's `coef_`. a_i is 1/N, or `sample_weight` scaled to sum to 1.
    `at(l1=..., l2=...)` is the problem at fixed penalties; l2 may be 0 where X has full column rank. There is no
    intercept. For l1 >= `l1_max` the solution is exactly 0. `X` may also be a `dask.array`, or
    `suffice.terms.RowBlocks`, and `Y` a `dask.array`.
    """

    def __init__(self, X: Any, Y: Any, *, by_rows: bool = True, sample_weight: Any = None) -> None:
        self.design = X if isinstance(X, Design) and sample_weight is None else Design.of(X, sample_weight)
        self.by_rows = by_rows
        self.design = self.design.with_weights_here()
        self.Y, self.count = rows_of_targets(self.design, Y)

    def _model(self, l2: float) -> Targets:
        return Targets(self.design, self.Y, l2, self.count)

    @property
    def size(self) -> int:
        """The number of weights."""
        return self.design.shape[1] * self.count

    @cached_property
    def l1_max(self) -> float:
        """The smallest l1 for which W = 0 is the solution, for every l2."""
        return of_zero(self._model(0.0), self.by_rows)

    def at(self, *, l1: float, l2: float) -> Composite:
        """The problem at fixed penalties l1 >= 0 and l2 >= 0."""
        return with_targets(self._model(positive(l2, "l2", zero=True)), l1, self.by_rows)


def with_targets(model: Targets, l1: float, by_rows: bool, least: float = 0.0) -> Composite:
    """The problem with this l1; where neither l2 nor the data supply any curvature the ridge is `least`."""
    l1, (_, columns) = positive(l1, "l1", zero=True), model.design.shape
    if model.mu == 0.0:
        if least == 0.0:
            raise ValueError(
                "l2 must be positive: the columns of X depend on each other, or there are too many of them"
            )
        model = replace(model, l2=least)
    g: Any = L1(l1)
    if by_rows and l1 > 0.0:
        g = SparseGroup(rows(columns, model.count), l1)
    return Composite(model, g, mu=model.mu, L=model.L, size=columns * model.count)
