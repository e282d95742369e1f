"""The inner loop: it stops when the proof is there, continues to the same bits, and tells what it did not reach."""

import math
import re
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pytest

from suffice import Composite, Outcome, Solution, iterate, solve
from suffice.problems import ElasticNet, ElasticNetHuber, ElasticNetLogistic, ElasticNetPoisson
from suffice.rows.design import Design
from suffice.solvers.certificate import RULES, Evidence
from suffice.solvers.fista import Fista
from suffice.solvers.solver import SOLVERS, refusal
from suffice.terms import HUBER, L1, LOGISTIC, SQUARED, Box, Group, LinearModel, NonNegative, Zero
from tests.reference import LOSSES, SOLVABLE, OwnProx, OwnSmooth, norm, random_case, solves

rng = np.random.default_rng(11)
N, D = 40, 10
X = rng.standard_normal((N, D))
y = X[:, :3] @ np.array([1.0, -2.0, 0.5]) + 0.3 * rng.standard_normal(N)


def model(psi, prox, l2=0.02):
    smooth = LinearModel(Design.of(X), np.where(y > 0, 1.0, -1.0) if psi is LOGISTIC else y, psi, l2)
    return Composite(smooth, prox, mu=l2, L=smooth.L, size=D)


A = X.T @ X / N + 0.05 * np.eye(D)
PROBLEMS = {
    "lasso": ElasticNet(X, y).at(l1=0.1, l2=0.02),
    "logistic": ElasticNetLogistic(X, y > 0).at(l1=0.02, l2=0.01),
    "huber": ElasticNetHuber(X, y).at(l1=0.05, l2=0.02),
    "ridge": model(SQUARED, Zero()),
    "logistic group lasso": model(LOGISTIC, Group(np.split(np.arange(D), 5), 0.03)),
    "non-negative least squares": model(SQUARED, NonNegative()),
    "huber in a box": model(HUBER, Box(-0.2, 0.6)),
    "user's f and g": Composite(
        OwnSmooth(A, X.T @ y / N), OwnProx(L1(0.1)), mu=0.04, L=float(np.linalg.norm(A, 2)) * 1.001, size=D
    ),
}


def takes(solver, name):
    return refusal(solver, PROBLEMS[name]) is None


by_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())
by_solver = pytest.mark.parametrize("solver", SOLVERS)
by_both = pytest.mark.parametrize(
    "problem, solver",
    [
        pytest.param(problem, solver, id=f"{name}-{solver}")
        for name, problem in PROBLEMS.items()
        for solver in SOLVERS
        if takes(solver, name)
    ],
)
infeasible = np.linspace(-5.0, 5.0, D)


# What a solver takes

LINEAR = {"lasso", "logistic", "huber", "ridge"}  # with an l1 penalty or none
OTHER_G = {"logistic group lasso", "non-negative least squares", "huber in a box"}
COUNTS = ElasticNetPoisson(X, np.round(np.abs(y))).at(l1=0.1, l2=0.1)  # no Lipschitz constant


@pytest.mark.parametrize(
    "solver, names, counts",
    [
        ("auto", set(PROBLEMS), True),
        ("newton", LINEAR | OTHER_G, True),
        ("fista", set(PROBLEMS), False),
        ("fista_adaptive", set(PROBLEMS), False),
        ("gradient_descent", set(PROBLEMS), False),
        ("newton_tv", set(), False),
    ],
    ids=lambda value: getattr(value, "name", value) if not isinstance(value, set | bool) else "",
)
def test_a_solver_says_what_it_takes_and_refuses_the_rest_with_its_reason(solver, names, counts):
    assert {name for name in PROBLEMS if takes(solver, name)} == names
    assert (refusal(solver, COUNTS) is None) == counts
    for problem in (COUNTS, *PROBLEMS.values()):
        reason = refusal(solver, problem)
        if reason is not None:
            with pytest.raises(ValueError, match=re.escape(reason)):
                solve(problem, steps=1, solver=solver)


