r"""The bilevel problem:  minimise  F(theta) = sum_j loss_j(w_j(theta)) + J(theta)  over hyperparameters theta, where
w_j(theta) minimises the j-th lower-level problem  f_j(., theta) + g_j(., theta).

Nobody has w_j exactly. Each is solved until its loss's residual r_j is proven to err by at most what was asked for:
the loss says which radius that takes at the point reached so far, the solver goes on to that radius, and so on until
both agree. J is known exactly: it enters as residuals without error.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from suffice._array import Array, norm, positive
from suffice.losses import Loss, LossAt
from suffice.lower.solver import Solution, Solver, continues, find_solver, solve
from suffice.lower.together import fista_together, share_a_design
from suffice.problem import Composite
from suffice.problems import LowerLevel
from suffice.space import Space
from suffice.upper.evaluation import Evaluation

INFORMATIVE = 0.2

Penalty = Callable[[Mapping[str, float]], Any]


class BilevelProblem:
    """n lower-level problems that share hyperparameters, with one loss each: an objective for `suffice.tune`.

    `lower[j].at(**params)` is the j-th problem at fixed parameters; `penalty(params)` gives residuals known exactly,
    whose squares sum to J. `max_steps` bounds a single solve: an evaluation that needs more comes back with the
    accuracy it has reached, and is continued if it matters.
    """

    def __init__(
        self,
        lower: Sequence[LowerLevel],
        losses: Sequence[Loss],
        *,
        space: Space,
        penalty: Penalty | None = None,
        solver: str | Solver = "fista_adaptive",
        max_steps: int = 100_000,
    ) -> None:
        self.lower, self.losses = tuple(lower), tuple(losses)
        if not self.lower:
            raise ValueError("lower must hold at least one lower-level problem")
        if len(self.lower) != len(self.losses):
            raise ValueError(f"losses must be one per problem, got {len(self.losses)} for {len(self.lower)} problems")
        if not isinstance(space, Space):
            raise TypeError(f"space must be a Space, got {space!r}")
        for j, problem in enumerate(self.lower):
            _check_accepts(problem, space.names, f"lower[{j}]")
        for j, loss in enumerate(self.losses):
            if not callable(getattr(loss, "at", None)):
                raise TypeError(f"losses[{j}] must offer at(w), {loss!r} does not")
        if penalty is not None and not callable(penalty):
            raise TypeError(f"penalty must be callable, got {penalty!r}")
        if not isinstance(max_steps, int) or isinstance(max_steps, bool) or max_steps < 1:
            raise ValueError(f"max_steps must be a positive integer, got {max_steps!r}")
        find_solver(solver)
        self.space, self.penalty, self.solver, self.max_steps = space, penalty, solver, max_steps

    def __len__(self) -> int:
        return len(self.lower)

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        """Residuals whose errors are at most `within`, from as few steps as can be."""
        positive(within, "within", zero=True, infinite=True)

        def settle(problem: Composite, loss: Loss, start: Solution | None) -> Solution:
            first = 0 if continues(start, problem, self.solver) else 1
            solution = solve(problem, steps=first, solver=self.solver, warm=start)
            budget = solution.steps + self.max_steps - first
            while (left := budget - solution.steps) > 0:
                at = loss.at(solution.x)
                if at.error(solution.certificate.radius) <= within:
                    break
                target = min(at.radius(within), solution.certificate.radius)
                further = solve(problem, within=target, solver=self.solver, warm=solution, max_steps=left)
                if further.steps == solution.steps:
                    break
                solution = further
            return solution

        return self._evaluate(theta, warm, settle)

    def evaluate_weights(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        """Residuals of weights whose distance to the exact ones is at most `within` (the paper's rule)."""
        positive(within, "within", zero=True, infinite=True)

        def settle(problem: Composite, loss: Loss, start: Solution | None) -> Solution:
            solution = solve(
                problem,
                within=min(within, sys.float_info.max),
                solver=self.solver,
                warm=start,
                max_steps=self.max_steps,
            )
            if start is None or continues(start, problem, self.solver):
                return solution
            # A start close to the solution may meet the request before it has moved at all, and would pass the loss of
            # another theta off as the loss here: go on until the solution has moved by more than its error.
            budget = self.max_steps - solution.steps
            while budget > 0 and INFORMATIVE * norm(solution.x - start.x) < solution.certificate.radius > 1e-3 * within:
                target = 0.5 * solution.certificate.radius
                further = solve(problem, within=target, solver=self.solver, warm=solution, max_steps=budget)
                if not further.reached:
                    return further
                budget -= further.steps - solution.steps
                solution = further
            return solution

        return self._evaluate(theta, warm, settle)

    def fixed(self, steps: int) -> FixedSteps:
        """The same problem at fixed accuracy: `steps` solver steps from a cold start for every solve."""
        return FixedSteps(self, steps)

    def at(self, theta: Array) -> list[Composite]:
        """The lower-level problems at theta."""
        params = self.space.params(theta)
        return [problem.at(**params) for problem in self.lower]

    def certified(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation with the errors that its solutions' certificates prove, however it was made."""
        return self._assemble(evaluation.point, evaluation.solutions, evaluation.work)

    def fingerprint(self) -> dict[str, Any]:
        """What a journal compares before it is continued."""
        return {
            "lower": self.lower,
            "losses": self.losses,
            "space": self.space.ranges,
            "solver": self.solver,
            "max_steps": self.max_steps,
            "penalty at a few points": [self._penalties(theta) for theta in _probes(self.space)],
        }

    def _evaluate(
        self,
        theta: Array,
        warm: Evaluation | None,
        settle: Callable[[Composite, Loss, Solution | None], Solution],
    ) -> Evaluation:
        theta = np.asarray(theta, dtype=np.float64)
        starts: Sequence[Any] = (None,) * len(self) if warm is None or not warm.solutions else warm.solutions
        if len(starts) != len(self):
            raise ValueError(f"warm must hold {len(self)} solutions, got {len(starts)}")
        same = warm is not None and np.array_equal(warm.point, theta)
        solutions, work = [], 0
        for problem, loss, start in zip(self.at(theta), self.losses, starts, strict=True):
            if start is not None:
                # A solution at this very theta is continued, also after it has been through a file without its problem.
                start = replace(start, problem=problem if same else None)
            solution = settle(problem, loss, start)
            continued = start is not None and continues(start, problem, self.solver)
            work += solution.steps - (start.steps if continued else 0)
            solutions.append(solution)
        return self._assemble(theta, solutions, work)

    def _assemble(self, theta: Array, solutions: Sequence[Solution], work: float, exact: bool = False) -> Evaluation:
        values = [loss.at(solution.x) for loss, solution in zip(self.losses, solutions, strict=True)]
        penalties = self._penalties(theta)
        errors = [0.0 if exact else _error(*pair) for pair in zip(values, solutions, strict=True)]
        return Evaluation(
            theta,
            np.concatenate([*(value.residuals for value in values), penalties]),
            np.array(errors + [0.0] * len(penalties)),
            work=work,
            solutions=solutions,
            distance=0.0 if exact else max(solution.certificate.radius for solution in solutions),
            blocks=[len(value.residuals) for value in values] + [1] * len(penalties),
        )

    def _penalties(self, theta: Array) -> list[float]:
        if self.penalty is None:
            return []
        values = np.atleast_1d(np.asarray(self.penalty(self.space.params(theta)), dtype=np.float64))
        return [float(value) for value in values]


class FixedSteps:
    """F_K: the bilevel problem with every lower-level solve stopped after K steps from a cold start.

    F_K is a function of theta like any other, and exact as such: evaluations carry no errors, and intervals are
    those of F_K, not of F. What is proven about F itself, `BilevelProblem.certified(evaluation)` tells.
    """

    def __init__(self, problem: BilevelProblem, steps: int) -> None:
        if not isinstance(steps, int | np.integer) or isinstance(steps, bool) or steps < 1:
            raise ValueError(f"steps must be a positive integer, got {steps!r}")
        self.problem, self.steps, self.space = problem, int(steps), problem.space

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        """K steps, whatever `within` and `warm` say."""
        problem, lower = self.problem, self.problem.at(theta)
        if problem.solver == "fista" and share_a_design(lower):
            solutions = fista_together(lower, self.steps)
        else:
            solutions = [solve(one, steps=self.steps, solver=problem.solver) for one in lower]
        return problem._assemble(np.asarray(theta), solutions, self.steps * len(problem), exact=True)

    evaluate_weights = evaluate

    def fingerprint(self) -> dict[str, Any]:
        """What a journal compares before it is continued."""
        return {**self.problem.fingerprint(), "steps": self.steps}


def _probes(space: Space) -> list[Array]:
    """A few theta inside the box."""
    lower, upper = space.bounds
    lower = np.where(np.isfinite(lower), lower, np.minimum(upper, 1.0) - 1.0)
    upper = np.where(np.isfinite(upper), upper, lower + 1.0)
    return [lower + share * (upper - lower) for share in (0.25, 0.5, 0.8)]


def _error(value: LossAt, solution: Solution) -> float:
    return value.error(solution.certificate.radius)


def _check_accepts(problem: LowerLevel, names: tuple[str, ...], label: str) -> None:
    if not callable(getattr(problem, "at", None)):
        raise TypeError(f"{label} must offer at(**params), {problem!r} does not")
    try:
        inspect.signature(problem.at).bind(**dict.fromkeys(names, 1.0))
    except TypeError as error:
        raise TypeError(f"{label}.at does not take the parameters {', '.join(names)} of space: {error}") from error
