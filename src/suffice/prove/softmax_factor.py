r"""A Cholesky factor of the multinomial model's Hessian on some variables, that is good for proofs.

    H_(kj)(lm) = sum_i a_i (p_ik [k = l] - p_ik p_il) x_ij x_im  +  l2_kj [kj = lm],

k and l being classes, j and m columns; class by class, the columns of its support and, but for the last class, one of
ones if there are intercepts: a constant added to all intercepts changes no probability, so the last may stay.

With 1 - p_ik taken as q_ik, the sum of the other probabilities, nothing cancels: a p q and a p_k p_l have hardly more
roundings than p. Since p_il <= q_ik, sum_i a_i p_ik p_il |x_ij x_im| <= sqrt(H_(kj)(kj) H_(lm)(lm)), and the error of
every entry is bounded by the diagonal as `suffice.prove.signed_factor` wants it. To keep products within the range of
floats, no p_ik may be below LEAST_PROBABILITY, and no a p q below LEAST_CURVATURE.

A variable's change h moves the margins of row i by B_i h in R^K; a constant in all classes of a row has no effect.
Without it class k moves by  b_k . h,  b_k the k-th row of B_i less their mean, and two classes move apart by at most
(||b_k|| + ||b_l||) ||R h||, in norms by (R^T R)^-1. A vector added to all classes' weights, which nothing but an l2
determines, does not count.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from suffice.arrays import Array
from suffice.prove.signed_factor import LEAST, Factor, Indices, row_norms, scale_of
from suffice.rows.design import Design
from suffice.rows.gram import rows_at_once
from suffice.rows.rounding import gamma

LEAST_PROBABILITY = 1e-100
LEAST_CURVATURE = 1e-280
UNDERFLOW = 1e-240  # of one term of a sum: a sqrt(a p) |x| scale is at most 2 LEAST_PROBABILITY^(-1/2)
UNSCALED = 1e-200  # the same, where entries are scaled after they were summed
ROWS = 512  # of one class at a time


@dataclass(frozen=True, eq=False)
class Variables:
    """Which variables there are: `columns` of every class, then its intercept, if it has one."""

    columns: tuple[Indices, ...]
    intercept: bool

    @classmethod
    def of(cls, free: Any, intercept: bool) -> Variables:
        """From a K x d mask."""
        return cls(tuple(np.flatnonzero(one) for one in free), intercept)

    def __len__(self) -> int:
        return sum(len(one) for one in self.columns) + (len(self.columns) - 1) * self.intercept

    def has_intercept(self, k: int) -> bool:
        return self.intercept and k < len(self.columns) - 1

    @property
    def places(self) -> list[slice]:
        """Those of every class."""
        sizes = [len(one) + self.has_intercept(k) for k, one in enumerate(self.columns)]
        ends = np.cumsum([0, *sizes])
        return [slice(int(first), int(last)) for first, last in itertools.pairwise(ends)]

    @property
    def weights(self) -> Any:
        """Which of them are weights, not intercepts."""
        parts = [np.arange(len(one) + self.has_intercept(k)) < len(one) for k, one in enumerate(self.columns)]
        return np.concatenate(parts)

    def gathered(self, of_weights: Array, of_intercepts: Array) -> Array:
        """The variables' entries of a K x d matrix and a vector of K."""
        parts = [
            np.append(of_weights[k, one], of_intercepts[k : k + self.has_intercept(k)])
            for k, one in enumerate(self.columns)
        ]
        return np.concatenate(parts)

    def rows(self, block: Array, k: int) -> Array:
        """Dense rows of X as the variables of class k see them."""
        rows = block[:, self.columns[k]]
        return np.column_stack([rows, np.ones(len(rows))]) if self.has_intercept(k) else rows


