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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from suffice.arrays import vector
from suffice.evaluation import Evaluation
from suffice.files import JournalError
from suffice.globally.beside import Beside
from suffice.journal.answers import Contents, Journal, request_key
from suffice.journal.codec import decode, encode
from suffice.journal.fingerprint import Fingerprint, differences, versions
from suffice.journal.lines import NONSENSE, shortened
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
from suffice.search.strategy import Begin
from suffice.search.tuner import Request, Tuner, held_by, unlimited
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
    strategy: Begin | None = None,
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

    `strategy` is an upper-level method of your own: a function of u, the setting and `seen` that gives the
    `suffice.search.strategy.Strategy` at u. None: a trust region, or quasi-Newton steps for many parameters.

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
    given["strategy"] = strategy
    tuners = [_Start(theta, **given) for theta in thetas]
    _check_objective(objective, tuners[0].options)  # whoever has none learns it before a journal is made
    _check_callback(callback)
    beside = _beside(objective, tuners[0].options, whole, starts is not None)
    run = _Run(tuners, objective, callback, listed=starts is not None, beside=beside)
    if journal is None:
        with _kept(beside, None):
            return run.go()
    with _book(journal) as run.journal:
        run.journal.create(_fingerprint(objective, strategy), run.begun)
        with _kept(beside, Path(run.journal.folder)):
            return run.go()


def resume(
    journal: JournalLike,
    *,
    problem: Objective,
    options: Options | None = None,
    callback: Callback | None = None,
    strategy: Begin | None = None,
) -> Result:
    """Continue the run in a journal from where it stands, to the result of an uninterrupted run.

    A journal holds data, never code, so the objective is given again as `problem`, and so is a `strategy` of your own.
    They have to be the same: what the problem's fingerprint covers (for a `BilevelProblem` data, losses, space, solver,
    and the penalty at a few points; for any other objective what its method `fingerprint()` returns, or else its class
    and space only) is compared, and a difference is refused with its name. `options` may change the budgets
    (max_evaluations, max_work, max_seconds, target_cost), which are totals that include everything done before; every
    other option has to be as it was. A run that has ended is not run again.
    """
    _check_callback(callback)
    with _book(journal) as book:
        cause = None
        try:
            contents = book.open()
        except JournalError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            contents, cause = book.look(), error  # a finished run may be looked at where nobody may write
        run, options = _taken_up(contents, options, problem, strategy)
        run.journal, run.callback = book, callback
        with _kept(run.beside, Path(book.folder)):
            run.replay(options)
            if all(tuner.done for tuner in run.tuners):
                return run.result()
            if cause is not None:
                raise cause
            contents.warn_of_versions()
            book.event(what="resumed", evaluations=contents.answers, dropped_bytes=contents.torn, versions=versions())
            return run.go()


def _taken_up(
    contents: Contents, options: Options | None, problem: Objective, strategy: Begin | None
) -> tuple[_Run, Options]:
    """The run as it began, without budgets, and its options."""
    fingerprint = _fingerprint(problem, strategy)
    try:
        if contents.begun is None:
            raise TypeError("it is of another kind of search, and no run of suffice.tune")
        given = dict(contents.begun)
        thetas, listed, before = given.pop("theta0"), bool(given.pop("listed")), given["options"]
        if not isinstance(before, Options):
            raise TypeError(f"options must be Options, got {type(before).__name__}")
        given |= {"options": unlimited(before), "lower_bound": lower_bound_of(problem), "strategy": strategy}
        tuners = [_Start(theta, **given) for theta in thetas]
        if not tuners:
            raise ValueError("there must be a start")
    except NONSENSE as error:
        raise JournalError(f"the journal {contents.path} cannot be understood: {shortened(error)}") from error
    changed = _changed_options(before, options) + differences(contents.fingerprint, fingerprint)
    contents.refuse_changes(changed)
    options = before if options is None else options
    _check_objective(problem, options)
    beside = _beside(problem, options, True, listed)
    return _Run(tuners, problem, listed=listed, seconds_before=contents.seconds, beside=beside), options


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


