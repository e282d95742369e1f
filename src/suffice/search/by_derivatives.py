r"""The search while its models come from derivatives.

One evaluation makes a model (`suffice.search.model`), so the search holds the incumbent alone, with all other points
as old ones: there are no first points and no geometry, and a step that is short reduces rho at once.

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
from dataclasses import replace

import numpy as np

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.options import Options
from suffice.search.geometry import first_points
from suffice.search.judge import SHRINK
from suffice.search.model import slopes
from suffice.search.state import Iterate, Modelling, Plan, Sample, Setting, Trial

ENOUGH = 4
WIDER = 16.0  # the radius of interpolation, over the one at which derivatives have failed
LIKE = 0.5  # of the change that one parameter makes: how far a test may be off
TEST = 1e-3  # of initial_radius: h
ROUNDING = 1e-9  # of the residuals: a change that is none


def allowed(options: Options) -> bool:
    """Whether the options leave room for derivatives."""
    return options.derivatives != "never" and options.model != "linear"


def wanted(state: Iterate, setting: Setting) -> bool:
    """Whether an evaluation is to come with derivatives."""
    return allowed(setting.options) and (not setting.ledger.records or state.models.by_derivatives)


def known(evaluation: Evaluation) -> bool:
    """Whether its Jacobian can be used."""
    return slopes(evaluation) is not None


def begin(state: Iterate) -> Iterate:
    """Models from derivatives, from here on."""
    return replace(state, models=Modelling(by_derivatives=True))


def end(state: Iterate) -> Iterate:
    """Models by interpolation, from here on."""
    failures = max(state.models.failures, 1)
    return replace(state, retries=0).modelled(by_derivatives=False, misses=(0.0, 0.0), failures=failures)


def give_up(state: Iterate, setting: Setting) -> Iterate:
    """Models by interpolation, from here on, with first points of their own and a radius at which kinks matter less."""
    delta = min(WIDER * state.delta, setting.options.initial_radius)
    first = first_points(state.current.u, delta, *setting.box, setting.options.seed)[1:]
    return end(replace(state, delta=delta, rho=delta, first=tuple(first), after_failure=False))


def after_step(state: Iterate, trial: Trial, accepted: bool, very: bool, setting: Setting) -> Iterate:
    """A judged step: the incumbent moves or stays, and the other point becomes an old one."""
    state = state.pooled(state.current if accepted else trial.point)
    if not accepted:
        return failed(state, trial.plan, setting)
    failures = max(state.models.failures - (2 if very else 1), 0)
    state = replace(state, points=(trial.point,)).modelled(failures=failures, tested=False)
    return state if known(trial.point.evaluation) else give_up(state, setting)


def failed(state: Iterate, plan: Plan, setting: Setting) -> Iterate:
    """After a step that was rejected. Not all models have learnt from it: they must not propose it again."""
    shorter = max(min(state.delta, SHRINK * plan.length), state.rho)
    state = replace(state, delta=shorter).modelled(failures=state.models.failures + 1)
    return give_up(state, setting) if state.models.failures >= ENOUGH else state


def test(state: Iterate, setting: Setting) -> tuple[Array, float]:
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


def after_test(state: Iterate, point: Sample, setting: Setting) -> Iterate:
    """The point becomes an old one; derivatives that have not foreseen it are given up."""
    current = state.current
    J, share, h = _slopes_to_test(state, setting)
    foreseen = J @ (point.u - current.u)
    missed = norm(point.evaluation.r - current.evaluation.r - foreseen)
    blur = norm(current.evaluation.e) + norm(point.evaluation.e) + ROUNDING * norm(current.evaluation.r)
    right = missed <= LIKE * min(h * share, norm(foreseen)) + blur
    state = state.pooled(point)
    return state.modelled(tested=True) if right else give_up(state, setting)


def _slopes_to_test(state: Iterate, setting: Setting) -> tuple[Array, float, float]:
    """J, the least norm of a column that is not 0, and h."""
    J = slopes(state.current.evaluation, setting.scaling.unit)
    assert J is not None
    sizes = np.linalg.norm(J, axis=0)
    least = float(np.min(sizes[sizes > 0.0])) if sizes.any() else 0.0
    return J, least, max(TEST * setting.options.initial_radius, setting.options.final_radius)
