r"""Linear models of blocks of rows (`suffice.rows.blocks`), wherever these are:

    f(w) = sum_i a_i psi(x_i . w + o_i, y_i) + (l2/2) ||w||^2.

Margins stay with their rows. What a point is asked for, its loss, its gradient and the rounding of this one, is found
in the pass over X that makes its margins; the image of a point is a promise of them (`Margins`) that solvers combine as
they would combine arrays. A step of Newton's method is then two passes over X, one for the point and one for its
Hessian; a step of `fista` is one, a step of `fista_adaptive` two. What travels is w, X^T r, and the Hessian on a
working set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, norm
from suffice.lazy import cached_property
from suffice.models.jobs import Along, At, Curvature, Gram, Normal, Slope, SlopeAtZero
from suffice.models.linear import CARRIED, LinearModel, LossModel, majoriser_of
from suffice.rows.blocks import Margins
from suffice.rows.design import Design
from suffice.rows.gram import centred
from suffice.rows.rounding import TINY, gamma


@dataclass(frozen=True, eq=False)
class Point:
    """What is known of a point: the loss, its gradient, and lengths that bound what rounding does to that."""

    loss: float
    pull: Array
    through: float
    whole: float
    cut: bool  # whether rates were cut off

    @classmethod
    def of(cls, found: tuple[Any, ...]) -> Point:
        loss, pull, through, whole, cut = found[:5]
        return cls(float(loss), pull, float(through), float(whole), bool(cut))

    def rounding(self, design: Design) -> float:
        """A bound on ||fl(X^T a psi') - X^T a psi'||; see `suffice.models.linear.rounding_of_pull`."""
        if self.cut:
            return math.inf
        rows = design.shape[0]
        up = 1.0 + gamma(rows + 8)
        through = math.sqrt(design.squared_norm) * self.through * up
        return through + design.pull_rounding * self.whole * up + design.underflow


@dataclass(frozen=True, eq=False)
class RowCurvature:
    """C = diag(a_i psi''), which stays with its rows, and is made when it is needed: a matrix from all rows is made of
    margins in one pass."""

    design: Design
    job: Curvature | None
    images: Sequence[Any] = ()
    given: Mapping[str, Any] = field(default_factory=dict)
    known: tuple[Any, float, float, bool] | None = None

    @classmethod
    def of(cls, design: Design, C: Any) -> RowCurvature:
        """From an array of all rows, of a model that knows nothing of blocks, or as it is."""
        if isinstance(C, cls):
            return C
        influence = float(C @ np.square(design.row_norms))
        return cls(design, None, known=(design.X.rows_of(C), float(C.sum()), influence, bool(np.isfinite(C).all())))

    @cached_property
    def _made(self) -> tuple[Any, float, float, bool]:
        if self.known is not None:
            return self.known
        rows, (total, influence, bad) = self.design.X.run(self.job, self.images, **self.given)
        return rows, total, influence, not bad

    @property
    def rows(self) -> Any:
        return self._made[0]

    @property
    def influence(self) -> float:
        """sum_i C_i ||x_i||^2."""
        return self._made[2]

    @property
    def finite(self) -> bool:
        return self._made[3]

    def sum(self) -> float:
        return self._made[1]

    def any(self) -> bool:
        return self.sum() > 0.0

    def gram(self, W: npt.NDArray[np.intp], count: int, intercept: bool) -> Array:
        """X_W^T C X_W from about so many rows, less what an intercept takes out of it."""
        X, W = self.design.X, np.asarray(W)
        whole = count >= self.design.shape[0]
        if whole and self.job is not None and "_made" not in vars(self):
            G: Array = X.run(Gram(W, curvature=self.job, intercept=intercept), self.images, **self.given)
        else:
            rate = math.inf if whole or not self.influence > 0.0 else count / self.influence
            G = X.run(Gram(W, rate, intercept=intercept), C=self.rows, norms=self.design.row_norms)
        return centred(G) if intercept else G

    def product(self, V: Array) -> Array:
        """X^T C X V."""
        result: Array = self.design.X.run(Normal(V), C=self.rows)
        return result


class RowSums(LossModel):
    """What models of blocks of rows share."""

    @property
    def given(self) -> dict[str, Any]:
        """What goes with the rows."""
        known = {"a": self.design.weights, "y": self.y, "norms": self.design.row_norms}
        offset = getattr(self, "offset", None)
        return known if offset is None else {**known, "o": offset}

    @property
    def owners(self) -> tuple[Any, ...]:
        """What all that is known of margins depends on besides them."""
        return self.design, self.y, self.loss

    def image(self, x: Array) -> Any:
        return self.design.X.margins(x, getattr(self, "offset", None))

    def point(self, x: Array, image: Margins) -> Point:
        """At margins that are a product: all that is known of x, from one pass. At others: loss and gradient."""

        def find() -> Point:
            return Point.of(self.design.X.run(self._job(x, 1.0, True), [image], **self.given))

        found: Point = image.once("point", self.owners, find)
        return found

    def _job(self, x: Array, products: float, pull: bool) -> At:
        slack = products * self.design.margin_rounding(x) * norm(x)
        carried = products if getattr(self, "offset", None) is not None else 0.0
        return At(self.loss, slack, TINY * len(x), carried, pull)

    def value_at(self, x: Array, image: Any) -> float:
        if image.is_product or image.knows("point", self.owners):
            loss = self.point(x, image).loss
        else:  # on the way between two points: no pass over X
            loss = Point.of(self.design.X.run(self._job(x, 1.0, False), [image], **self.given)).loss
        return loss + 0.5 * self.l2 * float(x @ x)

    def gradient_at(self, x: Array, image: Any) -> Array:
        return self.point(x, image).pull + self.l2 * x

    def rounding_at(self, x: Array, image: Any) -> float:
        return self.point(x, image).rounding(self.design) + 2.0 * EPS * self.l2 * norm(x)

    def gradient_rounding(self, x: Array, image: Any) -> float:
        found = Point.of(self.design.X.run(self._job(x, CARRIED, False), [image], **self.given))
        return found.rounding(self.design) + 2.0 * EPS * self.l2 * norm(x)

    def row_curvature(self, image: Any) -> Any:
        return self._curved([image])

    def steadier(self, curvature: Any, image: Any, other: Any) -> Any:
        found = self._curved([image, other], before=curvature.rows)
        return found if found.finite else None

    def _curved(self, images: list[Any], **before: Any) -> RowCurvature:
        return RowCurvature(self.design, Curvature(self.loss), images, {**self.given, **before})

    def slope_between(self, image: Any, other: Any) -> float:
        """The derivative of the loss half-way between two images, along the line that leads from one to the other."""
        return float(self.design.X.run(Slope(self.loss), [image, other], **self.given))

    def majoriser(self, z: Array, z_image: Any, x: Array, x_image: Any) -> float:
        total = self.design.X.run(Along(self.loss), [z_image, x_image], **self.given)
        return min(majoriser_of(self.design, self.curvature, z, x, float(total)) + self.l2, self.L)


@dataclass(frozen=True, eq=False)
class RowsModel(RowSums, LinearModel):
    """`LinearModel`, for blocks of rows."""

    def gradient_rounding(self, x: Array, image: Any) -> float:
        if math.isinf(self.loss.curvature):
            return RowSums.gradient_rounding(self, x, image)
        return LinearModel.gradient_rounding(self, x, image)

    @cached_property
    def _derivative_at_zero(self) -> float:
        found = self.design.X.run(SlopeAtZero(self.loss), a=self.design.weights, y=self.y)
        return float(found) * (1.0 + gamma(self.design.shape[0] + 8))


@dataclass(frozen=True, eq=False)
class RowsOffset(RowSums):
    """`suffice.models.offset.OffsetModel`, for blocks of rows."""

    offset: Any = field(default=None)

    def shifted(self, image: Any, by: Any) -> Any:
        return image
