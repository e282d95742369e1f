r"""Proven bounds on norms of a design matrix, and what a pass over its rows tells.

A power iteration or a Lanczos run approaches the norm from below: its value is not a Lipschitz constant and a
certificate built on it proves nothing. The bound here is

- for min(N, d) <= 2000: the largest eigenvalue of the Gram matrix plus the rounding of forming it and of a backward
  stable eigenvalue solver, at most (max(N, d) + 10 min(N, d)) eps ||.||_F^2;
- beyond, where a Gram matrix of n = min(N, d) columns is affordable: s, if the Cholesky factorisation of s I - A^T A
  succeeds for s a little above Lanczos' value. Then s I - A^T A >= -c I with c at most (n + 1) n eps s (Rump, BIT 46,
  2006); the rounding of the Gram matrix is added as above;
- else the least of ||.||_F^2, the Collatz-Wielandt quotient of |A|^T |A| (exact for non-negative data), and
  sum_b ||A_b||^2 over at most 16 blocks of rows or columns, each as in the first case.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrf
from scipy.sparse.linalg import ArpackError, eigsh

from suffice.arrays import EPS, Array, host, like, namespace
from suffice.rows.gram import Normal, gram, squared
from suffice.rows.rounding import TINY
from suffice.rows.sums import Block, Job, Most

DENSE_GRAM_SIZE = 2000
SMALL_GRAM = 1 << 26  # bytes: a Gram matrix that may be larger than X
CHOLESKY_SLACK = 0.005
MOST_WORK = 2e11  # multiplications for a bound: a few seconds
MOST_BLOCKS = 16
COPIED = 1 << 22  # bytes of rows of a dense X at a time
LANCZOS_TOLERANCE = 1e-3


def _largest(A: Any) -> float:
    """The largest absolute value of an entry."""
    entries = A.data if sp.issparse(A) else A
    if isinstance(entries, np.ndarray):  # without a copy
        return float(max(entries.max(), -entries.min())) if entries.size else 0.0
    return float(namespace(entries).max(abs(entries))) if math.prod(entries.shape) else 0.0


def row_norms(A: Any) -> Array:
    """||.|| of every row of a dense A."""
    if isinstance(A, np.ndarray):
        return np.sqrt(np.einsum("ij,ij->i", A, A))
    return np.sqrt(_row_sums(squared(A)))


def _row_sums(A: Any) -> Array:
    return host(A @ like(np.ones(A.shape[1]), A))


def squared_norm_bound(A: Any) -> float:
    """A proven upper bound on ||A||_2^2 for a dense or sparse A: an eigenvalue, a factorisation, or sums,
    each with its rounding; never a power iteration, which approaches the norm from below."""
    scale = _largest(A)
    if not 1e-100 < scale < 1e100 and scale > 0.0:  # squares would leave the range of floats
        if scale * scale == math.inf:
            raise OverflowError(f"X is too large: the square of its largest entry, {scale!r}, overflows")
        return max(squared_norm_bound(A / scale) * scale * scale, sys.float_info.min) * (1 + 4 * EPS)
    rows, columns = A.shape
    memory = int(A.data.nbytes + A.indices.nbytes if sp.issparse(A) else 8 * math.prod(A.shape))
    length = min(DENSE_GRAM_SIZE, math.isqrt(memory // 32))  # of blocks with a few Gram matrices each

    def looser() -> float:
        B, across = abs(A), A if rows <= columns else A.T
        found = _looser(float(_row_sums(squared(A)).sum()), lambda v: host(B.T @ (B @ like(v, B))), rows, columns)
        if 0 < min(rows, columns) <= MOST_BLOCKS * length and rows * columns * length <= MOST_WORK:
            parts = [squared_norm_bound(across[k : k + length]) for k in range(0, across.shape[0], length)]
            found = min(found, sum(parts) * (1.0 + 2 * MOST_BLOCKS * EPS))
        return found

    return _bound(rows, columns, memory, lambda: gram(A if columns <= rows else A.T)[0], looser)


def _bound(rows: int, columns: int, memory: int, gram: Callable[[], Array], looser: Callable[[], float]) -> float:
    """By a Gram matrix where that is affordable beside so much memory, else by what is looser."""
    small, bound = min(rows, columns), math.inf
    if small <= DENSE_GRAM_SIZE:
        return _gram_bound(gram(), rows, columns)
    if rows * columns * small <= MOST_WORK and 8 * small**2 <= max(memory, SMALL_GRAM):
        bound = _cholesky_bound(gram(), rows, columns)
    return bound if bound < math.inf else looser()


def _looser(frobenius: float, normal: Callable[[Array], Array], rows: int, columns: int) -> float:
    return min(frobenius * (1 + 2 * (rows + columns) * EPS), _collatz_wielandt(normal, rows, columns))


@dataclass(frozen=True)
class Survey(Job):
    """What a design has to know of X, in units of `unit`; row norms stay with the rows, if `keeps`. `a` is given."""

    unit: float
    gram: bool
    size: int = 0  # of what it gives
    keeps: bool = True

    def __call__(self, block: Block) -> Any:
        X, a = block.X, host(block["a"])
        N, d = X.shape
        largest = _largest(X)
        length = max(COPIED // (8 * d), 1) if isinstance(X, np.ndarray) else N  # of rows that are copied at a time
        rows, columns = np.empty(N), np.zeros(d)
        with np.errstate(over="ignore", invalid="ignore"):
            for place in (slice(first, first + length) for first in range(0, N, length)):
                part = X if length >= N else X[place]
                S = squared(part if self.unit == 1.0 else part / self.unit)
                rows[place] = _row_sums(S)
                columns += host(S.T @ like(a[place], S))
            norms = np.sqrt(rows + d * TINY) * self.unit
            G = gram(X / self.unit, scale=np.sqrt(a))[0] if self.gram else np.zeros((0, 0))
            found = (
                Most(largest if math.isfinite(largest) else math.inf),
                Most(norms.max(initial=0.0)),
                Most(norms[a > 0.0].max(initial=0.0)),
                columns,
                block.pull(block["a"]),
                G,
            )
        return (norms, found) if self.keeps else found


@dataclass(frozen=True, eq=False)
class Surveyed:
    """What a pass over all rows has found; sums of squares are in units of `unit`."""

    largest: float
    largest_row: float
    reach: float  # the largest row that counts
    columns: Array
    means: Array  # X^T a
    gram: Array | None  # X^T diag(a) X, where it is small, of blocks
    row_norms: Any
    unit: float

    @classmethod
    def of(cls, design: Any, other: Surveyed | None) -> Surveyed:
        """`other` is of the same rows with other weights: norms of rows are held once."""
        rows, d = design.rows, design.shape[1]
        small = rows.dear and d <= DENSE_GRAM_SIZE
        unit, norms = (1.0, None) if other is None else (other.unit, other.row_norms)
        for _ in range(2):
            found = rows.run(Survey(unit, small, small * d**2, keeps=other is None), a=design.weights)
            norms, sums = found if other is None else (norms, found)
            largest, row, reach, columns, means, gram = sums
            if not math.isfinite(largest) or _unit(largest) == unit:
                break
            unit = _unit(largest)
        return cls(float(largest), float(row), float(reach), columns, means, gram if small else None, norms, unit)


def _unit(largest: float) -> float:
    return 1.0 if largest == 0.0 or 1e-100 < largest < 1e100 else 2.0 ** math.floor(math.log2(largest))


def blocks_norm_bound(design: Any) -> float:
    """The same bound for blocks of rows. A sum over blocks errs by no more than one sum over all rows may."""
    unit = design.survey.unit
    if design.survey.largest == 0.0:
        return 0.0
    if unit == 1.0:
        return _blocks_norm_bound(design)
    heaviest = design.frobenius_norm
    if heaviest * heaviest == math.inf:
        raise OverflowError(f"X is too large: the square of its largest entry, {design.survey.largest!r}, overflows")
    return float(max(_blocks_norm_bound(design) * unit * unit, sys.float_info.min) * (1 + 4 * EPS))


def _blocks_norm_bound(design: Any) -> float:
    """In units of the survey's."""
    X, a, survey, (rows, columns) = design.X, design.weights, design.survey, design.shape

    def gram() -> Array:
        if survey.gram is not None:
            return survey.gram
        if columns > rows:
            A, root = X.through(lambda part: part / survey.unit, columns), np.sqrt(X.gathered(a))
            return A.outer_gram() * root[:, None] * root
        return X.run(Survey(survey.unit, True, columns**2, keeps=False), a=a)[-1]

    def normal(v: Array) -> Array:
        return X.run(Normal(v, absolute=True, unit=survey.unit), C=a)

    def looser() -> float:
        return _looser(float(survey.columns.sum()), normal, rows, columns)

    return looser() if columns > rows and not X.here else _bound(rows, columns, 0, gram, looser)


