"""The fused penalty: its prox by definition, its certificates, and the problem that it makes of a linear model."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

import suffice
from suffice import losses, problems, terms
from suffice.penalties.fused import taut_string
from suffice.solvers.solver import iterate
from suffice.testing import check_problem

RNG = np.random.default_rng(0)


@given(st.integers(0, 10**6), st.integers(2, 25), st.floats(-2, 2), st.booleans())
def test_the_taut_string_is_the_solution_of_the_dual_problem(seed, n, decade, whole):
    rng = np.random.default_rng(seed)
    v = 3.0 * rng.standard_normal(n) + rng.uniform(-5, 5)
    v, width = np.round(v) if whole else v, 10.0**decade
    D = np.diff(np.eye(n), axis=0)
    u = lsq_linear(D.T, v, bounds=(-width, width), tol=1e-14, method="bvls").x
    assert np.allclose(taut_string(v, width), v - D.T @ u, atol=1e-7)


def test_a_string_that_is_pulled_hard_is_straight_and_one_that_is_not_stays():
    v = RNG.standard_normal(50)
    assert np.allclose(taut_string(v, 1e6), v.mean(), atol=1e-12)
    assert np.array_equal(taut_string(v, 0.0), v) and np.array_equal(taut_string(v[:1], 2.0), v[:1])
    assert np.allclose(taut_string(np.full(7, 2.5), 0.1), 2.5)


def test_the_least_subgradient_is_no_longer_than_others_and_vanishes_at_the_prox():
    g = terms.Fused(0.7, 0.3)
    for _ in range(20):
        v = np.round(2.0 * RNG.standard_normal(12), 1)
        x = g.prox(v, 1.0)
        assert np.allclose(g.least_subgradient(x, x - v), 0.0, atol=1e-12)
        gradient = RNG.standard_normal(12)
        least = g.least_subgradient(x, gradient)
        for _ in range(30):  # any other element of the subdifferential, by a point whose prox is x
            u = np.where(np.diff(x) != 0, np.sign(np.diff(x)), RNG.uniform(-1, 1, 11)) * 0.7
            s = np.where(x != 0, np.sign(x), RNG.uniform(-1, 1, 12)) * 0.3
            other = gradient + s + np.r_[-u, 0.0] + np.r_[0.0, u]
            assert np.linalg.norm(least) <= np.linalg.norm(other) + 1e-12


def data(rows=30, columns=10):
    X = RNG.standard_normal((rows, columns))
    return X, X @ np.repeat([0.0, 2.0], columns // 2) + 0.3 * RNG.standard_normal(rows)


def test_conformance():
    X, y = data()
    fused = problems.FusedLasso(problems.ElasticNet(X, y))
    for problem in (fused.at(fused=0.2, l1=0.05, l2=0.01), fused.at(fused=0.2, l2=0.0)):
        check_problem(problem)


def test_no_radius_is_less_than_the_distance():
    X, y = data()
    problem = problems.FusedLasso(problems.ElasticNetLogistic(X, y > 0)).at(fused=0.02, l1=0.01, l2=1e-2)
    exact = suffice.solve(problem, within=1e-12, max_steps=20_000)
    assert exact.certificate.radius <= 1e-9
    for step, one in enumerate(iterate(problem)):
        assert np.linalg.norm(one.x - exact.x) <= one.certificate.radius + exact.certificate.radius
        if step == 60:
            break


def test_neighbours_come_out_alike_and_the_penalty_can_be_tuned():
    X, y = data(60)
    lower = problems.FusedLasso(problems.ElasticNet(X[:40], y[:40]))
    problem = suffice.BilevelProblem(
        [lower], [losses.SquaredError(X[40:], y[40:])], space=suffice.Space(fused=(1e-3, 1.0), l2=(1e-6, 1e-1))
    )
    result = suffice.tune(problem, [-1.0, -3.0], options=suffice.Options(max_evaluations=15, final_radius=1e-2))
    best = suffice.solve(lower.at(**problem.space.params(result.theta)), within=1e-8).x
    assert np.sum(np.abs(np.diff(best)) > 1e-6) < 9
    assert result.interval[0] <= result.cost <= result.interval[1]


def test_what_has_no_proof_is_refused():
    X, y = data(5)
    with pytest.raises(ValueError, match="l2 must be positive"):
        problems.FusedLasso(problems.ElasticNet(X, y)).at(fused=0.1, l2=0.0)
    with pytest.raises(TypeError, match="linear model"):
        problems.FusedLasso("model")
    with pytest.raises(ValueError, match="fused"):
        terms.Fused(-1.0)
    assert math.isfinite(terms.Fused(1.0).value(np.ones(3)))
