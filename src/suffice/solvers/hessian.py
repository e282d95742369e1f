r"""The Hessians of f on some variables W that Newton's method and derivatives of solutions are made of.

For a linear model  H = X_W^T C X_W + l2,  C = diag(a_i psi''),  is a sum over rows, and a sample of them is often
enough: row i is taken with probability p_i ~ C_ii ||x_i||^2 and counts C_ii / p_i. H proves nothing, and one of a
sample is as good as the steps that it leads to.

Of a multinomial model it is never formed where products with it (`suffice.solvers.softmax_product`) cost less. Any
other smooth term offers its Hessian as a matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.lazy import cached_property
from suffice.models.intercept import Intercepted
from suffice.models.linear import LossModel
from suffice.models.margin_losses import Squared
from suffice.models.multinomial import Multinomial
from suffice.models.smooth import ImagedSmooth
from suffice.penalties.prox import Indices, Separable
from suffice.protocols import conforms
from suffice.rows.design import Design, largest_matrix
from suffice.rows.gram import GOLDEN, centred, gram, sampled
from suffice.solvers.certificate import Evidence
from suffice.solvers.problem import Canonical
from suffice.solvers.quadratic import Product, Quadratic, Wide, on_these, with_ridge
from suffice.solvers.softmax_product import Local, SoftmaxProduct

STEP, PROOF = 1e6, 2e6  # operations in the time that a step, and a verification, take besides
READ = 64  # operations on dense matrices that an entry of X costs in two products, or in a pass over blocks of rows
SINGLE = 1e5  # the largest kappa at which H is made in float32
LEAST_RIDGE = 1e-14  # of the model's H, relative to the mean of its diagonal: none at all would leave it singular
FIRST_WORKING_SET, GROWTH = 64, 1.5  # of the working set, relative to the support,
WIDE_GROWTH = 6.0  # and where the support has more columns than X has rows: a model's price is linear in columns then
FIRST_SHARE, LEAST_ROWS = 8, 500  # the first Hessian takes one row in so many, but no fewer than so many
VERIFICATION, OF_CLASSES = 8.0, 5.0  # times N s^2: operations of a verification with s weights, and of several classes,
MADE_DENSE = 6.0  # and twice as many products with X where that is sparse, and has to be made dense
BLURRED = 100.0  # times the rounding of a gradient: about as long, and the gap will prove no more
CG_STEPS, ADMM_STEPS = 30.0, 120.0  # products whose price is that of a matrix; with an l1, whose signs take longer
DERIVATIVES = 40.0  # the same for a derivative
MOST_DENSE = 10_000_000  # entries of a sparse X that may be made dense for it


@runtime_checkable
class WithHessian(ImagedSmooth, Protocol):
    """A smooth term with its Hessian, at the point of an image, on these variables."""

    def hessian(self, image: Array, working: Indices) -> Array: ...


@dataclass(eq=False)
class Hessians:
    """Those of a smooth term that offers its Hessian as a matrix, and what Newton's method has to know of them."""

    problem: Canonical
    term: Any
    ridge: float | Array
    bends = True  # whether the curvature that a step meets on its way can be far from that where it begins

    def at(self, image: Any, working: Indices, rows: int, tolerance: float = 0.0) -> Quadratic:
        """H on these variables at the point of an image, from about so many rows; systems are solved to a `tolerance`
        where it takes products."""
        return with_ridge(self.term.hessian(image, working), on_these(self.ridge, working))

    def exact(self, x: Array, working: Indices) -> Quadratic | None:
        """H at x from all rows and in float64, for a derivative; None where it is not to be had."""
        return self.at(self.term.image(x), working, self.all_rows)

    @property
    def all_rows(self) -> int:
        design = getattr(self.term, "design", None)
        return 1 if design is None else int(design.shape[0])

    def rounding(self, x: Array, image: Any) -> float:
        """A bound on that of f's gradient, for an image that is a product."""
        if not hasattr(self.term, "rounding_at"):
            return self.problem.f.gradient_rounding(x, image)
        return float(self.term.rounding_at(x, image)) + 2.0 * EPS * float(np.max(self.ridge)) * norm(x)

    def evidence(self, x: Array, image: Any, gradient: Array | None = None) -> Evidence:
        gradient = self.problem.f.gradient_at(x, image) if gradient is None else gradient
        return Evidence(x, image, gradient, rounding=self.rounding(x, image))

    def limit(self, support: int) -> int:
        """The size of a working set."""
        return max(2 * FIRST_WORKING_SET, int(GROWTH * support))

    def grows(self, columns: int) -> bool:
        """Whether the next working set may be larger than one of so many columns."""
        return True

    def rows(self, wanted: int, columns: int) -> int:
        """How many the next Hessian takes; `wanted` is 0 before the first."""
        return self.all_rows

    def price(self, H: Quadratic, columns: int, rows: int) -> float:
        """That of a step, in operations on dense matrices."""
        return self._price_of_matrix(columns)

    def _price_of_matrix(self, s: int) -> float:
        """That of H on s variables, and of its factor."""
        return float(self.all_rows) * s * s + s**3 / 3.0

    def verification_is_due(self, x: Array, spent: float, after: float, rounding: float) -> bool:
        """Whether steps have cost as much as a verification of x; `after` is the length of the least subgradient."""
        return True


