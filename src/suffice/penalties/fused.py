r"""Neighbours that are to be alike: the fused penalty (total variation in one dimension), with or without an l1.

    g(x) = fused sum_j |x_{j+1} - x_j| + l1 sum_j |x_j|

**The prox** of the first part for a step t is found on a taut string. With r_k = v_1 + ... + v_k, the shortest path
from (0, 0) to (n, r_n) that stays within t fused of r has the slopes x_k. It is pulled tight from left to right, in
O(n): of what the apex sees, the greatest convex minorant of the upper and the least concave majorant of the lower edge
are kept; where their first pieces cross there is a knot. On a piece from a to b, whose ends touch the edges t_a, t_b in
{-1, 0, 1},  x = (mean of v_{a+1}, ..., v_b) + t fused (t_b - t_a)/(b - a).  The l1 part then shrinks x.

**Certificates.** p = v - mu w_bar falls into p1 = D^T u, |u_j| <= fused, D the differences, and p2, |p2_j| <= l1. As g
is homogeneous, its Bregman remainder is

    B = sum_j (fused |D_j x| - u_j D_j x) + sum_j (l1 |x_j| - p2_j x_j),

of parts that are not negative. u is summed from p1; what that rounds to is less than n^2 units of its last place, which
is what `roundings` says. The shortest element of gradient + dg is found piece by piece: where x is level, u is free
between its neighbours, and the shortest c - D^T u is the prox of c itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array, positive
from suffice.penalties.prox import soft


def taut_string(v: Array, width: float) -> Array:
    """argmin over x of  1/2 ||x - v||^2 + width sum_j |x_{j+1} - x_j|."""
    n = len(v)
    if n < 2 or width == 0.0:
        return v.copy()
    knots, sides = _pulled(np.concatenate([[0.0], np.cumsum(v - v.mean())]), width)
    lengths = np.diff(knots)
    levels = np.add.reduceat(v, knots[:-1]) / lengths + width * np.diff(sides) / lengths
    return np.repeat(levels, lengths)


def _pulled(r: Array, width: float) -> tuple[npt.NDArray[np.intp], Array]:
    """The knots of the taut string around r, and which edge it touches there: -1 the lower, 1 the upper, 0 its ends."""
    n, path = len(r) - 1, r.tolist()
    knots, sides = [0], [0.0]
    upper, lower = [(0, 0.0)], [(0, 0.0)]  # knots of the two hulls, from the apex on
    top = bottom = 0  # where they begin
    for k in range(1, n + 1):
        ends = (path[k], path[k]) if k == n else (path[k] + width, path[k] - width)
        while len(upper) - top > 1 and _slope(upper[-2], upper[-1]) >= _slope(upper[-1], (k, ends[0])):
            upper.pop()
        upper.append((k, ends[0]))
        while len(lower) - bottom > 1 and _slope(lower[-2], lower[-1]) <= _slope(lower[-1], (k, ends[1])):
            lower.pop()
        lower.append((k, ends[1]))
        # A hull that is a single piece has fallen behind the other, if they cross: the string bends around that one.
        while len(upper) - top == 2 and len(lower) - bottom > 2 and _crossed(upper, top, lower, bottom):
            bottom += 1
            knots.append(lower[bottom][0])
            sides.append(-1.0)
            upper[top] = lower[bottom]
        while len(lower) - bottom == 2 and len(upper) - top > 2 and _crossed(upper, top, lower, bottom):
            top += 1
            knots.append(upper[top][0])
            sides.append(1.0)
            lower[bottom] = upper[top]
    hull, begin, side = (upper, top, 1.0) if len(upper) - top > 2 else (lower, bottom, -1.0)
    for place, _ in hull[begin + 1 : -1]:
        knots.append(place)
        sides.append(side)
    return np.array([*knots, n], dtype=np.intp), np.array([*sides, 0.0])


def _slope(a: tuple[int, float], b: tuple[int, float]) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])


def _crossed(upper: list[tuple[int, float]], top: int, lower: list[tuple[int, float]], bottom: int) -> bool:
    return _slope(upper[top], upper[top + 1]) < _slope(lower[bottom], lower[bottom + 1])


@dataclass(frozen=True)
class Fused:
    """g = fused sum_j |x_{j+1} - x_j| + l1 ||x||_1: weights of neighbouring columns are to be alike, and few."""

    fused: float
    l1: float = 0.0

    def __post_init__(self) -> None:
        positive(self.fused, "fused", zero=True)
        positive(self.l1, "l1", zero=True)

    def value(self, x: Array) -> float:
        return self.fused * float(np.abs(np.diff(x)).sum()) + self.l1 * float(np.abs(x).sum())

    def prox(self, v: Array, step: float) -> Array:
        return soft(taut_string(v, step * self.fused), step * self.l1)

    def roundings(self, size: int) -> float:
        """How many units of EPS its formulas err by, relative to what they are applied to."""
        return 16.0 + 4.0 * float(size) ** 2

    def remainder(self, x: Array, v: Array, mu: float) -> tuple[Array, float]:
        level = taut_string(v, self.fused)
        u = np.clip(-np.cumsum(v - level)[:-1], -self.fused, self.fused)  # v - level = D^T u
        p = np.clip(level, -self.l1, self.l1)
        jumps = np.diff(x)
        of_jumps = float(np.sum((self.fused - u * np.sign(jumps)) * np.abs(jumps)))
        return (level - p) / mu, of_jumps + float(np.sum((self.l1 - p * np.sign(x)) * np.abs(x)))

    def least_subgradient(self, x: Array, gradient: Array) -> Array:
        jumps = np.sign(np.diff(x))
        c = gradient + self.l1 * np.sign(x)
        c[:-1] -= self.fused * jumps
        c[1:] += self.fused * jumps
        cuts = np.flatnonzero(jumps) + 1
        parts = [taut_string(part, self.fused) for part in np.split(c, cuts)]
        least = np.concatenate(parts)
        return np.where(x == 0.0, soft(least, self.l1), least)
