"""What a search leaves behind: `cv_results_`, one row for every evaluation, in the estimator's words and in ours; the
weights of folds at the best penalties, and what they say of rows not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.journal.codec import light
from suffice.result import Result
from suffice.sklearn._target import wrapped
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.enough import fold_losses
from suffice.sklearn.measures import Predicted, of_the_target_alone
from suffice.sklearn.penalties import PenaltySpace, split_pipeline, step_to
from suffice.sklearn.splits import SearchData, Split
from suffice.solvers.solution import Solution

Words = Callable[[Evaluation], dict[str, float]]
Splits = Sequence[tuple[Any, Any]]


def in_the_estimators_words(estimator: Any, space: PenaltySpace, total: float) -> Words:
    """The parameters of a fit with weights that sum to `total`; the penalties themselves for groups."""
    final, _ = split_pipeline(estimator)
    step = step_to(estimator)

    def words(evaluation: Evaluation) -> dict[str, float]:
        known = space.words(find_adapter(final), final, evaluation, total)
        return {f"{'' if space.groups else step}{name}": float(value) for name, value in known.items()}

    return words


def table_of_evaluations(
    notes: Sequence[tuple[str, float, Evaluation]], words: Words, space: PenaltySpace, offset: float
) -> dict[str, Any]:
    """The columns; a note is (purpose, accuracy asked for, evaluation), and a score is `offset` minus the loss."""
    purposes, asked, made = zip(*notes, strict=True)
    table: dict[str, Any] = {"params": [words(evaluation) for evaluation in made]}
    for name in table["params"][0]:
        table[f"param_{name}"] = np.ma.array([params[name] for params in table["params"]])
    for name in space.names:
        table[f"penalty_{name}"] = np.array([space.space.params(evaluation.point)[name] for evaluation in made])
    table |= _columns("score", offset - np.array([fold_losses(evaluation) for evaluation in made]))
    table["test_score_low"] = np.array([offset - evaluation.interval[1] for evaluation in made])
    table["test_score_high"] = np.array([offset - evaluation.interval[0] for evaluation in made])
    table["asked_error"] = np.array(asked)
    table["proved_error"] = np.array([float(evaluation.e.max()) for evaluation in made])
    table["work"] = np.array([evaluation.work for evaluation in made])
    table["purpose"] = np.array(purposes)
    return table


def _columns(name: str, scores: Array) -> dict[str, Any]:
    """Scores of evaluations x folds, as in GridSearchCV."""
    mean = scores.mean(axis=1)
    with np.errstate(over="ignore"):
        spread = scores.std(axis=1)
    rank = (1 + np.argsort(np.argsort(-mean))).astype(np.int32)
    folds = {f"split{k}_test_{name}": of_fold for k, of_fold in enumerate(scores.T)}
    return {**folds, f"mean_test_{name}": mean, f"std_test_{name}": spread, f"rank_test_{name}": rank}


def scores_of_folds(evaluation: Evaluation, folds: Sequence[Split], scorer: Any) -> list[float]:
    """The score of every fold's model, as accurate as it was made."""
    pairs = zip(folds, evaluation.solutions, strict=True)
    return [fold.scored(scorer, solution.x) for fold, solution in pairs]


def table_of_scores(
    made: Sequence[Evaluation],
    folds: Sequence[Split],
    scorers: dict[str, Any],
    table: dict[str, Any],
    same: Sequence[str],
) -> dict[str, Any]:
    """Columns of further scores, by their names as in GridSearchCV; those in `same` are the table's own score."""
    own = np.column_stack([table[f"split{k}_test_score"] for k in range(len(folds))])
    found = dict.fromkeys(same, own)
    for name, scorer in scorers.items():
        found[name] = np.array([scores_of_folds(evaluation, folds, scorer) for evaluation in made])
    return {key: column for name, scores in found.items() for key, column in _columns(name, scores).items()}


def without_data(result: Result) -> Result:
    """The result without the problems of its solutions: a fitted search does not hold on to its training data."""
    evaluation = result.evaluation
    if evaluation is not None:
        evaluation = replace(evaluation, solutions=[light(solution) for solution in evaluation.solutions])
    return replace(result, evaluation=evaluation, starts=tuple(map(without_data, result.starts)))


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
