"""Yesterday's search with today's rows: exact models, the same folds, and penalties that stay or move for a reason."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import ElasticNet, LogisticRegression, PoissonRegressor, Ridge
from sklearn.model_selection import GroupKFold, LeaveOneOut, RepeatedKFold, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from suffice.sklearn import SufficeSearchCV
from suffice.sklearn.dealt_rows import folds_of
from suffice.sklearn.update import placed


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order] / X.std(axis=0), y[order]


def rows_of(search):
    return search._for_updates


def ridge_of(X, y, l2):
    """The exact minimiser, by another way."""
    Xc, yc = X - X.mean(axis=0), y - y.mean()
    return np.linalg.solve(Xc.T @ Xc + len(y) * l2 * np.eye(X.shape[1]), Xc.T @ yc)


def test_a_model_after_adding_and_removing_is_that_of_the_rows_that_are_left(diabetes):
    X, y = diabetes
    search = SufficeSearchCV(Ridge()).fit(X[:400], y[:400])
    search.update(X[400:], y[400:], remove=[3, 77, -1])
    stays = np.setdiff1d(np.arange(442), [3, 77, 399])
    exact = ridge_of(X[stays], y[stays], search.best_penalties_["l2"])
    assert np.linalg.norm(search.coef_ - exact) <= search.coef_radius_ + 1e-9
    assert (search.update_.added, search.update_.removed, search.update_.rows) == (42, 3, 439)


def test_removing_what_was_added_leads_back_to_the_same_model(diabetes):
    X, y = diabetes
    once = SufficeSearchCV(ElasticNet()).fit(X[:300], y[:300])
    there, radius, penalties = once.coef_, once.coef_radius_, once.best_penalties_
    once.update(X[300:310], y[300:310])
    once.update(remove=np.arange(300, 310))
    assert once.update_.kept and once.best_penalties_ == penalties
    assert np.linalg.norm(once.coef_ - there) <= once.coef_radius_ + radius


def test_old_rows_stay_in_their_folds(diabetes):
    X, y = diabetes
    search = SufficeSearchCV(Ridge(), cv=RepeatedKFold(n_splits=4, n_repeats=2, random_state=1)).fit(X[:100], y[:100])
    before = [numbers.copy() for numbers in rows_of(search).folds]
    search.update(X[100:300], y[100:300], remove=[5])
    for old, new in zip(before, rows_of(search).folds, strict=True):
        assert np.array_equal(np.delete(old, 5), new[:99])
        assert np.bincount(new[99:], minlength=4).min() > 25  # new ones are dealt evenly
    assert len(rows_of(search).splits) == search.n_splits_ == 8
    assert search.update_.same_folds


def test_a_place_is_not_dealt_twice(diabetes):
    X, y = diabetes
    one = SufficeSearchCV(Ridge()).fit(X[:100], y[:100]).update(X[100:110], y[100:110])
    two = SufficeSearchCV(Ridge()).fit(X[:100], y[:100]).update(X[100:105], y[100:105]).update(X[105:110], y[105:110])
    assert np.array_equal(rows_of(one).folds, rows_of(two).folds)
    assert np.isclose(one.best_score_, two.best_score_, rtol=1e-3)


def test_rows_of_a_known_group_go_to_its_fold(diabetes):
    X, y = diabetes
    groups = np.arange(442) % 23
    search = SufficeSearchCV(Ridge(), cv=GroupKFold(5)).fit(X[:200], y[:200], groups=groups[:200])
    with pytest.raises(ValueError, match="groups of the new rows"):
        search.update(X[200:], y[200:])
    search.update(X[200:], y[200:], groups=np.where(np.arange(200, 442) > 400, 99, groups[200:]))
    for group in np.unique(rows_of(search).groups):
        assert len(np.unique(rows_of(search).folds[0][rows_of(search).groups == group])) == 1


def test_folds_of_later_rows_are_drawn_anew(diabetes):
    X, y = diabetes
    search = SufficeSearchCV(Ridge(), cv=TimeSeriesSplit(4)).fit(X[:300], y[:300]).update(X[300:], y[300:])
    assert not search.update_.same_folds
    assert len(search.held_out_.y) == sum(len(test) for _, test in TimeSeriesSplit(4).split(X))


def test_splits_of_other_kinds_have_no_numbers():
    rows = np.arange(6)
    assert folds_of(list(LeaveOneOut().split(rows)), 6) is None
    assert folds_of([(rows[:3], rows[3:])], 6) is None
    assert folds_of([(rows[:3], rows[3:]), (rows[3:], rows[:3])], 6)[0].tolist() == [1, 1, 1, 0, 0, 0]


def test_penalties_that_are_still_good_are_kept_for_little_work(diabetes):
    X, y = diabetes[0], diabetes[1] > 150.0
    model = LogisticRegression(l1_ratio=0.5, solver="saga")
    search = SufficeSearchCV(model).fit(X[:438], y[:438])
    cold = SufficeSearchCV(model)
    search.update(X[438:], y[438:])
    cold.set_params(cv=rows_of(search).splits).fit(X, y)
    assert search.update_.kept and not search.update_.proven
    assert search.update_.message.startswith("penalties kept: at most ") and "(estimated)" in str(search.update_)
    assert search.update_.work < 0.5 * cold.cv_results_["work"].sum()
    gained = 1.0 - cold.best_score_ / search.best_score_
    assert gained <= search.update_.gain


def test_penalties_move_where_the_data_ask_for_others():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(240, 30))
    y = X[:, 0] + 0.1 * rng.normal(size=240)
    search = SufficeSearchCV(Ridge()).fit(X[:120], y[:120])
    before = search.best_penalties_["l2"]
    search.update(X[120:], 5.0 * rng.normal(size=120))
    assert not search.update_.kept
    assert search.best_penalties_["l2"] > 3.0 * before
    assert search.update_.message.startswith("moved: l2 ")
    cold = SufficeSearchCV(Ridge(), cv=rows_of(search).splits).fit(rows_of(search).X, rows_of(search).y)
    assert np.isclose(search.best_score_, cold.best_score_, rtol=1e-3)


@pytest.mark.parametrize("estimator", [LogisticRegression(l1_ratio=0.5, solver="saga"), ElasticNet()])
def test_penalties_are_left_where_the_loss_is_flat_and_a_valley_lies_far_away(estimator):
    """All weights of the first rows are zero, and no derivative says that the new rows have something to tell."""
    rng = np.random.default_rng(3)
    X, noise = rng.normal(size=(400, 6)), rng.normal(size=400)
    y = np.where(np.arange(400) < 200, noise, X[:, 0] + noise)
    y = y if isinstance(estimator, ElasticNet) else np.where(y > 0.0, "yes", "no")
    search = SufficeSearchCV(estimator, {"l1": (1e-4, 1.0), "l2": (1e-4, 1.0)})
    search.fit(X[:200], y[:200])
    assert search.n_nonzero_ == 0
    search.update(X[200:], y[200:])
    assert not search.update_.kept
    cold = SufficeSearchCV(estimator, search.space, cv=rows_of(search).splits).fit(X, y)
    assert np.isclose(search.best_score_, cold.best_score_, rtol=1e-3)
    assert np.sum(search.cv_results_["purpose"] == "overview") == 2  # there, and where the sketch is least


def test_what_could_be_gained_is_told_as_it_is(diabetes):
    X, y = diabetes
    search = SufficeSearchCV(ElasticNet()).fit(X[:150], y[:150]).update(X[150:], y[150:])
    cold = SufficeSearchCV(ElasticNet(), cv=rows_of(search).splits).fit(X, y)
    gained = 1.0 - cold.best_score_ / search.best_score_
    assert search.update_.kept and gained <= search.update_.gain + 1e-4
    assert len(search.cv_results_["work"]) == 1


@pytest.mark.filterwarnings("ignore:the best l2 lies on")
@pytest.mark.parametrize("kind", ["squares", "labels"])
def test_one_penalty_of_a_small_table_is_proven_unasked(diabetes, kind):
    X, y = diabetes[0], diabetes[1] if kind == "squares" else diabetes[1] > 140.0
    estimator = Ridge() if kind == "squares" else LogisticRegression()
    search = SufficeSearchCV(estimator).fit(X[:400], y[:400]).update(X[400:], y[400:])
    assert search.update_.proven and search.update_.kept
    losses = [
        -SufficeSearchCV(estimator, {"l2": (l2, 1.0001 * l2)}, cv=rows_of(search).splits).fit(X, y).best_score_
        for l2 in np.logspace(-4, 1, 6)
    ]
    assert min(losses) >= -search.best_score_ * (1.0 - search.update_.gain)


@pytest.mark.filterwarnings("ignore:the best l2 lies on")
def test_a_gain_is_proven_where_that_was_asked_for(diabetes):
    X, y = diabetes
    search = SufficeSearchCV(Ridge(), certify_global=0.01).fit(X[:430], y[:430]).update(X[430:], y[430:])
    assert search.update_.proven and search.update_.gain <= 0.01
    assert "(proven)" in search.update_.message
    losses = [
        SufficeSearchCV(Ridge(), {"l2": (l2, 1.0001 * l2)}, cv=rows_of(search).splits).fit(X, y).best_score_
        for l2 in np.logspace(-3, 0, 4)
    ]
    assert max(losses) <= search.best_score_ * (1.0 - search.update_.gain)  # scores are negative


@pytest.mark.parametrize("estimator", [LogisticRegression(), LogisticRegression(l1_ratio=0.5, solver="saga")])
def test_classes_are_updated_too(estimator):
    X, y = load_breast_cancer(return_X_y=True)
    X, y = StandardScaler().fit_transform(X[:, :8]), np.where(y == 1, "good", "bad")
    search = SufficeSearchCV(estimator).fit(X[:560], y[:560]).update(X[560:], y[560:])
    cold = SufficeSearchCV(estimator, cv=rows_of(search).splits).fit(X, y)
    spread = np.std([cold.cv_results_[f"split{k}_test_score"][cold.best_index_] for k in range(5)], ddof=1) / 5**0.5
    assert abs(search.best_score_ - cold.best_score_) < 0.1 * spread
    with pytest.raises(ValueError, match="y_new has the class 'ugly'"):
        search.update(X[:1], ["ugly"])


def test_a_level_that_is_new_has_a_weight_of_its_own():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"town": rng.choice(["a", "b", "c"], 90), "x": rng.normal(size=90)})
    y = frame["x"] + (frame["town"] == "a") + 0.1 * rng.normal(size=90)
    pipeline = make_pipeline(OneHotEncoder(handle_unknown="ignore", sparse_output=False), Ridge())
    search = SufficeSearchCV(pipeline, cv=3).fit(frame[["town"]], y)
    more = pd.DataFrame({"town": ["new"] * 9})
    search.update(more, 5.0 + np.zeros(9))
    assert len(search.coef_) == 4
    with pytest.raises(ValueError, match="lacks town; also has city"):
        search.update(more.rename(columns={"town": "city"}), np.zeros(9))
    with pytest.raises(ValueError, match="another type in column town: int64"):
        search.update(pd.DataFrame({"town": [1, 2]}), np.zeros(2))


def test_weights_of_columns_go_with_their_names():
    x = np.array([1.0, 2.0, 3.0, 10.0, 20.0, 30.0, 7.0])
    found = placed(x, ("a", "b", "c"), ("c", "new", "a"))
    assert found.tolist() == [3.0, 0.0, 1.0, 30.0, 0.0, 10.0, 7.0]
    assert placed(x, None, None) is x


def test_sample_weights_and_sparse_rows_go_on(diabetes):
    X, y = diabetes
    weight = np.linspace(0.5, 2.0, 442)
    search = SufficeSearchCV(PoissonRegressor()).fit(sparse.csr_matrix(X[:400]), y[:400], sample_weight=weight[:400])
    with pytest.raises(ValueError, match="sample_weight of the new rows is needed"):
        search.update(X[400:], y[400:])
    search.update(sparse.csr_matrix(X[400:]), y[400:], sample_weight=weight[400:])
    fitted = PoissonRegressor(**search.best_params_, tol=1e-10, max_iter=10_000).fit(X, y, sample_weight=weight)
    assert np.linalg.norm(search.coef_ - fitted.coef_) <= search.coef_radius_ + 1e-5 * np.linalg.norm(fitted.coef_)


def test_wrong_rows_are_refused_and_nothing_is_lost(diabetes):
    X, y = diabetes
    search = SufficeSearchCV(Ridge()).fit(X[:50], y[:50])
    wrong = [
        ({}, "rows to add, X_new and y_new, or rows to remove"),
        ({"X_new": X[50:]}, "X_new and y_new go together"),
        ({"X_new": X[50:, :3], "y_new": y[50:]}, "must have the 10 columns"),
        ({"X_new": X[50:], "y_new": y[51:]}, "one entry for each of the 392 rows"),
        ({"remove": [50]}, "remove has row 50, and there are 50 rows"),
        ({"remove": [0.5]}, "numbers of rows, or be a mask"),
        ({"remove": np.ones(3, dtype=bool)}, "one entry for each of the 50 rows"),
        ({"remove": np.arange(50)}, "no row is left"),
        ({"remove": np.arange(10)}, "fold 0 without a row"),
    ]
    there = search.coef_
    for given, words in wrong:
        with pytest.raises(ValueError, match=words):
            search.update(**given)
    assert search.coef_ is there
    again = pickle.loads(pickle.dumps(search))
    assert np.array_equal(again.predict(X), search.predict(X))
    with pytest.raises(ValueError, match="no rows to update"):
        again.update(remove=[0])
