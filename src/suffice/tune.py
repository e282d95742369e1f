"""Tuning: the one upper loop, ask -> evaluate -> tell -> write down.

A run may end before the search does: by Ctrl-C, SIGTERM, a spent budget, the callback, a journal that cannot be
written. Each time the result has the best point so far with its interval and a status that says why, and the journal
has everything up to the last finished evaluation.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from suffice._array import Array, outside_stacklevel, vector
from suffice.files import JournalError
from suffice.journal.codec import decode, encode
from suffice.journal.fingerprint import Fingerprint, differences, versions
from suffice.journal.run import Contents, Journal, read
from suffice.journal.starts import Shelf, Told, holds_starts
from suffice.journal.states import check_state
from suffice.options import BUDGETS, Options
from suffice.result import OracleError, Record, Result, Status
from suffice.signals import undisturbed
from suffice.upper.evaluation import Evaluation, Objective
from suffice.upper.scaling import Scaling
from suffice.upper.search import _budget, absorb, decide, start
from suffice.upper.starts import overtaken
from suffice.upper.state import Setting, State, best_point

STATE_FORMAT = "suffice tuner 1"

JournalLike = str | os.PathLike[str] | Journal


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
    that it proves to be worse than the incumbent are never asked for. `bounds` and `scale` are those of `tune`.
    """

    def __init__(
        self,
        theta0: Any,
        *,
        bounds: Any = None,
        scale: Any = None,
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
        scaling = Scaling.of(theta, bounds, scale)
        self._setting = Setting(scaling, Options() if options is None else options, lower_bound)
        inside = np.clip(theta, scaling.lower, scaling.upper)
        if not np.array_equal(inside, theta):
            level = outside_stacklevel()
            warnings.warn(
                f"theta0 = {theta.tolist()} lies outside its bounds, starting from {inside.tolist()}", stacklevel=level
            )
        self._state: State = start(scaling.to_u(inside), self._setting)
        self._asked_at: float | None = None
        self._detail = ""

    @property
    def options(self) -> Options:
        """The options of the search."""
        return self._setting.options

    @property
    def done(self) -> bool:
        """Whether the search has ended; decides, but evaluates nothing."""
        self._state = decide(self._state, self._setting)
        return self._state.status is not Status.RUNNING

    @property
    def history(self) -> tuple[Record, ...]:
        """One record per evaluation told so far."""
        return self._state.records

    def ask(self) -> Request:
        """The evaluation wanted next; the same one until it is answered."""
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
        self._check(evaluation)
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
        if state.status is Status.ACCURACY and not detail:
            detail = f"theta = {theta.tolist()}, F lies in {list(best.evaluation.interval)}"
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
        if not (isinstance(scaling, Scaling) and isinstance(options, Options) and isinstance(searched, State)):
            raise ValueError("state must hold a scaling, options and the state of a search")
        setting = Setting(scaling, options, lower_bound)
        check_state(searched, setting)
        return cls._of(setting, searched)

    @classmethod
    def _of(cls, setting: Setting, state: State) -> Tuner:
        tuner = cls.__new__(cls)
        tuner._setting, tuner._state = setting, state
        tuner._asked_at, tuner._detail = None, ""
        return tuner

    def _check(self, evaluation: Any) -> None:
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


def tune(
    objective: Objective,
    theta0: Any = None,
    *,
    starts: Iterable[Any] | None = None,
    bounds: Any = None,
    scale: Any = None,
    options: Options | None = None,
    callback: Callable[[Record], object] | None = None,
    journal: JournalLike | None = None,
) -> Result:
    """Minimise F(theta) = sum of squared residuals, asking `objective` for no more accuracy than the next decision
    needs.

    `objective` is anything with `evaluate(theta, *, within, warm=None) -> Evaluation` (`suffice.exact` makes one
    from a plain function), or a `BilevelProblem`, whose `space` then gives the bounds and lets theta0 and the result
    use named parameters. If it has a `lower_bound(theta)`, a bound of F that costs nothing, steps that this rules
    out are not evaluated. `callback(record)` sees every evaluation; raising StopIteration in it ends the run.

    `theta0` is where the search starts: a vector, or a dictionary of named parameters if the objective has a space.
    `bounds` is a pair of vectors, the lower and the upper ends; `options` are `suffice.Options`.

    `scale` is the unit of each parameter (a positive vector, or one number), in which `initial_radius` and
    `final_radius` are measured: a step of one unit should change F noticeably. Without it the unit is the width of the
    box, and max(1, |theta0|) for a parameter with an infinite bound, which serves badly if theta is, say, 1e-12.

    `starts` are more starts; theta0, if it is given too, comes first. The search is local, so each may find another
    minimiser. All go on side by side, one evaluation each in turn, until they end, until another start overtakes
    them (`suffice.upper.starts` has the rule), or until a budget of `options` is spent, which all of them share:
    max_work and max_seconds are checked after every turn. An objective with `evaluate_all(thetas, *, within, warm,
    policy)`, such as a `BilevelProblem`, is asked for a whole turn at once. The result is that of the start with the
    least proven upper bound of F; `result.starts` has the results of all, in their order.

    `journal` names a folder in which every evaluation is on disk before the next one begins; `suffice.resume` continues
    the run, to the same result. It is made if need be, and refused if it holds a run already.

    Ctrl-C ends the run, and so does SIGTERM if the process has no handler of its own for it; the evaluation under way
    is given up, and the result holds the best point so far, with a status that says why. A second signal acts as usual.
    A journal that can no longer be written (a full disk, say) ends the run as well. An objective that fails raises
    `OracleError`, whose `result` holds everything evaluated before. Residuals that are infinite or NaN, or whose sum of
    squares overflows, are no failure but at theta0: a step there counts as rejected, and the search goes on closer by.
    """
    space = getattr(objective, "space", None)
    bounds = space.bounds if space is not None and bounds is None else bounds
    known = _lower_bound(objective)
    thetas = _starts(theta0, starts, space)
    tuners = [Tuner(theta, bounds=bounds, scale=scale, options=options, lower_bound=known) for theta in thetas]
    tuner = tuners[0]
    _oracle(objective, tuner.options)
    _check_callback(callback)
    if starts is not None:
        if journal is None:
            return _run_side_by_side(tuners, objective, callback)
        book = _book(journal)
        with Shelf(Path(book.folder)) as shelf:
            begun = [(tuner._setting, tuner._state) for tuner in tuners]
            shelf.create(book.settings, begun, _fingerprint(objective))
            return _run_side_by_side(tuners, objective, callback, shelf)
    if journal is None:
        return _run(tuner, objective, callback, None)
    with _book(journal) as book:
        book.create(tuner._setting, tuner._state, _fingerprint(objective))
        return _run(tuner, objective, callback, book)


def resume(
    journal: JournalLike,
    *,
    problem: Objective,
    options: Options | None = None,
    callback: Callable[[Record], object] | None = None,
) -> Result:
    """Continue the run in a journal from where it stands, to the result of an uninterrupted run.

    A journal holds data, never code, so the objective is given again as `problem`. It has to be the same: what its
    fingerprint covers (for a `BilevelProblem` data, losses, space, solver, and the penalty at a few points; for any
    other objective what its method `fingerprint()` returns, or else its class and space only) is compared, and a
    difference is refused with its name. `options` may change the budgets (max_evaluations, max_work, max_seconds,
    target_cost), which are totals that include everything done before; every other option has to be as it was. A run
    that has ended is not run again.
    """
    _check_callback(callback)
    if holds_starts(_book(journal).folder):
        with Shelf(Path(_book(journal).folder)) as shelf:
            return _resume_side_by_side(shelf, problem, options, callback)
    with _book(journal) as book:
        try:
            contents, writable = book.open(), True
        except JournalError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            contents, writable = read(book.folder), False  # a finished run may be looked at where nobody may write
            cause = error
        _refuse_changes(book.folder, contents, options, _fingerprint(problem))
        tuner = _taken_up(contents, options, problem)
        _oracle(problem, tuner.options)
        if tuner.done:
            return _result(tuner, problem)
        if not writable:
            raise cause
        _warn_of_versions(contents)
        book.event(what="resumed", evaluations=len(contents.history), dropped_bytes=contents.torn, versions=versions())
        return _run(tuner, problem, callback, book)


def _resume_side_by_side(
    shelf: Shelf, problem: Objective, options: Options | None, callback: Callable[[Record], object] | None
) -> Result:
    contents = shelf.open()
    fingerprint = _fingerprint(problem)
    for one in contents:
        _refuse_changes(shelf.folder, one, options, fingerprint)
    turn, seconds = shelf.latest()
    tuners = [_taken_up(one, options, problem) for one in contents]
    _oracle(problem, tuners[0].options)
    for tuner, mark in zip(tuners, shelf.marks, strict=True):
        if mark.given_up is not None:
            tuner.stop(Status.OVERTAKEN, mark.given_up)
    left = []
    for told, evaluation in turn:  # what was about to be written down when the run was killed
        tuner = tuners[told.start]
        if len(tuner.history) == told.number - 1 and not tuner.done:
            with suppress(OracleError):  # other versions may ask for another theta in the last bit: it is made anew
                tuner.tell(evaluation)
                left.append((told, evaluation))
    if left:
        _write_down(tuners, left, shelf, seconds)
    if turn:
        _end_what_need_not_go_on(tuners, seconds, shelf)
    if all(tuner.done for tuner in tuners):
        return _best(tuners, problem)
    _warn_of_versions(contents[0])
    for book, one in zip(shelf.books, contents, strict=True):
        book.event(what="resumed", evaluations=len(one.history), dropped_bytes=one.torn, versions=versions())
    return _run_side_by_side(tuners, problem, callback, shelf, seconds)


def _refuse_changes(folder: Any, contents: Contents, options: Options | None, fingerprint: dict[str, str]) -> None:
    changed = [*_changed_options(contents.setting.options, options)]
    changed += differences(contents.fingerprint, fingerprint)
    if changed:
        shown = "; ".join(changed[:8]) + (f"; and {len(changed) - 8} more" if len(changed) > 8 else "")
        raise JournalError(f"{os.fspath(folder)} holds a run of another problem: {shown}")


def _warn_of_versions(contents: Contents) -> None:
    others = differences(contents.header["versions"], versions())
    if others:
        level = outside_stacklevel()
        warnings.warn(f"the run is continued with other versions: {'; '.join(others)}", stacklevel=level)


def _taken_up(contents: Contents, options: Options | None, objective: Any) -> Tuner:
    """The search in a journal, with budgets that may have changed."""
    options = contents.setting.options if options is None else options
    setting = replace(contents.setting, options=options, lower_bound=_lower_bound(objective))
    state = replace(contents.state, status=Status.RUNNING)
    if state.records:
        state = replace(state, status=_budget(state, setting.options))
    return Tuner._of(setting, state)


def _starts(theta0: Any, starts: Any, space: Any) -> list[Any]:
    """All starts as theta, theta0 first."""
    if theta0 is None and starts is None:
        raise TypeError("theta0 or starts must be given")
    if isinstance(starts, Mapping | str) or not isinstance(starts, Iterable | None):
        raise TypeError(f"starts must be a sequence of starts, got {starts!r}")
    given = [] if theta0 is None else [theta0]
    given += [] if starts is None else list(starts)
    if not given:
        raise ValueError("starts must not be empty")
    if space is None and any(isinstance(start, Mapping) for start in given):
        raise TypeError("theta0 by name needs an objective with a `space`")
    thetas = [space.theta(start) if isinstance(start, Mapping) else start for start in given]
    if starts is not None:
        names = [*(["theta0"] if theta0 is not None else []), *(f"starts[{i}]" for i in range(len(given)))]
        thetas = [vector(theta, name) for theta, name in zip(thetas, names, strict=False)]
        for theta, name in zip(thetas, names, strict=False):
            if theta.shape != thetas[0].shape:
                raise ValueError(f"{name} must have {len(thetas[0])} entries like {names[0]}, got {len(theta)}")
    return thetas


def _lower_bound(objective: Any) -> Callable[[Array], float] | None:
    known = getattr(objective, "lower_bound", None)
    return known if callable(known) else None


def _changed_options(before: Options, now: Options | None) -> list[str]:
    if now is None:
        return []
    if not isinstance(now, Options):
        raise TypeError(f"options must be Options, got {now!r}")
    pairs = ((name, old, now.plain()[name]) for name, old in before.plain().items() if name not in BUDGETS)
    return [f"option {name} was {old!r}, now it is {new!r}" for name, old, new in pairs if old != new]


def _book(journal: JournalLike) -> Journal:
    if isinstance(journal, Journal):
        return journal
    if not isinstance(journal, str | os.PathLike):
        raise TypeError(f"journal must be a folder or a Journal, got {journal!r}")
    return Journal(journal)


def _fingerprint(objective: Any) -> dict[str, str]:
    found = Fingerprint()
    found.add("objective", type(objective).__qualname__)
    own = getattr(objective, "fingerprint", None)
    parts = own() if callable(own) else {}
    if not isinstance(parts, Mapping):
        raise TypeError(f"fingerprint() must return a dictionary, got {type(parts).__name__}")
    space = getattr(objective, "space", None)
    for name, value in {**({} if space is None else {"space": space.ranges}), **parts}.items():
        found.add(str(name), value)
    return found.parts


def _check_callback(callback: Any) -> None:
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {callback!r}")


def _result(tuner: Tuner, objective: Any) -> Result:
    found = tuner.result()
    space = getattr(objective, "space", None)
    return found if space is None else replace(found, params=space.params(found.theta), space=space)


def _run(
    tuner: Tuner, objective: Objective, callback: Callable[[Record], object] | None, book: Journal | None
) -> Result:
    """The loop. Whatever ends it, the journal is told."""
    evaluate = _oracle(objective, tuner.options)
    try:
        with _termination():
            while not tuner.done:
                request = tuner.ask()
                evaluation = evaluate(request.theta.copy(), within=request.within, warm=request.warm)
                with ExitStack() as stack:
                    if book is not None:
                        stack.enter_context(undisturbed())
                    record = _tell(tuner, evaluation, objective, book)
                if callback is not None:
                    callback(record)
    except StopIteration:  # of the callback; the oracle's own errors are OracleErrors
        tuner.stop(Status.STOPPED)
    except KeyboardInterrupt:
        tuner.stop(Status.INTERRUPTED)
    except _Terminated:
        tuner.stop(Status.TERMINATED)
    except JournalError as error:
        if book is None:  # somebody else's, raised by the callback
            raise
        held = f"it holds {book.evaluations} of {len(tuner.history)} evaluations"
        tuner.stop(Status.JOURNAL, f"{book.path}: {error.__cause__ or error}; {held}")
    except OracleError as error:
        tuner.stop(Status.FAILED)
        _close(book, tuner, str(error))
        raise OracleError(str(error), request.theta, _result(tuner, objective)) from error.__cause__
    _close(book, tuner)
    return _result(tuner, objective)


def _run_side_by_side(
    tuners: Sequence[Tuner],
    objective: Objective,
    callback: Callable[[Record], object] | None,
    shelf: Shelf | None = None,
    seconds_before: float = 0.0,
) -> Result:
    """The loop over turns: one evaluation for every start that is still in the race."""
    options, began = tuners[0].options, time.monotonic() - seconds_before
    evaluate = _oracle_of_many(objective, options)
    try:
        with _termination():
            while running := [tuner for tuner in tuners if not tuner.done]:
                turn = sorted(running, key=_promising)[: options.max_evaluations - _evaluations(tuners)]
                requests = [tuner.ask() for tuner in turn]
                if shelf is None:
                    records = [tuner.tell(one) for tuner, one in zip(turn, evaluate(requests), strict=True)]
                else:
                    records = _tell_all(tuners, turn, list(evaluate(requests)), objective, shelf, began)
                if callback is not None:
                    for record in records:
                        callback(record)
                _end_what_need_not_go_on(tuners, time.monotonic() - began, shelf)
    except StopIteration:
        _stop_all(tuners, Status.STOPPED)
    except KeyboardInterrupt:
        _stop_all(tuners, Status.INTERRUPTED)
    except _Terminated:
        _stop_all(tuners, Status.TERMINATED)
    except JournalError as error:
        if shelf is None:
            raise
        held = sum(book.evaluations for book in shelf.books)
        detail = f"{shelf.folder}: {error.__cause__ or error}; it holds {held} of {_evaluations(tuners)} evaluations"
        _stop_all(tuners, Status.JOURNAL, detail)
    except OracleError as error:
        _stop_all(tuners, Status.FAILED)
        _close_all(shelf, tuners)
        raise OracleError(str(error), error.theta, _best(tuners, objective)) from error.__cause__
    _close_all(shelf, tuners)
    return _best(tuners, objective)


def _tell_all(
    tuners: Sequence[Tuner],
    turn: Sequence[Tuner],
    evaluations: Sequence[Evaluation],
    objective: Any,
    shelf: Shelf,
    began: float,
) -> list[Record]:
    """Every evaluation of a turn to its start; the turn is on disk before, as a whole."""
    told = []
    for tuner, evaluation in zip(turn, evaluations, strict=True):
        tuner._check(evaluation)
        number = next(k for k, other in enumerate(tuners) if other is tuner)
        told.append(Told(number, len(tuner.history) + 1, _encoded(tuner, evaluation)))
    known = [decode(one.encoded) for one in told]
    with undisturbed():
        records = [tuner.tell(evaluation) for tuner, evaluation in zip(turn, known, strict=True)]
        _write_down(tuners, list(zip(told, known, strict=True)), shelf, time.monotonic() - began)
        for event in _events(objective):
            shelf.books[0].event(evaluation=_evaluations(tuners), **event)
    return records


def _write_down(tuners: Sequence[Tuner], turn: Sequence[tuple[Told, Evaluation]], shelf: Shelf, seconds: float) -> None:
    """A turn that the tuners know already: as a whole, then into the journals."""
    told = [one for one, _ in turn]
    shelf.keep(told, [tuners[one.start].history[-1] for one in told], seconds)
    for one, evaluation in turn:
        shelf.books[one.start].keep(evaluation, one.encoded, tuners[one.start]._state)


def _close_all(shelf: Shelf | None, tuners: Sequence[Tuner]) -> None:
    for book, tuner in zip([] if shelf is None else shelf.books, tuners, strict=False):
        _close(book, tuner)


def _promising(tuner: Tuner) -> float:
    """The lower, the sooner its turn: what is proven about its incumbent, nothing yet first."""
    state = tuner._state
    return best_point(state).evaluation.interval[1] if state.points else -math.inf


def _evaluations(tuners: Sequence[Tuner]) -> int:
    return sum(len(tuner.history) for tuner in tuners)


def _end_what_need_not_go_on(tuners: Sequence[Tuner], seconds: float, shelf: Shelf | None = None) -> None:
    options = tuners[0].options
    on_target = [i for i, tuner in enumerate(tuners) if tuner._state.status is Status.TARGET]
    if on_target:
        _stop_all(tuners, Status.OVERTAKEN, f"F is proven to be at most target_cost at start {on_target[0]}")
    elif _evaluations(tuners) >= options.max_evaluations:
        _stop_all(tuners, Status.MAX_EVALUATIONS)
    elif sum(tuner._state.work for tuner in tuners) >= options.max_work:
        _stop_all(tuners, Status.MAX_WORK)
    elif seconds >= options.max_seconds:
        _stop_all(tuners, Status.MAX_SECONDS)
    for i, reason in overtaken([tuner._state for tuner in tuners], [tuner._setting for tuner in tuners]).items():
        tuners[i].stop(Status.OVERTAKEN, reason)
        if shelf is not None:
            shelf.give_up(i, reason)


def _stop_all(tuners: Sequence[Tuner], status: Status, detail: str = "") -> None:
    for tuner in tuners:
        if tuner._state.status is Status.RUNNING:
            tuner.stop(status, detail)


def _best(tuners: Sequence[Tuner], objective: Any) -> Result:
    """The result of the start with the least proven upper bound, with those of all."""
    results = tuple(_result(tuner, objective) for tuner in tuners)
    return replace(min(results, key=lambda result: (result.interval[1], result.cost)), starts=results)


def _tell(tuner: Tuner, evaluation: Any, objective: Any, book: Journal | None) -> Record:
    if book is None:
        return tuner.tell(evaluation)
    encoded = _encoded(tuner, evaluation)
    known = decode(encoded) if isinstance(evaluation, Evaluation) else evaluation  # the journal knows no less
    record = tuner.tell(known)
    for event in _events(objective):
        book.event(evaluation=record.number, **event)
    book.keep(known, encoded, tuner._state)
    return record


def _encoded(tuner: Tuner, evaluation: Any) -> Any:
    try:
        return encode(evaluation)
    except TypeError as error:
        theta = tuner.ask().theta
        where = np.array2string(theta, precision=17)
        raise OracleError(f"evaluation at theta = {where}: {error}", theta) from error


def _events(objective: Any) -> list[Mapping[str, Any]]:
    """What an objective has to report besides its evaluation, such as a worker that was lost."""
    take = getattr(objective, "take_events", None)
    return list(take()) if callable(take) else []


def _close(book: Journal | None, tuner: Tuner, message: str = "") -> None:
    if book is not None:
        found = tuner.result()
        with suppress(JournalError), undisturbed():  # it is for readers only, and the result says it, too
            book.end(found.status.name, message or found.message, found.evaluations)


class _Terminated(BaseException):
    """SIGTERM, as an exception."""


@contextmanager
def _termination() -> Iterator[None]:
    """SIGTERM raises inside, once, if nobody else handles it."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def handle(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise _Terminated

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _oracle(objective: Objective, options: Options) -> Callable[..., Evaluation]:
    name = "evaluate_weights" if options.policy == "weights" else "evaluate"
    method = getattr(objective, name, None)
    if not callable(method):
        raise TypeError(f"objective must offer {name}(theta, *, within, warm), {objective!r} does not")

    def evaluate(theta: Array, *, within: float, warm: Evaluation | None) -> Evaluation:
        asked = theta.copy()  # which the objective may overwrite
        try:
            evaluation: Evaluation = method(theta, within=within, warm=warm)
            return evaluation
        except Exception as error:
            where = np.array2string(asked, precision=17)
            raise OracleError(f"the objective raised {error!r} at theta = {where}", theta) from error

    return evaluate


def _oracle_of_many(objective: Any, options: Options) -> Callable[[Sequence[Request]], Iterator[Evaluation]]:
    """All requests of a turn: at once where the objective offers it, else one after the other."""
    one_by_one, many = _oracle(objective, options), getattr(objective, "evaluate_all", None)

    def evaluate(requests: Sequence[Request]) -> Iterator[Evaluation]:
        answers: list[Evaluation] = []
        if callable(many) and len(requests) > 1:
            thetas = [request.theta.copy() for request in requests]
            within, warm = [request.within for request in requests], [request.warm for request in requests]
            with suppress(Exception):  # whoever it was will fail alone as well, and is named then
                answers = list(many(thetas, within=within, warm=warm, policy=options.policy))
        yield from answers
        for request in requests[len(answers) :]:
            yield one_by_one(request.theta.copy(), within=request.within, warm=request.warm)

    return evaluate


class exact:  # noqa: N801 (reads like a function)
    """An objective for `tune` from a plain function `fun(theta)` that returns residuals without errors."""

    def __init__(self, fun: Callable[[Array], Any]) -> None:
        if not callable(fun):
            raise TypeError(f"fun must be callable, got {fun!r}")
        self.fun = fun

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        residuals = np.atleast_1d(np.asarray(self.fun(theta.copy()), dtype=np.float64))
        return Evaluation(theta, residuals, np.zeros(residuals.shape), work=1)
