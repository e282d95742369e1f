r"""Terms g that are sums of an l1 penalty and a structure: bounds on the weights, or groups of them.

    BoxL1         g = sum_j l1_j |x_j|,  lower_j <= x_j <= upper_j,  infinite elsewhere,      lower_j <= 0 <= upper_j
    SparseGroup   g = sum_j l1_j |x_j| + sum_G weight_G ||x_G||

Either prox is that of the l1 penalty followed by that of the structure, s = soft(v, l1) and then w_bar = clip(s/mu) or
the shrunken groups of s/mu. So p = v - mu w_bar, in dg(w_bar), falls into p1 = v - s in the subdifferential of the l1
part and p2 = s - mu w_bar in that of the structure, and the Bregman remainder

    B = sum_j (l1_j |x_j| - p1_j x_j)  +  remainder of the structure at x for p2

is a sum of two that are not negative, in which nothing cancels. In the same way the shortest element of gradient + dg
is found: l1 takes up what it can of the gradient, and the structure of what is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array, frozen
from suffice.penalties.prox import Group, l1_least_subgradient, l1_remainder, soft


def _weights(l1: Any) -> Array:
    weights = np.array(l1, dtype=np.float64)
    if weights.ndim > 1 or not (np.isfinite(weights).all() and (weights >= 0.0).all()):
        raise ValueError(f"l1 must be a number or a vector of finite, non-negative numbers, got {l1!r}")
    return frozen(weights)


def _check_l1(l1: Array, size: int) -> None:
    if l1.ndim == 1 and len(l1) != size:
        raise ValueError(f"l1 must have {size} entries, one per variable, got {len(l1)}")


@dataclass(frozen=True, eq=False)
class BoxL1:
    """g = sum_j l1_j |x_j| for lower <= x <= upper and infinite elsewhere; numbers or vectors, bounds may be infinite,
    and 0 lies between them."""

    l1: Any
    lower: Any = 0.0
    upper: Any = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "l1", _weights(self.l1))
        for name in ("lower", "upper"):
            bound = np.array(getattr(self, name), dtype=np.float64)
            if bound.ndim > 1 or np.isnan(bound).any():
                raise ValueError(f"{name} must be a number or a vector of numbers, got {getattr(self, name)!r}")
            object.__setattr__(self, name, frozen(bound))
        if not (np.all(self.lower <= 0.0) and np.all(self.upper >= 0.0)):
            raise ValueError("lower must not be positive and upper not negative: 0 has to lie between them")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoxL1):
            return False
        names = ("l1", "lower", "upper")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def check_size(self, size: int) -> None:
        for name in ("l1", "lower", "upper"):
            if np.shape(getattr(self, name)) not in ((), (size,)):
                raise ValueError(f"{name} must be a number or have shape ({size},)")

    def value(self, x: Array) -> float:
        if not bool(np.all((self.lower <= x) & (x <= self.upper))):
            return math.inf
        return float(np.sum(self.l1 * np.abs(x)))

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
        least = l1_least_subgradient(np.asarray(self.l1), x, gradient)
        least = np.where(low, np.minimum(rising, 0.0), least)
        least = np.where(high, np.maximum(falling, 0.0), least)
        return np.where(low & high, 0.0, least)

    @property
    def one_sided(self) -> bool:
        """Whether all bounds are lower bounds, of 0 or none."""
        lower = np.asarray(self.lower)
        return bool(np.all(np.isinf(self.upper)) and np.all((lower == 0.0) | np.isinf(lower)))

    def fixed(self, x: Array) -> npt.NDArray[np.bool_]:
        """Which variables are at a kink of g, or at a bound."""
        kink = (x == 0.0) & (self.l1 > 0.0)
        fixed: npt.NDArray[np.bool_] = kink | (x <= self.lower) | (x >= self.upper)
        return fixed

    def smooth_part(self, x: Array, free: npt.NDArray[np.intp]) -> tuple[Array, Array | None]:
        """The gradient and the Hessian of g on variables that are not fixed; None for a Hessian that is 0."""
        return np.broadcast_to(self.l1, x.shape)[free] * np.sign(x[free]), None

    def on(self, working: npt.NDArray[np.intp], size: int) -> BoxL1:
        """g on some of `size` variables."""
        parts = (np.broadcast_to(getattr(self, name), size)[working] for name in ("l1", "lower", "upper"))
        return BoxL1(*parts)

    def whole(self, working: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """The least set of variables that holds these and can be told apart from the others."""
        return working


@dataclass(frozen=True, eq=False)
class SparseGroup:
    """g = sum_j l1_j |x_j| + sum_G weight_G ||x_G||_2 over groups that do not overlap: the sparse group lasso. l1 is a
    number or one for each variable; with l1 = 0 it is the group lasso."""

    groups: Sequence[Any]
    weights: Any
    l1: Any = 0.0
    group: Group = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "group", Group(self.groups, self.weights))
        object.__setattr__(self, "groups", self.group.groups)
        object.__setattr__(self, "weights", self.group.weights)
        object.__setattr__(self, "l1", _weights(self.l1))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SparseGroup) and self.group == other.group and np.array_equal(self.l1, other.l1)

    __hash__ = None  # type: ignore[assignment]

    def check_size(self, size: int) -> None:
        self.group.check_size(size)
        _check_l1(np.asarray(self.l1), size)

    def value(self, x: Array) -> float:
        return self.group.value(x) + float(np.sum(self.l1 * np.abs(x)))

    def prox(self, v: Array, step: float) -> Array:
        return self.group.prox(soft(v, step * self.l1), step)

    def remainder(self, x: Array, v: Array, mu: float) -> tuple[Array, float]:
        s, of_l1 = l1_remainder(self.l1, x, v, mu)
        w_bar, of_groups = self.group.remainder(x, mu * s, mu)
        return w_bar, of_l1 + of_groups

    def least_subgradient(self, x: Array, gradient: Array) -> Array:
        # Where a group is zero its ball takes up what the l1 box has left; elsewhere the norm has one gradient.
        return self.group.least_subgradient(x, l1_least_subgradient(np.asarray(self.l1), x, gradient))

    def _norms(self, x: Array) -> Array:
        """||x_G|| of every variable's group, 0 for those in no group."""
        owner, _ = self._membership(len(x))
        return np.where(owner >= 0, np.append(self.group.norms(x), 0.0)[owner], 0.0)

    def _membership(self, size: int) -> tuple[npt.NDArray[np.intp], Array]:
        """The number of every variable's group, -1 for none, and its weight."""
        known = self.__dict__.get("_known")
        if known is None or len(known[0]) != size:
            owner = self.group.owners(size)
            known = owner, np.where(owner >= 0, np.append(np.asarray(self.weights), 0.0)[owner], 0.0)
            object.__setattr__(self, "_known", known)
        return known

    def fixed(self, x: Array) -> npt.NDArray[np.bool_]:
        """Which variables are at a kink of g."""
        _, weight = self._membership(len(x))
        fixed: npt.NDArray[np.bool_] = ((x == 0.0) & (self.l1 > 0.0)) | ((self._norms(x) == 0.0) & (weight > 0.0))
        return fixed

    def smooth_part(self, x: Array, free: npt.NDArray[np.intp]) -> tuple[Array, Array | None]:
        """The gradient and the Hessian of g on variables that are not fixed."""
        owner, weight = self._membership(len(x))
        norms, u = self._norms(x), x[free]
        size = np.where(norms[free] > 0.0, norms[free], 1.0)
        direction = u / size
        gradient = np.broadcast_to(self.l1, x.shape)[free] * np.sign(u) + weight[free] * direction
        same = (owner[free][:, None] == owner[free]) & (owner[free][:, None] >= 0)
        H = np.where(same, -np.outer(direction, direction), 0.0)
        H[np.diag_indices(len(H))] += np.where(owner[free] >= 0, 1.0, 0.0)
        return gradient, H * (weight[free] / size)[:, None]

    def on(self, working: npt.NDArray[np.intp], size: int) -> SparseGroup:
        """g on some of `size` variables, which hold a group wholly or not at all."""
        owner = self._membership(size)[0][working]
        kept = np.unique(owner[owner >= 0])
        groups = [np.flatnonzero(owner == k) for k in kept]
        return SparseGroup(groups, np.asarray(self.weights)[kept], np.broadcast_to(self.l1, size)[working])

    def whole(self, working: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """The least set of variables that holds these and can be told apart from the others: whole groups."""
        owner, _ = self._membership(len(working))
        touched = np.zeros(len(self.groups) + 1, dtype=bool)
        touched[owner[working]] = True
        touched[-1] = False
        result: npt.NDArray[np.bool_] = working | touched[owner]
        return result


def Positive(l1: Any = 0.0) -> BoxL1:  # noqa: N802 (a term like the others)
    """g = sum_j l1_j x_j for x >= 0 and infinite elsewhere."""
    return BoxL1(l1, 0.0, math.inf)
