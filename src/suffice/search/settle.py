"""From the intervals at both ends of a step to its verdict: refine the end that leaves it open, as long as the oracle
can; where it cannot, go by F~."""

from __future__ import annotations

from suffice.result import Purpose, Status
from suffice.search import limit
from suffice.search.accuracy import by_policy, enough_to_tell, refinement
from suffice.search.judge import Verdict, judge
from suffice.search.state import Pending, Sample, Setting, Trial


def verdict_on(current: Sample, trial: Trial, setting: Setting) -> tuple[Verdict, float]:
    """The verdict on a step, and the ratio of actual to predicted decrease that the radius is to follow."""
    plan, options = trial.plan, setting.options
    verdict, ratio = judge(current.evaluation, trial.point.evaluation, plan.predicted, options)
    if verdict is Verdict.OPEN:  # what is proven stands; the policy's own errors may dismiss a step, not accept it
        ends = by_policy(current.evaluation, options), by_policy(trial.point.evaluation, options)
        if judge(*ends, plan.predicted, options)[0] is Verdict.REJECTED:
            verdict = Verdict.REJECTED
    if options.noise is not None or (verdict is Verdict.OPEN and end_to_refine(current, None, trial, setting) is None):
        origin = plan.origin if plan.noise > 0.0 else current.evaluation.cost
        ratio = (origin - trial.point.evaluation.cost + plan.noise) / (plan.predicted + plan.noise)
        verdict = Verdict.LIKELY if ratio >= options.eta1 else Verdict.UNLIKELY
    return verdict, ratio


def end_to_refine(current: Sample, k: int | None, trial: Trial, setting: Setting) -> Pending | None:
    """The less certain end of a step whose verdict is open, as far as the distance to the threshold asks for, if the
    oracle can make it more certain; the incumbent is the k-th point."""
    options = setting.options
    _, ratio = judge(current.evaluation, trial.point.evaluation, trial.plan.predicted, options)
    T = enough_to_tell(ratio, options) * trial.plan.predicted
    ends = [(Purpose.REFINE_INCUMBENT, current, k), (Purpose.REFINE_STEP, trial.point, None)]
    for purpose, point, t in sorted(ends, key=lambda end: -end[1].evaluation.error):
        if point.evaluation.error > T and not limit.exhausted(point, setting):
            return refine(purpose, point, T, setting, t)
    return None


def refine(purpose: Purpose, point: Sample, T: float, setting: Setting, t: int | None) -> Pending:
    """The request for a point again, so that its F is accurate to T."""
    within = limit.askable(refinement(point.evaluation, T, setting.options), setting)
    return Pending(purpose, point.u, within, point.evaluation, t, refines=point)


def ended(current: Sample, setting: Setting, status: Status) -> Status:
    """Nothing is left to do: with this status, if the accuracy was enough to say so."""
    known = by_policy(current.evaluation, setting.options).error <= 0.1 * current.evaluation.cost
    return status if known or not limit.exhausted(current, setting) else Status.ACCURACY
