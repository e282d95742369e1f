r"""G = X^T C X on some columns and rows,  C = diag(scale^2),  wherever X lies; and how far rounding goes in it.

Rows are summed in blocks: a block's product first, then the sum of blocks. A term passes no more than B roundings in
its block of B rows, whatever the order there, and one in the sum for every block: about 512 + N/512 in all, not N, and
about 2 sqrt(N) where that is less. Each layout makes the product of a block in its own way:

    dense     of a copy of the block that is scaled
    sparse    of a block made dense, or of sparse ones where entries are few
    device    many blocks at a time, as a stack of matrices that are then added, in any order

A sparse X holds no entry twice. The scaling of rows, two more roundings of a term, and the root in `scale` are left to
the caller to count. Rows that are never in memory as a whole (`suffice.rows.blocks`) give a G for every block, and
these are added as a tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from suffice.arrays import Array, host, like, lives_elsewhere, namespace
from suffice.rows.dense import DenseBlocks
from suffice.rows.rounding import dot

Indices = npt.NDArray[np.intp]

GRAM_ROWS = 512  # in a block of a sum over rows
DENSE_SHARE = 0.1  # of nonzeros, from which dense products are faster than sparse ones; a quarter of it in float32
SPARSE_WORK = 64  # multiplications of the sparse product of a block for an entry of G, at least: it is added to G dense
BYTES_ELSEWHERE = 1 << 28  # of copies of rows, or of Gram matrices, that a device holds at a time


def gram(
    X: Any,
    columns: Indices | None = None,
    scale: Array | None = None,
    rows: Indices | None = None,
    *,
    intercept: bool = False,
    dtype: type = np.float64,
) -> tuple[Array, int]:
    """G on these columns (in ascending order), summed over these rows, each times its `scale`, with a column of ones
    behind X's if there is an `intercept`; and how many roundings a term of its sums passes at most. Products of dense
    blocks in memory are made in `dtype`."""
    columns = np.arange(X.shape[1]) if columns is None else columns
    if lives_elsewhere(X):
        return _elsewhere(X, columns, scale, rows, intercept)
    if sp.issparse(X):
        share = DENSE_SHARE * (np.dtype(dtype).itemsize / 8) ** 2
        few = X.nnz <= share * math.prod(X.shape)
        if few and X.format == "csr" and rows is not None:
            X, rows = X[rows], None
        if few or X.format != "csr":
            X = (X if len(columns) == X.shape[1] else X[:, columns]).tocsr()
            columns = np.arange(X.shape[1])
        if X.nnz <= share * math.prod(X.shape):
            return _of_few_entries(X, scale, rows, intercept)
    s, N = len(columns), X.shape[0] if rows is None else len(rows)
    B, roundings = rows_at_once(N)
    G, blocks = np.zeros((s + intercept, s + intercept)), DenseBlocks(X, columns, B, dtype)
    for first in range(0, N, B):
        place = slice(first, min(first + B, N))
        weight = None if scale is None else scale[place]
        A = blocks(place if rows is None else _neighbours(rows[place]), weight)
        G[:s, :s] += A.T @ A
        if intercept:
            weight = np.ones(len(A)) if weight is None else weight.astype(A.dtype)
            G[s, :s] += weight @ A
            G[s, s] += weight @ weight
    G[:s, s:] = G[s:, :s].T
    return G, roundings


def _elsewhere(
    X: Any, columns: Indices, scale: Array | None, rows: Indices | None, intercept: bool
) -> tuple[Array, int]:
    xp, N, s = namespace(X), int(X.shape[0]) if rows is None else len(rows), len(columns) + intercept
    B, roundings = rows_at_once(N)
    together = max(BYTES_ELSEWHERE // (8 * max(s, 1) * max(s, B)), 1)  # blocks
    weights = xp.ones_like(X[:, :1]) if scale is None else like(scale, X)[:, None]
    taken, G = None if rows is None or X.shape[0] == N else like(rows, X), None
    for first in range(0, max(N, 1), together * B):
        part = slice(first, min(first + together * B, N))
        A = X[part, :] if taken is None else xp.take(X, taken[part], axis=0)
        A = chosen_columns(A, columns)
        A = A if scale is None else A * weights[part, :]
        A = xp.concat([A, weights[part, :]], axis=1) if intercept else A
        whole = A.shape[0] // B
        stack, rest = xp.reshape(A[: whole * B, :], (whole, B, s)), A[whole * B :, :]
        found = xp.sum(xp.matmul(xp.permute_dims(stack, (0, 2, 1)), stack), axis=0) + rest.T @ rest
        G = found if G is None else G + found
    return np.array(host(G), dtype=np.float64), roundings + 1


def _of_few_entries(X: Any, scale: Array | None, rows: Indices | None, intercept: bool) -> tuple[Array, int]:
    """By sparse products of longer blocks: a term passes no more roundings there than its column has entries."""
    A = X if rows is None else X[rows]
    scale = np.ones(A.shape[0]) if scale is None else scale
    A = sp.csr_array((A.data * np.repeat(scale, np.diff(A.indptr)), A.indices, A.indptr), shape=A.shape)
    N, s = A.shape
    B = max(rows_at_once(N)[0], min(N, math.ceil(SPARSE_WORK * (N * s / max(A.nnz, 1)) ** 2)))
    G, entries = np.zeros((s + intercept, s + intercept)), int(np.bincount(A.indices, minlength=1).max())
    for first in range(0, N, B):
        block = A[first : first + B]
        G[:s, :s] += (block.T @ block).toarray()
        if intercept:
            G[s, :s] += block.T @ scale[first : first + B]
    G[:s, s:] = G[s:, :s].T
    G[s:, s:] = dot(scale, scale)
    return G, max(min(B, entries) + math.ceil(N / B) + 1, rows_at_once(N)[1])


def centred(G: Array) -> Array:
    """What is left of a `gram` with an intercept where that is minimised out: that of X less its mean by C."""
    whole, mean, total = G[:-1, :-1], G[-1, :-1], float(G[-1, -1])
    left: Array = whole - np.outer(mean, mean / total) if total > 0.0 else whole
    return left


def rows_at_once(N: int) -> tuple[int, int]:
    """How many of N rows make a block of a sum over rows, and how many roundings a term then passes at most."""
    B = max(GRAM_ROWS, math.isqrt(N))
    return B, B + math.ceil(N / B) + 1


def dense_rows(X: Any, columns: Indices, length: int) -> Iterator[tuple[slice, Any]]:
    """Rows of X on these columns, dense, not to be written to: so many at a time, or as many as a device likes."""
    elsewhere, N = lives_elsewhere(X), int(X.shape[0])
    length = max(BYTES_ELSEWHERE // (8 * max(len(columns), 1)) if elsewhere else length, 1)
    blocks = None if elsewhere else DenseBlocks(X.tocsr() if sp.issparse(X) else X, columns, length)
    for first in range(0, N, length):
        place = slice(first, min(first + length, N))
        yield place, chosen_columns(X[place, :], columns) if blocks is None else blocks(place)


def chosen_columns(X: Any, columns: Indices) -> Any:
    """These columns of a dense X, where it lives."""
    return X if len(columns) == X.shape[1] else namespace(X).take(X, like(columns, X), axis=1)


def chosen_rows(X: Any, rows: Indices) -> Any:
    """These rows of X, where it lives."""
    return namespace(X).take(X, like(rows, X), axis=0) if lives_elsewhere(X) else X[rows]


def _neighbours(rows: Indices) -> slice | Indices:
    """Rows that follow each other as a slice."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first == len(rows) - 1 else rows
