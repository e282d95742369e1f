"""Tuning: it finds minimisers, never leaves its box, decides rightly under any errors, and loses nothing it learnt."""

import importlib
import json
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import least_squares, lsq_linear

import suffice
from suffice import Evaluation, Options, OracleError, Status, Tuner, exact, tune
from suffice.options import ModelKind
from suffice.result import Purpose
from suffice.search.accuracy import DECISION_ERROR, ETA1
from suffice.search.state import Pending

INF, MODELS = math.inf, get_args(ModelKind)


class Watched:
    """An exact objective that remembers every theta it was asked for."""

    def __init__(self, fun):
        self.fun, self.seen = fun, []

    def evaluate(self, theta, *, within, warm=None):
        self.seen.append(theta.copy())
        residuals = np.atleast_1d(self.fun(theta))
        return Evaluation(theta, residuals, np.zeros(len(residuals)), work=1)


# --- finding minimisers


def linear(m, seed=0):
    """A well-conditioned linear least-squares problem: (A, b)."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.standard_normal((m + 3, m)))
    return Q * rng.uniform(0.5, 2.0, m), rng.standard_normal(m + 3)


@pytest.mark.parametrize("seed", [None, 0, 12])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("m", [1, 2, 5, 20])
def test_linear_least_squares(m, model, seed):
    A, b = linear(m)
    options = Options(max_evaluations=1000, final_radius=1e-6, model=model, seed=seed)
    result = tune(exact(lambda theta: A @ theta - b), np.zeros(m), options=options)
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.theta, np.linalg.lstsq(A, b, rcond=None)[0], atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_fifty_parameters(model):
    A, b = linear(50)
    options = Options(max_evaluations=500, final_radius=1e-3, model=model)
    result = tune(exact(lambda theta: A @ theta - b), np.zeros(50), bounds=(-10, 10), options=options)
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.theta, np.linalg.lstsq(A, b, rcond=None)[0], atol=1e-2)


def rosenbrock(x):
    return np.array([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])


def powell_singular(x):
    return np.array(
        [
            x[0] + 10.0 * x[1],
            math.sqrt(5.0) * (x[2] - x[3]),
            (x[1] - 2.0 * x[2]) ** 2,
            math.sqrt(10.0) * (x[0] - x[3]) ** 2,
        ]
    )


def bard(x):
    y = np.array([0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.10, 4.39])
    u = np.arange(1.0, 16.0)
    v, w = 16.0 - u, np.minimum(u, 16.0 - u)
    return y - (x[0] + u / (v * x[1] + w * x[2]))


def kowalik_osborne(x):
    y = np.array([0.1957, 0.1947, 0.1735, 0.1600, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246])
    u = np.array([4.0, 2.0, 1.0, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625])
    return y - x[0] * (u**2 + u * x[1]) / (u**2 + u * x[2] + x[3])


def box(x):
    t = 0.1 * np.arange(1, 11)
    return np.exp(-t * x[0]) - np.exp(-t * x[1]) - x[2] * (np.exp(-t) - np.exp(-10.0 * t))


def broyden_tridiagonal(x):
    padded = np.concatenate([[0.0], x, [0.0]])
    return (3.0 - 2.0 * x) * x - padded[:-2] - 2.0 * padded[2:] + 1.0


def arctangent(x):
    return np.array([np.arctan(x[0] - 2.0), 0.1 * x[0]])


NONLINEAR = [
    pytest.param(arctangent, [0.0], id="arctangent-1"),
    pytest.param(rosenbrock, [-1.2, 1.0], id="rosenbrock-2"),
    pytest.param(bard, [1.0, 1.0, 1.0], id="bard-3"),
    pytest.param(box, [0.0, 10.0, 20.0], id="box-3"),
    pytest.param(powell_singular, [3.0, -1.0, 0.0, 1.0], id="powell-singular-4"),
    pytest.param(kowalik_osborne, [0.25, 0.39, 0.415, 0.39], id="kowalik-osborne-4"),
    pytest.param(broyden_tridiagonal, [-1.0] * 20, id="broyden-tridiagonal-20"),
]


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("fun", "theta0"), NONLINEAR)
def test_nonlinear_least_squares_against_scipy(fun, theta0, model, seed):
    options = Options(max_evaluations=1000, final_radius=1e-7, model=model, seed=seed)
    result = tune(exact(fun), theta0, options=options)
    reference = least_squares(fun, theta0, xtol=1e-15, ftol=1e-15, gtol=1e-15)
    assert result.status is Status.CONVERGED
    assert result.cost <= 2.0 * reference.cost * (1 + 1e-8) + 1e-10
    if fun not in (powell_singular, box):  # F is flat at its minimiser; has others, where x1 = x2 and x3 = 0
        np.testing.assert_allclose(result.theta, reference.x, atol=1e-4 * max(1.0, np.abs(reference.x).max()))


def wavy(k):
    """Many local minima: models mislead, and steps that decrease F by less than promised are rejected."""
    return lambda x: np.array([x[0] - 0.3 + 0.2 * np.sin(k * x[1]), x[1] + 0.3 * np.cos(k * x[0]), 0.5 * x[0] * x[1]])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("k", [6, 14, 22, 25])
def test_with_exact_residuals_the_result_is_the_best_point_evaluated(k, model):
    options = Options(max_evaluations=40, model=model, final_radius=1e-3)
    result = tune(exact(wavy(k)), [-1.0, 1.0], options=options)
    best = min(result.history, key=lambda record: record.cost)
    assert (result.cost, result.interval) == (best.cost, best.interval)
    r = wavy(k)(result.theta)
    assert result.cost == float(r @ r)


def test_with_errors_the_result_is_the_point_with_the_least_proven_upper_bound():
    tuner, truth = play(exponential, change_its_mind, Options(max_evaluations=60))
    result = tuner.result()
    assert result.interval[1] == min(record.interval[1] for record in tuner.history)
    assert result.interval[0] <= truth[tuple(result.theta.tolist())] <= result.interval[1]


def test_fewer_residuals_than_parameters():
    result = tune(exact(lambda x: np.array([x[0] * x[1] - 0.25, x[1] - x[2]])), [0.9, 0.5, 0.1], bounds=(0, 1))
    assert result.success
    assert result.cost <= 1e-8


def test_an_exact_fit_is_a_target_reached():
    result = tune(exact(lambda x: x - 0.5), [0.5, 0.5], bounds=(0, 1))
    assert result.status is Status.TARGET
    assert result.success
    assert result.evaluations == 1
    assert result.interval == (0.0, 0.0)


@pytest.mark.parametrize("factor", [2.0**-200, 2.0**-30, 2.0**-7, 2.0**40])
def test_the_units_of_the_residuals_do_not_matter(factor):
    """Powers of two, so that rounding does not matter either."""
    options = Options(max_evaluations=60)
    one = tune(exact(rosenbrock), [-1.2, 1.0], bounds=(-2, 2), options=options)
    other = tune(exact(lambda x: factor * rosenbrock(x)), [-1.2, 1.0], bounds=(-2, 2), options=options)
    assert [record.theta for record in other.history] == [record.theta for record in one.history]
    assert other.cost == factor**2 * one.cost


@pytest.mark.parametrize(
    "factor",
    [
        1e-120,
        1e120,
    ],
)
def test_units_at_the_ends_of_the_number_range_do_no_harm(factor, recwarn):
    result = tune(exact(lambda x: factor * rosenbrock(x)), [-1.2, 1.0], bounds=(-2, 2))
    assert not recwarn.list
    np.testing.assert_allclose(result.theta, [1.0, 1.0], atol=1e-4)


@pytest.mark.parametrize("seed", [None, 5])
def test_runs_repeat_to_the_bit(seed):
    runs = [tune(exact(bard), [1.0, 1.0, 1.0], options=Options(seed=seed)) for _ in range(2)]
    assert runs[0].history == runs[1].history


def test_seeds_make_different_runs():
    runs = [tune(exact(bard), [1.0, 1.0, 1.0], options=Options(seed=seed)) for seed in (None, 1, 2)]
    assert len({tuple(record.theta for record in run.history) for run in runs}) == 3


def test_a_scalar_function_is_one_residual():
    result = tune(exact(lambda x: float(x[0] - 0.3)), [0.9], bounds=(0, 1))
    assert result.theta[0] == pytest.approx(0.3)


# --- bounds


def inside(thetas, lower, upper):
    """Exactly, without any tolerance."""
    return all((theta >= lower).all() and (theta <= upper).all() for theta in thetas)


@pytest.mark.parametrize(
    ("theta0", "bounds", "target", "expected"),
    [
        ([0.5, 0.5], (0, 1), [2.0, 0.3], [1.0, 0.3]),  # on one bound
        ([0.5, 0.5], (0, 1), [2.0, -1.0], [1.0, 0.0]),  # in a corner
        ([0.0, 1.0], (0, 1), [0.3, 0.4], [0.3, 0.4]),  # from a corner inward
        ([0.0, 1.0], (0, 1), [-1.0, 2.0], [0.0, 1.0]),  # start and end in the same corner
        ([0.0, 1.0], (0, 1), [2.0, -1.0], [1.0, 0.0]),  # from corner to corner
        ([1e-9, 1 - 1e-9], (0, 1), [0.5, 2.0], [0.5, 1.0]),  # from just inside
        ([0.1, 0.1], ([0.1, -0.2], [0.7, 0.3]), [1.0, 1.0], [0.7, 0.3]),
        ([0.0, 0.0], None, [3.0, -2.0], [3.0, -2.0]),
        ([0.0, 0.0], (None, None), [3.0, -2.0], [3.0, -2.0]),
        ([0.0, 0.0], (None, 1.0), [3.0, -2.0], [1.0, -2.0]),
        ([0.0, 0.0], (-1.0, None), [3.0, -2.0], [3.0, -1.0]),
        ([0.0, 0.0], ([-INF, -1.0], [1.0, INF]), [3.0, -2.0], [1.0, -1.0]),
        ([0.0, 0.0], ([-INF, -1.0], [INF, 1.0]), [3.0, -2.0], [3.0, -1.0]),
        ([1e3, 0.0], (None, [2e3, 1.0]), [1.9e3, 7.0], [1.9e3, 1.0]),
        ([0.5], ([0.1 + 0.2], [1.1]), [0.0], [0.1 + 0.2]),
    ],
)
def test_the_minimiser_over_the_box_is_found_and_bounds_are_met_exactly(theta0, bounds, target, expected):
    objective = Watched(lambda theta: theta - np.array(target))
    result = tune(objective, theta0, bounds=bounds)
    scaling = Tuner(theta0, bounds=bounds).search.setting.scaling
    lower, upper = scaling.lower, scaling.upper
    assert inside(objective.seen, lower, upper)
    assert result.success
    np.testing.assert_allclose(result.theta, expected, atol=1e-4 * max(1.0, np.abs(expected).max()))
    active = (np.array(expected) == lower) | (np.array(expected) == upper)
    assert (result.theta[active] == np.array(expected)[active]).all()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("case", range(6))
def test_coupled_parameters_with_active_bounds_against_scipy(case, model):
    rng = np.random.default_rng(case)
    A, b = rng.standard_normal((6, 4)), 2.0 * rng.standard_normal(6)
    lower, upper = -rng.uniform(0.1, 0.6, 4), rng.uniform(0.1, 0.6, 4)
    objective = Watched(lambda theta: A @ theta - b)
    start = np.where(rng.random(4) < 0.5, lower, 0.0)
    result = tune(objective, start, bounds=(lower, upper), options=Options(model=model, max_evaluations=300))
    reference = lsq_linear(A, b, (lower, upper), tol=1e-14)
    assert inside(objective.seen, lower, upper)
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.theta, reference.x, atol=1e-4)
    on_bound = reference.active_mask != 0
    assert on_bound.any()
    assert (result.theta[on_bound] == np.where(reference.active_mask < 0, lower, upper)[on_bound]).all()


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.sampled_from([1e-6, 0.1, 0.7, 30.0]),
    st.one_of(st.none(), st.integers(0, 5)),
)
def test_every_theta_lies_in_the_box_exactly(seed, m, radius, basis):
    rng = np.random.default_rng(seed)
    lower = rng.standard_normal(m) * 10.0 ** rng.integers(-3, 4, m)
    width = 10.0 ** rng.uniform(-3, 3, m)
    upper = lower + width
    lower, upper = np.where(rng.random(m) < 0.2, -INF, lower), np.where(rng.random(m) < 0.2, INF, upper)
    theta0 = np.clip(rng.standard_normal(m), lower, upper)
    target, A = theta0 + 2.0 * width * rng.standard_normal(m), rng.standard_normal((m + 1, m))
    objective = Watched(lambda theta: A @ ((theta - target) / width) + 0.1 * np.sin(theta.sum()))
    final = min(1e-4, radius)
    options = Options(initial_radius=radius, final_radius=final, max_evaluations=60, seed=basis)
    result = tune(objective, theta0, bounds=(lower, upper), options=options)
    assert inside([*objective.seen, result.theta], lower, upper)
    assert (objective.seen[0] == theta0).all() or np.allclose(objective.seen[0], theta0, rtol=1e-14)


@pytest.mark.parametrize(
    ("theta0", "bounds", "projected"),
    [
        ([2.0, 0.5], (0, 1), [1.0, 0.5]),
        ([-3.0, 7.0], (0, 1), [0.0, 1.0]),
        ([-5.0, 0.5], (0, None), [0.0, 0.5]),
        ([0.5, 1e9], (None, 1.0), [0.5, 1.0]),
    ],
)
def test_an_infeasible_start_is_projected_with_a_warning(theta0, bounds, projected):
    objective = Watched(lambda theta: theta - np.array([0.4, 0.6]))
    with pytest.warns(UserWarning, match=r"theta0 = \[.*\] lies outside its bounds, starting from \[.*\]"):
        result = tune(objective, theta0, bounds=bounds)
    assert objective.seen[0].tolist() == projected
    lower, upper = (end if end is not None else sign * INF for end, sign in zip(bounds, (-1, 1), strict=True))
    assert inside(objective.seen, lower, upper)
    np.testing.assert_allclose(result.theta, [0.4, 0.6], atol=1e-4)


@pytest.mark.parametrize(
    "call",
    [
        Tuner,
        lambda theta0, bounds: tune(exact(monotone), theta0, bounds=bounds),
    ],
    ids=["Tuner", "tune"],
)
def test_the_warning_points_to_the_user_s_line(call):
    with pytest.warns(UserWarning, match="outside") as caught:
        call([2.0, 0.5], bounds=(0, 1))
    assert [warning.filename for warning in caught] == [__file__]


def test_a_feasible_start_is_not_warned_about(recwarn):
    tune(exact(lambda theta: theta), [0.0, 1.0], bounds=(0, 1))
    assert not recwarn.list


# --- decisions under errors


def monotone(theta):
    """Residuals of a strongly convex F with one minimiser."""
    A, b = np.array([[2.0, 0.3], [-0.5, 1.5], [0.4, 0.8]]), np.array([1.0, -0.6, 0.9])
    z = A @ theta - b
    return z + 0.1 * np.sin(z)


def exponential(theta):
    x, y = theta
    return np.array([math.exp(x) - 1.2, y + x * x - 0.3, 0.5 * (x - y)])


def inflate(purpose, improves, turn):
    return 1.0


def deflate(purpose, improves, turn):
    return -1.0


def hide_improvements(purpose, improves, turn):
    """The incumbent looks better than it is, better points look worse, worse ones better."""
    if purpose == "refine best":
        return -1.0
    return 1.0 if improves else -1.0


def fake_improvements(purpose, improves, turn):
    """The incumbent looks worse than it is, every step better."""
    return 1.0 if purpose in ("refine best", "first points") else -1.0


def change_its_mind(purpose, improves, turn):
    return (-1.0) ** turn


class Trick:
    """Signs from a list, over and over."""

    def __init__(self, signs):
        self.signs = signs

    def __call__(self, purpose, improves, turn):
        return self.signs[turn % len(self.signs)]


def play(fun, trick, options, theta0=(-0.5, 0.8), miss=1.0):
    """A run against an oracle that errs by its whole allowance; `miss` times that at the first look at a theta.

    Its errors are truthful, their signs are the adversary's. Returns the tuner and the true F of every theta."""
    tuner = Tuner(theta0, bounds=(-1, 1), options=options)
    truth, best, turn = {}, INF, 0
    while not tuner.done:
        request = tuner.ask()
        r = fun(request.theta)
        F = float(r @ r)
        e = request.within * (1.0 if request.purpose.startswith("refine") else miss)
        away_from_zero = np.where(r < 0, -1.0, 1.0) * trick(request.purpose, best > F, turn)
        truth[tuple(request.theta.tolist())] = F
        best, turn = min(best, F), turn + 1
        tuner.tell(Evaluation(request.theta, r + away_from_zero * e, np.full(len(r), e)))
    return tuner, truth


