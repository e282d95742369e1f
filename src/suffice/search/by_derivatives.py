r"""The search while its models come from derivatives.

One evaluation makes a model (`suffice.search.hermite`), so the search holds the incumbent alone, with all other points
as old ones: there are no first points and no geometry, and a step that is short reduces rho at once. Five models
compete: with curvature, without, power laws, interpolation of values alone through points that happen to be there, and
parameters whose influence fades.

Derivatives may fail: F has a kink, or they are wrong. A step that is rejected counts as a failure, one that succeeds
very well takes one back; ENOUGH of them, and the search goes back to interpolation, with m+1 points of its own around
the incumbent on a radius that is wider again. And before a search by derivatives ends, one evaluation tests them: all
parameters move, each by as much as changes the residuals like the others (by the Jacobian), at most by h:

    d_j = +-h min_i ||J_i|| / ||J_j||,       ||r(u + d) - r - J d|| <= LIKE h min_i ||J_i||,

with signs such that the changes do not cancel, up to the errors of both, or the search goes on by interpolation. A
column of J that is wrong, be it much too large or much too small, fails that test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.options import Options
from suffice.search.fitting import is_coarse, useful
from suffice.search.geometry import first_points
from suffice.search.hermite import curved, fading, power_law, slopes, usable
from suffice.search.model import CostModel, fit, linear_basis, quadratic_basis
from suffice.search.state import Modelling, Plan, Point, Setting, State, Trial

MODELS = 5
THRIFT = 1e-3
ENOUGH = 4
WIDER = 16.0  # the radius of interpolation, over the one at which derivatives have failed
NEW = 0.3  # of a direction has to be new for a point to take part in an interpolation
LIKE = 0.5  # of the change that one parameter makes: how far a test may be off
TEST = 1e-3  # of initial_radius: h
ROUNDING = 1e-9  # of the residuals: a change that is none


def allowed(options: Options) -> bool:
    """Whether the options leave room for derivatives."""
    return options.derivatives != "never" and options.noise is None and options.model != "linear"


def wanted(state: State, setting: Setting) -> bool:
    """Whether an evaluation is to come with derivatives."""
    return allowed(setting.options) and (not setting.ledger.records or state.models.by_derivatives)


def known(evaluation: Evaluation) -> bool:
    """Whether its Jacobian can be used."""
    return evaluation.J is not None and usable(evaluation.J)


def begin(state: State) -> State:
    """Models from derivatives, from here on."""
    return replace(state, models=Modelling((0.0,) * MODELS, by_derivatives=True, checked=state.models.checked))


def end(state: State) -> State:
    """Models by interpolation, from here on."""
    failures = max(state.models.failures, 1)
    return replace(state, retries=0).modelled(by_derivatives=False, misses=(0.0, 0.0), failures=failures)


def take_up(state: State, setting: Setting) -> State:
    """Models from derivatives, from the first evaluation on, if they are wanted and it has any."""
    return begin(state) if wanted(state, setting) and known(state.current.evaluation) else state


def give_up(state: State, setting: Setting) -> State:
    """Models by interpolation, from here on, with first points of their own and a radius at which kinks matter less."""
    delta = min(WIDER * state.delta, setting.options.initial_radius)
    first = first_points(state.current.u, delta, *setting.box, setting.options.seed)[1:]
    return end(replace(state, delta=delta, rho=delta, first=tuple(first), after_failure=False))


def competing(state: State, setting: Setting) -> Sequence[CostModel]:
    """The models, the one to start with first; one that cannot be had is stood in for by the first."""
    current, unit, coarse = state.current, setting.scaling.unit, is_coarse(state)
    r, J = _residuals(current.evaluation, coarse), slopes(current.evaluation, unit, coarse)
    assert J is not None
    nearby = useful(state, setting)
    old = [
        (point.u - current.u, _residuals(point.evaluation, coarse), slopes(point.evaluation, unit, coarse))
        for point in nearby
    ]
    first = curved(r, J, old, state.delta)
    others = [
        curved(r, J, (), state.delta),
        power_law(r, J, old, state.delta) if coarse else None,
        _interpolant(current, nearby, coarse),
        fading(r, J, old, state.delta),
    ]
    return [first, *(first if model is None else model for model in others)]


def _residuals(evaluation: Evaluation, coarse: bool) -> Array:
    return evaluation.coarse if coarse else evaluation.r


def _interpolant(current: Point, old: Sequence[Point], coarse: bool) -> CostModel | None:
    """The quadratic through values alone, if there are m+1 points in general position."""
    left = sorted(old, key=lambda point: norm(point.u - current.u))
    chosen, rest, basis = [current], [], np.empty((0, len(current.u)))
    for point in left:
        step = point.u - current.u
        new = step - basis.T @ (basis @ step)
        if len(chosen) <= len(current.u) and norm(new) > NEW * norm(step):
            chosen.append(point)
            basis = np.vstack([basis, new / norm(new)])
        else:
            rest.append(point)
    if len(chosen) <= len(current.u):
        return None
    functions = linear_basis(np.array([point.u for point in chosen]), 0)
    if rest:
        functions = quadratic_basis(functions, 0, current.u, np.array([point.u for point in rest]))
    values, others = (np.array([_residuals(p.evaluation, coarse) for p in points]) for points in (chosen, rest))
    return fit(functions, 0, values, others)


def after_step(state: State, trial: Trial, accepted: bool, very: bool, setting: Setting) -> State:
    """A judged step: the incumbent moves or stays, and the other point becomes an old one."""
    state = state.pooled(state.current if accepted else trial.point)
    if not accepted:
        return failed(state, trial.plan, setting)
    failures = max(state.models.failures - (2 if very else 1), 0)
    state = replace(state, points=(trial.point,)).modelled(failures=failures, tested=False)
    return state if known(trial.point.evaluation) else give_up(state, setting)


def failed(state: State, plan: Plan, setting: Setting) -> State:
    """After a step that was rejected. Not all models have learnt from it: they must not propose it again."""
    shorter = max(min(state.delta, setting.options.shrink * plan.length), state.rho)
    state = replace(state, delta=shorter).modelled(failures=state.models.failures + 1)
    return give_up(state, setting) if state.models.failures >= ENOUGH else state


def test(state: State, setting: Setting) -> tuple[Array, float]:
    """Where to test the derivatives at the incumbent, and how accurately."""
    current, (lower, upper) = state.current, setting.box
    J, share, h = _slopes_to_test(state, setting)
    sizes = np.linalg.norm(J, axis=0)
    d = h * np.where(sizes > 0.0, share / np.where(sizes > 0.0, sizes, 1.0), 1.0)
    change = np.zeros(len(J))
    for j in range(len(d)):
        sign = -1.0 if float(change @ J[:, j]) < 0.0 else 1.0
        if not lower[j] <= current.u[j] + sign * d[j] <= upper[j]:
            sign = -sign
        d[j] *= sign
        change += J[:, j] * d[j]
    u = np.clip(current.u + d, lower, upper)
    return u, 0.25 * LIKE * h * share / math.sqrt(len(current.evaluation.e))


def after_test(state: State, point: Point, setting: Setting) -> State:
    """The point becomes an old one; derivatives that have not foreseen it are given up."""
    current = state.current
    J, share, h = _slopes_to_test(state, setting)
    foreseen = J @ (point.u - current.u)
    missed = norm(point.evaluation.r - current.evaluation.r - foreseen)
    blur = norm(current.evaluation.e) + norm(point.evaluation.e) + ROUNDING * norm(current.evaluation.r)
    right = missed <= LIKE * min(h * share, norm(foreseen)) + blur
    state = state.pooled(point)
    return state.modelled(tested=True) if right else give_up(state, setting)


def _slopes_to_test(state: State, setting: Setting) -> tuple[Array, float, float]:
    """J, the least norm of a column that is not 0, and h."""
    J = slopes(state.current.evaluation, setting.scaling.unit, coarse=False)
    assert J is not None
    sizes = np.linalg.norm(J, axis=0)
    least = float(np.min(sizes[sizes > 0.0])) if sizes.any() else 0.0
    return J, least, max(TEST * setting.options.initial_radius, setting.options.final_radius)
