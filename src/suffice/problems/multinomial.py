"""Multinomial logistic regression with penalties of its own for every class, as a lower-level problem."""

from __future__ import annotations

from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.models.multinomial import Multinomial
from suffice.problems.linear import GroupedPenalties
from suffice.rows.design import Design


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
        self.design = X if isinstance(X, Design) and sample_weight is None else Design.of(X, sample_weight)
        self.intercept = intercept
        self.design = self.design.with_weights_here()
        self.y = self.design.rows.targets(y, self._numbers, True)  # numbers of classes
        self._check_seen()

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
        if self.intercept and not model.seen.all():
            label = self.classes[int(np.argmin(model.seen))].item()
            raise ValueError(f"y must hold all classes among the rows that count: {label!r} has no intercept")

    def model(self, l2: float = 0.0) -> Multinomial:
        """The loss with one l2 for all weights."""
        return Multinomial(self.design, self.y, len(self.classes), self.intercept, l2)

    def _model(self, l2: float) -> Multinomial:
        return self.model(l2)

    @property
    def groups(self) -> tuple[str, ...]:  # type: ignore[override]
        """The classes."""
        return tuple(map(str, self.classes.tolist()))

    @property
    def group(self) -> Any:
        return np.repeat(np.arange(len(self.classes)), self.design.shape[1])

    @property
    def size(self) -> int:
        """The number of weights."""
        return len(self.classes) * self.design.shape[1]
