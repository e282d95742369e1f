"""What a task does with a piece of rows on a worker (`suffice.rows.dask`), and what it leaves there."""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.rows.blocks import as_block
from suffice.rows.margins import combined, product
from suffice.rows.sums import Block, Even, Job, one_thread, tree

MOST_LABELS = 1000
TRIM, MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of <malloc.h>


@dataclass(frozen=True)
class Spec:
    """What a task is to do with a piece, for one request."""

    job: Job
    block: int  # rows
    columns: int
    new: tuple[Array, ...]  # w of margins to be made, each with its offset among the given
    offsets: tuple[bool, ...]
    texts: tuple[Any, ...]  # combinations of margins: new ones first, then those that are there
    names: tuple[str, ...]  # of what is given
    make: Callable[[Any], Array] | None  # of rows that X is made of

    @property
    def stays(self) -> int:
        """How many arrays stay with the rows."""
        return len(self.new) + bool(self.job.keeps)


@dataclass(frozen=True)
class Kept:
    """What a task leaves behind: numbers that stay with the rows, and its part of the sums."""

    rows: tuple[Array, ...]
    total: Any


def on_piece(text: bytes, start: int, stop: int, X: Any, given: Sequence[Any], known: Sequence[Any]) -> Any:
    """All that is asked for of a piece, request by request; `given` and `known`, margins that are there, have a list
    for each. In a worker. Its parts of the sums, with what stays where anything does."""
    specs: Sequence[Spec] = pickle.loads(text)
    keep_memory()
    with one_thread():
        found = [_of_request(*one, start, stop, X) for one in zip(specs, given, known, strict=True)]
    totals = tuple(total for _, total in found)
    rows = tuple(one for stay, _ in found for one in stay)
    return Kept(rows, totals) if rows else totals


def _of_request(
    spec: Spec, given: Sequence[Any], known: Sequence[Any], start: int, stop: int, X: Any
) -> tuple[list[Array], Any]:
    """The job on all blocks of a piece: what stays, and the sum."""
    job, offsets = spec.job, len([one for one in spec.offsets if one])
    made: list[list[Array]] = [[] for _ in spec.new]
    rows: list[Array] = []

    def parts() -> Iterator[Any]:
        for first in range(start, stop, spec.block):
            last = min(first + spec.block, stop)
            inside = slice(first - start, last - start)
            here = [_rows_of(one, first, last, inside) for one in given]
            read = _Reader(spec, X, first, last, inside)
            added = iter(here[len(here) - offsets :]) if offsets else iter(())
            pairs = zip(spec.new, spec.offsets, strict=True)
            fresh = [product(read(), w, next(added) if has else None) for w, has in pairs]
            for kept, one in zip(made, fresh, strict=True):
                kept.append(one)
            margins = [*fresh, *(_rows_of(one, first, last, inside) for one in known)]
            named = dict(zip(spec.names, here, strict=False))
            found = job(Block(first, last, read, named, [combined(text, margins) for text in spec.texts]))
            if job.keeps:
                rows.append(found[0])
                found = found[1]
            yield found

    total = tree(parts())
    stay = [*made, rows] if job.keeps else made
    return [np.concatenate(one) for one in stay], total


class _Reader:
    """A block of a piece, made when it is asked for, once."""

    def __init__(self, spec: Spec, X: Any, first: int, last: int, inside: slice) -> None:
        self.spec, self.X, self.place = spec, X, (first, last, inside)
        self.block: Array | None = None

    def __call__(self) -> Array:
        if self.block is None:
            spec, (first, last, inside) = self.spec, self.place
            rows = self.X[inside]
            self.block = as_block(rows if spec.make is None else spec.make(rows), first, last, spec.columns)
        return self.block


def _rows_of(value: Any, first: int, last: int, inside: slice) -> Any:
    if isinstance(value, tuple):  # what a task has left behind, which of it, and what it says
        kept, place, rule = value
        rows = kept if place is None else kept.rows[place]
        if rule is not None:
            return rule.of(rows[inside])
        value = rows
    if isinstance(value, Even):
        return value.rows(first, last)
    rows = np.asarray(value)[inside]
    return np.require(rows, requirements=["C", "A"]) if rows.dtype.kind == "f" else rows


def totals_of(kept: Kept) -> Any:
    """What travels."""
    return kept.total


@dataclass(frozen=True)
class _Nothing(Job):
    """Margins are made, and nothing else."""

    def __call__(self, block: Block) -> float:
        return 0.0


@dataclass(frozen=True)
class Labels(Job):
    """Different values, block by block."""

    reads = False

    def __call__(self, block: Block) -> list[Any]:
        y = block["y"]
        if y.dtype.kind == "f" and np.isnan(y).any():
            raise ValueError("y must hold labels, got NaN")
        found = np.unique(y)
        if len(found) > MOST_LABELS:
            raise ValueError(f"y must hold labels, got {len(found)} different values in {len(y)} rows")
        return found.tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Relabelled(Job):
    """A target for each label."""

    labels: Any
    targets: Array
    reads = False
    keeps = True

    def __call__(self, block: Block) -> tuple[Array, int]:
        return self.targets[np.searchsorted(self.labels, block["y"])], 0


@dataclass(frozen=True)
class Mapped(Job):
    """Targets row by row."""

    function: Callable[[Any], Array]
    reads = False
    keeps = True

    def __call__(self, block: Block) -> tuple[Array, int]:
        return self.function(block["y"]), 0


@dataclass(frozen=True)
class RowDigest(Job):
    """Of numbers that go with the rows."""

    reads = False

    def __call__(self, block: Block) -> list[str]:
        return [blake2b(np.ascontiguousarray(block["rows"]).data, digest_size=16).hexdigest()]


def _itself(value: Any) -> Any:
    return value


@cache
def keep_memory() -> None:
    """Memory that a job gives back is there for its next temporaries: 64 MB at most. The C library of Linux learns
    that by itself, but Dask turns it off in its workers, and each temporary of 128 kB would be mapped, and cleared,
    anew: as much work again as a job's own."""
    with suppress(OSError, TypeError, AttributeError):  # not glibc
        for threshold, size in ((MMAP, 1 << 25), (TRIM, 1 << 26)):
            ctypes.CDLL(None).mallopt(threshold, size)
