"""What the entries of a column are: numbers, true and false, dates, or text.

- Spaces around an entry do not count. It is missing if it is empty, one of the words that pandas takes for missing
  (`MISSING`), or one of those that people use besides (`BLANKS`: a dash, a question mark, a point, errors of
  spreadsheets). In a column of text only some of the latter are, and a dash is not if there is a plus sign, too.
- A column is *numeric* if its entries are numbers, *date* if they are dates, *boolean* if they are true or false (1 and
  0), else *text*. A column that is numeric but for at most a tenth of its entries is numeric, and these strays are
  missing. Of several ways to write numbers (`suffice.tabular.notation`) the one with the fewest strays is taken.
- Where 1,234 may be a decimal fraction or thousands, other columns of the file decide if they are clear; else it is
  what is usual: thousands in a file with commas between fields and after a currency, a decimal comma otherwise. 1.234
  is a decimal fraction, unless other columns have decimal commas and none has decimal points.
- Infinite entries, and those beyond 1e100, are missing, too.

Whatever is treated in such a way is reported in the notes. The `Form` of every column says how it was read, so that
another file can be read in the same way, whatever is in it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.tabular import dates
from suffice.tabular.notation import (
    PLAIN,
    Form,
    Kind,
    Reader,
    ambiguous,
    candidates,
    plain_number,
    reader,
    sets_thousands_apart,
)

MISSING = {
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
}  # fmt: skip
IN_TEXT = {"?", "??", "-", "--", "\u2013", "\u2014", "n.a.", "N.A."}
BLANKS = IN_TEXT | {".", "..", "...", "na", "#DIV/0!", "#NULL!", "#REF!", "#VALUE!", "#NUM!", "#NAME?"}
NOTHING = MISSING | BLANKS
BOOLEANS = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}

STRAYS = 0.1  # the share of entries that a numeric column may have besides numbers
LARGEST = 1e100  # squares of sums of such numbers are still finite
SAMPLE = 200  # entries that are not plain numbers, from which other ways to write them are guessed

Array = NDArray[Any]


@dataclass(frozen=True)
class Stray:
    """Entries that do not belong in their column: how many, and the first."""

    count: int
    line: int
    entry: str


@dataclass(frozen=True, eq=False)
class Column:
    """Numeric and boolean: floats, NaN where missing. Text: str, None where missing. Other: of no use here."""

    name: str
    kind: Kind
    values: Array
    stray: Stray | None = None
    infinite: Stray | None = None
    blank: Stray | None = None  # entries that are missing though not empty, as a dash
    form: Form = PLAIN
    origin: str = ""  # the column of the file that this one is a part of
    what: str = ""  # the type of an `other` column

    @property
    def missing(self) -> Array:
        if self.values.dtype == object:
            return np.array([value is None for value in self.values], dtype=bool)
        return np.isnan(self.values)


def finite(values: Array, lines: Array) -> Stray | None:
    """Take out what is infinite or nearly so, and say so."""
    with np.errstate(invalid="ignore"):
        huge = np.flatnonzero(np.abs(values) > LARGEST)
    found = Stray(len(huge), int(lines[huge[0]]), f"{values[huge[0]]:g}") if len(huge) else None
    values[huge] = math.nan
    return found


@dataclass(frozen=True)
class _Reading:
    """A column as read, and what it tells of the file: its decimal mark, or another form that it may have."""

    column: Column
    mark: str = ""
    instead: Form | None = None


def columns_of(
    names: Sequence[str], texts: list[list[str]], lines: Array, delimiter: str, forms: Mapping[str, Form]
) -> list[Column]:
    """The columns of these texts, each given as blocks, which are taken away: in the forms that are known for some, in
    those that they turn out to have for the others."""
    found: list[_Reading] = []
    for name, blocks in zip(names, texts, strict=True):
        if name in forms:
            found.append(_Reading(_as(name, blocks, lines, forms[name])))
        else:
            found.append(_read(name, blocks, lines, delimiter))
        if found[-1].instead is None:
            blocks.clear()
    marks = {reading.mark for reading in found} - {""}
    made = []
    for reading, blocks in zip(found, texts, strict=True):
        column, other = reading.column, reading.instead
        if other is not None and len(marks) == 1 and other.decimal in marks:
            column = _as(column.name, blocks, lines, other)
        blocks.clear()
        made.append(column)
    return made


def _read(name: str, blocks: list[str], lines: Array, delimiter: str) -> _Reading:
    """The column of these texts, whatever kind it is."""
    plain = _Numbers(lines, plain_number, plainly=True)
    plain.take(blocks)
    if plain.fits and not plain.strays:
        column = plain.column(name, PLAIN)
        pointed = _pointed(blocks)
        if pointed is None:
            return _Reading(column)
        either = Form(decimal=",", grouped=True)
        return _Reading(column, "", either) if pointed else _Reading(column, ".")
    best, runner_up = (plain, PLAIN) if plain.fits else None, None
    for form in candidates(plain.sample):
        tried = _Numbers(lines, reader(form))
        tried.take(blocks)
        if tried.fits and (best is None or tried.strays < best[0].strays):
            best, runner_up = (tried, form), None
        elif tried.fits and best is not None and best[0].strays == tried.strays and best[1].kind == form.kind:
            runner_up = form
    if best is None:
        return _Reading(_words(name, blocks, lines))
    form = _described(best[1], blocks)
    if form.kind == "date" or form.clock or form == PLAIN:
        return _Reading(best[0].column(name, form))
    if runner_up is None or not any(map(ambiguous, _entries(blocks))):
        return _Reading(best[0].column(name, form), form.decimal if _marked(blocks) else "")
    comma = any("," in entry for entry in _entries(blocks))
    thousands = bool(form.currency) or (comma and delimiter == ",")
    decimal = ("." if comma else ",") if thousands else ("," if comma else ".")
    usual, other = (
        _described(replace(form, decimal=mark), blocks) for mark in (decimal, "." if decimal == "," else ",")
    )
    return _Reading(_as(name, blocks, lines, usual), "", other)


def _pointed(blocks: list[str]) -> bool | None:
    """None: no plain number here has a point; True: all points may set off thousands; False: some cannot."""
    found = None
    for block in blocks:
        if "." not in block:
            continue
        for entry in block.split("\0"):
            if "." in entry and entry.strip() not in NOTHING:
                if not ambiguous(entry):
                    return False
                found = True
    return found


def _marked(blocks: list[str]) -> bool:
    return any("." in block or "," in block for block in blocks)


def _described(form: Form, blocks: list[str]) -> Form:
    """The form, with what its notes tell of these entries."""
    entries = (entry for entry in _entries(blocks) if entry not in NOTHING)
    if form.kind == "date":
        return replace(form, clock=any((dates.seconds(entry) or 0.0) % dates.DAY for entry in entries))
    if form.clock or form == PLAIN:
        return form
    inner = (form.currency, "%")
    grouped = False
    for entry in entries:
        for mark in inner:
            entry = entry.replace(mark, "") if mark else entry
        head = entry.split(form.decimal)[0]
        grouped = grouped or sets_thousands_apart(head.strip())
    return replace(form, grouped=grouped)


def _as(name: str, blocks: list[str], lines: Array, form: Form) -> Column:
    """The column of these texts in a form that is known: what does not fit is missing."""
    if form.kind == "text":
        return _words(name, blocks, lines, kind="text")
    if form.kind == "boolean":
        return _words(name, blocks, lines, kind="boolean")
    numbers = _Numbers(lines, reader(form), strays_allowed=1.0, plainly=form == PLAIN)
    numbers.take(blocks)
    return numbers.column(name, form)


def _words(name: str, blocks: list[str], lines: Array, kind: str = "") -> Column:
    """True and false, or text."""
    booleans = np.full(len(lines), math.nan)
    strays, first, stray = 0, 0, ""
    for i, entry in enumerate(_entries(blocks)):
        if entry in NOTHING:
            continue
        if entry not in BOOLEANS:
            if not kind:
                break
            strays, first, stray = strays + 1, first if strays else i, stray if strays else entry
            continue
        booleans[i] = BOOLEANS[entry]
    else:
        if kind != "text":
            found = Stray(strays, int(lines[first]), stray) if strays else None
            return Column(name, "boolean", booleans, found, form=Form("boolean"))
    nothing = MISSING | IN_TEXT
    if any(entry == "+" for entry in _entries(blocks)):
        nothing = nothing - {"-", "--", "\u2013"}
    known: dict[str, str] = {}
    values = np.empty(len(lines), dtype=object)
    blanks = _Blanks(lines)
    for i, entry in enumerate(_entries(blocks)):
        values[i] = None if entry in nothing else known.setdefault(entry, entry)
        if entry in nothing and entry in BLANKS:
            blanks.add(i, entry)
    return Column(name, "text", values, blank=blanks.found, form=Form("text"))


def _entries(blocks: list[str]) -> Iterator[str]:
    for block in blocks:
        yield from map(str.strip, block.split("\0"))


@dataclass
class _Blanks:
    """Counts entries that stand for nothing."""

    lines: Array
    count: int = 0
    first: int = 0
    entry: str = ""

    def add(self, i: int, entry: str) -> None:
        if not self.count:
            self.first, self.entry = i, entry
        self.count += 1

    @property
    def found(self) -> Stray | None:
        return Stray(self.count, int(self.lines[self.first]), self.entry) if self.count else None


@dataclass
class _Numbers:
    """Entries as floats, with strays counted until there are more than a numeric column may have."""

    lines: Array
    number: Reader
    strays_allowed: float = STRAYS
    plainly: bool = False  # whether what Python takes for a number is one
    strays: int = 0
    present: int = 0
    fits: bool = True
    sample: list[str] = field(default_factory=list)  # of strays

    def take(self, blocks: list[str]) -> None:
        self.values = np.full(len(self.lines), math.nan)
        self.blanks = _Blanks(self.lines)
        first, stray, at = 0, "", 0
        for block in blocks:
            entries = [entry.strip() for entry in block.split("\0")]
            known = []
            for i, entry in enumerate(entries, start=at):
                if entry not in NOTHING:
                    known.append(i)
                elif entry in BLANKS:
                    self.blanks.add(i, entry)
            self.present += len(known)
            if self._plainly(block, entries, known, at):
                at += len(entries)
                continue
            for i in known:
                value = self.number(entries[i - at])
                if value is not None:
                    self.values[i] = value
                    continue
                if self.strays == 0:
                    first, stray = i, entries[i - at]
                self.strays += 1
                if len(self.sample) < SAMPLE:
                    self.sample.append(entries[i - at])
                elif self.strays > self.strays_allowed * len(self.lines):
                    self.fits = False
                    return
            at += len(entries)
        self.fits = self.strays <= self.strays_allowed * self.present
        self.stray = Stray(self.strays, int(self.lines[first]), stray) if self.strays else None

    def _plainly(self, block: str, entries: list[str], known: list[int], at: int) -> bool:
        """Whether these are plain numbers, which Python reads by itself."""
        if not self.plainly or not block.isascii() or "_" in block:  # all that float takes besides
            return False
        with contextlib.suppress(ValueError):
            self.values[known] = [float(entries[i - at]) for i in known]
            return True
        return False

    def column(self, name: str, form: Form) -> Column:
        kind: Kind = "date" if form.kind == "date" else "numeric"
        infinite = finite(self.values, self.lines)
        return Column(name, kind, self.values, self.stray, infinite, self.blanks.found, form)


def parts_of(column: Column, taken: set[str]) -> list[Column]:
    """The columns that a model may use in place of a column of dates; `taken` are names that others have."""
    made = []
    for part, values in dates.parts(column.values, column.form.clock).items():
        name = f"{column.name}: {part}"
        while name in taken:
            name += "'"
        taken.add(name)
        kind: Kind = "text" if values.dtype == object else "numeric"
        made.append(Column(name, kind, values, origin=column.name, form=Form(kind)))
    return made


def notes_of(columns: Sequence[Column], quoted: Any) -> Iterator[str]:
    """What was done to entries that are not what they seem."""
    by_words: dict[str, list[str]] = {}
    for column in columns:
        if words := column.form.words():
            by_words.setdefault(words, []).append(quoted(column.name))
    for words, names in by_words.items():
        rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"column{'s' if len(names) > 1 else ''} {', '.join(names[:3])}{rest}: {words}"
    for column in columns:
        name, rows = quoted(column.name), len(column.values)
        wrong = {"date": "dates", "boolean": "true or false"}.get(column.kind, "numbers")
        wrong = "percents" if column.form.percent else wrong
        for stray, what in ((column.stray, f"not {wrong}"), (column.infinite, "infinite or beyond 1e100")):
            if stray is not None:
                one = {"not dates": "not a date", "not numbers": "not a number", "not percents": "no percent"}.get(
                    what, what
                )
                are = f"is {one}" if stray.count == 1 else f"are {what}"
                entries = f"{stray.count:,} of {rows:,} entries {are}"
                where = f"line {stray.line} has {quoted(stray.entry, 30)}"
                yield f"column {name}: {entries} ({where}); treated as missing"
        if (blank := column.blank) is not None:
            entries = f"{blank.count:,} {'entry' if blank.count == 1 else 'entries'} such as {quoted(blank.entry, 30)}"
            yield f"column {name}: {entries} (line {blank.line}) taken for missing"
