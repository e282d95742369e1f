"""The study as one self-contained web page, its claims as a Markdown table, and its figures as files.

The page draws the charts of `figures` with plotly, whose script is part of the page: nothing is fetched, and the page's
own content policy forbids it. On paper, and without scripts, matplotlib's pictures of the same charts take their place.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from suffice import files
from suffice.report import html as shell
from suffice.report.formats import ABSENT, number, show
from suffice.reproduce.figures import Chart, Data, Line, Panel, charts, colour, draw, save, variants

_VERDICTS = {True: ("pass", "pass"), False: ("fail", "FAIL"), None: ("open", "not tested")}
_PLOTLY_SYMBOLS = {"^": "triangle-up", "s": "square", "D": "diamond", "o": "circle", "v": "triangle-down"}


# --- the page ------------------------------------------------------------------------------------------------------


def html(data: Data) -> str:
    """The report on the study `data` as one web page that needs nothing else."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("the report needs plotly: pip install suffice[plot]") from error

    made = charts(data)
    sections = [
        claims(data),
        *(figure(chart) for chart in made),
        _ends(data),
        settings(data),
        _records(data),
    ]
    script = f"<script>{get_plotlyjs()}</script>" if made else ""
    preset = _text((data.get("preset") or {}).get("name") or "custom")
    version = _text((data.get("provenance") or {}).get("suffice"))
    body = f"""<header>
<h1>Hyperparameter tuning with dynamic accuracy, reproduced</h1>
<p class="lead">Two penalties of an elastic-net logistic regression, ℓ₁ and ℓ₂, are tuned for how well the classifiers
of several handwritten digits do on test images. Every evaluation of the objective F(θ), with θ the log₁₀ of the
penalties, means training one classifier per digit. The <b>dynamic</b> variant trains each only as precisely as its next
decision needs, and proves that it did; <b>adaptive</b>, from one start, does the same with a faster FISTA, whose steps
follow the curvature along the way; the fixed variants run <b>K</b> FISTA iterations every time and hope.</p>
<p>What a run <em>believed</em> is F at its own, inexactly trained classifiers. What is <em>exact</em> is F at the same
θ with the classifiers trained to high precision afterwards, outside the count of work.</p>
{_navigation(made, data)}
</header>
{_tiles(data)}
{"".join(sections)}
<footer>Method: M. J. Ehrhardt and L. Roberts, “Efficient Hyperparameter Tuning with Dynamic Accuracy Derivative-Free
Optimization”, OPT 2020, arXiv 2011.03151. Made with suffice {version}.</footer>"""
    return shell.page(f"reproduction study ({preset})", script, body)


def _text(value: Any) -> str:
    return escape(show(value))


def _navigation(made: Iterable[Chart], data: Data) -> str:
    links = [("claims", "Claims")] if data.get("claims") else []
    links += [(chart.name, chart.title.split(":")[0]) for chart in made]
    links += [("ends", "Where the runs ended"), ("records", "Every evaluation")] if data.get("runs") else []
    links.insert(-1 if data.get("runs") else len(links), ("settings", "Settings"))
    return "<nav>" + "".join(f'<a href="#{key}">{escape(name)}</a>' for key, name in links) + "</nav>"


def _tiles(data: Data) -> str:
    claims, best, provenance = data.get("claims") or [], data.get("best") or {}, data.get("provenance") or {}
    tiles = []
    if claims:
        tested = [claim for claim in claims if claim.get("passed") is not None]
        held = sum(bool(claim["passed"]) for claim in tested)
        aside = f", {len(claims) - len(tested)} not tested" if len(tested) < len(claims) else ""
        tiles.append((f"{held} of {len(tested)}", f"tested claims hold{aside}"))
    if best.get("theta"):
        l1, l2 = (f"{10.0 ** number(value):.3g}" for value in best["theta"][:2])
        tiles.append((f"ℓ₁ {l1}, ℓ₂ {l2}", f"best known, θ = {show(best['theta'], 4)}"))
    if best.get("F") is not None:
        tiles.append((show(best["F"], 7), "best known objective F"))
    if data.get("runs"):
        evaluations = sum(int(run.get("evaluations") or 0) for run in data["runs"])
        seconds = number(provenance.get("seconds"))
        time = f" in {_duration(seconds)}" if math.isfinite(seconds) else ""
        tiles.append((f"{len(data['runs'])} runs", f"{evaluations:,} evaluations{time}"))
    cells = "".join(f'<div class="tile"><b>{escape(big)}</b><span>{escape(small)}</span></div>' for big, small in tiles)
    return f'<div class="tiles">{cells}</div>' if tiles else ""


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 5400 else f"{seconds / 3600:.3g} h"


