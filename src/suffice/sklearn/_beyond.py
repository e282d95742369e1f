"""Beyond the edges of a space on which the best point lies: what one more decade brings, and all values at most."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.globally import GlobalOptions, UnsupportedError, certify_global
from suffice.globally.centres import work_of_look
from suffice.globally.certificate import INTERRUPTED
from suffice.globally.models import folds_of
from suffice.report.formats import bound
from suffice.search.accuracy import for_decision
from suffice.search.bilevel import BilevelProblem
from suffice.signals import TimeOver
from suffice.sklearn._recorded import RecordedProblem
from suffice.space import Space

LEAST_GAIN = 1e-3  # of the loss: how well it is to be known beyond an edge
LITTLE = 1e-4  # of the loss: what is not worth a warning
AT_EDGE = 0.02  # decades: a penalty this near to an end of its range lies on it
MOST_EDGES = 3  # that are looked beyond
PROVEN_BEYOND = 30  # evaluations for what all values beyond an edge could bring at most,
SHARE_BEYOND, SECONDS_BEYOND = 0.25, 1.0  # of the time that the search took, or so many seconds if that is more
SHARE_OF_A_LOOK, SPEED = (
    0.1,
    5e9,
)  # of that time: what one of them may take at most, at so many multiplications a second
ALIKE = 1e-10  # relative: how far other penalties may be from the best ones there
TELLING = 0.5  # of F: larger bounds tell nothing
EDGE_STEPS = 1000  # of a solver for each model of a look at an edge: what takes more is not proven to be better


@dataclass(frozen=True)
class Beyond:
    """An edge of the space on which the best point lies, and F one decade beyond, if it was looked at."""

    name: str
    down: bool  # whether it is the lower end
    end: float
    made: Evaluation | None
    others: bool = False  # whether there are other parameters
    most: float | None = None  # the share of F by which any value beyond is better at most, the others as they are

    def message(self, best: Evaluation, words: str) -> str:
        """What a person should know; `words` are the best parameters in scikit-learn's."""
        which, way = ("lower", "smaller") if self.down else ("upper", "larger")
        text = f"the best {self.name} lies on the {which} edge of its space, {self.end:.4g}: "
        text += self._what_it_brings(best, way)
        if self.most is not None:
            alone = ", all else being equal," if self.others else ""
            text += f"; no {way} one at all is{alone} better by more than {bound(100.0 * self.most, up=True)} %"
        return f"{text} (best is {words})"

    def matters(self, best: Evaluation) -> bool:
        """Whether one decade beyond may be better by more than a little: that it is not has to be proven."""
        return self.made is None or self.made.interval[0] < (1.0 - LITTLE) * best.interval[1]

    def _what_it_brings(self, best: Evaluation, way: str) -> str:
        if self.made is None:
            return f"one that is {way} may be better"
        (a, b), (low, high) = best.interval, self.made.interval
        if high < a:
            advice = "; widen it" if high < (1.0 - LEAST_GAIN) * a else ""
            return f"one decade beyond, the loss is lower by {100.0 * (1.0 - high / a):.2g} % or more{advice}"
        if low > b:
            return f"one decade beyond, the loss is higher by {100.0 * (low / b - 1.0):.2g} % or more"
        most = max(high / a - 1.0, 1.0 - low / b) if a > 0.0 else math.inf
        return f"one decade beyond, the loss changes by less than {100.0 * most:.2g} %"


def beyond_edges(space: Space, best: Evaluation) -> Iterator[tuple[Array, str, bool]]:
    """A place one decade beyond every edge on which the best point lies, the parameter, and whether it is the lower
    one; nothing lies beyond no penalty."""
    lower, upper = space.bounds
    for i, name in enumerate(space.names):
        down = bool(best.point[i] <= lower[i] + AT_EDGE)
        if (down or best.point[i] >= upper[i] - AT_EDGE) and not (down and space.ranges[name][0] == 0.0):
            there = np.array(best.point)
            there[i] = lower[i] - 1.0 if down else upper[i] + 1.0
            yield there, name, down


def peeked(problem: RecordedProblem, there: Array, best: Evaluation) -> Evaluation:
    """F there, well enough to tell whether it is better."""
    within = for_decision(LEAST_GAIN * best.cost, best)
    return problem.peek(there, within=within, warm=best, max_steps=EDGE_STEPS)


def looked_beyond(
    problem: RecordedProblem, ours: frozenset[str], best: Evaluation, affordable: bool, time: Callable[[], float]
) -> Iterator[Beyond]:
    """What is known beyond every edge on which the best point lies, but those of ranges that are `ours`: nothing lies
    beyond what the data can tell. `time` is what a proof about one of them may take, in seconds."""
    theirs = [edge for edge in beyond_edges(problem.space, best) if edge[1] not in ours]
    for number, (there, name, down) in enumerate(theirs):
        made = None
        if affordable and best.cost > 0.0 and number < MOST_EDGES:
            with suppress(TimeOver):
                made = peeked(problem, there, best)
        edge = Beyond(name, down, problem.space.ranges[name][0 if down else 1], made, len(problem.space) > 1)
        if made is not None and edge.matters(best):
            edge = replace(edge, most=_at_most(problem, edge, best, time()))
        yield edge


def time_for_proof(taken: float, left: float) -> float:
    """Seconds for a proof about an edge, after a search that took so many and leaves so many."""
    return min(max(SHARE_BEYOND * taken, SECONDS_BEYOND), left)


def _at_most(recorded: RecordedProblem, edge: Beyond, best: Evaluation, seconds: float) -> float | None:
    """By what share of F any value beyond the edge is better at most, up to infinity or down to 0, with the others as
    they are; None where little can be proven in so many seconds."""
    problem, known = recorded.problem, recorded.space.params(best.point)
    if seconds <= 0.0 or min(known.values()) <= 0.0 or not isinstance(problem, BilevelProblem):
        return None  # of kernel machines nothing is proven beyond
    ranges = {name: (value * (1.0 - ALIKE), value * (1.0 + ALIKE)) for name, value in known.items()}
    ranges[edge.name] = (0.0, edge.end) if edge.down else (edge.end, math.inf)
    budget = GlobalOptions(max_evaluations=PROVEN_BEYOND, max_seconds=seconds)
    try:
        asked = problem.over(Space(**ranges))
        looks = zip(folds_of(asked), best.solutions, strict=True)
        dear = SHARE_OF_A_LOOK / SHARE_BEYOND * seconds * SPEED
        if sum(work_of_look(fold, solution.x) for fold, solution in looks) > dear:
            return None  # a look cannot be given up half-way
        proven = certify_global(asked, LEAST_GAIN, options=budget, known=best)
    except UnsupportedError:
        return None
    if proven.message == INTERRUPTED:
        raise KeyboardInterrupt
    most = 1.0 - proven.lower / best.interval[1]
    return most if most < TELLING else None
