"""Whether an adapter and its folds say of an estimator what is true.

An adapter makes four claims. Its folds are lower-level problems whose mu, L and certificates hold. Their weights, put
into the estimator, are a fitted estimator. A fold's held-out loss is offset - score of that estimator, for every score
on offer, with an error bound that holds. And the penalties in the estimator's words lead its own fit to the same model.
"""

from __future__ import annotations

import warnings
from itertools import islice
from typing import Any

import numpy as np

from suffice.arrays import Array, norm
from suffice.solvers.solution import Solution
from suffice.solvers.solver import solve
from suffice.testing import check_loss, check_problem, require

SHARES = (0.3, 0.03)  # of the largest penalties that matter, at which problems are looked at
ACCURACY = 1e-8  # of the weights, relative


def check_adapter(estimator: Any, X: Any, y: Any, *, fit_tolerance: float = 1e-2, seed: int = 0) -> None:
    """Check the adapter that `register_adapter` has made known for the class of `estimator`.

    X and y are data that the estimator can be fitted to. Two folds of three are built, with random sample weights if
    the estimator's fit takes them. At two sizes of the penalties each, the fold's problem must pass `check_problem`,
    its weights must make a fitted estimator whose score is what the held-out loss says, and that loss must pass
    `check_loss`. The estimator's own fit with the translated penalties, at tol=1e-8 where it has one, must have the
    same score up to `fit_tolerance`, relative to the larger of the score and its distance from that of zero weights.
    """
    from sklearn.base import is_classifier
    from sklearn.model_selection import check_cv
    from sklearn.utils.validation import has_fit_parameter

    from suffice.sklearn.adapters import find_adapter
    from suffice.sklearn.penalties import PenaltySpace, kind_of
    from suffice.sklearn.splits import SearchData

    adapter, y = find_adapter(estimator), np.asarray(y)
    ratio = adapter.ratio(estimator)
    require(0.0 <= ratio <= 1.0, f"adapter.ratio is {ratio}, not between 0 and 1")
    space = PenaltySpace.of(None, estimator, adapter)
    kinds = tuple(kind_of(name) for name in space.names)
    weighted = has_fit_parameter(estimator, "sample_weight")
    weight = np.random.default_rng(seed).uniform(0.5, 2.0, len(y)) if weighted else np.ones(len(y))
    data = SearchData(estimator, X, y, weight)
    splits = check_cv(3, y, classifier=is_classifier(estimator)).split(X, y)
    for k, (train, test) in enumerate(islice(splits, 2)):
        split = data.split(train, test, f"fold {k}")
        for share in SHARES:
            l1, l2 = _penalties(split.model, kinds, ratio, share)
            where = f"fold {k} at l1 = {l1:.3g}, l2 = {l2:.3g}"
            problem = split.model.at(l1=l1, l2=l2)
            check_problem(problem, trials=5, seed=seed, solver=split.solver)
            solution = _solved(problem, split.solver, where)
            own = _own_fit(data, adapter, train, l1, l2, kinds, weighted)
            _check_split(split, solution, own, adapter.scorings, weighted, fit_tolerance, where)
        if "l1" in kinds:
            _check_l1_max(split, l2)


def _penalties(fold: Any, kinds: tuple[str, ...], ratio: float, share: float) -> tuple[float, float]:
    from suffice.sklearn.folds import FLOOR
    from suffice.sklearn.penalties import penalties

    require(0.0 < fold.l1_max < np.inf, f"fold.l1_max is {fold.l1_max}")
    require(0.0 < fold.l2_floor < np.inf, f"fold.l2_floor is {fold.l2_floor}")
    largest = {"l1": share * fold.l1_max, "l2": share * fold.l2_floor / FLOOR}
    both = penalties({kind: largest[kind] for kind in kinds}, ratio)
    return both["l1"], both["l2"]


def _solved(problem: Any, solver: Any, where: str) -> Solution:
    rough = solve(problem, steps=10, solver=solver)
    within = ACCURACY * max(norm(rough.x), 1e-3)
    solution = solve(problem, within=within, solver=solver, warm=rough, max_steps=200_000)
    require(solution.certificate.radius <= 1e3 * within, f"{where}: solved within {solution.certificate.radius} only")
    return solution


def _own_fit(data: Any, adapter: Any, train: Any, l1: float, l2: float, kinds: tuple[str, ...], weighted: bool) -> Any:
    """The estimator, fitted by itself to the training rows with the penalties in its own words."""
    from sklearn.base import clone
    from sklearn.utils import _safe_indexing

    rows, weight = data.y[train], data.weight[train]
    total = float(adapter.weights(data.estimator, rows, weight, data.classes).sum())
    own = clone(data.estimator).set_params(**adapter.params(data.estimator, l1, l2, total, kinds))
    known = own.get_params()
    exact = {"tol": 1e-8, "max_iter": 100_000, "random_state": 0}
    own.set_params(**{name: value for name, value in exact.items() if name in known})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return own.fit(_safe_indexing(data.X, train), rows, **({"sample_weight": weight} if weighted else {}))


def _check_split(
    split: Any, solution: Solution, own: Any, scorings: tuple[str, ...], weighted: bool, tolerance: float, where: str
) -> None:
    from suffice.sklearn.scores import score_of

    coef, intercept = split.model.coefficients(solution.x)
    fitted = split.fitted(solution.x)
    for name, ours in (("coef_", coef), ("intercept_", intercept)):
        theirs = np.ravel(np.asarray(getattr(fitted, name, np.nan), dtype=np.float64))
        same = np.array_equal(theirs, np.ravel(np.asarray(ours, dtype=np.float64)))
        require(same, f"{where}: the fitted estimator's {name} is not what fold.coefficients says")
    weights = {"sample_weight": split.weight} if weighted else {}
    for scoring in scorings:
        score = score_of(scoring)
        loss = split.loss(scoring, 1)
        at, at_zero = loss.at(solution.x), loss.at(np.zeros_like(solution.x))
        expected = score.loss_of(float(score.scorer(fitted, split.X, split.labels, **weights)))
        apart = abs(at.residual**2 - expected)
        require(
            apart <= 1e-6 * max(abs(expected), 1e-6 * at_zero.residual**2),
            f"{where}: the held-out loss is {at.residual**2}, {scoring} of the fitted estimator says {expected}",
        )
        parts = split.loss(scoring, 4).at(solution.x).residual ** 2
        require(
            abs(4.0 * parts - at.residual**2) <= 1e-9 * at.residual**2,
            f"{where}: the loss of one fold out of four is {parts}, not a quarter of {at.residual**2}",
        )
        check_loss(loss, solution.x, trials=10)
        by_itself = score.loss_of(float(score.scorer(own, split.X, split.labels, **weights)))
        scale = max(abs(expected), abs(at_zero.residual**2 - expected))
        require(
            abs(by_itself - expected) <= tolerance * scale,
            f"{where}: the estimator's own fit with these penalties has a loss of {by_itself}, ours {expected}",
        )


def _check_l1_max(split: Any, l2: float) -> None:
    """Weights are zero at l1_max, and not before."""

    def weights(l1: float) -> Array:
        return solve(split.model.at(l1=l1, l2=l2), within=1e-10, solver=split.solver, max_steps=200_000).x

    top = split.model.l1_max
    require(norm(weights(1.001 * top)) <= 1e-9, f"weights are not zero beyond fold.l1_max = {top}")
    require(norm(weights(0.9 * top)) > 0.0, f"weights are zero below fold.l1_max = {top} already")
