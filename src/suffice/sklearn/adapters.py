r"""What a search has to know about an estimator: its objective in our units, and our penalties in its words.

Ours is  sum_i a_i psi(x_i . w + b, y_i) + (l2/2) ||w||^2 + l1 ||w||_1  with  a_i = s_i / N,  N = sum of the weights
s_i that a fit sees (sample weights times class weights). scikit-learn's, divided by their factor of the mean loss:

    LogisticRegression(C, l1_ratio)   C sum s_i psi + penalty       l1 = l1_ratio/(C N),  l2 = (1 - l1_ratio)/(C N)
    LinearSVC(C), squared hinge       C sum s_i psi + penalty       l1 or l2 = 1/(C N);   psi = max(0, 1 - y m)^2
    ElasticNet(alpha, l1_ratio)       mean of squares/2 + penalty   l1 = alpha l1_ratio,  l2 = alpha (1 - l1_ratio)
    Lasso(alpha)                      the same                      l1 = alpha
    MultiTaskElasticNet, -Lasso       the same, rows of W in ||.||  l1 = alpha l1_ratio,  l2 = alpha (1 - l1_ratio)
    Ridge(alpha)                      sum s_i (x_i . w - y_i)^2     l2 = alpha/N
    PoissonRegressor(alpha)           mean half deviance            l2 = alpha
    HuberRegressor(alpha, epsilon)    2 sum s_i sigma (1/2 + h)     l2 = alpha/N;         `suffice.models.concomitant`

C, and the alpha of Ridge and HuberRegressor, depend on the number of samples. Folds have fewer of them than all data,
so l1 and l2 are what is tuned, and they are translated with the N of the final fit.

`register_adapter(EstimatorClass, adapter)` makes an estimator of your own known; see `Adapter` for what it has to
offer.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.linear_model import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LogisticRegression,
    MultiTaskElasticNet,
    MultiTaskLasso,
    PoissonRegressor,
    Ridge,
)
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_class_weight

from suffice.arrays import Array
from suffice.losses import Loss
from suffice.models.margin_losses import LOGISTIC, POISSON, SQUARED, SQUARED_HINGE, MarginLoss
from suffice.sklearn._arguments import name_of
from suffice.sklearn._structure import Structure
from suffice.sklearn.folds import Concomitant, Intercept, LinearFold, SeveralTargets, Softmax
from suffice.solvers.certificate import duality_gap
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
    `suffice.sklearn.folds.Shared`."""

    def shares_rows(self, estimator: Any) -> bool:
        """Whether folds may be views of one copy of the rows, here or on a device."""
        return False

    def takes_blocks(self, estimator: Any) -> bool:
        """Whether rows may stay where they are, in blocks."""
        return self.shares_rows(estimator)


class Completed(Hooks):
    """An adapter of one's own, with the defaults of what it does not say."""

    def __init__(self, own: Adapter) -> None:
        self.own = own
        vars(self).update({name: getattr(own, name) for name in vars(Hooks) if name[0] != "_" and hasattr(own, name)})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


class Regressor(Hooks):
    """What adapters of regressions have in common."""

    scorings: tuple[str, ...] = ("neg_mean_squared_error", "r2")
    psi: MarginLoss = SQUARED
    several = False  # whether several targets will do

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        return np.asarray(y, dtype=np.float64)

    def weights(self, estimator: Any, y: Any, sample_weight: Array, classes: Any) -> Array:
        return sample_weight

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        kind: Intercept = "free" if estimator.fit_intercept else "none"
        if y.ndim == 2:
            if getattr(estimator, "positive", False):
                raise ValueError(f"{type(estimator).__name__}(positive=True) is tuned for one target")
            return LinearFold(X, y, SeveralTargets(y.shape[1], by_rows=False), weights, kind)
        if getattr(estimator, "positive", False):
            positive = Structure(positive=np.ones(X.shape[1], dtype=bool))
            return LinearFold(X, y, self.psi, weights, kind, structure=positive)
        return LinearFold(X, y, self.psi, weights, kind)

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        estimator.coef_, estimator.intercept_, estimator.n_features_in_ = coef, intercept, np.shape(coef)[-1]
        return estimator

    def finish(self, estimator: Any, fold: Fold, solution: Solution) -> None:
        estimator.n_iter_ = solution.steps


