r"""Blocks of rows that live on the workers of a Dask cluster.

A `dask.array` of any chunks is cut anew, by the numbers of its rows, into the blocks that `RowBlocks` would have, and
2^k neighbouring blocks make a piece: one task, which gives the sum of a subtree (`suffice.rows.blocks`). Pieces of a
sum are joined in the same tree, here or, where they are large, on the workers. So results have the bits that
`RowBlocks` has on one machine, for any chunks, any number of workers, and any of them lost on the way, as long as all
machines have the same kind of processor and the same NumPy.

X is held on the workers where it fits into FITTING of their memory; elsewhere every pass reads it again from where it
came, piece by piece. Margins, targets, weights and norms of rows are held there in any case: 8 bytes for every row and
vector. All of it are tasks that Dask knows the making of: what is lost with a worker is read and computed again.
"""

from __future__ import annotations

import ctypes
import math
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from importlib import import_module
from itertools import count, islice
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np

from suffice.arrays import Array
from suffice.rows.blocks import Blocked, RowBlocks, block_rows
from suffice.rows.margins import PassRequest, making, work_through
from suffice.rows.sums import Chosen, joined, tree

TRIM, MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of <malloc.h>
PIECE_BYTES = 1 << 26  # of float64 values of a piece that is read at every pass: 64 MB,
HELD_BYTES = 1 << 29  # and of one that is held: a scheduler takes its time for every piece
PIECES_IN_MEMORY = 16  # that a worker has room for, at least
PER_THREAD = 2  # pieces for every thread, if there are blocks enough
FITTING = 0.5  # of the workers' memory that X may take
LARGE = 1 << 16  # bytes of a sum, from which it is joined on the workers


class ClusterError(RuntimeError):
    """The cluster cannot be reached any more; what was finished is in the journal, if there is one."""


@dataclass(frozen=True, eq=False)
class PieceRows:
    """Numbers that go with the rows, one future for each piece; `place` says where in a task's `Kept`."""

    home: ClusterRows
    futures: tuple[Any, ...]
    place: int | None = None

    @property
    def shape(self) -> tuple[int]:
        return (self.home.shape[0],)

    def fingerprint(self) -> dict[str, Any]:
        """What a journal compares: every value."""
        return {"values": blake2b(np.ascontiguousarray(self.home.gathered(self)).data, digest_size=16).hexdigest()}


@dataclass(frozen=True)
class Kept:
    """What a task leaves behind: numbers that stay with the rows, and its parts of the sums."""

    rows: tuple[Array, ...]
    totals: tuple[Any, ...]


