"""`TransformedTargetRegressor` around a linear estimator or a pipeline: a fold sees the transformed target.

The transformer is fitted to the training targets of every fold, as scikit-learn does it. What is optimised and proven
is the score of transformed targets. A score that is asked for is that of the targets themselves, as in scikit-learn;
nothing is proven about it, and it is reported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression

from suffice.arrays import Array


def transforms_target(estimator: Any) -> bool:
    return isinstance(estimator, TransformedTargetRegressor)


def inside(estimator: Any) -> Any:
    """The regressor whose target is transformed, not fitted; any other estimator itself."""
    if not transforms_target(estimator):
        return estimator
    return LinearRegression() if estimator.regressor is None else estimator.regressor


def fitted_inside(estimator: Any) -> Any:
    """The same of a fitted estimator."""
    return estimator.regressor_ if transforms_target(estimator) else estimator


def fitted_target(estimator: Any, y: Array) -> Any:
    """A clone whose transformer is fitted to y; None where there is nothing to transform."""
    if not transforms_target(estimator):
        return None
    made = clone(estimator)
    made._training_dim = 1
    made._fit_transformer(y.reshape(-1, 1))
    return made


def transformed(target: Any, y: Any) -> Any:
    """y as the regressor inside sees it."""
    if target is None:
        return y
    values = np.asarray(target.transformer_.transform(np.asarray(y).reshape(-1, 1)), dtype=np.float64)
    if values.size != len(y):
        raise ValueError(f"the transformer of the target must give one value for each, got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("the transformed target is not finite for all samples")
    return values.reshape(len(y))


def wrapped(target: Any, regressor: Any) -> Any:
    """The fitted regressor with predictions of the target itself."""
    if target is None:
        return regressor
    made = clone(target)
    made.transformer_, made._training_dim, made.regressor_ = target.transformer_, 1, regressor
    if hasattr(regressor, "feature_names_in_"):
        made.feature_names_in_ = regressor.feature_names_in_
    return made
