"""The study as one self-contained web page, its claims as a Markdown table, and its figures as files.

The page holds the charts of `figures` itself: nothing is fetched, and the page's own content policy forbids it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from suffice import files
from suffice.report import html as shell
from suffice.report.formats import ABSENT, duration, show
from suffice_paper.charts import Chart, inline, number
from suffice_paper.figures import Data, charts, colour, save, variants

_VERDICTS = {True: ("pass", "pass"), False: ("fail", "FAIL"), None: ("open", "not tested")}


def verdict(claim: Data) -> tuple[str, str]:
    """The look of a claim's verdict, and its word."""
    return ("open", "overtaken") if claim.get("overtaken") else _VERDICTS[claim.get("passed")]


# --- the page ------------------------------------------------------------------------------------------------------


def html(data: Data) -> str:
    """The report on the study `data` as one web page that needs nothing else."""
    made = charts(data)
    sections = [
        claims(data),
        *(figure(chart) for chart in made),
        _ends(data),
        settings(data),
        _records(data),
    ]
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
    return shell.page(f"reproduction study ({preset})", body)


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
        overtaken = sum(bool(claim.get("overtaken")) for claim in tested)
        aside = f", {overtaken} {'is' if overtaken == 1 else 'are'} overtaken" if overtaken else ""
        aside += f", {len(claims) - len(tested)} not tested" if len(tested) < len(claims) else ""
        tiles.append((f"{held} of {len(tested)}", f"tested claims hold{aside}"))
    if best.get("theta"):
        l1, l2 = (f"{10.0 ** number(value):.3g}" for value in best["theta"][:2])
        tiles.append((f"ℓ₁ {l1}, ℓ₂ {l2}", f"best known, θ = {show(best['theta'], 4)}"))
    if best.get("F") is not None:
        tiles.append((show(best["F"], 7), "best known objective F"))
    if data.get("runs"):
        evaluations = sum(int(run.get("evaluations") or 0) for run in data["runs"])
        seconds = number(provenance.get("seconds"))
        time = f" in {duration(seconds, 3)}" if math.isfinite(seconds) else ""
        tiles.append((f"{len(data['runs'])} runs", f"{evaluations:,} evaluations{time}"))
    return shell.tiles((escape(big), escape(small)) for big, small in tiles)


def claims(data: Data) -> str:
    claims = data.get("claims") or []
    if not claims:
        return ""
    rows = []
    for claim in claims:
        kind, word = verdict(claim)
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
    return (
        f'<section class="card" id="{chart.name}"><h2>{escape(chart.title)}</h2>'
        f'<p class="caption">{escape(chart.caption)}</p>{inline(chart)}</section>'
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
    parts = (("Settings", data.get("preset") or {}), ("Versions", data.get("provenance") or {}))
    made = shell.pairs(parts, "h2")
    return f'<section class="card pair" id="settings">{made}</section>' if made else ""


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
        lines.append(f"| {verdict(claim)[1]} | {' | '.join(cells)} | {cell(claim.get('note') or '')} |")
    return "\n".join(lines) + "\n"


def write(data: Data, out: Path) -> Path:
    """Write report.html, claims.md and the figures into the folder `out`; returns the path of the page."""
    save(data, out)
    files.replace_atomically(out / "claims.md", markdown(data).encode("utf-8"))
    page = out / "report.html"
    files.replace_atomically(page, html(data).encode("utf-8"))
    return page
