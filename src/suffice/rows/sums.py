r"""A sum over blocks of rows: what is done with each, and the one tree in which parts are added.

Blocks are cut by the number of the row, and sums over them are made in one binary tree: neighbours first, then
neighbours of sums. So a sum has the same bits whoever makes its parts, in whatever order and number: one process that
reads one block after the other (`suffice.rows.blocks`), or workers that hold some blocks each (`suffice.rows.dask`). A
block is computed with one BLAS thread, since more would add in another order. Blocks of 2^k neighbours are a subtree; a
term of a sum over n blocks passes ceil(log2 n) additions.

What is done with a block is a `Job`: a function of its rows of X, of whatever goes with the rows (targets, weights),
and of margins. Weights may be a rule that takes no memory: all alike, or those of a fold by its number.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.executors.spread import controller
from suffice.rows.rounding import block_length, dense_product, roundings


@dataclass(eq=False, slots=True)
class Block:
    """Rows start..stop-1: their part of X, of what goes with the rows, and of margins."""

    start: int
    stop: int
    read: Callable[[], Any]
    given: Mapping[str, Any]
    margins: Sequence[Array] = ()
    adjoint: Callable[[Any], Array] | None = None  # how X^T r is made where that is known

    @property
    def X(self) -> Any:  # noqa: N802 (the symbol)
        """Read when it is asked for."""
        return self.read()

    def pull(self, r: Any) -> Array:
        """X^T r, for a vector or a matrix r."""
        return dense_product(self.X, r, block_length(len(r))) if self.adjoint is None else self.adjoint(r)

    def __getitem__(self, name: str) -> Any:
        return self.given[name]


class Job:
    """What is done with a block. It travels to workers: a class of a module, with small attributes."""

    @property
    def reads(self) -> bool:
        """Whether it needs X itself."""
        return True

    @property
    def keeps(self) -> bool:
        """Whether it gives a pair: numbers that go with the rows and stay where these are, and what is summed."""
        return False

    def __call__(self, block: Block) -> Any:
        raise NotImplementedError


def beside(a: Any, m: Any) -> Any:
    """Numbers of rows, to go with their margins."""
    return a if m.ndim == 1 else a[:, None]


class Most(float):
    """A number of which the largest counts."""

    def __add__(self, other: Any) -> Most:
        return Most(max(self, other)) if self == self and other == other else Most(math.nan)


class Length(float):
    """A Euclidean length, of which squares are summed."""

    def __add__(self, other: Any) -> Length:
        return Length(math.hypot(self, other))


def joined(one: Any, other: Any) -> Any:
    """The sum of what a job gives for two neighbours; lists are put one after the other."""
    if isinstance(one, tuple):
        return tuple(joined(a, b) for a, b in zip(one, other, strict=True))
    return one + other


class Tree:
    """A sum of parts, neighbours first: pairs, pairs of pairs, and so on. One is held for each level."""

    def __init__(self) -> None:
        self._open: list[tuple[int, Any]] = []  # each of 2^level parts, the longest first

    def add(self, part: Any) -> None:
        level = 0
        while self._open and self._open[-1][0] == level:
            part, level = joined(self._open.pop()[1], part), level + 1
        self._open.append((level, part))

    def total(self) -> Any:
        """Of at least one part; nothing can be added any more."""
        total = self._open.pop()[1]
        while self._open:
            total = joined(self._open.pop()[1], total)
        return total


def tree(parts: Iterable[Any]) -> Any:
    """The sum of all parts, as `Tree` makes it."""
    made = Tree()
    for part in parts:
        made.add(part)
    return made.total()


def tree_roundings(N: int, block: int) -> int:
    """How many roundings a term of X^T r passes, at most."""
    blocks = math.ceil(N / block)
    return min(N, roundings(min(N, block)) + math.ceil(math.log2(blocks)) + 1)


class _Threads:
    """How many jobs are under way in this process."""

    lock = threading.Lock()
    count = 0
    limit: Any = None


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS and OpenMP have one thread while a job is under way, in whatever thread of this process."""
    with _Threads.lock:
        if _Threads.count == 0:
            _Threads.limit = controller().limit(limits=1)
        _Threads.count += 1
    try:
        yield
    finally:
        with _Threads.lock:
            _Threads.count -= 1
            if _Threads.count == 0:
                _Threads.limit.restore_original_limits()


@dataclass(frozen=True, eq=False)
class Chosen:
    """Weights of rows that are all alike, a rule that takes no memory: 1 / `count` for the rows whose `numbers`, of all
    that there are, are k, or for all others, or for all rows where there are no numbers; 0 for the rest."""

    total: int
    count: int  # rows that have a weight
    numbers: Any = None
    k: int = 0
    complement: bool = False

    @property
    def shape(self) -> tuple[int]:
        return (self.total,)

    def _key(self) -> tuple[Any, ...]:
        return self.total, self.count, id(self.numbers), self.k, self.complement

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chosen) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def at(self, place: slice) -> Array:
        """The weights of these rows."""
        if self.numbers is None:
            return np.full(place.stop - place.start, 1.0 / self.count)
        return np.where((self.numbers[place] == self.k) != self.complement, 1.0 / self.count, 0.0)


def rows_from(value: Any, place: slice) -> Any:
    """What goes with these rows: a part of an array, or what a rule says of them."""
    return value.at(place) if isinstance(value, Chosen) else None if value is None else value[place]
