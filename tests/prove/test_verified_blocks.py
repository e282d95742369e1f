"""A verification of rows in blocks, here or on a cluster: as true as that of the matrix in memory, and hardly less
sharp."""

import math

import numpy as np
import pytest
from flint import arb

import suffice
from suffice import losses, problems, terms
from suffice.prove.factor import Variables
from suffice.prove.verified import Verifiable
from suffice.prove.verified_rows import VerifiedRows
from suffice.rows.blocks import RowBlocks
from suffice.rows.rounding import gamma
from suffice.solvers.solver import iterate
from tests.reference_verified import PSI, data, minimiser, model, solutions


@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("loss", PSI)
def test_no_verified_radius_of_blocks_is_less_than_the_distance_to_a_hundred_digits(loss, intercept):
    if intercept and loss in ("huber", "squared hinge"):
        pytest.skip("has no minimised-out intercept where psi'' may vanish")
    rng, verified = np.random.default_rng(1), 0
    X, y = data(loss)
    X[:, 5] *= 1e4
    weights = rng.integers(0, 3, len(y)).astype(float)
    for l1 in (0.0, np.array([0.0, 0.02, 0.1, 0.1, 0.2, 2e2])):
        whole = model(loss, X, y, l1, 0.0, intercept, weights)
        exact, blocks = minimiser(whole), model(loss, RowBlocks.of(X, block=7), y, l1, 0.0, intercept, weights)
        for x in solutions(whole, rng):
            proof = suffice.certify(blocks, x)
            verified += proof.rule == "verified"
            assert math.isinf(proof.radius) or exact.distance(x) <= arb(proof.radius)
    assert verified > 10


@pytest.mark.parametrize("loss", PSI)
def test_blocks_are_verified_where_the_whole_is_and_about_as_sharply(loss):
    X, y = data(loss, rows=300, columns=8)
    whole, blocks = (model(loss, rows, y, 0.03, 0.0) for rows in (X, RowBlocks.of(X, block=32)))
    compared = 0
    for _, one in zip(range(12), iterate(whole, solver="newton"), strict=False):
        here, there = suffice.certify(whole, one.x), suffice.certify(blocks, one.x)
        assert (here.rule == "verified") == (there.rule == "verified")
        if here.rule == "verified":
            compared += 1
            assert there.radius <= 3.0 * here.radius
    assert compared > 0


@pytest.mark.parametrize("loss", PSI)
def test_equal_columns_of_blocks_without_an_l2_have_no_single_minimiser(loss):
    X, y = data(loss)
    X[:, 1] = X[:, 0]
    problem = model(loss, RowBlocks.of(X, block=11), y, 0.01, 0.0)
    x = suffice.solve(problem, within=1e-8, max_steps=40).x.copy()
    x[0] = x[1] = 0.5 * (x[0] + x[1]) or 0.1
    assert suffice.certify(problem, x).rule != "verified"


def test_rows_that_do_not_count_are_not_asked():
    """A fold is a view of rows: those that it holds out say nothing, whatever they hold."""
    X, y = data("poisson", rows=90)
    train, _ = terms.row_folds(RowBlocks.of(X, block=16), 3)[0]
    here = problems.ElasticNetPoisson(train, y).at(l1=0.02, l2=0.0)
    wild = X.copy()
    wild[:30] *= 1e6  # their rates overflow
    there, _ = terms.row_folds(RowBlocks.of(wild, block=16), 3)[0]
    x = suffice.solve(here, within=1e-9).x
    tame, other = (suffice.certify(one, x) for one in (here, problems.ElasticNetPoisson(there, y).at(l1=0.02, l2=0.0)))
    assert tame.rule == other.rule == "verified" and tame.radius == other.radius


def test_a_search_on_blocks_proves_a_vanishing_l2(tmp_path):
    """Where the data supply the curvature the gap says nothing, and a verification nearly all."""
    X, y = data("logistic", rows=400)
    T, z = data("logistic", rows=100, seed=3)
    blocks = suffice.BilevelProblem(
        [problems.ElasticNetLogistic(RowBlocks.of(X, block=64), y)],
        [losses.LogLoss(RowBlocks.of(T, block=64), z)],
        space=suffice.Space(l1=(1e-4, 1e-1), l2=(1e-12, 1e-11)),
    )
    found = suffice.tune(blocks, {"l1": 1e-2, "l2": 3e-12}, options=suffice.Options(max_evaluations=8))
    low, high = found.interval
    assert high - low <= 1e-3 * found.cost


