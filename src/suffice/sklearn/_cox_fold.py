"""A fold of Cox's model: minus the mean partial log-likelihood of training rows, and that of held-out rows as the loss.

Held-out rows are at risk among themselves: the loss is a partial likelihood of its own, not the difference of two. l2 =
0 leaves no proof (`suffice.models.cox`); it is solved with l2 = FLOOR L in place of 0, as the multinomial is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from suffice.arrays import Array, positive
from suffice.lazy import cached_property
from suffice.losses import PartialLikelihood
from suffice.models.cox import CoxModel
from suffice.models.smooth import Ridged
from suffice.penalties.prox import L1
from suffice.rows.design import Design
from suffice.sklearn._glm_fold import Columns, Structure
from suffice.sklearn.folds import FLOOR
from suffice.solvers.problem import Composite


class CoxFold:
    """Training rows of Cox's model as a lower-level problem in l1 and l2; y holds times, negative where censored."""

    solver = "auto"

    def __init__(
        self, X: Any, y: Array, weights: Array, columns: Columns, structure: Structure, ties: str = "efron"
    ) -> None:
        self.places, self.structure, self.ties = columns, structure, ties
        features, offset = columns.split(X)
        # f depends on differences of rows only; centred ones have a smaller L and less rounding.
        self.shift = np.zeros(features.shape[1])
        if not sp.issparse(features):
            self.shift = np.average(features, axis=0, weights=weights)
            features = features - self.shift
        self.design = Design.of(features)
        self.model = CoxModel.of(self.design, y, ties, weights, *columns.survival(X), offset)

    @cached_property
    def l1_max(self) -> float:
        """The smallest l1 for which w = 0 is the solution, as far as it is penalised."""
        return self.structure.l1_max(self.model.gradient(np.zeros(self.design.shape[1])))

    @property
    def l2_floor(self) -> float:
        """FLOOR L."""
        return max(FLOOR * self.model.L, 1e-300)

    @property
    def l2_in_place_of_none(self) -> float:
        """What l2 = 0 is solved with."""
        return self.l2_floor

    def at(self, *, l1: float | Array, l2: float | Array) -> Composite:
        """The problem at fixed penalties, one for all columns or one each."""
        size, features = self.design.shape[1], self.places.features
        if len(features) < self.places.count:
            l1, l2 = (one[features] if isinstance(one, np.ndarray) else one for one in (l1, l2))
        ridge = np.broadcast_to(np.asarray(l2, dtype=np.float64), size)
        ridge = ridge if self.structure.factors is None else ridge * self.structure.factors
        ridge = np.where(ridge == 0.0, self.l2_floor, ridge)
        least = positive(float(ridge.min()), "l2")
        plain = replace(self.model, l2=least)
        smooth = plain if np.all(ridge == least) else Ridged(plain, ridge - least)
        single = self.structure.plain and not isinstance(l1, np.ndarray)
        g = L1(positive(l1, "l1", zero=True)) if single else self.structure.term(l1, size)  # type: ignore[arg-type]
        return Composite(smooth, g, mu=least, L=plain.L + float(np.max(ridge - least)), size=size)

    def held_out(self, X: Any, y: Array, sample_weight: Array, scoring: str, folds: int) -> PartialLikelihood:
        """This fold's part of minus the mean score over `folds` folds."""
        features, offset = self.places.split(X)
        features = features if sp.issparse(features) else features - self.shift
        strata, entry = self.places.survival(X)
        return PartialLikelihood(
            features,
            y,
            ties=self.ties,
            sample_weight=sample_weight,
            strata=strata,
            entry=entry,
            offset=offset,
            share=1.0 / folds,
        )

    def coefficients(self, w: Array) -> tuple[Array, float]:
        """w of all columns; there is no intercept."""
        return self.places.placed(w), 0.0


def concordance(y: Any, risk: Any, sample_weight: Any = None) -> float:
    """Harrell's concordance of times y, negative where censored, and risks: the share of pairs whose earlier event has
    the larger risk, ties of risks counting half; weighted by the product of weights."""
    y, risk = np.asarray(y, dtype=np.float64), np.asarray(risk, dtype=np.float64)
    weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    time, event = np.abs(y), y > 0.0
    right = pairs = 0.0
    for i in np.flatnonzero(event & (weight > 0.0)):
        later = (time > time[i]) | ((time == time[i]) & ~event)
        w = weight[later] * weight[i]
        pairs += float(w.sum())
        right += float(w @ ((risk[later] < risk[i]) + 0.5 * (risk[later] == risk[i])))
    return right / pairs if pairs > 0.0 else 0.5
