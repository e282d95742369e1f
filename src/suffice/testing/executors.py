"""Whether an executor keeps its promise: the same bits as here, errors by name, and no task lost in silence."""

from __future__ import annotations

import os
import tempfile
import threading
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from suffice.executors import Serial, Spread, Work, WorkerError, find
from suffice.testing.numerics import require

TASKS = 7


@dataclass(frozen=True, eq=False)
class _Products:
    """Sums of many roundings, of sizes that differ from task to task."""

    matrix: Any

    def solve(self, task: int) -> Any:
        values = self.matrix
        for _ in range(1 + 5 * (TASKS - task)):
            values = np.tanh(values @ self.matrix + task)
        return task, values

    def complaint(self, task: int, answer: Any) -> str | None:
        return None if isinstance(answer, tuple) and answer[0] == task else "it belongs to another task"


@dataclass(frozen=True)
class _Raises:
    """One task cannot be solved, by anybody."""

    culprit: int

    def solve(self, task: int) -> int:
        if task == self.culprit:
            raise ZeroDivisionError(f"task {task} has no solution")
        return task

    def complaint(self, task: int, answer: Any) -> str | None:
        return None if answer == task else "it belongs to another task"


@dataclass(frozen=True)
class _Dies(_Raises):
    """One task ends its process when it is first tried; in the process of the caller it does not."""

    caller: int
    marker: str

    def solve(self, task: int) -> int:
        if task == self.culprit and os.getpid() != self.caller and not Path(self.marker).exists():
            Path(self.marker).touch()
            os._exit(1)
        return task


def check_executor(executor: Any, *, patience: float = 120.0) -> None:
    """Check anything that `BilevelProblem(executor=...)` takes: a name, a `concurrent.futures.Executor`, a Dask client,
    or one of `suffice.executors`.

    Answers must come in the order of the tasks and be the same, to the bit, as in this process. What a task raises must
    come out as it is, with its message, and the executor must work on after that. A task that ends its worker must be
    tried again, which `events` tells, or end the call by `WorkerError`. A call that takes longer than `patience`
    seconds fails the check. One worker process is killed, if there are any: do not check an executor that others depend
    on. An executor given by name is closed in the end, any other is left open; a pool of the standard library is broken
    by then, as pools are after a worker's death.
    """
    spread = find(executor)
    require(isinstance(spread, Spread), f"{executor!r} is no executor")
    assert spread is not None
    try:
        _check_bits(spread, patience)
        _check_errors(spread, patience)
        with tempfile.TemporaryDirectory() as folder:
            _check_deaths(spread, Path(folder) / "died", patience)
    finally:
        if isinstance(executor, str):
            spread.close()


def _answers(spread: Spread, work: Work, patience: float) -> list[Any]:
    """What `map` returns or raises, or a complaint that it does not end."""
    outcome: Future[list[Any]] = Future()

    def call() -> None:
        try:
            outcome.set_result(spread.map(work, range(TASKS)))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    ended = bool(wait([outcome], patience).done)
    require(ended, f"{type(spread).__name__}: {TASKS} tasks have not ended within {patience} s")
    return outcome.result()


def _check_bits(spread: Spread, patience: float) -> None:
    rng = np.random.default_rng(0)
    for seed in range(2):  # new data replace the old
        work = _Products(rng.standard_normal((40, 40)) / 7.0)
        here = Serial().map(work, range(TASKS))
        there = _answers(spread, work, patience)
        require(len(there) == TASKS, f"{TASKS} tasks have {len(there)} answers")
        for task, (one, other) in enumerate(zip(here, there, strict=True)):
            order = isinstance(other, tuple) and other[0] == task
            require(order, f"data {seed}: the answer to task {task} is not in its place")
            apart = float(np.max(np.abs(one[1] - other[1])))
            same = np.asarray(other[1]).dtype == one[1].dtype and np.array_equal(one[1], other[1])
            require(same, f"data {seed}: the answer to task {task} differs from ours by {apart}")


def _check_errors(spread: Spread, patience: float) -> None:
    culprit = TASKS // 2
    try:
        answers = _answers(spread, _Raises(culprit), patience)
    except ZeroDivisionError as error:
        require(str(error) == f"task {culprit} has no solution", f"the error of a task has lost its message: {error}")
    except Exception as error:
        require(False, f"a task raised ZeroDivisionError, out came {type(error).__name__}: {error}")
    else:
        require(False, f"a task raised ZeroDivisionError, the executor answered {answers!r}")
    after = _answers(spread, _Raises(-1), patience)
    require(after == list(range(TASKS)), f"after a task has raised, the answers are {after!r}")


def _check_deaths(spread: Spread, marker: Path, patience: float) -> None:
    told = len(spread.events)
    try:
        answers = _answers(spread, _Dies(TASKS // 2, os.getpid(), str(marker)), patience)
    except WorkerError:
        return
    except Exception as error:
        require(False, f"a worker died, out came {type(error).__name__} instead of WorkerError: {error}")
    require(answers == list(range(TASKS)), f"a worker died, and the answers are {answers!r}")
    require(not marker.exists() or len(spread.events) > told, "a worker died, and `events` does not tell")
