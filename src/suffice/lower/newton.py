r"""Prox-Newton on a working set, for linear models with an l1 penalty:

    Phi(w) = sum_i a_i psi(x_i . w, y_i) + (l2/2) ||w||^2 + l1 ||w||_1.

A step minimises the model  q(v) = <grad f(w), v - w> + 1/2 (v - w)^T H (v - w) + l1 ||v||_1  over the columns W of the
working set (`suffice.lower.quadratic`) and then searches along v - w (`suffice.lower.line_search`). The working set
holds the support of w, always, and the zeros that violate optimality most.

- H = X_W^T C X_W + l2, C = diag(a_i psi''), is a sum over rows. While the working set still grows, a sample of the rows
  is enough: row i is taken with probability p_i ~ C_ii ||x_i||^2 and counts C_ii / p_i. Close to the solution all rows
  count, and H is used again as long as steps with it get on faster than the price of a fresh one allows. For least
  squares H is the same everywhere, and made once for all (`Design.gram`).
- H is a matrix of |W|^2 numbers, or of N^2 where there are fewer rows than columns in W; where neither fits into
  memory, products with X take its place.
- Steps in a row that get no farther than SHORT of their way were misled by psi'' at w: rows of Huber's loss with a
  large residual have none. The next one is tried again with the mean of psi'' on its way.

Certificates come from the gradient at w, by the duality gap: they need mu, but no L. A state is a point, and where H
was taken: H itself is kept for the last state only, and is made again, bit for bit, for any other. A step that shortens
the least subgradient no more, with a fresh H of all rows, is the last; so is the last of PATIENCE steps in a row that
find none shorter than the shortest before.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp

from suffice.arrays import EPS, Array, host, like, lives_elsewhere, namespace, norm
from suffice.lower.certificate import Evidence
from suffice.lower.fields import RECOMPUTED
from suffice.lower.line_search import Found, search
from suffice.lower.parts import LinearParts
from suffice.lower.quadratic import Factor, Indices, Matrix, Product, Quadratic, Wide, minimise_model, on_these
from suffice.problem import Canonical
from suffice.terms.blocks import Blocked
from suffice.terms.dense_blocks import DenseBlocks
from suffice.terms.design import Design, largest_matrix
from suffice.terms.intercept import Intercepted
from suffice.terms.margin_losses import Squared
from suffice.terms.row_sums import RowCurvature

FIRST_WORKING_SET = 64
GROWTH = 1.5  # of the working set, relative to the support,
WIDE_GROWTH = 6.0  # and where the support has more columns than X has rows: a model's price is linear in columns then
FIRST_SHARE, LEAST_ROWS = 8, 500  # the first Hessian takes one row in so many, but no fewer than so many
FRESH = 0.02  # by which a step with a fresh H shortens the least subgradient near the solution, roughly
READ = 64  # operations on dense matrices that an entry of X costs in two products, or in a pass over blocks of rows
SINGLE = 1e5  # the largest kappa at which H is made in float32
BLOCK_ELSEWHERE = 1 << 25  # numbers of X that are scaled at a time, where X lives on a device
SHORT, HESITANT, TRIES = 0.3, 2, 8  # of the way, more often than so: tried again so many times
LEAST_RIDGE = 1e-14  # of the model's H, relative to the mean of its diagonal: none at all would leave it singular
FALLEN = 10.0  # times shorter: a least subgradient after a step with the right signs
VERIFICATION = 4.0  # times N s^2: operations of a verification with s weights, about,
MADE_DENSE = 6.0  # and twice as many products with X where that is sparse, and has to be made dense
PATIENCE = 50  # steps without a shorter subgradient than before


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
    shortest: float = math.inf  # least subgradient so far,
    idle: int = 0  # and the steps since then
    short: int = 0  # steps in a row that were cut short
    image: Any = field(default=None, metadata=RECOMPUTED)
    evidence: Evidence | None = field(default=None, metadata=RECOMPUTED)
    settled: bool = False  # whether a verification is due: the signs look right, and steps have cost as much
    spent: float = 0.0  # operations of steps since the last one


@dataclass(frozen=True)
class Newton:
    """Prox-Newton on a working set, for linear models with an l1 penalty or none; one step minimises one model."""

    name: str = "newton"

    def takes(self, problem: Canonical) -> str | None:
        if LinearParts.of(problem) is not None:
            return None
        return (
            "needs a linear model (a suffice.terms.LinearModel) with an l1 penalty or none, got "
            f"{type(problem.f).__name__} and {type(problem.g).__name__}: try 'fista_adaptive', or 'auto'"
        )

    def start(self, problem: Canonical, x: Array) -> NewtonState:
        terms = LinearParts.of(problem)
        assert terms is not None
        with np.errstate(over="ignore", invalid="ignore"):
            image = problem.f.image(x)
            if math.isinf(problem.L) and not math.isfinite(terms.model.rounding_at(x, image)):
                x = np.zeros_like(x)  # where rates overflow nothing can be computed, and no step begins
                image = problem.f.image(x)
        return NewtonState(x, image=image)

    def step(self, problem: Canonical, state: NewtonState) -> NewtonState:
        if state.ended:
            return state
        terms = LinearParts.of(problem)
        assert terms is not None
        here = _at(problem, terms, state)
        least = problem.g.least_subgradient(here.z, here.z_gradient)
        if not least.any():
            return replace(state, ended=True, image=here.z_image, evidence=here, settled=True)
        working, complete = _working_set(terms, here.z, least)
        metric, fresh = state.metric, False
        if metric is None or not np.isin(working, metric.working).all():
            metric, fresh = Metric(here.z, working, _rows(terms, state, len(working))), True
        H = _hessian(problem, terms, metric, here.z_image if fresh else None)
        target = _target(terms, here, metric.working, H)
        found = search(problem, here, target)
        short = state.short + 1 if found.t <= SHORT else 0
        if short > HESITANT and not found.blurred:
            found = _steadier(problem, terms, here, metric, target, found)

        there = _evidence(problem, terms, found.x, found.image, found.gradient)
        before, after = norm(least), norm(problem.g.least_subgradient(found.x, there.z_gradient))
        N, s = terms.model.design.shape[0], len(metric.working)
        spent = state.spent + _price_of_step(terms.model.design, s) + (metric.rows * s**2 if fresh else 0.0)
        due = problem.mu == 0.0 or spent >= _price_of_verification(terms.model.design, found.x)
        settled = due and looks_settled(here.z, found.x, before, after)
        best_model = fresh and metric.rows == N
        if found.blurred and not after < before:
            settled = state.settled or best_model
            return replace(
                state, rows=N, metric=None, ended=best_model, image=here.z_image, evidence=here, settled=settled
            )
        shortest, idle = min(state.shortest, after), 0 if after < 0.999 * state.shortest else state.idle + 1
        ended = idle >= PATIENCE or (found.blurred and after > 0.9 * before and best_model and complete)
        settled = settled or ended
        proven = (found.image, there, settled, 0.0 if settled else spent)
        if found.blurred and after > 0.5 * before:
            return NewtonState(found.x, state.k + 1, N, None, ended, shortest, idle, short, *proven)
        rows = min(4 * metric.rows, N) if complete or not _grows(terms, working) else metric.rows
        rows = N if 2 * rows > N else rows
        keep = found.whole and after <= _good_enough(terms.model.design, rows, len(metric.working)) * before
        kept = metric if keep else None
        return NewtonState(found.x, state.k + 1, rows, kept, ended, shortest, idle, short, *proven)


def _price_of_step(design: Design, columns: int) -> float:
    """That of a step without a fresh H, in operations on dense matrices: it factors H and makes two products with X."""
    return columns**3 + _price_of_passes(design)


def _price_of_passes(design: Design) -> float:
    """That of two products with X."""
    return float(READ * int(getattr(design.X, "nnz", math.prod(design.shape))))


def _price_of_verification(design: Design, x: Array) -> float:
    dense = MADE_DENSE * _price_of_passes(design) if sp.issparse(design.X) else 0.0
    return float(VERIFICATION * design.shape[0] * np.count_nonzero(x) ** 2 + dense)


def looks_settled(x: Array, new: Array, before: float, after: float) -> bool:
    """Whether a step from x to `new` tells of signs that are right; `before` and `after` are lengths of the least
    subgradient."""
    return FALLEN * after <= before or np.array_equal(np.sign(x), np.sign(new))


def _steadier(
    problem: Canonical, terms: LinearParts, here: Evidence, metric: Metric, target: Array, found: Found
) -> Found:
    """The best of steps with more and more of the curvature that they meet on their way, until one gets on."""
    C = terms.model.row_curvature(here.z_image)
    for _ in range(TRIES):
        larger = terms.model.steadier(C, here.z_image, problem.f.image(target))
        if larger is None:
            break
        C = larger
        target = _target(terms, here, metric.working, _of_curvature(problem, terms, metric, C))
        other = search(problem, here, target)
        found = min(found, other, key=lambda one: one.change)
        if other.t > SHORT:
            break
    return found


def _target(terms: LinearParts, here: Evidence, W: Indices, H: Quadratic) -> Array:
    """The minimiser of q over these columns."""
    target = here.z.copy()
    target[W] = minimise_model(H, here.z_gradient[W], here.z[W], on_these(terms.l1, W))
    return target


def _good_enough(design: Design, rows: int, columns: int) -> float:
    """The factor by which a step with an old H has to shorten the least subgradient to be worth its price.

    A fresh H takes rows columns^2 operations more than a step without; in blocks of rows, a pass more than two of them.
    """
    if isinstance(design.X, Blocked):
        reading = READ * design.shape[1]
        return float(min(FRESH ** (2.0 * reading / (3.0 * reading + columns**2)), 0.6))
    price = _price_of_step(design, columns) / (rows * columns**2)
    return float(min(max(FRESH**price, 0.2), 0.6))


def _at(problem: Canonical, terms: LinearParts, state: NewtonState) -> Evidence:
    """x with its image and its gradient, computed where the state has none."""
    if state.evidence is not None:
        return state.evidence
    return _evidence(problem, terms, state.x, problem.f.image(state.x) if state.image is None else state.image)


def _evidence(problem: Canonical, terms: LinearParts, x: Array, image: Any, gradient: Array | None = None) -> Evidence:
    rounding = terms.model.rounding_at(x, image) + 2.0 * EPS * float(np.max(terms.l2)) * norm(x)
    return Evidence(x, image, problem.f.gradient_at(x, image) if gradient is None else gradient, rounding=rounding)


def has_factors(design: Design) -> bool:
    """Whether matrices of as many rows as X fit: then there is room for a working set of any size."""
    return design.shape[0] <= largest_matrix(design) and (isinstance(design.X, np.ndarray) or sp.issparse(design.X))


def _working_set(terms: LinearParts, x: Array, least: Array) -> tuple[Indices, bool]:
    """The columns to move, and whether they are all that are not at their optimum."""
    support = x != 0.0
    candidates = np.flatnonzero(support | (least != 0.0))
    s = np.count_nonzero(support)
    wide = s > terms.model.design.shape[0] and has_factors(terms.model.design)
    limit = max(FIRST_WORKING_SET, int((WIDE_GROWTH if wide else GROWTH) * s))
    most = largest_matrix(terms.model.design)
    if limit > most >= max(1.1 * s, FIRST_WORKING_SET) and not has_factors(terms.model.design):
        limit = most
    if len(candidates) <= limit or not np.any(terms.l1):
        return candidates, True
    pull = np.abs(least[candidates])
    pull[support[candidates]] = math.inf
    chosen = np.argpartition(pull, len(pull) - limit)[len(pull) - limit :]
    return np.sort(candidates[chosen]), False


def _grows(terms: LinearParts, working: Indices) -> bool:
    """Whether the next working set may be larger than this one."""
    return has_factors(terms.model.design) or len(working) != largest_matrix(terms.model.design)


def _rows(terms: LinearParts, state: NewtonState, columns: int) -> int:
    N = terms.model.design.shape[0]
    if _known_hessian(terms) is not None:
        return N
    if isinstance(terms.model.design.X, Blocked) and columns**2 <= READ * terms.model.design.shape[1]:
        return N  # what a sample saves is less than what its rows take to be read
    rows = max(state.rows or N // FIRST_SHARE, 2 * columns, LEAST_ROWS)
    return N if 2 * rows > N else rows


class _Memory(threading.local):
    """The last Hessian of this thread, for as long as a state refers to it."""

    def __init__(self) -> None:
        self.hessians: WeakKeyDictionary[Metric, Quadratic] = WeakKeyDictionary()


_memory = _Memory()


def _hessian(problem: Canonical, terms: LinearParts, metric: Metric, image: Any) -> Quadratic:
    """H = X_W^T C X_W + l2 on the working set W, at the metric's anchor, whose image may be known."""
    known = _memory.hessians.get(metric)
    if known is not None:
        return known
    _memory.hessians.clear()
    _memory.hessians[metric] = H = _fresh_hessian(problem, terms, metric, image)
    return H


