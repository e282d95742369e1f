r"""A matrix that is never in memory as a whole: blocks of rows, here or on a cluster.

    X w = (X_1 w, X_2 w, ...),     X^T r = sum_b X_b^T r_b,     X^T C X = sum_b X_b^T C_b X_b

Sums over blocks are made in one tree (`suffice.rows.sums`), of jobs that are given margins (`suffice.rows.margins`).
Jobs that are asked for at a time (`suffice.rows.margins`) share a pass.

`RowBlocks` behaves like a matrix where a `Design` needs one: `shape`, `X @ w`, `X.T @ r`. Its rows come from a
`numpy.memmap`, from files, or from any function that gives the rows from one number to another. A block is turned into
float64 when it is read: a file of bytes or float32 takes no more room than it has. A file is mapped where it is
needed, and known to workers by its name; the operating system keeps what fits of it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from suffice.arrays import Array, frozen, whole_number
from suffice.rows.gram import Pull
from suffice.rows.margins import Known, Making, Margins, PassRequest, Product, as_block, asked, making, work_through
from suffice.rows.sums import Block, Job, one_thread, rows_from, tree_roundings

LOCAL = ("_surveys", "_made", "_targets", "_root")  # what does not travel
BLOCK_BYTES = 1 << 23  # of float64 values at a time: 8 MB


class Blocked:
    """Blocks of rows of a matrix of real numbers, wherever they are."""

    __array_ufunc__ = None  # numpy would take it apart

    shape: tuple[int, int]
    block: int
    here: bool = True  # whether products with X are arrays of this process
    dear: bool = True  # whether a pass over X is worth saving: rows are read from elsewhere, and nothing is asked twice
    at_hand: bool = False  # whether X is in main memory as a whole: rows and columns may be taken from it
    full: bool = False  # whether all entries are stored there, so that a dense part takes no more memory than X
    makes: tuple[Callable[[Any], Array], ...] = ()  # what X is made by, one after the other, of the rows that are read
    _root: Any = None

    @property
    def ndim(self) -> int:
        return 2

    def margins(self, w: Array, offset: Any = None) -> Margins:
        """X w, for a vector or a matrix w, plus an offset for every row; nothing is read before it is needed, nor twice
        while somebody holds it."""
        if np.shape(w)[:1] != self.shape[1:]:
            raise ValueError(f"X has {self.shape[1]} columns, its factor has shape {np.shape(w)}")
        w = np.array(w, order="C")
        known: WeakValueDictionary[Any, Product] = self.__dict__.setdefault("_made", WeakValueDictionary())
        key = w.tobytes(), w.shape, id(offset)
        product = known.get(key)
        if product is None:
            known[key] = product = Product(w, offset)
        return Margins(self, [(1.0, product)])

    def directions(self, W: Array) -> Any:
        """X W, for directions: nothing is remembered of it."""
        return self.margins(W)

    def few_threads(self) -> AbstractContextManager[None]:
        """For what the host has left to do for a device: it is small, and many threads take longer for it than one."""
        return nullcontext() if self.dear or self.at_hand else one_thread()

    @property
    def adjoint(self) -> Any:
        """r -> X^T r where X lives, for a vector or a matrix r; with its `roundings`."""
        return Transposed(self)

    def known(self, image: Any) -> Known:
        """What was found out about these margins."""
        return image.known

    def all_at_once(self, image: Any) -> bool:
        """Whether all that may be asked of a point is found when its margins are made, in one pass over X."""
        return bool(image.is_product)

    def run(self, job: Job, margins: Sequence[Margins] = (), riders: Sequence[Any] = (), **given: Any) -> Any:
        """The sum over all blocks of what the job gives; for one that keeps, with what stays with the rows before
        it. Riders go with it, on the same margins."""
        requests = [PassRequest(self, job, tuple(margins), given)]
        found, *others = asked(requests + [PassRequest(self, one.job, tuple(margins), one.given) for one in riders])
        for one, other in zip(riders, others, strict=True):
            margins[0].known[one.what, *map(id, one.owners)] = one.owners, other
        return found

    @property
    def source(self) -> Any:
        """Whose rows are read: one pass over them serves all that is asked for at a time."""
        return self if self._root is None else self._root

    def answers(self, requests: Sequence[PassRequest]) -> list[Any]:
        """What `run` gives for each of these requests, which share their source."""
        raise NotImplementedError

    def rows_of(self, values: Any) -> Any:
        """Numbers that go with the rows, from an array of them, to be given to jobs."""
        raise NotImplementedError

    def targets(self, y: Any, function: Callable[[Any], Array]) -> Any:
        """`function` of all y, to be given to jobs. What several problems and losses share is held once."""
        values = np.ascontiguousarray(function(self._checked(np.asarray(y))))
        key = values.dtype.str, blake2b(values.data, digest_size=16).digest()
        known: WeakValueDictionary[Any, Any] = self.source.__dict__.setdefault("_targets", WeakValueDictionary())
        found = known.get(key)
        if found is None:
            known[key] = found = self.rows_of(frozen(values))
        return found

    def _checked(self, y: Any) -> Any:
        if y.shape != self.shape[:1]:
            raise ValueError(f"y must have shape ({self.shape[0]},) to match X, got {y.shape}")
        return y

    def gathered(self, rows: Any) -> Array:
        """Numbers that go with the rows as an array."""
        raise NotImplementedError

    def through(self, make: Callable[[Any], Array], columns: int) -> Any:
        """Another matrix, of which `make` gives the rows from those of this one, block by block, whenever they are
        needed: a preparation that takes no memory."""
        other = type(self).__new__(type(self))
        vars(other).update({name: value for name, value in vars(self).items() if name not in LOCAL})
        other.shape, other.makes, other._root = (self.shape[0], columns), (*self.makes, make), self.source
        return other

    def product(self, w: Array) -> Array:
        """X w, for a vector or a matrix w, as an array."""
        return self.gathered(self.run(Making(self.margins(w).w))[0])

    def fingerprint(self) -> dict[str, Any]:
        """What a journal compares: every entry, whatever file or chunk it lies in."""
        digests = self.run(Digest())
        return {"shape": self.shape, "values": blake2b("".join(digests).encode(), digest_size=16).hexdigest()}


@dataclass(frozen=True)
class Digest(Job):
    """Of every entry, block by block."""

    def __call__(self, block: Block) -> list[str]:
        return [blake2b(block.X.data, digest_size=16).hexdigest()]


class RowBlocks(Blocked):
    """A matrix of real numbers as blocks of rows; `rows(start, stop)` returns the rows start..stop-1.

    `RowBlocks.of` makes one from arrays and files. `block` is the number of rows that are read at a time.
    """

    def __init__(self, rows: Callable[[int, int], Any], shape: tuple[int, int], *, block: int | None = None) -> None:
        if not callable(rows):
            raise TypeError(f"rows must be callable, got {rows!r}")
        if len(shape) != 2:
            raise ValueError(f"shape must be a pair (rows, columns), got {shape!r}")
        self.rows = rows
        self.shape = whole_number(shape[0], "rows", least=1), whole_number(shape[1], "columns", least=1)
        self.block = block_rows(self.shape, block)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in LOCAL}

    @classmethod
    def of(cls, source: Any, *, block: int | None = None) -> RowBlocks:
        """From an array, such as a `numpy.memmap`, a file made by `numpy.save`, or a list of these, one below the
        other."""
        if isinstance(source, cls):
            return source
        parts = [_Part(item) for item in (source if isinstance(source, list | tuple) else [source])]
        if not parts:
            raise ValueError("source must hold at least one array or file")
        widths = sorted({part.shape[1] for part in parts})
        if len(widths) > 1:
            raise ValueError(f"all parts must have the same number of columns, got {widths}")
        return cls(_Stack(parts), (sum(part.shape[0] for part in parts), widths[0]), block=block)

    @property
    def T(self) -> Transposed:  # noqa: N802 (as numpy has it)
        return self.adjoint

    def __matmul__(self, w: Array) -> Array:
        return self.product(w)

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Where each block stands, and the block."""
        for start in range(0, self.shape[0], self.block):
            place = slice(start, min(start + self.block, self.shape[0]))
            yield place, self.block_at(place)

    def block_at(self, place: slice) -> Array:
        """The rows that stand there."""
        read = partial(self.rows, place.start, place.stop)
        return as_block(read, place.start, place.stop, self.shape[1], self.makes)

    def answers(self, requests: Sequence[PassRequest]) -> list[Any]:
        made = making(requests)
        work_through([*made.values(), *requests], 0, self.shape[0], self.block, self.rows)
        for one, work in made.items():
            one.rows = work.kept
        return [work.result() for work in requests]

    def rows_of(self, values: Any) -> Array:
        return np.asarray(values)

    def gathered(self, rows: Any) -> Array:
        return rows_from(rows, slice(0, self.shape[0]))

    def outer_gram(self) -> Array:
        """X X^T, for few rows."""
        result = np.empty((self.shape[0], self.shape[0]))
        for place, block in self.blocks():
            result[:, place] = self @ block.T
        return result


