r"""Losses psi(m, y) of generalised linear models: half their unit deviances, up to terms without m.

    Poisson            mean mu = exp(m),          y >= 0        psi = exp(m) - y m
    Tweedie(p)         mu = exp(m), 1 < p < 2,    y >= 0        psi = exp((2-p) m)/(2-p) + y exp(-(p-1) m)/(p-1)
    Gamma              mu = exp(m),               y > 0         psi = y exp(-m) + m
    NegativeBinomial   mu = exp(m), k = 1/theta,  y >= 0        psi = (y + k) log(1 + exp(m)/k) - y m
    Binomial           mu = sigm(m),              0 <= y <= 1   psi = log(1 + exp(m)) - y m     (y: a share of trials)

The first three are one: Poisson's and Gamma's are the limits of Tweedie's for p = 1 and 2, but for constants. So are
the last two. The variance of y is proportional to mu, mu^p, mu^2, mu + theta mu^2 and mu (1 - mu). All are convex, and
what a verified solution needs, |psi'''| <= M psi'', holds with M = 1:

    psi''' = (2-p)^2 e^((2-p) m) - (p-1)^2 y e^(-(p-1) m),    |psi'''| <= max(2-p, p-1) psi''  <=  psi'';

with s = exp(m)/(k + exp(m)) or sigm(m), psi'' = c s (1 - s) and psi''' = (1 - 2 s) psi''. The inverse Gaussian with a
log link, psi = y exp(-2m)/2 - exp(-m), is not among them: psi'' = 2 y exp(-2m) - exp(-m) is negative where mu > 2 y, so
that it may have several minimisers, and none is proven.

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
from suffice.models.margin_losses import SQUARED, MarginLoss, Real, rate, sigmoid

NEAR = 0.5  # of 0: within it, `bent` is an integral
_nodes, _weights = np.polynomial.legendre.leggauss(8)
NODES = 0.5 * (_nodes + 1.0)
WEIGHTS = 0.5 * _weights * (1.0 - NODES)


def bent(t: Array) -> Array:
    """exp(t) - 1 - t, to nearly full relative accuracy: t^2 int_0^1 (1 - s) exp(s t) ds near 0."""
    with np.errstate(over="ignore"):
        near = np.abs(t) < NEAR
        u = np.where(near, t, 0.0)
        inside = u * u * sum(w * np.exp(node * u) for node, w in zip(NODES, WEIGHTS, strict=True))
        return np.where(near, inside, np.expm1(t) - t)


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
        return np.where(near, inside, np.where(w < 30.0, far, beyond))


class Exponentials(Real):
    """A sum of two exponentials: the margin is the logarithm of a mean, and variances are like mean^power."""

    curvature: float = math.inf
    third: ClassVar[float] = 1.0
    power: float  # 1 <= power <= 2; 2 - power and power - 1 are exact

    def targets(self, y: Any) -> Array:
        targets = super().targets(y)
        if (targets < 0.0).any():
            raise ValueError(f"y must not be negative, got {float(targets.min())!r}")
        if self.power == 2.0 and not (targets > 0.0).all():
            raise ValueError(f"y must be positive, got {float(targets.min())!r}")
        return targets

    def _parts(self, m: Array, y: Array) -> tuple[Array, Array]:
        """exp((2-p) m) and y exp(-(p-1) m)."""
        xp, c, d = namespace(m), 2.0 - self.power, self.power - 1.0
        rising = rate(c * m) if c else xp.ones_like(m)
        if d == 0.0:
            return rising, y
        return rising, xp.where(y > 0.0, rate(-d * m, xp.where(y > 0.0, y, xp.ones_like(y))), 0.0 * m)

    def value(self, m: Array, y: Array) -> Array:
        (rising, falling), c, d = self._parts(m, y), 2.0 - self.power, self.power - 1.0
        return (rising / c if c else m) + (falling / d if d else -y * m)

    def derivative(self, m: Array, y: Array) -> Array:
        rising, falling = self._parts(m, y)
        return rising - falling

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        if m is n:
            return self.second(m, y)
        return namespace(m).maximum(self.second(m, y), self.second(n, y))  # of a convex psi''

    def second(self, m: Array, y: Array) -> Array:
        (rising, falling), c, d = self._parts(m, y), 2.0 - self.power, self.power - 1.0
        if c == 0.0 or d == 0.0:
            return rising if c else falling
        return c * rising + d * falling

    def best(self, y: Array) -> Array:
        """The minimiser of psi over m; -infinity for y = 0."""
        with np.errstate(divide="ignore"):
            return np.log(y)

    def excess(self, m: Array, y: Array) -> Array:
        """psi less its infimum over m, half the unit deviance: y^(2-p) (bent((2-p) t)/(2-p) + bent(-(p-1) t)/(p-1)),
        t = m - log(y), and exp((2-p) m)/(2-p) for y = 0."""
        c, d = 2.0 - self.power, self.power - 1.0
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            t = np.where(y > 0.0, m - np.log(y), 0.0)
            some: Any = (bent(c * t) / c if c else 0.0) + (bent(-d * t) / d if d else 0.0)
            return np.where(y > 0.0, y**c * some, np.exp(c * m) / c) if c else some


@dataclass(frozen=True)
class Poisson(Exponentials):
    """psi = exp(m) - y m for counts y >= 0: the rate of row i is exp(m_i)."""

    power = 1.0


@dataclass(frozen=True)
class Gamma(Exponentials):
    """psi = y exp(-m) + m for y > 0: the mean of row i is exp(m_i), its standard deviation proportional to that."""

    power = 2.0


@dataclass(frozen=True)
class Tweedie(Exponentials):
    """psi = exp((2-p) m)/(2-p) + y exp(-(p-1) m)/(p-1), 1 < p < 2, for y >= 0 with a share of zeros, such as the
    cost of claims: the mean of row i is exp(m_i), its variance proportional to mean^p. `tweedie` has powers 0, 1
    and 2."""

    power: float = 1.5

    def __post_init__(self) -> None:
        if not 1.0 < self.power < 2.0:
            raise ValueError(f"power must lie between 1 and 2, got {self.power!r}")

    def slope_size(self, m: Array, y: Array) -> Array:
        rising, falling = self._parts(m, y)
        with np.errstate(over="ignore"):
            return (rising + falling) * (1.0 + 0.25 * abs(m))  # exponents are products, rounded relative to m


class Shares(Real):
    """psi = (y + r) log(1 + exp(m)/k) - y m, with r = `fails(y)` >= 0."""

    third: ClassVar[float] = 1.0
    shift = 0.0  # log k

    def fails(self, y: Array) -> float | Array:
        raise NotImplementedError

    def value(self, m: Array, y: Array) -> Array:
        n = m - self.shift
        xp, size = namespace(n), abs(n)
        return (y + self.fails(y)) * (0.5 * (size + n) + xp.log1p(xp.exp(-size))) - y * m

    def derivative(self, m: Array, y: Array) -> Array:
        n = m - self.shift
        return self.fails(y) * sigmoid(n) - y * sigmoid(-n)

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        xp, m, n = namespace(m), m - self.shift, n - self.shift
        nearest = xp.where(m * n > 0.0, xp.minimum(xp.abs(m), xp.abs(n)), 0.0)
        return (y + self.fails(y)) * sigmoid(nearest) * sigmoid(-nearest)

    def second(self, m: Array, y: Array) -> Array:
        n = m - self.shift
        return (y + self.fails(y)) * sigmoid(n) * sigmoid(-n)

    def slope_size(self, m: Array, y: Array) -> Array:
        n = m - self.shift
        size = self.fails(y) * sigmoid(n) + y * sigmoid(-n)
        return (
            size + (0.25 * abs(n) + 0.5 * abs(self.shift)) * self.second(m, y) if self.shift else size
        )  # n is rounded

    def best(self, y: Array) -> Array:
        """The minimiser of psi over m, which may be infinite."""
        with np.errstate(divide="ignore"):
            return np.log(y / self.fails(y)) + self.shift

    def excess(self, m: Array, y: Array) -> Array:
        r = self.fails(y)
        inside = (y > 0.0) & (r > 0.0)
        s, q = (np.where(inside, part, 0.5 * (y + r)) / (y + r) for part in (y, r))
        with np.errstate(invalid="ignore"):
            t = np.where(inside, m - self.best(y), 0.0)
            end = np.logaddexp(0.0, np.where(r > 0.0, m - self.shift, self.shift - m))
            return (y + r) * np.where(inside, bernoulli_bent(s, q, t), end)


@dataclass(frozen=True)
class NegativeBinomial(Shares):
    """psi = (y + k) log(1 + exp(m)/k) - y m, k = 1/theta, for counts y >= 0: the mean of row i is mu = exp(m_i), its
    variance mu + theta mu^2."""

    theta: float = 1.0
    curvature: float = math.inf  # it is (y + k)/4, whatever y is

    def __post_init__(self) -> None:
        positive(self.theta, "theta")

    @property
    def shift(self) -> float:  # type: ignore[override]
        return math.log(1.0 / self.theta)

    def fails(self, y: Array) -> float | Array:
        return 1.0 / self.theta

    def targets(self, y: Any) -> Array:
        return POISSON.targets(y)

    def best(self, y: Array) -> Array:
        return POISSON.best(y)


@dataclass(frozen=True)
class Binomial(Shares):
    """psi = log(1 + exp(m)) - y m for shares 0 <= y <= 1 of trials that succeed: their probability is sigm(m_i). A row
    of n trials has n times the weight."""

    curvature: float = 0.25

    def fails(self, y: Array) -> float | Array:
        return 1.0 - y

    def targets(self, y: Any) -> Array:
        targets = super().targets(y)
        if not ((targets >= 0.0) & (targets <= 1.0)).all():
            raise ValueError("y must lie between 0 and 1: shares of trials that succeed")
        return targets


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


POISSON, GAMMA, BINOMIAL = Poisson(), Gamma(), Binomial()
