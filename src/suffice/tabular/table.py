"""Tables from files that nobody vouches for: CSV (plain or gzip) and parquet.

A file is data. Reading one executes nothing, and takes memory in proportion to what `Limits` allow, whatever the bytes
are: a CSV file is read line by line, its text is kept as it is (one string per column and block) until the kinds of the
columns are known, and whatever is wrong with it is a `TableError` that names the line.

- The first line is a header with a name for every column. Delimiter (comma, semicolon, tab, bar) and encoding (UTF-8,
  UTF-16 with its mark, else Windows-1252) are found out. Every line has as many fields as the header; empty lines do
  not count.
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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from suffice.files import JournalError, open_regular
from suffice.tabular.entries import MISSING, NUMBER, Array, Column, column_of, finite

DELIMITERS = ",;\t|"
MARKS = (  # of encodings, the longer ones first
    (codecs.BOM_UTF32_LE, ("utf-32",)),
    (codecs.BOM_UTF32_BE, ("utf-32",)),
    (codecs.BOM_UTF16_LE, ("utf-16",)),
    (codecs.BOM_UTF16_BE, ("utf-16",)),
    (codecs.BOM_UTF8, ("utf-8-sig",)),
)

SAMPLE = 1 << 16  # characters that the delimiter is found out from
BLOCK = 100_000  # entries that are kept as separate strings at any time

OLDEST_PYARROW = [14, 0, 1]  # earlier ones may execute code that stands in a file (CVE-2023-47248)


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


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length; `lines[i]` is where row i stands in its file (parquet: i + 1)."""

    columns: tuple[Column, ...]
    lines: Array
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def frame(self, names: Iterable[str] | None = None) -> Any:
        """These columns, or all that can be used, as a pandas DataFrame."""
        import pandas

        wanted = [c.name for c in self.columns if c.kind != "other"] if names is None else list(names)
        return pandas.DataFrame({name: _series(self[name]) for name in wanted}, index=range(len(self)))


def _series(column: Column) -> Any:
    if column.values.dtype != object:
        return column.values
    values = column.values.copy()
    values[column.missing] = math.nan  # what pandas itself has for missing text
    return values


def read(path: str | os.PathLike[str], limits: Limits | None = None) -> Table:
    """The table in a CSV or parquet file; anything else, and anything that goes wrong, is a `TableError`."""
    limits = Limits() if limits is None else limits
    with contextlib.ExitStack() as stack:
        try:
            file: IO[bytes] = stack.enter_context(open_table(path))
            start = file.read(8)
            file.seek(0)
        except (OSError, ValueError) as error:
            if isinstance(error, TableError):
                raise
            raise TableError(f"{quoted(path)} cannot be read: {_reason(error)}") from error
        if not start:
            raise TableError(f"{quoted(path)} is empty")
        if start.startswith(b"PAR1"):
            return _read_parquet(path, file, limits)
        if start.startswith(b"PK\x03\x04") or start.startswith(b"\xd0\xcf\x11\xe0"):
            raise TableError(f"{quoted(path)} is an archive or an Excel file: save the table as CSV")
        if start.startswith(b"\x1f\x8b"):
            file = cast(IO[bytes], stack.enter_context(gzip.open(file)))
        try:
            return _read_csv(file, limits)
        except (OSError, EOFError, zlib.error) as error:
            raise TableError(f"{quoted(path)} cannot be read: {_reason(error)}") from error


def open_table(path: str | os.PathLike[str]) -> IO[bytes]:
    """The bytes of a table; its path is the user's, and may be a link."""
    try:
        return os.fdopen(open_regular(Path(path), links=True), "rb")
    except JournalError as error:
        raise TableError(f"{quoted(path)} is not a regular file") from error


def quoted(text: Any, most: int = 60) -> str:
    """Text from a file as it may be shown: one line, no control characters, not too long."""
    shown = repr(str(text))
    return shown if len(shown) <= most else f"{shown[: most - 4]}...{shown[0]}"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


# CSV


def _read_csv(file: IO[bytes], limits: Limits) -> Table:
    encoding, head = _encoding(file, limits)
    delimiter = _delimiter(head)
    file.seek(0)
    text = io.TextIOWrapper(file, encoding=encoding, errors="strict", newline="")
    try:
        return _Rows(text, delimiter, limits).table(encoding)
    finally:
        text.detach()  # or it would close the file, which is not its own


