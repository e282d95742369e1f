"""Verified solutions of several classes in blocks of rows: no false claim, the proofs of main memory, on a cluster the
same bits."""

import math

import numpy as np
import pytest
from flint import arb

import suffice
from suffice import losses, problems
from suffice.models.multinomial import Multinomial
from suffice.models.smooth import Ridged
from suffice.penalties.prox import WeightedL1
from suffice.rows import blocks
from suffice.rows.blocks import RowBlocks
from suffice.rows.design import Design
from suffice.solvers.newton import Newton
from suffice.solvers.solver import iterate
from tests.prove.test_verified_softmax import data, model, solutions
from tests.reference_verified import minimiser

NEWTON = Newton()
with_intercepts = pytest.mark.parametrize("intercept", [False, True], ids=["", "intercepts"])


def in_blocks(X, y, l1, l2, intercept=True, weights=None, block=7):
    """The problem of `model`."""
    classes, size = int(y.max()) + 1, (int(y.max()) + 1) * X.shape[1]
    design = Design.of(RowBlocks.of(X, block=block), weights)
    smooth = Multinomial(design, y.astype(float), classes, intercept, 0.0)
    l2 = np.broadcast_to(np.asarray(l2, float), size)
    l1 = WeightedL1(np.broadcast_to(np.asarray(l1, float), size))
    return suffice.Composite(Ridged(smooth, l2), l1, mu=float(l2.min()), L=smooth.L + float(l2.max()), size=size)


@with_intercepts
@pytest.mark.parametrize("l2", [0.0, 1e-6])
def test_no_verified_radius_is_less_than_the_distance_to_forty_digits(l2, intercept):
    rng, count = np.random.default_rng(1), 0
    X, y = data()
    weights = rng.integers(0, 3, len(y)) + (np.arange(len(y)) < 3) * 1.0
    for l1 in (0.0, 0.01, rng.choice([0.003, 0.01, 0.1], 12)):
        if l2 == 0.0 and np.max(l1) == 0.0:
            continue
        whole, there = (build(X, y, l1, l2, intercept, weights) for build in (model, in_blocks))
        exact = minimiser(whole)
        for x in solutions(whole, rng):
            proof = suffice.certify(there, x)
            count += proof.rule == "verified"
            assert math.isinf(proof.radius) or exact.distance(x) <= arb(proof.radius)
    assert count > 10


@pytest.mark.slow
def test_columns_of_any_size_are_no_less_certain():
    rng, count = np.random.default_rng(2), 0
    X, y = data()
    scales = 10.0 ** np.array([-6.0, 6.0, 0.0, 3.0])
    whole, there = (build(X * scales, y, np.tile(0.01 * scales, 3), 0.0) for build in (model, in_blocks))
    exact = minimiser(whole)
    for x in solutions(whole, rng):
        proof = suffice.certify(there, x)
        count += proof.rule == "verified"
        assert math.isinf(proof.radius) or exact.distance(x) <= arb(proof.radius)
    assert count > 4


@with_intercepts
@pytest.mark.parametrize("l1, l2", [(0.01, 0.0), (0.02, 1e-6), (0.0, 1e-3)])
def test_proofs_are_those_of_main_memory(l1, l2, intercept):
    X, y = data(rows=60)
    whole, there = (build(X, y, l1, l2, intercept) for build in (model, in_blocks))
    proven = 0
    for _, one in zip(range(8), iterate(whole, solver=NEWTON), strict=False):
        here, blocked = (suffice.certify(problem, one.x) for problem in (whole, there))
        assert here.rule == blocked.rule
        if here.rule == "verified":
            proven += 1
            assert blocked.radius == pytest.approx(here.radius, rel=0.05, abs=1e-10)
    assert proven > 1


def test_wrong_zeros_and_wrong_signs_are_not_verified():
    X, y = data(rows=100)
    exact = minimiser(model(X, y, 0.02, 0.0)).rounded()
    problem = in_blocks(X, y, 0.02, 0.0)

    def verified(x):
        return suffice.certify(problem, x).rule == "verified"

    assert verified(exact)
    for j in np.flatnonzero(exact):
        assert not verified(np.where(np.arange(12) == j, 0.0, exact))
        assert not verified(np.where(np.arange(12) == j, -exact, exact))
    for j in np.flatnonzero(exact == 0.0):
        assert not verified(np.where(np.arange(12) == j, 1e-14, exact))


def test_equal_columns_without_an_l2_have_no_single_minimiser():
    X, y = data(rows=100)
    X[:, 1] = X[:, 0]
    x = suffice.solve(model(X, y, 0.01, 1e-9), steps=30, solver=NEWTON).x.reshape(3, 4).copy()
    x[:, 0] = x[:, 1] = 0.5 * (x[:, 0] + x[:, 1])
    assert x[:, 0].any() and suffice.certify(in_blocks(X, y, 0.01, 0.0), x.ravel()).rule != "verified"


@with_intercepts
@pytest.mark.parametrize("loss", [losses.MultinomialLogLoss, losses.MultinomialBrier])
def test_the_error_of_a_held_out_loss_is_true_and_less_than_by_the_radius(loss, intercept):
    X, y = data(rows=150)
    T, z = data(rows=40, seed=5)
    lower = problems.ElasticNetMultinomial(RowBlocks.of(X, block=20), y, intercept=intercept)
    judge, problem = loss(RowBlocks.of(T, block=9), z, lower), lower.at(l1=0.005, l2=1e-6)
    whole = problems.ElasticNetMultinomial(X, y, intercept=intercept)
    truth = loss(T, z, whole).at(minimiser(whole.at(l1=0.005, l2=1e-6)).rounded()).residual
    gains = []
    for _, one in zip(range(12), iterate(problem, solver=NEWTON), strict=False):
        at, proof = judge.at(one.x), one.certificate
        if proof.verification is not None:
            error = at.verified(proof.verification)
            assert abs(at.residual - truth) <= error + 1e-14
            gains.append(at.error(proof.radius) / error)
    assert gains and max(gains) > (5.0 if intercept else 1.5)


def test_a_verified_solution_has_the_same_bits_on_a_cluster(monkeypatch):
    da, distributed = pytest.importorskip("dask.array"), pytest.importorskip("distributed")
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 64 * 8 * 4)
    X, y = data(rows=500)

    def found(X, y):
        problem = problems.ElasticNetMultinomial(X, y, intercept=True).at(l1=0.01, l2=0.0)
        solution = suffice.solve(problem, within=1e-8)
        assert solution.certificate.rule == "verified"
        return solution.x.tobytes(), solution.certificate.radius

    here = found(RowBlocks.of(X), y)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as workers,
        distributed.Client(workers),
    ):
        assert found(da.from_array(X, chunks=(77, 4)), da.from_array(y, chunks=100)) == here
        assert found(da.from_array(X, chunks=(500, 4)), y) == here
