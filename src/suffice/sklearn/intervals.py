r"""Intervals of predictions, and sets of classes, with a promise that holds for what is printed.

Let mu_-i be the model without row i, or without its fold, R_i = |y_i - mu_-i(x_i)|, and k = ceil(c (n + 1)) for a
coverage c = 1 - alpha of n rows. The jackknife+, and CV+ with folds, of Barber, Candes, Ramdas and Tibshirani (2021) is

    [ the (n + 1 - k)-th least of mu_-i(x) - R_i,   the k-th least of mu_-i(x) + R_i ],

infinite where there is no such one. For exchangeable rows and an algorithm that treats them alike it holds y with a
probability of at least

    1 - 2 alpha,    with K folds    1 - 2 alpha - min( 2 (1 - 1/K)/(n/K + 1), (1 - K/n)/(K + 1) ).

For classes (Romano, Sesia and Candes 2020) let E(x, y; mu) be the probability of all classes that mu takes for more
likely than y: 0 for the one that it predicts. The set holds y unless  E(x_i, y_i; mu_-i) < E(x, y; mu_-i)  for k rows
or more. The same bounds hold, and the class that all models predict is always in it.

Here mu is that of exactly trained models, the algorithm that the theorem is about, known to lie in proven intervals:
m +- h of its margin. Ends are taken outwards, mu(m - h) - max R_i and mu(m + h) + max R_i, and a row counts against a
class only if it does so wherever the truth lies in its intervals. What is printed contains what the theorem speaks of;
rows whose model is not proven count as infinite. Where targets cannot be negative, intervals end at 0.

Penalties that were tuned on the same rows are not covered: the algorithm then is the tuning, too, which knew row i.
With `tuning="repeated"` every fold has penalties of its own, from a search that has not seen it, and the theorem speaks
of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import check_is_fitted, validate_data

from suffice.arrays import EPS, Array
from suffice.rows.given import counted, here, numbered, taken
from suffice.sklearn import coefficients
from suffice.sklearn._held_out_models import HeldOutModels, ProvenModel
from suffice.sklearn._structure import Columns
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.estimators import LinearEstimator
from suffice.sklearn.penalties import split_pipeline
from suffice.sklearn.splits import SearchData, numbers_of
from suffice.sklearn.target import fitted_target, inside, transformed, transforms_target

Method = Literal["jackknife+", "cv+"]
Tuning = Literal["fixed", "repeated"]
METHODS, TUNINGS = ("jackknife+", "cv+"), ("fixed", "repeated")
SAME = ("Squared", "Quantile")  # losses whose margin is the prediction
KEPT = ("y", "classes", "least", "folds", "tuned")  # in files
UP = 1.0 + 16.0 * EPS  # of exp and its like


class Promised(npt.NDArray[Any]):
    """An array with what is promised of it: `guarantee`, a sentence."""

    guarantee: str

    @classmethod
    def of(cls, values: Any, guarantee: str) -> Promised:
        made = np.asarray(values).view(cls)
        made.guarantee = guarantee
        return made

    def __array_finalize__(self, other: Any) -> None:
        self.guarantee = getattr(other, "guarantee", "")


@dataclass(frozen=True, eq=False)
class Conformal:
    """Models that have not seen rows, with the truth about these: what intervals and sets are made of."""

    models: HeldOutModels
    y: Array  # targets as the models take them; numbers of classes
    classes: Any  # None for regression
    link: Callable[[Array], Array]  # from margins to predictions, which grow with them
    units: Callable[[Array], Array] | None  # from these to the target's own, which grow with them
    least: float  # no target is smaller
    folds: int  # 0: one model for every row
    tuned: str  # what is said of penalties

    def plain(self) -> dict[str, Any]:
        """As dictionaries, arrays and fitted steps, for a file; of folds only."""
        models = self.models
        made = [{**vars(one), "places": asdict(one.places)} for _, one in sorted(models.anew.items())]
        told = {"of": models.of, "margin": models.margin, "error": models.error, "models": made}
        return {**told, **{name: getattr(self, name) for name in KEPT}, "grows": self.link is np.exp}

    @classmethod
    def of_plain(cls, found: dict[str, Any], units: Any = None) -> Conformal:
        """The same again."""
        made = [ProvenModel(**{**one, "places": Columns(**one["places"])}) for one in found["models"]]
        anew = dict(enumerate(made))
        models = HeldOutModels(found["of"], len(made), anew, None, found["margin"], found["error"])
        link = np.exp if found["grows"] else _same
        return cls(models, link=link, units=units, **{name: found[name] for name in KEPT})

    # Regression

    def intervals(self, X: Any, coverage: float) -> Promised:
        """Rows x 2."""
        low, high = np.zeros((2, int(counted(X).shape[0])))
        k, n = self.rank(coverage), len(self.y)
        _, R = self._spread(self.models.margin[:, 0], self.models.error, self.y)
        for rows, part in self.models.blocks(X):
            m, h = self.models.margins(part)
            below, above = self._ends(m[:, :, 0], h)
            below, above = below[:, self.models.of] - R * UP, above[:, self.models.of] + R * UP
            low[rows] = np.partition(below, n - k, axis=1)[:, n - k] if k <= n else -math.inf
            high[rows] = np.partition(above, k - 1, axis=1)[:, k - 1] if k <= n else math.inf
        found = np.stack([low, high], axis=1)
        found += np.array([-4.0, 4.0]) * EPS * np.abs(np.where(np.isfinite(found), found, 0.0))
        found = np.maximum(found, self.least)
        if self.units is not None:
            with np.errstate(over="ignore"):
                found = np.asarray(self.units(found), dtype=np.float64)
            if not (found[:, 0] <= found[:, 1]).all():
                raise ValueError("intervals of a transformed target need an inverse_func that grows")
        return Promised.of(found, self.guarantee(coverage))

    def _ends(self, m: Array, h: Array) -> tuple[Array, Array]:
        """Between which numbers the exact models' predictions lie."""
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = self.link(m - h), self.link(m + h)
            low, high = low - 8.0 * EPS * np.abs(low), high + 8.0 * EPS * np.abs(high)
        return np.where(np.isnan(low), -math.inf, low), np.where(np.isnan(high), math.inf, high)

    def _spread(self, m: Array, h: Array, y: Array) -> tuple[Array, Array]:
        """The least and the largest that |y - mu| may be."""
        low, high = self._ends(m, h)
        with np.errstate(invalid="ignore"):
            most = np.maximum(high - y, y - low)
        return np.maximum(np.maximum(low - y, y - high), 0.0), np.where(np.isnan(most), math.inf, most)

    # Classes

    def sets(self, X: Any, coverage: float) -> Promised:
        """Rows x classes, true for those in the set."""
        found = np.ones((int(counted(X).shape[0]), len(self.classes)), dtype=np.bool_)
        k, of = self.rank(coverage), self.models.of
        _, E = _scores(self.models.margin, self.models.error)
        E = E[np.arange(len(of)), self.y.astype(int)]
        E = np.where(np.isfinite(self.models.error), E, math.inf)
        mine = [np.sort(E[of == one]) for one in range(self.models.count)]
        for rows, part in self.models.blocks(X):
            m, h = self.models.margins(part)
            low, _ = _scores(m, h)  # rows x models x classes
            if self.folds:
                counts = sum(np.searchsorted(one, low[:, j]) for j, one in enumerate(mine))
            else:
                counts = (E[None, :, None] < low[:, of]).sum(axis=1)
            found[rows] = counts < k
        return Promised.of(found, self.guarantee(coverage))

    def cross_validated(self, coverage: float) -> tuple[Array, Array, Array]:
        """Of every known row: whether it lies in the interval, or the set, of its fold's model with the errors of the
        other folds, how wide that is, and what is predicted (of classes the largest probability)."""
        of, models = self.models.of, self.models
        low, high = _scores(models.margin, models.error)
        rows, wide = np.arange(len(of)), np.zeros(len(of))
        if self.classes is None:
            at, hit = self.link(models.margin[:, 0]), np.zeros(len(of))
            most = self._spread(models.margin[:, 0], models.error, self.y)[1]
        else:
            most, hit = high[rows, self.y.astype(int)], np.zeros(len(of))
            at = np.sort(high, axis=1)[:, 1] if len(self.classes) > 2 else expit(np.abs(models.margin[:, 0]))
        for k in np.unique(of):
            here, there = of == k, np.sort(most[of != k])
            rank = math.ceil(Fraction(repr(coverage)) * (len(there) + 1))
            R = there[rank - 1] if rank <= len(there) else math.inf
            hit[here] = most[here] <= R
            wide[here] = 2.0 * R if self.classes is None else (low[here] <= R).sum(axis=1)
        return hit, wide, at

    # What is promised

    def rank(self, coverage: float) -> int:
        """k of the module's text, of the number as it is written."""
        return math.ceil(Fraction(repr(float(coverage))) * (len(self.y) + 1))

    def bound(self, coverage: float) -> float:
        """The probability that is proven."""
        n, K = len(self.y), self.folds
        slack = min(2.0 * (1.0 - 1.0 / K) / (n / K + 1.0), (1.0 - K / n) / (K + 1.0)) if K else 0.0
        return max(float(2 * Fraction(repr(coverage)) - 1) - slack, 0.0)

    def guarantee(self, coverage: float) -> str:
        """What is promised, in a sentence."""
        what, name = ("its interval", "target") if self.classes is None else ("its set", "class")
        by = f"CV+ with {self.folds} folds" if self.folds else "jackknife+"
        open_ = f", {self.models.open} of which are open and count as infinite" if self.models.open else ""
        return (
            f"{by}: a new row's {name} lies in {what} with a probability of at least "
            f"{math.floor(1000.0 * self.bound(coverage)) / 10.0:g} %, and typically of about {100.0 * coverage:g} %, "
            f"if new rows and the {len(self.y):,} known ones are exchangeable: that holds for what is printed, "
            f"since it contains what exactly trained models give{open_}; {self.tuned}."
        )


