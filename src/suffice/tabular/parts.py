"""Tables in many parquet files, part by part: what `suffice tune --cluster` reads on its workers; or a dask.dataframe.

A part is some row groups of one file, or a partition of the dataframe. Rows are numbered through all files in the order
in which these are given.
Columns have the kinds that a single parquet file gives them (`suffice.tabular.parquet`): numbers, true and false, and
text; dates have to be dropped, or turned into numbers, before. What decides about a column, its different values up to
a number, is found in one pass over all parts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from suffice.tabular.cautions import IDENTIFIER
from suffice.tabular.columns import FEW, WIDTH
from suffice.tabular.entries import Array, columns_of, finite
from suffice.tabular.notation import Form, Kind
from suffice.tabular.table import TableError, names_of, quoted

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
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise TableError("parquet files need pyarrow: pip install 'suffice[parquet]'") from error
    from suffice.tabular.table import Limits

    parts: list[Part] = []
    first: Any = None
    for path in paths:
        try:
            with parquet.ParquetFile(path) as opened:
                schema, metadata = opened.schema_arrow, opened.metadata
                sizes = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
        except Exception as error:  # pyarrow has no single class for files that are not what they should be
            raise TableError(f"{quoted(path)} cannot be read as parquet: {str(error).splitlines()[0]}") from error
        if first is None:
            first = schema
        elif (schema.names, schema.types) != (first.names, first.types):
            raise TableError(f"{quoted(path)} has other columns, or other types, than {quoted(paths[0])}")
        groups: list[int] = []
        for k in range(len(sizes)):
            groups.append(k)
            if sum(sizes[j] for j in groups) >= ROWS or k == len(sizes) - 1:
                rows = sum(sizes[j] for j in groups)
                parts += [Part(str(path), tuple(groups), rows)] if rows else []
                groups = []
    if first is None or not parts:
        raise TableError("the table has no rows")
    names, _ = names_of(first.names, Limits())
    if names != first.names:
        raise TableError("names of columns must differ from each other on a cluster")
    kinds = {name: _kind(kind) for name, kind in zip(first.names, first.types, strict=True)}
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


def _kind(kind: Any) -> Kind:
    from pyarrow import types

    inner = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_timestamp(inner) or types.is_date(inner):
        return "date"
    if types.is_boolean(inner):
        return "boolean"
    if types.is_integer(inner) or types.is_floating(inner) or types.is_decimal(inner):
        return "numeric"
    return "text" if types.is_string(inner) or types.is_large_string(inner) else "other"


def read_part(part: Any, kinds: Mapping[str, Kind]) -> dict[str, Array]:
    """These columns of a part: numbers with NaN, texts with None where they are missing. In a worker."""
    columns = _of_file(part, kinds) if isinstance(part, Part) else _of_frame(part, kinds)
    found: dict[str, Array] = {}
    for name, kind in kinds.items():
        values = columns[name]
        lines = np.arange(1, len(values) + 1)
        if kind == "text":
            texts = ["" if entry is None else str(entry).replace("\0", "") for entry in values]
            found[name] = columns_of([name], [["\0".join(texts)]], lines, ",", {name: Form("text")})[0].values
        else:
            finite(values, lines)
            found[name] = values
    return found


def _of_file(part: Part, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    import pyarrow.parquet as parquet
    from pyarrow import types

    with parquet.ParquetFile(part.path) as opened:
        table = opened.read_row_groups(list(part.groups), columns=list(kinds), use_threads=False)
    if table.num_rows != part.rows:
        raise TableError(f"{quoted(part.path)} has changed: {table.num_rows} rows where there were {part.rows}")
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        column = table.column(name).combine_chunks()
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if kind == "text":
            found[name] = column.to_pylist()
        else:
            found[name] = np.array(column.cast("float64", safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    return found


def _of_frame(frame: Any, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        column = frame[name]
        if kind == "text":
            found[name] = [None if absent else entry for entry, absent in zip(column, column.isna(), strict=True)]
        else:
            found[name] = np.array(column.to_numpy(dtype=np.float64, na_value=math.nan))
    return found


@dataclass
class Summary:
    """What decides about a column, of some rows."""

    known: int = 0
    missing: int = 0
    low: float = math.inf
    high: float = -math.inf
    whole: bool = True
    total: float = 0.0
    squares: float = 0.0
    increasing: bool = True  # strictly, in the order of the rows
    levels: Counter[Any] | None = field(default_factory=Counter)  # None: too many to be told

    @classmethod
    def of(cls, values: Array, kind: Kind) -> Summary:
        absent = np.array([value is None for value in values]) if kind == "text" else np.isnan(values)
        there = values[~absent]
        made = cls(len(there), int(absent.sum()))
        if kind != "text" and len(there):
            made.low, made.high = float(there.min()), float(there.max())
            made.whole = bool((there == np.round(there)).all())
            made.increasing = bool((np.diff(there) > 0.0).all())
            made.total, made.squares = float(there.sum()), float(there @ there)
        levels, counts = np.unique(there.astype(str) if kind == "text" else there, return_counts=True)
        most = 4 * WIDTH if kind == "text" else FEW + 2
        pairs = zip(levels.tolist(), counts.tolist(), strict=True)
        made.levels = None if len(levels) > most else Counter(dict(pairs))
        return made

    def then(self, other: Summary, kind: Kind) -> Summary:
        """With the rows that follow."""
        levels = None
        if self.levels is not None and other.levels is not None:
            levels = self.levels + other.levels
            levels = None if len(levels) > (4 * WIDTH if kind == "text" else FEW + 2) else levels
        in_order = self.increasing and other.increasing and (not other.known or self.high < other.low)
        return Summary(
            self.known + other.known,
            self.missing + other.missing,
            min(self.low, other.low),
            max(self.high, other.high),
            self.whole and other.whole,
            self.total + other.total,
            self.squares + other.squares,
            in_order,
            levels,
        )

    def useless(self, name: str, kind: Kind, keep: bool) -> str:
        """Why the column is left out, by the rules of `suffice.tabular.columns`; empty if it is not."""
        if self.known == 0:
            return "it has no values"
        count = None if self.levels is None else len(self.levels)
        if count == 1 and not self.missing:
            return "it has one value only"
        if kind == "text" and count is None:
            return f"it has more than {4 * WIDTH:,} different texts"
        if keep:
            return ""
        if kind == "text" and count is not None and count > FEW and count > 0.5 * self.known:
            return f"{count:,} different texts in {self.known:,} rows (--keep uses it)"
        if kind == "numeric" and self.whole and self.increasing and self.known > FEW:
            if self.low in (0.0, 1.0) and self.high - self.low < 3 * self.known:
                return "it counts the rows (--keep uses it)"
            if IDENTIFIER.search(name):
                return "it looks like an identifier (--keep uses it)"
        return ""


def summarise(part: Any, kinds: Mapping[str, Kind]) -> dict[str, Summary]:
    """Of every column of a part. In a worker."""
    values = read_part(part, kinds)
    return {name: Summary.of(values[name], kind) for name, kind in kinds.items()}


def summed(parts: Sequence[dict[str, Summary]], kinds: Mapping[str, Kind]) -> dict[str, Summary]:
    """Of all parts, in their order."""
    whole = dict(parts[0])
    for part in parts[1:]:
        whole = {name: whole[name].then(part[name], kind) for name, kind in kinds.items()}
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
