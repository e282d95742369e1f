"""Families of generalised linear models: their constants, deviances to forty digits, and minimisers enclosed."""

import math
import re

import numpy as np
import pytest
from flint import arb
from scipy.special import expit

import suffice
from suffice import losses, problems, terms
from suffice.models.intercept import Intercepted
from suffice.penalties.prox import L1
from suffice.rows.design import Design
from suffice.solvers.solver import iterate
from suffice.testing import check_loss, check_problem
from tests.reference_balls import precision
from tests.reference_exact import psi_of, truth

FAMILIES = {
    "poisson": terms.POISSON,
    "gamma": terms.GAMMA,
    "tweedie": terms.Tweedie(1.3),
    "tweedie near poisson": terms.Tweedie(1.01),
    "tweedie near gamma": terms.Tweedie(1.99),
    "negative binomial": terms.NegativeBinomial(0.4),
    "binomial": terms.BINOMIAL,
}


def draw(name, rows=60, columns=5, seed=0):
    """(X, y, offset, weights) of a family, with zeros where it has them."""
    rng = np.random.default_rng([seed, len(name)])
    X, offset = 0.5 * rng.standard_normal((rows, columns)), 0.3 * rng.standard_normal(rows)
    mean = np.exp(X[:, 0] - 0.5 * X[:, 1] + 0.5 + offset)
    if name == "gamma":
        y = rng.gamma(2.0, 0.5 * mean)
    elif name.startswith("tweedie"):
        y = np.where(rng.random(rows) < 0.4, 0.0, rng.gamma(2.0, mean))
    elif name == "binomial":
        y = rng.binomial(6, expit(np.log(mean))) / 6.0
    else:
        y = rng.poisson(mean).astype(float)
    return X, y, offset, rng.integers(0, 3, rows).astype(float)


@pytest.mark.parametrize("name", FAMILIES)
def test_deviances_are_right_to_thirteen_digits_also_where_they_nearly_vanish(name):
    psi, exact, rng = FAMILIES[name], psi_of(FAMILIES[name]), np.random.default_rng(2)
    y = rng.uniform(1e-6, 1 - 1e-6, 200) if name == "binomial" else 10.0 ** rng.uniform(-3, 4, 200)
    away = rng.choice([-1.0, 1.0], 200) * 10.0 ** rng.uniform(-5, 1.5, 200)
    m = psi.best(y) + away
    found = psi.excess(m, y)
    with precision(400):
        for i in range(200):
            target = arb(float(y[i]))
            best = (target / (1 - target)).log() if name == "binomial" else target.log()
            half = exact.value(arb(float(m[i])), target) - exact.value(best, target)
            # A margin that is off by its rounding moves the deviance by that times its slope.
            blur = abs(exact.slope(arb(float(m[i])), target)) * 4e-16 * (1.0 + abs(m[i]) + abs(m[i] - away[i]))
            assert abs(half - arb(float(found[i]))) <= 1e-13 * half + blur


def test_a_deviance_of_zero_counts_is_that_of_its_limit():
    m, zero = np.array([-3.0, 0.0, 2.0]), np.zeros(3)
    assert np.allclose(terms.POISSON.excess(m, zero), np.exp(m), rtol=1e-15)
    assert np.allclose(terms.Tweedie(1.5).excess(m, zero), 2.0 * np.exp(0.5 * m), rtol=1e-15)
    assert np.allclose(terms.NegativeBinomial(0.5).excess(m, zero), 2.0 * np.log1p(0.5 * np.exp(m)), rtol=1e-15)
    assert np.allclose(terms.BINOMIAL.excess(m, zero), np.log1p(np.exp(m)), rtol=1e-15)
    assert np.allclose(terms.BINOMIAL.excess(m, zero + 1.0), np.log1p(np.exp(-m)), rtol=1e-15)


@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("l2", [1e-6, 1e-2])
@pytest.mark.parametrize("name", FAMILIES)
def test_no_radius_is_less_than_the_distance_to_forty_digits_with_offsets_and_weights(name, l2, intercept):
    psi, (X, y, offset, weights) = FAMILIES[name], draw(name)
    rules = set()
    for l1 in (0.0, 0.03):
        if intercept:
            smooth = Intercepted(Design.of(X, weights), y, psi, l2, offset=offset)
            problem = suffice.Composite(smooth, L1(l1), mu=l2, L=smooth.L, size=5)
        else:
            problem = problems.ElasticNetModel(X, y, psi, sample_weight=weights, offset=offset).at(l1=l1, l2=l2)
        exact = truth(problem)
        for step, one in enumerate(iterate(problem, solver="newton")):
            proof = one.certificate
            assert math.isinf(proof.radius) or exact.distance(one.x) <= arb(proof.radius)
            rules.add(proof.rule)
            if step == 12:
                assert proof.radius <= 1e-7
                break
    assert "verified" in rules or "gap" in rules


