"""What decides about a column, as numbers that are known of any rows and add up over parts of a table. The rules for
its use are made of nothing else, so they are the same for a table in memory, which is one part, and for one in many.

A column of n > 30 different whole numbers counts the rows if they are consecutive in the order of the rows, or begin at
0 or 1 and are dense (their range is below 3 n: n different numbers out of so few come about by counting, not by
measuring). It is left out, unless it turns out to hold the answer (`suffice.tabular.comparing`). If they begin
elsewhere, it may be a year or a position: it is used, with a warning.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.tabular.entries import Array, quoted
from suffice.tabular.notation import Kind

WARNING = "warning: "  # how notes begin that nobody should overlook
IDENTIFIER = re.compile(
    r"(^|[_\s\-.:])(?i:id|idx|index|uuid|key|obs|rownum|row|rownames?|(row|case|serial)[_\s\-.]?(no|nr|number|names?))$"
    r"|[a-z]I[dD]$|^Unnamed: 0$",
    re.ASCII,
)
FEW = 30  # different texts that a column may have whatever the number of rows
DENSE = 3
MOST_TEXTS, MOST_NUMBERS = 20_000, 200  # different values that are counted one by one
ONE_VALUE = "it has one value only"


@dataclass(frozen=True)
class Summary:
    """Of some rows of a column."""

    name: str
    kind: Kind
    known: int
    missing: int
    different: int | None  # values; None: nobody knows
    levels: Mapping[Any, int] | None  # in order, with their rows; None: too many
    low: float = math.inf
    high: float = -math.inf
    whole: bool = True
    rising: bool = True  # strictly, in the order of the rows
    falling: bool = True
    origin: str = ""  # as of a `Column`
    what: str = ""

    @classmethod
    def of(cls, name: str, kind: Kind, values: Array, origin: str = "", what: str = "") -> Summary:
        text = kind == "text"
        absent = np.array([value is None for value in values], dtype=bool) if text else np.isnan(values)
        there = values[~absent]
        levels, counts = np.unique(there.astype(str) if text else there, return_counts=True)
        few = len(levels) <= (MOST_TEXTS if text else MOST_NUMBERS)
        known = dict(zip(levels.tolist(), counts.tolist(), strict=True)) if few else None
        made = (name, kind, len(there), int(absent.sum()), len(levels), known)
        if text or not len(there):
            return cls(*made, origin=origin, what=what)
        steps, whole = np.diff(there), bool((levels == np.round(levels)).all())
        return cls(
            *made, float(levels[0]), float(levels[-1]), whole, bool((steps > 0).all()), bool((steps < 0).all()), origin
        )

    def then(self, other: Summary) -> Summary:
        """With the rows that follow."""
        levels = None
        if self.levels is not None and other.levels is not None:
            levels = dict(sorted((Counter(self.levels) + Counter(other.levels)).items()))
            levels = levels if len(levels) <= (MOST_TEXTS if self.kind == "text" else MOST_NUMBERS) else None
        known = self.known + other.known
        rising = self.rising and other.rising and (not other.known or self.high < other.low)
        falling = self.falling and other.falling and (not other.known or self.low > other.high)
        different = len(levels) if levels is not None else known if rising or falling else None
        return Summary(
            self.name, self.kind, known, self.missing + other.missing, different, levels, min(self.low, other.low),
            max(self.high, other.high), self.whole and other.whole, rising, falling, self.origin,
        )  # fmt: skip

    @property
    def categories(self) -> int:
        """Missing is one, too."""
        return (self.different or 0) + bool(self.missing)

    @property
    def useless(self) -> str:
        """Why nobody can use a column; empty if it may be of use."""
        if self.kind == "other":
            return f"{self.what} is neither numbers nor text"
        if self.known == 0:
            return "it has no values"
        if self.kind == "text" and self.different is None:
            return f"it has more than {MOST_TEXTS:,} different texts"
        return ONE_VALUE if self.different == 1 and not self.missing else ""

    @property
    def identifying(self) -> str:
        """How a column identifies rows; empty if it does not."""
        count = self.different
        if self.kind == "text" and count is not None and count > max(FEW, 0.5 * self.known):
            return f"{count:,} different texts in {self.known:,} rows"
        if not self.numbers_rows:
            return ""
        if self.low in (0.0, 1.0) and self._dense:
            ordered = (self.rising or self.falling) and self.high - self.low == self.known - 1
            numbers = f"its {self.known:,} different whole numbers from {self.low:.0f} to {self.high:.0f}"
            return "it counts the rows" if ordered else f"{numbers} look like row numbers"
        return "it looks like an identifier" if IDENTIFIER.search(self.name) else ""

    @property
    def numbers_rows(self) -> bool:
        """Whether all are different whole numbers."""
        return self.kind == "numeric" and self.whole and self.different == self.known > FEW

    @property
    def _dense(self) -> bool:
        return self.high - self.low < DENSE * self.known

    @property
    def caution(self) -> str:
        """A warning if a column that is used looks like numbers of rows all the same."""
        if not self.numbers_rows or not (self._dense or self.rising or self.falling):
            return ""
        how = "in the order of the rows" if self.rising or self.falling else "nearly without gaps"
        return (
            f"{WARNING}column {quoted(self.name)} holds {self.known:,} different whole numbers {how}: "
            f"if they only number the rows, leave them out with --drop {quoted(self.name)}"
        )
