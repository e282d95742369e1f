r"""Rows that stay where they are: blocks of them in files or on a cluster (`suffice.rows.blocks`), tuned in place.

All folds are of one matrix. Row i has the number of the fold that holds it out, which goes with it; the model of fold k
has a_i = s_i / sum of s over rows with another number, its loss v_i = s_i / sum of s over rows with number k, and 0 for
all other rows: without weights a rule (`suffice.rows.sums.Chosen`). What comes here is one number
of each row: its target, and what is predicted of it.

A step before the estimator is fitted to the training rows of every fold, by sums over rows. What it puts out is never
kept: rows are prepared whenever a block is read. `StandardScaler` is known; a step of one's own has a method

    fit_rows(X, numbers, folds)      a fitted clone for the training rows of every fold, and a last one for all rows,

of which each has `transform`, for an array of rows. `X` are blocks of rows, `numbers` are given to their jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from suffice.arrays import EPS, Array
from suffice.rows.blocks import Blocked
from suffice.rows.given import Shared
from suffice.rows.sums import Block, Chosen, Job

EVERYTHING = slice(None)
STEPS = "StandardScaler, and steps with a method fit_rows"


def numbers_of(splits: Sequence[tuple[Any, Any]], N: int) -> Array | None:
    """The fold that holds out every row; None where folds do not hold out every row once, and train on all others."""
    numbers = np.full(N, -1.0)
    for k, (train, test) in enumerate(splits):
        inside = np.zeros(N, dtype=np.intp)
        np.add.at(inside, np.arange(N)[train], 1)
        np.add.at(inside, np.arange(N)[test], 1)
        if not (inside == 1).all() or (numbers[test] >= 0.0).any():
            return None
        numbers[test] = k
    return numbers if (numbers >= 0.0).all() else None


def prepares_rows(before: Any) -> bool:
    """Whether all these steps can be fitted to rows that stay where they are."""
    return before is None or all(type(step) is StandardScaler or hasattr(step, "fit_rows") for _, step in before.steps)


@dataclass(frozen=True, eq=False)
class InPlace:
    """Rows of all folds: the matrix of every fold, as its steps prepare it, and last that of all rows."""

    matrices: tuple[Blocked, ...]
    steps: tuple[Any, ...]
    numbers: Array
    there: Any  # the same, with the rows
    order = EVERYTHING

    @classmethod
    def of(cls, X: Blocked, splits: Sequence[tuple[Any, Any]], before: Any) -> InPlace:
        numbers, folds = numbers_of(splits, X.shape[0]), len(splits)
        if numbers is None:
            raise ValueError(
                "rows that stay where they are need folds that hold out every row once and train on all others, such "
                "as KFold's or StratifiedKFold's"
            )
        there = X.rows_of(numbers)
        matrices: list[Blocked] = [X] * (folds + 1)
        fitted: list[list[tuple[str, Any]]] = [[] for _ in matrices]
        for name, step in [] if before is None else before.steps:
            if isinstance(step, StandardScaler):
                made = _scalers(step, matrices, there, folds)
            else:
                made = step.fit_rows(matrices[-1], there, folds)
            columns = [one.transform(np.zeros((1, X.shape[1]))).shape[1] for X, one in zip(matrices, made, strict=True)]
            matrices = [X.through(one.transform, d) for X, one, d in zip(matrices, made, columns, strict=True)]
            for steps, one in zip(fitted, made, strict=True):
                steps.append((name, one))
        return cls(tuple(matrices), tuple(Pipeline(steps) if steps else None for steps in fitted), numbers, there)

    def held(self, k: int | None) -> Any:
        """Which rows fold k holds out."""
        return EVERYTHING if k is None else np.flatnonzero(self.numbers == k)

    def before(self, k: int | None) -> Any:
        """The steps of fold k, fitted."""
        return self.steps[-1 if k is None else k]

    def training(self, k: int | None, s: Array) -> Shared:
        """Rows that fold k is trained on, with these weights of all rows."""
        return self._weighed(k, s, complement=True)

    def testing(self, k: int | None, v: Array) -> Shared:
        """Rows that it is held against."""
        return self._weighed(k, v, complement=False)

    def _weighed(self, k: int | None, weights: Array, complement: bool) -> Shared:
        X = self.matrices[-1 if k is None else k]
        inside = np.ones(len(weights), dtype=bool) if k is None else (self.numbers == k) != complement
        given: Any = weights
        if np.all(weights[inside] == weights[inside][0]):
            given = X.even() if k is None else Chosen(len(inside), int(inside.sum()), self.there, k, complement)
        return Shared(X, np.zeros(X.shape[1]), given)


# Scaling


@dataclass(frozen=True)
class FoldSums(Job):
    """Rows and sums of columns, fold by fold. fold is given."""

    folds: int

    def __call__(self, block: Block) -> tuple[Array, Array]:
        parts = [block.X[block["fold"] == k] for k in range(self.folds)]
        return np.array([float(len(part)) for part in parts]), np.array([part.sum(axis=0) for part in parts])


@dataclass(frozen=True)
class FoldSquares(Job):
    """Sums of (x - mean)^2 over the rows of all folds but k, for every k, and last over all. fold is given."""

    means: Array

    def __call__(self, block: Block) -> Array:
        X, fold = block.X, block["fold"]
        return np.array([((X[fold != k] - mean) ** 2).sum(axis=0) for k, mean in enumerate(self.means)])


def _scalers(step: Any, matrices: Sequence[Blocked], numbers: Any, folds: int) -> list[Any]:
    """StandardScaler, fitted to the training rows of every fold, and to all."""
    moments = {id(X): _moments(X, numbers, folds) for X in {id(X): X for X in matrices}.values()}
    made = []
    for n, mean, var in (moments[id(X)][k] for k, X in enumerate(matrices)):
        one = clone(step)
        one.n_features_in_, one.n_samples_seen_ = len(mean), int(n)
        one.mean_, one.var_ = mean if one.with_mean else None, var if one.with_std else None
        constant = var <= n * EPS * var + (n * mean * EPS) ** 2  # as scikit-learn has it
        one.scale_ = np.where(constant, 1.0, np.sqrt(var)) if one.with_std else None
        made.append(one)
    return made


def _moments(X: Blocked, numbers: Any, folds: int) -> list[tuple[float, Array, Array]]:
    """Rows, means and variances of the training rows of every fold, and of all."""
    counts, sums = X.run(FoldSums(folds), fold=numbers)
    rows = np.append(counts.sum() - counts, counts.sum())
    means = np.vstack([sums.sum(axis=0) - sums, sums.sum(axis=0)]) / rows[:, None]
    squares = X.run(FoldSquares(means), fold=numbers)
    return [(float(n), mean, part / n) for n, mean, part in zip(rows, means, squares, strict=True)]
