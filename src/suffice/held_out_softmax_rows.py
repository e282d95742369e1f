r"""Scores of multinomial logistic regression without intercepts on held-out blocks of rows, wherever these are:

    loss(W) = share sum_i v_i phi(m_i, y_i) = sum_b r_b^2,        m_i = W x_i,

phi the Brier score or the log loss (`suffice.held_out_softmax`), with one residual r_b for every block, the root of its
rows' part. With rho >= ||W - W_hat||, the loss moves by no more than  share (||sum_i v_i phi'_i x_i^T|| rho + phi''/2
(||diag(v)^(1/2) X|| rho)^2),  from sums that one pass over X gives. Rounding moves margins of a row by no more than
delta_i, which counts by |phi'_i| to first order; phi itself errs like margins that are a few units off.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.held_out import Linear, LossAt, root_error
from suffice.held_out_softmax import SOFTMAX_SCORES
from suffice.terms.blocks import Block, Length, Most
from suffice.terms.design import Design
from suffice.terms.jobs import pulled
from suffice.terms.rounding import gamma, norm_rounding
from suffice.terms.row_softmax import RowsMultinomial, labels_of


@dataclass(frozen=True)
class SoftmaxScoreAt:
    """Sums at a point: of phi, of v phi' x^T, its terms' length, sum v |phi'| (||x_i|| slack), sum v |phi'|, and the
    largest margin. a, y, norms are given."""

    scoring: str
    slack: float
    columns: int
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        v, pulls, residuals, m, X, norms = _counting(block, self.scoring)
        if len(v) == 0:
            empty = np.zeros((self.columns, block.margins[0].shape[1]))
            return [0.0], empty, Length(0.0), 0.0, 0.0, Most(0.0)
        sizes = np.sqrt((pulls * pulls).sum(axis=1))
        return (
            [float((v[:, None] * residuals * residuals).sum())],
            pulled(X, v[:, None] * pulls),
            Length(norm(np.sqrt(v) * sizes)),
            float(v @ (sizes * norms)) * self.slack,
            float(v @ sizes),
            Most(float(np.abs(m).max())),
        )


def _counting(block: Block, scoring: str) -> tuple[Array, Array, Array, Array, Array, Array]:
    """v, phi', residuals, margins, X and norms of the rows that count."""
    a, m, labels = block["a"], block.margins[0], labels_of(block)
    X, norms, counts = block.X, block["norms"], a > 0.0
    if not counts.all():
        a, m, labels, X, norms = a[counts], m[counts], labels[counts], X[counts], norms[counts]
    onehot = np.eye(m.shape[1])[labels]
    phi = SOFTMAX_SCORES[scoring]
    if len(a) == 0:
        return a, m, m, m, X, norms
    return a, phi.derivative(m, onehot), phi.residuals(m, onehot), m, X, norms


@dataclass(frozen=True)
class SoftmaxPushed:
    """<sum_i v_i phi'_i x_i^T, V>, block by block, for every column of V; or, with `u`, one number per block, the sum
    of these matrices times u."""

    scoring: str
    V: Array | None
    u: Array | None = None
    block: int = 1
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        v, pulls, _, m, X, _ = _counting(block, self.scoring)
        G = pulled(X, v[:, None] * pulls) if len(v) else np.zeros((X.shape[1], m.shape[1]))
        if self.u is not None:
            return self.u[block.start // self.block] * G
        assert self.V is not None
        return [np.ascontiguousarray(G.T).ravel() @ self.V]


@dataclass(frozen=True, eq=False)
class HeldOutSoftmaxRows:
    """The loss share sum_i v_i phi(m_i, y_i) on held-out blocks of rows; `y` holds the numbers of classes."""

    design: Design
    y: Any
    scoring: str
    share: float
    train: RowsMultinomial

    def at(self, w: Array) -> LossAt:
        design, K, phi = self.design, self.train.classes, SOFTMAX_SCORES[self.scoring]
        margins = design.X.margins(w.reshape(K, -1).T)
        given = {"a": design.weights, "y": self.y, "norms": design.row_norms}
        job = SoftmaxScoreAt(self.scoring, design.margin_rounding(w) * norm(w), design.shape[1])
        parts, pulls, weighted, blurred, absolute, largest = design.X.run(job, [margins], **given)
        rows, up = design.shape[0], 1.0 + gamma(design.shape[0] + K + 16)
        residuals = np.sqrt(self.share * np.array(parts))
        loss = float(residuals @ residuals)
        of_phi = 4.0 * EPS * math.sqrt(K) * (float(largest) + K + 8.0)
        spectral, spread = math.sqrt(design.squared_norm), design.spread(w) + of_phi
        gradient = norm(pulls.ravel()) + design.pull_rounding * float(weighted) * up
        gradient += spectral * phi.curvature * of_phi  # slopes that are a few units off, wherever they are small
        shaken = (blurred + absolute * of_phi) * up + 2.0 * of_phi
        rounding = norm_rounding(residuals) + gamma(rows + K + 16) * norm(residuals)

        def error(radius: float) -> float:
            reach = min(radius, sys.float_info.max)
            far = spectral * reach + spread
            if not far < 1e150:
                return math.inf
            change = self.share * (gradient * reach + shaken + 0.5 * phi.curvature * far * far) * up
            by_loss = root_error(loss, loss - change, loss + change)
            return min(by_loss, math.sqrt(self.share) * phi.slope * far) + rounding

        return LossAt(residuals, error, None, self._linear(margins, given, residuals))

    def _linear(self, margins: Any, given: dict[str, Any], residuals: Array) -> Linear:
        X = self.design.X
        inverse = 0.5 * self.share / np.where(residuals > 0.0, residuals, math.inf)

        def forward(V: Array) -> Array:
            moves: Array = inverse[:, None] * np.array(X.run(SoftmaxPushed(self.scoring, V), [margins], **given))
            return moves

        def adjoint(u: Array) -> Array:
            job = SoftmaxPushed(self.scoring, None, inverse * u, X.block)
            return np.ascontiguousarray(X.run(job, [margins], **given).T).ravel()

        return Linear(forward, adjoint)
