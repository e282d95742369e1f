"""Verdicts follow from proven intervals only: no errors inside them can make a verdict wrong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice import Evaluation, Options
from suffice.result import Purpose
from suffice.search.accuracy import DECISION_ERROR, ETA1
from suffice.search.judge import SEVERAL, answered, askable, exhausted, judge, next_radius, next_rho
from suffice.search.state import Ledger, Pending, Scaling, Setting, Verdict
from tests.conftest import examples


def at(F, error=0.0):
    """An evaluation of one residual with F~ = F and |F~ - F| <= error, to first order."""
    r = np.sqrt(F)
    return Evaluation([0.0], [r], [np.sqrt(F + error) - r])


@pytest.mark.parametrize(
    ("current", "trial", "expected"),
    [
        (at(2.0), at(1.0), Verdict.ACCEPTED),
        (at(2.0), at(1.9), Verdict.ACCEPTED),  # exactly eta1
        (at(2.0), at(1.91), Verdict.REJECTED),
        (at(2.0), at(3.0), Verdict.REJECTED),
        (at(2.0, 0.03), at(1.88, 0.03), Verdict.ACCEPTED),  # errors small enough: the ratio decides
        (at(2.0, 0.03), at(1.92, 0.03), Verdict.REJECTED),
        (at(2.0, 0.05), at(1.88, 0.03), Verdict.OPEN),  # one of them is not: it might be 0.04
        (at(2.0, 0.03), at(1.88, 0.05), Verdict.OPEN),
        (at(2.0, 0.05), at(1.92, 0.03), Verdict.OPEN),
        (at(2.0, 0.2), at(1.88, 0.03), Verdict.OPEN),
        (at(2.0, 0.03), at(1.88, 0.2), Verdict.OPEN),
        (at(2.0, 0.4), at(1.0, 0.4), Verdict.ACCEPTED),  # large errors, and certain all the same
        (at(2.0, 0.4), at(3.0, 0.4), Verdict.REJECTED),
        (at(2.0, np.inf), at(1.0), Verdict.OPEN),
        (at(2.0), at(1.0, np.inf), Verdict.OPEN),
    ],
)
def test_verdicts_on_a_step_that_promised_one(current, trial, expected):
    verdict, ratio = judge(current, trial, 1.0)
    assert verdict is expected
    assert ratio == pytest.approx(current.cost - trial.cost)


@examples(500)
@given(
    st.floats(0.0, 3.0),
    st.floats(-0.5, 1.5),
    st.floats(0.0, 0.3),
    st.floats(0.0, 0.3),
    st.floats(-6.0, 0.0),
)
def test_no_errors_within_their_bounds_make_a_verdict_wrong(F, ratio, share, new_share, exponent):
    """Accepted: F truly falls by (eta1 - 2 eta1') pred. Rejected: it does not fall by (eta1 + 2 eta1') pred.

    Both for the worst true costs in the intervals; ratios and errors are in units of the prediction."""
    predicted = 10.0**exponent
    current, trial = at(F + 2.0, share * predicted), at(F + 2.0 - ratio * predicted, new_share * predicted)
    verdict, _ = judge(current, trial, predicted)
    rounding = 1e-14 * (F + 2.0)
    if verdict is Verdict.ACCEPTED:
        assert current.interval[0] - trial.interval[1] >= (ETA1 - 2 * DECISION_ERROR) * predicted - rounding
    if verdict is Verdict.REJECTED:
        assert current.interval[1] - trial.interval[0] <= (ETA1 + 2 * DECISION_ERROR) * predicted + rounding


@examples(200)
@given(st.floats(0.5, 2.0), st.floats(0.5, 2.0), st.floats(1e-3, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_errors_within_the_decision_s_tolerance_always_decide(F, F_new, predicted, share, share_new):
    tolerance = (1 - 1e-9) * DECISION_ERROR * predicted
    verdict, ratio = judge(at(F, share * tolerance), at(F_new, share_new * tolerance), predicted)
    assert verdict is (Verdict.ACCEPTED if ratio >= ETA1 else Verdict.REJECTED)


@pytest.mark.parametrize(
    ("ratio", "step", "delta", "expected"),
    [
        (-3.0, 1.0, 1.0, 0.5),  # a failure: half the radius
        (0.05, 0.3, 1.0, 0.3),  # or the step, if that is shorter
        (0.4, 0.3, 1.0, 0.5),  # a success: the radius may shrink towards the step
        (0.4, 0.8, 1.0, 0.8),
        (0.9, 0.3, 1.0, 2.0),  # a great one: it grows
        (0.9, 0.8, 1.0, 3.2),
        (0.05, 0.02, 1.0, 0.1),  # never below rho
        (0.05, 0.5, 0.29, 0.1),  # and not hardly above it
    ],
)
def test_the_radius_follows_the_ratio(ratio, step, delta, expected):
    assert next_radius(ratio, step, delta, 0.1) == pytest.approx(expected)


@examples(100)
@given(st.floats(-5, 5), st.floats(0.0, 1.0), st.floats(1.0, 100.0), st.floats(1e-9, 1.0))
def test_the_radius_never_falls_below_rho(ratio, share, multiple, rho):
    delta = multiple * rho
    assert next_radius(ratio, share * delta, delta, rho) >= rho


@pytest.mark.parametrize(
    ("rho", "final", "expected"),
    [(1.0, 1e-5, 0.1), (16e-5, 1e-5, 1e-5), (100e-5, 1e-5, 1e-4), (2e-5, 1e-5, 1e-5), (1e-5, 1e-5, 1e-5)],
)
def test_rho_falls_fast_and_ends_at_its_final_value(rho, final, expected):
    assert next_rho(rho, final) == pytest.approx(expected)


@examples(100)
@given(st.floats(1e-12, 1.0), st.floats(1.0, 1e10))
def test_rho_reaches_its_final_value_exactly_and_soon(final, ratio):
    rho, reductions = final * ratio, 0
    while rho > final:
        smaller = next_rho(rho, final)
        assert final <= smaller < rho
        rho, reductions = smaller, reductions + 1
    assert rho == final
    assert reductions <= 3 + np.log10(ratio)


# The oracle's limit: what it has shown it cannot give is not asked for again.


SCALING, WITHIN = Scaling.of(np.zeros(1), (-1.0, 1.0)), 1e-6


def after(floors=()):
    return Setting(SCALING, Options(), ledger=Ledger(np.zeros(1), floors=floors))


def asked(error, floors=(), refines=None):
    """The floors and the point after an evaluation with this error, and whether there is no point in asking again."""
    pending = Pending(Purpose.STEP, np.zeros(1), WITHIN, refines=refines)
    floors, point = answered(pending, Evaluation(np.zeros(1), [1.0], [error]), floors, Options())
    return floors, point, exhausted(point, after(floors))


def stuck(times, error=1e-3):
    """The floors after `times` points whose refinement came to nothing."""
    floors = ()
    for _ in range(times):
        floors, point, exhausted = asked(error, floors)
        if not exhausted:
            floors, point, exhausted = asked(error, floors, point)
        assert exhausted
    return floors


def test_a_point_that_misses_may_be_refined_once_and_not_twice():
    floors, point, exhausted = asked(1e-3)
    assert not exhausted
    assert asked(1e-3, floors, point)[2]


def test_a_refinement_that_comes_to_something_is_no_floor():
    floors, point, _ = asked(1e-3)
    floors, point, exhausted = asked(1e-7, floors, point)
    assert point.evaluation.e.tolist() == [1e-7]
    assert floors == () and not exhausted


def test_floors_at_several_points_are_the_oracle_s_limit_and_bound_every_request():
    assert askable(1e-9, after(stuck(1))) == 1e-9
    floors = stuck(SEVERAL)
    assert askable(1e-9, after(floors)) == min(floors) and askable(1.0, after(floors)) == 1.0
