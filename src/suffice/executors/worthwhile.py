"""Processes from the moment on at which they pay; until then this process solves, to the same bits.

K problems that this process solves in t seconds take w processes  t ceil(K / w) / K  at best. Of the n times that they
are still to be solved processes save

    n t (1 - ceil(K / w) / K)

and pay where that is more than START. t is the mean of the k times so far, and n = max(TIMES - k, k): as often as
searches do, and as often again where they go on. Processes start, and import what this one has, while it goes on.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future
from importlib import import_module
from typing import Any

from joblib import cpu_count

from suffice.executors.pools import Processes
from suffice.executors.spread import Serial, Work

START = 5.0  # seconds until processes are at work: 2 on an idle machine, 5 on a busy one
TIMES = 25  # evaluations of a search: from 5 to 40


class Worthwhile(Processes):
    """`Processes` where they pay; `estimate` says whether they do."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.estimate = ""
        self._times, self._seconds = 0, 0.0  # of what this process has solved
        self._starting: list[Future[Any]] = []

    def map(self, work: Work, tasks: Sequence[Any]) -> list[Any]:
        if not self._starting and self._pay(len(tasks)):
            known = [name for name in sys.modules if name.partition(".")[0] == "suffice"]
            self._starting = [self._ready().submit(_prepared, known) for _ in range(self.width())]
        if self._starting and all(one.done() for one in self._starting):
            return super().map(work, tasks)
        began = time.monotonic()
        answers = Serial().map(work, tasks)
        self._times, self._seconds = self._times + 1, self._seconds + time.monotonic() - began
        return answers

    def _pay(self, tasks: int) -> bool:
        """Whether processes pay for so many problems at a time."""
        if self._times == 0:
            return False
        each, left = self._seconds / self._times, max(TIMES - self._times, self._times)
        processes = min(self.workers or 1, cpu_count(), tasks)
        saved = left * each * (1.0 - math.ceil(tasks / processes) / tasks)
        pay = bool(saved > START)
        self.estimate = (
            f"{f'{processes} processes' if pay else 'one process'}: evaluations took {each:.2g} s each; {processes} "
            f"processes would save {saved:.2g} s over {left} more, and take {START:g} s to start"
        )
        return pay


def _prepared(modules: Sequence[str]) -> None:
    """A worker has these, and all that they import, before it is given work."""
    for name in modules:
        import_module(name)
