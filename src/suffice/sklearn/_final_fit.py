r"""The final fit: the model of all rows at the best penalties, proven, inside a clone of the estimator.

Our own solver minimises the objective of `suffice.sklearn.folds` on all rows,

    w ~ w_hat = argmin Phi(w; l1, l2),        ||w - w_hat|| <= radius,        radius <= FINAL ||w|| is asked for,

and the coefficients of w are put into a clone of the estimator with all that its own `fit` would leave there. Where
rounding allows no such radius, the one that is proven is told; where MOST_STEPS are not enough and more than OFF ||w||
is open, a `ConvergenceWarning` says so. l2 = 0 is dealt with as in folds: the model is of the kind that was scored.
The fit begins at the mean of the folds' weights, near w_hat, and is left when its time is over.

scikit-learn's own fit (`refit="sklearn"`) stops by rules of its own, which prove nothing. Its coefficients c are held
against ours: with rho = ||c - w|| they lie between rho - radius and rho + radius from w_hat. They are called off where
the smaller of the two exceeds OFF ||w||, which is a proof that they are.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _check_feature_names

from suffice.arrays import Array, norm, outside_stacklevel
from suffice.sklearn._target import fitted_inside, inside, wrapped
from suffice.sklearn.penalties import RIDGES, split_pipeline
from suffice.sklearn.splits import SearchData, Split
from suffice.solvers.problem import Composite
from suffice.solvers.solution import Outcome, Solution
from suffice.solvers.solver import solve

FINAL = 1e-6  # the radius that is asked for, relative to the norm of the weights
MOST_STEPS = 20_000  # of one model
AT_A_TIME = 5  # steps between looks at the clock
OFF = 0.01  # of the norm of the weights: what is worth a warning


def fit_final(
    data: SearchData, penalties: dict[str, float], near: Sequence[Solution] = (), until: float = math.inf
) -> tuple[Any, float]:
    """`data.estimator`, which has the best parameters, with coefficients by our own solver, and a proven bound on their
    distance from exact ones. `penalties` has l1 and l2, of every group if there are groups, `near` are solutions of
    folds there."""
    split = data.whole()
    if split.adapter.by_penalties:
        solution = fitted_weights(split, penalties, near, until)
        size = norm(solution.x)
    else:  # of models that are no vector of weights
        solution, size = split.adapter.final(split, penalties, FINAL)
    radius = solution.certificate.radius
    if solution.outcome is not Outcome.PRECISION and not radius <= OFF * size:
        warnings.warn(
            f"the final fit was left after {solution.steps:,} steps: its coefficients, of norm {size:.4g}, are proven "
            f"to lie within {radius:.4g} of exact ones only (coef_radius_)",
            ConvergenceWarning,
            stacklevel=outside_stacklevel(),
        )
    return _whole(data, split, solution), radius


def held_against_ours(
    data: SearchData,
    penalties: dict[str, float],
    estimator: Any,
    near: Sequence[Solution] = (),
    until: float = math.inf,
) -> tuple[Any, float]:
    """The same of what scikit-learn has fitted, with a warning where its coefficients are proven to be off."""
    split = data.whole()
    solution = fitted_weights(split, penalties, near, until)
    ours = np.ravel(split.model.coefficients(solution.x)[0])
    theirs = np.ravel(split_pipeline(fitted_inside(estimator))[0].coef_)
    apart, radius, size = norm(theirs - ours), solution.certificate.radius, norm(ours)
    if apart - radius > OFF * size:
        where = "exact ones"
        why = "its solver has stopped too early (tol, max_iter, features of very different scales)"
        floor = split.model.l2_in_place_of_none
        if floor > 0.0 and any(value == 0.0 for name, value in penalties.items() if name.startswith("l2")):
            where = "those of the model that was scored"
            why = f"that has l2 = {floor:.2g} in place of none, or {why}"
        warnings.warn(
            f"scikit-learn's coefficients are proven to lie {apart - radius:.3g} or more away from {where}, whose norm "
            f"is {size:.3g}: {why}; refit=True fits to a proven accuracy",
            ConvergenceWarning,
            stacklevel=outside_stacklevel(),
        )
    return estimator, apart + radius


def fitted_weights(
    split: Split, penalties: dict[str, float], near: Sequence[Solution] = (), until: float = math.inf
) -> Solution:
    """w of all training rows as the final model has it; where little is proven without an l2, with the smallest that
    proves it."""
    problem = split.penalised().at(**penalties)
    solution = solved(problem, split.solver, FINAL, between(near, problem), until=until)
    for ridge in RIDGES if problem.mu == 0.0 else ():
        if solution.certificate.radius <= OFF * norm(solution.x) or solution.outcome is Outcome.MAX_STEPS:
            break
        problem = replace(split.penalised(), ridge=ridge).at(**penalties)
        proven = solved(problem, split.solver, FINAL, solution.x, until=until)
        solution = min(solution, proven, key=lambda one: one.certificate.radius)
    return solution


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
    while solution.certificate.radius > accuracy * norm(solution.x):
        left = most - solution.steps
        if left <= 0 or time.monotonic() >= until:
            break
        radius = min(solution.certificate.radius, 1e300)
        within = max(accuracy * norm(solution.x), 1e-4 * radius)
        left = left if until == math.inf else min(left, AT_A_TIME)
        solution = solve(problem, within=within, solver=solver, warm=solution, max_steps=left)
        if solution.outcome is Outcome.MAX_STEPS:
            continue
        if not solution.reached or within == 0.0 or (norm(solution.x) == 0.0 and within < 1e-12):
            break
    return solution


def _whole(data: SearchData, split: Split, solution: Solution) -> Any:
    """The estimator of the search, pipeline and all, with these weights."""
    final, before = split.fitted(solution.x), split.before
    split.adapter.finish(final, split.model, solution)
    _check_feature_names(final, data.names(before), reset=True)
    whole = final
    if isinstance(inside(data.estimator), Pipeline):
        whole = clone(inside(data.estimator))
        whole.steps = [*([] if before is None else before.steps), (whole.steps[-1][0], final)]
    return wrapped(split.target, whole)
