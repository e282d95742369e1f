r"""Newton's method for smoothed total variation (`imaging.variation`), after Chan, Golub and Mulet (SIAM J. Sci.
Comput. 20, 1999).

Newton's method on f itself converges only very near the minimiser, since d / eta, eta = sqrt(|d|^2 + eps_tv^2), is
close to a jump. With it as an unknown of its own, w = D x / eta, the pair of equations

    A^H (A x - y) + eps_l2 x + alpha D^T w = 0,        eta w = D x

is nearly linear. Eliminating the change of w leaves, with d = D x, for the change s of x

    [A^H A + eps_l2 + alpha D^T diag((1 - w d^T / eta) / eta) D] s = -grad f(x),

symmetrised; it is positive definite as long as |w_i| <= 1, so that s is a direction of descent, and a line search
(`suffice.solvers.line_search`) makes the method converge from anywhere. w starts at 0, which makes the first step one
of lagged diffusivity.

Denoising in one dimension has a banded matrix: a step costs O(n). Otherwise the matrix is dense, for at most
DENSE_SIZE real unknowns. The certificate is the (gap) rule at x: ||grad f(x)|| / mu.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg

from suffice.arrays import Array
from suffice.imaging.measurement import Pixels
from suffice.imaging.variation import NO_IMAGE, Variation, as_rows, inner
from suffice.penalties.prox import Zero
from suffice.solvers.certificate import RECOMPUTED, Evidence
from suffice.solvers.line_search import search
from suffice.solvers.problem import Canonical

DENSE_SIZE = 1024


@dataclass(frozen=True)
class VariationState:
    x: Array
    dual: Array | None = None  # w, a row for every axis
    gradient: Array | None = field(default=None, metadata=RECOMPUTED)
    evidence: Evidence | None = field(default=None, metadata=RECOMPUTED)

    @property
    def image(self) -> Array:
        return NO_IMAGE


@dataclass(frozen=True)
class NewtonTV:
    """A step is one linear system, one gradient, and a value of f for every length that is tried."""

    name: str = "newton_tv"

    def takes(self, problem: Canonical) -> str | None:
        f = problem.f
        if not isinstance(f, Variation) or not isinstance(problem.g, Zero):
            return "is for problems of suffice.problems.imaging, without a further term g"
        if not has_factor(f):
            return (
                f"solves dense systems for this problem, of at most {DENSE_SIZE} real unknowns, "
                f"got {f.size}; use 'fista'"
            )
        return None

    def start(self, problem: Canonical, x: Array) -> VariationState:
        return VariationState(x)

    def step(self, problem: Canonical, state: VariationState) -> VariationState:
        f, x = problem.f, state.x
        assert isinstance(f, Variation)
        g = f.gradient(x) if state.gradient is None else state.gradient
        d, eta = f.slopes(f.pixels(x))
        w = np.zeros_like(d) if state.dual is None else state.dual.view(d.dtype).reshape(d.shape)
        s = _solver(f, d, eta, w)(-g)
        found = search(problem, Evidence(x, NO_IMAGE, g), x + s, NO_IMAGE)
        x_new = found.x if found.t > 0.0 else x - g / problem.L
        d_change = f.slopes(f.pixels(s))[0]
        w_new = (d + d_change) / eta - w * inner(d, d_change) / eta**2
        w_new /= np.maximum(np.sqrt(inner(w_new, w_new)), 1.0)
        gradient = f.gradient(x_new) if found.gradient is None or found.t == 0.0 else found.gradient
        return VariationState(x_new, as_rows(w_new), gradient, Evidence(x_new, NO_IMAGE, gradient))


def has_factor(f: Variation) -> bool:
    """Whether Newton's matrix is banded, or small enough to be dense."""
    return _banded(f) or f.size <= DENSE_SIZE


def hessian_solver(f: Variation, x: Array) -> Callable[[Array], Array]:
    """B -> (hess f(x))^-1 B, for a vector B or a matrix."""
    d, eta = f.slopes(f.pixels(x))
    return _solver(f, d, eta, d / eta)


def _banded(f: Variation) -> bool:
    return f.operator is None and f.weights is None and f.axes == 1


def _solver(f: Variation, d: Pixels, eta: Array, w: Pixels) -> Callable[[Array], Array]:
    """The inverse of the matrix of a step, for vectors and matrices; it is the Hessian's where w = d / eta."""
    # Pixels three apart have no neighbour in common: one product gives the columns of all of them.
    parts = f.size // eta.size
    at = np.indices(f.shape).reshape(f.axes, -1).repeat(parts, axis=1)
    colour = 3 ** np.arange(f.axes) @ (at % 3) * parts + np.arange(f.size) % parts
    units = (colour == np.arange(3**f.axes * parts)[:, None]).astype(np.float64)
    sums = as_rows(f.variation_product(d, eta, w)(f.pixels(units)))
    if not _banded(f):
        near = (np.abs(at[:, :, None] - at[:, None, :]) <= 1).all(axis=0)
        H = f.gram + np.where(near, sums[colour], 0.0)
        H[np.diag_indices(f.size)] += f.eps_l2
        factor = scipy.linalg.cho_factor(H, overwrite_a=True, check_finite=False)
        return lambda rhs: scipy.linalg.cho_solve(factor, rhs)
    width, n = min(2 * parts - 1, f.size - 1), f.size
    bands = np.zeros((width + 1, n))  # as LAPACK has them: the outermost first
    for k in range(width + 1):
        bands[width - k, k:] = np.where(at[0, k:] - at[0, : n - k] <= 1, sums[colour[k:], np.arange(n - k)], 0.0)
    bands[-1] += 1.0 + f.eps_l2
    return lambda rhs: scipy.linalg.solveh_banded(bands, rhs, check_finite=False)
