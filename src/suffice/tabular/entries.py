"""What the entries of a column are: numbers, true and false, or text.

- Spaces around an entry do not count. It is missing if it is empty or one of the words that pandas takes for missing
  (`MISSING`).
- A column is *numeric* if its entries are numbers, *boolean* if they are true or false (1 and 0), else *text*. A column
  that is numeric but for at most a tenth of its entries is numeric, and these strays are missing. With a delimiter
  other than the comma, a comma may be the decimal point of a whole column. Infinite entries, and those beyond 1e100,
  are missing, too. Whatever is treated in such a way is reported in the notes.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

MISSING = {
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
}  # fmt: skip
BOOLEANS = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
WITH_COMMA = re.compile(r"[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?", re.ASCII)
SPECIAL = re.compile(r"[+-]?(inf(inity)?|nan)", re.ASCII | re.IGNORECASE)

STRAYS = 0.1  # the share of entries that a numeric column may have besides numbers
LARGEST = 1e100  # squares of sums of such numbers are still finite

Array = NDArray[Any]
Kind = Literal["numeric", "boolean", "text", "other"]


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
    comma: bool = False  # whether the decimal point is a comma
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


def column_of(name: str, blocks: list[str], lines: Array, commas: bool) -> Column:
    """The column of these texts, whatever kind it is."""
    found = _numbers(blocks, lines, _number)
    if found is None and commas:
        found = _numbers(blocks, lines, _number_with_comma)
        if found is not None:
            return Column(name, "numeric", *found, comma=True)
    if found is not None:
        return Column(name, "numeric", *found)
    texts = _entries(blocks)
    booleans = np.full(len(lines), math.nan)
    for i, entry in enumerate(texts):
        if entry in MISSING:
            continue
        if entry not in BOOLEANS:
            break
        booleans[i] = BOOLEANS[entry]
    else:
        return Column(name, "boolean", booleans)
    known: dict[str, str] = {}
    values = np.empty(len(lines), dtype=object)
    for i, entry in enumerate(_entries(blocks)):
        values[i] = None if entry in MISSING else known.setdefault(entry, entry)
    return Column(name, "text", values)


def _entries(blocks: list[str]) -> Iterator[str]:
    for block in blocks:
        yield from map(str.strip, block.split("\0"))


def _number(entry: str) -> float | None:
    """The number that is written there, NaN and infinite ones too; None for anything else."""
    return float(entry) if NUMBER.fullmatch(entry) or SPECIAL.fullmatch(entry) else None


def _number_with_comma(entry: str) -> float | None:
    return float(entry.replace(",", ".")) if WITH_COMMA.fullmatch(entry) or SPECIAL.fullmatch(entry) else None


def _numbers(
    blocks: list[str], lines: Array, number: Callable[[str], float | None]
) -> tuple[Array, Stray | None, Stray | None] | None:
    """Numbers with strays and infinite ones taken out; None if there are more strays than a numeric column may have."""
    values = np.full(len(lines), math.nan)
    strays, present, first, stray, at = 0, 0, 0, "", 0
    for block in blocks:
        entries = [entry.strip() for entry in block.split("\0")]
        known = [i for i, entry in enumerate(entries, start=at) if entry not in MISSING]
        present += len(known)
        if number is _number and block.isascii() and "_" not in block:  # all that float takes and `_number` does not
            with contextlib.suppress(ValueError):
                values[known] = [float(entries[i - at]) for i in known]
                at += len(entries)
                continue
        for i in known:
            value = number(entries[i - at])
            if value is not None:
                values[i] = value
                continue
            if strays == 0:
                first, stray = i, entries[i - at]
            strays += 1
            if strays > STRAYS * len(lines):
                return None
        at += len(entries)
    if strays > STRAYS * present:
        return None
    return values, Stray(strays, int(lines[first]), stray) if strays else None, finite(values, lines)
