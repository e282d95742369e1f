r"""The estimators of scikit-learn and of other packages: one row each, for searches, for `suffice.certify` and for
their arguments. Other packages are known by name: none of them is imported here.

In our units (`suffice.sklearn.estimators`), N the sum of weights that a fit sees, n the number of samples:

    LogisticRegression(C, l1_ratio)   C sum s_i psi + penalty       l1 = l1_ratio/(C N),  l2 = (1 - l1_ratio)/(C N)
    LinearSVC(C), squared hinge       C sum s_i psi + penalty       l1 or l2 = 1/(C N);   psi = max(0, 1 - y m)^2
    ElasticNet(alpha, l1_ratio)       mean of squares/2 + penalty   l1 = alpha l1_ratio,  l2 = alpha (1 - l1_ratio)
    Lasso(alpha)                      the same                      l1 = alpha
    MultiTaskElasticNet, -Lasso       the same, rows of W in ||.||  l1 = alpha l1_ratio,  l2 = alpha (1 - l1_ratio)
    Ridge(alpha)                      sum s_i (x_i . w - y_i)^2     l2 = alpha/N;         0 for LinearRegression
    RidgeClassifier(alpha)            Ridge with targets -1 and 1   l2 = alpha/N
    PoissonRegressor(alpha)           mean half deviance            l2 = alpha
    GammaRegressor, TweedieRegressor  the same, 1 <= power <= 2 with a log link, or power 0 with none
    QuantileRegressor(alpha)          mean pinball loss + penalty   l1 = alpha;           smoothed, see below
    SGD*(alpha, l1_ratio)             1/n sum s_i psi + penalty     l1, l2 = alpha n/N times its shares
    skglm, celer: Lasso, ElasticNet   as scikit-learn's             l1_j = alpha weights_j
    skglm.SparseLogisticRegression    mean of psi + penalty         l1 = alpha l1_ratio,  l2 = alpha (1 - l1_ratio)
    celer.LogisticRegression(C)       sum of psi + ||w||_1 / C      l1 = 1/(C N)
    glum.GeneralizedLinearRegressor   mean half deviance + penalty  the same, with factors P1 and P2 of features
    sksurv.CoxnetSurvivalAnalysis     -mean partial log-likelihood  l1_j = alpha l1_ratio factor_j,  l2 as well
    sksurv.CoxPHSurvivalAnalysis      the same + ridge of alpha/2   l2 = alpha/n

Those that choose their penalty themselves (LassoCV), SGD's and most of other packages are certified only.

The pinball loss is replaced by its envelope psi of width h (`Quantile`), chosen so that the two differ by at
most BIAS of the loss of a model without features. What is tuned, scored and proven is this model; its training
objective is within that bias of the least one there is (`smoothing_bias_` of the final model). Held-out rows count by
the pinball loss itself. The intercept is a column of ones without a penalty.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.preprocessing import LabelBinarizer

from suffice.arrays import EPS, Array
from suffice.models.cox import signed_times
from suffice.models.families import GAMMA, POISSON, tweedie
from suffice.models.margin_losses import LOGISTIC, SQUARED, SQUARED_HINGE, Quantile
from suffice.sklearn._structure import Structure
from suffice.sklearn.adapters import Objective, by_liblinear, refuse
from suffice.sklearn.estimators import STEPS, SUM, C, Classification, Leaves, Puts, Regression, Strength, make_known
from suffice.sklearn.folds import Hazards, Intercept, SeveralTargets, Softmax
from suffice.solvers.certificate import duality_gap

BIAS = 1e-3  # of a smoothed quantile


# What fits leave, attribute by attribute, and what predictions ask for

ARRAY_OF_STEPS: Leaves = {"n_iter_": lambda _, fold, found: np.array([found.steps], dtype=np.int32)}
OF_RIDGE: Leaves = {**ARRAY_OF_STEPS, "solver_": lambda _, fold, found: "suffice"}
GAP: Leaves = {
    **STEPS,
    "dual_gap_": lambda _, fold, found: duality_gap(found.problem, found.x, found.certificate.radius),  # type: ignore[arg-type]
}
GAP_OF_SEVERAL: Leaves = {**GAP, "eps_": lambda estimator, fold, found: estimator.tol}
SMOOTHING: Leaves = {**STEPS, "smoothing_bias_": lambda _, fold, found: fold.psi.bias}

OWN_LINK: Puts = {"_base_loss": lambda estimator, classes: estimator._get_loss()}
SIGNS: Puts = {"_label_binarizer": lambda _, classes: LabelBinarizer(pos_label=1, neg_label=-1).fit(classes)}
LIBLINEAR: Puts = {"intercept_": lambda estimator, _: estimator.intercept_ if estimator.fit_intercept else 0.0}


# Losses of estimators


def tweedie_loss(estimator: Any) -> Any:
    power = estimator.power
    link = ("identity" if power <= 0 else "log") if estimator.link == "auto" else estimator.link
    try:
        psi = tweedie(float(power))
    except ValueError as error:
        raise ValueError(f"power={power!r} is not supported: {error}") from error
    if link != ("identity" if psi is SQUARED else "log"):
        raise ValueError(f"power={power!r} with link={link!r} has no convex deviance: use link='auto'")
    return psi


def smoothed(q: float, y: Array) -> Quantile:
    """psi of a quantile, for these targets."""
    rest = y - np.quantile(y, q)
    alone = float(np.mean(np.maximum(q * rest, (q - 1.0) * rest)))
    return Quantile(q, 2.0 * BIAS * alone / max(q, 1.0 - q) ** 2 if alone > 0.0 else 1.0)


def squared_hinge(estimator: Any) -> Any:
    if estimator.loss != "squared_hinge":
        raise ValueError(f"LinearSVC(loss={estimator.loss!r}) is not smooth: use loss='squared_hinge'")
    return SQUARED_HINGE


def descent(estimator: Any) -> Any:
    """Of SGD's; that of a loss that is flat in places leaves an intercept open."""
    known = {"log_loss": LOGISTIC, "squared_error": SQUARED}
    known |= {} if estimator.fit_intercept else {"squared_hinge": SQUARED_HINGE}
    if estimator.loss not in known:
        raise ValueError(f"there is no proof for loss={estimator.loss!r}: use one of {', '.join(known)}")
    return known[estimator.loss]


