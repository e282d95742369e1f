"""Dates and times as columns that a linear model can use.

ISO 8601 as people write it: `2024-03-31`, `2024/3/31`, `2024-03`, `2024-03-31 14:30:05.5`, with `T` between and `Z` or
`+02:00` at the end. An entry becomes t, seconds since 1970 in UTC (without a zone: as if it were), and t becomes

    NAME: days      t / 86400, the time that has passed, a number
    NAME: year      a number
    NAME: month     a category, as are the next two: their effects need not rise or fall
    NAME: weekday
    NAME: hour      only where there are times of the day

None of it depends on other rows.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
from numpy.typing import NDArray

DAY = 86400.0
PARTS = ("days", "year", "month", "weekday")
_PATTERN = re.compile(
    r"(\d{4})([-/])(\d{1,2})(?:\2(\d{1,2}))?"
    r"(?:[T ]\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?\s*(Z|[+-]\d{2}:?\d{2})?)?",
    re.ASCII,
)
_START = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = np.array(["January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
                    "November", "December"], object)  # fmt: skip
_DAYS = np.array(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"], object)
_HOURS = np.array([f"{hour:02d}" for hour in range(24)], object)

Array = NDArray[Any]


def seconds(entry: str) -> float | None:
    """Seconds since 1970; None if the entry is no date."""
    found = _PATTERN.fullmatch(entry)
    if found is None:
        return None
    year, _, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        at = datetime(int(year), int(month), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0),
                      tzinfo=_zone(zone))  # fmt: skip
        return (at - _START).total_seconds() + (float(f"0.{fraction}") if fraction else 0.0)
    except (ValueError, OverflowError):
        return None


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return timezone(-offset if text[0] == "-" else offset)


def described(clock: bool) -> str:
    return ", ".join((*PARTS, "hour")[: 5 if clock else 4])


def parts(values: Array, clock: bool) -> dict[str, Array]:
    """Columns of the module's text: floats with NaN, and texts with None, where a date is missing."""
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
