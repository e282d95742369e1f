r"""Kernels k(x, z), their matrices, and how far those are from exact ones.

    rbf          exp(-gamma ||x - z||_2^2)
    laplacian    exp(-gamma ||x - z||_1)
    linear       x . z
    poly         (gamma x . z + coef0)^degree,        coef0 >= 0, so that it is positive semidefinite

A matrix K = fl(k(x_i, z_j)) comes with E >= |K - k|, entry by entry; "linear" is the polynomial with gamma = degree = 1
and coef0 = 0. With u = 2^-53 and d columns:

- distances are sums of d non-negative terms, made from differences, and err by gamma_{d+2} relative to themselves, so
  that t = gamma distance errs by gamma_{d+3} t, and  |fl(exp(-t)) - exp(-t)| <= exp(-t) (t gamma_{d+4} + 8 u);
- an inner product errs by gamma_d ||x|| ||z||, hence  s = gamma x . z + coef0  by  e = gamma_{d+4} (gamma ||x|| ||z|| +
  coef0), and its power p by  p (|s| + e)^(p-1) e + 8 p u |s|^p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from scipy.spatial.distance import cdist

from suffice.arrays import Array
from suffice.lazy import cached_property
from suffice.rows.rounding import TINY, U, block_length, dense_product, gamma, roundings

Kind = Literal["rbf", "laplacian", "linear", "poly"]
KINDS: tuple[str, ...] = get_args(Kind)
_METRICS = {"rbf": "sqeuclidean", "laplacian": "cityblock"}


@dataclass(frozen=True)
class Kernel:
    """k of the module's text; `degree` and `coef0` are those of a polynomial."""

    kind: Kind = "rbf"
    degree: int = 3
    coef0: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        whole = isinstance(self.degree, int | np.integer) or float(self.degree).is_integer()
        if self.kind == "poly" and not (whole and self.degree >= 1):
            raise ValueError(f"degree must be a positive whole number, got {self.degree!r}")
        if self.kind == "poly" and not self.coef0 >= 0.0:
            raise ValueError(f"coef0 must not be negative: the kernel would not be positive, got {self.coef0!r}")

    @property
    def has_gamma(self) -> bool:
        return self.kind != "linear"

    def matrix(self, X: Array, Z: Array, gamma_: float) -> KernelMatrix:
        """All rows of X with all rows of Z."""
        left, right = (np.sqrt(np.einsum("ij,ij->i", part, part)) for part in (X, Z))
        base = cdist(X, Z, _METRICS[self.kind]) if self.kind in _METRICS else X @ Z.T
        g, shift, p = self._powers(gamma_)
        K = np.exp(-gamma_ * base) if self.kind in _METRICS else (g * base + shift) ** p
        return KernelMatrix(self, gamma_, X.shape[1], base, left, right, K)

    def diagonal(self, X: Array, gamma_: float) -> Array:
        """Upper bounds of k(x_i, x_i)."""
        if self.kind in _METRICS:
            return np.ones(len(X))
        g, shift, p = self._powers(gamma_)
        squares = np.einsum("ij,ij->i", X, X)
        bound: Array = (1.0 + gamma((X.shape[1] + 8) * p)) * (g * squares + shift) ** p
        return bound

    def _powers(self, gamma_: float) -> tuple[float, float, int]:
        """gamma, coef0 and degree of a polynomial."""
        return (1.0, 0.0, 1) if self.kind == "linear" else (gamma_, self.coef0, int(self.degree))

    def errors(self, matrix: KernelMatrix) -> Array:
        """Bounds on |K - k|."""
        d = matrix.columns
        if self.kind in _METRICS:
            bound: Array = matrix.base * (matrix.gamma * gamma(d + 4))
            bound += 8.0 * U
            bound *= matrix.K
            bound += TINY  # of an underflow
            return bound
        g, shift, p = self._powers(matrix.gamma)
        sizes = np.outer(matrix.left, matrix.right) * (1.0 + gamma(d + 8))
        s = np.abs(g * matrix.base + shift)
        e = gamma(d + 4) * (g * sizes + shift) + d * TINY
        return p * (s + e) ** (p - 1) * e + 8.0 * p * U * s**p + TINY


@dataclass(frozen=True, eq=False)
class KernelMatrix:
    """K, and what it is made of: distances or inner products `base`, and the norms of rows on its `left` and `right`.

    Bounds on errors are made on demand: they take as much memory as K."""

    kernel: Kernel
    gamma: float
    columns: int
    base: Array
    left: Array
    right: Array
    K: Array

    @cached_property
    def E(self) -> Array:  # noqa: N802 (a symbol)
        return self.kernel.errors(self)

    def part(self, rows: Any) -> KernelMatrix:
        """That of some rows with themselves."""
        if len(rows) == len(self.K):
            return self
        base, K = (np.ascontiguousarray(one[np.ix_(rows, rows)]) for one in (self.base, self.K))
        return replace(self, base=base, left=self.left[rows], right=self.right[rows], K=K)

    def product(self, beta: Array) -> tuple[Array, Array]:
        """f_j = sum_i beta_i k(x_i, z_j), and bounds on the errors of the f_j."""
        n, size = len(beta), np.abs(beta)
        f = dense_product(self.K, beta, block_length(n))
        doubt = gamma(roundings(n) + 1) * (size @ np.abs(self.K)) + size @ self.E
        return f, doubt * (1.0 + gamma(2 * n + 16))

    def norm(self, p: Array) -> float:
        """An upper bound of || sum_i p_i k(x_i, .) ||, for the matrix of rows with themselves."""
        unit = 2.0 ** (math.frexp(float(np.max(np.abs(p), initial=0.0)))[1] - 1)  # squares of p / unit do not underflow
        p = p / unit
        size = np.abs(p)
        doubt = size @ (self.E @ size) + gamma(2 * len(p) + 4) * (size @ (np.abs(self.K) @ size))
        square = max(float(p @ (self.K @ p)), 0.0) + float(doubt) * (1.0 + gamma(4 * len(p) + 16))
        return float(np.sqrt(square)) * (1.0 + 4.0 * U) * unit
