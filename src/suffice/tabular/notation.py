"""How people write numbers and dates: `1200.5`, `$1,200.50`, `1.200,50 €`, `12.3%`, `(1,200)`, `14:30`, `31.12.2024`.

A `Form` says how the entries of one column are written; `reader(form)` turns such entries into floats. Thousands are
groups of exactly three digits, so `1,5` can only have a decimal comma and `1,234,567` only thousands, while `1,234` is
ambiguous: what the rest of the file does decides (`suffice.tabular.entries`). One column has one currency or none; if
there is a percent sign in a column, every entry but 0 must have it, since 5% and 0.05 cannot be told apart otherwise.
Percents stay what is written: 12.3% is 12.3.

Dates are ISO 8601 as people write it, `2024-03-31`, `2024/3/31`, `2024-03`, with times `14:30:05.5` after a space or a
`T`, and `Z` or `+02:00` at the end; or the day comes first, `31/12/2024`, `31.12.2024`, or the month, `12/31/2024`. An
entry becomes t, seconds since 1970 in UTC (without a zone: as if it were), and a column of them becomes, row by row,

    NAME: days      t / 86400, the time that has passed, a number
    NAME: year      a number
    NAME: month     a category, as are the next two: their effects need not rise or fall
    NAME: weekday
    NAME: hour      only where there are times of the day
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta, timezone
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

Kind = Literal["numeric", "boolean", "text", "date", "other"]
Order = Literal["ymd", "dmy", "mdy"]
Array = NDArray[Any]

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
SPECIAL = re.compile(r"[+-]?(inf(inity)?|nan)", re.ASCII | re.IGNORECASE)
CURRENCY = re.compile(r"[$€£¥₹₽₩₺฿]|\b(?:USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|BRL)\b|\bkr\b|R\$")
_SPACES = "\u0020\u00a0\u202f\u2009'\u2019"  # what stands between thousands besides the comma and the point
_BODIES = {
    mark: re.compile(
        rf"(\d{{1,3}}(?P<g>[{other}{_SPACES}])\d{{3}}(?:(?P=g)\d{{3}})*|\d+)?({re.escape(mark)}\d*)?([eE][+-]?\d+)?",
        re.ASCII,
    )
    for mark, other in ((".", ","), (",", "."))
}
_BETWEEN = re.compile(rf"[{_SPACES}]")
_EITHER = re.compile(r"(?<![\d.,])[1-9]\d{0,2}[.,]\d{3}(?![\d.,])", re.ASCII)
_THOUSANDS = re.compile(rf"\d[.,{_SPACES}]\d{{3}}(?!\d)", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?", re.ASCII)

DAY = 86400.0
PARTS = ("days", "year", "month", "weekday", "hour")
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

Reader = Callable[[str], float | None]


def from_plain(kind: Any, found: Any, name: str = "it") -> Any:
    """What JSON holds as a value of this type, a data class for one; ValueError if it is not. Fields with defaults may
    be missing: older versions did not know all of them."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(found, dict):
        needed = {item.name for item in fields(kind) if item.default is MISSING}
        hints = get_type_hints(kind)
        if not needed <= found.keys() <= hints.keys():
            raise ValueError(f"{name} must have {', '.join(hints)}, got {', '.join(map(str, found))}")
        return kind(**{one: from_plain(hints[one], value, one) for one, value in found.items()})  # type: ignore[operator]
    if origin is tuple and isinstance(found, list | tuple):
        return tuple(from_plain(inner[0], one, f"an entry of {name}") for one in found)
    if origin is Mapping and isinstance(found, dict):
        return {str(key): from_plain(inner[1], value, str(key)) for key, value in found.items()}
    kinds = (inner or (kind,)) if origin in (None, UnionType) else ()
    kinds = (*kinds, int) if float in kinds else kinds
    if found in inner if origin is Literal else isinstance(found, kinds) and isinstance(found, bool) == (bool in kinds):
        return found
    raise ValueError(f"{name} must be {getattr((inner or (kind,))[0], '__name__', kind)}, got {found!r}")


