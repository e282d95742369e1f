"""Margins of blocks of rows: products X w that are made when a job needs them, in the same pass, and combinations of
these. They stay with the rows; what was found out about them stays with them.

A search solves one problem per fold. Each needs pass after pass over the same rows, and what it asks for next depends
on what it was told. `together` lets every computation go on until it asks for a pass, and then makes all that are asked
for at a time: K folds take about as many passes as the one that takes most. Each has a thread of its own, but no two of
them ever run at a time: the turn is handed round, in a fixed order. So there are no races, what is computed does not
depend on a clock, and a computation alone gives the same bits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from suffice.arrays import Array
from suffice.rows.sums import Job

T = TypeVar("T")


class Known(dict[Any, Any]):
    """What was found out about margins, by models that have certain parts: these are held, so that their ids stay their
    own."""

    def knows(self, what: str, owners: Sequence[Any]) -> bool:
        """Whether this was found out, by a model that has these parts."""
        return (what, *map(id, owners)) in self

    def keep(self, what: str, owners: Sequence[Any], found: Any) -> Any:
        """Remember it."""
        self[what, *map(id, owners)] = tuple(owners), found
        return found

    def once(self, what: str, owners: Sequence[Any], find: Callable[[], Any]) -> Any:
        """What is known, found out if it has not been."""
        known = self.get((what, *map(id, owners)))
        return self.keep(what, owners, find()) if known is None else known[1]


@dataclass(eq=False)
class _Made:
    """X w, plus an offset: made when it is needed first; `rows` is then where it is kept. `known` holds what else was
    found out about w."""

    w: Array
    offset: Any
    rows: Any = None
    known: Known = field(default_factory=Known)


@dataclass(frozen=True, eq=False)
class Margins:
    """A linear combination of products X_k w_k with blocks of rows."""

    X: Any
    node: Any  # a product, or an operation on two nodes
    _known: Known = field(default_factory=Known)

    __array_ufunc__ = None  # numpy would take it apart

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.X.shape[0], *products_of([self])[0].w.shape[1:])

    @property
    def is_product(self) -> bool:
        return isinstance(self.node, _Made)

    @property
    def w(self) -> Array:
        """The weights whose product this is, but for rounding and offsets."""
        products = products_of([self])
        places = {id(one): k for k, one in enumerate(products)}
        return combined(written(self.node, places), [one.w for one in products])

    @property
    def known(self) -> Known:
        """What was found out about them; the same for all that are one product."""
        return self.node.known if isinstance(self.node, _Made) else self._known

    def __add__(self, other: Margins) -> Margins:
        return Margins(self.X, ("+", self.node, other.node))

    def __sub__(self, other: Margins) -> Margins:
        return Margins(self.X, ("-", self.node, other.node))

    def __mul__(self, factor: float) -> Margins:
        return Margins(self.X, ("*", float(factor), self.node))

    __rmul__ = __mul__


@dataclass(frozen=True, eq=False)
class PassRequest:
    """A job on all rows of X, with the margins it needs and what else goes with the rows."""

    X: Any
    job: Job
    margins: Sequence[Margins]
    given: Mapping[str, Any]


def products_of(margins: Sequence[Margins]) -> list[_Made]:
    """The products that these are made of, each once."""
    found: dict[int, _Made] = {}
    # No function that calls itself: that would hold itself, and what it has found, until Python looks for cycles.
    nodes = [one.node for one in reversed(margins)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, _Made):
            found.setdefault(id(node), node)
        else:
            nodes += [part for part in reversed(node[1:]) if not isinstance(part, float)]
    return list(found.values())


def written(node: Any, places: Mapping[int, int]) -> Any:
    """A combination in terms of numbers of products, fit for travelling."""
    if isinstance(node, _Made):
        return places[id(node)]
    return (node[0], *(part if isinstance(part, float) else written(part, places) for part in node[1:]))


def combined(text: Any, products: Sequence[Array]) -> Array:
    """The combination of these products, on some rows."""
    if isinstance(text, int):
        return products[text]
    sign, one, other = text
    if sign == "*":
        scaled: Array = one * combined(other, products)
        return scaled
    a, b = combined(one, products), combined(other, products)
    return a + b if sign == "+" else a - b


def product(X: Array, w: Array, offset: Array | None) -> Array:
    """X w, plus an offset, for the rows of a block."""
    margins: Array = X @ w
    return margins if offset is None else margins + offset


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
