"""A worker's side: work that travels once and is kept, tasks and answers in bytes, one thread.

Work is given as bytes or, on one machine, as a folder that every process maps.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

ALIGNMENT = 64


class Work(Protocol):
    """What is spread: it travels to the workers once; `solve` is a function of the task and nothing else."""

    def solve(self, task: Any) -> Any:
        """The answer to one task."""
        ...

    def complaint(self, task: Any, answer: Any) -> str | None:
        """What is wrong with an answer, or None."""
        ...


@dataclass(frozen=True)
class Missing:
    """A worker's answer if it does not hold the data yet."""

    process: int
    address: str = ""


@dataclass(frozen=True)
class Raised:
    """The task raised this; it would do so elsewhere, too."""

    error: Exception


HELD: dict[str, Work] = {}


def call(token: str, task: bytes, data: bytes | str | None = None) -> Any:
    """One task, by a process that holds the work or is given it now; the answer in bytes.

    Tasks, work and answers are packed here rather than by the executor: arrays that others unpack may lie in memory
    where the processor's fast paths, which add in another order, cannot be taken.
    """
    if token not in HELD:
        if data is None:
            return Missing(os.getpid())
        hold(token, data)
    elif not _at_home(token):  # a forked process was born with them
        _one_thread()
    try:
        answer = HELD[token].solve(pickle.loads(task))
    except MemoryError:
        raise  # another worker may have more
    except Exception as error:
        answer = Raised(error)
    return pack(answer)


def _at_home(token: str) -> bool:
    return token.partition(":")[0].endswith(f".{os.getpid()}")


def hold(token: str, data: bytes | str) -> None:
    """Keep the work, given as bytes or as a folder of this machine; what is held for its parent's earlier work goes."""
    _one_thread()
    parent = token.partition(":")[0]
    for other in [known for known in HELD if known.partition(":")[0] == parent]:
        del HELD[other]
    HELD[token] = pickle.loads(data) if isinstance(data, bytes) else _read_shared(Path(data))


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
    controller().limit(limits=1)


def write_shared(work: Work, folder: Path) -> None:
    """Pickle with the arrays next to it, where every process can map them."""
    buffers: list[pickle.PickleBuffer] = []
    text = pack(work, buffers.append)
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
