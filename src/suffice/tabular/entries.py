"""What the entries of a column are, and how people write them: `1200.5`, `$1,200.50`, `1.200,50 €`, `12.3%`, `(1,200)`,
`14:30`, `31.12.2024`.

- Spaces around an entry do not count. It is missing if it is empty, one of the words that pandas takes for missing
  (`MISSING`), or one of those that people use besides (`BLANKS`: a dash, a question mark, a point, errors of
  spreadsheets). In a column of text only some of the latter are, and a dash is not if there is a plus sign, too.
- A column is *numeric* if its entries are numbers, *date* if they are dates, *boolean* if they are true or false, else
  *text*. One that is numeric but for at most a tenth of its entries is numeric, and these strays are missing. Of
  several forms the one with the fewest strays is taken.
- Whole numbers are *names*, and are text, if they are of one width with leading zeros, or short and a few have letters,
  136A.
- Thousands are groups of exactly three digits, so `1,5` can only have a decimal comma and `1,234,567` only thousands.
  Where all entries may be either, `1,234` or `1.234`, the decimal mark is that of the other columns if they agree. If
  they do not tell, a comma sets thousands apart in a file with commas between fields and after a currency.
- A column has one currency or none. If it has percent signs, every entry but 0 must have one, since 5% and 0.05 cannot
  be told apart otherwise. Percents stay what is written: 12.3% is 12.3.
- Dates are ISO 8601 as people write it, `2024-03-31`, `2024/3/31`, `2024-03`, with times `14:30:05.5` after a space or
  a `T`, and `Z` or `+02:00` at the end; or the day comes first, `31/12/2024`, `31.12.2024`, or the month. Where days
  and months cannot be told apart in any entry, they stay text. An entry becomes t, seconds since 1970 in UTC, the
  column `NAME: days`, t / 86400, `NAME: year` and, as categories, whose effects need not rise or fall, `NAME: month`,
  `NAME: weekday` and, where there are times of the day, `NAME: hour`.
- Infinite entries, and those beyond 1e100, are missing, too.

Whatever is treated in such a way is reported in the notes. The `Form` of a column says how it was read, so that another
file can be read in the same way, whatever is in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["numeric", "boolean", "text", "date", "other"]
Order = Literal["ymd", "dmy", "mdy"]
Array = NDArray[Any]

MISSING = {
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
}  # fmt: skip
DASHES = {"-", "--", "\u2013"}
IN_TEXT = DASHES | {"?", "??", "\u2014", "n.a.", "N.A."}
BLANKS = IN_TEXT | {".", "..", "...", "na", "#DIV/0!", "#NULL!", "#REF!", "#VALUE!", "#NUM!", "#NAME?"}
NOTHING = MISSING | BLANKS
BOOLEANS = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}

STRAYS = 0.1  # the share of entries that a numeric column may have besides numbers
LARGEST = 1e100  # squares of sums of such numbers are still finite
SHORT = 6  # digits of names that may have letters
SAMPLE = 200  # entries that are not plain numbers, from which other ways to write them are guessed

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
SPECIAL = re.compile(r"[+-]?(inf(inity)?|nan)", re.ASCII | re.IGNORECASE)
PADDED = re.compile(r"(?:^|\0)\s*0\d+\s*(?:\0|$)", re.ASCII)  # in entries that \0 separates
LETTERED = re.compile(r"\d+[A-Za-z]|[A-Za-z]{1,3}\d+", re.ASCII)
CURRENCY = re.compile(r"[$€£¥₹₽₩₺฿]|\b(?:USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|BRL)\b|\bkr\b|R\$")
_SPACES = "\u0020\u00a0\u202f\u2009'\u2019"  # what stands between thousands besides the comma and the point
_BODIES = {
    mark: re.compile(
        rf"([1-9]\d{{0,2}}(?P<g>[{other}{_SPACES}])\d{{3}}(?:(?P=g)\d{{3}})*|\d+)?({re.escape(mark)}\d*)?([eE][+-]?\d+)?",
        re.ASCII,
    )
    for mark, other in ((".", ","), (",", "."))
}
_THOUSANDS = re.compile(rf"\d[.,{_SPACES}]\d{{3}}(?!\d)", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?", re.ASCII)

DAY = 86400.0
_TIME = r"(?:[T ]\s*(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?:[.,](?P<F>\d{1,9}))?)?\s*(?P<Z>Z|[+-]\d{2}:?\d{2})?)?"
_DATES: dict[Order, re.Pattern[str]] = {
    "ymd": re.compile(rf"(?P<y>\d{{4}})(?P<s>[-/])(?P<m>\d{{1,2}})(?:(?P=s)(?P<d>\d{{1,2}}))?{_TIME}", re.ASCII),
    "dmy": re.compile(rf"(?P<d>\d{{1,2}})(?P<s>[-/.])(?P<m>\d{{1,2}})(?P=s)(?P<y>\d{{4}}){_TIME}", re.ASCII),
    "mdy": re.compile(rf"(?P<m>\d{{1,2}})(?P<s>[-/])(?P<d>\d{{1,2}})(?P=s)(?P<y>\d{{4}}){_TIME}", re.ASCII),
}  # points are between day and month only
_ORDERS = {"ymd": "", "dmy": ", the day before the month", "mdy": ", the month before the day"}
_START = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = np.array(["January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
                    "November", "December"], object)  # fmt: skip
_DAYS = np.array(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"], object)
_HOURS = np.array([f"{hour:02d}" for hour in range(24)], object)


class TableError(ValueError):
    """A file is not a table that can be used; the message says why, and where."""


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names, the first few of them."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(quoted, names[:most])) + rest


def quoted(text: Any, most: int = 60) -> str:
    """Text from a file as it may be shown: one line, no control characters, not too long."""
    shown = repr(str(text))
    return shown if len(shown) <= most else f"{shown[: most - 4]}...{shown[0]}"


def plural(count: int, one: str, many: str = "") -> str:
    """So many things."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


