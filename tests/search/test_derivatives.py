"""Derivatives of evaluations: the Jacobian is that of exact solutions, and the adjoint gives the same gradient."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import suffice
from suffice.arrays import norm
from suffice.executors import Serial
from suffice.losses import Brier, Lipschitz, LogLoss, MultinomialLogLoss, SquaredDistance, SquaredError
from suffice.models.margin_losses import SquaredHinge
from suffice.penalties.prox import NonNegative
from suffice.problems import (
    Denoising,
    ElasticNet,
    ElasticNetHuber,
    ElasticNetLogistic,
    ElasticNetModel,
    ElasticNetMultinomial,
    ElasticNetPoisson,
    Grouped,
    Reconstruction,
    SampledFourier,
)
from suffice.search import derivatives

rng = np.random.default_rng(5)
X, X_val = rng.standard_normal((60, 12)), rng.standard_normal((25, 12))
w_true = np.where(np.arange(12) % 3 == 0, 1.5, 0.0)
y = X @ w_true + 0.5 * rng.standard_normal(60)
y_val = X_val @ w_true + 0.5 * rng.standard_normal(25)
WIDE_X = rng.standard_normal((20, 60))
PENALTIES = suffice.Space(l1=(1e-6, 1e2), l2=(1e-6, 1e2))
AT = {"l1": 0.05, "l2": 0.02}


def exact(problem: suffice.BilevelProblem, theta: Any) -> suffice.Evaluation:
    return problem.evaluate(theta, within=1e-13)


def central(problem: suffice.BilevelProblem, theta: Any, h: float = 2e-5) -> Any:
    """d r / d theta by differences of exact solutions, of the fourth order."""
    columns = []
    for i in range(len(theta)):
        step = np.zeros(len(theta))
        step[i] = h
        near = exact(problem, theta + step).r - exact(problem, theta - step).r
        far = exact(problem, theta + 2 * step).r - exact(problem, theta - 2 * step).r
        columns.append((8.0 * near - far) / (12.0 * h))
    return np.column_stack(columns)


def relative(found: Any, truth: Any) -> float:
    return norm(np.ravel(found - truth)) / norm(np.ravel(truth))


def check(problem: suffice.BilevelProblem, params: dict[str, float], monkeypatch: Any) -> None:
    theta = problem.space.theta(params)
    made = exact(problem, theta)
    told = problem.differentiate(made)
    assert relative(told.J, central(problem, theta)) < 1e-5
    assert told.work > made.work
    assert np.array_equal(told.r, made.r) and np.array_equal(told.e, made.e)
    monkeypatch.setattr(derivatives, "MOST_COLUMNS", 0)
    adjoint = problem.differentiate(made)
    assert adjoint.J is None
    assert relative(adjoint.gradient, told.slope) < 1e-6


LINEAR = {
    "squares": (ElasticNet(X, y), SquaredError(X_val, y_val)),
    "squares, weighted": (ElasticNet(X, y, sample_weight=rng.random(60)), SquaredError(X_val, y_val)),
    "squares, sparse": (ElasticNet(sp.csr_array(X), y), SquaredError(sp.csr_array(X_val), y_val)),
    "squares, wide": (ElasticNet(WIDE_X, y[:20]), SquaredDistance(np.ones(60))),
    "logistic, Brier": (ElasticNetLogistic(X, y > 0), Brier(X_val, y_val > 0)),
    "logistic, log loss": (ElasticNetLogistic(X, y > 0), LogLoss(X_val, y_val > 0)),
    "logistic, own loss": (
        ElasticNetLogistic(X, y > 0),
        Lipschitz(lambda w: 1.0 + math.sin(w[0]), 1.0, gradient=lambda w: np.cos(w[0]) * np.eye(12)[0]),
    ),
    "Poisson": (ElasticNetPoisson(X, np.round(np.exp(0.3 * y))), SquaredDistance(w_true)),
    "Huber": (ElasticNetHuber(X, y, delta=0.4), SquaredError(X_val, y_val)),
    "squared hinge": (ElasticNetModel(X, y > 0, SquaredHinge()), LogLoss(X_val, y_val > 0)),
}


@pytest.mark.parametrize("name", LINEAR)
def test_the_jacobian_of_a_linear_model_is_that_of_its_exact_solutions(name, monkeypatch):
    lower, loss = LINEAR[name]
    problem = suffice.BilevelProblem(
        [lower], [loss], space=PENALTIES, penalty=lambda params: [0.1 * params["l1"] ** -0.5, 1e-3 / params["l2"]]
    )
    check(problem, AT, monkeypatch)


def test_the_jacobian_in_penalties_of_groups_and_of_single_features(monkeypatch):
    model, loss = LINEAR["logistic, Brier"]
    by_name = Grouped(model, {"a": [0, 3, 5], "b": [1, 2, 4, *range(6, 12)]})
    space = suffice.Space(l2_b=(1e-4, 1.0), l1=(1e-4, 1.0), l2_a=(1e-4, 1.0), l1_a=(1e-4, 1.0))
    problem = suffice.BilevelProblem([by_name], [loss], space=space)
    check(problem, {"l1": 0.05, "l1_a": 0.03, "l2_a": 0.02, "l2_b": 0.07}, monkeypatch)
    monkeypatch.undo()
    each = Grouped(model, range(12), l2=0.05)
    space = suffice.Space(**dict.fromkeys(each.names("l1"), (1e-4, 1.0)))
    at = {name: 0.03 + 0.003 * j for j, name in enumerate(each.names("l1"))}
    check(suffice.BilevelProblem([each], [loss], space=space), at, monkeypatch)
    with pytest.raises(ValueError, match=r"l2 is fixed at 0.05 by this problem, got l2_3"):
        each.at(**at, l2_3=1.0)


def test_penalties_of_twenty_groups_are_found_in_few_evaluations():
    rng = np.random.default_rng(0)
    X, X_val, w = rng.standard_normal((300, 100)), rng.standard_normal((300, 100)), np.zeros(100)
    for group in range(0, 20, 2):
        w[5 * group : 5 * group + 5] = (0.2 + group / 10) * rng.standard_normal(5)
    y, y_val = (rows @ w + 2.0 * rng.standard_normal(300) for rows in (X, X_val))
    lower = Grouped(ElasticNet(X, y), np.arange(100) // 5, l1=1e-3)
    space = suffice.Space(**dict.fromkeys(lower.names("l2"), (1e-4, 1e2)))
    problem = suffice.BilevelProblem([lower], [SquaredError(X_val, y_val)], space=space)
    options = suffice.Options(max_evaluations=25, final_radius=1e-3)
    result = suffice.tune(problem, dict.fromkeys(space.names, 0.1), options=options)
    far = suffice.tune(problem, dict.fromkeys(space.names, 0.1), options=suffice.Options(derivatives="never"))
    assert result.cost < far.cost * (1.0 + 1e-4)


@pytest.mark.parametrize("groups", [{"a": [0, 1]}, {"a": range(12), "b": [3]}, [0, 1, 2]])
def test_groups_hold_every_column_once(groups):
    with pytest.raises(ValueError, match="groups must"):
        Grouped(LINEAR["squares"][0], groups)
    with pytest.raises(ValueError, match="l1_1 must be given, or l1"):
        Grouped(LINEAR["squares"][0], np.arange(12) % 2).at(l1_0=1.0, l2=1.0)
    with pytest.raises(TypeError, match="unknown parameters: l3"):
        Grouped(LINEAR["squares"][0], np.arange(12) % 2).at(l1=1.0, l2=1.0, l3=2.0)


def test_a_vanishing_weight_of_rows_takes_no_part(monkeypatch):
    lower = ElasticNetLogistic(X, y > 0, sample_weight=np.arange(60) % 2)
    problem = suffice.BilevelProblem([lower], [Brier(X_val, y_val > 0)], space=PENALTIES)
    check(problem, AT, monkeypatch)


@pytest.mark.parametrize(
    "scaled",
    [
        suffice.Space(l1=(0.0, 1.0, "log"), l2=(0.0, 1.0, "sqrt")),
        suffice.Space(l1=(0.0, 1.0, "linear"), l2=(0.0, 1.0, "log")),
    ],
)
def test_every_scale_of_a_space_has_its_slope(scaled, monkeypatch):
    check(suffice.BilevelProblem([LINEAR["squares"][0]], [LINEAR["squares"][1]], space=scaled), AT, monkeypatch)


def test_a_penaltys_own_derivative_is_taken_where_it_is_given():
    calls = []

    def jacobian(params):
        calls.append(params)
        return [[-0.5 * params["l1"] ** -1.5, 0.0]]

    lower, loss = LINEAR["squares"]
    by_hand, by_differences = (
        suffice.BilevelProblem(
            [lower],
            [loss],
            space=PENALTIES,
            penalty=lambda params: [params["l1"] ** -0.5],
            penalty_jacobian=own,
        )
        for own in (jacobian, None)
    )
    theta = PENALTIES.theta(AT)
    made = exact(by_hand, theta)
    assert relative(by_hand.differentiate(made).J, by_differences.differentiate(made).J) < 1e-9
    assert len(calls) == 1


def test_differences_of_a_penalty_stay_inside_the_box(monkeypatch):
    def penalty(params):
        assert params["l1"] >= 1e-6 and params["l2"] <= 1e2
        return [math.sqrt(params["l1"] - 1e-6 + 1.0), params["l2"] ** 2]

    lower, loss = LINEAR["squares"]
    problem = suffice.BilevelProblem([lower], [loss], space=PENALTIES, penalty=penalty)
    theta = np.array([-6.0, 2.0])
    J = problem.differentiate(problem.evaluate(theta, within=1e-6)).J[-2:]
    ln10 = math.log(10.0)
    assert np.allclose(J, [[0.5 * ln10 * 1e-6, 0.0], [0.0, 2.0 * ln10 * 1e4]], rtol=1e-6, atol=1e-9)


def test_without_a_factor_conjugate_gradients_give_the_same(monkeypatch):
    monkeypatch.setattr("suffice.solvers.hessian.largest_matrix", lambda design: 0)
    monkeypatch.setattr("suffice.solvers.hessian.OfRows.has_factors", False)
    lower = [ElasticNetLogistic(X, y > 0), ElasticNetLogistic(X, y > 0.5)]  # one product with X for both
    problem = suffice.BilevelProblem(
        lower, [Brier(X_val, y_val > 0)] * 2, space=PENALTIES, solver="fista_adaptive", max_steps=5000
    )
    check(problem, AT, monkeypatch)


def test_conjugate_gradients_start_from_the_derivative_nearby(monkeypatch):
    monkeypatch.setattr("suffice.solvers.hessian.largest_matrix", lambda design: 0)
    monkeypatch.setattr("suffice.solvers.hessian.OfRows.has_factors", False)
    lower, loss = LINEAR["logistic, Brier"]
    problem = suffice.BilevelProblem([lower], [loss], space=PENALTIES, solver="fista_adaptive")
    theta = PENALTIES.theta(AT)
    loose = problem.evaluate(theta, within=1e-3)
    there = [problem.evaluate(theta + 1e-6, within=1e-3, warm=warm) for warm in (loose, problem.differentiate(loose))]
    from_zero, from_nearby = (problem.differentiate(made).work - made.work for made in there)
    assert from_nearby == 1.0 < from_zero


class Pulses:
    """A user's own f with a Hessian, over non-negative x."""

    def at(self, *, l1, l2):
        class Smooth:
            def value(self, x):
                return 0.5 * norm(X @ x - y) ** 2 + 0.5 * l2 * x @ x + l1 * x.sum()

            def gradient(self, x):
                return X.T @ (X @ x - y) + l2 * x + l1

            def hessian_product(self, x, v):
                return X.T @ (X @ v) + l2 * v

        return suffice.Composite(Smooth(), NonNegative(), mu=l2, L=l2 + np.linalg.norm(X, 2) ** 2, size=12)

    def cross(self, x, **params):
        return np.column_stack([{"l1": np.ones(12), "l2": x}[name] for name in params])


