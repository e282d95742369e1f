r"""Smooth convex terms f.

A user's own f needs `value(x)` and `gradient(x)`. Linear models

    f(w) = sum_i a_i psi(x_i . w, y_i) + (l2/2) ||w||^2,        sum_i a_i = 1   (a_i = 1/N without sample weights)

depend on w through the margins m = X w only. Margins are linear in w, so a solver that moves along straight lines
carries them along and pays one product with X and one with X^T per iteration: that is what `image`, `value_at` and
`gradient_at` are for. With psi'' <= curvature, f is l2-strongly convex and its gradient is Lipschitz with

    L = curvature ||diag(a)^(1/2) X||_2^2 + l2.

A Poisson likelihood has an unbounded psi'' = exp(m), and L = infinity: no step length is proven for a first-order
method, but strong convexity alone certifies what Newton's method finds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from suffice.arrays import EPS, Array, cast_like, host, namespace, norm, positive
from suffice.terms.design import Design
from suffice.terms.rounding import TINY, gamma


@runtime_checkable
class Smooth(Protocol):
    """A convex function with a Lipschitz gradient."""

    def value(self, x: Array) -> float:
        """f(x)."""
        ...

    def gradient(self, x: Array) -> Array:
        """grad f(x)."""
        ...


@runtime_checkable
class ImagedSmooth(Smooth, Protocol):
    """A smooth term that depends on x through x itself and a linear image of it."""

    def image(self, x: Array) -> Array: ...

    def value_at(self, x: Array, image: Array) -> float: ...

    def gradient_at(self, x: Array, image: Array) -> Array: ...

    @property
    def rounding_is_known(self) -> bool:
        """Whether `gradient_rounding` is a bound for any data, or assumes that nothing large cancels in f."""
        ...

    def gradient_rounding(self, x: Array, image: Array) -> float:
        """A bound on the norm of the rounding error of `gradient_at`."""
        ...

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        """M with f(x) <= f(z) + <grad f(z), x - z> + M/2 ||x - z||^2 for these two points, or infinity."""
        ...


class MarginLoss(Protocol):
    """psi(m, y) for a margin m and a target y, with 0 <= psi'' <= curvature, which may be infinite."""

    @property
    def curvature(self) -> float:
        """An upper bound of psi''."""
        ...

    def value(self, m: Array, y: Array) -> Array:
        """psi of every row."""
        ...

    def derivative(self, m: Array, y: Array) -> Array:
        """psi' of every row, with respect to m."""
        ...

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        """The largest psi'' between margins m and n."""
        ...


def sigmoid(m: Array) -> Array:
    """1/(1 + exp(-m)), wherever m lives."""
    if isinstance(m, np.ndarray):
        result: Array = expit(m)
        return result
    return 1.0 / (1.0 + namespace(m).exp(-m))  # exp overflows to infinity, without complaint outside NumPy


@dataclass(frozen=True)
class Squared:
    """psi = (m - y)^2 / 2."""

    curvature: float = 1.0

    def value(self, m: Array, y: Array) -> Array:
        return 0.5 * (m - y) ** 2

    def derivative(self, m: Array, y: Array) -> Array:
        return m - y

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        ones: Array = namespace(m).ones_like(m)
        return ones


@dataclass(frozen=True)
class Logistic:
    """psi = log(1 + exp(-y m)) for labels y in {-1, 1}."""

    curvature: float = 0.25

    def value(self, m: Array, y: Array) -> Array:
        xp = namespace(m)
        size = xp.abs(m)
        result: Array = 0.5 * (size - y * m) + xp.log1p(xp.exp(-size))
        return result

    def derivative(self, m: Array, y: Array) -> Array:
        return -y * sigmoid(-y * m)

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        # psi'' = p (1 - p) falls with |margin|: it is largest at the end nearer to 0, or at 0 if that lies between.
        xp = namespace(m)
        nearest = xp.where(m * n > 0.0, xp.minimum(xp.abs(m), xp.abs(n)), 0.0)
        p = sigmoid(nearest)
        return p * (1.0 - p)


@dataclass(frozen=True)
class Huber:
    """psi = (m - y)^2 / 2 up to |m - y| = delta, linear with slope delta beyond."""

    delta: float = 1.0
    curvature: float = 1.0

    def __post_init__(self) -> None:
        positive(self.delta, "delta")

    def value(self, m: Array, y: Array) -> Array:
        xp = namespace(m)
        size = xp.abs(m - y)
        result: Array = xp.where(size <= self.delta, 0.5 * size**2, self.delta * (size - 0.5 * self.delta))
        return result

    def derivative(self, m: Array, y: Array) -> Array:
        result: Array = namespace(m).clip(m - y, -self.delta, self.delta)
        return result

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        xp = namespace(m)
        low, high = xp.minimum(m, n) - y, xp.maximum(m, n) - y
        result: Array = xp.astype((low <= self.delta) & (high >= -self.delta), m.dtype)
        return result


