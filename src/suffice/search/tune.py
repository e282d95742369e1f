"""Tuning: the one upper loop, ask -> evaluate -> tell -> write down.

Starts go on side by side, one evaluation each in turn; theta0 alone is a list of one. A run may end before the search
does: by Ctrl-C, SIGTERM, a spent budget, the callback, a journal that cannot be written. Each time the result has the
best point so far with its interval and a status that says why, and the journal has everything up to the last finished
evaluation.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from suffice.arrays import outside_stacklevel, vector
from suffice.evaluation import Evaluation
from suffice.files import JournalError
from suffice.globally.beside import Beside
from suffice.journal.codec import decode, encode
from suffice.journal.fingerprint import Fingerprint, differences, versions
from suffice.journal.run import Contents, Journal, read
from suffice.journal.starts import StartsJournal, Told, holds_starts
from suffice.options import BUDGETS, Options
from suffice.result import OracleError, Record, Result, Status
from suffice.search.objective import (
    Objective,
    derivatives_of,
    events_of,
    exact,
    lower_bound_of,
    offered,
    oracle,
    space_of,
    stationarity_of,
)
from suffice.search.starts import overtaken
from suffice.search.tuner import Request, Tuner
from suffice.signals import Terminated, TimeOver, termination, undisturbed

__all__ = ["Request", "Tuner", "exact", "resume", "tune"]

JournalLike = str | os.PathLike[str] | Journal
Callback = Callable[[Record], object]


def tune(
    objective: Objective,
    theta0: Any = None,
    *,
    starts: Iterable[Any] | None = None,
    bounds: Any = None,
    scale: Any = None,
    options: Options | None = None,
    callback: Callback | None = None,
    journal: JournalLike | None = None,
    seen: Sequence[Evaluation] = (),
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
    them (`suffice.search.starts` has the rule), or until a budget of `options` is spent, which all of them share:
    max_work and max_seconds are checked after every turn. An objective with `evaluate_all(thetas, *, within, warm,
    policy)`, such as a `BilevelProblem`, is asked for a whole turn at once. The result is that of the start with the
    least proven upper bound of F; `result.starts` has the results of all, in their order.

    `seen` are evaluations of the same objective that were made before: they are not made again for being known, but
    models of steps near them know more of F's curvature, from the first step on.

    `journal` names a folder in which every evaluation is on disk before the next one begins; `suffice.resume` continues
    the run, to the same result. It is made if need be, and refused if it holds a run already.

    Ctrl-C ends the run, and so does SIGTERM if the process has no handler of its own for it; the evaluation under way
    is given up, and the result holds the best point so far, with a status that says why. A second signal acts as usual.
    A journal that can no longer be written (a full disk, say) ends the run as well. An objective that fails raises
    `OracleError`, whose `result` holds everything evaluated before. Residuals that are infinite or NaN, or whose sum of
    squares overflows, are no failure but at theta0: a step there counts as rejected, and the search goes on closer by.
    """
    space = space_of(objective)
    whole = bounds is None  # the search is over the whole space
    bounds = space.bounds if space is not None and bounds is None else bounds
    free = lower_bound_of(objective)
    thetas = _starts(theta0, starts, space)
    given: dict[str, Any] = {"bounds": bounds, "scale": scale, "options": options, "lower_bound": free, "seen": seen}
    tuners = [Tuner(theta, **given) for theta in thetas]
    _check_objective(objective, tuners[0].options)  # whoever has none learns it before a journal is made
    _check_callback(callback)
    beside = _beside(objective, tuners[0].options, whole, starts is not None)
    run = _Run(tuners, objective, callback, listed=starts is not None, beside=beside)
    if journal is None:
        with _kept(beside, None):
            return run.go()
    book, begun = _book(journal), [tuner.known for tuner in tuners]
    if starts is None:
        with book:
            book.create(begun[0], _fingerprint(objective))
            return replace(run, books=[book]).go()
    with StartsJournal(Path(book.folder)) as journals:
        journals.create(book.settings, begun, _fingerprint(objective))
        with _kept(beside, journals.folder):
            return replace(run, books=journals.books, journals=journals).go()


