"""Newton's method proves what FISTA proves, or better, in few steps: whatever the shape of X, the number of nonzero
weights, the penalties and the loss; and goes on to what rounding allows where values of Phi are of no use."""

import math
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

from suffice import Composite, Outcome, solve
from suffice.models.intercept import Intercepted
from suffice.models.linear import RowCurvature
from suffice.penalties.prox import L1, Zero
from suffice.problems import ElasticNet, ElasticNetHuber, ElasticNetLogistic, ElasticNetPoisson
from suffice.rows.design import Design
from suffice.solvers import auto, minimise, newton, quadratic
from suffice.solvers.fista import FistaState
from suffice.solvers.many import solve_each
from suffice.solvers.newton import NewtonState
from suffice.solvers.solution import Ask
from suffice.terms import LOGISTIC

SHAPES = {"wide": (40, 150), "tall": (150, 40), "wide, columns twice": (30, 100), "tall, columns twice": (100, 40)}
PENALTIES = [(1e-2, 1e-3), (1e-4, 1e-4), (1e-8, 1e-3), (0.0, 1e-3), (1e-3, 1e-6)]
LOSSES = {
    "squares": lambda X, y: ElasticNet(X, y),
    "logistic": lambda X, y: ElasticNetLogistic(X, y > 0),
    "Huber": lambda X, y: ElasticNetHuber(X, y),
    "Poisson": lambda X, y: ElasticNetPoisson(X / 5, np.round(np.abs(y))),
}


@cache
def data(shape):
    rng = np.random.default_rng(0)
    X = rng.standard_normal(SHAPES[shape]) + 0.5 * rng.standard_normal((SHAPES[shape][0], 1))
    X = np.hstack([X, X]) if "twice" in shape else X
    return X, X[:, :5].sum(axis=1) + rng.standard_normal(len(X))


@pytest.mark.parametrize("l1, l2", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_newton_proves_what_fista_proves_in_few_steps(shape, loss, l1, l2):
    problem = LOSSES[loss](*data(shape)).at(l1=l1, l2=l2)
    known = 1e-5
    if loss != "Poisson":
        known = min(known, solve(problem, within=1e-7, solver="fista", max_steps=300).certificate.radius)
    for solver in ("newton", "auto"):
        solution = solve(problem, within=1e-7, solver=solver, max_steps=200)
        assert isinstance(solution.state, NewtonState)
        assert solution.certificate.radius <= known and solution.steps <= 30
        assert solution.reached or solution.certificate.radius <= 2.0 * solution.certificate.rounding


@pytest.mark.parametrize("l1, l2", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_where_no_matrix_fits_products_with_x_do(loss, l1, l2, monkeypatch):
    monkeypatch.setattr("suffice.rows.design.SMALL", 0)
    monkeypatch.setattr("suffice.rows.design.MEMORY", 0.0)
    monkeypatch.setattr(quadratic, "_factor", None)  # no matrix is ever made
    problem = LOSSES[loss](*data("tall, columns twice")).at(l1=l1, l2=l2)
    solution = solve(problem, within=1e-5, solver="newton", max_steps=200)
    assert solution.reached and solution.steps <= 40


@pytest.mark.parametrize("far", [1e2, 1e4])
@pytest.mark.parametrize("loss", ["squares", "logistic", "Huber"])
def test_few_steps_do_from_far_away_too(loss, far):
    X, y = data("wide")
    start = far * np.random.default_rng(1).standard_normal(X.shape[1])
    for solver in ("newton", "auto"):
        solution = solve(LOSSES[loss](X, y).at(l1=1e-3, l2=1e-3), within=1e-5, solver=solver, warm=start, max_steps=500)
        assert solution.reached and solution.steps <= 100


def test_auto_leaves_what_stalls_to_fista(monkeypatch):
    monkeypatch.setattr(newton, "PATIENCE", 1)
    monkeypatch.setattr(auto, "PATIENCE", 1)
    monkeypatch.setattr(newton, "minimise_model", lambda H, gradient, w, g: w - 1e-9 * gradient)  # hardly a step
    problem = LOSSES["logistic"](*data("tall")).at(l1=0.0, l2=1e-2)
    stalled = solve(problem, within=1e-5, solver="newton", max_steps=1000)
    assert not stalled.reached and stalled.steps <= 5
    handed_over = solve(problem, within=1e-5, solver="auto", max_steps=5000)
    assert handed_over.reached and isinstance(handed_over.state, FistaState)


# The forms of H


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array, sp.csc_array])
def test_all_forms_of_a_hessian_are_one_matrix(storage, centred):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((12, 60)) < 0.6, rng.standard_normal((12, 60)), 0.0)
    W, c = np.sort(rng.permutation(60)[:40]), rng.random(12) * (rng.random(12) < 0.8)
    ridge, mean = rng.uniform(0.1, 1.0, 40), X.T @ c / c.sum()
    A = X[:, W] - (mean[W] if centred else 0.0)
    H = A.T @ (c[:, None] * A) + np.diag(ridge)
    design = Design.of(storage(X))
    forms = [
        quadratic.Matrix(H),
        quadratic.Wide.of(X, W, c, ridge, mean[W] if centred else None),
        quadratic.ByProducts(RowCurvature(design, c, float(c.sum())).products(centred), 60, W, np.diag(H), ridge),
    ]
    v, added, few, many = rng.standard_normal(40), rng.random(40), np.array([3, 8, 30]), np.arange(25)
    for form in forms:
        assert form.product(v) == pytest.approx(H @ v, rel=1e-12)
        for free in (few, many):
            part = form.on(free)
            assert part.product(v[free]) == pytest.approx(H[np.ix_(free, free)] @ v[free], rel=1e-12)
            error = H[np.ix_(free, free)] @ part.solver()(v[free]) - v[free]
            assert np.linalg.norm(error) <= quadratic.CG_TOLERANCE * np.linalg.norm(v[free])
        if not isinstance(form, quadratic.ByProducts):
            assert form.diagonal == pytest.approx(np.diag(H), rel=1e-12)
            assert form.solver(added)(v) == pytest.approx(np.linalg.solve(H + np.diag(added), v), rel=1e-10)
        for l1 in (0.0, 0.3):
            found = minimise.minimise_model(form, v, 0.0 * v, L1(l1))
            left = L1(l1).least_subgradient(found, v + H @ found)
            assert np.linalg.norm(left) <= minimise.MODEL_TOLERANCE * np.linalg.norm(v)