@dataclass(frozen=True)
class Form:
    """How the entries of a column are written."""

    kind: Kind = "numeric"
    decimal: Literal[".", ","] = "."
    grouped: bool = False  # whether thousands may be set apart
    currency: str = ""
    percent: bool = False
    clock: bool = False  # dates: with the time of day; numbers: times of the day, in hours
    order: Order = "ymd"  # of dates

    def __post_init__(self) -> None:
        if self.currency and not CURRENCY.fullmatch(self.currency):
            raise ValueError(f"currency must be a known one, got {self.currency!r}")

    @property
    def wrong(self) -> tuple[str, str]:
        """What an entry is, and several are, that do not fit."""
        known = {"date": ("not a date", "not dates"), "boolean": ("not true or false",) * 2}
        return ("no percent", "no percents") if self.percent else known.get(self.kind, ("not a number", "not numbers"))

    def value(self, entry: str) -> float | None:
        """An entry as a float, dates as seconds since 1970; None if it is not written in this form."""
        if self.kind == "date":
            return seconds(entry, self.order)
        if self.clock:
            found = _CLOCK.fullmatch(entry)
            if found is None or int(found[1]) > 23:
                return None
            return int(found[1]) + int(found[2]) / 60.0 + float(found[3] or 0.0) / 3600.0
        if SPECIAL.fullmatch(entry):
            return float(entry)
        if self == PLAIN:
            return float(entry) if NUMBER.fullmatch(entry) else None
        return self._number(entry)

    def _number(self, entry: str) -> float | None:
        text, sign = entry.replace("\u2212", "-"), 1.0
        if text.startswith("(") and text.endswith(")"):  # as accountants write what is owed
            text, sign = text[1:-1].strip(), -1.0
        if self.currency:
            text = text.replace(self.currency, "", 1).strip()
        if text[:1] in ("+", "-"):
            sign, text = (-sign if text[0] == "-" else sign), text[1:].strip()
        percent = text.endswith("%")
        text = text[:-1].rstrip() if percent and self.percent else text
        found = _BODIES[self.decimal].fullmatch(text)
        if found is None or not (found[1] or (found[3] and len(found[3]) > 1)):
            return None
        if found["g"] is not None:
            text = text.replace(found["g"], "")
        value = sign * float(text.replace(",", "."))
        return None if self.percent and not percent and value != 0.0 else value

    def words(self, entries: Iterable[str]) -> str:
        """What a reader of the notes should know of a column with such entries; empty for the plainest kinds."""
        if self.kind == "date":
            parts = f"days, year, month, weekday{', hour' if self.clock else ''}"
            return f"dates{' and times' if self.clock else ''}{_ORDERS[self.order]}, as {parts}"
        if self.clock:
            return "times of the day, in hours"
        told = {
            f"amounts in {self.currency}": bool(self.currency),
            "percents (12.3% is 12.3)": self.percent,
            "commas are decimal points": self.decimal == ",",
            "thousands are set apart": any(_THOUSANDS.search(entry.split(self.decimal)[0]) for entry in entries),
        }
        return ", ".join(words for words, so in told.items() if so)


