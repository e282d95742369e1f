"""How many exact evaluations does tuning take? The paper's MNIST problem, suffice against general-purpose tuners.

Every tuner starts at theta = (log10 l1, log10 l2) = (1, 1) in the box [-8, 8]^2 and sees exact values: each residual is
solved until it is proven to err by at most 1e-6, times (J/131)^2 where J alone, which is known exactly, exceeds the
optimal F: there a relative error of F of about 1e-3 says all there is to say. Dynamic accuracy, which is what suffice
is for, plays no part here. What counts is the number of evaluations, repeated ones too, until the best F so far is
within 1 %, 0.1 % and 0.01 % of the optimum 131.0417. A run ends there, or after 80 evaluations.

    suffice             default options, on eight residuals: one norm per digit, two of J; also with the linear model
    DFO-LS              on the same, rhobeg = 0.1 of the box, which is suffice's initial radius, too
    ... per sample      both on 6002 residuals, one per digit and image, which is what a BilevelProblem offers
    COBYQA              SciPy's, on F, with its default initial radius 1 and with 1.6, a tenth of the box
    Nelder-Mead         SciPy's, on F, with a first simplex of a tenth of the box (its default takes longer here)
    Optuna TPE          on F, first trial at the start, three seeds; only with --tpe, else as measured before

An evaluation takes a second on one core and is kept in benchmarks/.cache for the next run.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dfols
import matplotlib
import numpy as np
import numpy.typing as npt
import optuna
from common import (
    HERE,
    OURS,
    OURS_LINEAR,
    OURS_SAMPLES,
    STYLES,
    mnist_problem,
    parser,
    provenance,
    table,
    target,
    write_json,
    write_text,
)
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

import suffice

matplotlib.use("Agg")
from matplotlib import pyplot as plt

Vector = npt.NDArray[np.float64]
Residuals = Callable[[Vector], Vector]

OPTIMUM = 131.0417
LEVELS = (1e-2, 1e-3, 1e-4)
START, LOWER, UPPER = np.array([1.0, 1.0]), np.array([-8.0, -8.0]), np.array([8.0, 8.0])
SIMPLEX = START + 0.1 * (UPPER - LOWER) * np.array([[0, 0], [1, 0], [0, 1]])  # for Nelder-Mead
BUDGET = 80
WITHIN = 1e-6
TPE, TPE_SEEDS = "Optuna TPE", (0, 1, 2)


class ExactOracle:
    """theta -> residuals from weights that are solved once and then read from disk."""

    def __init__(self, problem: suffice.BilevelProblem, folder: Path) -> None:
        self.problem, self.folder = problem, folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder.parent / ".gitignore").write_text("*\n")
        self.known: dict[str, Vector] = {path.stem: _load(path)["theta"] for path in sorted(folder.glob("*.npz"))}

    def norms(self, theta: Vector) -> Vector:
        """Eight residuals: one norm per digit and the two of J."""
        at = [loss.at(w).residual for loss, w in zip(self.problem.losses, self._weights(theta), strict=True)]
        return np.concatenate([at, self._penalties(theta)])

    def samples(self, theta: Vector) -> Vector:
        """6002 residuals: one per digit and image, and the two of J."""
        at = [loss.at(w).residuals for loss, w in zip(self.problem.losses, self._weights(theta), strict=True)]
        return np.concatenate([*at, self._penalties(theta)])

    def _penalties(self, theta: Vector) -> Vector:
        assert self.problem.penalty is not None
        return np.array(self.problem.penalty(self.problem.space.params(theta)))

    def _weights(self, theta: Vector) -> Vector:
        theta = np.array(theta, dtype=np.float64) + 0.0  # no negative zeros in keys
        key = hashlib.sha256(theta.tobytes()).hexdigest()[:24]
        path = self.folder / f"{key}.npz"
        if key not in self.known:
            within = WITHIN * max(1.0, float(np.sum(self._penalties(theta) ** 2)) / OPTIMUM) ** 2
            evaluation = self.problem.evaluate(theta, within=within, warm=self._nearest(theta))
            draft = path.with_suffix(".tmp")
            with draft.open("wb") as file:
                weights = np.array([solution.x for solution in evaluation.solutions])
                np.savez(file, theta=theta, errors=evaluation.e, weights=weights)
            draft.replace(path)
            self.known[key] = theta
        return _load(path)["weights"]

    def _nearest(self, theta: Vector) -> suffice.Evaluation | None:
        if not self.known:
            return None
        key = min(self.known, key=lambda key: float(np.linalg.norm(self.known[key] - theta)))
        unproven = suffice.Certificate(math.inf, "tightest")
        weights = _load(self.folder / f"{key}.npz")["weights"]
        solutions = [suffice.Solution(w, unproven, 0, suffice.Outcome.STEPS) for w in weights]
        return suffice.Evaluation(self.known[key], [0.0], [math.inf], solutions=solutions)


def _load(path: Path) -> dict[str, Vector]:
    with np.load(path) as file:
        return dict(file)


class Enough(BaseException):
    """The finest level or the budget is reached. Not an Exception: no tuner may mistake it for a failed evaluation."""


@dataclass
class Trace:
    """The evaluations of one run."""

    solver: str
    seed: int | None = None
    thetas: list[list[float]] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    measured: str = ""

    def watch(self, residuals: Residuals) -> Residuals:
        """The function that a tuner is given."""

        def watched(theta: Vector) -> Vector:
            r = residuals(theta)
            self.thetas.append([float(value) for value in theta])
            self.costs.append(float(r @ r))
            if self.costs[-1] <= (1.0 + LEVELS[-1]) * OPTIMUM or len(self.costs) >= BUDGET:
                raise Enough
            return r

        return watched

    def reached(self, level: float) -> float:
        """Evaluations until the best F is within the level, or infinity."""
        goal = (1.0 + level) * OPTIMUM
        return next((k for k, cost in enumerate(self.costs, 1) if cost <= goal), math.inf)


def run_suffice(residuals: Residuals, **chosen: Any) -> None:
    options = suffice.Options(max_evaluations=BUDGET, **chosen)
    suffice.tune(suffice.exact(residuals), START, bounds=(LOWER, UPPER), options=options)


def run_dfols(residuals: Residuals) -> None:
    dfols.solve(residuals, START, bounds=(LOWER, UPPER), rhobeg=0.1, scaling_within_bounds=True, maxfun=BUDGET)


def run_scipy(residuals: Residuals, method: str, **options: Any) -> None:
    def cost(theta: Vector) -> float:
        r = residuals(theta)
        return float(r @ r)

    minimize(cost, START, method=method, bounds=list(zip(LOWER, UPPER, strict=True)), options=options)


def run_tpe(residuals: Residuals, seed: int) -> None:
    def cost(trial: optuna.Trial) -> float:
        theta = [trial.suggest_float(name, low, high) for name, low, high in zip(names, LOWER, UPPER, strict=True)]
        r = residuals(np.array(theta))
        return float(r @ r)

    names = ("l1", "l2")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial(dict(zip(names, START.tolist(), strict=True)))
    study.optimize(cost, n_trials=BUDGET)


Solver = Callable[[Residuals], None]
NORMS: dict[str, Solver] = {
    OURS: run_suffice,
    OURS_LINEAR: lambda residuals: run_suffice(residuals, model="linear"),
    "COBYQA": lambda residuals: run_scipy(residuals, "COBYQA", maxfev=BUDGET),
    "COBYQA, radius 1.6": lambda residuals: run_scipy(residuals, "COBYQA", maxfev=BUDGET, initial_tr_radius=1.6),
    "DFO-LS": run_dfols,
    "Nelder-Mead": lambda residuals: run_scipy(residuals, "Nelder-Mead", maxfev=BUDGET, initial_simplex=SIMPLEX),
}
SAMPLES: dict[str, Solver] = {OURS_SAMPLES: run_suffice, "DFO-LS, per sample": run_dfols}


def run(trace: Trace, solver: Solver, residuals: Residuals, measured: str) -> Trace:
    """Fill the trace."""
    with suppress(Enough):
        solver(trace.watch(residuals))
    trace.measured = measured
    needed = " / ".join(_count(trace.reached(level)) for level in LEVELS)
    print(f"{trace.solver}{'' if trace.seed is None else f', seed {trace.seed}'}: {needed}", flush=True)
    return trace


def run_all(norms: Residuals, samples: Residuals, measured: str, tpe: bool) -> list[Trace]:
    """Every solver once, TPE with every seed if wanted."""
    traces = [run(Trace(name), solver, norms, measured) for name, solver in NORMS.items()]
    traces += [run(Trace(name), solver, samples, measured) for name, solver in SAMPLES.items()]
    if tpe:
        traces += [run(Trace(TPE, seed), partial(run_tpe, seed=seed), norms, measured) for seed in TPE_SEEDS]
    return traces


def earlier_tpe(path: Path) -> list[Trace]:
    """TPE's runs in an earlier result file."""
    if not path.exists():
        return []
    runs = json.loads(path.read_text())["runs"]
    return [Trace(**{key: entry[key] for key in asdict(Trace(""))}) for entry in runs if entry["solver"] == TPE]


