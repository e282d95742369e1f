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
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrf

from suffice.arrays import EPS, Array, host, like, namespace, norm
from suffice.rows.blocks import RowBlocks
from suffice.rows.gram import Normal, gram
from suffice.rows.rounding import TINY
from suffice.rows.sums import Block, Job, Most

DENSE_GRAM_SIZE = 2000
SMALL_GRAM = 1 << 26  # bytes: a Gram matrix that may be larger than X
CHOLESKY_SLACK = 0.005
MOST_WORK = 2e11  # multiplications for a bound: a few seconds
MOST_BLOCKS = 16
LANCZOS_SLACK = 0.05
LANCZOS_FAILURE = 1e-15


def _largest(A: Any) -> float:
    """The largest absolute value of an entry."""
    entries = A.data if sp.issparse(A) else A
    if isinstance(entries, np.ndarray):  # without a copy
        return float(max(entries.max(), -entries.min())) if entries.size else 0.0
    return float(namespace(entries).max(abs(entries))) if math.prod(entries.shape) else 0.0


def row_norms(A: Any) -> Array:
    """||.|| of every row of a dense A."""
    if not isinstance(A, np.ndarray):
        xp = namespace(A)
        return host(xp.sqrt(xp.sum(A * A, axis=1)))
    norms: Array = np.sqrt(np.einsum("ij,ij->i", A, A))
    return norms