def assert_all_accepted_steps_were_right(tuner, truth):
    accepted = 0
    for record in tuner.history:
        assert record.interval[0] <= truth[record.theta] * (1 + 1e-14)
        assert record.interval[1] >= truth[record.theta] * (1 - 1e-14)
        if record.verdict == "accepted":
            accepted += 1
            decrease = truth[record.step.origin] - truth[record.step.target]
            proven = (ETA1 - 2 * DECISION_ERROR) * record.step.predicted
            assert decrease >= proven - 1e-12 * truth[record.step.origin]
        if record.verdict == "rejected":
            decrease = truth[record.step.origin] - truth[record.step.target]
            excluded = (ETA1 + 2 * DECISION_ERROR) * record.step.predicted
            assert decrease <= excluded + 1e-12 * truth[record.step.origin]
    assert accepted > 0


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("miss", [1.0, 5.0])
@pytest.mark.parametrize("trick", [inflate, deflate, hide_improvements, fake_improvements, change_its_mind])
@pytest.mark.parametrize("fun", [monotone, exponential])
def test_whatever_the_errors_accepted_steps_decrease_and_the_minimiser_is_found(fun, trick, miss, model):
    tuner, truth = play(fun, trick, Options(max_evaluations=500, model=model), miss=miss)
    assert_all_accepted_steps_were_right(tuner, truth)
    result = tuner.result()
    reference = least_squares(fun, [0.0, 0.0], xtol=1e-15, ftol=1e-15, gtol=1e-15)
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.theta, reference.x, atol=1e-3)
    low, high = result.interval
    assert low <= truth[tuple(result.theta.tolist())] <= high


