r"""The oracle's limit: what it has shown it cannot give is not asked for again.

A point that misses its request may be refined once. If that comes to nothing, its error is a floor. Floors at `SEVERAL`
points in a row, with no refinement that got below them in between, are the oracle's limit: then a point that misses is
exhausted at once, and no request goes below the least of the latest floors.
"""

from __future__ import annotations

from dataclasses import replace

from suffice.evaluation import Evaluation
from suffice.options import Options
from suffice.search.accuracy import FUTILE, REFINEMENT, achieved, came_to_nothing
from suffice.search.state import Pending, Sample, Setting

SEVERAL = 3  # points at which refinements must have come to nothing before the oracle counts as being at its limit

Floors = tuple[float, ...]


def answered(pending: Pending, evaluation: Evaluation, floors: Floors, options: Options) -> tuple[Floors, Sample]:
    """The point of an evaluation that was waited for: a new one, or one that is more accurate than before."""
    old = pending.refines
    if old is None:
        return _first_seen(Sample(pending.u, evaluation), pending.within, floors, options)
    return _refined(old, evaluation, pending.within, floors, options)


def _first_seen(point: Sample, within: float, floors: Floors, options: Options) -> tuple[Floors, Sample]:
    """A new point that has missed its request may be refined once; not at all where the oracle is known to be at its
    limit."""
    accuracy = achieved(point.evaluation, options)
    if accuracy <= within and not (len(floors) >= SEVERAL and within <= min(floors)):
        return floors, point
    if len(floors) >= SEVERAL or (floors and accuracy >= FUTILE * min(floors)):
        floors = (*floors, accuracy)[-SEVERAL:]
    return floors, replace(point, futile=2 if len(floors) >= SEVERAL else 1)


def _refined(old: Sample, after: Evaluation, within: float, floors: Floors, options: Options) -> tuple[Floors, Sample]:
    before = old.evaluation
    better = after if achieved(after, options) <= achieved(before, options) else before
    accuracy, moved = achieved(better, options), abs(after.cost - before.cost)
    at_floor = bool(floors) and accuracy >= FUTILE * min(floors)
    floors = floors if at_floor else ()
    if came_to_nothing(before, after, within, options) or (at_floor and accuracy > within):
        return (*floors, accuracy)[-SEVERAL:], Sample(old.u, better, old.futile + 1, moved)
    return floors, Sample(old.u, better, 0, moved)


def reached(setting: Setting) -> bool:
    """Whether the oracle has shown at several points that it cannot be more accurate than it is."""
    return len(setting.ledger.floors) >= SEVERAL


def exhausted(point: Sample, setting: Setting) -> bool:
    """Whether there is no point in asking for this one again: it may miss once, but not twice."""
    floors = setting.ledger.floors
    beyond = reached(setting) and REFINEMENT * achieved(point.evaluation, setting.options) < min(floors)
    return point.futile > 1 or beyond


def askable(within: float, setting: Setting) -> float:
    """The request, but for nothing that the oracle has shown to be beyond its limit."""
    floors = setting.ledger.floors
    return max(within, min(floors)) if reached(setting) else within
