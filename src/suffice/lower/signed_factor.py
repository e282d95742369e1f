r"""A Cholesky factor of  H = X^T C X + diag(l2)  on some columns, that is good for proofs.

Columns are scaled by powers of two to a diagonal of H between 1/2 and 2: nothing below depends on units of columns.
With H~ = H + E as computed, R^T R = H~ + E' its factor, and R Z = 1 + F, each error is bounded a priori (Higham,
Accuracy and Stability of Numerical Algorithms, sections 3.5, 8.1 and 10.1): |E|_jk by gamma sqrt(H_jj H_kk), gamma of
as many roundings as a term of the sums over rows passes, |E'|_jk by gamma_{s+1} sqrt(H_jj H_kk), |F| by gamma_s |R||Z|.
So ||E + E'|| <= delta, which gives

    (1 - tau) R^T R  <=  H  <=  (1 + tau) R^T R,        tau = delta ||R^-1||^2,        ||R^-1|| <= ||Z|| / (1 - ||F||),
    ||R^-T v||  <=  ||Z^T v|| / (1 - ||F||).

Rows are summed in blocks, so that a term passes about 512 + N/512 roundings, not N.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf

from suffice.arrays import Array, norm
from suffice.terms.design import Design
from suffice.terms.rounding import gamma

Indices = npt.NDArray[np.intp]

LARGEST_TAU = 0.5
GRAM_ROWS = 512  # in a block of a sum over rows
SMALLEST = 1e-100  # of diagonal entries of H, and one over the largest
UNDERFLOW = 1e-200  # more than what underflows in a product before it is scaled
LEAST = 1e-200  # more than all that underflows in a sum of scaled entries


@dataclass(frozen=True, eq=False)
class SignedFactor:
    """R and Z of H on the columns `support`, and on one of ones, last, if there is an `intercept`. Vectors are given
    in units of 1/`scale`."""

    support: Indices
    intercept: bool
    curvature: Array  # C
    l2: Array  # of the support
    scale: Array
    R: Array
    Z: Array
    of_inverse: float  # ||F||
    inverse_norm: float  # ||R^-1||
    tau: float
    delta: float

    @classmethod
    def of(
        cls, design: Design, support: Indices, C: Array, l2: Array, intercept: bool, gram: Array | None = None
    ) -> SignedFactor | None:
        """None where it cannot be proven that H is positive definite. `gram` is X^T C X where that is known."""
        N, s = design.shape[0], len(support)
        if gram is None:
            H, terms = _gram(design.X, support, np.sqrt(C), intercept)
        else:
            H, terms = np.asfortranarray(gram[np.ix_(support, support)]), N
        H[np.arange(s), np.arange(s)] += l2
        diagonal = np.diag(H)
        if not np.all((diagonal > SMALLEST) & (diagonal < 1.0 / SMALLEST)):
            return None
        scale: Array = 2.0 ** -np.round(0.5 * np.log2(diagonal))
        H = np.multiply(H * scale[:, None], scale, order="F")  # exact
        n, trace = len(H), float(np.trace(H))
        delta = (gamma(terms + 12) + 2.0 * gamma(n + 2)) * trace * (1.0 + 1e-6) + n * N * UNDERFLOW
        R, failed = dpotrf(H, lower=False, clean=True, overwrite_a=True)
        if failed or not math.isfinite(trace):
            return None
        Z = solve_triangular(R, np.eye(n, order="F"), lower=False, check_finite=False, overwrite_b=True)
        F = gamma(n + 2) * norm(R.ravel()) * norm(Z.ravel()) * (1.0 + 1e-6)
        if not F < 0.1:
            return None
        inverse_norm = two_norm(Z) / (1.0 - F)
        tau = delta * inverse_norm * inverse_norm * (1.0 + 1e-6)
        if not tau < LARGEST_TAU:
            return None
        return cls(support, intercept, C, l2, scale, R, Z, F, inverse_norm, tau, delta)

    def __len__(self) -> int:
        return len(self.scale)

    @property
    def up(self) -> float:
        """What a computed norm by Z is multiplied by."""
        return (1.0 + gamma(2 * len(self) + 16)) / (1.0 - self.of_inverse)

    def blocks(self, X: Any) -> Iterator[tuple[slice, Array]]:
        """Rows of X on the support, scaled, with the intercept's 1, a few at a time."""
        return _blocks(X, self.support, self.scale)

    def over_rows(self, X: Any, n: Array) -> tuple[Array, Array, Array]:
        """(t . n, the rounding of that, a bound on ||t||_{(R^T R)^-1}) of all rows t of X, n being scaled."""
        along, rounding, norms = (np.empty(X.shape[0]) for _ in range(3))
        slack = gamma(len(self) + 4) * math.sqrt(len(self)) * self.inverse_norm
        for place, rows in self.blocks(X):
            along[place] = rows @ n
            rounding[place] = gamma(len(n) + 4) * (np.abs(rows) @ np.abs(n)) + LEAST
            norms[place] = (row_norms(rows @ self.Z) + slack * row_norms(rows)) * self.up + LEAST
        return along, rounding, norms

    def norms(self, design: Design, useful: float) -> Array:
        """Bounds on ||x_i||_{(R^T R)^-1} of all rows of X, no sharper than `useful`."""
        ones = self.scale[len(self.support) :]
        cheap: Array = design.row_norms * float(self.scale.max()) + float(ones.sum())
        cheap = cheap * (1.0 + gamma(sum(design.shape) + 8)) * self.inverse_norm
        if float(cheap.max()) <= useful:
            return cheap
        X = design.X
        norms = np.empty(X.shape[0])
        slack = gamma(len(self) + 4) * math.sqrt(len(self)) * self.inverse_norm
        for place, rows in self.blocks(X):
            sizes = row_norms(rows) * (1.0 + gamma(len(self) + 8))
            cheap = sizes * self.inverse_norm + LEAST
            matter = cheap > useful
            if matter.any():
                cheap[matter] = (row_norms(rows[matter] @ self.Z) + slack * sizes[matter]) * self.up + LEAST
            norms[place] = cheap
        return norms

    def norm_of(self, v: Array, error: Array | float = 0.0) -> float:
        """The same of one scaled vector whose entries err by no more than `error`."""
        doubt = gamma(len(v) + 4) * np.abs(v) + error + LEAST
        return (norm(self.Z.T @ v) + norm(np.abs(self.Z).T @ doubt)) * self.up

    def spread(self, count: int) -> tuple[Array, float]:
        """||e_j||_{(R^T R)^-1} of the first `count` columns, and the largest ||v|| over all v with ||R v|| = 1 on
        them, in units of the data."""
        Z = self.Z[:count] * self.scale[:count, None]
        return row_norms(Z) * self.up, two_norm(Z) * self.up


