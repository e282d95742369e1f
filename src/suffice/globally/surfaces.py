r"""Proven bounds of F over a box of parameters: a quadratic in t, plus and minus a number.

    F(t) = sum over folds of  share sum_i v_i phi(m_i(t)),        m_i(t) = m0_i + s_i + x_i . h,

s_i along the path (`suffice.globally.paths`), ||h|| <= rho in the norm by R^T R (`suffice.globally.balls`).
With s1 = X D t, and g = X^T (v phi'(m0)),

    loss = share ( sum v phi + (sum v phi' X D) t + (sum v phi' X V)[t, t] + 1/2 sum v phi'' s1^2 )  +-  slack,
    slack = share ( ||g||_{(R^T R)^-1} rho + sum_j |g_j| k_j + sum_i v_i ( 1/2 |phi''| z (2 |s1| + z) + R ) ),

z_i = |s2| + clips + ||x_i|| rho: the error of first order in rho goes by one product with a vector, not by every row's
own. All of it is of third order in the size of the box but for clips, for bends (one changes the loss by kappa_j g .
r_j, half of which goes to the quadratic's constant and half to slack) and for what they do to rho. Rounding is added.
The quadratics of folds are added before the least value is looked for: slopes of folds cancel where F is least. Beside
it stands what the ranges of margins give, row by row, which is better for large boxes; both hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from suffice.arrays import EPS, Array
from suffice.globally.along import SAFE
from suffice.globally.balls import Cut, ball_of
from suffice.globally.expansions import score_bend, score_remainder
from suffice.globally.models import CertifiableFold
from suffice.globally.paths import Path, PenaltyBox, path_of
from suffice.globally.quadratics import BoxQuadratic, pairs
from suffice.globally.reach import Ball
from suffice.rows.design import OF_FACTORS
from suffice.rows.rounding import TINY, gamma


@dataclass(frozen=True, eq=False)
class LossSurface:
    """|F(centre + t) - quadratic(t)| <= slack and floor <= F <= ceiling, for all parameters of a box."""

    centre: Array
    quadratic: BoxQuadratic
    slack: float
    floor: float
    ceiling: float
    cut: Cut

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
    return LossSurface(np.zeros(m), nothing, math.inf, 0.0, math.inf, Cut.anywhere(m))


def together(parts: list[LossSurface], box: PenaltyBox) -> LossSurface:
    """F of all folds over a box, from what is proven of each in boxes that hold it."""
    centre = box.centre if box.bounded else np.zeros(len(box.low))
    parts = [part.moved(centre, box) for part in parts]
    floor = sum(part.least(box) for part in parts) * (1.0 - gamma(len(parts) + 4))
    ceiling = sum(part.ceiling for part in parts) * (1.0 + gamma(len(parts) + 4))
    slack = sum(part.slack for part in parts) * SAFE
    quadratic = reduce(add, (part.quadratic for part in parts))
    return LossSurface(centre, quadratic, slack, floor, ceiling, Cut.together([part.cut for part in parts]))


def part_of(fold: CertifiableFold, w: Array, box: PenaltyBox) -> LossSurface:
    """What is proven of one fold's share of F over a box, from its weights at the centre."""
    found = ball_of(fold, path_of(fold, w, box), box)
    with np.errstate(over="ignore", invalid="ignore"):
        part = unknown(box) if found.ball is None else _held_out(fold, found.path, found.ball, box)
    return replace(part, cut=found.cut)


def _held_out(fold: CertifiableFold, path: Path, ball: Ball, box: PenaltyBox) -> LossSurface:
    held, m = fold.held, fold.B.shape[1]
    design, score, y, v, S = held.design, held.score, np.asarray(held.y), fold.v, path.S
    X = fold.columns(design.X, S)
    few, sizes = gamma(len(S) + 8), ball.sizes
    m0 = design.margins(path.w) + path.b
    T, rough = X @ path.A, np.abs(X) @ np.abs(path.A)
    blur = few * (np.abs(X[:, : len(S)]) @ np.abs(path.w[S]) + rough @ sizes)
    blur += 8.0 * EPS * (np.abs(m0) + abs(path.b)) + TINY
    if fold.rotation is not None:
        l2 = fold.least_l2(box.low)
        blur += fold.rotation.held_out_margins(path.length(sizes) + ball.rho * SAFE / math.sqrt(l2), l2, ball.slopes)
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
    quads = m + len(pairs(m))
    bends = G[quads:] * path.limits  # of them between none and all
    slack += 0.5 * float(np.abs(bends).sum())
    low, high = (float(v @ end) for end in score.range(m0, moved, y))
    up = 1.0 + gamma(len(m0) + 64)
    share = held.share
    floor = share * max(low / up - 1e-13 * float(terms.sum()), 0.0) if low == low else 0.0
    ceiling = share * high * up if high == high else math.inf
    slack = share * slack * SAFE if slack == slack else math.inf
    if not (math.isfinite(slack) and np.isfinite(G).all() and np.isfinite(Q).all()):
        return unknown(box)
    quadratic = BoxQuadratic(share * float(terms.sum() + 0.5 * bends.sum()), share * G[:m], share * (G[m:quads] + Q))
    centre = box.centre if box.bounded else np.zeros(m)
    return LossSurface(centre, quadratic, slack, floor, ceiling, Cut.anywhere(m))


def _first_order(fold: CertifiableFold, path: Path, ball: Ball, pulls: Array) -> float:
    """||g|| rho + sum_j |g_j| k_j."""
    design = fold.held.design
    if ball.factor is None and not ball.clips.any():
        return 0.0
    g = design.adjoint(pulls)
    counts = np.array([gamma(float(count) + OF_FACTORS) for count in design.pull.roundings])
    rooted = math.sqrt(float(np.sum(pulls**2 / np.maximum(design.weights, 1e-300)))) * SAFE
    error = counts * design.column_norms * rooted + design.underflow
    left = 0.0
    if ball.clips.any():
        s = len(path.S)
        left = float(ball.clips[:s] @ (np.abs(g[path.S]) + error[path.S]))
    if ball.factor is None:
        return left * SAFE
    P = ball.factor.support
    vector, doubt = g[P], error[P]
    if ball.factor.intercept:
        vector = np.append(vector, pulls.sum())
        doubt = np.append(doubt, gamma(len(pulls) + OF_FACTORS) * np.abs(pulls).sum())
    scale = ball.factor.scale
    return (left + ball.factor.norm_of(vector * scale, doubt * scale) * ball.rho) * SAFE
