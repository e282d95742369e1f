"""Newton's method for problems that share an X of torch finds what it finds for each alone, and proves it."""

from __future__ import annotations

import numpy as np
import pytest

import suffice
from suffice.lower.many import solve_each
from suffice.lower.newton_columns import NewtonBatch
from suffice.lower.solution import Ask, Outcome
from suffice.problems import ElasticNet, ElasticNetHuber, ElasticNetLogistic
from suffice.terms.design import Design

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = {"logistic": ElasticNetLogistic, "squares": ElasticNet, "Huber": ElasticNetHuber}
PENALTIES = [(0.05, 0.3), (0.02, 1e-3), (0.0, 1e-2), (0.004, 1e-5), (10.0, 0.1)]


def data(kind: str, rows: int = 80, columns: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    X = rng.standard_normal((rows, columns)) * 10.0 ** rng.uniform(-1, 1, columns)
    m = X[:, :5] @ rng.standard_normal(5) + rng.standard_normal(rows)
    return X, np.sign(m) if kind == "logistic" else m


def problems(kind: str, X: object, y: np.ndarray) -> list[suffice.Composite]:
    design = Design.of(X)
    return [KINDS[kind](design, y).at(l1=l1, l2=l2) for l1, l2 in PENALTIES]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_proven_to_be_where_each_problem_alone_is(kind: str) -> None:
    X, y = data(kind)
    asks = [Ask(problem, within=1e-7) for problem in problems(kind, torch.asarray(X, device=DEVICE), y)]
    assert NewtonBatch.holds(asks)
    truth = [suffice.solve(problem, within=1e-11, solver="newton") for problem in problems(kind, X, y)]
    for found, true in zip(solve_each(asks, "auto"), truth, strict=True):
        assert found.outcome is Outcome.REACHED
        assert np.linalg.norm(found.x - true.x) <= found.certificate.radius + true.certificate.radius
        assert found.certificate.radius <= 1e-7


@pytest.mark.parametrize("kind", KINDS)
def test_every_iterate_of_a_batch_carries_a_true_certificate(kind: str) -> None:
    X, y = data(kind, 40, 60)
    truth = [suffice.solve(problem, within=1e-10, solver="newton") for problem in problems(kind, X, y)]
    here = [Ask(problem) for problem in problems(kind, torch.asarray(X, device=DEVICE), y)]
    for steps in range(1, 12):
        found = solve_each([Ask(ask.problem, steps=steps) for ask in here], "auto")
        for one, true in zip(found, truth, strict=True):
            assert np.linalg.norm(one.x - true.x) <= one.certificate.radius + true.certificate.radius


def test_what_arithmetic_cannot_prove_ends_as_precision() -> None:
    X, y = data("logistic")
    found = solve_each(
        [Ask(problem, within=1e-30) for problem in problems("logistic", torch.asarray(X, device=DEVICE), y)], "auto"
    )
    assert [one.outcome for one in found[:4]] == [Outcome.PRECISION] * 4
    assert found[4].outcome is Outcome.REACHED  # l1 is so large that 0 is the solution itself
    assert all(one.certificate.radius < 1e-6 for one in found)


def test_a_solution_is_continued_by_its_batch() -> None:
    X, y = data("logistic")
    rough = solve_each(
        [Ask(problem, within=1e-2) for problem in problems("logistic", torch.asarray(X, device=DEVICE), y)], "auto"
    )
    assert all(one.problem is not None for one in rough)
    finer = solve_each([Ask(one.problem, one, within=1e-8) for one in rough], "auto")  # type: ignore[arg-type]
    for before, after in zip(rough, finer, strict=True):
        assert after.steps >= before.steps and after.certificate.radius <= 1e-8


def test_one_problem_alone_goes_the_same_way() -> None:
    X, y = data("logistic")
    every = problems("logistic", torch.asarray(X, device=DEVICE), y)
    (alone,) = solve_each([Ask(every[1], within=1e-8)], "auto")
    together = solve_each([Ask(problem, within=1e-8) for problem in every], "auto")[1]
    assert np.linalg.norm(alone.x - together.x) <= 2e-8 and alone.outcome is Outcome.REACHED
