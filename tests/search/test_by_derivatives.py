"""Models from derivatives: fewer evaluations where they are right, and nothing but time lost where they are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import suffice
from suffice.search import model as hermite
from suffice.search.by_derivatives import known
from suffice.search.state import Sample, pooled

Vector = np.ndarray[Any, np.dtype[np.float64]]


def rosenbrock(x: Vector) -> Vector:
    return np.array([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])


def rosenbrock_slopes(x: Vector) -> Vector:
    return np.array([[-20.0 * x[0], 10.0], [-1.0, 0.0]])


def exponential_wall(x: Vector) -> Vector:
    """Two penalties of which one is a power of the other's inverse, as in the paper's J."""
    return np.array([10.0 ** -x[1], 0.3 * x[1] - 1.0, 0.5 * (x[0] - 0.2 * x[1]), 1.0, 0.1 * x[0] + 1.0, 0.2 * x[1]])


def exponential_wall_slopes(x: Vector) -> Vector:
    wall = -math.log(10.0) * 10.0 ** -x[1]
    return np.array([[0.0, wall], [0.0, 0.3], [0.5, -0.1], [0.0, 0.0], [0.1, 0.0], [0.0, 0.2]])


def fading(x: Vector) -> Vector:
    """The second parameter's influence fades, as that of the logarithm of a ridge that hardly matters any more."""
    e = 10.0 ** x[1]
    return np.array([x[0] - 1.0 + 0.5 * e, 1.0 + 0.3 * e, 0.2 * x[0] ** 2 + 0.1 * e, 0.5 * x[0] - 0.4 * e, 2.0])


def fading_slopes(x: Vector) -> Vector:
    e = math.log(10.0) * 10.0 ** x[1]
    return np.array([[1.0, 0.5 * e], [0.0, 0.3 * e], [0.4 * x[0], 0.1 * e], [0.5, -0.4 * e], [0.0, 0.0]])


def curved_residuals(x: Vector) -> Vector:
    """Large residuals at the minimiser, where Gauss-Newton alone is slow."""
    return np.concatenate([x**2 + 1.0, np.sin(x) + x - 0.5, [np.exp(x.sum() / len(x))]])


def curved_slopes(x: Vector) -> Vector:
    m = len(x)
    return np.vstack([np.diag(2.0 * x), np.diag(np.cos(x) + 1.0), np.full((1, m), np.exp(x.sum() / m) / m)])


SMOOTH: dict[str, tuple[Callable[[Vector], Vector], Callable[[Vector], Vector], list[float]]] = {
    "Rosenbrock": (rosenbrock, rosenbrock_slopes, [-1.2, 1.0]),
    "exponential wall": (exponential_wall, exponential_wall_slopes, [1.0, -3.0]),
    "large residuals": (curved_residuals, curved_slopes, [1.5, -1.0, 0.7, 2.0, -0.3]),
}


def evaluations_to(result: suffice.Result, F: float) -> int:
    return next(record.number for record in result.history if record.cost <= F)


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_problems_take_half_of_the_evaluations(name: str) -> None:
    fun, jacobian, start = SMOOTH[name]
    without = suffice.tune(suffice.exact(fun), start)
    with_them = suffice.tune(suffice.exact(fun, jacobian), start)
    assert with_them.success
    assert with_them.cost <= without.cost * (1.0 + 1e-6) + 1e-9
    goal = without.cost + 1e-3 * (without.history[0].cost - without.cost)
    assert evaluations_to(with_them, goal) <= 0.6 * evaluations_to(without, goal)
    assert with_them.evaluations <= 0.6 * without.evaluations


def test_there_are_no_first_points_and_no_geometry() -> None:
    result = suffice.tune(suffice.exact(rosenbrock, rosenbrock_slopes), [-1.2, 1.0])
    purposes = [record.purpose for record in result.history]
    assert purposes.count("first points") == 1
    assert "geometry" not in purposes
    assert purposes[-1] == "test of derivatives"


