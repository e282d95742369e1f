"""Smooth terms against the same formulas in extended precision, and against the inequalities that proofs rest on."""

import math
import re

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from suffice.terms import HUBER, LOGISTIC, POISSON, SQUARED, Huber, LinearModel
from suffice.terms.design import Design
from suffice.terms.smooth import Plain, Ridged, imaged
from tests.reference import LONG, Margins, OwnSmooth, norm

PSI = {"squared": SQUARED, "logistic": LOGISTIC, "huber": HUBER}
DESIGNS = ("dense", "weighted", "csr", "csc", "fortran", "wide", "large", "small")
N, D, L2 = 30, 8, 0.3
quick = settings(max_examples=30, deadline=None, derandomize=True)


def model_and_reference(psi, kind):
    rng = np.random.default_rng([list(PSI).index(psi), DESIGNS.index(kind)])
    rows, columns = (D, N) if kind == "wide" else (N, D)
    X = rng.standard_normal((rows, columns)) * {"large": 1e4, "small": 1e-4}.get(kind, 1.0)
    if kind in ("csr", "csc"):
        X[rng.random(X.shape) < 0.7] = 0.0
    y = rng.standard_normal(rows) * 2.0
    if psi == "logistic":
        y = np.sign(y)
    stored = {"csr": sp.csr_array, "csc": sp.csc_matrix, "fortran": np.asfortranarray}.get(kind, np.asarray)(X)
    design = Design.of(stored, rng.integers(0, 5, rows) if kind == "weighted" else None)
    return LinearModel(design, y, PSI[psi], L2), Margins(X, y, design.weights, psi, L2)


BY_MODEL = pytest.mark.parametrize("model, reference", [
    pytest.param(*model_and_reference(psi, kind), id=f"{psi}-{kind}") for psi in PSI for kind in DESIGNS
])  # fmt: skip


def points(model, count):
    """Points from the size of the solution to far beyond, the origin included."""
    rng = np.random.default_rng(0)
    size = model.design.shape[1]
    yield np.zeros(size)
    for _ in range(count):
        yield 10.0 ** rng.uniform(-4, 3) * rng.standard_normal(size)


@BY_MODEL
def test_value_and_gradient_are_those_of_the_formula(model, reference):
    for w in points(model, 10):
        assert model.value(w) == pytest.approx(float(reference.value(w.astype(LONG))), rel=1e-12)
        error = norm(model.gradient(w) - reference.gradient(w.astype(LONG)))
        if w.any():
            assert error <= model.rounding_at(w, model.image(w))
            assert error <= model.gradient_rounding(w, model.image(w))


def test_where_psi_is_flat_the_sharper_bound_on_rounding_is_far_sharper():
    model, _ = model_and_reference("logistic", "dense")
    w = 50.0 * np.ones(D)
    assert model.rounding_at(w, model.image(w)) < 0.2 * model.gradient_rounding(w, model.image(w))


def test_the_poisson_gradient_errs_by_at_most_its_bound():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((N, D)), rng.poisson(3.0, N).astype(float)
    design = Design.of(X)
    model, reference = LinearModel(design, y, POISSON, L2), Margins(X, y, design.weights, "poisson", L2)
    for size in (1e-3, 0.1, 1.0, 10.0, 60.0):
        w = size * rng.standard_normal(D)
        error = norm(model.gradient(w) - reference.gradient(w.astype(LONG)))
        bound = model.gradient_rounding(w, model.image(w))
        assert error <= bound <= 1e-10 * (1.0 + float(norm(reference.gradient(w.astype(LONG)))))
        assert model.value(w) == pytest.approx(float(reference.value(w.astype(LONG))), rel=1e-12)


@BY_MODEL
def test_value_and_gradient_need_nothing_but_the_image(model, reference):
    for w in points(model, 3):
        image = model.image(w)
        assert model.value_at(w, image) == model.value(w)
        assert np.array_equal(model.gradient_at(w, image), model.gradient(w))


@BY_MODEL
def test_mu_and_lipschitz_constant_bound_the_curvature_along_any_segment(model, reference):
    for w, v in zip(points(model, 10), reversed(list(points(model, 10))), strict=True):
        d = (w - v).astype(LONG)
        if not d.any():
            continue
        change = reference.gradient(w.astype(LONG)) - reference.gradient(v.astype(LONG))
        blur = 1e-15 * norm(d) * (norm(reference.gradient(w.astype(LONG))) + norm(reference.gradient(v.astype(LONG))))
        assert change @ d >= LONG(L2) * (d @ d) - blur
        assert norm(change) * norm(d) <= LONG(model.L) * (d @ d) + blur


@BY_MODEL
def test_the_lipschitz_constant_is_the_least_up_to_rounding(model, reference):
    curvature = model.loss.curvature * float(model.design.squared_norm)
    A = np.sqrt(model.design.weights)[:, None] * np.asarray(reference.X, dtype=float)
    assert curvature == pytest.approx(model.loss.curvature * np.linalg.norm(A, 2) ** 2, rel=1e-12)
    assert curvature + L2 == model.L


@BY_MODEL
def test_the_majoriser_bounds_f_between_two_points_and_is_no_worse_than_the_global_one(model, reference):
    for z in points(model, 6):
        for x in points(model, 6):
            M = model.majoriser(z, model.image(z), x, model.image(x))
            assert M <= model.L * (1.0 + 1e-12)
            Z, X = z.astype(LONG), x.astype(LONG)
            rise = reference.value(X) - reference.value(Z) - reference.gradient(Z) @ (X - Z)
            blur = 1e-13 * (reference.value(X) + reference.value(Z) + LONG(model.L) * norm(X - Z) ** 2)
            assert rise <= LONG(M) / 2 * norm(X - Z) ** 2 + blur


