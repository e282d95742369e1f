r"""`ElasticNetGLM`: one generalised linear model with an elastic-net penalty, fitted to a proven accuracy.

    minimise over w and b   sum_i a_i psi(x_i . w + b + o_i, y_i) + sum_j u_j ( l1 |w_j| + (l2/2) w_j^2 ),

a_i = s_i / sum(s), s the sample weights, u_j the penalty factors, psi half the unit deviance of the family. What glmnet
and glum minimise is the same with alpha = l1 + l2 and l1_ratio = l1/(l1 + l2).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from suffice.arrays import Array, norm, outside_stacklevel
from suffice.losses import PartialLikelihood
from suffice.models.cox import signed_times
from suffice.models.families import GAMMA, POISSON, NegativeBinomial, Tweedie
from suffice.models.margin_losses import LOGISTIC, SQUARED
from suffice.sklearn._final_fit import MOST_STEPS, OFF, solved
from suffice.sklearn._structure import Columns, Structure
from suffice.sklearn.adapters import Objective, refuse
from suffice.sklearn.estimators import STEPS, Leaves, Regression, make_known, numbered
from suffice.sklearn.folds import Hazards, Intercept
from suffice.sklearn.measures import concordance
from suffice.sklearn.splits import SearchData
from suffice.sklearn.survival import cumulative_hazards, keep_baseline
from suffice.sklearn.table import of_hazards
from suffice.solvers.solution import Outcome

SPECIAL = ("offset", "exposure", "strata", "entry")  # parameters that name columns


def columns_of(estimator: Any, count: int, names: Any = None) -> Columns:
    """Which columns of X an estimator's `offset` and `exposure` are, `names` being those of a table."""
    found = {}
    for parameter in SPECIAL:
        given = getattr(estimator, parameter)
        if isinstance(given, str):
            if names is None or given not in list(names):
                raise ValueError(f"{parameter}={given!r} is not a column of X")
            given = list(names).index(given)
        if given is None:
            continue
        if isinstance(given, bool) or not isinstance(given, int | np.integer) or not -count <= given < count:
            raise ValueError(f"{parameter} must be the number of a column of X, or its name, got {given!r}")
        found[parameter] = int(given) % count
    return Columns(count, **found)


def loss_of(estimator: Any) -> Any:
    """The loss of a family; ValueError for one that is not offered."""
    family = estimator.family
    if family == "inverse_gaussian":
        raise ValueError(
            "family='inverse_gaussian' is not offered: with a log link its deviance is not convex, it may have several "
            "minimisers, and none can be proven; 'gamma' is nearest"
        )
    made: dict[str, Any] = {
        "gaussian": lambda: SQUARED,
        "binomial": lambda: LOGISTIC,
        "poisson": lambda: POISSON,
        "gamma": lambda: GAMMA,
        "tweedie": lambda: Tweedie(float(estimator.power)),
        "negative_binomial": lambda: NegativeBinomial(float(estimator.theta)),
        "cox": lambda: Hazards(estimator.ties),
    }
    if family not in made:
        raise ValueError(f"family must be one of {', '.join(made)}, got {family!r}")
    return made[family]()


LEAVES: Leaves = {
    **STEPS,
    "coef_radius_": lambda _, fold, found: found.certificate.radius,
    "coef_rule_": lambda _, fold, found: found.certificate.rule,
}


