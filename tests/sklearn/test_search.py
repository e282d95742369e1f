"""SufficeSearchCV against scikit-learn's own fits, and its intervals against extended precision."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    TheilSenRegressor,
)
from sklearn.metrics import get_scorer, root_mean_squared_error
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_info, threadpool_limits

import suffice
from suffice.sklearn import SufficeSearchCV, register_adapter
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.estimators import Regression
from tests.reference import GroupNorms, minimise
from tests.reference_intercept import InterceptMargins

TIGHT = {"tol": 1e-10, "max_iter": 1_000_000}
FEW = suffice.Options(max_evaluations=15, final_radius=1e-2)
BOTH = {"l1": (1e-5, 1.0), "l2": (1e-5, 1.0)}


def classification(**more):
    X, y = make_classification(90, 6, n_informative=3, random_state=1, flip_y=0.2, **more)
    return X + 0.7, y


def regression():
    X, y = make_regression(80, 6, n_informative=3, noise=10.0, random_state=2)
    return X + 0.5, y / 20.0 + 3.0


def counts():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 4)) * 0.4
    return X, rng.poisson(np.exp(X @ [1.0, -0.5, 0.0, 0.3] + 0.5)).astype(float)


def contaminated():
    X, y = regression()
    rng = np.random.default_rng(3)
    return X, y + 10.0 * rng.standard_normal(len(y)) * (rng.random(len(y)) < 0.1)


ESTIMATORS = {
    "logistic": (LogisticRegression(l1_ratio=0.5, solver="saga", **TIGHT), BOTH, classification),
    "logistic-no-intercept": (
        LogisticRegression(l1_ratio=0.5, solver="saga", fit_intercept=False, **TIGHT),
        BOTH,
        classification,
    ),
    "logistic-l2": (LogisticRegression(solver="newton-cholesky", **TIGHT), None, classification),
    "logistic-tied": (LogisticRegression(l1_ratio=0.3, solver="saga", **TIGHT), {"l2": (1e-5, 1.0)}, classification),
    "logistic-l1": (LogisticRegression(l1_ratio=1.0, solver="saga", **TIGHT), {"l1": (1e-5, 1.0)}, classification),
    "logistic-liblinear": (LogisticRegression(solver="liblinear", tol=1e-12, max_iter=100_000), None, classification),
    "logistic-balanced": (LogisticRegression(class_weight="balanced", **TIGHT), None, classification),
    "svc": (LinearSVC(dual=False, **TIGHT), None, classification),
    "svc-l1": (LinearSVC(dual=False, penalty="l1", **TIGHT), None, classification),
    "elastic-net": (ElasticNet(**TIGHT), BOTH, regression),
    "elastic-net-no-intercept": (ElasticNet(fit_intercept=False, **TIGHT), BOTH, regression),
    "lasso": (Lasso(**TIGHT), None, regression),
    "ridge": (Ridge(), None, regression),
    "poisson": (PoissonRegressor(solver="newton-cholesky", **TIGHT), None, counts),
}


def fold_scores(search, X, y, cv, sample_weight=None):
    """The mean test score of scikit-learn's own fits, with penalties as in folds of their size."""
    scores = []
    for train, test in cv.split(X, y):
        estimator = clone(search.estimator)
        weight = np.ones(len(y)) if sample_weight is None else sample_weight
        share = weight.sum() / weight[train].sum()
        if getattr(estimator, "class_weight", None) == "balanced":
            share = len(y) / len(train)
        scale = {"C": share, "alpha": 1.0 / share if isinstance(estimator, Ridge) else 1.0}
        params = {name: value * scale.get(name, 1.0) for name, value in search.best_params_.items()}
        estimator.set_params(**params).fit(
            X[train], y[train], **({} if sample_weight is None else {"sample_weight": weight[train]})
        )
        if search.optimised_scoring_ == "neg_squared_hinge":
            m = (2 * y[test] - 1) * estimator.decision_function(X[test])
            scores.append(-np.average(np.maximum(0.0, 1.0 - m) ** 2, weights=weight[test]))
        else:
            kwargs = {} if sample_weight is None else {"sample_weight": weight[test]}
            scores.append(get_scorer(search.optimised_scoring_)(estimator, X[test], y[test], **kwargs))
    return float(np.mean(scores))