def row_norms(A: Array) -> Array:
    """||.|| of every row."""
    norms: Array = np.sqrt(np.einsum("ij,ij->i", A, A))
    return norms


def two_norm(A: Array) -> float:
    """An upper bound on ||A||_2 from norms that are sums."""
    sizes = np.abs(A)
    mixed = math.sqrt(float(sizes.sum(axis=0).max(initial=0.0)) * float(sizes.sum(axis=1).max(initial=0.0)))
    return min(norm(A.ravel()), mixed) * (1.0 + gamma(A.size + 8))


def _blocks(X: Any, support: Indices, scale: Array, most: int = 0) -> Iterator[tuple[slice, Array]]:
    s, N = len(support), X.shape[0]
    B = max(GRAM_ROWS, most)
    X = X.tocsr() if sp.issparse(X) else X
    kept = np.empty((min(B, N), len(scale)))
    for first in range(0, N, B):
        block = X[first : first + B]
        block = block[:, support] if s < X.shape[1] else block
        rows = kept[: block.shape[0]]
        np.multiply(block.toarray() if sp.issparse(block) else block, scale[:s], out=rows[:, :s])
        rows[:, s:] = scale[s:]
        yield slice(first, first + len(rows)), rows


def _gram(X: Any, support: Indices, root: Array, intercept: bool) -> tuple[Array, int]:
    """X^T C X with the number of roundings that a term of its sums passes at most; `root` is C^(1/2)."""
    N, n, B = X.shape[0], len(support) + intercept, math.isqrt(X.shape[0])
    H = np.zeros((n, n), order="F")
    for place, rows in _blocks(X, support, np.ones(n), B):
        rows *= root[place, None]
        H += rows.T @ rows
    return H, max(GRAM_ROWS, B) + math.ceil(N / max(GRAM_ROWS, B)) + 1
