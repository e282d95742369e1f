r"""What is searched of kernel machines: which parameters, and the objective over folds.

    F(C, gamma) = (1/K) sum_k loss_k( f_k, b_k ),        f_k, b_k exact machines of the training rows of fold k,

proven to lie in an interval by `suffice.kernels.machines`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import Array, positive, whole_number
from suffice.evaluation import Evaluation
from suffice.kernels.machines import Machine
from suffice.options import Policy
from suffice.protocols import Closing
from suffice.sklearn._kernel_fold import HeldOutMachines, KernelFold
from suffice.sklearn._words import ends, without_step
from suffice.solvers.solution import Solution
from suffice.space import Space

USUAL = {"C": (1e-2, 1e3), "alpha": (1e-6, 1e2), "epsilon": (1e-3, 1e0)}
AROUND = 100.0  # the usual range of gamma: so many times what "scale" says, up and down


@dataclass(frozen=True)
class KernelSpace:
    """Which parameters of a kernel machine are searched, in the estimator's own words and units."""

    space: Space
    total: float  # N of the final fit
    groups: tuple[str, ...] = ()
    ratio: float = 0.0
    ours: frozenset[str] = frozenset()  # a usual range may well be too narrow for other data

    @property
    def names(self) -> tuple[str, ...]:
        return self.space.names

    @classmethod
    def of(cls, given: Any, known: Sequence[str], scale: float, step: str, total: float) -> KernelSpace:
        """Of what a user gave; `known` are the estimator's parameters that can be tuned, the strength first, and
        `scale` is what gamma="scale" would be, roughly."""
        if given is None:
            given = {name: USUAL[name] for name in known[:1]}
            given |= {"gamma": (scale / AROUND, scale * AROUND)} if "gamma" in known else {}
        if isinstance(given, Mapping):
            given = without_step(given, step)
        if not isinstance(given, Mapping) or not given or not set(given) <= set(known):
            raise ValueError(f"space must be a dictionary of {', '.join(known)} to ranges, got {given!r}")
        found = {name: ends(given[name], name) for name in known if name in given}
        for name, (lower, upper, *_) in found.items():
            if not (lower > 0.0 and math.isfinite(upper)):
                raise ValueError(f"space[{name!r}] must be positive and finite, got {given[name]!r}")
        return cls(Space(**found), total)

    def penalties(self, evaluation: Evaluation) -> dict[str, float]:
        """The parameters there."""
        return self.space.params(evaluation.point)

    def words(self, adapter: Any, estimator: Any, evaluation: Evaluation, total: float) -> dict[str, float]:
        """The same: they are the estimator's own."""
        return self.penalties(evaluation)


class KernelProblem(Closing):
    """The objective of a search: folds of kernel machines with their held-out losses."""

    def __init__(
        self,
        folds: Sequence[KernelFold],
        losses: Sequence[HeldOutMachines],
        space: KernelSpace,
        fixed: Mapping[str, float],
        jobs: int = 1,
    ) -> None:
        self.folds, self.losses, self.space, self.total = tuple(folds), tuple(losses), space.space, space.total
        self.fixed, self.jobs, self.max_steps = dict(fixed), jobs, math.inf

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        """Residuals whose errors are at most `within`, as far as arithmetic allows."""
        return self.evaluate_all([theta], within=within, warm=[warm])[0]

    def evaluate_all(
        self,
        thetas: Sequence[Array],
        *,
        within: float,
        warm: Sequence[Evaluation | None] | None = None,
        policy: Policy = "residual",
    ) -> list[Evaluation]:
        """Several thetas, one after the other."""
        positive(within, "within", zero=True, infinite=True)
        near = [None] * len(thetas) if warm is None else warm
        return [self._evaluated(np.asarray(one, dtype=np.float64), within, start, policy)
                for one, start in zip(thetas, near, strict=True)]  # fmt: skip

    def _evaluated(self, theta: Array, within: float, warm: Evaluation | None, policy: Policy) -> Evaluation:
        params = {**self.fixed, **self.space.params(theta)}
        same = warm is not None and np.array_equal(warm.point, theta) and len(warm.solutions) == len(self.folds)

        def one(j: int) -> tuple[Solution, Array, float]:
            residuals, error = np.zeros(0), math.inf

            def enough(machines: Sequence[Machine], solution: Solution) -> bool:
                nonlocal residuals, error
                residuals, error = self.losses[j].at(machines, float(solution.x[-2]))
                return error <= within if policy == "residual" else solution.certificate.radius <= within

            start = warm.solutions[j] if same and warm is not None else None
            solution = self.folds[j].solve(params, self.total, enough, start, self.max_steps)
            return solution, residuals, error

        if self.jobs > 1:
            with ThreadPoolExecutor(min(self.jobs, len(self.folds))) as pool:
                made = list(pool.map(one, range(len(self.folds))))
        else:
            made = [one(j) for j in range(len(self.folds))]
        return Evaluation(
            theta,
            np.concatenate([residuals for _, residuals, _ in made]),
            [error for _, _, error in made],
            work=sum(solution.steps for solution, _, _ in made),
            solutions=[solution for solution, _, _ in made],
            distance=max(solution.certificate.radius for solution, _, _ in made),
            blocks=[len(residuals) for _, residuals, _ in made],
        )

    def differentiate(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation as it is: there are no derivatives."""
        return evaluation

    def limited(self, max_steps: int) -> KernelProblem:
        """The same problem, with so many steps for every fold at most."""
        limited = copy(self)
        limited.max_steps = whole_number(max_steps, "max_steps", least=1)
        return limited

    def fingerprint(self) -> dict[str, Any]:
        """What a journal compares before it is continued."""
        return {"folds": self.folds, "losses": self.losses, "space": self.space.ranges, "total": self.total,
                "fixed": self.fixed}  # fmt: skip
