"""The one place where rows of the data become a lower-level problem: of a fold, or of all rows.

Steps of a pipeline before the linear estimator are fitted to the training rows; what they put out is the fold's X. With
`groups_of_features` every column of it belongs to a group with penalties of its own.

Folds of a large dense X, without such steps, are views of one copy of it (`OneCopy`), in the order of the folds that
hold rows out, less the mean of columns if there is an intercept. A fold has all rows for training, those that it holds
out with a weight of 0: a fifth more products for five folds, where copies would take four times as much memory as X.
Rows on a device (`suffice.rows.given`) are so whatever their size.

Rows that stay where they are, blocks of them in files or on a cluster (`suffice.rows.blocks`), are tuned in place
(`InPlace`): all folds are of one matrix. Row i has the number of the fold that holds it out, which goes with it; the
model of fold k has a_i = s_i / sum of s over rows with another number, its loss v_i = s_i / sum of s over rows with
number k, and 0 for all other rows: without weights a rule (`suffice.rows.sums.Chosen`). What comes here is one number
of each row: its target, and what is predicted of it. A step before the estimator is fitted to the training rows of
every fold, by sums over rows, and what it puts out is never kept: rows are prepared whenever a block is read.
`StandardScaler` is known; a step of one's own has a method

    fit_rows(X, numbers, folds)      a fitted clone for the training rows of every fold, and a last one for all rows,

of which each has `transform`, for an array of rows. `X` are blocks of rows, `numbers` are given to their jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone, is_classifier
from sklearn.model_selection import LeaveOneOut, check_cv
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array

from suffice.arrays import EPS, Array
from suffice.lazy import cached_property
from suffice.losses import Loss
from suffice.rows.blocks import Blocked
from suffice.rows.given import Place, Shared, copies_matter, here, numbered, taken
from suffice.rows.sums import Block, Chosen, Job
from suffice.sklearn.adapters import Fold, find_adapter
from suffice.sklearn.measures import Predicted
from suffice.sklearn.penalties import FeatureGroups, Penalised, split_pipeline
from suffice.sklearn.target import fitted_target, transformed, transforms_target, wrapped

LARGE = 1 << 25  # bytes of X: folds of less are copies, which have a mean of their own and no rows that do not count
EVERYTHING = slice(None)
STEPS = "StandardScaler, and steps with a method fit_rows"


def splitter_of(cv: Any, y: Any, labels: bool) -> Any:
    """As in scikit-learn, and "loo" for every row on its own."""
    return check_cv(LeaveOneOut() if isinstance(cv, str) and cv == "loo" else cv, y, classifier=labels)


def numbers_of(splits: Sequence[tuple[Any, Any]], N: int) -> Array | None:
    """The fold that holds out every row; None where folds do not hold out every row once, and train on all others."""
    numbers, all_rows = np.full(N, -1.0), np.arange(N)
    for k, (train, test) in enumerate(splits):
        inside = np.concatenate([all_rows[train], all_rows[test]])
        if not np.array_equal(np.sort(inside), all_rows) or (numbers[test] >= 0.0).any():
            return None
        numbers[test] = k
    return numbers if (numbers >= 0.0).all() else None


def prepares_rows(before: Any) -> bool:
    """Whether all these steps can be fitted to rows that stay where they are."""
    return before is None or all(type(step) is StandardScaler or hasattr(step, "fit_rows") for _, step in before.steps)


@dataclass(frozen=True, eq=False)
class OneCopy:
    """All rows in the order of the folds that hold them out; those of fold k end at ends[k]."""

    rows: Shared
    order: npt.NDArray[np.intp]
    ends: npt.NDArray[np.intp]

    @classmethod
    def of(
        cls, X: Any, splits: Sequence[tuple[Any, Any]], intercept: bool, place: Place | None = None
    ) -> OneCopy | None:
        """None where folds do not hold out every row once, and train on all others."""
        if (place is None and not copies_matter(X, LARGE)) or numbers_of(splits, int(X.shape[0])) is None:
            return None
        held = [np.arange(X.shape[0])[test] for _, test in splits]
        rows = (place or Place()).shared(X, np.concatenate(held), intercept)
        return cls(rows, np.concatenate(held), np.cumsum([len(test) for test in held]))

    def held(self, k: int | None) -> slice:
        """Where the rows are that fold k holds out; all, where there is no k."""
        return EVERYTHING if k is None else slice(int(self.ends[k - 1]) if k else 0, int(self.ends[k]))

    def before(self, k: int | None) -> None:
        """Steps before the estimator: none."""

    def weighed(self, k: int | None, weights: Array, training: bool) -> Shared:
        return self.rows if training else Shared(self.rows.X[self.held(k), ...], self.rows.shift)


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

    def weighed(self, k: int | None, weights: Array, training: bool) -> Shared:
        """Rows that fold k is trained on, or held against, with these weights of all rows."""
        X = self.matrices[-1 if k is None else k]
        inside = np.ones(len(weights), dtype=bool) if k is None else (self.numbers == k) != training
        given: Any = weights
        if np.all(weights[inside] == weights[inside][0]):
            N, count = len(inside), int(inside.sum())
            given = Chosen(N, N) if k is None else Chosen(N, count, self.there, k, training)
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


@dataclass(frozen=True)
class Split:
    """Training rows as a problem, and held-out rows after the pipeline's first steps, which are `before`, fitted."""

    model: Fold
    adapter: Any  # an `Adapter`
    estimator: Any  # linear, not fitted
    before: Any
    classes: Any
    rows: Any  # held out, as the problem takes them
    labels: Any
    y: Array  # labels as the fold's loss takes them
    weight: Array
    groups: tuple[str, ...] = ()
    group: Any = None  # the number of every column's group
    target: Any = None  # a `TransformedTargetRegressor` with a fitted transformer, if there is one
    given: Any = None  # labels before they were transformed
    source: Any = None  # all rows, and
    test: Any = None  # which of them are held out, where `rows` are shared

    @property
    def X(self) -> Any:  # noqa: N802 (the symbol)
        """Held-out rows as the linear estimator sees them."""
        return self.rows if self.source is None else here(taken(self.source, self.test))

    @property
    def solver(self) -> Any:
        """What to solve its problems with."""
        return getattr(self.model, "solver", "auto")

    def penalised(self, ratio: float = 0.5) -> Penalised:
        """The problem as a function of named penalties; one that is not named follows from the other by `ratio`."""
        return Penalised(self.model, ratio, self.groups, self.group)

    def loss(self, scoring: str, folds: int) -> Loss:
        """Its part of the cross-validation loss."""
        return self.model.held_out(self.rows, self.y, self.weight, scoring, folds)

    def fitted(self, w: Array) -> Any:
        """A linear estimator with these weights."""
        coef, intercept = self.model.coefficients(w)
        return self.adapter.fitted(copy(self.estimator), coef, intercept, self.classes)

    def predictor(self, w: Array) -> tuple[Any, Any]:
        """An estimator with these weights, and the held-out rows to ask it about. Of rows that stay where they are,
        margins come here, which are all that an estimator with unit weights needs."""
        if numbered(self.source):
            return self.fitted(w), self.X
        coef, intercept = self.model.coefficients(w)
        margins = self.rows.X.product(coef.T)[self.test] + intercept
        unit, none = (np.ones(1), 0.0) if margins.ndim == 1 else (np.eye(margins.shape[1]), np.zeros(margins.shape[1]))
        return self.adapter.fitted(copy(self.estimator), unit, none, self.classes), margins.reshape(len(margins), -1)

    def predicted(self, fitted: Any, X: Any, weighted: bool) -> Predicted:
        """What a `predictor` says, in the target's own units; `weighted`: whether weights of samples count."""
        return Predicted.of(wrapped(self.target, fitted), X, self.given, self.weight if weighted else None)

    def scored(self, scorer: Any, w: Array) -> float:
        """The score of a model with these weights, for targets as they were given."""
        fitted, X = self.predictor(w)
        return float(scorer(wrapped(self.target, fitted), X, self.given))


