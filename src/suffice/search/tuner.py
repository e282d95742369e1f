"""The search as ask and tell: `Tuner`, for those who run their evaluations themselves, and for `suffice.tune`."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import Array, outside_stacklevel, vector
from suffice.evaluation import Evaluation
from suffice.journal.codec import decode, encode
from suffice.journal.states import check_state
from suffice.options import Options
from suffice.result import OracleError, Purpose, Record, Result, Status
from suffice.search.by_derivatives import wanted as derivatives_wanted
from suffice.search.method import absorb, decide, start
from suffice.search.scaling import Scaling
from suffice.search.state import ManyState, Setting, State, best_point, remembered

STATE_FORMAT = "suffice tuner 1"


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
    that it proves to be worse than the incumbent are never asked for. `bounds`, `scale` and `seen` are those of `tune`.
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
    ) -> None:
        theta = vector(theta0, "theta0")
        if theta.size == 0:
            raise ValueError("theta0 must not be empty")
        if options is not None and not isinstance(options, Options):
            raise TypeError(f"options must be Options, got {options!r}")
        if lower_bound is not None and not callable(lower_bound):
            raise TypeError(f"lower_bound must be callable, got {lower_bound!r}")
        scaling = Scaling.of(theta, bounds, scale)
        self._setting = Setting(scaling, Options() if options is None else options, lower_bound)
        inside = np.clip(theta, scaling.lower, scaling.upper)
        if not np.array_equal(inside, theta):
            level = outside_stacklevel()
            warnings.warn(
                f"theta0 = {theta.tolist()} lies outside its bounds, starting from {inside.tolist()}", stacklevel=level
            )
        self._state: State | ManyState = start(scaling.to_u(inside), self._setting)
        if isinstance(self._state, State):
            self._state = replace(self._state, pool=remembered(inside, seen, scaling))
        self._asked_at: float | None = None
        self._detail = ""

    @property
    def options(self) -> Options:
        """The options of the search."""
        return self._setting.options

    @property
    def setting(self) -> Setting:
        """What never changes during the search: its options, scaling and lower bound."""
        return self._setting

    @property
    def known(self) -> State | ManyState:
        """Everything the search knows by now, immutable; `state()` is the same as plain data."""
        return self._state

    @property
    def done(self) -> bool:
        """Whether the search has ended; decides, but evaluates nothing."""
        self._state = decide(self._state, self._setting)
        return self._state.status is not Status.RUNNING

    @property
    def history(self) -> tuple[Record, ...]:
        """One record per evaluation told."""
        return self._state.records

    def ask(self) -> Request:
        """The evaluation wanted next; the same one until it is told."""
        if self.done:
            raise RuntimeError(f"the search has ended: {self._state.status.message}")
        pending = self._state.pending
        assert pending is not None
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        theta = self._setting.scaling.to_theta(pending.u)
        wanted = isinstance(self._state, ManyState) or derivatives_wanted(self._state, self.options)
        wanted = wanted and pending.purpose is not Purpose.TEST  # it is they that are tested
        return Request(theta, pending.within, pending.warm, pending.purpose.value, wanted, self._worth_going_on_from())

    def _worth_going_on_from(self) -> float:
        """What F may be at most at the pending point for the search to build on it: a look elsewhere is one at a
        value, unless it is better."""
        state = self._state
        looks = isinstance(state, State) and state.pending is not None and state.pending.purpose is Purpose.UNSEEN
        return state.points[state.incumbent].evaluation.interval[0] if looks else math.inf

    def tell(self, evaluation: Evaluation) -> Record:
        """Take in the evaluation of the request. An unusable one raises `OracleError` and changes nothing."""
        self.check(evaluation)
        assert self._asked_at is not None
        seconds = time.monotonic() - self._asked_at
        self._asked_at = None
        self._state = absorb(self._state, evaluation, self._setting, seconds)
        return self._state.records[-1]

    def stop(self, status: Status, detail: str = "") -> None:
        """End the search for an outside reason; `detail` becomes part of the result's message."""
        if self._state.status is Status.RUNNING:
            self._state = replace(self._state, status=status)
        self._detail = detail

    def result(self) -> Result:
        """The best point so far: of all evaluated, the one with the least proven upper bound of F."""
        state, scaling = self._state, self._setting.scaling
        if not state.points:
            u = state.first[0]
            unknown = (-math.inf, math.inf)
            theta, policy = scaling.to_theta(u), self.options.policy
            return Result(theta, math.nan, unknown, state.status, 0, 0.0, (), detail=self._detail, policy=policy)
        best = best_point(state)
        theta = scaling.to_theta(best.u)
        detail = self._detail
        interval = best.evaluation.interval
        if self.options.noise is not None:  # the oracle's errors leave the noise out
            interval = (0.0, math.inf)
            detail = "; ".join([*([detail] if detail else []), "with noise nothing is proven about F"])
        return Result(
            theta,
            best.evaluation.cost,
            interval,
            state.status,
            len(state.records),
            state.work,
            state.records,
            best.evaluation,
            detail=detail,
            policy=self.options.policy,
        )

    def state(self) -> dict[str, Any]:
        """Everything the search knows as plain data, fit for JSON."""
        return {
            "format": STATE_FORMAT,
            "options": encode(self.options),
            "scaling": encode(self._setting.scaling),
            "state": encode(self._state),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], *, lower_bound: Callable[[Array], float] | None = None) -> Tuner:
        """The search that `state()` wrote down; it continues to the same bits, given the same `lower_bound`."""
        if state.get("format") != STATE_FORMAT:
            raise ValueError(f"state must be of format {STATE_FORMAT!r}, got {state.get('format')!r}")
        try:
            scaling, options, searched = (decode(state[name]) for name in ("scaling", "options", "state"))
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"state is not what a tuner wrote down: {type(error).__name__}: {error}") from error
        if not (
            isinstance(scaling, Scaling) and isinstance(options, Options) and isinstance(searched, State | ManyState)
        ):
            raise ValueError("state must hold a scaling, options and the state of a search")
        setting = Setting(scaling, options, lower_bound)
        check_state(searched, setting)
        return cls.at(setting, searched)

    @classmethod
    def at(cls, setting: Setting, state: State | ManyState) -> Tuner:
        """The search that knows this much."""
        tuner = cls.__new__(cls)
        tuner._setting, tuner._state = setting, state
        tuner._asked_at, tuner._detail = None, ""
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
        if self._state.points:
            known = self._state.points[0].evaluation
            if len(known.r) != len(evaluation.r):
                return f"there were {len(known.r)} residuals before, now there are {len(evaluation.r)}"
            if known.blocks != evaluation.blocks:
                return f"blocks were {known.blocks} before, now they are {evaluation.blocks}"
        if len(evaluation.r) == 0:
            return "there are no residuals"
        if self.options.policy == "weights" and evaluation.distance is None:
            return "policy='weights' needs the distance of the weights, evaluation.distance is None"
        start = not self._state.points  # elsewhere the search goes around a place without F
        return (evaluation.failure if start else None) or evaluation.complaint()
