r"""A path through minimisers: a second-order expansion of w(t) around the centre of a box of parameters;
and what margins, slopes and gradients do along it, for all parameters of the box at once.

    w~(t) = w0 + D t + V[t, t]    on the signed support (S, sigma) of w0,  0 elsewhere,      (l1, l2) = B (centre + t).

D and V come from implicit differentiation of  grad f(w) + l2 w + l1 sigma = 0  on S: with H = X^T C X + l2, C =
diag(a psi'') there, and the intercept as one more column that has no penalty,

    H D_k = -(B_1k sigma + B_2k w0),        H V[t, t] = -((B_2 t) D t + 1/2 X^T (a psi''' (X D t)^2)).

Nothing has to be proven here: whatever the path is, `suffice.globally.reach` bounds how far it is from minimisers.

*Along the path* margins are m0 + s, s = s1 + s2 of first and second order, clips being of the second kind.
With psi' = psi'(m0) and so on, row by row,

    psi'(m0 + s) = psi' + psi'' s + 1/2 psi''' s1^2 + zeta,      |zeta| bounded by `suffice.globally.expansions`,

so that grad_j f = p_j(t) + (X^T a zeta)_j, p_j a polynomial in t. |p_j| - l1 is largest, but for second-order
terms, in a corner of the box. A weight that would change its sign is clipped: it stays 0, which adds sigma_j k_j,
0 <= k_j <= k_j^max, to the path.

*Rounding.* Vectors X^T (a r) are known to gamma ||diag(a)^(1/2) x_j|| ||a^(1/2) r||, entry by entry, with what the
margins' own rounding does to r; that of the margins themselves is part of zeta.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from suffice.arrays import EPS, Array
from suffice.globally.expansions import most_bend, slope_remainder, third
from suffice.globally.models import CertifiableFold
from suffice.rows.design import OF_FACTORS
from suffice.rows.rounding import TINY, gamma

Indices = npt.NDArray[np.intp]

SAFE = 1.0 + 1e-10  # what sums of a few bounds are multiplied by for their rounding


def pairs(m: int) -> list[tuple[int, int]]:
    """(j, k) with j <= k, in the order in which coefficients of second order are stored."""
    return list(combinations_with_replacement(range(m), 2))


def sizes_of(r: Array) -> Array:
    """Of the monomials t_k and t_k t_l."""
    return np.asarray(np.append(r, [r[j] * r[k] for j, k in pairs(len(r))]) * (1.0 + 4.0 * EPS))


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
    """w~, with its first- and second-order coefficients as columns of A: D_1, .., then V of all `pairs`."""

    S: Indices
    sigma: Array
    w: Array  # w0, all of it
    A: Array  # (|S|, with the intercept last) x (m + pairs)
    m0: Array  # margins of training rows at w0
    b: float
    spread: Array  # (H^-1)_jj^(1/2) on S and the intercept, about, where sides are chosen between


def path_of(fold: CertifiableFold, w: Array, box: PenaltyBox) -> Path:
    """The path through w; a constant one where H is singular."""
    m0, b = fold.start(w)
    S: Indices = np.flatnonzero(w) if fold.sparse else np.arange(len(w))
    sigma = np.sign(w[S]) if fold.sparse else np.zeros(len(S))
    m = fold.B.shape[1]
    size = len(S) + fold.intercept
    A = np.zeros((size, m + len(pairs(m))))
    constant = Path(S, sigma, w, A.copy(), m0, b, np.zeros(size))
    if size == 0 or not np.any(w) or len(S) > len(m0) + len(w) * bool(fold.B[1].any()):
        return constant
    X, H = fold.hessian(S, m0, fold.B[1] @ box.centre)
    pad = np.zeros(size - len(S))
    try:
        factor = cho_factor(H)
    except (LinAlgError, ValueError):
        return constant
    penalised = np.append(np.ones(len(S)), pad)
    for k in range(m):
        A[:, k] = -cho_solve(factor, np.append(fold.B[0, k] * sigma + fold.B[1, k] * w[S], pad))
    T, bent = X @ A[:, :m], fold.a * third(fold.loss, m0, fold.y)
    for q, (j, k) in enumerate(pairs(m), start=m):
        own = fold.B[1, j] * A[:, k] + (fold.B[1, k] * A[:, j] if j < k else 0.0)
        A[:, q] = -cho_solve(factor, penalised * own + (1.0 if j < k else 0.5) * (X.T @ (bent * T[:, j] * T[:, k])))
    if not np.isfinite(A).all():
        return constant
    inverse = np.diag(cho_solve(factor, np.eye(size))) if m > 1 else np.zeros(size)
    return Path(S, sigma, w, A, m0, b, np.sqrt(np.maximum(inverse, 0.0)))


def foreseen(fold: CertifiableFold, w: Array, c: Array, t: Array) -> Array:
    """Weights at parameters t by the path through w, weights at c; those that would change their sign are 0."""
    path, moved = path_of(fold, w, PenaltyBox(c, c)), w.copy()
    with np.errstate(all="ignore"):
        by = np.append(t - c, [(t - c)[j] * (t - c)[k] for j, k in pairs(len(c))])
        moved[path.S] += (path.A @ by)[: len(path.S)]
        moved = np.where(moved * w > 0.0, moved, 0.0) if fold.sparse else moved
    return moved if np.isfinite(moved).all() else w


@dataclass(frozen=True, eq=False)
class Expansion:
    """The expansion of margins and of grad f along the path: X A, and X^T (a r) for r = psi' and for all monomials."""

    X: Array  # on S, with the intercept's ones
    T: Array  # X A
    rough: Array  # |X| |A|
    K: Array  # (d, with the intercept last) x (1 + monomials)
    error: Array


