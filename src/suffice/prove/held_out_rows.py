r"""Held-out losses of blocks of rows (`suffice.rows.blocks`), wherever these are:

    loss(w) = share sum_i v_i phi(m_i, y_i) = sum_b r_b^2,        m_i = x_i . w + o_i + b(w),

with one residual r_b for every block, the root of its rows' part: what every single row has stays with it. Bounds are
those of `prove.held_out`, of which the first order and the Lipschitz bound need no more than a few sums that one pass
over X gives. The one per sample is used where phi'' has no bound: it takes a pass over the margins for every radius.
Where the minimiser w + h is verified (`suffice.prove.verified`) all of them are, in one more pass over X, with the
bounds on x_i . h that the factor gives.

With s_i = d residual_i / d m_i of every row,  d r_b / d w = (share / r_b) sum_i v_i residual_i s_i x_i.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.models.jobs import pulled
from suffice.prove.held_out import DevianceScore, HeldOut, Linear, LossAt, Phi, SmoothPhi, least_error, root_error
from suffice.prove.signed_factor import SignedFactor
from suffice.prove.verified import LinearVerification, Verification
from suffice.prove.verified_blocks import travelling
from suffice.rows.blocks import Block, Length, Margins, Most
from suffice.rows.rounding import gamma, norm_rounding


@dataclass(frozen=True)
class ScoreAt:
    """Sums at a point. `times` is what a weight of the design counts; a, y, norms are given."""

    score: Phi
    times: float
    slack: float
    columns: int
    shift: float = 0.0
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        m, a, y = _margins(block, self.shift), block["a"], block["y"]
        counts, norms = a > 0.0, block["norms"]
        if not counts.any():
            return [0.0], np.zeros(self.columns), 0.0, 0.0, Length(0.0), 0.0, Most(0.0)
        X = block.X
        if not counts.all():
            m, a, y, X, norms = m[counts], a[counts], y[counts], X[counts], norms[counts]
        v = _weights(a, self.times)
        residuals = np.sqrt(v) * self.score.residuals(m, y)
        slopes = self.score.derivative(m, y)
        pulls = v * slopes
        blur = self.slack * norms
        if isinstance(self.score, DevianceScore):
            blur = blur + self.score.blur(m, y)
        return (
            [float(residuals @ residuals)],
            pulled(X, pulls),
            float(pulls.sum()),
            float(np.abs(pulls).sum()),
            Length(norm(np.sqrt(v) * slopes)),
            float(np.abs(pulls) @ blur),
            Most(float(np.abs(m).max())),
        )


def _weights(a: Array, times: float) -> Array:
    return np.ones(len(a)) if times == 0.0 else times * a


def _margins(block: Block, shift: float) -> Array:
    return block.margins[0] + shift if shift else block.margins[0]


def _counting(block: Block, shift: float, times: float) -> tuple[Array, Array, Array, Array]:
    """Margins, v, targets and norms of the rows that count."""
    counts = block["a"] > 0.0
    v = _weights(block["a"][counts], times)
    return _margins(block, shift)[counts], v, block["y"][counts], block["norms"][counts]


@dataclass(frozen=True)
class Ranges:
    """The least and the largest loss for margins that move by no more than `R` ||x_i|| + `even` and their blur, and
    the second-order bound. a, y, norms are given."""

    score: Phi
    times: float
    R: float
    even: float
    slack: float
    shift: float = 0.0
    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        m, v, y, norms = _counting(block, self.shift, self.times)
        with np.errstate(over="ignore", invalid="ignore"):
            h = (self.R + self.slack) * norms + self.even
            if isinstance(self.score, DevianceScore):
                h = h + self.score.blur(m, y)
            low, high = (float(v @ end) for end in self.score.range(m, h, y))
            return low, high, 0.5 * float(v @ (self.score.bend(m, h, y) * h * h))


@dataclass(frozen=True)
class Moved:
    """Sums for margins that move by x_i . n, n being scaled, and no more than `doubt` ||x_i||_{H^-1}, `even` and their
    blur besides: sum v phi' x . n, with its size, what rounds there, ||v^(1/2) h||, and what `Ranges` gives. a, y,
    norms are given."""

    score: Phi
    times: float
    factor: SignedFactor
    n: Array
    doubt: float
    even: float
    slack: float
    shift: float = 0.0
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        m, v, y, norms = _counting(block, self.shift, self.times)
        if len(m) == 0:
            return 0.0, 0.0, 0.0, Length(0.0), 0.0, 0.0, 0.0
        pulls, blur = v * self.score.derivative(m, y), self.slack * norms
        if isinstance(self.score, DevianceScore):
            blur = blur + self.score.blur(m, y)
        along, rounded, lengths = self.factor.over_rows(block.X[block["a"] > 0.0], self.n)
        with np.errstate(over="ignore", invalid="ignore"):
            h = np.abs(along) + rounded + self.doubt * lengths + self.even + blur
            low, high = (float(v @ end) for end in self.score.range(m, h, y))
            second = 0.5 * float(v @ (self.score.bend(m, h, y) * h * h))
            size = np.abs(pulls)
            first = float(pulls @ along), float(size @ np.abs(along)), float(size @ rounded)
            return (*first, Length(norm(np.sqrt(v) * h)), low, high, second)


@dataclass(frozen=True)
class Pushed:
    """sum_i v_i residual_i s_i (x_i . V + moved), block by block."""

    score: Any
    times: float
    V: Array
    moved: Array
    shift: float = 0.0
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> list[Array]:
        g = _row_gradients(block, self.score, self.times, self.shift)
        if not g.any():
            return [0.0 * self.moved]
        return [(g @ block.X) @ self.V + float(g.sum()) * self.moved]


@dataclass(frozen=True)
class PulledBack:
    """sum_i u_b v_i residual_i s_i x_i over all blocks b, and the same without x_i; `u` has one number per block."""

    score: Any
    times: float
    u: Array
    block: int
    shift: float = 0.0
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        g = self.u[block.start // self.block] * _row_gradients(block, self.score, self.times, self.shift)
        return pulled(block.X, g), float(g.sum())


def _row_gradients(block: Block, score: Any, times: float, shift: float) -> Array:
    m, a, y = _margins(block, shift), block["a"], block["y"]
    v = np.where(a > 0.0, _weights(a, times), 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        g: Array = np.where(v > 0.0, v * score.residuals(m, y) * score.residual_slopes(m, y), 0.0)
    return g


@dataclass(frozen=True, eq=False)
class HeldOutRows(HeldOut):
    """`HeldOut`, for blocks of rows. With `counted` every row of the design's view counts 1."""

    def _at(self, w: Array) -> LossAt:
        design, score = self.design, self.score
        rows = design.weights.count if self.counted and hasattr(design.weights, "count") else design.shape[0]
        times = 0.0 if self.counted else 1.0
        v_sum = float(rows) if self.counted else 1.0
        shift, image = self._shift(w)
        margins = design.X.margins(w, self.offset)
        given = {"a": design.weights, "y": self.y, "norms": design.row_norms}
        slack = design.margin_rounding(w) * norm(w)
        job = ScoreAt(score, times, slack, design.shape[1], shift)
        parts, adjoint, pulls, absolute, weighted, blurred, largest = design.X.run(job, [margins], **given)
        residuals = np.sqrt(self.share * np.array(parts))
        loss = float(residuals @ residuals)
        up = 1.0 + gamma(rows + 16)
        root = math.sqrt(v_sum)  # of v, in units of the design's weights
        gradient = norm(adjoint) + design.pull_rounding * root * float(weighted) * up
        pull = abs(pulls) + gamma(rows) * absolute
        spectral, spread = root * math.sqrt(design.squared_norm), root * design.spread(w)
        rounding = norm_rounding(residuals, self.share, rows) + gamma(rows + 16) * norm(residuals)
        of_sums = 0.0 if self.counted else 4.0 * EPS * float(largest)
        blurred *= up

        def error(radius: float) -> float:
            R = min(radius, sys.float_info.max)
            moved = of_sums + (0.0 if self.train is None else self.train.shift_within(image, R))
            far = spectral * R + root * moved + spread
            first = gradient * R + pull * moved + blurred
            if math.isfinite(score.curvature):
                change = self.share * (first + 0.5 * score.curvature * far * far)
                low, high = loss - change, loss + change
            else:
                least, most, second = design.X.run(Ranges(score, times, R, moved, slack, shift), [margins], **given)
                change = self.share * (first + second)
                low, high = (end if end == end else math.inf for end in (self.share * least, self.share * most))
                low = low if low < math.inf else 0.0
                if change == change:
                    low, high = max(low, loss - change), min(high, loss + change)
            if not (low == low and high == high):
                low, high = 0.0, math.inf
            lipschitz = math.sqrt(self.share) * score.slope * far
            return min(root_error(loss, low, high), lipschitz if lipschitz == lipschitz else math.inf) + rounding

        def verified(proof: Verification) -> float:
            assert isinstance(proof, LinearVerification)
            factor, S = proof.factor, proof.factor.support
            moved = of_sums + (0.0 if self.train is None else 4.0 * EPS * abs(shift) + abs(shift - proof.b))
            entries = design.pull_gammas[S] * design.column_norms[S] * root * float(weighted) * up
            vector = adjoint[S]
            if factor.intercept:
                vector, entries = np.append(vector, pulls), np.append(entries, gamma(rows) * absolute)
            n = proof.step / factor.scale
            job = Moved(score, times, travelling(factor), n, proof.slack, moved, slack, shift)
            along, sizes, rounded, far, low, high, second = design.X.run(job, [margins], **given)
            first = abs(along) + gamma(rows + 4) * sizes * up + rounded * up + pull * moved + blurred
            first += proof.against(vector, entries + design.underflow)
            ends = low * (2.0 - up), high * up
            return least_error(score, self.share, loss, first, second * up, ends, float(far) * up) + rounding

        linear = self._row_linear(margins, given, times, residuals, shift, image)
        return LossAt(residuals, error, verified, linear)

    def _shift(self, w: Array) -> tuple[float, Any]:
        """The intercept, and the margins that it belongs to."""
        if self.train is None:
            return 0.0, None
        image = self.train.image(w)
        return self.train.intercept(image)[0], image

    def _row_linear(
        self, margins: Margins, given: dict[str, Any], times: float, residuals: Array, shift: float, image: Any
    ) -> Linear | None:
        if not isinstance(self.score, SmoothPhi):
            return None
        X, score, train = self.design.X, self.score, self.train
        inverse = self.share / np.where(residuals > 0.0, residuals, math.inf)

        def forward(V: Array) -> Array:
            moved = np.zeros(V.shape[1]) if train is None else train.intercept_gradient(image) @ V
            rows = X.run(Pushed(score, times, V, moved, shift), [margins], **given)
            moves: Array = inverse[:, None] * np.array(rows)
            return moves

        def adjoint(u: Array) -> Array:
            job = PulledBack(score, times, inverse * u, X.block, shift)
            pulled_back, total = X.run(job, [margins], **given)
            result: Array = pulled_back
            return result if train is None else result + train.intercept_gradient(image) * total

        return Linear(forward, adjoint)
