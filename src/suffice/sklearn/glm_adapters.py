r"""Adapters of generalised linear models: our own `ElasticNetGLM`, and scikit-learn's estimators in these words:

ElasticNetGLM(family, l1, l2)       as it stands
GammaRegressor(alpha)               mean half deviance + alpha ||w||^2 / 2       l2 = alpha
TweedieRegressor(power, alpha)      the same, 1 <= power <= 2 with a log link, or power 0 with none
RidgeClassifier(alpha)              Ridge with targets -1 and 1                  l2 = alpha/N
SGDClassifier, SGDRegressor         what they would minimise if they came to an end: mean of psi + penalty,
                                    l1 = alpha l1_ratio,  l2 = alpha (1 - l1_ratio)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import GammaRegressor, RidgeClassifier, SGDClassifier, SGDRegressor, TweedieRegressor
from sklearn.preprocessing import LabelBinarizer

from suffice.arrays import Array
from suffice.models.cox import signed_times
from suffice.models.families import GAMMA, NegativeBinomial, Tweedie, tweedie
from suffice.models.margin_losses import LOGISTIC, POISSON, SQUARED, MarginLoss
from suffice.sklearn._structure import Columns, Structure
from suffice.sklearn.adapters import (
    AlphaAndRatio,
    Classifier,
    Fold,
    PoissonAdapter,
    Regressor,
    RidgeAdapter,
    register_adapter,
)
from suffice.sklearn.folds import Hazards, Intercept, LinearFold

SPECIAL = ("offset", "exposure", "strata", "entry")  # parameters that name columns
SCORINGS = {
    "gaussian": ("neg_mean_squared_error", "r2"),
    "binomial": ("neg_log_loss", "neg_brier_score"),
    "poisson": ("neg_mean_poisson_deviance",),
    "gamma": ("neg_mean_gamma_deviance",),
    "tweedie": ("neg_mean_deviance",),
    "negative_binomial": ("neg_mean_deviance",),
    "cox": ("neg_partial_likelihood",),
}


def columns_of(estimator: Any, count: int, names: Any = None) -> Columns:
    """Which columns of X an estimator's `offset` and `exposure` are, `names` being those of a table."""
    found = {}
    for parameter in SPECIAL:
        given = getattr(estimator, parameter)
        if given is None:
            continue
        if isinstance(given, str):
            if names is None or given not in list(names):
                raise ValueError(f"{parameter}={given!r} is not a column of X")
            given = list(names).index(given)
        if isinstance(given, bool) or not isinstance(given, int | np.integer) or not -count <= given < count:
            raise ValueError(f"{parameter} must be the number of a column of X, or its name, got {given!r}")
        found[parameter] = int(given) % count
    return Columns(count, **found)


def _check_columns(estimator: Any) -> None:
    """Whether the family has a use for the columns that are named."""
    family = estimator.family
    if estimator.exposure is not None and family in ("gaussian", "binomial", "cox"):
        raise ValueError(f"exposure multiplies the mean of a family with a log link, family={family!r} takes an offset")
    for name in ("strata", "entry"):
        if getattr(estimator, name) is not None and family != "cox":
            raise ValueError(f"{name} is for family='cox', got family={family!r}")


def structure_of(estimator: Any, features: int) -> Structure:
    """Penalty factors, bounds and groups, checked."""
    factors = estimator.penalty_factors
    if factors is not None:
        factors = np.array(factors, dtype=np.float64)
        if factors.shape != (features,) or not (np.isfinite(factors).all() and (factors >= 0.0).all()):
            raise ValueError(f"penalty_factors must be {features} finite, non-negative numbers, one for each feature")
    positive = estimator.positive
    if isinstance(positive, bool | np.bool_):
        positive = np.ones(features, dtype=bool) if positive else None
    else:
        positive = np.asarray(positive)
        if positive.dtype != bool or positive.shape != (features,):
            raise ValueError(f"positive must be True, False, or {features} bools, one for each feature")
    groups, share = estimator.groups, float(estimator.group_share)
    if groups is not None:
        if positive is not None or factors is not None:
            raise ValueError("groups do not go with positive or penalty_factors")
        groups = tuple(np.asarray(group) for group in groups)
        if any(len(group) == 0 or group.min() < 0 or group.max() >= features for group in groups):
            raise ValueError(f"groups must hold numbers of features, from 0 to {features - 1}")
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"group_share must lie between 0 and 1, got {share!r}")
    return Structure(factors, positive, groups, share)


