"""Tasks handed out, answers looked at, and lost ones handed out again: what all executors do."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Sequence
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
        packed = [pack(task) for task in tasks]
        answers: list[Any] = [None] * len(tasks)
        lost, lacking = [0] * len(tasks), [False] * len(tasks)
        waiting = list(reversed(range(len(tasks))))
        under_way: dict[Future[Any], tuple[int, float]] = {}

        def again(index: int, reason: str) -> None:
            lost[index] += 1
            name = getattr(tasks[index], "j", index)
            self.events.append({"what": "a solve was lost", "problem": name, "times": lost[index], "reason": reason})
            if lost[index] >= self.attempts:
                raise WorkerError(f"the solve of problem {name} was lost {lost[index]} times, lastly: {reason}")
            waiting.append(index)

        def hand_out_again(gone: list[Future[Any]]) -> None:
            waiting.extend(under_way.pop(future)[0] for future in gone if future in under_way)

        try:
            while waiting or under_way:
                while waiting and len(under_way) < self.width():
                    index = waiting.pop()
                    try:
                        under_way[self.submit(packed[index], lacking[index])] = index, time.monotonic()
                    except Exception as error:  # a pool that broke a moment ago
                        again(index, _reason(error))
                        hand_out_again(self.recover(error, list(under_way)))
                done, _ = wait(under_way, self._patience(under_way.values()), FIRST_COMPLETED)
                trouble: Exception | None = None
                for future in done:
                    index, _ = under_way.pop(future)
                    try:
                        answer = future.result()
                    except Exception as error:
                        trouble = error
                        again(index, _reason(error))
                        continue
                    if isinstance(answer, Missing):
                        lacking[index] = True
                        waiting.append(index)
                        continue
                    answer = unpack(answer)
                    if isinstance(answer, Raised):
                        raise answer.error
                    complaint = work.complaint(tasks[index], answer)
                    if complaint is not None:
                        again(index, f"the answer is no solution: {complaint}")
                    else:
                        answers[index] = answer
                late = [future for future, (_, since) in under_way.items() if self._is_late(since)]
                for future in late:
                    again(under_way.pop(future)[0], f"it took longer than {self.deadline} s")
                if late:
                    hand_out_again(self.give_up(late, list(under_way)))
                if trouble is not None:
                    hand_out_again(self.recover(trouble, list(under_way)))
        except BaseException:
            self.abandon(list(under_way))
            raise
        return answers

    def _is_late(self, since: float) -> bool:
        return self.deadline is not None and time.monotonic() - since > self.deadline

    def _patience(self, under_way: Iterable[tuple[int, float]]) -> float | None:
        if self.deadline is None:
            return None
        return max(min(since for _, since in under_way) + self.deadline - time.monotonic(), 0.0) + 0.01

    # What the executors below differ in

    def prepare(self, token: str, work: Work) -> None:
        """New work: from now on tasks belong to it."""
        raise NotImplementedError

    def submit(self, task: bytes, with_data: bool) -> Future[Any]:
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


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0][:300]


class Serial(Spread):
    """This process, one task after the other, exactly as a worker would: what others are compared with."""

    def map(self, work: Work, tasks: Sequence[Any]) -> list[Any]:
        with controller().limit(limits=1):
            return [work.solve(task) for task in tasks]
