"""Every row left out: what scikit-learn finds by n fits, proven, and for the price of a few."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.model_selection import LeaveOneGroupOut, LeaveOneOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import suffice
from suffice.sklearn import ElasticNetGLM, SufficeSearchCV
from suffice.sklearn.left_out import LeftOutTask

TIGHT = {"tol": 1e-12, "max_iter": 100_000}
EXACT_LOGISTIC = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-13, max_iter=1000)


@pytest.fixture
def numbers():
    X, y = load_diabetes(return_X_y=True, scaled=False)
    return X[:120], y[:120]


@pytest.fixture
def labels():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:120, :10], np.where(y[:120] == 1, "benign", "malignant")


def theirs(estimator, X, y, groups=None, method="predict"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cv = LeaveOneOut() if groups is None else LeaveOneGroupOut()
        found = cross_val_predict(estimator, X, y, cv=cv, groups=groups, method=method)
    return found[:, 1] if found.ndim == 2 else found


@pytest.mark.parametrize(
    "estimator",
    [
        Ridge(10.0),
        Ridge(10.0, fit_intercept=False),
        make_pipeline(StandardScaler(), Ridge(3.0)),
        make_pipeline(StandardScaler(), Lasso(1.0, **TIGHT)),
        make_pipeline(StandardScaler(), ElasticNet(0.5, **TIGHT)),
        make_pipeline(StandardScaler(with_std=False), Lasso(1.0, **TIGHT)),
    ],
    ids=str,
)
def test_predictions_of_squares_are_those_of_n_fits(estimator, numbers):
    X, y = numbers
    found = suffice.leave_one_out(estimator, X, y)
    assert found.refits == 0 and found.open == ()
    np.testing.assert_allclose(found.prediction, theirs(estimator, X, y), rtol=1e-5)
    errors = (y - theirs(estimator, X, y)) ** 2
    assert found.score == pytest.approx(-errors.mean(), rel=1e-5)
    low, high = found.score_interval
    assert low <= found.score <= high and high - low < 1e-6 * abs(low)


def test_probabilities_lie_in_their_intervals(labels):
    X, y = labels
    model = make_pipeline(StandardScaler(), EXACT_LOGISTIC)
    found = suffice.leave_one_out(model, X, y)
    p = theirs(model, X, y, method="predict_proba")
    assert np.all((found.low - 1e-9 <= p) & (p <= found.high + 1e-9)) and found.refits <= 6
    assert np.median(found.high - found.low) < 0.05
    fine = suffice.leave_one_out(model, X, y, within=1e-6)
    assert np.median(fine.high - fine.low) < 1e-6
    assert np.all((fine.low - 1e-9 <= p) & (p <= fine.high + 1e-9))


def test_counts_and_groups_of_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 4))
    y = rng.poisson(np.exp(0.5 * X[:, 0]))
    groups = np.array(list("abcdefghi"))[np.arange(90) % 9]
    model = PoissonRegressor(alpha=0.01, tol=1e-12, max_iter=1000)
    found = suffice.leave_one_out(model, X, y, groups=groups, within=1e-8)
    np.testing.assert_allclose(found.prediction, theirs(model, X, y, groups), rtol=1e-5)


def test_a_search_keeps_its_penalties(numbers):
    X, y = numbers
    search = SufficeSearchCV(make_pipeline(StandardScaler(), ElasticNet()), cv=4).fit(X, y)
    found = suffice.leave_one_out(search, X, y)
    best = (
        clone(search.estimator)
        .set_params(**search.best_params_)
        .set_params(elasticnet__tol=1e-12, elasticnet__max_iter=100_000)
    )
    np.testing.assert_allclose(found.prediction, theirs(best, X, y), rtol=1e-4)


def test_weights_of_rows_count_and_rows_without_weight_are_left_out_for_nothing(numbers):
    X, y = numbers
    weight = np.arange(120) % 3.0
    found = suffice.leave_one_out(Ridge(10.0), X, y, sample_weight=weight)
    for i in (0, 1, 50, 117):
        keep = np.arange(120) != i
        model = Ridge(10.0).fit(X[keep], y[keep], weight[keep])
        assert found.prediction[i] == pytest.approx(float(model.predict(X[i : i + 1])[0]), rel=1e-9)


def test_sparse_rows(numbers):
    X, y = numbers
    found = [suffice.leave_one_out(Lasso(1.0), one, y) for one in (X, sp.csr_array(X))]
    np.testing.assert_allclose(found[0].prediction, found[1].prediction, rtol=1e-7)


def test_other_steps_and_models_are_fitted_anew_and_say_so(numbers, labels):
    X, y = numbers
    squares = make_pipeline(PolynomialFeatures(2), StandardScaler(), Ridge(10.0))
    found = suffice.leave_one_out(squares, X[:30, :3], y[:30])
    assert found.refits == 30 and found.models is None
    np.testing.assert_allclose(found.prediction, theirs(squares, X[:30, :3], y[:30]), rtol=1e-6)
    X, y = labels
    balanced = make_pipeline(StandardScaler(), clone(EXACT_LOGISTIC).set_params(class_weight="balanced"))
    found = suffice.leave_one_out(balanced, X[:40], y[:40])
    np.testing.assert_allclose(found.prediction, theirs(balanced, X[:40], y[:40], method="predict_proba"), rtol=1e-5)


def test_rows_without_which_there_is_no_model_are_named():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 2)), np.zeros(20, dtype=int)
    y[7] = 1
    found = suffice.leave_one_out(ElasticNetGLM("binomial", l1=0.01, l2=0.01), X, y)
    assert found.open == (7,) and np.isinf(found.error[7]) and found.score_interval[0] == -np.inf
    assert "1 open" in repr(found)


def test_a_column_that_is_constant_without_a_row_is_scaled_as_scikit_learn_does_it(numbers):
    X, y = numbers
    X = np.column_stack([X[:, :3], np.arange(120) == 5])
    model = make_pipeline(StandardScaler(), Ridge(1.0))
    np.testing.assert_allclose(suffice.leave_one_out(model, X, y).prediction, theirs(model, X, y), rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"within": 0.0}, "within must be positive, got 0.0"),
        ({"scoring": "r2"}, "scoring must be one of neg_mean_squared_error, neg_root_mean_squared_error, got 'r2'"),
        ({"groups": np.zeros(120)}, "two groups at least to leave one out, got 1"),
        ({"groups": np.zeros(3)}, r"one label for each of 120 rows, got shape \(3,\)"),
        ({"groups": [None] * 120}, "groups must have a label for every row"),
        ({"y": np.where(np.arange(120) == 4, np.nan, 1.0)}, "y must be finite, row 4 is not"),
        ({"y": np.array(["a"] * 120)}, "y must be numeric, got dtype <U1"),
        ({"within": "a"}, "within must be a real number, got 'a'"),
        ({"X": np.full((120, 10), np.nan)}, "Input X contains NaN"),
        ({"X": np.zeros((0, 10)), "y": np.zeros(0)}, "X must have rows, got none"),
        ({"model": SufficeSearchCV(Ridge())}, "takes a search once it is fitted"),
        ({"y": np.zeros((120, 2))}, "y must have one entry for each of 120 rows"),
    ],
)
def test_bad_input_is_named(change, message, numbers):
    X, y = numbers
    with pytest.raises((TypeError, ValueError), match=message):
        suffice.leave_one_out(**{"model": Ridge(), "X": X, "y": y, **change})


@pytest.mark.parametrize("groups", [None, np.arange(120) // 8], ids=["rows", "groups"])
def test_a_root_is_taken_without_every_group(numbers, groups):
    X, y = numbers
    found = suffice.leave_one_out(Ridge(10.0), X, y, groups=groups, scoring="neg_root_mean_squared_error")
    errors = (y - theirs(Ridge(10.0), X, y, groups)) ** 2
    of_group = np.arange(120) if groups is None else groups
    roots = np.sqrt(np.bincount(of_group, errors) / np.bincount(of_group))
    assert found.score_interval[0] <= found.score <= found.score_interval[1]
    np.testing.assert_allclose(found.score, -roots.mean(), rtol=1e-9)


def test_the_task_knows_which_rows_go_together():
    task = LeftOutTask.of(Ridge(), np.eye(4), np.arange(4.0), groups=["b", "a", "b", "c"])
    assert task.labels == ("a", "b", "c") and task.which.tolist() == [1, 0, 1, 2]
    np.testing.assert_allclose(task.sums(np.array([1.0, 2.0, 3.0, 4.0])), [2.0, 4.0, 4.0])


def test_offsets_of_squares_are_part_of_predictions(numbers):
    X, y = numbers
    offset = np.linspace(-40.0, 40.0, 120)
    found = suffice.leave_one_out(ElasticNetGLM(l1=1.0, l2=0.1, offset=10), np.column_stack([X, offset]), y)
    plain = suffice.leave_one_out(ElasticNetGLM(l1=1.0, l2=0.1), X, y - offset)
    np.testing.assert_allclose(found.prediction, plain.prediction + offset, rtol=1e-9)
    assert found.score == pytest.approx(plain.score, rel=1e-9)


def test_many_more_columns_than_rows_have_models_in_the_coordinates_of_the_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((24, 300))
    y = (X[:, :5].sum(axis=1) + rng.standard_normal(24) > 0.0).astype(int)
    model = clone(EXACT_LOGISTIC).set_params(C=0.01, solver="newton-cg")
    found = suffice.leave_one_out(model, X, y, within=1e-6)
    assert found.refits == 0 and found.models.turn is not None and found.error.max() < 1e-6
    np.testing.assert_allclose(found.prediction, theirs(model, X, y, method="predict_proba"), atol=1e-6)
    search = SufficeSearchCV(LogisticRegression(), cv=4, space={"C": (0.005, 0.02)}).fit(X, y)
    assert search.predict_set(X[:3], 0.8).shape == (3, 2)
    with pytest.raises(TypeError, match="influence is of at most 3 columns with weights for each row"):
        suffice.influence(search)