@pytest.mark.parametrize("loss, held_out", [("logistic", losses.LogLoss), ("logistic", losses.Brier)])
@pytest.mark.parametrize("counts", ["all", "a view"])
def test_what_blocks_are_proven_to_lose_on_blocks_is_true(loss, held_out, counts):
    X, y = data(loss, rows=300)
    T, z = data(loss, rows=90, seed=5)
    rows = RowBlocks.of(T, block=16)
    held = rows if counts == "all" else terms.row_folds(rows, 2)[0][1]
    problem = model(loss, RowBlocks.of(X, block=64), y, 0.01, 0.0)
    exact, judge = minimiser(model(loss, X, y, 0.01, 0.0)).rounded(), held_out(held, z)
    gains = []
    for _, one in zip(range(12), iterate(problem, solver="newton"), strict=False):
        at, proof = judge.at(one.x), one.certificate
        if proof.verification is not None:
            error = at.verified(proof.verification)
            assert abs(at.residual - judge.at(exact).residual) <= error + 1e-13
            gains.append(at.error(proof.radius) / error)
    assert gains and max(gains) > 2.0


def test_poisson_deviances_of_blocks_are_bounded_by_what_rows_may_reach():
    X, y = data("poisson", rows=200)
    problem = model("poisson", RowBlocks.of(X, block=64), y, 0.01, 0.0)
    exact = minimiser(model("poisson", X, y, 0.01, 0.0)).rounded()
    judge = losses.Deviance(RowBlocks.of(X, block=50), y, terms.POISSON)
    for _, one in zip(range(8), iterate(problem, solver="newton"), strict=False):
        proof = one.certificate.verification
        if proof is not None:
            at = judge.at(one.x)
            assert abs(at.residual - judge.at(exact).residual) <= at.verified(proof) + 1e-13


def test_a_hessian_of_blocks_errs_by_no_more_than_is_counted():
    """Columns of ones and of entries that do not round away: the error of a sum grows with its length."""
    rng = np.random.default_rng(0)
    X = 1.0 + 2.0**-30 * rng.standard_normal((5000, 3))
    problem = problems.ElasticNetLogistic(RowBlocks.of(X, block=640), rng.random(5000) > 0.5).at(l1=0.0, l2=1.0)
    w = np.array([0.3, -0.2, 0.1])
    stated, image = Verifiable.of(problem.canonical, 3), problem.smooth.image(w)
    on = Variables((np.arange(3),), False)
    rows = VerifiedRows(stated.design, stated.loss, stated.given, w[None, :], image, np.zeros(1), on)
    *_, (*_, terms, H) = rows.facts()
    factor = rows.factor(H, terms, np.zeros((1, 3)))
    C = np.array([math.exp(-m) / (1.0 + math.exp(-m)) ** 2 / 5000 for m in X @ w])
    true = np.array([[math.fsum(C * X[:, j] * X[:, k]) for j in range(3)] for k in range(3)])
    assert factor is None  # nearly equal columns: nothing is claimed
    assert np.all(np.abs(H - true) <= gamma(640 + 8 + 40) * true)


def test_rows_on_a_cluster_have_the_bits_of_one_machine(client, monkeypatch):
    da = pytest.importorskip("dask.array")
    X, y = data("logistic", rows=500)
    T, z = data("huber", rows=500)
    monkeypatch.setattr("suffice.rows.blocks.BLOCK_BYTES", 64 * 8 * 6)
    for kind, A, b, chunks in ((problems.ElasticNetLogistic, X, y, 77), (problems.ElasticNetHuber, T, z, 500)):
        here = suffice.solve(kind(RowBlocks.of(A), b).at(l1=0.01, l2=0.0), within=1e-9)
        rows = da.from_array(A, chunks=(chunks, 6))
        there = suffice.solve(kind(rows, da.from_array(b, chunks=100)).at(l1=0.01, l2=0.0), within=1e-9)
        assert there.certificate.rule == "verified" and there.reached
        assert (there.x.tobytes(), there.certificate.radius) == (here.x.tobytes(), here.certificate.radius)
