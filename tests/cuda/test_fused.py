"""FISTA's iteration in kernels of our own: the same iteration.

The kernels need Triton and a CUDA device, or Triton's interpreter (TRITON_INTERPRET=1)."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice import solve
from suffice.arrays import host
from suffice.cuda import batched_columns, fused
from suffice.cuda.columns import ColumnLosses, ColumnProblems
from suffice.models.margin_losses import Huber, Logistic, Squared
from suffice.problems import ElasticNet, ElasticNetHuber, ElasticNetLogistic
from suffice.rows.design import ALIGNED, Design
from suffice.solvers.fista import AdaptiveFista
from tests.batches import solve_together


@given(st.integers(1, 1000))
def test_all_columns_have_a_place_and_little_is_padded(n):
    shape = fused.Shape.of(n)
    assert shape.pieces * shape.width >= n
    assert shape.P1 & (shape.P1 - 1) == 0 and shape.P2 & (shape.P2 - 1) == 0 and shape.P2 < shape.P1
    assert shape.stride % ALIGNED == 0 and shape.stride >= shape.pieces * shape.width
    assert n < 16 or shape.pieces * shape.width <= 1.5 * n


def test_seventy_columns_are_padded_to_seventy_two():
    assert fused.Shape.of(70) == fused.Shape(1, 64, 8)


@pytest.mark.parametrize("rows", [32, 37])
def test_a_matrix_by_columns_is_copied_only_where_it_has_to_be(rows):
    """Kernels read columns to the next multiple of ALIGNED: what is there has to be zero."""
    torch = pytest.importorskip("torch")
    X = torch.rand((rows, 5), dtype=torch.float64)
    by_columns = Design.of(X).by_columns
    assert torch.equal(by_columns, X)
    assert by_columns.stride(0) == 1 and by_columns.stride(1) % ALIGNED == 0
    between = torch.as_strided(by_columns, (by_columns.stride(1), 5), by_columns.stride())[rows:]
    assert not between.any()
    again = Design.of(by_columns).by_columns
    assert (again.data_ptr() == by_columns.data_ptr()) == (rows % ALIGNED == 0)


@pytest.mark.parametrize("entry, exact", [(255.0, True), (0.5, True), (0.1, False), (1e300, False), (1e-60, False)])
def test_a_matrix_is_held_in_float32_where_that_is_exact(entry, exact):
    torch = pytest.importorskip("torch")
    X = torch.arange(12.0, dtype=torch.float64).reshape(4, 3)
    X[2, 1] = entry
    design = Design(X, torch.full((4,), 0.25, dtype=torch.float64))
    assert design.compact.dtype == (torch.float32 if exact else torch.float64)
    assert torch.equal(design.compact.double(), X)


def test_it_is_used_on_cuda_only():
    torch = pytest.importorskip("torch")
    assert not fused.available(np.ones((3, 2)), Logistic())
    assert not fused.available(torch.ones((3, 2)), Logistic())


def _device():
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "cpu"
    return "cuda" if torch.cuda.is_available() else pytest.skip("no device")


@pytest.fixture(params=["whole", "in parts"])
def parts(request, monkeypatch):
    """X Z is also made from parts of the columns of X, where there are few rows, and both products read the same copy
    of an X of which the device's cache has room for one."""
    monkeypatch.setattr(fused, "BUSY", 1000 if request.param == "in parts" else 0)
    monkeypatch.setattr(fused, "one_copy", lambda X: request.param == "in parts")


