r"""The oracle's limit: what it has shown it cannot give is not asked for again.

A point that misses its request may be refined once. If that comes to nothing, its error is a floor. Floors at `SEVERAL`
points in a row, with no refinement that got below them in between, are the oracle's limit: then a point that misses is
exhausted at once, and no request goes below the least of the latest floors.
"""

from __future__ import annotations

import math
from dataclasses import replace

from suffice.options import Options
from suffice.search.accuracy import FUTILE, REFINEMENT, achieved, came_to_nothing
from suffice.search.state import AnyState, ManyState, Point, Setting, State

SEVERAL = 3  # points at which refinements must have come to nothing before the oracle counts as being at its limit


def first_seen(state: AnyState, point: Point, within: float, setting: Setting) -> tuple[AnyState, Point]:
    """A new point that has missed its request may be refined once; not at all where the oracle is known to be at its
    limit."""
    accuracy = achieved(point.evaluation, setting.options)
    if accuracy <= within and not (at_limit(state) and within <= min(state.floors)):
        return state, point
    if at_limit(state) or (state.floors and accuracy >= FUTILE * min(state.floors)):
        state = replace(state, floors=(*state.floors, accuracy)[-SEVERAL:])
    return state, replace(point, futile=2 if at_limit(state) else 1)


def refined(state: AnyState, old: Point, new: Point, within: float, setting: Setting) -> tuple[AnyState, Point]:
    before, after, options = old.evaluation, new.evaluation, setting.options
    better = after if achieved(after, options) <= achieved(before, options) else before
    accuracy, nothing = achieved(better, options), came_to_nothing(before, after, within, options)
    at_floor = bool(state.floors) and accuracy >= FUTILE * min(state.floors)
    floors: tuple[float, ...] = state.floors if at_floor else ()
    if nothing or (at_floor and accuracy > within):
        return (
            replace(state, floors=(*floors, accuracy)[-SEVERAL:]),
            Point(old.u, better, old.futile + 1, abs(after.cost - before.cost)),
        )
    return replace(state, floors=floors), Point(old.u, better, 0, abs(after.cost - before.cost))


def at_limit(state: State | ManyState) -> bool:
    """Whether the oracle has shown at several points that it cannot be more accurate than it is."""
    return len(state.floors) >= SEVERAL


def noisy(state: State | ManyState, options: Options) -> bool:
    """Whether differences of F~ may be noise: by the options, or because the oracle has come to its limit."""
    return options.noise is not None or (at_limit(state) and max(state.floors) < math.inf)


def exhausted(point: Point, state: State | ManyState, options: Options) -> bool:
    """Whether there is no point in asking for this one again."""
    beyond = at_limit(state) and REFINEMENT * achieved(point.evaluation, options) < min(state.floors)
    return point.exhausted or beyond


def askable(within: float, state: State | ManyState) -> float:
    """The request, but for nothing that the oracle has shown to be beyond its limit."""
    return max(within, min(state.floors)) if at_limit(state) else within
