"""FISTA: its recursion, its price per iteration, its rate; and the same with proven local step lengths."""

import math
from itertools import islice

import numpy as np
import pytest
import scipy.sparse as sp

from suffice import Composite, iterate, solve
from suffice.problems import ElasticNet, ElasticNetHuber, ElasticNetLogistic
from suffice.rows.memory import InMemory
from suffice.solvers.fista import AdaptiveFista, Fista, momentum
from tests.reference import LOSSES, TERMS, GroupNorms, OwnSmooth, Quadratic, minimise, norm, random_case

rng = np.random.default_rng(4)
X = rng.standard_normal((50, 8)) * np.geomspace(0.1, 3.0, 8)
y = rng.standard_normal(50)
FAMILIES = {
    "squared": ElasticNet(X, y),
    "logistic": ElasticNetLogistic(X, y > 0),
    "huber": ElasticNetHuber(X, y, delta=0.5),
    "sparse": ElasticNet(sp.csr_array(np.where(abs(X) > 0.5, X, 0.0)), y),
}
by_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())


@by_family
def test_the_iterates_are_those_of_the_recursion(family):
    """Chambolle and Pock, Acta Numerica 2016, Algorithm 5, written out."""
    l1, l2 = 0.02, 0.05
    problem = family.at(l1=l1, l2=l2)
    tau = 1.0 / problem.L
    q = tau * l2
    t, x, previous = 0.0, np.ones(8), np.ones(8)
    for solution in islice(iterate(problem, solver="fista", warm=np.ones(8)), 1, 40):
        t_next = (1 - q * t**2 + math.sqrt((1 - q * t**2) ** 2 + 4 * t**2)) / 2
        z = x + (t - 1) * (1 - q * t_next) / (t_next * (1 - q)) * (x - previous)
        v = z - tau * problem.smooth.gradient(z)
        t, x, previous = t_next, np.sign(v) * np.maximum(np.abs(v) - tau * l1, 0.0), x
        assert solution.x == pytest.approx(x, rel=1e-10, abs=1e-12)


class Count:
    """Counts the products with X and with X^T."""

    def __init__(self, monkeypatch):
        self.margins = self.adjoint = 0
        for name, method in (("margins", "directions"), ("adjoint", "pull")):
            monkeypatch.setattr(InMemory, method, self._counted(name, getattr(InMemory, method)))

    def _counted(self, name, original):
        def product(rows, vector):
            setattr(self, name, getattr(self, name) + 1)
            return original(rows, vector)

        return product


@by_family
@pytest.mark.parametrize("rule", ["free", "contraction"])
def test_an_iteration_is_one_product_with_x_and_one_with_its_transpose_certificate_included(family, rule, monkeypatch):
    problem = family.at(l1=0.02, l2=0.05)
    count = Count(monkeypatch)
    list(islice(iterate(problem, solver="fista", certificate=rule), 26))
    assert (count.margins, count.adjoint) == (25, 25)


@by_family
@pytest.mark.parametrize("rule", ["gap", "minimum_norm", "subgradient"])
def test_rules_that_need_the_gradient_at_x_cost_one_more_of_each(family, rule, monkeypatch):
    problem = family.at(l1=0.02, l2=0.05)
    count = Count(monkeypatch)
    list(islice(iterate(problem, solver="fista", certificate=rule), 26))
    assert (count.margins, count.adjoint) == (49, 50)  # the product at the start is asked for twice, and made once


@by_family
def test_of_a_fixed_number_of_steps_only_the_last_is_certified(family, monkeypatch):
    problem = family.at(l1=0.02, l2=0.05)
    count = Count(monkeypatch)
    solve(problem, steps=25, solver="fista", certificate="gap")
    assert (count.margins, count.adjoint) == (26, 26)


@by_family
def test_local_step_lengths_cost_no_more_per_step(family, monkeypatch):
    problem = family.at(l1=0.02, l2=0.05)
    count = Count(monkeypatch)
    solve(problem, steps=25, solver="fista_adaptive", certificate="free")
    assert (count.margins, count.adjoint) == (26, 25)


def test_continuing_costs_no_product_of_its_own(monkeypatch):
    problem = FAMILIES["squared"].at(l1=0.02, l2=0.05)
    rough = solve(problem, steps=10, solver="fista")
    count = Count(monkeypatch)
    solve(problem, steps=5, solver="fista", warm=rough)
    assert (count.margins, count.adjoint) == (5, 5)


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_error_obeys_the_a_priori_rate(loss, term):
    """||x^k - x_hat||^2 <= (1 - kappa^-1/2)^k kappa (1 + kappa^-1/2) ||x^0 - x_hat||^2, the true distance at 0."""
    for seed in range(3):
        case = random_case(loss, term, seed)
        start = case.random_start(np.random.default_rng(seed))
        initial = float(norm(start - case.x_hat))
        root = case.problem.kappa**-0.5
        for k, solution in enumerate(islice(iterate(case.problem, solver="fista", warm=start), 120)):
            bound = math.sqrt((1 - root) ** k * (1 + root)) / root * initial
            assert case.distance(solution.x) <= bound * (1 + 1e-9) + solution.certificate.rounding