@given(
    st.lists(st.sampled_from([-1.0, -0.5, 0.0, 1.0]), min_size=1, max_size=12).map(Trick),
    st.sampled_from([monotone, exponential]),
    st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    st.sampled_from([1.0, 20.0]),
)
def test_no_sequence_of_signs_makes_a_decision_wrong(trick, fun, theta0, miss):
    options = Options(max_evaluations=300, final_radius=1e-4)
    tuner, truth = play(fun, trick, options, theta0, miss)
    assert tuner.result().status is Status.CONVERGED
    assert_all_accepted_steps_were_right(tuner, truth)
    reference = least_squares(fun, [0.0, 0.0], xtol=1e-15, ftol=1e-15, gtol=1e-15)
    np.testing.assert_allclose(tuner.result().theta, reference.x, atol=1e-2)


def test_accuracy_is_asked_for_only_as_the_search_closes_in():
    tuner, _ = play(monotone, change_its_mind, Options())
    asked = [record.within for record in tuner.history]
    assert min(asked[:4]) >= 1e3 * min(asked)
    assert sorted(asked[-4:])[-1] <= 0.1 * max(asked)


# --- refinement


class Halving:
    """A solver that halves its error with every unit of work, and continues its own solution at the same theta."""

    def __init__(self, fun):
        self.fun, self.steps = fun, defaultdict(int)

    def evaluate(self, theta, *, within, warm=None):
        done = 0
        if warm is not None and np.array_equal(warm.point, theta):
            (done,) = warm.solutions
        needed = max(done, math.ceil(-math.log2(within)), 0)
        self.steps[tuple(theta.tolist())] = needed
        r, e = self.fun(theta), 0.5**needed
        return Evaluation(theta, r + 0.9 * e, np.full(len(r), e), work=needed - done, solutions=(needed,))


