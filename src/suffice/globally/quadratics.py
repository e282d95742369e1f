r"""Quadratics  c + G . t + sum_{j <= k} Q_jk t_j t_k  in one or two variables over a box, and their least values there.

The least value over a box is taken at a stationary point inside, at one of an edge, or at a corner: all of them are
looked at, and the value of each is a value of the quadratic, so that rounding is all that may be wrong with it. It is
covered by `doubt`: what all terms come to, times a few units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import numpy as np

from suffice.arrays import Array

UNITS = 1e-13


def pairs(m: int) -> list[tuple[int, int]]:
    """(j, k) with j <= k, in the order in which Q is stored."""
    return list(combinations_with_replacement(range(m), 2))


@dataclass(frozen=True, eq=False)
class BoxQuadratic:
    """c + G . t + sum_{j <= k} Q_jk t_j t_k."""

    c: float
    G: Array
    Q: Array  # as `pairs`

    def __call__(self, t: Array) -> float:
        return float(self.c + self.G @ t + self.Q @ [t[j] * t[k] for j, k in pairs(len(t))])

    def __add__(self, other: BoxQuadratic) -> BoxQuadratic:
        return BoxQuadratic(self.c + other.c, self.G + other.G, self.Q + other.Q)

    def __neg__(self) -> BoxQuadratic:
        return BoxQuadratic(-self.c, -self.G, -self.Q)

    def moved(self, by: Array) -> BoxQuadratic:
        """The same function of t - by."""
        G = self.G.copy()
        for value, (j, k) in zip(self.Q, pairs(len(by)), strict=True):
            G[j] += value * by[k]
            G[k] += value * by[j]
        return BoxQuadratic(self(by), G, self.Q)

    def doubt(self, low: Array, high: Array) -> float:
        """What the rounding of a value in this box may be, at most."""
        r = np.maximum(np.abs(low), np.abs(high))
        size = abs(self.c) + np.abs(self.G) @ r + np.abs(self.Q) @ [r[j] * r[k] for j, k in pairs(len(r))]
        return UNITS * float(size)

    def least(self, low: Array, high: Array) -> tuple[float, Array]:
        """No more than the least value for low <= t <= high, and where that is taken."""
        if not self.G.any() and not self.Q.any():  # also in an unbounded box
            return self.c - UNITS * abs(self.c), np.array(low)
        candidates = [np.array(corner) for corner in product(*zip(low, high, strict=True))]
        m = len(low)
        H = np.zeros((m, m))
        for value, (j, k) in zip(self.Q, pairs(m), strict=True):
            H[j, k] += value
            H[k, j] += value
        free: list[tuple[int, ...]] = [(k,) for k in range(m)] + ([(0, 1)] if m == 2 else [])
        for inside in free:
            rest = [k for k in range(m) if k not in inside]
            for ends in product(*((low[k], high[k]) for k in rest)):
                t = np.zeros(m)
                t[rest] = ends
                block, slope = H[np.ix_(inside, inside)], self.G + H @ t
                if np.linalg.eigvalsh(block)[0] > 0.0:
                    try:
                        t[list(inside)] = -np.linalg.solve(block, slope[list(inside)])
                    except np.linalg.LinAlgError:  # singular, but for rounding: nothing is known of the least value
                        return -math.inf, candidates[0]
                    candidates.append(np.clip(t, low, high))
        values = [self(t) for t in candidates]
        best = int(np.argmin(values))
        return values[best] - self.doubt(low, high), candidates[best]
