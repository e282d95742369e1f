r"""Kernels k(x, z), their matrices, and how far those are from exact ones.

    rbf          exp(-gamma ||x - z||_2^2)
    laplacian    exp(-gamma ||x - z||_1)
    linear       x . z
    poly         (gamma x . z + coef0)^degree,        coef0 >= 0, so that it is positive semidefinite

A matrix K = fl(k(x_i, z_j)) comes with E >= |K - k|, entry by entry. What does not depend on gamma, distances or inner
products, is computed once. With u = 2^-53 and d columns:

- distances are sums of d non-negative terms, made from differences, and err by gamma_{d+2} relative to themselves, so
  that t = gamma distance errs by gamma_{d+3} t, and  |fl(exp(-t)) - exp(-t)| <= exp(-t) (t gamma_{d+4} + 8 u);
- an inner product errs by gamma_d ||x|| ||z||, hence  s = gamma x . z + coef0  by  e = gamma_{d+4} (gamma ||x|| ||z|| +
  coef0), and its power p by  p (|s| + e)^(p-1) e + 8 p u |s|^p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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

    def pairs(self, X: Array, Z: Array) -> KernelPairs:
        """All rows of X with all rows of Z."""
        sizes = tuple(np.sqrt(np.einsum("ij,ij->i", part, part)) for part in (X, Z))
        base = cdist(X, Z, _METRICS[self.kind]) if self.kind in _METRICS else X @ Z.T
        return KernelPairs(self, X.shape[1], base, *sizes)

    def diagonal(self, X: Array, gamma_: float) -> Array:
        """Upper bounds of k(x_i, x_i)."""
        if self.kind in _METRICS:
            return np.ones(len(X))
        squares = np.einsum("ij,ij->i", X, X)
        up = 1.0 + gamma((X.shape[1] + 8) * max(int(self.degree), 1))
        bound: Array = up * (squares if self.kind == "linear" else (gamma_ * squares + self.coef0) ** int(self.degree))
        return bound


@dataclass(frozen=True, eq=False)
class KernelPairs:
    """What a kernel's matrix is made of, for any gamma; `left` and `right` are the norms of its rows."""

    kernel: Kernel
    columns: int
    base: Array
    left: Array
    right: Array

    def matrix(self, gamma_: float) -> KernelMatrix:
        kernel = self.kernel
        if kernel.kind in _METRICS:
            return KernelMatrix(self, gamma_, np.exp(-gamma_ * self.base))
        if kernel.kind == "linear":
            return KernelMatrix(self, gamma_, self.base)
        return KernelMatrix(self, gamma_, (gamma_ * self.base + kernel.coef0) ** int(kernel.degree))

    def part(self, rows: Any, columns: Any) -> KernelPairs:
        """Some rows with some columns."""
        base = np.ascontiguousarray(self.base[np.ix_(rows, columns)])
        return KernelPairs(self.kernel, self.columns, base, self.left[rows], self.right[columns])


@dataclass(frozen=True, eq=False)
class KernelMatrix:
    """K of these pairs."""

    pairs: KernelPairs
    gamma: float
    K: Array

    @cached_property
    def E(self) -> Array:  # noqa: N802 (a symbol)
        """Bounds on |K - k|, computed on demand: they take as much memory as K."""
        pairs, kernel, d = self.pairs, self.pairs.kernel, self.pairs.columns
        if kernel.kind in _METRICS:
            bound: Array = pairs.base * (self.gamma * gamma(d + 4))
            bound += 8.0 * U
            bound *= self.K
            bound += TINY  # of an underflow
            return bound
        sizes = np.outer(pairs.left, pairs.right) * (1.0 + gamma(d + 8))
        if kernel.kind == "linear":
            return gamma(d + 1) * sizes + d * TINY
        p = int(kernel.degree)
        s = np.abs(self.gamma * pairs.base + kernel.coef0)
        e = gamma(d + 4) * (self.gamma * sizes + kernel.coef0) + d * TINY
        return p * (s + e) ** (p - 1) * e + 8.0 * p * U * s**p + TINY

    def product(self, beta: Array) -> tuple[Array, Array]:
        """f_j = sum_i beta_i k(x_i, z_j), and bounds on the errors of the f_j."""
        n, size = len(beta), np.abs(beta)
        f = dense_product(self.K, beta, block_length(n))
        K = self.K if self.pairs.kernel.kind in _METRICS else np.abs(self.K)
        doubt = gamma(roundings(n) + 1) * (size @ K) + size @ self.E
        return f, doubt * (1.0 + gamma(2 * n + 16))

    def norm(self, p: Array) -> float:
        """An upper bound of || sum_i p_i k(x_i, .) ||, for the matrix of rows with themselves."""
        unit = 2.0 ** (math.frexp(float(np.max(np.abs(p), initial=0.0)))[1] - 1)  # squares of p / unit do not underflow
        p = p / unit
        size = np.abs(p)
        doubt = size @ (self.E @ size) + gamma(2 * len(p) + 4) * (size @ (np.abs(self.K) @ size))
        square = max(float(p @ (self.K @ p)), 0.0) + float(doubt) * (1.0 + gamma(4 * len(p) + 16))
        return float(np.sqrt(square)) * (1.0 + 4.0 * U) * unit
