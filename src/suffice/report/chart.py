r"""Figures as data: a `Panel` is a pair of axes with marks on it.

It knows nothing about the library that draws it: `suffice.plots` does with matplotlib, `report.svg` as part of a page.
Absent values (NaN) are gaps. Texts are plain, and "\n" begins a new line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

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

    def shades(self, values: Numbers) -> list[str]:
        """The colours of values, those of the ends beyond them."""
        share = np.nan_to_num((np.asarray(values, dtype=np.float64) - self.low) / (self.high - self.low))
        places, known = zip(*((place, bytes.fromhex(colour[1:])) for place, colour in self.colours), strict=True)
        channels = [np.interp(share, places, [colour[k] for colour in known]) for k in range(3)]
        return [f"#{bytes(round(one) for one in rgb).hex()}" for rgb in zip(*channels, strict=True)]


@dataclass(frozen=True, eq=False)
class Line:
    """A curve, or points if it is not `joined`; "filled", what it encloses. `colour` may be one per point, `hover` is a
    text for each, `bars` are the ends of vertical intervals around them; `listed` says whether the legend names it."""

    name: str
    colour: str | Sequence[str]
    x: Numbers
    y: Numbers
    hover: Sequence[str] | None = None
    symbol: str = ""
    dash: Literal["solid", "dashed", "dotted", "filled"] = "solid"
    steps: Literal["", "post", "mid"] = ""
    joined: bool = True
    listed: bool = True
    width: float = 1.6
    size: float = 4.0
    bars: tuple[Numbers, Numbers] | None = None
    opacity: float = 1.0


@dataclass(frozen=True, eq=False)
class Boxes:
    """Rectangles with the corners (x0, y0) and (x1, y1), rows of `ends`; `colour` may be one for each."""

    name: str
    colour: str | Sequence[str]
    ends: Any
    hover: Sequence[str] | None = None
    opacity: float = 1.0


Mark = Line | Boxes


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes, x and y being their labels.

    `level` is a dotted line across, `shaded` are grey ranges of x, `scale` is what colours of points mean. `ends` are
    ranges, and `ticks` and `y_ticks` texts at places of an axis. The legend is inside, outside, or absent; `height` is
    in pixels of a screen.
    """

    title: str
    x: str
    y: str
    marks: Sequence[Mark]
    log_x: bool = False
    log_y: bool = False
    level: float | None = None
    shaded: tuple[tuple[float, float], ...] = ()
    scale: Scale | None = None
    ticks: Mapping[float, str] = field(default_factory=dict)
    y_ticks: Mapping[float, str] = field(default_factory=dict)
    x_ends: tuple[float, float] | None = None
    y_ends: tuple[float, float] | None = None
    legend: Literal["inside", "outside", ""] = "inside"
    height: int = 420


def cut(text: str, most: int = 40) -> str:
    """A name that leaves room for the figure."""
    return text if len(text) <= most else text[: most - 1] + "…"
