"""The oracle's limit: what it has shown it cannot give is not asked for again."""

import numpy as np

from suffice import Evaluation, Options
from suffice.search import limit
from suffice.search.scaling import Scaling
from suffice.search.state import Point, Setting, State

SETTING = Setting(Scaling.of(np.zeros(1), (-1.0, 1.0)), Options())


def point(error, residual=1.0):
    return Point(np.zeros(1), Evaluation(np.zeros(1), [residual], [error]))


def stuck(times, error=1e-3):
    """A state after `times` points whose refinement came to nothing."""
    state = State(0.1, 0.1, ())
    for _ in range(times):
        state, seen = limit.first_seen(state, point(error), 1e-6, SETTING)
        if not limit.exhausted(seen, state, SETTING.options):
            state, seen = limit.refined(state, seen, point(error), 1e-6, SETTING)
        assert limit.exhausted(seen, state, SETTING.options)
    return state


def test_a_point_that_misses_may_be_refined_once_and_not_twice():
    state, seen = limit.first_seen(State(0.1, 0.1, ()), point(1e-3), 1e-6, SETTING)
    assert not limit.exhausted(seen, state, SETTING.options)
    state, seen = limit.refined(state, seen, point(1e-3), 1e-6, SETTING)
    assert limit.exhausted(seen, state, SETTING.options)


def test_a_refinement_that_comes_to_something_is_no_floor():
    state, seen = limit.first_seen(State(0.1, 0.1, ()), point(1e-3), 1e-6, SETTING)
    state, seen = limit.refined(state, seen, point(1e-7), 1e-6, SETTING)
    assert seen.evaluation.error == point(1e-7).evaluation.error
    assert state.floors == () and not limit.exhausted(seen, state, SETTING.options)


def test_floors_at_several_points_are_the_oracle_s_limit_and_bound_every_request():
    assert not limit.at_limit(stuck(1))
    assert limit.askable(1e-9, stuck(1)) == 1e-9
    state = stuck(limit.SEVERAL)
    assert limit.at_limit(state)
    assert limit.askable(1e-9, state) == min(state.floors) and limit.askable(1.0, state) == 1.0
