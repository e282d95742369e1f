"""Newton's method for problems that share an X of torch finds what it finds for each alone, and proves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import suffice
from suffice.arrays import host
from suffice.cuda.columns import ColumnLosses
from suffice.cuda.newton_columns import NewtonBatch, _cholesky
from suffice.models.intercept import Intercepted
from suffice.models.margin_losses import HUBER, LOGISTIC, SQUARED, MarginLoss
from suffice.penalties.prox import L1
from suffice.problems import ElasticNet, ElasticNetHuber, ElasticNetLogistic, ElasticNetPoisson
from suffice.rows.design import Design
from suffice.solvers.many import solve_each
from suffice.solvers.sensitivity import Sensitivity
from suffice.solvers.solution import Ask, Outcome

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = {"logistic": ElasticNetLogistic, "squares": ElasticNet, "Huber": ElasticNetHuber}
LOSSES: dict[str, MarginLoss] = {"logistic": LOGISTIC, "squares": SQUARED, "Huber": HUBER}
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
    assert NewtonBatch.holds([ask.problem for ask in asks])
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


def models(kind: str, X: Any, y: np.ndarray, l2: Sequence[float]) -> list[Intercepted]:
    """With intercepts of their own; each leaves other rows out."""
    made = []
    for k, own in enumerate(l2):
        rows = np.arange(len(y)) % 3 != k % 3
        made.append(Intercepted(Design(X, rows / np.count_nonzero(rows)), y, LOSSES[kind], own))
    return made


def folds(kind: str, X: Any, y: np.ndarray) -> list[suffice.Composite]:
    """Such models with an l1."""
    every = models(kind, X, y, [l2 for _, l2 in PENALTIES])
    return [
        suffice.Composite(model, L1(l1), mu=l2, L=model.L, size=int(X.shape[1]))
        for model, (l1, l2) in zip(every, PENALTIES, strict=True)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_folds_with_intercepts_are_proven_to_be_where_each_alone_is(kind: str) -> None:
    X, y = data(kind)
    X = X + 2.0  # so that an intercept matters
    asks = [Ask(problem, within=1e-6) for problem in folds(kind, torch.asarray(X, device=DEVICE), y)]
    assert NewtonBatch.holds([ask.problem for ask in asks])
    truth = [suffice.solve(problem, within=1e-10, solver="newton") for problem in folds(kind, X, y)]
    for found, true in zip(solve_each(asks, "auto"), truth, strict=True):
        assert found.outcome is Outcome.REACHED
        assert np.linalg.norm(found.x - true.x) <= found.certificate.radius + true.certificate.radius


@pytest.mark.parametrize("kind", KINDS)
def test_every_iterate_of_folds_with_intercepts_carries_a_true_certificate(kind: str) -> None:
    X, y = data(kind, 40, 60)
    truth = [suffice.solve(problem, within=1e-10, solver="newton") for problem in folds(kind, X, y)]
    there = folds(kind, torch.asarray(X, device=DEVICE), y)
    for steps in (1, 3, 7):
        found = solve_each([Ask(problem, steps=steps) for problem in there], "auto")
        for one, true in zip(found, truth, strict=True):
            assert np.linalg.norm(one.x - true.x) <= one.certificate.radius + true.certificate.radius


@pytest.mark.parametrize("kind", KINDS)
def test_intercepts_of_columns_are_those_of_each_model(kind: str) -> None:
    """Wherever margins are: where psi is flat, far out, and where all of them are the same."""
    X, y = data(kind)
    rng = np.random.default_rng(3)
    every = models(kind, torch.asarray(X, device=DEVICE), y, [0.1] * 5)
    shapes = (rng.standard_normal(80), 50.0 * y, -30.0 * y, np.full(80, 7.0), 1e3 + rng.standard_normal(80))
    found = host(ColumnLosses.of(every).intercepts(torch.asarray(np.stack(shapes, axis=1), device=DEVICE)))
    for b, model, margins in zip(found, every, shapes, strict=True):
        true, error = model.shift(margins)
        assert abs(b - true) <= error + 1e-9 * (1.0 + abs(true))


def test_a_step_whose_decrease_rounding_hides_is_made_if_it_shortens_the_least_subgradient() -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 20)) * 10.0 ** rng.uniform(-1, 1, 20) + 1.0
    t = X[:, :5] @ rng.standard_normal(5) + rng.standard_normal(200)
    weights = (np.arange(200) % 3 != 0) * 1.0
    design = Design.of(torch.asarray(X, device=DEVICE), weights)
    problem = ElasticNetLogistic(design, t > t.mean() + 1.0).at(l1=0.02, l2=1e-3)
    (found,) = solve_each([Ask(problem, within=1e-8)], "auto")
    assert found.outcome is Outcome.REACHED


def test_what_leaves_the_range_of_floats_is_stepped_from_no_more_and_ends() -> None:
    """Rates of exp(2e5): H is infinite, and no shift makes a factor of it."""
    X, y = data("squares")
    design = Design.of(torch.asarray(X, device=DEVICE))
    every = [ElasticNetPoisson(design, abs(y)).at(l1=l1, l2=0.1) for l1 in (0.0, 0.1)]
    starts = (1e5 * np.ones(30), np.zeros(30))
    far, near = solve_each([Ask(one, x, steps=5) for one, x in zip(every, starts, strict=True)], "auto")
    assert np.isfinite(far.x).all() and near.certificate.radius < 1.0
    H = torch.stack([torch.full((3, 3), np.nan), torch.eye(3), torch.full((3, 3), np.inf)]).double()
    factors = _cholesky(H)
    assert not factors[[0, 2]].isfinite().any() and torch.equal(factors[1], torch.eye(3).double())


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_of_folds_with_intercepts_are_those_of_main_memory(kind: str) -> None:
    """H without the intercept's direction, on supports of their own."""
    X, y = data(kind)
    here, there = folds(kind, X, y), folds(kind, torch.asarray(X, device=DEVICE), y)
    solutions = [suffice.solve(problem, within=1e-9, solver="newton").x for problem in here]
    K = [np.column_stack([np.sign(x), x]) for x in solutions]
    found = []
    for problems in (here, there):
        both = zip(problems, solutions, strict=True)
        systems = [made for problem, x in both if (made := Sensitivity.of(problem, x)) is not None]
        assert len(systems) == len(K)
        found.append([one.solve(-sides, 1e-10) for one, sides in zip(systems, K, strict=True)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other.value, one.value, rtol=1e-6, atol=1e-9 * np.abs(one.value).max())
