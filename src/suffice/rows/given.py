"""Where a matrix comes from, and how a search is given it: in main memory, in blocks of rows, of Dask's, or on a
device.

Rows on a device are in float64: X is an array of torch, CuPy or JAX there, or `device` names a place. Folds are taken
where the rows are: all of them are views of one copy of X there, in the order of the folds that hold rows out, if every
row is held out once, else copies of their own. Products with X, Gram matrices among them, are made there. Weights,
intercepts, whatever has one number for every row, and the final model are NumPy's.

Predictions for an X that lives elsewhere are NumPy's as well, as those of scikit-learn's estimators are.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from suffice.arrays import Array, host, like, lives_elsewhere, namespace, outside_stacklevel
from suffice.rows.blocks import Blocked, RowBlocks


@dataclass(frozen=True, eq=False)
class Shared:
    """Rows less `shift` that several folds have in common, or that live on a device or in blocks; those that do not
    count have a weight of 0 there. `weights` of rows in blocks are a rule (`suffice.rows.sums.Chosen`), or one
    number for each."""

    X: Any
    shift: Array
    weights: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.X.shape)


@dataclass(frozen=True, eq=False)
class Place:
    """Where rows live: main memory, unless there is an array of another place."""

    there: Any = None

    @classmethod
    def of(cls, device: Any, X: Any) -> Place | None:
        """The place that `device` names, or that of X; None for main memory as NumPy has it."""
        if device is None:
            return cls(X[:1, :1]) if lives_elsewhere(X) and len(X.shape) == 2 else None
        try:
            torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise ImportError(f"device={device!r} needs torch: pip install 'suffice[gpu]'") from error
        try:
            return cls(torch.zeros((1, 1), dtype=torch.float64, device=device))
        except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"device must be None or a device that torch has here, got {device!r}: {reason}"
            ) from error

    def rows(self, X: Any, index: Any) -> Any:
        """These rows of X, in float64, a copy of them there."""
        rows = taken(X, index)
        if not lives_elsewhere(X):  # a slice is a view
            rows = np.array(rows, dtype=np.float64) if isinstance(index, slice) else np.asarray(rows, dtype=np.float64)
            return like(rows, self.there)
        xp = namespace(rows)
        rows = xp.astype(rows, xp.float64)
        return rows if rows.device == self.there.device else like(host(rows), self.there)

    def shared(self, X: Any, index: Any, centred: bool) -> Shared:
        """These rows, less the mean of their columns if they are to be centred."""
        rows = self.rows(X, index)
        return _less(rows, host(namespace(rows).mean(rows, axis=0)) if centred else np.zeros(int(rows.shape[1])))

    def less(self, X: Any, shift: Array) -> Shared:
        """All rows less this shift."""
        return _less(self.rows(X, slice(None)), shift)


def _less(rows: Any, shift: Array) -> Shared:
    if shift.any():
        rows -= like(shift, rows)
    return Shared(rows, shift)


def numbered(X: Any) -> bool:
    """Whether rows of X may be taken by their numbers: those in blocks come by passes over all of them."""
    return not isinstance(X, Blocked)


def read_by_sklearn(X: Any) -> bool:
    """Whether scikit-learn reads X as it is."""
    return numbered(X) and not lives_elsewhere(X)


def indexed(X: Any, y: Any) -> Any:
    """X and y so that scikit-learn takes rows of them, where it reads X."""
    from sklearn.utils import indexable

    return indexable(X, y) if read_by_sklearn(X) else (X, y)


def counted(X: Any) -> Any:
    """What those who count rows are given for X."""
    return X if read_by_sklearn(X) else np.broadcast_to(0.0, (int(X.shape[0]), 1))


def taken(X: Any, index: Any) -> Any:
    """Rows of X where it lives, by a slice, a mask or numbers of rows."""
    if not lives_elsewhere(X):
        if isinstance(X, np.ndarray) or sp.issparse(X):
            return X[index]
        from sklearn.utils import _safe_indexing

        return _safe_indexing(X, index)
    numbers = np.arange(int(X.shape[0]))[index]
    return namespace(X).take(X, like(numbers, X), axis=0)


def as_rows(X: Any) -> Any:
    """X as rows that can follow others: a DataFrame or a sparse matrix as it is, anything else as NumPy's array."""
    return X if hasattr(X, "iloc") or sp.issparse(X) else np.asarray(here(X))


