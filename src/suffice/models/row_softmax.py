r"""Multinomial logistic regression (`suffice.models.multinomial`) of blocks of rows, wherever these are:

    f(W) = min_b sum_i a_i ( log sum_k exp(m_ik) - m_{i, y_i} ) + (l2/2) ||W||^2,     m_i = W x_i + b,  sum_k b_k = 0,

b = 0 without an intercept. All that is proven there holds; sums over rows are made where the rows are, and X W^T, N x
K, stays with them. The loss, its gradient X^T (a (p - onehot)), d x K, and what bounds the rounding of this one are
found in one pass over X; the Hessian on a working set in another, with what b takes up of it.

b is found by Newton's method from that of W = 0 less the margins' means on, a pass over the margins for each of its
steps. The first makes the margins; the last, which asks whether b is what it should be, is one with the pass for the
gradient: a point takes one pass over X without intercepts, and two with them. b depends on nothing but W: a solution
continued is the same to the last bit.

Margins that err by no more than delta_i = sigma ||x_i|| + epsilon, and a b that errs by beta, move the gradient by at
most (1/2)^(1/2) ||diag(a)^(1/2) X|| times  (sum_i a_i c_i delta_i^2)^(1/2) + beta (sum_i a_i c_i)^(1/2),  c_i = e^r
times the trace of H_i or 1/2, whichever gives less in all, r = 2^(1/2) times what any row's margins are off, b
included; and a sum over rows errs by `Design.pull_rounding` times its terms' length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.lazy import cached_property
from suffice.models.linear import CARRIED, majoriser_of
from suffice.models.multinomial import CLOSE, MOST_STEPS, Balance, Intercepts, Multinomial, R, solve_across
from suffice.models.softmax_jobs import (
    Indices,
    SoftmaxAcross,
    SoftmaxAlong,
    SoftmaxAt,
    SoftmaxBalance,
    SoftmaxHessian,
    SoftmaxSeen,
)
from suffice.rows.blocks import tree_roundings
from suffice.rows.design import Design
from suffice.rows.rounding import TINY, gamma


@dataclass(frozen=True, eq=False)
class SoftmaxPoint:
    """What is known of a point."""

    loss: float
    pull: Array  # W's order
    bent_rows: float
    rows: float
    bent: float
    exponents: float
    whole: float

    @classmethod
    def of(cls, found: tuple[Any, ...]) -> SoftmaxPoint:
        loss, pull, *lengths = found[:LENGTHS]
        return cls(float(loss), np.ascontiguousarray(pull.T).ravel(), *(float(one) for one in lengths))


LENGTHS = len(fields(SoftmaxPoint))


@dataclass(frozen=True, eq=False)
class RowIntercepts(Intercepts):
    """b, and its curvature."""

    H: Array


_seen: WeakKeyDictionary[Design, list[tuple[Any, Array]]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class RowsMultinomial(Multinomial):
    """`Multinomial`, for blocks of rows; `onehot` holds the numbers of the rows' classes, of which there are `count`,
    and images are `Margins`."""

    count: int = 2

    @property
    def classes(self) -> int:
        return self.count

    @property
    def given(self) -> dict[str, Any]:
        """What goes with the rows."""
        return {"a": self.design.weights, "y": self.onehot, "norms": self.design.row_norms}

    @property
    def owners(self) -> tuple[Any, ...]:
        """What all that is known of margins depends on besides them."""
        return self.design, self.onehot, self.intercept

    def image(self, x: Array) -> Any:
        return self.design.X.margins(x.reshape(self.count, -1).T)

    @cached_property
    def _largest_row(self) -> float:
        return self.design.survey.reach

    @property
    def seen(self) -> Array:
        """The weight of every class: the same for all penalties, and found once."""
        known = _seen.setdefault(self.design, [])
        for labels, seen in known:
            if labels is self.onehot:
                return seen
        found: Array = self.design.X.run(SoftmaxSeen(self.count), a=self.design.weights, y=self.onehot)
        known.append((self.onehot, found))
        return found

    # Intercepts

    def find(self, image: Any, near: Array | None = None) -> Array:
        """They belong to the margins alone, wherever one comes from."""
        if self.intercept:
            self.point(image)  # ends the search in the same pass
        return self.shift(image)[0]

    def recall(self, image: Any, b: Array) -> None:
        """Nothing: see `find`."""

    def _found(self, image: Any) -> RowIntercepts:
        def find() -> RowIntercepts:
            found, better = self._sought_rows(image)
            return self._proven(*(found if better is None else self._balance(image, better)))

        found: RowIntercepts = image.once("intercepts", self.owners, find)
        return found

    def _balance(self, image: Any, b: Array) -> tuple[Array, float, Balance]:
        """b, the loss there and the sums over rows."""
        given = {"a": self.design.weights, "y": self.onehot}
        loss, *sums = self.design.X.run(SoftmaxBalance(b), [image], **given)
        return b, float(loss), Balance(*sums)

    def _proven(self, b: Array, loss: float, balance: Balance) -> RowIntercepts:
        N = self.design.shape[0]
        error, least = balance.proven(N, tree_roundings(N, self.design.X.block))
        return RowIntercepts(b, error, least, loss, balance.H)

    def _sought_rows(self, image: Any) -> tuple[tuple[Array, float, Balance], Array | None]:
        """What was found at the last b that was asked about, and one that is better, but for rounding the right one;
        None if there is none."""
        mean = image.w.T @ self.design.survey.means
        b = _centred(np.log(np.maximum(self.seen, 1e-300)) - mean)
        _, value, here = known = self._balance(image, b)
        for _ in range(MOST_STEPS):
            if norm(here.s) <= EPS:
                break
            step = solve_across(here.H, -here.s)
            if norm(step) <= CLOSE:
                return known, _centred(b + step)
            t, slope = 2.0, float(here.s @ step)
            while True:
                t *= 0.5
                moved, trial, there = self._balance(image, _centred(b + t * step))
                if trial <= value + 1e-4 * t * slope + 8.0 * EPS * (1.0 + abs(value)) or not t > 1e-10:
                    break
            if norm(there.s) >= norm(here.s) and abs(slope) <= 64.0 * EPS * (1.0 + abs(value)):
                break
            b, value, here = known = moved, trial, there
        return known, None

    def intercept_jacobian(self, image: Any) -> Array:
        """d b / d W, K x (K d)."""

        def find() -> Array:
            found = self._found(image)
            across = self.design.X.run(SoftmaxAcross(found.b), [image], **self.given)
            return -solve_across(found.H, across.T)

        jacobian: Array = image.once("jacobian of b", self.owners, find)
        return jacobian

    # What a point is asked for

    def _b(self, image: Any) -> Array | None:
        return self._found(image).b if self.intercept else None

    def point(self, image: Any) -> SoftmaxPoint:
        """All that is known of it, from one pass over X but for the one that makes its margins."""

        def find() -> SoftmaxPoint:
            if not self.intercept or image.knows("intercepts", self.owners):
                return self._run(SoftmaxAt(self._b(image)), image)
            found, better = self._sought_rows(image)
            if better is None:
                image.keep("intercepts", self.owners, self._proven(*found))
                return self._run(SoftmaxAt(found[0]), image)
            sums = self.design.X.run(SoftmaxAt(better, balance=True), [image], **self.given)
            proven = self._proven(better, float(sums[0]), Balance(*sums[LENGTHS:]))
            image.keep("intercepts", self.owners, proven)
            return SoftmaxPoint.of(sums)

        point: SoftmaxPoint = image.once("softmax", self.owners, find)
        return point

    def _run(self, job: SoftmaxAt, image: Any) -> SoftmaxPoint:
        return SoftmaxPoint.of(self.design.X.run(job, [image], **self.given))

    def _without_pull(self, image: Any) -> SoftmaxPoint:
        """But for the gradient, which would take a pass over X."""
        known = image.knows("softmax", self.owners)
        return self.point(image) if known else self._run(SoftmaxAt(self._b(image), pull=False), image)

    def value_at(self, x: Array, image: Any) -> float:
        if image.is_product:
            loss = self.point(image).loss
        else:  # on the way between two points
            loss = self._found(image).loss if self.intercept else self._without_pull(image).loss
        return loss + 0.5 * self.l2 * float(x @ x)

    def gradient_at(self, x: Array, image: Any) -> Array:
        return self.point(image).pull + self.l2 * x

    def gradient_rounding(self, x: Array, image: Any) -> float:
        return self._bound(x, self._without_pull(image), self.shift(image)[1], CARRIED)

    def rounding_at(self, x: Array, image: Any) -> float:
        return self._bound(x, self.point(image), self.shift(image)[1], 1.0)

    def _bound(self, x: Array, found: SoftmaxPoint, error_of_b: float, products: float) -> float:
        """By the module's text, for margins that err by no more than so many products."""
        design, least = self.design, TINY * len(x)
        slack = products * design.margin_rounding(x) * norm(x)
        furthest = (1.0 + self._follow) * (slack * self._largest_row + least) + error_of_b
        up = 1.0 + gamma(design.shape[0] + self.count + 16)
        stretch = math.exp(min(0.5 * R * furthest * (1.0 + 8.0 * EPS), 350.0)) * (1.0 + 8.0 * EPS)
        half = math.sqrt(0.5) * up
        bent_rows, bent = min(stretch * found.bent_rows, half * found.rows), min(stretch * found.bent, half)
        through = math.sqrt(0.5) * (slack * bent_rows + (least + error_of_b) * bent) + 0.5 * found.exponents
        through *= math.sqrt(design.squared_norm) * up
        return through + design.pull_rounding * found.whole * up + 2.0 * EPS * self.l2 * norm(x) + design.underflow

    def majoriser(self, z: Array, z_image: Any, x: Array, x_image: Any) -> float:
        total = self.design.X.run(SoftmaxAlong(), [z_image, x_image], **self.given)
        return min(majoriser_of(self.design, 0.5, z, x, float(total)) + self.l2, self.L)

    def hessian(self, image: Any, working: Indices) -> Array:
        d, K = self.design.shape[1], self.count
        parts = tuple(working[(working >= k * d) & (working < (k + 1) * d)] - k * d for k in range(K))
        found = self.design.X.run(SoftmaxHessian(parts, self._b(image)), [image], **self.given)
        H: Array
        if self.intercept:
            H, across = found
            H = H - across @ solve_across(self._found(image).H, across.T)
        else:
            H = found.copy()
        H[np.diag_indices(len(H))] += self.l2
        return H

    def probabilities(self, image: Any) -> Array:
        raise TypeError("probabilities of blocks of rows stay with them")

    def losses(self, image: Any) -> Array:
        raise TypeError("losses of blocks of rows stay with them")

    def hessian_at(self, image: Any) -> Callable[[Array], Array]:
        raise TypeError("products with the Hessian of several classes need X in main memory")


def _centred(b: Array) -> Array:
    centred: Array = b - b.mean()
    return centred
