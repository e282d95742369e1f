"""How people write numbers: `1200.5`, `$1,200.50`, `1.200,50 €`, `12.3%`, `(1,200)`, `14:30`.

A `Form` says how the entries of one column are written; `reader(form)` turns such entries into floats. Thousands are
groups of exactly three digits, so `1,5` can only have a decimal comma and `1,234,567` only thousands, while `1,234` is
ambiguous: what the rest of the file does decides (`suffice.tabular.entries`). One column has one currency or none; if
there is a percent sign in a column, every entry but 0 must have it, since 5% and 0.05 cannot be told apart otherwise.
Percents stay what is written: 12.3% is 12.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from suffice.tabular import dates

Kind = Literal["numeric", "boolean", "text", "date", "other"]

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

Reader = Callable[[str], float | None]


def from_plain(kind: Any, found: Any, name: str = "it", *, older: bool = False) -> Any:
    """What JSON holds as a value of this type, a data class for one; ValueError if it is not. `older`: whether fields
    with defaults may be missing."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(found, dict):
        needed = {item.name for item in fields(kind) if not older or item.default is MISSING}
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

    def words(self) -> str:
        """What a reader of the notes should know; empty for the plainest kinds."""
        if self.kind == "date":
            return f"dates{' and times' if self.clock else ''}, as {dates.described(self.clock)}"
        if self.clock:
            return "times of the day, in hours"
        parts = []
        if self.currency:
            parts.append(f"amounts in {self.currency}")
        if self.percent:
            parts.append("percents (12.3% is 12.3)")
        if self.decimal == ",":
            parts.append("commas are decimal points")
        if self.grouped:
            parts.append("thousands are set apart")
        return ", ".join(parts)

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
        return dates.seconds
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


def candidates(sample: list[str]) -> list[Form]:
    """Forms other than the plain one that entries such as these may have, the likelier ones first."""
    marks = [found[0] for entry in sample if (found := CURRENCY.search(entry))]
    currency = max(set(marks), key=lambda mark: (marks.count(mark), mark)) if marks else ""
    percent = any(entry.endswith("%") for entry in sample)
    forms = [Form("date")] if any(dates.seconds(entry) is not None for entry in sample) else []
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
