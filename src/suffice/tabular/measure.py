"""Whether a score can be used, and what it is for a model that knows nothing but the target."""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import get_scorer, get_scorer_names

from suffice.sklearn import SufficeSearchCV
from suffice.tabular.columns import TableProblem
from suffice.tabular.entries import quoted
from suffice.tabular.table import TableError


def baseline(search: SufficeSearchCV, problem: TableProblem) -> float | None:
    """The score of a model that knows frequencies or the mean of the target only; None where it has none."""
    dummy, y = DummyRegressor(), problem.y
    scoring = search.scoring if search.surrogate_ else search.optimised_scoring_
    if problem.task == "classification":
        dummy = DummyClassifier()
        y = np.unique(y, return_inverse=True)[1] if not search.surrogate_ else y  # some scores know numbers only
    if scoring == "neg_squared_hinge":
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = float(np.mean([*_dummy_scores(dummy, problem, y, search.cv, scoring)]))
        except (ValueError, AttributeError, TypeError):  # a scorer that needs more than a dummy has
            return None
    return found if math.isfinite(found) else None


def _dummy_scores(dummy: Any, problem: TableProblem, y: Any, cv: Any, scoring: Any) -> Iterator[float]:
    score = get_scorer(scoring)
    nothing = np.zeros((len(y), 1))
    for train, test in cv.split(nothing, y):
        fitted = clone(dummy).fit(nothing[train], y[train], **problem.weights_of(train))
        yield float(score(fitted, nothing[test], y[test], **problem.weights_of(test)))


def check_scoring(scoring: str | None, problem: TableProblem) -> None:
    """Whether a score goes with the model and the target, found out on a few rows before a long search."""
    if scoring is None or problem.optimised(scoring) == scoring:
        return
    known = get_scorer_names()
    if scoring not in known:
        near = difflib.get_close_matches(scoring, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "scikit-learn lists them by get_scorer_names()"
        raise TableError(f"there is no score {quoted(scoring)}: {hint}")
    if problem.task == "classification":
        rows = np.concatenate([np.flatnonzero(problem.y == label)[:20] for label in np.unique(problem.y)])
    else:
        rows = np.arange(min(200, len(problem.y)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fitted = clone(problem.estimator).fit(problem.X.iloc[rows], problem.y[rows])
            found = float(get_scorer(scoring)(fitted, problem.X.iloc[rows], problem.y[rows]))
        except (ValueError, AttributeError, TypeError) as error:
            raise TableError(f"the score {scoring} cannot be used here: {error}") from error
    if not math.isfinite(found):
        reasons = [str(item.message).splitlines() for item in caught if "scor" in str(item.message).lower()]
        raise TableError(f"the score {scoring} cannot be used here" + (f": {reasons[0][-1]}" if reasons else ""))
