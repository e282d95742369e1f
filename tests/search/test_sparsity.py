"""Residuals of few parameters each: what the first points tell, what the model makes of it, and how it is tested."""

import json

import numpy as np
import pytest

from suffice import Evaluation, Options, Tuner, exact, tune
from suffice.search.sparsity import (
    KnownPoints,
    fit_sparse,
    independent,
    open_slopes,
    others,
    probe,
    refuted,
    some,
    supports,
)


def axes(u0, delta=0.1):
    """u_0 and one point along every axis."""
    return np.vstack([u0, u0 + delta * np.eye(len(u0))])


def tridiagonal(x):
    before, after = np.concatenate([[0.0], x[:-1]]), np.concatenate([x[1:], [0.0]])
    return (3.0 - 2.0 * x) * x - before - 2.0 * after + 1.0


def known(f, points, k=0):
    return KnownPoints(points, np.array([f(u) for u in points]), points != points[0], k)


def start(f, u0):
    points = axes(u0)
    return supports(points, np.array([f(u) for u in points]))


def test_the_first_points_show_the_parameters_of_every_residual():
    S = start(tridiagonal, -np.ones(12))
    assert S.tolist() == [[0, 1, 12], *([i - 1, i, i + 1] for i in range(1, 11)), [10, 11, 12]]


@pytest.mark.parametrize(
    ("what", "f"),
    [
        ("a residual of all parameters", lambda x: np.append(tridiagonal(x), x.sum())),
        ("a parameter without effect", lambda x: tridiagonal(x)[:10] + 0.0 * x[11]),
    ],
)
def test_there_is_no_sparsity_with(what, f):
    assert start(f, np.linspace(1.0, 2.0, 12) if what.startswith("a residual") else np.ones(12)) is None


def test_points_off_the_axes_show_no_sparsity():
    points = axes(np.ones(12)) + np.vstack([np.zeros(12), 1e-3 * np.ones((12, 12))])
    assert supports(points, np.array([tridiagonal(u) for u in points])) is None


def test_a_few_points_besides_the_first_determine_all_quadratic_residuals():
    """Every residual has 3 parameters, 9 coefficients: 3 first points and 6 others, whatever m is."""
    rng = np.random.default_rng(0)
    m = 40
    points = np.vstack([axes(-np.ones(m)), -1.0 + 0.05 * rng.standard_normal((7, m))])
    S = start(tridiagonal, -np.ones(m))
    # In units of a large trust radius the points are near, and count as exact.
    model, linear, unexplained = fit_sparse(S, known(tridiagonal, points), 10.0)
    assert model.curved and not linear.curved
    assert unexplained.max() <= 1e-3
    for s in 0.05 * rng.standard_normal((5, m)):
        r = tridiagonal(points[0] + s)
        assert model.value(s) == pytest.approx(float(r @ r), rel=1e-3)
        assert model.decrease(s) == pytest.approx(model.value(np.zeros(m)) - model.value(s), rel=1e-9)
        assert abs(model.value(s) - float(r @ r)) < 0.1 * abs(linear.value(s) - float(r @ r))


def test_linear_residuals_are_known_after_the_first_points():
    m = 16

    def f(x):
        return np.concatenate([x[1:] - 2.0 * x[:-1], x - 1.0])

    model, _, _ = fit_sparse(start(f, np.zeros(m)), known(f, axes(np.zeros(m))), 0.1)
    s = 0.1 * np.random.default_rng(1).standard_normal(m)
    g, H = model.derivatives(s)
    J = np.vstack([np.eye(m, k=1)[:-1] - 2.0 * np.eye(m)[:-1], np.eye(m)])
    np.testing.assert_allclose(model.value(s), f(s) @ f(s), rtol=1e-3)
    np.testing.assert_allclose(g, 2.0 * J.T @ f(s), atol=1e-2)
    np.testing.assert_allclose(H, 2.0 * J.T @ J, atol=1e-1)


def test_derivatives_agree_with_differences_of_the_value():
    rng = np.random.default_rng(2)
    m = 12
    points = np.vstack([axes(-np.ones(m)), -1.0 + 0.05 * rng.standard_normal((9, m))])
    model = fit_sparse(start(tridiagonal, -np.ones(m)), known(tridiagonal, points, k=15), 0.1)[0]
    s, h = 0.05 * rng.standard_normal(m), 1e-4
    g, H = model.derivatives(s)
    E = h * np.eye(m)
    near = np.array([(model.value(s + e) - model.value(s - e)) / (2.0 * h) for e in E])
    bent = np.array([(model.derivatives(s + e)[0] - model.derivatives(s - e)[0]) / (2.0 * h) for e in E])
    np.testing.assert_allclose(g, near, atol=1e-6 * np.abs(g).max())
    np.testing.assert_allclose(H, bent, atol=1e-6 * np.abs(H).max())


