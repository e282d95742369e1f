"""Estimators of other packages: known by name, tuned as what they minimise, or certified, or told what to use."""

import os
import re

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.linear_model import ElasticNet
from sklearn.model_selection import KFold

import suffice
from suffice.sklearn import SufficeSearchCV
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.scores import SCORES

FEW = suffice.Options(max_evaluations=5, final_radius=1e-2)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((90, 6))
MEAN = np.exp(0.5 * X[:, 0] - 0.4 * X[:, 1] + 0.2)
REAL = np.log(MEAN) + 0.5 * RNG.standard_normal(90)
TWO = (REAL > 0.2).astype(int)
COUNTS, AMOUNTS = RNG.poisson(MEAN).astype(float), RNG.gamma(2.0, MEAN)


def stand_in(package, name, kind=RegressorMixin, **params):
    """A class of this package and name, with these parameters, as if the package were there."""
    head = ", ".join(f"{key}={value!r}" for key, value in params.items())
    body = "; ".join(f"self.{key} = {key}" for key in params) or "pass"
    space: dict = {}
    exec(f"def __init__(self, {head}): {body}", space)
    made = type(name, (kind, BaseEstimator), {"__init__": space["__init__"], "__module__": f"{package}.estimators"})
    made.predict = lambda self, X: X @ np.ravel(self.coef_) + np.ravel(self.intercept_)[0]
    made.decision_function = made.predict
    return made()


def test_estimators_are_known_by_package_and_name_without_an_import():
    known = {"alpha": 1.0, "l1_ratio": 0.5, "positive": False, "fit_intercept": True}
    theirs = stand_in("skglm", "ElasticNet", **known)
    search = SufficeSearchCV(theirs, cv=3, options=FEW).fit(X, REAL)
    ours = SufficeSearchCV(ElasticNet(), cv=3, options=FEW).fit(X, REAL)
    assert search.best_params_ == ours.best_params_ and search.score_interval_ == ours.score_interval_
    with pytest.raises(TypeError, match="no adapter for ElasticNet"):
        find_adapter(stand_in("elsewhere", "ElasticNet", **known))


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (("skglm", "MCPRegression"), "not convex"),
        (("skglm", "CoxEstimator"), "ElasticNetGLM(family='cox')"),
        (("skglm", "WeightedLasso"), "ElasticNetGLM(penalty_factors=...)"),
        (("glum", "GeneralizedLinearRegressorCV"), "ElasticNetGLM, which has families"),
        (("sksurv", "CoxnetSurvivalAnalysis"), "ElasticNetGLM(family='cox')"),
    ],
)
def test_what_cannot_be_tuned_is_refused_with_what_can(estimator, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        SufficeSearchCV(stand_in(*estimator), cv=3).fit(X, REAL)


def test_weights_of_samples_are_refused_where_the_fit_takes_none():
    theirs = stand_in("skglm", "Lasso", alpha=1.0, positive=False, fit_intercept=True)
    with pytest.raises(ValueError, match="without sample weights"):
        SufficeSearchCV(theirs, cv=3).fit(X, REAL, sample_weight=np.arange(90.0))
    logistic = stand_in(
        "skglm", "SparseLogisticRegression", ClassifierMixin, alpha=1.0, l1_ratio=1.0, fit_intercept=True
    )
    assert find_adapter(logistic).ratio(logistic) == 1.0


def theirs(search, y, tight):
    """The mean score of the package's own fits."""
    scores = []
    for train, test in KFold(3).split(X):
        model = clone(search.estimator).set_params(**search.best_params_, **tight).fit(X[train], y[train])
        scores.append(SCORES[search.optimised_scoring_].scorer(model, X[test], y[test]))
    return float(np.mean(scores))


def agrees(estimator, y, tight, space=None, within=1e-5):
    search = SufficeSearchCV(estimator, space, cv=KFold(3), options=FEW).fit(X, y)
    low, high = search.score_interval_
    slack = within * abs(low)
    assert low - slack <= theirs(search, y, tight) <= high + slack
    own = clone(estimator).set_params(**search.best_params_, **tight).fit(X, y)
    assert np.allclose(np.ravel(search.best_estimator_.coef_), np.ravel(own.coef_), atol=1e-4)
    assert np.allclose(search.predict(X), own.predict(X), atol=1e-3)
    assert search.coef_radius_ <= 1e-3
    return search


OTHERS = pytest.mark.skipif(
    "SUFFICE_OTHERS" not in os.environ, reason="SUFFICE_OTHERS=1 runs it: it compiles for minutes"
)


@OTHERS
def test_skglm():
    skglm = pytest.importorskip("skglm")
    tight = {"tol": 1e-10}
    agrees(skglm.Lasso(), REAL, tight, {"alpha": (1e-2, 1.0)})
    agrees(skglm.ElasticNet(l1_ratio=0.5), REAL, tight, {"alpha": (1e-2, 1.0)})
    agrees(skglm.SparseLogisticRegression(), TWO, tight, {"alpha": (1e-3, 1e-1)})


@OTHERS
def test_glum():
    glum = pytest.importorskip("glum")
    tight = {"gradient_tol": 1e-10, "max_iter": 1000}
    for family, y in (("normal", REAL), ("binomial", TWO), ("poisson", COUNTS), ("gamma", AMOUNTS)):
        for given in ({"alpha": 0.1}, {"alpha": 0.1, "l1_ratio": 0.5, "P1": np.arange(6.0), "P2": np.ones(6)}):
            model = glum.GeneralizedLinearRegressor(family=family, **given, **tight).fit(X, y)
            assert suffice.certify(model, X, y).relative < 1e-6
