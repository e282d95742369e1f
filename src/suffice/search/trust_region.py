r"""The strategy for few parameters: a trust region around the incumbent, and a model of F in it.

One iteration: fit the model through the m+1 points; take its minimiser s in ball and box; if s is short, improve the
geometry or reduce rho, without evaluating anything; if what is known of F beforehand (`lower_bound`) rules u_k + s
out, reduce the radius without evaluating either; else evaluate u_k + s as accurately as the verdict needs, refine
whichever end leaves the verdict open, move or stay, let the new point replace the one the model misses least, and
update the radius.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.result import Purpose, Status
from suffice.search import by_derivatives, looks
from suffice.search.accuracy import REFINEMENT, achieved, by_policy, first_look, for_model
from suffice.search.geometry import elsewhere, farthest, first_points, improving_point, point_to_replace
from suffice.search.judge import (
    ETA2,
    SHRINK,
    askable,
    end_to_refine,
    ended,
    exhausted,
    next_radius,
    next_rho,
    verdict_on,
)
from suffice.search.model import FAR, fitted, minimise
from suffice.search.state import WARM_POOL, Iterate, Judged, Pending, Plan, Sample, Setting, Trial, Verdict, remembered

SHORT_STEP = 0.5  # steps shorter than this many rho are not worth an evaluation (published implementation)
FORGET = 0.5  # how much an older step counts when the models are compared
CLOSE = 0.3  # of initial_radius: the largest rho at which a model tells what is left to gain
NEXT_TO_NOTHING = 0.01  # of what is worth an evaluation


class TrustRegion(Iterate):
    """The strategy for few parameters."""

    def decide(self, setting: Setting) -> TrustRegion:
        """Think until an evaluation is pending or the search has ended."""
        state: Iterate = self
        while state.status is Status.RUNNING and state.pending is None:
            if state.first and not state.models.by_derivatives:
                state = _ask_first(state, setting)
            elif state.looks.places:
                state = _ask_look(state, setting)
            elif state.looks.in_vain:
                state = _ended(state, setting)
            elif state.trial is not None:
                state = replace(state, pending=end_to_refine(state.current, state.k, state.trial, setting))
            elif state.after_failure:
                state = _mend(replace(state, after_failure=False), setting)
            else:
                state = _step(state, setting)
        pending = state.pending
        if self.pending is None and pending is not None:
            # A look elsewhere is one at a value, unless it is better; and a test of derivatives goes without them.
            below = state.current.evaluation.interval[0] if pending.purpose is Purpose.UNSEEN else math.inf
            wanted = pending.purpose is not Purpose.TEST and by_derivatives.wanted(state, setting)
            state = replace(state, pending=replace(pending, derivatives=wanted, below=below))
        assert isinstance(state, TrustRegion)
        return state

    def absorb(self, point: Sample, setting: Setting) -> tuple[TrustRegion, Judged | None]:
        """Take in the point that was pending, judge what can be judged."""
        assert self.pending is not None
        take = _take_in if point.evaluation.failure is None else _go_around
        state, judged = take(replace(self, pending=None), self.pending, point, setting)
        assert isinstance(state, TrustRegion)
        return state, judged


def begin(u: Array, setting: Setting, seen: Sequence[Evaluation] = ()) -> TrustRegion:
    """Before the first evaluation."""
    delta = setting.options.initial_radius
    first = first_points(u, delta, *setting.box, setting.options.seed)
    return TrustRegion(delta, delta, tuple(first), pool=remembered(u, seen, setting.scaling))


# Absorbing


def _take_in(state: Iterate, pending: Pending, point: Sample, setting: Setting) -> tuple[Iterate, Judged | None]:
    match pending.purpose:
        case Purpose.FIRST:
            points = (*state.points, point)
            best = min(range(len(points)), key=lambda t: points[t].evaluation.cost)
            state = replace(state, first=state.first[1:], points=points, k=best, retries=0)
            if len(points) == 1 and by_derivatives.wanted(state, setting) and by_derivatives.known(point.evaluation):
                state = by_derivatives.begin(state)
            return state, None
        case Purpose.GEOMETRY:
            t = pending.replaces
            assert t is not None
            new, old = (by_policy(one.evaluation, setting.options) for one in (point, state.current))
            state = replace(state, retries=0).pooled(state.points[t]).placed(point, t)
            return replace(state, k=t) if new.interval[1] < old.interval[0] else state, None
        case Purpose.UNSEEN:
            return _look(state, point, setting), None
        case Purpose.TEST:
            return by_derivatives.after_test(state, point, setting), None
        case Purpose.REFINE_INCUMBENT | Purpose.REFINE_POINT:
            assert pending.replaces is not None
            state = state.placed(point, pending.replaces)
        case Purpose.STEP | Purpose.REFINE_STEP:
            assert pending.plan is not None
            state = replace(state, trial=Trial(point, pending.plan))
    return (state, None) if state.trial is None else _conclude(state, state.trial, setting)


def _go_around(state: Iterate, pending: Pending, point: Sample, setting: Setting) -> tuple[Iterate, Judged | None]:
    """There are no finite residuals at the pending point: nothing of it enters a model."""
    match pending.purpose:
        case Purpose.FIRST:
            return replace(state, retries=state.retries + 1), None
        case Purpose.GEOMETRY:
            return replace(state, retries=state.retries + 1, after_failure=True), None
        case Purpose.UNSEEN:
            return _looked_in_vain(state, setting), None
        case Purpose.TEST:
            return by_derivatives.give_up(state, setting), None
    plan = pending.plan
    assert plan is not None
    delta = next_radius(-math.inf, plan.length, state.delta, state.rho)
    judged = Judged(Verdict.REJECTED, plan.predicted, state.current.u, point.u)
    state = replace(state, delta=delta, trial=None, after_failure=True)
    return (by_derivatives.failed(state, plan, setting) if state.models.by_derivatives else state), judged


def _conclude(state: Iterate, trial: Trial, setting: Setting) -> tuple[Iterate, Judged]:
    """Judge the step as far as the intervals allow, and if they do, act on the verdict."""
    plan = trial.plan
    verdict, ratio = verdict_on(state.current, trial, setting)
    judged = Judged(verdict, plan.predicted, state.current.u, trial.point.u)
    if verdict is Verdict.OPEN:
        return state, judged
    accepted = verdict in (Verdict.ACCEPTED, Verdict.LIKELY)
    if not accepted:
        ratio = min(ratio, ETA2 if verdict is Verdict.UNLIKELY else 0.0)
    delta, before = next_radius(ratio, plan.length, state.delta, state.rho), state.delta
    misses = [math.log(max(abs(foreseen - trial.point.evaluation.cost), 1e-300)) for foreseen in plan.foreseen]
    misses = [FORGET * miss + new for miss, new in zip(state.models.misses, misses, strict=True)]
    state = replace(state, delta=delta, trial=None, after_failure=not accepted).modelled(misses=tuple(misses))
    if state.models.by_derivatives:
        return by_derivatives.after_step(state, trial, accepted, ratio > ETA2, setting), judged
    t = point_to_replace(state.places, state.k, trial.point.u, before, accepted)
    state = state.pooled(state.points[t]).placed(trial.point, t)
    return replace(state, k=t if accepted else state.k), judged


# Steps


def _ask_first(state: Iterate, setting: Setting) -> Iterate:
    """The next of the first points. Of the very first evaluation nothing is known but what `lower_bound` tells."""
    u, bound = state.first[0], setting.lower_bound
    if not state.points:
        least = 0.0 if bound is None else bound(setting.scaling.to_theta(u))
        return _ask(state, Purpose.FIRST, u, for_model(state.delta, None, setting.options, least), setting)
    return _ask_near(state, Purpose.FIRST, state.points[0], u, state.delta, setting)


def _step(state: Iterate, setting: Setting) -> Iterate:
    models, options = state.models, setting.options
    if models.by_derivatives and not by_derivatives.known(state.current.evaluation):
        at_last = state.rho <= options.final_radius
        return _ended(state, setting) if at_last else by_derivatives.give_up(state, setting)
    current, competing = state.current, fitted(state, setting)
    model = competing[min(range(len(competing)), key=lambda i: models.misses[i])]
    room = setting.scaling.low - current.u, setting.scaling.high - current.u
    s, predicted = minimise(model, state.delta, *room)
    u, length = np.clip(current.u + s, *setting.box), norm(s)
    if predicted <= looks.WORTH * current.evaluation.cost and state.looks.rounds == 0:
        across = looks.across(current.u, *setting.box) if looks.on_a_plateau(state, setting) else []
        if across:
            return state.looking(places=tuple(across), rounds=1)
    short = predicted <= 0.0 or (length < SHORT_STEP * state.rho and not _last_to_a_bound(state, u, setting))
    if _suffices(state, predicted, short, setting):
        return replace(state, status=Status.SUFFICES)
    if short:
        return _mend(replace(state, delta=max(SHRINK * state.delta, state.rho)), setting, short=True)
    if setting.rules_out(u, current):
        if state.delta > state.rho:
            return replace(state, delta=max(SHRINK * min(length, state.delta), state.rho))
        return _mend(state, setting, short=True)
    within = first_look(predicted, state.delta, current.evaluation, options)
    plan = Plan(predicted, length, tuple(one.value(s) for one in competing))
    return _ask(state, Purpose.STEP, u, within, setting, plan=plan)


def _suffices(state: Iterate, predicted: float, short: bool, setting: Setting) -> bool:
    """Whether nothing worth an evaluation is promised: next to nothing by derivatives, or on a radius small enough to
    tell by this model, whose step is too short to be made, or by this one and the one of the latest step."""
    options = setting.options
    if state.models.by_derivatives and predicted < NEXT_TO_NOTHING * options.enough:
        return True
    if not 0.0 < options.enough >= predicted or state.rho > CLOSE * options.initial_radius:
        return False
    promised = (record.step.predicted for record in reversed(setting.ledger.records) if record.step is not None)
    return short or next(promised, math.inf) <= options.enough


def _last_to_a_bound(state: Iterate, u: Array, setting: Setting) -> bool:
    """Whether a step, however short, meets a bound when nothing else is left to do: a point next to an optimal bound is
    not on it."""
    at, (low, high) = state.current.u, setting.box
    meets = ((u <= low) & (at > low)) | ((u >= high) & (at < high))
    return state.rho <= setting.options.final_radius and bool(meets.any())


def _ended(state: Iterate, setting: Setting) -> Iterate:
    """The radius has come down: converged, if the accuracy was enough to say so."""
    return replace(state, status=ended(state.current, setting, Status.CONVERGED))


def _ask(state: Iterate, purpose: Purpose, u: Array, within: float, setting: Setting, **given: Any) -> Iterate:
    known = [*state.points, *state.pool[-WARM_POOL:]]
    near = min(known, key=lambda point: norm(point.u - u)).evaluation if known else None
    return replace(state, pending=Pending(purpose, u, askable(within, setting), near, **given))


def _ask_near(
    state: Iterate, purpose: Purpose, centre: Sample, u: Array, radius: float, setting: Setting, **given: Any
) -> Iterate:
    """Ask for a point of a model on this radius, or as often as there were no finite residuals, for another one on its
    line through the centre."""
    places = elsewhere(centre.u, u, *setting.box)
    if state.retries >= len(places):
        return replace(state, status=Status.NOT_FINITE)
    within = for_model(radius, centre.evaluation, setting.options)
    return _ask(state, purpose, places[state.retries], within, setting, **given)


# After a failed or short step


def _mend(state: Iterate, setting: Setting, short: bool = False) -> Iterate:
    """Bring a far point near, refresh a stale one, or else reduce rho."""
    current, options = state.current, setting.options
    t, distance = farthest(state.places, state.k)
    if distance > FAR * max(2.0 * state.delta, 10.0 * state.rho):  # one of several: models are not by derivatives
        radius = max(min(0.1 * distance, state.delta), state.rho)
        u = improving_point(state.places, state.k, t, radius, *setting.box)
        return _ask_near(state, Purpose.GEOMETRY, current, u, radius, setting, replaces=t)
    needed = for_model(state.delta, current.evaluation, options)
    for t, point in enumerate(state.points):
        if achieved(point.evaluation, options) > needed and not exhausted(point, setting):
            # A short step stays short while delta falls to rho: what is needed there is asked for at once.
            radius = state.rho if short else state.delta
            within = askable(REFINEMENT * for_model(radius, current.evaluation, options), setting)
            pending = Pending(Purpose.REFINE_POINT, point.u, within, point.evaluation, t, refines=point)
            return replace(state, pending=pending)
    return state if not short and state.delta > state.rho else _narrow(state, setting)


def _narrow(state: Iterate, setting: Setting) -> Iterate:
    """Reduce rho, unless there is something to look at before; at the final radius, end."""
    options, current = setting.options, state.current
    at_last, rho = state.rho <= options.final_radius, next_rho(state.rho, options.final_radius)
    if at_last and state.models.by_derivatives and not state.models.tested:
        if not by_derivatives.known(current.evaluation):
            return by_derivatives.give_up(state, setting)
        return _ask(state, Purpose.TEST, *by_derivatives.test(state, setting), setting)
    if at_last and state.looks.rounds < looks.ROUNDS and options.model != "linear":  # the paper's method does without
        places = looks.at_bounds(state, setting)
        if places:
            return state.looking(places=tuple(places), rounds=state.looks.rounds + 1)
    return _ended(state, setting) if at_last else replace(state, rho=rho, delta=max(0.5 * state.rho, rho))


# Looks elsewhere


def _ask_look(state: Iterate, setting: Setting) -> Iterate:
    """None is made where F is known beforehand not to be less."""
    u, current = state.looks.places[0], state.current
    if setting.rules_out(u, current):
        return _looked_in_vain(state, setting)
    return _ask(state, Purpose.UNSEEN, u, looks.accuracy(u, current, setting), setting)


def _look(state: Iterate, point: Sample, setting: Setting) -> Iterate:
    """A point elsewhere: if F is proven to be less there, the search goes on from it, with first points of its own."""
    if not looks.better(state, point, setting):
        return _looked_in_vain(state.pooled(point), setting)
    radius = min(setting.options.initial_radius, norm(point.u - state.current.u))
    first = first_points(point.u, radius, *setting.box, setting.options.seed)[1:]
    begun = replace(state, delta=radius, rho=radius, first=tuple(first)).looking(places=()).pooled(*state.points)
    if state.models.by_derivatives:
        begun = by_derivatives.begin(begun) if by_derivatives.known(point.evaluation) else by_derivatives.end(begun)
    return replace(begun, points=(point,), k=0)


def _looked_in_vain(state: Iterate, setting: Setting) -> Iterate:
    """A look has found nothing. After the last one before its end the search ends; from a plateau that it has begun on
    it goes on as from anywhere else."""
    places = state.looks.places
    return state.looking(places=places[1:], in_vain=state.rho <= setting.options.final_radius and len(places) == 1)
