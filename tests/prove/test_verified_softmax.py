"""Verified solutions of the multinomial model: no false claim, hardly any slack, nothing where nothing is unique."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from flint import arb

import suffice
from suffice.models.multinomial import Multinomial
from suffice.models.smooth import Ridged
from suffice.penalties.prox import WeightedL1
from suffice.rows.design import Design
from suffice.sklearn.folds import LinearFold, Softmax
from suffice.solvers.newton import Newton
from suffice.solvers.solver import iterate
from tests.reference_verified import minimiser

NEWTON = Newton()


def data(rows=30, columns=4, classes=3, seed=0):
    rng = np.random.default_rng([seed, rows])
    X = rng.standard_normal((rows, columns))
    scores = X @ rng.standard_normal((columns, classes)) + 1.5 * rng.standard_normal((rows, classes))
    return X, np.where(np.arange(rows) < classes, np.arange(rows), scores.argmax(axis=1))


def model(X, y, l1, l2, intercept=True, weights=None):
    classes = int(y.max()) + 1
    smooth, size = Multinomial(Design.of(X, weights), y.astype(float), classes, intercept), classes * X.shape[1]
    l2 = np.broadcast_to(np.asarray(l2, float), size)
    ridged = Ridged(smooth, l2)
    l1 = WeightedL1(np.broadcast_to(np.asarray(l1, float), size))
    return suffice.Composite(ridged, l1, mu=float(l2.min()), L=smooth.L + float(l2.max()), size=size)


def solutions(problem, rng):
    """Newton's iterates, and points around the minimiser from 1e-16 to 0.3 of its size away."""
    exact = minimiser(problem).rounded()
    yield from (one.x for _, one in zip(range(10), iterate(problem, solver=NEWTON), strict=False))
    for size in 10.0 ** np.linspace(-16, -0.5, 8):
        yield exact * (1.0 + size * rng.standard_normal(len(exact)))
        yield np.where(rng.random(len(exact)) < 0.8, exact, 0.0) + size * rng.standard_normal(len(exact))


def verified(problem, x):
    return suffice.certify(problem, x).rule == "verified"


@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("l2", [0.0, 1e-6, 1e-3, 1.0])
def test_no_verified_radius_is_less_than_the_distance_to_forty_digits(l2, intercept):
    rng, count = np.random.default_rng(1), 0
    X, y = data()
    weights = rng.integers(0, 3, len(y)) + (np.arange(len(y)) < 3) * 1.0
    for l1 in (0.0, 0.01, rng.choice([0.003, 0.01, 0.1], 12)):
        if l2 == 0.0 and np.max(l1) == 0.0:
            continue
        problem = model(X, y, l1, l2, intercept, weights)
        exact = minimiser(problem)
        for x in solutions(problem, rng):
            proof = suffice.certify(problem, x)
            count += proof.rule == "verified"
            assert math.isinf(proof.radius) or exact.distance(x) <= arb(proof.radius)
    assert count > 10 or l2 == 1.0  # where the gap is as good


def test_columns_of_any_size_and_sparse_ones_are_no_less_certain():
    rng, count = np.random.default_rng(2), 0
    X, y = data()
    X[:, 3] = X[:, 2] * (1.0 + 1e-3 * rng.standard_normal(len(X)))
    scales = 10.0 ** np.array([-6.0, 6.0, 0.0, 0.0])
    for scaled in (X * scales, sp.csr_array(np.where(np.abs(X) < 0.5, 0.0, X) * scales)):
        problem = model(scaled, y, np.tile(0.01 * scales, 3), 0.0)
        exact = minimiser(problem)
        for x in solutions(problem, rng):
            proof = suffice.certify(problem, x)
            count += proof.rule == "verified"
            assert math.isinf(proof.radius) or exact.distance(x) <= arb(proof.radius)
    assert count > 8


@pytest.mark.parametrize("l1, l2", [(0.01, 0.0), (0.01, 1e-6), (0.0, 1e-3), (0.01, 1e-3)])
def test_a_verified_radius_is_hardly_more_than_the_distance(l1, l2):
    X, y = data(rows=60)
    problem = model(X, y, l1, l2)
    exact, ratios = minimiser(problem).rounded(), []
    for _, one in zip(range(20), iterate(problem, solver=NEWTON), strict=False):
        distance = float(np.linalg.norm(one.x - exact))
        if one.certificate.rule == "verified" and distance > 1e-9:
            ratios.append(one.certificate.radius / distance)
    assert ratios and float(np.median(ratios)) <= 1.5


