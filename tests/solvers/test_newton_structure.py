"""Bounds on weights and groups of them: prox, least subgradient, certificates and Newton's method on what is free."""

import math
import re

import numpy as np
import pytest
from flint import arb

import suffice
from suffice import terms
from suffice.models.intercept import Intercepted
from suffice.models.linear import LinearModel
from suffice.models.smooth import Ridged
from suffice.rows.design import Design
from suffice.solvers.auto import Auto
from suffice.solvers.fista import FistaState
from suffice.solvers.newton import NewtonState
from suffice.solvers.problem import Composite
from suffice.solvers.solver import iterate
from suffice.testing import check_problem, check_solver
from tests.reference_exact import truth

GROUPS = [[0, 1, 2], [3, 4], [5]]
STRUCTURES = {
    "positive": terms.Positive(),
    "positive, l1": terms.Positive(0.05),
    "positive, some": terms.BoxL1([0.05, 0.0, 0.1, 0.02, 0.0, 0.05], [0.0, 0.0, -math.inf, 0.0, -math.inf, 0.0]),
    "bounds": terms.BoxL1(0.0, -0.2, [0.3, 0.1, math.inf, 0.0, 0.3, 0.3]),
    "bounds, l1": terms.BoxL1(0.03, -0.2, 0.3),
    "groups": terms.SparseGroup(GROUPS, [0.2, 0.1, 0.05]),
    "sparse groups": terms.SparseGroup(GROUPS, 0.06, 0.03),
    "groups, some": terms.SparseGroup([[0, 3], [1, 4]], 0.1, [0.0, 0.1, 0.05, 0.0, 0.02, 0.0]),
}


def data(psi, rows=60):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((rows, 6))
    m = X @ [0.8, -0.6, 0.3, 0.0, 0.2, -0.05]
    if psi is terms.POISSON:
        return X, rng.poisson(np.exp(0.5 * m)).astype(float)
    if psi is terms.GAMMA:
        return X, rng.gamma(2.0, 0.5 * np.exp(0.5 * m))
    noisy = m + rng.standard_normal(rows)
    return X, noisy if psi is terms.SQUARED else np.where(noisy > 0.0, 1.0, -1.0)


def problem(psi, g, l2, intercept=False):
    X, y = data(psi)
    smooth = (Intercepted if intercept else terms.LinearModel)(Design.of(X), y, psi, l2)
    return suffice.Composite(smooth, g, mu=l2, L=smooth.L, size=6)


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_least_subgradient_is_the_shortest_of_many(name):
    g, rng = STRUCTURES[name], np.random.default_rng(0)
    for _ in range(40):
        x = g.prox(0.5 * rng.standard_normal(6) * (rng.random(6) < 0.6), 0.3)
        gradient = 0.3 * rng.standard_normal(6)
        u = g.least_subgradient(x, gradient)
        # u - gradient is a subgradient of g at x, and no direction of descent of |.| is left: -u leads downhill.
        for _ in range(40):
            other = g.prox(x + rng.standard_normal(6) * 10.0 ** rng.uniform(-4, 0), 0.1)
            assert g.value(other) >= g.value(x) + (u - gradient) @ (other - x) - 1e-12
        if np.any(u):
            t = 1e-7
            there = g.prox(x - t * u, 0.0)
            slope = (gradient @ (there - x) + g.value(there) - g.value(x)) / t
            assert slope <= -(u @ u) * (1.0 - 1e-4) + 1e-8


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_remainder_is_bregmans(name):
    g, rng = STRUCTURES[name], np.random.default_rng(1)
    for _ in range(40):
        mu, v = 10.0 ** rng.uniform(-2, 1), rng.standard_normal(6)
        x = g.prox(rng.standard_normal(6), 0.1)
        w_bar, B = g.remainder(x, v, mu)
        assert np.allclose(w_bar, g.prox(v / mu, 1.0 / mu), atol=1e-12)
        assert B >= 0.0
        assert pytest.approx(g.value(x) - g.value(w_bar) - (v - mu * w_bar) @ (x - w_bar), abs=1e-12) == B


@pytest.mark.parametrize(
    ("name", "psi"),
    [("positive, some", terms.POISSON), ("bounds, l1", terms.SQUARED), ("groups, some", terms.POISSON)],
    ids=["positive", "bounds", "groups"],
)
def test_problems_conform(name, psi):
    check_problem(problem(psi, STRUCTURES[name], 0.2), trials=4, solver="newton")


def test_the_solver_conforms():
    names = ("positive, l1", "bounds, l1", "sparse groups")
    check_solver("newton", [problem(terms.GAMMA, STRUCTURES[name], 1e-2) for name in names])


@pytest.mark.parametrize("psi", [terms.SQUARED, terms.LOGISTIC, terms.GAMMA], ids=["squared", "logistic", "gamma"])
@pytest.mark.parametrize("l2", [1e-6, 1e-1])
@pytest.mark.parametrize("name", [name for name in STRUCTURES if "group" not in name])
def test_no_radius_is_less_than_the_distance_to_forty_digits(name, l2, psi):
    made = problem(psi, STRUCTURES[name], l2)
    exact = truth(made)
    for step, one in enumerate(iterate(made, solver="newton")):
        radius = one.certificate.radius
        assert math.isinf(radius) or exact.distance(one.x) <= arb(radius)
        if step == 8:
            assert radius <= 1e-6
            break


