r"""Where a search looks elsewhere than its model proposes, when, and what a look is worth.

A model is fitted to points nearby and tells nothing of what lies beyond. Two things make that matter here.

- A plateau. Penalties so large that all weights are 0 leave nothing that depends on theta but J, which may draw the
  search further and further away. Where no residual that has to be computed differs between the points of the model (at
  the start, no residual at all), and the model promises less than WORTH of F, F is looked at across the box: with all
  parameters that have bounds moved down or up by STRIDE of its width, with one of them moved, and the same up to the
  bounds. The search goes on from where F is less and a residual differs.
- The edges of the box. A parameter that is best left out is best at its bound (a penalty at its lower one), and between
  there and where the search comes to rest F may rise first. So before a search over up to FEW parameters ends, it looks
  at its incumbent with one parameter moved onto the nearer of its bounds, for each of them. An evaluation there, where
  a penalty vanishes, can be dearer than all others together; so it does where none has taken more than CHEAP steps for
  each block of residuals.

A look is as accurate as its distance is worth: WORTH of F at the first radius, in proportion elsewhere.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.search.accuracy import for_decision
from suffice.search.state import Iterate, Sample, Setting

WORTH, MOST_WORTH = 0.01, 0.1  # of F: what a look at the distance initial_radius is to tell, and one at any distance
ROUNDING = 1e-12  # of F: a decrease that is none
ROUNDS = 3  # how often a search may look elsewhere before it ends
FEW = 20  # parameters: with more, looks at bounds would be as many as the evaluations of the search
CHEAP = 100.0  # steps: Newton's method takes tens anywhere, first-order methods thousands where a penalty vanishes
STRIDE = 0.25  # of the width of the box, which is 1


def across(u: Array, lower: Array, upper: Array) -> list[Array]:
    """Points all over the box, for a search on a plateau; none where nothing is bounded."""
    points: list[Array] = []
    bounded = np.isfinite(lower) & np.isfinite(upper)
    alone = [np.arange(len(u)) == i for i in np.flatnonzero(bounded)]
    for reach in (STRIDE, 1.0):
        for these in [bounded, *alone] if len(alone) > 1 else alone:
            for sign in (-1.0, 1.0):
                point = np.where(these, np.clip(u + sign * reach, lower, upper), u)
                if norm(point - u) >= 0.5 * STRIDE and not any(np.array_equal(point, one) for one in points):
                    points.append(point)
    return points


def at_bounds(state: Iterate, setting: Setting) -> list[Array]:
    """The incumbent with one parameter moved onto the nearer of its bounds; none with more than FEW, or where
    evaluations are dear."""
    u, (lower, upper) = state.current.u, setting.box
    dearest = max(record.work for record in setting.ledger.records)
    if len(u) > FEW or dearest > CHEAP * len(state.current.evaluation.e):
        return []
    bound = np.where(u - lower <= upper - u, lower, upper)
    far = np.isfinite(bound) & (np.abs(bound - u) >= setting.options.initial_radius)
    return [np.where(np.arange(len(u)) == i, bound, u) for i in np.flatnonzero(far)]


def on_a_plateau(state: Iterate, setting: Setting) -> bool:
    """Whether no residual that has to be computed depends on theta, by the points of the model or its derivatives; at
    the start, where all are known exactly, no residual at all. Values that are mostly errors tell nothing."""
    start = state.current.evaluation
    if start.error > WORTH * start.cost:
        return False
    if not start.e.any() and len(setting.ledger.records) > len(state.points):
        return False
    if state.models.by_derivatives:
        those = _computed(start)
        return start.J is not None and bool(start.r[those].any()) and not start.J[those].any()
    return len(state.points) > 1 and all(_same(point.evaluation, start) for point in state.points)


def _same(one: Evaluation, other: Evaluation) -> bool:
    """Whether all residuals that have to be computed are the same."""
    those = _computed(other)
    if len(one.r) != len(other.r) or not other.r[those].any():
        return False
    return norm((one.r - other.r)[those]) <= ROUNDING * norm(other.r[those])


def _computed(evaluation: Evaluation) -> npt.NDArray[np.bool_]:
    """Which residuals are not known exactly; all, if all are."""
    inexact: npt.NDArray[np.bool_] = (evaluation.e > 0.0) | (not evaluation.e.any())
    return inexact if evaluation.blocks is None else np.repeat(inexact, evaluation.blocks)


def accuracy(u: Array, current: Sample, setting: Setting) -> float:
    """As accurate as the distance is worth."""
    share = min(WORTH * norm(u - current.u) / setting.options.initial_radius, MOST_WORTH)
    return for_decision(share * current.evaluation.cost, current.evaluation)


def better(state: Iterate, point: Sample, setting: Setting) -> bool:
    """Whether F is proven to be less than at the incumbent, by more than next to nothing, and not still on a plateau
    that the search wants to leave."""
    current = state.current.evaluation
    less = current.interval[0] - point.evaluation.interval[1]
    return less > ROUNDING * current.cost and not (on_a_plateau(state, setting) and _same(point.evaluation, current))
