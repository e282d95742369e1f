"""Margins of blocks of rows: products X w that are made when a job needs them, in the same pass, and combinations of
these. They stay with the rows; what was found out about them stays with them.

A search solves one problem per fold. Each needs pass after pass over the same rows, and what it asks for next depends
on what it was told. `together` lets every computation go on until it asks for a pass, and then makes all that are asked
for at a time: K folds take about as many passes as the one that takes most. Each has a thread of its own, but no two of
them ever run at a time: the turn is handed round, in a fixed order. So there are no races, what is computed does not
depend on a clock, and a computation alone gives the same bits.

A pass costs more than what is done in it. So what a point is likely to be asked for next, its Hessian and the loss of
rows held out, is found out in the pass that gives its gradient: a `Rider` for each.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import cache, partial, reduce
from typing import Any, NamedTuple, TypeVar

import numpy as np

from suffice.arrays import Array
from suffice.rows.sums import Block, Job, Tree, one_thread, rows_from

T = TypeVar("T")


class Known(dict[Any, Any]):
    """What was found out about margins, by models that have certain parts: these are held, so that their ids stay their
    own."""

    def knows(self, what: str, owners: Sequence[Any]) -> bool:
        """Whether this was found out, by a model that has these parts."""
        return (what, *map(id, owners)) in self

    def what_is_known(self, what: str, owners: Sequence[Any]) -> Any:
        """It, or None."""
        return self.get((what, *map(id, owners)), (None, None))[1]

    def once(self, what: str, owners: Sequence[Any], find: Callable[[], T]) -> T:
        """What is known, found out if it has not been."""
        key = what, *map(id, owners)
        if key not in self:
            self[key] = tuple(owners), find()
        return self[key][1]


@dataclass(eq=False)
class Product:
    """X w, plus an offset: made when it is needed first; `rows` is then where it is kept. `known` holds what else was
    found out about w."""

    w: Array
    offset: Any
    rows: Any = None
    known: Known = field(default_factory=Known)


class Rider(NamedTuple):
    """A job on margins that goes with another one: what it finds out is known of them then, under this name, by what
    has these parts."""

    what: str
    owners: Sequence[Any]
    job: Job
    given: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Margins:
    """A linear combination of products X w_k with blocks of rows, each with its share."""

    X: Any
    parts: Sequence[tuple[float, Product]]
    _known: Known = field(default_factory=Known)

    __array_ufunc__ = None  # numpy would take it apart

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.X.shape[0], *self.parts[0][1].w.shape[1:])

    @property
    def is_product(self) -> bool:
        return len(self.parts) == 1 and self.parts[0][0] == 1.0

    @property
    def w(self) -> Array:
        """The weights whose product this is, but for rounding and offsets."""
        return combined([(share, one.w) for share, one in self.parts])

    @property
    def known(self) -> Known:
        """What was found out about them; the same for all that are one product."""
        return self.parts[0][1].known if self.is_product else self._known

    def __add__(self, other: Margins) -> Margins:
        shares: dict[int, tuple[float, Product]] = {}
        for share, one in (*self.parts, *other.parts):
            shares[id(one)] = shares.get(id(one), (0.0, one))[0] + share, one
        left = [part for part in shares.values() if part[0] != 0.0]
        return Margins(self.X, left or list(shares.values())[:1])

    def __sub__(self, other: Margins) -> Margins:
        return self + other * -1.0

    def __mul__(self, factor: float) -> Margins:
        return Margins(self.X, [(float(factor) * share, one) for share, one in self.parts])

    __rmul__ = __mul__


def combined(parts: Sequence[tuple[float, Array]]) -> Array:
    """sum_k c_k P_k."""
    scaled = [array if share == 1.0 else share * array for share, array in parts]
    return reduce(operator.add, scaled)


@dataclass(frozen=True)
class Making(Job):
    """X w, plus an offset where that is given: it stays with the rows. For w = 0 nothing is read."""

    w: Array
    keeps = True

    @property
    def reads(self) -> bool:
        return bool(self.w.any())

    def __call__(self, block: Block) -> tuple[Array, int]:
        shape = block.stop - block.start, *self.w.shape[1:]
        margins = block.X @ self.w if self.reads else np.zeros(shape)
        return (margins + block["offset"] if "offset" in block.given else margins), 0


class PassRequest:
    """A job on all rows of X, with the margins it needs and what else goes with the rows, and what a pass has made of
    it. It travels without its `sources`: what is given, and the products of which margins are made, each an array of
    the rows at hand, a rule, or the request that makes it in the same pass."""

    def __init__(self, X: Any, job: Job, margins: Sequence[Margins], given: Mapping[str, Any]) -> None:
        self.X, self.job, self.names = X, job, tuple(given)
        self.products = list({id(one): one for each in margins for _, one in each.parts}.values())
        places = {id(one): k for k, one in enumerate(self.products)}
        self.shares = [[(share, places[id(one)]) for share, one in each.parts] for each in margins]
        self.makes, self.columns = X.makes, X.shape[1]
        self.sources: Sequence[Any] = [*given.values(), *self.products]
        self.kept: Any = None
        self.sum, self.place = Tree(), (0, 0)  # among tasks of a cluster

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "X": None, "products": (), "sources": ()}

    def take(self, start: int, stop: int, inside: slice, rows: int, read: Callable[[], Any]) -> None:
        """The block start..stop-1, which stands `inside` of the rows at hand, so many."""
        sources = [rows_from(one.kept if isinstance(one, PassRequest) else one, inside) for one in self.sources]
        products = sources[len(self.names) :]
        margins = [combined([(share, products[k]) for share, k in shares]) for shares in self.shares]
        found = self.job(Block(start, stop, read, dict(zip(self.names, sources, strict=False)), margins))
        if self.job.keeps:
            kept, found = found
            if self.kept is None:  # in one piece from the start: parts would leave holes in the memory
                self.kept = np.empty((rows, *kept.shape[1:]), dtype=kept.dtype)
            self.kept[inside] = kept
        self.sum.add(found)

    def result(self) -> Any:
        return (self.kept, self.sum.total()) if self.job.keeps else self.sum.total()


def making(requests: Sequence[PassRequest]) -> dict[Product, PassRequest]:
    """Requests that make what these miss, which refer to them from now on."""
    made = {}
    for one, X in {one: each.X for each in requests for one in each.products if one.rows is None}.items():
        made[one] = PassRequest(X, Making(one.w), (), {} if one.offset is None else {"offset": one.offset})
    for each in requests:
        each.sources = [made.get(one, one.rows) if isinstance(one, Product) else one for one in each.sources]
    return made


def work_through(
    works: Sequence[PassRequest], start: int, stop: int, block: int, read: Callable[[int, int], Any]
) -> None:
    """All of them on the rows start..stop-1, which are read once, block by block, by whom X is asked for."""
    with one_thread():
        for first in range(start, stop, block):
            last, prepared = min(first + block, stop), dict[Any, Callable[[], Array]]()
            rows = cache(partial(read, first, last))
            for work in works:
                made = cache(partial(as_block, rows, first, last, work.columns, work.makes))
                X = prepared.setdefault(tuple(map(id, work.makes)), made)
                work.take(first, last, slice(first - start, last - start), stop - start, X)


def as_block(read: Callable[[], Any], start: int, stop: int, columns: int, makes: Sequence[Any] = ()) -> Array:
    """Rows start..stop-1 of X as float64, in one piece of memory; X is what these make of what is read."""
    rows = read()
    for make in (None, *makes):
        rows = rows if make is None else make(rows)
        try:
            rows = np.require(rows, dtype=np.float64, requirements=["C", "A"])
        except (TypeError, ValueError) as error:
            raise TypeError(f"X must be a matrix of real numbers, rows {start} to {stop - 1} are not") from error
    if rows.shape != (stop - start, columns):
        raise ValueError(f"rows({start}, {stop}) must have shape {(stop - start, columns)}, got {rows.shape}")
    return rows


class _AbandonedError(BaseException):
    """Another computation has failed, or the user has had enough."""


class _Strand:
    """A computation in a thread of its own, which runs while `go_on` waits for it, and only then."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.turn, self.rest = threading.Semaphore(0), threading.Semaphore(0)
        self.requests: Any = None
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

    def ask(self, requests: Any) -> Any:
        """From within: give the turn back until there are answers."""
        if not self.abandoned:
            self.requests = requests
            self.rest.release()
            self.turn.acquire()
        if self.abandoned:
            raise _AbandonedError
        return self.answer

    def go_on(self, answer: Any = None) -> None:
        """From without: until it asks, or is done."""
        self.requests, self.answer = None, answer
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


def asked(requests: Sequence[Any]) -> list[Any]:
    """The answers to requests of one source, made with those of other computations that are side by side with this
    one."""
    strand = _current.get()
    found: list[Any] = requests[0].X.answers(requests) if strand is None else strand.ask(requests)
    return found


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
            answers = iter(_answered([one for strand in waiting for one in strand.requests]))
            for strand in waiting:
                strand.go_on([next(answers) for _ in strand.requests])
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