def test_a_problem_of_ones_own_over_a_box(monkeypatch):
    problem = suffice.BilevelProblem([Pulses()], [SquaredError(X_val, y_val)], space=PENALTIES)
    at = {"l1": 3.0, "l2": 5.0}
    x = exact(problem, PENALTIES.theta(at)).solutions[0].x
    assert 0 < np.count_nonzero(x) < 12
    check(problem, at, monkeypatch)


def test_derivatives_of_a_matrix_that_lives_elsewhere_are_the_same():
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    there, held = torch.tensor(X), torch.tensor(X_val)
    theta, found = PENALTIES.theta(AT), []
    for rows, held_rows in ((X, X_val), (there, held)):
        problem = suffice.BilevelProblem(
            [ElasticNetLogistic(rows, y > 0)], [Brier(held_rows, y_val > 0)], space=PENALTIES
        )
        found.append(problem.differentiate(exact(problem, theta)).J)
    assert relative(found[1], found[0]) < 1e-9


def test_derivatives_of_problems_that_share_a_matrix_of_torch_are_those_of_main_memory():
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    theta, found = PENALTIES.theta({"l1": 0.06, "l2": 0.1}), []
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for rows, held in ((X, X_val), [torch.tensor(one, device=device) for one in (X, X_val)]):
        design = ElasticNetLogistic(rows, y > 0).design
        cuts = np.quantile(y, [0.2, 0.5, 0.9])
        problem = suffice.BilevelProblem(
            [ElasticNetLogistic(design, y > cut) for cut in cuts],
            [Brier(held, y_val > cut) for cut in cuts],
            space=PENALTIES,
            solver="newton",
        )
        made = exact(problem, theta)
        assert len({np.count_nonzero(one.x) for one in made.solutions}) > 1
        found.append(problem.differentiate(made).J)
    assert relative(found[1], found[0]) < 1e-9


