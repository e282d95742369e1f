r"""What a search leaves behind: the final model; `cv_results_`, one row for every evaluation; the weights of folds at
the best penalties, and what they say of rows not seen.

The final model is that of all rows at the best penalties, proven, inside a clone of the estimator. Our own solver
minimises the objective of `suffice.sklearn.folds` on all rows,

    w ~ w_hat = argmin Phi(w; l1, l2),        ||w - w_hat|| <= radius,        radius <= FINAL ||w|| is asked for,

from the mean of the folds' weights, and leaves off when its time is over. Where rounding allows no such radius, the one
that is proven is told; where MOST_STEPS are not enough and more than OFF ||w|| is open, a `ConvergenceWarning` says so.
l2 = 0 is dealt with as in folds: the model is of the kind that was scored.

scikit-learn's own fit (`refit="sklearn"`) stops by rules of its own, which prove nothing. Its coefficients c are held
against ours: with rho = ||c - w|| they lie between rho - radius and rho + radius from w_hat. They are called off where
the smaller of the two exceeds OFF ||w||, which is a proof that they are.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from joblib import hash as digest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _check_feature_names

from suffice.arrays import Array, norm, outside_stacklevel
from suffice.evaluation import Evaluation
from suffice.journal.codec import light
from suffice.result import Result
from suffice.rows.margins import together_if_dear
from suffice.sklearn._coefficient_proofs import CoefficientProofs
from suffice.sklearn._recorded import fold_losses
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.measures import Predicted, of_the_target_alone
from suffice.sklearn.penalties import RIDGES, PenaltySpace, split_pipeline, step_to
from suffice.sklearn.scores import Score
from suffice.sklearn.splits import SearchData, Split
from suffice.sklearn.target import fitted_inside, inside, wrapped
from suffice.solvers.problem import Composite
from suffice.solvers.solution import Outcome, Solution
from suffice.solvers.solver import solve

FINAL = 1e-6  # the radius that is asked for, relative to the norm of the weights
MOST_STEPS = 20_000  # of one model
AT_A_TIME = 5  # steps between looks at the clock
OFF = 0.01  # of the norm of the weights: what is worth a warning
Words = Callable[[Evaluation], dict[str, float]]
Splits = Sequence[tuple[Any, Any]]


def fit_final(
    data: SearchData,
    penalties: dict[str, float],
    near: Sequence[Solution] = (),
    until: float = math.inf,
    theirs: Any = None,
) -> tuple[Any, float, CoefficientProofs]:
    """`data.estimator`, which has the best parameters, with coefficients by our own solver, a proven bound on their
    distance from exact ones, and what is proven of each; the same of `theirs`, if scikit-learn has fitted it.
    `penalties` has l1 and l2, of every group if there are groups, `near` are solutions of folds there."""
    split, message = data.whole(), ""
    problem, solution = fitted_weights(split, penalties, near, until)
    proofs = CoefficientProofs.of(split, problem, solution, until)
    size = norm(solution.x)
    radius = solution.certificate.radius
    if theirs is not None:
        ours = np.ravel(split.model.coefficients(solution.x)[0])
        own = np.ravel(split_pipeline(fitted_inside(theirs))[0].coef_)
        apart, size, proofs = norm(own - ours), norm(ours), proofs.beside(ours, own)
        if apart - radius > OFF * size:
            where, floor = "exact ones", split.model.l2_in_place_of_none
            why = "its solver has stopped too early (tol, max_iter, features of very different scales)"
            if floor > 0.0 and any(value == 0.0 for name, value in penalties.items() if name.startswith("l2")):
                where = "those of the model that was scored"
                why = f"that has l2 = {floor:.2g} in place of none, or {why}"
            message = (
                f"scikit-learn's coefficients are proven to lie {apart - radius:.3g} or more away from {where}, whose "
                f"norm is {size:.3g}: {why}; refit=True fits to a proven accuracy"
            )
        made, radius = theirs, apart + radius
    else:
        if solution.outcome is not Outcome.PRECISION and not radius <= OFF * size:
            message = (
                f"the final fit was left after {solution.steps:,} steps: its coefficients, of norm {size:.4g}, are "
                f"proven to lie within {radius:.4g} of exact ones only (coef_radius_)"
            )
        final = split.fitted(solution.x)
        split.adapter.finish(final, split.model, solution)
        made = put_into(data, split, final)
    if message:
        warnings.warn(message, ConvergenceWarning, stacklevel=outside_stacklevel())
    return made, radius, proofs


def fitted_weights(
    split: Split, penalties: dict[str, float], near: Sequence[Solution] = (), until: float = math.inf
) -> tuple[Composite, Solution]:
    """w of all training rows as the final model has it, and its problem; where little is proven without an l2, with the
    smallest that proves it."""
    problem = split.penalised().at(**penalties)
    solution = solved(problem, split.solver, FINAL, between(near, problem), until=until)
    for ridge in RIDGES if problem.mu == 0.0 else ():
        if solution.certificate.radius <= OFF * norm(solution.x) or solution.outcome is Outcome.MAX_STEPS:
            break
        other = replace(split.penalised(), ridge=ridge).at(**penalties)
        proven = solved(other, split.solver, FINAL, solution.x, until=until)
        if proven.certificate.radius < solution.certificate.radius:
            problem, solution = other, proven
    return problem, solution


def between(near: Sequence[Solution], problem: Composite) -> Array | None:
    """The mean of the weights of folds, where a fit to all rows begins; None if none has as many."""
    weights = [one.x for one in near if one.x.shape == (problem.size,)]
    return np.mean(weights, axis=0) if weights else None


def solved(
    problem: Composite,
    solver: Any,
    accuracy: float,
    warm: Solution | Array | None = None,
    *,
    until: float = math.inf,
    most: int | None = None,
) -> Solution:
    """Relative accuracy, by requests on the distance that shrink until they are small against the weights; as far as
    `most` steps lead (None: MOST_STEPS), or those that are made `until` then."""
    most = MOST_STEPS if most is None else most
    solution = solve(problem, steps=1, solver=solver, warm=warm)
    while (radius := solution.certificate.radius) > accuracy * norm(solution.x) and solution.steps < most:
        if time.monotonic() >= until:
            break
        left = most - solution.steps if until == math.inf else min(most - solution.steps, AT_A_TIME)
        within = max(accuracy * norm(solution.x), 1e-4 * min(radius, 1e300))
        solution = solve(problem, within=within, solver=solver, warm=solution, max_steps=left)
        if solution.outcome is Outcome.MAX_STEPS:
            continue
        if not solution.reached or within == 0.0 or (norm(solution.x) == 0.0 and within < 1e-12):
            break
    return solution


def put_into(data: SearchData, split: Split, final: Any) -> Any:
    """The estimator of the search, pipeline and all, with this linear one."""
    before = split.before
    _check_feature_names(final, data.names(before), reset=True)
    whole = final
    if isinstance(inside(data.estimator), Pipeline):
        whole = clone(inside(data.estimator))
        whole.steps = [*([] if before is None else before.steps), (whole.steps[-1][0], final)]
    return wrapped(split.target, whole)


def in_the_estimators_words(estimator: Any, space: PenaltySpace, total: float) -> Words:
    """The parameters of a fit with weights that sum to `total`; the penalties themselves for groups, which it has no
    words for."""
    final, step = split_pipeline(estimator)[0], step_to(estimator)

    def words(evaluation: Evaluation) -> dict[str, float]:
        both = space.penalties(evaluation)
        if space.groups:
            return both
        known = find_adapter(final).params(final, both["l1"], both["l2"], total, space.names)
        return {f"{step}{name}": float(value) for name, value in known.items()}

    return words


def table_of_evaluations(
    notes: Sequence[tuple[str, float, Evaluation]],
    seconds: Sequence[float],
    words: Words,
    space: PenaltySpace,
    score: Score,
) -> dict[str, Any]:
    """The columns; a note is (purpose, accuracy asked for, evaluation), made in so many seconds. Folds are trained and
    scored together: the mean time of one is told, and none of its parts."""
    purposes, asked, made = zip(*notes, strict=True)
    table: dict[str, Any] = {"params": [words(evaluation) for evaluation in made]}
    for name in table["params"][0]:
        table[f"param_{name}"] = np.ma.array([params[name] for params in table["params"]])
    for name in space.names:
        table[f"penalty_{name}"] = np.array([space.space.params(evaluation.point)[name] for evaluation in made])
    table |= _columns("score", score.of_losses(np.array([fold_losses(evaluation) for evaluation in made])))
    table["test_score_low"], table["test_score_high"] = np.array([score.proven(evaluation) for evaluation in made]).T
    table["asked_error"] = np.array(asked)
    table["proved_error"] = np.array([float(evaluation.e.max()) for evaluation in made])
    table["work"] = np.array([evaluation.work for evaluation in made])
    table["purpose"] = np.array(purposes)
    table["mean_fit_time"] = np.array(seconds) / len(made[0].coarse)
    table |= {name: np.full(len(made), np.nan) for name in ("std_fit_time", "mean_score_time", "std_score_time")}
    return table


def _columns(name: str, scores: Array) -> dict[str, Any]:
    """Scores of evaluations x folds, as in GridSearchCV."""
    mean = scores.mean(axis=1)
    with np.errstate(over="ignore"):
        spread = scores.std(axis=1)
    rank = (1 + np.argsort(np.argsort(-mean))).astype(np.int32)
    folds = {f"split{k}_test_{name}": of_fold for k, of_fold in enumerate(scores.T)}
    return {**folds, f"mean_test_{name}": mean, f"std_test_{name}": spread, f"rank_test_{name}": rank}


def table_of_scores(
    made: Sequence[Evaluation],
    scored: Callable[[Evaluation, Any], list[float]],
    scorers: dict[str, Any],
    table: dict[str, Any],
    same: Sequence[str],
) -> dict[str, Any]:
    """Columns of further scores, by their names as in GridSearchCV; those in `same` are the table's own score. `scored`
    has those of all folds."""
    own = np.column_stack([table[f"split{k}_test_score"] for k in range(len(made[0].coarse))])
    found = {}
    for name, scorer in scorers.items():
        again = name not in same
        found[name] = np.array([scored(evaluation, scorer) for evaluation in made]) if again else own
    return {key: column for name, scores in found.items() for key, column in _columns(name, scores).items()}


def without_data(result: Result) -> Result:
    """The result without the problems of its solutions: a fitted search does not hold on to its training data."""
    evaluation = result.evaluation
    if evaluation is not None:
        evaluation = replace(evaluation, solutions=[light(solution) for solution in evaluation.solutions])
    return replace(result, evaluation=evaluation, starts=tuple(map(without_data, result.starts)))


@dataclass(frozen=True)
class FoldWeights:
    """One solution per fold, and the digest of the rows that the folds were made of: weights of others may have seen
    what is held out now. Of rows that are left out one by one the solution of all, and their margins."""

    rows: str
    solutions: tuple[Solution, ...]
    margins: Array | None = None

    @classmethod
    def of(cls, splits: Sequence[Any], solutions: Sequence[Solution], margins: Array | None = None) -> FoldWeights:
        return cls(digest(list(splits)), tuple(replace(light(one), state=None) for one in solutions), margins)


def held_out(
    folds: Sequence[Split], splits: Splits, solutions: Sequence[Solution], data: SearchData
) -> tuple[Predicted, Predicted]:
    """Predictions of the folds' models for the rows that they have not seen, and those of the target alone; in the
    target's own units."""
    weighted = bool(np.any(data.weight != 1.0))

    def predicted(fold: Split, w: Array) -> Predicted:
        return fold.predicted(*fold.predictor(w), weighted)

    ask = [partial(predicted, fold, one.x) for fold, one in zip(folds, solutions, strict=True)]
    parts = together_if_dear([fold.model for fold in folds])(ask)
    trained = [(data.y[train], data.weight[train] if weighted else None) for train, _ in splits]
    alone = of_the_target_alone([(part, *known) for part, known in zip(parts, trained, strict=True)])
    rows = np.concatenate([np.arange(len(data.y))[test] for _, test in splits])
    return replace(Predicted.joined(parts), times=len(rows) / len(np.unique(rows))), alone
