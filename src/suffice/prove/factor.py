r"""A Cholesky factor of the Hessian of rows with K outputs on some variables, that is good for proofs:

    H = sum_i a_i B_i^T H_i B_i + diag(l2),        B_i: a change of the variables -> that of the K margins of row i.

With one output H is X^T C X + diag(l2) on some columns, C = diag(a psi''). With K classes of a softmax, H_i = diag(p_i)
- p_i p_i^T, and variables are, class by class, the columns of its support and, but for the last class, one of ones if
there are intercepts: a constant added to all intercepts changes no probability, so the last may stay.

Variables are scaled by powers of two to a diagonal of H between 1/2 and 2: nothing below depends on units of columns.
With H~ = H + E as computed, R^T R = H~ + E' its factor, and R Z = 1 + F, each error is bounded a priori (Higham,
Accuracy and Stability of Numerical Algorithms, sections 3.5, 8.1 and 10.1): |E|_jk by gamma sqrt(H_jj H_kk), gamma of
as many roundings as a term of the sums over rows passes, |E'|_jk by gamma_{s+1} sqrt(H_jj H_kk), |F| by gamma_s |R||Z|.
So ||E + E'|| <= delta, which gives

    (1 - tau) R^T R  <=  H  <=  (1 + tau) R^T R,        tau = delta ||R^-1||^2,        ||R^-1|| <= ||Z|| / (1 - ||F||),
    ||R^-T v||  <=  ||Z^T v|| / (1 - ||F||).

The sums over rows are made where these are (`suffice.prove.verified_rows`); H is factored here.

A constant in all classes of a row has no effect. Without it class k moves by  b_k . h,  b_k the k-th row of B_i less
their mean, and two classes move apart by at most (||b_k|| + ||b_l||) ||R h||, in norms by (R^T R)^-1. A vector added to
all classes' weights, which nothing but an l2 determines, does not count. One output moves by B_i h = x_i . h itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dtrtrs

from suffice.arrays import EPS, Array, host, like, namespace, norm
from suffice.lazy import cached_property
from suffice.rows.gram import chosen_columns, dense_rows
from suffice.rows.norms import row_norms
from suffice.rows.rounding import gamma

Indices = npt.NDArray[np.intp]

LARGEST_TAU = 0.5
ROWS = 512  # that are made dense at a time
SMALLEST = 1e-100  # of diagonal entries of H, and one over the largest
UNDERFLOW = 1e-200  # more than what underflows in a product before it is scaled
LEAST = 1e-200  # more than all that underflows in a sum of scaled entries


@dataclass(frozen=True, eq=False)
class Variables:
    """Which variables there are: `columns` of every output, in ascending order, then its intercept, if it has one."""

    columns: tuple[Indices, ...]
    intercept: bool

    @classmethod
    def of(cls, free: Any, intercept: bool) -> Variables:
        """From a K x d mask."""
        return cls(tuple(np.flatnonzero(one) for one in free), intercept)

    @property
    def outputs(self) -> int:
        return len(self.columns)

    def __len__(self) -> int:
        return int(self.places[-1].stop)

    def has_intercept(self, k: int) -> bool:
        return self.intercept and k < max(self.outputs - 1, 1)

    @cached_property
    def places(self) -> list[slice]:
        """Those of every output."""
        sizes = [len(one) + self.has_intercept(k) for k, one in enumerate(self.columns)]
        return [slice(first, last) for first, last in itertools.pairwise(itertools.accumulate(sizes, initial=0))]

    @cached_property
    def weights(self) -> npt.NDArray[np.bool_]:
        """Which of them are weights, not intercepts."""
        parts = [np.arange(len(one) + self.has_intercept(k)) < len(one) for k, one in enumerate(self.columns)]
        return np.concatenate(parts)

    @cached_property
    def used(self) -> Indices:
        """The columns of any output."""
        return self.columns[0] if self.outputs == 1 else np.unique(np.concatenate(self.columns))

    def gathered(self, of_weights: Array, of_intercepts: Array) -> Array:
        """The variables' entries of a K x d matrix and a vector of K."""
        parts = []
        for k, one in enumerate(self.columns):
            parts.append(of_weights[k, one])
            if self.has_intercept(k):
                parts.append(of_intercepts[k : k + 1])
        return np.concatenate(parts)

    @cached_property
    def _at(self) -> list[Indices]:
        """Where the columns of every output stand among those that are used."""
        return [np.searchsorted(self.used, one) for one in self.columns]

    def rows(self, X: Any, scale: Array, length: int) -> Iterator[tuple[slice, list[Any]]]:
        """Rows of X as the variables of every output see them, with an intercept's 1, scaled, a few at a time."""
        scales = [like(scale[place], X) for place in self.places]
        for here, block in dense_rows(X, self.used, length):
            xp, parts = namespace(block), []
            for k, columns in enumerate(self._at):
                part = chosen_columns(block, columns) * scales[k][: len(columns)]
                if self.has_intercept(k):
                    part = xp.concat([part, xp.broadcast_to(scales[k][len(columns) :], (part.shape[0], 1))], axis=1)
                parts.append(part)
            yield here, parts


