"""`cv_results_`: one row for every evaluation of a search, in the estimator's words and in ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.journal.codec import light
from suffice.result import Result
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.enough import fold_losses
from suffice.sklearn.penalties import PenaltySpace, split_pipeline, step_to
from suffice.sklearn.splits import Split

Words = Callable[[Evaluation], dict[str, float]]


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
