"""The figures of a search as plotly draws them: plain dictionaries of data and layout, every text escaped.

`AXIS`, `LAYOUT` and `log_ticks` are the look of every figure that plotly draws, on any page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from typing import Any

import numpy as np

from suffice.globally.pictures import HIGHEST, Landscape
from suffice.report.html import FONT, INK, RULE
from suffice.report.traces import (
    BLUE,
    GREY,
    LINES,
    ORANGE,
    SKY,
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
)

MOST_BARS = 40
SHADES = ("#dbe9f6", "#bad6eb", "#89bedc", "#539ecd", "#2b7bba", "#0b559f")  # the last for the least F

Figure = dict[str, Any]

AXIS: Figure = {
    "gridcolor": RULE,
    "linecolor": "#c4cad2",
    "ticks": "outside",
    "tickcolor": "#c4cad2",
    "ticklen": 4,
    "zeroline": False,
}
LAYOUT: Figure = {
    "font": {"family": FONT, "size": 12.5, "color": INK},
    "hoverlabel": {"bgcolor": "#ffffff", "align": "left", "font": {"size": 12.5, "color": INK}},
    "hovermode": "closest",
}


def path(shown: Trace) -> Figure:
    """F over one parameter, the way over its contours for two, parallel axes for more."""
    if len(shown.names) == 1:
        return _line(shown)
    if len(shown.names) == 2:
        return _plane(shown)
    return _parallel(shown)


def _line(shown: Trace) -> Figure:
    x, at = shown.points[:, 0], int(np.argmin(shown.high))
    order = np.argsort(x, kind="stable")
    data = [
        _scatter(
            x[order], shown.cost[order], "evaluation, with its proven interval", BLUE, "markers",
            error_y=_bars(shown.low[order], shown.cost[order], shown.high[order]), hovertext=_hover(shown, order),
        ),
        _best(x[at : at + 1], shown.cost[at : at + 1]),
    ]  # fmt: skip
    return _figure(data, _axis(shown.names[0], x), _axis(shown.label, _log_of(shown.cost)))


def _plane(shown: Trace) -> Figure:
    data: list[Any] = []
    made = surface(shown)
    if made is not None:
        ticks = excess_ticks(made.levels)
        step = float(made.levels[1] - made.levels[0])
        data.append(
            {
                "type": "contour",
                "x": finite(10.0**made.x),
                "y": finite(10.0**made.y),
                "z": [finite(np.round(row, 5)) for row in made.z],
                "colorscale": [[0, "#2171b5"], [0.35, "#6baed6"], [0.7, "#c6dbef"], [1, "#f7fbff"]],
                "contours": {"start": float(made.levels[0]), "end": float(made.levels[-1]), "size": step},
                "line": {"width": 0.6, "color": "#ffffff"},
                "connectgaps": False,
                "hoverinfo": "skip",
                "colorbar": {
                    "title": {"text": f"excess of {escape(shown.label)}<br>over the best", "side": "right"},
                    "tickvals": ticks,
                    "ticktext": [f"{10.0**tick:.2g}" for tick in ticks],
                    "thickness": 12,
                    "outlinewidth": 0,
                },
            }
        )
    x, y = shown.points.T
    data.append(_scatter(x, y, "evaluation", INK, "markers", hovertext=_hover(shown), marker={"size": 5, "color": INK}))
    data += [
        _scatter(way[:, 0], way[:, 1], "incumbent", ORANGE, "lines+markers", hoverinfo="skip") for way in shown.paths
    ]
    at = shown.best[None, :]
    data.append(_best(at[:, 0], at[:, 1]))
    return _figure(data, _axis(shown.names[0], x), _axis(shown.names[1], y), height=520)


def _parallel(shown: Trace) -> Figure:
    """One line per evaluation, in shades by rank; plotly's own parallel axes need WebGL and code made at run time."""
    u, order = parallel(shown, range(len(shown.names)))
    data = []
    for shade, part in zip(SHADES, np.array_split(order, len(SHADES)), strict=True):
        x = np.tile(np.append(np.arange(u.shape[1]), math.nan), len(part))
        y = np.hstack([u[part], np.full((len(part), 1), math.nan)]).ravel()
        text = [line for k in part for line in [_hover(shown, [k])[0]] * (u.shape[1] + 1)]
        name = f"less {escape(shown.label)}" if shade == SHADES[-1] else ""
        look = {"line": {"color": shade, "width": 1}, "showlegend": bool(name)}
        data.append(_scatter(x, y, name, shade, "lines", hovertext=text, **look))
    data.append(_scatter(np.arange(u.shape[1]), u[order[-1]], "best", ORANGE, "lines+markers", hoverinfo="skip"))
    ticks = {"tickvals": list(range(u.shape[1])), "ticktext": [escape(cut(name)) for name in shown.names]}
    return _figure(data, _axis("") | ticks, _axis("from the least to the largest value tried"), height=460)