class GLMAdapter(Regressor):
    """`ElasticNetGLM`, of one family."""

    def __init__(self, family: str = "gaussian") -> None:
        self.family = family
        self.scorings = SCORINGS[family]

    def of(self, estimator: Any) -> GLMAdapter:
        """The adapter of this very estimator."""
        return adapter_of(estimator)

    def loss(self, estimator: Any) -> Any:
        """psi."""
        match self.family:
            case "gaussian":
                return SQUARED
            case "binomial":
                return LOGISTIC
            case "poisson":
                return POISSON
            case "gamma":
                return GAMMA
            case "tweedie":
                return Tweedie(float(estimator.power))
        return NegativeBinomial(float(estimator.theta))

    def ratio(self, estimator: Any) -> float:
        for name in ("l1", "l2"):
            value = getattr(estimator, name)
            if not (np.isfinite(value) and value >= 0.0):
                raise ValueError(f"{name} must be finite and not negative, got {value!r}")
        total = estimator.l1 + estimator.l2
        return float(estimator.l1 / total) if total > 0.0 else 0.5

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        _check_columns(estimator)

    def takes_blocks(self, estimator: Any) -> bool:
        special = any(getattr(estimator, name) is not None for name in (*SPECIAL, "groups", "penalty_factors"))
        return self.family != "cox" and not special and not np.any(estimator.positive)

    def prepared(self, estimator: Any, X: Any) -> Any:
        """The estimator with numbers of columns in place of names."""
        names = getattr(X, "columns", getattr(X, "feature_names_in_", None))
        given = {name: getattr(estimator, name) for name in SPECIAL if isinstance(getattr(estimator, name), str)}
        if not given:
            return estimator
        columns = columns_of(estimator, 0 if names is None else len(names), names)
        return type(estimator)(**{**estimator.get_params(), **{name: getattr(columns, name) for name in given}})

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        if self.family == "binomial":
            if len(classes) > 2:
                raise ValueError(
                    f"ElasticNetGLM(family='binomial') takes two classes, y holds {len(classes)}. "
                    "Only binary classification is supported. LogisticRegression has several"
                )
            return np.where(np.asarray(y) == classes[1], 1.0, -1.0)
        if self.family == "cox":
            return signed_times(y)
        targets: Array = self.loss(estimator).targets(np.asarray(y))
        return targets

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        columns = columns_of(estimator, X.shape[1])
        structure = structure_of(estimator, len(columns.features))
        if self.family == "cox":
            return LinearFold(X, y, Hazards(estimator.ties), weights, "free", columns=columns, structure=structure)
        kind: Intercept = "free" if estimator.fit_intercept else "none"
        return LinearFold(X, y, self.loss(estimator), weights, kind, columns=columns, structure=structure)

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        return {"l1": l1, "l2": l2} if len(names) == 2 else {names[0]: l1 if names[0] == "l1" else l2}

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        estimator.coef_, estimator.intercept_, estimator.n_features_in_ = coef, float(intercept), len(coef)
        if self.family == "binomial":
            estimator.classes_ = classes
        return estimator

    def finish(self, estimator: Any, fold: Fold, solution: Any) -> None:
        estimator.n_iter_ = solution.steps
        estimator.coef_radius_, estimator.coef_rule_ = solution.certificate.radius, solution.certificate.rule


def adapter_of(estimator: Any) -> GLMAdapter:
    """The adapter of an `ElasticNetGLM`; ValueError for a family that is not known."""
    family = estimator.family
    if family == "inverse_gaussian":
        raise ValueError(
            "family='inverse_gaussian' is not offered: with a log link its deviance is not convex, it may have several "
            "minimisers, and none can be proven; 'gamma' is nearest"
        )
    if family not in SCORINGS:
        raise ValueError(f"family must be one of {', '.join(SCORINGS)}, got {family!r}")
    return GLMAdapter(family)


class TweedieAdapter(PoissonAdapter):
    """GammaRegressor, and TweedieRegressor with powers that have a convex deviance."""

    def __init__(self, power: float = 1.0) -> None:
        self.power = power
        known = {0.0: ("neg_mean_squared_error", "r2"), 1.0: ("neg_mean_poisson_deviance",)}
        known[2.0] = ("neg_mean_gamma_deviance",)
        self.scorings = known.get(power, ("neg_mean_deviance",))

    def of(self, estimator: Any) -> TweedieAdapter:
        """The adapter of this very estimator."""
        power = 2.0 if isinstance(estimator, GammaRegressor) else float(estimator.power)
        psi, link = tweedie(power), getattr(estimator, "link", "log")
        link = ("identity" if power <= 0.0 else "log") if link == "auto" else link
        if link != ("identity" if psi is SQUARED else "log"):
            raise ValueError(f"power={power!r} with link={link!r} has no convex deviance: use link='auto'")
        return TweedieAdapter(power)

    @property
    def loss(self) -> MarginLoss:
        return tweedie(self.power)

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        try:
            targets: Array = self.loss.targets(np.asarray(y))  # type: ignore[attr-defined]
        except ValueError as error:
            raise ValueError(f"{error}, for {type(estimator).__name__}") from error
        return targets

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        return LinearFold(X, y, self.loss, weights, "free" if estimator.fit_intercept else "none")