class Classifier(Hooks):
    """What adapters of classifiers have in common."""

    many = False  # whether more than two classes will do
    by_rows = False  # whether class_weight="balanced" counts rows, whatever their weights are

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        if len(classes) > 2 and self.many:
            numbers: Array = np.searchsorted(classes, y).astype(np.float64)
            return numbers
        if len(classes) > 2:
            raise ValueError(
                f"SufficeSearchCV tunes {type(estimator).__name__} for two classes, y holds {len(classes)}. "
                "Only binary classification is supported."
            )
        return np.where(np.asarray(y) == classes[1], 1.0, -1.0)

    def weights(self, estimator: Any, y: Any, sample_weight: Array, classes: Any) -> Array:
        if estimator.class_weight is None:
            return sample_weight
        present = np.unique(y)
        given = None if self.by_rows else sample_weight
        of_class = compute_class_weight(estimator.class_weight, classes=present, y=y, sample_weight=given)
        weights: Array = sample_weight * of_class[np.searchsorted(present, y)]
        return weights

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        estimator.coef_, estimator.intercept_ = np.atleast_2d(coef), np.atleast_1d(intercept)
        estimator.classes_, estimator.n_features_in_ = classes, np.shape(estimator.coef_)[1]
        return estimator

    def finish(self, estimator: Any, fold: Fold, solution: Solution) -> None:
        estimator.n_iter_ = solution.steps


class LogisticAdapter(Classifier):
    """LogisticRegression; liblinear penalises its intercept, and so does the fold for it."""

    scorings = ("neg_brier_score", "neg_log_loss")
    many = True

    def ratio(self, estimator: Any) -> float:
        penalty = getattr(estimator, "penalty", "deprecated")
        if penalty is None:
            raise ValueError("LogisticRegression(penalty=None) has no penalty to tune")
        fixed = {"l1": 1.0, "l2": 0.0}.get(penalty)
        return float(estimator.l1_ratio or 0.0) if fixed is None else fixed

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        r, solver = self.ratio(estimator), estimator.solver
        mixed = len(names) == 2 or 0.0 < r < 1.0
        if solver != "saga" and (mixed or ("l1" in names and solver != "liblinear")):
            what = "an elastic net" if mixed else "l1"
            raise ValueError(f"LogisticRegression(solver={solver!r}) cannot be fitted with {what}: use solver='saga'")
        if len(names) == 2 and getattr(estimator, "penalty", "deprecated") not in ("deprecated", "elasticnet"):
            raise ValueError(f"penalty={estimator.penalty!r} leaves one weight to tune, got l1 and l2: drop penalty=")
        if estimator.dual:
            raise ValueError("LogisticRegression(dual=True) is not supported: use dual=False, the same solution")

    def shares_rows(self, estimator: Any) -> bool:
        return bool(estimator.solver != "liblinear")

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        if classes is not None and len(classes) > 2:
            if estimator.solver == "liblinear":
                raise ValueError("LogisticRegression(solver='liblinear') takes two classes only: use solver='saga'")
            return LinearFold(X, y, Softmax(len(classes)), weights, "free" if estimator.fit_intercept else "none")
        kind: Intercept = "none"
        if estimator.fit_intercept:
            kind = "column" if estimator.solver == "liblinear" else "free"
        return LinearFold(X, y, LOGISTIC, weights, kind, float(estimator.intercept_scaling))

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        params = {"C": 1.0 / (total * (l1 + l2)) if l1 + l2 > 0.0 else math.inf}
        if len(names) == 2:
            params["l1_ratio"] = l1 / (l1 + l2) if l1 + l2 > 0.0 else 0.0
        return params

    def finish(self, estimator: Any, fold: Fold, solution: Solution) -> None:
        estimator.n_iter_ = np.array([solution.steps], dtype=np.int32)


