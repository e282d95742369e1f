"""A vanishing gradient of the model is not yet a minimum: where the model is flat, the search looks before it ends."""

import json

import numpy as np
import pytest

from suffice import Evaluation, Options, Status, Tuner, exact, tune
from suffice.search.looks import across, along_flat

SADDLES = {
    "product": (lambda x: np.array([x[0] * x[1] - 0.25]), [0.0, 0.0]),
    "product, one slope": (lambda x: np.array([x[0] * x[1] - 0.25, 0.1 * (x[0] - x[1])]), [0.0, 0.0]),
    "two products": (lambda x: np.array([x[0] * x[1] + x[2] * x[3] - 1.0]), [0.0] * 4),
    "product and a fit": (lambda x: np.array([x[0] * x[1] - 0.25, x[2] - 0.3, x[2] + 0.1]), [0.0, 0.0, 0.5]),
}


@pytest.mark.parametrize("model", ["competing", "linear"])
@pytest.mark.parametrize("name", SADDLES)
def test_saddles_that_the_axes_do_not_show_are_left(name, model):
    fun, theta0 = SADDLES[name]
    result = tune(exact(fun), theta0, options=Options(model=model))
    assert result.status is Status.CONVERGED
    least = 0.08 if name == "product and a fit" else 0.0
    assert result.cost <= least + 1e-8
    assert any(record.purpose == "unseen direction" for record in result.history)


def test_a_saddle_is_left_on_proof_only():
    """An oracle with errors: what is accepted along an unseen direction is proven to be less."""

    class Rough:
        def evaluate(self, theta, *, within, warm=None):
            r = np.array([theta[0] * theta[1] - 0.25])
            return Evaluation(theta, r + 0.5 * within, np.full(1, within), work=1)

    result = tune(Rough(), [0.0, 0.0])
    looks = [record for record in result.history if record.purpose == "unseen direction"]
    assert looks and result.interval[1] < 1e-6
    assert result.interval[0] <= float((result.theta[0] * result.theta[1] - 0.25) ** 2) <= result.interval[1]


def test_what_the_looks_cost_is_bounded_by_the_flat_directions():
    """A plateau: nothing is gained anywhere, and every flat direction is looked at once."""
    m = 5
    result = tune(exact(lambda x: np.array([1.0, x[0]])), np.zeros(m))
    looks = [record for record in result.history if record.purpose == "unseen direction"]
    assert result.status is Status.CONVERGED
    assert len(looks) == m - 1


def test_where_the_model_has_slopes_in_all_directions_nothing_more_is_evaluated():
    A, b = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]]), np.array([1.0, 0.5, 2.0])
    result = tune(exact(lambda x: A @ x - b), [3.0, 4.0])
    assert not any(record.purpose == "unseen direction" for record in result.history)


def test_unseen_points_lie_in_the_box_and_a_basis_cannot_miss_a_traceless_curvature():
    B = np.array([[0.0, 1.0, 0.3], [1.0, 0.0, -2.0], [0.3, -2.0, 0.0]])
    u = np.array([0.0, 0.5, 1.0])
    points = along_flat(u, np.zeros((3, 3)), 1.0, 0.1, np.zeros(3), np.ones(3))
    assert all((point >= 0.0).all() and (point <= 1.0).all() for point in points)
    free = along_flat(u, np.zeros((3, 3)), 1.0, 0.1, np.full(3, -np.inf), np.full(3, np.inf))
    assert min((point - u) @ B @ (point - u) for point in free) < 0.0
    assert along_flat(u, np.eye(3), 1.0, 0.1, np.zeros(3), np.ones(3)) == []


def test_a_run_that_looks_continues_from_its_state_to_the_same_bits():
    def run(store):
        tuner = Tuner([0.0] * 4)
        while not tuner.done:
            if store:
                tuner = Tuner.from_state(json.loads(json.dumps(tuner.state(), allow_nan=False)))
            request = tuner.ask()
            tuner.tell(exact(SADDLES["two products"][0]).evaluate(request.theta, within=request.within))
        return tuner

    assert run(False).history == run(True).history


def slope_down_there(x):
    """Constant but for x0 < -2, from where it falls to its least value, for x0 <= -3 and x1 = 1."""
    depth = min(max(0.0, -2.0 - x[0]), 1.0)
    return np.array([2.0 - 2.0 * depth, depth * (x[1] - 1.0)])


def slopes_down_there(x):
    depth, inside = min(max(0.0, -2.0 - x[0]), 1.0), float(-3.0 < x[0] < -2.0)
    return np.array([[2.0 * inside, 0.0], [-inside * (x[1] - 1.0), depth]])


@pytest.mark.parametrize("derivatives", ["never", "auto"])
@pytest.mark.parametrize("start", [(0.0, 0.0), (-1.5, 3.0), (3.9, 0.5)])
def test_a_search_that_begins_on_a_plateau_looks_across_the_box_and_leaves_it(start, derivatives):
    objective = exact(slope_down_there, slopes_down_there)
    result = tune(objective, start, bounds=([-4.0] * 2, [4.0] * 2), options=Options(derivatives=derivatives))
    assert result.cost < 1e-6
    assert result.theta[0] < -2.99 and abs(result.theta[1] - 1.0) < 1e-2


def test_a_plateau_without_end_costs_no_more_than_looks_across_the_box():
    m = 3
    plateau, bounds = exact(lambda x: np.array([1.0, 2.0])), ([-4.0] * m, [4.0] * m)
    result, free = tune(plateau, np.zeros(m), bounds=bounds), tune(plateau, np.zeros(m))
    assert result.status is Status.CONVERGED and result.cost == 5.0
    assert result.evaluations <= free.evaluations + 4 * (m + 1) + m  # across, and the bounds at the end


def test_values_that_are_errors_for_the_most_part_are_no_plateau():
    """F~ is constant because the oracle cannot do better: nothing is looked for across the box, nothing is found."""

    class Blurred:
        def evaluate(self, theta, *, within, warm=None):
            return Evaluation(theta, [1.0, 1.0], [max(within, 0.5)] * 2)

    result = tune(Blurred(), [-0.5, 0.8], bounds=(-1, 1), options=Options(max_evaluations=200))
    early = [record for record in result.history if record.purpose == "unseen direction" and record.delta > 1e-5]
    assert not early and not result.success


def test_a_jacobian_that_is_wrongly_zero_is_found_out():
    """No model and no look across the box tells anything better: derivatives are tested before the search ends."""
    objective = exact(lambda x: np.array([1.0 + np.sum((x - 0.1) ** 2)]), lambda x: np.zeros((1, 2)))
    result = tune(objective, [0.0, 0.0], bounds=([-4.0] * 2, [4.0] * 2))
    np.testing.assert_allclose(result.theta, [0.1, 0.1], atol=1e-3)


def test_points_across_the_box_are_in_it_and_parameters_without_bounds_stay():
    lower, upper = np.array([0.0, -np.inf, 0.0]), np.array([1.0, np.inf, 1.0])
    u = np.array([0.1, 7.0, 0.5])
    points = across(u, lower, upper)
    assert points and all((point >= lower).all() and (point <= upper).all() and point[1] == 7.0 for point in points)
    assert any(point[0] == 1.0 and point[2] == 0.5 for point in points)
    assert across(u, np.full(3, -np.inf), np.full(3, np.inf)) == []