def _percent(level: float) -> str:
    return f"{100 * level:g} %"


def _count(evaluations: float) -> str:
    return "never" if math.isinf(evaluations) else f"{evaluations:.0f}"


def _range(traces: list[Trace], level: float) -> str:
    ends = {_count(end(trace.reached(level) for trace in traces)): None for end in (min, max)}
    return " to ".join(ends)


def report(traces: list[Trace]) -> tuple[str, list[list[str]]]:
    """The Markdown report and its rows of targets."""
    names = list(dict.fromkeys(trace.solver for trace in traces))
    rows = []
    for name in names:
        own = [trace for trace in traces if trace.solver == name]
        label = name if len(own) == 1 else f"{name}, {len(own)} seeds"
        best = min(min(trace.costs) for trace in own)
        rows.append([label, *(_range(own, level) for level in LEVELS), f"{best:.4f}"])
    rivals = [trace for trace in traces if trace.solver not in (OURS, OURS_LINEAR, OURS_SAMPLES)]
    targets = [
        target(f"{trace.solver}: evaluations to {_percent(level)}", trace.reached(level), least, digits=0)
        for trace in traces
        if trace.solver in (OURS, OURS_SAMPLES)
        for level in LEVELS
        if math.isfinite(least := min(rival.reached(level) for rival in rivals))
    ]
    head = ["tuner", *(f"to {_percent(level)}" for level in LEVELS), "best F seen"]
    parts = [
        "# Exact evaluations until F is near its optimum: MNIST, two penalties",
        table(head, rows),
        f"From theta = (1, 1) in [-8, 8]^2; within so much of F = {OPTIMUM}; a run ends at {_percent(LEVELS[-1])} "
        f"or after {BUDGET} evaluations.",
        "## Targets",
        table(["against the best rival", "measured", "target", "verdict"], targets),
    ]
    if TPE not in names:
        parts.insert(3, "Optuna TPE has not been measured (--tpe).")
    return "\n\n".join(parts) + "\n", targets


