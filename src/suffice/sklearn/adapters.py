r"""What a search and a certificate have to know about an estimator: its objective in our units, in both directions.

`register_adapter(EstimatorClass, adapter)` makes an estimator of your own known to searches, `register_objective(
EstimatorClass, reader)` its fits to `suffice.certify`. The estimators of scikit-learn and of other packages are rows of
one table (`suffice.sklearn.table`), adapters and readers at once. What a reader does not know for certain it refuses,
by `CannotTellError`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin

from suffice.arrays import Array
from suffice.losses import Loss
from suffice.models.margin_losses import MarginLoss
from suffice.sklearn._structure import Columns
from suffice.sklearn.folds import Intercept, Learner, LinearFold, Softmax
from suffice.solvers.problem import Composite
from suffice.solvers.solution import Solution


class Fold(Protocol):
    """One fold: a lower-level problem in l1 and l2, and what it says about held-out data."""

    @property
    def l1_max(self) -> float:
        """The smallest l1 for which w = 0 is the solution."""

    @property
    def l2_floor(self) -> float:
        """1e-7 times the largest curvature of the loss: a unit for l2."""

    @property
    def l2_in_place_of_none(self) -> float:
        """What l2 = 0 is solved with: 0 itself, where that can be verified."""

    def at(self, *, l1: float | Array, l2: float | Array) -> Composite:
        """The problem at fixed penalties: numbers, or arrays of one per column for `groups_of_features`."""

    def held_out(self, X: Any, y: Array, sample_weight: Array, scoring: str, folds: int) -> Loss:
        """A loss of which the sum over all folds is the mean of minus the score (of 1 - score for r2)."""

    def coefficients(self, w: Array) -> tuple[Any, Any]:
        """`coef_` and `intercept_` of w."""


class Adapter:
    """How to tune one class of estimators: derive from it. The first seven methods have to be given, the others say
    what is so where nothing else is said. Rows of X that folds share are `suffice.rows.given.Shared`."""

    scorings: tuple[str, ...] = ()  # the smooth scores on offer; the first one stands in for any other
    many = False  # whether more than two classes will do
    several = False  # whether several targets will do

    def ratio(self, estimator: Any) -> float:
        """The share of l1 in l1 + l2 that the estimator as it is asks for."""
        raise NotImplementedError

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        """Raise ValueError if the estimator cannot be fitted with these penalties."""
        raise NotImplementedError

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        """y as the fold's loss takes it."""
        raise NotImplementedError

    def weights(self, estimator: Any, y: Any, sample_weight: Array, classes: Any) -> Array:
        """The weights s that a fit would give to samples."""
        raise NotImplementedError

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        """The lower-level problem of these training rows."""
        raise NotImplementedError

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        """The penalties in the estimator's words, for a fit whose weights sum to `total`."""
        raise NotImplementedError

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        """The estimator with these coefficients, as if it had been fitted."""
        raise NotImplementedError

    def of(self, estimator: Any) -> Any:
        """The adapter of this very estimator."""
        return self

    def prepared(self, estimator: Any, X: Any) -> Any:
        """The estimator for these training rows."""
        return estimator

    def shares_rows(self, estimator: Any) -> bool:
        """Whether folds may be views of one copy of the rows, here or on a device."""
        return False

    def takes_blocks(self, estimator: Any) -> bool:
        """Whether rows may stay where they are, in blocks."""
        return self.shares_rows(estimator)

    def finish(self, estimator: Any, fold: Any, solution: Solution) -> None:
        """Add to the final model what else a fit would leave there, such as `n_iter_`."""


class CannotTellError(Exception):
    """Nothing can be said about a fitted estimator; the message says why."""


def refuse(condition: Any, reason: str) -> None:
    """Raise `CannotTellError` where the condition holds."""
    if condition:
        raise CannotTellError(reason)


SQUARES = ("neg_mean_squared_error", "r2", "neg_root_mean_squared_error")
SCORES_OF = {
    "Squared": SQUARES,
    "Huber": SQUARES,
    "Logistic": ("neg_log_loss", "neg_brier_score"),
    "SquaredHinge": ("neg_squared_hinge",),
    "Poisson": ("neg_mean_poisson_deviance",),
    "Gamma": ("neg_mean_gamma_deviance",),
    "Hazards": ("neg_partial_likelihood",),
}