@pytest.mark.parametrize("theta0", [(-0.5, 0.8), (0.9, -0.9)])
def test_refinements_cost_the_difference_only(theta0):
    objective = Halving(monotone)
    result = tune(objective, theta0, bounds=(-1, 1))
    assert result.status is Status.CONVERGED
    spent, evaluations = defaultdict(float), defaultdict(list)
    for record in result.history:
        spent[record.theta] += record.work
        evaluations[record.theta].append(record)
    assert dict(spent) == dict(objective.steps)
    refined = [records for records in evaluations.values() if len(records) > 1]
    assert refined
    for records in refined:
        assert all(record.purpose.startswith("refine") for record in records[1:])
        errors = [record.error for record in records]
        assert errors == sorted(errors, reverse=True)
    assert result.work == sum(objective.steps.values())


# --- state


def interrupted(run, count):
    """The run's state after so many evaluations, through a file."""
    tuner, evaluate = run()
    for _ in range(count):
        if tuner.done:
            break
        request = tuner.ask()
        tuner.tell(evaluate(request))
    return Tuner.from_state(json.loads(json.dumps(tuner.state(), allow_nan=False)))


def finish(tuner, evaluate):
    while not tuner.done:
        tuner.tell(evaluate(tuner.ask()))
    return tuner


def exact_run():
    objective = exact(rosenbrock)
    tuner = Tuner([-1.2, 1.0], bounds=([-2, -INF], [2, INF]), options=Options(max_work=1e6))
    return tuner, lambda request: objective.evaluate(request.theta, within=request.within, warm=request.warm)


def inexact_run():
    objective = Halving(monotone)
    tuner = Tuner([-0.5, 0.8], bounds=(-1, 1), options=Options(seed=4))
    return tuner, lambda request: objective.evaluate(request.theta, within=request.within, warm=request.warm)


@pytest.mark.parametrize("run", [exact_run, inexact_run])
def test_a_run_stopped_anywhere_continues_to_the_same_bits(run):
    straight = finish(*run())
    for count in range(len(straight.history) + 1):
        restored = finish(interrupted(run, count), run()[1])
        assert restored.history == straight.history
        one, other = restored.result(), straight.result()
        assert one.theta.tobytes() == other.theta.tobytes()
        assert (one.status, one.cost, one.interval, one.work) == (other.status, other.cost, other.interval, other.work)


@pytest.mark.parametrize("run", [exact_run, inexact_run])
def test_a_state_is_the_same_after_its_journey(run):
    for count in (0, 1, 3, 10, 1000):
        restored = interrupted(run, count)
        assert interrupted(lambda tuner=restored: (tuner, None), 0).state() == restored.state()


def test_a_request_that_was_asked_survives_the_journey():
    tuner, evaluate = inexact_run()
    for _ in range(12):
        tuner.tell(evaluate(tuner.ask()))
    request = tuner.ask()
    again = Tuner.from_state(json.loads(json.dumps(tuner.state(), allow_nan=False))).ask()
    assert again.theta.tobytes() == request.theta.tobytes()
    assert (again.within, again.purpose, again.warm.solutions) == (
        request.within,
        request.purpose,
        request.warm.solutions,
    )


@pytest.mark.parametrize("bad", [{}, {"format": "suffice tuner 0"}, {"format": None}])
def test_a_state_of_another_format_is_refused(bad):
    with pytest.raises(ValueError, match="state must be of format"):
        Tuner.from_state(bad)


def test_solutions_that_cannot_be_written_down_are_named_by_their_type():
    class Handle:
        pass

    tuner = Tuner([0.5], bounds=(0, 1))
    request = tuner.ask()
    tuner.tell(Evaluation(request.theta, [1.0], [0.0], solutions=(Handle(),)))
    with pytest.raises(TypeError, match=r"Handle cannot be turned into plain data.*solutions"):
        tuner.state()


# --- oracles that fail


class Faulty:
    """Works as it should until the n-th evaluation, which `fault(theta, within, warm)` makes."""

    def __init__(self, fault, n=4):
        self.fault, self.n, self.count = fault, n, 0

    def evaluate(self, theta, *, within, warm=None):
        self.count += 1
        if self.count >= self.n:
            return self.fault(theta, within, warm)
        r = monotone(theta)
        return Evaluation(theta, r, np.zeros(len(r)), work=1)


def answer(residuals=(1.0, 2.0, 3.0), errors=(0.0, 0.0, 0.0), shift=0.0, **more):
    return lambda theta, within, warm: Evaluation(theta + shift, residuals, errors, **more)


def divide(theta, within, warm):
    return 1 / 0


def misshapen(theta, within, warm):
    return Evaluation(theta, [1.0, 2.0, 3.0], [0.0])


FAULTS = {
    "raises": (divide, "ZeroDivisionError"),
    "constructs a misshapen evaluation": (misshapen, "errors must have shape"),
    "fewer residuals than before": (answer([1.0, 2.0], [0.0, 0.0]), "3 residuals before, now there are 2"),
    "no residuals": (answer([], []), "residuals"),
    "other blocks than before": (answer(errors=[0.0], blocks=(3,)), "before"),
    "another theta": (answer(shift=1e-9), "another theta"),
    "negative error": (answer(errors=[0.0, -1e-3, 0.0]), "errors must be non-negative"),
    "NaN error": (answer(errors=[0.0, math.nan, 0.0]), "errors must be non-negative"),
    "negative work": (answer(work=-1), "work must be non-negative and finite"),
    "None": (lambda *_: None, "an Evaluation was expected, got NoneType"),
    "a bare array": (lambda theta, within, warm: monotone(theta), "an Evaluation was expected, got ndarray"),
    "StopIteration": (lambda *_: next(iter(())), "StopIteration"),
}


@pytest.mark.parametrize(
    ("name", "n"), [(name, n) for name in FAULTS for n in (1, 2, 6) if n > 1 or "before" not in name]
)
def test_a_failing_oracle_is_reported_with_theta_and_all_that_was_evaluated(name, n):
    fault, message = FAULTS[name]
    records = []
    with pytest.raises(OracleError, match=message) as caught:
        tune(Faulty(fault, n), [-0.5, 0.8], bounds=(-1, 1), callback=records.append)
    error = caught.value
    assert np.array2string(error.theta, precision=17) in str(error)
    assert error.result.status is Status.FAILED
    assert not error.result.success
    assert error.result.evaluations == n - 1
    assert error.result.history == tuple(records)
    if n > 1:
        assert error.result.cost == min(record.cost for record in records)


@pytest.mark.parametrize("bad", [math.nan, INF])
def test_residuals_that_are_not_finite_at_the_start_are_an_error(bad):
    with pytest.raises(OracleError, match="not all finite") as caught:
        tune(exact(lambda theta: [1.0, bad]), [-0.5, 0.8], bounds=(-1, 1))
    assert caught.value.theta.tolist() == [-0.5, 0.8]
    assert caught.value.result.evaluations == 0


@pytest.mark.parametrize("work", ["a lot", None])
def test_work_that_is_no_number_is_the_oracle_s_fault(work):
    with pytest.raises(OracleError, match="work"):
        tune(Faulty(answer(work=work)), [-0.5, 0.8], bounds=(-1, 1))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_residuals_whose_squares_overflow_are_the_oracle_s_fault():
    with pytest.raises(OracleError, match="theta"):
        tune(exact(lambda theta: 1e200 * (theta - 0.3)), [0.0, 0.0], bounds=(-1, 1))


