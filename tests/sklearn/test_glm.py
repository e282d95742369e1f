"""ElasticNetGLM, and adapters of scikit-learn's generalised linear models: what they say, and what they refuse."""

import math
import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_regression
from sklearn.linear_model import (
    ElasticNet,
    GammaRegressor,
    Lasso,
    LogisticRegression,
    MultiTaskLasso,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDRegressor,
    TweedieRegressor,
)
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import suffice
from suffice.sklearn import ElasticNetGLM, SufficeSearchCV
from tests.sklearn.adapter_checks import check_adapter

FAMILIES = ("gaussian", "binomial", "poisson", "gamma", "tweedie", "negative_binomial")
FEW = suffice.Options(max_evaluations=8, final_radius=1e-2)


def data(family, rows=120, seed=0):
    rng = np.random.default_rng([seed, len(family)])
    X = 0.5 * rng.standard_normal((rows, 5))
    mean = np.exp(X[:, 0] - 0.6 * X[:, 1] + 0.5)
    match family:
        case "gaussian":
            return X, np.log(mean) + rng.standard_normal(rows)
        case "binomial":
            return X, np.where(rng.random(rows) < 1.0 / (1.0 + 1.0 / mean), "yes", "no")
        case "gamma":
            return X, rng.gamma(2.0, 0.5 * mean)
        case "tweedie":
            return X, np.where(rng.random(rows) < 0.3, 0.0, rng.gamma(2.0, mean))
    return X, rng.poisson(mean).astype(float)


CHECKED = [ElasticNetGLM(), ElasticNetGLM("binomial"), ElasticNetGLM("gamma", l1=0.0), ElasticNetGLM(positive=True)]


@parametrize_with_checks(CHECKED)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


SKLEARN = {
    "gaussian": (ElasticNet(alpha=0.03, l1_ratio=2 / 3, tol=1e-12, max_iter=100_000), 0.02, 0.01),
    "gaussian, positive": (ElasticNet(alpha=0.03, l1_ratio=2 / 3, tol=1e-12, positive=True), 0.02, 0.01),
    "binomial": (LogisticRegression(C=1 / (120 * 0.02), solver="newton-cholesky", tol=1e-12), 0.0, 0.02),
    "poisson": (PoissonRegressor(alpha=0.02, tol=1e-12, max_iter=1000), 0.0, 0.02),
    "gamma": (GammaRegressor(alpha=0.02, tol=1e-12, max_iter=1000), 0.0, 0.02),
    "tweedie": (TweedieRegressor(power=1.5, alpha=0.02, tol=1e-12, max_iter=1000), 0.0, 0.02),
}


@pytest.mark.parametrize("name", SKLEARN)
def test_minimisers_are_scikit_learns(name):
    other, l1, l2 = SKLEARN[name]
    family = name.split(",")[0]
    X, y = data(family)
    ours = ElasticNetGLM(family, l1=l1, l2=l2, positive="positive" in name, tol=1e-10).fit(X, y)
    theirs = other.fit(X, y)
    assert np.allclose(ours.coef_, np.ravel(theirs.coef_), atol=2e-6)
    assert ours.intercept_ == pytest.approx(float(np.ravel(theirs.intercept_)[0]), abs=2e-6)
    assert ours.coef_radius_ <= 1e-9
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_copies_of_rows_and_sparse_matrices_are_matrices(family):
    X, y = data(family)
    weight = np.random.default_rng(1).integers(0, 3, len(y))
    rows = np.repeat(np.arange(len(y)), weight)
    model = ElasticNetGLM(family, l1=0.01, l2=0.01)
    weighted = clone(model).fit(X, y, sample_weight=weight)
    assert np.allclose(weighted.coef_, clone(model).fit(X[rows], y[rows]).coef_, atol=1e-7)
    assert np.allclose(weighted.coef_, clone(model).fit(sp.csr_array(X), y, weight).coef_, atol=1e-7)


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson", "gamma", "tweedie", "negative_binomial"])
def test_an_offset_is_a_column_with_coefficient_one(family):
    X, y = data(family)
    offset = 0.3 * np.random.default_rng(2).standard_normal(len(y))
    table = pd.DataFrame(X, columns=list("abcde")).assign(known=offset)
    by_name = ElasticNetGLM(family, offset="known").fit(table, y)
    by_number = ElasticNetGLM(family, offset=-1).fit(np.c_[X, offset], y)
    assert np.array_equal(by_name.coef_, by_number.coef_) and by_name.coef_[-1] == 0.0
    margins = X @ by_name.coef_[:5] + by_name.intercept_ + offset
    assert np.allclose(by_name.linear_predictor(table), margins, atol=1e-12)
    # At the minimiser the gradient in an unpenalised direction vanishes: the intercept's.
    mean = by_name.predict_proba(table)[:, 1] if family == "binomial" else by_name.predict(table)
    target = (y == "yes").astype(float) if family == "binomial" else y
    power = {"gamma": -1.0, "tweedie": -0.5}.get(family, 0.0)  # of the mean in psi'
    pull = 1.0 / (1.0 + mean) if family == "negative_binomial" else np.abs(mean) ** power
    assert abs(np.mean((mean - target) * pull)) <= 1e-7


