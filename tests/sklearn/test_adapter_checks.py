"""check_adapter passes the adapters of the package and catches those that say of an estimator what is not true."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.svm import LinearSVC

from suffice.losses import LossAt
from suffice.sklearn import register_adapter
from suffice.sklearn.adapters import _ADAPTERS, ROWS
from suffice.sklearn.estimators import Regression
from suffice.sklearn.folds import LinearFold
from suffice.terms import SQUARED
from suffice.testing import ConformanceError
from tests.sklearn.adapter_checks import check_adapter

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 4)) + 0.3
m = X @ [1.0, -1.0, 0.5, 0.0] + 0.2
y = m + 0.3 * rng.standard_normal(60)
labels = np.where(m + rng.standard_normal(60) > 0, "yes", "no")
classes = np.digitize(m + rng.standard_normal(60), [-0.5, 0.7])
counts = rng.poisson(np.exp(0.5 * m))

KNOWN = [
    (Ridge(), y),
    (Lasso(), y),
    (ElasticNet(fit_intercept=False), y),
    (PoissonRegressor(), counts),
    (LinearSVC(), labels),
    (LogisticRegression(class_weight="balanced"), labels),
    (LogisticRegression(l1_ratio=1.0, solver="liblinear"), labels),
    (LogisticRegression(), classes),
]


@pytest.mark.parametrize(("estimator", "targets"), KNOWN, ids=lambda value: str(value)[:40])
def test_the_adapters_of_the_package_conform(estimator, targets):
    check_adapter(estimator, X, targets)


class Own(Ridge):  # type: ignore[misc]
    pass


class OwnNet(ElasticNet):  # type: ignore[misc]
    pass


RIDGE, NET = (vars(ROWS[f"sklearn.{name}"]) for name in ("Ridge", "ElasticNet"))


class SumNotMean(Regression):
    """Takes scikit-learn's alpha for ours."""

    def params(self, estimator, l1, l2, total, names):
        return {"alpha": l2}


class NoIntercept(Regression):
    def fitted(self, estimator, coef, intercept, classes):
        return super().fitted(estimator, coef, 0.0, classes)


class Fold(LinearFold):
    """A fold with one mistake."""

    def __init__(self, X, y, weights, mistake):
        super().__init__(X, y, SQUARED, weights, "free")
        self.mistake = mistake

    @property
    def l1_max(self):
        return super().l1_max * (3.0 if self.mistake == "l1_max" else 1.0)

    def at(self, *, l1, l2):
        problem = super().at(l1=l1, l2=l2)
        return replace(problem, mu=problem.L) if self.mistake == "mu" else problem

    def held_out(self, X, y, sample_weight, scoring, folds):
        weight = np.ones(len(y)) if self.mistake == "weights" else sample_weight
        found = super().held_out(X, y, weight, scoring, 1 if self.mistake == "share" else folds)
        return Optimist(found) if self.mistake == "bound" else found


class Optimist:
    """Claims a tenth of the error."""

    def __init__(self, loss):
        self.loss = loss

    def at(self, w):
        found = self.loss.at(w)
        return LossAt(found.residuals, lambda radius: 0.1 * found.error(radius))


class Mistaken(Regression):
    def __init__(self, mistake):
        super().__init__(**NET)
        vars(self)["mistake"] = mistake

    def fold(self, estimator, X, y, weights, classes):
        return Fold(X, y, weights, self.mistake)


@pytest.mark.parametrize(
    ("estimator", "adapter", "complaint"),
    [
        (Own(), SumNotMean(**RIDGE), "own fit with these penalties has a loss of"),
        (Own(), NoIntercept(**RIDGE), "intercept_ is not what fold.coefficients says"),
        (OwnNet(), Mistaken("l1_max"), "weights are zero below fold.l1_max"),
        (OwnNet(), Mistaken("mu"), "strongly convex"),
        (OwnNet(), Mistaken("weights"), "of the fitted estimator says"),
        (OwnNet(), Mistaken("share"), "not a quarter of"),
        (OwnNet(), Mistaken("bound"), "the residual moves by"),
    ],
    ids=lambda value: getattr(value, "mistake", type(value).__name__),
)
def test_what_is_not_true_of_an_estimator_is_caught(estimator, adapter, complaint):
    register_adapter(type(estimator), adapter)
    try:
        with pytest.raises(ConformanceError, match=complaint):
            check_adapter(estimator, X, y)
    finally:
        del _ADAPTERS[type(estimator)]


def test_an_adapter_without_mistakes_passes_where_those_are_caught():
    register_adapter(OwnNet, Mistaken("none"))
    try:
        check_adapter(OwnNet(), X, y)
    finally:
        del _ADAPTERS[OwnNet]
