"""The rows that a search holds on to, and the folds that they are dealt to as they come and go.

Rows stay in their folds, so that scores of two days are of the same folds. A new row has the number of its place among
all rows that there ever were, and a hash of that deals it to a fold, or its group does, if the group is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array
from suffice.rows.given import followed_by, taken
from suffice.sklearn._preparation import SearchPreparation
from suffice.sklearn.splits import numbers_of

Numbers = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a search. `folds` has the number of the fold that holds out each row, once for every repetition; None
    where folds are of another kind. `places` is how many rows there ever were, `before` the fitted steps of folds."""

    X: Any
    y: Any
    weight: Array
    groups: Any
    folds: tuple[Numbers, ...] | None
    places: int
    before: tuple[Any, ...] = ()

    @classmethod
    def of(cls, known: SearchPreparation, groups: Any) -> Rows | None:
        """Of a search that is prepared; None for rows on a device."""
        data = known.data
        if data.place is not None:
            return None
        N, groups = len(data.y), None if groups is None else np.asarray(groups)
        return cls(data.X, data.y, data.weight, groups, folds_of(known.splits, N), N, steps_of(known))

    @property
    def splits(self) -> list[tuple[Numbers, Numbers]] | None:
        """Training rows and rows held out, fold by fold."""
        if self.folds is None:
            return None
        each = [(numbers, k) for numbers in self.folds for k in range(int(numbers.max()) + 1)]
        return [(np.flatnonzero(numbers != k), np.flatnonzero(numbers == k)) for numbers, k in each]

    def without(self, remove: Any) -> Rows:
        """Without the rows at these places, or where a mask is true."""
        N = len(self.y)
        given = np.asarray(remove)
        if given.dtype == bool and given.shape != (N,):
            raise ValueError(f"remove as a mask must have one entry for each of the {N} rows, got {given.shape}")
        if given.dtype != bool and not (given.ndim == 1 and (given.dtype.kind in "iu" or not len(given))):
            raise ValueError(f"remove must hold numbers of rows, or be a mask, got {remove!r}")
        outside = given[(given < -N) | (given >= N)] if given.dtype != bool and len(given) else given[:0]
        if len(outside):
            raise ValueError(f"remove has row {int(outside[0])}, and there are {N} rows")
        stays = np.ones(N, dtype=bool)
        stays[given if given.dtype == bool else given.astype(np.intp)] = False
        if not stays.any():
            raise ValueError(f"remove has all {N} rows: no row is left to learn from")
        left = np.flatnonzero(stays)
        folds = None if self.folds is None else tuple(numbers[left] for numbers in self.folds)
        for numbers, whole in zip(folds or (), self.folds or (), strict=True):
            if len(gone := np.setdiff1d(np.unique(whole), numbers)):
                raise ValueError(f"remove leaves fold {int(gone[0])} without a row that it holds out: fit anew")
        groups = None if self.groups is None else self.groups[left]
        return replace(self, X=taken(self.X, left), y=self.y[left], weight=self.weight[left], groups=groups,
                       folds=folds)  # fmt: skip

    def then(self, X: Any, y: Any, weight: Array, groups: Any) -> Rows:
        """With these rows, which folds are dealt to."""
        places = np.arange(self.places, self.places + len(y))
        folds = None if self.folds is None else dealt(self.folds, places, self.groups, groups)
        groups = None if self.groups is None else np.concatenate([self.groups, groups])
        weight, y = np.concatenate([self.weight, weight]), np.concatenate([self.y, y])
        X = followed_by(self.X, X, "X_new")
        return replace(self, X=X, y=y, weight=weight, groups=groups, folds=folds, places=self.places + len(places))


def dealt(folds: tuple[Numbers, ...], places: Numbers, known: Any = None, groups: Any = None) -> tuple[Numbers, ...]:
    """The folds of all rows, when new ones at these places follow: they go with their groups, or by a hash of their
    place."""
    found = []
    for repeat, numbers in enumerate(folds):
        new = _hashed(places, repeat) % (int(numbers.max()) + 1)
        if known is not None:
            of = dict(zip(groups.tolist()[::-1], new.tolist()[::-1], strict=True))
            of |= dict(zip(known.tolist(), numbers.tolist(), strict=True))
            new = np.array([of[group] for group in groups.tolist()], dtype=np.intp)
        found.append(np.concatenate([numbers, new]))
    return tuple(found)


def _hashed(places: Numbers, repeat: int) -> Numbers:
    """Numbers as good as random, by SplitMix64 (Steele, Lea and Flood 2014)."""
    z = (places + (repeat << 40) + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(1)).astype(np.intp)


def steps_of(known: SearchPreparation) -> tuple[Any, ...]:
    """The steps before the model, fitted to the training rows of each fold."""
    return tuple(fold.before for fold in known.folds)


def folds_of(splits: Sequence[tuple[Any, Any]], N: int) -> tuple[Numbers, ...] | None:
    """The number of every row's fold, for every repetition; None where splits do not hold out every row once in each,
    or hold out every row alone."""
    found: list[Numbers] = []
    part: list[tuple[Any, Any]] = []
    for split in splits:
        part.append(split)
        if sum(len(np.arange(N)[test]) for _, test in part) >= N:
            numbers = numbers_of(part, N)
            if numbers is None or len(part) == N:
                return None
            found.append(numbers.astype(np.intp))
            part = []
    return tuple(found) if found and not part else None
