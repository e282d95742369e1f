"""A stack of images takes the very steps of its images."""

from typing import Any

import numpy as np
import pytest

from suffice import BilevelProblem, Outcome, Space, solve
from suffice.imaging.batched_images import share_a_format
from suffice.losses import SquaredDistance
from suffice.problems import Denoising, ElasticNet, SampledFourier
from tests.batches import solve_together

rng = np.random.default_rng(0)
SIGNALS = rng.standard_normal((3, 16))
FIXED: dict[str, Any] = {"eps_l2": 1e-2, "eps_tv": 1e-2}
PROBLEMS = {
    "denoising": [Denoising(y, **FIXED).at(alpha=0.5) for y in SIGNALS],
    "complex images": [Denoising(np.outer(y, 1j * y + 1), **FIXED).at(alpha=0.5) for y in SIGNALS],
    "samples": [SampledFourier(y, c=0.4, **FIXED).at(alpha=0.5) for y in SIGNALS],
}


@pytest.mark.parametrize("solver", ["fista", "gradient_descent"])
@pytest.mark.parametrize("steps", [1, 2, 37])
@pytest.mark.parametrize("problems", PROBLEMS.values(), ids=PROBLEMS.keys())
def test_steps_together_are_the_steps_alone(problems, steps, solver):
    assert share_a_format(problems)
    for problem, together in zip(problems, solve_together(problems, steps=steps, solver=solver), strict=True):
        alone = solve(problem, steps=steps, solver=solver)
        assert np.array_equal(together.x, alone.x)
        assert together.certificate == alone.certificate
        finer = [solve(problem, steps=50, solver=solver, warm=one) for one in (together, alone)]
        assert np.array_equal(finer[0].x, finer[1].x) and finer[0].steps == finer[1].steps


def same(together, alone):
    return (
        np.array_equal(together.x, alone.x)
        and together.certificate == alone.certificate
        and (together.steps, together.outcome) == (alone.steps, alone.outcome)
        and together.initial_radius == alone.initial_radius
    )


@pytest.mark.parametrize("solver", ["fista", "gradient_descent"])
@pytest.mark.parametrize("problems", PROBLEMS.values(), ids=PROBLEMS.keys())
@pytest.mark.slow
def test_proofs_together_are_the_proofs_alone(problems, solver):
    """Each image its own accuracy and its own start: none, a point, a solution to be continued."""
    begun = solve(problems[2], within=0.3, solver=solver)
    warm = [None, np.ones(problems[1].size), begun]
    within = [1e-3, 0.1, 1e-6]
    found = solve_together(problems, within=within, solver=solver, warm=warm, max_steps=[np.inf] * 3)
    for problem, one, asked, start in zip(problems, found, within, warm, strict=True):
        alone = solve(problem, within=asked, solver=solver, warm=start)
        assert one.outcome is Outcome.REACHED and same(one, alone)
        finer = [solve(problem, within=1e-8, solver=solver, warm=each) for each in (one, alone)]
        assert same(*finer)


@pytest.mark.parametrize("solver", ["fista"])
def test_what_cannot_be_proven_together_is_told(solver):
    problems = PROBLEMS["denoising"]
    done = solve(problems[0], within=0.1, solver=solver)
    limits = [0, 5, np.inf]
    found = solve_together(problems, within=[0.2, 0.0, 0.0], solver=solver, warm=[done, None, None], max_steps=limits)
    assert [one.outcome for one in found] == [Outcome.REACHED, Outcome.MAX_STEPS, Outcome.PRECISION]
    assert found[0].x is done.x and found[1].steps == 5
    alone = solve(problems[2], within=0.0, solver=solver)
    assert found[2].certificate.radius <= 2.0 * alone.certificate.radius < 1e-10


@pytest.mark.parametrize("solver", ["fista", "gradient_descent"])
def test_dynamic_accuracy_uses_it(solver, monkeypatch):
    lower = [Denoising(y, **FIXED) for y in SIGNALS]
    problem = BilevelProblem(lower, [SquaredDistance(np.zeros(16))] * 3, space=Space(alpha=(1e-3, 1e3)), solver=solver)
    together = problem.evaluate(np.zeros(1), within=1e-4)
    monkeypatch.setattr("suffice.imaging.batched_images.SMALL", 0)
    alone = problem.evaluate(np.zeros(1), within=1e-4)
    assert np.array_equal(together.r, alone.r) and np.array_equal(together.e, alone.e)
    assert together.work == alone.work


def test_fixed_accuracy_uses_it():
    lower = [Denoising(y, **FIXED) for y in SIGNALS]
    problem = BilevelProblem(
        lower, [SquaredDistance(np.zeros(16))] * 3, space=Space(alpha=(1e-3, 1e3)), solver="gradient_descent"
    )
    evaluation = problem.fixed(5).evaluate(np.zeros(1), within=1.0)
    expected = [solve(one.at(alpha=1.0), steps=5, solver="gradient_descent").x for one in lower]
    assert np.array_equal(evaluation.r, np.concatenate(expected))
    assert evaluation.work == 15


def test_what_differs_does_not_go_together():
    one, other = (Denoising(SIGNALS[0], **FIXED).at(alpha=alpha) for alpha in (0.5, 0.6))
    assert not share_a_format([one, other])
    assert not share_a_format([one])
    assert not share_a_format([one, Denoising(SIGNALS[0], boundary="zero", **FIXED).at(alpha=0.5)])
    assert not share_a_format([one, ElasticNet(np.eye(3), np.ones(3)).at(l1=0.1, l2=0.1)])