@dataclass(eq=False)
class OfRows(Hessians):
    """Those of a linear model."""

    term: LossModel
    bends = False

    @property
    def design(self) -> Design:
        return self.term.design

    @cached_property
    def largest(self) -> int:
        """The side of the largest matrices that fit."""
        return largest_matrix(self.design)

    @property
    def has_factors(self) -> bool:
        """Whether matrices of as many rows as X fit: then there is room for a working set of any size."""
        design = self.design
        fits = design.shape[0] <= self.largest and design.rows.at_hand and design.rows.full
        return fits and isinstance(self.problem.g, Separable)

    @property
    def price_of_passes(self) -> float:
        """That of two products with X, in operations on dense matrices."""
        return READ * entries(self.design)

    def limit(self, support: int) -> int:
        wide = support > self.design.shape[0] and self.has_factors
        limit = max(FIRST_WORKING_SET, int((WIDE_GROWTH if wide else GROWTH) * support))
        most = self.largest
        fits = limit > most >= max(1.1 * support, FIRST_WORKING_SET)
        return most if fits and not self.has_factors else limit

    def grows(self, columns: int) -> bool:
        return self.has_factors or columns != self.largest

    def rows(self, wanted: int, columns: int) -> int:
        N = self.all_rows
        if self._known is not None:
            return N
        if self.design.rows.dear and columns**2 <= READ * self.design.shape[1]:
            return N  # what a sample saves is less than what its rows take to be read
        rows = max(wanted or N // FIRST_SHARE, 2 * columns, LEAST_ROWS)
        return N if 2 * rows > N else rows

    @property
    def _is_single(self) -> bool:
        """Whether H is made in float32: where its error, about 1e-7 ||H||, is small against its least eigenvalue mu. H
        proves nothing, and steps are as good."""
        return bool(self.problem.kappa <= SINGLE and 1e-15 < self.design.frobenius_norm < 1e15)

    def price(self, H: Quadratic, columns: int, rows: int) -> float:
        """It makes and factors H, and makes two products with X."""
        return STEP + columns**3 + self.price_of_passes + rows * columns**2

    def verification_is_due(self, x: Array, spent: float, after: float, rounding: float) -> bool:
        is_dense = entries(self.design) == math.prod(self.design.shape)
        dense = 0.0 if is_dense else MADE_DENSE * self.price_of_passes
        return spent >= PROOF + VERIFICATION * self.all_rows * int(np.count_nonzero(x)) ** 2 + dense

    def at(self, image: Any, working: Indices, rows: int, tolerance: float = 0.0) -> Quadratic:
        return self._made(image, working, rows, self._is_single)

    def exact(self, x: Array, working: Indices) -> Quadratic:
        return self._made(self.term.image(x), working, self.all_rows, False)

    def _made(self, image: Any, working: Indices, rows: int, single: bool) -> Quadratic:
        known = self._known
        C = self.design.weights if known is not None else self.term.row_curvature(image)
        return self.made(C, working, rows, single, known)

    def ridge_on(self, W: Indices) -> float | Array:
        """The l2 of these columns, the model's own included."""
        least = LEAST_RIDGE * self.design.frobenius_norm**2 / self.design.shape[1]
        ridge: float | Array = np.maximum(on_these(self.term.l2 + self.ridge, W), least)
        return ridge

    @property
    def _known(self) -> Array | None:
        """X^T diag(a) X, where psi'' = 1 and it fits: made once for all targets, penalties and working sets."""
        return self.design.gram if isinstance(self.term.loss, Squared) else None

    def made(
        self, curvature: Any, W: Indices, count: int, single: bool = False, known: Array | None = None
    ) -> Quadratic:
        """H with this C on the columns W, from about so many rows, in float32 or not; X^T C X may be known."""
        design, ridge, intercept = self.design, self.ridge_on(W), isinstance(self.term, Intercepted)
        if len(W) > design.shape[0] and self.has_factors:
            mean = design.adjoint(curvature)[W] / curvature.sum() if intercept and curvature.any() else None
            return Wide.of(design.X, W, curvature, ridge, mean)
        large = len(W) > self.largest and isinstance(self.problem.g, Separable)
        if large and (known is None or not design.rows.dear):
            return Product(design, W, curvature, ridge, intercept)
        if known is not None:  # C = diag(a)
            H = known[np.ix_(W, W)]
            return with_ridge(H - np.outer(design.mean[W], design.mean[W]) if intercept else H, ridge)
        if design.rows.dear:
            return with_ridge(curvature.gram(W, count, intercept), ridge)
        rows, weights = sample_rows(curvature, design.row_norms, count)
        dtype = np.float32 if single else np.float64
        H, _ = gram(design.X, W, np.sqrt(weights), rows, intercept=intercept, dtype=dtype)
        return with_ridge(centred(H) if intercept else H, ridge)


@dataclass(eq=False)
class OfClasses(Hessians):
    """Those of a multinomial model."""

    term: Multinomial

    @property
    def _fits(self) -> int:
        return largest_matrix(self.term.design, self.term.classes)

    @property
    def has_room(self) -> bool:
        """Whether X is in main memory or, wherever it is, the whole Hessian can be a matrix."""
        design = self.term.design
        return design.rows.at_hand or self.term.classes * design.shape[1] <= self._fits

    def at(self, image: Any, working: Indices, rows: int, tolerance: float = 0.0) -> Quadratic:
        W, l1 = working, getattr(self.problem.g, "l1", 0.0)
        if self.term.design.rows.at_hand and isinstance(self.problem.g, Separable):
            product = SoftmaxProduct.of(self.term, Local.of(self.term, image), self.ridge, W, tolerance)
            most = (ADMM_STEPS if np.any(l1) else CG_STEPS) * product.price
            if len(W) > self._fits or self._price_of_matrix(len(W)) > most:
                return product
        return super().at(image, W, rows)

    def exact(self, x: Array, working: Indices) -> Quadratic | None:
        design, image = self.term.design, self.term.image(x)
        if design.rows.at_hand:
            product = SoftmaxProduct.of(self.term, Local.of(self.term, image), self.ridge, working, 0.0)
            dear = self._price_of_matrix(len(working)) > DERIVATIVES * product.price
            sparse = entries(design) < math.prod(design.shape)
            if len(working) > self._fits or dear or (sparse and math.prod(design.shape) > MOST_DENSE):
                return product
        return super().at(image, working, self.all_rows) if len(working) <= self._fits else None

    def price(self, H: Quadratic, columns: int, rows: int) -> float:
        return H.spent if isinstance(H, SoftmaxProduct) else self._price_of_matrix(columns)

    def verification_is_due(self, x: Array, spent: float, after: float, rounding: float) -> bool:
        costs = OF_CLASSES * self._price_of_matrix(int(np.count_nonzero(x)))
        return spent >= costs or after <= BLURRED * rounding


def hessians_of(problem: Canonical) -> Hessians | None:
    """None for a term that offers none, or has no room for them."""
    term, ridge = problem.term, problem.ridge
    if isinstance(term, LossModel):
        return OfRows(problem, term, ridge)
    if isinstance(term, Multinomial):
        found = OfClasses(problem, term, ridge)
        return found if found.has_room else None
    return Hessians(problem, term, ridge) if conforms(term, WithHessian) else None


def entries(design: Design) -> float:
    """How many of X are stored."""
    return float(getattr(design.X, "nnz", math.prod(design.shape)))


def sample_rows(curvature: Array, row_norms: Array, count: int) -> tuple[Indices, Array]:
    """About `count` rows and their weights, such that sum_i weight_i x_i x_i^T estimates X^T diag(curvature) X."""
    influence = float(curvature @ row_norms**2)
    if count >= len(curvature) or not influence > 0.0:
        rows = np.flatnonzero(curvature)
        return rows, curvature[rows]
    return sampled(curvature, row_norms, count / influence, GOLDEN)
