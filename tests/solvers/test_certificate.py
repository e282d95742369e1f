"""Every certificate holds at every iterate, against minimisers in extended precision; how tight they are, and why."""

import math
import re
from functools import cache
from itertools import islice

import numpy as np
import pytest

import suffice
from suffice import Composite, certify, iterate
from suffice.rows.design import Design
from suffice.solvers.certificate import RULES, Certificate
from suffice.terms import L1, SQUARED, Box, Group, LinearModel, NonNegative, Zero
from tests.reference import (
    LONG,
    LOSSES,
    SOLVABLE,
    TERMS,
    Case,
    GroupNorms,
    Interval,
    Margins,
    OwnProx,
    OwnSmooth,
    Quadratic,
    minimise,
    norm,
    random_case,
    solves,
)

GRADIENT_STEPS = ("fista", "fista_adaptive", "gradient_descent")  # whose steps are prox-gradient steps
PROBLEMS_EACH = 3  # times 4 losses and 8 terms: 96 problems
ITERATES = 16


def rules_for(case, solver):
    """All rules that the term and the solver support: a user's own g has no shortest subgradient, Newton's steps are
    not prox-gradient steps."""
    without = "minimum_norm" if isinstance(case.problem.prox, OwnProx) else ""
    return [rule for rule in RULES if rule != without and (rule != "subgradient" or solver != "newton")]


def solutions(case, start, solver, count=ITERATES, **options):
    return islice(iterate(case.problem, solver=solver, warm=start, **options), count)


@pytest.mark.parametrize("loss, term, solver", SOLVABLE)
def test_every_certificate_holds_at_every_iterate(loss, term, solver):
    for seed in range(PROBLEMS_EACH):
        case = random_case(loss, term, seed)
        rng = np.random.default_rng(seed)
        for start in (None, case.random_start(rng), case.near_start(rng)):
            for rule in rules_for(case, solver):
                for k, solution in enumerate(solutions(case, start, solver, certificate=rule)):
                    assert case.distance(solution.x) <= solution.certificate.radius, (seed, rule, k)


@pytest.mark.parametrize("loss, solver", sorted({(loss, solver) for loss, _, solver in SOLVABLE}))
def test_the_default_holds_until_rounding_is_all_that_is_left(loss, solver):
    for term in (term for term in TERMS if solves(solver, loss, term)):
        case = next(case for seed in range(50) if (case := random_case(loss, term, seed)).problem.kappa < 30.0)
        start = case.random_start(np.random.default_rng(0))
        for k, solution in enumerate(solutions(case, start, solver, 300)):
            assert case.distance(solution.x) <= solution.certificate.radius, (term, k)
        assert solution.certificate.radius <= 1e-6 * (1.0 + float(norm(case.x_hat)))


@pytest.mark.parametrize("start_size", [1e6, 1e12])
@pytest.mark.parametrize("term, solver", sorted({(term, solver) for _, term, solver in SOLVABLE}))
def test_certificates_hold_from_very_far_away(term, solver, start_size):
    for loss in (loss for loss in LOSSES if solves(solver, loss, term)):
        case = random_case(loss, term, 0)
        start = start_size * case.random_start(np.random.default_rng(0))
        for k, solution in enumerate(solutions(case, start, solver)):
            assert case.distance(solution.x) <= solution.certificate.radius, (loss, k)


# How the bounds compare


@pytest.mark.parametrize("solver", GRADIENT_STEPS)
@pytest.mark.parametrize("term", [term for term in TERMS if not term.startswith("own")])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_bounds_are_ordered(loss, term, solver):
    """gap radius <= sqrt(2 G / mu) <= ||u_min|| / mu <= ||d|| / mu, G by its definition."""
    case = random_case(loss, term, 1)
    mu = LONG(case.problem.canonical.mu)
    start = case.random_start(np.random.default_rng(0))
    rules = ("gap", "minimum_norm", "subgradient")
    for same_x in islice(
        zip(*(solutions(case, start, solver, certificate=rule) for rule in rules), strict=True), 1, None
    ):
        x = same_x[0].x.astype(LONG)
        v = mu * x - case.f.gradient(x)
        w_bar = case.g.prox(v / mu, 1 / mu)
        B = case.g.value(x) - case.g.value(w_bar) - (v - mu * w_bar) @ (x - w_bar)
        classical = float(np.sqrt(2 * (max(B, 0) + mu / 2 * norm(x - w_bar) ** 2) / mu))
        gap, minimum_norm, subgradient = (solution.certificate for solution in same_x)
        blur = 4.0 * subgradient.rounding + 1e-9 * classical
        assert gap.radius <= classical + blur
        assert classical <= minimum_norm.radius + blur
        assert minimum_norm.radius <= subgradient.radius + blur