def test_no_derivatives_where_a_loss_or_a_problem_offers_none():
    class Own:
        def at(self, **params):
            return ElasticNet(X, y).at(**params)

    theta = PENALTIES.theta(AT)
    for lower, loss in ((Own(), SquaredError(X_val, y_val)), (ElasticNet(X, y), Lipschitz(lambda w: 1.0, 0.0))):
        problem = suffice.BilevelProblem([lower], [loss], space=PENALTIES)
        made = problem.evaluate(theta, within=1e-6)
        assert problem.differentiate(made) is made
    assert not hasattr(problem.fixed(10), "differentiate")


def test_a_hessian_that_is_not_finite_leaves_an_evaluation_as_it_is():
    class Steep(Pulses):
        def at(self, *, l1, l2):
            problem = super().at(l1=l1, l2=l2)
            problem.smooth.hessian_product = lambda x, v: np.full(12, np.nan)
            return problem

    problem = suffice.BilevelProblem([Steep()], [SquaredError(X_val, y_val)], space=PENALTIES)
    made = problem.evaluate(PENALTIES.theta({"l1": 3.0, "l2": 5.0}), within=1e-6)
    assert problem.differentiate(made) is made


def test_a_solution_of_nothing_but_zeros_does_not_move():
    lower, loss = LINEAR["squares"]
    problem = suffice.BilevelProblem([lower], [loss], space=PENALTIES)
    made = problem.evaluate(PENALTIES.theta({"l1": 50.0, "l2": 1.0}), within=1e-6)
    assert not problem.differentiate(made).J.any()


