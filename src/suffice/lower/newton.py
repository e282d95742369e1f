r"""Prox-Newton on a working set, for linear models with an l1 penalty:

    Phi(w) = sum_i a_i psi(x_i . w, y_i) + (l2/2) ||w||^2 + l1 ||w||_1.

A step minimises the model  q(v) = <grad f(w), v - w> + 1/2 (v - w)^T H (v - w) + l1 ||v||_1  over the columns W of the
working set, which holds the support of w and the zeros that violate optimality most, and then searches along v - w
for a decrease of Phi.

- H = X_W^T C X_W + l2, C = diag(a_i psi''), is a sum over rows. While the working set still grows, a sample of the rows
  is enough: row i is taken with probability p_i ~ C_ii ||x_i||^2 and counts C_ii / p_i. Close to the solution all rows
  count, and H is used again as long as steps with it get on faster than the price of a fresh one allows. For least
  squares H is the same everywhere, and made once for all (`Design.gram`).
- q is minimised by ADMM, one pair of triangular solves with H + R, R = 0.3 diag(H), per iteration:

      s = (H + R)^-1 (b + R v - y),   s' = 1.6 s - 0.6 v,   v = soft(s' + y/R, l1/R),   y = R (s' + y/R - v),

  b = H w - grad f(w). It finds the signs of the minimiser within a few iterations; with the signs known the minimiser
  is one linear solve.

Certificates come from the gradient at w, by the duality gap: they need mu, but no L. A state is a point, and where H
was taken: H itself is kept for the last state only, and is made again, bit for bit, for any other.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrf, dpotrs

from suffice._array import EPS, Array, host, like, lives_elsewhere, namespace, norm
from suffice.lower.certificate import Evidence
from suffice.problem import Canonical
from suffice.terms.blocks import RowBlocks
from suffice.terms.design import Design
from suffice.terms.intercept import Intercepted
from suffice.terms.prox import L1, WeightedL1, Zero, l1_least_subgradient, soft
from suffice.terms.smooth import LinearModel, Ridged, Squared

Indices = npt.NDArray[np.intp]

FIRST_WORKING_SET = 64
GROWTH = 1.5  # of the working set, relative to the support
FIRST_SHARE, LEAST_ROWS = 8, 500  # the first Hessian takes one row in so many, but no fewer than so many
MODEL_TOLERANCE = 0.2  # by which a minimiser of q shortens q's least subgradient
ADMM_ITERATIONS = 500
CHECK_EVERY = 5
HALVINGS = 60
FRESH = 0.02  # by which a step with a fresh H shortens the least subgradient near the solution, roughly
SINGLE = 1e5  # the largest kappa at which H is made in float32
MEMORY = 3.0  # times X: the most that all matrices of a step take together


@dataclass(frozen=True, eq=False)
class Metric:
    """Where a Hessian was taken: at `anchor`, on the columns `working`, from about so many `rows`."""

    anchor: Array
    working: Indices
    rows: int


@dataclass(frozen=True)
class NewtonState:
    """Image and evidence are None in a state that comes from a file: the next step has to compute them."""

    x: Array
    k: int = 0
    rows: int = 0  # for the next Hessian; 0 before the first
    metric: Metric | None = None  # the Hessian to use again
    ended: bool = False  # rounding is all that is left
    image: Any = None
    evidence: Evidence | None = None


@dataclass(frozen=True)
class Terms:
    """The problem as this method sees it."""

    model: LinearModel | Intercepted
    l2: float | Array
    l1: float | Array

    @classmethod
    def of(cls, problem: Canonical) -> Terms | None:
        """None for anything but a linear model with an l1 penalty or none."""
        model, ridge = (problem.f.term, problem.f.ridge) if isinstance(problem.f, Ridged) else (problem.f, 0.0)
        if not isinstance(model, LinearModel | Intercepted) or not isinstance(problem.g, L1 | WeightedL1 | Zero):
            return None
        return cls(model, model.l2 + ridge, 0.0 if isinstance(problem.g, Zero) else problem.g.l1)


@dataclass(frozen=True)
class Newton:
    """Prox-Newton on a working set, for linear models with an l1 penalty or none; one step minimises one model."""

    name: str = "newton"

    def start(self, problem: Canonical, x: Array) -> NewtonState:
        if Terms.of(problem) is None:
            raise ValueError(
                "solver='newton' needs a linear model (a suffice.terms.LinearModel) with an l1 penalty or none, got "
                f"{type(problem.f).__name__} and {type(problem.g).__name__}: try 'fista_adaptive', or 'auto'"
            )
        return NewtonState(x, image=problem.f.image(x))

    def step(self, problem: Canonical, state: NewtonState) -> NewtonState:
        if state.ended:
            return state
        terms = Terms.of(problem)
        assert terms is not None
        here = _at(problem, terms, state)
        least = problem.g.least_subgradient(here.z, here.z_gradient)
        if not least.any():
            return replace(state, ended=True, image=here.z_image, evidence=here)
        most = largest_working_set(terms.model.design)
        working, complete = _working_set(here.z, least, most)
        metric, fresh = state.metric, False
        if metric is None or not np.isin(working, metric.working).all():
            metric, fresh = Metric(here.z, working, _rows(terms, state, len(working))), True
        H = _hessian(problem, terms, metric, here.z_image if fresh else None)
        W = metric.working
        target = here.z.copy()
        target[W] = minimise_model(H, here.z_gradient[W], here.z[W], on_these(terms.l1, W))
        x, image, whole, blurred = _search(problem, here, target)

        there = _evidence(problem, terms, x, image)
        before, after = norm(least), norm(problem.g.least_subgradient(x, there.z_gradient))
        N = terms.model.design.shape[0]
        if blurred and after > 0.5 * before:
            # Values of Phi no longer tell one point from the other, and subgradients hardly fall any more.
            best_model = fresh and metric.rows == N
            if after >= before:
                return replace(state, rows=N, metric=None, ended=best_model, image=here.z_image, evidence=here)
            ended = best_model and complete
            return NewtonState(x, state.k + 1, N, None, ended, image, there)
        rows = min(4 * metric.rows, N) if complete or len(working) == most else metric.rows
        rows = N if 2 * rows > N else rows
        keep = whole and after <= _good_enough(terms.model.design, rows, len(W)) * before
        return NewtonState(x, state.k + 1, rows, metric if keep else None, image=image, evidence=there)


def _good_enough(design: Design, rows: int, columns: int) -> float:
    """The factor by which a step with an old H has to shorten the least subgradient to be worth its price.

    A fresh H takes rows columns^2 operations more than a step without. That one factors H and makes two products with
    X, an entry of which costs as much as about 64 operations on dense matrices.
    """
    entries = int(getattr(design.X, "nnz", math.prod(design.shape)))
    price = float(columns**3 + 64 * entries) / (rows * columns**2)
    return float(min(max(FRESH**price, 0.2), 0.6))


def _at(problem: Canonical, terms: Terms, state: NewtonState) -> Evidence:
    """x with its image and its gradient, computed where the state has none."""
    if state.evidence is not None:
        return state.evidence
    return _evidence(problem, terms, state.x, problem.f.image(state.x) if state.image is None else state.image)


def _evidence(problem: Canonical, terms: Terms, x: Array, image: Any) -> Evidence:
    rounding = terms.model.rounding_at(x, image) + 2.0 * EPS * float(np.max(terms.l2)) * norm(x)
    return Evidence(x, image, problem.f.gradient_at(x, image), rounding=rounding)


def largest_working_set(design: Design) -> int:
    """As many columns as keep four square matrices of that size within MEMORY times X."""
    X = design.X
    parts = (X.data, X.indices, X.indptr) if sp.issparse(X) else ()
    size = sum(part.nbytes for part in parts) or 8 * math.prod(design.shape)
    return max(FIRST_WORKING_SET, math.isqrt(int(0.75 * MEMORY * size) // 32))


def _working_set(x: Array, least: Array, most: int) -> tuple[Indices, bool]:
    """The columns to move, at most so many, and whether they are all that are not at their optimum."""
    support, wanted = x != 0.0, (x != 0.0) | (least != 0.0)
    limit = min(max(FIRST_WORKING_SET, int(GROWTH * np.count_nonzero(support))), most)
    candidates = np.flatnonzero(wanted)
    if len(candidates) <= limit:
        return candidates, True
    pull = np.abs(least[candidates])
    if limit < most:  # there is room for all of the support
        pull[support[candidates]] = math.inf
    chosen = np.argpartition(pull, len(pull) - limit)[len(pull) - limit :]
    return np.sort(candidates[chosen]), False


def _rows(terms: Terms, state: NewtonState, columns: int) -> int:
    N = terms.model.design.shape[0]
    if _known_hessian(terms) is not None:
        return N
    rows = max(state.rows or N // FIRST_SHARE, 2 * columns, LEAST_ROWS)
    return N if 2 * rows > N else rows


class _Memory(threading.local):
    """The last Hessian of this thread, for as long as a state refers to it."""

    def __init__(self) -> None:
        self.hessians: WeakKeyDictionary[Metric, Array] = WeakKeyDictionary()


_memory = _Memory()


def _hessian(problem: Canonical, terms: Terms, metric: Metric, image: Any) -> Array:
    """H = X_W^T C X_W + l2 on the working set W, at the metric's anchor, whose image may be known."""
    known = _memory.hessians.get(metric)
    if known is not None:
        return known
    _memory.hessians.clear()
    model, design = terms.model, terms.model.design
    of_all = _known_hessian(terms)
    if of_all is not None:
        rows, weights = np.arange(len(design.weights)), design.weights
        H = of_all[np.ix_(metric.working, metric.working)]
    else:
        image = problem.f.image(metric.anchor) if image is None else image
        rows, weights = sample_rows(model.row_curvature(image), design.row_norms, metric.rows)
        H = gram(design.X, metric.working, rows, np.sqrt(weights), _precision(problem, design))
    if isinstance(model, Intercepted) and weights.any():
        mean = (design.X[rows].T @ weights)[metric.working]
        H -= np.outer(mean, mean / weights.sum())
    H[np.diag_indices(len(H))] += on_these(terms.l2, metric.working)
    _memory.hessians[metric] = H
    return H


