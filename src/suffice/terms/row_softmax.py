r"""Multinomial logistic regression (`suffice.terms.multinomial`) of blocks of rows, wherever these are, without
intercepts:

    f(W) = sum_i a_i ( log sum_k exp(m_ik) - m_{i, y_i} ) + (l2/2) ||W||^2,     m_i = W x_i.

Margins, N x K, stay with their rows. The loss, its gradient X^T (a (p - onehot)), d x K, and what bounds the rounding
of this one are found in the pass over X that makes the margins of a point; the Hessian on a working set in another.
What is proven of the gradient's rounding is what `suffice.terms.multinomial` says with b = 0: margins that err by no
more than delta_i move it by at most  (1/2)^(1/2) ||diag(a)^(1/2) X|| (sum_i a_i c_i delta_i^2)^(1/2),  c_i = e^r times
the trace of H_i, r = 2^(1/2) max_i delta_i; and a sum over rows errs by `Design.pull_rounding` times its terms' length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, norm
from suffice.terms.blocks import Block, Length, Margins
from suffice.terms.jobs import pulled
from suffice.terms.linear import CARRIED, majoriser_of
from suffice.terms.multinomial import HESSIAN_ROWS, Multinomial, R
from suffice.terms.rounding import TINY, gamma

Indices = npt.NDArray[np.intp]


def softmax_rows(m: Array, labels: Indices) -> tuple[Array, Array]:
    """Probabilities and losses of rows."""
    with np.errstate(over="ignore", invalid="ignore"):
        z = m - m.max(axis=1, keepdims=True)
        seen = z[np.arange(len(z)), labels]
        e = np.exp(z, out=z)
        total = e.sum(axis=1)
        losses: Array = np.log(total) - seen
        e /= total[:, None]
    return e, losses


def labels_of(block: Block) -> Indices:
    """The number of every row's class."""
    labels: Indices = block["y"].astype(np.intp)
    return labels


@dataclass(frozen=True)
class SoftmaxAt:
    """A point: the loss, X^T (a (p - onehot)), and lengths that bound the rounding of the latter where margins err by
    no more than `slack` ||x_i|| + `least`; `stretch` is e^r of the module's text. a, y, norms are given.

    Without `pull` X is not read, and there is no gradient."""

    slack: float
    least: float
    stretch: float
    pull: bool = True
    keeps: bool = False

    @property
    def reads(self) -> bool:
        return self.pull

    def __call__(self, block: Block) -> Any:
        m, a, labels = block.margins[0], block["a"], labels_of(block)
        K, root, error = m.shape[1], np.sqrt(a), self.slack * block["norms"] + self.least
        p, losses = softmax_rows(m, labels)
        gap = p.copy()
        gap[np.arange(len(m)), labels] -= 1.0
        gradient = pulled(block.X, a[:, None] * gap) if self.pull else np.zeros(0)
        bend = np.minimum(((p - p * p).sum(axis=1) + 16.0 * K * EPS) * self.stretch, 0.5)
        of_exponents = EPS * math.sqrt(K) * (K + 8.0 + 2.0 * np.abs(m).max(axis=1))
        return (
            float(a @ losses),
            gradient,
            Length(norm(root * np.sqrt(bend) * error)),
            Length(norm(root * of_exponents)),
            Length(norm(root * (np.sqrt((gap * gap).sum(axis=1)) + K * EPS))),
        )


@dataclass(frozen=True)
class SoftmaxAlong:
    """sum_i a_i range(n_i - m_i)^2 / 4: a variance is no more than that, wherever p is. a is given."""

    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> float:
        m, n = block.margins
        change = n - m
        spread = change.max(axis=1) - change.min(axis=1)
        return float(block["a"] @ (0.25 * spread * spread))


@dataclass(frozen=True)
class SoftmaxHessian:
    """sum_i a_i (diag(p_i) - p_i p_i^T) (x) x_i x_i^T on the variables whose columns are `parts`, class by class. a is
    given."""

    parts: tuple[Indices, ...]
    reads: bool = True
    keeps: bool = False

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.parts) ** 2

    def __call__(self, block: Block) -> Array:
        X, m, a = block.X, block.margins[0], block["a"]
        counts = a > 0.0
        if not counts.all():
            X, m, a = X[counts], m[counts], a[counts]
        p, _ = softmax_rows(m, np.zeros(len(m), dtype=np.intp))
        ends = np.cumsum([0, *(len(part) for part in self.parts)])
        H = np.zeros((ends[-1], ends[-1]))
        for first in range(0, len(X), HESSIAN_ROWS):
            rows = slice(first, first + HESSIAN_ROWS)
            every = np.empty((len(m[rows]), ends[-1]))
            for k, part in enumerate(self.parts):
                place = slice(ends[k], ends[k + 1])
                columns = X[rows][:, part] * np.sqrt(a[rows] * p[rows, k])[:, None]
                H[place, place] += columns.T @ columns
                every[:, place] = columns * np.sqrt(p[rows, k])[:, None]
            H -= every.T @ every
        return H


