r"""Scores of multinomial logistic regression (`suffice.models.multinomial`) on held-out data.

With rho >= ||W - W_hat||, ||dm_i|| <= ||x_i|| rho + beta, beta = what b may move, plus its error. The Brier score phi =
||p - onehot||^2 has a residual p - onehot that is 1/2-Lipschitz in m_i, and |phi''| <= 2/4 + 2 = 5/2; the log loss has
phi'' <= 1/2. Losses move by the first-order bound of `suffice.prove.held_out`. Where the minimiser W + h is verified
(`suffice.prove.verified_softmax`) h bounds dm_i itself, b included; phi does not see what all classes of a row have in
common.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax, softmax

from suffice.arrays import EPS, Array, norm
from suffice.models.multinomial import Multinomial
from suffice.prove.held_out import SLOPE_ROUNDING, Linear, LossAt, root_error
from suffice.prove.signed_factor import row_norms
from suffice.prove.verified import Verification
from suffice.prove.verified_softmax import SoftmaxVerification
from suffice.rows.design import OF_FACTORS, Design
from suffice.rows.rounding import TINY, gamma, norm_rounding
from suffice.solvers.doubt import Doubt, Steep


@dataclass(frozen=True)
class SoftmaxBrier:
    """phi = ||p - onehot||^2, p the probabilities of margins m."""

    curvature: float = 2.5
    slope: float = 0.5

    def residuals(self, m: Array, onehot: Array) -> Array:
        result: Array = softmax(m, axis=1) - onehot
        return result

    def derivative(self, m: Array, onehot: Array) -> Array:
        p = softmax(m, axis=1)
        gap = p - onehot
        result: Array = 2.0 * p * (gap - np.sum(p * gap, axis=1, keepdims=True))
        return result

    def forward(self, m: Array, onehot: Array, M: Array) -> Array:
        """How the residuals move with margins that move by M, a third axis for directions."""
        p = softmax(m, axis=1)[:, :, None]
        result: Array = p * (M - np.sum(p * M, axis=1, keepdims=True))
        return result

    def adjoint(self, m: Array, onehot: Array, u: Array) -> Array:
        p = softmax(m, axis=1)
        result: Array = p * (u - np.sum(p * u, axis=1, keepdims=True))
        return result


@dataclass(frozen=True)
class SoftmaxLog:
    """phi = -log p of the class seen."""

    curvature: float = 0.5
    slope: float = math.inf

    def residuals(self, m: Array, onehot: Array) -> Array:
        result: Array = np.sqrt(np.maximum(-np.sum(onehot * log_softmax(m, axis=1), axis=1, keepdims=True), 0.0))
        return result

    def derivative(self, m: Array, onehot: Array) -> Array:
        result: Array = softmax(m, axis=1) - onehot
        return result

    def forward(self, m: Array, onehot: Array, M: Array) -> Array:
        """How the residuals move with margins that move by M, a third axis for directions."""
        result: Array = np.sum(self._slopes(m, onehot)[:, :, None] * M, axis=1, keepdims=True)
        return result

    def adjoint(self, m: Array, onehot: Array, u: Array) -> Array:
        return self._slopes(m, onehot) * u

    def _slopes(self, m: Array, onehot: Array) -> Array:
        return 0.5 * self.derivative(m, onehot) / np.maximum(self.residuals(m, onehot), TINY)


SOFTMAX_SCORES: dict[str, SoftmaxBrier | SoftmaxLog] = {
    "neg_brier_score": SoftmaxBrier(),
    "neg_log_loss": SoftmaxLog(),
}


def slope_sizes(slopes: Array, m: Array) -> Array:
    """What slopes are rounded relative to: a class's slope is so to its probability, not to itself."""
    sizes: Array = np.abs(slopes) + 4.0 * softmax(m, axis=1)
    return sizes


