"""What the entries of a column are: numbers, true and false, dates, or text.

- Spaces around an entry do not count. It is missing if it is empty, one of the words that pandas takes for missing
  (`MISSING`), or one of those that people use besides (`BLANKS`: a dash, a question mark, a point, errors of
  spreadsheets). In a column of text only some of the latter are, and a dash is not if there is a plus sign, too.
- A column is *numeric* if its entries are numbers, *date* if they are dates, *boolean* if they are true or false (1 and
  0), else *text*. A column that is numeric but for at most a tenth of its entries is numeric, and these strays are
  missing. Of several ways to write numbers (`suffice.tabular.notation`) the one with the fewest strays is taken.
- Numbers may be *names*, and are text then: whole numbers of one width with leading zeros, or with entries among them
  that have a letter, 136A.
- Dates whose days and months cannot be told apart in any entry of the column, 03/04/2024, stay text.
- Where 1,234 may be a decimal fraction or thousands, other columns of the file decide if they are clear; else it is
  what is usual: thousands in a file with commas between fields and after a currency, a decimal comma otherwise. 1.234
  is a decimal fraction, unless other columns have decimal commas and none has decimal points.
- Infinite entries, and those beyond 1e100, are missing, too.

Whatever is treated in such a way is reported in the notes. The `Form` of every column says how it was read, so that
another file can be read in the same way, whatever is in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from suffice.tabular.notation import (
    DAY,
    PLAIN,
    Form,
    Kind,
    Reader,
    ambiguous,
    candidates,
    parts_of_dates,
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

WRONG = {
    "date": ("not a date", "not dates"),
    "boolean": ("not true or false", "not true or false"),
    "percent": ("no percent", "not percents"),
}  # what one stray entry of a column is, and several are
STRAYS = 0.1  # the share of entries that a numeric column may have besides numbers
LARGEST = 1e100  # squares of sums of such numbers are still finite
PADDED = re.compile(r"(?:^|\0)\s*0\d+\s*(?:\0|$)", re.ASCII)  # in entries that \0 separates
LETTERED = re.compile(r"\d+[A-Za-z]|[A-Za-z]{1,3}\d+", re.ASCII)
NAMES = "names, since zeros lead or letters stand among the numbers"
SAMPLE = 200  # entries that are not plain numbers, from which other ways to write them are guessed

Array = NDArray[Any]


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names, the first few of them."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(quoted, names[:most])) + rest


def quoted(text: Any, most: int = 60) -> str:
    """Text from a file as it may be shown: one line, no control characters, not too long."""
    shown = repr(str(text))
    return shown if len(shown) <= most else f"{shown[: most - 4]}...{shown[0]}"


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
    told: str = ""  # what a reader of the notes should know besides

    @property
    def missing(self) -> Array:
        if self.values.dtype == object:
            return np.array([value is None for value in self.values], dtype=bool)
        return np.isnan(self.values)


def number_column(
    name: str, values: Array, lines: Array, form: Form, stray: Stray | None = None, blank: Stray | None = None
) -> Column:
    """A column of these floats, from which it takes what is infinite or nearly so, and says so."""
    with np.errstate(invalid="ignore"):
        huge = np.flatnonzero(np.abs(values) > LARGEST)
    infinite = Stray(len(huge), int(lines[huge[0]]), f"{values[huge[0]]:g}") if len(huge) else None
    values[huge] = math.nan
    return Column(name, form.kind, values, stray, infinite, blank, form)


class Texts:
    """The entries of a column, given as blocks of text: `different` ones, and which of them every row has."""

    def __init__(self, blocks: Sequence[str], lines: Array) -> None:
        numbers: dict[str, int] = {}
        self.lines, self.of_row, at = lines, np.empty(len(lines), dtype=np.intp), 0
        for block in blocks:
            found = [numbers.setdefault(entry.strip(), len(numbers)) for entry in block.split("\0")]
            self.of_row[at : at + len(found)] = found
            at += len(found)
        self.different = list(numbers)
        self.known = [k for k, entry in enumerate(self.different) if entry not in NOTHING]
        self.counts = np.bincount(self.of_row, minlength=len(self.different))

    @property
    def entries(self) -> Iterator[str]:
        """Different ones that are not missing."""
        return (self.different[k] for k in self.known)

    @property
    def blank(self) -> Stray | None:
        return self.stray(k for k, entry in enumerate(self.different) if entry in BLANKS)

    def stray(self, which: Iterator[int] | Sequence[int]) -> Stray | None:
        """These of the different entries, as strays."""
        numbers = list(which)
        if not numbers:
            return None
        first = numbers[0]  # they are numbered in the order of the rows
        line = int(self.lines[int(np.argmax(self.of_row == first))])
        return Stray(int(self.counts[numbers].sum()), line, self.different[first])

    def numbers(self, name: str, form: Form, allowed: float = STRAYS, number: Reader | None = None) -> Column | None:
        """A column of numbers or dates in this form; None if more than a share of its entries are something else."""
        number, most = number or reader(form), allowed * float(self.counts[self.known].sum())
        values, strays, count = np.full(len(self.different), math.nan), [], 0
        for k in self.known:
            value = number(self.different[k])
            if value is None:
                strays.append(k)
                count += int(self.counts[k])
                if count > most:
                    return None
            else:
                values[k] = value
        return number_column(name, values[self.of_row], self.lines, form, self.stray(strays), self.blank)

    def words(self, name: str, kind: str = "") -> Column:
        """True and false, or text, whatever it is if nothing is said."""
        strays = [k for k in self.known if self.different[k] not in BOOLEANS]
        if kind == "boolean" or not (kind or strays):
            values = np.array([BOOLEANS.get(entry, math.nan) for entry in self.different])[self.of_row]
            return Column(name, "boolean", values, self.stray(strays), form=Form("boolean"))
        nothing = MISSING | (IN_TEXT - {"-", "--", "\u2013"} if "+" in self.different else IN_TEXT)
        texts = np.empty(len(self.different), dtype=object)
        texts[:] = [None if entry in nothing else entry for entry in self.different]
        blank = self.stray(k for k, entry in enumerate(self.different) if entry in nothing & BLANKS)
        return Column(name, "text", texts[self.of_row], blank=blank, form=Form("text"))


@dataclass(frozen=True)
class _Guess:
    """A column as read, and what it tells of the file: its decimal mark, or another form that it may have."""

    column: Column
    mark: str = ""
    instead: Form | None = None


def columns_of(
    names: Sequence[str], texts: list[list[str]], lines: Array, delimiter: str, forms: Mapping[str, Form]
) -> list[Column]:
    """The columns of these texts, each given as blocks, which are taken away: in the forms that are known for some, in
    those that they turn out to have for the others."""
    found: list[_Guess] = []
    for name, blocks in zip(names, texts, strict=True):
        if name in forms:
            found.append(_Guess(_as(name, blocks, lines, forms[name])))
        else:
            found.append(_guess(name, blocks, lines, delimiter))
        if found[-1].instead is None:
            blocks.clear()
    marks = {guess.mark for guess in found} - {""}
    made = []
    for guess, blocks in zip(found, texts, strict=True):
        column, other = guess.column, guess.instead
        if other is not None and len(marks) == 1 and other.decimal in marks:
            column = _as(column.name, blocks, lines, other)
        blocks.clear()
        made.append(column)
    return made


def _plain(name: str, blocks: list[str], lines: Array) -> Column | None:
    """A column of nothing but plain numbers, which Python reads by itself."""
    values, at = np.full(len(lines), math.nan), 0
    for block in blocks:
        if not block.isascii() or "_" in block:  # all that float takes besides
            return None
        entries = [entry.strip() for entry in block.split("\0")]
        try:
            values[at : at + len(entries)] = [math.nan if entry in MISSING else float(entry) for entry in entries]
        except ValueError:
            return None
        at += len(entries)
    return number_column(name, values, lines, PLAIN)


def _as(name: str, blocks: list[str], lines: Array, form: Form) -> Column:
    """The column of these texts in a form that is known: what does not fit is missing."""
    if form == PLAIN and (plain := _plain(name, blocks, lines)) is not None:
        return plain
    texts = Texts(blocks, lines)
    if form.kind in ("text", "boolean"):
        return texts.words(name, form.kind)
    column = texts.numbers(name, form, allowed=1.0)
    assert column is not None
    return column


def _guess(name: str, blocks: list[str], lines: Array, delimiter: str) -> _Guess:
    """The column of these texts, whatever kind it is."""
    padded = any(PADDED.search(block) for block in blocks)
    plain = None if padded else _plain(name, blocks, lines)
    if plain is not None:
        with_points = (block for block in blocks if "." in block)
        return _pointed(plain, (entry.strip() for block in with_points for entry in block.split("\0")))
    texts = Texts(blocks, lines)
    plain = texts.numbers(name, PLAIN, number=plain_number)
    if plain is not None and (padded or plain.stray is not None) and _are_names([*texts.entries]):
        return _Guess(replace(texts.words(name, "text"), told=NAMES))
    if plain is not None and plain.stray is None:
        return _pointed(plain, texts.entries)
    best, runner_up = plain, None
    for form in candidates(list(islice((one for one in texts.entries if plain_number(one) is None), SAMPLE))):
        tried = texts.numbers(name, form)
        if tried is not None and (best is None or _strays(tried) < _strays(best)):
            best, runner_up = tried, None
        elif tried is not None and best is not None and _strays(best) == _strays(tried) and best.kind == form.kind:
            runner_up = form
    if best is None:
        return _Guess(texts.words(name))
    if best.kind == "date" and runner_up is not None:
        told = f"text, since days and months cannot be told apart ({next(texts.entries)}): write dates as 2024-12-31"
        return _Guess(replace(texts.words(name), told=told))
    form = _described(best.form, texts)
    best = replace(best, form=form)
    if form.kind == "date" or form.clock or form == PLAIN:
        return _Guess(best)
    if runner_up is None or not any(map(ambiguous, texts.entries)):
        marked = any("." in entry or "," in entry for entry in texts.entries)
        return _Guess(best, form.decimal if marked else "")
    comma = any("," in entry for entry in texts.entries)
    thousands = bool(form.currency) or (comma and delimiter == ",")
    decimal: Literal[".", ","] = ("." if comma else ",") if thousands else ("," if comma else ".")
    usual = _described(replace(form, decimal=decimal), texts)
    other = _described(replace(form, decimal="." if decimal == "," else ","), texts)
    column = texts.numbers(name, usual, allowed=1.0)
    assert column is not None
    return _Guess(column, "", other)


def _are_names(entries: list[str]) -> bool:
    """Whether whole numbers are names: all of one width, with zeros before some, or with letters beside others."""
    numbers = [entry for entry in entries if entry.isdigit()]
    others = [entry for entry in entries if not entry.isdigit()]
    if others or not numbers:
        return bool(numbers) and all(map(LETTERED.fullmatch, others))
    return len(set(map(len, numbers))) == 1


def _strays(column: Column) -> int:
    return 0 if column.stray is None else column.stray.count


def _pointed(column: Column, entries: Iterator[str]) -> _Guess:
    """Plain numbers: where all of their points may set off thousands, other columns of the file decide."""
    either = (ambiguous(entry) for entry in entries if "." in entry and entry not in NOTHING)
    first = next(either, None)
    if first is None:
        return _Guess(column)
    return _Guess(column, "", Form(decimal=",", grouped=True)) if first and all(either) else _Guess(column, ".")


def _described(form: Form, texts: Texts) -> Form:
    """The form, with what its notes tell of these entries."""
    if form.kind == "date":
        return replace(form, clock=any((reader(form)(entry) or 0.0) % DAY for entry in texts.entries))
    if form.clock or form == PLAIN:
        return form
    heads = (entry.replace(form.currency, "").replace("%", "").split(form.decimal)[0] for entry in texts.entries)
    return replace(form, grouped=any(sets_thousands_apart(head.strip()) for head in heads))


def parts_of(column: Column, taken: set[str]) -> list[Column]:
    """The columns that a model may use in place of a column of dates; `taken` are names that others have."""
    made = []
    for part, values in parts_of_dates(column.values, column.form.clock).items():
        name = f"{column.name}: {part}"
        while name in taken:
            name += "'"
        taken.add(name)
        kind: Kind = "text" if values.dtype == object else "numeric"
        made.append(Column(name, kind, values, origin=column.name, form=Form(kind)))
    return made


def notes_of(columns: Sequence[Column]) -> Iterator[str]:
    """What was done to entries that are not what they seem."""
    by_words: dict[str, list[str]] = {}
    for column in columns:
        if words := column.told or column.form.words():
            by_words.setdefault(words, []).append(quoted(column.name))
    for words, names in by_words.items():
        rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"column{'s' if len(names) > 1 else ''} {', '.join(names[:3])}{rest}: {words}"
    for column in columns:
        name, rows = quoted(column.name), len(column.values)
        one, many = WRONG.get("percent" if column.form.percent else column.kind, ("not a number", "not numbers"))
        huge = "infinite or beyond 1e100"
        for stray, is_what, are_what in ((column.stray, one, many), (column.infinite, huge, huge)):
            if stray is not None:
                are = f"is {is_what}" if stray.count == 1 else f"are {are_what}"
                where = f"line {stray.line} has {quoted(stray.entry, 30)}"
                yield f"column {name}: {stray.count:,} of {rows:,} entries {are} ({where}); treated as missing"
        if (blank := column.blank) is not None:
            entries = f"{blank.count:,} {'entry' if blank.count == 1 else 'entries'} such as {quoted(blank.entry, 30)}"
            yield f"column {name}: {entries} (line {blank.line}) taken for missing"
