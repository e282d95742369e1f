"""Residuals with noise: is the search as good as DFO-LS told that there is noise?

Problems: the More-Wild problems of `derivative_free`, 100 (m + 1) evaluations for m variables. A solver sees
r_i (1 + sigma x_i) or r_i + sigma x_i, sigma = 1e-2, the x_i drawn anew at every evaluation:

- bounded, x_i uniform on [-1, 1]: suffice is told the bound on the errors, which no request reduces;
- Gaussian, x_i standard normal: nobody can bound the errors. suffice is told that there is noise
  (`Options(noise=...)`), once with its kind and size, once without.

DFO-LS is called with objfun_has_noise=True, which is all it can be told. Both see the same kind of noise from the same
seeds; the draws differ as soon as the points do.

A problem is solved to level tau by the first evaluation at a point whose true, noise-free F is at most
F_L + tau (F_0 - F_L), as in `derivative_free`. `returned` counts the problems for which the point that a solver returns
is as good: that is what a user gets.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dfols
import numpy as np
from common import OURS, parser, provenance, table, target, write_json, write_text
from derivative_free import DFOLS, LEVELS, Problem, Spent, Vector, load
from threadpoolctl import threadpool_limits

import suffice

SIGMA = 1e-2
BUDGET = 100  # evaluations, times m + 1
OURS_UNTOLD = "suffice, noise unknown"


@dataclass(frozen=True)
class Noise:
    name: str
    relative: bool
    bounded: bool

    def errors(self, r: Vector) -> Vector:
        """How far the noisy residuals can be from r."""
        return SIGMA * (np.abs(r) if self.relative else np.ones(len(r)))

    def draw(self, r: Vector, rng: np.random.Generator) -> Vector:
        x = rng.uniform(-1.0, 1.0, len(r)) if self.bounded else rng.standard_normal(len(r))
        return r + x * self.errors(r)


KINDS = [
    Noise("bounded, multiplicative", relative=True, bounded=True),
    Noise("bounded, additive", relative=False, bounded=True),
    Noise("Gaussian, multiplicative", relative=True, bounded=False),
    Noise("Gaussian, additive", relative=False, bounded=False),
]


class Oracle:
    """Noisy residuals; remembers the true F of every evaluation, and ends by `Spent`."""

    def __init__(self, problem: Problem, noise: Noise, seed: int, told: bool) -> None:
        self.problem, self.noise, self.told = problem, noise, told
        self.rng = np.random.default_rng([seed, len(problem.name), *problem.name.encode()])
        self.budget, self.costs = BUDGET * problem.unit, list[float]()

    def true(self, x: Vector) -> tuple[Vector, float]:
        r = np.asarray(self.problem.residuals(x), dtype=np.float64)
        cost = float(r @ r)
        return r, cost if math.isfinite(cost) else math.inf

    def residuals(self, x: Vector) -> Vector:
        if len(self.costs) >= self.budget:
            raise Spent
        r, cost = self.true(x)
        self.costs.append(cost)
        return self.noise.draw(r, self.rng)

    def evaluate(self, theta: Vector, *, within: float, warm: Any = None) -> suffice.Evaluation:
        r = self.residuals(theta)
        errors = np.zeros(len(r))
        if self.told:  # |r~| (1 - sigma) <= |r| <= |r~| / (1 - sigma): the bound is in terms of what is seen
            errors = self.noise.errors(r) / (1.0 - SIGMA if self.noise.relative else 1.0)
        return suffice.Evaluation(theta, r, errors, work=1)


@dataclass(frozen=True)
class Run:
    start: float  # true F at the start
    improvements: list[tuple[int, float]]  # evaluations that found a lower true F, and that F
    returned: float  # true F at the point returned
    evaluations: int
    ended: str
    seconds: float

    @property
    def best(self) -> float:
        return self.improvements[-1][1]


def run_suffice(oracle: Oracle, **chosen: Any) -> tuple[Vector, str]:
    options = suffice.Options(max_evaluations=oracle.budget, final_radius=1e-8, **chosen)
    result = suffice.tune(oracle, oracle.problem.start.copy(), options=options)
    return result.theta, f"{result.status.name}: {result.message}"


def run_dfols(oracle: Oracle) -> tuple[Vector, str]:
    start = oracle.problem.start.copy()
    found = dfols.solve(oracle.residuals, start, maxfun=oracle.budget, objfun_has_noise=True)
    return (start if found.x is None else found.x), str(found.msg)


def solvers(noise: Noise) -> dict[str, Callable[[Oracle], tuple[Vector, str]]]:
    if noise.bounded:
        return {OURS: run_suffice, DFOLS: run_dfols}
    kind = "multiplicative" if noise.relative else "additive"
    return {
        OURS: lambda oracle: run_suffice(oracle, noise=kind, noise_level=SIGMA),
        OURS_UNTOLD: lambda oracle: run_suffice(oracle, noise="unknown"),
        DFOLS: run_dfols,
    }


def run(solver: Callable[[Oracle], tuple[Vector, str]], problem: Problem, noise: Noise, seed: int) -> Run:
    oracle = Oracle(problem, noise, seed, told=noise.bounded)
    began = time.perf_counter()
    try:
        x, ended = solver(oracle)
        returned = oracle.true(x)[1]
    except Spent:
        returned, ended = math.inf, "went past the budget"
    seconds, improvements = time.perf_counter() - began, list[tuple[int, float]]()
    for k, cost in enumerate(oracle.costs, 1):
        if not improvements or cost < improvements[-1][1]:
            improvements.append((k, cost))
    return Run(oracle.costs[0], improvements, returned, len(oracle.costs), ended, round(seconds, 3))


class Kept:
    """Runs by name, in a file that grows run by run: an interrupted benchmark goes on where it was."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.runs = path, dict[str, Run]()
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                key, fields = json.loads(line)
                self.runs[key] = Run(**fields)

    def get(self, key: str, make: Callable[[], Run]) -> Run:
        if key not in self.runs:
            self.runs[key] = make()
            if self.path is not None:
                with self.path.open("a") as file:
                    file.write(json.dumps([key, asdict(self.runs[key])]) + "\n")
        return self.runs[key]