def test_linear_residuals_are_solved_by_the_steps_that_the_radius_allows() -> None:
    A = np.random.default_rng(0).standard_normal((12, 20)).T
    b = np.arange(20.0)
    result = suffice.tune(suffice.exact(lambda x: A @ x - b, lambda x: A), np.zeros(12))
    best = float(np.linalg.lstsq(A, b, rcond=None)[1][0])
    assert evaluations_to(result, best * (1.0 + 1e-9)) < 12  # one point of interpolation per parameter is more


GARBAGE: dict[str, Callable[[Vector], Vector]] = {
    "random": lambda x: np.random.default_rng(int(1e6 * abs(x[0])) % 2**31).standard_normal((2, 2)),
    "zero": lambda x: np.zeros((2, 2)),
    "a million times too large": lambda x: 1e6 * rosenbrock_slopes(x),
    "a million times too small": lambda x: 1e-6 * rosenbrock_slopes(x),
    "one column too large": lambda x: rosenbrock_slopes(x) * np.array([1.0, 1e5]),
    "one column too small": lambda x: rosenbrock_slopes(x) * np.array([1e-5, 1.0]),
    "of the wrong sign": lambda x: -rosenbrock_slopes(x),
    "transposed": lambda x: rosenbrock_slopes(x).T,
    "not finite": lambda x: np.full((2, 2), np.nan),
    "huge": lambda x: np.full((2, 2), 1e200),
}


@pytest.mark.parametrize("mode", ["auto", "always"])
@pytest.mark.parametrize("name", GARBAGE)
def test_wrong_derivatives_cost_evaluations_and_nothing_else(name: str, mode: Any) -> None:
    options = suffice.Options(derivatives=mode)
    result = suffice.tune(suffice.exact(rosenbrock, GARBAGE[name]), [-1.2, 1.0], options=options)
    assert result.success
    assert result.cost < 1e-6
    assert np.abs(result.theta - 1.0).max() < 1e-2


def test_a_search_that_starts_at_its_end_by_wrong_derivatives_tests_them() -> None:
    """J^T r = 0 at theta0, says J."""
    result = suffice.tune(
        suffice.exact(
            lambda x: np.array([x[0] - 3.0, x[1] + 1.0, 1.0]), lambda x: np.eye(3)[[1, 2, 0]][:, [1, 0]] * 0.0
        ),
        [0.0, 0.0],
    )
    assert result.success
    assert np.abs(result.theta - [3.0, -1.0]).max() < 1e-3


def kinked(x: Vector) -> Vector:
    """F has a kink at its minimiser 0, along every axis."""
    return np.concatenate([np.sqrt(1.0 + np.abs(x)), 0.2 * x])


def kinked_slopes(x: Vector) -> Vector:
    return np.vstack([np.diag(np.sign(x) / (2.0 * np.sqrt(1.0 + np.abs(x)))), 0.2 * np.eye(len(x))])


@pytest.mark.parametrize("mode", ["auto", "always"])
@pytest.mark.parametrize("start", [[1.0, -0.6], [0.31, 0.77], [-2.0, 0.001]])
def test_a_kink_at_the_minimiser_is_found(start: list[float], mode: Any) -> None:
    result = suffice.tune(suffice.exact(kinked, kinked_slopes), start, options=suffice.Options(derivatives=mode))
    without = suffice.tune(suffice.exact(kinked), start)
    assert result.success
    assert result.cost - 2.0 <= max(without.cost - 2.0, 1e-2)


def test_never_asks_for_none_and_auto_asks_until_it_is_told_none() -> None:
    tuner = suffice.Tuner([-1.2, 1.0], options=suffice.Options(derivatives="never"))
    assert not tuner.ask().derivatives
    tuner = suffice.Tuner([-1.2, 1.0])
    request = tuner.ask()
    assert request.derivatives
    tuner.tell(suffice.Evaluation(request.theta, rosenbrock(request.theta), np.zeros(2)))
    assert not tuner.ask().derivatives
    assert not suffice.Tuner([-1.2, 1.0], options=suffice.Options(model="linear")).ask().derivatives


