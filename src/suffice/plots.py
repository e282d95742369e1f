"""Figures of a run with matplotlib: where it went, what it asked for and got, what that cost.

`Trace` is what the figures show, as arrays; `trace(result)` takes it from any result of `tune`. All functions draw on
the Axes `ax`, or on those of a new figure that pyplot does not know, and return the Axes; `axes.figure.savefig` keeps
them. matplotlib (the extra `plot`) is imported when something is drawn.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from suffice.report import figures
from suffice.report.chart import GREY, RULE, Line, Mark, Panel, Scale
from suffice.report.figures import Trace, trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Trace", "draw_accuracy", "draw_calibration", "draw_coefficients", "draw_coverage", "draw_influence"]
__all__ += ["draw_landscape", "draw_path", "draw_progress", "draw_regularisation_path", "draw_work", "trace"]


def draw_panel(panel: Panel, ax: Axes | None = None) -> Axes:
    """`panel` on the Axes `ax`, or on those of a new figure, which pyplot does not know; returns the Axes."""
    axes = new_figure(7.2, 4.4 * panel.height / 420.0).subplots() if ax is None else ax
    from matplotlib.ticker import MaxNLocator, NullLocator

    axes.set_xscale("log" if panel.log_x else "linear")
    axes.set_yscale("log" if panel.log_y else "linear")
    axes.set(**{key: ends for key, ends in (("xlim", panel.x_ends), ("ylim", panel.y_ends)) if ends})
    for low, high in panel.shaded:
        axes.axvspan(low, high, color="#EEEEEE", linewidth=0, zorder=0)
    if panel.level is not None:
        axes.axhline(panel.level, color=GREY, linestyle=":", linewidth=1.1, zorder=1)
    for mark in panel.marks:
        _mark(axes, mark)
    if panel.ticks:
        texts = [_plain(text) for text in panel.ticks.values()]
        axes.set_xticks(list(panel.ticks), texts, rotation=30 if max(map(len, texts)) * len(texts) > 100 else 0)
    if panel.y_ticks:
        axes.set_yticks(list(panel.y_ticks), [_plain(text) for text in panel.y_ticks.values()])
    axes.set(xlabel=_plain(panel.x), ylabel=_plain(panel.y))
    if panel.scale is not None:
        _colour_bar(axes, panel.scale)
    for axis, log, ends in ((axes.xaxis, panel.log_x, axes.get_xlim()), (axes.yaxis, panel.log_y, axes.get_ylim())):
        if log and ends[1] < 10.0 * ends[0]:  # where every tick between powers of ten would have its number
            axis.set_major_locator(MaxNLocator(4))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter("{x:.3g}")
    axes.set_title(_plain(panel.title), fontsize=10)
    axes.grid(True, color=RULE, linewidth=0.6, axis="y" if panel.shaded else "both")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8.5)
    if panel.legend == "outside":
        axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    elif panel.legend:
        axes.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize=8)
    return axes


def new_figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install suffice[plot]") from error
    return Figure(figsize=(width, height), layout="constrained")


def _plain(text: str) -> str:
    """A text as it is, not as mathematics."""
    return text.replace("$", r"\$")


def _mark(axes: Axes, mark: Mark) -> None:
    colour: Any = mark.colour
    if not isinstance(mark, Line):
        x0, y0, x1, y1 = np.asarray(mark.ends, dtype=np.float64).reshape(-1, 4).T
        edge: Any = {} if isinstance(colour, str) else {"edgecolor": GREY}
        edge |= {"linewidth": 0.3 if edge else 0.0, "label": _plain(mark.name) or None, "alpha": mark.opacity}
        axes.bar(x0, y1 - y0, x1 - x0, y0, align="edge", color=colour, **edge)
    elif mark.dash == "filled":
        axes.fill(mark.x, mark.y, color=colour, alpha=mark.opacity, linewidth=0.0, label=_plain(mark.name) or None)
    elif not isinstance(colour, str):
        axes.scatter(mark.x, mark.y, c=colour, s=26, edgecolors=GREY, linewidths=0.5)
    else:
        look: dict[str, Any] = {
            "color": colour,
            "linestyle": mark.dash if mark.joined else "none",
            "linewidth": mark.width,
            "marker": mark.symbol or None,
            "markersize": mark.size,
            "drawstyle": f"steps-{mark.steps}" if mark.steps else "default",
            "alpha": mark.opacity,
            "label": _plain(mark.name) if mark.listed else None,
        }
        if mark.symbol == "*":
            look |= {"markeredgecolor": "white", "markeredgewidth": 0.8, "zorder": 5, "clip_on": False}
        if mark.bars is None:
            axes.plot(mark.x, mark.y, **look)
        else:
            ends = np.maximum([np.subtract(mark.y, mark.bars[0]), np.subtract(mark.bars[1], mark.y)], 0.0)
            axes.errorbar(mark.x, mark.y, ends, elinewidth=0.6 * mark.width, capsize=2, **look)


def _colour_bar(axes: Axes, scale: Scale) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    colours = LinearSegmentedColormap.from_list("", scale.colours)
    mapped = ScalarMappable(Normalize(scale.low, scale.high), colours)
    bar = axes.figure.colorbar(mapped, ax=axes, label=_plain(scale.label), pad=0.02)
    bar.outline.set_visible(False)
    bar.set_ticks(list(scale.ticks), labels=list(scale.ticks.values()))


def _drawing(figure: Callable[..., Panel]) -> Callable[..., Axes]:
    """What draws this figure: `ax` comes after what it shows."""

    first, *others = inspect.signature(figure).parameters.values()
    ax = inspect.Parameter("ax", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    signature = inspect.Signature([first, ax, *others])

    @wraps(figure)
    def draw(*given: Any, **named: Any) -> Axes:
        chosen = signature.bind(*given, **named).arguments
        return draw_panel(figure(**{name: chosen[name] for name in chosen if name != "ax"}), chosen.get("ax"))

    del draw.__wrapped__  # Sphinx would look for the default of `ax` in its source
    draw.__signature__ = signature  # type: ignore[attr-defined]
    return draw


draw_path = _drawing(figures.path)
draw_progress = _drawing(figures.progress)
draw_accuracy = _drawing(figures.accuracy)
draw_work = _drawing(figures.work)
draw_landscape = _drawing(figures.landscape)
draw_regularisation_path = _drawing(figures.regularisation_path)
draw_calibration = _drawing(figures.calibration)
draw_coefficients = _drawing(figures.coefficients)
draw_coverage = _drawing(figures.coverage)


def influence(shown: Any) -> Panel:
    """Between which numbers coefficients lie without any one row: of `suffice.influence`."""
    return figures.influence(shown.ranges())


draw_influence = _drawing(influence)