@pytest.mark.parametrize(
    "name, weighted",
    [(name, weighted) for name in ESTIMATORS for weighted in (False, True) if not (weighted and "balanced" in name)],
)
def test_the_score_of_scikit_learns_own_fits_lies_in_the_proven_interval(name, weighted):
    estimator, space, data = ESTIMATORS[name]
    X, y = data()
    weight = np.random.default_rng(0).integers(1, 4, len(y)).astype(float) if weighted else None
    cv = KFold(3, shuffle=True, random_state=0)
    search = SufficeSearchCV(estimator, space, cv=cv, options=FEW, tolerance=1e-6).fit(X, y, sample_weight=weight)
    low, high = search.score_interval_
    theirs = fold_scores(search, X, y, cv, weight)
    slack = 1e-6 * abs(low) if search.l2_floor_ == 0.0 else 1e-4 * abs(low)
    assert low - slack <= theirs <= high + slack
    assert high - low <= 1e-4 * abs(low)
    assert low <= search.best_score_ <= high
    assert search.best_estimator_.predict(X).shape == y.shape


@pytest.mark.parametrize("scoring", ["neg_log_loss", "neg_brier_score"])
def test_the_interval_of_the_score_holds_in_extended_precision(scoring):
    X, y = classification()
    cv = StratifiedKFold(3)
    estimator = LogisticRegression(l1_ratio=0.5, solver="saga")
    for tolerance in (1e-1, 1e-3, 1e-6):
        search = SufficeSearchCV(
            estimator, BOTH, cv=cv, scoring=scoring, options=FEW, tolerance=tolerance, refit=False
        ).fit(X, y)
        l1, l2 = search.best_penalties_["l1"], search.best_penalties_["l2"]
        total = 0.0
        for train, test in cv.split(X, y):
            f = InterceptMargins(X[train], 2.0 * y[train] - 1.0, np.full(len(train), 1.0 / len(train)), "logistic", l2)
            L = 0.25 * np.linalg.norm(X[train], 2) ** 2 / len(train) + l2
            w, error = minimise(f, GroupNorms([[i] for i in range(6)], [l1] * 6), l2, L, 6)
            assert error < 1e-12
            p = expit((X[test] @ w + f.intercept(w)).astype(float))
            seen = np.where(y[test] == 1, p, 1.0 - p)
            total += np.mean((1.0 - seen) ** 2 if scoring == "neg_brier_score" else -np.log(seen)) / 3
        assert search.score_interval_[0] - 1e-14 <= -total <= search.score_interval_[1] + 1e-14


def test_every_evaluation_of_the_search_is_told_with_an_interval_that_holds():
    X, y = regression()
    cv = KFold(3)
    search = SufficeSearchCV(Ridge(), cv=cv, options=FEW, tolerance=1e-6).fit(X, y)
    results = search.cv_results_
    rows = len(results["params"])
    assert rows == len(results["asked_error"]) == len(results["work"])
    assert results["asked_error"].max() > 10 * results["asked_error"].min()  # no more accurate than needed
    for k in range(rows):
        theirs = []
        for train, test in cv.split(X):
            ridge = Ridge(alpha=results["penalty_l2"][k] * len(train)).fit(X[train], y[train])
            theirs.append(-np.mean((ridge.predict(X[test]) - y[test]) ** 2))
        assert results["test_score_low"][k] - 1e-9 <= np.mean(theirs) <= results["test_score_high"][k] + 1e-9
    best = search.best_index_
    assert results["params"][best] == search.best_params_
    assert results["mean_test_score"][best] == search.best_score_


