"""Tables in CSV files.

- The first line is a header with a name for every column. Delimiter (comma, semicolon, tab, bar) and encoding (UTF-8,
  UTF-16 with its mark, else Windows-1252) are found out. Every line has as many fields as the header; empty lines do
  not count.
- Lines that begin with # before the header are comments, and then so are all such lines; without any there, a line that
  begins with # is one if it has not as many fields as the header. A header may be a comment line itself, as NumPy
  writes it.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
from array import array
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import IO

import numpy as np

from suffice.tabular.entries import columns_of
from suffice.tabular.notation import NUMBER, Form
from suffice.tabular.table import BLOCK, DELIMITERS, Limits, Reading, Table, TableError, names_of

MARKS = (  # of encodings, the longer ones first
    (codecs.BOM_UTF32_LE, ("utf-32",)),
    (codecs.BOM_UTF32_BE, ("utf-32",)),
    (codecs.BOM_UTF16_LE, ("utf-16",)),
    (codecs.BOM_UTF16_BE, ("utf-16",)),
    (codecs.BOM_UTF8, ("utf-8-sig",)),
)

SAMPLE = 1 << 16  # characters that the delimiter is found out from


def read_csv(file: IO[bytes], limits: Limits, like: Reading | None) -> Table:
    """The table in a CSV file, in the manner of another one if that is given."""
    encoding, head = _encoding(file, limits)
    first = list(islice(io.StringIO(head[:SAMPLE], newline=""), 100))
    comments, header = _comments(first)
    shown = [_uncommented(line) if i == header else line for i, line in enumerate(first, start=1)]
    whole = len(head) <= SAMPLE and len(first) < 100
    rows = [line for line in shown if not (comments and line.lstrip().startswith("#"))]
    delimiter = _delimiter(rows, whole, () if like is None else tuple(like.forms))
    file.seek(0)
    text = io.TextIOWrapper(file, encoding=encoding, errors="strict", newline="")
    try:
        return _Rows(text, delimiter, limits, comments, header).table(encoding, {} if like is None else like.forms)
    finally:
        text.detach()  # or it would close the file, which is not its own


def _comments(lines: list[str]) -> tuple[bool, int]:
    """Whether comments stand before the header, and which line is the header if it is one of them, else 0."""
    leading, after = 0, ""
    for number, line in enumerate(lines, start=1):
        if line.lstrip().startswith("#"):
            leading = number
        elif line.strip():
            after = line
            break
    if not leading or not after:
        return False, 0
    last = lines[leading - 1]
    for delimiter in DELIMITERS:
        names, entries = ([field.strip() for field in line.split(delimiter)] for line in (_uncommented(last), after))
        if len(names) != len(entries) or len(names) < 2:
            continue
        numbers = any(NUMBER.fullmatch(entry) for entry in entries)
        one_word = last.lstrip()[1:2].isalnum() and leading == 1
        if not any(NUMBER.fullmatch(name) for name in names) and (numbers or one_word):
            return True, leading
    return True, 0


def _uncommented(line: str) -> str:
    return line.lstrip().lstrip("#").lstrip(" ")


def _encoding(file: IO[bytes], limits: Limits) -> tuple[str, str]:
    """The encoding of all bytes, and the first characters."""
    start = file.read(4)
    for name in next((names for mark, names in MARKS if start.startswith(mark)), ("utf-8", "cp1252")):
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


def _delimiter(lines: list[str], whole: bool, known: tuple[str, ...]) -> str:
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

    def __init__(self, file: io.TextIOWrapper, delimiter: str, limits: Limits, comments: bool, header: int) -> None:
        self.file, self.delimiter, self.limits = file, delimiter, limits
        self.comments, self.header = comments, header  # whether # begins a comment, and the header's line if it is one
        self.line = self.pending = self.skipped = self.width = 0

    def physical_lines(self) -> Iterator[str]:
        """Lines; the characters since the last row are bounded, since a quoted entry may go on over many lines."""
        while line := self.file.readline(self.limits.record):
            self.line += 1
            if self.line == self.header:
                line = _uncommented(line)
            elif self.pending == 0 and line.lstrip().startswith("#") and self._is_comment(line):
                self.skipped += 1
                continue
            self.pending += len(line)
            if self.pending >= self.limits.record:
                raise TableError(f"line {self.line}: a row has more than {self.limits.record:,} characters")
            if "\0" in line:
                raise TableError(f"line {self.line} has a NUL character: this is not a text file")
            yield line

    def _is_comment(self, line: str) -> bool:
        if self.comments:
            return True
        if not self.width or len(line) >= self.limits.record:
            return False
        with contextlib.suppress(csv.Error):
            row = next(csv.reader([line], delimiter=self.delimiter, strict=True, skipinitialspace=True), [])
            return '"' not in line and len(row) != self.width
        return True

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

    def table(self, encoding: str, forms: Mapping[str, Form]) -> Table:
        records = self.records()
        header = next(records, None)
        if header is None:
            raise TableError("the table is empty")
        names, notes = names_of(header, self.limits)
        self.width = len(names)
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
        made = columns_of(names, columns, where, self.delimiter, forms)
        if encoding == "cp1252":
            notes.append(f"read as {encoding}, which is a guess")
        if self.header:
            notes.append(f"the header is line {self.header}, which begins with #")
        if self.skipped:
            notes.append(f"{self.skipped:,} comment line{'s' if self.skipped > 1 else ''} left out")
        return Table.of(made, where, notes, self.delimiter)


def _csv_reason(error: csv.Error) -> str:
    text = str(error)
    if "field larger" in text or "unexpected end" in text:
        return f"{text} (is a closing quote missing?)"
    return text


def _keep(block: list[list[str]], columns: list[list[str]]) -> None:
    for texts, entries in zip(columns, zip(*block, strict=True), strict=True):
        texts.append("\0".join(entries))