@dataclass(frozen=True, eq=False)
class SoftmaxFactor(Factor):
    """R and Z of H on these variables."""

    variables: Variables

    @classmethod
    def of(cls, design: Design, variables: Variables, p: Array, q: Array, l2: Array) -> SoftmaxFactor | None:
        """None where it cannot be proven that H is positive definite; l2 is K x d."""
        N, K = p.shape
        a = design.weights
        C = a[:, None] * p * q
        if not np.all(C[a > 0.0] > LEAST_CURVATURE):
            return None
        squares = design.X.multiply(design.X) if sp.issparse(design.X) else design.X**2
        ridge = variables.gathered(l2, np.zeros(K))
        scale = scale_of(variables.gathered(np.asarray(squares.T @ C).T, C.sum(axis=0)) + ridge)
        if scale is None:
            return None
        H = softmax_gram(design.X, variables, scale, a, p, q)
        H[np.diag_indices(len(H))] += ridge * scale**2
        factor = Factor.of_matrix(H, scale, rows_at_once(N)[1] + 4 * K + 32, len(scale) * N * UNDERFLOW)
        return None if factor is None else cls(**vars(factor), variables=variables)

    @classmethod
    def of_gram(cls, H: Array, terms: float, N: int, variables: Variables, l2: Array) -> SoftmaxFactor | None:
        """From H without l2, overwritten, whose entries are sums over N rows that pass so many roundings."""
        K = len(variables.columns)
        H[np.diag_indices(len(H))] += variables.gathered(l2, np.zeros(K))
        scale = scale_of(np.diag(H))
        if scale is None:
            return None
        H = np.multiply(H * scale[:, None], scale, order="F")  # exact
        factor = Factor.of_matrix(H, scale, terms + 4 * K + 32, len(scale) * N * UNSCALED)
        return None if factor is None else cls(**vars(factor), variables=variables)

    def moved(self, X: Any, n: Array) -> tuple[Array, Array]:
        """B_i n of all rows of X, and its rounding, n being scaled."""
        K, places = len(self.variables.columns), self.variables.places
        moved, rounding = (np.empty((X.shape[0], K)) for _ in range(2))
        for here, block in _dense(X, ROWS):
            for k in range(K):
                part = n[places[k]] * self.scale[places[k]]
                rows = self.variables.rows(block, k)
                moved[here, k] = rows @ part
                rounding[here, k] = gamma(len(part) + 4) * (np.abs(rows) @ np.abs(part)) + LEAST
        return moved, rounding

    def norms(self, X: Any, useful: float = 0.0) -> Array:
        """Bounds on ||b_k||_{(R^T R)^-1} of all rows of X and all classes. Rows whose two largest add up to no more
        than `useful` by a bound that is free of charge keep that."""
        K, variables, places = len(self.variables.columns), self.variables, self.variables.places
        norms = np.empty((X.shape[0], K))
        for here, block in _dense(X, max(ROWS // K, 16)):
            rows = [variables.rows(block, k) * self.scale[places[k]] for k in range(K)]
            sizes = np.column_stack([row_norms(one) for one in rows]) * (1.0 + gamma(len(self) + K + 16))
            mean = sizes.sum(axis=1, keepdims=True) / K
            bounds = (sizes + mean) * self.inverse_norm + LEAST
            matter = two_largest(bounds) > useful
            if matter.any():
                images = np.stack(
                    [one[matter] @ self.Z[place] for one, place in zip(rows, places, strict=True)], axis=1
                )
                images -= images.mean(axis=1, keepdims=True)
                doubt = self.slack + gamma(K + 8) * self.inverse_norm
                lengths = np.sqrt(np.einsum("ikj,ikj->ik", images, images))
                bounds[matter] = (lengths + doubt * (sizes + mean)[matter]) * self.up + LEAST
            norms[here] = bounds
        return norms


def softmax_gram(X: Any, variables: Variables, scale: Array, a: Array, p: Array, q: Array) -> Array:
    """The upper triangle of H, without l2, of rows of X whose variables are multiplied by `scale`."""
    K, places = p.shape[1], variables.places
    H, root = np.zeros((len(scale), len(scale)), order="F"), np.sqrt(a[:, None] * p)
    for here, block in _dense(X, rows_at_once(X.shape[0])[0]):
        rows = [variables.rows(block, k) * scale[places[k]] * root[here, k, None] for k in range(K)]
        for k in range(K):
            for j in range(k):
                between = np.sqrt(p[here, j] * p[here, k])
                H[places[j], places[k]] -= rows[j].T @ (between[:, None] * rows[k])
            H[places[k], places[k]] += rows[k].T @ (q[here, k, None] * rows[k])
    return H


def two_largest(A: Array) -> Array:
    """The sum of the two largest entries of every row."""
    result: Array = np.partition(A, A.shape[1] - 2, axis=1)[:, -2:].sum(axis=1) * (1.0 + gamma(2))
    return result


def _dense(X: Any, length: int) -> Iterator[tuple[slice, Array]]:
    X = X.tocsr() if sp.issparse(X) else X
    for first in range(0, X.shape[0], length):
        block = X[first : first + length]
        yield slice(first, first + block.shape[0]), block.toarray() if sp.issparse(block) else block