def progress(shown: Trace) -> Figure:
    bars = _bars(shown.low, shown.cost, shown.high)
    name = "evaluation, with its proven interval"
    data = [
        _scatter(shown.numbers, shown.cost, name, BLUE, "markers", error_y=bars, hovertext=_hover(shown)),
        _steps(shown.numbers, np.minimum.accumulate(shown.high), "proven to be reached", ORANGE, "hv"),
    ]
    low, high = progress_range(shown)
    ends = [math.log10(low), math.log10(high)] if spread(shown.cost) else [low, high]
    return _figure(data, _axis("evaluation"), _axis(shown.label, _log_of(shown.cost)) | {"range": ends})


def accuracy(shown: Trace) -> Figure:
    data = [
        _steps(shown.numbers, positive(shown.asked), "asked for", GREY, "hvh"),
        _scatter(shown.numbers, positive(shown.achieved), "proven", ORANGE, "markers", hovertext=_hover(shown)),
    ]
    return _figure(data, _axis("evaluation"), _axis(shown.accuracy, np.append(shown.asked, shown.achieved)))


def work(shown: Trace) -> Figure:
    bars = {
        "type": "bar",
        "x": finite(shown.numbers),
        "y": finite(positive(shown.work)),
        "name": "this evaluation",
        "marker": {"color": SKY},
        "hovertext": _hover(shown),
        "hoverinfo": "text",
    }
    total = _steps(shown.numbers, positive(np.cumsum(shown.work)), "all so far", BLUE, "hvh")
    return _figure(
        [bars, total], _axis("evaluation"), _axis("lower-level steps", np.append(shown.work, shown.work.sum()))
    )


def regularisation(found: dict[str, Any]) -> Figure:
    data = []
    for k, line in reversed(list(enumerate(sorted_lines(found)))):
        named, name = k < len(LINES), escape(line_name(line))
        data.append(
            _scatter(
                found["multiples"], line["values"], name, LINES[k] if named else "#c4cad2", "lines",
                line={"color": LINES[k] if named else "#c4cad2", "width": 2 if named else 1}, showlegend=named,
                hovertemplate="%{fullData.name}<br>%{x:.3g} times the best penalties: %{y:.4g}<extra></extra>",
                legendrank=k,
            )
        )  # fmt: skip
    figure = _figure(
        data, _axis("multiple of the best penalties", np.array(found["multiples"])), _axis("coefficient"), height=540
    )
    figure["layout"]["shapes"] = [_vertical(1.0)]
    figure["layout"]["annotations"] = [
        {"x": 0.0, "xref": "x", "y": 1.0, "yref": "paper", "xanchor": "left", "text": "best", "showarrow": False}
    ]
    figure["layout"]["legend"] = {"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top"}
    return figure


def calibration(found: dict[str, Any]) -> Figure:
    if found["kind"] == "reliability":
        data = [_steps(np.array([0.0, 1.0]), np.array([0.0, 1.0]), "perfect", GREY, "linear", dash="dot")]
        for k, curve in enumerate(found["curves"]):
            p, share = np.array(curve["predicted"]), np.array(curve["observed"])
            bars = _bars(np.minimum(curve["low"], share), share, np.maximum(curve["high"], share))
            text = [f"{count} rows<br>predicted {a:.3f}<br>observed {b:.3f}"
                    for count, a, b in zip(curve["count"], p, share, strict=True)]  # fmt: skip
            more = {"error_y": bars} if len(found["curves"]) <= 3 else {}
            name = f"class {escape(cut(curve['label']))}"
            data.append(_scatter(p, share, name, LINES[k % len(LINES)], "lines+markers", hovertext=text, **more))
        unit = {"range": [-0.02, 1.02]}
        x, y = _axis("predicted probability") | unit, _axis("share of rows of the class") | unit
        return _figure(data, x, y, height=480)
    if found["kind"] == "margins":
        edges = np.array(found["edges"])
        middles, widths = 0.5 * (edges[1:] + edges[:-1]), np.diff(edges)
        data = [
            {
                "type": "bar",
                "x": finite(middles),
                "y": counts,
                "width": finite(widths),
                "name": f"class {escape(cut(label))}",
                "marker": {"color": LINES[k % len(LINES)]},
                "opacity": 0.6,
            }
            for k, (label, counts) in enumerate(zip(found["labels"], found["counts"], strict=True))
        ]
        figure = _figure(data, _axis("decision function, rows not seen in training"), _axis("rows"))
        figure["layout"] |= {"barmode": "overlay", "shapes": [_vertical(0.0)]}
        return figure
    true, predicted = np.array(found["true"], dtype=float), np.array(found["predicted"], dtype=float)
    ends = np.array([min(true.min(), predicted.min()), max(true.max(), predicted.max())])
    data = [
        _steps(ends, ends, "perfect", GREY, "linear", dash="dot"),
        _scatter(
            true, predicted, "row not seen in training", BLUE, "markers",
            marker={"size": 5, "color": BLUE, "opacity": 0.5},
            hovertemplate="true %{x:.4g}<br>predicted %{y:.4g}<extra></extra>",
        ),
    ]  # fmt: skip
    return _figure(data, _axis("true"), _axis("predicted"), height=480)


