"""`suffice history`: the line of a run's models, printed, and drawn as scores and coefficients over time."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path
from typing import Any

from suffice.files import replace_atomically
from suffice.report import svg
from suffice.report.chart import BLUE, LINES, PALE, Line, Panel, cut
from suffice.report.formats import settings
from suffice.report.html import page
from suffice.tabular.states import lines_of

SHOWN = 8  # coefficients that are told
Lines = list[dict[str, Any]]


def told(lines: Lines) -> list[str]:
    """For a terminal: a line for every model, then the largest coefficients of the latest, first and last."""
    width = max(len(cut(line["file"], 24)) for line in lines)
    said = [f"Score    {lines[-1]['scoring']}, ± one standard error over folds"]
    for line in lines:
        error = "" if line["standard_error"] is None else f" ± {line['standard_error']:.2g}"
        rows = f"+{line['added']:,}" + (f" -{line['removed']:,}" if line["removed"] else "")
        models = f"{line['rows']:>9,} rows  {line['score']:.5g}{error}"
        said += [
            f"{line['date'][:16]}  {cut(line['file'], 24):{width}}  {rows:>9}  {models}",
            f"{'':18}{settings(line['penalties'])}; {line['message']}",
        ]
    said.append("Columns  per standard deviation, in the first model and the last:")
    first, last = lines[0]["coefficients"], lines[-1]["coefficients"]
    for name in list(last)[:SHOWN]:
        before = f"{first[name][1]:+11.4g}" if name in first else f"{'':>11}"
        said.append(f"         {before} {last[name][1]:+11.4g}  {name}")
    return said


def panels(lines: Lines) -> tuple[Panel, Panel]:
    """Scores with their standard errors, and the largest coefficients, over the models of a run."""
    at = list(range(len(lines)))
    ticks = {float(k): cut(line["file"].removesuffix(".gz").removesuffix(".csv"), 16) for k, line in enumerate(lines)}
    ticks = dict(list(ticks.items())[:: math.ceil(len(ticks) / 12)])
    scores, errors = [line["score"] for line in lines], [line["standard_error"] or 0.0 for line in lines]
    bars = [a - b for a, b in zip(scores, errors, strict=True)], [a + b for a, b in zip(scores, errors, strict=True)]
    hover = [f"{line['date']}: {line['file']}\n{line['rows']:,} rows, {line['score']:.5g}" for line in lines]
    score = Line("score ± standard error over folds", BLUE, at, scores, hover, symbol="o", bars=bars)
    marks = []
    for k, name in enumerate(lines[-1]["coefficients"]):
        values = [line["coefficients"].get(name, (0.0, math.nan))[1] for line in lines]
        texts = [f"{name}\n{line['file']}: {value:.4g}" for line, value in zip(lines, values, strict=True)]
        colour = LINES[k] if k < SHOWN else PALE
        marks.append(Line(cut(name), colour, at, values, texts, symbol="o", listed=k < SHOWN, size=3.0))
    marks = [*marks[SHOWN:][:40], *marks[:SHOWN]]  # the grey ones below
    above = Panel("", "", lines[-1]["scoring"], [score], ticks=ticks, height=340)
    what = "coefficient, per standard deviation"
    return above, Panel("", "", what, marks, level=0.0, ticks=ticks, legend="outside", height=480)


def draw(folder: Path, picture: Path) -> None:
    """A page (.html), or a figure with matplotlib (.png, .svg, .pdf)."""
    lines = lines_of(folder)
    score, coefficients = panels(lines)
    if picture.suffix == ".html":
        name = escape(folder.name)
        body = f"<h1>History of {name}</h1><h2>Score</h2>{svg.figure(score, 'scores')}"
        body += f"<h2>Coefficients</h2>{svg.figure(coefficients, 'coefficients')}"
        return replace_atomically(picture, page(f"history of {name}", body).encode("utf-8"))
    from suffice.plots import draw_panel, new_figure

    made = new_figure(9.0, 8.0)
    upper, lower = made.subplots(2, 1, height_ratios=[2, 3])
    draw_panel(score, upper)
    draw_panel(coefficients, lower)
    return made.savefig(picture, dpi=110)