@pytest.mark.parametrize("name", ["logistic", "logistic-no-intercept", "elastic-net", "poisson"])
@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_matrix])
def test_sparse_data_give_the_same_score(name, form):
    estimator, space, data = ESTIMATORS[name]
    X, y = data()
    X[np.abs(X) < 0.5] = 0.0
    kwargs = {"cv": 3, "options": FEW, "initial": dict.fromkeys(space or {"l2": 0}, 1e-2), "refit": False}
    dense, sparse = (SufficeSearchCV(estimator, space, **kwargs).fit(A, y) for A in (X, form(X)))
    assert sparse.best_score_ == pytest.approx(dense.best_score_, rel=1e-3)


def test_steps_of_a_pipeline_are_fitted_inside_every_fold():
    X, y = classification()
    X = X * np.logspace(-2, 2, 6)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cholesky", tol=1e-10))
    cv = StratifiedKFold(3)
    search = SufficeSearchCV(pipeline, cv=cv, scoring="neg_log_loss", options=FEW, tolerance=1e-6).fit(X, y)
    assert list(search.best_params_) == ["logisticregression__C"]
    in_folds = clone(pipeline).set_params(logisticregression__C=search.best_params_["logisticregression__C"] * 1.5)
    theirs = cross_val_score(in_folds, X, y, cv=cv, scoring="neg_log_loss").mean()
    low, high = search.score_interval_
    assert low - 1e-7 <= theirs <= high + 1e-7
    assert search.n_features_in_ == 6 and search.predict_proba(X).shape == (90, 2)


def test_tables_keep_their_column_names():
    X, y = regression()
    names = [f"feature {k}" for k in range(6)]
    plain = SufficeSearchCV(Ridge(), cv=3, options=FEW).fit(X, y)
    table = SufficeSearchCV(Ridge(), cv=3, options=FEW).fit(pd.DataFrame(X, columns=names), pd.Series(y))
    assert table.best_params_["alpha"] == pytest.approx(plain.best_params_["alpha"])  # its columns lie differently
    assert list(table.feature_names_in_) == list(table.best_estimator_.feature_names_in_) == names


def test_polars_tables_are_taken():
    polars = pytest.importorskip("polars")
    X, y = regression()
    table = polars.DataFrame({f"feature {k}": X[:, k] for k in range(6)})
    search = SufficeSearchCV(make_pipeline(StandardScaler(), Ridge()), cv=3, options=FEW).fit(table, y)
    assert list(search.feature_names_in_) == table.columns
    assert search.predict(table).shape == y.shape


def test_metadata_routing_takes_weights_and_groups_where_they_belong():
    X, y = regression()
    weight, groups = np.random.default_rng(0).integers(1, 4, len(y)).astype(float), np.repeat(np.arange(8), 10)
    plain = SufficeSearchCV(Ridge(), cv=GroupKFold(4), options=FEW).fit(X, y, sample_weight=weight, groups=groups)
    with config_context(enable_metadata_routing=True):
        estimator = Ridge().set_fit_request(sample_weight=True)
        routed = SufficeSearchCV(estimator, cv=GroupKFold(4), options=FEW)
        routed.fit(X, y, sample_weight=weight, groups=groups)
    assert routed.best_params_ == plain.best_params_


def test_groups_go_to_the_splitter():
    X, y = regression()
    groups = np.repeat(np.arange(8), 10)
    search = SufficeSearchCV(Ridge(), cv=GroupKFold(4), options=FEW).fit(X, y, groups=groups)
    same = SufficeSearchCV(Ridge(), cv=list(GroupKFold(4).split(X, y, groups)), options=FEW).fit(X, y)
    assert search.n_splits_ == 4 and search.best_params_ == same.best_params_


