"""A sketch of F shows where it is least: it proves nothing, but it is near the certified F everywhere."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    lars_path,
)
from sklearn.model_selection import KFold, cross_val_score

import suffice
from suffice.sklearn import SufficeSearchCV, _quadratics, _sketch, _starting_points, penalties, splits
from suffice.sklearn._sketch import Sketch

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
        assert sketch.height((np.log10(l2),)) == pytest.approx(certified(estimator, X, y, l2=l2), rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_folds_side_by_side_have_the_weights_of_each_alone(seed, monkeypatch):
    """Collinear columns, on which semismooth Newton's method may turn in circles, and columns that are twice there."""
    X, y = data(rows=60, columns=12, seed=seed)
    X = np.hstack([X, X[:, :2], X[:, 2:5] + 1e-3 * np.random.default_rng(seed).standard_normal((60, 3))])
    stacked, _ = sketch_of(ElasticNet(), X, y, monkeypatch, options=ONE)
    monkeypatch.undo()
    monkeypatch.setattr(_quadratics, "STACKED", 0)
    alone, _ = sketch_of(ElasticNet(), X, y, monkeypatch, options=ONE)
    assert stacked.stack is not None and alone.stack is None
    common = [theta for theta in stacked.seen if theta in alone.seen]
    assert len(common) > 50
    for theta in common:
        np.testing.assert_allclose(stacked.seen[theta], alone.seen[theta], rtol=2e-3)


@pytest.mark.parametrize("estimator", [Ridge(), Lasso(), ElasticNet()])
def test_squares_are_evaluated_once_and_no_worse_than_by_further_search(estimator):
    X, y = data(rows=120, columns=10)
    once = SufficeSearchCV(estimator, cv=CV, refit=False).fit(X, y)
    further = SufficeSearchCV(estimator, cv=CV, refit=False, tolerance=1e-6).fit(X, y)
    assert len(once.cv_results_["work"]) == once.result_.evaluations == len(once.result_.history) == 1
    assert once.result_.status is suffice.Status.SUFFICES and once.result_.params is not None
    assert -once.best_score_ <= -further.best_score_ * (1.0 + 2e-4)
    low, high = once.score_interval_
    assert low <= once.best_score_ <= high and high - low <= 2e-4 * -once.best_score_


@pytest.mark.parametrize("large", [False, True])
def test_with_an_l1_it_is_near_f_wherever_it_was_seen(large, monkeypatch):
    """Whether folds are copies, or views of one copy of the rows."""
    if large:
        monkeypatch.setattr(splits, "LARGE", 0)
    X, y = data()
    sketch, _ = sketch_of(ElasticNet(), X, y, monkeypatch, scoring="neg_mean_squared_error")
    for theta in list(sketch.weights)[::20]:
        F = certified(ElasticNet(), X, y, **sketch.space.params(np.array(theta)))
        assert sketch.height(theta) == pytest.approx(F, rel=1e-3)


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


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ["neg_log_loss", "neg_mean_poisson_deviance"])
def test_of_many_rows_quadratics_near_known_weights_show_f(intercept, loss, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6000, 12)) + 0.1
    m = X @ np.repeat([0.4, 0.0], 6)
    y = rng.random(6000) < 1.0 / (1.0 + np.exp(-m)) if loss == "neg_log_loss" else rng.poisson(np.exp(0.5 * m))
    model = LogisticRegression(l1_ratio=0.5, solver="saga") if loss == "neg_log_loss" else PoissonRegressor()
    model.set_params(fit_intercept=intercept)
    sketch, search = sketch_of(model, X, y.astype(int), monkeypatch, scoring=loss)
    assert isinstance(sketch.folds[0], _sketch.QuadraticFold)
    names = sketch.space.names
    for shift in (0.0, -1.0, -3.0):
        theta = np.clip(np.array(sketch.lowest) + shift, *sketch.space.bounds)
        there = SufficeSearchCV(
            model, dict.fromkeys(names, (1e-13, 1e6)), cv=CV, refit=False, tolerance=1e-7, scoring=loss,
            initial=sketch.space.params(theta), options=ONE,
        ).fit(X, y.astype(int))  # fmt: skip
        assert sketch.height(tuple(theta)) == pytest.approx(-there.best_score_, rel=1e-3)
    assert len(search.cv_results_["params"]) <= 8


