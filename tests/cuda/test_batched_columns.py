"""Problems that share a design are solved in one iteration on matrices, each to its own accuracy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from suffice import solve
from suffice.cuda import memory as cuda
from suffice.cuda.batched_columns import share_a_design
from suffice.problems import ElasticNet, ElasticNetHuber, ElasticNetLogistic
from suffice.solvers.solution import Outcome
from tests.batches import solve_together

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 9)) * np.linspace(0.3, 3.0, 9)
labels = rng.integers(0, 3, 60)
PENALTIES = [(0.02, 0.05), (0.0, 0.5), (0.004, 0.001)]


def _array(kind):
    if kind in ("dense", "csr", "csc"):
        return {"dense": np.asarray, "csr": sp.csr_array, "csc": sp.csc_array}[kind](X)
    if kind in ("torch", "array_api_strict"):
        return pytest.importorskip(kind).asarray(X)
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    return jax.numpy.asarray(X)


def logistic(kind="dense", penalties=PENALTIES):
    design = ElasticNetLogistic(_array(kind), labels == 0).design
    return [ElasticNetLogistic(design, labels == digit).at(l1=l1, l2=l2) for digit, (l1, l2) in enumerate(penalties)]


def huber(kind="dense"):
    design = ElasticNetHuber(_array(kind), labels).design
    return [ElasticNetHuber(design, labels - shift).at(l1=l1, l2=l2) for shift, (l1, l2) in enumerate(PENALTIES)]


def squares(kind="dense"):
    design = ElasticNet(_array(kind), labels).design
    return [ElasticNet(design, labels - shift).at(l1=l1, l2=l2) for shift, (l1, l2) in enumerate(PENALTIES)]


KINDS = ["dense", "csr", "csc", "array_api_strict", "torch", "jax"]
MODELS = [logistic, huber, squares]
SOLVERS = ["fista", "fista_adaptive"]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fixed_number_of_steps_gives_what_each_problem_gives_alone(kind, model, solver):
    for steps in (1, 2, 40):
        together = solve_together(model(kind), steps=steps, solver=solver)
        for one, problem in zip(together, model(), strict=True):
            alone = solve(problem, steps=steps, solver=solver, certificate="free")
            np.testing.assert_allclose(one.x, alone.x, rtol=1e-8, atol=1e-12)
            assert one.certificate.radius == pytest.approx(alone.certificate.radius, rel=1e-5)
            assert (one.steps, one.outcome) == (alone.steps, alone.outcome)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_problem_leaves_as_soon_as_its_own_accuracy_is_proven(kind, model, solver):
    asked = [1e-9, 1e-1, 1e-5]
    together = solve_together(model(kind), within=asked, solver=solver)
    for one, problem, within in zip(together, model(), asked, strict=True):
        alone = solve(problem, within=within, solver=solver, certificate="free")
        exact = solve(problem, within=1e-12, solver=solver)
        assert one.outcome is Outcome.REACHED and one.certificate.radius <= within
        assert np.linalg.norm(one.x - exact.x) <= one.certificate.radius + exact.certificate.radius
        assert abs(one.steps - alone.steps) <= 1


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kind", ["dense", "torch"])
def test_solutions_can_be_continued_together_or_alone(kind, solver):
    problems = logistic(kind)
    first = solve_together(problems, steps=10, solver=solver)
    without_images = [
        replace(one, state=replace(one.state, image=None, previous_image=None, evidence=None)) for one in first
    ]
    whole = solve_together(problems, steps=25, solver=solver)
    for warm in (first, without_images):
        for one, other in zip(solve_together(problems, steps=15, solver=solver, warm=warm), whole, strict=True):
            np.testing.assert_allclose(one.x, other.x, rtol=1e-10, atol=1e-13)
            assert one.steps == other.steps == 25
            assert one.certificate.radius == pytest.approx(other.certificate.radius, rel=1e-6)
    alone = solve(problems[1], steps=15, solver=solver, warm=first[1])
    np.testing.assert_allclose(alone.x, whole[1].x, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_accurate_solution_is_returned_as_it_is_and_others_go_on(solver):
    problems = logistic()
    first = solve_together(problems, within=[1e-6, 1e-2, 1e-2], solver=solver)
    second = solve_together(problems, within=[1e-5, 1e-8, 1e-8], solver=solver, warm=first)
    assert second[0].steps == first[0].steps and second[0].x is first[0].x
    assert all(one.certificate.radius <= 1e-8 for one in second[1:])


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_floating_point_cannot_prove_and_what_the_budget_forbids_is_told(solver):
    beyond, spent, fine = solve_together(
        logistic(), within=[1e-30, 1e-9, 1e-3], solver=solver, max_steps=[10**9, 3, 10**9]
    )
    assert beyond.outcome is Outcome.PRECISION and beyond.certificate.radius <= 2.5 * beyond.certificate.rounding
    assert spent.outcome is Outcome.MAX_STEPS and spent.steps == 3
    assert fine.outcome is Outcome.REACHED


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_solution_as_accurate_as_floats_allow_is_not_iterated_on(solver):
    first = solve_together(logistic(), within=[1e-30] * 3, solver=solver)
    again = solve_together(logistic(), within=[1e-30] * 3, solver=solver, warm=first)
    assert [one.outcome for one in first] == [Outcome.PRECISION] * 3 == [one.outcome for one in again]
    again = [
        solve(problem, within=1e-30, solver=solver, warm=one) for problem, one in zip(logistic(), first, strict=True)
    ]
    assert all(one.outcome is Outcome.PRECISION for one in again)


@pytest.mark.parametrize("solver", SOLVERS)
def test_warm_points_are_starts(solver):
    problems = logistic()
    exact = [solve(problem, within=1e-11).x for problem in problems]
    cold = solve_together(problems, within=[1e-6] * 3, solver=solver)
    warm = solve_together(problems, within=[1e-6] * 3, solver=solver, warm=exact)
    assert all(one.steps < other.steps for one, other in zip(warm, cold, strict=True))


def test_only_linear_models_of_one_design_and_loss_go_together():
    first, second, _ = logistic()
    assert share_a_design([first, second])
    assert not share_a_design([first, ElasticNetLogistic(X, labels == 1).at(l1=0.02, l2=0.05)])
    other = ElasticNet(first.smooth.design, labels).at(l1=0.02, l2=0.05)
    assert not share_a_design([other, second])


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_batch_that_is_looked_at_now_and_then_and_shrinks_by_halves_proves_the_same(solver, monkeypatch):
    make = cuda.Stepper.__init__
    monkeypatch.setattr(cuda, "RECORDED", 10**9)  # as on CUDA, but nothing is recorded
    monkeypatch.setattr(cuda.Stepper, "__init__", lambda self, step, on_cuda: make(self, step, on_cuda=True))
    asked = [1e-9, 1e-1, 1e-30]
    problems = logistic()
    for one, problem, within in zip(
        solve_together(problems, within=asked, solver=solver, max_steps=[10**9, 10**9, 150]),
        problems,
        asked,
        strict=True,
    ):
        exact = solve(problem, within=1e-12)
        assert np.linalg.norm(one.x - exact.x) <= one.certificate.radius + exact.certificate.radius
        assert one.certificate.radius <= within or (one.outcome is Outcome.MAX_STEPS and one.steps == 150)
