"""Tables from files that nobody vouches for: CSV (plain or gzip) and parquet.

A file is data. Reading one executes nothing, and takes memory in proportion to what `Limits` allow, whatever the bytes
are: a CSV file is read line by line, its text is kept as it is (one string per column and block) until the kinds of the
columns are known, and whatever is wrong with it is a `TableError` that names the line.

A name that comes again gets a number, as pandas gives it: a, a.1, a.2.

`Table.reading` says how a file was read; `read(another, like=reading)` reads another one in the same way.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

from suffice.files import JournalError, open_regular
from suffice.tabular.entries import Array, Column, listed, notes_of, parts_of, quoted
from suffice.tabular.notation import NUMBER, Form, from_plain
from suffice.tabular.summaries import Summary

DELIMITERS = ",;\t|"
RECIPE = "table.json"
BLOCK = 100_000  # entries that are kept as separate strings at any time


class TableError(ValueError):
    """A file is not a table that can be used; the message says why, and where."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a table may have at most. Memory is a small multiple of `text` plus 8 bytes per cell."""

    text: int = 1 << 30  # bytes of a CSV file, after decompression
    rows: int = 10_000_000
    columns: int = 10_000
    cells: int = 100_000_000
    record: int = 1 << 22  # characters of one row
    field: int = 131_072  # characters of one entry


@dataclass(frozen=True)
class Reading:
    """How a file was read: its delimiter, and the form of the entries of every column."""

    delimiter: str
    forms: Mapping[str, Form]

    def __post_init__(self) -> None:
        if self.delimiter not in list(DELIMITERS):
            raise ValueError(f"the delimiter cannot be {self.delimiter!r}")

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Any) -> Reading:
        """A reading from a file; ValueError if it holds anything else."""
        return cast(Reading, from_plain(cls, plain))