@pytest.mark.parametrize("name", ["gamma", "tweedie", "negative binomial", "binomial", "poisson"])
def test_without_any_l2_a_minimiser_is_verified(name):
    X, y, offset, weights = draw(name)
    problem = problems.ElasticNetModel(X, y, FAMILIES[name], sample_weight=weights, offset=offset)
    for l1 in (0.0, 0.02):
        solution = suffice.solve(problem.at(l1=l1, l2=0.0), within=1e-9)
        assert solution.certificate.rule == "verified" and solution.reached
        nearby = truth(problem.at(l1=l1, l2=1e-13))
        assert float(nearby.distance(solution.x).abs_upper()) <= 1e-7


@pytest.mark.parametrize("name", FAMILIES)
def test_problems_conform(name):
    X, y, offset, weights = draw(name, rows=30, columns=3)
    problem = problems.ElasticNetModel(X, y, FAMILIES[name], sample_weight=weights, offset=offset)
    check_problem(problem.at(l1=0.01, l2=0.1), trials=8)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_error_of_a_deviance_holds(name):
    X, y, offset, weights = draw(name, columns=3)
    loss = losses.Deviance(X, y, FAMILIES[name], sample_weight=weights, offset=offset)
    check_loss(loss, [0.4, -0.2, 0.1], trials=60)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_verified_solution_bounds_the_held_out_deviance_closely(name):
    X, y, offset, weights = draw(name, rows=200)
    train = problems.ElasticNetModel(X[:100], y[:100], FAMILIES[name], offset=offset[:100])
    loss = losses.Deviance(X[100:], y[100:], FAMILIES[name], sample_weight=weights[100:], offset=offset[100:])
    problem = train.at(l1=0.01, l2=1e-11)
    rough, fine = (suffice.solve(problem, within=within, solver="newton") for within in (1e-3, 1e-11))
    at, best = loss.at(rough.x), loss.at(fine.x).residual
    assert rough.certificate.verification is not None
    assert abs(at.residual - best) <= at.verified(rough.certificate.verification) + 1e-9
    assert at.verified(rough.certificate.verification) <= at.error(rough.certificate.radius) * (1.0 + 1e-9)


def test_an_exposure_is_an_offset_and_counts_of_trials_are_weights():
    X, y, offset, _ = draw("poisson")
    one = problems.ElasticNetPoisson(X, y, exposure=np.exp(offset)).at(l1=0.01, l2=0.01)
    other = problems.ElasticNetPoisson(X, y, offset=offset).at(l1=0.01, l2=0.01)
    assert np.allclose(suffice.solve(one, within=1e-9).x, suffice.solve(other, within=1e-9).x, atol=1e-8)
    trials = np.arange(1.0, 61.0)
    successes = np.floor(trials * np.linspace(0.0, 1.0, 60))
    counted = problems.ElasticNetBinomial(X, successes, trials).at(l1=0.001, l2=0.01)
    rows = np.repeat(np.arange(60), trials.astype(int))
    labels = np.concatenate([np.arange(n) < s for n, s in zip(trials, successes, strict=True)])
    single = problems.ElasticNetLogistic(X[rows], labels).at(l1=0.001, l2=0.01)
    assert np.allclose(suffice.solve(counted, within=1e-9).x, suffice.solve(single, within=1e-9).x, atol=1e-8)


def test_the_inverse_gaussian_is_refused_since_it_has_more_than_one_minimiser():
    # psi = y exp(-2m)/2 - exp(-m) with two rows x = 1 and x = -1 and a small ridge: two minima, a maximum between.
    w, y, l2 = np.linspace(-12.0, 12.0, 4001), 1.0, 2e-3
    psi = sum(0.5 * (0.5 * y * np.exp(-2 * m) - np.exp(-m)) for m in (w + 4.0, 4.0 - w)) + 0.5 * l2 * w**2
    inner = psi[1:-1]
    assert np.sum((inner < psi[:-2]) & (inner < psi[2:])) >= 2
    with pytest.raises(ValueError, match="not convex"):
        terms.tweedie(3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda X, y: problems.ElasticNetGamma(X, y), "y must be positive, got 0.0"),
        (lambda X, y: problems.ElasticNetTweedie(X, y, power=2.5), "power must lie between 1 and 2, got 2.5"),
        (
            lambda X, y: problems.ElasticNetNegativeBinomial(X, y, theta=0.0),
            "theta must be positive",
        ),
        (lambda X, y: problems.ElasticNetBinomial(X, y, [1, 1, 1]), "y must lie between 0 and trials"),
        (
            lambda X, y: problems.ElasticNetPoisson(X, y, offset=[1.0]),
            "offset must have shape (3,) to match X",
        ),
        (lambda X, y: problems.ElasticNetPoisson(X, y, exposure=[1, 0, 2]), "exposure must be positive"),
        (lambda X, y: losses.Deviance(X, y, terms.SQUARED), "family must have a deviance"),
    ],
)
def test_what_a_family_cannot_take_is_named(make, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        make(np.eye(3), [0.0, 1.0, 3.0])