def _fingerprint(objective: object, strategy: Begin | None) -> dict[str, str]:
    found = Fingerprint()
    found.add("objective", type(objective).__qualname__)
    if strategy is not None:
        found.add("strategy", strategy)
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


class _Start(Tuner):
    """A start of a run, which forgets its answers as soon as its strategy does."""

    def _remember(self, evaluation: Evaluation) -> None:
        pass


@dataclass
class _Run:
    """Starts on their way, and where their answers are written down."""

    tuners: Sequence[_Start]
    objective: Objective
    callback: Callback | None = None
    journal: Journal | None = None
    listed: bool = False  # a list of starts, be it of one: the result has them all
    seconds_before: float = 0.0
    beside: Beside | None = None
    unwritten: Sequence[_Start] = ()  # whose latest evaluation is not on disk

    @property
    def begun(self) -> dict[str, Any]:
        """What all starts began with."""
        return {
            **self.tuners[0].begun,
            "theta0": tuple(tuner.begun["theta0"] for tuner in self.tuners),
            "listed": self.listed,
        }

    def replay(self, options: Options) -> None:
        """Tell the starts what the journal holds, as if there were no budgets; then there are these."""
        assert self.journal is not None
        while running := [tuner for tuner in self.tuners if not tuner.done]:
            turn = [(tuner, self.journal.take(self._key(tuner.ask()))) for tuner in self._turn(running)]
            known = [(tuner, evaluation) for tuner, evaluation in turn if evaluation is not None]
            try:
                for tuner, evaluation in known:
                    tuner.tell(evaluation, 0.0)
            except OracleError as error:
                raise JournalError(f"the journal {self.journal.path} cannot be understood: {error}") from error
            if not known:
                break
            self._give_up_what_need_not_go_on()
        for tuner in self.tuners:
            tuner.limit(options)
        self._end_where_budgets_are_spent(self.seconds_before)

    def go(self) -> Result:
        """The loop over turns: one evaluation for every start that is still in the race, until there is none.
        Whatever ends it, the journal is told."""
        began = time.monotonic() - self.seconds_before
        try:
            with termination():
                while running := [tuner for tuner in self.tuners if not tuner.done]:
                    records = self._make(self._turn(running), began)
                    if self.callback is not None:
                        for record in records:
                            self.callback(record)
                    self._end_where_budgets_are_spent(time.monotonic() - began)
                    self._give_up_what_need_not_go_on()
        except StopIteration:  # of the callback; the oracle's own errors are OracleErrors
            self._stop(Status.STOPPED)
        except KeyboardInterrupt:
            self._stop(Status.INTERRUPTED)
        except Terminated:
            self._stop(Status.TERMINATED)
        except TimeOver:  # of an objective that keeps to a time of its own
            self._stop(Status.MAX_SECONDS)
        except JournalError as error:
            if self.journal is None:  # somebody else's, raised by the callback
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
        i, best, results = self._best()
        if best.evaluation is not None and best.status.leaves_time and self.tuners[i].options.noise is None:
            scaling = self.tuners[i].setting.scaling
            proven = stationarity_of(self.objective, best.evaluation, (scaling.lower, scaling.upper))
            best = replace(best, stationarity=proven)
        return replace(best, starts=results) if self.listed else best

    def _best(self) -> tuple[int, Result, tuple[Result, ...]]:
        """The results of all starts, and the best one with its number."""
        results = tuple(tuner.result() for tuner in self.tuners)
        space = space_of(self.objective)
        if space is not None:
            results = tuple(replace(one, params=space.params(one.theta), space=space) for one in results)
        i, best = min(enumerate(results), key=lambda one: (one[1].interval[1], one[1].cost))
        return i, best, results

    def _end_where_budgets_are_spent(self, seconds: float) -> None:
        """All starts, if what they share is spent or one is on target."""
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

    def _give_up_what_need_not_go_on(self) -> None:
        """The starts that others have overtaken."""
        if self._behind:
            return
        tuners = self.tuners
        found = overtaken([one.known for one in tuners])
        if self.beside is not None and any(tuner.known.status is Status.RUNNING for tuner in tuners):
            found |= self._looking_where_nothing_is(self.beside)
        for i, reason in found.items():
            tuners[i].stop(Status.OVERTAKEN, reason)

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

    def _turn(self, running: Sequence[_Start]) -> list[_Start]:
        """Whose turn it is: the most promising first, as many as max_evaluations allows."""
        left = self.tuners[0].options.max_evaluations - self._evaluations
        return sorted(self._behind or running, key=_promising)[:left]

    @property
    def _behind(self) -> list[_Start]:
        """Starts that go on and have yet to make their evaluation of a turn that an earlier budget has cut short."""
        turns = max(len(tuner.history) for tuner in self.tuners)
        return [one for one in self.tuners if one.known.status is Status.RUNNING and len(one.history) < turns]

    def _make(self, turn: Sequence[_Start], began: float) -> list[Record]:
        """The evaluations of a turn, each told to its start; with a journal, all on disk when this returns."""
        requests = [tuner.ask() for tuner in turn]
        answers = _evaluate(self.objective, requests, self.tuners[0].options)
        if self.journal is None:
            return [tuner.tell(one, 0.0) for tuner, one in zip(turn, answers, strict=True)]
        made = list(answers)
        with undisturbed():
            for tuner, evaluation in zip(turn, made, strict=True):
                tuner.check(evaluation)
            encoded = [_encoded(request, one) for request, one in zip(requests, made, strict=True)]
            lines = []
            for tuner, request, one in zip(turn, requests, encoded, strict=True):
                record = tuner.tell(decode(one), 0.0)  # the journal knows no less
                place = {"start": self.tuners.index(tuner), "record": encode(record)}
                lines.append({"key": self._key(request), "purpose": request.purpose, "answer": one, **place})
            self.unwritten = turn
            for event in events_of(self.objective):
                self.journal.event(evaluation=self._evaluations, **event)
            self.journal.write(lines, time.monotonic() - began)
            self.unwritten = ()
            self.journal.compact(one for tuner in self.tuners for one in held_by(tuner.known))
        return [tuner.history[-1] for tuner in turn]

    def _key(self, request: Request) -> str:
        return request_key(self.tuners[0].options.policy, request.theta, request.within, request.warm)

    def _stop(self, status: Status, detail: str = "") -> None:
        for tuner in self.tuners:
            if tuner.known.status is Status.RUNNING:
                tuner.stop(status, detail)

    def _stop_without_journal(self, error: JournalError) -> None:
        """Those that run, and those whose last evaluation has ended the search but is not on disk."""
        assert self.journal is not None
        held = f"it holds {self.journal.evaluations} of {self._evaluations} evaluations"
        for tuner in self.tuners:
            if tuner.known.status is Status.RUNNING or tuner in self.unwritten:
                tuner.stop(Status.JOURNAL, f"{self.journal.path}: {error.__cause__ or error}; {held}")

    def _close(self, message: str = "") -> None:
        if self.journal is not None:
            found = self._best()[1]
            with suppress(JournalError), undisturbed():  # it is for readers only, and the result says it, too
                self.journal.end(found.status.name, message or found.message, self._evaluations)


def _promising(tuner: _Start) -> float:
    """The lower, the sooner its turn: what is proven about its incumbent, nothing yet first."""
    best = tuner.known.best
    return -math.inf if best is None else best.evaluation.interval[1]


def _encoded(request: Request, evaluation: Evaluation) -> Any:
    try:
        return encode(evaluation)
    except TypeError as error:
        where = np.array2string(request.theta, precision=17)
        raise OracleError(f"evaluation at theta = {where}: {error}", request.theta) from error


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
