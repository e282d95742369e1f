"""What figures of a run show, as arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from suffice.arrays import Array

if TYPE_CHECKING:
    from suffice.result import Result


@dataclass(frozen=True)
class Trace:
    """The evaluations of a run, in the order in which they were made; parameters are in the user's units."""

    names: tuple[str, ...]
    logarithmic: tuple[bool, ...]
    points: Array  # evaluations x parameters
    cost: Array
    low: Array
    high: Array
    asked: Array  # infinite where anything would have done
    achieved: Array
    work: Array
    paths: tuple[Array, ...]  # incumbents, one path per start
    best: Array
    label: str = "F"
    accuracy: str = "error of a residual"

    @property
    def numbers(self) -> Array:
        return np.arange(1.0, len(self.cost) + 1.0)

    def coordinates(self, points: Array) -> Array:
        """Points as the axes have them: log10 where an axis is logarithmic."""
        u = np.array(points, dtype=np.float64)
        for k, logarithmic in enumerate(self.logarithmic):
            if logarithmic:
                u[..., k] = np.log10(u[..., k])
        return u


def trace(result: Result) -> Trace:
    """What figures show of a result; a run from many starts shows the evaluations of all of them."""
    runs = result.starts or (result,)
    records = [record for run in runs for record in run.history if math.isfinite(record.cost)]
    if not records:
        raise ValueError(f"there is nothing to draw, no evaluation was made: {result.message}")
    space = result.space

    def params(thetas: Any) -> Array:
        if space is None or not len(thetas[0]):  # of too many parameters records have none
            return np.array(thetas, dtype=np.float64)
        return np.array([list(space.params(np.array(theta)).values()) for theta in thetas])

    names = tuple(f"theta[{k}]" for k in range(len(result.theta))) if space is None else tuple(space.names)
    weights = result.policy == "weights"
    achieved = [(record.distance if weights else record.error) or 0.0 for record in records]
    return Trace(
        names,
        tuple(space is not None and space.logarithmic(name) for name in names),
        params([record.theta for record in records]),
        np.array([record.cost for record in records]),
        np.array([record.interval[0] for record in records]),
        np.array([record.interval[1] for record in records]),
        np.array([record.within for record in records]),
        np.array(achieved),
        np.array([record.work for record in records], dtype=np.float64),
        tuple(_changes(params([record.incumbent for record in run.history])) for run in runs if run.history),
        params([result.theta])[0],
        accuracy="distance of the weights" if weights else "error of a residual",
    )


def _changes(points: Array) -> Array:
    """Consecutive points that differ."""
    keep = [k for k in range(len(points)) if k == 0 or not np.array_equal(points[k], points[k - 1])]
    return points[keep]
