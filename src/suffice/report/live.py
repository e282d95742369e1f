"""Figures drawn by plotly: plain dictionaries of data and layout, fit for JSON, every text escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from suffice.report.chart import (
    FONT,
    GREY,
    INK,
    PALE,
    RULE,
    Band,
    Bars,
    Cells,
    Contours,
    Dots,
    Line,
    Mark,
    Panel,
    Scale,
)

SYMBOLS = {"^": "triangle-up", "s": "square", "D": "diamond", "v": "triangle-down", "*": "star"}
DASHES = {"solid": "solid", "dashed": "5px,4px", "dotted": "dot"}
GRID = 150  # points a side of a picture of cells

Figure = dict[str, Any]


def interactive(panel: Panel) -> Figure:
    """`panel` as plotly takes it; hovering shows what stands behind each point. The title is left to the page around
    it."""
    legend = {"y": -0.16, "yanchor": "top"} if panel.legend == "outside" else {"y": 1.0, "yanchor": "bottom"}
    layout: Figure = {
        "font": {"family": FONT, "size": 12.5, "color": INK},
        "hoverlabel": {"bgcolor": "#ffffff", "align": "left", "font": {"size": 12.5, "color": INK}},
        "hovermode": "closest",
        "height": panel.height,
        "margin": {"l": 62, "r": 16, "t": 48, "b": 52},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "legend": {"orientation": "h", "x": 0, **legend},
        "showlegend": bool(panel.legend),
        "barmode": "overlay",
        "xaxis": _axis(panel, "x", panel.x, panel.log_x, panel.ticks, panel.x_ends),
        "yaxis": _axis(panel, "y", panel.y, panel.log_y, panel.y_ticks, panel.y_ends),
        "shapes": _shapes(panel),
        "annotations": [],
    }
    if panel.upright is not None:
        x = math.log10(panel.upright[0]) if panel.log_x else panel.upright[0]
        at = {"x": x, "xref": "x", "xanchor": "left", "y": 1.0, "yref": "y domain", "showarrow": False}
        layout["annotations"].append({"text": _escaped(panel.upright[1]), **at})
    return {"data": [trace for mark in panel.marks for trace in _traces(mark)], "layout": layout}


def finite(values: Iterable[float]) -> list[float | None]:
    """The values, None for those that JSON has no word for."""
    return [float(value) if math.isfinite(value) else None for value in values]


def _escaped(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def _shapes(panel: Panel) -> list[Figure]:
    across, upright = {"xref": "x domain", "x0": 0, "x1": 1}, {"yref": "y domain", "y0": 0, "y1": 1}
    grey: Figure = {"type": "rect", "fillcolor": "#eef0f3", "line": {"width": 0}, "layer": "below", **upright}
    shapes = [grey | {"xref": "x", "x0": low, "x1": high} for low, high in panel.shaded]
    dotted = {"width": 1.2, "dash": "dot"}
    if panel.level is not None:
        level = {"yref": "y", "y0": panel.level, "y1": panel.level}
        shapes.append({"type": "line", **across, **level, "line": {"color": GREY, **dotted}})
    if panel.upright is not None:
        place = {"xref": "x", "x0": panel.upright[0], "x1": panel.upright[0]}
        shapes.append({"type": "line", **upright, **place, "line": {"color": INK, **dotted}})
    return shapes


def _axis(
    panel: Panel, which: str, label: str, log: bool, ticks: Mapping[float, str], ends: tuple[float, float] | None
) -> Figure:
    flat = any(isinstance(mark, Bars) and mark.flat for mark in panel.marks)
    axis: Figure = {
        "title": {"text": _escaped(label), "standoff": 10},
        "type": "log" if log else "linear",
        "gridcolor": RULE,
        "linecolor": PALE,
        "ticks": "" if flat and ticks else "outside",
        "tickcolor": PALE,
        "ticklen": 4,
        "zeroline": flat and not ticks,
        "zerolinecolor": INK,
        "automargin": True,
    }
    if log:
        along = [getattr(mark, which) for mark in panel.marks if isinstance(mark, Line | Contours)]
        values = np.concatenate([np.ravel(one) for one in along]) if ends is None else np.array(ends)
        known = values[np.isfinite(values) & (values > 0.0)]
        span = float(np.log10(known.max() / known.min())) if len(known) else 0.0
        axis |= {"exponentformat": "power"} | ({"dtick": max(1, round(span / 6))} if span > 1.5 else {"nticks": 6})
    if ticks:
        axis |= {"tickvals": list(ticks), "ticktext": [_escaped(text) for text in ticks.values()]}
    if ends:
        axis["range"] = [math.log10(end) for end in ends] if log else list(ends)
    return axis


# --- marks ---------------------------------------------------------------------------------------------------------


def _traces(mark: Mark) -> list[Figure]:
    match mark:
        case Line():
            return [_line(mark)]
        case Band():
            edge = Line("", mark.colour, mark.x, mark.high, listed=False, width=0.0)
            fill = {"fill": "tonexty", "fillcolor": f"rgba{(*bytes.fromhex(mark.colour[1:]), 0.22)}"}
            return [_line(edge), _line(edge) | {"y": finite(mark.low)} | fill]
        case Bars():
            x, y = (mark.lengths, mark.at) if mark.flat else (mark.at, mark.lengths)
            look = {"orientation": "h" if mark.flat else "v", "opacity": mark.opacity, "marker": {"color": mark.colour}}
            width = finite(np.broadcast_to(mark.thickness, len(mark.at)))
            known = {"x": finite(x), "y": finite(y), "width": width, "name": escape(mark.name)}
            return [{"type": "bar", **known, **look, **_hover(mark.hover)}]
        case Dots():
            marker = {"size": 8, "color": finite(mark.values), **_colours(mark.scale, "c")}
            dots = Line("", "", mark.x, mark.y, symbol="o", joined=False, listed=False)
            return [_line(dots) | {"marker": marker}]
        case Contours():
            step = float(mark.levels[1] - mark.levels[0])
            surface: Figure = {
                "z": [finite(np.round(row, 5)) for row in mark.z],
                "contours": {"start": float(mark.levels[0]), "end": float(mark.levels[-1]), "size": step},
                "line": {"width": 0.6, "color": "#ffffff"},
            }
            known = {"x": finite(mark.x), "y": finite(mark.y), **surface, **_hover(None)}
            return [{"type": "contour", **known, "connectgaps": False, **_colours(mark.scale, "z")}]
        case Cells():
            return _cells(mark)


def _line(line: Line) -> Figure:
    symbol = SYMBOLS.get(line.symbol, "circle")
    marker: Figure = {"symbol": symbol, "size": 1.45 * line.size, "color": line.colour}
    if symbol == "star":
        marker["line"] = {"color": "#ffffff", "width": 1}
    shape = {"": "linear", "post": "hv", "mid": "hvh"}[line.steps]
    made: Figure = {
        "type": "scatter",
        "x": finite(line.x),
        "y": finite(line.y),
        "name": escape(line.name),
        "mode": ("lines+markers" if line.joined else "markers") if line.symbol else "lines",
        "line": {"color": line.colour, "width": 1.15 * line.width, "dash": DASHES[line.dash], "shape": shape},
        "marker": marker,
        "opacity": line.opacity,
        "legendgroup": escape(line.name),
        "showlegend": line.listed,
        "connectgaps": False,
        "cliponaxis": symbol != "star",
        **_hover(line.hover),
    }
    if line.bars is not None:
        y, (low, high) = np.asarray(line.y), line.bars
        ends = {"array": finite(np.maximum(high - y, 0.0)), "arrayminus": finite(np.maximum(y - low, 0.0))}
        made["error_y"] = {"type": "data", "symmetric": False, **ends, "thickness": 1.2, "width": 3}
    return made


def _hover(texts: Sequence[str] | None) -> Figure:
    if texts is None:
        return {"hoverinfo": "skip"}
    return {"hovertext": [_escaped(text) for text in texts], "hoverinfo": "text"}


def _cells(mark: Cells) -> list[Figure]:
    """On a grid, a point on the side of two cells being in both: the larger value counts."""
    x, y = (np.geomspace(mark.ends[:, k].min(), mark.ends[:, 2 + k].max(), GRID) for k in (0, 1))
    z, numbers = np.full((GRID, GRID), -math.inf), np.full((GRID, GRID), math.nan)
    for (x0, y0, x1, y1), value, number in zip(mark.ends, mark.values, mark.numbers, strict=True):
        columns, rows = ((side >= a) & (side <= b) for side, a, b in ((x, x0, x1), (y, y0, y1)))
        here = np.ix_(rows, columns)
        numbers[here] = np.where(value > z[here], number, numbers[here])
        z[here] = np.fmax(z[here], value)
    heat: Figure = {
        "type": "heatmap",
        "x": finite(x),
        "y": finite(y),
        "z": [finite(row) for row in np.round(z, 3)],
        "customdata": [finite(row) for row in np.round(numbers, 3)],
        "hovertemplate": f"%{{x:.3g}}, %{{y:.3g}}: {mark.words.format('%{customdata:.3g}')}<extra></extra>",
    }
    if mark.scale is not None:
        return [heat | _colours(mark.scale, "z")]
    legend = Line(mark.name, mark.colour, [math.nan], [math.nan], symbol="s", joined=False, size=7.0, opacity=0.4)
    heat |= {"colorscale": [[0, mark.colour], [1, mark.colour]], "opacity": 0.4, "showscale": False}
    return [heat, _line(legend)]


def _colours(scale: Scale, which: str) -> Figure:
    """The colours of c or z, and their bar."""
    return {
        "colorscale": [list(pair) for pair in scale.colours],
        f"{which}min": scale.low,
        f"{which}max": scale.high,
        "colorbar": {
            "title": {"text": _escaped(scale.label), "side": "right"},
            "tickvals": list(scale.ticks),
            "ticktext": list(scale.ticks.values()),
            "thickness": 12,
            "outlinewidth": 0,
        },
    }
