r"""What a search has to know about an estimator: its objective in our units, and our penalties in its words.

`register_adapter(EstimatorClass, adapter)` makes an estimator of your own known; see `Adapter` for what it has to
offer, and `Hooks` for what it may. The estimators of scikit-learn and of other packages are rows of one table
(`suffice.sklearn.table`).
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin

from suffice.arrays import Array
from suffice.losses import Loss
from suffice.solvers.problem import Composite
from suffice.solvers.solution import Solution


class Fold(Protocol):
    """One fold: a lower-level problem in l1 and l2, and what it says about held-out data."""

    @property
    def l1_max(self) -> float:
        """The smallest l1 for which w = 0 is the solution."""
        ...

    @property
    def l2_floor(self) -> float:
        """1e-7 times the largest curvature of the loss: a unit for l2."""
        ...

    @property
    def l2_in_place_of_none(self) -> float:
        """What l2 = 0 is solved with: 0 itself, where that can be verified."""
        ...

    def at(self, *, l1: float | Array, l2: float | Array) -> Composite:
        """The problem at fixed penalties: numbers, or arrays of one per column for `groups_of_features`."""
        ...

    def held_out(self, X: Any, y: Array, sample_weight: Array, scoring: str, folds: int) -> Loss:
        """A loss of which the sum over all folds is the mean of minus the score (of 1 - score for r2)."""
        ...

    def coefficients(self, w: Array) -> tuple[Any, Any]:
        """`coef_` and `intercept_` of w."""
        ...


class Adapter(Protocol):
    """How to tune one class of estimators."""

    @property
    def scorings(self) -> tuple[str, ...]:
        """The smooth scores on offer; the first one stands in for any other."""
        ...

    def ratio(self, estimator: Any) -> float:
        """The share of l1 in l1 + l2 that the estimator as it is asks for."""
        ...

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        """Raise ValueError if the estimator cannot be fitted with these penalties."""
        ...

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        """y as the fold's loss takes it."""
        ...

    def weights(self, estimator: Any, y: Any, sample_weight: Array, classes: Any) -> Array:
        """The weights s that a fit would give to samples."""
        ...

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        """The lower-level problem of these training rows."""
        ...

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        """The penalties in the estimator's words, for a fit whose weights sum to `total`."""
        ...

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        """The estimator with these coefficients, as if it had been fitted.

        An adapter may have any of the methods of `Hooks` as well: `finish(estimator, fold, solution)` adds to the final
        model what else a fit would leave there, such as `n_iter_`; `solution` is that of `fold.at(...)`.
        """
        ...


class Hooks:
    """What an adapter may say besides, and what is so where it does not. Rows of X that are shared are
    `suffice.rows.given.Shared`."""

    many = False  # whether more than two classes will do
    several = False  # whether several targets will do
    by_penalties = True  # whether l1 and l2 are searched, or what `space` says

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
        """Add to the final model what else a fit would leave there."""

    # Of models without l1 and l2

    def space(self, estimator: Any, given: Any, step: str, data: Any) -> Any:
        """What is searched."""
        raise NotImplementedError

    def problem(self, folds: Sequence[Any], space: Any, scoring: str, jobs: int) -> Any:
        """The objective of a search."""
        raise NotImplementedError

    def final(self, split: Any, params: dict[str, float], accuracy: float) -> tuple[Solution, float]:
        """The model of all rows, and its size."""
        raise NotImplementedError


class Completed(Hooks):
    """An adapter of one's own, with the defaults of what it does not say."""

    def __init__(self, own: Adapter) -> None:
        self.own = own
        vars(self).update({name: getattr(own, name) for name in vars(Hooks) if name[0] != "_" and hasattr(own, name)})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


_ADAPTERS: dict[type, Any] = {}
_BY_NAME: dict[str, Any] = {}  # of packages that need not be there: "package.Class"
WITH_DERIVED = ("sklearn", "suffice")  # packages whose classes stand for those derived from them as well


def name_of(kind: type) -> str:
    """Package and class, whatever modules of the package it has come through."""
    return f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"


# The arguments of constructors that have been read here. For each class, those on which the minimiser depends (rows of
# the table deal with all their values, or refuse them), then those that decide how it is found or reported. An argument
# in neither list is new: nobody has read what it does, and any value but its default is refused by name. TAKEN has
# arguments of which some values only are understood, whatever else the estimator is.
# What these mean is the same for all estimators: how far and how the solver goes, never whereto.
EVERYWHERE = "copy_X max_iter n_jobs random_state tol verbose warm_start"
READ: dict[str, tuple[str, str]] = {}
TAKEN: dict[str, dict[str, tuple[Any, ...]]] = {}


def register_adapter(estimator_class: type, adapter: Adapter) -> None:
    """Make estimators of this class, and of classes derived from it that have no adapter of their own, known."""
    if not isinstance(estimator_class, type):
        raise TypeError(f"estimator_class must be a class, got {estimator_class!r}")
    needed = ("ratio", "check", "targets", "weights", "fold", "params", "fitted")
    missing = [name for name in needed if not callable(getattr(adapter, name, None))]
    if missing or not getattr(adapter, "scorings", ()):
        raise TypeError(f"adapter must offer {', '.join(missing or ['scorings'])}, {adapter!r} does not")
    _ADAPTERS[estimator_class] = adapter if isinstance(adapter, Hooks) else Completed(adapter)


