"""Tables in many parts, on a cluster: parquet files, or a dask.dataframe. They offer what a table in memory does
(`suffice.tabular.table.Table`), and their rows stay where they are.

A part is some row groups of one file, or a partition of the dataframe. Rows are numbered through all files in the order
in which these are given. Columns have the kinds that a single parquet file gives them: numbers, true and false, and
text; dates have to be dropped, or turned into numbers, before. What comes here are summaries of columns, a few rows to
look at, and whole columns where every row has a say: the target, and weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.model_selection import PredefinedSplit

from suffice.rows.blocks import block_rows
from suffice.rows.dask import ClusterRows
from suffice.tabular.entries import Array, Column, number_column, quoted
from suffice.tabular.notation import Form, Kind
from suffice.tabular.parquet import column_of, kind_of, parquet_reader, refused, text_column
from suffice.tabular.preparation import RowsPreparation
from suffice.tabular.settings import Settings
from suffice.tabular.summaries import Summary
from suffice.tabular.table import Limits, Reading, Table, TableError, frame_of, names_of

ROWS = 250_000  # of a part, about
PATIENCE = "10s"  # with a scheduler that does not answer
MOST_SHUFFLED = 20_000_000  # rows that folds are shuffled for
TAKEN = (
    "data", "target", "task", "model", "cv", "drop", "keep", "weights", "log_target", "positive", "test",
    "min_class_size", "rare_classes", "max_evaluations", "max_seconds", "seed", "no_report", "files", "cluster",
    "digest",
)  # fmt: skip
NOT_HERE = {
    "svm": "the intercept of its loss cannot be minimised out",
    "cox": "its rows depend on each other",
}  # why these models are not for a cluster


def check_settings(settings: Settings) -> None:
    """ValueError for what a cluster does not do."""
    if settings.model in NOT_HERE:
        raise TableError(f"--model {settings.model} is not for a cluster ({NOT_HERE[settings.model]})")
    for item in fields(Settings):
        if item.name not in TAKEN and getattr(settings, item.name) != item.default:
            raise ValueError(f"--{item.name.replace('_', '-')} does not go with --cluster")


@contextmanager
def on_cluster(address: str | None) -> Iterator[Any]:
    """A client of the scheduler there."""
    try:
        distributed: Any = import_module("distributed")
        client = distributed.Client(address, timeout=PATIENCE)
    except ImportError as error:
        raise TableError("--cluster needs dask: pip install 'suffice[dask]'") from error
    except (OSError, TimeoutError) as error:
        raise TableError(f"no scheduler answers at {address}: start one with `dask scheduler`") from error
    with client:
        yield client


@dataclass(frozen=True)
class Part:
    """Some row groups of a file."""

    path: str
    groups: tuple[int, ...]
    rows: int


@dataclass(frozen=True, eq=False)
class PartedTable:
    """Columns in parts that live on a cluster."""

    parts: tuple[Any, ...]  # of files, or partitions that Dask makes
    sizes: tuple[int, ...]  # rows of each
    types: Mapping[str, tuple[Kind, str]]  # of columns, with words for them
    digest: str
    client: Any = None
    notes: tuple[str, ...] = ()
    joins_levels: bool = False

    def __len__(self) -> int:
        return sum(self.sizes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.types)

    origins = names

    @property
    def lines(self) -> Array:
        return np.arange(1, len(self) + 1)

    @property
    def reading(self) -> Reading:
        return Reading(",", {name: Form(kind) for name, (kind, _) in self.types.items()})

    def _kinds(self, names: Sequence[str]) -> dict[str, Kind]:
        return {name: self.types[name][0] for name in names}

    def _gathered(self, function: Any, names: Sequence[str], *of_parts: Sequence[Any]) -> list[Any]:
        """What a function says of these columns of every part."""
        delayed, kinds = import_module("dask").delayed(function, pure=False), self._kinds(names)
        found = [delayed(part, kinds, *more) for part, *more in zip(self.parts, *of_parts, strict=True)]
        return list(self.client.gather(self.client.compute(found)))

    def __getitem__(self, name: str) -> Column:
        """A column, here."""
        kind, what = self.types[name]
        if kind in ("other", "date"):
            return Column(name, kind, np.full(len(self), math.nan), form=Form(kind), what=what)
        values = np.concatenate([part[name] for part in self._gathered(read_part, [name])])
        return Column(name, kind, values, form=Form(kind))

    def summaries(self, names: Sequence[str], rows: Array) -> list[Summary]:
        """Of these columns; all rows are used."""
        if dates := [name for name in names if self.types[name][0] == "date"]:
            shown = " ".join(f"--drop {name}" for name in dates)
            raise TableError(f"columns of dates are not read on a cluster: {shown} leaves them out")
        used = [name for name in names if self.types[name][0] != "other"]
        whole, *rest = self._gathered(summarise, used)
        for part in rest:
            whole = {name: one.then(part[name]) for name, one in whole.items()}
        texts = [one for one in whole.values() if one.kind == "text" and one.levels is None]
        whole |= {one.name: replace(one, different=None) for one in texts}  # nobody lists them
        other = [name for name in names if name not in used]
        return [*whole.values(), *(Summary(name, "other", 0, 0, 0, {}, what=self.types[name][1]) for name in other)]

    def frame(self, names: Sequence[str], rows: Array) -> Any:
        """Some rows of these columns, by their numbers in order, as a pandas DataFrame."""
        ends = np.cumsum([0, *self.sizes])
        places = np.split(rows, np.searchsorted(rows, ends[1:-1]))
        found = self._gathered(some_rows, names, [place - end for place, end in zip(places, ends, strict=False)])
        return frame_of({name: np.concatenate([part[name] for part in found]) for name in names})

    def folds(self, splitter: Any, cv: int, seed: int, notes: list[str]) -> Any:
        """The splitter of a search: beyond MOST_SHUFFLED rows, by a hash of the number of the row and the seed."""
        if len(self) <= MOST_SHUFFLED:
            return splitter(cv, shuffle=True, random_state=seed)
        notes.append("folds are made of a hash of the number of the row and the seed")
        return PredefinedSplit(hashed(len(self), cv, seed))

    def rows_for(self, before: Any, numeric: Sequence[str], levels: Sequence[Summary], rows: Array) -> tuple[Any, Any]:
        """The table as numbers, where it is, and the step that prepares them."""
        if not rows.all():
            raise TableError("rows cannot be left out on a cluster: --rare-classes join, or make another table of them")
        dask, da = import_module("dask"), import_module("dask.array")
        texts = {one.name: np.array(list(one.levels or ())) for one in levels}
        read, kinds = dask.delayed(numbers_of, pure=False), self._kinds(numeric)
        token = blake2b(repr((self.digest, numeric, sorted(texts))).encode(), digest_size=8).hexdigest()
        size = len(numeric) + len(texts)
        parts = [
            da.from_delayed(read(part, kinds, texts, dask_key_name=f"table-{token}-{k}"), (count, size), float)
            for k, (part, count) in enumerate(zip(self.parts, self.sizes, strict=True))
        ]
        width = 2 * len(numeric) + sum(len(known) + 1 for known in texts.values())
        X = ClusterRows(da.concatenate(parts), self.client, block=block_rows((len(self), width)))
        return X, RowsPreparation(before, tuple(numeric), texts)


AnyTable = Table | PartedTable


def hashed(N: int, folds: int, seed: int) -> Array:
    """The fold that holds out each row, by its number and the seed alone (splitmix64)."""
    with np.errstate(over="ignore"):
        z = np.arange(N, dtype=np.uint64) + np.uint64(seed) * np.uint64(0xD1342543DE82EF95)
        z *= np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
        z ^= z >> np.uint64(31)
    return (z % np.uint64(folds)).astype(np.intp)


# Where parts come from


def of_files(paths: Sequence[str], client: Any) -> PartedTable:
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
    types = {name: (kind_of(kind), str(kind)[:40]) for name, kind in zip(names, first.types, strict=True)}
    return PartedTable(tuple(parts), tuple(part.rows for part in parts), types, _digest(repr(parts)), client)


def of_frame(frame: Any, client: Any) -> PartedTable:
    """The partitions of a dask.dataframe."""
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names) or any(not isinstance(name, str) for name in frame.columns):
        raise TableError("names of columns must be texts that differ from each other")
    sizes = tuple(int(size) for size in frame.map_partitions(len).compute())
    if not sum(sizes):
        raise TableError("the table has no rows")
    types = {name: (_kind_of_frame(kind), str(kind)[:40]) for name, kind in zip(names, frame.dtypes, strict=True)}
    return PartedTable(tuple(frame.to_delayed()), sizes, types, _digest(str(frame._name)), client)


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


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


# In a worker


def read_part(part: Any, kinds: Mapping[str, Kind]) -> dict[str, Array]:
    """These columns of a part: numbers with NaN, texts with None where they are missing."""
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


def some_rows(part: Any, kinds: Mapping[str, Kind], rows: Array) -> dict[str, Array]:
    return {name: values[rows] for name, values in read_part(part, kinds).items()}


def summarise(part: Any, kinds: Mapping[str, Kind]) -> dict[str, Summary]:
    values = read_part(part, kinds)
    return {name: Summary.of(name, kind, values[name]) for name, kind in kinds.items()}


def numbers_of(part: Any, numeric: Mapping[str, Kind], levels: Mapping[str, Array]) -> Array:
    """Numeric columns, NaN where they are missing, and numbers of levels, missing being the last."""
    text: dict[str, Kind] = dict.fromkeys(levels, "text")
    values = read_part(part, {**numeric, **text})
    columns = [values[name] for name in numeric]
    for name, known in levels.items():
        absent = np.array([value is None for value in values[name]])
        entries = np.where(absent, known[0], values[name]).astype(str)
        columns.append(np.where(absent, len(known), np.searchsorted(known, entries)).astype(np.float64))
    return np.column_stack(columns)
