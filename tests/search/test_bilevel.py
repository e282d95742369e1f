"""Bilevel problems: proven intervals, penalties known exactly, warm starts that are nobody else's, fixed accuracy."""

import json
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from suffice import (
    BilevelProblem,
    Evaluation,
    Options,
    OracleError,
    Outcome,
    Solution,
    Space,
    Status,
    Tuner,
    losses,
    problems,
    solve,
    tune,
)
from suffice.search.accuracy import DECISION_ERROR, ETA1
from suffice.solvers import solver as solver_module
from suffice.solvers.certificate import Certificate
from suffice.solvers.fista import GradientDescent
from suffice.solvers.solver import SOLVERS

SPACE = Space(l1=(1e-3, 1e1), l2=(1e-2, 1e1))
START = {"l1": 0.5, "l2": 1.0}
POLICIES = ["residual", "weights"]
SIZES = ((0, 12, 5), (1, 10, 4), (2, 9, 6))  # seed, rows and columns of three problems


def data(seed, rows, d, sparse):
    """Training and validation data of a linear model; a sparse one has weights that vanish and come back with l1."""
    rng = np.random.default_rng(seed)
    w = rng.choice([-1.0, 1.0], d) * rng.uniform(2.0, 3.0, d)
    w = np.where(np.arange(d) < d // 2, 0.3 * w, 0.0) if sparse else w
    X, X_val = rng.standard_normal((4 * rows, d)), rng.standard_normal((rows, d))
    return X, X @ w + rng.standard_normal(4 * rows), X_val, X_val @ w + rng.standard_normal(rows)


def elastic_nets(solver="fista", *, sparse=False, penalty=True, scale=1.0, **options):
    """Elastic-net least-squares problems of different sizes, with a penalty that draws l1 to 0.1 and l2 to 0.2.

    If the models are not sparse, F is smooth and has one minimiser inside the box."""
    lower, upper = [], []
    for seed, rows, d in SIZES:
        X, y, X_val, y_val = data(seed, rows, d, sparse)
        lower.append(problems.ElasticNet(scale * X, y))
        upper.append(losses.SquaredError(scale * X_val, y_val))
    space = Space(l1=(1e-3 * scale, 1e1 * scale), l2=(1e-2 * scale**2, 1e1 * scale**2))

    def penalties(params):
        return [2.0 * math.log10(params["l1"] / (0.1 * scale)), 2.0 * math.log10(params["l2"] / (0.2 * scale**2))]

    return BilevelProblem(lower, upper, space=space, penalty=penalties if penalty else None, solver=solver, **options)


@cache
def truth(sparse=False):
    """theta -> true F, from lower-level solutions within 1e-12."""
    problem, known = elastic_nets(sparse=sparse), {}

    def true_cost(theta):
        if theta not in known:
            point = np.array(theta)
            weights = [solve(lower, within=1e-12).x for lower in problem.at(point)]
            total = sum(loss.at(w).residual ** 2 for loss, w in zip(problem.losses, weights, strict=True))
            known[theta] = float(total + np.sum(np.square(problem.penalty(problem.space.params(point)))))
        return known[theta]

    return true_cost


@cache
def minimiser():
    """The minimiser of the true F, by a method that has nothing in common with ours."""
    found = minimize(lambda x: truth()(tuple(x.tolist())), [-1.0, -0.5], method="Nelder-Mead", tol=1e-6)
    return tuple(found.x.tolist())


def run(problem, policy="residual", start=START, **options):
    return tune(problem, start, options=Options(policy=policy, **{"final_radius": 1e-3, **options}))


# --- what is proven is true


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_interval_of_a_run_contains_the_true_cost(solver, policy, sparse):
    result, true_cost = run(elastic_nets(solver, sparse=sparse), policy), truth(sparse)
    if solver != "newton":  # which is never that inaccurate here
        assert any(high - low > 1e-4 * high for low, high in (record.interval for record in result.history))
    for record in result.history:
        (low, high), F = record.interval, true_cost(record.theta)
        assert low - 1e-9 <= F <= high + 1e-9
        assert abs(record.cost - F) <= max(high - record.cost, record.cost - low) + 1e-9
    assert result.interval[0] - 1e-9 <= true_cost(tuple(result.theta.tolist())) <= result.interval[1] + 1e-9


def assert_accepted_steps_truly_decrease(result, true_cost):
    accepted = 0
    for record in result.history:
        if record.verdict == "accepted":
            accepted += 1
            proven = (ETA1 - 2 * DECISION_ERROR) * record.step.predicted
            assert true_cost(record.step.origin) - true_cost(record.step.target) >= proven - 1e-9
    assert accepted > 0


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_accepted_steps_truly_decrease(solver, sparse):
    assert_accepted_steps_truly_decrease(run(elastic_nets(solver, sparse=sparse)), truth(sparse))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_distance_to_a_target_errs_as_the_weights_do_and_both_policies_prove_their_steps(solver, policy):
    problem, targets = elastic_nets(solver), [np.full(size, 0.5) for _, _, size in SIZES]
    problem = BilevelProblem(
        problem.lower, [losses.SquaredDistance(target) for target in targets], space=SPACE, solver=solver
    )

    @cache
    def true_cost(theta):
        weights = (solve(lower, within=1e-12).x for lower in problem.at(np.array(theta)))
        return sum(float(np.sum((w - target) ** 2)) for w, target in zip(weights, targets, strict=True))

    result = run(problem, policy)
    for record in result.history:
        assert record.interval[0] - 1e-9 <= true_cost(record.theta) <= record.interval[1] + 1e-9
        assert record.distance <= max(record.errors) <= record.distance * (1 + 1e-9) + 1e-12
    assert_accepted_steps_truly_decrease(result, true_cost)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_all_solvers_and_policies_find_the_same_parameters(solver, policy):
    result, true_cost, best = run(elastic_nets(solver), policy), truth(), minimiser()
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.theta, best, atol=0.02)
    assert true_cost(tuple(result.theta.tolist())) <= true_cost(best) * (1 + 1e-4)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("within", [1.0, 1e-2, 1e-5])