def test_a_line_ends_where_smaller_penalties_change_nothing(monkeypatch):
    X, y = data(rows=400)
    found = []
    for alike in (_sketch.ALIKE, -1.0):
        monkeypatch.setattr(_sketch, "ALIKE", alike)
        found.append(sketch_of(ElasticNet(), X, y, monkeypatch)[0])
    short, whole = found
    assert len(short.seen) < 0.9 * len(whole.seen)
    assert short.height(short.lowest) <= whole.height(whole.lowest) * (1.0 + 1e-4)


def test_sample_weights_count(monkeypatch):
    X, y = data()
    weight = np.random.default_rng(0).uniform(0.0, 2.0, len(y))
    weight[::7] = 0.0
    given = {"scoring": "neg_mean_squared_error", "fit": {"sample_weight": weight}}
    sketch, search = sketch_of(Ridge(), X, y, monkeypatch, **given)
    l2 = search.best_penalties_["l2"]
    assert sketch.height((np.log10(l2),)) == pytest.approx(-search.best_score_, rel=1e-6)


@pytest.mark.parametrize(
    ("estimator", "X_of"),
    [
        (LogisticRegression(solver="liblinear", l1_ratio=1.0), lambda X: X[:, :2]),
        (ElasticNet(positive=True), lambda X: X),
    ],
)
def test_there_is_none_where_it_would_not_be_of_the_same_problem(estimator, X_of, monkeypatch):
    X, y = data()
    y = (y > y.mean()).astype(int) if isinstance(estimator, LogisticRegression) else y
    sketch, search = sketch_of(estimator, X_of(X), y, monkeypatch)
    assert sketch is None and search.result_.success


NARROW = [
    (Lasso(), {"l1": (1e-5, 1e-4)}),
    (Lasso(), {"l1": (1e3, 1e4)}),
    (Ridge(), {"l2": (1e-5, 1.1e-5)}),
    (ElasticNet(), {"l1": (1e-5, 1e-4), "l2": (1e3, 1e4)}),
    (ElasticNet(), {"l1": (0.3, 1e3), "l2": (1e-6, 1e2)}),
    (ElasticNet(l1_ratio=0.3), {"l2": (1e-5, 1e-4)}),
    (LogisticRegression(l1_ratio=0.5, solver="saga"), {"l1": (1e-5, 1e-4), "l2": (1.0, 2.0)}),
]


@pytest.mark.parametrize(("estimator", "space"), NARROW)
def test_any_space_is_sketched_however_narrow(estimator, space, monkeypatch):
    X, y = data()
    y = (y > y.mean()).astype(int) if isinstance(estimator, LogisticRegression) else y
    sketch, search = sketch_of(estimator, X, y, monkeypatch, space=space)
    assert search.result_.success
    for theta in sketch.seen:
        values = sketch.space.params(np.array(theta))
        assert all(low * (1 - 1e-12) <= values[name] <= high * (1 + 1e-12) for name, (low, high) in space.items())


def test_sparse_rows_that_stay_sparse_are_not_sketched(monkeypatch):
    from suffice.sklearn import folds

    monkeypatch.setattr(folds, "SMALL", 0)
    X, y = data()
    sketch, search = sketch_of(ElasticNet(), sp.csr_array(X), y, monkeypatch)
    assert sketch is None and search.result_.success


@pytest.mark.parametrize("estimator", [Lasso(), ElasticNet()])
def test_rows_that_are_fewer_than_columns_are_sketched_as_well(estimator, monkeypatch):
    X, y = data(rows=40, columns=700)
    sketch, search = sketch_of(estimator, X, y, monkeypatch, scoring="neg_mean_squared_error")
    assert (search.cv_results_["purpose"] == "overview").sum() <= 3
    for theta in sorted(sketch.exact, key=sketch.height)[:4]:
        F = certified(estimator, X, y, **sketch.space.params(np.array(theta)))
        assert sketch.height(theta) == pytest.approx(F, rel=1e-3)