@dataclass(frozen=True, eq=False)
class MarginRanges:
    """What margins and psi do in a box, row by row."""

    s: Array  # how far margins move, at most
    zeta: Array  # what is left of psi', at most
    high: Array  # a psi''_max


def clips_of(fold: CertifiableFold, path: Path, box: PenaltyBox, sizes: Array) -> Array:
    """k^max on S and the intercept."""
    clips, s = np.zeros(len(path.A)), len(path.S)
    if fold.sparse and box.bounded:
        clips[:s] = np.maximum((np.abs(path.A) @ sizes)[:s] * SAFE - np.abs(path.w[path.S]), 0.0)
    return clips


def ranges_of(fold: CertifiableFold, path: Path, known: Expansion, sizes: Array, clips: Array) -> MarginRanges:
    loss, y, m0, m = fold.loss, fold.y, path.m0, fold.B.shape[1]
    few, X, T = gamma(len(path.S) + 8), known.X, known.T
    blur = few * (np.abs(X[:, : len(path.S)]) @ np.abs(path.w[path.S])) + 4.0 * EPS * (np.abs(m0) + abs(path.b)) + TINY
    along = blur + few * (known.rough @ sizes)  # how far margins along the path may be from what is computed
    s1 = np.abs(T[:, :m]) @ sizes[:m]
    s2 = np.abs(T[:, m:]) @ sizes[m:] + along
    s2 += np.abs(X) @ clips if clips.any() else 0.0
    s = (s1 + s2) * SAFE
    most = most_bend(loss, m0, s, y)
    zeta = slope_remainder(loss, m0, s, y) + 0.5 * np.abs(third(loss, m0, y)) * s2 * (2.0 * s1 + s2)
    zeta = (zeta + most * along + 4.0 * EPS * loss.second(m0, y) * s) * SAFE
    return MarginRanges(s, zeta, fold.a * most)


def expansion_of(fold: CertifiableFold, path: Path) -> Expansion:
    design, loss, y, m0 = fold.design, fold.loss, fold.y, path.m0
    a, m, few = fold.a, fold.B.shape[1], gamma(len(path.S) + 8)
    X = fold.columns(design.X, path.S)
    T, rough = X @ path.A, np.abs(X) @ np.abs(path.A)  # of which a rounding is few
    bend, bent = loss.second(m0, y), third(loss, m0, y)
    R = np.empty((len(m0), 1 + T.shape[1]))
    error = np.empty_like(R)
    R[:, 0], error[:, 0] = loss.derivative(m0, y), 0.0
    R[:, 1:] = bend[:, None] * T
    error[:, 1:] = bend[:, None] * few * rough
    weight = np.abs(R)
    weight[:, 0] += bend
    for q, (j, k) in enumerate(pairs(m), start=1 + m):
        times = 1.0 if j < k else 0.5
        R[:, q] += times * bent * T[:, j] * T[:, k]
        weight[:, q] += times * np.abs(bent * T[:, j] * T[:, k])
        error[:, q] += few * np.abs(bent) * (rough[:, j] * np.abs(T[:, k]) + rough[:, k] * np.abs(T[:, j]))
    K = design.adjoint(a[:, None] * R)
    root = np.sqrt(a)[:, None]
    lengths = np.sqrt(np.sum((root * weight) ** 2, axis=0)), np.sqrt(np.sum((root * error) ** 2, axis=0))
    norms = design.column_norms[:, None]
    off = (np.outer(design.pull_gammas, lengths[0]) + lengths[1]) * norms * SAFE + design.underflow
    if fold.intercept:
        K = np.vstack([K, a @ R])
        off = np.vstack([off, (gamma(len(m0) + OF_FACTORS) * (a @ weight) + a @ error) * SAFE + design.underflow])
    return Expansion(X, T, rough, K, off)


def excess_of(fold: CertifiableFold, box: PenaltyBox, known: Expansion, sizes: Array) -> Array:
    """No less than |p_j(t)| - l1 anywhere in the box, of every column."""
    d, m = fold.design.shape[1], fold.B.shape[1]
    K, error = known.K[:d], known.error[:d]
    if not box.bounded:  # the path is constant, and l1 least at the lower end
        return np.asarray(np.abs(K[:, 0]) + error[:, 0] - float(fold.B[0] @ box.low) * (1.0 - 8.0 * EPS))
    t = np.array(list(product(*zip(-box.r, box.r, strict=True)))).T
    corners = np.vstack([np.ones(t.shape[1]), t])
    there = K[:, : 1 + m] @ corners
    off = gamma(m + 4) * (np.abs(K[:, : 1 + m]) @ np.abs(corners[:, 0])) + 8.0 * EPS * float(fold.B[0] @ box.high)
    off += (np.abs(K[:, 1 + m :]) @ sizes[m:] + error @ np.append(1.0, sizes)) * SAFE
    l1 = fold.B[0] @ (box.centre[:, None] + t)
    return np.asarray((np.abs(there) - l1).max(axis=1) + off)
