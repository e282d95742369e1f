"""The oracle's limit: what it has shown it cannot give is not asked for again."""

import numpy as np

from suffice import Evaluation, Options
from suffice.result import Purpose
from suffice.search import judge
from suffice.search.state import Ledger, Pending, Scaling, Setting

SCALING, WITHIN = Scaling.of(np.zeros(1), (-1.0, 1.0)), 1e-6


def after(floors=()):
    return Setting(SCALING, Options(), ledger=Ledger(np.zeros(1), floors=floors))


def asked(error, floors=(), refines=None):
    """The floors and the point after an evaluation with this error, and whether there is no point in asking again."""
    pending = Pending(Purpose.STEP, np.zeros(1), WITHIN, refines=refines)
    floors, point = judge.answered(pending, Evaluation(np.zeros(1), [1.0], [error]), floors, Options())
    return floors, point, judge.exhausted(point, after(floors))


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
    assert judge.askable(1e-9, after(stuck(1))) == 1e-9
    floors = stuck(judge.SEVERAL)
    assert judge.askable(1e-9, after(floors)) == min(floors) and judge.askable(1.0, after(floors)) == 1.0
