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
margins alone: a solution continued is the same to the last bit. A bound on its error e is proven from what is known at
b. Let t bound |s(b)|, s(b) = sum_i a_i psi'(m_i + b), with its rounding. Where |psi'''| <= M psi'' (`Bending`), psi''
falls by no more than e^(-M |e|) within |e|, and

    s(b + e) >= -t + s'(b) (1 - exp(-M e)) / M >= 0      for      e = -ln(1 - M t / s'(b)) / M,

for b - e alike. Other losses are asked at b - e and b + e: signs that are larger than their own rounding prove it. An
offset is a part of the margins, and changes nothing of this.

Every step for b is a pass over the margins. Where rows are read from elsewhere, the first makes them, so that a point
takes two passes over X. Rows at hand keep psi' and psi'' of the last step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from suffice.arrays import EPS, Array
from suffice.lazy import cached_property
from suffice.models.jobs import Balance, Sizes, Slack
from suffice.models.linear import UNDERFLOW, LossModel, RowCurvature
from suffice.models.margin_losses import LARGEST_EXPONENT, Bending, MarginLoss, slope_and_bend
from suffice.rows.design import OF_FACTORS
from suffice.rows.rounding import dot, gamma
from suffice.rows.sums import tree_roundings

MOST_STEPS = 200
LARGEST_INTERCEPT = 1e155  # of losses without exponentials
PATIENT = 10  # Newton steps for b: an exponential's have length 1, however far b is
FAR = 1e3  # a bracket of b that is wider is cut near its ends, too
CLOSE = 1e-7  # a Newton step for b that is no longer than so is the last one, but for rounding


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


class Root(NamedTuple):
    """s and no less than its derivative at some b; where they are known what bounds the rounding of s, and the
    derivative itself; and psi' and no less than psi'' of every row at hand."""

    b: float
    s: float
    bend: float
    noise: float | None = None
    second: float = 0.0
    slopes: Any = None
    bends: Any = None