def _encoding(file: IO[bytes], limits: Limits) -> tuple[str, str]:
    """The encoding of all bytes, and the first characters."""
    chunk = file.read(1 << 20)
    candidates = next((names for mark, names in MARKS if chunk.startswith(mark)), ("utf-8", "cp1252"))
    left = {name: codecs.getincrementaldecoder(name)() for name in candidates}
    heads, size = dict.fromkeys(candidates, ""), 0
    while chunk:
        size += len(chunk)
        if size > limits.text:
            raise TableError(f"the table has more than {limits.text:,} bytes of text")
        _decode(left, heads, chunk, final=False)
        chunk = file.read(1 << 20)
    _decode(left, heads, b"", final=True)
    name = next(name for name in candidates if name in left)
    return name, heads[name]


def _decode(left: dict[str, Any], heads: dict[str, str], chunk: bytes, *, final: bool) -> None:
    for name, decoder in list(left.items()):
        if name == "cp1252" and "utf-8" in left and chunk.isascii() and not final:
            if len(heads[name]) < SAMPLE:
                heads[name] += chunk[:SAMPLE].decode("ascii")
            continue
        try:
            text = decoder.decode(chunk, final)
        except UnicodeError as error:
            del left[name]
            if not left:
                raise TableError(f"the text is not {name}, nor any other encoding that is known here") from error
            continue
        if len(heads[name]) < SAMPLE:
            heads[name] += text[:SAMPLE]


def _delimiter(head: str) -> str:
    """The delimiter with which most of the first rows are as wide as the header, and the widest of those."""
    lines = head[:SAMPLE].splitlines(keepends=True)[:100]
    best, found = (0.0, 1), ","
    for delimiter in DELIMITERS:
        rows = []
        with contextlib.suppress(csv.Error):
            for row in islice(csv.reader(lines, delimiter=delimiter, skipinitialspace=True), 50):
                rows += [row] if row else []
        if len(head) > SAMPLE or len(lines) == 100:
            rows = rows[: max(1, len(rows) - 1)]  # the last one may have been cut
        if not rows or len(rows[0]) < 2:
            continue
        score = (sum(len(row) == len(rows[0]) for row in rows) / len(rows), len(rows[0]))
        if score > best:
            best, found = score, delimiter
    return found


