"""Noise that no request reduces: regression averages it out, restarts look again, nothing is claimed to be proven."""

import json

import numpy as np
import pytest

from suffice import Evaluation, Options, Status, Tuner, exact, tune
from suffice.search.noise import regression


def evaluations(points, fun):
    return [Evaluation(u, fun(u), np.zeros(len(fun(u)))) for u in points]


def cloud(count, m=2, seed=0):
    return np.vstack([np.zeros(m), np.random.default_rng(seed).uniform(-1, 1, (count - 1, m))])


def affine(u):
    return np.array([1.0 + u[0] - 2.0 * u[1], 3.0 * u[1] + 0.5, u[0] + u[1] - 1.0])


@pytest.mark.parametrize("noise", [{"noise": "unknown"}, {"noise": "additive", "noise_level": 0.3}])
def test_affine_residuals_are_reproduced_whatever_the_noise_is_said_to_be(noise):
    points = cloud(9)
    fitted = regression(points, evaluations(points, affine), 0, 6, False, Options(**noise))
    s = np.array([0.3, -0.7])
    assert fitted.model.basis.phi(s).sum() == pytest.approx(1.0, abs=1e-10)
    r0, r = affine(points[0]), affine(s)
    assert fitted.model.decrease(s) == pytest.approx(r0 @ r0 - r @ r, rel=1e-6, abs=1e-8)
    assert fitted.model.decrease(0.0 * s) == 0.0


def test_with_little_noise_quadratic_residuals_are_reproduced():
    def quadratic(u):
        return affine(u) + np.array([u[0] ** 2, u[0] * u[1], 0.5 * u[1] ** 2])

    points = cloud(12)
    options = Options(noise="additive", noise_level=1e-7)
    fitted = regression(points, evaluations(points, quadratic), 0, 9, False, options)
    s = np.array([0.5, 0.4])
    decrease = quadratic(points[0]) @ quadratic(points[0]) - quadratic(s) @ quadratic(s)
    assert fitted.model.decrease(s) == pytest.approx(decrease, rel=1e-3)
    assert fitted.doubt(s) < 1e-5


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_an_unknown_noise_is_estimated(seed, relative):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((20, 3))

    def noisy(u):
        r = 5.0 + A @ u
        return r + 0.05 * rng.standard_normal(20) * (np.abs(r) / 5.0 if relative else 1.0)

    points = cloud(20, m=3, seed=seed)
    fitted = regression(points, evaluations(points, noisy), 0, 16, False, Options(noise="unknown"))
    F, s = float(np.sum((5.0 + A @ points[0]) ** 2)), 0.05
    assert 0.6 < fitted.spread / np.sqrt(4.0 * s * s * F) < 1.6
    assert 0.4 < fitted.bias / (20 * s * s) < 2.5


def test_more_points_mean_less_doubt():
    rng = np.random.default_rng(1)

    def noisy(u):
        return affine(u) + 0.1 * rng.standard_normal(3)

    doubts = []
    for count in (3, 12, 48):
        points = cloud(count)
        options = Options(noise="additive", noise_level=0.1)
        fitted = regression(points, evaluations(points, noisy), 0, count - 3, False, options)
        doubts.append(fitted.doubt(np.array([0.5, 0.5])))
    assert doubts[0] > 1.5 * doubts[1] > 2.0 * doubts[2]


def curve(x):
    """Residuals of a fit to data, with a minimum that is not zero."""
    t = np.linspace(0.0, 1.0, 15)
    return x[0] * np.exp(-x[1] * t) + x[2] - (2.0 * np.exp(-3.0 * t) + 0.5 + 0.2 * np.cos(40.0 * t))


class Blurred:
    def __init__(self, kind, sigma, seed):
        self.kind, self.sigma, self.rng, self.seen = kind, sigma, np.random.default_rng(seed), []

    def evaluate(self, theta, *, within, warm=None):
        r = curve(theta)
        self.seen.append(float(r @ r))
        scale = np.abs(r) if self.kind == "multiplicative" else 1.0
        return Evaluation(theta, r + self.sigma * scale * self.rng.standard_normal(len(r)), np.zeros(len(r)), work=1)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("kind", ["additive", "multiplicative"])
def test_the_minimiser_is_found_to_well_below_the_noise_of_one_evaluation(kind, told):
    sigma, excess = 0.02, []
    least = tune(exact(curve), [1.0, 1.0, 0.0], options=Options(max_evaluations=200)).cost
    options = {"noise": kind, "noise_level": sigma} if told else {"noise": "unknown"}
    for seed in range(3):
        result = tune(
            Blurred(kind, sigma, seed),
            [1.0, 1.0, 0.0],
            options=Options(max_evaluations=250, final_radius=1e-6, **options),
        )
        assert result.status in (Status.NOISE, Status.MAX_EVALUATIONS)
        assert {record.verdict for record in result.history} <= {None, "accepted, not proven", "rejected, not proven"}
        assert result.interval == (0.0, np.inf) and "nothing is proven" in result.message
        excess.append(float(curve(result.theta) @ curve(result.theta)) - least)
    one = np.sqrt(4.0 * sigma**2 * least) if kind == "additive" else 2.0 * sigma * least / np.sqrt(15)
    assert np.median(excess) < 0.5 * one


def test_a_lucky_draw_is_no_target_reached():
    options = Options(noise="additive", noise_level=0.5, target_cost=0.1, max_evaluations=60)
    rng = np.random.default_rng(0)
    result = tune(exact(lambda x: x - 0.3 + 0.5 * rng.standard_normal(1)), [1.0], options=options)
    assert min(record.cost for record in result.history) <= 0.1
    assert result.status is not Status.TARGET


@pytest.mark.parametrize("options", [{"noise": "unknown"}, {"noise": "additive", "noise_level": 0.02}])
def test_noisy_runs_continue_from_their_states_to_the_same_bits(options):
    def run(store):
        oracle = Blurred("additive", 0.02, 3)
        tuner = Tuner([1.0, 1.0, 0.0], options=Options(max_evaluations=60, **options))
        while not tuner.done:
            if store:
                tuner = Tuner.from_state(json.loads(json.dumps(tuner.state(), allow_nan=False)))
            request = tuner.ask()
            tuner.tell(oracle.evaluate(request.theta, within=request.within))
        return tuner

    whole, pieces = run(False), run(True)
    assert whole.search.strategy.restarts.count > 0
    assert whole.history == pieces.history
    assert whole.result().theta.tobytes() == pieces.result().theta.tobytes()
