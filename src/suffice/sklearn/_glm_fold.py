r"""A fold of a generalised linear model, with what `suffice.sklearn.folds.LinearFold` does not have:

- an offset of every row, read from columns of X that are no features (`Columns`);
- penalty factors u_j >= 0 per feature, l1 u_j and l2 u_j (0: not penalised), weights that must not be negative, groups:

      l1 ( (1 - share) sum_j |w_j| + share sum_G sqrt(|G|) ||w_G|| );

- any family's deviance as the held-out loss.

Groups cannot be verified without an l2: for squares the least eigenvalue of X^T diag(a) X is their strong convexity.
Where that is 0, and for other families, a tiny l2 stands in for none.

An offset of squares is taken off the targets; for any other family it is part of the margins (`suffice.models.offset`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from suffice.arrays import Array, positive
from suffice.lazy import cached_property
from suffice.models.concomitant import ConcomitantHuber
from suffice.models.intercept import Intercepted
from suffice.models.linear import LinearModel
from suffice.models.margin_losses import MarginLoss, Squared
from suffice.models.offset import OffsetIntercepted, OffsetModel
from suffice.models.smooth import Ridged
from suffice.penalties.prox import WeightedL1
from suffice.penalties.structure import BoxL1, SparseGroup
from suffice.prove.held_out import DevianceScore, HeldOut
from suffice.rows.design import Design
from suffice.sklearn.folds import Concomitant, Intercept, LinearFold
from suffice.sklearn.scores import SCORES
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

    def placed(self, coef: Array) -> Array:
        """Coefficients of all columns, 0 for those that are no features."""
        if not self.special:
            return coef
        whole = np.zeros(self.count)
        whole[self.features] = coef
        return whole


def column(X: Any, k: int) -> Array:
    part = X[:, [k]]
    return np.asarray(part.toarray() if sp.issparse(part) else part, dtype=np.float64).ravel()


@dataclass(frozen=True)
class Structure:
    """Factors of the penalties, or None; which weights must not be negative, or None; groups with their share of l1."""

    factors: Any = None
    positive: Any = None
    groups: Sequence[Any] | None = None
    share: float = 1.0
    of_groups: Any = None  # weights of the groups' norms, in place of roots of their sizes

    @property
    def plain(self) -> bool:
        return self.factors is None and self.positive is None and self.groups is None

    def term(self, l1: Any, size: int) -> Any:
        """g of these l1, one for all features or one each."""
        l1 = np.broadcast_to(np.asarray(l1, dtype=np.float64), size)
        if self.groups is not None:
            roots = [math.sqrt(len(group)) for group in self.groups] if self.of_groups is None else self.of_groups
            means = [float(np.mean(l1[np.asarray(group)])) for group in self.groups]
            sizes = [float(root) * mean for root, mean in zip(roots, means, strict=True)]
            inside = np.zeros(size, dtype=bool)
            for group in self.groups:
                inside[np.asarray(group)] = True
            single = np.where(inside, (1.0 - self.share) * l1, l1)
            return SparseGroup(self.groups, self.share * np.array(sizes), single)
        factors = 1.0 if self.factors is None else self.factors
        if self.positive is None:
            return WeightedL1(l1 * factors)
        return BoxL1(l1 * factors, np.where(self.positive, 0.0, -math.inf))

    def l1_max(self, gradient: Array) -> float:
        """The smallest l1 for which zeros are optimal where this is the gradient, as far as weights are penalised."""
        pull = np.abs(gradient) if self.positive is None else np.where(self.positive, -gradient, np.abs(gradient))
        if self.factors is not None:
            pull = np.where(self.factors > 0.0, pull / np.where(self.factors > 0.0, self.factors, 1.0), 0.0)
        if self.groups is None:
            return float(max(np.max(pull), 0.0))
        low, high = 0.0, float(np.max(pull)) / min(1.0, max(self.share, 1.0 - self.share)) + 1e-300
        for _ in range(60):  # zeros are optimal where no subgradient is left
            middle = 0.5 * (low + high)
            zero = np.zeros(len(gradient))
            optimal = not self.term(middle, len(gradient)).least_subgradient(zero, gradient).any()
            low, high = (low, middle) if optimal else (middle, high)
        return high


class FamilyFold(LinearFold):
    """A fold with offsets, structure and any family's deviance; `columns` says what the columns of X are."""

    def __init__(
        self,
        X: Any,
        y: Array,
        psi: MarginLoss | Concomitant,
        sample_weight: Array,
        intercept: Intercept,
        columns: Columns | None = None,
        structure: Structure | None = None,
    ) -> None:
        self.places = columns or Columns(X.shape[1])
        self.structure = structure or Structure()
        X, offset = self.places.split(X)
        if offset is not None and isinstance(psi, Squared):
            y, offset = y - offset, None
        self.offset = offset
        super().__init__(X, y, psi, sample_weight, intercept)

    def _model(self, l2: float) -> LinearModel | Intercepted | ConcomitantHuber:
        if self.offset is None or isinstance(self.psi, Concomitant):
            return super()._model(l2)
        kind: Any = OffsetIntercepted if self.minimised_out else OffsetModel
        model: LinearModel = kind(self.design, self.y, self.psi, l2, offset=self.offset)
        return model

    @property
    def plain(self) -> bool:
        return super().plain and self.structure.plain and self.offset is None

    @cached_property
    def l1_max(self) -> float:
        """The smallest l1 for which w = 0 is the solution, as far as it is penalised."""
        return self.structure.l1_max(self._model(0.0).gradient(np.zeros(self.design.shape[1])))

    def at(self, *, l1: float | Array, l2: float | Array) -> Composite:
        """The problem at fixed penalties, one for all columns or one each."""
        size, features = self.design.shape[1], self.places.features
        if len(features) < self.places.count:
            l1, l2 = (one[features] if isinstance(one, np.ndarray) else one for one in (l1, l2))
        if self.structure.plain:
            return super().at(l1=l1, l2=l2)
        if not isinstance(l1, np.ndarray):
            positive(l1, "l1", zero=True)
        ridge = np.broadcast_to(np.asarray(l2, dtype=np.float64), size)
        ridge = ridge if self.structure.factors is None else ridge * self.structure.factors
        if self.structure.groups is not None:
            ridge = np.where(ridge == 0.0, self.l2_in_place_of_none, ridge)
        least = positive(float(ridge.min()), "l2", zero=True)
        plain = self._model(least)
        smooth = plain if np.all(ridge == least) else Ridged(plain, ridge - least)
        L = float(plain.L) + float(np.max(ridge - least))
        return Composite(smooth, self.structure.term(l1, size), mu=least + self._of_data, L=L, size=size)

    @property
    def _of_data(self) -> float:
        """The strong convexity that the data supply, where it is proven."""
        squares = isinstance(self.psi, Squared) and not self.minimised_out and self.structure.groups is not None
        return self.design.least_curvature if squares else 0.0

    @property
    def l2_in_place_of_none(self) -> float:
        """What l2 = 0 is solved with: 0 itself, where that can be verified, or where the data supply the curvature."""
        if self.structure.groups is None:
            return super().l2_in_place_of_none
        return 0.0 if self._of_data > 0.0 else self.l2_floor

    def held_out(self, X: Any, y: Array, sample_weight: Array, scoring: str, folds: int) -> HeldOut:
        """This fold's part of minus the mean score (r2: of 1 - r2) over `folds` folds."""
        score, v = SCORES[scoring], sample_weight / sample_weight.sum()
        share = 1.0 / folds / score.unit(y, v)
        X, offset = self.places.split(X)
        if offset is not None and isinstance(self.psi, Squared):
            y, offset = y - offset, None
        train: Any = self._model(0.0) if self.minimised_out else None
        design = Design.of(self._rows(X), sample_weight)
        phi = DevianceScore(self.psi) if score.phi is None else score.phi
        return HeldOut(design, self._targets(y), phi, share, train, offset=offset)

    def coefficients(self, w: Array) -> tuple[Array, float]:
        """w and the intercept of the data as they were given."""
        coef, intercept = super().coefficients(w)
        return self.places.placed(coef), intercept
