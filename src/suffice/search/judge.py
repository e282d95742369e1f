r"""The verdict on a step, from intervals of F only, and the radius that follows.

Proven below means: for the errors that the policy goes by (`suffice.search.accuracy`); an accepted step is proven for
the true ones.

A step from theta_k to theta_k + s with predicted decrease pred is accepted only if the true decrease is proven to be
at least (eta1 - 2 eta1') pred, and rejected only if a true decrease of (eta1 + 2 eta1') pred is proven to be absent.
With both errors at most eta1' pred, comparing (F~_k - F~_new)/pred with eta1 does exactly that. With larger errors
the verdict may still be certain; otherwise it stays open and the worse end has to be refined.
"""

from __future__ import annotations

from enum import Enum

from suffice.evaluation import Evaluation
from suffice.options import Options

LARGEST_RADIUS = 1e10  # times the unit of the search: F may fall for ever towards a limit it does not attain


class Verdict(Enum):
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    OPEN = "open"
    LIKELY = "accepted, not proven"  # by F~, where noise or the oracle's limit leaves nothing better to go by
    UNLIKELY = "rejected, not proven"


def judge(current: Evaluation, trial: Evaluation, predicted: float, options: Options) -> tuple[Verdict, float]:
    """The verdict and the ratio of actual to predicted decrease that the radius is to follow."""
    ratio = (current.cost - trial.cost) / predicted
    tolerance = options.decision_error * predicted
    if current.error <= tolerance and trial.error <= tolerance:
        return (Verdict.ACCEPTED if ratio >= options.eta1 else Verdict.REJECTED), ratio
    least = (current.interval[0] - trial.interval[1]) / predicted
    most = (current.interval[1] - trial.interval[0]) / predicted
    if least >= options.eta1:
        return Verdict.ACCEPTED, ratio
    if most < options.eta1:
        return Verdict.REJECTED, ratio
    return Verdict.OPEN, ratio


def next_radius(ratio: float, step: float, delta: float, rho: float, options: Options) -> float:
    """The trust radius after a judged step of length `step`."""
    if ratio < options.eta1:
        delta = min(options.shrink * delta, step)
    elif ratio <= options.eta2:
        delta = max(options.shrink * delta, step)
    else:
        delta = min(max(options.grow * delta, options.grow_step * step), LARGEST_RADIUS)
    return rho if delta <= 1.5 * rho else delta


def next_rho(rho: float, final: float) -> float:
    """The next lower bound of the trust radius."""
    if rho <= 16.0 * final:
        return final
    if rho <= 250.0 * final:
        return float((rho * final) ** 0.5)
    return 0.1 * rho  # alpha1