@pytest.mark.parametrize("exact", [False, True], ids=["float64", "float32"])
@pytest.mark.parametrize("d", [32, 37])  # aligned rows or not
@pytest.mark.parametrize("n, loss", [(1, Squared()), (20, Huber(0.3)), (70, Logistic()), (90, Logistic())], ids=str)
def test_an_iteration_is_the_one_written_out(loss, n, d, exact, parts):
    """A copy of X in float32, where that is exact, changes nothing."""
    device = _device()
    import torch

    rng = np.random.default_rng(n)
    N = 203
    X, Y, a = rng.standard_normal((N, d)), np.sign(rng.standard_normal((N, n))), rng.random(N) / N
    X = np.round(X, 2).astype(np.float32).astype(np.float64) if exact else X
    W, before, t = rng.standard_normal((d, n)), rng.standard_normal((d, n)), 1.0 + rng.random(n)
    l1, mu, L = 0.01 * rng.random(n), 0.1 * rng.random(n), 2.0 + rng.random(n)
    there = [torch.asarray(array, device=device) for array in (X, a, Y, l1, mu, mu, L)]
    design = Design(*there[:2])
    assert (design.by_columns.dtype == torch.float32) == exact
    iteration = fused.iteration(design, loss, *there[2:])
    k = np.arange(n) + 5.0
    W_next, Z, G, t_next, k_next = iteration(*(torch.asarray(array, device=device) for array in (W, before, t, k)))

    q = mu / L
    rest = 1.0 - q * t * t
    expected_t = 0.5 * (rest + np.sqrt(rest * rest + 4.0 * t * t))
    beta = (t - 1.0) * (1.0 - q * expected_t) / (expected_t * (1.0 - q))
    expected_Z = W + beta * (W - before)
    expected_G = X.T @ (a[:, None] * loss.derivative(X @ expected_Z, Y)) + mu * expected_Z
    V = expected_Z - expected_G / L
    expected_W = np.sign(V) * np.maximum(np.abs(V) - l1 / L, 0.0)
    made = (Z, expected_Z), (G, expected_G), (W_next, expected_W), (t_next, expected_t), (k_next, k + 1.0)
    for found, expected in made:
        np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=1e-12, atol=1e-13)


