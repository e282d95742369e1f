r"""Executors of the standard library's kind: any of them, and processes of this machine.

`Worthwhile` are processes from the moment on at which they pay; until then this process solves, to the same bits.
K problems that this process solves in t seconds take w processes  t ceil(K / w) / K  at best. Of the n times that they
are still to be solved processes save

    n t (1 - ceil(K / w) / K)

and pay where that is more than START. t is the mean of the k times so far, and n = max(TIMES - k, k): as often as
searches do, and as often again where they go on. Processes start, and import what this one has, while it goes on.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from suffice.arrays import whole_number
from suffice.executors.spread import HELD, Serial, Spread, Work, WorkerError, call, controller, drop, pack, write_shared

START = 5.0  # seconds until processes are at work: 2 on an idle machine, 5 on a busy one
MANY = 1 << 20  # entries of X: NumPy and BLAS let other threads go on for most of the time that a product takes
TIMES = 25  # evaluations of a search: from 5 to 40


class Futures(Spread):
    """Any `concurrent.futures.Executor`, or a function that makes one, to be called again when it breaks.

    `workers` says how many tasks it works on at a time, if the executor does not say.
    """

    _shutdown: ClassVar[dict[str, bool]] = {"cancel_futures": True}

    def __init__(
        self,
        executor: Executor | Callable[[], Executor],
        *,
        workers: int | None = None,
        deadline: float | None = None,
        attempts: int = 8,
    ) -> None:
        super().__init__(deadline=deadline, attempts=attempts)
        self._make = executor if callable(executor) and not hasattr(executor, "submit") else None
        self._executor: Any = None if self._make is not None else executor
        self.workers = None if workers is None else whole_number(workers, "workers", least=1)
        self._data = b""

    def prepare(self, token: str, work: Work) -> None:
        self._data = b""
        drop(self._parent)
        HELD[token] = work  # for threads, which share this process

    def map(self, work: Work, tasks: Sequence[Any]) -> list[Any]:
        threads = isinstance(self._ready(), ThreadPoolExecutor)  # they do not multiply with those of BLAS
        with controller().limit(limits=1) if threads else nullcontext():
            return super().map(work, tasks)

    def _ready(self) -> Any:
        if self._executor is None:
            assert self._make is not None
            self._executor = self._make()
        return self._executor

    def submit(self, task: bytes, missing: bool) -> Future[Any]:
        if missing and not self._data:
            self._data = pack(self._work)
        data = (self._data,) if missing else ()
        future: Future[Any] = self._ready().submit(call, self._token, task, *data)
        return future

    def width(self) -> int:
        return self.workers or int(getattr(self._ready(), "_max_workers", 0)) or 1 << 30

    def recover(self, error: Exception, under_way: list[Future[Any]]) -> list[Future[Any]]:
        if not isinstance(error, BrokenExecutor if self._make is None else RuntimeError):
            return []
        if self._make is None:
            raise WorkerError(
                "the executor is broken for good, as pools are after a worker's death; executor='processes' mends "
                "itself, and so does executor=Futures(make), where make() returns a new one"
            ) from error
        return self._drop(under_way)

    def give_up(self, late: list[Future[Any]], under_way: list[Future[Any]]) -> list[Future[Any]]:
        if self._make is not None:
            return self._drop(under_way)
        for future in late:  # another worker takes it; the executor is the user's own
            future.cancel()
        return []

    def _drop(self, under_way: list[Future[Any]]) -> list[Future[Any]]:
        if self._executor is not None:
            with suppress(Exception):
                self._executor.shutdown(wait=False, **self._shutdown)
            self._executor = None
        return under_way

    def close(self) -> None:
        if self._make is not None:
            self._drop([])
        HELD.pop(self._token, None)
        self._work, self._data = None, b""


class Processes(Futures):
    """Processes on this machine (loky). They share one copy of the data, which lies in a temporary file."""

    _shutdown: ClassVar[dict[str, bool]] = {"kill_workers": True}

    def __init__(self, workers: int | None = None, *, deadline: float | None = None, attempts: int = 8) -> None:
        from joblib import cpu_count

        workers = cpu_count() if workers is None else workers
        make = partial(_started, workers, deadline is not None)
        super().__init__(make, workers=workers, deadline=deadline, attempts=attempts)
        self._folder: str | None = None
        self._remove: Any = None

    def prepare(self, token: str, work: Work) -> None:
        self._clear()
        self._folder = tempfile.mkdtemp(prefix="suffice-")  # nobody else may read or write there
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        write_shared(work, Path(self._folder))

    def submit(self, task: bytes, missing: bool) -> Future[Any]:
        future: Future[Any] = self._ready().submit(call, self._token, task, self._folder)
        return future

    def width(self) -> int:
        return super().width() if self.deadline is not None else 2 * super().width()

    def abandon(self, under_way: list[Future[Any]]) -> None:
        super().abandon(under_way)
        self._drop(under_way)

    def close(self) -> None:
        super().close()
        self._clear()

    def _clear(self) -> None:
        if self._remove is not None:
            self._remove()
        self._folder = self._remove = None


class Threads(Futures):
    """Threads from the beginning, for problems of which each has MANY numbers."""

    estimate = "threads: X is large"

    def __init__(self, workers: int) -> None:
        super().__init__(partial(ThreadPoolExecutor, workers), workers=workers)


class Worthwhile(Processes):
    """`Processes` where they pay; `estimate` says whether they do."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.estimate = ""
        self._times, self._seconds = 0, 0.0  # of what this process has solved
        self._starting: list[Future[Any]] = []

    def map(self, work: Work, tasks: Sequence[Any]) -> list[Any]:
        if not self._starting and self._pay(len(tasks)):
            known = [name for name in sys.modules if name.partition(".")[0] == "suffice"]
            self._starting = [self._ready().submit(_prepared, known) for _ in range(self.width())]
        if self._starting and all(one.done() for one in self._starting):
            return super().map(work, tasks)
        began = time.monotonic()
        answers = Serial().map(work, tasks)
        self._times, self._seconds = self._times + 1, self._seconds + time.monotonic() - began
        return answers

    def _pay(self, tasks: int) -> bool:
        """Whether processes pay for so many problems at a time."""
        if self._times == 0:
            return False
        from joblib import cpu_count

        each, left = self._seconds / self._times, max(TIMES - self._times, self._times)
        processes = min(self.workers or 1, cpu_count(), tasks)
        saved = left * each * (1.0 - math.ceil(tasks / processes) / tasks)
        pay = bool(saved > START)
        self.estimate = (
            f"{f'{processes} processes' if pay else 'one process'}: evaluations took {each:.2g} s each; {processes} "
            f"processes would save {saved:.2g} s over {left} more, and take {START:g} s to start"
        )
        return pay


def _started(workers: int, waited_for: bool) -> Any:
    from joblib.externals.loky import ProcessPoolExecutor

    pool = ProcessPoolExecutor(workers, initializer=_end_with, initargs=(os.getpid(),))
    if waited_for:  # a deadline's clock does not run while processes start
        wait([pool.submit(os.getpid) for _ in range(workers)])
    return pool


def _end_with(parent: int) -> None:
    """This worker ends when its parent is gone, killed perhaps: nobody would tell it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    if os.name == "posix":  # elsewhere a process keeps the number of a parent that has ended
        threading.Thread(target=watch, daemon=True).start()


def _prepared(modules: Sequence[str]) -> None:
    """A worker has these, and all that they import, before it is given work."""
    for name in modules:
        import_module(name)