@dataclass(frozen=True)
class Poisson:
    """psi = exp(m) - y m for counts y >= 0: the rate of row i is exp(m_i)."""

    curvature: float = math.inf

    def value(self, m: Array, y: Array) -> Array:
        return self._rate(m) - y * m

    def derivative(self, m: Array, y: Array) -> Array:
        return self._rate(m) - y

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        return self._rate(namespace(m).maximum(m, n))

    def _rate(self, m: Array) -> Array:
        # The largest float in place of infinity: a row of weight 0 counts for nothing whatever its rate. Where other
        # rows come near it, `LinearModel.rounding_at` is infinite.
        xp = namespace(m)
        rate: Array = xp.exp(xp.minimum(m, xp.full_like(m, LARGEST_EXPONENT)))
        return rate


LARGEST_EXPONENT = 709.0  # exp of it is nearly the largest float
CARRIED = 4.0  # margins that a solver carries along straight lines err by no more than so many products

SQUARED, LOGISTIC, HUBER, POISSON = Squared(), Logistic(), Huber(), Poisson()


@dataclass(frozen=True, eq=False)
class LinearModel:
    """sum_i a_i psi(x_i . w, y_i) + (l2/2) ||w||^2; `design` holds X and the a_i."""

    design: Design
    y: Array
    loss: MarginLoss
    l2: float = 0.0

    @property
    def rounding_is_known(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LinearModel)
            and self.design is other.design
            and (self.y is other.y or np.array_equal(host(self.y), host(other.y)))
            and self.loss == other.loss
            and self.l2 == other.l2
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def L(self) -> float:  # noqa: N802 (the symbol)
        """A proven Lipschitz constant of the gradient, infinite where there is none."""
        if math.isinf(self.loss.curvature):
            return math.inf
        return self.loss.curvature * self.design.squared_norm + self.l2

    def value(self, x: Array) -> float:
        return self.value_at(x, self.image(x))

    def gradient(self, x: Array) -> Array:
        return self.gradient_at(x, self.image(x))

    def image(self, x: Array) -> Array:
        image: Array = self.design.margins(x)
        return image

    def value_at(self, x: Array, image: Array) -> float:
        return float(self.design.weights @ self.loss.value(image, self.y)) + 0.5 * self.l2 * float(x @ x)

    def gradient_at(self, x: Array, image: Array) -> Array:
        derivative = self.loss.derivative(image, self.y)
        derivative *= self.design.weights
        return self.design.adjoint(derivative) + self.l2 * x

    def row_curvature(self, image: Array) -> Array:
        """a_i psi'' of every row at these margins."""
        return host(self.design.weights * self.loss.curvature_between(image, image, self.y))

    def gradient_rounding(self, x: Array, image: Array) -> float:
        """A bound for an image that is a product, or carried along straight lines (see `CARRIED`), from norms alone."""
        if math.isinf(self.loss.curvature):
            return self.rounding_at(x, image)
        design, size = self.design, norm(x)
        spectral, curvature = math.sqrt(design.squared_norm), self.loss.curvature
        of_margins = CARRIED * design.spread(x)
        derivative = self._derivative_at_zero + curvature * (spectral * size + of_margins)
        rounding = curvature * spectral * of_margins + design.pull_rounding * derivative
        return rounding + 2.0 * EPS * self.l2 * size + design.underflow

    def rounding_at(self, x: Array, image: Array) -> float:
        """A sharper `gradient_rounding` at the price of a few passes over the rows, for an image that is a product."""
        design = self.design
        error = design.margin_rounding(x) * design.row_norms * norm(x) + TINY * len(x)
        m, a, y = host(image), host(design.weights), host(self.y)
        return rounding_through(design, self.loss, m, y, error, a > 0.0) + 2.0 * EPS * self.l2 * norm(x)

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        curvature = self.loss.curvature_between(z_image, x_image, self.y)
        M = majoriser_along(self.design, self.loss.curvature, z, x, x_image - z_image, curvature) + self.l2
        return min(M, self.L)

    @cached_property
    def in_float32(self) -> LinearModel | None:
        """The same model, without its ridge, with X, weights and targets in float32, where there is room for them."""
        design = self.design.in_float32
        if design is None or not float(namespace(self.y).max(abs(self.y))) < 1e15:
            return None
        return LinearModel(design, cast_like(self.y, design.weights), self.loss)

    @cached_property
    def _derivative_at_zero(self) -> float:
        weights = self.design.weights
        derivative = self.loss.derivative(0.0 * weights, self.y)
        return norm(host(derivative * namespace(weights).sqrt(weights)))


