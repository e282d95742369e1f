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
from suffice.models.quantile import Quantile
from suffice.sklearn._structure import Structure
from suffice.sklearn.adapters import Fold, Regressor, register_adapter
from suffice.sklearn.folds import LinearFold

BIAS = 1e-3


def smoothed(q: float, y: Array) -> Quantile:
    """psi for these targets."""
    rest = y - np.quantile(y, q)
    alone = float(np.mean(np.maximum(q * rest, (q - 1.0) * rest)))
    return Quantile(q, 2.0 * BIAS * alone / max(q, 1.0 - q) ** 2 if alone > 0.0 else 1.0)


class QuantileAdapter(Regressor):
    scorings = ("neg_mean_pinball_loss",)

    def ratio(self, estimator: Any) -> float:
        return 1.0

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        if names != ("l1",):
            raise ValueError(f"QuantileRegressor has one penalty, l1, got {', '.join(names)}")

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        psi = smoothed(float(estimator.quantile), y)
        if not estimator.fit_intercept:
            return LinearFold(X, y, psi, weights, "none")
        factors = np.append(np.ones(X.shape[1]), 0.0)
        return LinearFold(X, y, psi, weights, "column", structure=Structure(factors))

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        return {"alpha": l1}

    def finish(self, estimator: Any, fold: Any, solution: Any) -> None:
        super().finish(estimator, fold, solution)
        estimator.smoothing_bias_ = fold.psi.bias


register_adapter(QuantileRegressor, QuantileAdapter())