@dataclass(frozen=True)
class GLMRow(Regression):
    """`ElasticNetGLM` as a row of the table of estimators."""

    def ratio(self, estimator: Any) -> float:
        for name in ("l1", "l2"):
            value = getattr(estimator, name)
            if not (np.isfinite(value) and value >= 0.0):
                raise ValueError(f"{name} must be finite and not negative, got {value!r}")
        total = estimator.l1 + estimator.l2
        return float(estimator.l1 / total) if total > 0.0 else 0.5

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        """Whether the family has a use for the columns that are named."""
        family = estimator.family
        if estimator.exposure is not None and family in ("gaussian", "binomial", "cox"):
            raise ValueError(
                f"exposure multiplies the mean of a family with a log link, family={family!r} takes an offset"
            )
        name = next((name for name in ("strata", "entry") if getattr(estimator, name) is not None), "")
        if name and family != "cox":
            raise ValueError(f"{name} is for family='cox', got family={family!r}")

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        both = {"l1": l1, "l2": l2}  # the same names for all penalties, also where one is the estimator's own
        return {name: value for name, value in both.items() if name in names or value or getattr(estimator, name)}

    def takes_blocks(self, estimator: Any) -> bool:
        special = any(getattr(estimator, name) is not None for name in (*SPECIAL, "penalty_factors"))
        return estimator.family != "cox" and not special and not np.any(estimator.positive)

    def prepared(self, estimator: Any, X: Any) -> Any:
        """The estimator with numbers of columns in place of names."""
        names = getattr(X, "columns", getattr(X, "feature_names_in_", None))
        given = [name for name in SPECIAL if isinstance(getattr(estimator, name), str)]
        if not given:
            return estimator
        columns = columns_of(estimator, 0 if names is None else len(names), names)
        return clone(estimator).set_params(**{name: getattr(columns, name) for name in given})

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        if estimator.family == "binomial":
            return numbered(y, classes, "LogisticRegression takes several, ElasticNetGLM(family='binomial') takes")
        return signed_times(y) if estimator.family == "cox" else super().targets(estimator, y, classes)

    def kind(self, estimator: Any) -> Intercept:
        return "free" if estimator.fit_intercept or estimator.family == "cox" else "none"

    def columns(self, estimator: Any, count: int) -> Columns:
        return columns_of(estimator, count)

    def structure(self, estimator: Any, features: int) -> Structure:
        factors, positive = self.factors(estimator)[0], np.asarray(estimator.positive)
        known = np.shape(factors) == (features,) and np.isfinite(factors).all() and (factors >= 0.0).all()
        if estimator.penalty_factors is not None and not known:
            raise ValueError(f"penalty_factors must be {features} finite, non-negative numbers, one for each feature")
        if positive.dtype != bool or positive.shape not in ((), (features,)):
            raise ValueError(f"positive must be True, False, or {features} bools, one for each feature")
        return Structure(factors, positive)

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        if estimator.family == "binomial":
            estimator.classes_ = classes
        return super().fitted(estimator, coef, float(intercept), classes)

    def finish(self, estimator: Any, fold: Any, solution: Any) -> None:
        super().finish(estimator, fold, solution)
        if estimator.family == "cox":
            keep_baseline(estimator, fold, solution.x)

    def penalties(self, estimator: Any, weights: Array) -> tuple[Any, Any]:
        of_l1, of_l2 = self.factors(estimator)
        return float(estimator.l1) * of_l1, float(estimator.l2) * of_l2

    def objective(self, estimator: Any, y: Any, weights: Array) -> Objective:
        itself = "coef_radius_ says it of the fit itself"
        refuse(np.any(estimator.positive), f"its coefficients are constrained to be positive: {itself}")
        if estimator.family == "cox":
            return of_hazards(estimator, estimator.ties, self.penalties(estimator, weights), y, weights)
        for name in SPECIAL:
            refuse(getattr(estimator, name) is not None, f"{name} is not supported: {itself}")
        return super().objective(estimator, y, weights)


ROW = GLMRow(
    "suffice.ElasticNetGLM",
    "entry exposure family fit_intercept l1 l2 offset penalty_factors positive power strata theta "
    "ties",
    strength=None, share=None, psi=loss_of, scorings=(), leaves=LEAVES, factor="penalty_factors",
)  # fmt: skip
make_known(ROW)


def _classifies(estimator: Any) -> bool:
    if estimator.family != "binomial":
        raise AttributeError(f"family={estimator.family!r} has no probabilities of classes")
    return True


def _survives(estimator: Any) -> bool:
    if estimator.family != "cox":
        raise AttributeError(f"family={estimator.family!r} has no survival function")
    return True