class ClusterRows(Blocked):
    """A `dask.array` of at least as many rows as columns, on a cluster."""

    here = False

    def __init__(self, X: Any, client: Any, *, block: int | None = None) -> None:
        if X.ndim != 2 or 0 in X.shape:
            raise ValueError(f"X must be a matrix with at least one row and column, got shape {X.shape}")
        if X.dtype.kind not in "biuf":
            raise TypeError(f"X must be a matrix of real numbers, got {X.dtype}")
        if not isinstance(X._meta, np.ndarray):
            raise TypeError(f"chunks of a dask.array must be NumPy's, got {type(X._meta).__name__}")
        self.client = client
        self.shape = int(X.shape[0]), int(X.shape[1])
        self.block = block_rows(self.shape, block)
        self._passes = 0
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        threads = sum(worker["nthreads"] for worker in workers) or 1
        limits = [worker["memory_limit"] or math.inf for worker in workers]
        self.held = X.nbytes <= FITTING * sum(limits)
        most = HELD_BYTES if self.held else PIECE_BYTES
        fitting = min([most, *(limit / PIECES_IN_MEMORY for limit in limits)])
        self.piece = self.block * blocks_of_piece(self.shape, self.block, threads, int(fitting))
        self.places = tuple(
            (start, min(start + self.piece, self.shape[0])) for start in range(0, self.shape[0], self.piece)
        )
        with _talking(client), _quiet():
            cut = X.rechunk({0: self.piece, 1: -1}, method="tasks")
            if self.held:
                cut = client.persist(cut)
                distributed: Any = import_module("distributed")
                self._pieces: Any = sorted(distributed.futures_of(cut), key=lambda one: one.key[1])
            else:
                self._pieces = cut.to_delayed().ravel()

    def __getstate__(self) -> Any:
        raise TypeError("rows on a cluster cannot be sent elsewhere: leave executor=None, the cluster does the work")

    def __matmul__(self, w: Any) -> Any:
        raise TypeError(
            "X lives on a cluster: this model needs it in main memory (suffice.problems.ElasticNetModel, and what is "
            "made of it, does not)"
        )

    @property
    def passes(self) -> int:
        """How often the rows were read, whatever they were made into."""
        return int(self.source._passes)

    def answers(self, requests: Sequence[PassRequest]) -> list[Any]:
        """Three tasks for each piece at most: those that leave margins there need none that are there already, since
        these would be made again, or remembered, with them. A piece that is not held is read once for all."""
        made = making(requests)
        groups: list[list[PassRequest]] = [list(made.values()), [], []]
        for work in requests:
            fresh = all(isinstance(one, PassRequest) for one in work.sources[len(work.names) :])
            groups[1 if work.job.keeps else 0 if fresh else 2].append(work)
        for number, group in enumerate(groups):
            for k, work in enumerate(group):
                work.place = number, k
        self.source._passes += any(work.job.reads for group in groups for work in group)
        tasks: list[list[Any]] = []
        with _talking(self.client), _quiet():
            for group in groups:
                tasks.append(self._tasks(group, tasks) if group else [])
            every = [one for of_group in tasks for one in of_group]
            started = iter(every if self.held else self.client.compute(every))
            futures = [tuple(islice(started, len(of_group))) for of_group in tasks]
            sums = [group[len(made) if group is groups[0] else 0 :] for group in groups]
            parts = [
                self._totals(group, of) if some else [] for group, of, some in zip(groups, futures, sums, strict=True)
            ]
            totals = [tree(found) if found else () for found in self.client.gather(parts)]
        for one, work in made.items():
            one.rows = PieceRows(self, futures[0], work.place[1])
        return [
            (PieceRows(self, futures[1], k), totals[1][k]) if number == 1 else totals[number][k]
            for number, k in (work.place for work in requests)
        ]

    def _tasks(self, works: Sequence[PassRequest], before: Sequence[Sequence[Any]]) -> list[Any]:
        """A task for each piece that does all of these, and may need what those before leave: under way, if pieces are
        held."""
        text: Any = import_module("distributed.protocol.pickle").dumps((self.block, works))
        if len(text) > LARGE:  # travels once, not with every task
            text = self.client.submit(_itself, text, pure=False)
        reads, tasks = any(work.job.reads for work in works), []
        for piece, (start, stop) in enumerate(self.places):
            sources = [[_argument(one, piece, slice(start, stop), before) for one in work.sources] for work in works]
            X = self._pieces[piece] if reads else None
            tasks.append((text, start, stop, X, sources))
        if self.held:
            return self._mapped(on_piece, tasks)
        dask: Any = import_module("dask")
        do = dask.delayed(on_piece, pure=False)
        return [do(*task, dask_key_name=_key()) for task in tasks]

    def _totals(self, works: Sequence[PassRequest], futures: Sequence[Any]) -> list[Any]:
        """Futures of sums, joined on the workers where they are large."""
        keeps = any(work.job.keeps for work in works)
        totals = self._mapped(totals_of, [(one,) for one in futures]) if keeps else list(futures)
        if 8 * sum(getattr(work.job, "size", 0) for work in works) > LARGE:
            while len(totals) > 1:
                pairs = list(zip(totals[::2], totals[1::2], strict=False))
                totals = self._mapped(joined, pairs) + totals[2 * len(pairs) :]
        return totals

    def _mapped(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        """One message for all."""
        keys = [_key() for _ in tasks]
        return self.client.map(function, *zip(*tasks, strict=True), key=keys, pure=False)

    def rows_of(self, values: Any) -> PieceRows:
        values = np.asarray(values)
        with _talking(self.client), _quiet():
            return PieceRows(self, tuple(self._mapped(_itself, [(values[a:b],) for a, b in self.places])))

    def gathered(self, rows: Any) -> Array:
        if isinstance(rows, Chosen):
            numbers = None if rows.numbers is None else self.gathered(rows.numbers)
            return replace(rows, numbers=numbers).at(slice(0, self.shape[0]))
        with _talking(self.client):
            parts = self.client.gather(list(rows.futures))
        return np.concatenate([part if rows.place is None else part.rows[rows.place] for part in parts])


def rows_of(X: Any) -> Blocked:
    """The rows of a `dask.array` on the cluster of the current `distributed.Client`; without one, and for more columns
    than rows, in blocks that Dask brings here. The same array is cut once."""
    X, client = X.compute_chunk_sizes() if any(map(math.isnan, X.shape)) else X, None  # a file's parts are counted
    with suppress(ImportError, ValueError):
        client = import_module("distributed").get_client()
    if client is None or X.ndim != 2 or X.shape[0] < X.shape[1]:
        return RowBlocks(_Fetched(X), tuple(X.shape))
    found = _cut.get((client.id, X.name))
    if found is None:
        found = _cut[client.id, X.name] = ClusterRows(X, client)
    return found


_cut: WeakValueDictionary[Any, ClusterRows] = WeakValueDictionary()
_numbers, _session = count(), uuid4().hex[:12]


class _Fetched:
    """Rows of a `dask.array`, computed by Dask wherever it is told to."""

    def __init__(self, X: Any) -> None:
        self.X = X

    def __call__(self, start: int, stop: int) -> Any:
        return self.X[start:stop].compute()


def blocks_of_piece(shape: tuple[int, int], block: int, threads: int, size: int) -> int:
    """2^k: as many as have no more than this size in bytes, and as leave PER_THREAD pieces for every thread."""
    blocks = math.ceil(shape[0] / block)
    most = max(min(size // (8 * block * shape[1]), blocks // (PER_THREAD * threads)), 1)
    return 1 << (most.bit_length() - 1)


def _argument(value: Any, piece: int, place: slice, before: Sequence[Sequence[Any]]) -> Any:
    """What goes with the rows of a piece, fit for travelling: an array of all rows goes in parts, what a task has left
    behind, or will, as that, with its place and the rule that reads it; None is the task itself."""
    if isinstance(value, PassRequest):
        group, k = value.place
        return before[group][piece] if group < len(before) else None, k, None
    if isinstance(value, PieceRows):
        return value.futures[piece], value.place, None
    if isinstance(value, Chosen) and value.numbers is not None:
        return *_argument(value.numbers, piece, place, before)[:2], replace(value, numbers=None)
    return value[place] if isinstance(value, np.ndarray) else value


def on_piece(text: bytes, start: int, stop: int, X: Any, sources: Sequence[Sequence[Any]]) -> Any:
    """All works on a piece: their parts of the sums, with what stays where anything does. In a worker."""
    block, works = pickle.loads(text)
    keep_memory()
    for work, given in zip(works, sources, strict=True):
        work.sources = [_resolved(one, works) for one in given]
    work_through(works, start, stop, block, lambda first, last: X[first - start : last - start])
    totals = tuple(work.sum.total() for work in works)
    return Kept(tuple(work.kept for work in works), totals) if any(work.job.keeps for work in works) else totals


def _resolved(value: Any, works: Sequence[PassRequest]) -> Any:
    if not isinstance(value, tuple):
        return value
    rows, place, rule = value
    if rows is None:
        return works[place]
    rows = np.require(rows if place is None else rows.rows[place], requirements=["C", "A"])
    return rows if rule is None else replace(rule, numbers=rows)


def _itself(value: Any) -> Any:
    return value


def totals_of(kept: Kept) -> Any:
    """What travels."""
    return kept.totals


def _key() -> str:
    return f"suffice-{_session}-{next(_numbers)}"


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        yield


@contextmanager
def _talking(client: Any) -> Iterator[None]:
    """What a cluster that is gone raises comes out as one error, which says so."""
    try:
        yield
    except Exception as error:
        if client.status == "running" and type(error).__name__ not in ("FutureCancelledError", "CancelledError"):
            raise
        raise ClusterError(
            f"the cluster at {client.scheduler.address if client.scheduler else 'an unknown address'} cannot be "
            f"reached any more ({type(error).__name__}): finished evaluations are in the journal, if there is one, and "
            "suffice.resume goes on from there on another cluster"
        ) from error


@cache
def keep_memory() -> None:
    """Memory that a job gives back is there for its next temporaries: 64 MB at most. The C library of Linux learns
    that by itself, but Dask turns it off in its workers, and each temporary of 128 kB would be mapped, and cleared,
    anew: as much work again as a job's own."""
    with suppress(OSError, TypeError, AttributeError):  # not glibc
        for threshold, size in ((MMAP, 1 << 25), (TRIM, 1 << 26)):
            ctypes.CDLL(None).mallopt(threshold, size)
