"""First looks see the edges of the space, and a search finds the best penalties there."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_regression
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import suffice
from suffice.sklearn import SufficeSearchCV, _starting_points
from suffice.sklearn._sketch import TURNED
from suffice.sklearn._starting_points import APART, Lattice, levels_of

ONE = suffice.Options(max_evaluations=1)
WIDE = {"l1": (1e-6, 1e2), "l2": (1e-6, 1e2)}


def loss(search):
    return -search.score_interval_[0]


def loss_at(estimator, X, y, cv, space, **penalties):
    """F there, whatever a search would do."""
    there = SufficeSearchCV(estimator, space, cv=cv, refit=False, initial=penalties, options=ONE).fit(X, y)
    return -there.score_interval_[1]


def test_the_least_l1_is_the_best_for_images_of_3_and_8():
    X, y = load_digits(return_X_y=True)
    rows = np.flatnonzero((y == 3) | (y == 8))[:250]
    X, y = X[rows], y[rows]
    X, cv = StandardScaler().fit_transform(X[:, X.std(axis=0) > 0]), StratifiedKFold(5, shuffle=True, random_state=0)
    estimator = LogisticRegression(l1_ratio=0.5, solver="saga")
    search = SufficeSearchCV(estimator, WIDE, cv=cv, refit=False).fit(X, y)
    assert loss(search) <= 1.005 * loss_at(estimator, X, y, cv, WIDE, l1=1e-6, l2=10**-3.1)
    assert search.best_penalties_["l1"] <= 1e-5


def noisy(seed=0, columns=8):
    X, y = make_regression(80, columns, n_informative=4, noise=60.0, random_state=seed)
    return StandardScaler().fit_transform(X), (y - y.mean()) / y.std()


CV = KFold(4, shuffle=True, random_state=0)


@pytest.mark.parametrize("l1", [(1e-6, 1e-3), (0.3, 1e3)])
@pytest.mark.parametrize("l2", [(1e-6, 1e-3), (1.0, 1e4)])
@pytest.mark.slow
def test_a_space_beside_the_best_penalties_has_its_best_in_a_corner_and_the_search_finds_it(l1, l2):
    """Noisy data are best with moderate penalties: where a space has none, it is best to be as near as can be."""
    X, y = noisy(0, 40)
    space = {"l1": l1, "l2": l2}
    corners = [loss_at(ElasticNet(), X, y, CV, space, l1=a, l2=b) for a in l1 for b in l2]
    assert max(corners) > 1.01 * min(corners)
    search = SufficeSearchCV(ElasticNet(), space, cv=CV, refit=False).fit(X, y)
    assert loss(search) <= 1.001 * min(corners)


def test_without_noise_the_corner_of_the_least_penalties_is_found():
    X, y = make_regression(100, 10, random_state=1)
    search = SufficeSearchCV(ElasticNet(), WIDE, cv=CV, refit=False).fit(X, y / y.std())
    assert search.best_penalties_ == {"l1": 1e-6, "l2": 1e-6}


def test_without_a_signal_no_model_is_better_than_the_plainest():
    X, y = np.random.default_rng(3).normal(size=(60, 30)), np.random.default_rng(4).normal(size=60)
    search = SufficeSearchCV(ElasticNet(), WIDE, cv=CV, refit=False).fit(X, y)
    assert loss(search) <= 1.0001 * loss_at(ElasticNet(), X, y, CV, WIDE, l1=1e2, l2=1e2)


CASES = {
    "two penalties": (ElasticNet(), WIDE, None),
    "far edges": (ElasticNet(), {"l1": (1e-12, 1e6), "l2": (1e-12, 1e6)}, None),
    "l1 alone": (Lasso(), {"l1": (1e-6, 1e2)}, None),
    "l2 alone": (Ridge(), {"l2": (1e-6, 1e2)}, None),
    "above all that matters": (ElasticNet(), {"l1": (1e3, 1e4), "l2": (1e3, 1e4)}, None),
    "below all that matters": (ElasticNet(), {"l1": (1e-9, 1e-7), "l2": (1e-9, 1e-7)}, None),
    "a narrow space": (ElasticNet(), {"l1": (0.01, 0.02), "l2": (0.01, 0.02)}, None),
    "twenty groups": (ElasticNet(), {f"l{1 + k % 2}_g{k}": (1e-6, 1e2) for k in range(20)}, 20),
}


@pytest.fixture
def unsketched(monkeypatch):
    """Looks only."""
    monkeypatch.setattr(_starting_points, "sketches", lambda *_: None)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.usefixtures("unsketched")
def test_first_looks_see_every_edge(case, seed):
    """A look lies on the lower edge of every penalty, or F was seen to rise on the way there (a little is enough for
    one penalty alone, whose derivative tells the rest); and one at the upper edge, or where all weights are zero."""
    estimator, space, groups = CASES[case]
    X, y = noisy(seed, groups or 8)
    named = None if groups is None else {f"g{k}": [k] for k in range(groups)}
    search = SufficeSearchCV(estimator, space, cv=CV, refit=False, options=ONE, groups_of_features=named).fit(X, y)
    results = search.cv_results_
    looks = results["purpose"] == "overview"
    assert 2 <= looks.sum() <= (40 if case == "far edges" else 30)
    losses = -results["mean_test_score"][looks]
    no_model = np.mean([np.mean((y[test] - y[train].mean()) ** 2) for train, test in CV.split(X)])
    plainest = math.isclose(losses[0], no_model, rel_tol=0.02)
    for name, (lower, upper) in space.items():
        values = results[f"penalty_{name}"][looks]
        rise = TURNED if len(space) > 1 else 1.0
        risen = losses[values < values[np.argmin(losses)]].max(initial=0.0) > rise * losses.min()
        assert np.isclose(values, lower).any() or risen
        assert np.isclose(values, upper).any() or plainest


@pytest.mark.parametrize("most", [7, 11])
def test_levels_go_from_edge_to_edge_in_even_steps(most):
    rng = np.random.default_rng(5)
    for _ in range(200):
        low, high = np.sort(rng.uniform(-12, 6, 2))
        levels = levels_of(high, low, most)
        steps = -np.diff(levels)
        assert levels[-1] == low and levels[0] == high and len(levels) <= most
        assert (steps > 0).all() and np.ptp(steps) < 1e-9
        assert steps[0] <= APART or len(levels) == most
    assert levels_of(1.0, 1.0, most) == [1.0]


def test_looks_do_not_cost_more_than_a_hundred_steps_a_model():
    """Forty rows and sixty columns: the smallest penalties take thousands of steps."""
    X, y = make_regression(40, 60, noise=1.0, random_state=0)
    space = {"l1": (1e-7, 1e2), "l2": (1e-7, 1e2)}
    search = SufficeSearchCV(ElasticNet(), space, cv=CV, refit=False, options=ONE).fit(X, y / y.std())
    looks = search.cv_results_["purpose"] == "overview"
    assert search.cv_results_["work"][looks].max() <= 4 * 100 + 4


def test_where_all_looks_are_alike_the_first_is_where_the_search_begins():
    """All weights are zero beyond the largest useful l1, and a level below it they may still be."""
    seen = SimpleNamespace(space=SimpleNamespace(bounds=(np.full(2, -9.0), np.full(2, 9.0))))
    lattice = Lattice(seen, [[0.0, -1.0, -2.0], [0.0, -1.0]], np.array([0, 1]))
    lattice.heights = {(0.0, 0.0): 1.0, (-1.0, 0.0): 1.0, (0.0, -1.0): 1.0, (-2.0, -1.0): 1.0}
    np.testing.assert_array_equal(lattice.descended(), [0.0, 0.0])
    X = np.random.default_rng(0).normal(size=(60, 5))
    y = np.where(np.arange(60) == 0, 1.0, 0.0)  # nothing but one row has a signal, and only folds that train with it
    search = SufficeSearchCV(ElasticNet(), WIDE, cv=CV, refit=False).fit(X, y)
    assert loss(search) <= 1.0001 * loss_at(ElasticNet(), X, y, CV, WIDE, l1=1e2, l2=1e2)


@pytest.mark.usefixtures("unsketched")
def test_a_line_ends_where_the_loss_has_turned():
    """With noise and as many columns as rows F rises steeply below the best l2, and there is no look far down."""
    X, y = noisy(0, 60)
    search = SufficeSearchCV(Ridge(), {"l2": (1e-9, 1e2)}, cv=CV, refit=False, options=ONE).fit(X, y)
    looks = search.cv_results_["penalty_l2"][search.cv_results_["purpose"] == "overview"]
    assert looks.min() > 1e-6


def test_many_rows_are_sketched_where_a_fold_lacks_a_level():
    """Then its models have a column less than those of other folds."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (14_000, 2))
    X[0, 0] = 9
    y = rng.poisson(np.exp(0.2 * X[:, 1]))
    pipeline = make_pipeline(OneHotEncoder(handle_unknown="ignore", sparse_output=False), PoissonRegressor())
    search = SufficeSearchCV(pipeline, cv=3, refit=False).fit(X, y)
    assert len({one.x.size for one in search._fold_weights.solutions}) == 2
    assert search.result_.success