def test_evaluations_deliver_what_is_asked_for(within, solver):
    problem, theta = elastic_nets(solver), np.array([-1.0, -0.5])
    evaluation = problem.evaluate(theta, within=within)
    assert (evaluation.e <= within).all()
    evaluation = problem.evaluate_weights(theta, within=within)
    assert evaluation.distance <= within
    exact = [solve(lower, within=1e-12).x for lower in problem.at(theta)]
    for solution, w in zip(evaluation.solutions, exact, strict=True):
        assert np.linalg.norm(solution.x - w) <= evaluation.distance + 1e-11


def test_accuracy_costs_work():
    problem, theta = elastic_nets(), np.array([-1.0, -0.5])
    work = [problem.evaluate(theta, within=within).work for within in (1.0, 1e-3, 1e-6, 1e-9)]
    assert work == sorted(set(work))


# --- penalties


def test_penalties_are_residuals_without_error():
    problem, theta = elastic_nets(), np.array([-1.0, -0.5])
    evaluation = problem.evaluate(theta, within=1e-1)
    params = problem.space.params(theta)
    assert evaluation.r[-2:].tolist() == problem.penalty(params)
    assert evaluation.e[-2:].tolist() == [0.0, 0.0]
    assert (evaluation.e[:-2] > 0).all()
    without = elastic_nets(penalty=False).evaluate(theta, within=1e-1)
    assert evaluation.cost - without.cost == pytest.approx(sum(np.square(problem.penalty(params))), rel=1e-12)


