"""check_executor passes what keeps its promises and catches what does not."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from suffice.executors import Futures, Processes, Serial
from suffice.testing import ConformanceError, check_executor


def test_the_executors_of_the_package_conform():
    check_executor("serial")
    with ThreadPoolExecutor(2) as threads:
        check_executor(threads)
    with Processes(2) as processes:
        check_executor(processes)
        assert any(event["what"] == "a solve was lost" for event in processes.events)


@pytest.mark.slow
def test_a_pool_that_breaks_for_good_says_so_and_one_that_is_made_anew_goes_on():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        check_executor(pool)
    with Futures(lambda: ProcessPoolExecutor(1, mp_context=get_context("spawn"))) as mended:
        check_executor(mended)


class Reversed(Serial):
    def map(self, work, tasks):
        return super().map(work, tasks)[::-1]


class Single(Serial):
    """Answers in half the precision."""

    def map(self, work, tasks):
        def rough(answer):
            return (answer[0], answer[1].astype(np.float32).astype(float)) if isinstance(answer, tuple) else answer

        return [rough(answer) for answer in super().map(work, tasks)]


class Stale(Serial):
    """Keeps the first data it was given."""

    first = None

    def map(self, work, tasks):
        self.first = self.first or work
        return super().map(self.first if type(self.first) is type(work) else work, tasks)


class Swallowing(Serial):
    def map(self, work, tasks):
        try:
            return super().map(work, tasks)
        except ZeroDivisionError:
            return [None] * len(tasks)


class Renaming(Serial):
    def map(self, work, tasks):
        try:
            return super().map(work, tasks)
        except ZeroDivisionError as error:
            raise RuntimeError("something went wrong") from error


class Hanging(Serial):
    def map(self, work, tasks):
        time.sleep(5.0)


class Quiet(Processes):
    """Tells nobody what it has lost."""

    def map(self, work, tasks):
        answers = super().map(work, tasks)
        self.events.clear()
        return answers


@pytest.mark.parametrize(
    ("executor", "complaint"),
    [
        (Reversed(), "the answer to task 0 is not in its place"),
        (Single(), "the answer to task 0 differs from ours"),
        (Stale(), "data 1: the answer to task 0 differs from ours"),
        (Swallowing(), "the executor answered"),
        (Renaming(), "out came RuntimeError: something went wrong"),
        (Hanging(), "have not ended within 0.2 s"),
        (Quiet(1), "a worker died, and `events` does not tell"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.slow
def test_broken_promises_are_caught(executor, complaint):
    with pytest.raises(ConformanceError, match=complaint), executor:
        check_executor(executor, patience=0.2 if isinstance(executor, Hanging) else 120.0)
