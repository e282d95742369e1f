r"""Convex terms g with a cheap prox, and what certificates and Newton's method need to know about them.

For a step t > 0, prox_{t g}(v) = argmin_x g(x) + ||x - v||^2 / (2t). Besides `value` and `prox`, each term offers

- `remainder(x, v, mu)`: the point w_bar = prox_{g/mu}(v/mu), whose optimality puts p = v - mu w_bar into dg(w_bar),
  and the Bregman remainder  B = g(x) - g(w_bar) - <p, x - w_bar> >= 0.  Both duality-gap certificates are built on
  B; it is summed here from non-negative parts, so that nothing cancels when x is nearly optimal.
- `least_subgradient(x, gradient)`: the element of gradient + dg(x) of smallest norm.

Terms of single variables are  g = sum_j l1_j |x_j|  for  lower_j <= x_j <= upper_j,  infinite elsewhere. With  s =
soft(v, l1),  w_bar = clip(s/mu),  p falls into p1 = v - s in the subdifferential of the l1 part and p2 = s - mu w_bar
in that of the bounds, and

    B = sum_j (l1_j |x_j| - p1_j x_j)  +  sum_j p2_j (w_bar_j - x_j)

is a sum of two that are not negative. In the same way l1 takes up what it can of the gradient, and the bounds of what
is left. Groups of variables are in `suffice.penalties.groups`.

A user's own term needs `value` and `prox` only (see `solvers.problem.Composite`): the remainder then follows from the
definition, with an allowance for its cancellation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, frozen, namespace, positive
from suffice.models.smooth import Made
from suffice.protocols import conforms

Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


@runtime_checkable
class Prox(Protocol):
    """A convex, lower semicontinuous g: all that a solver needs."""

    def value(self, x: Array) -> float:
        """g(x), which may be infinite."""

    def prox(self, v: Array, step: float) -> Array:
        """argmin over x of g(x) + ||x - v||^2 / (2 step)."""


@runtime_checkable
class CertifiableProx(Prox, Protocol):
    """A g that also knows its subdifferential: all that the certificates need."""

    def remainder(self, x: Array, v: Array, mu: float) -> tuple[Array, float]: ...

    def least_subgradient(self, x: Array, gradient: Array) -> Array: ...


@runtime_checkable
class Structured(CertifiableProx, Protocol):
    """A g that knows where it is smooth: all that Newton's method needs."""

    def fixed(self, x: Array) -> Mask:
        """Which variables are at a kink of g, or at a bound."""

    def smooth_part(self, x: Array, free: Indices) -> tuple[Array, Array | None]:
        """The gradient and the Hessian of g on variables that are not fixed; None for a Hessian that is 0."""

    def on(self, working: Indices, size: int) -> Structured:
        """g on some of `size` variables, which are `whole`."""

    def whole(self, working: Mask) -> Mask:
        """The least set of variables that holds these and can be told apart from the others."""

    def change(self, x: Array, other: Array) -> float:
        """g(other) - g(x), for points where g is finite."""

    def slope(self, x: Array, direction: Array) -> float:
        """The derivative of g along the direction at x, from the left: that of the way which has led there."""


def soft(v: Any, threshold: Any) -> Array:
    """Soft thresholding: sign(v) max(|v| - threshold, 0), of arrays of any kind."""
    xp = namespace(v)
    return v - xp.minimum(xp.maximum(v, -threshold), threshold)


def l1_remainder(l1: float | Array, x: Array, v: Array, mu: float) -> tuple[Array, float]:
    """`remainder` of sum_i l1_i |x_i|, one l1 for all i or one each."""
    # In place and without np.clip and np.sum, whose wrappers cost more than their arithmetic: see the price of
    # certificates in benchmarks/certified_solves.py.
    p = np.maximum(v, -l1)
    np.minimum(p, l1, out=p)
    w_bar = v - p
    w_bar /= mu
    # l1 |x| - p x as (l1 - p sign x) |x|: a difference of two numbers, not of two products.
    p *= np.sign(x)
    np.subtract(l1, p, out=p)
    p *= np.abs(x)
    return w_bar, float(p.sum())


def l1_least_subgradient(l1: Any, x: Any, gradient: Any) -> Array:
    """The shortest element of gradient + d(sum_i l1_i |x_i|), of arrays of any kind."""
    xp = namespace(x)
    return xp.where(x == 0, soft(gradient, l1), gradient + l1 * xp.sign(x))