def claims(data: Data) -> str:
    claims = data.get("claims") or []
    if not claims:
        return ""
    rows = []
    for claim in claims:
        kind, word = _VERDICTS[claim.get("passed")]
        note = f"<small>{_text(claim['note'])}</small>" if claim.get("note") else ""
        rows.append(
            (
                f'<span class="badge {kind}">{word}</span>',
                _text(claim.get("claim")) + note,
                _text(claim.get("target")),
                _text(claim.get("measured") or None),
            )
        )
    table = shell.table(("Verdict", "Claim", "Target", "Measured"), rows)
    return f'<section class="card" id="claims"><h2>What the paper claims, and what came out</h2>{table}</section>'


def figure(chart: Chart) -> str:
    picture = io.BytesIO()
    draw(chart).savefig(picture, format="png", dpi=150, metadata={"Software": None})
    still = base64.b64encode(picture.getvalue()).decode("ascii")
    live = interactive(chart).to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"{chart.name}-live",
        config=shell.CONFIG,
    )
    return (
        f'<section class="card" id="{chart.name}"><h2>{escape(chart.title)}</h2>'
        f'<p class="caption">{escape(chart.caption)}</p><div class="live">{live}</div>'
        f'<div class="still"><img alt="{escape(chart.title)}" src="data:image/png;base64,{still}"></div></section>'
    )


def _variant(name: str) -> str:
    return f'<span class="dot" style="background:{colour(name)}"></span>{escape(name)}'


def _ordered(data: Data) -> list[Data]:
    """The runs by variant, the dynamic one first, then by start."""
    runs = list(data.get("runs") or [])
    names = variants(runs)
    order = [*names[-1:], *names[:-1]] if "dynamic" in names else names
    return sorted(runs, key=lambda run: (order.index(run["variant"]), number(run["start"])))


def _ends(data: Data) -> str:
    runs = _ordered(data)
    if not runs:
        return ""
    head = ("Variant", "Start", "log₁₀ ℓ₁", "log₁₀ ℓ₂", "Believed F", "Exact F", "Evaluations", "Work", "Status")
    rows = [
        (
            _variant(run["variant"]),
            _text(run["start"]),
            *_coordinates(run.get("theta")),
            _fixed(run.get("believed"), 4),
            _fixed(run.get("exact"), 4),
            _text(run.get("evaluations")),
            _text(run.get("work")),
            _text(run.get("status")),
        )
        for run in runs
    ]
    table = shell.table(head, rows, numeric=range(1, 8))
    return (
        '<section class="card" id="ends"><h2>Where the runs ended</h2><p class="caption">Start is the starting log₁₀ '
        "of the ℓ₂ penalty; work is the number of lower-level FISTA iterations, summed over the digits.</p>"
        f"{table}</section>"
    )


def _fixed(value: Any, places: int) -> str:
    return f"{value:.{places}f}" if math.isfinite(number(value)) else ABSENT


def _coordinates(theta: Any, places: int = 4) -> tuple[str, str]:
    pair = [*(theta or []), None, None][:2]
    return _fixed(pair[0], places), _fixed(pair[1], places)


def settings(data: Data) -> str:
    tables = []
    for title, key in (("Settings", "preset"), ("Versions", "provenance")):
        part = data.get(key) or {}
        if part:
            names = ((str(name).replace("_", " "), value) for name, value in part.items())
            rows = "".join(f"<tr><th>{escape(name)}</th><td>{_text(value)}</td></tr>" for name, value in names)
            tables.append(f"<div><h2>{title}</h2><table><tbody>{rows}</tbody></table></div>")
    return f'<section class="card pair" id="settings">{"".join(tables)}</section>' if tables else ""


def _records(data: Data) -> str:
    """Every evaluation of every run, folded away."""
    head = (
        *("No.", "Purpose", "log₁₀ ℓ₁", "log₁₀ ℓ₂", "Within", "Error", "Believed F", "Interval of F"),
        *("Exact F", "Work so far", "Best ℓ₁", "Best ℓ₂", "Best exact F"),
    )
    folds = []
    for run in _ordered(data):
        rows = [
            (
                _text(record.get("number")),
                _text(record.get("purpose")),
                *_coordinates(record.get("theta"), 5),
                escape(show(record.get("within"), 3)),
                escape(show(record.get("error"), 3)),
                _fixed(record.get("believed"), 5),
                escape(show(record.get("interval"), 7)),
                _fixed(record.get("exact"), 5),
                _text(record.get("work")),
                *_coordinates(record.get("incumbent"), 5),
                _fixed(record.get("incumbent_exact"), 5),
            )
            for record in run.get("records") or []
        ]
        extent = f"{show(run.get('evaluations'))} evaluations, {show(run.get('work'))} iterations, {run.get('status')}"
        folds.append(
            f"<details><summary>{_variant(run['variant'])} from start {_text(run['start'])} "
            f"<span>({escape(extent)})</span></summary>{shell.table(head, rows, numeric=(0, *range(2, 13)))}</details>"
        )
    if not folds:
        return ""
    about = (
        '<p class="caption">Within is the accuracy the run asked for, error the one that was proved; best is the '
        "incumbent after the evaluation. Penalties are log₁₀.</p>"
    )
    return f'<section class="card records" id="records"><h2>Every evaluation</h2>{about}{"".join(folds)}</section>'


