"""Conformance checks for what users bring: a problem, a solver, a loss, an objective. One call each.

A proof is worth what its assumptions are worth. Each check looks for a counterexample to what the package relies on (a
problem's mu, L, gradient and prox, a solver's steps, a loss's error bound, an objective's accuracy), in random and in
adversarial directions, and raises `ConformanceError` with the numbers if it finds one. Silence is no proof, but a wrong
mu, L, prox, gradient, error bound or certificate rarely survives.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.losses import Loss
from suffice.models.linear import LinearModel
from suffice.models.margin_losses import SQUARED
from suffice.penalties.groups import Group
from suffice.penalties.prox import Box, Generic, Zero
from suffice.problems import ElasticNet, ElasticNetHuber, ElasticNetLogistic
from suffice.search.objective import Objective
from suffice.solvers.certificate import RULES, Certificate, certify
from suffice.solvers.problem import Composite
from suffice.solvers.solution import Solution, Solver
from suffice.solvers.solver import iterate, refusal, solve

__all__ = ["ConformanceError", "check_loss", "check_objective", "check_problem", "check_solver", "sample_problems"]

FIRST_ORDER = ("fista", "fista_adaptive", "gradient_descent")
SLACK = 1e-9  # relative: what rounding may blur in the inequalities checked here


class ConformanceError(AssertionError):
    """A counterexample to something the package relies on."""


def require(holds: bool, message: str) -> None:
    """Raise ConformanceError with this message unless `holds`."""
    if not holds:
        raise ConformanceError(message)


def check_problem(
    problem: Composite, *, near: Any = None, trials: int = 30, seed: int = 0, solver: str | Solver = "auto"
) -> None:
    """Check f's gradient, mu and L, g's prox, and every certificate along a solve, against a more accurate solution.

    `near` is a point around which to look; by default 0, for which the problem must know its size. Where L is infinite
    the solver is Newton's method, which needs none. `solver` gives the solution of higher accuracy, and is checked as
    well if it is not "auto".
    """
    rng = np.random.default_rng(seed)
    centre = np.zeros(problem.size or 0) if near is None else np.asarray(near, dtype=np.float64)
    require(centre.size > 0, "the problem has no size: give a point as `near`")
    scale = 1.0 + norm(centre) / math.sqrt(centre.size)
    for _ in range(trials):
        x, y = (centre + scale * 10.0 ** rng.uniform(-2, 1) * rng.standard_normal(centre.shape) for _ in range(2))
        _check_smooth(problem, x, y)
        curvature = problem.canonical.L if math.isfinite(problem.canonical.L) else problem.canonical.mu
        _check_prox(problem, x, y, 10.0 ** rng.uniform(-3, 1) / curvature)
    _check_certificates(problem, centre, solver)


def _check_smooth(problem: Composite, x: Array, y: Array) -> None:
    f, mu, L = problem.smooth, float(problem.mu), float(problem.L)
    gradient_x, gradient_y = np.asarray(f.gradient(x)), np.asarray(f.gradient(y))
    require(gradient_x.shape == x.shape, f"smooth.gradient has shape {gradient_x.shape}, x has {x.shape}")
    d, change = x - y, gradient_x - gradient_y
    inner, square = float(change @ d), float(d @ d)
    blur = SLACK * (norm(gradient_x) + norm(gradient_y)) * norm(d)
    require(inner >= mu * square - blur, f"f is not {mu}-strongly convex: <df, d>/||d||^2 = {inner / square}")
    require(norm(change) * norm(d) <= L * square + blur, f"the gradient is not {L}-Lipschitz: {norm(change) / norm(d)}")
    h = 1e-5 * (1.0 + norm(x)) * d / norm(d)
    slope = (float(f.value(x + h)) - float(f.value(x - h))) / 2.0
    error = abs(slope - float(gradient_x @ h))
    # A convex f lies between its tangents: half the change of the slope from x - h to x + h bounds the error.
    bend = L * float(h @ h)
    if math.isinf(L):
        bend = 0.5 * float((np.asarray(f.gradient(x + h)) - np.asarray(f.gradient(x - h))) @ h)
    allowed = 1e-6 * norm(gradient_x) * norm(h) + bend + 1e-10 * abs(float(f.value(x)))
    require(error <= allowed, f"smooth.gradient disagrees with smooth.value: {slope} against {float(gradient_x @ h)}")


def _check_prox(problem: Composite, v: Array, y: Array, step: float) -> None:
    g = problem.prox
    p = np.asarray(g.prox(v, step))
    require(p.shape == v.shape, f"prox.prox has shape {p.shape}, its argument {v.shape}")
    g_p = float(g.value(p))
    require(math.isfinite(g_p), f"prox.value is {g_p} at a point that prox.prox returned")
    for other in (y, np.asarray(g.prox(y, step)), p + 1e-3 * (y - p)):
        g_other = float(g.value(other))
        if math.isfinite(g_other):  # (v - p)/step is a subgradient of g at p
            bound = g_p + float((v - p) @ (other - p)) / step
            blur = SLACK * (abs(g_p) + abs(g_other) + norm(v - p) * norm(other - p) / step)
            require(g_other >= bound - blur, f"prox.prox(v, {step}) is not the prox of prox.value: {g_other} < {bound}")


def _check_certificates(problem: Composite, start: Array, own: str | Solver) -> None:
    reference = solve(problem, within=0.0, solver=own, warm=start, max_steps=200_000)
    for rule in RULES:
        if rule == "minimum_norm" and isinstance(problem.canonical.g, Generic):
            continue  # a user's own g without least_subgradient
        solvers: list[str | Solver] = [one for one in FIRST_ORDER if refusal(one, problem) is None]
        if not solvers and rule == "subgradient":
            continue  # it is about prox-gradient steps
        if rule != "subgradient" and own != "auto":
            solvers.append(own)
        for solver in solvers or ["auto"]:
            iterates = iterate(problem, solver=solver, warm=start, certificate=rule)  # type: ignore[arg-type]
            for step, solution in enumerate(islice(iterates, 41)):
                _check_certificate(solution.x, solution.certificate, reference, f"{solver}, {rule}, step {step}")


def _check_certificate(x: Array, certificate: Certificate, reference: Solution, where: str) -> None:
    distance = norm(x - reference.x)
    require(
        distance <= certificate.radius + reference.certificate.radius,
        f"{where}: the distance is {distance}, the certificate says {certificate.radius} ({certificate.rule})",
    )


def sample_problems(seed: int = 0) -> list[Composite]:
    """Small problems of every kind, condition numbers from 1 to 1e6, for `check_solver`."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 12)) * 10.0 ** rng.uniform(-1, 1, 12)
    y = X[:, :3].sum(axis=1) + 0.1 * rng.standard_normal(30)
    problems: list[Composite] = []
    for l2 in (1.0, 1e-2, 1e-4):
        problems += [
            ElasticNet(X, y).at(l1=0.1, l2=l2),
            ElasticNetLogistic(X, y > 0).at(l1=0.01, l2=l2),
            ElasticNetHuber(X, y).at(l1=0.1, l2=l2),
        ]
    smooth = LinearModel(ElasticNet(X, y).design, y, SQUARED, 1e-2)
    for prox in (Zero(), Box(-0.5, 0.5), Group([range(6), range(6, 12)], 0.3)):
        problems.append(Composite(smooth, prox, mu=1e-2, L=smooth.L, size=12))
    problems.append(Composite(_Sphere(rng.standard_normal(12)), Zero(), mu=2.0, L=2.0, size=12))
    return problems


