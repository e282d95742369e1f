r"""The bilevel problem:  minimise  F(theta) = sum_j loss_j(w_j(theta)) + J(theta)  over hyperparameters theta, where
w_j(theta) minimises the j-th lower-level problem  f_j(., theta) + g_j(., theta).

Nobody has w_j exactly. Each is solved until its loss's residual r_j is proven to err by at most what was asked for:
the loss says which radius that takes at the point reached so far, the solver goes on to that radius, and so on until
both agree. J is known exactly: it enters as residuals without error.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from suffice.arrays import Array, positive, whole_number
from suffice.evaluation import Evaluation
from suffice.executors import Spread, find
from suffice.journal.codec import light
from suffice.losses import Loss, LossAt
from suffice.options import Policy
from suffice.problems import LowerLevel
from suffice.protocols import Closing
from suffice.rows.margins import together, together_if_dear
from suffice.search.derivatives import Penalty, differentiated
from suffice.search.solves import On, Share, Task, is_proven, proven_error, settle_all
from suffice.solvers.problem import Composite
from suffice.solvers.solution import Solution, Solver
from suffice.solvers.solver import find_solver
from suffice.space import Space


class BilevelProblem(Closing):
    """n lower-level problems that share hyperparameters, with one loss each: an objective for `suffice.tune`.

    `lower[j].at(**params)` is the j-th problem at fixed parameters, and `losses[j]` judges its solution. `space` names
    the parameters and their ranges. `penalty(params)` gives residuals known exactly, whose squares sum to J, and
    `penalty_jacobian(params)` their derivatives, a row for each and a column for every parameter; differences of
    `penalty` stand in for it. `solver` is as in `suffice.solve`. `max_steps` bounds a single solve: an evaluation that
    needs more comes back with the accuracy it has reached, and is continued if it matters. `executor` says where
    problems are solved: in this process, those that share X together (None), or side by side elsewhere
    (`suffice.executors`).
    """

    def __init__(
        self,
        lower: Sequence[LowerLevel],
        losses: Sequence[Loss],
        *,
        space: Space,
        penalty: Penalty | None = None,
        penalty_jacobian: Penalty | None = None,
        solver: str | Solver = "auto",
        max_steps: int = 100_000,
        executor: Any = None,
    ) -> None:
        self.lower, self.losses = tuple(lower), tuple(losses)
        if not self.lower:
            raise ValueError("lower must hold at least one lower-level problem")
        if len(self.lower) != len(self.losses):
            raise ValueError(f"losses must be one per problem, got {len(self.losses)} for {len(self.lower)} problems")
        if not isinstance(space, Space):
            raise TypeError(f"space must be a Space, got {space!r}")
        for j, problem in enumerate(self.lower):
            if not callable(getattr(problem, "at", None)):
                raise TypeError(f"lower[{j}] must offer at(**params), {problem!r} does not")
            try:
                inspect.signature(problem.at).bind(**dict.fromkeys(space.names, 1.0))
            except TypeError as error:
                known = ", ".join(space.names)
                raise TypeError(f"lower[{j}].at does not take the parameters {known} of space: {error}") from error
        for j, loss in enumerate(self.losses):
            if not callable(getattr(loss, "at", None)):
                raise TypeError(f"losses[{j}] must offer at(w), {loss!r} does not")
        for name, function in (("penalty", penalty), ("penalty_jacobian", penalty_jacobian)):
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be callable, got {function!r}")
        if penalty is None and penalty_jacobian is not None:
            raise ValueError("penalty_jacobian needs the penalty that it is the derivative of")
        find_solver(solver)
        self.space, self.penalty, self.penalty_jacobian, self.solver = space, penalty, penalty_jacobian, solver
        self.max_steps = whole_number(max_steps, "max_steps", least=1)
        self.executor: Spread | None = find(executor)
        self._each: Any = together_if_dear(self.lower)
        self._share = Share(self.lower, self.losses, solver)

    def __len__(self) -> int:
        return len(self.lower)

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        """Residuals whose errors are at most `within`, from as few steps as can be."""
        return self.evaluate_all([theta], within=within, warm=[warm])[0]

    def evaluate_weights(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        """Residuals of weights whose distance to the exact ones is at most `within` (the paper's rule)."""
        return self.evaluate_all([theta], within=within, warm=[warm], policy="weights")[0]

    def evaluate_all(
        self,
        thetas: Sequence[Array],
        *,
        within: float | Sequence[float],
        warm: Sequence[Evaluation | None] | None = None,
        policy: Policy = "residual",
    ) -> list[Evaluation]:
        """Several thetas at once, to one accuracy or to one each; problems that share a design go through one product
        with X where the solver can."""
        one = isinstance(within, str) or not isinstance(within, Sequence | np.ndarray)
        accuracies: list[Any] = [within] * len(thetas) if one else list(within)  # type: ignore[arg-type]
        if len(accuracies) != len(thetas):
            raise ValueError(f"within must be a number or one per theta, got {len(accuracies)} for {len(thetas)}")
        for accuracy in accuracies:
            positive(accuracy, "within", zero=True, infinite=True)
        return self._evaluate(thetas, warm, policy, accuracies)

    def differentiate(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation with its Jacobian, or with the gradient of F where there are more than 64 parameters; as it is
        where a lower-level problem or a loss offers no derivatives, where H is singular, or if it has them. They are as
        accurate as the solutions that they are made of, and proven to be nothing."""
        if evaluation.slope is not None:
            return evaluation
        try:
            return differentiated(self, evaluation, self._each)
        except (ArithmeticError, np.linalg.LinAlgError):  # H is singular
            return evaluation

    def lower_bound(self, theta: Array) -> float:
        """A lower bound of F that costs nothing: J, since losses are not negative."""
        return float(np.sum(np.square(self.penalties(theta)))) * (1.0 - 1e-12)

    def fixed(self, steps: int) -> FixedSteps:
        """The same problem at fixed accuracy: `steps` solver steps from a cold start for every solve."""
        return FixedSteps(self, steps)

    def limited(self, max_steps: int) -> BilevelProblem:
        """The same problem with another `max_steps`; the executor is shared."""
        return self._other(max_steps=whole_number(max_steps, "max_steps", least=1))

    def with_lower(self, lower: Sequence[LowerLevel]) -> BilevelProblem:
        """The same problem with other lower-level problems of the same parameters; the executor is shared."""
        return self._other(lower=tuple(lower), _share=replace(self._share, lower=tuple(lower)))

    def _other(self, **changes: Any) -> BilevelProblem:
        other = copy(self)
        vars(other).update(changes)
        return other

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
            "penalty at a few points": list(self._probed()),
        }

    def _probed(self) -> Iterator[list[float] | str]:
        """J at a few theta inside the box."""
        lower, upper = self.space.bounds
        lower = np.where(np.isfinite(lower), lower, np.minimum(upper, 1.0) - 1.0)
        upper = np.where(np.isfinite(upper), upper, lower + 1.0)
        for share in (0.25, 0.5, 0.8):
            try:
                yield [float(value) for value in self.penalties(lower + share * (upper - lower))]
            except Exception as error:  # not everybody's penalty is defined everywhere
                yield type(error).__name__

    def take_events(self) -> list[dict[str, Any]]:
        """What has happened to workers since the last call, for the journal."""
        if self.executor is None:
            return []
        events, self.executor.events = self.executor.events, []
        return events

    def close(self) -> None:
        """Let go of the executor's workers, if there are any; they come back when they are needed."""
        if self.executor is not None:
            self.executor.close()

    def _evaluate(
        self, thetas: Sequence[Array], warm: Sequence[Evaluation | None] | None, on: On, within: Sequence[float]
    ) -> list[Evaluation]:
        thetas = [np.asarray(theta, dtype=np.float64) for theta in thetas]
        warm = [None] * len(thetas) if warm is None else warm
        tasks = []
        for theta, near, accuracy in zip(thetas, warm, within, strict=True):
            params, same = self.space.params(theta), near is not None and np.array_equal(near.point, theta)
            starts = near.solutions if near is not None and near.solutions else (None,) * len(self)
            if len(starts) != len(self):
                raise ValueError(f"warm must hold {len(self)} solutions, got {len(starts)}")
            tasks += [
                Task(j, params, on, accuracy, one, same and is_proven(one), self.max_steps)
                for j, one in enumerate(starts)
            ]
        solutions = self._solve(tasks)
        work = [
            solution.steps - self._share.known(task, solution) for task, solution in zip(tasks, solutions, strict=True)
        ]
        n = len(self)
        return [
            self._assemble(theta, solutions[k * n : (k + 1) * n], sum(work[k * n : (k + 1) * n]), on == "steps")
            for k, theta in enumerate(thetas)
        ]

    def _solve(self, tasks: Sequence[Task]) -> list[Solution]:
        # This also computes what is sent along, once.
        problems = self._each([partial(self.lower[task.j].at, **task.params) for task in tasks])
        if self.executor is None:
            settling = [self._share.settle(task, problem) for task, problem in zip(tasks, problems, strict=True)]
            # Problems in blocks of rows share passes, and no batch; others may share a batch.
            groups = [[one] for one in settling] if self._each is together else [settling]
            found = self._each([partial(settle_all, group, self.solver) for group in groups])
            answers = [light(answer) for group in found for answer in group]
        else:
            travelling = [task if task.start is None else replace(task, start=light(task.start)) for task in tasks]
            answers = self.executor.map(self._share, travelling)
        tangents = [None if task.start is None else task.start.tangent for task in tasks]
        return [
            replace(answer, problem=problem, tangent=tangent)
            for answer, problem, tangent in zip(answers, problems, tangents, strict=True)
        ]

    def _assemble(self, theta: Array, solutions: Sequence[Solution], work: float, exact: bool = False) -> Evaluation:
        def judged(loss: Loss, solution: Solution) -> tuple[LossAt, float]:
            value = loss.at(solution.x)
            return value, 0.0 if exact else proven_error(value, solution)

        pairs = zip(self.losses, solutions, strict=True)
        judgements = self._each([partial(judged, loss, solution) for loss, solution in pairs])
        values, errors = [value for value, _ in judgements], [error for _, error in judgements]
        penalties = self.penalties(theta)
        return Evaluation(
            theta,
            np.concatenate([*(value.residuals for value in values), penalties]),
            np.array(errors + [0.0] * len(penalties)),
            work=work,
            solutions=solutions,
            distance=0.0 if exact else max(solution.certificate.radius for solution in solutions),
            blocks=[len(value.residuals) for value in values] + [1] * len(penalties),
        )

    def penalties(self, theta: Array) -> Array:
        """The residuals of J."""
        found = [] if self.penalty is None else self.penalty(self.space.params(theta))
        return np.atleast_1d(np.asarray(found, dtype=np.float64))


class FixedSteps:
    """F_K: the bilevel problem with every lower-level solve stopped after K steps from a cold start.

    F_K is a function of theta like any other, and exact as such: evaluations carry no errors, and intervals are
    those of F_K, not of F. `BilevelProblem.certified(evaluation)` gives what is proven about F itself.
    """

    def __init__(self, problem: BilevelProblem, steps: int) -> None:
        self.problem, self.steps, self.space = problem, whole_number(steps, "steps", least=1), problem.space
        self.lower_bound, self.take_events = problem.lower_bound, problem.take_events

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        """K steps, whatever `within` and `warm` say."""
        return self.evaluate_all([theta])[0]

    def evaluate_all(self, thetas: Sequence[Array], **_: Any) -> list[Evaluation]:
        """`evaluate` for several thetas at once, whatever else is asked for; problems that share a design go through
        one product with X."""
        return self.problem._evaluate(thetas, None, "steps", [self.steps] * len(thetas))

    evaluate_weights = evaluate

    def fingerprint(self) -> dict[str, Any]:
        """What a journal compares before it is continued."""
        return {**self.problem.fingerprint(), "steps": self.steps}