signal = np.cumsum(rng.standard_normal(20) > 1.0) + 0.2 * rng.standard_normal(20)
picture = np.add.outer(signal[:6] > 1, signal[:7] > 0) + 0.1 * rng.standard_normal((6, 7))
A = rng.standard_normal((15, 20))
IMAGES = suffice.Space(alpha=(1e-7, 1e7), eps_l2=(1e-7, 1.0), eps_tv=(1e-7, 1.0))
AT_IMAGE = {"alpha": 0.15, "eps_l2": 0.01, "eps_tv": 0.05}


@pytest.mark.parametrize("factor", [True, False])
@pytest.mark.parametrize(
    ("lower", "target"),
    [
        (Denoising(signal), np.zeros(20)),
        (Denoising(signal + 0.3j * signal[::-1], boundary="zero"), np.zeros(20, dtype=complex)),
        (Denoising(picture), np.zeros((6, 7))),
        (Denoising(picture, boundary="zero"), np.zeros((6, 7))),
        (Reconstruction(A, A @ signal, weights=rng.random(15)), np.zeros(20)),
        (SampledFourier(np.fft.fft(signal, norm="ortho"), c=0.4, dtype=float), np.zeros(20)),
    ],
    ids=["signal", "complex signal", "picture", "picture, zero edge", "operator", "Fourier"],
)
def test_the_jacobian_of_smoothed_total_variation(lower, target, factor, monkeypatch):
    if not factor:
        monkeypatch.setattr("suffice.solvers.sensitivity.has_factor", lambda f: False)
    problem = suffice.BilevelProblem([lower], [SquaredDistance(target)], space=IMAGES, solver="newton_tv")
    check(problem, AT_IMAGE, monkeypatch)


