"""Problems that share a design are solved in one iteration on matrices, to the same result."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from suffice import solve
from suffice.lower.together import fista_together, share_a_design
from suffice.problems import ElasticNet, ElasticNetLogistic

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 9))
labels = rng.integers(0, 3, 60)


def problems(kind=np.asarray, l1=0.02, l2=0.05):
    design = ElasticNetLogistic(kind(X), labels == 0).design
    return [ElasticNetLogistic(design, labels == digit).at(l1=l1, l2=l2) for digit in range(3)]


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("steps", [1, 2, 40])
def test_together_is_the_same_as_one_by_one(kind, steps):
    for together, alone in zip(
        fista_together(problems(kind), steps), (solve(one, steps=steps) for one in problems(kind)), strict=True
    ):
        np.testing.assert_allclose(together.x, alone.x, rtol=1e-10, atol=1e-13)
        assert together.certificate.radius == pytest.approx(alone.certificate.radius, rel=1e-6)
        assert (together.steps, together.outcome) == (alone.steps, alone.outcome)


def test_certificates_hold():
    for together, one in zip(fista_together(problems(), 30), problems(), strict=True):
        exact = solve(one, within=1e-11)
        assert np.linalg.norm(together.x - exact.x) <= together.certificate.radius + 1e-11


def test_a_solution_made_together_can_be_continued_alone():
    shared = problems()
    together, one = fista_together(shared, 10)[1], shared[1]
    continued = solve(one, steps=15, warm=together)
    np.testing.assert_allclose(continued.x, solve(one, steps=25).x, rtol=1e-10, atol=1e-13)
    assert continued.steps == 25


def test_only_problems_that_differ_in_their_targets_alone_go_together():
    first, second, _ = problems()
    assert share_a_design([first, second])
    assert not share_a_design([first])
    assert not share_a_design([first, problems(l1=0.03)[1]])
    assert not share_a_design([first, ElasticNetLogistic(X, labels == 1).at(l1=0.02, l2=0.05)])
    assert not share_a_design([ElasticNet(first.smooth.design, labels).at(l1=0.02, l2=0.05), second])
