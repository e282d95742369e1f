r"""Figures of a run with matplotlib: where it went, what it asked for and got, what that cost.

`Trace` is what the figures show, as arrays; `trace(result)` takes it from any result of `tune`. All functions draw on
the Axes `ax`, or on those of a new figure that pyplot does not know, and return the Axes; `axes.figure.savefig` keeps
them. matplotlib (the extra `plot`) is imported when something is drawn.

The surface under a path of two parameters is interpolated from the evaluations made: thin-plate splines through
log10(F - F_best + eps), eps a hundredth of the median excess, inside the convex hull of the points, or in the
box around it where that is little more. It is an illustration. What is proven is at the points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from suffice._array import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from suffice.result import Result

BLUE, ORANGE, GREEN, PINK, SKY, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#8a94a0"  # Okabe, Ito
LINES = (BLUE, ORANGE, GREEN, PINK, SKY, "#E69F00", "#000000", "#B2A100", "#7F3C8D", "#666666")
MOST_INTERPOLATED = 300
CELLS = 120


@dataclass(frozen=True)
class Trace:
    """The evaluations of a run, in the order in which they were made; parameters are in the user's units."""

    names: tuple[str, ...]
    logarithmic: tuple[bool, ...]
    points: Array  # evaluations x parameters
    cost: Array
    low: Array
    high: Array
    asked: Array  # infinite where anything would have done
    achieved: Array
    work: Array
    paths: tuple[Array, ...]  # incumbents, one path per start
    best: Array
    label: str = "F"
    accuracy: str = "error of a residual"

    @property
    def numbers(self) -> Array:
        return np.arange(1.0, len(self.cost) + 1.0)

    def coordinates(self, points: Array) -> Array:
        """Points as the axes have them: log10 where an axis is logarithmic."""
        u = np.array(points, dtype=np.float64)
        for k, logarithmic in enumerate(self.logarithmic):
            if logarithmic:
                u[..., k] = np.log10(u[..., k])
        return u

    @property
    def best_cost(self) -> float:
        """The least proven upper bound."""
        return float(self.high.min())


def trace(result: Result) -> Trace:
    """What figures show of a result; a run from many starts shows the evaluations of all of them."""
    runs = result.starts or (result,)
    records = [record for run in runs for record in run.history if math.isfinite(record.cost)]
    if not records:
        raise ValueError(f"there is nothing to draw, no evaluation was made: {result.message}")
    space = result.space

    def params(thetas: Any) -> Array:
        if space is None:
            return np.array(thetas, dtype=np.float64)
        return np.array([list(space.params(np.array(theta)).values()) for theta in thetas])

    names = tuple(f"theta[{k}]" for k in range(len(result.theta))) if space is None else tuple(space.names)
    weights = result.policy == "weights"
    achieved = [(record.distance if weights else record.error) or 0.0 for record in records]
    return Trace(
        names,
        tuple(space is not None and space.logarithmic(name) for name in names),
        params([record.theta for record in records]),
        np.array([record.cost for record in records]),
        np.array([record.interval[0] for record in records]),
        np.array([record.interval[1] for record in records]),
        np.array([record.within for record in records]),
        np.array(achieved),
        np.array([record.work for record in records], dtype=np.float64),
        tuple(_changes(params([record.incumbent for record in run.history])) for run in runs if run.history),
        params([result.theta])[0],
        accuracy="distance of the weights" if weights else "error of a residual",
    )


def _changes(points: Array) -> Array:
    """Consecutive points that differ."""
    keep = [k for k in range(len(points)) if k == 0 or not np.array_equal(points[k], points[k - 1])]
    return points[keep]


# --- the surface ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Surface:
    """log10 of the excess over the best on a grid of coordinates, NaN outside the hull of the points."""

    x: Array
    y: Array
    z: Array  # y by x
    levels: Array


def surface(shown: Trace, pair: tuple[int, int] = (0, 1)) -> Surface | None:
    """F between the evaluations, or None where they do not span a plane."""
    from scipy.interpolate import RBFInterpolator
    from scipy.spatial import Delaunay, QhullError

    u = shown.coordinates(shown.points)[:, pair]
    chosen: dict[tuple[float, ...], int] = {}
    for k in np.argsort(shown.high - shown.low, kind="stable").tolist():  # of many looks at a point the sharpest
        chosen.setdefault(tuple(u[k].tolist()), k)
    span = np.ptp(u, axis=0)
    if len(chosen) < 4 or not (np.isfinite(u).all() and (span > 0.0).all()):
        return None
    kept: list[int] = []
    for k in sorted(chosen.values(), key=lambda k: shown.high[k]):
        if all(np.max(np.abs(u[k] - u[j]) / span) > 0.004 for j in kept):  # close points make splines swing
            kept.append(k)
    kept = kept[:MOST_INTERPOLATED]
    v, cost = u[kept] / span, shown.cost[kept]
    excess = cost - cost.min()
    eps = 0.01 * float(np.median(excess)) or 0.01 * float(excess.max())
    if len(kept) < 4 or not (math.isfinite(eps) and eps > 0.0):
        return None
    z = np.log10(excess + eps)
    try:
        hull = Delaunay(v)
        spline = RBFInterpolator(v, z, smoothing=1e-8)
        x, y = (np.linspace(u[:, k].min(), u[:, k].max(), CELLS) for k in (0, 1))
        grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2) / span
        inside = hull.find_simplex(grid) >= 0
        inside |= inside.mean() > 0.6  # corners of the box that are little more than the hull
        values = np.where(inside, np.clip(spline(grid), z.min(), z.max()), math.nan)
    except (QhullError, np.linalg.LinAlgError):
        return None
    return Surface(x, y, values.reshape(CELLS, CELLS), np.linspace(z.min(), z.max(), 15))