def _scores(m: Array, h: Array) -> tuple[Array, Array]:
    """The least and the largest that E may be, of every class on the last axis, from margins within h."""
    h = h[..., None]
    with np.errstate(over="ignore", invalid="ignore"):
        if m.shape[-1] == 1:
            against = np.concatenate([m, -m], axis=-1)  # of the first class and of the second
            low, high = (np.where(t > 0.0, expit(t), 0.0) for t in (against - h, against + h))
        else:
            apart = m[..., None, :] - m[..., :, None]  # of class c over class y, in [y, c]
            wide = 2.0 * h[..., None] + 4.0 * EPS * np.abs(apart)
            # p_c is no less than 1 / sum_j exp(m_j - m_c + 2 h), where j = c counts 1
            K = m.shape[-1]
            off = np.where(np.eye(K, dtype=np.bool_), 0.0, wide)
            least, most = (1.0 / np.exp(apart + s * off).sum(axis=-1) for s in (1.0, -1.0))
            low = np.where(apart > wide, least[..., None, :], 0.0).sum(axis=-1)
            sure = np.eye(K, dtype=np.bool_) | ~(apart > -wide)
            high = np.minimum(np.where(sure, 0.0, most[..., None, :]).sum(axis=-1), 1.0)
    low, high = low * (1.0 - 64.0 * EPS), high * (1.0 + 64.0 * EPS)
    return np.where(np.isnan(low), 0.0, low), np.where(np.isnan(high), math.inf, high)


