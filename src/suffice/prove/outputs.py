r"""Rows with K outputs at margins m_i, as a proof sees them: slopes of losses, what these are rounded relative to, and
H_i, the matrix of second derivatives.

    one output     H_i = psi''(m_i),                  M |d|       bounds what a move d of the margin does to log H_i,
    softmax        H_i = diag(p_i) - p_i p_i^T,       range(d)    what a move d of the margins does,
    pieces         H_i = c, or 0 where a kink of a piecewise quadratic psi may be reached.

Rounding. psi' errs by a few units relative to `slope_size`. The computed p_i are those of margins that err by a few
units more, exponents included (`blur`), times 1 + c_i, c_i = gamma_{K + 4} at most. With 1 - p_ik taken as q_ik, the
sum of the other probabilities, nothing cancels: a p q and a p_k p_l have hardly more roundings than p. As p_il <= q_ik,
sum_i a_i p_ik p_il |x_ij x_im| <= sqrt(H_(kj)(kj) H_(lm)(lm)), and the error of every entry of H is bounded by the
diagonal as `suffice.prove.factor` wants it. To keep products within the range of floats, no p_ik may be below
LEAST_PROBABILITY, and no a p q below LEAST_CURVATURE: what underflows before H is scaled, when it is whole, is at most
1e-220 for every term, in scaled units, since |x| (a p)^(1/2) scale <= 2 LEAST_PROBABILITY^(-1/2) and no scale exceeds
1e50 (`suffice.prove.factor.SMALLEST`).

`State`s make them from a block of rows; rows that do not count, a_i = 0, are at margins 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, host
from suffice.lazy import cached_property
from suffice.models.margin_losses import LARGEST, Bending, slope_size
from suffice.models.softmax_jobs import softmax_rows
from suffice.protocols import conforms
from suffice.prove.factor import Variables
from suffice.rows.gram import gram, rows_at_once
from suffice.rows.sums import Block

LEAST_PROBABILITY = 1e-100
LEAST_CURVATURE = 1e-280


class OneOutput:
    """H_i is a number, `second`; all arrays are n x 1."""

    second: Array

    def own_norms(self, a: Array) -> Array:
        """A bound on ||x_i||_{H^-1} by what the row itself is in H."""
        with np.errstate(divide="ignore"):
            return 1.0 / np.sqrt(a[:, None] * self.second)

    def product(self, d: Array, e: Array) -> tuple[Array, Array, Array, Array]:
        """H_i d_i of every row, what it is rounded relative to, d . H_i d, and no less than e . H_i e."""
        C = self.second
        return C * d, C * np.abs(d), (C * d * d)[:, 0], (C * e * e)[:, 0]

    def shaken(self, off: Array) -> Array:
        """No less than delta . H_i delta of every row, |delta| <= off."""
        return np.asarray((self.second * off * off)[:, 0])


@dataclass(frozen=True, eq=False)
class Pieces(OneOutput):
    """Of a piecewise quadratic psi."""

    second: Array


@dataclass(frozen=True, eq=False)
class MarginRows(OneOutput):
    """One margin for every row; m and y are n x 1."""

    loss: Any
    m: Array
    y: Array

    @property
    def blur(self) -> Any:
        """What the rounding of psi'' by the loss itself is worth, as an error of margins, where that says so."""
        own = getattr(self.loss, "blur", None)
        return 0.0 if own is None else own(self.m, self.y)

    @property
    def kinked(self) -> bool:
        """Whether psi is piecewise quadratic."""
        return not conforms(self.loss, Bending)

    @property
    def third(self) -> float:
        return float(self.loss.third)

    @cached_property
    def second(self) -> Array:
        return np.asarray(self.loss.second(self.m, self.y))

    @cached_property
    def slopes(self) -> Array:
        return np.asarray(self.loss.derivative(self.m, self.y))

    @cached_property
    def bends(self) -> Array:
        """No less than psi''."""
        return np.asarray(self.loss.curvature_between(self.m, self.m, self.y))

    @property
    def sizes(self) -> Array:
        """What slopes are rounded relative to."""
        return slope_size(self.loss, self.slopes, self.bends, self.m, self.y)

    def fine(self, a: Array, off: Array) -> bool:
        """Whether all is within the range of floats, for margins that err by no more than `off`."""
        if not np.isfinite(self.m).all():
            return False
        cut = math.isinf(self.loss.curvature)  # rates may be
        return not cut or bool(np.all(self.loss.curvature_between(self.m - off, self.m + off, self.y) < LARGEST))

    def gram(self, X: Any, variables: Variables, a: Array) -> tuple[Array, float]:
        """The upper triangle of sum_i a_i B_i^T H_i B_i, and how many roundings a term of it passes."""
        return weighted_gram(X, variables, a * self.second[:, 0])


def weighted_gram(X: Any, variables: Variables, C: Array) -> tuple[Array, float]:
    """X^T C X on the variables of one output, and how many roundings a term of it passes, those of C among them."""
    rows, S, intercept = np.flatnonzero(C), variables.columns[0], variables.intercept
    if len(rows) == len(C):
        H, terms = gram(X, S, np.sqrt(C), intercept=intercept)
    else:
        H, terms = gram(X, S, np.sqrt(C[rows]), rows, intercept=intercept)
    return H, terms + 12.0


@dataclass(frozen=True, eq=False)
class SoftmaxRows:
    """K classes; m is n x K, y holds their numbers."""

    m: Array
    y: Array
    third, kinked = 1.0, False

    @cached_property
    def p(self) -> Array:
        return softmax_rows(self.m, np.zeros(len(self.m), dtype=np.intp))[0]

    @cached_property
    def q(self) -> Array:
        return np.column_stack([np.delete(self.p, k, axis=1).sum(axis=1) for k in range(self.p.shape[1])])

    @property
    def second(self) -> Array:
        return self.p * self.q

    @cached_property
    def slopes(self) -> Array:
        slopes = self.p.copy()
        slopes[np.arange(len(slopes)), self.y.astype(np.intp)] -= 1.0
        return slopes

    @property
    def sizes(self) -> Array:
        return np.abs(self.slopes) + self.p

    @property
    def blur(self) -> Array:
        return np.asarray(2.0 * EPS * (self.m.max(axis=1, keepdims=True) - self.m) + 4.0 * EPS)

    def own_norms(self, a: Array) -> float:
        return math.inf

    def fine(self, a: Array, off: Array) -> bool:
        fine = np.isfinite(self.m).all() and np.all(self.p > LEAST_PROBABILITY)
        return bool(fine and np.all((a[:, None] * self.second > LEAST_CURVATURE)[a > 0.0]))

    def product(self, d: Array, e: Array) -> tuple[Array, Array, Array, Array]:
        p = self.p
        gap = d - (p * d).sum(axis=1, keepdims=True)
        sizes = p * (np.abs(d) + (p * np.abs(d)).sum(axis=1, keepdims=True))
        return p * gap, sizes, (p * gap * gap).sum(axis=1), (p * e * e).sum(axis=1)

    def shaken(self, off: Array) -> Array:
        """By sum_k p_k (delta_k - delta_l)^2, l the most probable class."""
        first = self.m.argmax(axis=1)[:, None]
        others = np.where(np.arange(self.m.shape[1]) == first, 0.0, self.p)
        return np.asarray((others * (off + np.take_along_axis(off, first, axis=1)) ** 2).sum(axis=1))

    def gram(self, X: Any, variables: Variables, a: Array) -> tuple[Array, float]:
        """H_(kj)(lm) = sum_i a_i (p_ik [k = l] - p_ik p_il) x_ij x_im."""
        (N, K), p, places, s = self.p.shape, self.p, variables.places, len(variables)
        H, root = np.zeros((s, s), order="F"), np.sqrt(a[:, None] * p)
        length, terms = rows_at_once(N)
        for here, rows in variables.rows(X, np.ones(s), length):
            rows = [host(rows[k]) * root[here, k, None] for k in range(K)]
            for k in range(K):
                for j in range(k):
                    between = np.sqrt(p[here, j] * p[here, k])
                    H[places[j], places[k]] -= rows[j].T @ (between[:, None] * rows[k])
                H[places[k], places[k]] += rows[k].T @ (self.q[here, k, None] * rows[k])
        return H, terms + 4.0 * K + 32.0


@dataclass(frozen=True)
class PsiAt:
    """At margins image + b, of a loss of one margin or, without one, of a softmax. a, y are given. Rows at hand are
    made once, by a pass of their own."""

    loss: Any
    b: Array
    made: MarginRows | SoftmaxRows | None = None

    def __call__(self, block: Block) -> MarginRows | SoftmaxRows:
        if self.made is not None:
            return self.made
        counts, m, y = host(block["a"]) > 0.0, images(block) + self.b, host(block["y"])
        m = m if counts.all() else np.where(counts[:, None], m, 0.0)
        return SoftmaxRows(m, y) if self.loss is None else MarginRows(self.loss, m, y[:, None])


@dataclass(frozen=True)
class Piecewise:
    """c of rows that do not reach a kink or, if they are to count, of these as well. kinks, doubtful are given."""

    c: float
    heavy: bool = False

    def __call__(self, block: Block) -> Pieces:
        doubtful, curved = block["doubtful"], block["kinks"][:, 2] > 0.0
        counting = curved | doubtful if self.heavy else curved & ~doubtful
        return Pieces(np.where(counting, self.c, 0.0)[:, None])


State = PsiAt | Piecewise


def images(block: Block) -> Array:
    """Margins of a block without intercepts, n x K."""
    image = host(block.margins[0])
    return image[:, None] if image.ndim == 1 else image
