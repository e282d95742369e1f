"""The five figures of the study: first as data (`Chart`), then drawn with matplotlib.

    figure 1   squared distance to the minimiser, ||w^k - w||^2, and the bounds on it, per iteration
    figure 2   one start: objective, work and both penalties, per evaluation
    figure 3   where every run ended, per starting l2 penalty
    figure 4   excess objective (F - F_best) / F_best against work, one panel per start
    figure 5   accuracy on fresh images, per digit, one panel per start

The study is the plain dictionary that is also kept as JSON; parts it lacks lead to fewer figures, absent values (None)
to gaps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from suffice import files
from suffice.report.chart import Line, Panel
from suffice.report.formats import show
from suffice_paper.charts import Chart, draw, number, number_ticks
from suffice_paper.charts import picture as picture_of

Data = dict[str, Any]

COLOURS = {  # Okabe and Ito
    "K = 20": "#56B4E9",
    "K = 200": "#009E73",
    "K = 2000": "#0072B2",
    "adaptive": "#CC79A7",
    "dynamic": "#D55E00",
}
SYMBOLS = {"K = 20": "^", "K = 200": "s", "K = 2000": "D", "adaptive": "v", "dynamic": "o"}
_SPARE = ("#CC79A7", "#E69F00", "#999999")  # for variants of other presets

FLOOR = 1e-7  # relative excess objectives below this, negative ones too, are drawn here


# --- reading the study ---------------------------------------------------------------------------------------------


def variants(entries: Iterable[Data]) -> list[str]:
    """The names of the variants, in the order in which they are drawn: the dynamic one last, hence on top."""
    names = dict.fromkeys(str(entry["variant"]) for entry in entries)
    known = [name for name in COLOURS if name in names and name != "dynamic"]
    others = [name for name in names if name not in COLOURS]
    return known + others + (["dynamic"] if "dynamic" in names else [])


def starts(entries: Iterable[Data]) -> list[float]:
    return sorted({number(entry["start"]) for entry in entries})


def colour(variant: str) -> str:
    return COLOURS.get(variant) or _SPARE[sum(variant.encode()) % len(_SPARE)]


def _runs(data: Data) -> list[Data]:
    return list(data.get("runs") or [])


def _of(entries: Iterable[Data], variant: str, start: float) -> list[Data]:
    return [entry for entry in entries if entry["variant"] == variant and number(entry["start"]) == start]


def _component(theta: Any, index: int) -> float:
    return number(theta[index]) if theta is not None and len(theta) > index else math.nan


def _best_objective(data: Data) -> float:
    """The best known objective: the study's own or, without it, the least that any run reached."""
    known = number((data.get("best") or {}).get("F"))
    if math.isfinite(known):
        return known
    ends = [number(run.get("exact")) for run in _runs(data)]
    return min((value for value in ends if math.isfinite(value)), default=math.nan)


def _best_theta(data: Data, index: int) -> float | None:
    value = _component((data.get("best") or {}).get("theta"), index)
    return value if math.isfinite(value) else None


def _hover(run: Data, record: Data) -> str:
    return "\n".join(
        (
            f"{run['variant']}, start {show(run['start'])}",
            f"evaluation {record.get('number')} ({record.get('purpose')})",
            f"incumbent θ = {show(record.get('incumbent'), 5)}",
            f"believed F = {show(record.get('incumbent_believed'), 8)}",
            f"exact F = {show(record.get('incumbent_exact'), 8)}",
            f"work so far = {show(record.get('work'))} iterations",
            f"evaluated θ = {show(record.get('theta'), 5)}, believed {show(record.get('believed'), 8)}",
        )
    )


# --- the charts ----------------------------------------------------------------------------------------------------


def chart1(data: Data) -> Chart:
    """The bounds on the squared distance to the minimiser, per iteration."""
    part = data.get("figure1")
    if not part:
        raise ValueError("figure 1 needs the part 'figure1' of the study")
    looks = (
        ("truth", "true squared distance", "#000000", False),
        ("rate", "a-priori linear rate", "#0072B2", True),
        ("subgradient", "a-posteriori subgradient bound", "#009E73", False),
        ("contraction", "contraction bound", "#CC79A7", False),
        ("gap", "duality-gap certificate (suffice)", "#D55E00", False),
    )
    x = [number(k) for k in part["iterations"]]
    lines = []
    for key, name, shade, dashed in looks:
        y = [number(value) for value in part.get(key) or []]
        if y:
            hover = [f"{name}\niteration {k:g}: {value:.4g}" for k, value in zip(x, y, strict=False)]
            lines.append(Line(name, shade, x[: len(y)], y, hover, dash="dashed" if dashed else "solid"))
    return Chart(
        "fig1",
        "Figure 1: how far from the minimiser?",
        f"One lower-level problem solved by FISTA (L = {show(part.get('L'), 4)}, μ = {show(part.get('mu'), 4)}): the "
        "true squared distance to the minimiser and what can be proved about it without knowing the minimiser. "
        "A bound is useful when it lies above the truth, and closely so.",
        [Panel("", "FISTA iteration k", "squared distance ‖wᵏ - ŵ‖²", lines, log_y=True)],
    )


