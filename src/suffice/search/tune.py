"""The one upper loop: ask -> evaluate -> tell -> write down. `tune` begins a run, `resume` goes on with one from its
journal.

Starts go on side by side, one evaluation each in turn; theta0 alone is a list of one. A run may end before the search
does: by Ctrl-C, SIGTERM, a spent budget, the callback, a journal that cannot be written. Each time the result has the
best point so far with its interval and a status that says why, and the journal has everything up to the last finished
evaluation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import vector
from suffice.evaluation import Evaluation
from suffice.files import JournalError
from suffice.journal.answers import Contents, Journal, request_key
from suffice.journal.codec import decode, encode
from suffice.journal.fingerprint import Fingerprint, differences, versions
from suffice.journal.lines import NONSENSE, shortened
from suffice.options import BUDGETS, Options
from suffice.result import OracleError, Record, Result, Status
from suffice.search.objective import Objective, derivatives_of, offered, oracle, space_of
from suffice.search.state import Begin
from suffice.search.tuner import Request, Tuner, evaluations_of, unlimited
from suffice.signals import Terminated, TimeOver, termination, undisturbed

Callback = Callable[[Record], object]
JournalLike = str | os.PathLike[str] | Journal


def tune(
    objective: Objective,
    theta0: Any = None,
    *,
    starts: Iterable[Any] | None = None,
    bounds: Any = None,
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

    `starts` are more starts; theta0, if it is given too, comes first. The search is local, so each may find another
    minimiser. All go on side by side, one evaluation each in turn, until they end, until one is on target, or until a
    budget of `options` is spent, which all of them share: max_work and max_seconds are checked after every turn. An
    objective with `evaluate_all(thetas, *, within, warm, policy)`, such as a `BilevelProblem`, is asked for a whole
    turn at once. The result is that of the start with the least proven upper bound of F; `result.starts` has the
    results of all, in their order.

    `seen` are evaluations of the same objective that were made before: they are not made again for being known, but
    models of steps near them know more of F's curvature, from the first step on.

    `strategy` is an upper-level method of your own: a function of u, the setting and `seen` that gives the
    `suffice.search.state.Strategy` at u. None: a trust region, or quasi-Newton steps for many parameters.

    `journal` names a folder in which every evaluation is on disk before the next one begins; `suffice.resume` continues
    the run, to the same result. It is made if need be, and refused if it holds a run already.

    Ctrl-C ends the run, and so does SIGTERM if the process has no handler of its own for it; the evaluation under way
    is given up, and the result holds the best point so far, with a status that says why. A second signal acts as usual.
    A journal that can no longer be written (a full disk, say) ends the run as well. An objective that fails raises
    `OracleError`, whose `result` holds everything evaluated before. Residuals that are infinite or NaN, or whose sum of
    squares overflows, are no failure but at theta0: a step there counts as rejected, and the search goes on closer by.
    """
    space = space_of(objective)
    box = space.bounds if space is not None and bounds is None else bounds
    given: dict[str, Any] = {"bounds": box, "options": options, "seen": seen, "strategy": strategy}
    given["lower_bound"] = offered(objective, "lower_bound")
    tuners = [Tuner(theta, **given) for theta in _starts(theta0, starts, space)]
    run = Run(tuners, objective, callback, listed=starts is not None)
    with nullcontext() if journal is None else _book(journal) as run.journal:
        if run.journal is not None:
            run.journal.create(_fingerprint(objective, strategy), run.arguments)
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
    with _book(journal) as book:
        contents = book.open()
        tuners, listed, before = _taken_up(contents, options, problem, strategy)
        run = Run(tuners, problem, callback, book, listed, contents.seconds)
        run.replay(before if options is None else options)
        if all(tuner.done for tuner in run.tuners):
            return run.result()
        contents.warn_of_versions()
        book.event(what="resumed", evaluations=contents.answers, dropped_bytes=contents.torn, versions=versions())
        return run.go()


def _taken_up(
    contents: Contents, options: Options | None, problem: Objective, strategy: Begin | None
) -> tuple[list[Tuner], bool, Options]:
    """The starts of a run as it began, without budgets, whether they were given as a list, and its options."""
    fingerprint = _fingerprint(problem, strategy)
    try:
        if contents.arguments is None:
            raise TypeError("it is of another kind of search, and no run of suffice.tune")
        given = dict(contents.arguments)
        thetas, listed, before = given.pop("theta0"), bool(given.pop("listed")), given["options"]
        if not isinstance(before, Options):
            raise TypeError(f"options must be Options, got {type(before).__name__}")
        given |= {"options": unlimited(before), "lower_bound": offered(problem, "lower_bound"), "strategy": strategy}
        tuners = [Tuner(theta, **given) for theta in thetas]
        if not tuners:
            raise ValueError("there must be a start")
    except NONSENSE as error:
        raise JournalError(f"the journal {contents.path} cannot be understood: {shortened(error)}") from error
    known = contents.header["fingerprint"]
    contents.refuse_changes(_changed_options(before, options) + differences(known, fingerprint))
    return tuners, listed, before


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
    pairs = ((name, old, getattr(now, name)) for name, old in vars(before).items() if name not in BUDGETS)
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


