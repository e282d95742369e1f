r"""`ElasticNetGLM`: one generalised linear model with an elastic-net penalty, fitted to a proven accuracy.

    minimise over w and b   sum_i a_i psi(x_i . w + b + o_i, y_i) + sum_j u_j ( l1 |w_j| + (l2/2) w_j^2 ),

a_i = s_i / sum(s), s the sample weights, u_j the penalty factors, psi half the unit deviance of the family. What glmnet
and glum minimise is the same with alpha = l1 + l2 and l1_ratio = l1/(l1 + l2).
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from suffice.arrays import Array, norm, outside_stacklevel
from suffice.losses import PartialLikelihood
from suffice.models.cox import signed_times
from suffice.sklearn._final_fit import MOST_STEPS, OFF, solved
from suffice.sklearn._structure import Columns
from suffice.sklearn.adapters import register_adapter
from suffice.sklearn.glm_adapters import GLMAdapter, adapter_of, columns_of
from suffice.sklearn.measures import concordance
from suffice.solvers.solution import Outcome


def _classifies(estimator: Any) -> bool:
    if estimator.family != "binomial":
        raise AttributeError(f"family={estimator.family!r} has no probabilities of classes")
    return True


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
    groups : lists of numbers of features that do not overlap; then l1 is the weight of
        (1 - group_share) * sum |w_j| + group_share * sum over groups of sqrt(size) * ||w_group||.
    group_share : 1 for the group lasso, less for the sparse group lasso.
    offset : a column of X, by number (or by name, if X is a table), that is a known part of the linear predictor: it is
        no feature, and its `coef_` is 0.
    exposure : a column of X by which the mean is multiplied, for a log link: its logarithm is an offset.
    ties : "efron" or "breslow", for "cox".
    strata : a column of X, for "cox": rows with different values have baseline hazards of their own.
    entry : a column of X, for "cox": the time from which on a row is at risk (left truncation).
    tol : the distance from the exact coefficients that is asked for, relative to their norm.
    max_iter : the most steps of the solver.

    Attributes
    ----------
    coef_, intercept_ : the coefficients of all columns of X, and the intercept.
    coef_radius_ : a proven bound on the distance of the coefficients from exact ones, in the Euclidean norm; infinite
        where nothing is proven, as without an l2 where columns are linearly dependent.
    coef_rule_ : the rule that proved it; n_iter_ : steps of the solver; classes_ : the labels, for "binomial".
    """

    def __init__(
        self,
        family: str = "gaussian",
        *,
        l1: float = 0.01,
        l2: float = 0.01,
        fit_intercept: bool = True,
        power: float = 1.5,
        theta: float = 1.0,
        penalty_factors: Any = None,
        positive: Any = False,
        groups: Any = None,
        group_share: float = 1.0,
        offset: Any = None,
        exposure: Any = None,
        ties: str = "efron",
        strata: Any = None,
        entry: Any = None,
        tol: float = 1e-8,
        max_iter: int = MOST_STEPS,
    ) -> None:
        self.family = family
        self.l1 = l1
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.power = power
        self.theta = theta
        self.penalty_factors = penalty_factors
        self.positive = positive
        self.groups = groups
        self.group_share = group_share
        self.offset = offset
        self.exposure = exposure
        self.ties = ties
        self.strata = strata
        self.entry = entry
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ElasticNetGLM:
        """Fit the model to X (dense or sparse) and y, with weights of samples or without."""
        adapter = adapter_of(self)
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
        classes = None
        if labels:
            check_classification_targets(y)
            classes = self.classes_ = np.unique(y)
            if len(classes) < 2 or len(np.unique(y[weight > 0.0])) < 2:
                raise ValueError(
                    f"{type(self).__name__} needs samples of at least 2 classes in the data, but the data contains "
                    f"only one class: {classes[0]!r}"
                )
        plain = adapter.prepared(self, self)
        fold: Any = adapter.fold(plain, X, adapter.targets(plain, y, classes), weight, classes)
        solution = solved(fold.at(l1=self.l1, l2=self.l2), fold.solver, self.tol, most=self.max_iter)
        self.coef_radius_, self.coef_rule_ = solution.certificate.radius, solution.certificate.rule
        coef, intercept = fold.coefficients(solution.x)
        adapter.fitted(self, coef, intercept, classes)
        self.n_iter_ = solution.steps
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
        margins: Array = np.asarray(features @ coef).ravel() + self.intercept_
        return margins if offset is None else margins + offset

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

    def deviance(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The mean unit deviance of y; minus the mean partial log-likelihood for "cox"."""
        if self.family == "cox":
            return self._partial_likelihood(X, y, sample_weight)
        m, adapter = self.linear_predictor(X), adapter_of(self)
        targets = adapter.targets(self, y, getattr(self, "classes_", None))
        if self.family == "gaussian":
            return float(np.average((m - targets) ** 2, weights=sample_weight))
        if self.family == "binomial":
            return float(np.average(2.0 * np.logaddexp(0.0, -targets * m), weights=sample_weight))
        return float(np.average(2.0 * adapter.loss(self).excess(m, targets), weights=sample_weight))

    def _partial_likelihood(self, X: Any, y: Any, sample_weight: Any) -> float:
        m, columns = self.linear_predictor(X), self._columns
        X = validate_data(self, X, accept_sparse=("csr", "csc"), dtype=np.float64, reset=False)
        held = PartialLikelihood(
            np.ones((len(m), 1)), signed_times(y), ties=self.ties, sample_weight=sample_weight,
            strata=columns.survival(X)[0], entry=columns.survival(X)[1], offset=m,
        )  # fmt: skip
        return float(held.at(np.zeros(1)).residual ** 2)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of the deviance that is explained, D^2 (R^2 for "gaussian"); the accuracy for "binomial", Harrell's
        concordance for "cox"."""
        if self.family == "cox":
            return concordance(signed_times(y), self.linear_predictor(X), sample_weight)
        if self.family == "binomial":
            return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))
        y = np.asarray(y, dtype=np.float64)
        mean = np.average(y, weights=sample_weight)
        loss = adapter_of(self).loss(self)
        if self.family == "gaussian":
            null = float(np.average((y - mean) ** 2, weights=sample_weight))
        else:
            at = np.full(len(y), math.log(mean)) if mean > 0.0 else np.full(len(y), -math.inf)
            null = float(np.average(2.0 * loss.excess(at, y), weights=sample_weight))
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


register_adapter(ElasticNetGLM, GLMAdapter())