def plot(path: Path, traces: list[Trace]) -> None:
    """Best F so far above the optimum, against evaluations."""
    fig, ax = plt.subplots(figsize=(9.6, 5.0), layout="constrained")
    floor = 1e-4  # about what F is accurate to
    labelled: set[str] = set()
    for trace in traces:
        gap = np.maximum(np.minimum.accumulate(trace.costs) - OPTIMUM, floor)
        numbers = np.arange(1, len(gap) + 1)
        style = STYLES[trace.solver]
        label = None if trace.solver in labelled else trace.solver
        ax.step(numbers, gap, where="post", label=label, **style)
        ax.plot(numbers[-1], gap[-1], "o", markersize=5, color=style["color"], zorder=style.get("zorder", 2))
        labelled.add(trace.solver)
    last = max(len(trace.costs) for trace in traces)
    for level in LEVELS:
        ax.axhline(level * OPTIMUM, color="black", linestyle=":", linewidth=0.8)
        ax.annotate(
            _percent(level),
            (1.0, level * OPTIMUM),
            (-4, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            fontsize=9,
        )
    ax.set_yscale("log")
    ax.set(xlim=(1, last + 1), xlabel="exact evaluations", ylabel=f"best F so far $-$ {OPTIMUM}")
    ax.set_title("MNIST elastic net, two penalties: exact evaluations to the optimum")
    ax.grid(alpha=0.3)
    fig.legend(loc="outside right upper", fontsize=9)
    fig.savefig(path, dpi=150)
    plt.close(fig)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--tpe", action="store_true", help="also run Optuna's TPE sampler (240 evaluations)")
    arguments.add_argument("--solver", default="auto", help="lower-level solver (%(default)s)")
    args = arguments.parse_args()
    result = args.out / "exact_evaluations.json"
    source = provenance("DFO-LS", "optuna")
    with threadpool_limits(1):
        oracle = ExactOracle(mnist_problem(args.solver), HERE / ".cache" / "mnist-raw-0to5")
        traces = run_all(oracle.norms, oracle.samples, f"{source['date']}, {source['commit']}", args.tpe)
    if not args.tpe:
        traces += earlier_tpe(result)
    traces.sort(key=lambda trace: list(STYLES).index(trace.solver))
    text, targets = report(traces)
    runs = [asdict(trace) | {"to_level": {_percent(lv): trace.reached(lv) for lv in LEVELS}} for trace in traces]
    data = {
        "what": "MNIST, exact evaluations until F is near its optimum, suffice against general-purpose tuners",
        "provenance": source,
        "optimum": OPTIMUM,
        "targets": targets,
        "runs": runs,
    }
    write_json(result, data)
    write_text(args.out / "exact_evaluations.md", text)
    plot(args.out / "exact_evaluations.png", traces)
    print(f"\n{text}")


if __name__ == "__main__":
    main()