@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("psi", [terms.LOGISTIC, terms.GAMMA, terms.POISSON], ids=["logistic", "gamma", "poisson"])
@pytest.mark.parametrize("name", ["positive", "positive, l1", "positive, some"])
def test_weights_that_must_not_be_negative_are_verified_without_an_l2(name, psi, intercept):
    g = STRUCTURES[name]
    solution = suffice.solve(problem(psi, g, 0.0, intercept), within=1e-8)
    assert solution.certificate.rule == "verified" and solution.reached
    exact = truth(problem(psi, g, 1e-12, intercept))
    assert float(exact.distance(solution.x).abs_upper()) <= 1e-8
    # A weight on the wrong side of its bound, or one that is free and wants to be positive, is no minimiser.
    for wrong in (-np.abs(solution.x), np.where(solution.x == solution.x.max(), 0.0, solution.x)):
        assert suffice.certify(problem(psi, g, 0.0, intercept), wrong).radius == math.inf


def test_unpenalised_weights_are_verified():
    X, y = data(terms.GAMMA)
    smooth = terms.LinearModel(Design.of(X), y, terms.GAMMA)
    factors = np.array([0.0, 1.0, 1.0, 0.0, 2.0, 1.0])
    penalty = terms.WeightedL1(0.05 * factors)
    made = suffice.Composite(Ridged(smooth, 0.01 * factors), penalty, mu=0.0, L=smooth.L, size=6)
    solution = suffice.solve(made, within=1e-8)
    assert solution.certificate.rule == "verified" and solution.x[0] != 0.0 and solution.x[3] != 0.0


def test_groups_leave_together():
    solution = suffice.solve(problem(terms.POISSON, terms.SparseGroup(GROUPS, 0.35), 1e-3), within=1e-8)
    kept = [bool(np.any(solution.x[group])) for group in GROUPS]
    assert kept == [True, False, False] and np.all(solution.x[GROUPS[0]] != 0.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: terms.BoxL1(0.1, 0.5, 1.0), "0 has to lie between them"),
        (lambda: terms.BoxL1(-0.1), "l1 must be a number or a vector of finite, non-negative numbers"),
        (lambda: terms.SparseGroup([[0, 1], [1]], 0.1), "groups must not overlap"),
        (lambda: problem(terms.SQUARED, terms.BoxL1([0.1, 0.2]), 0.1), "l1 must be a number or have shape (6,)"),
    ],
)
def test_what_cannot_be_is_named(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_auto_takes_newton_where_few_groups_may_move_and_fista_where_many_do():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 1000))
    y = X[:, :5].sum(axis=1) + 0.1 * rng.standard_normal(200)
    smooth = LinearModel(Design.of(X), y, terms.SQUARED, 0.05)
    groups = [np.arange(k, k + 5) for k in range(0, 1000, 5)]
    for weight, kind in ((1.0, NewtonState), (1e-4, FistaState)):
        problem = Composite(smooth, terms.SparseGroup(groups, weight), mu=0.05, L=smooth.L, size=1000)
        assert isinstance(Auto().start(problem.canonical, np.zeros(1000)), kind)


@pytest.mark.parametrize("place", ["blocks", "dask"])
@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("name", ["positive, some", "bounds, l1", "sparse groups", "factors"])
def test_rows_in_blocks_have_the_same_minimisers_to_forty_digits(name, intercept, place):
    """A penalty lives with the weights: where rows are does not matter to it."""
    g = terms.WeightedL1([0.05, 0.0, 0.1, 0.02, 0.0, 0.05]) if name == "factors" else STRUCTURES[name]
    X, y = data(terms.LOGISTIC)
    design = Design.of(rows_in(place, X))
    smooth = (Intercepted if intercept else LinearModel)(design, design.X.rows_of(y), terms.LOGISTIC, 1e-3)
    made = suffice.Composite(smooth, g, mu=1e-3, L=smooth.L, size=6)
    within_memory = problem(terms.LOGISTIC, g, 1e-3, intercept)
    here = suffice.solve(within_memory, within=1e-10)
    exact = None if name == "sparse groups" or intercept else truth(within_memory)
    for solver in ("newton", "auto"):
        solution = suffice.solve(made, within=1e-8, solver=solver)
        assert solution.reached and np.linalg.norm(solution.x - here.x) <= 1e-8 + 1e-10
        assert exact is None or exact.distance(solution.x) <= arb(solution.certificate.radius)


def rows_in(place, X):
    if place == "blocks":
        return terms.RowBlocks.of(X, block=16)
    array = pytest.importorskip("dask.array")
    return array.from_array(X, chunks=(17, 6))


def test_rows_in_blocks_without_room_for_a_matrix_take_products_with_an_intercept(monkeypatch):
    X, y = data(terms.LOGISTIC)
    here = suffice.solve(problem(terms.LOGISTIC, terms.L1(0.01), 1e-3, intercept=True), within=1e-9)
    monkeypatch.setattr("suffice.rows.design.SMALL", 0)
    monkeypatch.setattr("suffice.rows.design.MEMORY", 0.0)
    design = Design.of(rows_in("blocks", X))
    smooth = Intercepted(design, design.X.rows_of(y), terms.LOGISTIC, 1e-3)
    made = suffice.Composite(smooth, terms.L1(0.01), mu=1e-3, L=smooth.L, size=6)
    solution = suffice.solve(made, within=1e-7, solver="newton")
    assert solution.reached and np.linalg.norm(solution.x - here.x) <= 1e-7 + 1e-9
