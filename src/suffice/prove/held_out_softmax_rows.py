r"""Scores of multinomial logistic regression on held-out blocks of rows, wherever these are:

    loss(W) = share sum_i v_i phi(m_i, y_i) = sum_b r_b^2,        m_i = W x_i + b(W),

phi the Brier score or the log loss (`prove.held_out_softmax`), with one residual r_b for every block, the root of its
rows' part. With rho >= ||W - W_hat|| and beta what the intercepts may move, plus their error, the loss moves by no more
than  share (||sum_i v_i phi'_i x_i^T|| rho + ||sum_i v_i phi'_i|| beta + phi''/2 (||diag(v)^(1/2) X|| rho + beta)^2),
from sums that one pass over X gives. Rounding moves margins of a row by no more than delta_i, which counts by |phi'_i|
to first order; phi itself errs like margins that are a few units off. Where the minimiser W + h is verified
(`suffice.prove.verified_softmax`) h bounds what margins move, b included, in one more pass over X.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.models.jobs import pulled
from suffice.models.row_softmax import RowsMultinomial
from suffice.models.softmax_jobs import labels_of
from suffice.prove.held_out import Linear, LossAt, root_error
from suffice.prove.held_out_softmax import SOFTMAX_SCORES, centred_moves, slope_sizes
from suffice.prove.softmax_factor import SoftmaxFactor
from suffice.prove.verified import Verification
from suffice.prove.verified_softmax import SoftmaxVerification
from suffice.prove.verified_softmax_blocks import travelling
from suffice.rows.blocks import Block, Length, Most
from suffice.rows.design import OF_FACTORS, Design
from suffice.rows.rounding import gamma, norm_rounding


@dataclass(frozen=True)
class SoftmaxScoreAt:
    """Sums at a point: of phi, of v phi' x^T, its terms' length, v phi', v |phi'| by classes and in all, sum v |phi'|
    (||x_i|| slack), and the largest margin. a, y, norms are given."""

    scoring: str
    slack: float
    columns: int
    b: Array
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        v, pulls, residuals, m, X, norms = _counting(block, self.scoring, self.b)
        if len(v) == 0:
            none = 0.0 * self.b
            return [0.0], np.zeros((self.columns, len(none))), Length(0.0), none, none, 0.0, 0.0, Most(0.0)
        sizes = np.sqrt((pulls * pulls).sum(axis=1))
        return (
            [float((v[:, None] * residuals * residuals).sum())],
            pulled(X, v[:, None] * pulls),
            Length(norm(np.sqrt(v) * sizes)),
            v @ pulls,
            v @ np.abs(pulls),
            float(v @ sizes),
            float(v @ (sizes * norms)) * self.slack,
            Most(float(np.abs(m).max())),
        )


def _counting(block: Block, scoring: str, b: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
    """v, phi', residuals, margins, X and norms of the rows that count."""
    a, m, labels = block["a"], block.margins[0], labels_of(block)
    X, norms, counts = block.X, block["norms"], a > 0.0
    if not counts.all():
        a, m, labels, X, norms = a[counts], m[counts], labels[counts], X[counts], norms[counts]
    m = m + b
    onehot = np.eye(m.shape[1])[labels]
    phi = SOFTMAX_SCORES[scoring]
    if len(a) == 0:
        return a, m, m, m, X, norms
    return a, phi.derivative(m, onehot), phi.residuals(m, onehot), m, X, norms


@dataclass(frozen=True)
class SoftmaxMoved:
    """Sums for margins that move by B_i n, n being scaled, less their mean over classes, and by no more than `doubt`
    times their norms and a blur of  slope ||x_i|| + even  besides. With sizes of slopes, |phi'| + 4 p:

        v phi' . moved, v sizes . |moved|, v sizes . rounding, v ||sizes|| blur,
        by classes v sizes^2 and v sizes,  and  ||v^(1/2) far||,  far_i what the margins of a row move in all.

    a, y, norms are given."""

    scoring: str
    b: Array
    factor: SoftmaxFactor
    n: Array
    doubt: float
    slope: float
    even: float
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        v, slopes, _, m, X, norms = _counting(block, self.scoring, self.b)
        K = len(self.b)
        if len(v) == 0:
            return 0.0, 0.0, 0.0, 0.0, np.zeros(K), np.zeros(K), Length(0.0)
        sizes, (moved, rounded) = slope_sizes(slopes, m), centred_moves(*self.factor.moved(X, self.n))
        blur = self.slope * norms + self.even
        # What h - n moves counts to second order here: it need not be known better than to a tenth of the rest.
        rest = math.sqrt(float(np.sum(v @ moved**2)) / float(v.sum()))
        further = self.doubt * self.factor.norms(X, 0.1 * rest / self.doubt)
        far = np.sqrt(np.sum((np.abs(moved) + rounded + further) ** 2, axis=1)) + blur
        return (
            float(v @ (slopes * moved).sum(axis=1)),
            float(v @ (sizes * np.abs(moved)).sum(axis=1)),
            float(v @ (sizes * rounded).sum(axis=1)),
            float(v @ (np.sqrt(np.sum(sizes**2, axis=1)) * blur)),
            v @ sizes**2,
            v @ sizes,
            Length(norm(np.sqrt(v) * far)),
        )


