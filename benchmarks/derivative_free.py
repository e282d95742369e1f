"""Exact evaluations, cheap functions: is the trust-region search as good as DFO-LS?

Problems: the 54 nonlinear least-squares problems of More and Wild (SIAM J. Optim. 20, 2009) as optimagic ships them,
from their starts, without bounds, 50 (m + 1) evaluations for m variables. Solvers: suffice, suffice with the paper's
linear model (both with final radius 1e-8, which is DFO-LS's default, too), DFO-LS with its defaults.

A problem is solved to level tau by the first evaluation with F <= F_L + tau (F_0 - F_L), where F_0 is F at the start
and F_L the best of all solvers and the known value. Ratios of evaluations are suffice's to DFO-LS's on the problems
that both solve.

Overhead: time of ask and tell together on a chained Rosenbrock function, per evaluation, the first m + 1 left out (they
need no thinking), objective not counted. It is processor time on one thread: wall-clock time on an idle machine, and
the same on a busy one.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dfols
import matplotlib
import numpy as np
import numpy.typing as npt
from common import OURS, OURS_LINEAR, STYLES, parser, provenance, table, target, write_json, write_text
from optimagic.benchmarking.get_benchmark_problems import get_benchmark_problems
from threadpoolctl import threadpool_limits

import suffice

matplotlib.use("Agg")
from matplotlib import pyplot as plt

Vector = npt.NDArray[np.float64]
Residuals = Callable[[Vector], Vector]

DFOLS = "DFO-LS"
LEVELS = (1e-1, 1e-3, 1e-5)
BUDGET = 50  # evaluations, times m + 1
OVERHEAD_LIMITS = {2: 2.0, 10: None, 50: 20.0}  # m: milliseconds


@dataclass(frozen=True)
class Problem:
    name: str
    residuals: Residuals
    start: Vector
    known: float

    @property
    def unit(self) -> int:
        """Evaluations that a simplex gradient takes."""
        return len(self.start) + 1


@dataclass(frozen=True)
class Run:
    costs: list[float]  # F, evaluation by evaluation
    ended: str
    seconds: float

    def reached(self, F: float) -> float:
        """The number of the first evaluation that is no larger than F, or infinity."""
        return next((k for k, cost in enumerate(self.costs, 1) if cost <= F), np.inf)


class Spent(Exception):  # noqa: N818 (not an error)
    """The budget is spent."""


def load(every: int = 1) -> list[Problem]:
    """Every so-manieth of the More-Wild problems."""
    found = []
    for name, entry in list(get_benchmark_problems("more_wild").items())[::every]:
        start = np.array(entry["inputs"]["params"], dtype=np.float64)
        found.append(Problem(name, entry["inputs"]["fun"], start, float(entry["solution"]["value"])))
    return found


def run(solver: Callable[[Residuals, Vector, int], str], problem: Problem) -> Run:
    """Every cost a solver sees, until it ends or has spent its budget."""
    costs: list[float] = []
    budget = BUDGET * problem.unit

    def residuals(x: Vector) -> Vector:
        if len(costs) >= budget:
            raise Spent
        r = np.asarray(problem.residuals(x), dtype=np.float64)
        cost = float(r @ r)
        costs.append(cost if np.isfinite(cost) else np.inf)
        return r

    began = time.perf_counter()
    try:
        ended = solver(residuals, problem.start.copy(), budget)
    except Spent:
        ended = "budget spent"
    return Run(costs, ended, time.perf_counter() - began)


def run_suffice(residuals: Residuals, start: Vector, budget: int, **chosen: Any) -> str:
    options = suffice.Options(max_evaluations=budget, final_radius=1e-8, **chosen)
    try:
        return suffice.tune(suffice.exact(residuals), start, options=options).message
    except suffice.OracleError as error:  # an overflow of the test function; everything before it counts
        return str(error)


def run_dfols(residuals: Residuals, start: Vector, budget: int) -> str:
    return str(dfols.solve(residuals, start, maxfun=budget).msg)


SOLVERS: dict[str, Callable[[Residuals, Vector, int], str]] = {
    OURS: run_suffice,
    OURS_LINEAR: partial(run_suffice, model="linear"),
    DFOLS: run_dfols,
}


@dataclass(frozen=True)
class Level:
    """Evaluations to level tau, one array over the problems for each solver; infinite where unsolved."""

    tau: float
    needed: dict[str, Vector]

    def solved(self, solver: str) -> int:
        return int(np.isfinite(self.needed[solver]).sum())

    def against(self, solver: str, rival: str = DFOLS) -> dict[str, float]:
        """Medians and ratios on the problems that both solve."""
        ours, theirs = self.needed[solver], self.needed[rival]
        both = np.isfinite(ours) & np.isfinite(theirs)
        if not both.any():
            return dict.fromkeys(("median", "rival_median", "median_ratio", "mean_ratio"), np.nan) | {"both": 0}
        ratio = ours[both] / theirs[both]
        return {
            "both": int(both.sum()),
            "median": float(np.median(ours[both])),
            "rival_median": float(np.median(theirs[both])),
            "median_ratio": float(np.median(ratio)),
            "mean_ratio": float(np.exp(np.mean(np.log(ratio)))),
        }


def levels(problems: list[Problem], runs: dict[str, list[Run]]) -> tuple[list[Level], list[float]]:
    """The evaluations needed for each level, and F_L of each problem."""
    best = [min(p.known, *(min(runs[s][i].costs) for s in runs)) for i, p in enumerate(problems)]
    result = []
    for tau in LEVELS:
        needed = {}
        for solver, own in runs.items():
            goals = (low + tau * (r.costs[0] - low) for r, low in zip(own, best, strict=True))
            needed[solver] = np.array([r.reached(goal) for r, goal in zip(own, goals, strict=True)])
        result.append(Level(tau, needed))
    return result, best


def chained_rosenbrock(x: Vector) -> Vector:
    """10 (x_{i+1} - x_i^2) and 1 - x_i for i < m."""
    return np.concatenate([10.0 * (x[1:] - x[:-1] ** 2), 1.0 - x[:-1]])


def overhead(m: int, evaluations: int) -> dict[str, float]:
    """Milliseconds of ask and tell per evaluation; a search that converges early is followed by another one."""
    rng = np.random.default_rng(m)
    objective = suffice.exact(chained_rosenbrock)
    timed: list[float] = []
    while len(timed) < evaluations:
        tuner = suffice.Tuner(
            np.where(np.arange(m) % 2, 1.0, -1.2) + rng.uniform(-0.5, 0.5, m),
            options=suffice.Options(max_evaluations=m + 1 + evaluations, final_radius=1e-8),
        )
        times: list[float] = []
        while True:
            began = time.process_time()
            if tuner.done:
                break
            request = tuner.ask()
            asked = time.process_time() - began
            evaluation = objective.evaluate(request.theta, within=request.within)
            began = time.process_time()
            tuner.tell(evaluation)
            times.append(asked + time.process_time() - began)
        timed += times[m + 1 :]
    median, high = np.percentile(timed, [50, 90]) * 1e3
    return {"m": m, "timed": len(timed), "median_ms": float(median), "p90_ms": float(high)}


def plot(path: Path, problems: list[Problem], found: list[Level]) -> None:
    """Data profiles: the fraction of problems solved against evaluations in units of m + 1."""
    units = np.array([p.unit for p in problems])
    fig, axes = plt.subplots(1, len(found), figsize=(12.0, 4.2), sharey=True, layout="constrained")
    for ax, level in zip(axes, found, strict=True):
        for solver, needed in level.needed.items():
            x = np.sort((needed / units)[np.isfinite(needed)])
            y = np.arange(len(x) + 1) / len(problems)
            label = f"{solver}: {len(x)} solved"
            ax.step([1e-9, *x, BUDGET], [*y, y[-1]], where="post", label=label, **STYLES[solver])
        ax.set_title(rf"$\tau = 10^{{{round(np.log10(level.tau))}}}$")
        ax.set_xlabel(r"evaluations / $(m + 1)$")
        ax.set_xscale("log")
        ax.set_xticks(ticks := [1, 2, 5, 10, 20, 50], map(str, ticks))
        ax.set_xticks([], minor=True)
        ax.set(xlim=(0.9, BUDGET), ylim=(0, 1.02))
        ax.grid(alpha=0.3)
        ax.legend(loc="lower right", fontsize=9)
    axes[0].set_ylabel("fraction of problems solved")
    fig.suptitle(f"{len(problems)} Moré-Wild least-squares problems, exact evaluations")
    fig.savefig(path, dpi=150)
    plt.close(fig)


def report(found: list[Level], costs: list[dict[str, float]], count: int) -> tuple[str, list[list[str]]]:
    """The Markdown report and its rows of targets."""
    rows, targets = [], []
    for level in found:
        for solver in level.needed:
            if solver == DFOLS:
                rows.append([solver, f"{level.tau:.0e}", level.solved(solver), "", "", "", ""])
                continue
            a = level.against(solver)
            medians = f"{a['median']:.1f} / {a['rival_median']:.1f}"
            ratios = [f"{a['median_ratio']:.2f}", f"{a['mean_ratio']:.2f}"]
            rows.append([solver, f"{level.tau:.0e}", level.solved(solver), a["both"], medians, *ratios])
        ratio = level.against(OURS)["median_ratio"]
        goal = level.solved(DFOLS)
        targets += [
            target(f"solved to {level.tau:.0e}", level.solved(OURS), goal, at_least=True, digits=0),
            target(f"evaluations to {level.tau:.0e}, median ratio", ratio, 1.1),
        ]
    for cost in costs:
        limit = OVERHEAD_LIMITS[int(cost["m"])]
        if limit is not None:
            targets.append(target(f"overhead in ms, m = {cost['m']}, median", cost["median_ms"], limit))
    medians = "median evaluations / DFO-LS's"
    head = ["solver", "tau", f"solved of {count}", "by both", medians, "median ratio", "mean ratio"]
    timing = [[c["m"], f"{c['median_ms']:.2f}", f"{c['p90_ms']:.2f}", c["timed"]] for c in costs]
    parts = [
        "# Derivative-free least squares, exact evaluations",
        table(head, rows),
        "Medians and ratios (median, geometric mean) are over the problems that the solver and DFO-LS both solve.",
        "## Time inside suffice per evaluation",
        table(["m", "median ms", "90th percentile ms", "evaluations timed"], timing),
        "## Targets",
        table(["target for suffice", "measured", "target", "verdict"], targets),
    ]
    return "\n\n".join(parts) + "\n", targets


def details(problems: list[Problem], runs: dict[str, list[Run]], found: list[Level], best: list[float]) -> list[Any]:
    """One entry per problem, for the JSON file."""
    return [
        {
            "problem": p.name,
            "m": len(p.start),
            "budget": BUDGET * p.unit,
            "known": p.known,
            "best": best[i],
            "start": runs[DFOLS][i].costs[0],
            "solvers": {
                solver: {
                    "best": min(own[i].costs),
                    "evaluations": len(own[i].costs),
                    "seconds": round(own[i].seconds, 3),
                    "ended": own[i].ended,
                    "to_level": {f"{level.tau:.0e}": float(level.needed[solver][i]) for level in found},
                }
                for solver, own in runs.items()
            },
        }
        for i, p in enumerate(problems)
    ]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--quick", action="store_true", help="every sixth problem, fewer timings")
    args = arguments.parse_args()
    warnings.simplefilter("ignore")  # overflows of the test functions, DFO-LS's remarks
    problems = load(every=6 if args.quick else 1)
    with threadpool_limits(1):
        runs: dict[str, list[Run]] = {}
        for name, solver in SOLVERS.items():
            runs[name] = [run(solver, problem) for problem in problems]
            print(f"{name}: {sum(r.seconds for r in runs[name]):.1f} s")
        costs = [overhead(m, 100 if args.quick else 300) for m in OVERHEAD_LIMITS]
    found, best = levels(problems, runs)
    text, targets = report(found, costs, len(problems))
    data = {
        "what": "More-Wild problems, exact evaluations, suffice against DFO-LS",
        "provenance": provenance("DFO-LS", "optimagic"),
        "quick": args.quick,
        "levels": [
            {
                "tau": level.tau,
                "solved": {solver: level.solved(solver) for solver in runs},
                "against_dfols": {solver: level.against(solver) for solver in (OURS, OURS_LINEAR)},
            }
            for level in found
        ],
        "overhead": costs,
        "targets": targets,
        "problems": details(problems, runs, found, best),
    }
    write_json(args.out / "derivative_free.json", data)
    write_text(args.out / "derivative_free.md", text)
    plot(args.out / "derivative_free.png", problems, found)
    print(text)


if __name__ == "__main__":
    main()
