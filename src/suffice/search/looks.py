r"""When a search looks elsewhere than its model proposes, and what it is after.

A model is fitted to points nearby and tells nothing of what lies beyond. Three things make that matter here.

- A plateau. Penalties so large that all weights are 0 leave nothing that depends on theta but J, which may draw the
  search further and further away. Where no residual that has to be computed differs between the points of the model,
  and the model promises less than WORTH of F, the search looks across the box, and goes on from where F is less and a
  residual differs.
- Kinks. Where the support of the weights changes, F has a kink, and valleys between kinks that are no wider than a
  hundredth of the box. A search that has come to rest in one sees its steps fail, however short they are. So once rho
  is below NEAR of the first radius, the model promises less than LITTLE of F, and a third of the steps at such radii
  have failed, F is looked at on either side along every axis, at WIDE of the first radius. It is looked at again only
  after F has decreased by LITTLE of itself.
- The edges of the box. A parameter that is best left out is best at its bound (a penalty at its lower one), and between
  there and where the search comes to rest F may rise first. So once rho is that small, a search over up to FEW
  parameters looks at its incumbent with one parameter moved onto the nearer of its bounds, for each of them; and again
  only after F has decreased by WORTH of itself. An evaluation there, where a penalty vanishes, can be dearer than all
  others together; so it does where none has taken more than CHEAP steps for each block of residuals.

A look is as accurate as its distance is worth: WORTH of F at the first radius, in proportion elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.search import limit
from suffice.search.geometry import around
from suffice.search.judge import Verdict
from suffice.search.state import AnyState, Setting, State

WORTH, MOST_WORTH = 0.01, 0.1  # of F: what a look at the distance initial_radius is to tell, and one at any distance
LITTLE = 1e-3  # of F: a decrease that is next to nothing
NEAR, WIDE = 1e-2, 0.25  # of initial_radius
LOCAL = 0.1  # of initial_radius: the largest rho at which failures tell of kinks
FEW = 20  # parameters: with more, looks at bounds would be as many as the evaluations of the search
CHEAP = 100.0  # steps: Newton's method takes tens anywhere, first-order methods thousands where a penalty vanishes
ROUNDING = 1e-12  # of F: a decrease that is none


def untouched(state: State, setting: Setting) -> bool:
    """Whether no residual that has to be computed depends on theta, by the points of the model or its derivatives."""
    start = state.current.evaluation
    if setting.options.noise is not None or start.error > WORTH * start.cost:
        return False
    if state.by_derivatives:
        return start.J is not None and bool(start.r[_inexact(start)].any()) and not start.J[_inexact(start)].any()
    return len(state.points) > 1 and all(same(point.evaluation, start) for point in state.points)


def same(one: Evaluation, other: Evaluation) -> bool:
    """Whether all residuals that are not known exactly are the same."""
    inexact = _inexact(other)
    if len(one.r) != len(other.r) or not other.r[inexact].any():
        return False
    return norm((one.r - other.r)[inexact]) <= ROUNDING * norm(other.r[inexact])


def _inexact(evaluation: Evaluation) -> npt.NDArray[np.bool_]:
    """Which residuals are not known exactly."""
    inexact: npt.NDArray[np.bool_] = evaluation.e > 0.0
    return inexact if evaluation.blocks is None else np.repeat(inexact, evaluation.blocks)


def caught(state: State, setting: Setting) -> bool:
    """Whether kinks may have caught the search in a valley of theirs: the model promises next to nothing, yet many of
    its steps there have failed, and F was larger when the search looked around the last time."""
    options, F = setting.options, state.current.evaluation.cost
    if options.model == "linear" or limit.noisy(setting):
        return False
    if state.promise > LITTLE * F or (1.0 - LITTLE) * state.around <= F:
        return False
    steps = [one.verdict for one in setting.ledger.records if one.rho <= LOCAL * options.initial_radius]
    failed, succeeded = steps.count(Verdict.REJECTED.value), steps.count(Verdict.ACCEPTED.value)
    return failed > 1 and 2 * failed >= succeeded


def nearby(state: AnyState, setting: Setting, places: list[Array], near: bool) -> tuple[AnyState, list[Array]]:
    """The places to look at from the incumbent, before these, because of kinks and, if rho is that small, of edges; and
    that it has been done."""
    scaling, current = setting.scaling, state.current
    F, edges = current.evaluation.cost, at_bounds(state, setting) if near else []
    if edges:
        state, places = replace(state, edged=F), [*edges, *places]
    if caught(state, setting):
        sides = around(current.u, WIDE * setting.options.initial_radius, scaling.low, scaling.high)
        state, places = replace(state, around=F), [*sides, *places]
    return state, places


def at_bounds(state: State, setting: Setting) -> list[Array]:
    """The incumbent with one parameter moved onto the nearer of its bounds; none with more than FEW, with noise, where
    evaluations are dear, on a plateau, or if F has not decreased since it was looked there."""
    scaling, current, m = setting.scaling, state.current, len(setting.scaling.low)
    if m > FEW or setting.options.model == "linear" or limit.noisy(setting):
        return []
    if (1.0 - WORTH) * state.edged <= current.evaluation.cost or math.isinf(state.promise):
        return []
    if max(record.work for record in setting.ledger.records) > CHEAP * len(current.evaluation.e):
        return []
    u = current.u
    bound = np.where(u - scaling.low <= scaling.high - u, scaling.low, scaling.high)
    far = np.isfinite(bound) & (np.abs(bound - u) >= setting.options.initial_radius)
    return [np.where(np.arange(m) == i, bound, u) for i in np.flatnonzero(far)]
