"""Held-out scores: their values by definition, and errors that hold for any weights within the radius."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mean_poisson_deviance, r2_score
from sklearn.svm import LinearSVC

from suffice.evaluation import Evaluation
from suffice.sklearn import SufficeSearchCV
from suffice.sklearn.folds import LinearFold
from suffice.sklearn.scores import score_of
from suffice.terms import LOGISTIC, POISSON, SQUARED, SQUARED_HINGE

SCORINGS = {
    "neg_brier_score": (LOGISTIC, lambda m, y, v: np.average((expit(m) - (y > 0)) ** 2, weights=v)),
    "neg_log_loss": (LOGISTIC, lambda m, y, v: np.average(np.log1p(np.exp(-y * m)), weights=v)),
    "neg_mean_squared_error": (SQUARED, lambda m, y, v: np.average((m - y) ** 2, weights=v)),
    "r2": (SQUARED, lambda m, y, v: 1.0 - r2_score(y, m, sample_weight=v)),
    "neg_mean_poisson_deviance": (POISSON, lambda m, y, v: mean_poisson_deviance(y, np.exp(m), sample_weight=v)),
    "neg_squared_hinge": (SQUARED_HINGE, lambda m, y, v: np.average(np.maximum(0, 1 - y * m) ** 2, weights=v)),
}


def test_an_intercept_far_from_zero_loses_no_accuracy():
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((40, 3)), np.array([1.0, -2.0, 0.5])
    y = X @ w + rng.standard_normal(40)
    X, X_test = X + 1e9, X[:10] + 1e9
    far = LinearFold(X, y + 1e7, SQUARED, np.full(40, 1.0), "free")
    loss = far.held_out(X_test, (y + 1e7)[:10], np.ones(10), "neg_mean_squared_error", 1)
    A, b = (X - 1e9).astype(np.longdouble), (y + 1e7 - 1e7).astype(np.longdouble)  # both differences are exact
    margins = (A[:10] - A.mean(axis=0)) @ w + b.mean()
    truth = np.sqrt(np.mean((margins - b[:10]) ** 2))
    assert abs(float(truth - loss.at(w).residual)) <= loss.at(w).error(0.0) < 1e-13


@pytest.mark.parametrize("scoring", SCORINGS)
@given(seed=st.integers(0, 10**6), intercept=st.sampled_from(["none", "free", "column"]), sparse=st.booleans())
def test_scores_are_what_they_say_and_their_errors_hold(scoring, seed, intercept, sparse):
    psi, expected = SCORINGS[scoring]
    if (
        scoring == "neg_squared_hinge" and intercept == "free"
    ):  # psi'' is not positive everywhere, and nobody asks for it
        intercept = "column"
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 6))
    X, X_test = (rng.standard_normal((n, d)) + rng.uniform(-1, 1) for n in (25, 12))
    y, y_test = (np.where(rng.random(n) < 0.5, -1.0, 1.0) for n in (25, 12))
    y[:2] = -1.0, 1.0
    if psi is POISSON:
        y, y_test = rng.poisson(2.0, 25) + 0.0, rng.poisson(2.0, 12) + 0.0
        y[0] = 1.0
    elif psi is SQUARED:
        y, y_test = rng.standard_normal(25) + 3.0, rng.standard_normal(12) + 3.0
    form = sp.csr_array if sparse else np.asarray
    fold = LinearFold(form(X), y, psi, rng.uniform(0.5, 2.0, 25), intercept, 2.0)
    v = rng.uniform(0.5, 2.0, 12)
    loss = fold.held_out(form(X_test), y_test, v, scoring, 4)
    w, u = 0.5 * rng.standard_normal((2, fold.design.shape[1]))
    at = loss.at(w)
    coef, b = fold.coefficients(w)
    assert at.residual**2 == pytest.approx(expected(X_test @ coef + b, y_test, v) / 4, rel=1e-9)
    for radius in (1e-8, 1e-4, 1e-2, 1.0):
        for direction in (u, -u):
            there = loss.at(w + radius * direction / np.linalg.norm(direction))
            assert abs(there.residual - at.residual) <= at.error(radius)
    assert at.error(1e-12) <= 1e-9 * (1.0 + at.residual)
    assert at.error(1e300) >= at.error(1.0)


@given(seed=st.integers(0, 10**6), size=st.sampled_from([1e-3, 1.0, 10.0]))
def test_the_root_mean_squared_error_of_any_models_within_the_errors_is_in_the_interval(seed, size):
    rng = np.random.default_rng(seed)
    blocks, K = rng.integers(1, 5, 4), 4
    r = rng.standard_normal(blocks.sum())
    e = size * rng.random(K)
    low, high = score_of("neg_root_mean_squared_error").proven(Evaluation([0.0], r, e, blocks=blocks))
    parts = np.split(r, np.cumsum(blocks)[:-1])
    moved = [np.linalg.norm(part) + step for part, step in zip(parts, e * rng.uniform(-1, 1, K), strict=True)]
    assert low <= -np.mean(np.maximum(moved, 0.0)) * np.sqrt(K) <= high


@pytest.mark.parametrize("scoring", ["neg_log_loss", "neg_brier_score", "neg_squared_hinge"])
@pytest.mark.parametrize("strange", [7, "spam"])
def test_labels_that_were_not_there_are_told_as_scikit_learn_tells_them(scoring, strange):
    X, y = np.random.default_rng(0).standard_normal((40, 3)), np.arange(40) % 2
    estimator = LinearSVC() if scoring == "neg_squared_hinge" else LogisticRegression()
    search = SufficeSearchCV(estimator, {"l2": (1e-2, 1.0)}, cv=2, scoring=scoring).fit(X, y)
    with pytest.raises(ValueError, match=rf"y contains previously unseen labels: \[{strange!r}\].*fitted to 0, 1"):
        search.score(X[:2], np.array([1, strange]) if strange == 7 else np.array([strange] * 2))


def test_a_score_that_scikit_learn_does_not_know_is_what_was_asked_for():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = np.where(X[:, 0] + rng.standard_normal(40) > 0, 1, 0)
    search = SufficeSearchCV(LinearSVC(), {"l2": (1e-2, 1.0)}, cv=2, scoring="neg_squared_hinge").fit(X, y)
    short = np.maximum(0.0, 1.0 - (2 * y - 1) * search.decision_function(X))
    assert search.score(X, y) == pytest.approx(-np.mean(short**2))