def chart2(data: Data) -> Chart:
    """One start: what each variant achieved per evaluation, and what it believed."""
    runs = _runs(data)
    if not runs:
        raise ValueError("figure 2 needs runs")
    start = min(starts(runs), key=lambda value: abs(value - 1.0))
    best = _best_objective(data)
    objective: list[Line] = []
    others: list[list[Line]] = [[], [], []]
    for variant in variants(runs):
        for run in _of(runs, variant, start):
            records = run.get("records") or []
            x = [number(record.get("number")) for record in records]
            hover = [_hover(run, record) for record in records]
            shade, width = colour(variant), 2.2 if variant == "dynamic" else 1.6
            believed = [number(record.get("incumbent_believed")) for record in records]
            exact = [number(record.get("incumbent_exact")) for record in records]
            objective.append(Line(variant, shade, x, believed, hover, "", "dashed", "post", listed=False, width=0.9))
            objective.append(Line(variant, shade, x, exact, hover, steps="post", width=width))
            curves = (
                [number(record.get("work")) for record in records],
                *([10.0 ** _component(record.get("incumbent"), i) for record in records] for i in (0, 1)),
            )
            for lines, y in zip(others, curves, strict=True):
                lines.append(Line(variant, shade, x, y, hover, steps="post", listed=False, width=width))
    objective.append(Line("believed by the run", "#666666", [math.nan], [math.nan], dash="dashed", width=0.9))
    values = [value for line in objective for value in line.y if value > 0 and math.isfinite(value)]
    wide = bool(values) and max(values) > 10 * min(values)
    level = best if math.isfinite(best) else None
    levels = [None if (value := _best_theta(data, i)) is None else 10.0**value for i in (0, 1)]
    count = "evaluations"
    return Chart(
        "fig2",
        f"Figure 2: one start, log₁₀ ℓ₂ = {show(start)}",
        "Solid: the exact objective at each run's incumbent; thin and dashed: what the run itself believed. The "
        "dotted grey lines are the best known objective and penalties.",
        [
            Panel("objective F(θ) of the incumbent", count, "F(θ)", objective, log_y=wide, level=level),
            Panel("total FISTA iterations", count, "iterations", others[0], log_y=True),
            Panel("best ℓ₁ penalty", count, "ℓ₁ penalty", others[1], log_y=True, level=levels[0]),
            Panel("best ℓ₂ penalty", count, "ℓ₂ penalty", others[2], log_y=True, level=levels[1]),
        ],
        columns=2,
    )


def chart3(data: Data) -> Chart:
    """Where every run ended."""
    runs = _runs(data)
    if not runs:
        raise ValueError("figure 3 needs runs")
    panels = []
    for index, name in enumerate(("ℓ₁", "ℓ₂")):
        lines = []
        for variant in variants(runs):
            ends = sorted((run for run in runs if run["variant"] == variant), key=lambda run: number(run["start"]))
            lines.append(
                Line(
                    variant,
                    colour(variant),
                    [number(run["start"]) for run in ends],
                    [_component(run.get("theta"), index) for run in ends],
                    [_end(run) for run in ends],
                    SYMBOLS.get(variant, "v"),
                    listed=index == 0,
                    width=2.2 if variant == "dynamic" else 1.6,
                )
            )
        title, start = f"final log₁₀ {name} penalty", "starting log₁₀ ℓ₂ penalty"
        ticks = number_ticks(starts(runs))
        panels.append(Panel(title, start, f"log₁₀ {name}", lines, level=_best_theta(data, index), ticks=ticks))
    return Chart(
        "fig3",
        "Figure 3: does the start matter?",
        "The penalties each variant ended at, for every starting ℓ₂ penalty. A trustworthy tuner draws flat lines, on "
        "the dotted best known values.",
        panels,
        columns=2,
    )


def _end(run: Data) -> str:
    return "\n".join(
        (
            f"{run['variant']}, start {show(run['start'])}: {run.get('status')}",
            f"final θ = {show(run.get('theta'), 5)}",
            f"believed F = {show(run.get('believed'), 8)}",
            f"exact F = {show(run.get('exact'), 8)}",
            f"work = {show(run.get('work'))} iterations in {show(run.get('evaluations'))} evaluations",
        )
    )


