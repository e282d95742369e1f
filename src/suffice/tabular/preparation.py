r"""Columns of a table prepared on a cluster, by the rules of `suffice.tabular.columns`, for the training rows of every
fold:

- *numeric*: missing entries become the median, a separate column marks where they were, if there are any, and all of it
  is standardised by mean and standard deviation;
- *levels*: one column of zeros and ones per level that the training rows have, missing being a level, too.

Every row has the number of the fold that holds it out. A statistic of training rows is a sum over rows: counts and sums
are made fold by fold in one pass, variances around the means in another. Medians are exact. Floats, as whole numbers in
the same order, are looked for digit by digit, DIGIT bits at a time: how many entries have which next digit is a sum as
well.

What is prepared is never kept: `Preparation` makes the rows of a block when they are needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import KFold, StratifiedKFold

from suffice.rows.blocks import Block, Blocked
from suffice.rows.together import together

Array = npt.NDArray[np.float64]

DIGIT = 8  # bits: 8 passes
SEEDS = 0xD1342543DE82EF95  # between rows of two seeds
GOLDEN, MIXING = 0x9E3779B97F4A7C15, ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # splitmix64


@dataclass(frozen=True, eq=False)
class Preparation:
    """From raw rows to the rows of X, for one set of training rows."""

    medians: Array  # of numeric columns
    marked: npt.NDArray[np.intp]  # numeric columns with missing entries
    means: Array  # of numeric columns, and of marks
    scales: Array
    levels: tuple[npt.NDArray[np.intp], ...]  # that each categorical column has

    @property
    def columns(self) -> int:
        return len(self.means) + sum(len(known) for known in self.levels)

    def __call__(self, raw: Array) -> Array:
        n = len(self.medians)
        absent = np.isnan(raw[:, :n])
        X = np.zeros((len(raw), self.columns))
        X[:, :n] = np.where(absent, self.medians, raw[:, :n])
        X[:, n : len(self.means)] = absent[:, self.marked]
        X[:, : len(self.means)] -= self.means
        X[:, : len(self.means)] /= self.scales
        first = len(self.means)
        for k, known in enumerate(self.levels):
            codes = raw[:, n + k].astype(np.intp)
            place = np.searchsorted(known, codes)
            rows = np.flatnonzero((place < len(known)) & (known[np.minimum(place, len(known) - 1)] == codes))
            X[rows, first + place[rows]] = 1.0
            first += len(known)
        return X


def prepared(raw: Blocked, numeric: int, levels: tuple[int, ...], folds: int, fold: Any) -> list[Preparation]:
    """For the training rows of every fold, and last for all rows; `levels` are numbers of levels, missing included, and
    `fold`, which goes with the rows, those of folds."""
    known, sums, counts = raw.run(Counts(numeric, levels, folds), fold=fold)
    total = known.sum(axis=0)  # rows and known entries: one row for every fold, one column for each
    training = [total - known[k] for k in range(folds)] + [total]
    rows, there = np.array([one[-1] for one in training]), np.array([one[:-1] for one in training])
    of_known = np.array([sums.sum(axis=0) - sums[k] for k in range(folds)] + [sums.sum(axis=0)])
    medians = _medians(raw, numeric, folds, there, fold)
    absent = rows[:, None] - there
    means = (of_known + absent * medians) / rows[:, None]
    squares = raw.run(Squares(means, folds), fold=fold)
    squares = squares + absent * (medians - means) ** 2
    all_levels = np.concatenate(counts, axis=1) if counts else np.zeros((folds, 0))
    found = []
    for k in range(folds + 1):
        marked = np.flatnonzero(absent[k] > 0)
        p = absent[k][marked] / rows[k]
        scale = np.sqrt(np.concatenate([squares[k] / rows[k], p * (1.0 - p)]))
        scale = np.where(scale <= 1e-14 * np.abs(np.concatenate([means[k], p])), 1.0, scale)
        seen = (all_levels.sum(axis=0) - (all_levels[k] if k < folds else 0.0)) > 0
        ends = np.cumsum([0, *levels])
        kept = tuple(np.flatnonzero(seen[ends[j] : ends[j + 1]]) for j in range(len(levels)))
        found.append(Preparation(medians[k], marked, np.concatenate([means[k], p]), scale, kept))
    return found


@dataclass(frozen=True)
class Counts:
    """For every fold: known entries of numeric columns and rows, sums, and rows of every level."""

    numeric: int
    levels: tuple[int, ...]
    folds: int
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        X, fold = block.X, block["fold"].astype(np.intp)
        numbers = X[:, : self.numeric]
        there = ~np.isnan(numbers)
        known, sums = np.zeros((self.folds, self.numeric + 1)), np.zeros((self.folds, self.numeric))
        for k in range(self.folds):
            inside = fold == k
            known[k] = [*there[inside].sum(axis=0), inside.sum()]
            sums[k] = np.where(there[inside], numbers[inside], 0.0).sum(axis=0)
        counts = []
        for j, size in enumerate(self.levels):
            codes = X[:, self.numeric + j].astype(np.intp)
            counts.append(np.bincount(fold * size + codes, minlength=self.folds * size).reshape(self.folds, size) * 1.0)
        return known, sums, tuple(counts)


@dataclass(frozen=True)
class Squares:
    """Sums of (x - mean)^2 of known entries, for the training rows of every fold and for all rows."""

    means: Array
    folds: int
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Array:
        numbers, fold = block.X[:, : self.means.shape[1]], block["fold"]
        sums = np.zeros_like(self.means)
        for k in range(self.folds + 1):
            inside = numbers if k == self.folds else numbers[fold != k]
            sums[k] = np.nansum((inside - self.means[k]) ** 2, axis=0)
        return sums


@dataclass(frozen=True)
class Digits:
    """How many known entries of training rows begin with `prefix` and have which next digit."""

    prefix: npt.NDArray[np.uint64]  # one for every (fold, column)
    shift: int  # bits after the digit
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Array:
        sets, columns = self.prefix.shape
        numbers, fold = block.X[:, :columns], block["fold"]
        counts = np.zeros((sets, columns, 1 << DIGIT))
        for j in range(columns):
            there = ~np.isnan(numbers[:, j])
            keys, of_rows = _ordered(numbers[there, j]), fold[there]
            digits = (keys >> np.uint64(self.shift)) & np.uint64((1 << DIGIT) - 1)
            before = keys >> np.uint64(self.shift) >> np.uint64(DIGIT)
            for k in range(sets):
                match = (before == self.prefix[k, j]) & (of_rows != k)
                counts[k, j] = np.bincount(digits[match].astype(np.intp), minlength=1 << DIGIT)
        return counts


def _medians(raw: Blocked, numeric: int, folds: int, there: Array, fold: Any) -> Array:
    """Means of the two middle entries, or the middle one; 0 where there is none."""
    ranks = [np.maximum(rank, 0.0) for rank in ((there - 1) // 2, there // 2)]
    middle = together([partial(_selected, raw, numeric, folds, rank, fold) for rank in ranks])
    mean = np.where(middle[0] == middle[1], middle[0], 0.5 * middle[0] + 0.5 * middle[1])
    result: Array = np.where(there > 0, mean, 0.0)
    return result


def _selected(raw: Blocked, numeric: int, folds: int, rank: Array, fold: Any) -> Array:
    """The entry of this rank, from 0, of every (fold, column)."""
    if numeric == 0:
        return np.zeros((folds + 1, 0))
    prefix, rank = np.zeros((folds + 1, numeric), dtype=np.uint64), rank.copy()
    for shift in range(64 - DIGIT, -1, -DIGIT):
        below = np.cumsum(raw.run(Digits(prefix, shift), fold=fold), axis=2)
        digit = np.minimum((below <= rank[:, :, None]).sum(axis=2), (1 << DIGIT) - 1)
        before = np.take_along_axis(below, np.maximum(digit - 1, 0)[:, :, None], axis=2)[:, :, 0]
        rank -= np.where(digit > 0, before, 0.0)
        prefix = (prefix << np.uint64(DIGIT)) | digit.astype(np.uint64)
    return _from_ordered(prefix)


def _ordered(x: Array) -> npt.NDArray[np.uint64]:
    """Whole numbers in the order of these floats; -0 is 0."""
    bits = (x + 0.0).view(np.uint64)
    sign = np.uint64(1 << 63)
    ordered: npt.NDArray[np.uint64] = np.where(bits & sign, ~bits, bits | sign)
    return ordered


def _from_ordered(keys: npt.NDArray[np.uint64]) -> Array:
    sign = np.uint64(1 << 63)
    return np.where(keys & sign, keys & ~sign, ~keys).view(np.float64)


# Folds


def numbered(N: int, folds: int, seed: int, labels: Array | None) -> npt.NDArray[np.uint16]:
    """The fold that holds out each of N rows, as on one machine: shuffled by the seed, each with its share of every
    label if there are labels."""
    splitter = (KFold if labels is None else StratifiedKFold)(folds, shuffle=True, random_state=seed)
    numbers = np.empty(N, dtype=np.uint16)
    for k, (_, held) in enumerate(splitter.split(np.zeros((N, 1)), labels)):
        numbers[held] = k
    return numbers


@dataclass(frozen=True)
class Hashed:
    """The fold that holds out each row, by its number and the seed alone."""

    folds: int
    seed: int
    reads: bool = False
    keeps: bool = True

    def __call__(self, block: Block) -> tuple[npt.NDArray[np.uint16], Array]:
        """With how many rows each fold has."""
        with np.errstate(over="ignore"):
            z = np.arange(block.start, block.stop, dtype=np.uint64) + np.uint64(self.seed) * np.uint64(SEEDS)
            z = z * np.uint64(GOLDEN)
            for shift, factor in MIXING:
                z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
            z ^= z >> np.uint64(31)
        numbers = (z % np.uint64(self.folds)).astype(np.uint16)
        return numbers, np.bincount(numbers, minlength=self.folds).astype(np.float64)