@given(st.sets(st.integers(0, 40), max_size=20))
def test_in_ask_and_tell_derivatives_may_be_missing_anywhere(missing: set[int]) -> None:
    tuner = suffice.Tuner([-1.2, 1.0], options=suffice.Options(max_evaluations=200))
    number = 0
    while not tuner.done:
        request = tuner.ask()
        J = rosenbrock_slopes(request.theta) if request.derivatives and number not in missing else None
        tuner.tell(suffice.Evaluation(request.theta, rosenbrock(request.theta), np.zeros(2), jacobian=J))
        number += 1
    assert tuner.result().success
    assert tuner.result().cost < 1e-8


def test_always_refuses_an_objective_without_derivatives_before_any_work() -> None:
    calls: list[Vector] = []

    def fun(x: Vector) -> Vector:
        calls.append(x)
        return x

    objective = suffice.exact(fun)
    with pytest.raises(TypeError, match=r"derivatives='always' needs an objective that offers differentiate"):
        suffice.tune(objective, [1.0], options=suffice.Options(derivatives="always"))
    assert not calls


def test_invalid_options_and_jacobians_are_named() -> None:
    with pytest.raises(ValueError, match=r"derivatives must be one of auto, never, always, got 'maybe'"):
        suffice.Options(derivatives="maybe")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"derivatives='always' needs model='competing'"):
        suffice.Options(derivatives="always", model="linear")
    with pytest.raises(TypeError, match=r"jacobian must be callable, got 3"):
        suffice.exact(rosenbrock, 3)  # type: ignore[arg-type]
    with pytest.raises(
        suffice.OracleError, match=r"jacobian must have shape \(2, 2\), got .* in differentiate at theta"
    ):
        suffice.tune(suffice.exact(rosenbrock, lambda x: np.ones((3, 2))), [-1.2, 1.0])


def test_the_work_of_derivatives_is_charged() -> None:
    objective = suffice.exact(rosenbrock, rosenbrock_slopes)
    result = suffice.tune(objective, [-1.2, 1.0])
    tests = sum(record.purpose == "test of derivatives" for record in result.history)
    assert tests == 1
    assert result.work == 2 * result.evaluations - tests  # a test of derivatives needs none of its own


def _stopping(objective: suffice.exact, after: int) -> Callable[[suffice.Record], None]:
    def callback(record: suffice.Record) -> None:
        if record.number == after:
            raise StopIteration

    return callback


@pytest.mark.parametrize("after", [1, 2, 4, 6])
@pytest.mark.parametrize("slopes", [rosenbrock_slopes, GARBAGE["random"]], ids=["right", "wrong"])
def test_a_resumed_run_ends_at_the_same_bits(tmp_path: Path, after: int, slopes: Any) -> None:
    objective = suffice.exact(rosenbrock, slopes)
    whole = suffice.tune(objective, [-1.2, 1.0])
    suffice.tune(objective, [-1.2, 1.0], journal=tmp_path / "run", callback=_stopping(objective, after))
    resumed = suffice.resume(tmp_path / "run", problem=objective)
    assert resumed.evaluations == whole.evaluations > after
    assert [record.theta for record in resumed.history] == [record.theta for record in whole.history]
    assert resumed.evaluation is not None
    assert whole.evaluation is not None
    assert known(resumed.evaluation) == known(whole.evaluation)


def test_a_state_as_plain_data_goes_on_to_the_same_bits() -> None:
    def told(tuner: suffice.Tuner) -> None:
        theta = tuner.ask().theta
        evaluation = suffice.Evaluation(theta, rosenbrock(theta), np.zeros(2), jacobian=rosenbrock_slopes(theta))
        tuner.tell(evaluation)

    one = suffice.Tuner([-1.2, 1.0])
    while not one.done:
        other = suffice.Tuner.from_state(one.state())
        told(one)
        told(other)
        assert other.history == one.history and other.state()["answers"] == one.state()["answers"]


