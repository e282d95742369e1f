r"""A path through minimisers: a second-order expansion of w(t) around the centre of a box of parameters.

    w~(t) = w0 + D t + V[t, t]    on the signed support (S, sigma) of w0,  0 elsewhere,      (l1, l2) = B (centre + t).

D and V come from implicit differentiation of  grad f(w) + l2 w + l1 sigma = 0  on S: with H = X^T C X + l2, C =
diag(a psi'') there, and the intercept as one more column that has no penalty,

    H D_k = -(B_1k sigma + B_2k w0),        H V[t, t] = -((B_2 t) D t + 1/2 X^T (a psi''' (X D t)^2)).

Nothing has to be proven here: whatever the path is, `suffice.globally.balls` bounds how far it is from minimisers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from suffice.arrays import Array, norm
from suffice.globally.expansions import third
from suffice.globally.models import CertifiableFold
from suffice.globally.quadratics import pairs

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class PenaltyBox:
    """Parameters in the user's units, each between two ends; an upper end may be infinite."""

    low: Array
    high: Array

    @property
    def bounded(self) -> bool:
        return bool(np.isfinite(self.high).all())

    @property
    def centre(self) -> Array:
        """In the middle of a finite box: no ridge is then more than doubled by t, and series in t / l2 converge."""
        return 0.5 * self.low + 0.5 * self.high

    @property
    def r(self) -> Array:
        """|t_k| <= r_k, t = parameters - centre, with room for the rounding of the centre."""
        c = self.centre
        return np.maximum(self.high - c, c - self.low) * (1.0 + 1e-15) + 1e-15 * np.abs(c)


@dataclass(frozen=True, eq=False)
class Path:
    """w~, with its first- and second-order coefficients as columns of A: D_1, .., then V of all `pairs`, then bends."""

    S: Indices
    sigma: Array
    w: Array  # w0, all of it
    A: Array  # (|S|, with the intercept last) x (m + pairs + bends)
    m0: Array  # margins of training rows at w0
    b: float
    stiffness: Array  # H_jj^(1/2) on S and the intercept, about
    spread: Array  # (H^-1)_jj^(1/2), likewise
    base: int  # so many of S have weights at the centre; the others enter (`suffice.globally.bends`)
    own: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.intp))  # row of A that a bend is about
    h: Array = field(default_factory=lambda: np.zeros(0))
    limits: Array = field(default_factory=lambda: np.zeros(0))  # kappa^max

    def length(self, sizes: Array) -> float:
        """||w~||, at most, for monomials of these sizes, without clips."""
        s = len(self.S)
        return (norm(self.w) + float(np.sqrt(np.sum(self.A[:s] ** 2, axis=0)) @ sizes)) * (1.0 + 1e-10)


def path_of(fold: CertifiableFold, w: Array, box: PenaltyBox) -> Path:
    """The path through w; a constant one where H is singular."""
    m0, b = fold.start(w)
    S: Indices = np.flatnonzero(w) if fold.sparse else np.arange(len(w))
    sigma = np.sign(w[S]) if fold.sparse else np.zeros(len(S))
    m = fold.B.shape[1]
    quads = pairs(m)
    size = len(S) + fold.intercept
    A = np.zeros((size, m + len(quads)))
    constant = Path(S, sigma, w, A, m0, b, np.zeros(size), np.zeros(size), len(S))
    if size == 0 or not np.any(w) or len(S) > len(m0) + len(w) * bool(fold.B[1].any()):
        return constant
    X, H = fold.hessian(S, m0, fold.B[1] @ box.centre)
    pad = np.zeros(size - len(S))
    try:
        factor = cho_factor(H)
    except (LinAlgError, ValueError):
        return constant
    A = A.copy()
    penalised = np.append(np.ones(len(S)), pad)
    for k in range(m):
        A[:, k] = -cho_solve(factor, np.append(fold.B[0, k] * sigma + fold.B[1, k] * w[S], pad))
    T, bent = X @ A[:, :m], fold.a * third(fold.loss, m0, fold.y)
    for q, (j, k) in enumerate(quads, start=m):
        own = fold.B[1, j] * A[:, k] + (fold.B[1, k] * A[:, j] if j < k else 0.0)
        A[:, q] = -cho_solve(factor, penalised * own + (1.0 if j < k else 0.5) * (X.T @ (bent * T[:, j] * T[:, k])))
    if not np.isfinite(A).all():
        return constant
    inverse = np.diag(cho_solve(factor, np.eye(size)))
    return Path(S, sigma, w, A, m0, b, np.sqrt(np.diag(H)), np.sqrt(np.maximum(inverse, 0.0)), len(S))
