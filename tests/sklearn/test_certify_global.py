"""`SufficeSearchCV(certify_global=...)`: the search says how much better other penalties could be."""

import json
import sys

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, GammaRegressor, Lasso, LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score

from suffice.options import Options
from suffice.result import Status
from suffice.search.bilevel import BilevelProblem
from suffice.sklearn import SufficeSearchCV, report
from suffice.sklearn._page import landscape

X, y = load_diabetes(return_X_y=True)
X, y = X[:150], y[:150]


def test_scikit_learns_own_scores_lie_where_they_are_proven_to():
    search = SufficeSearchCV(Lasso(), {"l1": (1e-2, 1e2)}, cv=3, certify_global=0.01).fit(X, y)
    assert search.global_gap_ <= 0.01 and search.global_certificate_.success
    for alpha in np.geomspace(1.1e-2, 90.0, 12):
        model = Lasso(alpha=alpha, tol=1e-12, max_iter=100_000)
        loss = -float(np.mean(cross_val_score(model, X, y, cv=3, scoring="neg_mean_squared_error")))
        low, high = search.global_certificate_.bounds_at({"l1": alpha})
        assert low * (1.0 - 1e-8) <= loss <= high * (1.0 + 1e-8)
        assert loss >= (1.0 - search.global_gap_) * -search.score_interval_[0]


def test_an_intercept_that_is_minimised_out_is_part_of_it():
    labels = y > np.median(y)
    search = SufficeSearchCV(
        LogisticRegression(), {"l2": (1e-5, 1e1)}, cv=2, scoring="neg_log_loss", certify_global=0.02
    )
    search.fit(X, labels)
    assert search.global_gap_ <= 0.02


def test_penalties_that_are_found_to_be_better_on_the_way_become_the_best():
    poor = {"initial": {"l2": 50.0}, "options": Options(max_evaluations=1)}
    local = SufficeSearchCV(Ridge(), {"l2": (1e-6, 1e2)}, cv=3, **poor).fit(X, y)
    search = SufficeSearchCV(Ridge(), {"l2": (1e-6, 1e2)}, cv=3, certify_global=0.01, **poor).fit(X, y)
    assert search.best_score_ > local.best_score_ + 100.0 and search.global_gap_ <= 0.01
    assert search.cv_results_["purpose"][-1] in ("global", "final")
    assert search.result_.params["l2"] == search.best_penalties_["l2"] < 1.0


def test_a_share_that_is_not_proven_is_warned_of():
    few = {"cv": 3, "options": Options(max_evaluations=3, max_seconds=1e-3)}
    with pytest.warns(ConvergenceWarning, match="certify_global=1e-06 is not proven: a gap of .* % is proven, no more"):
        search = SufficeSearchCV(Ridge(), {"l2": (1e-6, 1e2)}, certify_global=1e-6, **few).fit(X, y)
    assert search.global_gap_ > 1e-6


def test_what_cannot_be_certified_is_refused_before_anything_is_searched():
    with pytest.raises(TypeError, match="squared, logistic or Poisson"):
        SufficeSearchCV(GammaRegressor(), {"l2": (1e-3, 1e1)}, cv=2, certify_global=0.01).fit(X, y)
    with pytest.raises(ValueError, match="certify_global"):
        SufficeSearchCV(Ridge(), certify_global=-1.0).fit(X, y)


def test_an_interrupted_certificate_holds_and_is_taken_up_from_the_journal(tmp_path, monkeypatch):
    poor = {
        "initial": {"l2": 50.0},
        "options": Options(max_evaluations=1),
    }  # better ones are found on the way
    asked = {"space": {"l2": (1e-6, 1e2)}, "cv": 3, "certify_global": 1e-3, **poor}
    whole = SufficeSearchCV(Ridge(), **asked).fit(X, y)
    evaluated = BilevelProblem.evaluate
    made = []

    def interrupted(self, *args, **kwargs):
        made.append(evaluated(self, *args, **kwargs))
        if sys._getframe(1).f_code.co_filename.endswith("branch.py"):
            made.clear()
            raise KeyboardInterrupt
        return made[-1]

    monkeypatch.setattr(BilevelProblem, "evaluate", interrupted)
    first = SufficeSearchCV(Ridge(), journal=tmp_path, **asked).fit(X, y)
    assert first.result_.status is Status.INTERRUPTED and first.global_gap_ > 1e-3
    assert first.global_certificate_.lower <= whole.global_certificate_.upper
    monkeypatch.undo()
    again = SufficeSearchCV(Ridge(), journal=tmp_path, **asked).fit(X, y)
    assert again.global_gap_ == whole.global_gap_ and again.best_score_ == whole.best_score_


@pytest.mark.parametrize(
    "space", [pytest.param({"l2": (1e-3, 1e1)}, marks=pytest.mark.slow), {"l1": (1e-1, 1e2), "l2": (1e-2, 1e1)}]
)
def test_the_report_shows_what_is_proven_of_all_other_penalties(space):
    estimator = Ridge() if len(space) == 1 else ElasticNet()
    search = SufficeSearchCV(estimator, space, cv=2, certify_global=0.2).fit(X, y)
    data = json.loads(json.dumps(report.collect(search, X, y, about={})))
    assert landscape(data["global"]["landscape"]).gap == search.global_gap_
    page = report.page(data)
    assert "All other penalties" in page and f"{search.global_certificate_.landscape.gap_in_percent} %" in page
    data["global"] = None
    assert "All other penalties" not in report.page(data)
