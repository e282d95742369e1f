r"""Many starts at once: which of them are no longer worth following.

Start i has the best point u_i, F(u_i) proven to lie in [low_i, high_i], and the trust radius delta_i. It is given up
for another start j in one of two cases. Both wait until delta_i is at most a tenth of initial_radius: the radius only
comes down that far after the model had nothing left to offer at its first resolution, so before that a start may still
be on its way into a better basin, however bad it looks.

- Met: u_j lies in i's trust region, ||u_i - u_j|| <= delta_i, with high_j <= high_i, and j looks about as far,
  delta_i <= 10 delta_j. Where i would look next another start has looked or will, from a better point. A start that
  has come to rest at a kink of F does not stop others that still see more.
- Beaten: low_i > high_j, and ten steps as good as the model promises would not make up for it,
  low_i - high_j > 10 promise_i.

That F(u_j) < F(u_i) is proven in the second case. That i would not have found a better basin later is not: the search
is local. The start with the least high is never given up, so the best bound known is never lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suffice.arrays import norm
from suffice.result import Status
from suffice.search.strategy import Search

SETTLED = 0.1  # of initial_radius: what the trust radius has to come down to
ALIKE = 10.0  # by how much trust radii of starts that have met may differ
STEPS = 10.0  # as many steps of the promised decrease may still close a gap


def overtaken(searches: Sequence[Search]) -> dict[int, str]:
    """The running starts to give up, each with the reason. Starts are counted from 0."""
    given_up: dict[int, str] = {}
    known = [i for i, search in enumerate(searches) if search.best is not None]
    ranking = sorted(known, key=lambda i: (_interval(searches[i])[1], i))
    for place in range(len(ranking) - 1, 0, -1):
        i = ranking[place]
        mine, options = searches[i], searches[i].setting.options
        if options.noise is not None:  # no F is proven to be worse than another
            continue
        if mine.status is not Status.RUNNING or mine.strategy.delta > SETTLED * options.initial_radius:
            continue
        for j in ranking[:place]:
            if searches[j].status is Status.OVERTAKEN:
                continue
            reason = _met(mine, searches[j], j) or _beaten(mine, searches[j], j)
            if reason is not None:
                given_up[i] = reason
                break
    return given_up


def _met(mine: Search, other: Search, j: int) -> str | None:
    places = [one.setting.scaling.to_theta(one.best.u) for one in (mine, other) if one.best is not None]
    with np.errstate(over="ignore"):
        distance = norm((places[0] - places[1]) / mine.setting.scaling.unit)
    met = distance <= mine.strategy.delta <= ALIKE * other.strategy.delta
    return f"start {j} has a better point inside its trust region" if met else None


def _beaten(mine: Search, other: Search, j: int) -> str | None:
    low, high = _interval(mine)[0], _interval(other)[1]
    if low - high > STEPS * mine.strategy.promise:
        return f"F is at least {low!r} here and at most {high!r} at start {j}"
    return None


def _interval(search: Search) -> tuple[float, float]:
    assert search.best is not None
    return search.best.evaluation.interval