@dataclass(frozen=True, eq=False)
class Intercepted(LossModel):
    """f(w) = min_b sum_i a_i psi(x_i . w + o_i + b, y_i) + (l2/2) ||w||^2.

    Where X is on a device weights are here (`Design.with_weights_here`): products with X are made where it lives, and
    margins come here. Rows with a_i = 0 do not count.
    """

    intercept: ClassVar[bool] = True

    @property
    def reach(self) -> float:
        """max ||x_i|| over rows that count: a Lipschitz constant of b(w)."""
        return self.design.reach

    @property
    def at_zero(self) -> float:
        """b for w = 0."""
        return self._origin[0]

    @cached_property
    def _origin(self) -> tuple[float, float]:
        """b for w = 0 and no offset, with its error: the same for all penalties, and found once."""

        def find() -> tuple[float, float]:
            root = self._found(None, 0.0, *wide_bracket(lambda b: self._sign(None, b), self.loss))
            return root.b, self._error_of(root, None, 0.0)

        return self.design.known.once("intercept", self.owners, find)

    # b

    def root(self, image: Any) -> Root:
        """b at these margins, and what was found with it."""
        known = self.rows.known(image)
        return known.once("root", self.owners, lambda: self._found(image, *self._bracket(image)))

    def b(self, image: Any) -> float:
        """b at these margins, in floating-point arithmetic."""
        return self.root(image).b

    def shift(self, image: Any) -> tuple[float, float]:
        """b at these margins, and a proven bound on its error."""
        root = self.root(image)
        find = lambda: self._error_of(root, image, self._sizes(image)[3])  # noqa: E731
        return root.b, self.rows.known(image).once("error of b", self.owners, find)

    def intercept_gradient(self, image: Any) -> Array:
        """How b moves with the weights: - x_c of the module's text."""

        known, find = self.rows.known(image), lambda: -self.row_curvature(image).mean
        return known.once("gradient of b", self.owners, find)

    def intercept_along(self, image: Any, V: Array) -> Array:
        """How b moves with weights that move by the columns of V: 1 x k."""
        return self.intercept_gradient(image)[None, :] @ V

    def intercept_adjoint(self, image: Any, u: Any) -> Array:
        """u d b / d w."""
        return self.intercept_gradient(image) * u

    def shift_within(self, x: Array, image: Any, radius: float) -> float:
        """A bound on how far b of exact weights is from ours, if these weights are no farther than `radius`."""
        return self.reach * radius + self.shift(image)[1]

    @cached_property
    def _third(self) -> float:
        """M, infinite for a loss that has none."""
        return self.loss.third if isinstance(self.loss, Bending) else math.inf

    def _sizes(self, image: Any) -> tuple[float, float, float, float]:
        """Between which numbers margins of rows that count lie, their mean, and no less than any |m_i| + |o_i|."""

        def find() -> tuple[float, float, float, float]:
            low, high, mean, offset = map(float, self.rows.run(Sizes(), [image], **self.given))
            return -low, high, mean, max(low, high) + offset

        return self.rows.known(image).once("sizes", self.owners, find)

    def _bracket(self, image: Any) -> tuple[float, float, float]:
        """A first b, and between which it lies."""
        (origin, error), (low, high, mean, _) = self._origin, self._sizes(image)
        slack = 8.0 * EPS * (abs(origin) + abs(low) + abs(high)) + error
        return origin - mean, origin - high - slack, origin - low + slack

    def _balance(self, image: Any, b: float) -> Root:
        """What is found at this b; None stands for margins of 0."""
        if self.rows.dear:
            return self._bounded(Root(b, 0.0, 0.0), image)
        a, y = self.design.weights, self.y
        slopes, bends = slope_and_bend(self.loss, np.full(len(y), b) if image is None else image + b, y)
        return Root(b, dot(a, slopes), float(a @ bends), slopes=slopes, bends=bends)

    def _bounded(self, root: Root, image: Any) -> Root:
        """With its noise."""
        if root.noise is not None:
            return root
        given = {"a": self.design.weights, "y": self.y}
        if root.slopes is not None:
            given |= {"slopes": root.slopes, "bends": root.bends}
        job, N = Balance(self.loss, root.b, self._third < math.inf), self.design.shape[0]
        s, bend, size, shaken, second = self.rows.run(job, [] if image is None else [image], **given)
        summing = gamma(tree_roundings(N, self.rows.block) + OF_FACTORS)
        noise = (summing * size + 2.0 * shaken) * (1.0 + gamma(N + 16)) + UNDERFLOW
        return root._replace(s=s, bend=bend, noise=noise, second=second)

    def _found(self, image: Any, b: float, low: float, high: float) -> Root:
        """The root, but for rounding."""
        for trial in range(MOST_STEPS):
            b = min(max(b, low), high)
            root = self._balance(image, b)
            if not high - low > 2.0 * EPS * (abs(low) + abs(high)):
                break
            step = root.s / root.bend if root.bend > 0.0 else math.inf
            if abs(step) < 1e-12 * (1.0 + abs(b)):
                root = self._bounded(root, image)
                if abs(root.s) <= root.noise:  # type: ignore[operator]
                    break
            low, high = (b, high) if root.s < 0.0 else (low, b)
            inside = low < b - step < high and (trial < PATIENT or trial % 2 == 0)
            if inside and abs(step) <= CLOSE and self._third < math.inf:
                return self._balance(image, b - step)
            b = b - step if inside else between(low, high, trial)
        return root

    def _error_of(self, root: Root, image: Any, largest: float) -> float:
        """A proven bound on the error of b, at margins that are no larger."""
        root, M = self._bounded(root, image), self._third
        assert root.noise is not None
        if math.inf > M:
            shaken = 2.0 * EPS * M * (largest + abs(root.b))
            least = root.second * (1.0 - gamma(self.design.shape[0] + 32)) * math.exp(-shaken)
            t = (abs(root.s) + root.noise) / least if least > 0.0 else math.inf
            if M * t < 0.5:
                return (-math.log1p(-M * t) / M if M > 0.0 else t) * (1.0 + 32.0 * EPS)
        start = 2.0 * (root.noise + abs(root.s)) / root.bend if root.bend > 0.0 else 0.0
        error = max(start, 2.0 * EPS * (abs(root.b) + largest), UNDERFLOW)
        for _ in range(MOST_STEPS):
            if self._sign(image, root.b + error) > 0 and self._sign(image, root.b - error) < 0:
                return error
            error *= 2.0
        return math.inf

    def _sign(self, image: Any, b: float) -> int:
        """That of s(b) where it is proven, else 0."""
        found = self._bounded(self._balance(image, b), image)
        assert found.noise is not None
        return int(found.s >= found.noise) - int(found.s <= -found.noise)

    # What a point is asked for

    def slack(self, x: Array, image: Any, products: float) -> Slack:
        """b errs by the largest error of a margin, and has its own."""
        off = super().slack(x, image, products)
        furthest = off.slack * self.reach + off.least
        if self.offset is not None:
            furthest += 2.0 * off.carried * EPS * self._sizes(image)[3]
        return replace(off, carried=off.carried + 2.0, even=furthest + self.shift(image)[1])

    def given_at(self, image: Any) -> dict[str, Any]:
        slopes = self.root(image).slopes
        return {} if slopes is None else {"slopes": slopes}

    def loss_at(self, image: Any) -> float:
        return float(self.rows.known(image).once("loss", self.owners, lambda: super(Intercepted, self).loss_at(image)))

    def row_curvature(self, image: Any) -> RowCurvature:
        if self.rows.dear:
            return super().row_curvature(image)
        curvature: Array = self.design.weights * self.root(image).bends
        return RowCurvature(self.design, curvature, float(curvature.sum()))