@pytest.mark.parametrize("psi", PSI.values(), ids=PSI.keys())
@quick
@given(m=st.floats(-30, 30), n=st.floats(-30, 30), y=st.sampled_from([-1.0, 1.0]))
def test_curvature_between_two_margins_is_the_largest_on_the_way(psi, m, n, y):
    # The finest grid slope of psi' between m and n is a mean of psi'': never larger than the bound.
    bound = float(psi.curvature_between(np.array([m]), np.array([n]), np.array([y]))[0])
    assert 0.0 <= bound <= psi.curvature
    grid = np.linspace(m, n, 400)
    if abs(m - n) > 1e-3:
        slopes = np.diff(psi.derivative(grid, np.full(400, y))) / np.diff(grid)
        assert slopes.max() <= bound + 1e-9
        if psi is not HUBER:  # for which one kink on the way is enough
            assert slopes.max() >= bound * (1.0 - 0.2 * abs(m - n)) - 1e-9


@pytest.mark.parametrize("psi", PSI.values(), ids=PSI.keys())
@quick
@given(m=st.floats(-40, 40), y=st.sampled_from([-1.0, 1.0]))
def test_the_derivative_is_that_of_the_value(psi, m, y):
    h = 1e-5
    ends = psi.value(np.array([m - h, m + h]), np.array([y, y]))
    assert psi.derivative(np.array([m]), np.array([y]))[0] == pytest.approx((ends[1] - ends[0]) / (2 * h), abs=1e-5)


def test_huber_is_quadratic_up_to_delta_and_linear_beyond():
    psi, y = Huber(2.0), np.zeros(5)
    m = np.array([-5.0, -2.0, 0.5, 2.0, 3.0])
    assert np.array_equal(psi.value(m, y), [8.0, 2.0, 0.125, 2.0, 4.0])
    assert np.array_equal(psi.derivative(m, y), [-2.0, -2.0, 0.5, 2.0, 2.0])
    assert np.array_equal(psi.curvature_between(m, np.array([-2.1, -2.0, 0.5, 9.0, 3.0]), y), [0.0, 1.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize("m", [800.0, -800.0, 1e8, -1e8])
def test_logistic_loss_survives_extreme_margins(m):
    y = np.array([1.0])
    assert LOGISTIC.value(np.array([m]), y)[0] == max(-m, 0.0)
    assert LOGISTIC.derivative(np.array([m]), y)[0] == (0.0 if m > 0 else -1.0)
    assert LOGISTIC.curvature_between(np.array([m]), np.array([2 * m]), y)[0] == 0.0


@pytest.mark.parametrize("kind", ["dense", "csr", "csc", "fortran", "wide", "large", "small"])
def test_the_gradient_at_the_origin_has_the_rounding_of_a_product(kind):
    model, reference = model_and_reference("squared", kind)
    origin = np.zeros(model.design.shape[1])
    error = norm(model.gradient(origin).astype(LONG) - reference.gradient(origin.astype(LONG)))
    for bound in (model.gradient_rounding, model.rounding_at):
        assert 0.0 < error <= bound(origin, model.image(origin))


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_a_ridge_adds_its_own_curvature(kind):
    model, _ = model_and_reference("squared", kind)
    more = LinearModel(model.design, model.y, model.loss, L2 + 2.0)
    ridged = Ridged(model, 2.0)
    for w in points(model, 4):
        assert ridged.value(w) == pytest.approx(more.value(w), rel=1e-13)
        assert ridged.gradient(w) == pytest.approx(more.gradient(w), rel=1e-12, abs=1e-12)
        image = ridged.image(w)
        assert ridged.majoriser(w, image, w + 1.0, ridged.image(w + 1.0)) == pytest.approx(
            more.majoriser(w, image, w + 1.0, more.image(w + 1.0))
        )
        assert (ridged.gradient_rounding(w, image) > model.gradient_rounding(w, image)) == w.any()


def test_a_users_term_is_its_own_image():
    own = OwnSmooth(np.diag([1.0, 2.0]), np.ones(2))
    term = imaged(own, 2.0)
    x = np.array([3.0, -1.0])
    assert isinstance(term, Plain)
    assert np.array_equal(term.image(x), x)
    assert term.value_at(x, x) == own.value(x)
    assert np.array_equal(term.gradient_at(x, x), own.gradient(x))
    assert term.majoriser(x, x, 2 * x, 2 * x) == math.inf


def test_a_linear_model_keeps_its_image():
    model, _ = model_and_reference("squared", "dense")
    assert imaged(model, model.L) is model


def test_models_of_the_same_data_are_equal():
    model, _ = model_and_reference("squared", "dense")
    assert model == LinearModel(model.design, model.y.copy(), SQUARED, L2)
    for other in (
        LinearModel(model.design, model.y, SQUARED, 2 * L2),
        LinearModel(model.design, model.y, HUBER, L2),
        LinearModel(model.design, model.y + 1.0, SQUARED, L2),
        LinearModel(Design.of(model.design.X + 1.0), model.y, SQUARED, L2),
    ):
        assert model != other


@pytest.mark.parametrize("delta", [0.0, -1.0, math.inf, math.nan])
def test_a_bad_delta_is_named(delta):
    with pytest.raises(ValueError, match=re.escape(f"delta must be positive and finite, got {delta!r}")):
        Huber(delta)
