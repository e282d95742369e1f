r"""Models that depend on w through the margins m = X w:

    f(w) = sum_i a_i psi(m_i, y_i) + (l2/2) ||w||^2,        sum_i a_i = 1   (a_i = 1/N without sample weights)

and those from which an intercept, or more, is minimised out (`suffice.models.intercept`, `.concomitant`,
`.multinomial`). With second derivatives in the margins of at most `curvature`, f is l2-strongly convex and its gradient
is Lipschitz with

    L = curvature ||diag(a)^(1/2) X||_2^2 + l2.

A Poisson likelihood has an unbounded psi'' = exp(m), and L = infinity: no step length is proven for a first-order
method, but strong convexity alone certifies what Newton's method finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, cast_like, host, lives_elsewhere, namespace, norm
from suffice.lazy import cached_property
from suffice.models.margin_losses import LARGEST, MarginLoss, Squared, slope_size
from suffice.models.smooth import Imaged
from suffice.rows.design import Design
from suffice.rows.rounding import gamma

CARRIED = 4.0  # margins that a solver carries along straight lines err by no more than so many products


class MarginModel(Imaged):
    """What all of them share: final classes are dataclasses that hold X and the a_i as `design`, and `l2`."""

    design: Design
    l2: float

    @property
    def curvature(self) -> float:
        """An upper bound of second derivatives in the margins of a row, infinite where there is none."""
        raise NotImplementedError

    def losses(self, image: Array) -> Array:
        """Every row's loss at these margins."""
        raise NotImplementedError

    def slopes(self, image: Array) -> Array:
        """Every row's derivative with respect to its margins, in an array of its own."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MarginModel) or type(other) is not type(self):
            return False
        return all(map(_same, self.fingerprint().values(), other.fingerprint().values()))

    __hash__ = None  # type: ignore[assignment]

    def fingerprint(self) -> dict[str, Any]:
        """What the model was made from."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.init}  # type: ignore[arg-type]

    @property
    def rounding_is_known(self) -> bool:
        return True

    @property
    def L(self) -> float:  # noqa: N802 (the symbol)
        """A proven Lipschitz constant of the gradient, infinite where there is none."""
        return math.inf if math.isinf(self.curvature) else self.curvature * self.design.squared_norm + self.l2

    def image(self, x: Array) -> Array:
        image: Array = self.design.margins(x)
        return image

    def value_at(self, x: Array, image: Array) -> float:
        return float(self.design.weights @ self.losses(image)) + 0.5 * self.l2 * float(x @ x)

    def gradient_at(self, x: Array, image: Array) -> Array:
        slopes = self.slopes(image)
        slopes *= self.design.weights
        return self.design.adjoint(slopes) + self.l2 * x


def _same(one: Any, other: Any) -> bool:
    """Designs are the same if they are one object; equal arrays are."""
    if one is other or isinstance(one, Design):
        return one is other
    return np.array_equal(host(one), host(other)) if hasattr(one, "shape") else bool(one == other)


@dataclass(frozen=True, eq=False)
class LossModel(MarginModel):
    """A sum of psi over rows, with or without an intercept."""

    design: Design
    y: Array
    loss: MarginLoss
    l2: float = 0.0

    @property
    def curvature(self) -> float:
        return self.loss.curvature

    @property
    def L(self) -> float:  # noqa: N802 (the symbol)
        if isinstance(self.loss, Squared):
            _ = self.design.gram  # Newton's method will want it: its norm is had from what is kept
        return super().L

    def shifted(self, image: Array, by: Array) -> Array:
        """These margins plus the intercept that belongs to the margins `by`."""
        raise NotImplementedError

    def gradient_rounding(self, x: Array, image: Array) -> float:
        """A bound on the norm of the rounding error of the gradient."""
        return self._rounding(x, image, CARRIED)

    def rounding_at(self, x: Array, image: Array) -> float:
        """A sharper `gradient_rounding` at the price of a few passes over the rows, for an image that is a product."""
        return self._rounding(x, image, 1.0)

    def _rounding(self, x: Array, image: Array, products: float) -> float:
        """For margins that err by no more than so many products."""
        raise NotImplementedError

    def losses(self, image: Array) -> Array:
        return self.loss.value(self.shifted(image, image), self.y)

    def slopes(self, image: Array) -> Array:
        return self.loss.derivative(self.shifted(image, image), self.y)

    def slope_between(self, image: Array, other: Array) -> float:
        """The derivative of the loss half-way between two images, along the line that leads from one to the other."""
        slopes = self.slopes(0.5 * (image + other))
        return float(namespace(image).sum(self.design.weights * slopes * (other - image)))

    def row_curvature(self, image: Array) -> Array:
        """a_i psi'' of every row at these margins."""
        m = self.shifted(image, image)
        return host(self.design.weights * self.loss.curvature_between(m, m, self.y))

    def mean_curvature(self, image: Array, other: Array) -> Array:
        """a_i times the mean psi'' between two margins of every row."""
        a, y = host(self.design.weights), host(self.y)
        m, n = (host(self.shifted(one, one)) for one in (image, other))
        moved = np.abs(n - m) > 1e-6 * (np.abs(m) + np.abs(n))
        change = self.loss.derivative(n, y) - self.loss.derivative(m, y)
        mean: Array = np.where(moved, a * change / np.where(moved, n - m, 1.0), self.row_curvature(image))
        return mean

    def steadier(self, curvature: Array, image: Array, other: Array) -> Array | None:
        """The larger of a curvature of rows and of its mean between two margins; None where that is not finite."""
        C = np.maximum(curvature, self.mean_curvature(image, other))
        return C if np.isfinite(C).all() else None

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        m, n = self.shifted(z_image, z_image), self.shifted(x_image, z_image)
        curvature = self.loss.curvature_between(m, n, self.y)
        M = majoriser_along(self.design, self.curvature, z, x, x_image - z_image, curvature) + self.l2
        return min(M, self.L)