def followed_by(before: Any, X: Any, name: str) -> Any:
    """The rows of both; ValueError about the second, called `name`, where columns differ."""
    if hasattr(before, "iloc"):
        import pandas

        if not hasattr(X, "iloc"):
            raise ValueError(f"{name} must be a DataFrame with the columns of X, got {type(X).__name__}")
        if list(X.columns) != list(before.columns):
            missing, more = (
                [str(name) for name in one if name not in other]
                for one, other in ((before.columns, X.columns), (X.columns, before.columns))
            )
            what = "; ".join(
                text
                for text, names in ((f"lacks {', '.join(missing)}", missing), (f"also has {', '.join(more)}", more))
                if names
            )
            raise ValueError(f"{name} must have the columns of X: it {what or 'has them in another order'}")
        numeric = pandas.api.types.is_numeric_dtype
        other = [str(name) for name in X.columns if numeric(before[name].dtype) != numeric(X[name].dtype)]
        if other:
            raise ValueError(f"{name} has another type in column {', '.join(other)}: {X[other[0]].dtype}")
        return pandas.concat([before, X], ignore_index=True)
    if np.ndim(X) != 2 or X.shape[1] != before.shape[1]:
        raise ValueError(f"{name} must have the {before.shape[1]} columns of X, got shape {np.shape(X)}")
    if sp.issparse(before) or sp.issparse(X):
        return sp.vstack([before, X]).tocsr()
    return np.vstack([before, X])


def here(X: Any) -> Any:
    """X in main memory; anything but an array that lives elsewhere as it is."""
    return host(X) if lives_elsewhere(X) else X


def copies_matter(X: Any, least: int) -> bool:
    """Whether X is used as it is, in float64, and takes so many bytes that folds had better share one copy."""
    return isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype == np.float64 and X.nbytes >= least


def in_main_memory(X: Any) -> bool:
    """Whether an array of another library needs no journey to become NumPy's."""
    return "cpu" in str(X.device).lower()


def checked_in_place(X: Any, name: str) -> Any:
    """X, which scikit-learn does not read, as a matrix of real numbers where it lives; raises what scikit-learn would
    for `name`. Entries of blocks are looked at when a pass is made."""
    if not numbered(X):
        return X
    if len(X.shape) != 2:
        raise ValueError(f"Expected 2D array, got {len(X.shape)}D array instead: X has shape {tuple(X.shape)}")
    if 0 in X.shape:
        raise ValueError(f"Found array with shape {tuple(X.shape)} while a minimum of 1 is required by {name}.")
    xp = namespace(X)
    if xp.isdtype(X.dtype, "complex floating"):
        raise ValueError("Complex data not supported")
    X = xp.astype(X, xp.float64, copy=False)
    if not bool(xp.all(xp.isfinite(X))):
        raise ValueError(f"Input X contains NaN or infinity, which {name} does not accept.")
    return X


def in_place(X: Any, y: Any, name: str, why_here: Callable[[], str]) -> tuple[Any, Any]:
    """X where it is, and y on this machine. Where X has to be here, for the reason that `why_here` gives, one of Dask's
    is told with its size, and refused where it is larger than the memory."""
    if is_dask_frame(X) or is_dask_frame(y):
        raise TypeError(
            f"{'X' if is_dask_frame(X) else 'y'} is a dask.dataframe, and {name} needs it on one machine: give its "
            ".compute(), or tune it where it is with suffice.tune_table"
        )
    why = why_here() if is_dask(X) or not numbered(X) else ""
    if is_dask(X) and not why:
        from suffice.rows.dask import rows_of

        X = rows_of(X)
    elif why and not numbered(X):
        raise ValueError(f"rows in blocks stay where they are, and {why}: give X in main memory")
    elif is_dask(X):
        size = float(X.nbytes)  # NaN where chunks have unknown sizes
        about = f"X is a dask.array of {size / 1e9:.3g} GB" if size == size else "X is a dask.array of unknown size"
        instead = (
            "suffice.tune_table tunes a dask.dataframe where its rows are, and suffice.problems take a "
            "dask.array: see 'From laptop to cluster' in the documentation"
        )
        if size > _memory():
            raise ValueError(f"{about}, and this machine, where {why}, has {_memory() / 1e9:.3g}: {instead}")
        warnings.warn(
            f"{about}, and {name} brings it to this machine: {why}. {instead}", stacklevel=outside_stacklevel()
        )
        X = X.compute()
    return X, y.compute() if is_dask(y) else y


def _memory() -> float:
    """Bytes of this machine, if it tells them."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return np.inf


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


def as_dask(x: Any) -> Any:
    """A dask.dataframe, or a column of one, as a dask.array; anything else as it is."""
    return x.to_dask_array(lengths=True) if is_dask_frame(x) else x
