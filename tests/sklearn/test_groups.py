"""Penalties of groups of features, against scikit-learn's fits to scaled columns and extended precision."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge
from sklearn.metrics import get_scorer
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import suffice
from suffice.models.intercept import Intercepted
from suffice.models.linear import LinearModel
from suffice.problems.linear import penalised
from suffice.rows.design import Design
from suffice.sklearn import SufficeSearchCV
from suffice.sklearn.penalties import group_of_columns
from suffice.sklearn.report import collect, page
from suffice.terms import LOGISTIC, SQUARED
from tests.reference import LONG, GroupNorms, Margins, minimise, norm
from tests.reference_intercept import InterceptMargins

FEW = suffice.Options(max_evaluations=12, final_radius=1e-2)
GROUPS = {"good": slice(0, 3), "bad": [3, 4, 5]}
NAMES = ["a", "b", "c", "d", "e", "f"]


def data(classes=0):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 6)) + 0.5
    y = X[:, :3] @ [1.0, -1.0, 0.5] + rng.standard_normal(90)
    return (X, np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))) if classes else (X, y)


def search(estimator, groups=GROUPS, **more):
    return SufficeSearchCV(estimator, groups_of_features=groups, **{"cv": KFold(3), "options": FEW, **more})


@pytest.mark.parametrize("psi", ["squared", "logistic"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("solver", ["auto", "newton", "fista_adaptive"])
@given(seed=st.integers(0, 10**6), within=st.sampled_from([1e-2, 1e-7]))
def test_certificates_hold_with_one_l1_and_one_l2_for_every_column(psi, intercept, solver, seed, within):
    rng = np.random.default_rng(seed)
    N, d = int(rng.integers(10, 40)), int(rng.integers(2, 8))
    X, y = rng.standard_normal((N, d)), rng.standard_normal(N)
    y = np.where(y > np.median(y), 1.0, -1.0) if psi == "logistic" else y
    l1, l2 = 10.0 ** rng.uniform(-3, -1, d), 10.0 ** rng.uniform(-3, 1, d)
    l1[0] = 0.0
    scale = np.sqrt(l2.astype(LONG))  # in terms of v = scale w there is one l2, which is 1
    reference = (InterceptMargins if intercept else Margins)(X / scale, y, np.full(N, 1.0 / N), psi, 1.0)
    L = float(np.linalg.norm((X / scale).astype(float), 2) ** 2 / N) + 1.0
    v_hat, error = minimise(reference, GroupNorms([[i] for i in range(d)], list(l1 / scale)), 1.0, L, d)
    design = Design.of(X)
    kind = Intercepted if intercept else LinearModel
    loss = LOGISTIC if psi == "logistic" else SQUARED
    problem = penalised(lambda least: kind(design, y, loss, least), l1, l2, 1e-9, d)
    solution = suffice.solve(problem, within=within, solver=solver)
    assert solution.certificate.radius <= within
    assert float(norm(solution.x - v_hat / scale)) <= solution.certificate.radius + float(error / scale.min())
    again = suffice.solve(penalised(lambda least: kind(design, y, loss, least), l1, l2, 1e-9, d), within=within,
                          solver=solver, warm=solution)  # fmt: skip
    assert again.steps == solution.steps  # it is known to be the same problem


def scaled(search, X):
    """Columns that make one l2 of 1 out of those of the groups."""
    names, group = group_of_columns(search.groups_of_features, NAMES)
    return X / np.sqrt(np.array([search.best_penalties_[f"l2_{name}"] for name in names]))[group]


def test_the_score_of_fits_to_scaled_columns_lies_in_the_proven_interval():
    X, y = data()
    found = search(Ridge(), tolerance=1e-6).fit(X, y)
    Z, scores = scaled(found, X), []
    for train, test in KFold(3).split(X):
        ridge = Ridge(alpha=len(train)).fit(Z[train], y[train])
        scores.append(get_scorer("neg_mean_squared_error")(ridge, Z[test], y[test]))
    assert found.score_interval_[0] - 1e-9 <= np.mean(scores) <= found.score_interval_[1] + 1e-9
    assert set(found.best_params_) == {"l1_good", "l1_bad", "l2_good", "l2_bad"}
    assert found.best_params_["l2_bad"] > 10.0 * found.best_params_["l2_good"]


def test_the_final_estimator_is_the_fit_to_scaled_columns():
    X, y = data()
    found = search(Ridge()).fit(pd.DataFrame(X, columns=NAMES), y)
    whole = Ridge(alpha=len(y)).fit(scaled(found, X), y)
    predicted = found.predict(pd.DataFrame(X, columns=NAMES))
    np.testing.assert_allclose(predicted, whole.predict(scaled(found, X)), rtol=1e-5)
    assert found.coef_radius_ <= 1.1e-6 * np.linalg.norm(found.best_estimator_.coef_)
    assert isinstance(found.best_estimator_, Ridge) and list(found.best_estimator_.feature_names_in_) == NAMES


def test_groups_of_the_same_penalties_are_no_groups():
    X, y = data()
    space = {"l1": (1e-4, 1.0), "l2": (1e-4, 1.0)}
    grouped = search(ElasticNet(), space=space).fit(X, y)
    plain = SufficeSearchCV(ElasticNet(tol=1e-10), space, cv=KFold(3), options=FEW).fit(X, y)
    assert grouped.best_score_ == pytest.approx(plain.best_score_, rel=4e-4)
    np.testing.assert_allclose(grouped.best_estimator_.coef_, plain.best_estimator_.coef_, atol=2e-2)


ESTIMATORS = {
    "logistic": (LogisticRegression(l1_ratio=0.5, solver="saga"), 2, "predict_proba"),
    "classes": (LogisticRegression(l1_ratio=0.5, solver="saga"), 3, "predict_proba"),
    "elastic-net": (ElasticNet(), 0, "predict"),
    "svc": (LinearSVC(fit_intercept=False), 2, "decision_function"),
    "pipeline": (make_pipeline(StandardScaler(), LogisticRegression()), 2, "predict_proba"),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_two_penalties_are_better_than_one(name):
    estimator, classes, method = ESTIMATORS[name]
    X, y = data(classes)
    grouped = search(estimator).fit(X, y)
    plain = search(estimator, None, space={"l2": (1e-6, 1e2)}).fit(X, y)
    assert grouped.best_score_ >= plain.best_score_ - 1e-4 * abs(plain.best_score_)
    assert len(getattr(grouped, method)(X)) == len(y)
    assert grouped.best_estimator_.score(X, y) > 0.2


def test_a_common_l1_and_an_l2_for_every_group():
    X, y = data()
    space = {"l1": (1e-4, 1.0), "l2_good": (1e-4, 1.0), "l2_bad": (1e-4, 10.0)}
    found = search(ElasticNet(), space=space).fit(X, y)
    assert found.best_params_["l1_good"] == found.best_params_["l1_bad"]
    assert set(found.cv_results_) >= {"penalty_l1", "penalty_l2_good", "penalty_l2_bad", "param_l1_bad"}


def test_columns_in_no_group_form_one_of_their_own():
    X, y = data()
    found = search(Ridge(), {"good": ["a", "b", "c"]}).fit(pd.DataFrame(X, columns=NAMES), y)
    same = search(Ridge(), {"good": np.arange(6) < 3, "bad": [5, 4, 3]}).fit(X, y)
    assert found.best_params_["l2_others"] == pytest.approx(same.best_params_["l2_bad"], rel=1e-6)


def test_steps_that_change_columns_are_followed_by_name():
    X, y = data()
    table = pd.DataFrame(X, columns=NAMES)
    table["kind"] = np.where(X[:, 0] > 0.5, "x", "y")
    steps = make_column_transformer((OneHotEncoder(), ["kind"]), (StandardScaler(), NAMES))
    out = [f"standardscaler__{name}" for name in NAMES]
    groups = {"kind": ["onehotencoder__kind_x", "onehotencoder__kind_y"], "good": out[:3], "bad": out[3:]}
    found = search(make_pipeline(steps, Ridge()), groups).fit(table, y)
    assert found.best_estimator_[-1].coef_.shape == (8,) and found.predict(table).shape == y.shape
    with pytest.raises(ValueError, match="2 belong to no group"):
        search(make_pipeline(steps, Ridge()), {"good": out[:3], "bad": out[3:]}).fit(table, y)
    with pytest.raises(ValueError, match="names 'a', which is not a column: they are onehotencoder__kind_x"):
        search(make_pipeline(steps, Ridge()), {"good": ["a"]}).fit(table, y)
    found = search(make_pipeline(PCA(3), Ridge()), {"first": ["pca0"], "rest": ["pca1", "pca2"]}).fit(X, y)
    assert found.best_params_["l2_first"] > 0.0


@pytest.mark.parametrize(
    "groups, kwargs, match",
    [
        ({}, {}, "groups_of_features must be a dictionary"),
        ({"others": [0]}, {}, "a word other than 'others'"),
        ({"a": [0, 1], "b": [1]}, {}, "names the column '1' a second time"),
        ({"a": [0, 0]}, {}, "a second time"),
        ({"a": [6]}, {}, "numbers from 0 to 5"),
        ({"a": ["z"]}, {}, "names 'z', which is not a column"),
        ({"a": [True, False]}, {}, "mask of 6 columns"),
        ({"a": []}, {}, "must be names|holds no column"),
        ({"a": [0.5]}, {}, "must be names"),
        (GROUPS, {"space": {"l2_good": (1e-3, 1.0)}}, "penalty of the group 'bad'"),
        (GROUPS, {"space": {"l2_c": (1e-3, 1.0)}}, "l2_good, l2_bad to"),
        (GROUPS, {"estimator": LinearSVC()}, "leaves no penalty for the intercept"),
    ],
)
def test_groups_that_mean_nothing_are_refused(groups, kwargs, match):
    X, y = data(2 if "estimator" in kwargs else 0)
    with pytest.raises(ValueError, match=match):
        search(**{"estimator": Ridge(), "groups": groups, **kwargs}).fit(X, y)


def test_a_journal_takes_groups_up(tmp_path):
    X, y = data()
    one, two = (search(Ridge(), journal=tmp_path).fit(X, y) for _ in range(2))
    assert one.best_params_ == two.best_params_
    with pytest.raises(suffice.journal.JournalError, match="group"):
        search(Ridge(), {"good": [0, 1], "bad": [2, 3, 4, 5]}, journal=tmp_path).fit(X, y)


@pytest.mark.parametrize(
    "case", ["pipeline", *(pytest.param(one, marks=pytest.mark.slow) for one in ("regression", "classes"))]
)
def test_a_report_shows_models_with_the_penalties_of_every_group(case):
    X, y = data(classes=3 if case == "classes" else 0)
    estimator = LogisticRegression(l1_ratio=0.5, solver="saga") if case == "classes" else ElasticNet()
    if case == "pipeline":
        estimator = make_pipeline(StandardScaler(), estimator)
    found = search(estimator, space={"l1": (1e-3, 1.0), "l2_good": (1e-3, 1.0), "l2_bad": (1e-3, 1.0)}).fit(X, y)
    shown = collect(found, X, y, about={})
    assert shown["search"]["names"] == ["l1", "l2_good", "l2_bad"]
    best = shown["search"]["best"]
    assert best == [found.best_penalties_[name] for name in ("l1_good", "l2_good", "l2_bad")]
    path = shown["regularisation"]
    middle = path["multiples"].index(1.0)
    coef = np.array([line["values"][middle] for line in path["lines"]])
    final = found.best_estimator_[-1] if case == "pipeline" else found.best_estimator_
    apart = np.linalg.norm(coef - np.ravel(final.coef_))
    assert apart <= path["accuracy"] * np.linalg.norm(coef) + found.coef_radius_ + 1e-9
    assert shown["measures"]["same_folds"]
    assert set(shown["measures"]["defaults"]) == ({"C", "l1_ratio"} if case == "classes" else {"alpha", "l1_ratio"})
    assert "l2_good" in page(json.loads(json.dumps(shown)))


def test_a_search_of_groups_draws_its_parameters_and_its_models():
    X, y = data()
    found = search(ElasticNet()).fit(X, y)
    axes = found.plot_path()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("l2_good", "l2_bad")
    assert len(found.plot_regularisation_path(X, y).lines) >= 6
    assert found.plot_calibration(X, y).lines


def test_a_pipeline_that_caches_its_steps_is_fitted_to_all_data(tmp_path):
    X, y = data()
    estimators = [make_pipeline(StandardScaler(), ElasticNet(), memory=memory) for memory in (None, str(tmp_path))]
    plain, cached = (search(estimator).fit(X, y).predict(X) for estimator in estimators)
    assert np.array_equal(plain, cached)
