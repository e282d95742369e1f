"""The search as ask and tell: `Tuner`, for those who run their evaluations themselves, and for `suffice.tune`.

`Search` is the same as immutable state: a strategy, which says where F is evaluated next, and the ledger of what was
evaluated. Records, budgets, the best point and what the oracle has shown it cannot give are the ledger's, the same for
all strategies.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import Array, outside_stacklevel, vector
from suffice.evaluation import Evaluation
from suffice.journal.codec import decode, encode
from suffice.options import Options
from suffice.result import OracleError, Purpose, Record, Result, Status, Step
from suffice.search import many
from suffice.search.judge import answered
from suffice.search.state import Begin, Judged, Ledger, Sample, Scaling, Setting, Strategy

STATE_FORMAT = "suffice tuner 3"
MOST_RECORDED = 1000  # parameters up to which records have theta


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
        """The result so far: the evaluated point with the least proven upper bound of F, the incumbent if it is as
        good; None before the first evaluation. It need not be the incumbent, which moves only if a step decreases F by
        a share of what the model promised."""
        if not self.strategy.points:
            return None
        best, current = self.ledger.best, self.strategy.current
        return current if best is None or current.evaluation.interval[1] <= best.evaluation.interval[1] else best

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
            if best is None or evaluation.interval[1] < best.evaluation.interval[1]:
                best = point
            floors, point = answered(pending, evaluation, floors, options)
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
        if best is not None and best.evaluation.interval[1] <= options.target_cost:
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

        step, note = None, failure or ""
        if judged is not None:
            step = Step(judged.predicted, judged.verdict.value, theta(judged.origin), theta(judged.target))
            note = note or judged.note
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
            step=step,
            incumbent=theta(incumbent.u),
            incumbent_cost=incumbent.evaluation.cost,
            note=note,
        )


@dataclass(frozen=True)
class Request:
    """Evaluate `theta` so that the error of each residual, or with policy="weights" the distance of the weights,
    is at most `within`. `warm` is the nearest earlier evaluation; at the same theta it is to be continued.
    `derivatives`: the evaluation may carry a Jacobian or a gradient, and the search would use it if F is proven to be
    at most `below`."""

    theta: Array
    within: float
    warm: Evaluation | None = None
    purpose: str = ""
    derivatives: bool = False
    below: float = math.inf


class Tuner:
    """The search as ask and tell, for those who run their evaluations themselves.

    `lower_bound(theta)`, if there is one, is at most F(theta) and costs nothing, such as a penalty known exactly: steps
    that it proves to be worse than the incumbent are never asked for. `bounds`, `seen` and `strategy` are
    those of `tune`.
    """

    remembers = True  # its answers, for `state`

    def __init__(
        self,
        theta0: Any,
        *,
        bounds: Any = None,
        options: Options | None = None,
        lower_bound: Callable[[Array], float] | None = None,
        seen: Sequence[Evaluation] = (),
        strategy: Begin | None = None,
    ) -> None:
        theta = vector(theta0, "theta0")
        if theta.size == 0:
            raise ValueError("theta0 must not be empty")
        if options is not None and not isinstance(options, Options):
            raise TypeError(f"options must be Options, got {options!r}")
        for name, value in (("lower_bound", lower_bound), ("strategy", strategy)):
            if value is not None and not callable(value):
                raise TypeError(f"{name} must be callable, got {value!r}")
        scaling = Scaling.of(theta, bounds)
        setting = Setting(scaling, Options() if options is None else options, lower_bound)
        inside = np.clip(theta, scaling.lower, scaling.upper)
        if not np.array_equal(inside, theta):
            level = outside_stacklevel()
            warnings.warn(
                f"theta0 = {theta.tolist()} lies outside its bounds, starting from {inside.tolist()}", stacklevel=level
            )
        self._arguments = {"theta0": inside, "bounds": (scaling.lower, scaling.upper), "seen": tuple(seen)}
        self.search = Search.begin(inside, setting, many.begin if strategy is None else strategy, seen)
        self._asked_at: float | None = None
        self._detail = ""
        self._answers: list[Evaluation] = []

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments with which the same search begins again, but for functions."""
        return {**self._arguments, "options": self.options}

    @property
    def options(self) -> Options:
        """The options of the search."""
        return self.search.setting.options

    @property
    def done(self) -> bool:
        """Whether the search has ended; decides, but evaluates nothing."""
        self.search = self.search.decide()
        return self.search.status is not Status.RUNNING

    @property
    def history(self) -> tuple[Record, ...]:
        """One record per evaluation told."""
        return self.search.ledger.records

    def ask(self) -> Request:
        """The evaluation wanted next; the same one until it is told."""
        if self.done:
            raise RuntimeError(f"the search has ended: {self.search.status.message}")
        pending = self.search.strategy.pending
        assert pending is not None
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        theta, purpose = self.search.setting.scaling.to_theta(pending.u), pending.purpose.value
        return Request(theta, pending.within, pending.warm, purpose, pending.derivatives, pending.below)

    def tell(self, evaluation: Evaluation, seconds: float | None = None) -> Record:
        """Take in the evaluation of the request, which took so many seconds; None: those since it was asked for. An
        unusable one raises `OracleError` and changes nothing."""
        self.check(evaluation)
        assert self._asked_at is not None
        seconds = time.monotonic() - self._asked_at if seconds is None else seconds
        self._asked_at = None
        self.search = self.search.absorb(evaluation, seconds)
        if self.remembers:
            self._answers.append(evaluation)
        return self.history[-1]

    def limit(self, options: Options, seconds: float = 0.0) -> None:
        """From now on with these options, which may differ in their budgets, and after so many seconds more."""
        ledger = replace(self.search.ledger, seconds=self.search.ledger.seconds + seconds)
        search = replace(self.search, setting=replace(self.search.setting, options=options, ledger=ledger))
        overtaken = search.status is Status.OVERTAKEN
        self.search = search.within_budgets() if ledger.records and not overtaken else search

    def stop(self, status: Status, detail: str = "") -> None:
        """End the search for an outside reason; `detail` becomes part of the result's message."""
        if self.search.status is Status.RUNNING:
            self.search = replace(self.search, status=status)
        self._detail = detail

    def result(self) -> Result:
        """The best point so far: of all evaluated, the one with the least proven upper bound of F."""
        ledger, best = self.search.ledger, self.search.best
        interval = (-math.inf, math.inf) if best is None else best.evaluation.interval
        return Result(
            self.search.setting.scaling.to_theta(ledger.start if best is None else best.u),
            math.nan if best is None else best.evaluation.cost,
            interval,
            self.search.status,
            len(ledger.records),
            ledger.work,
            ledger.records,
            None if best is None else best.evaluation,
            detail=self._detail,
            policy=self.options.policy,
        )

    def state(self) -> dict[str, Any]:
        """The search as plain data, fit for JSON: what it began with, and all answers, with solutions as long as they
        may be handed out again."""
        needed = {id(one.solutions) for one in evaluations_of(self.search)}
        kept = (one if id(one.solutions) in needed else replace(one, solutions=()) for one in self._answers)
        known = {**self.arguments, "answers": tuple(kept), "seconds": self.search.ledger.seconds}
        return {"format": STATE_FORMAT, **{name: encode(value) for name, value in known.items()}}

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Any],
        *,
        lower_bound: Callable[[Array], float] | None = None,
        strategy: Begin | None = None,
    ) -> Tuner:
        """The search that `state()` wrote down; it continues to the same bits, given the same functions."""
        if state.get("format") != STATE_FORMAT:
            raise ValueError(f"state must be of format {STATE_FORMAT!r}, got {state.get('format')!r}")
        try:
            arguments = {name: decode(value) for name, value in state.items() if name != "format"}
            answers, seconds, options = arguments.pop("answers"), float(arguments.pop("seconds")), arguments["options"]
            arguments["options"] = unlimited(options)
            tuner = cls(**arguments, lower_bound=lower_bound, strategy=strategy)
            for answer in answers:
                tuner.tell(answer, 0.0)
            tuner.limit(options, seconds)
        except (LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
            raise ValueError(f"state is not what a tuner wrote down: {type(error).__name__}: {error}") from error
        return tuner

    def check(self, evaluation: Any) -> None:
        """Raise `OracleError` if the evaluation cannot be the answer to the request."""
        request = self.ask()
        complaint = self._complaint(evaluation, request)
        if complaint is not None:
            where = np.array2string(request.theta, precision=17)
            raise OracleError(f"evaluation at theta = {where}: {complaint}", request.theta)

    def _complaint(self, evaluation: Any, request: Request) -> str | None:
        if not isinstance(evaluation, Evaluation):
            return f"an Evaluation was expected, got {type(evaluation).__name__}"
        if not np.array_equal(evaluation.point, request.theta):
            return f"the evaluation is of another theta, {evaluation.point.tolist()}"
        points = self.search.strategy.points
        if points:
            known = points[0].evaluation
            if len(known.r) != len(evaluation.r):
                return f"there were {len(known.r)} residuals before, now there are {len(evaluation.r)}"
            if known.blocks != evaluation.blocks:
                return f"blocks were {known.blocks} before, now they are {evaluation.blocks}"
        if len(evaluation.r) == 0:
            return "there are no residuals"
        if self.options.policy == "weights" and evaluation.distance is None:
            return "policy='weights' needs the distance of the weights, evaluation.distance is None"
        # Elsewhere than at its start the search goes around a place without F.
        return (None if points else evaluation.failure) or evaluation.complaint()


def unlimited(options: Options) -> Options:
    """The options without budgets, which say when to stop and never where to go."""
    return replace(options, max_evaluations=sys.maxsize, max_work=math.inf, max_seconds=math.inf, target_cost=0.0)


def evaluations_of(search: Search) -> Iterator[Evaluation]:
    """The evaluations that a search may hand out again: the best one, and those that its strategy has in fields of
    dataclasses, tuples, lists and dictionaries."""
    parts: list[Any] = [search.strategy, search.ledger.best]
    while parts:
        part = parts.pop()
        if isinstance(part, Evaluation):
            yield part
        elif isinstance(part, tuple | list):
            parts.extend(part)
        elif isinstance(part, dict):
            parts.extend(part.values())
        elif is_dataclass(part):
            parts.extend(vars(part).values())