def test_a_solver_that_says_nothing_takes_everything():
    class Bare:
        name, start, step = "bare", Fista().start, Fista().step

    assert all(refusal(Bare(), problem) is None for problem in PROBLEMS.values())


# What was asked for


@by_both
@pytest.mark.parametrize("within", [1.0, 1e-3, 1e-8])
def test_it_stops_at_the_first_proof(problem, solver, within):
    solution = solve(problem, within=within, solver=solver, warm=infeasible)
    assert solution.outcome is Outcome.REACHED and solution.reached
    assert solution.certificate.radius <= within
    radii = [
        step.certificate.radius for step in islice(iterate(problem, solver=solver, warm=infeasible), solution.steps)
    ]
    assert all(radius > within for radius in radii)


@pytest.mark.parametrize("name", PROBLEMS)
def test_all_solvers_agree(name):
    found = [solve(PROBLEMS[name], within=1e-9, solver=solver) for solver in SOLVERS if takes(solver, name)]
    for other in found[1:]:
        assert np.linalg.norm(other.x - found[0].x) <= 2e-9


@by_both
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_a_number_of_steps_is_taken_exactly(problem, solver, steps):
    solution = solve(problem, steps=steps, solver=solver)
    assert (solution.steps, solution.outcome, solution.reached) == (steps, Outcome.STEPS, True)
    *_, last = islice(iterate(problem, solver=solver), steps + 1)
    assert np.array_equal(solution.x, last.x)
    assert solution.certificate == last.certificate


def test_no_step_proves_nothing():
    solution = solve(PROBLEMS["lasso"], steps=0, warm=infeasible)
    assert np.array_equal(solution.x, infeasible)
    assert solution.certificate.radius == math.inf


@by_both
def test_many_steps_after_convergence_do_no_harm(problem, solver):
    solution = solve(problem, steps=2500, solver=solver)
    close = solve(problem, within=1e-9, solver=solver)
    assert np.linalg.norm(solution.x - close.x) <= 1e-9 + solution.certificate.radius
    assert solution.certificate.radius <= 1e-8


def test_a_column_of_zeros_does_no_harm_either():
    # Its weight decays towards 0 for as long as there are steps, past the range in which squares are floats.
    data = X.copy()
    data[:, 0] = 0.0
    smooth = LinearModel(Design.of(data), y, HUBER, 0.5)
    problem = Composite(smooth, NonNegative(), mu=0.5, L=smooth.L, size=D)
    for solver in ("fista", "fista_adaptive", "gradient_descent"):
        solution = solve(problem, steps=3000, solver=solver, warm=np.ones(D))
        assert solution.certificate.radius <= 1e-8


# What was not reached is told


@by_both
def test_max_steps_are_an_outcome_with_a_valid_certificate(problem, solver):
    truth = solve(problem, within=1e-10, solver=solver)
    most = min(3, truth.steps - 1)
    solution = solve(problem, within=1e-10, max_steps=most, solver=solver)
    assert (solution.outcome, solution.reached, solution.steps) == (Outcome.MAX_STEPS, False, most)
    assert np.linalg.norm(solution.x - truth.x) - 1e-10 <= solution.certificate.radius
    assert solution.certificate.radius < math.inf or most == 0  # Newton's one step solved it


def test_max_steps_limit_this_call_only():
    first = solve(PROBLEMS["lasso"], within=1e-8, solver="fista", max_steps=4)
    second = solve(PROBLEMS["lasso"], within=1e-8, solver="fista", max_steps=5, warm=first)
    assert (first.steps, second.steps) == (4, 9)


# A user's own g has no shortest subgradient; Newton's steps are not prox-gradient steps.
ENDS = [
    (term, solver, rule)
    for term, solver in sorted({(term, solver) for _, term, solver in SOLVABLE})
    for rule in RULES
    if not (rule == "minimum_norm" and term.startswith("own")) and not (rule == "subgradient" and solver == "newton")
]


