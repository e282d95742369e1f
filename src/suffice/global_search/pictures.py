"""The landscape of F with its proven lower and upper surfaces, and which penalties are ruled out, and by how much.

One parameter: the band in which F is proven to lie, over the parameter. Two: every cell in the colour of its lower
bound over the best known F, so that what cannot be better at all is told from what is open. Drawn with matplotlib, the
extra `plot`, which is imported when something is drawn.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from suffice.arrays import Array

if TYPE_CHECKING:
    from suffice.global_search.certificate import GlobalCertificate

POINTS = 12  # of a cell, at which its surfaces are drawn
HIGHEST = 2.0  # times the best known F: what is drawn at most
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#777777"


def draw(certificate: GlobalCertificate, ax: Any = None) -> Any:
    """The picture on the Axes `ax`, or on those of a new figure; returns the Axes."""
    if ax is None:
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("figures need matplotlib: pip install suffice[plot]") from error
        ax = Figure(figsize=(7.2, 4.4), layout="constrained").subplots()
    (_line if len(certificate.space) == 1 else _plane)(certificate, ax)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def shown_ends(low: float, high: float) -> tuple[float, float]:
    """Ends of a cell on a logarithmic scale: 0 and infinity are cut off."""
    high = high if math.isfinite(high) else 10.0 * max(low, 0.1)
    return (low if low > 0.0 else 1e-3 * high), high


def surfaces(certificate: GlobalCertificate) -> tuple[Array, Array, Array]:
    """Of one parameter: its values, and the proven lower and upper bounds of F there."""
    rows = []
    for cell in sorted(certificate.cells, key=lambda cell: float(cell.low[0])):
        low, high = shown_ends(float(cell.low[0]), float(cell.high[0]))
        for t in np.geomspace(low, high, POINTS):
            rows.append((t, *cell.interval(np.clip(np.array([t]), cell.low, cell.high))))
    x, lower, upper = np.array(rows).T
    return x, lower, upper


def _line(certificate: GlobalCertificate, ax: Any) -> None:
    (name,), best = certificate.space.names, certificate.upper
    x, lower, upper = surfaces(certificate)
    top = HIGHEST * best
    ax.fill_between(x, np.minimum(lower, top), np.minimum(upper, top), color=BLUE, alpha=0.25, linewidth=0.0)
    ax.plot(x, np.minimum(lower, top), color=BLUE, linewidth=1.2, label="F is proven to lie in the band")
    ax.axhline(best, color=ORANGE, linewidth=1.0, label="best known F")
    ax.plot(certificate.params[name], best, "o", color=ORANGE, markersize=5)
    out = lower > best
    ax.fill_between(x, 0.0, 0.03, where=out, transform=ax.get_xaxis_transform(), color=GREY, alpha=0.6, linewidth=0.0)
    ax.plot([], [], color=GREY, linewidth=5, alpha=0.6, label="proven to be worse")
    ax.set(xscale="log", xlabel=name, ylabel="F", ylim=(max(0.0, 0.97 * certificate.lower), 1.02 * top))
    ax.set_title(f"no {name} is better by more than {100.0 * certificate.gap:.2g} %", fontsize=10)
    ax.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize=8)


def _plane(certificate: GlobalCertificate, ax: Any) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    patches, excess = [], []
    for cell in certificate.cells:
        (x0, x1), (y0, y1) = (shown_ends(float(a), float(b)) for a, b in zip(cell.low, cell.high, strict=True))
        patches.append(Rectangle((x0, y0), x1 - x0, y1 - y0))
        excess.append(100.0 * (cell.lower / certificate.upper - 1.0))
    values = np.array(excess)
    norm = LogNorm(vmin=0.1, vmax=max(100.0, float(values.max(initial=1.0))))
    shades = PatchCollection(patches, cmap="Blues", norm=norm, edgecolor="#c8ccd2", linewidth=0.3)
    shades.set_array(np.maximum(values, 0.1))
    ax.add_collection(shades)
    open_cells = [patch for patch, value in zip(patches, values, strict=True) if value <= 0.0]
    ax.add_collection(PatchCollection(open_cells, facecolor=ORANGE, alpha=0.35, linewidth=0.0))
    ax.plot(
        [], [], "s", color=ORANGE, alpha=0.35, label=f"not ruled out: at most {100.0 * certificate.gap:.2g} % better"
    )
    first, second = certificate.space.names
    ax.plot(certificate.params[first], certificate.params[second], "o", color="black", markersize=5, label="best known")
    ends = [shown_ends(*certificate.space.ranges[name]) for name in (first, second)]
    ax.set(xscale="log", yscale="log", xlabel=first, ylabel=second, xlim=ends[0], ylim=ends[1])
    ax.figure.colorbar(shades, ax=ax, label="proven to be worse by at least, %")
    ax.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize=8, loc="upper right")