PLAIN = Form()
POINTS_APART = Form(decimal=",", grouped=True)


def seconds(entry: str, order: Order) -> float | None:
    """Seconds since 1970; None if the entry is no date."""
    found = _DATES[order].fullmatch(entry)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[part] or part == "d") for part in "ymdHMS")
    zone = found["Z"] or "Z"
    offset = timedelta() if zone == "Z" else timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    try:
        at = datetime(year, month, day, hour, minute, second, tzinfo=timezone(-offset if zone[0] == "-" else offset))
        return (at - _START).total_seconds() + float(f"0.{found['F'] or 0}")
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True)
class Stray:
    """Entries that do not belong in their column: how many, the first, and what it is and several are."""

    count: int
    line: int
    entry: str
    what: tuple[str, str] = ("", "")  # empty: missing though not empty, as a dash


@dataclass(frozen=True, eq=False)
class Column:
    """Numeric and boolean: floats, NaN where missing. Text: str, None where missing. Other: of no use here."""

    name: str
    form: Form
    values: Array
    strays: tuple[Stray, ...] = ()
    origin: str = ""  # the column of the file that this one is a part of
    what: str = ""  # the type of an `other` column
    told: str = ""  # what a reader of the notes should know besides

    @property
    def kind(self) -> Kind:
        return self.form.kind

    @property
    def missing(self) -> Array:
        if self.values.dtype == object:
            return np.array([value is None for value in self.values], dtype=bool)
        return np.isnan(self.values)


def number_column(name: str, values: Array, lines: Array, form: Form, strays: tuple[Stray, ...] = ()) -> Column:
    """A column of these floats, from which it takes what is infinite or nearly so, and says so."""
    with np.errstate(invalid="ignore"):
        huge = np.flatnonzero(np.abs(values) > LARGEST)
    if len(huge):
        what = "infinite or beyond 1e100"
        strays = (*strays, Stray(len(huge), int(lines[huge[0]]), f"{values[huge[0]]:g}", (what, what)))
    values[huge] = math.nan
    return Column(name, form, values, strays)


def date_column(name: str, values: Array, form: Form | None) -> Column:
    """A column of these seconds since 1970; with the time of the day as this form has it, or where there are any."""
    clock = bool((values[~np.isnan(values)] % DAY != 0.0).any()) if form is None else form.clock
    dates = Form("date", clock=clock)
    return Column(name, dates, values, told=dates.words(()))