@dataclass(frozen=True, eq=False)
class Objective:
    """What a fitted linear model minimises, and the coefficients that it has found:

        sum_i a_i psi(x_i . w + b, y_i) + 1/2 sum_j l2_j w_j^2 + sum_j l1_j |w_j|,     a_i = s_i / sum of s.

    `psi` is the loss of a margin (`suffice.terms.MarginLoss`), or None for the multinomial one; `l1` and `l2` are one
    for all weights or one each. `targets` are y as psi takes it (-1 and 1, or numbers of classes), `weights` the s_i,
    sample weights times class weights. The intercept is "free", "none", or a penalised "column" of `scaling`. With
    `Hazards` for psi the loss is minus Cox's mean partial log-likelihood, of times that are negative where censored.
    `columns` says which columns of X are no features, if any; they have a coefficient and an l1 and l2 of 0.
    """

    psi: MarginLoss | Learner | None
    l1: float | Array
    l2: float | Array
    coef: Array
    intercept: Any
    targets: Array
    weights: Array
    kind: Intercept = "free"
    scaling: float = 1.0
    columns: Columns | None = None

    @property
    def least_l2(self) -> float:
        """Of all features."""
        each = self.columns is not None and np.ndim(self.l2) > 0
        return float(np.min(self.columns.of_features(self.l2) if each else self.l2))  # type: ignore[union-attr, arg-type]

    @property
    def scoring(self) -> str:
        """The score that it is about."""
        return SCORES_OF["Logistic" if self.psi is None else type(self.psi).__name__][0]

    def fold(self, X: Any) -> LinearFold:
        """The problem on these rows, to the last bit."""
        psi = Softmax(len(self.coef)) if self.psi is None else self.psi
        return LinearFold(X, self.targets, psi, self.weights, self.kind, self.scaling, False, self.columns)


Reader = Callable[[Any, Any, Array], Objective]

_ADAPTERS: dict[type, Any] = {}
_READERS: dict[str, Reader] = {}
ROWS: dict[str, Any] = {}  # of packages that need not be there: "package.Class"
WITH_DERIVED = ("sklearn", "suffice")  # packages whose classes stand for those derived from them as well

# The arguments of constructors that have been read here. Of each class a row has those on which the minimiser depends
# (`read`; rows deal with all their values, or refuse them), then those that decide how it is found or reported (`way`).
# An argument in neither list is new: nobody has read what it does, and any value but its default is refused by name.
# Of the arguments in `taken` some values only are understood, whatever else the estimator is.
# What these mean is the same for all estimators: how far and how the solver goes, never whereto.
EVERYWHERE = "copy_X max_iter n_jobs random_state tol verbose warm_start"


def name_of(kind: type) -> str:
    """Package and class, whatever modules of the package it has come through."""
    return f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"


def by_liblinear(estimator: Any) -> bool:
    """Whether liblinear fits it, which takes the intercept for a feature."""
    return hasattr(estimator, "intercept_scaling") and getattr(estimator, "solver", "liblinear") == "liblinear"


def _check_class(estimator_class: Any) -> None:
    if not isinstance(estimator_class, type):
        raise TypeError(f"estimator_class must be a class, got {estimator_class!r}")


def register_adapter(estimator_class: type, adapter: Adapter) -> None:
    """Make estimators of this class, and of classes derived from it that have no adapter of their own, known."""
    _check_class(estimator_class)
    if not isinstance(adapter, Adapter):
        raise TypeError(f"adapter must be derived from suffice.sklearn.Adapter, got {adapter!r}")
    _ADAPTERS[estimator_class] = adapter


def register_objective(estimator_class: type, reader: Reader) -> None:
    """Make fitted estimators of this class known to `suffice.certify`. `reader(estimator, y, sample_weight)` returns
    the `Objective` that the estimator has minimised, or raises `CannotTellError`. Classes derived from it are not
    meant: they may have another objective, as MultiTaskLasso, which is derived from Lasso, has."""
    _check_class(estimator_class)
    if not callable(reader):
        raise TypeError(f"reader must be callable, got {reader!r}")
    _READERS[name_of(estimator_class)] = reader


def objective_of(estimator: Any, y: Any, sample_weight: Array) -> Objective:
    """What this fitted estimator has minimised; `CannotTellError` if that is not known."""
    name = name_of(type(estimator))
    row = ROWS.get(name)
    reader = _READERS.get(name) or (row.objective if row is not None and row.use != "tuned" else None)
    refuse(reader is None, f"the objective of {name} is not known (register_objective makes it so)")
    strange = misunderstood(estimator)
    refuse(strange is not None, str(strange))
    fit = getattr(type(estimator), "fit", None)
    unweighted = row is not None and fit is not None and "sample_weight" not in inspect.signature(fit).parameters
    reason = f"{name} was fitted without sample_weight, which its fit does not take: leave it out"
    refuse(unweighted and np.any(sample_weight != 1.0), reason)
    return reader(estimator, y, sample_weight)  # type: ignore[misc]