@pytest.mark.parametrize("seed", range(20))
def test_along_a_line_the_model_is_minimised_exactly(seed):
    rng = np.random.default_rng(seed)
    v = np.where(rng.random(8) < 0.7, rng.standard_normal(8), 0.0)
    step, l1, bend, slope = rng.standard_normal(8), rng.random(8), rng.uniform(0.1, 5.0), -rng.uniform(0.0, 8.0)

    def q(t):
        return t * slope + 0.5 * t * t * bend + np.sum(l1 * np.abs(v + np.multiply.outer(t, step)), axis=-1)

    t, reached = minimise._least_along(v, step, slope, bend, l1)
    grid = np.linspace(0.0, 2.0 * t + 1.0, 4001)
    assert q(np.array([t]))[0] <= q(grid).min() + 1e-12
    assert np.abs((v + t * step)[reached]).max(initial=0.0) <= 1e-15


@pytest.mark.parametrize("shape", SHAPES)
def test_models_with_an_intercept_have_all_forms_too(shape):
    X, y = data(shape)
    model = Intercepted(Design.of(X), np.where(y > 0, 1.0, -1.0), LOGISTIC, 1e-3)
    for g in (L1(1e-3), L1(0.0), Zero()):
        problem = Composite(model, g, mu=model.l2, L=model.L, size=X.shape[1])
        solution = solve(problem, within=1e-6, solver="newton", max_steps=100)
        assert solution.reached and solution.steps <= 30


# Where values of Phi are of no use


