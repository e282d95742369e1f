r"""Points u_0..u_m around the incumbent u_k and their linear Lagrange polynomials.

With D the matrix whose rows are u_t - u_k (t != k), column t of D^{-1} is the gradient of l_t, which is 1 at u_t and
0 at the others; l_k = 1 - sum of the rest.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack, svd

from suffice.arrays import Array

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
