r"""What margins, slopes and gradients do along a path, for all parameters of a box at once.

Margins are m0 + s, s = s1 + s2 of first and second order, bends and clips being of the second kind. With psi' =
psi'(m0) and so on, row by row,

    psi'(m0 + s) = psi' + psi'' s + 1/2 psi''' s1^2 + zeta,      |zeta| bounded by `suffice.globally.expansions`,

so that grad_j f = p_j(t) + (X^T a zeta)_j, p_j a polynomial in t and the bends. |p_j| - l1 is largest, but for
second-order terms, in a corner of the box.

A weight that would change its sign is clipped: it stays 0, which adds sigma_j k_j, 0 <= k_j <= k_j^max, to the path. Or
it is let be, where that costs less: the subgradient of l1 |w_j| is then -l1 sigma_j where l1 sigma_j is reckoned with,
and e_j (`suffice.globally.reach`) has 2 l1 more, which is next to nothing for a small l1.

*Rounding.* Vectors X^T (a r) are known to gamma ||diag(a)^(1/2) x_j|| ||a^(1/2) r||, entry by entry, with what the
margins' own rounding does to r; that of the margins themselves is part of zeta.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from suffice.arrays import EPS, Array
from suffice.globally.expansions import least_bend, most_bend, slope_remainder, third
from suffice.globally.models import CertifiableFold
from suffice.globally.paths import Path, PenaltyBox
from suffice.globally.quadratics import pairs
from suffice.rows.design import OF_FACTORS
from suffice.rows.rounding import TINY, gamma

SAFE = 1.0 + 1e-10  # what sums of a few bounds are multiplied by for their rounding


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
    low: Array  # c
    high: Array  # a psi''_max


def sizes_of(r: Array) -> Array:
    """Of the monomials t_k and t_k t_l."""
    found: Array = np.append(r, [r[j] * r[k] for j, k in pairs(len(r))]) * (1.0 + 4.0 * EPS)
    return found


def clips_of(
    fold: CertifiableFold, path: Path, box: PenaltyBox, sizes: Array, bending: bool = False
) -> tuple[Array, Array]:
    """k^max on S and the intercept, 0 where it costs less to let the weight change its sign; and 2 l1 there. A clip
    costs k_j H_jj^(1/2), where the path is still to be bent instead (h_j k_j - 2 l1)_+ (H^-1)_jj^(1/2)."""
    reach = np.abs(path.A) @ sizes
    clips, turned, s = np.zeros(len(reach)), np.zeros(len(reach)), len(path.S)
    if fold.sparse and box.bounded:
        clips[:s] = np.maximum(reach[:s] * SAFE - np.abs(path.w[path.S]), 0.0)
        clips[path.own] = 0.0
        clips[path.base : s] = 0.0
        most, k = 2.0 * float(fold.B[0] @ box.high) * SAFE, path.base
        cost = clips[:k] * path.stiffness[:k]
        if bending:
            cost = clips[:k] / np.maximum(path.spread[:k], 1e-300) - most * path.spread[:k]
        turns = np.flatnonzero((clips[:k] > 0.0) & (most * path.spread[:k] < cost))
        clips[turns], turned[turns] = 0.0, most
    return clips, turned


def ranges_of(
    fold: CertifiableFold, path: Path, known: Expansion, sizes: Array, clips: Array, l2_low: float
) -> MarginRanges:
    loss, y, m0, m = fold.loss, fold.y, path.m0, fold.B.shape[1]
    a, few, X, T = fold.a, gamma(len(path.S) + 8), known.X, known.T
    blur = few * (np.abs(X[:, : len(path.S)]) @ np.abs(path.w[path.S])) + 4.0 * EPS * (np.abs(m0) + abs(path.b)) + TINY
    along = blur + few * (known.rough @ sizes)  # how far margins along the path may be from what is computed
    if fold.rotation is not None:
        along += fold.rotation.margins(path.length(sizes), l2_low)
    s1 = np.abs(T[:, :m]) @ sizes[:m]
    s2 = np.abs(T[:, m:]) @ sizes[m:] + along
    s2 += np.abs(X) @ clips if clips.any() else 0.0
    s = (s1 + s2) * SAFE
    most = most_bend(loss, m0, s, y)
    zeta = slope_remainder(loss, m0, s, y) + 0.5 * np.abs(third(loss, m0, y)) * s2 * (2.0 * s1 + s2)
    zeta = (zeta + most * along + 4.0 * EPS * loss.second(m0, y) * s) * SAFE
    return MarginRanges(s, zeta, a * least_bend(loss, m0, s, y), a * most)


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
    counts = np.array([gamma(float(count) + OF_FACTORS) for count in design.pull.roundings])
    lengths = np.sqrt(np.sum((root * weight) ** 2, axis=0)), np.sqrt(np.sum((root * error) ** 2, axis=0))
    off = (np.outer(counts, lengths[0]) + lengths[1]) * design.column_norms[:, None] * SAFE + design.underflow
    if fold.intercept:
        K = np.vstack([K, a @ R])
        off = np.vstack([off, (gamma(len(m0) + OF_FACTORS) * (a @ weight) + a @ error) * SAFE + design.underflow])
    return Expansion(X, T, rough, K, off)


def excess_of(fold: CertifiableFold, box: PenaltyBox, known: Expansion, sizes: Array) -> Array:
    """No less than |p_j(t)| - l1 anywhere in the box, of every column."""
    d = fold.design.shape[1]
    K, error = known.K[:d], known.error[:d]
    if not box.bounded:  # the path is constant, and l1 least at the lower end
        least: Array = np.abs(K[:, 0]) + error[:, 0] - float(fold.B[0] @ box.low) * (1.0 - 8.0 * EPS)
        return least
    return np.maximum(*over(fold, box, known, sizes))


def over(fold: CertifiableFold, box: PenaltyBox, known: Expansion, sizes: Array) -> tuple[Array, Array]:
    """No less than p_j(t) - l1, and than -p_j(t) - l1, anywhere in a bounded box, of every column."""
    d, m = fold.design.shape[1], fold.B.shape[1]
    K, error = known.K[:d], known.error[:d]
    t = np.array(list(product(*zip(-box.r, box.r, strict=True)))).T
    corners = np.vstack([np.ones(t.shape[1]), t])
    there = K[:, : 1 + m] @ corners
    off = gamma(m + 4) * (np.abs(K[:, : 1 + m]) @ np.abs(corners[:, 0])) + 8.0 * EPS * float(fold.B[0] @ box.high)
    off += (np.abs(K[:, 1 + m :]) @ sizes[m:] + error @ np.append(1.0, sizes)) * SAFE
    l1 = fold.B[0] @ (box.centre[:, None] + t)
    return (there - l1).max(axis=1) + off, (-there - l1).max(axis=1) + off
