"""Rows of a search on a device, in float64: X is an array of torch, CuPy or JAX there, or `device` names a place.

Folds are taken where the rows are: all of them are views of one copy of X there, in the order of the folds that hold
rows out, if every row is held out once, else copies of their own. Products with X, Gram matrices among them, are made
there. Weights, intercepts, whatever has one number for every row, and the final model are NumPy's.

Predictions for an X that lives elsewhere are NumPy's as well, as those of scikit-learn's estimators are; with
scikit-learn's `array_api_dispatch` they are arrays of X's kind, on its device.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn import get_config
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import validate_data

from suffice.arrays import Array, host, like, lives_elsewhere, namespace
from suffice.rows.dense import is_sparse
from suffice.sklearn._rows import Shared

TAKEN = "LogisticRegression (two classes, any solver but liblinear), ElasticNet, Lasso and Ridge (one target)"


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
        if not lives_elsewhere(X):
            part = _safe_indexing(X, index)  # a slice is a view
            rows = np.array(part, dtype=np.float64) if isinstance(index, slice) else np.asarray(part, dtype=np.float64)
            return rows if self.there is None else like(rows, self.there)
        rows = taken(X, index)
        xp = namespace(rows)
        rows = xp.astype(rows, xp.float64)
        return rows if rows.device == self.there.device else like(host(rows), self.there)

    def shared(self, X: Any, index: Any, centred: bool) -> Shared:
        """These rows, less the mean of their columns if they are to be centred."""
        rows = self.rows(X, index)
        if not centred:
            return Shared(rows, np.zeros(int(rows.shape[1])))
        shift = host(namespace(rows).mean(rows, axis=0))
        rows -= like(shift, rows)
        return Shared(rows, shift)

    def less(self, X: Any, shift: Array) -> Shared:
        """All rows less this shift."""
        rows = self.rows(X, slice(None))
        rows -= like(shift, rows)
        return Shared(rows, shift)


def taken(X: Any, index: Any) -> Any:
    """Rows of an array that lives elsewhere, by a slice, a mask or numbers of rows."""
    numbers = np.arange(int(X.shape[0]))[index]
    return namespace(X).take(X, like(numbers, X), axis=0)


def here(X: Any) -> Any:
    """X in main memory; anything but an array that lives elsewhere as it is."""
    return host(X) if lives_elsewhere(X) else X


def rows_here(X: Any, index: Any) -> Any:
    """Rows of X in main memory."""
    return host(taken(X, index)) if lives_elsewhere(X) else _safe_indexing(X, index)


def answered(answer: Any, X: Any) -> Any:
    """What was predicted for X: as it is, or of X's kind where scikit-learn is told to dispatch."""
    if not lives_elsewhere(X) or not get_config()["array_api_dispatch"] or np.asarray(answer).dtype.kind not in "biuf":
        return answer
    return like(np.asarray(answer), X)


def checked_elsewhere(search: Any, X: Any) -> Any:
    """X as an array of real numbers where it lives; raises what scikit-learn would."""
    name = type(search).__name__
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
    validate_data(search, X, skip_check_array=True)
    return X


def in_main_memory(X: Any) -> bool:
    """Whether an array of another library needs no journey to become NumPy's."""
    return "cpu" in str(X.device).lower()


def refused(search: Any, X: Any, y: Any, adapter: Any, final: Any, steps: bool) -> str | None:
    """Why this is not done on a device; None where it is."""
    why = f"device={search.device!r}" if search.device is not None else "X on a device"
    if not adapter.shares_rows(final) or np.ndim(y) != 1 or (is_classifier(final) and len(np.unique(y)) > 2):
        return f"{why} is for {TAKEN}: other models take X in main memory, got {type(final).__name__}"
    if steps and lives_elsewhere(X):
        return "steps of a pipeline take X in main memory: give it as such, and device=... for the folds"
    if is_sparse(X):
        return f"{why} takes a dense X, got {type(X).__name__}"
    if effective_n_jobs(search.n_jobs) > 1:
        return f"{why} goes with n_jobs=1: the device does the work, got n_jobs={search.n_jobs!r}"
    if search.certify_global is not None:
        return f"certify_global takes X in main memory, got {why}"
    return None
