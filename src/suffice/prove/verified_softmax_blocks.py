r"""What a verification of the multinomial model asks of rows (`suffice.prove.verified_softmax_rows`), for blocks of
rows, wherever these are: one pass over X for all facts and H, another where rows have to be solved for, and one or two
more where zeros are in doubt. What travels is W, H on its variables, the inverse of its factor, and sums for columns.

A term of H passes the roundings of a sum within its block and those of the tree; all other sums are of numbers that are
not negative, or of terms whose sizes are summed beside them. H is scaled when it is whole: what underflows before is at
most 1e-220 for every term, in scaled units, since |x| (a p)^(1/2) scale <= 2 LEAST_PROBABILITY^(-1/2) and no scale
exceeds 1e50 (`suffice.prove.signed_factor.SMALLEST`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.lazy import cached_property
from suffice.models.row_softmax import RowsMultinomial
from suffice.models.softmax_jobs import labels_of, softmax_rows
from suffice.prove.signed_factor import LEAST
from suffice.prove.softmax_factor import (
    LEAST_CURVATURE,
    LEAST_PROBABILITY,
    SoftmaxFactor,
    Variables,
    softmax_gram,
    two_largest,
)
from suffice.prove.verified_softmax_rows import Probable, SoftmaxChange, SoftmaxFacts, changed
from suffice.rows.blocks import Block, Length, Margins, Most
from suffice.rows.gram import rows_at_once
from suffice.rows.rounding import TINY, gamma


@dataclass(frozen=True)
class Facts:
    """Whether something is broken, the sums of `SoftmaxFacts`, max p q of every class, and H. a, y are given."""

    W: Array
    b: Array
    slack: Array  # of every class: delta is so many times |x_i| . |w_k|, and what sums and exponents round to
    variables: Variables
    reads: bool = True
    keeps: bool = False

    @property
    def size(self) -> int:
        return len(self.variables) ** 2

    def __call__(self, block: Block) -> Any:
        counts, X = block["a"] > 0.0, block.X
        X = X if counts.all() else X[counts]
        a, image, labels = block["a"][counts], block.margins[0][counts], labels_of(block)[counts]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            products = (np.abs(X) @ np.abs(self.W).T) * self.slack + TINY * self.W.size
            rows = Probable.of(image, self.b, products)
            p, q = rows.p, rows.q
            fine = np.isfinite(rows.m).all() and np.all(p > LEAST_PROBABILITY)
            fine = fine and np.all(a[:, None] * p * q > LEAST_CURVATURE)
            slopes = p.copy()
            slopes[np.arange(len(p)), labels] -= 1.0
            sizes = np.abs(slopes) + p
            return (
                Most(not fine),
                a @ sizes**2,
                a @ slopes,
                a @ sizes,
                Most(two_largest(rows.delta).max(initial=0.0)),
                Length(norm(np.sqrt(a * rows.shaken))),
                tuple(Most(one) for one in (p * q).max(axis=0, initial=0.0)),
                softmax_gram(X, self.variables, np.ones(len(self.variables)), a, p, q),
            )


def _counting(block: Block, b: Array) -> tuple[Array, Array, Array]:
    """X, a and p of the rows that count."""
    counts = block["a"] > 0.0
    m = block.margins[0][counts] + b
    return block.X[counts], block["a"][counts], softmax_rows(m, np.zeros(len(m), dtype=np.intp))[0]


@dataclass(frozen=True)
class Reach:
    """max_i of what two classes move apart. a is given."""

    factor: SoftmaxFactor
    useful: float
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Most:
        return Most(two_largest(self.factor.norms(block.X[block["a"] > 0.0], self.useful)).max(initial=0.0))


@dataclass(frozen=True)
class Squares:
    """sum_i C_ik x_ij^2, C being `grow` times a p q, and what has underflowed in it. a is given."""

    b: Array
    grow: float
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Array:
        X, a, p = _counting(block, self.b)
        q = np.column_stack([np.delete(p, k, axis=1).sum(axis=1) for k in range(p.shape[1])])
        squares: Array = (a[:, None] * p * q * self.grow + TINY).T @ X**2
        return squares


@dataclass(frozen=True)
class Changed:
    """`SoftmaxChange`, for a scaled n. a is given."""

    b: Array
    factor: SoftmaxFactor
    n: Array
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        X, a, p = _counting(block, self.b)
        change, sizes, along, blur = changed(X, self.factor, self.n, a, p)
        return change, sizes, Length(math.sqrt(along)), Length(math.sqrt(blur))


@dataclass(frozen=True)
class Grown:
    """C, which stays with the rows: `grow` times a p q, and what has underflowed."""

    grow: float

    def __mul__(self, factor: float) -> Grown:
        return Grown(self.grow * factor * (1.0 + EPS))

    def __add__(self, least: float) -> Grown:
        """As it is: `Squares` counts what has underflowed."""
        return self


@dataclass(frozen=True, eq=False)
class SoftmaxInBlocks:
    """Rows of blocks. `image` is a promise of margins, a product."""

    model: RowsMultinomial
    W: Array
    image: Margins
    b: Array
    variables: Variables

    def ask(self, job: Any) -> Any:
        """The sum over all blocks."""
        return self.model.design.X.run(job, [self.image], a=self.model.design.weights, y=self.model.onehot)

    @property
    def more(self) -> float:
        """What a sum of numbers that are not negative is multiplied by."""
        return 1.0 + gamma(sum(self.model.design.shape) + len(self.b) + 16)

    @cached_property
    def _facts(self) -> Any:
        design, up = self.model.design, 1.0 + gamma(self.W.size + 8)
        slack = np.array([design.margin_rounding(one) * up for one in self.W])
        return self.ask(Facts(self.W, self.b, slack, self.variables))

    def facts(self) -> SoftmaxFacts | None:
        broken, squares, total, size, off, shaken = self._facts[:6]
        if broken:
            return None
        rough, own = np.sqrt(squares) * self.more, float(off) + 16.0 * EPS
        return SoftmaxFacts(rough, total, size * self.more, own, float(shaken) * self.more)

    @property
    def C(self) -> Grown:  # noqa: N802 (the symbol)
        return Grown(1.0 + gamma(4 * len(self.b) + 16))

    def factor(self, l2: Array) -> SoftmaxFactor | None:
        N, block = self.model.design.shape[0], self.model.design.X.block
        terms = rows_at_once(min(N, block))[1] + math.ceil(math.log2(math.ceil(N / block))) + 1
        return SoftmaxFactor.of_gram(np.array(self._facts[7], order="F"), terms, N, self.variables, l2)

    def reach(self, factor: SoftmaxFactor, useful: float) -> float:
        K, longest = len(self.b), self.model.design.survey.reach
        ones = factor.scale[~self.variables.weights].max(initial=0.0)
        size = (longest * float(factor.scale.max()) + float(ones)) * (1.0 + gamma(self.W.size + K + 16))
        rough = 4.0 * (size * factor.inverse_norm + LEAST) * (1.0 + gamma(8))
        return rough if rough <= useful else float(self.ask(Reach(travelling(factor), useful)))

    def steepest(self, C: Grown) -> Array:
        return C.grow * np.array([float(one) for one in self._facts[6]])

    def squares(self, C: Grown) -> Array:
        squares: Array = self.ask(Squares(self.b, C.grow))
        return squares

    def change(self, factor: SoftmaxFactor, n: Array) -> SoftmaxChange:
        change, sizes, along, blur = self.ask(Changed(self.b, travelling(factor), n))
        return SoftmaxChange(change, sizes * self.more, float(along) * self.more, float(blur) * self.more)


def travelling(factor: SoftmaxFactor) -> SoftmaxFactor:
    """Without what rows do not ask for."""
    return replace(factor, R=np.zeros((0, 0)))
