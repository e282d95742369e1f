"""Intervals and sets: they contain what exact refits give, agree with MAPIE's formulas, and promise what is true."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, PoissonRegressor, QuantileRegressor, Ridge
from sklearn.model_selection import GroupKFold, KFold, RepeatedKFold, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import LinearSVC

import suffice
from suffice.sklearn import ElasticNetGLM, SufficeSearchCV

FEW = suffice.Options(max_evaluations=5, final_radius=1e-2)
TIGHT = {"tol": 1e-13, "max_iter": 200_000}


def searched(estimator, X, y, cv=5, **fit):
    return SufficeSearchCV(estimator, cv=cv, options=FEW).fit(X, y, **fit)


def exact(search, **more):
    """scikit-learn's own estimator at the best penalties."""
    return clone(search.estimator).set_params(**search.best_params_, **more)


def refitted(model, X, y, new, folds):
    """What models without each of these rows say of them, and of new rows: one entry, or row, for each row. Penalties
    of a sum over rows are those of their mean."""
    own, there = np.zeros(len(y)), np.zeros((len(y), len(new)))
    of_sum = {key: v for key, v in model.get_params().items() if key.endswith("C") or "Ridge" in str(model)}
    of_sum = {key: v for key, v in of_sum.items() if key.rpartition("__")[2] in ("alpha", "C")}
    for train, test in folds:
        share = len(train) / len(y)
        scaled = {key: v / share if key.endswith("C") else v * share for key, v in of_sum.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = clone(model).set_params(**scaled).fit(X[train], y[train])
        ask = fitted.predict if not hasattr(fitted, "predict_proba") else lambda Z, f=fitted: f.predict_proba(Z)[:, 1]
        own[test], there[test] = ask(X[test]), ask(new)
    return own, there


def folds_of(search, X, y, method):
    n = len(y)
    if method == "jackknife+":
        return [(np.delete(np.arange(n), i), np.array([i])) for i in range(n)]
    return list(KFold(5).split(X, y))


def by_the_book(own, there, y, coverage):
    """The ends as the paper writes them."""
    n, R = len(y), np.abs(y - own)
    k = int(np.ceil(coverage * (n + 1) - 1e-9))
    low, high = np.sort(there - R[:, None], axis=0), np.sort(there + R[:, None], axis=0)
    return np.stack([low[n - k], high[k - 1]], axis=1)


@pytest.fixture(scope="module")
def numbers():
    X, y = load_diabetes(return_X_y=True, scaled=False)
    return X[:90], y[:90], X[90:110], y[90:110]


@pytest.mark.parametrize("method", ["jackknife+", "cv+"])
@pytest.mark.parametrize(
    ("estimator", "more"),
    [
        (make_pipeline(StandardScaler(), ElasticNet()), {"elasticnet__tol": 1e-13, "elasticnet__max_iter": 200_000}),
        (Ridge(), {}),
        (make_pipeline(PolynomialFeatures(2), StandardScaler(), Lasso()), {"lasso__tol": 1e-13}),
    ],
    ids=["net", "ridge", "polynomials"],
)
def test_intervals_contain_those_of_exact_refits_and_are_hardly_wider(estimator, more, method, numbers):
    X, y, new, _ = numbers
    X, new = X[:, :4], new[:, :4]
    search = searched(estimator, X, y)
    found = search.predict_interval(new, 0.8, method)
    truth = by_the_book(*refitted(exact(search, **more), X, y, new, folds_of(search, X, y, method)), y, 0.8)
    blur = 1e-5 * np.ptp(y)  # of what is called exact here
    assert (found[:, 0] <= truth[:, 0] + blur).all() and (truth[:, 1] <= found[:, 1] + blur).all()
    np.testing.assert_allclose(found, truth, atol=1e-3 * np.ptp(y))


@pytest.mark.parametrize("groups", [None, np.arange(60) % 12])
def test_folds_that_cannot_be_cut_anew_are_not_tuned_anew(groups):
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    cv = list(KFold(4).split(X)) if groups is None else GroupKFold(4)
    search = SufficeSearchCV(Ridge(), cv=cv, options=FEW).fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="by a number or a splitter without groups, got cv="):
        search.predict_interval(X[:2], method="cv+", tuning="repeated")