def find_adapter(estimator: Any) -> Any:
    """The adapter of the estimator's class, or of the nearest class that it is derived from."""
    own = type(estimator)
    for kind in own.__mro__:
        name = name_of(kind)
        if kind in _ADAPTERS:
            return _ADAPTERS[kind].of(estimator)
        if kind is own and name == f"sklearn.{kind.__name__}" and _nearest(kind.__name__):
            break  # LogisticRegressionCV is derived from what it tunes
        row = ROWS.get(name)
        if row is not None and row.use != "certified" and (kind is own or name.startswith(WITH_DERIVED)):
            return row.of(estimator)
    raise TypeError(_unknown(estimator))


def _tuned() -> dict[str, Any]:
    return {name: row for name, row in ROWS.items() if row.use != "certified"}


# What people come with, and what does the same; ...CV stands for what it tunes.
_INSTEAD = {
    "Lasso, the same model": "LassoLars",
    "Lasso": "LassoLarsIC OrthogonalMatchingPursuit",
    "Lasso: the penalty of MCPRegression is not convex": "MCPRegression",
    "ElasticNet, the same model for loss='squared_error'": "SGDRegressor",
    "Ridge, which has a penalty to tune": "LinearRegression",
    "Ridge": "BayesianRidge",
    "Ridge with groups_of_features": "ARDRegression",
    "QuantileRegressor": "HuberRegressor LinearSVR RANSACRegressor TheilSenRegressor",
    "LinearSVC": "Perceptron",
    "LogisticRegression for the log loss, LinearSVC for hinges, RidgeClassifier for squares": "SGDClassifier",
    "suffice.sklearn.ElasticNetGLM(penalty_factors=...)": "WeightedLasso",
    "suffice.sklearn.ElasticNetGLM, which has families and penalties": "GeneralizedLinearEstimator "
    "GeneralizedLinearRegressor",
    "suffice.sklearn.ElasticNetGLM(family='cox')": "CoxEstimator CoxPHFitter CoxPHSurvivalAnalysis IPCRidge "
    "CoxnetSurvivalAnalysis",
}
NEAREST = {name: use for use, names in _INSTEAD.items() for name in names.split()}


def _nearest(name: str) -> str:
    plain = name.removesuffix("CV")
    tuned = plain != name and any(known.endswith(f".{plain}") for known in _tuned())
    return f"{plain}, which is what it tunes" if tuned else NEAREST.get(name) or NEAREST.get(plain, "")


def _unknown(estimator: Any) -> str:
    """Why there is no adapter, and what works instead."""
    if isinstance(estimator, type):
        return f"no adapter for a class: give an instance, {estimator.__name__}()"
    name = type(estimator).__name__
    classifies = isinstance(estimator, ClassifierMixin)
    wanted = ClassifierMixin if classifies else RegressorMixin
    known = [one.short for one in _tuned().values() if one.name.startswith("sklearn.") and one.classifies == classifies]
    known += [kind.__name__ for kind in _ADAPTERS if issubclass(kind, wanted)]
    use = f"use {_nearest(name)}. " if _nearest(name) else ""
    tunes = f"SufficeSearchCV tunes {', '.join(known)}, and what register_adapter has made known"
    return f"no adapter for {name}: {use}{tunes}"


_signature = lru_cache(maxsize=256)(inspect.signature)  # which takes a quarter of a millisecond


def misunderstood(estimator: Any) -> str | None:
    """The first argument whose value is not understood here, and the way out; None if there is none. Arguments that a
    derived class has added are its own affair."""
    kind = next((one for one in type(estimator).__mro__ if name_of(one) in ROWS), None)
    if kind is None:
        return None
    row = ROWS[name_of(kind)]
    known = {*EVERYWHERE.split(), *row.read.split(), *row.way.split()}
    for name, parameter in _signature(kind).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = getattr(estimator, name, parameter.default)
        here, taken = f"{kind.__name__}({name}={value!r})", row.taken.get(name)
        if name not in known and not _same(value, parameter.default):
            return (
                f"{here} is new here, and may change what is minimised: use {name}={parameter.default!r}, its default"
            )
        if taken is not None and not any(_same(value, one) for one in taken):
            use = " or ".join(map(repr, taken))
            return f"{here} changes what is minimised, and there is no proof for that: use {name}={use}"
    return None


def _same(value: Any, other: Any) -> bool:
    return value is other or (np.ndim(value) == np.ndim(other) == 0 and bool(value == other))
