"""Where a new evaluation starts: the interpolant of the weights where it helps, the nearest ones elsewhere."""

from dataclasses import dataclass

import numpy as np

from suffice import Evaluation
from suffice.search.state import Sample
from suffice.search.warm import warm_start


@dataclass(frozen=True)
class Weights:
    x: np.ndarray

    def start_at(self, x):
        return Weights(x)


A, B = np.array([[1.0, 2.0], [-1.0, 0.5], [3.0, 0.0]]), np.array([0.1, -0.2, 0.3])


def at(u):
    u = np.array(u, dtype=float)
    return Sample(u, Evaluation(u, [1.0], [0.0], solutions=[Weights(A @ u + B)]))


POINTS = [at([0.0, 0.0]), at([0.1, 0.0]), at([0.0, 0.1])]


def test_weights_that_are_linear_in_theta_are_met_exactly():
    u = np.array([0.08, -0.05])
    warm = warm_start(u, POINTS, 0, [])
    np.testing.assert_allclose(warm.solutions[0].x, A @ u + B, atol=1e-14)


def test_far_from_the_model_the_nearest_weights_are_taken_as_they_are():
    old = at([2.0, 2.0])
    assert warm_start(np.array([2.1, 2.0]), POINTS, 0, [old]) is old.evaluation


def test_a_point_that_was_evaluated_starts_from_its_own_weights():
    assert warm_start(POINTS[1].u, POINTS, 0, []) is POINTS[1].evaluation


def test_there_is_no_start_before_the_first_evaluation_and_no_blend_before_the_model_is_complete():
    assert warm_start(np.zeros(2), [], 0, []) is None
    assert warm_start(np.array([0.09, 0.0]), POINTS[:2], 0, []) is POINTS[1].evaluation


def test_what_cannot_be_blended_is_not():
    plain = [Sample(one.u, Evaluation(one.u, [1.0], [0.0], solutions=["text"])) for one in POINTS]
    assert warm_start(np.array([0.09, 0.0]), plain, 0, []) is plain[1].evaluation


def test_weights_that_are_zero_nearby_start_at_zero():
    """A blend has all the weights that any of the points has, and a solver on the support pays for each of them."""
    weights = [np.array(x) for x in ([1.0, 0.0, 2.0], [1.5, 0.0, 0.0], [0.5, 3.0, 2.0])]
    sparse = [
        Sample(one.u, Evaluation(one.u, [1.0], [0.0], solutions=[Weights(x)]))
        for one, x in zip(POINTS, weights, strict=True)
    ]
    warm = warm_start(np.array([0.08, 0.01]), sparse, 0, [])
    np.testing.assert_allclose(warm.solutions[0].x, [1.35, 0.0, 0.0])
