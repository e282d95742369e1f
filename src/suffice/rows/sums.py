r"""A sum over blocks of rows: what is done with each, and the one tree in which parts are added.

Blocks are cut by the number of the row, and sums over them are made in one binary tree: neighbours first, then
neighbours of sums. So a sum has the same bits whoever makes its parts, in whatever order and number: one process that
reads one block after the other (`suffice.rows.blocks`), or workers that hold some blocks each (`suffice.rows.dask`). A
block is computed with one BLAS thread, since more would add in another order. Blocks of 2^k neighbours are a subtree; a
term of a sum over n blocks passes ceil(log2 n) additions.

What is done with a block is a `Job`: a function of its rows of X, of whatever goes with the rows (targets, weights),
and of margins. Weights may be rules that take no memory: all alike, those of a view, or of a fold by its number.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array
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
        return pulled(self.X, r) if self.adjoint is None else self.adjoint(r)

    def __getitem__(self, name: str) -> Any:
        return self.given[name]


def pulled(X: Array, r: Array) -> Array:
    """X^T r for dense rows."""
    return dense_product(X, r, block_length(len(X)))


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
            _Threads.limit = _controller().limit(limits=1)
        _Threads.count += 1
    try:
        yield
    finally:
        with _Threads.lock:
            _Threads.count -= 1
            if _Threads.count == 0:
                _Threads.limit.restore_original_limits()


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@dataclass(frozen=True)
class View:
    """Rows start, start + step, ... before stop, or all but these: no more than three numbers, whatever the rows."""

    start: int
    stop: int
    step: int = 1
    complement: bool = False

    @classmethod
    def of(cls, rows: slice, total: int, *, complement: bool = False) -> View:
        start, stop, step = rows.indices(total)
        if step < 1:
            raise ValueError(f"rows must go forwards, got {rows!r}")
        return cls(start, max(stop, start), step, complement)

    def count(self, total: int) -> int:
        """How many rows of all it holds."""
        inside = len(range(self.start, self.stop, self.step))
        return total - inside if self.complement else inside

    def mask(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Which of these rows it holds."""
        rows = np.arange(start, stop)
        inside: npt.NDArray[np.bool_] = (
            (rows >= self.start) & (rows < self.stop) & ((rows - self.start) % self.step == 0)
        )
        return ~inside if self.complement else inside


@dataclass(frozen=True)
class Even:
    """Weights of rows that are all alike: `weight` for the rows of a view, or for all, and 0 for the others."""

    total: int
    weight: float
    view: View | None = None

    @classmethod
    def over(cls, total: int, view: View | None = None) -> Even:
        count = total if view is None else view.count(total)
        if count == 0:
            raise ValueError("a view of rows must hold at least one of them")
        return cls(total, 1.0 / count, view)

    @property
    def shape(self) -> tuple[int]:
        return (self.total,)

    @property
    def count(self) -> int:
        """Rows that count."""
        return self.total if self.view is None else self.view.count(self.total)

    def rows(self, start: int, stop: int) -> Array:
        if self.view is None:
            return np.full(stop - start, self.weight)
        return np.where(self.view.mask(start, stop), self.weight, 0.0)


@dataclass(frozen=True, eq=False)
class Chosen:
    """Weights of rows by numbers that go with them, those of their folds: `weight` for rows of number k, or for all
    others, and 0 for the rest. `count` rows have a weight."""

    numbers: Any
    k: int
    complement: bool
    count: int

    @property
    def shape(self) -> tuple[int]:
        return (int(self.numbers.shape[0]),)

    def of(self, numbers: Any) -> Array:
        """The weights of rows with these numbers."""
        return np.where((numbers == self.k) != self.complement, 1.0 / self.count, 0.0)


def rows_from(value: Any, place: slice) -> Any:
    """What goes with these rows: a part of an array, or what a rule says of them."""
    if isinstance(value, Even):
        return value.rows(place.start, place.stop)
    if isinstance(value, Chosen):
        return value.of(value.numbers[place])
    return None if value is None else value[place]
