"""Many starts: the best minimiser any of them finds, for one budget."""

import importlib
import math

import numpy as np
import pytest

import suffice
from suffice import Evaluation, Options, OracleError, Status, exact, tune
from tests.search.test_bilevel import elastic_nets, minimiser, truth
from tests.search.test_tune import Watched, exponential


def two_wells(theta):
    """Minimisers near -1 (F about 0.04) and 1 (F about 1.04): residuals of a double well and a slope."""
    return np.array([3.0 * (theta[0] ** 2 - 1.0), 0.2 + 0.41 * (theta[0] + 1.0)])


LEFT = tune(exact(two_wells), [-1.2], bounds=(-2, 2), options=Options(final_radius=1e-7))
RIGHT = tune(exact(two_wells), [1.3], bounds=(-2, 2), options=Options(final_radius=1e-7))
BOX = {"bounds": (-2.0, 2.0)}


def test_the_wells_are_two():
    assert LEFT.theta < -0.9 and RIGHT.theta > 0.8 and RIGHT.cost > LEFT.cost + 0.5


@pytest.mark.parametrize("starts", [[[1.3], [-1.2]], np.array([[1.3], [1.5], [-1.7]])])
def test_the_best_of_all_minimisers_is_found(starts):
    result = tune(exact(two_wells), starts=starts, **BOX)
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.theta, LEFT.theta, atol=1e-4)
    assert len(result.starts) == len(starts)
    assert result.cost == min(one.cost for one in result.starts)


@pytest.mark.parametrize("factor", [1.0, 1e-3, 1e3])
def test_a_single_start_is_an_ordinary_run(factor):
    fun = exact(lambda theta: factor * exponential(theta))
    many, one = tune(fun, starts=[[-0.5, 0.8]]), tune(fun, [-0.5, 0.8])
    assert many.history == one.history and many.starts[0].status is one.status and one.starts == ()


def test_theta0_is_the_first_start():
    watched = Watched(two_wells)
    result = tune(watched, [1.3], starts=[[-1.2], [0.4]], **BOX)
    np.testing.assert_allclose(watched.seen[:3], [[1.3], [-1.2], [0.4]])
    assert len(result.starts) == 3


# --- budgets


@pytest.mark.parametrize("budget", [1, 2, 3, 7, 11])
def test_evaluations_are_counted_over_all_starts(budget):
    watched = Watched(two_wells)
    starts = [[1.3], [-1.2], [0.2]]
    result = tune(watched, starts=starts, options=Options(max_evaluations=budget), **BOX)
    assert len(watched.seen) == budget == sum(one.evaluations for one in result.starts)
    assert {one.status for one in result.starts} == {Status.MAX_EVALUATIONS}
    assert math.isfinite(result.cost)  # a start without an evaluation is never the best


@pytest.mark.parametrize("budget", [1.0, 5.0, 8.0])
def test_work_is_counted_over_all_starts_and_ends_with_the_turn(budget):
    result = tune(exact(two_wells), starts=[[1.3], [-1.2], [0.2]], options=Options(max_work=budget), **BOX)
    assert sum(one.work for one in result.starts) == 3.0 * math.ceil(budget / 3.0)
    assert result.status is Status.MAX_WORK


def test_seconds_pass_once_for_all(monkeypatch):
    clock = iter(float(second) for second in range(10_000))
    monkeypatch.setattr(importlib.import_module("suffice.search.tune").time, "monotonic", lambda: next(clock))
    result = tune(exact(two_wells), starts=[[1.3], [-1.2]], options=Options(max_seconds=1e-9), **BOX)
    assert result.status is Status.MAX_SECONDS and sum(one.evaluations for one in result.starts) == 2


def test_one_start_on_target_ends_all():
    result = tune(exact(two_wells), starts=[[1.3], [-1.2]], options=Options(target_cost=0.5), **BOX)
    assert result.status is Status.TARGET and result.cost <= 0.5
    assert result.starts[0].status is Status.OVERTAKEN and "target_cost" in result.starts[0].message


# --- bilevel problems


@pytest.mark.parametrize("policy", ["residual", "weights"])
@pytest.mark.parametrize("solver", ["fista", "auto"])
def test_starts_by_name_and_their_intervals_contain_the_true_cost(solver, policy):
    starts = [{"l1": 0.5, "l2": 1.0}, {"l1": 2e-3, "l2": 2e-2}, [0.5, 0.5]]
    options = Options(final_radius=1e-3, policy=policy, max_evaluations=150)
    result = tune(elastic_nets(solver), starts=starts, options=options)
    np.testing.assert_allclose(result.theta, minimiser(), atol=0.02)
    assert result.params == pytest.approx(dict(zip(("l1", "l2"), 10.0**result.theta, strict=True)))
    for one in result.starts:
        for record in one.history:
            assert record.interval[0] - 1e-9 <= truth()(record.theta) <= record.interval[1] + 1e-9
    np.testing.assert_allclose(result.starts[0].history[0].theta, np.log10([0.5, 1.0]), atol=1e-12)


