r"""What a fitted estimator minimises, read from the estimator itself.

    sum_i a_i psi(x_i . w + b, y_i) + 1/2 sum_j l2_j w_j^2 + sum_j l1_j |w_j|,      a_i = s_i / N,  N = sum of all s_i,

s the sample weights times class weights. `suffice.sklearn.adapters` has scikit-learn's objectives in these units, but
for those that nobody tunes: LinearRegression has no penalty, RidgeClassifier is Ridge with targets -1 and 1, and

    SGD*(alpha, l1_ratio)             1/n sum s_i psi + penalty     l1, l2 = alpha n/N times its shares
    TweedieRegressor(power, alpha)    as PoissonRegressor for power = 1, Gamma for 2, squares / 2 for 0
    skglm, celer: Lasso, ElasticNet   as scikit-learn's             l1_j = alpha weights_j
    skglm.SparseLogisticRegression    mean of psi + penalty         l1 = alpha l1_ratio,  l2 = alpha (1 - l1_ratio)
    celer.LogisticRegression(C)       sum of psi + ||w||_1 / C      l1 = 1/(C N)
    glum: GeneralizedLinearRegressor  mean half deviance + penalty  l1 = alpha l1_ratio,  l2 = alpha (1 - l1_ratio)

A reader is known by the class itself, never by a class it is derived from: a class derived from Lasso may minimise
anything (MultiTaskLasso does). What a reader does not know for certain it refuses, by `CannotTellError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.models.families import GAMMA
from suffice.models.margin_losses import LOGISTIC, POISSON, SQUARED, SQUARED_HINGE, Kinked, MarginLoss
from suffice.sklearn._arguments import READ, misunderstood, name_of, takes_weights
from suffice.sklearn.adapters import LogisticAdapter
from suffice.sklearn.folds import Concomitant, Intercept, LinearFold, Softmax

SCORING = {"Squared": "neg_mean_squared_error", "Logistic": "neg_log_loss", "SquaredHinge": "neg_squared_hinge"}
SCORING |= {"Poisson": "neg_mean_poisson_deviance", "Concomitant": "neg_mean_squared_error"}
SCORING |= {"Gamma": "neg_mean_gamma_deviance"}
SCORING |= {"Huber": "neg_mean_squared_error"}


class CannotTellError(Exception):
    """Nothing can be said about a fitted estimator; the message says why."""


@dataclass(frozen=True, eq=False)
class Objective:
    """What a fitted linear model minimises, and the coefficients that it has found.

    `psi` is the loss of a margin (`suffice.terms.MarginLoss`), or None for the multinomial one; `l1` and `l2`, one for
    all weights or one each, belong to losses that are weighted to sum to 1. `targets` are y as psi takes it (-1 and 1,
    or numbers of classes), `weights` the s_i. The intercept is "free", "none", or a penalised "column" of `scaling`.
    """

    psi: MarginLoss | Concomitant | None
    l1: float | Array
    l2: float | Array
    coef: Array
    intercept: Any
    targets: Array
    weights: Array
    kind: Intercept = "free"
    scaling: float = 1.0

    @property
    def scoring(self) -> str:
        """The score that it is about."""
        return "neg_log_loss" if self.psi is None else SCORING[type(self.psi).__name__]

    def fold(self, X: Any) -> LinearFold:
        """The problem on these rows, to the last bit."""
        psi = Softmax(len(self.coef)) if self.psi is None else self.psi
        return LinearFold(X, self.targets, psi, self.weights, self.kind, self.scaling, centre=False)


Reader = Callable[[Any, Any, Array], Objective]

_READERS: dict[str, Reader] = {}


def register_objective(estimator_class: type, reader: Reader) -> None:
    """Make fitted estimators of this class known to `suffice.certify`. `reader(estimator, y, sample_weight)` returns
    the `Objective` that the estimator has minimised, or raises `CannotTellError`. Classes derived from it are not
    meant: they may have another objective."""
    if not isinstance(estimator_class, type):
        raise TypeError(f"estimator_class must be a class, got {estimator_class!r}")
    if not callable(reader):
        raise TypeError(f"reader must be callable, got {reader!r}")
    _READERS[name_of(estimator_class)] = reader


def objective_of(estimator: Any, y: Any, sample_weight: Array) -> Objective:
    """What this fitted estimator has minimised; `CannotTellError` if that is not known."""
    name = name_of(type(estimator))
    if name not in _READERS:
        raise CannotTellError(f"the objective of {name} is not known (register_objective makes it so)")
    strange = misunderstood(estimator)
    refuse(strange is not None, str(strange))
    weighted = np.any(sample_weight != 1.0) and name in READ and not takes_weights(estimator)
    refuse(weighted, f"{name} was fitted without sample_weight, which its fit does not take: leave it out")
    return _READERS[name](estimator, y, sample_weight)


def _reads(*names: str) -> Callable[[Reader], Reader]:
    def known(reader: Reader) -> Reader:
        for name in names:
            _READERS[name] = reader
        return reader

    return known


def refuse(condition: Any, reason: str) -> None:
    """Raise `CannotTellError` where the condition holds."""
    if condition:
        raise CannotTellError(reason)


# Regressions


def _regression(
    estimator: Any, y: Any, weights: Array, l1: Any, l2: Any, psi: MarginLoss | Concomitant = SQUARED
) -> Objective:
    refuse(getattr(estimator, "positive", False), "its coefficients are constrained to be positive")
    targets = np.asarray(y, dtype=np.float64)
    targets = targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets
    refuse(targets.ndim != 1, "it has several targets")
    kind: Intercept = "free" if estimator.fit_intercept else "none"
    refuse(isinstance(psi, Kinked) and kind == "free", "a loss that is flat in places leaves the intercept open")
    b = float(np.ravel(estimator.intercept_)[0]) if estimator.fit_intercept else 0.0
    return Objective(psi, l1, l2, _dense(estimator.coef_).ravel(), b, targets, weights, kind)


def _dense(coef: Any) -> Array:
    coef = coef.toarray() if hasattr(coef, "toarray") else coef
    return np.asarray(coef, dtype=np.float64)


def _one(value: Any, name: str) -> float:
    values = np.unique(np.asarray(value, dtype=np.float64))
    refuse(len(values) != 1, f"it has several values of {name}")
    return float(values[0])


@_reads("sklearn.LinearRegression")
def _least_squares(estimator: Any, y: Any, weights: Array) -> Objective:
    return _regression(estimator, y, weights, 0.0, 0.0)


@_reads("sklearn.Ridge", "sklearn.RidgeCV")
def _ridge(estimator: Any, y: Any, weights: Array) -> Objective:
    return _regression(estimator, y, weights, 0.0, _alpha(estimator) / float(weights.sum()))


@_reads("sklearn.Lasso", "sklearn.LassoCV", "sklearn.LassoLars", "sklearn.LassoLarsCV", "celer.Lasso", "celer.LassoCV")
@_reads("skglm.Lasso", "skglm.WeightedLasso")
def _lasso(estimator: Any, y: Any, weights: Array) -> Objective:
    refuse(getattr(estimator, "jitter", None) is not None, "jitter has changed the targets")
    return _regression(estimator, y, weights, _alpha(estimator) * _factors(estimator), 0.0)


@_reads("sklearn.ElasticNet", "sklearn.ElasticNetCV", "celer.ElasticNet", "celer.ElasticNetCV", "skglm.ElasticNet")
def _elastic_net(estimator: Any, y: Any, weights: Array) -> Objective:
    ratio = _one(getattr(estimator, "l1_ratio_", estimator.l1_ratio), "l1_ratio")
    alpha = _alpha(estimator) * _factors(estimator)
    return _regression(estimator, y, weights, alpha * ratio, alpha * (1.0 - ratio))


def _alpha(estimator: Any) -> float:
    return _one(estimator.alpha_ if hasattr(estimator, "alpha_") else estimator.alpha, "alpha")


def _factors(estimator: Any) -> Any:
    factors = getattr(estimator, "weights", None)
    return 1.0 if factors is None else np.asarray(factors, dtype=np.float64)


@_reads("sklearn.GammaRegressor")
def _gamma(estimator: Any, y: Any, weights: Array) -> Objective:
    return _regression(estimator, y, weights, 0.0, float(estimator.alpha), GAMMA)


@_reads("sklearn.PoissonRegressor", "sklearn.TweedieRegressor")
def _generalised(estimator: Any, y: Any, weights: Array) -> Objective:
    power, link = getattr(estimator, "power", 1), getattr(estimator, "link", "log")
    link = ("identity" if power <= 0 else "log") if link == "auto" else link
    known: dict[tuple[float, str], MarginLoss] = {(0, "identity"): SQUARED, (1, "log"): POISSON, (2, "log"): GAMMA}
    psi = known.get((power, link))
    refuse(psi is None, f"there is no proof for power={power!r} with link={link!r}")
    assert psi is not None
    return _regression(estimator, y, weights, 0.0, float(estimator.alpha), psi)


@_reads("sklearn.HuberRegressor")
def _huber(estimator: Any, y: Any, weights: Array) -> Objective:
    psi = Concomitant(float(estimator.epsilon))
    refuse(not psi.epsilon > 1.0, f"its scale exists for epsilon > 1 only, and epsilon={psi.epsilon!r}")
    return _regression(estimator, y, weights, 0.0, float(estimator.alpha) / float(weights.sum()), psi)


@_reads("sklearn.SGDRegressor")
def _sgd_regressor(estimator: Any, y: Any, weights: Array) -> Objective:
    refuse(estimator.loss != "squared_error", f"there is no proof for loss={estimator.loss!r}")
    return _regression(estimator, y, weights, *_sgd_penalties(estimator, weights))


def _sgd_penalties(estimator: Any, weights: Array) -> tuple[float, float]:
    r = {"l1": 1.0, "l2": 0.0, "elasticnet": estimator.l1_ratio}.get(estimator.penalty)
    alpha = 0.0 if r is None else estimator.alpha * len(weights) / float(weights.sum())
    return alpha * (r or 0.0), alpha * (1.0 - (r or 0.0))


@_reads("suffice.ElasticNetGLM")
def _our_own(estimator: Any, y: Any, weights: Array) -> Objective:
    for name in ("offset", "exposure", "groups"):
        refuse(getattr(estimator, name) is not None, f"{name} is not supported: coef_radius_ says it of the fit itself")
    refuse(np.any(estimator.positive), "its coefficients are constrained to be positive: coef_radius_ says it")
    known: dict[str, MarginLoss] = {"gaussian": SQUARED, "binomial": LOGISTIC, "poisson": POISSON, "gamma": GAMMA}
    psi = known.get(estimator.family)
    refuse(psi is None, f"there is no reader for family={estimator.family!r}: coef_radius_ says it of the fit itself")
    assert psi is not None
    factors = 1.0 if estimator.penalty_factors is None else np.asarray(estimator.penalty_factors, dtype=np.float64)
    l1, l2 = float(estimator.l1) * factors, float(estimator.l2) * factors
    if psi is not LOGISTIC:
        return _regression(estimator, y, weights, l1, l2, psi)
    kind: Intercept = "free" if estimator.fit_intercept else "none"
    return replace(_classification(estimator, y, weights, LOGISTIC, kind), l1=l1, l2=l2)


# Classifications


def _classification(
    estimator: Any, y: Any, weights: Array, psi: MarginLoss, kind: Intercept, scaling: float = 1.0
) -> Objective:
    """Without penalties, which depend on the weights."""
    classes, y = estimator.classes_, np.asarray(y)
    strange = y[~np.isin(y, classes)]
    if len(strange):
        raise ValueError(
            f"y holds the label '{strange[0]}', and the model was fitted to {', '.join(map(str, classes))}"
        )
    coef = _dense(estimator.coef_)
    if len(classes) > 2:
        refuse(len(coef) != len(classes), "it has several classes, and a model for each pair of them")
        targets = np.searchsorted(classes, y).astype(np.float64)
        shifts = np.array(
            np.ravel(estimator.intercept_) if kind == "free" else np.zeros(len(classes)), dtype=np.float64
        )
        return Objective(None, 0.0, 0.0, coef, shifts, targets, weights, kind)
    targets = np.where(y == classes[1], 1.0, -1.0)
    b = 0.0 if kind == "none" else float(np.ravel(estimator.intercept_)[0])
    return Objective(psi, 0.0, 0.0, coef.ravel(), b, targets, weights, kind, scaling)


def _class_weighted(estimator: Any, y: Any, weights: Array, *, count: bool = False) -> Array:
    """Sample weights times class weights; `count` is for estimators that balance classes by their numbers of rows."""
    if getattr(estimator, "class_weight", None) is None:
        return weights
    of = LogisticAdapter().weights
    if count:
        return weights * of(estimator, y, np.ones_like(weights), estimator.classes_)
    return of(estimator, y, weights, estimator.classes_)


def _penalised(made: Objective, total: float, ratio: float) -> Objective:
    """With penalties of strength 1/`total`."""
    return replace(made, l1=ratio / total, l2=(1.0 - ratio) / total)


@_reads("sklearn.LogisticRegression", "sklearn.LogisticRegressionCV")
def _logistic(estimator: Any, y: Any, weights: Array) -> Objective:
    weights = _class_weighted(estimator, y, weights)
    liblinear, many = estimator.solver == "liblinear", len(estimator.classes_) > 2
    refuse(many and liblinear, "it is one model for each class")
    refuse(not getattr(estimator, "refit", True), "refit=False has averaged the models of the folds")
    kind: Intercept = ("column" if liblinear else "free") if estimator.fit_intercept else "none"
    scaling = float(estimator.intercept_scaling)
    unscaled = kind == "column" and hasattr(estimator, "Cs") and scaling != 1.0
    refuse(unscaled, f"LogisticRegressionCV ignores intercept_scaling={scaling!r} in its final fit: use 1")
    made = _classification(estimator, y, weights, LOGISTIC, kind, scaling)
    penalty = getattr(estimator, "penalty", "deprecated")
    C = _one(estimator.C_ if hasattr(estimator, "C_") else estimator.C, "C")
    if penalty is None or not np.isfinite(C):
        return made
    ratio = {"l1": 1.0, "l2": 0.0}.get(penalty)
    if ratio is None:
        chosen = getattr(estimator, "l1_ratio_", None)
        chosen = estimator.l1_ratio if chosen is None else chosen
        ratio = 0.0 if chosen is None or np.ravel(chosen)[0] is None else _one(chosen, "l1_ratio")
    return _penalised(made, C * float(weights.sum()), ratio)


@_reads("sklearn.LinearSVC")
def _linear_svc(estimator: Any, y: Any, weights: Array) -> Objective:
    refuse(estimator.loss != "squared_hinge", "there is no proof for the hinge loss, which is not smooth")
    refuse(len(estimator.classes_) > 2, "it is one model for each class")
    weights = _class_weighted(estimator, y, weights)
    kind: Intercept = "column" if estimator.fit_intercept else "none"
    made = _classification(estimator, y, weights, SQUARED_HINGE, kind, float(estimator.intercept_scaling))
    return _penalised(made, estimator.C * float(weights.sum()), 1.0 if estimator.penalty == "l1" else 0.0)


@_reads("sklearn.RidgeClassifier", "sklearn.RidgeClassifierCV")
def _ridge_classifier(estimator: Any, y: Any, weights: Array) -> Objective:
    refuse(len(estimator.classes_) > 2, "it is one model for each class")
    weights = _class_weighted(estimator, y, weights, count=True)
    return _ridge(estimator, np.where(np.asarray(y) == estimator.classes_[1], 1.0, -1.0), weights)


@_reads("sklearn.SGDClassifier")
def _sgd_classifier(estimator: Any, y: Any, weights: Array) -> Objective:
    refuse(len(estimator.classes_) > 2, "it is one model for each class")
    kind: Intercept = "free" if estimator.fit_intercept else "none"
    refuse(
        estimator.loss != "log_loss" and not (estimator.loss == "squared_hinge" and kind == "none"),
        f"there is no proof for loss={estimator.loss!r}" + " with an intercept" * (estimator.loss == "squared_hinge"),
    )
    weights = _class_weighted(estimator, y, weights, count=True)
    psi = LOGISTIC if estimator.loss == "log_loss" else SQUARED_HINGE
    l1, l2 = _sgd_penalties(estimator, weights)
    return replace(_classification(estimator, y, weights, psi, kind), l1=l1, l2=l2)


@_reads("skglm.SparseLogisticRegression")
def _sparse_logistic(estimator: Any, y: Any, weights: Array) -> Objective:
    refuse(len(estimator.classes_) > 2, "it is one model for each class")
    made = _classification(estimator, y, weights, LOGISTIC, "free" if estimator.fit_intercept else "none")
    alpha, ratio = float(estimator.alpha), float(estimator.l1_ratio)
    return replace(made, l1=alpha * ratio, l2=alpha * (1.0 - ratio))


@_reads("celer.LogisticRegression")
def _celer_logistic(estimator: Any, y: Any, weights: Array) -> Objective:
    refuse(len(estimator.classes_) > 2, "it is one model for each class")
    made = _classification(estimator, y, weights, LOGISTIC, "none")
    return _penalised(made, float(estimator.C) * float(weights.sum()), 1.0)


_GLUM: dict[tuple[str, str], MarginLoss] = {
    (family, link): psi
    for family, own, psi in (
        ("normal", "identity", SQUARED),
        ("binomial", "logit", LOGISTIC),
        ("poisson", "log", POISSON),
        ("gamma", "log", GAMMA),
    )
    for link in (own, "auto")
}


@_reads("glum.GeneralizedLinearRegressor", "glum.GeneralizedLinearRegressorCV")
def _glum(estimator: Any, y: Any, weights: Array) -> Objective:
    limits = ("lower_bounds", "upper_bounds", "A_ineq", "b_ineq", "monotonic_constraints", "formula")
    for name in limits:
        refuse(getattr(estimator, name, None) is not None, f"{name} is not supported")
    refuse(estimator.scale_predictors, "scale_predictors is not supported")
    refuse(getattr(estimator, "alpha_search", False), "alpha_search is not supported")
    family, link = (str(one) for one in (estimator.family, estimator.link))
    psi = _GLUM.get((family, link))
    refuse(psi is None, f"there is no proof for family={family} with link={link}")
    assert psi is not None
    alpha = getattr(estimator, "alpha_", None)
    alpha = estimator.alpha if alpha is None else alpha
    ratio = _one(getattr(estimator, "l1_ratio_", estimator.l1_ratio), "l1_ratio")
    alpha = 0.0 if alpha is None else _one(alpha, "alpha")
    l1, l2 = (_glum_factors(estimator, name) * share * alpha for name, share in (("P1", ratio), ("P2", 1.0 - ratio)))
    made = _regression(estimator, y, weights, l1, l2, psi)
    if psi is not LOGISTIC:
        return made
    refuse(not np.isin(made.targets, (0.0, 1.0)).all(), "its targets are neither 0 nor 1")
    return replace(made, targets=np.where(made.targets == 1.0, 1.0, -1.0))


def _glum_factors(estimator: Any, name: str) -> Any:
    given = getattr(estimator, name)
    if given is None:
        return 0.0
    if isinstance(given, str):
        refuse(given != "identity", f"{name}={given!r} is not supported")
        return 1.0
    factors = _dense(given)
    refuse(factors.ndim != 1, f"{name} is a matrix")
    return factors
