"""Newton's method for total variation: few steps from anywhere, and refusal of what it is not made for."""

import numpy as np
import pytest

import suffice
from suffice import Outcome, testing
from suffice.problems import Denoising, ElasticNet, SampledFourier

rng = np.random.default_rng(0)
t = np.linspace(-2, 2, 200)
box = ((t - 0.3) ** 2 < 0.5).astype(float)
noisy = box + 0.1 * rng.standard_normal(200)
samples = np.fft.fft(noisy[::4], norm="ortho")


@pytest.mark.parametrize("boundary", ["free", "zero"])
@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("alpha", [1e-6, 1e-2, 1.0, 1e2, 1e4])
def test_few_steps_lead_from_nothing_to_ten_digits(alpha, kind, boundary):
    y = noisy + 0.5j * noisy[::-1] if kind == "complex" else noisy
    problem = Denoising(y, eps_l2=1e-3, eps_tv=1e-3, boundary=boundary).at(alpha=alpha)
    solution = suffice.solve(problem, within=1e-7, solver="newton_tv", max_steps=30)
    assert solution.outcome is Outcome.REACHED
    assert solution.steps <= 20


def test_solutions_are_those_of_fista():
    for problem in (
        Denoising(noisy).at(alpha=0.5, eps_l2=1e-3, eps_tv=1e-2),
        Denoising(np.outer(box[::20], noisy[::20])).at(alpha=0.1, eps_l2=1e-3, eps_tv=1e-2),
        SampledFourier(samples, c=0.3).at(alpha=1e-2, eps_l2=1e-3, eps_tv=1e-2),
    ):
        newton, fista = (suffice.solve(problem, within=1e-7, solver=solver) for solver in ("newton_tv", "fista"))
        assert newton.reached and fista.reached
        assert np.linalg.norm(newton.x - fista.x) <= newton.certificate.radius + fista.certificate.radius
        assert newton.steps < fista.steps / 5


@pytest.mark.parametrize("y", [np.array([2.0]), np.array([[-3.0]]), np.array([1.0 - 2.0j]), np.array([[2.0j]])])
def test_a_single_pixel_without_differences_is_shrunk_by_its_ridge(y):
    solution = suffice.solve(Denoising(y).at(alpha=5.0, eps_l2=0.25, eps_tv=0.1), within=1e-12, solver="newton_tv")
    assert solution.reached and solution.steps <= 2
    assert np.abs(solution.x.view(y.dtype) - y.ravel() / 1.25).max() <= 1e-12


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_a_single_pixel_next_to_a_zero_solves_one_equation(shape):
    """x (1 + eps_l2) + k alpha x / sqrt(k x^2 + eps_tv^2) = y, with k differences to pixels that are 0."""
    k, x, alpha, eps_l2, eps_tv = len(shape), 0.7, 0.4, 0.1, 0.05
    y = x * (1.0 + eps_l2) + k * alpha * x / np.sqrt(k * x * x + eps_tv**2)
    problem = Denoising(np.full(shape, y), boundary="zero").at(alpha=alpha, eps_l2=eps_l2, eps_tv=eps_tv)
    solution = suffice.solve(problem, within=1e-12, solver="newton_tv")
    assert solution.reached and abs(solution.x[0] - x) <= 1e-12 + 1e-15


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("shape", [(1, 40), (40, 1)])
def test_an_image_of_one_row_or_column_is_a_signal(shape, kind):
    y = noisy[:40] + 0.5j * noisy[40:80] if kind == "complex" else noisy[:40]
    one, other = (
        suffice.solve(Denoising(z).at(alpha=0.3, eps_l2=1e-3, eps_tv=1e-2), within=1e-9, solver="newton_tv")
        for z in (y, y.reshape(shape))
    )
    assert one.reached and other.reached and np.linalg.norm(one.x - other.x) <= 2e-9


def test_it_is_a_solver_like_any_other():
    problems = [Denoising(noisy[:30]).at(alpha=alpha, eps_l2=1e-2, eps_tv=1e-2) for alpha in (0.0, 0.1, 10.0)]
    testing.check_solver("newton_tv", problems)


def test_it_tunes_like_any_other():
    problem = suffice.BilevelProblem(
        [Denoising(noisy, eps_l2=1e-3, eps_tv=1e-3)],
        [suffice.losses.SquaredDistance(box)],
        space=suffice.Space(alpha=(1e-4, 1e2)),
        solver="newton_tv",
    )
    result = suffice.tune(problem, {"alpha": 10.0}, options=suffice.Options(max_evaluations=25))
    costs = [problem.evaluate(np.array([theta]), within=1e-8).cost for theta in np.linspace(-4, 2, 200)]
    assert result.interval[0] <= min(costs) * 1.0001
    assert result.cost <= min(costs) * 1.001
    assert result.work < 400


@pytest.mark.parametrize(
    "problem, error, message",
    [
        (ElasticNet(np.eye(3), np.ones(3)).at(l1=0.1, l2=0.1), TypeError, "problems of suffice.problems.imaging"),
        (Denoising(np.zeros((40, 40))).at(alpha=1.0, eps_l2=0.0, eps_tv=1.0), ValueError, "at most 1024 .* got 1600"),
    ],
)
def test_it_refuses_what_it_is_not_made_for(problem, error, message):
    with pytest.raises(error, match=message):
        suffice.solve(problem, within=1e-3, solver="newton_tv")
