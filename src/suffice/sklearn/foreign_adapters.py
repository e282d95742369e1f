r"""Adapters of estimators that other packages have, known by package and name: none of them is imported here.

skglm.Lasso, ElasticNet, MultiTaskLasso       as scikit-learn's
skglm.WeightedLasso(alpha, weights)           mean of squares/2 + alpha sum_j weights_j |w_j|    l1_j = alpha weights_j
skglm.GroupLasso(alpha, groups, weights)      mean of squares/2 + alpha sum_G weights_G ||w_G||  l1 = alpha
skglm.SparseLogisticRegression(alpha)         mean of psi + penalty    l1 = alpha l1_ratio,  l2 = alpha (1 - l1_ratio)
glum.GeneralizedLinearRegressor(alpha)        mean half deviance + penalty, the same, with factors P1 and P2
sksurv.CoxPHSurvivalAnalysis(alpha)           minus the mean partial log-likelihood + alpha ||w||^2/(2 N), l2 = alpha/N
sksurv.CoxnetSurvivalAnalysis(alphas)         the same + alpha (l1_ratio ||w||_1 + (1 - l1_ratio) ||w||^2 / 2), Breslow

They are handed back with our coefficients inside, as far as `predict` and its like ask for. Coxnet's `alphas` is tuned
as one alpha.
"""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.models.cox import signed_times
from suffice.models.families import Gamma
from suffice.models.margin_losses import LOGISTIC, SQUARED, Poisson, Squared
from suffice.sklearn._glum import glum_loss
from suffice.sklearn._structure import Structure
from suffice.sklearn.adapters import (
    AlphaAndRatio,
    Classifier,
    ElasticNetAdapter,
    Fold,
    LassoAdapter,
    MultiTaskLassoAdapter,
    Regressor,
    Unweighted,
    register_by_name,
)
from suffice.sklearn.folds import Hazards, LinearFold


class SkglmLasso(Unweighted, LassoAdapter):
    several = False


class SkglmElasticNet(Unweighted, ElasticNetAdapter):
    several = False


class SkglmWeightedLasso(SkglmLasso):
    """skglm's WeightedLasso: factors of l1."""

    def shares_rows(self, estimator: Any) -> bool:
        return False

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        factors = None if estimator.weights is None else np.array(estimator.weights, dtype=np.float64)
        if factors is not None and factors.shape != (X.shape[1],):
            raise ValueError(f"weights must be {X.shape[1]} numbers, one for each feature, got shape {factors.shape}")
        positive = np.ones(X.shape[1], dtype=bool) if estimator.positive else None
        kind: Any = "free" if estimator.fit_intercept else "none"
        return LinearFold(X, y, SQUARED, weights, kind, structure=Structure(factors, positive))


class SkglmGroupLasso(SkglmWeightedLasso):
    """skglm's GroupLasso: norms of groups, each with its weight."""

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        super().check(estimator, names)
        if estimator.positive:
            raise ValueError("GroupLasso(positive=True) is not supported: ElasticNetGLM(positive=True) has no groups")

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        groups = skglm_groups(estimator.groups, X.shape[1])
        of_groups = np.ones(len(groups)) if estimator.weights is None else np.array(estimator.weights, dtype=np.float64)
        if of_groups.shape != (len(groups),):
            raise ValueError(f"weights must be {len(groups)} numbers, one for each group, got shape {of_groups.shape}")
        kind: Any = "free" if estimator.fit_intercept else "none"
        structure = Structure(groups=groups, share=1.0, of_groups=of_groups)
        return LinearFold(X, y, SQUARED, weights, kind, structure=structure)


