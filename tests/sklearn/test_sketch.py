"""A sketch of F shows where it is least: it proves nothing, but it is near the certified F everywhere."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.model_selection import KFold

import suffice
from suffice.sklearn import SufficeSearchCV, _penalty_search, _sketch, _starting_points, splits
from suffice.sklearn._sketch import FEW, Sketch

CV = KFold(4, shuffle=True, random_state=0)
ONE = suffice.Options(max_evaluations=1)


def data(rows=60, columns=8, seed=0):
    X, y = make_regression(rows, columns, n_informative=max(columns // 3, 1), noise=20.0, random_state=seed)
    return X @ np.diag(np.linspace(0.5, 2.0, columns)) + 0.3, y / y.std() + 3.0


def sketch_of(estimator, X, y, monkeypatch, fit=None, **arguments):
    """The sketch that a search makes, or None, and the search."""
    made, of = [], Sketch.of
    monkeypatch.setattr(_starting_points.Sketch, "of", lambda *given: made.append(of(*given)) or made[-1])
    search = SufficeSearchCV(estimator, cv=CV, refit=False, **arguments).fit(X, y, **(fit or {}))
    return (made[-1] if made else None), search


def certified(estimator, X, y, **penalties):
    search = SufficeSearchCV(
        estimator, dict.fromkeys(penalties, (1e-13, 1e6)), cv=CV, refit=False, tolerance=1e-7, initial=penalties,
        options=ONE, scoring="neg_mean_squared_error",
    )  # fmt: skip
    return -search.fit(X, y).best_score_


@pytest.mark.parametrize("columns", [8, 150])
@pytest.mark.parametrize("intercept", [True, False])
def test_without_an_l1_it_is_f_itself_for_every_l2(columns, intercept, monkeypatch):
    X, y = data(columns=columns)
    estimator = Ridge(fit_intercept=intercept)
    sketch, _ = sketch_of(estimator, X, y, monkeypatch, scoring="neg_mean_squared_error")
    for l2 in (1e-3, 0.1, 10.0):
        assert sketch.without_l1(np.array([l2])).sum() == pytest.approx(certified(estimator, X, y, l2=l2), rel=1e-6)


@pytest.mark.parametrize("large", [False, True])
def test_with_an_l1_it_is_near_f_wherever_it_was_seen(large, monkeypatch):
    """Whether folds are copies, or views of one copy of the rows."""
    if large:
        monkeypatch.setattr(splits, "LARGE", 0)
    X, y = data()
    sketch, _ = sketch_of(ElasticNet(), X, y, monkeypatch, scoring="neg_mean_squared_error")
    for theta in list(sketch.weights)[::20]:
        F = certified(ElasticNet(), X, y, **sketch.space.params(np.array(theta)))
        assert sketch.height(theta) == pytest.approx(F, rel=0.01)


@pytest.mark.parametrize("estimator", [ElasticNet(), Ridge(), Lasso(), ElasticNet(l1_ratio=0.3)])
@pytest.mark.parametrize("seed", range(2))
def test_a_search_begins_near_the_best_of_a_grid(estimator, seed, monkeypatch):
    X, y = data(columns=(5, 30)[seed], seed=seed)
    space = {"l2": (1e-6, 1e2)} if getattr(estimator, "l1_ratio", 0.5) == 0.3 else None
    sketch, search = sketch_of(estimator, X, y, monkeypatch, space=space, scoring="neg_mean_squared_error")
    l1, l2 = search.best_penalties_["l1"], search.best_penalties_["l2"]
    ratio = None if l1 == 0.0 or isinstance(estimator, Lasso) else l1 / l2
    grid = []
    for level in np.logspace(-3, 1, 5):
        both = {"l1": level, "l2": 1e-6}
        both = {"l2": level} if isinstance(estimator, Ridge) else both
        both = {"l1": level} if isinstance(estimator, Lasso) else both
        both = {"l1": ratio * level, "l2": level} if space else both
        grid.append(certified(ElasticNet() if len(both) == 2 else estimator, X, y, **both))
    assert -search.best_score_ <= 1.002 * min(grid)
    assert min(map(sketch.height, sketch.seen)) <= 1.01 * -search.best_score_


def test_sample_weights_count(monkeypatch):
    X, y = data()
    weight = np.random.default_rng(0).uniform(0.0, 2.0, len(y))
    weight[::7] = 0.0
    given = {"scoring": "neg_mean_squared_error", "fit": {"sample_weight": weight}}
    sketch, search = sketch_of(Ridge(), X, y, monkeypatch, **given)
    l2 = search.best_penalties_["l2"]
    assert sketch.without_l1(np.array([l2])).sum() == pytest.approx(-search.best_score_, rel=1e-6)


def wide(X):
    return np.hstack([X, np.random.default_rng(0).standard_normal((len(X), FEW))])


NARROW = {"l1": (0.3, 1e3), "l2": (1e-6, 1e2)}


@pytest.mark.parametrize(
    ("estimator", "X_of", "space"),
    [
        (LogisticRegression(), wide, None),
        (LogisticRegression(solver="liblinear", l1_ratio=1.0), lambda X: X[:, :2], None),
        (ElasticNet(positive=True), lambda X: X, None),
        (ElasticNet(), lambda X: X, NARROW),
        (ElasticNet(), lambda X: X, {"l1": (1e-6, 1e2), "l2": (1.0, 1e2)}),
        (Lasso(), wide, None),
    ],
)
def test_there_is_none_where_it_would_not_be_of_the_same_problem_or_not_cheap(estimator, X_of, space, monkeypatch):
    X, y = data()
    y = (y > y.mean()).astype(int) if isinstance(estimator, LogisticRegression) else y
    sketch, search = sketch_of(estimator, X_of(X), y, monkeypatch, space=space)
    assert sketch is None and search.result_.success


def test_sparse_rows_that_stay_sparse_are_not_sketched(monkeypatch):
    from suffice.sklearn import folds

    monkeypatch.setattr(folds, "SMALL", 0)
    X, y = data()
    sketch, search = sketch_of(ElasticNet(), sp.csr_array(X), y, monkeypatch)
    assert sketch is None and search.result_.success


def test_wide_rows_are_sketched_without_an_l1_and_looked_at_with_one(monkeypatch):
    X, y = data(rows=40, columns=FEW + 1)
    sketch, search = sketch_of(ElasticNet(), X, y, monkeypatch)
    assert not sketch.complete and not sketch.weights
    looks = [purpose == "first look" for purpose in search.cv_results_["purpose"]]
    assert sum(looks) >= 4


def labels(rows=400, columns=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns)) + 0.5
    return X, (X[:, 0] - X[:, 1] + rng.logistic(size=rows) > 0.7).astype(int)


ELASTIC = LogisticRegression(l1_ratio=0.5, solver="saga")


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_log_loss_is_sketched_near_weights_and_its_best_is_a_good_start(intercept, seed, monkeypatch):
    X, y = labels(seed=seed)
    estimator = clone(ELASTIC).set_params(fit_intercept=intercept)
    sketch, search = sketch_of(estimator, X, y, monkeypatch)
    purposes = search.cv_results_["purpose"]
    assert sketch is not None and (purposes == "first look").sum() <= 5
    monkeypatch.setattr(_penalty_search, "sketches", lambda *_: None)
    looked = SufficeSearchCV(estimator, cv=CV, refit=False).fit(X, y)
    assert -search.best_score_ <= -1.0005 * looked.best_score_
    assert len(purposes) < len(looked.cv_results_["purpose"])


def test_rows_on_a_device_are_sketched_with_the_same_bits_by_any_number_of_threads(monkeypatch):
    torch = pytest.importorskip("torch")
    X, y = labels()
    seen = []
    for threads in (1, 4):
        monkeypatch.setattr(_sketch, "cpu_count", lambda threads=threads: threads)
        sketch, _ = sketch_of(ELASTIC, torch.asarray(X), y, monkeypatch, options=ONE)
        seen.append(sketch.seen)
    assert seen[0].keys() == seen[1].keys() and len(seen[0]) > 50
    assert all(np.array_equal(part, seen[1][theta]) for theta, part in seen[0].items())


def test_counts_are_sketched_as_well(monkeypatch):
    X, _ = labels()
    y = np.random.default_rng(0).poisson(np.exp(0.3 * X[:, 0]))
    sketch, search = sketch_of(PoissonRegressor(), X, y, monkeypatch)
    assert search.result_.success and (sketch is None or sketch.complete)


def test_a_sketch_that_f_is_far_from_is_given_up(monkeypatch):
    X, y = labels()
    monkeypatch.setattr(_starting_points, "TRUSTED_SE", -1e9)
    sketch, search = sketch_of(ELASTIC, X, y, monkeypatch)
    looks = search.cv_results_["purpose"] == "first look"
    assert sketch is not None and looks.sum() > 8 and search.result_.success


def test_counts_whose_psi_is_negative_are_sketched():
    """exp(m) - y m < 0 for all rates beyond e."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    y = rng.poisson(np.exp(3.0 + 0.3 * X[:, 0])).astype(float)
    search = SufficeSearchCV(PoissonRegressor(), {"l2": (1e-4, 1e2)}, cv=3).fit(X, y)
    assert search.score_interval_[0] <= search.best_score_ <= search.score_interval_[1] + 1e-9