@pytest.mark.parametrize("dtype", [complex, float])
def test_the_jacobian_in_the_weights_of_samples(dtype, monkeypatch):
    short = signal[:8]
    lower = SampledFourier(np.fft.fft(short, norm="ortho"), eps_l2=1e-2, eps_tv=5e-2, boundary="zero", dtype=dtype)
    space = suffice.Space(**dict.fromkeys(lower.names, (0.001, 0.99, "sqrt")), alpha=(1e-3, 1.0))
    problem = suffice.BilevelProblem(
        [lower],
        [SquaredDistance(short.astype(dtype))],
        space=space,
        solver="newton_tv",
        penalty=lambda params: np.sqrt(0.1 * np.array([params[name] for name in lower.names])),
    )
    check(problem, {"alpha": 0.1} | {name: 0.2 + 0.08 * i for i, name in enumerate(lower.names)}, monkeypatch)


class Counting(Serial):
    """Work as workers would do it, with what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def map(self, work: Any, tasks: Any) -> Any:
        self.asked += tasks
        return super().map(work, tasks)


def two(executor: Any) -> suffice.BilevelProblem:
    lower = [ElasticNet(X, y), ElasticNetLogistic(X, y > 0.0)]
    return suffice.BilevelProblem(
        lower, [SquaredError(X_val, y_val), LogLoss(X_val, y_val > 0.0)], space=PENALTIES, executor=executor
    )


def test_derivatives_of_what_workers_have_solved_have_the_same_bits() -> None:
    there = Counting()
    here, spread = two(None), two(there)
    theta = PENALTIES.theta(AT)
    J = here.differentiate(here.evaluate(theta, within=1e-6)).J
    np.testing.assert_array_equal(spread.differentiate(spread.evaluate(theta, within=1e-6)).J, J)
    assert len(there.asked) == 2


def test_derivatives_of_several_classes_do_not_depend_on_who_has_found_their_intercepts() -> None:
    lower = ElasticNetMultinomial(X, np.digitize(y, [-1.0, 1.0]), intercept=True)
    loss, theta = MultinomialLogLoss(X_val, np.digitize(y_val, [-1.0, 1.0]), lower), PENALTIES.theta(AT)
    here, there = (suffice.BilevelProblem([lower], [loss], space=PENALTIES, executor=one) for one in (None, Serial()))
    J = here.differentiate(here.evaluate(theta, within=1e-3)).J
    np.testing.assert_array_equal(there.differentiate(there.evaluate(theta, within=1e-3)).J, J)