@pytest.mark.parametrize("term, solver, rule", ENDS)
def test_less_than_rounding_is_an_outcome_and_not_an_endless_loop(term, solver, rule):
    for loss in (loss for loss in LOSSES if solves(solver, loss, term)):
        case = next(case for seed in range(50) if (case := random_case(loss, term, seed)).problem.kappa < 20.0)
        start = case.random_start(np.random.default_rng(0))
        solution = solve(case.problem, within=0.0, solver=solver, certificate=rule, warm=start, max_steps=1500)
        assert solution.outcome in (Outcome.PRECISION, Outcome.REACHED), loss  # exactly 0 can be proven
        assert case.distance(solution.x) <= solution.certificate.radius, loss


class Diverging(OwnSmooth):
    """A gradient that turns NaN away from the start."""

    def gradient(self, x):
        return np.where(x == 0.0, 1.0, math.nan)


@pytest.mark.parametrize("solver", ["auto", "fista", "fista_adaptive", "gradient_descent"])
def test_a_gradient_that_is_not_finite_stops_the_solve(solver):
    problem = Composite(Diverging(np.eye(D), np.ones(D)), Zero(), mu=0.1, L=1.0, size=D)
    with pytest.raises((ValueError, ArithmeticError), match="finite"):
        solve(problem, within=1e-6, solver=solver, max_steps=1000)


# Continuing


@by_both
def test_continuing_costs_the_difference_and_gives_the_same_bits(problem, solver):
    rough = solve(problem, within=1e-3, solver=solver)
    fine = solve(problem, within=1e-8, solver=solver, warm=rough)
    straight = solve(problem, within=1e-8, solver=solver)
    assert rough.steps <= fine.steps == straight.steps  # Newton's one step may do for both
    assert rough.certificate.radius <= 1e-3 and fine.certificate.radius <= 1e-8
    assert np.array_equal(fine.x, straight.x)
    assert fine.certificate == straight.certificate


@by_both
@pytest.mark.parametrize("first", [0, 1, 2, 5])
def test_steps_add_up(problem, solver, first):
    parts = solve(
        problem, steps=9 - first, solver=solver, warm=solve(problem, steps=first, solver=solver, warm=infeasible)
    )
    whole = solve(problem, steps=9, solver=solver, warm=infeasible)
    assert parts.steps == 9
    assert np.array_equal(parts.x, whole.x)
    assert parts.certificate == whole.certificate


@by_both
def test_continuing_leaves_the_solution_alone(problem, solver):
    rough = solve(problem, within=1e-2, solver=solver, warm=infeasible)
    x, certificate = rough.x.copy(), rough.certificate
    solve(problem, within=1e-8, solver=solver, warm=rough)
    again = solve(problem, within=1e-6, solver=solver, warm=rough)
    assert np.array_equal(rough.x, x) and rough.certificate == certificate
    assert np.array_equal(again.x, solve(problem, within=1e-6, solver=solver, warm=infeasible).x)


@by_both
def test_the_arrays_of_a_solution_are_read_only(problem, solver):
    solution = solve(problem, within=1e-2, solver=solver)
    arrays = [value for value in vars(solution.state).values() if isinstance(value, np.ndarray)]
    for array in (solution.x, *arrays):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0


@by_solver
def test_a_start_is_copied(solver):
    start = infeasible.copy()
    solution = solve(PROBLEMS["lasso"], steps=0, solver=solver, warm=start)
    start[0] = 99.0
    assert solution.x[0] == infeasible[0]


@by_both
def test_a_solution_that_is_accurate_enough_comes_back_without_a_step(problem, solver):
    fine = solve(problem, within=1e-6, solver=solver)
    rough = solve(problem, within=1e-2, solver=solver, warm=fine)
    assert rough.steps == fine.steps and rough.x is fine.x
    assert rough.outcome is Outcome.REACHED
    assert rough.certificate == fine.certificate


