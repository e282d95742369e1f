"""Tools that tune by cross-validation on one table: the losses that count are exact ones."""

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ElasticNet
from sklearn.model_selection import cross_val_score
from suffice_bench.tools import OURS, Run, Tabled, compared, exact_loss


def table_of_diabetes():
    X, y = load_diabetes(return_X_y=True)
    return Tabled((X - X.mean(axis=0)) / X.std(axis=0), y, False)


def test_the_exact_loss_is_that_of_models_trained_to_the_end():
    data = table_of_diabetes()
    model = ElasticNet(alpha=1.0, l1_ratio=0.7, tol=1e-12, max_iter=100_000)
    losses = -cross_val_score(model, data.X, data.y, cv=data.splits, scoring=data.scoring)
    assert np.isclose(exact_loss(data, (0.7, 0.3)), losses.mean(), rtol=1e-5)


def test_all_tools_are_held_against_the_least_loss_of_all():
    runs = compared(table_of_diabetes())
    assert {run.tool for run in runs} == {OURS, "RidgeCV", "ElasticNetCV"}
    assert [run.loss for run in runs] == sorted(run.loss for run in runs)
    ours = next(run for run in runs if run.tool == OURS)
    assert 0.0 < ours.until(runs[0].loss) <= ours.seconds


def test_a_search_is_near_when_it_has_proven_to_be():
    run = Run("one", 9.0, (0.1, 0.1), [(1.0, 3.0), (2.0, 1.0009), (3.0, 1.0)], loss=1.0)
    assert run.until(1.0) == 2.0
    assert Run("another", 9.0, (0.1, 0.1), loss=1.0005).until(1.0) == 9.0
    assert Run("a third", 9.0, (0.1, 0.1), loss=1.01).until(1.0) is None
