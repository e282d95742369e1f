"""One fold of multinomial logistic regression; its scores on held-out data are `suffice.prove.held_out_softmax`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from suffice.arrays import Array
from suffice.lazy import cached_property
from suffice.models.multinomial import Multinomial
from suffice.problems.linear import penalised
from suffice.prove.held_out_softmax import HeldOutSoftmax
from suffice.rows.design import Design
from suffice.sklearn.folds import FLOOR, Shared
from suffice.solvers.problem import Composite


class MultinomialFold:
    """One fold of multinomial logistic regression; `y` holds the classes' numbers. Dense rows with intercepts are
    centred, unless the problem has to be that of X to the last bit; `Shared` rows are taken as they are."""

    def __init__(
        self, X: Any, y: Array, classes: int, sample_weight: Array, intercept: bool, centre: bool = True
    ) -> None:
        self.onehot = np.eye(classes)[y.astype(int)]
        self.classes, self.intercept = classes, intercept
        seen = sample_weight @ self.onehot
        if intercept and not (seen > 0.0).all():
            missing = int(np.argmin(seen))
            raise ValueError(f"the training samples of a fold lack class number {missing}: its intercept is not finite")
        centred = centre and intercept and not sp.issparse(X) and not isinstance(X, Shared)
        self.mean = sample_weight @ X / sample_weight.sum() if centred else np.zeros(X.shape[1])
        rows = X - self.mean if centred else X
        if isinstance(X, Shared):
            rows, self.mean = X.X, X.shift
        self.design = Design.of(rows, sample_weight)
        self.centred = centred

    @property
    def solver(self) -> str:
        return "auto"

    @property
    def unpenalised(self) -> Multinomial:
        """The loss alone."""
        return self._model(0.0)

    def _model(self, l2: float) -> Multinomial:
        return Multinomial(self.design, self.onehot, self.intercept, l2)

    @property
    def size(self) -> int:
        return self.classes * self.design.shape[1]

    @cached_property
    def l2_floor(self) -> float:
        """What stands in for l2 = 0."""
        return max(FLOOR * 0.5 * self.design.squared_norm, 1e-300)

    @property
    def l2_in_place_of_none(self) -> float:
        return self.l2_floor

    @cached_property
    def l1_max(self) -> float:
        """The smallest l1 for which W = 0 is the solution."""
        return float(np.max(np.abs(self._model(0.0).gradient(np.zeros(self.size)))))

    def at(self, *, l1: float | Array, l2: float | Array) -> Composite:
        """The problem at fixed penalties, one for all columns or one each; l2 = 0 becomes the floor of
        `suffice.sklearn.folds`."""
        l1, l2 = (np.tile(part, self.classes) if isinstance(part, np.ndarray) else part for part in (l1, l2))
        return penalised(self._model, l1, l2, self.l2_floor, self.size)

    def held_out(self, X: Any, y: Array, sample_weight: Array, scoring: str, folds: int) -> HeldOutSoftmax:
        """This fold's part of minus the mean score over `folds` folds."""
        rows = X.X if isinstance(X, Shared) else X - self.mean if self.centred else X
        onehot = np.eye(self.classes)[y.astype(int)]
        return HeldOutSoftmax(Design.of(rows, sample_weight), onehot, scoring, 1.0 / folds, self._model(0.0))

    def coefficients(self, w: Array) -> tuple[Array, Array]:
        """W and the intercepts of the data as they were given; a constant added to all is free, and they sum to 0."""
        model, W = self._model(0.0), w.reshape(self.classes, -1)
        b = model.shift(model.image(w))[0] - W @ self.mean
        return W, b - b.mean()
