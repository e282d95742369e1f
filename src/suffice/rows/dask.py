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

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib import import_module
from itertools import count
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np

from suffice.arrays import Array
from suffice.rows.blocks import LOCAL, Blocked, RowBlocks, block_rows
from suffice.rows.margins import PassRequest, products_of, written
from suffice.rows.pieces import (
    Labels,
    Mapped,
    Relabelled,
    RowDigest,
    Spec,
    _itself,
    _Nothing,
    on_piece,
    totals_of,
)
from suffice.rows.sums import Chosen, Even, joined, tree

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
        digests = self.home.run(RowDigest(), rows=self)
        return {"values": blake2b("".join(digests).encode(), digest_size=16).hexdigest()}

    def argument(self, piece: int) -> Any:
        return self.futures[piece], self.place, None


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
        self._root, self._passes = self, 0
        self.make: Callable[[Any], Array] | None = None
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

    def through(self, make: Callable[[Any], Array], columns: int) -> ClusterRows:
        """`make` travels to the workers."""
        other = ClusterRows.__new__(ClusterRows)
        vars(other).update({name: value for name, value in vars(self).items() if name not in LOCAL})
        other.shape, other.make = (self.shape[0], columns), make
        return other

    def __getstate__(self) -> Any:
        raise TypeError("rows on a cluster cannot be sent elsewhere: leave executor=None, the cluster does the work")

    def __matmul__(self, w: Any) -> Any:
        raise TypeError(
            "X lives on a cluster: this model needs it in main memory (suffice.problems.ElasticNetModel, and what is "
            "made of it, does not)"
        )

    @property
    def source(self) -> Any:
        return self._root

    @property
    def passes(self) -> int:
        """How often the rows were read, whatever they were made into."""
        return int(self._root._passes)

    def answers(self, requests: Sequence[PassRequest]) -> list[Any]:
        """One task for each piece does all that is asked for, with two exceptions: margins that a job needs beside
        others that are there, and what stays beside what does not, are made by tasks of their own. What stays would
        else depend on all that it was made along with, and be made again, or remembered, with it."""
        units = [
            _Unit(request, [one for one in products_of(request.margins) if one.rows is None]) for request in requests
        ]
        alone: list[_Unit] = []
        for unit in units:
            if len(unit.new) > 1 or (unit.new and len(products_of(unit.request.margins)) > 1):
                alone += [_Unit(PassRequest(unit.request.X, _Nothing(), (), {}), [one]) for one in unit.new]
                unit.new = []
        all_units = [*alone, *units]
        groups = [[unit for unit in all_units if unit.kind == kind] for kind in KINDS]
        with _talking(self.client), _quiet():
            started = [(group, self._start(group)) for group in groups if group]
            gathered = self.client.gather([totals for _, totals in started])
        for (group, _), totals in zip(started, gathered, strict=True):
            for unit, total in zip(group, tree(totals), strict=True):
                unit.total = total
        return [unit.answer for unit in units]

    def _start(self, units: Sequence[_Unit]) -> list[Any]:
        """One task for each piece, under way: futures of its sums, one for each unit."""
        specs = [unit.spec for unit in units]
        reads = any(unit.reads for unit in units)
        self._root._passes += reads
        text: Any = _packed(specs)
        if len(text) > LARGE:  # travels once, not with every task
            text = self.client.submit(_itself, text, pure=False)
        tasks = []
        for k, (start, stop) in enumerate(self.places):
            given = [[_argument(one, k, slice(start, stop)) for one in unit.given] for unit in units]
            known = [[_argument(one.rows, k, slice(start, stop)) for one in unit.known] for unit in units]
            tasks.append((text, start, stop, self._pieces[k] if reads else None, given, known))
        futures = self._submitted(on_piece, tasks, delayed=reads and not self.held)
        place = 0
        for unit, spec in zip(units, specs, strict=True):
            unit.leave(futures, place)
            place += spec.stays
        totals = self._mapped(totals_of, [(one,) for one in futures]) if place else list(futures)
        if 8 * sum(getattr(spec.job, "size", 0) for spec in specs) > LARGE:
            while len(totals) > 1:  # joined on the workers
                pairs = list(zip(totals[::2], totals[1::2], strict=False))
                totals = self._mapped(joined, pairs) + totals[2 * len(pairs) :]
        return totals

    def _submitted(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], *, delayed: bool) -> Any:
        if not delayed:
            return tuple(self._mapped(function, tasks))
        dask: Any = import_module("dask")
        ones = [dask.delayed(function, pure=False)(*task, dask_key_name=_key()) for task in tasks]
        return tuple(self.client.compute(ones, optimize_graph=True))

    def _mapped(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        """One message for all."""
        keys = [_key() for _ in tasks]
        return self.client.map(function, *zip(*tasks, strict=True), key=keys, pure=False)  # type: ignore[no-any-return]

    def rows_of(self, values: Any) -> PieceRows:
        """Numbers, or labels, of all rows: an array, or a `dask.array` of any chunks."""
        from suffice.rows.given import is_dask

        with _talking(self.client), _quiet():
            if is_dask(values):
                distributed: Any = import_module("distributed")
                whole = {axis: -1 for axis in range(1, values.ndim)}
                cut = self.client.persist(_known(values).rechunk({0: self.piece, **whole}, method="tasks"))
                pieces = sorted(distributed.futures_of(cut), key=lambda one: one.key[1])
            else:
                values = np.asarray(values)
                pieces = self._mapped(_itself, [(values[a:b],) for a, b in self.places])
        return PieceRows(self, tuple(pieces))

    def gathered(self, rows: Any) -> Array:
        if isinstance(rows, Even):
            return rows.rows(0, self.shape[0])
        if isinstance(rows, Chosen):
            return rows.of(self.gathered(rows.numbers))
        with _talking(self.client):
            parts = self.client.gather(list(rows.futures))
        return np.concatenate([part if rows.place is None else part.rows[rows.place] for part in parts])

    def targets(self, y: Any, function: Callable[[Any], Array], labels: bool) -> Any:
        from suffice.rows.given import as_dask, is_dask

        y = as_dask(y)
        if not is_dask(y):
            return super().targets(y, function, labels)
        y = self._checked(_known(y))
        raw = self._once(y.name, lambda: self.rows_of(y))
        if labels:
            found = np.array(sorted(set(self.run(Labels(), y=raw))), dtype=y.dtype)
            job: Any = Relabelled(found, function(found))
            key: Any = (y.name, tuple(job.targets))
        else:
            job, key = Mapped(function), (y.name, _packed(function))
        return self._once(key, lambda: self.run(job, y=raw)[0])


KINDS = ((True, False), (True, True), (False, True), (False, False))  # makes margins, keeps: in this order


class _Unit:
    """A request on its way: `new` are the margins that it makes."""

    def __init__(self, request: PassRequest, new: list[Any]) -> None:
        self.request, self.new = request, new
        self.total: Any = None
        self.rows: PieceRows | None = None

    @property
    def kind(self) -> tuple[bool, bool]:
        return bool(self.new), bool(self.request.job.keeps)

    @property
    def reads(self) -> bool:
        return bool(self.new) or self.request.job.reads

    @property
    def known(self) -> list[Any]:
        """Margins that are there."""
        return [one for one in products_of(self.request.margins) if one not in self.new]

    @property
    def given(self) -> list[Any]:
        """What goes with the rows, offsets of new margins last."""
        return [*self.request.given.values(), *(one.offset for one in self.new if one.offset is not None)]

    @property
    def spec(self) -> Spec:
        X, order = self.request.X, {id(one): k for k, one in enumerate([*self.new, *self.known])}
        assert isinstance(X, ClusterRows)
        return Spec(
            self.request.job,
            X.block,
            X.shape[1],
            tuple(one.w for one in self.new),
            tuple(one.offset is not None for one in self.new),
            tuple(written(one.node, order) for one in self.request.margins),
            tuple(self.request.given),
            X.make,
        )

    def leave(self, futures: tuple[Any, ...], place: int) -> None:
        """What stays with the rows has these futures, from this place on."""
        X = self.request.X
        assert isinstance(X, ClusterRows)
        for k, one in enumerate(self.new):
            one.rows = PieceRows(X, futures, place + k)
        if self.request.job.keeps:
            self.rows = PieceRows(X, futures, place + len(self.new))

    @property
    def answer(self) -> Any:
        return (self.rows, self.total) if self.request.job.keeps else self.total


def rows_of(X: Any) -> Blocked:
    """The rows of a `dask.array` on the cluster of the current `distributed.Client`; without one, and for more columns
    than rows, in blocks that Dask brings here. The same array is cut once."""
    X, client = _known(X), None
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


def _known(X: Any) -> Any:
    """With chunks of known sizes: those of a file's parts are counted first."""
    return X.compute_chunk_sizes() if any(math.isnan(size) for size in X.shape) else X


def _argument(value: Any, piece: int, place: slice) -> Any:
    """What goes with the rows of a piece, fit for travelling: an array of all rows goes in parts."""
    if isinstance(value, np.ndarray):
        return value[place]
    if isinstance(value, Chosen) and isinstance(value.numbers, PieceRows):
        return (*value.numbers.argument(piece)[:2], replace(value, numbers=None))
    return value.argument(piece) if isinstance(value, PieceRows) else value


def _packed(value: Any) -> bytes:
    """For `pickle.loads`; classes of a notebook, which workers cannot import, travel whole."""
    text: bytes = import_module("distributed.protocol.pickle").dumps(value)
    return text


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