def glum_loss(estimator: Any) -> Any:
    """psi of a family with its usual link, without which its deviance is not convex."""
    family, link = (_word(getattr(estimator, name)) for name in ("family", "link"))
    known = {"normal": SQUARED, "gaussian": SQUARED, "binomial": LOGISTIC, "poisson": POISSON, "gamma": GAMMA}
    usual = {"binomial": "logit", "poisson": "log", "gamma": "log"}.get(family, "identity")
    if family not in known:
        raise ValueError(f"there is no proof for family={family}")
    if link not in ("auto", usual):
        raise ValueError(f"family={family} with link={link} has no convex deviance that is known here: use link='auto'")
    return known[family]


def _word(given: Any) -> str:
    """Of a family or a link by name, or of the class of one."""
    word = given if isinstance(given, str) else type(given).__name__.lower()
    return word.removesuffix("distribution").removesuffix("link")


# Rows that differ in more than data


class LogisticRegressionRow(Classification):
    """LogisticRegression, of several classes too; liblinear penalises its intercept, and so does the fold for it."""

    def ratio(self, estimator: Any) -> float:
        if getattr(estimator, "penalty", "deprecated") is None:
            raise ValueError("LogisticRegression(penalty=None) has no penalty to tune")
        return super().ratio(estimator)

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        r, solver = self.ratio(estimator), estimator.solver
        mixed = len(names) == 2 or 0.0 < r < 1.0
        if solver != "saga" and (mixed or ("l1" in names and solver != "liblinear")):
            what = "an elastic net" if mixed else "l1"
            raise ValueError(f"LogisticRegression(solver={solver!r}) cannot be fitted with {what}: use solver='saga'")
        fixed = self.fixed_share(estimator)
        if fixed is not None and names != ("l1" if fixed else "l2",):
            got = " and ".join(names)
            raise ValueError(f"penalty={estimator.penalty!r} leaves one weight to tune, got {got}: drop penalty=")
        if estimator.dual:
            raise ValueError("LogisticRegression(dual=True) is not supported: use dual=False, the same solution")

    def shares_rows(self, estimator: Any) -> bool:
        return not by_liblinear(estimator)

    takes_blocks = shares_rows

    def learner(self, estimator: Any, y: Array, classes: Any) -> Any:
        if classes is None or len(classes) <= 2:
            return LOGISTIC
        if by_liblinear(estimator):
            raise ValueError("LogisticRegression(solver='liblinear') takes two classes only: use solver='saga'")
        return Softmax(len(classes))

    def penalties(self, estimator: Any, weights: Array) -> tuple[Any, Any]:
        refuse(not getattr(estimator, "refit", True), "refit=False has averaged the models of the folds")
        scaling = self.scaling(estimator)
        unscaled = self.kind(estimator) == "column" and hasattr(estimator, "Cs") and scaling != 1.0
        refuse(unscaled, f"LogisticRegressionCV ignores intercept_scaling={scaling!r} in its final fit: use 1")
        return super().penalties(estimator, weights)


