"""Several targets at a time: minimisers enclosed, losses, the estimators of scikit-learn, and what they refuse."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    MultiTaskElasticNet,
    MultiTaskElasticNetCV,
    MultiTaskLasso,
    QuantileRegressor,
    Ridge,
)
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import suffice
from suffice import losses, problems, terms
from suffice.models.targets import Targets
from suffice.rows.blocks import RowBlocks
from suffice.rows.design import Design
from suffice.sklearn import SufficeSearchCV
from suffice.solvers.solver import iterate
from suffice.testing import check_loss, check_problem
from tests.reference import LONG

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 5)) * [1.0, 3.0, 0.2, 1.0, 1.0]
Y = X[:, :2] @ RNG.standard_normal((2, 3)) + 0.5 * RNG.standard_normal((40, 3))


def test_conformance():
    for problem in (
        problems.MultiTaskElasticNet(X, Y).at(l1=0.1, l2=0.01),
        problems.MultiTaskElasticNet(X, Y).at(l1=0.1, l2=0.0),
    ):
        check_problem(problem)
    check_loss(
        losses.SquaredErrors(X, Y, sample_weight=RNG.uniform(0, 2, 40), scales=[1.0, 0.2, 3.0]), RNG.standard_normal(15)
    )


def test_conformance_in_blocks_of_rows():
    rows = RowBlocks.of(X, block=7)
    for problem in (
        problems.MultiTaskElasticNet(rows, Y).at(l1=0.1, l2=0.01),
        problems.MultiTaskElasticNet(rows, Y, sample_weight=RNG.uniform(0, 2, 40)).at(l1=0.1, l2=0.0),
    ):
        check_problem(problem)
    check_loss(
        losses.SquaredErrors(rows, Y, sample_weight=RNG.uniform(0, 2, 40), scales=[1.0, 0.2, 3.0]),
        RNG.standard_normal(15),
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_gradient_of_blocks_lies_within_its_proven_rounding(seed):
    rng = np.random.default_rng(seed)
    A, B = rng.standard_normal((60, 4)) * 10.0 ** rng.uniform(-2, 2, 4), rng.standard_normal((60, 2))
    a = rng.random(60) * (rng.random(60) < 0.7) + (np.arange(60) == 0)
    model = Targets(Design.of(RowBlocks.of(A, block=9), a), B, 0.1, 2)
    w = rng.standard_normal(8) * 10.0 ** rng.uniform(-1, 2)
    exact_a, W = (model.design.X.gathered(model.design.weights)).astype(LONG), w.reshape(2, -1).astype(LONG)
    exact = (((exact_a[:, None] * (A.astype(LONG) @ W.T - B)).T @ A.astype(LONG)) + LONG(0.1) * W).ravel()
    image = model.image(w)
    error = float(np.linalg.norm((model.gradient_at(w, image) - exact).astype(float)))
    assert error <= model.gradient_rounding(w, image)


@pytest.mark.parametrize("k", [0, 1])
def test_losses_of_a_fold_of_blocks_are_those_of_its_rows(k):
    (train, held) = terms.row_folds(RowBlocks.of(X, block=7), 2, interleaved=True)[k]
    inside, w = held.here(held.weights) > 0.0, RNG.standard_normal(15)
    found, truth = losses.SquaredErrors(held, Y).at(w), losses.SquaredErrors(X[inside], Y[inside]).at(w)
    assert found.residual == pytest.approx(truth.residual, rel=1e-12)
    assert found.error(1e-2) == pytest.approx(truth.error(1e-2), rel=1e-6)
    V, u, t = RNG.standard_normal((15, 2)), RNG.standard_normal(len(found.residuals)), 1e-6
    ends = [losses.SquaredErrors(held, Y).at(w + s * t * V[:, 0]).residuals for s in (1.0, -1.0)]
    assert found.linear.forward(V)[:, 0] == pytest.approx((ends[0] - ends[1]) / (2.0 * t), rel=1e-5, abs=1e-6)
    assert found.linear.adjoint(u) @ V == pytest.approx(u @ found.linear.forward(V), rel=1e-9)
    solved = suffice.solve(problems.MultiTaskElasticNet(train, Y).at(l1=0.1, l2=0.1), within=1e-8)
    whole = suffice.solve(problems.MultiTaskElasticNet(X[~inside], Y[~inside]).at(l1=0.1, l2=0.1), within=1e-8)
    assert np.linalg.norm(solved.x - whole.x) <= 2e-8


def test_solutions_are_scikit_learns():
    given = {"alpha": 0.2, "fit_intercept": False, "tol": 1e-14, "max_iter": 100_000}
    for l1_ratio in (0.5, 1.0):
        l1, l2 = 0.2 * l1_ratio, 0.2 * (1 - l1_ratio)
        found = suffice.solve(problems.MultiTaskElasticNet(X, Y).at(l1=l1, l2=l2), within=1e-9)
        theirs = MultiTaskElasticNet(l1_ratio=l1_ratio, **given).fit(X, Y)
        assert found.reached and np.allclose(found.x.reshape(3, 5), theirs.coef_, atol=1e-7)
        each = suffice.solve(problems.MultiTaskElasticNet(X, Y, by_rows=False).at(l1=l1, l2=l2), within=1e-9)
        assert np.allclose(each.x.reshape(3, 5), ElasticNet(l1_ratio=l1_ratio, **given).fit(X, Y).coef_, atol=1e-7)
    ridge = suffice.solve(problems.MultiTaskElasticNet(X, Y).at(l1=0.0, l2=0.1), within=1e-9)
    assert np.allclose(ridge.x.reshape(3, 5), Ridge(alpha=4.0, fit_intercept=False).fit(X, Y).coef_, atol=1e-8)


def test_no_radius_is_less_than_the_distance_and_l1_max_is_the_least_that_zeroes():
    whole = problems.MultiTaskElasticNet(X, Y)
    for l1, l2 in ((0.2, 0.05), (0.2, 0.0)):
        problem = whole.at(l1=l1, l2=l2)
        exact = suffice.solve(problem, within=1e-12, solver="newton")
        assert exact.certificate.radius <= 1e-11
        for solver in ("fista", "newton"):
            for step, one in enumerate(iterate(problem, solver=solver)):
                away = float(np.linalg.norm(one.x - exact.x))
                assert away <= one.certificate.radius + exact.certificate.radius
                if step == 30:
                    break
    assert not suffice.solve(whole.at(l1=whole.l1_max, l2=0.1), within=1e-6).x.any()
    assert suffice.solve(whole.at(l1=0.99 * whole.l1_max, l2=0.1), within=1e-6).x.any()


def test_curvature_of_the_data_is_a_lower_bound_and_none_is_claimed_where_columns_depend_on_each_other():
    model = Targets(problems.MultiTaskElasticNet(X, Y).design, Y)
    assert 0.0 < model.mu <= np.linalg.eigvalsh(X.T @ X / 40)[0]
    dependent = problems.MultiTaskElasticNet(np.c_[X, X[:, :1] + X[:, 1:2]], Y)
    with pytest.raises(ValueError, match="l2 must be positive"):
        dependent.at(l1=0.1, l2=0.0)
    for wrong in (Y[:, 0], Y[:-1], np.where(Y > 0, math.nan, Y)):
        for rows in (X, RowBlocks.of(X)):
            with pytest.raises(ValueError, match="Y must be finite"):
                problems.MultiTaskElasticNet(rows, wrong)


FEW = suffice.Options(max_evaluations=6, final_radius=1e-2)
ESTIMATORS = {
    "ridge": Ridge(),
    "ridge, no intercept": Ridge(fit_intercept=False),
    "elastic net": ElasticNet(tol=1e-12),
    "rows": MultiTaskElasticNet(tol=1e-14, max_iter=100_000),
    "rows, lasso": MultiTaskLasso(tol=1e-14, max_iter=100_000),
    "pipeline": make_pipeline(StandardScaler(), MultiTaskElasticNet(tol=1e-14, max_iter=100_000)),
}


@pytest.mark.parametrize("scoring", ["neg_mean_squared_error", "r2"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_scores_of_scikit_learns_models_lie_in_the_proven_interval(name, scoring):
    estimator = ESTIMATORS[name]
    search = SufficeSearchCV(estimator, cv=4, scoring=scoring, options=FEW).fit(X, Y)
    params = {key: value * (0.75 if "ridge" in name else 1.0) for key, value in search.best_params_.items()}
    theirs = cross_val_score(clone(estimator).set_params(**params), X, Y, cv=4, scoring=scoring).mean()
    low, high = search.score_interval_
    assert low - 1e-7 * abs(low) <= theirs <= high + 1e-7 * abs(low) and high - low <= 1e-3 * abs(low)
    own = clone(estimator).set_params(**search.best_params_).fit(X, Y)
    assert np.allclose(search.predict(X), own.predict(X), atol=1e-4)
    final = search.best_estimator_[-1] if name == "pipeline" else search.best_estimator_
    assert final.coef_.shape == (3, 5) and np.shape(final.intercept_) in ((3,), ())
    assert search.coef_radius_ <= 1e-3
    assert search.held_out_.measured()["r2"] > search.baseline_.measured()["r2"]


def test_weights_are_copies_of_rows():
    weight = np.random.default_rng(1).integers(1, 3, 40)
    twice = np.repeat(np.arange(40), weight)
    both = [np.arange(30), np.arange(30, 40)]
    space = {"l2": (1e-3, 1.0)}
    search = SufficeSearchCV(Ridge(), space, cv=[both], options=FEW).fit(X, Y, sample_weight=weight)
    copies = [np.flatnonzero(np.isin(twice, part)) for part in both]
    other = SufficeSearchCV(Ridge(), space, cv=[copies], options=FEW).fit(X[twice], Y[twice])
    assert search.best_score_ == pytest.approx(other.best_score_, rel=1e-6)


@pytest.mark.parametrize(
    ("estimator", "y", "message"),
    [
        (MultiTaskLasso(), Y[:, 0], "takes several targets, y holds one: use Lasso"),
        (MultiTaskElasticNet(), Y[:, 0], "use ElasticNet"),
        (Ridge(alpha=[1.0, 2.0, 3.0]), Y, "one alpha for each target"),
        (Lasso(positive=True), Y, "is tuned for one target"),
        (QuantileRegressor(), Y, "should be a 1d array"),
        (MultiTaskElasticNetCV(), Y, "use MultiTaskElasticNet, which is what it tunes"),
        (TransformedTargetRegressor(Ridge()), Y, "should be a 1d array"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(estimator, y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        SufficeSearchCV(estimator, cv=3).fit(X, y)


def test_sparse_rows_are_taken_and_large_ones_refused_with_an_intercept():
    search = SufficeSearchCV(Ridge(), {"l2": (1e-3, 1.0)}, cv=3, options=FEW)
    dense, sparse = (search.fit(part, Y).best_score_ for part in (X, sp.csr_array(X)))
    assert dense == pytest.approx(sparse, rel=1e-9)
    plain = SufficeSearchCV(Ridge(fit_intercept=False), {"l2": (1e-3, 1.0)}, cv=3, options=FEW)
    dense, sparse = (plain.fit(part, Y).best_score_ for part in (X, sp.csr_array(X)))
    assert dense == pytest.approx(sparse, rel=1e-6)
    with pytest.raises(ValueError, match="take dense rows"):
        search.fit(sp.random_array((60, 60_000), density=1e-4, format="csr", rng=0), np.ones((60, 2)))
