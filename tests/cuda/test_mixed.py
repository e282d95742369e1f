"""Iterates in float32, proofs in float64."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import scipy.sparse as sp

from suffice import Composite, iterate, solve
from suffice.journal.codec import decode, encode
from suffice.problems import ElasticNet, ElasticNetLogistic
from suffice.rows.design import Design
from suffice.rows.memory import InMemory
from suffice.solvers.solution import Outcome
from suffice.terms import L1
from tests.reference import random_case

rng = np.random.default_rng(3)
X = rng.standard_normal((300, 40)) * np.linspace(0.1, 3.0, 40)
y = X[:, :4].sum(axis=1) + rng.standard_normal(300)


def logistic(kind=np.asarray, l2=1e-3):
    return ElasticNetLogistic(kind(X), y > 0.0).at(l1=1e-3, l2=l2)


def counted(monkeypatch):
    """Products with X and X^T by the precision of X."""
    counts = {np.dtype(np.float32): 0, np.dtype(np.float64): 0}
    for owner, name in ((InMemory, "directions"), (InMemory, "pull"), (Design, "margins"), (Design, "adjoint")):
        original = getattr(owner, name)

        def product(rows, vector, original=original):
            counts[rows.X.dtype] += 1
            return original(rows, vector)

        monkeypatch.setattr(owner, name, product)
    return counts


@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, sp.csr_array, sp.csc_array])
def test_most_products_are_in_float32(kind, monkeypatch):
    problem = logistic(kind)
    counts = counted(monkeypatch)
    solution = solve(problem, within=1e-3, solver="fista_mixed")
    assert solution.reached and solution.state.float32
    assert counts[np.dtype(np.float32)] > 4 * counts[np.dtype(np.float64)] > 0


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("within", [1e-1, 1e-3, 1e-7, 1e-8])
def test_what_float32_cannot_give_float64_does(kind, within):
    problem = logistic(kind)
    exact = solve(problem, within=1e-12, solver="newton")
    solution = solve(problem, within=within, solver="fista_mixed")
    assert solution.outcome is Outcome.REACHED
    assert solution.state.float32 == (within > 1e-5)
    assert np.linalg.norm(solution.x - exact.x) <= solution.certificate.radius + exact.certificate.radius


def test_the_proof_is_of_the_point_that_is_returned():
    """Between two proofs the point stays where it was proven, however far the method has come."""
    case = random_case("logistic", "l1", 1)
    seen = set()
    for solution in islice(iterate(case.problem, solver="fista_mixed"), 1, 400):
        assert float(np.linalg.norm(solution.x - case.x_hat.astype(float))) <= solution.certificate.radius
        seen.add(solution.certificate.radius)
    assert len(seen) > 5


@pytest.mark.parametrize("steps", [3, 20, 200])
def test_a_solution_from_a_file_goes_on_to_the_same_bits(steps):
    problem = logistic()
    first = solve(problem, steps=steps, solver="fista_mixed")
    read = replace(decode(encode(replace(first, problem=None))), problem=problem)
    one, other = (solve(problem, within=1e-9, solver="fista_mixed", warm=warm) for warm in (first, read))
    assert one.x.tobytes() == other.x.tobytes() and one.steps == other.steps
    assert one.certificate == other.certificate


@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_numbers_beyond_the_range_of_float32_are_left_to_float64(scale):
    problem = ElasticNet(scale * X, y).at(l1=1e-3 * scale, l2=0.1 * scale**2)
    solution = solve(problem, within=1e-6 / scale, solver="fista_mixed")
    exact = solve(problem, within=1e-9 / scale, solver="fista")
    assert solution.reached
    assert np.linalg.norm(solution.x - exact.x) <= solution.certificate.radius + exact.certificate.radius


def test_it_needs_a_linear_model():
    class Quadratic:
        def value(self, x):
            return 0.5 * float(x @ x)

        def gradient(self, x):
            return x

    with pytest.raises(ValueError, match=r"'fista_mixed' needs a linear model .* got Plain"):
        solve(Composite(Quadratic(), L1(0.1), mu=1.0, L=1.0, size=2), within=1e-3, solver="fista_mixed")


def test_x_in_blocks_has_no_float32_copy(tmp_path):
    np.save(tmp_path / "X.npy", X)
    on_disk = np.load(tmp_path / "X.npy", mmap_mode="r")
    with pytest.raises(TypeError, match="X is read in blocks"):
        solve(ElasticNet(on_disk, y).at(l1=1e-3, l2=0.1), within=1e-3, solver="fista_mixed")
