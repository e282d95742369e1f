r"""Convex terms g with a cheap prox, and what a certificate needs to know about them.

For a step t > 0, prox_{t g}(v) = argmin_x g(x) + ||x - v||^2 / (2t). Besides `value` and `prox`, each term offers

- `remainder(x, v, mu)`: the point w_bar = prox_{g/mu}(v/mu), whose optimality puts p = v - mu w_bar into dg(w_bar),
  and the Bregman remainder  B = g(x) - g(w_bar) - <p, x - w_bar> >= 0.  Both duality-gap certificates are built on
  B; it is summed here from non-negative parts, so that nothing cancels when x is nearly optimal.
- `least_subgradient(x, gradient)`: the element of gradient + dg(x) of smallest norm.

A user's own term needs `value` and `prox` only (see `solvers.problem.Composite`): the remainder then follows from the
definition, with an allowance for its cancellation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, frozen, positive
from suffice.protocols import conforms


@runtime_checkable
class Prox(Protocol):
    """A convex, lower semicontinuous g: all that a solver needs."""

    def value(self, x: Array) -> float:
        """g(x), which may be infinite."""
        ...

    def prox(self, v: Array, step: float) -> Array:
        """argmin over x of g(x) + ||x - v||^2 / (2 step)."""
        ...


@runtime_checkable
class CertifiableProx(Prox, Protocol):
    """A g that also knows its subdifferential: all that the certificates need."""

    def remainder(self, x: Array, v: Array, mu: float) -> tuple[Array, float]: ...

    def least_subgradient(self, x: Array, gradient: Array) -> Array: ...


def soft(v: Array, threshold: float | Array) -> Array:
    """Soft thresholding: sign(v) max(|v| - threshold, 0)."""
    return v - np.clip(v, -threshold, threshold)


@dataclass(frozen=True)
class Zero:
    """g = 0."""

    def value(self, x: Array) -> float:
        return 0.0

    def prox(self, v: Array, step: float) -> Array:
        return v

    def remainder(self, x: Array, v: Array, mu: float) -> tuple[Array, float]:
        return v / mu, 0.0

    def least_subgradient(self, x: Array, gradient: Array) -> Array:
        return gradient


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


def l1_least_subgradient(l1: float | Array, x: Array, gradient: Array) -> Array:
    """The shortest element of gradient + d(sum_i l1_i |x_i|)."""
    return np.where(x == 0, soft(gradient, l1), gradient + l1 * np.sign(x))


@dataclass(frozen=True)
class L1:
    """g = l1 ||x||_1."""

    l1: float

    def __post_init__(self) -> None:
        positive(self.l1, "l1", zero=True)

    def value(self, x: Array) -> float:
        return self.l1 * float(np.abs(x).sum())

    def prox(self, v: Array, step: float) -> Array:
        return soft(v, step * self.l1)

    def remainder(self, x: Array, v: Array, mu: float) -> tuple[Array, float]:
        return l1_remainder(self.l1, x, v, mu)

    def least_subgradient(self, x: Array, gradient: Array) -> Array:
        return l1_least_subgradient(self.l1, x, gradient)


@dataclass(frozen=True, eq=False)
class WeightedL1:
    """g = sum_i l1_i |x_i|."""

    l1: Array

    def __post_init__(self) -> None:
        weights = np.array(self.l1, dtype=np.float64)
        if weights.ndim != 1 or not (np.isfinite(weights).all() and (weights >= 0.0).all()):
            raise ValueError(f"l1 must be a vector of finite, non-negative numbers, got {self.l1!r}")
        object.__setattr__(self, "l1", frozen(weights))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WeightedL1) and np.array_equal(self.l1, other.l1)

    __hash__ = None  # type: ignore[assignment]

    def check_size(self, size: int) -> None:
        if len(self.l1) != size:
            raise ValueError(f"l1 must have {size} entries, one per variable, got {len(self.l1)}")

    def value(self, x: Array) -> float:
        return float(self.l1 @ np.abs(x))

    def prox(self, v: Array, step: float) -> Array:
        return soft(v, step * self.l1)

    def remainder(self, x: Array, v: Array, mu: float) -> tuple[Array, float]:
        return l1_remainder(self.l1, x, v, mu)

    def least_subgradient(self, x: Array, gradient: Array) -> Array:
        return l1_least_subgradient(self.l1, x, gradient)


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

    def without_ridge(self) -> tuple[L1, float]:
        """The same g as (l1 part, l2): `Composite` moves the quadratic into f."""
        return L1(self.l1), self.l2


def check_size(term: Prox, size: int) -> None:
    """Whether a term that knows which vectors it takes takes those of this size; raises ValueError if not."""
    check = getattr(term, "check_size", None)
    if callable(check):
        check(size)


def _indices(group: npt.ArrayLike) -> npt.NDArray[np.intp]:
    array = np.asarray(group)
    if array.size and array.dtype.kind not in "iu":  # also a mask, which would be taken for the indices 0 and 1
        raise TypeError(f"groups must hold integers, got {array.dtype}")
    return array.astype(np.intp).ravel()


@dataclass(frozen=True, eq=False)
class Group:
    """g = sum_G weight_G ||x_G||_2 over groups that do not overlap (group lasso); indices in no group are free."""

    groups: Sequence[npt.ArrayLike]
    weights: float | Sequence[float]

    def __post_init__(self) -> None:
        groups = tuple(_indices(group) for group in self.groups)
        try:
            weights = np.broadcast_to(np.asarray(self.weights, dtype=np.float64), (len(groups),))
        except (TypeError, ValueError) as error:
            raise ValueError(f"weights must be a number or {len(groups)} numbers, got {self.weights!r}") from error
        members = np.concatenate(groups) if groups else np.empty(0, dtype=np.intp)
        if len(np.unique(members)) != len(members):
            raise ValueError("groups must not overlap or repeat an index")
        if members.size and members.min() < 0:
            raise ValueError(f"groups must hold non-negative indices, got {int(members.min())}")
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise ValueError(f"weights must be non-negative and finite, got {self.weights!r}")
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "_members", members)
        object.__setattr__(self, "_owner", np.repeat(np.arange(len(groups)), [len(group) for group in groups]))

    def check_size(self, size: int) -> None:
        members = self._array("_members")
        if members.size and members.max() >= size:
            raise ValueError(f"groups must hold indices below {size}, the number of weights, got {int(members.max())}")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Group)
            and np.array_equal(self._array("_members"), other._array("_members"))
            and np.array_equal(self._array("_owner"), other._array("_owner"))
            and np.array_equal(self._array("weights"), other._array("weights"))
        )

    __hash__ = None  # type: ignore[assignment]

    def _array(self, name: str) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = getattr(self, name)
        return array

    def owners(self, size: int) -> npt.NDArray[np.intp]:
        """The number of every variable's group, -1 for none."""
        owner = np.full(size, -1, dtype=np.intp)
        owner[self._array("_members")] = self._array("_owner")
        return owner

    def norms(self, x: Array) -> Array:
        """||x_G|| of every group."""
        owner, members = self._array("_owner"), self._array("_members")
        return np.sqrt(np.bincount(owner, weights=x[members] ** 2, minlength=len(self.groups)))

    def _scale_groups(self, x: Array, factors: Array) -> Array:
        scale = np.zeros(x.shape)
        scale[self._array("_members")] = factors[self._array("_owner")]
        return scale * x

    def _ball_part(self, v: Array, radii: Array) -> Array:
        """Each group of v projected to the ball of its radius; zero outside the groups."""
        norms = self.norms(v)
        factors = np.where(norms > radii, radii / np.where(norms > 0, norms, 1.0), 1.0)
        return self._scale_groups(v, factors)

    def value(self, x: Array) -> float:
        return float(self._array("weights") @ self.norms(x))

    def prox(self, v: Array, step: float) -> Array:
        return v - self._ball_part(v, step * self._array("weights"))

    def remainder(self, x: Array, v: Array, mu: float) -> tuple[Array, float]:
        # Per group with p = |p| e: weight ||x|| - <p, x> = (weight - |p|) ||x|| + |p| (||x|| - <e, x>), and the last
        # bracket is ||x - <e, x> e||^2 / (||x|| + <e, x>) where x and e do not point apart: nothing cancels.
        weights, p = self._array("weights"), self._ball_part(v, self._array("weights"))
        owner, members = self._array("_owner"), self._array("_members")
        sizes, outer = self.norms(x), self.norms(v)
        lengths = np.minimum(outer, weights)
        e = self._scale_groups(v, 1.0 / np.where(outer > 0, outer, 1.0))
        along: Array = np.bincount(owner, weights=(x * e)[members], minlength=len(self.groups)).astype(np.float64)
        across = self.norms(x - self._scale_groups(e, along))
        bend = np.where(along > 0, across**2 / np.where(along > 0, sizes + along, 1.0), sizes - along)
        return (v - p) / mu, float(np.sum((weights - lengths) * sizes + lengths * bend))

    def least_subgradient(self, x: Array, gradient: Array) -> Array:
        norms, weights = self.norms(x), self._array("weights")
        at_zero = gradient - self._ball_part(gradient, np.where(norms == 0, weights, 0.0))
        return at_zero + self._scale_groups(x, np.where(norms > 0, weights / np.where(norms > 0, norms, 1.0), 0.0))


