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
from functools import lru_cache

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from suffice.arrays import Array
from suffice.imaging.variation import NO_IMAGE, Variation, differences
from suffice.penalties.prox import Zero
from suffice.solvers.certificate import RECOMPUTED, Evidence
from suffice.solvers.line_search import search
from suffice.solvers.problem import Canonical

DENSE_SIZE = 1024


@dataclass(frozen=True)
class VariationState:
    x: Array
    dual: Array | None = None  # w, one row per component of a difference
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
        d, eta = (_components(part, f) for part in f.slopes(f.pixels(x)))
        w = np.zeros_like(d) if state.dual is None else state.dual
        s = _solver(f, d, eta, w)(-g)
        found = search(problem, Evidence(x, NO_IMAGE, g), x + s, NO_IMAGE)
        x_new = found.x if found.t > 0.0 else x - g / problem.L
        d_change = _components(f.slopes(f.pixels(s))[0], f)
        w_new = (d + d_change) / eta - w * np.sum(d * d_change, axis=0) / eta**2
        w_new /= np.maximum(np.sqrt(np.sum(w_new * w_new, axis=0)), 1.0)
        gradient = f.gradient(x_new) if found.gradient is None or found.t == 0.0 else found.gradient
        return VariationState(x_new, w_new, gradient, Evidence(x_new, NO_IMAGE, gradient))


def has_factor(f: Variation) -> bool:
    """Whether Newton's matrix is banded, or small enough to be dense."""
    return _banded(f) or f.size <= DENSE_SIZE


def hessian_solver(f: Variation, x: Array) -> Callable[[Array], Array]:
    """B -> (hess f(x))^-1 B, for a vector B or a matrix."""
    d, eta = (_components(part, f) for part in f.slopes(f.pixels(x)))
    return _solver(f, d, eta, d / eta)


def _banded(f: Variation) -> bool:
    return f.operator is None and f.weights is None and f.axes == 1


def _components(part: Array, f: Variation) -> Array:
    """Differences as rows of real numbers, one per axis and part of a pixel; eta as one row."""
    if part.ndim == f.axes:
        return part.reshape(1, -1)
    parts = (part.real, part.imag) if part.dtype.kind == "c" else (part,)
    return np.array([half[k].ravel() for k in range(f.axes) for half in parts])


def _solver(f: Variation, d: Array, eta: Array, w: Array) -> Callable[[Array], Array]:
    """The inverse of the matrix of a step, for vectors and matrices; it is the Hessian's where w = d / eta."""
    eta, q = eta[0], len(d)
    C = np.empty((q, q, len(eta)))  # the matrices (1 - w d^T / eta) alpha / eta, symmetrised, one per pixel
    for r in range(q):
        for t in range(q):
            C[r, t] = (float(r == t) - 0.5 * (w[r] * d[t] + d[r] * w[t]) / eta) * (f.alpha / eta)
    if _banded(f):
        bands = _bands(f, C)[-f.size :]  # a single pixel has one diagonal only
        bands[-1] += 1.0 + f.eps_l2
        return lambda rhs: scipy.linalg.solveh_banded(bands, rhs, check_finite=False)
    H = f.gram + _dense(f, C)
    H[np.diag_indices(f.size)] += f.eps_l2
    factor = scipy.linalg.cho_factor(H, overwrite_a=True, check_finite=False)
    return lambda rhs: scipy.linalg.cho_solve(factor, rhs)


def _bands(f: Variation, C: Array) -> Array:
    """D^T C D in one dimension: its diagonals from the outermost on, as LAPACK stores the upper triangle."""
    q, n = len(C), C.shape[2]
    if f.boundary == "free":
        C[:, :, 0] = 0.0
    width = 2 * q - 1
    bands = np.zeros((width + 1, q * n))
    for r in range(q):
        for t in range(q):
            if r <= t:  # difference i has pixel i and the one before it
                bands[width - (t - r), t::q] += C[r, t]
                bands[width - (t - r), t : q * (n - 1) : q] += C[r, t, 1:]
            bands[width - (q + t - r), q + t :: q] -= C[r, t, 1:]
    return bands


def _dense(f: Variation, C: Array) -> Array:
    H = np.zeros((f.size, f.size))
    if f.axes == 1:
        bands = _bands(f, C)
        width = len(bands) - 1
        for k in range(min(width, f.size - 1) + 1):
            i = np.arange(f.size - k)
            H[i, i + k] = H[i + k, i] = bands[width - k, k:]
        return H
    D = _difference_matrices(f.shape, f.size, f.boundary)
    for r in range(len(D)):
        for t in range(len(D)):
            H += (D[r].T @ sp.diags_array(C[r, t]) @ D[t]).toarray()
    return H


@lru_cache(maxsize=4)
def _difference_matrices(shape: tuple[int, ...], size: int, boundary: str) -> list[sp.csr_array]:
    """D as sparse matrices on the flat real vector, one per row of `_components`."""
    n = int(np.prod(shape))
    along = []
    for k in range(len(shape)):
        columns = [
            differences(unit.reshape(shape), len(shape), boundary)[k].ravel() for unit in np.eye(n)
        ]  # small images only
        along.append(sp.csr_array(np.array(columns).T))
    if size == n:
        return along
    parts = (np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
    return [sp.csr_array(sp.kron(one, part, format="csr")) for one in along for part in parts]