UNREAD = Reading(",", {})


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length; `lines[i]` is where row i stands in its file (parquet: i + 1). A column of dates is
    given as its parts, whose `origin` it is."""

    columns: tuple[Column, ...]
    lines: Array
    notes: tuple[str, ...] = ()
    reading: Reading = UNREAD
    digest: str = ""  # that of the file's bytes tells tables apart
    joins_levels: bool = True  # whether rare ones may share a column

    @classmethod
    def of(cls, columns: Sequence[Column], lines: Array, notes: Iterable[str], delimiter: str) -> Table:
        """A table of the columns that stand in a file."""
        taken = {column.name for column in columns}
        split = [parts_of(column, taken) if column.kind == "date" else [column] for column in columns]
        forms = {column.name: column.form for column in columns}
        made = tuple(part for parts in split for part in parts)
        return cls(made, lines, (*notes, *notes_of(columns)), Reading(delimiter, forms))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def origins(self) -> tuple[str, ...]:
        """The names of columns as the file has them."""
        return tuple(dict.fromkeys(column.origin or column.name for column in self.columns))

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def frame(self, names: Iterable[str] | None = None, rows: Array | slice = slice(None)) -> Any:
        """These columns, or all that can be used, as a pandas DataFrame; of these rows."""
        wanted = [c.name for c in self.columns if c.kind != "other"] if names is None else list(names)
        frame = frame_of({name: self[name].values[rows] for name in wanted})
        return frame if wanted else frame.reindex(range(len(self.lines[rows])))

    def summaries(self, names: Sequence[str], rows: Array) -> list[Summary]:
        """Of these columns, for the rows that are used."""
        columns = [self[name] for name in names]
        return [Summary.of(one.name, one.kind, one.values[rows], one.origin, one.what) for one in columns]

    def folds(self, splitter: Any, cv: int, seed: int, notes: list[str]) -> Any:
        """The splitter of a search."""
        return splitter(cv, shuffle=True, random_state=seed)

    def rows_for(self, before: Any, numeric: Sequence[str], levels: Sequence[Summary], rows: Array) -> tuple[Any, Any]:
        """The rows that are used, with the columns that a step before the model prepares, and that step."""
        names = [name for _, _, columns in before.transformers for name in columns]
        return self.frame(names, rows), before


def frame_of(columns: Mapping[str, Array]) -> Any:
    """A pandas DataFrame, which has NaN for missing text, too."""
    import pandas

    texts = {name: values.copy() for name, values in columns.items() if values.dtype == object}
    for values in texts.values():
        values[[value is None for value in values]] = math.nan
    return pandas.DataFrame({**columns, **texts})


def read(path: str | os.PathLike[str], limits: Limits | None = None, *, like: Reading | None = None) -> Table:
    """The table in a CSV or parquet file, in the manner of another one if that is given (entries that do not fit are
    missing, with a note); anything else, and anything that goes wrong, is a `TableError`."""
    from suffice.tabular.csv_file import read_csv

    limits = Limits() if limits is None else limits
    with open_table(path) as file:
        start = file.read(8)
        file.seek(0)
        if not start:
            raise TableError(f"{quoted(path)} is empty")
        if start.startswith(b"PAR1"):
            from suffice.tabular.parquet import read_parquet

            return read_parquet(path, file, limits, {} if like is None else like.forms)
        if start.startswith(b"PK\x03\x04") or start.startswith(b"\xd0\xcf\x11\xe0"):
            raise TableError(f"{quoted(path)} is an archive or an Excel file: save the table as CSV")
        if start.startswith(b"\x1f\x8b"):
            with gzip.open(file) as unpacked:
                return read_csv(cast(IO[bytes], unpacked), limits, like)
        return read_csv(file, limits, like)


@dataclass(frozen=True)
class Recipe:
    """How tables are read for a model, and which columns it needs."""

    target: str
    needs: tuple[str, ...]
    categorical: tuple[str, ...]
    reading: Reading

    def needed(self) -> Recipe:
        """With the forms of columns that are needed, and no others."""
        forms = {name: self.reading.forms[name] for name in (*self.needs, self.target)}
        return replace(self, reading=Reading(self.reading.delimiter, forms))

    def read(self, path: str, *, with_target: bool = False) -> Table:
        """A table with all columns that are needed; `TableError` if some are missing."""
        table = read(path, like=self.reading)
        wanted = (*self.needs, self.target) if with_target else self.needs
        missing = [name for name in wanted if name not in table.origins]
        if missing:
            raise TableError(
                f"{quoted(path)} lacks {len(missing)} of the {len(wanted)} columns that the model needs, "
                f"{listed(missing)}: it has {listed(table.origins)}"
            )
        return table


@contextlib.contextmanager
def open_table(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """The bytes of a table, whose path is the user's and may be a link; whatever cannot be read is a `TableError`."""
    try:
        with os.fdopen(open_regular(Path(path), links=True), "rb") as file:
            yield file
    except TableError:
        raise
    except JournalError as error:
        raise TableError(f"{quoted(path)} is not a regular file") from error
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise TableError(f"{quoted(path)} cannot be read: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """Why a file cannot be read, in a few words."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def names_of(header: list[str], limits: Limits) -> tuple[list[str], list[str]]:
    """The names of the columns, made different from each other, and notes on it."""
    if len(header) > limits.columns:
        raise TableError(f"the table has {len(header):,} columns, more than {limits.columns:,}")
    names = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(header)]  # as pandas calls them
    if long := [name for name in names if len(name) > 1000]:
        raise TableError(f"the column name {quoted(long[0])} has {len(long[0]):,} characters, more than 1,000")
    if all(NUMBER.fullmatch(name) for name in names):
        raise TableError("the first line holds numbers only: it has to be a header with the names of the columns")
    made: list[str] = []
    notes, known = [], set(names)
    for name in names:
        again = name
        while again in made:
            again = next(f"{name}.{k}" for k in range(1, len(names) + 1) if f"{name}.{k}" not in known)
            known.add(again)
        if again != name:
            notes.append(f"the name {quoted(name)} comes again: that column is called {quoted(again)}")
        made.append(again)
    return made, notes
