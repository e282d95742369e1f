"""Imaging problems: every certificate of every iterate against extended precision, complex images and any operator."""

import re
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import suffice
from suffice import losses, testing
from suffice.problems import Denoising, Reconstruction, SampledFourier
from suffice.solvers.certificate import RULES
from tests import reference_images
from tests.reference import norm

rng = np.random.default_rng(3)


def noise(*shape):
    return rng.standard_normal(shape)


def box(n):
    t = np.linspace(-2, 2, n)
    return ((t - 0.3) ** 2 < 0.6).astype(float)


signal = box(24) + 0.1 * noise(24)
wave = signal + 0.3j * np.roll(signal, 5)
picture = np.outer(box(6), box(5)) + 0.1 * noise(6, 5)
spectrum = np.fft.fft(wave, norm="ortho")
blur = np.linalg.matrix_power(0.5 * np.eye(24) + 0.25 * (np.eye(24, k=1) + np.eye(24, k=-1)), 3)
c = rng.uniform(0.001, 0.99, 24)
FIXED: dict[str, Any] = {"alpha": 0.3, "eps_l2": 1e-2, "eps_tv": 1e-2}

PROBLEMS: dict[str, Any] = {
    "1-D": Denoising(signal, boundary="zero", **FIXED),
    "1-D free": Denoising(signal, alpha=1.0, eps_l2=0.0, eps_tv=1e-3),
    "1-D complex": Denoising(wave, **FIXED),
    "2-D": Denoising(picture, boundary="zero", **FIXED),
    "2-D complex": Denoising(picture + 1j * picture[::-1], **FIXED),
    "samples": SampledFourier(spectrum, c=c, boundary="zero", alpha=1e-2, eps_l2=1e-3, eps_tv=1e-2),
    "samples of a real signal": SampledFourier(spectrum, c=c, dtype=float, **FIXED),
    "samples 2-D": SampledFourier(np.fft.fft2(picture, norm="ortho"), c=c.mean(), **FIXED),
    "blur": Reconstruction(blur, blur @ signal, **FIXED),
    "few rows": Reconstruction(sp.csr_array(blur[::3]), (blur @ wave)[::3], weights=np.arange(8.0), **FIXED),
    "complex matrix": Reconstruction(blur + 0.2j * np.eye(24), blur @ wave, dtype=float, **FIXED),
}
by_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())
SOLVERS = ("fista", "fista_adaptive", "gradient_descent", "newton_tv")


def truth(problem):
    composite = problem.at()
    x, error = reference_images.of(problem, composite.smooth).minimiser(composite.mu)
    assert error <= 1e-14, "the reference itself must be accurate"
    return composite, x, error


@by_problem
def test_every_certificate_of_every_iterate_holds(problem):
    composite, x_hat, error = truth(problem)
    for solver in SOLVERS:
        for rule in RULES:
            if solver == "newton_tv" and rule in ("subgradient", "contraction"):
                continue  # its last move is not a prox-gradient step
            for step, solution in enumerate(suffice.iterate(composite, solver=solver, certificate=rule)):
                distance = float(norm(solution.x - x_hat))
                assert distance <= solution.certificate.radius + error, (solver, rule, step)
                if step == (25 if solver == "newton_tv" else 150 if rule == "tightest" else 40):
                    break


@by_problem
def test_certificates_hold_down_to_the_last_bits(problem):
    composite, x_hat, error = truth(problem)
    for solver in ("fista", "newton_tv"):
        solution = suffice.solve(composite, within=0.0, solver=solver)
        assert solution.outcome is suffice.Outcome.PRECISION
        assert float(norm(solution.x - x_hat)) <= solution.certificate.radius + error
        # and rounding is not an excuse
        assert solution.certificate.radius <= 1e-13 * (1.0 + norm(x_hat)) * composite.kappa


@by_problem
def test_constants_gradients_and_certificates_survive_the_conformance_check(problem):
    testing.check_problem(problem.at(), trials=10)


@by_problem
def test_a_minimiser_is_scipys(problem):
    composite = problem.at()
    found = scipy.optimize.minimize(
        composite.smooth.value,
        np.zeros(problem.size),
        jac=composite.smooth.gradient,
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9},
    )
    ours = suffice.solve(composite, within=1e-8)
    assert ours.reached
    assert np.abs(found.x - ours.x).max() <= 1e-4


@pytest.mark.parametrize("axes, spread", [(1, 4.0), (2, 8.0)])
def test_constants_of_denoising_are_those_of_the_text(axes, spread):
    composite = Denoising(np.zeros((9,) * axes)).at(alpha=2.0, eps_l2=0.1, eps_tv=0.01)
    assert composite.mu == pytest.approx(1.1, rel=1e-14)
    L = 1.0 + spread * 2.0 / 0.01 + 0.1
    assert pytest.approx(L, rel=1e-14) == composite.L


