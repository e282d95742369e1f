r"""Where a search begins: at the least of a sketch of F, or at the best of rough looks that span the space.

F need not be convex, is flat where all weights are zero, and often has its least value on an edge: with little noise,
or classes that are nearly separable, the smallest penalty of the space is the best one, while a local search that
begins inside may see F go up on the way there.

Where F can be sketched (`suffice.sklearn._sketch`) a search begins where the sketch is least, if F is near what it
shows there; of many rows it is sketched by quadratics around weights with next to no penalty, then around those of the
look before, and looked at where that is least, until both agree. Of squares, or quadratics that agree as closely, no
further search is needed: the look is as accurate as a last one. Else looks are made on a lattice: levels of every
parameter, in decades, APART or more from each other, between the ends of its range. For l1 the upper end is no more
than the l1_max that makes all weights zero, beyond which nothing changes, for l2 100 times the largest curvature of the
loss, beyond which weights are less than a hundredth of what they could be: what is seen there holds for the upper edge.
All groups of features are alike in a look, so that the lattice has two dimensions for any number of penalties.

Looked at are the largest penalties, then two lines from large to small, until F has turned upwards: of l1 at the
smallest inner level of l2, and of l2 on the edge of the smallest l1. Last come all neighbours of the best place, until
none is better.

A look whose models take more than STEPS steps of the solver each is left at that, and counts with the upper bound of F
that is proven by then: an unfinished model may do better than a finished one, which says nothing about F.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.sklearn._quadratics import QuadraticFold
from suffice.sklearn._recorded import RecordedProblem, least_worth, standard_error, unproven
from suffice.sklearn._sketch import TURNED, TURNED_SE, Sketch, sketches, squares
from suffice.sklearn.folds import FLOOR
from suffice.sklearn.penalties import PENALTIES, PenaltySpace, kind_of
from suffice.solvers.solution import start_from

NEGLIGIBLE = 1e-9  # of the plainest model's loss: a loss proven to be less leaves nothing worth a search
LOOK = 0.02  # the accuracy of a look, relative to the root of the least loss seen so far
STEPS = 100  # of a model
APART, MOST_LEVELS = 1.0, 9  # decades between levels, at least; levels of each
BEYOND = {"l1": 0.01, "l2": 2.0}  # decades above the largest value that matters: no weight is about to leave zero there
AGREED, TRIFLE = 0.02, 1e-6  # of F: how near the sketch is; of the plainest model's loss, where that is more
CLOSELY, ROUNDS = 3e-5, 4  # the same of quadratics near known weights; how often these are those of the last sketch
SEPARABLE = 0.01  # of the plainest model's loss: where F is less, no quadratic shows how weights grow
Place = tuple[float, ...]  # a level of every kind of penalty, in decades


@dataclass(frozen=True)
class Start:
    """Where to begin; the size of F where all weights are zero, or next to it; whether all of F was `sketched`, and
    `settled`: by squares that a look agrees with which is as accurate as a last one."""

    theta: Array
    plainest: float
    sketched: bool = False
    settled: bool = False


def starting_point(problem: RecordedProblem, folds: list[Any], space: PenaltySpace, closely: bool = False) -> Start:
    """Where to begin; `closely`: with a look at a sketch by squares that is as accurate as a last one."""
    losses: Any = problem.problem.losses
    exactly = sketches(folds, losses, space)
    start, cheaply = None, exactly and len(space.names) == 1  # one line: quadratics that do not show F are left
    if sketches(folds, losses, space, True):
        near = QuadraticFold.nearly_free([fold.model for fold in folds], losses)
        for _ in range(ROUNDS):
            if not all(np.isfinite(w).all() for w in near):  # a fold may lack a level, and has a column less
                break
            sketch = Sketch.of(folds, losses, space, near)
            if cheaply and sketch.height(sketch.lowest) < SEPARABLE * sketch.plainest:
                break
            start = _agreed(sketch, problem, closely, CLOSELY)
            if start is not None or not problem.evaluations:
                break
            found = problem.evaluations[-1]
            if cheaply and not abs(sketch.height(sketch.lowest) - found.cost) <= AGREED * found.cost:
                break
            near = [solution.x for solution in found.solutions]
    if exactly and start is None:
        start = _agreed(Sketch.of(folds, losses, space), problem, closely and squares(folds), AGREED)
    if start is not None:
        return start
    lattice = Lattice.of(problem, folds, space)
    lattice.look(lattice.plainest)
    low = problem.evaluations[-1].interval[0]
    return Start(best_of_lines(lattice), low if low > 0.0 else 0.0)


def _agreed(sketch: Sketch, problem: RecordedProblem, closely: bool, like: float) -> Start | None:
    """A look where the sketch is least; None where F is not `like` the sketch there, or next to nothing, unproven."""
    F, plainest, K = sketch.height(sketch.lowest), sketch.plainest, len(sketch.folds)
    if not sys.float_info.min < F / K < math.inf:  # losses under- or overflow
        return None
    left = max(least_worth(sketch.standard_error, F), 0.25 * NEGLIGIBLE * plainest)
    within = 0.2 * left / math.sqrt(max(F, left) * K) if closely else LOOK * math.sqrt(F / K)
    found = look_from(sketch, problem, within)
    if not (off := abs(F - found.cost)) <= max(like * found.cost, TRIFLE * plainest):
        return None
    if closely and found.cost <= NEGLIGIBLE * plainest < found.interval[1]:  # other penalties can be proven
        return None
    best = min(problem.evaluations, key=lambda made: made.cost)
    return Start(best.point, plainest, True, closely and best is found and off <= left and not unproven(found))


def look_from(sketch: Sketch, problem: RecordedProblem, within: float) -> Evaluation:
    """F where the sketch is least, from its weights there."""
    theta, K = np.array(sketch.lowest), len(sketch.folds)
    starts = [start_from(x, problem.problem.solver) for x in sketch.weights[sketch.lowest]]
    warm = Evaluation(theta, np.zeros(K), np.zeros(K), solutions=starts)
    return problem.look(theta, within=within if within == within else math.inf, warm=warm, max_steps=STEPS)


def best_of_lines(lattice: Lattice) -> Array:
    """The best place near the best of two lines."""
    l1, *l2 = lattice.levels
    along_l1: list[Place] = [(level, *(own[-2:][0] for own in l2)) for level in l1]
    along_l2: list[Place] = [(l1[-1], level) for own in l2 for level in own]
    for line in (along_l1, along_l2):
        lattice.along(line)
    return lattice.descended()


@dataclass
class Lattice:
    """Levels of every kind of penalty, from large to small, and the heights of F seen so far."""

    problem: RecordedProblem
    levels: list[list[float]]
    kind: Any  # the number of every parameter's kind
    heights: dict[Place, float] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: RecordedProblem, folds: list[Any], space: PenaltySpace) -> Lattice:
        lower, upper = problem.space.bounds
        kinds = [kind for kind in PENALTIES if any(kind_of(name) == kind for name in space.names)]
        number = np.array([kinds.index(kind_of(name)) for name in space.names])
        largest = {"l1": max(fold.model.l1_max for fold in folds)}
        largest["l2"] = max(fold.model.l2_floor / FLOOR for fold in folds)
        levels = []
        for i, kind in enumerate(kinds):
            low, high = float(lower[number == i].min()), float(upper[number == i].max())
            if largest[kind] > 0.0:
                high = max(min(high, math.log10(largest[kind]) + BEYOND[kind]), low)
            levels.append(levels_of(high, low, MOST_LEVELS))
        return cls(problem, levels, number)

    @property
    def plainest(self) -> Place:
        return tuple(levels[0] for levels in self.levels)

    def theta(self, place: Place) -> Array:
        lower, upper = self.problem.space.bounds
        return np.asarray(np.clip(np.array(place)[self.kind], lower, upper))

    def look(self, place: Place) -> float:
        """F there, roughly; an upper bound where that takes too many steps."""
        if place not in self.heights:
            theta = self.theta(place)
            if not self.problem.evaluations:
                self.problem.look(theta, within=math.inf)  # whatever one step gives: the size of a loss
            best = self.problem.best
            within = LOOK * math.sqrt(best.cost / len(best.e)) if best.failure is None else math.inf
            made = self.problem.look(theta, within=within, max_steps=STEPS)
            height = made.cost if made.e.max() <= within else made.interval[1]
            self.heights[place] = height if height == height else math.inf  # where there is no loss
        return self.heights[place]

    def along(self, line: Sequence[Place]) -> None:
        """Looks on a line, until F has turned upwards."""
        heights: list[float] = []
        for place in line:
            heights.append(self.look(place))
            least = min(heights)
            if heights[-1] > min(TURNED * least, least + TURNED_SE * standard_error(self.problem.best)):
                break

    def descended(self) -> Array:
        """The best place, none of whose neighbours along the axes is better."""
        while True:
            best = min(self.heights, key=lambda place: self.heights[place])
            around = []
            for k, levels in enumerate(self.levels):
                i = levels.index(best[k])
                around += [(*best[:k], level, *best[k + 1 :]) for level in levels[max(i - 1, 0) : i + 2]]
            if min(self.look(place) for place in around) >= self.heights[best]:
                return self.theta(best)


def levels_of(high: float, low: float, most: int) -> list[float]:
    """From the upper end to the lower one, as powers of ten."""
    count = 1 + math.ceil(round((high - low) / APART, 9))
    return [float(level) for level in np.linspace(high, low, min(max(count, 1 + (high > low)), most))]
