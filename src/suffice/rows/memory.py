"""Rows that are at hand as one matrix, dense or sparse in main memory or an array on a device: one block.

A job over them (`suffice.rows.blocks`) is called at once, with the matrix as it lies; margins are arrays that live with
it, and so is whatever goes with the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from suffice.arrays import Array, host, like
from suffice.lazy import cached_property
from suffice.rows.blocks import Block, Blocked, Job
from suffice.rows.products import Adjoint, adjoint


class InMemory(Blocked):
    """All rows of X as one block."""

    dear = False

    def __init__(self, X: Any) -> None:
        self.X = X
        self.shape = int(X.shape[0]), int(X.shape[1])
        self.block = self.shape[0]

    @cached_property
    def adjoint(self) -> Adjoint:
        """r -> X^T r where X lives; what it needs to know of X is found once."""
        return adjoint(self.X)

    def margins(self, w: Array, offset: Any = None) -> Any:
        """X w where X lives, for a vector or a matrix w, plus an offset for every row."""
        product = self.X @ like(w, self.X)
        return product if offset is None else product + offset

    def run(self, job: Job, margins: Sequence[Any] = (), **given: Any) -> Any:
        return job(Block(0, self.shape[0], self._read, given, margins, self._pull))

    def _read(self) -> Any:
        return self.X

    def _pull(self, r: Any) -> Array:
        return host(self.adjoint(like(r, self.X)))

    def even(self) -> Any:
        return self.rows_of(np.full(self.shape[0], 1.0 / self.shape[0]))

    def rows_of(self, values: Any) -> Any:
        return like(np.asarray(values), self.X)

    def gathered(self, rows: Any) -> Array:
        return host(rows)
