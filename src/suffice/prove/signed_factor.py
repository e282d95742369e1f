r"""A Cholesky factor of  H = X^T C X + diag(l2)  on some columns, that is good for proofs.

Columns are scaled by powers of two to a diagonal of H between 1/2 and 2: nothing below depends on units of columns.
With H~ = H + E as computed, R^T R = H~ + E' its factor, and R Z = 1 + F, each error is bounded a priori (Higham,
Accuracy and Stability of Numerical Algorithms, sections 3.5, 8.1 and 10.1): |E|_jk by gamma sqrt(H_jj H_kk), gamma of
as many roundings as a term of the sums over rows passes, |E'|_jk by gamma_{s+1} sqrt(H_jj H_kk), |F| by gamma_s |R||Z|.
So ||E + E'|| <= delta, which gives

    (1 - tau) R^T R  <=  H  <=  (1 + tau) R^T R,        tau = delta ||R^-1||^2,        ||R^-1|| <= ||Z|| / (1 - ||F||),
    ||R^-T v||  <=  ||Z^T v|| / (1 - ||F||).

X^T C X, and how many roundings a term of it passes, is told by `suffice.rows.gram`, wherever X lives; it is factored
here. Blocks that are never in memory as a whole (`suffice.rows.blocks`) give a part each
(`suffice.prove.verified_blocks`). All of this but the sums is the same for the softmax's H
(`suffice.prove.softmax_factor`): `Factor` is what both have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf

from suffice.arrays import EPS, Array, host, like, lives_elsewhere, namespace, norm
from suffice.rows.design import Design
from suffice.rows.gram import dense_rows, gram
from suffice.rows.rounding import gamma

Indices = npt.NDArray[np.intp]

LARGEST_TAU = 0.5
COPIED_ROWS = 4096  # at a time
ROWS = 512  # that are made dense at a time
SMALLEST = 1e-100  # of diagonal entries of H, and one over the largest
UNDERFLOW = 1e-200  # more than what underflows in a product before it is scaled
LEAST = 1e-200  # more than all that underflows in a sum of scaled entries


@dataclass(frozen=True, eq=False)
class Factor:
    """R and Z of a positive definite H. Vectors are given in units of 1/`scale`."""

    scale: Array
    R: Array
    Z: Array
    of_inverse: float  # ||F||
    inverse_norm: float  # ||R^-1||
    tau: float
    delta: float

    @classmethod
    def of_matrix(cls, H: Array, scale: Array, terms: float, underflow: float) -> Factor | None:
        """The factor of a scaled H, overwritten, of which the upper triangle counts: |E|_jk <= gamma sqrt(H_jj H_kk),
        gamma of so many `terms`, but for underflow. None where it cannot be proven that H is positive definite."""
        n, trace = len(H), float(np.trace(H))
        delta = (gamma(terms) + 2.0 * gamma(n + 2)) * trace * (1.0 + 1e-6) + underflow
        R, failed = dpotrf(H, lower=False, clean=True, overwrite_a=True)
        if failed or not math.isfinite(trace):
            return None
        Z = solve_triangular(R, np.eye(n, order="F"), lower=False, check_finite=False, overwrite_b=True)
        F = gamma(n + 2) * norm(R.ravel()) * norm(Z.ravel()) * (1.0 + 1e-6)
        if not F < 0.1:
            return None
        inverse_norm = two_norm(Z) / (1.0 - F)
        tau = delta * inverse_norm * inverse_norm * (1.0 + 1e-6)
        return Factor(scale, R, Z, F, inverse_norm, tau, delta) if tau < LARGEST_TAU else None

    def __len__(self) -> int:
        return len(self.scale)

    @property
    def up(self) -> float:
        """What a computed norm by Z is multiplied by."""
        return (1.0 + gamma(2 * len(self) + 16)) / (1.0 - self.of_inverse)

    @property
    def slack(self) -> float:
        """Of ||t Z|| as it is computed, times ||t||."""
        return gamma(len(self) + 4) * math.sqrt(len(self)) * self.inverse_norm

    def norm_of(self, v: Array, error: Array | float = 0.0) -> float:
        """A bound on ||v||_{(R^T R)^-1} of one scaled vector whose entries err by no more than `error`."""
        doubt = gamma(len(v) + 4) * np.abs(v) + error + LEAST
        return (norm(self.Z.T @ v) + norm(np.abs(self.Z).T @ doubt)) * self.up

    def solve(self, v: Array) -> tuple[Array, float, float]:
        """n = (R^T R)^-1 v of one scaled vector; a bound on ||n||_H, but for a factor (1 + tau)^(-1/2); and one on
        ||v - H n||_{(R^T R)^-1}."""
        size = len(self)
        y = self.Z.T @ v
        n = self.Z @ y
        image = self.R @ n
        doubt = gamma(size + 4) * norm(np.abs(self.R) @ np.abs(n))
        left = norm(y - image) + gamma(size + 4) * norm(np.abs(self.Z).T @ np.abs(v)) + doubt + LEAST
        left += self.of_inverse / (1.0 - self.of_inverse) * norm(y) + self.delta * self.inverse_norm * norm(n)
        return n, (norm(image) + doubt) * (1.0 + self.tau), left

    def norms_of(self, V: Array, error: Array) -> Array:
        """`norm_of` of all columns."""
        doubt = gamma(len(V) + 4) * np.abs(V) + error + LEAST
        norms: Array = (row_norms((self.Z.T @ V).T) + row_norms((np.abs(self.Z).T @ doubt).T)) * self.up + SMALLEST
        return norms

    def spread(self, these: slice | npt.NDArray[np.bool_]) -> tuple[Array, float]:
        """||e_j||_{(R^T R)^-1} of these variables, and the largest ||v|| over all v with ||R v|| = 1 on them, in units
        of the data."""
        Z = self.Z[these] * self.scale[these, None]
        return row_norms(Z) * self.up, two_norm(Z) * self.up


@dataclass(frozen=True, eq=False)
class SignedFactor(Factor):
    """That of H on the columns `support`, and on one of ones, last, if there is an `intercept`."""

    support: Indices
    intercept: bool
    curvature: Any  # C; None where it stays with rows in blocks
    l2: Array  # of the support

    @classmethod
    def of(
        cls, design: Design, support: Indices, C: Array, l2: Array, intercept: bool, known: Array | None = None
    ) -> SignedFactor | None:
        """None where it cannot be proven that H is positive definite. `known` is X^T C X where it is."""
        if known is None:
            H, terms = gram(design.X, support, np.sqrt(C), intercept=intercept)
        else:
            H, terms = known[np.ix_(support, support)], design.shape[0]
        return cls.of_gram(H, terms, design.shape[0], support, C, l2, intercept)

    @classmethod
    def of_gram(
        cls, H: Array, terms: float, N: int, support: Indices, C: Any, l2: Array, intercept: bool
    ) -> SignedFactor | None:
        """From X^T C X on the support, overwritten, whose entries are sums over N rows that pass so many roundings."""
        s = len(support)
        H[np.arange(s), np.arange(s)] += l2
        scale = scale_of(np.diag(H))
        if scale is None:
            return None
        H = np.multiply(H * scale[:, None], scale, order="F")  # exact
        factor = Factor.of_matrix(H, scale, terms + 12, len(H) * N * UNDERFLOW)
        return None if factor is None else cls(**vars(factor), support=support, intercept=intercept, curvature=C, l2=l2)

    def blocks(self, X: Any) -> Iterator[tuple[slice, Any]]:
        """Rows of X on the support, scaled, with the intercept's 1, a few at a time."""
        scale, s, xp = like(self.scale, X), len(self.support), namespace(X) if lives_elsewhere(X) else np
        for place, block in dense_rows(X, self.support, ROWS):
            ones = xp.broadcast_to(scale[s:], (block.shape[0], len(self) - s))
            yield place, xp.concat([block * scale[:s], ones], axis=1) if self.intercept else block * scale[:s]

    def over_rows(self, X: Any, n: Array) -> tuple[Array, Array, Array]:
        """(t . n, the rounding of that, a bound on ||t||_{(R^T R)^-1}) of all rows t of X, n being scaled."""
        along, rounding, norms = (np.empty(X.shape[0]) for _ in range(3))
        for place, rows in self.blocks(X):
            along[place] = host(rows @ like(n, rows))
            rounding[place] = gamma(len(n) + 4) * host(abs(rows) @ like(np.abs(n), rows)) + LEAST
            norms[place] = (row_norms(rows @ like(self.Z, rows)) + self.slack * row_norms(rows)) * self.up + LEAST
        return along, rounding, norms

    def norms(self, design: Design, useful: float) -> Array:
        """Bounds on ||x_i||_{(R^T R)^-1} of all rows of X, no sharper than `useful`; by lengths alone where a_i = 0.

        H is no less than C_i x_i x_i^T, so that x_i^T H^-1 x_i <= 1 / C_i whatever X is; only rows for which neither
        that nor their length is enough are solved for.
        """
        X, counts = design.X, host(design.weights) > 0.0
        return self.norms_of_rows(X, design.row_norms, self.curvature, counts, useful)

    def norms_of_rows(self, X: Any, lengths: Array, C: Array, counts: npt.NDArray[np.bool_], useful: float) -> Array:
        """`norms` of these rows, of which some count, with their lengths and weights in H."""
        bounds = self.rough_norms(lengths, C, X.shape)
        matter = np.flatnonzero((bounds > useful) & counts)
        for first in range(0, len(matter), COPIED_ROWS):
            these = matter[first : first + COPIED_ROWS]
            chosen = namespace(X).take(X, like(these, X), axis=0) if lives_elsewhere(X) else X[these]
            for place, rows in self.blocks(chosen):
                sizes = row_norms(rows) * (1.0 + gamma(len(self) + 8))
                sharp = (row_norms(rows @ like(self.Z, rows)) + self.slack * sizes) * self.up + LEAST
                bounds[these[place]] = np.minimum(bounds[these[place]], sharp)
        return bounds

    def rough_norms(self, lengths: Array, C: Array, shape: tuple[int, int]) -> Array:
        """`norms` from lengths and weights in H alone."""
        ones = self.scale[len(self.support) :]
        bounds: Array = lengths * float(self.scale.max()) + float(ones.sum())
        bounds = bounds * (1.0 + gamma(sum(shape) + 8)) * self.inverse_norm
        with np.errstate(divide="ignore"):
            return np.minimum(bounds, math.sqrt(1.0 + self.tau) * (1.0 + 8.0 * EPS) / np.sqrt(C))


def row_norms(A: Any) -> Array:
    """||.|| of every row."""
    if not isinstance(A, np.ndarray):
        xp = namespace(A)
        return host(xp.sqrt(xp.sum(A * A, axis=1)))
    norms: Array = np.sqrt(np.einsum("ij,ij->i", A, A))
    return norms


def two_norm(A: Array) -> float:
    """An upper bound on ||A||_2 from norms that are sums."""
    sizes = np.abs(A)
    mixed = math.sqrt(float(sizes.sum(axis=0).max(initial=0.0)) * float(sizes.sum(axis=1).max(initial=0.0)))
    return min(norm(A.ravel()), mixed) * (1.0 + gamma(A.size + 8))


def scale_of(diagonal: Array) -> Array | None:
    """Powers of two that scale a diagonal of H to about 1; None where it leaves the range of floats."""
    if not np.all((diagonal > SMALLEST) & (diagonal < 1.0 / SMALLEST)):
        return None
    scale: Array = 2.0 ** -np.round(0.5 * np.log2(diagonal))
    return scale
