r"""The Hessians of f on some variables W that Newton's method and derivatives of solutions are made of.

For a linear model  H = X_W^T C X_W + l2,  C = diag(a_i psi''),  is a sum over rows. Of a multinomial model it is never
formed where products with X cost less: these are preconditioned by the norms of columns times the mean of a p (1 - p),
the same for all classes, so that what softmax does not see, a vector in all classes alike, stays out of the way. Any
other smooth term offers its Hessian as a matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from suffice.arrays import EPS, Array, host, norm
from suffice.lazy import cached_property
from suffice.models.linear import LossModel, RowCurvature
from suffice.models.margin_losses import Squared
from suffice.models.multinomial import Multinomial
from suffice.models.smooth import ImagedSmooth
from suffice.penalties.prox import Indices, Separable
from suffice.protocols import conforms
from suffice.rows.design import Design, largest_matrix
from suffice.solvers.certificate import Evidence
from suffice.solvers.problem import Canonical
from suffice.solvers.quadratic import CG_TOLERANCE, ByProducts, Quadratic, Wide, on_these, with_ridge

STEP, PROOF = 1e6, 2e6  # operations in the time that a step, and a verification, take besides
READ = 64  # operations on dense matrices that an entry of X costs in two products, or in a pass over blocks of rows
SINGLE = 1e5  # the largest kappa at which H is made in float32
LEAST_RIDGE = 1e-14  # of the model's H, relative to the mean of its diagonal: none at all would leave it singular
FIRST_WORKING_SET, GROWTH = 64, 1.5  # of the working set, relative to the support,
WIDE_GROWTH = 6.0  # and where the support has more columns than X has rows: a model's price is linear in columns then
VERIFICATION, OF_CLASSES = 8.0, 5.0  # times N s^2: operations of a verification with s weights, and of several classes,
MADE_DENSE = 6.0  # and twice as many products with X where that is sparse, and has to be made dense
CG_STEPS, ADMM_STEPS = 30.0, 120.0  # products whose price is that of a matrix; with an l1, whose signs take longer
DERIVATIVES = 40.0  # the same for a derivative
SLOW, SLOW_SPARSE = 2.0, 20.0  # times: operations of a product against those of a matrix, for the time they take


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

    def at(self, image: Any, working: Indices, tolerance: float = 0.0) -> Quadratic:
        """H on these variables at the point of an image. Where it takes products, systems are solved to a
        `tolerance`."""
        return with_ridge(self.term.hessian(image, working), on_these(self.ridge, working))

    def exact(self, x: Array, working: Indices) -> Quadratic:
        """H at x in float64, for a derivative."""
        return self.at(self.term.image(x), working)

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

    def price(self, H: Quadratic, columns: int) -> float:
        """That of a step, in operations on dense matrices."""
        return H.price * H.made[0] if isinstance(H, ByProducts) else self._of_matrix(columns)

    def proof_price(self, x: Array) -> float:
        """That of a verification of x."""
        return 0.0

    def _of_matrix(self, s: int) -> float:
        """The price of H on s variables, and of its factor."""
        design = getattr(self.term, "design", None)
        return (1.0 if design is None else float(design.shape[0])) * s * s + s**3 / 3.0


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

    def limit(self, support: int) -> int:
        wide = support > self.design.shape[0] and self.has_factors
        limit = max(FIRST_WORKING_SET, int((WIDE_GROWTH if wide else GROWTH) * support))
        most = self.largest
        fits = limit > most >= max(1.1 * support, FIRST_WORKING_SET)
        return most if fits and not self.has_factors else limit

    def price(self, H: Quadratic, columns: int) -> float:
        """It makes and factors H, and makes two products with X."""
        if isinstance(H, ByProducts):
            return super().price(H, columns)
        return STEP + columns**3 + READ * entries(self.design) + self.design.shape[0] * columns**2

    def proof_price(self, x: Array) -> float:
        is_dense = entries(self.design) == math.prod(self.design.shape)
        dense = 0.0 if is_dense else MADE_DENSE * READ * entries(self.design)
        return PROOF + VERIFICATION * self.design.shape[0] * int(np.count_nonzero(x)) ** 2 + dense

    def at(self, image: Any, working: Indices, tolerance: float = 0.0) -> Quadratic:
        # In float32 where its error, about 1e-7 ||H||, is small against the least eigenvalue mu: steps are as good.
        single = self.problem.kappa <= SINGLE and 1e-15 < self.design.frobenius_norm < 1e15
        by_products = not np.any(getattr(self.problem.g, "l1", 1.0)) and not self.design.rows.dear
        return self.made(self._curvature(image), working, single, CG_STEPS if by_products else math.inf, tolerance)

    def exact(self, x: Array, working: Indices) -> Quadratic:
        return self.made(self._curvature(self.term.image(x)), working)

    def _curvature(self, image: Any) -> RowCurvature:
        same = self._known is not None
        return RowCurvature(self.design, self.design.weights, 1.0) if same else self.term.row_curvature(image)

    @property
    def _known(self) -> Array | None:
        """X^T diag(a) X, where psi'' = 1 and it fits: made once for all targets, penalties and working sets."""
        return self.design.gram if isinstance(self.term.loss, Squared) else None

    def made(
        self,
        C: RowCurvature,
        W: Indices,
        single: bool = False,
        products: float = math.inf,
        tolerance: float = CG_TOLERANCE,
    ) -> Quadratic:
        """H with this C on the columns W, in float32 or not; by products where so many of them cost less."""
        design, known, intercept = self.design, self._known, self.term.intercept and C.total > 0.0
        least = LEAST_RIDGE * design.frobenius_norm**2 / design.shape[1]
        ridge = np.maximum(on_these(self.term.l2 + self.ridge, W), least)
        if len(W) > design.shape[0] and self.has_factors:
            return Wide.of(design.X, W, C.rows, ridge, C.mean[W] if intercept else None)
        price = price_of_product(design)
        dear = known is None and self._of_matrix(len(W)) > products * price
        large = (dear or len(W) > self.largest) and isinstance(self.problem.g, Separable)
        if large and (known is None or not design.rows.dear):
            # As if C were a multiple of the sample weights: that scales variables, and proves nothing.
            diagonal, price = design.column_norms[W] ** 2 * C.total + ridge, price if dear else READ * entries(design)
            return ByProducts(C.products(intercept), design.shape[1], W, diagonal, ridge, tolerance, price)
        if known is not None and C.rows is design.weights:
            H = known[np.ix_(W, W)]
            return with_ridge(H - np.outer(design.mean[W], design.mean[W]) if intercept else H, ridge)
        return with_ridge(C.gram(W, intercept, np.float32 if single else np.float64), ridge)


@dataclass(eq=False)
class OfClasses(Hessians):
    """Those of a multinomial model."""

    term: Multinomial

    @property
    def _fits(self) -> int:
        return largest_matrix(self.term.design, self.term.classes)

    def at(self, image: Any, working: Indices, tolerance: float = 0.0) -> Quadratic:
        products = ADMM_STEPS if np.any(getattr(self.problem.g, "l1", 0.0)) else CG_STEPS
        return self._made(image, working, products, tolerance)

    def exact(self, x: Array, working: Indices) -> Quadratic:
        return self._made(self.term.image(x), working, DERIVATIVES)

    def _made(self, image: Any, W: Indices, products: float, tolerance: float = 0.0) -> Quadratic:
        """By products where so many of them cost less than a matrix, or it does not fit."""
        term, design, K = self.term, self.term.design, self.term.classes
        price = price_of_product(design) * K
        dear = len(W) > self._fits or self._of_matrix(len(W)) > products * price
        if not dear or not isinstance(self.problem.g, Separable):
            return super().at(image, W)
        bend = 1.0 / K - 1.0 / K**2
        if not design.rows.dear:
            p = term.probabilities(image)
            bend = float(np.sum(host(design.weights) @ (p - p * p))) / K
        ridge = on_these(self.ridge, W)
        diagonal = bend * design.column_norms[W % design.shape[1]] ** 2 + term.l2 + ridge
        product = term.hessian_at(image)
        return ByProducts(
            lambda V: product(V.reshape(len(V), -1)).reshape(V.shape),
            *(K * design.shape[1], W, diagonal, ridge, tolerance, price),
        )

    def proof_price(self, x: Array) -> float:
        return OF_CLASSES * self._of_matrix(int(np.count_nonzero(x)))


def hessians_of(problem: Canonical) -> Hessians | None:
    """None for a term that offers none."""
    term, ridge = problem.term, problem.ridge
    if isinstance(term, LossModel):
        return OfRows(problem, term, ridge)
    if isinstance(term, Multinomial):
        return OfClasses(problem, term, ridge)
    return Hessians(problem, term, ridge) if conforms(term, WithHessian) else None


def entries(design: Design) -> float:
    """How many of X are stored."""
    return float(getattr(design.X, "nnz", math.prod(design.shape)))


def price_of_product(design: Design) -> float:
    """That of a product with X^T C X, for the time that it takes, in operations on dense matrices."""
    slow = SLOW if entries(design) == math.prod(design.shape) else SLOW_SPARSE
    return 4.0 * slow * entries(design)
