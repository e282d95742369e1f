"""Anybody's fitted linear model beside the exact minimiser of its own objective, found in extended precision."""

import math
import types
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import log_softmax
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import (
    ElasticNet,
    ElasticNetCV,
    Lasso,
    LassoCV,
    LassoLars,
    LassoLarsCV,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    MultiTaskLasso,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
    SGDClassifier,
    SGDRegressor,
    TweedieRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, TargetEncoder
from sklearn.svm import SVC, LinearSVC

import suffice
from suffice.models.margin_losses import SQUARED
from suffice.sklearn import CannotTellError, Objective, SufficeSearchCV, adapters, register_objective
from suffice.sklearn.adapters import objective_of
from tests.reference_exact import truth

LONG = np.longdouble
TIGHT = {"tol": 1e-12, "max_iter": 100_000}

rng = np.random.default_rng(0)
N = 90
X = rng.standard_normal((N, 5)) * [1.0, 1.0, 3.0, 0.3, 1.0] + [0.5, 0.0, 2.0, 0.0, 0.0]
X[:, 4] += 0.9 * X[:, 0]
signal = X @ [1.0, -0.7, 0.0, 1.0, 0.05]
REAL = signal + rng.standard_normal(N) + 6.0 * (rng.random(N) < 0.1)
TWO = np.array(["no", "yes"])[(signal + rng.standard_normal(N) > 0.3).astype(int)]
THREE = np.array(["a", "b", "c"])[np.digitize(signal + rng.standard_normal(N), [-0.5, 1.0])]
COUNTS = rng.poisson(np.exp(0.5 * signal)).astype(float)
WEIGHT = rng.uniform(0.0, 3.0, N)
WEIGHT[:3] = 0.0

# psi, psi', psi'' of margins in extended precision
PSI = {
    "Squared": (lambda m, y: (m - y) ** 2 / 2, lambda m, y: m - y, lambda m, y: 0 * m + 1),
    "Logistic": (
        lambda m, y: np.logaddexp(LONG(0), -y * m),
        lambda m, y: -y / (1 + np.exp(y * m)),
        lambda m, y: 1 / (2 + np.exp(m) + np.exp(-m)),
    ),
    "SquaredHinge": (
        lambda m, y: np.maximum(0, 1 - y * m) ** 2,
        lambda m, y: -2 * y * np.maximum(0, 1 - y * m),
        lambda m, y: 2 * (y * m < 1).astype(LONG),
    ),
    "Poisson": (lambda m, y: np.exp(m) - y * m, lambda m, y: np.exp(m) - y, lambda m, y: np.exp(m)),
}


class Exact:
    """The minimiser of an `Objective`: Newton's method from our solver's answer with gradients in extended precision,
    and the optimality conditions checked at its end."""

    def __init__(self, fit, rows):
        rows = rows.toarray() if sp.issparse(rows) else np.asarray(rows)
        extra = {"free": 1.0, "column": fit.scaling}.get(fit.kind)
        A = (rows if extra is None else np.hstack([rows, np.full((len(rows), 1), extra)])).astype(LONG)
        y, a = fit.targets.astype(LONG), fit.weights.astype(LONG) / fit.weights.astype(LONG).sum()
        self.psi, slope, bend = PSI[type(fit.psi).__name__]
        penalised = np.ones(A.shape[1])
        penalised[-1:] -= fit.kind == "free"
        d = A.shape[1] - (fit.kind != "none")
        l1, l2 = (
            penalised * np.append(np.broadcast_to(each, d), [np.max(each)] * (extra is not None))
            for each in (fit.l1, fit.l2)
        )
        fold = fit.fold(rows)
        start = suffice.solve(fold.at(l1=fit.l1, l2=fit.l2), within=1e-9, max_steps=300).x
        x = np.append(start, fold.coefficients(start)[1]) if fit.kind == "free" else start
        x = x.astype(LONG)
        S = np.flatnonzero((x != 0) | (l1 == 0))
        signs = np.sign(x)
        for _ in range(60):
            m = A @ x
            u = A.T @ (a * slope(m, y)) + l2 * x + l1 * signs
            H = (A[:, S].T @ ((a * bend(m, y))[:, None] * A[:, S]) + np.diag(l2[S])).astype(float)
            x[S] -= np.linalg.solve(H, u[S].astype(float))
        u = A.T @ (a * slope(A @ x, y)) + l2 * x + l1 * np.sign(x)
        outside = np.setdiff1d(np.arange(len(x)), S)
        assert np.abs(u[S]).max(initial=0) < 1e-17 * (1 + np.abs(A.T).max() * np.abs(slope(A @ x, y)).max())
        assert np.array_equal(np.sign(x)[l1 > 0], signs[l1 > 0]) and np.all(np.abs(u[outside]) < l1[outside])
        self.w, self.b = x[:d], x[-1] * extra if extra is not None else LONG(0)
        self.m, self.a, self.y = A @ x, a, y
        self.here = rows.astype(LONG) @ fit.coef.astype(LONG) + fit.intercept

    def score(self, name):
        y, m = self.y, self.m
        each = {
            "neg_mean_squared_error": lambda: (m - y) ** 2,
            "neg_log_loss": lambda: self.psi(m, y),
            "neg_squared_hinge": lambda: self.psi(m, y),
            "neg_mean_poisson_deviance": lambda: (
                2 * (np.where(y > 0, y * (np.log(np.where(y > 0, y, 1)) - m), 0) - y + np.exp(m))
            ),
        }[name]()
        return -(self.a @ each)


def fitted(estimator, rows, y, **weights):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(rows, y, **weights)


def check(report, fit, rows, tight=1e-6):
    """All claims of a report are true, and none of them is empty. Returns the true distance."""
    exact = Exact(fit, rows)
    distance = np.sqrt(np.sum((fit.coef.astype(LONG) - exact.w) ** 2))
    size = np.sqrt(np.sum(exact.w**2))
    assert report.at_least <= distance <= report.radius
    assert distance <= report.relative * size
    assert abs(fit.intercept - exact.b) <= report.intercept_error
    apart = np.abs(exact.here - exact.m).max()
    assert apart <= report.prediction_error
    low, high = report.score_interval
    score = exact.score(report.scoring)
    assert low <= score <= high
    assert report.radius <= 1.01 * distance + tight * size and report.at_least >= 0.99 * distance - tight * size
    assert report.prediction_error <= 1.01 * apart + tight * (1 + np.abs(exact.m).max())
    assert high - low <= tight * (1 + abs(float(score)))
    return distance / size


CASES = {
    "ridge": (lambda **k: Ridge(alpha=2.0, **k), REAL, {}, {"solver": "sag", "max_iter": 3}),
    "least squares": (lambda **k: LinearRegression(**k), REAL, {}, None),
    "lasso": (lambda **k: Lasso(alpha=0.1, **k), REAL, TIGHT, {"max_iter": 1}),
    "elastic net": (lambda **k: ElasticNet(alpha=0.2, l1_ratio=0.7, **k), REAL, TIGHT, {"max_iter": 1, "tol": 0.5}),
    "logistic": (lambda **k: LogisticRegression(C=0.5, **k), TWO, TIGHT, {"max_iter": 3}),
    "logistic, none": (lambda **k: LogisticRegression(C=np.inf, **k), TWO, TIGHT, {"max_iter": 3}),
    "logistic l1": (
        lambda **k: LogisticRegression(C=0.2, l1_ratio=1.0, solver="saga", random_state=0, **k),
        TWO,
        TIGHT,
        {"max_iter": 5},
    ),
    "logistic elastic net": (
        lambda **k: LogisticRegression(C=0.3, l1_ratio=0.5, solver="saga", random_state=0, **k),
        TWO,
        TIGHT,
        {"max_iter": 5},
    ),
    "liblinear": (
        lambda **k: LogisticRegression(C=0.3, l1_ratio=1.0, solver="liblinear", intercept_scaling=2.0, **k),
        TWO,
        TIGHT | {"random_state": 0},
        {"max_iter": 2, "tol": 1e-1},
    ),
    "balanced": (lambda **k: LogisticRegression(C=0.5, class_weight="balanced", **k), TWO, TIGHT, {"max_iter": 3}),
    "svm": (
        lambda **k: LinearSVC(C=0.1, class_weight={"yes": 2.0}, random_state=0, **k),
        TWO,
        {"tol": 1e-10, "max_iter": 1_000_000},
        {"max_iter": 2},
    ),
    "svm l1": (
        lambda **k: LinearSVC(C=0.1, penalty="l1", dual=False, random_state=0, **k),
        TWO,
        {"tol": 1e-10, "max_iter": 1_000_000},
        {"max_iter": 2},
    ),
    "poisson": (lambda **k: PoissonRegressor(alpha=0.1, **k), COUNTS, TIGHT, {"max_iter": 2}),
    "poisson, none": (lambda **k: PoissonRegressor(alpha=0.0, **k), COUNTS, TIGHT, {"max_iter": 2}),
    "ridge classifier": (lambda **k: RidgeClassifier(class_weight="balanced", **k), TWO, {}, None),
    "ridge classifier, chosen": (lambda **k: RidgeClassifierCV(alphas=(0.3, 3.0), **k), TWO, {}, None),
    "tweedie, counts": (lambda **k: TweedieRegressor(power=1, alpha=0.3, **k), COUNTS, TIGHT, {"max_iter": 1}),
    "tweedie": (lambda **k: TweedieRegressor(power=0, alpha=0.3, **k), REAL, TIGHT, {"max_iter": 1}),
}


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("name", CASES)
def test_what_a_report_says_of_converged_models_is_true_and_nearly_nothing_is_open(name, weighted):
    make, y, converged, _ = CASES[name]
    given = {"sample_weight": WEIGHT} if weighted else {}
    estimator = fitted(make(**converged), X, y, **given)
    report = suffice.certify(estimator, X, y, **given)
    fit = objective_of(estimator, y, WEIGHT if weighted else np.ones(N))
    # If it were another objective that we had in mind, the distance would not be small.
    assert check(report, fit, X) < 1e-4 and report.relative < 1e-4
    assert report.message.startswith("coefficients are within ") and report.told and report.rule != "none"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[3] is not None])