class Separable(Made):
    """g = sum_j l1_j |x_j| for lower <= x <= upper and infinite elsewhere; each a number or one for every variable."""

    l1: Any
    lower: Any = -math.inf
    upper: Any = math.inf

    def value(self, x: Array) -> float:
        inside = bool(np.all((self.lower <= x) & (x <= self.upper)))
        return float((self.l1 * np.abs(x)).sum()) if inside else math.inf

    def prox(self, v: Array, step: float) -> Array:
        return np.clip(soft(v, step * self.l1), self.lower, self.upper)

    def remainder(self, x: Array, v: Array, mu: float) -> tuple[Array, float]:
        s, of_l1 = l1_remainder(self.l1, x, v, mu)
        w_bar = np.clip(s, self.lower, self.upper)
        if self.value(x) == math.inf:
            return w_bar, math.inf
        return w_bar, of_l1 + float(np.maximum(mu * (s - w_bar) * (w_bar - x), 0.0).sum())

    def least_subgradient(self, x: Array, gradient: Array) -> Array:
        # At a bound the normal cone takes up all that points outside.
        rising = gradient + np.where(x >= 0.0, self.l1, -np.asarray(self.l1))  # along e_j
        falling = gradient + np.where(x > 0.0, self.l1, -np.asarray(self.l1))  # along -e_j, negated
        low, high = x <= self.lower, x >= self.upper
        least = l1_least_subgradient(self.l1, x, gradient)
        least = np.where(low, np.minimum(rising, 0.0), least)
        least = np.where(high, np.maximum(falling, 0.0), least)
        return np.where(low & high, 0.0, least)

    def fixed(self, x: Array) -> Mask:
        kink = (x == 0.0) & (np.asarray(self.l1) > 0.0)
        return kink | (x <= self.lower) | (x >= self.upper)

    def smooth_part(self, x: Array, free: Indices) -> tuple[Array, Array | None]:
        return np.broadcast_to(self.l1, x.shape)[free] * np.sign(x[free]), None

    @property
    def _parts(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]

    def check_size(self, size: int) -> None:
        check_shapes(self._parts, size)

    def on(self, working: Indices, size: int) -> Separable:
        return type(self)(*(np.broadcast_to(part, size)[working] for part in self._parts.values()))

    def whole(self, working: Mask) -> Mask:
        return working

    def change(self, x: Array, other: Array) -> float:
        return float((self.l1 * (np.abs(other) - np.abs(x))).sum())

    def slope(self, x: Array, direction: Array) -> float:
        return float((self.l1 * np.where(x != 0.0, np.sign(x) * direction, -np.abs(direction))).sum())


class Lasso(Separable):
    """sum_j l1_j |x_j|, without bounds."""

    def value(self, x: Array) -> float:
        return float((self.l1 * np.abs(x)).sum())

    def prox(self, v: Array, step: float) -> Array:
        return soft(v, step * self.l1)

    def remainder(self, x: Array, v: Array, mu: float) -> tuple[Array, float]:
        return l1_remainder(self.l1, x, v, mu)

    def least_subgradient(self, x: Array, gradient: Array) -> Array:
        return l1_least_subgradient(self.l1, x, gradient)

    def on(self, working: Indices, size: int) -> Lasso:
        return WeightedL1(self.l1[working]) if np.ndim(self.l1) else self


@dataclass(frozen=True)
class Zero(Lasso):
    """g = 0."""

    l1 = 0.0

    def prox(self, v: Array, step: float | Array) -> Array:
        return v


@dataclass(frozen=True)
class L1(Lasso):
    """g = l1 ||x||_1."""

    l1: float

    def __post_init__(self) -> None:
        positive(self.l1, "l1", zero=True)


@dataclass(frozen=True, eq=False)
class WeightedL1(Lasso):
    """g = sum_i l1_i |x_i|."""

    l1: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "l1", l1_weights(self.l1))


@dataclass(frozen=True)
class ElasticNet:
    """g = l1 ||x||_1 + (l2/2) ||x||^2; its strong convexity counts in full, as if it were part of f."""

    l1: float
    l2: float

    def __post_init__(self) -> None:
        positive(self.l1, "l1", zero=True)
        positive(self.l2, "l2", zero=True)

    def value(self, x: Array) -> float:
        return self.l1 * float(np.abs(x).sum()) + 0.5 * self.l2 * float(x @ x)

    def prox(self, v: Array, step: float) -> Array:
        return soft(v, step * self.l1) / (1.0 + step * self.l2)


