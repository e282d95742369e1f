r"""The trust-region step:  minimise  g.s + s.H s / 2  over  ||s|| <= delta  and  lower <= s <= upper  (lower <= 0 <=
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

from suffice.arrays import Array, norm


def trust_region_step(g: Array, H: Array, delta: float, lower: Array, upper: Array) -> Array:
    """The s that minimises g.s + s.H s / 2 over ||s|| <= delta and lower <= s <= upper (where lower <= 0 <= upper)."""
    m = len(g)
    s = np.zeros(m)
    free = ~(((lower >= 0) & (g > 0)) | ((upper <= 0) & (g < 0)))
    for _ in range(3 * m + 5):
        if free.all():
            target, nu = ball_minimiser(g, H, delta)
        elif free.any():
            fixed = ~free
            room = math.sqrt(max(delta**2 - float(s[fixed] @ s[fixed]), 0.0))
            part, nu = ball_minimiser(g[free] + H[np.ix_(free, fixed)] @ s[fixed], H[np.ix_(free, free)], room)
            target = s.copy()
            target[free] = part
        else:
            target, nu = s, 0.0
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
        if length > delta:
            low = nu
        else:
            high = nu
        if abs(length - delta) <= 1e-12 * delta or high - low <= 1e-15 * high:
            break
        with np.errstate(over="ignore"):
            slope = float(np.sum(s[d > 0] ** 2 / d[d > 0]))
        guess = nu + (length - delta) / delta * length**2 / slope if slope > 0 else 0.5 * (low + high)
        nu = guess if low < guess < high else 0.5 * (low + high)
    if (
        abs(length - delta) > 1e-12 * delta and lam[0] < -tiny
    ):  # the hard case: along the lowest curvature to the boundary
        s[0] = math.copysign(math.sqrt(max(delta**2 - float(s[1:] @ s[1:]), 0.0)), -a[0])
    length = norm(s)
    if length > delta:
        s *= delta / length
    return Q @ s, nu