def test_an_exposure_is_an_offset_by_its_logarithm():
    X, y = data("poisson")
    exposure = np.random.default_rng(3).uniform(0.5, 2.0, len(y))
    one = ElasticNetGLM("poisson", exposure=5).fit(np.c_[X, exposure], y)
    other = ElasticNetGLM("poisson", offset=5).fit(np.c_[X, np.log(exposure)], y)
    assert np.allclose(one.coef_, other.coef_, atol=1e-12)
    # Rates with weights are the same model.
    rates = ElasticNetGLM("poisson", l1=0.01 * 1.0, l2=0.01).fit(X, y / exposure, sample_weight=exposure)
    scaled = len(y) / exposure.sum()
    assert np.allclose(
        ElasticNetGLM("poisson", l1=0.01 / scaled, l2=0.01 / scaled, exposure=5).fit(np.c_[X, exposure], y).coef_[:5],
        rates.coef_,
        atol=1e-6,
    )


@pytest.mark.parametrize("family", ["gaussian", "gamma", "binomial"])
def test_a_factor_of_zero_leaves_a_feature_unpenalised(family):
    X, y = data(family)
    strong = ElasticNetGLM(family, l1=1e3, l2=1e3, penalty_factors=[0.0, 1.0, 1.0, 1.0, 1.0]).fit(X, y)
    alone = ElasticNetGLM(family, l1=0.0, l2=0.0).fit(X[:, :1], y)
    assert np.allclose(strong.coef_, [alone.coef_[0], 0.0, 0.0, 0.0, 0.0], atol=1e-7)
    assert strong.coef_rule_ == "verified" and strong.coef_radius_ <= 1e-7


def test_bounds_reach_the_model():
    X, y = data("gamma")
    bounded = ElasticNetGLM("gamma", l1=0.0, l2=0.0, positive=[False, True, True, True, True]).fit(X, y)
    assert bounded.coef_[1] == 0.0 and np.all(bounded.coef_[2:] >= 0.0) and bounded.coef_rule_ == "verified"


ADAPTED = {
    "glm gaussian": ElasticNetGLM(),
    "glm binomial": ElasticNetGLM("binomial"),
    "glm poisson": ElasticNetGLM("poisson"),
    "glm gamma": ElasticNetGLM("gamma"),
    "glm tweedie": ElasticNetGLM("tweedie"),
    "glm negative_binomial": ElasticNetGLM("negative_binomial", theta=0.5),
    "glm gamma, offset": ElasticNetGLM("gamma", offset=4, fit_intercept=False),
    "gamma": GammaRegressor(max_iter=1000),
    "tweedie": TweedieRegressor(power=1.6, max_iter=1000),
    "gaussian": TweedieRegressor(power=0, max_iter=1000),
    "binomial": RidgeClassifier(),
    "gaussian positive": ElasticNet(positive=True),
    "gaussian lasso": Lasso(positive=True),
    "gaussian ridge": Ridge(positive=True),
}


@pytest.mark.parametrize("name", ADAPTED)
@pytest.mark.slow
def test_adapters_conform(name):
    family = next(family for family in sorted(FAMILIES, key=len, reverse=True) if family in name)
    check_adapter(ADAPTED[name], *data(family, rows=60))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_search_proves_the_score_that_cross_validation_finds(family):
    X, y = data(family)
    search = SufficeSearchCV(ElasticNetGLM(family, tol=1e-10), cv=3, options=FEW).fit(X, y)
    best = search.best_estimator_
    assert isinstance(best, ElasticNetGLM) and best.l1 == search.best_params_["l1"]
    scores = cross_val_score(clone(best), X, y, cv=3, scoring=search.scorer_)
    low, high = search.score_interval_
    assert low - 1e-7 <= scores.mean() <= high + 1e-7
    assert best.coef_radius_ == search.coef_radius_ < 1e-4


