"""Multinomial logistic regression: its scores on held-out data, against scikit-learn."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import StratifiedKFold

import suffice
from suffice.sklearn import SufficeSearchCV
from suffice.sklearn.folds import LinearFold, Softmax
from tests.models.test_multinomial import random_model

FEW = suffice.Options(max_evaluations=15, final_radius=1e-2)


@given(seed=st.integers(0, 10**6), scoring=st.sampled_from(["neg_brier_score", "neg_log_loss"]))
def test_errors_of_held_out_losses_hold_for_any_weights_within_the_radius(seed, scoring):
    rng, model = random_model(seed)
    labels = model.y
    fold = LinearFold(model.design.X, labels, Softmax(model.classes), np.ones(len(labels)), "free")
    n = 12
    X, y = rng.standard_normal((n, model.design.shape[1])), rng.integers(0, model.classes, n).astype(float)
    loss = fold.held_out(X, y, np.ones(n), scoring, 3)
    w, u = rng.standard_normal((2, fold.size))
    for radius in (1e-6, 1e-3, 1e-1, 1.0):
        v = w + radius * u / np.linalg.norm(u)
        assert abs(loss.at(v).residual - loss.at(w).residual) <= loss.at(w).error(radius)
    coef, intercept = fold.coefficients(w)
    p = softmax(X @ coef.T + intercept, axis=1)
    if scoring == "neg_brier_score":
        expected = np.mean(np.sum((p - np.eye(model.classes)[y.astype(int)]) ** 2, axis=1)) / 3
    else:
        expected = -np.mean(np.log(p[np.arange(n), y.astype(int)])) / 3
    assert loss.at(w).residual ** 2 == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("scoring", ["neg_brier_score", "neg_log_loss"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("l1", [False, True])
def test_the_score_of_scikit_learns_own_fits_lies_in_the_proven_interval(scoring, sparse, l1):
    X, y = make_classification(120, 5, n_classes=3, n_informative=4, n_redundant=0, random_state=0, flip_y=0.2)
    X, labels = np.where(np.abs(X) < 0.3, 0.0, X), np.array(["one", "three", "two"])[y]
    estimator = LogisticRegression(solver="newton-cholesky", tol=1e-12)
    if l1:
        estimator = LogisticRegression(solver="saga", l1_ratio=0.5, tol=1e-10, max_iter=100_000)
    cv = StratifiedKFold(3)
    search = SufficeSearchCV(estimator, cv=cv, scoring=scoring, options=FEW, tolerance=1e-5)
    search.fit(sp.csr_array(X) if sparse else X, labels)
    theirs = []
    for train, test in cv.split(X, labels):
        params = {**estimator.get_params(), **search.best_params_, "C": search.best_params_["C"] * 1.5}
        fitted = LogisticRegression(**params).fit(X[train], labels[train])
        theirs.append(get_scorer(scoring)(fitted, X[test], labels[test]))
    low, high = search.score_interval_
    assert low - 1e-8 <= np.mean(theirs) <= high + 1e-8
    assert high - low <= 1e-4 * abs(low)
    assert list(search.classes_) == ["one", "three", "two"]