def test_r2_is_one_minus_the_loss_of_every_fold():
    X, y = regression()
    search = SufficeSearchCV(ElasticNet(**TIGHT), BOTH, cv=3, scoring="r2", options=FEW, tolerance=1e-6).fit(X, y)
    estimator = ElasticNet(**TIGHT, **search.best_params_)
    theirs = cross_val_score(estimator, X, y, cv=3, scoring="r2").mean()
    assert search.score_interval_[0] - 1e-8 <= theirs <= search.score_interval_[1] + 1e-8
    assert search.score(X, y) == pytest.approx(search.best_estimator_.score(X, y))


def test_a_score_that_is_not_smooth_is_reported_and_another_one_optimised():
    X, y = classification()
    with pytest.warns(UserWarning, match="neg_log_loss is optimised in its place"):
        search = SufficeSearchCV(LogisticRegression(), cv=3, scoring="roc_auc", options=FEW).fit(X, y)
    plain = SufficeSearchCV(LogisticRegression(), cv=3, options=FEW).fit(X, y)
    assert search.surrogate_ and search.optimised_scoring_ == "neg_log_loss" and not plain.surrogate_
    assert search.best_params_ == plain.best_params_
    assert search.optimised_interval_ == plain.optimised_interval_ == plain.score_interval_
    assert search.score_interval_ == (-np.inf, np.inf)  # nothing is proven of the area itself
    in_folds = LogisticRegression(C=search.best_params_["C"] * 1.5, tol=1e-8)
    assert search.best_score_ == pytest.approx(cross_val_score(in_folds, X, y, cv=3, scoring="roc_auc").mean())


def test_the_score_of_classes_is_the_log_loss_where_none_is_named():
    X, y = classification()
    search = SufficeSearchCV(LogisticRegression(), cv=3, options=FEW).fit(X, y)
    assert search.optimised_scoring_ == search.asked_scoring_ == "neg_log_loss"


def test_a_root_mean_squared_error_is_optimised_as_squares_and_proven_as_itself():
    X, y = regression()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search, squares = (
            SufficeSearchCV(ElasticNet(**TIGHT), BOTH, cv=3, scoring=scoring, options=FEW, tolerance=1e-6).fit(X, y)
            for scoring in ("neg_root_mean_squared_error", "neg_mean_squared_error")
        )
    assert search.best_params_ == squares.best_params_ and not search.surrogate_
    in_folds = ElasticNet(**TIGHT, **search.best_params_)
    theirs = cross_val_score(in_folds, X, y, cv=3, scoring="neg_root_mean_squared_error")
    low, high = search.score_interval_
    assert low - 1e-8 <= theirs.mean() <= high + 1e-8 and high - low <= 1e-5 and low <= search.best_score_ <= high
    assert search.score(X, y) == pytest.approx(-root_mean_squared_error(y, search.predict(X)))
    for k, of_fold in enumerate(theirs):
        assert search.cv_results_[f"split{k}_test_score"][search.best_index_] == pytest.approx(of_fold, abs=1e-6)


def test_the_root_of_several_targets_is_not_the_mean_of_their_roots():
    X, y = regression()
    Y = np.column_stack([y, 10.0 * X[:, 0]])
    with pytest.warns(UserWarning, match="neg_mean_squared_error is optimised in its place"):
        search = SufficeSearchCV(Ridge(), cv=3, scoring="neg_root_mean_squared_error", options=FEW).fit(X, Y)
    in_folds = Ridge(alpha=search.best_params_["alpha"] * 2 / 3)
    theirs = cross_val_score(in_folds, X, Y, cv=KFold(3), scoring="neg_root_mean_squared_error").mean()
    assert search.best_score_ == pytest.approx(theirs, rel=1e-2)


