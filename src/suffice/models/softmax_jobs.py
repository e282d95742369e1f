r"""What is done with a block of rows (`suffice.rows.blocks`) of multinomial logistic regression, with p_i the
probabilities of margins m_i + b and H_i = diag(p_i) - p_i p_i^T:

    balance      sum_i a_i (p_i - onehot_i), sum_i a_i H_i, and what bounds the rounding of these
    at a point   the loss, X^T (a (p - onehot)), and what bounds its rounding
    along        sum_i a_i range(n_i - m_i)^2 / 4
    Hessian      sum_i a_i H_i (x) x_i x_i^T on a working set, sum_i a_i H_i (x) x_i, products with the whole

A point is what `suffice.models.jobs.At` makes of `SoftmaxLoss`. Targets y are numbers of classes. Where p is known at
these margins it is given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, host, norm
from suffice.rows.design import OF_FACTORS
from suffice.rows.gram import dense_rows
from suffice.rows.rounding import block_length, dense_product, gamma
from suffice.rows.sums import Block, Job, Length, Most

Indices = npt.NDArray[np.intp]
R = math.sqrt(2.0)
HESSIAN_ROWS = 1024  # at a time


def softmax_rows(m: Array, labels: Any = None, b: float | Array = 0.0) -> tuple[Array, Array]:
    """Probabilities of rows with margins m + b, and their losses if labels are given: one pass for both, without the
    overhead of scipy's."""
    with np.errstate(over="ignore", invalid="ignore"):
        # In this order sums over classes run along columns.
        z = np.array(m, order="F") if isinstance(b, float) else np.add(m, b, order="F")
        z -= z.max(axis=1, keepdims=True)
        seen = z[:, 0].copy() if labels is None else z[np.arange(len(z)), labels]
        e = np.exp(z, out=z)
        total = e.sum(axis=1, keepdims=True)
        e /= total
        losses: Array = np.log(total[:, 0]) - seen
    return e, losses


def labels_of(block: Block) -> Indices:
    """The number of every row's class."""
    return block["y"].astype(np.intp)


def _probabilities(block: Block, b: float | Array) -> Array:
    known: Array | None = block.given.get("p")
    return softmax_rows(block.margins[0], None, b)[0] if known is None else known


def gap(p: Array, y: Any) -> Array:
    """p - onehot."""
    gap = p.copy()
    gap[np.arange(len(p)), y.astype(np.intp, copy=False)] -= 1.0
    return gap


