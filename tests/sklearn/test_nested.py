"""The honest score of tuning: what a loop written out would say."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import get_scorer, mean_squared_error
from sklearn.model_selection import GroupKFold, KFold, cross_val_score

import suffice
from suffice.sklearn import SufficeSearchCV, nested_score

FEW = suffice.Options(max_evaluations=6, final_radius=1e-2)
rng = np.random.default_rng(0)
X = rng.standard_normal((60, 8))
y = X[:, 0] + 2.0 * rng.standard_normal(60)


def test_every_outer_fold_is_scored_by_a_search_that_has_not_seen_it():
    search, outer = SufficeSearchCV(Ridge(), cv=3, options=FEW), KFold(4)
    found = nested_score(search, X, y, cv=outer)
    for (train, test), score, inside in zip(outer.split(X), found.scores, found.inner_scores, strict=True):
        own = clone(search).fit(X[train], y[train])
        assert score == -mean_squared_error(y[test], own.predict(X[test])) and inside == own.best_score_
    np.testing.assert_array_equal(found.scores, cross_val_score(search, X, y, cv=outer))
    assert found.mean == found.scores.mean() and found.optimism == found.inner_scores.mean() - found.mean
    assert found.standard_error == pytest.approx(found.scores.std(ddof=1) / 2.0)
    assert "over 4 outer folds" in str(found) and repr(found) == f"<NestedScore: {found}>"


def test_weights_count_inside_and_outside():
    weight = rng.integers(0, 3, 60).astype(float)
    search, outer = SufficeSearchCV(Ridge(), cv=3, options=FEW), KFold(3)
    found = nested_score(search, X, y, cv=outer, sample_weight=weight)
    for (train, test), score in zip(outer.split(X), found.scores, strict=True):
        own = clone(search).fit(X[train], y[train], sample_weight=weight[train])
        assert score == -mean_squared_error(y[test], own.predict(X[test]), sample_weight=weight[test])


def test_groups_are_kept_together_inside_and_outside():
    groups = np.repeat(np.arange(12), 5)
    search, outer = SufficeSearchCV(Ridge(), cv=GroupKFold(3), options=FEW), GroupKFold(4)
    found = nested_score(search, X, y, cv=outer, groups=groups)
    train, test = next(outer.split(X, y, groups))
    own = clone(search).fit(X[train], y[train], groups=groups[train])
    assert found.scores[0] == own.score(X[test], y[test]) and not set(groups[train]) & set(groups[test])


def test_a_journal_is_of_the_search_alone(tmp_path):
    search = SufficeSearchCV(Ridge(), cv=3, options=FEW, journal=tmp_path / "run")
    nested_score(search, X, y, cv=2)
    assert not (tmp_path / "run").exists() and search.journal is not None


def test_where_there_is_nothing_to_learn_a_search_praises_itself():
    gains = []
    for seed in range(6):
        noise = np.random.default_rng(seed).standard_normal((40, 30))
        labels = np.random.default_rng(100 + seed).integers(0, 2, 40)
        space = {"l1": (1e-3, 1.0), "l2": (1e-3, 10.0)}
        search = SufficeSearchCV(LogisticRegression(solver="saga"), space, cv=4, scoring="neg_log_loss", options=FEW)
        gains.append(nested_score(search, noise, labels, cv=4).optimism)
    assert np.mean(gains) > 0.0


def test_a_score_may_have_weights():
    weight = rng.random(60)
    search = SufficeSearchCV(Ridge(), cv=3, options=FEW, scoring="r2").fit(X, y)
    assert search.score(X, y, sample_weight=weight) == get_scorer("r2")(search, X, y, sample_weight=weight)