@pytest.mark.parametrize("method", ["jackknife+", "cv+"])
def test_counts_have_intervals_that_begin_at_zero(method):
    rng = np.random.default_rng(0)
    X, new = rng.standard_normal((80, 3)), rng.standard_normal((15, 3))
    y = rng.poisson(np.exp(0.5 * X[:, 0])).astype(float)
    search = searched(PoissonRegressor(), X, y)
    found = search.predict_interval(new, 0.9, method)
    model = exact(search, tol=1e-12, max_iter=10_000)
    truth = by_the_book(*refitted(model, X, y, new, folds_of(search, X, y, method)), y, 0.9)
    truth = np.maximum(truth, 0.0)
    assert (found[:, 0] <= truth[:, 0] + 1e-7).all() and (truth[:, 1] <= found[:, 1] + 1e-7).all()
    np.testing.assert_allclose(found, truth, rtol=1e-3, atol=1e-6)


def by_the_book_for_classes(own, there, y, coverage):
    """The set of Romano, Sesia and Candes (2020), of two classes, without their random numbers."""

    def score(p, label):
        other = np.where(label == 1, 1.0 - p, p)
        return np.where(other > 0.5, other, 0.0)

    E = score(own, y)
    counts = np.stack([(E[:, None] < score(there, np.full(there.shape, c))).sum(axis=0) for c in (0, 1)], axis=1)
    return counts < coverage * (len(y) + 1) - 1e-9


@pytest.mark.parametrize("method", ["jackknife+", "cv+"])
@pytest.mark.parametrize("coverage", [0.8, 0.97])
def test_sets_contain_those_of_exact_refits_and_are_hardly_larger(coverage, method):
    X, y = load_breast_cancer(return_X_y=True)
    rows = np.random.default_rng(3).permutation(len(y))
    X, y, new = X[rows[:100], :4], y[rows[:100]], X[rows[100:300], :4]
    model = make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cholesky"))
    search = searched(model, X, y, cv=KFold(5))
    found = search.predict_set(new, coverage, method)
    fine = exact(search, logisticregression__tol=1e-13, logisticregression__max_iter=1000)
    truth = by_the_book_for_classes(*refitted(fine, X, y, new, folds_of(search, X, y, method)), y, coverage)
    assert found.dtype == bool and (found >= truth).all() and (found != truth).sum() <= 2
    assert found[np.arange(len(new)), search.predict(new)].all()


def test_three_classes_have_sets():
    X, y = load_iris(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))
    names = np.array(["a", "b", "c"])[y[rows]]
    search = searched(make_pipeline(StandardScaler(), LogisticRegression()), X[rows[:90]], names[:90], cv=4)
    found = search.predict_set(X[rows[90:]], 0.9, "cv+")
    hit = found[np.arange(60), np.searchsorted(search.classes_, names[90:])]
    assert found.shape == (60, 3) and hit.mean() > 0.85 and found.sum(axis=1).mean() < 1.5
    assert "4 folds" in found.guarantee and "class" in found.guarantee


def test_sets_of_three_classes_are_those_of_the_probabilities():
    """Scores of a row, from margins, lie between the bounds that are taken of them."""
    from suffice.sklearn.intervals import _scores

    rng = np.random.default_rng(0)
    m, h = 3.0 * rng.standard_normal((40, 4)), 0.3 * rng.random(40)
    low, high = _scores(m, h)
    for _ in range(50):
        moved = m + h[:, None] * rng.uniform(-1.0, 1.0, m.shape)
        p = np.exp(moved - np.logaddexp.reduce(moved, axis=1)[:, None])
        E = np.array([[row[row > one].sum() for one in row] for row in p])
        assert (low <= E + 1e-15).all() and (high + 1e-15 >= E).all()


def test_the_guarantee_tells_the_bound_and_what_tuning_does(numbers):
    X, y, new, _ = numbers
    search = searched(make_pipeline(StandardScaler(), Ridge()), X, y)
    found = search.predict_interval(new, 0.9)
    assert found.shape == (20, 2) and "at least 80 %" in found.guarantee and "about 90 %" in found.guarantee
    assert "tuned on the same rows" in found.guarantee and found[:5].guarantee == found.guarantee
    again = search.predict_interval(new, 0.9, "cv+", tuning="repeated")
    assert "tuned anew without each fold" in again.guarantee and "at least 71.5 %" in again.guarantee


