r"""The search while its models come from derivatives.

One evaluation makes a model (`suffice.upper.hermite`), so the search holds the incumbent alone, with all other points
as old ones: there are no first points and no geometry, and a step that is short reduces rho at once.

Derivatives may fail: F has a kink, or they are wrong. A step that is rejected counts as a failure, one that succeeds
very well takes one back; `ENOUGH` of them, and the search goes back to interpolation, with m+1 points of its own around
the incumbent on a radius that is wider again. And before a search by derivatives ends, one evaluation tests them: all
parameters move, each by as much as changes the residuals like the others (by the Jacobian), at most by h:

    d_j = +-h min_i ||J_i|| / ||J_j||,       ||r(u + d) - r - J d|| <= LIKE ||J d||

or the search goes on by interpolation. A column of J that is wrong, however large or small, fails that test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from suffice.arrays import Array
from suffice.options import Options
from suffice.upper.evaluation import Evaluation
from suffice.upper.fitting import is_coarse, useful
from suffice.upper.geometry import first_points
from suffice.upper.hermite import curved, gauss_newton, power_law, slopes
from suffice.upper.model import Model
from suffice.upper.state import Point, Setting, State, pooled

ENOUGH = 4
WIDER = 4.0  # the radius of interpolation, over the one at which derivatives have failed


def wanted(state: State, options: Options) -> bool:
    """Whether an evaluation is to come with derivatives."""
    if options.derivatives == "never" or options.noise is not None or options.model == "linear":
        return False
    return not state.records or state.by_derivatives or options.derivatives == "always"


def known(evaluation: Evaluation) -> bool:
    """Whether its Jacobian can be used."""
    return evaluation.J is not None and bool(np.isfinite(evaluation.J).all())


def take_up(state: State, options: Options) -> State:
    """Models from derivatives, from here on, if the incumbent has any."""
    if state.by_derivatives or not wanted(state, options) or not known(state.points[state.incumbent].evaluation):
        return state
    current = state.points[state.incumbent]
    others = [point for t, point in enumerate(state.points) if t != state.incumbent]
    pool = pooled(state.pool, others) if others else state.pool
    first = (*state.first, *(point.u for point in others))
    return replace(
        state,
        by_derivatives=True,
        first=first,
        points=(current,),
        incumbent=0,
        pool=pool,
        misses=(0.0,) * 3,
        failures=0,
        tested=False,
        sparsity=None,
    )


def give_up(state: State, setting: Setting) -> State:
    """Models by interpolation, from here on, with m first points of their own."""
    scaling, options = setting.scaling, setting.options
    delta = min(WIDER * state.delta, max(options.initial_radius, state.delta))
    first = first_points(state.points[0].u, delta, scaling.low, scaling.high, options.seed)[1:]
    return replace(state, by_derivatives=False, delta=delta, first=tuple(first), misses=(0.0, 0.0), retries=0)


def competing(state: State, setting: Setting) -> Sequence[Model]:
    """The models from derivatives, the one to start with first."""
    current, unit, coarse = state.points[0], setting.scaling.unit, is_coarse(state)
    r = current.evaluation.coarse if coarse else current.evaluation.r
    J = slopes(current.evaluation, unit, coarse)
    assert J is not None
    old = []
    for point in useful(state, setting):
        there = point.evaluation.coarse if coarse else point.evaluation.r
        old.append((point.u - current.u, there, slopes(point.evaluation, unit, coarse)))
    found: list[Model] = [curved(r, J, old, state.delta), gauss_newton(r, J)]
    power = power_law(r, J, old, state.delta) if coarse else None
    return [*found, found[0] if power is None else power]


def after_step(state: State, point: Point, accepted: bool, very: bool, setting: Setting) -> State:
    """A judged step: the incumbent moves or stays, and the other point becomes an old one."""
    left = state.points[0] if accepted else point
    failures = max(state.failures - 1, 0) if very else state.failures + (not accepted)
    state = replace(
        state,
        points=(point,) if accepted else state.points,
        pool=pooled(state.pool, [left]),
        failures=failures,
        tested=state.tested and not accepted,
    )
    if failures >= ENOUGH or (accepted and not known(point.evaluation)):
        return give_up(state, setting)
    return state


def squared(state: State, setting: Setting) -> Array:
    """J^T J at the incumbent."""
    evaluation = state.points[0].evaluation
    J = slopes(evaluation, setting.scaling.unit, coarse=False)
    assert J is not None
    return J.T @ J