def test_constants_are_attained():
    # An image of alternating signs is nearly an eigenvector of D^T D with the eigenvalue 8.
    n = 64
    sign = (-1.0) ** np.add.outer(np.arange(n), np.arange(n))
    composite = Denoising(np.zeros((n, n))).at(alpha=1.0, eps_l2=0.0, eps_tv=1.0)
    x = 1e-4 * sign.ravel()
    slope = composite.smooth.gradient(x) - composite.smooth.gradient(0 * x)
    assert 0.95 * composite.L <= float(slope @ x) / float(x @ x) <= composite.L


def test_without_variation_the_solution_is_known():
    x = suffice.solve(Denoising(wave).at(alpha=0.0, eps_l2=1.0, eps_tv=1.0), within=1e-12).x
    assert np.allclose(Denoising(wave).image(x), wave / 2.0, atol=1e-12)
    weights = c / (1.0 - c)
    problem = SampledFourier(spectrum, c=c, alpha=0.0, eps_l2=0.5, eps_tv=1.0)
    found = problem.image(suffice.solve(problem.at(), within=1e-12))
    assert np.allclose(found, np.fft.ifft(weights / (weights + 0.5) * spectrum, norm="ortho"), atol=1e-11)


def test_images_come_back_in_their_own_format():
    problem = PROBLEMS["2-D complex"]
    image = problem.image(suffice.solve(problem.at(), within=1e-6))
    assert image.shape == (6, 5) and image.dtype == complex
    assert np.array_equal(problem.image(problem.flat(image)), image)
    assert suffice.certify(problem.at(), problem.flat(image)).radius <= 2e-6
    loss = losses.SquaredDistance(image)
    assert loss.at(problem.flat(image + 1.0)).residual == pytest.approx(np.sqrt(30.0))
    testing.check_loss(loss, problem.flat(image + 1.0))


@pytest.mark.parametrize("boundary, kernel", [("zero", [0, -1, 1])])
def test_differences_are_the_convolution_with_a_zero_before_the_image(boundary, kernel):
    composite = Denoising(np.zeros(24), boundary=boundary).at(alpha=1.0, eps_l2=0.0, eps_tv=0.1)
    d = np.convolve(signal, kernel, "same")
    expected = signal + np.convolve(d / np.sqrt(d**2 + 0.01), [1, -1, 0], "same")
    assert np.allclose(composite.smooth.gradient(signal), expected, atol=1e-14)


def test_each_sample_may_be_a_parameter_of_its_own():
    problem = SampledFourier(spectrum, **FIXED)
    assert problem.at(**dict(zip(problem.names, c, strict=True))) == problem.at(c=c) != problem.at(c=0.5)


@pytest.mark.parametrize(
    "operator",
    [blur, sp.csr_array(blur), sp.csc_matrix(blur), aslinearoperator(blur)],
    ids=["array", "csr", "csc matrix", "LinearOperator"],
)
def test_operators_come_in_many_forms(operator):
    expected = suffice.solve(PROBLEMS["blur"].at(), within=1e-8).x
    found = suffice.solve(Reconstruction(operator, blur @ signal, **FIXED).at(), within=1e-8).x
    assert norm(found - expected) <= 2e-8


def test_the_norm_of_an_operator_is_bounded_from_above():
    for seed in range(5):
        A = np.random.default_rng(seed).standard_normal((30, 24))
        exact = np.linalg.norm(A, 2) ** 2
        for matrix in (A, A * (1 + 2j)):
            bound = Reconstruction(matrix, np.zeros(30), **FIXED).operator.squared_norm
            exact = np.linalg.norm(matrix, 2) ** 2
            assert exact <= bound <= (1 + 1e-10) * exact
    assert Reconstruction(blur, blur @ signal, norm=3.0, **FIXED).operator.squared_norm == 9.0


def test_an_operator_that_is_too_large_to_be_written_down_needs_a_norm():
    size = 2001
    identity = LinearOperator((size, size), matvec=lambda v: v, rmatvec=lambda v: v, dtype=float)
    with pytest.raises(ValueError, match="norm must be given for an operator with more than 2000 columns, got 2001"):
        Reconstruction(identity, np.zeros(size), **FIXED)
    assert Reconstruction(identity, np.zeros(size), norm=1.0, **FIXED).operator.squared_norm == 1.0


