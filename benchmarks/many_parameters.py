"""Many parameters, exact evaluations: how many evaluations, and how much time besides them, beside DFO-LS?

Problems: those of `large_problems.py`, m from 52 to 200, from their customary starts, without bounds, 4 (m + 1)
evaluations at most (`--budget`). Both solvers run one after the other in one process on one thread, with final radius
1e-8 and DFO-LS's defaults otherwise.

A problem is solved to level tau by the first evaluation with F <= F_L + tau (F_0 - F_L), where F_0 is F at the start
and F_L the best that either solver has found (0 if that is below 1e-10 F_0). Overhead: processor time of the whole run
less that of the objective, per evaluation, for the problems with at most 120 parameters.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dfols
import numpy as np
from common import OURS, parser, provenance, table, target, write_json, write_text
from large_problems import Problem, Residuals, Vector, problems
from threadpoolctl import threadpool_limits

import suffice

DFOLS = "DFO-LS"
LEVELS = (1e-3, 1e-5, 1e-7)
TIMED_UP_TO = 120  # parameters


@dataclass(frozen=True)
class Run:
    costs: list[float]  # F, evaluation by evaluation
    overhead: float  # milliseconds per evaluation
    ended: str

    def reached(self, F: float) -> float:
        return next((float(k) for k, cost in enumerate(self.costs, 1) if cost <= F), np.inf)


def run_suffice(residuals: Residuals, start: Vector, budget: int) -> str:
    options = suffice.Options(max_evaluations=budget, final_radius=1e-8)
    try:
        return suffice.tune(suffice.exact(residuals), start, options=options).status.name
    except suffice.OracleError as error:  # an overflow of the test function; everything before it counts
        return str(error)[:100]


def run_dfols(residuals: Residuals, start: Vector, budget: int) -> str:
    return str(dfols.solve(residuals, start, maxfun=budget, rhoend=1e-8).msg)


SOLVERS: dict[str, Callable[[Residuals, Vector, int], str]] = {OURS: run_suffice, DFOLS: run_dfols}


def run(solver: str, problem: Problem, budget: int) -> Run:
    costs: list[float] = []
    inside = 0.0

    def residuals(x: Vector) -> Vector:
        nonlocal inside
        began = time.process_time()
        r = problem.residuals(x)
        cost = float(r @ r)
        costs.append(cost if np.isfinite(cost) else np.inf)
        inside += time.process_time() - began
        return r

    began = time.process_time()
    ended = SOLVERS[solver](residuals, problem.start.copy(), budget)
    return Run(costs, 1e3 * (time.process_time() - began - inside) / len(costs), ended)


def entry(problem: Problem, runs: dict[str, Run]) -> dict[str, Any]:
    """What is known about one problem."""
    start = runs[OURS].costs[0]
    best = min(min(r.costs) for r in runs.values())
    low = 0.0 if best < 1e-10 * start else best
    goals = {f"{tau:.0e}": low + tau * (start - low) for tau in LEVELS}
    return {
        "problem": problem.name,
        "m": len(problem.start),
        "sparse": problem.sparse,
        "start": start,
        "best": best,
        "solvers": {
            name: {
                "best": min(r.costs),
                "evaluations": len(r.costs),
                "overhead_ms": r.overhead,
                "ended": r.ended,
                "to_level": {tau: r.reached(F) for tau, F in goals.items()},
            }
            for name, r in runs.items()
        },
    }


def _count(value: float) -> str:
    return f"{value:.0f}" if np.isfinite(value) else "-"


def report(found: list[dict[str, Any]]) -> tuple[str, list[list[str]], dict[str, float]]:
    """The Markdown report, its rows of targets and the medians behind them."""
    rows, medians = [], {}
    for item in found:
        a, b = (item["solvers"][name] for name in (OURS, DFOLS))
        counts = [f"{_count(a['to_level'][t])} / {_count(b['to_level'][t])}" for t in a["to_level"]]
        bests = f"{a['best']:.1e} / {b['best']:.1e}"
        total = f"{a['evaluations']} / {b['evaluations']}"
        rows.append([item["problem"], *counts, total, bests, f"{a['overhead_ms']:.1f} / {b['overhead_ms']:.1f}"])
    for tau in (f"{tau:.0e}" for tau in LEVELS):
        pairs = [[item["solvers"][name]["to_level"][tau] for name in (OURS, DFOLS)] for item in found]
        medians[f"solved to {tau}"] = int(sum(np.isfinite(a) for a, _ in pairs))
        medians[f"DFO-LS solved to {tau}"] = int(sum(np.isfinite(b) for _, b in pairs))
        both = [a / b for a, b in pairs if np.isfinite(a) and np.isfinite(b)]
        medians[f"evaluations to {tau}, median ratio"] = float(np.median(both))
    timed = [item["solvers"] for item in found if item["m"] <= TIMED_UP_TO]
    ours, theirs = (float(np.median([s[name]["overhead_ms"] for s in timed])) for name in (OURS, DFOLS))
    ratio = float(np.median([s[OURS]["overhead_ms"] / s[DFOLS]["overhead_ms"] for s in timed]))
    medians |= {"overhead ms": ours, "DFO-LS's overhead ms": theirs, "overhead, median ratio": ratio}
    targets = [
        target("overhead per evaluation in ms, median, at most DFO-LS's", ours, theirs),
        target("overhead per evaluation, median of the ratios to DFO-LS's", ratio, 1.0),
    ]
    for tau in (f"{tau:.0e}" for tau in LEVELS):
        goal = medians[f"DFO-LS solved to {tau}"]
        targets.append(target(f"solved to {tau}", medians[f"solved to {tau}"], goal, at_least=True, digits=0))
        name = f"evaluations to {tau}, median ratio"
        targets.append(target(name, medians[name], 1.0))
    head = ["problem: suffice / DFO-LS", *(f"to {t:.0e}" for t in LEVELS), "evaluations", "best F", "overhead ms"]
    parts = [
        "# Many parameters, exact evaluations",
        table(head, rows),
        "Ratios are suffice's to DFO-LS's, over the problems that both solve.",
        "## Targets",
        table(["target for suffice", "measured", "target", "verdict"], targets),
    ]
    return "\n\n".join(parts) + "\n", targets, medians


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--budget", type=float, default=4.0, help="evaluations, times m + 1 (%(default)s)")
    arguments.add_argument("--only", default="", help="problems with this in their name")
    args = arguments.parse_args()
    warnings.simplefilter("ignore")  # overflows of the test functions, DFO-LS's remarks
    found = []
    with threadpool_limits(1):
        for problem in problems():
            if args.only not in problem.name:
                continue
            budget = int(args.budget * (len(problem.start) + 1))
            found.append(entry(problem, {name: run(name, problem, budget) for name in SOLVERS}))
            print(problem.name, {k: (v["evaluations"], v["to_level"]) for k, v in found[-1]["solvers"].items()})
    text, targets, medians = report(found)
    data = {
        "what": "problems with many parameters, exact evaluations, suffice against DFO-LS",
        "provenance": provenance("DFO-LS"),
        "budget": args.budget,
        "medians": medians,
        "targets": targets,
        "problems": found,
    }
    write_json(args.out / "many_parameters.json", data)
    write_text(args.out / "many_parameters.md", text)
    print(text)


if __name__ == "__main__":
    main()