@dataclass(frozen=True)
class Form:
    """How the entries of a column are written."""

    kind: Kind = "numeric"
    decimal: Literal[".", ","] = "."
    grouped: bool = False  # whether thousands are set apart; they may be in any column
    currency: str = ""
    percent: bool = False
    clock: bool = False  # dates: with the time of day; numbers: times of the day, in hours
    order: Order = "ymd"  # of dates

    def words(self) -> str:
        """What a reader of the notes should know; empty for the plainest kinds."""
        if self.kind == "date":
            parts = ", ".join(PARTS[: 5 if self.clock else 4])
            return f"dates{' and times' if self.clock else ''}{_ORDERS[self.order]}, as {parts}"
        if self.clock:
            return "times of the day, in hours"
        told = {
            f"amounts in {self.currency}": bool(self.currency),
            "percents (12.3% is 12.3)": self.percent,
            "commas are decimal points": self.decimal == ",",
            "thousands are set apart": self.grouped,
        }
        return ", ".join(words for words, so in told.items() if so)

    def __post_init__(self) -> None:
        if self.currency and not CURRENCY.fullmatch(self.currency):
            raise ValueError(f"currency must be a known one, got {self.currency!r}")


PLAIN = Form()


def plain_number(entry: str) -> float | None:
    """The number that is written there, NaN and infinite ones too; None for anything else."""
    return float(entry) if NUMBER.fullmatch(entry) or SPECIAL.fullmatch(entry) else None


def reader(form: Form) -> Reader:
    """Entries written in this form as floats; None for entries that are not. Dates are seconds since 1970."""
    if form.kind == "date":
        return lambda entry: seconds(entry, form.order)
    if form.clock:
        return _hours
    return lambda entry: _number(entry, form)


def _number(entry: str, form: Form) -> float | None:
    if SPECIAL.fullmatch(entry):
        return float(entry)
    text, sign = entry.replace("\u2212", "-"), 1.0
    if text.startswith("(") and text.endswith(")"):  # as accountants write what is owed
        text, sign = text[1:-1].strip(), -1.0
    if form.currency:
        text = text.replace(form.currency, "", 1).strip()
    if text[:1] in ("+", "-"):
        sign, text = (-sign if text[0] == "-" else sign), text[1:].strip()
    percent = text.endswith("%")
    text = text[:-1].rstrip() if percent and form.percent else text
    found = _BODIES[form.decimal].fullmatch(text)
    if found is None or not (found[1] or (found[3] and len(found[3]) > 1)):
        return None
    if found["g"] is not None:
        text = _BETWEEN.sub("", text).replace("," if form.decimal == "." else ".", "")
    value = sign * float(text.replace(",", "."))
    return None if form.percent and not percent and value != 0.0 else value


def _hours(entry: str) -> float | None:
    found = _CLOCK.fullmatch(entry)
    if found is None or int(found[1]) > 23:
        return None
    return int(found[1]) + int(found[2]) / 60.0 + float(found[3] or 0.0) / 3600.0


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


def candidates(sample: list[str]) -> list[Form]:
    """Forms other than the plain one that entries such as these may have, the likelier ones first."""
    marks = [found[0] for entry in sample if (found := CURRENCY.search(entry))]
    currency = max(set(marks), key=lambda mark: (marks.count(mark), mark)) if marks else ""
    percent = any(entry.endswith("%") for entry in sample)
    forms = [
        Form("date", order=order) for order in _DATES if any(seconds(entry, order) is not None for entry in sample)
    ]
    if any(_hours(entry) is not None for entry in sample):
        forms.append(Form(clock=True))
    if currency or percent or any(character.isdigit() for entry in sample for character in entry):
        forms += [Form(decimal=mark, grouped=True, currency=currency, percent=percent) for mark in (".", ",")]
    return forms


def ambiguous(entry: str) -> bool:
    """Whether the one mark in a number may be a decimal point as well as set off thousands: 1,234 or 1.234."""
    return _EITHER.search(entry) is not None


def sets_thousands_apart(entry: str) -> bool:
    return _THOUSANDS.search(entry) is not None


def parts_of_dates(values: Array, clock: bool) -> dict[str, Array]:
    """The columns of the module's text: floats with NaN, and texts with None, where a date is missing."""
    known = ~np.isnan(values)
    t = np.floor(np.where(known, values, 0.0)).astype(np.int64)
    months = t.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)  # since 1970, which began on a Thursday
    texts = {"month": _MONTHS[months % 12], "weekday": _DAYS[(t // int(DAY) + 3) % 7]}
    if clock:
        texts["hour"] = _HOURS[t // 3600 % 24]
    year = np.where(known, months // 12 + 1970.0, math.nan)
    return {
        "days": values / DAY,
        "year": year,
        **{name: np.where(known, of, np.array(None)) for name, of in texts.items()},
    }
