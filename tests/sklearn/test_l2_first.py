"""Several classes without a space: l2 alone is searched first, and l1 where it pays."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from suffice import Options, Status
from suffice.journal import answers
from suffice.report.figures import Trace, path
from suffice.sklearn import SufficeSearchCV, _recorded
from suffice.sklearn.report import collect, page

CV = StratifiedKFold(3, shuffle=True, random_state=0)
BOTH = LogisticRegression(solver="saga", l1_ratio=0.5)


def drawn(useful, columns, rows=120):
    """Three classes that depend on so many of the columns."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns))
    scores = X[:, :useful] @ rng.standard_normal((useful, 3)) * 2.0 / np.sqrt(useful) + rng.gumbel(size=(rows, 3))
    return X, scores.argmax(axis=1)


DENSE, SPARSE = drawn(6, 6), drawn(2, 40)


def found(X, y, space=None, estimator=BOTH, **more):
    return SufficeSearchCV(estimator, space, **{"cv": CV, **more}).fit(X, y)


def test_where_l1_gains_nothing_the_answer_is_that_of_l2_alone():
    search, alone, both = found(*DENSE), found(*DENSE, {"l2": None}, LogisticRegression()), found(*DENSE, WIDE)
    assert search.best_score_ >= alone.best_score_ - 1e-3 * abs(alone.best_score_)
    assert search.left_out_.startswith("l1 was tried at ") and both.left_out_ == alone.left_out_ == ""
    assert search.result_.status is Status.SUFFICES and len(search.result_.message.split()) <= 20
    first = len(alone.cv_results_["work"])
    rows = search.cv_results_
    assert not rows["penalty_l1"][:first].any() and rows["penalty_l1"][first:].all()
    np.testing.assert_array_equal(rows["mean_test_score"][:first], alone.cv_results_["mean_test_score"])
    assert len(rows["work"]) < len(both.cv_results_["work"])


WIDE = {"l1": (1e-7, 1.0), "l2": (1e-7, 1e2)}


@pytest.mark.parametrize("data", ["sparse", "wine"])
def test_where_l1_pays_both_are_searched_to_the_end(data):
    X, y = SPARSE if data == "sparse" else load_wine(return_X_y=True)
    estimator, cv = make_pipeline(StandardScaler(), BOTH), StratifiedKFold(5, shuffle=True, random_state=0)
    search, both = found(X, y, estimator=estimator, cv=cv), found(X, y, WIDE, estimator, cv=cv)
    assert search.left_out_ == "" and search.best_penalties_["l1"] > 0.0
    error = both.cv_results_["std_test_score"][both.best_index_] / np.sqrt(4)
    assert search.best_score_ >= both.best_score_ - 0.01 * error
    assert not search.cv_results_["penalty_l1"][0] and search.cv_results_["purpose"][-1] in ("search", "final")


def test_the_score_without_an_l1_is_that_of_scikit_learn():
    X, y = DENSE
    search = found(X, y, tolerance=1e-6, options=Options(max_evaluations=30, final_radius=1e-2))
    C, share = search.best_params_["C"] * 3 / 2, search.best_params_["l1_ratio"]
    theirs = LogisticRegression(solver="saga", C=C, l1_ratio=share, tol=1e-10, max_iter=100_000)
    low, high = search.score_interval_
    assert low - 1e-7 <= cross_val_score(theirs, X, y, cv=CV, scoring="neg_log_loss").mean() <= high + 1e-7


@pytest.mark.parametrize("data", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("stopped", [1, 5, 12, 14])  # over l2, and after it
def test_a_search_that_was_stopped_goes_on_to_the_same_bits(data, stopped, tmp_path):
    whole, made = found(*data), []

    def stop(record):
        made.append(record.number)
        if len(made) == stopped:
            raise StopIteration

    first = found(*data, journal=tmp_path, callback=stop)
    assert first.result_.status is Status.STOPPED and made == [*range(1, stopped + 1)]
    again = found(*data, journal=tmp_path)
    assert again.best_params_ == whole.best_params_ and again.score_interval_ == whole.score_interval_
    assert again.cv_results_["work"].tolist() == whole.cv_results_["work"].tolist()
    assert again.result_.history == whole.result_.history


@pytest.mark.parametrize("stopped", [9, 12, 14])
def test_a_journal_of_few_solutions_goes_on_to_the_same_bits(stopped, tmp_path, monkeypatch):
    """Of the search over l2 it has those at its best place only, and of first looks one."""
    monkeypatch.setattr(answers, "SLACK", 0)
    monkeypatch.setattr(_recorded, "STARTS", 1)
    whole, made = found(*SPARSE), []

    def stop(record):
        made.append(record.number)
        if len(made) == stopped:
            raise StopIteration

    found(*SPARSE, journal=tmp_path, callback=stop)
    again = found(*SPARSE, journal=tmp_path)
    assert again.cv_results_["work"].tolist() == whole.cv_results_["work"].tolist()
    assert again.best_params_ == whole.best_params_
    first = np.flatnonzero(whole.cv_results_["penalty_l1"])[0]
    lines = (tmp_path / "journal.jsonl").read_text().splitlines()[2 : 2 + first]
    assert sum('"class":"Solution"' in line for line in lines) <= 1


@pytest.mark.parametrize("more", [{"initial": {"l1": 1e-2, "l2": 1e-2}}, {"refit": "one_se"}, {"space": WIDE}])
def test_who_says_where_to_search_is_obeyed(more):
    search = found(*DENSE, **more)
    assert search.left_out_ == "" and search.cv_results_["penalty_l1"].all()


def test_two_classes_are_searched_over_both():
    X, y = DENSE
    search = found(X, y > 0)
    assert search.left_out_ == "" and search.cv_results_["penalty_l1"].all()


def test_figures_and_the_page_show_places_without_an_l1():
    search = found(*DENSE)
    data = collect(search, *DENSE, about={})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "Penalties and proof" in page(data)
        panel = path(Trace.of(data["search"]))
    drawn, tried = panel.marks[0].x, search.cv_results_["penalty_l1"]
    np.testing.assert_array_equal(drawn[tried > 0.0], tried[tried > 0.0])
    np.testing.assert_array_equal(drawn[tried == 0.0], 0.1 * tried[tried > 0.0].min())
