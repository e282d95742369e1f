r"""Linear estimators of other packages, known by package and name: none of them is imported here.

    skglm, celer: Lasso, ElasticNet   as scikit-learn's             l1_j = alpha weights_j
    skglm.GroupLasso(alpha)           mean of squares/2 + penalty   alpha sum_G weights_G ||w_G||,  l1 = alpha
    skglm.SparseLogisticRegression    mean of psi + penalty         l1 = alpha l1_ratio,  l2 = alpha (1 - l1_ratio)
    celer.LogisticRegression(C)       sum of psi + ||w||_1 / C      l1 = 1/(C N)
    glum: GeneralizedLinearRegressor  mean half deviance + penalty  l1 = alpha l1_ratio,  l2 = alpha (1 - l1_ratio),
                                      with factors P1 and P2 of features
    sksurv.CoxPHSurvivalAnalysis      minus the mean partial log-likelihood + alpha ||w||^2/(2 N),  l2 = alpha/N
    sksurv.CoxnetSurvivalAnalysis     the same + penalty, Breslow   l1 = alpha l1_ratio,  l2 = alpha (1 - l1_ratio)

They are handed back with our coefficients inside, as far as `predict` and its like ask for. Coxnet's `alphas` is tuned
as one alpha.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.models.cox import signed_times
from suffice.models.families import BINOMIAL, GAMMA, POISSON, NegativeBinomial, tweedie
from suffice.models.margin_losses import LOGISTIC, SQUARED
from suffice.sklearn._structure import Structure
from suffice.sklearn.estimators import SUM, C, Classification, Leaves, Regression, Strength, make_known
from suffice.sklearn.folds import Hazards, Intercept
from suffice.sklearn.objectives import Objective, refuse
from suffice.sklearn.table import GAP, GAP_OF_SEVERAL, MultiTaskRow


class WeightedLassoRow(Regression):
    """skglm's WeightedLasso: factors of l1."""

    def structure(self, estimator: Any, features: int) -> Structure:
        factors = None if estimator.weights is None else np.array(estimator.weights, dtype=np.float64)
        if factors is not None and factors.shape != (features,):
            raise ValueError(f"weights must be {features} numbers, one for each feature, got shape {factors.shape}")
        return Structure(factors, np.ones(features, dtype=bool) if estimator.positive else None)


class GroupLassoRow(Regression):
    """skglm's GroupLasso: norms of groups, each with its weight."""

    def structure(self, estimator: Any, features: int) -> Structure:
        groups = skglm_groups(estimator.groups, features)
        of_groups = np.ones(len(groups)) if estimator.weights is None else np.array(estimator.weights, dtype=np.float64)
        if of_groups.shape != (len(groups),):
            raise ValueError(f"weights must be {len(groups)} numbers, one for each group, got shape {of_groups.shape}")
        return Structure(groups=groups, share=1.0, of_groups=of_groups)


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


class CelerLogisticRow(Classification):
    def kind(self, estimator: Any) -> Intercept:
        return "none"


_OWN_LINK = {"normal": "identity", "binomial": "logit"}  # of all others it is the logarithm


def glum_loss(estimator: Any) -> Any:
    """psi; ValueError for a family and a link whose deviance is not convex."""
    name, number = _family(estimator.family)
    link = estimator.link if isinstance(estimator.link, str) else type(estimator.link).__name__.lower()
    link = link.removesuffix("link")
    own = _OWN_LINK.get(name, "log")
    if link not in ("auto", own):
        raise ValueError(f"family={name} with link={link} has no convex deviance that is known here: use link='auto'")
    match name:
        case "normal":
            return SQUARED
        case "binomial":
            return BINOMIAL
        case "poisson":
            return POISSON
        case "gamma":
            return GAMMA
        case "tweedie":
            return tweedie(1.5 if number is None else number)
        case "negative.binomial":
            return NegativeBinomial(1.0 if number is None else number)
    raise ValueError(f"family={name} is not supported: its deviance is not convex; 'gamma' is nearest")


