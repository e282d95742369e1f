r"""A linear model whose intercept is minimised out:

    f(w) = min_b sum_i a_i psi(x_i . w + b, y_i) + (l2/2) ||w||^2,        psi'' > 0.

The sum is jointly convex in (w, b), so f is convex, and with b(w) the minimising b

- grad f(w) = X^T (a psi'(m + b(w))) + l2 w, since sum_i a_i psi'(m_i + b(w)) = 0 (the envelope theorem): f is
  l2-strongly convex, and every certificate of `suffice.solvers.certificate` holds for w as it stands;
- hess f(w) = sum_i c_i (x_i - x_c)(x_i - x_c)^T + l2, c_i = a_i psi''(m_i + b), x_c = sum c_i x_i / sum c_i: no
  larger than without elimination, and so are L and the majoriser f(x) <= F(x, b(z)) of two points;
- |b(m) - b(m')| <= max_i |m_i - m'_i| over rows with a_i > 0. Proof: let m' <= m + t for all of them. Then
  sum a_i psi'(m'_i + b(m) - t) <= sum a_i psi'(m_i + b(m)) = 0, and the left side increases with b: b(m') >= b(m) - t.
  Exchange m and m' for the other side. In terms of weights, |b(w) - b(w')| <= max_i ||x_i|| ||w - w'||.

b is found by Newton's method inside the bracket that the last statement gives from b at m = 0, and belongs to the
margins alone, whatever was solved before: a solution continued is the same to the last bit. A bound on its error e is
proven from what is known at b. Let t bound |s(b)|, s(b) = sum_i a_i psi'(m_i + b), with its rounding. Where |psi'''| <=
M psi'' (`Bending`), psi'' falls by no more than e^(-M |e|) within |e|, and

    s(b + e) >= -t + s'(b) (1 - exp(-M e)) / M >= 0      for      e = -ln(1 - M t / s'(b)) / M,

for b - e alike. Other losses are asked at b - e and b + e: signs that are larger than their own rounding prove it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np

from suffice.arrays import EPS, Array, host, norm
from suffice.lazy import cached_property
from suffice.models.linear import LossModel, rounding_of_pull, rounding_through
from suffice.models.margin_losses import LARGEST, LARGEST_EXPONENT, Bending, MarginLoss, slope_and_bend, slope_size
from suffice.rows.design import OF_FACTORS, Design
from suffice.rows.rounding import TINY, dot, gamma, roundings

MOST_STEPS = 200
UNDERFLOW = 1e-300  # more than all that underflows in a sum
LARGEST_INTERCEPT = 1e155  # of losses without exponentials
PATIENT = 10  # Newton steps for b: an exponential's have length 1, however far b is
FAR = 1e3  # a bracket of b that is wider is cut near its ends, too
CLOSE = 1e-7  # a Newton step for b that is no longer than so is the last one, but for rounding
KEPT = 3  # images with their b


def between(low: float, high: float, trial: int) -> float:
    """Where a bracket of b is cut: in the middle or, if it is wide, in turns near its ends, since rows that balance
    each other have margins near one of them."""
    near = math.sqrt(high - low) if FAR < high - low < math.inf else math.inf
    middle = 0.5 * low + 0.5 * high
    return middle if near == math.inf else (low + near, high - near, middle)[trial % 3]


def wide_bracket(sign: Callable[[float], int], loss: MarginLoss) -> tuple[float, float]:
    """A bracket of b for w = 0; `sign` is that of s(b) where it is proven, else 0."""
    low, high, size, most = 0.0, 0.0, 1.0, LARGEST_EXPONENT if math.isinf(loss.curvature) else LARGEST_INTERCEPT
    while True:
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = low or -size * (sign(-size) < 0), high or size * (sign(size) > 0)
        if low < 0.0 < high:
            return low, high
        if size == most:
            raise ValueError(
                "the intercept is not finite, or beyond the range of floats: y holds a single label, nothing but zeros "
                "or, where y has a logarithm, nothing but the tiniest numbers"
            )
        size = min(2.0 * size, most)


@dataclass(frozen=True, eq=False)
class Root:
    """b at some margins, with psi' and no less than psi'' of every row there."""

    image: Array
    b: float
    slope: Array
    bend: Array
    _known: dict[str, float] = field(default_factory=dict)  # its error, and the sum of losses, once they were needed