class RidgeClassifierAdapter(Classifier):
    """RidgeClassifier with two classes; a margin is a regression's prediction of -1 or 1."""

    scorings = ("neg_squared_margin_error",)
    by_rows = True

    def takes_blocks(self, estimator: Any) -> bool:
        return True

    def ratio(self, estimator: Any) -> float:
        return 0.0

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        if getattr(estimator, "positive", False):
            raise ValueError("RidgeClassifier(positive=True) is not supported: ElasticNetGLM(positive=True) is nearest")
        if names != ("l2",):
            raise ValueError(f"RidgeClassifier has one penalty, l2, got {', '.join(names)}")

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        return LinearFold(X, y, SQUARED, weights, "free" if estimator.fit_intercept else "none")

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        return {"alpha": total * l2}

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        estimator = super().fitted(estimator, coef, intercept, classes)
        estimator._label_binarizer = LabelBinarizer(pos_label=1, neg_label=-1).fit(classes)  # predict asks it
        return estimator

    def finish(self, estimator: Any, fold: Fold, solution: Any) -> None:
        RidgeAdapter().finish(estimator, fold, solution)


class _Descent(AlphaAndRatio):
    """SGD*: alpha is relative to the mean over samples, which are to count alike."""

    def takes_blocks(self, estimator: Any) -> bool:
        return True

    def ratio(self, estimator: Any) -> float:
        known = {"l1": 1.0, "l2": 0.0, "elasticnet": float(estimator.l1_ratio)}
        if estimator.penalty not in known:
            raise ValueError(f"{type(estimator).__name__}(penalty={estimator.penalty!r}) has no penalty to tune")
        return known[estimator.penalty]

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        if estimator.loss not in ("log_loss", "squared_error"):
            nearest = {"hinge": "LinearSVC", "squared_hinge": "LinearSVC", "huber": "HuberRegressor"}
            use = nearest.get(estimator.loss, "one with loss='log_loss' or 'squared_error'")
            raise ValueError(f"{type(estimator).__name__}(loss={estimator.loss!r}) is not supported: use {use}")
        if len(names) == 2 and estimator.penalty != "elasticnet":
            raise ValueError(f"penalty={estimator.penalty!r} leaves one weight to tune, got l1 and l2")
        if estimator.average:
            raise ValueError("average is not supported: coefficients are exact without")

    def weights(self, estimator: Any, y: Any, sample_weight: Array, classes: Any) -> Array:
        if np.any(sample_weight != sample_weight[0]) or getattr(estimator, "class_weight", None) is not None:
            raise ValueError(f"{type(estimator).__name__} is tuned without weights of samples or classes")
        return np.ones_like(sample_weight)

    def finish(self, estimator: Any, fold: Fold, solution: Any) -> None:
        estimator.n_iter_, estimator.t_ = solution.steps, 1.0


class SGDRegressorAdapter(_Descent, Regressor):
    """SGDRegressor with squares, as what it minimises."""

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        estimator = super().fitted(estimator, coef, intercept, classes)
        estimator.intercept_ = np.atleast_1d(intercept)
        return estimator


class SGDClassifierAdapter(_Descent, Classifier):
    """SGDClassifier with the logistic loss, as what it minimises."""

    scorings = ("neg_log_loss", "neg_brier_score")

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        super().check(estimator, names)
        if estimator.loss != "log_loss":
            raise ValueError("SGDClassifier(loss='squared_error') is not supported: use RidgeClassifier")

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        return LinearFold(X, y, LOGISTIC, weights, "free" if estimator.fit_intercept else "none")


register_adapter(GammaRegressor, TweedieAdapter(2.0))
register_adapter(TweedieRegressor, TweedieAdapter())
register_adapter(RidgeClassifier, RidgeClassifierAdapter())
register_adapter(SGDRegressor, SGDRegressorAdapter())
register_adapter(SGDClassifier, SGDClassifierAdapter())
