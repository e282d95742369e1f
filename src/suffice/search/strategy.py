r"""A search under way: its strategy, which says where F is evaluated next, and the ledger of what was evaluated.

A strategy is an upper-level method together with what it knows at the moment. It is immutable: `decide` thinks until an
evaluation is pending or the search has ended, `absorb` takes the evaluation in, and each returns the strategy as it is
then. So an ask/tell interface, a checkpoint and a loop are the same thing, and a search is a function of the answers to
its requests. There are two: the trust region for few parameters (`suffice.search.trust_region`), and quasi-Newton steps
from gradients for many (`suffice.search.many`). Whatever else offers the same may take their place. Records, budgets,
the best point and what the oracle has shown it cannot give are the ledger's, the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.result import Purpose, Record, Status
from suffice.search import limit
from suffice.search.state import Judged, Ledger, Pending, Sample, Setting

MOST_RECORDED = 1000  # parameters up to which records have theta

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


class Strategy(Protocol):
    """An upper-level method with what it knows; immutable. Points are in the coordinates of `setting.scaling`."""

    @property
    def status(self) -> Status: ...

    @property
    def pending(self) -> Pending | None:
        """The evaluation that it waits for."""
        ...

    @property
    def points(self) -> Sequence[Sample]:
        """Those that its next step goes by; none before the first evaluation."""
        ...

    @property
    def current(self) -> Sample:
        """The incumbent, from the first evaluation on."""
        ...

    @property
    def delta(self) -> float:
        """How far from the incumbent it looks next."""
        ...

    @property
    def rho(self) -> float:
        """How near it would look at this stage."""
        ...

    @property
    def promise(self) -> float:
        """The decrease of F that its latest step promised; infinite if nothing is known."""
        ...

    def decide(self, setting: Setting) -> Strategy:
        """Think until an evaluation is pending or the search has ended."""
        ...

    def absorb(self, point: Sample, setting: Setting) -> tuple[Strategy, Judged | None]:
        """Take in the point that was pending, and tell the verdict on a step that was judged by it. A point may have no
        F (`point.evaluation.failure`); one that was to be refined, and could not, comes back as it was."""
        ...


# The strategy at u, before the first evaluation; evaluations that were made before the search may help it.
Begin = Callable[[Array, Setting, Sequence[Evaluation]], Strategy]


@dataclass(frozen=True, eq=False)
class Search:
    """A search under way; immutable."""

    setting: Setting
    strategy: Strategy
    status: Status = Status.RUNNING

    @classmethod
    def begin(cls, theta: Array, setting: Setting, begin: Begin, seen: Sequence[Evaluation] = ()) -> Search:
        """Before the first evaluation, which is to be at theta."""
        u = setting.scaling.to_u(theta)
        setting = replace(setting, ledger=Ledger(u))
        return cls(setting, begin(u, setting, seen))

    @property
    def ledger(self) -> Ledger:
        """What was evaluated so far."""
        return self.setting.ledger

    @property
    def best(self) -> Sample | None:
        """The result so far; None before the first evaluation."""
        return self.ledger.better(self.strategy.current) if self.strategy.points else None

    def decide(self) -> Search:
        """Think until an evaluation is pending or the search has ended."""
        if self.status is not Status.RUNNING:
            return self
        decided = self.strategy.decide(self.setting)
        return self if decided is self.strategy else replace(self, strategy=decided, status=decided.status)

    def absorb(self, evaluation: Evaluation, seconds: float = 0.0) -> Search:
        """Take in the evaluation that was pending, and write it down."""
        before, ledger, options = self.strategy, self.ledger, self.setting.options
        pending = before.pending
        assert pending is not None
        work, best, floors = ledger.work + float(evaluation.work), ledger.best, ledger.floors
        point = Sample(pending.u, evaluation)
        if evaluation.failure is None:
            if options.noise is None and (best is None or evaluation.interval[1] < best.evaluation.interval[1]):
                best = point
            floors, point = limit.answered(pending, evaluation, floors, options)
        elif pending.refines is not None and pending.purpose is not Purpose.REFINE_STEP:
            point = replace(pending.refines, futile=pending.refines.futile + 1)
        ledger = replace(ledger, work=work, seconds=ledger.seconds + seconds, best=best, floors=floors)
        strategy, judged = before.absorb(point, replace(self.setting, ledger=ledger))
        record = self._record(evaluation, work, strategy.current, judged)
        ledger = replace(ledger, records=(*ledger.records, record))
        return Search(replace(self.setting, ledger=ledger), strategy, strategy.status).within_budgets()

    def within_budgets(self) -> Search:
        """With the status that the budgets and the target give it."""
        ledger, options, status, best = self.ledger, self.setting.options, self.status, self.best
        if options.noise is None and best is not None and best.evaluation.interval[1] <= options.target_cost:
            status = Status.TARGET
        elif len(ledger.records) >= options.max_evaluations:
            status = Status.MAX_EVALUATIONS
        elif ledger.work >= options.max_work:
            status = Status.MAX_WORK
        elif ledger.seconds >= options.max_seconds:
            status = Status.MAX_SECONDS
        return replace(self, status=status)

    def _record(self, evaluation: Evaluation, total_work: float, incumbent: Sample, judged: Judged | None) -> Record:
        pending, failure, to_theta = self.strategy.pending, evaluation.failure, self.setting.scaling.to_theta
        assert pending is not None

        def theta(u: Array) -> tuple[float, ...]:
            # Four copies of many parameters for every evaluation would take more memory than the search itself.
            return () if len(u) > MOST_RECORDED else tuple(to_theta(u).tolist())

        verdict: dict[str, Any] = {}
        if judged is not None:
            verdict = {
                "predicted": judged.predicted,
                "verdict": judged.verdict.value,
                "origin": theta(judged.origin),
                "target": theta(judged.target),
                "note": judged.note,
            }
        if failure is not None:
            verdict["note"] = f"{failure}: {CONSEQUENCES[pending.purpose]}"
        return Record(
            number=len(self.ledger.records) + 1,
            purpose=pending.purpose.value,
            theta=theta(pending.u),
            within=pending.within,
            errors=tuple(evaluation.e.tolist()) if failure is None else (math.inf,) * len(evaluation.e),
            distance=evaluation.distance if failure is None else None,
            cost=evaluation.cost if failure is None else math.inf,
            interval=evaluation.interval if failure is None else (0.0, math.inf),
            work=float(evaluation.work),
            total_work=total_work,
            delta=self.strategy.delta,
            rho=self.strategy.rho,
            incumbent=theta(incumbent.u),
            incumbent_cost=incumbent.evaluation.cost,
            **verdict,
        )