def spectra(seed, rows=150, columns=120):
    """Sums of bumps, collinear but for a little noise."""
    rng = np.random.default_rng(seed)
    places, width = np.linspace(0.0, 1.0, columns), (0.08, 0.15, 0.25)[seed % 3]
    bumps = np.exp(-0.5 * ((places - rng.uniform(0.0, 1.0, (8, 1))) / width) ** 2)
    scores = rng.gamma(2.0, 1.0, (rows, 8))
    Z = scores @ bumps + 2e-3 * rng.standard_normal((rows, columns))
    return (Z - Z.mean(axis=0)) / Z.std(axis=0), 3.0 * scores[:, 0] + 0.2 * rng.standard_normal(rows)


@pytest.mark.parametrize("seed", range(6))
def test_a_lasso_of_collinear_columns_ends_at_the_best_of_a_path(seed):
    """Beside scikit-learn's exact homotopy, fold by fold."""
    X, y = spectra(seed)
    search = SufficeSearchCV(Lasso(), cv=CV, refit=False).fit(X, y)
    alphas, losses = np.logspace(0.0, -6.0, 121), np.zeros(121)
    for train, test in CV.split(X):
        mean, level = X[train].mean(axis=0), y[train].mean()
        ends, _, paths = lars_path(X[train] - mean, y[train] - level, method="lasso")
        paths = np.array([np.interp(alphas, ends[::-1], one[::-1]) for one in paths])
        losses += np.mean((y[test][:, None] - level - (X[test] - mean) @ paths) ** 2, axis=0) / CV.get_n_splits()
    assert -search.best_score_ <= 1.005 * losses.min()
    assert search.score_interval_[0] <= search.best_score_ <= search.score_interval_[1]


def test_levels_of_which_all_are_kept_are_tuned_with_the_smallest_ridge_that_is_proven():
    """Columns of one category add up to one: without an l2 the Lasso has many solutions, and none is verified."""
    rng = np.random.default_rng(0)
    numbers = [rng.integers(0, levels, 300) for levels in (4, 6, 10)]
    X = np.hstack([np.eye(one.max() + 1)[one] for one in numbers])
    y = X @ rng.standard_normal(X.shape[1]) + 0.3 * rng.standard_normal(300)
    search = SufficeSearchCV(Lasso(), cv=CV).fit(X, y)
    low, high = search.score_interval_
    assert search.result_.success and high - low <= 1e-3 * -search.best_score_ and search.coef_radius_ < 0.1
    assert 0.0 < search.l2_floor_ < 1e-6 and search.best_penalties_["l2"] == 0.0
    assert -search.best_score_ <= 1.005 * -max(
        cross_val_score(Lasso(alpha, tol=1e-9, max_iter=100_000), X, y, cv=CV, scoring="neg_mean_squared_error").mean()
        for alpha in np.logspace(-4.0, 0.0, 17)
    )


@pytest.mark.parametrize("estimator", [Ridge(), Lasso(), ElasticNet()])
@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_ranges_that_nobody_gave_go_with_the_data(estimator, scale):
    """Another unit of X is another unit of penalties, and changes nothing else."""
    X, y = spectra(1, rows=60, columns=20)
    plain, scaled = (SufficeSearchCV(estimator, cv=CV, refit=False).fit(Z, y) for Z in (X, scale * X))
    assert scaled.best_score_ == pytest.approx(plain.best_score_, rel=2e-3)
    for name, power in (("l1", 1), ("l2", 2)):
        if name in plain.result_.space.names:
            ends = plain.result_.space.ranges[name]
            assert scaled.result_.space.ranges[name] == pytest.approx(tuple(end * scale**power for end in ends))


def labels(rows=400, columns=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns)) + 0.5
    return X, (X[:, 0] - X[:, 1] + rng.logistic(size=rows) > 0.7).astype(int)


