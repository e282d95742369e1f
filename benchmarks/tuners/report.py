"""The report: cells -> results/tuners.json, tuners.md and pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import provenance, table, write_json, write_text
from benchmarks.tuners import cells as stored
from benchmarks.tuners import plots, profiles
from benchmarks.tuners.problems import GLOBAL, LASSO, PROBLEMS
from benchmarks.tuners.profiles import Cells
from benchmarks.tuners.tuners import OURS, OURS_FREE, TUNERS

TAUS = (1e-2, 1e-3)
SOLVERS = {"fista": "FISTA trains", "auto": "`auto` trains (Newton's method where it applies)"}
MANY = "suffice, 8 starts"
COMPARED = [name for name, one in TUNERS.items() if one.kind != "ablation" and name != MANY]
FREE = [name for name in COMPARED if TUNERS[name].kind != "gradient" and name != OURS]
WITH_SLOPES = [name for name in COMPARED if TUNERS[name].kind == "gradient"]
RIVALS = [name for name in FREE if TUNERS[name].kind != "ours"]
ABLATIONS = [OURS, *(name for name, one in TUNERS.items() if one.kind == "ablation")]


def write(
    folders: Sequence[Path],
    out: Path,
    seeds: Mapping[str, Sequence[int]],
    measured: str = "",
    ablations: Sequence[Path] | None = None,
) -> None:
    """The whole report of the cells in these folders, those of the first where several have the same, with the seeds by
    solver; `measured` says where and when they were made. Ablations are of these cells, or of folders of their own."""
    known = _read(folders, seeds)
    found, parted = Cells.of(known.values()), Cells.of(_read(ablations or folders, seeds).values())
    parts = ["# Tuners compared", f"{_counts(found)} {measured}".strip()]
    packages = ("scikit-learn", "optuna", "DFO-LS", "cobyqa", "Py-BOBYQA")
    numbers: dict[str, Any] = {"measured": measured, "provenance": provenance(*packages)}
    for solver, title in SOLVERS.items():
        if found.problems(solver, list(PROBLEMS)):
            text, data = _solver(found, parted, solver, out)
            parts += [f"## When {title}", *text]
            numbers[solver] = data
    parts += _global(found) + _lasso(found)
    failures = sorted({(one["tuner"], one["problem"], one["reason"]) for one in known.values()
                       if one["reason"] not in ("ended", "budget")})  # fmt: skip
    if failures:
        parts += ["## Failures", table(["tuner", "problem", "reason"], failures)]
    numbers["best"] = found.best
    write_json(out / "tuners.json", numbers)
    write_text(out / "tuners.md", "\n\n".join(parts) + "\n")
    print("\n\n".join(parts))


def _read(folders: Sequence[Path], seeds: Mapping[str, Sequence[int]]) -> dict[Any, dict[str, Any]]:
    known: dict[Any, dict[str, Any]] = {}
    for folder in folders:
        for one in (one for one in stored.read(folder) if one["seed"] in seeds[one["solver"]]):
            known.setdefault((one["problem"], one["solver"], one["tuner"], one["seed"]), one)
    return known


def _counts(found: Cells) -> str:
    runs = sum(map(len, found.runs.values()))
    return (
        f"{runs:,} runs of {len({key[2] for key in found.runs})} tuners on {len(found.best)} problems. Work is in "
        "products with X, medians over seeds; F counts as found once the exact F of the theta that a tuner would "
        "return is within 1 % of the best that any run has found. `benchmarks/tuners/protocol.py` has the rules."
    )


def _solver(found: Cells, parted: Cells, solver: str, out: Path) -> tuple[list[str], dict[str, Any]]:
    problems, tuners = found.problems(solver, list(PROBLEMS)), found.tuners(solver, COMPARED)
    free, slopes = found.tuners(solver, FREE), found.tuners(solver, WITH_SLOPES)
    rivals = found.tuners(solver, RIVALS)
    parts, numbers = [], {}
    for tau in TAUS:
        parts += [f"### Median work to {tau:.1%}", _medians(found, solver, problems, tuners, tau)]
        numbers[f"medians {tau:g}"] = {
            problem: {tuner: found.quartiles((problem, solver, tuner), tau) for tuner in tuners} for problem in problems
        }
    parts += ["### Median seconds to 1 %, thinking included",
              _medians(found, solver, problems, tuners, 1e-2, "seconds")]  # fmt: skip
    parts += ["### Wins", *_wins(found, solver, problems, rivals, slopes)]
    parts += ["### Ranks, derivative-free", _ranks(found, solver, problems, free)]
    parts += ["### What each part is worth", _ablation(parted, solver, problems)]
    plots.curves(found, solver, problems, out / f"tuners_curves_{solver}.png")
    plots.profile(found, solver, problems, free, out / f"tuners_profiles_{solver}.png")
    return parts, numbers


def cell(value: float, best: bool = False) -> str:
    if math.isnan(value):
        return ""
    text = "-" if math.isinf(value) else f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
    return f"**{text}**" if best and math.isfinite(value) else text


def _medians(
    found: Cells, solver: str, problems: Sequence[str], tuners: Sequence[str], tau: float, measure: str = "products"
) -> str:
    rows = []
    least = {}
    for problem in problems:
        of = [found.median((problem, solver, tuner), tau, measure) for tuner in tuners if tuner in FREE]
        least[problem] = np.nanmin(of) if of else math.nan
    for tuner in tuners:
        values = [found.median((problem, solver, tuner), tau, measure) for problem in problems]
        marked = [cell(v, tuner in FREE and v == least[p]) for v, p in zip(values, problems, strict=True)]
        rows.append([tuner, *marked, sum(math.isfinite(v) for v in values)])
    return table(["tuner", *problems, "found"], rows)


def _wins(
    found: Cells, solver: str, problems: Sequence[str], rivals: Sequence[str], slopes: Sequence[str]
) -> list[str]:
    """Ours without derivatives and with them beside the best derivative-free rival, and with them beside the best
    gradient-based one: the one with the largest ratio of medians over the seeds that both have."""
    parts = []
    for tau in TAUS:
        rows, won, close, least = [], 0, 0, 0
        for problem in problems:
            free, rival = _hardest(found, problem, solver, OURS_FREE, rivals, tau)
            ours, other = _hardest(found, problem, solver, OURS, rivals, tau)
            steep = _hardest(found, problem, solver, OURS, slopes, tau)
            won += free <= rival[1] and math.isfinite(free)
            least += ours <= other[1] and math.isfinite(ours)
            row = [problem, cell(free), f"{rival[0]}: {cell(rival[1])}", _ratio(free, rival[1]), cell(ours),
                   _ratio(ours, other[1])]  # fmt: skip
            known = not math.isnan(steep[1][1])
            close += known and steep[0] <= 2.0 * steep[1][1] and math.isfinite(steep[0])
            rows.append([*row, f"{steep[1][0]}: {cell(steep[1][1])}" if known else "",
                         _ratio(steep[0], steep[1][1]) if known else ""])  # fmt: skip
        known = sum(row[-1] != "" for row in rows)
        head = [
            "problem",
            "no derivatives",
            "best rival without",
            "ratio",
            "default",
            "ratio",
            "best rival with",
            "ratio",
        ]
        parts += [f"To {tau:.1%}: the least work of all derivative-free tuners on {won} of {len(problems)} problems "
                  f"without derivatives, and on {least} by default, with them; by default "
                  f"within twice the best gradient-based rival on {close} of {known}. Medians are over the seeds that "
                  "both have.", table(head, rows)]  # fmt: skip
    return parts


def _hardest(
    found: Cells, problem: str, solver: str, ours: str, rivals: Sequence[str], tau: float
) -> tuple[float, tuple[str, float]]:
    """Our median, and the rival with its own, that we compare worst with; NaN if there is none."""
    own, worst = found.to_reach((problem, solver, ours), tau), (math.nan, ("", math.nan))
    least = -math.inf
    for rival in rivals:
        other = found.to_reach((problem, solver, rival), tau)
        both = [seed for seed in own if seed in other]
        if not both:
            continue
        mine, theirs = (profiles.lower_median([runs[seed] for seed in both]) for runs in (own, other))
        if math.isinf(mine) and math.isinf(theirs):
            ratio = 1.0
        else:
            ratio = mine / theirs if math.isfinite(mine) else 1e300 / theirs
        if ratio > least:
            least, worst = ratio, (mine, (rival, theirs))
    return worst


def _ratio(ours: float, other: float) -> str:
    if math.isinf(ours) or math.isnan(ours):
        return "-" if math.isinf(other) else "lost"
    return "alone" if math.isinf(other) else f"{ours / other:.2f}"


def _ranks(found: Cells, solver: str, problems: Sequence[str], tuners: Sequence[str]) -> str:
    of = {tau: profiles.ranked(found, solver, problems, tuners, tau) for tau in TAUS}
    order = sorted(tuners, key=lambda tuner: of[TAUS[0]][tuner][0])
    rows = [[tuner, *(f"{of[tau][tuner][0]:.1f} ({of[tau][tuner][1]:.1f} to {of[tau][tuner][2]:.1f})" for tau in TAUS)]
            for tuner in order]  # fmt: skip
    return table(["tuner", *(f"mean rank to {tau:.1%} (90 %)" for tau in TAUS)], rows)


def _ablation(found: Cells, solver: str, problems: Sequence[str]) -> str:
    """Work of variants over that of ours without derivatives: geometric means over problems both have found."""
    rows = []
    for name in found.tuners(solver, ABLATIONS):
        row: list[Any] = ["with derivatives (the default)" if name == OURS else name]
        for tau in TAUS:
            pairs = [(found.median((problem, solver, name), tau), found.median((problem, solver, OURS_FREE), tau))
                     for problem in problems]  # fmt: skip
            both = [a / b for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
            only = sum(math.isfinite(b) and math.isinf(a) for a, b in pairs)
            more = sum(math.isfinite(a) and math.isinf(b) for a, b in pairs)
            mean = math.exp(np.mean(np.log(both))) if both else math.nan
            row += [f"{mean:.2f}", f"{min(both, default=math.nan):.2f} to {max(both, default=math.nan):.2f}",
                    f"{more} / {only}"]  # fmt: skip
        rows.append(row)
    head = ["variant"]
    for tau in TAUS:
        head += [f"work to {tau:.1%}, times ours without", "range", "found only by it / by ours"]
    return table(head, rows)


def _global(found: Cells) -> list[str]:
    problems = found.problems("auto", list(GLOBAL))
    if not problems:
        return []
    rows = []
    for tuner in found.tuners("auto", [MANY, *COMPARED]):
        row: list[Any] = [tuner]
        for problem in problems:
            gaps = found.gap_at((problem, "auto", tuner), np.array([math.inf]))
            if not len(gaps):
                row.append("")
                continue
            good = int(np.sum(gaps[:, 0] <= 1e-2))
            row.append(f"{good}/{len(gaps)}, {np.nanmedian(gaps[:, 0]):.2%}")
        rows.append(row)
    text = (
        "Several local minima, the same budget for all: how many seeds end within 1 % of the best, and the median gap."
    )
    return ["## Global safety", text, table(["tuner", *problems], rows)]


def _lasso(found: Cells) -> list[str]:
    """How far F ends above the least that any run has found, from the recipe's start and from the others."""
    problems = found.problems("auto", list(LASSO))
    if not problems:
        return []
    rows = []
    for tuner in found.tuners("auto", COMPARED):
        row: list[Any] = [tuner]
        for problem in problems:
            runs = found.runs.get((problem, "auto", tuner), {})
            gaps = {seed: run["curve"][-1][4] / found.best[problem] - 1.0 for seed, run in runs.items() if run["curve"]}
            others = [gap for seed, gap in gaps.items() if seed > 0]
            row += [f"{gaps[0]:,.0%}, {runs[0]['products']:,.0f}" if 0 in gaps else "",
                    f"{np.median(others):,.0%}" if others else ""]  # fmt: skip
        if any(row[1:]):
            rows.append(row)
    text = (
        "One l1 for each of 60, 100 and 1,000 columns, by the recipe of LassoBench: how far F ends above the least "
        "that any run has found, from the recipe's start, with the products with X that it took, and from two random "
        "starts (median)."
    )
    head = [name for problem in problems for name in (problem, "random starts")]
    return ["## One penalty for each column", text, table(["tuner", *head], rows)]
