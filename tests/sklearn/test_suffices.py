"""When a search for penalties ends, and what it says of that."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ElasticNet
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

from suffice import Status
from suffice.sklearn import SufficeSearchCV


def test_a_search_ends_when_what_is_left_is_small_against_the_error_over_folds():
    X, y = load_diabetes(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    found, digits = (
        SufficeSearchCV(ElasticNet(), cv=5, refit=False, **given).fit(X, y) for given in ({}, {"tolerance": 1e-4})
    )
    best = found.best_index_
    losses = np.array([-found.cv_results_[f"split{k}_test_score"][best] for k in range(5)])
    error = np.std(losses, ddof=1) / np.sqrt(5)
    low, high = found.score_interval_
    assert found.result_.status is Status.SUFFICES and found.result_.success
    assert high - low <= 0.01 * error
    assert abs(found.best_score_ - digits.best_score_) <= 0.01 * error
    assert np.sum(found.cv_results_["work"]) < 0.75 * np.sum(digits.cv_results_["work"])
    left = re.fullmatch(
        r"converged: less than (\S+) % left to gain, by the search's own estimate", found.result_.message
    )
    assert left is not None and float(left[1]) <= 1.01 * min(100.0 * 0.01 * error / losses.mean(), 0.02) + 1e-3


def test_a_given_start_is_looked_at_before_it_is_known_what_suffices():
    X, y = load_diabetes(return_X_y=True)
    search = SufficeSearchCV(ElasticNet(), cv=3, refit=False, initial={"l1": 1.0, "l2": 0.1}).fit(X, y)
    assert search.cv_results_["purpose"][0] == "overview"
    assert search.result_.status is Status.SUFFICES


def test_a_tolerance_of_another_name_is_refused():
    with pytest.raises(ValueError, match="tolerance must be 'statistical' or a positive number, got 'loose'"):
        SufficeSearchCV(ElasticNet(), tolerance="loose").fit(np.eye(6), np.arange(6.0))


def test_small_sparse_data_are_searched_like_dense_ones():
    rng = np.random.default_rng(0)
    X = np.hstack([np.eye(5)[rng.integers(0, 5, 90)] for _ in range(3)])
    y = X @ rng.standard_normal(15) + rng.standard_normal(90)
    dense, sparse = (SufficeSearchCV(ElasticNet(), cv=3, refit=False).fit(data, y) for data in (X, sp.csr_array(X)))
    assert dense.score_interval_ == sparse.score_interval_
    assert dense.cv_results_["work"].tolist() == sparse.cv_results_["work"].tolist()


@pytest.mark.parametrize("weekdays", [True, False])
def test_a_target_that_the_columns_tell_exactly_ends_the_search_at_once(weekdays):
    """Day of the month, by the day of the year and its month (twice): squares of 1e-12 where the plainest has 78."""
    day = np.arange("1849-01-01", "1850-01-01", dtype="datetime64[D]").repeat(2)
    month = np.eye(12)[day.astype("datetime64[M]").astype(int) % 12]
    since = np.linspace(-1.7, 1.7, len(day) // 2).repeat(2)
    more = [np.eye(7)[day.astype(int) % 7]] if weekdays else []
    X, y = np.column_stack([since, month, month, *more]), (day - day.astype("datetime64[M]")).astype(float)
    search = SufficeSearchCV(ElasticNet(), cv=KFold(5, shuffle=True, random_state=0)).fit(X, y)
    assert search.result_.success and len(search.cv_results_["work"]) <= 8
    low, high = search.score_interval_
    assert -1e-7 < low <= search.best_score_ <= high <= 0.0
