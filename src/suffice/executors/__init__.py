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

spread   what all executors do: tasks handed out, answers looked at, lost ones handed out again; a worker's side
pools    those of the standard library's kind, and processes of this machine
dask     a cluster
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

from suffice.executors.dask import Dask
from suffice.executors.pools import Futures, Processes
from suffice.executors.spread import Serial, Spread, Work, WorkerError

__all__ = ["Dask", "Futures", "Processes", "Serial", "Spread", "Work", "WorkerError", "find"]


NAMES: dict[str, type[Serial | Processes | Dask]] = {"serial": Serial, "processes": Processes, "dask": Dask}


def find(executor: Any) -> Spread | None:
    """What `BilevelProblem(executor=...)` stands for."""
    if executor is None or isinstance(executor, Spread):
        return executor
    if isinstance(executor, str) and executor in NAMES:
        return NAMES[executor]()
    if type(executor).__module__.partition(".")[0] == "distributed" and not isinstance(executor, Executor):
        return Dask(executor)
    if callable(getattr(executor, "submit", None)):  # also one by shape, as Ray and others have
        return Futures(executor)
    raise TypeError(
        "executor must be None, 'serial', 'processes', 'dask', a concurrent.futures.Executor, a dask Client or one of "
        f"suffice.executors, got {executor!r}"
    )