@dataclass(eq=False, repr=False)  # its __init__ sets parameters, as scikit-learn has it
class ElasticNetGLM(BaseEstimator):  # type: ignore[misc]
    """A generalised linear model with an elastic-net penalty, fitted to a proven accuracy.

    It minimises the weighted mean of half the unit deviance plus sum_j factor_j (l1 |w_j| + (l2/2) w_j^2) and says how
    far its coefficients are from the exact minimiser, at most (`coef_radius_`). `SufficeSearchCV` tunes l1 and l2.

    Parameters
    ----------
    family : "gaussian" (identity link), "binomial" (logit link, two classes: a classifier), or, with a log link,
        "poisson", "gamma", "tweedie" and "negative_binomial". "cox": proportional hazards; y holds times, negative
        where they are censored, or an array with a field of bools (the event) and one of numbers (the time).
    l1, l2 : the penalties, not negative. l2 = 0 is allowed: a solution is proven where the data supply the curvature.
    fit_intercept : whether there is an intercept, which is never penalised.
    power : of "tweedie", between 1 and 2: the variance is proportional to mean**power.
    theta : of "negative_binomial": the variance is mean + theta * mean**2.
    penalty_factors : one number for each feature by which its penalties are multiplied; 0 leaves it unpenalised.
    positive : True if no coefficient must be negative, or one bool for each feature.
    offset : a column of X, by number (or by name, if X is a table), that is a known part of the linear predictor: it is
        no feature, and its `coef_` is 0.
    exposure : a column of X by which the mean is multiplied, for a log link: its logarithm is an offset.
    ties, strata, entry : of "cox": "efron" or "breslow"; columns of X: rows that differ in `strata` have baseline
        hazards of their own, `entry` is the time from which on a row is at risk (left truncation).
    tol, max_iter : the distance from the exact coefficients that is asked for, relative to their norm; the most steps.

    Attributes
    ----------
    coef_, intercept_ : the coefficients of all columns of X, and the intercept.
    coef_radius_ : a proven bound on the distance of the coefficients from exact ones, in the Euclidean norm; infinite
        where nothing is proven, as without an l2 where columns are linearly dependent.
    coef_rule_ : the rule that proved it; n_iter_ : steps of the solver; classes_ : the labels, for "binomial".
    baseline_times_, baseline_cumulative_hazard_, baseline_strata_ : of "cox", a table as R's `basehaz` makes one: times
        of events and the last one watched, and until then the cumulative hazard of a row whose linear predictor is
        `baseline_predictor_`, the mean of the training rows; estimated as Breslow did, or Efron as `ties` says.
    """

    family: str = "gaussian"
    _: KW_ONLY
    l1: float = 0.01
    l2: float = 0.01
    fit_intercept: bool = True
    power: float = 1.5
    theta: float = 1.0
    penalty_factors: Any = None
    positive: Any = False
    offset: Any = None
    exposure: Any = None
    ties: str = "efron"
    strata: Any = None
    entry: Any = None
    tol: float = 1e-8
    max_iter: int = MOST_STEPS

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ElasticNetGLM:
        """Fit the model to X (dense or sparse) and y, with weights of samples or without."""
        adapter = ROW.of(self)
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        adapter.ratio(self)
        adapter.check(self, ())
        labels = self.family == "binomial"
        y = signed_times(y) if self.family == "cox" else y
        X, y = validate_data(
            self, X, y, accept_sparse=("csr", "csc"), dtype=np.float64, y_numeric=not labels, ensure_min_samples=2
        )
        if not (math.isfinite(self.tol) and self.tol > 0.0):
            raise ValueError(f"tol must be positive and finite, got {self.tol!r}")
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weight.any():
            raise ValueError("sample_weight must not be all zero")
        if labels:
            check_classification_targets(y)
        split = SearchData(adapter.prepared(self, self), X, y, weight).whole()
        solution = solved(split.model.at(l1=self.l1, l2=self.l2), split.solver, self.tol, most=self.max_iter)
        adapter.fitted(self, *split.model.coefficients(solution.x), split.classes)
        adapter.finish(self, split.model, solution)
        size = norm(solution.x)
        if not self.coef_radius_ <= OFF * size and size > 0.0:
            why = "arithmetic allows no more" if solution.outcome is Outcome.PRECISION else "more iterations are needed"
            warnings.warn(
                f"the coefficients, of norm {size:.4g}, are proven to lie within {self.coef_radius_:.4g} of exact ones "
                f"only: {why}, or a larger l2",
                ConvergenceWarning,
                stacklevel=outside_stacklevel(),
            )
        return self

    @property
    def _columns(self) -> Columns:
        return columns_of(self, self.n_features_in_, getattr(self, "feature_names_in_", None))

    def linear_predictor(self, X: Any) -> Array:
        """x . w + b, with the offset: the mean of y is its inverse link."""
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, accept_sparse=("csr", "csc"), dtype=np.float64, reset=False)
        features, offset = self._columns.split(X)
        coef = self.coef_[self._columns.features]
        margins = np.asarray(features @ coef).ravel() + self.intercept_
        return np.asarray(margins if offset is None else margins + offset)

    def predict(self, X: Any) -> Any:
        """Means of y; labels for "binomial", logarithms of relative hazards for "cox"."""
        m = self.linear_predictor(X)
        if self.family in ("gaussian", "cox"):
            return m
        if self.family == "binomial":
            return self.classes_[(m > 0.0).astype(int)]
        return np.exp(m)

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Array:
        """The linear predictor, for "binomial"."""
        return self.linear_predictor(X)

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the two classes, for "binomial"."""
        m = self.linear_predictor(X)
        return np.stack([expit(-m), expit(m)], axis=1)

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the probabilities of the two classes, for "binomial"."""
        m = self.linear_predictor(X)
        return np.stack([-np.logaddexp(0.0, m), -np.logaddexp(0.0, -m)], axis=1)

    @available_if(_survives)  # type: ignore[untyped-decorator]
    def predict_cumulative_hazard_function(self, X: Any, times: Any = None) -> Array:
        """Cumulative hazards (rows x times), for "cox": at `times`, or at all of `np.unique(baseline_times_)`; NaN
        beyond the last time that a training row, of the same stratum, was watched."""
        return cumulative_hazards(self, X, times)

    @available_if(_survives)  # type: ignore[untyped-decorator]
    def predict_survival_function(self, X: Any, times: Any = None) -> Array:
        """Probabilities of no event until then (rows x times), for "cox", from time 0 on: `exp` of minus the cumulative
        hazards, at the same times."""
        return np.exp(-cumulative_hazards(self, X, times))

    def _at_risk(self, X: Any) -> tuple[Array | None, Array | None]:
        """The columns `strata` and `entry` of X, for "cox"; None where there is none."""
        X = validate_data(self, X, accept_sparse=("csr", "csc"), dtype=np.float64, reset=False)
        return self._columns.survival(X)

    def deviance(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The mean unit deviance of y; minus the mean partial log-likelihood for "cox"."""
        m = self.linear_predictor(X)
        if self.family != "cox":
            return self._mean_deviance(m, ROW.targets(self, y, getattr(self, "classes_", None)), sample_weight)
        strata, entry = self._at_risk(X)
        held = PartialLikelihood(
            np.ones((len(m), 1)), signed_times(y), ties=self.ties, sample_weight=sample_weight, strata=strata,
            entry=entry, offset=m,
        )  # fmt: skip
        return float(held.at(np.zeros(1)).residual ** 2)

    def _mean_deviance(self, margins: Array, targets: Array, sample_weight: Any) -> float:
        psi = loss_of(self)
        half = getattr(psi, "excess", psi.value)  # squares and the logistic loss have a minimum of 0
        return float(np.average(2.0 * half(margins, targets), weights=sample_weight))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of the deviance that is explained, D^2 (R^2 for "gaussian"); the accuracy for "binomial", Harrell's
        concordance for "cox", of rows that are at risk together."""
        if self.family == "cox":
            return concordance(signed_times(y), self.linear_predictor(X), sample_weight, *self._at_risk(X))
        if self.family == "binomial":
            return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))
        y = np.asarray(y, dtype=np.float64)
        at = np.average(y, weights=sample_weight)
        if self.family != "gaussian":
            at = math.log(at) if at > 0.0 else -math.inf
        null = self._mean_deviance(np.full(len(y), at), y, sample_weight)
        return 1.0 - self.deviance(X, y, sample_weight) / null if null > 0.0 else 0.0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        if self.family == "binomial":
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=False)
        else:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags()
            tags.target_tags.positive_only = self.family in ("gamma",)
        return tags
