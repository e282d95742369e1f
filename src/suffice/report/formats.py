"""Values in words."""

from __future__ import annotations

import math
from typing import Any

ABSENT = "\u2013"  # what stands for a value that is not there


def number(value: Any) -> float:
    """`value` as a float; NaN for what is absent or not a number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def show(value: Any, digits: int = 6) -> str:
    """`value` for a reader; a dash for what is absent."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(show(entry, digits) for entry in value) + "]"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.{digits}g}" if math.isfinite(value) else ABSENT
    return ABSENT if value is None else str(value)
