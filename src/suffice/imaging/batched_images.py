r"""Several images that share A, alpha, eps_tv and eps_l2: one iteration of FISTA or gradient descent on a stack.

In one dimension it saves the interpreter's time, which is most of a step's; the steps are, bit for bit, those of each
image alone.

g = 0, so that every a-posteriori radius is a multiple of ||grad f(z)||: the norms of the stack's rows tell when to ask
for a proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array, frozen
from suffice.imaging.variation import NO_IMAGE, Variation
from suffice.penalties.prox import Zero
from suffice.solvers.certificate import Evidence, certify_step, fixed_point_radius, smooth_gap
from suffice.solvers.momentum import FistaState, momentum
from suffice.solvers.problem import Canonical, Composite
from suffice.solvers.solution import Ask, Batch, Outcome, Solution, initial_radius

SMALL = 10_000  # unknowns up to which a stack is faster than one image after the other, which fits the cache


def share_a_format(problems: Sequence[Composite]) -> bool:
    """Whether the problems differ in nothing but their data."""
    first = problems[0].smooth
    return (
        len(problems) > 1
        and isinstance(first, Variation)
        and all(
            isinstance(problem.smooth, Variation) and problem.smooth.like(first) and isinstance(problem.prox, Zero)
            for problem in problems
        )
    )


@dataclass(frozen=True)
class ImageStack(Batch):
    """One row per image: the points of FISTA or gradient descent, z and the gradient there, and numbers t and k."""

    again = 1.0

    solver: Any
    problems: tuple[Composite, ...]
    Y: Any
    X: Array
    before: Array
    t: tuple[float, ...]
    k: Array
    Z: Array
    gradient: Array

    @classmethod
    def holds(cls, asks: Sequence[Ask]) -> bool:
        """Images of one format: as many steps from 0, or small ones to any accuracy."""
        first = asks[0]
        cold = all(ask.warm is None for ask in asks) and first.steps != 0
        stacked = (first.problem.size or math.inf) <= SMALL if first.steps is None else cold
        return stacked and share_a_format([ask.problem for ask in asks])

    @classmethod
    def of(cls, solver: Any, starts: Sequence[Solution]) -> ImageStack:
        states, problems = [start.state for start in starts], [start.problem for start in starts]
        X, before = (np.array([getattr(state, name) for state in states]) for name in ("x", "previous"))
        t = tuple(float(state.t) for state in states)
        Y = np.array([problem.smooth.y for problem in problems])  # type: ignore[union-attr]
        k = np.array([float(state.k) for state in states])
        return cls(solver, tuple(problems), Y, X, before, t, k, X, X)  # type: ignore[arg-type]

    @property
    def canonical(self) -> Canonical:
        """The problem, as far as all rows share it."""
        return self.problems[0].canonical

    def advanced(self, steps: int) -> ImageStack:
        f, tau = self.problems[0].smooth, self.solver.length(self.canonical)
        assert isinstance(f, Variation)
        q = tau * self.canonical.mu
        X, before, t, Z, gradient = self.X, self.before, self.t, self.Z, self.gradient
        for _ in range(steps):
            Z = X
            if self.solver.accelerated:
                moved = [momentum(one, q) for one in t]
                t = tuple(one for one, _ in moved)
                Z = X - before
                Z *= np.array([[beta] for _, beta in moved])
                Z += X
            gradient = f.gradient_of(f.pixels(Z), self.Y).view(np.float64).reshape(X.shape)
            before, X = X, gradient * -tau
            X += Z
        return replace(self, X=X, before=before, t=t, k=self.k + steps, Z=Z, gradient=gradient)

    def estimates(self, start_radii: Array) -> Array:
        """Every row's radius, but for rounding."""
        canonical = self.canonical
        c, tau = self.solver.contraction(canonical), self.solver.length(canonical)
        per_norm = min(
            c / canonical.mu, c * fixed_point_radius(tau, c), smooth_gap(canonical.mu, canonical.L, tau, 1.0)
        )
        norms = np.sqrt(np.einsum("ij,ij->i", self.gradient, self.gradient))
        a_priori = [self.solver.rate(canonical, int(k)) * radius for k, radius in zip(self.k, start_radii, strict=True)]
        estimates: Array = np.minimum(per_norm * norms, a_priori)
        return estimates

    def finite(self) -> npt.NDArray[np.bool_]:
        return np.asarray(np.isfinite(self.X).all(axis=1))

    def evidence(self, j: int) -> Evidence:
        canonical, solver = self.canonical, self.solver
        z, gradient, a_priori = _row(self.Z, j), _row(self.gradient, j), solver.rate(canonical, int(self.k[j]))
        tau, c = solver.length(canonical), solver.contraction(canonical)
        return Evidence(z, NO_IMAGE, gradient, tau, c, canonical.L, a_priori)

    def start_radius(self, j: int) -> float:
        return initial_radius(self.problems[j].canonical, self.X[j], self.evidence(j))

    def solution(self, j: int, start: Solution) -> Solution:
        x, evidence = _row(self.X, j), self.evidence(j)
        proof = certify_step(self.problems[j].canonical, x, NO_IMAGE, evidence, "free", start.initial_radius)
        before, k = _row(self.before, j), int(self.k[j])
        state = FistaState(x, before, self.t[j], k, NO_IMAGE, NO_IMAGE, evidence)
        return replace(start, x=x, certificate=proof, outcome=Outcome.STEPS, state=state, problem=self.problems[j])

    def only(self, kept: list[int]) -> ImageStack:
        rows = {name: getattr(self, name)[kept] for name in ("Y", "X", "before", "k", "Z", "gradient")}
        return replace(self, problems=tuple(self.problems[j] for j in kept), t=tuple(self.t[j] for j in kept), **rows)


def _row(matrix: Array, j: int) -> Array:
    return frozen(matrix[j].copy())
