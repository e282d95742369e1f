r"""G = X^T C X on some columns and rows,  C = diag(scale^2),  wherever X lies; and how far rounding goes in it.

Rows are summed in blocks: a block's product first, then the sum of blocks. A term passes no more than B roundings in
its block of B rows, whatever the order there, and one in the sum for every block: about 512 + N/512 in all, not N, and
about 2 sqrt(N) where that is less. Each layout makes the product of a block in its own way:

    dense     of a copy of the block that is scaled
    sparse    of a block made dense, or of sparse ones where entries are few
    device    many blocks at a time, as a stack of matrices that are then added, in any order

A sparse X holds no entry twice. The scaling of rows, two more roundings of a term, and the root in `scale` are left to
the caller to count. A block is written over the one before: memory that is used again is not given out, page by page,
for every block. Rows that are never in memory as a whole (`suffice.rows.blocks`) give a G for every block, and
these are added as a tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from suffice.arrays import Array, host, like, lives_elsewhere, namespace
from suffice.rows.rounding import dot
from suffice.rows.sums import Block, Job, beside

Indices = npt.NDArray[np.intp]

GRAM_ROWS = 512  # in a block of a sum over rows
DENSE_SHARE = 0.1  # of nonzeros, from which dense products are faster than sparse ones; a quarter of it in float32
SPARSE_WORK = 64  # multiplications of the sparse product of a block for an entry of G, at least: it is added to G dense
BYTES_ELSEWHERE = 1 << 28  # of copies of rows, or of Gram matrices, that a device holds at a time
WORTH = 16  # times fewer columns: then these are chosen from sparse rows, else from rows that are dense already


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
    return whole - np.outer(mean, mean / total) if total > 0.0 else whole


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
    if len(columns) == X.shape[1]:
        return X
    if isinstance(X, np.ndarray) and not X.flags.c_contiguous:  # `take` would copy all of it first
        return X[:, columns]
    return namespace(X).take(X, like(columns, X), axis=1)


def _neighbours(rows: Indices) -> slice | Indices:
    """Rows that follow each other as a slice."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first == len(rows) - 1 else rows


class DenseBlocks:
    """X, dense or in compressed rows, on these columns; no block has more than `most` rows. A block of all columns of a
    dense X is a view of it."""

    def __init__(self, X: Any, columns: Indices, most: int, dtype: Any = np.float64) -> None:
        self.sparse = bool(sp.issparse(X))
        if self.sparse and X.shape[1] > WORTH * len(columns):
            X, columns = X[:, columns], np.arange(len(columns))
        self.X, self.columns, self.dtype = X, columns, np.dtype(dtype)
        d, s, most = int(X.shape[1]), len(columns), min(most, int(X.shape[0]))
        in_rows = self.sparse or bool(X.flags.c_contiguous)
        self.rows = np.empty((most, d), self.dtype) if self.sparse else None
        self.chosen = np.empty((most, s), self.dtype if self.sparse else X.dtype) if s < d and in_rows else None
        self.scaled = None if self.sparse else np.empty((most, s), self.dtype, order="C" if in_rows else "F")

    def __call__(self, rows: slice | Indices, scale: Array | None = None) -> Array:
        """The block of these rows: a slice of numbers that lie inside, or numbers. With a scale, each row times its
        own, in the type of blocks."""
        block = self.X[rows] if self.rows is None else self._dense(rows, scale, self.rows)
        if self.chosen is not None:
            block = np.take(block, self.columns, axis=1, out=self.chosen[: len(block)], mode="clip")
        else:
            block = chosen_columns(block, self.columns)
        if self.scaled is None or scale is None:
            return block
        out: Array = self.scaled[: len(block)]
        return np.multiply(block, scale[:, None], out=out, dtype=self.dtype, casting="same_kind")

    def _dense(self, rows: slice | Indices, scale: Array | None, out: Array) -> Array:
        part = neighbours(self.X, rows.start, rows.stop) if isinstance(rows, slice) else self.X[rows]
        if scale is not None:  # fewer numbers than those of the dense block
            each = np.repeat(scale, np.diff(part.indptr))
            part.data = np.multiply(part.data, each, dtype=self.dtype, casting="same_kind")
        return part.toarray(out=out[: part.shape[0]])


