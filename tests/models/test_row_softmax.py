"""Multinomial logistic regression of blocks of rows: the solution of one machine, its bits, and proofs that hold."""

from functools import cache

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from suffice import BilevelProblem, Options, Space, losses, problems, resume, solve, terms, tune
from suffice.models.multinomial import Multinomial
from suffice.rows import blocks
from suffice.rows.blocks import RowBlocks
from suffice.rows.design import Design
from tests.models.test_multinomial import exact_intercept
from tests.reference import LONG
from tests.reference_verified import minimiser

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


def random_models(seed, intercept):
    """The same model in blocks of rows and in memory, and weights for it."""
    rng = np.random.default_rng(seed)
    K, d, N = int(rng.integers(2, 6)), int(rng.integers(1, 5)), int(rng.integers(20, 300))
    X = rng.standard_normal((N, d)) * 10.0 ** rng.uniform(-1, 1, d) + rng.standard_normal(d)
    numbers = np.concatenate([np.arange(K), rng.integers(0, K, N - K)])
    a = rng.random(N) * (rng.random(N) < 0.8) + (np.arange(N) < K)
    l2 = 10.0 ** rng.uniform(-3, 0)
    rows = RowBlocks.of(X, block=int(rng.integers(3, 40)))
    in_blocks = Multinomial(Design.of(rows, a), numbers.astype(float), K, intercept, l2)
    w = rng.standard_normal(K * d) * 10.0 ** rng.uniform(-2, 0.5 if intercept else 1.5)
    return rng, in_blocks, Multinomial(Design.of(X, a), numbers.astype(float), K, intercept, l2), w


def exact(model, w):
    """The gradient and the intercepts, in extended precision."""
    W = np.asarray(w, dtype=LONG).reshape(model.classes, -1)
    X, a = np.asarray(model.design.X, dtype=LONG), model.design.weights.astype(LONG)
    m, b = X @ W.T, np.zeros(model.classes, dtype=LONG)
    if model.intercept:
        b = exact_intercept(model, m, model.shift(m.astype(float))[0])
    m = m + b
    e = np.exp(m - m.max(axis=1, keepdims=True))
    slopes = e / e.sum(axis=1, keepdims=True) - np.eye(model.classes)[model.y.astype(int)]
    return ((a[:, None] * slopes).T @ X + LONG(model.l2) * W).ravel(), b


def distance(x, y):
    return float(np.linalg.norm((x - y).astype(float)))


with_intercepts = pytest.mark.parametrize("intercept", [False, True], ids=["", "intercepts"])


@with_intercepts
@given(seed=st.integers(0, 10**6))
def test_gradient_and_intercepts_lie_within_their_proven_rounding(intercept, seed):
    rng, in_blocks, whole, w = random_models(seed, intercept)
    image, (gradient, b) = in_blocks.image(w), exact(whole, w)
    rounding = in_blocks.rounding_at(w, image)
    assert distance(in_blocks.gradient_at(w, image), gradient) <= rounding
    assert rounding <= 1e-6 * (1.0 + float(np.linalg.norm(w))) or in_blocks.shift(image)[1] > 1e-9
    # b is that of the computed margins: these are off as well
    found, error = in_blocks.shift(image)
    own = in_blocks.design.margin_rounding(w) * in_blocks.reach * float(np.linalg.norm(w))
    assert distance(found, b) <= error + own
    v = w + rng.standard_normal(len(w))
    carried = in_blocks.image(v) + 0.5 * (image - in_blocks.image(v))
    middle = 0.5 * (v + w)
    error = distance(in_blocks.gradient_at(middle, carried), exact(whole, middle)[0])
    assert error <= in_blocks.gradient_rounding(middle, carried)


@with_intercepts
@given(seed=st.integers(0, 10**6))
def test_it_is_the_model_of_the_matrix_in_memory(intercept, seed):
    rng, in_blocks, whole, w = random_models(seed, intercept)
    image, dense = in_blocks.image(w), whole.image(w)
    assert in_blocks.value_at(w, image) == pytest.approx(whole.value_at(w, dense), rel=1e-12)
    assert in_blocks.gradient_at(w, image) == pytest.approx(whole.gradient_at(w, dense), rel=1e-9, abs=1e-9)
    working = np.flatnonzero(rng.random(len(w)) < 0.7)
    assert in_blocks.hessian(image, working) == pytest.approx(whole.hessian(dense, working), rel=1e-8, abs=1e-10)
    v = w + 0.1 * rng.standard_normal(len(w))
    M = in_blocks.majoriser(w, image, v, in_blocks.image(v))
    assert pytest.approx(whole.majoriser(w, dense, v, whole.image(v)), rel=1e-6) == M


