"""`SufficeSearchCV` in the place of scikit-learn's own searches: their ranges, words, metrics and wrappers."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LogisticRegression,
    Perceptron,
    PoissonRegressor,
    Ridge,
    RidgeCV,
)
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import suffice
from suffice.sklearn import ElasticNetGLM, SufficeSearchCV
from suffice.sklearn.report import collect

FEW = suffice.Options(max_evaluations=6, final_radius=1e-2)
CV = KFold(4, shuffle=True, random_state=0)

rng = np.random.default_rng(0)
X = rng.standard_normal((80, 4))
REAL = X @ [1.0, -0.5, 0.0, 0.2] + 0.5 * rng.standard_normal(80) + 3.0
LABELS = (REAL + rng.standard_normal(80) > 3.0).astype(int)
COUNTS = rng.poisson(np.exp(0.4 * X[:, 0])).astype(float)
SAGA = LogisticRegression(solver="saga", tol=1e-8, max_iter=100_000)


def found(estimator, space=None, y=REAL, **more):
    return SufficeSearchCV(estimator, space, **{"cv": CV, "options": FEW, **more}).fit(X, y)


@pytest.mark.parametrize(
    "given", [(1e-3, 1.0), [1e-3, 1e-2, 1.0], np.logspace(-3, 0, 5), [1.0, 1e-3], loguniform(1e-3, 1.0)]
)
def test_a_range_is_its_two_ends_however_it_is_given(given):
    search = found(Ridge(), {"l2": given})
    assert search.result_.space.ranges == {"l2": pytest.approx((1e-3, 1.0))}


WORDS = [
    (LogisticRegression(), "C", LABELS),
    (LinearSVC(dual=False), "C", LABELS),
    (LogisticRegression(solver="liblinear", l1_ratio=1.0), "C", LABELS),
    (ElasticNet(), "alpha", REAL),
    (Lasso(), "alpha", REAL),
    (Ridge(), "alpha", REAL),
    (PoissonRegressor(), "alpha", COUNTS),
]


@pytest.mark.parametrize("estimator, word, y", WORDS)
def test_scikit_learns_words_are_ranges_of_the_parameters_themselves(estimator, word, y):
    low, high = 0.5, 2.0
    search = found(estimator, {word: (low, high)}, y)
    tried = [params[word] for params in search.cv_results_["params"]]
    assert low * (1 - 1e-12) <= min(tried) and max(tried) <= high * (1 + 1e-12)
    assert all(end == pytest.approx(4.0 * start) for start, end in search.result_.space.ranges.values())


def test_strength_and_ratio_together_are_searched_over_all_penalties_that_they_allow():
    search = found(SAGA, {"C": [0.1, 10.0], "l1_ratio": [0.1, 0.5, 0.9]}, LABELS)
    ranges = search.result_.space.ranges
    for C in (0.1, 1.0, 10.0):
        for ratio in (0.1, 0.5, 0.9):
            for name, share in (("l1", ratio), ("l2", 1.0 - ratio)):
                assert ranges[name][0] * (1 - 1e-9) <= share / (C * len(X)) <= ranges[name][1] * (1 + 1e-9)
    assert set(search.best_params_) == {"C", "l1_ratio"}


@pytest.mark.parametrize(
    "estimator, words",
    [(SAGA, {"C", "l1_ratio"}), (ElasticNet(l1_ratio=0.0), {"alpha", "l1_ratio"}), (ElasticNetGLM(), {"l1", "l2"})],
)
def test_the_delivered_model_has_the_penalties_that_it_was_fitted_with(estimator, words):
    y = LABELS if estimator is SAGA else REAL
    search = found(estimator, {"l1": (1e-3, 1.0)}, y)
    assert set(search.best_params_) == words
    assert suffice.certify(search, X, y).relative < 1e-4


def test_names_may_have_the_step_of_the_pipeline_in_front():
    pipeline = Pipeline([("scale", StandardScaler()), ("clf", Ridge())])
    plain, long = found(pipeline, {"alpha": (0.1, 10.0)}), found(pipeline, {"clf__alpha": (0.1, 10.0)})
    assert plain.best_params_ == long.best_params_ and list(plain.best_params_) == ["clf__alpha"]


@pytest.mark.parametrize(
    "estimator, space, match",
    [
        (LogisticRegression(), {"alpha": (1.0, 2.0)}, r"LogisticRegression are tuned here \(C, l1, l2, l1_ratio\)$"),
        (LogisticRegression(), {"c": (1.0, 2.0)}, "'C' may be meant"),
        (LogisticRegression(), {"C": (1.0, 2.0), "max_iter": [10, 20]}, "{'estimator__max_iter': "),
        (LogisticRegression(), {"l1_ratio": (0.0, 1.0)}, "C, alone or with l1_ratio"),
        (LogisticRegression(), {"C": (1.0, 2.0), "l2": (1.0, 2.0)}, "got C, l2"),
        (LogisticRegression(), {"C": [1.0]}, "at least two"),
        (LogisticRegression(), {"C": (0.0, 1.0)}, "positive"),
        (SAGA, {"C": (1.0, 2.0), "l1_ratio": (0.5, 1.5)}, "between 0 and 1"),
        (Lasso(), {"alpha": (1.0, 2.0), "l1_ratio": (0.0, 1.0)}, "space names 'l1_ratio'"),
        (make_pipeline(StandardScaler(), Ridge()), {"clf__alpha": (1.0, 2.0)}, "'ridge__alpha' may be"),
        (make_pipeline(SelectKBest(), Ridge()), {"selectkbest__k": [1, 2]}, "{'estimator__selectkbest__k': "),
        (make_pipeline(SelectKBest(), Ridge()), {"ridge__tol": [1, 2]}, "{'estimator__ridge__tol': "),
    ],
)
def test_a_space_that_means_nothing_is_refused_with_what_would(estimator, space, match):
    with pytest.raises(ValueError, match=match):
        found(estimator, space, LABELS)


def test_other_parameters_of_a_pipeline_are_compared_by_a_grid_around_the_search():
    inner = SufficeSearchCV(make_pipeline(SelectKBest(), Ridge()), cv=3, options=FEW)
    grid = GridSearchCV(inner, {"estimator__selectkbest__k": [1, 4]}, cv=3).fit(X, REAL)
    assert grid.best_params_ == {"estimator__selectkbest__k": 4}
    assert grid.best_score_ == pytest.approx(np.mean([grid.cv_results_[f"split{k}_test_score"][1] for k in range(3)]))


def test_leaving_one_out_says_that_r2_needs_two_rows():
    with pytest.raises(ValueError, match="holds out one row, as LeaveOneOut's do: use 'neg_mean_squared_error'"):
        found(Ridge(), scoring="r2", cv=LeaveOneOut())
    search = found(Ridge(), cv=LeaveOneOut())
    theirs = cross_val_score(Ridge(search.best_params_["alpha"] * 79 / 80), X, REAL, cv=LeaveOneOut(),
                             scoring="neg_mean_squared_error")  # fmt: skip
    assert search.n_splits_ == 80 and search.best_score_ == pytest.approx(theirs.mean(), rel=1e-5)


@pytest.mark.parametrize(
    "estimator, match",
    [
        (RidgeCV(), "use Ridge, which is what it tunes"),
        (Perceptron(), "use LinearSVC"),
        (RandomForestClassifier(), "tunes LogisticRegression, LinearSVC"),
        (RandomForestRegressor(), "tunes ElasticNet, Lasso"),
        (LogisticRegression, r"LogisticRegression\(\)"),
        (TransformedTargetRegressor(), "use Ridge"),
        (make_pipeline(StandardScaler(), TransformedTargetRegressor(Ridge())), "around the pipeline"),
    ],
)
def test_an_estimator_that_cannot_be_tuned_is_refused_with_one_that_can(estimator, match):
    with pytest.raises(TypeError, match=match):
        SufficeSearchCV(estimator, cv=3).fit(X, LABELS)


def test_several_scores_are_reported_and_one_is_tuned():
    names = ["accuracy", "neg_log_loss", "roc_auc"]
    search = found(LogisticRegression(), y=LABELS, scoring=names, refit="neg_log_loss")
    assert search.optimised_scoring_ == "neg_log_loss" and not search.surrogate_
    alone = found(LogisticRegression(), y=LABELS, scoring="neg_log_loss")
    assert search.best_params_ == alone.best_params_ and search.best_score_ == alone.best_score_
    results = search.cv_results_
    in_folds = LogisticRegression(C=search.best_params_["C"] * 4 / 3, tol=1e-8)
    for name in names:
        theirs = cross_val_score(in_folds, X, LABELS, cv=CV, scoring=name)
        assert results[f"mean_test_{name}"][search.best_index_] == pytest.approx(theirs.mean(), abs=1e-3)
        assert results[f"split0_test_{name}"].shape == results[f"rank_test_{name}"].shape == results["work"].shape
    assert search.score(X, LABELS) == pytest.approx(get_scorer("neg_log_loss")(search.best_estimator_, X, LABELS))
    compared = collect(search, X, LABELS, about={})["measures"]["scores"]
    assert sorted(compared) == sorted(names)


def test_what_scripts_ask_a_grid_search_for_is_there(tmp_path):
    search, again = (found(Ridge(), {"l2": (1e-3, 1.0)}, journal=tmp_path) for _ in range(2))
    results = search.cv_results_
    assert not search.multimetric_ and found(Ridge(), scoring=["r2"]).multimetric_
    assert search.refit_time_ > 0.0 and not hasattr(found(Ridge(), refit=False), "refit_time_")
    assert (results["mean_fit_time"] >= 0.0).all() and results["mean_fit_time"].sum() > 0.0
    assert np.isnan(again.cv_results_["mean_fit_time"]).all()  # the journal had all of them
    for name in ("std_fit_time", "mean_score_time", "std_score_time"):  # folds are trained and scored side by side
        assert np.isnan(results[name]).all() and len(results[name]) == len(results["work"])


def test_what_a_search_leaves_behind_shows_itself_in_a_line_or_two():
    search = found(Ridge(), {"l2": (1e-3, 1.0)}, certify_global=0.5)
    certified = suffice.certify(search, X, REAL)
    for shown in (search, search.result_, search.global_certificate_, search.held_out_, certified):
        assert len(repr(shown)) < 300 and (shown is search or "\n" not in repr(shown))
    assert "converged" in repr(search.result_) and "within" in repr(certified)
    assert repr(search.held_out_).startswith("<Predicted: 80 rows, R² 0.")


def test_several_scores_by_names_of_ones_own():
    scoring = {"area": "roc_auc", "loss": "neg_brier_score"}
    search = found(LogisticRegression(), y=LABELS, scoring=scoring, refit="loss")
    assert search.optimised_scoring_ == "neg_brier_score" and "mean_test_area" in search.cv_results_
    with pytest.raises(ValueError, match="refit must be"):
        found(LogisticRegression(), y=LABELS, scoring=scoring, refit="accuracy")
    with pytest.raises(ValueError, match="got none"):
        found(LogisticRegression(), y=LABELS, scoring=[])


@pytest.mark.parametrize("estimator, y", [(LogisticRegression(), LABELS), (Ridge(), REAL), (LinearSVC(), LABELS)])
def test_score_is_the_score_that_best_score_is_the_mean_of(estimator, y):
    search = found(estimator, y=y, cv=[(np.arange(80), np.arange(80))] * 2, tolerance=1e-8)
    assert search.score(X, y) == pytest.approx(search.best_score_, rel=1e-5)  # all rows are training and test


@pytest.mark.parametrize("space, way", [({"l2": (1.0, 10.0)}, "lower"), ({"l2": (1e-4, 1e-3)}, "upper")])
def test_an_edge_of_the_space_is_warned_of_with_the_direction(space, way):
    X, y = rng.standard_normal((40, 20)), rng.standard_normal(40) * 3
    y = y + X[:, 0] if way == "upper" else X @ np.ones(20)
    which, end = ("smaller", "1") if way == "lower" else ("larger", "0.001")
    told = f"the best l2 lies on the {way} edge of its space, {end}: one that is {which} may be better"
    with pytest.warns(UserWarning, match=told) as raised:
        search = SufficeSearchCV(Ridge(), space, cv=4).fit(X, y)
    assert any(f"alpha = {search.best_params_['alpha']:.4g})" in str(item.message) for item in raised)


def test_an_edge_that_is_no_better_than_places_inside_is_not_warned_of():
    """Of data that say nothing, all weights zero are best: so they are for a decade."""
    X, y = rng.standard_normal((40, 20)), rng.standard_normal(40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = SufficeSearchCV(Lasso(), {"l1": (1e-3, 1e6)}, cv=4).fit(X, y)
    assert not search.best_estimator_.coef_.any()


def test_a_minimum_inside_the_space_is_not_warned_of():
    y = REAL + 3.0 * np.random.default_rng(1).standard_normal(80)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found(Ridge(), {"l2": (1e-6, 1e2)}, y)


TARGETS = {
    "function": TransformedTargetRegressor(Ridge(), func=np.log1p, inverse_func=np.expm1),
    "transformer": TransformedTargetRegressor(ElasticNet(), transformer=StandardScaler()),
    "pipeline": TransformedTargetRegressor(
        make_pipeline(StandardScaler(), Ridge()), func=np.log1p, inverse_func=np.expm1
    ),
}
POSITIVE = np.exp(0.3 * REAL)


@pytest.mark.parametrize("name", TARGETS)
def test_transformed_targets_are_tuned_and_fitted_as_scikit_learn_fits_them(name):
    search = found(TARGETS[name], y=POSITIVE, tolerance=1e-7)
    assert all(key.startswith("regressor__") for key in search.best_params_)
    theirs = clone(TARGETS[name]).set_params(**search.best_params_).fit(X, POSITIVE)
    np.testing.assert_allclose(search.predict(X), theirs.predict(X), rtol=1e-3)
    assert set(vars(theirs)) == set(vars(search.best_estimator_))
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict(X), search.predict(X))
    scores = []
    for train, test in CV.split(X):
        params = {
            key: value * (0.75 if "ridge" in str(theirs.regressor).lower() else 1.0)
            for key, value in search.best_params_.items()
            if "alpha" in key
        }
        params |= {key: value for key, value in search.best_params_.items() if "ratio" in key}
        model = clone(TARGETS[name]).set_params(**params).fit(X[train], POSITIVE[train])
        truth = model.transformer_.transform(POSITIVE[test].reshape(-1, 1)).ravel()
        scores.append(-np.mean((model.regressor_.predict(X[test]) - truth) ** 2))
    assert np.mean(scores) == pytest.approx(search.best_score_, rel=1e-3)


def test_a_score_of_targets_as_they_are_is_reported():
    estimator = TARGETS["function"]
    with pytest.warns(UserWarning, match="neg_mean_squared_error of transformed targets is optimised"):
        search = found(estimator, y=POSITIVE, scoring="neg_mean_squared_error")
    alpha = search.best_params_["regressor__alpha"]
    in_folds = clone(estimator).set_params(regressor__alpha=0.75 * alpha)
    theirs = cross_val_score(in_folds, X, POSITIVE, cv=CV, scoring="neg_mean_squared_error").mean()
    assert search.best_score_ == pytest.approx(theirs, rel=1e-2)
    assert search.score(X, POSITIVE) == pytest.approx(-np.mean((search.predict(X) - POSITIVE) ** 2))
    data = collect(search, X, POSITIVE, about={})
    assert data["asked_scoring"] == "neg_mean_squared_error" and data["measures"]["same_folds"]