def coefficients(found: dict[str, Any]) -> Figure:
    names = [escape(cut(name)) for name in found["names"][:MOST_BARS]]
    y = list(range(len(names)))
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "x": values[:MOST_BARS],
            "y": y,
            "name": escape(cut(label)) or "coefficient",
            "marker": {"color": LINES[k % len(LINES)]},
            "customdata": names,
            "hovertemplate": "%{customdata}: %{x:.5g}<extra>%{fullData.name}</extra>",
        }
        for k, (label, values) in enumerate(zip(found["outputs"], found["values"], strict=True))
    ]
    axis = {"tickvals": y, "ticktext": names, "autorange": "reversed", "automargin": True, "ticks": ""}
    height = 120 + max(1, len(names)) * (19 if len(data) == 1 else 12 + 9 * len(data))
    figure = _figure(
        data, _axis("coefficient") | {"zeroline": True, "zerolinecolor": INK}, _axis("") | axis, height=height
    )
    figure["layout"] |= {"showlegend": len(data) > 1, "bargap": 0.25}
    return figure


def landscape(found: Landscape) -> Figure:
    """The band in which F is proven to lie over one parameter, or which cells of two are proven to be worse."""
    return _band(found) if len(found.names) == 1 else _cells(found)


def _band(found: Landscape) -> Figure:
    (x, low, high), top = found.line.T, HIGHEST * found.upper
    thin = {"line": {"color": BLUE, "width": 1.2}}
    text = [
        f"{escape(found.names[0])} {a:.4g}<br>F is proven to lie in<br>[{b:.6g}, {c:.6g}]"
        for a, b, c in found.line.tolist()
    ]
    best = np.full(2, found.upper)
    data = [
        _scatter(x, np.minimum(high, top), "", BLUE, "lines", showlegend=False, hoverinfo="skip", line={"width": 0}),
        _scatter(
            x, np.minimum(low, top), "F is proven to lie in the band", BLUE, "lines",
            fill="tonexty", fillcolor="rgba(0,114,178,0.22)", hovertext=text, **thin,
        ),
        _steps(x[[0, -1]], best, "best known F", ORANGE, "linear"),
        _best(found.best, best[:1]),
    ]  # fmt: skip
    y = _axis("F") | {"range": [max(0.0, 0.97 * found.lower), 1.02 * top]}
    return _figure(data, _axis(found.names[0], x), y)


GRID = 150  # points a side of the picture of two parameters


def _cells(found: Landscape) -> Figure:
    x, y = (np.geomspace(*ends, GRID) for ends in found.ends)
    z = np.full((GRID, GRID), -math.inf)  # a point on the side of two cells is in both
    for (x0, y0, x1, y1, _), excess in zip(found.cells.tolist(), found.excess.tolist(), strict=True):
        columns, rows = ((side >= a) & (side <= b) for side, a, b in ((x, x0, x1), (y, y0, y1)))
        z[np.ix_(rows, columns)] = np.maximum(z[np.ix_(rows, columns)], excess)
    shade = np.log10(np.maximum(z, 0.1))
    ticks = [tick for tick in range(-1, 7) if tick <= max(2.0, float(shade.max()))]
    heat = {
        "type": "heatmap",
        "x": finite(x),
        "y": finite(y),
        "colorscale": [[0, "#f7fbff"], [0.3, "#c6dbef"], [0.65, "#6baed6"], [1, "#2171b5"]],
        "zmin": -1.0,
        "zmax": float(ticks[-1]),
        "customdata": np.round(z, 3).tolist(),
        "hovertemplate": "%{x:.3g}, %{y:.3g}: worse by %{customdata:.3g} % at least<extra></extra>",
        "z": [finite(row) for row in np.where(z > 0.0, np.round(shade, 3), math.nan)],
        "colorbar": {
            "title": {"text": "proven to be worse<br>by at least, %", "side": "right"},
            "tickvals": ticks,
            "ticktext": [f"{10.0**tick:g}" for tick in ticks],
            "thickness": 12,
            "outlinewidth": 0,
        },
    }
    is_open = {
        **{key: heat[key] for key in ("type", "x", "y", "customdata")},
        "z": [[1.0 if value <= 0.0 else None for value in row] for row in z.tolist()],
        "colorscale": [[0, ORANGE], [1, ORANGE]],
        "opacity": 0.4,
        "showscale": False,
        "hovertemplate": "%{x:.3g}, %{y:.3g}: not ruled out<extra></extra>",
    }
    square = {"marker": {"symbol": "square", "size": 10, "color": ORANGE, "opacity": 0.4}}
    name = f"not ruled out: at most {found.gap_in_percent} % better"
    none = np.array([math.nan])
    data = [heat, is_open, _scatter(none, none, name, ORANGE, "markers", **square), _best(*found.best[:, None])]
    return _figure(data, _axis(found.names[0], x), _axis(found.names[1], y), height=520)


