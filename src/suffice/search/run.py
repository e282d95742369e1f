"""The one upper loop: ask -> evaluate -> tell -> write down.

Starts go on side by side, one evaluation each in turn; theta0 alone is a list of one. A run may end before the search
does: by Ctrl-C, SIGTERM, a spent budget, the callback, a journal that cannot be written. Each time the result has the
best point so far with its interval and a status that says why, and the journal has everything up to the last finished
evaluation.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.evaluation import Evaluation
from suffice.files import JournalError
from suffice.journal.answers import Journal, request_key
from suffice.journal.codec import decode, encode
from suffice.options import Options
from suffice.result import OracleError, Record, Result, Status
from suffice.search.objective import (
    Objective,
    derivatives_of,
    events_of,
    offered,
    oracle,
    space_of,
)
from suffice.search.starts import overtaken
from suffice.search.tuner import Request, Tuner, evaluations_of
from suffice.signals import Terminated, TimeOver, termination, undisturbed

Callback = Callable[[Record], object]


class Start(Tuner):
    """A start of a run, which forgets its answers as soon as its strategy does."""

    def _remember(self, evaluation: Evaluation) -> None:
        pass


@dataclass
class Run:
    """Starts on their way, and the journal of their answers."""

    tuners: Sequence[Start]
    objective: Objective
    callback: Callback | None = None
    journal: Journal | None = None
    listed: bool = False  # a list of starts, be it of one: the result has them all
    seconds_before: float = 0.0
    unwritten: Sequence[Start] = ()  # whose latest evaluation is not on disk

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
            self._give_up_overtaken()
        for tuner in self.tuners:
            tuner.limit(options)
        self._apply_budgets(self.seconds_before)

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
                    self._apply_budgets(time.monotonic() - began)
                    self._give_up_overtaken()
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
        results = tuple(tuner.result() for tuner in self.tuners)
        space = space_of(self.objective)
        if space is not None:
            results = tuple(replace(one, params=space.params(one.theta), space=space) for one in results)
        best = min(results, key=lambda one: (one.interval[1], one.cost))
        return replace(best, starts=results) if self.listed else best

    def _apply_budgets(self, seconds: float) -> None:
        """All starts, if what they share is spent or one is on target. Those that have ended by now have, whatever they
        were about to be told."""
        tuners, options = self.tuners, self.tuners[0].options
        on_target = [i for i, tuner in enumerate(tuners) if tuner.search.status is Status.TARGET]
        if on_target:
            self._stop(Status.OVERTAKEN, f"F is proven to be at most target_cost at start {on_target[0]}")
            return
        budgets = (
            (Status.MAX_EVALUATIONS, self._evaluations, options.max_evaluations),
            (Status.MAX_WORK, sum(tuner.search.ledger.work for tuner in tuners), options.max_work),
            (Status.MAX_SECONDS, seconds, options.max_seconds),
        )
        for status, spent, most in budgets:
            if spent >= most and not all([tuner.done for tuner in tuners]):
                self._stop(status)

    def _give_up_overtaken(self) -> None:
        """The starts that others have overtaken."""
        if self._behind:
            return
        for i, reason in overtaken([one.search for one in self.tuners]).items():
            self.tuners[i].stop(Status.OVERTAKEN, reason)

    @property
    def _evaluations(self) -> int:
        return sum(len(tuner.history) for tuner in self.tuners)

    def _turn(self, running: Sequence[Start]) -> list[Start]:
        """Whose turn it is: the most promising first, as many as max_evaluations allows."""
        left = self.tuners[0].options.max_evaluations - self._evaluations
        return sorted(self._behind or running, key=_promising)[:left]

    @property
    def _behind(self) -> list[Start]:
        """Starts that go on and have yet to make their evaluation of a turn that an earlier budget has cut short."""
        turns = max(len(tuner.history) for tuner in self.tuners)
        return [one for one in self.tuners if one.search.status is Status.RUNNING and len(one.history) < turns]

    def _make(self, turn: Sequence[Start], began: float) -> list[Record]:
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
            self.journal.compact(one for tuner in self.tuners for one in evaluations_of(tuner.search))
        return [tuner.history[-1] for tuner in turn]

    def _key(self, request: Request) -> str:
        return request_key(self.tuners[0].options.policy, request.theta, request.within, request.warm)

    def _stop(self, status: Status, detail: str = "") -> None:
        for tuner in self.tuners:
            if tuner.search.status is Status.RUNNING:
                tuner.stop(status, detail)

    def _stop_without_journal(self, error: JournalError) -> None:
        """Those that run, and those whose last evaluation has ended the search but is not on disk."""
        assert self.journal is not None
        held = f"it holds {self.journal.evaluations} of {self._evaluations} evaluations"
        for tuner in self.tuners:
            if tuner.search.status is Status.RUNNING or tuner in self.unwritten:
                tuner.stop(Status.JOURNAL, f"{self.journal.path}: {error.__cause__ or error}; {held}")

    def _close(self, message: str = "") -> None:
        if self.journal is not None:
            found = self.result()
            with suppress(JournalError), undisturbed():  # it is for readers only, and the result says it, too
                self.journal.end(found.status.name, message or found.message, self._evaluations)


def _promising(tuner: Start) -> float:
    """The lower, the sooner its turn: what is proven about its incumbent, nothing yet first."""
    best = tuner.search.best
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
