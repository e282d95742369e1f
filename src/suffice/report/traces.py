"""What figures of a run show, as arrays.

The surface under a path of two parameters is interpolated from the evaluations made: thin-plate splines through
log10(F - F_best + eps), eps a hundredth of the median excess, inside the convex hull of the points, or in the
box around it where that is little more. It is an illustration. What is proven is at the points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from suffice.arrays import Array

if TYPE_CHECKING:
    from suffice.result import Result

MOST_INTERPOLATED = 300
CELLS = 120


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


# --- the surface ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Surface:
    """log10 of the excess over the best on a grid of coordinates, NaN outside the hull of the points."""

    x: Array
    y: Array
    z: Array  # y by x
    levels: Array


def surface(shown: Trace, pair: tuple[int, int] = (0, 1)) -> Surface | None:
    """F between the evaluations, or None where they do not span a plane."""
    from scipy.interpolate import RBFInterpolator
    from scipy.spatial import Delaunay, QhullError

    u = shown.coordinates(shown.points)[:, pair]
    chosen: dict[tuple[float, ...], int] = {}
    for k in np.argsort(shown.high - shown.low, kind="stable").tolist():  # of many looks at a point the sharpest
        chosen.setdefault(tuple(u[k].tolist()), k)
    span = np.ptp(u, axis=0)
    if len(chosen) < 4 or not (np.isfinite(u).all() and (span > 0.0).all()):
        return None
    kept: list[int] = []
    for k in sorted(chosen.values(), key=lambda k: shown.high[k]):
        if all(np.max(np.abs(u[k] - u[j]) / span) > 0.004 for j in kept):  # close points make splines swing
            kept.append(k)
    kept = kept[:MOST_INTERPOLATED]
    v, cost = u[kept] / span, shown.cost[kept]
    excess = cost - cost.min()
    eps = 0.01 * float(np.median(excess)) or 0.01 * float(excess.max())
    if len(kept) < 4 or not (math.isfinite(eps) and eps > 0.0):
        return None
    z = np.log10(excess + eps)
    try:
        hull = Delaunay(v)
        spline = RBFInterpolator(v, z, smoothing=1e-8)
        x, y = (np.linspace(u[:, k].min(), u[:, k].max(), CELLS) for k in (0, 1))
        grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2) / span
        inside = hull.find_simplex(grid) >= 0
        inside |= inside.mean() > 0.6  # corners of the box that are little more than the hull
        values = np.where(inside, np.clip(spline(grid), z.min(), z.max()), math.nan)
    except (QhullError, np.linalg.LinAlgError):
        return None
    return Surface(x, y, values.reshape(CELLS, CELLS), np.linspace(z.min(), z.max(), 15))


def excess_ticks(levels: Array) -> list[float]:
    """Round excesses for a colour bar: log10 of 1, 2 and 5 times powers of ten, few enough to be read."""
    low, high = float(levels[0]), float(levels[-1])
    for digits in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
        ticks = [k + math.log10(d) for k in range(math.floor(low), math.ceil(high) + 1) for d in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 3:
            break
    return ticks[:: max(1, math.ceil(len(ticks) / 7))]
