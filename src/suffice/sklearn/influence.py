r"""What each row does to each coefficient and prediction: exactly, and proven.

With w the coefficients of the model and w_-i those without row i, columns as the steps before the model have prepared
them from all rows, every w_-i lies in an interval of `suffice.prove.left_out`. A sign that all of these intervals have
is one that no single row changes. The linear predictor of a row x moves by x . (w_-i - w), which is held against

    se(x) = ( phi/n x . H^-1 x )^(1/2),        phi = n/(n - s) sum_j a_j psi'_j^2 / sum_j a_j psi''_j,

the standard error of the model on its s variables, H the Hessian of the penalised mean loss, and row i itself taken out
of phi by the classical formula of squares: an estimate, as ever.

*Several rows.* For squares, let T be a set of rows, A_T the sum of their weights, u = X^T (a psi') at w, v_0 a
subgradient of the objective there, and z_i = psi'_i x_i - u. The objective without T has the subgradient
(1 - A_T) v_0 - sum_T a_i z_i at w, and a Hessian H_T >= (1 - A_T - sum_T a_i ||x_i||^2) H on all columns, with norms by
H^-1. Therefore (`suffice.prove.left_out`, M = 0)

    |w_j - w_Tj|  <=  ||e_j|| ( ||v_0|| + sum_T a_i ||z_i|| ) / (1 - A_T - sum_T a_i ||x_i||^2),

and the k largest terms of each sum bound it for all sets of k rows: fewer rows than this takes do not change the sign.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from suffice.arrays import EPS, Array
from suffice.lazy import cached_property
from suffice.models.margin_losses import Squared
from suffice.penalties.prox import soft
from suffice.prove.downdated import WIDE, OnColumns
from suffice.rows.given import numbered, taken
from suffice.rows.rounding import gamma
from suffice.sklearn._coefficient_proofs import MINUS, OPEN, PLUS, ZERO, CoefficientProofs
from suffice.sklearn._final_fit import fitted_weights
from suffice.sklearn._held_out_models import Downdates, ProvenModel, taken_one_by_one
from suffice.sklearn._report_data import feature_names, final_estimator
from suffice.sklearn.coefficients import divided_by, proven_of
from suffice.sklearn.splits import SearchData

LARGE = 500_000  # numbers of X: of more, ranges are made when they are asked for only
MOST_ANEW = 200  # rows without which a model is fitted anew, for claims that are open
MOST_MOVES = 2000  # rows whose moves are told without being asked for: they take a matrix of rows by rows


@dataclass(frozen=True, eq=False)
class RowSet:
    """Rows without which a coefficient has its sign no more, as a refit has proven; `at_least` as many are needed to
    change it (1: nothing better is proven). No rows: none were found."""

    rows: tuple[int, ...]
    at_least: int


@dataclass(frozen=True, eq=False)
class Influence:
    """Coefficients without each row lie between `low` and `high` (rows x columns), in units of the columns before
    scalers; `coef` are those of the search's model. `kept` are columns whose sign, or zero, no single row changes,
    `changed` pairs of a row and a column whose sign it does, both proven; `open` the other columns."""

    names: tuple[str, ...]
    coef: Array
    low: Array
    high: Array
    search: Any
    data: SearchData
    downdates: Downdates

    @classmethod
    def of(cls, search: Any) -> Influence:
        check_is_fitted(search, "best_estimator_")
        whole = search._training.given().whole()  # rows as the model sees them
        data = SearchData(whole.estimator, whole.rows, whole.labels, search._training.data.weight)
        found = taken_one_by_one(data, search.best_penalties_)
        if found is None:
            raise TypeError(f"influence is of models of one output with an l1 and an l2, got {search.estimator}")
        if found.models.turn is not None or not found.models.on:
            raise TypeError(f"influence is of at most {WIDE} columns with weights for each row")
        low, high = _ranges(found)
        features = _features(found)
        unclear = (low <= 0.0) & (high >= 0.0) & (low < high)  # of columns that might enter or leave
        for i in np.flatnonzero(~found.models.proven | unclear.any(axis=1))[:MOST_ANEW].tolist():
            with suppress(ValueError):  # one class is left
                one, proofs = _refitted(data, search.best_penalties_, [i])
                off = proofs.radius[0, features] * (1.0 + 4.0 * EPS)
                low[i, : len(off)], high[i, : len(off)] = one[features] - off, one[features] + off
        coef = np.ravel(final_estimator(search).coef_).astype(np.float64)
        low, high = (_placed(one, found, len(coef)) for one in (low, high))
        units = divided_by(search, len(coef))
        low, high = low / units, high / units
        off = np.where((low == 0.0) & (high == 0.0), 0.0, 4.0 * EPS)
        low, high = low - off * np.abs(low), high + off * np.abs(high)
        return cls(tuple(feature_names(search, len(coef))), coef / units, low, high, search, data, found)

    def __repr__(self) -> str:
        kept, changed = len(self.kept), len({name for _, name in self.changed})
        return f"<Influence of {len(self.low):,} rows: {kept} signs kept, {changed} changed, {len(self.open)} open>"

    def __str__(self) -> str:
        lines = [f"No single row changes the sign of {', '.join(self.kept)}: proven."] if self.kept else []
        lines += [f"Without row {row} {name} has another sign, or none: proven." for row, name in self.changed]
        return "\n".join([*lines, *([f"Open: {', '.join(self.open)}."] if self.open else [])])

    @cached_property
    def _claims(self) -> Any:
        """What is proven of every coefficient without each row."""
        low, high = self.low, self.high
        zero = (low == 0.0) & (high == 0.0)
        return np.where(low > 0.0, PLUS, np.where(high < 0.0, MINUS, np.where(zero, ZERO, OPEN)))

    @property
    def kept(self) -> tuple[str, ...]:
        own = proven_of(self.search)
        return tuple(self.names[j] for j in np.flatnonzero((self._claims == own).all(axis=0) & (own != OPEN)))

    @property
    def changed(self) -> list[tuple[int, str]]:
        own = proven_of(self.search)
        differ = (self._claims != own) & (self._claims != OPEN) & (own != OPEN)
        return [(int(i), self.names[j]) for i, j in np.argwhere(differ)]

    @property
    def open(self) -> tuple[str, ...]:
        known = {*self.kept, *(name for _, name in self.changed)}
        return tuple(name for name in self.names if name not in known)

    def ranges(self) -> dict[str, Any]:
        """What `suffice.plots.draw_influence` shows: coefficients and their ranges per standard deviation."""
        unit = self.search._proofs.spread * divided_by(self.search, len(self.coef))
        low, high = self.low.min(axis=0), self.high.max(axis=0)
        return {"names": self.names, "coef": self.coef * unit, "low": low * unit, "high": high * unit}

    def predictions(self, X: Any = None) -> tuple[Array, Array]:
        """By how much the linear predictor of each row of X (None: of the training data) is larger without each row of
        the training data, rows x rows, and how far that may be off."""
        steps = self.search.best_estimator_[:-1] if hasattr(self.search.best_estimator_, "steps") else None
        Z = self.data.X if X is None else X if not steps else steps.transform(X)
        (m, h), (own, off) = self.downdates.margins(Z), self._whole.margins(Z)
        change = m - own
        return change, h + off[:, None] + 4.0 * EPS * np.abs(change)

    def moves(self) -> Array:
        """Of every row, by how many standard errors it moves the training row's prediction that it moves most, at
        least: more than 1 is much."""
        on = self.downdates.models.on[0]
        a, C, square = on.model.a, on.at.C, on.model.a * on.at.slopes**2
        n, own = 1.0 / float(np.sum(a**2)), square / np.maximum(1.0 - C * on.norms**2, 1e-3)
        left = max(n - 1.0 - np.count_nonzero(on.variables), 1.0)
        phi = n / left * np.maximum(square.sum() - own, 1e-12 * square.sum()) / float(C.sum())
        change, off = self.predictions()
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.maximum(np.abs(change) - off, 0.0) / (on.norms[:, None] * np.sqrt(phi / n))
        return np.asarray(np.where(np.isfinite(found), found, 0.0).max(axis=0))

    @cached_property
    def _whole(self) -> ProvenModel:
        split = self.downdates.split
        return ProvenModel.of(split, fitted_weights(split, self.search.best_penalties_)[1])

    def smallest_set(self, name: str) -> RowSet:
        """Rows, found greedily, without which this coefficient has its sign no more, beside how many it takes at
        least, which is proven for squares."""
        if name not in self.names:
            raise ValueError(f"name must be a column, one of {', '.join(self.names[:10])} ..., got {name!r}")
        j, N = self.names.index(name), len(self.low)
        sign, least = proven_of(self.search)[j], self._at_least(j)
        if sign not in (PLUS, MINUS):
            raise ValueError(f"{name} has no sign that is proven: there is none to change")
        with np.errstate(invalid="ignore"):
            middle = 0.5 * (self.low[:, j] + self.high[:, j])
        against = np.argsort((middle if sign == PLUS else -middle), kind="stable")
        few, many = 0, 1
        while many < N // 2 and not self._changes(j, sign, against[:many]):
            few, many = many, 2 * many
        if not self._changes(j, sign, against[:many]):
            return RowSet((), least)
        while many - few > 1:
            k = (few + many) // 2
            few, many = (few, k) if self._changes(j, sign, against[:k]) else (k, many)
        return RowSet(tuple(against[:many].tolist()), least)

    def _changes(self, j: int, sign: str, rows: Any) -> bool:
        """Whether a refit without these rows proves that the sign is another one."""
        try:
            _, proofs = _refitted(self.data, self.search.best_penalties_, rows)
        except ValueError:  # one class is left
            return False
        return bool(proofs.proven[0, j] not in (sign, OPEN))

    def _at_least(self, j: int) -> int:
        """How many rows it takes to change the sign of coefficient j, by the module's text."""
        known, model = self.downdates.models.on[0].at, self.downdates.models.model
        everything = np.arange(len(known.w))
        on = OnColumns.of(model, known, everything) if isinstance(model.loss, Squared) else None
        place = np.flatnonzero(_features(self.downdates) == j)
        if on is None or len(place) == 0:
            return 1
        a, scale, N = model.a, on.factor.scale[:, None], len(model.a)
        sums = np.append(known.pull, [float(a @ known.slopes)] * model.intercept)[:, None] * scale
        l1, l2 = (np.append(one, [0.0] * model.intercept)[:, None] for one in (model.l1, model.l2))
        w = (on.variables * on.factor.scale)[:, None]
        size = np.abs(on.rows.T) @ (a * (known.sizes + known.off))
        blur = (gamma(N + 64) * size + np.abs(on.rows.T) @ (a * known.off))[:, None]
        slope = sums + l2 * w * scale
        least = np.where(w != 0.0, slope + l1 * np.sign(w) * scale, soft(slope, l1 * scale))
        doubt = blur + 8.0 * EPS * (np.abs(slope) + l1 * scale)
        own = float((on.factor.norms_of(least, doubt) * on.up)[0])
        Z = known.slopes * on.rows.T - sums
        each = on.factor.norms_of(Z, blur + (known.off + 8.0 * EPS * known.sizes) * np.abs(on.rows.T)) * on.up
        sums_of = [np.cumsum(np.sort(one)[::-1]) for one in (a, a * on.norms**2, a * each)]
        A, leverage, pulled = (one * (1.0 + gamma(N + 16)) for one in sums_of)
        left = 1.0 - A - leverage
        far = float(on.singles[place[0]] * on.factor.scale[place[0]])
        with np.errstate(divide="ignore"):
            bound = np.where(left > 1e-6, far * (own + pulled) / left, math.inf) * (1.0 + 1e-9)
        return 1 + int(np.argmax(~(bound < abs(float(w[place[0], 0])))))


