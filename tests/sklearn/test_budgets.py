"""Time that is allowed is kept to: first looks, the last evaluation and the final fit count, what is under way is given
up, and what a report needs besides the search costs less than the search."""

import math
import os
import signal
import time

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold

import suffice
from suffice.result import Status
from suffice.search.bilevel import BilevelProblem
from suffice.signals import TimeOver, at_once, time_limit, undisturbed
from suffice.sklearn import SufficeSearchCV, _final_fit, _penalty_search, _report_data, _search
from suffice.sklearn.report import collect
from suffice.sklearn.splits import SearchData

X, Y = make_classification(90, 6, random_state=0, flip_y=0.2)
MODEL = LogisticRegression(l1_ratio=0.5, solver="saga", max_iter=10_000)


FEW = suffice.Options(max_evaluations=6, final_radius=1e-2)
SPACE = {"l2": (1e-3, 1.0)}


def search(estimator=MODEL, **more):
    return SufficeSearchCV(estimator, SPACE, **{"cv": KFold(3), "options": FEW, **more})


def stuck(seconds=20.0):
    """What nobody should have to wait for."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.001)
    raise AssertionError("this was not given up")


def test_an_interruption_before_the_first_step_leaves_the_best_look(monkeypatch):
    none = suffice.Result(np.array([]), math.nan, (-math.inf, math.inf), Status.INTERRUPTED, 0, 0.0, ())
    monkeypatch.setattr(_penalty_search, "tune", lambda *given, **more: none)
    found = search().fit(X, Y)
    low, high = found.result_.interval
    assert found.result_.status is Status.INTERRUPTED and 0.0 < low <= high < math.inf
    assert found.score_interval_ == (-high, -low) and found.result_.params is not None


def test_a_time_limit_ends_a_computation_and_leaves_no_trace():
    with pytest.raises(TimeOver), time_limit(time.monotonic() + 0.01):
        stuck()
    with pytest.raises(TimeOver), time_limit(time.monotonic() - 1.0):
        raise AssertionError("there is no time to begin")
    with pytest.raises(KeyboardInterrupt), at_once(time.monotonic() + 0.01):
        stuck()
    with time_limit(math.inf), time_limit(time.monotonic() + 60.0):
        pass
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL)[0] == 0.0


def test_a_time_limit_waits_for_what_is_being_written():
    done = []
    with pytest.raises(TimeOver), time_limit(time.monotonic() + 60.0), undisturbed():
        os.kill(os.getpid(), signal.SIGALRM)
        done.append("written")
    assert done == ["written"]


def test_first_looks_count_and_one_evaluation_is_made_in_any_case():
    found = search(options=suffice.Options(max_seconds=1e-6)).fit(X, Y)
    assert found.result_.status is Status.MAX_SECONDS and len(found.cv_results_["work"]) == 1
    low, high = found.score_interval_
    assert low <= found.best_score_ <= high
    assert found.coef_radius_ < math.inf and hasattr(found, "best_estimator_")


@pytest.mark.parametrize("before", [1, 3, 8])  # in the first look, in first looks, in the search
def test_an_evaluation_under_way_is_given_up_when_time_is_over(monkeypatch, before):
    made, evaluate_all = [], BilevelProblem.evaluate_all

    def evaluate(self, *arguments, **more):
        made.append(0)
        return stuck() if len(made) > before else evaluate_all(self, *arguments, **more)

    monkeypatch.setattr(BilevelProblem, "evaluate_all", evaluate)
    found = search(options=suffice.Options(max_seconds=0.5, final_radius=1e-4), tolerance=1e-8).fit(X, Y)
    assert found.result_.status is Status.MAX_SECONDS and not found.result_.success
    assert len(found.cv_results_["work"]) <= before
    assert found.result_.interval == found.result_.evaluation.interval


def test_a_final_fit_without_time_is_left_with_what_is_proven_and_a_warning():
    wide = X * np.geomspace(1e-3, 1e3, 6)
    estimator = LogisticRegression(C=1e6)
    data = SearchData(estimator, wide, Y, np.ones(len(Y)))
    penalties = {"l1": 0.0, "l2": 1e-8}
    with pytest.warns(ConvergenceWarning, match="left after 1 steps"):
        left, left_radius, _ = _final_fit.fit_final(data, penalties, until=time.monotonic() - 1.0)
    whole, radius, _ = _final_fit.fit_final(data, penalties)
    assert np.linalg.norm(left.coef_ - whole.coef_) <= left_radius + radius
    assert left_radius > radius


def test_ctrl_c_is_obeyed_at_once_where_a_journal_keeps_everything(monkeypatch, tmp_path):
    def interrupt(record):
        if record.number == 4:
            raise KeyboardInterrupt

    fit_final = _search.fit_final
    monkeypatch.setattr(_search, "GRACE", 0.05)
    monkeypatch.setattr(_search, "fit_final", lambda *_: stuck())
    with pytest.raises(KeyboardInterrupt):
        search(journal=tmp_path, callback=interrupt).fit(X, Y)
    monkeypatch.setattr(_search, "fit_final", fit_final)
    again, whole = search(journal=tmp_path).fit(X, Y), search().fit(X, Y)
    assert again.best_params_ == whole.best_params_
    np.testing.assert_array_equal(again.best_estimator_.coef_, whole.best_estimator_.coef_)


def test_without_a_journal_an_interrupted_fit_still_gives_its_model(monkeypatch):
    def interrupt(record):
        if record.number == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(_search, "GRACE", 0.0)
    found = search(callback=interrupt).fit(X, Y)
    assert found.result_.status is Status.INTERRUPTED and hasattr(found, "best_estimator_")


# Reports


def test_held_out_models_are_those_of_the_search(monkeypatch):
    found = search().fit(X, Y)
    monkeypatch.setattr(_report_data, "trained", lambda *_, **__: pytest.fail("a model was trained again"))
    held = _report_data.FittedSearch(found, X, Y).held_out()
    for fold, solution in zip(held, found._fold_weights.solutions, strict=True):
        np.testing.assert_array_equal(fold.solution.x, solution.x)


def test_models_of_other_folds_are_never_taken_for_held_out():
    found = SufficeSearchCV(Ridge(), cv=KFold(3, shuffle=True)).fit(X, Y.astype(float))
    task = _report_data.FittedSearch(found, X, Y.astype(float))
    for fold, solution in zip(task.held_out(), found._fold_weights.solutions, strict=True):
        assert np.linalg.norm(fold.solution.x - solution.x) > 0.0


def test_the_path_takes_no_more_steps_than_it_may(monkeypatch):
    found = search().fit(X, Y)
    steps, trained = [], _report_data.trained

    def counted(split, penalties, *rest, **more):
        model = trained(split, penalties, *rest, **more)
        steps.append(model.steps)
        return model

    monkeypatch.setattr(_report_data, "trained", counted)
    task = _report_data.FittedSearch(found, X, Y)
    path = _report_data.regularisation_path(task)
    assert path["left_out"] == 0 and path["accuracy"] <= _report_data.POOR
    assert sum(steps) <= max(_report_data.SHARE * found.cv_results_["work"].sum(), _report_data.LEAST_STEPS) + len(
        steps
    )
    steps.clear()
    monkeypatch.setattr(_report_data.FittedSearch, "allowed", lambda task: 3)
    short = _report_data.regularisation_path(task)
    assert short["left_out"] > 0 and 1.0 in short["multiples"] and short["accuracy"] <= _report_data.POOR
    np.testing.assert_array_equal(
        short["nonzero"][short["multiples"].index(1.0)], np.count_nonzero(found.best_estimator_.coef_)
    )


def test_a_report_without_time_says_what_is_known_and_nothing_else():
    X, y = make_regression(60, 5, noise=5.0, random_state=0)
    found = search(Ridge()).fit(X * np.geomspace(1e-2, 1e2, 5), y)
    data = collect(found, X * np.geomspace(1e-2, 1e2, 5), y, about={}, until=time.monotonic() - 1.0)
    told = data["measures"]
    assert told["tuned"] and all(len(row["default"]) in (0, 3) for row in told["scores"].values())
    assert data["regularisation"]["accuracy"] <= _report_data.POOR or data["regularisation"]["multiples"] == [1.0]
