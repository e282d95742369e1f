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
        return np.setdiff1d(np.arange(self.count), self.special)

    def split(self, X: Any) -> tuple[Any, Array | None]:
        """Features, and the offset of every row."""
        if not self.special:
            return X, None
        if self.offset is None and self.exposure is None:
            return X[:, self.features], None
        offset = np.zeros(X.shape[0])
        if self.offset is not None:
            offset = offset + column(X, self.offset)
        if self.exposure is not None:
            exposure = column(X, self.exposure)
            if not (exposure > 0.0).all():
                raise ValueError(f"exposure must be positive, got {float(exposure.min())!r}")
            offset = offset + np.log(exposure)
        return X[:, self.features], offset

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
    """Factors of the penalties, or None; which weights must not be negative, or None."""

    factors: Any = None
    positive: Any = None

    @property
    def plain(self) -> bool:
        return self.factors is None and self.positive is None

    def l1_max(self, gradient: Array) -> float:
        """The smallest l1 for which zeros are optimal where this is the gradient, as far as weights are penalised."""
        pull = np.abs(gradient) if self.positive is None else np.where(self.positive, -gradient, np.abs(gradient))
        if self.factors is not None:
            pull = np.where(self.factors > 0.0, pull / np.where(self.factors > 0.0, self.factors, 1.0), 0.0)
        return float(max(np.max(pull), 0.0))

    def problem(self, model: Callable[[float], Any], l1: Any, l2: Any, floor: float, size: int) -> Composite:
        """The problem at these penalties, one for all features or one each; `floor` stands in for no l2."""
        if not isinstance(l1, np.ndarray):
            positive(l1, "l1", zero=True)
        u = 1.0 if self.factors is None else self.factors
        made = penalised(model, l1 * u, l2 * u, floor, size)
        if self.positive is None:
            return made
        return replace(made, prox=BoxL1(np.broadcast_to(l1 * u, size), np.where(self.positive, 0.0, -math.inf)))
