"""Linear models against the same formulas in extended precision, and against the inequalities that proofs rest on."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from suffice.models.margin_losses import rate
from suffice.models.smooth import Ridged, imaged
from suffice.rows.design import Design
from suffice.terms import HUBER, LOGISTIC, POISSON, SQUARED, LinearModel
from tests.reference import LONG, Margins, norm

PSI = {"squared": SQUARED, "logistic": LOGISTIC, "huber": HUBER}
DESIGNS = ("dense", "weighted", "csr", "csc", "fortran", "wide", "large", "small")
N, D, L2 = 30, 8, 0.3


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


class FallingRate:
    """psi = y exp(-m) + m, whose psi'' is unbounded on the side of negative margins."""

    curvature = math.inf

    def value(self, m, y):
        return rate(-m, y) + m

    def derivative(self, m, y):
        return 1.0 - rate(-m, y)

    def curvature_between(self, m, n, y):
        return rate(-np.minimum(m, n), y)


@pytest.mark.parametrize("psi, far", [(POISSON, 1.0), (FallingRate(), -1.0)], ids=["rising", "falling"])
def test_nothing_is_proven_about_a_gradient_whose_rates_were_cut_off_whichever_way_they_grow(psi, far):
    for y in (1e-3, 1.0, 1e3):
        model = LinearModel(Design.of(np.eye(2)), np.full(2, y), psi, L2)
        for size, known in ((600.0, True), (710.0, False), (1e4, False)):
            w = np.array([far * size, 0.0])
            assert math.isfinite(model.rounding_at(w, model.image(w))) == known
            assert np.isfinite(model.gradient(w)).all()