def resume(
    journal: JournalLike,
    *,
    problem: Objective,
    options: Options | None = None,
    callback: Callback | None = None,
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
        with StartsJournal(Path(_book(journal).folder)) as journals:
            return _resume_starts(journals, problem, options, callback)
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
        _check_objective(problem, tuner.options)
        run = _Run([tuner], problem, callback, [book])
        if tuner.done:
            return run.result()
        if not writable:
            raise cause
        _warn_of_versions(contents)
        book.event(what="resumed", evaluations=len(contents.history), dropped_bytes=contents.torn, versions=versions())
        return run.go()


def _resume_starts(
    journals: StartsJournal, problem: Objective, options: Options | None, callback: Callback | None
) -> Result:
    contents = journals.open()
    fingerprint = _fingerprint(problem)
    for one in contents:
        _refuse_changes(journals.folder, one, options, fingerprint)
    turn, seconds = journals.latest()
    tuners = [_taken_up(one, options, problem) for one in contents]
    _check_objective(problem, tuners[0].options)
    for tuner, mark in zip(tuners, journals.marks, strict=True):
        if mark.given_up is not None:
            tuner.stop(Status.OVERTAKEN, mark.given_up)
    left, whose = [], {told.start for told, _ in turn}
    for tuner in [tuner for i, tuner in enumerate(tuners) if i not in whose]:
        _ = tuner.done  # as it was when that turn began
    for told, evaluation in turn:  # what was about to be written down when the run was killed
        tuner = tuners[told.start]
        if len(tuner.history) == told.number - 1 and not tuner.done:
            with suppress(OracleError):  # other versions may ask for another theta in the last bit: it is made anew
                tuner.tell(evaluation)
                left.append((told, evaluation))
    beside = _beside(problem, tuners[0].options, True, True)
    run = _Run(tuners, problem, callback, journals.books, journals, True, seconds, beside)
    if left:
        run.write_down(left, seconds)
    with _kept(beside, journals.folder):
        if turn:
            run.end_what_need_not_go_on(seconds)
        if all(tuner.done for tuner in tuners):
            return run.result()
        _warn_of_versions(contents[0])
        for book, one in zip(journals.books, contents, strict=True):
            book.event(what="resumed", evaluations=len(one.history), dropped_bytes=one.torn, versions=versions())
        return run.go()


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
    setting = replace(contents.setting, options=options, lower_bound=lower_bound_of(objective))
    search = replace(contents.search, setting=setting, status=Status.RUNNING)
    return Tuner.at(search.within_budgets() if setting.ledger.records else search)


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


def _fingerprint(objective: object) -> dict[str, str]:
    found = Fingerprint()
    found.add("objective", type(objective).__qualname__)
    own = offered(objective, "fingerprint")
    parts = {} if own is None else own()
    if not isinstance(parts, Mapping):
        raise TypeError(f"fingerprint() must return a dictionary, got {type(parts).__name__}")
    space = space_of(objective)
    for name, value in {**({} if space is None else {"space": space.ranges}), **parts}.items():
        found.add(str(name), value)
    return found.parts


def _check_objective(objective: object, options: Options) -> None:
    oracle(objective, options.policy)
    derivatives_of(objective, options)


def _beside(objective: object, options: Options, whole: bool, listed: bool) -> Beside | None:
    """What bounds F in the whole space while starts go on, if that is asked for."""
    if options.global_gap == 0.0:
        return None
    if not (listed and whole):
        raise ValueError("global_gap needs `starts`, and no other bounds than those of the problem's space")
    return Beside(objective, options.global_gap)  # type: ignore[arg-type]


def _kept(beside: Beside | None, folder: Path | None) -> AbstractContextManager[None]:
    return nullcontext() if beside is None else beside.kept_in(folder)


def _check_callback(callback: Any) -> None:
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {callback!r}")


@dataclass(frozen=True)
class _Run:
    """Starts on their way, and where they are written down."""

    tuners: Sequence[Tuner]
    objective: Objective
    callback: Callback | None = None
    books: Sequence[Journal] = ()  # one per start, or none at all
    journals: StartsJournal | None = None  # what holds the books of a list of starts together
    listed: bool = False  # a list of starts, be it of one: budgets are common to all, and the result has them all
    seconds_before: float = 0.0
    beside: Beside | None = None

    def go(self) -> Result:
        """The loop over turns: one evaluation for every start that is still in the race, until there is none.
        Whatever ends it, the journals are told."""
        began = time.monotonic() - self.seconds_before
        try:
            with termination():
                while running := [tuner for tuner in self.tuners if not tuner.done]:
                    records = self._make(self._turn(running), began)
                    if self.callback is not None:
                        for record in records:
                            self.callback(record)
                    self.end_what_need_not_go_on(time.monotonic() - began)
        except StopIteration:  # of the callback; the oracle's own errors are OracleErrors
            self._stop(Status.STOPPED)
        except KeyboardInterrupt:
            self._stop(Status.INTERRUPTED)
        except Terminated:
            self._stop(Status.TERMINATED)
        except TimeOver:  # of an objective that keeps to a time of its own
            self._stop(Status.MAX_SECONDS)
        except JournalError as error:
            if not self.books:  # somebody else's, raised by the callback
                raise
            self._stop_without_journal(error)
        except OracleError as error:
            self._stop(Status.FAILED)
            self._close("" if self.listed else str(error))
            raise OracleError(str(error), error.theta, self.result()) from error.__cause__
        self._close()
        return self.result()

    def result(self) -> Result:
        """Of the start with the least proven upper bound; with those of all, if they were given as a list."""
        results = tuple(tuner.result() for tuner in self.tuners)
        space = space_of(self.objective)
        if space is not None:
            results = tuple(replace(one, params=space.params(one.theta), space=space) for one in results)
        i, best = min(enumerate(results), key=lambda one: (one[1].interval[1], one[1].cost))
        if best.evaluation is not None and best.status.leaves_time and self.tuners[i].options.noise is None:
            scaling = self.tuners[i].setting.scaling
            proven = stationarity_of(self.objective, best.evaluation, (scaling.lower, scaling.upper))
            best = replace(best, stationarity=proven)
        return replace(best, starts=results) if self.listed else best

    def write_down(self, turn: Sequence[tuple[Told, Evaluation]], seconds: float) -> None:
        """A turn that the tuners know already: as a whole, then into the journals."""
        if self.journals is not None:
            told = [one for one, _ in turn]
            self.journals.keep(told, [self.tuners[one.start].history[-1] for one in told], seconds)
        for one, evaluation in turn:
            self.books[one.start].keep(evaluation, one.encoded, self.tuners[one.start].known)

    def end_what_need_not_go_on(self, seconds: float) -> None:
        """Of a list of starts: all, if a budget is spent or one is on target, and those that others have overtaken."""
        if not self.listed:  # its tuner looks after the budgets
            return
        tuners, options = self.tuners, self.tuners[0].options
        on_target = [i for i, tuner in enumerate(tuners) if tuner.known.status is Status.TARGET]
        if on_target:
            self._stop(Status.OVERTAKEN, f"F is proven to be at most target_cost at start {on_target[0]}")
        elif self._evaluations >= options.max_evaluations:
            self._end(Status.MAX_EVALUATIONS)
        elif sum(tuner.known.ledger.work for tuner in tuners) >= options.max_work:
            self._end(Status.MAX_WORK)
        elif seconds >= options.max_seconds:
            self._end(Status.MAX_SECONDS)
        if self._behind:
            return
        found = overtaken([one.known for one in tuners])
        if self.beside is not None and any(tuner.known.status is Status.RUNNING for tuner in tuners):
            found |= self._looking_where_nothing_is(self.beside)
        for i, reason in found.items():
            tuners[i].stop(Status.OVERTAKEN, reason)
            if self.journals is not None:
                self.journals.give_up(i, reason)

    def _looking_where_nothing_is(self, beside: Beside) -> dict[int, str]:
        """The starts that need not go on for what is proven of the whole space, with the reason; all are ended here if
        that suffices."""
        known = {i: tuner.known.best for i, tuner in enumerate(self.tuners) if tuner.known.best is not None}
        beside.advance(self._evaluations)
        upper, best = min((point.evaluation.interval[1], i) for i, point in known.items())
        if beside.suffices(upper):
            self._stop(Status.GLOBAL, f"F is nowhere less than {beside.search.lower!r}")
            return {}
        found = {}
        for i, point in known.items():
            tuner = self.tuners[i]
            if i == best or tuner.known.status is not Status.RUNNING:
                continue
            scaling, delta = tuner.setting.scaling, tuner.known.strategy.delta
            low, high = (scaling.to_theta(point.u + way * delta) for way in (-1.0, 1.0))
            if beside.ruled_out(low, high, upper):
                found[i] = f"nothing in its trust region is proven to be better than F at start {best}"
        return found

    def _end(self, status: Status) -> None:
        """A budget is spent: those that have ended by now have, whatever they were about to be told."""
        if not all([tuner.done for tuner in self.tuners]):
            self._stop(status)

    @property
    def _evaluations(self) -> int:
        return sum(len(tuner.history) for tuner in self.tuners)

    def _turn(self, running: Sequence[Tuner]) -> list[Tuner]:
        """Whose turn it is: the most promising first, as many as max_evaluations allows."""
        left = self.tuners[0].options.max_evaluations - self._evaluations
        return sorted(self._behind or running, key=_promising)[:left]

    @property
    def _behind(self) -> list[Tuner]:
        """Starts that go on and have yet to make their evaluation of a turn that an earlier budget has cut short."""
        turns = max(len(tuner.history) for tuner in self.tuners)
        return [one for one in self.tuners if one.known.status is Status.RUNNING and len(one.history) < turns]

    def _make(self, turn: Sequence[Tuner], began: float) -> list[Record]:
        """The evaluations of a turn, each told to its start; with journals, all on disk when this returns."""
        answers = _evaluate(self.objective, [tuner.ask() for tuner in turn], self.tuners[0].options)
        if not self.books:
            return [tuner.tell(one) for tuner, one in zip(turn, answers, strict=True)]
        evaluations = list(answers)
        with undisturbed():
            told = []
            for tuner, evaluation in zip(turn, evaluations, strict=True):
                tuner.check(evaluation)
                number = next(k for k, other in enumerate(self.tuners) if other is tuner)
                told.append(Told(number, len(tuner.history) + 1, _encoded(tuner, evaluation)))
            known = [decode(one.encoded) for one in told]  # the journal knows no less
            records = [tuner.tell(evaluation) for tuner, evaluation in zip(turn, known, strict=True)]
            if self.journals is None:
                self._report_events()
            self.write_down(list(zip(told, known, strict=True)), time.monotonic() - began)
            if self.journals is not None:  # a turn goes before what belongs to it
                self._report_events()
        return records

    def _report_events(self) -> None:
        for event in events_of(self.objective):
            self.books[0].event(evaluation=self._evaluations, **event)

    def _stop(self, status: Status, detail: str = "") -> None:
        for tuner in self.tuners:
            if tuner.known.status is Status.RUNNING:
                tuner.stop(status, detail)

    def _stop_without_journal(self, error: JournalError) -> None:
        """Those that run, and those whose last evaluation has ended the search but is not on disk."""
        place = self.books[0].path if self.journals is None else self.journals.folder
        held = f"it holds {sum(book.evaluations for book in self.books)} of {self._evaluations} evaluations"
        for book, tuner in zip(self.books, self.tuners, strict=True):
            if tuner.known.status is Status.RUNNING or book.evaluations < len(tuner.history):
                tuner.stop(Status.JOURNAL, f"{place}: {error.__cause__ or error}; {held}")

    def _close(self, message: str = "") -> None:
        for book, tuner in zip(self.books, self.tuners, strict=False):
            found = tuner.result()
            with suppress(JournalError), undisturbed():  # it is for readers only, and the result says it, too
                book.end(found.status.name, message or found.message, found.evaluations)


def _promising(tuner: Tuner) -> float:
    """The lower, the sooner its turn: what is proven about its incumbent, nothing yet first."""
    best = tuner.known.best
    return -math.inf if best is None else best.evaluation.interval[1]


def _encoded(tuner: Tuner, evaluation: Evaluation) -> Any:
    try:
        return encode(evaluation)
    except TypeError as error:
        theta = tuner.ask().theta
        where = np.array2string(theta, precision=17)
        raise OracleError(f"evaluation at theta = {where}: {error}", theta) from error


def _evaluate(objective: Objective, requests: Sequence[Request], options: Options) -> Iterator[Evaluation]:
    """All requests of a turn: at once where the objective offers it, else one after the other; with derivatives where
    they are wanted and to be had."""
    policy, differentiate = options.policy, derivatives_of(objective, options)
    one_by_one, batch = oracle(objective, policy), offered(objective, "evaluate_all")
    answers: list[Evaluation] = []
    if batch is not None and len(requests) > 1:
        thetas = [request.theta.copy() for request in requests]
        within, warm = [request.within for request in requests], [request.warm for request in requests]
        with suppress(Exception):  # whoever it was will fail alone as well, and is named then
            answers = list(batch(thetas, within=within, warm=warm, policy=policy))
    for i, request in enumerate(requests):
        known = i < len(answers)
        answer = answers[i] if known else one_by_one(request.theta, within=request.within, warm=request.warm)
        usable = isinstance(answer, Evaluation) and answer.failure is None and answer.interval[1] <= request.below
        yield differentiate(answer) if request.derivatives and differentiate is not None and usable else answer