def test_too_few_rows_have_infinite_intervals(numbers):
    X, y, new, _ = numbers
    search = searched(Ridge(), X[:8], y[:8], cv=2)
    assert np.isinf(search.predict_interval(new, 0.9)).all()
    assert np.isfinite(search.predict_interval(new, 0.8)).all()
    assert np.isfinite(searched(Ridge(), X[:9], y[:9], cv=3).predict_interval(new, 0.9)).all()  # ten times 0.9 is nine


def test_rows_whose_model_is_open_count_as_infinite():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), np.arange(40) % 2
    search = searched(LogisticRegression(), X, y)
    training = search._training.conformal(search, "jackknife+", "fixed")
    training.models.error[:7] = np.inf
    found = search.predict_set(X[:5], 0.9)
    assert found.all() and "7 of which are open" in found.guarantee


def test_logarithms_of_targets_are_taken_back(numbers):
    X, y, new, _ = numbers
    model = TransformedTargetRegressor(make_pipeline(StandardScaler(), Ridge()), func=np.log, inverse_func=np.exp)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = searched(model, X, y)
    plain = searched(make_pipeline(StandardScaler(), Ridge()), X, np.log(y))
    for method in ("jackknife+", "cv+"):
        np.testing.assert_allclose(
            search.predict_interval(new, 0.9, method), np.exp(plain.predict_interval(new, 0.9, method)), rtol=1e-3
        )


def test_other_kinds_of_rows_and_models(numbers):
    X, y, new, truth = numbers
    frame, later = pd.DataFrame(X).add_prefix("x"), pd.DataFrame(new).add_prefix("x")
    found = searched(ElasticNet(), frame, y).predict_interval(later, 0.8)
    np.testing.assert_allclose(found, searched(ElasticNet(), X, y).predict_interval(new, 0.8))
    sparse = searched(Lasso(), sp.csr_array(X), y).predict_interval(sp.csr_array(new), 0.8)
    np.testing.assert_allclose(sparse, searched(Lasso(), X, y).predict_interval(new, 0.8), rtol=1e-4)
    median = searched(make_pipeline(StandardScaler(), QuantileRegressor()), X[:40], y[:40]).predict_interval(
        new, 0.8, "cv+"
    )
    assert np.mean((median[:, 0] <= truth) & (truth <= median[:, 1])) > 0.5
    offset = searched(ElasticNetGLM("gaussian", offset=0), X, y + 50.0 * X[:, 0])
    for method in ("jackknife+", "cv+"):
        low, high = offset.predict_interval(new, 0.8, method).T
        assert (low < offset.predict(new)).all() and (offset.predict(new) < high).all()


def test_files_of_searches_keep_what_was_made_by_folds(numbers):
    X, y, new, _ = numbers
    search = searched(make_pipeline(StandardScaler(), Ridge()), X, y)
    known = search.predict_interval(new, 0.9, "cv+")
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.predict_interval(new, 0.9, "cv+"), known)
    with pytest.raises(ValueError, match="comes from a file, which has not its training data"):
        again.predict_interval(new, 0.9)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"coverage": 1.0}, "coverage must lie between 0 and 1, got 1.0"),
        ({"coverage": 0.0}, "coverage must lie between 0 and 1, got 0.0"),
        ({"coverage": "0.9"}, "coverage must lie between 0 and 1, got '0.9'"),
        ({"method": "naive"}, "method must be 'jackknife\\+' or 'cv\\+', got 'naive'"),
        ({"tuning": "repeated"}, "tuning='repeated' goes with method='cv\\+'"),
        ({"X": np.full((3, 10), np.nan)}, "X has missing entries, or infinite ones, where the model needs numbers"),
        ({"X": np.full((3, 10), np.inf)}, "X has missing entries, or infinite ones, where the model needs numbers"),
        ({"X": np.full((3, 10), "a")}, "X must be numeric, got dtype <U1"),
        ({"X": np.zeros((3, 11))}, "X must have the 10 columns of the training data, got shape \\(3, 11\\)"),
    ],
)
def test_bad_input_is_named(more, message, numbers):
    X, y, new, _ = numbers
    with pytest.raises((TypeError, ValueError), match=message):
        searched(Ridge(), X, y).predict_interval(**{"X": new, **more})


