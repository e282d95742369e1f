"""Rows that are at hand as one matrix, dense or sparse in main memory or an array on a device: one block.

A job over them (`suffice.rows.blocks`) is called at once, with the matrix as it lies. Margins are arrays that live
where weights and targets do: with X, or in main memory. The latest of them are kept, with what was found out about
them: a step asks for those of a few points again and again. They are never written to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from suffice.arrays import Array, frozen, host, like, lives_elsewhere
from suffice.lazy import cached_property
from suffice.rows.blocks import Blocked
from suffice.rows.margins import Known
from suffice.rows.products import Adjoint, adjoint
from suffice.rows.sums import Block, Job

KEPT = 4  # images: of a step's ends, and of its middle


class InMemory(Blocked):
    """All rows of X as one block, with weights a."""

    dear = False

    def __init__(self, X: Any, a: Any) -> None:
        self.X, self.a = X, a
        self.shape = int(X.shape[0]), int(X.shape[1])
        self.block = self.shape[0]
        self.at_hand, self.full = not lives_elsewhere(X), isinstance(X, np.ndarray)
        self._products: list[tuple[float, Array, Any, Any]] = []  # ||w||^2, w, a copy, the offset, and the image
        self._images: list[tuple[Any, Known]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_products": [], "_images": []}

    @cached_property
    def adjoint(self) -> Adjoint:
        """r -> X^T r where X lives; what it needs to know of X is found once."""
        return adjoint(self.X)

    def margins(self, w: Array, offset: Any = None) -> Any:
        square = float(np.vdot(w, w))  # nearly all that differ differ here
        for known, there, added, image in self._products:
            if known == square and added is offset and np.array_equal(there, w):
                return image
        image = self.directions(w)
        image = image if offset is None else image + offset
        if isinstance(image, np.ndarray):
            image.setflags(write=False)
        self._products = [(square, np.array(w), offset, image), *self._products[: KEPT - 1]]
        return image

    def directions(self, W: Array) -> Any:
        product = self.X @ like(W, self.X)
        return host(product) if isinstance(self.a, np.ndarray) else product

    def known(self, image: Any) -> Known:
        for one, known in self._images:
            if one is image:
                return known
        self._images = [(image, Known()), *self._images[: KEPT - 1]]
        return self._images[0][1]

    def all_at_once(self, image: Any) -> bool:
        return False

    def sizes(self, image: Any, longest: float, slack: float) -> tuple[float, float]:
        inside = image if self._counts is None else image[self._counts]
        return float(inside.min()), float(inside.max())

    def mean(self, image: Any, means: Callable[[], Array], a: Any) -> Array:
        mean: Array = a @ image
        return mean

    @cached_property
    def _counts(self) -> Any:
        """Which rows count; None for all."""
        counts = self.a > 0.0
        return None if counts.all() else counts

    def run(self, job: Job, margins: Sequence[Any] = (), **given: Any) -> Any:
        return job(Block(0, self.shape[0], self._read, given, margins, self.pull))

    def _read(self) -> Any:
        return self.X

    def pull(self, r: Any) -> Array:
        return host(self.adjoint(like(r, self.X)))

    def rows_of(self, values: Any) -> Any:
        return like(np.asarray(values), self.a)

    def targets(self, y: Any, function: Callable[[Any], Array], labels: bool) -> Any:
        return self.rows_of(frozen(function(self._checked(host(y) if lives_elsewhere(y) else np.asarray(y)))))

    def gathered(self, rows: Any) -> Array:
        return host(rows)