@dataclass(eq=False)
class Roots:
    """What models of the same data and loss have in common, whatever their penalties are."""

    y: Array
    loss: MarginLoss
    origin: tuple[float, float] | None = None  # b for w = 0, and its error
    roots: list[Root] = field(default_factory=list)  # the latest first
    images: list[tuple[Array, Array]] = field(default_factory=list)  # w, a copy of its own, and X w

    def keep(self, root: Root) -> Root:
        self.roots[:] = [root, *self.roots[: KEPT - 1]]
        return root


_shared: WeakKeyDictionary[Design, list[Roots]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Intercepted(LossModel):
    """f(w) = min_b sum_i a_i psi(x_i . w + b, y_i) + (l2/2) ||w||^2.

    X is dense or sparse in main memory, or on a device with weights here (`Design.with_weights_here`): products with X
    are made where it lives, and margins come here. Rows with a_i = 0 do not count.
    """

    @cached_property
    def reach(self) -> float:
        """max ||x_i|| over rows that count: a Lipschitz constant of b(w)."""
        return float(self.design.row_norms[self.design.weights > 0.0].max())

    @property
    def at_zero(self) -> float:
        """b for w = 0."""
        return self._origin[0]

    @property
    def _roots(self) -> Roots:
        known = _shared.setdefault(self.design, [])
        for roots in known:
            if roots.y is self.y and roots.loss == self.loss:
                return roots
        known.append(Roots(self.y, self.loss))
        return known[-1]

    @property
    def _origin(self) -> tuple[float, float]:
        """b for w = 0 with its error: the same for all penalties, and found once."""
        roots = self._roots
        if roots.origin is None:
            root = self._root(np.zeros(len(self.y)), 0.0, *self._wide_bracket())
            roots.origin = root.b, self._error(root)
        return roots.origin

    def image(self, x: Array) -> Array:
        """X x; images are never written to, and the latest are kept."""
        images = self._roots.images
        for known, image in images:
            if np.array_equal(known, x):
                return image
        image = host(super().image(x))
        images[:] = [(np.array(x), image), *images[: KEPT - 1]]
        return image

    def at(self, image: Array) -> Root:
        """b at these margins, and what was found with it."""
        roots = self._roots
        for root in roots.roots:
            if root.image is image:
                return root
        counts, (origin, error) = self._counts, self._origin
        inside = image if counts is None else image[counts]
        low, high = float(inside.min()), float(inside.max())
        slack = 8.0 * EPS * (abs(origin) + abs(low) + abs(high)) + error
        b = origin - float(self.design.weights @ image)
        return roots.keep(self._root(image, b, origin - high - slack, origin - low + slack))

    def b(self, image: Array) -> float:
        """b at these margins, in floating-point arithmetic."""
        return self.at(image).b

    def intercept(self, image: Array) -> tuple[float, float]:
        """b at these margins, and a proven bound on its error."""
        root = self.at(image)
        if "error" not in root._known:
            root._known["error"] = self._error(root)
        return root.b, root._known["error"]

    def intercept_gradient(self, image: Array) -> Array:
        """How b moves with the weights: - x_c of the module's text."""
        C = self.row_curvature(image)
        return -self.design.adjoint(C) / max(float(C.sum()), UNDERFLOW)

    def shift_within(self, image: Array, radius: float) -> float:
        """A bound on how far b of exact weights is from ours, if these weights are no farther than `radius`."""
        return self.reach * radius + self.intercept(image)[1]

    @cached_property
    def _counts(self) -> Array | None:
        """Which rows count; None for all."""
        counts: Array = self.design.weights > 0.0
        return None if counts.all() else counts

    @cached_property
    def _third(self) -> float:
        """M, infinite for a loss that has none."""
        return self.loss.third if isinstance(self.loss, Bending) else math.inf

    @cached_property
    def _summing(self) -> float:
        return gamma(roundings(len(self.y)) + OF_FACTORS)

    def _pull(self, image: Array, b: float) -> tuple[Root, float, float]:
        """s(b) = sum a_i psi'(m_i + b), and its derivative."""
        slope, bend = slope_and_bend(self.loss, image + b, self.y)
        a = self.design.weights
        return Root(image, b, slope, bend), dot(a, slope), float(a @ bend)

    def _noise(self, root: Root) -> float:
        """A bound on the rounding of s."""
        a, bend = self.design.weights, root.bend
        sizes = self._summing * slope_size(self.loss, root.slope, bend, root.image + root.b, self.y)
        sizes = sizes + 2.0 * EPS * bend * (np.abs(root.image) + abs(root.b))
        return float(a @ sizes) * (1.0 + 2.0 * self._summing) + UNDERFLOW

    def _root(self, image: Array, b: float, low: float, high: float) -> Root:
        close = False
        for trial in range(MOST_STEPS):
            b = min(max(b, low), high)
            root, s, bend = self._pull(image, b)
            if close or not high - low > 2.0 * EPS * (abs(low) + abs(high)):
                break
            step = s / bend if bend > 0.0 else math.inf
            if abs(step) < 1e-12 * (1.0 + abs(b)) and abs(s) <= self._noise(root):
                break
            low, high = (b, high) if s < 0.0 else (low, b)
            inside = low < b - step < high and (trial < PATIENT or trial % 2 == 0)
            close = inside and abs(step) <= CLOSE and self._third < math.inf
            b = b - step if inside else between(low, high, trial)
        return root

    def _error(self, root: Root) -> float:
        image, b, a = root.image, root.b, self.design.weights
        s, bend, noise = dot(a, root.slope), float(a @ root.bend), self._noise(root)
        if self._third < math.inf:
            M = self._third
            shaken = 2.0 * EPS * M * (float(np.abs(image).max(initial=0.0)) + abs(b))
            second = float(a @ self.loss.second(image + b, self.y))  # type: ignore[attr-defined]
            least = second * (1.0 - gamma(len(a) + 32)) * math.exp(-shaken)
            t = (abs(s) + noise) / least if least > 0.0 else math.inf
            if M * t < 0.5:
                return (-math.log1p(-M * t) / M if M > 0.0 else t) * (1.0 + 32.0 * EPS)
        error = max(2.0 * (noise + abs(s)) / bend if bend > 0.0 else 0.0, 2.0 * EPS * (abs(b) + norm(image)), 1e-300)
        for _ in range(MOST_STEPS):
            if self._sign(image, b + error) > 0 and self._sign(image, b - error) < 0:
                return error
            error *= 2.0
        return math.inf

    def _sign(self, image: Array, b: float) -> int:
        """That of s(b) where it is proven, else 0."""
        root, s, _ = self._pull(image, b)
        noise = self._noise(root)
        return int(s >= noise) - int(s <= -noise)

    def _wide_bracket(self) -> tuple[float, float]:
        zero = np.zeros(len(self.y))
        return wide_bracket(lambda b: self._sign(zero, b), self.loss)

    def shifted(self, image: Array, by: Array) -> Array:
        return image + self.b(by)

    def value_at(self, x: Array, image: Array) -> float:
        known = self.at(image)._known
        if "loss" not in known:
            known["loss"] = float(self.design.weights @ self.losses(image))
        return known["loss"] + 0.5 * self.l2 * float(x @ x)

    def slopes(self, image: Array) -> Array:
        return np.array(self.at(image).slope)

    def row_curvature(self, image: Array) -> Array:
        curvature: Array = self.design.weights * self.at(image).bend
        return curvature

    def _rounding(self, x: Array, image: Array, products: float) -> float:
        # b errs by the largest error of a margin, and has its own.
        design = self.design
        root, error_of_b = self.at(image), self.intercept(image)[1]
        error = design.margin_errors(x, products)
        counts = design.weights > 0.0
        error = error + float(error[counts].max()) + error_of_b + 2.0 * EPS * (np.abs(image) + abs(root.b))
        of_l2 = 2.0 * EPS * self.l2 * norm(x)
        largest = float(error[counts].max())
        if self._third == math.inf or not largest < 1.0:
            return rounding_through(design, self.loss, image + root.b, self.y, error, counts) + of_l2
        bend = root.bend * (math.exp(self._third * largest) * (1.0 + 32.0 * EPS)) + TINY
        if math.isinf(self.loss.curvature) and not np.all(bend[counts] < LARGEST):
            return math.inf
        roots = np.sqrt(design.weights)  # 0 where rows do not count
        size = slope_size(self.loss, root.slope, bend, image + root.b, self.y)
        return rounding_of_pull(design, roots, size, bend, np.where(counts, error, 0.0)) + of_l2
