r"""What is done with a block of rows (`suffice.rows.blocks`): one pass over X each, or over what goes with its rows.

    survey       max |x_ij|, ||x_i||, sum_i a_i x_ij^2, and X^T diag(a) X where it is small
    at a point   sum_i a_i psi(m_i), X^T (a psi'(m)), and what bounds the rounding of these
    Gram         X_W^T C X_W, of all rows or of a sample
    normal       X^T C X v

Rows that do not count, a_i = 0, are left out of whatever could leave the range of floats there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, norm
from suffice.models.margin_losses import LARGEST, MarginLoss, slope_and_bend, slope_size
from suffice.rows.blocks import Block, Length, Most
from suffice.rows.gram import gram
from suffice.rows.rounding import TINY, block_length, dense_product, dot

GOLDEN = 0.6180339887498949  # phases of samples: no two neighbours alike


def pulled(X: Array, r: Array) -> Array:
    """X^T r for a block."""
    return dense_product(X, r, block_length(len(X)))


@dataclass(frozen=True)
class Survey:
    """What a design has to know of X, in units of `unit`; row norms stay with the rows, if `keeps`. `a` is given."""

    unit: float
    gram: bool
    size: int = 0  # of what it gives
    reads: bool = True
    keeps: bool = True

    def __call__(self, block: Block) -> Any:
        X, a = block.X, block["a"]
        largest = float(np.abs(X).max(initial=0.0))
        finite = bool(np.isfinite(X).all())
        X = X if self.unit == 1.0 else X / self.unit
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("ij,ij->i", X, X)
            norms = np.sqrt(squares + X.shape[1] * TINY) * self.unit
            columns, means = a @ X**2, a @ X
            G = gram(X, scale=np.sqrt(a))[0] if self.gram else np.zeros((0, 0))
        counting = norms[a > 0.0]
        found = (
            Most(largest if finite else math.inf),
            Most(norms.max(initial=0.0)),
            Most(counting.max(initial=0.0)),
            columns,
            means,
            G,
        )
        return (norms, found) if self.keeps else found


@dataclass(frozen=True)
class At:
    """A point: the loss, its gradient, and lengths that bound the rounding of the latter where margins err by no more
    than `slack` ||x_i|| + `least` (plus `carried` units of themselves and of the offset o). a, y, norms, o are given.

    Without `pull` X is not read, and there is no gradient."""

    loss: MarginLoss
    slack: float
    least: float
    carried: float = 0.0
    pull: bool = True
    shift: float = 0.0  # an intercept
    even: float = 0.0  # what all margins may be off besides
    balance: Balance | None = None  # what is asked of the intercept in the same pass
    keeps: bool = False

    @property
    def reads(self) -> bool:
        return self.pull

    def __call__(self, block: Block) -> Any:
        raw, a, y, norms = block.margins[0], block["a"], block["y"], block["norms"]
        m = raw + self.shift if self.shift else raw
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = self.loss.derivative(m, y)
            value = float(a @ self.loss.value(m, y))
            gradient = pulled(block.X, a * slopes) if self.pull else np.zeros(0)
            error = self.slack * norms + (self.least + self.even)
            if self.carried:
                o = block.given.get("o")
                error = error + self.carried * EPS * (np.abs(raw) + (0.0 if o is None else np.abs(o)) + abs(self.shift))
            counts = a > 0.0
            if not counts.all():
                m, a, y, error, slopes = m[counts], a[counts], y[counts], error[counts], slopes[counts]
            root, bend = np.sqrt(a), self.loss.curvature_between(m - error, m + error, y)
            size = slope_size(self.loss, slopes, bend, m, y)
            through, whole = norm(root * bend * error), norm(root * (size + bend * error))
            cut = math.isinf(self.loss.curvature) and not bool(np.all(bend < LARGEST))
        found = value, gradient, Length(through), Length(whole), Most(float(cut))
        return found if self.balance is None else (*found, *self.balance(block))


@dataclass(frozen=True)
class Along:
    """sum_i a_i c_i (n_i - m_i)^2, c_i no less than psi'' between these margins. a, y are given."""

    loss: MarginLoss
    shift: float = 0.0
    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> float:
        m, n = block.margins
        c = self.loss.curvature_between(m + self.shift, n + self.shift, block["y"])
        change = n - m
        return float(block["a"] @ (c * change * change))


@dataclass(frozen=True)
class SlopeAtZero:
    """||a^(1/2) psi'(0)||. a, y are given."""

    loss: MarginLoss
    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> Length:
        a = block["a"]
        return Length(norm(self.loss.derivative(0.0 * a, block["y"]) * np.sqrt(a)))


