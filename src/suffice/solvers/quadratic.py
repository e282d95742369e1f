r"""The forms of a Hessian on some columns: what a quadratic model is made of (`suffice.solvers.minimise`).

H = A^T C A + D on the columns of a working set, A of N rows and s columns, C and D diagonal, comes in these forms:

- `Matrix`: H itself, s^2 numbers, for s <= N;
- `Wide`: B, where a dense A has fewer rows than columns. With any D' > 0 in place of D,

      (A^T C A + D')^-1 = D'^-1 - D'^-1 B^T (1 + B D'^-1 B^T)^-1 B D'^-1,        B = C^(1/2) A,

  takes a matrix of N^2 numbers, and of fewer where entries of C vanish (Woodbury);
- `ByProducts`: nothing but v -> H v, where neither fits, or would cost more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotrs

from suffice.arrays import EPS, Array
from suffice.lazy import cached_property
from suffice.penalties.prox import Indices
from suffice.rows.gram import chosen_columns

Solve = Callable[[Array], Array]

ITERATIONS = 500  # of conjugate gradients
CG_TOLERANCE = 0.02  # by which conjugate gradients shorten a residual
SAFE = 1e-2  # of the largest entry of diag(H): where D is no less, nothing cancels in a solve


class NoFactorError(ArithmeticError):
    """H is not finite, or zero: there is no step."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """H as it stands."""

    H: Array
    direct: ClassVar[bool] = True  # whether systems with it have a factor

    @property
    def diagonal(self) -> Array:
        return np.diag(self.H)

    def product(self, v: Array) -> Array:
        return self.H @ v

    def solver(self, added: Array | float = 0.0) -> Solve:
        """b -> (H + diag(added))^-1 b, nearly."""
        return partial(_solved, _factor(self.H.T, added))  # in LAPACK's order

    def on(self, free: Indices) -> Matrix:
        """H on some of its variables."""
        return self if len(free) == len(self.H) else Matrix(self.H[np.ix_(free, free)])


@dataclass(frozen=True, eq=False)
class Wide:
    """H = B^T B + D, where B has fewer rows than columns; `ridge` is D."""

    B: Array
    ridge: float | Array
    direct: ClassVar[bool] = True

    @classmethod
    def of(cls, X: Array, columns: Indices, curvature: Array, ridge: float | Array, mean: Array | None) -> Wide:
        """Of rows that count only: others are zero in B."""
        rows = np.flatnonzero(curvature)
        part = X if len(rows) == len(X) else X[rows]
        B = chosen_columns(part, columns)
        B = X.copy() if B is X else B
        if mean is not None:
            B -= mean
        B *= np.sqrt(curvature[rows])[:, None]
        return cls(B, ridge)

    @cached_property
    def squares(self) -> Array:
        """The diagonal of B^T B."""
        return np.asarray(np.einsum("ij,ij->j", self.B, self.B))

    @property
    def diagonal(self) -> Array:
        return self.squares + self.ridge

    def product(self, v: Array) -> Array:
        return self.B.T @ (self.B @ v) + scaled(self.ridge, v)

    def solver(self, added: Array | float = 0.0) -> Solve:
        B, squares = self.B, self.squares
        D = np.broadcast_to(np.asarray(self.ridge + added, dtype=np.float64), len(squares))
        factor = _factor(dsyrk(1.0, (B / np.sqrt(D)).T, trans=1) if len(B) else np.zeros((0, 0)), 1.0)

        def once(b: Array) -> Array:
            inner = _solved(factor, B @ scaled(1.0 / D, b)) if len(B) else np.zeros((0, *b.shape[1:]))
            return scaled(1.0 / D, b - B.T @ inner)

        def twice(b: Array) -> Array:
            s = once(b)
            return s + once(b - B.T @ (B @ s) - scaled(D, s))  # what cancels for a small D is had again

        return once if float(D.min()) > SAFE * float(squares.max(initial=0.0)) else twice

    def on(self, free: Indices) -> Quadratic:
        part, ridge = chosen_columns(self.B, free), on_these(self.ridge, free)
        return Wide(part, ridge) if len(free) > len(part) else with_ridge(part.T @ part, ridge)


@dataclass(frozen=True, eq=False)
class ByProducts:
    """H on the `working` ones of `size` variables: `apply` makes products with all of it but its ridge. Systems are
    solved by conjugate gradients, whose residuals are shortened by `tolerance`."""

    apply: Solve
    size: int
    working: Indices
    diagonal: Array  # roughly
    ridge: float | Array
    tolerance: float = CG_TOLERANCE
    price: float = 0.0  # of a product, in operations on dense matrices
    made: list[int] = field(default_factory=lambda: [0])
    direct: ClassVar[bool] = False

    def product(self, v: Array) -> Array:
        self.made[0] += 1
        whole = np.zeros((self.size, *v.shape[1:]))
        whole[self.working] = v
        return self.apply(whole)[self.working] + scaled(self.ridge, v)

    def preconditioner(self, added: Array | float = 0.0) -> Solve:
        """r -> roughly (H + diag(added))^-1 r."""
        return partial(scaled, 1.0 / (self.diagonal + added))

    def solver(self, added: Array | float = 0.0) -> Solve:
        def product(v: Array) -> Array:
            return self.product(v) + added * v if np.any(added) else self.product(v)

        return lambda b: conjugate_gradients(product, self.preconditioner(added), b, tolerance=self.tolerance)[0]

    def on(self, free: Indices) -> ByProducts:
        ridge = on_these(self.ridge, free)
        return replace(self, working=self.working[free], diagonal=self.diagonal[free], ridge=ridge)


Quadratic: TypeAlias = Matrix | Wide | ByProducts


def with_ridge(H: Array, ridge: float | Array) -> Matrix:
    """H, which is written to, with a ridge."""
    H[np.diag_indices(len(H))] += ridge
    return Matrix(H)


def on_these(weights: float | Array, working: Indices) -> float | Array:
    """One weight for all variables, or those of these."""
    return weights[working] if isinstance(weights, np.ndarray) else weights


def scaled(weights: float | Array, v: Array) -> Array:
    """diag(weights) v for a vector v or a matrix, or entry by entry for weights of every entry."""
    return weights * v if np.ndim(weights) == v.ndim else (weights * v.T).T


def conjugate_gradients(
    product: Solve,
    precondition: Solve,
    b: Array,
    start: Array | None = None,
    tolerance: float = CG_TOLERANCE,
    most: int = ITERATIONS,
) -> tuple[Array, int, float]:
    """H^-1 b by products with H, preconditioned; the number of products; and what is left
    of b, a share. Columns of a matrix b are systems of their own, all of them to a residual of `tolerance` times b's
    column."""
    x = np.zeros_like(b) if start is None else start
    r = b if start is None else b - product(start)
    made = 0 if start is None else 1
    p = z = precondition(r)
    sizes = np.sqrt(_dots(b, b))
    rz, enough = _dots(r, z), tolerance * sizes
    while made < most:
        going = (np.sqrt(_dots(r, r)) > enough) & (rz > 0.0)
        if not np.any(going):
            break
        Hp = product(p)
        made += 1
        bend = _dots(p, Hp)
        going &= bend > 0.0  # rounding is all that is left elsewhere
        step = np.where(going, rz / np.where(going, bend, 1.0), 0.0)
        x, r = x + step * p, r - step * Hp
        z = precondition(r)
        before, rz = rz, _dots(r, z)
        p = z + np.where(going, rz / np.where(going, before, 1.0), 0.0) * p
        if not np.any(going):
            break
    left = np.sqrt(_dots(r, r))
    shares = np.where(left <= enough, 0.0, left / np.where(sizes > 0.0, sizes, 1.0))  # a NaN stays one
    return x, made, float(np.max(shares, initial=0.0))


def _dots(one: Array, other: Array) -> Any:
    """The products of vectors, or of every column with its own."""
    return one @ other if one.ndim == 1 else np.einsum("ij,ij->j", one, other)


def _factor(H: Array, diagonal: Array | float = 0.0) -> Array:
    """A Cholesky factor of H (its upper triangle) plus a diagonal; plus a little more where rounding has made it
    indefinite."""
    shift = 0.0
    while True:
        shifted = np.array(H, order="F")
        shifted[np.diag_indices(len(H))] += diagonal + shift
        factor, failed = dpotrf(shifted, overwrite_a=True, clean=False)
        if not failed:
            return np.asarray(factor)
        shift = max(10.0 * shift, EPS * float(np.trace(H)))
        if not 0.0 < shift < math.inf:
            raise NoFactorError("the Hessian of the working set is not finite, or zero")


def _solved(factor: Array, b: Array) -> Array:
    return np.asarray(dpotrs(factor, b)[0])
