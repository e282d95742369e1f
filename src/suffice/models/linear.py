r"""Models that depend on w through the margins m = X w + o:

    f(w) = sum_i a_i psi(m_i, y_i) + (l2/2) ||w||^2,        sum_i a_i = 1   (a_i = 1/N without sample weights)

and those from which intercepts are minimised out (`suffice.models.intercept`, `.multinomial`). With second derivatives
in the margins of at most `curvature`, f is l2-strongly convex and its gradient is Lipschitz with

    L = curvature ||diag(a)^(1/2) X||_2^2 + l2.

A Poisson likelihood has an unbounded psi'' = exp(m), and L = infinity: no step length is proven for a first-order
method, but strong convexity alone certifies what Newton's method finds.

An offset o_i is a known part of the margin of a row, such as the logarithm of an exposure for counts. Solvers carry
images X w + o along straight lines, by combinations whose coefficients sum to 1, which keep the offset as it is, and
differences of images are without it. What adding o to X w rounds is small against |X w + o| and |o|.

All of it are sums over rows, made by jobs where these are (`suffice.models.jobs`). Where rows are read from elsewhere
margins stay with them, and what a point is asked for is found in the pass over X that makes its margins, its Hessian
too where columns are few: a step of Newton's method is then one pass, or two with more columns; a step of `fista` is
one, a step of `fista_adaptive` two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, frozen, host, norm
from suffice.lazy import cached_property
from suffice.models.jobs import Along, At, Bend, Curvature, Slack, Slope, SlopeAtZero
from suffice.models.margin_losses import MarginLoss, Squared
from suffice.models.smooth import Imaged, Made
from suffice.rows.blocks import Blocked
from suffice.rows.design import Design
from suffice.rows.gram import Gram, Normal, centred
from suffice.rows.margins import Rider
from suffice.rows.rounding import TINY, gamma
from suffice.rows.sums import Job

UNDERFLOW = 1e-300  # more than all that underflows in a sum
FEW_COLUMNS = 128  # of rows that are dear: a Hessian costs no more than reading them, and is made with every gradient
CARRIED = 4.0  # margins that a solver carries along straight lines err by no more than so many products


def offsets(offset: Any, rows: int, name: str = "offset") -> Array:
    """As an array of one finite number per row; raises ValueError if it is not."""
    try:
        given = np.array(offset, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be numeric, got {type(offset).__name__}") from error
    if given.shape != (rows,):
        raise ValueError(f"{name} must have shape ({rows},) to match X, got {given.shape}")
    if not np.isfinite(given).all():
        raise ValueError(f"{name} must be finite, got NaN or infinite entries")
    return frozen(given)


def exposures(exposure: Any, rows: int) -> Array:
    """The offset that an exposure stands for, its logarithm."""
    given = np.asarray(exposure, dtype=np.float64)
    if not (given > 0.0).all():
        raise ValueError("exposure must be positive")
    return offsets(np.log(given), rows, "exposure")


def by_columns(V: Array, outputs: int) -> Array:
    """Weights of K outputs, of which every column of V holds one output's after the other's, as factors of X: d x (K
    k)."""
    return V.reshape(outputs, -1, V.shape[1]).transpose(1, 0, 2).reshape(-1, outputs * V.shape[1])


def by_outputs(G: Array) -> Array:
    """A matrix d x K, output by output; a vector as it is."""
    return np.ascontiguousarray(G.T).ravel()


class MarginModel(Made, Imaged):
    """What all of them share: final classes are dataclasses that hold X and the a_i as `design`, and `l2`."""

    design: Design
    l2: float

    def fingerprint(self) -> dict[str, Any]:
        """What the model was made from."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.init}  # type: ignore[arg-type]

    @property
    def rounding_is_known(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Point:
    """What is known of a point: the loss, its gradient, and what bounds that one's rounding."""

    loss: float
    pull: Array
    bounds: tuple[float, ...]


class RowModel(MarginModel):
    """A sum over rows of a loss of their margins, K for each. x is W, d x K, column by column."""

    y: Any
    loss: Any  # psi: a `MarginLoss` of every margin, or a loss of all K together
    offset: Any = None

    @property
    def outputs(self) -> int:
        """K."""
        return 1

    @property
    def owners(self) -> tuple[Any, ...]:
        """What all that is known of margins depends on besides them."""
        return self.design.weights, self.y, self.loss

    @property
    def rows(self) -> Blocked:
        """Where sums are made."""
        return self.design.rows

    @property
    def L(self) -> float:  # noqa: N802 (the symbol)
        """A proven Lipschitz constant of the gradient, infinite where there is none."""
        if isinstance(self.loss, Squared):
            _ = self.design.gram  # Newton's method will want it: its norm is had from what is kept
        curvature = float(self.loss.curvature)
        return math.inf if math.isinf(curvature) else curvature * self.design.squared_norm + self.l2

    @cached_property
    def given(self) -> dict[str, Any]:
        """What goes with the rows."""
        known = {"a": self.design.weights, "y": self.y}
        return known if self.offset is None else {**known, "o": self.offset}

    def b(self, image: Any) -> Any:
        """The intercepts at these margins."""
        return 0.0

    def given_at(self, image: Any) -> dict[str, Any]:
        """What else is known of the rows at these margins."""
        return {}

    def image(self, x: Array) -> Any:
        W = x if self.outputs == 1 else np.ascontiguousarray(x.reshape(self.outputs, -1).T)
        return self.rows.margins(W, self.offset)

    def slack(self, x: Array, image: Any, products: float) -> Slack:
        """How far margins are off that err by no more than so many products."""
        slack = products * self.design.margin_rounding(x) * norm(x)
        return Slack(slack, TINY * len(x), 0.0 if self.offset is None else products)

    def at(self, image: Any, *, pull: bool = True, off: Slack | None = None, value: bool = True) -> Point:
        """What is asked for of a point: bounds for margins that are `off` by so much."""
        given = {**self.given, **self.given_at(image)}
        if off is not None:
            given["norms"] = self.design.row_norms_there
        job = At(self.loss, self.b(image), pull, off, value)
        riders = self.riders(image) if pull and off is not None and self.rows.dear and image.is_product else ()
        loss, gradient, *bounds = self.rows.run(job, [image], riders, **given)
        return Point(float(loss), by_outputs(gradient), tuple(map(float, bounds)))

    def riders(self, image: Any) -> Sequence[Rider]:
        """What else is found out about a point in the pass that gives its gradient, where rows are dear."""
        return [one(image) for one in self.design.riders]

    def point(self, x: Array, image: Any) -> Point:
        """All that is known of x, from one pass where its margins are a product."""
        known = self.rows.known(image)
        return known.once("point", self.owners, lambda: self.at(image, off=self.slack(x, image, 1.0)))

    def value_at(self, x: Array, image: Any) -> float:
        # On the way between two points there is no pass over X.
        whole = self.rows.all_at_once(image) or self.rows.known(image).knows("point", self.owners)
        loss = self.point(x, image).loss if whole else self.loss_at(image)
        return loss + 0.5 * self.l2 * float(x @ x)

    def loss_at(self, image: Any) -> float:
        """Without the ridge."""
        return self.at(image, pull=False).loss

    def gradient_at(self, x: Array, image: Any) -> Array:
        return (self.point(x, image) if self.rows.dear else self.at(image, value=False)).pull + self.l2 * x

    def rounding_at(self, x: Array, image: Any) -> float:
        """A sharper `gradient_rounding` at the price of a few passes over the rows, for an image that is a product."""
        return self._rounding(x, image, 1.0, self.point(x, image) if self.rows.dear else None)

    def gradient_rounding(self, x: Array, image: Any) -> float:
        """A bound on the norm of the rounding error of the gradient, for an image that is a product, or carried along
        straight lines (see `CARRIED`)."""
        return self._rounding(x, image, CARRIED)

    def _rounding(self, x: Array, image: Any, products: float, found: Point | None = None) -> float:
        off = self.slack(x, image, products)
        found = self.at(image, pull=False, off=off, value=False) if found is None else found
        bound = self.rounding(found, off)
        return bound + 2.0 * EPS * self.l2 * norm(x) if math.isfinite(bound) else math.inf

    def rounding(self, found: Point, off: Slack) -> float:
        """A bound on ||fl(X^T a psi') - X^T a psi'||: through margins that are off, and of the sum itself; infinite
        where rates were cut off."""
        through, whole, cut = found.bounds
        if cut:
            return math.inf
        design, up = self.design, 1.0 + gamma(self.design.shape[0] * self.outputs + 8)
        through = math.sqrt(design.squared_norm) * through * up
        return through + design.pull_rounding * whole * up + math.sqrt(self.outputs) * design.underflow

    def along(self, image: Any) -> Job:
        """What sums up the largest second derivatives between two points, along the line."""
        return Along(self.loss, self.b(image))

    def majoriser(self, z: Array, z_image: Any, x: Array, x_image: Any) -> float:
        total = self.rows.run(self.along(z_image), [z_image, x_image], **self.given)
        return min(majoriser_of(self.design, self.loss.curvature, z, x, float(total)) + self.l2, self.L)


@dataclass(frozen=True, eq=False)
class RowCurvature:
    """C = diag(a_i psi''), in main memory or, where rows are read from elsewhere, with these, and its sum."""

    design: Design
    rows: Any
    total: float
    known: Array | None = None  # X^T C X, with a column of ones if there is an intercept, where it was found before

    @property
    def mean(self) -> Array:
        """sum_i c_i x_i / sum_i c_i."""
        if self.known is not None and len(self.known) > self.design.shape[1]:
            return np.asarray(self.known[-1, :-1] / max(self.known[-1, -1], UNDERFLOW))
        return self.design.adjoint(self.rows) / max(self.total, UNDERFLOW)

    def gram(self, W: npt.NDArray[np.intp], intercept: bool, dtype: type = np.float64) -> Array:
        """X_W^T C X_W, less what an intercept takes out of it."""
        if self.known is not None:
            these = np.append(W, self.design.shape[1]) if intercept else W
            G: Array = self.known[np.ix_(these, these)]
        else:
            G = self.design.rows.run(Gram(np.asarray(W), intercept, dtype), C=self.rows)
        return centred(G) if intercept else G

    def products(self, intercept: bool) -> Callable[[Array], Array]:
        """V -> X^T C X V, less what an intercept takes out of it."""
        mean = self.mean if intercept else np.zeros(self.design.shape[1])
        return lambda V: self.design.rows.run(Normal(V, mean @ V), C=self.rows)


@dataclass(frozen=True, eq=False)
class LossModel(RowModel):
    """With one margin for each row, with or without an intercept: psi of it."""

    design: Design
    y: Any
    loss: MarginLoss
    l2: float = 0.0
    offset: Any = None
    intercept: ClassVar[bool] = False  # whether there is one, which is minimised out

    def slope_between(self, image: Any, other: Any) -> float:
        """The derivative of the loss half-way between two images, along the line that leads from one to the other."""
        return float(self.rows.run(Slope(self.loss, self.b(image), self.b(other)), [image, other], **self.given))

    def riders(self, image: Any) -> Sequence[Rider]:
        job, others = self._bend(image), super().riders(image)
        return others if job is None else [Rider("bend", self.owners, job, self.given), *others]

    def _bend(self, image: Any) -> Bend | None:
        """What makes a Hessian on all columns, where it goes with the gradient."""
        d = self.design.shape[1]
        few = self.rows.dear and d <= FEW_COLUMNS and not isinstance(self.loss, Squared)
        return Bend(self.loss, self.b(image), self.intercept, d**2) if few else None

    def row_curvature(self, image: Any) -> RowCurvature:
        """a_i psi'' of every row at these margins."""
        found, job = self._curved(Curvature(self.loss, self.b(image)), [image]), self._bend(image)
        if job is None:
            return found
        find = lambda: self.rows.run(job, [image], **self.given)  # noqa: E731
        return replace(found, known=self.rows.known(image).once("bend", self.owners, find))

    def steadier(self, curvature: RowCurvature, image: Any, other: Any) -> RowCurvature | None:
        """The larger of a curvature of rows and of its mean between two margins; None where that is not finite."""
        job = Curvature(self.loss, self.b(image), self.b(other))
        found = self._curved(job, [image, other], before=curvature.rows)
        return found if math.isfinite(found.total) else None

    def _curved(self, job: Curvature, images: list[Any], **given: Any) -> RowCurvature:
        rows, total = self.rows.run(job, images, **self.given, **given)
        return RowCurvature(self.design, rows if self.rows.dear else host(rows), float(total))


@dataclass(frozen=True, eq=False)
class LinearModel(LossModel):
    """sum_i a_i psi(x_i . w + o_i, y_i) + (l2/2) ||w||^2; `design` holds X and the a_i."""

    def gradient_rounding(self, x: Array, image: Any) -> float:
        if math.isinf(self.loss.curvature) or self.offset is not None:
            return super().gradient_rounding(x, image)
        # From norms alone.
        design, size = self.design, norm(x)
        spectral, curvature = math.sqrt(design.squared_norm), self.loss.curvature
        of_margins = CARRIED * design.spread(x)
        derivative = self._derivative_at_zero + curvature * (spectral * size + of_margins)
        rounding = curvature * spectral * of_margins + design.pull_rounding * derivative
        return rounding + 2.0 * EPS * self.l2 * size + design.underflow

    @cached_property
    def _derivative_at_zero(self) -> float:
        return float(self.rows.run(SlopeAtZero(self.loss), **self.given)) * (1.0 + gamma(self.design.shape[0] + 8))


def majoriser_of(design: Design, bend: float, z: Array, x: Array, total: float) -> float:
    """M with  sum_i a_i c_i ((x - z) . x_i)^2 <= M ||x - z||^2  for the computed sum with the margins' change, c_i <=
    bend.

    Its root is a norm of the change, which errs by the rounding of the margins at either end: where x and z agree in
    nearly all digits there is nothing else, and M is of no use."""
    moved = norm(x - z)
    if moved < 1e-150:
        return math.inf
    along = math.sqrt(total) * (1.0 + gamma(design.shape[0] + 8))
    spread = design.spread(x) + CARRIED * design.spread(z)
    bound = (along + math.sqrt(bend) * spread) / moved
    return bound * bound if bound < 1e150 else math.inf