def centred_moves(moved: Array, rounded: Array) -> tuple[Array, Array]:
    """How margins move, and the rounding of that, without what all classes of a row have in common: slopes of a row add
    up to 0."""
    K = moved.shape[1]
    rounded = rounded + rounded.mean(axis=1, keepdims=True)
    rounded += gamma(K + 8) * 2.0 * np.abs(moved).max(axis=1, keepdims=True)
    return moved - moved.mean(axis=1, keepdims=True), rounded


@dataclass(frozen=True, eq=False)
class HeldOutSoftmax:
    """The loss share sum_i v_i phi(m_i, y_i) on held-out rows, phi the Brier score or the log loss."""

    design: Design
    onehot: Array
    scoring: str
    share: float
    train: Multinomial

    def at(self, w: Array) -> LossAt:
        v, train = self.design.weights, self.train
        image = train.image(w)
        b, error_of_b = train.shift(image)
        m = self.design.margins(w.reshape(train.classes, -1).T) + b
        phi = SOFTMAX_SCORES[self.scoring]
        residuals = (np.sqrt(self.share * v)[:, None] * phi.residuals(m, self.onehot)).ravel()
        pulls = phi.derivative(m, self.onehot)
        loss = float(residuals @ residuals)
        blur = self.design.pull_rounding * norm((np.sqrt(v)[:, None] * pulls).ravel())
        pulls = v[:, None] * pulls
        gradient = norm(self.design.adjoint(pulls).ravel()) + blur
        pull, spectral = norm(pulls.sum(axis=0)), math.sqrt(self.design.squared_norm)
        pull += gamma(len(v)) * norm(np.abs(pulls).sum(axis=0))
        spread = self.design.spread(w)  # rounding of the margins
        blurred = (
            self.design.margin_rounding(w) * norm(w) * float(np.sqrt(np.sum(pulls**2, axis=1)) @ self.design.row_norms)
        )
        of_sums = 4.0 * EPS * math.sqrt(train.classes) * (float(np.abs(m).max()) + train.classes + 8.0)
        rounding = norm_rounding(residuals, self.share)

        def bound(first: float, far: float) -> float:
            """The error of r for margins that move by `far` in all, and the loss by `first` to first order."""
            if not far < 1e150:
                return math.inf
            change = self.share * (first + 0.5 * phi.curvature * far * far)
            by_loss = root_error(loss, loss - change, loss + change)
            return min(by_loss, math.sqrt(self.share) * phi.slope * far) + rounding

        def error(radius: float) -> float:
            reach = min(radius, sys.float_info.max)
            beta = float(train.drift(w, image, reach) + error_of_b + of_sums)
            return bound(gradient * reach + pull * beta + blurred, float(spectral * reach + beta + spread))

        def verified(proof: Verification) -> float:
            assert isinstance(proof, SoftmaxVerification)
            return bound(*self._moved(proof, w, m, b, of_sums))

        return LossAt(
            residuals, error, verified, self._linear(w, m), lambda doubt: self._steep(w, m, b, doubt, of_sums)
        )

    def _steep(self, w: Array, m: Array, b: Array, doubt: Doubt, of_sums: float) -> Steep:
        """Slopes of a row err, over all classes, by phi'' times what margins move, and by their own rounding."""
        design, K, v = self.design, self.train.classes, self.design.weights
        phi, up = SOFTMAX_SCORES[self.scoring], 1.0 + gamma(sum(design.shape) + K + 16)
        each = doubt.each.reshape(K, -1) + design.margin_rounding(w) * np.abs(w.reshape(K, -1))
        h = np.column_stack([design.absolute_margins(one) for one in each]) * up + doubt.intercept
        h += of_sums + 4.0 * EPS * (np.abs(m) + np.abs(b)) + (0.0 if doubt.b is None else np.abs(b - doubt.b))
        slopes = phi.derivative(m, self.onehot)
        off = phi.curvature * row_norms(h) + SLOPE_ROUNDING * (K + 8.0) * (1.0 + np.abs(m).max(axis=1))
        pulls, lengths = v[:, None] * slopes, np.sqrt(v @ slopes**2)
        gammas = np.array([gamma(float(count) + OF_FACTORS + K + 16) for count in design.pull.roundings])
        entries = design.column_norms * norm(np.sqrt(v) * off) + lengths[:, None] * (gammas * design.column_norms)
        of_value = self.share * (entries + design.underflow).ravel() * up
        of_b = float(v @ off) + gamma(len(v) + K + 16) * np.abs(pulls).sum(axis=0)
        value = self.share * np.ascontiguousarray(design.adjoint(pulls).T).ravel()
        of_value += 4.0 * EPS * np.abs(value)
        of_b = self.share * of_b * up * (1.0 + 8.0 * EPS)
        return Steep(value, of_value, norm(of_value) * up, self.share * pulls.sum(axis=0), of_b)

    def _linear(self, w: Array, m: Array) -> Linear:
        train, phi, root = self.train, SOFTMAX_SCORES[self.scoring], np.sqrt(self.share * self.design.weights)
        K = train.classes

        def forward(V: Array) -> Array:
            k = V.shape[1]
            by_columns = V.reshape(K, -1, k).transpose(1, 0, 2).reshape(-1, K * k)
            moved = self.design.margins(by_columns).reshape(-1, K, k)
            moved = moved + train.intercept_product(train.image(w), train.design.margins(by_columns).reshape(-1, K, k))
            residuals: Array = root[:, None, None] * phi.forward(m, self.onehot, moved)
            return residuals.reshape(-1, k)

        def adjoint(u: Array) -> Array:
            pulls = phi.adjoint(m, self.onehot, root[:, None] * u.reshape(len(m), -1))
            pulled = self.design.adjoint(pulls).T + train.intercept_adjoint(train.image(w), pulls.sum(axis=0))
            return np.ascontiguousarray(pulled).ravel()

        return Linear(forward, adjoint)

    def _moved(self, proof: SoftmaxVerification, w: Array, m: Array, b: Array, of_sums: float) -> tuple[float, float]:
        """By how much the exact minimiser moves the loss to first order, and the margins in all, at most."""
        design, K, v = self.design, self.train.classes, self.design.weights
        slopes = SOFTMAX_SCORES[self.scoring].derivative(m, self.onehot)
        sizes = slope_sizes(slopes, m)
        moved, rounded = centred_moves(*proof.moved(design.X))
        pulls, up = v[:, None] * slopes, 1.0 + gamma(sum(design.shape) + K + 16)
        entries = np.array([gamma(float(count) + OF_FACTORS + K + 16) for count in design.pull.roundings])
        entries = np.sqrt(v @ sizes**2)[:, None] * (entries * design.column_norms) * up + design.underflow
        of_intercepts = gamma(len(v) + K + 16) * (v @ sizes)
        variables = proof.factor.variables
        vector = variables.gathered(design.adjoint(pulls).T, pulls.sum(axis=0))
        blur = design.margin_rounding(w) * norm(w) * design.row_norms + of_sums
        blur += 4.0 * EPS * norm(b) + norm(b - proof.b)
        summed = gamma(moved.size + K + 16) * float(v @ (sizes * np.abs(moved)).sum(axis=1))
        first = abs(float((pulls * moved).sum())) + summed
        first += float(v @ (sizes * rounded).sum(axis=1)) + float(v @ (np.sqrt(np.sum(sizes**2, axis=1)) * blur))
        first += proof.against(vector, variables.gathered(entries, of_intercepts + design.underflow))
        # What h - n moves counts to second order here: it need not be known better than to a tenth of the rest.
        rest = math.sqrt(float(np.sum(v @ moved**2)) + first)
        doubt = proof.further(design.X, 0.1 * rest)
        far = np.sqrt(np.sum((np.abs(moved) + rounded + doubt) ** 2, axis=1)) + blur
        return first * up, math.sqrt(float(v @ far**2)) * up
