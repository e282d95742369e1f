"""Rows of a matrix as dense blocks on some columns, each written over the one before.

Hessians are sums of products of such blocks. Rows of a sparse matrix that follow each other are made dense from its own
arrays, without a copy of them, and memory that is used again is not given out, page by page, for every block.
"""

from __future__ import annotations

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

    def __init__(self, X: Any, columns: Indices, most: int) -> None:
        self.X, self.columns, self.sparse = X, columns, bool(sp.issparse(X))
        d, s = int(X.shape[1]), len(columns)
        self.every = s == d
        self.whole = d <= WORTH * s
        most = min(most, int(X.shape[0]))
        self.rows = np.empty((most, d)) if self.sparse and self.whole else None
        self.chosen = np.empty((most, s)) if not self.every and (self.whole or not self.sparse) else None

    def __call__(self, rows: slice | Indices) -> Array:
        """The block of these rows: a slice of numbers that lie inside, or numbers."""
        block = self.X[rows] if not self.sparse else self._dense(rows)
        if self.chosen is None or (self.sparse and self.rows is None):
            return block
        return np.take(block, self.columns, axis=1, out=self.chosen[: len(block)], mode="clip")

    def _dense(self, rows: slice | Indices) -> Array:
        part = neighbours(self.X, rows.start, rows.stop) if isinstance(rows, slice) else self.X[rows]
        if self.rows is not None:
            dense: Array = part.toarray(out=self.rows[: part.shape[0]])
            return dense
        dense = part[:, self.columns].toarray()
        return dense


def neighbours(X: Any, start: int, stop: int) -> Any:
    """Rows start..stop-1 of a matrix in compressed rows, without a copy of their entries."""
    first, last = X.indptr[start], X.indptr[stop]
    part = type(X)((stop - start, X.shape[1]))
    # Its constructor would copy what is a small part of another array.
    part.data, part.indices = X.data[first:last], X.indices[first:last]
    part.indptr = X.indptr[start : stop + 1] - first
    return part