class QuantileRow(Regression):
    def kind(self, estimator: Any) -> Intercept:
        return "column" if estimator.fit_intercept else "none"

    def learner(self, estimator: Any, y: Array, classes: Any) -> Quantile:
        return smoothed(float(estimator.quantile), y)

    def structure(self, estimator: Any, features: int) -> Structure:
        return Structure(np.append(np.ones(features), 0.0)) if estimator.fit_intercept else Structure()


class MultiTaskRow(Regression):
    """l1 is the penalty of the norms of rows, the weights of a feature."""

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        targets = super().targets(estimator, y, classes)
        if targets.ndim == 1:
            raise ValueError(f"{self.short} takes several targets, y holds one: use {self.short[len('MultiTask') :]}")
        return targets

    def learner(self, estimator: Any, y: Array, classes: Any) -> SeveralTargets:
        return SeveralTargets(y.shape[1], by_rows=True)


class GlumRow(Regression):
    """glum's GeneralizedLinearRegressor: targets of its binomial family are 0 and 1, its factors P1 and P2."""

    def factors(self, estimator: Any) -> tuple[Any, Any]:
        found = []
        for name in ("P1", "P2"):
            given = getattr(estimator, name)
            known = {None: 0.0, "identity": 1.0}.get(given) if given is None or isinstance(given, str) else given
            factors = np.asarray(np.nan if known is None else known, dtype=np.float64)
            odd = factors.ndim > 1 or not (factors >= 0.0).all()
            refuse(odd, f"{name} must be 'identity' or one factor for each feature, none negative")
            found.append(factors)
        return found[0], found[1]

    def objective(self, estimator: Any, y: Any, weights: Array) -> Objective:
        refuse(getattr(estimator, "lower_bounds", None) is not None, "lower_bounds is not supported")
        found = super().objective(estimator, y, weights)
        if found.psi is not LOGISTIC:
            return found
        refuse(not np.isin(found.targets, (0.0, 1.0)).all(), "its targets are neither 0 nor 1")
        return replace(found, targets=np.where(found.targets == 1.0, 1.0, -1.0))


def of_hazards(estimator: Any, ties: str, penalties: tuple[Any, Any], y: Any, weights: Array) -> Objective:
    """What a fitted Cox model has minimised."""
    columns = getattr(estimator, "_columns", None)
    l1, l2 = (one if columns is None or np.ndim(one) == 0 else columns.placed(one) for one in penalties)
    coef = np.array(estimator.coef_, dtype=np.float64).ravel()
    return Objective(Hazards(ties), l1, l2, coef, 0.0, signed_times(y), weights, columns=columns)


class CoxRow(Regression):
    """scikit-survival's: with a ridge, whose alpha may be one for each feature, or with a path of alphas."""

    def objective(self, estimator: Any, y: Any, weights: Array) -> Objective:
        if self.share is None:
            alphas, factors = np.ravel(estimator.alphas_), np.asarray(estimator.penalty_factor_, dtype=np.float64)
            refuse(len(alphas) != 1, f"it has coefficients for {len(alphas)} alphas: fit it with one, alphas=[0.1]")
            r, ties = float(estimator.l1_ratio), "breslow"
            both: tuple[Any, Any] = float(alphas[0]) * r * factors, float(alphas[0]) * (1.0 - r) * factors
        else:
            alpha = np.asarray(estimator.alpha, dtype=np.float64)
            alpha = np.broadcast_to(alpha if np.any(alpha >= EPS) else 0.0, np.shape(estimator.coef_))
            ties, both = estimator.ties, (0.0, alpha / len(weights))
        return of_hazards(estimator, ties, both, y, weights)


