r"""Models that have not seen some of the rows of a search, each proven, and what they say of those and of new rows.

Model k is trained without the rows of part k: a fold of the search, or a single row. The exact one is w_k with the
intercept b_k. With ||w_k - w|| <= R from the solver's certificate, an intercept within S of ours, and c the shift that
a fold takes off its columns,

    | x . w_k + b_k - ((x - c) . w + b) |  <=  R ||x - c|| + S;

models without a row that come from that of all rows have the bounds of `suffice.prove.left_out`. With several classes
each margin is so bounded. What has no proof is infinitely far off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.prove.factor import Indices
from suffice.prove.left_out import LeftOut
from suffice.prove.left_out_dual import left_out_models
from suffice.rows.given import counted, taken
from suffice.rows.gram import as_array
from suffice.rows.norms import row_norms
from suffice.rows.rounding import TINY, gamma
from suffice.sklearn._final_fit import fitted_weights
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.folds import LinearFold
from suffice.sklearn.left_out import LeftOutTask, shifted
from suffice.sklearn.penalties import split_pipeline
from suffice.sklearn.splits import SearchData, Split
from suffice.solvers.solution import Solution

NUMBERS = 1 << 21  # of new rows times models, or columns, at a time
WITHIN = 1e-5  # of margins of models without a row, in units of their spread

Bounded = tuple[Array, Array]  # values, rows x models (x classes), and how far each may be off, rows x models


@dataclass(frozen=True, eq=False)
class ProvenModel:
    """One model, with the steps before it."""

    before: Any
    places: Any  # `Columns`
    constant: float | None  # of an intercept that is a column
    W: Array  # classes x columns
    b: Array
    centre: Array
    radius: float
    own: float  # S

    @classmethod
    def of(cls, split: Split, solution: Solution) -> ProvenModel:
        fold: Any = split.model
        w, R = solution.x, float(solution.certificate.radius)
        b, S = fold.y_shift + fold.y_rest, 0.0
        if fold.minimised_out:
            model = fold.unpenalised
            image, rounding = model.image(w), fold.design.margin_rounding(w) * norm(w)
            b = b + model.shift(image)[0]
            S = float(model.shift_within(w, image, R + rounding))
        W = w.reshape(fold.learner.outputs, -1)
        if fold.centred:  # by means that are rounded
            a = fold.design.weights
            size = (a @ np.abs(fold.design.X)) @ np.abs(W.T) + (
                a @ np.abs(fold.y) if fold.learner.centres_targets else 0.0
            )
            S += float(np.max(gamma(len(a) + 16) * size + 4.0 * EPS * np.abs(b)))
        constant = fold.scaling if fold.kind == "column" else None
        b = np.zeros(len(W)) + b
        return cls(split.before, fold.places, constant, W, b, fold.shift + fold.rest, R, S)

    def margins(self, X: Any) -> Bounded:
        """Of rows of X: rows x classes (one, for two), and how far each of a row's may be off."""
        features, offset = self.places.split(X if self.before is None else self.before.transform(X))
        Z = np.asarray(as_array(features), dtype=np.float64) - self.centre[: features.shape[1]]
        if self.constant is not None:
            Z = np.column_stack([Z, np.full(len(Z), self.constant)])
        offset = np.zeros(len(Z)) if offset is None else offset
        m = Z @ self.W.T + self.b + offset[:, None]
        size = (np.abs(Z) @ np.abs(self.W.T) + np.abs(self.b) + np.abs(offset)[:, None]).max(axis=1)
        rounding = gamma(Z.shape[1] + 12) * size + TINY
        return m, (self.radius * row_norms(Z) + self.own) * (1.0 + gamma(Z.shape[1] + 16)) + rounding


@dataclass(frozen=True, eq=False)
class Downdates:
    """Models without one row each, from that of all rows."""

    split: Split  # of all rows
    models: LeftOut

    def margins(self, X: Any) -> Bounded:
        """Rows x models."""
        fold: Any = self.split.model
        rows, offset = fold.as_seen(X if self.split.before is None else self.split.before.transform(X))
        shift = fold.y_shift + fold.y_rest + (0.0 if offset is None else offset[:, None])
        m, off = self.models.margins(rows)
        return m + shift, off + 4.0 * EPS * (np.abs(m) + np.abs(shift))


