"""The landscape of F with its proven lower and upper surfaces, and which penalties are ruled out, and by how much.

One parameter: the band in which F is proven to lie, over the parameter. Two: every cell in the colour of its lower
bound over the best known F, so that what cannot be better at all is told from what is open.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from suffice.arrays import Array
from suffice.globally.branch import Cell, relative

POINTS = 12  # of a cell, at which its surfaces are drawn


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