def gap(history: Iterable[tuple[float, float]]) -> Figure:
    """The proven gap, in percent, after every evaluation of a global certificate."""
    x, y = np.array([(one, 100.0 * share) for one, share in history]).reshape(-1, 2).T
    axis = _axis("proven gap, %", y)
    return _figure([_steps(x, y, "proven so far", ORANGE, "hv")], _axis("evaluation"), axis, height=340)


# --- parts ---------------------------------------------------------------------------------------------------------


def finite(values: Iterable[float]) -> list[float | None]:
    """The values, None for those that JSON has no word for."""
    return [float(value) if math.isfinite(value) else None for value in values]


def log_ticks(span: float, wide: float) -> Figure:
    """The ticks of a logarithmic axis over so many decades: whole powers of ten if it is a wide one."""
    return {"exponentformat": "power"} | ({"dtick": max(1, round(span / 6))} if span > wide else {"nticks": 6})


def _log_of(values: Any) -> Any:
    """The values, if they call for a logarithmic axis."""
    return values if spread(values) else None


def _scatter(x: Any, y: Any, name: str, colour: str, mode: str, **more: Any) -> Figure:
    if "hovertext" in more:
        more["hoverinfo"] = "text"
    look = {"line": {"color": colour, "width": 2}, "marker": {"size": 6.5, "color": colour}}
    return {"type": "scatter", "x": finite(x), "y": finite(y), "name": name, "mode": mode, **look, **more}


def _steps(x: Any, y: Any, name: str, colour: str, shape: str, dash: str = "solid") -> Figure:
    line = {"color": colour, "width": 2, "shape": shape, "dash": dash}
    return _scatter(x, y, name, colour, "lines", line=line, hoverinfo="skip")


def _best(x: Any, y: Any) -> Figure:
    marker = {"symbol": "star", "size": 16, "color": ORANGE, "line": {"color": "#ffffff", "width": 1}}
    return _scatter(x, y, "best", ORANGE, "markers", marker=marker, hoverinfo="skip")


def _bars(low: Any, middle: Any, high: Any) -> Figure:
    return {
        "type": "data",
        "symmetric": False,
        "array": finite(high - middle),
        "arrayminus": finite(middle - low),
        "thickness": 1.2,
        "width": 3,
    }


def _hover(shown: Trace, order: Any = None) -> list[str]:
    def text(k: int) -> str:
        point = ", ".join(
            f"{escape(name)} {value:.4g}" for name, value in zip(shown.names, shown.points[k], strict=True)
        )
        return (
            f"evaluation {k + 1}: {point}<br>{escape(shown.label)} {shown.cost[k]:.6g}"
            f"<br>proven in [{shown.low[k]:.6g}, {shown.high[k]:.6g}]<br>work {shown.work[k]:.6g}"
        )

    return [text(int(k)) for k in (range(len(shown.cost)) if order is None else order)]


def _vertical(x: float) -> Figure:
    line = {"color": INK, "width": 1.2, "dash": "dot"}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def _axis(title: str, log: Any = None) -> Figure:
    """The look of an axis; logarithmic if `log` holds the values along it."""
    ticks: Figure = {}
    if log is not None:
        known = log[np.isfinite(log) & (log > 0.0)]
        span = float(np.log10(known.max() / known.min())) if len(known) else 0.0
        ticks = log_ticks(span, 2.0)
    kind = "linear" if log is None else "log"
    return {"title": {"text": escape(title), "standoff": 10}, "type": kind, **AXIS, "automargin": True, **ticks}


def _figure(data: list[Any], x: Figure, y: Figure, height: int = 420) -> Figure:
    layout = {
        **LAYOUT,
        "height": height,
        "margin": {"l": 62, "r": 16, "t": 48, "b": 52},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
        "showlegend": True,
        "xaxis": x,
        "yaxis": y,
    }
    return {"data": data, "layout": layout}