def chart4(data: Data) -> Chart:
    """Excess objective against work, one panel per start."""
    runs = _runs(data)
    best = _best_objective(data)
    if not runs or not math.isfinite(best):
        raise ValueError("figure 4 needs runs and a best known objective")
    panels = []
    seen: set[str] = set()
    for start in starts(runs):
        lines = []
        for variant in variants(runs):
            for run in _of(runs, variant, start):
                records = run.get("records") or []
                exact = [number(record.get("incumbent_exact")) for record in records]
                excess = [value if math.isnan(value) else max((value - best) / abs(best), FLOOR) for value in exact]
                lines.append(
                    Line(
                        variant,
                        colour(variant),
                        [number(record.get("work")) for record in records],
                        excess,
                        [_hover(run, record) for record in records],
                        steps="post",
                        listed=variant not in seen,
                        width=2.2 if variant == "dynamic" else 1.6,
                    )
                )
                seen.add(variant)
        panels.append(Panel(f"start {show(start)}", "FISTA iterations", "excess objective", lines, True, True))
    return Chart(
        "fig4",
        "Figure 4: objective against work",
        f"The relative excess (F - F_best) / F_best of the incumbent's exact objective, F_best = {show(best, 8)}, "
        f"against all lower-level iterations so far, per starting log₁₀ ℓ₂ penalty. Excesses below {FLOOR:g} are drawn "
        "there. Lower and further left is better.",
        panels,
        columns=min(4, len(panels)),
        shared=True,
    )


def chart5(data: Data) -> Chart:
    """Accuracy on fresh images, per digit, one panel per start."""
    entries = list(data.get("validation") or [])
    if not entries:
        raise ValueError("figure 5 needs the part 'validation' of the study")
    tuned = (data.get("preset") or {}).get("digits")
    digits = sorted({int(entry["digit"]) for entry in entries})
    fresh = [digit for digit in digits if tuned is not None and digit not in tuned]
    names = variants(entries)
    panels = []
    seen: set[str] = set()
    for start in starts(entries):
        lines = []
        for place, variant in enumerate(names):
            ours = sorted(_of(entries, variant, start), key=lambda entry: int(entry["digit"]))
            if not ours:
                continue
            aside = 0.18 * (place - (len(names) - 1) / 2)
            hover = [
                f"{variant}, start {show(start)}\ndigit {entry['digit']}"
                f"{' (not tuned on)' if entry['digit'] in fresh else ''}: accuracy {show(entry.get('accuracy'), 5)}"
                for entry in ours
            ]
            x = [int(entry["digit"]) + aside for entry in ours]
            y = [number(entry.get("accuracy")) for entry in ours]
            symbol = SYMBOLS.get(variant, "v")
            listed = variant not in seen
            lines.append(Line(variant, colour(variant), x, y, hover, symbol, joined=False, listed=listed))
            seen.add(variant)
        shaded = tuple((digit - 0.5, digit + 0.5) for digit in fresh)
        ticks = number_ticks(digits)
        panels.append(Panel(f"start {show(start)}", "digit", "accuracy", lines, shaded=shaded, ticks=ticks))
    return Chart(
        "fig5",
        "Figure 5: accuracy on fresh images",
        "One-against-the-rest accuracy with the tuned penalties, trained and tested on images that took no part in the "
        "tuning, per digit and starting log₁₀ ℓ₂ penalty. Shaded: digits that were not tuned on.",
        panels,
        columns=min(4, len(panels)),
        shared=True,
    )


_CHARTS: tuple[Callable[[Data], Chart], ...] = (chart1, chart2, chart3, chart4, chart5)


def charts(data: Data) -> list[Chart]:
    """Every chart for which the study has the data."""
    made = []
    for chart in _CHARTS:
        try:
            made.append(chart(data))
        except ValueError:
            continue
    return made


# --- drawing with matplotlib ---------------------------------------------------------------------------------------


def save(data: Data, out: Path) -> list[Path]:
    """Draw every figure that `data` allows into the folder `out`, each as PNG and PDF; returns the paths."""
    files.make_folder(out)
    paths = []
    for chart in charts(data):
        figure = draw(chart)
        for path, picture in (
            (out / f"{chart.name}.png", picture_of(figure, 150)),
            (out / f"{chart.name}.pdf", picture_of(figure, 150, "pdf")),
        ):
            files.replace_atomically(path, picture)
            paths.append(path)
    return paths
