r"""From cells to numbers.

F* of a problem is the least exact F that any run of any tuner has returned, by either solver. An *instance* is a
problem with a seed. A tuner has solved it to tau after the work at which the theta that it would return first has

    F(theta) <= (1 + tau) F*.

- Performance profile: the share of instances that a tuner solves within alpha times the least work of all tuners.
- Data profile: the share that it solves within kappa trainings, a training being one from scratch at the optimum.
- Ranks: for each problem tuners are ordered by their median work over seeds (unsolved in the median: last, tied); means
  over problems, with 90 % intervals from resampling problems.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
MEASURES = {"products": 0, "seconds": 1, "cpu": 2}
Key = tuple[str, str, str]  # problem, solver, tuner


@dataclass
class Cells:
    """All runs, by problem, solver and tuner."""

    runs: dict[Key, dict[int, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    best: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, cells: Iterable[dict[str, Any]]) -> Cells:
        made = cls()
        for one in cells:
            made.runs[one["problem"], one["solver"], one["tuner"]][one["seed"]] = one
            least = min((entry[4] for entry in one["curve"]), default=math.inf)
            made.best[one["problem"]] = min(made.best.get(one["problem"], math.inf), least)
        return made

    def problems(self, solver: str, among: Sequence[str]) -> list[str]:
        """Those of `among` that were run with this solver, in their order."""
        run = {problem for problem, its, _ in self.runs if its == solver}
        return [problem for problem in among if problem in run]

    def tuners(self, solver: str, among: Sequence[str]) -> list[str]:
        run = {tuner for _, its, tuner in self.runs if its == solver}
        return [tuner for tuner in among if tuner in run]

    def to_reach(self, key: Key, tau: float, measure: str = "products") -> dict[int, float]:
        """The work of every seed, infinite where it was not solved."""
        goal, place = (1.0 + tau) * self.best[key[0]], MEASURES[measure]
        return {
            seed: next((entry[place] for entry in run["curve"] if entry[4] <= goal), math.inf)
            for seed, run in sorted(self.runs.get(key, {}).items())
        }

    def median(self, key: Key, tau: float, measure: str = "products") -> float:
        """Over seeds; NaN where the tuner was not run."""
        found = list(self.to_reach(key, tau, measure).values())
        return lower_median(found) if found else math.nan

    def quartiles(self, key: Key, tau: float, measure: str = "products") -> tuple[float, float, float]:
        found = np.sort(list(self.to_reach(key, tau, measure).values()))
        if not len(found):
            return math.nan, math.nan, math.nan
        low, high = (float(found[min(int(q * len(found)), len(found) - 1)]) for q in (0.25, 0.75))
        return low, lower_median(found.tolist()), high

    def gap_at(self, key: Key, work: Vector, measure: str = "products") -> Vector:
        """F / F* - 1 of every seed (a row each) at these amounts of work; NaN before the first theta."""
        place, best = MEASURES[measure], self.best[key[0]]
        rows = []
        for run in self.runs.get(key, {}).values():
            at = np.array([entry[place] for entry in run["curve"]])
            F = np.array([entry[4] for entry in run["curve"]])
            k = np.searchsorted(at, work, side="right") - 1
            rows.append(np.where(k >= 0, F[np.maximum(k, 0)] / best - 1.0 if len(F) else math.nan, math.nan))
        return np.array(rows)


def lower_median(values: Sequence[float]) -> float:
    """The median, or the larger of the two in the middle where one of them is infinite."""
    ordered = sorted(values)
    k = len(ordered) // 2
    if len(ordered) % 2 or math.isinf(ordered[k]):
        return float(ordered[k])
    return 0.5 * (ordered[k - 1] + ordered[k])


def instances(
    cells: Cells, solver: str, problems: Sequence[str], tuners: Sequence[str], tau: float, measure: str
) -> Any:
    """Work to tau, a row for every instance that all these tuners were run on, or could not be (infinite then)."""
    rows, names = [], []
    for problem in problems:
        found = {tuner: cells.to_reach((problem, solver, tuner), tau, measure) for tuner in tuners}
        ran = [set(one) for one in found.values() if one]
        for seed in sorted(set.intersection(*ran)) if ran else []:
            rows.append([found[tuner].get(seed, math.inf) for tuner in tuners])
            names.append((problem, seed))
    return names, np.array(rows)


def performance(work: Vector, alphas: Vector) -> Vector:
    """The share of instances (rows) that each tuner (column) solves within alpha times the least work there."""
    least = work.min(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isfinite(work), work / least, math.inf)
    return np.array([(ratio <= alpha).mean(axis=0) for alpha in alphas]).T


def data(work: Vector, trainings: Vector, kappas: Vector) -> Vector:
    """The share of instances solved within kappa trainings; `trainings` is the unit of every instance."""
    scaled = work / trainings[:, None]
    return np.array([(scaled <= kappa).mean(axis=0) for kappa in kappas]).T


def ranks(medians: Vector) -> Vector:
    """Ranks within rows, ties shared, the unsolved all last."""
    smaller = (medians[:, None, :] < medians[:, :, None]).sum(axis=2)
    same = (medians[:, None, :] == medians[:, :, None]).sum(axis=2)
    return np.asarray(smaller + 0.5 * (same + 1.0))


def ranked(
    cells: Cells, solver: str, problems: Sequence[str], tuners: Sequence[str], tau: float, draws: int = 500
) -> dict[str, tuple[float, float, float]]:
    """Mean rank of every tuner, with its interval; a problem that a tuner cannot take counts as unsolved."""
    medians = np.array(
        [[cells.median((problem, solver, tuner), tau) for tuner in tuners] for problem in problems], dtype=np.float64
    )
    found = ranks(np.where(np.isnan(medians), math.inf, medians))
    rng = np.random.default_rng(0)
    drawn = [found[rng.integers(0, len(found), len(found))].mean(axis=0) for _ in range(draws)]
    low, high = np.quantile(drawn, (0.05, 0.95), axis=0)
    middle = found.mean(axis=0)
    return {tuner: (float(middle[j]), float(low[j]), float(high[j])) for j, tuner in enumerate(tuners)}