@pytest.mark.parametrize(("penalty", "count"), [(lambda params: 2.0, 1), (lambda params: (), 0), (None, 0)])
def test_penalties_may_be_a_number_many_or_none(penalty, count):
    base = elastic_nets()
    problem = BilevelProblem(base.lower, base.losses, space=SPACE, penalty=penalty)
    evaluation = problem.evaluate(np.array([-1.0, -0.5]), within=1.0)
    assert evaluation.e.shape == (len(problem) + count,)


def test_a_penalty_that_is_not_finite_is_reported_with_theta():
    base = elastic_nets()
    problem = BilevelProblem(base.lower, base.losses, space=SPACE, penalty=lambda params: math.nan)
    with pytest.raises(OracleError, match=r"theta = \[.*not all finite"):
        run(problem)


# --- names


def test_parameters_are_given_and_reported_by_name():
    problem = elastic_nets()
    by_name = run(problem)
    by_array = run(problem, start=problem.space.theta(START))
    assert by_name.history == by_array.history
    assert by_name.params == problem.space.params(by_name.theta)
    assert set(by_name.params) == {"l1", "l2"}
    assert by_name.params["l1"] == pytest.approx(10 ** by_name.theta[0])
    for name, value in by_name.params.items():
        low, high = problem.space.ranges[name]
        assert low <= value <= high


def test_the_space_gives_the_bounds_unless_others_are_given():
    problem = elastic_nets()
    lower, upper = problem.space.bounds
    thetas = np.array([record.theta for record in run(problem).history])
    assert (thetas >= lower).all() and (thetas <= upper).all()
    inner = tune(problem, START, bounds=([-0.5, -0.5], [0.5, 0.5]), options=Options(max_evaluations=20))
    thetas = np.array([record.theta for record in inner.history])
    assert (np.abs(thetas) <= 0.5).all()


def test_a_start_outside_its_range_is_projected_with_a_warning():
    with pytest.warns(UserWarning, match="outside its bounds"):
        result = tune(elastic_nets(), {"l1": 1e3, "l2": 1.0}, options=Options(max_evaluations=2))
    assert result.history[0].theta[0] == 1.0


@pytest.mark.parametrize("start", [{"l1": 0.5}, {"l1": 0.5, "l2": 1.0, "l3": 2.0}, {"l1": -1.0, "l2": 1.0}])
def test_starts_with_wrong_names_or_values_are_refused(start):
    with pytest.raises(ValueError, match="l1"):
        tune(elastic_nets(), start)


def test_parameters_that_are_not_positive_are_searched_on_their_own_scale():
    class Shifted:
        """w = shift + 1 is the minimiser of (w - shift - 1)^2 / 2 in every coordinate, with a ridge around it."""

        def at(self, *, shift):
            X = np.eye(3)
            return problems.ElasticNet(X, np.full(3, 3.0 * (shift + 1.0))).at(l1=0.0, l2=1.0 / 3.0)

    def loss(w):
        return float(np.sum((w - 2.0) ** 2)) ** 0.5

    problem = BilevelProblem([Shifted()], [losses.Lipschitz(loss, 1.0)], space=Space(shift=(-5.0, 5.0)))
    result = tune(problem, {"shift": -3.0})
    weights = result.solutions[0].x
    np.testing.assert_allclose(weights, 2.0, atol=1e-2)
    assert result.params["shift"] == pytest.approx(result.theta[0])


# --- units


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("factor", [2.0, 2.0**-5, 2.0**9, 255.0])
def test_rescaling_the_features_leaves_the_trajectory_unchanged(factor, sparse):
    """X -> aX, l1 -> a l1, l2 -> a^2 l2: the same predictions, so the same search in shifted coordinates."""
    shift = np.log10(factor) * np.array([1.0, 2.0])
    start = {"l1": factor * START["l1"], "l2": factor**2 * START["l2"]}
    one, other = run(elastic_nets(sparse=sparse)), run(elastic_nets(sparse=sparse, scale=factor), start=start)
    assert [record.purpose for record in other.history] == [record.purpose for record in one.history]
    for a, b in zip(one.history, other.history, strict=True):
        np.testing.assert_allclose(np.array(b.theta) - shift, a.theta, atol=1e-5)
        assert b.cost == pytest.approx(a.cost, rel=1e-5)
        assert b.interval == pytest.approx(a.interval, rel=1e-5)
        assert b.work == a.work


