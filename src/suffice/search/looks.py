r"""Where a search looks elsewhere than its model proposes, when, and what a look is worth.

A model is fitted to points nearby and tells nothing of what lies beyond. Four things make that matter here.

- A plateau. Penalties so large that all weights are 0 leave nothing that depends on theta but J, which may draw the
  search further and further away. Where no residual that has to be computed differs between the points of the model (at
  the start, no residual at all), and the model promises less than WORTH of F, F is looked at across the box: with all
  parameters that have bounds moved down or up by STRIDE of its width, with one of them moved, and the same up to the
  bounds. The search goes on from where F is less and a residual differs.
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
- Saddles. Where the model is flat, ||J d radius||^2 <= FLAT F for a unit vector d, a small gradient proves little: F
  may still curve down, and points along the axes see no cross terms (x y - 1 is constant along both axes through 0). So
  before the search ends there, F is looked at once along each vector of an orthonormal basis of the flat subspace,
  turned at random. If B is the curvature of F there, the d.B d of any such basis sum to the trace of B: if that is not
  positive and B is not 0, one of them is negative.

A look is as accurate as its distance is worth: WORTH of F at the first radius, in proportion elsewhere. Once more, and
farther, is looked around where a search has ended (`suffice.search.edges`).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.search import limit
from suffice.search.accuracy import for_decision
from suffice.search.state import Iterate, Sample, Setting, Verdict
from suffice.search.step import eigenvalues

WORTH, MOST_WORTH = 0.01, 0.1  # of F: what a look at the distance initial_radius is to tell, and one at any distance
LITTLE = 1e-3  # of F: a decrease that is next to nothing
NEAR, WIDE = 1e-2, 0.25  # of initial_radius
LOCAL = 0.1  # of initial_radius: the largest rho at which failures tell of kinks
FEW = 20  # parameters: with more, looks at bounds would be as many as the evaluations of the search
CHEAP = 100.0  # steps: Newton's method takes tens anywhere, first-order methods thousands where a penalty vanishes
ROUNDING = 1e-12  # of F: a decrease that is none
ROUNDS = 3  # how often a search may look along flat directions before it ends
FLAT = 1e-3
STRIDE = 0.25  # of the width of the box, which is 1

Flags = npt.NDArray[np.bool_]


# Places


def together_and_alone(these: Flags) -> list[Flags]:
    """A set of parameters, and each of them alone."""
    alone = [np.arange(len(these)) == i for i in np.flatnonzero(these)]
    return [these, *alone] if len(alone) > 1 else alone


def nearer_bounds(u: Array, lower: Array, upper: Array) -> Array:
    """For each parameter the bound that is nearer."""
    return np.where(u - lower <= upper - u, lower, upper)


def sides(u: Array, steps: Array, lower: Array, upper: Array) -> list[Array]:
    """u with one parameter moved by its step, either way, as far as the bounds allow."""
    moves = [sign * steps * axis for axis in np.eye(len(u)) for sign in (1.0, -1.0)]
    places = [np.clip(u + move, lower, upper) for move in moves]
    return [place for place in places if not np.array_equal(place, u)]


def across(u: Array, lower: Array, upper: Array) -> list[Array]:
    """Points all over the box, for a search on a plateau; none where nothing is bounded."""
    points: list[Array] = []
    for reach in (STRIDE, 1.0):
        for these in together_and_alone(np.isfinite(lower) & np.isfinite(upper)):
            for sign in (-1.0, 1.0):
                point = np.where(these, np.clip(u + sign * reach, lower, upper), u)
                if norm(point - u) >= 0.5 * STRIDE and not any(np.array_equal(point, one) for one in points):
                    points.append(point)
    return points


def along_flat(u: Array, squared: Array, F: float, radius: float, lower: Array, upper: Array) -> list[Array]:
    """Points at the distance `radius` along flat directions that the model cannot tell about; `squared` is J^T J."""
    lam, Q = eigenvalues(squared)
    flat = Q[:, lam * radius**2 <= FLAT * F]
    p = flat.shape[1]
    if p == 0 or len(u) == 1 or F <= 0.0:  # along a single axis there are points already
        return []
    turned = np.linalg.qr(np.random.default_rng(p).standard_normal((p, p)))[0]
    points = []
    for d in (flat @ turned).T:
        ends = [np.clip(u + sign * radius * d, lower, upper) for sign in (1.0, -1.0)]
        far = max(ends, key=lambda point: norm(point - u))
        if norm(far - u) >= 0.5 * radius:
            points.append(far)
    return points


# When


def on_a_plateau(state: Iterate, setting: Setting) -> bool:
    """Whether no residual that has to be computed depends on theta, by the points of the model or its derivatives; at
    the start, where all are known exactly, no residual at all. Values that are mostly errors tell nothing."""
    start = state.current.evaluation
    if setting.options.noise is not None or start.error > WORTH * start.cost:
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


def _computed(evaluation: Evaluation) -> Flags:
    """Which residuals are not known exactly; all, if all are."""
    inexact: Flags = (evaluation.e > 0.0) | (not evaluation.e.any())
    return inexact if evaluation.blocks is None else np.repeat(inexact, evaluation.blocks)


def before_narrowing(state: Iterate, setting: Setting, rho: float, squared: Array | None) -> Iterate:
    """The state with what is to be looked at, if anything is, before its radius is reduced to `rho` or the search ends:
    because of kinks and edges and, at the final radius, where the model is flat, J^T J being `squared`."""
    current, options = state.current, setting.options
    F, near, places = current.evaluation.cost, rho < NEAR * options.initial_radius, list[Array]()
    if squared is not None and state.looks.rounds < ROUNDS:
        places = along_flat(current.u, squared, F, options.initial_radius, *setting.box)
    rounds = state.looks.rounds + (squared is not None)
    if options.model != "linear" and not limit.noisy(setting):
        edges = _at_bounds(state, setting) if near else []
        if edges:
            state, places = state.looking(edged=F), [*edges, *places]
        if (near or squared is not None) and _caught(state, setting):
            wide = WIDE * options.initial_radius
            around = sides(current.u, np.full(len(current.u), wide), *setting.box)
            around = [place for place in around if norm(place - current.u) >= 0.5 * wide]
            state, places = state.looking(around=F), [*around, *places]
    return state.looking(places=tuple(places), rounds=rounds) if places else state


def _caught(state: Iterate, setting: Setting) -> bool:
    """Whether kinks may have caught the search in a valley of theirs: the model promises next to nothing, yet many of
    its steps there have failed, and F was larger when the search looked around the last time."""
    F = state.current.evaluation.cost
    if state.promise > LITTLE * F or (1.0 - LITTLE) * state.looks.around <= F:
        return False
    small = LOCAL * setting.options.initial_radius
    steps = [one.verdict for one in setting.ledger.records if one.rho <= small]
    failed, succeeded = steps.count(Verdict.REJECTED.value), steps.count(Verdict.ACCEPTED.value)
    return failed > 1 and 2 * failed >= succeeded


def _at_bounds(state: Iterate, setting: Setting) -> list[Array]:
    """The incumbent with one parameter moved onto the nearer of its bounds; none with more than FEW, where evaluations
    are dear, on a plateau, or if F has not decreased since it was looked there."""
    u, evaluation = state.current.u, state.current.evaluation
    if len(u) > FEW or (1.0 - WORTH) * state.looks.edged <= evaluation.cost or math.isinf(state.promise):
        return []
    if max(record.work for record in setting.ledger.records) > CHEAP * len(evaluation.e):
        return []
    bound = nearer_bounds(u, *setting.box)
    far = np.isfinite(bound) & (np.abs(bound - u) >= setting.options.initial_radius)
    return [np.where(np.arange(len(u)) == i, bound, u) for i in np.flatnonzero(far)]


# What for


def accuracy(u: Array, current: Sample, setting: Setting) -> float:
    """As accurate as the distance is worth."""
    share = min(WORTH * norm(u - current.u) / setting.options.initial_radius, MOST_WORTH)
    return for_decision(share * current.evaluation.cost, current.evaluation)


def gain(state: Iterate, point: Sample, setting: Setting) -> float:
    """By how much F is proven to be less than at the incumbent, as a share of it; 0 for what is next to nothing, or
    still on a plateau that the search wants to leave."""
    current = state.current.evaluation
    less = current.interval[0] - point.evaluation.interval[1]
    if less <= ROUNDING * current.cost or (on_a_plateau(state, setting) and _same(point.evaluation, current)):
        return 0.0
    return less / current.cost
