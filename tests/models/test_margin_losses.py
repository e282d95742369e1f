"""Losses of margins: their pieces, extreme margins, and the targets that they take."""

import math
import re

import numpy as np
import pytest

from suffice.problems import ElasticNetLogistic, ElasticNetModel, ElasticNetPoisson
from suffice.terms import LOGISTIC, POISSON, SQUARED, SQUARED_HINGE, Huber


def test_huber_is_quadratic_up_to_delta_and_linear_beyond():
    psi, y = Huber(2.0), np.zeros(5)
    m = np.array([-5.0, -2.0, 0.5, 2.0, 3.0])
    assert np.array_equal(psi.value(m, y), [8.0, 2.0, 0.125, 2.0, 4.0])
    assert np.array_equal(psi.derivative(m, y), [-2.0, -2.0, 0.5, 2.0, 2.0])
    assert np.array_equal(psi.curvature_between(m, np.array([-2.1, -2.0, 0.5, 9.0, 3.0]), y), [0.0, 1.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize("m", [800.0, -800.0, 1e8, -1e8])
def test_logistic_loss_survives_extreme_margins(m):
    y = np.array([1.0])
    assert LOGISTIC.value(np.array([m]), y)[0] == max(-m, 0.0)
    assert LOGISTIC.derivative(np.array([m]), y)[0] == (0.0 if m > 0 else -1.0)
    assert LOGISTIC.curvature_between(np.array([m]), np.array([2 * m]), y)[0] == 0.0


@pytest.mark.parametrize("delta", [0.0, -1.0, math.inf, math.nan])
def test_a_bad_delta_is_named(delta):
    with pytest.raises(ValueError, match=re.escape(f"delta must be positive and finite, got {delta!r}")):
        Huber(delta)


def test_a_model_of_any_loss_takes_the_targets_that_its_loss_takes():
    X, counts, words = np.eye(3), [2, 0, 1], ["yes", "no", "yes"]
    one, other = ElasticNetModel(X, words, LOGISTIC), ElasticNetLogistic(X, words)
    assert np.array_equal(one.y, other.y) and one.l1_max == other.l1_max
    one, other = ElasticNetModel(X, counts, POISSON), ElasticNetPoisson(X, counts)
    assert np.array_equal(one.y, other.y) and math.inf == one.at(l1=0.1, l2=0.1).smooth.L
    for loss, y, message in (
        (SQUARED, words, "y must be numeric"),
        (POISSON, [-1, 0, 1], "y must not be negative, got -1.0"),
        (SQUARED_HINGE, counts, "y must hold exactly two distinct labels, got 3"),
    ):
        with pytest.raises((TypeError, ValueError), match=re.escape(message)):
            ElasticNetModel(X, y, loss)


def test_a_loss_of_ones_own_need_not_know_its_targets():
    class Bare:
        curvature, value = 1.0, SQUARED.value
        derivative, curvature_between = SQUARED.derivative, SQUARED.curvature_between

    assert np.array_equal(ElasticNetModel(np.eye(2), [1, 2], Bare()).y, [1.0, 2.0])
