"""Processes of this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from concurrent.futures import BrokenExecutor, Future, wait
from pathlib import Path
from typing import Any

from suffice.arrays import whole_number
from suffice.executors.spread import Spread
from suffice.executors.worker import Work, call, write_shared


class Processes(Spread):
    """Processes on this machine (loky). They share one copy of the data, which lies in a temporary file."""

    def __init__(self, workers: int | None = None, *, deadline: float | None = None, attempts: int = 8) -> None:
        super().__init__(deadline=deadline, attempts=attempts)
        from joblib import cpu_count

        self.workers = cpu_count() if workers is None else whole_number(workers, "workers", least=1)
        self._pool: Any = None
        self._folder: str | None = None
        self._finalizer: Any = weakref.finalize(self, _nothing)

    def prepare(self, token: str, work: Work) -> None:
        self._finalizer()
        folder = tempfile.mkdtemp(prefix="suffice-")  # nobody else may read or write there
        self._folder = folder
        self._finalizer = weakref.finalize(self, _remove, folder)
        write_shared(work, Path(folder))

    def submit(self, task: bytes, with_data: bool) -> Future[Any]:
        if self._pool is None:
            from joblib.externals.loky import ProcessPoolExecutor

            self._pool = ProcessPoolExecutor(self.workers)
            if self.deadline is not None:  # the clock does not run while processes start
                wait([self._pool.submit(os.getpid) for _ in range(self.workers)])
        future: Future[Any] = self._pool.submit(call, self._token, task, self._folder)
        return future

    def width(self) -> int:
        return self.workers if self.deadline is not None else 2 * self.workers

    def recover(self, error: Exception, under_way: list[Future[Any]]) -> list[Future[Any]]:
        return self._drop(under_way) if isinstance(error, BrokenExecutor | RuntimeError) else []

    def give_up(self, late: list[Future[Any]], under_way: list[Future[Any]]) -> list[Future[Any]]:
        return self._drop(under_way)

    def _drop(self, under_way: list[Future[Any]]) -> list[Future[Any]]:
        if self._pool is not None:
            self._pool.shutdown(wait=False, kill_workers=True)
            self._pool = None
        return under_way

    def abandon(self, under_way: list[Future[Any]]) -> None:
        super().abandon(under_way)
        self._drop(under_way)

    def close(self) -> None:
        self._drop([])
        self._finalizer()
        self._folder, self._work = None, None


def _nothing() -> None:
    pass


def _remove(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
