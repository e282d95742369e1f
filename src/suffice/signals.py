"""Signals that come while something is being written down."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals wait until an evaluation is written down."""
    if threading.current_thread() is not threading.main_thread():
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
