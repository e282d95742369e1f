r"""Where to put points: the first ones, which one to give up for a new one, and where to move one that is too far.

A point u_t matters to the model through its Lagrange polynomial l_t: the replaced point is the one with the largest
max(1, (distance/delta)^4) |l_t(new)|, and a far point moves to where |l_t| is largest in the trust region.

Where residuals are not finite, such a point is looked for elsewhere on the line through the incumbent: on the other
side, then on either side at a quarter of the distance, and so on, `SHORTENINGS` times. |l_t| is linear along that
line, so the model stays determined.

Where the model is flat, ||J d radius||^2 <= FLAT F for a unit vector d, a small gradient proves little: F may still
curve down, and points along the axes see no cross terms (x y - 1 is constant along both axes through 0). So before the
search ends there, F is looked at once along each vector of an orthonormal basis of the flat subspace, turned at
random. If B is the curvature of F there, the d.B d of any such basis sum to the trace of B: if that is not positive
and B is not 0, one of them is negative.

Where residuals are the same at all first points, the search has begun on a plateau (penalties so large that all weights
are 0): no model tells anything there, however small its radius. So F is looked at across the box: with all parameters
that have bounds moved down or up by STRIDE of its width, with one of them moved, and the same up to the bounds.
"""

from __future__ import annotations

import numpy as np

from suffice.arrays import Array, norm
from suffice.search.interpolation import lagrange_values
from suffice.search.step import eigenvalues, longest_linear

FLAT = 1e-3
STRIDE = 0.25  # of the width of the box, which is 1
SHORTER, SHORTENINGS = 4.0, 7  # down to 6e-5 of the distance, 16 points in all


def first_points(u: Array, delta: float, lower: Array, upper: Array, seed: int | None) -> list[Array]:
    """u and m steps of length delta: along the axes, turned inward at a bound, or along a random orthogonal basis."""
    m = len(u)
    noise = np.eye(m) if seed is None else np.random.default_rng(seed).standard_normal((m, m))
    basis = np.linalg.qr(noise)[0].T if seed is not None else noise
    points = [u]
    for direction in basis:
        ahead, behind = (np.clip(u + sign * delta * direction, lower, upper) for sign in (1.0, -1.0))
        points.append(ahead if norm(ahead - u) >= norm(behind - u) else behind)
    D = np.array(points[1:]) - u
    if seed is not None and np.linalg.cond(D) > 1e3:  # bounds have flattened the random basis
        return first_points(u, delta, lower, upper, None)
    return points


def unseen(u: Array, squared: Array, F: float, radius: float, lower: Array, upper: Array) -> list[Array]:
    """Points at the distance `radius` along flat directions that the model cannot tell about; `squared` is J^T J."""
    lam, Q = eigenvalues(squared)
    flat = Q[:, lam * radius**2 <= FLAT * F]
    p = flat.shape[1]
    if p == 0 or len(u) == 1 or F <= 0.0:  # along a single axis there are points already
        return []
    turned = np.linalg.qr(np.random.default_rng(p).standard_normal((p, p)))[0]
    points = []
    for d in (flat @ turned).T:
        sides = [np.clip(u + sign * radius * d, lower, upper) for sign in (1.0, -1.0)]
        far = max(sides, key=lambda point: norm(point - u))
        if norm(far - u) >= 0.5 * radius:
            points.append(far)
    return points


def around(u: Array, radius: float, lower: Array, upper: Array) -> list[Array]:
    """Points at the distance `radius` on either side of u, along the axes."""
    points = [np.clip(u + sign * radius * axis, lower, upper) for axis in np.eye(len(u)) for sign in (1.0, -1.0)]
    return [point for point in points if norm(point - u) >= 0.5 * radius]


def across(u: Array, lower: Array, upper: Array) -> list[Array]:
    """Points all over the box, for a search that has begun on a plateau; none where nothing is bounded."""
    bounded = np.isfinite(lower) & np.isfinite(upper)
    if not bounded.any():
        return []
    sets = [bounded]
    if bounded.sum() > 1:
        sets += [np.arange(len(u)) == i for i in np.flatnonzero(bounded)]
    points: list[Array] = []
    for reach in (STRIDE, 1.0):
        for moved in sets:
            for sign in (-1.0, 1.0):
                point = np.where(moved, np.clip(u + sign * reach, lower, upper), u)
                if norm(point - u) >= 0.5 * STRIDE and not any(np.array_equal(point, one) for one in points):
                    points.append(point)
    return points


def elsewhere(centre: Array, u: Array, lower: Array, upper: Array) -> list[Array]:
    """u and the points to try instead of it, one after the other; those that a bound brings too near are left out."""
    found = []
    for share in SHORTER ** -np.arange(SHORTENINGS + 1.0):
        for sign in (1.0, -1.0):
            step = sign * share * (u - centre)
            point = u if share == sign == 1.0 else np.clip(centre + step, lower, upper)
            if norm(point - centre) >= 0.5 * norm(step):
                found.append(point)
    return found


def point_to_replace(points: Array, gradients: Array, k: int, u: Array, delta: float, accepted: bool) -> int:
    """The point that u replaces; the incumbent only if u was accepted in its place."""
    centre = u if accepted else points[k]
    distances = np.linalg.norm(points - centre, axis=1) / delta
    scores = np.maximum(1.0, distances**4) * np.abs(lagrange_values(gradients, points, k, u))
    if not accepted:
        scores[k] = -1.0
    return int(np.argmax(scores))


def farthest(points: Array, k: int) -> tuple[int, float]:
    """The point farthest from the incumbent, and its distance."""
    distances = np.linalg.norm(points - points[k], axis=1)
    t = int(np.argmax(distances))
    return t, float(distances[t])


def improving_point(points: Array, gradients: Array, k: int, t: int, delta: float, lower: Array, upper: Array) -> Array:
    """The point of the trust region at which |l_t| is largest."""
    u, slope = points[k], gradients[t]
    steps = [longest_linear(sign * slope, delta, lower - u, upper - u) for sign in (1.0, -1.0)]
    best = max(steps, key=lambda s: abs(float(slope @ s)))
    moved: Array = np.clip(u + best, lower, upper)
    return moved