def influence(search: Any) -> Influence:
    """What each row of the data does to each coefficient and prediction of a fitted `SufficeSearchCV`, exactly and
    proven, at its best penalties; `Influence` has more. The search has to have its data in memory; its model is one of
    a single output, two classes for one: squares, logistic, Poisson, Gamma, Tweedie or negative-binomial losses."""
    return Influence.of(search)


def _refitted(data: SearchData, penalties: dict[str, float], rows: Any) -> tuple[Array, CoefficientProofs]:
    """Coefficients of the model without these rows, and what is proven of them."""
    train = np.setdiff1d(np.arange(len(data.y)), rows)
    some = SearchData(data.estimator, taken(data.X, train), data.y[train], data.weight[train])
    if data.classes is not None and len(some.classes) < len(data.classes):
        raise ValueError("one class is left")
    split = some.whole()
    problem, solution = fitted_weights(split, penalties)
    return split.model.coefficients(solution.x)[0], CoefficientProofs.of(split, problem, solution, math.inf)


def _ranges(found: Downdates) -> tuple[Array, Array]:
    """Between which every weight lies without each row: rows x weights."""
    models = found.models
    W, off = models.weights, np.zeros(models.weights.shape)
    for k, on in enumerate(models.on):
        g = np.flatnonzero((models.place == k) & models.proven)
        each = (on.singles * on.factor.scale)[on.weights]
        off[np.ix_(on.columns, g)] = each[:, None] * models.slack[g] * (1.0 + 8.0 * EPS)
    off[:, ~models.proven] = math.inf
    return (W - off).T, (W + off).T


