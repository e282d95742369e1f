r"""Losses of margins on held-out data, and how far the error of the weights can move them.

    loss(w) = share sum_i v_i phi(m_i, y_i) = r(w)^2,        m_i = x_i . w + o_i + b(w),

of one output or of K of them, W being K x d and m_i, b in R^K, with norms that are Frobenius' (`prove.scores`).

Let ||w - w_hat|| <= R. If an intercept b is minimised out, the computed b is within S = S(R) of b(w_hat): B R + e, B =
max ||x_j|| over training rows and e the error of b (`suffice.models.intercept`), or what `suffice.models.multinomial`
proves; else S = 0. Margins move by d_i with |d_i| <= h_i = ||x_i|| R + S, and
with |phi''| <= c the loss moves by at most the least of

    first order    share ( ||X^T (v phi'(m))|| R + |sum_i v_i phi'(m_i)| S + (1/2) sum_i v_i phi''-bound d_i^2 ),
                   where the last sum is at most c (||diag(v)^(1/2) X|| R + S)^2, and at most sum_i v_i c_i h_i^2,
    per sample     phi(m_i) stays in the range it has on [m_i - h_i, m_i + h_i],
    Lipschitz      sqrt(loss) moves by share^(1/2) slope (||diag(v)^(1/2) X|| R + S).

The first is tight for a small radius, the second for a large one. All of them include the rounding of the margins:
|fl(x_i . w) - x_i . w| <= delta_i (`Design.margin_rounding`) adds to h_i, its norm to ||X|| R, and sum_i v_i
|phi'(m_i)| delta_i to the first order. Where a model nearly interpolates, nothing else is left of the error. Where the
minimiser w + h is verified (`suffice.prove.verified`) h bounds what margins move, b included.

`Brier`, `LogLoss` and `SquaredError` of `suffice.losses` are sums over rows as they were given, v_i = 1. Folds of
`suffice.sklearn` have weights, and dense rows relative to the training mean, which changes b and nothing else, and
makes ||x_i|| and S as small as a shift can; what such sums round to counts in S.

Residuals are one or more for every row at hand. Of blocks of rows that are read from elsewhere (`suffice.rows.blocks`)
there is one for every block, the root of its rows' part: what every single row has stays with it. The first order and
the Lipschitz bound need no more than a few sums that one pass over X gives; the one per sample, which takes a pass over
the margins for every radius, is used there where phi'' has no bound. With a verification all of them are, in one more
pass over X. Of a block,  d r_b / d w = (share / (2 r_b)) sum_i v_i phi'_i x_i.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, host, norm
from suffice.lazy import cached_property
from suffice.models.linear import by_columns, by_outputs
from suffice.prove.factor import ProvenFactor
from suffice.prove.loss_at import Linear, LossAt, root_error
from suffice.prove.scores import Phi, lengths
from suffice.prove.verified import Verification
from suffice.prove.verified_rows import entry_gammas
from suffice.rows.design import Design
from suffice.rows.margins import Rider
from suffice.rows.rounding import gamma, norm_rounding
from suffice.rows.sums import Block, Job, Length, Most, beside


def ranges(
    score: Phi, m: Array, y: Array, v: Array, h: Array, steep: Array, first: float
) -> tuple[float, float, float]:
    """The least and the largest sum of v phi for margins that move by no more than h each, and the second-order bound;
    `steep` are v |phi'|. Nothing is said of the former if they cannot be closer than `first` and second order are."""
    with np.errstate(over="ignore", invalid="ignore"):
        second = 0.5 * float(v @ (score.bend(m, h, y) * h * h))
        # phi changes by no less than |phi'| h - phi''-bound h^2 / 2 on one side of m: ranges that must be wider
        # than what the first order leaves are not looked at.
        if float(steep @ h) - second > first + second:
            return -math.inf, math.inf, second
        low, high = score.range(m, h, y)
        return float(v @ low), float(v @ high), second


