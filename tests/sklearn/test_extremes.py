"""Finite data never break the arithmetic: a proven score that holds, or a refusal that says what to do."""

from __future__ import annotations

import numpy as np
import pytest
from flint import fmpq, fmpq_mat
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import ElasticNet, Lasso, Ridge
from sklearn.model_selection import KFold

from suffice.sklearn import SufficeSearchCV

rng = np.random.default_rng(0)
X = rng.standard_normal((30, 4))
Y = X @ [1.0, 2.0, 0.0, 0.0] + rng.standard_normal(30)
SPACES = {"ridge": (Ridge(), ["l2"]), "lasso": (Lasso(), ["l1"]), "elastic net": (ElasticNet(), ["l1", "l2"])}


def searched(name, scale, **how):
    """Of targets that are `scale` times as large, and as is l1."""
    estimator, names = SPACES[name]
    ranges = {"l1": (1e-6 * scale, 1e2 * scale), "l2": (1e-6, 1e2)}
    return SufficeSearchCV(estimator, {name: ranges[name] for name in names}, cv=KFold(3), **how).fit(X, scale * Y)


def exact(numbers):
    return [fmpq(*float(x).as_integer_ratio()) for x in numbers]


def ridge_loss(y, l2):
    """The mean over folds of the mean squared error of exact ridge regressions with an intercept."""
    rows, targets, losses = [exact(row) for row in X], exact(y), []
    for train, test in KFold(3).split(X):
        n = fmpq(len(train))
        means = [sum(rows[i][j] for i in train) / n for j in range(4)]
        level = sum(targets[i] for i in train) / n
        C = fmpq_mat([[x - m for x, m in zip(rows[i], means, strict=True)] for i in train])
        t = fmpq_mat([[targets[i] - level] for i in train])
        H = C.transpose() * C / n + l2 * fmpq_mat([[int(i == j) for j in range(4)] for i in range(4)])
        w = H.solve(C.transpose() * t / n)
        missed = [level + sum((rows[i][j] - means[j]) * w[j, 0] for j in range(4)) - targets[i] for i in test]
        losses.append(sum(one * one for one in missed) / len(test))
    return sum(losses) / 3


@pytest.mark.parametrize("exponent", [-1030, -996, -540, -537, -530, -525, -500, -330, -53, 330, 490])
def test_the_score_of_tiny_and_huge_targets_lies_in_its_interval(exponent):
    scale = 2.0**exponent
    search = searched("ridge", scale)
    low, high = search.score_interval_
    truth = -ridge_loss(scale * Y, exact([search.best_penalties_["l2"]])[0])
    assert exact([low])[0] <= truth <= exact([high])[0]
    assert low < 0.0


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("exponent", [-400, -60, 60, 150])
def test_penalties_do_not_depend_on_the_units_of_targets(name, exponent):
    scale = 2.0**exponent
    plain, scaled = (searched(name, one) for one in (1.0, scale))
    for which, value in plain.best_penalties_.items():
        assert scaled.best_penalties_[which] == pytest.approx(value * (scale if which == "l1" else 1.0), rel=1e-6)
    assert scaled.best_score_ / scale**2 == pytest.approx(plain.best_score_, rel=1e-5)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("scale", [1e-300, 1e-162, 1e-160, 1e-158, 1e-155])
def test_a_loss_that_underflows_is_not_proven_to_be_nothing(name, scale):
    low, high = searched(name, scale).score_interval_
    assert low < 0.0
    assert high <= 0.0


def test_a_kernel_machine_of_tiny_targets_does_not_claim_a_perfect_score():
    low, high = SufficeSearchCV(KernelRidge(kernel="rbf"), cv=KFold(3)).fit(X, 1e-162 * Y).score_interval_
    assert low < 0.0
    assert high <= 0.0


@pytest.mark.parametrize("scale", [1e151, 1e160, 1e300])
@pytest.mark.parametrize(
    "estimator", [Ridge(), Lasso(), ElasticNet(), KernelRidge()], ids=lambda one: type(one).__name__
)
def test_targets_whose_squares_overflow_are_refused(estimator, scale):
    with pytest.raises(ValueError, match="y must not hold numbers beyond 1e"):
        SufficeSearchCV(estimator, cv=3).fit(X, scale * Y)


def test_a_space_far_below_all_penalties_that_matter_is_searched():
    search = SufficeSearchCV(Lasso(), {"l1": (1e-6, 1e2)}, cv=3).fit(X, 1e100 * Y)
    low, high = search.score_interval_
    assert low <= search.best_score_ <= high < 0.0


def test_r2_is_refused_where_the_variance_underflows_and_where_there_is_none():
    with pytest.raises(ValueError, match="multiply y by a constant"):
        SufficeSearchCV(Ridge(), cv=3, scoring="r2").fit(X, 1e-160 * Y)
    with pytest.raises(ValueError, match="all equal"):
        SufficeSearchCV(Ridge(), cv=3, scoring="r2").fit(X, np.full(30, 0.1))