def _fresh_hessian(problem: Canonical, terms: LinearParts, metric: Metric, image: Any) -> Quadratic:
    known = _known_hessian(terms)
    if known is None:
        image = problem.f.image(metric.anchor) if image is None else image
        return _of_curvature(problem, terms, metric, terms.model.row_curvature(image))
    return _of_curvature(problem, terms, metric, terms.model.design.weights, known)


def _of_curvature(
    problem: Canonical, terms: LinearParts, metric: Metric, curvature: Array, known: Array | None = None
) -> Quadratic:
    """H with this C, on the metric's working set and rows; X^T C X may be known."""
    precision = _precision(problem, terms.model.design)
    return hessian_on(terms, metric.working, curvature, metric.rows, precision, known)


def exact_hessian(terms: LinearParts, x: Array, working: Indices) -> Quadratic:
    """H = X_W^T C X_W + l2 at x on some columns, from all rows and in float64."""
    known = _known_hessian(terms)
    C = terms.model.row_curvature(terms.model.image(x)) if known is None else terms.model.design.weights
    return hessian_on(terms, working, C, terms.model.design.shape[0], np.float64, known)


def hessian_on(
    terms: LinearParts, W: Indices, curvature: Any, count: int, precision: type, known: Array | None = None
) -> Quadratic:
    """H with this C on the columns W, from about `count` rows; X^T C X may be known."""
    design = terms.model.design
    ridge = np.maximum(on_these(terms.l2, W), LEAST_RIDGE * design.frobenius_norm**2 / design.shape[1])
    N, centred = design.shape[0], isinstance(terms.model, Intercepted)
    factors = len(W) > N and has_factors(design)
    in_blocks = isinstance(design.X, Blocked)
    if in_blocks and known is None:
        curvature = RowCurvature.of(design, curvature)
    if not factors and len(W) > largest_matrix(design) and not (in_blocks and known is not None):
        return Product(design, W, curvature, ridge, centred)
    if in_blocks:
        H = curvature.gram(W, count, centred) if known is None else known[np.ix_(W, W)]
        if known is not None and centred:  # C = diag(a)
            H -= np.outer(design.survey.means[W], design.survey.means[W])
        H[np.diag_indices(len(H))] += ridge
        return Matrix(H)
    if factors:
        mean = design.adjoint(curvature)[W] / curvature.sum() if centred and curvature.any() else None
        return (Factor if sp.issparse(design.X) else Wide).of(design.X, W, curvature, ridge, mean)
    if known is not None:
        rows, weights = np.arange(N), curvature
        H = known[np.ix_(W, W)]
    else:
        rows, weights = sample_rows(curvature, design.row_norms, count)
        H = gram(design.X, W, rows, np.sqrt(weights), precision)
    if centred and weights.any():
        if known is not None:
            mean = design.mean[W]
        else:
            every = np.zeros(N)
            every[rows] = weights
            mean = design.adjoint(every)[W]
        H -= np.outer(mean, mean / weights.sum())
    H[np.diag_indices(len(H))] += ridge
    return Matrix(H)


