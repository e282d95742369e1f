r"""Losses of a margin, expanded: what is left of psi' and of phi after a few terms of their Taylor series.

A path m + s of margins has s = s1 + s2, s1 of first order. With psi the loss of training, phi that of held-out rows,

    |psi'(m + s) - psi' - psi'' s - 1/2 psi''' s1^2|  <=  R + 1/2 |psi'''| |s^2 - s1^2|,
    |phi(m + s) - phi - phi' s - 1/2 phi'' s^2|       <=  R.

For squares R = 0. The logistic loss and Poisson's have |psi'''| <= psi'' and |psi''''| <= psi'', so that psi'' changes
by no more than e^|s| and, with g(t) = e^t - 1 - t - t^2/2,  R = psi''(m) g(|s|) serves for both. The least counts:

    logistic, psi'   |s|^3/48, since |psi''''| <= 1/8; also (psi'' + psi''_max) |s| + psi'' s^2/2 (Poisson's as well),
    logistic, phi    0.09623 |s|^3/6, since |phi'''| <= 1/(6 sqrt(3)); also |s| + phi'' s^2/2, since |phi'| <= 1,
    Brier, phi = q^2, q = 1 - sigm(y m):  |phi'''| = q^2 (1 - q) |8 - 30 q + 24 q^2| <= 0.2031 and <= 8 q^2, and q grows
                     by no more than e^|s|.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from suffice.arrays import Array
from suffice.models.families import Poisson
from suffice.models.margin_losses import Logistic, Squared
from suffice.prove.scores import BrierScore, DevianceScore, LogScore, SquaredScore

LOSSES = (Squared, Logistic, Poisson)


def knows(score: object) -> bool:
    """Whether a held-out score is one of those below."""
    if isinstance(score, DevianceScore):
        return isinstance(score.loss, Poisson)
    return isinstance(score, SquaredScore | LogScore | BrierScore)


LOGISTIC_THIRD, LOGISTIC_FOURTH, BRIER_THIRD = 0.096226, 0.125, 0.2031  # rounded up
ROUNDED = 1.0 + 1e-12  # what a few roundings of these formulas come to, with room to spare


def third(loss: Any, m: Array, y: Array) -> Array:
    """psi''' of every row."""
    if isinstance(loss, Squared):
        return np.zeros_like(m)
    bend: Array = loss.second(m, y)
    return bend * (expit(-m) - expit(m)) if isinstance(loss, Logistic) else bend


def least_secant(loss: Any, m: Array, s: Array, d: Array, y: Array) -> Array:
    """No more than (psi'(n + e) - psi'(n))/e for any n of [m - s, m + s] and |e| <= d: least away from where psi bends
    most. For the logistic loss, with n = |m| + s, that is sigm(-n) sigm(n + d) (1 - e^-d)/d. With d = 0 it is the least
    psi'' on [m - s, m + s]."""
    if isinstance(loss, Squared):
        return np.ones_like(m)
    mean = np.divide(-np.expm1(-d), d, out=np.ones_like(d), where=d > 1e-300)
    if isinstance(loss, Logistic):
        far = np.abs(m) + s
        return np.asarray(expit(-far) * expit(far + d) * mean / ROUNDED)
    return np.asarray(loss.second(m - s, y) / ROUNDED * mean / ROUNDED)


def most_bend(loss: Any, m: Array, s: Array, y: Array) -> Array:
    """No less than psi'' anywhere on [m - s, m + s]."""
    if isinstance(loss, Squared):
        return np.ones_like(m)
    return np.asarray(loss.curvature_between(m - s, m + s, y) * ROUNDED)


def slope_remainder(loss: Any, m: Array, s: Array, y: Array) -> Array:
    """R of psi' for margins that move by no more than s."""
    if isinstance(loss, Squared):
        return np.zeros_like(m)
    bend: Array = loss.second(m, y)
    left = np.minimum(bend * _beyond_squares(s), (bend + most_bend(loss, m, s, y)) * s + 0.5 * bend * s * s)
    return ROUNDED * (np.minimum(left, LOGISTIC_FOURTH / 6.0 * s**3) if isinstance(loss, Logistic) else left)


def score_bend(score: Any, m: Array, y: Array) -> Array:
    """phi'' of every row."""
    if isinstance(score, SquaredScore):
        return np.full_like(m, 2.0)
    if isinstance(score, LogScore):
        return np.asarray(expit(m) * expit(-m))
    if isinstance(score, BrierScore):
        q = expit(-y * m)
        return np.asarray(2.0 * q * q * expit(y * m) * (2.0 - 3.0 * q))
    return 2.0 * np.exp(m)


def score_remainder(score: Any, m: Array, s: Array, y: Array) -> Array:
    """R of phi for margins that move by no more than s."""
    if isinstance(score, SquaredScore):
        return np.zeros_like(m)
    if isinstance(score, BrierScore):
        q = np.minimum(expit(-y * m) * np.exp(np.minimum(s, 700.0)), 1.0)
        return np.asarray(ROUNDED * (s**3 / 6.0 * np.minimum(BRIER_THIRD, 8.0 * q * q)))
    bend = score_bend(score, m, y)
    left: Array = bend * _beyond_squares(s)
    if isinstance(score, LogScore):
        left = np.minimum(np.minimum(left, LOGISTIC_THIRD / 6.0 * s**3), s + 0.5 * bend * s * s)
    return ROUNDED * left


def _beyond_squares(t: Array) -> Array:
    """No less than g(t), t >= 0."""
    small = np.minimum(t, 1.0)
    series = small**3 / 6.0 / (1.0 - 0.25 * small)
    large = np.clip(t, 1.0, 700.0)
    return np.where(t < 1.0, series, np.expm1(large) - large - 0.5 * large * large)
