r"""Where to put points, and how far to go.

Points u_0..u_m around the incumbent u_k have linear Lagrange polynomials l_t. With D the matrix whose rows are u_t -
u_k (t != k), column t of D^{-1} is the gradient of l_t, which is 1 at u_t and 0 at the others; l_k = 1 - sum of the
rest.

A point u_t matters to the model through its Lagrange polynomial l_t: the replaced point is the one with the largest
max(1, (distance/delta)^4) |l_t(new)|, and a far point moves to where |l_t| is largest in the trust region.

Where residuals are not finite, such a point is looked for elsewhere on the line through the incumbent: on the other
side, then on either side at a quarter of the distance, and so on, `SHORTENINGS` times. |l_t| is linear along that
line, so the model stays determined.

The trust-region step:  minimise  g.s + s.H s / 2  over  ||s|| <= delta  and  lower <= s <= upper  (lower <= 0 <=
upper).

Without active bounds the minimiser over the ball solves (H + nu I) s = -g with nu >= max(0, -lambda_min), found from
the eigenvalues of H and the secular equation 1/||s(nu)|| = 1/delta (More and Sorensen 1983). Bounds are an active
set around it: walk towards the ball's minimiser in the free variables, fix the first bound that is met, release one
whose multiplier has the wrong sign. For a convex model this ends at the exact minimiser.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
from scipy.linalg import lapack, svd

from suffice.arrays import Array, norm

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
        return np.asarray(lapack.dgetri(lu, pivots)[0])
    # Not LAPACK's faster driver: it may fail to converge even for well-conditioned matrices.
    U, sigma, Vt = svd(A, full_matrices=False, lapack_driver="gesvd")
    kept = sigma > 1e-14 * sigma[0]
    return np.asarray((Vt.T[:, kept] / sigma[kept]) @ U.T[kept])


def lagrange_values(gradients: Array, points: Array, k: int, u: Array) -> Array:
    """l_t(u) for every t; for several u (rows) a matrix with one row per u."""
    values: Array = (u - points[k]) @ gradients.T
    values[..., k] += 1.0
    return values


def first_points(u: Array, delta: float, lower: Array, upper: Array, seed: int | None) -> list[Array]:
    """u and m steps of length delta: along the axes, turned inward at a bound, or along a random orthogonal basis."""
    m = len(u)
    basis = np.eye(m) if seed is None else np.linalg.qr(np.random.default_rng(seed).standard_normal((m, m)))[0].T
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
    return np.asarray(np.clip(u + best, lower, upper))


def trust_region_step(g: Array, H: Array, delta: float, lower: Array, upper: Array) -> Array:
    """The s that minimises g.s + s.H s / 2 over ||s|| <= delta and lower <= s <= upper (where lower <= 0 <= upper)."""
    m = len(g)
    s = np.zeros(m)
    free = ~(((lower >= 0) & (g > 0)) | ((upper <= 0) & (g < 0)))
    for _ in range(3 * m + 5):
        fixed, target = ~free, s.copy()
        room = math.sqrt(max(delta**2 - float(s[fixed] @ s[fixed]), 0.0)) if fixed.any() else delta
        pull = g[free] + H[np.ix_(free, fixed)] @ s[fixed]
        target[free], nu = ball_minimiser(pull, H[np.ix_(free, free)], room)
        inside = (lower <= target) & (target <= upper)
        if not inside.all():
            move = target - s
            with np.errstate(divide="ignore", invalid="ignore"):
                reach = np.where(move > 0, (upper - s) / move, np.where(move < 0, (lower - s) / move, np.inf))
            alpha = max(min(float(reach.min()), 1.0), 0.0)
            s = np.clip(s + alpha * move, lower, upper)
            met = free & (reach <= alpha)
            s[met] = np.where(move[met] > 0, upper[met], lower[met])
            free = free & ~met
            continue
        s = target
        slope = g + H @ s + nu * s
        wrong = np.where(s >= upper, slope, np.where(s <= lower, -slope, 0.0))
        wrong = np.where(free | (lower == upper), 0.0, wrong)
        if wrong.max(initial=0.0) <= 1e-12 * (norm(g) + float(np.abs(H).max()) * delta):
            break
        free = free.copy()
        free[int(np.argmax(wrong))] = True
    return s


def eigenvalues(H: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of a symmetric matrix. LAPACK's fast method sometimes fails to converge on matrices
    that are all right; its QR iteration does not. Neither takes one whose entries are next to nothing."""
    largest = float(np.max(np.abs(H), initial=0.0))
    scale = largest if 0.0 < largest < 1e-280 else 1.0
    lam, Q = scipy.linalg.eigh(H / scale, driver="ev")
    return scale * lam, Q


def ball_minimiser(g: Array, H: Array, delta: float) -> tuple[Array, float]:
    """argmin of g.s + s.H s/2 over ||s|| <= delta, and the ball's multiplier nu."""
    size = norm(g)
    if delta <= 0.0 or (size == 0.0 and not H.any()):
        return np.zeros_like(g), 0.0
    if not H.any():
        return -delta / size * g, size / delta
    lam, Q = eigenvalues(H)
    a = Q.T @ g
    scale = max(abs(float(lam[0])), abs(float(lam[-1])), size / delta, 1e-300)
    tiny = 1e-14 * scale
    flat = lam <= tiny
    if not (flat & (np.abs(a) > 1e-14 * size)).any() and lam[0] >= -tiny:
        s = np.where(flat, 0.0, -a / np.where(flat, 1.0, lam))
        if norm(s) <= delta:
            return Q @ s, 0.0
    least = max(0.0, -float(lam[0]))
    low, high = least, least + size / delta
    nu = high
    for _ in range(60):
        d = lam + nu
        with np.errstate(divide="ignore", invalid="ignore"):
            s = np.where(d > 0, -a / d, 0.0)
        length = norm(s)
        low, high = (nu, high) if length > delta else (low, nu)
        if abs(length - delta) <= 1e-12 * delta or high - low <= 1e-15 * high:
            break
        with np.errstate(over="ignore"):
            slope = float(np.sum(s[d > 0] ** 2 / d[d > 0]))
        guess = nu + (length - delta) / delta * length**2 / slope if slope > 0 else 0.5 * (low + high)
        nu = guess if low < guess < high else 0.5 * (low + high)
    # The hard case: along the lowest curvature to the boundary.
    if abs(length - delta) > 1e-12 * delta and lam[0] < -tiny:
        s[0] = math.copysign(math.sqrt(max(delta**2 - float(s[1:] @ s[1:]), 0.0)), -a[0])
    length = norm(s)
    if length > delta:
        s *= delta / length
    return Q @ s, nu