def rounding_through(
    design: Design, loss: MarginLoss, m: Array, y: Array, error: Array, counts: npt.NDArray[np.bool_]
) -> float:
    """A bound on ||fl(X^T a psi') - X^T a psi'|| for margins m that err by at most `error`, over the rows that count.

    psi' errs by the largest psi'' within that distance times it: little where psi is flat, as on confident samples.
    """
    root, m, y, error = np.sqrt(host(design.weights)[counts]), m[counts], y[counts], error[counts]
    if math.isinf(loss.curvature) and not np.all(m + error < LARGEST_EXPONENT):
        return math.inf
    bend = loss.curvature_between(m - error, m + error, y)
    with np.errstate(over="ignore"):
        through_margins = math.sqrt(design.squared_norm) * norm(root * bend * error)
        # A psi' = exp(m) - y is rounded relative to exp(m) = psi'' as well.
        derivative = norm(root * (np.abs(loss.derivative(m, y)) + bend * (1.0 + error)))
        return through_margins + design.pull_rounding * derivative + design.underflow


def majoriser_along(design: Design, bend: float, z: Array, x: Array, change: Array, curvature: Array) -> float:
    """M with  sum_i a_i c_i ((x - z) . x_i)^2 <= M ||x - z||^2  for the margins' computed change and c_i <= bend.

    The root of the sum is a norm of the change, which errs by the rounding of the margins at either end: where x and z
    agree in nearly all digits there is nothing else, and M is of no use.
    """
    moved = norm(x - z)
    if moved < 1e-150:  # its square is no longer a number to divide by
        return math.inf
    along = math.sqrt(float(design.weights @ (curvature * change * change))) * (1.0 + gamma(change.shape[0] + 8))
    spread = design.spread(x) + CARRIED * design.spread(z)
    bound = (along + math.sqrt(bend) * spread) / moved
    return bound * bound if bound < 1e150 else math.inf


@dataclass(frozen=True)
class Plain:
    """A user's `value` and `gradient` with the identity as its linear image."""

    term: Smooth
    L: float

    @property
    def rounding_is_known(self) -> bool:
        return False

    def value(self, x: Array) -> float:
        return float(self.term.value(x))

    def gradient(self, x: Array) -> Array:
        return np.asarray(self.term.gradient(x), dtype=np.float64)

    def image(self, x: Array) -> Array:
        return x

    def value_at(self, x: Array, image: Array) -> float:
        return self.value(x)

    def gradient_at(self, x: Array, image: Array) -> Array:
        return self.gradient(x)

    def gradient_rounding(self, x: Array, image: Array) -> float:
        # The term is a black box: assume a backward stable gradient, exact for data perturbed in their last bits. The
        # part that does not vanish with x is told by the gradient's size, in `suffice.lower.certificate`.
        return x.size * EPS * self.L * norm(x)

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        return math.inf


@dataclass(frozen=True, eq=False)
class Ridged:
    """term + (1/2) sum_i ridge_i x_i^2, one ridge for all i or one each."""

    term: ImagedSmooth
    ridge: float | Array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ridged) and self.term == other.term and np.array_equal(self.ridge, other.ridge)

    __hash__ = None  # type: ignore[assignment]

    @property
    def largest(self) -> float:
        return float(np.max(self.ridge))

    @property
    def rounding_is_known(self) -> bool:
        return self.term.rounding_is_known

    def value(self, x: Array) -> float:
        return self.value_at(x, self.image(x))

    def gradient(self, x: Array) -> Array:
        return self.gradient_at(x, self.image(x))

    def image(self, x: Array) -> Array:
        return self.term.image(x)

    def value_at(self, x: Array, image: Array) -> float:
        return self.term.value_at(x, image) + 0.5 * float(x @ (self.ridge * x))

    def gradient_at(self, x: Array, image: Array) -> Array:
        return self.term.gradient_at(x, image) + self.ridge * x

    def gradient_rounding(self, x: Array, image: Array) -> float:
        return self.term.gradient_rounding(x, image) + 2.0 * EPS * self.largest * norm(x)

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        return self.term.majoriser(z, z_image, x, x_image) + self.largest


def imaged(term: Smooth, L: float) -> ImagedSmooth:
    """`term` itself if it has a linear image of its own, else with the identity."""
    return term if isinstance(term, ImagedSmooth) else Plain(term, L)
