"""Any executor of the standard library's kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, suppress
from typing import Any

from suffice.arrays import whole_number
from suffice.executors.spread import Spread, WorkerError
from suffice.executors.worker import HELD, Work, call, controller, pack


class Futures(Spread):
    """Any `concurrent.futures.Executor`, or a function that makes one, to be called again when it breaks.

    `workers` says how many tasks it works on at a time, if the executor does not say.
    """

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
        for other in [known for known in HELD if known.startswith(f"{self._parent}:")]:
            del HELD[other]
        HELD[token] = work  # for threads, which share this process

    def map(self, work: Work, tasks: Sequence[Any]) -> list[Any]:
        with self._calm():
            return super().map(work, tasks)

    @contextmanager
    def _calm(self) -> Iterator[None]:
        """Threads of this process do not multiply with those of BLAS."""
        from concurrent.futures import ThreadPoolExecutor

        if isinstance(self._ready(), ThreadPoolExecutor):
            with controller().limit(limits=1):
                yield
        else:
            yield

    def _ready(self) -> Any:
        if self._executor is None:
            assert self._make is not None
            self._executor = self._make()
        return self._executor

    def submit(self, task: bytes, with_data: bool) -> Future[Any]:
        if with_data and not self._data:
            self._data = pack(self._work)
        data = (self._data,) if with_data else ()
        future: Future[Any] = self._ready().submit(call, self._token, task, *data)
        return future

    def width(self) -> int:
        return self.workers or int(getattr(self._ready(), "_max_workers", 0)) or 1 << 30

    def recover(self, error: Exception, under_way: list[Future[Any]]) -> list[Future[Any]]:
        if not isinstance(error, BrokenExecutor):
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
                self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None
        return under_way

    def close(self) -> None:
        if self._make is not None:
            self._drop([])
        HELD.pop(self._token, None)
        self._work, self._data = None, b""