ELASTIC = LogisticRegression(l1_ratio=0.5, solver="saga")


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_log_loss_is_sketched_exactly(intercept, seed, monkeypatch):
    X, y = labels(seed=seed)
    estimator = clone(ELASTIC).set_params(fit_intercept=intercept)
    sketch, search = sketch_of(estimator, X, y, monkeypatch)
    purposes = search.cv_results_["purpose"]
    assert sketch is not None and (purposes == "overview").sum() <= 3
    monkeypatch.setattr(_starting_points, "sketches", lambda *_: None)
    looked = SufficeSearchCV(estimator, cv=CV, refit=False).fit(X, y)
    assert -search.best_score_ <= -1.0005 * looked.best_score_
    assert len(purposes) < len(looked.cv_results_["purpose"])


def test_a_log_loss_of_many_rows_is_looked_at(monkeypatch):
    monkeypatch.setattr(_sketch, "SMALL", 0)
    sketch, search = sketch_of(ELASTIC, *labels(), monkeypatch)
    assert sketch is None and search.result_.success


def test_squares_on_a_device_are_sketched(monkeypatch):
    torch = pytest.importorskip("torch")
    X, y = data()
    there, _ = sketch_of(ElasticNet(), torch.asarray(X), y, monkeypatch, options=ONE, device="cpu")
    monkeypatch.undo()
    here, _ = sketch_of(ElasticNet(), X, y, monkeypatch, options=ONE)
    assert there.height(there.lowest) == pytest.approx(here.height(here.lowest), rel=1e-6)


def test_counts_are_sketched_as_well(monkeypatch):
    X, _ = labels()
    y = np.random.default_rng(0).poisson(np.exp(0.3 * X[:, 0]))
    sketch, search = sketch_of(PoissonRegressor(), X, y, monkeypatch)
    assert search.result_.success and sketch is not None


def test_a_sketch_that_f_is_far_from_is_given_up(monkeypatch):
    for like in ("AGREED", "TRIFLE"):
        monkeypatch.setattr(_starting_points, like, -1.0)
    sketch, search = sketch_of(ELASTIC, *labels(), monkeypatch)
    looks = search.cv_results_["purpose"] == "overview"
    assert sketch is not None and looks.sum() > 8 and search.result_.success


def test_counts_whose_psi_is_negative_are_sketched():
    """exp(m) - y m < 0 for all rates beyond e."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    y = rng.poisson(np.exp(3.0 + 0.3 * X[:, 0])).astype(float)
    search = SufficeSearchCV(PoissonRegressor(), {"l2": (1e-4, 1e2)}, cv=3).fit(X, y)
    assert search.score_interval_[0] <= search.best_score_ <= search.score_interval_[1] + 1e-9


def test_a_ridge_that_stands_in_for_none_is_the_same_with_a_journal(tmp_path):
    rng = np.random.default_rng(0)
    number = rng.integers(0, 6, 120)
    X = np.eye(6)[number]
    y = X @ rng.standard_normal(6) + 0.3 * rng.standard_normal(120)
    plain = SufficeSearchCV(Lasso(), cv=CV).fit(X, y)
    first, again = (SufficeSearchCV(Lasso(), cv=CV, journal=tmp_path).fit(X, y) for _ in range(2))
    assert plain.l2_floor_ > 0.0
    for other in (first, again):
        assert other.l2_floor_ == plain.l2_floor_ and other.score_interval_ == plain.score_interval_


@pytest.mark.parametrize(("ends", "way"), [((1.0, 1e2), "smaller"), ((1e-5, 1e-3), "larger")])
def test_a_range_of_ours_that_is_too_narrow_is_told(ends, way, monkeypatch):
    """Models that are not sketched have narrower ranges."""
    X, y = data(rows=80, columns=5)
    monkeypatch.setattr(penalties, "NARROWER", {"l1": (1e-6, 1.1), "l2": ends})
    with pytest.warns(UserWarning, match=f"the best l2 lies on the .* edge of its space, .* one that is {way}"):
        SufficeSearchCV(LogisticRegression(), cv=CV, refit=False).fit(X, np.digitize(y, np.quantile(y, [0.3, 0.7])))
