r"""F over the whole space at a glance: where a search begins, and no proof of anything.

For squares, Phi(w) = 1/2 sum_i a_i (x_i . w + b - y_i)^2 + (l2/2) ||w||^2 + l1 ||w||_1, a free b centres rows and
targets, and all that a fold's solutions depend on is  G = X^T A X  and  c = X^T A y.  So they cost little once these
are known:

- without an l1, G = V diag(s) V^T gives  w = V (V^T c) / (s + l2)  for all l2 at once; where rows are fewer than
  columns, the same by the matrix of their products, X A X^T;
- with one, scikit-learn's coordinate descent on G takes a fraction of a millisecond for a few columns. (Where columns
  are many, and more than rows, there is no small G, and it takes longer than certified looks do.)

Any other smooth psi is taken for the quadratic that it is near known weights v, with  G = X^T A psi'' X  less what b
takes up, and  c = G v - X^T A psi'.  Held-out losses are psi's own. That is near F where solutions are not far from v.
Whether it is shows where the sketch is least and F is looked at; if not, F is sketched anew, near the weights there.

None of this is accurate to more than DESCENT of the targets' variance, or certified: what is found here is where the
certified search begins, which proves what it returns. But it shows valleys that a few certified looks would miss, for
less than these cost. F is sketched along lines, in decades below the l1_max that makes all weights zero and the largest
curvature L: the line of l2 alone, that of l1 alone, and lines of constant l1 / l2 between them, each from large
penalties to small ones until F has turned upwards for good. Then around the best of all, as long as that gets better.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import scipy.sparse as sp
from joblib import cpu_count
from sklearn.linear_model import enet_path

from suffice.arrays import EPS, Array, host, lives_elsewhere, norm
from suffice.held_out import HeldOut
from suffice.lazy import cached_property
from suffice.lower.signed_factor import weighted_gram
from suffice.protocols import conforms
from suffice.sklearn._devices import rows_here
from suffice.sklearn.enough import error_of_mean
from suffice.sklearn.folds import FLOOR, LinearFold
from suffice.sklearn.penalties import PenaltySpace, penalties
from suffice.space import Space
from suffice.terms.blocks import one_thread
from suffice.terms.intercept import Intercepted
from suffice.terms.margin_losses import Bending, MarginLoss, Squared

MOST = 2000  # rows and columns of G
DESCENT, SWEEPS = 1e-5, 200
# Decades: steps along the line of l2 alone and along the others, and how much smaller l2 / L is there than l1 / l1_max
RIDGE_STEP, STEP, SLOPES = 0.1, 0.25, (-1.0, 0.5, 2.0, 3.5)
LONGEST, AT_ONCE = 4.0, 6  # how far below l1_max; places along a line
NEGLIGIBLE, LEAST_L2 = 1e-4, 1e-4  # of l1_max, and of L: where the space begins, or it is not sketched
TURNED = 1.1  # F has turned upwards where it has become so many times the least one on the way,
TURNED_SE, NEARLY_SE = 0.5, 0.1  # or by so many standard errors over folds; by how many if it has risen twice
ALMOST_NONE = 1e-5  # of l1_max: there is nothing to see around so small an l1
AROUND, CLOSEST = {"l1": 0.12, "l2": 0.4}, 0.5  # decades, and the last share of them
FEW = 600  # columns: G is made of these whatever the number of rows

Theta = tuple[float, ...]
Kind = Literal["squares", "near weights"]


@dataclass(frozen=True, eq=False)
class FoldSketch:
    """What one fold's solutions depend on; margins of held-out rows are  X w + level - mean . w."""

    rows: Array | None  # sqrt(a) x_i, centred, where they are fewer than columns
    G: Array  # as in the module's text, or X A X^T
    c: Array
    y: Array  # sqrt(a) y_i, of these rows
    size: float  # ||y||, or what stands for it
    mean: Array
    level: float
    held: HeldOut

    @classmethod
    def of(cls, fold: LinearFold, held: HeldOut, v: Array | None = None) -> FoldSketch:
        """Near weights v, which do not matter for squares."""
        design, a, y = fold.design, host(fold.design.weights), host(fold.y)
        d = design.shape[1]
        if _wide(fold):
            used = a > 0.0
            mean, level = (design.adjoint(a), float(a @ y)) if fold.minimised_out else (np.zeros(d), 0.0)
            root = np.sqrt(a[used])
            rows, y = (rows_here(design.X, used) - mean) * root[:, None], root * (y[used] - level)
            return cls(rows, rows @ rows.T, rows.T @ y, y, norm(y), mean, level, held)
        v, model = np.zeros(d) if v is None else v, fold.unpenalised
        image = model.image(v)
        b = model.intercept(image)[0] if isinstance(model, Intercepted) else 0.0
        psi, m = cast("MarginLoss", fold.psi), host(image) + b
        C, pull = a * cast("Bending", psi).second(m, y), a * psi.derivative(m, y)
        G = weighted_gram(design.X, np.arange(d), np.sqrt(C), False)[0]
        mean = design.adjoint(C) / C.sum() if isinstance(model, Intercepted) else np.zeros(d)
        left = getattr(psi, "excess", psi.value)  # psi of counts may be negative
        size = math.sqrt(2.0 * float(a @ left(m, y)))
        G = G - np.outer(mean, C.sum() * mean)
        return cls(None, G, G @ v - design.adjoint(pull), y, size, mean, b + float(mean @ v), held)

    @cached_property
    def spectrum(self) -> tuple[Array, Array]:
        s, V = np.linalg.eigh(self.G)
        return np.maximum(s, 0.0), V

    def ridge(self, l2: Array) -> Array:
        """Weights without an l1, a column for every l2."""
        s, V = self.spectrum
        l2 = np.maximum(l2, EPS * s[-1])
        W = V @ ((V.T @ (self.c if self.rows is None else self.y))[:, None] / (s[:, None] + l2))
        return W if self.rows is None else np.asarray(self.rows.T @ W)

    def descended(self, l1: Array, l2: Array, near: Array | None) -> Array:
        """Weights at penalties of one ratio, from large to small, a column for each; from weights near the first."""
        # One row and one target: their number and size are all that is taken of them beside G and c.
        row, size = np.zeros((1, len(self.c))), np.array([self.size])
        _, W, _ = enet_path(
            row, size, l1_ratio=float(l1[0] / (l1[0] + l2[0])), alphas=l1 + l2, precompute=self.G, Xy=self.c,
            coef_init=None if near is None else near.copy(),  # it is written to
            check_input=False, tol=DESCENT, max_iter=SWEEPS,
        )  # fmt: skip
        return np.asarray(W)

    def losses(self, W: Array) -> Array:
        """The fold's part of F for every column of W."""
        held = self.held
        margins = host(held.design.margins(W)) + (self.level - self.mean @ W)
        each = [held.score.residuals(m, held.y) for m in margins.T]
        return held.share * np.array([float(host(held.design.weights) @ r**2) for r in each])


