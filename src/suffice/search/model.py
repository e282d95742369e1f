r"""The model of F around the incumbent: squared models of the residuals.

Through the m+1 points x_t (relative to the incumbent) each residual has a linear interpolant; that is the paper's
model, r(s) ~ sum_t l_t(s) r_t. Old points y_i nearby know more. The functions

    b_i(s) = s.H_i s / 2 - sum_t l_t(s) x_t.H_i x_t / 2,        H_i = y_i y_i^T - sum_t l_t(y_i) x_t x_t^T,

vanish at all x_t, and K_ij = b_i(y_j) = <H_i, H_j>/2. Adding sum_i a_i b_i(s), K a = what the linear interpolant misses
at the y_i, gives the interpolant of all points whose second derivatives are smallest in the Frobenius norm: linear
where nothing more is known, fully quadratic once (m+1)(m+2)/2 points are. It is a fixed combination of the residuals,

    r(s) ~ sum_t phi_t(s) r_t,    phi_t(s) = c_t + g_t.s + sum_u Lam_ut (z_u.s)^2 / 2    over all used points z_u,

so that F(s) ~ phi(s)^T G phi(s) with the Gram matrix G of the residual vectors, whatever their length. An old point is
used if it adds to the quadratics determined so far: its pivot in the Cholesky factorisation of K exceeds a threshold.

The linear model is safer where old points mislead, the quadratic one is better where they do not: the one that foresaw
the latest steps better is used for the next. Residuals that come in blocks are modelled by the blocks' norms if there
are enough of them to determine a Gauss-Newton model twice over, and one by one otherwise: many residuals carry the
curvature that a single norm hides, few are smoother.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from suffice.arrays import Array, norm
from suffice.search.geometry import lagrange_gradients, lagrange_values
from suffice.search.step import trust_region_step

PIVOT = 1e-3  # in units where the farthest of the m+1 points has distance 1
INNER_STEPS = 10


class CostModel(ABC):
    """A model of F around the incumbent, for a step s."""

    F: float  # at s = 0
    curved = True  # whether second derivatives change with s

    def value(self, s: Array) -> float:
        return self.F - self.decrease(s)

    @abstractmethod
    def decrease(self, s: Array) -> float:
        """m(0) - m(s)."""

    @abstractmethod
    def derivatives(self, s: Array) -> tuple[Array, Array]:
        """Gradient and second derivatives at s."""


@dataclass(frozen=True)
class Basis:
    """Functions  phi_t(s) = c_t + g_t.x + sum_u Lam_ut (z_u.x) (y_u.x) / 2,  x = s / unit."""

    z: Array
    y: Array
    c: Array
    g: Array  # one column per function
    Lam: Array  # one column per function; empty without curvature
    unit: float
    old: tuple[int, ...] = ()  # which old points are used, besides the m+1

    def phi(self, s: Array) -> Array:
        x = s / self.unit
        phi = self.c + x @ self.g
        return phi + 0.5 * (((self.z @ x) * (self.y @ x)) @ self.Lam) if self.Lam.size else phi

    def slopes(self, s: Array) -> Array:
        """Derivatives of phi with respect to x, one column per function."""
        if not self.Lam.size:
            return self.g
        x = s / self.unit
        bent = self.z.T @ ((self.y @ x)[:, None] * self.Lam) + self.y.T @ ((self.z @ x)[:, None] * self.Lam)
        slopes: Array = self.g + 0.5 * bent
        return slopes

    def curvature(self, weights: Array) -> Array:
        """The second derivatives of a weighted sum of the functions with respect to x."""
        if not self.Lam.size:
            return np.zeros((self.z.shape[1],) * 2)
        H = self.z.T @ ((self.Lam @ weights)[:, None] * self.y)
        return 0.5 * (H + H.T)


@dataclass(frozen=True)
class GramModel(CostModel):
    """F(s) ~ ||r + sum_t phi_t(s) d_t||^2 with G the Gram matrix of the d_t and b = <d_t, r>, whatever their length.

    Through points d_t = r_t - r_k, and the phi_t sum to 1: differences to the incumbent keep the digits of a small
    decrease of a large F.
    """

    basis: Basis
    G: Array
    b: Array
    F: float

    @property
    def curved(self) -> bool:  # type: ignore[override]
        return self.basis.Lam.size > 0

    def decrease(self, s: Array) -> float:
        phi = self.basis.phi(s)
        return -float(phi @ (2.0 * self.b + self.G @ phi))

    def derivatives(self, s: Array) -> tuple[Array, Array]:
        J, unit = self.basis.slopes(s), self.basis.unit
        pull = self.b + self.G @ self.basis.phi(s)
        H = J @ self.G @ J.T + self.basis.curvature(pull)
        return 2.0 * (J @ pull) / unit, 2.0 * H / unit**2


def linear_basis(points: Array, k: int) -> Basis:
    """Interpolation through the m+1 points, around the k-th."""
    x = points - points[k]
    unit = float(np.max(np.linalg.norm(x, axis=1)))
    x = x / unit
    c = np.zeros(len(x))
    c[k] = 1.0
    return Basis(x, x, c, lagrange_gradients(x, k).T, np.empty((0, 0)), unit)


def quadratic_basis(linear: Basis, k: int, origin: Array, old_points: Array) -> Basis:
    """Interpolation through old points as well, those that are of use; `linear` itself if none is."""
    x, gradients = linear.z, linear.g.T
    y = (old_points - origin) / linear.unit
    values = lagrange_values(gradients, x, k, y)  # l_t(y_i)
    chosen, inverse = _independent(x, y, values)
    if not chosen:
        return linear
    y, values = y[chosen], values[chosen]
    z = np.vstack([x, y])
    # H_i = z^T diag(W_i) z, and W also maps all residuals to what the linear interpolant misses at the y_i.
    W = np.hstack([-values, np.eye(len(y))])
    Lam = W.T @ (inverse @ W)
    at_points = 0.5 * (x @ z.T) ** 2 @ Lam  # what the quadratic part alone has at the x_t
    c = np.concatenate([linear.c, np.zeros(len(y))]) - at_points[k]
    g = np.hstack([linear.g, np.zeros((x.shape[1], len(y)))]) - gradients.T @ at_points
    return Basis(z, z, c, g, Lam, linear.unit, tuple(chosen))


def fit(basis: Basis, k: int, residuals: Array, old_residuals: Array | None = None) -> GramModel:
    """The model of F for residual vectors (rows) at the m+1 points and at all old ones."""
    r = residuals if old_residuals is None else np.vstack([residuals, *(old_residuals[i] for i in basis.old)])
    d = r - r[k]
    return GramModel(basis, d @ d.T, d @ r[k], float(r[k] @ r[k]))


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


def minimise(model: CostModel, delta: float, lower: Array, upper: Array) -> tuple[Array, float]:
    """A minimiser of the model over ball and box, and the decrease that it promises.

    Newton's method: each step solves the trust-region problem of the model's second-order expansion, and moves
    towards its solution as far as the model decreases. One step is exact for the paper's model.
    """

    s = np.zeros(len(lower))
    gained = 0.0
    for _ in range(INNER_STEPS if model.curved else 1):
        g, H = model.derivatives(s)
        if not (np.isfinite(g).all() and np.isfinite(H).all()):  # residuals too large for their products to be numbers
            break
        target = trust_region_step(g - H @ s, H, delta, lower, upper)
        move, share = target - s, 1.0
        while share > 1e-2 and not model.decrease(s + share * move) > gained:
            share *= 0.5
        if share <= 1e-2:
            break
        s = s + share * move
        gained = model.decrease(s)
        if norm(share * move) <= 1e-3 * norm(s):
            break
    return s, gained
