"""Every argument of every estimator that is known has been read: what is said is about the model that one has."""

import inspect
import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import (
    Lasso,
    LassoLars,
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.svm import LinearSVC
from sklearn.utils import all_estimators

import suffice
from suffice.sklearn import ElasticNetGLM, SufficeSearchCV, adapters
from suffice.sklearn.adapters import EVERYWHERE, ROWS, misunderstood, name_of

FEW = suffice.Options(max_evaluations=5, final_radius=1e-2)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
REAL = X[:, 0] + 0.5 * RNG.standard_normal(60)
TWO = (REAL > 0.0).astype(int)
WEIGHT = RNG.uniform(0.1, 1.0, 60) * np.where(TWO == 1, 5.0, 1.0)

HERE = {name_of(kind): kind for kind in (*(kind for _, kind in all_estimators()), ElasticNetGLM)}
ELSEWHERE = {"skglm": "skglm", "celer": "celer", "glum": "glum", "sksurv": "sksurv.linear_model"}


def class_of(name):
    package, _, short = name.partition(".")
    if package in ELSEWHERE:
        return getattr(pytest.importorskip(ELSEWHERE[package]), short)
    return HERE[name]


@pytest.mark.parametrize("name", ROWS)
def test_every_argument_of_the_constructor_has_been_read(name):
    """If this fails, an estimator has a new argument: read what it does, deal with it in the reader and the adapter of
    the class, and only then put it into its row."""
    known = {*EVERYWHERE.split(), *ROWS[name].read.split(), *ROWS[name].way.split()}
    assert set(inspect.signature(class_of(name)).parameters) <= known


def test_every_estimator_that_is_certified_or_tuned_has_its_arguments_read():
    tuned = {name_of(kind) for kind in adapters._ADAPTERS if kind.__module__.startswith(("sklearn.", "suffice."))}
    foreign = {name for name in adapters._READERS if name.startswith(("sklearn.", "suffice.", *ELSEWHERE))}
    assert tuned | foreign <= set(ROWS)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.taken and name.startswith("sklearn")])
def test_of_arguments_with_a_list_of_values_only_these_are_taken(name):
    for argument, values in ROWS[name].taken.items():
        for value in values:
            assert misunderstood(class_of(name)(**{argument: value})) is None
        found = misunderstood(class_of(name)(**{argument: "otherwise"}))
        assert found.startswith(f"{name.removeprefix('sklearn.')}({argument}='otherwise')") and "use" in found


@pytest.mark.parametrize("value", ["of a later version", 2, np.ones(3)], ids=["text", "number", "array"])
def test_an_argument_that_nobody_has_read_is_taken_at_its_default_only(monkeypatch, value):
    row = replace(ROWS["sklearn.Ridge"], read="fit_intercept alpha")  # `positive` has come since
    monkeypatch.setitem(ROWS, "sklearn.Ridge", row)
    assert suffice.certify(Ridge(solver="svd").fit(X, REAL), X, REAL).told
    SufficeSearchCV(Ridge(), cv=3, options=FEW).fit(X, REAL)
    model = Ridge().fit(X, REAL).set_params(positive=value)
    report = suffice.certify(model, X, REAL)
    assert not report.told and f"Ridge(positive={value!r}) is new here" in report.message
    assert "use positive=False, its default" in report.message
    with pytest.raises(ValueError, match=re.escape(f"Ridge(positive={value!r}) is new here")):
        SufficeSearchCV(model, cv=3, options=FEW).fit(X, REAL)


def test_arguments_that_a_derived_class_has_added_are_its_own_affair():
    class Mine(Lasso):
        def __init__(self, alpha=1.0, colour="red", **others):
            super().__init__(alpha, **others)
            self.colour = colour

    assert misunderstood(Mine(colour="blue")) is None


@pytest.mark.parametrize(
    ("estimator", "y", "reason"),
    [
        (LinearSVC(multi_class="crammer_singer"), TWO, "multi_class='crammer_singer'"),
        (SGDClassifier(loss="log_loss", early_stopping=True), TWO, "early_stopping=True"),
        (SGDRegressor(early_stopping=True), REAL, "early_stopping=True"),
    ],
    ids=["crammer_singer", "sgd classifier", "sgd regressor"],
)
def test_another_model_under_the_same_name_is_neither_certified_nor_tuned(estimator, y, reason):
    report = suffice.certify(clone(estimator).fit(X, y), X, y)
    assert not report.told and reason in report.message and "use " in report.message
    with pytest.raises(
        (TypeError, ValueError), match=re.escape(reason) if isinstance(estimator, LinearSVC) else "use "
    ):
        SufficeSearchCV(estimator, cv=3, options=FEW).fit(X, y)


def test_weights_of_samples_are_refused_for_a_model_whose_fit_takes_none():
    model = LassoLars(alpha=0.01).fit(X, REAL)
    assert suffice.certify(model, X, REAL).relative < 1e-9
    report = suffice.certify(model, X, REAL, WEIGHT)
    assert not report.told and "sample_weight, which its fit does not take: leave it out" in report.message


def test_the_final_fit_of_logistic_regression_cv_ignores_intercept_scaling():
    def chosen(**given):
        model = LogisticRegressionCV(
            Cs=[0.1], l1_ratios=(0.0,), solver="liblinear", tol=1e-12, max_iter=10_000, cv=3, random_state=0,
            use_legacy_attributes=False, scoring="neg_log_loss", **given,
        )  # fmt: skip
        return suffice.certify(model.fit(X, TWO), X, TWO)

    assert chosen().relative < 1e-6 and chosen(fit_intercept=False, intercept_scaling=3.0).relative < 1e-6
    report = chosen(intercept_scaling=3.0)
    assert not report.told and "intercept_scaling=3.0" in report.message


def test_an_estimator_that_tunes_itself_is_not_taken_for_what_it_is_derived_from():
    with pytest.raises(TypeError, match="use LogisticRegression, which is what it tunes"):
        SufficeSearchCV(LogisticRegressionCV(), cv=3).fit(X, TWO)


@pytest.mark.parametrize(
    ("estimator", "space"),
    [
        (RidgeClassifier(class_weight="balanced"), {"alpha": (1e-3, 1e3)}),
        (LogisticRegression(class_weight="balanced", tol=1e-12), {"C": (1e-3, 1e3)}),
        (LinearSVC(class_weight="balanced", tol=1e-12, max_iter=1_000_000), {"C": (1e-3, 1e3)}),
    ],
    ids=lambda one: type(one).__name__,
)
def test_balanced_classes_with_weights_of_samples_are_those_of_scikit_learn(estimator, space):
    search = SufficeSearchCV(estimator, space, cv=3, options=FEW).fit(X, TWO, sample_weight=WEIGHT)
    theirs = clone(estimator).set_params(**search.best_params_).fit(X, TWO, sample_weight=WEIGHT)
    assert np.allclose(search.decision_function(X), theirs.decision_function(X), atol=1e-4)
