r"""Squares of several targets at a time, with a ridge:

    f(W) = 1/2 sum_i a_i ||x_i W - y_i||^2 + (l2/2) ||W||^2,        W of d x t, one column for every target.

x is W target by target: the t columns of W, one after the other. Images are N x t. f is quadratic, and its Hessian is
X^T diag(a) X + l2 for every target, the same for all, so that

    mu = l2 + lambda_min(X^T diag(a) X),        L = l2 + ||diag(a)^(1/2) X||^2,

of which the first is proven where the matrix is kept: pure row-wise penalties are certified where the data supply the
curvature. `rows(d, t)` are the groups whose norms g may penalise: the weights of one column of X for all targets.

Margins of target k that err by sigma_k ||x_i|| + epsilon move the gradient by at most ||diag(a)^(1/2) X|| times the
length of all a_i^(1/2) (sigma_k ||x_i|| + epsilon).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array, norm
from suffice.models.jobs import Slack
from suffice.models.linear import RowModel
from suffice.models.margin_losses import SQUARED, MarginLoss
from suffice.rows.design import Design
from suffice.rows.gram import Gram
from suffice.rows.rounding import TINY


@dataclass(frozen=True, eq=False)
class Targets(RowModel):
    """f of the module's text; `y` is N x t, and `outputs` is t."""

    design: Design
    y: Any
    l2: float = 0.0
    outputs: int = 0
    loss: MarginLoss = field(default=SQUARED, init=False)

    def __post_init__(self) -> None:
        if not self.outputs:
            object.__setattr__(self, "outputs", int(self.y.shape[1]))

    @property
    def mu(self) -> float:
        """A proven modulus of strong convexity."""
        return self.l2 + self.design.least_curvature

    def slack(self, x: Array, image: Any, products: float) -> Slack:
        each = [products * self.design.margin_rounding(w) * norm(w) for w in x.reshape(self.outputs, -1)]
        return Slack(np.array(each), TINY * len(x))

    def hessian(self, image: Any, working: npt.NDArray[np.intp]) -> Array:
        """The Hessian on these variables."""
        target, column = np.divmod(working, self.design.shape[1])
        columns, place = np.unique(column, return_inverse=True)
        known, C = self.design.gram, self.design.weights
        G = self.rows.run(Gram(columns), C=C) if known is None else known[np.ix_(columns, columns)]
        H: Array = np.where(target[:, None] == target, G[np.ix_(place, place)], 0.0)
        H[np.diag_indices(len(H))] += self.l2
        return H


def rows(columns: int, count: int) -> list[npt.NDArray[np.intp]]:
    """The places of every column's weights, for all targets."""
    return [np.arange(count) * columns + j for j in range(columns)]