def test_accuracies_may_differ_within_a_batch():
    """Each theta gets what it would get alone."""
    problem, thetas = elastic_nets("auto"), [np.array([-1.0, -0.5]), np.array([0.0, 0.3])]
    alone = [problem.evaluate(theta, within=within) for theta, within in zip(thetas, (1e-8, 0.3), strict=True)]
    for one, other in zip(alone, problem.evaluate_all(thetas, within=[1e-8, 0.3]), strict=True):
        np.testing.assert_array_equal(one.r, other.r)
        np.testing.assert_array_equal(one.e, other.e)
    assert alone[0].e.max() <= 1e-8 < alone[1].e.max() <= 0.3


@pytest.mark.parametrize("within", [[1e-3], [1e-3] * 3, [1e-3, -1.0], [1e-3, math.nan]])
def test_accuracies_of_a_batch_are_checked(within):
    with pytest.raises(ValueError, match="within"):
        elastic_nets().evaluate_all([np.array([-1.0, -0.5])] * 2, within=within)


def test_a_turn_goes_through_one_batch():
    problem, turns = elastic_nets(), []
    evaluate_all = problem.evaluate_all

    def watched(thetas, **arguments):
        turns.append(len(thetas))
        return evaluate_all(thetas, **arguments)

    problem.evaluate_all = watched
    tune(problem, starts=[[-1.0, 0.0], [0.5, 0.5], [0.0, -1.0]], options=Options(max_evaluations=12))
    assert turns == [3, 3, 3, 3]


def test_fixed_accuracy_takes_many_starts():
    fixed = elastic_nets().fixed(30)
    result = tune(fixed, starts=[[-1.0, 0.0], [0.5, 0.5]], options=Options(max_evaluations=20))
    assert all(one.evaluations > 3 for one in result.starts)
    assert all(set(record.errors) == {0.0} for record in result.history)


# --- what goes wrong


class Fragile:
    """Fails at positive theta; a batch fails as a whole."""

    def evaluate(self, theta, *, within, warm=None):
        if theta[0] > 0.0:
            raise ArithmeticError("too large")
        return Evaluation(theta, two_wells(theta), np.zeros(2))


class FragileBatch(Fragile):
    def evaluate_all(self, thetas, *, within, warm, policy):
        return [self.evaluate(theta, within=0.0) for theta in thetas]


def test_a_failure_names_its_theta_though_the_objective_has_overwritten_it():
    def spoil(theta):
        asked.append(theta.copy())
        theta[:] = 9.0
        raise ValueError("no")

    class Spoiling:
        def evaluate(self, theta, *, within, warm=None):
            spoil(theta)

    asked = []
    for where in ({"theta0": [1.3]}, {"starts": [[1.3], [-1.2]]}):
        with pytest.raises(OracleError, match="no") as caught:
            tune(Spoiling(), **where, **BOX)
        assert caught.value.theta.tolist() == asked[-1].tolist() == pytest.approx([1.3])


@pytest.mark.parametrize("objective", [Fragile(), FragileBatch()])
def test_a_failing_start_is_named_and_the_others_keep_what_they_have(objective):
    with pytest.raises(OracleError, match=r"too large.*1\.5") as caught:
        tune(objective, starts=[[-1.2], [1.5]], **BOX)
    assert caught.value.theta == [1.5] and isinstance(caught.value.__cause__, ArithmeticError)
    assert [one.evaluations for one in caught.value.result.starts] == [1, 0]
    assert caught.value.result.status is Status.FAILED


def test_the_callback_sees_every_evaluation_and_may_stop_all():
    seen = []

    def callback(record):
        seen.append(record)
        if len(seen) == 5:
            raise StopIteration

    result = tune(exact(two_wells), starts=[[1.3], [-1.2]], callback=callback, **BOX)
    assert {one.status for one in result.starts} == {Status.STOPPED}
    assert sum(one.evaluations for one in result.starts) == 6  # a turn is taken in before it is shown


def test_an_interrupt_keeps_what_all_starts_have():
    count = iter(range(100))

    def fun(theta):
        if next(count) == 7:
            raise KeyboardInterrupt
        return two_wells(theta)

    result = tune(exact(fun), starts=[[1.3], [-1.2]], **BOX)
    assert {one.status for one in result.starts} == {Status.INTERRUPTED}
    assert sum(one.evaluations for one in result.starts) == 7


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, "theta0 or starts"),
        ({"starts": []}, ValueError, "starts must not be empty"),
        ({"starts": {"l1": 1.0}}, TypeError, "starts must be a sequence"),
        ({"starts": 3.0}, TypeError, "starts must be a sequence"),
        ({"starts": [[1.0], [1.0, 2.0]]}, ValueError, r"starts\[1\] must have 1 entries"),
        ({"theta0": [1.0], "starts": [[1.0, 2.0]]}, ValueError, r"starts\[0\] must have 1 entries like theta0"),
        ({"starts": [[1.0], [math.nan]]}, ValueError, r"starts\[1\]"),
        ({"starts": [{"l1": 1.0}]}, TypeError, "by name"),
    ],
)
def test_bad_starts_are_named_before_anything_is_evaluated(arguments, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    watched = Watched(two_wells)
    with pytest.raises(error, match=message):
        suffice.tune(watched, **arguments)
    assert not watched.seen and not list(tmp_path.iterdir())