def _precision(problem: Canonical, design: Design) -> type:
    """float32 where H's error, about 1e-7 ||H||, is small against its least eigenvalue mu: H proves nothing, and
    steps are as good."""
    enough = problem.L / problem.mu <= SINGLE and 1e-15 < design.frobenius_norm < 1e15
    return np.float32 if enough else np.float64


def _known_hessian(terms: Terms) -> Array | None:
    """X^T diag(a) X, where psi'' = 1 and it fits: made once for all targets, penalties and working sets."""
    return terms.model.design.gram if isinstance(terms.model.loss, Squared) else None


def sample_rows(curvature: Array, row_norms: Array, count: int) -> tuple[Indices, Array]:
    """About `count` rows and their weights, such that sum_i weight_i x_i x_i^T estimates X^T diag(curvature) X.

    Rows are taken where the sum of their probabilities passes an integer: no random numbers, and every row once.
    """
    if count >= len(curvature):
        rows = np.flatnonzero(curvature)
        return rows, curvature[rows]
    influence = curvature * row_norms**2
    p = np.zeros_like(influence)
    if influence.any():
        for _ in range(2):  # a second time for what the first could not spend on certain rows
            rest = np.where(p < 1.0, influence, 0.0)
            left = count - np.count_nonzero(p >= 1.0)
            p = np.where(p < 1.0, np.minimum(left * influence / max(rest.sum(), influence.max() * EPS), 1.0), 1.0)
    rows = np.flatnonzero(np.diff(np.floor(np.cumsum(p) + 0.5), prepend=0.0))
    rows = rows[p[rows] > 0.0]
    return rows, curvature[rows] / p[rows]


