r"""Squares of several targets (`suffice.models.targets`) of blocks of rows, wherever these are:

    f(W) = 1/2 sum_i a_i ||x_i W - y_i||^2 + (l2/2) ||W||^2.

Margins and targets, N x t, stay with their rows; the loss, X^T (a (X W - Y)) and what bounds the rounding of this one
are found in the pass that makes the margins. Margins of target k that err by sigma_k ||x_i|| + epsilon move the
gradient by at most  ||diag(a)^(1/2) X|| ( ||sigma|| (sum_i a_i ||x_i||^2)^(1/2) + t^(1/2) epsilon ).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, norm
from suffice.models.jobs import Gram, pulled
from suffice.models.linear import CARRIED, majoriser_of
from suffice.models.targets import Targets
from suffice.rows.blocks import Block, Blocked, Length, Most
from suffice.rows.design import as_dask, is_dask
from suffice.rows.rounding import TINY, gamma


@dataclass(frozen=True)
class TargetsAt:
    """The loss, X^T (a (m - Y)), and the lengths of a^(1/2) ||x_i|| and a^(1/2) (m - Y). a, Y, norms are given.

    Without `pull` X is not read, and there is no gradient."""

    pull: bool = True
    keeps: bool = False

    @property
    def reads(self) -> bool:
        return self.pull

    def __call__(self, block: Block) -> Any:
        a, gap = block["a"], block.margins[0] - block["Y"]
        root = np.sqrt(a)
        gradient = pulled(block.X, a[:, None] * gap) if self.pull else np.zeros(0)
        size = norm((root[:, None] * gap).ravel())
        return 0.5 * float(a @ (gap * gap).sum(axis=1)), gradient, Length(norm(root * block["norms"])), Length(size)


@dataclass(frozen=True)
class TargetsAlong:
    """sum_i a_i ||n_i - m_i||^2. a is given."""

    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> float:
        m, n = block.margins
        return float(block["a"] @ ((n - m) ** 2).sum(axis=1))


@dataclass(frozen=True)
class Broken:
    """Whether a target is not finite. Y is given."""

    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> Most:
        return Most(not np.isfinite(block["Y"]).all())


def rows_of_targets(X: Blocked, Y: Any) -> tuple[Any, int]:
    """Y, an array or a `dask.array` of N x t, to go with the rows of X, and t."""
    Y = as_dask(Y)
    if not is_dask(Y):
        Y = np.ascontiguousarray(Y, dtype=np.float64)
    elif math.isnan(Y.shape[0]):  # until the parts of a file are counted
        Y = Y.compute_chunk_sizes()
    if Y.ndim != 2 or Y.shape[1] < 1 or Y.shape[0] != X.shape[0]:
        raise ValueError(f"Y must be finite, with one of {X.shape[0]} rows for each of X, got {Y.shape}")
    rows = X.rows_of(Y.astype(np.float64))
    if X.run(Broken(), Y=rows):
        raise ValueError("Y must be finite, got NaN or infinite entries")
    return rows, int(Y.shape[1])


@dataclass(frozen=True, eq=False)
class RowsTargets(Targets):
    """`Targets`, for blocks of rows; images are `Margins`."""

    number: int = 1  # t

    @property
    def count(self) -> int:
        return self.number

    def image(self, x: Array) -> Any:
        return self.design.X.margins(x.reshape(self.count, -1).T)

    def _at(self, image: Any, pull: bool = True) -> Any:
        """What `TargetsAt` gives, once."""
        owners = self.design, self.Y
        given = {"a": self.design.weights, "Y": self.Y, "norms": self.design.row_norms}
        if pull or image.knows("targets", owners):
            return image.once("targets", owners, lambda: self.design.X.run(TargetsAt(), [image], **given))
        return self.design.X.run(TargetsAt(pull=False), [image], **given)

    def value_at(self, x: Array, image: Any) -> float:
        # On the way between two points there is no pass over X.
        return float(self._at(image, pull=image.is_product)[0]) + 0.5 * self.l2 * float(x @ x)

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
        total = self.design.X.run(TargetsAlong(), [z_image, x_image], a=self.design.weights)
        return min(majoriser_of(self.design, 1.0, z, x, float(total)) + self.l2, self.L)

    def _gram(self, columns: npt.NDArray[np.intp]) -> Array:
        if self.design.gram is not None:
            return self.design.gram[np.ix_(columns, columns)]
        G: Array = self.design.X.run(Gram(columns), C=self.design.weights, norms=self.design.row_norms)
        return G

    def losses(self, image: Any) -> Array:
        raise TypeError("losses of blocks of rows stay with them")

    def slopes(self, image: Any) -> Array:
        raise TypeError("slopes of blocks of rows stay with them")