# --- continuing


@pytest.mark.parametrize("method", ["evaluate", "evaluate_weights"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_an_evaluation_is_continued_at_the_price_of_the_difference(solver, method):
    """In two goes or in one: the same iterates, and every step is paid for once."""
    problem, theta = elastic_nets(solver), np.array([-1.0, -0.5])
    evaluate = getattr(problem, method)
    coarse = evaluate(theta, within=1e-1)
    fine = evaluate(theta, within=1e-6, warm=coarse)
    assert coarse.work + fine.work == sum(solution.steps for solution in fine.solutions)
    for lower, solution in zip(problem.at(theta), fine.solutions, strict=True):
        assert solve(lower, steps=solution.steps, solver=solver).x.tobytes() == solution.x.tobytes()
    again = evaluate(theta, within=1e-6, warm=fine)
    assert again.work == 0
    assert again.r.tobytes() == fine.r.tobytes()


def test_refinements_within_a_run_cost_the_difference_only():
    result = run(elastic_nets(), derivatives="never")  # which are work on top
    refined = [record for record in result.history if record.purpose.startswith("refine")]
    assert refined
    steps = {record.theta: 0.0 for record in result.history}
    for record in result.history:
        steps[record.theta] += record.work
    at_end = tuple(result.theta.tolist())
    assert steps[at_end] == sum(solution.steps for solution in result.solutions)


def test_a_warm_start_elsewhere_saves_work_and_proves_nothing():
    problem, here, near = elastic_nets(), np.array([-1.0, -0.5]), np.array([-1.01, -0.5])
    known = problem.evaluate(here, within=1e-8)
    warm, cold = problem.evaluate(near, within=1e-6, warm=known), problem.evaluate(near, within=1e-6)
    assert warm.work < cold.work
    exact = [solve(lower, within=1e-12).x for lower in problem.at(near)]
    for solution, w in zip(warm.solutions, exact, strict=True):
        assert np.linalg.norm(solution.x - w) <= solution.certificate.radius + 1e-11


def test_another_solver_s_solution_is_a_start_and_not_a_credit():
    theta = np.array([-1.0, -0.5])
    known = elastic_nets("gradient_descent").evaluate(theta, within=1e-6)
    evaluation = elastic_nets("fista").evaluate(theta, within=1e-3, warm=known)
    assert evaluation.work == sum(solution.steps for solution in evaluation.solutions)


def test_a_limited_problem_is_the_same_one_with_fewer_steps_and_its_errors_are_true():
    problem, theta = elastic_nets(), np.array([-1.0, -0.5])
    limited = problem.limited(5)
    short, whole = (one.evaluate(theta, within=1e-9) for one in (limited, problem))
    assert short.work <= 5 * len(problem) < whole.work and short.e.max() > 1e-9 >= whole.e.max()
    assert short.interval[0] <= whole.interval[1] and whole.interval[0] <= short.interval[1]
    same = elastic_nets(max_steps=5).evaluate(theta, within=1e-9)
    assert short.r.tolist() == same.r.tolist() and problem.max_steps > 5 == limited.max_steps
    on = problem.evaluate(theta, within=1e-9, warm=short)  # is continued, not made again
    assert on.work == whole.work - short.work
    with pytest.raises(ValueError, match="max_steps must be a positive integer"):
        problem.limited(0)


def test_a_solve_that_needs_too_many_steps_comes_back_and_is_continued():
    problem, theta = elastic_nets(max_steps=5), np.array([-1.0, -0.5])
    evaluation = problem.evaluate(theta, within=1e-8)
    assert any(solution.outcome is Outcome.MAX_STEPS for solution in evaluation.solutions)
    assert (evaluation.e > 1e-8).any()
    for _ in range(100):
        if (evaluation.e <= 1e-8).all():
            break
        evaluation = problem.evaluate(theta, within=1e-8, warm=evaluation)
        assert evaluation.work <= 5 * len(problem)
    assert (evaluation.e <= 1e-8).all()


def test_an_accuracy_beyond_floating_point_is_told_not_pretended():
    problem, theta = elastic_nets(), np.array([-1.0, -0.5])
    evaluation = problem.evaluate(theta, within=1e-18)
    assert (evaluation.e[: len(problem)] > 1e-18).all()
    assert (evaluation.e < 1e-9).all()


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_earlier_solutions_are_not_touched_by_later_evaluations(policy, solver):
    problem = elastic_nets(solver)
    method = problem.evaluate_weights if policy == "weights" else problem.evaluate
    tuner = Tuner(SPACE.theta(START), bounds=SPACE.bounds, options=Options(policy=policy, max_evaluations=25))
    kept = []
    while not tuner.done:
        request = tuner.ask()
        evaluation = method(request.theta, within=request.within, warm=request.warm)
        kept.append((evaluation, [array.copy() for array in arrays_of(evaluation)]))
        tuner.tell(evaluation)
    for evaluation, copies in kept:
        for array, copy in zip(arrays_of(evaluation), copies, strict=True):
            np.testing.assert_array_equal(array, copy)


def arrays_of(evaluation):
    """Every array that an evaluation hands on."""
    yield from (evaluation.point, evaluation.r, evaluation.e)
    for solution in evaluation.solutions:
        yield solution.x
        if solution.state is not None:
            state = vars(solution.state)
            yield from (value for value in state.values() if isinstance(value, np.ndarray))


def test_what_a_request_hands_out_as_warm_cannot_be_written_to():
    problem = elastic_nets()
    tuner = Tuner(SPACE.theta(START), bounds=SPACE.bounds, options=Options(max_evaluations=25))
    warm_requests = 0
    while not tuner.done:
        request = tuner.ask()
        if request.warm is not None:
            warm_requests += 1
            for array in (request.warm.point, request.warm.r, request.warm.e, *(s.x for s in request.warm.solutions)):
                with pytest.raises(ValueError, match="read-only"):
                    array[0] = 77.0
        tuner.tell(problem.evaluate(request.theta, within=request.within, warm=request.warm))
    assert warm_requests > 20


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_array_of_an_evaluation_can_be_written_to(solver):
    evaluation = elastic_nets(solver).evaluate(np.array([-1.0, -0.5]), within=1e-3)
    assert not any(array.flags.writeable for array in arrays_of(evaluation))


# --- state


def asked(problem, policy):
    """The answer to a request, as `tune` has it made."""
    method = problem.evaluate_weights if policy == "weights" else problem.evaluate

    def answer(request):
        made = method(request.theta, within=request.within, warm=request.warm)
        return problem.differentiate(made) if request.derivatives and made.interval[1] <= request.below else made

    return answer


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_run_written_down_after_every_evaluation_continues_to_the_same_bits(solver, policy):
    """Every evaluation is made by a new problem for a new tuner, as after a restart of the program."""
    options = Options(policy=policy, final_radius=1e-3)
    straight = tune(elastic_nets(solver), START, options=options)
    tuner = Tuner(SPACE.theta(START), bounds=SPACE.bounds, options=options)
    while not tuner.done:
        tuner.tell(asked(elastic_nets(solver), policy)(tuner.ask()))
        tuner = Tuner.from_state(json.loads(json.dumps(tuner.state(), allow_nan=False)))
    assert tuner.history == straight.history
    assert tuner.result().theta.tobytes() == straight.theta.tobytes()
    assert tuner.result().interval == straight.interval


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("solver", ["fista", "gradient_descent"])
def test_a_run_stopped_anywhere_continues_to_the_same_bits(solver, policy):
    options = Options(policy=policy, final_radius=1e-2, max_evaluations=20)
    problem = elastic_nets(solver)
    tuner = Tuner(SPACE.theta(START), bounds=SPACE.bounds, options=options)
    states = []
    while not tuner.done:
        states.append(json.dumps(tuner.state(), allow_nan=False))
        tuner.tell(asked(problem, policy)(tuner.ask()))
    for state in states:
        restored = Tuner.from_state(json.loads(state))
        while not restored.done:
            restored.tell(asked(problem, policy)(restored.ask()))
        assert restored.history == tuner.history
        assert restored.result().theta.tobytes() == tuner.result().theta.tobytes()


class Mine(GradientDescent):
    """A solver of the user's own."""

    def __init__(self):
        super().__init__(name="mine")


def test_a_run_with_a_solver_of_the_user_s_own_continues():
    problem = elastic_nets(Mine())
    tuner = Tuner(SPACE.theta(START), bounds=SPACE.bounds, options=Options(final_radius=1e-3))
    while not tuner.done:
        tuner.tell(asked(problem, "residual")(tuner.ask()))
        tuner = Tuner.from_state(json.loads(json.dumps(tuner.state(), allow_nan=False)))
    assert tuner.result().success


# --- fixed accuracy


@pytest.mark.parametrize("steps", [1, 7, 40])
def test_fixed_accuracy_is_a_pure_function_of_theta(steps):
    problem = elastic_nets()
    fixed, theta, other = problem.fixed(steps), np.array([-1.0, -0.5]), np.array([0.3, -1.2])
    first = fixed.evaluate(theta, within=1.0)
    elsewhere = fixed.evaluate(other, within=1e-9, warm=first)
    precise = problem.evaluate(theta, within=1e-9)
    for warm in (None, first, elsewhere, precise):
        for method in (fixed.evaluate, fixed.evaluate_weights):
            again = method(theta, within=1e-6, warm=warm)
            assert again.r.tobytes() == first.r.tobytes()
            assert again.work == first.work == steps * len(problem)
            assert all(solution.steps == steps for solution in again.solutions)


@given(st.tuples(st.floats(-3, 1), st.floats(-2, 1)), st.sampled_from([1, 5, 30]), st.sampled_from(list(SOLVERS)))
def test_fixed_accuracy_is_exact_as_such_and_its_certificate_tells_about_the_true_cost(theta, steps, solver):
    problem = elastic_nets(solver)
    evaluation = problem.fixed(steps).evaluate(np.array(theta), within=1.0)
    assert evaluation.interval == (evaluation.cost, evaluation.cost)
    assert not evaluation.e.any()
    certified = problem.certified(evaluation)
    assert certified.cost == evaluation.cost
    low, high = certified.interval
    assert low - 1e-9 <= truth()(theta) <= high + 1e-9
    assert low < high


@pytest.mark.parametrize(
    "policy",
    [
        "residual",
        "weights",
    ],
)
def test_tuning_at_fixed_accuracy_minimises_that_function(policy):
    problem = elastic_nets()
    result = run(problem.fixed(5), policy, final_radius=1e-4)
    assert result.status is Status.CONVERGED
    assert result.params == problem.space.params(result.theta)
    assert all(record.interval == (record.cost, record.cost) for record in result.history)
    assert not any(record.purpose.startswith("refine") for record in result.history)
    rng = np.random.default_rng(0)
    for theta in np.clip(result.theta + 0.05 * rng.standard_normal((20, 2)), *problem.space.bounds):
        assert problem.fixed(5).evaluate(theta, within=1.0).cost >= result.cost * (1 - 1e-6)


def test_certified_evaluations_of_a_run_prove_what_they_did():
    problem = elastic_nets()
    result = run(problem)
    again = problem.certified(result.evaluation)
    assert again.r.tobytes() == result.evaluation.r.tobytes()
    assert again.e.tobytes() == result.evaluation.e.tobytes()


@pytest.mark.parametrize("steps", [0, -1, 2.5, True, None])
def test_a_bad_number_of_steps_is_named(steps):
    with pytest.raises(ValueError, match=f"steps must be a positive integer, got {steps!r}"):
        elastic_nets().fixed(steps)


# --- construction and arguments


def test_problems_of_different_sizes_go_together():
    problem = elastic_nets()
    evaluation = problem.evaluate(np.array([-1.0, -0.5]), within=1e-3)
    assert len(problem) == 3
    assert [len(solution.x) for solution in evaluation.solutions] == [5, 4, 6]
    assert all(isinstance(solution, Solution) for solution in evaluation.solutions)
    assert evaluation.distance == max(solution.certificate.radius for solution in evaluation.solutions)


BASE = elastic_nets()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"lower": [], "losses": []}, ValueError, "lower must hold at least one"),
        ({"losses": BASE.losses[:2]}, ValueError, "losses must be one per problem, got 2 for 3 problems"),
        ({"space": {"l1": (1, 2)}}, TypeError, r"space must be a Space, got \{'l1': \(1, 2\)\}"),
        ({"space": Space(l1=(1e-3, 1.0))}, TypeError, r"lower\[0\]\.at does not take the parameters l1 of space"),
        ({"space": Space(l1=(1, 2), l2=(1, 2), l3=(1, 2))}, TypeError, "does not take the parameters l1, l2, l3"),
        ({"lower": [1, 2, 3]}, TypeError, r"lower\[0\] must offer at\(\*\*params\), 1 does not"),
        ({"losses": [*BASE.losses[:2], 5]}, TypeError, r"losses\[2\] must offer at\(w\), 5 does not"),
        ({"penalty": 3.0}, TypeError, r"penalty must be callable, got 3\.0"),
        ({"max_steps": 0}, ValueError, "max_steps must be a positive integer, got 0"),
        ({"max_steps": 1.5}, ValueError, r"max_steps must be a positive integer, got 1\.5"),
        ({"solver": "adam"}, ValueError, "solver must be one of .* got 'adam'"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        BilevelProblem(**{"lower": BASE.lower, "losses": BASE.losses, "space": SPACE, **arguments})


@pytest.mark.parametrize("method", ["evaluate", "evaluate_weights"])
@pytest.mark.parametrize(("within", "error"), [(-1.0, ValueError), (math.nan, ValueError), ("fine", TypeError)])
def test_a_bad_request_is_named(method, within, error):
    with pytest.raises(error, match="within"):
        getattr(elastic_nets(), method)(np.array([-1.0, -0.5]), within=within)


def test_a_theta_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match=r"theta must have length 2 \(l1, l2\), got 3"):
        elastic_nets().evaluate(np.zeros(3), within=1.0)