@dataclass(eq=False)
class Training:
    """What a search was fitted to, as long as it is in memory: files of searches do not have it, but keep what has
    been made of it by folds."""

    data: SearchData | None
    splits: Sequence[Any]
    grouped: bool  # whether rows were held out by groups
    made: dict[tuple[str, str], Conformal] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)  # what else has been made of the data, and stays in files

    def __getstate__(self) -> dict[str, Any]:
        kept = {key: one for key, one in self.made.items() if one.models.downdates is None and one.folds}
        return {**vars(self), "data": None, "splits": (), "made": kept}

    def conformal(self, search: Any, method: str, tuning: str) -> Conformal:
        """What intervals by this method are made of."""
        if (method, tuning) not in self.made:
            self.made[method, tuning] = self._made(search, method, tuning)
        return self.made[method, tuning]

    def given(self) -> SearchData:
        """The data; ValueError where they are not at hand."""
        if self.data is None:
            raise ValueError(
                "this search comes from a file, which has not its training data: call predict_interval or predict_set "
                "with method='cv+' before it is saved, or fit it again"
            )
        if not numbered(self.data.X):
            raise ValueError("rows in blocks, of which this search has some, have no models without single rows")
        return replace(self.data, X=here(self.data.X), one=None, place=None)

    def _made(self, search: Any, method: str, tuning: str) -> Conformal:
        data = self.given()
        units = None
        if transforms_target(data.estimator):
            given, units = data.estimator, data.estimator.inverse_func
            if given.transformer is not None or units is None:
                raise ValueError(f"intervals of a transformed target take func and inverse_func, got {given}")
            data = replace(data, estimator=inside(given), y=transformed(fitted_target(given, data.y), data.y))
        final, _ = split_pipeline(data.estimator)
        positive = data.weight > 0.0
        folds, tuned = 0, "the penalties were tuned on the same rows, of which the theorem does not speak"
        by_rows = method != "cv+" or search.n_splits_ != len(self.splits)  # which are those of a sketch then
        splits = [] if by_rows else _folds(self.splits, len(data.y))
        if 0 < len(splits) < len(data.y):
            folds, penalties = len(splits), [search.best_penalties_] * len(splits)
            if tuning == "repeated":
                tuned = "the penalties were tuned anew without each fold, and the theorem speaks of that, too"
                penalties = [_tuned_without(search, self.given(), train).best_penalties_ for train, _ in splits]
            models = HeldOutModels.of_folds(data, splits, penalties, search._fold_weights.solutions)
        else:  # folds of single rows, too
            models = HeldOutModels.of_rows(data, search.best_penalties_)
        if self.grouped:
            tuned += ", and rows of one group are not exchangeable with those of another"
        y = np.asarray(data.y) if data.classes is None else np.searchsorted(data.classes, data.y)
        models = replace(models, of=models.of[positive], margin=models.margin[positive], error=models.error[positive])
        same = data.classes is not None or type(find_adapter(final).loss(final)).__name__ in SAME
        link, least = (_same, -math.inf) if same else (np.exp, 0.0)
        return Conformal(models, y[positive].astype(np.float64), data.classes, link, units, least, folds, tuned)