def test_the_oracle_s_own_exception_is_the_cause():
    with pytest.raises(OracleError) as caught:
        tune(Faulty(divide), [-0.5, 0.8], bounds=(-1, 1))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_oracle_cannot_change_the_search_through_its_arguments():
    def meddling(theta):
        r = monotone(theta)
        theta[:] = 77.0
        return r

    class Meddler:
        def evaluate(self, theta, *, within, warm=None):
            evaluation = Evaluation(theta, monotone(theta), np.zeros(3), work=1)
            theta[:] = 77.0
            return evaluation

    straight = tune(exact(monotone), [-0.5, 0.8], bounds=(-1, 1))
    assert tune(exact(meddling), [-0.5, 0.8], bounds=(-1, 1)).history == straight.history
    assert tune(Meddler(), [-0.5, 0.8], bounds=(-1, 1)).history == straight.history


def test_an_oracle_that_changes_theta_and_fails_is_reported_with_the_theta_it_was_given():
    given_thetas = []

    def meddling(theta, within, warm):
        given_thetas.append(theta.copy())
        theta[:] = 77.0
        return Evaluation(theta, monotone(theta), np.zeros(3))

    with pytest.raises(OracleError, match="another theta") as caught:
        tune(Faulty(meddling), [-0.5, 0.8], bounds=(-1, 1))
    assert caught.value.theta.tolist() == given_thetas[0].tolist()


@pytest.mark.parametrize(
    "purpose",
    [
        "first points",
        "step",
        "refine",
    ],
)
def test_an_accuracy_missed_once_is_made_up_for(purpose):
    objective, tuner, missed = Halving(monotone), Tuner([-0.5, 0.8], bounds=(-1, 1)), 0
    while not tuner.done:
        request = tuner.ask()
        evaluation = objective.evaluate(request.theta, within=request.within, warm=request.warm)
        if not missed and request.purpose.startswith(purpose):
            missed, e = 1, max(1.0, 100.0 * request.within)
            evaluation = Evaluation(request.theta, evaluation.r - 0.5 * e, np.full(3, e), work=1, solutions=(0,))
        tuner.tell(evaluation)
    assert missed
    reference = least_squares(monotone, [0.0, 0.0], xtol=1e-15, ftol=1e-15, gtol=1e-15)
    assert tuner.result().status is Status.CONVERGED
    np.testing.assert_allclose(tuner.result().theta, reference.x, atol=1e-3)


class Limited:
    """An oracle whose errors never fall below `floor`."""

    def __init__(self, floor, fun=monotone, sign=1.0):
        self.floor, self.fun, self.sign = floor, fun, sign

    def evaluate(self, theta, *, within, warm=None):
        r, e = self.fun(theta), max(within, self.floor)
        return Evaluation(theta, r + self.sign * min(e, 1.0), np.full(len(r), e), work=1)


@pytest.mark.parametrize("floor", [1e-12, 1e-3, 0.1])
def test_where_the_oracle_is_at_its_limit_the_search_goes_on_to_within_its_errors(floor):
    result = tune(Limited(floor), [-0.5, 0.8], bounds=(-1, 1), options=Options(max_evaluations=500))
    assert result.status in (Status.ACCURACY, Status.CONVERGED)
    reference = least_squares(monotone, [0.0, 0.0], xtol=1e-15, ftol=1e-15, gtol=1e-15)
    F = float(monotone(result.theta) @ monotone(result.theta))
    assert result.interval[0] <= F <= result.interval[1]
    assert F - 2.0 * reference.cost <= result.interval[1] - result.interval[0] + 1e-9


def test_nobody_is_asked_twice_for_what_the_oracle_cannot_give():
    """Once it has missed at three points without progress, no point is refined, and nothing finer asked for."""
    result = tune(Limited(1e-2), [-0.5, 0.8], bounds=(-1, 1), options=Options(max_evaluations=500))
    repeated = [record for record in result.history if record.purpose.startswith("refine")]
    known = [{one.theta for one in result.history[: again.number - 1] if one.error <= 1e-2} for again in repeated]
    assert (
        sum(again.theta in there for again, there in zip(repeated, known, strict=True)) <= 3
    )  # as accurate as it gets
    later = result.history[repeated[-1].number :]
    assert later and all(record.within >= 1e-2 for record in later)


def test_verdicts_that_no_proof_decides_are_marked():
    result = tune(Limited(1e-2), [-0.5, 0.8], bounds=(-1, 1), options=Options(max_evaluations=500))
    truth = {record.theta: float(np.sum(monotone(np.array(record.theta)) ** 2)) for record in result.history}
    verdicts = {record.verdict for record in result.history}
    assert verdicts & {"accepted, not proven", "rejected, not proven"}
    for record in result.history:
        if record.verdict == "accepted":
            assert truth[record.step.target] < truth[record.step.origin]


@pytest.mark.parametrize("floor", [10.0, INF])
def test_an_accuracy_missed_forever_ends_the_run_and_names_theta(floor):
    result = tune(Limited(floor), [-0.5, 0.8], bounds=(-1, 1), options=Options(max_evaluations=500))
    assert result.status is Status.ACCURACY
    assert not result.success
    assert f"theta = [{result.theta[0]:.4g}" in result.message
    assert result.evaluations == len(result.history) < 500
    F = float(monotone(result.theta) @ monotone(result.theta))
    assert result.interval[0] <= F <= result.interval[1]


@pytest.mark.parametrize("start", [0.0, 1e-8, 1e-3])
@pytest.mark.parametrize("floor", [1e-7, 1e-5])
def test_a_search_that_has_decided_all_that_its_errors_allow_has_converged(floor, start):
    """F = ||theta||^2 is down to the errors' squares, which no radius changes: there is nothing left to decide."""
    blurred = Limited(floor, fun=lambda theta: theta, sign=0.5)
    result = tune(blurred, [start, start], bounds=(-1, 1), options=Options(max_evaluations=500))
    assert result.status is Status.ACCURACY and result.success and not result.status.can_go_on
    assert result.interval[0] <= float(result.theta @ result.theta) <= result.interval[1] <= 100 * floor**2
    width = result.interval[1] - result.interval[0]
    assert result.message.endswith(f"accuracy allows, {width:.2g}")


def test_a_search_that_sees_nothing_but_errors_has_not_converged():
    """F~ is constant, and F may be anything within [0, 1e6]: no radius makes this a minimiser."""
    blurred = Limited(1e3, fun=lambda theta: np.ones(2), sign=0.0)
    result = tune(blurred, [-0.5, 0.8], bounds=(-1, 1), options=Options(max_evaluations=500))
    assert not result.success


