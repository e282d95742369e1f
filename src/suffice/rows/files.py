"""Matrices in files, one below the other: mapped where they are needed, known to workers by their names."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy as np


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
