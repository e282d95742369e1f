r"""Several images that share A, alpha, eps_tv and eps_l2: one iteration of FISTA or gradient descent on a stack.

What `suffice.lower.together` does for linear models, for the problems of `suffice.problems.imaging`. In one dimension
it saves the interpreter's time, which is most of a step's; the steps are, bit for bit, those of each image alone.

g = 0, so that every a-posteriori radius is a multiple of ||grad f(z)||: the norms of the stack's rows tell when to ask
`certify_step` about a row. A row that is proven leaves the stack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import Array, frozen
from suffice.lower.certificate import Certificate, Evidence, certify_step, fixed_point_radius, smooth_gap
from suffice.lower.fista import FistaState, contraction, momentum, rate
from suffice.lower.gradient_descent import DescentState, GradientDescent
from suffice.lower.solver import Outcome, Solution, continues, find_solver, initial_radius, out_of_reach, start_point
from suffice.problem import Canonical, Composite
from suffice.terms.prox import Zero
from suffice.terms.variation import NO_IMAGE, Variation

METHODS = ("fista", "gradient_descent")
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
class Stack:
    """One row per image: the points of FISTA or gradient descent, z and the gradient there, and numbers t and k."""

    problems: tuple[Composite, ...]
    fast: bool
    Y: Any
    X: Array
    before: Array
    t: tuple[float, ...]
    k: Array
    Z: Array
    gradient: Array

    @classmethod
    def of(cls, problems: Sequence[Composite], solver: str, states: Sequence[Any]) -> Stack:
        fast = solver == "fista"
        X = np.array([state.x for state in states])
        before = np.array([state.previous for state in states]) if fast else X
        t = tuple(float(state.t) if fast else 0.0 for state in states)
        Y = np.array([problem.smooth.y for problem in problems])  # type: ignore[attr-defined]
        return cls(tuple(problems), fast, Y, X, before, t, np.array([float(state.k) for state in states]), X, X)

    @property
    def canonical(self) -> Canonical:
        """The problem, as far as all rows share it."""
        return self.problems[0].canonical

    @property
    def tau(self) -> float:
        L, mu = self.canonical.L, self.canonical.mu
        return 1.0 / L if self.fast else 2.0 / (L + mu)

    @property
    def contraction(self) -> float:
        canonical = self.canonical
        return contraction(self.tau * canonical.mu) if self.fast else GradientDescent().contraction(canonical)

    def advanced(self, steps: int) -> Stack:
        f, tau = self.problems[0].smooth, self.tau
        assert isinstance(f, Variation)
        q = tau * self.canonical.mu
        X, before, t, Z, gradient = self.X, self.before, self.t, self.Z, self.gradient
        for _ in range(steps):
            Z = X
            if self.fast:
                moved = [momentum(one, q, q) for one in t]
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
        canonical, c, tau = self.canonical, self.contraction, self.tau
        per_norm = min(
            c / canonical.mu, c * fixed_point_radius(tau, c), smooth_gap(canonical.mu, canonical.L, tau, 1.0)
        )
        norms = np.sqrt(np.einsum("ij,ij->i", self.gradient, self.gradient))
        a_priori = [self._rate(k) * radius for k, radius in zip(self.k, start_radii, strict=True)]
        estimates: Array = np.minimum(per_norm * norms, a_priori)
        return estimates

    def _rate(self, k: float) -> float:
        canonical = self.canonical
        return rate(canonical.L / canonical.mu, int(k)) if self.fast else GradientDescent().rate(canonical, int(k))

    def evidence(self, j: int) -> Evidence:
        z, gradient = _row(self.Z, j), _row(self.gradient, j)
        return Evidence(z, NO_IMAGE, gradient, self.tau, self.contraction, self.canonical.L, self._rate(self.k[j]))

    def start_radius(self, j: int) -> float:
        """A proven bound on the distance of the start, after the very first step from there."""
        return initial_radius(self.problems[j].canonical, self.X[j], self.evidence(j))

    def solution(self, j: int, steps: int, start_radius: float) -> Solution:
        problem, x, evidence = self.problems[j], _row(self.X, j), self.evidence(j)
        proof = certify_step(problem.canonical, x, NO_IMAGE, evidence, "tightest", start_radius)
        k = int(self.k[j])
        state: FistaState | DescentState = (
            FistaState(x, _row(self.before, j), self.t[j], k, NO_IMAGE, NO_IMAGE, evidence)
            if self.fast
            else DescentState(x, k, NO_IMAGE, evidence)
        )
        solver = "fista" if self.fast else "gradient_descent"
        return Solution(x, proof, steps, Outcome.STEPS, solver, state, start_radius, problem)

    def only(self, kept: Sequence[int]) -> Stack:
        rows = {name: getattr(self, name)[kept] for name in ("Y", "X", "before", "k", "Z", "gradient")}
        return replace(self, problems=tuple(self.problems[j] for j in kept), t=tuple(self.t[j] for j in kept), **rows)


def steps_together(problems: Sequence[Composite], steps: int, solver: str) -> list[Solution]:
    """`solve(problem, steps=steps, solver=solver)` for every problem, from 0, for problems that `share_a_format`."""
    starts = [_start(problem, None, solver) for problem in problems]
    stack = Stack.of(problems, solver, [start.state for start in starts]).advanced(1)
    radii = [stack.start_radius(j) for j in range(len(problems))]
    stack = stack.advanced(steps - 1)
    return [stack.solution(j, steps, radii[j]) for j in range(len(problems))]


def solve_images(
    problems: Sequence[Composite],
    *,
    within: Sequence[float],
    solver: str,
    warm: Sequence[Solution | Array | None],
    max_steps: Sequence[float],
) -> list[Solution]:
    """`solve(problem, within=...)` for every problem, for problems that `share_a_format`."""
    solutions = [_start(problem, one, solver) for problem, one in zip(problems, warm, strict=True)]
    left = []  # the numbers of the rows still in the stack
    for j, start in enumerate(solutions):
        outcome = _ended(start.certificate, within[j], 0, max_steps[j], False)
        if outcome is None:
            left.append(j)
        else:
            solutions[j] = replace(start, outcome=outcome)
    starts, taken = list(solutions), 0
    goal, best, best_at = np.array(within), np.full(len(problems), np.inf), np.zeros(len(problems))
    radii = np.array([start.initial_radius for start in starts])
    patience = 100.0 + 20.0 * math.sqrt(problems[0].kappa)
    limits = np.array(max_steps)
    stack = Stack.of([problems[j] for j in left], solver, [starts[j].state for j in left]) if left else None
    while stack is not None:
        stack, taken = stack.advanced(1), taken + 1
        for i, j in enumerate(left):
            if starts[j].steps + taken == 1:
                radii[j] = stack.start_radius(i)
        estimate = stack.estimates(radii[left])
        better = estimate < 0.999 * best[left]
        best[left] = np.where(better, estimate, best[left])
        best_at[left] = np.where(better, taken, best_at[left])
        stuck = taken - best_at[left] > patience
        if not np.isfinite(estimate).all():
            stuck |= ~np.isfinite(stack.X).all(axis=1)
        ripe = (estimate <= goal[left]) | stuck | (taken >= limits[left])
        if not ripe.any():
            continue
        kept = []
        for i, j in enumerate(left):
            if ripe[i]:
                solution = stack.solution(i, starts[j].steps + taken, radii[j])
                outcome = _ended(solution.certificate, within[j], taken, max_steps[j], bool(stuck[i]))
                if outcome is not None:
                    solutions[j] = replace(solution, outcome=outcome)
                    continue
                # Rounding, which the estimate leaves out, spoils the proof: ask again when it would not.
                rounding = solution.certificate.rounding
                goal[j] = min(within[j] - rounding if within[j] > rounding else rounding, estimate[i])
            kept.append(i)
        if len(kept) < len(left):
            left = [left[i] for i in kept]
            stack = stack.only(kept) if left else None
    return solutions


def _ended(proof: Certificate, within: float, taken: int, limit: float, stuck: bool) -> Outcome | None:
    if proof.radius <= within:
        return Outcome.REACHED
    if out_of_reach(proof, within) or stuck:
        return Outcome.PRECISION
    return Outcome.MAX_STEPS if taken >= limit else None


def _start(problem: Composite, warm: Solution | Array | None, solver: str) -> Solution:
    """The solution that is to be continued, or a new one of no steps."""
    if isinstance(warm, Solution) and continues(warm, problem, solver) and warm.state is not None:
        return warm
    state = find_solver(solver).start(problem.canonical, start_point(problem, warm))
    return Solution(state.x, Certificate(math.inf, "tightest"), 0, Outcome.STEPS, solver, state, problem=problem)


def _row(matrix: Array, j: int) -> Array:
    return frozen(matrix[j].copy())
