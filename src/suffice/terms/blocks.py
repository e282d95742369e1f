r"""A matrix that is never in memory as a whole: blocks of rows, read one at a time.

    X w = (X_1 w, X_2 w, ...),     X^T r = sum_b X_b^T r_b,     X^T X = sum_b X_b^T X_b

`RowBlocks` behaves like a matrix where a `Design` needs one: `shape`, `X @ w`, `X.T @ r`. Its rows come from a
`numpy.memmap`, from files, or from any function that gives the rows from one number to another. A block is turned into
float64 when it is read: a file of bytes or float32 takes no more room than it has. Every product reads every block
once, so that what does not fit into memory costs two passes over the disk per step of a solver; the operating system
keeps what fits.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from suffice.arrays import Array, whole_number
from suffice.terms.rounding import block_length, dense_product

BLOCK_BYTES = 1 << 26  # of float64 values at a time: 64 MB


class RowBlocks:
    """A matrix of real numbers as blocks of rows; `rows(start, stop)` returns the rows start..stop-1.

    `RowBlocks.of` makes one from arrays and files. `block` is the number of rows that are read at a time.
    """

    __array_ufunc__ = None  # numpy would take it apart

    def __init__(self, rows: Callable[[int, int], Any], shape: tuple[int, int], *, block: int | None = None) -> None:
        if not callable(rows):
            raise TypeError(f"rows must be callable, got {rows!r}")
        if len(shape) != 2:
            raise ValueError(f"shape must be a pair (rows, columns), got {shape!r}")
        self.rows = rows
        self.shape = whole_number(shape[0], "rows", least=1), whole_number(shape[1], "columns", least=1)
        fitting = max(BLOCK_BYTES // (8 * self.shape[1]), 1)
        self.block = min(fitting if block is None else whole_number(block, "block", least=1), self.shape[0])

    @classmethod
    def of(cls, source: Any, *, block: int | None = None) -> RowBlocks:
        """From an array, such as a `numpy.memmap`, a file made by `numpy.save`, or a list of these, one below the
        other."""
        if isinstance(source, cls):
            return source
        parts = [_Part(item) for item in (source if isinstance(source, list | tuple) else [source])]
        if not parts:
            raise ValueError("source must hold at least one array or file")
        widths = sorted({part.shape[1] for part in parts})
        if len(widths) > 1:
            raise ValueError(f"all parts must have the same number of columns, got {widths}")
        return cls(_Stack(parts), (sum(part.shape[0] for part in parts), widths[0]), block=block)

    @property
    def ndim(self) -> int:
        return 2

    @property
    def T(self) -> _Transposed:  # noqa: N802 (as numpy has it)
        return _Transposed(self)

    def __matmul__(self, w: Array) -> Array:
        if np.shape(w)[:1] != self.shape[1:]:
            raise ValueError(f"X has {self.shape[1]} columns, its factor has shape {np.shape(w)}")
        result = np.empty((self.shape[0], *np.shape(w)[1:]))
        for place, block in self.blocks():
            result[place] = block @ w
        return result

    def adjoint(self, r: Array) -> Array:
        """X^T r."""
        if np.shape(r)[:1] != self.shape[:1]:
            raise ValueError(f"X has {self.shape[0]} rows, its factor has shape {np.shape(r)}")
        result = np.zeros((self.shape[1], *np.shape(r)[1:]))
        for place, block in self.blocks():
            result += dense_product(block, r[place], block_length(len(block)))
        return result

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Where each block stands, and the block."""
        total, columns = self.shape
        for start in range(0, total, self.block):
            stop = min(start + self.block, total)
            try:
                block = np.ascontiguousarray(self.rows(start, stop), dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise TypeError(f"X must be a matrix of real numbers, rows {start} to {stop - 1} are not") from error
            if block.shape != (stop - start, columns):
                raise ValueError(f"rows({start}, {stop}) must have shape {(stop - start, columns)}, got {block.shape}")
            yield slice(start, stop), block

    def finite(self) -> bool:
        """Whether every entry is a number."""
        return all(bool(np.isfinite(block).all()) for _, block in self.blocks())

    def largest(self) -> float:
        """The largest absolute value of an entry."""
        return max(float(np.abs(block).max()) for _, block in self.blocks())

    def squared_rows(self) -> Array:
        """||x_i||^2 of every row."""
        return np.concatenate([np.einsum("ij,ij->i", block, block) for _, block in self.blocks()])

    def gram(self) -> Array:
        """X^T X, for few columns."""
        return sum((block.T @ block for _, block in self.blocks()), np.zeros((self.shape[1], self.shape[1])))

    def outer_gram(self) -> Array:
        """X X^T, for few rows."""
        result = np.empty((self.shape[0], self.shape[0]))
        for place, block in self.blocks():
            result[:, place] = self @ block.T
        return result

    def scaled(self, factors: Array) -> RowBlocks:
        """diag(factors) X."""
        return self._mapped(lambda start, stop, rows: factors[start:stop, None] * rows)

    def divided(self, divisor: float) -> RowBlocks:
        """X / divisor."""
        return self._mapped(lambda start, stop, rows: rows / divisor)

    def absolute(self) -> RowBlocks:
        """|X|."""
        return self._mapped(lambda start, stop, rows: np.abs(rows))

    def _mapped(self, change: Callable[[int, int, Any], Any]) -> RowBlocks:
        def rows(start: int, stop: int) -> Any:
            return change(start, stop, np.asarray(self.rows(start, stop), dtype=np.float64))

        return RowBlocks(rows, self.shape, block=self.block)

    def fingerprint(self) -> dict[str, Any]:
        """What a journal compares: every entry, whatever file it lies in."""
        content = blake2b(digest_size=16)
        for _, block in self.blocks():
            content.update(block.data)
        return {"shape": self.shape, "values": content.hexdigest()}


class _Transposed:
    """X^T, for products."""

    __array_ufunc__ = None

    def __init__(self, X: RowBlocks) -> None:
        self.X = X

    def __matmul__(self, r: Array) -> Array:
        return self.X.adjoint(r)


class _Part:
    """An array, or a file: that one is mapped where it is needed, and a worker is sent its name, not its content."""

    def __init__(self, source: Any) -> None:
        if isinstance(source, str | os.PathLike):
            source = np.load(source, mmap_mode="r", allow_pickle=False)
        array = source if isinstance(source, np.ndarray) else np.asarray(source)
        if array.ndim != 2 or 0 in array.shape:
            raise ValueError(f"X must be a matrix with at least one row and column, got shape {array.shape}")
        if array.dtype.kind not in "biuf":
            raise TypeError(f"X must be a matrix of real numbers, got {array.dtype}")
        self.shape = (int(array.shape[0]), int(array.shape[1]))
        self.file = (_file_of(array) or {}) if isinstance(array, np.memmap) else {}
        self.array: Any = array

    def __getitem__(self, rows: slice) -> Any:
        if self.array is None:
            memory_map: Any = np.memmap
            self.array = memory_map(mode="r", **self.file)
        return self.array[rows]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "array": None if self.file else self.array}


def _file_of(array: Any) -> dict[str, Any] | None:
    """The arguments with which a memory map can be made again, or None if it is a part of its file that has none."""
    root, name = array._mmap, array.filename
    if root is None or name is None or not (array.flags.c_contiguous or array.flags.f_contiguous):
        return None
    mapped = np.frombuffer(root, dtype=np.uint8).__array_interface__["data"][0]
    # The mapping begins where a page does, at or before the array that was asked for.
    page = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    offset = page + array.__array_interface__["data"][0] - mapped
    order = "C" if array.flags.c_contiguous else "F"
    return {"filename": str(name), "dtype": array.dtype, "offset": offset, "shape": array.shape, "order": order}


class _Stack:
    """Parts one below the other."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self.parts = tuple(parts)

    def __call__(self, start: int, stop: int) -> Any:
        pieces, first = [], 0
        for part in self.parts:
            last = first + part.shape[0]
            if start < last and first < stop:
                pieces.append(part[max(start, first) - first : min(stop, last) - first])
            first = last
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
