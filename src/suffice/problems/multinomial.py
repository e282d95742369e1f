"""Multinomial logistic regression with penalties of its own for every class, as a lower-level problem."""

from __future__ import annotations

from typing import Any

import numpy as np

from suffice.arrays import Array, positive
from suffice.lazy import cached_property
from suffice.models.multinomial import Multinomial
from suffice.models.row_softmax import RowsMultinomial
from suffice.problems.linear import least_zeroing_l1, penalised
from suffice.rows.blocks import Blocked
from suffice.rows.design import Design
from suffice.solvers.problem import Composite

KINDS = ("l1", "l2")


class ElasticNetMultinomial:
    """Elastic-net multinomial logistic regression, W of K x d: sum_i a_i (log sum_k exp(m_ik) - m_i,y_i) + sum_k
    (l2_k/2) ||W_k||^2 + sum_k l1_k ||W_k||_1, m_i = W x_i, plus intercepts without a penalty if `intercept`.

    `at(l1=..., l2=...)` is the problem at fixed penalties; `l1_<class>` and `l2_<class>` are those of single classes,
    which go before the common ones. Solutions x hold W class by class: `x.reshape(K, d)`. `y` holds labels of any kind,
    `classes` are they in order. a_i is 1/N, or `sample_weight` scaled to sum to 1. `X` may also be a `dask.array`, or
    `suffice.terms.RowBlocks`.
    """

    def __init__(self, X: Any, y: Any, *, intercept: bool = False, sample_weight: Any = None) -> None:
        self.design = X if isinstance(X, Design) and sample_weight is None else Design.of(X, sample_weight)
        self.intercept = intercept
        if isinstance(self.design.X, Blocked):
            self.onehot = self.design.X.targets(y, self._numbers, True)  # numbers of classes
            self._check_seen()
            return
        y = np.asarray(y)
        if y.shape != (self.design.shape[0],):
            raise ValueError(f"y must have shape ({self.design.shape[0]},) to match X, got {y.shape}")
        numbers = self._numbers(y).astype(int)
        self.onehot = np.eye(len(self.classes))[numbers]

    def _numbers(self, y: Any) -> Array:
        if y.dtype.kind == "f" and np.isnan(y).any():
            raise ValueError("y must hold labels, got NaN")
        self.classes, numbers = np.unique(y, return_inverse=True)
        if len(self.classes) < 2:
            raise ValueError(f"y must hold two classes at least, got {len(self.classes)}")
        return numbers.astype(np.float64)

    def _check_seen(self) -> None:
        """A class of which no row counts has no finite intercept."""
        model = self.model()
        if isinstance(model, RowsMultinomial) and self.intercept and not model.seen.all():
            label = self.classes[int(np.argmin(model.seen))].item()
            raise ValueError(f"y must hold all classes among the rows that count: {label!r} has no intercept")

    def model(self, l2: float = 0.0) -> Multinomial:
        """The loss with one l2 for all weights."""
        if isinstance(self.design.X, Blocked):
            return RowsMultinomial(self.design, self.onehot, self.intercept, l2, len(self.classes))
        return Multinomial(self.design, self.onehot, self.intercept, l2)

    def names(self, kind: str) -> tuple[str, ...]:
        """The parameters of this kind, "l1" or "l2", one for every class: for `suffice.Space`."""
        return tuple(f"{kind}_{label}" for label in self.classes.tolist())

    @property
    def size(self) -> int:
        """The number of weights."""
        return len(self.classes) * self.design.shape[1]

    @cached_property
    def l1_max(self) -> float:
        """The smallest l1 of all classes for which W = 0 is the solution, for every l2."""
        return least_zeroing_l1(self.model(), self.size)

    def at(self, **params: float) -> Composite:
        """The problem at fixed penalties."""
        unknown = set(params) - {*KINDS, *self.names("l1"), *self.names("l2")}
        if unknown:
            raise TypeError(f"unknown parameters: {', '.join(sorted(unknown))}")
        l1, l2 = (self._each(kind, params) for kind in KINDS)
        return penalised(self.model, l1, l2, 0.0, self.size)

    def cross(self, x: Array, **params: float) -> Array:
        """d/dp [grad f(x) + l1 sign(x)], a column for every parameter p (`suffice.solvers.sensitivity`)."""
        owner = np.repeat(np.arange(len(self.classes)), self.design.shape[1])
        columns = []
        for name in params:
            kind, entries = (name[:2], np.sign(x) if name.startswith("l1") else x)
            own = [name in (kind, one) and not (name == kind and one in params) for one in self.names(kind)]
            columns.append(np.where(np.array(own)[owner], entries, 0.0))
        return np.column_stack(columns)

    def _each(self, kind: str, params: dict[str, float]) -> float | Array:
        values = [params.get(name, params.get(kind)) for name in self.names(kind)]
        if None in values:
            raise ValueError(f"{self.names(kind)[values.index(None)]} must be given, or {kind} for all classes")
        checked = [positive(value, kind, zero=True) for value in values]  # type: ignore[arg-type]
        if len(set(checked)) == 1:
            return checked[0]
        return np.repeat(np.array(checked), self.design.shape[1])
