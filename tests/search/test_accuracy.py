"""How accurate is enough: what is requested suffices for the demand it was made for, in any units."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice import Evaluation, Options
from suffice.search.accuracy import achieved, by_policy, came_to_nothing, for_decision, for_model, refinement
from tests.conftest import examples

RESIDUAL, WEIGHTS = Options(), Options(policy="weights")

residuals = st.lists(st.floats(-100.0, 100.0), min_size=1, max_size=6)


def known(r, e=1e-3, distance=None):
    return Evaluation([0.0], r, np.full(len(r), e), distance=distance)


@examples(200)
@given(residuals, st.floats(-8.0, 3.0))
def test_errors_as_large_as_requested_meet_the_demand_and_hardly_more(r, exponent):
    T = 10.0**exponent
    within = for_decision(T, known(r))
    assert within > 0.0
    assert known(r, within).error <= T * (1 + 1e-9) + 1e-12 * sum(x * x for x in r)
    assert known(r, 1.01 * within).error >= T


def test_residuals_known_exactly_leave_the_whole_allowance_to_the_others():
    r = np.array([1.0, 2.0, 50.0])
    e = np.array([0.1, 0.1, 0.0])
    T = 0.3
    within = for_decision(T, Evaluation([0.0], r, e))
    assert within == pytest.approx(for_decision(T, known(r[:2])))
    assert Evaluation([0.0], r, np.where(e > 0, within, 0.0)).error == pytest.approx(T)


@pytest.mark.parametrize("T", [1e-300, 1e-12, 1.0, 1e12])
@pytest.mark.parametrize("r", [[0.0], [0.0, 0.0], [1e-8, 0.0], [1e8]])
def test_requests_are_positive_and_finite_whatever_the_residuals(r, T):
    within = for_decision(T, known(r))
    assert 0.0 < within < math.inf
    assert for_model(0.1, known(r), RESIDUAL) > 0.0


@given(residuals.filter(lambda r: max(map(abs, r)) > 1e-3), st.integers(-30, 30), st.floats(1e-6, 1.0))
def test_requests_scale_with_the_residuals(r, k, delta):
    """In units in which residuals are a times larger, requests are a times larger and F's demands a^2 times."""
    a, one, other = 2.0**k, known(r), known(2.0**k * np.array(r))
    assert for_model(delta, other, RESIDUAL) == pytest.approx(a * for_model(delta, one, RESIDUAL), rel=1e-12)
    T = 0.1 * one.cost
    assert for_decision(a * a * T, other) == pytest.approx(a * for_decision(T, one), rel=1e-12)


@pytest.mark.parametrize("options", [RESIDUAL, WEIGHTS], ids=lambda options: options.policy)
@pytest.mark.parametrize("evaluation", [None, known([1.0, 2.0], 1e-3, 1e-3)], ids=["first", "later"])
def test_models_need_accuracy_of_the_order_of_the_squared_radius(options, evaluation):
    coarse, fine = (for_model(delta, evaluation, options) for delta in (0.1, 0.01))
    assert coarse == pytest.approx(100.0 * fine)
    stricter = Options(policy=options.policy, accuracy_factor=options.accuracy_factor / 2)
    assert for_model(0.1, evaluation, stricter) == pytest.approx(coarse / 2)


def test_the_paper_s_rule_asks_for_c_delta_squared_of_the_weights_themselves():
    options = Options(policy="weights", accuracy_factor=100.0)
    assert for_model(0.01, known([5.0], 1e-3, 1e-3), options) == pytest.approx(100.0 * 0.01**2)


def test_under_the_paper_s_rule_the_distance_of_the_weights_stands_for_the_errors():
    evaluation = Evaluation([0.0], [1.0, 2.0], [1e-3, 0.0], distance=0.5)
    assert by_policy(evaluation, WEIGHTS).e.tolist() == [0.5, 0.0]  # what is known exactly stays so
    assert by_policy(evaluation, RESIDUAL).e.tolist() == [1e-3, 0.0]


@examples(100)
@given(residuals, st.floats(-6.0, 1.0), st.floats(-6.0, 1.0))
def test_refinements_meet_the_demand_and_never_ask_for_what_is_there_already(r, exponent, error_exponent):
    T, evaluation = 10.0**exponent, known(r, 10.0**error_exponent)
    within = refinement(evaluation, T, RESIDUAL)
    assert 0.0 < within < evaluation.e.max()
    assert known(r, within).error <= T * (1 + 1e-9) + 1e-12 * evaluation.cost


@pytest.mark.parametrize(
    ("errors", "distance", "options", "expected"),
    [
        ([1e-3, 0.0], None, RESIDUAL, 1e-3),
        ([0.0, 2e-3], 7.0, RESIDUAL, 2e-3),
        ([0.0, 0.0], None, RESIDUAL, 0.0),
        ([0.0, 2e-3], 1e-4, WEIGHTS, 1e-4),
    ],
)
def test_achievements_are_measured_in_the_units_of_requests(errors, distance, options, expected):
    assert achieved(Evaluation([0.0], [1.0, 1.0], errors, distance=distance), options) == expected


@pytest.mark.parametrize(
    ("before", "after", "within", "expected"),
    [
        (1e-2, 1e-4, 1e-4, False),  # the request was met
        (1e-2, 5e-3, 1e-4, False),  # missed, but there was progress
        (1e-2, 1e-2, 1e-4, True),  # no progress
        (1e-2, 2e-2, 1e-4, True),
        (math.inf, math.inf, 1e-4, True),
    ],
)
def test_a_refinement_comes_to_nothing_when_it_misses_without_progress(before, after, within, expected):
    assert came_to_nothing(known([1.0, 2.0], before), known([1.0, 2.0], after), within, RESIDUAL) is expected
