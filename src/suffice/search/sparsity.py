r"""Residuals that depend on a few parameters each: a model that needs a few points, not m+1.

The first points differ from u_0 in one parameter each, so they show which parameters S_i move residual i at all: the
others leave it as it was to the last bit. If every S_i is small, m+1 points are many more than a residual needs. In the
coordinates S_i, relative to the incumbent, every residual has its own quadratic

    q_i(s) = g_i.s + s.H_i s / 2   with   q_i(a_t) ~ d_t = r_i(u_t) - r_i(u_k)

at the points a_t nearest to 0 there. It is the most plausible one if slopes are of size SLOPE, curvatures of size 1
and what a quadratic misses at a distance |a| of size THIRD |a|^3, in units of the trust radius or of the distance of
the points that a slope needs, whichever is larger (kriging with a quadratic kernel, or least squares with a prior):

    q_i(s) = sum_t c_t (SLOPE^2 a_t.s + (a_t.s)^2 / 2),   (K + D) c = d,   D_tt = (THIRD |a_t|^3)^2,

solved for d_t / |a_t|, whose matrix is well conditioned for points at all distances. Near points count as exact, far
ones tell of curvature as far as they can, and a direction in which there are no points has no slope. One new point
tells all residuals something; where the directions of recent steps leave slopes open, a probe moves parameters of
which no residual has two (Curtis, Powell and Reid 1974): a tridiagonal Jacobian takes three probes, not m.

Nothing proves that the S_i are complete: a parameter may begin to matter away from u_0, as x_2 in x_1 x_2 once x_1 is
no longer 0. So it is tested: after the first step one evaluation moves a few parameters from all over, and before the
search goes on to a smaller radius one moves all parameters but those of the residual that is explained worst. A
residual that changes although none of its parameters did refutes the sparsity, and the search goes on without it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array
from suffice.lazy import cached_property
from suffice.search.model import CostModel

Indices = npt.NDArray[np.int64]
Supports = Indices  # row i: the parameters of residual i, filled up with m
Flags = npt.NDArray[np.bool_]

MOST = 8  # parameters of one residual, at most, and
SHARE = 4  # at most this fraction 1/4 of all parameters
LOOKED_AT = 48  # points, those nearest to the incumbent, of which they are taken, besides first ones
LARGEST_SET = 24  # points for the model of one residual
SLOPE, THIRD, NUGGET = 100.0, 1.0, 1e-14
FAIR = 0.3  # of a direction has to be new
OPEN = 10.0  # a slope is open if its variance is so many times that along a point


@dataclass(frozen=True)
class SparseModel(CostModel):
    """F(s) ~ sum_i (r_i + g_i.s + s.H_i s / 2)^2, each i in its own coordinates S_i; no H: linear residuals."""

    S: Supports
    r: Array
    g: Array
    H: Array | None
    m: int

    @property
    def curved(self) -> bool:  # type: ignore[override]
        return self.H is not None

    @property
    def F(self) -> float:  # type: ignore[override]  # noqa: N802 (a symbol)
        return float(self.r @ self.r)

    def decrease(self, s: Array) -> float:
        change, _ = self._residuals(s)
        return -float(change @ (2.0 * self.r + change))

    def derivatives(self, s: Array) -> tuple[Array, Array]:
        change, J = self._residuals(s)
        pull, width = self.r + change, self.m + 1
        blocks = J[:, :, None] * J[:, None, :]
        if self.H is not None:
            blocks += pull[:, None, None] * self.H
        g = np.bincount(self.S.ravel(), (2.0 * pull[:, None] * J).ravel(), width)[:-1]
        H = np.bincount(self._places, 2.0 * blocks.ravel(), width * width).reshape(width, width)[:-1, :-1]
        return g.astype(np.float64), H.astype(np.float64)

    @cached_property
    def _places(self) -> Indices:
        return (self.S[:, :, None] * (self.m + 1) + self.S[:, None, :]).ravel()

    def _residuals(self, s: Array) -> tuple[Array, Array]:
        """What the residuals change by, and their slopes."""
        x: Array = np.append(s, 0.0)[self.S]
        ones = np.ones(x.shape[1])
        if self.H is None:
            return (self.g * x) @ ones, self.g
        bent: Array = (self.H @ x[:, :, None])[:, :, 0]
        return ((self.g + 0.5 * bent) * x) @ ones, self.g + bent


def supports(points: Array, residuals: Array) -> Supports | None:
    """The parameters of every residual, from points of which the first is u_0; None if they are not few."""
    m = points.shape[1]
    moved = points[1:] != points[0]
    if moved.shape != (m, m) or (moved.sum(axis=1) != 1).any() or not moved.any(axis=0).all():
        return None
    depends = (residuals[1:] != residuals[0]).T @ moved  # residual by parameter
    count = depends.sum(axis=1)
    widest = int(count.max(initial=0))
    # A parameter on which nothing depends at u_0 is one whose part is hidden there.
    if not 0 < widest <= min(MOST, m // SHARE) or not depends.any(axis=0).all():
        return None
    S = np.argsort(~depends, axis=1, kind="stable")[:, :widest]
    return np.where(np.arange(widest) < count[:, None], S, m).astype(np.int64)


@dataclass(frozen=True)
class KnownPoints:
    """What is known: points with their residuals, in which parameters each differs from u_0, and the incumbent."""

    points: Array
    residuals: Array
    moved: Flags
    k: int


@dataclass(frozen=True)
class Neighbours:
    """Points in the coordinates of each residual, relative to the incumbent: residual, point(, coordinate)."""

    which: Indices
    distance: Array  # infinite: no point, or one like the incumbent
    direction: Array  # of length 1


def fit_sparse(S: Supports, known: KnownPoints, delta: float) -> tuple[SparseModel, SparseModel, Array]:
    """The quadratic model, the linear one, and how much of each residual's changes the quadratic leaves unexplained."""
    m, widest = known.points.shape[1], S.shape[1]
    near = _select(_nearest(S, known), min((widest + 1) * (widest + 2) // 2 + 2, LARGEST_SET))
    there = np.isfinite(near.distance)
    needed = np.where(there, near.distance, 0.0)[:, :widest]
    unit = np.maximum(delta, needed.max(axis=1, keepdims=True))
    length = np.where(there, near.distance / unit, 1.0)
    a = near.direction
    cosines = a @ a.transpose(0, 2, 1)
    K = SLOPE**2 * cosines + 0.5 * (length[:, :, None] * length[:, None, :]) * cosines**2
    D = np.where(there, THIRD**2 * length**4 + NUGGET * SLOPE**2, 1.0)
    diagonal = np.arange(K.shape[1])
    K[:, diagonal, diagonal] += D
    r = known.residuals[known.k]
    d = np.take_along_axis((known.residuals - r).T, near.which, 1)
    c = np.linalg.solve(K, np.where(there, d / length, 0.0)[:, :, None])
    weighted = c * a
    g = SLOPE**2 * weighted.sum(axis=1) / unit
    H = (length[:, :, None] * weighted).transpose(0, 2, 1) @ a / (unit * unit)[:, :, None]
    unexplained: Array = np.abs(c[:, :, 0] * D * length).sum(axis=1)
    return SparseModel(S, r, g, H, m), SparseModel(S, r, g, None, m), unexplained


def _candidates(S: Supports, known: KnownPoints) -> Indices:
    """The points that each residual looks at: a row of numbers for each, -1 for none.

    Of the first points a residual needs those that move one of its own parameters and one that moves none, since to it
    all others are the same as that one.
    """
    m, count = known.points.shape[1], known.moved.sum(axis=1)
    first = np.flatnonzero(count <= 1)
    steps = known.points - known.points[known.k]
    distance = np.where(count <= 1, np.inf, (steps * steps).sum(axis=1))
    latest = np.argsort(distance, kind="stable")[: min(LOOKED_AT, len(count) - len(first))]
    along = np.where(count[first] == 1, np.argmax(known.moved[first], axis=1), m)
    where = np.full(m + 1, -1)
    where[along] = first
    own = where[S]
    base = np.full(len(S), -1)
    for j, t in zip(along.tolist(), first.tolist(), strict=True):
        base[(base < 0) & ((S - j).all(axis=1) | (j == m))] = t
        if (base >= 0).all():
            break
    return np.hstack([np.broadcast_to(latest, (len(S), len(latest))), own, base[:, None]])


def _nearest(S: Supports, known: KnownPoints) -> Neighbours:
    """The candidates as each residual sees them."""
    which = _candidates(S, known)
    steps = np.hstack([known.points - known.points[known.k], np.zeros((len(known.points), 1))])
    a = steps[which[:, :, None], S[:, None, :]]
    squares = (a * a).sum(axis=2)
    squares[(squares == 0.0) | (which < 0)] = np.inf
    there = np.isfinite(squares)
    distance = np.sqrt(squares)
    a *= np.where(there, 1.0 / np.where(there, distance, 1.0), 0.0)[:, :, None]
    return Neighbours(which, distance, a)


def _select(near: Neighbours, count: int) -> Neighbours:
    """The nearest points, after as many nearest independent ones as there are coordinates."""
    n, _, widest = near.direction.shape
    rows = np.arange(n)
    rank = near.distance.copy()
    left = near.direction.copy()  # what is new of each direction
    for j in range(widest):
        size = np.sqrt((left * left).sum(axis=2))
        fair = size >= FAIR * size.max(axis=1, keepdims=True)
        pick = np.argmin(np.where(fair, near.distance, np.inf), axis=1)
        size = size[rows, pick]
        there = (size > 1e-8) & np.isfinite(near.distance[rows, pick])
        rank[rows[there], pick[there]] = j - widest  # before all others
        axis = np.where(there, 1.0 / np.where(there, size, 1.0), 0.0)[:, None] * left[rows, pick]
        left -= (left @ axis[:, :, None]) * axis[:, None, :]
    order = np.argsort(rank, axis=1, kind="stable")[:, :count]
    return Neighbours(
        np.take_along_axis(near.which, order, 1),
        np.take_along_axis(near.distance, order, 1),
        np.take_along_axis(near.direction, order[:, :, None], 1),
    )


def open_slopes(S: Supports, known: KnownPoints, radius: float) -> Flags:
    """For every parameter, whether a residual has a slope there that points within the radius leave open."""
    m, widest = known.points.shape[1], S.shape[1]
    near = _nearest(S, known)
    a = near.direction * (near.distance <= radius)[:, :, None]
    variance = np.linalg.inv(a.transpose(0, 2, 1) @ a + np.eye(widest) / (2.0 * OPEN))
    unknown = variance[:, np.arange(widest), np.arange(widest)] > OPEN
    found: Flags = np.bincount(S.ravel(), unknown.ravel(), m + 1)[:-1] > 0.0
    return found


def independent(S: Supports, wanted: Flags) -> Flags:
    """Parameters among the wanted ones of which no residual has two."""
    m = len(wanted)
    belongs = np.zeros((len(S), m + 1), dtype=bool)
    belongs[np.arange(len(S))[:, None], S] = True
    taken = np.zeros(len(S), dtype=bool)
    chosen = np.zeros(m, dtype=bool)
    for j in np.flatnonzero(wanted):
        if not (taken & belongs[:, j]).any():
            chosen[j] = True
            taken |= belongs[:, j]
    return chosen


def others(S: Supports, i: int, m: int) -> Flags:
    """All parameters that are not residual i's."""
    moves = np.ones(m + 1, dtype=bool)
    moves[S[i]] = False
    return moves[:-1]


def some(S: Supports, m: int, number: int) -> Flags:
    """So few of the parameters, at random, that about a third of the residuals have none of them."""
    moves: Flags = np.random.default_rng(number).random(m) < 1.0 / (S.shape[1] + 1)
    return moves


def probe(u: Array, moves: Flags, delta: float, lower: Array, upper: Array, number: int) -> Array:
    """u with the given parameters moved by the same amount, delta in all, either way and away from bounds."""
    h = delta / max(float(moves.sum()) ** 0.5, 1.0)
    signs = np.random.default_rng(number).choice([-1.0, 1.0], len(u))
    signs = np.where(u + h > upper, -1.0, np.where(u - h < lower, 1.0, signs))
    moved: Array = np.clip(np.where(moves, u + h * signs, u), lower, upper)
    return moved


def refuted(S: Supports, u: Array, v: Array, changed: Flags) -> bool:
    """Whether a residual changes from u to v although none of its parameters does."""
    moved = np.append(u != v, False)
    return bool((changed & ~moved[S].any(axis=1)).any())