def _family(given: Any) -> tuple[str, float | None]:
    """The name of a family, and its power or theta."""
    if isinstance(given, str):
        found = re.fullmatch(r"\s*([\w.]+?)\s*(?:\(\s*([-+.\deE]+)\s*\))?\s*", given)
        name, number = (given, None) if found is None else found.groups()
    else:
        name = type(given).__name__.removesuffix("Distribution").lower()
        number = getattr(given, "power", None) if name == "tweedie" else getattr(given, "theta", None)
    name = {"gaussian": "normal", "negativebinomial": "negative.binomial"}.get(name, name)
    return name, None if number is None else float(number)


class GlumRow(Regression):
    """glum's GeneralizedLinearRegressor, for families with a convex deviance."""

    def structure(self, estimator: Any, features: int) -> Structure:
        given = [np.broadcast_to(_glum_factors(estimator, name, features), features) for name in ("P1", "P2")]
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
        return super().fitted(estimator, coef, float(intercept), classes)

    def proven_loss(self, estimator: Any) -> Any:
        refuse(getattr(estimator, "lower_bounds", None) is not None, "lower_bounds is not supported")
        return LOGISTIC if self.loss(estimator) is BINOMIAL else super().proven_loss(estimator)

    def factors(self, estimator: Any) -> tuple[Any, Any]:
        try:
            first, second = (_glum_factors(estimator, name) for name in ("P1", "P2"))
        except ValueError as error:
            refuse(True, str(error))
        return first, second

    def objective(self, estimator: Any, y: Any, weights: Array) -> Objective:
        found = super().objective(estimator, y, weights)
        if found.psi is not LOGISTIC:
            return found
        refuse(not np.isin(found.targets, (0.0, 1.0)).all(), "its targets are neither 0 nor 1")
        return replace(found, targets=np.where(found.targets == 1.0, 1.0, -1.0))


def _glum_factors(estimator: Any, name: str, features: int | None = None) -> Any:
    """P1 or P2: one number for all features, or one for each."""
    given = getattr(estimator, name)
    if given is None:
        return 0.0
    if isinstance(given, str):
        if given != "identity":
            raise ValueError(f"{name}={given!r} is not supported: use 'identity' or one factor for each feature")
        return 1.0
    factors = np.asarray(given, dtype=np.float64)
    if factors.ndim != 1 or not (factors >= 0.0).all() or len(factors) != (features or len(factors)):
        count = "" if features is None else f"{features} "
        raise ValueError(f"{name} must be {count}factors that are not negative, one for each feature")
    return factors


def of_the_mean(fold: Any, found: Any) -> float:
    """The prediction of the mean, which folds are centred by."""
    return float((fold.shift + fold.rest) @ found.x)


OF_THE_MEAN: Leaves = {"offset_": lambda _, fold, found: np.array([of_the_mean(fold, found)])}  # taken off predictions


class CoxRow(Regression):
    """scikit-survival's."""

    def finish(self, estimator: Any, fold: Any, solution: Any) -> None:
        """The baseline hazard, which survival functions ask for."""
        sets, risk = fold.hazards.sets, fold.design.margins(solution.x) + of_the_mean(fold, solution)
        estimator._baseline_model.fit(np.asarray(risk), sets.event, sets.time)

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        return signed_times(y)

    def kind(self, estimator: Any) -> Intercept:
        return "free"  # rows are centred, and there is none

    def loss(self, estimator: Any) -> Hazards:
        return Hazards(str(estimator.ties))

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        estimator.coef_, estimator.n_features_in_ = coef, len(coef)
        return estimator


class CoxnetRow(CoxRow):
    """One alpha in place of a path."""

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        """Any of the two penalties will do."""

    finish = Regression.finish

    def loss(self, estimator: Any) -> Hazards:
        return Hazards("breslow")

    def structure(self, estimator: Any, features: int) -> Structure | None:
        if estimator.penalty_factor is None:
            return None
        factors = np.array(estimator.penalty_factor, dtype=np.float64)
        return Structure(factors * (features / factors.sum()))  # as glmnet scales them

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        known = np.atleast_1d(np.nan if estimator.alphas is None else np.asarray(estimator.alphas, dtype=np.float64))
        if np.ndim(estimator.alphas) == 0 and estimator.alphas is not None:
            estimator.alphas = [float(estimator.alphas)]
        estimator.coef_, estimator.alphas_, estimator.offset_ = np.asarray(coef)[:, None], known[-1:], np.zeros(1)
        estimator.n_features_in_ = len(coef)
        return estimator


