r"""The Lasso's whole path, fold by fold: F for all penalties at once, without a solve for any cell.

For squares and an l1 penalty alone, minimisers are linear in l1 as long as no weight becomes or ceases to be zero: on
the signed support (S, sigma), with G = X_S^T diag(a) X_S and g = X^T (a y),

    w_S(l1) = p - l1 q,        p = G^-1 g_S,    q = G^-1 sigma,        X^T (a r)(l1) = alpha + l1 beta,    r = y - X w.

Downwards from l1_max a weight leaves S where it becomes zero, at p_j/q_j if sigma_j q_j < 0, and a column enters where
alpha_j + l1 beta_j = +-l1, at +-alpha_j/(1 -+ beta_j) if 1 -+ beta_j > 0; the largest of these l1 ends the segment
(Osborne, Presnell and Turlach 2000). Ties are taken one after the other, on segments of no length.

Nothing has to be proven here either: a segment is a box like any other to `suffice.globally.surfaces`, with the
weights in its middle, and what is claimed of it holds whatever they are. A segment that is right costs rounding only.
Segments of folds end where they like; a cell of the search lies in one of each, and has the sum of their quadratics.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from suffice.arrays import Array
from suffice.globally.models import CertifiableFold
from suffice.globally.paths import Indices, PenaltyBox
from suffice.globally.surfaces import LossSurface, part_of, together, unknown
from suffice.models.margin_losses import Squared

HALVINGS = 3
TIES = 20  # segments of no length in a row: then the path is lost
MOST = 8  # segments, times the smaller side of X: likewise


@dataclass(frozen=True, eq=False)
class Segment:
    """Weights are p - t q on S for parameters t in [low, high], and what is proven there."""

    low: float
    high: float
    size: int  # of all weights
    S: Indices
    p: Array
    q: Array
    part: LossSurface | None = None

    def at(self, t: float) -> Array:
        w = np.zeros(self.size)
        w[self.S] = self.p - t * self.q
        return w


Paths = list[list[Segment]]  # of all folds, each from above to below


def _holding(known: Paths, box: PenaltyBox) -> list[Segment | None]:
    """The segment of every fold that holds a box, if there is one."""
    high, found = -float(box.high[0]), []
    for fold in known:
        place = bisect.bisect_right(fold, high, key=lambda one: -one.high) - 1
        found.append(fold[place] if place >= 0 and fold[place].low <= box.low[0] else None)
    return found


def cells(known: Paths, low: float, high: float) -> Iterator[tuple[PenaltyBox, LossSurface]]:
    """Boxes that make up [low, high], each with what is proven there."""
    ends = {end for fold in known for one in fold for end in (one.low, one.high)}
    for below, above in pairwise(sorted({low, high} | ends)):
        box = _box(below, above)
        parts = [None if one is None else one.part for one in _holding(known, box)]
        yield box, together([unknown(box) if part is None else part for part in parts], box)


def weights(known: Paths, box: PenaltyBox) -> list[Array] | None:
    """Those in the middle of a box: nothing is proven about them."""
    found = [one.at(float(box.centre[0])) for one in _holding(known, box) if one is not None]
    return found if len(found) == len(known) else None


def linear(folds: list[CertifiableFold]) -> bool:
    """Whether every fold's minimisers are piecewise linear in the one parameter."""
    return all(
        fold.B.shape[1] == 1
        and fold.sparse
        and not fold.B[1].any()
        and isinstance(fold.loss, Squared)
        and not fold.intercept
        and fold.design.rows.full
        for fold in folds
    )


def paths(folds: list[CertifiableFold], low: float, high: float) -> Paths:
    """What is proven of every fold along its path."""
    return [[part for one in segments(fold, low, high) for part in _proven(fold, one)] for fold in folds]


def _proven(fold: CertifiableFold, segment: Segment, halvings: int = HALVINGS) -> list[Segment]:
    """A segment that needs a column more at each end than there are rows is proven in two halves."""
    low, high = segment.low, segment.high
    box, middle = _box(low, high), math.sqrt(low * high) if low > 0.0 else 0.5 * high
    part = part_of(fold, segment.at(float(box.centre[0])), box)
    if math.isfinite(part.slack) or not halvings or not low < middle < high:
        return [replace(segment, part=part)]
    halves = replace(segment, low=middle), replace(segment, high=middle)
    return [one for half in halves for one in _proven(fold, half, halvings - 1)]


def _box(low: float, high: float) -> PenaltyBox:
    return PenaltyBox(np.array([low]), np.array([high]))


def segments(fold: CertifiableFold, low: float, high: float) -> Iterator[Segment]:
    """From `high` down to `low`, or to where the path is lost."""
    X, a, y = fold.design.X, fold.a, fold.y
    unit = float(fold.B[0, 0])
    g = X.T @ (a * y)
    S, sigma = np.zeros(0, dtype=np.intp), np.zeros(0)
    here, ties = high, 0  # of the parameter
    for _ in range(MOST * min(X.shape) + TIES):
        both, (on_S, H) = np.column_stack([g[S], sigma]), fold.hessian(S, y, 0.0)
        try:
            p, q = (cho_solve(cho_factor(H), both) if len(S) else both).T
        except (LinAlgError, ValueError):
            return
        fit = X.T @ (a[:, None] * (on_S @ np.column_stack([p, q])))
        end, j = _next(S, sigma, p / unit, q, (g - fit[:, 0]) / unit, fit[:, 1])
        end = min(end, here)
        until = max(end, low)
        if until < here:
            yield Segment(until, here, X.shape[1], S, p, unit * q)
        ties = 0 if until < here else ties + 1
        if end <= low or ties > TIES:
            return
        here = end
        if j in S:
            keep = j != S
            S, sigma = S[keep], sigma[keep]
        else:
            S = np.append(S, j)
            sigma = np.append(sigma, np.sign(g[j] - fit[j, 0] + here * unit * fit[j, 1]))


def _next(S: Indices, sigma: Array, p: Array, q: Array, alpha: Array, beta: Array) -> tuple[float, int]:
    """The largest parameter at which a weight becomes zero or a column enters, and which."""
    ends = np.full(len(alpha), -np.inf)
    for sign in (1.0, -1.0):
        slope = 1.0 - sign * beta
        ends = np.maximum(ends, np.divide(sign * alpha, slope, out=np.full_like(ends, -np.inf), where=slope > 0.0))
    ends[S] = np.divide(p, q, out=np.full(len(S), -np.inf), where=sigma * q < 0.0)
    j = int(np.argmax(ends))
    return float(ends[j]), j
