"""The Lasso's path, fold by fold: F at all penalties, as others compute it, from a handful of linear solves."""

import itertools

import numpy as np
import pytest
from sklearn.linear_model import lars_path

import suffice
from suffice import losses, problems
from suffice.globally.homotopy import cells, linear, paths, segments
from suffice.globally.models import folds_of
from suffice.solvers.problem import Composite


class Lasso:
    """Twice the parameter is l1."""

    def __init__(self, X, y):
        self.problem = problems.ElasticNet(X, y)

    def at(self, *, strength) -> Composite:
        made: Composite = self.problem.at(l1=2.0 * strength, l2=0.0)
        return made

    def shares(self, names):
        return {"strength": (2.0, 0.0)}


def lasso(seed, n=30, d=12, folds=2, ends=(1e-4, 10.0)):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2 * n, d)) + rng.standard_normal((2 * n, 1))
    y = X[:, :3] @ rng.standard_normal(3) + rng.standard_normal(2 * n)
    parts = [rng.permutation(2 * n) for _ in range(folds)]
    return suffice.BilevelProblem(
        [Lasso(X[part[:n]], y[part[:n]]) for part in parts],
        [losses.SquaredError(X[part[n:]], y[part[n:]]) for part in parts],
        space=suffice.Space(strength=(*ends, "log")),
    )


def exact(problem, values):
    """F by scikit-learn's LARS."""
    total = np.zeros(len(values))
    for fold in folds_of(problem):
        alphas, _, path = lars_path(fold.design.X, fold.model.y, method="lasso")
        w = np.array([np.interp(2.0 * values, alphas[::-1], row[::-1]) for row in path]).T
        residuals = w @ fold.held.design.X.T - fold.held.y
        total += fold.held.share * (residuals**2).sum(axis=1)  # a sum over rows, as SquaredError is
    return total


@pytest.mark.parametrize(("n", "d"), [(30, 12), (12, 40)])
@pytest.mark.parametrize("seed", range(4))
def test_f_is_where_it_is_proven_to_lie_at_any_penalty(seed, n, d):
    problem = lasso(seed, n, d)
    made = suffice.certify_global(problem, 1e-3)
    values = 10.0 ** np.random.default_rng(seed).uniform(-4.0, 1.0, 400)
    F = exact(problem, values)
    low, high = np.array([made.bounds_at({"strength": float(value)}) for value in values]).T
    assert np.all(low <= F * (1.0 + 1e-9)) and np.all(high * (1.0 + 1e-9) >= F)
    assert np.median((high - low) / F) < 1e-6  # rounding, not the size of a cell
    assert made.success and made.lower <= F.min() * (1.0 + 1e-9)
    assert made.evaluations <= 8  # there are some forty kinks


def test_segments_end_where_weights_come_and_go():
    (fold,) = folds_of(lasso(0, folds=1))
    alphas, _, path = lars_path(fold.design.X, fold.model.y, method="lasso")
    found = list(segments(fold, 1e-4, 10.0))
    ends = [2.0 * segment.low for segment in found[:-1]]
    assert np.allclose(ends, [alpha for alpha in alphas if alpha > 2e-4], rtol=1e-8)
    for segment in found[1:]:
        w = [np.interp(segment.low + segment.high, alphas[::-1], row[::-1]) for row in path]
        assert np.allclose(segment.at(0.5 * (segment.low + segment.high)), w, atol=1e-8)


def test_what_a_segment_claims_does_not_rest_on_its_weights(monkeypatch):
    """Weights that are wrong make the claim weak, not false."""
    problem = lasso(1)
    folds = folds_of(problem)
    assert linear(folds)
    right = dict.fromkeys(range(2))
    import suffice.globally.homotopy as module

    at = module.Segment.at
    for k, wrong in enumerate((1.0, 1.01)):
        monkeypatch.setattr(module.Segment, "at", lambda self, t, wrong=wrong: wrong * at(self, t))
        right[k] = list(cells(paths(folds, 1e-2, 1.0), 1e-2, 1.0))
    assert max(surface.slack for _, surface in right[0]) < 1e-6
    for box, surface in right[1]:
        F = exact(problem, box.centre)[0]
        a, b = surface.interval(box.centre)
        assert a <= F * (1.0 + 1e-9) and b * (1.0 + 1e-9) >= F


def test_equal_columns_end_the_path_and_nothing_is_claimed_beyond():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 5))
    X[:, 1] = X[:, 0]
    y = X[:, 0] + rng.standard_normal(40)
    problem = suffice.BilevelProblem(
        [Lasso(X[:20], y[:20])], [losses.SquaredError(X[20:], y[20:])], space=suffice.Space(strength=(1e-3, 10.0))
    )
    found = list(cells(paths(folds_of(problem), 1e-3, 10.0), 1e-3, 10.0))
    assert found[0][0].low[0] == 1e-3 and found[-1][0].high[0] == 10.0  # all of the range, in order
    assert all(one.high[0] == other.low[0] for (one, _), (other, _) in itertools.pairwise(found))
    assert np.isfinite(found[-1][1].slack)


def test_a_minimum_that_is_known_before_needs_no_look():
    problem = lasso(0)
    made = suffice.certify_global(problem, 1e-3)
    again = suffice.certify_global(problem, 1e-2, known=problem.evaluate(made.theta, within=1e-6))
    assert again.success and again.evaluations == 0
    assert again.history[-1].gap == again.gap <= 1e-2