def test_models_that_have_not_converged_are_shown_to_be_off_by_what_they_are(name):
    make, y, _, unconverged = CASES[name]
    estimator = fitted(make(**unconverged), X, y)
    report = suffice.certify(estimator, X, y)
    assert check(report, objective_of(estimator, y, np.ones(N)), X) > 0.01
    assert report.at_least > 0.0 and " off, at the least" in report.message
    assert "raise max_iter" in report.message or "lower tol" in report.message


@pytest.mark.parametrize("name", ["ridge", "lasso", "logistic", "logistic l1", "svm", "poisson"])
@pytest.mark.parametrize("intercept", [True, False], ids=["", "without intercept"])
def test_sparse_data_and_models_without_intercept(name, intercept):
    make, y, converged, unconverged = CASES[name]
    rows = sp.csr_array(np.where(np.abs(X) > 0.7, X, 0.0))
    for given in (converged, unconverged):
        estimator = fitted(make(**given, fit_intercept=intercept), rows, y)
        check(suffice.certify(estimator, rows, y), objective_of(estimator, y, np.ones(N)), rows)


def test_columns_of_very_different_scales_far_from_zero():
    rows = X * [1e-4, 1.0, 1e3, 1.0, 1e-2] + [0.0, 300.0, -2e4, 0.0, 1.0]
    for estimator, y in ((Ridge(), REAL), (Lasso(alpha=0.01), REAL), (LogisticRegression(), TWO)):
        estimator = fitted(estimator, rows, y)
        report = suffice.certify(estimator, rows, y)
        check(report, objective_of(estimator, y, np.ones(N)), rows, tight=1e-3)