class Texts:
    """The entries of a column, given as blocks of text: `different` ones, and which of them every row has."""

    def __init__(self, name: str, blocks: Sequence[str], lines: Array) -> None:
        numbers: dict[str, int] = {}
        self.name, self.lines, self.of_row, at = name, lines, np.empty(len(lines), dtype=np.intp), 0
        for block in blocks:
            found = [numbers.setdefault(entry.strip(), len(numbers)) for entry in block.split("\0")]
            self.of_row[at : at + len(found)] = found
            at += len(found)
        self.different = list(numbers)
        self.known = [k for k, entry in enumerate(self.different) if entry not in NOTHING]
        self.entries = [self.different[k] for k in self.known]
        self.counts = np.bincount(self.of_row, minlength=len(self.different))

    def strays(self, which: Iterable[int], what: tuple[str, str] = ("", "")) -> tuple[Stray, ...]:
        """These of the different entries, if there are any."""
        numbers = list(which)
        if not numbers:
            return ()
        line = int(self.lines[int(np.argmax(self.of_row == numbers[0]))])  # they are numbered in the order of the rows
        return (Stray(int(self.counts[numbers].sum()), line, self.different[numbers[0]], what),)

    def blanks(self, blanks: set[str] = BLANKS) -> tuple[Stray, ...]:
        return self.strays(k for k, entry in enumerate(self.different) if entry in blanks)

    def numbers(self, form: Form, allowed: float = STRAYS) -> Column | None:
        """A column of numbers or dates in this form; None if more than a share of its entries are something else."""
        most = allowed * float(self.counts[self.known].sum())
        values, strays, count = np.full(len(self.different), math.nan), [], 0
        for k in self.known:
            value = form.value(self.different[k])
            if value is None:
                strays.append(k)
                count += int(self.counts[k])
                if count > most:
                    return None
            else:
                values[k] = value
        found = (*self.strays(strays, form.wrong), *self.blanks())
        return number_column(self.name, values[self.of_row], self.lines, form, found)

    def words(self, kind: str = "", told: str = "") -> Column:
        """True and false, or text, whatever it is if nothing is said."""
        strays = [k for k in self.known if self.different[k] not in BOOLEANS]
        if kind == "boolean" or not (kind or strays):
            form = Form("boolean")
            values = np.array([BOOLEANS.get(entry, math.nan) for entry in self.different])
            return Column(self.name, form, values[self.of_row], self.strays(strays, form.wrong))
        nothing = MISSING | (IN_TEXT - DASHES if "+" in self.different else IN_TEXT)
        texts = np.array([None if entry in nothing else entry for entry in self.different], dtype=object)
        return Column(self.name, Form("text"), texts[self.of_row], self.blanks(nothing & BLANKS), told=told)


def columns_of(
    names: Sequence[str], texts: list[list[str]], lines: Array, delimiter: str, forms: Mapping[str, Form]
) -> list[Column]:
    """The columns of these texts, each given as blocks, which are taken away: in the forms that are known for some, in
    those that they turn out to have for the others."""
    found: list[tuple[Column, Form | None, str]] = []
    for name, blocks in zip(names, texts, strict=True):
        if (known := forms.get(name)) is None:
            found.append(_guess(name, blocks, lines, delimiter))
        else:
            found.append((_as(name, blocks, lines, known), None, ""))
        if found[-1][1] is None:
            blocks.clear()
    marks, made = {mark for _, _, mark in found} - {""}, []
    for (column, other, _), blocks in zip(found, texts, strict=True):
        if other is not None and marks == {other.decimal}:
            chosen = Texts(column.name, blocks, lines)
            column = replace(chosen.numbers(other, allowed=1.0) or column, told=other.words(chosen.entries))
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
    texts = Texts(name, blocks, lines)
    found = None if form.kind in ("text", "boolean") else texts.numbers(form, allowed=1.0)
    return texts.words(form.kind) if found is None else found


