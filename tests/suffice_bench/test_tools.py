"""Tools that tune by cross-validation on one table: the losses that count are exact ones."""

import numpy as np
from sklearn.datasets import load_diabetes, load_wine
from sklearn.linear_model import ElasticNet
from sklearn.model_selection import cross_val_score
from suffice_bench import tools
from suffice_bench.tools import OURS, Run, Tabled, compared, exact_loss, ridge_cv


def table_of_diabetes():
    X, y = load_diabetes(return_X_y=True)
    return Tabled((X - X.mean(axis=0)) / X.std(axis=0), y, False)


def test_the_exact_loss_is_that_of_models_trained_to_the_end():
    data = table_of_diabetes()
    model = ElasticNet(alpha=1.0, l1_ratio=0.7, tol=1e-12, max_iter=100_000)
    losses = -cross_val_score(model, data.X, data.y, cv=data.splits, scoring=data.scoring)
    assert np.isclose(exact_loss(data, (0.7, 0.3)), losses.mean(), rtol=1e-5)


def test_all_tools_are_held_against_the_least_loss_of_all():
    families = compared(table_of_diabetes())
    assert [{run.tool for run in runs} for runs in families] == [{OURS, "RidgeCV"}, {OURS, "ElasticNetCV"}]
    assert [{run.penalties for run in runs} for runs in families] == [{"l2"}, {"l1 and l2"}]
    for runs in families:
        assert [run.loss for run in runs] == sorted(run.loss for run in runs)
        ours = next(run for run in runs if run.tool == OURS)
        assert 0.0 < ours.until(runs[0].loss) <= ours.seconds
    assert all(run.found[0] == 0.0 for run in families[0]) and families[1][0].found[0] > 0.0


def test_several_classes_are_tuned_with_both_penalties_too():
    X, y = load_wine(return_X_y=True)
    families = compared(Tabled((X - X.mean(axis=0)) / X.std(axis=0), y, True))
    assert [{run.tool for run in runs} for runs in families] == [{OURS, "LogisticRegressionCV"}, {OURS}]
    assert families[1][0].loss <= families[0][0].loss  # of a larger family


def test_ridge_cv_leaves_out_one_row_at_a_time():
    data = table_of_diabetes()
    n, centred = len(data.y), data.y - data.y.mean()
    U, s, _ = np.linalg.svd(data.X, full_matrices=False)

    def left_out(alpha):  # the sum of squares of (y - H y) / (1 - diag H), the intercept's 1 / n included
        H = U * (s**2 / (s**2 + alpha)) @ U.T
        return np.sum(((centred - H @ centred) / (1.0 - np.diag(H) - 1.0 / n)) ** 2)

    for size in (7, 100):
        alphas = np.logspace(-6, 6, size)
        assert np.isclose(ridge_cv(data, None, grid=size)[1], min(alphas, key=left_out) / n)


def test_grids_have_as_many_values_as_were_asked_for(monkeypatch):
    asked = []
    for name in ("RidgeCV", "ElasticNetCV"):
        kind = getattr(tools, name)
        monkeypatch.setattr(
            tools, name, lambda *given, kind=kind, **how: asked.append((given, how)) or kind(*given, **how)
        )
    compared(table_of_diabetes(), grid=5)
    (ridge, _), (_, net) = asked
    assert len(ridge[0]) == 5 == net["alphas"]


def test_a_search_is_near_when_it_has_proven_to_be():
    run = Run("one", 9.0, (0.1, 0.1), [(1.0, 3.0), (2.0, 1.0009), (3.0, 1.0)], loss=1.0)
    assert run.until(1.0) == 2.0
    assert Run("another", 9.0, (0.1, 0.1), loss=1.0005).until(1.0) == 9.0
    assert Run("a third", 9.0, (0.1, 0.1), loss=1.01).until(1.0) is None