def _folds(splits: Sequence[Any], count: int) -> list[Any]:
    """The folds, of several drawings the first."""
    held = np.cumsum([len(np.arange(count)[test]) for _, test in splits])
    K = int(np.searchsorted(held, count)) + 1
    if 2 <= K <= len(splits) and numbers_of(splits[:K], count) is not None:
        return list(splits[:K])
    raise ValueError(
        "method='cv+' needs folds that hold out every row once and train on all others, such as KFold's: cv has others"
    )


def _tuned_without(search: Any, data: SearchData, train: Any) -> Any:
    """The search of these rows alone."""
    weight = {} if np.all(data.weight == 1.0) else {"sample_weight": data.weight[train]}
    again = clone(search).set_params(journal=None, callback=None, verbose=0, refit=False, certify_global=None)
    return again.fit(taken(data.X, train), data.y[train], **weight)


def _same(m: Array) -> Array:
    return m


def check_coverage(coverage: Any) -> None:
    if not (isinstance(coverage, Real) and 0.0 < float(coverage) < 1.0):
        raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}")


def asked(search: Any, X: Any, coverage: float, method: str, tuning: str) -> tuple[Any, Conformal]:
    """X as models see it, and what they are; whatever is wrong is said before anything is made."""
    check_is_fitted(search, "best_penalties_")
    check_coverage(coverage)
    for name, value, known in (("method", method, METHODS), ("tuning", tuning, TUNINGS)):
        if value not in known:
            raise ValueError(f"{name} must be {' or '.join(map(repr, known))}, got {value!r}")
    if tuning == "repeated" and method != "cv+":
        raise ValueError("tuning='repeated' goes with method='cv+': a search without each row is n searches")
    if tuning == "repeated" and (search._training.grouped or np.iterable(search.cv)):
        raise ValueError(
            f"tuning='repeated' cuts folds anew, by a number or a splitter without groups, got cv={search.cv}"
        )
    final, before = split_pipeline(search.estimator)
    if not isinstance(find_adapter(final), LinearEstimator):
        raise TypeError(f"what the predictions of {type(final).__name__} are is not known: it has no intervals")
    if getattr(final, "family", None) == "cox":
        raise ValueError("Cox's model predicts no time: there are no intervals (see predict_survival_function)")
    X = here(X) if hasattr(X, "shape") else np.asarray(X)
    count = X.shape
    if len(count) != 2 or count[1] != search.n_features_in_:
        raise ValueError(f"X must have the {search.n_features_in_} columns of the training data, got shape {count}")
    validate_data(search, X, reset=False, skip_check_array=True)
    if before is None and getattr(X, "dtype", np.dtype(float)).kind in "USc":
        raise TypeError(f"X must be numeric, got dtype {X.dtype}")
    found = search._training.conformal(search, method, tuning)
    if found.classes is None and found.models.margin.shape[1] > 1:
        raise ValueError("intervals are for one target, and y had several")
    return X, found