def _precision(problem: Canonical, design: Design) -> type:
    """float32 where H's error, about 1e-7 ||H||, is small against its least eigenvalue mu: H proves nothing, and
    steps are as good."""
    enough = problem.kappa <= SINGLE and 1e-15 < design.frobenius_norm < 1e15
    return np.float32 if enough else np.float64


def _known_hessian(terms: LinearParts) -> Array | None:
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
    if lives_elsewhere(X):
        return _gram_elsewhere(X, columns, rows, scale)
    if sp.issparse(X) and X.format == "csc":
        X, columns = X[:, columns].tocsr(), np.arange(len(columns))
    length = max(64, min(512, (1 << 22) // (8 * (X.shape[1] if sp.issparse(X) else len(columns)))))
    blocks = DenseBlocks(X, columns, length)
    kept: Array = np.empty((min(length, len(rows)), len(columns)), dtype=dtype)
    for first in range(0, len(rows), length):
        part, weights = rows[first : first + length], scale[first : first + length, None]
        whole = part[-1] - part[0] == len(part) - 1  # one after the other
        block = blocks(slice(int(part[0]), int(part[-1]) + 1) if whole else part)
        B = np.multiply(block, weights, out=kept[: len(part)], dtype=dtype, casting="same_kind")
        G += B.T @ B
    return G


def _gram_elsewhere(X: Any, columns: Indices, rows: Indices, scale: Array) -> Array:
    """The same where X lives, in blocks of up to BLOCK_ELSEWHERE numbers; it comes here as a whole."""
    xp, count, size = namespace(X), len(rows), len(columns)
    every = count == X.shape[0], size == X.shape[1]
    weights, chosen, taken = like(scale, X), like(columns, X), like(rows, X)
    G, step = None, max(64, BLOCK_ELSEWHERE // max(size, 1))
    for first in range(0, count, step):
        part = slice(first, min(first + step, count))
        B = X[part, :] if every[0] else xp.take(X, taken[part], axis=0)
        B = (B if every[1] else xp.take(B, chosen, axis=1)) * weights[part, None]
        G = B.T @ B if G is None else G + B.T @ B
    return np.zeros((size, size)) if G is None else np.array(host(G), dtype=np.float64)
