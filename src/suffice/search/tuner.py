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
from suffice.result import OracleError, Record, Result, Status
from suffice.search.many import GradientSearch, begin
from suffice.search.scaling import Scaling
from suffice.search.state import Ledger, Setting
from suffice.search.strategy import Search
from suffice.search.trust_region import TrustRegion

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
        setting = Setting(scaling, Options() if options is None else options, lower_bound)
        inside = np.clip(theta, scaling.lower, scaling.upper)
        if not np.array_equal(inside, theta):
            level = outside_stacklevel()
            warnings.warn(
                f"theta0 = {theta.tolist()} lies outside its bounds, starting from {inside.tolist()}", stacklevel=level
            )
        self._search = Search.begin(inside, setting, begin, seen)
        self._asked_at: float | None = None
        self._detail = ""

    @property
    def options(self) -> Options:
        """The options of the search."""
        return self._search.setting.options

    @property
    def setting(self) -> Setting:
        """What never changes during the search: its options, scaling and lower bound."""
        return self._search.setting

    @property
    def known(self) -> Search:
        """Everything the search knows by now, immutable; `state()` is the same as plain data."""
        return self._search

    @property
    def done(self) -> bool:
        """Whether the search has ended; decides, but evaluates nothing."""
        self._search = self._search.decide()
        return self._search.status is not Status.RUNNING

    @property
    def history(self) -> tuple[Record, ...]:
        """One record per evaluation told."""
        return self._search.ledger.records

    def ask(self) -> Request:
        """The evaluation wanted next; the same one until it is told."""
        if self.done:
            raise RuntimeError(f"the search has ended: {self._search.status.message}")
        pending = self._search.strategy.pending
        assert pending is not None
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        theta, purpose = self.setting.scaling.to_theta(pending.u), pending.purpose.value
        return Request(theta, pending.within, pending.warm, purpose, pending.derivatives, pending.below)

    def tell(self, evaluation: Evaluation) -> Record:
        """Take in the evaluation of the request. An unusable one raises `OracleError` and changes nothing."""
        self.check(evaluation)
        assert self._asked_at is not None
        seconds = time.monotonic() - self._asked_at
        self._asked_at = None
        self._search = self._search.absorb(evaluation, seconds)
        return self.history[-1]

    def stop(self, status: Status, detail: str = "") -> None:
        """End the search for an outside reason; `detail` becomes part of the result's message."""
        if self._search.status is Status.RUNNING:
            self._search = replace(self._search, status=status)
        self._detail = detail

    def result(self) -> Result:
        """The best point so far: of all evaluated, the one with the least proven upper bound of F."""
        ledger, best, status = self._search.ledger, self._search.best, self._search.status
        if best is None:
            unknown, policy = (-math.inf, math.inf), self.options.policy
            theta = self.setting.scaling.to_theta(ledger.start)
            return Result(theta, math.nan, unknown, status, 0, 0.0, (), detail=self._detail, policy=policy)
        theta = self.setting.scaling.to_theta(best.u)
        detail = self._detail
        interval = best.evaluation.interval
        if self.options.noise is not None:  # the oracle's errors leave the noise out
            interval = (0.0, math.inf)
            detail = "; ".join([*([detail] if detail else []), "with noise nothing is proven about F"])
        return Result(
            theta,
            best.evaluation.cost,
            interval,
            status,
            len(ledger.records),
            ledger.work,
            ledger.records,
            best.evaluation,
            detail=detail,
            policy=self.options.policy,
        )

    def state(self) -> dict[str, Any]:
        """Everything the search knows as plain data, fit for JSON."""
        return {
            "format": STATE_FORMAT,
            "options": encode(self.options),
            "scaling": encode(self.setting.scaling),
            "state": encode(self._search.strategy),
            "ledger": encode(self._search.ledger),
            "status": encode(self._search.status),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], *, lower_bound: Callable[[Array], float] | None = None) -> Tuner:
        """The search that `state()` wrote down; it continues to the same bits, given the same `lower_bound`."""
        if state.get("format") != STATE_FORMAT:
            raise ValueError(f"state must be of format {STATE_FORMAT!r}, got {state.get('format')!r}")
        try:
            names = ("scaling", "options", "state", "ledger", "status")
            scaling, options, strategy, ledger, status = (decode(state[name]) for name in names)
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"state is not what a tuner wrote down: {type(error).__name__}: {error}") from error
        kinds = (Scaling, Options, TrustRegion | GradientSearch, Ledger, Status)
        if not all(map(isinstance, (scaling, options, strategy, ledger, status), kinds)):
            raise ValueError("state must hold a scaling, options and the state of a search")
        search = Search(Setting(scaling, options, lower_bound, ledger), strategy, status)
        check_state(search)
        return cls.at(search)

    @classmethod
    def at(cls, search: Search) -> Tuner:
        """The search that knows this much."""
        tuner = cls.__new__(cls)
        tuner._search, tuner._asked_at, tuner._detail = search, None, ""
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
        points = self._search.strategy.points
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