def least_error(
    score: Phi, share: float, loss: float, first: float, second: float, ends: tuple[float, float], far: float
) -> float:
    """The error of r, but for its own rounding, by the least of the three bounds: `first` and `second` order, sums of
    phi that stay within `ends`, and Lipschitz for margins that move by `far`."""
    low, high = ends
    if math.isfinite(score.curvature):
        second = min(second, 0.5 * score.curvature * far * far) if second == second else math.inf
    change = share * (first + second)
    low, high = (end if end == end else other for end, other in ((low, 0.0), (high, math.inf)))
    low = max(loss - change, share * low, 0.0) if change == change else share * low
    high = min(loss + change, share * high) if change == change else share * high
    lipschitz = math.sqrt(share) * score.slope * far
    return min(root_error(loss, low, high), lipschitz if lipschitz == lipschitz else math.inf)


@dataclass(frozen=True)
class HeldJob(Job):
    """A job on held-out rows: what a method of `HeldRows` gives for a block, or these themselves. a, y, norms are
    given."""

    score: Phi
    b: Any
    slack: float  # what margins are off by, times ||x_i||
    counted: bool
    method: str = ""
    arguments: tuple[Any, ...] = ()
    reads: bool = True

    def __call__(self, block: Block) -> Any:
        rows = HeldRows(block, self)
        with np.errstate(over="ignore", invalid="ignore"):
            return getattr(rows, self.method)(*self.arguments) if self.method else rows


