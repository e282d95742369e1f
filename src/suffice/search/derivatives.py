r"""Derivatives of an evaluation of  F(theta) = sum_j ||r_j(w_j(theta))||^2 + ||J(theta)||^2.

With dw_j/dp from `suffice.solvers.sensitivity`, R_j = dr_j/dw from the loss and D = diag(dp/dtheta) from the space,

    d r_j / d theta  =  R_j (dw_j/dp) D,                                             m right-hand sides, or

    grad F  =  - sum_j D K_j^T q_j  +  2 (dJ/dtheta)^T J,     H_j q_j = 2 R_j^T r_j,     one for any m.

Up to MOST_COLUMNS parameters the Jacobian is made, the gradient alone beyond. dJ/dtheta is the user's, or made of
differences of J, which is known exactly.

Systems without a factor are solved to a residual of the relative accuracy that w_j has, between FINEST and COARSEST,
from the solution of the last system nearby: a solution carries it as its `tangent`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from suffice.arrays import Array, frozen, norm
from suffice.evaluation import Evaluation
from suffice.losses import Loss
from suffice.problems import LowerLevel
from suffice.prove.loss_at import Linear
from suffice.solvers.sensitivity import Sensitive, Sensitivity, Solved
from suffice.solvers.solution import Solution

MOST_COLUMNS = 64
FINEST, COARSEST = 1e-10, 1e-3
STEP = 1e-5  # of theta, relative to its size if that is more than 1: for differences of J

Penalty = Callable[[Mapping[str, float]], Any]


@dataclass(frozen=True, eq=False)
class Linearised:
    """One lower-level problem at its solution, with its loss."""

    linear: Linear
    residuals: Array
    solution: Solution
    sensitivity: Sensitivity
    K: Any


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def differentiated(
    problem: Any, evaluation: Evaluation, each: Callable[[Sequence[Callable[[], Any]]], list[Any]]
) -> Evaluation:
    """An evaluation of a `BilevelProblem` with its derivatives; as it is where a lower-level problem or a loss offers
    none. A singular H raises an ArithmeticError or a LinAlgError. `each` calls a function for every problem
    (`suffice.rows.margins`)."""
    theta, solutions, space = evaluation.point, evaluation.solutions, problem.space
    params, slopes, m = space.params(theta), space.slopes(theta), len(theta)
    if len(solutions) != len(problem):
        return evaluation
    known = zip(problem.lower, problem.losses, solutions, strict=True)
    parts = each([partial(_linearised, *one, params) for one in known])
    if any(part is None for part in parts):
        return evaluation
    J = of_penalty(problem, theta)
    if m <= MOST_COLUMNS:
        solved = _solved(parts, [-np.asarray(part.K @ np.diag(slopes)) for part in parts])
        blocks = each([partial(part.linear.forward, one.value) for part, one in zip(parts, solved, strict=True)])
        derivatives: dict[str, Any] = {"jacobian": np.concatenate([*blocks, J])}
    else:
        solved = _solved(parts, [part.linear.adjoint(2.0 * part.residuals)[:, None] for part in parts])
        pulls = [-slopes * np.asarray(part.K.T @ one.value[:, 0]) for part, one in zip(parts, solved, strict=True)]
        of_penalties = evaluation.r[len(evaluation.r) - len(J) :]
        derivatives = {"gradient": np.sum(pulls, axis=0) + 2.0 * (J.T @ of_penalties)}
    if not all(np.isfinite(value).all() for value in derivatives.values()):
        return evaluation
    solutions = [
        replace(solution, tangent=frozen(one.value) if one.iterated else None)
        for solution, one in zip(solutions, solved, strict=True)
    ]
    work = evaluation.work + sum(one.work for one in solved)
    return replace(evaluation, solutions=solutions, work=work, **derivatives)


def _solved(parts: Sequence[Linearised], sides: Sequence[Array]) -> list[Solved]:
    """H^-1 B of every problem, to the relative accuracy of its solution, each from its tangent if that is of this
    kind."""
    solved = []
    for part, side in zip(parts, sides, strict=True):
        size, tangent = norm(part.solution.x), part.solution.tangent
        relative = part.solution.certificate.radius / size if size > 0.0 else FINEST
        start = tangent if tangent is not None and tangent.shape == side.shape else None
        solved.append(part.sensitivity.solve(side, min(max(relative, FINEST), COARSEST), start))
    return solved


def _linearised(problem: LowerLevel, loss: Loss, solution: Any, params: Mapping[str, float]) -> Linearised | None:
    if not isinstance(problem, Sensitive) or not isinstance(solution, Solution):
        return None
    at = loss.at(solution.x)
    if at.linear is None:
        return None
    sensitivity = Sensitivity.of(problem.at(**params), solution.x)
    K = problem.cross(solution.x, **params)
    return None if sensitivity is None or K is None else Linearised(at.linear, at.residuals, solution, sensitivity, K)


def of_penalty(problem: Any, theta: Array) -> Array:
    """dJ/dtheta."""
    space, values = problem.space, problem.penalties
    if problem.penalty_jacobian is not None:
        J = np.asarray(problem.penalty_jacobian(space.params(theta)), dtype=np.float64)
        return np.asarray(np.atleast_2d(J) * space.slopes(theta))
    lower, upper = space.bounds
    columns = []
    for i, h in enumerate(STEP * np.maximum(1.0, np.abs(theta))):
        step = np.zeros(len(theta))
        step[i] = h
        below, above = theta[i] - h < lower[i], theta[i] + h > upper[i]
        if below == above:
            columns.append((values(theta + step) - values(theta - step)) / (2.0 * h))
        else:  # to one side, to the same order
            step = step if below else -step
            ahead = 4.0 * values(theta + step) - values(theta + 2.0 * step)
            columns.append((ahead - 3.0 * values(theta)) / (2.0 * step[i]))
    return np.column_stack(columns)