def test_far_first_points_leave_slopes_open_and_three_probes_settle_a_tridiagonal_jacobian():
    m = 30
    u0 = -np.ones(m)
    S = start(tridiagonal, u0)
    points = np.vstack([axes(u0), u0 + 1.0])
    k, radius = m + 1, 1e-2
    infinite = np.full(m, np.inf)
    probes = 0
    while (wanted := open_slopes(S, known(tridiagonal, points, k), 2.0 * radius)).any():
        moves = independent(S, wanted)
        assert (np.append(moves, False)[S].sum(axis=1) <= 1).all()  # no residual has two of them
        points = np.vstack([points, probe(points[k], moves, radius, -infinite, infinite, probes)])
        probes += 1
        assert probes <= 3
    assert probes == 3
    model = fit_sparse(S, known(tridiagonal, points, k), radius)[0]
    J = np.diag(3.0 - 4.0 * points[k]) - np.eye(m, k=-1) - 2.0 * np.eye(m, k=1)
    np.testing.assert_allclose(model.derivatives(np.zeros(m))[0], 2.0 * J.T @ tridiagonal(points[k]), atol=0.05)


def test_probes_stay_within_bounds_and_move_nothing_else():
    u, moves = np.array([0.0, 1.0, 0.5, 0.5]), np.array([True, True, True, False])
    for number in range(5):
        v = probe(u, moves, 0.2, np.zeros(4), np.ones(4), number)
        assert ((v >= 0.0) & (v <= 1.0)).all() and ((v != u) == moves).all()
        assert np.linalg.norm(v - u) == pytest.approx(0.2)


def test_a_residual_that_changes_without_its_parameters_refutes_the_sparsity():
    S = np.array([[0, 1], [1, 2], [3, 4]])  # of parameters 0, 1, 2, 3; 4 stands for none
    u, v = np.zeros(4), np.array([0.0, 0.0, 1.0, 0.0])
    assert not refuted(S, u, v, np.array([False, True, False]))
    assert refuted(S, u, v, np.array([True, True, False]))
    assert others(S, 2, 4).tolist() == [True, True, True, False]
    assert 0 < some(S, 1000, 7).sum() < 500


def cubes(x):
    return x**3 - np.linspace(0.5, 3.0, len(x))


def run(f, theta0, **options):
    return tune(exact(f), theta0, options=Options(max_evaluations=2000, **options))


def test_separable_residuals_take_few_more_evaluations_than_the_first_points():
    m = 80
    result = run(cubes, np.ones(m))
    assert result.success and result.evaluations < 1.3 * m
    np.testing.assert_allclose(result.theta, np.linspace(0.5, 3.0, m) ** (1 / 3), atol=1e-4)


def test_a_chain_takes_few_more_evaluations_than_the_first_points():
    m = 60
    result = run(tridiagonal, -np.ones(m))
    assert result.success and result.cost < 1e-10 and result.evaluations < 1.7 * m


def hidden(x):
    """At 0 no x_i x_{i+1} depends on anything, and nothing but these terms couples the parameters."""
    return np.concatenate([x - 1.0 + 3.0 * x * np.roll(x, 1), 0.1 * (x + 2.0)])


def test_parameters_that_begin_to_matter_refute_the_sparsity_and_the_minimum_is_found():
    m = 24
    tuner = Tuner(np.zeros(m), options=Options(max_evaluations=1500, final_radius=1e-6))
    oracle, sparse = exact(hidden), []
    while not tuner.done:
        request = tuner.ask()
        tuner.tell(oracle.evaluate(request.theta, within=request.within))
        sparse.append(tuner.search.strategy.models.sparsity is not None)
    assert sparse[m] and not sparse[-1]  # taken for sparse after the first points, and not for long
    assert sum(sparse) <= 5
    x, h = tuner.result().theta, 1e-6
    J = np.array([(hidden(x + h * e) - hidden(x - h * e)) / (2 * h) for e in np.eye(m)]).T
    assert np.abs(J.T @ hidden(x)).max() <= 1e-3


def test_a_state_with_sparsity_is_resumed_to_the_same_bits():
    m = 20
    oracle = exact(tridiagonal)

    def finish(tuner):
        while not tuner.done:
            request = tuner.ask()
            tuner.tell(oracle.evaluate(request.theta, within=request.within))
        return tuner.result()

    whole = finish(Tuner(-np.ones(m), options=Options(max_evaluations=500)))
    tuner = Tuner(-np.ones(m), options=Options(max_evaluations=500))
    for _ in range(m + 4):
        request = tuner.ask()
        tuner.tell(oracle.evaluate(request.theta, within=request.within))
    assert tuner.search.strategy.models.sparsity is not None
    again = finish(Tuner.from_state(json.loads(json.dumps(tuner.state()))))
    assert again.history == whole.history


def test_inexact_residuals_that_are_within_their_errors_refute_nothing():
    """What changes by no more than it may err has not been seen to change."""
    m = 16
    rng = np.random.default_rng(5)
    tuner = Tuner(np.ones(m), options=Options(max_evaluations=150))
    first = True
    for _ in range(60):
        if tuner.done:
            break
        request = tuner.ask()
        r = cubes(request.theta)
        e = np.zeros(m) if len(tuner.history) <= m else np.full(m, 0.5 * request.within)
        first = len(tuner.history) <= m
        tuner.tell(Evaluation(request.theta, r + e * rng.uniform(-0.5, 0.5, m), e))
    assert not first and tuner.search.strategy.models.sparsity is not None
