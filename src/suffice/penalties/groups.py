r"""Groups of variables:  g = sum_j l1_j |x_j| + sum_G weight_G ||x_G||_2  over groups that do not overlap.

The prox is that of the l1 penalty, s = soft(v, l1), followed by that of the norms, which shrinks the groups of s. So
p = v - mu w_bar falls into p1 = v - s in the subdifferential of the l1 part and p2 = s - mu w_bar in that of the norms,
the Bregman remainder (`suffice.penalties.prox`) is a sum of two that are not negative, and the shortest element of
gradient + dg is found one after the other as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array
from suffice.models.smooth import Made
from suffice.penalties.prox import Indices, Mask, check_shapes, l1_least_subgradient, l1_remainder, l1_weights, soft


@dataclass(frozen=True, eq=False)
class Group(Made):
    """g = sum_G weight_G ||x_G||_2 over groups that do not overlap (group lasso); indices in no group are free."""

    groups: Sequence[npt.ArrayLike]
    weights: Any
    _members: Indices = field(init=False, repr=False)
    _owner: Indices = field(init=False, repr=False)
    l1 = 0.0

    def __post_init__(self) -> None:
        given = [np.asarray(group) for group in self.groups]
        for array in given:
            if array.size and array.dtype.kind not in "iu":  # also a mask, which would be taken for the indices 0 and 1
                raise TypeError(f"groups must hold integers, got {array.dtype}")
        groups = tuple(array.astype(np.intp).ravel() for array in given)
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
        owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        vars(self).update(groups=groups, weights=weights, _members=members, _owner=owner)

    def check_size(self, size: int) -> None:
        if self._members.size and self._members.max() >= size:
            largest = int(self._members.max())
            raise ValueError(f"groups must hold indices below {size}, the number of weights, got {largest}")
        check_shapes({"l1": self.l1}, size)

    def norms(self, x: Array) -> Array:
        """||x_G|| of every group."""
        return np.sqrt(self._sums(x * x))

    def _sums(self, x: Array) -> Array:
        """That of every group."""
        sums = np.bincount(self._owner, weights=x[self._members], minlength=len(self.groups))
        return sums.astype(np.float64, copy=False)

    def _scale_groups(self, x: Array, factors: Array) -> Array:
        scale = np.zeros(x.shape)
        scale[self._members] = factors[self._owner]
        return scale * x

    def _ball_part(self, v: Array, radii: Array) -> Array:
        """Each group of v projected to the ball of its radius; zero outside the groups."""
        norms = self.norms(v)
        factors = np.where(norms > radii, radii / np.where(norms > 0, norms, 1.0), 1.0)
        return self._scale_groups(v, factors)

    def value(self, x: Array) -> float:
        return float(self.weights @ self.norms(x)) + float(np.sum(self.l1 * np.abs(x)))

    def prox(self, v: Array, step: float) -> Array:
        s = soft(v, step * self.l1)
        return s - self._ball_part(s, step * self.weights)

    def remainder(self, x: Array, v: Array, mu: float) -> tuple[Array, float]:
        # Per group with p = |p| e: weight ||x|| - <p, x> = (weight - |p|) ||x|| + |p| (||x|| - <e, x>), and the last
        # bracket is ||x - <e, x> e||^2 / (||x|| + <e, x>) where x and e do not point apart: nothing cancels.
        s, (_, of_l1) = soft(v, self.l1), l1_remainder(self.l1, x, v, mu)
        sizes, outer = self.norms(x), self.norms(s)
        lengths = np.minimum(outer, self.weights)
        e = self._scale_groups(s, 1.0 / np.where(outer > 0, outer, 1.0))
        along = self._sums(x * e)
        across = self.norms(x - self._scale_groups(e, along))
        bend = np.where(along > 0, across**2 / np.where(along > 0, sizes + along, 1.0), sizes - along)
        w_bar = (s - self._ball_part(s, self.weights)) / mu
        return w_bar, of_l1 + float(np.sum((self.weights - lengths) * sizes + lengths * bend))

    def least_subgradient(self, x: Array, gradient: Array) -> Array:
        # Where a group is zero its ball takes up what the l1 box has left; elsewhere the norm has one gradient.
        left, norms = l1_least_subgradient(self.l1, x, gradient), self.norms(x)
        at_zero = left - self._ball_part(left, np.where(norms == 0, self.weights, 0.0))
        return at_zero + self._scale_groups(x, np.where(norms > 0, self.weights / np.where(norms > 0, norms, 1.0), 0.0))

    def _membership(self, size: int) -> tuple[Indices, Array]:
        """The number of every variable's group, -1 for none, and its weight."""
        known = self.__dict__.get("_known")
        if known is None or len(known[0]) != size:
            owner = np.full(size, -1, dtype=np.intp)
            owner[self._members] = self._owner
            known = owner, np.append(self.weights, 0.0)[owner]
            object.__setattr__(self, "_known", known)
        return known

    def fixed(self, x: Array) -> Mask:
        owner, weight = self._membership(len(x))
        norms = np.append(self.norms(x), 0.0)[owner]
        fixed: Mask = ((x == 0.0) & (np.asarray(self.l1) > 0.0)) | ((norms == 0.0) & (weight > 0.0))
        return fixed

    def smooth_part(self, x: Array, free: Indices) -> tuple[Array, Array | None]:
        (owner, weight), u = self._membership(len(x)), x[free]
        owner, weight, norms = owner[free], weight[free], np.append(self.norms(x), 0.0)[owner[free]]
        size = np.where(norms > 0.0, norms, 1.0)
        direction = u / size
        gradient = np.broadcast_to(self.l1, x.shape)[free] * np.sign(u) + weight * direction
        same = (owner[:, None] == owner) & (owner[:, None] >= 0)
        H = np.where(same, -np.outer(direction, direction), 0.0)
        H[np.diag_indices(len(H))] += np.where(owner >= 0, 1.0, 0.0)
        return gradient, H * (weight / size)[:, None]

    def on(self, working: Indices, size: int) -> Group:
        if len(working) == size:
            return self
        owner = self._membership(size)[0][working]
        kept = np.unique(owner[owner >= 0])
        groups = [np.flatnonzero(owner == k) for k in kept]
        return SparseGroup(groups, self.weights[kept], np.broadcast_to(self.l1, size)[working])

    def whole(self, working: Mask) -> Mask:
        owner, _ = self._membership(len(working))
        touched = np.zeros(len(self.groups) + 1, dtype=bool)
        touched[owner[working]] = True
        touched[-1] = False
        result: Mask = working | touched[owner]
        return result

    def change(self, x: Array, other: Array) -> float:
        # ||b|| - ||a|| = <b - a, b + a> / (||a|| + ||b||): nothing cancels
        sizes = self.norms(x) + self.norms(other)
        squares = self._sums((other - x) * (other + x)) / np.where(sizes > 0.0, sizes, 1.0)
        return float(self.weights @ squares) + float(np.sum(self.l1 * (np.abs(other) - np.abs(x))))

    def slope(self, x: Array, direction: Array) -> float:
        norms = self.norms(x)
        along = self._sums(x * direction) / np.where(norms > 0.0, norms, 1.0)
        of_norms = np.where(norms > 0.0, along, -self.norms(direction))
        of_l1 = np.where(x != 0.0, np.sign(x) * direction, -np.abs(direction))
        return float(self.weights @ of_norms) + float(np.sum(self.l1 * of_l1))


@dataclass(frozen=True, eq=False)
class SparseGroup(Group):
    """g = sum_j l1_j |x_j| + sum_G weight_G ||x_G||_2 over groups that do not overlap: the sparse group lasso. l1 is a
    number or one for each variable; with l1 = 0 it is the group lasso."""

    l1: Any = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "l1", l1_weights(self.l1))
