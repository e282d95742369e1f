r"""Kinks: a path that bends where a weight becomes zero, or ceases to be.

A smooth path w0 + D t + V[t, t] is wrong in first order beyond a kink. Let K be the columns whose weight would change
its sign somewhere in the box, and those outside the support whose gradient may exceed l1, each with its sigma_j: that
of the weight, or minus that of the gradient. The path becomes

    w~(t) = w0 + D t + V[t, t] + sum_{j in K} kappa_j(t) r_j,      r_j = sigma_j (e_j - H_BB^-1 H_Bj),   B = S \ K,

with  kappa_j = (-sigma_j w~_j)_+  of the smooth path for a weight that leaves: it stays 0, and the others answer; and
kappa_j = (x_j)_+/h_j,  x_j = -sigma_j grad_j f - l1 along the smooth path,  h_j = sigma_j (H r_j)_j,  for one that
enters. H r_j is 0 on B, so that e, what no subgradient cancels, is on B as it was; on K there is

    e_j = sum_{k in K, k != j} kappa_k (H r_k)_j  +  (h_j kappa_j - 2 l1)_+  for one that leaves,

since any subgradient between -l1 and l1 will do where the weight is 0, and the sum alone for one that enters. So one
kink costs nothing in first order, and several what they have to do with each other. All that is ever used of kappa_j
is 0 <= kappa_j <= kappa_j^max. H here is that at the centre; how it changes is left to `balls`, with all the rest.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from suffice.arrays import Array
from suffice.globally.along import SAFE, Expansion, clips_of, over
from suffice.globally.models import CertifiableFold
from suffice.globally.paths import Indices, Path, PenaltyBox

MOST = 60  # bends of a path


def bent(fold: CertifiableFold, path: Path, box: PenaltyBox, known: Expansion, sizes: Array) -> Path:
    """The path with its bends."""
    leaving = clips_of(fold, path, box, sizes, bending=True)[0][: len(path.S)]  # kappa^max on S, 0 for no kink
    sides = over(fold, box, known, sizes)
    doubt = 2.0 * (known.error[: fold.design.shape[1]] @ np.append(1.0, sizes))
    entering = np.maximum(np.maximum(*sides) + doubt, 0.0)  # that of x_j, for all columns
    entering[np.minimum(*sides) >= 0.0] = 0.0  # of either sign: not as a kink
    entering[path.S] = 0.0
    L, j = np.flatnonzero(leaving), np.flatnonzero(entering > 0.0)
    s, size = len(path.S), len(path.S) + len(j) + fold.intercept
    count = len(L) + len(j)
    if count == 0 or count > MOST or size > len(path.m0) + len(path.w) * bool(fold.B[1].any()):
        return path
    S: Indices = np.append(path.S, j)
    _, H = fold.hessian(S, path.m0, fold.B[1] @ box.centre)
    base = np.ones(size, dtype=bool)
    own: Indices = np.append(L, np.arange(s, len(S)))
    base[own] = False
    signs = np.append(path.sigma, np.where(sides[0] > sides[1], -1.0, 1.0)[j])
    r = np.zeros((size, count))
    r[own, np.arange(count)] = signs[own]
    try:
        r[base] = -cho_solve(cho_factor(H[np.ix_(base, base)]), H[np.ix_(base, own)] * signs[own])
    except (LinAlgError, ValueError):
        return path
    h = signs[own] * np.einsum("ij,ji->i", H[own], r)
    if not (np.all(h > 0.0) and np.isfinite(r).all()):
        return path
    limits = np.append(leaving[L], entering[j] / h[len(L) :]) * SAFE
    A = np.zeros((size, path.A.shape[1] + count))
    rows = np.append(np.arange(s), np.arange(len(S), size))
    A[rows, : path.A.shape[1]] = path.A
    A[:, path.A.shape[1] :] = r
    return replace(path, S=S, sigma=signs, A=A, base=s, own=own, h=h, limits=limits)