# --- the charts, drawn with plotly ---------------------------------------------------------------------------------


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
            figure.add_hline(panel.level, line={"color": shell.GREY, "width": 1.2, "dash": "dot"}, **cell)
        bottom, left = index + columns >= len(chart.panels), cell["col"] == 1
        labelled = (bottom or not chart.shared, left or not chart.shared)
        same = chart.panels if chart.shared else [panel]
        figure.update_xaxes(**_axis(same, "x", labelled[0]), **cell)
        figure.update_yaxes(**_axis(same, "y", labelled[1]), **cell)
        if chart.shared and index:
            figure.update_xaxes(matches="x", **cell)
            figure.update_yaxes(matches="y", **cell)
    figure.update_annotations(font={"size": 13, "color": shell.INK})
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 64, "r": 14, "t": 66 if chart.panels[0].title else 40, "b": 48},
        font={"family": shell.FONT, "size": 12.5, "color": shell.INK},
        hoverlabel={"bgcolor": "#ffffff", "align": "left", "font": {"size": 12.5, "color": shell.INK}},
        legend={"orientation": "h", "x": 0, "y": 1, "yref": "container", "yanchor": "top"},
        hovermode="closest",
    )
    return figure


def _trace(line: Line) -> Any:
    from plotly import graph_objects

    mode = ("lines+markers" if line.joined else "markers") if line.symbol else "lines"
    symbol = _PLOTLY_SYMBOLS.get(line.symbol, "circle")
    hover = [escape(text).replace("\n", "<br>") for text in line.hover or []]
    return graph_objects.Scatter(
        x=_finite(line.x),
        y=_finite(line.y),
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


def _finite(values: Iterable[float]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values]


def _axis(panels: Sequence[Panel], which: str, labelled: bool) -> dict[str, Any]:
    """The look of one axis of `panels`, which is one panel or all that share the axis."""
    panel = panels[0]
    log = panel.log_x if which == "x" else panel.log_y
    title = {"text": (panel.x if which == "x" else panel.y) if labelled else None, "font": {"size": 12.5}}
    axis: dict[str, Any] = {
        "title": title | {"standoff": 8},
        "showticklabels": labelled,
        "tickfont": {"size": 11 if log else 12},
        "gridcolor": shell.RULE,
        "linecolor": "#c4cad2",
        "ticks": "outside" if labelled else "",
        "tickcolor": "#c4cad2",
        "ticklen": 4,
        "zeroline": False,
    }
    if log:
        lines = [line for each in panels for line in each.lines]
        values = [value for line in lines for value in (line.x if which == "x" else line.y) if value > 0]
        span = math.log10(max(values) / min(values)) if values else 0.0
        axis |= {"type": "log", "exponentformat": "power"}
        if span > 1.2:
            axis |= {"dtick": max(1, round(span / 6))}
        else:
            axis |= {"nticks": 6}
    if which == "x" and panel.ticks:
        axis |= {"tickvals": list(panel.ticks), "ticktext": [f"{tick:g}" for tick in panel.ticks]}
    return axis


# --- files ---------------------------------------------------------------------------------------------------------


def markdown(data: Data) -> str:
    """The claims as a Markdown table."""

    def cell(value: Any) -> str:
        text = show(value if value != "" else None)
        for mark in "\\|<*`[":
            text = text.replace(mark, "\\" + mark)
        return " ".join(text.split())

    lines = ["| Verdict | Claim | Target | Measured | Note |", "| --- | --- | --- | --- | --- |"]
    for claim in data.get("claims") or []:
        cells = (cell(claim.get(key) or "") for key in ("claim", "target", "measured"))
        lines.append(f"| {_VERDICTS[claim.get('passed')][1]} | {' | '.join(cells)} | {cell(claim.get('note') or '')} |")
    return "\n".join(lines) + "\n"


def write(data: Data, out: Path) -> Path:
    """Write report.html, claims.md and the figures into the folder `out`; returns the path of the page."""
    save(data, out)
    files.replace_atomically(out / "claims.md", markdown(data).encode("utf-8"))
    page = out / "report.html"
    files.replace_atomically(page, html(data).encode("utf-8"))
    return page
