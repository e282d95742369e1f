"""Quantile regression by smoothing: how far the loss is from the pinball loss, what is proven, and what it comes to."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import QuantileRegressor
from sklearn.model_selection import cross_val_score

import suffice
from suffice import problems
from suffice.models.margin_losses import Quantile
from suffice.prove.held_out import HeldOut
from suffice.prove.scores import PinballScore
from suffice.rows.design import Design
from suffice.sklearn import SufficeSearchCV
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.scores import SCORES
from suffice.solvers.newton import NewtonNarrowing
from suffice.testing import check_loss, check_problem

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
Y = X[:, 0] - 0.5 * X[:, 1] + RNG.standard_normal(60) * (1.0 + 0.3 * np.abs(X[:, 0]))


def pinball(q, t):
    return np.maximum(q * t, (q - 1.0) * t)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_the_smoothed_loss_is_below_the_pinball_loss_by_no_more_than_its_bias(q):
    psi, m = Quantile(q, 0.3), np.linspace(-2.0, 2.0, 401)
    y = np.full_like(m, 0.4)
    gap = pinball(q, y - m) - psi.value(m, y)
    assert (
        np.all(gap >= -1e-15)
        and gap.max() == pytest.approx(psi.bias, rel=1e-2)
        and gap.max() <= psi.bias * (1.0 + 1e-12)
    )
    step = 1e-6
    slopes = (psi.value(m + step, y) - psi.value(m - step, y)) / (2.0 * step)
    assert np.allclose(slopes, psi.derivative(m, y), atol=1e-5)
    for wrong in ({"q": 0.0}, {"q": 1.0}, {"h": 0.0}):
        with pytest.raises(ValueError):
            Quantile(**wrong)


def test_conformance():
    check_problem(problems.ElasticNetModel(X, Y, Quantile(0.7, 0.2)).at(l1=0.01, l2=0.05))
    check_loss(HeldOut(Design.of(X), Y, PinballScore(0.7), 0.3), RNG.standard_normal(4))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("q", [0.5, 0.9])
def test_a_solution_without_an_l2_is_verified_and_minimises_the_pinball_loss_up_to_the_bias(q, intercept):
    asked = QuantileRegressor(quantile=q, fit_intercept=intercept)
    fold = find_adapter(asked).fold(asked, X, Y, np.ones(60), None)
    found = suffice.solve(fold.at(l1=0.02, l2=0.0), within=1e-6, solver=fold.solver)
    assert found.reached and found.certificate.rule == "verified"
    theirs = QuantileRegressor(quantile=q, alpha=0.02, fit_intercept=intercept).fit(X, Y)
    coef, b = fold.coefficients(found.x)

    def objective(w, b):
        return float(np.mean(pinball(q, Y - X @ w - b))) + 0.02 * float(np.abs(w).sum())

    least = objective(theirs.coef_, float(theirs.intercept_))
    assert least - 1e-9 <= objective(coef, b) <= least + fold.psi.bias
    assert fold.psi.bias <= 2e-3 * float(np.mean(pinball(q, Y - np.quantile(Y, q))))


def test_other_problems_are_refused():
    problem = problems.ElasticNet(X, Y).at(l1=0.1, l2=0.1)
    with pytest.raises(ValueError, match="smoothed pinball loss"):
        suffice.solve(problem, within=1e-3, solver=NewtonNarrowing())


def test_a_search_agrees_with_scikit_learns_models():
    estimator = QuantileRegressor(quantile=0.8)
    few = suffice.Options(max_evaluations=4, final_radius=1e-2)
    search = SufficeSearchCV(estimator, {"alpha": (1e-2, 1.0)}, cv=2, options=few).fit(X, Y)
    low, high = search.score_interval_
    assert low <= search.best_score_ <= high and high - low <= 1e-3 * abs(low)
    scorer = SCORES["neg_mean_pinball_loss"].scorer
    theirs = cross_val_score(clone(estimator).set_params(**search.best_params_), X, Y, cv=2, scoring=scorer).mean()
    assert search.best_score_ == pytest.approx(theirs, rel=5e-3)  # of models that are not smoothed
    best = search.best_estimator_
    assert best.smoothing_bias_ > 0.0 and search.coef_radius_ < 1e-5 and best.coef_.shape == (4,)
    with pytest.raises(ValueError, match="no l2 penalty to tune"):
        SufficeSearchCV(estimator, {"l2": (1e-2, 1.0)}, cv=2).fit(X, Y)
