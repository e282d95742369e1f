r"""What a verification of the multinomial model (`suffice.prove.verified_softmax`) asks of the rows of X: sums over
them, and largest values. With p_i the probabilities, q_ik the sum of the others, C_ik = a_i p_ik q_ik:

    facts     of sizes |p - onehot| + p:  ||a^(1/2) size||, sum a size, and sum a (p - onehot), class by class; of
              delta_ik, how far margins may be off:  the largest sum of two of a row, sqrt(sum_i a_i delta . H_i delta)
    factor    of H on the variables
    reach     max_i of what two classes move apart, at most, for ||R h|| = 1
    outside   sum_i C_ik x_ij^2, and sum_i a_i (H_i B_i n)_k x_ij with its rounding, of all columns j

`SoftmaxRows` is that for any X; this module has it for an X in main memory, `suffice.prove.verified_softmax_blocks` for
blocks of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from suffice.arrays import EPS, Array
from suffice.lazy import cached_property
from suffice.models.multinomial import Multinomial
from suffice.models.softmax_jobs import softmax_rows
from suffice.prove.softmax_factor import LEAST_PROBABILITY, SoftmaxFactor, Variables, two_largest
from suffice.rows.rounding import TINY, gamma


@dataclass(frozen=True, eq=False)
class SoftmaxFacts:
    """Sums at W; `rough`, `total` and `size` are one for every class."""

    rough: Array
    total: Array
    size: Array
    own: float  # H_i is off by no more than the factor e^(+-own)
    shaken: float


@dataclass(frozen=True, eq=False)
class SoftmaxChange:
    """sum_i a_i (H_i B_i n)_k x_ij, K x d, and what bounds its rounding."""

    change: Array
    sizes: Array
    along: float  # sqrt(sum_ik a_i p_ik (d_ik - mean d_i)^2), d_i = B_i n
    blur: float  # sqrt(sum_ik a_i p_ik e_ik^2), e_ik the rounding of d_ik


class SoftmaxRows(Protocol):
    """Rows of X at W, with margins that are a product, and the variables of H."""

    @property
    def C(self) -> Any:  # noqa: N802 (the symbol)
        """a p q of every row, to be multiplied by numbers, and added to."""
        ...

    def facts(self) -> SoftmaxFacts | None:
        """None where margins are not finite, or a probability is too small."""
        ...

    def factor(self, l2: Array) -> SoftmaxFactor | None:
        """None where it cannot be proven that H is positive definite; l2 is K x d."""
        ...

    def reach(self, factor: SoftmaxFactor, useful: float) -> float:
        """No sharper than useful."""
        ...

    def steepest(self, C: Any) -> Array:
        """max_i C_ik / a_i, for every class."""
        ...

    def squares(self, C: Any) -> Array:
        """sum_i C_ik x_ij^2, K x d."""
        ...

    def change(self, factor: SoftmaxFactor, n: Array) -> SoftmaxChange:
        """For an n that is scaled."""
        ...


@dataclass(frozen=True, eq=False)
class Probable:
    """Of rows with margins image + b: p, q, and delta, of which the products' part is given."""

    m: Array
    p: Array
    q: Array
    delta: Array

    @classmethod
    def of(cls, image: Array, b: Array, products: Array) -> Probable:
        m = image + b
        p = softmax_rows(m, np.zeros(len(m), dtype=np.intp))[0]
        q = np.column_stack([np.delete(p, k, axis=1).sum(axis=1) for k in range(p.shape[1])])
        top = m.max(axis=1, keepdims=True)
        delta = products + 4.0 * EPS * (np.abs(image) + np.abs(b)) + 2.0 * EPS * (top - m) + 4.0 * EPS
        return cls(m, p, q, delta)

    @property
    def shaken(self) -> Array:
        """No less than delta . H_i delta, for every row."""
        first = self.m.argmax(axis=1)[:, None]
        others = np.where(np.arange(self.m.shape[1]) == first, 0.0, self.p)
        result: Array = (others * (self.delta + np.take_along_axis(self.delta, first, axis=1)) ** 2).sum(axis=1)
        return result


def changed(X: Any, factor: SoftmaxFactor, n: Array, a: Array, p: Array) -> tuple[Array, Array, float, float]:
    """What `SoftmaxChange` says of these rows, with the squares of `along` and `blur`."""
    d, rounding = factor.moved(X, n)
    aP, mean = a[:, None] * p, (p * d).sum(axis=1, keepdims=True)
    sizes = aP * (np.abs(d) + (p * np.abs(d)).sum(axis=1, keepdims=True))
    change = np.asarray(X.T @ (aP * (d - mean))).T
    along, blur = float((aP * (d - mean) ** 2).sum()), float((aP * rounding**2).sum())
    return change, np.asarray(abs(X).T @ sizes).T, along, blur


@dataclass(frozen=True, eq=False)
class SoftmaxInMemory:
    """Rows of an X in main memory."""

    model: Multinomial
    W: Array
    image: Array
    b: Array
    variables: Variables

    @cached_property
    def a(self) -> Array:
        weights: Array = self.model.design.weights
        return weights

    @cached_property
    def counts(self) -> npt.NDArray[np.bool_]:
        return self.a > 0.0

    @cached_property
    def rows(self) -> Probable:
        design = self.model.design
        products = [design.margin_rounding(one) * design.absolute_margins(one) for one in self.W]
        off = np.column_stack(products) * (1.0 + gamma(self.W.size + 8)) + TINY * self.W.size
        return Probable.of(self.image, self.b, off)

    @cached_property
    def p(self) -> Array:
        return np.maximum(self.rows.p, LEAST_PROBABILITY)  # of rows without a weight

    @cached_property
    def C(self) -> Array:  # noqa: N802 (the symbol)
        K = self.p.shape[1]
        C: Array = self.a[:, None] * self.p * self.rows.q * (1.0 + gamma(4 * K + 16))
        return C

    def facts(self) -> SoftmaxFacts | None:
        rows, (N, K) = self.rows, self.image.shape
        if not (np.isfinite(rows.m).all() and np.all(rows.p[self.counts] > LEAST_PROBABILITY)):
            return None
        up, slopes = 1.0 + gamma(N + K + 16), self.p - self.model.onehot
        sizes = np.abs(slopes) + self.p
        return SoftmaxFacts(
            np.sqrt(self.a @ sizes**2) * up,
            self.a @ slopes,
            (self.a @ sizes) * (1.0 + gamma(N)),
            float(two_largest(rows.delta)[self.counts].max()) + 16.0 * EPS,
            math.sqrt(float(self.a @ rows.shaken)) * up,
        )

    def factor(self, l2: Array) -> SoftmaxFactor | None:
        return SoftmaxFactor.of(self.model.design, self.variables, self.p, self.rows.q, l2)

    def reach(self, factor: SoftmaxFactor, useful: float) -> float:
        return float(two_largest(factor.norms(self.model.design.X, useful))[self.counts].max())

    def steepest(self, C: Array) -> Array:
        largest: Array = np.max(C[self.counts] / self.a[self.counts, None], axis=0)
        return largest

    def squares(self, C: Array) -> Array:
        X = self.model.design.X
        return np.asarray((X.multiply(X) if sp.issparse(X) else X**2).T @ C).T

    def change(self, factor: SoftmaxFactor, n: Array) -> SoftmaxChange:
        change, sizes, along, blur = changed(self.model.design.X, factor, n, self.a, self.p)
        return SoftmaxChange(change, sizes, math.sqrt(along), math.sqrt(blur))
