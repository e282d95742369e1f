"""Rows that stay where they are: a search tunes them in place, to the same bits on a cluster and in files."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import (
    ElasticNet,
    GammaRegressor,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
    RidgeClassifier,
)
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import suffice
from suffice.sklearn import ElasticNetGLM, SufficeSearchCV
from suffice.sklearn._final_fit import fit_final
from suffice.sklearn.report import collect
from suffice.sklearn.splits import SearchData
from suffice.terms import RowBlocks

RNG = np.random.default_rng(0)
N, D = 240, 6
X = RNG.standard_normal((N, D)) * np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0]) + np.array([0.0, 5.0, 0.0, 1.0, 0.0, 0.0])
MARGINS = (X - X.mean(axis=0)) @ np.array([0.8, -0.4, 1.0, 0.0, 0.1, 0.0])
y = MARGINS + 3.0 + RNG.standard_normal(N)
labels = np.where(MARGINS + RNG.standard_normal(N) > 0.0, "yes", "no")
three = np.digitize(MARGINS + RNG.standard_normal(N), [-1.0, 1.0])
counts = RNG.poisson(np.exp(0.4 * MARGINS)).astype(float)
costs = np.exp(0.4 * MARGINS) * RNG.gamma(2.0, 0.5, N) + 1e-3
weight = RNG.integers(1, 4, N).astype(float)

MODELS = {
    "ridge": (Ridge(), y),
    "no intercept": (Ridge(fit_intercept=False), MARGINS + X @ np.ones(D)),
    "elastic net": (ElasticNet(), y),
    "lasso": (Lasso(), y),
    "two classes": (LogisticRegression(l1_ratio=0.5, solver="saga"), labels),
    "balanced": (LogisticRegression(class_weight="balanced"), labels),
    "three classes": (LogisticRegression(), three),
    "regression of classes": (RidgeClassifier(), labels),
    "poisson": (PoissonRegressor(), counts),
    "gamma": (GammaRegressor(), costs),
    "tweedie": (ElasticNetGLM("tweedie"), costs),
    "negative binomial": (ElasticNetGLM("negative_binomial"), counts),
    "scaled": (make_pipeline(StandardScaler(), LogisticRegression()), labels),
}
FEW = suffice.Options(max_evaluations=8)

pytestmark = [pytest.mark.filterwarnings("ignore:the best"), pytest.mark.filterwarnings("ignore:the final fit")]


def search(estimator, **how):
    return SufficeSearchCV(estimator, cv=KFold(3, shuffle=True, random_state=0), **{"options": FEW, **how})


def last(estimator):
    return estimator[-1] if hasattr(estimator, "steps") else estimator


@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_that_of_main_memory(name):
    estimator, target = MODELS[name]
    weights = {} if name in ("descent", "scaled") else {"sample_weight": weight}
    there = search(estimator).fit(RowBlocks.of(X, block=32), target, **weights)
    data = SearchData(estimator, X, target, weights.get("sample_weight", np.ones(N)))
    (low, high), loss = there.score_interval_, 0.0
    for train, test in there.cv.split(X):
        split = data.split(train, test, "a fold")
        at = suffice.solve(split.model.at(**there.best_penalties_), within=1e-9, solver=split.solver)
        loss += split.loss(there.optimised_scoring_, 3).at(at.x).residual ** 2
    assert low - 1e-7 * abs(low) <= -loss <= high + 1e-7 * abs(high)
    ours = last(there.best_estimator_)
    data = replace(data, estimator=clone(estimator).set_params(**there.best_params_))
    theirs = last(fit_final(data, there.best_penalties_)[0])
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-3, atol=1e-4)
    assert there.best_estimator_.predict(X[:5]).shape == (5,)
    assert len(there.held_out_.y) == N and there.held_out_.gain(there.baseline_) > 0.1


def test_steps_are_fitted_to_the_training_rows_of_every_fold():
    data = SearchData(make_pipeline(StandardScaler(), Ridge()), RowBlocks.of(X, block=50), y, np.ones(N))
    splits = list(KFold(3, shuffle=True, random_state=1).split(X))
    shared = data.sharing(splits)
    for k, (train, test) in enumerate(splits):
        theirs = StandardScaler().fit(X[train])
        ours = shared.split(train, test, "a fold", k)
        np.testing.assert_allclose(ours.before[0].mean_, theirs.mean_, rtol=1e-13)
        np.testing.assert_allclose(ours.before[0].scale_, theirs.scale_, rtol=1e-13)
        np.testing.assert_allclose(ours.rows.X.product(np.eye(D)), theirs.transform(X), rtol=1e-10, atol=1e-12)
        assert ours.model.design.weights.count == len(train)
    assert shared.whole().before[0].n_samples_seen_ == N


def test_a_report_is_made_of_what_the_rows_give():
    rows = RowBlocks.of(X, block=64)
    found = search(make_pipeline(StandardScaler(), LogisticRegression())).fit(rows, labels)
    data = collect(found, rows, labels, about={})
    assert data["samples"] == N and data["calibration"]["curves"] and data["coefficients"]["values"]


def test_what_does_not_stay_where_it_is_says_so():
    rows = RowBlocks.of(X)
    with pytest.raises(ValueError, match=r"rows in blocks stay where they are, and QuantileRegressor\(\) needs it"):
        search(QuantileRegressor()).fit(rows, y)
    with pytest.raises(ValueError, match="steps before the estimator need it, but for StandardScaler"):
        search(make_pipeline(MinMaxScaler(), Ridge())).fit(rows, y)
    with pytest.raises(ValueError, match="folds that hold out every row once"):
        SufficeSearchCV(Ridge(), cv=ShuffleSplit(3, random_state=0)).fit(rows, y)
    with pytest.raises(ValueError, match="device='cpu' needs it"):
        search(Ridge(), device="cpu").fit(rows, y)