def test_lists_and_no_rows_are_taken_as_predict_takes_them(numbers):
    X, y, new, _ = numbers
    search = searched(Ridge(), X, y)
    np.testing.assert_array_equal(search.predict_interval(new.tolist(), 0.8), search.predict_interval(new, 0.8))
    assert search.predict_interval(new[:0]).shape == (0, 2)


def test_new_columns_are_refused_by_name(numbers):
    X, y, new, _ = numbers
    search = searched(Ridge(), pd.DataFrame(X).add_prefix("x"), y)
    with pytest.raises(ValueError, match="unseen at fit time"):
        search.predict_interval(pd.DataFrame(new).add_prefix("z"))


def test_what_has_no_intervals_says_what_it_has(numbers):
    X, y, new, _ = numbers
    labels = searched(LogisticRegression(), X, y > y.mean())
    with pytest.raises(ValueError, match="predict_set"):
        labels.predict_interval(new)
    with pytest.raises(ValueError, match="predict_interval"):
        searched(Ridge(), X, y).predict_set(new)
    with pytest.raises(ValueError, match="needs probabilities"):
        searched(LinearSVC(), X, y > y.mean()).predict_set(new)
    with pytest.raises(ValueError, match="Cox's model predicts no time"):
        searched(ElasticNetGLM("cox"), X, np.where(np.arange(90) % 3, y, -y)).predict_interval(new)
    with pytest.raises(ValueError, match="hold out every row once"):
        searched(Ridge(), X, y, cv=TimeSeriesSplit(3)).predict_interval(new, 0.9, "cv+")


def test_of_folds_drawn_twice_the_first_drawing_is_taken_and_groups_are_told(numbers):
    X, y, new, _ = numbers
    found = searched(Ridge(), X, y, cv=RepeatedKFold(n_splits=3, n_repeats=2, random_state=0))
    assert "3 folds" in found.predict_interval(new, 0.8, "cv+").guarantee
    grouped = searched(Ridge(), X, y, cv=GroupKFold(3), groups=np.arange(90) % 6)
    assert "one group are not exchangeable" in grouped.predict_interval(new, 0.8, "cv+").guarantee


def test_folds_of_single_rows_are_the_jackknife(numbers):
    X, y, new, _ = numbers
    search = searched(make_pipeline(StandardScaler(), Ridge()), X[:40], y[:40], cv="loo")
    found = search.predict_interval(new, 0.8, "cv+")
    np.testing.assert_array_equal(found, search.predict_interval(new, 0.8))
    assert "jackknife+" in found.guarantee


def test_an_update_has_intervals_of_the_rows_of_today(numbers):
    X, y, new, _ = numbers
    search = searched(make_pipeline(StandardScaler(), Ridge()), X[:60], y[:60])
    assert "the 60 known ones" in search.predict_interval(new, 0.8).guarantee
    search.update(X[60:], y[60:])
    assert "the 90 known ones" in search.predict_interval(new, 0.8).guarantee
    assert search.coefficients().attrs["models"] == 90


def test_probabilities_are_monotone_in_margins_to_the_last_bits():
    """What the bounds of scores allow for."""
    m = np.sort(np.random.default_rng(0).standard_normal(10_000) * 5.0)
    assert (np.diff(expit(m)) >= -4.0 * np.finfo(float).eps).all()


@pytest.mark.parametrize("scaler", [{"with_std": False}, {"with_mean": False}, {}])
def test_an_offset_behind_a_scaler_is_part_of_what_models_without_a_row_say(scaler):
    rng = np.random.default_rng(0)
    X = 1.0 + 2.0 * rng.standard_normal((40, 4))
    y = X[:, 1] - X[:, 2] + 3.0 * X[:, 0] + rng.standard_normal(40)
    search = searched(make_pipeline(StandardScaler(**scaler), ElasticNetGLM(offset=0)), X, y)
    models = search._training.conformal(search, "jackknife+", "fixed").models
    own, _ = refitted(exact(search, elasticnetglm__tol=1e-12), X, y, X[:1], folds_of(search, X, y, "jackknife+"))
    assert np.isfinite(models.error).all()
    assert (np.abs(models.margin[:, 0] - own) <= models.error + 1e-9).all()
    left = suffice.leave_one_out(search, X, y)
    assert (np.abs(left.margin - own) <= left.error + 1e-9).all()
