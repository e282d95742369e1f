r"""Yesterday's search, today's rows.

Rows are added or removed (`suffice.sklearn.dealt_rows`). With theta the penalties of yesterday and w_k the weights of
its folds' models, F of today's rows is

    evaluated at theta, from w_k on, with its gradient g;
    modelled by g and the curvature H that yesterday's search has seen near theta (of squares, where it has seen none,
    Gauss and Newton's 2 J^T J). Other penalties gain  c g^T H^-1 g / 2,  c = DOUBT + MORE (the share of new rows) for
    what H has changed by.

Let s be the standard error of F over folds. theta is kept if that is no more than KEPT s: the best penalties on other
rows of the same kind differ by more. Else a search begins at theta, within a small trust region, until its model
promises no more than KEPT s / 2. theta is kept again if what it has found is better by no more than KEPT s; else the
search goes on from there to the end of any search. A model promises, and proves nothing: the gain is *estimated*. With
`certify_global` it is *proven*, for the whole space.

H is the least-squares fit of  g_i = g + H (theta_i - theta)  and  F_i = F + g.d + d.H d / 2, d = theta_i - theta, to
the evaluations within NEAR decades of the best, if they tell it and it is positive definite.

The final model is trained on today's rows from yesterday's weights, and its certificate is made of today's rows alone:
however it began, it lies within its radius of the model that has never seen a row that is gone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.models.cox import signed_times
from suffice.report.formats import bound
from suffice.result import Status
from suffice.rows.given import as_rows, here
from suffice.rows.sums import one_thread
from suffice.search.tune import tune
from suffice.sklearn._penalty_search import PenaltySearch
from suffice.sklearn._preparation import SearchPreparation
from suffice.sklearn._recorded import estimate, standard_error, worth
from suffice.sklearn.dealt_rows import Rows, steps_of
from suffice.sklearn.splits import Split
from suffice.solvers.solution import Solution, start_from

SMALL = 1_000_000  # numbers of X, up to which BLAS has one thread
KEPT = 0.1  # of the standard error over folds: a gain that moves nothing
DOUBT, MORE = 2.0, 10.0
RADIUS = 0.02  # of the box: the first trust region
NEAR = 0.7
MANY = 10  # residuals of a fold
MOST = 2  # parameters of which H is known


# Where an update begins


@dataclass(frozen=True, eq=False)
class Yesterday:
    """Of a search: its penalties, as its space has them, the weights of its folds' models with the names of their
    columns (None: numbered), F with its standard error, and its curvature."""

    penalties: Mapping[str, float]
    weights: tuple[Array, ...]
    names: tuple[tuple[str, ...] | None, ...]
    cost: float
    error: float
    curvature: Array | None = None

    @classmethod
    def of(cls, search: Any) -> Yesterday:
        best = search.result_.evaluation
        solutions = search._fold_weights.solutions
        rows, seen = search._for_updates
        weights = tuple(one.x for one in solutions)
        return cls(search.result_.params, weights, tuple(map(names_of, rows.before)), best.cost, standard_error(best),
                   seen)  # fmt: skip

    def warm(self, search: PenaltySearch, theta: Array) -> Evaluation | None:
        """Where the models of folds begin; None where nothing is known of as many."""
        folds = search.folds
        if len(self.weights) != len(folds):
            return None
        sizes = [one.size for one in search.problem.problem.at(theta)]
        starts = [
            _start(placed(x, names, names_of(fold.before)), size, fold)
            for x, names, fold, size in zip(self.weights, self.names, folds, sizes, strict=True)
        ]
        return Evaluation(theta, np.zeros(len(folds)), np.zeros(len(folds)), solutions=starts)


def names_of(before: Any) -> tuple[str, ...] | None:
    """Of the columns that these steps put out; None where they have no names, and stay in their places."""
    try:
        return None if before is None else tuple(map(str, before.get_feature_names_out()))
    except (AttributeError, ValueError):
        return None


def placed(x: Array, names: tuple[str, ...] | None, now: tuple[str, ...] | None) -> Array:
    """Weights of these columns, for those that there are now: 0 for a column that is new."""
    if names is None or now is None or names == now or not names:
        return x
    outputs = len(x) // len(names)
    W, rest = x[: outputs * len(names)].reshape(outputs, -1), x[outputs * len(names) :]
    place = {name: k for k, name in enumerate(names)}
    known = [(k, place[name]) for k, name in enumerate(now) if name in place]
    made = np.zeros((outputs, len(now)))
    made[:, [k for k, _ in known]] = W[:, [k for _, k in known]]
    return np.concatenate([made.ravel(), rest])


def _start(x: Array, size: int | None, fold: Split) -> Solution:
    return start_from(x if size in (None, len(x)) else np.zeros(size or 0), fold.solver)


# Whether the penalties of yesterday are still good


@dataclass(eq=False)
class StillGood:
    """How a search of these rows, which begins at the penalties of yesterday, finds out whether they are still good."""

    yesterday: Yesterday
    rows: Rows
    fresh: float  # rows added and removed, as a share of all
    there: Evaluation | None = None  # at the penalties of yesterday
    gain: float = math.inf  # of F, at most, by the search's estimate
    left: float = 0.0  # that a search leaves alone
    search: PenaltySearch | None = None

    def start(self, search: PenaltySearch) -> Array | None:
        """Where to search from; None if the penalties stay without a search."""
        problem, known, self.search = search.problem, self.yesterday, search
        lower, upper = problem.space.bounds
        theta = np.clip(problem.space.theta({n: known.penalties[n] for n in problem.space.names}), lower, upper)
        problem.purpose, K = "overview", len(search.folds)
        wanted = min(KEPT * known.error if known.error > 0.0 else math.inf, 1e-3 * known.cost)
        within = 0.1 * wanted / math.sqrt(K * known.cost) if known.cost > 0.0 else math.inf
        there = problem.look(theta, within=within, warm=self.yesterday.warm(search, theta))
        share = max(KEPT * standard_error(there), worth(there, search.tolerance))
        self.gain = self._promised(problem.differentiate(there), (lower, upper))
        self.there = problem.evaluations[-1]
        problem.standing = self.there, math.inf if self.gain <= share else share
        if self.gain <= share:
            search.result = replace(search.result, status=Status.SUFFICES, work=problem.work)
            return None
        self.gain, self.left, problem.purpose = math.inf, 0.5 * share, "search"
        options = replace(
            search.options, enough=self.left, initial_radius=max(RADIUS, search.options.final_radius),
            max_seconds=min(search.options.max_seconds, max(problem.until - time.monotonic(), 1e-6)),
        )  # fmt: skip
        search.result = tune(problem, theta, options=options, callback=problem.report, seen=[self.there])
        best = problem.best
        return None if best is self.there or not search.result.success else best.point

    def gained(self) -> float:
        """What other penalties gain at most, as a share of F, after the search."""
        if self.search is None or self.there is None or not self.search.result.success or not self.there.cost > 0.0:
            return math.inf
        if self.gain == math.inf:
            best = min(self.search.problem.evaluations, key=estimate)
            seen = max(self.there.interval[1] - best.cost, 0.0)
            return (seen + self.left) / self.there.cost
        return self.gain / self.there.cost

    def _promised(self, there: Evaluation, box: tuple[Array, Array]) -> float:
        """What other penalties gain, by the curvature of yesterday."""
        g, H = there.slope, self.yesterday.curvature
        if H is None and there.J is not None and len(there.r) > MANY * len(there.coarse):
            H = 2.0 * there.J.T @ there.J  # Gauss and Newton's, of squares
        if g is not None and H is not None and H.shape == (len(g), len(g)):
            held = ((there.point <= box[0]) & (g > 0.0)) | ((there.point >= box[1]) & (g < 0.0))
            free = np.flatnonzero(~held)
            with suppress(np.linalg.LinAlgError):  # H is singular
                step: Any = np.linalg.solve(H[np.ix_(free, free)], g[free])
                return 0.5 * (DOUBT + MORE * self.fresh) * float(g[free] @ step) + there.error
        return math.inf


def curvature(evaluations: Sequence[Evaluation], best: Evaluation) -> Array | None:
    """H of F at the best point, as the evaluations near it tell; None if they do not."""
    m = len(best.point)
    pairs = [(i, j) for i in range(m) for j in range(i, m)]
    rows, right = [], []
    for one in evaluations:
        d = one.point - best.point
        size = norm(d)
        if m > MOST or size > NEAR or one.failure is not None:
            continue
        if size > 0.0:
            of_H = [d[i] * d[j] * (0.5 if i == j else 1.0) for i, j in pairs]
            if one.error + best.error < 0.2 * abs(one.cost - best.cost):
                rows.append(np.array([*of_H, *d]) / size**2)
                right.append((one.cost - best.cost) / size**2)
        if one.slope is not None:
            for k in range(m):
                of_H = [d[j] if i == k else d[i] if j == k else 0.0 for i, j in pairs]
                rows.append(np.array([*of_H, *np.eye(m)[k]]) / max(size, 0.01))
                right.append(one.slope[k] / max(size, 0.01))
    if not rows or np.linalg.matrix_rank(np.array(rows), tol=1e-3) < len(pairs) + m:
        return None
    found = np.linalg.lstsq(np.array(rows), np.array(right), rcond=None)[0]
    H = np.zeros((m, m))
    for (i, j), value in zip(pairs, found[: len(pairs)], strict=True):
        H[i, j] = H[j, i] = value
    return H if np.linalg.eigvalsh(H)[0] > 0.0 else None


def kept_for_updates(
    known: SearchPreparation,
    fit_params: Mapping[str, Any],
    kept: StillGood | None,
    evaluations: Sequence[Evaluation],
    best: Evaluation,
) -> tuple[Rows | None, Array | None]:
    """What a search holds on to: its rows, and the curvature that it has seen, or that another one has before."""
    seen = curvature(evaluations, best)
    seen = kept.yesterday.curvature if seen is None and kept is not None else seen
    if kept is not None:
        return replace(kept.rows, before=steps_of(known)), seen
    return Rows.of(known, fit_params.get("groups")), seen


@dataclass(frozen=True)
class Update:
    """What an update of a search has done: rows, penalties before and after, and by which share of the loss other
    penalties could be better at most, `proven` or estimated; `work` in steps of the solver, of all folds."""

    added: int
    removed: int
    rows: int
    kept: bool
    gain: float
    proven: bool
    before: Mapping[str, float]
    after: Mapping[str, float]
    work: float
    same_folds: bool

    @property
    def message(self) -> str:
        """In words."""
        if self.kept and not math.isfinite(self.gain):
            return "penalties kept, and not compared with others: the search was stopped before"
        if self.kept:
            share = bound(100.0 * self.gain, up=True)
            return f"penalties kept: at most {share} % could be gained ({'proven' if self.proven else 'estimated'})"
        moved = [name for name in self.after if self.before.get(name) != self.after[name]]
        return f"moved: {', '.join(f'{name} {self.before[name]:.4g} -> {self.after[name]:.4g}' for name in moved)}"

    def __str__(self) -> str:
        return self.message


def updated(search: Any, X: Any, y: Any, remove: Any, weight: Any, groups: Any) -> None:
    """`SufficeSearchCV.update`."""
    check_is_fitted(search, "best_penalties_")
    rows = getattr(search, "_for_updates", (None,))[0]
    if rows is None:
        raise ValueError(
            "this search has no rows to update: they stay out of files, and rows on a device or a cluster are not held "
            "on to; fit it anew"
        )
    if X is None and remove is None:
        raise ValueError("update takes rows to add, X_new and y_new, or rows to remove: got neither")
    if rows.folds is None and not callable(getattr(search.cv, "split", None)) and search.cv is not None:
        raise ValueError("cv is a list of splits that do not hold out every row once: new rows have no fold in it")
    if (X is None) != (y is None):
        raise ValueError(f"X_new and y_new go together, got {'y_new' if X is None else 'X_new'} alone")
    before, removed = len(rows.y), 0
    if remove is not None:
        rows = rows.without(remove)
        removed = before - len(rows.y)
    if X is not None:
        rows = rows.then(*_new(search, rows, X, y, weight, groups))
    again = copy(search)
    go_on(again, rows, Yesterday.of(search), len(rows.y) - before + removed, removed)
    vars(search).update(vars(again))  # if nothing has failed


def _new(search: Any, rows: Rows, X: Any, y: Any, weight: Any, groups: Any) -> tuple[Any, Any, Array, Any]:
    """New rows as a search has them; ValueError where they are not like those that it has."""
    y = here(y)
    y = signed_times(y) if getattr(getattr(y, "dtype", None), "names", None) else np.asarray(y)
    X = as_rows(X)
    if y.ndim != np.ndim(rows.y) or X.shape[0] != len(y):
        raise ValueError(f"y_new must have one entry for each of the {X.shape[0]} rows of X_new, got shape {y.shape}")
    if is_classifier(search.estimator):
        if len(strange := np.setdiff1d(y, rows.y)):
            raise ValueError(f"y_new has the class {strange.tolist()[0]!r}, which the search has not seen: fit anew")
    else:
        y = y.astype(np.float64)
    if rows.groups is not None and groups is None:
        raise ValueError("groups of the new rows are needed: the search has held out whole groups")
    if weight is None and np.any(rows.weight != 1.0):
        raise ValueError("sample_weight of the new rows is needed: the search has weighed its rows")
    weight = np.ones(len(y)) if weight is None else np.asarray(here(weight), dtype=np.float64)
    if weight.shape != (len(y),):
        raise ValueError(f"sample_weight must have one entry for each of the {len(y)} new rows, got {weight.shape}")
    return X, y, weight, None if groups is None else np.asarray(groups)


def go_on(search: Any, rows: Rows, yesterday: Yesterday, added: int, removed: int) -> None:
    """Fit the search to these rows from where another one ended."""
    kept = StillGood(yesterday, rows, (added + removed) / len(rows.y))
    weights = {} if np.all(rows.weight == 1.0) else {"sample_weight": rows.weight}
    again = {} if rows.folds is not None or rows.groups is None else {"groups": rows.groups}
    with one_thread() if math.prod(rows.X.shape) <= SMALL else nullcontext():
        search._fit(rows.X, rows.y, {**weights, **again}, time.monotonic(), kept)
    after = dict(search.result_.params)
    gain, proven = kept.gained(), False
    if hasattr(search, "global_gap_") and search.certify_global is not None:
        gain, proven = search.global_gap_, math.isfinite(search.global_gap_)
    stands = kept.there is not None and np.array_equal(search.result_.theta, kept.there.point)
    search.update_ = Update(
        added, removed, len(rows.y), stands, gain, proven, dict(yesterday.penalties), after,
        float(np.sum(search.cv_results_["work"])), rows.folds is not None,
    )  # fmt: skip
