"""suffice.autodiff: one function of weights and parameters is a certified, differentiable lower-level problem."""

import pickle
from typing import Any

import numpy as np
import pytest

import suffice
from suffice.arrays import norm
from suffice.losses import SquaredDistance, SquaredError
from suffice.penalties.prox import L1
from suffice.problems import ElasticNet
from tests.search.test_derivatives import check, relative

rng = np.random.default_rng(3)
X, y = rng.standard_normal((30, 5)), rng.standard_normal(30)
X_val, y_val = rng.standard_normal((10, 5)), rng.standard_normal(10)


def library(backend: str) -> Any:
    found = pytest.importorskip(backend)
    if backend == "jax":
        found.config.update("jax_enable_x64", True)
        return found.numpy
    return found


def ridge(xp: Any) -> Any:
    A, b = (xp.asarray(part.copy()) for part in (X, y))

    def fun(w, l2, shift):
        return 0.5 * ((A @ w - b - shift) ** 2).mean() + 0.5 * l2 * (w**2).sum()

    return fun


@pytest.fixture(params=["torch", "jax"])
def backend(request):
    library(request.param)
    return request.param


def test_products_are_those_of_the_function_by_hand(backend):
    term = suffice.autodiff.smooth(ridge(library(backend)), backend).at(l2=0.3, shift=0.1)
    w, v = rng.standard_normal(5), rng.standard_normal(5)
    t = X @ w - y - 0.1
    assert term.value(w) == pytest.approx(0.5 * np.mean(t**2) + 0.15 * w @ w, rel=1e-13)
    assert np.allclose(term.gradient(w), X.T @ t / 30 + 0.3 * w, rtol=1e-12)
    assert np.allclose(term.hessian_product(w, v), X.T @ (X @ v) / 30 + 0.3 * v, rtol=1e-12)
    K = np.column_stack([w, -X.mean(axis=0)])
    assert np.allclose(term.cross_product(w, v), K.T @ v, rtol=1e-12)
    assert np.allclose(term.cross_forward(w, v[:2]), K @ v[:2], rtol=1e-12)


def test_with_constants_it_is_a_certified_problem_like_the_ready_made_one(backend):
    function = suffice.autodiff.smooth(ridge(library(backend)), backend)
    ours = function.problem(
        5, mu=lambda p: p["l2"], L=lambda p: p["l2"] + np.linalg.norm(X, 2) ** 2 / 30, prox=L1(0.02)
    )
    found = suffice.solve(ours.at(l2=0.3, shift=0.0), within=1e-9)
    assert found.reached
    known = suffice.solve(ElasticNet(X, y).at(l1=0.02, l2=0.3), within=1e-10).x
    assert norm(found.x - known) <= found.certificate.radius + 1e-10


def test_its_jacobian_is_that_of_exact_solutions(backend, monkeypatch):
    xp = library(backend)
    A, b = (xp.asarray(part.copy()) for part in (X, y))

    def fun(w, weights, l2):  # a robust loss with a scale for every second row, and a penalty that is no quadratic
        t = (A @ w - b).reshape(15, 2)
        return ((1.0 + t**2) ** 0.5 @ weights).mean() + 0.5 * l2 * (w**2).sum() + (1.0 + w**2).log1p().sum() * 0.01 * l2

    def jax_fun(w, weights, l2):
        t = (A @ w - b).reshape(15, 2)
        return ((1.0 + t**2) ** 0.5 @ weights).mean() + 0.5 * l2 * (w**2).sum() + xp.log1p(1.0 + w**2).sum() * 0.01 * l2

    function = suffice.autodiff.smooth(fun if backend == "torch" else jax_fun, backend, arrays={"weights": (2,)})
    bound = 2.0 * np.linalg.norm(X, 2) ** 2 / 15
    lower = function.problem(5, mu=lambda p: 0.9 * p["l2"], L=lambda p: bound + 2.0 * p["l2"], prox=L1(0.02))
    space = suffice.Space(l2=(1e-3, 10.0), **dict.fromkeys(function.names("weights"), (0.1, 2.0)))
    problem = suffice.BilevelProblem([lower], [SquaredError(X_val, y_val)], space=space, max_steps=3000)
    params = {"l2": 4.0} | {name: 1.0 + 0.5 * i for i, name in enumerate(function.names("weights"))}
    check(problem, params, monkeypatch)


def test_a_search_goes_through(backend):
    function = suffice.autodiff.smooth(ridge(library(backend)), backend)
    lower = function.problem(5, mu=lambda p: p["l2"], L=lambda p: p["l2"] + np.linalg.norm(X, 2) ** 2 / 30)
    problem = suffice.BilevelProblem(
        [lower], [SquaredDistance(np.full(5, 0.1))], space=suffice.Space(l2=(1e-3, 10.0), shift=(-1.0, 1.0))
    )
    start = {"l2": 1.0, "shift": 0.0}
    result = suffice.tune(problem, start, options=suffice.Options(max_evaluations=25, final_radius=1e-4))
    assert result.cost < problem.evaluate(problem.space.theta(start), within=1e-6).cost
    told = problem.differentiate(problem.evaluate(result.theta, within=1e-9))
    assert told.J is not None


def test_what_is_not_a_function_of_the_library_is_refused(backend):
    xp = library(backend)
    with pytest.raises(TypeError, match="fun must return a number as a"):
        suffice.autodiff.smooth(lambda w: 2.0 * w, backend).at().value(np.ones(2))
    with pytest.raises(TypeError, match="fun must return a number as a"):
        suffice.autodiff.smooth(lambda w: 1.0, backend).at().gradient(np.ones(2))
    if backend == "torch":
        with pytest.raises(ValueError, match="must depend on w"):
            suffice.autodiff.smooth(lambda w: xp.zeros((), dtype=xp.float64), backend).at().gradient(np.ones(2))


def test_arguments_are_checked():
    with pytest.raises(TypeError, match="fun must be callable"):
        suffice.autodiff.smooth(3)
    with pytest.raises(ValueError, match="backend must be one of torch, jax, got 'tensorflow'"):
        suffice.autodiff.smooth(abs, "tensorflow")
    with pytest.raises(ValueError, match="a has 2 entries, a1 is missing"):
        suffice.autodiff.smooth(abs, arrays={"a": (2,)}).at(a0=1.0)


def test_a_library_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("importlib.import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    with pytest.raises(ImportError, match=r"backend='torch' needs torch: pip install 'suffice\[gpu\]'"):
        suffice.autodiff.smooth(lambda w: w.sum()).at().value(np.ones(2))


def module_level(w, l2):
    return 0.5 * l2 * (w**2).sum()


def test_it_travels_to_workers_and_has_a_fingerprint():
    library("torch")
    lower = suffice.autodiff.smooth(module_level).problem(2, mu=1e-3, L=10.0)
    first = lower.at(l2=2.0).smooth.gradient(np.ones(2))
    again = pickle.loads(pickle.dumps(lower))
    assert np.array_equal(again.at(l2=2.0).smooth.gradient(np.ones(2)), first)
    assert lower.fingerprint() == again.fingerprint()
    other = suffice.autodiff.smooth(lambda w, l2: l2 * (w**2).sum()).problem(2, mu=1e-3, L=10.0)
    assert other.fingerprint()["value"] != lower.fingerprint()["value"]
    assert relative(first, 2.0 * np.ones(2)) == 0.0
