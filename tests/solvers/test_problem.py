"""Composite takes any f with value and gradient and any g with value and prox, and refuses what proves nothing."""

import math
import re

import numpy as np
import pytest

from suffice import Composite
from suffice.models.smooth import Plain
from suffice.penalties.prox import Generic
from suffice.rows.design import Design
from suffice.terms import L1, SQUARED, Box, ElasticNet, LinearModel, Zero
from tests.reference import OwnProx, OwnSmooth

SMOOTH = OwnSmooth(np.diag([1.0, 4.0]), np.array([1.0, 2.0]))
x = np.array([0.5, -2.0])


def test_the_value_is_f_plus_g():
    problem = Composite(SMOOTH, L1(3.0), mu=1.0, L=4.0)
    assert problem.value(x) == SMOOTH.value(x) + 7.5
    assert Composite(SMOOTH, Box(0.0, 1.0), mu=1.0, L=4.0).value(x) == math.inf


def test_kappa_is_that_of_the_problem_as_solved():
    assert Composite(SMOOTH, Zero(), mu=1.0, L=4.0).kappa == 4.0
    assert Composite(SMOOTH, ElasticNet(1.0, 2.0), mu=1.0, L=4.0).kappa == 2.0


def test_the_ridge_of_an_elastic_net_counts_as_strong_convexity():
    problem = Composite(SMOOTH, ElasticNet(3.0, 2.0), mu=0.0, L=4.0)
    f, g = problem.canonical.f, problem.canonical.g
    assert (problem.canonical.mu, problem.canonical.L) == (2.0, 6.0)
    assert f.value(x) + g.value(x) == pytest.approx(problem.value(x))
    assert f.gradient(x) == pytest.approx(SMOOTH.gradient(x) + 2.0 * x)
    assert g == L1(3.0)


def test_what_a_user_brings_is_completed_and_what_is_known_stays():
    own = Composite(SMOOTH, OwnProx(L1(1.0)), mu=1.0, L=4.0).canonical
    assert isinstance(own.f, Plain) and isinstance(own.g, Generic)
    model = LinearModel(Design.of(np.eye(2)), np.ones(2), SQUARED, 1.0)
    known = Composite(model, L1(1.0), mu=1.0, L=model.L).canonical
    assert known.f is model and known.g == L1(1.0)


def test_problems_are_equal_when_all_their_parts_are():
    problem = Composite(SMOOTH, L1(3.0), mu=1.0, L=4.0, size=2)
    assert problem == Composite(SMOOTH, L1(3.0), mu=1.0, L=4.0, size=2)
    for other in (
        Composite(SMOOTH, L1(2.0), mu=1.0, L=4.0, size=2),
        Composite(SMOOTH, L1(3.0), mu=0.5, L=4.0, size=2),
        Composite(SMOOTH, L1(3.0), mu=1.0, L=5.0, size=2),
        Composite(OwnSmooth(SMOOTH.A, SMOOTH.b), L1(3.0), mu=1.0, L=4.0, size=2),
    ):
        assert problem != other


class OnlyValue:
    def value(self, x):
        return 0.0


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"mu": 0.0}, ValueError, "mu must be positive and finite, got 0.0"),
        ({"mu": -1.0}, ValueError, "mu must be positive and finite, got -1.0"),
        ({"mu": math.nan}, ValueError, "mu must be positive and finite, got nan"),
        ({"mu": None}, TypeError, "mu must be a real number, got None"),
        ({"L": 0.0}, ValueError, "L must be positive and finite, got 0.0"),
        ({"L": math.inf}, ValueError, "L must be positive and finite, got inf"),
        ({"L": 0.5}, ValueError, "mu must not exceed L, got mu=1.0, L=0.5"),
        ({"size": 0}, ValueError, "size must be a positive integer, got 0"),
        ({"size": 2.5}, ValueError, "size must be a positive integer, got 2.5"),
        ({"size": math.nan}, ValueError, "size must be a positive integer, got nan"),
        ({"size": "two"}, (TypeError, ValueError), "size must be a positive integer, got 'two'"),
        ({"smooth": OnlyValue()}, TypeError, "smooth must offer value and gradient"),
        ({"smooth": None}, TypeError, "smooth must offer value and gradient, None lacks value and gradient"),
        ({"prox": OnlyValue()}, TypeError, "lacks prox"),
        ({"prox": 3.0}, TypeError, "prox must offer value and prox, 3.0 lacks value and prox"),
        ({"prox": ElasticNet(1.0, 0.0), "mu": 0.0}, ValueError, "mu must be positive and finite, got 0.0"),
        ({"prox": ElasticNet(1.0, 1.0), "mu": -1.0}, ValueError, "mu must be non-negative and finite, got -1.0"),
    ],
)
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Composite(**{"smooth": SMOOTH, "prox": Zero(), "mu": 1.0, "L": 4.0} | arguments)