@pytest.mark.parametrize("kappa", [10.0, 1e3, 1e5])
def test_the_rate_is_that_of_an_accelerated_method(kappa):
    """From 0 to 1e-6 takes a multiple of sqrt(kappa) steps, gradient descent a multiple of kappa."""
    spectrum = np.geomspace(1.0 / kappa, 1.0, 12)
    smooth = OwnSmooth(np.diag(spectrum), spectrum)
    problem = Composite(smooth, ElasticNet(X, y).at(l1=0.0, l2=1.0).prox, mu=1.0 / kappa, L=1.0, size=12)
    assert solve(problem, within=1e-6, solver="fista").steps <= 25 * math.sqrt(kappa)


def test_the_momentum_tends_to_that_of_the_strongly_convex_method():
    for q in (0.5, 1e-2, 1e-4):
        t = 0.0
        for _ in range(3000):
            t, beta = momentum(t, q, q)
        assert t == pytest.approx(q**-0.5, rel=1e-3)
        assert beta == pytest.approx((1 - math.sqrt(q)) / (1 + math.sqrt(q)), rel=1e-3)


@pytest.mark.parametrize("kappa", [1.0, 1.0 + 1e-15, 1.0 + 1e-13, 1.0 + 1e-9, 1.0 + 1e-3])
def test_well_conditioned_problems_are_solved_at_once(kappa):
    A, b = np.diag([1.0, 1.0 / kappa]), np.array([2.0, -1.0])
    problem = Composite(OwnSmooth(A, b), ElasticNet(X, y).at(l1=0.5, l2=1.0).prox, mu=1.0 / kappa, L=1.0, size=2)
    x_hat, _ = minimise(Quadratic(A, b), GroupNorms([[0], [1]], [0.5, 0.5]), 1.0 / kappa, 1.0, 2)
    for solver in (Fista(), AdaptiveFista()):
        solution = solve(problem, within=1e-10, solver=solver)
        assert solution.reached and solution.steps <= 8
        assert norm(solution.x - x_hat) <= 1e-10


# Local step lengths


def test_step_lengths_are_proven_between_the_two_points():
    problem = FAMILIES["logistic"].at(l1=1e-3, l2=1e-3)
    longest = 0.0
    f = problem.smooth
    for solution in islice(iterate(problem, solver="fista_adaptive", warm=5.0 * np.ones(8)), 1, 400):
        evidence = solution.state.evidence
        z, x, tau = evidence.z, solution.x, evidence.tau
        rise = f.value(x) - f.value(z) - evidence.z_gradient @ (x - z)
        assert rise <= (x - z) @ (x - z) / (2 * tau) + 1e-12
        assert tau <= 1.0 / problem.mu
        longest = max(longest, tau * problem.L)
    assert longest > 2.0  # far longer than the global 1/L


def test_local_step_lengths_save_steps_where_curvature_varies():
    problem = FAMILIES["logistic"].at(l1=1e-3, l2=1e-3)
    assert (
        solve(problem, within=1e-6, solver="fista_adaptive").steps < solve(problem, within=1e-6, solver="fista").steps
    )


def test_a_step_that_was_too_long_leaves_the_point_and_its_proof():
    problem = FAMILIES["logistic"].at(l1=1e-3, l2=1e-3)
    last, failures = None, 0
    for solution in islice(iterate(problem, solver=AdaptiveFista(grow=1.5), warm=5.0 * np.ones(8)), 400):
        if solution.state.failed and last is not None:
            failures += 1
            assert solution.x is last.x and solution.certificate == last.certificate
            assert solution.steps == last.steps + 1
            assert solution.state.tau >= 1.0 / problem.L
        last = solution
    assert failures > 0


def test_where_f_tells_no_curvature_the_step_length_stays():
    A = np.diag([1.0, 4.0])
    problem = Composite(OwnSmooth(A, np.ones(2)), ElasticNet(X, y).at(l1=0.1, l2=1.0).prox, mu=1.0, L=4.0, size=2)
    taus = {s.state.evidence.tau for s in islice(iterate(problem, solver="fista_adaptive"), 1, 60)}
    assert taus == {0.25}


def test_the_longest_step_length_is_certified_too():
    # On the linear part of Huber's loss only the ridge is left: tau grows to 1/mu, and 1/tau may be less than mu by
    # a rounding error.
    rng = np.random.default_rng(0)
    data, far = rng.standard_normal((10, 3)), 1e6 * np.ones(10)
    for l2 in (1.0 + rng.random(40)).tolist():
        problem = ElasticNetHuber(data, far).at(l1=0.1, l2=l2)
        pull = -problem.smooth.gradient(np.zeros(3))
        exact = np.sign(pull) * np.maximum(np.abs(pull) - 0.1, 0.0) / l2
        steps = list(islice(iterate(problem, solver="fista_adaptive", warm=1e3 * np.ones(3)), 1, 20))
        assert max(step.state.evidence.tau for step in steps) == 1.0 / l2
        assert all(np.linalg.norm(step.x - exact) <= step.certificate.radius for step in steps)
        assert steps[-1].certificate.radius <= 1e-9
