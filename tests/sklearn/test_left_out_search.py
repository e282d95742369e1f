"""A search whose folds are single rows: what n folds say, from one model, and as proven."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import ElasticNet, LogisticRegression, PoissonRegressor, Ridge, RidgeClassifier, RidgeCV
from sklearn.model_selection import LeaveOneGroupOut, LeaveOneOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import suffice
from suffice.search.bilevel import BilevelProblem
from suffice.sklearn import ElasticNetGLM, SufficeSearchCV
from suffice.sklearn._left_out_search import LeftOutProblem
from suffice.sklearn._preparation import prepared
from suffice.sklearn.report import collect

X, Y = load_diabetes(return_X_y=True)
X, Y = X[:60], Y[:60]
B, LABELS = load_breast_cancer(return_X_y=True)
B, LABELS = B[:60, :6], np.where(LABELS[:60] == 1, "benign", "malignant")
COUNTS = np.random.default_rng(0).poisson(np.exp(0.3 + 5.0 * X[:, 2]))
WITH_OFFSET = np.column_stack([X, np.random.default_rng(1).standard_normal(60)])
LOGISTIC = LogisticRegression(l1_ratio=0.5, solver="saga")
THIRDS = np.arange(60) // 3
WIDE = np.random.default_rng(2).standard_normal((40, 120))
OF_WIDE = WIDE[:, :8].sum(axis=1) + 0.3 * np.random.default_rng(3).standard_normal(40)

CASES = {
    "ridge": (Ridge(), X, Y, {}),
    "elastic net, weights": (ElasticNet(), X, Y, {"sample_weight": 1.0 + np.arange(60) % 3}),
    "logistic, scaled": (make_pipeline(StandardScaler(), LOGISTIC), B, LABELS, {}),
    "logistic, groups": (make_pipeline(StandardScaler(), LOGISTIC), B, LABELS, {"groups": THIRDS}),
    "Poisson": (PoissonRegressor(), X, COUNTS, {}),
    "Poisson, offset": (ElasticNetGLM("poisson", offset=10), WITH_OFFSET, COUNTS, {}),
    "squares, offset": (ElasticNetGLM("gaussian", offset=10), WITH_OFFSET, Y / 50.0, {}),
    "ridge, wide": (Ridge(), WIDE, OF_WIDE, {}),
    "ridge of classes": (RidgeClassifier(), B, LABELS, {}),
}


def problems(estimator, X, y, given):
    search = SufficeSearchCV(clone(estimator), cv=LeaveOneGroupOut() if "groups" in given else "loo")
    known = prepared(search, X, y, given)
    search.cv = [(np.setdiff1d(np.arange(len(y)), rows), rows) for rows in known.task.groups]
    return known.problem(1), prepared(search, X, y, given).problem(1)


@pytest.mark.parametrize("name", CASES)
def test_residuals_and_derivatives_are_those_of_a_fold_for_every_row(name):
    ours, folds = problems(*CASES[name])
    assert type(ours) is LeftOutProblem and type(folds) is BilevelProblem
    theta = np.clip([-2.5, -2.5][: len(ours.space)], *ours.space.bounds)
    made, truth = ours.evaluate(theta, within=1e-5), folds.evaluate(theta, within=1e-7)
    assert made.e.max() <= 1e-5
    assert np.all(np.abs(np.abs(made.coarse) - np.abs(truth.coarse)) <= made.e + truth.e)
    ahead, exact = ours.differentiate(made).J, folds.differentiate(truth).J
    np.testing.assert_allclose(ahead, exact, atol=0.05 * np.abs(exact).max())
    assert np.linalg.norm(ahead - exact) <= 0.02 * np.linalg.norm(exact)


def test_a_search_is_proven_and_finds_what_n_folds_find():
    search = SufficeSearchCV(Ridge(), cv="loo").fit(X, Y)
    low, high = search.score_interval_
    alpha = search.best_params_["alpha"] * 59 / 60  # of 59 rows
    theirs = cross_val_score(Ridge(alpha), X, Y, cv=LeaveOneOut(), scoring="neg_mean_squared_error")
    assert low * (1.0 + 1e-9) <= theirs.mean() <= high * (1.0 - 1e-9) and high - low < 1e-3 * abs(low)
    grid = RidgeCV(np.logspace(-4, 1, 200), scoring="neg_mean_squared_error").fit(X, Y)
    assert search.best_score_ >= grid.best_score_ * 1.0005
    assert search.n_splits_ == 60 and "split59_test_score" in search.cv_results_
    np.testing.assert_allclose((search.held_out_.y - search.held_out_.predicted) ** 2, -theirs, rtol=1e-4)
    others = (Y.sum() - Y) / 59.0
    np.testing.assert_allclose(search.baseline_.predicted, others)


def test_a_wide_ridge_that_wants_next_to_no_penalty_trains_no_fold(monkeypatch):
    monkeypatch.setattr(LeftOutProblem, "_trained", None)
    rng = np.random.default_rng(0)
    W = rng.standard_normal((30, 90))
    y = W @ rng.standard_normal(90)
    search = SufficeSearchCV(Ridge(), cv="loo").fit(W, y)
    alpha = search.best_params_["alpha"] * 29 / 30
    theirs = cross_val_score(Ridge(alpha, solver="svd"), W, y, cv=LeaveOneOut(), scoring="neg_mean_squared_error")
    low, high = search.score_interval_
    assert low * (1.0 + 1e-7) <= theirs.mean() <= high * (1.0 - 1e-7)


def test_what_is_left_out_afterwards_is_what_was_tuned():
    search = SufficeSearchCV(make_pipeline(StandardScaler(), LOGISTIC), cv=LeaveOneOut()).fit(B, LABELS)
    rows = suffice.leave_one_out(search, B, LABELS, within=1e-6)
    assert rows.score == pytest.approx(search.best_score_, rel=1e-4)
    np.testing.assert_allclose(search.held_out_.decided[:, 1], rows.prediction, atol=3e-3)
    assert set(search.held_out_.predicted) == {"benign", "malignant"}


def test_a_score_that_is_not_smooth_and_several_are_told_of_rows():
    with pytest.warns(UserWarning, match="accuracy"):
        search = SufficeSearchCV(LogisticRegression(), cv="loo", scoring="accuracy").fit(B / B.std(0), LABELS)
    assert search.best_score_ == np.mean(search.held_out_.predicted == search.held_out_.y)
    both = SufficeSearchCV(Ridge(), cv="loo", scoring=["neg_mean_squared_error", "neg_mean_absolute_error"]).fit(X, Y)
    best = both.cv_results_["mean_test_neg_mean_absolute_error"][both.best_index_]
    assert best == pytest.approx(-np.mean(np.abs(both.held_out_.y - both.held_out_.predicted)))


def test_a_journal_is_taken_up_to_the_same_bits(tmp_path):
    def fit(folder, rows=slice(None), **options):
        search = SufficeSearchCV(LogisticRegression(), cv="loo", journal=folder, **options)
        return search.fit(B[rows] / B.std(0), LABELS[rows])

    whole, calls = fit(tmp_path / "whole"), []

    def stop(record):
        calls.append(record)
        if len(calls) == 3:
            raise StopIteration

    fit(tmp_path / "cut", callback=stop)
    again = fit(tmp_path / "cut")
    assert again.best_penalties_ == whole.best_penalties_ and again.score_interval_ == whole.score_interval_
    with pytest.raises(suffice.JournalError, match="groups left out"):
        fit(tmp_path / "cut", slice(1, None))


def test_reports_tell_of_all_rows():
    search = SufficeSearchCV(Ridge(), cv="loo").fit(X, Y)
    data = collect(search, X, Y, about={})
    assert data["folds"] == 60 and data["measures"]["same_folds"]
    tuned = data["measures"]["scores"]["neg_mean_squared_error"]["tuned"]
    assert tuned == [pytest.approx(search.best_score_, rel=1e-6)]
    assert len(data["calibration"]["true"]) == 60


@pytest.mark.parametrize("cv", ["loo", LeaveOneOut()])
def test_rows_that_no_model_can_do_without_are_named(cv):
    labels = LABELS.copy()
    labels[:] = "benign"
    labels[7] = "malignant"
    with pytest.raises(
        ValueError, match=r"no model without row 7: split 7 of cv has training samples.* of one class only: 'benign'"
    ):
        SufficeSearchCV(LogisticRegression(), cv=cv).fit(B, labels)
    with pytest.raises(ValueError, match="no model without row 7: the intercept is not finite"):
        SufficeSearchCV(PoissonRegressor(), cv=cv).fit(X, np.arange(60) == 7)
    with pytest.raises(ValueError, match="sample_weight is zero on all training or all held-out samples of split 3"):
        SufficeSearchCV(Ridge(), cv=cv).fit(X, Y, sample_weight=np.arange(60) != 3)


def test_few_groups_and_other_models_are_folds():
    few = prepared(SufficeSearchCV(Ridge(), cv=LeaveOneGroupOut()), X, Y, {"groups": np.arange(60) % 8})
    several = prepared(SufficeSearchCV(LogisticRegression(), cv="loo"), B, np.arange(60) % 3, {})
    assert few.task is several.task is None and few.count == 8 and several.count == 60


def test_two_rows_of_a_class_are_enough_and_time_that_is_over_ends_a_search():
    labels = np.isin(np.arange(60), (3, 8))
    search = SufficeSearchCV(LogisticRegression(), cv="loo", options=suffice.Options(max_seconds=1e-3))
    assert np.isfinite(search.fit(B / B.std(0), labels).best_score_)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("columns", [8, 80])
def test_a_search_of_a_ridge_begins_where_its_closed_form_is_least(fit_intercept, columns):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, columns))
    y = X[:, :4].sum(axis=1) + 2.0 * rng.standard_normal(40) + 3.0
    weight = rng.uniform(0.5, 2.0, 40)
    search = SufficeSearchCV(Ridge(fit_intercept=fit_intercept), cv="loo").fit(X, y, sample_weight=weight)
    assert len(search.cv_results_["params"]) <= 3
    first, best = search.cv_results_["mean_test_score"][0], search.best_score_
    assert best - first <= 1e-4 * abs(best)
