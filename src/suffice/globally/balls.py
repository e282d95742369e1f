r"""Balls around minimisers, for all parameters of a box at once, and where to cut boxes.

The path (`suffice.globally.paths`) is bent at kinks (`bends`) and expanded (`along`); the minimiser of Phi_t on
some columns P is then within rho of it (`reach`). P begins with the columns on which the path lives and those whose
gradient may exceed l1 along it. If |grad_j f| < l1 at that minimiser for all j outside P, then it is the minimiser of
Phi_t on all columns, and the only one; columns for which that cannot be told join P, and it is tried again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from suffice.arrays import Array, norm
from suffice.globally.along import Expansion, clips_of, excess_of, expansion_of, ranges_of, sizes_of
from suffice.globally.bends import bent
from suffice.globally.models import CertifiableFold
from suffice.globally.paths import Path, PenaltyBox
from suffice.globally.reach import Ball, PathReach

TRIES = 6  # to find P
USEFUL = 2.0  # times what moves margins by about 1: a lambda of use
MOST_HALVINGS = 4


@dataclass(frozen=True, eq=False)
class Cut:
    """Where to cut a box, about: nothing is proven by it."""

    relief: Array  # how much less slack there would be with each side halved
    halvings: Array  # how often each side ought to be, for anything to be proven
    free: tuple[float, float] = (
        -math.inf,
        math.inf,
    )  # of one parameter: no weight becomes or ceases to be zero between

    @classmethod
    def anywhere(cls, m: int) -> Cut:
        return cls(np.ones(m), np.zeros(m))

    @classmethod
    def together(cls, cuts: Sequence[Cut]) -> Cut:
        """That of all folds."""
        relief, halvings = np.sum([cut.relief for cut in cuts], axis=0), np.max([cut.halvings for cut in cuts], axis=0)
        return cls(relief, halvings, (max(cut.free[0] for cut in cuts), min(cut.free[1] for cut in cuts)))


@dataclass(frozen=True, eq=False)
class BallFound:
    """The ball for a box, None where nothing is proven; the path with its bends; and where to cut the box."""

    ball: Ball | None
    path: Path
    cut: Cut


def ball_of(fold: CertifiableFold, path: Path, box: PenaltyBox) -> BallFound:
    """What is found for a box; an unbounded one needs a path that is constantly 0."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        known = expansion_of(fold, path)
        sizes = sizes_of(box.r if box.bounded else np.zeros(len(box.low)))
        cut = Cut.anywhere(len(box.low))
        if box.bounded and len(box.low) > 1:
            cut = Cut(*_relief(fold, path, box, known))
        elif box.bounded and fold.sparse:
            cut = replace(cut, free=_free(fold, path, box, known))
        if not np.isfinite(known.K).all():
            return BallFound(None, path, cut)
        if box.bounded and fold.sparse and path.A.any():
            path = bent(fold, path, box, known, sizes)
            if len(path.limits):
                known, sizes = expansion_of(fold, path), np.append(sizes, path.limits)
        return BallFound(_ball_of(fold, path, box, known, sizes), path, cut)


def _free(fold: CertifiableFold, path: Path, box: PenaltyBox, known: Expansion) -> tuple[float, float]:
    """Around the centre, as far as no weight becomes or ceases to be zero along the path, of one parameter."""
    (centre,), s = box.centre, len(path.S)
    d = fold.design.shape[1]
    outside = np.ones(d, dtype=bool)
    outside[path.S] = False
    l1, slope = float(fold.B[0] @ box.centre), float(fold.B[0, 0])
    K = known.K[:d][outside]
    zero = [np.column_stack([path.w[path.S], path.A[:s]])]
    for sign in (1.0, -1.0):
        zero.append(sign * K - np.array([l1, slope, 0.0]))
    c, b, a = np.concatenate(zero).T
    root = np.sqrt(np.maximum(b * b - 4.0 * a * c, 0.0))
    q = -0.5 * (b + np.where(b >= 0.0, root, -root))
    t = np.concatenate([c / q, q / a])[np.tile(b * b >= 4.0 * a * c, 2)]
    t = t[np.isfinite(t)]
    return float(centre + np.max(t[t < 0.0], initial=-math.inf)), float(centre + np.min(t[t > 0.0], initial=math.inf))


def _ball_of(fold: CertifiableFold, path: Path, box: PenaltyBox, known: Expansion, sizes: Array) -> Ball | None:
    clips, turned = clips_of(fold, path, box, sizes)
    ranges = ranges_of(fold, path, known, sizes, clips, fold.least_l2(box.low))
    if not np.isfinite(ranges.zeta).all():
        return None
    excess = excess_of(fold, box, known, sizes)
    inside = np.zeros(fold.design.shape[1], dtype=bool)
    inside[path.S] = True
    inside |= ~(excess < 0.0)
    reach = PathReach(fold, path, box, known, ranges, excess, Ball(None, 0.0, clips, turned, sizes))
    for _ in range(TRIES):
        found = reach.on(np.flatnonzero(inside))
        if found is None:
            return None
        ball, moved = found
        failing = ~inside & ~(excess + moved < 0.0)
        if not failing.any():
            return ball
        inside |= failing
    return None


def _relief(fold: CertifiableFold, path: Path, box: PenaltyBox, known: Expansion) -> tuple[Array, Array]:
    """How much less lambda would be, about, with each side of the box halved; and how often each would have to be for
    the ball to be of use. Nothing is proven by either."""
    lengths = np.maximum(fold.design.column_norms, 1e-300)
    bend = np.maximum(fold.loss.second(path.m0, fold.y), 1e-12)

    def strain(r: Array) -> float:
        sizes, c = sizes_of(r), box.centre
        clips, turned = clips_of(fold, path, PenaltyBox(c - r, c + r), sizes, bending=True)
        excess = np.maximum(excess_of(fold, PenaltyBox(c - r, c + r), known, sizes), 0.0)
        excess[path.S] = 0.0
        zeta = np.minimum(ranges_of(fold, path, known, sizes, clips, fold.least_l2(c - r)).zeta, 1.0)
        part = clips / np.maximum(path.spread, 1e-300) + turned * path.spread
        left = l2_range * norm(known.T[:, len(r) :] @ sizes[len(r) :]) if (l2_range := float(fold.B[1] @ r)) else 0.0
        left /= float(fold.B[1] @ c) * math.sqrt(len(bend)) if left else 1.0
        return float(part.sum() + norm(excess / lengths) + norm(np.sqrt(fold.a / bend) * zeta) + left)

    r, halvings = box.r, np.zeros(2)
    halves = (np.array([0.5, 1.0]), np.array([1.0, 0.5]))
    now, halved = strain(r), np.array([strain(half * r) for half in halves])
    relief = np.maximum(now - halved, 0.0)
    useful = USEFUL * math.sqrt(float(fold.a @ bend) / (len(path.S) + 1.0))
    while fold.loss.third > 0.0 and now > useful and halvings.sum() < MOST_HALVINGS:
        k = int(np.argmin(halved))
        r, now = halves[k] * r, float(halved[k])
        halvings[k] += 1.0
        halved = np.array([strain(half * r) for half in halves])
    return relief, halvings
