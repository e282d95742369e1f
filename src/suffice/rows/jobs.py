r"""What is done with a block of rows whatever its model is (`suffice.rows.blocks`), one pass over X each:

survey       max |x_ij|, ||x_i||, sum_i a_i x_ij^2, and X^T diag(a) X where it is small
Gram         X_W^T C X_W, of all rows or of a sample
normal       X^T C X v
pull         X^T r
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array
from suffice.rows.gram import gram
from suffice.rows.rounding import TINY
from suffice.rows.sums import Block, Job, Most

GOLDEN = 0.6180339887498949  # phases of samples: no two neighbours alike


@dataclass(frozen=True)
class Survey(Job):
    """What a design has to know of X, in units of `unit`; row norms stay with the rows, if `keeps`. `a` is given."""

    unit: float
    gram: bool
    size: int = 0  # of what it gives
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
class Gram(Job):
    """X_W^T C X_W, with a column of ones if there is an `intercept`; from a sample of rows where each is taken with the
    probability `rate` times its influence. C, norms are given, or all rows count and C is made on the way."""

    W: npt.NDArray[np.intp]
    rate: float = math.inf
    curvature: Any = None  # one that has C of the `rows` of a block
    intercept: bool = False

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
class Normal(Job):
    """X^T C X V, or |X|^T diag(a) |X| V / unit^2. C or a is given."""

    V: Array
    absolute: bool = False
    unit: float = 1.0

    def __call__(self, block: Block) -> Array:
        if self.absolute:
            X = np.abs(block.X) / self.unit
            return Block(block.start, block.stop, lambda: X, {}).pull(_scaled(block["C"], X @ self.V))
        return block.pull(_scaled(block["C"], block.X @ self.V))


def _scaled(C: Array, image: Array) -> Array:
    return C * image if image.ndim == 1 else C[:, None] * image


@dataclass(frozen=True)
class Pull(Job):
    """X^T r. r is given."""

    def __call__(self, block: Block) -> Array:
        return block.pull(block["r"])