@pytest.mark.parametrize("n", [1, 3, 8])
def test_an_interrupt_from_the_keyboard_keeps_the_history(n):
    def interrupt(*_):
        raise KeyboardInterrupt

    records = []
    result = tune(Faulty(interrupt, n), [-0.5, 0.8], bounds=(-1, 1), callback=records.append)
    assert result.status is Status.INTERRUPTED
    assert not result.success
    assert result.history == tuple(records)
    assert result.evaluations == n - 1
    if n == 1:
        assert math.isnan(result.cost)
        assert result.theta.tolist() == [-0.5, 0.8]
    else:
        assert result.cost == min(record.cost for record in records)


def test_an_oracle_without_evaluate_is_refused():
    with pytest.raises(TypeError, match=r"objective must offer evaluate\(theta"):
        tune(monotone, [0.0, 0.0])
    with pytest.raises(TypeError, match="fun must be callable, got 3"):
        exact(3)


def test_the_weights_policy_needs_an_oracle_that_takes_it():
    with pytest.raises(TypeError, match=r"objective must offer evaluate_weights\(theta"):
        tune(exact(monotone), [0.0, 0.0], options=Options(policy="weights"))


def test_the_weights_policy_needs_the_distance_of_the_weights():
    class NoDistance:
        def evaluate_weights(self, theta, *, within, warm=None):
            return Evaluation(theta, monotone(theta), np.zeros(3))

    with pytest.raises(OracleError, match=r"needs the distance of the weights, evaluation\.distance is None"):
        tune(NoDistance(), [0.0, 0.0], bounds=(-1, 1), options=Options(policy="weights"))


# --- callbacks


@pytest.mark.parametrize("n", [1, 4, 9])
def test_the_callback_may_stop_the_run(n):
    records = []

    def callback(record):
        records.append(record)
        if len(records) == n:
            raise StopIteration

    result = tune(exact(monotone), [-0.5, 0.8], bounds=(-1, 1), callback=callback)
    assert result.status is Status.STOPPED
    assert not result.success
    assert result.message == Status.STOPPED.message
    assert result.history == tuple(records)
    assert result.evaluations == n
    assert result.cost == min(record.cost for record in records)


def test_the_callback_s_own_errors_are_not_swallowed():
    def callback(record):
        raise LookupError("the callback's own")

    with pytest.raises(LookupError, match="the callback's own"):
        tune(exact(monotone), [-0.5, 0.8], bounds=(-1, 1), callback=callback)


def test_an_interrupt_during_the_callback_keeps_the_evaluation():
    def callback(record):
        raise KeyboardInterrupt

    result = tune(exact(monotone), [-0.5, 0.8], bounds=(-1, 1), callback=callback)
    assert result.status is Status.INTERRUPTED
    assert result.evaluations == 1


# --- arguments


@pytest.mark.parametrize(
    ("theta0", "error", "message"),
    [
        ([], ValueError, "theta0 must not be empty"),
        ([[0.0, 0.0]], ValueError, r"theta0 must be one-dimensional, got shape \(1, 2\)"),
        (0.5, ValueError, r"theta0 must be one-dimensional, got shape \(\)"),
        ([0.0, math.nan], ValueError, r"theta0 must be finite, got \[0\.0, nan\]"),
        ([0.0, INF], ValueError, r"theta0 must be finite, got \[0\.0, inf\]"),
        ("ab", TypeError, "theta0 must be a vector of real numbers, got 'ab'"),
        ({"l1": 1.0}, TypeError, "theta0 by name needs an objective with a `space`"),
    ],
)
def test_bad_starts_are_named(theta0, error, message):
    with pytest.raises(error, match=message):
        tune(exact(monotone), theta0)


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ((1, 0), ValueError, r"lower < upper, got lower\[0\]"),
        (([0, 1], [1, 1]), ValueError, r"lower < upper, got lower\[1\]"),
        (([0, 0, 0], 1), ValueError, r"lower must be a number or have shape \(2,\), got shape \(3,\)"),
        ((0, math.nan), ValueError, "upper must not be NaN, got nan"),
        (1, ValueError, "bounds must be a pair"),
        (("a", "b"), TypeError, "lower must be numeric, got 'a'"),
    ],
)
def test_bad_bounds_are_named_before_anything_is_evaluated(bounds, error, message):
    objective = Watched(monotone)
    with pytest.raises(error, match=message):
        tune(objective, [0.5, 0.5], bounds=bounds)
    assert not objective.seen


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bounds_may_stand_for_no_bounds():
    options = Options(max_evaluations=10)
    assert tune(exact(lambda theta: theta), [0.5], bounds=(-1.5e308, 1.5e308), options=options).evaluations > 0


# --- budgets


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 15])
def test_exactly_max_evaluations_are_made(count):
    objective = Watched(rosenbrock)
    result = tune(objective, [-1.2, 1.0], bounds=(-2, 2), options=Options(max_evaluations=count))
    assert result.status is Status.MAX_EVALUATIONS
    assert result.message == "max_evaluations was reached"
    assert not result.success
    assert result.evaluations == len(objective.seen) == len(result.history) == count
    assert result.cost == min(record.cost for record in result.history)


def test_evaluations_are_counted_with_their_repetitions():
    objective = Halving(monotone)
    result = tune(objective, [-0.5, 0.8], bounds=(-1, 1), options=Options(max_evaluations=12))
    assert result.evaluations == 12 > len({record.theta for record in result.history})


@pytest.mark.parametrize("budget", [1, 2.5, 7])
def test_a_run_ends_with_the_evaluation_that_spends_max_work(budget):
    result = tune(exact(rosenbrock), [-1.2, 1.0], bounds=(-2, 2), options=Options(max_work=budget))
    assert result.status is Status.MAX_WORK
    assert not result.success
    assert result.work == math.ceil(budget)
    assert result.history[-1].total_work == result.work
    assert result.history[-1].total_work - result.history[-1].work < budget


@pytest.mark.parametrize(("limit", "evaluations"), [(5.0, 1), (25.0, 3), (30.0, 3), (30.5, 4)])
def test_a_run_ends_with_the_evaluation_during_which_max_seconds_pass(monkeypatch, limit, evaluations):
    now = [1000.0]
    module = importlib.import_module("suffice.search.tune")
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(theta):
        now[0] += 10.0
        return rosenbrock(theta)

    result = tune(exact(slow), [-1.2, 1.0], bounds=(-2, 2), options=Options(max_seconds=limit))
    assert result.status is Status.MAX_SECONDS
    assert not result.success
    assert result.evaluations == evaluations


def test_a_run_ends_once_F_is_proven_to_be_at_most_target_cost():  # noqa: N802
    result = tune(exact(rosenbrock), [-1.2, 1.0], bounds=(-2, 2), options=Options(target_cost=1e-2))
    assert result.status is Status.TARGET
    assert result.success
    assert result.cost <= 1e-2
    assert all(record.incumbent_cost > 1e-2 for record in result.history[:-1])


def test_a_cost_that_only_seems_to_be_on_target_is_not_enough():
    tuner, truth = play(monotone, deflate, Options(target_cost=0.7, max_evaluations=200))
    result = tuner.result()
    assert result.status is Status.TARGET
    assert truth[tuple(result.theta.tolist())] <= 0.7
    assert result.interval[1] <= 0.7