@dataclass(frozen=True)
class SoftmaxPushed:
    """<sum_i v_i phi'_i x_i^T, V> + sum_i v_i phi'_i . moved, block by block, for every column of V and `moved`; or,
    with `u`, one number per block, the sums of these matrices and vectors times u."""

    scoring: str
    b: Array
    V: Array | None
    moved: Array | None = None
    u: Array | None = None
    block: int = 1
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        v, pulls, _, m, X, _ = _counting(block, self.scoring, self.b)
        G = pulled(X, v[:, None] * pulls) if len(v) else np.zeros((X.shape[1], m.shape[1]))
        of_b = v @ pulls
        if self.u is not None:
            u = self.u[block.start // self.block]
            return u * G, u * of_b
        assert self.V is not None and self.moved is not None
        return [np.ascontiguousarray(G.T).ravel() @ self.V + of_b @ self.moved]


@dataclass(frozen=True, eq=False)
class HeldOutSoftmaxRows:
    """The loss share sum_i v_i phi(m_i, y_i) on held-out blocks of rows; `y` holds the numbers of classes."""

    design: Design
    y: Any
    scoring: str
    share: float
    train: RowsMultinomial

    @property
    def given(self) -> dict[str, Any]:
        """What goes with the rows."""
        return {"a": self.design.weights, "y": self.y, "norms": self.design.row_norms}

    def at(self, w: Array) -> LossAt:
        design, train, K, phi = self.design, self.train, self.train.classes, SOFTMAX_SCORES[self.scoring]
        margins, image = design.X.margins(w.reshape(K, -1).T), train.image(w)
        b, error_of_b = train.shift(image)
        job = SoftmaxScoreAt(self.scoring, design.margin_rounding(w) * norm(w), design.shape[1], b)
        parts, pulls, weighted, of_b, sizes, absolute, blurred, largest = design.X.run(job, [margins], **self.given)
        rows, up = design.shape[0], 1.0 + gamma(design.shape[0] + K + 16)
        residuals = np.sqrt(self.share * np.array(parts))
        loss = float(residuals @ residuals)
        of_phi = 4.0 * EPS * math.sqrt(K) * (float(largest) + norm(b) + K + 8.0)
        spectral, spread = math.sqrt(design.squared_norm), design.spread(w) + of_phi
        # slopes that are a few units off, wherever they are small
        gradient = norm(pulls.ravel()) + design.pull_rounding * float(weighted) * up + spectral * phi.curvature * of_phi
        pull = norm(of_b) + gamma(rows + K + 16) * norm(sizes) + phi.curvature * of_phi
        shaken = (blurred + absolute * of_phi) * up + 2.0 * of_phi
        rounding = norm_rounding(residuals, self.share, rows) + gamma(rows + K + 16) * norm(residuals)

        def bound(first: float, far: float) -> float:
            """The error of r for margins that move by `far` in all, and the loss by `first` to first order."""
            if not far < 1e150:
                return math.inf
            change = self.share * (first + 0.5 * phi.curvature * far * far) * up
            by_loss = root_error(loss, loss - change, loss + change)
            return min(by_loss, math.sqrt(self.share) * phi.slope * far) + rounding

        def error(radius: float) -> float:
            reach = min(radius, sys.float_info.max)
            beta = float(train.drift(w, image, reach)) + error_of_b
            return bound(gradient * reach + pull * beta + shaken, spectral * reach + beta + spread)

        def verified(proof: Verification) -> float:
            assert isinstance(proof, SoftmaxVerification)
            first, far = self._moved(proof, w, margins, b, of_phi, np.ascontiguousarray(pulls.T), of_b)
            return bound(first + shaken, far + spread)

        return LossAt(residuals, error, verified, self._linear(margins, image, b, residuals))

    def _moved(
        self, proof: SoftmaxVerification, w: Array, margins: Any, b: Array, of_phi: float, pulls: Array, of_b: Array
    ) -> tuple[float, float]:
        """By how much the exact minimiser moves the loss to first order, and the margins in all, at most; `pulls` and
        `of_b` are sum_i v_i phi'_i x_i^T, K x d, and sum_i v_i phi'_i."""
        design, K, factor = self.design, self.train.classes, proof.factor
        even = of_phi + 4.0 * EPS * norm(b) + norm(b - proof.b)
        job = SoftmaxMoved(
            self.scoring, b, travelling(factor), proof.step / factor.scale, proof.slack,
            design.margin_rounding(w) * norm(w), even,
        )  # fmt: skip
        along, sizes, rounded, blurred, squares, absolute, far = design.X.run(job, [margins], **self.given)
        up, rows = 1.0 + gamma(sum(design.shape) + K + 16), design.shape[0]
        entries = np.array([gamma(float(count) + OF_FACTORS + K + 16) for count in design.pull.roundings])
        entries = np.sqrt(squares)[:, None] * (entries * design.column_norms) * up + design.underflow
        of_intercepts = gamma(rows + K + 16) * absolute * up + design.underflow
        first = abs(along) + (gamma(rows * K + K + 16) * sizes + rounded + blurred) * up
        variables = factor.variables
        first += proof.against(variables.gathered(pulls, of_b), variables.gathered(entries, of_intercepts))
        return first * up, float(far) * up

    def _linear(self, margins: Any, image: Any, b: Array, residuals: Array) -> Linear:
        X, train = self.design.X, self.train
        inverse = 0.5 * self.share / np.where(residuals > 0.0, residuals, math.inf)

        def forward(V: Array) -> Array:
            moved = train.intercept_jacobian(image) @ V if train.intercept else np.zeros((len(b), V.shape[1]))
            job = SoftmaxPushed(self.scoring, b, V, moved)
            moves: Array = inverse[:, None] * np.array(X.run(job, [margins], **self.given))
            return moves

        def adjoint(u: Array) -> Array:
            job = SoftmaxPushed(self.scoring, b, None, None, inverse * u, X.block)
            pulled_back, of_b = X.run(job, [margins], **self.given)
            result = np.ascontiguousarray(pulled_back.T).ravel()
            return result + of_b @ train.intercept_jacobian(image) if train.intercept else result

        return Linear(forward, adjoint)