def _features(found: Downdates) -> Any:
    """Which column of X every weight is of."""
    return found.split.model.places.features  # type: ignore[attr-defined]


def _placed(values: Array, found: Downdates, count: int) -> Array:
    whole, features = np.zeros((len(values), count)), _features(found)
    whole[:, features] = values[:, : len(features)]
    return whole


def ranges(search: Any) -> dict[str, Any] | None:
    """Low and high of every coefficient over all models without one row, and in how many it is proven not to be zero;
    None where that is not known, or would take long."""
    training = getattr(search, "_training", None)
    if training is None:
        return None
    if "ranges" not in training.known and training.data is not None and numbered(training.data.X):
        small = math.prod(np.shape(training.data.X)) <= LARGE
        training.known["ranges"] = _ranges_of(search) if small else None
    found: dict[str, Any] | None = training.known.get("ranges")
    return found


def _ranges_of(search: Any) -> dict[str, Any] | None:
    try:
        found = influence(search)
    except (TypeError, ValueError):
        return None
    selected = np.isin(found._claims, (PLUS, MINUS)).sum(axis=0)
    low, high = found.low.min(axis=0), found.high.max(axis=0)
    moves = found.moves() if len(found.low) <= MOST_MOVES else np.zeros(0)
    far = [(int(i), float(moves[i])) for i in np.argsort(-moves, kind="stable") if moves[i] > 1.0]
    told: dict[str, Any] = {"kept": found.kept, "changed": found.changed, "open": found.open, "moves": far}
    told |= {"names": found.names, "coef": found.coef, "models": len(found.low)}
    return {"low": low, "high": high, "selected": selected, **told}