@given(seed=st.integers(0, 10**6))
def test_intercepts_follow_weights_as_their_jacobian_says_and_no_farther_than_proven(seed):
    rng, model, _, w = random_models(seed, True)
    image, u, t = model.image(w), rng.standard_normal(len(w)), 1e-5
    b, error = model.shift(image)
    ends = [model.shift(model.image(w + s * t * u))[0] for s in (1.0, -1.0)]
    steep = float(np.abs(model.design.X.gathered(model.design.row_norms)).max())
    slope = (ends[0] - ends[1]) / (2.0 * t)
    assert model.intercept_along(image, u[:, None])[:, 0] == pytest.approx(
        slope, rel=1e-3, abs=1e-4 * steep + error / t
    )
    for rho in 10.0 ** np.linspace(-4, 1, 4):
        v = w + rho * u / np.linalg.norm(u)
        there, off = model.shift(model.image(v))
        assert distance(there, b) <= model.drift(w, image, rho) + error + off


@cache
def exact_minimiser(l1, intercept):
    return minimiser(problems.ElasticNetMultinomial(X, y, intercept=intercept).at(l1=l1, l2=0.1))


@with_intercepts
@pytest.mark.parametrize("l1", [0.0, 1e-2])
@pytest.mark.parametrize("solver", ["newton", "fista", "fista_adaptive", "auto"])
def test_solutions_lie_within_their_proven_radius_of_the_exact_one_to_forty_digits(solver, l1, intercept):
    exact = exact_minimiser(l1, intercept)
    there = solve(
        problems.ElasticNetMultinomial(RowBlocks.of(X), y, intercept=intercept).at(l1=l1, l2=0.1),
        within=1e-7,
        solver=solver,
    )
    assert there.certificate.radius <= 1e-7
    assert exact.distance(there.x) <= arb(there.certificate.radius)
    assert there.x.tolist().count(0.0) == exact.rounded().tolist().count(0.0)


@with_intercepts
@pytest.mark.parametrize("loss", [losses.MultinomialLogLoss, losses.MultinomialBrier])
def test_held_out_losses_are_those_of_the_fold_and_err_by_no_more_than_proven(loss, intercept):
    for train, held in terms.row_folds(RowBlocks.of(X), 3, interleaved=True):
        rows = held.here(held.weights) > 0.0
        model = problems.ElasticNetMultinomial(train, y, intercept=intercept)
        whole = problems.ElasticNetMultinomial(X[~rows], y[~rows], intercept=intercept)
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


def searched(X, y, intercept, **how):
    parts = terms.row_folds(X, 2)
    lower = [problems.ElasticNetMultinomial(train, y, intercept=intercept) for train, _ in parts]
    scores = [losses.MultinomialLogLoss(held, y, model) for (_, held), model in zip(parts, lower, strict=True)]
    problem = BilevelProblem(lower, scores, space=space)
    return problem, tune(problem, {"l1": 1e-2, "l2": 1e-2}, options=Options(max_evaluations=3), **how)


@pytest.mark.parametrize(
    ("chunks", "intercept"),
    [(77, True), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((77, False), (ROWS, True)))],
)
def test_a_search_over_folds_has_the_bits_of_one_machine_on_a_cluster(chunks, intercept, tmp_path):
    da, distributed = pytest.importorskip("dask.array"), pytest.importorskip("distributed")
    _, here = searched(RowBlocks.of(X), y, intercept)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as workers,
        distributed.Client(workers),
    ):
        there_X, there_y = da.from_array(X, chunks=(chunks, COLUMNS)), da.from_array(y, chunks=100)
        problem, there = searched(there_X, there_y, intercept, journal=tmp_path)
        assert repr(there.history) == repr(here.history)
        assert resume(tmp_path, problem=problem).theta.tobytes() == here.theta.tobytes()


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda: problems.ElasticNetMultinomial(RowBlocks.of(X), y, intercept=True, sample_weight=1.0 * (y != "b")),
            ValueError,
            "'b' has no intercept",
        ),
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
