"""What a search keeps of its folds at the best penalties: their weights, and what they say of rows not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from suffice.journal.codec import light
from suffice.sklearn._target import wrapped
from suffice.sklearn.measures import Predicted, of_the_target_alone
from suffice.sklearn.splits import SearchData, Split
from suffice.solvers.solution import Solution

Splits = Sequence[tuple[Any, Any]]


@dataclass(frozen=True)
class FoldWeights:
    """One solution per fold, and which rows the folds were made of."""

    rows: str
    solutions: tuple[Solution, ...]

    @classmethod
    def of(cls, splits: Splits, solutions: Sequence[Solution]) -> FoldWeights:
        return cls(_digest(splits), tuple(replace(light(one), state=None) for one in solutions))

    def belong_to(self, splits: Splits) -> bool:
        """Whether these are the same folds: weights of others may have seen what is held out now."""
        return self.rows == _digest(splits)


def _digest(splits: Splits) -> str:
    found = blake2b(digest_size=16)
    for rows in (part for split in splits for part in split):
        rows = np.asarray(rows)
        found.update(str((rows.dtype.kind, rows.shape)).encode())
        found.update(np.ascontiguousarray(rows if rows.dtype.kind == "b" else rows.astype(np.int64)).tobytes())
    return found.hexdigest()


def held_out(
    folds: Sequence[Split], splits: Splits, solutions: Sequence[Solution], data: SearchData
) -> tuple[Predicted, Predicted]:
    """Predictions of the folds' models for the rows that they have not seen, and those of the target alone; in the
    target's own units."""
    weighted = bool(np.any(data.weight != 1.0))
    parts = []
    for fold, solution in zip(folds, solutions, strict=True):
        fitted, X = fold.predictor(solution.x)
        parts.append(Predicted.of(wrapped(fold.target, fitted), X, fold.given, fold.weight if weighted else None))
    trained = [(data.y[train], data.weight[train] if weighted else None) for train, _ in splits]
    alone = of_the_target_alone([(part, *known) for part, known in zip(parts, trained, strict=True)])
    return Predicted.joined(parts), alone
