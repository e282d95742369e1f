r"""Squares of several targets on held-out blocks of rows, wherever these are:

    loss(W) = sum_k c_k sum_i s_i (x_i . w_k - y_ik)^2 = sum_b r_b^2,

with one residual r_b for every block, the root of its rows' part. Bounds are those of `suffice.losses.SquaredErrors`,
which need no more than sums that one pass over X gives;  d r_b / d w_k = (c_k / r_b) sum_i s_i (x_i . w_k - y_ik) x_i.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.models.jobs import pulled
from suffice.prove.held_out import Linear, LossAt, root_error
from suffice.rows.blocks import Block
from suffice.rows.design import Design
from suffice.rows.rounding import gamma, norm_rounding


@dataclass(frozen=True)
class SquaresAt:
    """Sums at a point: of a c (m - Y)^2, of a c (m - Y) x^T, and by targets of a (m - Y)^2 and a Y^2. a, Y are
    given."""

    scales: Array
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        a, Y = block["a"], block["Y"]
        gap = block.margins[0] - Y
        squares = a @ gap**2
        return [float(squares @ self.scales)], pulled(block.X, a[:, None] * gap * self.scales), squares, a @ Y**2


@dataclass(frozen=True)
class SquaresPushed:
    """<sum_i a_i c (m_i - y_i) x_i^T, V>, block by block, for every column of V; or, with `u`, one number per block,
    the sum of these matrices times u. a, Y are given."""

    scales: Array
    V: Array | None
    u: Array | None = None
    block: int = 1
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        G = pulled(block.X, block["a"][:, None] * (block.margins[0] - block["Y"]) * self.scales)
        if self.u is not None:
            return self.u[block.start // self.block] * G
        assert self.V is not None
        return [np.ascontiguousarray(G.T).ravel() @ self.V]


@dataclass(frozen=True, eq=False)
class HeldOutTargetsRows:
    """The loss of the module's text, s being `total` times the design's weights; `Y` goes with the rows."""

    design: Design
    Y: Any
    scales: Array
    total: float
    blur: float

    @property
    def given(self) -> dict[str, Any]:
        """What goes with the rows."""
        return {"a": self.design.weights, "Y": self.Y}

    def at(self, w: Array) -> LossAt:
        design, c, total, t = self.design, self.scales, self.total, len(self.scales)
        W, rows = w.reshape(t, -1), design.shape[0]
        margins = design.X.margins(W.T)
        parts, pull, squares, sizes = design.X.run(SquaresAt(c), [margins], **self.given)
        residuals, up = np.sqrt(total * np.array(parts)), 1.0 + gamma(rows + t + 16)
        loss = float(residuals @ residuals)
        steep = 2.0 * total * (norm(pull.ravel()) + design.pull_rounding * norm(c * np.sqrt(squares)) * up)
        length = math.sqrt(float(c.max()) * total * design.squared_norm)
        each = [math.sqrt(total) * (design.spread(one) + self.blur) for one in W]
        spread = norm(np.sqrt(c) * np.array(each))
        rounding = norm_rounding(residuals, total * float(c.max()), rows * t) + gamma(rows + t + 16) * norm(residuals)
        rounding += 4.0 * EPS * math.sqrt(total * float(c @ sizes)) * up

        def error(radius: float) -> float:
            R = min(radius, 1e150)
            far = length * R + spread
            change = (steep * R + 2.0 * math.sqrt(loss) * spread + far * far) * up
            return min(root_error(loss, loss - change, loss + change), far) + rounding

        return LossAt(residuals, error, linear=self._linear(margins, residuals))

    def _linear(self, margins: Any, residuals: Array) -> Linear:
        X, c = self.design.X, self.scales
        inverse = self.total / np.where(residuals > 0.0, residuals, math.inf)

        def forward(V: Array) -> Array:
            moves: Array = inverse[:, None] * np.array(X.run(SquaresPushed(c, V), [margins], **self.given))
            return moves

        def adjoint(u: Array) -> Array:
            job = SquaresPushed(c, None, inverse * u, X.block)
            return np.ascontiguousarray(X.run(job, [margins], **self.given).T).ravel()

        return Linear(forward, adjoint)
