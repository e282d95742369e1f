r"""Where lower-level problems are solved: here, in other processes, on a cluster.

The n problems of an evaluation do not depend on each other. An executor solves them side by side and hands the answers
back in their order. Each is solved by one process from the same numbers, with one BLAS thread (more would add in
another order, and crowd each other out), so that the result is the same, to the bit, for any number and kind of
workers. `executor="serial"` is the same in this process. `executor=None` differs from it where it can do better:
problems that share X are solved together, with one product for all, which rounds differently.

The data travel once: a worker that is asked about data it does not hold says so, is given them, and keeps them. From
then on a request is a few numbers and the weights to start from, and an answer is the weights with their certificate.

    BilevelProblem(..., executor="serial")                 one after the other, here
    BilevelProblem(..., executor="processes")              one process per core of this machine
    BilevelProblem(..., executor=Processes(4, deadline=60)) four; a solve that takes over a minute is tried again
    BilevelProblem(..., executor=Dask(client))             a cluster; "dask": the current client, or a local cluster
    BilevelProblem(..., executor=executor)                 any concurrent.futures.Executor: Ray, MPI, threads
    BilevelProblem(..., executor=Futures(make))            the same, made anew by make() when it breaks

A worker that dies, exceeds the deadline or answers nonsense loses its task to another one; the run goes on, and the
journal has the event. A task that was lost `attempts` times in a row ends the run: it is likely to be the cause. What a
problem itself raises is not tried again.
"""

from __future__ import annotations

import mmap
import os
import pickle
import shutil
import tempfile
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from suffice._array import positive, whole_number

ALIGNMENT = 64


class Work(Protocol):
    """What is spread: it travels to the workers once; `solve` is a function of the task and nothing else."""

    def solve(self, task: Any) -> Any:
        """The answer to one task."""
        ...

    def complaint(self, task: Any, answer: Any) -> str | None:
        """What is wrong with an answer, or None."""
        ...


class WorkerError(RuntimeError):
    """A task was lost too often."""


# On the worker's side


@dataclass(frozen=True)
class _Missing:
    """A worker's answer if it does not hold the data yet."""

    process: int


@dataclass(frozen=True)
class _Raised:
    """The task raised this; it would do so elsewhere, too."""

    error: Exception


_HELD: dict[str, Work] = {}


def _call(token: str, task: bytes, data: bytes | str | None = None) -> Any:
    """One task, by a process that holds the work or is given it now; the answer in bytes.

    Tasks, work and answers are packed here rather than by the executor: arrays that others unpack may lie in memory
    where the processor's fast paths, which add in another order, cannot be taken.
    """
    if token not in _HELD:
        if data is None:
            return _Missing(os.getpid())
        _hold(token, data)
    elif not _at_home(token):  # a forked process was born with them
        _one_thread()
    try:
        answer = _HELD[token].solve(pickle.loads(task))
    except MemoryError:
        raise  # another worker may have more
    except Exception as error:
        answer = _Raised(error)
    return _packed(answer)


def _at_home(token: str) -> bool:
    return token.partition(":")[0].endswith(f".{os.getpid()}")


def _hold(token: str, data: bytes | str) -> None:
    """Keep the work, given as bytes or as a folder of this machine; what is held for its parent's earlier work goes."""
    _one_thread()
    parent = token.partition(":")[0]
    for other in [known for known in _HELD if known.partition(":")[0] == parent]:
        del _HELD[other]
    _HELD[token] = pickle.loads(data) if isinstance(data, bytes) else _read_shared(Path(data))


def _packed(value: Any, out_of_band: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    try:
        cloudpickle = import_module("cloudpickle")
    except ImportError:  # joblib brings it along, or its own copy
        cloudpickle = import_module("joblib.externals.cloudpickle")
    try:
        text: bytes = cloudpickle.dumps(value, protocol=5, buffer_callback=out_of_band)
    except Exception as error:
        raise TypeError(f"{type(value).__name__} cannot be sent to another process: {error}") from error
    return text


def _unpacked(answer: Any) -> Any:
    """A worker's answer; what cannot be unpacked is handed on, to be complained about."""
    try:
        return pickle.loads(answer)
    except Exception:
        return answer


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@cache
def _one_thread() -> None:
    """BLAS and OpenMP of this worker use one thread from now on: there are as many workers as there is room for."""
    _controller().limit(limits=1)


# On the caller's side


class Spread:
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
        packed = [_packed(task) for task in tasks]
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
                    if isinstance(answer, _Missing):
                        lacking[index] = True
                        waiting.append(index)
                        continue
                    answer = _unpacked(answer)
                    if isinstance(answer, _Raised):
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

    def close(self) -> None:
        """Let go of workers and data."""

    def __enter__(self) -> Spread:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0][:300]


class Serial(Spread):
    """This process, one task after the other, exactly as a worker would: what others are compared with."""

    def map(self, work: Work, tasks: Sequence[Any]) -> list[Any]:
        with _controller().limit(limits=1):
            return [work.solve(task) for task in tasks]


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
        _write_shared(work, Path(folder))

    def submit(self, task: bytes, with_data: bool) -> Future[Any]:
        if self._pool is None:
            from joblib.externals.loky import ProcessPoolExecutor

            self._pool = ProcessPoolExecutor(self.workers)
            if self.deadline is not None:  # the clock does not run while processes start
                wait([self._pool.submit(os.getpid) for _ in range(self.workers)])
        future: Future[Any] = self._pool.submit(_call, self._token, task, self._folder)
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


