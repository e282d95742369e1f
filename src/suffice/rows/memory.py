r"""Rows that are at hand as one matrix, dense or sparse in main memory or an array on a device: one block.

A job over them (`suffice.rows.blocks`) is called at once, with the matrix as it lies. Margins are arrays that live
where weights and targets do: with X, or in main memory. The latest of them are kept, with what was found out about
them: a step asks for those of a few points again and again. They are never written to.

X^T r is made in two stages, so that its rounding is known and small (see `suffice.rows.rounding`):

    X^T r = sum over blocks of rows b of X_b^T r_b:    a term of column j passes at most  roundings_j  of them,

however a library orders the sum within a block. A column of a sparse matrix with n_j entries never passes more than
n_j: adding a zero is exact. Each layout is cut where it can be cut without a copy: rows of a dense matrix and of one in
compressed rows, columns of one in compressed columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from suffice.arrays import Array, frozen, host, like, lives_elsewhere
from suffice.lazy import cached_property
from suffice.rows.blocks import Blocked
from suffice.rows.gram import dense_rows, neighbours
from suffice.rows.margins import Known
from suffice.rows.rounding import block_length, dense_product
from suffice.rows.sums import Block, Job

KEPT = 3  # images: of a step's ends, and of its middle
DEVICE_BLOCK, DEVICE_BLOCKS = 4096, 16  # rows of a block, and blocks at most, of a matrix on a device
SPARSE_BLOCK = 256  # rows of a block, at least: a product with a sparse matrix costs some time
ABSOLUTE_ROWS = 512  # of which absolute values are taken at a time
BLOCK_WORTH = 4  # entries of a block of rows for every column: a block costs a sum over all columns


class InMemory(Blocked):
    """All rows of X as one block, with weights a."""

    dear = False

    def __init__(self, X: Any, a: Any) -> None:
        self.X, self.a = X, a
        self.shape = int(X.shape[0]), int(X.shape[1])
        self.block = self.shape[0]
        self.at_hand, self.full = not lives_elsewhere(X), isinstance(X, np.ndarray)
        self._products: list[tuple[float, Array, Any, Any]] = []  # ||w||^2, w, a copy, the offset, and the image
        self._images: list[tuple[Any, Known]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_products": [], "_images": []}

    @cached_property
    def adjoint(self) -> Any:
        return SparseAdjoint(self.X) if sp.issparse(self.X) else DenseAdjoint(self.X)

    def margins(self, w: Array, offset: Any = None) -> Any:
        square = float(np.vdot(w, w))  # nearly all that differ differ here
        for known, there, added, image in self._products:
            if known == square and added is offset and np.array_equal(there, w):
                return image
        image = self.directions(w)
        image = image if offset is None else image + offset
        if isinstance(image, np.ndarray):
            image.setflags(write=False)
        self._products = [(square, np.array(w), offset, image), *self._products[: KEPT - 1]]
        return image

    def directions(self, W: Array) -> Any:
        if not W.any():  # X is finite
            return like(np.zeros((self.shape[0], *W.shape[1:])), self.a)
        product = self.X @ like(W, self.X)
        return host(product) if isinstance(self.a, np.ndarray) else product

    def known(self, image: Any) -> Known:
        for one, known in self._images:
            if one is image:
                return known
        self._images = [(image, Known()), *self._images[: KEPT - 1]]
        return self._images[0][1]

    def all_at_once(self, image: Any) -> bool:
        return False

    def run(self, job: Job, margins: Sequence[Any] = (), riders: Sequence[Any] = (), **given: Any) -> Any:
        """Riders would save no pass here."""
        return job(Block(0, self.shape[0], lambda: self.X, given, margins, self.pull))

    def pull(self, r: Any) -> Array:
        return host(self.adjoint(like(r, self.X)))

    def rows_of(self, values: Any) -> Any:
        return like(np.asarray(values), self.a)

    def targets(self, y: Any, function: Callable[[Any], Array]) -> Any:
        return self.rows_of(frozen(function(self._checked(host(y) if lives_elsewhere(y) else np.asarray(y)))))

    def gathered(self, rows: Any) -> Array:
        return host(rows)


class DenseAdjoint:
    """A NumPy array in any order, or one of torch, CuPy or JAX: a few large blocks, since every one is a launch."""

    def __init__(self, X: Any) -> None:
        N = int(X.shape[0])
        few = math.ceil(N / min(DEVICE_BLOCKS, math.ceil(N / DEVICE_BLOCK)))
        self.X, self.block = X, block_length(N) if isinstance(X, np.ndarray) else few
        self.roundings = np.full(int(X.shape[1]), float(min(N, self.block + math.ceil(N / self.block) + 1)))

    def __call__(self, r: Any) -> Any:
        X, B = self.X, self.block
        if isinstance(X, np.ndarray):
            return dense_product(X, r, B)
        result = X[:B, :].T @ r[:B, ...]
        for first in range(B, int(X.shape[0]), B):
            result = result + X[first : first + B, :].T @ r[first : first + B, ...]
        return result


class SparseAdjoint:
    """Compressed rows, cut into blocks of rows that share X's arrays, each transposed once for all."""

    def __init__(self, X: Any) -> None:
        N, d = X.shape
        self.X = X = X.tocsr()
        B = max(SPARSE_BLOCK, 4 * math.isqrt(N), math.ceil(N * BLOCK_WORTH * d / max(X.nnz, 1)))
        self.block = B if 2 * B <= N else N
        places = [slice(s, min(s + self.block, N)) for s in range(0, N, self.block)]
        self.parts = [(place, neighbours(X, place.start, place.stop, transposed=True)) for place in places]
        entries = np.bincount(X.indices, minlength=d)  # twice the same place is two terms
        self.roundings = np.minimum(entries.astype(np.float64), float(self.block + len(self.parts)))

    def __call__(self, r: Array) -> Array:
        (first, part), *others = self.parts
        result: Array = part @ r[first]
        for place, part in others:
            result += part @ r[place]
        return result


def absolute_product(X: Any, w: Array) -> Array:
    """|X| |w| as a NumPy array, for a vector or a matrix w: x_i . w is rounded by at most gamma times it, whatever the
    units of columns. Where w is 0 X is not looked at."""
    S = np.flatnonzero(w if w.ndim == 1 else w.any(axis=1))
    sizes = np.abs(w[S])
    if sp.issparse(X):
        return abs(X[:, S]) @ sizes
    product, there = np.empty((int(X.shape[0]), *w.shape[1:])), like(sizes, X) if lives_elsewhere(X) else sizes
    for place, block in dense_rows(X, S, ABSOLUTE_ROWS):
        product[place] = host(abs(block) @ there)
    return product
