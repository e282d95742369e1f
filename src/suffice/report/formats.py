"""Values in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

ABSENT = "\u2013"  # what stands for a value that is not there


def show(value: Any, digits: int = 6) -> str:
    """`value` for a reader; a dash for what is absent."""
    if isinstance(value, list | tuple):
        entries = ", ".join(show(entry, digits) for entry in value)
        return f"[{entries}]" if any(isinstance(entry, int | float) for entry in value) else entries or ABSENT
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.{digits}g}" if math.isfinite(value) else ABSENT
    return ABSENT if value is None else str(value)


def settings(params: Mapping[str, float]) -> str:
    """Parameters with four digits; a share next to one, which is not one, with as many as tell, or by what it lacks."""
    told = {name: f"{value:.4g}" for name, value in params.items()}
    for name, value in params.items():
        if 1e-8 < abs(value - 1.0) < 5e-4:
            told[name] = f"{value:.{1 - math.floor(math.log10(abs(value - 1.0)))}f}"
        elif 0.0 < abs(value - 1.0) <= 1e-8:
            told[name] = f"1 {'-' if value < 1.0 else '+'} {abs(value - 1.0):.2g}"
    return ", ".join(f"{name} = {text}" for name, text in told.items())


def interval(low: float, high: float, digits: int = 7) -> str:
    """As many digits as tell the ends apart, no more than these, rounded outwards: what is shown is proven, too."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"[{_significant(low, 6, ROUND_FLOOR)}, {_significant(high, 6, ROUND_CEILING)}]"
    size = max(abs(low), abs(high), 1e-300)
    width = max(high - low, 10.0 ** (1 - digits) * size)
    if size < 1e-4:
        known = 1 + math.floor(math.log10(size)) - math.floor(math.log10(width)) if width < size else 1
        return f"[{_significant(low, known + 1, ROUND_FLOOR)}, {_significant(high, known + 1, ROUND_CEILING)}]"
    unit = Decimal(1).scaleb(-min(max(1 - math.floor(math.log10(width)), 0), 300))
    ends = ((low, ROUND_FLOOR), (high, ROUND_CEILING))
    down, up = (Decimal(repr(float(end))).quantize(unit, rounding, Context(prec=1000)) for end, rounding in ends)
    return f"[{down:f}, {up:f}]"


def bound(value: float, *, up: bool, digits: int = 2) -> str:
    """A bound from above, or from below, rounded to the side on which it holds."""
    return f"{float(_significant(value, digits, ROUND_CEILING if up else ROUND_FLOOR)):.{digits}g}"


def _significant(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return f"{value:g}"
    return f"{Context(prec=digits, rounding=rounding).create_decimal(repr(float(value))):.{digits}g}"


def duration(seconds: float, digits: int | None = None) -> str:
    """A time in seconds, minutes or hours: to so many digits, or roughly."""
    value, unit = (seconds / 60.0, "min") if seconds < 5400.0 else (seconds / 3600.0, "h")
    if seconds < 90.0:
        value, unit = seconds, "s"
    rough = f"{value:.{int(value < 10.0 and unit != 'min')}f}"
    return f"{rough if digits is None else f'{value:.{digits}g}'} {unit}"
