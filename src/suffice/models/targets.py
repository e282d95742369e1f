r"""Squares of several targets at a time, with a ridge:

    f(W) = 1/2 sum_i a_i ||x_i W - y_i||^2 + (l2/2) ||W||^2,        W of d x t, one column for every target.

x is W target by target: the t columns of W, one after the other. Images are N x t. f is quadratic, and its Hessian is
X^T diag(a) X + l2 for every target, the same for all, so that

    mu = l2 + lambda_min(X^T diag(a) X),        L = l2 + ||diag(a)^(1/2) X||^2,

of which the first is proven where the matrix is kept: pure row-wise penalties are certified where the data supply the
curvature. `rows(d, t)` are the groups whose norms g may penalise: the weights of one column of X for all targets.

The loss, X^T (a (X W - Y)) and what bounds the rounding of this one are sums over rows, found where these are in the
pass that makes the margins. Margins of target k that err by sigma_k ||x_i|| + epsilon move the gradient by at most
||diag(a)^(1/2) X|| ( ||sigma|| (sum_i a_i ||x_i||^2)^(1/2) + t^(1/2) epsilon ).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, norm
from suffice.models.linear import CARRIED, MarginModel, majoriser_of
from suffice.rows.design import Design
from suffice.rows.gram import Gram
from suffice.rows.rounding import TINY, gamma
from suffice.rows.sums import Block, Job, Length, Most


@dataclass(frozen=True)
class TargetsAt(Job):
    """The loss, X^T (a (m - Y)), and the lengths of a^(1/2) ||x_i|| and a^(1/2) (m - Y). a, Y, norms are given.

    Without `pull` X is not read, and there is no gradient."""

    pull: bool = True

    @property
    def reads(self) -> bool:
        return self.pull

    def __call__(self, block: Block) -> Any:
        a, gap = block["a"], block.margins[0] - block["Y"]
        root = np.sqrt(a)
        gradient = block.pull(a[:, None] * gap) if self.pull else np.zeros(0)
        size = norm((root[:, None] * gap).ravel())
        return 0.5 * float(a @ (gap * gap).sum(axis=1)), gradient, Length(norm(root * block["norms"])), Length(size)


@dataclass(frozen=True)
class TargetsAlong(Job):
    """sum_i a_i ||n_i - m_i||^2. a is given."""

    reads = False

    def __call__(self, block: Block) -> float:
        m, n = block.margins
        return float(block["a"] @ ((n - m) ** 2).sum(axis=1))


@dataclass(frozen=True)
class Broken(Job):
    """Whether a target is not finite. Y is given."""

    reads = False

    def __call__(self, block: Block) -> Most:
        return Most(not np.isfinite(block["Y"]).all())


def rows_of_targets(design: Design, Y: Any) -> tuple[Any, int]:
    """Y, an array or a `dask.array` of N x t, to go with the rows of X, and t."""
    rows, count = design.matrix_of(Y)
    if design.rows.run(Broken(), Y=rows):
        raise ValueError("Y must be finite, got NaN or infinite entries")
    return rows, count


@dataclass(frozen=True, eq=False)
class Targets(MarginModel):
    """f of the module's text; `Y` is N x t, and `count` is t."""

    design: Design
    Y: Any
    l2: float = 0.0
    count: int = 0

    def __post_init__(self) -> None:
        if not self.count:
            object.__setattr__(self, "count", int(self.Y.shape[1]))

    @property
    def curvature(self) -> float:
        return 1.0

    @property
    def mu(self) -> float:
        """A proven modulus of strong convexity."""
        return self.l2 + self.design.least_curvature

    def image(self, x: Array) -> Any:
        return self.rows.margins(np.ascontiguousarray(x.reshape(self.count, -1).T))

    def losses(self, image: Array) -> Array:
        losses: Array = 0.5 * np.sum((image - self.Y) ** 2, axis=1)
        return losses

    def slopes(self, image: Array) -> Array:
        slopes: Array = image - self.Y
        return slopes

    def _at(self, image: Any, pull: bool = True) -> Any:
        """What `TargetsAt` gives, once."""
        owners, known = (self.design.weights, self.Y), self.rows.known(image)
        given = {"a": self.design.weights, "Y": self.Y, "norms": self.design.row_norms}
        if pull or known.knows("targets", owners):
            return known.once("targets", owners, lambda: self.rows.run(TargetsAt(), [image], **given))
        return self.rows.run(TargetsAt(pull=False), [image], **given)

    def value_at(self, x: Array, image: Any) -> float:
        # On the way between two points there is no pass over X.
        return float(self._at(image, pull=self.rows.all_at_once(image))[0]) + 0.5 * self.l2 * float(x @ x)

    def gradient_at(self, x: Array, image: Any) -> Array:
        return np.ascontiguousarray(self._at(image)[1].T).ravel() + self.l2 * x

    def gradient_rounding(self, x: Array, image: Any) -> float:
        design, (_, _, rows, gaps) = self.design, self._at(image, pull=False)
        each = [design.margin_rounding(w) * norm(w) for w in x.reshape(self.count, -1)]
        up = 1.0 + gamma(design.shape[0] + self.count + 16)
        off = (CARRIED * norm(np.array(each)) * rows + TINY * len(x) * math.sqrt(self.count)) * up
        through = math.sqrt(design.squared_norm) * off + design.pull_rounding * (gaps * up + off)
        return float(through * up + 2.0 * EPS * self.l2 * norm(x) + math.sqrt(self.count) * design.underflow)

    def majoriser(self, z: Array, z_image: Any, x: Array, x_image: Any) -> float:
        total = self.rows.run(TargetsAlong(), [z_image, x_image], a=self.design.weights)
        return min(majoriser_of(self.design, 1.0, z, x, float(total)) + self.l2, self.L)

    def hessian(self, image: Any, working: npt.NDArray[np.intp]) -> Array:
        """The Hessian on these variables."""
        target, column = np.divmod(working, self.design.shape[1])
        columns, place = np.unique(column, return_inverse=True)
        H: Array = np.where(target[:, None] == target, self._gram(columns)[np.ix_(place, place)], 0.0)
        H[np.diag_indices(len(H))] += self.l2
        return H

    def _gram(self, columns: npt.NDArray[np.intp]) -> Array:
        if self.design.gram is not None:
            return self.design.gram[np.ix_(columns, columns)]
        G: Array = self.rows.run(Gram(columns), C=self.design.weights, norms=self.design.row_norms)
        return G


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