@dataclass
class Run:
    """Starts on their way, and the journal of their answers."""

    tuners: Sequence[Tuner]
    objective: Objective
    callback: Callback | None = None
    journal: Journal | None = None
    listed: bool = False  # a list of starts, be it of one: the result has them all
    seconds_before: float = 0.0
    unwritten: Sequence[Tuner] = ()  # whose latest evaluation is not on disk

    def __post_init__(self) -> None:
        oracle(self.objective, self.tuners[0].options.policy)  # what cannot be asked is refused here
        derivatives_of(self.objective, self.tuners[0].options)
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback must be callable, got {self.callback!r}")
        for tuner in self.tuners:
            tuner.remembers = False

    @property
    def arguments(self) -> dict[str, Any]:
        """What all starts began with."""
        return {
            **self.tuners[0].arguments,
            "theta0": tuple(tuner.arguments["theta0"] for tuner in self.tuners),
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
        for tuner in self.tuners:
            tuner.limit(options)
        self._apply_budgets(self.seconds_before)

    def go(self) -> Result:
        """The loop over turns: one evaluation for every start that has not ended, until there is none.
        Whatever ends it, the journal is told."""
        began = time.monotonic() - self.seconds_before
        try:
            with termination():
                while running := [tuner for tuner in self.tuners if not tuner.done]:
                    records = self._make(self._turn(running), began)
                    if self.callback is not None:
                        for record in records:
                            self.callback(record)
                    self._apply_budgets(time.monotonic() - began)
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
            held = f"it holds {self.journal.evaluations} of {self._evaluations} evaluations"
            self._stop(Status.JOURNAL, f"{self.journal.path}: {error.__cause__ or error}; {held}", self.unwritten)
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
        best = min(results, key=_by_bound)
        return replace(best, starts=results) if self.listed else best

    def _apply_budgets(self, seconds: float) -> None:
        """All starts, if what they share is spent or one is on target. Those that have ended by now have, whatever they
        were about to be told."""
        tuners, options = self.tuners, self.tuners[0].options
        if any(tuner.search.status is Status.TARGET for tuner in tuners):
            self._stop(Status.OVERTAKEN)
            return
        budgets = (
            (Status.MAX_EVALUATIONS, self._evaluations, options.max_evaluations),
            (Status.MAX_WORK, sum(tuner.search.ledger.work for tuner in tuners), options.max_work),
            (Status.MAX_SECONDS, seconds, options.max_seconds),
        )
        for status, spent, most in budgets:
            if spent >= most and not all([tuner.done for tuner in tuners]):
                self._stop(status)

    @property
    def _evaluations(self) -> int:
        return sum(len(tuner.history) for tuner in self.tuners)

    def _turn(self, running: Sequence[Tuner]) -> list[Tuner]:
        """Whose turn it is: all that have made the fewest evaluations, as many as max_evaluations allows."""
        fewest = min(len(tuner.history) for tuner in running)
        left = self.tuners[0].options.max_evaluations - self._evaluations
        return [tuner for tuner in running if len(tuner.history) == fewest][:left]

    def _make(self, turn: Sequence[Tuner], began: float) -> list[Record]:
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
            take_events = offered(self.objective, "take_events")
            for event in () if take_events is None else take_events():
                self.journal.event(evaluation=self._evaluations, **event)
            self.journal.write(lines, time.monotonic() - began)
            self.unwritten = ()
            self.journal.compact(one for tuner in self.tuners for one in evaluations_of(tuner.search))
        return [tuner.history[-1] for tuner in turn]

    def _key(self, request: Request) -> str:
        return request_key(self.tuners[0].options.policy, request.theta, request.within, request.warm)

    def _stop(self, status: Status, detail: str = "", unwritten: Sequence[Tuner] = ()) -> None:
        """Those that run, and those whose last evaluation has ended the search but is not on disk."""
        for tuner in self.tuners:
            if tuner.search.status is Status.RUNNING or tuner in unwritten:
                tuner.stop(status, detail)

    def _close(self, message: str = "") -> None:
        if self.journal is not None:
            found = min((tuner.result() for tuner in self.tuners), key=_by_bound)
            with suppress(JournalError), undisturbed():  # it is for readers only, and the result says it, too
                self.journal.end(found.status.name, message or found.message, self._evaluations)


def _by_bound(result: Result) -> tuple[float, float]:
    return result.interval[1], result.cost


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
