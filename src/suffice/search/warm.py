r"""Where a new evaluation starts: from what is known about the weights nearby.

The minimiser w(theta) is Lipschitz in theta, so the nearest evaluated theta is a start at a distance O(delta). Where
w is smooth the linear interpolant through the model's points, sum_t l_t(u) w_t, is one at a distance O(delta^2): it
costs nothing and saves the solver the iterations in between. A solution can be blended if it has weights x and tells a
start at others, `start_at(x)`, of which nothing is proven; an oracle with any other solutions gets the nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.search.geometry import lagrange_gradients, lagrange_values
from suffice.search.state import Sample

FAR = 4.0  # sum of |l_t(u)| from which on the interpolant amplifies errors more than it saves


def warm_start(u: Array, points: Sequence[Sample], k: int, pool: Sequence[Sample]) -> Evaluation | None:
    """The start for u, from the model's points around the k-th and a pool of older ones."""
    candidates = [*points, *pool]
    if not candidates:
        return None
    steps = np.array([point.u for point in candidates]) - u
    near = candidates[int(np.argmin((steps * steps).sum(axis=1)))]
    if np.array_equal(near.u, u) or len(points) != len(u) + 1:
        return near.evaluation
    blended = _blend(u, points, k, near.evaluation)
    return near.evaluation if blended is None else replace(near.evaluation, solutions=blended)


def _blend(u: Array, points: Sequence[Sample], k: int, nearest: Evaluation) -> list[Any] | None:
    solutions = [point.evaluation.solutions for point in points]
    if not all(row and all(hasattr(item, "x") and hasattr(item, "start_at") for item in row) for row in solutions):
        return None
    places = np.array([point.u for point in points])
    weights = lagrange_values(lagrange_gradients(places, k), places, k, u)
    if np.abs(weights).sum() > FAR:
        return None
    if len(nearest.solutions) != len(solutions[k]):
        return None
    blended = []
    for column, near in zip(zip(*solutions, strict=True), nearest.solutions, strict=True):
        x = weights @ np.array([solution.x for solution in column])
        blended.append(column[k].start_at(np.where(near.x != 0.0, x, 0.0)))
    return blended
