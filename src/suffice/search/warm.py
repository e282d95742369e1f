r"""Where a new evaluation starts: from what is known about the weights nearby.

The minimiser w(theta) is Lipschitz in theta, so the nearest evaluated theta is a start at a distance O(delta). Where
w is smooth the linear interpolant through the model's points, sum_t l_t(u) w_t, is one at a distance O(delta^2): it
costs nothing and saves the solver the iterations in between. An oracle whose solutions are not `Blendable` gets the
nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.search.interpolation import lagrange_gradients, lagrange_values

FAR = 4.0  # sum of |l_t(u)| from which on the interpolant amplifies errors more than it saves


@runtime_checkable
class Blendable(Protocol):
    """A solution with weights x that lends itself to interpolation."""

    @property
    def x(self) -> Array: ...

    def start_at(self, x: Array) -> Any:
        """A start at other weights for whoever found this solution; nothing is proven about it."""
        ...


def warm_start(
    u: Array, points: Sequence[tuple[Array, Evaluation]], k: int, pool: Sequence[tuple[Array, Evaluation]]
) -> Evaluation | None:
    """The start for u, from the model's points around the k-th and a pool of older ones."""
    candidates = [*points, *pool]
    if not candidates:
        return None
    steps = np.array([at for at, _ in candidates]) - u
    at, nearest = candidates[int(np.argmin((steps * steps).sum(axis=1)))]
    if np.array_equal(at, u) or len(points) != len(u) + 1:
        return nearest
    blended = _blend(u, points, k, nearest)
    return nearest if blended is None else replace(nearest, solutions=blended)


def _blend(u: Array, points: Sequence[tuple[Array, Evaluation]], k: int, nearest: Evaluation) -> list[Any] | None:
    solutions = [evaluation.solutions for _, evaluation in points]
    if not all(row and all(isinstance(item, Blendable) for item in row) for row in solutions):
        return None
    places = np.array([point for point, _ in points])
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