@dataclass(frozen=True, eq=False)
class HeldOutModels:
    """All of them; `of` has the number of the model that has not seen each row, and margin and error say what that says
    of it. `downdates` has the models of those numbers that `anew` has not; those that neither has are open."""

    of: Indices
    count: int
    anew: dict[int, ProvenModel]
    downdates: Downdates | None
    margin: Array
    error: Array

    @property
    def open(self) -> int:
        """Of how many models nothing is proven."""
        return len(np.unique(self.of[~np.isfinite(self.error)]))

    def margins(self, X: Any) -> Bounded:
        """Of rows of X by all models: rows x models x classes, and how far they may be off."""
        rows = int(counted(X).shape[0])
        m = np.zeros((rows, self.count, self.margin.shape[1]))
        h = np.full((rows, self.count), math.inf)
        if self.downdates is not None:
            m[:, :, 0], h = self.downdates.margins(X)
        for k, model in self.anew.items():
            m[:, k], h[:, k] = model.margins(X)
        if rows and (~np.isfinite(m)).all(axis=(1, 2)).any():
            raise ValueError("X has missing entries, or infinite ones, where the model needs numbers")
        return np.where(np.isfinite(m), m, 0.0), np.where(np.isfinite(h) & np.isfinite(m).all(axis=2), h, math.inf)

    def blocks(self, X: Any) -> Iterator[tuple[slice, Any]]:
        """X, as many rows at a time as there is room for."""
        rows, wide = (int(one) for one in (*counted(X).shape, 1)[:2])
        most = max(NUMBERS // max(self.count, len(self.of), wide), 1)
        for first in range(0, rows, most):
            here = slice(first, min(first + most, rows))
            yield here, taken(X, np.arange(here.start, here.stop))

    @classmethod
    def of_folds(
        cls, data: SearchData, splits: Sequence[Any], penalties: Sequence[dict[str, float]], near: Sequence[Solution]
    ) -> HeldOutModels:
        """Those of the folds of a search, which hold out every row once."""
        count, made = len(data.y), {}
        of, margin, error = np.zeros(count, dtype=np.intp), None, np.full(count, math.inf)
        for k, (train, test) in enumerate(splits):
            split = data.split(train, test, f"split {k} of cv")
            made[k] = ProvenModel.of(split, fitted_weights(split, penalties[k], near[k : k + 1])[1])
            m, h = made[k].margins(taken(data.X, test))
            margin = np.zeros((count, m.shape[1])) if margin is None else margin
            of[test], margin[test], error[test] = k, m, h
        assert margin is not None
        return cls(of, len(made), made, None, margin, error)

    @classmethod
    def of_rows(cls, data: SearchData, penalties: dict[str, float]) -> HeldOutModels:
        """Those without every row: from that of all rows where that is possible, else fitted anew."""
        count, downdates = len(data.y), taken_one_by_one(data, penalties)
        whole = data.whole() if downdates is None else downdates.split
        outputs = whole.model.learner.outputs if isinstance(whole.model, LinearFold) else 1
        margin, error = np.zeros((count, outputs)), np.full(count, math.inf)
        if downdates is not None:
            margin[:, 0], error = shifted(downdates.split, *downdates.models.left())
        anew, near = dict[int, ProvenModel](), list[Solution]()
        for i in np.flatnonzero(~np.isfinite(error)).tolist():
            with suppress(ValueError):  # one class is left, or there is no finite intercept
                split = data.split(np.delete(np.arange(count), i), np.array([i]), "the data without a row")
                _, solution = fitted_weights(split, penalties, near)
                near = [replace(solution, state=None)]
                anew[i] = ProvenModel.of(split, solution)
                margin[i], error[i] = (one[0] for one in anew[i].margins(taken(data.X, np.array([i]))))
        return cls(np.arange(count), count, anew, downdates, np.where(np.isfinite(margin), margin, 0.0), error)


def taken_one_by_one(
    data: SearchData,
    penalties: dict[str, float],
) -> Downdates | None:
    """Models without each row from that of all rows; None where they cannot be had so."""
    if set(penalties) != {"l1", "l2"}:
        return None
    final, _ = split_pipeline(data.estimator)
    both, rows = (penalties["l1"], penalties["l2"]), range(len(data.y))
    task = LeftOutTask(data, find_adapter(final), lambda weights: both, tuple(np.array([i]) for i in rows), tuple(rows))
    fast = task.downdated()
    if fast is None:
        return None
    model, w, b, parts = fast
    spread = float(np.std(model.design.margins(w)))
    return Downdates(task.whole, left_out_models(model, w, b, parts, WITHIN * spread if spread > 0.0 else math.inf))
