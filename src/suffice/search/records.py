"""What is written down of an evaluation, and whether the budgets allow another one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.options import Options
from suffice.result import Purpose, Record, Status
from suffice.search.judge import Verdict
from suffice.search.state import ManyState, Pending, Setting, State, best_point

MOST_RECORDED = 1000  # parameters up to which the records of a search by gradients have theta

CONSEQUENCES = {
    Purpose.FIRST: "another point takes its place",
    Purpose.GEOMETRY: "another point takes its place",
    Purpose.UNSEEN: "there is nothing to see",
    Purpose.TEST: "derivatives count as refuted",
    Purpose.STEP: "the step has failed",
    Purpose.REFINE_STEP: "the step has failed",
    Purpose.REFINE_INCUMBENT: "what was known is kept",
    Purpose.REFINE_POINT: "what was known is kept",
}


@dataclass(frozen=True)
class Judged:
    verdict: Verdict
    predicted: float
    origin: Array
    target: Array


def record_of(
    before: State | ManyState,
    after: State | ManyState,
    pending: Pending,
    evaluation: Evaluation,
    judged: Judged | None,
    setting: Setting,
) -> Record:
    def theta(u: Array) -> tuple[float, ...]:
        # Four copies of many parameters for every evaluation would take more memory than the search itself.
        left_out = isinstance(after, ManyState) and len(u) > MOST_RECORDED
        return () if left_out else tuple(setting.scaling.to_theta(u).tolist())

    best = after.points[after.incumbent]
    failure = evaluation.failure
    verdict: dict[str, Any] = {}
    if judged is not None:
        verdict = {
            "predicted": judged.predicted,
            "verdict": judged.verdict.value,
            "origin": theta(judged.origin),
            "target": theta(judged.target),
        }
    return Record(
        number=len(before.records) + 1,
        purpose=pending.purpose.value,
        theta=theta(pending.u),
        within=pending.within,
        errors=tuple(evaluation.e.tolist()) if failure is None else (math.inf,) * len(evaluation.e),
        distance=evaluation.distance if failure is None else None,
        cost=evaluation.cost if failure is None else math.inf,
        interval=evaluation.interval if failure is None else (0.0, math.inf),
        work=float(evaluation.work),
        total_work=after.work,
        delta=before.delta,
        rho=before.rho,
        incumbent=theta(best.u),
        incumbent_cost=best.evaluation.cost,
        note="" if failure is None else f"{failure}: {CONSEQUENCES[pending.purpose]}",
        **verdict,
    )


def budget_status(state: State | ManyState, options: Options) -> Status:
    """The status of the search, as the budgets and the target have it."""
    if options.noise is None and best_point(state).evaluation.interval[1] <= options.target_cost:
        return Status.TARGET
    if len(state.records) >= options.max_evaluations:
        return Status.MAX_EVALUATIONS
    if state.work >= options.max_work:
        return Status.MAX_WORK
    if state.seconds >= options.max_seconds:
        return Status.MAX_SECONDS
    return state.status
