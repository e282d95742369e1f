"""A linear model whose intercept is minimised out, against extended precision."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import suffice
from suffice.models import intercept
from suffice.models.intercept import Intercepted
from suffice.rows.design import Design
from suffice.terms import L1, LOGISTIC, POISSON, SQUARED
from tests.reference import GroupNorms, minimise, norm
from tests.reference_intercept import InterceptMargins

PSI = {"squared": SQUARED, "logistic": LOGISTIC, "poisson": POISSON}


def random_model(psi, seed, l2=None):
    rng = np.random.default_rng([list(PSI).index(psi), seed])
    N, d = int(rng.integers(12, 40)), int(rng.integers(2, 8))
    X = rng.standard_normal((N, d)) * 10.0 ** rng.uniform(-1, 1) + rng.uniform(-3, 3)
    sparse = rng.random() < 0.4
    if sparse:
        X[rng.random(X.shape) < 0.5] = 0.0
    if psi == "poisson":
        X = X / abs(X).max()
    y = X @ rng.standard_normal(d) / np.linalg.norm(X, 2) + rng.standard_normal(N) + rng.uniform(-2, 2)
    if psi == "logistic":
        y = np.where(y > np.median(y), 1.0, -1.0)
    if psi == "poisson":
        y = rng.poisson(np.exp(np.clip(y, -3, 4))).astype(float) + (np.arange(N) == 1)
    weight = rng.integers(0, 4, N) + (np.arange(N) < 2) if rng.random() < 0.4 else None
    if weight is not None and psi == "logistic":
        weight[np.argmax(y)] = weight[np.argmin(y)] = 1
    design = Design.of(sp.csr_array(X) if sparse else X, weight)
    l2 = 10.0 ** rng.uniform(-4, 0) if l2 is None else l2
    return rng, Intercepted(design, y, PSI[psi], l2), InterceptMargins(X, y, design.weights, psi, l2)


@pytest.mark.parametrize("psi", PSI)
@given(seed=st.integers(0, 10**6))
def test_the_intercept_lies_within_its_proven_error(psi, seed):
    rng, model, reference = random_model(psi, seed)
    w = rng.standard_normal(model.design.shape[1]) * 10.0 ** rng.uniform(-3, 0.5)
    b, error = model.shift(model.image(w))
    truth = reference.intercept(w)
    rounding = 1e-15 * model.design.shape[1] * float(abs(reference.X).sum(axis=1).max()) * float(abs(w).max())
    assert abs(b - truth) <= error + rounding
    assert error <= 1e-9 * (1.0 + abs(b))


@pytest.mark.parametrize("psi", PSI)
@given(seed=st.integers(0, 10**6))
def test_value_and_gradient_err_by_no_more_than_the_proven_rounding(psi, seed):
    rng, model, reference = random_model(psi, seed)
    w = rng.standard_normal(model.design.shape[1])
    image = model.image(w)
    assert model.value(w) == pytest.approx(float(reference.value(w)), rel=1e-11)
    distance = float(norm(model.gradient_at(w, image) - reference.gradient(w)))
    assert distance <= model.rounding_at(w, image) <= 1e-8 * (1.0 + float(norm(reference.gradient(w))))
    assert model.rounding_at(w, image) <= model.gradient_rounding(w, image)


@pytest.mark.parametrize("psi", PSI)
@given(seed=st.integers(0, 10**6))
def test_the_intercept_follows_weights_no_faster_than_the_longest_row(psi, seed):
    rng, model, reference = random_model(psi, seed)
    w, step = rng.standard_normal((2, model.design.shape[1]))
    v = w + 10.0 ** rng.uniform(-4, 0.5) * step
    moved = abs(reference.intercept(w) - reference.intercept(v))
    assert moved <= model.reach * float(norm(w - v)) * (1.0 + 1e-12)


@pytest.mark.parametrize("psi", ["squared", "logistic"])
@given(seed=st.integers(0, 10**6))
def test_the_majoriser_majorises(psi, seed):
    rng, model, reference = random_model(psi, seed)
    z, step = rng.standard_normal((2, model.design.shape[1]))
    x = z + 10.0 ** rng.uniform(-2, 1) * step
    M = model.majoriser(z, model.image(z), x, model.image(x))
    bound = reference.value(z) + reference.gradient(z) @ (x - z) + M / 2 * norm(x - z) ** 2
    assert reference.value(x) <= bound + 1e-12 * abs(bound)
    assert M <= model.L * (1.0 + 1e-9)


@pytest.mark.parametrize("psi, solver", [(psi, "newton") for psi in PSI] + [("logistic", "fista_adaptive")])
@given(seed=st.integers(0, 10**6), within=st.sampled_from([1e-1, 1e-4, 1e-8]))
def test_certificates_of_the_weights_hold(psi, solver, seed, within):
    rng, model, f = random_model(psi, seed, l2=1e-2)
    d = model.design.shape[1]
    l1 = 10.0 ** rng.uniform(-3, -0.5) * float(abs(f.gradient_at_zero).max())
    L = model.L if np.isfinite(model.L) else 50.0 * float(abs(f.y).max()) + 1.0
    x_hat, error = minimise(f, GroupNorms([[i] for i in range(d)], [l1] * d), model.l2, L, d)
    solution = suffice.solve(
        suffice.Composite(model, L1(l1), mu=model.l2, L=model.L, size=d), within=within, solver=solver
    )
    assert float(norm(solution.x - x_hat)) <= solution.certificate.radius + float(error)
    assert solution.certificate.radius <= within


@pytest.mark.parametrize("psi, y", [("logistic", np.ones(5)), ("poisson", np.zeros(5))])
def test_targets_without_a_finite_intercept_are_refused(psi, y):
    with pytest.raises(ValueError, match="intercept is not finite"):
        _ = Intercepted(Design.of(np.eye(5)), y, PSI[psi]).at_zero


@pytest.mark.parametrize("psi", PSI)
def test_the_intercept_belongs_to_the_margins_whatever_was_asked_before(psi):
    """A solve that is continued elsewhere must find the same bits."""
    model, w, _ = asked(psi)
    image = model.image(w)
    for share in (0.5, 0.9, 1.1):
        model.b(model.image(share * w))
    again = Intercepted(Design.of(model.design.X), model.y, model.loss, 3.0)
    assert model.shift(image) == again.shift(again.image(w))


@pytest.mark.parametrize("psi", PSI)
def test_what_is_known_at_the_intercept_proves_its_error_without_another_pass(psi, monkeypatch):
    model, w, _ = asked(psi)
    image = model.image(w)
    b = model.b(image)
    monkeypatch.setattr(intercept, "slope_and_bend", lambda *_: pytest.fail("rows were passed once more"))
    found, error = model.shift(image)
    assert found == b and 0.0 < error < 1e-12 * (1.0 + abs(b))
    assert np.isfinite(model.gradient_at(w, image)).all() and np.isfinite(model.rounding_at(w, image))


def test_models_with_other_penalties_share_products_and_intercepts(monkeypatch):
    model, w, _ = asked("logistic")
    image = model.image(w)
    b = model.b(image)
    monkeypatch.setattr(intercept, "slope_and_bend", lambda *_: pytest.fail("rows were passed once more"))
    other = Intercepted(model.design, model.y, model.loss, 5.0)
    assert other.image(w.copy()) is image and other.b(image) == b
    assert not np.array_equal(other.image(2.0 * w), image)


def asked(psi):
    rng = np.random.default_rng(7)
    X = rng.standard_normal((60, 4))
    y = {
        "squared": rng.standard_normal(60),
        "logistic": np.sign(rng.standard_normal(60)),
        "poisson": rng.poisson(2.0, 60) * 1.0,
    }
    return Intercepted(Design.of(X), y[psi], PSI[psi], 0.1), 0.3 * rng.standard_normal(4), rng
