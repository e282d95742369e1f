"""Training by steps, for tuners that stop trials early: warm, and resumable.

A trial at theta is trained for K steps of every lower-level solve, and later for more: it goes on from where it was,
so that a trial that is given up has cost no more than its steps. The first step starts from the weights at the nearest
theta that was trained.
"""

from __future__ import annotations

import numpy as np

import suffice
from benchmarks.tuners.protocol import Run, Vector


class Stepwise:
    """The trials of a run, by theta."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.trials: dict[bytes, list[suffice.Solution]] = {}
        self.thetas: dict[bytes, Vector] = {}
        self.best = (0, np.inf)  # steps, value

    def train(self, theta: Vector, steps: int) -> float:
        """F~ after so many steps at theta, those of earlier calls included."""
        run, theta = self.run, self.run.inside(theta)
        key = theta.tobytes()
        known = self.trials.get(key)
        starts = known or self._nearest(theta)
        solutions = []
        for j, problem in enumerate(run.problem.at(theta)):
            start = None if starts is None else starts[j]
            own = known is not None
            made = known[j].steps if own else 0
            warm = start if own or start is None else start.x
            problem = known[j].problem if own else problem
            solution = suffice.solve(problem, steps=max(steps - made, 0), solver="fista", warm=warm)
            run.add_steps(solution.steps - made)
            solutions.append(solution)
        self.trials[key], self.thetas[key] = solutions, theta
        value = self._value(theta, solutions)
        run.evaluations += 1
        # What a search by halving or pruning returns is the best of those that were trained the longest.
        if steps > self.best[0] or (steps == self.best[0] and value < self.best[1]):
            self.best = (steps, value)
            run.returns(theta)
        run.check()
        return value

    def _value(self, theta: Vector, solutions: list[suffice.Solution]) -> float:
        problem = self.run.problem
        values = [loss.at(one.x).residuals for loss, one in zip(problem.losses, solutions, strict=True)]
        F = sum(float(r @ r) for r in values)
        J = 0.0 if problem.penalty is None else problem.penalty(problem.space.params(theta))
        return F + float(np.sum(np.square(J)))

    def _nearest(self, theta: Vector) -> list[suffice.Solution] | None:
        width = self.run.upper - self.run.lower
        key = min(self.trials, key=lambda one: float(np.sum(((self.thetas[one] - theta) / width) ** 2)), default=None)
        return None if key is None else self.trials[key]
