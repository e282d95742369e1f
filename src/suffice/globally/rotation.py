r"""More columns than rows and no l1: the problem in the space of its rows, where it has as many weights as rows.

Minimisers w = Q' omega + w_perp lie in the span of the rows, which an orthonormal Q' spans but for rounding. Let Q be
computed, Q' the orthonormal matrix next to it, ||Q - Q'|| <= ||Q^T Q - 1|| = q, and Z = fl(X Q). Then, row by row,

    ||z_i - Q'^T x_i||  <=  eps_Z ||x_i||,        the distance of x_i from the range of Q is at most eps_X ||x_i||.

The optimality condition outside that range is  l2 w_perp = -(sum_i a_i psi'_i x_i)_perp,  so ||w_perp|| <= eps_X A/l2,
A = (sum a ||x_i||^2)^(1/2) (sum a psi'^2)^(1/2); sum a psi'^2 is at most 1 (logistic), or 2 f(0) (squares). Inside it
omega solves the problem of Z' = X Q', with margins that are off by ||x_i|| eps_X ||w_perp||. A path omega~ of the
problem of Z is one of that problem, with

    margins that are off by  xi_i = ||x_i|| (eps_Z ||omega~|| + eps_X ||w_perp||),
    a gradient that is off by no more than  eps_Z (sum a ||x_i||^2)^(1/2) (sum a psi'^2)^(1/2),  and
    a Hessian of no less than 1 - nu times that of Z,  nu = eps_Z (sum c ||x_i||^2 / l2)^(1/2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from suffice.arrays import Array, norm
from suffice.globally.models import CertifiableFold
from suffice.models.intercept import Intercepted
from suffice.models.margin_losses import Logistic, Squared
from suffice.rows.design import Design
from suffice.rows.rounding import gamma

SAFE = 1.0 + 1e-9


@dataclass(frozen=True, eq=False)
class Rotation:
    """What the change into the rows' space may have changed."""

    eps_z: float
    eps_x: float
    rows: Array  # ||x_i||, training
    held: Array  # ||x_i||, held out
    size: float  # (sum a ||x_i||^2)^(1/2)
    slopes: float  # (sum a psi'^2)^(1/2) of minimisers, at most

    def perpendicular(self, l2: float, slopes: float = math.inf) -> float:
        """||w_perp||, at most, for this l2 and more; `slopes` is a better bound of its own."""
        return self.eps_x * self.size * min(slopes, self.slopes) / l2 * SAFE if l2 > 0.0 else math.inf

    def margins(self, size: float, l2: float) -> Array:
        """xi of training rows along a path that is no longer than `size`."""
        return self.rows * (self.eps_z * size + self.eps_x * self.perpendicular(l2)) * SAFE

    def held_out_margins(self, size: float, l2: float, slopes: float) -> Array:
        """How far margins of held-out rows are off, for weights that are no longer than `size`."""
        return self.held * (self.eps_z * size + self.perpendicular(l2, slopes)) * SAFE

    def gradient(self, a: Array, slopes: Array, l2: float) -> float:
        """How far the gradient is off, by H^-1, for psi' of no more than `slopes`."""
        if not l2 > 0.0:
            return math.inf
        return self.eps_z * math.sqrt(float(a @ self.rows**2) * float(a @ slopes**2) / l2) * SAFE

    def rows_off(self, l2: float) -> Array:
        """||z_i - Q'^T x_i||_{H^-1} of training rows, at most."""
        return self.eps_z * self.rows / math.sqrt(l2) * SAFE if l2 > 0.0 else np.full_like(self.rows, math.inf)

    def nu(self, c: Array, l2: float) -> float:
        """Which share of H may be missing."""
        return self.eps_z * math.sqrt(float(c @ self.rows**2) / l2) * SAFE if l2 > 0.0 else math.inf


def rotates(fold: CertifiableFold) -> bool:
    """Whether the space of its rows is smaller and can be had."""
    N, d = fold.design.shape
    return not fold.sparse and d > N and fold.design.rows.full and isinstance(fold.loss, Squared | Logistic)


def rotated(fold: CertifiableFold) -> CertifiableFold:
    """The fold itself, or in the space of its rows where that is smaller and can be."""
    X, (N, d) = fold.design.X, fold.design.shape
    if not rotates(fold):
        return fold
    Q = np.linalg.qr(X.T)[0]
    n = Q.shape[1]
    off_unit = norm((Q.T @ Q - np.eye(n)).ravel()) + gamma(d + 4) * n * 1.1
    if not off_unit < 1e-6:
        return fold
    long = math.sqrt(n) * (1.0 + off_unit)  # ||Q||_F, at most
    eps_z = (gamma(d + 4) * long + off_unit) * SAFE
    Z = X @ Q
    rows, held = fold.design.row_norms * SAFE, fold.held.design.row_norms * SAFE
    left = np.linalg.norm(X - Z @ Q.T, axis=1) + gamma(n + 8) * long * (1.0 + off_unit) * rows
    eps_x = float(np.max(np.divide(left, rows, out=np.zeros(N), where=rows > 0.0))) * SAFE
    a, y = fold.a, fold.y
    slopes = 1.0 if isinstance(fold.loss, Logistic) else math.sqrt(float(a @ y**2))
    size = math.sqrt(float(a @ rows**2)) * SAFE
    model = type(fold.model)(Design.of(Z, a), fold.model.y, fold.loss)
    design = Design.of(fold.held.design.X @ Q, fold.held.design.weights)
    held_out = replace(fold.held, design=design, train=model if isinstance(model, Intercepted) else None)
    return replace(fold, model=model, held=held_out, rotation=Rotation(eps_z, eps_x, rows, held, size, slopes * SAFE))
