"""Penalties of single classes: the same minimisers as scikit-learn's where they are common, and a search over all."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import suffice
from suffice import losses, problems
from suffice.testing import check_loss, check_problem

RNG = np.random.default_rng(0)
X = RNG.standard_normal((90, 4))
Y = np.array(["a", "b", "c"])[np.argmax(X[:, :3] + RNG.standard_normal((90, 3)), axis=1)]


@pytest.mark.parametrize("intercept", [False, True])
def test_common_penalties_lead_to_scikit_learns_model(intercept):
    problem = problems.ElasticNetMultinomial(X, Y, intercept=intercept)
    found = suffice.solve(problem.at(l1=0.0, l2=0.02), within=1e-9)
    theirs = LogisticRegression(C=1.0 / (90 * 0.02), fit_intercept=intercept, tol=1e-12, solver="newton-cg").fit(X, Y)
    assert np.allclose(found.x.reshape(3, 4), theirs.coef_, atol=1e-6)
    every = problem.at(l1_a=0.01, l1_b=0.01, l1_c=0.01, l2=0.02)
    assert every == problem.at(l1=0.01, l2=0.02)


def test_a_class_of_its_own_penalty_is_left_out_alone():
    problem = problems.ElasticNetMultinomial(X, Y)
    found = suffice.solve(problem.at(l1_a=1e3, l1=1e-3, l2=1e-2), within=1e-8)
    W = found.x.reshape(3, 4)
    assert found.reached and not W[0].any() and W[1].any() and W[2].any()
    check_problem(problem.at(l1_a=0.05, l1=1e-3, l2_b=0.1, l2=1e-2))
    assert not suffice.solve(problem.at(l1=problem.l1_max, l2=0.1), within=1e-6).x.any()


@pytest.mark.parametrize("loss", [losses.MultinomialLogLoss, losses.MultinomialBrier])
def test_penalties_of_classes_are_tuned_with_derivatives_that_are_right(loss):
    lower = problems.ElasticNetMultinomial(X[:60], Y[:60], intercept=True)
    held = loss(X[60:], Y[60:], lower)
    check_loss(held, RNG.standard_normal(12), trials=30)
    space = suffice.Space(l1_a=(1e-4, 1e-1), l1_b=(1e-4, 1e-1), l1=(1e-4, 1e-1), l2=(1e-3, 1.0))
    problem = suffice.BilevelProblem([lower], [held], space=space)
    theta = np.array([-2.0, -2.5, -2.2, -1.0])
    here = problem.differentiate(problem.evaluate(theta, within=1e-9))
    assert here.slope is not None
    for k, step in enumerate(1e-4 * np.eye(4)):
        up, down = (problem.evaluate(theta + way * step, within=1e-10).cost for way in (1.0, -1.0))
        assert here.slope[k] == pytest.approx((up - down) / 2e-4, rel=1e-3, abs=1e-5)


def test_what_it_does_not_know_is_refused():
    problem = problems.ElasticNetMultinomial(X, Y)
    with pytest.raises(TypeError, match="unknown parameters: l1_d"):
        problem.at(l1_d=1.0, l1=1.0, l2=1.0)
    with pytest.raises(ValueError, match="l1_b must be given"):
        problem.at(l1_a=1.0, l2=1.0)
    with pytest.raises(ValueError, match="two classes"):
        problems.ElasticNetMultinomial(X, np.ones(90))
    with pytest.raises(ValueError, match="holds the label"):
        losses.MultinomialLogLoss(X, np.full(90, "d"), problem)
