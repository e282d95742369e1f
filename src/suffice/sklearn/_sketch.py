r"""F over the whole space at a glance: where a search begins, and no proof of anything.

What is found here is where the certified search begins, which proves what it returns. But it shows valleys that a few
certified looks would miss, for less than these cost. F is sketched along lines, in decades below the l1_max that makes
all weights zero and the largest curvature L: the line of l2 alone, that of l1 alone, and lines of constant l1 / l2
between them, each from large penalties to small ones until F has turned upwards for good: on hundreds of tables F never
came down again to its least value from where it was TURNED times that and TURNED_SE of its standard errors above it
(from 3.7 % and 0.35 of them at the most). A line ends, too, where penalties are so small that all folds have the loss
that they have at its end: weights change no more in between. Then around the lowest place of all, as long as that gets
better.

Solutions of every fold are had without certificates, by Newton's method where rows and columns are few (`CurvedFold`).
For squares, Phi(w) = 1/2 sum_i a_i (x_i . w + b - y_i)^2 + (l2/2) ||w||^2 + l1 ||w||_1, a free b centres rows and
targets, and all that matters is  G = X^T A X  and  c = X^T A y  (`QuadraticFold`). So is the loss of any psi near known
weights, which those of many rows are not far from. So they cost little:

- without an l1, G = V diag(s) V^T gives  w = V (V^T c) / (s + l2)  for all l2 at once; where rows are fewer than
  columns, the same by the matrix of their products, X A X^T;
- with one, scikit-learn's coordinate descent on G takes a fraction of a millisecond. Collinear columns it leaves far
  from optimal: there, and where columns are many and more than rows, the active set of Newton's models goes on.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from suffice.arrays import Array, host
from suffice.models.margin_losses import Bending, Squared
from suffice.protocols import conforms
from suffice.prove.held_out import HeldOut
from suffice.rows.given import here, taken
from suffice.rows.gram import fits_array
from suffice.sklearn._quadratics import EXACT, QuadraticFold, Stack, held_out
from suffice.sklearn._recorded import error_of_mean
from suffice.sklearn.folds import FLOOR, LinearFold
from suffice.sklearn.penalties import PenaltySpace, penalties
from suffice.solvers.unproven import MarginProblem
from suffice.space import Space

MOST = 2000  # rows and columns of G
SMALL = 100_000  # numbers of X: then any psi is sketched;
MANY, LONG = 5_000, 20  # numbers, and rows for a column: then by quadratics near known weights,
STEP, LONGER = 0.25, 0.5  # decades along lines, and where every place takes several steps of Newton's method
SLOPES = (-1.0, 0.5, 2.0, 3.5, 5.0)  # how much smaller l2 / L is there than l1 / l1_max
AT_ONCE = 6  # places along a line, where several cost less than one by one
LIKE = 3e-4  # of F: lines that are no farther apart have nothing between them
TURNED, TURNED_SE = 1.25, 1.5  # F has turned upwards; see above
ALIKE = 3e-5  # of every fold's loss: it has settled where it is the same at the end of the line
ALMOST_NONE = 1e-6  # of l1_max: the least l1 of the space is none beside an l2, where it is no more
AROUND, FARTHEST = {"l1": 0.12, "l2": 0.4}, 2.0  # decades; times this at first,
CLOSEST, FINEST = 0.5, 0.03  # and at last; of quadratics
BETTER = 1.0 - 1e-4  # times F: what leads on from a place
ROUGH = 1e-2  # of l1: how optimal is enough along lines
NEWTON, ENOUGH = 30, 3  # this power of it, of Phi: what one more step of Newton's method has to promise

Theta = tuple[float, ...]


@dataclass(eq=False)
class Sketch:
    """F over a space of one or two penalties, in decades."""

    folds: Sequence[QuadraticFold | CurvedFold]
    space: Space
    ratio: float
    l1_max: float
    curvature: float
    stack: Stack | None = None  # the folds, where they go side by side
    seen: dict[Theta, Array] = field(default_factory=dict)  # the folds' parts of F
    heights: dict[Theta, float] = field(default_factory=dict)  # and F
    weights: dict[Theta, Any] = field(default_factory=dict)
    exact: set[Theta] = field(default_factory=set)  # places seen after the lines, which are rough

    @classmethod
    def of(
        cls, folds: Sequence[Any], losses: Sequence[Any], space: PenaltySpace, near: Sequence[Array] | None = None
    ) -> Sketch:
        """`near`: weights of every fold around which its loss is taken as a quadratic."""
        models = [fold.model for fold in folds]
        if near is not None:
            made: list[Any] = [QuadraticFold.around(*known) for known in zip(models, losses, near, strict=True)]
        else:
            kind = QuadraticFold if isinstance(models[0].psi, Squared) else CurvedFold
            made = [kind.of(*known) for known in zip(models, losses, strict=True)]
        l1_max, L = max(model.l1_max for model in models), max(model.l2_floor / FLOOR for model in models)
        sketch = cls(made, space.space, space.ratio, l1_max, L, Stack.of(made))
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            lines = sketch._lines()
            for together in [lines[:5], lines[5:]] if sketch.stack is not None else [[line] for line in lines]:
                if together and not (together[0] in lines[3:] and sketch._between_like(lines)):
                    sketch._along(together)
            valley = min(sketch.heights, key=sketch.height)
            if valley not in sketch.exact:
                sketch._see([valley], [valley])
            sketch._around(valley)
        return sketch

    def height(self, theta: Theta) -> float:
        """F anywhere in the space."""
        if theta not in self.heights:
            self._see([theta], [None])
        return self.heights[theta]

    @property
    def lowest(self) -> Theta:
        """Where F is least of all that was seen well enough."""
        return min(self.exact or self.heights, key=self.height)

    @property
    def plainest(self) -> float:
        """F where all weights are zero, or next to it."""
        return self.height(self._lines()[0][0])

    @property
    def standard_error(self) -> float:
        """That of the least F over folds."""
        return error_of_mean(self.seen[self.lowest] * len(self.folds)) if len(self.folds) > 1 else math.inf

    def _bounds(self, name: str) -> tuple[float, float]:
        lower, upper = self.space.bounds
        k = self.space.names.index(name) if name in self.space.names else None
        return (-math.inf, math.inf) if k is None else (float(lower[k]), float(upper[k]))

    def _lines(self) -> list[list[Theta]]:
        """From large penalties to small ones: without an l1 or with the least one, with the least l2, and of one ratio
        each, from the largest l2 on. Each begins and ends on the edges of the space."""
        t1, t2 = math.log10(self.l1_max), math.log10(self.curvature)
        (low1, high1), (low2, high2) = self._bounds("l1"), self._bounds("l2")
        if len(self.space) == 2:
            lines: list[list[Theta]] = [[(low1, level) for level in self._levels(t2 + 2.0, low2, high2)]]
            lines += [[(level, low2) for level in self._levels(t1, low1, high1)]]
            for slope in SLOPES:
                way = t2 - t1 - slope
                ends = max(low1, low2 - way), min(high1, high2 - way)
                lines += [[(level, level + way) for level in self._levels(t1, *ends)]]
            return [line for line in lines if line]
        if "l1" in self.space.names:
            return [[(level,) for level in self._levels(t1, low1, high1)]]
        top = t1 + math.log10((1.0 - self.ratio) / self.ratio) if self.ratio > 0.0 else t2 + 2.0
        return [[(level,) for level in self._levels(top, low2, high2)]]

    def _levels(self, top: float, low: float, high: float) -> list[float]:
        """From the top, or the upper end of the range where that is less, down to the lower end; none in an empty
        range."""
        if low > high:
            return []
        step = LONGER if isinstance(self.folds[0], CurvedFold) else STEP
        return [*np.arange(max(min(top, high), low), low, -step).tolist(), low]

    def _between_like(self, lines: Sequence[Sequence[Theta]]) -> bool:
        """Whether F is the same on the latest line that was seen as with the least l2: there is nothing between."""
        latest = next(line for line in reversed(lines) if line[0] in self.heights)
        least = {round(theta[0], 9): self.heights[theta] for theta in lines[1] if theta in self.heights}
        pairs = [(self.heights[theta], least.get(round(theta[0], 9))) for theta in latest if theta in self.heights]
        known = [(one, other) for one, other in pairs if other is not None]
        return len(known) > 1 and all(abs(one - other) <= LIKE * other for one, other in known)

    def _along(self, lines: Sequence[Sequence[Theta]]) -> None:
        """Lines, each up to where F has turned upwards."""
        one, ridge = self.folds[0], len(self.space) == 1 and self.ratio == 0.0
        together = isinstance(one, QuadraticFold) and (ridge or self.stack is None)
        first, count, least = 0, 1, dict.fromkeys(range(len(lines)), math.inf)
        if together:
            count = AT_ONCE if ridge or one.rows is None else 2
        while parts := {k: lines[k][first : first + count] for k in least if first < len(lines[k])}:
            near = [lines[k][first - 1] if first else None for k, part in parts.items() for _ in part]
            self._see([theta for part in parts.values() for theta in part], near, rough=True)
            error = self.standard_error
            for k, part in parts.items():
                least[k] = min(least[k], *(self.height(theta) for theta in part))
                far = max(TURNED * least[k], least[k] + TURNED_SE * error)
                if self._ends(lines[k][max(first - 1, 0) : first + count], lines[k][-1], far):
                    del least[k]
            first += count

    def _ends(self, latest: Sequence[Theta], end: Theta, far: float) -> bool:
        """Whether a line ends with the latest places, short of its end."""
        if not self.height(latest[-1]) <= min(far, sys.float_info.max):
            return True
        if len(latest) > 1 and self._alike(latest[-2:]) and latest[-1] != end:
            self._see([end], [latest[-1]], rough=True)
            return self._alike([latest[-1], end])
        return False

    def _alike(self, thetas: Sequence[Theta]) -> bool:
        """Whether the losses of all folds are the same at two places."""
        one, other = (self.seen[theta] for theta in thetas)
        return bool((np.abs(one - other) <= ALIKE * one).all())

    def _see(self, thetas: Sequence[Theta], near: Sequence[Theta | None], rough: bool = False) -> None:
        """F at places, from weights near each; on a line, from those near the first."""
        values = np.clip(10.0 ** np.array(thetas), *np.array(list(self.space.ranges.values())).T)
        both = penalties(dict(zip(self.space.names, values.T, strict=True)), self.ratio)
        l1, l2 = (np.broadcast_to(both[kind], len(thetas)) for kind in ("l1", "l2"))
        least = self.space.ranges["l1"][0] if len(self.space) == 2 else 0.0
        if least <= ALMOST_NONE * self.l1_max:
            l1 = np.where(l1 <= least * (1.0 + 1e-9), 0.0, l1)
        if self.stack is not None:
            W = self._stacked(self.stack, l1, l2, near)
            heights, weights = self.stack.losses(W), list(np.moveaxis(W, 2, 0))
        else:
            starts: Any = self.weights.get(near[0]) or [None] * len(self.folds) if near[0] else [None] * len(self.folds)
            l1 = l1 if l1.all() or not l1.any() else np.maximum(l1, least)
            parts = [fold.path(l1, l2, start, rough) for fold, start in zip(self.folds, starts, strict=True)]
            count = min(W.shape[1] for W in parts)
            heights = np.full((len(self.folds), len(thetas)), np.inf)
            heights[:, :count] = [fold.losses(W[:, :count]) for fold, W in zip(self.folds, parts, strict=True)]
            weights = [[W[:, i] for W in parts] for i in range(count)]
        heights = np.where(np.isfinite(heights), heights, np.inf)
        self.seen |= dict(zip(thetas, heights.T, strict=True))
        self.heights |= dict(zip(thetas, heights.sum(axis=0).tolist(), strict=True))
        self.exact |= set() if rough and isinstance(self.folds[0], CurvedFold) else set(thetas)
        self.weights |= dict(zip(thetas, weights, strict=False))

    def _stacked(self, stack: Stack, l1: Array, l2: Array, near: Sequence[Theta | None]) -> Array:
        K, d = stack.c.shape
        W, some = np.empty((K, d, len(l1))), l1 > 0.0
        if not some.all():
            W[:, :, ~some] = stack.weights(l1[~some], l2[~some])
        if some.any():
            zero = np.zeros((K, d))
            known = [self.weights.get(one, zero) if one is not None else zero for one in near]
            W[:, :, some] = stack.weights(l1[some], l2[some], np.stack(known, axis=2)[:, :, some])
        return W

    def _around(self, middle: Theta) -> None:
        """Crosses around a place and on to better ones, smaller where it is the best of its cross."""
        m, share = len(self.space), FARTHEST
        steps = [AROUND[name] for name in self.space.names]
        lower, upper = self.space.bounds
        cheap = isinstance(self.folds[0], QuadraticFold)
        closest, least = (FINEST, 1.0 - 1e-6) if cheap else (CLOSEST, BETTER)
        while share >= closest:
            cross = [middle]
            for k, step in enumerate(steps):
                for sign in (-1.0, 1.0):
                    there = np.clip(np.array(middle) + sign * share * step * np.eye(m)[k], lower, upper)
                    cross.append(tuple(float(x) for x in there))
            new = [theta for theta in dict.fromkeys(cross) if theta not in self.exact]
            for some in [new] if self.stack is not None and new else [[theta] for theta in new]:
                self._see(some, [middle] * len(some))
            best = min(cross, key=self.height)
            better = self.height(best) < least * self.height(middle)
            share, middle = (share, best) if better else (0.5 * share, middle)


def squares(folds: Sequence[Any]) -> bool:
    """Whether these are least squares, of which a sketch is F itself."""
    return isinstance(getattr(folds[0].model, "psi", None), Squared)


def sketches(folds: Sequence[Any], losses: Sequence[Any], space: PenaltySpace, near: bool = False) -> bool:
    """Whether F can be sketched: not for groups of columns, sparse rows and several margins, nor where it would cost
    too much. `near`: by quadratics near known weights, of so many rows that these are known well."""
    models = [fold.model for fold in folds]
    if space.groups or any(scale != "log" for scale in space.space.scales.values()):
        return False
    pairs = zip(models, losses, strict=True)
    return max(model.l1_max for model in models) > 0.0 and all(_sketchable(*pair, near) for pair in pairs)


def _sketchable(model: Any, loss: Any, near: bool) -> bool:
    if not (isinstance(model, LinearFold) and model.plain and isinstance(loss, HeldOut)):
        return False
    X = model.design.X
    if not (fits_array(X) and fits_array(loss.design.X)) or min(X.shape) > MOST:
        return False
    if isinstance(model.psi, Squared):
        return not near
    rows, columns = np.count_nonzero(host(model.design.weights)), X.shape[1]
    long = rows >= LONG * columns and rows * columns > MANY
    fit = long if near else rows * columns <= SMALL
    return bool(fit) and conforms(model.psi, Bending) and model.kind != "column" and model.design.rows.at_hand


@dataclass(frozen=True, eq=False)
class CurvedFold:
    """Any other psi, by Newton's method; b is had anew for all weights. A `rough` path is cheaper."""

    rows: MarginProblem
    held: HeldOut

    @classmethod
    def of(cls, fold: LinearFold, held: HeldOut) -> CurvedFold:
        a = host(fold.design.weights)
        used = a > 0.0
        X, y = here(taken(fold.design.X, used)), host(fold.y)[used]
        return cls(MarginProblem(X, a[used], y, fold.psi, fold.minimised_out), held)

    def path(self, l1: Array, l2: Array, near: Array | None, rough: bool = False) -> Array:
        v = np.zeros(self.rows.X.shape[1]) if near is None else near
        optimal, columns, b = ROUGH if rough else EXACT, [], self.rows.level(self.rows.X @ v)
        for one, two in zip(l1.tolist(), l2.tolist(), strict=True):
            v, b, _, _ = self.rows.from_both(v, b, one, two, optimal, optimal**ENOUGH, NEWTON)
            columns.append(v)
        return np.array(columns).reshape(-1, len(v)).T

    def losses(self, W: Array) -> Array:
        levels = [0.0]
        for m in (self.rows.X @ W).T:
            levels.append(self.rows.level(m, levels[-1]))
        return held_out(self.held, host(self.held.design.margins(W)) + np.array(levels[1:]))
