r"""Yesterday's search, today's rows.

Rows are added or removed (`suffice.sklearn.dealt_rows`). With theta the penalties of yesterday and w_k the weights of
its folds' models, F of today's rows is

    evaluated at theta, from w_k on, with its gradient g;
    modelled by g and Gauss and Newton's H = 2 J^T J. Other penalties gain  c g^T H^-1 g / 2,  c = DOUBT + MORE (the
    share of new rows) for what H leaves out.

Let s be the standard error of F over folds. theta is kept if that is no more than KEPT s: the best penalties on other
rows of the same kind differ by more. Else F is sketched over the whole space (`suffice.sklearn._sketch`; where psi is
no square by quadratics around the models at theta), and theta is kept if the sketch is nowhere lower by more than KEPT
s. Where it is, F is evaluated there; if it is as low as it seemed the search goes on from there, as any search does.

Where there is no sketch, or it was wrong, a search begins at theta, within a small trust region, and ends when its
model promises no more than KEPT s / 2. theta is kept again if what it has found is better by no more than KEPT s.

Models promise, and prove nothing: the gain is *estimated*. It is *proven*, for the whole space, with `certify_global`,
and where there is one penalty and X has no more than PROVEN numbers, by LOOKS looks at most.

The final model is trained on today's rows from yesterday's weights, and its certificate is made of today's rows alone:
however it began, it lies within its radius of the model that has never seen a row that is gone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.globally import GlobalOptions, certify_global
from suffice.globally.models import UnsupportedError
from suffice.models.cox import signed_times
from suffice.models.margin_losses import Squared
from suffice.report.formats import bound
from suffice.result import Status
from suffice.rows.given import as_rows, here, numbered
from suffice.rows.sums import one_thread
from suffice.search.bilevel import BilevelProblem
from suffice.sklearn._penalty_search import PenaltySearch
from suffice.sklearn._preparation import SearchPreparation
from suffice.sklearn._recorded import estimate, standard_error, worth
from suffice.sklearn._sketch import Sketch, sketches
from suffice.sklearn._starting_points import look_from
from suffice.sklearn.dealt_rows import Rows, steps_of
from suffice.sklearn.splits import Split
from suffice.solvers.solution import Solution, start_from

SMALL = 1_000_000  # numbers of X, up to which BLAS has one thread
KEPT = 0.1  # of the standard error over folds: a gain that moves nothing
DOUBT, MORE = 2.0, 10.0
RADIUS = 0.02  # of the box: the first trust region
MANY = 10  # residuals of a fold
PROVEN, LOOKS = 100_000, 30


# Where an update begins


@dataclass(frozen=True, eq=False)
class Yesterday:
    """Of a search: its penalties, as its space has them, the weights of its folds' models with the names of their
    columns (None: numbered), and F with its standard error."""

    penalties: Mapping[str, float]
    weights: tuple[Array, ...]
    names: tuple[tuple[str, ...] | None, ...]
    cost: float
    error: float

    @classmethod
    def of(cls, search: Any) -> Yesterday:
        best = search.result_.evaluation
        solutions = search._fold_weights.solutions
        names, weights = tuple(map(names_of, search._for_updates.before)), tuple(one.x for one in solutions)
        return cls(search.result_.params, weights, names, best.cost, standard_error(best))

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
    gain: float = math.inf  # of F, at most, by the search's estimate, or proven
    proven: bool = False
    share: float = 0.0  # of F: what moves nothing
    left: float = 0.0  # that a search leaves alone
    work: float = 0.0  # of a proof
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
        self.share = share = max(KEPT * standard_error(there), worth(there, search.tolerance))
        self.gain = self._promised(problem.differentiate(there), (lower, upper))
        self.there = there = problem.evaluations[-1]
        problem.standing = there, share
        if self.gain > share and (sketch := self._sketch(search, there)) is not None:
            self.gain = there.interval[1] - sketch.height(sketch.lowest)
            if self.gain > share:
                look_from(sketch, problem, within)
        if self.gain <= share:
            problem.standing = there, math.inf
            search.result = replace(search.result, status=Status.SUFFICES, work=problem.work)
            return None
        self.gain = math.inf
        if problem.best is there:  # from here, until a model promises little
            self.left, search.close, radius = 0.5 * share, 1.0, max(RADIUS, search.options.final_radius)
            search.options = replace(search.options, enough=self.left, initial_radius=radius)
        return problem.best.point

    def prove(self, problem: BilevelProblem, best: Evaluation) -> Evaluation:
        """The best evaluation, after a proof of what other penalties gain, where that is cheap."""
        search = self.search
        if search is None or search.one_se or not search.result.success or not best.cost > 0.0:
            return best
        if len(problem.space) > 1 or math.prod(self.rows.X.shape) > PROVEN or not numbered(self.rows.X):
            return best
        budget = GlobalOptions(max_evaluations=LOOKS, max_seconds=max(search.problem.until - time.monotonic(), 1e-6))
        with suppress(UnsupportedError):
            made = certify_global(problem, self.share / best.cost, options=budget, known=best)
            self.work = made.work
            if made.upper < best.interval[0] - self.share:
                best = search.moved(made.theta, best)
            if made.success:
                self.gain, self.proven = max(best.interval[1] - made.lower, 0.0), True
        return best

    def gained(self) -> float:
        """What other penalties gain at most, as a share of F, after the search."""
        if self.search is None or self.there is None or not self.search.result.success or not self.there.cost > 0.0:
            return math.inf
        if self.gain == math.inf:
            best = min(self.search.problem.evaluations, key=estimate)
            seen = max(self.there.interval[1] - best.cost, 0.0)
            return (seen + self.left) / self.there.cost
        return self.gain / self.there.cost

    def _sketch(self, search: PenaltySearch, there: Evaluation) -> Sketch | None:
        """F over the whole space, by the models there; None where that would cost too much."""
        folds, losses, space = search.folds, search.problem.problem.losses, search.space
        if len(there.e) != len(folds) or not any(sketches(folds, losses, space, near) for near in (False, True)):
            return None
        fold: Any = folds[0].model
        near = None if isinstance(fold.psi, Squared) else [one.x for one in there.solutions]
        return Sketch.of(folds, losses, space, near)

    def _promised(self, there: Evaluation, box: tuple[Array, Array]) -> float:
        """What other penalties gain, by a model."""
        g = there.slope
        if g is not None and there.J is not None and len(there.r) > MANY * len(there.coarse):
            H = 2.0 * there.J.T @ there.J
            held = ((there.point <= box[0]) & (g > 0.0)) | ((there.point >= box[1]) & (g < 0.0))
            free = np.flatnonzero(~held)
            with suppress(np.linalg.LinAlgError):  # H is singular
                step: Any = np.linalg.solve(H[np.ix_(free, free)], g[free])
                return 0.5 * (DOUBT + MORE * self.fresh) * float(g[free] @ step) + there.error
        return math.inf


def kept_for_updates(known: SearchPreparation, groups: Any, kept: StillGood | None) -> Rows | None:
    """The rows that a search holds on to."""
    return Rows.of(known, groups) if kept is None else replace(kept.rows, before=steps_of(known))


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
    rows = getattr(search, "_for_updates", None)
    if rows is None or not numbered(rows.X):
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
    gain, proven = kept.gained(), kept.proven
    if hasattr(search, "global_gap_") and search.certify_global is not None:
        gain, proven = search.global_gap_, math.isfinite(search.global_gap_)
    stands = kept.there is not None and np.array_equal(search.result_.theta, kept.there.point)
    search.update_ = Update(
        added, removed, len(rows.y), stands, gain, proven, dict(yesterday.penalties), after,
        float(np.sum(search.cv_results_["work"])) + kept.work, rows.folds is not None,
    )  # fmt: skip
