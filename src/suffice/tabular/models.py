"""The models that a table may be given, by the names of the command line: estimators, and ranges of their penalties."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from sklearn.linear_model import ElasticNet, HuberRegressor, Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.svm import LinearSVC

from suffice.arrays import norm
from suffice.sklearn import ElasticNetGLM
from suffice.tabular.entries import Array

Task = Literal["classification", "regression"]

# The task, what it is, and what a known part of its linear predictor may be: an offset, or an exposure as well (log).
MODELS: dict[str, tuple[Task, str, str]] = {
    "logistic": ("classification", "logistic regression, l1 and l2 penalty", ""),
    "logistic-l1": ("classification", "logistic regression, l1 penalty", ""),
    "logistic-l2": ("classification", "logistic regression, l2 penalty", ""),
    "svm": ("classification", "linear support vector machine, l2 penalty, two classes", ""),
    "elastic-net": ("regression", "linear regression, l1 and l2 penalty", ""),
    "lasso": ("regression", "linear regression, l1 penalty", ""),
    "ridge": ("regression", "linear regression, l2 penalty", ""),
    "huber": ("regression", "Huber's regression, which outliers cannot pull far, l2 penalty", ""),
    "poisson": ("regression", "Poisson regression of counts, l2 penalty", "log"),
    "gamma": ("regression", "Gamma regression of positive numbers, l1 and l2 penalty", "log"),
    "tweedie": ("regression", "Tweedie regression of costs, many of them 0, l1 and l2 penalty", "log"),
    "negative-binomial": ("regression", "negative-binomial regression of counts, l1 and l2 penalty", "log"),
    "cox": ("regression", "Cox's proportional hazards for times until an event, l1 and l2 penalty", "offset"),
}
POSITIVE = ("gamma", "tweedie", "negative-binomial", "poisson")  # whose targets must not be negative
SIGNED = ("elastic-net", "lasso", "ridge", *POSITIVE)  # whose coefficients may be kept from being negative
USUAL: dict[Task, str] = {"classification": "logistic", "regression": "elastic-net"}

Space = dict[str, tuple[float, float]]


def estimator_of(model: str, known: dict[str, Any] | None = None, non_negative: bool = False) -> Any:
    """Where the final fit is scikit-learn's, it is allowed the iterations that it needs. `known` says which columns of
    X are the exposure and the offset; `non_negative` is for the models in SIGNED."""
    if model in ("gamma", "tweedie", "negative-binomial", "cox"):
        return ElasticNetGLM(model.replace("-", "_"), positive=non_negative, **(known or {}))
    if known or (non_negative and model == "poisson"):
        return ElasticNetGLM(model, l1=0.0, positive=non_negative, **(known or {}))
    if non_negative:
        return estimator_of(model).set_params(positive=True)
    match model:
        case "logistic":
            return LogisticRegression(l1_ratio=0.5, solver="saga", max_iter=5000)
        case "logistic-l1":
            return LogisticRegression(l1_ratio=1.0, solver="saga", max_iter=5000)
        case "logistic-l2":
            return LogisticRegression(max_iter=5000)
        case "svm":
            return LinearSVC(max_iter=10_000)
        case "elastic-net":
            return ElasticNet(max_iter=50_000)
        case "lasso":
            return Lasso(max_iter=50_000)
        case "ridge":
            return Ridge()
        case "huber":
            return HuberRegressor(max_iter=10_000)
        case "poisson":
            return PoissonRegressor(max_iter=1000)
    raise ValueError(f"model must be one of {', '.join(MODELS)}, got {model!r}")


def spread(y: Array) -> float:
    """The standard deviation, also where squares underflow."""
    return norm(y - np.mean(y)) / math.sqrt(len(y))


def space_of(model: str, y: Array) -> Space:
    """Ranges of the penalties. l1 is in units of the target, and so is l2 for counts; Huber's l2 is in inverse ones."""
    usual = (1e-6, 1e2)
    match model:
        case "logistic":
            return {"l1": usual, "l2": usual}
        case "logistic-l1":
            return {"l1": usual}
        case "elastic-net" | "lasso":
            scale = spread(y) or 1.0
            l1 = (1e-6 * scale, 1e1 * scale)
            return {"l1": l1} if model == "lasso" else {"l1": l1, "l2": usual}
        case "huber":
            scale = spread(y) or 1.0
            return {"l2": (1e-6 / scale, 1e2 / scale)}
        case "poisson":
            scale = float(np.mean(y)) or 1.0
            return {"l2": (1e-6 * scale, 1e2 * scale)}
        case "gamma" | "negative-binomial" | "cox":
            return {"l1": (1e-6, 1e1), "l2": usual}
        case "tweedie":
            scale = float(np.sqrt(np.mean(y))) or 1.0  # of the deviance, for power 1.5
            return {"l1": (1e-6 * scale, 1e1 * scale), "l2": (1e-6 * scale, 1e2 * scale)}
    return {"l2": usual}