# --- ask and tell


def test_tune_is_a_loop_over_ask_and_tell():
    objective = Halving(monotone)
    tuner = Tuner([-0.5, 0.8], bounds=(-1, 1))
    while not tuner.done:
        request = tuner.ask()
        tuner.tell(objective.evaluate(request.theta, within=request.within, warm=request.warm))
    result = tune(Halving(monotone), [-0.5, 0.8], bounds=(-1, 1))
    assert tuner.history == result.history
    assert tuner.result().theta.tobytes() == result.theta.tobytes()


def test_asking_again_is_the_same_question_until_it_is_answered():
    tuner, evaluate = inexact_run()
    while not tuner.done:
        before = tuner.state()
        request, again = tuner.ask(), tuner.ask()
        assert request.theta.tobytes() == again.theta.tobytes()
        assert (request.within, request.purpose) == (again.within, again.purpose)
        assert request.warm is again.warm
        again.theta[:] = 77.0  # its copy
        assert tuner.ask().theta.tobytes() == request.theta.tobytes()
        assert tuner.state() == before
        record = tuner.tell(evaluate(request))
        assert record is tuner.history[-1]
        assert record.theta == tuple(request.theta.tolist())
        assert (record.within, record.purpose) == (request.within, request.purpose)


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ("raises", "StopIteration")])
def test_an_unusable_evaluation_changes_nothing(name):
    fault, message = FAULTS[name]
    tuner = Tuner([-1.2, 1.0], bounds=(-2, 2))
    for _ in range(5):
        r = np.append(rosenbrock(tuner.ask().theta), 1.0)
        tuner.tell(Evaluation(tuner.ask().theta, r, np.zeros(3)))
    request, before = tuner.ask(), tuner.state()
    with pytest.raises((OracleError, ValueError), match=message):
        tuner.tell(fault(request.theta, request.within, request.warm))
    assert tuner.state() == before
    assert not tuner.done
    assert tuner.ask().theta.tobytes() == request.theta.tobytes()


def test_after_the_end_there_is_nothing_to_ask():
    tuner = finish(*exact_run())
    assert tuner.done
    with pytest.raises(RuntimeError, match="the search has ended: converged"):
        tuner.ask()
    with pytest.raises(RuntimeError, match="the search has ended"):
        tuner.tell(Evaluation([0.0, 0.0], [1.0, 1.0], [0.0, 0.0]))
    assert tuner.result().success


def test_a_result_may_be_had_before_anything_was_evaluated():
    tuner = Tuner([0.5, 0.25], bounds=(0, 1))
    for _ in range(2):
        result = tuner.result()
        assert result.status is Status.RUNNING
        assert not result.success
        assert result.theta.tolist() == [0.5, 0.25]
        assert math.isnan(result.cost)
        assert result.interval == (-INF, INF)
        assert (result.evaluations, result.work, result.history, result.solutions) == (0, 0.0, (), ())
        tuner.ask()


def test_a_result_may_be_had_at_any_time():
    tuner, evaluate = inexact_run()
    while not tuner.done:
        tuner.tell(evaluate(tuner.ask()))
        result = tuner.result()
        assert result.evaluations == len(tuner.history)
        assert result.interval in [record.interval for record in tuner.history if record.theta == tuple(result.theta)]


def test_a_tuner_may_be_stopped_from_outside():
    tuner, evaluate = exact_run()
    tuner.tell(evaluate(tuner.ask()))
    tuner.stop(Status.STOPPED)
    assert tuner.done
    assert tuner.result().status is Status.STOPPED
    tuner.stop(Status.INTERRUPTED)  # it has ended already
    assert tuner.result().status is Status.STOPPED


def test_the_public_names_are_there():
    assert all(hasattr(suffice, name) for name in suffice.__all__)


class Walled:
    """F = ||theta||^2 + J with J known beforehand and steep: exp grows a thousandfold per unit."""

    def __init__(self):
        self.asked = []

    def residuals(self, theta):
        return np.array([theta[0] - 5.0, 0.1 * theta[1], self.wall(theta)])

    def wall(self, theta):
        return 1e-6 * 10.0 ** (3.0 * theta[0])

    def evaluate(self, theta, *, within, warm=None):
        self.asked.append(theta.copy())
        return suffice.Evaluation(theta, self.residuals(theta), np.zeros(3), work=1)


class WalledAndKnown(Walled):
    def lower_bound(self, theta):
        return self.wall(theta) ** 2


def test_a_step_that_a_free_lower_bound_rules_out_is_never_evaluated():
    known, unknown = WalledAndKnown(), Walled()
    bounds = ([-8.0, -8.0], [8.0, 8.0])
    results = [suffice.tune(one, [-3.0, 1.0], bounds=bounds) for one in (known, unknown)]
    assert (
        max(known.wall(theta) ** 2 for theta in known.asked[3:])
        < 100.0
        < max(unknown.wall(theta) ** 2 for theta in unknown.asked)
    )
    np.testing.assert_allclose(results[0].theta, results[1].theta, atol=1e-3)


def test_the_first_evaluation_is_no_more_accurate_than_what_is_known_of_f_beforehand_makes_sense():
    """Where a term known exactly makes F huge, errors of the other residuals matter less from the very beginning."""

    class Known:
        def __init__(self, J):
            self.J, self.asked = J, []

        def evaluate(self, theta, *, within, warm=None):
            self.asked.append(within)
            return suffice.Evaluation(theta, [theta[0] - 1.0, theta[1], np.sqrt(self.J)], [0.0] * 3)

        def lower_bound(self, theta):
            return self.J

    first = {}
    for J in (0.0, 1e-4, 1e8):
        objective = Known(J)
        suffice.tune(objective, [0.0, 0.0], bounds=([-8.0] * 2, [8.0] * 2), options=suffice.Options(max_evaluations=3))
        first[J] = objective.asked[0]
    assert first[0.0] == first[1e-4] == pytest.approx(0.1)
    assert 100.0 <= first[1e8] <= 1000.0  # sqrt(F) is 1e4


def test_a_lower_bound_goes_with_a_state_that_is_taken_up_again():
    known = WalledAndKnown()
    whole = suffice.tune(known, [-3.0, 1.0], bounds=([-8.0, -8.0], [8.0, 8.0]))
    tuner = suffice.Tuner([-3.0, 1.0], bounds=([-8.0, -8.0], [8.0, 8.0]), lower_bound=known.lower_bound)
    while not tuner.done:
        request = tuner.ask()
        tuner.tell(known.evaluate(request.theta, within=request.within))
        tuner = suffice.Tuner.from_state(json.loads(json.dumps(tuner.state())), lower_bound=known.lower_bound)
    np.testing.assert_array_equal(tuner.result().theta, whole.theta)
    with pytest.raises(TypeError, match="lower_bound must be callable"):
        suffice.Tuner([0.0], lower_bound=3.0)