def test_with_little_l2_the_gap_proves_a_thousand_times_less():
    X, y = data(rows=200)
    problem = model(X, y, 0.01, 1e-6)
    *_, last = (one for _, one in zip(range(10), iterate(problem, solver=NEWTON, certificate="free"), strict=False))
    assert 1e3 * suffice.certify(problem, last.x).radius <= last.certificate.radius


# What must not be verified


@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
def test_without_penalties_one_vector_may_be_added_to_all_classes(intercept):
    X, y = data(rows=100)
    nearly = suffice.solve(model(X, y, 0.0, 1e-9, intercept), steps=20, solver=NEWTON).x
    problem = model(X, y, 0.0, 0.0, intercept)
    assert np.linalg.norm(problem.smooth.gradient(nearly)) < 1e-8
    assert not verified(problem, nearly)


def test_a_column_without_penalties_leaves_its_classes_undetermined():
    X, y = data(rows=100)
    l1 = np.full((3, 4), 0.01)
    l1[:, 1] = 0.0
    nearly = suffice.solve(model(X, y, l1.ravel(), 1e-9), steps=20, solver=NEWTON).x
    assert not verified(model(X, y, l1.ravel(), 0.0), nearly)
    l1[0, 1] = 0.01  # one class's weight tells the others where they are
    x = suffice.solve(model(X, y, l1.ravel(), 0.0), steps=20, solver=NEWTON).x
    assert verified(model(X, y, l1.ravel(), 0.0), x)


def test_equal_columns_without_an_l2_have_no_single_minimiser():
    X, y = data(rows=100)
    X[:, 1] = X[:, 0]
    x = suffice.solve(model(X, y, 0.01, 1e-9), steps=30, solver=NEWTON).x.reshape(3, 4).copy()
    x[:, 0] = x[:, 1] = 0.5 * (x[:, 0] + x[:, 1])
    assert x[:, 0].any() and not verified(model(X, y, 0.01, 0.0), x.ravel())


def test_wrong_zeros_and_wrong_signs_are_not_verified():
    X, y = data(rows=100)
    problem = model(X, y, 0.02, 0.0)
    exact = minimiser(problem).rounded()
    assert verified(problem, exact)
    for j in np.flatnonzero(exact):
        assert not verified(problem, np.where(np.arange(12) == j, 0.0, exact))
        assert not verified(problem, np.where(np.arange(12) == j, -exact, exact))
    for j in np.flatnonzero(exact == 0.0):
        assert not verified(problem, np.where(np.arange(12) == j, 1e-14, exact))


# What follows from it


@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("scoring", ["neg_log_loss", "neg_brier_score"])
def test_the_error_of_a_held_out_loss_is_true_and_less_than_by_the_radius(scoring, intercept):
    X, y = data(rows=150)
    T, z = data(rows=40, seed=5)
    fold = LinearFold(X, y.astype(float), Softmax(3), np.ones(150), "free" if intercept else "none")
    judge = fold.held_out(T, z.astype(float), np.ones(40), scoring, 1)
    problem = fold.at(l1=0.005, l2=1e-6)
    exact, gains = judge.at(minimiser(problem).rounded()).residual, []
    for _, one in zip(range(12), iterate(problem, solver=NEWTON), strict=False):
        at, proof = judge.at(one.x), one.certificate
        if proof.verification is not None:
            error = at.verified(proof.verification)
            assert abs(at.residual - exact) <= error + 1e-14
            gains.append(at.error(proof.radius) / error)
    assert gains and max(gains) > (5.0 if intercept else 1.5)


def test_a_solve_needs_fewer_steps_for_a_proof():
    X, y = data(rows=200)
    problem = model(X, y, 0.01, 1e-6)
    ours = suffice.solve(problem, within=1e-6, solver=NEWTON)
    without = suffice.solve(problem, within=1e-6, solver=NEWTON, certificate="free")
    assert ours.certificate.rule == "verified" and ours.reached and ours.steps < without.steps
