"""The model that a search hands over: proven coefficients, inside an estimator like a fitted one."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

import suffice
from suffice.sklearn import SufficeSearchCV
from suffice.sklearn._final_fit import OFF
from suffice.sklearn.report import collect

FEW = suffice.Options(max_evaluations=5, final_radius=1e-2)
TIGHT = {"tol": 1e-11, "max_iter": 1_000_000}

rng = np.random.default_rng(0)
X = rng.standard_normal((90, 4)) + 0.5
signal = X @ [1.0, -0.7, 0.0, 0.3]
TWO = np.array(["no", "yes"])[(signal + rng.standard_normal(90) > 0.3).astype(int)]
THREE = np.array(["a", "b", "c"])[np.digitize(signal + rng.standard_normal(90), [-0.5, 1.0])]
REAL = signal + rng.standard_normal(90) + 6.0 * (rng.random(90) < 0.1)
COUNTS = rng.poisson(np.exp(0.5 * signal)).astype(float)
ELASTIC = {"l1_ratio": 0.5, "solver": "saga"}

CASES = {
    "two classes": (LogisticRegression(**ELASTIC, **TIGHT), TWO),
    "two classes, no intercept": (LogisticRegression(fit_intercept=False, **TIGHT), TWO),
    "two classes, liblinear": (LogisticRegression(solver="liblinear", **TIGHT), TWO),
    "two classes, balanced": (LogisticRegression(class_weight="balanced", **TIGHT), TWO),
    "three classes": (LogisticRegression(**ELASTIC, **TIGHT), THREE),
    "hinge": (LinearSVC(dual=False, **TIGHT), TWO),
    "hinge, no intercept": (LinearSVC(dual=False, fit_intercept=False, **TIGHT), TWO),
    "elastic net": (ElasticNet(**TIGHT), REAL),
    "lasso": (Lasso(**TIGHT), REAL),
    "ridge": (Ridge(), REAL),
    "ridge, no intercept": (Ridge(fit_intercept=False), REAL),
    "counts": (PoissonRegressor(solver="newton-cholesky", **TIGHT), COUNTS),
    "pipeline": (make_pipeline(StandardScaler(), LogisticRegression(**TIGHT)), TWO),
}


@pytest.mark.parametrize("name", ["elastic net", "ridge", "ridge, no intercept", "counts"])
def test_the_intercept_is_a_number_of_numpy_as_converters_expect(name):
    estimator, y = CASES[name]
    assert isinstance(search_of(estimator, y).intercept_, np.float64)


def search_of(estimator, y, rows=X, **more):
    return SufficeSearchCV(estimator, cv=3, options=FEW, **more).fit(rows, y)


def last(estimator):
    return estimator[-1] if hasattr(estimator, "steps") else estimator


@pytest.mark.parametrize("name", CASES)
def test_the_final_model_is_what_scikit_learn_would_fit_with_all_that_a_fit_leaves_there(name):
    estimator, y = CASES[name]
    search = search_of(estimator, y)
    ours = search.best_estimator_
    theirs = clone(estimator).set_params(**search.best_params_).fit(X, y)
    check_is_fitted(ours)
    for part in ("coef_", "intercept_", "scale_", "outliers_"):
        if hasattr(last(theirs), part):
            np.testing.assert_allclose(getattr(last(ours), part), getattr(last(theirs), part), rtol=1e-3, atol=1e-4)
    assert set(vars(last(theirs))) == set(vars(last(ours)))
    for attribute, value in vars(last(theirs)).items():
        if attribute not in ("_base_loss", "n_iter_"):
            assert np.shape(getattr(last(ours), attribute)) == np.shape(value), attribute
    again = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(again.predict(X), ours.predict(X))
    assert ours.get_params() == theirs.get_params() or name == "pipeline"
    assert search.coef_radius_ <= 1e-5 * np.linalg.norm(last(ours).coef_)


@pytest.mark.parametrize("name", ["two classes", "three classes", "elastic net"])
def test_sample_weights_count_in_the_final_fit(name):
    estimator, y = CASES[name]
    weight = np.random.default_rng(1).integers(1, 5, len(y)).astype(float)
    search = SufficeSearchCV(estimator, cv=3, options=FEW).fit(X, y, sample_weight=weight)
    theirs = clone(estimator).set_params(**search.best_params_).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(search.best_estimator_.coef_, theirs.coef_, rtol=1e-3, atol=1e-4)


def test_sparse_rows_and_names_of_columns_reach_the_final_model():
    sparse = search_of(ElasticNet(), REAL, sp.csr_array(X))
    dense = search_of(ElasticNet(), REAL, pd.DataFrame(X, columns=list("abcd")))
    theirs = ElasticNet(**TIGHT).set_params(**sparse.best_params_).fit(sp.csr_array(X), REAL)
    np.testing.assert_allclose(sparse.best_estimator_.coef_, theirs.coef_, rtol=1e-4)
    assert list(dense.best_estimator_.feature_names_in_) == list("abcd")
    table = pd.DataFrame(X, columns=list("abcd"))
    piped = search_of(make_pipeline(StandardScaler().set_output(transform="pandas"), Ridge()), REAL, table)
    assert list(piped.best_estimator_[-1].feature_names_in_) == list("abcd")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        piped.predict(table)


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_columns_of_very_different_scales_do_not_spoil_the_final_model(load):
    rows, y = load(return_X_y=True)
    keep = y < 2
    rows, y = rows[keep], y[keep]
    kwargs = {"initial": {"l1": 1e-3, "l2": 1e-3}, "space": {"l1": (1e-4, 1.0), "l2": (1e-4, 1.0)}}
    model = LogisticRegression(**ELASTIC, random_state=0)
    few = suffice.Options(max_evaluations=3)
    search = SufficeSearchCV(model, cv=3, options=few, **kwargs).fit(rows, y)
    coef = search.best_estimator_.coef_
    assert search.coef_radius_ <= 1e-3 * np.linalg.norm(coef)
    with pytest.warns(ConvergenceWarning, match="proven to lie"):
        theirs = SufficeSearchCV(model, cv=3, options=few, refit="sklearn", **kwargs).fit(rows, y)
    assert theirs.best_params_ == search.best_params_
    apart = np.linalg.norm(theirs.best_estimator_.coef_ - coef)
    assert apart > OFF * np.linalg.norm(coef)
    assert apart - search.coef_radius_ <= theirs.coef_radius_ <= apart + 2 * search.coef_radius_


def test_a_fit_by_scikit_learn_that_has_converged_is_not_complained_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = search_of(Ridge(), REAL, refit="sklearn")
    assert search.best_estimator_.solver_ == "cholesky" and search.coef_radius_ <= 1e-4
    with pytest.raises(ValueError, match="groups_of_features"):
        search_of(Ridge(), REAL, refit="sklearn", groups_of_features={"first": [0]})


@pytest.mark.parametrize("name", ["two classes", "three classes", "lasso", "pipeline"])
def test_the_report_shows_the_coefficients_of_the_model_that_predicts(name):
    estimator, y = CASES[name]
    search = search_of(estimator, y)
    data = collect(search, X, y, about={})
    coef = np.atleast_2d(last(search.best_estimator_).coef_)
    k = data["regularisation"]["multiples"].index(1.0)
    on_path = np.array([line["values"][k] for line in data["regularisation"]["lines"]]).reshape(coef.shape)
    np.testing.assert_array_equal(on_path, coef)
    shown = np.zeros_like(coef)
    for i, feature in enumerate(data["coefficients"]["names"]):
        shown[:, int(feature[1:])] = [row[i] for row in data["coefficients"]["values"]]
    np.testing.assert_array_equal(shown, coef)
    assert data["coefficients"]["source"] == "certified"


def test_a_final_fit_that_is_left_unfinished_says_so(monkeypatch):
    monkeypatch.setattr("suffice.sklearn._final_fit.MOST_STEPS", 1)
    monkeypatch.setattr("suffice.sklearn._final_fit.between", lambda *_: None)  # from the folds' weights one is enough
    with pytest.warns(ConvergenceWarning, match="left after"):
        search = search_of(CASES["two classes"][0], TWO)
    theirs = clone(search.estimator).set_params(**search.best_params_).fit(X, TWO)
    assert np.linalg.norm(search.best_estimator_.coef_ - theirs.coef_) <= search.coef_radius_