def turned(p: Array, M: Array) -> Array:
    """H_i M_i of every row, for vectors M_i or matrices with a column for every direction."""
    p = p if M.ndim == 2 else p[:, :, None]
    return p * (M - np.sum(p * M, axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class SoftmaxSums:
    """Sums over rows at some b: s, its Jacobian, and sums that bound the rounding of both. They are added over blocks
    of rows as they stand."""

    s: Array
    H: Array
    gaps: Array  # sum a |p - onehot|
    shares: Array  # sum a p
    shaken: Array  # sum a p (1 - p) (largest margin of the row + largest of b)
    furthest: float  # the largest of these

    @classmethod
    def of(cls, m: Array, b: Array, a: Array, p: Array, gap: Array) -> SoftmaxSums:
        """That of rows with margins m + b, whose probabilities are p, and p - onehot."""
        aP = a[:, None] * p
        spread = aP * (1.0 - p)
        H = -(p.T @ aP)
        np.fill_diagonal(H, spread.sum(axis=0))
        sizes = np.abs(m).max(axis=1) + float(np.abs(b).max())
        s = dense_product(gap, a, block_length(len(a)))
        return cls(s, H, a @ np.abs(gap), aP.sum(axis=0), sizes @ spread, float(sizes.max(initial=0.0)))

    def summed(self) -> tuple[Any, ...]:
        """Of a block, fit for adding; `SoftmaxSums(*...)` is the whole."""
        *sums, furthest = (getattr(self, one.name) for one in fields(self))
        return *sums, Most(furthest)

    def proven(self, rows: int, terms: int) -> tuple[float, float]:
        """The error of b, and h, at most and at least; a term of s passes so many roundings.

        A row's p are those of margins that are off by less than 2 EPS times their size, times 1 + c, |c| <= (K + 8)
        EPS / 2: the former changes p_k by that times 4 p_k (1 - p_k) and H_i by a factor, the latter p_k by a share of
        itself, however close to 1 it is. So p (1 - p) is off by (K + 10) EPS p; all else in H by shares of itself,
        which off the diagonal add up to its trace."""
        K, trace = len(self.s), float(np.trace(self.H))
        if not self.furthest < 0.01 / EPS:
            return math.inf, 0.0
        sizes = gamma(terms + OF_FACTORS) * self.gaps + EPS * (K + 8.0) * self.shares + 4.0 * EPS * self.shaken
        noise = norm(sizes) * (1.0 + 2.0 * gamma(rows + 16)) + 1e-300
        values = np.linalg.eigvalsh(self.H + trace / K * np.ones((K, K)) / K)
        of_H = (2.0 * gamma(rows + 2 * K + 32) + 64.0 * EPS * K) * trace + EPS * (K + 10.0) * norm(self.shares)
        least = (float(values[0]) - of_H) * math.exp(-8.0 * EPS * self.furthest)
        share = R * (norm(self.s) + noise) / least if least > 0.0 else math.inf
        error = -math.log1p(-share) / R * (1.0 + 8.0 * EPS) if share < 1.0 else math.inf
        return error, max(least, 0.0)


@dataclass(frozen=True)
class SoftmaxLoss:
    """The loss of K margins m: log sum_k exp(m_k) - m_y, y being the number of a class."""

    curvature = 0.5

    def value(self, m: Array, y: Array) -> Array:
        return softmax_rows(m, y.astype(np.intp))[1]

    def derivative(self, m: Array, y: Array) -> Array:
        return gap(softmax_rows(m)[0], y)

    def lengths(self, block: Block, b: Any, gap: Array) -> tuple[Length, ...]:
        """Those that bound the rounding of X^T (a (p - onehot)): of  a^(1/2) c^(1/2) ||x_i||,  a^(1/2) ||x_i||,
        a^(1/2) c^(1/2)  with c_i the trace of H_i, of what exponents do to p, and of terms of the sum."""
        K, root, norms = gap.shape[1], np.sqrt(block["a"]), block["norms"]
        p = np.abs(gap)  # or 1 - p: p (1 - p) is the same
        bend = root * np.sqrt((p - p * p).sum(axis=1) + 16.0 * K * EPS)
        largest = np.abs(block.margins[0]).max(axis=1) + 2.0 * float(np.max(np.abs(b)))
        of_exponents = EPS * math.sqrt(K) * (K + 8.0 + 2.0 * largest)
        whole = root * (np.sqrt((gap * gap).sum(axis=1)) + K * EPS)
        parts = (bend * norms, root * norms, bend, root * of_exponents, whole)
        return tuple(Length(norm(one)) for one in parts)


SOFTMAX = SoftmaxLoss()


@dataclass(frozen=True)
class SoftmaxSeen(Job):
    """The weight of every class. a, y are given."""

    count: int
    reads = False

    def __call__(self, block: Block) -> Array:
        return np.bincount(labels_of(block), weights=block["a"], minlength=self.count).astype(np.float64)


@dataclass(frozen=True)
class SoftmaxBalance(Job):
    """The loss at these intercepts, and `SoftmaxSums`; p and p - onehot stay with the rows, if it `keeps`. a, y are
    given."""

    b: Array
    keeps: bool = False
    reads = False

    def __call__(self, block: Block) -> Any:
        m, a, labels = block.margins[0], block["a"], labels_of(block)
        if not self.keeps:
            counts = a > 0.0
            if not counts.all():
                m, a, labels = m[counts], a[counts], labels[counts]
        p, losses = softmax_rows(m, labels, self.b)
        slopes = gap(p, labels)
        found = float(a @ losses), *SoftmaxSums.of(m, self.b, a, p, slopes).summed()
        return ((p, slopes), found) if self.keeps else found


@dataclass(frozen=True)
class SoftmaxAlong(Job):
    """sum_i a_i range(n_i - m_i)^2 / 4: a variance is no more than that, wherever p is. a is given."""

    reads = False

    def __call__(self, block: Block) -> float:
        m, n = block.margins
        change = n - m
        spread = change.max(axis=1) - change.min(axis=1)
        return float(block["a"] @ (0.25 * spread * spread))


@dataclass(frozen=True)
class SoftmaxHessian(Job):
    """sum_i a_i (diag(p_i) - p_i p_i^T) (x) x_i x_i^T on the variables whose columns are `parts`, class by class, and
    the part of it that has these variables' rows and the intercepts' columns. a is given."""

    parts: tuple[Indices, ...]
    b: float | Array = 0.0

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.parts) ** 2

    def __call__(self, block: Block) -> tuple[Array, Array]:
        a, p = block["a"], _probabilities(block, self.b)
        used = np.unique(np.concatenate(self.parts))
        parts = [np.searchsorted(used, part) for part in self.parts]
        ends = np.cumsum([0, *(len(part) for part in parts)])
        H, across = np.zeros((ends[-1], ends[-1])), np.zeros((ends[-1], len(parts)))
        # diag(p) - p p^T, class by class and for all at once, a few rows at a time
        for rows, there in dense_rows(block.X, used, HESSIAN_ROWS):
            X = host(there)
            root_a, every = np.sqrt(a[rows]), np.empty((len(X), ends[-1]))
            for k, part in enumerate(parts):
                place, root = slice(ends[k], ends[k + 1]), root_a * np.sqrt(p[rows, k])
                columns = X[:, part] * root[:, None]
                H[place, place] += columns.T @ columns
                across[place, k] += columns.T @ root
                every[:, place] = columns * np.sqrt(p[rows, k])[:, None]
            H -= every.T @ every
            across -= every.T @ (root_a[:, None] * p[rows])
        return H, across


@dataclass(frozen=True)
class SoftmaxBend(Job):
    """X^T (a H_i (M_i + moved)), d x (K k), for margins M of directions, N x (K k), and intercepts that move by
    `moved`, K x k; unless it `reads` X the sum of a H_i (M_i + moved) over rows. M are the second margins, or 0 if
    there are none; a is given."""

    moved: Array
    b: float | Array = 0.0
    reads: bool = True

    def __call__(self, block: Block) -> Array:
        p, k = _probabilities(block, self.b), self.moved.shape[1]
        M = self.moved[None] if len(block.margins) < 2 else block.margins[1].reshape(-1, *self.moved.shape) + self.moved
        if k == 1:  # as matrices in the order of p, which are added along columns
            M = block["a"][:, None] * turned(p, np.asfortranarray(np.broadcast_to(M[:, :, 0], p.shape)))
        else:
            M = block["a"][:, None, None] * turned(p, M)
        if not self.reads:
            return M.sum(axis=0).reshape(-1, k)
        return block.pull(M.reshape(len(M), -1))


def solve_across(H: Array, b: Array) -> Array:
    """The solution of H s = b with sum s = 0, for sums of diag(p) - p p^T, which vanish where all p are 0 or 1: then a
    little is added to them, as much as rounding may have left out."""
    K = len(H)
    shifted = H + 1.0 / K + np.diag(np.full(K, 4.0 * K * EPS * (1.0 + float(np.trace(H)))))
    return np.asarray(np.linalg.solve(shifted, b), dtype=np.float64)
