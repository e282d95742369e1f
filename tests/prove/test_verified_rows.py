"""A verification of a matrix on a device: as true as that of the matrix in memory, and hardly less sharp."""

import math

import numpy as np
import pytest
from flint import arb

import suffice
from suffice import losses, problems
from suffice.prove.factor import ProvenFactor, Variables
from suffice.prove.verified_rows import weighted_gram
from suffice.rows import gram
from suffice.rows.design import Design
from suffice.solvers.solution import Outcome
from suffice.solvers.solver import iterate
from tests.batches import solve_together
from tests.reference_verified import PSI, data, minimiser, model, solutions
from tests.test_backends import LIBRARIES, array


@pytest.fixture(params=["one block", "many blocks"])
def sizes(request, monkeypatch):
    if request.param == "many blocks":
        monkeypatch.setattr(gram, "GRAM_ROWS", 7)
        monkeypatch.setattr(gram, "BYTES_ELSEWHERE", 900)


@pytest.mark.parametrize("loss", PSI)
@pytest.mark.parametrize("library", ["torch", "torch on cuda"])
def test_no_verified_radius_on_a_device_is_less_than_the_distance_to_a_hundred_digits(library, loss, sizes):
    rng, verified = np.random.default_rng(1), 0
    X, y = data(loss)
    X[:, 5] *= 1e4
    weights = rng.integers(0, 3, len(y)).astype(float)
    there = array(library, X)
    for l1 in (0.0, np.array([0.0, 0.02, 0.1, 0.1, 0.2, 2e2])):
        whole = model(loss, X, y, l1, 0.0, weights=weights)
        exact, device = minimiser(whole), model(loss, there, y, l1, 0.0, weights=weights)
        for x in solutions(whole, rng):
            proof = suffice.certify(device, x)
            verified += proof.rule == "verified"
            assert math.isinf(proof.radius) or exact.distance(x) <= arb(proof.radius)
    assert verified > 10


@pytest.mark.parametrize(
    "library, loss", [*((library, "logistic") for library in LIBRARIES), *(("torch", loss) for loss in PSI)]
)
def test_a_device_verifies_what_main_memory_does_and_about_as_sharply(library, loss):
    X, y = data(loss, rows=300, columns=8)
    whole, there = (model(loss, rows, y, 0.03, 0.0) for rows in (X, array(library, X)))
    compared = 0
    for _, one in zip(range(10), iterate(whole, solver="newton"), strict=False):
        here, device = suffice.certify(whole, one.x), suffice.certify(there, one.x)
        assert (here.rule == "verified") == (device.rule == "verified")
        if here.rule == "verified":
            compared += 1
            assert device.radius <= 3.0 * here.radius + 1e-12
    assert compared > 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_norms_and_steps_of_rows_are_those_of_main_memory(library, sizes):
    rng = np.random.default_rng(0)
    X, C = rng.standard_normal((50, 6)), rng.random(50) / 50
    on, l2 = Variables((np.array([0, 2, 3, 5]),), True), np.r_[np.full(4, 1e-3), 0.0]
    pairs = [(ProvenFactor.of(*weighted_gram(A, on, C), 50, on, l2), A) for A in (X, array(library, X))]
    here, there = ((*factor.moved(A, np.arange(5.0), norms=True), factor.norms(A)) for factor, A in pairs)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9)
    np.testing.assert_allclose(pairs[1][0].R, pairs[0][0].R, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("library", ["torch", "torch on cuda"])
def test_without_an_l2_a_device_proves_its_solution_and_its_held_out_loss(library):
    X, y = data("logistic", rows=300)
    T, z = data("logistic", rows=80, seed=5)
    problem = problems.ElasticNetLogistic(array(library, X), y).at(l1=0.01, l2=0.0)
    solution = suffice.solve(problem, within=1e-9)
    assert solution.reached and solution.certificate.rule == "verified"
    exact = minimiser(model("logistic", X, y, 0.01, 0.0)).rounded()
    judge, one = losses.LogLoss(array(library, T), z), suffice.solve(problem, within=1e-3)
    at, proof = judge.at(one.x), one.certificate
    error = at.verified(proof.verification)
    assert abs(at.residual - judge.at(exact).residual) <= error < at.error(proof.radius)


@pytest.mark.parametrize("library", ["numpy", "torch", "torch on cuda"])
def test_problems_that_are_solved_together_are_verified_where_nothing_else_is_left(library):
    """With an l2 of 1e-13 rounding alone spoils the gap."""
    X, y = data("logistic", rows=300)
    design = Design.of(array(library, X))
    problem = problems.ElasticNetLogistic(design, y)
    asked = [problem.at(l1=l1, l2=1e-13) for l1 in (0.01, 0.02)]
    for solution in solve_together(asked, within=[1e-8, 1e-8]) if library != "numpy" else ():
        assert solution.certificate.rule == "verified" and solution.reached


def test_a_small_radius_that_rounding_leaves_is_not_worth_a_verification(monkeypatch):
    """It would cost more than all steps of the batch."""
    torch = pytest.importorskip("torch")
    asked = []
    monkeypatch.setattr("suffice.solvers.many.verified", lambda *given: asked.append(given))
    X, y = data("logistic", rows=300)
    problem = problems.ElasticNetLogistic(torch.asarray(X), y)
    for l2, tried in ((0.1, 0), (1e-13, 1)):
        (solution,) = solve_together([problem.at(l1=0.01, l2=l2)], within=[0.0])
        assert solution.outcome is Outcome.PRECISION and len(asked) == tried
