r"""The verdict on a step, from intervals of F only, and the radius that follows.

Proven below means: for the errors that the policy goes by (`suffice.search.accuracy`); an accepted step is proven for
the true ones.

A step from theta_k to theta_k + s with predicted decrease pred is accepted only if the true decrease is proven to be
at least (eta1 - 2 eta1') pred, and rejected only if a true decrease of (eta1 + 2 eta1') pred is proven to be absent.
With both errors at most eta1' pred, comparing (F~_k - F~_new)/pred with eta1 does exactly that. With larger errors
the verdict may still be certain; otherwise it stays open and the worse end has to be refined, as long as the oracle
can; where it cannot, F~ decides, and the verdict is marked as not proven.

What an oracle has shown it cannot give is not asked for again. A point that misses its request may be refined once. If
that comes to nothing, its error is a floor. Floors at SEVERAL points in a row are the oracle's limit: then a point that
misses is exhausted at once, and no request goes below the least of the latest floors.
"""

from __future__ import annotations

from suffice.evaluation import Evaluation
from suffice.options import Options
from suffice.result import Purpose, Status
from suffice.search.accuracy import (
    DECISION_ERROR,
    ETA1,
    REFINEMENT,
    achieved,
    by_policy,
    came_to_nothing,
    enough_to_tell,
    refinement,
)
from suffice.search.state import Pending, Sample, Setting, Trial, Verdict

ETA2 = 0.75  # from this ratio on a step is very successful (customary; published: 0.7; no difference over many runs)
SHRINK, GROW, GROW_STEP = 0.5, 2.0, 4.0  # gamma_dec, gamma_inc, gamma_inc_bar of the published implementation
SEVERAL = 3  # points at which refinements must have come to nothing before the oracle counts as being at its limit
LARGEST_RADIUS = 1e10  # times the unit of the search: F may fall for ever towards a limit it does not attain


Floors = tuple[float, ...]


def judge(current: Evaluation, trial: Evaluation, predicted: float) -> tuple[Verdict, float]:
    """The verdict and the ratio of actual to predicted decrease that the radius is to follow."""
    ratio = (current.cost - trial.cost) / predicted
    tolerance = DECISION_ERROR * predicted
    if current.error <= tolerance and trial.error <= tolerance:
        return (Verdict.ACCEPTED if ratio >= ETA1 else Verdict.REJECTED), ratio
    least = (current.interval[0] - trial.interval[1]) / predicted
    most = (current.interval[1] - trial.interval[0]) / predicted
    if least >= ETA1:
        return Verdict.ACCEPTED, ratio
    if most < ETA1:
        return Verdict.REJECTED, ratio
    return Verdict.OPEN, ratio


def verdict_on(current: Sample, trial: Trial, setting: Setting) -> tuple[Verdict, float]:
    """The verdict on a step, and the ratio of actual to predicted decrease that the radius is to follow."""
    plan, options = trial.plan, setting.options
    verdict, ratio = judge(current.evaluation, trial.point.evaluation, plan.predicted)
    if verdict is Verdict.OPEN:  # what is proven stands; the policy's own errors may dismiss a step, not accept it
        ends = by_policy(current.evaluation, options), by_policy(trial.point.evaluation, options)
        if judge(*ends, plan.predicted)[0] is Verdict.REJECTED:
            verdict = Verdict.REJECTED
    if verdict is Verdict.OPEN and end_to_refine(current, None, trial, setting) is None:
        verdict = Verdict.LIKELY if ratio >= ETA1 else Verdict.UNLIKELY
    return verdict, ratio


def end_to_refine(current: Sample, k: int | None, trial: Trial, setting: Setting) -> Pending | None:
    """The less certain end of a step whose verdict is open, as far as the distance to the threshold asks for, if the
    oracle can make it more certain; the incumbent is the k-th point."""
    _, ratio = judge(current.evaluation, trial.point.evaluation, trial.plan.predicted)
    T = enough_to_tell(ratio) * trial.plan.predicted
    ends = [(Purpose.REFINE_INCUMBENT, current, k), (Purpose.REFINE_STEP, trial.point, None)]
    for purpose, point, t in sorted(ends, key=lambda end: -end[1].evaluation.error):
        if point.evaluation.error > T and not exhausted(point, setting):
            within = askable(refinement(point.evaluation, T, setting.options), setting)
            return Pending(purpose, point.u, within, point.evaluation, t, refines=point, plan=trial.plan)
    return None


def ended(current: Sample, setting: Setting, status: Status) -> Status:
    """Nothing is left to do: with this status, if the accuracy was enough to say so."""
    known = by_policy(current.evaluation, setting.options).error <= 0.1 * current.evaluation.cost
    return status if known or not exhausted(current, setting) else Status.ACCURACY


def next_radius(ratio: float, step: float, delta: float, rho: float) -> float:
    """The trust radius after a judged step of length `step`."""
    if ratio < ETA1:
        delta = min(SHRINK * delta, step)
    elif ratio <= ETA2:
        delta = max(SHRINK * delta, step)
    else:
        delta = min(max(GROW * delta, GROW_STEP * step), LARGEST_RADIUS)
    return rho if delta <= 1.5 * rho else delta


def next_rho(rho: float, final: float) -> float:
    """The next lower bound of the trust radius."""
    if rho <= 16.0 * final:
        return final
    if rho <= 250.0 * final:
        return float((rho * final) ** 0.5)
    return 0.1 * rho  # alpha1


# The oracle's limit


def answered(pending: Pending, evaluation: Evaluation, floors: Floors, options: Options) -> tuple[Floors, Sample]:
    """The point of an evaluation that was waited for, a new one or one that is more accurate than before, and the
    floors. One that has missed its request may be refined once; not at all where the oracle is at its limit."""
    old, accuracy = pending.refines, achieved(evaluation, options)
    if old is None:
        futile = 0 if accuracy <= pending.within else 2 if len(floors) >= SEVERAL else 1
        return floors, Sample(pending.u, evaluation, futile)
    better = evaluation if accuracy <= achieved(old.evaluation, options) else old.evaluation
    if came_to_nothing(old.evaluation, evaluation, pending.within, options):
        return (*floors, achieved(better, options))[-SEVERAL:], Sample(old.u, better, old.futile + 1)
    return (), Sample(old.u, better)


def exhausted(point: Sample, setting: Setting) -> bool:
    """Whether there is no point in asking for this one again: it may miss once, but not twice."""
    floors = setting.ledger.floors
    at_limit = len(floors) >= SEVERAL and REFINEMENT * achieved(point.evaluation, setting.options) < min(floors)
    return point.futile > 1 or at_limit


def askable(within: float, setting: Setting) -> float:
    """The request, but for nothing that the oracle has shown to be beyond it."""
    floors = setting.ledger.floors
    return max(within, min(floors)) if len(floors) >= SEVERAL else within
