r"""The Hessian of a linear model on some columns W,  H = X_W^T C X_W + l2,  C = diag(a_i psi''),  whole or nearly so.

H is a sum over rows, and a sample of them is often enough: row i is taken with probability p_i ~ C_ii ||x_i||^2 and
counts C_ii / p_i. A `Metric` says where an H was taken: it stands for H, which is made of it again, bit for bit,
wherever it is not known.

Where H costs much more than products with X, that of a problem nearby is lent: to the first steps of the next solve,
and to conjugate gradients with the exact H (`suffice.solvers.sensitivity`). What is kept for it is X_W^T C X_W, in this
process and up to MEMORY bytes, so that another l2 may be added. H proves nothing, and an old one is as good as the
steps that it leads to.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
import scipy.sparse as sp

from suffice.arrays import EPS, Array, lives_elsewhere
from suffice.models.intercept import Intercepted
from suffice.models.linear import LossModel
from suffice.models.margin_losses import Squared
from suffice.models.row_sums import RowCurvature
from suffice.rows.blocks import Blocked
from suffice.rows.design import Design, largest_matrix
from suffice.rows.gram import centred, gram
from suffice.solvers.fields import RECOMPUTED
from suffice.solvers.parts import LinearParts
from suffice.solvers.problem import Canonical
from suffice.solvers.quadratic import Factor, Indices, Matrix, Product, Quadratic, Wide, on_these, with_ridge

READ = 64  # operations on dense matrices that an entry of X costs in two products, or in a pass over blocks of rows
SINGLE = 1e5  # the largest kappa at which H is made in float32
LEAST_RIDGE = 1e-14  # of the model's H, relative to the mean of its diagonal: none at all would leave it singular
MEMORY = 1 << 26  # bytes of matrices that are kept to be lent, each no more than an eighth of them
DEAR = 6.0  # times two products with X: what a matrix costs that is worth keeping
LIKELY = 0.75  # of l1: columns whose gradient is no less may soon be part of the support


@dataclass(frozen=True, eq=False)
class Metric:
    """Where a Hessian was taken: at `anchor`, on the columns `working`, from about so many `rows`, in float32 or not.
    Whether it is `lent` is settled when it is taken; `key` is that of its matrix in this process's memory."""

    anchor: Array
    working: Indices
    rows: int
    single: bool = False
    lent: bool = False
    key: str = field(default_factory=lambda: uuid4().hex, metadata=RECOMPUTED)


def has_factors(design: Design) -> bool:
    """Whether matrices of as many rows as X fit: then there is room for a working set of any size."""
    return design.shape[0] <= largest_matrix(design) and (isinstance(design.X, np.ndarray) or sp.issparse(design.X))


def price_of_passes(design: Design) -> float:
    """That of two products with X, in operations on dense matrices."""
    return float(READ * int(getattr(design.X, "nnz", math.prod(design.shape))))


def is_lent(terms: LinearParts, columns: int) -> bool:
    """Whether H on so many columns is worth keeping for problems nearby: a matrix that is dear, not too large, and made
    of rows that lie here."""
    design = terms.model.design
    if isinstance(design.X, Blocked) or lives_elsewhere(design.X) or isinstance(terms.model.loss, Squared):
        return False
    fits = 64 * columns**2 <= MEMORY and columns <= min(largest_matrix(design), design.shape[0])
    return fits and design.shape[0] * columns**2 >= DEAR * price_of_passes(design)


class _Memory(threading.local):
    """The last Hessian of this thread that is not lent, for as long as a state refers to it."""

    def __init__(self) -> None:
        self.hessians: weakref.WeakKeyDictionary[Metric, Quadratic] = weakref.WeakKeyDictionary()


class _Lent:
    """The latest matrices that are lent, by the keys of their metrics, each with the X and y that it was made of."""

    def __init__(self) -> None:
        self.matrices: OrderedDict[str, tuple[Any, Any, Array]] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, model: LossModel, metric: Metric) -> Array | None:
        with self.lock:
            design, y, matrix = self.matrices.get(metric.key, (_nothing, _nothing, None))
            if design() is not model.design or y() is not model.y:
                return None
            self.matrices.move_to_end(metric.key)
            return matrix

    def keep(self, model: LossModel, metric: Metric, matrix: Array) -> None:
        with self.lock:
            self.matrices[metric.key] = weakref.ref(model.design), weakref.ref(model.y), matrix
            size = sum(kept.nbytes for _, _, kept in self.matrices.values())
            while size > MEMORY and len(self.matrices) > 1:
                size -= self.matrices.popitem(last=False)[1][-1].nbytes