@dataclass(frozen=True, eq=False)
class LinearModel(LossModel):
    """sum_i a_i psi(x_i . w, y_i) + (l2/2) ||w||^2; `design` holds X and the a_i."""

    def shifted(self, image: Array, by: Array) -> Array:
        return image

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
        design = self.design
        if lives_elsewhere(design.X):
            rounding = _rounding_elsewhere(design, self.loss, image, self.y, design.margin_errors_there(x))
        else:
            rounding = rounding_through(design, self.loss, image, self.y, design.margin_errors(x), design.weights > 0.0)
        return rounding + 2.0 * EPS * self.l2 * norm(x)

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
    bend = loss.curvature_between(m - error, m + error, y)
    if math.isinf(loss.curvature) and not np.all(bend < LARGEST):
        return math.inf
    return rounding_of_pull(design, root, slope_size(loss, loss.derivative(m, y), bend, m, y), bend, error)


def rounding_of_pull(
    design: Design, root: Any, size: Any, bend: Any, error: Any, length: Callable[[Any], float] = norm
) -> float:
    """`rounding_through` for the `slope_size` of psi' and the largest psi'' within the margins' error; `root` holds the
    a_i^(1/2), and `length` is the norm of vectors where they live."""
    with np.errstate(over="ignore"):
        through_margins = math.sqrt(design.squared_norm) * length(root * bend * error)
        derivative = length(root * (size + bend * error))
        return through_margins + design.pull_rounding * derivative + design.underflow


def _rounding_elsewhere(design: Design, loss: MarginLoss, m: Any, y: Any, error: Any) -> float:
    """`rounding_through`, where X lives: rows that do not count are among those that do, with a weight of 0."""
    if math.isinf(loss.curvature):
        return rounding_through(design, loss, host(m), host(y), host(error), host(design.weights) > 0.0)
    xp = namespace(m)

    def length(v: Any) -> float:
        lost = math.sqrt(v.shape[0]) * 1e-150  # what underflows in squares
        return (float(xp.sqrt(xp.sum(v * v))) + lost) * (1.0 + gamma(v.shape[0] + 8))

    bend = loss.curvature_between(m - error, m + error, y)
    size = slope_size(loss, loss.derivative(m, y), bend, m, y)
    found = rounding_of_pull(design, xp.sqrt(design.weights), size, bend, error, length)
    return found if math.isfinite(found) else math.inf


def majoriser_along(design: Design, bend: float, z: Array, x: Array, change: Array, curvature: Array) -> float:
    """M with  sum_i a_i c_i ((x - z) . x_i)^2 <= M ||x - z||^2  for the margins' computed change and c_i <= bend.

    The root of the sum is a norm of the change, which errs by the rounding of the margins at either end: where x and z
    agree in nearly all digits there is nothing else, and M is of no use.
    """
    if norm(x - z) < 1e-150:  # its square is no longer a number to divide by
        return math.inf
    return majoriser_of(design, bend, z, x, float(design.weights @ (curvature * change * change)))


def majoriser_of(design: Design, bend: float, z: Array, x: Array, total: float) -> float:
    """`majoriser_along`, for the computed sum."""
    moved = norm(x - z)
    if moved < 1e-150:
        return math.inf
    along = math.sqrt(total) * (1.0 + gamma(design.shape[0] + 8))
    spread = design.spread(x) + CARRIED * design.spread(z)
    bound = (along + math.sqrt(bend) * spread) / moved
    return bound * bound if bound < 1e150 else math.inf
