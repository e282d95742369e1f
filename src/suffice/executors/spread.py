"""Tasks handed out, answers looked at, and lost ones handed out again: what all executors do. The other side, too: a
worker is given its work once and keeps it; tasks and answers are bytes, and it computes in one thread.

Work is given as bytes or, on one machine, as a folder that every process maps.
"""

from __future__ import annotations

import math
import mmap
import os
import pickle
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from suffice.arrays import positive, whole_number
from suffice.protocols import Closing

ALIGNMENT = 64


class Work(Protocol):
    """What is spread: it travels to the workers once; `solve` is a function of the task and nothing else."""

    def solve(self, task: Any) -> Any:
        """The answer to one task."""

    def complaint(self, task: Any, answer: Any) -> str | None:
        """What is wrong with an answer, or None."""


@dataclass(frozen=True)
class Raised:
    """The task raised this; it would do so elsewhere, too."""

    error: Exception


HELD: dict[str, Work] = {}
MISSING = b""  # a worker's answer if it does not hold the data yet


def call(token: str, task: bytes, data: bytes | str | None = None) -> Any:
    """One task, by a process that holds the work or is given it now, as bytes or as a folder of this machine; the
    answer in bytes.

    Tasks, work and answers are packed here rather than by the executor: arrays that others unpack may lie in memory
    where the processor's fast paths, which add in another order, cannot be taken.
    """
    if token not in HELD:
        if data is None:
            return MISSING
        _one_thread()
        drop(token.partition(":")[0])
        HELD[token] = pickle.loads(data) if isinstance(data, bytes) else _read_shared(Path(data))
    elif not token.partition(":")[0].endswith(f".{os.getpid()}"):  # a forked process was born with them
        _one_thread()
    try:
        answer = HELD[token].solve(pickle.loads(task))
    except MemoryError:
        raise  # another worker may have more
    except Exception as error:
        answer = Raised(error)
    return pack(answer)


def drop(parent: str) -> None:
    """What is held for this parent goes."""
    for known in [token for token in HELD if token.partition(":")[0] == parent]:
        del HELD[known]


def pack(value: Any, out_of_band: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    try:
        cloudpickle = import_module("cloudpickle")
    except ImportError:  # joblib brings it along, or its own copy
        cloudpickle = import_module("joblib.externals.cloudpickle")
    try:
        text: bytes = cloudpickle.dumps(value, protocol=5, buffer_callback=out_of_band)
    except Exception as error:
        raise TypeError(f"{type(value).__name__} cannot be sent to another process: {error}") from error
    return text


def unpack(answer: Any) -> Any:
    """A worker's answer; what cannot be unpacked is handed on, to be complained about."""
    try:
        return pickle.loads(answer)
    except Exception:
        return answer


@cache
def controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@cache
def _one_thread() -> None:
    """BLAS and OpenMP of this worker use one thread from now on: there are as many workers as there is room for."""
    import_module("scipy.linalg")  # whose BLAS is not NumPy's: only libraries that are there can be told
    controller().limit(limits=1)


def write_shared(work: Work, folder: Path) -> None:
    """Pickle with the arrays next to it, where every process can map them."""
    buffers: list[pickle.PickleBuffer] = []
    text = pack(work, buffers.append)
    sizes = []
    with (folder / "arrays").open("wb") as file:
        for buffer in buffers:
            raw = buffer.raw()
            sizes.append((file.tell(), raw.nbytes))
            file.write(raw)
            file.write(bytes(-file.tell() % ALIGNMENT))
    (folder / "work").write_bytes(pickle.dumps((text, sizes)))


def _read_shared(folder: Path) -> Any:
    text, sizes = pickle.loads((folder / "work").read_bytes())
    whole = memoryview(b"")
    if (folder / "arrays").stat().st_size:
        with (folder / "arrays").open("rb") as file:
            whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    buffers = [whole[start : start + size] for start, size in sizes]
    return pickle.loads(text, buffers=buffers)


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

    def submit(self, task: bytes, missing: bool) -> Future[Any]:
        """Hand out a task; `missing`: a worker lacked the data for it."""
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
        self.missing = [False] * len(tasks)
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
        if isinstance(answer, bytes) and answer == MISSING:
            self.missing[index] = True
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
