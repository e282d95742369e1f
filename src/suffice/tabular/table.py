"""A table in memory, what it may have at most, and how it was read.

`Table.reading` says how a file was read; `read(another, like=reading)` reads another one in the same way. A `Recipe`
says besides which columns a model needs: it is what stands in the folder of a run, and what predictions begin with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.tabular.columns import Summary
from suffice.tabular.entries import Array, Column, Form, notes_of, parts_of

DELIMITERS = ",;\t|"
RECIPE = "table.json"


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

    def of(self, names: Iterable[str]) -> Reading:
        """With the forms of these columns, and no others."""
        return Reading(self.delimiter, {name: self.forms[name] for name in names})


@dataclass(frozen=True)
class Recipe:
    """How tables are read for a model, and which columns it needs."""

    target: str
    needs: tuple[str, ...]
    categorical: tuple[str, ...]
    reading: Reading


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length; `lines[i]` is where row i stands in its file (parquet: i + 1). A column of dates is
    given as its parts, whose `origin` it is."""

    columns: tuple[Column, ...]
    lines: Array
    notes: tuple[str, ...] = ()
    reading: Reading = Reading(",", {})
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
        return [Summary.of(one, one.values[rows]) for one in map(self.__getitem__, names)]

    def rows_for(self, before: Any, numeric: Sequence[str], levels: Sequence[Summary], rows: Array) -> tuple[Any, Any]:
        """The rows that are used, with the columns that a step before the model prepares, and that step."""
        return self.frame([name for _, _, columns in before.transformers for name in columns], rows), before


def frame_of(columns: Mapping[str, Array]) -> Any:
    """A pandas DataFrame, which has NaN for missing text, too."""
    import pandas

    texts = {name: values.copy() for name, values in columns.items() if values.dtype == object}
    for values in texts.values():
        values[[value is None for value in values]] = math.nan
    return pandas.DataFrame({**columns, **texts})
