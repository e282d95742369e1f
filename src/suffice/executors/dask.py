"""A Dask cluster."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from typing import Any

from suffice.executors.spread import Spread, Work, WorkerError, call, pack


class Dask(Spread):
    """A Dask cluster: a `distributed.Client`, the address of a scheduler, or None for the current client (without one,
    a cluster on this machine is started)."""

    def __init__(self, client: Any = None, *, deadline: float | None = None, attempts: int = 8) -> None:
        super().__init__(deadline=deadline, attempts=attempts)
        self._given: Any = client
        self._client: Any = None
        self._own = False
        self._data: Any = None
        self._workers: dict[str, int] = {}  # their addresses and threads

    @property
    def client(self) -> Any:
        if self._client is None:
            try:
                distributed: Any = import_module("distributed")
            except ImportError as error:
                raise ImportError("executor='dask' needs dask: pip install 'suffice[dask]'") from error
            if self._given is None:
                try:
                    self._client = distributed.default_client()
                except ValueError:
                    self._client, self._own = distributed.Client(processes=True, threads_per_worker=1), True
            elif isinstance(self._given, distributed.Client):
                self._client = self._given
            else:
                self._client, self._own = distributed.Client(self._given), True
        return self._client

    def prepare(self, token: str, work: Work) -> None:
        self._data = None

    def map(self, work: Work, tasks: Sequence[Any]) -> list[Any]:
        self._look()
        answers = super().map(work, tasks)
        self._look()
        return answers

    def _look(self) -> None:
        """Which workers are there; Dask replaces those that die, and hands their tasks to others, by itself."""
        now = dict(self.client.nthreads())
        for address in set(self._workers) - set(now):
            self.events.append({"what": "a worker has gone", "worker": address})
        self._workers = now

    def submit(self, task: bytes, missing: bool) -> Future[Any]:
        if self._data is None or self._data.status not in ("pending", "finished"):
            # A task, not scattered data: those would be gone for good with the worker that holds them.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about its size: it travels once
                self._data = self.client.submit(bytes, pack(self._work), pure=False)
        return _as_future(self.client.submit(call, self._token, task, self._data, pure=False))  # once to each worker

    def width(self) -> int:
        threads = sum(self._workers.values()) or 1
        return threads if self.deadline is not None else 2 * threads + 2

    def recover(self, error: Exception, under_way: list[Future[Any]]) -> list[Future[Any]]:
        time.sleep(0.05)  # the scheduler hears of a death a moment later
        self._look()
        return []

    def give_up(self, late: list[Future[Any]], under_way: list[Future[Any]]) -> list[Future[Any]]:
        inner = [future.dask for future in late]  # type: ignore[attr-defined]
        keys = {item.key for item in inner}
        with suppress(Exception):  # a worker without a nanny cannot be restarted, and is passed by
            hung = [address for address, busy in self.client.processing().items() if keys & set(busy)]
            self.client.restart_workers(hung, timeout=10, raise_for_error=False)
        self.client.cancel(inner, force=True)
        return []

    def abandon(self, under_way: list[Future[Any]]) -> None:
        with suppress(Exception):
            self.client.cancel([future.dask for future in under_way], force=True)  # type: ignore[attr-defined]

    def close(self) -> None:
        self._data = self._work = None
        if self._own and self._client is not None:
            self._client.close()
            self._client = None


def _as_future(inner: Any) -> Future[Any]:
    """A Dask future as one of the standard library's."""
    outer: Future[Any] = Future()
    outer.dask = inner  # type: ignore[attr-defined]

    def resolve(done: Any) -> None:
        with suppress(Exception):  # it may have been cancelled
            try:
                outer.set_result(done.result())
            except BaseException as error:
                lost = error if isinstance(error, Exception) else WorkerError(f"{type(error).__name__}: {error}")
                outer.set_exception(lost)

    inner.add_done_callback(resolve)
    return outer
