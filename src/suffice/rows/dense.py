"""Rows of a matrix as dense blocks on some columns, each written over the one before.

Hessians are sums of products of such blocks. Rows of a sparse matrix that follow each other are made dense from its own
arrays, without a copy of them, and memory that is used again is not given out, page by page, for every block. A few
columns of a sparse matrix are chosen once, from all rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from suffice.arrays import Array

Indices = npt.NDArray[np.intp]
WORTH = 16  # times fewer columns: then these are chosen from sparse rows, else from rows that are dense already


class DenseBlocks:
    """X, dense or in compressed rows, on these columns; no block has more than `most` rows. A block of all columns of a
    dense X is a view of it."""

    def __init__(self, X: Any, columns: Indices, most: int, dtype: Any = np.float64) -> None:
        self.sparse = bool(sp.issparse(X))
        if self.sparse and X.shape[1] > WORTH * len(columns):
            X, columns = X[:, columns], np.arange(len(columns))
        self.X, self.columns, self.dtype = X, columns, np.dtype(dtype)
        d, s, most = int(X.shape[1]), len(columns), min(most, int(X.shape[0]))
        self.rows = np.empty((most, d), self.dtype) if self.sparse else None
        self.chosen = np.empty((most, s), self.dtype if self.sparse else X.dtype) if s < d else None
        self.scaled = None if self.sparse else np.empty((most, s), self.dtype)

    def __call__(self, rows: slice | Indices, scale: Array | None = None) -> Array:
        """The block of these rows: a slice of numbers that lie inside, or numbers. With a scale, each row times its
        own, in the type of blocks."""
        block = self.X[rows] if self.rows is None else self._dense(rows, scale, self.rows)
        if self.chosen is not None:
            block = np.take(block, self.columns, axis=1, out=self.chosen[: len(block)], mode="clip")
        if self.scaled is None or scale is None:
            return block
        out: Array = self.scaled[: len(block)]
        return np.multiply(block, scale[:, None], out=out, dtype=self.dtype, casting="same_kind")

    def _dense(self, rows: slice | Indices, scale: Array | None, out: Array) -> Array:
        part = neighbours(self.X, rows.start, rows.stop) if isinstance(rows, slice) else self.X[rows]
        if scale is not None:  # fewer numbers than those of the dense block
            each = np.repeat(scale, np.diff(part.indptr))
            part.data = np.multiply(part.data, each, dtype=self.dtype, casting="same_kind")
        dense: Array = part.toarray(out=out[: part.shape[0]])
        return dense


def neighbours(X: Any, start: int, stop: int) -> Any:
    """Rows start..stop-1 of a matrix in compressed rows, without a copy of their entries."""
    first, last = X.indptr[start], X.indptr[stop]
    part = type(X)((stop - start, X.shape[1]))
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


def all_entries(A: Array, model: Any) -> Any:
    """A stored as `model` is: with all entries, zeros as well, where that is sparse."""
    if not sp.issparse(model):
        return A
    rows, columns = A.shape
    return type(model)((A.ravel(), np.tile(np.arange(columns), rows), columns * np.arange(rows + 1)), shape=A.shape)


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
