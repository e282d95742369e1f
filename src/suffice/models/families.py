r"""Losses psi(m, y) of generalised linear models: half their unit deviances, up to terms without m.

    Gamma              mean mu = exp(m),          y > 0         psi = y exp(-m) + m
    Tweedie(p)         mu = exp(m), 1 < p < 2,    y >= 0        psi = exp((2-p) m)/(2-p) + y exp(-(p-1) m)/(p-1)
    NegativeBinomial   mu = exp(m), k = 1/theta,  y >= 0        psi = (y + k) log(1 + exp(m)/k) - y m
    Binomial           mu = sigm(m),              0 <= y <= 1   psi = log(1 + exp(m)) - y m     (y: a share of trials)

The variance of y is proportional to mu^2, mu^p, mu + theta mu^2 and mu (1 - mu). All are convex, and what a verified
solution needs, |psi'''| <= M psi'', holds with M = 1 for all but Tweedie's, which is a sum of exponentials:

    psi''' = (2-p)^2 e^((2-p) m) - (p-1)^2 y e^(-(p-1) m),    |psi'''| <= max(2-p, p-1) psi''  <=  psi''.

Gamma: psi''' = -psi''. Negative binomial and binomial, with s = exp(m)/(k + exp(m)) or sigm(m): psi'' = c s (1 - s),
psi''' = (1 - 2 s) psi''. The inverse Gaussian with a log link, psi = y exp(-2m)/2 - exp(-m), is not among them: psi'' =
2 y exp(-2m) - exp(-m) is negative where mu > 2 y, so that it may have several minimisers, and none is proven.

A difference of exponentials is rounded relative to its parts, not to itself. `slope_size` is no less than
|psi'|, and psi' as computed errs by no more than four units of rounding, 4 u, times it.

`excess` is psi(m, y) - min_m psi, half a unit deviance. Where m is within 1/2 of the minimiser m*, it is

    (m - m*)^2 int_0^1 (1 - t) psi''(m* + t (m - m*)) dt        by eight nodes of Gauss and Legendre,

a sum of positive parts in which nothing cancels. The integrand is analytic within pi of the real axis, so that the
nodes err by less than 1e-19 relative to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from suffice.arrays import Array, namespace, positive
from suffice.models.margin_losses import (
    NEAR,
    NODES,
    POISSON,
    SQUARED,
    WEIGHTS,
    LogMean,
    MarginLoss,
    Real,
    bent,
    rate,
    sigmoid,
)


def bernoulli_bent(s: Array, q: Array, u: Array) -> Array:
    """log(q + s exp(u)) - s u for s, q = 1 - s > 0, to nearly full relative accuracy.

    It is the same for (q, s, -u). Away from u = 0 that of the two is taken whose s is at most 1/2: its parts cancel no
    more than a few digits.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        near = np.abs(u) < NEAR
        v = np.where(near, u, 0.0)
        e = [np.exp(node * v) for node in NODES]
        inside = s * q * v * v * sum(w * part / (q + s * part) ** 2 for part, w in zip(e, WEIGHTS, strict=True))
        small, large, w = np.minimum(s, q), np.maximum(s, q), np.where(s <= q, u, -u)
        # log(q + s e^w) = w + log(s + q e^-w), for a w whose exponential may overflow.
        far = np.log1p(small * np.expm1(np.minimum(w, 30.0))) - small * w
        beyond = large * w + np.log(small + large * np.exp(-np.maximum(w, 0.0)))
        result: Array = np.where(near, inside, np.where(w < 30.0, far, beyond))
    return result


