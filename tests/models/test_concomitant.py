"""Huber's regression with its scale minimised out, against extended precision and scikit-learn."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import HuberRegressor

import suffice
from suffice.models.concomitant import ConcomitantHuber
from suffice.rows.design import Design
from suffice.solvers.newton import Newton
from suffice.solvers.solution import Outcome
from suffice.terms import L1
from tests.reference import LONG, norm
from tests.reference_concomitant import ConcomitantMargins

quick = settings(max_examples=25, deadline=None, derandomize=True)


def random_model(seed, intercepted, l2=None):
    rng = np.random.default_rng([seed, intercepted])
    N, d = int(rng.integers(25, 60)), int(rng.integers(1, 5))
    X = rng.standard_normal((N, d)) * 10.0 ** rng.uniform(-1, 1) + rng.uniform(-3, 3)
    sparse = rng.random() < 0.4
    if sparse:
        X[rng.random(X.shape) < 0.5] = 0.0
    y = X @ rng.standard_normal(d) / np.linalg.norm(X, 2) + rng.standard_t(1.5, N) + rng.uniform(-2, 2)
    y *= 10.0 ** rng.uniform(-2, 2)
    weight = rng.integers(0, 4, N) + (np.arange(N) < 2) if rng.random() < 0.4 else None
    design = Design.of(sp.csr_array(X) if sparse else X, weight)
    l2 = 10.0 ** rng.uniform(-4, 0) if l2 is None else l2
    epsilon = float(rng.choice([1.2, 1.35, 3.0]))
    model = ConcomitantHuber(design, y, epsilon, bool(intercepted), l2)
    return rng, model, ConcomitantMargins(X, y, design.weights, epsilon, intercepted, l2)


@pytest.mark.parametrize("intercepted", [True, False])
@quick
@given(seed=st.integers(0, 10**6))
def test_intercept_and_scale_lie_within_their_proven_errors(seed, intercepted):
    rng, model, reference = random_model(seed, intercepted)
    w = rng.standard_normal(model.design.shape[1]) * 10.0 ** rng.uniform(-3, 0.5)
    image = model.image(w)
    b, s = model.scale(image)
    rounding = 1e-15 * model.design.shape[1] * abs(reference.X).sum(axis=1).astype(float) * float(abs(w).max())
    error_of_b, error_of_s = model.enclosure(image, rounding)
    true_b, true_s = reference.scale(w)
    assert abs(b - true_b) <= error_of_b and abs(s - true_s) <= error_of_s
    if np.isfinite(error_of_s):
        size = abs(b) + float(abs(image).max() + abs(model.y).max())
        assert error_of_b + error_of_s <= 1e-9 * size


@pytest.mark.parametrize("intercepted", [True, False])
@quick
@given(seed=st.integers(0, 10**6), decades=st.floats(-6, -0.5))
def test_exact_weights_within_a_radius_have_an_intercept_within_the_bound(seed, intercepted, decades):
    rng, model, reference = random_model(seed, intercepted)
    w, step = rng.standard_normal((2, model.design.shape[1]))
    step *= 10.0**decades / float(norm(step))
    image = model.image(w)
    bound = model.shift_within(image, float(norm(step)) * (1.0 + 1e-12))
    moved = abs(reference.scale(w + step)[0] - model.scale(image)[0])
    assert moved <= bound


@pytest.mark.parametrize("intercepted", [True, False])
@quick
@given(seed=st.integers(0, 10**6))
def test_value_and_gradient_err_by_no_more_than_the_proven_rounding(seed, intercepted):
    rng, model, reference = random_model(seed, intercepted)
    w = rng.standard_normal(model.design.shape[1])
    image = model.image(w)
    assert model.value(w) == pytest.approx(float(reference.value(w)), rel=1e-11)
    distance = float(norm(model.gradient_at(w, image) - reference.gradient(w)))
    rounding = model.gradient_rounding(w, image)
    assert distance <= rounding
    assert rounding <= 1e-7 * (1.0 + float(norm(reference.gradient(w)))) * max(1.0, 1.0 / model.scale(image)[1])


@pytest.mark.parametrize("intercepted", [True, False])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), within=st.sampled_from([1e-1, 1e-4, 1e-8]))
def test_certificates_of_the_weights_hold(seed, intercepted, within):
    _, model, f = random_model(seed, intercepted, l2=1e-2)
    d = model.design.shape[1]
    problem = suffice.Composite(model, L1(0.0), mu=model.l2, L=model.L, size=d)
    solution = suffice.solve(problem, within=within, solver=Newton())
    x_hat = solution.x.astype(LONG)
    for _ in range(6):  # wherever it starts: the gradient in extended precision proves how far it has come
        x_hat = x_hat - np.linalg.solve(f.hessian(x_hat), f.gradient(x_hat).astype(float))
    error = norm(f.gradient(x_hat)) / f.l2
    assert error < 1e-12
    assert float(norm(solution.x - x_hat)) <= solution.certificate.radius + float(error)
    assert solution.certificate.radius <= within


@pytest.mark.parametrize("intercepted", [True, False])
def test_scikit_learn_finds_the_same(intercepted):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3)) + 1.0
    y = X @ [1.0, -2.0, 0.5] + 4.0 * intercepted + rng.standard_t(2, 80)
    alpha = 2.0
    theirs = HuberRegressor(epsilon=1.5, alpha=alpha, fit_intercept=intercepted, tol=1e-12, max_iter=10_000).fit(X, y)
    model = ConcomitantHuber(Design.of(X), y, 1.5, intercepted, alpha / 80)
    ours = suffice.solve(
        suffice.Composite(model, L1(0.0), mu=model.l2, L=model.L, size=3), within=1e-9, solver=Newton()
    )
    np.testing.assert_allclose(ours.x, theirs.coef_, atol=1e-5)
    b, s = model.scale(model.image(ours.x))
    np.testing.assert_allclose([b, s], [theirs.intercept_, theirs.scale_], atol=1e-5)


def test_a_model_that_fits_half_of_the_rows_exactly_proves_nothing():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((10, 20)), rng.standard_normal(10)
    model = ConcomitantHuber(Design.of(X), y, 1.35, True, 1e-8)
    w = np.linalg.lstsq(X, y, rcond=None)[0]
    assert model.gradient_rounding(w, model.image(w)) == np.inf
    problem = suffice.Composite(model, L1(0.0), mu=model.l2, L=model.L, size=20)
    solution = suffice.solve(problem, within=1e-3, solver=Newton(), max_steps=50)
    assert solution.outcome in (Outcome.PRECISION, Outcome.MAX_STEPS) and solution.certificate.radius > 1e-3


@pytest.mark.parametrize("epsilon", [1.0, 0.5, np.inf, np.nan])
def test_an_epsilon_without_a_scale_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon must be greater than 1"):
        ConcomitantHuber(Design.of(np.eye(3)), np.ones(3), epsilon, True)