def _nothing() -> None:
    return None


_memory, _lent = _Memory(), _Lent()


def hessian_at(terms: LinearParts, metric: Metric, image: Any = None) -> Quadratic:
    """H on the metric's columns, at its anchor, whose image may be known."""
    if metric.lent:
        known = _lent.get(terms.model, metric)
        if known is None:
            made = _fresh(terms, metric, image, 0.0)
            assert isinstance(made, Matrix)
            known = made.H
            _lent.keep(terms.model, metric, known)
        return with_ridge(known.copy(), ridge_on(terms, metric.working))
    last = _memory.hessians.get(metric)
    if last is None:
        _memory.hessians.clear()
        _memory.hessians[metric] = last = _fresh(terms, metric, image, ridge_on(terms, metric.working))
    return last


def ridge_on(terms: LinearParts, W: Indices) -> float | Array:
    """The l2 of these columns."""
    design = terms.model.design
    ridge: float | Array = np.maximum(on_these(terms.l2, W), LEAST_RIDGE * design.frobenius_norm**2 / design.shape[1])
    return ridge


def _fresh(terms: LinearParts, metric: Metric, image: Any, ridge: float | Array) -> Quadratic:
    known = known_hessian(terms)
    if known is not None:
        return _hessian_on(terms, metric, terms.model.design.weights, ridge, known)
    image = terms.model.image(metric.anchor) if image is None else image
    return _hessian_on(terms, metric, terms.model.row_curvature(image), ridge)


def hessian_with(terms: LinearParts, metric: Metric, curvature: Array) -> Quadratic:
    """H with this C, on the metric's columns and from its rows."""
    return _hessian_on(terms, metric, curvature, ridge_on(terms, metric.working))


def with_likely(terms: LinearParts, working: Indices, gradient: Array) -> Indices:
    """These columns, and those that may soon be among them, if H is lent: without them it could not be used there."""
    likely = np.abs(gradient) >= LIKELY * terms.l1
    likely[working] = True
    wider = np.flatnonzero(likely)
    return wider if is_lent(terms, len(working)) and is_lent(terms, len(wider)) else working


def metric_at(problem: Canonical, terms: LinearParts, x: Array, S: Indices, gradient: Array) -> Metric:
    """All rows at x, on the columns S and those that may soon be among them: to be lent."""
    design = terms.model.design
    return Metric(x, with_likely(terms, S, gradient), design.shape[0], is_single(problem, design), lent=True)


def exact_hessian(terms: LinearParts, x: Array, working: Indices) -> Quadratic:
    """H = X_W^T C X_W + l2 at x on some columns, from all rows and in float64."""
    return _fresh(terms, Metric(x, working, terms.model.design.shape[0]), None, ridge_on(terms, working))


def _hessian_on(
    terms: LinearParts, metric: Metric, curvature: Any, ridge: float | Array, known: Array | None = None
) -> Quadratic:
    """H with this C and ridge; X^T C X may be known."""
    design, W, count = terms.model.design, metric.working, metric.rows
    intercept = isinstance(terms.model, Intercepted)
    factors = len(W) > design.shape[0] and has_factors(design)
    in_blocks = isinstance(design.X, Blocked)
    if in_blocks and known is None:
        curvature = RowCurvature.of(design, curvature)
    if not factors and len(W) > largest_matrix(design) and not (in_blocks and known is not None):
        return Product(design, W, curvature, ridge, intercept)
    if factors:
        mean = design.adjoint(curvature)[W] / curvature.sum() if intercept and curvature.any() else None
        return (Factor if sp.issparse(design.X) else Wide).of(design.X, W, curvature, ridge, mean)
    if known is not None:  # C = diag(a)
        H = known[np.ix_(W, W)]
        return with_ridge(H - np.outer(design.mean[W], design.mean[W]) if intercept else H, ridge)
    if in_blocks:
        return with_ridge(curvature.gram(W, count, intercept), ridge)
    rows, weights = sample_rows(curvature, design.row_norms, count)
    dtype = np.float32 if metric.single else np.float64
    H, _ = gram(design.X, W, np.sqrt(weights), rows, intercept=intercept, dtype=dtype)
    return with_ridge(centred(H) if intercept else H, ridge)


def is_single(problem: Canonical, design: Design) -> bool:
    """Whether H is made in float32: where its error, about 1e-7 ||H||, is small against its least eigenvalue mu. H
    proves nothing, and steps are as good."""
    return bool(problem.kappa <= SINGLE and 1e-15 < design.frobenius_norm < 1e15)


def known_hessian(terms: LinearParts) -> Array | None:
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
