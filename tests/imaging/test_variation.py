"""The smoothed total variation against the same formulas in extended precision, and the bound of its rounding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.imaging.measurement import Fourier
from suffice.imaging.variation import adjoint_differences, differences
from suffice.problems import Denoising, Reconstruction, SampledFourier
from tests import reference_images
from tests.reference import LONG, norm

SHAPES = {"1-D": (17,), "2-D": (4, 5), "one pixel": (1,), "a row": (1, 6)}
BOUNDARIES = ("free", "zero")


def random(rng, shape, kind):
    v = rng.standard_normal(shape)
    return v + 1j * rng.standard_normal(shape) if kind == "complex" else v


def build(rng, shape, kind, measured, boundary, alpha, eps_tv):
    y = random(rng, shape, kind)
    fixed = {"alpha": alpha, "eps_l2": 1e-2, "eps_tv": eps_tv, "boundary": boundary}
    if measured == "itself":
        return Denoising(y, **fixed).at().smooth
    if measured == "samples":
        dtype = complex if kind == "complex" else float
        return SampledFourier(y, c=rng.uniform(0, 0.99, shape), dtype=dtype, **fixed).at().smooth
    A = random(rng, (9, int(np.prod(shape))), kind)
    return Reconstruction(A, A @ y.ravel(), shape=shape, **fixed).at().smooth


@pytest.mark.parametrize("measured", ["itself", "samples", "a matrix"])
@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@given(
    seed=st.integers(0, 2**32 - 1),
    boundary=st.sampled_from(BOUNDARIES),
    alpha=st.sampled_from([0.0, 1e-7, 1.0, 1e7]),
    eps_tv=st.sampled_from([1e-7, 1e-3, 1.0]),
    size=st.sampled_from([0.0, 1e-9, 1.0, 1e6]),
)
def test_gradients_err_by_no_more_than_they_say(shape, kind, measured, seed, boundary, alpha, eps_tv, size):
    rng = np.random.default_rng(seed)
    f = build(rng, shape, kind, measured, boundary, alpha, eps_tv)
    exact = reference_images.of(None, f)
    x = size * rng.standard_normal(f.size)
    error = norm(f.gradient(x) - exact.gradient(x))
    assert error <= f.gradient_rounding(x, f.image(x))
    assert f.value(x) == pytest.approx(float(exact.value(x)), rel=1e-11)


@given(seed=st.integers(0, 2**32 - 1), eps_tv=st.sampled_from([1e-3, 1e-1]), far=st.floats(-4, 2))
def test_the_majoriser_is_one_and_never_the_larger_of_the_two(seed, eps_tv, far):
    rng = np.random.default_rng(seed)
    f = build(rng, (4, 5), "complex", "itself", "zero", 0.5, eps_tv)
    z = rng.standard_normal(f.size)
    x = z + 10.0**far * rng.standard_normal(f.size)
    M = f.majoriser(z, f.image(z), x, f.image(x))
    exact = reference_images.of(None, f)
    moved = x.astype(LONG) - z
    excess = exact.value(x) - exact.value(z) - exact.gradient(z) @ moved
    assert excess <= LONG(M) / 2 * (moved @ moved) * (1 + 1e-12)
    assert M <= f.L


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_the_adjoint_of_differences_is_one(shape, boundary):
    rng = np.random.default_rng(0)
    x, p = rng.standard_normal(shape), rng.standard_normal((len(shape), *shape))
    forward, back = np.vdot(p, differences(x, len(shape), boundary)), np.vdot(adjoint_differences(p, boundary), x)
    assert forward == pytest.approx(back, rel=1e-12)


@pytest.mark.parametrize("measured", ["itself", "samples", "a matrix"])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_products_with_the_hessian_are_derivatives_of_gradients(kind, measured):
    rng = np.random.default_rng(1)
    f = build(rng, (4, 5), kind, measured, "zero", 0.5, 0.3)
    x, V = rng.standard_normal(f.size), rng.standard_normal((f.size, 3))
    product = f.hessian_at(x)(V)
    for v, bent in zip(V.T, product.T, strict=True):
        assert bent == pytest.approx((f.gradient(x + 1e-6 * v) - f.gradient(x - 1e-6 * v)) / 2e-6, rel=1e-6, abs=1e-7)


def test_a_gradient_is_not_overwritten_by_the_next():
    f = build(np.random.default_rng(2), (4, 5), "real", "itself", "zero", 0.5, 0.1)
    first = f.gradient(np.ones(20))
    kept = first.copy()
    f.gradient(np.arange(20.0))
    assert np.array_equal(first, kept)


@pytest.mark.parametrize("n", [1, 2, 7, 48, 64, 97, 121, 250])
def test_the_fourier_transform_errs_by_no_more_than_it_says(n):
    rng = np.random.default_rng(n)
    F, exact = Fourier((n,)), reference_images.fourier(n)
    for _ in range(20):
        x = rng.standard_normal(n) + 1j * rng.standard_normal(n)
        size = float(norm(x.view(float)))
        for computed, matrix in ((F.apply(x), exact), (F.adjoint(x), exact.conj())):
            error = matrix @ x - computed
            assert float(np.sqrt(np.sum(abs(error) ** 2))) <= F.rounding * size