def test_saga_with_five_iterations_says_so():
    estimator = fitted(LogisticRegression(solver="saga", max_iter=5, random_state=0), X, TWO)
    report = suffice.certify(estimator, X, TWO)
    assert "5 iterations were not enough: raise max_iter" in report.message
    percent = float(report.message.split()[2])
    exact = Exact(objective_of(estimator, TWO, np.ones(N)), X)
    assert percent <= 100 * np.linalg.norm((estimator.coef_.ravel() - exact.w).astype(float)) / np.linalg.norm(
        exact.w.astype(float)
    )


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("given", [TIGHT, {"max_iter": 4}], ids=["converged", "not"])
def test_several_classes(intercept, given):
    estimator = fitted(LogisticRegression(C=0.3, fit_intercept=intercept, **given), X, THREE, sample_weight=WEIGHT)
    report = suffice.certify(estimator, X, THREE, WEIGHT)
    fit = objective_of(estimator, THREE, WEIGHT)
    fold = fit.fold(X)
    exact = truth(fold.at(l1=fit.l1, l2=fit.l2), digits=20)
    distance = float(exact.distance(estimator.coef_.ravel()))
    assert report.at_least <= distance <= report.radius <= 1.01 * distance + 1e-5
    assert (report.relative < 1e-4) == (given is TIGHT)
    W, b = fold.coefficients(exact.rounded())
    there = X @ W.T + b
    here = estimator.decision_function(X)
    here = here - estimator.intercept_.mean()
    assert np.linalg.norm(estimator.intercept_ - estimator.intercept_.mean() - b) <= report.intercept_error + 1e-12
    assert np.abs(there - here).max() <= report.prediction_error + 1e-12
    log_loss = (WEIGHT / WEIGHT.sum()) @ log_softmax(there, axis=1)[np.arange(len(there)), fold.y.astype(int)]
    low, high = report.score_interval
    assert low - 1e-12 <= log_loss <= high + 1e-12 and high - low < 1e-5


