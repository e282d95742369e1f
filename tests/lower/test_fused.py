"""FISTA's iteration in kernels of our own: the same iteration.

The kernels need Triton and a CUDA device, or Triton's interpreter (TRITON_INTERPRET=1)."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice import solve
from suffice.lower import fused
from suffice.lower.many import solve_together
from suffice.problems import ElasticNet, ElasticNetHuber, ElasticNetLogistic
from suffice.terms.design import ALIGNED, Design
from suffice.terms.margin_losses import Huber, Logistic, Squared


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
    torch = pytest.importorskip("torch")
    X = torch.rand((rows, 5), dtype=torch.float64)
    by_columns = Design.of(X).by_columns
    assert torch.equal(by_columns, X)
    assert by_columns.stride(0) == 1 and by_columns.stride(1) % ALIGNED == 0
    assert Design.of(by_columns).by_columns.data_ptr() == by_columns.data_ptr()


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


@pytest.mark.parametrize("d", [32, 37])  # aligned rows or not
@pytest.mark.parametrize("n", [1, 20, 70, 90])
@pytest.mark.parametrize("loss", [Squared(), Logistic(), Huber(0.3)], ids=lambda loss: type(loss).__name__)
def test_an_iteration_is_the_one_written_out(loss, n, d):
    device = _device()
    import torch

    rng = np.random.default_rng(n)
    N = 203
    X, Y, a = rng.standard_normal((N, d)), np.sign(rng.standard_normal((N, n))), rng.random(N) / N
    W, before, t = rng.standard_normal((d, n)), rng.standard_normal((d, n)), 1.0 + rng.random(n)
    l1, mu, L = 0.01 * rng.random(n), 0.1 * rng.random(n), 2.0 + rng.random(n)
    there = [torch.asarray(array, device=device) for array in (X, a, Y, l1, mu, mu, L)]
    iteration = fused.iteration(Design(*there[:2]), loss, *there[2:])
    W_next, Z, G, t_next = iteration(*(torch.asarray(array, device=device) for array in (W, before, t)))

    q = mu / L
    rest = 1.0 - q * t * t
    expected_t = 0.5 * (rest + np.sqrt(rest * rest + 4.0 * t * t))
    beta = (t - 1.0) * (1.0 - q * expected_t) / (expected_t * (1.0 - q))
    expected_Z = W + beta * (W - before)
    expected_G = X.T @ (a[:, None] * loss.derivative(X @ expected_Z, Y)) + mu * expected_Z
    V = expected_Z - expected_G / L
    expected_W = np.sign(V) * np.maximum(np.abs(V) - l1 / L, 0.0)
    for found, expected in ((Z, expected_Z), (G, expected_G), (W_next, expected_W), (t_next, expected_t)):
        np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("family", [ElasticNet, ElasticNetLogistic, ElasticNetHuber])
def test_solutions_from_a_device_are_proven(family):
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
        for one, problem in zip(solve_together(there, steps=steps, solver="fista"), here, strict=True):
            np.testing.assert_allclose(one.x, solve(problem, steps=steps, solver="fista").x, rtol=1e-8, atol=1e-10)
    for within in (1e-2, 1e-7):
        for one, problem in zip(solve_together(there, within=[within] * 30, solver="fista"), here, strict=True):
            exact = solve(problem, within=1e-11, solver="newton")
            assert one.reached
            assert np.linalg.norm(one.x - exact.x) <= one.certificate.radius + exact.certificate.radius