def gram(X: Any, columns: Indices, rows: Indices, scale: Array, dtype: type = np.float64) -> Array:
    """sum over rows i of scale_i^2 x_i x_i^T on these columns, in blocks of rows; products of a block in `dtype`."""
    G = np.zeros((len(columns), len(columns)))
    if isinstance(X, RowBlocks):
        for place, all_columns in X.blocks():
            first, last = np.searchsorted(rows, (place.start, place.stop))
            B = all_columns[np.ix_(rows[first:last] - place.start, columns)] * scale[first:last, None]
            G += B.T @ B
        return G
    block = max(64, min(512, (1 << 22) // (8 * len(columns))))
    if sp.issparse(X) and X.format == "csc":
        X, columns = X[:, columns].tocsr(), np.arange(len(columns))
    for first in range(0, len(rows), block):
        part = rows[first : first + block]
        B = _block(X, part, columns)
        if dtype is np.float32 and isinstance(B, np.ndarray):
            B = np.multiply(B, scale[first : first + block, None], dtype=np.float32, casting="same_kind")
        else:
            B = B * like(scale[first : first + block, None], B)
        G += host(B.T @ B)
    return G


def _block(X: Any, rows: Indices, columns: Indices) -> Any:
    if sp.issparse(X):
        part = X[rows]
        if X.shape[1] <= 16 * len(columns):  # choosing columns of a dense matrix is faster, if it is small enough
            return part.toarray().take(columns, axis=1)
        return part[:, columns].toarray()
    if lives_elsewhere(X):
        xp = namespace(X)
        rows, columns = (xp.asarray(index, device=X.device) for index in (rows, columns))
        return xp.take(xp.take(X, rows, axis=0), columns, axis=1)
    return X[rows].take(columns, axis=1)


def _search(problem: Canonical, here: Evidence, target: Array) -> tuple[Array, Any, bool, bool]:
    """A point on the way to `target` where Phi is less: (x, its image, whether it is the target, whether rounding
    decided)."""
    f, g, x = problem.f, problem.g, here.z
    direction, image = target - x, f.image(target)
    with np.errstate(over="ignore", invalid="ignore"):
        value = f.value_at(x, here.z_image) + g.value(x)
        slope = min(float(here.z_gradient @ direction) + g.value(target) - g.value(x), 0.0)
        noise = EPS * (8.0 + math.sqrt(math.prod(image.shape))) * abs(value)
        blurred = abs(slope) <= 16.0 * noise
        if f.value_at(target, image) + g.value(target) <= value + 1e-3 * slope + noise:
            return target, image, True, blurred
        along = image - here.z_image
        t = 1.0
        for _ in range(HALVINGS):
            t *= 0.5
            trial = x + t * direction
            if f.value_at(trial, here.z_image + t * along) + g.value(trial) <= value + 1e-3 * t * slope + noise:
                return trial, f.image(trial), False, blurred
    return x, here.z_image, False, True


def on_these(weights: float | Array, working: Indices) -> float | Array:
    """One weight for all variables, or those of the working set."""
    return weights[working] if isinstance(weights, np.ndarray) else weights


def minimise_model(H: Array, gradient: Array, w: Array, l1: float | Array) -> Array:
    """v with  <gradient, v - w> + 1/2 (v - w)^T H (v - w) + l1 ||v||_1  less than at w, near the minimiser."""
    b = H @ w - gradient
    if not np.any(l1):
        return _solve(_factor(H), b)
    noise = 8.0 * EPS * (norm(np.abs(H) @ np.abs(w)) + norm(gradient))  # what rounding leaves of any subgradient
    goal = max(MODEL_TOLERANCE * norm(l1_least_subgradient(l1, w, gradient)), noise)
    settled = np.count_nonzero(w) > 0.8 * len(w)
    v = _with_signs_of(w, gradient, H, b, l1, goal) if settled else None
    v = _admm(H, b, w, gradient, l1, goal) if v is None else v
    if v is None:
        tau = 1.0 / float(np.abs(H).sum(axis=0).max())
        v = soft(w - tau * gradient, tau * l1)
    return v


def _admm(H: Array, b: Array, w: Array, gradient: Array, l1: float | Array, goal: float) -> Array | None:
    R = 0.3 * np.diag(H)
    factor = _factor(H, R)
    v, y, threshold, signs = w, np.clip(-gradient, -l1, l1), l1 / R, np.sign(w)
    for iteration in range(1, ADMM_ITERATIONS + 1):
        s = _solve(factor, b + R * v - y)
        s = 1.6 * s - 0.6 * v + y / R
        inside = np.clip(s, -threshold, threshold)
        v, y = s - inside, R * inside
        if iteration % CHECK_EVERY == 0:
            before, signs, at_v = signs, np.sign(v), H @ v - b
            near = norm(l1_least_subgradient(l1, v, at_v)) <= goal
            if near or np.array_equal(signs, before):
                exact = _with_signs_of(v, at_v, H, b, l1, goal)
                if exact is not None:
                    return exact
                if near:
                    return v
    step = v - w
    change = float(gradient @ step) + 0.5 * float(step @ (H @ step)) + float(np.sum(l1 * (np.abs(v) - np.abs(w))))
    return v if change < 0.0 else None


def _with_signs_of(v: Array, gradient: Array, H: Array, b: Array, l1: float | Array, goal: float) -> Array | None:
    """The minimiser of q among points with the signs of v, if it has them and is as good as wanted."""
    signs = np.where(v != 0.0, np.sign(v), -np.sign(l1_least_subgradient(l1, v, gradient)))
    free = np.flatnonzero(signs)
    if free.size == 0:
        return None
    exact = np.zeros_like(v)
    exact[free] = _solve(_factor(H[np.ix_(free, free)]), b[free] - (l1 * signs)[free])
    if (exact * signs < 0.0).any() or norm(l1_least_subgradient(l1, exact, H @ exact - b)) > goal:
        return None
    return exact


def _factor(H: Array, diagonal: Array | float = 0.0) -> Array:
    """A Cholesky factor of H plus a diagonal; plus a little more where rounding has made it indefinite."""
    shift = 0.0
    while True:
        shifted = np.array(H.T, order="F")
        shifted[np.diag_indices(len(H))] += diagonal + shift
        factor, failed = dpotrf(shifted, overwrite_a=True, clean=False)
        if not failed:
            return np.asarray(factor)
        shift = max(10.0 * shift, EPS * float(np.trace(H)))
        if not math.isfinite(shift):
            raise ArithmeticError("the Hessian of the working set is not finite")


def _solve(factor: Array, b: Array) -> Array:
    return np.asarray(dpotrs(factor, b)[0])