def excess_ticks(levels: Array) -> list[float]:
    """Round excesses for a colour bar: log10 of 1, 2 and 5 times powers of ten, few enough to be read."""
    low, high = float(levels[0]), float(levels[-1])
    for digits in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
        ticks = [k + math.log10(d) for k in range(math.floor(low), math.ceil(high) + 1) for d in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 3:
            break
    return ticks[:: max(1, math.ceil(len(ticks) / 7))]


# --- figures of a run ----------------------------------------------------------------------------------------------


def draw_path(shown: Trace, ax: Axes | None = None, parameters: Sequence[str] | None = None) -> Axes:
    """F over one parameter with proven error bars, the way over its contours for two, parallel axes for more."""
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
    _scales(axes, shown.logarithmic[k], _spread(shown.cost))
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

    u = shown.coordinates(shown.points)[:, chosen]
    low, span = u.min(axis=0), np.ptp(u, axis=0)
    u = np.where(span > 0.0, (u - low) / np.where(span > 0.0, span, 1.0), 0.5)
    order = np.argsort(-shown.high, kind="stable")
    colours = mpl.colormaps["viridis_r"](np.linspace(0.0, 1.0, len(order)))
    for rank, k in enumerate(order.tolist()):
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
    _scales(axes, False, _spread(shown.cost))
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


def progress_range(shown: Trace) -> tuple[float, float]:
    """The range of F that was seen. Intervals may reach far beyond it, from the first one on."""
    low, high = float(shown.cost.min()), float(shown.cost.max())
    if _spread(shown.cost):
        pad = (high / low) ** 0.08
        return low / max(pad, 1.02), high * max(pad, 1.02)
    pad = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    return low - pad, high + pad


def draw_accuracy(shown: Trace, ax: Axes | None = None) -> Axes:
    """The accuracy asked for and the one proven, per evaluation."""
    axes = _axes(ax)
    asked, achieved = _positive(shown.asked), _positive(shown.achieved)
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
    axes.step(shown.numbers, _positive(total), where="mid", color=BLUE, linewidth=1.6, label="all so far")
    if total[-1] > 0.0:
        axes.set_ylim(bottom=0.5 * float(_positive(shown.work)[np.isfinite(_positive(shown.work))].min()))
    axes.set(xlabel="evaluation", ylabel="work")
    return _finished(axes)


# --- figures of a linear model, from the plain data of a search ----------------------------------------------------


def draw_regularisation_path(data: dict[str, Any], ax: Axes | None = None) -> Axes:
    """Coefficients against the multiple of the best penalties."""
    axes = _axes(ax)
    axes.set_xscale("log")
    x = data["multiples"]
    lines = sorted(data["lines"], key=lambda line: -max(map(abs, line["values"])))
    for k, line in enumerate(lines):
        named = k < len(LINES)
        axes.plot(x, line["values"], color=LINES[k] if named else "#c4cad2", linewidth=1.4 if named else 0.7,
                  label=line_name(line).replace("$", r"\$") if named else None, zorder=2 if named else 1)  # fmt: skip
    axes.axvline(1.0, color="#1c2733", linestyle=":", linewidth=1.2, label="best penalties")
    axes.set(xlabel="multiple of the best penalties", ylabel="coefficient")
    _finished(axes, legend=False)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return axes


def line_name(line: dict[str, Any]) -> str:
    """What a coefficient is of."""
    return f"{cut(line['name'])} ({cut(line['output'])})" if line["output"] else cut(line["name"])


def cut(text: str, most: int = 40) -> str:
    """A name that leaves room for the figure."""
    return text if len(text) <= most else text[: most - 1] + "…"


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


def _spread(values: Array) -> bool:
    """Whether values call for a logarithmic axis."""
    low = float(values.min())
    return low > 0.0 and float(values.max()) > 30.0 * low


def _padded(values: Array, logarithmic: bool) -> tuple[float, float]:
    """The range of values with a margin."""
    u = np.log10(values) if logarithmic else values
    low, high = float(u.min()), float(u.max())
    pad = 0.05 * (high - low) or 0.5
    return (10.0 ** (low - pad), 10.0 ** (high + pad)) if logarithmic else (low - pad, high + pad)


def _positive(values: Array) -> Array:
    return np.where(np.isfinite(values) & (values > 0.0), values, math.nan)


def _finished(axes: Axes, legend: bool = True) -> Axes:
    axes.grid(True, color="#e6e9ee", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    if legend:
        axes.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize=8)
    return axes
