r"""Squares of several targets at a time, with a ridge:

    f(W) = 1/2 sum_i a_i ||x_i W - y_i||^2 + (l2/2) ||W||^2,        W of d x t, one column for every target.

x is W target by target: the t columns of W, one after the other. Images are N x t. f is quadratic, and its Hessian is
X^T diag(a) X + l2 for every target, the same for all, so that

    mu = l2 + lambda_min(X^T diag(a) X),        L = l2 + ||diag(a)^(1/2) X||^2,

of which the first is proven where the matrix is kept: pure row-wise penalties are certified where the data supply the
curvature. `rows(d, t)` are the groups whose norms g may penalise: the weights of one column of X for all targets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array, host
from suffice.lazy import cached_property
from suffice.models.linear import LinearModel, MarginModel, majoriser_along
from suffice.models.margin_losses import SQUARED
from suffice.rows.design import Design
from suffice.rows.gram import gram


@dataclass(frozen=True, eq=False)
class Targets(MarginModel):
    """f of the module's text; `Y` is N x t."""

    design: Design
    Y: Array
    l2: float = 0.0

    @property
    def curvature(self) -> float:
        return 1.0

    @property
    def count(self) -> int:
        """t."""
        return int(self.Y.shape[1])

    @property
    def mu(self) -> float:
        """A proven modulus of strong convexity."""
        return self.l2 + self.design.least_curvature

    def image(self, x: Array) -> Array:
        image: Array = self.design.margins(x.reshape(self.count, -1).T)
        return image

    def losses(self, image: Array) -> Array:
        losses: Array = 0.5 * np.sum((image - self.Y) ** 2, axis=1)
        return losses

    def slopes(self, image: Array) -> Array:
        return image - self.Y

    def gradient_at(self, x: Array, image: Array) -> Array:
        pulls = self.design.weights[:, None] * self.slopes(image)
        return np.ascontiguousarray(self.design.adjoint(pulls).T).ravel() + self.l2 * x

    @cached_property
    def _single(self) -> list[LinearModel]:
        return [LinearModel(self.design, y, SQUARED, self.l2) for y in self.Y.T]

    def gradient_rounding(self, x: Array, image: Array) -> float:
        W = x.reshape(self.count, -1)
        return math.hypot(*(one.gradient_rounding(w, m) for one, w, m in zip(self._single, W, image.T, strict=True)))

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        change = np.sqrt(np.sum((x_image - z_image) ** 2, axis=1))
        return min(majoriser_along(self.design, 1.0, z, x, change, np.ones(len(change))) + self.l2, self.L)

    def hessian(self, image: Array, working: npt.NDArray[np.intp]) -> Array:
        """The Hessian on these variables."""
        target, column = np.divmod(working, self.design.shape[1])
        columns, place = np.unique(column, return_inverse=True)
        H: Array = np.where(target[:, None] == target, self._gram(columns)[np.ix_(place, place)], 0.0)
        H[np.diag_indices(len(H))] += self.l2
        return H

    def _gram(self, columns: npt.NDArray[np.intp]) -> Array:
        if self.design.gram is not None:
            return self.design.gram[np.ix_(columns, columns)]
        return gram(self.design.X, columns, np.sqrt(host(self.design.weights)))[0]


def rows(columns: int, count: int) -> list[npt.NDArray[np.intp]]:
    """The places of every column's weights, for all targets."""
    return [np.arange(count) * columns + j for j in range(columns)]


def of_zero(model: Targets, by_rows: bool) -> float:
    """The least l1 for which the rounding of the gradient lets us prove that W = 0 is the solution, by norms of rows or
    weight by weight."""
    origin = np.zeros(model.count * model.design.shape[1])
    image = model.image(origin)
    gradient = model.gradient_at(origin, image).reshape(model.count, -1)
    sizes = np.sqrt(np.sum(gradient**2, axis=0)) if by_rows else np.abs(gradient)
    return (float(sizes.max()) + model.gradient_rounding(origin, image)) * (1.0 + 1e-12)
