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
from scipy.special import expit

from suffice._array import EPS, Array, cast_like, host, namespace, norm, positive
from suffice.terms.design import Design


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
        # A computed dot product of n terms errs by at most min(n, 4 sqrt(n)) units of roundoff relative to the product
        # of its factors' norms (the second with probability 1 - 1e-3 for a single product, in practice never for the
        # norm of a whole vector of them: Higham and Mary, SIAM J. Sci. Comput. 41, 2019). At x = 0 the margins are
        # exactly 0 and the gradient is X^T applied to the data: it is taken as the datum that defines the problem.
        if not x.any():
            return 0.0
        if math.isinf(self.loss.curvature):
            return self.rounding_at(x, image)
        design, size = self.design, norm(x)
        spectral, frobenius, curvature = math.sqrt(design.squared_norm), design.frobenius_norm, self.loss.curvature
        through_margins = _units(design.row_length) * curvature * spectral * frobenius * size
        derivative = self._derivative_at_zero + curvature * spectral * size
        through_sum = (_units(design.column_length) + 4.0) * frobenius * derivative
        return EPS * (through_margins + through_sum + 2.0 * self.l2 * size)

    def rounding_at(self, x: Array, image: Array) -> float:
        """A sharper `gradient_rounding` at the price of a few passes over the rows, for an image that is a product.

        Margin i errs by at most `error_i`, and psi' by the largest psi'' within that distance times it: little where
        psi is flat, as on confident samples.
        """
        if not x.any():
            return 0.0
        design, size, m = self.design, norm(x), host(image)
        a, y = host(design.weights), host(self.y)
        counts = a > 0.0
        error = EPS * _units(design.row_length) * design.row_norms * size
        if math.isinf(self.loss.curvature) and not np.all((m + error)[counts] < LARGEST_EXPONENT):
            return math.inf
        root, m, y, error = np.sqrt(a[counts]), m[counts], y[counts], error[counts]
        bend = self.loss.curvature_between(m - error, m + error, y)
        with np.errstate(over="ignore"):
            through_margins = math.sqrt(design.squared_norm) * norm(root * bend * error)
            # A psi' = exp(m) - y is rounded relative to exp(m) = psi'' as well.
            derivative = norm(root * (np.abs(self.loss.derivative(m, y)) + bend))
            through_sum = (_units(design.column_length) + 4.0) * design.frobenius_norm * derivative
        return through_margins + EPS * (through_sum + 2.0 * self.l2 * size)

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        moved = norm(x - z)
        if moved < 1e-150:  # its square is no longer a number to divide by
            return self.L
        change = x_image - z_image
        curvature = self.loss.curvature_between(z_image, x_image, self.y)
        return float(self.design.weights @ (curvature * change * change)) / moved**2 + self.l2

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


def _units(n: int) -> float:
    return min(float(n), 4.0 * math.sqrt(n))


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
        # The term is a black box: assume a backward stable gradient, exact for data perturbed in their last bits.
        return _units(x.size) * EPS * self.L * norm(x)

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
