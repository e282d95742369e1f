"""The honest score of tuning: the whole search is repeated without the rows that it is judged by.

`best_score_` of a search is that of the penalties that did best on the very folds that it is the mean of, and looks
better than what new rows will give. In nested cross-validation every outer fold is scored by a search that has not seen
it. It tells what tuning so gives, not what one particular model does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import cross_validate

from suffice.arrays import Array
from suffice.rows.given import taken
from suffice.sklearn._recorded import error_of_mean


@dataclass(frozen=True, eq=False)
class NestedScore:
    """Scores of outer folds beside what the searches inside say of themselves."""

    scores: Array  #: of every outer fold, by a search that has not seen it
    inner_scores: Array  #: `best_score_` of the same searches
    searches: tuple[Any, ...]  #: fitted without the fold

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))

    @property
    def standard_error(self) -> float:
        """Of the mean, as if outer folds were independent, which they nearly are; NaN for one."""
        return error_of_mean(self.scores) if len(self.scores) > 1 else math.nan

    @property
    def optimism(self) -> float:
        """By how much `best_score_` of the searches inside is better, in the mean."""
        return float(np.mean(self.inner_scores)) - self.mean

    def __repr__(self) -> str:
        return f"<NestedScore: {self}>"

    def __str__(self) -> str:
        own = f"the searches' own {float(np.mean(self.inner_scores)):.4g}"
        return f"{self.mean:.4g} ± {self.standard_error:.2g} over {len(self.scores)} outer folds; {own}"


def nested_score(
    search: Any, X: Any, y: Any, *, cv: Any = 5, groups: Any = None, sample_weight: Any = None, n_jobs: Any = None
) -> NestedScore:
    """The score of a `SufficeSearchCV`, tuning included, on outer folds, by `sklearn.model_selection.cross_validate`.

    `search` is cloned, without its journal; `groups` go to both splitters, `sample_weight` to fits, to the scores
    inside and to those outside. The score is that of `search.score`.
    """
    given = {"groups": groups, "sample_weight": sample_weight}
    given = {name: value for name, value in given.items() if value is not None}
    found = cross_validate(
        clone(search).set_params(journal=None), X, y, cv=cv, groups=groups, params=given, n_jobs=n_jobs,
        return_estimator=True, return_indices=True, error_score="raise",
    )  # fmt: skip
    scores, searches = found["test_score"], tuple(found["estimator"])
    if sample_weight is not None:
        pairs = zip(searches, found["indices"]["test"], strict=True)
        v = np.asarray(sample_weight)
        scores = [one.score(taken(X, test), taken(y, test), sample_weight=v[test]) for one, test in pairs]
    inside = np.array([one.best_score_ for one in searches])
    return NestedScore(np.array(scores, dtype=np.float64), inside, searches)