@dataclass(frozen=True, eq=False)
class ProvenFactor:
    """R and Z of a positive definite H on some variables. Vectors are given in units of 1/`scale`."""

    variables: Variables
    scale: Array
    R: Array
    Z: Array
    of_inverse: float  # ||F||
    inverse_norm: float  # ||R^-1||
    tau: float
    delta: float

    @classmethod
    def of(cls, H: Array, terms: float, N: int, variables: Variables, l2: Array) -> ProvenFactor | None:
        """From H without l2, which is one for every variable; of H, overwritten, the upper triangle counts. Its entries
        are sums over N rows, |E|_jk <= gamma sqrt(H_jj H_kk), gamma of so many `terms`, but for underflow. None where
        it cannot be proven that H is positive definite."""
        n = len(H)
        H[np.diag_indices(n)] += l2
        scale = scale_of(np.diag(H))
        if scale is None:
            return None
        H = np.multiply(H * scale[:, None], scale, order="F")  # exact
        trace = float(np.trace(H))
        delta = (gamma(terms) + 2.0 * gamma(n + 2)) * trace * (1.0 + 1e-6) + n * N * UNDERFLOW
        R, failed = dpotrf(H, lower=False, clean=True, overwrite_a=True)
        if failed or not math.isfinite(trace):
            return None
        Z, _ = dtrtrs(R, np.eye(n, order="F"), overwrite_b=True)
        F = gamma(n + 2) * norm(R.ravel()) * norm(Z.ravel()) * (1.0 + 1e-6)
        if not F < 0.1:
            return None
        inverse_norm = two_norm(Z) / (1.0 - F)
        tau = delta * inverse_norm * inverse_norm * (1.0 + 1e-6)
        return cls(variables, scale, R, Z, F, inverse_norm, tau, delta) if tau < LARGEST_TAU else None

    def __len__(self) -> int:
        return len(self.scale)

    @property
    def support(self) -> Indices:
        """The columns of the first output, or of the only one."""
        return self.variables.columns[0]

    @property
    def intercept(self) -> bool:
        return self.variables.intercept

    @cached_property
    def travelling(self) -> ProvenFactor:
        """Without what rows do not ask for."""
        return replace(self, R=np.zeros((0, 0)))

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
        return np.asarray((row_norms((self.Z.T @ V).T) + row_norms((np.abs(self.Z).T @ doubt).T)) * self.up + SMALLEST)

    def spread(self, these: slice | npt.NDArray[np.bool_]) -> tuple[Array, float]:
        """||e_j||_{(R^T R)^-1} of these variables, and the largest ||v|| over all v with ||R v|| = 1 on them, in units
        of the data."""
        Z = self.Z[these] * self.scale[these, None]
        return row_norms(Z) * self.up, two_norm(Z) * self.up

    def moved(self, X: Any, n: Array, norms: bool = False) -> tuple[Array, Array, Array]:
        """B_i n of all rows of X, N x K, its rounding and, if they are asked for, their `norms`; n is scaled."""
        K, places = self.variables.outputs, self.variables.places
        moved, rounding = (np.empty((X.shape[0], K)) for _ in range(2))
        bounds = np.empty((X.shape[0] if norms else 0, K))
        for here, rows in self.variables.rows(X, self.scale, ROWS):
            for k, (one, place) in enumerate(zip(rows, places, strict=True)):
                part = like(n[place], one)
                moved[here, k] = host(one @ part)
                rounding[here, k] = gamma(len(n[place]) + 4) * host(abs(one) @ abs(part)) + LEAST
            if norms:
                bounds[here] = self._lengths(rows)
        return moved, rounding, bounds

    def norms(self, X: Any) -> Array:
        """Bounds on ||b_k||_{(R^T R)^-1} of all rows of X and all outputs."""
        K = self.variables.outputs
        bounds = np.empty((X.shape[0], K))
        for here, rows in self.variables.rows(X, self.scale, max(ROWS // K, 16)):
            bounds[here] = self._lengths(rows)
        return bounds

    def _lengths(self, rows: list[Any]) -> Array:
        """`norms` of dense rows, scaled, as the variables of every output see them."""
        K, doubt = len(rows), self.slack
        sizes = np.column_stack([row_norms(one) for one in rows]) * (1.0 + gamma(len(self) + K + 16))
        images = [one @ like(self.Z[place], one) for one, place in zip(rows, self.variables.places, strict=True)]
        if K > 1:
            mean = sum(images) / K
            images = [one - mean for one in images]
            sizes = sizes + sizes.mean(axis=1, keepdims=True)
            doubt += gamma(K + 8) * self.inverse_norm
        lengths = np.column_stack([row_norms(one) for one in images])
        return np.asarray((lengths + doubt * sizes) * self.up + LEAST)

    def rough_norms(self, lengths: Array, own: Any) -> Array:
        """`norms` from lengths of rows and from `own`, bounds by what H holds of the row itself: H is no less than C_i
        x_i x_i^T, so that x_i^T H^-1 x_i <= 1 / C_i whatever X is."""
        ones, K = self.scale[~self.variables.weights].max(initial=0.0), self.variables.outputs
        bounds = (lengths * float(self.scale.max()) + float(ones)) * self.inverse_norm
        bounds = bounds * (min(K, 2) * (1.0 + 1e-6)) + LEAST  # more than lengths of any row are rounded by
        rough: Array = np.minimum(bounds[:, None], math.sqrt(1.0 + self.tau) * (1.0 + 8.0 * EPS) * own)
        return rough if K == 1 else np.broadcast_to(rough, (len(lengths), K))


def apart(A: Array) -> Array:
    """How far outputs of every row may move against each other if each moves by no more than its entry: the sum of the
    two largest, or that of the only one."""
    if A.shape[1] == 1:
        return A[:, 0]
    return np.asarray(np.partition(A, A.shape[1] - 2, axis=1)[:, -2:].sum(axis=1) * (1.0 + gamma(2)))


def two_norm(A: Array) -> float:
    """An upper bound on ||A||_2 from norms that are sums."""
    sizes = np.abs(A)
    mixed = math.sqrt(float(sizes.sum(axis=0).max(initial=0.0)) * float(sizes.sum(axis=1).max(initial=0.0)))
    return min(norm(A.ravel()), mixed) * (1.0 + gamma(A.size + 8))


def scale_of(diagonal: Array) -> Array | None:
    """Powers of two that scale a diagonal of H to about 1; None where it leaves the range of floats."""
    if not np.all((diagonal > SMALLEST) & (diagonal < 1.0 / SMALLEST)):
        return None
    return np.asarray(2.0 ** -np.round(0.5 * np.log2(diagonal)))
