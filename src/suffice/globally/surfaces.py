r"""Proven bounds of F over a box of parameters: a quadratic in t, plus and minus a number.

    F(t) = sum over folds of  share sum_i v_i phi(m_i(t)),        m_i(t) = m0_i + s_i + x_i . h,

s_i along the path (`suffice.globally.paths`), ||h|| <= rho in the norm by R^T R (`suffice.globally.reach`).
With s1 = X D t, and g = X^T (v phi'(m0)),

    loss = share ( sum v phi + (sum v phi' X D) t + (sum v phi' X V)[t, t] + 1/2 sum v phi'' s1^2 )  +-  slack,
    slack = share ( ||g||_{(R^T R)^-1} rho + sum_j |g_j| k_j + sum_i v_i ( 1/2 |phi''| z (2 |s1| + z) + R ) ),

z_i = |s2| + clips + ||x_i|| rho: the error of first order in rho goes by one product with a vector, not by every row's
own. All of it is of third order in the size of the box but for clips and for what they do to rho. Rounding is added.
The quadratics of folds are added before the least value is looked for: slopes of folds cancel where F is least. Beside
it stands what the ranges of margins give, row by row, which is better for large boxes; both hold.

*Least values.* That of a quadratic in one or two variables over a box is taken at a stationary point inside, at one of
an edge, or at a corner: all of them are looked at, and the value of each is a value of the quadratic, so that rounding
is all that may be wrong with it. It is covered by `doubt`: what all terms come to, times a few units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from operator import add

import numpy as np

from suffice.arrays import EPS, Array
from suffice.globally.expansions import score_bend, score_remainder
from suffice.globally.models import CertifiableFold
from suffice.globally.paths import SAFE, Path, PenaltyBox, pairs, path_of
from suffice.globally.reach import Ball, ball_of
from suffice.rows.design import OF_FACTORS
from suffice.rows.rounding import TINY, gamma

UNITS = 1e-13


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


@dataclass(frozen=True, eq=False)
class LossSurface:
    """|F(centre + t) - quadratic(t)| <= slack and floor <= F <= ceiling, for all parameters of a box."""

    centre: Array
    quadratic: BoxQuadratic
    slack: float
    floor: float
    ceiling: float
    relief: Array  # about how much less slack there would be with each side of the box halved

    def least(self, box: PenaltyBox) -> float:
        """A lower bound of F in any box inside."""
        if not math.isfinite(self.slack):
            return self.floor
        low, high = box.low - self.centre, box.high - self.centre
        return max(self.quadratic.least(low, high)[0] - self.slack, self.floor)

    def best(self, box: PenaltyBox) -> Array:
        """About where F is least in a bounded box inside."""
        t = self.quadratic.least(box.low - self.centre, box.high - self.centre)[1]
        return np.clip(self.centre + t, box.low, box.high)

    def most(self, box: PenaltyBox) -> float:
        """An upper bound of F in any box inside."""
        if not math.isfinite(self.slack):
            return self.ceiling
        low, high = box.low - self.centre, box.high - self.centre
        return min(-(-self.quadratic).least(low, high)[0] + self.slack, self.ceiling)

    def interval(self, t: Array) -> tuple[float, float]:
        """Where F is proven to lie for parameters t of the box."""
        if not math.isfinite(self.slack):
            return self.floor, self.ceiling
        t = t - self.centre
        value, doubt = self.quadratic(t), self.quadratic.doubt(t, t) + self.slack
        return max(value - doubt, self.floor), min(value + doubt, self.ceiling)

    def moved(self, centre: Array, box: PenaltyBox) -> LossSurface:
        """The same around another centre, for a box inside."""
        if not math.isfinite(self.slack) or np.array_equal(centre, self.centre):
            return self
        return replace(
            self,
            centre=centre,
            quadratic=self.quadratic.moved(centre - self.centre),
            slack=self.slack + 4.0 * self.quadratic.doubt(box.low - self.centre, box.high - self.centre),
        )


def unknown(box: PenaltyBox) -> LossSurface:
    """Losses are not negative: all that is known where nothing is proven."""
    m = len(box.low)
    nothing = BoxQuadratic(0.0, np.zeros(m), np.zeros(len(pairs(m))))
    return LossSurface(np.zeros(m), nothing, math.inf, 0.0, math.inf, np.ones(m))


def together(parts: list[LossSurface], box: PenaltyBox) -> LossSurface:
    """F of all folds over a box, from what is proven of each in boxes that hold it."""
    centre = box.centre if box.bounded else np.zeros(len(box.low))
    parts = [part.moved(centre, box) for part in parts]
    floor = sum(part.least(box) for part in parts) * (1.0 - gamma(len(parts) + 4))
    ceiling = sum(part.ceiling for part in parts) * (1.0 + gamma(len(parts) + 4))
    slack = sum(part.slack for part in parts) * SAFE
    quadratic = reduce(add, (part.quadratic for part in parts))
    return LossSurface(centre, quadratic, slack, floor, ceiling, np.sum([part.relief for part in parts], axis=0))


def part_of(fold: CertifiableFold, w: Array, box: PenaltyBox) -> LossSurface:
    """What is proven of one fold's share of F over a box, from its weights at the centre."""
    path = path_of(fold, w, box)
    ball, relief = ball_of(fold, path, box)
    with np.errstate(over="ignore", invalid="ignore"):
        part = unknown(box) if ball is None else _held_out(fold, path, ball, box)
    return replace(part, relief=relief)


