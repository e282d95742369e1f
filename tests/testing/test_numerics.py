"""The conformance checks pass what is right and catch what is wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import suffice
from suffice import losses, problems
from suffice.losses import LossAt
from suffice.models.linear import LinearModel
from suffice.solvers.fista import Fista
from suffice.terms import L1, Zero
from suffice.testing import (
    ConformanceError,
    check_loss,
    check_objective,
    check_problem,
    check_solver,
    sample_problems,
)

rng = np.random.default_rng(0)
A = rng.standard_normal((15, 6))
X, y = rng.standard_normal((40, 6)), rng.standard_normal(40)


@dataclass(frozen=True, eq=False)
class Quadratic:
    """||A x - 1||^2 / 2 + ||x||^2 / 2, with mistakes to order."""

    gradient_factor: float = 1.0

    def value(self, x):
        return 0.5 * float(np.sum((A @ x - 1.0) ** 2)) + 0.5 * float(x @ x)

    def gradient(self, x):
        return self.gradient_factor * (A.T @ (A @ x - 1.0) + x)


mu = 1.0 + float(np.linalg.eigvalsh(A.T @ A)[0])
L = 1.0 + float(np.linalg.eigvalsh(A.T @ A)[-1])


class HalfThreshold(L1):
    """A prox that forgets half of its step."""

    def prox(self, v, step):
        return super().prox(v, 0.5 * step)


@pytest.mark.parametrize("index", range(len(sample_problems())))
def test_the_sample_problems_conform(index):
    check_problem(sample_problems()[index])


@pytest.mark.parametrize(
    "problem, complaint",
    [
        (suffice.Composite(Quadratic(), Zero(), mu=1.1 * mu, L=L, size=6), "strongly convex|certificate says"),
        (suffice.Composite(Quadratic(), Zero(), mu=mu, L=0.7 * L, size=6), "Lipschitz"),
        (suffice.Composite(Quadratic(1.001), Zero(), mu=0.9 * mu, L=1.1 * L, size=6), "disagrees"),
        (suffice.Composite(Quadratic(), HalfThreshold(0.3), mu=mu, L=L, size=6), "not the prox"),
    ],
    ids=["mu", "L", "gradient", "prox"],
)
def test_a_wrong_problem_is_caught(problem, complaint):
    with pytest.raises(ConformanceError, match=complaint):
        check_problem(problem, trials=200)


def test_a_right_problem_of_the_users_own_passes():
    check_problem(suffice.Composite(Quadratic(), L1(0.3), mu=mu, L=L, size=6))


S = rng.standard_normal(12)
COUNTS = rng.poisson(np.exp(0.5 * X[:, 0])).astype(float)
OTHERS = {
    "signal": problems.Denoising(S, eps_l2=1e-2, eps_tv=0.1).at(alpha=0.5),
    "complex image": problems.Denoising(np.outer(S[:5], 1.0 + 1j * S[:4]), eps_l2=1e-2, eps_tv=0.1, boundary="zero").at(
        alpha=0.2
    ),
    "Fourier samples": problems.SampledFourier(np.fft.fft(S, norm="ortho"), c=0.4, eps_l2=1e-2, eps_tv=0.1).at(
        alpha=0.2
    ),
    "counts": problems.ElasticNetPoisson(X, COUNTS).at(l1=0.05, l2=0.1),
    "counts, hardly convex": problems.ElasticNetPoisson(X, COUNTS).at(l1=0.05, l2=1e-3),
}


@pytest.mark.parametrize("name", OTHERS)
def test_images_and_counts_conform(name):
    check_problem(OTHERS[name])


@pytest.mark.parametrize("solver", ["newton_tv", "fista", "gradient_descent"])
def test_solvers_conform_on_images(solver):
    check_solver(solver, [problem for name, problem in OTHERS.items() if "counts" not in name])


@pytest.mark.parametrize("solver", ["newton", "auto"])
def test_newtons_method_conforms_where_there_is_no_lipschitz_constant(solver):
    check_solver(solver, [problem for name, problem in OTHERS.items() if "counts" in name])


class Tilted(LinearModel):
    """A linear model whose gradient is one per cent too long."""

    def gradient(self, x):
        return 1.01 * super().gradient(x)


def test_a_wrong_problem_without_a_lipschitz_constant_is_caught():
    right = OTHERS["counts"]
    f = right.smooth
    tilted = Tilted(f.design, f.y, f.loss, f.l2)
    for wrong, complaint in (
        (replace(right, smooth=tilted), "disagrees"),
        (replace(right, mu=100.0), "strongly convex"),
        (replace(right, prox=HalfThreshold(0.3)), "not the prox"),
    ):
        with pytest.raises(ConformanceError, match=complaint):
            check_problem(wrong)


def test_a_problem_without_a_size_needs_a_point():
    problem = suffice.Composite(Quadratic(), Zero(), mu=mu, L=L)
    with pytest.raises(ConformanceError, match="size"):
        check_problem(problem)
    check_problem(problem, near=np.ones(6))


@pytest.mark.parametrize("solver", ["fista", "fista_adaptive"])
def test_the_packages_solvers_conform(solver):
    check_solver(solver, sample_problems()[:10:3])


class Overconfident(Fista):
    """Claims a contraction that the step does not have."""

    def step(self, problem, state):
        after = super().step(problem, state)
        return replace(after, evidence=replace(after.evidence, contraction=0.01 * after.evidence.contraction))


class Forgetful(Fista):
    """Restarts its momentum whenever it is told to start: continuing is not the same as going on."""

    def step(self, problem, state):
        self.seen = getattr(self, "seen", 0) + 1
        return super().step(problem, replace(state, t=0.0) if self.seen % 7 == 0 else state)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


@pytest.mark.parametrize(
    "solver, complaint", [(Overconfident(), "certificate says"), (Forgetful(), "in two runs|certificate says")]
)
def test_a_wrong_solver_is_caught(solver, complaint):
    with pytest.raises(ConformanceError, match=complaint):
        check_solver(solver, sample_problems()[1:3])


LOSSES = {
    "Brier": losses.Brier(X, y > 0),
    "LogLoss": losses.LogLoss(X, y > 0),
    "SquaredError": losses.SquaredError(X, y),
    "SquaredDistance": losses.SquaredDistance(np.ones(6)),
    "Lipschitz": losses.Lipschitz(lambda w: float(np.abs(w).sum()), np.sqrt(6.0)),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("w", [np.zeros(6), np.linspace(-1.0, 2.0, 6)], ids=["origin", "elsewhere"])
def test_the_packages_losses_conform(name, w):
    check_loss(LOSSES[name], w, trials=60)


PERFECT = {
    "SquaredDistance": (LOSSES["SquaredDistance"], np.ones(6)),
    "one number": (losses.SquaredDistance(np.full(1, 1e3)), np.full(1, 1e3)),
    "SquaredError": (losses.SquaredError(np.eye(6), np.ones(6)), np.ones(6)),
    "Lipschitz": (LOSSES["Lipschitz"], np.zeros(6)),
}


@pytest.mark.parametrize("name", PERFECT)
def test_a_loss_of_zero_raises_no_false_alarm(name):
    """There the error is the radius and nothing else: a point that is rounded must not count as one within it."""
    loss, w = PERFECT[name]
    assert loss.at(w).residual == 0.0
    check_loss(loss, w)


class Understated:
    """A loss whose error is a tenth of what it should be."""

    def at(self, w):
        right = LOSSES["SquaredError"].at(w)
        return LossAt(right.residuals, lambda radius: 0.1 * right.error(radius))


def test_a_wrong_loss_is_caught():
    with pytest.raises(ConformanceError, match="the residual moves by"):
        check_loss(Understated(), np.linspace(-1.0, 2.0, 6))
    with pytest.raises(ConformanceError, match="moves by"):
        check_loss(losses.Lipschitz(lambda w: float(np.abs(w).sum()), 1.0), np.linspace(-1.0, 2.0, 6))


def bilevel():
    return suffice.BilevelProblem(
        [problems.ElasticNet(X, y)],
        [losses.SquaredError(X[:20], y[:20])],
        space=suffice.Space(l1=(1e-4, 1), l2=(1e-4, 1)),
    )


def test_a_bilevel_problem_conforms():
    problem, theta = bilevel(), np.array([-1.0, -1.0])
    check_objective(
        problem, theta, truth=lambda at: problem.evaluate(at, within=1e-11).r, accuracies=(1e-1, 1e-3, 1e-6)
    )


class Oracle:
    """Residuals (theta, 1) with whatever is ordered to be wrong."""

    def __init__(self, **wrong):
        self.wrong, self.calls = wrong, 0

    def evaluate(self, theta, *, within, warm=None):
        self.calls += 1
        fields = {"residuals": np.append(theta, 1.0), "errors": np.full(len(theta) + 1, within)}
        fields |= {name: value(self, theta, within) for name, value in self.wrong.items()}
        return suffice.Evaluation(fields.pop("theta", theta), fields["residuals"], fields["errors"])


@pytest.mark.parametrize(
    "oracle, complaint",
    [
        (Oracle(errors=lambda self, theta, within: np.full(2, 2 * within)), "was achieved"),
        (Oracle(residuals=lambda self, theta, within: np.array([theta[0], np.nan])), "not all finite"),
        (Oracle(theta=lambda self, theta, within: theta + 1.0), "asked for"),
        (Oracle(residuals=lambda self, theta, within: np.append(theta, 1.0 + 0.1 * self.calls)), "exclude each other"),
        (
            Oracle(
                residuals=lambda self, theta, within: np.ones(2 + self.calls),
                errors=lambda self, theta, within: np.zeros(2 + self.calls),
            ),
            "residuals",
        ),
    ],
    ids=["misses", "nan", "theta", "drifts", "count"],
)
def test_a_wrong_objective_is_caught(oracle, complaint):
    with pytest.raises(ConformanceError, match=complaint):
        check_objective(oracle, [0.5])


def test_an_objective_that_lies_about_its_errors_is_caught_by_the_truth():
    liar = Oracle(residuals=lambda self, theta, within: np.append(theta + 2.0 * within, 1.0))
    with pytest.raises(ConformanceError, match="errs by"):
        check_objective(liar, [0.5], truth=lambda theta: np.append(theta, 1.0))