def _guess(name: str, blocks: list[str], lines: Array, delimiter: str) -> tuple[Column, Form | None, str]:
    """The column of these texts, whatever kind it is; another form that fits as well, and the decimal mark that it
    surely has."""
    padded = any(PADDED.search(block) for block in blocks)
    if not padded and (plain := _plain(name, blocks, lines)) is not None:
        pointed = [block for block in blocks if "." in block]
        entries = (entry.strip() for block in pointed for entry in block.split("\0") if "." in entry)
        if not pointed:
            return plain, None, ""
        surely = any(POINTS_APART.value(entry) is None for entry in entries if entry not in NOTHING)
        return (plain, None, ".") if surely else (plain, POINTS_APART, "")
    texts = Texts(name, blocks, lines)
    widths = {len(entry) for entry in texts.entries if entry.isdigit()}
    others = [entry for entry in texts.entries if not entry.isdigit()]
    named = (padded and len(widths) == 1) or (others and max(widths, default=SHORT) <= SHORT)
    if named and all(map(LETTERED.fullmatch, others)) and texts.numbers(PLAIN) is not None:
        return texts.words("text", "names, since zeros lead or a few have letters"), None, ""
    sample = [entry for entry in texts.entries if PLAIN.value(entry) is None][:SAMPLE]
    tried = [column for form in (PLAIN, *_candidates(sample)) if (column := texts.numbers(form)) is not None]
    if not tried:
        return texts.words(), None, ""
    wrong = [sum(stray.count for stray in one.strays if stray.what == one.form.wrong) for one in tried]
    best, *as_well = [one for one, count in zip(tried, wrong, strict=True) if count == min(wrong)]
    if best.form == PLAIN:
        return best, None, ""
    as_well = [one for one in as_well if one.kind == best.kind]
    if best.kind == "date":
        if as_well:
            told = f"text, since days and months cannot be told apart ({texts.entries[0]}): write dates as 2024-12-31"
            return texts.words(told=told), None, ""
        clock = bool((best.values[~np.isnan(best.values)] % DAY).any())
        best = replace(best, form=replace(best.form, clock=clock))
    rival = next((one for one in as_well if not np.array_equal(one.values, best.values, equal_nan=True)), None)
    comma = any("," in entry for entry in texts.entries)
    marked = best.kind == "numeric" and not best.form.clock and (comma or any("." in one for one in texts.entries))
    mark = best.form.decimal if marked else ""
    if rival is not None:
        thousands = bool(best.form.currency) or (comma and delimiter == ",")
        if (best.form.decimal == ".") != (comma == thousands):
            best, rival = rival, best
        mark = ""
    return replace(best, told=best.form.words(texts.entries)), None if rival is None else rival.form, mark


def _candidates(sample: list[str]) -> list[Form]:
    """Forms other than the plain one that entries such as these may have, the likelier ones first."""
    marks = [found[0] for entry in sample if (found := CURRENCY.search(entry))]
    currency = max(set(marks), key=lambda mark: (marks.count(mark), mark)) if marks else ""
    percent = any(entry.endswith("%") for entry in sample)
    forms = [*(Form("date", order=order) for order in _DATES), Form(clock=True)]
    forms = [form for form in forms if any(form.value(entry) is not None for entry in sample)]
    if currency or percent or any(character.isdigit() for entry in sample for character in entry):
        forms += [Form("numeric", mark, True, currency, percent) for mark in (".", ",")]
    return forms


def parts_of(column: Column, taken: set[str]) -> list[Column]:
    """The columns that a model may use in place of a column of dates; `taken` are names that others have."""
    known = ~np.isnan(column.values)
    t = np.floor(np.where(known, column.values, 0.0)).astype(np.int64)
    months = t.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)  # since 1970, which began on a Thursday
    parts = {"days": column.values / DAY, "year": np.where(known, months // 12 + 1970.0, math.nan)}
    texts = {"month": _MONTHS[months % 12], "weekday": _DAYS[(t // int(DAY) + 3) % 7]}
    if column.form.clock:
        texts["hour"] = _HOURS[t // 3600 % 24]
    parts |= {part: np.where(known, of, np.array(None)) for part, of in texts.items()}
    made = []
    for part, values in parts.items():
        name = f"{column.name}: {part}"
        while name in taken:
            name += "'"
        taken.add(name)
        made.append(Column(name, Form("text" if part in texts else "numeric"), values, origin=column.name))
    return made


def notes_of(columns: Sequence[Column]) -> Iterator[str]:
    """What was done to entries that are not what they seem."""
    by_words: dict[str, list[str]] = {}
    for column in columns:
        if column.told:
            by_words.setdefault(column.told, []).append(column.name)
    for words, names in by_words.items():
        yield f"column{'s' if len(names) > 1 else ''} {listed(names, 3)}: {words}"
    for column in columns:
        for stray in column.strays:
            where, (one, many) = f"line {stray.line}", stray.what
            if one:
                are = f"is {one}" if stray.count == 1 else f"are {many}"
                of = f"{stray.count:,} of {len(column.values):,} entries {are}"
                done = f"{of} ({where} has {quoted(stray.entry, 30)}); treated as missing"
            else:
                count = plural(stray.count, "entry", "entries")
                done = f"{count} such as {quoted(stray.entry, 30)} ({where}) taken for missing"
            yield f"column {quoted(column.name)}: {done}"