@by_solver
def test_a_solution_of_another_theta_lends_its_x_only(solver):
    family = ElasticNet(X, y)
    near = solve(family.at(l1=0.1, l2=0.02), within=1e-6, solver=solver)
    problem = family.at(l1=0.11, l2=0.02)
    from_solution = solve(problem, within=1e-6, solver=solver, warm=near)
    from_point = solve(problem, within=1e-6, solver=solver, warm=near.x.copy())
    assert from_solution.steps == from_point.steps <= solve(problem, within=1e-6, solver=solver).steps
    assert np.array_equal(from_solution.x, from_point.x)
    assert np.linalg.norm(from_solution.x - solve(problem, within=1e-9).x) <= 1e-6 + 1e-9


def test_an_equal_problem_built_again_is_the_same_problem():
    family = ElasticNet(X, y)
    rough = solve(family.at(l1=0.1, l2=0.02), within=1e-3)
    fine = solve(family.at(l1=0.1, l2=0.02), within=1e-8, warm=rough)
    assert fine.steps == solve(family.at(l1=0.1, l2=0.02), within=1e-8).steps


def test_a_solution_by_another_solver_lends_its_x_only():
    problem = PROBLEMS["lasso"]
    rough = solve(problem, within=1e-3, solver="gradient_descent")
    fine = solve(problem, within=1e-6, solver="fista", warm=rough)
    assert fine.steps == solve(problem, within=1e-6, solver="fista", warm=rough.x.copy()).steps


@dataclass
class OwnDataclass:
    """A user's f whose == is that of its arrays."""

    A: np.ndarray
    b: np.ndarray

    value, gradient = OwnSmooth.value, OwnSmooth.gradient


def test_a_users_terms_need_not_be_comparable():
    one, other = (Composite(OwnDataclass(A.copy(), X.T @ y / N), Zero(), mu=0.04, L=9.0, size=D) for _ in range(2))
    rough = solve(one, within=1e-2)
    assert solve(other, within=1e-5, warm=rough).reached
    assert solve(one, within=1e-5, warm=rough).reached


# Solvers, starts and what is refused


@dataclass(frozen=True)
class Exact:
    """A user's solver: one Newton step; its evidence is the gradient at x, without a step length."""

    name: str = "exact"

    @dataclass(frozen=True)
    class State:
        x: np.ndarray
        image: np.ndarray
        evidence: Evidence | None = None

    def start(self, problem, x):
        return self.State(x, problem.f.image(x))

    def step(self, problem, state):
        x = np.linalg.solve(A, X.T @ y / N)
        image = problem.f.image(x)
        return self.State(x, image, Evidence(x, image, problem.f.gradient_at(x, image)))


@pytest.mark.parametrize("rule", ["tightest", "contraction", "gap", "minimum_norm"])
def test_a_users_solver_feeds_the_same_certificates(rule):
    problem = Composite(OwnSmooth(A, X.T @ y / N), Zero(), mu=0.04, L=9.0, size=D)
    solution = solve(problem, within=1e-9, solver=Exact(), certificate=rule)
    assert (solution.steps, solution.outcome) == (1, Outcome.REACHED)
    assert np.linalg.norm(solution.x - solve(problem, within=1e-9).x) <= 2e-9


def test_a_rule_that_needs_a_prox_step_says_so():
    problem = Composite(OwnSmooth(A, X.T @ y / N), Zero(), mu=0.04, L=9.0, size=D)
    with pytest.raises(
        ValueError, match="certificate='subgradient' needs a solver whose last move was a prox-gradient"
    ):
        solve(problem, steps=1, solver=Exact(), certificate="subgradient")


def test_a_solver_may_be_given_itself():
    problem = PROBLEMS["lasso"]
    for name, solver in SOLVERS.items():
        assert np.array_equal(solve(problem, steps=5, solver=solver).x, solve(problem, steps=5, solver=name).x)


def test_a_problem_without_size_takes_a_start():
    problem = Composite(OwnSmooth(A, X.T @ y / N), L1(0.1), mu=0.04, L=9.0)
    with pytest.raises(ValueError, match="the problem has no size: give a starting point as `warm`"):
        solve(problem, within=1e-3)
    assert solve(problem, within=1e-3, warm=np.zeros(D)).reached


