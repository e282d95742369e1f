"""The arguments of constructors that have been read here: what `suffice` says is about the model that one has.

For each class, those on which the minimiser depends (readers and adapters deal with all their values, or refuse them),
then those that decide how it is found or reported. An argument in neither list is new: nobody has read what it does,
and any value but its default is refused by name. `_TAKEN` has arguments of which readers and adapters understand some
values only, whatever else the estimator is.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

# What these mean is the same for all estimators: how far and how the solver goes, never whereto.
_EVERYWHERE = "copy_X max_iter n_jobs random_state tol verbose warm_start"
_CHOICE = "alphas cv eps n_alphas"  # how a penalty is chosen; the fitted model has the chosen one
_DESCENT = "precompute selection"
_SGD = "alpha average early_stopping fit_intercept l1_ratio learning_rate loss penalty"
_SGD_WAY = "epsilon eta0 n_iter_no_change power_t shuffle validation_fraction"  # epsilon: of losses that are refused
_LARS_WAY = "eps fit_path precompute"
_SKGLM_WAY = "max_epochs p0 ws_strategy"
_CELER_WAY = "max_epochs p0 precompute prune"
_GLUM = "A_ineq P1 P2 b_ineq family fit_intercept formula l1_ratio link lower_bounds monotonic_constraints"
_GLUM += " scale_predictors upper_bounds"
_GLUM_WAY = "alphas cat_missing_method cat_missing_name categorical_format check_input drop_first expected_information"
_GLUM_WAY += " force_all_finite gradient_tol hessian_approx interaction_separator max_inner_iter min_alpha"
_GLUM_WAY += " min_alpha_ratio n_alphas robust selection solver start_params step_size_tol"
_SVM_WAY = "cache_size shrinking"

READ: dict[str, tuple[str, str]] = {
    "sklearn.LinearRegression": ("fit_intercept positive", ""),
    "sklearn.Ridge": ("alpha fit_intercept positive", "solver"),
    "sklearn.RidgeCV": ("fit_intercept", "alpha_per_target alphas cv gcv_mode scoring store_cv_results"),
    "sklearn.Lasso": ("alpha fit_intercept positive", _DESCENT),
    "sklearn.LassoCV": ("fit_intercept positive", f"{_CHOICE} {_DESCENT}"),
    "sklearn.LassoLars": ("alpha fit_intercept jitter positive", _LARS_WAY),
    "sklearn.LassoLarsCV": ("fit_intercept positive", f"cv max_n_alphas {_LARS_WAY}"),
    "sklearn.ElasticNet": ("alpha fit_intercept l1_ratio positive", _DESCENT),
    "sklearn.ElasticNetCV": ("fit_intercept l1_ratio positive", f"{_CHOICE} {_DESCENT}"),
    "sklearn.MultiTaskElasticNet": ("alpha fit_intercept l1_ratio", _DESCENT),
    "sklearn.MultiTaskLasso": ("alpha fit_intercept", _DESCENT),
    "sklearn.PoissonRegressor": ("alpha fit_intercept", "solver"),
    "sklearn.GammaRegressor": ("alpha fit_intercept", "solver"),
    "sklearn.TweedieRegressor": ("alpha fit_intercept link power", "solver"),
    "sklearn.HuberRegressor": ("alpha epsilon fit_intercept", ""),
    "sklearn.QuantileRegressor": ("alpha fit_intercept quantile", "solver solver_options"),
    "sklearn.SGDRegressor": (_SGD, _SGD_WAY),
    "sklearn.SGDClassifier": (f"{_SGD} class_weight", _SGD_WAY),
    "sklearn.LogisticRegression": ("C class_weight dual fit_intercept intercept_scaling l1_ratio penalty solver", ""),
    "sklearn.LogisticRegressionCV": (
        "class_weight fit_intercept intercept_scaling penalty refit solver",
        "Cs cv dual l1_ratios scoring use_legacy_attributes",
    ),
    "sklearn.LinearSVC": ("C class_weight fit_intercept intercept_scaling loss multi_class penalty", "dual"),
    "sklearn.RidgeClassifier": ("alpha class_weight fit_intercept positive", "solver"),
    "sklearn.RidgeClassifierCV": ("class_weight fit_intercept", "alphas cv scoring store_cv_results"),
    "sklearn.SVC": (
        "C class_weight coef0 degree gamma kernel probability",
        f"break_ties decision_function_shape {_SVM_WAY}",
    ),
    "sklearn.SVR": ("C coef0 degree epsilon gamma kernel", _SVM_WAY),
    "sklearn.KernelRidge": ("alpha coef0 degree gamma kernel", "kernel_params"),  # those of a kernel of one's own
    "suffice.ElasticNetGLM": (
        "entry exposure family fit_intercept group_share groups l1 l2 offset penalty_factors positive power strata "
        "theta ties",
        "",
    ),
    "skglm.Lasso": ("alpha fit_intercept positive", _SKGLM_WAY),
    "skglm.ElasticNet": ("alpha fit_intercept l1_ratio positive", _SKGLM_WAY),
    "skglm.WeightedLasso": ("alpha fit_intercept positive weights", _SKGLM_WAY),
    "skglm.GroupLasso": ("alpha fit_intercept groups positive weights", _SKGLM_WAY),
    "skglm.MultiTaskLasso": ("alpha fit_intercept", _SKGLM_WAY),
    "skglm.SparseLogisticRegression": ("alpha fit_intercept l1_ratio", _SKGLM_WAY),
    "celer.Lasso": ("alpha fit_intercept positive weights", _CELER_WAY),
    "celer.LassoCV": ("fit_intercept positive", f"{_CHOICE} {_CELER_WAY}"),
    "celer.ElasticNet": ("alpha fit_intercept l1_ratio positive weights", _CELER_WAY),
    "celer.ElasticNetCV": ("fit_intercept l1_ratio positive", f"{_CHOICE} {_CELER_WAY}"),
    "celer.LogisticRegression": ("C fit_intercept penalty", f"solver {_CELER_WAY}"),
    "glum.GeneralizedLinearRegressor": (f"alpha alpha_search {_GLUM}", _GLUM_WAY),
    "glum.GeneralizedLinearRegressorCV": (_GLUM, f"cv {_GLUM_WAY}"),
    "sksurv.CoxPHSurvivalAnalysis": ("alpha ties", "n_iter"),
    "sksurv.CoxnetSurvivalAnalysis": (
        "alphas fit_baseline_model l1_ratio normalize penalty_factor",
        "alpha_min_ratio n_alphas",
    ),
}

_OF_SGD: dict[str, tuple[Any, ...]] = {
    "early_stopping": (False,),  # with it, rows are held back, and nobody can tell which
    "learning_rate": ("constant", "optimal", "invscaling", "adaptive"),
    "penalty": ("l2", "l1", "elasticnet", None),
}
_OF_LOGISTIC: dict[str, tuple[Any, ...]] = {
    "solver": ("lbfgs", "liblinear", "newton-cg", "newton-cholesky", "sag", "saga"),
    "penalty": ("deprecated", "l2", "l1", "elasticnet", None),
}
_TAKEN: dict[str, dict[str, tuple[Any, ...]]] = {
    "sklearn.SGDRegressor": _OF_SGD,
    "sklearn.SGDClassifier": _OF_SGD,
    "sklearn.LogisticRegression": _OF_LOGISTIC,
    "sklearn.LogisticRegressionCV": _OF_LOGISTIC,
    "sklearn.LinearSVC": {"multi_class": ("ovr",), "penalty": ("l2", "l1")},  # crammer_singer is another loss
    "celer.LogisticRegression": {"fit_intercept": (False,), "penalty": ("l1",)},
}


def name_of(kind: type) -> str:
    """Package and class, whatever modules of the package it has come through."""
    return f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"


def misunderstood(estimator: Any) -> str | None:
    """The first argument whose value is not understood here, and the way out; None if there is none. Arguments that a
    derived class has added are its own affair."""
    kind = next((one for one in type(estimator).__mro__ if name_of(one) in READ), None)
    if kind is None:
        return None
    known = {*_EVERYWHERE.split(), *" ".join(READ[name_of(kind)]).split()}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = getattr(estimator, name, parameter.default)
        here, taken = f"{kind.__name__}({name}={value!r})", _TAKEN.get(name_of(kind), {}).get(name)
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