def check_size(term: Prox, size: int) -> None:
    """Whether a term that knows which vectors it takes takes those of this size; raises ValueError if not."""
    check = getattr(term, "check_size", None)
    if callable(check):
        check(size)


@dataclass(frozen=True, eq=False)
class Box(Separable):
    """g = 0 inside lower <= x <= upper and infinite outside; numbers or vectors, either side may be infinite."""

    lower: float | Array
    upper: float | Array

    l1 = 0.0

    def __post_init__(self) -> None:
        try:
            lower, upper = np.asarray(self.lower, dtype=np.float64), np.asarray(self.upper, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"lower and upper must be numeric, got {self.lower!r} and {self.upper!r}") from error
        if max(lower.ndim, upper.ndim) > 1 or (lower.ndim == upper.ndim and lower.shape != upper.shape):
            raise ValueError(
                f"lower and upper must be numbers or vectors of one length, got shapes {lower.shape} and {upper.shape}"
            )
        if not np.all(lower <= upper):
            raise ValueError(f"lower must not exceed upper, got lower={self.lower!r}, upper={self.upper!r}")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)


def l1_weights(l1: Any) -> Array:
    weights = np.array(l1, dtype=np.float64)
    if weights.ndim > 1 or not (np.isfinite(weights).all() and (weights >= 0.0).all()):
        raise ValueError(f"l1 must be a number or a vector of finite, non-negative numbers, got {l1!r}")
    return frozen(weights)


def check_shapes(parts: Mapping[str, Any], size: int) -> None:
    for name, part in parts.items():
        if np.shape(part) not in ((), (size,)):
            raise ValueError(f"{name} must be a number or have shape ({size},), got {np.shape(part)}")


@dataclass(frozen=True, eq=False)
class BoxL1(Separable):
    """g = sum_j l1_j |x_j| for lower <= x <= upper and infinite elsewhere; numbers or vectors, bounds may be infinite,
    and 0 lies between them."""

    l1: Any
    lower: Any = 0.0
    upper: Any = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "l1", l1_weights(self.l1))
        for name in ("lower", "upper"):
            bound = np.array(getattr(self, name), dtype=np.float64)
            if bound.ndim > 1 or np.isnan(bound).any():
                raise ValueError(f"{name} must be a number or a vector of numbers, got {getattr(self, name)!r}")
            object.__setattr__(self, name, frozen(bound))
        if not (np.all(self.lower <= 0.0) and np.all(self.upper >= 0.0)):
            raise ValueError("lower must not be positive and upper not negative: 0 has to lie between them")

    @property
    def one_sided(self) -> bool:
        """Whether all bounds are lower bounds, of 0 or none."""
        lower = np.asarray(self.lower)
        return bool(np.all(np.isinf(self.upper)) and np.all((lower == 0.0) | np.isinf(lower)))


def NonNegative() -> Box:  # noqa: N802 (a term like the others)
    """g = 0 for x >= 0 and infinite elsewhere."""
    return Box(0.0, math.inf)


def Positive(l1: Any = 0.0) -> BoxL1:  # noqa: N802 (a term like the others)
    """g = sum_j l1_j x_j for x >= 0 and infinite elsewhere."""
    return BoxL1(l1, 0.0, math.inf)


@dataclass(frozen=True)
class Generic:
    """A user's `value` and `prox`, completed by definition: the remainder carries its own rounding."""

    term: Prox

    def value(self, x: Array) -> float:
        return float(self.term.value(x))

    def prox(self, v: Array, step: float) -> Array:
        return np.asarray(self.term.prox(v, step), dtype=np.float64)

    def remainder(self, x: Array, v: Array, mu: float) -> tuple[Array, float]:
        w_bar = self.prox(v / mu, 1.0 / mu)
        g_x, g_bar = self.value(x), self.value(w_bar)
        if not math.isfinite(g_x):
            return w_bar, math.inf
        products = (v - mu * w_bar) * (x - w_bar)
        rounding = 4 * EPS * (abs(g_x) + abs(g_bar) + float(np.abs(products).sum()))
        return w_bar, max(g_x - g_bar - float(products.sum()), 0.0) + rounding

    def least_subgradient(self, x: Array, gradient: Array) -> Array:
        raise TypeError(
            f"certificate='minimum_norm' needs prox.least_subgradient, which {type(self.term).__name__} does not offer"
        )


def certifiable(term: Prox) -> CertifiableProx:
    """`term` itself if it knows its subdifferential, else its completion by definition."""
    return cast("CertifiableProx", term) if conforms(term, CertifiableProx) else Generic(term)
