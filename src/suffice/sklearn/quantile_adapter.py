r"""QuantileRegressor: mean pinball loss + alpha ||w||_1, l1 = alpha, tuned with a loss that is smoothed a little.

The pinball loss is replaced by its envelope psi of width h (`models.quantile`), chosen so that the two differ by
at most BIAS of the loss of a model without features. What is tuned, scored and proven is this model; its training
objective is within that bias of the least one there is (`smoothing_bias_` of the final model). Held-out rows count by
the pinball loss itself. The intercept is a column of ones without a penalty.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import QuantileRegressor

from suffice.arrays import Array
from suffice.lazy import cached_property
from suffice.models.quantile import PinballScore, Quantile
from suffice.prove.held_out import HeldOut
from suffice.rows.design import Design
from suffice.sklearn._glm_fold import FamilyFold, Structure
from suffice.sklearn.adapters import Fold, Regressor, register_adapter
from suffice.solvers.newton_narrowing import NewtonNarrowing

BIAS = 1e-3


def smoothed(q: float, y: Array) -> Quantile:
    """psi for these targets."""
    rest = y - np.quantile(y, q)
    alone = float(np.mean(np.maximum(q * rest, (q - 1.0) * rest)))
    return Quantile(q, 2.0 * BIAS * alone / max(q, 1.0 - q) ** 2 if alone > 0.0 else 1.0)


class QuantileFold(FamilyFold):
    """Training rows of a quantile regression."""

    def __init__(self, X: Any, y: Array, psi: Quantile, weights: Array, intercept: bool) -> None:
        factors = np.append(np.ones(X.shape[1]), 0.0) if intercept else None
        super().__init__(X, y, psi, weights, "column" if intercept else "none", structure=Structure(factors))
        self.smooth = psi

    @property
    def solver(self) -> Any:
        return NewtonNarrowing()

    @cached_property
    def l1_max(self) -> float:
        """The smallest l1 for which no feature is used, or a little more."""
        x = np.zeros(self.design.shape[1])
        if self.kind == "column":
            x[-1] = np.quantile(self.y, self.smooth.q)
        gradient = self._model(0.0).gradient(x)
        return float(np.max(np.abs(gradient[: self.columns])))

    def held_out(self, X: Any, y: Array, sample_weight: Array, scoring: str, folds: int) -> HeldOut:
        """This fold's part of minus the mean score over `folds` folds."""
        return HeldOut(Design.of(self._rows(X), sample_weight), y, PinballScore(self.smooth.q), 1.0 / folds)


class QuantileAdapter(Regressor):
    scorings = ("neg_mean_pinball_loss",)

    def ratio(self, estimator: Any) -> float:
        return 1.0

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        if names != ("l1",):
            raise ValueError(f"QuantileRegressor has one penalty, l1, got {', '.join(names)}")

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        return QuantileFold(X, y, smoothed(float(estimator.quantile), y), weights, bool(estimator.fit_intercept))

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        return {"alpha": l1}

    def finish(self, estimator: Any, fold: Any, solution: Any) -> None:
        super().finish(estimator, fold, solution)
        estimator.smoothing_bias_ = fold.smooth.bias


register_adapter(QuantileRegressor, QuantileAdapter())