def test_a_start_may_be_a_list():
    assert np.array_equal(solve(PROBLEMS["lasso"], steps=2, warm=[0] * D).x, solve(PROBLEMS["lasso"], steps=2).x)


def test_outcomes_are_their_own_messages():
    assert all(outcome.value for outcome in Outcome)
    assert {outcome.name for outcome in Outcome} == {"REACHED", "STEPS", "MAX_STEPS", "PRECISION"}
    assert isinstance(solve(PROBLEMS["lasso"], steps=1), Solution)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({}, ValueError, "give exactly one of within and steps, got within=None, steps=None"),
        ({"within": 1.0, "steps": 3}, ValueError, "give exactly one of within and steps, got within=1.0, steps=3"),
        ({"within": -1.0}, ValueError, "within must be non-negative"),
        ({"within": math.nan}, ValueError, "within must be non-negative"),
        ({"within": "a"}, TypeError, "within must be a real number, got 'a'"),
        ({"steps": -1}, ValueError, "steps must be a non-negative integer, got -1"),
        ({"steps": 1.5}, ValueError, "steps must be a non-negative integer, got 1.5"),
        ({"steps": True}, ValueError, "steps must be a non-negative integer, got True"),
        ({"within": 1.0, "max_steps": -2}, ValueError, "max_steps must be a non-negative integer, got -2"),
        ({"within": 1.0, "max_steps": 2.0}, ValueError, "max_steps must be a non-negative integer, got 2.0"),
        ({"within": 1.0, "solver": "adam"}, ValueError, "newton or a Solver, got 'adam'"),
        ({"within": 1.0, "solver": 3}, TypeError, "solver must offer start and step, 3 does not"),
        (
            {"within": 1.0, "certificate": "hope"},
            ValueError,
            "certificate must be one of tightest, free, verified, contraction, gap",
        ),
        ({"within": 1.0, "warm": np.ones(3)}, ValueError, "warm must have shape (10,), got (3,)"),
        ({"within": 1.0, "warm": np.full(D, math.nan)}, ValueError, "warm must be finite, got"),
        ({"within": 1.0, "warm": np.ones((D, 1))}, ValueError, "warm must be one-dimensional, got shape (10, 1)"),
        ({"within": 1.0, "warm": "x"}, TypeError, "warm must be a vector of real numbers, got 'x'"),
    ],
)
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        solve(PROBLEMS["lasso"], **arguments)


def test_a_solution_of_another_size_is_no_start():
    small = solve(ElasticNet(X[:, :4], y).at(l1=0.1, l2=0.1), within=1e-2)
    with pytest.raises(ValueError, match=re.escape("warm must have shape (10,), got (4,)")):
        solve(PROBLEMS["lasso"], within=1e-2, warm=small)


def test_certificates_of_a_long_run_follow_the_truth_down():
    case = random_case("squared", "l1", 0)
    distances = [float(norm(solution.x - case.x_hat)) for solution in islice(iterate(case.problem), 1, 2000)]
    radii = [solution.certificate.radius for solution in islice(iterate(case.problem), 1, 2000)]
    assert min(radii) <= 1e-6 * radii[0] and min(distances) <= 1e-6 * distances[0]


def test_a_continued_solution_that_the_gap_cannot_prove_is_verified_before_it_is_given_up():
    """With a tiny l2, rounding hides what is asked for from the duality gap, but not from a verification."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 5))
    problem = ElasticNet(X, X @ [1.0, 2.0, 0.0, 0.0, 3.0] + rng.standard_normal(200)).at(l1=0.1, l2=1e-10)
    exact = solve(problem, within=1e-9, solver="newton")
    start = solve(problem, steps=1, warm=exact.x, solver="newton", certificate="free")
    assert start.certificate.radius > 1e-6
    assert solve(problem, within=1e-8, warm=start, solver="newton").reached
