r"""Where a search begins: rough looks at a lattice that spans the space, edges and all.

F need not be convex, is flat where all weights are zero, and often has its least value on an edge: with little noise,
or classes that are nearly separable, the smallest penalty of the space is the best one, while a local search that
begins inside may see F go up on the way there. So looks are made at levels of l1 and of l2 that data and space give
together. In decades, with t the largest value that matters (l1_max, which makes all weights zero; for l2 the largest
curvature L of the loss), they are

- the top: t for l1, beyond which nothing changes, t + 2 for l2, beyond which weights are less than a hundredth of what
  they could be; the upper bound, if that is smaller. What is seen there holds for the upper edge;
- the lower bound, an edge;
- some in between, none farther from the next than GAP.

All groups of features are alike in a look, so that the lattice has two dimensions for any number of parameters.

Not all of the lattice is worth its work, most of which goes into small penalties. Looked at are

1. the plainest model: all weights zero if the space has that, else the largest penalties;
2. two lines from large to small: of l1 at the smallest inner level of l2, and of l2 on the edge of the smallest l1.
   Each goes on to its end, or to where F has turned upwards, or is level and not good;
3. the corner of the smallest penalties, unless F rises towards it: what lies there is seen from nowhere else;
4. where a parabola through a place and its neighbours along an axis, both seen and higher, has its least value, if that
   promises to be better than all looks so far: levels are a decade apart, and a valley may lie between two of them;
5. for every valley the points where its levels of l1 and l2 meet the lower edges, unless F is seen to rise on the way
   there (for l1 also if the first line has not come to the edge). A valley is a point better than all its neighbours
   seen so far, and nearly as good as the best of all.

The best of all looks is where the search begins. A second valley that is nearly as good is a second start. What F rises
by is held against its standard error over folds: a line has turned upwards where F has risen by TURNED times or by
TURNED_SE of it, or twice in a row and by NEARLY_SE, and a valley is nearly as good within NEARLY_SE. The line of one
penalty tuned alone ends as soon as the derivative where F is levelling out says that F will have turned at the next
level: the last look is where a parabola is least. (A third line, a valley's neighbours and points halfway to them made
90 searches to a tolerance of 1e-4 a third dearer, and none better by more than 0.06 %.)

Where F can be sketched (`suffice.sklearn._sketch`) a search begins where the sketch is least, after a look there. A
sketch near known weights is made again, near those found there, until it shows nothing that is lower than what was
looked at, by more than TRUSTED_SE; it does not show much smaller penalties, which are looked at (FAR_BELOW). A sketch
is given up after SKETCHES, or if F is not what it shows.

Of parameters of a kernel nothing is known but their ranges: every other level of each is looked at, in decades, then
all neighbours of the best, until none is better.

A look whose models take more than STEPS steps of the solver each is left at that, and counts with the upper bound of F
that is proven by then: an unfinished model may do better than a finished one, which says nothing about F.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
from suffice.sklearn.penalties import PENALTIES, PenaltySpace, group_penalties, kind_of, penalties

LOOK = 0.02  # the accuracy of a look, relative to the root of the least loss seen so far
STEPS, MORE_STEPS = 100, 200  # of a model; of a kernel machine
APART, MOST_LEVELS = 1.0, 7  # decades between levels of its parameters, at least; levels of each
# Levels in decades below the l1 that makes all weights 0 and below the largest curvature; where one is tuned alone.
BELOW = {"l1": (0.5, 1.1, 1.7, 2.4, 3.5), "l2": (0.5, 1.6, 2.7, 3.8)}
ALONE = {"l1": (0.5, 1.1, 1.7, 2.4, 3.5), "l2": (0.6, 1.8, 3.0, 4.2, 5.4)}
EVEN = 10  # levels where no value is known to matter
BEYOND = {"l1": 0.01, "l2": 2.0}  # decades above them where the top is: no weight is about to leave zero there
NEAR, GAP = 0.5, 3.5  # decades: levels are no nearer to an edge, and no farther from the next
NEARLY = 1.01  # a valley counts if it is no worse than so many times the best look
LEVELLING = 0.5  # of F at the place before: no less, and F is levelling out
LEVEL = 0.95  # of F at the place before: no less, and above the best by TURNED, and a line is level and not good
SKETCHES, TRUSTED_SE, AGREED = 4, 0.02, 0.02  # how often F is sketched; what more it may promise; how near it is
FAR_BELOW = 3.0  # decades
START_SE = 0.03  # of it, too: a second start is no worse than the best by more
RISING = 1.05  # it rises towards the corner if it is so many times its least one where the first line meets the edge

NEARLY_SE = 0.1  # of the standard error over folds
Place = tuple[float, ...]  # a level of every kind of penalty, in decades


def starting_points(
    problem: RecordedProblem, folds: list[Any], space: PenaltySpace, derivatives: bool
) -> tuple[list[Array], bool]:
    """Where to begin, the best of first looks and perhaps that of a second valley; and whether all of F was sketched.
    `derivatives` may be asked for on the line of one penalty."""
    if not isinstance(problem.problem, BilevelProblem):  # parameters of which nothing is known but their ranges
        return best_of_levels(problem), False
    kind, lattice = sketches(folds, problem.problem.losses, space), Lattice.of(problem, folds, space)
    sketched = None if kind is None else best_of_sketches(lattice, folds, space, kind)
    return (best_of_a_few(lattice, derivatives), False) if sketched is None else ([sketched], True)


def best_of_levels(problem: RecordedProblem) -> list[Array]:
    """Every other level of every parameter, then all neighbours of the best, until none is better."""
    levels = [_decades(low, high) for low, high in zip(*problem.space.bounds, strict=True)]
    lattice = Lattice(problem, levels, np.arange(len(levels)), steps=MORE_STEPS)
    for place in product(*(own[:: 2 if len(own) <= 5 else 3] for own in levels)):
        lattice.look(place)
    while True:
        best = min(lattice.heights, key=lambda place: lattice.heights[place])
        around = [lattice.look(place) for place in lattice.neighbours(best)]
        if min(around) >= lattice.heights[best]:
            return [lattice.theta(best)]


def _decades(low: float, high: float) -> list[float]:
    """APART at least, and an odd number, so that every other one has both ends."""
    count = min(max(2, 1 + math.floor((high - low) / APART)), MOST_LEVELS)
    return [float(level) for level in np.linspace(low, high, count + 1 - count % 2)]


def best_of_a_few(lattice: Lattice, derivatives: bool) -> list[Array]:
    """The best of a few looks spread over the space, and of a second valley if there is one."""
    lattice.look(lattice.plainest)
    for line in lattice.lines():
        heights: list[float] = []
        for i, place in enumerate(line):
            heights.append(lattice.look(place))
            if lattice.ends(heights):
                break
            if derivatives and len(place) == 1 and 0 < i < len(line) - 1:
                valley = lattice.valley_behind(*line[i - 1 : i + 2])
                if valley is not None:
                    lattice.look(valley)
                    break
    if lattice.falls_to_the_corner():
        lattice.look(lattice.corner)
    for place in lattice.between():
        lattice.look(place)
    while True:
        valleys = lattice.valleys()
        unseen = [place for valley in valleys for place in lattice.unseen(valley)]
        if unseen:
            lattice.look(unseen[0])
        else:
            limit = lattice.above(lattice.heights[valleys[0]], NEARLY, START_SE)
            return [lattice.theta(place) for place in valleys[:2] if lattice.heights[place] <= limit]


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
    plateau: bool = False  # whether all weights are zero at the first level of l1, whatever l2 is
    heights: dict[Place, float] = field(default_factory=dict)
    steps: int = STEPS

    def __post_init__(self) -> None:
        # the smallest inner level of l2, if there is one
        self.inner: Place = tuple(l2[-2:][0] for l2 in self.levels[1:])

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
        levels = [levels_of(largest[kind], *end, below[kind], BEYOND[kind]) for kind, end in known]
        lattice = cls(problem, levels, number)
        if kinds[0] == "l1":
            params = problem.space.params(lattice.theta((levels[0][0], *lattice.inner)))
            if space.groups:
                least = min(group_penalties(params, space.ratio, space.groups)["l1"])
            else:
                least = penalties(params, space.ratio)["l1"]
            lattice.plateau = bool(least >= largest["l1"])
        return lattice

    @property
    def plainest(self) -> Place:
        rest = self.inner if self.plateau else tuple(levels[0] for levels in self.levels[1:])
        return (self.levels[0][0], *rest)

    @property
    def corner(self) -> Place:
        return tuple(levels[-1] for levels in self.levels)

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

    def lines(self) -> Iterator[list[Place]]:
        """Lines of looks from large to small penalties."""
        falling = self.levels[0][1 if self.plateau else 0 :]
        yield [(level, *self.inner) for level in falling]
        if len(self.levels) > 1 and falling:
            l1, l2 = self.levels
            yield [(l1[-1], level) for level in l2[1:-1]]

    def ends(self, heights: list[float]) -> bool:
        """Whether a line with these heights has turned upwards, or is level and not good."""
        level = len(heights) > 1 and heights[-1] > max(LEVEL * heights[-2], self.above(min(self.heights.values())))
        twice = len(heights) > 2 and min(heights) < heights[-2] < heights[-1]
        again = twice and heights[-1] > self.above(min(heights), NEARLY, NEARLY_SE)
        return heights[-1] > self.above(min(heights)) or level or again

    def valley_behind(self, before: Place, place: Place, ahead: Place) -> Place | None:
        """Where F is least on a line of one penalty, by the parabola through the last two places, if the derivative at
        the latest says that F will have turned upwards at the next. It is asked for where F has begun to level out."""
        height, (x,) = self.heights[place], place
        if not LEVELLING * self.heights[before] < height < self.heights[before]:
            return None
        gradient = self.problem.differentiate(self.problem.evaluations[-1]).slope
        slope = math.nan if gradient is None else float(gradient.sum())
        if not height + slope * (ahead[0] - x) > self.above(height):
            return None
        way = before[0] - x
        bend = (self.heights[before] - height - slope * way) / way**2
        valley = x - 0.5 * slope / bend
        self.levels[0] = sorted({*self.levels[0], valley}, reverse=True)
        return (valley,)

    def above(self, height: float, times: float = TURNED, errors: float = TURNED_SE) -> float:
        """So many times a height, or as many standard errors above it where that is less."""
        return min(times * height, height + errors * standard_error(self.problem.best))

    @property
    def first_line(self) -> list[Place]:
        """What was seen of it, from large l1 to small."""
        return sorted((place for place in self.heights if place[1:] == self.inner), reverse=True)

    def falls_to_the_corner(self) -> bool:
        """Whether F hardly rises, if at all, where the first line meets the edge."""
        heights = [self.heights[place] for place in self.first_line]
        return self.first_line[-1][0] == self.corner[0] and heights[-1] <= self.above(min(heights), RISING)

    def neighbours(self, place: Place) -> list[Place]:
        """The next places along every axis; the plateau is one place, next to all that are one level below it."""
        if self.plateau and place == self.plainest:
            return [(l1, *rest) for l1 in self.levels[0][1:2] for rest in product(*self.levels[1:])]
        places = []
        for k, levels in enumerate(self.levels):
            i = levels.index(place[k])
            for level in (*levels[max(i - 1, 0) : i], *levels[i + 1 : i + 2]):
                places.append((*place[:k], level, *place[k + 1 :]))
        return [self.plainest if self.plateau and to[0] == self.levels[0][0] else to for to in places]

    def unseen(self, valley: Place) -> list[Place]:
        """What is to be looked at around a valley."""
        places = []
        for k, levels in enumerate(self.levels):
            between = [(*valley[:k], level, *valley[k + 1 :]) for level in levels[levels.index(valley[k]) :]]
            high = self.above(self.heights[valley])
            rises = any(self.heights.get(place, 0.0) > high for place in between)
            if not rises and (k > 0 or self.first_line[-1][0] == levels[-1]):
                places.append(between[-1])
        return [place for place in places if place not in self.heights]

    def between(self) -> list[Place]:
        """New places, on new levels, where parabolas along an axis are less than all that was seen."""
        found, least = [], min(self.heights.values())
        for place, height in list(self.heights.items()):
            for k, levels in enumerate(self.levels):
                i = levels.index(place[k])
                if not 0 < i < len(levels) - 1 or (self.plateau and place == self.plainest):
                    continue
                ends = [(*place[:k], levels[j], *place[k + 1 :]) for j in (i - 1, i + 1)]
                if any(self.heights.get(end, 0.0) <= height for end in ends):
                    continue
                (up, above), (down, below) = ((end[k] - place[k], self.heights[end] - height) for end in ends)
                bend = (above / up - below / down) / (up - down)
                slope = above / up - bend * up
                to = -0.5 * slope / bend
                if height + 0.5 * slope * to < least and min(abs(to), up - to, to - down) >= 0.5 * NEAR:
                    found.append((*place[:k], place[k] + to, *place[k + 1 :]))
        for place in found:
            for levels, level in zip(self.levels, place, strict=True):
                if level not in levels:
                    levels.append(level)
                    levels.sort(reverse=True)
        return found

    def valleys(self) -> list[Place]:
        """Places better than all neighbours seen, and nearly as good as the best, which is the first. Of places that
        are alike the one seen first counts as better, so that a plateau has a valley, too."""
        rank = {place: (height, k) for k, (place, height) in enumerate(self.heights.items())}
        limit = self.above(min(self.heights.values()), NEARLY, NEARLY_SE)
        none = math.inf, math.inf
        low = [
            place
            for place, height in self.heights.items()
            if height <= limit and all(rank[place] < rank.get(near, none) for near in self.neighbours(place))
        ]
        return sorted(low, key=lambda place: rank[place])


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
