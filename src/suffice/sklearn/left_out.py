r"""Every row, or group of rows, left out of a model: what the models without it say of it, proven.

Where a model is one of `suffice.prove.left_out` (a smooth loss of one margin, in main memory), all of them come from
that of all rows. So they do after a `StandardScaler`, which every model without g fits to its own rows: with sigma_gj
the deviation of column j without g, in units of that of all rows, the model without g is one of the same columns with
penalties  l1 sigma_gj  and  l2 sigma_gj^2;  its other mean is taken by a free intercept. Penalties are those of a fit
to the remaining rows: of the mean over rows, or of the sum, as the estimator has them. What is not proven so, and any
other model, is fitted anew, from the weights of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import clone, is_classifier
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import _check_sample_weight

from suffice.arrays import EPS, Array, positive
from suffice.lazy import cached_property
from suffice.models.margin_losses import Bending, Squared
from suffice.protocols import conforms
from suffice.prove.downdated import Groups, WholeModel
from suffice.prove.left_out import LeftOut
from suffice.prove.left_out_dual import left_out_models
from suffice.rows.given import here, indexed
from suffice.rows.gram import fits_array
from suffice.sklearn._final_fit import solved
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.estimators import LinearEstimator
from suffice.sklearn.folds import LinearFold, OneMargin
from suffice.sklearn.penalties import split_pipeline
from suffice.sklearn.scores import score_of
from suffice.sklearn.splits import EVERYTHING, SearchData, Split
from suffice.sklearn.target import transforms_target
from suffice.solvers.solution import Solution

ACCURACY = 1e-9  # of the model of all rows, relative to its norm
REFIT = 1e-6  # of one that is fitted anew

Penalties = Callable[[Array], tuple[Any, Any]]  # l1 and l2 of a fit with these weights of rows


@dataclass(frozen=True, eq=False)
class LeftOutRows:
    """What models without a row, or without its group, say of it: one entry for every row of the data.

    `margin` is its linear predictor, within `error` of that of the exactly trained model; `prediction` is what the
    estimator predicts of it (for two classes the probability of the second), and lies in `low` to `high` for the exact
    model. `score` is the mean over left-out groups of minus their loss, proven to lie in `score_interval`. `open` holds
    the groups of which nothing is proven (the data without them may have no model), their rows have infinite errors.
    `refits` is how many had to be fitted anew."""

    margin: Array
    error: Array
    prediction: Array
    low: Array
    high: Array
    score: float
    score_interval: tuple[float, float]
    scoring: str
    open: tuple[Any, ...]
    refits: int
    models: LeftOut | None  # the models themselves, where they come from that of all rows

    def __repr__(self) -> str:
        low, high = self.score_interval
        failed = f", {len(self.open)} open" if self.open else ""
        return (
            f"LeftOutRows({len(self.margin):,} rows, {self.scoring} {self.score:.4g} in [{low:.6g}, {high:.6g}], "
            f"{self.refits} fitted anew{failed})"
        )


def leave_one_out(
    model: Any,
    X: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    within: float = math.inf,
    scoring: str | None = None,
) -> LeftOutRows:
    """What the models without each row of X say of it, each proven, for about the price of a few fits.

    Parameters
    ----------
    model : an estimator with its penalties, fitted or not, perhaps in a Pipeline; or a fitted `SufficeSearchCV`, whose
        penalties are kept. Estimators of `suffice.sklearn`'s table, as for `SufficeSearchCV`.
    X, y, sample_weight : the data; X may be sparse.
    groups : array, default None
        A label for every row: all rows with one label are left out together.
    within : float, default inf
        How far margins may be from exact ones. Those that are not proven to it after a few steps keep what is proven.
    scoring : str, default None
        A smooth score by scikit-learn's name; the first that the estimator has.
    """
    task = LeftOutTask.of(model, X, y, sample_weight, groups)
    within = positive(within, "within", infinite=True)
    scorings = task.adapter.scorings
    scoring = scorings[0] if scoring is None else scoring
    if scoring not in scorings or scoring == "r2":
        raise ValueError(f"scoring must be one of {', '.join(one for one in scorings if one != 'r2')}, got {scoring!r}")
    return task.left_out(within, scoring)


@dataclass(frozen=True, eq=False)
class LeftOutTask:
    """A model with its penalties, data, and which rows are left out together."""

    data: SearchData
    adapter: Any
    penalties: Penalties
    groups: tuple[Array, ...]
    labels: tuple[Any, ...]  # of the groups

    @classmethod
    def of(cls, model: Any, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> LeftOutTask:
        best = getattr(model, "best_penalties_", None)
        if best is None and hasattr(model, "certify_global"):
            raise ValueError("leave_one_out takes a search once it is fitted: its penalties are not known yet")
        estimator = model.estimator if best is not None else model
        if transforms_target(estimator):
            raise ValueError("leave_one_out takes no TransformedTargetRegressor: transform y, and give its regressor")
        final, _ = split_pipeline(estimator)
        adapter = find_adapter(final)
        if best is not None:
            if set(best) != {"l1", "l2"}:
                raise ValueError("leave_one_out takes no groups_of_features: its models have one l1 and one l2")
            penalties: Penalties = lambda weights: (best["l1"], best["l2"])  # noqa: E731
        elif isinstance(adapter, LinearEstimator):
            penalties = lambda weights: adapter.penalties(final, weights)  # noqa: E731
        else:
            raise TypeError(f"what penalties {type(final).__name__} has is not known: give a fitted SufficeSearchCV")
        X, y = indexed(here(X), here(y))
        y, count = np.asarray(y), int(np.shape(X)[0])
        if count == 0:
            raise ValueError("X must have rows, got none")
        if y.ndim != 1 or len(y) != count:
            raise ValueError(f"y must have one entry for each of {count} rows, got shape {y.shape}")
        weight = _check_sample_weight(sample_weight, np.zeros((count, 1)), dtype=np.float64, ensure_non_negative=True)
        if groups is None:
            parts, labels = list(np.arange(count)[:, None]), list(range(count))
        else:
            groups = np.asarray(groups)
            if groups.shape != (count,):
                raise ValueError(f"groups must have one label for each of {count} rows, got shape {groups.shape}")
            if any(one is None or one != one for one in groups.tolist()):
                raise ValueError("groups must have a label for every row, and some are missing")
            known, which = np.unique(groups, return_inverse=True)
            parts, labels = [np.flatnonzero(which == g) for g in range(len(known))], known.tolist()
        if len(parts) < 2:
            raise ValueError(f"there must be two groups at least to leave one out, got {len(parts)}")
        if not is_classifier(estimator):
            if y.dtype.kind not in "biufO":
                raise TypeError(f"y must be numeric, got dtype {y.dtype}")
            y = np.asarray(y, dtype=np.float64)
            if not np.isfinite(y).all():
                raise ValueError(f"y must be finite, row {int(np.argmin(np.isfinite(y)))} is not")
        return cls(SearchData(clone(estimator), X, y, weight), adapter, penalties, tuple(parts), tuple(labels))

    @cached_property
    def whole(self) -> Split:
        """All rows."""
        return self.data.whole()

    @cached_property
    def which(self) -> Any:
        """The group of every row, -1 for rows of none."""
        found = np.full(len(self.data.y), -1)
        for g, rows in enumerate(self.groups):
            found[rows] = g
        return found

    def sums(self, values: Any) -> Array:
        """Of every group, over its rows."""
        inside = self.which >= 0
        return np.asarray(np.bincount(self.which[inside], values[inside], len(self.groups)), dtype=np.float64)

    def left_out(self, within: float, scoring: str) -> LeftOutRows:
        whole = self.whole
        count = len(self.data.y)
        margin, error = np.full(count, math.nan), np.full(count, math.inf)
        fast = self.downdated()
        models = None
        if fast is not None:
            model, w, b, parts = fast
            models = left_out_models(model, w, b, parts, within)
            m, off = models.left()
            margin[parts.rows], error[parts.rows] = shifted(whole, m, off, parts.rows)
        open_, refits = [], 0
        for g in np.flatnonzero(self.sums(~np.isfinite(error)) > 0.0).tolist():
            refits, rows = refits + 1, self.groups[g]
            warm = None if models is None else models.weights_of(g)
            with suppress(ValueError):  # one class is left, or there is no finite intercept
                margin[rows], error[rows] = self.refitted(rows, warm, scoring)
            if not np.isfinite(error[rows]).all():
                open_.append(self.labels[g])
        fold: Any = whole.model
        # From margins to predictions, which grow with them.
        link = {"Squared": np.positive, "Logistic": expit}.get(type(fold.psi).__name__, np.exp)
        low, high = link(margin - error), link(margin + error)
        phi, _, _ = fold.learner.score(fold, scoring, whole.y, whole.weight / whole.weight.sum())
        y, v = self.adapter.targets(whole.estimator, self.data.y, whole.classes), self.data.weight
        known = np.isfinite(error)
        m, h = np.where(known, margin, 0.0), np.where(known, error, 0.0)
        least, most = phi.range(m, h + phi.blur(m, y), y)
        at = phi.residuals(m, y) ** 2
        of_group = self.sums(v)
        counts = of_group > 0.0
        score = score_of(scoring)
        scores = [score.of_losses(self.sums(v * one)[counts] / of_group[counts]) for one in (most, at, least)]
        low_score, mean, high_score = (float(np.mean(one)) for one in scores)
        slack = 4.0 * (len(y) + 8) * EPS * (abs(score.offset) + max(abs(low_score), abs(high_score)))
        ends = (low_score - slack, high_score + slack)
        if open_:
            ends, mean = (-math.inf, score.offset), math.nan
        return LeftOutRows(margin, error, link(margin), low, high, mean, ends, scoring, tuple(open_), refits, models)

    def downdated(self) -> tuple[WholeModel, Array, float, Groups] | None:
        """The model of all rows as `suffice.prove.left_out` takes it, with its weights, intercept and groups; None
        where it is another kind of model."""
        if self.downdates is None:
            return None
        whole, (groups, c) = self.whole, self.downdates
        l1, l2 = self.penalties(self._weights(whole))
        x = solved(whole.model.at(l1=c * l1, l2=c * l2), whole.solver, ACCURACY).x
        return *whole_model(whole, x, c * l1, c * l2), groups

    @cached_property
    def downdates(self) -> tuple[Groups, float] | None:
        """The groups, with what becomes of penalties that are times c, and c, which most have: where leverages are near
        1, penalties that shrink as well would leave no proof. None where models do not come from that of all rows."""
        whole, fold = self.whole, self.whole.model
        if not isinstance(fold, LinearFold) or type(fold.learner) is not OneMargin or fold.design.rows.dear:
            return None
        plain = conforms(fold.psi, Bending) and not np.any(fold.structure.positive)
        if not plain or getattr(whole.estimator, "class_weight", None) is not None:
            return None
        scales = self._scales(whole)
        if scales is None:
            return None
        share = 1.0 - self.sums(np.asarray(fold.design.weights))
        if not (share > 1e-9).all():
            return None
        s = self._weights(whole)
        share = share * self._of_sums(s, *self.penalties(s))
        c = float(np.median(share))
        return Groups.of(self.groups, share / c, scales if len(scales) else None), c

    def _weights(self, whole: Split) -> Array:
        return np.asarray(self.adapter.weights(whole.estimator, self.data.y, self.data.weight, whole.classes))

    def _of_sums(self, s: Array, l1: Any, l2: Any) -> Array:
        """Penalties of fits without each group over those of all rows."""
        total = float(np.sum(l1)) + float(np.sum(l2))
        if total == 0.0:
            return np.ones(len(self.groups))
        left, place = np.unique(s.sum() - self.sums(s), return_inverse=True)
        both = [self.penalties(np.array([one])) for one in left.tolist()]
        found = np.array([float(np.sum(one)) + float(np.sum(two)) for one, two in both])[place] / total
        return np.asarray(found)

    def _scales(self, whole: Split) -> Array | None:
        """sigma of the module's text, of groups and columns; nothing where steps change nothing, None where they do
        something else."""
        steps = [] if whole.before is None else [step for _, step in whole.before.steps]
        if not steps:
            return np.zeros((0, 0))
        if len(steps) > 1 or type(steps[0]) is not StandardScaler or not isinstance(whole.model, LinearFold):
            return None
        scaler = steps[0]
        if scaler.with_mean and whole.model.kind != "free":
            return None
        if not scaler.with_std:
            return np.zeros((0, 0))
        if whole.model.places.special or not fits_array(self.data.X):  # an offset in units of its own
            return None
        X = np.asarray(self.data.X, dtype=np.float64)
        mean = X.mean(axis=0)
        Z, count = X - mean, len(X)
        sums, squares = Z.sum(axis=0), (Z * Z).sum(axis=0)
        found = np.empty((len(self.groups), X.shape[1]))
        for g, rows in enumerate(self.groups):
            left = count - len(rows)
            first, second = sums - Z[rows].sum(axis=0), squares - (Z[rows] ** 2).sum(axis=0)
            found[g] = np.maximum(second - first * first / left, 0.0) / left
        bare = found <= 1e-12 * squares / count  # constant without the group: scikit-learn takes 1 for its deviation
        return np.asarray(np.where(bare, 1.0, np.sqrt(found)) / scaler.scale_)

    def refitted(self, rows: Array, warm: Array | None, scoring: str) -> tuple[Array, Array]:
        """Margins of the rows by the model of all others, and how far they may be off."""
        train = np.setdiff1d(np.arange(len(self.data.y)), rows)
        split = self.data.split(train, rows, "the data without a group")
        s = self.adapter.weights(split.estimator, self.data.y[train], self.data.weight[train], split.classes)
        l1, l2 = self.penalties(s)
        problem = split.model.at(l1=l1, l2=l2)
        solution: Solution = solved(
            problem, split.solver, REFIT, warm if warm is not None and warm.shape == (problem.size,) else None
        )
        split = replace(split, weight=np.ones(len(rows)))
        held: Any = split.loss(scoring, 1)
        m, h = held.margins(solution.x, solution.certificate.radius)
        if np.ndim(m) != 1:
            raise TypeError("leave_one_out takes models of one output: two classes, or one target")
        return shifted(split, m, h)


def whole_model(whole: Split, x: Array, l1: Any, l2: Any) -> tuple[WholeModel, Array, float]:
    """The model of all rows with these penalties, and its weights and intercept at x."""
    fold: Any = whole.model
    b = float(fold.learner.intercept(fold.unpenalised, x)) if fold.minimised_out else 0.0
    l1, l2, free = fold.of_weights(l1), fold.of_weights(l2), fold.kind == "free"
    return WholeModel(fold.design, np.asarray(fold.y), fold.psi, l1, l2, free, fold.offset), x, b


def shifted(split: Split, m: Array, error: Array, rows: Any = EVERYTHING) -> tuple[Array, Array]:
    """Margins of some of the rows that are held out, and how far they may be off, with what centring, and the offsets
    of squares, have taken off the targets."""
    fold: Any = split.model
    shift = fold.y_shift + fold.y_rest
    offset = fold.places.split(split.rows)[1] if isinstance(fold.psi, Squared) else None
    if offset is not None:
        shift = shift + offset[rows]
    return m + shift, error + 4.0 * EPS * (np.abs(m) + np.abs(shift))
