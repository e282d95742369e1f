"""Weights of rows as rules that take no memory: all alike, those of a view, or of a fold by its number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array


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