@dataclass(frozen=True)
class SearchData:
    """What a search is fitted to; `weight` are the sample weights, `estimator`, not fitted, may be a pipeline."""

    estimator: Any
    X: Any
    y: Any
    weight: Array
    grouped: FeatureGroups | None = None
    one: OneCopy | InPlace | None = None  # rows that the folds of a search share
    place: Place | None = None  # where rows of folds live, if that is not main memory

    def sharing(self, splits: Sequence[tuple[Any, Any]]) -> SearchData:
        """The same data for these folds, as views of one copy of the rows where that is possible."""
        estimator, before = split_pipeline(self.estimator)
        adapter = find_adapter(estimator)
        if not numbered(self.X):
            return replace(self, one=InPlace.of(self.X, splits, before))
        alone = before is None and np.ndim(self.y) == 1 and not transforms_target(self.estimator)
        if not (alone and adapter.shares_rows(estimator)):
            return self
        return replace(self, one=OneCopy.of(self.X, splits, bool(estimator.fit_intercept), self.place))

    @cached_property
    def classes(self) -> Any:
        """The labels; None for regression."""
        return np.unique(self.y) if is_classifier(self.estimator) else None

    @property
    def total(self) -> float:
        """N of a fit to all data."""
        final, _ = split_pipeline(self.estimator)
        return float(find_adapter(final).weights(final, self.y, self.weight, self.classes).sum())

    def split(self, train: Any, test: Any, name: str, number: int | None = None) -> Split:
        """The problem of the rows `train`, with `test` held out; `name` is for messages, `number` that of the fold."""
        if self.one is not None and number is not None:
            return self._view(number, name)
        estimator, before = split_pipeline(self.estimator)
        before = None if before is None else clone(before)
        adapter, target = find_adapter(estimator), fitted_target(self.estimator, self.y[train])
        y = transformed(target, self.y)
        X_train, X_test = (taken(self.X, rows) for rows in (train, test))
        if before is None:
            estimator = adapter.prepared(estimator, X_train)
        else:
            X_train = before.fit_transform(X_train, y[train])
            X_test = before.transform(X_test)
        source = None
        if self.place is not None:
            source, shared = X_test, self.place.shared(X_train, EVERYTHING, bool(estimator.fit_intercept))
            X_train, X_test = shared, self.place.less(X_test, shared.shift)
        else:
            kinds: Any = {"accept_sparse": ("csr", "csc"), "dtype": np.float64}
            X_train, X_test = (check_array(part, **kinds, input_name="X") for part in (X_train, X_test))
        self._check(y[train], self.weight[train], self.weight[test], name)
        s = adapter.weights(estimator, y[train], self.weight[train], self.classes)
        made = self._made(estimator, before, X_train, y[train], s, X_test, y[test], self.weight[test])
        return replace(made, target=target, given=self.y[test], source=source, test=EVERYTHING)

    def _view(self, k: int | None, name: str) -> Split:
        """Fold k of rows that folds share, or the problem of all rows."""
        assert self.one is not None
        estimator, _ = split_pipeline(self.estimator)
        held, y, weight = self.one.held(k), self.y[self.one.order], self.weight[self.one.order]
        s, v, train = np.zeros(len(y)), np.zeros(len(y)), np.ones(len(y), dtype=np.bool_)
        train[held] = k is None
        self._check(y[train], weight[train], weight[held], name)
        s[train] = find_adapter(estimator).weights(estimator, y[train], weight[train], self.classes)
        v[held] = weight[held]
        rows, held_out = self.one.weighed(k, s, True), self.one.weighed(k, v, False)
        made = self._made(estimator, self.one.before(k), rows, y, s, held_out, y[held], weight[held])
        return replace(made, given=y[held], source=self.X, test=np.arange(len(y))[self.one.order][held])

    def _made(
        self, estimator: Any, before: Any, rows: Any, y: Any, s: Array, held_out: Any, labels: Any, v: Array
    ) -> Split:
        adapter, classes = find_adapter(estimator), self.classes
        y, known = (adapter.targets(estimator, one, classes) for one in (y, labels))
        model = adapter.fold(estimator, rows, y, s, classes)
        made = Split(model, adapter, estimator, before, classes, held_out, labels, known, v)
        if self.grouped is None:
            return made
        return replace(made, groups=self.grouped.names, group=self.grouped.of_columns(before, rows.shape[1]))

    def _check(self, y: Any, weight: Array, held_out: Array, name: str) -> None:
        """Whether labels and weights of training rows, and weights of those held out, make a fold."""
        if self.classes is not None and len(present := np.unique(y[weight > 0.0]).tolist()) < 2:
            only = ", ".join(f"{label!r}" for label in present)
            raise ValueError(f"{name} has training samples, with sample_weight > 0, of one class only: {only}")
        if not (weight.sum() > 0.0 and held_out.sum() > 0.0):
            raise ValueError(f"sample_weight is zero on all training or all held-out samples of {name}")

    def whole(self) -> Split:
        """All rows, for training and as what is held out."""
        if self.one is not None:
            return self._view(None, "the data")
        return self.split(EVERYTHING, EVERYTHING, "the data")

    def names(self, before: Any) -> Any:
        """Rows whose columns have the names that the estimator sees, if any have."""
        if before is None or not numbered(self.X):
            return self.X
        return before.transform(taken(self.X, [0]))