def test_a_warm_start_of_another_problem_is_refused():
    theta = np.array([-1.0, -0.5])
    warm = Evaluation(theta, [1.0], [0.0], solutions=elastic_nets().evaluate(theta, within=1.0).solutions[:1])
    with pytest.raises(ValueError, match="warm must hold 3 solutions, got 1"):
        elastic_nets().evaluate(theta, within=1.0, warm=warm)


def test_a_warm_start_without_solutions_is_a_cold_start():
    theta = np.array([-1.0, -0.5])
    bare = Evaluation(theta, np.ones(5), np.zeros(5))
    warm, cold = (elastic_nets().evaluate(theta, within=1e-3, warm=start) for start in (bare, None))
    assert warm.r.tobytes() == cold.r.tobytes()
    assert warm.work == cold.work


def test_a_lower_level_that_fails_is_reported_with_theta():
    class Fragile:
        def at(self, *, l1, l2):
            if l1 > 0.6:
                raise ArithmeticError("no model for this")
            return BASE.lower[0].at(l1=l1, l2=l2)

    problem = BilevelProblem([Fragile()], [BASE.losses[0]], space=SPACE)
    with pytest.raises(OracleError, match=r"no model for this.*theta = \[") as caught:
        run(problem)
    assert caught.value.theta[0] > math.log10(0.6)
    assert caught.value.result.evaluations >= 1
    assert caught.value.result.params is not None


