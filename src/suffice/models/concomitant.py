r"""Huber's regression with a concomitant scale (scikit-learn's HuberRegressor), scale and intercept minimised out:

    f(w) = min over b and s > 0 of  sum_i a_i s (1/2 + h((x_i . w + b - y_i) / s)) + (l2/2) ||w||^2,

h(z) = z^2/2 up to |z| = epsilon, linear with slope epsilon beyond; epsilon > 1, and b = 0 without an intercept. The sum
is jointly convex in (w, b, s): s h(t/s) is the perspective of h. Let t_i = x_i . w + b - y_i, z_i = t_i/s at the
minimising b and s, and p_i = clip(z_i, -epsilon, epsilon) = h'(z_i). Then

- sum_i a_i p_i = 0  and  sum_i a_i p_i^2 = 1: b is a root of a function that increases with b for every s, and with
  this b, D(s) = 1 - sum_i a_i p_i^2, twice the derivative in s of a convex function, increases with s;
- grad f(w) = X^T (a p) + l2 w (the envelope theorem), f is l2-strongly convex: certificates hold for w as it stands;
- hess f(w) = X^T C X - U M^-1 U^T + l2, C = diag(a_i/s where |z_i| <= epsilon), U = X^T C (1, -z), M = (1, -z)^T C (1,
  -z). It is no larger than X^T C X + l2, but s may be arbitrarily small: there is no finite L.

Where rows of weight 1 - 1/epsilon^2 or more are fitted exactly s is 0, f has no gradient, and nothing is proven: the
rounding is infinite. That happens to models with so many columns that an l2 near 0 lets them interpolate.

What is proven about (b, s) for margins that err by at most delta_i, whatever their source (`enclosure`): if the sum of
the least a_i clip(t_i/s) over all these margins and all s of an interval is positive at b + e, then b < b + e for all
of them, and likewise below; if D is positive at s + e for all margins and all b of the enclosure there, then s < s + e,
and likewise below. Each sum has to exceed its own rounding. With delta_i = ||x_i|| R this bounds how far b can be from
that of the exact weights at a distance of R.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, norm
from suffice.lazy import cached_property
from suffice.models.intercept import MOST_STEPS
from suffice.models.linear import CARRIED, MarginModel
from suffice.rows.design import OF_FACTORS, Design
from suffice.rows.gram import gram
from suffice.rows.rounding import TINY, dot, gamma, roundings

SMALLEST = 1e-13  # of s, relative to the root mean square of the residuals; below, it counts as 0


@dataclass(frozen=True, eq=False)
class ConcomitantHuber(MarginModel):
    """f(w) = min over b and s > 0 of sum_i a_i s (1/2 + h((x_i . w + b - y_i) / s)) + (l2/2) ||w||^2, h being
    Huber's function with the threshold `epsilon`. X is dense or sparse in main memory."""

    design: Design
    y: Array
    epsilon: float
    intercepted: bool
    l2: float = 0.0
    _latest: list[tuple[Array, float, float]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 1.0 < self.epsilon < math.inf:
            raise ValueError(f"epsilon must be greater than 1, got {self.epsilon!r}")

    @property
    def curvature(self) -> float:
        return math.inf

    def scale(self, image: Array) -> tuple[float, float]:
        """b and s at these margins, in floating-point arithmetic."""
        for known, b, s in self._latest:
            if known is image:
                return b, s
        a, t = self.design.weights, image - self.y
        b = -float(a @ t) if self.intercepted else 0.0
        s = largest = norm(np.sqrt(a) * (t + b))
        low, high = 0.0, math.inf
        for _ in range(MOST_STEPS):
            if s <= SMALLEST * largest:
                b, s = _median(a, -t) if self.intercepted else 0.0, 0.0
                break
            b = self._root(t, b, s)
            z = (t + b) / s
            inside = np.abs(z) <= self.epsilon
            c = a * inside
            D = 1.0 - dot(a, np.minimum(z * z, self.epsilon**2))
            low, high = (low, s) if D > 0.0 else (s, high)
            if not abs(D) > self._noise or high - low <= 2.0 * EPS * high:
                break
            # In terms of 1/s^2, D is linear as long as the same rows are inside.
            of_one, of_z, of_both = float(c.sum()), float(c @ (z * z)), float(c @ z)
            V = of_z - (of_both**2 / of_one if self.intercepted and of_one > 0.0 else 0.0)
            factor = 1.0 + D / V if V > 0.0 else -1.0
            s = s / math.sqrt(factor) if factor > 0.0 else 0.0
            if not low < s < high:
                s = (math.sqrt(low) * math.sqrt(high) if low > 0.0 else 0.1 * high) if high < math.inf else 2.0 * low
        self._latest[:] = [(image, b, s)]
        return b, s

    def intercept(self, image: Array) -> tuple[float, float]:
        """b at these margins, and a proven bound on its error."""
        return self.scale(image)[0], self.shift_within(image, 0.0)

    def intercept_gradient(self, image: Array) -> Array:
        """How b moves with the weights: the first row of - M^-1 U^T of the module's text."""
        b, s = self.scale(image)
        if not self.intercepted or s == 0.0:
            return np.zeros(self.design.shape[1])
        z = (image + b - self.y) / s
        C = self.design.weights / s * (np.abs(z) <= self.epsilon)
        others = np.stack([np.ones(len(z)), -z], axis=1)
        M = gram(others, scale=np.sqrt(C))[0]
        return -self.design.adjoint(C * (others @ np.linalg.pinv(M, hermitian=True)[0]))

    @cached_property
    def _noise(self) -> float:
        """A bound on the rounding of sums of a_i p_i and a_i p_i^2."""
        return gamma(roundings(len(self.y)) + OF_FACTORS) * self.epsilon**2 * (1.0 + 2.0 * gamma(len(self.y)))

    def _root(self, t: Array, b: float, s: float) -> float:
        """b for this s."""
        if not self.intercepted:
            return 0.0
        a = self.design.weights
        counts = t[a > 0.0]
        low, high = -float(counts.max()), -float(counts.min())
        for _ in range(MOST_STEPS):
            z = (t + b) / s
            pull = dot(a, np.clip(z, -self.epsilon, self.epsilon))
            if abs(pull) <= self._noise or not high - low > 2.0 * EPS * (abs(low) + abs(high)):
                break
            low, high = (b, high) if pull < 0.0 else (low, b)
            bend = float(a @ (np.abs(z) <= self.epsilon)) / s
            step = pull / bend if bend > 0.0 else math.inf
            b = b - step if low < b - step < high else 0.5 * (low + high)
        return b

    def enclosure(self, image: Array, delta: Array) -> tuple[float, float]:
        """How far b and s can be from those of `scale` for margins within delta of the image; infinite if unknown."""
        b, s = self.scale(image)
        t = image - self.y
        if s == 0.0 or not np.isfinite(delta).all():
            return math.inf, math.inf
        delta = delta + 4.0 * EPS * (np.abs(image) + np.abs(self.y) + abs(b))
        a, z = self.design.weights, (t + b) / s
        c = a * (np.abs(z) <= self.epsilon)
        V = float(c @ (z * z)) - (float(c @ z) ** 2 / max(float(c.sum()), EPS) if self.intercepted else 0.0)
        far = float(delta[a > 0.0].max())
        error = s * (2.0 * float(c @ (np.abs(z) * (delta + far))) / s + 4.0 * self._noise) / max(V, EPS)
        while error < s:
            if self._increases(t, b, s + error, delta) and self._decreases(t, b, s - error, delta):
                return self._around(t, b, s - error, s + error, delta), error
            error *= 2.0
        return math.inf, math.inf

    def _increases(self, t: Array, b: float, s: float, delta: Array) -> bool:
        """Whether D(s) > 0 for all margins."""
        b = self._root(t, b, s)
        delta = delta + 4.0 * EPS * abs(b)
        u = (np.abs(t + b) + delta + self._around(t, b, s, s, delta)) / s
        return 1.0 - dot(self.design.weights, np.minimum(u * u, self.epsilon**2)) > self._noise

    def _decreases(self, t: Array, b: float, s: float, delta: Array) -> bool:
        """Whether D(s) < 0 for all margins."""
        b = self._root(t, b, s)
        delta = delta + 4.0 * EPS * abs(b)
        u = np.maximum(np.abs(t + b) - delta - self._around(t, b, s, s, delta), 0.0) / s
        return 1.0 - dot(self.design.weights, np.minimum(u * u, self.epsilon**2)) < -self._noise

    def _around(self, t: Array, b: float, low: float, high: float, delta: Array) -> float:
        """How far the root b can be from this one, for all margins and all s between low and high."""
        if not self.intercepted:
            return 0.0
        a = self.design.weights

        def least(t: Array) -> float:
            p = np.clip(t / np.where(t > 0.0, high, low), -self.epsilon, self.epsilon)
            return dot(a, p) - self._noise

        spread = float(delta[a > 0.0].max()) + (high - low) * self.epsilon + self._noise * high
        error = spread
        for _ in range(60):
            shaken = delta + 4.0 * EPS * error
            if least(t + b + error - shaken) > 0.0 and least(-(t + b - error) - shaken) > 0.0:
                return error
            error *= 2.0
        return math.inf

    def shift_within(self, image: Array, radius: float) -> float:
        """A bound on how far b of exact weights is from ours, if these weights are no farther than `radius`."""
        if not self.intercepted:
            return 0.0
        return self.enclosure(image, self.design.row_norms * radius)[0] if radius < 1e100 else math.inf

    def value_at(self, x: Array, image: Array) -> float:
        return float(self.design.weights @ self.losses(image)) + 0.5 * self.l2 * float(x @ x)

    def gradient_at(self, x: Array, image: Array) -> Array:
        return self.rows.pull(self.design.weights * self.slopes(image)) + self.l2 * x

    def losses(self, image: Array) -> Array:
        """Every row's loss at these margins."""
        b, s = self.scale(image)
        size = np.abs(image + b - self.y)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = 0.5 * s + 0.5 * size * size / s
        outside = 0.5 * s * (1.0 - self.epsilon**2) + self.epsilon * size
        return np.where(size <= self.epsilon * s, inside, outside) if s > 0.0 else outside

    def slopes(self, image: Array) -> Array:
        """p_i = clip(z_i, -epsilon, epsilon), z_i the residuals over the scale."""
        b, s = self.scale(image)
        t = image + b - self.y
        return np.clip(t / s, -self.epsilon, self.epsilon) if s > 0.0 else self.epsilon * np.sign(t)

    def hessian(self, image: Array, working: npt.NDArray[np.intp]) -> Array:
        """The Hessian at these margins, on these columns."""
        b, s = self.scale(image)
        s = max(s, 1e-300)
        z = (image + b - self.y) / s
        inside = np.flatnonzero((np.abs(z) <= self.epsilon) & (self.design.weights > 0.0))
        X, C = self.design.X[inside], self.design.weights[inside] / s
        X = X[:, working]
        X = X.toarray() if hasattr(X, "toarray") else X
        others = np.stack([np.ones(len(inside)), -z[inside]], axis=1)[:, 0 if self.intercepted else 1 :]
        G, d = gram(np.hstack([X, others]), scale=np.sqrt(C))[0], len(working)
        H: Array = G[:d, :d] - G[:d, d:] @ np.linalg.pinv(G[d:, d:], hermitian=True) @ G[d:, :d]
        H[np.diag_indices(len(H))] += self.l2
        return H

    def gradient_rounding(self, x: Array, image: Array) -> float:
        design, size = self.design, norm(x)
        counts = design.weights > 0.0
        delta = CARRIED * design.margin_rounding(x) * design.row_norms * size + TINY * len(x)
        error_of_b, error_of_s = self.enclosure(image, delta)
        b, s = self.scale(image)
        if math.isinf(error_of_s):
            return math.inf
        t = (image + b - self.y)[counts]
        moved = delta[counts] + error_of_b + 4.0 * EPS * (np.abs(image) + np.abs(self.y) + abs(b))[counts]
        error = moved / (s - error_of_s) + np.abs(t) * (error_of_s / s / (s - error_of_s) + 2.0 * EPS / s)
        error = np.where(np.abs(t) - moved > self.epsilon * (s + error_of_s), 0.0, error)
        root = np.sqrt(design.weights[counts])
        through_margins = math.sqrt(design.squared_norm) * norm(root * error)
        through_sum = design.pull_rounding * norm(root * self.slopes(image)[counts])
        return through_margins + through_sum + 2.0 * EPS * self.l2 * size + design.underflow

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        return math.inf


def _median(a: Array, t: Array) -> float:
    """Where sum_i a_i |t_i - b| is least."""
    order = np.argsort(t)
    return float(t[order[np.searchsorted(np.cumsum(a[order]), 0.5)]])
