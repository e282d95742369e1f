r"""A matrix that is never in memory as a whole: blocks of rows, read one at a time.

    X w = (X_1 w, X_2 w, ...),     X^T r = sum_b X_b^T r_b

`RowBlocks` behaves like a matrix where a `Design` needs one: `shape`, `X @ w`, `X.T @ r`. Its rows come from a
`numpy.memmap`, a list of arrays or files, or any function that gives the rows from one number to another; a product with X
and one with X^T read every block once. A block is turned into float64 when it is read, so that a file of bytes or float32 takes no
more room than it has.

The bound on ||diag(a)^(1/2) X||_2^2 is the one of `suffice.terms.design`: the Gram matrix, where it is small (d <= 2000), is
a sum over blocks, and each sum of N products errs by no more than the N eps of one product; beyond, products with X are all that
is asked for.

A file is read again for every product: what does not fit into memory costs a pass over the disk per step. The operating
system keeps what fits.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from suffice._array import Array, whole_number

BLOCK_BYTES = 1 << 26  # of float64 values at a time: 64 MB


class RowBlocks:
    """A matrix of blocks of rows.

    `rows(start, stop)` returns the rows start..stop-1 as an array of numbers. Use `RowBlocks.of` for arrays and files.
    """

    ndim = 2
    dtype = np.dtype(np.float64)

    def __init__(self, rows: Callable[[int, int], Any], shape: tuple[int, int], *, block: int | None = None) -> None:
        if not callable(rows):
            raise TypeError(f"rows must be callable, got {rows!r}")
        if len(shape) != 2:
            raise ValueError(f"shape must be a pair (rows, columns), got {shape!r}")
        self._rows = rows
        self.shape = whole_number(shape[0], "rows", least=1), whole_number(shape[1], "columns", least=1)
        fitting = max(BLOCK_BYTES // (8 * self.shape[1]), 1)
        self.block = fitting if block is None else whole_number(block, "block", least=1)

    @classmethod
    def of(cls, source: Any, *, block: int | None = None) -> RowBlocks:
        """From an array (a `numpy.memmap`, say), a file written by `numpy.save`, or a list of such, one below the other."""
        if isinstance(source, cls):
            return source
        parts = [_Part(item) for item in (source if isinstance(source, list | tuple) else [source])]
        if not parts:
            raise ValueError("source must hold at least one array or file")
        widths = {part.shape[1] for part in parts}
        if len(widths) > 1:
            raise ValueError(f"all parts must have the same number of columns, got {sorted(widths)}")
        return cls(_Stack(parts), (sum(part.shape[0] for part in parts), widths.pop()), block=block)

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Where each block stands, and the block."""
        total, columns = self.shape
        for start in range(0, total, self.block):
            stop = min(start + self.block, total)
            try:
                block = np.ascontiguousarray(self._rows(start, stop), dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise TypeError(f"X must be a matrix of real numbers, rows {start} to {stop - 1} are not") from error
            if block.shape != (stop - start, columns):
                raise ValueError(f"rows({start}, {stop}) must have shape {(stop - start, columns)}, got {block.shape}")
            yield slice(start, stop), block

    def __matmul__(self, w: Array) -> Array:
        if np.shape(w)[:1] != self.shape[1:]:
            raise ValueError(f"X has {self.shape[1]} columns, the vector has shape {np.shape(w)}")
        result = np.empty((self.shape[0], *np.shape(w)[1:]))
        for place, block in self.blocks():
            result[place] = block @ w
        return result

    @property
    def T(self) -> _Transposed:  # noqa: N802 (as numpy has it)
        return _Transposed(self)

    def adjoint(self, r: Array) -> Array:
        """X^T r."""
        if np.shape(r)[:1] != self.shape[:1]:
            raise ValueError(f"X has {self.shape[0]} rows, the vector has shape {np.shape(r)}")
        result = np.zeros((self.shape[1], *np.shape(r)[1:]))
        for place, block in self.blocks():
            result += block.T @ r[place]
        return result

    def check_finite(self) -> None:
        for place, block in self.blocks():
            if not np.isfinite(block).all():
                raise ValueError(f"X must be finite, got NaN or infinite entries in rows {place.start} to {place.stop - 1}")

    def squared_rows(self) -> Array:
        """||x_i||^2 of every row."""
        result = np.empty(self.shape[0])
        for place, block in self.blocks():
            result[place] = np.einsum("ij,ij->i", block, block)
        return result

    def weighted(self, weights: Array) -> RowBlocks:
        """diag(weights) X."""
        return RowBlocks(_Weighted(self, weights), self.shape, block=self.block)

    def largest(self) -> float:
        """The largest absolute value."""
        return max(float(np.abs(block).max()) for _, block in self.blocks())

    def scaled(self, factor: float) -> RowBlocks:
        """factor X."""
        return self.weighted(np.full(self.shape[0], factor))

    def absolute(self) -> RowBlocks:
        """|X|."""
        return RowBlocks(_Absolute(self), self.shape, block=self.block)

    def gram(self) -> Array:
        """X^T X."""
        result = np.zeros((self.shape[1], self.shape[1]))
        for _, block in self.blocks():
            result += block.T @ block
        return result

    def outer_gram(self) -> Array:
        """X X^T, for a matrix of few rows."""
        result = np.empty((self.shape[0], self.shape[0]))
        for place, block in self.blocks():
            for other, second in self.blocks():
                result[place, other] = block @ second.T
        return result

    def fingerprint(self) -> dict[str, Any]:
        """What a journal compares: every entry, whatever file it lies in."""
        from hashlib import blake2b

        content = blake2b(digest_size=16)
        for _, block in self.blocks():
            content.update(np.ascontiguousarray(block).data)
        return {"shape": self.shape, "values": content.hexdigest()}


class _Transposed:
    """X^T, for products."""

    ndim = 2

    def __init__(self, X: RowBlocks) -> None:
        self._X = X
        self.shape = X.shape[::-1]

    def __matmul__(self, r: Array) -> Array:
        return self._X.adjoint(r)

    @property
    def T(self) -> RowBlocks:  # noqa: N802 (as numpy has it)
        return self._X


class _Part:
    """An array, or a file that is mapped when it is needed, here or in a worker."""

    def __init__(self, source: Any) -> None:
        self._file: tuple[str, np.dtype[Any], int, tuple[int, ...], str] | None = None
        if isinstance(source, str | os.PathLike):
            source = np.load(source, mmap_mode="r", allow_pickle=False)
        if not isinstance(source, np.ndarray):
            source = np.asarray(source)
        if source.ndim != 2 or 0 in source.shape:
            raise ValueError(f"X must be a matrix with at least one row and column, got shape {source.shape}")
        if source.dtype.kind not in "biuf":
            raise TypeError(f"X must be a matrix of real numbers, got {source.dtype}")
        if isinstance(source, np.memmap) and _whole(source):
            order = "C" if source.flags.c_contiguous else "F"
            self._file = (str(source.filename), source.dtype, source.offset, source.shape, order)
        self.shape = (int(source.shape[0]), int(source.shape[1]))
        self._array: np.ndarray[Any, Any] | None = source

    def __getitem__(self, rows: slice) -> Any:
        if self._array is None:
            assert self._file is not None
            name, dtype, offset, shape, order = self._file
            self._array = np.memmap(name, dtype, "r", offset, shape, order)  # type: ignore[arg-type]
        return self._array[rows]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_array": self._array if self._file is None else None}


def _whole(array: np.memmap[Any, Any]) -> bool:
    """Whether a memory map is all of its mapping, and not a view of parts of it."""
    root = getattr(array, "_mmap", None)
    if array.filename is None or root is None or not (array.flags.c_contiguous or array.flags.f_contiguous):
        return False
    base = np.frombuffer(root, dtype=np.uint8)
    start = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return bool(start == array.offset % mmap_granularity() and start + array.nbytes == len(base))


def mmap_granularity() -> int:
    import mmap

    return mmap.ALLOCATIONGRANULARITY


class _Stack:
    """Parts one below the other."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._parts = parts
        self._ends = np.cumsum([part.shape[0] for part in parts]).tolist()

    def __call__(self, start: int, stop: int) -> Any:
        pieces, first = [], 0
        for part, end in zip(self._parts, self._ends, strict=True):
            if start < end and stop > first:
                pieces.append(part[max(start - first, 0) : min(stop, end) - first])
            first = end
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


class _Weighted:
    def __init__(self, X: RowBlocks, weights: Array) -> None:
        self._X, self._weights = X, weights

    def __call__(self, start: int, stop: int) -> Any:
        rows = np.asarray(self._X._rows(start, stop), dtype=np.float64)
        return self._weights[start:stop, None] * rows


class _Absolute:
    def __init__(self, X: RowBlocks) -> None:
        self._X = X

    def __call__(self, start: int, stop: int) -> Any:
        return np.abs(np.asarray(self._X._rows(start, stop), dtype=np.float64))


def frobenius_squared(X: RowBlocks, weights: Array) -> float:
    """||diag(weights)^(1/2) X||_F^2."""
    return math.fsum(float(weights[place] @ np.einsum("ij,ij->i", block, block)) for place, block in X.blocks())