class _Sphere:
    """||x - centre||^2: condition number 1."""

    def __init__(self, centre: Array) -> None:
        self.centre = centre

    def value(self, x: Array) -> float:
        return float((x - self.centre) @ (x - self.centre))

    def gradient(self, x: Array) -> Array:
        return 2.0 * (x - self.centre)


def check_solver(
    solver: str | Solver, problems: Sequence[Composite] | None = None, *, max_steps: int = 200_000
) -> None:
    """Check that a solver reaches what it is asked for, that its certificates hold at every step, and that it resumes
    to the same bits.

    Nothing it has returned before is modified. `problems` are by default those of `sample_problems` that the solver
    takes.
    """
    if problems is None:
        problems = [problem for problem in sample_problems() if refusal(solver, problem) is None]
        require(len(problems) > 0, "the solver takes none of the sample problems: give problems of its own")
    for i, problem in enumerate(problems):
        where = f"problem {i} (kappa {problem.kappa:.1e})"
        reference = solve(problem, within=1e-10, max_steps=max_steps)
        start = np.ones(problem.size or len(reference.x))
        for step, solution in enumerate(islice(iterate(problem, solver=solver, warm=start), 61)):
            _check_certificate(solution.x, solution.certificate, reference, f"{where}, step {step}")
        within = max(1e-6, 10.0 * reference.certificate.radius)
        rough = solve(problem, within=1e3 * within, solver=solver, warm=start, max_steps=max_steps)
        kept = copy.deepcopy(rough.x)
        fine = solve(problem, within=within, solver=solver, warm=rough, max_steps=max_steps)
        straight = solve(problem, within=within, solver=solver, warm=start, max_steps=max_steps)
        require(fine.reached, f"{where}: {within} was not reached in {fine.steps} steps, but {fine.certificate.radius}")
        _check_certificate(fine.x, fine.certificate, reference, f"{where}, at the end")
        require(np.array_equal(rough.x, kept), f"{where}: continuing a solution modified it")
        require(
            fine.steps == straight.steps and np.array_equal(fine.x, straight.x),
            f"{where}: {fine.steps} steps in two runs differ from {straight.steps} in one",
        )
        again = certify(problem, fine.x)
        _check_certificate(fine.x, again, reference, f"{where}, certified afresh")


