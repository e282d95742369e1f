"""Folds of a large X are views of one copy of its rows: the same problems, in a fraction of the memory."""

import tracemalloc

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import suffice
from suffice.sklearn import SufficeSearchCV, splits
from suffice.sklearn.splits import OneCopy, SearchData

ONE = suffice.Options(max_evaluations=1)
CASES = {
    "elastic net": (ElasticNet(), 0),
    "no intercept": (ElasticNet(fit_intercept=False), 0),
    "ridge": (Ridge(), 0),
    "two classes": (LogisticRegression(l1_ratio=0.5, solver="saga"), 2),
    "balanced classes": (LogisticRegression(l1_ratio=0.5, solver="saga", class_weight="balanced"), 2),
    "three classes": (LogisticRegression(), 3),
}


def data_of(classes):
    """Columns far from zero, and of very different sizes."""
    if classes:
        X, y = make_classification(150, 6, n_informative=4, n_redundant=0, n_classes=classes, random_state=0)
    else:
        X, y = make_regression(150, 6, noise=30.0, random_state=0)
        y = y + 500.0
    return (X + 40.0) * np.array([1.0, 3.0, 0.1, 10.0, 1.0, 0.3]), y


@pytest.mark.parametrize("case", CASES)
def test_views_of_one_copy_are_the_same_problems_as_copies_of_rows(monkeypatch, case):
    estimator, classes = CASES[case]
    X, y = data_of(classes)
    weight = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
    cv = (StratifiedKFold if classes else KFold)(4, shuffle=True, random_state=0)
    lone = isinstance(estimator, Ridge) or case == "three classes"
    initial = {"l2": 0.1} if lone else {"l1": 0.03, "l2": 0.1}
    found = []
    for large in (splits.LARGE, 0):
        monkeypatch.setattr(splits, "LARGE", large)
        search = SufficeSearchCV(estimator, cv=cv, initial=initial, options=ONE, tolerance=1e-9)
        found.append(search.fit(X, y, sample_weight=weight))
    copies, views = found
    (a, b), (low, high) = copies.score_interval_, views.score_interval_
    assert max(a, low) <= min(b, high) + 1e-12 * abs(b)
    theirs, ours = copies.best_estimator_, views.best_estimator_
    assert np.allclose(ours.coef_, theirs.coef_, rtol=1e-4, atol=1e-8)
    assert np.allclose(ours.intercept_, theirs.intercept_, rtol=1e-4, atol=1e-6)
    assert np.allclose(views.held_out_.predicted, copies.held_out_.predicted, rtol=1e-4, atol=1e-6)


def shared(estimator, X, y, cv):
    return SearchData(estimator, X, y, np.ones(len(y))).sharing(list(cv.split(X, y))).one


def test_only_folds_that_hold_every_row_out_once_share_a_copy(monkeypatch):
    monkeypatch.setattr(splits, "LARGE", 0)
    X, y = data_of(0)
    assert isinstance(shared(ElasticNet(), X, y, KFold(3)), OneCopy)
    assert shared(ElasticNet(), X, y, ShuffleSplit(3, test_size=0.2, random_state=0)) is None
    assert shared(make_pipeline(StandardScaler(), ElasticNet()), X, y, KFold(3)) is None
    assert shared(ElasticNet(positive=True), X, y, KFold(3)) is None
    assert shared(ElasticNet(), X.astype(np.float32), y, KFold(3)) is None


def test_five_folds_take_one_copy_of_the_rows(monkeypatch):
    """Folds that were copies of their training rows would take four times as much as X, and more to make them."""
    monkeypatch.setattr(splits, "LARGE", 0)
    X, y = make_regression(4000, 250, noise=10.0, random_state=0)
    data = SearchData(ElasticNet(), X, y, np.ones(len(y)))
    tracemalloc.start()
    try:
        rows = list(KFold(5, shuffle=True, random_state=0).split(X))
        data = data.sharing(rows)
        folds = [data.split(*parts, "a fold", k) for k, parts in enumerate(rows)]
        losses = [fold.loss("neg_mean_squared_error", 5) for fold in folds]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(losses) == 5 and all(fold.model.design.X is folds[0].model.design.X for fold in folds)
    assert peak <= 1.3 * X.nbytes