class TellsHowSure:
    """Methods of a fitted search that tell how sure its predictions and coefficients are."""

    def coefficients(self) -> Any:
        """A DataFrame of pandas, one row for each coefficient of `best_estimator_`: `name`, `output` (of several
        classes or targets), `coef` per unit of the column before scalers, `coef_standardised` per standard deviation,
        `proven` of the exact coefficient ("+", "-", "zero", or "open", and then `why`), `radius`, how far `coef` is
        from it at most, and `se`, a sandwich standard error where there is no l1, else NaN (`attrs["se"]` says what it
        tells). Of tables of up to 500,000 numbers, as long as the data are in memory, all coefficients of exact models
        without one row (`attrs["models"]`, the steps before the model kept) lie between `low` and `high`, and
        `selected` of these models are proven to have one that is not zero; see `suffice.influence`."""
        return coefficients.frame(self)

    def predict_interval(
        self, X: Any, coverage: float = 0.9, method: Method = "jackknife+", *, tuning: Tuning = "fixed"
    ) -> Promised:
        """Intervals in which the targets of new rows lie: an array (n, 2), whose `guarantee` says in a sentence what is
        promised.

        method: "jackknife+", by the models without each row of the training data (one step each from that of all rows
        where the model allows it, else a fit each), or "cv+", by those of the folds. tuning: "fixed", at
        `best_penalties_`, or "repeated" (cv+): tuned anew without each fold, so that the guarantee holds for tuning,
        too. Models are made at the first call, from the data that the search was fitted to, which it keeps in memory,
        but not in files.
        """
        if is_classifier(self):
            raise ValueError("classes have no intervals: predict_set has the set of classes, with the same guarantee")
        X, found = asked(self, X, coverage, method, tuning)
        return found.intervals(X, float(coverage))

    def predict_set(
        self, X: Any, coverage: float = 0.9, method: Method = "jackknife+", *, tuning: Tuning = "fixed"
    ) -> Promised:
        """Sets of classes in which those of new rows lie: an array of bools (n, classes), columns as in `classes_`,
        whose `guarantee` says what is promised. Otherwise as `predict_interval`."""
        if not is_classifier(self):
            raise ValueError("numbers have intervals, and no sets of classes: use predict_interval")
        if not hasattr(split_pipeline(self.estimator)[0], "predict_proba"):  # type: ignore[attr-defined]
            raise ValueError(f"predict_set needs probabilities, which {self.estimator} has not")  # type: ignore[attr-defined]
        X, found = asked(self, X, coverage, method, tuning)
        return found.sets(X, float(coverage))