def squared_norm_bound(A: Any) -> float:
    """A proven upper bound on ||A||_2^2 for a dense or sparse A: an eigenvalue, a factorisation, or sums,
    each with its rounding; never a power iteration, which approaches the norm from below."""
    scale = _largest(A)
    if not 1e-100 < scale < 1e100 and scale > 0.0:  # squares would leave the range of floats
        if scale * scale == math.inf:
            raise OverflowError(f"X is too large: the square of its largest entry, {scale!r}, overflows")
        return max(squared_norm_bound(A / scale) * scale * scale, sys.float_info.min) * (1 + 4 * EPS)
    rows, columns = A.shape
    small = min(rows, columns)
    if small <= DENSE_GRAM_SIZE:
        return _gram_bound(gram(A if columns <= rows else A.T)[0], rows, columns)
    memory = int(A.data.nbytes + A.indices.nbytes if sp.issparse(A) else 8 * math.prod(A.shape))
    if rows * columns * small <= MOST_WORK and 8 * small**2 <= max(memory, SMALL_GRAM):
        bound = _cholesky_bound(gram(A if columns <= rows else A.T)[0], rows, columns)
        if bound < math.inf:
            return bound
    if sp.issparse(A) and A.has_canonical_format:
        frobenius = float(A.data @ A.data)
    else:
        frobenius = float(A.multiply(A).sum() if sp.issparse(A) else namespace(A).sum(A * A))
    proven = min(frobenius * (1 + 2 * max(rows, columns) * EPS), _of_absolute(_absolute(A)))
    length = min(DENSE_GRAM_SIZE, math.isqrt(memory // 32))  # of blocks with a few Gram matrices each
    if 0 < small <= MOST_BLOCKS * length and rows * columns * length <= MOST_WORK:
        proven = min(proven, _blockwise(A, length) * (1.0 + 2 * MOST_BLOCKS * EPS))
    return float(proven)


def _blockwise(A: Any, length: int) -> float:
    """sum_b ||A_b||^2 over blocks of this many rows, or columns if there are fewer."""
    across = A if A.shape[0] <= A.shape[1] else A.T
    return sum(squared_norm_bound(across[k : k + length]) for k in range(0, across.shape[0], length))


def _absolute(A: Any) -> Any:
    """|A|, at the same places if it is sparse."""
    return type(A)((abs(A.data), A.indices, A.indptr), shape=A.shape, copy=False) if sp.issparse(A) else abs(A)


@dataclass(frozen=True)
class Survey(Job):
    """What a design has to know of X, in units of `unit`; row norms stay with the rows, if `keeps`. `a` is given."""

    unit: float
    gram: bool
    size: int = 0  # of what it gives
    keeps: bool = True

    def __call__(self, block: Block) -> Any:
        X, a = block.X, block["a"]
        largest = float(np.abs(X).max(initial=0.0))
        finite = bool(np.isfinite(X).all())
        X = X if self.unit == 1.0 else X / self.unit
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("ij,ij->i", X, X)
            norms = np.sqrt(squares + X.shape[1] * TINY) * self.unit
            columns, means = a @ X**2, a @ X
            G = gram(X, scale=np.sqrt(a))[0] if self.gram else np.zeros((0, 0))
        counting = norms[a > 0.0]
        found = (
            Most(largest if finite else math.inf),
            Most(norms.max(initial=0.0)),
            Most(counting.max(initial=0.0)),
            columns,
            means,
            G,
        )
        return (norms, found) if self.keeps else found


@dataclass(frozen=True, eq=False)
class Surveyed:
    """What a pass over blocks of rows has found; sums of squares are in units of `unit`."""

    largest: float
    largest_row: float
    reach: float  # the largest row that counts
    columns: Array
    means: Array  # X^T a
    gram: Array | None  # X^T diag(a) X, where it is small
    row_norms: Any
    unit: float

    @classmethod
    def of(cls, design: Any, other: Surveyed | None) -> Surveyed:
        """`other` is of the same rows with other weights: norms of rows are held once."""
        X, small = design.X, design.shape[1] <= DENSE_GRAM_SIZE
        unit, norms = (1.0, None) if other is None else (other.unit, other.row_norms)
        for _ in range(2):
            job = Survey(unit, small, small * design.shape[1] ** 2, keeps=other is None)
            found = X.run(job, a=design.weights)
            norms, sums = found if other is None else (norms, found)
            largest, row, reach, columns, means, gram = sums
            if not math.isfinite(largest) or _unit(largest) == unit:
                break
            unit = _unit(largest)
        return cls(
            float(largest), float(row), float(reach), columns, means * unit, gram if small else None, norms, unit
        )


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
    X, a, unit, (rows, columns) = design.X, design.weights, design.survey.unit, design.shape
    if design.survey.gram is not None:
        return _gram_bound(design.survey.gram, rows, columns)
    small = min(rows, columns)
    if rows < columns and isinstance(X, RowBlocks):
        A = X.scaled(np.sqrt(X.gathered(a)), unit)
        if small <= DENSE_GRAM_SIZE:
            return _gram_bound(A.outer_gram(), rows, columns)
        if rows * columns * small <= MOST_WORK and 8 * small**2 <= SMALL_GRAM:
            bound = _cholesky_bound(A.outer_gram(), rows, columns)
            if bound < math.inf:
                return bound
    elif rows * columns * small <= MOST_WORK and 8 * columns**2 <= SMALL_GRAM:
        bound = _cholesky_bound(X.run(Survey(unit, True, columns**2, keeps=False), a=a)[-1], rows, columns)
        if bound < math.inf:
            return bound
    frobenius = float(design.survey.columns.sum())

    def normal(v: Array) -> Array:
        return X.run(Normal(v, absolute=True, unit=unit), C=a)  # type: ignore[no-any-return]

    return float(min(frobenius * (1 + 2 * (rows + columns) * EPS), _collatz_wielandt(normal, rows, columns)))


def _gram_bound(gram: Array, rows: int, columns: int) -> float:
    trace = float(np.trace(gram))
    largest = float(np.linalg.eigvalsh(gram)[-1])
    rounding = (max(rows, columns) + 10 * min(rows, columns)) * EPS
    return float(min(largest + rounding * trace, trace * (1 + rounding)))


def _cholesky_bound(gram: Array, rows: int, columns: int) -> float:
    """A proven bound from a Gram matrix, which is overwritten; infinite where Lanczos has been fooled."""
    n, trace = len(gram), float(np.trace(gram))
    s = lanczos_value(lambda v: gram @ v, n) * (1.0 + CHOLESKY_SLACK)
    np.negative(gram, out=gram)
    gram[np.diag_indices(n)] += s
    if not s > 0.0 or dpotrf(gram.T, overwrite_a=True, clean=False)[1]:
        return math.inf
    return float(s * (1.0 + (n + 1) * n * EPS) + (max(rows, columns) + 10 * n) * EPS * trace)


def _gram_product(A: Any, v: Array) -> Array:
    return host(A.T @ (A @ like(v, A)))


def _of_absolute(B: Any) -> float:
    return _collatz_wielandt(lambda v: _gram_product(B, v), *B.shape)


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


def lanczos_value(normal: Callable[[Array], Array], n: int) -> float:
    """An approximation of the largest eigenvalue of a positive semidefinite operator, from below: no bound.

    By Kuczynski and Wozniakowski (SIAM J. Matrix Anal. Appl. 13, 1992, Theorem 4.2), k steps from a random direction
    miss more than a share e of it with a probability of at most 1.648 sqrt(n) exp(-sqrt(e) (2k - 1)).
    """
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
        image = normal(q)
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
    return float(np.linalg.eigvalsh(tridiagonal)[-1])
