r"""The model of a Newton step,  q(v) = <g, v - w> + 1/2 (v - w)^T H (v - w) + l1 ||v||_1,  and its minimiser.

H = A^T C A + D on the columns of a working set, A of N rows and s columns, C and D diagonal, comes in these forms:

- `Matrix`: H itself, s^2 numbers, for s <= N;
- `Wide` and `Factor`: B or, of a sparse X, A, where it has fewer rows than columns. With any D' > 0 in place of D,

      (A^T C A + D')^-1 = D'^-1 - D'^-1 B^T (1 + B D'^-1 B^T)^-1 B D'^-1,        B = C^(1/2) A,

  takes a matrix of N^2 numbers, and of fewer where entries of C vanish (Woodbury);
- `Product`: nothing but v -> H v, where neither fits.

All but the last minimise q by ADMM, one solve with H + R, R = 0.3 diag(H), per iteration:

    s = (H + R)^-1 (b + R v - y),   s' = 1.6 s - 0.6 v,   v = soft(s' + y/R, l1/R),   y = R (s' + y/R - v),

b = H w - g. The last one takes FISTA, restarted where it turns back, in the metric of M diag(H); M is the largest
curvature that it has met. Either finds the signs of the minimiser within a few iterations; with the signs known the
minimiser is one linear system, for the step v - w, so that nothing cancels: by a factor of H, or by conjugate
gradients. Where signs do not settle, as those of nearly collinear columns, q is minimised along the way to the
minimiser with the signs at hand, and so on from face to face: fewer zeros leave at a time after a way that was cut
short, so that what remains is an active-set method, which ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotrs

from suffice.arrays import EPS, Array, host, like, norm
from suffice.lazy import cached_property
from suffice.penalties.prox import l1_least_subgradient, soft
from suffice.rows.blocks import Blocked
from suffice.rows.design import Design

Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
Solve = Callable[[Array], Array]

MODEL_TOLERANCE = 0.2  # by which a minimiser of q shortens q's least subgradient
ADMM_ITERATIONS, ITERATIONS = 100, 500  # the latter of FISTA, and of conjugate gradients
FACES = 20
WHOLE = 1.0 - 1e-6  # of the way to the least q with given signs
CHECK_EVERY = 5
CG_TOLERANCE = 0.02  # by which conjugate gradients shorten a residual
SAFE = 1e-2  # of the largest entry of diag(H): where D is no less, nothing cancels in a solve
BLOCK_BYTES = 1 << 22  # of columns of A that are dense at a time


class NoFactorError(ArithmeticError):
    """H is not finite, or zero: there is no step."""


class Quadratic(Protocol):
    """H, as far as minimising q needs it."""

    @property
    def diagonal(self) -> Array:
        """That of H, roughly."""
        ...

    def product(self, v: Array) -> Array:
        """H v."""
        ...

    def solver(self, added: Array | float = 0.0) -> Solve:
        """b -> (H + diag(added))^-1 b, nearly."""
        ...

    def on(self, free: Indices) -> Quadratic:
        """H on some of its variables."""
        ...

    def seek(self, gradient: Array, w: Array, l1: float | Array) -> Iterator[Array]:
        """Points on the way from w to the minimiser of q."""
        ...


@dataclass(frozen=True, eq=False)
class Matrix:
    """H as it stands."""

    H: Array

    @property
    def diagonal(self) -> Array:
        return np.diag(self.H)

    def product(self, v: Array) -> Array:
        product: Array = self.H @ v
        return product

    def solver(self, added: Array | float = 0.0) -> Solve:
        factor = _factor(self.H.T, added)  # in LAPACK's order
        return lambda b: _solved(factor, b)

    def on(self, free: Indices) -> Matrix:
        return Matrix(self.H[np.ix_(free, free)])

    def seek(self, gradient: Array, w: Array, l1: float | Array) -> Iterator[Array]:
        return _admm(self, gradient, w, l1)


@dataclass(frozen=True, eq=False)
class Factor:
    """A, C and D of the module's text: A = X - 1 m^T, X sparse, on some of its columns; `mean` is m, or None for 0."""

    X: Any
    columns: Indices
    curvature: Array
    ridge: float | Array
    mean: Array | None = None

    @classmethod
    def of(cls, X: Any, columns: Indices, curvature: Array, ridge: float | Array, mean: Array | None) -> Factor:
        """With a copy of the columns where they are few of X's."""
        if 4 * len(columns) <= X.shape[1]:
            X, columns = X[:, columns], np.arange(len(columns))
        return cls(X, columns, curvature, ridge, mean)

    @property
    def diagonal(self) -> Array:
        squares = np.empty(len(self.columns))
        for place, block in self._blocks():
            squares[place] = self.curvature @ block**2
        return squares + self.ridge

    def product(self, v: Array) -> Array:
        return self._adjoint(self.curvature * self._image(v)) + self.ridge * v

    def solver(self, added: Array | float = 0.0) -> Solve:
        D = np.broadcast_to(np.asarray(self.ridge + added, dtype=np.float64), len(self.columns))
        root = np.sqrt(self.curvature)
        factor = _factor(self._outer(root, D), 1.0)

        def once(b: Array) -> Array:
            inner = _solved(factor, root * self._image(b / D))
            return (b - self._adjoint(root * inner)) / D

        def solve(b: Array) -> Array:
            s = once(b)
            return s + once(b - (self.product(s) + added * s))  # what cancels for a small D is had again

        return solve

    def on(self, free: Indices) -> Quadratic:
        ridge, mean = on_these(self.ridge, free), None if self.mean is None else self.mean[free]
        part = Factor.of(self.X, self.columns[free], self.curvature, ridge, mean)
        if len(free) > len(self.curvature):
            return part
        B = np.concatenate([block for _, block in part._blocks()], axis=1)
        B *= np.sqrt(self.curvature)[:, None]
        return with_ridge(B.T @ B, ridge)

    def seek(self, gradient: Array, w: Array, l1: float | Array) -> Iterator[Array]:
        return _admm(self, gradient, w, l1)

    def _image(self, v: Array) -> Array:
        whole = np.zeros(self.X.shape[1])
        whole[self.columns] = v
        image: Array = self.X @ whole
        return image if self.mean is None else image - float(self.mean @ v)

    def _adjoint(self, r: Array) -> Array:
        adjoint: Array = (self.X.T @ r)[self.columns]
        return adjoint if self.mean is None else adjoint - self.mean * r.sum()

    def _blocks(self) -> Iterator[tuple[slice, Array]]:
        """A, a few columns at a time."""
        width = max(16, BLOCK_BYTES // (8 * self.X.shape[0]))
        for first in range(0, len(self.columns), width):
            place = slice(first, first + width)
            block = self.X[:, self.columns[place]]
            block = block.toarray() if sp.issparse(block) else block
            yield place, block if self.mean is None else block - self.mean[place]

    def _outer(self, root: Array, D: Array) -> Array:
        """The upper triangle of B D^-1 B^T."""
        N = self.X.shape[0]
        outer = np.zeros((N, N), order="F")
        for place, block in self._blocks():
            scaled = block * root[:, None] / np.sqrt(D[place])
            outer = dsyrk(1.0, scaled.T, beta=1.0, c=outer, trans=1, overwrite_c=True)
        return outer


@dataclass(frozen=True, eq=False)
class Wide:
    """B and D of the module's text, B dense."""

    B: Array
    ridge: float | Array

    @classmethod
    def of(cls, X: Array, columns: Indices, curvature: Array, ridge: float | Array, mean: Array | None) -> Wide:
        """Of rows that count only: others are zero in B."""
        rows = np.flatnonzero(curvature)
        B = X[rows] if len(columns) == X.shape[1] else X[rows].take(columns, axis=1)
        if mean is not None:
            B -= mean
        B *= np.sqrt(curvature[rows])[:, None]
        return cls(B, ridge)

    @cached_property
    def squares(self) -> Array:
        """The diagonal of B^T B."""
        squares: Array = np.einsum("ij,ij->j", self.B, self.B)
        return squares

    @property
    def diagonal(self) -> Array:
        return self.squares + self.ridge

    def product(self, v: Array) -> Array:
        product: Array = (self.B @ v) @ self.B + self.ridge * v
        return product

    def solver(self, added: Array | float = 0.0) -> Solve:
        D = np.broadcast_to(np.asarray(self.ridge + added, dtype=np.float64), self.B.shape[1])
        if len(self.B) == 0:
            return lambda b: np.asarray(b / (D if b.ndim == 1 else D[:, None]))
        scaled = self.B / np.sqrt(D)
        factor = _factor(dsyrk(1.0, scaled.T, trans=1), 1.0)

        def once(b: Array) -> Array:
            d = D if b.ndim == 1 else D[:, None]
            inner = _solved(factor, self.B @ (b / d))
            solved: Array = (b - self.B.T @ inner) / d
            return solved

        def solve(b: Array) -> Array:
            s = once(b)
            back = self.B.T @ (self.B @ s) + (D if b.ndim == 1 else D[:, None]) * s
            return s + once(b - back)  # what cancels for a small D is had again

        return once if float(D.min()) > SAFE * float(self.squares.max(initial=0.0)) else solve

    def on(self, free: Indices) -> Quadratic:
        part, ridge = self.B.take(free, axis=1), on_these(self.ridge, free)
        if len(free) > len(part):
            return Wide(part, ridge)
        return with_ridge(part.T @ part, ridge)

    def seek(self, gradient: Array, w: Array, l1: float | Array) -> Iterator[Array]:
        return _admm(self, gradient, w, l1)


@dataclass(frozen=True, eq=False)
class Product:
    """H by products with all of X, wherever it lives; `centred` as for a model without its intercept's direction."""

    design: Design
    working: Indices
    curvature: Any  # an array, or what stays with blocks of rows
    ridge: float | Array
    centred: bool = False

    @property
    def diagonal(self) -> Array:
        # As if C were a multiple of the sample weights: it scales variables, and proves nothing.
        diagonal: Array = self.design.column_norms[self.working] ** 2 * self.curvature.sum() + self.ridge
        return diagonal

    def product(self, v: Array) -> Array:
        whole = np.zeros((self.design.shape[1], *v.shape[1:]))
        whole[self.working] = v
        if isinstance(self.design.X, Blocked) and not self.centred:
            product: Array = self.curvature.product(whole)[self.working]
            return product + scaled(self.ridge, v)
        image = host(self.design.margins(whole))
        if self.centred and self.curvature.any():
            image = image - (self.curvature @ image) / self.curvature.sum()
        pulled: Array = self.design.adjoint(like(scaled(self.curvature, image), self.design.X))[self.working]
        return pulled + scaled(self.ridge, v)

    def solver(self, added: Array | float = 0.0) -> Solve:
        inverse = 1.0 / (self.diagonal + added)
        return lambda b: conjugate_gradients(lambda v: self.product(v) + added * v, inverse, b)[0]

    def on(self, free: Indices) -> Product:
        return Product(self.design, self.working[free], self.curvature, on_these(self.ridge, free), self.centred)

    def seek(self, gradient: Array, w: Array, l1: float | Array) -> Iterator[Array]:
        return fista_on(self, gradient, w, l1)


def with_ridge(H: Array, ridge: float | Array) -> Matrix:
    """H, which is written to, with a ridge."""
    H[np.diag_indices(len(H))] += ridge
    return Matrix(H)


def on_these(weights: float | Array, working: Indices) -> float | Array:
    """One weight for all variables, or those of these."""
    return weights[working] if isinstance(weights, np.ndarray) else weights


def minimise_model(H: Quadratic, gradient: Array, w: Array, l1: float | Array) -> Array:
    """v with q(v) less than q(w), near the minimiser of q."""
    if not np.any(l1):
        return w - H.solver()(gradient)
    noise = 8.0 * EPS * norm(np.abs(gradient) + l1)  # what rounding leaves of any subgradient
    goal = max(MODEL_TOLERANCE * norm(l1_least_subgradient(l1, w, gradient)), noise)
    settled = np.count_nonzero(w) > 0.8 * len(w)
    v = _with_signs_of(w, gradient, H, gradient, w, l1, goal) if settled else None
    v = _sought(H, gradient, w, l1, goal) if v is None else v
    if v is None:
        M = float(H.diagonal.sum())
        v = soft(w - gradient / M, l1 / M)
    return v


def _sought(H: Quadratic, gradient: Array, w: Array, l1: float | Array, goal: float) -> Array | None:
    v, signs = w, np.sign(w)
    for iteration, v in enumerate(H.seek(gradient, w, l1), 1):
        if iteration % CHECK_EVERY == 0:
            before, signs, at_v = signs, np.sign(v), gradient + H.product(v - w)
            near = norm(l1_least_subgradient(l1, v, at_v)) <= goal
            if near or np.array_equal(signs, before):
                exact = _with_signs_of(v, at_v, H, gradient, w, l1, goal)
                if exact is not None:
                    return exact
                if near:
                    return v
    v = from_face_to_face(v, H, gradient, w, l1, goal)
    step = v - w
    change = float(gradient @ step) + 0.5 * float(step @ H.product(step)) + float(np.sum(l1 * (np.abs(v) - np.abs(w))))
    return v if change < 0.0 else None


def from_face_to_face(v: Array, H: Quadratic, gradient: Array, w: Array, l1: float | Array, goal: float) -> Array:
    """On from v to where q is least on the way to its minimiser among points with the signs of v; where that is
    reached, zeros that want to leave do, and so on, as long as q's least subgradient is longer than `goal`.

    Where columns are nearly collinear, zeros that leave together push each other across zero: fewer leave after a way
    that was cut short, one at a time in the end, which q's decrease makes a finite search."""
    at_v, leaving, free_zeros, least_on_face = gradient + H.product(v - w), len(v), True, False
    for _ in range(FACES if isinstance(H, Product) else FACES + 4 * len(v)):
        least = l1_least_subgradient(l1, v, at_v)
        if norm(least) <= goal:
            break
        signs = np.sign(v)
        free_zeros = free_zeros or not signs.any()
        if free_zeros:
            pull = np.where(v == 0.0, np.abs(least), 0.0)
            first = np.argsort(-pull, kind="stable")[: min(leaving, np.count_nonzero(pull))]
            signs[first] = -np.sign(least[first])
        free = np.flatnonzero(signs)
        step = np.zeros_like(v)
        step[free] = -H.on(free).solver()((at_v + l1 * signs)[free])
        bent = H.product(step)
        t, crossed = _least_along(v, step, float(at_v @ step), float(step @ bent), l1)
        if t == 0.0:  # too many have left, or from a point that is not the least of its face
            if free_zeros and leaving == 1 and least_on_face:
                break
            least_on_face = free_zeros = least_on_face or not free_zeros
            leaving = 1
            continue
        least_on_face = free_zeros = t >= WHOLE and not crossed.any()
        leaving = 2 * leaving if least_on_face else max(leaving // 4, 1)
        v, at_v = np.where(crossed, 0.0, v + t * step), at_v + t * bent
    return v


def _least_along(v: Array, step: Array, slope: float, bend: float, l1: float | Array) -> tuple[float, Mask]:
    """t >= 0 that minimises  t slope + t^2/2 bend + sum_i l1_i |v_i + t step_i|, and which entries reach 0 there."""
    sizes = l1 * np.abs(step)
    slope += float(np.sum(np.where(v * step < 0.0, -sizes, sizes)))
    changing = np.flatnonzero(v * step < 0.0)
    at = -v[changing] / step[changing]
    none = np.zeros(len(v), dtype=np.bool_)
    for k in np.argsort(at):
        if slope + bend * at[k] >= 0.0:
            break
        slope += 2.0 * sizes[changing[k]]  # the derivative jumps where an entry changes its sign
        if slope + bend * at[k] >= 0.0:
            none[changing[at == at[k]]] = True
            return float(at[k]), none
    return max(-slope / bend, 0.0) if bend > 0.0 else 0.0, none


def _admm(H: Matrix | Wide | Factor, gradient: Array, w: Array, l1: float | Array) -> Iterator[Array]:
    b, R = H.product(w) - gradient, 0.3 * H.diagonal
    solve, threshold = H.solver(R), l1 / R
    v, y = w, np.clip(-gradient, -l1, l1)
    for _ in range(ADMM_ITERATIONS):
        s = 1.6 * solve(b + R * v - y) - 0.6 * v + y / R
        inside = np.clip(s, -threshold, threshold)
        v, y = s - inside, R * inside
        yield v


def fista_on(H: Quadratic, gradient: Array, w: Array, l1: float | Array) -> Iterator[Array]:
    """FISTA of the module's text, for an H that offers products."""
    D, M, t = H.diagonal, 1.0, 1.0
    v, before, at_v, at_before = w, w, gradient, gradient  # at_v is the gradient of q's smooth part at v
    for _ in range(ITERATIONS):
        t_next = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * t * t))
        beta = (t - 1.0) / t_next
        z, at_z = v + beta * (v - before), at_v + beta * (at_v - at_before)
        while True:
            new = soft(z - at_z / (M * D), l1 / (M * D))
            step = new - z
            bent, size = H.product(step), float(step @ (D * step))
            if size == 0.0 or float(step @ bent) <= 1.000001 * M * size:
                break
            M = 1.1 * float(step @ bent) / size
        turned = float((z - new) @ (D * (new - v))) > 0.0
        v, before, at_v, at_before = new, v, at_z + bent, at_v
        t = 1.0 if turned else t_next
        yield v