def neighbours(X: Any, start: int, stop: int, *, transposed: bool = False) -> Any:
    """Rows start..stop-1 of a matrix in compressed rows, or their transpose, without a copy of their entries."""
    first, last = X.indptr[start], X.indptr[stop]
    part = type(X)((stop - start, X.shape[1]))
    part = part.T if transposed else part
    # Its constructor would copy what is a small part of another array.
    part.data, part.indices = X.data[first:last], X.indices[first:last]
    part.indptr = X.indptr[start : stop + 1] - first
    return part


# Sparse or dense: what is asked of rows that a user has given


def arrays_of(X: Any) -> tuple[Array, ...]:
    """What holds the entries of sparse rows and their places; nothing of others."""
    if not sp.issparse(X):
        return ()
    X = X if X.format in ("csr", "csc") else X.tocsr()
    return X.data, X.indices, X.indptr


def as_array(X: Any) -> Any:
    """Sparse rows as an array; others as they are."""
    return X.toarray() if sp.issparse(X) else X


def fits_array(X: Any, most: float = -1) -> bool:
    """Whether X has all its entries, zeros as well, or would take no more than so many bytes with them."""
    return not sp.issparse(X) or 8 * math.prod(X.shape) <= most


def same_bits(one: Any, other: Any) -> bool:
    """Whether two matrices, or tables, have one layout and the same entries."""
    if sp.issparse(one) != sp.issparse(other):
        return False
    if sp.issparse(one):
        one, other = one.tocsr(), other.tocsr()
        parts = [(getattr(one, name), getattr(other, name)) for name in ("indptr", "indices", "data")]
        return one.shape == other.shape and all(np.array_equal(a, b) for a, b in parts)
    a, b = (np.asarray(each) for each in (one, other))
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def squared(X: Any) -> Any:
    """X^2, entry by entry; of a sparse X by rows."""
    return X.multiply(X).tocsr() if sp.issparse(X) else X * X


def real_form(A: Any, pairs: bool) -> Any:
    """A matrix in float64, a complex one as what it does to pairs of real numbers, or to real numbers alone; None for
    an operator, whose entries nobody knows."""
    sparse = sp.issparse(A)
    if not sparse and not isinstance(A, np.ndarray):
        return None
    if A.dtype.kind == "c":
        parts = [[A.real, -A.imag], [A.imag, A.real]] if pairs else [[A.real], [A.imag]]
        A = sp.block_array(parts, format="csr") if sparse else np.block(parts)
    return (A.tocsr() if sparse else A).astype(np.float64)


def column(X: Any, k: int) -> Array:
    """One column as a vector."""
    return np.asarray(as_array(X[:, [k]]), dtype=np.float64).ravel()


def with_constant(X: Any, constant: float) -> Any:
    """X with one more column, which is constant."""
    last = np.full((X.shape[0], 1), constant)
    return sp.hstack([X, sp.csr_array(last)], format="csr") if sp.issparse(X) else np.hstack([X, last])


@dataclass(frozen=True)
class Gram(Job):
    """X_W^T C X_W, with a column of ones if there is an `intercept`. C is given."""

    W: Indices
    intercept: bool = False
    dtype: type = np.float64

    @property
    def size(self) -> int:
        return len(self.W) ** 2

    def __call__(self, block: Block) -> Array:
        rows = np.flatnonzero(block["C"])
        root = np.sqrt(block["C"][rows])
        return gram(block.X, self.W, root, rows, intercept=self.intercept, dtype=self.dtype)[0]


@dataclass(frozen=True)
class Normal(Job):
    """X^T C (X V - shift), or |X|^T C |X| V / unit^2. C is given."""

    V: Array
    shift: Any = 0.0
    absolute: bool = False
    unit: float = 1.0

    def __call__(self, block: Block) -> Array:
        if self.absolute:
            X = np.abs(block.X) / self.unit
            return Block(block.start, block.stop, lambda: X, {}).pull(beside(block["C"], self.V) * (X @ self.V))
        image = host(block.X @ like(self.V, block.X)) - self.shift
        return block.pull(beside(host(block["C"]), image) * image)


@dataclass(frozen=True)
class Pull(Job):
    """X^T r. r is given."""

    def __call__(self, block: Block) -> Array:
        return block.pull(block["r"])
