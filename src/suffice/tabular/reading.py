"""Tables from files that nobody vouches for: CSV (plain or gzip) and parquet.

A file is data. Reading one executes nothing, and takes memory in proportion to what `Limits` allow, whatever the bytes
are: a CSV file is read line by line, its text is kept as it is (one string per column and block) until the kinds of the
columns are known, and whatever is wrong with it is a `TableError` that names the line.

- The first line is a header with a name for every column. Delimiter (comma, semicolon, tab, bar) and encoding (UTF-8,
  UTF-16 or UTF-32 with its mark, else Windows-1252) are found out. Every line has as many fields as the header; empty
  lines do not count. A name that comes again gets a number, as pandas gives it: a, a.1, a.2.
- Where lines that begin with # stand before the header, all such lines are comments.
- In parquet files columns have types already, and dates are dates; text stays text.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import math
import os
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from suffice.files import JournalError, open_regular
from suffice.tabular.entries import (
    NUMBER,
    Array,
    Column,
    Form,
    Kind,
    TableError,
    columns_of,
    date_column,
    listed,
    number_column,
    plural,
    quoted,
)
from suffice.tabular.table import DELIMITERS, Limits, Reading, Recipe, Table

BLOCK = 100_000  # entries that are kept as separate strings at any time
SAMPLE = 1 << 16  # characters that the delimiter is found out from
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8-sig",
}  # of encodings, the longer ones first
OLDEST_PYARROW = [14, 0, 1]  # earlier ones may execute code that stands in a file (CVE-2023-47248)


def read(path: str | os.PathLike[str], limits: Limits | None = None, *, like: Reading | None = None) -> Table:
    """The table in a CSV or parquet file, in the manner of another one if that is given (entries that do not fit are
    missing, with a note); anything else, and anything that goes wrong, is a `TableError`."""
    limits = Limits() if limits is None else limits
    forms: Mapping[str, Form] = {} if like is None else like.forms
    with _opened(path) as (file, parquet):
        if parquet:
            return _read_parquet(path, file, limits, forms)
        names, lines, columns, notes, delimiter = _texts(file, limits, forms)
        return Table.of(columns_of(names, columns, lines, delimiter, forms), lines, notes, delimiter)


def entries_of(path: str | os.PathLike[str], names: Sequence[str], like: Reading) -> list[list[str]]:
    """The entries of some columns as they stand in a file that is read in this manner; empty where parquet has none."""
    with _opened(path) as (file, parquet):
        if parquet:
            try:
                whole = parquet_reader().parquet.ParquetFile(file).read(columns=list(names))
                return [["" if one is None else str(one) for one in whole[name].to_pylist()] for name in names]
            except Exception as error:
                raise refused(path, error) from error
        there, _, columns, *_ = _texts(file, Limits(), like.forms)
    return [[one.strip() for text in columns[there.index(name)] for one in text.split("\0")] for name in names]


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[IO[bytes], bool]]:
    """The bytes of a CSV file, unpacked, or those of a parquet file, and whether it is one."""
    with open_table(path) as file:
        start = file.read(8)
        file.seek(0)
        if not start:
            raise TableError(f"{quoted(path)} is empty")
        if start.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
            raise TableError(f"{quoted(path)} is an archive or an Excel file: save the table as CSV")
        if start.startswith(b"\x1f\x8b"):
            with gzip.open(file) as unpacked:
                yield cast(IO[bytes], unpacked), False
        else:
            yield file, start.startswith(b"PAR1")


def read_for(recipe: Recipe, path: str, *, with_target: bool = False) -> Table:
    """A table with all columns that a model needs; `TableError` if some are missing."""
    table = read(path, like=recipe.reading)
    wanted = (*recipe.needs, recipe.target) if with_target else recipe.needs
    if missing := [name for name in wanted if name not in table.origins]:
        lacks = f"{len(missing)} of the {len(wanted)} columns that the model needs, {listed(missing)}"
        raise TableError(f"{quoted(path)} lacks {lacks}: it has {listed(table.origins)}")
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
        raise TableError(f"{quoted(path)} cannot be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
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
    made: dict[str, None] = {}
    notes, known = [], set(names)
    for name in names:
        again = name
        if name in made:
            again = next(f"{name}.{k}" for k in range(1, len(names) + 1) if f"{name}.{k}" not in known)
            known.add(again)
            notes.append(f"the name {quoted(name)} comes again: that column is called {quoted(again)}")
        made[again] = None
    return [*made], notes


# CSV


def _texts(
    file: IO[bytes], limits: Limits, known: Iterable[str]
) -> tuple[list[str], Array, list[list[str]], list[str], str]:
    """Names, lines of the rows, columns as blocks of text, notes and the delimiter; some names may be known."""
    encoding, head = _encoding(file, limits)
    first = list(islice(io.StringIO(head[:SAMPLE], newline=""), 100))
    comments = next((line.lstrip() for line in first if line.strip()), "").startswith("#")
    rows = [line for line in first if not (comments and line.lstrip().startswith("#"))]
    whole = len(head) <= SAMPLE and len(first) < 100
    delimiter = _delimiter(rows, whole, known)
    file.seek(0)
    text = io.TextIOWrapper(file, encoding=encoding, errors="strict", newline="")
    try:
        rows_of = _Rows(text, delimiter, limits, comments)
        names, lines, columns, notes = rows_of.columns()
    finally:
        text.detach()  # or it would close the file, which is not its own
    if encoding == "cp1252":
        notes.append(f"read as {encoding}, which is a guess")
    if rows_of.skipped:
        notes.append(f"{plural(rows_of.skipped, 'comment line')} left out")
    return names, lines, columns, notes, delimiter


def _encoding(file: IO[bytes], limits: Limits) -> tuple[str, str]:
    """The encoding of all bytes, and the first characters."""
    start = file.read(4)
    for name in next(((name,) for mark, name in MARKS.items() if start.startswith(mark)), ("utf-8", "cp1252")):
        decoder, head, size, chunk = codecs.getincrementaldecoder(name)(), "", 0, b" "
        file.seek(0)
        try:
            while chunk:
                chunk = file.read(1 << 20)
                size += len(chunk)
                if size > limits.text:
                    raise TableError(f"the table has more than {limits.text:,} bytes of text")
                text = decoder.decode(chunk, final=not chunk)
                head += text[:SAMPLE] if len(head) < SAMPLE else ""
            return name, head
        except UnicodeError:
            continue
    raise TableError(f"the text is not {name}, nor any other encoding that is known here")


def _delimiter(lines: list[str], whole: bool, known: Iterable[str]) -> str:
    """The delimiter with which the header has most of the known names, then most of the first rows are as wide as the
    header, and the widest of those."""
    best, found = (0, 0.0, 1), ","
    for delimiter in DELIMITERS:
        rows = []
        with contextlib.suppress(csv.Error):
            for row in islice(csv.reader(lines, delimiter=delimiter, skipinitialspace=True), 50):
                rows += [row] if row else []
        if not whole:
            rows = rows[: max(1, len(rows) - 1)]  # the last one may have been cut
        if not rows or len(rows[0]) < 2:
            continue
        names = len({name.strip() for name in rows[0]}.intersection(known))
        score = (names, sum(len(row) == len(rows[0]) for row in rows) / len(rows), len(rows[0]))
        if score > best:
            best, found = score, delimiter
    return found


class _Rows:
    """The rows of a CSV file as columns of text."""

    def __init__(self, file: io.TextIOWrapper, delimiter: str, limits: Limits, comments: bool) -> None:
        self.file, self.delimiter, self.limits, self.comments = file, delimiter, limits, comments
        self.line = self.pending = self.skipped = 0

    def physical_lines(self) -> Iterator[str]:
        """Lines; the characters since the last row are bounded, since a quoted entry may go on over many lines."""
        while line := self.file.readline(self.limits.record):
            self.line += 1
            if self.comments and self.pending == 0 and line.lstrip().startswith("#"):
                self.skipped += 1
                continue
            self.pending += len(line)
            if self.pending >= self.limits.record:
                raise TableError(f"line {self.line}: a row has more than {self.limits.record:,} characters")
            if "\0" in line:
                raise TableError(f"line {self.line} has a NUL character: this is not a text file")
            yield line

    def records(self) -> Iterator[list[str]]:
        """Rows that are not empty."""
        reader = csv.reader(self.physical_lines(), delimiter=self.delimiter, strict=True, skipinitialspace=True)
        try:
            for row in reader:
                self.pending = 0
                if row:
                    yield row
        except csv.Error as error:
            hint = " (is a closing quote missing?)" if re.search("field larger|unexpected end", str(error)) else ""
            raise TableError(f"line {self.line}: {error}{hint}") from error
        except UnicodeError as error:
            raise TableError(f"line {self.line + 1} cannot be decoded: {error}") from error

    def columns(self) -> tuple[list[str], Array, list[list[str]], list[str]]:
        """Names, lines of the rows, for every column one string per block, and notes."""
        records = self.records()
        header = next(records, None)
        if header is None:
            raise TableError("the table is empty")
        names, notes = names_of(header, self.limits)
        most = min(self.limits.rows, self.limits.cells // len(names))
        columns: list[list[str]] = [[] for _ in names]
        lines = array("q")
        every = max(1, BLOCK // len(names))
        while block := list(islice(self._checked(records, len(names), most, lines), every)):
            for texts, entries in zip(columns, zip(*block, strict=True), strict=True):
                texts.append("\0".join(entries))
        if not lines:
            raise TableError("the table has a header and no rows")
        return names, np.array(lines, dtype=np.int64), columns, notes

    def _checked(self, records: Iterator[list[str]], width: int, most: int, lines: array[int]) -> Iterator[list[str]]:
        for row in records:
            if len(row) != width:
                raise TableError(f"line {self.line} has {len(row)} fields, the header has {width}")
            if len(lines) >= most:
                raise TableError(f"the table has more than {most:,} rows of {width} columns")
            if max(map(len, row)) > self.limits.field:
                raise TableError(f"line {self.line}: a field has more than {self.limits.field:,} characters")
            lines.append(self.line)
            yield row


# Parquet


def parquet_reader() -> Any:
    """pyarrow, with its module for parquet files; `TableError` where there is none, or one that is too old."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise TableError("parquet files need pyarrow: pip install 'suffice[parquet]'") from error
    if [int(part) for part in re.findall(r"\d+", pyarrow.__version__)[:3]] < OLDEST_PYARROW:
        raise TableError(f"parquet files need pyarrow 14.0.1 or later, there is {pyarrow.__version__}")
    return pyarrow


