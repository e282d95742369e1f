"""Weights that are said to be zero are zero at the minimiser in extended precision."""

import re
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from suffice import Composite, iterate, solve
from suffice.journal.codec import decode, encode
from suffice.models.smooth import Ridged, imaged
from suffice.penalties.prox import WeightedL1
from suffice.problems import ElasticNet, ElasticNetLogistic, ElasticNetPoisson
from suffice.solvers.screening import proven_zeros
from suffice.terms import Box
from tests.reference import random_case

PSI = ("squared", "logistic", "huber")


@pytest.mark.parametrize("term", ["l1", "elastic_net"])
@pytest.mark.parametrize("loss", PSI)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 39), away=st.floats(-14, 1))
def test_a_proven_zero_is_zero_at_the_reference_solution(loss, term, seed, away):
    case = random_case(loss, term, seed)
    x_hat = case.x_hat.astype(float)
    direction = np.random.default_rng(seed).standard_normal(case.size)
    for x in (x_hat + 10.0**away * direction, np.where(x_hat != 0.0, x_hat + 10.0**away * direction, 0.0)):
        assert not case.x_hat[proven_zeros(case.problem, x)].any()


@pytest.mark.parametrize("loss", PSI)
def test_at_the_solution_nearly_all_zeros_are_proven(loss):
    zeros = proven = 0
    for seed in range(40):
        case = random_case(loss, "l1", seed)
        found = solve(case.problem, within=0.0, solver="newton")
        zeros += np.count_nonzero(case.x_hat == 0.0)
        proven += np.count_nonzero(proven_zeros(case.problem, found.x))
    assert zeros > 50 and proven >= 0.95 * zeros


def test_the_closer_the_point_the_more_is_proven():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 50))
    y = X[:, :5].sum(axis=1) + rng.standard_normal(200) > 0
    problem = ElasticNetLogistic(X, y).at(l1=0.03, l2=0.01)
    counts = [
        np.count_nonzero(proven_zeros(problem, solve(problem, within=within).x)) for within in (1.0, 1e-2, 1e-4, 1e-8)
    ]
    assert counts == sorted(counts) and counts[-1] == np.count_nonzero(solve(problem, within=1e-8).x == 0.0) > 10


def test_nothing_is_proven_where_nothing_can_be():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 5)), rng.poisson(2.0, 30)
    for problem in (ElasticNetPoisson(X, y).at(l1=0.5, l2=0.1), ElasticNet(X, y).at(l1=0.0, l2=0.1)):
        assert not proven_zeros(problem, solve(problem, within=1e-8).x).any()


wide = np.random.default_rng(1).standard_normal((60, 400))
target = wide[:, :5].sum(axis=1) + np.random.default_rng(2).standard_normal(60)
MATRICES = {"C": np.asarray, "F": np.asfortranarray, "csr": sp.csr_array, "csc": sp.csc_array}
FAMILIES = {
    "squares": lambda X: ElasticNet(X, target).at(l1=0.2, l2=0.01),
    "logistic": lambda X: ElasticNetLogistic(X, target > 0.0).at(l1=0.05, l2=0.001),
    "weighted": lambda X: Composite(
        Ridged(imaged(ElasticNet(X, target).at(l1=0.2, l2=0.01).smooth, 0.0), 0.01 * np.linspace(0.0, 1.0, 400)),
        WeightedL1(np.linspace(0.2, 0.3, 400)),
        mu=0.01,
        L=ElasticNet(X, target).at(l1=0.2, l2=0.01).L + 0.01,
        size=400,
    ),
}


@pytest.mark.parametrize("kind", MATRICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_variables_that_are_proven_to_be_zero_leave_the_products(family, kind, monkeypatch):
    problem = FAMILIES[family](MATRICES[kind](wide))
    exact = solve(problem, within=1e-10, solver="newton")
    columns = [400]
    for solution in islice(iterate(problem, solver="fista_adaptive"), 1, 400):
        active = solution.state.active
        columns.append(400 if active is None else len(active))
        distance = np.linalg.norm(solution.x - exact.x)
        assert distance <= solution.certificate.radius + exact.certificate.radius
        assert active is None or np.isin(np.flatnonzero(exact.x), active).all()
        if solution.certificate.radius < 1e-8:
            break
    assert columns == sorted(columns, reverse=True) and columns[-1] < 100
    monkeypatch.setattr("suffice.solvers.fista.SCREEN_EVERY", 10**9)
    whole = solve(problem, within=1e-8, solver="fista_adaptive")
    assert whole.state.active is None and abs(whole.steps - solution.steps) <= 0.05 * whole.steps


@pytest.mark.parametrize("steps", [9, 10, 11, 30, 47])
def test_a_screened_solution_from_a_file_goes_on_to_the_same_bits(steps):
    problem = FAMILIES["logistic"](wide)
    first = solve(problem, steps=steps, solver="fista_adaptive")
    read = replace(decode(encode(replace(first, problem=None))), problem=problem)
    one, other = (solve(problem, within=1e-7, solver="fista_adaptive", warm=warm) for warm in (first, read))
    assert one.x.tobytes() == other.x.tobytes() and one.certificate == other.certificate
    assert one.state.active is not None and len(one.state.active) < 100


def test_bad_input_is_named():
    problem = ElasticNet(np.eye(3), np.ones(3)).at(l1=0.1, l2=0.1)
    with pytest.raises(ValueError, match=re.escape("x must have shape (3,), got (2,)")):
        proven_zeros(problem, np.zeros(2))
    boxed = type(problem)(problem.smooth, Box(0.0, 1.0), mu=0.1, L=problem.L, size=3)
    with pytest.raises(ValueError, match="proven_zeros needs a linear model with an l1 penalty"):
        proven_zeros(boxed, np.zeros(3))