def check_loss(loss: Loss, w: Any, *, trials: int = 200, seed: int = 0) -> None:
    """Check that the error bound of a loss holds in all directions tried around w, and grows with the radius."""
    rng = np.random.default_rng(seed)
    w = np.asarray(w, dtype=np.float64)
    at = loss.at(w)
    require(at.residual >= 0 and math.isfinite(at.residual), f"the residual is {at.residual}")
    size = max(norm(w), 1.0)
    steepest = _steepest(loss, w, size)
    for _ in range(trials):
        radius = size * 10.0 ** rng.uniform(-9, 2)
        error = at.error(radius)
        require(error >= 0, f"the error for radius {radius} is {error}")
        require(error <= at.error(2.0 * radius) * (1 + SLACK), f"the error falls when the radius grows from {radius}")
        direction = rng.standard_normal(w.shape)
        for v in (direction, steepest, -steepest):
            length = norm(v)
            if length > 0:
                point = w + radius * v / length
                distance = max(radius, norm(point - w))  # the point is rounded, and may lie beyond the radius
                other, error = loss.at(point).residual, at.error(distance)
                require(
                    abs(other - at.residual) <= error + SLACK * (at.residual + other) * 1e-3,
                    f"within {distance} the residual moves by {abs(other - at.residual)}, the error says {error}",
                )


def _steepest(loss: Loss, w: Array, size: float) -> Array:
    """A finite-difference gradient of the residual, along random directions if w is long."""
    h = 1e-6 * size
    base = loss.at(w).residual
    directions = np.eye(w.size) if w.size <= 200 else np.random.default_rng(1).standard_normal((200, w.size))
    slopes = np.array([(loss.at(w + h * direction).residual - base) / h for direction in directions])
    return np.asarray(slopes @ directions)


def check_objective(
    objective: Objective,
    theta: Any,
    *,
    accuracies: Sequence[float] = (1e-1, 1e-2, 1e-4),
    truth: Callable[[Array], Any] | None = None,
) -> None:
    """Check that an objective delivers what it is asked for, consistently, and leaves earlier evaluations alone.

    All evaluations of one theta must allow a common F; with `truth`, a function that gives the exact residuals,
    every residual must lie within its error of it. `accuracies` are the requests made, coarse to fine.
    """
    theta = np.asarray(theta, dtype=np.float64)
    low, high = -math.inf, math.inf
    exact = None if truth is None else np.asarray(truth(theta.copy()), dtype=np.float64)
    warm: Evaluation | None = None
    count: int | None = None
    for within in accuracies:
        cold = objective.evaluate(theta.copy(), within=within, warm=None)
        before = None if warm is None else copy.deepcopy((warm.r, warm.e, warm.interval))
        for evaluation in (cold, objective.evaluate(theta.copy(), within=within, warm=warm)):
            require(
                isinstance(evaluation, Evaluation), f"evaluate returned {type(evaluation).__name__}, not an Evaluation"
            )
            complaint = evaluation.failure or evaluation.complaint()
            require(complaint is None, f"theta = {theta.tolist()}: {complaint}")
            require(
                np.array_equal(evaluation.point, theta), f"asked for {theta.tolist()}, got {evaluation.point.tolist()}"
            )
            count = len(evaluation.r) if count is None else count
            require(len(evaluation.r) == count, f"{len(evaluation.r)} residuals, {count} before")
            require(
                float(evaluation.e.max(initial=0.0)) <= within * (1 + SLACK),
                f"within {within} was asked for, {float(evaluation.e.max(initial=0.0))} was achieved",
            )
            low, high = max(low, evaluation.interval[0]), min(high, evaluation.interval[1])
            require(
                low <= high + SLACK * abs(high),
                f"two evaluations of one theta exclude each other: F >= {low}, F <= {high}",
            )
            if exact is not None:
                require(exact.shape == evaluation.r.shape, f"truth has shape {exact.shape}, not {evaluation.r.shape}")
                perfect = replace(evaluation, residuals=exact).coarse
                errors = np.abs(perfect - evaluation.coarse)
                worst = int(np.argmax(errors - evaluation.e))
                require(
                    float(errors[worst] - evaluation.e[worst]) <= SLACK * (1.0 + abs(float(perfect[worst]))),
                    f"residual {worst} errs by {float(errors[worst])}, not by at most {float(evaluation.e[worst])}",
                )
        if warm is not None and before is not None:
            same = np.array_equal(before[0], warm.r) and np.array_equal(before[1], warm.e)
            require(same and before[2] == warm.interval, "a later evaluation modified an earlier one")
        warm = evaluation