@pytest.mark.parametrize("solver", GRADIENT_STEPS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_default_is_never_worse_than_contraction_alone(loss, solver):
    for term in TERMS:
        for seed in range(3):
            case = random_case(loss, term, seed)
            rng = np.random.default_rng(0)
            for start in (None, case.random_start(rng), case.near_start(rng)):
                default = solutions(case, start, solver)
                contraction = solutions(case, start, solver, certificate="contraction")
                for one, other in zip(default, contraction, strict=True):
                    assert np.array_equal(one.x, other.x)
                    assert one.certificate.radius <= other.certificate.radius


def test_the_default_reaches_what_contraction_alone_reaches():
    rng = np.random.default_rng(3)
    Q = np.linalg.qr(rng.standard_normal((60, 12)))[0] * math.sqrt(60)
    problem = suffice.problems.ElasticNet(Q, rng.standard_normal(60)).at(l1=0.0, l2=1e-2)
    alone = suffice.solve(problem, within=0.0, solver="gradient_descent", certificate="contraction", max_steps=9000)
    default = suffice.solve(problem, within=0.0, solver="gradient_descent", max_steps=9000)
    assert default.certificate.radius <= alone.certificate.radius


# How tight they are


@cache
def inverse_problem(seed, l2):
    """The paper's Figure 1: (1/2) ||A w - b||^2 + (l2/2) ||w||^2 + 10 ||w||_1, A random of 100 x 200, L about 2e4."""
    rng = np.random.default_rng(seed)
    A, b, start = 2.0 * rng.random((100, 200)), rng.standard_normal(100), rng.standard_normal(200)
    design = Design.of(10.0 * A)  # the loss is a mean over 100 rows
    smooth = LinearModel(design, 10.0 * b, SQUARED, l2)
    f, g = (
        Margins(design.X, smooth.y, design.weights, "squared", l2),
        GroupNorms([[i] for i in range(200)], [10.0] * 200),
    )
    return Case.of(Composite(smooth, L1(10.0), mu=l2, L=smooth.L, size=200), f, g, 200), start


def ratios_on_the_support(case, start, solver, count, accuracy=1e-9):
    """radius / distance for all iterates after the last one with a wrong support, until `accuracy`."""
    support, ratios = case.x_hat != 0, []
    for solution in solutions(case, start, solver, count, certificate="free"):
        distance = float(norm(solution.x - case.x_hat))
        ratios = [*ratios, solution.certificate.radius / distance] if np.array_equal(solution.x != 0, support) else []
        if distance < accuracy:
            break
    return ratios


def curvature_ratio(case):
    """lambda_min of the Hessian on the support over mu: what the bounds cannot know."""
    support = case.x_hat != 0
    H = case.f.hessian(case.x_hat)[np.ix_(support, support)]
    return float(np.linalg.eigvalsh(H)[0]) / case.problem.mu


@pytest.mark.parametrize("solver", ["fista", "gradient_descent"])
@pytest.mark.parametrize("l2", [50.0, 200.0])
def test_once_the_support_is_right_the_radius_is_within_three_times_the_truth(l2, solver):
    case, start = inverse_problem(0, l2)
    assert curvature_ratio(case) < 1.5  # mu is not dwarfed
    ratios = ratios_on_the_support(case, start, solver, 4000)
    assert len(ratios) > 100
    assert min(ratios) >= 1.0 and max(ratios) <= 3.0


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_in_the_papers_first_figure_the_radius_follows_the_curvature_on_the_support(seed):
    case, start = inverse_problem(seed, 10.0)
    assert 1.9e4 < case.problem.L < 2.1e4
    ratios = ratios_on_the_support(case, start, "fista", 1200)
    assert len(ratios) > 400
    assert curvature_ratio(case) <= float(np.median(ratios)) <= 2.0 * curvature_ratio(case)


def test_in_the_papers_first_figure_the_rate_is_far_looser():
    case, start = inverse_problem(0, 10.0)
    radii, root = {}, case.problem.kappa**-0.5
    for rule in ("subgradient", "tightest"):
        *_, last = solutions(case, start, "fista", 501, certificate=rule)
        radii[rule] = last.certificate.radius
    rate = math.sqrt((1 - root) ** 500 * (1 + root)) / root * float(norm(start - case.x_hat))
    assert radii["tightest"] <= 1.01 * radii["subgradient"] <= 1e-3 * rate


def test_with_gradient_descent_the_ratio_tends_to_the_curvature_on_the_support_over_mu():
    """Its error ends up in the eigenvector of lambda_min, where the gradient is lambda_min times the error."""
    rng = np.random.default_rng(2)
    X = 2.0 * rng.random((30, 40))  # L belongs to the mean of all columns, of which few are in the support
    y = rng.standard_normal(30)
    for l1, l2 in ((0.1, 0.05), (0.1, 0.2), (0.05, 1.0)):
        problem = suffice.problems.ElasticNet(X, y).at(l1=l1, l2=l2)
        f = Margins(X, y, problem.smooth.design.weights, "squared", l2)
        case = Case.of(problem, f, GroupNorms([[i] for i in range(40)], [l1] * 40), 40)
        ratios = ratios_on_the_support(case, 10.0 * np.ones(40), "gradient_descent", 6000, 1e-7)
        assert ratios[-1] == pytest.approx(curvature_ratio(case), rel=0.05)


# Where rounding or a corner of the theory could break a proof


def sphere(kappa):
    """A diagonal quadratic with minimiser (1, 0): the error of a start at 0 lies along mu, where bounds are tight."""
    mu = 1.0 / kappa
    A, b = np.diag([mu, 1.0]), np.array([mu, 0.0])
    return Case.of(Composite(OwnSmooth(A, b), Zero(), mu=mu, L=1.0, size=2), Quadratic(A, b), GroupNorms([], []), 2)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("solver", GRADIENT_STEPS)
def test_bounds_that_are_equalities_survive_rounding(solver, rule):
    for kappa in np.geomspace(1.0, 1e8, 60):
        case = sphere(float(kappa))
        for solution in solutions(case, None, solver, 6, certificate=rule):
            assert case.distance(solution.x) <= solution.certificate.radius


@pytest.mark.parametrize("solver", GRADIENT_STEPS)
def test_the_first_step_from_the_origin_has_rounding_too(solver):
    # With kappa = 1 one step is exact but for rounding: a radius of 0 would be false.
    b = np.array([0.1, 0.7, 1.0 / 3.0])
    case = Case.of(
        Composite(OwnSmooth(3.0 * np.eye(3), b), Zero(), mu=3.0, L=3.0, size=3),
        Quadratic(3.0 * np.eye(3), b),
        GroupNorms([], []),
        3,
    )
    for solution in solutions(case, None, solver, 4):
        assert case.distance(solution.x) <= solution.certificate.radius


@pytest.mark.parametrize("rule", ["tightest", "contraction"])
@pytest.mark.parametrize("solver", GRADIENT_STEPS)
@pytest.mark.parametrize("term, interval", [(Box(0.0, 1.0), (0.0, 1.0)), (NonNegative(), (0.0, math.inf))])
def test_an_infeasible_start_is_certified_even_if_one_step_solves_the_problem(term, interval, solver, rule):
    A, b = np.eye(2), np.array([0.5, -3.0])
    case = Case.of(Composite(OwnSmooth(A, b), term, mu=1.0, L=1.0, size=2), Quadratic(A, b), Interval(*interval), 2)
    for solution in solutions(case, np.array([5.0, -3.0]), solver, 4, certificate=rule):
        assert case.distance(solution.x) <= solution.certificate.radius


@pytest.mark.parametrize("own", [False, True], ids=["Group", "a user's group"])
@pytest.mark.parametrize("ratio", [1e2, 1e3, 1e4, 1e5])
def test_a_group_near_its_optimum_is_not_certified_by_cancellation(ratio, own):
    # e is the error with the smallest gap that any Hessian allows: B = (1 - cos) decides, and must not be lost.
    mu, turn = 1.0 / ratio, 3e-9
    e = np.array([0.9 * math.sqrt(ratio) * turn / 2.0, turn / 2.0])
    h = np.array([-mu * e[0], e[1]])
    A = np.outer(h, h) / (h @ e) + mu * np.eye(2)
    L = float(np.linalg.eigvalsh(A)[-1]) * (1.0 + 1e-12)
    b = A @ np.array([1.0, 0.0]) + np.array([1.0, 0.0])
    prox = Group([[0, 1]], 1.0)
    problem = Composite(OwnSmooth(A, b), OwnProx(prox) if own else prox, mu=mu * (1.0 - 1e-9), L=L, size=2)
    case = Case.of(problem, Quadratic(A, b), GroupNorms([[0, 1]], [1.0]), 2)
    for size in (-2.0, -1.0, 0.5, 1.0, 2.0):
        x = case.x_hat.astype(float) + size * e
        assert case.distance(x) <= certify(problem, x).radius
        for solution in islice(iterate(problem, warm=x, certificate="gap"), 5):
            assert case.distance(solution.x) <= solution.certificate.radius


# Certifying a point from elsewhere


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("loss", LOSSES)
def test_any_point_can_be_certified_wherever_it_came_from(loss, term):
    for seed in range(4):
        case = random_case(loss, term, seed)
        rng = np.random.default_rng(0)
        for x in (case.x_hat.astype(float), case.near_start(rng), case.random_start(rng), np.zeros(case.size)):
            feasible = case.problem.prox.prox(x, 1e-12)
            assert case.distance(feasible) <= certify(case.problem, feasible).radius


def test_a_point_outside_the_domain_has_no_certificate():
    problem = Composite(OwnSmooth(np.eye(2), np.ones(2)), NonNegative(), mu=1.0, L=1.0)
    assert certify(problem, np.array([1.0, -1.0])).radius == math.inf


def test_certifying_leaves_the_point_alone():
    x = np.array([1.0, -1.0])
    certify(Composite(OwnSmooth(np.eye(2), np.ones(2)), L1(0.1), mu=1.0, L=1.0), x)
    assert x.flags.writeable and x.tolist() == [1.0, -1.0]


def test_the_parts_of_a_certificate():
    problem = Composite(OwnSmooth(np.diag([1.0, 3.0]), np.ones(2)), L1(0.1), mu=1.0, L=3.0)
    certificate = certify(problem, np.array([1.0, -1.0]))
    assert isinstance(certificate, Certificate)
    assert certificate.rule == "gap"
    assert 0.0 < certificate.rounding < 1e-13 < certificate.radius


@pytest.mark.parametrize(
    "x, message",
    [
        (np.array([1.0, math.nan]), "x must be finite"),
        (np.ones(3), "x must have shape (2,), got (3,)"),
        (np.ones((2, 2)), "x must be one-dimensional, got shape (2, 2)"),
    ],
)
def test_a_bad_point_is_named(x, message):
    problem = Composite(OwnSmooth(np.eye(2), np.ones(2)), Zero(), mu=1.0, L=1.0, size=2)
    with pytest.raises(ValueError, match=re.escape(message)):
        certify(problem, x)


def test_the_minimum_norm_rule_says_what_it_needs():
    problem = Composite(OwnSmooth(np.eye(2), np.ones(2)), OwnProx(L1(1.0)), mu=1.0, L=1.0, size=2)
    with pytest.raises(TypeError, match=r"certificate='minimum_norm' needs prox\.least_subgradient"):
        suffice.solve(problem, steps=1, certificate="minimum_norm")


def test_the_reference_agrees_with_a_closed_form():
    X = np.eye(4) * 2.0
    f, g = (
        Margins(X, np.array([1.0, -2.0, 0.1, 3.0]), np.full(4, 0.25), "squared", 1.0),
        GroupNorms([[0], [1], [2], [3]], [0.3] * 4),
    )
    x_hat, error = minimise(f, g, 1.0, 2.0, 4)
    assert x_hat.astype(float) == pytest.approx([0.1, -0.35, 0.0, 0.6], abs=1e-15)
    assert error <= 1e-15