@dataclass(eq=False)
class Sketch:
    """F over a space of one or two penalties, in decades."""

    folds: list[FoldSketch]
    space: Space
    ratio: float
    l1_max: float
    curvature: float
    seen: dict[Theta, Array] = field(default_factory=dict)  # the folds' parts of F
    weights: dict[Theta, list[Array]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, folds: Sequence[Any], losses: Sequence[Any], space: PenaltySpace, near: Sequence[Array] | None = None
    ) -> Sketch:
        """`near`: weights of every fold, for other losses than squares."""
        models, weights = [fold.model for fold in folds], [None] * len(folds) if near is None else near
        sketches = [FoldSketch.of(*known) for known in zip(models, losses, weights, strict=True)]
        l1_max = max(model.l1_max for model in models)
        L = max(float(sketch.spectrum[0][-1]) for sketch in sketches)
        sketch = cls(sketches, space.space, space.ratio, l1_max, L)
        sketch._survey()
        return sketch

    @property
    def complete(self) -> bool:
        """Whether all of the space is seen: where rows are fewer than columns, what has an l1 that matters is not."""
        return all(fold.rows is None for fold in self.folds) or (len(self.space) == 1 and self.ratio == 0.0)

    def _survey(self) -> None:
        """F over the space, for `lowest`."""
        with warnings.catch_warnings(), np.errstate(over="ignore", under="ignore"):
            warnings.simplefilter("ignore")  # of coordinate descent that has not converged
            self._ridge()
            if self.complete:
                for line in self._lines():
                    self._along(line)
                self._around()

    def height(self, theta: Theta) -> float:
        """F there."""
        return float(self.seen[theta].sum())

    def height_at(self, theta: Theta) -> float:
        """F anywhere in the space."""
        if theta not in self.seen:
            l1, l2 = self._pairs([theta])
            if l1[0] > ALMOST_NONE * self.l1_max:
                self._descend([theta], None)
            else:
                self.seen[theta] = self.without_l1(l2)[:, 0]
        return self.height(theta)

    def weights_at(self, theta: Theta) -> list[Array]:
        """Those of every fold where F was sketched."""
        known = self.weights.get(theta)
        return [fold.ridge(self._pairs([theta])[1])[:, 0] for fold in self.folds] if known is None else known

    @property
    def lowest(self) -> Theta:
        """Where F is least of all that was seen."""
        return min(self.seen, key=self.height)

    @property
    def standard_error(self) -> float:
        """That of the least F over folds."""
        return error_of_mean(self.seen[self.lowest] * len(self.folds)) if len(self.folds) > 1 else math.inf

    def _pairs(self, thetas: Sequence[Theta]) -> tuple[Array, Array]:
        """l1 and l2 at these places."""
        both = [penalties(self.space.params(np.array(theta)), self.ratio) for theta in thetas]
        return np.array([one["l1"] for one in both]), np.array([one["l2"] for one in both])

    def _inside(self, places: Sequence[tuple[float, float]]) -> list[Theta]:
        """(log l1, log l2) as theta, without those outside the box."""
        (lower, upper), names = self.space.bounds, self.space.names
        thetas = [tuple(float(place[name == "l2"]) for name in names) for place in places]
        return [theta for theta in thetas if (lower <= theta).all() and (theta <= upper).all()]

    def _ridge(self) -> None:
        """The line without an l1, all at once: on the edge of the least one where that is tuned as well."""
        if "l2" not in self.space.names or (len(self.space) == 1 and self.ratio > 0.0):
            return
        least, top = self._bounds("l1")[0], math.log10(self.curvature) + 2.0
        thetas = self._inside([(least, level) for level in (*np.arange(top, -300.0, -RIDGE_STEP), *self._bounds("l2"))])
        parts = self.without_l1(self._pairs(thetas)[1])
        self.seen |= dict(zip(thetas, parts.T, strict=True))

    def without_l1(self, l2: Array) -> Array:
        """The folds' parts of F, a column for every l2."""
        return np.array([fold.losses(fold.ridge(l2)) for fold in self.folds])

    def _bounds(self, name: str) -> tuple[float, float]:
        lower, upper = self.space.bounds
        k = self.space.names.index(name) if name in self.space.names else None
        return (-math.inf, math.inf) if k is None else (float(lower[k]), float(upper[k]))

    def _lines(self) -> list[list[Theta]]:
        """Lines with an l1, from large penalties to small ones, of one ratio each or with the least l2."""
        t1, t2 = math.log10(self.l1_max), math.log10(self.curvature)
        shift = math.log10((1.0 - self.ratio) / self.ratio) if 0.0 < self.ratio < 1.0 else -math.inf
        highest = self._bounds("l1")[1] if "l1" in self.space.names else self._bounds("l2")[1] - shift
        down = (t1 if highest > t1 - LONGEST else highest) - np.arange(0.0, LONGEST, STEP)
        if len(self.space) == 2:
            least = self._bounds("l2")[0]
            lines = [[(level, least) for level in down]]
            lines += [[(level, level + t2 - t1 - slope) for level in down] for slope in reversed(SLOPES)]
        elif self.ratio == 0.0:
            return []
        else:  # l2 follows from l1, or l1 from l2
            lines = [[(level, level + shift) for level in down]]
        return [inside for line in lines if (inside := self._inside(line))]

    def _along(self, line: Sequence[Theta]) -> None:
        """A line up to where F has turned upwards, AT_ONCE places at a time."""
        heights: list[float] = []
        for first in range(0, len(line), AT_ONCE):
            part = line[first : first + AT_ONCE]
            self._descend(part, line[first - 1] if first else None)
            heights += [self.height(theta) for theta in part]
            least, error = min(heights), self.standard_error
            turned = heights[-1] > min(TURNED * least, least + TURNED_SE * error)
            again = least < heights[-2] < heights[-1] > least + NEARLY_SE * error if len(heights) > 2 else False
            if turned or again:
                return

    def _descend(self, thetas: Sequence[Theta], near: Theta | None) -> None:
        """F at places on a line."""
        l1, l2 = self._pairs(thetas)
        alike = bool(np.ptp(l2 / l1) <= 1e-9 * (l2 / l1).max())

        def descended(k: int) -> Array:
            known = self.weights[near][k] if near in self.weights else None
            # The least l2 is far below all that matters: the same along the line, it may as well be none.
            with np.errstate(over="ignore", under="ignore"):
                return self.folds[k].descended(l1, l2 if alike else np.zeros(len(l2)), known)

        parts = _each(descended, self.folds)
        heights = np.array([fold.losses(W) for fold, W in zip(self.folds, parts, strict=True)])
        self.seen |= dict(zip(thetas, heights.T, strict=True))
        self.weights |= {theta: [W[:, i] for W in parts] for i, theta in enumerate(thetas)}

    def _around(self) -> None:
        """Crosses around the best, smaller ones where it is in the middle."""
        m, share = len(self.space), 1.0
        steps = [AROUND[name] for name in self.space.names]
        lower, upper = self.space.bounds
        while share >= CLOSEST:
            middle = self.lowest
            for k, step in enumerate(steps):
                for sign in (-1.0, 1.0):
                    there = np.clip(np.array(middle) + sign * share * step * np.eye(m)[k], lower, upper)
                    theta = tuple(float(x) for x in there)
                    if theta not in self.seen and self._pairs([theta])[0][0] > ALMOST_NONE * self.l1_max:
                        self._descend([theta], middle)
            share *= 0.5 if self.lowest == middle else 1.0


