"""Weights that are said to be zero are zero at the minimiser in extended precision."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suffice import solve
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


def test_bad_input_is_named():
    problem = ElasticNet(np.eye(3), np.ones(3)).at(l1=0.1, l2=0.1)
    with pytest.raises(ValueError, match=re.escape("x must have shape (3,), got (2,)")):
        proven_zeros(problem, np.zeros(2))
    boxed = type(problem)(problem.smooth, Box(0.0, 1.0), mu=0.1, L=problem.L, size=3)
    with pytest.raises(ValueError, match="proven_zeros needs a linear model with an l1 penalty"):
        proven_zeros(boxed, np.zeros(3))
