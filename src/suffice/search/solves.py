r"""Lower-level solves that are as accurate as somebody asked for: on what the loss makes of them, on their distance to
the exact weights, or so many steps.

The loss says which radius a request takes at the point reached so far, the solver goes on to that radius, and so on
until both agree. A solve is a generator that asks for solutions, so that all that are asked for at the same time are
answered together, and it may be made here or by a worker.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from suffice.arrays import norm
from suffice.journal.codec import light
from suffice.losses import Loss, LossAt
from suffice.problems import LowerLevel
from suffice.solvers.many import solve_each
from suffice.solvers.problem import Composite
from suffice.solvers.solution import Ask, Outcome, Solution, Solver
from suffice.solvers.solver import continues

INFORMATIVE = 0.2

On = Literal["residual", "weights", "steps"]

Settling = Generator[Ask, Solution, Solution]  # asks for solutions until it has the one it wants


@dataclass(frozen=True)
class Task:
    """Solve the j-th problem at these parameters, `on` what is `within` bounded; "steps": that many, from 0."""

    j: int
    params: Mapping[str, float]
    on: On
    within: float
    start: Solution | None = None
    same: bool = False  # whether `start` is a solution at these very parameters
    max_steps: int = 100_000


@dataclass(frozen=True, eq=False)
class Share:
    """What a worker has to know in order to solve any of the problems."""

    lower: tuple[LowerLevel, ...]
    losses: tuple[Loss, ...]
    solver: str | Solver

    def solve(self, task: Task) -> Solution:
        """The solution of one problem, fit for travelling."""
        problem = self.lower[task.j].at(**task.params)
        return light(settle_all([self.settle(task, problem)], self.solver)[0])

    def settle(self, task: Task, problem: Composite) -> Settling:
        """The way to the solution, for all tasks to go together."""
        start = _at_home(task, problem)
        if task.on == "residual":
            return self._settle(problem, self.losses[task.j], start, task)
        if task.on == "weights":
            return self._settle_weights(problem, start, task)
        return _settle_steps(problem, int(task.within))

    def known(self, task: Task, solution: Solution) -> int:
        """The steps of a solution that were made before this task."""
        assert solution.problem is not None
        start = _at_home(task, solution.problem)
        return start.steps if start is not None and continues(start, solution.problem, self.solver) else 0

    def complaint(self, task: Task, answer: Any) -> str | None:
        """What is wrong with a worker's answer, as far as can be seen without solving the problem again."""
        if not isinstance(answer, Solution):
            return f"a Solution was expected, got {type(answer).__name__}"
        x, radius = answer.x, answer.certificate.radius
        if not (isinstance(x, np.ndarray) and x.dtype == np.float64 and x.ndim == 1 and np.isfinite(x).all()):
            return "x is not a vector of finite numbers"
        size = self.lower[task.j].at(**task.params).size
        shape = task.start.x.shape if task.start is not None else x.shape if size is None else (size,)
        if x.shape != shape:
            return f"x must have shape {shape}, got {x.shape}"
        if not radius >= 0.0:
            return f"the radius must be non-negative, got {radius!r}"
        return None

    def _settle(self, problem: Composite, loss: Loss, start: Solution | None, task: Task) -> Settling:
        """On to the radius that the loss asks for at the point reached so far, until both agree."""
        first = 0 if continues(start, problem, self.solver) else 1
        solution = yield Ask(problem, start, steps=first, certificate="free")  # which may be enough
        budget, within = solution.steps + task.max_steps - first, task.within
        solution = _with_error(loss, solution)

        def enough(solution: Solution) -> bool:
            return _with_error(loss, solution).error <= within

        while (left := budget - solution.steps) > 0:
            at = loss.at(solution.x)
            if proven_error(at, solution) <= within:
                break
            target = min(at.radius(within), solution.certificate.radius)
            further = yield Ask(problem, solution, within=target, max_steps=left, enough=enough)
            further = _with_error(loss, further)
            exhausted = further.steps == solution.steps or further.outcome is Outcome.PRECISION
            solution = further
            if exhausted:
                break
        return solution

    def _settle_weights(self, problem: Composite, start: Solution | None, task: Task) -> Settling:
        within = task.within
        solution = yield Ask(problem, start, within=min(within, sys.float_info.max), max_steps=task.max_steps)
        if start is None or continues(start, problem, self.solver):
            return solution
        # A start close to the solution may meet the request before it has moved at all, and would pass the loss of
        # another theta off as the loss here: go on until the solution has moved by more than its error.
        budget = task.max_steps - solution.steps
        while budget > 0 and INFORMATIVE * norm(solution.x - start.x) < solution.certificate.radius > 1e-3 * within:
            further = yield Ask(problem, solution, within=0.5 * solution.certificate.radius, max_steps=budget)
            if not further.reached:
                return further
            budget -= further.steps - solution.steps
            solution = further
        return solution


def _settle_steps(problem: Composite, steps: int) -> Settling:
    return (yield Ask(problem, None, steps=steps))


def settle_all(tasks: list[Settling], solver: str | Solver) -> list[Solution]:
    """Every task to its end, all that they ask for at the same time answered together."""
    settled: dict[int, Solution] = {}
    answers: dict[int, Solution | None] = dict.fromkeys(range(len(tasks)))
    while answers:
        asked: dict[int, Ask] = {}
        for j, answer in answers.items():
            try:
                asked[j] = next(tasks[j]) if answer is None else tasks[j].send(answer)
            except StopIteration as end:
                settled[j] = end.value
        answers = dict(zip(asked, solve_each(list(asked.values()), solver), strict=True))
    return [settled[j] for j in range(len(tasks))]


def _at_home(task: Task, problem: Composite) -> Solution | None:
    """The start; a solution at this very theta is continued, also after it has been through a file or to a worker."""
    return None if task.start is None else replace(task.start, problem=problem if task.same else None)


def is_proven(start: Any) -> bool:
    """Whether this is a solution: a start that was blended from neighbours may carry their theta, and is none."""
    return isinstance(start, Solution) and start.certificate.rule != "none"


def proven_error(value: LossAt, solution: Solution) -> float:
    """The proven error of the loss's residual: by the radius, or as a verification has proven it."""
    return min(solution.error, value.error(solution.certificate.radius))


def _with_error(loss: Loss, solution: Solution) -> Solution:
    """A solution that keeps what its verification proves of the loss, which outlives the verification itself."""
    proof = solution.certificate.verification
    at = None if proof is None or solution.error < math.inf else loss.at(solution.x)
    if proof is None or at is None or at.verified is None:
        return solution
    return replace(solution, error=at.verified(proof))
