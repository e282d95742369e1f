"""What is left of a loss after its Taylor series is never more than its bound; least values over boxes are least."""

import numpy as np
import pytest

from suffice.globally.expansions import (
    least_secant,
    most_bend,
    score_bend,
    score_remainder,
    slope_remainder,
    third,
)
from suffice.globally.surfaces import BoxQuadratic
from suffice.models.families import POISSON
from suffice.models.margin_losses import LOGISTIC, SQUARED
from suffice.prove.scores import BrierScore, DevianceScore, LogScore, SquaredScore

M = np.linspace(-6.0, 6.0, 61)[:, None]
S = np.concatenate([-np.geomspace(5.0, 1e-2, 25), np.geomspace(1e-2, 5.0, 25)])[None, :]
BLUR = 1e-13


@pytest.mark.parametrize("loss", [SQUARED, LOGISTIC, POISSON])
@pytest.mark.parametrize("y", [1.0, -1.0])
def test_slopes_of_training_losses(loss, y):
    m, s = np.broadcast_arrays(M, S)
    y = np.full(m.shape, y if loss is LOGISTIC else abs(y))
    series = loss.derivative(m, y) + loss.second(m, y) * s + 0.5 * third(loss, m, y) * s**2
    left = np.abs(loss.derivative(m + s, y) - series)
    bound = slope_remainder(loss, m, np.abs(s), y)
    assert np.all(left <= bound + BLUR * (1.0 + np.abs(series)))
    there = loss.second(m + s, y)
    least = least_secant(loss, m, np.abs(s), np.zeros(m.shape), y)
    assert np.all(least <= there) and np.all(there <= most_bend(loss, m, np.abs(s), y))


@pytest.mark.parametrize("loss", [SQUARED, LOGISTIC, POISSON])
@pytest.mark.parametrize("wide", [0.0, 0.3, 2.0])
def test_secants_of_slopes(loss, wide):
    """Between any two margins, one of them near m, slopes differ by no less than the least secant times their
    distance."""
    m, e = np.broadcast_arrays(M, S)
    y = np.ones(m.shape)
    least = least_secant(loss, m, np.full(m.shape, wide), np.abs(e), y)
    for n in (m - wide, m, m + wide, m + 0.4 * wide):
        secant = (loss.derivative(n + e, y) - loss.derivative(n, y)) / e
        assert np.all(least <= secant * (1.0 + 1e-9) + 1e-14 / np.abs(e))
    far = least_secant(loss, m, np.full(m.shape, wide), np.zeros(m.shape), y)
    assert np.all(far <= np.minimum(loss.second(m - wide, y), loss.second(m + wide, y)) * (1.0 + 1e-12))


@pytest.mark.parametrize("score", [SquaredScore(), LogScore(), BrierScore(), DevianceScore(POISSON)])
@pytest.mark.parametrize("y", [1.0, -1.0])
def test_held_out_losses(score, y):
    m, s = np.broadcast_arrays(M, S)
    y = np.full(m.shape, abs(y) if isinstance(score, DevianceScore) else y)

    def phi(at):
        return score.residuals(at, y) ** 2

    series = phi(m) + score.derivative(m, y) * s + 0.5 * score_bend(score, m, y) * s**2
    left = np.abs(phi(m + s) - series)
    assert np.all(left <= score_remainder(score, m, np.abs(s), y) + BLUR * (1.0 + np.abs(series) + phi(m + s)))


@pytest.mark.parametrize("seed", range(20))
def test_no_value_in_a_box_is_below_the_least(seed):
    rng = np.random.default_rng(seed)
    m = 1 + seed % 2
    q = BoxQuadratic(rng.standard_normal(), rng.standard_normal(m), rng.standard_normal(m * (m + 1) // 2))
    low = -rng.random(m)
    high = rng.random(m)
    least, where = q.least(low, high)
    values = [q(t) for t in low + rng.random((2000, m)) * (high - low)]
    assert least <= min(values) and least == pytest.approx(q(where), abs=1e-10)
    assert min(values) - least < 0.2  # and it is a value of the quadratic, not just a bound


def test_of_a_quadratic_that_is_singular_but_for_rounding_no_least_value_is_claimed():
    bends = [6.863935405140465e-25, 1.977113511194412e-24, 1.4237378433150853e-24]
    q = BoxQuadratic(2067072102.8235967, np.array([7.533458522250757e-08, 1.0849827218412329e-07]), np.array(bends))
    high = np.array([4.5e16, 1e-8])
    lowest = q.least(-high, high)[0]
    assert all(lowest <= q(t * high) for t in np.random.default_rng(0).uniform(-1.0, 1.0, (200, 2)))
