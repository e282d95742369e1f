"""The landscape of F with its proven lower and upper surfaces, and which penalties are ruled out, and by how much.

One parameter: the band in which F is proven to lie, over the parameter. Two: every cell in the colour of its lower
bound over the best known F, so that what cannot be better at all is told from what is open. `Landscape` is what is
drawn, in plain numbers. Drawn with matplotlib, the extra `plot`, which is imported when something is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.globally.branch import Cell, relative

POINTS = 12  # of a cell, at which its surfaces are drawn
HIGHEST = 2.0  # times the best known F: what is drawn at most
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#777777"


@dataclass(frozen=True, eq=False)
class Landscape:
    """What is proven of F over the space, as pictures show it: 0 and infinity are cut off."""

    names: tuple[str, ...]
    best: Array
    lower: float  # of F, everywhere
    upper: float  # the best known F
    cells: Array  # one a row: lower ends, upper ends, lower bound of F
    line: Array  # of one parameter: its values, and the lower and upper bounds of F there; else empty

    @classmethod
    def of(
        cls, names: Iterable[str], best: Iterable[float], lower: float, upper: float, cells: tuple[Cell, ...]
    ) -> Landscape:
        names = tuple(names)
        ends = [[_shown(a, b) for a, b in zip(cell.low, cell.high, strict=True)] for cell in cells]
        rows = [
            [*(low for low, _ in end), *(high for _, high in end), cell.lower]
            for end, cell in zip(ends, cells, strict=True)
        ]
        line = _line_of(cells) if len(names) == 1 else np.empty((0, 3))
        return cls(names, np.array(list(best)), lower, upper, np.array(rows), line)

    @property
    def gap(self) -> float:
        return relative(self.lower, self.upper)

    @property
    def gap_in_percent(self) -> str:
        """With two digits, rounded up: it is a bound."""
        percent = 100.0 * self.gap
        unit = 10.0 ** (math.floor(math.log10(percent)) - 1) if 0.0 < percent < math.inf else 1.0
        return f"{math.ceil(percent / unit) * unit:.2g}" if math.isfinite(percent) else "inf"

    @property
    def ends(self) -> list[tuple[float, float]]:
        """From where to where each parameter is drawn."""
        m = len(self.names)
        return [(float(self.cells[:, k].min()), float(self.cells[:, m + k].max())) for k in range(m)]

    @property
    def excess(self) -> Array:
        """By how many percent each cell is proven to be worse than the best known F; negative if it may be better."""
        found: Array = 100.0 * (self.cells[:, -1] / self.upper - 1.0)
        return found


def _shown(low: float, high: float) -> tuple[float, float]:
    """Ends of a cell on a logarithmic scale."""
    high = float(high) if math.isfinite(high) else 10.0 * max(float(low), 0.1)
    return (float(low) if low > 0.0 else 1e-3 * high), high


def _line_of(cells: tuple[Cell, ...]) -> Array:
    rows = []
    for cell in sorted(cells, key=lambda cell: float(cell.low[0])):
        for t in np.geomspace(*_shown(float(cell.low[0]), float(cell.high[0])), POINTS):
            rows.append((t, *cell.interval(np.clip(np.array([t]), cell.low, cell.high))))
    return np.array(rows)


def draw(landscape: Landscape, ax: Any = None) -> Any:
    """The picture on the Axes `ax`, or on those of a new figure; returns the Axes."""
    if ax is None:
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("figures need matplotlib: pip install suffice[plot]") from error
        ax = Figure(figsize=(7.2, 4.4), layout="constrained").subplots()
    (_line if len(landscape.names) == 1 else _plane)(landscape, ax)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _line(landscape: Landscape, ax: Any) -> None:
    (name,), best = landscape.names, landscape.upper
    x, lower, upper = landscape.line.T
    top = HIGHEST * best
    ax.fill_between(x, np.minimum(lower, top), np.minimum(upper, top), color=BLUE, alpha=0.25, linewidth=0.0)
    ax.plot(x, np.minimum(lower, top), color=BLUE, linewidth=1.2, label="F is proven to lie in the band")
    ax.axhline(best, color=ORANGE, linewidth=1.0, label="best known F")
    ax.plot(landscape.best[0], best, "o", color=ORANGE, markersize=5)
    out = lower > best
    ax.fill_between(x, 0.0, 0.03, where=out, transform=ax.get_xaxis_transform(), color=GREY, alpha=0.6, linewidth=0.0)
    ax.plot([], [], color=GREY, linewidth=5, alpha=0.6, label="proven to be worse")
    ax.set(xscale="log", xlabel=name, ylabel="F", ylim=(max(0.0, 0.97 * landscape.lower), 1.02 * top))
    ax.set_title(f"no {name} is better by more than {landscape.gap_in_percent} %", fontsize=10)
    ax.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize=8)


def _plane(landscape: Landscape, ax: Any) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    patches = [Rectangle((x0, y0), x1 - x0, y1 - y0) for x0, y0, x1, y1, _ in landscape.cells]
    values = landscape.excess
    norm = LogNorm(vmin=0.1, vmax=max(100.0, float(values.max(initial=1.0))))
    shades = PatchCollection(patches, cmap="Blues", norm=norm, edgecolor="#c8ccd2", linewidth=0.3)
    shades.set_array(np.maximum(values, 0.1))
    ax.add_collection(shades)
    open_cells = [patch for patch, value in zip(patches, values, strict=True) if value <= 0.0]
    ax.add_collection(PatchCollection(open_cells, facecolor=ORANGE, alpha=0.35, linewidth=0.0))
    ax.plot([], [], "s", color=ORANGE, alpha=0.35, label=f"not ruled out: at most {landscape.gap_in_percent} % better")
    first, second = landscape.names
    ax.plot(*landscape.best, "o", color="black", markersize=5, label="best known")
    x, y = landscape.ends
    ax.set(xscale="log", yscale="log", xlabel=first, ylabel=second, xlim=x, ylim=y)
    ax.figure.colorbar(shades, ax=ax, label="proven to be worse by at least, %")
    ax.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize=8, loc="upper right")
