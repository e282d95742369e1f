"""Figures of several panels: first as data (`Chart`), then drawn with matplotlib (`draw`) or plotly (`interactive`).

A chart knows nothing about the library that draws it. Absent values (NaN) are gaps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from suffice.report import charts, html

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DARK_GREY = "#666666"
PLOTLY_SYMBOLS = {"^": "triangle-up", "s": "square", "D": "diamond", "o": "circle", "v": "triangle-down"}


@dataclass(frozen=True)
class Line:
    """One curve. `hover` is plain text per point; `listed` says whether the legend names it."""

    name: str
    colour: str
    x: list[float]
    y: list[float]
    hover: list[str] | None = None
    symbol: str = ""
    dashed: bool = False
    steps: bool = False
    joined: bool = True
    listed: bool = True
    width: float = 1.6


@dataclass(frozen=True)
class Panel:
    """One pair of axes. `level` is a dotted reference line, `shaded` are grey ranges of x, `ticks` are x's ticks."""

    title: str
    x: str
    y: str
    lines: list[Line]
    log_x: bool = False
    log_y: bool = False
    level: float | None = None
    shaded: tuple[tuple[float, float], ...] = ()
    ticks: tuple[float, ...] = ()


@dataclass(frozen=True)
class Chart:
    """One figure: panels in reading order, `columns` to a row, on the same axes if `shared`."""

    name: str
    title: str
    caption: str
    panels: list[Panel]
    columns: int = 1
    shared: bool = False

    @property
    def rows(self) -> int:
        return -(-len(self.panels) // self.columns)


# --- with matplotlib -----------------------------------------------------------------------------------------------


def draw(chart: Chart) -> Figure:
    """`chart` as a matplotlib figure of its own, unknown to pyplot."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install suffice[plot]") from error

    rows, columns = chart.rows, chart.columns
    width, height = {1: (7.2, 4.2), 2: (4.8, 3.1)}.get(columns, (2.9, 2.4))
    figure = Figure(figsize=(max(width * columns, 5.4), height * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=chart.shared, sharey=chart.shared)
    cells = list(grid.flat)
    for index, (axes, panel) in enumerate(zip(cells, chart.panels, strict=False)):
        _panel(axes, panel)
        bottom, left = index + columns >= len(chart.panels), index % columns == 0
        if bottom or not chart.shared:
            axes.set_xlabel(panel.x)
            axes.tick_params(labelbottom=True)
        if left or not chart.shared:
            axes.set_ylabel(panel.y)
    spare = cells[len(chart.panels) :]
    for axes in spare:
        axes.set_axis_off()
    handles = {line.name: _handle(line) for panel in chart.panels for line in panel.lines if line.listed}
    if spare:
        spare[-1].legend(handles.values(), handles.keys(), loc="center", frameon=False)
    elif rows == columns == 1:
        cells[0].legend(handles.values(), handles.keys(), frameon=False)
    else:
        columns = min(len(handles), 5 if columns > 1 else 3)
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False)
    figure.suptitle(chart.title, fontsize=12, x=0.01, ha="left", fontweight="bold")
    return figure


def _handle(line: Line) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], **_look(line))


def _look(line: Line) -> dict[str, Any]:
    return {
        "color": line.colour,
        "linestyle": ("--" if line.dashed else "-") if line.joined else "none",
        "linewidth": line.width,
        "marker": line.symbol or None,
        "markersize": 5 if line.joined else 4,
        "drawstyle": "steps-post" if line.steps else "default",
    }


def _panel(axes: Axes, panel: Panel) -> None:
    if panel.log_x:
        axes.set_xscale("log")
    if panel.log_y:
        axes.set_yscale("log")
    for low, high in panel.shaded:
        axes.axvspan(low, high, color="#EEEEEE", linewidth=0, zorder=0)
    if panel.level is not None:
        axes.axhline(panel.level, color=DARK_GREY, linestyle=":", linewidth=1.1, zorder=1)
    for line in panel.lines:
        axes.plot(line.x, line.y, **_look(line))
    if panel.ticks:
        axes.set_xticks(panel.ticks, [f"{tick:g}" for tick in panel.ticks])
    axes.set_title(panel.title, fontsize=10)
    axes.grid(True, color="#E4E4E4", linewidth=0.6, axis="y" if panel.shaded else "both")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


# --- with plotly ---------------------------------------------------------------------------------------------------


def interactive(chart: Chart) -> Any:
    """`chart` as a plotly figure; hovering shows what stands behind each point."""
    from plotly.subplots import make_subplots

    rows, columns = chart.rows, chart.columns
    height = {1: 400, 2: 290}.get(columns, 250) * rows + 70
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[panel.title for panel in chart.panels],
        horizontal_spacing=0.028 if chart.shared and columns > 1 else 0.09,
        vertical_spacing=(46 if chart.shared else 92) / height if rows > 1 else 0.0,
    )
    for index, panel in enumerate(chart.panels):
        cell = {"row": index // columns + 1, "col": index % columns + 1}
        for line in panel.lines:
            figure.add_trace(_trace(line), **cell)
        for low, high in panel.shaded:
            figure.add_vrect(low, high, fillcolor="#eef0f3", line_width=0, layer="below", **cell)
        if panel.level is not None:
            figure.add_hline(panel.level, line={"color": html.GREY, "width": 1.2, "dash": "dot"}, **cell)
        bottom, left = index + columns >= len(chart.panels), cell["col"] == 1
        labelled = (bottom or not chart.shared, left or not chart.shared)
        same = chart.panels if chart.shared else [panel]
        figure.update_xaxes(**_axis(same, "x", labelled[0]), **cell)
        figure.update_yaxes(**_axis(same, "y", labelled[1]), **cell)
        if chart.shared and index:
            figure.update_xaxes(matches="x", **cell)
            figure.update_yaxes(matches="y", **cell)
    figure.update_annotations(font={"size": 13, "color": html.INK})
    figure.update_layout(
        **charts.LAYOUT,
        template="plotly_white",
        height=height,
        margin={"l": 64, "r": 14, "t": 66 if chart.panels[0].title else 40, "b": 48},
        legend={"orientation": "h", "x": 0, "y": 1, "yref": "container", "yanchor": "top"},
    )
    return figure


def _trace(line: Line) -> Any:
    from plotly import graph_objects

    mode = ("lines+markers" if line.joined else "markers") if line.symbol else "lines"
    symbol = PLOTLY_SYMBOLS.get(line.symbol, "circle")
    hover = [escape(text).replace("\n", "<br>") for text in line.hover or []]
    return graph_objects.Scatter(
        x=charts.finite(line.x),
        y=charts.finite(line.y),
        name=escape(line.name),
        mode=mode,
        line={
            "color": line.colour,
            "width": line.width * 1.15,
            "dash": "5px,4px" if line.dashed else "solid",
            "shape": "hv" if line.steps else "linear",
        },
        marker={"symbol": symbol, "size": (8 if line.joined else 6.5) + 2 * symbol.startswith("triangle")},
        legendgroup=escape(line.name),
        showlegend=line.listed,
        hovertext=hover or None,
        hovertemplate="%{hovertext}<extra></extra>" if hover else None,
        hoverinfo=None if hover else "skip",
        connectgaps=False,
    )


def _axis(panels: Sequence[Panel], which: str, labelled: bool) -> dict[str, Any]:
    """The look of one axis of `panels`, which is one panel or all that share the axis."""
    panel = panels[0]
    log = panel.log_x if which == "x" else panel.log_y
    title = {"text": (panel.x if which == "x" else panel.y) if labelled else None, "font": {"size": 12.5}}
    axis: dict[str, Any] = {
        "title": title | {"standoff": 8},
        "showticklabels": labelled,
        "tickfont": {"size": 11 if log else 12},
        **charts.AXIS,
        "ticks": "outside" if labelled else "",
    }
    if log:
        lines = [line for each in panels for line in each.lines]
        values = [value for line in lines for value in (line.x if which == "x" else line.y) if value > 0]
        span = math.log10(max(values) / min(values)) if values else 0.0
        axis |= {"type": "log"} | charts.log_ticks(span, 1.2)
    if which == "x" and panel.ticks:
        axis |= {"tickvals": list(panel.ticks), "ticktext": [f"{tick:g}" for tick in panel.ticks]}
    return axis
