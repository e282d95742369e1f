"""Gradient descent contracts by (kappa - 1)/(kappa + 1) per step."""

from itertools import islice

import numpy as np
import pytest

from suffice import Composite, iterate, solve
from suffice.problems import ElasticNet
from suffice.terms import Zero
from tests.reference import LOSSES, TERMS, OwnSmooth, norm, random_case


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_step_contracts_and_so_the_error_obeys_the_a_priori_rate(loss, term):
    for seed in range(3):
        case = random_case(loss, term, seed)
        kappa = case.problem.kappa
        c = (kappa - 1) / (kappa + 1)
        start = case.random_start(np.random.default_rng(seed))
        initial = distance = float(norm(start - case.x_hat))
        blur = 1e-12 * kappa * float(norm(case.x_hat)) + case.error
        for k, solution in enumerate(islice(iterate(case.problem, solver="gradient_descent", warm=start), 1, 120), 1):
            assert case.distance(solution.x) <= c * distance * (1 + 1e-9) + blur
            assert case.distance(solution.x) <= c**k * initial * (1 + 1e-9) + blur
            distance = float(norm(solution.x - case.x_hat))


def test_the_rate_is_attained_at_both_ends_of_the_spectrum():
    problem = Composite(OwnSmooth(np.diag([1.0, 9.0]), np.zeros(2)), Zero(), mu=1.0, L=9.0)
    for start in ([1.0, 0.0], [0.0, 1.0]):
        sizes = [np.linalg.norm(s.x) for s in islice(iterate(problem, solver="gradient_descent", warm=start), 12)]
        assert np.array(sizes[1:]) / sizes[:-1] == pytest.approx(0.8)


def test_the_iterates_are_those_of_the_recursion():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 5)), rng.standard_normal(20)
    problem = ElasticNet(X, y).at(l1=0.1, l2=0.3)
    tau, x = 2.0 / (problem.L + 0.3), np.ones(5)
    for solution in islice(iterate(problem, solver="gradient_descent", warm=np.ones(5)), 1, 30):
        v = x - tau * (X.T @ (X @ x - y) / 20 + 0.3 * x)
        x = np.sign(v) * np.maximum(np.abs(v) - tau * 0.1, 0.0)
        assert solution.x == pytest.approx(x, rel=1e-10, abs=1e-12)


def test_a_perfectly_conditioned_problem_takes_one_step():
    problem = Composite(OwnSmooth(2.0 * np.eye(3), np.ones(3)), Zero(), mu=2.0, L=2.0, size=3)
    solution = solve(problem, within=1e-12, solver="gradient_descent")
    assert solution.steps == 1
    assert solution.x == pytest.approx([0.5] * 3)
