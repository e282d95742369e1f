"""Multinomial logistic regression: its intercepts against extended precision, its derivatives against differences."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from suffice.models.multinomial import Multinomial
from suffice.models.softmax_jobs import softmax_rows
from suffice.rows.design import Design
from tests.conftest import examples
from tests.reference import LONG


def random_model(seed):
    rng = np.random.default_rng(seed)
    K, d = int(rng.integers(3, 6)), int(rng.integers(2, 5))
    N = int(rng.integers(4 * K, 40))
    labels = np.concatenate([np.arange(K), rng.integers(0, K, N - K)])
    X = rng.standard_normal((N, d)) + np.eye(K, d)[labels] + 1.0
    return rng, Multinomial(Design.of(X), labels.astype(float), K, True, 10.0 ** rng.uniform(-3, 0))


def exact_intercept(model, image, b):
    """b by Newton's method with residuals in extended precision."""
    image, b = np.asarray(image, dtype=LONG), np.asarray(b, dtype=LONG)
    for _ in range(30):
        e = np.exp(image + b - (image + b).max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        s = model.design.weights.astype(LONG) @ (p - np.eye(model.classes)[model.y.astype(int)])
        q = p.astype(float)
        aq = model.design.weights[:, None] * q
        b = b - np.linalg.solve(np.diag(aq.sum(axis=0)) - q.T @ aq + 1.0 / len(b), s.astype(float))
    return b - b.mean()


@given(seed=st.integers(0, 10**6))
def test_intercepts_lie_within_their_proven_error(seed):
    rng, model = random_model(seed)
    image = model.image(rng.standard_normal(model.classes * model.design.shape[1]) * 10.0 ** rng.uniform(-2, 0.5))
    b, error = model.shift(image)
    assert float(np.linalg.norm((b - exact_intercept(model, image, b)).astype(float))) <= error <= 1e-9


@examples(100)
@given(seed=st.integers(0, 10**6))
def test_intercepts_of_nearly_certain_rows_lie_within_their_proven_error(seed):
    """p close to 1 is rounded by a share of itself, though p (1 - p), which everything else scales with, is tiny."""
    rng = np.random.default_rng(seed)
    K = int(rng.integers(2, 5))
    labels = np.concatenate([np.arange(K), rng.integers(0, K, int(rng.integers(4, 12)))])
    image = rng.standard_normal((len(labels), K)) + 10.0 ** rng.uniform(0.8, 1.4) * np.eye(K)[labels]
    model = Multinomial(Design.of(np.ones((len(labels), 1))), labels.astype(float), K, True, 1.0)
    b, error = model.shift(image)
    assert float(np.linalg.norm((b - exact_intercept(model, image, b)).astype(float))) <= error


@given(seed=st.integers(0, 10**6))
def test_intercepts_follow_weights_no_faster_than_proven(seed):
    rng, model = random_model(seed)
    w, step = rng.standard_normal((2, model.classes * model.design.shape[1]))
    v = w + 10.0 ** rng.uniform(-3, 0.5) * step
    moved = np.linalg.norm(model.shift(model.image(w))[0] - model.shift(model.image(v))[0])
    assert moved <= model.reach * np.linalg.norm(w - v)


@given(seed=st.integers(0, 10**6))
def test_intercepts_drift_no_farther_than_proven_and_never_farther_than_their_reach(seed):
    rng, model = random_model(seed)
    w, step = rng.standard_normal((2, model.classes * model.design.shape[1]))
    b = model.shift(model.image(w))[0]
    for rho in 10.0 ** np.linspace(-4, 1, 6):
        v = w + rho * step / np.linalg.norm(step)
        assert np.linalg.norm(model.shift(model.image(v))[0] - b) <= model.drift(w, model.image(w), rho) + 1e-12
    assert model.drift(0.0 * w, model.image(0.0 * w), 1e-4) <= model.reach * 1e-4


@given(seed=st.integers(0, 10**6))
def test_the_gradient_is_the_slope_and_the_hessian_its_slope(seed):
    rng, model = random_model(seed)
    w, u = rng.standard_normal((2, model.classes * model.design.shape[1]))
    t = 1e-5
    slope = (model.value(w + t * u) - model.value(w - t * u)) / (2 * t)
    assert slope == pytest.approx(float(model.gradient(w) @ u), rel=1e-6, abs=1e-7)
    bend = (model.gradient(w + t * u) - model.gradient(w - t * u)) / (2 * t)
    assert model.hessian(model.image(w), np.arange(len(w))) @ u == pytest.approx(bend, rel=1e-5, abs=1e-6)
    M = model.majoriser(w, model.image(w), w + u, model.image(w + u))
    assert model.value(w + u) <= model.value(w) + model.gradient(w) @ u + M / 2 * (u @ u) + 1e-12


def mean_loss(model, image, b):
    return float(model.design.weights @ softmax_rows(image, model.y.astype(int), b)[1])


def test_intercepts_exist_where_all_probabilities_are_zero_or_one_in_floating_point():
    """b is a minimum there as well: no b along a random direction is better."""
    saturated = 0
    for seed in range(20):
        rng, model = random_model(seed)
        image = model.image(1e6 * rng.standard_normal(model.classes * model.design.shape[1]))
        p = softmax(image, axis=1)
        saturated += bool((np.minimum(p, 1.0 - p) == 0.0).all())
        b, error = model.shift(image)
        assert np.isfinite(b).all() and error >= 0.0
        best = mean_loss(model, image, b)
        for t in (1e-3, 1.0, 1e3):
            assert mean_loss(model, image, b + t * rng.standard_normal(model.classes)) >= best - 1e-9 * abs(best)
    assert saturated > 10  # that is what the test is about


def exact_gradient(model, w):
    """The gradient in extended precision, of margins and intercepts in extended precision."""
    W = np.asarray(w, dtype=LONG).reshape(model.classes, -1)
    X, a = np.asarray(model.design.X, dtype=LONG), model.design.weights.astype(LONG)
    image = X @ W.T
    b = exact_intercept(model, image, model.shift(image.astype(float))[0])
    e = np.exp(image + b - (image + b).max(axis=1, keepdims=True))
    slopes = e / e.sum(axis=1, keepdims=True) - np.eye(model.classes)[model.y.astype(int)]
    return ((a[:, None] * slopes).T @ X + LONG(model.l2) * W).ravel()


@given(seed=st.integers(0, 10**6))
def test_the_gradient_lies_within_its_proven_rounding(seed):
    rng, model = random_model(seed)
    w = rng.standard_normal(model.classes * model.design.shape[1]) * 10.0 ** rng.uniform(-1, 1.5)
    image = model.image(w)
    error = float(np.linalg.norm((model.gradient_at(w, image) - exact_gradient(model, w)).astype(float)))
    assert error <= model.rounding_at(w, image) <= model.gradient_rounding(w, image)


def test_intercepts_that_follow_do_not_add_to_the_rounding_of_the_gradient():
    """One row of many is a thousand times as long as the others: the intercepts follow its margin's error by a bound on
    the largest of all, but the gradient is moved no farther than the rows' own errors move it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3))
    X[0] *= 1e3
    model = Multinomial(Design.of(X), np.arange(400) % 5.0, 5, True, 0.1)
    w = rng.standard_normal(15)
    image = model.image(w)
    largest = model.design.margin_rounding(w) * model.design.row_norms.max() * np.linalg.norm(w)
    assert model.rounding_at(w, image) < 0.5 * largest * np.sqrt(model.design.squared_norm)