_SKGLM = "max_epochs p0 ws_strategy"
_CELER = "max_epochs p0 precompute prune"
_CHOICE = "alphas cv eps n_alphas"
_GLUM = "A_ineq P1 P2 b_ineq family fit_intercept formula l1_ratio link lower_bounds monotonic_constraints"
_GLUM += " scale_predictors upper_bounds"
_GLUM_WAY = "alphas cat_missing_method cat_missing_name categorical_format check_input drop_first expected_information"
_GLUM_WAY += " force_all_finite gradient_tol hessian_approx interaction_separator max_inner_iter min_alpha"
_GLUM_WAY += " min_alpha_ratio n_alphas robust selection solver start_params step_size_tol"
_NONE = ("upper_bounds", "A_ineq", "b_ineq", "monotonic_constraints", "formula")
_OF_GLUM = {**dict.fromkeys(_NONE, (None,)), "scale_predictors": (False,), "alpha_search": (False,)}
_OF_COXNET = {"normalize": (False,), "fit_baseline_model": (False,)}
_OF_CELER: dict[str, tuple[Any, ...]] = {"fit_intercept": (False,), "penalty": ("l1",)}
_SHARED: Any = {"weighted": False, "rows": "shared", "leaves": GAP}
_ALONE: Any = {"weighted": False, "leaves": GAP}
_CERTIFIED: Any = {"use": "certified"}

make_known(
    Regression("skglm.Lasso", "alpha fit_intercept positive", _SKGLM, share=1.0, **_SHARED),
    Regression("skglm.ElasticNet", "alpha fit_intercept l1_ratio positive", _SKGLM, share=None, **_SHARED),
    WeightedLassoRow("skglm.WeightedLasso", "alpha fit_intercept positive weights", _SKGLM, share=1.0, **_ALONE),
    GroupLassoRow(
        "skglm.GroupLasso", "alpha fit_intercept groups positive weights", _SKGLM, share=1.0, use="tuned",
        taken={"positive": (False,)}, **_ALONE,
    ),
    MultiTaskRow(
        "skglm.MultiTaskLasso", "alpha fit_intercept", _SKGLM, share=1.0, weighted=False, several=True,
        leaves=GAP_OF_SEVERAL, use="tuned",
    ),
    Classification(
        "skglm.SparseLogisticRegression", "alpha fit_intercept l1_ratio", _SKGLM, share=None, weighted=False
    ),
    Regression("celer.Lasso", "alpha fit_intercept positive weights", _CELER, share=1.0, **_CERTIFIED),
    Regression("celer.LassoCV", "fit_intercept positive", f"{_CHOICE} {_CELER}", share=1.0, **_CERTIFIED),
    Regression("celer.ElasticNet", "alpha fit_intercept l1_ratio positive weights", _CELER, share=None, **_CERTIFIED),
    Regression(
        "celer.ElasticNetCV", "fit_intercept l1_ratio positive", f"{_CHOICE} {_CELER}", share=None, **_CERTIFIED
    ),
    CelerLogisticRow(
        "celer.LogisticRegression", "C fit_intercept penalty", f"solver {_CELER}", C, share=1.0, taken=_OF_CELER,
        use="certified",
    ),
    GlumRow(
        "glum.GeneralizedLinearRegressor", f"alpha alpha_search {_GLUM}", _GLUM_WAY, share=None, psi=glum_loss,
        scorings=(), taken=_OF_GLUM,
    ),
    GlumRow(
        "glum.GeneralizedLinearRegressorCV", _GLUM, f"cv {_GLUM_WAY}", share=None, psi=glum_loss, taken=_OF_GLUM,
        use="certified",
    ),
    CoxRow(
        "sksurv.CoxPHSurvivalAnalysis", "alpha ties", "n_iter", SUM, scorings=("neg_partial_likelihood",),
        weighted=False, leaves={}, use="tuned",
    ),
    CoxnetRow(
        "sksurv.CoxnetSurvivalAnalysis", "alphas fit_baseline_model l1_ratio normalize penalty_factor",
        "alpha_min_ratio n_alphas", Strength("alphas"), share=None, scorings=("neg_partial_likelihood",),
        weighted=False, leaves=OF_THE_MEAN, taken=_OF_COXNET, use="tuned",
    ),
)  # fmt: skip