def _held_out(fold: CertifiableFold, path: Path, ball: Ball, box: PenaltyBox) -> LossSurface:
    held, m = fold.held, fold.B.shape[1]
    design, score, y, v, S = held.design, held.score, np.asarray(held.y), fold.v, path.S
    X = fold.columns(design.X, S)
    few, sizes = gamma(len(S) + 8), ball.sizes
    m0 = design.margins(path.w) + path.b
    T, rough = X @ path.A, np.abs(X) @ np.abs(path.A)
    blur = few * (np.abs(X[:, : len(S)]) @ np.abs(path.w[S]) + rough @ sizes)
    blur += 8.0 * EPS * (np.abs(m0) + abs(path.b)) + TINY
    norms = np.zeros(len(m0))
    if ball.factor is not None:
        norms = ball.factor.norms(design.X)[:, 0]
    s1 = np.abs(T[:, :m]) @ sizes[:m]
    z = (np.abs(T[:, m:]) @ sizes[m:] + np.abs(X) @ ball.clips + norms * ball.rho + blur) * SAFE
    moved = (s1 + z) * SAFE

    slope, bend = score.derivative(m0, y), score_bend(score, m0, y)
    pulls = v * slope
    terms = v * score.residuals(m0, y) ** 2
    G = T.T @ pulls
    Q = np.array([(1.0 if j < k else 0.5) * float((v * bend) @ (T[:, j] * T[:, k])) for j, k in pairs(m)])
    of_sums = float(np.abs(terms).sum()) + float(np.abs(pulls) @ (rough @ sizes)) + float((v * np.abs(bend)) @ s1**2)
    slack = gamma(len(m0) + 64) * of_sums + float(np.abs(pulls) @ blur)
    slack += float(v @ (0.5 * np.abs(bend) * z * (2.0 * s1 + z) + score_remainder(score, m0, moved, y)))
    slack += _first_order(fold, path, ball, pulls)
    low, high = (float(v @ end) for end in score.range(m0, moved, y))
    up = 1.0 + gamma(len(m0) + 64)
    share = held.share
    floor = share * max(low / up - 1e-13 * float(terms.sum()), 0.0) if low == low else 0.0
    ceiling = share * high * up if high == high else math.inf
    slack = share * slack * SAFE if slack == slack else math.inf
    if not (math.isfinite(slack) and np.isfinite(G).all() and np.isfinite(Q).all()):
        return unknown(box)
    quadratic = BoxQuadratic(share * float(terms.sum()), share * G[:m], share * (G[m:] + Q))
    centre = box.centre if box.bounded else np.zeros(m)
    return LossSurface(centre, quadratic, slack, floor, ceiling, np.ones(m))


def _first_order(fold: CertifiableFold, path: Path, ball: Ball, pulls: Array) -> float:
    """||g|| rho + sum_j |g_j| k_j."""
    design = fold.held.design
    if ball.factor is None and not ball.clips.any():
        return 0.0
    g = design.adjoint(pulls)
    rooted = math.sqrt(float(np.sum(pulls**2 / np.maximum(design.weights, 1e-300)))) * SAFE
    error = design.pull_gammas * design.column_norms * rooted + design.underflow
    left = float(ball.clips[: len(path.S)] @ (np.abs(g[path.S]) + error[path.S]))
    if ball.factor is None:
        return left * SAFE
    P = ball.factor.support
    vector, doubt = g[P], error[P]
    if ball.factor.intercept:
        vector = np.append(vector, pulls.sum())
        doubt = np.append(doubt, gamma(len(pulls) + OF_FACTORS) * np.abs(pulls).sum())
    scale = ball.factor.scale
    return (left + ball.factor.norm_of(vector * scale, doubt * scale) * ball.rho) * SAFE
