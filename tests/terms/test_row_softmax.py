"""Multinomial logistic regression of blocks of rows: the solution of one machine, its bits, and proofs that hold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suffice import BilevelProblem, Options, Space, losses, problems, resume, solve, terms, tune
from suffice.terms import blocks
from suffice.terms.blocks import RowBlocks
from suffice.terms.design import Design
from suffice.terms.multinomial import Multinomial
from suffice.terms.row_softmax import RowsMultinomial
from tests.reference import LONG

quick = settings(max_examples=25, deadline=None, derandomize=True)
ROWS, COLUMNS, CLASSES, BLOCK = 600, 4, 3, 128
rng = np.random.default_rng(1)
X = rng.standard_normal((ROWS, COLUMNS))
y = np.array(["a", "b", "c"])[
    np.argmax(X @ rng.standard_normal((COLUMNS, CLASSES)) + rng.gumbel(size=(ROWS, 3)), axis=1)
]
space = Space(l1=(1e-5, 1.0), l2=(1e-5, 1.0))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", BLOCK * 8 * COLUMNS)


def random_models(seed):
    """The same model in blocks of rows and in memory, and weights for it."""
    rng = np.random.default_rng(seed)
    K, d, N = int(rng.integers(2, 6)), int(rng.integers(1, 5)), int(rng.integers(10, 300))
    X = rng.standard_normal((N, d)) * 10.0 ** rng.uniform(-1, 1, d) + rng.standard_normal(d)
    numbers = rng.integers(0, K, N)
    a = rng.random(N) * (rng.random(N) < 0.8) + (np.arange(N) == 0)
    l2 = 10.0 ** rng.uniform(-3, 0)
    rows = RowBlocks.of(X, block=int(rng.integers(3, 40)))
    in_blocks = RowsMultinomial(Design.of(rows, a), numbers.astype(float), False, l2, K)
    w = rng.standard_normal(K * d) * 10.0 ** rng.uniform(-2, 1.5)
    return rng, in_blocks, Multinomial(Design.of(X, a), np.eye(K)[numbers], False, l2), w


def exact_gradient(model, w):
    W = np.asarray(w, dtype=LONG).reshape(model.classes, -1)
    X, a = np.asarray(model.design.X, dtype=LONG), model.design.weights.astype(LONG)
    m = X @ W.T
    e = np.exp(m - m.max(axis=1, keepdims=True))
    slopes = e / e.sum(axis=1, keepdims=True) - model.onehot
    return ((a[:, None] * slopes).T @ X + LONG(model.l2) * W).ravel()


@quick
@given(seed=st.integers(0, 10**6))
def test_the_gradient_lies_within_its_proven_rounding(seed):
    rng, in_blocks, whole, w = random_models(seed)
    image, exact = in_blocks.image(w), exact_gradient(whole, w)
    error = float(np.linalg.norm((in_blocks.gradient_at(w, image) - exact).astype(float)))
    assert error <= in_blocks.rounding_at(w, image) <= 1e-6 * (1.0 + float(np.linalg.norm(w)))
    v = w + rng.standard_normal(len(w))
    carried = in_blocks.image(v) + 0.5 * (image - in_blocks.image(v))
    middle = 0.5 * (v + w)
    error = float(
        np.linalg.norm((in_blocks.gradient_at(middle, carried) - exact_gradient(whole, middle)).astype(float))
    )
    assert error <= in_blocks.gradient_rounding(middle, carried)


@quick
@given(seed=st.integers(0, 10**6))
def test_it_is_the_model_of_the_matrix_in_memory(seed):
    rng, in_blocks, whole, w = random_models(seed)
    image, dense = in_blocks.image(w), whole.image(w)
    assert in_blocks.value_at(w, image) == pytest.approx(whole.value_at(w, dense), rel=1e-12)
    assert in_blocks.gradient_at(w, image) == pytest.approx(whole.gradient_at(w, dense), rel=1e-9, abs=1e-9)
    working = np.flatnonzero(rng.random(len(w)) < 0.7)
    assert in_blocks.hessian(image, working) == pytest.approx(whole.hessian(dense, working), rel=1e-8, abs=1e-10)
    v = w + 0.1 * rng.standard_normal(len(w))
    M = in_blocks.majoriser(w, image, v, in_blocks.image(v))
    assert pytest.approx(whole.majoriser(w, dense, v, whole.image(v)), rel=1e-6) == M


@pytest.mark.parametrize("l1", [0.0, 1e-2])
@pytest.mark.parametrize("solver", ["newton_softmax", "fista", "fista_adaptive", "auto"])
def test_solutions_lie_within_their_proven_radius_of_the_exact_one(solver, l1):
    exact = solve(problems.ElasticNetMultinomial(X, y).at(l1=l1, l2=0.1), within=1e-12)
    there = solve(problems.ElasticNetMultinomial(RowBlocks.of(X), y).at(l1=l1, l2=0.1), within=1e-7, solver=solver)
    assert there.certificate.radius <= 1e-7
    distance = float(np.linalg.norm(there.x - exact.x))
    assert distance <= there.certificate.radius + exact.certificate.radius
    assert there.x.tolist().count(0.0) == exact.x.tolist().count(0.0)


@pytest.mark.parametrize("loss", [losses.MultinomialLogLoss, losses.MultinomialBrier])
def test_held_out_losses_are_those_of_the_fold_and_err_by_no_more_than_proven(loss):
    for train, held in terms.row_folds(RowBlocks.of(X), 3, interleaved=True):
        rows = held.weights.view.mask(0, ROWS)
        model = problems.ElasticNetMultinomial(train, y)
        whole = problems.ElasticNetMultinomial(X[~rows], y[~rows])
        rough = solve(model.at(l1=1e-3, l2=0.1), within=1e-2)
        exact = solve(whole.at(l1=1e-3, l2=0.1), within=1e-12)
        found, truth = loss(held, y, model).at(rough.x), loss(X[rows], y[rows], whole)
        assert found.residual == pytest.approx(truth.at(rough.x).residual, rel=1e-12)
        off = abs(found.residual - truth.at(exact.x).residual)
        assert 0.0 < off <= found.error(rough.certificate.radius) <= 100.0 * rough.certificate.radius
        V, u = rng.standard_normal((len(rough.x), 2)), rng.standard_normal(len(found.residuals))
        t = 1e-6
        ends = [loss(held, y, model).at(rough.x + s * t * V[:, 0]).residuals for s in (1.0, -1.0)]
        assert found.linear.forward(V)[:, 0] == pytest.approx((ends[0] - ends[1]) / (2.0 * t), rel=1e-5, abs=1e-6)
        assert found.linear.adjoint(u) @ V == pytest.approx(u @ found.linear.forward(V), rel=1e-9)


def searched(X, y, **how):
    parts = terms.row_folds(X, 2)
    lower = [problems.ElasticNetMultinomial(train, y) for train, _ in parts]
    scores = [losses.MultinomialLogLoss(held, y, model) for (_, held), model in zip(parts, lower, strict=True)]
    problem = BilevelProblem(lower, scores, space=space)
    return problem, tune(problem, {"l1": 1e-2, "l2": 1e-2}, options=Options(max_evaluations=3), **how)


@pytest.mark.parametrize("chunks", [77, ROWS])
def test_a_search_over_folds_has_the_bits_of_one_machine_on_a_cluster(chunks, tmp_path):
    da, distributed = pytest.importorskip("dask.array"), pytest.importorskip("distributed")
    _, here = searched(RowBlocks.of(X), y)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as workers,
        distributed.Client(workers),
    ):
        there_X, there_y = da.from_array(X, chunks=(chunks, COLUMNS)), da.from_array(y, chunks=100)
        problem, there = searched(there_X, there_y, journal=tmp_path)
        assert repr(there.history) == repr(here.history)
        assert resume(tmp_path, problem=problem).theta.tobytes() == here.theta.tobytes()


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: problems.ElasticNetMultinomial(RowBlocks.of(X), y, intercept=True), TypeError, "column of ones"),
        (lambda: problems.ElasticNetMultinomial(RowBlocks.of(X), y[:-1]), ValueError, "must have shape"),
        (lambda: problems.ElasticNetMultinomial(RowBlocks.of(X), np.zeros(ROWS)), ValueError, "two classes"),
        (lambda: problems.ElasticNetMultinomial(RowBlocks.of(X), np.full(ROWS, np.nan)), ValueError, "NaN"),
        (
            lambda: losses.MultinomialBrier(
                RowBlocks.of(X), np.full(ROWS, "d"), problems.ElasticNetMultinomial(RowBlocks.of(X), y)
            ),
            ValueError,
            "label",
        ),
        (
            lambda: losses.MultinomialBrier(RowBlocks.of(X), y, problems.ElasticNetMultinomial(X, y)),
            TypeError,
            "in blocks of rows",
        ),
        (
            lambda: losses.MultinomialBrier(X, y, problems.ElasticNetMultinomial(RowBlocks.of(X), y)),
            TypeError,
            "in blocks of rows",
        ),
    ],
)
def test_bad_input_is_named(build, error, message):
    with pytest.raises(error, match=message):
        build()