@pytest.mark.parametrize(
    "estimator",
    [
        LassoCV(tol=1e-12, max_iter=100_000),
        LassoLars(alpha=0.1),
        LassoLarsCV(),
        ElasticNetCV(l1_ratio=[0.5, 0.9], tol=1e-12, max_iter=100_000),
        RidgeCV(alphas=(0.1, 3.0)),
        GridSearchCV(Lasso(tol=1e-12), {"alpha": [0.1, 0.3]}, cv=3),
        SufficeSearchCV(Lasso(), options=suffice.Options(max_evaluations=4, final_radius=1e-2), cv=3),
        make_pipeline(StandardScaler(), Ridge()),
        TransformedTargetRegressor(make_pipeline(StandardScaler(), Ridge()), func=np.arcsinh, inverse_func=np.sinh),
    ],
    ids=lambda one: type(one).__name__,
)
def test_penalties_that_were_chosen_and_models_inside_others(estimator):
    frame = pd.DataFrame(X, columns=list("abcde"))
    report = suffice.certify(fitted(estimator, frame, REAL), frame, REAL)
    assert report.relative < 1e-5, report.message


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_a_logistic_regression_that_chose_its_penalty(y, legacy):
    estimator = LogisticRegressionCV(
        Cs=[0.1, 1.0], l1_ratios=(0.0,), use_legacy_attributes=legacy, cv=3, scoring="neg_log_loss", **TIGHT
    )
    assert suffice.certify(fitted(estimator, X, y), X, y).relative < 1e-4