@dataclass(frozen=True)
class Count:
    """Problems solved to each level by one solver under one noise, over all seeds."""

    noise: str
    solver: str
    solved: list[int]  # by any evaluation
    returned: list[int]  # by the point returned
    runs: int
    evaluations: int


def count(noise: Noise, problems: list[Problem], runs: dict[str, list[list[Run]]]) -> list[Count]:
    """`runs` by solver, seed and problem. F_L is the best true F that any of them has seen, or the known value."""
    best = [min(p.known, *(one[i].best for own in runs.values() for one in own)) for i, p in enumerate(problems)]
    counts = []
    for solver, own in runs.items():
        pairs = [(r, low) for one in own for r, low in zip(one, best, strict=True)]
        goals = [[low + tau * (r.start - low) for r, low in pairs] for tau in LEVELS]
        counts.append(
            Count(
                noise.name,
                solver,
                [sum(r.best <= g for (r, _), g in zip(pairs, goal, strict=True)) for goal in goals],
                [sum(r.returned <= g for (r, _), g in zip(pairs, goal, strict=True)) for goal in goals],
                len(pairs),
                sum(r.evaluations for r, _ in pairs),
            )
        )
    return counts


def report(counts: list[Count], problems: int, seeds: int) -> tuple[str, list[list[str]]]:
    rows = [[c.noise, c.solver, *c.solved, *c.returned, f"{c.evaluations / c.runs:.0f}"] for c in counts]
    levels = [f"{tau:.0e}" for tau in LEVELS]
    head = ["noise", "solver", *(f"solved to {t}" for t in levels), *(f"returned {t}" for t in levels), "evaluations"]
    targets = []
    for c in counts:
        if c.solver == DFOLS:
            continue
        rival = next(other for other in counts if (other.noise, other.solver) == (c.noise, DFOLS))
        for tau, ours, theirs in zip(levels, c.solved, rival.solved, strict=True):
            share = 1.0 if c.noise.startswith("bounded") else 0.95
            name = f"{c.noise}: {c.solver}, solved to {tau}"
            targets.append(target(name, ours, share * theirs, at_least=True, digits=1))
    parts = [
        "# Derivative-free least squares with noise",
        f"{problems} More-Wild problems, {seeds} seed{'s' if seeds > 1 else ''}, {BUDGET} (m + 1) evaluations, "
        f"sigma = {SIGMA:g}. *solved*: by any evaluation, judged on the true F; *returned*: by the point returned; "
        "*evaluations*: made on average.",
        table(head, rows),
        "## Targets",
        "As many as DFO-LS where the bound on the noise is known, 95 % of that where it is not.",
        table(["target for suffice", "measured", "target", "verdict"], targets),
    ]
    return "\n\n".join(parts) + "\n", targets


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--every", type=int, default=1, help="every so-manieth problem only")
    arguments.add_argument("--seeds", type=int, default=3, help="how many seeds (%(default)s)")
    arguments.add_argument("--keep", type=Path, help="file of runs already made, which is added to")
    arguments.add_argument("--solver", help="make the runs of this solver only, and report nothing")
    args = arguments.parse_args()
    warnings.simplefilter("ignore")  # overflows of the test functions, DFO-LS's remarks
    problems, kept, counts = load(every=args.every), Kept(args.keep), list[Count]()
    with threadpool_limits(1), np.errstate(all="ignore"):
        for noise in KINDS:
            runs = {}
            for name, solver in solvers(noise).items():
                if args.solver not in (None, name):
                    continue
                runs[name] = [
                    [
                        kept.get(f"{noise.name}|{seed}|{name}|{p.name}", partial(run, solver, p, noise, seed))
                        for p in problems
                    ]
                    for seed in range(args.seeds)
                ]
            if args.solver is None:
                counts += count(noise, problems, runs)
    if args.solver is not None:
        return
    text, targets = report(counts, len(problems), args.seeds)
    data = {
        "what": "More-Wild problems with noise, suffice against DFO-LS with objfun_has_noise=True",
        "provenance": provenance("DFO-LS", "optimagic"),
        "sigma": SIGMA,
        "budget": BUDGET,
        "seeds": args.seeds,
        "problems": [p.name for p in problems],
        "counts": [asdict(c) for c in counts],
        "targets": targets,
    }
    write_json(args.out / "noisy.json", data)
    write_text(args.out / "noisy.md", text)
    print(text)


if __name__ == "__main__":
    main()
