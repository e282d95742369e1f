"""Finite data never break the arithmetic: a proven score that holds, or a refusal that says what to do."""

from __future__ import annotations

import json

import numpy as np
import pytest
from flint import fmpq, fmpq_mat
from sklearn.linear_model import (
    ElasticNet,
    GammaRegressor,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
)
from sklearn.model_selection import KFold

from suffice.sklearn import ElasticNetGLM, SufficeSearchCV
from suffice.sklearn.report import collect, page

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
        assert scaled.best_penalties_[which] == pytest.approx(value * (scale if which == "l1" else 1.0), rel=1e-3)
    assert scaled.best_score_ / scale**2 == pytest.approx(plain.best_score_, rel=1e-5)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("scale", [1e-300, 1e-162, 1e-160, 1e-158, 1e-155])
def test_a_loss_that_underflows_is_not_proven_to_be_nothing(name, scale):
    low, high = searched(name, scale).score_interval_
    assert low < 0.0
    assert high <= 0.0


@pytest.mark.parametrize("scale", [1e151, 1e160, 1e300])
@pytest.mark.parametrize("estimator", [Ridge(), Lasso(), ElasticNet()], ids=lambda one: type(one).__name__)
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


FAMILIES = ["gaussian", "poisson", "gamma", "tweedie", "negative_binomial"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("penalties", [(0.0, 0.0), (0.1, 0.0), (0.0, 0.1), (0.1, 0.1)])
@pytest.mark.parametrize("value", [0.0, 0.7])
def test_columns_that_are_constant_leave_the_mean(family, penalties, value):
    y = np.array([1.0, 2.0, 3.0, 7.0])
    l1, l2 = penalties
    model = ElasticNetGLM(family, l1=l1, l2=l2).fit(np.full((4, 2), value), y)
    assert model.predict(np.full((1, 2), value)) == pytest.approx(3.25, rel=1e-12)
    assert not model.coef_.any()


@pytest.mark.parametrize("estimator", [Ridge, Lasso, ElasticNet, PoissonRegressor, GammaRegressor])
def test_a_search_over_columns_of_zeros_finds_the_mean_of_every_fold(estimator):
    y = np.arange(1.0, 13.0)
    search = SufficeSearchCV(estimator(), cv=KFold(3), scoring=None).fit(np.zeros((12, 2)), y)
    low, high = search.score_interval_
    assert low <= search.best_score_ <= high
    if estimator in (Ridge, Lasso, ElasticNet):
        means = [np.mean((y[test] - y[train].mean()) ** 2) for train, test in KFold(3).split(y)]
        assert search.best_score_ == pytest.approx(-np.mean(means), rel=1e-12)


def test_rates_that_leave_the_range_of_floats_end_a_fit_and_break_nothing():
    X = [[0, -1, 0, 1], [0, -2, -2, 0], [1, 0, 0, 1], [0, 0, 0, 1], [1, -1, 1, 0], [-1, -1, 0, 0], [0, 0, 1, -3]]
    y = [1e12, 0.19666574603, 0.127562078, 0.554509113, 0.585269624, 0.733185172, 0.331529294]
    weights = [3662.67848166, 3593.14068042, 0.0, 0.0, 0.0, 3255.71340358, 1750.5167228]
    for l1 in (0.0, 1e-6, 1e-3):
        for l2 in (0.0, 1e-8, 1e-3):
            model = ElasticNetGLM("gamma", l1=l1, l2=l2).fit(np.array(X, dtype=float), y, sample_weight=weights)
            assert np.isfinite(model.coef_).all()
            assert model.coef_radius_ >= 0.0


@pytest.mark.parametrize("scale", [1e-297, 1e-200, 1e200, 1e300])
@pytest.mark.parametrize("family", ["gamma", "tweedie"])
def test_the_intercept_of_tiny_and_huge_means_is_their_logarithm(family, scale):
    y = scale * np.array([1.0, 2.0, 3.0, 6.0])
    model = ElasticNetGLM(family).fit(np.zeros((4, 1)), y)
    assert model.intercept_ == pytest.approx(np.log(3.0) + np.log(scale), rel=1e-12)


def test_a_search_whose_loss_is_nowhere_finite_says_so():
    rows = np.array([[1e8], [1e-12], [1e-4], [-1e9], [0.1], [1e-5], [-1e11]])
    with pytest.raises(ValueError, match=r"there is no loss at any of the first penalties.*scale X or y"):
        space = {"l1": (1e-6, 1e2), "l2": (1e-6, 1e2)}
        SufficeSearchCV(ElasticNetGLM("tweedie"), space, cv=2).fit(rows, [1e12, 0.12, 0.32, 1.95, 0.37, 0.41, 0.31])


def test_one_row_of_a_class_far_from_all_others_is_separated():
    rows = np.vstack([X[:11], [[1e8] * 4]])
    search = SufficeSearchCV(LogisticRegression(), cv=2).fit(
        np.vstack([rows, rows]), np.r_[np.zeros(11), 1.0].tolist() * 2
    )
    assert search.score_interval_[0] <= search.best_score_ <= search.score_interval_[1]


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("scale", [1e-310, 1e-300, 1e-160, 1e60, 1e149])
def test_a_report_of_tiny_and_huge_targets_is_made(name, scale):
    search = searched(name, scale)
    made = page(json.loads(json.dumps(collect(search, X, scale * Y, about={"title": "targets"}))))
    assert f"{float(search.best_penalties_[SPACES[name][1][0]]):.1e}".split("e")[0].rstrip("0.") in made


def test_a_report_shows_names_of_files_that_are_not_utf_8():
    name = b"caf\xe9 \xff.csv".decode("utf-8", "surrogateescape")
    assert "caf\ufffd \ufffd.csv" in page(collect(searched("ridge", 1.0), X, Y, about={"title": name}))
