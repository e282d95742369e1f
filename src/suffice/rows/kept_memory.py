r"""Memory that a job gives back is there for its next temporaries.

The C library of Linux takes large arrays from the operating system, and learns not to: once one was given back, the
next of its size comes from memory that is kept. Dask turns this off in its workers (MALLOC_TRIM_THRESHOLD_), so that
what a task has given back is at the disposal of others. Then each temporary of at least 128 kB, a vector of 16,000
rows, is mapped anew, and the system clears it page by page: as much work again as a job's own, and more where a machine
is itself a guest. While a job is under way the two thresholds are therefore what the library would have learned; when
the last one ends they are what they were, and free memory goes back as Dask wants it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

TRIM, MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of <malloc.h>
LEARNED = {MMAP: 1 << 25, TRIM: 1 << 26}  # in bytes: the most that the library learns
USUAL = {MMAP: 1 << 17, TRIM: 1 << 17}  # and where it begins
NAMES = {MMAP: "MALLOC_MMAP_THRESHOLD_", TRIM: "MALLOC_TRIM_THRESHOLD_"}


class _Jobs:
    """How many are under way in this process."""

    lock = threading.Lock()
    count = 0


@contextmanager
def kept_memory() -> Iterator[None]:
    """Thresholds are high while a job is under way, in whatever thread of this process, if something has fixed them."""
    set_, fixed = _mallopt(), _fixed()
    if set_ is None or fixed is None:
        yield
        return
    with _Jobs.lock:
        if _Jobs.count == 0:
            for which, size in LEARNED.items():
                set_(which, max(size, fixed[which]))
        _Jobs.count += 1
    try:
        yield
    finally:
        with _Jobs.lock:
            _Jobs.count -= 1
            if _Jobs.count == 0:
                for which, size in fixed.items():
                    set_(which, size)


def _fixed() -> dict[int, int] | None:
    """The thresholds that the environment of this process has set when it began; None if it has set none."""
    try:
        told = {which: int(os.environ[name]) for which, name in NAMES.items() if name in os.environ}
    except ValueError:
        return None
    return {**USUAL, **told} if told else None


@cache
def _mallopt() -> Any:
    """The function of the C library that sets thresholds, where that is glibc."""
    try:
        library = ctypes.CDLL(None)
        return library.mallopt if hasattr(library, "gnu_get_libc_version") else None
    except (OSError, TypeError):
        return None