class LinearSVCAdapter(Classifier):
    """LinearSVC with the squared hinge; its intercept is a penalised column, as liblinear has it."""

    scorings = ("neg_squared_hinge",)

    def ratio(self, estimator: Any) -> float:
        return 1.0 if estimator.penalty == "l1" else 0.0

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        wanted = (estimator.penalty,)
        if names != wanted:
            raise ValueError(
                f"LinearSVC(penalty={estimator.penalty!r}) has one penalty, {wanted[0]}, got {', '.join(names)}"
            )
        if estimator.loss != "squared_hinge":
            raise ValueError(f"LinearSVC must have loss='squared_hinge', which is smooth, got {estimator.loss!r}")

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        kind: Intercept = "column" if estimator.fit_intercept else "none"
        return LinearFold(X, y, SQUARED_HINGE, weights, kind, float(estimator.intercept_scaling))

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        return {"C": 1.0 / (total * (l1 + l2)) if l1 + l2 > 0.0 else math.inf}

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        estimator = super().fitted(estimator, coef, intercept, classes)
        if not estimator.fit_intercept:
            estimator.intercept_ = 0.0  # as liblinear leaves it
        return estimator


class _CoordinateDescent(Regressor):
    several = True

    def shares_rows(self, estimator: Any) -> bool:
        return not estimator.positive

    def finish(self, estimator: Any, fold: Fold, solution: Solution) -> None:
        super().finish(estimator, fold, solution)
        assert solution.problem is not None
        estimator.dual_gap_ = duality_gap(solution.problem, solution.x, solution.certificate.radius)


class AlphaAndRatio:
    """Estimators with alpha = l1 + l2, relative to the mean over samples, and l1_ratio."""

    def ratio(self, estimator: Any) -> float:
        return float(estimator.l1_ratio)

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        """Any of the two penalties will do."""

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        params = {"alpha": l1 + l2}
        if len(names) == 2:
            params["l1_ratio"] = l1 / (l1 + l2) if l1 + l2 > 0.0 else 0.0
        return params


class Unweighted:
    """Estimators whose fit takes no weights of samples."""

    def weights(self, estimator: Any, y: Any, sample_weight: Array, classes: Any) -> Array:
        if np.any(sample_weight != sample_weight[0]):
            raise ValueError(f"{type(estimator).__name__} is tuned without sample weights, which its fit does not take")
        return np.ones_like(sample_weight)


class ElasticNetAdapter(AlphaAndRatio, _CoordinateDescent):
    """ElasticNet."""


class LassoAdapter(_CoordinateDescent):
    """Lasso."""

    def ratio(self, estimator: Any) -> float:
        return 1.0

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        if names != ("l1",):
            raise ValueError(f"Lasso has one penalty, l1, got {', '.join(names)}: ElasticNet has both")

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        return {"alpha": l1}


class RidgeAdapter(Regressor):
    several = True

    def shares_rows(self, estimator: Any) -> bool:
        return not estimator.positive

    def ratio(self, estimator: Any) -> float:
        return 0.0

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        _only_l2(estimator, names)
        if np.ndim(estimator.alpha) > 0:
            raise ValueError("Ridge with one alpha for each target is not supported: tune one for all of them")

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        return {"alpha": total * l2}

    def finish(self, estimator: Any, fold: Fold, solution: Solution) -> None:
        estimator.n_iter_, estimator.solver_ = np.array([solution.steps], dtype=np.int32), "suffice"


class MultiTaskAdapter(Unweighted, AlphaAndRatio, _CoordinateDescent):
    """MultiTaskElasticNet and MultiTaskLasso: l1 is the penalty of the norms of rows, the weights of a feature."""

    def of(self, estimator: Any) -> MultiTaskAdapter:
        """The adapter of this very estimator."""
        return MultiTaskLassoAdapter() if isinstance(estimator, MultiTaskLasso) else MultiTaskAdapter()

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        targets = super().targets(estimator, y, classes)
        if targets.ndim == 1:
            one = type(estimator).__name__.removeprefix("MultiTask")
            raise ValueError(f"{type(estimator).__name__} takes several targets, y holds one: use {one}")
        return targets

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        kind: Intercept = "free" if estimator.fit_intercept else "none"
        return LinearFold(X, y, SeveralTargets(y.shape[1], by_rows=True), weights, kind)

    def finish(self, estimator: Any, fold: Fold, solution: Solution) -> None:
        super().finish(estimator, fold, solution)
        estimator.eps_ = estimator.tol


