"""Signals, as the rest of the package wants them: SIGTERM as an exception, and none at all while a file is written.

Python runs handlers in the main thread only. Elsewhere both contexts do nothing.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Terminated(BaseException):
    """SIGTERM, as an exception."""


@contextmanager
def termination(raising: type[BaseException] = Terminated) -> Iterator[None]:
    """SIGTERM raises this inside, once, if nobody else handles it; a second one acts as usual."""
    if not _in_main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def handle(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise raising

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the end, such as that of an evaluation that is being written down."""
    if not _in_main_thread():
        yield
        return
    waiting: list[int] = []
    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    before = {name: handler for name, handler in before.items() if handler is not None}
    for name in before:
        signal.signal(name, lambda number, frame: waiting.append(number))
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
        for number in waiting:
            signal.raise_signal(number)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