def block_rows(shape: tuple[int, int], block: int | None = None) -> int:
    """The number of rows of a block of a matrix of this shape, wherever it is: `block`, or BLOCK_BYTES of them."""
    fitting = max(BLOCK_BYTES // (8 * shape[1]), 1)
    return min(fitting if block is None else whole_number(block, "block", least=1), shape[0])


class Transposed:
    """X^T, for products; `roundings` as of those with other layouts (`suffice.rows.memory`)."""

    __array_ufunc__ = None

    def __init__(self, X: Blocked) -> None:
        self.X, self.roundings = X, np.full(X.shape[1], float(tree_roundings(X.shape[0], X.block)))

    def __matmul__(self, r: Any) -> Array:
        if np.shape(r)[:1] != self.X.shape[:1]:
            raise ValueError(f"X has {self.X.shape[0]} rows, its factor has shape {np.shape(r)}")
        return self.X.run(Pull(), r=r)

    __call__ = __matmul__


class _Part:
    """An array, or a file: that one is mapped where it is needed, and a worker is sent its name, not its content."""

    def __init__(self, source: Any) -> None:
        if isinstance(source, str | os.PathLike):
            source = np.load(source, mmap_mode="r", allow_pickle=False)
        array = source if isinstance(source, np.ndarray) else np.asarray(source)
        if array.ndim != 2 or 0 in array.shape:
            raise ValueError(f"X must be a matrix with at least one row and column, got shape {array.shape}")
        if array.dtype.kind not in "biuf":
            raise TypeError(f"X must be a matrix of real numbers, got {array.dtype}")
        self.shape = (int(array.shape[0]), int(array.shape[1]))
        self.file = (_file_of(array) or {}) if isinstance(array, np.memmap) else {}
        self.array: Any = array

    def __getitem__(self, rows: slice) -> Any:
        if self.array is None:
            memory_map: Any = np.memmap
            self.array = memory_map(mode="r", **self.file)
        return self.array[rows]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "array": None if self.file else self.array}


def _file_of(array: Any) -> dict[str, Any] | None:
    """The arguments with which a memory map can be made again, or None if it is a part of its file that has none."""
    root, name = array._mmap, array.filename
    if root is None or name is None or not (array.flags.c_contiguous or array.flags.f_contiguous):
        return None
    mapped = np.frombuffer(root, dtype=np.uint8).__array_interface__["data"][0]
    # The mapping begins where a page does, at or before the array that was asked for.
    page = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    offset = page + array.__array_interface__["data"][0] - mapped
    order = "C" if array.flags.c_contiguous else "F"
    return {"filename": str(name), "dtype": array.dtype, "offset": offset, "shape": array.shape, "order": order}


class _Stack:
    """Parts one below the other."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self.parts = tuple(parts)

    def __call__(self, start: int, stop: int) -> Any:
        pieces, first = [], 0
        for part in self.parts:
            last = first + part.shape[0]
            if start < last and first < stop:
                pieces.append(part[max(start, first) - first : min(stop, last) - first])
            first = last
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