def test_iterations_that_follow_each_other_are_those_that_begin_anew():
    """The next Z is made ahead; it is taken for the state that it belongs to, and for no other."""
    device = _device()
    import torch

    rng = np.random.default_rng(1)
    X, Y, a = rng.standard_normal((50, 9)), np.sign(rng.standard_normal((50, 4))), np.full(50, 0.02)
    l1, mu, L = np.full(4, 0.01), np.full(4, 0.1), np.full(4, 3.0)
    there = [torch.asarray(array, device=device) for array in (X, a, Y, l1, mu, mu, L)]
    start = [torch.asarray(rng.standard_normal((9, 4)), device=device) for _ in range(2)]
    start += [torch.ones(4, dtype=torch.float64, device=device) for _ in range(2)]

    step = fused.iteration(Design(*there[:2]), Logistic(), *there[2:])

    def after(state, steps, anew):
        for _ in range(steps):
            W, before, t, k = [array.clone() for array in state] if anew else state
            W_next, _, _, t_next, k_next = step(W, before, t, k)
            state = W_next, W, t_next, k_next
        return state

    first = after(start, 1, False)
    for steps in (1, 4, 2):  # from the same state several times
        for one, other in zip(after(first, steps, False), after(first, steps, True), strict=True):
            np.testing.assert_allclose(host(one), host(other), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("solver", ["fista", "fista_adaptive"])
def test_a_batch_of_these_iterations_is_the_method(solver, monkeypatch):
    """On the CPU, by Triton's interpreter."""
    if _device() != "cpu":
        pytest.skip("no interpreter")
    import torch

    monkeypatch.setattr(fused, "available", lambda X, loss: not isinstance(X, np.ndarray))
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((150, 12)), rng.standard_normal((12, 5))
    design = Design.of(torch.asarray(X))
    there, here = (
        [ElasticNetLogistic(rows, X @ column > 0.0).at(l1=0.01, l2=0.05) for column in w.T] for rows in (design, X)
    )
    for one, problem in zip(solve_together(there, steps=25, solver=solver), here, strict=True):
        np.testing.assert_allclose(one.x, solve(problem, steps=25, solver=solver).x, rtol=1e-12, atol=1e-13)
    for one, problem in zip(solve_together(there, within=[1e-2] * 5, solver=solver), here, strict=True):
        assert one.reached
        assert np.linalg.norm(one.x - solve(problem, within=1e-10).x) <= one.certificate.radius + 1e-10


@pytest.mark.parametrize("solver", ["fista", "fista_adaptive"])
@pytest.mark.parametrize("family", [ElasticNet, ElasticNetLogistic, ElasticNetHuber])
def test_solutions_from_a_device_are_proven(family, solver):
    if _device() != "cuda":
        pytest.skip("no device")
    import torch

    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((500, 60)), rng.standard_normal((60, 30))
    targets = [X @ column > 0.0 if family is ElasticNetLogistic else X @ column for column in w.T]
    design = Design.of(torch.asarray(X, device="cuda"))
    there = [family(design, target).at(l1=0.01, l2=0.003) for target in targets]
    here = [family(X, target).at(l1=0.01, l2=0.003) for target in targets]
    assert fused.available(design.X, there[0].smooth.loss)
    for steps in (1, 7, 200):
        for one, problem in zip(solve_together(there, steps=steps, solver=solver), here, strict=True):
            np.testing.assert_allclose(one.x, solve(problem, steps=steps, solver=solver).x, rtol=1e-8, atol=1e-10)
    for within in (1e-2, 1e-7):
        for one, problem in zip(solve_together(there, within=[within] * 30, solver=solver), here, strict=True):
            exact = solve(problem, within=1e-11, solver="newton")
            assert one.reached
            assert np.linalg.norm(one.x - exact.x) <= one.certificate.radius + exact.certificate.radius


@pytest.mark.parametrize("n", [1, 20, 70, 90])
@pytest.mark.parametrize("loss", [Squared(), Logistic(), Huber(0.3)], ids=lambda loss: type(loss).__name__)
def test_an_adaptive_iteration_is_the_one_written_out(loss, n, parts):
    """Some columns' steps are too long and are not made; these stay, margins and all."""
    device = _device()
    import torch

    rng = np.random.default_rng(n)
    N, d = 203, 37
    X, Y, a = rng.standard_normal((N, d)), np.sign(rng.standard_normal((N, n))), rng.random(N) / N
    l1, mu, L = 0.01 * rng.random(n), 0.1 + 0.1 * rng.random(n), 2.0 + rng.random(n)
    W, before = rng.standard_normal((d, n)), rng.standard_normal((d, n))
    failed = rng.random(n) < 0.3
    numbers = (1.0 + rng.random(n), np.arange(n) % 3 * 1.0, 10.0 ** rng.uniform(-1, 1, n), rng.random(n))
    start = (W, before, X @ W, X @ before, W + 1.0, W - 1.0)

    def there(array):
        return torch.tensor(array, device=device)  # a copy: the iteration writes to its margins

    design, given = Design(there(X), there(a)), [there(one) for one in (Y, l1, mu, mu, L)]
    step = fused.adaptive_iteration(design, loss, *given, 1.1, 0.5)
    moving = [there(array) for array in start]
    moving.insert(5, moving[2][:0])  # margins of Z are not kept
    found = step(batched_columns.FistaColumns(*moving, *map(there, numbers), there(failed)))

    solver = AdaptiveFista(grow=1.1, shrink=0.5)
    shared = ColumnProblems((), Design(X, a), ColumnLosses(loss, a[:, None], Y), l1, mu, mu, L)
    W, before, M, M_before, Z, G = start
    state = batched_columns.FistaColumns(W, before, M, M_before, Z, M, G, *numbers, failed)
    expected = batched_columns._adaptive_step(solver, shared, None, state)
    made = expected.k > state.k
    assert n < 20 or (made.any() and not made.all())
    for name, value in found.items():
        np.testing.assert_allclose(host(value), getattr(expected, name), rtol=1e-11, atol=1e-12, err_msg=name)