class HeldRows:
    """Held-out rows of a block; those that do not count have v = 0, and are at margins 0."""

    def __init__(self, block: Block, job: HeldJob) -> None:
        a, score = host(block["a"]), job.score
        counts = a > 0.0
        self.block, self.score, self.counts = block, score, None if counts.all() else counts
        self.v: Array = counts.astype(np.float64) if job.counted else a
        self.y, self.m = host(block["y"]), self.masked(host(block.margins[0]) + job.b)
        self.norms = self.masked(host(block["norms"]))
        self.own_blur = score.blur(self.m, self.y)  # what the rounding of phi is worth, as an error of margins
        self.blur = self.masked(job.slack * self.norms + self.own_blur)  # how far margins may be off, in all
        self.slopes = score.derivative(self.m, self.y)
        self.sizes = score.sizes(self.slopes, self.m)
        self.pulls = beside(self.v, self.slopes) * self.slopes
        self.steep = lengths(self.pulls / score.units)

    def masked(self, values: Array) -> Array:
        """0 for rows that do not count."""
        return values if self.counts is None else np.where(beside(self.counts, values), values, 0.0)

    @cached_property
    def residuals(self) -> Array:
        residuals = self.score.residuals(self.m, self.y)
        residuals *= beside(np.sqrt(self.v), residuals)
        return residuals

    def sums(self) -> Any:
        """The loss, block by block; X^T v phi', v phi' and what these are rounded relative to, output by output; what
        margins that are off move the loss by; and the largest margin, and what it is off by without its products."""
        roots = (beside(np.sqrt(self.v), self.sizes) * self.sizes).T.reshape(-1, len(self.v))
        return (
            [float(np.vdot(self.residuals, self.residuals))],
            self.block.pull(self.pulls),
            self.pulls.sum(axis=0),
            self.v @ self.sizes,
            tuple(Length(norm(one)) for one in roots),
            float(self.steep @ self.blur),
            Most(np.abs(self.m).max(initial=0.0)),
            Most(np.max(self.own_blur, initial=0.0)) if self.m.ndim > 1 else 0.0,
        )

    def ranges(self, R: float, even: float, first: float) -> tuple[float, float, float]:
        """For margins that move by no more than R ||x_i|| + `even`."""
        h = self.masked(R * self.norms + even + self.blur)
        return ranges(self.score, self.m, self.y, self.v, h, self.steep, first)

    def moved(self, factor: ProvenFactor, n: Array, doubt: float, even: float) -> Any:
        """For margins that move by B_i n, n being scaled, and no more than `doubt` times the norms of B_i, `even` and
        their blur besides: sum v phi' . B_i n, with its size, what rounds
        there, ||v^(1/2) h||, and the ranges."""
        score, X, v, shape = self.score, self.block.X, self.v, self.m.shape
        moved, rounding, norms = factor.moved(X, n, norms=True)
        along, rounded = (self.masked(one.reshape(shape)) for one in score.moves(moved, rounding))
        h = self.masked(lengths(np.abs(along) + rounded + doubt * norms.reshape(shape)) + even + self.blur)
        low, high, second = ranges(score, self.m, self.y, v, h, self.steep, math.inf)
        sizes = beside(v, self.sizes) * self.sizes
        return (
            float(np.vdot(self.pulls, along)),
            float(np.vdot(sizes, np.abs(along))),
            float(np.vdot(sizes, rounded)),
            Length(norm(np.sqrt(v) * h)),
            low,
            high,
            second,
        )

    def pushed(self, V: Array, b: Array) -> list[Array]:
        """sum_i v_i phi'_i . (dm_i), for weights that move by the columns of V, and b by those of `b`."""
        return [by_outputs(self.block.pull(self.pulls)) @ V + np.dot(self.pulls.sum(axis=0), b)]

    def pulled(self, u: Array, length: int) -> tuple[Array, Any]:
        """u_b sum_i v_i phi'_i x_i, of which there is one u for every block of so many rows; and without x_i."""
        pulls = u[self.block.start // length] * self.pulls
        return self.block.pull(pulls), pulls.sum(axis=0)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """share sum_i v_i phi(x_i . w + b(w), y_i): `design` holds the held-out rows and v, `train` the model that b(w)
    is minimised out of. With `counted` every row counts 1, v_i = 1, and neither rows nor targets were shifted."""

    design: Design
    y: Any
    score: Phi
    share: float = 1.0
    train: Any = None
    counted: bool = False
    offset: Any = None  # of every row, a known part of its margin
    blur: float | None = None  # what margins are off by besides their own rounding, where that is known

    def fingerprint(self) -> dict[str, Any]:
        known = {"design": self.design, "y": self.y, "score": self.score, "share": self.share, "train": self.train}
        known |= {"counted": True} if self.counted else {}
        return known if self.offset is None else {**known, "offset": self.offset}

    def at(self, w: Array) -> LossAt:
        """The loss at w; the latest one is kept, which an evaluation asks for several times."""
        known: tuple[Array, LossAt] | None = self.__dict__.get("_latest")
        if known is None or not np.array_equal(known[0], w):
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite proves nothing
                known = np.array(w), _At(self, w).loss_at()
            object.__setattr__(self, "_latest", known)
        return known[1]

    @property
    def given(self) -> dict[str, Any]:
        """What goes with the rows."""
        return {"a": self.design.weights, "y": self.y, "norms": self.design.row_norms}

    def job_at(self, w: Array) -> tuple[HeldJob, Any]:
        """What rows are asked at w, with b, and the margins that b belongs to."""
        b, image, K = 0.0, None, len(w) // self.design.shape[1]
        if self.train is not None:
            image = self.train.image(w)
            b = self.train.shift(image)[0]
        off = [self.design.margin_rounding(one) * norm(one) for one in w.reshape(K, -1)]
        return HeldJob(self.score, b, norm(self.score.units * np.array(off)), self.counted), image

    def rider(self, image: Any) -> Rider:
        """What `at` asks for first at these margins of X w, of rows that are the training rows as well."""
        return Rider("held out", (self,), replace(self.job_at(by_outputs(image.w))[0], method="sums"), self.given)

    def margins(self, w: Array, radius: float) -> tuple[Array, Array]:
        """Margins of all rows at hand at w, and how far those of weights within the radius may be from them."""
        with np.errstate(over="ignore", invalid="ignore"):
            return _At(self, w).margins_within(radius)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_latest"}


class _At:
    """What is known of a held-out loss at w, with what rounding does to it."""

    def __init__(self, held: HeldOut, w: Array) -> None:
        design, score = held.design, held.score
        self.held, self.w, self.K = held, w, len(w) // design.shape[1]
        self.job, self.image = held.job_at(w)
        self.b = self.job.b
        self.margins = design.rows.margins(w if self.K == 1 else w.reshape(self.K, -1).T, held.offset)
        self.here: HeldRows | None = None if design.rows.dear else self._run(self.job)
        self.rows = getattr(design.weights, "count", design.shape[0]) if held.counted else design.shape[0]
        self.root = math.sqrt(float(self.rows)) if held.counted else 1.0  # of v, in units of the design's weights
        self.unit = 1.0 if self.K == 1 else float(np.max(score.units))
        self.up = 1.0 + gamma(sum(design.shape) + self.K + 16)
        self._sum()

    def _shift_within(self, R: float) -> float:
        train = self.held.train
        return 0.0 if train is None else float(train.shift_within(self.w, self.image, R))

    def margins_within(self, radius: float) -> tuple[Array, Array]:
        rows, R = self.here, min(radius, sys.float_info.max)
        assert rows is not None
        return rows.m, rows.masked(R * self.unit * rows.norms + self.even + self._shift_within(R) + rows.blur)

    def _run(self, job: HeldJob) -> Any:
        return self.held.design.rows.run(job, [self.margins], **self.held.given)

    def ask(self, method: str, *arguments: Any, reads: bool = True) -> Any:
        """The sum over all blocks."""
        if self.here is not None:
            return getattr(self.here, method)(*arguments)
        return self._run(replace(self.job, method=method, arguments=arguments, reads=reads))

    def _sum(self) -> None:
        design, held, K, up, root = self.held.design, self.held, self.K, self.up, self.root
        found = None if self.here is not None else design.rows.known(self.margins).what_is_known("held out", (held,))
        found = self.ask("sums") if found is None else found
        parts, adjoint, total, absolute, lengths, blurred, largest, off = found
        if self.here is not None:
            self.residuals = math.sqrt(held.share) * self.here.residuals.ravel()
        else:
            self.residuals = np.sqrt(held.share * np.array(parts))
        self.loss = float(self.residuals @ self.residuals)
        self.rounding = norm_rounding(self.residuals, held.share * self.unit**2, self.rows * K)  # of r itself
        if self.here is None:
            self.rounding += gamma(self.rows + K + 16) * norm(self.residuals)
        self.adjoint = by_outputs(adjoint).reshape(K, -1)  # X^T v phi'
        self.weighted = root * up * np.array(lengths, dtype=np.float64)  # what it is rounded relative to
        self.total, self.absolute = total.reshape(K), absolute.reshape(K) * up  # sum v phi', and its size
        self.spectral = root * math.sqrt(design.squared_norm) * self.unit  # ||diag(v)^(1/2) X||
        self.gradient = norm(adjoint.ravel()) + design.pull_rounding * norm(self.weighted)
        # What a shift of all margins by 1 does to the first order
        self.pull = norm((np.abs(self.total) + gamma(self.rows + K + 16) * self.absolute) / held.score.units)
        if K > 1:  # slopes that are a few units off, wherever they are small
            self.gradient += self.spectral * held.score.curvature * off
            self.pull += root * root * held.score.curvature * off
            blurred += 2.0 * root * root * off  # phi itself, where slopes are next to nothing
        self.blurred = blurred * up  # what margins that are off do to the first order
        self.spread = root * (self.job.slack * design.frobenius_norm + off)  # of margins, in all
        # What sums round to is part of what phi rounds to, where that is known: what all margins may be off by besides.
        even = 0.0 if held.counted or off > 0.0 else 4.0 * EPS * math.sqrt(K) * self.unit * float(largest)
        self.even = even if held.blur is None else norm(np.zeros(K) + held.score.units) * held.blur

    def loss_at(self) -> LossAt:
        score = self.held.score
        linear = self._linear() if score.smooth else None
        return LossAt(self.residuals, self.error, self.verified, linear)

    def _bound(self, first: float, second: float, ends: tuple[float, float], far: float) -> float:
        held = self.held
        return least_error(held.score, held.share, self.loss, first, second, ends, far) + self.rounding

    def error(self, radius: float) -> float:
        """Of r, for weights within the radius."""
        # Products of floats overflow to infinity without complaint; 0 * infinity is NaN, and proves nothing.
        R = min(radius, sys.float_info.max)
        shift = self.even + self._shift_within(R)
        far = self.spectral * R + self.root * shift + self.spread
        first = self.gradient * R + self.pull * shift + self.blurred
        low, high, second = -math.inf, math.inf, math.inf
        if self.here is not None or math.isinf(self.held.score.curvature):
            at_once = math.inf if self.here is None else first
            with np.errstate(over="ignore", invalid="ignore"):
                low, high, second = self.ask("ranges", R * self.unit, shift, at_once, reads=False)
        return self._bound(first, second, (low, high), far)

    def verified(self, proof: Verification) -> float:
        """The same, where the minimiser is exhibited."""
        design, factor, K, shift = self.held.design, proof.factor, self.K, self.even
        if self.held.train is not None:
            shift += 4.0 * EPS * norm(np.atleast_1d(self.b)) + norm(self.b - proof.b)
        entries = entry_gammas(design, K) * design.column_norms * self.weighted[:, None] + design.underflow
        of_total = gamma(self.rows + K + 16) * self.absolute + design.underflow
        variables = factor.variables
        first = proof.against(variables.gathered(self.adjoint, self.total), variables.gathered(entries, of_total))
        first += self.pull * shift + self.blurred
        with np.errstate(over="ignore", invalid="ignore"):
            found = self.ask("moved", factor.travelling, proof.step / factor.scale, proof.slack, shift)
        along, sizes, rounded, far, low, high, second = found
        first += abs(along) + (gamma(self.rows * K + K + 16) * sizes + rounded) * self.up
        return self._bound(first, second * self.up, (low * (2.0 - self.up), high * self.up), float(far) * self.up)

    def _follow(self, V: Array) -> Array:
        """How b moves with weights that move by the columns of V."""
        train, k = self.held.train, V.shape[1]
        b: Array = np.zeros((self.K, k)) if train is None else train.intercept_along(self.image, V)
        return b if self.K > 1 else b[0]

    def _led(self, total: Any) -> Any:
        """What b that count by `total` pull weights by."""
        train = self.held.train
        return 0.0 if train is None else train.intercept_adjoint(self.image, total)

    def _linear(self) -> Linear:
        score, design, here, share, K = self.held.score, self.held.design, self.here, self.held.share, self.K
        if here is None:
            residuals = self.residuals
            inverse = 0.5 * share / np.where(residuals > 0.0, residuals, math.inf)

            def forward(V: Array) -> Array:
                return np.asarray(inverse[:, None] * np.array(self.ask("pushed", V, self._follow(V))))

            def adjoint(u: Array) -> Array:
                pulled, total = self.ask("pulled", inverse * u, design.rows.block)
                return np.asarray(by_outputs(pulled) + self._led(total))

            return Linear(forward, adjoint)
        m, y, root = here.m, here.y, np.sqrt(share * here.v)

        def forward_by_rows(V: Array) -> Array:
            k = V.shape[1]
            moved = host(design.margins(by_columns(V, K)))
            moved = (moved if K == 1 else moved.reshape(-1, K, k)) + self._follow(V)
            moves = score.forward(m, y, moved)
            return (root.reshape(-1, *[1] * (moves.ndim - 1)) * moves).reshape(-1, k)

        def adjoint_by_rows(u: Array) -> Array:
            u = u if K == 1 else u.reshape(len(m), -1)
            pulls = score.adjoint(m, y, beside(root, u) * u)
            return np.asarray(by_outputs(design.adjoint(pulls)) + self._led(pulls.sum(axis=0)))

        return Linear(forward_by_rows, adjoint_by_rows)