def refused(path: str | os.PathLike[str], error: Exception) -> TableError:
    """pyarrow has no single class for files that are not what they should be."""
    reason = (_reason(error).splitlines() or [type(error).__name__])[0]
    return error if isinstance(error, TableError) else TableError(f"{quoted(path)} cannot be read as parquet: {reason}")


def _read_parquet(path: str | os.PathLike[str], file: IO[bytes], limits: Limits, forms: Mapping[str, Form]) -> Table:
    """Text is read in these forms."""
    pyarrow = parquet_reader()
    try:
        with pyarrow.parquet.ParquetFile(file) as opened:
            (names, notes), rows = names_of(opened.schema_arrow.names, limits), opened.metadata.num_rows
            most = min(limits.rows, limits.cells // max(len(names), 1))
            if rows > most:
                raise TableError(f"the table has {rows:,} rows of {len(names)} columns, more than {most:,}")
            batches = list(_batches(opened, rows, max(1, BLOCK // max(len(names), 1))))
            if not names or not batches:
                raise TableError("the table has no rows")
            lines = np.arange(1, rows + 1)
            whole = pyarrow.Table.from_batches(batches)
            columns = [column_of(name, whole.column(i), lines, forms.get(name)) for i, name in enumerate(names)]
    except Exception as error:
        raise refused(path, error) from error
    return Table.of(columns, lines, notes, ",")


def _batches(opened: Any, rows: int, size: int) -> Iterator[Any]:
    """As many rows as the file says that it has."""
    total = 0
    for batch in opened.iter_batches(batch_size=size, use_threads=False):
        total += batch.num_rows
        if total > rows:
            break
        if batch.num_rows:
            yield batch
    if total != rows:
        raise TableError(f"the file says that it has {rows:,} rows, and has {'more' if total > rows else total}")


def kind_of(kind: Any) -> Kind:
    """What a column of this type of Arrow's holds."""
    from pyarrow import types

    inner = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_timestamp(inner) or types.is_date(inner):
        return "date"
    if types.is_boolean(inner):
        return "boolean"
    if types.is_integer(inner) or types.is_floating(inner) or types.is_decimal(inner):
        return "numeric"
    return "text" if types.is_string(inner) or types.is_large_string(inner) else "other"


def column_of(name: str, entries: Any, lines: Array, form: Form | None = None) -> Column:
    """A column of Arrow's; in a form that is known, if it is text or dates."""
    import pyarrow

    kind = kind_of(entries.type)
    if kind == "other":
        return Column(name, Form(kind), np.full(len(lines), math.nan), what=str(entries.type)[:40])
    if pyarrow.types.is_dictionary(entries.type):
        entries = entries.cast(entries.type.value_type)
    if kind == "text":
        return text_column(name, entries.to_pylist(), lines, form)
    if kind == "date":
        whole = pyarrow.timestamp("us", tz=getattr(entries.type, "tz", None))
        return date_column(name, _floats(entries.cast(whole, safe=False).cast(pyarrow.int64())) * 1e-6, form)
    if form is not None and form.kind not in ("numeric", "boolean"):
        raise TableError(f"column {quoted(name)} holds numbers, and was {form.kind} before")
    return number_column(name, _floats(entries), lines, Form(kind))


def text_column(name: str, entries: Iterable[Any], lines: Array, form: Form | None = None) -> Column:
    """A column of texts, None where they are missing, in this form; or as they are, unless a file's would be dates."""
    joined = "\0".join("" if entry is None else str(entry).replace("\0", "") for entry in entries)
    if form is None and (guessed := columns_of([name], [[joined]], lines, ",", {})[0]).form.kind == "date":
        return guessed
    return columns_of([name], [[joined]], lines, ",", {name: form or Form("text")})[0]


def _floats(entries: Any) -> Array:
    return np.array(entries.cast("float64", safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
