r"""A design matrix X with sample weights a, and a proven bound on ||diag(a)^(1/2) X||_2^2.

A power iteration or a Lanczos run approaches the norm from below: its value is not a Lipschitz constant and a
certificate built on it proves nothing. The bound here is

- for min(N, d) <= 2000: the largest eigenvalue of the Gram matrix plus the rounding of forming it and of a backward
  stable eigenvalue solver, at most (max(N, d) + 10 min(N, d)) eps ||.||_F^2;
- beyond: the least of ||.||_F^2, the Collatz-Wielandt quotient of |A|^T |A| (exact for non-negative data), and Lanczos'
  value theta_k after k steps from a random direction, divided by 1 - e: by Kuczynski and Wozniakowski (SIAM J.
  Matrix Anal. Appl. 13, 1992, Theorem 4.2) theta_k < (1 - e) ||A||^2 has probability at most 1.648 sqrt(n)
  exp(-sqrt(e) (2k - 1)); with e = 0.05, k is chosen to make that 1e-15.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from suffice._array import EPS, Array, norm

DENSE_GRAM_SIZE = 2000
LANCZOS_SLACK = 0.05
LANCZOS_FAILURE = 1e-15


@dataclass(frozen=True, eq=False)
class Design:
    """X (dense or scipy.sparse, float64) and non-negative weights a that sum to 1."""

    X: Any
    weights: Array

    @classmethod
    def of(cls, X: Any, sample_weight: Any = None) -> Design:
        """Checked and converted; X is not copied when it already is float64, C- or F-ordered, CSR or CSC."""
        if getattr(getattr(X, "dtype", None), "kind", "") == "c":
            raise TypeError("X must be a matrix of real numbers, got complex ones")
        if sp.issparse(X):
            X = X if X.format in ("csr", "csc") else X.tocsr()
            X = X.astype(np.float64, copy=False)
            finite = bool(np.isfinite(X.data).all())
        else:
            try:
                X = np.asarray(X, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise TypeError(f"X must be a matrix of real numbers, got {type(X).__name__}") from error
            if not (X.flags.c_contiguous or X.flags.f_contiguous):
                X = np.ascontiguousarray(X)
            finite = X.ndim == 2 and bool(np.isfinite(X).all())
        if X.ndim != 2 or 0 in X.shape:
            raise ValueError(f"X must be a matrix with at least one row and column, got shape {X.shape}")
        if not finite:
            raise ValueError("X must be finite, got NaN or infinite entries")
        rows = X.shape[0]
        if sample_weight is None:
            return cls(X, np.full(rows, 1.0 / rows))
        try:
            a = np.asarray(sample_weight, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"sample_weight must be numeric, got {type(sample_weight).__name__}") from error
        if a.shape != (rows,):
            raise ValueError(f"sample_weight must have shape ({rows},), got {a.shape}")
        if not (np.isfinite(a).all() and (a >= 0).all() and a.sum() > 0):
            raise ValueError("sample_weight must be finite, non-negative and not all zero")
        return cls(X, a / a.sum())

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.X.shape
        return int(rows), int(columns)

    def margins(self, w: Array) -> Array:
        """X w."""
        result: Array = self.X @ w
        return result

    def adjoint(self, r: Array) -> Array:
        """X^T r."""
        result: Array = self.X.T @ r
        return result

    @cached_property
    def squared_norm(self) -> float:
        """A proven upper bound on ||diag(a)^(1/2) X||_2^2."""
        return squared_norm_bound(self._weighted())

    @cached_property
    def frobenius_norm(self) -> float:
        """||diag(a)^(1/2) X||_F."""
        return math.sqrt(float(np.sum(self._squares().T @ self.weights)))

    @cached_property
    def row_norms(self) -> Array:
        """||x_i|| of every row."""
        norms: Array = np.sqrt(np.asarray(self._squares().sum(axis=1)).ravel())
        return norms

    @cached_property
    def row_length(self) -> int:
        """The largest number of nonzeros in a row."""
        return int(self.X.count_nonzero(axis=1).max()) if sp.issparse(self.X) else self.shape[1]

    @cached_property
    def column_length(self) -> int:
        """The largest number of nonzeros in a column."""
        return int(self.X.count_nonzero(axis=0).max()) if sp.issparse(self.X) else self.shape[0]

    def _squares(self) -> Any:
        return self.X.multiply(self.X) if sp.issparse(self.X) else self.X**2

    def _weighted(self) -> Any:
        root = np.sqrt(self.weights)
        return sp.diags_array(root) @ self.X if sp.issparse(self.X) else root[:, None] * self.X


def squared_norm_bound(A: Any) -> float:
    """A proven upper bound on ||A||_2^2 for a dense or sparse A (see the module's text)."""
    scale = float(abs(A).max())
    if not 1e-100 < scale < 1e100 and scale > 0.0:  # squares would leave the range of floats
        if scale * scale == math.inf:
            raise OverflowError(f"X is too large: the square of its largest entry, {scale!r}, overflows")
        return max(squared_norm_bound(A / scale) * scale * scale, sys.float_info.min) * (1 + 4 * EPS)
    rows, columns = A.shape
    small = min(rows, columns)
    if small <= DENSE_GRAM_SIZE:
        gram = A.T @ A if columns <= rows else A @ A.T
        gram = gram.toarray() if sp.issparse(gram) else gram
        trace = float(np.trace(gram))
        largest = float(np.linalg.eigvalsh(gram)[-1])
        rounding = (max(rows, columns) + 10 * small) * EPS
        return float(min(largest + rounding * trace, trace * (1 + rounding)))
    A = A.tocsr() if sp.issparse(A) else A
    frobenius = float(A.multiply(A).sum()) if sp.issparse(A) else float(np.einsum("ij,ij->", A, A))
    return float(min(frobenius * (1 + rows * EPS), _collatz_wielandt(abs(A)), _lanczos_bound(A)))


def _collatz_wielandt(B: Any, rounds: int = 20) -> float:
    """max_i (B^T B v)_i / v_i bounds ||B||^2 for B >= 0 and any v > 0; a power iteration makes v a good one."""
    v = np.ones(B.shape[1])
    bound = math.inf
    for _ in range(rounds):
        image = B.T @ (B @ v)
        largest = float(image.max())
        if largest == 0.0:
            return 0.0
        bound = min(bound, float((image / v).max()))
        # The floor keeps v positive on columns that are empty or hardly couple with the rest.
        v = np.maximum(image / largest, 1e-3 * v)
        v /= v.max()
    return bound * float(1 + sum(B.shape) * EPS)


def _lanczos_bound(A: Any) -> float:
    n = A.shape[1]
    k = math.ceil(0.5 + math.log(1.648 * math.sqrt(n) / LANCZOS_FAILURE) / (2 * math.sqrt(LANCZOS_SLACK)))
    k = min(k, n)
    rng = np.random.default_rng(0)
    basis = np.empty((k, n))
    q = rng.standard_normal(n)
    q /= norm(q)
    diagonal: list[float] = []
    off: list[float] = []
    for i in range(k):
        basis[i] = q
        image = A.T @ (A @ q)
        diagonal.append(float(image @ q))
        for _ in range(2):  # twice is enough to keep the basis orthogonal
            image -= basis[: i + 1].T @ (basis[: i + 1] @ image)
        size = norm(image)
        if size <= 10 * n * EPS * max(diagonal):
            break
        off.append(size)
        q = image / size
    steps = len(diagonal)
    tridiagonal = np.diag(diagonal) + np.diag(off[: steps - 1], 1) + np.diag(off[: steps - 1], -1)
    return float(np.linalg.eigvalsh(tridiagonal)[-1]) / (1.0 - LANCZOS_SLACK)
