"""Tables in many parquet files, part by part: what `suffice tune --cluster` reads on its workers; or a dask.dataframe.

A part is some row groups of one file, or a partition of the dataframe. Rows are numbered through all files in the order
in which these are given.
Columns have the kinds that a single parquet file gives them (`suffice.tabular.parquet`): numbers, true and false, and
text; dates have to be dropped, or turned into numbers, before. What decides about a column, its different values up to
a number, is found in one pass over all parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.tabular.entries import Array, number_column
from suffice.tabular.notation import Form, Kind
from suffice.tabular.parquet import column_of, kind_of, parquet_reader, refused, text_column
from suffice.tabular.summaries import Summary
from suffice.tabular.table import Limits, TableError, names_of, quoted

ROWS = 250_000  # of a part, about


@dataclass(frozen=True)
class Part:
    """Some row groups of a file."""

    path: str
    groups: tuple[int, ...]
    rows: int


@dataclass(frozen=True)
class Parts:
    """All of them, and the kinds of their columns."""

    parts: tuple[Any, ...]  # of files, or partitions that Dask makes
    sizes: tuple[int, ...]  # rows of each
    kinds: Mapping[str, Kind]
    what: Mapping[str, str]  # types of columns that are neither numbers nor text
    name: str  # what tells one table from another

    @property
    def rows(self) -> int:
        return sum(self.sizes)


def find_parts(paths: Sequence[str]) -> Parts:
    """What the files say about themselves; `TableError` if they do not go together."""
    parquet = parquet_reader().parquet
    parts: list[Part] = []
    first: Any = None
    for path in paths:
        try:
            with parquet.ParquetFile(path) as opened:
                schema, metadata = opened.schema_arrow, opened.metadata
                sizes = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
        except Exception as error:
            raise refused(path, error) from error
        first = schema if first is None else first
        if (schema.names, schema.types) != (first.names, first.types):
            raise TableError(f"{quoted(path)} has other columns, or other types, than {quoted(paths[0])}")
        groups: list[int] = []
        for k in range(len(sizes)):
            groups.append(k)
            rows = sum(sizes[j] for j in groups)
            if rows >= ROWS or k == len(sizes) - 1:
                parts += [Part(str(path), tuple(groups), rows)] if rows else []
                groups = []
    if first is None or not parts:
        raise TableError("the table has no rows")
    names, _ = names_of(first.names, Limits())
    if names != first.names:
        raise TableError("names of columns must differ from each other on a cluster")
    kinds = {name: kind_of(kind) for name, kind in zip(names, first.types, strict=True)}
    what = {name: str(kind)[:40] for name, kind in zip(names, first.types, strict=True)}
    return Parts(tuple(parts), tuple(part.rows for part in parts), kinds, what, repr(parts))


def parts_of_frame(frame: Any) -> Parts:
    """The partitions of a dask.dataframe."""
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names) or any(not isinstance(name, str) for name in frame.columns):
        raise TableError("names of columns must be texts that differ from each other")
    sizes = tuple(int(size) for size in frame.map_partitions(len).compute())
    if not sum(sizes):
        raise TableError("the table has no rows")
    kinds = {name: _kind_of_frame(dtype) for name, dtype in zip(names, frame.dtypes, strict=True)}
    what = {name: str(dtype)[:40] for name, dtype in zip(names, frame.dtypes, strict=True)}
    return Parts(tuple(frame.to_delayed()), sizes, kinds, what, str(frame._name))


def _kind_of_frame(dtype: Any) -> Kind:
    from pandas.api import types

    if types.is_datetime64_any_dtype(dtype):
        return "date"
    if types.is_bool_dtype(dtype):
        return "boolean"
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return "numeric"
    texts = types.is_string_dtype(dtype) or types.is_object_dtype(dtype) or str(dtype) == "category"
    return "text" if texts else "other"


def read_part(part: Any, kinds: Mapping[str, Kind]) -> dict[str, Array]:
    """These columns of a part: numbers with NaN, texts with None where they are missing. In a worker."""
    found: dict[str, Array] = {}
    if isinstance(part, Part):
        with parquet_reader().parquet.ParquetFile(part.path) as opened:
            table = opened.read_row_groups(list(part.groups), columns=list(kinds), use_threads=False)
        if table.num_rows != part.rows:
            raise TableError(f"{quoted(part.path)} has changed: {table.num_rows} rows where there were {part.rows}")
        lines = np.arange(part.rows)
        return {name: column_of(name, table.column(name), lines).values for name in kinds}
    for name, kind in kinds.items():
        column, lines = part[name], np.arange(len(part))
        if kind == "text":
            entries = [None if absent else entry for entry, absent in zip(column, column.isna(), strict=True)]
            found[name] = text_column(name, entries, lines).values
        else:
            values = np.array(column.to_numpy(dtype=np.float64, na_value=math.nan))
            found[name] = number_column(name, values, lines, Form(kind)).values
    return found


def summarise(part: Any, kinds: Mapping[str, Kind]) -> dict[str, Summary]:
    """Of every column of a part. In a worker."""
    values = read_part(part, kinds)
    return {name: Summary.of(name, kind, values[name]) for name, kind in kinds.items()}


def summed(parts: Sequence[dict[str, Summary]]) -> dict[str, Summary]:
    """Of all parts, in their order."""
    whole = dict(parts[0])
    for part in parts[1:]:
        whole = {name: one.then(part[name]) for name, one in whole.items()}
    return whole


def matrix(part: Any, numeric: Mapping[str, Kind], levels: Mapping[str, Array]) -> Array:
    """A part as numbers: numeric columns, NaN where they are missing, and numbers of levels, missing being the last.
    In a worker."""
    text: dict[str, Kind] = dict.fromkeys(levels, "text")
    values = read_part(part, {**numeric, **text})
    columns = [values[name] for name in numeric]
    for name, known in levels.items():
        absent = np.array([value is None for value in values[name]])
        entries = np.where(absent, known[0], values[name]).astype(str)
        columns.append(np.where(absent, len(known), np.searchsorted(known, entries)).astype(np.float64))
    return np.column_stack(columns)


def target_values(part: Any, name: str, kind: Kind) -> Array:
    """The target of a part. In a worker."""
    return read_part(part, {name: kind})[name]