def test_stochastic_gradients_minimise_the_mean_over_rows_of_weighted_losses():
    given = {"average": True, "max_iter": 1000, "tol": None, "random_state": 0}
    regressor = SGDRegressor(alpha=0.5, eta0=0.003, **given)
    classifier = SGDClassifier(loss="log_loss", alpha=0.2, class_weight="balanced", **given)
    hinge = SGDClassifier(
        loss="squared_hinge", fit_intercept=False, alpha=0.2, learning_rate="invscaling", eta0=0.03, **given
    )
    for estimator, y in ((regressor, REAL), (classifier, TWO), (hinge, TWO)):
        fitted(estimator, X, y, sample_weight=WEIGHT)
        report = suffice.certify(estimator, X, y, WEIGHT)
        assert report.relative < 0.05
        check(report, objective_of(estimator, y, WEIGHT), X)
        assert suffice.certify(estimator, X, y, 2.0 * WEIGHT).at_least > 2.0 * report.radius  # another objective


def test_it_cannot_tell_and_says_why():
    several = fitted(LogisticRegression(solver="saga", C=np.inf, max_iter=5), X, THREE)
    separable = np.where(X[:, 0] > 0.5, 1, 0)
    twice = np.hstack([X, X[:, :1]])
    pipeline = make_pipeline(TargetEncoder(), Ridge())
    for estimator, rows, y, reason in (
        (RandomForestClassifier(3), X, TWO, "RandomForestClassifier is not known"),
        (SVC(), X, TWO, "SVC is not known"),
        (MultiTaskLasso(), X, np.stack([REAL, REAL], axis=1), "MultiTaskLasso is not known"),
        (Ridge(), X, np.stack([REAL, REAL], axis=1), "several targets"),
        (Lasso(positive=True), X, REAL, "positive"),
        (LinearSVC(loss="hinge"), X, TWO, "not smooth"),
        (LinearSVC(), X, THREE, "one model for each class"),
        (TweedieRegressor(power=3), X, COUNTS + 1.0, "power=3"),
        (LinearRegression(), twice, REAL, "depend on each other"),
        (LinearRegression(), X[:4], REAL[:4], "more columns than rows"),
        (Lasso(), 0.0 * X, REAL, "X is zero"),
        (LogisticRegression(C=np.inf), X, separable, "separated"),
        (pipeline, np.round(X), REAL, "TargetEncoder"),
        (several, X, THREE, "without an l2"),
        (GridSearchCV(Ridge(), {"alpha": [1.0]}, refit=False), X, REAL, "refit=False"),
    ):
        report = suffice.certify(fitted(estimator, rows, y), rows, y)
        assert report.message.startswith("cannot tell: ") and reason in report.message, report.message
        assert report.radius == report.prediction_error == math.inf and report.rule == "none" and not report.told
        assert report.at_least == 0.0 and report.score_interval == (-math.inf, math.inf)
    broken = fitted(Ridge(), X, REAL)
    broken.coef_ = np.full(5, np.nan)
    assert "not finite" in suffice.certify(broken, X, REAL).message
    assert "is not known" in suffice.certify(types.SimpleNamespace(coef_=np.ones(5)), X, REAL).message


def test_a_class_derived_from_a_known_one_is_not_taken_for_it():
    class Half(Lasso):
        def fit(self, X, y):
            return super().fit(X, 0.5 * y)

    report = suffice.certify(Half().fit(X, REAL), X, REAL)
    assert not report.told and "Half is not known" in report.message


def test_a_model_of_ones_own(monkeypatch):
    class Mean:
        def fit(self, X, y):
            self.coef_, self.offset_ = np.zeros(X.shape[1]), float(np.mean(y))
            return self

    def read(model, y, weights):
        if not hasattr(model, "coef_"):
            raise CannotTellError("it was not fitted")
        return Objective(SQUARED, 1e3, 0.0, model.coef_, model.offset_, np.asarray(y), weights)

    monkeypatch.setattr(adapters, "_READERS", dict(adapters._READERS))
    register_objective(Mean, read)
    report = suffice.certify(Mean().fit(X, REAL), X, REAL)
    assert report.radius == 0.0 and report.relative == 0.0 and report.intercept_error < 1e-12
    assert report.message == "coefficients are within 0 of exact"
    assert suffice.certify(Mean(), X, REAL).message == "cannot tell: it was not fitted"


