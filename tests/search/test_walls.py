"""Where residuals are infinite, NaN or overflow, there is no F: the search goes around, and nothing of it enters a
model."""

import json
import math

import numpy as np
import pytest
from scipy.optimize import least_squares

from suffice import Evaluation, Options, Status, Tuner, exact, tune
from suffice.search.geometry import SHORTENINGS, elsewhere

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def logarithm(theta):
    """Defined for positive theta only; the minimiser is near (0.05, 2)."""
    return np.array([np.log(theta[0]) + 3.0, 2.0 * (theta[1] - 2.0), 0.3 * theta[0] * theta[1]])


def overflowing(theta):
    """exp(exp) overflows soon; the minimiser is next to where it does."""
    return np.array([1e-140 * np.exp(np.exp(theta[0])) + theta[0] - 9.0, theta[0] - 9.0 + theta[1], theta[1] - 1.0])


def disc(theta):
    """NaN outside of the unit disc, with the minimiser inside, close to the rim."""
    return np.array(
        [5.0 * (theta[1] - np.sin(2.0 * theta[0]) + 0.3), theta[0] - 0.7, 0.1 / np.sqrt(1.0 - theta @ theta)]
    )


def wall(theta):
    """A wall across the straight way from the start to the minimiser, with a gap."""
    inside = abs(theta[0]) < 0.05 and theta[1] < 0.6
    return np.full(3, np.nan) if inside else np.array([theta[0] - 1.0, theta[1] - 0.4, 0.5 * theta[0] * theta[1]])


def crossed(theta):
    """Infinite in three quadrants around the start's neighbourhood."""
    ahead = theta[0] > 0.5 or theta[1] > 0.5
    return np.array([np.inf, 1.0]) if ahead else np.array([theta[0] + 1.0, 2.0 * theta[1] + theta[0] ** 2])


CASES = [
    pytest.param(logarithm, [2.0, 0.0], id="logarithm"),
    pytest.param(overflowing, [0.0, 0.0], id="overflow"),
    pytest.param(disc, [-0.5, 0.1], id="disc"),
    pytest.param(crossed, [0.5, 0.5], id="first points"),
]


def finite(fun):
    def safe(theta):
        r = fun(theta)
        return r if np.isfinite(r).all() and r @ r < 1e300 else np.full(len(r), 1e6)

    return safe


@pytest.mark.parametrize("model", ["competing", "linear"])
@pytest.mark.parametrize(("fun", "theta0"), CASES)
def test_the_minimiser_is_found_next_to_places_without_residuals(fun, theta0, model):
    result = tune(exact(fun), theta0, options=Options(max_evaluations=300, model=model, initial_radius=0.5))
    assert result.status in (Status.CONVERGED, Status.TARGET)  # at a residual of exactly 0 there is nothing left to do
    failed = [record for record in result.history if record.note]
    assert failed  # or the test says nothing
    reference = least_squares(finite(fun), result.theta, xtol=1e-14, ftol=1e-14, gtol=1e-14)
    assert result.cost <= 2.0 * reference.cost * (1 + 1e-6) + 1e-12


def test_a_wall_on_the_way_stops_no_run():
    result = tune(exact(wall), [-1.0, 0.0], options=Options(max_evaluations=200))
    assert result.success
    assert result.cost < 2.0
    assert all(math.isinf(record.cost) == bool(record.note) for record in result.history)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize("n", [2, 3, 5, 9])
def test_a_failed_point_is_recorded_and_never_becomes_part_of_the_state(bad, n):
    tuner, count = Tuner([0.9, 0.1], bounds=(0, 1), options=Options(max_evaluations=40)), 0
    while not tuner.done:
        request = tuner.ask()
        count += 1
        x, y = request.theta
        r = np.array([x - 0.3 + 0.5 * (y - 0.6) ** 2, 2.0 * (y - 0.6), 0.1 * x])
        e = np.zeros(3)
        before = tuner.search.strategy
        record = tuner.tell(Evaluation(request.theta, [bad, *r[1:]] if count == n else r, e, work=1))
        if count == n:
            assert math.isinf(record.cost) and record.interval == (0.0, math.inf)
            assert "finite" in record.note or "overflows" in record.note
            assert record.work == 1 and tuner.search.ledger.work == count
            if record.purpose == "step":
                assert record.verdict == "rejected"
                assert tuner.search.strategy.delta < before.delta
        assert all(
            np.isfinite(p.evaluation.r).all() for p in (*tuner.search.strategy.points, *tuner.search.strategy.pool)
        )
    result = tuner.result()
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.theta, [0.2772, 0.5994], atol=3e-2)


def test_a_failed_refinement_keeps_what_was_known():
    """The oracle breaks whenever it is to continue: the first looks are all there is."""

    class Brittle:
        def evaluate(self, theta, *, within, warm=None):
            again = warm is not None and np.array_equal(warm.point, theta)
            r = np.array([theta[0] - 0.3, theta[1] + 0.2, 1.0])
            return Evaluation(theta, r * np.nan if again else r + within, np.full(3, within), work=1)

    result = tune(Brittle(), [0.9, 0.1], bounds=(-1, 1), options=Options(max_evaluations=100))
    assert any(record.purpose.startswith("refine") and record.note for record in result.history)
    F = float((result.theta[0] - 0.3) ** 2 + (result.theta[1] + 0.2) ** 2 + 1.0)
    assert result.interval[0] <= F <= result.interval[1]


def test_an_island_of_one_point_ends_the_run_after_a_documented_number_of_points():
    def island(theta):
        return theta if np.array_equal(theta, [0.3, 0.4]) else theta * np.nan

    result = tune(exact(island), [0.3, 0.4], bounds=(0, 1))
    assert result.status is Status.NOT_FINITE
    assert not result.success
    assert result.theta.tolist() == [0.3, 0.4]
    assert result.evaluations == 1 + 2 * (SHORTENINGS + 1)


def test_other_points_lie_on_the_line_through_the_centre_and_inside_the_bounds():
    centre, u = np.array([0.5, 0.0]), np.array([0.9, 0.1])
    low, high = np.zeros(2), np.ones(2)
    found = elsewhere(centre, u, low, high)
    assert found[0] is u
    assert all(
        (point >= low).all() and (point <= high).all() and norm > 0
        for point in found
        for norm in [np.linalg.norm(point - centre)]
    )
    lengths = [np.linalg.norm(point - centre) for point in found[1:]]
    assert min(lengths) == pytest.approx(np.linalg.norm(u - centre) * 4.0**-SHORTENINGS, rel=0.05)
    assert elsewhere(np.zeros(1), np.ones(1), np.zeros(1), np.ones(1))[1][0] == 0.25  # nothing behind a bound


def test_a_run_that_goes_around_a_wall_continues_from_its_state_to_the_same_bits():
    def run(store):
        tuner = Tuner([2.0, 0.0], options=Options(max_evaluations=80, initial_radius=0.5))
        while not tuner.done:
            if store:
                tuner = Tuner.from_state(json.loads(json.dumps(tuner.state(), allow_nan=False)))
            request = tuner.ask()
            tuner.tell(exact(logarithm).evaluate(request.theta, within=request.within))
        return tuner

    whole, pieces = run(False), run(True)
    assert any(record.note for record in whole.history)
    assert whole.history == pieces.history
    assert whole.result().theta.tobytes() == pieces.result().theta.tobytes()