def test_one_standard_error_takes_larger_penalties_at_a_score_that_is_nearly_as_good():
    X, y = regression()
    kwargs = {"space": BOTH, "cv": 5, "options": FEW}
    best = SufficeSearchCV(ElasticNet(), **kwargs).fit(X, y)
    plainer = SufficeSearchCV(ElasticNet(), refit="one_se", **kwargs).fit(X, y)
    error = best.cv_results_["std_test_score"][best.best_index_] * np.sqrt(5 / 4) / np.sqrt(5)
    assert plainer.best_params_["alpha"] > best.best_params_["alpha"]
    assert best.best_score_ - error <= plainer.best_score_ <= best.best_score_
    assert plainer.best_params_["l1_ratio"] == pytest.approx(best.best_params_["l1_ratio"])


@pytest.mark.slow
def test_runs_repeat_and_processes_change_nothing():
    X, y = classification()
    estimator, space, _ = ESTIMATORS["logistic"]
    one, two = (
        SufficeSearchCV(estimator, space, cv=3, options=FEW, n_jobs=jobs, random_state=0, refit=False).fit(X, y)
        for jobs in (1, 2)
    )
    assert one.best_params_ == two.best_params_ and one.score_interval_ == two.score_interval_


def test_the_papers_rule_asks_for_the_distance_of_the_weights():
    X, y = regression()
    few = suffice.Options(max_evaluations=15, final_radius=1e-2, policy="weights")
    search, plain = (SufficeSearchCV(Ridge(), cv=3, options=options).fit(X, y) for options in (few, FEW))
    assert search.best_score_ == pytest.approx(plain.best_score_, rel=1e-3)


@pytest.mark.parametrize("estimator", [Ridge(), Lasso(), ElasticNet()])
def test_a_column_that_gives_the_target_away_ends_the_search_with_success(estimator):
    """The loss is down to rounding: no penalty is better by anything that arithmetic can tell."""
    Z = np.random.default_rng(0).standard_normal((120, 4))
    y = Z @ [1.0, 2.0, 3.0, 4.0]
    search = SufficeSearchCV(estimator, cv=3).fit(np.column_stack([Z, y]), y)
    assert search.result_.success and len(search.cv_results_["work"]) < 40
    assert search.result_.interval[1] <= 1e-9 * np.var(y)
    low, high = search.score_interval_
    assert search.result_.interval == (-high, -low)  # what the result says is about the very point that is handed over
    assert search.result_.params == {
        name.removeprefix("penalty_"): values[search.best_index_]
        for name, values in search.cv_results_.items()
        if name.startswith("penalty_")
    }


def test_what_is_said_about_the_result_is_said_about_the_best_point():
    X, y = classification()
    estimator, space, _ = ESTIMATORS["logistic"]
    search = SufficeSearchCV(estimator, space, cv=3, options=FEW, tolerance=1e-6, refit=False).fit(X, y)
    low, high = search.score_interval_
    assert search.result_.interval == (-high, -low)


def test_as_good_as_a_grid():
    X, y = regression()
    search = SufficeSearchCV(ElasticNet(), BOTH, cv=3, options=suffice.Options(final_radius=1e-3)).fit(X, y)
    grid = max(
        cross_val_score(ElasticNet(alpha=alpha, l1_ratio=r), X, y, cv=3, scoring="neg_mean_squared_error").mean()
        for alpha in np.logspace(-5, 0, 12)
        for r in np.linspace(0.05, 0.95, 5)
    )
    assert search.best_score_ >= grid - 1e-4 * abs(grid)


def test_anyone_can_register_an_adapter():
    class OwnRidge(Ridge):
        pass

    class Halved(Regression):
        def params(self, estimator, l1, l2, total, names):
            return {"alpha": 0.5 * super().params(estimator, l1, l2, total, names)["alpha"]}

    X, y = regression()
    plain = SufficeSearchCV(OwnRidge(), cv=3, options=FEW).fit(X, y)  # known by the class it is derived from
    register_adapter(OwnRidge, Halved(**vars(find_adapter(Ridge()))))
    halved = SufficeSearchCV(OwnRidge(), cv=3, options=FEW).fit(X, y)
    assert halved.best_params_["alpha"] == 0.5 * plain.best_params_["alpha"]
    with pytest.raises(TypeError, match="must be derived from suffice"):
        register_adapter(OwnRidge, object())


