"""Newton's method for several classes: the exact minimiser in every regime, by products as well as by matrices, and the
same bits whether a solve was interrupted or not."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from flint import arb

import suffice
from suffice.journal.codec import decode, encode
from suffice.solvers import hessian
from suffice.solvers.hessian import hessians_of
from suffice.solvers.newton import NewtonState
from suffice.solvers.quadratic import ByProducts
from suffice.solvers.solver import iterate
from tests.prove.test_verified_softmax import data, model
from tests.reference_verified import minimiser

SOLVER = "newton"
SHAPES = {"tall": (25, 4, 3), "wide": (8, 10, 3), "many classes": (30, 2, 6)}


def problems(shape, sparse=False, weights=None):
    X, y = data(*SHAPES[shape], seed=3)
    X = sp.csr_array(np.where(np.abs(X) < 0.8, 0.0, X)) if sparse else X
    for l1, l2 in ((0.0, 1e-4), (0.0, 1.0), (0.01, 1e-6), (0.03, 1e-2)):
        for intercept in (False, True):
            yield model(X, y, l1, l2, intercept, weights)


def by_products(monkeypatch):
    monkeypatch.setattr(hessian, "CG_STEPS", 0.0)
    monkeypatch.setattr(hessian, "ADMM_STEPS", 0.0)


@pytest.mark.parametrize("form", ["products", "matrices"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_reaches_what_is_asked_for_and_no_radius_is_less_than_the_distance(monkeypatch, shape, sparse, form):
    if form == "products":
        by_products(monkeypatch)
    for problem in problems(shape, sparse):
        exact = minimiser(problem)
        for _, one in zip(range(12), iterate(problem, solver=SOLVER), strict=False):
            assert math.isinf(one.certificate.radius) or exact.distance(one.x) <= arb(one.certificate.radius)
        reached = suffice.solve(problem, within=1e-7, solver=SOLVER)
        assert reached.reached and exact.distance(reached.x) <= arb(1e-7) and reached.steps < 60


def test_products_and_matrices_are_one_hessian(monkeypatch):
    by_products(monkeypatch)
    for problem in problems("wide"):
        smooth, ridge = problem.smooth.term, problem.smooth.ridge
        rng = np.random.default_rng(0)
        image = smooth.image(rng.standard_normal(problem.size))
        for working in (np.arange(problem.size), np.sort(rng.choice(problem.size, 12, replace=False))):
            H = smooth.hessian(image, working) + np.diag(ridge[working])
            product = hessians_of(problem.canonical).at(image, working, 1e-12)
            assert isinstance(product, ByProducts)
            V = rng.standard_normal((len(working), 2))
            for v in (V, V[:, 0]):
                assert product.product(v) == pytest.approx(H @ v, rel=1e-9, abs=1e-12)
                assert product.solver()(v) == pytest.approx(np.linalg.solve(H, v), rel=1e-6, abs=1e-8)
            some = product.on(np.arange(0, len(working), 2))
            assert some.product(V[::2]) == pytest.approx(H[::2, ::2] @ V[::2], rel=1e-9, abs=1e-12)


def test_auto_takes_it_for_several_classes():
    problem = next(problems("tall"))
    assert isinstance(suffice.solve(problem, within=1e-3).state, NewtonState)
    assert (
        suffice.solve(problem, within=1e-3).x.tobytes()
        == suffice.solve(problem, within=1e-3, solver=SOLVER).x.tobytes()
    )


@pytest.mark.parametrize("form", ["products", "matrices"])
def test_a_solve_that_was_read_from_a_file_goes_on_to_the_same_bits(monkeypatch, form):
    if form == "products":
        by_products(monkeypatch)
    for problem in problems("tall"):
        whole = suffice.solve(problem, within=1e-8, solver=SOLVER)
        for steps in range(1, whole.steps):
            part = suffice.solve(problem, steps=steps, solver=SOLVER)
            read = decode(encode(part))
            suffice.solve(problem, steps=1, solver=SOLVER, warm=np.ones(problem.size))  # something else in between
            read = type(part)(**{**vars(read), "problem": problem})
            again = suffice.solve(problem, within=1e-8, solver=SOLVER, warm=read)
            assert again.x.tobytes() == whole.x.tobytes() and again.steps == whole.steps


def test_classes_that_can_be_separated_are_no_trouble():
    X, y = data(60, 3, 3)
    X = X + 30.0 * np.eye(3)[y]
    solution = suffice.solve(model(X, y, 0.0, 1e-8), steps=40, solver=SOLVER)
    assert np.isfinite(solution.x).all() and solution.certificate.radius < 1e-2 * np.linalg.norm(solution.x)