def _each(function: Callable[[int], Array], folds: Sequence[FoldSketch]) -> list[Array]:
    """For every number of a fold; by threads where rows are on a device, which leaves this machine's to the folds."""
    if not lives_elsewhere(folds[0].held.design.X):
        return [function(k) for k in range(len(folds))]
    with one_thread(), ThreadPoolExecutor(min(len(folds), cpu_count())) as pool:  # each of them has one
        return list(pool.map(function, range(len(folds))))


def sketches(folds: Sequence[Any], losses: Sequence[Any], space: PenaltySpace) -> Kind | None:
    """How F can be sketched; None for groups of columns, sparse rows, several margins, spaces that do not go down to
    where penalties do not matter, and where it would cost too much."""
    models = [fold.model for fold in folds]
    if space.groups or any(scale != "log" for scale in space.space.scales.values()):
        return None
    kinds = {_kind(model, loss) for model, loss in zip(models, losses, strict=True)}
    if len(kinds) > 1 or None in kinds:
        return None
    lower = {name: ends[0] for name, ends in space.space.ranges.items()}
    l1_max, L = max(model.l1_max for model in models), max(model.l2_floor / FLOOR for model in models)
    if not l1_max > 0.0 or lower.get("l1", 0.0) > NEGLIGIBLE * l1_max or lower.get("l2", 0.0) > LEAST_L2 * L:
        return None
    of_l1 = len(lower) == 1 and space.ratio > 0.0
    return None if of_l1 and any(map(_wide, models)) else kinds.pop()


def _wide(model: LinearFold) -> bool:
    """Whether columns are many, and more than the rows that count."""
    return bool(np.count_nonzero(host(model.design.weights)) < model.design.shape[1] > FEW)


def _kind(model: Any, loss: Any) -> Kind | None:
    if not (type(model) is LinearFold and isinstance(loss, HeldOut)) or loss.offset is not None:
        return None
    X = model.design.X
    if sp.issparse(X) or sp.issparse(loss.design.X) or min(X.shape) > MOST:
        return None
    if isinstance(model.psi, Squared):
        return "squares"
    if _wide(model) or not conforms(model.psi, Bending) or model.kind == "column":
        return None
    return "near weights"