def cancelling(N, l1, l2):
    """Counts near e, for which exp(m) - y m is nearly 0 at the solution: all rows cancel, and so does their sum."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 4))
    X[:, 0] = 1.0
    y = np.exp(0.01 * rng.standard_normal(N))
    low, high = 2.0, 3.5
    for _ in range(60):
        mean = 0.5 * (low + high)
        problem = ElasticNetPoisson(X, mean * y / y.mean()).at(l1=l1, l2=l2)
        low, high = (mean, high) if problem.value(solve(problem, steps=12, solver="newton").x) > 0.0 else (low, mean)
    return problem


@pytest.mark.parametrize("l1, l2", [(0.0, 1e-3), (1e-3, 1e-2), (1e-3, 1e-3)])
def test_a_phi_that_cancels_hides_nothing_from_newton(l1, l2):
    problem = cancelling(200, l1, l2)
    solution = solve(problem, within=0.0, solver="newton", max_steps=100)
    assert abs(problem.value(solution.x)) <= 1e-12  # where one row of it is nearly 3
    assert solution.outcome is Outcome.PRECISION and solution.steps <= 40
    assert solution.certificate.radius <= 2.0 * solution.certificate.rounding < 1e-9


def test_what_rounding_leaves_room_for_is_reached():
    """A request between the rounding and twice the rounding can be met, and is."""
    X, y = data("tall")
    problem = ElasticNet(X, y).at(l1=1e-3, l2=1e-6)
    floor = solve(problem, within=0.0, solver="newton").certificate.rounding
    for solver in ("newton", "auto"):
        assert solve(problem, within=1.2 * floor, solver=solver).reached
    easy = ElasticNet(X, y).at(l1=1e-3, l2=1.0)
    floor = solve(easy, within=0.0, solver="fista").certificate.rounding
    assert solve(easy, within=1.2 * floor, solver="fista").reached


# Out of the range of floats


@pytest.mark.parametrize("size", [1e3, 1e6, 1e200, 1e308])
@pytest.mark.parametrize("solver", ["newton", "auto"])
def test_poisson_regression_from_a_start_whose_rates_overflow(solver, size):
    X, y = data("tall")
    problem = LOSSES["Poisson"](X, y).at(l1=1e-3, l2=1e-2)
    start = size * np.sign(X[0])
    solution = solve(problem, within=1e-6, solver=solver, warm=start, max_steps=500)
    assert solution.reached and solution.steps <= 100


@pytest.mark.parametrize("solver", ["fista", "fista_adaptive", "gradient_descent", "newton", "auto"])
@pytest.mark.parametrize("scale", [1e140, 1e-140])
def test_huge_and_tiny_data_end_with_an_outcome(solver, scale):
    X, y = data("tall")
    problem = ElasticNet(scale * X, y).at(l1=1e-3, l2=1e-3)
    solution = solve(problem, within=1e-6, solver=solver, max_steps=50)
    assert np.isfinite(solution.x).all() and not math.isnan(solution.certificate.radius)


@pytest.mark.parametrize("solver", ["fista", "fista_adaptive", "gradient_descent", "newton", "auto"])
def test_a_step_out_of_the_range_of_floats_is_not_made(solver):
    X, y = data("tall")
    problem = ElasticNet(1e150 * X, 1e200 * y).at(l1=1e-3, l2=1e-3)  # a gradient of 1e350
    solution = solve(problem, within=1e-6, solver=solver, max_steps=1000)
    assert solution.outcome is Outcome.PRECISION and solution.steps <= 5
    for found in (solution, solve(problem, steps=10, solver=solver)):
        assert np.isfinite(found.x).all() and found.certificate.radius == math.inf


@pytest.mark.parametrize("solver", ["fista", "fista_adaptive"])
def test_neither_is_one_of_many_together(solver):
    X, y = data("tall")
    family = ElasticNet(1e150 * X, 1e200 * y)
    for asked in ({"within": 1e-6}, {"steps": 10}):
        asks = [Ask(family.at(l1=1e-3, l2=l2), **asked) for l2 in (1e-3, 1e-2)]
        for solution in solve_each(asks, solver):
            assert np.isfinite(solution.x).all() and solution.certificate.radius == math.inf


def test_a_support_of_more_columns_than_rows_grows_in_few_steps():
    """From one column to nearly all 2,000 with an l1 next to nothing: where rows are few a model of many columns costs
    little, and its working set need not grow by half a step."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 2000)), rng.standard_normal(30)
    solution = solve(ElasticNet(X, y).at(l1=1e-7, l2=1.0), within=1e-6, solver="newton")
    assert np.count_nonzero(solution.x) > 1900
    assert solution.reached and solution.steps <= 6
