"""Figures of several panels (`suffice.report.chart`), drawn with matplotlib (`draw`) or into a page (`inline`)."""

from __future__ import annotations

import base64
import io
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from suffice.plots import draw_panel, new_figure
from suffice.report import svg
from suffice.report.chart import Panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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

    def labelled(self, index: int) -> tuple[bool, bool]:
        """Whether this panel's axes have labels: of shared ones, only the lowest and the leftmost."""
        return (
            not self.shared or index + self.columns >= len(self.panels),
            not self.shared or index % self.columns == 0,
        )


def number(value: Any) -> float:
    """`value` as a float; NaN for what is absent or not a number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def number_ticks(values: Sequence[float]) -> dict[float, str]:
    """Ticks at these numbers."""
    return {float(value): f"{value:g}" for value in values}


def draw(chart: Chart) -> Figure:
    """`chart` as a matplotlib figure of its own, unknown to pyplot."""
    rows, columns = chart.rows, chart.columns
    width, height = {1: (7.2, 4.2), 2: (4.8, 3.1)}.get(columns, (2.9, 2.4))
    figure = new_figure(max(width * columns, 5.4), height * rows + 0.5)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=chart.shared, sharey=chart.shared)
    cells = list(grid.flat)
    handles: dict[str, Any] = {}
    for index, (axes, panel) in enumerate(zip(cells, chart.panels, strict=False)):
        draw_panel(replace(panel, legend=""), axes)
        below, left = chart.labelled(index)
        axes.set(**({} if below else {"xlabel": ""}), **({} if left else {"ylabel": ""}))
        axes.tick_params(labelbottom=below, labelsize=8)
        handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    spare = cells[len(chart.panels) :]
    for axes in spare:
        axes.set_axis_off()
    if spare:
        spare[-1].legend(handles.values(), handles.keys(), loc="center", frameon=False)
    elif rows == columns == 1:
        cells[0].legend(handles.values(), handles.keys(), frameon=False)
    else:
        columns = min(len(handles), 5 if columns > 1 else 3)
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False)
    figure.suptitle(chart.title, fontsize=12, x=0.01, ha="left", fontweight="bold")
    return figure


def inline(chart: Chart) -> str:
    """`chart` as part of a page: a grid of its panels, which becomes one column on a narrow screen."""
    panels = chart.panels
    if chart.shared:
        ends = []
        for which, is_log in (("x", panels[0].log_x), ("y", panels[0].log_y)):
            low, high = svg.extent(panels, which)
            ends.append((10.0**low, 10.0**high) if is_log else (low, high))
        panels = [replace(panel, x_ends=ends[0], y_ends=ends[1]) for panel in panels]
    if len(panels) == 1:
        return svg.figure(panels[0], chart.name)
    width = svg.WIDE // chart.columns
    names = svg.legend(panels, svg.WIDE)
    rows = "".join(f'<g transform="translate(20 {14 + 18 * k})">{row}</g>' for k, row in enumerate(names))
    legend = f'<svg class="chart wide" viewBox="0 0 {svg.WIDE} {8 + 18 * len(names)}">{rows}</svg>'
    height = {1: 360, 2: 300}.get(chart.columns, 240)
    cells = ""
    for panel in panels:
        wide = replace(panel, legend="", height=height)
        cells += f'<div><div class="wide">{svg.draw(wide, width)}</div>'
        cells += f'<div class="narrow">{svg.draw(replace(panel, height=300), svg.NARROW, hover=False)}</div></div>'
    style = f"grid-template-columns: repeat({chart.columns}, 1fr)"
    return f'<div data-figure="{escape(chart.name)}">{legend}<div class="charts" style="{style}">{cells}</div></div>'


def picture(figure: Any, dpi: int, kind: Literal["png", "pdf"] = "png") -> bytes:
    """matplotlib's picture of a figure: the same bytes for the same figure."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # names in a script that matplotlib's font lacks
        figure.savefig(buffer, format=kind, dpi=dpi, metadata={"Software" if kind == "png" else "CreationDate": None})
    return buffer.getvalue()


def image(figure: Any, alt: str, dpi: int) -> str:
    """matplotlib's picture of a figure, as part of a page."""
    still = base64.b64encode(picture(figure, dpi)).decode("ascii")
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{still}">'