@dataclass(frozen=True)
class Gamma(LogMean):
    """psi = y exp(-m) + m for y > 0: the mean of row i is exp(m_i), its standard deviation proportional to that."""

    curvature: float = math.inf
    third: ClassVar[float] = 1.0

    def targets(self, y: Any) -> Array:
        targets = super().targets(y)
        if not (targets > 0.0).all():
            raise ValueError(f"y must be positive, got {float(targets.min())!r}")
        return targets

    def value(self, m: Array, y: Array) -> Array:
        return rate(-m, y) + m

    def derivative(self, m: Array, y: Array) -> Array:
        return 1.0 - rate(-m, y)

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        return rate(-namespace(m).minimum(m, n), y)

    def second(self, m: Array, y: Array) -> Array:
        return rate(-m, y)

    def excess(self, m: Array, y: Array) -> Array:
        return bent(np.log(y) - m)


@dataclass(frozen=True)
class Tweedie(LogMean):
    """psi = exp((2-p) m)/(2-p) + y exp(-(p-1) m)/(p-1), 1 < p < 2, for y >= 0 with a share of zeros, such as the
    cost of claims: the mean of row i is exp(m_i), its variance proportional to mean^p. `tweedie` has powers 0, 1
    and 2."""

    power: float = 1.5
    curvature: float = math.inf
    third: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not 1.0 < self.power < 2.0:
            raise ValueError(f"power must lie between 1 and 2, got {self.power!r}")

    def _parts(self, m: Array, y: Array) -> tuple[Array, Array]:
        """exp((2-p) m) and y exp(-(p-1) m); 2 - p and p - 1 are exact."""
        xp = namespace(m)
        falling = xp.where(y > 0.0, rate(-(self.power - 1.0) * m, xp.where(y > 0.0, y, xp.ones_like(y))), 0.0 * m)
        return rate((2.0 - self.power) * m), falling

    def value(self, m: Array, y: Array) -> Array:
        rising, falling = self._parts(m, y)
        return rising / (2.0 - self.power) + falling / (self.power - 1.0)

    def derivative(self, m: Array, y: Array) -> Array:
        rising, falling = self._parts(m, y)
        return rising - falling

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        xp = namespace(m)  # a convex psi'' is largest at an end
        result: Array = xp.maximum(self.second(m, y), self.second(n, y))
        return result

    def second(self, m: Array, y: Array) -> Array:
        rising, falling = self._parts(m, y)
        return (2.0 - self.power) * rising + (self.power - 1.0) * falling

    def slope_size(self, m: Array, y: Array) -> Array:
        rising, falling = self._parts(m, y)
        with np.errstate(over="ignore"):
            return (rising + falling) * (1.0 + 0.25 * abs(m))  # exponents are products, rounded relative to m

    def excess(self, m: Array, y: Array) -> Array:
        return tweedie_excess(self.power, m, y)


def tweedie_excess(p: float, m: Array, y: Array) -> Array:
    """Half the unit deviance of y and exp(m), 1 <= p < 2: y^(2-p) (bent((2-p) t)/(2-p) + bent(-(p-1) t)/(p-1)),
    t = m - log(y), and exp((2-p) m)/(2-p) for y = 0."""
    c, d = 2.0 - p, p - 1.0
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        t = np.where(y > 0.0, m - np.log(y), 0.0)
        some = bent(c * t) / c + (bent(-d * t) / d if d > 0.0 else 0.0)
        result: Array = np.where(y > 0.0, y**c * some, np.exp(c * m) / c)
    return result