@dataclass(frozen=True, eq=False)
class Box:
    """g = 0 inside lower <= x <= upper and infinite outside; numbers or vectors, either side may be infinite."""

    lower: float | Array
    upper: float | Array

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

    def check_size(self, size: int) -> None:
        for name in ("lower", "upper"):
            shape = np.shape(getattr(self, name))
            if shape not in ((), (size,)):
                raise ValueError(f"{name} must be a number or have shape ({size},), got {shape}")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Box)
            and np.array_equal(self.lower, other.lower)
            and np.array_equal(self.upper, other.upper)
        )

    __hash__ = None  # type: ignore[assignment]

    def value(self, x: Array) -> float:
        return 0.0 if bool(np.all((self.lower <= x) & (x <= self.upper))) else math.inf

    def prox(self, v: Array, step: float) -> Array:
        return np.clip(v, self.lower, self.upper)

    def remainder(self, x: Array, v: Array, mu: float) -> tuple[Array, float]:
        w_bar = np.clip(v / mu, self.lower, self.upper)
        if self.value(x) == math.inf:
            return w_bar, math.inf
        p = v - mu * w_bar
        return w_bar, float(np.maximum(p * (w_bar - x), 0.0).sum())

    def least_subgradient(self, x: Array, gradient: Array) -> Array:
        # At a bound only the part of the gradient that points back inside counts.
        inward_only = np.where(x <= self.lower, np.minimum(gradient, 0.0), gradient)
        inward_only = np.where(x >= self.upper, np.maximum(inward_only, 0.0), inward_only)
        return np.where(np.asarray(self.lower) == np.asarray(self.upper), 0.0, inward_only)


def NonNegative() -> Box:  # noqa: N802 (a term like the others)
    """g = 0 for x >= 0 and infinite elsewhere."""
    return Box(0.0, math.inf)


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
