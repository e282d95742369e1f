"""What a fold's columns are, and what is asked of their weights besides one penalty for all: an offset of every row,
read from columns of X that are no features (`Columns`); penalty factors u_j >= 0 per feature, l1 u_j and l2 u_j (0: not
penalised), and weights that must not be negative (`Structure`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import Array, positive
from suffice.penalties.prox import BoxL1
from suffice.problems.linear import penalised
from suffice.rows.gram import column
from suffice.solvers.problem import Composite


@dataclass(frozen=True)
class Columns:
    """Which columns of X are features, and which one says what else of a row: numbers of columns, or None."""

    count: int
    offset: int | None = None
    exposure: int | None = None
    strata: int | None = None
    entry: int | None = None

    @property
    def special(self) -> list[int]:
        return [one for one in (self.offset, self.exposure, self.strata, self.entry) if one is not None]

    @property
    def features(self) -> Any:
        """The numbers of the other columns."""
        every = np.arange(self.count)
        return np.setdiff1d(every, self.special) if self.special else every

    def split(self, X: Any) -> tuple[Any, Array | None]:
        """Features, and the offset of every row."""
        if not self.special:
            return X, None
        parts = [] if self.offset is None else [column(X, self.offset)]
        if self.exposure is not None:
            exposure = column(X, self.exposure)
            if not (exposure > 0.0).all():
                raise ValueError(f"exposure must be positive, got {float(exposure.min())!r}")
            parts.append(np.log(exposure))
        return X[:, self.features], np.sum(parts, axis=0) if parts else None

    def survival(self, X: Any) -> tuple[Array | None, Array | None]:
        """Strata and entries of rows, for Cox's model."""
        strata, entry = (None if one is None else column(X, one) for one in (self.strata, self.entry))
        return strata, entry

    def of_features(self, values: Array) -> Array:
        """Those of all columns that are features."""
        return values[self.features] if self.special else values

    def placed(self, coef: Array) -> Array:
        """Coefficients of all columns, 0 for those that are no features."""
        if not self.special:
            return coef
        whole = np.zeros(self.count)
        whole[self.features] = coef
        return whole


@dataclass(frozen=True)
class Structure:
    """Factors of the penalties, and which weights must not be negative: one for all or one each."""

    factors: Any = 1.0
    positive: Any = False

    @property
    def plain(self) -> bool:
        return np.ndim(self.factors) == 0 and not np.any(self.positive)

    def l1_max(self, gradient: Array) -> float:
        """The smallest l1 for which zeros are optimal where this is the gradient, as far as weights are penalised."""
        pull, u = np.where(self.positive, -gradient, np.abs(gradient)), np.broadcast_to(self.factors, gradient.shape)
        return float(max(np.max(np.divide(pull, u, out=np.zeros_like(pull), where=u > 0.0)), 0.0))

    def problem(self, model: Callable[[float], Any], l1: Any, l2: Any, floor: float, size: int) -> Composite:
        """The problem at these penalties, one for all features or one each; `floor` stands in for no l2."""
        if not isinstance(l1, np.ndarray):
            positive(l1, "l1", zero=True)
        made = penalised(model, l1 * self.factors, l2 * self.factors, floor, size)
        if not np.any(self.positive):
            return made
        lower = np.broadcast_to(np.where(self.positive, 0.0, -math.inf), size)
        return replace(made, prox=BoxL1(np.broadcast_to(l1 * self.factors, size), lower))
