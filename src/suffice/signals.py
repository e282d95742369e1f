"""Signals, as the rest of the package wants them: SIGTERM and a time limit as exceptions, and none at all while a file
is written.

Python runs handlers in the main thread only. Elsewhere the contexts do nothing. Nor do they wake a signal that is
ignored: shells start what a script puts into the background (`&`) with Ctrl-C ignored, and SIGTERM ends it.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Terminated(BaseException):
    """SIGTERM, as an exception."""


class TimeOver(BaseException):
    """A time limit, as an exception: like Ctrl-C, and nobody's error."""


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
def time_limit(until: float) -> Iterator[None]:
    """`TimeOver` inside as soon as `time.monotonic()` has come to `until`, also in the middle of a computation; before
    it begins, where signals cannot be used (other threads, Windows, a program with an alarm of its own)."""
    left = until - time.monotonic()
    if left <= 0.0:
        raise TimeOver
    alarm = getattr(signal, "SIGALRM", None)
    if alarm is None or math.isinf(left) or not _in_main_thread() or signal.getsignal(alarm) != signal.SIG_DFL:
        yield
        return

    def handle(number: int, frame: object) -> None:
        raise TimeOver

    signal.signal(alarm, handle)
    signal.setitimer(signal.ITIMER_REAL, min(left, 1e6))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(alarm, signal.SIG_DFL)


@contextmanager
def at_once(until: float) -> Iterator[None]:
    """`KeyboardInterrupt` where `time_limit` has `TimeOver`: for what follows Ctrl-C and would take too long."""
    try:
        with time_limit(until):
            yield
    except TimeOver:
        raise KeyboardInterrupt from None


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C, SIGTERM and time limits wait until the end, such as that of an evaluation that is being written down."""
    if not _in_main_thread():
        yield
        return
    waiting: list[int] = []
    before = {name: signal.getsignal(name) for name in _DISTURBING}
    before = {name: handler for name, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    for name in before:
        signal.signal(name, lambda number, frame: waiting.append(number))
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
        for number in waiting:
            signal.raise_signal(number)


_DISTURBING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGALRM") if hasattr(signal, name)]


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
