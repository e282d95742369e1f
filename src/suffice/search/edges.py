r"""Where a search has ended: a look at the edges of the box, and around.

A trust region sees no further than its radius, and comes to rest in a valley beside a better one, at a kink, or on a
slope too gentle to follow. The best point often lies on an edge (a penalty that is best left out is best at its lower
bound), and there one evaluation tells. Let a search have ended at theta, with F proven to lie in [a, b], and let the
nearer bound of a parameter be near if  |theta_i - bound_i| <= REACH (upper_i - lower_i).  Then F is evaluated at

    theta with all parameters that are near a bound moved onto it,
    theta with one of them moved,                                     for each of them,
    theta with one parameter moved by 1/4 or 1/2 of initial_radius,   for each parameter and both ways, if m <= FEW
                                                                      (with Options(enough=...) by 1/2 only, and
                                                                      FARTHER times that where F has not risen by GAIN),

which are no more than m + 1 + 4 FEW points. A single parameter is not moved to or towards where F was seen to rise:
if an evaluation on the same side, no farther away than the place or FARTHER steps, has proven F to be above (1 + RISEN)
b, that side has been looked at. (With more parameters, looks around the end would be nearly as many as the
evaluations of the search.) F is evaluated roughly first, to an error of ROUGH F, and to one of GAIN F / 4 if that does
not tell whether F there, in [a', b'], is better by GAIN:  b' <= (1 - GAIN) a.  From the best of those points another
search begins, with what is left of the budgets, and where it ends the same is done again, at points that were not seen.
F decreases by GAIN each time, so that this ends, budgets or none.

That no better point lies on an edge is not proven: the rest of the edge is not seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.options import Options
from suffice.result import Result, Status
from suffice.search.accuracy import for_decision
from suffice.search.looks import nearer_bounds, sides, together_and_alone
from suffice.search.scaling import Scaling

REACH = 1.0 / 3.0  # of the width of the box
GAIN = 1e-3  # of F: what is worth another search
LEVEL = 1.0 + GAIN
ROUGH = 0.1
STEPS = (0.25, 0.5)  # of initial_radius: how far to look around
FARTHER = 4.0
FEW = 3
SEEN = 0.25  # of a step: what was evaluated so near is not looked at again
RISEN = 0.01  # of F

Run = Callable[[Sequence[Array], Options], Result]  # from these starts, with these budgets
Look = Callable[[Array, float, Evaluation], Evaluation]  # at theta, within, from a warm start


def edges(theta: Array, lower: Array, upper: Array) -> list[Array]:
    """theta moved onto the bounds that are near, all of them at once and one at a time; infinite ones never are."""
    bound = nearer_bounds(theta, lower, upper)
    with np.errstate(invalid="ignore"):
        distance = np.abs(theta - bound)
        near = np.isfinite(upper - lower) & (distance > 0.0) & (distance <= REACH * (upper - lower))
    return [np.where(these, bound, theta) for these in together_and_alone(near)]


def search_with_edges(
    search: Run,
    look: Look,
    bounds: tuple[Array, Array],
    starts: Sequence[Array],
    options: Options,
    before: Sequence[Evaluation] = (),
) -> Result:
    """The result of `search`, continued from better points on or near the edges of the box, if there are any. What was
    evaluated `before` is not looked at again.

    Looks count towards the budgets of `options`. If there was more than one search, the result is that of the one with
    the least proven upper bound of F, and `result.starts` has all of them; a look that is better still, but by too
    little for another search, gives the result its theta.
    """
    began = time.monotonic()

    def left() -> Options | None:
        parts = [part for run in runs for part in run.starts or (run,)]
        work = sum(part.work for part in parts) + sum(made.work for made in looks)
        seconds = options.max_seconds - (time.monotonic() - began)
        return left_of(options, sum(part.evaluations for part in parts) + len(looks), work, seconds)

    radius = options.initial_radius * Scaling.of(np.asarray(starts[0]), bounds).unit
    runs = [search(starts, options)]
    looks: list[Evaluation] = []
    while (best := _best(runs).evaluation) is not None and best.cost > 0.0:
        if runs[-1].status not in (Status.CONVERGED, Status.SUFFICES, Status.ACCURACY):
            break
        lows = [(np.array(record.theta), record.interval[0]) for run in runs for record in run.history]
        lows += [(made.point, made.interval[0]) for made in (*looks, *before)]
        seen = [point for point, _ in lows]
        places = edges(best.point, *bounds)
        shares = STEPS if options.enough == 0.0 else STEPS[1:]
        for step in (share * radius for share in shares if len(radius) <= FEW):
            places += [
                place
                for place in sides(best.point, step, *bounds)
                if not any(norm((place - other) / step) <= SEEN for other in (*seen, *places))
            ]
        unseen = [place for place in places if not any(np.array_equal(place, made.point) for made in looks)]
        if len(radius) == 1 and before:
            unseen = [place for place in unseen if not _rises_towards(place, best, lows, FARTHER * STEPS[-1] * radius)]
        better = []
        for place in unseen:
            made = _looked_at(place, best, look, looks, lambda: left() is not None)
            better += [] if made is None else [made]
            seen_there = bool(looks) and np.array_equal(looks[-1].point, place)
            level = seen_there and looks[-1].interval[0] <= LEVEL * best.interval[1]
            if options.enough > 0.0 and made is None and level:
                farther = np.clip(best.point + FARTHER * (place - best.point), *bounds)
                if not any(np.array_equal(farther, other) for other in unseen):
                    unseen.append(farther)
        more = left()
        if not better or more is None:
            break
        runs.append(search([min(better, key=_high).point], more))
    return _joined(runs, looks)


def _rises_towards(place: Array, best: Evaluation, lows: Sequence[tuple[Array, float]], reach: Array) -> bool:
    """Whether F was proven to be higher on this side of the best point, no farther away than the place or `reach`."""
    way, high = place - best.point, (1.0 + RISEN) * best.interval[1]
    far = np.maximum(np.abs(way), reach)
    return any(low > high and 0.0 < float((point - best.point) @ np.sign(way)) <= float(far[0]) for point, low in lows)


def _looked_at(
    place: Array, best: Evaluation, look: Look, looks: list[Evaluation], affordable: Callable[[], bool]
) -> Evaluation | None:
    """The evaluation there if it is better by GAIN. All that are made are added to `looks`."""
    goal, warm = (1.0 - GAIN) * best.interval[0], best
    for share in (ROUGH, 0.25 * GAIN):
        if not affordable():
            return None
        warm = look(place, for_decision(share * best.cost, best), warm)
        looks.append(warm)
        low, high = warm.interval
        if high <= goal:
            return warm
        if low > goal:
            return None
    return None


def left_of(options: Options, evaluations: int, work: float, seconds: float) -> Options | None:
    """What is left of budgets after so many evaluations and so much work, with so many seconds to go; None: nothing."""
    evaluations, work = options.max_evaluations - evaluations, options.max_work - work
    if evaluations < 1 or not work > 0.0 or not seconds > 0.0:
        return None
    return replace(options, max_evaluations=evaluations, max_work=work, max_seconds=min(options.max_seconds, seconds))


def _high(evaluation: Evaluation) -> float:
    return evaluation.interval[1]


def _best(runs: Sequence[Result]) -> Result:
    return min(runs, key=lambda run: run.interval[1])


def _joined(runs: Sequence[Result], looks: Sequence[Evaluation]) -> Result:
    result = _best(runs)
    if len(runs) > 1:
        result = replace(result, starts=tuple(part for run in runs for part in run.starts or (run,)))
    better = [made for made in looks if made.interval[1] < result.interval[1]]
    if better:
        made = min(better, key=_high)
        params = None if result.space is None else result.space.params(made.point)
        result = replace(
            result, theta=made.point, cost=made.cost, interval=made.interval, evaluation=made, params=params
        )
    return result
