r"""Losses phi(m, y) >= 0 of the margins of a held-out row, with one output or K of them.

Each knows |phi''| <= `curvature` and a Lipschitz constant `slope` of the root of phi, in the norm of  units m  (either
may be infinite: unknown), and where it can a sharper bound within a distance of m. Squares of several targets have
units of their own. Of several classes, the Brier score phi = ||p - onehot||^2 has a residual p - onehot that is
1/2-Lipschitz in m_i, and |phi''| <= 2/4 + 2 = 5/2; the log loss has phi'' <= 1/2. Neither sees what all
classes of a row have in common, and both err like margins that are a few units off (`blur`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit, log_softmax, softmax

from suffice.arrays import EPS, Array
from suffice.models.margin_losses import LARGEST
from suffice.models.softmax_jobs import gap, turned
from suffice.rows.rounding import TINY, gamma

# max over m of |d^2/dm^2 q^2| = |2 q^2 (1 - q)(2 - 3 q)| with q = 1 - sigm(m), at q = (15 - sqrt(33)) / 24, rounded up
BRIER_CURVATURE = 0.15406


class Phi:
    """phi(m, y) >= 0 of rows, m being n, or n x K, and so are slopes; here is what most have in common."""

    curvature: float = math.inf
    slope: float = math.inf
    units: Any = 1.0  # or one for every output
    smooth = True  # whether `forward` and `adjoint` are known

    def residuals(self, m: Array, y: Array) -> Array:
        """Their squares, summed over a row, are phi."""
        raise NotImplementedError

    def derivative(self, m: Array, y: Array) -> Array:
        """d phi / d m, or `residual_slopes` are known."""
        return np.asarray(2.0 * self.residuals(m, y) * self.residual_slopes(m, y))

    def residual_slopes(self, m: Array, y: Array) -> Array:
        """d residuals / d m, of each with respect to its own margin, or of the only one with respect to all."""
        return 0.5 * self.derivative(m, y) / np.maximum(self.residuals(m, y), TINY)

    def forward(self, m: Array, y: Array, M: Array) -> Array:
        """How the residuals move with margins that move by M, a last axis for directions."""
        return self.residual_slopes(m, y)[:, None] * M

    def adjoint(self, m: Array, y: Array, u: Array) -> Array:
        """What residuals that count by u pull margins by."""
        return self.residual_slopes(m, y) * u

    def best(self, y: Array) -> Array | None:
        """Where phi is 0, if there is such a margin; phi grows from there on, or in one direction."""
        return None

    def range(self, m: Array, h: Array, y: Array) -> tuple[Array, Array]:
        """No more than the least and no less than the largest phi for margins within h."""
        ends, best = (self.residuals(m - h, y) ** 2, self.residuals(m + h, y) ** 2), self.best(y)
        low = np.minimum(*ends)
        return low if best is None else np.where(np.abs(best - m) <= h, 0.0, low), np.maximum(*ends)

    def bend(self, m: Array, h: Array, y: Array) -> Array:
        """A bound on |phi''| within h."""
        return np.full(len(m), self.curvature)

    def blur(self, m: Array, y: Array) -> Any:
        """What the rounding of phi is worth, as an error of m."""
        return 0.0

    def sizes(self, slopes: Array, m: Array) -> Array:
        """What slopes are rounded relative to."""
        return np.abs(slopes)

    def moves(self, moved: Array, rounded: Array) -> tuple[Array, Array]:
        """What phi sees of how margins move, and of the rounding of that."""
        return moved, rounded


@dataclass(frozen=True)
class BrierScore(Phi):
    """phi = (sigm(m) - p)^2, p = (1 + y)/2, labels y in {-1, 1}."""

    curvature: float = BRIER_CURVATURE
    slope: float = 0.25

    def residuals(self, m: Array, y: Array) -> Array:
        return np.asarray(-y * expit(-y * m))

    def residual_slopes(self, m: Array, y: Array) -> Array:
        return np.asarray(expit(m) * expit(-m))

    def derivative(self, m: Array, y: Array) -> Array:
        q = expit(-y * m)
        return np.asarray(-2.0 * y * q * q * (1.0 - q))


@dataclass(frozen=True)
class LogScore(Phi):
    """phi = log(1 + exp(-y m)), labels y in {-1, 1}."""

    curvature: float = 0.25

    def residuals(self, m: Array, y: Array) -> Array:
        return np.sqrt(np.logaddexp(0.0, -y * m))

    def derivative(self, m: Array, y: Array) -> Array:
        return np.asarray(-y * expit(-y * m))


@dataclass(frozen=True)
class SquaredScore(Phi):
    """phi = (m - y)^2."""

    curvature: float = 2.0
    slope: float = 1.0

    def residuals(self, m: Array, y: Array) -> Array:
        return m - y

    def residual_slopes(self, m: Array, y: Array) -> Array:
        return np.ones_like(m)

    def best(self, y: Array) -> Array | None:
        return y


@dataclass(frozen=True)
class HingeScore(Phi):
    """phi = max(0, 1 - y m)^2, labels y in {-1, 1}: what LinearSVC minimises, on held-out data."""

    curvature: float = 2.0
    slope: float = 1.0

    def residuals(self, m: Array, y: Array) -> Array:
        return np.maximum(0.0, 1.0 - y * m)

    def residual_slopes(self, m: Array, y: Array) -> Array:
        return np.where(y * m < 1.0, -y, 0.0)


@dataclass(frozen=True)
class DevianceScore(Phi):
    """phi = 2 (psi(m, y) - min psi): the unit deviance of a family of `suffice.models.families`; phi'' = 2 psi''."""

    loss: Any

    def best(self, y: Array) -> Array | None:
        return np.asarray(self.loss.best(y))

    def residuals(self, m: Array, y: Array) -> Array:
        size: Array = np.sqrt(2.0 * self.loss.excess(m, y))
        return np.where(m >= self.loss.best(y), size, -size)

    def residual_slopes(self, m: Array, y: Array) -> Array:
        residuals, root = self.residuals(m, y), np.sqrt(self.loss.second(self.loss.best(y), y))
        near = np.abs(residuals) <= 1e-6 * root  # there they are root (m - best), but for higher orders
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(near, root, 0.5 * self.derivative(m, y) / residuals)

    def derivative(self, m: Array, y: Array) -> Array:
        return np.asarray(2.0 * self.loss.derivative(m, y))

    def bend(self, m: Array, h: Array, y: Array) -> Array:
        bend: Array = 2.0 * self.loss.curvature_between(m - h, m + h, y)
        return np.where(bend < LARGEST, bend, math.inf)

    def blur(self, m: Array, y: Array) -> Array:
        """What the rounding of the best margin is worth."""
        best = self.loss.best(y)
        return 2.0 * EPS * (np.abs(m) + np.where(np.isfinite(best), 1.0 + np.abs(best), 0.0))


@dataclass(frozen=True)
class PinballScore(Phi):
    """phi = rho(y - m), rho(t) = max(q t, (q - 1) t), without smoothing. Where y lies within h of m the slope may jump
    by 1, which adds at most h to the first order; `bend` says so as 2/h."""

    q: float
    smooth = False

    def best(self, y: Array) -> Array | None:
        return y

    def residuals(self, m: Array, y: Array) -> Array:
        t = y - m
        return np.sqrt(np.maximum(self.q * t, (self.q - 1.0) * t))

    def derivative(self, m: Array, y: Array) -> Array:
        return np.where(y >= m, -self.q, 1.0 - self.q)

    def bend(self, m: Array, h: Array, y: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(np.abs(y - m) <= h, 2.0 / np.maximum(h, 1e-300), 0.0)


class _Several(Phi):
    """K outputs."""

    def range(self, m: Array, h: Array, y: Array) -> tuple[Array, Array]:
        size = lengths(self.residuals(m, y))
        return np.maximum(size - self.slope * h, 0.0) ** 2, (size + self.slope * h) ** 2


@dataclass(frozen=True, eq=False)
class SquaredScores(_Several):
    """phi = sum_k (units_k (m_k - y_k))^2 of several targets."""

    units: Array = field(default_factory=lambda: np.ones(1))
    curvature: float = 2.0
    slope: float = 1.0

    def residuals(self, m: Array, y: Array) -> Array:
        return self.units * (m - y)

    def residual_slopes(self, m: Array, y: Array) -> Array:
        return self.units


class _OfClasses(_Several):
    """Of the probabilities p of margins m; y holds the numbers of classes."""

    def blur(self, m: Array, y: Array) -> Array:
        K = m.shape[1]
        return np.asarray(4.0 * EPS * math.sqrt(K) * (np.abs(m).max(axis=1) + K + 8.0))

    def sizes(self, slopes: Array, m: Array) -> Array:
        """A class's slope is rounded relative to its probability, not to itself."""
        return np.asarray(np.abs(slopes) + 4.0 * softmax(m, axis=1))

    def moves(self, moved: Array, rounded: Array) -> tuple[Array, Array]:
        """Without what all classes of a row have in common: slopes of a row add up to 0."""
        K = moved.shape[1]
        rounded = rounded + rounded.mean(axis=1, keepdims=True)
        rounded += gamma(K + 8) * 2.0 * np.abs(moved).max(axis=1, keepdims=True)
        return moved - moved.mean(axis=1, keepdims=True), rounded


