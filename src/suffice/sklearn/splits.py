"""The one place where rows of the data become a lower-level problem: of a fold, or of all rows.

Steps of a pipeline before the linear estimator are fitted to the training rows; what they put out is the fold's X. With
`groups_of_features` every column of it belongs to a group with penalties of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils import _safe_indexing, check_array

from suffice.arrays import Array
from suffice.losses import Loss
from suffice.sklearn._target import fitted_target, transformed, wrapped
from suffice.sklearn.adapters import Adapter, Fold, find_adapter
from suffice.sklearn.penalties import Grouped, Penalised, split_pipeline

EVERYTHING = slice(None)


@dataclass(frozen=True)
class Split:
    """Training rows as a problem, and held-out rows after the pipeline's first steps, which are `before`, fitted."""

    model: Fold
    adapter: Adapter
    estimator: Any  # linear, not fitted
    before: Any
    classes: Any
    X: Any  # held out, as the linear estimator sees it
    labels: Any
    y: Array  # labels as the fold's loss takes them
    weight: Array
    groups: tuple[str, ...] = ()
    group: Any = None  # the number of every column's group
    target: Any = None  # a `TransformedTargetRegressor` with a fitted transformer, if there is one
    given: Any = None  # labels before they were transformed

    @property
    def solver(self) -> Any:
        """What to solve its problems with."""
        return getattr(self.model, "solver", "auto")

    def penalised(self, ratio: float = 0.5) -> Penalised:
        """The problem as a function of named penalties; one that is not named follows from the other by `ratio`."""
        return Penalised(self.model, ratio, self.groups, self.group)

    def loss(self, scoring: str, folds: int) -> Loss:
        """Its part of the cross-validation loss."""
        return self.model.held_out(self.X, self.y, self.weight, scoring, folds)

    def fitted(self, w: Array) -> Any:
        """A linear estimator with these weights."""
        coef, intercept = self.model.coefficients(w)
        return self.adapter.fitted(clone(self.estimator), coef, intercept, self.classes)

    def scored(self, scorer: Any, w: Array) -> float:
        """The score of a model with these weights, for targets as they were given."""
        return float(scorer(wrapped(self.target, self.fitted(w)), self.X, self.given))


@dataclass(frozen=True)
class SearchData:
    """What a search is fitted to; `weight` are the sample weights, `estimator` may be a pipeline."""

    estimator: Any
    X: Any
    y: Any
    weight: Array
    grouped: Grouped | None = None

    @property
    def classes(self) -> Any:
        """The labels; None for regression."""
        return np.unique(self.y) if is_classifier(self.estimator) else None

    @property
    def total(self) -> float:
        """N of a fit to all data."""
        final, _ = split_pipeline(self.estimator)
        return float(find_adapter(final).weights(final, self.y, self.weight, self.classes).sum())

    def split(self, train: Any, test: Any, name: str) -> Split:
        """The problem of the rows `train`, with `test` held out; `name` is for messages."""
        estimator, before = split_pipeline(clone(self.estimator))
        adapter, classes, weight = find_adapter(estimator), self.classes, self.weight
        target = fitted_target(self.estimator, self.y[train])
        y = transformed(target, self.y)
        X_train, X_test = _safe_indexing(self.X, train), _safe_indexing(self.X, test)
        prepared = getattr(adapter, "prepared", None)
        if prepared is not None and before is None:
            estimator = prepared(estimator, X_train)
        if before is not None:
            X_train = before.fit_transform(X_train, y[train])
            X_test = before.transform(X_test)
        X_train, X_test = (
            check_array(part, accept_sparse=("csr", "csc"), dtype=np.float64) for part in (X_train, X_test)
        )
        if classes is not None and len(np.unique(y[train][weight[train] > 0.0])) < 2:
            raise ValueError(f"{name} has training samples, with sample_weight > 0, of one class only")
        if not (weight[train].sum() > 0.0 and weight[test].sum() > 0.0):
            raise ValueError(f"sample_weight is zero on all training or all held-out samples of {name}")
        s = adapter.weights(estimator, y[train], weight[train], classes)
        model = adapter.fold(estimator, X_train, adapter.targets(estimator, y[train], classes), s, classes)
        groups: tuple[str, ...] = ()
        group = None
        if self.grouped is not None:
            groups, group = self.grouped.names, self.grouped.of_columns(before, X_train.shape[1])
        targets = adapter.targets(estimator, y[test], classes)
        known = (model, adapter, estimator, before, classes, X_test, y[test], targets, weight[test], groups, group)
        return Split(*known, target, self.y[test])

    def whole(self) -> Split:
        """All rows, for training and as what is held out."""
        return self.split(EVERYTHING, EVERYTHING, "the data")
