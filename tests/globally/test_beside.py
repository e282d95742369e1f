"""Many starts with a bound of F beside them: they end when it is proven that no other parameters are much better."""

import numpy as np
import pytest

import suffice
from suffice import Options, Status, losses, problems
from suffice.globally.models import UnsupportedError

rng = np.random.default_rng(0)
X, noise = rng.standard_normal((80, 6)), rng.standard_normal(80)
y = X[:, 0] - 0.5 * X[:, 1] + noise


class Ridge:
    def at(self, *, l2):
        return problems.ElasticNet(X[:40], y[:40]).at(l1=0.0, l2=l2)

    def shares(self, names):
        return {"l2": (0.0, 1.0)}


PROBLEM = suffice.BilevelProblem([Ridge()], [losses.SquaredError(X[40:], y[40:])], space=suffice.Space(l2=(1e-4, 1e4)))
STARTS = [{"l2": 1e-3}, {"l2": 1.0}, {"l2": 1e3}]
ASKED = Options(global_gap=0.01, final_radius=1e-8, max_evaluations=200)


def test_starts_end_when_no_parameters_are_better_by_more_than_the_gap():
    found = suffice.tune(PROBLEM, starts=STARTS, options=ASKED)
    alone = suffice.tune(PROBLEM, starts=STARTS, options=Options(final_radius=1e-8, max_evaluations=200))
    assert found.status is Status.GLOBAL and found.success and "0.01" not in found.message
    evaluations = [sum(one.evaluations for one in result.starts) for result in (found, alone)]
    assert evaluations[0] < evaluations[1]
    proven = suffice.certify_global(PROBLEM, 1e-3)
    assert 0.99 * found.interval[1] <= proven.upper


def test_a_start_ends_where_nothing_in_its_trust_region_can_be_better():
    found = suffice.tune(PROBLEM, starts=STARTS, options=Options(global_gap=1e-9, final_radius=1e-8))
    ended = [one for one in found.starts if "nothing in its trust region" in one.message]
    assert ended and all(one.status is Status.OVERTAKEN for one in ended)
    proven = suffice.certify_global(PROBLEM, 1e-3)
    for one in ended:
        low, _ = proven.bounds_at(one.params)
        assert low > found.interval[1]


@pytest.mark.parametrize("last", [1, 4, 8])
def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path, last):
    whole = suffice.tune(PROBLEM, starts=STARTS, options=ASKED)
    told = []

    def stop(record):
        told.append(record)
        if len(told) == last:
            raise StopIteration

    first = suffice.tune(PROBLEM, starts=STARTS, options=ASKED, journal=tmp_path / "run", callback=stop)
    assert first.status is Status.STOPPED
    again = suffice.resume(tmp_path / "run", problem=PROBLEM)
    assert again.status is Status.GLOBAL and again.detail == whole.detail
    assert again.theta == whole.theta and again.interval == whole.interval
    assert [one.evaluations for one in again.starts] == [one.evaluations for one in whole.starts]
    assert suffice.resume(tmp_path / "run", problem=PROBLEM).interval == whole.interval  # a finished one


def test_what_cannot_be_bounded_is_refused_before_anything_is_evaluated():
    with pytest.raises(UnsupportedError, match="squared, logistic or Poisson"):
        suffice.tune(suffice.exact(lambda theta: theta), starts=[[1.0]], options=Options(global_gap=0.1))
    with pytest.raises(ValueError, match="global_gap needs `starts`"):
        suffice.tune(PROBLEM, {"l2": 1.0}, options=ASKED)
    with pytest.raises(ValueError, match="global_gap needs"):
        suffice.tune(PROBLEM, starts=STARTS, bounds=([-1.0], [1.0]), options=ASKED)
    with pytest.raises(ValueError, match="global_gap must be"):
        Options(global_gap=-1.0)
