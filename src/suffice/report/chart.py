r"""Figures as data: a `Panel` is a pair of axes with marks on it.

It knows nothing about the library that draws it: `report.still` does with matplotlib, `report.svg` as part of a page.
Absent values (NaN) are gaps. Texts are plain, and "\n" begins a new line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

BLUE, ORANGE, GREEN, PINK, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9"  # Okabe and Ito
INK, GREY, PALE, RULE = "#1c2733", "#8a94a0", "#c4cad2", "#e6e9ee"
LINES = (BLUE, ORANGE, GREEN, PINK, SKY, "#E69F00", "#000000", "#B2A100", "#7F3C8D", "#666666")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

Numbers = Sequence[float] | Any  # or an array


@dataclass(frozen=True, eq=False)
class Scale:
    """What colours mean: from `low` to `high` along `colours`, pairs of a place in [0, 1] and a colour."""

    label: str
    low: float
    high: float
    colours: tuple[tuple[float, str], ...]
    ticks: Mapping[float, str]


@dataclass(frozen=True, eq=False)
class Line:
    """A curve, or points if it is not `joined`. `hover` is a text per point, `bars` are the ends of vertical intervals
    around them; `listed` says whether the legend names it."""

    name: str
    colour: str
    x: Numbers
    y: Numbers
    hover: Sequence[str] | None = None
    symbol: str = ""
    dash: Literal["solid", "dashed", "dotted"] = "solid"
    steps: Literal["", "post", "mid"] = ""
    joined: bool = True
    listed: bool = True
    width: float = 1.6
    size: float = 4.0
    bars: tuple[Numbers, Numbers] | None = None
    opacity: float = 1.0


@dataclass(frozen=True, eq=False)
class Band:
    """What lies between two curves."""

    colour: str
    x: Numbers
    low: Numbers
    high: Numbers


@dataclass(frozen=True, eq=False)
class Bars:
    """Bars from 0, of this thickness, around the places `at`: upright, or along x if they are `flat`."""

    name: str
    colour: str
    at: Numbers
    lengths: Numbers
    thickness: Numbers
    hover: Sequence[str] | None = None
    flat: bool = False
    opacity: float = 1.0


@dataclass(frozen=True, eq=False)
class Dots:
    """Points in the colours of their values."""

    x: Numbers
    y: Numbers
    values: Numbers
    scale: Scale
    hover: Sequence[str] | None = None


@dataclass(frozen=True, eq=False)
class Cells:
    """Rectangles (x0, y0, x1, y1), in the colours of their values or all in one; `words` tell of one, {} standing for
    its entry of `numbers`."""

    ends: Any
    values: Any
    numbers: Any
    words: str
    scale: Scale | None = None
    name: str = ""
    colour: str = ""


Mark = Line | Band | Bars | Dots | Cells


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes, x and y being their labels.

    `level` is a dotted line across, `upright` one from top to bottom with its name, `shaded` are grey ranges of x.
    `ends` are ranges, and `ticks` and `y_ticks` texts at places of an axis. The legend is inside, outside, or absent;
    `height` is in pixels of a screen.
    """

    title: str
    x: str
    y: str
    marks: Sequence[Mark]
    log_x: bool = False
    log_y: bool = False
    level: float | None = None
    upright: tuple[float, str] | None = None
    shaded: tuple[tuple[float, float], ...] = ()
    ticks: Mapping[float, str] = field(default_factory=dict)
    y_ticks: Mapping[float, str] = field(default_factory=dict)
    x_ends: tuple[float, float] | None = None
    y_ends: tuple[float, float] | None = None
    legend: Literal["inside", "outside", ""] = "inside"
    height: int = 420
