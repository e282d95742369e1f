r"""The edges of the box: what a local search that has ended may have missed there.

A trust region sees no further than its radius, and may come to rest on a slope too gentle to follow, in a valley
beside a ridge, or at a kink. Where the best point lies on an edge, as it often does (a penalty that is best left out is
best at its lower bound), one evaluation there tells. Let a search have ended at theta, with F proven to lie in [a, b],
and let a bound be near if  |theta_i - bound_i| <= REACH (upper_i - lower_i)  for the nearer one of the two. Then F is
evaluated at

    theta with one parameter moved onto its near bound,   for each of them, and
    theta with all of them moved,

that is, at no more than m + 1 points, roughly first, to an error of F/10, and to one of GAIN F / 4 if that does not tell
whether F, in [a', b'] there, is better by GAIN:  b' <= (1 - GAIN) a. From the best of those points another search
begins, with what is left of the budgets, and where it ends the same is done again, at points that were not seen. F
decreases by GAIN each time, so that this ends, budgets or none.

That no better point lies on an edge is not proven: the rest of the edge is not seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from suffice._array import Array
from suffice.options import Options
from suffice.result import Result, Status
from suffice.upper.accuracy import for_decision
from suffice.upper.evaluation import Evaluation

REACH = 1.0 / 3.0  # of the width of the box
GAIN = 1e-3  # of F: what is worth another search
ROUGH = 0.1  # of F: the error of a first look at an edge

Search = Callable[[Sequence[Array], Options], Result]  # from these starts, with these budgets
Look = Callable[[Array, float, Evaluation], Evaluation]  # at theta, within, from a warm start


def faces(theta: Array, lower: Array, upper: Array) -> list[Array]:
    """The points of the module's text; infinite bounds are never near."""
    bound = np.where(theta - lower <= upper - theta, lower, upper)
    with np.errstate(invalid="ignore"):
        distance = np.abs(theta - bound)
        near = np.isfinite(upper - lower) & (distance > 0.0) & (distance <= REACH * (upper - lower))
    places = [near] if near.any() else []
    if near.sum() > 1:
        places += [np.arange(len(theta)) == i for i in np.flatnonzero(near)]
    return [np.where(moved, bound, theta) for moved in places]


def search_with_edges(
    search: Search, look: Look, bounds: tuple[Array, Array], starts: Sequence[Array], options: Options
) -> Result:
    """The result of `search`, continued from the edges of the box as the module's text has it.

    Looks count towards the budgets of `options`. If there was more than one search, the result is that of the one with
    the least proven upper bound of F, and `result.starts` has all of them; a look that is better still, but by too
    little for another search, gives the result its theta.
    """
    spent = _Spent(options)
    runs = [search(starts, options)]
    looks: list[Evaluation] = []
    while (best := _best(runs).evaluation) is not None and best.cost > 0.0:
        ended = runs[-1].status in (Status.CONVERGED, Status.ACCURACY)
        goal = (1.0 - GAIN) * best.interval[0]
        found: Evaluation | None = None
        for theta in faces(best.point, *bounds):
            known = any(np.array_equal(theta, made.point) for made in looks)
            if known or not ended or spent.left(runs, looks) is None:
                continue
            looks.append(made := look(theta, for_decision(ROUGH * best.cost, best), best))
            if made.interval[0] < goal < made.interval[1] and spent.left(runs, looks) is not None:
                looks.append(made := look(theta, for_decision(0.25 * GAIN * best.cost, best), made))
            if made.interval[1] <= goal:
                found = made if found is None else min(found, made, key=lambda one: one.interval[1])
        left = spent.left(runs, looks)
        if found is None or left is None:
            break
        runs.append(search([found.point], left))
    return _joined(runs, looks)


@dataclass(frozen=True)
class _Spent:
    """Budgets, since this was made."""

    options: Options
    began: float = field(default_factory=time.monotonic)

    def left(self, runs: Sequence[Result], looks: Sequence[Evaluation]) -> Options | None:
        """What is left of them, or None."""
        parts = [part for run in runs for part in run.starts or (run,)]
        evaluations = self.options.max_evaluations - sum(part.evaluations for part in parts) - len(looks)
        work = self.options.max_work - sum(part.work for part in parts) - sum(made.work for made in looks)
        seconds = self.options.max_seconds - (time.monotonic() - self.began)
        if evaluations < 1 or not work > 0.0 or not seconds > 0.0:
            return None
        return replace(self.options, max_evaluations=evaluations, max_work=work, max_seconds=seconds)


def _best(runs: Sequence[Result]) -> Result:
    return min(runs, key=lambda run: run.interval[1])


def _joined(runs: Sequence[Result], looks: Sequence[Evaluation]) -> Result:
    result = _best(runs)
    if len(runs) > 1:
        result = replace(result, starts=tuple(part for run in runs for part in run.starts or (run,)))
    better = [made for made in looks if made.interval[1] < result.interval[1]]
    if better:
        made = min(better, key=lambda one: one.interval[1])
        params = None if result.space is None else result.space.params(made.point)
        result = replace(
            result, theta=made.point, cost=made.cost, interval=made.interval, evaluation=made, params=params
        )
    return result