def _with_signs_of(
    v: Array, at_v: Array, H: Quadratic, gradient: Array, w: Array, l1: float | Array, goal: float
) -> Array | None:
    """The minimiser of q among points with the signs of v, if it has them and is as good as wanted."""
    signs = np.where(v != 0.0, np.sign(v), -np.sign(l1_least_subgradient(l1, v, at_v)))
    free = np.flatnonzero(signs)
    if free.size == 0:
        return None
    start = np.where(signs != 0.0, w, 0.0)
    left = gradient + (H.product(start - w) if not np.array_equal(start, w) else 0.0) + l1 * signs
    exact = start
    exact[free] -= H.on(free).solver()(left[free])
    if (exact * signs < 0.0).any():
        return None
    return exact if norm(l1_least_subgradient(l1, exact, gradient + H.product(exact - w))) <= goal else None


def scaled(weights: float | Array, v: Array) -> Array:
    """diag(weights) v for a vector v or a matrix, or entry by entry for weights of every entry."""
    result: Array = weights * v if np.ndim(weights) == v.ndim else (weights * v.T).T
    return result


def conjugate_gradients(
    product: Solve,
    inverse: float | Array | Solve,
    b: Array,
    start: Array | None = None,
    tolerance: float = CG_TOLERANCE,
    most: int = ITERATIONS,
) -> tuple[Array, int, float]:
    """H^-1 b by products with H, preconditioned by a diagonal or a function; the number of products; and what is left
    of b, a share. Columns of a matrix b are systems of their own, all of them to a residual of `tolerance` times b's
    column."""
    x = np.zeros_like(b) if start is None else start
    r = b if start is None else b - product(start)
    made = 0 if start is None else 1
    precondition = inverse if callable(inverse) else partial(scaled, inverse)
    p = z = precondition(r)
    sizes = np.sqrt(np.sum(b * b, axis=0))
    rz, enough = np.sum(r * z, axis=0), tolerance * sizes
    while made < most:
        going = (np.sqrt(np.sum(r * r, axis=0)) > enough) & (rz > 0.0)
        if not np.any(going):
            break
        Hp = product(p)
        made += 1
        bend = np.sum(p * Hp, axis=0)
        going &= bend > 0.0  # rounding is all that is left elsewhere
        step = np.where(going, rz / np.where(going, bend, 1.0), 0.0)
        x, r = x + step * p, r - step * Hp
        z = precondition(r)
        before, rz = rz, np.sum(r * z, axis=0)
        p = z + np.where(going, rz / np.where(going, before, 1.0), 0.0) * p
        if not np.any(going):
            break
    left = np.sqrt(np.sum(r * r, axis=0))
    shares = np.where(left <= enough, 0.0, left / np.where(sizes > 0.0, sizes, 1.0))  # a NaN stays one
    return x, made, float(np.max(shares, initial=0.0))


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
