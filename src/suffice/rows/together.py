r"""Computations side by side, which make their passes over the same rows as one.

A search solves one problem per fold. Each needs pass after pass, what it asks for next depends on what it was told, and
the rows are the same for all. `together` lets every computation go on until it asks for a pass, and then makes all that
are asked for at a time: K folds take about as many passes as the one that takes most.

Each has a thread of its own, but no two of them ever run at a time: the turn is handed round, in a fixed order. So
there are no races, what is computed does not depend on a clock, and a computation alone gives the same bits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class _AbandonedError(BaseException):
    """Another computation has failed, or the user has had enough."""


class _Strand:
    """A computation in a thread of its own, which runs while `go_on` waits for it, and only then."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.turn, self.rest = threading.Semaphore(0), threading.Semaphore(0)
        self.request: Any = None
        self.answer: Any = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = self.abandoned = False
        context = copy_context()
        self.thread = threading.Thread(target=context.run, args=(self._work,), daemon=True)

    def _work(self) -> None:
        self.turn.acquire()
        _current.set(self)
        try:
            if not self.abandoned:
                self.result = self.function()
        except BaseException as error:
            self.error = error
        self.done = True
        self.rest.release()

    def ask(self, request: Any) -> Any:
        """From within: give the turn back until there is an answer."""
        if not self.abandoned:
            self.request = request
            self.rest.release()
            self.turn.acquire()
        if self.abandoned:
            raise _AbandonedError
        return self.answer

    def go_on(self, answer: Any = None) -> None:
        """From without: until it asks, or is done."""
        self.request, self.answer = None, answer
        self.turn.release()
        self.rest.acquire()
        if self.error is not None:
            raise self.error

    def abandon(self) -> None:
        if not self.done:
            self.abandoned = True
            self.turn.release()
        self.thread.join()


_current: ContextVar[_Strand | None] = ContextVar("strand", default=None)


def asked(request: Any) -> Any:
    """The answer to a request, made with those of other computations that are side by side with this one."""
    strand = _current.get()
    return request.X.answers([request])[0] if strand is None else strand.ask(request)


def one_by_one(functions: Sequence[Callable[[], T]]) -> list[T]:
    """The results of all functions."""
    return [function() for function in functions]


def together(functions: Sequence[Callable[[], T]]) -> list[T]:
    """The results of all functions; the first error of one of them ends all. Inside of another `together` they go one
    after the other."""
    if len(functions) < 2 or _current.get() is not None:
        return one_by_one(functions)
    strands = [_Strand(function) for function in functions]
    for strand in strands:
        strand.thread.start()
    try:
        for strand in strands:
            strand.go_on()
        while waiting := [strand for strand in strands if not strand.done]:
            answers = _answered([strand.request for strand in waiting])
            for strand, answer in zip(waiting, answers, strict=True):
                strand.go_on(answer)
        return [strand.result for strand in strands]
    finally:
        for strand in strands:
            strand.abandon()


def together_if_dear(problems: Sequence[Any]) -> Callable[[Sequence[Callable[[], T]]], list[T]]:
    """`together` where a pass over the rows of each of these problems is worth sharing, else `one_by_one`."""
    rows = [getattr(getattr(problem, "design", None), "rows", None) for problem in problems]
    return together if all(getattr(one, "dear", False) for one in rows) else one_by_one


def _answered(requests: Sequence[Any]) -> list[Any]:
    """All of them, those of one source together."""
    sources: dict[int, list[int]] = {}
    for k, request in enumerate(requests):
        sources.setdefault(id(request.X.source), []).append(k)
    found: dict[int, Any] = {}
    for numbers in sources.values():
        group = [requests[k] for k in numbers]
        found |= dict(zip(numbers, group[0].X.answers(group), strict=True))
    return [found[k] for k in range(len(requests))]
