r"""Figures of a run with matplotlib: where it went, what it asked for and got, what that cost.

`Trace` is what the figures show, as arrays; `trace(result)` takes it from any result of `tune`. All functions draw on
the Axes `ax`, or on those of a new figure that pyplot does not know, and return the Axes; `axes.figure.savefig` keeps
them. matplotlib (the extra `plot`) is imported when something is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from suffice.arrays import Array
from suffice.report.traces import (
    BLUE,
    GREY,
    LINES,
    ORANGE,
    SKY,
    Surface,
    Trace,
    cut,
    excess_ticks,
    line_name,
    parallel,
    positive,
    progress_range,
    sorted_lines,
    spread,
    surface,
    trace,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Surface",
    "Trace",
    "draw_accuracy",
    "draw_calibration",
    "draw_coefficients",
    "draw_gap",
    "draw_path",
    "draw_progress",
    "draw_regularisation_path",
    "draw_work",
    "surface",
    "trace",
]

# --- figures of a run ----------------------------------------------------------------------------------------------


def draw_path(shown: Trace, ax: Axes | None = None, parameters: Sequence[str] | None = None) -> Axes:
    """F over one parameter with proven error bars, the way over its contours for two, parallel axes for more."""
    if not shown.points.size:
        raise ValueError(f"records of a search over {len(shown.names)} parameters have no theta, and no path is drawn")
    chosen = _chosen(shown, parameters)
    axes = _axes(ax)
    if len(chosen) == 1:
        return _draw_line(shown, axes, chosen[0])
    if len(chosen) == 2:
        return _draw_plane(shown, axes, (chosen[0], chosen[1]))
    return _draw_parallel(shown, axes, chosen)


def _chosen(shown: Trace, parameters: Sequence[str] | None) -> list[int]:
    if parameters is None:
        return list(range(len(shown.names)))
    names = [parameters] if isinstance(parameters, str) else list(parameters)
    unknown = [name for name in names if name not in shown.names]
    if unknown or not names or len(set(names)) < len(names):
        raise ValueError(f"parameters must be different ones out of {', '.join(shown.names)}, got {parameters!r}")
    return [shown.names.index(name) for name in names]


def _draw_line(shown: Trace, axes: Axes, k: int) -> Axes:
    x = shown.points[:, k]
    _scales(axes, shown.logarithmic[k], spread(shown.cost))
    low, high = shown.cost - shown.low, shown.high - shown.cost
    axes.errorbar(
        x, shown.cost, (low, high), fmt="o", color=BLUE, markersize=3.5, elinewidth=1, capsize=2, label="evaluation"
    )
    at = int(np.argmin(shown.high))
    axes.plot(x[at], shown.cost[at], "*", color=ORANGE, markersize=13, label="best", zorder=5)
    axes.set(xlabel=_text(shown.names[k]), ylabel=shown.label)
    return _finished(axes)


def _draw_plane(shown: Trace, axes: Axes, pair: tuple[int, int]) -> Axes:
    from matplotlib.ticker import FixedFormatter, FixedLocator

    log_x, log_y = (shown.logarithmic[k] for k in pair)
    _scales(axes, log_x, log_y)
    made = surface(shown, pair) if len(shown.names) == 2 else None
    if made is not None:
        x, y = (10.0**grid if log else grid for grid, log in ((made.x, log_x), (made.y, log_y)))
        filled = axes.contourf(x, y, made.z, levels=made.levels, cmap="Blues_r", alpha=0.75)
        axes.contour(x, y, made.z, levels=made.levels, colors="white", linewidths=0.5)
        bar = axes.figure.colorbar(filled, ax=axes, label=f"excess of {shown.label} over the best", pad=0.02)
        ticks = excess_ticks(made.levels)
        bar.ax.yaxis.set_major_locator(FixedLocator(ticks))
        bar.ax.yaxis.set_major_formatter(FixedFormatter([f"{10.0**tick:.2g}" for tick in ticks]))
    else:
        best = shown.best_cost
        dots = axes.scatter(
            shown.points[:, pair[0]], shown.points[:, pair[1]], c=shown.cost - best, cmap="Blues_r", s=26, zorder=2
        )
        axes.figure.colorbar(dots, ax=axes, label=f"excess of {shown.label} over the best", pad=0.02)
    x, y = shown.points[:, pair[0]], shown.points[:, pair[1]]
    axes.plot(x, y, "o", color="#1c2733", markersize=2.6, label="evaluation", zorder=3)
    for number, path in enumerate(shown.paths):
        axes.plot(
            *path[:, pair].T, "-o", color=ORANGE, markersize=3.5, linewidth=1.6, zorder=4,
            label="incumbent" if number == 0 else None,
        )  # fmt: skip
    axes.plot(
        *shown.best[list(pair)], "*", color=ORANGE, markeredgecolor="white", markersize=15, label="best", zorder=5
    )
    axes.set(xlabel=_text(shown.names[pair[0]]), ylabel=_text(shown.names[pair[1]]))
    axes.set(xlim=_padded(x, log_x), ylim=_padded(y, log_y))
    return _finished(axes)


def _draw_parallel(shown: Trace, axes: Axes, chosen: list[int]) -> Axes:
    import matplotlib as mpl
    from matplotlib.lines import Line2D

    u, order = parallel(shown, chosen)
    colours = mpl.colormaps["viridis_r"](np.linspace(0.0, 1.0, len(order)))
    for rank, k in enumerate(order):
        last = rank == len(order) - 1
        axes.plot(
            u[k], color=ORANGE if last else colours[rank], linewidth=2.4 if last else 0.7, alpha=1.0 if last else 0.6
        )
    labels = [_text(shown.names[k]) for k in chosen]
    step = max(1, math.ceil(len(chosen) / 16))
    axes.set_xticks(range(0, len(chosen), step), labels[::step], rotation=30 if len(chosen) > 6 else 0)
    axes.set(ylabel="from the least to the largest value tried", xlim=(0, len(chosen) - 1))
    handles = [Line2D([], [], color=ORANGE, linewidth=2.4), Line2D([], [], color=colours[-1])]
    _finished(axes, legend=False)
    axes.legend(handles, ["best", f"darker: less {shown.label}"], frameon=False, fontsize=8, loc="upper right")
    return axes


def draw_progress(shown: Trace, ax: Axes | None = None) -> Axes:
    """F of every evaluation with its proven interval, and the least upper bound so far."""
    axes = _axes(ax)
    _scales(axes, False, spread(shown.cost))
    bars = (shown.cost - shown.low, shown.high - shown.cost)
    axes.errorbar(
        shown.numbers, shown.cost, bars, fmt="o", color=BLUE, markersize=3.5, elinewidth=1, capsize=2,
        label="evaluation, with its proven interval",
    )  # fmt: skip
    best = np.minimum.accumulate(shown.high)
    axes.step(shown.numbers, best, where="post", color=ORANGE, linewidth=1.8, label="proven to be reached")
    axes.set_ylim(*progress_range(shown))
    axes.set(xlabel="evaluation", ylabel=shown.label)
    return _finished(axes)


def draw_accuracy(shown: Trace, ax: Axes | None = None) -> Axes:
    """The accuracy asked for and the one proven, per evaluation."""
    axes = _axes(ax)
    asked, achieved = positive(shown.asked), positive(shown.achieved)
    _scales(axes, False, bool(np.isfinite(asked).any() or np.isfinite(achieved).any()))
    axes.step(shown.numbers, asked, where="mid", color=GREY, linewidth=1.6, label="asked for")
    label = "proven" if np.isfinite(achieved).any() else "proven: no error"
    axes.plot(shown.numbers, achieved, "o", color=ORANGE, markersize=4, label=label)
    axes.set(xlabel="evaluation", ylabel=shown.accuracy)
    return _finished(axes)


def draw_work(shown: Trace, ax: Axes | None = None) -> Axes:
    """The work of every evaluation, and of all so far."""
    axes = _axes(ax)
    total = np.cumsum(shown.work)
    _scales(axes, False, bool(total[-1] > 0.0))
    axes.bar(shown.numbers, shown.work, color=SKY, width=0.85, label="this evaluation")
    axes.step(shown.numbers, positive(total), where="mid", color=BLUE, linewidth=1.6, label="all so far")
    if total[-1] > 0.0:
        axes.set_ylim(bottom=0.5 * float(positive(shown.work)[np.isfinite(positive(shown.work))].min()))
    axes.set(xlabel="evaluation", ylabel="work")
    return _finished(axes)


def draw_gap(history: Sequence[Sequence[float]], ax: Axes | None = None) -> Axes:
    """The gap that a global certificate has proven after so many evaluations; pairs of both."""
    axes = _axes(ax)
    x, y = np.array(history, dtype=np.float64).T
    _scales(axes, False, bool(np.all(y > 0.0)))
    axes.step(x, 100.0 * y, where="post", color=ORANGE, linewidth=1.6, label="proven so far")
    axes.set(xlabel="evaluation", ylabel="proven gap, %")
    return _finished(axes)


# --- figures of a linear model, from the plain data of a search ----------------------------------------------------


def draw_regularisation_path(data: dict[str, Any], ax: Axes | None = None) -> Axes:
    """Coefficients against the multiple of the best penalties."""
    axes = _axes(ax)
    axes.set_xscale("log")
    x = data["multiples"]
    for k, line in enumerate(sorted_lines(data)):
        named = k < len(LINES)
        axes.plot(x, line["values"], color=LINES[k] if named else "#c4cad2", linewidth=1.4 if named else 0.7,
                  label=line_name(line).replace("$", r"\$") if named else None, zorder=2 if named else 1)  # fmt: skip
    axes.axvline(1.0, color="#1c2733", linestyle=":", linewidth=1.2, label="best penalties")
    axes.set(xlabel="multiple of the best penalties", ylabel="coefficient")
    _finished(axes, legend=False)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return axes


def _text(name: str) -> str:
    """A name as matplotlib shows it, not as mathematics."""
    return cut(name).replace("$", r"\$")


def draw_calibration(data: dict[str, Any], ax: Axes | None = None) -> Axes:
    """Reliability curves, margins per class, or predictions against the truth: whichever `data` holds."""
    axes = _axes(ax)
    if data["kind"] == "reliability":
        axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", label="perfect")
        for k, curve in enumerate(data["curves"]):
            p, share = np.array(curve["predicted"]), np.array(curve["observed"])
            bars = np.maximum([share - curve["low"], np.array(curve["high"]) - share], 0.0)
            look: dict[str, Any] = {
                "fmt": "-o",
                "color": LINES[k % len(LINES)],
                "markersize": 4,
                "linewidth": 1.4,
                "elinewidth": 0.9,
            }
            shown = bars if len(data["curves"]) <= 3 else None
            axes.errorbar(p, share, shown, capsize=2, label=f"class {_text(curve['label'])}", **look)
        axes.set(xlabel="predicted probability", ylabel="share of rows of the class", xlim=(0, 1), ylim=(0, 1))
    elif data["kind"] == "margins":
        for k, (label, counts) in enumerate(zip(data["labels"], data["counts"], strict=True)):
            axes.stairs(
                counts, data["edges"], fill=True, alpha=0.55, color=LINES[k % len(LINES)], label=f"class {_text(label)}"
            )
        axes.axvline(0.0, color="#1c2733", linestyle=":", linewidth=1.2, label="decision")
        axes.set(xlabel="decision function, rows not seen in training", ylabel="rows")
    else:
        true, predicted = data["true"], data["predicted"]
        ends = [min(*true, *predicted), max(*true, *predicted)]
        axes.plot(ends, ends, color=GREY, linestyle=":", label="perfect")
        axes.plot(true, predicted, "o", color=BLUE, markersize=3, alpha=0.5, label="row not seen in training")
        axes.set(xlabel="true", ylabel="predicted")
    return _finished(axes)


def draw_coefficients(data: dict[str, Any], ax: Axes | None = None, most: int = 25) -> Axes:
    """The largest coefficients of the final model as bars."""
    axes = _axes(ax)
    names = [_text(name) for name in data["names"][:most]][::-1]
    outputs = len(data["outputs"])
    for k in range(outputs):
        values = data["values"][k][:most][::-1]
        y = np.arange(len(names)) + (0.5 - (k + 0.5) / outputs) * 0.8
        axes.barh(y, values, height=0.8 / outputs, color=LINES[k % len(LINES)], label=_text(data["outputs"][k]) or None)
    axes.axvline(0.0, color="#1c2733", linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="coefficient")
    return _finished(axes, legend=outputs > 1)


# --- axes ----------------------------------------------------------------------------------------------------------


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install suffice[plot]") from error
    return Figure(figsize=(7.2, 4.4), layout="constrained").subplots()


def _scales(axes: Axes, log_x: bool, log_y: bool) -> None:
    axes.set_xscale("log" if log_x else "linear")
    axes.set_yscale("log" if log_y else "linear")


def _padded(values: Array, logarithmic: bool) -> tuple[float, float]:
    """The range of values with a margin."""
    u = np.log10(values) if logarithmic else values
    low, high = float(u.min()), float(u.max())
    pad = 0.05 * (high - low) or 0.5
    return (10.0 ** (low - pad), 10.0 ** (high + pad)) if logarithmic else (low - pad, high + pad)


def _finished(axes: Axes, legend: bool = True) -> Axes:
    axes.grid(True, color="#e6e9ee", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    if legend:
        axes.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize=8)
    return axes
