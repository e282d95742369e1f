"""Linear models of several outputs as lower-level problems: classes, each with penalties of its own, and targets, whose
weights come and go together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from suffice.arrays import Array, positive
from suffice.lazy import cached_property
from suffice.models.multinomial import Multinomial
from suffice.models.targets import Targets, rows
from suffice.penalties.groups import SparseGroup
from suffice.penalties.prox import L1
from suffice.problems.linear import GroupedPenalties, LinearProblem, least_zeroing_l1
from suffice.rows.design import Design
from suffice.solvers.problem import Composite


class ElasticNetMultinomial(GroupedPenalties):
    """Elastic-net multinomial logistic regression, W of K x d: sum_i a_i (log sum_k exp(m_ik) - m_i,y_i) + sum_k
    (l2_k/2) ||W_k||^2 + sum_k l1_k ||W_k||_1, m_i = W x_i, plus intercepts without a penalty if `intercept`.

    `at(l1=..., l2=...)` is the problem at fixed penalties; `l1_<class>` and `l2_<class>` are those of single classes,
    which go before the common ones. Solutions x hold W class by class: `x.reshape(K, d)`. `y` holds labels of any kind,
    `classes` are they in order. a_i is 1/N, or `sample_weight` scaled to sum to 1. `X` may also be a `dask.array`, or
    `suffice.terms.RowBlocks`.
    """

    kind = "classes"

    def __init__(self, X: Any, y: Any, *, intercept: bool = False, sample_weight: Any = None) -> None:
        self.design, self.intercept = Design.of(X, sample_weight).with_weights_here(), intercept
        self.y = self.design.rows.targets(y, self._numbers)  # numbers of classes
        self.outputs, self.groups = len(self.classes), tuple(map(str, self.classes.tolist()))
        self.group = np.repeat(np.arange(self.outputs), self.design.shape[1])
        counts = self.model().seen if intercept else np.ones(1)
        if not counts.all():
            label = self.classes[int(np.argmin(counts))].item()
            raise ValueError(f"y must hold all classes among the rows that count: {label!r} has no intercept")

    def _numbers(self, y: Any) -> Array:
        if y.dtype.kind == "f" and np.isnan(y).any():
            raise ValueError("y must hold labels, got NaN")
        self.classes, numbers = np.unique(y, return_inverse=True)
        if len(self.classes) < 2:
            raise ValueError(f"y must hold two classes at least, got {len(self.classes)}")
        return numbers.astype(np.float64)

    def model(self, l2: float = 0.0) -> Multinomial:
        """The loss with one l2 for all weights."""
        return Multinomial(self.design, self.y, self.outputs, self.intercept, l2)

    _model = model


class MultiTaskElasticNet(LinearProblem):
    """Elastic-net least squares of several targets, Y of N x t: (1/2) sum_i a_i ||x_i W - y_i||^2 + (l2/2) ||W||^2 +
    l1 sum_j ||W_j||_2, W_j the weights of column j for all targets.

    With `by_rows=False` the l1 penalty is sum_jk |W_jk|, which makes t separate problems of it. Solutions x hold W
    target by target: `x.reshape(t, d)` is scikit-learn's `coef_`. a_i is 1/N, or `sample_weight` scaled to sum to 1.
    `at(l1=..., l2=...)` is the problem at fixed penalties; l2 may be 0 where X has full column rank. There is no
    intercept. For l1 >= `l1_max` the solution is exactly 0. `X` may also be a `dask.array`, or
    `suffice.terms.RowBlocks`, and `Y` a `dask.array`.
    """

    def __init__(self, X: Any, Y: Any, *, by_rows: bool = True, sample_weight: Any = None) -> None:
        self.design, self.by_rows = Design.of(X, sample_weight).with_weights_here(), by_rows
        self.Y, self.outputs = self.design.matrix_of(Y)

    def _model(self, l2: float) -> Targets:
        return Targets(self.design, self.Y, l2, self.outputs)

    @cached_property
    def l1_max(self) -> float:
        """The smallest l1 for which W = 0 is the solution, for every l2."""
        return least_zeroing_l1(self._model(0.0), self.size, self.outputs if self.by_rows else 1)

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
        g = SparseGroup(rows(columns, model.outputs), l1)
    return Composite(model, g, mu=model.mu, L=model.L, size=columns * model.outputs)
