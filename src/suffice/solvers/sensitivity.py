r"""How a minimiser moves with the parameters p of its problem: implicit differentiation on its signed support.

    x(p) = argmin  f(x; p) + sum_j l1_j(p) |x_j|.

Let S hold the support of x, with signs sigma, and all j with l1_j = 0 (for a box: all j strictly inside). As long as S
and sigma stay what they are,  grad_S f(x; p) + l1 sigma = 0,  and with H the Hessian of f on S at x and

    K = d/dp [ grad f(x; p) + l1 sign(x) ],     one column for every parameter, x held fixed,

    H dx_S = - K_S dp,        dx = 0 outside S.

- *Forward*: dX = - H^-1 K, one right-hand side for every parameter. Residuals r(x) have the Jacobian (dr/dx) dX.
- *Adjoint*: a function with d/dx = c has the gradient  - K^T q,  H q = c on S: one system for any number of parameters.

An intercept that is minimised out moves along with the weights: H is then that of f with the intercept's direction
taken out, and so is K.

H has a factor where a matrix of its size, or one of as many rows as X has (Woodbury), fits into the memory that
Newton's method has anyway. Elsewhere there are products with H, and conjugate gradients solve to a residual of
`accuracy` times that of zero, from where they are told to start.

Where a weight is about to enter or leave S the derivative jumps. What is given there is the derivative on one side of
the kink, or on none: nothing that is proven may rest on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy.sparse.linalg import LinearOperator

from suffice.arrays import Array
from suffice.imaging.newton_tv import has_factor, hessian_solver
from suffice.imaging.variation import Variation
from suffice.models.smooth import Plain
from suffice.penalties.prox import Box, Indices, Lasso
from suffice.solvers.hessian import hessians_of
from suffice.solvers.problem import Canonical, Composite
from suffice.solvers.quadratic import ByProducts, Solve, conjugate_gradients, on_these, scaled

MOST_PRODUCTS = 5000  # with H, for one call of conjugate gradients
UNSOLVED = 0.1  # of a right-hand side: what is left of it, where something is wrong with H


@runtime_checkable
class Sensitive(Protocol):
    """A lower-level problem that knows how it depends on its parameters."""

    def cross(self, x: Array, **params: Any) -> Any:
        """K = d/dp [ grad f(x; p) + l1(p) sign(x) ] at these parameters, in the user's units: a matrix with a row for
        every variable and a column for every parameter, in the order in which they are given. Anything that takes
        `K @ v` and `K.T @ v` will do: NumPy's, scipy.sparse's, or a `scipy.sparse.linalg.LinearOperator`. None where it
        is not known after all."""


@runtime_checkable
class Bent(Protocol):
    """A smooth term that offers products with its Hessian."""

    def hessian_product(self, x: Array, v: Array) -> Array:
        """hess f(x) v."""


@runtime_checkable
class BentAtOnce(Protocol):
    """A smooth term that offers products of its Hessian with several vectors at once."""

    def hessian_at(self, x: Array) -> Callable[[Array], Array]:
        """V -> hess f(x) V."""


@dataclass(frozen=True, eq=False)
class Solved:
    """H^-1 B. `iterated` says whether by conjugate gradients: then it is worth keeping as a start for a problem nearby.
    `work` is in steps of a solver: a product with H, or a factorisation, is one."""

    value: Array
    work: float
    iterated: bool


System = Callable[[Array, "Array | None", float], Solved]  # of a right-hand side, a start and an accuracy


def direct(inverse: Solve) -> System:
    """H with a factor."""
    return lambda B, start, accuracy: Solved(inverse(B) if B.size else B, 1.0, False)


def iterative(product: Solve, precondition: Solve) -> System:
    """H by products with matrices of several columns, and what is roughly its inverse. ArithmeticError where an H that
    is not what it should be leaves much of a right-hand side."""

    def solve(B: Array, start: Array | None, accuracy: float) -> Solved:
        X, made, left = conjugate_gradients(product, precondition, B, start, accuracy, MOST_PRODUCTS)
        if not left <= UNSOLVED:
            raise ArithmeticError(f"conjugate gradients have left {left:.2g} of the right-hand side")
        return Solved(X, float(made), True)

    return solve


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """The linearised optimality conditions at a minimiser x of `size` variables: H on the `support`."""

    size: int
    support: Indices
    system: System

    @classmethod
    def of(cls, problem: Composite, x: Array) -> Sensitivity | None:
        """None where H is not to be had."""
        canonical = problem.canonical
        support = _support(canonical, x)
        system = None if support is None else _system(canonical, x, support)
        return None if support is None or system is None else cls(len(x), support, system)

    def solve(self, B: Array, accuracy: float, start: Array | None = None) -> Solved:
        """H^-1 B on the support, and 0 elsewhere."""
        solved = self.system(B[self.support], None if start is None else start[self.support], accuracy)
        value = np.zeros_like(B)
        value[self.support] = solved.value
        return replace(solved, value=value)


def matrix_of(product: Callable[[Array], Array], adjoint: Callable[[Array], Array], shape: tuple[int, int]) -> Any:
    """A K that is never made: `product` and `adjoint` take matrices."""
    return LinearOperator(
        shape,
        matvec=lambda v: product(v.reshape(-1, 1)).ravel(),
        rmatvec=lambda q: adjoint(q.reshape(-1, 1)).ravel(),
        matmat=product,
        rmatmat=adjoint,
        dtype=np.float64,
    )


def _support(problem: Canonical, x: Array) -> Indices | None:
    if isinstance(problem.g, Box):
        return np.flatnonzero((x > problem.g.lower) & (x < problem.g.upper))
    if not isinstance(problem.g, Lasso):
        return None
    return np.flatnonzero((x != 0.0) | (np.broadcast_to(problem.g.l1, len(x)) == 0.0))


def _system(problem: Canonical, x: Array, S: Indices) -> System | None:
    if len(S) == 0:
        return direct(np.zeros_like)
    term, hessians, ridge = problem.term, hessians_of(problem), on_these(problem.ridge, S)
    if hessians is not None:
        H = hessians.exact(x, S)
        return iterative(H.product, H.preconditioner()) if isinstance(H, ByProducts) else direct(H.solver())
    if isinstance(term, Variation):
        if len(S) == len(x) and has_factor(term) and not np.any(ridge):
            return direct(hessian_solver(term, x))
        return _on(S, len(x), term.hessian_at(x), ridge, term.hessian_diagonal(x)[S])
    own = term.term if isinstance(term, Plain) else term
    if isinstance(own, BentAtOnce):
        return _on(S, len(x), own.hessian_at(x), ridge, 1.0)
    if isinstance(own, Bent):
        return _on(S, len(x), lambda V: np.column_stack([own.hessian_product(x, v) for v in V.T]), ridge, 1.0)
    return None


def _on(S: Indices, size: int, product: Solve, ridge: float | Array, diagonal: Array | float) -> System:
    """A term's H, with a ridge, on some of its variables."""

    def on_support(V: Array) -> Array:
        whole = np.zeros((size, *V.shape[1:]))
        whole[S] = V
        return product(whole)[S] + scaled(ridge, V)

    return iterative(on_support, partial(scaled, 1.0 / (diagonal + ridge)))
