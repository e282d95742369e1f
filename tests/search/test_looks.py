"""Plateaus and edges: where a model of what is nearby does not tell what there is to gain."""

import json
from dataclasses import replace

import numpy as np
import pytest

from suffice import Evaluation, Options, Status, Tuner, exact, tune
from suffice.search.looks import across


class Objective:
    """Residuals with tiny errors; the last ones are known exactly."""

    def __init__(self, fun, exact=0):
        self.fun, self.exact = fun, exact

    def evaluate(self, theta, *, within, warm=None):
        r = np.asarray(self.fun(theta), dtype=np.float64)
        errors = np.where(np.arange(len(r)) < len(r) - self.exact, 1e-14, 0.0)
        return Evaluation(theta, r, errors, work=1)


def drawn_away(theta):
    """Nothing that has to be computed depends on theta beyond theta_0 = 0, and a known term falls there for ever."""
    well = 1.5 * np.exp(-0.5 * (theta[0] + 3.0) ** 2) if theta[0] < 0.0 else 0.0
    return np.array([2.0 - well, 1.0, 0.1 * 10.0 ** (-0.25 * theta[0])])


def test_a_search_that_a_known_term_draws_along_a_plateau_looks_across_the_box():
    result = tune(Objective(drawn_away, exact=1), [0.5, 0.0], bounds=(-8.0, 8.0))
    assert any(record.purpose == "unseen direction" for record in result.history)
    assert result.theta[0] == pytest.approx(-3.0, abs=0.5)


def test_what_is_still_on_the_plateau_is_not_gone_to():
    """F is less further up, too, but by the known term alone; the well is found by the look after that."""

    def half(theta):
        return drawn_away(theta if theta[1] > -2.0 else np.abs(theta))

    result = tune(Objective(half, exact=1), [0.5, 0.0], bounds=(-8.0, 8.0))
    assert result.theta[0] == pytest.approx(-3.0, abs=0.5)
    looks = [record for record in result.history if record.purpose == "unseen direction"]
    on_it = [record for record in looks if record.theta[0] > 0.0 and record.cost < looks[0].incumbent_cost]
    assert on_it and all(record.incumbent != record.theta for record in on_it)


def test_a_search_without_failures_does_not_look_around():
    result = tune(Objective(lambda theta: [theta[0] - 1.0, theta[1] + 2.0, 3.0]), [4.0, 4.0], bounds=(-8.0, 8.0))
    looks = [record.theta for record in result.history if record.purpose == "unseen direction"]
    assert all(np.max(np.abs(theta)) == 8.0 for theta in looks)  # but for the edges of the box


def test_no_look_is_wasted_where_f_is_known_beforehand_to_be_larger():
    class Known(Objective):
        def lower_bound(self, theta):
            return float(self.fun(theta)[-1] ** 2)

    def steep(theta):
        return np.append(drawn_away(theta)[:2], 10.0 ** (-0.25 * theta[0] - 2.0) * (1.0 + 100.0 * (theta[0] < -6.0)))

    result = tune(Known(steep, exact=1), [0.5, 0.0], bounds=(-8.0, 8.0), options=Options())
    looks = [record for record in result.history if record.purpose == "unseen direction"]
    assert looks and all(record.theta[0] >= -6.0 for record in looks)


def two_wells(theta):
    """F has a minimum of 1 near (0, 0); beyond a ridge it falls to 0.25 at the lower bound of theta_0."""
    well = 1.0 - 0.5 / (1.0 + np.exp(4.0 * (theta[0] + 5.0)))
    hill = 3.0 * np.exp(-0.5 * (theta[0] + 2.5) ** 2) - 3.0 * np.exp(-0.5 * 2.5**2)
    return np.array([well + max(hill, 0.0) + 0.02 * theta[0] ** 2 * (theta[0] > -2.5), 0.2 * theta[1]])


@pytest.mark.parametrize("derivatives", ["never", "auto"])
def test_a_search_that_has_come_to_rest_looks_at_the_edges_of_the_box(derivatives):
    result = tune(Objective(two_wells), [0.5, 0.3], bounds=(-8.0, 9.0), options=Options(derivatives=derivatives))
    assert result.theta[0] == pytest.approx(-8.0, abs=1.0)
    assert result.cost < 0.3


class Smooth(Objective):
    """With derivatives, by differences; it counts them."""

    made = 0

    def differentiate(self, evaluation):
        self.made += 1
        steps = 1e-6 * np.eye(2)
        columns = [(self.fun(evaluation.point + h) - self.fun(evaluation.point - h)) / 2e-6 for h in steps]
        return replace(evaluation, jacobian=np.column_stack(columns))


def test_a_look_comes_with_derivatives_only_where_the_search_goes_on_from_it():
    in_vain = Smooth(lambda theta: 1.0 + 0.1 * (theta - 0.1) ** 2)
    result = tune(in_vain, [0.5, 0.3], bounds=(-8.0, 8.0))
    plain = [record for record in result.history if record.purpose in ("unseen direction", "test of derivatives")]
    assert len(plain) >= 3 and in_vain.made <= len(result.history) - len(plain)
    found = tune(Smooth(two_wells), [0.5, 0.3], bounds=(-8.0, 9.0), options=Options(derivatives="always"))
    assert found.cost < 0.3
    after = [record.purpose for record in found.history]
    assert "step" in after[after.index("unseen direction") + 1 :]  # with the derivatives of the look


def test_edges_are_looked_at_once_where_nothing_is_gained_there():
    result = tune(Objective(lambda theta: 1.0 + 0.1 * theta**2), [0.5, 0.3], bounds=(-8.0, 8.0))
    looks = [record.theta for record in result.history if record.purpose == "unseen direction"]
    edges = [theta for theta in looks if np.max(np.abs(theta)) == 8.0]
    assert len(edges) == 2


def test_edges_are_not_looked_at_where_evaluations_are_dear():
    class Dear(Objective):
        def evaluate(self, theta, *, within, warm=None):
            return replace(super().evaluate(theta, within=within, warm=warm), work=1e4)

    result = tune(Dear(two_wells), [0.5, 0.3], bounds=(-8.0, 8.0))
    assert all(abs(record.theta[0]) < 8.0 for record in result.history)


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


def test_a_run_that_looks_continues_from_its_state_to_the_same_bits():
    def run(store):
        tuner = Tuner([0.0, 0.0], bounds=([-4.0] * 2, [4.0] * 2))
        while not tuner.done:
            if store:
                tuner = Tuner.from_state(json.loads(json.dumps(tuner.state(), allow_nan=False)))
            request = tuner.ask()
            tuner.tell(exact(slope_down_there).evaluate(request.theta, within=request.within))
        return tuner

    assert run(False).history == run(True).history
    assert any(record.purpose == "unseen direction" for record in run(False).history)
