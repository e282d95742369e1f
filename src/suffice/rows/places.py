"""Where a matrix comes from: a dask.array, a dataframe of Dask's, a memory map, or memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from suffice.rows.blocks import RowBlocks


def _in_blocks(X: Any) -> Any:
    """X, in blocks of rows if it is a dask.array, a dataframe of Dask's, or a `numpy.memmap`."""
    X = as_dask(X)
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    if kind in ("c", "m", "M"):
        raise TypeError(f"X must be a matrix of real numbers, got {'complex ones' if kind == 'c' else 'dates'}")
    if is_dask(X):
        from suffice.rows.dask import rows_of

        return rows_of(X)
    return RowBlocks.of(X) if isinstance(X, np.memmap) else X


def is_dask(x: Any) -> bool:
    """Whether x is a dask.array."""
    return type(x).__module__.startswith("dask.array") and hasattr(x, "dask")


def is_dask_frame(x: Any) -> bool:
    """Whether x is a dask.dataframe, or a column of one."""
    return type(x).__module__.startswith(("dask.dataframe", "dask_expr")) and hasattr(x, "to_dask_array")


def check_dask_frame(frame: Any) -> None:
    """Refuse anything but a dask.dataframe with its columns."""
    if not is_dask_frame(frame) or not hasattr(frame, "columns"):
        raise TypeError(f"frame must be a dask.dataframe, got {type(frame).__name__}")


def as_dask(x: Any) -> Any:
    """A dask.dataframe, or a column of one, as a dask.array; anything else as it is."""
    return x.to_dask_array(lengths=True) if is_dask_frame(x) else x