@dataclass(frozen=True)
class Curvature:
    """a_i psi'' of every row, or the larger of `before` and of its mean between two margins; and their sum. a, y,
    before are given."""

    loss: MarginLoss
    shift: float = 0.0
    shift_there: float = 0.0
    reads: bool = False
    keeps: bool = True

    def __call__(self, block: Block) -> tuple[Array, Any]:
        C = self.rows(block)
        influence = C * block["norms"] ** 2
        return C, (float(C.sum()), float(influence.sum()), Most(0.0 if np.isfinite(C).all() else 1.0))

    def rows(self, block: Block) -> Array:
        """C of every row."""
        m, a, y = block.margins[0] + self.shift, block["a"], block["y"]
        C: Array = a * self.loss.curvature_between(m, m, y)
        if len(block.margins) > 1:
            n = block.margins[1] + self.shift_there
            moved = np.abs(n - m) > 1e-6 * (np.abs(m) + np.abs(n))
            change = self.loss.derivative(n, y) - self.loss.derivative(m, y)
            C = np.where(moved, a * change / np.where(moved, n - m, 1.0), C)
            C = np.maximum(block["before"], C)
        return C


@dataclass(frozen=True)
class Gram:
    """X_W^T C X_W, with a column of ones if there is an `intercept`; from a sample of rows where each is taken with the
    probability `rate` times its influence. C, norms are given, or all rows count and C is made on the way."""

    W: npt.NDArray[np.intp]
    rate: float = math.inf
    curvature: Any = None  # one that has C of the `rows` of a block
    intercept: bool = False
    reads: bool = True
    keeps: bool = False

    @property
    def size(self) -> int:
        return len(self.W) ** 2

    def __call__(self, block: Block) -> Array:
        C = block["C"] if self.curvature is None else self.curvature.rows(block)
        if self.rate < math.inf:
            number = block.start // (block.stop - block.start) + 1  # the last, shorter one shares a number: no harm
            rows, C = sampled(C, block["norms"], self.rate, (number * GOLDEN) % 1.0)
        else:
            rows = np.flatnonzero(C)
            C = C[rows]
        return gram(block.X, self.W, np.sqrt(C), rows, intercept=self.intercept)[0]


def sampled(C: Array, norms: Array, rate: float, phase: float) -> tuple[npt.NDArray[np.intp], Array]:
    """Rows where the sum of their probabilities passes an integer, and their weights: every row once, no random
    numbers. What is the same on average for all phases."""
    p = np.minimum(rate * C * norms**2, 1.0)
    before = np.cumsum(p) - p
    certain = p >= 1.0
    rows = np.flatnonzero((np.floor(before + p + phase) > np.floor(before + phase)) | certain)
    rows = rows[p[rows] > 0.0]
    return rows, C[rows] / p[rows]


@dataclass(frozen=True)
class Normal:
    """X^T C X V, or |X|^T diag(a) |X| V / unit^2. C or a is given."""

    V: Array
    absolute: bool = False
    unit: float = 1.0
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Array:
        X = np.abs(block.X) / self.unit if self.absolute else block.X
        C = block["C"]
        image = X @ self.V
        return pulled(X, C * image if image.ndim == 1 else C[:, None] * image)


@dataclass(frozen=True)
class Pull:
    """X^T r. r is given."""

    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Array:
        return pulled(block.X, block["r"])


@dataclass(frozen=True)
class CurvedPull:
    """X^T C 1 and 1^T C 1."""

    curvature: Curvature
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> tuple[Array, float]:
        C = self.curvature.rows(block)
        return pulled(block.X, C), float(C.sum())


@dataclass(frozen=True)
class Slope:
    """sum_i a_i psi'((m_i + n_i) / 2) (n_i - m_i): the derivative half-way from m to n. a, y are given."""

    loss: MarginLoss
    shift: float = 0.0
    shift_there: float = 0.0
    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> float:
        m, n = block.margins[0] + self.shift, block.margins[1] + self.shift_there
        with np.errstate(over="ignore", invalid="ignore"):
            return float(block["a"] @ (self.loss.derivative(0.5 * m + 0.5 * n, block["y"]) * (n - m)))


@dataclass(frozen=True)
class Balance:
    """s(b) = sum_i a_i psi'(m_i + b), no less than its derivative, that itself for losses which have one, and sums that
    bound the rounding of s. a, y are given; without margins they are 0."""

    loss: MarginLoss
    b: float
    second: bool
    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        a, y = block["a"], block["y"]
        counts = a > 0.0
        m = block.margins[0][counts] if block.margins else np.zeros(int(counts.sum()))
        a, y = a[counts], y[counts]
        if len(m) == 0:
            return 0.0, 0.0, 0.0, 0.0, 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            at = m + self.b
            slope, bend = slope_and_bend(self.loss, at, y)
            size = slope_size(self.loss, slope, bend, at, y)
            second = float(a @ self.loss.second(at, y)) if self.second else 0.0  # type: ignore[attr-defined]
            shaken = float(a @ (bend * (np.abs(m) + abs(self.b))))
        return dot(a, slope), float(a @ bend), float(a @ size), shaken, second