def test_many_starts_use_derivatives_and_resume(tmp_path: Path) -> None:
    objective = suffice.exact(rosenbrock, rosenbrock_slopes)
    starts = [[-1.2, 1.0], [2.0, -1.0], [0.0, 3.0]]
    whole = suffice.tune(objective, starts=starts)
    for most in (7, 8, 9):  # budgets that end a turn, and budgets that cut one short
        folder = tmp_path / str(most)
        suffice.tune(objective, starts=starts, options=suffice.Options(max_evaluations=most), journal=folder)
        resumed = suffice.resume(folder, problem=objective, options=suffice.Options())
        assert [r.theta for r in resumed.history] == [r.theta for r in whole.history]
        assert [one.status for one in resumed.starts] == [one.status for one in whole.starts]
    without = suffice.tune(suffice.exact(rosenbrock), starts=starts)
    assert sum(r.evaluations for r in whole.starts) < 0.7 * sum(r.evaluations for r in without.starts)


class Inexact:
    """Residuals within what was asked for, with errors that are there."""

    def __init__(self) -> None:
        self.derivatives = 0

    def evaluate(self, theta: Vector, *, within: float, warm: Any = None) -> suffice.Evaluation:
        r = curved_residuals(theta)
        shift = 0.9 * within * np.cos(1e3 * theta.sum() + np.arange(len(r)))
        return suffice.Evaluation(theta, r + shift, np.full(len(r), within), work=math.log(1.0 / within) + 10.0)

    def differentiate(self, evaluation: suffice.Evaluation) -> suffice.Evaluation:
        self.derivatives += 1
        return replace(evaluation, jacobian=curved_slopes(evaluation.point), work=evaluation.work + 1.0)


def test_with_errors_every_accepted_step_is_proven_and_the_end_is_the_minimiser() -> None:
    start = [1.5, -1.0, 0.7]
    exact = suffice.tune(suffice.exact(curved_residuals, curved_slopes), start)
    objective = Inexact()
    result = suffice.tune(objective, start)
    without = suffice.tune(objective, start, options=suffice.Options(derivatives="never"))
    assert objective.derivatives > 0
    assert result.success
    assert result.interval[0] <= exact.cost * (1.0 + 1e-9)
    assert result.cost <= exact.cost * (1.0 + 1e-6)
    assert result.work < without.work


def test_a_parameter_that_fades_is_followed_to_its_end() -> None:
    options = suffice.Options(max_evaluations=40)
    result = suffice.tune(
        suffice.exact(fading, fading_slopes), [0.0, -0.5], bounds=([-10, -7], [10, 3]), options=options
    )
    assert result.theta[1] == -7.0
    close = next(record.number for record in result.history if record.cost < result.cost * (1.0 + 1e-6))
    assert close <= 7
    assert result.evaluations <= 13


