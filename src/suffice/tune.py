"""Tuning: the one upper loop, ask -> evaluate -> tell."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice._array import Array, outside_stacklevel, vector
from suffice.options import Options
from suffice.plain import decode, encode
from suffice.result import OracleError, Record, Result, Status
from suffice.upper.evaluation import Evaluation, Objective
from suffice.upper.scaling import Scaling
from suffice.upper.search import Setting, State, absorb, decide, start

STATE_FORMAT = "suffice tuner 1"


@dataclass(frozen=True)
class Request:
    """Evaluate `theta` so that the error of each residual, or with policy="weights" the distance of the weights,
    is at most `within`. `warm` is the nearest earlier evaluation; at the same theta it is to be continued."""

    theta: Array
    within: float
    warm: Evaluation | None = None
    purpose: str = ""


class Tuner:
    """The search as ask and tell, for those who run their evaluations themselves.

    `lower_bound(theta)`, if there is one, is at most F(theta) and costs nothing, such as a penalty known exactly: steps
    that it proves to be worse than the incumbent are never asked for.
    """

    def __init__(
        self,
        theta0: Any,
        *,
        bounds: Any = None,
        options: Options | None = None,
        lower_bound: Callable[[Array], float] | None = None,
    ) -> None:
        theta = vector(theta0, "theta0")
        if theta.size == 0:
            raise ValueError("theta0 must not be empty")
        if options is not None and not isinstance(options, Options):
            raise TypeError(f"options must be Options, got {options!r}")
        if lower_bound is not None and not callable(lower_bound):
            raise TypeError(f"lower_bound must be callable, got {lower_bound!r}")
        self._setting = Setting(Scaling.of(theta, bounds), Options() if options is None else options, lower_bound)
        scaling = self._setting.scaling
        inside = np.clip(theta, scaling.lower, scaling.upper)
        if not np.array_equal(inside, theta):
            level = outside_stacklevel()
            warnings.warn(
                f"theta0 = {theta.tolist()} lies outside its bounds, starting from {inside.tolist()}", stacklevel=level
            )
        self._state: State = start(scaling.to_u(inside), self._setting)
        self._asked_at: float | None = None

    @property
    def options(self) -> Options:
        return self._setting.options

    @property
    def done(self) -> bool:
        """Whether the search has ended; decides, but evaluates nothing."""
        self._state = decide(self._state, self._setting)
        return self._state.status is not Status.RUNNING

    @property
    def history(self) -> tuple[Record, ...]:
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
        return Request(theta, pending.within, pending.warm, pending.purpose.value)

    def tell(self, evaluation: Evaluation) -> Record:
        """Take in the evaluation of the request. An unusable one raises `OracleError` and changes nothing."""
        request = self.ask()
        complaint = self._complaint(evaluation, request)
        if complaint is not None:
            where = np.array2string(request.theta, precision=17)
            raise OracleError(f"evaluation at theta = {where}: {complaint}", request.theta)
        assert self._asked_at is not None
        seconds = time.monotonic() - self._asked_at
        self._asked_at = None
        self._state = absorb(self._state, evaluation, self._setting, seconds)
        return self._state.records[-1]

    def stop(self, status: Status) -> None:
        """End the search for an outside reason."""
        if self._state.status is Status.RUNNING:
            self._state = replace(self._state, status=status)

    def result(self) -> Result:
        """The incumbent so far."""
        state, scaling = self._state, self._setting.scaling
        if not state.points:
            u = state.first[0]
            return Result(scaling.to_theta(u), math.nan, (-math.inf, math.inf), state.status, 0, 0.0, ())
        best = state.points[state.incumbent]
        theta = scaling.to_theta(best.u)
        detail = ""
        if state.status is Status.ACCURACY:
            detail = f"theta = {theta.tolist()}, F lies in {list(best.evaluation.interval)}"
        return Result(
            theta,
            best.evaluation.cost,
            best.evaluation.interval,
            state.status,
            len(state.records),
            state.work,
            state.records,
            best.evaluation,
            detail=detail,
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
        tuner = cls.__new__(cls)
        tuner._setting = Setting(decode(state["scaling"]), decode(state["options"]), lower_bound)
        tuner._state = decode(state["state"])
        tuner._asked_at = None
        return tuner

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
        return evaluation.complaint()


def tune(
    objective: Objective,
    theta0: Any,
    *,
    bounds: Any = None,
    options: Options | None = None,
    callback: Callable[[Record], object] | None = None,
) -> Result:
    """Minimise F(theta) = sum of squared residuals, asking `objective` for no more accuracy than the next decision
    needs.

    `objective` is anything with `evaluate(theta, *, within, warm=None) -> Evaluation` (`suffice.exact` makes one
    from a plain function), or a `BilevelProblem`, whose `space` then gives the bounds and lets theta0 and the result
    speak in named parameters. If it has a `lower_bound(theta)`, a bound of F that costs nothing, steps that this rules
    out are not evaluated. `callback(record)` sees every evaluation; raising StopIteration in it ends the run. An
    interrupt from the keyboard ends it, too; in both cases the result holds the best point so far. An objective that
    fails raises `OracleError`, whose `result` holds everything evaluated before.
    """
    space = getattr(objective, "space", None)
    if space is not None:
        theta0 = space.theta(theta0) if isinstance(theta0, Mapping) else theta0
        bounds = space.bounds if bounds is None else bounds
    elif isinstance(theta0, Mapping):
        raise TypeError("theta0 by name needs an objective with a `space`")
    known = getattr(objective, "lower_bound", None)
    tuner = Tuner(theta0, bounds=bounds, options=options, lower_bound=known if callable(known) else None)
    evaluate = _oracle(objective, tuner.options)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {callback!r}")

    def result() -> Result:
        found = tuner.result()
        return found if space is None else replace(found, params=space.params(found.theta))

    while not tuner.done:
        request = tuner.ask()
        try:
            evaluation = evaluate(request.theta.copy(), within=request.within, warm=request.warm)
            record = tuner.tell(evaluation)
        except KeyboardInterrupt:
            tuner.stop(Status.INTERRUPTED)
            break
        except OracleError as error:
            tuner.stop(Status.FAILED)
            raise OracleError(str(error), request.theta, result()) from error.__cause__
        if callback is not None:
            _call(callback, record, tuner)
    return result()


def _oracle(objective: Objective, options: Options) -> Callable[..., Evaluation]:
    name = "evaluate_weights" if options.policy == "weights" else "evaluate"
    method = getattr(objective, name, None)
    if not callable(method):
        raise TypeError(f"objective must offer {name}(theta, *, within, warm), {objective!r} does not")

    def evaluate(theta: Array, *, within: float, warm: Evaluation | None) -> Evaluation:
        where = np.array2string(theta, precision=17)
        try:
            evaluation: Evaluation = method(theta, within=within, warm=warm)
            return evaluation
        except Exception as error:
            raise OracleError(f"the objective raised {error!r} at theta = {where}", theta) from error

    return evaluate


def _call(callback: Callable[[Record], object], record: Record, tuner: Tuner) -> None:
    try:
        callback(record)
    except StopIteration:
        tuner.stop(Status.STOPPED)
    except KeyboardInterrupt:
        tuner.stop(Status.INTERRUPTED)


class exact:  # noqa: N801 (reads like a function)
    """A plain function theta -> residuals as an objective without errors."""

    def __init__(self, fun: Callable[[Array], Any]) -> None:
        if not callable(fun):
            raise TypeError(f"fun must be callable, got {fun!r}")
        self.fun = fun

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        residuals = np.atleast_1d(np.asarray(self.fun(theta.copy()), dtype=np.float64))
        return Evaluation(theta, residuals, np.zeros(residuals.shape), work=1)