def find_adapter(estimator: Any) -> Any:
    """The adapter of the estimator's class, or of the nearest class that it is derived from."""
    own = type(estimator)
    for kind in own.__mro__:
        name = name_of(kind)
        if kind in _ADAPTERS:
            return _ADAPTERS[kind].of(estimator)
        if kind is own and name == f"sklearn.{kind.__name__}" and kind.__name__ in NEAREST:
            break  # LogisticRegressionCV is derived from what it tunes
        if name in _BY_NAME and (kind is own or name.startswith(WITH_DERIVED)):
            return _BY_NAME[name].of(estimator)
    raise TypeError(_unknown(estimator))


# What people come with, and what does the same.
NEAREST = {
    "LogisticRegressionCV": "LogisticRegression, which is what it tunes",
    "RidgeCV": "Ridge, which is what it tunes",
    "LassoCV": "Lasso, which is what it tunes",
    "ElasticNetCV": "ElasticNet, which is what it tunes",
    "LassoLars": "Lasso, the same model",
    "LassoLarsCV": "Lasso, the same model",
    "LinearRegression": "Ridge, which has a penalty to tune",
    "RidgeClassifierCV": "RidgeClassifier, which is what it tunes",
    "Perceptron": "LinearSVC",
    "NuSVC": "SVC, the same model with C in place of nu",
    "LinearSVR": "SVR(kernel='linear') or HuberRegressor",
    "NuSVR": "SVR, the same model with epsilon in place of nu",
    "GaussianProcessRegressor": "KernelRidge, which has the same mean",
    "MultiTaskLassoCV": "MultiTaskLasso, which is what it tunes",
    "MultiTaskElasticNetCV": "MultiTaskElasticNet, which is what it tunes",
    "BayesianRidge": "Ridge",
    "ARDRegression": "Ridge with groups_of_features",
    "TheilSenRegressor": "HuberRegressor",
    "RANSACRegressor": "HuberRegressor",
    "LassoLarsIC": "Lasso",
    "OrthogonalMatchingPursuit": "Lasso",
    "GeneralizedLinearRegressorCV": "GeneralizedLinearRegressor, which is what it tunes",
    "GeneralizedLinearEstimator": "suffice.sklearn.ElasticNetGLM, which has families and penalties",
    "CoxEstimator": "suffice.sklearn.ElasticNetGLM(family='cox')",
    "IPCRidge": "suffice.sklearn.ElasticNetGLM(family='cox')",
    "MCPRegression": "Lasso: the penalty of MCPRegression is not convex",
    "CoxPHFitter": "suffice.sklearn.ElasticNetGLM(family='cox')",
    "GroupElasticNet": "suffice.sklearn.ElasticNetGLM(groups=...)",
}


def _unknown(estimator: Any) -> str:
    """Why there is no adapter, and what works instead."""
    if isinstance(estimator, type):
        return f"no adapter for a class: give an instance, {estimator.__name__}()"
    name = type(estimator).__name__
    classifies = isinstance(estimator, ClassifierMixin)
    wanted = ClassifierMixin if classifies else RegressorMixin
    known = [one.short for one in _BY_NAME.values() if one.name.startswith("sklearn.") and one.classifies == classifies]
    known += [kind.__name__ for kind in _ADAPTERS if issubclass(kind, wanted)]
    use = f"use {NEAREST[name]}. " if name in NEAREST else ""
    tunes = f"SufficeSearchCV tunes {', '.join(known)}, and what register_adapter has made known"
    return f"no adapter for {name}: {use}{tunes}"


def misunderstood(estimator: Any) -> str | None:
    """The first argument whose value is not understood here, and the way out; None if there is none. Arguments that a
    derived class has added are its own affair."""
    kind = next((one for one in type(estimator).__mro__ if name_of(one) in READ), None)
    if kind is None:
        return None
    known = {*EVERYWHERE.split(), *" ".join(READ[name_of(kind)]).split()}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = getattr(estimator, name, parameter.default)
        here, taken = f"{kind.__name__}({name}={value!r})", TAKEN.get(name_of(kind), {}).get(name)
        if name not in known and not _same(value, parameter.default):
            return (
                f"{here} is new here, and may change what is minimised: use {name}={parameter.default!r}, its default"
            )
        if taken is not None and not any(_same(value, one) for one in taken):
            return f"{here} changes what is minimised, and there is no proof for that: use {name}={_or(taken)}"
    return None


def takes_weights(estimator: Any) -> bool:
    """Whether its fit takes weights of samples, as far as its class tells."""
    fit = getattr(type(estimator), "fit", None)
    return fit is None or "sample_weight" in inspect.signature(fit).parameters


def _or(values: tuple[Any, ...]) -> str:
    return " or ".join(map(repr, values))


def _same(value: Any, other: Any) -> bool:
    return value is other or (np.ndim(value) == np.ndim(other) == 0 and bool(value == other))