class _Rows:
    """The rows of a CSV file as columns of text."""

    def __init__(self, file: io.TextIOWrapper, delimiter: str, limits: Limits) -> None:
        self.file, self.delimiter, self.limits = file, delimiter, limits
        self.line = self.pending = 0

    def physical_lines(self) -> Iterator[str]:
        """Lines; the characters since the last row are bounded, since a quoted entry may go on over many lines."""
        while line := self.file.readline(self.limits.record):
            self.line += 1
            self.pending += len(line)
            if self.pending >= self.limits.record:
                raise TableError(f"line {self.line}: a row has more than {self.limits.record:,} characters")
            if "\0" in line:
                raise TableError(f"line {self.line} has a NUL character: this is not a text file")
            yield line

    def records(self) -> Iterator[list[str]]:
        """Rows that are not empty."""
        reader = csv.reader(self.physical_lines(), delimiter=self.delimiter, strict=True, skipinitialspace=True)
        while True:
            self.pending = 0
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise TableError(f"line {self.line}: {_csv_reason(error)}") from error
            except UnicodeError as error:
                raise TableError(f"line {self.line + 1} cannot be decoded: {error}") from error
            if row is None:
                return
            if row:
                yield row

    def table(self, encoding: str) -> Table:
        records = self.records()
        header = next(records, None)
        if header is None:
            raise TableError("the table is empty")
        names = _names(header, self.limits)
        most = min(self.limits.rows, self.limits.cells // len(names))
        columns: list[list[str]] = [[] for _ in names]  # per column, one string per block
        lines, block = array("q"), []
        every = max(1, BLOCK // len(names))
        for row in records:
            if len(row) != len(names):
                raise TableError(f"line {self.line} has {len(row)} fields, the header has {len(names)}")
            if len(lines) >= most:
                raise TableError(f"the table has more than {most:,} rows of {len(names)} columns")
            if max(map(len, row)) > self.limits.field:
                raise TableError(f"line {self.line}: a field has more than {self.limits.field:,} characters")
            lines.append(self.line)
            block.append(row)
            if len(block) >= every:
                _keep(block, columns)
                block = []
        if block:
            _keep(block, columns)
        if not lines:
            raise TableError("the table has a header and no rows")
        where = np.array(lines, dtype=np.int64)
        made = []
        for name, blocks in zip(names, columns, strict=True):
            made.append(column_of(name, blocks, where, self.delimiter != ","))
            blocks.clear()
        notes = [f"read as {encoding}, which is a guess"] if encoding == "cp1252" else []
        return Table(tuple(made), where, (*notes, *_notes(made)))


def _csv_reason(error: csv.Error) -> str:
    text = str(error)
    if "field larger" in text or "unexpected end" in text:
        return f"{text} (is a closing quote missing?)"
    return text


def _keep(block: list[list[str]], columns: list[list[str]]) -> None:
    for texts, entries in zip(columns, zip(*block, strict=True), strict=True):
        texts.append("\0".join(entries))


def _names(header: list[str], limits: Limits) -> list[str]:
    if len(header) > limits.columns:
        raise TableError(f"the table has {len(header):,} columns, more than {limits.columns:,}")
    names = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(header)]  # as pandas calls them
    if long := [name for name in names if len(name) > 1000]:
        raise TableError(f"the column name {quoted(long[0])} has {len(long[0]):,} characters, more than 1,000")
    if all(NUMBER.fullmatch(name) for name in names):
        raise TableError("the first line holds numbers only: it has to be a header with the names of the columns")
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if name in first:
            raise TableError(f"columns {first[name] + 1} and {i + 1} have the same name, {quoted(name)}")
        first[name] = i
    return names


def _notes(columns: list[Column]) -> Iterator[str]:
    if commas := [quoted(column.name) for column in columns if column.comma]:
        rest = f" and {len(commas) - 3} more" if len(commas) > 3 else ""
        yield f"column{'s' if len(commas) > 1 else ''} {', '.join(commas[:3])}{rest}: commas are decimal points"
    for column in columns:
        name, rows = quoted(column.name), len(column.values)
        for stray, what in ((column.stray, "not numbers"), (column.infinite, "infinite or beyond 1e100")):
            if stray is not None:
                entries = f"{stray.count:,} of {rows:,} entries {'is' if stray.count == 1 else 'are'} {what}"
                where = f"line {stray.line} has {quoted(stray.entry, 30)}"
                yield f"column {name}: {entries} ({where}); treated as missing"


# Parquet


def _read_parquet(path: str | os.PathLike[str], file: IO[bytes], limits: Limits) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TableError("parquet files need pyarrow: pip install 'suffice[parquet]'") from error
    if [int(part) for part in re.findall(r"\d+", pyarrow.__version__)[:3]] < OLDEST_PYARROW:
        raise TableError(f"parquet files need pyarrow 14.0.1 or later, there is {pyarrow.__version__}")
    try:
        with pyarrow.parquet.ParquetFile(file) as opened:
            names, rows = _names(opened.schema_arrow.names, limits), opened.metadata.num_rows
            most = min(limits.rows, limits.cells // max(len(names), 1))
            if rows > most:
                raise TableError(f"the table has {rows:,} rows of {len(names)} columns, more than {most:,}")
            batches = list(_batches(opened, rows, max(1, BLOCK // max(len(names), 1))))
            if not names or not batches:
                raise TableError("the table has no rows")
            lines = np.arange(1, rows + 1)
            columns = [
                _from_arrow(name, kind, [batch.column(i) for batch in batches], lines)
                for i, (name, kind) in enumerate(zip(names, opened.schema_arrow.types, strict=True))
            ]
    except TableError:
        raise
    except Exception as error:  # pyarrow has no single class for files that are not what they should be
        reason = (_reason(error).splitlines() or [type(error).__name__])[0]
        raise TableError(f"{quoted(path)} cannot be read as parquet: {reason}") from error
    return Table(tuple(columns), lines, tuple(_notes(columns)))


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


def _from_arrow(name: str, kind: Any, parts: list[Any], lines: Array) -> Column:
    from pyarrow import types

    inner = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_boolean(inner) or types.is_integer(inner) or types.is_floating(inner) or types.is_decimal(inner):
        entries = (entry for part in parts for entry in part.to_pylist())
        values = np.fromiter((math.nan if entry is None else float(entry) for entry in entries), float, len(lines))
        return Column(name, "boolean" if types.is_boolean(inner) else "numeric", values, None, finite(values, lines))
    if types.is_string(inner) or types.is_large_string(inner):
        texts, known = np.empty(len(lines), dtype=object), dict[str, str]()
        for i, entry in enumerate(entry for part in parts for entry in part.to_pylist()):
            texts[i] = None if entry is None or entry.strip() in MISSING else known.setdefault(entry, entry)
        return Column(name, "text", texts)
    return Column(name, "other", np.full(len(lines), math.nan), what=str(kind)[:40])