def _gram_bound(gram: Array, rows: int, columns: int) -> float:
    trace = float(np.trace(gram))
    largest = float(np.linalg.eigvalsh(gram)[-1])
    rounding = (max(rows, columns) + 10 * min(rows, columns)) * EPS
    return float(min(largest + rounding * trace, trace * (1 + rounding)))


def _cholesky_bound(gram: Array, rows: int, columns: int) -> float:
    """A proven bound from a Gram matrix, which is overwritten; infinite where Lanczos has been fooled."""
    n, trace = len(gram), float(np.trace(gram))
    s = lanczos_value(gram) * (1.0 + CHOLESKY_SLACK)
    np.negative(gram, out=gram)
    gram[np.diag_indices(n)] += s
    if not s > 0.0 or dpotrf(gram.T, overwrite_a=True, clean=False)[1]:
        return math.inf
    return float(s * (1.0 + (n + 1) * n * EPS) + (max(rows, columns) + 10 * n) * EPS * trace)


def _collatz_wielandt(normal: Callable[[Array], Array], rows: int, columns: int, rounds: int = 20) -> float:
    """max_i (B^T B v)_i / v_i bounds ||B||^2 for B >= 0 and any v > 0; a power iteration makes v a good one."""
    v = np.ones(columns)
    bound = math.inf
    for _ in range(rounds):
        image = normal(v)
        largest = float(image.max())
        if largest == 0.0:
            return 0.0
        bound = min(bound, float((image / v).max()))
        # The floor keeps v positive on columns that are empty or hardly couple with the rest.
        v = np.maximum(image / largest, 1e-3 * v)
        v /= v.max()
    return bound * float(1 + (rows + columns) * EPS)


def lanczos_value(gram: Array) -> float:
    """An approximation of the largest eigenvalue of a positive semidefinite matrix, from below: no bound. NaN if none
    was found."""
    start = np.random.default_rng(0).standard_normal(len(gram))
    with suppress(ArpackError):
        found = eigsh(gram, 1, which="LA", v0=start, tol=LANCZOS_TOLERANCE, return_eigenvectors=False)
        return float(found[0])
    return math.nan