_CHOICE = "alphas cv eps n_alphas"  # how a penalty is chosen; the fitted model has the chosen one
_DESCENT = "precompute selection"
_LARS = "eps fit_path precompute"
_SGD = "alpha average early_stopping fit_intercept l1_ratio learning_rate loss penalty"
_SGD_WAY = "epsilon eta0 n_iter_no_change power_t shuffle validation_fraction"  # epsilon: of losses that are refused
_SGD_TAKES: dict[str, tuple[Any, ...]] = {
    "early_stopping": (False,),  # with it, rows are held back, and nobody can tell which
    "learning_rate": ("constant", "optimal", "invscaling", "adaptive"),
    "penalty": ("l2", "l1", "elasticnet", None),
}
_OF_SGD: Any = {"strength": Strength("alpha", by_row=True), "psi": descent, "share": None, "taken": _SGD_TAKES}
_LOGISTIC = "class_weight fit_intercept intercept_scaling penalty solver"
_OF_LOGISTIC: dict[str, tuple[Any, ...]] = {
    "solver": ("lbfgs", "liblinear", "newton-cg", "newton-cholesky", "sag", "saga"),
    "penalty": ("deprecated", "l2", "l1", "elasticnet", None),
}
_OF_SVC = {"multi_class": ("ovr",), "penalty": ("l2", "l1")}  # crammer_singer is another loss
_COUNTS, _COSTS = ("neg_mean_poisson_deviance",), ("neg_mean_gamma_deviance",)
_SHARED: Any = {"rows": "shared", "several": True}
_CHOSEN: Any = {"use": "certified"}
_GLM: Any = {"rows": "in blocks", "puts": OWN_LINK}
_SKGLM = "max_epochs p0 ws_strategy"
_OF_SKGLM: Any = {"weighted": False, "rows": "shared", "leaves": GAP}
_CELER = "max_epochs p0 precompute prune"
_OF_CELER: dict[str, tuple[Any, ...]] = {"fit_intercept": (False,), "penalty": ("l1",)}
_GLUM = "A_ineq P1 P2 b_ineq family fit_intercept formula l1_ratio link lower_bounds monotonic_constraints"
_GLUM += " scale_predictors upper_bounds"
_GLUM_WAY = "alphas cat_missing_method cat_missing_name categorical_format check_input drop_first expected_information"
_GLUM_WAY += " force_all_finite gradient_tol hessian_approx interaction_separator max_inner_iter min_alpha"
_GLUM_WAY += " min_alpha_ratio n_alphas robust selection solver start_params step_size_tol"
_NONE = ("upper_bounds", "A_ineq", "b_ineq", "monotonic_constraints", "formula")
_OF_GLUM = {**dict.fromkeys(_NONE, (None,)), "scale_predictors": (False,), "alpha_search": (False,)}

