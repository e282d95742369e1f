r"""Upper-level losses loss(w) = r(w)^2 = sum of squared residuals, and how the lower level's error reaches them.

The minimiser w_hat lies within `radius` of the w at hand. Each loss bounds |r(w) - r(w_hat)| by its own, tight,
argument:

- `SquaredDistance(target)`: r = ||w - target||, error = radius.
- losses of margins m = X w on held-out data, loss = sum_i phi(m_i) with |phi''| <= c: the least of
    first order    |loss(w) - loss(w_hat)| <= ||X^T phi'(m)|| radius + (c/2) ||X||^2 radius^2,
    per sample     m_i moves by at most ||x_i|| radius, so phi(m_i) stays in the range it has there,
    Lipschitz      |r(w) - r(w_hat)| <= slope ||X|| radius, where r is the norm of a slope-Lipschitz function of m.
  The first is tight for a small radius, the second for a large one.
    `Brier`         phi = (sigm(m) - p)^2, p in {0, 1}:   c = 0.1541,  slope 1/4
    `LogLoss`       phi = log(1 + exp(-y m)):             c = 1/4
    `SquaredError`  phi = (m - y)^2:                      c = 2,       slope 1
- `Lipschitz(loss, constant)`: any non-negative function of w that is Lipschitz with that constant.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.special import expit

from suffice._array import Array, frozen, host, lives_elsewhere, norm, positive, vector
from suffice.terms.design import Design
from suffice.terms.labels import signs
from suffice.terms.rounding import gamma

# max over m of |d^2/dm^2 q^2| = |2 q^2 (1 - q)(2 - 3 q)| with q = 1 - sigm(m), at q = (15 - sqrt(33)) / 24, rounded up
BRIER_CURVATURE = 0.15406


@dataclass(frozen=True)
class LossAt:
    """A loss at one w: its residuals, and the proven error of their norm r as a function of the radius."""

    residuals: Array
    error: Callable[[float], float]

    @property
    def residual(self) -> float:
        """r, the root of the loss."""
        return norm(self.residuals)

    def radius(self, within: float) -> float:
        """The largest radius, up to 1 %, whose error is at most `within`; 0 if there is none."""
        if within <= self.error(0.0):
            return 0.0
        if self.error(sys.float_info.max) <= within:
            return math.inf
        low, high = 0.0, 1.0
        while self.error(high) <= within:
            low, high = high, 4.0 * high
        while low == 0.0 or high > 1.01 * low:
            middle = 0.25 * high if low == 0.0 else math.sqrt(low * high)
            if middle < 1e-300:
                return 0.0
            if self.error(middle) <= within:
                low = middle
            else:
                high = middle
        return low


class Loss(Protocol):
    """A non-negative loss r(w)^2 of the weights that knows how errors of the weights reach r.

    Where r is the norm of several residuals, such as one per sample, `at` tells them all: the upper level's models
    use them.
    """

    def at(self, w: Array) -> LossAt:
        """The residuals at w, and how far their norm can be from that at weights within any radius of w."""
        ...


class SquaredDistance:
    """loss = ||w - target||^2; the target may be an image of any shape, complex if the pixels of w are."""

    def __init__(self, target: Any) -> None:
        if isinstance(target, np.ndarray) and target.dtype.kind == "c":
            target = np.ascontiguousarray(target, dtype=np.complex128).view(np.float64)
        self.target = frozen(vector(target.reshape(-1) if isinstance(target, np.ndarray) else target, "target"))

    def at(self, w: Array) -> LossAt:
        residuals = _weights(w, len(self.target)) - self.target
        rounding = norm_rounding(residuals)
        return LossAt(residuals, lambda radius: radius + rounding)


class Lipschitz:
    """Any loss(w) >= 0 with |loss(v) - loss(w)| <= constant ||v - w||."""

    def __init__(self, loss: Callable[[Array], float], constant: float) -> None:
        if not callable(loss):
            raise TypeError(f"loss must be callable, got {loss!r}")
        self.loss = loss
        self.constant = positive(constant, "constant", zero=True)

    def at(self, w: Array) -> LossAt:
        value = float(self.loss(_weights(w)))
        if not value >= 0.0:
            raise ValueError(f"loss must be non-negative, got {value!r}")

        def error(radius: float) -> float:
            change = self.constant * radius if self.constant > 0.0 else 0.0
            return _root_error(value, value - change, value + change) + rounding

        residuals = np.array([math.sqrt(value)])
        rounding = norm_rounding(residuals)
        return LossAt(residuals, error)


class _MarginLoss:
    """loss = sum_i phi(x_i . w); final classes below choose phi.

    `X` may also be the `design` of another loss, to share one matrix and its norms between losses.
    """

    curvature: float  # c
    slope: float = math.inf  # the Lipschitz constant of r as a function of the margins

    def __init__(self, X: Any) -> None:
        self.design = X if isinstance(X, Design) else Design.of(X)
        rows = self.design.shape[0]
        if isinstance(X, Design) and np.ptp(host(X.weights)) > 0.0:
            raise ValueError("X must be a matrix or a design without sample weights, which losses do not have")
        self.norm = math.sqrt(rows * self.design.squared_norm)  # an upper bound of ||X||_2
        self.row_norms = self.design.row_norms

    def residuals(self, m: Array) -> Array:
        """Their squares are phi."""
        raise NotImplementedError

    def phi(self, m: Array) -> Array:
        return self.residuals(m) ** 2

    def derivative(self, m: Array) -> Array:
        raise NotImplementedError

    def reach(self, m: Array, h: Array) -> tuple[Array, Array]:
        """The range of phi over [m - h, m + h]; for a monotone phi its values at the ends."""
        ends = self.phi(m - h), self.phi(m + h)
        return np.minimum(*ends), np.maximum(*ends)

    def at(self, w: Array) -> LossAt:
        m = host(self.design.margins(_weights(w, self.design.shape[1])))
        residuals = self.residuals(m)
        loss = float(residuals @ residuals)
        slopes = self.derivative(m)
        gradient = norm(self.design.adjoint(slopes)) + self.design.pull_rounding * math.sqrt(len(m)) * norm(slopes)
        rounding = norm_rounding(residuals)
        blur = self.design.margin_rounding(w) * norm(w) * self.row_norms  # of the margins
        blurred, spread = float(np.abs(slopes) @ blur), norm(blur)

        def error(radius: float) -> float:
            # Products of floats overflow to infinity without complaint; squares and 0 * infinity would not.
            R = min(radius, sys.float_info.max)
            far = float(self.norm * R) + spread
            change = gradient * R + blurred + 0.5 * self.curvature * far * far
            with np.errstate(over="ignore"):
                moved = np.where(self.row_norms > 0.0, self.row_norms * R + blur, 0.0)
                low, high = (float(end.sum()) for end in self.reach(m, moved))
            bound = _root_error(loss, max(loss - change, low), min(loss + change, high))
            return min(bound, self.slope * far) + rounding

        return LossAt(residuals, error)


class Brier(_MarginLoss):
    """loss = sum_i (sigm(x_i . w) - p_i)^2 on held-out data: the Brier score, times the number of samples.

    `y` holds two distinct labels of any kind; p is 1 for the larger one (or for `positive`, if given) and 0 for the
    other.
    """

    curvature = BRIER_CURVATURE
    slope = 0.25

    def __init__(self, X: Any, y: Any, *, positive: Any = None) -> None:
        super().__init__(X)
        self.sign = _signs(y, positive, self.design.shape[0])

    def residuals(self, m: Array) -> Array:
        result: Array = -self.sign * expit(-self.sign * m)  # sigm(m) - p
        return result

    def derivative(self, m: Array) -> Array:
        q = expit(-self.sign * m)
        result: Array = -2.0 * self.sign * q * q * (1.0 - q)
        return result


class LogLoss(_MarginLoss):
    """loss = sum_i log(1 + exp(-y_i x_i . w)) on held-out data; labels as for `Brier`."""

    curvature = 0.25

    def __init__(self, X: Any, y: Any, *, positive: Any = None) -> None:
        super().__init__(X)
        self.sign = _signs(y, positive, self.design.shape[0])

    def residuals(self, m: Array) -> Array:
        return np.sqrt(np.logaddexp(0.0, -self.sign * m))

    def derivative(self, m: Array) -> Array:
        result: Array = -self.sign * expit(-self.sign * m)
        return result


class SquaredError(_MarginLoss):
    """loss = ||X w - y||^2 on held-out data."""

    curvature = 2.0
    slope = 1.0

    def __init__(self, X: Any, y: Any) -> None:
        super().__init__(X)
        self.y = frozen(vector(host(y) if lives_elsewhere(y) else y, "y"))
        if self.y.shape != (self.design.shape[0],):
            raise ValueError(f"y must have shape ({self.design.shape[0]},) to match X, got {self.y.shape}")

    def residuals(self, m: Array) -> Array:
        return m - self.y

    def derivative(self, m: Array) -> Array:
        return 2.0 * (m - self.y)

    def reach(self, m: Array, h: Array) -> tuple[Array, Array]:
        size = np.abs(m - self.y)
        return np.maximum(size - h, 0.0) ** 2, (size + h) ** 2


def norm_rounding(residuals: Array) -> float:
    """How far a computed norm of residuals, and one of their ranges, may be from those of exact margins."""
    return 2.0 * gamma(residuals.size + 16) * norm(residuals)


def _signs(y: Any, positive: Any, rows: int) -> Array:
    y = host(y) if lives_elsewhere(y) else np.asarray(y)
    if y.shape != (rows,):
        raise ValueError(f"y must have shape ({rows},) to match X, got {y.shape}")
    if positive is None:
        return signs(y)[0]
    if y.dtype.kind == "f" and np.isnan(y).any():
        raise ValueError("y must hold labels, got NaN")
    kinds = {_KINDS.get(np.asarray(label).dtype.kind) for label in (y, positive)}
    match = y == positive
    # Held-out data may hold one class only, and that may be the other one.
    if len(kinds - {None}) > 1 or (not np.any(match) and len(np.unique(y)) > 1):
        shown = ", ".join(repr(label) for label in np.unique(y)[:5].tolist())
        raise ValueError(f"positive must be one of y's labels, {shown}, got {positive!r}")
    return np.where(match, 1.0, -1.0)


_KINDS = {**dict.fromkeys("biufc", "number"), **dict.fromkeys("US", "text")}


def _weights(w: Array, size: int | None = None) -> Array:
    w = np.asarray(w, dtype=np.float64)
    if w.ndim != 1 or (size is not None and len(w) != size):
        raise ValueError(f"w must have shape ({'d' if size is None else size},), got {w.shape}")
    if not np.isfinite(w).all():
        raise ValueError("w must be finite, got NaN or infinite weights")
    return w


def _root_error(loss: float, low: float, high: float) -> float:
    """How far sqrt(loss) can be from the root of anything in [low, high]."""
    r = math.sqrt(loss)
    return max(r - math.sqrt(max(low, 0.0)), math.sqrt(max(high, 0.0)) - r, 0.0)