def test_the_weights_policy_needs_evaluations_on_weights():
    class ResidualsOnly:
        def evaluate(self, theta, *, within, warm=None):
            return BASE.evaluate(theta, within=within, warm=warm)

    with pytest.raises(TypeError, match="evaluate_weights"):
        tune(ResidualsOnly(), [-0.3, 0.0], options=Options(policy="weights"))


def test_a_request_on_the_distance_is_not_met_by_a_start_that_has_not_moved():
    """A warm start may be near enough at once; its loss would be that of the theta it came from."""
    problem, near, theta = elastic_nets("fista"), np.array([-1.0, -0.5]), np.array([-1.3, -0.9])
    known = problem.evaluate(near, within=1e-9)
    warm = problem.evaluate_weights(theta, within=10.0, warm=known)
    for solution, start in zip(warm.solutions, known.solutions, strict=True):
        assert solution.certificate.radius <= 0.2 * np.linalg.norm(solution.x - start.x)
    exact = problem.evaluate(theta, within=1e-9).cost
    assert abs(warm.cost - exact) < 0.5 * abs(known.cost - exact)


def test_a_proven_verdict_does_not_wait_for_the_distance_of_the_weights():
    """With tiny features the weights are large and the loss is shallow: their distance says nothing against a proof."""
    rng = np.random.default_rng(0)
    X, y = 1e-4 * rng.standard_normal((40, 5)), rng.standard_normal(40)
    problem = BilevelProblem(
        [problems.ElasticNet(X, y)],
        [losses.SquaredError(X[:20], y[:20])],
        space=Space(l1=(1e-9, 1e-3), l2=(1e-12, 1e-6)),
        solver="fista",
    )
    result = tune(problem, {"l1": 1e-6, "l2": 1e-9}, options=Options(policy="weights", final_radius=1e-3))
    assert result.status is Status.CONVERGED