def test_offsets_go_through_searches_by_number_and_by_name():
    X, y = data("poisson")
    table = pd.DataFrame(X, columns=list("abcde")).assign(years=np.random.default_rng(3).uniform(0.5, 2.0, len(y)))
    by_name = SufficeSearchCV(ElasticNetGLM("poisson", exposure="years"), cv=3, options=FEW).fit(table, y)
    by_number = SufficeSearchCV(
        make_pipeline("passthrough", ElasticNetGLM("poisson", exposure=5)), cv=3, options=FEW
    ).fit(table.to_numpy(), y)
    assert by_name.best_score_ == by_number.best_score_
    assert np.array_equal(by_name.predict(table), by_number.predict(table.to_numpy()))


def test_l2_alone_is_tuned_where_there_is_no_l1():
    X, y = data("gamma")
    search = SufficeSearchCV(ElasticNetGLM("gamma", l1=0.0, l2=0.1), cv=3, options=FEW).fit(X, y)
    assert set(search.best_params_) == {"l2"} and search.best_penalties_["l1"] == 0.0
    pipeline = make_pipeline(StandardScaler(), GammaRegressor())
    search = SufficeSearchCV(pipeline, {"alpha": (1e-4, 1.0)}, cv=3, options=FEW).fit(X, y)
    assert 1e-4 <= search.best_params_["gammaregressor__alpha"] <= 1.0
    assert search.optimised_scoring_ == "neg_mean_gamma_deviance"


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (ElasticNetGLM("inverse_gaussian"), "'gamma' is nearest"),
        (ElasticNetGLM("weibull"), "family must be one of gaussian, binomial"),
        (ElasticNetGLM(l1=-1.0), "l1 must be"),
        (ElasticNetGLM(penalty_factors=[1.0]), "penalty_factors must be 5"),
        (ElasticNetGLM(positive=[True]), "positive must be True, False, or 5 bools"),
        (ElasticNetGLM(offset="years"), "offset='years' is not a column of X"),
        (ElasticNetGLM(offset=7), "offset must be the number of a column of X"),
        (ElasticNetGLM(exposure=1), "family='gaussian' takes an offset"),
        (ElasticNetGLM("gamma"), "y must"),
        (ElasticNetGLM(tol=0.0), "tol must be positive"),
    ],
)
def test_what_a_model_cannot_be_is_named(estimator, message):
    X, y = data("gaussian")
    with pytest.raises(ValueError, match=re.escape(message)):
        estimator.fit(X, y)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (TweedieRegressor(power=3), "not convex"),
        (TweedieRegressor(power=0, link="log"), "use link='auto'"),
        (SGDRegressor(), "use ElasticNet, the same model"),
        (SGDClassifier(loss="hinge"), "LinearSVC for hinges"),
        (MultiTaskLasso(), "y holds one: use Lasso"),
        (ElasticNetGLM("inverse_gaussian"), "'gamma' is nearest"),
    ],
)
def test_an_estimator_that_is_refused_is_told_the_nearest_that_works(estimator, message):
    X, y = make_regression(30, 4, random_state=0)
    y = (y > 0).astype(int) if is_classifier(estimator) else y - y.min() + 1.0
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        SufficeSearchCV(estimator, cv=3).fit(X, y)


def test_a_fit_that_proves_nothing_says_so():
    X, y = data("gaussian")
    with pytest.warns(Warning, match="are proven to lie within inf of exact ones only"):
        model = ElasticNetGLM(l1=0.0, l2=0.0, fit_intercept=False).fit(np.c_[X, X[:, :1]], y)
    assert model.coef_radius_ == math.inf


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson", "gamma"])
def test_certify_agrees_with_the_radius_of_the_fit(family):
    X, y = data(family)
    model = ElasticNetGLM(family, penalty_factors=[0.0, 1.0, 1.0, 2.0, 1.0]).fit(X, y)
    assert suffice.certify(model, X, y).radius <= 1e-6
    model.coef_ = model.coef_ + 0.1
    report = suffice.certify(model, X, y)
    assert report.at_least > 0.05
    assert (
        "coef_radius_"
        in suffice.certify(ElasticNetGLM(positive=True).fit(*data("gaussian")), *data("gaussian")).message
    )