@dataclass(frozen=True)
class SoftmaxBrier(_OfClasses):
    """phi = ||p - onehot||^2."""

    curvature: float = 2.5
    slope: float = 0.5

    def residuals(self, m: Array, y: Array) -> Array:
        return gap(softmax(m, axis=1), y)

    def derivative(self, m: Array, y: Array) -> Array:
        return 2.0 * self.adjoint(m, y, self.residuals(m, y))

    def forward(self, m: Array, y: Array, M: Array) -> Array:
        return turned(softmax(m, axis=1), M)

    def adjoint(self, m: Array, y: Array, u: Array) -> Array:
        return turned(softmax(m, axis=1), u)


@dataclass(frozen=True)
class SoftmaxLog(_OfClasses):
    """phi = -log p of the class seen."""

    curvature: float = 0.5

    def residuals(self, m: Array, y: Array) -> Array:
        seen = np.take_along_axis(log_softmax(m, axis=1), y.astype(np.intp)[:, None], axis=1)
        return np.asarray(np.sqrt(np.maximum(-seen, 0.0)))

    def derivative(self, m: Array, y: Array) -> Array:
        return gap(softmax(m, axis=1), y)

    def forward(self, m: Array, y: Array, M: Array) -> Array:
        return np.asarray(np.sum(self.residual_slopes(m, y)[:, :, None] * M, axis=1, keepdims=True))


SOFTMAX_SCORES: dict[str, SoftmaxBrier | SoftmaxLog] = {"neg_brier_score": SoftmaxBrier(), "neg_log_loss": SoftmaxLog()}


def lengths(A: Array) -> Array:
    """Of what every row has, one number or several."""
    if A.ndim == 1:
        return np.abs(A)
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", A, A)))
