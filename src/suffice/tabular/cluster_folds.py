r"""Folds of a table on a cluster: which rows a model is trained on and held against, and how much each counts.

Row i has the number of the fold that holds it out and, if there are weights, s_i. The model of fold k has

    a_i = s_i / sum of s over rows with another number,     its loss   v_i = s_i / sum of s over rows with number k,

and 0 for all other rows; s = 1 without weights, when three numbers say it all. Statistics of columns do not know of
weights, as on one machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.rows.blocks import Block, Blocked
from suffice.rows.design import Design


@dataclass(frozen=True)
class WeightSums:
    """sum s, for every fold. fold, s are given."""

    folds: int
    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> Array:
        sums: Array = np.bincount(block["fold"].astype(np.intp), block["s"], self.folds).astype(np.float64)
        return sums


@dataclass(frozen=True)
class Weighed:
    """s / total of the rows with number k, or of all others, or of all if there is no k. fold, s are given."""

    total: float
    k: int | None
    complement: bool = False
    reads: bool = False
    keeps: bool = True

    def __call__(self, block: Block) -> tuple[Array, int]:
        inside = True if self.k is None else (block["fold"] == self.k) != self.complement
        return np.where(inside, block["s"] / self.total, 0.0), 0


@dataclass(frozen=True, eq=False)
class Split:
    """`numbers` and `weights`, which go with the rows, how many rows each fold has, and the sum of their weights."""

    numbers: Any
    held: tuple[int, ...]
    weights: Any = None
    sums: Array | None = None

    @classmethod
    def of(cls, rows: Blocked, numbers: Any, held: list[int], weights: Any) -> Split:
        """ValueError where the rows of a fold weigh nothing."""
        if weights is None:
            return cls(numbers, tuple(held))
        weights = rows.rows_of(weights)
        sums: Array = rows.run(WeightSums(len(held)), fold=numbers, s=weights)
        if not (sums > 0.0).all():
            raise ValueError("the rows that a fold holds out have no weight")
        return cls(numbers, tuple(held), weights, sums)

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(sum(self.held)) if self.sums is None else float(self.sums.sum())

    def training(self, design: Design, k: int) -> Design:
        """The rows that fold k is trained on."""
        if self.sums is None:
            return design.fold(self.numbers, k, sum(self.held) - self.held[k], complement=True)
        return self._weighed(design, Weighed(float(np.delete(self.sums, k).sum()), k, True))

    def held_out(self, design: Design, k: int) -> Design:
        """The rows that it is held against."""
        if self.sums is None:
            return design.fold(self.numbers, k, self.held[k])
        return self._weighed(design, Weighed(float(self.sums[k]), k))

    def whole(self, design: Design) -> Design:
        """All rows."""
        return design if self.sums is None else self._weighed(design, Weighed(self.total, None))

    def _weighed(self, design: Design, job: Weighed) -> Design:
        rows, _ = design.X.run(job, fold=self.numbers, s=self.weights)
        return Design(design.X, rows)