make_known(
    Regression("sklearn.LinearRegression", "fit_intercept positive", strength=None, use="certified"),
    Regression(
        "sklearn.ElasticNet", "alpha fit_intercept l1_ratio positive", _DESCENT, share=None, leaves=GAP, **_SHARED
    ),
    Regression("sklearn.Lasso", "alpha fit_intercept positive", _DESCENT, share=1.0, leaves=GAP, **_SHARED),
    Regression("sklearn.Ridge", "alpha fit_intercept positive", "solver", SUM, leaves=OF_RIDGE, **_SHARED),
    Regression(
        "sklearn.RidgeCV", "fit_intercept", "alpha_per_target alphas cv gcv_mode scoring store_cv_results", SUM,
        **_CHOSEN,
    ),
    Regression("sklearn.LassoCV", "fit_intercept positive", f"{_CHOICE} {_DESCENT}", share=1.0, **_CHOSEN),
    Regression(
        "sklearn.LassoLars", "alpha fit_intercept jitter positive", _LARS, share=1.0, taken={"jitter": (None,)},
        **_CHOSEN,
    ),
    Regression("sklearn.LassoLarsCV", "fit_intercept positive", f"cv max_n_alphas {_LARS}", share=1.0, **_CHOSEN),
    Regression(
        "sklearn.ElasticNetCV", "fit_intercept l1_ratio positive", f"{_CHOICE} {_DESCENT}", share=None, **_CHOSEN
    ),
    MultiTaskRow(
        "sklearn.MultiTaskElasticNet", "alpha fit_intercept l1_ratio", _DESCENT, share=None, weighted=False,
        several=True, leaves=GAP_OF_SEVERAL, use="tuned",
    ),
    MultiTaskRow(
        "sklearn.MultiTaskLasso", "alpha fit_intercept", _DESCENT, share=1.0, weighted=False, several=True,
        leaves=GAP_OF_SEVERAL, use="tuned",
    ),
    Regression("sklearn.PoissonRegressor", "alpha fit_intercept", "solver", psi=POISSON, scorings=_COUNTS, **_GLM),
    Regression("sklearn.GammaRegressor", "alpha fit_intercept", "solver", psi=GAMMA, scorings=_COSTS, **_GLM),
    Regression(
        "sklearn.TweedieRegressor", "alpha fit_intercept link power", "solver", psi=tweedie_loss, scorings=(), **_GLM
    ),
    QuantileRow(
        "sklearn.QuantileRegressor", "alpha fit_intercept quantile", "solver solver_options", share=1.0,
        psi=lambda estimator: Quantile(float(estimator.quantile)), scorings=("neg_mean_pinball_loss",),
        leaves=SMOOTHING, use="tuned",
    ),
    LogisticRegressionRow(
        "sklearn.LogisticRegression", f"C dual l1_ratio {_LOGISTIC}", "", C, share=None,
        taken=_OF_LOGISTIC, many=True, leaves=ARRAY_OF_STEPS,
    ),
    LogisticRegressionRow(
        "sklearn.LogisticRegressionCV", f"refit {_LOGISTIC}", "Cs cv dual l1_ratios scoring use_legacy_attributes", C,
        share=None, taken=_OF_LOGISTIC, many=True, use="certified",
    ),
    Classification(
        "sklearn.LinearSVC", "C class_weight fit_intercept intercept_scaling loss multi_class penalty", "dual", C,
        share=None, psi=squared_hinge, scorings=("neg_squared_hinge",), taken=_OF_SVC, puts=LIBLINEAR,
    ),
    Classification(
        "sklearn.RidgeClassifier", "alpha class_weight fit_intercept positive", "solver", SUM, psi=SQUARED,
        taken={"positive": (False,)},
        scorings=("neg_squared_margin_error",), rows="in blocks", by_rows=True, puts=SIGNS,
        leaves=OF_RIDGE,
    ),
    Classification(
        "sklearn.RidgeClassifierCV", "class_weight fit_intercept", "alphas cv scoring store_cv_results", SUM,
        psi=SQUARED, by_rows=True, use="certified",
    ),
    Regression("sklearn.SGDRegressor", _SGD, _SGD_WAY, **_OF_SGD, **_CHOSEN),
    Classification("sklearn.SGDClassifier", f"{_SGD} class_weight", _SGD_WAY, by_rows=True, **_OF_SGD, **_CHOSEN),
    Regression("skglm.Lasso", "alpha fit_intercept positive", _SKGLM, share=1.0, **_OF_SKGLM),
    Regression("skglm.ElasticNet", "alpha fit_intercept l1_ratio positive", _SKGLM, share=None, **_OF_SKGLM),
    Regression("skglm.WeightedLasso", "alpha fit_intercept positive weights", _SKGLM, share=1.0, **_CHOSEN),
    Classification(
        "skglm.SparseLogisticRegression", "alpha fit_intercept l1_ratio", _SKGLM, share=None, weighted=False
    ),
    Regression("celer.Lasso", "alpha fit_intercept positive weights", _CELER, share=1.0, **_CHOSEN),
    Regression("celer.LassoCV", "fit_intercept positive", f"{_CHOICE} {_CELER}", share=1.0, **_CHOSEN),
    Regression("celer.ElasticNet", "alpha fit_intercept l1_ratio positive weights", _CELER, share=None, **_CHOSEN),
    Regression("celer.ElasticNetCV", "fit_intercept l1_ratio positive", f"{_CHOICE} {_CELER}", share=None, **_CHOSEN),
    Classification(
        "celer.LogisticRegression", "C fit_intercept penalty", f"solver {_CELER}", C, share=1.0, taken=_OF_CELER,
        **_CHOSEN,
    ),
    GlumRow(
        "glum.GeneralizedLinearRegressor", f"alpha alpha_search {_GLUM}", _GLUM_WAY, share=None, psi=glum_loss,
        taken=_OF_GLUM, **_CHOSEN,
    ),
    GlumRow(
        "glum.GeneralizedLinearRegressorCV", _GLUM, f"cv {_GLUM_WAY}", share=None, psi=glum_loss, taken=_OF_GLUM,
        **_CHOSEN,
    ),
    CoxRow("sksurv.CoxPHSurvivalAnalysis", "alpha ties", "n_iter", weighted=False, **_CHOSEN),
    CoxRow(
        "sksurv.CoxnetSurvivalAnalysis", "alphas l1_ratio normalize penalty_factor",
        "alpha_min_ratio fit_baseline_model n_alphas", share=None, weighted=False, taken={"normalize": (False,)},
        **_CHOSEN,
    ),
)  # fmt: skip
