"""From the intervals at both ends of a step to its verdict: refine the end that leaves it open, as long as the oracle
can; where it cannot, go by F~."""

from __future__ import annotations

from dataclasses import replace

from suffice.result import Purpose
from suffice.search import limit
from suffice.search.accuracy import enough_to_tell, refinement, seen
from suffice.search.judge import Verdict, judge
from suffice.search.state import AnyState, ManyState, Pending, Point, Setting, State, Trial


def verdict_on(state: State | ManyState, trial: Trial, setting: Setting) -> tuple[Verdict, float]:
    """The verdict on a step, and the ratio of actual to predicted decrease that the radius is to follow."""
    current, plan, options = state.points[state.incumbent], trial.plan, setting.options
    verdict, ratio = judge(current.evaluation, trial.point.evaluation, plan.predicted, options)
    if verdict is Verdict.OPEN:  # what is proven stands; the policy's own errors may dismiss a step, not accept it
        ends = seen(current.evaluation, options), seen(trial.point.evaluation, options)
        if judge(*ends, plan.predicted, options)[0] is Verdict.REJECTED:
            verdict = Verdict.REJECTED
    if options.noise is not None or (verdict is Verdict.OPEN and _end_to_refine(state, trial, setting) is None):
        origin = plan.origin if plan.noise > 0.0 else current.evaluation.cost
        ratio = (origin - trial.point.evaluation.cost + plan.noise) / (plan.predicted + plan.noise)
        verdict = Verdict.LIKELY if ratio >= options.eta1 else Verdict.UNLIKELY
    return verdict, ratio


def settle(state: AnyState, trial: Trial, setting: Setting) -> AnyState:
    """The verdict is open: refine the end that leaves it so, as far as the distance to the threshold asks for."""
    end = _end_to_refine(state, trial, setting)
    assert end is not None
    purpose, point, t, T = end
    return refine(state, purpose, point, T, setting, t)


def refine(state: AnyState, purpose: Purpose, point: Point, T: float, setting: Setting, t: int | None) -> AnyState:
    """Ask for a point again, so that its F is accurate to T."""
    within = limit.askable(refinement(point.evaluation, T, setting.options), state)
    return replace(state, pending=Pending(purpose, point.u, within, point.evaluation, t))


def _end_to_refine(
    state: State | ManyState, trial: Trial, setting: Setting
) -> tuple[Purpose, Point, int | None, float] | None:
    """The less certain end of a step whose verdict is open, if the oracle can make it more certain."""
    options = setting.options
    current = state.points[state.incumbent]
    _, ratio = judge(current.evaluation, trial.point.evaluation, trial.plan.predicted, options)
    T = enough_to_tell(ratio, options) * trial.plan.predicted
    ends = [
        (current.evaluation.error, Purpose.REFINE_INCUMBENT, current, state.incumbent),
        (trial.point.evaluation.error, Purpose.REFINE_STEP, trial.point, None),
    ]
    for error, purpose, point, t in sorted(ends, key=lambda end: -end[0]):
        if error > T and not limit.exhausted(point, state, options):
            return purpose, point, t, T
    return None
