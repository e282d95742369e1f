"""The models that a table may be given, by the names of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class NamedModel:
    """What a model is for, in words, its estimator with the iterations that a final fit needs, and the penalties that
    are tuned, over ranges that the data give."""

    task: Task
    words: str
    estimator: str  # of scikit-learn, or `ElasticNetGLM`
    params: Mapping[str, Any]
    penalties: tuple[str, ...] = ("l1", "l2")
    known: tuple[str, ...] = ()  # parts of the linear predictor that a column may give


_SAGA = {"solver": "saga", "max_iter": 5000}
_LOG = ("exposure", "offset")
MODELS = {
    "logistic": NamedModel(
        "classification", "logistic regression, l1 and l2 penalty", "LogisticRegression", {"l1_ratio": 0.5, **_SAGA},
    ),
    "logistic-l1": NamedModel(
        "classification", "logistic regression, l1 penalty", "LogisticRegression", {"l1_ratio": 1.0, **_SAGA}, ("l1",),
    ),
    "logistic-l2": NamedModel(
        "classification", "logistic regression, l2 penalty", "LogisticRegression", {"max_iter": 5000}, ("l2",),
    ),
    "svm": NamedModel(
        "classification", "linear support vector machine, l2 penalty, two classes", "LinearSVC", {"max_iter": 10_000},
        ("l2",),
    ),
    "elastic-net": NamedModel(
        "regression", "linear regression, l1 and l2 penalty", "ElasticNet", {"max_iter": 50_000},
    ),
    "lasso": NamedModel("regression", "linear regression, l1 penalty", "Lasso", {"max_iter": 50_000}, ("l1",)),
    "ridge": NamedModel("regression", "linear regression, l2 penalty", "Ridge", {}, ("l2",)),
    "poisson": NamedModel(
        "regression", "Poisson regression of counts, l2 penalty", "PoissonRegressor", {"max_iter": 1000}, ("l2",), _LOG,
    ),
    "gamma": NamedModel(
        "regression", "Gamma regression of positive numbers, l1 and l2 penalty", "ElasticNetGLM", {"family": "gamma"},
        known=_LOG,
    ),
    "tweedie": NamedModel(
        "regression", "Tweedie regression of costs, many of them 0, l1 and l2 penalty", "ElasticNetGLM",
        {"family": "tweedie"}, known=_LOG,
    ),
    "negative-binomial": NamedModel(
        "regression", "negative-binomial regression of counts, l1 and l2 penalty", "ElasticNetGLM",
        {"family": "negative_binomial"}, known=_LOG,
    ),
    "cox": NamedModel(
        "regression", "Cox's proportional hazards for times until an event, l1 and l2 penalty", "ElasticNetGLM",
        {"family": "cox"}, known=("offset",),
    ),
}  # fmt: skip
POSITIVE = ("gamma", "tweedie", "negative-binomial", "poisson")  # whose targets must not be negative
SIGNED = ("elastic-net", "lasso", "ridge", *POSITIVE)  # whose coefficients may be kept from being negative
USUAL: dict[Task, str] = {"classification": "logistic", "regression": "elastic-net"}


def estimator_of(model: str, known: dict[str, Any] | None = None, non_negative: bool = False) -> Any:
    """`known` says which columns of X are the exposure and the offset; `non_negative` is for the models in SIGNED."""
    from sklearn import linear_model, svm

    from suffice.sklearn import ElasticNetGLM

    name, special = MODELS[model].estimator, {**(known or {}), **({"positive": True} if non_negative else {})}
    if model == "poisson" and special:  # of which scikit-learn's own has none
        return ElasticNetGLM("poisson", l1=0.0, **special)
    kinds: dict[str, Any] = {"ElasticNetGLM": ElasticNetGLM, "LinearSVC": svm.LinearSVC}
    return (kinds.get(name) or getattr(linear_model, name))(**MODELS[model].params, **special)
