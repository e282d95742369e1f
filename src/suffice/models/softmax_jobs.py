r"""What is done with a block of rows (`suffice.rows.blocks`) of multinomial logistic regression, with p_i the
probabilities of margins m_i + b and H_i = diag(p_i) - p_i p_i^T:

    balance      sum_i a_i (p_i - onehot_i), sum_i a_i H_i, and what bounds the rounding of these
    at a point   the loss, X^T (a (p - onehot)), and what bounds its rounding
    along        sum_i a_i range(n_i - m_i)^2 / 4
    Hessian      sum_i a_i H_i (x) x_i x_i^T on a working set, and sum_i a_i H_i (x) x_i
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, norm
from suffice.models.jobs import pulled
from suffice.models.multinomial import Balance, softmax_hessian
from suffice.rows.blocks import Block, Length, Most

Indices = npt.NDArray[np.intp]


def softmax_rows(m: Array, labels: Indices) -> tuple[Array, Array]:
    """Probabilities and losses of rows."""
    with np.errstate(over="ignore", invalid="ignore"):
        z = m - m.max(axis=1, keepdims=True)
        seen = z[np.arange(len(z)), labels]
        e = np.exp(z, out=z)
        total = e.sum(axis=1)
        losses: Array = np.log(total) - seen
        e /= total[:, None]
    return e, losses


def labels_of(block: Block) -> Indices:
    """The number of every row's class."""
    labels: Indices = block["y"].astype(np.intp)
    return labels


def _shifted(block: Block, b: Array | None) -> Array:
    return block.margins[0] if b is None else block.margins[0] + b


def _gap(p: Array, labels: Indices) -> Array:
    """p - onehot."""
    gap = p.copy()
    gap[np.arange(len(p)), labels] -= 1.0
    return gap


@dataclass(frozen=True)
class SoftmaxSeen:
    """The weight of every class. a, y are given."""

    count: int
    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> Array:
        seen: Array = np.bincount(labels_of(block), weights=block["a"], minlength=self.count).astype(np.float64)
        return seen


@dataclass(frozen=True)
class SoftmaxBalance:
    """The loss at these intercepts, and the sums of `suffice.models.multinomial.Balance`. a, y are given."""

    b: Array
    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        m, a, labels = block.margins[0], block["a"], labels_of(block)
        counts = a > 0.0
        if not counts.all():
            m, a, labels = m[counts], a[counts], labels[counts]
        p, losses = softmax_rows(m + self.b, labels)
        return float(a @ losses), *summed(Balance.of(m, self.b, a, p, _gap(p, labels)))


def summed(balance: Balance) -> tuple[Any, ...]:
    """Of a block, fit for adding; `Balance(*...)` is the whole."""
    *sums, furthest = (getattr(balance, one.name) for one in fields(Balance))
    return *sums, Most(furthest)


@dataclass(frozen=True)
class SoftmaxAt:
    """A point: the loss, X^T (a (p - onehot)), and lengths that bound the rounding of the latter: of  a^(1/2) c^(1/2)
    ||x_i||,  a^(1/2) ||x_i||,  a^(1/2) c^(1/2)  with c_i the trace of H_i, of what exponents do to p, and of terms of
    the sum. With `balance`, what `SoftmaxBalance` gives as well. a, y, norms are given.

    Without `pull` X is not read, and there is no gradient."""

    b: Array | None = None
    pull: bool = True
    balance: bool = False
    keeps: bool = False

    @property
    def reads(self) -> bool:
        return self.pull

    def __call__(self, block: Block) -> Any:
        m, a, labels, norms = _shifted(block, self.b), block["a"], labels_of(block), block["norms"]
        K, root = m.shape[1], np.sqrt(a)
        p, losses = softmax_rows(m, labels)
        gap = _gap(p, labels)
        gradient = pulled(block.X, a[:, None] * gap) if self.pull else np.zeros(0)
        bend = root * np.sqrt((p - p * p).sum(axis=1) + 16.0 * K * EPS)
        largest = np.abs(m).max(axis=1) + (0.0 if self.b is None else float(np.abs(self.b).max()))
        of_exponents = EPS * math.sqrt(K) * (K + 8.0 + 2.0 * largest)
        found = (
            float(a @ losses),
            gradient,
            Length(norm(bend * norms)),
            Length(norm(root * norms)),
            Length(norm(bend)),
            Length(norm(root * of_exponents)),
            Length(norm(root * (np.sqrt((gap * gap).sum(axis=1)) + K * EPS))),
        )
        if not self.balance or self.b is None:
            return found
        counts = a > 0.0
        return *found, *summed(Balance.of(block.margins[0][counts], self.b, a[counts], p[counts], gap[counts]))


@dataclass(frozen=True)
class SoftmaxAlong:
    """sum_i a_i range(n_i - m_i)^2 / 4: a variance is no more than that, wherever p is. a is given."""

    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> float:
        m, n = block.margins
        change = n - m
        spread = change.max(axis=1) - change.min(axis=1)
        return float(block["a"] @ (0.25 * spread * spread))


@dataclass(frozen=True)
class SoftmaxHessian:
    """`softmax_hessian` on variables whose columns are `parts`; its second part with intercepts only. a is given."""

    parts: tuple[Indices, ...]
    b: Array | None = None
    reads: bool = True
    keeps: bool = False

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.parts) ** 2

    def __call__(self, block: Block) -> Any:
        X, m, a = block.X, _shifted(block, self.b), block["a"]
        counts = a > 0.0
        if not counts.all():
            X, m, a = X[counts], m[counts], a[counts]
        p, _ = softmax_rows(m, np.zeros(len(m), dtype=np.intp))
        H, across = softmax_hessian(X, a, p, self.parts)
        return H if self.b is None else (H, across)


@dataclass(frozen=True)
class SoftmaxAcross:
    """sum_i a_i (diag(p_i) - p_i p_i^T) (x) x_i, all variables' rows and the intercepts' columns. a is given."""

    b: Array
    reads: bool = True
    keeps: bool = False

    @property
    def size(self) -> int:
        return len(self.b) ** 2

    def __call__(self, block: Block) -> Array:
        a, K = block["a"], len(self.b)
        p, _ = softmax_rows(_shifted(block, self.b), np.zeros(len(a), dtype=np.intp))
        parts = [pulled(block.X, (a * p[:, k])[:, None] * (np.eye(K)[k] - p)) for k in range(K)]
        return np.concatenate(parts)
