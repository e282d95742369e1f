r"""What is done with a block of rows (`suffice.rows.blocks`) whose loss is a sum of psi over one or more margins:

    at a point   sum_i a_i psi(m_i), X^T (a psi'(m)), and what bounds the rounding of these
    along        sum_i a_i c_i (n_i - m_i)^2 between two points
    curvature    a_i psi'' of every row
    balance      sum_i a_i psi'(m_i + b), for an intercept b

Rows that do not count, a_i = 0, are left out of whatever could leave the range of floats there. Margins, weights and
targets are arrays of any library, and live where the rows are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, length, namespace
from suffice.models.margin_losses import LARGEST, MarginLoss, slope_and_bend, slope_size
from suffice.rows.gram import Gram
from suffice.rows.rounding import dot
from suffice.rows.sums import Block, Job, Length, Most, beside


@dataclass(frozen=True)
class Slack:
    """How far margins may be off: `slack` ||x_i|| + `least`, `carried` units of themselves and of the offset o, and
    `even` for all."""

    slack: Any  # one for all margins of a row, or one for each
    least: float
    carried: float = 0.0
    even: float = 0.0

    def of(self, block: Block, shift: Any) -> Array:
        """Of every row."""
        raw = block.margins[0]
        error: Array = self.slack * beside(block["norms"], raw) + (self.least + self.even)
        if self.carried:
            o = block.given.get("o")
            error = error + self.carried * EPS * (abs(raw) + (0.0 if o is None else abs(o)) + abs(shift))
        return error


@dataclass(frozen=True)
class At(Job):
    """A point: its loss, the gradient of this, X^T (a psi'), and lengths that bound the rounding of the gradient where
    margins err by no more than `off`: the loss says which (`lengths`), or they are those of `_lengths`. a, y are given;
    norms and o for the bounds; `slopes` if they are known.

    What is not asked for is not made: X is read for the gradient alone."""

    loss: Any
    shift: Any = 0.0  # an intercept, or one for each output
    reads: bool = True
    off: Slack | None = None
    value: bool = True

    def __call__(self, block: Block) -> Any:
        a, y = block["a"], block["y"]
        m = block.margins[0]
        if isinstance(self.shift, np.ndarray) or self.shift:
            m = m + self.shift
        gradient, slopes = np.zeros(0), block.given.get("slopes")
        with np.errstate(over="ignore", invalid="ignore"):
            if slopes is None and (self.reads or self.off is not None):
                slopes = self.loss.derivative(m, y)
            value = float(namespace(m).sum(a @ self.loss.value(m, y))) if self.value else 0.0
            if self.reads:
                gradient = block.pull(beside(a, m) * slopes)
            if self.off is None:
                return value, gradient
            own = getattr(self.loss, "lengths", None)
            bounds = self._lengths(block, m, slopes) if own is None else own(block, self.shift, slopes)
        return value, gradient, *bounds

    def _lengths(self, block: Block, m: Array, slopes: Any) -> tuple[Length, Length, Most]:
        """Psi' errs by the largest psi'' within a margin's error times it: little where psi is flat, as on confident
        samples."""
        assert self.off is not None
        a, y, error = block["a"], block["y"], self.off.of(block, self.shift)
        xp, counts = namespace(a), a > 0.0
        if not bool(xp.all(counts)):
            m, a, y, error, slopes = m[counts], a[counts], y[counts], error[counts], slopes[counts]
        root, bend = beside(xp.sqrt(a), m), self.loss.curvature_between(m - error, m + error, y)
        size = slope_size(self.loss, slopes, bend, m, y)
        through, whole = length(root * bend * error), length(root * (size + bend * error))
        cut = math.isinf(self.loss.curvature) and not bool(xp.all(bend < LARGEST))
        return Length(through), Length(whole), Most(float(cut))


@dataclass(frozen=True)
class Along(Job):
    """sum_i a_i c_i (n_i - m_i)^2, c_i no less than psi'' between these margins. a, y are given."""

    loss: MarginLoss
    shift: float = 0.0
    reads = False

    def __call__(self, block: Block) -> float:
        m, n = block.margins
        c, change = self.loss.curvature_between(m + self.shift, n + self.shift, block["y"]), n - m
        return float(namespace(c).sum(block["a"] @ (c * change * change)))


@dataclass(frozen=True)
class SlopeAtZero(Job):
    """||a^(1/2) psi'(0)||. a, y are given."""

    loss: MarginLoss
    reads = False

    def __call__(self, block: Block) -> Length:
        a = block["a"]
        return Length(length(self.loss.derivative(0.0 * a, block["y"]) * namespace(a).sqrt(a)))


@dataclass(frozen=True)
class Curvature(Job):
    """a_i psi'' of every row, or the larger of `before` and of its mean between two margins; and their sum. a, y,
    before are given."""

    loss: MarginLoss
    shift: float = 0.0
    shift_there: float = 0.0
    reads = False
    keeps = True

    def __call__(self, block: Block) -> tuple[Array, float]:
        m, a, y = block.margins[0] + self.shift, block["a"], block["y"]
        C: Array = a * self.loss.curvature_between(m, m, y)
        if len(block.margins) > 1:
            xp, n = namespace(m), block.margins[1] + self.shift_there
            moved = abs(n - m) > 1e-6 * (abs(m) + abs(n))
            change = self.loss.derivative(n, y) - self.loss.derivative(m, y)
            C = xp.where(moved, a * change / xp.where(moved, n - m, xp.ones_like(m)), C)
            C = xp.maximum(block["before"], C)
        return C, float(namespace(C).sum(C))


@dataclass(frozen=True)
class Bend(Job):
    """X^T C X, C = diag(a psi''), with a column of ones if there is an `intercept`. a, y are given."""

    loss: MarginLoss
    shift: float
    intercept: bool
    size: int  # of what it gives

    def __call__(self, block: Block) -> Array:
        of_all = Gram(np.arange(block.X.shape[1]), self.intercept)
        with np.errstate(over="ignore", invalid="ignore"):  # rates may leave the range of floats
            C, _ = Curvature(self.loss, self.shift)(block)
            return of_all(Block(block.start, block.stop, block.read, {"C": C}))


@dataclass(frozen=True)
class Slope(Job):
    """sum_i a_i psi'((m_i + n_i) / 2) (n_i - m_i): the derivative half-way from m to n. a, y are given."""

    loss: MarginLoss
    shift: float = 0.0
    shift_there: float = 0.0
    reads = False

    def __call__(self, block: Block) -> float:
        m, n = block.margins[0] + self.shift, block.margins[1] + self.shift_there
        with np.errstate(over="ignore", invalid="ignore"):
            return float(block["a"] @ (self.loss.derivative(0.5 * m + 0.5 * n, block["y"]) * (n - m)))


@dataclass(frozen=True)
class Balance(Job):
    """s(b) = sum_i a_i psi'(m_i + b), no less than its derivative, sums that bound the rounding of s, and the
    derivative itself for losses which have it (`second`). a, y are given, and `slopes` and `bends`, psi' and no less
    than psi'' of each row, where they are known; without margins these are 0."""

    loss: MarginLoss
    b: float
    second: bool
    reads = False

    def __call__(self, block: Block) -> Any:
        a, y, given = block["a"], block["y"], block.given
        m = block.margins[0] if block.margins else np.zeros(len(a))
        slopes, bends, counts = given.get("slopes"), given.get("bends"), a > 0.0
        if not counts.all():
            m, a, y = m[counts], a[counts], y[counts]
            slopes, bends = (None if one is None else one[counts] for one in (slopes, bends))
        if len(m) == 0:
            return 0.0, 0.0, 0.0, 0.0, 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            at = m + self.b
            if slopes is None or bends is None:
                slopes, bends = slope_and_bend(self.loss, at, y)
            size = float(a @ slope_size(self.loss, slopes, bends, at, y))
            shaken = float(a @ (EPS * bends * (np.abs(m) + abs(self.b))))  # without EPS it may overflow
            second = float(a @ self.loss.second(at, y)) if self.second else 0.0  # type: ignore[attr-defined]
        return dot(a, slopes), float(a @ bends), size, shaken, second


@dataclass(frozen=True)
class Sizes(Job):
    """Of rows that count: minus the least margin, the largest, sum_i a_i m_i, and the largest |o|. a is given, and o
    if there is one."""

    reads = False

    def __call__(self, block: Block) -> tuple[Most, Most, Any, Most]:
        m, a, o = block.margins[0], block["a"], block.given.get("o")
        counted, largest = m[a > 0.0], 0.0 if o is None else float(abs(o).max())
        low, high = (float(counted.min()), float(counted.max())) if len(counted) else (math.inf, -math.inf)
        return Most(-low), Most(high), a @ m, Most(largest)