@dataclass(frozen=True, eq=False)
class SoftmaxPoint:
    """What is known of a point."""

    loss: float
    pull: Array  # W's order
    through: float
    exponents: float
    whole: float

    @classmethod
    def of(cls, found: tuple[Any, ...]) -> SoftmaxPoint:
        loss, pull, *lengths = found
        return cls(float(loss), np.ascontiguousarray(pull.T).ravel(), *(float(one) for one in lengths))


@dataclass(frozen=True, eq=False)
class RowsMultinomial(Multinomial):
    """`Multinomial` without intercepts, for blocks of rows; `onehot` holds the numbers of the rows' classes, of which
    there are `count`, and images are `Margins`."""

    count: int = 2

    @property
    def classes(self) -> int:
        return self.count

    @property
    def given(self) -> dict[str, Any]:
        """What goes with the rows."""
        return {"a": self.design.weights, "y": self.onehot, "norms": self.design.row_norms}

    def image(self, x: Array) -> Any:
        return self.design.X.margins(x.reshape(self.count, -1).T)

    def point(self, x: Array, image: Margins) -> SoftmaxPoint:
        """All that is known of x, from one pass."""
        key = "softmax", id(self.design), id(self.onehot)
        if key not in image.known:
            found = self._run(x, image, 1.0, True)
            image.known[key] = (self.design, self.onehot), found  # held, so that ids stay their own
        return image.known[key][1]  # type: ignore[no-any-return]

    def _run(self, x: Array, image: Margins, products: float, pull: bool) -> SoftmaxPoint:
        slack, least = products * self.design.margin_rounding(x) * norm(x), TINY * len(x)
        furthest = slack * self.design.survey.reach + least
        stretch = math.exp(min(R * furthest * (1.0 + 8.0 * EPS), 700.0)) * (1.0 + 8.0 * EPS)
        return SoftmaxPoint.of(self.design.X.run(SoftmaxAt(slack, least, stretch, pull), [image], **self.given))

    def value_at(self, x: Array, image: Any) -> float:
        key = "softmax", id(self.design), id(self.onehot)
        known = image.is_product or key in image.known  # else on the way between two points: no pass over X
        found = self.point(x, image) if known else self._run(x, image, 1.0, False)
        return found.loss + 0.5 * self.l2 * float(x @ x)

    def gradient_at(self, x: Array, image: Any) -> Array:
        return self.point(x, image).pull + self.l2 * x

    def gradient_rounding(self, x: Array, image: Any) -> float:
        return self._bound(x, self._run(x, image, CARRIED, False))

    def rounding_at(self, x: Array, image: Any) -> float:
        return self._bound(x, self.point(x, image))

    def _bound(self, x: Array, found: SoftmaxPoint) -> float:
        design = self.design
        up = 1.0 + gamma(design.shape[0] + self.count + 16)
        through = math.sqrt(design.squared_norm) * (math.sqrt(0.5) * found.through + 0.5 * found.exponents) * up
        return through + design.pull_rounding * found.whole * up + 2.0 * EPS * self.l2 * norm(x) + design.underflow

    def majoriser(self, z: Array, z_image: Any, x: Array, x_image: Any) -> float:
        total = self.design.X.run(SoftmaxAlong(), [z_image, x_image], **self.given)
        return min(majoriser_of(self.design, 0.5, z, x, float(total)) + self.l2, self.L)

    def hessian(self, image: Any, working: Indices) -> Array:
        d, K = self.design.shape[1], self.count
        parts = tuple(working[(working >= k * d) & (working < (k + 1) * d)] - k * d for k in range(K))
        H: Array = self.design.X.run(SoftmaxHessian(parts), [image], **self.given).copy()
        H[np.diag_indices(len(H))] += self.l2
        return H

    def probabilities(self, image: Any) -> Array:
        raise TypeError("probabilities of blocks of rows stay with them")

    def losses(self, image: Any) -> Array:
        raise TypeError("losses of blocks of rows stay with them")

    def hessian_at(self, image: Any) -> Callable[[Array], Array]:
        raise TypeError("products with the Hessian of several classes need X in main memory")
