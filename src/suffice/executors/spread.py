"""Tasks handed out, answers looked at, and lost ones handed out again: what all executors do."""

from __future__ import annotations

import math
import os
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from suffice.arrays import positive, whole_number
from suffice.executors.worker import Missing, Raised, Work, controller, pack, unpack
from suffice.protocols import Closing


class WorkerError(RuntimeError):
    """A task was lost too often."""


class Spread(Closing):
    """What all executors do: hand out tasks, look at the answers, hand out again what was lost.

    A task that takes more than `deadline` seconds is handed out again; one that was lost `attempts` times in a row ends
    the run by `WorkerError`.
    """

    def __init__(self, *, deadline: float | None = None, attempts: int = 8) -> None:
        self.deadline = None if deadline is None else positive(deadline, "deadline")
        self.attempts = whole_number(attempts, "attempts", least=1)
        self.events: list[dict[str, Any]] = []
        self._token = ""
        self._work: Work | None = None
        self._parent = f"{uuid.uuid4().hex}.{os.getpid()}"

    def map(self, work: Work, tasks: Sequence[Any]) -> list[Any]:
        """[work.solve(task) for task in tasks]."""
        if work is not self._work:
            self._token = f"{self._parent}:{uuid.uuid4().hex}"
            self.prepare(self._token, work)
            self._work = work
        shift = _Shift(self, work, tasks)
        try:
            while shift.waiting or shift.under_way:
                shift.hand_out()
                shift.collect()
        except BaseException:
            self.abandon(list(shift.under_way))
            raise
        return shift.answers

    # What the executors below differ in

    def prepare(self, token: str, work: Work) -> None:
        """New work: from now on tasks belong to it."""
        raise NotImplementedError

    def submit(self, task: bytes, missing: Missing | None) -> Future[Any]:
        """Hand out a task; `missing` is the answer of a worker that lacked the data for it."""
        raise NotImplementedError

    def width(self) -> int:
        """How many tasks are handed out at a time; with a deadline, no more than start at once."""
        raise NotImplementedError

    def recover(self, error: Exception, under_way: list[Future[Any]]) -> list[Future[Any]]:
        """After a task was lost: be ready to take tasks again. Returns those that are lost with it."""
        raise NotImplementedError

    def give_up(self, late: list[Future[Any]], under_way: list[Future[Any]]) -> list[Future[Any]]:
        """End tasks that are late. Returns those that are lost with them."""
        raise NotImplementedError

    def abandon(self, under_way: list[Future[Any]]) -> None:
        """The answers are not wanted any more."""
        for future in under_way:
            future.cancel()


class _Shift:
    """All tasks of one call: waiting, under way since some moment, or answered."""

    def __init__(self, spread: Spread, work: Work, tasks: Sequence[Any]) -> None:
        self.spread, self.work, self.tasks = spread, work, tasks
        self.packed = [pack(task) for task in tasks]
        self.answers: list[Any] = [None] * len(tasks)
        self.lost = [0] * len(tasks)
        self.missing: list[Missing | None] = [None] * len(tasks)
        self.waiting = list(reversed(range(len(tasks))))
        self.under_way: dict[Future[Any], tuple[int, float]] = {}

    def hand_out(self) -> None:
        """As many tasks as there is room for."""
        while self.waiting and len(self.under_way) < self.spread.width():
            index = self.waiting.pop()
            try:
                future = self.spread.submit(self.packed[index], self.missing[index])
            except Exception as error:  # a pool that broke a moment ago
                self._again(index, _reason(error))
                self._lose(self.spread.recover(error, list(self.under_way)))
            else:
                self.under_way[future] = index, time.monotonic()

    def collect(self) -> None:
        """Wait until a task is answered or late, and look at all that are."""
        spread, trouble = self.spread, None
        deadline = math.inf if spread.deadline is None else spread.deadline
        left = min((since for _, since in self.under_way.values()), default=0.0) + deadline - time.monotonic()
        patience = None if spread.deadline is None else max(left, 0.0) + 0.01
        for future in wait(self.under_way, patience, FIRST_COMPLETED).done:
            index, _ = self.under_way.pop(future)
            try:
                answer = future.result()
            except Exception as error:
                trouble = error
                self._again(index, _reason(error))
            else:
                self._take(index, answer)
        now = time.monotonic()
        late = [future for future, (_, since) in self.under_way.items() if now - since > deadline]
        for future in late:
            self._again(self.under_way.pop(future)[0], f"it took longer than {deadline} s")
        if late:
            self._lose(spread.give_up(late, list(self.under_way)))
        if trouble is not None:
            self._lose(spread.recover(trouble, list(self.under_way)))

    def _take(self, index: int, answer: Any) -> None:
        if isinstance(answer, Missing):
            self.missing[index] = answer
            self.waiting.append(index)
            return
        answer = unpack(answer)
        if isinstance(answer, Raised):
            raise answer.error
        complaint = self.work.complaint(self.tasks[index], answer)
        if complaint is not None:
            self._again(index, f"the answer is no solution: {complaint}")
        else:
            self.answers[index] = answer

    def _again(self, index: int, reason: str) -> None:
        self.lost[index] += 1
        name, times = getattr(self.tasks[index], "j", index), self.lost[index]
        self.spread.events.append({"what": "a solve was lost", "problem": name, "times": times, "reason": reason})
        if times >= self.spread.attempts:
            raise WorkerError(f"the solve of problem {name} was lost {times} times, lastly: {reason}")
        self.waiting.append(index)

    def _lose(self, gone: list[Future[Any]]) -> None:
        self.waiting.extend(self.under_way.pop(future)[0] for future in gone if future in self.under_way)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0][:300]


class Serial(Spread):
    """This process, one task after the other, exactly as a worker would: what others are compared with."""

    def map(self, work: Work, tasks: Sequence[Any]) -> list[Any]:
        with controller().limit(limits=1):
            return [work.solve(task) for task in tasks]
