"""The search as ask and tell: `Tuner`, for those who run their evaluations themselves, and for `suffice.tune`."""

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
from suffice.result import OracleError, Record, Result, Status
from suffice.search import many
from suffice.search.scaling import Scaling
from suffice.search.state import Setting
from suffice.search.strategy import Begin, Search

STATE_FORMAT = "suffice tuner 2"


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
    that it proves to be worse than the incumbent are never asked for. `bounds`, `scale`, `seen` and `strategy` are
    those of `tune`.
    """

    def __init__(
        self,
        theta0: Any,
        *,
        bounds: Any = None,
        scale: Any = None,
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
        scaling = Scaling.of(theta, bounds, scale)
        setting = Setting(scaling, Options() if options is None else options, lower_bound)
        inside = np.clip(theta, scaling.lower, scaling.upper)
        if not np.array_equal(inside, theta):
            level = outside_stacklevel()
            warnings.warn(
                f"theta0 = {theta.tolist()} lies outside its bounds, starting from {inside.tolist()}", stacklevel=level
            )
        box = {"bounds": (scaling.lower, scaling.upper), "scale": None if scale is None else scaling.unit}
        self._arguments = {"theta0": inside, **box, "seen": tuple(seen)}
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
        self._remember(evaluation)
        return self.history[-1]

    def _remember(self, evaluation: Evaluation) -> None:
        """Every answer, without solutions that are not handed out again."""
        self._answers.append(evaluation)
        heavy = [i for i, one in enumerate(self._answers) if one.solutions]
        needed = {id(one.solutions) for one in evaluations_of(self.search)} if heavy else set()
        for i in heavy:
            if id(self._answers[i].solutions) not in needed:
                self._answers[i] = replace(self._answers[i], solutions=())

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
        ledger, best, options, detail = self.search.ledger, self.search.best, self.options, self._detail
        interval = (-math.inf, math.inf) if best is None else best.evaluation.interval
        if best is not None and options.noise is not None:  # the oracle's errors leave the noise out
            interval = (0.0, math.inf)
            detail = "; ".join([*([detail] if detail else []), "with noise nothing is proven about F"])
        return Result(
            self.search.setting.scaling.to_theta(ledger.start if best is None else best.u),
            math.nan if best is None else best.evaluation.cost,
            interval,
            self.search.status,
            len(ledger.records),
            ledger.work,
            ledger.records,
            None if best is None else best.evaluation,
            detail=detail,
            policy=options.policy,
        )

    def state(self) -> dict[str, Any]:
        """The search as plain data, fit for JSON: what it began with, and all answers."""
        answers = {"answers": tuple(self._answers), "seconds": self.search.ledger.seconds}
        return {
            "format": STATE_FORMAT,
            **{name: encode(value) for name, value in {**self.arguments, **answers}.items()},
        }

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
