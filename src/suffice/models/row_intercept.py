r"""`suffice.models.intercept` for blocks of rows, wherever these are:

    f(w) = min_b sum_i a_i psi(x_i . w + b, y_i) + (l2/2) ||w||^2.

All that is proven there holds; sums over rows are made where the rows are. b is found by Newton's method from
b(0) - sum_i a_i m_i on, a pass over the margins for each of its steps. The first makes the margins as well; the last,
which asks whether b is what it should be, is one with the pass for the gradient. So a point takes two passes over X.
There the rounding of b has to be known in advance: a little more than the step before had is assumed, and if it comes
out larger the pass is made again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from suffice.arrays import EPS, Array, norm
from suffice.lazy import cached_property
from suffice.models.intercept import CLOSE, MOST_STEPS, PATIENT, UNDERFLOW, Intercepted, between, wide_bracket
from suffice.models.jobs import Along, At, Balance, Curvature, CurvedPull, Slope
from suffice.models.linear import CARRIED, majoriser_of
from suffice.models.row_sums import Point, RowCurvature, RowSums
from suffice.rows.blocks import Margins, tree_roundings
from suffice.rows.design import OF_FACTORS
from suffice.rows.rounding import TINY, gamma

AMPLE = 1.5  # times the error of b that is likely


@dataclass(frozen=True)
class Balanced:
    """s and its derivative at some b, with what bounds the rounding of s."""

    b: float
    s: float
    bend: float
    noise: float
    second: float


@dataclass(frozen=True, eq=False)
class RowsIntercepted(RowSums, Intercepted):
    """`Intercepted`, for blocks of rows."""

    @cached_property
    def reach(self) -> float:
        return self.design.survey.reach

    @property
    def _origin(self) -> tuple[float, float]:
        roots = self._roots
        if roots.origin is None:
            root = self._found(None, 0.0, *self._wide_bracket())
            roots.origin = root.b, self._off(root, None, 0.0)
        return roots.origin

    def at(self, image: Any) -> Any:
        """b at these margins, with all that was found on the way."""
        return image.once("root", self.owners, lambda: self._rooted(image, self._found(image, *self._bracket(image))))

    def _rooted(self, image: Any, root: Balanced) -> tuple[Balanced, float]:
        return root, self._off(root, image, self._largest(image))

    def _keep(self, image: Any, root: Balanced) -> float:
        return float(image.keep("root", self.owners, self._rooted(image, root))[1])

    def _largest(self, image: Any) -> float:
        """No less than any margin of a row that counts."""
        w = image.w
        return self.reach * norm(w) * (1.0 + CARRIED * self.design.margin_rounding(w) + 1e-12) + TINY * len(w)

    def _bracket(self, image: Any) -> tuple[float, float, float]:
        """A first b, and between which it lies."""
        (origin, error), largest = self._origin, self._largest(image)
        far = largest + 8.0 * EPS * (abs(origin) + largest) + error
        return origin - float(self.design.survey.means @ image.w), origin - far, origin + far

    def b(self, image: Any) -> float:
        return float(self.at(image)[0].b)

    def intercept(self, image: Any) -> tuple[float, float]:
        root, error = self.at(image)
        return root.b, error

    def intercept_gradient(self, image: Any) -> Array:
        def find() -> Array:
            job = CurvedPull(Curvature(self.loss, self.b(image)))
            pulled, total = self.design.X.run(job, [image], **self.given)
            gradient: Array = -pulled / max(total, UNDERFLOW)
            return gradient

        gradient: Array = image.once("gradient of b", self.owners, find)
        return gradient

    def _balance_at(self, b: float) -> Balance:
        return Balance(self.loss, b, self._third < math.inf)

    def _balance(self, image: Margins | None, b: float) -> Balanced:
        given = {"a": self.design.weights, "y": self.y}
        return self._balanced(b, self.design.X.run(self._balance_at(b), [] if image is None else [image], **given))

    def _balanced(self, b: float, sums: tuple[float, ...]) -> Balanced:
        s, bend, size, shaken, second = sums
        N = self.design.shape[0]
        summing = gamma(tree_roundings(N, self.design.X.block) + OF_FACTORS)
        noise = (summing * size + 2.0 * EPS * shaken) * (1.0 + gamma(N + 16)) + UNDERFLOW
        return Balanced(b, s, bend, noise, second)

    def _found(self, image: Margins | None, b: float, low: float, high: float) -> Balanced:
        """As `Intercepted` finds it."""
        root, last = self._sought(image, b, low, high)
        return root if last is None else self._balance(image, last)

    def _sought(self, image: Margins | None, b: float, low: float, high: float) -> tuple[Balanced, float | None]:
        """What was found at the last b that was asked about, and one that is better, but for rounding the root; None if
        there is none."""
        for trial in range(MOST_STEPS):
            b = min(max(b, low), high)
            root = self._balance(image, b)
            if not high - low > 2.0 * EPS * (abs(low) + abs(high)):
                break
            step = root.s / root.bend if root.bend > 0.0 else math.inf
            if abs(step) < 1e-12 * (1.0 + abs(b)) and abs(root.s) <= root.noise:
                break
            low, high = (b, high) if root.s < 0.0 else (low, b)
            inside = low < b - step < high and (trial < PATIENT or trial % 2 == 0)
            if inside and abs(step) <= CLOSE and self._third < math.inf:
                return root, b - step
            b = b - step if inside else between(low, high, trial)
        return root, None

    def _off(self, root: Balanced, image: Margins | None, largest: float) -> float:
        """A proven bound on the error of b."""
        M, N = self._third, self.design.shape[0]
        if math.inf > M:
            shaken = 2.0 * EPS * M * (largest + abs(root.b))
            least = root.second * (1.0 - gamma(N + 32)) * math.exp(-shaken)
            t = (abs(root.s) + root.noise) / least if least > 0.0 else math.inf
            if M * t < 0.5:
                return (-math.log1p(-M * t) / M if M > 0.0 else t) * (1.0 + 32.0 * EPS)
        start = 2.0 * (root.noise + abs(root.s)) / root.bend if root.bend > 0.0 else 0.0
        error = max(start, 2.0 * EPS * (abs(root.b) + largest), 1e-300)
        for _ in range(MOST_STEPS):
            if self._side(image, root.b + error) > 0 and self._side(image, root.b - error) < 0:
                return error
            error *= 2.0
        return math.inf

    def _side(self, image: Margins | None, b: float) -> int:
        """The sign of s(b) where it is proven, else 0."""
        found = self._balance(image, b)
        return int(found.s >= found.noise) - int(found.s <= -found.noise)

    def _wide_bracket(self) -> tuple[float, float]:
        return wide_bracket(lambda b: self._side(None, b), self.loss)

    # What a point is asked for

    def _shifted_job(self, x: Array, image: Any, products: float, pull: bool) -> At:
        return self._job_at(x, *self.intercept(image), products, pull)

    def _job_at(
        self, x: Array, b: float, error_of_b: float, products: float, pull: bool, balance: Balance | None = None
    ) -> At:
        slack = products * self.design.margin_rounding(x) * norm(x)
        least = TINY * len(x)
        return At(self.loss, slack, least, 2.0, pull, b, slack * self.reach + least + error_of_b, balance)

    def point(self, x: Array, image: Any) -> Point:
        def find() -> Point:
            found = None if image.knows("root", self.owners) else self._point_with_root(x, image)
            if found is not None:
                return found
            return Point.of(self.design.X.run(self._shifted_job(x, image, 1.0, True), [image], **self.given))

        point: Point = image.once("shifted", self.owners, find)
        return point

    def _point_with_root(self, x: Array, image: Any) -> Point | None:
        """From the pass that ends the search for b; None if that has ended before, or b errs by more than expected."""
        last, b = self._sought(image, *self._bracket(image))
        if b is None or not last.second > 0.0:
            self._keep(image, last if b is None else self._balance(image, b))
            return None
        expected = AMPLE * (last.noise / last.second + max(self._third, 1.0) * (b - last.b) ** 2)
        job = self._job_at(x, b, expected, 1.0, True, self._balance_at(b))
        found = self.design.X.run(job, [image], **self.given)
        error = self._keep(image, self._balanced(b, found[5:]))
        return Point.of(found) if error <= expected else None

    def value_at(self, x: Array, image: Any) -> float:
        if image.is_product or image.knows("shifted", self.owners):
            loss = self.point(x, image).loss
        else:
            loss = Point.of(self.design.X.run(self._shifted_job(x, image, 1.0, False), [image], **self.given)).loss
        return loss + 0.5 * self.l2 * float(x @ x)

    def gradient_rounding(self, x: Array, image: Any) -> float:
        found = Point.of(self.design.X.run(self._shifted_job(x, image, CARRIED, False), [image], **self.given))
        return found.rounding(self.design) + 2.0 * EPS * self.l2 * norm(x)

    def row_curvature(self, image: Any) -> Any:
        return self._of(Curvature(self.loss, self.b(image)), [image])

    def steadier(self, curvature: Any, image: Any, other: Any) -> Any:
        found = self._of(Curvature(self.loss, self.b(image), self.b(other)), [image, other], before=curvature.rows)
        return found if found.finite else None

    def _of(self, job: Curvature, images: list[Any], **before: Any) -> RowCurvature:
        return RowCurvature(self.design, job, images, {**self.given, **before})

    def slope_between(self, image: Any, other: Any) -> float:
        return float(self.design.X.run(Slope(self.loss, self.b(image), self.b(other)), [image, other], **self.given))

    def majoriser(self, z: Array, z_image: Any, x: Array, x_image: Any) -> float:
        total = self.design.X.run(Along(self.loss, self.b(z_image)), [z_image, x_image], **self.given)
        return min(majoriser_of(self.design, self.curvature, z, x, float(total)) + self.l2, self.L)