NEXT_TO_BOUNDS = [
    pytest.param(lambda x: np.array([x[0] + 0.5]), [1e-9], [0.0], id="optimal bound"),
    pytest.param(lambda x: np.array([x[0] + 0.5]), [0.0], [0.0], id="on it"),
    pytest.param(lambda x: np.array([x[0] - 1.5]), [1.0 - 1e-7], [1.0], id="upper"),
    pytest.param(
        lambda x: np.array([x[0] + 1 + x[1] ** 2, x[1] + 0.5 + x[0] * x[1]]), [1e-7, 1e-9], [0.0, 0.0], id="corner"
    ),
    pytest.param(lambda x: np.array([x[0] + 0.5, x[1] - 0.3 - x[0]]), [1e-9, 0.9], [0.0, 0.3], id="along the bound"),
    pytest.param(lambda x: np.array([x[0] - 0.7, x[1] - 0.3]), [1e-9, 1e-9], [0.7, 0.3], id="inside"),
    pytest.param(lambda x: np.array([x[0] - 0.7, x[1] - 0.3]), [0.0, 1.0], [0.7, 0.3], id="inside, from a corner"),
    pytest.param(rosenbrock, [1e-9, 1e-9], [1.0, 1.0], id="curved"),
]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("fun", "theta0", "expected"), NEXT_TO_BOUNDS)
def test_a_start_nearer_to_a_bound_than_the_final_radius_gets_where_it_should(fun, theta0, expected, model):
    """On the bound exactly where that is optimal, away from it where it is not."""
    result = tune(exact(fun), theta0, bounds=(0, 1), options=Options(max_evaluations=200, model=model))
    np.testing.assert_allclose(result.theta, expected, atol=1e-4)
    on_bound = np.isin(expected, [0.0, 1.0]) & (fun is not rosenbrock)
    assert (result.theta[on_bound] == np.array(expected)[on_bound]).all()


def test_an_f_that_falls_for_ever_ends_with_the_budget():
    def falling(theta):
        return [1.0 - 1e-4 * math.asinh(theta[0])]

    result = tune(exact(falling), [1.0], options=Options(max_evaluations=1500))
    assert result.status is Status.MAX_EVALUATIONS
    assert result.theta[0] > 1e11


@given(seed=st.integers(0, 10**6), m=st.integers(1, 4))
def test_an_oracle_that_is_no_function_of_theta_does_no_harm(seed, m):
    noise = np.random.default_rng(seed)
    result = tune(
        exact(lambda theta: noise.standard_normal(m + 1)),
        np.zeros(m),
        options=Options(max_evaluations=150, final_radius=1e-12),
    )
    assert np.isfinite(result.theta).all() and result.evaluations > m


@pytest.mark.parametrize("enough", [1e-3, 1e-6])
def test_a_search_ends_when_nothing_worth_an_evaluation_is_promised(enough):
    def rosenbrock(x):
        return np.array([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0], 1.0])

    bounds = (np.full(2, -2.0), np.full(2, 2.0))
    found, whole = (
        tune(exact(rosenbrock), [-1.2, 1.0], bounds=bounds, options=Options(max_evaluations=500, enough=given))
        for given in (enough, 0.0)
    )
    assert found.status is Status.SUFFICES and found.success
    assert whole.status is Status.CONVERGED
    assert found.evaluations < whole.evaluations
    assert found.cost <= 1.0 + 20.0 * enough  # F is 1 where it is least


def test_models_learn_of_curvature_from_evaluations_made_before():
    """One parameter, and residuals that are curved: a step from two points and two that were seen before the search
    knows where the minimiser is, one from two points alone does not."""

    def residuals(theta):
        return np.array([theta[0] ** 2 - 1.0, 0.5])

    objective, options = suffice.exact(residuals), suffice.Options(max_evaluations=3)
    seen = [objective.evaluate(np.array([theta]), within=1.0) for theta in (0.7, 2.0)]
    plain, told = (
        suffice.tune(objective, [1.35], bounds=([0.0], [4.0]), options=options, seen=known) for known in ([], seen)
    )
    assert abs(told.theta[0] - 1.0) < 0.2 * abs(plain.theta[0] - 1.0)
    assert told.evaluations == 3


# --- a strategy of the user's own


@dataclass(frozen=True)
class Halfway:
    """Goes half the way to a place, again and again."""

    goal: np.ndarray
    pending: Pending | None
    points: tuple[Any, ...] = ()
    delta: float = 1.0
    rho: float = 1.0
    status: Status = Status.RUNNING

    @property
    def current(self):
        return self.points[-1]

    def decide(self, setting):
        if self.pending is not None:
            return self
        if self.delta < setting.options.final_radius:
            return replace(self, status=Status.CONVERGED)
        u = 0.5 * (self.current.u + self.goal)
        return replace(self, pending=Pending(Purpose.STEP, u, self.delta, self.current.evaluation))

    def absorb(self, point, setting):
        away = float(np.max(np.abs(point.u - self.goal)))
        return replace(self, pending=None, points=(point,), delta=away), None


def halfway(u, setting, seen):
    return Halfway(setting.scaling.to_u(np.array([1.0, 1.0])), Pending(Purpose.FIRST, u, 1.0))


def test_a_strategy_of_the_user_s_own_has_budgets_states_journals_and_starts(tmp_path):
    objective, options = Halving(rosenbrock), Options(max_evaluations=40, final_radius=1e-4)
    given = {"bounds": (-2, 2), "strategy": halfway}
    whole = tune(Halving(rosenbrock), [-1.2, 1.0], options=options, **given)
    assert whole.status is Status.CONVERGED and np.allclose(whole.theta, 1.0, atol=1e-3)
    short = tune(objective, [-1.2, 1.0], options=replace(options, max_evaluations=4), journal=tmp_path / "run", **given)
    assert (short.status, short.evaluations) == (Status.MAX_EVALUATIONS, 4)
    with pytest.raises(suffice.JournalError, match="strategy is missing"):
        suffice.resume(tmp_path / "run", problem=objective, options=options)
    resumed = suffice.resume(tmp_path / "run", problem=objective, options=options, strategy=halfway)
    assert resumed.history == whole.history and resumed.status is whole.status
    starts = tune(Halving(rosenbrock), starts=[[-1.2, 1.0], [0.5, 0.5]], options=options, **given)
    told = [one.history for one in starts.starts]
    assert min(map(len, told)) > 4 and told[0] == whole.history[: len(told[0])]
    tuner = Tuner([-1.2, 1.0], options=options, **given)
    for _ in range(5):
        request = tuner.ask()
        tuner.tell(Halving(rosenbrock).evaluate(request.theta, within=request.within, warm=request.warm))
    again = Tuner.from_state(json.loads(json.dumps(tuner.state())), strategy=halfway)
    assert again.history == tuner.history and again.ask().theta.tobytes() == tuner.ask().theta.tobytes()
    with pytest.raises(TypeError, match="strategy must be callable"):
        tune(objective, [0.0, 0.0], strategy="halfway")
