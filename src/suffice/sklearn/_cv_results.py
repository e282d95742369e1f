"""`cv_results_`: one row for every evaluation of a search, in the estimator's words and in ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from suffice.journal.codec import light
from suffice.result import Result
from suffice.sklearn._penalty_search import fold_losses
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.penalties import PenaltySpace, split_pipeline
from suffice.upper.evaluation import Evaluation

Words = Callable[[Evaluation], dict[str, float]]


def in_the_estimators_words(estimator: Any, space: PenaltySpace, total: float) -> Words:
    """The parameters of a fit with weights that sum to `total`; the penalties themselves for groups."""
    final, _ = split_pipeline(estimator)
    step = f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""

    def words(evaluation: Evaluation) -> dict[str, float]:
        both = space.penalties(evaluation)
        if space.groups:
            return both
        known = find_adapter(final).params(final, both["l1"], both["l2"], total, space.names)
        return {f"{step}{name}": float(value) for name, value in known.items()}

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
    scores = offset - np.array([fold_losses(evaluation) for evaluation in made])
    for k in range(scores.shape[1]):
        table[f"split{k}_test_score"] = scores[:, k]
    table["mean_test_score"] = scores.mean(axis=1)
    table["std_test_score"] = scores.std(axis=1)
    table["rank_test_score"] = (1 + np.argsort(np.argsort(-table["mean_test_score"]))).astype(np.int32)
    table["test_score_low"] = np.array([offset - evaluation.interval[1] for evaluation in made])
    table["test_score_high"] = np.array([offset - evaluation.interval[0] for evaluation in made])
    table["asked_error"] = np.array(asked)
    table["proved_error"] = np.array([float(evaluation.e.max()) for evaluation in made])
    table["work"] = np.array([evaluation.work for evaluation in made])
    table["purpose"] = np.array(purposes)
    return table


def without_data(result: Result) -> Result:
    """The result without the problems of its solutions: a fitted search does not hold on to its training data."""
    evaluation = result.evaluation
    if evaluation is not None:
        evaluation = replace(evaluation, solutions=[light(solution) for solution in evaluation.solutions])
    return replace(result, evaluation=evaluation, starts=tuple(map(without_data, result.starts)))
