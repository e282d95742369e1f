r"""Losses psi(m, y) of a margin m and a target y, convex in m.

Each knows a bound on psi'', which may be infinite, and the largest psi'' between any two margins: what step lengths,
Hessians and the rounding of gradients are proven by. Where psi'' has no bound a rate such as exp(m) may leave the range
of floats. It is cut off there (`rate`), and a model whose rows come that far proves nothing.

A loss of your own is one class with these methods. With `targets` it also knows what y may hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from scipy.special import expit

from suffice.arrays import EPS, Array, namespace, positive

LARGEST_EXPONENT = 709.0  # exp of it is nearly the largest float
LARGEST = math.exp(LARGEST_EXPONENT) * (1.0 - 8.0 * EPS)  # no more than any library makes of it


class MarginLoss(Protocol):
    """psi(m, y) for a margin m and a target y, with 0 <= psi'' <= curvature, which may be infinite."""

    @property
    def curvature(self) -> float:
        """An upper bound of psi''."""

    def value(self, m: Array, y: Array) -> Array:
        """psi of every row."""

    def derivative(self, m: Array, y: Array) -> Array:
        """psi' of every row, with respect to m."""

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        """The largest psi'' between margins m and n; `LARGEST` where it is beyond the range of floats."""


@runtime_checkable
class Bending(Protocol):
    """A loss that can be verified without strong convexity (`suffice.prove.verified`): the third derivative of psi is
    no larger than `third` times the second, in absolute value."""

    third: ClassVar[float]

    def second(self, m: Array, y: Array) -> Array:
        """psi'' of every row, to nearly full relative accuracy but for errors of m that a method `blur(m, y)` tells."""


@runtime_checkable
class Kinked(Protocol):
    """A loss that is piecewise quadratic, psi'' = 0 or `curvature`: it can be verified as well."""

    def kink_distance(self, m: Array, y: Array) -> Array:
        """How far every margin is from where psi'' jumps."""


def signs(y: Any) -> tuple[Array, Any]:
    """Two-valued labels of any kind as -1 and 1, and the two labels in sorted order."""
    y = np.asarray(y)
    if y.dtype.kind == "f" and np.isnan(y).any():
        raise ValueError("y must hold two distinct labels, got NaN")
    classes = np.unique(y)
    if len(classes) != 2:
        shown = ", ".join(repr(label) for label in classes[:5].tolist())
        raise ValueError(f"y must hold exactly two distinct labels, got {len(classes)}: {shown}")
    return np.where(y == classes[1], 1.0, -1.0), classes


class Real:
    """A loss whose targets are numbers."""

    def targets(self, y: Any) -> Array:
        """y as the loss takes it; raises TypeError or ValueError for anything else."""
        try:
            targets = np.array(y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"y must be numeric, got dtype {y.dtype}") from error
        if not np.isfinite(targets).all():
            raise ValueError("y must be finite, got NaN or infinite entries")
        return targets


class Labelled:
    """A loss whose targets are two labels of any kind, taken as -1 and 1."""

    def targets(self, y: Any) -> Array:
        """y as the loss takes it; raises ValueError if there are not two labels."""
        return signs(y)[0]


def slope_and_bend(loss: MarginLoss, m: Array, y: Array) -> tuple[Array, Array]:
    """psi' and no less than psi'' of every row, at the price of one where they have it in common."""
    both = getattr(loss, "slope_and_bend", None)
    if both is not None:
        return both(m, y)
    return loss.derivative(m, y), loss.curvature_between(m, m, y)


def slope_size(loss: MarginLoss, slope: Array, bend: Array, m: Array, y: Array) -> Array:
    """What psi' is rounded relative to: |psi'| + psi'', which covers psi' = exp(m) - y, or what the loss says itself by
    a method `slope_size(m, y)`, or |psi'| where that is a difference and rounded once, whatever the units of y. It is
    no less than |psi'|, and psi' as computed errs by four units of rounding times it at most. `slope` is psi' at m,
    `bend` no less than psi''."""
    if isinstance(loss, Squared | Huber):
        return abs(slope)
    own = getattr(loss, "slope_size", None)
    size: Array = abs(slope) + bend
    return size if own is None else namespace(m).maximum(own(m, y), size)


def rate(t: Array, times: Array | None = None) -> Array:
    """exp(t), or `times` > 0 that, cut off at `LARGEST`: a row of weight 0 counts for nothing whatever its rate, and 0
    times infinity would be NaN."""
    xp = namespace(t)
    top = xp.full_like(t, LARGEST_EXPONENT)
    if times is None:
        return xp.exp(xp.minimum(t, top))
    top = xp.minimum(top, LARGEST_EXPONENT - xp.log(times))
    return xp.where(t < top, times * xp.exp(xp.minimum(t, top)), xp.full_like(t, LARGEST))


def sigmoid(m: Array) -> Array:
    """1/(1 + exp(-m)), wherever m lives."""
    if isinstance(m, np.ndarray):
        return expit(m)
    return 1.0 / (1.0 + namespace(m).exp(-m))  # exp overflows to infinity, without complaint outside NumPy


@dataclass(frozen=True)
class Squared(Real):
    """psi = (m - y)^2 / 2."""

    curvature: float = 1.0
    third: ClassVar[float] = 0.0

    def value(self, m: Array, y: Array) -> Array:
        return 0.5 * (m - y) ** 2

    def derivative(self, m: Array, y: Array) -> Array:
        return m - y

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        return np.broadcast_to(1.0, m.shape) if isinstance(m, np.ndarray) else namespace(m).ones_like(m)

    def second(self, m: Array, y: Array) -> Array:
        return self.curvature_between(m, m, y)


