"""Figures of several panels (`suffice.report.chart`), drawn with matplotlib (`draw`) or plotly (`interactive`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

from suffice.report import live
from suffice.report.chart import Panel
from suffice.report.still import draw_panel, new_figure

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


def interactive(chart: Chart) -> dict[str, Any]:
    """`chart` as plotly takes it: every panel's figure, with axes of its own in its place."""
    rows, columns = chart.rows, chart.columns
    if len(chart.panels) == 1:
        return live.interactive(chart.panels[0])
    height = {1: 400, 2: 290}.get(columns, 250) * rows + 70
    gaps = 0.028 if chart.shared else 0.09, (46 if chart.shared else 92) / height
    width, depth = ((1.0 - gap * (count - 1)) / count for gap, count in zip(gaps, (columns, rows), strict=True))
    layout = live.interactive(chart.panels[0])["layout"] | {"height": height, "shapes": [], "annotations": []}
    layout["margin"] |= {"t": 66 if chart.panels[0].title else 48}
    layout["legend"] |= {"y": 1, "yref": "container", "yanchor": "top"}
    data: list[dict[str, Any]] = []
    for index, panel in enumerate(chart.panels):
        made, number = live.interactive(panel), str(index + 1) if index else ""
        row, column = divmod(index, columns)
        left, upper = column * (width + gaps[0]), 1.0 - row * (depth + gaps[1])
        places = [left, left + width], [max(0.0, upper - depth), upper]
        for which, other, place, labelled in zip("xy", "yx", places, chart.labelled(index), strict=True):
            axis = made["layout"][f"{which}axis"] | {"domain": place, "anchor": f"{other}{number}", "automargin": False}
            if not labelled:
                axis |= {"title": {"text": ""}, "showticklabels": False, "ticks": ""}
            if chart.shared and index:
                axis["matches"] = which
            layout[f"{which}axis{number}"] = axis
        data += [one | {"xaxis": f"x{number}", "yaxis": f"y{number}"} for one in made["data"]]
        for shape in made["layout"]["shapes"]:
            axes = {key: f"{shape[key][0]}{number}{shape[key][1:]}" for key in ("xref", "yref")}
            layout["shapes"].append(shape | axes)
        at = {"x": left + width / 2.0, "xref": "paper", "xanchor": "center", "font": {"size": 13}, "showarrow": False}
        title = {"text": escape(panel.title), "y": upper, "yref": "paper", "yanchor": "bottom"}
        layout["annotations"].append(at | title)
    return {"data": data, "layout": layout}
