"""A stack of images takes the very steps of its images."""

from typing import Any

import numpy as np
import pytest

from suffice import BilevelProblem, Space, solve
from suffice.losses import SquaredDistance
from suffice.lower.together_tv import share_a_format, steps_together
from suffice.problems import Denoising, ElasticNet, SampledFourier

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
    for problem, together in zip(problems, steps_together(problems, steps, solver), strict=True):
        alone = solve(problem, steps=steps, solver=solver)
        assert np.array_equal(together.x, alone.x)
        assert together.certificate == alone.certificate
        finer = [solve(problem, steps=50, solver=solver, warm=one) for one in (together, alone)]
        assert np.array_equal(finer[0].x, finer[1].x) and finer[0].steps == finer[1].steps


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