@pytest.mark.parametrize(
    "estimator, kwargs, error, match",
    [
        (TheilSenRegressor(), {}, TypeError, "no adapter for TheilSenRegressor: use QuantileRegressor"),
        (LogisticRegression(), {"space": {"l1": (1e-3, 1.0)}}, ValueError, "solver='lbfgs'"),
        (LogisticRegression(solver="liblinear"), {"space": BOTH}, ValueError, "saga"),
        (
            LogisticRegression(),
            {"space": {"alpha": (1e-3, 1.0)}},
            ValueError,
            "only the penalties of LogisticRegression",
        ),
        (LogisticRegression(), {"space": {"l2": (-1.0, 1.0)}}, ValueError, "finite and not negative"),
        (LogisticRegression(), {"refit": "best"}, ValueError, "refit must be"),
        (LogisticRegression(), {"tolerance": 0.0}, ValueError, "tolerance must be"),
        (LogisticRegression(), {"options": {}}, TypeError, "options must be"),
        (LinearSVC(loss="hinge"), {}, ValueError, "squared_hinge"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(estimator, kwargs, error, match):
    with pytest.raises(error, match=match):
        SufficeSearchCV(estimator, cv=3, **kwargs).fit(*classification())


def test_more_than_two_classes_are_refused_where_there_is_no_single_model():
    X, y = make_classification(60, 5, n_classes=3, n_informative=4, n_redundant=0, random_state=0)
    for estimator in (LinearSVC(), LogisticRegression(solver="liblinear")):
        with pytest.raises(ValueError, match="two classes"):
            SufficeSearchCV(estimator, cv=3).fit(X, y)


CHECKED = [
    SufficeSearchCV(estimator, cv=3, initial={"l2": 0.1}, options=suffice.Options(max_evaluations=3))
    for estimator in (LogisticRegression(), Ridge())
]


@parametrize_with_checks(CHECKED)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", ["logistic-l2", "ridge"])
def test_a_fitted_search_does_not_hold_on_to_its_training_data(name):
    estimator, _, data = ESTIMATORS[name]
    X, y = data()
    X = np.hstack([X, np.random.default_rng(0).standard_normal((len(y), 200))])
    few = suffice.Options(max_evaluations=3)
    search = SufficeSearchCV(estimator, {"l2": (1e-2, 1.0)}, cv=3, options=few, initial={"l2": 0.5}, refit=False)
    assert len(pickle.dumps(search.fit(X, y))) < 0.5 * X.nbytes


def test_small_tables_are_searched_by_one_thread_of_blas_and_threads_come_back():
    """More of them wait for each other longer than they work."""
    X, y = regression()
    seen = []

    def look(_):
        seen.append({one["num_threads"] for one in threadpool_info()})

    with threadpool_limits(2):
        SufficeSearchCV(Ridge(), cv=3, callback=look, options=FEW).fit(X, y)
        after = {one["num_threads"] for one in threadpool_info()}
    assert seen and all(threads == {1} for threads in seen) and after == {2}


def test_threads_share_the_folds_of_a_large_matrix_to_the_same_bits(monkeypatch):
    monkeypatch.setattr("suffice.sklearn._preparation.MANY", 1)
    X, y = classification()
    estimator, space, _ = ESTIMATORS["logistic"]
    with threadpool_limits(1):
        one, two = (SufficeSearchCV(estimator, space, cv=3, options=FEW, n_jobs=jobs).fit(X, y) for jobs in (1, 2))
    assert two.estimate_of_jobs_ == "threads: X is large" and one.estimate_of_jobs_ == ""
    assert repr(one.result_.history) == repr(two.result_.history)
    assert np.array_equal(one.best_estimator_.coef_, two.best_estimator_.coef_)
