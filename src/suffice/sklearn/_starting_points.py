r"""Where a search begins: at the least of a sketch of F, or at the best of rough looks that span the space.

F need not be convex, is flat where all weights are zero, and often has its least value on an edge: with little noise,
or classes that are nearly separable, the smallest penalty of the space is the best one, while a local search that
begins inside may see F go up on the way there.

Where F can be sketched (`suffice.sklearn._sketch`) a search begins where the sketch is least, after a look there. A
sketch near known weights is made again, near those found there, until it shows nothing that is lower than what was
looked at, by more than TRUSTED_SE; it does not show much smaller penalties, which are looked at (FAR_BELOW). A sketch
is given up after SKETCHES, or if F is not what it shows.

Else looks are made on a lattice. Its levels of l1 and of l2 come from data and space together. In decades, with t the
largest value that matters (l1_max, which makes all weights zero; for l2 the largest curvature L of the loss), they are

- the top: t for l1, beyond which nothing changes, t + 2 for l2, beyond which weights are less than a hundredth of what
  they could be; the upper bound, if that is smaller. What is seen there holds for the upper edge;
- the lower bound, an edge;
- some in between, none farther from the next than GAP.

All groups of features are alike in a look, so that the lattice has two dimensions for any number of parameters. Looked
at are the largest penalties, then two lines from large to small, until F has turned upwards: of l1 at the smallest
inner level of l2, and of l2 on the edge of the smallest l1; last all neighbours of the best place, until none is
better. Of parameters of a kernel nothing is known but their ranges: every other level of each is looked at, in decades,
then neighbours, too.

A look whose models take more than STEPS steps of the solver each is left at that, and counts with the upper bound of F
that is proven by then: an unfinished model may do better than a finished one, which says nothing about F.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.search.bilevel import BilevelProblem
from suffice.sklearn._recorded import RecordedProblem
from suffice.sklearn._sketch import TURNED, TURNED_SE, Kind, Sketch, sketches
from suffice.sklearn.enough import standard_error
from suffice.sklearn.folds import FLOOR
from suffice.sklearn.penalties import PENALTIES, PenaltySpace, kind_of

LOOK = 0.02  # the accuracy of a look, relative to the root of the least loss seen so far
STEPS, MORE_STEPS = 100, 200  # of a model; of a kernel machine
APART, MOST_LEVELS = 1.0, 7  # decades between levels of its parameters, at least; levels of each
# Levels in decades below the l1 that makes all weights 0 and below the largest curvature; where one is tuned alone.
BELOW = {"l1": (0.5, 1.1, 1.7, 2.4, 3.5), "l2": (0.5, 1.6, 2.7, 3.8)}
ALONE = {"l1": (0.5, 1.1, 1.7, 2.4, 3.5), "l2": (0.6, 1.8, 3.0, 4.2, 5.4)}
EVEN = 10  # levels where no value is known to matter
BEYOND = {"l1": 0.01, "l2": 2.0}  # decades above them where the top is: no weight is about to leave zero there
NEAR, GAP = 0.5, 3.5  # decades: levels are no nearer to an edge, and no farther from the next
SKETCHES, TRUSTED_SE, AGREED = 4, 0.02, 0.02  # how often F is sketched; what more it may promise; how near it is
FAR_BELOW = 3.0  # decades
Place = tuple[float, ...]  # a level of every kind of penalty, in decades


def starting_points(problem: RecordedProblem, folds: list[Any], space: PenaltySpace) -> tuple[Array, bool]:
    """Where to begin, and whether all of F was sketched."""
    if not isinstance(problem.problem, BilevelProblem):  # parameters of which nothing is known but their ranges
        return best_of_levels(problem), False
    kind, lattice = sketches(folds, problem.problem.losses, space), Lattice.of(problem, folds, space)
    sketched = None if kind is None else best_of_sketches(lattice, folds, space, kind)
    return (best_of_lines(lattice), False) if sketched is None else (sketched, True)


def best_of_levels(problem: RecordedProblem) -> Array:
    """The best place near the best of every other level of every parameter."""
    levels = [_decades(low, high) for low, high in zip(*problem.space.bounds, strict=True)]
    lattice = Lattice(problem, levels, np.arange(len(levels)), steps=MORE_STEPS)
    for place in product(*(own[:: 2 if len(own) <= 5 else 3] for own in levels)):
        lattice.look(place)
    return lattice.descended()


def _decades(low: float, high: float) -> list[float]:
    """APART at least, and an odd number, so that every other one has both ends."""
    count = min(max(2, 1 + math.floor((high - low) / APART)), MOST_LEVELS)
    return [float(level) for level in np.linspace(low, high, count + 1 - count % 2)]


def best_of_lines(lattice: Lattice) -> Array:
    """The best place near the best of two lines."""
    lattice.look(lattice.plainest)
    l1, *l2 = lattice.levels
    along_l1: list[Place] = [(level, *(own[-2:][0] for own in l2)) for level in l1]
    along_l2: list[Place] = [(l1[-1], level) for own in l2 for level in own]
    for line in (along_l1, along_l2):
        heights: list[float] = []
        for place in line:
            heights.append(lattice.look(place))
            least = min(heights)
            if heights[-1] > min(TURNED * least, least + TURNED_SE * standard_error(lattice.problem.best)):
                break
    return lattice.descended()


def best_of_sketches(lattice: Lattice, folds: list[Any], space: PenaltySpace, kind: Kind) -> Array | None:
    """Where the sketch of F is least; None where F was not near what it shows."""
    problem, near = lattice.problem, None
    lattice.look(lattice.plainest)
    if kind == "near weights":  # begin where no place of the space is far
        lattice.look(tuple(levels[len(levels) // 2] for levels in lattice.levels))
        near = [solution.x for solution in problem.evaluations[-1].solutions]
    looks: list[Evaluation] = []
    for _ in range(SKETCHES):
        sketch = Sketch.of(folds, problem.problem.losses, space, near)
        best = min((problem.evaluations[0], *looks), key=lambda made: made.cost)
        promised = best.cost - sketch.height(sketch.lowest)
        if looks and promised <= TRUSTED_SE * sketch.standard_error:  # nowhere is F lower than it was seen to be,
            here = sketch.height_at(tuple(best.point.tolist()))
            trusted = abs(here - best.cost) <= AGREED * best.cost and not _falls_below(best, problem)
            return best.point if trusted else None  # if it can be believed
        looks.append(_look_from(sketch, problem))
        if kind == "exact":
            agreed = abs(sketch.height(sketch.lowest) - looks[-1].cost) <= AGREED * looks[-1].cost
            return min((best, looks[-1]), key=lambda made: made.cost).point if agreed else None
        near = [solution.x for solution in looks[-1].solutions]
    return None


def _falls_below(best: Evaluation, problem: RecordedProblem) -> bool:
    """Whether F is as low at much smaller penalties, which a sketch near weights does not show."""
    there = np.maximum(best.point - FAR_BELOW, problem.space.bounds[0])
    made = problem.look(there, within=LOOK * math.sqrt(best.cost / len(best.e)), max_steps=STEPS)
    return made.cost <= best.cost and not np.array_equal(there, best.point)


def _look_from(sketch: Sketch, problem: RecordedProblem) -> Evaluation:
    """F where the sketch is least, from its weights there."""
    known, theta = problem.best, np.array(sketch.lowest)
    starts = zip(known.solutions, sketch.weights[sketch.lowest], strict=True)
    here = [solution.start_at(x) for solution, x in starts]
    warm = replace(known, theta=theta, solutions=here, jacobian=None, gradient=None)
    return problem.look(theta, within=LOOK * math.sqrt(known.cost / len(known.e)), warm=warm, max_steps=STEPS)


@dataclass
class Lattice:
    """Levels of every kind of penalty, from large to small, and the heights of F seen so far."""

    problem: RecordedProblem
    levels: list[list[float]]
    kind: Any  # the number of every parameter's kind
    heights: dict[Place, float] = field(default_factory=dict)
    steps: int = STEPS

    @classmethod
    def of(cls, problem: RecordedProblem, folds: list[Any], space: PenaltySpace) -> Lattice:
        lower, upper = problem.space.bounds
        kinds = [kind for kind in PENALTIES if any(kind_of(name) == kind for name in space.names)]
        number = np.array([kinds.index(kind_of(name)) for name in space.names])
        largest = {"l1": max(fold.model.l1_max for fold in folds)}
        largest["l2"] = max(fold.model.l2_floor / FLOOR for fold in folds)
        below = BELOW if len(kinds) > 1 else ALONE
        ends = [(float(lower[number == i].min()), float(upper[number == i].max())) for i in range(len(kinds))]
        known = zip(kinds, ends, strict=True)
        return cls(problem, [levels_of(largest[kind], *end, below[kind], BEYOND[kind]) for kind, end in known], number)

    @property
    def plainest(self) -> Place:
        return tuple(levels[0] for levels in self.levels)

    def theta(self, place: Place) -> Array:
        lower, upper = self.problem.space.bounds
        theta: Array = np.clip(np.array(place)[self.kind], lower, upper)
        return theta

    def look(self, place: Place) -> float:
        """F there, roughly; an upper bound where that takes too many steps."""
        if place not in self.heights:
            theta = self.theta(place)
            if not self.heights:
                self.problem.look(theta, within=math.inf)  # whatever one step gives: the size of a loss
            best = self.problem.best
            within = LOOK * math.sqrt(best.cost / len(best.e)) if best.failure is None else math.inf
            made = self.problem.look(theta, within=within, max_steps=self.steps)
            height = made.cost if made.e.max() <= within else made.interval[1]
            self.heights[place] = height if height == height else math.inf  # where there is no loss
        return self.heights[place]

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


def levels_of(largest: float, low: float, high: float, below: Sequence[float], beyond: float) -> list[float]:
    """Where to look, as powers of ten, from large to small: from `beyond` above the largest value that matters, and
    `below` it."""
    if not largest > 0.0:
        return [float(level) for level in np.linspace(high, low, EVEN)]
    t = math.log10(largest)
    top = max(min(high, t + beyond), low)
    inner = t - np.array(below)
    levels = [top, *(float(level) for level in inner if low + NEAR <= level <= top - NEAR), low]
    filled = [np.linspace(a, b, math.ceil((a - b) / GAP), endpoint=False) for a, b in pairwise(levels) if a > b]
    return [float(level) for level in np.concatenate([*filled, [low]])]
