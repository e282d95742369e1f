r"""Where a search begins: at the least of a sketch of F, or at the best of rough looks that span the space.

F need not be convex, is flat where all weights are zero, and often has its least value on an edge: with little noise,
or classes that are nearly separable, the smallest penalty of the space is the best one, while a local search that
begins inside may see F go up on the way there.

Where F can be sketched (`suffice.sklearn._sketch`) a search begins where the sketch is least, if F is near what it
shows there; of many rows it is sketched by quadratics around weights with next to no penalty, then around those of the
look before, and looked at where that is least, until both agree. Else looks are made on a lattice: levels of every
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
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.sklearn._recorded import RecordedProblem, standard_error
from suffice.sklearn._sketch import TURNED, TURNED_SE, QuadraticFold, Sketch, sketches
from suffice.sklearn.folds import FLOOR
from suffice.sklearn.penalties import PENALTIES, PenaltySpace, kind_of

LOOK = 0.02  # the accuracy of a look, relative to the root of the least loss seen so far
STEPS = 100  # of a model
APART, MOST_LEVELS = 1.0, 9  # decades between levels, at least; levels of each
BEYOND = {"l1": 0.01, "l2": 2.0}  # decades above the largest value that matters: no weight is about to leave zero there
AGREED = 0.02  # of F: how near the sketch is
NEGLIGIBLE = 1e-9  # of the plainest model's loss: a loss that is less leaves nothing worth a search
CLOSELY, ROUNDS = 3e-5, 4  # the same of quadratics near known weights; how often these are those of the last sketch
Place = tuple[float, ...]  # a level of every kind of penalty, in decades


def starting_point(problem: RecordedProblem, folds: list[Any], space: PenaltySpace) -> tuple[Array, bool]:
    """Where to begin, and whether all of F was sketched."""
    lattice = Lattice.of(problem, folds, space)
    lattice.look(lattice.plainest)
    losses: Any = problem.problem.losses
    if sketches(folds, losses, space, True):
        near = [QuadraticFold.nearly_free(fold.model, loss) for fold, loss in zip(folds, losses, strict=True)]
        for _ in range(ROUNDS if all(np.isfinite(w).all() for w in near) else 0):
            sketch = Sketch.of(folds, losses, space, near)
            found = look_from(sketch, problem)
            if abs(sketch.height(sketch.lowest) - found.cost) <= CLOSELY * found.cost:
                return min(problem.evaluations, key=lambda made: made.cost).point, True
            near = [solution.x for solution in found.solutions]
    elif sketches(folds, losses, space):
        sketch = Sketch.of(folds, losses, space)
        found = look_from(sketch, problem)
        nothing = negligible(problem)
        if found.cost < nothing < found.interval[1]:  # if that can be proven, no other look is needed
            found = problem.look(found.point, within=0.25 * math.sqrt(nothing / len(found.e)), warm=found)
        if found.interval[1] <= nothing or abs(sketch.height(sketch.lowest) - found.cost) <= AGREED * found.cost:
            return min(problem.evaluations, key=lambda made: made.cost).point, True
    return best_of_lines(lattice), False


def negligible(problem: RecordedProblem) -> float:
    """A loss that leaves nothing worth a search, once the plainest model has been looked at."""
    return NEGLIGIBLE * max(made.interval[0] for made in problem.evaluations[:2])


def best_of_lines(lattice: Lattice) -> Array:
    """The best place near the best of two lines."""
    l1, *l2 = lattice.levels
    along_l1: list[Place] = [(level, *(own[-2:][0] for own in l2)) for level in l1]
    along_l2: list[Place] = [(l1[-1], level) for own in l2 for level in own]
    for line in (along_l1, along_l2):
        lattice.along(line)
    return lattice.descended()


def look_from(sketch: Sketch, problem: RecordedProblem, within: float | None = None) -> Evaluation:
    """F where the sketch is least, from its weights there; None: roughly."""
    known, theta = problem.best, np.array(sketch.lowest)
    rough = LOOK * math.sqrt(known.cost / len(known.e))
    starts = zip(known.solutions, sketch.weights[sketch.lowest], strict=bool(known.solutions))
    here = [solution.start_at(x) for solution, x in starts]
    warm = replace(known, theta=theta, solutions=here, jacobian=None, gradient=None)
    return problem.look(theta, within=rough if within is None else within, warm=warm, max_steps=STEPS)


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
