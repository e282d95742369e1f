"""A verified solution is the exact minimiser, exhibited: no strong convexity, no false claim, hardly any slack."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from flint import arb

import suffice
from suffice import losses, problems, terms
from suffice.arrays import host
from suffice.journal.codec import decode, encode, light
from suffice.penalties.prox import L1
from suffice.rows.design import Design
from suffice.sklearn.folds import LinearFold
from suffice.solvers.solution import Outcome
from suffice.solvers.solver import iterate
from tests.reference_verified import PSI, data, minimiser, model, solutions


@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("l2", [0.0, 1e-8, 1e-3, 1.0])
@pytest.mark.parametrize("loss", PSI)
def test_no_verified_radius_is_less_than_the_distance_to_a_hundred_digits(loss, l2, intercept):
    if intercept and loss in ("huber", "squared hinge"):
        pytest.skip("has no minimised-out intercept where psi'' may vanish")
    rng, verified = np.random.default_rng(1), 0
    X, y = data(loss)
    weights = rng.integers(0, 3, len(y)).astype(float)
    for l1 in (0.0, 0.05, np.array([0.0, 0.02, 0.1, 0.1, 0.2, 0.02])):
        problem = model(loss, X, y, l1, l2, intercept, weights)
        exact = minimiser(problem)
        for x in solutions(problem, rng):
            proof = suffice.certify(problem, x)
            verified += proof.rule == "verified"
            assert math.isinf(proof.radius) or exact.distance(x) <= arb(proof.radius)
    assert verified > 20


@pytest.mark.parametrize("loss", PSI)
def test_columns_of_any_size_and_nearly_equal_ones_are_no_less_certain(loss):
    rng, verified = np.random.default_rng(2), 0
    X, y = data(loss)
    X[:, 5] = X[:, 4] * (1.0 + 1e-4 * rng.standard_normal(len(X)))
    scales = 10.0 ** np.array([-8.0, 8.0, 0.0, -3.0, 2.0, 2.0]) if loss != "poisson" else np.ones(6)
    for scaled in (X * scales, sp.csr_array(X * scales)):
        problem = model(loss, scaled, y, 0.01 * scales, 0.0)
        exact = minimiser(problem)
        for x in solutions(problem, rng):
            proof = suffice.certify(problem, x)
            verified += proof.rule == "verified"
            assert math.isinf(proof.radius) or exact.distance(x) <= arb(proof.radius)
    assert verified > 10


@pytest.mark.parametrize("l2", [0.0, 1e-6, 1e-2])
@pytest.mark.parametrize("loss", PSI)
def test_a_verified_radius_is_hardly_more_than_the_distance(loss, l2):
    X, y = data(loss, rows=200)
    ratios = []
    for l1 in (1e-3, 0.05):
        problem = model(loss, X, y, l1, l2)
        exact = minimiser(problem).rounded()
        for _, one in zip(range(30), iterate(problem, solver="newton"), strict=False):
            distance = float(np.linalg.norm(one.x - exact))
            if one.certificate.rule == "verified" and distance > 1e-9:
                ratios.append(one.certificate.radius / distance)
    assert not ratios or float(np.median(ratios)) <= 2.0


def test_with_little_l2_the_gap_proves_a_thousand_times_less():
    X, y = data("logistic", rows=300)
    problem = problems.ElasticNetLogistic(X, y).at(l1=1e-3, l2=1e-6)
    *_, last = (one for _, one in zip(range(12), iterate(problem, solver="newton", certificate="free"), strict=False))
    assert 1e3 * suffice.certify(problem, last.x).radius <= last.certificate.radius


# What must not be verified


def verified(problem, x):
    return suffice.certify(problem, x).rule == "verified"


@pytest.mark.parametrize("loss", PSI)
def test_equal_columns_without_an_l2_have_no_single_minimiser(loss):
    X, y = data(loss)
    X[:, 1] = X[:, 0]
    problem = model(loss, X, y, 0.01, 0.0)
    solution = suffice.solve(problem, within=1e-8, max_steps=40)
    x = solution.x.copy()
    x[0] = x[1] = 0.5 * (x[0] + x[1]) or 0.1
    assert not verified(problem, x)


def test_separable_data_without_a_penalty_have_no_minimiser():
    X, y = data("logistic")
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    problem = problems.ElasticNetLogistic(X, y).at(l1=0.0, l2=0.0)
    assert not any(verified(problem, t * np.eye(6)[0]) for t in (1.0, 1e2, 1e4))
    assert suffice.solve(problem, within=1e-6, max_steps=60).certificate.radius == math.inf


def test_a_weight_that_is_zero_by_a_hair_is_not_verified_as_anything_else():
    """With orthogonal columns w_j = soft(c_j, l1): the second is on the edge, the third beyond it by one digit."""
    X = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [1.0, 1.0, -1.0], [1.0, -1.0, -1.0]])
    y = X @ np.array([2.0, 0.5, 0.5 * (1.0 + 2.0**-40)])
    problem = problems.ElasticNet(X, y).at(l1=0.5, l2=0.0)
    third = 0.5 * 2.0**-40
    assert not verified(problem, np.array([1.5, 0.0, third]))  # |grad_2| = l1: not less
    assert not verified(problem, np.array([1.5, 1e-14, third]))  # a sign that is not certain
    assert not verified(problem, np.array([1.5, 0.0, 0.0]))  # |grad_3| > l1
    assert not verified(problem, np.array([1.5, 0.0, -third]))  # the wrong sign
    assert verified(problems.ElasticNet(X, y).at(l1=0.5 * (1.0 + 2.0**-20), l2=0.0), np.array([1.5, 0.0, 0.0]))


def test_more_columns_than_rows_are_verified_on_a_small_support_only():
    X, y = data("squared", rows=20, columns=60)
    sparse = suffice.solve(problems.ElasticNet(X, y).at(l1=0.1, l2=0.0), within=1e-9)
    assert sparse.outcome is Outcome.REACHED and sparse.certificate.rule == "verified"
    dense = problems.ElasticNet(X, y).at(l1=0.0, l2=0.0)
    assert not verified(dense, np.linalg.lstsq(X, y, rcond=None)[0])


@pytest.mark.parametrize("solver", ["fista", "fista_adaptive", "gradient_descent"])
def test_methods_that_need_an_l2_say_so(solver):
    X, y = data("squared")
    with pytest.raises(ValueError, match="needs mu > 0"):
        suffice.solve(problems.ElasticNet(X, y).at(l1=0.1, l2=0.0), within=1e-3, solver=solver)


# What follows from it


@pytest.mark.parametrize("loss, held_out", [("squared", losses.SquaredError), ("logistic", losses.LogLoss)])
def test_the_error_of_a_held_out_loss_is_true_and_far_less_than_by_the_radius(loss, held_out):
    X, y = data(loss, rows=300)
    T, z = data(loss, rows=80, seed=5)
    problem = model(loss, X, y, 0.01, 0.0)
    exact, judge = minimiser(problem).rounded(), held_out(T, z)
    gains = []
    for _, one in zip(range(12), iterate(problem, solver="newton"), strict=False):
        at, proof = judge.at(one.x), one.certificate
        if proof.verification is not None:
            error = at.verified(proof.verification)
            assert abs(at.residual - judge.at(exact).residual) <= error + 1e-13
            gains.append(at.error(proof.radius) / error)
    assert gains and (loss == "squared" or max(gains) > 2.0)  # squares are solved in one step: what is left is rounding


def test_the_shift_of_an_intercept_is_part_of_it():
    X, y = data("logistic", rows=200)
    T, z = data("logistic", rows=50, seed=5)
    fold = LinearFold(X, y, terms.LOGISTIC, np.ones(200), "free")
    judge = fold.held_out(T, z, np.ones(50), "neg_log_loss", 1)
    problem = fold.at(l1=0.01, l2=0.0)
    exact = judge.at(suffice.solve(problem, within=0.0).x)
    for _, one in zip(range(12), iterate(problem, solver="newton"), strict=False):
        proof = one.certificate.verification
        if proof is not None:
            assert abs(judge.at(one.x).residual - exact.residual) <= judge.at(one.x).verified(proof) + 1e-13


def test_a_verification_stays_out_of_files_and_what_it_proved_of_a_loss_does_not():
    X, y = data("squared")
    solution = suffice.solve(problems.ElasticNet(X, y).at(l1=0.1, l2=0.0), within=1e-9)
    assert solution.certificate.verification is not None
    kept = decode(encode(light(solution)))
    assert kept.certificate == solution.certificate and kept.certificate.verification is None


def test_a_first_order_method_is_verified_once_its_signs_have_settled():
    X, y = data("logistic", rows=200)
    problem = problems.ElasticNetLogistic(X, y).at(l1=0.02, l2=1e-3)
    ours = suffice.solve(problem, within=1e-6, solver="fista")
    without = suffice.solve(problem, within=1e-6, solver="fista", certificate="free")
    assert ours.certificate.rule == "verified" and ours.steps < without.steps


@pytest.mark.parametrize("prox", [L1(0.1), terms.Group([[0, 1, 2], [3, 4, 5]], 0.1)], ids=["l1", "groups"])
def test_other_penalties_keep_their_certificates(prox):
    X, y = data("squared")
    smooth = terms.LinearModel(Design.of(X), host(y), terms.SQUARED, 0.1)
    problem = suffice.Composite(smooth, prox, mu=0.1, L=smooth.L, size=6)
    solution = suffice.solve(problem, within=1e-6, solver="fista")
    assert solution.outcome is Outcome.REACHED
    assert (solution.certificate.rule == "verified") <= isinstance(prox, L1)


def test_a_loss_that_is_rounded_more_than_others_says_so():
    class Blurred(terms.Logistic):
        def blur(self, m, y):
            return np.full(m.shape, 1e-7)

    X, y = data("logistic")
    plain, blurred = (problems.ElasticNetModel(X, y, loss).at(l1=0.05, l2=0.0) for loss in (terms.LOGISTIC, Blurred()))
    solution = suffice.solve(plain, within=1e-12)
    radii = [suffice.certify(problem, solution.x).radius for problem in (plain, blurred)]
    assert 1e3 * radii[0] < 1e-9 < radii[1] < 1e-4