class MultiTaskLassoAdapter(MultiTaskAdapter):
    """MultiTaskLasso."""

    def of(self, estimator: Any) -> MultiTaskAdapter:
        return self

    def ratio(self, estimator: Any) -> float:
        return 1.0

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        if names != ("l1",):
            raise ValueError(
                f"MultiTaskLasso has one penalty, l1, got {', '.join(names)}: MultiTaskElasticNet has both"
            )

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        return {"alpha": l1}


class PoissonAdapter(Regressor):
    scorings: tuple[str, ...] = ("neg_mean_poisson_deviance",)
    psi = POISSON

    def takes_blocks(self, estimator: Any) -> bool:
        return True

    def ratio(self, estimator: Any) -> float:
        return 0.0

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        _only_l2(estimator, names)

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        counts = super().targets(estimator, y, classes)
        if (counts < 0.0).any():
            raise ValueError(f"y must not be negative for {type(estimator).__name__}, got {float(counts.min())!r}")
        return counts

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        return {"alpha": l2}

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        estimator = super().fitted(estimator, coef, intercept, classes)
        estimator._base_loss = estimator._get_loss()  # predict takes its link from there
        return estimator


class HuberAdapter(Regressor):
    """HuberRegressor; its scale sigma is minimised out, as it is in scikit-learn."""

    def ratio(self, estimator: Any) -> float:
        return 0.0

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        _only_l2(estimator, names)
        if not estimator.epsilon > 1.0:
            raise ValueError(f"HuberRegressor must have epsilon > 1 for its scale to exist, got {estimator.epsilon!r}")

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        psi = Concomitant(float(estimator.epsilon))
        return LinearFold(X, y, psi, weights, "free" if estimator.fit_intercept else "none")

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        return {"alpha": total * l2}

    def finish(self, estimator: Any, fold: Any, solution: Solution) -> None:
        super().finish(estimator, fold, solution)
        estimator.scale_, estimator.outliers_ = fold.learner.outliers(fold, solution.x)


def _only_l2(estimator: Any, names: tuple[str, ...]) -> None:
    if names != ("l2",):
        raise ValueError(f"{type(estimator).__name__} has one penalty, l2, got {', '.join(names)}")


_ADAPTERS: dict[type, Any] = {}
_BY_NAME: dict[str, Any] = {}  # of packages that need not be there


def register_by_name(name: str, adapter: Adapter) -> None:
    """Make estimators of this package and class, "package.Class", known; not those of classes derived from it."""
    _BY_NAME[name] = adapter


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
    """The adapter of the estimator's class, or of the nearest class that it is derived from; an adapter may have a
    method `of(estimator)` that gives the one of this very estimator."""
    kinds = [_ADAPTERS[one] for one in type(estimator).__mro__ if one in _ADAPTERS]
    known = [_BY_NAME[name] for name in [name_of(type(estimator))] if name in _BY_NAME]
    kind = type(estimator)  # LogisticRegressionCV is derived from what it tunes
    other = kind not in _ADAPTERS and kind.__name__ in NEAREST and name_of(kind) == f"sklearn.{kind.__name__}"
    if not known + kinds or other:
        raise TypeError(_unknown(estimator))
    found = (known + kinds)[0]
    own: Any = getattr(found, "of", None)
    return found if own is None else own(estimator)


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
    wanted = ClassifierMixin if isinstance(estimator, ClassifierMixin) else RegressorMixin
    kinds = [kind for kind in _ADAPTERS if issubclass(kind, wanted)]
    known = ", ".join(kind.__name__ for kind in kinds or _ADAPTERS)
    use = f"use {NEAREST[name]}. " if name in NEAREST else ""
    return f"no adapter for {name}: {use}SufficeSearchCV tunes {known}, and what register_adapter has made known"


register_adapter(LogisticRegression, LogisticAdapter())
register_adapter(LinearSVC, LinearSVCAdapter())
register_adapter(ElasticNet, ElasticNetAdapter())
register_adapter(Lasso, LassoAdapter())
register_adapter(Ridge, RidgeAdapter())
register_adapter(PoissonRegressor, PoissonAdapter())
register_adapter(HuberRegressor, HuberAdapter())
register_adapter(MultiTaskElasticNet, MultiTaskAdapter())
