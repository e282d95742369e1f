"""Executors of the standard library's kind: any of them, and processes of this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from suffice.arrays import whole_number
from suffice.executors.spread import HELD, Spread, Work, WorkerError, call, controller, drop, pack, write_shared


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
        return self._ready().submit(call, self._token, task, *data)

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
        return self._ready().submit(call, self._token, task, self._folder)

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