@dataclass(frozen=True)
class NegativeBinomial(LogMean):
    """psi = (y + k) log(1 + exp(m)/k) - y m, k = 1/theta, for counts y >= 0: the mean of row i is mu = exp(m_i), its
    variance mu + theta mu^2."""

    theta: float = 1.0
    curvature: float = math.inf  # it is (y + k)/4, whatever y is
    third: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        positive(self.theta, "theta")

    @property
    def _k(self) -> float:
        return 1.0 / self.theta

    def _shifted(self, m: Array) -> Array:
        return m - math.log(self._k)

    def value(self, m: Array, y: Array) -> Array:
        xp, n = namespace(m), self._shifted(m)
        size = xp.abs(n)
        result: Array = (y + self._k) * (0.5 * (size + n) + xp.log1p(xp.exp(-size))) - y * m
        return result

    def derivative(self, m: Array, y: Array) -> Array:
        n = self._shifted(m)
        return self._k * sigmoid(n) - y * sigmoid(-n)

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        xp, m, n = namespace(m), self._shifted(m), self._shifted(n)
        nearest = xp.where(m * n > 0.0, xp.minimum(xp.abs(m), xp.abs(n)), 0.0)
        return (y + self._k) * sigmoid(nearest) * sigmoid(-nearest)

    def second(self, m: Array, y: Array) -> Array:
        n = self._shifted(m)
        return (y + self._k) * sigmoid(n) * sigmoid(-n)

    def slope_size(self, m: Array, y: Array) -> Array:
        n = self._shifted(m)
        of_shift = 0.25 * abs(n) + 0.5 * abs(math.log(self._k))  # n is a rounded sum
        return self._k * sigmoid(n) + y * sigmoid(-n) + of_shift * self.second(m, y)

    def excess(self, m: Array, y: Array) -> Array:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            t = np.where(y > 0.0, m - np.log(y), 0.0)
            s = np.where(y > 0.0, y, self._k) / (y + self._k)
            some = (y + self._k) * bernoulli_bent(s, self._k / (y + self._k), t)
            none = self._k * np.logaddexp(0.0, self._shifted(m))
            result: Array = np.where(y > 0.0, some, none)
        return result


@dataclass(frozen=True)
class Binomial(Real):
    """psi = log(1 + exp(m)) - y m for shares 0 <= y <= 1 of trials that succeed: their probability is sigm(m_i). A row
    of n trials has n times the weight."""

    curvature: float = 0.25
    third: ClassVar[float] = 1.0

    def targets(self, y: Any) -> Array:
        targets = super().targets(y)
        if not ((targets >= 0.0) & (targets <= 1.0)).all():
            raise ValueError("y must lie between 0 and 1: shares of trials that succeed")
        return targets

    def value(self, m: Array, y: Array) -> Array:
        xp, size = namespace(m), abs(m)
        result: Array = 0.5 * (size + m) - y * m + xp.log1p(xp.exp(-size))
        return result

    def derivative(self, m: Array, y: Array) -> Array:
        return (1.0 - y) * sigmoid(m) - y * sigmoid(-m)

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        xp = namespace(m)
        nearest = xp.where(m * n > 0.0, xp.minimum(xp.abs(m), xp.abs(n)), 0.0)
        return sigmoid(nearest) * sigmoid(-nearest)

    def second(self, m: Array, y: Array) -> Array:
        return sigmoid(m) * sigmoid(-m)

    def slope_size(self, m: Array, y: Array) -> Array:
        return (1.0 - y) * sigmoid(m) + y * sigmoid(-m)

    def best(self, y: Array) -> Array:
        with np.errstate(divide="ignore"):
            result: Array = np.log(y / (1.0 - y))
        return result

    def excess(self, m: Array, y: Array) -> Array:
        inside = (y > 0.0) & (y < 1.0)
        s = np.where(inside, y, 0.5)
        some = bernoulli_bent(s, 1.0 - s, np.where(inside, m - np.log(s / (1.0 - s)), 0.0))
        result: Array = np.where(inside, some, np.logaddexp(0.0, np.where(y > 0.5, -m, m)))
        return result


def tweedie(power: float) -> MarginLoss:
    """The loss of Tweedie's family with variance mean^power and a log link (squares with none for power 0)."""
    known: dict[float, MarginLoss] = {0.0: SQUARED, 1.0: POISSON, 2.0: GAMMA}
    if power in known:
        return known[power]
    if 1.0 < power < 2.0:
        return Tweedie(float(power))
    raise ValueError(
        f"power must be 0, 1, 2 or lie between 1 and 2, got {power!r}: with a log link the deviance is not convex "
        "for any other, and no minimiser can be proven; power=2 (Gamma) is nearest to the inverse Gaussian's 3"
    )


GAMMA, BINOMIAL = Gamma(), Binomial()