def _write_shared(work: Work, folder: Path) -> None:
    """Pickle with the arrays next to it, where every process can map them."""
    buffers: list[pickle.PickleBuffer] = []
    text = _packed(work, buffers.append)
    (folder / "work").write_bytes(text)
    sizes = []
    with (folder / "arrays").open("wb") as file:
        for buffer in buffers:
            raw = buffer.raw()
            sizes.append((file.tell(), raw.nbytes))
            file.write(raw)
            file.write(bytes(-file.tell() % ALIGNMENT))
    (folder / "sizes").write_bytes(pickle.dumps(sizes))


def _read_shared(folder: Path) -> Any:
    sizes = pickle.loads((folder / "sizes").read_bytes())
    whole = memoryview(b"")
    if sizes and (folder / "arrays").stat().st_size:
        with (folder / "arrays").open("rb") as file:
            whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    buffers = [whole[start : start + size] for start, size in sizes]
    return pickle.loads((folder / "work").read_bytes(), buffers=buffers)


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
        for other in [known for known in _HELD if known.startswith(f"{self._parent}:")]:
            del _HELD[other]
        _HELD[token] = work  # for threads, which share this process

    def map(self, work: Work, tasks: Sequence[Any]) -> list[Any]:
        with self._calm():
            return super().map(work, tasks)

    @contextmanager
    def _calm(self) -> Iterator[None]:
        """Threads of this process do not multiply with those of BLAS."""
        from concurrent.futures import ThreadPoolExecutor

        if isinstance(self._ready(), ThreadPoolExecutor):
            with _controller().limit(limits=1):
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
            self._data = _packed(self._work)
        data = (self._data,) if with_data else ()
        future: Future[Any] = self._ready().submit(_call, self._token, task, *data)
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
        _HELD.pop(self._token, None)
        self._work, self._data = None, b""


class Dask(Spread):
    """A Dask cluster: a `distributed.Client`, the address of a scheduler, or None for the current client (without one,
    a cluster on this machine is started)."""

    def __init__(self, client: Any = None, *, deadline: float | None = None, attempts: int = 8) -> None:
        super().__init__(deadline=deadline, attempts=attempts)
        self._given: Any = client
        self._client: Any = None
        self._own = False
        self._data: Any = None
        self._holding: dict[tuple[str, int], Any] = {}
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
        self._data, self._holding = None, {}

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

    def submit(self, task: bytes, with_data: bool) -> Future[Any]:
        return self._submit(task, None)

    def _submit(self, task: bytes, lacking: tuple[str, int] | None) -> Future[Any]:
        client = self.client
        if lacking is None:
            inner = client.submit(_call_by_address, self._token, task, pure=False)
            return _as_future(inner, lambda place: self._submit(task, place))
        # Loose restrictions: should the worker die meanwhile, another one takes its place.
        here: dict[str, Any] = {"workers": [lacking[0]], "allow_other_workers": True, "pure": False}
        if lacking not in self._holding or self._holding[lacking].status not in ("pending", "finished"):
            if self._data is None or self._data.status not in ("pending", "finished"):
                # A task, not scattered data: those would be gone for good with the worker that holds them.
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # about its size: it travels once
                    self._data = client.submit(_itself, _packed(self._work), pure=False)
            self._holding[lacking] = client.submit(_hold, self._token, self._data, **here)
        inner = client.submit(_call_by_address, self._token, task, self._holding[lacking], **here)
        return _as_future(inner, lambda place: self._submit(task, place))

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
        self._data, self._holding, self._work = None, {}, None
        if self._own and self._client is not None:
            self._client.close()
            self._client = None


def _itself(data: bytes) -> bytes:
    return data


def _call_by_address(token: str, task: bytes, held: Any = None) -> Any:
    answer = _call(token, task)
    if isinstance(answer, _Missing):
        get_worker: Any = import_module("distributed").get_worker
        return (get_worker().address, answer.process), answer
    return None, answer


def _as_future(inner: Any, given: Callable[[tuple[str, int]], Future[Any]]) -> Future[Any]:
    """A Dask future as one of the standard library's; a worker that lacks the data is given them on the way."""
    outer: Future[Any] = Future()
    outer.dask = inner  # type: ignore[attr-defined]

    def resolve(done: Any) -> None:
        try:
            lacking, answer = done.result()
        except BaseException as error:
            lost = error if isinstance(error, Exception) else WorkerError(f"{type(error).__name__}: {error}")
            with suppress(Exception):
                outer.set_exception(lost)
            return
        if lacking is None:
            with suppress(Exception):
                outer.set_result(answer)
            return
        try:
            second = given(lacking)
        except Exception as error:
            outer.set_exception(error)
            return
        outer.dask = second.dask  # type: ignore[attr-defined]
        second.add_done_callback(lambda future: _pass_on(future, outer))

    inner.add_done_callback(resolve)
    return outer


def _pass_on(one: Future[Any], other: Future[Any]) -> None:
    with suppress(Exception):
        error = one.exception()
        if error is not None:
            other.set_exception(error)
        else:
            other.set_result(one.result())


def find(executor: Any) -> Spread | None:
    """What `BilevelProblem(executor=...)` stands for."""
    if executor is None or isinstance(executor, Spread):
        return executor
    if executor == "serial":
        return Serial()
    if executor == "processes":
        return Processes()
    if executor == "dask":
        return Dask()
    if isinstance(executor, Executor):
        return Futures(executor)
    if type(executor).__module__.partition(".")[0] == "distributed":
        return Dask(executor)
    if callable(getattr(executor, "submit", None)):  # one by shape, as Ray and others have
        return Futures(executor)
    raise TypeError(
        "executor must be None, 'serial', 'processes', 'dask', a concurrent.futures.Executor, a dask Client or one of "
        f"suffice.executors, got {executor!r}"
    )