@pytest.mark.parametrize("solver", ["auto", "newton", "fista_adaptive"])
def test_a_start_at_the_same_theta_about_which_nothing_is_proven_is_not_taken_for_a_solution(solver):
    """A start blended from neighbours may carry this very theta: in the search's units it differed in the last bit."""
    fresh = np.random.default_rng(0)
    X = fresh.standard_normal((40, 4))
    y = X @ np.ones(4) + fresh.standard_normal(40)
    problem = BilevelProblem(
        [problems.ElasticNet(X, y)],
        [losses.SquaredError(X, y)],
        space=Space(l1=(1e-6, 1.0), l2=(1e-6, 1.0)),
        solver=solver,
    )
    theta = np.array([-3.0, -3.0])
    exact = problem.evaluate(theta, within=1e-8)
    start = Solution(0.5 * exact.solutions[0].x, Certificate(math.inf, "none"), 0, Outcome.STEPS, solver)
    again = problem.evaluate(theta, within=1e-6, warm=replace(exact, solutions=(start,)))
    assert (again.e <= 1e-6).all()
    assert again.cost == pytest.approx(exact.cost, rel=1e-5)


def test_a_first_step_whose_free_certificate_is_enough_is_not_verified(monkeypatch):
    tried = []
    monkeypatch.setattr(solver_module, "verified", lambda *_: tried.append(1))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 5))
    y = X.sum(axis=1) + rng.standard_normal(400)
    problem = BilevelProblem([problems.ElasticNet(X, y)], [losses.SquaredError(X, y)], space=SPACE)
    theta = np.array([-2.0, -1.0])
    evaluation = problem.evaluate(theta, within=1e-2)
    assert evaluation.work == 1
    assert np.all(evaluation.e <= 1e-2)
    assert not tried