def test_pylops_operators_are_taken_as_they_are():
    pylops = pytest.importorskip("pylops")
    A = pylops.signalprocessing.Convolve2D((6, 5), h=np.outer([1, 2, 1], [1, 2, 1]) / 16.0, offset=(1, 1))
    problem = Reconstruction(A, A @ picture, **FIXED)
    assert problem.shape == (6, 5)
    dense = Reconstruction(A.todense(), (A @ picture).ravel(), shape=(6, 5), **FIXED)
    found, expected = (suffice.solve(one.at(), within=1e-8) for one in (problem, dense))
    assert norm(found.x - expected.x) <= 2e-8
    F = pylops.signalprocessing.FFT2D((6, 5), norm="none", dtype=complex)
    assert Reconstruction(F, np.zeros(F.shape[0]), **FIXED).dtype == complex


WRONG_ADJOINT = LinearOperator((24, 24), matvec=lambda v: blur @ v, rmatvec=lambda v: v, dtype=float)


@pytest.mark.parametrize(
    "build, error, message",
    [
        (lambda: Denoising(np.zeros((2, 2, 2))), ValueError, "at least one pixel, got shape (2, 2, 2)"),
        (lambda: Denoising([1.0, np.nan]), ValueError, "y must be finite"),
        (lambda: Denoising(["a"]), TypeError, "y must hold numbers, got dtype <U1"),
        (lambda: Denoising(signal, boundary="periodic"), ValueError, "one of free, zero, got 'periodic'"),  # type: ignore[arg-type]
        (lambda: Denoising(signal, alpha=-1.0), ValueError, "alpha must be non-negative and finite, got -1.0"),
        (lambda: Denoising(signal, eps_tv=0.0), ValueError, "eps_tv must be positive and finite, got 0.0"),
        (lambda: Denoising(signal, eps_tv=1e-200), ValueError, "eps_tv must lie within 1e-100 and 1e+100, got 1e-200"),
        (lambda: Denoising(signal).at(alpha=1.0, eps_l2=1.0), ValueError, "eps_tv must be given"),
        (lambda: PROBLEMS["1-D"].at(alpha=1.0), ValueError, "alpha is fixed at 0.3 by this problem, got 1.0"),
        (lambda: PROBLEMS["1-D"].image(np.zeros(3)), ValueError, "x must have shape (24,), got (3,)"),
        (lambda: PROBLEMS["1-D"].flat(wave), TypeError, "image must be real, got complex numbers"),
        (lambda: PROBLEMS["1-D"].flat(np.zeros(3)), ValueError, "image must have shape (24,), got (3,)"),
        (lambda: SampledFourier(spectrum, c=1.0), ValueError, "c must satisfy 0 <= c < 1, got 1.0 to 1.0"),
        (lambda: SampledFourier(spectrum, c=np.zeros(3)), ValueError, "c must have shape (24,), got (3,)"),
        (lambda: SampledFourier(spectrum, **FIXED).at(), ValueError, "c must be given"),
        (lambda: SampledFourier(spectrum, **FIXED).at(c0=0.5), ValueError, "23 of 24 are missing"),
        (lambda: SampledFourier(spectrum, **FIXED).at(d0=0.5), TypeError, "unknown parameters: d0"),
        (lambda: SampledFourier(spectrum, c=c, **FIXED).at(c=c), ValueError, "c must be given once"),
        (lambda: SampledFourier(spectrum, c=0, alpha=1, eps_tv=1, eps_l2=0).at(), ValueError, "eps_l2 must be pos"),
        (lambda: SampledFourier(spectrum, dtype=int), TypeError, "dtype must be float or complex, got <class 'int'>"),
        (lambda: Reconstruction("blur", signal), TypeError, "A must be a matrix or a linear operator, got str"),
        (lambda: Reconstruction(blur, signal[1:]), ValueError, "y must have 24 entries, one per row of A, got 23"),
        (lambda: Reconstruction(blur, signal, shape=(5, 5)), ValueError, "shape must have 24 pixels"),
        (lambda: Reconstruction(WRONG_ADJOINT, signal), ValueError, "A's rmatvec is not the adjoint of its matvec"),
        (lambda: Reconstruction(blur, signal, norm=-1.0), ValueError, "norm must be non-negative and finite, got -1.0"),
        (lambda: Reconstruction(blur, signal, norm=1.0, least=2.0), ValueError, "least must not exceed"),
        (lambda: Reconstruction(blur, signal, weights=[1.0]), ValueError, "the shape of y, (24,), got (1,)"),
        (lambda: Reconstruction(blur, signal, weights=-1.0), ValueError, "weights must be finite and non-negative"),
    ],
)  # fmt: skip
def test_bad_input_is_named(build, error, message):
    with pytest.raises(error, match=re.escape(message)):
        build()
