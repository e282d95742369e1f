r"""A linear model whose intercept is minimised out:

    f(w) = min_b sum_i a_i psi(x_i . w + b, y_i) + (l2/2) ||w||^2,        psi'' > 0.

The sum is jointly convex in (w, b), so f is convex, and with b(w) the minimising b

- grad f(w) = X^T (a psi'(m + b(w))) + l2 w, since sum_i a_i psi'(m_i + b(w)) = 0 (the envelope theorem): f is
  l2-strongly convex, and every certificate of `suffice.lower.certificate` holds for w as it stands;
- hess f(w) = sum_i c_i (x_i - x_c)(x_i - x_c)^T + l2, c_i = a_i psi''(m_i + b), x_c = sum c_i x_i / sum c_i: no
  larger than without elimination, and so are L and the majoriser f(x) <= F(x, b(z)) of two points;
- |b(m) - b(m')| <= max_i |m_i - m'_i| over rows with a_i > 0. Proof: let m' <= m + t for all of them. Then
  sum a_i psi'(m'_i + b(m) - t) <= sum a_i psi'(m_i + b(m)) = 0, and the left side increases with b: b(m') >= b(m) - t.
  Exchange m and m' for the other side. In terms of weights, |b(w) - b(w')| <= max_i ||x_i|| ||w - w'||.

b is found by Newton's method inside the bracket that the last statement gives from b at m = 0. A bound on its error is
proven by the signs of the sum at b - e and b + e, each larger than its own rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.terms.design import OF_FACTORS, Design
from suffice.terms.linear import CARRIED, LossModel, rounding_through
from suffice.terms.margin_losses import LARGEST_EXPONENT, MarginLoss, slope_and_bend, slope_size
from suffice.terms.rounding import TINY, dot, gamma, roundings

MOST_STEPS = 200
UNDERFLOW = 1e-300  # more than all that underflows in a sum

_origins: WeakKeyDictionary[Design, list[tuple[Array, MarginLoss, tuple[float, float]]]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Intercepted(LossModel):
    """f(w) = min_b sum_i a_i psi(x_i . w + b, y_i) + (l2/2) ||w||^2.

    X is dense or sparse in main memory; rows with a_i = 0 do not count.
    """

    # The latest image with its b. Images are never written to.
    _latest: list[tuple[Array, float]] = field(default_factory=list, init=False, repr=False)
    _error_of: list[tuple[Array, float]] = field(default_factory=list, init=False, repr=False)

    @cached_property
    def reach(self) -> float:
        """max ||x_i|| over rows that count: a Lipschitz constant of b(w)."""
        return float(self.design.row_norms[self.design.weights > 0.0].max())

    @property
    def at_zero(self) -> float:
        """b for w = 0."""
        return self._origin[0]

    @cached_property
    def _origin(self) -> tuple[float, float]:
        """b for w = 0 with its error: the same for all penalties, and found once."""
        known = _origins.setdefault(self.design, [])
        for y, loss, origin in known:
            if y is self.y and loss == self.loss:
                return origin
        zero = np.zeros(len(self.y))
        b = self._root(zero, 0.0, *self._wide_bracket())
        known.append((self.y, self.loss, (b, self._error(zero, b))))
        return known[-1][2]

    def b(self, image: Array) -> float:
        """b at these margins, in floating-point arithmetic."""
        for known, b in self._latest:
            if known is image:
                return b
        counts, (origin, error) = self.design.weights > 0.0, self._origin
        low, high = float(image[counts].min()), float(image[counts].max())
        slack = 8.0 * EPS * (abs(origin) + abs(low) + abs(high)) + error
        b = self._root(image, origin - float(self.design.weights @ image), origin - high - slack, origin - low + slack)
        self._latest[:] = [(image, b)]
        return b

    def intercept(self, image: Array) -> tuple[float, float]:
        """b at these margins, and a proven bound on its error."""
        b = self.b(image)
        for known, error in self._error_of:
            if known is image:
                return b, error
        self._error_of[:] = [(image, self._error(image, b))]
        return b, self._error_of[0][1]

    def shift_within(self, image: Array, radius: float) -> float:
        """A bound on how far b of exact weights is from ours, if these weights are no farther than `radius`."""
        return self.reach * radius + self.intercept(image)[1]

    def _pull(self, image: Array, b: float) -> tuple[float, float, float]:
        """s(b) = sum a_i psi'(m_i + b), its derivative, and a bound on the rounding of s."""
        a, m = self.design.weights, image + b
        slope, bend = slope_and_bend(self.loss, m, self.y)
        sizes = self._summing * slope_size(self.loss, slope, bend, m, self.y)
        sizes = sizes + 2.0 * EPS * bend * (np.abs(image) + abs(b))
        return dot(a, slope), float(a @ bend), float(a @ sizes) * (1.0 + 2.0 * self._summing) + UNDERFLOW

    @cached_property
    def _summing(self) -> float:
        return gamma(roundings(len(self.y)) + OF_FACTORS)

    def _root(self, image: Array, b: float, low: float, high: float) -> float:
        for _ in range(MOST_STEPS):
            b = min(max(b, low), high)
            s, bend, noise = self._pull(image, b)
            if abs(s) <= noise or high - low <= 2.0 * EPS * (abs(low) + abs(high)):
                break
            low, high = (b, high) if s < 0.0 else (low, b)
            step = s / bend if bend > 0.0 else math.inf
            b = b - step if low < b - step < high else 0.5 * (low + high)
        return b

    def _error(self, image: Array, b: float) -> float:
        s, bend, noise = self._pull(image, b)
        error = max(2.0 * (noise + abs(s)) / bend if bend > 0.0 else 0.0, 2.0 * EPS * (abs(b) + norm(image)), 1e-300)
        for _ in range(MOST_STEPS):
            above, _, above_noise = self._pull(image, b + error)
            below, _, below_noise = self._pull(image, b - error)
            if above >= above_noise and below <= -below_noise:
                return error
            error *= 2.0
        return math.inf

    def _wide_bracket(self) -> tuple[float, float]:
        zero, size = np.zeros(len(self.y)), 1.0
        while size < LARGEST_EXPONENT or not math.isinf(self.loss.curvature):
            below, _, below_noise = self._pull(zero, -size)
            above, _, above_noise = self._pull(zero, size)
            if below <= -below_noise and above >= above_noise:
                return -size, size
            size *= 2.0
            if not size < 1e100:
                break
        raise ValueError("the intercept is not finite: y holds a single label, or nothing but zeros")

    def shifted(self, image: Array, by: Array) -> Array:
        return image + self.b(by)

    def gradient_rounding(self, x: Array, image: Array) -> float:
        return self._rounding(x, image, CARRIED)

    def rounding_at(self, x: Array, image: Array) -> float:
        return self._rounding(x, image, 1.0)

    def _rounding(self, x: Array, image: Array, products: float) -> float:
        # b errs by the largest error of a margin, and has its own.
        design = self.design
        counts = design.weights > 0.0
        b, error_of_b = self.intercept(image)
        error = products * design.margin_rounding(x) * design.row_norms * norm(x) + TINY * len(x)
        error = error + float(error[counts].max()) + error_of_b + 2.0 * EPS * (np.abs(image) + abs(b))
        through = rounding_through(design, self.loss, image + b, self.y, error, counts)
        return through + 2.0 * EPS * self.l2 * norm(x)
