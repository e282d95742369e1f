r"""F over the whole space at a glance: where a search begins, and no proof of anything.

Solutions of every fold are had without certificates (`suffice.sklearn._sketch_folds`): exactly for squares, and for any
other smooth psi where rows and columns are few; elsewhere psi is taken for the quadratic that it is near known weights.
Whether F is near what that shows is seen where the sketch is least and F is looked at; if not, F is sketched anew, near
the weights there.

What is found here is where the certified search begins, which proves what it returns. But it shows valleys that a few
certified looks would miss, for less than these cost. F is sketched along lines, in decades below the l1_max that makes
all weights zero and the largest curvature L: the line of l2 alone, that of l1 alone, and lines of constant l1 / l2
between them, each from large penalties to small ones until F has turned upwards for good: on hundreds of tables F never
came down again to its least value from where it was TURNED times that and TURNED_SE of its standard errors above it
(from 3.7 % and 0.35 of them at the most). Then around the lowest place of all, as long as that gets better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from joblib import cpu_count

from suffice.arrays import Array, host
from suffice.models.margin_losses import Bending, Squared
from suffice.protocols import conforms
from suffice.prove.held_out import HeldOut
from suffice.rows.gram import fits_array
from suffice.rows.sums import one_thread
from suffice.sklearn._sketch_folds import CurvedFold, FoldSketch, QuadraticFold, wide
from suffice.sklearn.enough import error_of_mean
from suffice.sklearn.folds import FLOOR, LinearFold
from suffice.sklearn.penalties import PenaltySpace, penalties
from suffice.space import Space

MOST = 2000  # rows and columns of G
SMALL = 100_000  # numbers of X: then any psi is sketched exactly
# Decades: steps along the line of l2 alone and along the others, and how much smaller l2 / L is there than l1 / l1_max
RIDGE_STEP, STEP, SLOPES = 0.1, 0.25, (-1.0, 0.5, 2.0, 3.5, 5.0)
COARSE = 2.0  # times these steps, with two penalties
AT_ONCE = 6  # places along a line
LONGEST = 6.0  # decades of a line, where F is sketched near weights
TURNED, TURNED_SE = 1.25, 1.5  # F has turned upwards; see above
ALMOST_NONE = 1e-6  # of l1_max: the least l1 of the space is none beside an l2, where it is no more
AROUND, CLOSEST = {"l1": 0.12, "l2": 0.4}, 0.5  # decades, and the last share of them
WORTH = 1.1  # times the least F: places on lines that are looked at more closely
BETTER = 1.0 - 1e-4  # times F: what leads on from a place

Theta = tuple[float, ...]
Kind = Literal["exact", "near weights"]


@dataclass(eq=False)
class Sketch:
    """F over a space of one or two penalties, in decades."""

    folds: Sequence[FoldSketch]
    space: Space
    ratio: float
    l1_max: float
    curvature: float
    apart: float = 1.0  # how much farther apart places are along lines
    longest: float = math.inf  # decades of a line
    seen: dict[Theta, Array] = field(default_factory=dict)  # the folds' parts of F
    weights: dict[Theta, list[Array]] = field(default_factory=dict)
    low_on_lines: list[Theta] = field(default_factory=list)
    exact: set[Theta] = field(default_factory=set)  # places seen after the lines, which are rough

    @classmethod
    def of(
        cls, folds: Sequence[Any], losses: Sequence[Any], space: PenaltySpace, near: Sequence[Array] | None = None
    ) -> Sketch:
        """`near`: weights of every fold, for losses that are sketched near them."""
        models = [fold.model for fold in folds]
        made: list[FoldSketch]
        if near is None and not isinstance(models[0].psi, Squared):
            made = [CurvedFold.of(*known) for known in zip(models, losses, strict=True)]
        else:
            weights = [None] * len(folds) if near is None else near
            made = [QuadraticFold.of(*known) for known in zip(models, losses, weights, strict=True)]
        l1_max, L = max(model.l1_max for model in models), max(model.l2_floor / FLOOR for model in models)
        apart, longest = COARSE if len(space.space) == 2 else 1.0, math.inf if near is None else LONGEST
        sketch = cls(made, space.space, space.ratio, l1_max, L, apart, longest)
        with np.errstate(over="ignore", under="ignore"):
            for line in sketch._lines():
                sketch._along(line)
            valley = min(sketch.low_on_lines, key=sketch.height)
            sketch._see([valley], valley)
            sketch._around(valley)
        return sketch

    def height(self, theta: Theta) -> float:
        """F there."""
        return float(self.seen[theta].sum())

    def height_at(self, theta: Theta) -> float:
        """F anywhere in the space."""
        if theta not in self.seen:
            self._see([theta], None)
        return self.height(theta)

    @property
    def lowest(self) -> Theta:
        """Where F is least of all that was seen well enough."""
        return min(self.exact or self.seen, key=self.height)

    @property
    def standard_error(self) -> float:
        """That of the least F over folds."""
        return error_of_mean(self.seen[self.lowest] * len(self.folds)) if len(self.folds) > 1 else math.inf

    def _pairs(self, thetas: Sequence[Theta]) -> tuple[Array, Array]:
        """l1 and l2 at these places."""
        both = [penalties(self.space.params(np.array(theta)), self.ratio) for theta in thetas]
        return np.array([one["l1"] for one in both]), np.array([one["l2"] for one in both])

    def _bounds(self, name: str) -> tuple[float, float]:
        lower, upper = self.space.bounds
        k = self.space.names.index(name) if name in self.space.names else None
        return (-math.inf, math.inf) if k is None else (float(lower[k]), float(upper[k]))

    def _lines(self) -> list[list[Theta]]:
        """From large penalties to small ones: without an l1 or with the least one, of one ratio each, and with the
        least l2. Each begins and ends on the edges of the space."""
        t1, t2 = math.log10(self.l1_max), math.log10(self.curvature)
        (low1, high1), (low2, high2) = self._bounds("l1"), self._bounds("l2")
        if len(self.space) == 2:
            lines = [[(low1, level) for level in self._levels(t2 + 2.0, low2, high2, self._step_of_ridge)]]
            lines += [[(level, low2) for level in self._levels(t1, low1, high1, self.apart * STEP)]]
            for slope in reversed(SLOPES):
                way = t2 - t1 - slope
                ends = max(low1, low2 - way), min(high1, high2 - way)
                lines += [[(level, level + way) for level in self._levels(t1, *ends, self.apart * STEP)]]
        elif "l1" in self.space.names:
            lines = [[(level, 0.0) for level in self._levels(t1, low1, high1, STEP)]]
        elif self.ratio > 0.0:
            way = math.log10((1.0 - self.ratio) / self.ratio)
            lines = [[(0.0, level) for level in self._levels(t1 + way, low2, high2, STEP)]]
        else:
            lines = [[(0.0, level) for level in self._levels(t2 + 2.0, low2, high2, self._step_of_ridge)]]
        names = self.space.names
        return [[tuple(place[name == "l2"] for name in names) for place in line] for line in lines if line]

    def _levels(self, top: float, low: float, high: float, step: float) -> list[float]:
        """From the top, or the upper end of the range where that is less, down to the lower end, or as far as lines go;
        none in an empty range."""
        if low > high:
            return []
        top = max(min(top, high), low)
        low = max(low, top - self.longest)
        return [*np.arange(top, low, -step).tolist(), low]

    @property
    def _step_of_ridge(self) -> float:
        return RIDGE_STEP if isinstance(self.folds[0], QuadraticFold) else self.apart * STEP

    def _along(self, line: Sequence[Theta]) -> None:
        """A line up to where F has turned upwards, AT_ONCE places at a time."""
        heights: list[float] = []
        for first in range(0, len(line), AT_ONCE):
            part = line[first : first + AT_ONCE]
            self._see(part, line[first - 1] if first else None, rough=True)
            heights += [self.height(theta) for theta in part]
            least = min(heights)
            turned = heights[-1] > max(TURNED * least, least + TURNED_SE * self.standard_error)
            if turned or math.isinf(heights[-1]):
                break
        ends = [math.inf, *heights, math.inf]
        for k, height in enumerate(heights):
            if not (ends[k] >= height < ends[k + 2] or height == least) or height > WORTH * self.height(self.lowest):
                continue
            beside = [tuple(np.add(line[k], line[j]) / 2.0) for j in (k - 1, k + 1) if 0 <= j < len(heights)]
            for theta in beside:
                self._see([theta], line[k], rough=True)
            self.low_on_lines.append(min([line[k], *beside], key=self.height))

    def _see(self, thetas: Sequence[Theta], near: Theta | None, rough: bool = False) -> None:
        """F at places on a line, from weights near the first."""
        l1, l2 = self._pairs(thetas)
        least = 10.0 ** self._bounds("l1")[0] if len(self.space) == 2 else 0.0
        ridge = bool((l1 <= least * (1.0 + 1e-9)).all()) and least <= ALMOST_NONE * self.l1_max

        def solved(k: int) -> Array:
            fold, known = self.folds[k], self.weights[near][k] if near in self.weights else None
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                if ridge and isinstance(fold, QuadraticFold):
                    return fold.ridge(l2)
                return fold.path(np.zeros_like(l1) if ridge else l1, l2, known, rough)

        parts = _each(solved, len(self.folds), elsewhere=self._elsewhere)
        count = min(W.shape[1] for W in parts)
        heights = np.full((len(self.folds), len(thetas)), np.inf)
        heights[:, :count] = [fold.losses(W[:, :count]) for fold, W in zip(self.folds, parts, strict=True)]
        heights = np.where(np.isfinite(heights), heights, np.inf)
        self.seen |= dict(zip(thetas, heights.T, strict=True))
        self.exact |= set() if rough and isinstance(self.folds[0], CurvedFold) else set(thetas)
        self.weights |= {theta: [W[:, i] for W in parts] for i, theta in enumerate(thetas[:count])}

    @property
    def _elsewhere(self) -> bool:
        fold = self.folds[0]
        return isinstance(fold, QuadraticFold) and not fold.held.design.rows.at_hand

    def _around(self, middle: Theta) -> None:
        """Crosses around a place and on to better ones, smaller where it is the best of its cross."""
        m, share = len(self.space), self.apart
        steps = [AROUND[name] for name in self.space.names]
        lower, upper = self.space.bounds
        while share >= CLOSEST:
            cross = [middle]
            for k, step in enumerate(steps):
                for sign in (-1.0, 1.0):
                    there = np.clip(np.array(middle) + sign * share * step * np.eye(m)[k], lower, upper)
                    cross.append(tuple(float(x) for x in there))
                    if cross[-1] not in self.exact:
                        self._see(cross[-1:], middle)
            best = min(cross, key=self.height)
            better = self.height(best) < BETTER * self.height(middle)
            share, middle = (share, best) if better else (0.5 * share, middle)


def _each(function: Callable[[int], Array], count: int, elsewhere: bool) -> list[Array]:
    """For every number of a fold; by threads where rows are on a device, which leaves this machine's to the folds."""
    if not elsewhere:
        return [function(k) for k in range(count)]
    with one_thread(), ThreadPoolExecutor(min(count, cpu_count())) as pool:  # each of them has one
        return list(pool.map(function, range(count)))


def sketches(folds: Sequence[Any], losses: Sequence[Any], space: PenaltySpace) -> Kind | None:
    """How F can be sketched; None for groups of columns, sparse rows, several margins, and where it would cost too
    much."""
    models = [fold.model for fold in folds]
    if space.groups or any(scale != "log" for scale in space.space.scales.values()):
        return None
    kinds = {_kind(model, loss) for model, loss in zip(models, losses, strict=True)}
    if len(kinds) > 1 or None in kinds or not max(model.l1_max for model in models) > 0.0:
        return None
    return kinds.pop()


def _kind(model: Any, loss: Any) -> Kind | None:
    if not (isinstance(model, LinearFold) and model.plain and isinstance(loss, HeldOut)):
        return None
    X = model.design.X
    if not (fits_array(X) and fits_array(loss.design.X)) or min(X.shape) > MOST:
        return None
    if isinstance(model.psi, Squared):
        return "exact"
    if not conforms(model.psi, Bending) or model.kind == "column":
        return None
    if np.count_nonzero(host(model.design.weights)) * X.shape[1] <= SMALL and model.design.rows.at_hand:
        return "exact"
    return None if wide(model) else "near weights"