def test_duck_typed_models_of_other_libraries_are_known_by_package_and_name():
    def made(package, name, **attributes):
        kind = type(name, (), {"__module__": f"{package}.inside"})
        one = kind()
        vars(one).update(attributes)
        return one

    factors = np.array([1.0, 2.0, 0.5, 1.0, 1.0])
    lasso = fitted(Lasso(alpha=0.1, **TIGHT), X / factors, REAL)
    weighted = made(
        "celer", "Lasso", alpha=0.1, weights=factors, fit_intercept=True, coef_=lasso.coef_ / factors,
        intercept_=lasso.intercept_,
    )  # fmt: skip
    assert suffice.certify(weighted, X, REAL).relative < 1e-5
    poisson = fitted(PoissonRegressor(alpha=0.1, **TIGHT), X, COUNTS, sample_weight=WEIGHT)
    free = dict.fromkeys(("lower_bounds", "upper_bounds", "A_ineq", "b_ineq", "monotonic_constraints", "formula"))
    glum = made(
        "glum", "GeneralizedLinearRegressor", alpha=0.1, l1_ratio=0, P1="identity", P2="identity", family="poisson",
        link="auto", scale_predictors=False, fit_intercept=True, coef_=poisson.coef_, intercept_=poisson.intercept_,
        **free,
    )  # fmt: skip
    assert suffice.certify(glum, X, COUNTS, WEIGHT).relative < 1e-4
    vars(glum)["lower_bounds"] = np.zeros(5)
    assert "lower_bounds" in suffice.certify(glum, X, COUNTS, WEIGHT).message


def test_what_is_not_fitted_or_does_not_fit_is_an_error():
    fit = fitted(Ridge(), X, REAL)
    with pytest.raises(NotFittedError):
        suffice.certify(Ridge(), X, REAL)
    with pytest.raises(NotFittedError):
        suffice.certify(make_pipeline(StandardScaler(), Ridge()), X, REAL)
    with pytest.raises(ValueError, match="X has 4 columns, and Ridge was fitted to 5"):
        suffice.certify(fit, X[:, :4], REAL)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        suffice.certify(fit, X, REAL[:-1])
    with pytest.raises(ValueError, match="label 'maybe'"):
        suffice.certify(fitted(LogisticRegression(), X, TWO), X, np.where(TWO == "no", "maybe", TWO))
    with pytest.raises(TypeError, match="needs the targets y"):
        suffice.certify(fit, X)
    with pytest.raises(TypeError, match="the class Ridge"):
        suffice.certify(Ridge, X, REAL)
    with pytest.raises(ValueError, match="zero"):
        suffice.certify(fit, X, REAL, np.zeros(N))
    problem = suffice.problems.ElasticNet(X, REAL).at(l1=0.1, l2=0.1)
    with pytest.raises(TypeError, match="takes no y"):
        suffice.certify(problem, np.zeros(5), REAL)
    assert isinstance(suffice.certify(problem, np.zeros(5)), suffice.Certificate)


def test_other_data_than_those_of_the_fit_are_seen():
    report = suffice.certify(fitted(Ridge(), X, REAL), X[:60], REAL[:60])
    assert report.at_least > 0.0 and "unless X and y are not what it was fitted to" in report.message


def test_a_report_cannot_be_changed():
    report = suffice.certify(fitted(Ridge(), X, REAL), X, REAL)
    with pytest.raises(AttributeError):
        report.radius = 0.0
    assert report.plain()["radius"] == report.radius
    assert suffice.FitReport.nothing("why").plain()["score_interval"] == [None, None]
