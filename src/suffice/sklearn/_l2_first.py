r"""Several classes: l2 first, and l1 where it pays.

A multinomial model with an l1 costs ten times as much as one without. Where both ranges are the data's own, a search
over l2 alone comes first, with l1 = 0, to its end l2*. Rough evaluations with an l1 follow: along the smallest inner
level of l2, from large l1 to small until F has turned, and at half of l2* from half of the best l1 of that line on, by
quarters as long as F falls. l1 pays if one of them has a loss below that at l2* by more than PAYS of its standard error
over folds: then a search over both goes on from there. Less than that is not told from nothing by other rows, and the
best that was seen is the answer.

What the first search has seen is known to the second: its places lie where the range of l1 begins, at 0. Of its
solutions those at l2* are kept to start from, since all others are near them, or of no use; of those a
journal keeps derivatives.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.result import Record, Result
from suffice.search.bilevel import BilevelProblem
from suffice.sklearn._penalty_search import PenaltySearch
from suffice.sklearn._recorded import RecordedProblem, standard_error
from suffice.sklearn._starting_points import LOOK, STEPS, Lattice
from suffice.sklearn.penalties import PenaltySpace
from suffice.space import Space

PAYS = 0.25
FALLS = 0.999
CLOSER = 0.25  # of a rough evaluation's error: so near to l2*, the gain is small against the loss


def with_none(space: PenaltySpace) -> PenaltySpace:
    """The space of l1 and l2, from l1 = 0 on."""
    ranges = space.space.ranges
    return replace(space, space=Space(l1=(0.0, ranges["l1"][1], "log"), l2=ranges["l2"]))


def of_l2(space: PenaltySpace) -> PenaltySpace:
    """The space of l2, without an l1."""
    return replace(space, names=("l2",), ratio=0.0, space=Space(l2=space.space.ranges["l2"]))


def begin(search: PenaltySearch, of_l2: BilevelProblem, space: PenaltySpace) -> None:
    """Let the search find its start by one over l2."""
    both = search.problem
    alone = replace(search, problem=RecordedProblem(of_l2, both.journal, both.tell), space=space)
    alone.problem.holds_all = both.holds_all
    search.finds = lambda search: start(search, alone)


def start(search: PenaltySearch, alone: PenaltySearch) -> Array | None:
    """Where to search over both, after a search over l2 `alone`; None if l1 does not pay, and `search.left_out` says
    why."""
    problem, found = search.problem, alone.run()
    notes = alone.problem.notes
    best = next(k for k, (_, _, made) in enumerate(notes) if made is found)
    none = problem.space.bounds[0][:1]
    problem.notes = [  # the same places with l1 = 0, of which derivatives are not known
        (purpose, within, replace(made, theta=np.append(none, made.point), jacobian=None, gradient=None))
        for purpose, within, made in notes
    ]
    problem.seconds, known = list(alone.problem.seconds), alone.problem.evaluations
    problem.earlier = [found]
    problem.derived = [made for made in known if made.jacobian is not None or made.gradient is not None]
    problem.let_go_but(problem.notes[best][-1])
    search.result = _result(search, alone.result, problem.notes[best][-1], none)
    if not alone.result.success:
        search.left_out = "l1 was not tried: the search over l2 was stopped before"
        return None
    return _where_it_pays(search, problem.notes[best][-1])


def _where_it_pays(search: PenaltySearch, best: Evaluation) -> Array | None:
    problem = search.problem
    problem.purpose, count = "overview", len(problem.notes)
    lattice = Lattice.of(problem, search.folds, search.space)
    l1, l2 = lattice.levels
    lattice.along([(level, l2[-2:][0]) for level in l1[1:-1]])  # at the first all weights are zero
    place = min(lattice.heights, key=lambda one: lattice.heights[one])
    least, theta = lattice.heights[place], lattice.theta(place)
    l1_there, half = 0.5 * problem.space.params(theta)["l1"], 0.5 * problem.space.params(best.point)["l2"]
    before, within = math.inf, CLOSER * LOOK * math.sqrt(best.cost / len(best.e))
    while True:
        there = problem.space.theta({"l1": l1_there, "l2": half})
        height = problem.look(there, within=within, max_steps=STEPS).cost
        least, theta = min((least, theta), (height, there), key=lambda one: one[0])
        if height > FALLS * before:
            break
        before, l1_there = height, 0.25 * l1_there
    gain, error = best.cost - least, standard_error(best)
    if gain > PAYS * error:
        return theta
    share = f"gain {100.0 * gain / best.cost:.2g} % of the loss" if gain > 0.0 else "gain nothing"
    tried = f"l1 was tried at {len(problem.notes) - count} places only: they {share}"
    search.left_out = f"{tried}, other rows would change {100.0 * error / best.cost:.2g} % (standard error over folds)"
    if gain > 0.0:
        detail = "what a search over l1 as well would gain is less than other rows would tell, as estimated"
        search.result = replace(search.result, detail=detail)
    return None


def _result(search: PenaltySearch, found: Result, best: Evaluation, none: Array) -> Result:
    def lifted(theta: tuple[float, ...]) -> tuple[float, ...]:
        return (*none.tolist(), *theta) if theta else theta

    def record(one: Record) -> Record:
        step = one.step and replace(one.step, origin=lifted(one.step.origin), target=lifted(one.step.target))
        return replace(one, theta=lifted(one.theta), incumbent=lifted(one.incumbent), step=step)

    space = search.problem.space
    return replace(
        found, theta=best.point, evaluation=best, history=tuple(map(record, found.history)), space=space,
        params=space.params(best.point),
    )  # fmt: skip
