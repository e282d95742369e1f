r"""The model of F around the incumbent: squared models of the residuals.

Through the m+1 points x_t (relative to the incumbent) each residual has a linear interpolant; that is the paper's
model, r(s) ~ sum_t l_t(s) r_t. Old points y_i nearby know more. The functions

    b_i(s) = s.H_i s / 2 - sum_t l_t(s) x_t.H_i x_t / 2,        H_i = y_i y_i^T - sum_t l_t(y_i) x_t x_t^T,

vanish at all x_t, and K_ij = b_i(y_j) = <H_i, H_j>/2. Adding sum_i a_i b_i(s), K a = what the linear interpolant
misses at the y_i, gives the interpolant of all points whose second derivatives are smallest in the Frobenius norm:
linear where nothing more is known, fully quadratic once (m+1)(m+2)/2 points are. It is a fixed combination of the
residuals,

    r(s) ~ sum_t phi_t(s) r_t,    phi_t(s) = c_t + g_t.s + sum_u Lam_ut (z_u.s)^2 / 2    over all used points z_u,

so that F(s) ~ phi(s)^T G phi(s) with the Gram matrix G of the residual vectors, whatever their length. An old point is
used if it adds to the quadratics determined so far: its pivot in the Cholesky factorisation of K exceeds a threshold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from suffice._array import Array, norm
from suffice.upper.interpolation import lagrange_gradients, lagrange_values
from suffice.upper.step import trust_region_step

PIVOT = 1e-3  # in units where the farthest of the m+1 points has distance 1
INNER_STEPS = 10


@dataclass(frozen=True)
class Model:
    """phi(s)^T G phi(s), in steps s of the search coordinates; `unit` scales s to the points z."""

    z: Array
    c: Array
    g: Array  # one column per point
    Lam: Array  # one column per point; empty without curvature
    G: Array
    unit: float

    def phi(self, s: Array) -> Array:
        x = s / self.unit
        phi = self.c + x @ self.g
        return phi + 0.5 * ((self.z @ x) ** 2 @ self.Lam) if self.Lam.size else phi

    def value(self, s: Array) -> float:
        phi = self.phi(s)
        return float(phi @ self.G @ phi)

    def derivatives(self, s: Array) -> tuple[float, Array, Array]:
        """Value, gradient and second derivatives at s."""
        phi = self.phi(s)
        Gphi = self.G @ phi
        J = self.g
        if self.Lam.size:
            J = J + self.z.T @ ((self.z @ (s / self.unit))[:, None] * self.Lam)
        H = 2.0 * (J @ self.G @ J.T)
        if self.Lam.size:
            H += 2.0 * (self.z.T @ ((self.Lam @ Gphi)[:, None] * self.z))
        return float(phi @ Gphi), 2.0 * (J @ Gphi) / self.unit, H / self.unit**2


def fit(
    points: Array, residuals: Array, k: int, old_points: Array | None = None, old_residuals: Array | None = None
) -> Model:
    """The model around points[k]; without old points (or with none that is of use) it is the paper's."""
    x = points - points[k]
    unit = float(np.max(np.linalg.norm(x, axis=1)))
    x = x / unit
    gradients = lagrange_gradients(x, k)
    c, g = np.zeros(len(x)), gradients.T
    c[k] = 1.0
    if old_points is None or old_residuals is None:
        return Model(x, c, g, np.empty((0, 0)), residuals @ residuals.T, unit)
    y = (old_points - points[k]) / unit
    values = lagrange_values(gradients, x, k, y)  # l_t(y_i)
    chosen, inverse = _independent(x, y, values)
    if not chosen:
        return fit(points, residuals, k)
    y, values = y[chosen], values[chosen]
    z = np.vstack([x, y])
    # H_i = z^T diag(W_i) z; a = K^{-1} (r_y - values r_x) as a map from all residuals.
    W = np.hstack([-values, np.eye(len(y))])
    a = inverse @ np.hstack([-values, np.eye(len(y))])
    Lam = W.T @ a
    at_points = 0.5 * (x @ z.T) ** 2 @ Lam  # what the quadratic part alone has at the x_t
    c = np.concatenate([c, np.zeros(len(y))]) - at_points[k]
    g = np.hstack([g, np.zeros((x.shape[1], len(y)))]) - gradients.T @ at_points
    r = np.vstack([residuals, old_residuals[chosen]])
    return Model(z, c, g, Lam, r @ r.T, unit)


def _independent(x: Array, y: Array, values: Array) -> tuple[list[int], Array]:
    """The old points, nearest first, that determine further quadratics, and the inverse of their K."""
    z = np.vstack([x, y])
    W = np.hstack([-values, np.eye(len(y))])
    K = 0.5 * W @ (z @ z.T) ** 2 @ W.T
    chosen: list[int] = []
    inverse = np.empty((0, 0))
    room = x.shape[1] * (x.shape[1] + 1) // 2
    for i in np.argsort(np.linalg.norm(y, axis=1), kind="stable"):
        if len(chosen) == room:
            break
        column = K[chosen, i]
        solved = inverse @ column
        pivot = float(K[i, i] - column @ solved)
        if pivot > PIVOT:
            # The inverse of a matrix bordered by one row and column.
            grown = np.empty((len(chosen) + 1, len(chosen) + 1))
            grown[:-1, :-1] = inverse + np.outer(solved, solved) / pivot
            grown[:-1, -1] = grown[-1, :-1] = -solved / pivot
            grown[-1, -1] = 1.0 / pivot
            chosen.append(int(i))
            inverse = grown
    return chosen, inverse


def minimise(model: Model, delta: float, lower: Array, upper: Array) -> tuple[Array, float]:
    """A minimiser of the model over ball and box, and the decrease it promises.

    Newton's method: each step solves the trust-region problem of the model's second-order expansion, and moves
    towards its solution as far as the model decreases. One step is exact for the paper's model.
    """
    s = np.zeros(len(lower))
    start = model.value(s)
    for _ in range(INNER_STEPS if model.Lam.size else 1):
        value, g, H = model.derivatives(s)
        target = trust_region_step(g - H @ s, H, delta, lower, upper)
        move, share = target - s, 1.0
        while share > 1e-2 and not model.value(s + share * move) < value:
            share *= 0.5
        if share <= 1e-2:
            break
        s = s + share * move
        if norm(share * move) <= 1e-3 * norm(s):
            break
    return s, _decrease(model, s, start)


def _decrease(model: Model, s: Array, start: float) -> float:
    """m(0) - m(s), by differences of phi, so that small decreases of a large F keep their digits."""
    before, after = model.phi(np.zeros_like(s)), model.phi(s)
    return -float((after - before) @ (model.G @ (after + before)))