@given(st.integers(1, 5), st.integers(0, 1000))
def test_quadratic_residuals_are_known_once_slopes_have_been_seen_in_all_directions(m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    c, J = rng.standard_normal(4), rng.standard_normal((4, m))
    H = rng.standard_normal((4, m, m))
    H = H + H.transpose(0, 2, 1)

    def at(s: Vector) -> tuple[Vector, Vector]:
        return c + J @ s + 0.5 * np.einsum("i,tij,j->t", s, H, s), J + np.einsum("tij,j->ti", H, s)

    steps = 1e-3 * np.linalg.qr(rng.standard_normal((m, m)))[0]
    model = hermite.curved(c, J, [(step, *at(step)) for step in steps], 1.0)
    s = rng.standard_normal(m) / m
    truth, slopes = at(s)
    assert model.value(s) == pytest.approx(float(truth @ truth), rel=1e-3)
    g, second = model.derivatives(s)
    assert np.allclose(g, 2.0 * slopes.T @ truth, rtol=1e-2, atol=1e-2 * np.abs(g).max())
    whole = 2.0 * (slopes.T @ slopes + np.einsum("t,tij->ij", truth, H))
    assert np.allclose(second, whole, atol=1e-2 * np.abs(whole).max())


def test_models_know_their_own_derivatives() -> None:
    rng = np.random.default_rng(1)
    m, n = 3, 5
    r, J = 1.0 + rng.random(n), rng.standard_normal((n, m))
    old = [(0.3 * rng.standard_normal(m), 1.0 + rng.random(n), rng.standard_normal((n, m))) for _ in range(3)]
    old.append((0.2 * np.ones(m), 1.0 + rng.random(n), 1.5 * J))  # the same but for a factor
    model, s, h = hermite.curved(r, J, old, 0.5), 0.2 * rng.standard_normal(m), 1e-5
    g, H = model.derivatives(s)
    ends = [(s + h * e, s - h * e) for e in np.eye(m)]
    assert np.allclose(g, [(model.value(a) - model.value(b)) / (2 * h) for a, b in ends], rtol=1e-6)
    assert np.allclose(H, [(model.derivatives(a)[0] - model.derivatives(b)[0]) / (2 * h) for a, b in ends], rtol=1e-5)
    assert model.decrease(s) == pytest.approx(model.value(np.zeros(m)) - model.value(s))


def test_the_pool_forgets_jacobians_before_points() -> None:
    m = 40
    J = np.ones((2, m))
    points = [
        Sample(np.full(m, float(i)), suffice.Evaluation(np.zeros(m), [1.0, float(i)], [0.0, 0.0], jacobian=J))
        for i in range(30)
    ]
    pool: tuple[Sample, ...] = ()
    for point in points:
        pool = pooled(pool, [point])
    assert [point.evaluation.J is not None for point in pool] == [i >= 10 for i in range(30)]


def test_a_long_run_with_forgotten_jacobians_resumes_to_the_same_bits(tmp_path: Path) -> None:
    m = 60
    rng = np.random.default_rng(3)
    A = rng.standard_normal((m + 5, m)) / 12.0

    def fun(x: Vector) -> Vector:
        return np.tanh(A @ x) - 0.3 + 0.1 * (A @ x) ** 2

    def jacobian(x: Vector) -> Vector:
        t = A @ x
        return (1.0 / np.cosh(t) ** 2 + 0.2 * t)[:, None] * A

    objective, options = suffice.exact(fun, jacobian), suffice.Options(max_evaluations=10)
    whole = suffice.tune(objective, np.ones(m), options=options)
    suffice.tune(objective, np.ones(m), options=options, journal=tmp_path / "run", callback=_stopping(objective, 7))
    resumed = suffice.resume(tmp_path / "run", problem=objective)
    assert [record.theta for record in resumed.history] == [record.theta for record in whole.history]


def test_a_step_that_promises_next_to_nothing_is_not_made() -> None:
    """By derivatives, where that is less than a hundredth of what is worth an evaluation."""

    class Level:
        def evaluate(self, theta: Vector, *, within: float, warm: Any = None) -> suffice.Evaluation:
            residuals = np.array([1.0 + 1e-7 * theta[0], 0.5])
            return suffice.Evaluation(theta, residuals, np.zeros(2), jacobian=np.array([[1e-7, 0.0], [0.0, 0.0]]))

    bounds = np.full(2, -2.0), np.full(2, 2.0)
    ended, whole = (
        suffice.tune(Level(), [0.5, 0.5], bounds=bounds, options=suffice.Options(enough=enough))
        for enough in (1e-4, 1e-9)
    )
    assert ended.status is suffice.Status.SUFFICES
    assert ended.evaluations == 1 < whole.evaluations
