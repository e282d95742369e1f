"""Tables in many parts, on a cluster: parquet files, or a dask.dataframe. They offer what a table in memory does
(`suffice.tabular.table.Table`), and their rows stay where they are.

A part is a row group of one file, or a partition of the dataframe. Rows are numbered through all files in the order
in which these are given. Columns have the kinds that a single parquet file gives them: numbers, true and false, and
text; dates have to be dropped, or turned into numbers, before. What comes here are summaries of columns, a few rows to
look at, and whole columns where every row has a say: the target, and weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from importlib import import_module
from typing import Any

import numpy as np

from suffice.rows.blocks import block_rows
from suffice.rows.dask import ClusterRows
from suffice.tabular.columns import Summary
from suffice.tabular.entries import Array, Column, Form, Kind, TableError, number_column, quoted
from suffice.tabular.frames import kind_of_dtype, named_by_texts
from suffice.tabular.preparation import RowsPreparation
from suffice.tabular.reading import kind_of, names_of, parquet_reader, refused, text_column
from suffice.tabular.settings import Settings
from suffice.tabular.table import Limits, Reading, Table, frame_of

PATIENCE = "10s"  # with a scheduler that does not answer
TAKEN = (
    "data", "target", "task", "model", "cv", "drop", "keep", "weights", "log_target", "positive", "test",
    "min_class_size", "max_evaluations", "max_seconds", "seed", "no_report", "files", "cluster",
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
    """A row group of a file."""

    path: str
    group: int
    rows: int

    def __getitem__(self, names: list[str]) -> Any:
        """These columns, as a pandas DataFrame: like a partition of a dask.dataframe."""
        with parquet_reader().parquet.ParquetFile(self.path) as opened:
            table = opened.read_row_group(self.group, columns=names, use_threads=False)
        if table.num_rows != self.rows:
            raise TableError(f"{quoted(self.path)} has changed: {table.num_rows} rows where there were {self.rows}")
        return table.to_pandas(ignore_metadata=True)


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

    def _gathered(self, function: Any, names: Sequence[str], *of_parts: Sequence[Any]) -> list[Any]:
        """What a function says of these columns of every part, and of what else is given of it."""
        delayed = import_module("dask").delayed(function, pure=False)
        kinds = {name: self.types[name][0] for name in names}
        found = [delayed(part, kinds, *more) for part, *more in zip(self.parts, *of_parts, strict=True)]
        return list(self.client.gather(self.client.compute(found)))

    def __getitem__(self, name: str) -> Column:
        """A column, here."""
        kind, what = self.types[name]
        if kind in ("other", "date"):
            return Column(name, Form(kind), np.full(len(self), math.nan), what=what)
        return Column(name, Form(kind), np.concatenate([part[name] for part in self._gathered(read_part, [name])]))

    def summaries(self, names: Sequence[str], rows: Array) -> list[Summary]:
        """Of these columns; all rows are used."""
        if dates := [name for name in names if self.types[name][0] == "date"]:
            shown = " ".join(f"--drop {name}" for name in dates)
            raise TableError(f"columns of dates are not read on a cluster: {shown} leaves them out")
        used = [name for name in names if self.types[name][0] != "other"]
        whole, *rest = self._gathered(_summaries, used)
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
        found = self._gathered(read_part, names, [place - end for place, end in zip(places, ends, strict=False)])
        return frame_of({name: np.concatenate([part[name] for part in found]) for name in names})

    def rows_for(self, before: Any, numeric: Sequence[str], levels: Sequence[Summary], rows: Array) -> tuple[Any, Any]:
        """The table as numbers, where it is, and the step that prepares them."""
        if not rows.all():
            raise TableError("rows cannot be left out on a cluster: make another table of them")
        dask, da = import_module("dask"), import_module("dask.array")
        texts = {one.name: np.array(list(one.levels or ())) for one in levels}
        read, kinds = dask.delayed(numbers_of, pure=False), {name: self.types[name][0] for name in numeric}
        token = _digest((self.digest, numeric, sorted(texts)))
        size = len(numeric) + len(texts)
        parts = [
            da.from_delayed(read(part, kinds, texts, dask_key_name=f"table-{token}-{k}"), (count, size), float)
            for k, (part, count) in enumerate(zip(self.parts, self.sizes, strict=True))
        ]
        width = 2 * len(numeric) + sum(len(known) + 1 for known in texts.values())
        X = ClusterRows(da.concatenate(parts), self.client, block=block_rows((len(self), width)))
        return X, RowsPreparation(before, tuple(numeric), texts)


AnyTable = Table | PartedTable


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
        parts += [Part(str(path), k, rows) for k, rows in enumerate(sizes) if rows]
    if not parts:
        raise TableError("the table has no rows")
    if names_of(first.names, Limits())[0] != first.names:
        raise TableError("names of columns must differ from each other on a cluster")
    types = {name: (kind_of(kind), str(kind)[:40]) for name, kind in zip(first.names, first.types, strict=True)}
    return PartedTable(tuple(parts), tuple(part.rows for part in parts), types, _digest(parts), client)


def footers(paths: Iterable[Any]) -> list[tuple[int, str]]:
    """Of files: how many rows each has, and a digest of what it says about its columns and where they are."""
    found = []
    for path in paths:
        try:
            with parquet_reader().parquet.ParquetFile(path) as opened:
                found.append((int(opened.metadata.num_rows), _digest(opened.metadata.to_dict())))
        except Exception as error:
            raise refused(path, error) from error
    return found


def of_frame(frame: Any, client: Any) -> PartedTable:
    """The partitions of a dask.dataframe."""
    names = named_by_texts(frame.columns)
    sizes = tuple(int(size) for size in frame.map_partitions(len).compute())
    if not sum(sizes):
        raise TableError("the table has no rows")
    types = {name: (kind_of_dtype(kind), str(kind)[:40]) for name, kind in zip(names, frame.dtypes, strict=True)}
    return PartedTable(tuple(frame.to_delayed()), sizes, types, _digest(str(frame._name)), client)


def _digest(of: Any) -> str:
    return blake2b(repr(of).encode(), digest_size=16).hexdigest()


# In a worker


def read_part(part: Any, kinds: Mapping[str, Kind], rows: Array | slice = slice(None)) -> dict[str, Array]:
    """These columns of a part, of some rows: numbers with NaN, texts with None where they are missing."""
    found: dict[str, Array] = {}
    frame = part[list(kinds)].iloc[rows]
    lines = np.arange(len(frame))
    for name, kind in kinds.items():
        column = frame[name]
        if kind == "text":
            entries = [None if absent else entry for entry, absent in zip(column, column.isna(), strict=True)]
            found[name] = text_column(name, entries, lines, Form("text")).values
        else:
            values = np.array(column.to_numpy(dtype=np.float64, na_value=math.nan))
            found[name] = number_column(name, values, lines, Form(kind)).values
    return found


def _summaries(part: Any, kinds: Mapping[str, Kind]) -> dict[str, Summary]:
    values = read_part(part, kinds)
    return {name: Summary.of(Column(name, Form(kind), values[name]), values[name]) for name, kind in kinds.items()}


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