def skglm_groups(groups: Any, features: int) -> tuple[Any, ...]:
    """Groups as skglm takes them: the size of all, a list of sizes, or a list of lists of features."""
    if isinstance(groups, int | np.integer):
        if features % groups:
            raise ValueError(f"groups={groups} does not divide the number of features, {features}")
        groups = [int(groups)] * (features // int(groups))
    if all(isinstance(one, int | np.integer) for one in groups):
        ends = np.cumsum([0, *groups])
        groups = [np.arange(a, b) for a, b in pairwise(ends)]
    made = tuple(np.asarray(one, dtype=np.intp) for one in groups)
    if not np.array_equal(np.sort(np.concatenate(made)), np.arange(features)):
        raise ValueError(f"groups must hold every feature from 0 to {features - 1} once")
    return made


class SkglmMultiTaskLasso(MultiTaskLassoAdapter):
    """skglm's MultiTaskLasso."""


class SkglmLogistic(Unweighted, AlphaAndRatio, Classifier):
    """skglm's SparseLogisticRegression, for two classes."""

    scorings = ("neg_log_loss", "neg_brier_score")

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        return LinearFold(X, y, LOGISTIC, weights, "free" if estimator.fit_intercept else "none")


class GlumAdapter(AlphaAndRatio, Regressor):
    """glum's GeneralizedLinearRegressor, for families with a convex deviance."""

    def __init__(self, scorings: tuple[str, ...] = ("neg_mean_deviance",)) -> None:
        self.scorings = scorings

    def of(self, estimator: Any) -> GlumAdapter:
        """The adapter of this very estimator."""
        psi = glum_loss(estimator)
        if isinstance(psi, Squared):
            return GlumAdapter(("neg_mean_squared_error", "r2"))
        known = {Poisson: ("neg_mean_poisson_deviance",), Gamma: ("neg_mean_gamma_deviance",)}
        return GlumAdapter(known.get(type(psi), ("neg_mean_deviance",)))

    def ratio(self, estimator: Any) -> float:
        if np.ndim(estimator.l1_ratio) > 0:
            raise ValueError("l1_ratio must be one number: name it in space to tune it")
        return float(estimator.l1_ratio)

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        limits = ("upper_bounds", "A_ineq", "b_ineq", "monotonic_constraints", "formula")
        for name in limits:
            if getattr(estimator, name, None) is not None:
                raise ValueError(f"{name} is not supported: ElasticNetGLM(positive=...) is nearest")
        for name in ("scale_predictors", "alpha_search"):
            if getattr(estimator, name, False):
                raise ValueError(f"{name}=True is not supported: use StandardScaler, or the search itself")

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        targets: Array = glum_loss(estimator).targets(np.asarray(y, dtype=np.float64))
        return targets

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        kind: Any = "free" if estimator.fit_intercept else "none"
        return LinearFold(X, y, glum_loss(estimator), weights, kind, structure=self._structure(estimator, X.shape[1]))

    def _structure(self, estimator: Any, features: int) -> Structure:
        given = [_factors(getattr(estimator, name), name, features) for name in ("P1", "P2")]
        r = self.ratio(estimator)
        used = given[:1] if r == 1.0 else given[1:] if r == 0.0 else given
        factors = used[0]
        if any(not np.array_equal(factors, other) for other in used):
            raise ValueError("P1 and P2 must be the same factors of features: one vector for both penalties")
        lower = estimator.lower_bounds
        positive = None
        if lower is not None:
            lower = np.broadcast_to(np.asarray(lower, dtype=np.float64), features)
            if not np.all((lower == 0.0) | np.isneginf(lower)):
                raise ValueError("lower_bounds must be 0 or -inf: others are not supported")
            positive = lower == 0.0
        return Structure(None if np.all(factors == 1.0) else factors, positive)

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        # What else predict asks for comes from one step on rows that say nothing.
        plain = {"alpha": 1.0, "l1_ratio": 0.0, "P1": "identity", "P2": "identity", "solver": "lbfgs", "max_iter": 1}
        given = {name: estimator.get_params(deep=False)[name] for name in (*plain, "lower_bounds")}
        rows = np.vstack([np.zeros(len(coef)), np.ones(len(coef))])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.set_params(**plain, lower_bounds=None).fit(rows, np.array([0.5, 0.9]))
        estimator.set_params(**given)
        estimator.coef_, estimator.intercept_, estimator.n_features_in_ = coef, float(intercept), len(coef)
        return estimator


def _factors(given: Any, name: str, features: int) -> Array:
    if given is None:
        return np.zeros(features)
    if isinstance(given, str):
        if given != "identity":
            raise ValueError(f"{name}={given!r} is not supported: use 'identity' or one factor for each feature")
        return np.ones(features)
    factors = np.asarray(given, dtype=np.float64)
    if factors.shape != (features,) or not (factors >= 0.0).all():
        raise ValueError(f"{name} must be {features} factors that are not negative, one for each feature")
    return factors


class CoxPHAdapter(Unweighted, Regressor):
    """scikit-survival's CoxPHSurvivalAnalysis."""

    scorings: tuple[str, ...] = ("neg_partial_likelihood",)

    def ratio(self, estimator: Any) -> float:
        return 0.0

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        if names != ("l2",):
            raise ValueError(f"CoxPHSurvivalAnalysis has one penalty, l2, got {', '.join(names)}")
        if np.ndim(estimator.alpha) > 0:
            raise ValueError("one alpha for each feature is not supported: ElasticNetGLM has penalty_factors")

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        return signed_times(y)

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        hazards, structure = Hazards(self._ties(estimator)), self._structure(estimator, X.shape[1])
        return LinearFold(X, y, hazards, weights, "free", structure=structure)

    def _ties(self, estimator: Any) -> str:
        return str(estimator.ties)

    def _structure(self, estimator: Any, features: int) -> Structure:
        return Structure()

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        return {"alpha": total * l2}

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        estimator.coef_, estimator.n_features_in_ = coef, len(coef)
        return estimator

    def finish(self, estimator: Any, fold: Any, solution: Any) -> None:
        """The baseline hazard, which survival functions ask for."""
        sets, risk = fold.hazards.sets, fold.design.margins(solution.x) + float((fold.shift + fold.rest) @ solution.x)
        estimator._baseline_model.fit(np.asarray(risk), sets.event, sets.time)


class CoxnetAdapter(CoxPHAdapter):
    """scikit-survival's CoxnetSurvivalAnalysis, with one alpha in place of a path."""

    def ratio(self, estimator: Any) -> float:
        return float(estimator.l1_ratio)

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        if estimator.normalize:
            raise ValueError("normalize=True is not supported: use StandardScaler before it")
        if estimator.fit_baseline_model:
            raise ValueError("fit_baseline_model=True is not supported: fit the estimator once more with best_params_")

    def _ties(self, estimator: Any) -> str:
        return "breslow"

    def _structure(self, estimator: Any, features: int) -> Structure:
        if estimator.penalty_factor is None:
            return Structure()
        factors = np.array(estimator.penalty_factor, dtype=np.float64)
        return Structure(factors * (features / factors.sum()))  # as glmnet scales them

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        params = {"alphas": l1 + l2}
        if len(names) == 2:
            params["l1_ratio"] = l1 / (l1 + l2) if l1 + l2 > 0.0 else 0.5
        return params

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        known = np.atleast_1d(np.nan if estimator.alphas is None else np.asarray(estimator.alphas, dtype=np.float64))
        if np.ndim(estimator.alphas) == 0 and estimator.alphas is not None:
            estimator.alphas = [float(estimator.alphas)]
        estimator.coef_, estimator.alphas_, estimator.offset_ = np.asarray(coef)[:, None], known[-1:], np.zeros(1)
        estimator.n_features_in_ = len(coef)
        return estimator

    def finish(self, estimator: Any, fold: Any, solution: Any) -> None:
        """What is taken off predictions: those of the mean."""
        estimator.offset_ = np.array([float((fold.shift + fold.rest) @ solution.x)])


register_by_name("skglm.Lasso", SkglmLasso())
register_by_name("skglm.ElasticNet", SkglmElasticNet())
register_by_name("skglm.WeightedLasso", SkglmWeightedLasso())
register_by_name("skglm.GroupLasso", SkglmGroupLasso())
register_by_name("skglm.MultiTaskLasso", SkglmMultiTaskLasso())
register_by_name("skglm.SparseLogisticRegression", SkglmLogistic())
register_by_name("glum.GeneralizedLinearRegressor", GlumAdapter())
register_by_name("sksurv.CoxPHSurvivalAnalysis", CoxPHAdapter())
register_by_name("sksurv.CoxnetSurvivalAnalysis", CoxnetAdapter())
