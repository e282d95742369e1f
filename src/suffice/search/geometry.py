r"""Points u_0..u_m around the incumbent u_k, their linear Lagrange polynomials, and where to put points: the first
ones, which one to give up for a new one, and where to move one that is too far.

With D the matrix whose rows are u_t - u_k (t != k), column t of D^{-1} is the gradient of l_t, which is 1 at u_t and
0 at the others; l_k = 1 - sum of the rest.

A point u_t matters to the model through its Lagrange polynomial l_t: the replaced point is the one with the largest
max(1, (distance/delta)^4) |l_t(new)|, and a far point moves to where |l_t| is largest in the trust region.

Where residuals are not finite, such a point is looked for elsewhere on the line through the incumbent: on the other
side, then on either side at a quarter of the distance, and so on, `SHORTENINGS` times. |l_t| is linear along that
line, so the model stays determined.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack, svd

from suffice.arrays import Array, norm
from suffice.search.step import trust_region_step

SHORTER, SHORTENINGS = 4.0, 7  # down to 6e-5 of the distance, 16 points in all
SINGULAR = 1e-12  # reciprocal condition number from which on directions are cut off


def lagrange_gradients(points: Array, k: int) -> Array:
    """Row t is the gradient of l_t."""
    others = np.arange(len(points)) != k
    D = points[others] - points[k]
    gradients = np.empty_like(points)
    size = np.linalg.norm(D, axis=1, keepdims=True)
    size[size == 0.0] = 1.0  # a point that coincides with u_k tells nothing: its gradient is 0
    gradients[others] = _inverse(D / size).T / size
    gradients[k] = -gradients[others].sum(axis=0)
    return gradients


def _inverse(A: Array) -> Array:
    """A^{-1}, or the pseudo-inverse, which cuts off directions in which the points do not differ but for rounding."""
    lu, pivots, info = lapack.dgetrf(A)
    if info == 0 and lapack.dgecon(lu, float(np.abs(A).sum(axis=0).max()))[0] > SINGULAR:
        inverse: Array = lapack.dgetri(lu, pivots)[0]
        return inverse
    # Not LAPACK's faster driver: it may fail to converge even for well-conditioned matrices.
    U, sigma, Vt = svd(A, full_matrices=False, lapack_driver="gesvd")
    kept = sigma > 1e-14 * sigma[0]
    pseudo: Array = (Vt.T[:, kept] / sigma[kept]) @ U.T[kept]
    return pseudo


def lagrange_values(gradients: Array, points: Array, k: int, u: Array) -> Array:
    """l_t(u) for every t; for several u (rows) a matrix with one row per u."""
    values: Array = (u - points[k]) @ gradients.T
    values[..., k] += 1.0
    return values


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


def point_to_replace(points: Array, k: int, u: Array, delta: float, accepted: bool) -> int:
    """The point that u replaces; the incumbent only if u was accepted in its place."""
    centre = u if accepted else points[k]
    distances = np.linalg.norm(points - centre, axis=1) / delta
    values = lagrange_values(lagrange_gradients(points, k), points, k, u)
    scores = np.maximum(1.0, distances**4) * np.abs(values)
    if not accepted:
        scores[k] = -1.0
    return int(np.argmax(scores))


def farthest(points: Array, k: int) -> tuple[int, float]:
    """The point farthest from the incumbent, and its distance."""
    distances = np.linalg.norm(points - points[k], axis=1)
    t = int(np.argmax(distances))
    return t, float(distances[t])


def improving_point(points: Array, k: int, t: int, delta: float, lower: Array, upper: Array) -> Array:
    """The point of the trust region at which |l_t| is largest."""
    u, slope = points[k], lagrange_gradients(points, k)[t]
    flat, room = np.zeros((len(u), len(u))), (lower - u, upper - u)
    steps = [trust_region_step(sign * slope, flat, delta, *room) for sign in (-1.0, 1.0)]
    best = max(steps, key=lambda s: abs(float(slope @ s)))
    moved: Array = np.clip(u + best, lower, upper)
    return moved
