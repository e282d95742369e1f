r"""Smooth scores of held-out samples, and how far the error of a fold's weights can move them.

A fold's loss is  share sum_i v_i phi(m_i, y_i),  sum v_i = 1,  m_i = x_i . w + b(w)  on held-out rows. Let ||w -
w_hat|| <= R. If the intercept is minimised out, the computed b is within S = S(R) of b(w_hat): B R + e, B = max
||x_j|| over training rows and e the error of b (`suffice.terms.intercept`), or what an enclosure proves
(`suffice.terms.concomitant`); else S = 0. Margins move by d_i with |d_i| <= h_i = ||x_i|| R + S, and with |phi''| <= c
the loss moves by at most the least of

    first order    share ( ||X^T (v phi'(m))|| R + |sum_i v_i phi'(m_i)| S + (1/2) sum_i v_i phi''-bound d_i^2 ),
                   where the last sum is at most c (||diag(v)^(1/2) X|| R + S)^2, and at most sum_i v_i c_i h_i^2,
    per sample     phi(m_i) stays in the range it has on [m_i - h_i, m_i + h_i],
    Lipschitz      sqrt(loss) moves by share^(1/2) slope (||diag(v)^(1/2) X|| R + S).

R includes the rounding of the margins. With dense X both kinds of rows are taken relative to the training mean, which
changes b and nothing else, and makes ||x_i|| and S as small as a shift can.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit

from suffice._array import EPS, Array, norm
from suffice.losses import BRIER_CURVATURE, LossAt
from suffice.terms.concomitant import ConcomitantHuber
from suffice.terms.design import Design
from suffice.terms.intercept import Intercepted
from suffice.terms.rounding import gamma, norm_rounding


class Score(Protocol):
    """phi(m, y) >= 0 with |phi''| <= curvature; sqrt(phi) is slope-Lipschitz in m (infinite: unknown)."""

    @property
    def curvature(self) -> float: ...
    @property
    def slope(self) -> float: ...

    def residuals(self, m: Array, y: Array) -> Array:
        """Their squares are phi."""
        ...

    def derivative(self, m: Array, y: Array) -> Array: ...

    def range(self, m: Array, h: Array, y: Array) -> tuple[Array, Array]:
        """The least and the largest phi on [m - h, m + h]."""
        ...

    def bend(self, m: Array, h: Array, y: Array) -> Array:
        """A bound on |phi''| on [m - h, m + h]."""
        ...


@dataclass(frozen=True)
class BrierScore:
    """phi = (sigm(m) - p)^2, p = (1 + y)/2, labels y in {-1, 1}."""

    curvature: float = BRIER_CURVATURE
    slope: float = 0.25

    def residuals(self, m: Array, y: Array) -> Array:
        result: Array = -y * expit(-y * m)
        return result

    def derivative(self, m: Array, y: Array) -> Array:
        q = expit(-y * m)
        result: Array = -2.0 * y * q * q * (1.0 - q)
        return result

    def range(self, m: Array, h: Array, y: Array) -> tuple[Array, Array]:
        ends = self.residuals(m - h, y) ** 2, self.residuals(m + h, y) ** 2
        return np.minimum(*ends), np.maximum(*ends)

    def bend(self, m: Array, h: Array, y: Array) -> Array:
        return np.full(len(m), self.curvature)


@dataclass(frozen=True)
class LogScore:
    """phi = log(1 + exp(-y m)), labels y in {-1, 1}."""

    curvature: float = 0.25
    slope: float = math.inf

    def residuals(self, m: Array, y: Array) -> Array:
        return np.sqrt(np.logaddexp(0.0, -y * m))

    def derivative(self, m: Array, y: Array) -> Array:
        result: Array = -y * expit(-y * m)
        return result

    def range(self, m: Array, h: Array, y: Array) -> tuple[Array, Array]:
        ends = np.logaddexp(0.0, -y * (m - h)), np.logaddexp(0.0, -y * (m + h))
        return np.minimum(*ends), np.maximum(*ends)

    def bend(self, m: Array, h: Array, y: Array) -> Array:
        return np.full(len(m), self.curvature)


@dataclass(frozen=True)
class SquaredScore:
    """phi = (m - y)^2."""

    curvature: float = 2.0
    slope: float = 1.0

    def residuals(self, m: Array, y: Array) -> Array:
        return m - y

    def derivative(self, m: Array, y: Array) -> Array:
        return 2.0 * (m - y)

    def range(self, m: Array, h: Array, y: Array) -> tuple[Array, Array]:
        size = np.abs(m - y)
        return np.maximum(size - h, 0.0) ** 2, (size + h) ** 2

    def bend(self, m: Array, h: Array, y: Array) -> Array:
        return np.full(len(m), self.curvature)


@dataclass(frozen=True)
class HingeScore:
    """phi = max(0, 1 - y m)^2, labels y in {-1, 1}: what LinearSVC minimises, on held-out data."""

    curvature: float = 2.0
    slope: float = 1.0

    def residuals(self, m: Array, y: Array) -> Array:
        return np.maximum(0.0, 1.0 - y * m)

    def derivative(self, m: Array, y: Array) -> Array:
        return -2.0 * y * np.maximum(0.0, 1.0 - y * m)

    def range(self, m: Array, h: Array, y: Array) -> tuple[Array, Array]:
        return np.maximum(0.0, 1.0 - y * m - h) ** 2, np.maximum(0.0, 1.0 - y * m + h) ** 2

    def bend(self, m: Array, h: Array, y: Array) -> Array:
        return np.full(len(m), self.curvature)


@dataclass(frozen=True)
class PoissonScore:
    """phi = 2 (y log(y / exp(m)) - y + exp(m)): the Poisson deviance of counts y >= 0; phi'' = 2 exp(m)."""

    curvature: float = math.inf
    slope: float = math.inf

    def _deviance(self, m: Array, y: Array) -> Array:
        # With t = m - log(y) it is 2 y (exp(t) - 1 - t), in which nothing cancels.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            t = m - np.log(y)
            bent = np.where(np.abs(t) < 1e-2, t * t * (0.5 + t * (1 / 6 + t * (1 / 24 + t / 120))), np.expm1(t) - t)
            result: Array = 2.0 * np.where(y > 0.0, y * bent, np.exp(m))
        return result

    def residuals(self, m: Array, y: Array) -> Array:
        size: Array = np.sqrt(self._deviance(m, y))
        return np.where(np.exp(np.minimum(m, 700.0)) >= y, size, -size)

    def derivative(self, m: Array, y: Array) -> Array:
        return 2.0 * (np.exp(np.minimum(m, 700.0)) - y)

    def range(self, m: Array, h: Array, y: Array) -> tuple[Array, Array]:
        ends = self._deviance(m - h, y), self._deviance(m + h, y)
        with np.errstate(divide="ignore"):
            inside = np.abs(np.log(y) - m) <= h
        return np.where(inside, 0.0, np.minimum(*ends)), np.maximum(*ends)

    def bend(self, m: Array, h: Array, y: Array) -> Array:
        with np.errstate(over="ignore"):
            result: Array = 2.0 * np.exp(m + h)
        return result


@dataclass(frozen=True, eq=False)
class HeldOut:
    """share sum_i v_i phi(m_i, y_i): `design` holds the held-out rows and v, `train` the model that b(w) belongs to."""

    design: Design
    y: Array
    score: Score
    share: float
    train: Intercepted | ConcomitantHuber | None = None

    def at(self, w: Array) -> LossAt:
        v, score, y, train = self.design.weights, self.score, self.y, self.train
        m: Array = self.design.margins(w)
        image = m if train is None else train.image(w)
        m = m if train is None else m + train.intercept(image)[0]
        residuals = math.sqrt(self.share) * np.sqrt(v) * score.residuals(m, y)
        loss = float(residuals @ residuals)
        pulls = v * score.derivative(m, y)
        gradient = norm(self.design.adjoint(pulls)) + self.design.pull_rounding * norm(
            np.sqrt(v) * score.derivative(m, y)
        )
        pull = abs(float(pulls.sum())) + gamma(len(m)) * float(np.abs(pulls).sum())
        spectral, row_norms = math.sqrt(self.design.squared_norm), self.design.row_norms
        rounding = norm_rounding(residuals)
        blur = self.design.margin_rounding(w) * norm(w) * row_norms  # of the margins
        blurred, spread = float(np.abs(pulls) @ blur), self.design.spread(w)
        of_sums = 4.0 * EPS * float(np.abs(m).max(initial=0.0))

        def error(radius: float) -> float:
            R = min(radius, sys.float_info.max)
            shift = of_sums + (0.0 if train is None else train.shift_within(image, R))
            far = spectral * R + shift + spread
            with np.errstate(over="ignore", invalid="ignore"):
                h = row_norms * R + shift + blur
                low, high = (float(v @ end) for end in score.range(m, h, y))
                second = 0.5 * float(v @ (score.bend(m, h, y) * h * h))
            if math.isfinite(score.curvature):
                second = min(second, 0.5 * score.curvature * far * far) if second == second else math.inf
            change = self.share * (gradient * R + pull * shift + blurred + second)
            low, high = (end if end == end else other for end, other in ((low, 0.0), (high, math.inf)))
            low = max(loss - change, self.share * low, 0.0) if change == change else self.share * low
            high = min(loss + change, self.share * high) if change == change else self.share * high
            r = math.sqrt(loss)
            bound = max(r - math.sqrt(low), math.sqrt(max(high, 0.0)) - r, 0.0)
            lipschitz = math.sqrt(self.share) * score.slope * far
            return min(bound, lipschitz if lipschitz == lipschitz else math.inf) + rounding

        return LossAt(residuals, error)


SCORES: dict[str, Score] = {
    "neg_brier_score": BrierScore(),
    "neg_log_loss": LogScore(),
    "neg_mean_squared_error": SquaredScore(),
    "r2": SquaredScore(),
    "neg_mean_poisson_deviance": PoissonScore(),
    "neg_squared_hinge": HingeScore(),
}