@dataclass(frozen=True)
class Logistic(Labelled):
    """psi = log(1 + exp(-y m)) for labels y in {-1, 1}."""

    curvature: float = 0.25
    third: ClassVar[float] = 1.0

    def value(self, m: Array, y: Array) -> Array:
        xp = namespace(m)
        size = xp.abs(m)
        return 0.5 * (size - y * m) + xp.log1p(xp.exp(-size))

    def derivative(self, m: Array, y: Array) -> Array:
        return -y * sigmoid(-y * m)

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        # psi'' = p (1 - p) falls with |margin|: it is largest at the end nearer to 0, or at 0 if that lies between.
        xp = namespace(m)
        nearest = xp.where(m * n > 0.0, xp.minimum(xp.abs(m), xp.abs(n)), 0.0)
        q = sigmoid(-nearest)  # at most 1/2, so that 1 - q cancels nothing
        return q * (1.0 - q)

    def second(self, m: Array, y: Array) -> Array:
        return sigmoid(m) * sigmoid(-m)

    def slope_and_bend(self, m: Array, y: Array) -> tuple[Array, Array]:
        q = sigmoid(-y * m)
        return -y * q, q * (1.0 - q) + EPS * q  # 1 - q is exact for q >= 1/2, but q is not


@dataclass(frozen=True)
class Huber(Real):
    """psi = (m - y)^2 / 2 up to |m - y| = delta, linear with slope delta beyond."""

    delta: float = 1.0
    curvature: float = 1.0

    def __post_init__(self) -> None:
        positive(self.delta, "delta")

    def value(self, m: Array, y: Array) -> Array:
        xp = namespace(m)
        size = xp.abs(m - y)
        return xp.where(size <= self.delta, 0.5 * size**2, self.delta * (size - 0.5 * self.delta))

    def derivative(self, m: Array, y: Array) -> Array:
        return namespace(m).clip(m - y, -self.delta, self.delta)

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        xp = namespace(m)
        low, high = xp.minimum(m, n) - y, xp.maximum(m, n) - y
        return xp.astype((low <= self.delta) & (high >= -self.delta), m.dtype)

    def kink_distance(self, m: Array, y: Array) -> Array:
        return abs(abs(m - y) - self.delta)


@dataclass(frozen=True)
class Quantile(Real):
    """psi for the quantile 0 < q < 1: the pinball loss rho(t) = max(q t, (q - 1) t) of t = y - m, smoothed by its
    Moreau envelope of width h > 0,

        psi = q t - h q^2/2  for t >= h q,   (q - 1) t - h (1 - q)^2/2  for t <= -h (1 - q),   t^2/(2 h)  in between.

    It is a proven distance away from rho: 0 <= rho - psi <= bias = h max(q, 1 - q)^2 / 2. So the minimum of any
    objective with psi in place of rho is less by at most the bias, and weights that minimise it minimise the objective
    with rho itself up to the bias. Weights of the two may be far from each other: rho alone has no curvature at all.
    """

    q: float = 0.5
    h: float = 1e-2

    def __post_init__(self) -> None:
        if not 0.0 < self.q < 1.0:
            raise ValueError(f"q must lie between 0 and 1, got {self.q!r}")
        positive(self.h, "h")

    @property
    def curvature(self) -> float:
        return 1.0 / self.h

    @property
    def bias(self) -> float:
        """The most by which psi is less than the pinball loss."""
        return 0.5 * self.h * max(self.q, 1.0 - self.q) ** 2

    def value(self, m: Array, y: Array) -> Array:
        xp, t = namespace(m), y - m
        slope = xp.clip(t / self.h, self.q - 1.0, self.q)
        return slope * (t - 0.5 * self.h * slope)

    def derivative(self, m: Array, y: Array) -> Array:
        return -namespace(m).clip((y - m) / self.h, self.q - 1.0, self.q)

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        xp = namespace(m)
        low, high = y - xp.maximum(m, n), y - xp.minimum(m, n)
        bent = (low <= self.h * self.q) & (high >= -self.h * (1.0 - self.q))
        return xp.astype(bent, m.dtype) / self.h

    def slope_size(self, m: Array, y: Array) -> Array:
        """What psi' is rounded relative to: (y - m)/h is that of a difference."""
        xp = namespace(m)
        return (xp.abs(y) + xp.abs(m)) / self.h + 1.0

    def kink_distance(self, m: Array, y: Array) -> Array:
        t = y - m
        return namespace(m).minimum(abs(t - self.h * self.q), abs(t + self.h * (1.0 - self.q)))


@dataclass(frozen=True)
class SquaredHinge(Labelled):
    """psi = max(0, 1 - y m)^2 for labels y in {-1, 1}."""

    curvature: float = 2.0

    def value(self, m: Array, y: Array) -> Array:
        return self._short(m, y) ** 2

    def derivative(self, m: Array, y: Array) -> Array:
        return -2.0 * y * self._short(m, y)

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        xp = namespace(m)
        return 2.0 * xp.astype(xp.minimum(y * m, y * n) < 1.0, m.dtype)

    def kink_distance(self, m: Array, y: Array) -> Array:
        return abs(1.0 - y * m)

    def _short(self, m: Array, y: Array) -> Array:
        xp, short = namespace(m), 1.0 - y * m
        return xp.maximum(short, xp.zeros_like(short))


SQUARED, LOGISTIC, HUBER, SQUARED_HINGE = Squared(), Logistic(), Huber(), SquaredHinge()
