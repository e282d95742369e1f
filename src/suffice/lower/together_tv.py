r"""A fixed number of steps for several images that share A, alpha, eps_tv and eps_l2: one iteration on a stack.

What `suffice.lower.together` does for linear models, for the problems of `suffice.problems.imaging`, by FISTA and by
gradient descent. In one dimension it saves the interpreter's time, which is most of a step's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suffice._array import Array, frozen
from suffice.lower.certificate import Evidence, certify_step
from suffice.lower.fista import FistaState, momentum, rate
from suffice.lower.gradient_descent import DescentState, GradientDescent
from suffice.lower.solver import Outcome, Solution, initial_radius
from suffice.problem import Composite
from suffice.terms.prox import Zero
from suffice.terms.variation import NO_IMAGE, Variation

METHODS = ("fista", "gradient_descent")


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


def steps_together(problems: Sequence[Composite], steps: int, solver: str) -> list[Solution]:
    """`solve(problem, steps=steps, solver=solver)` for every problem, from 0, for problems that `share_a_format`."""
    f, canonical = problems[0].smooth, problems[0].canonical
    assert isinstance(f, Variation) and solver in METHODS
    y = np.array([problem.smooth.y for problem in problems])  # type: ignore[attr-defined]
    fast = solver == "fista"
    tau = 1.0 / canonical.L if fast else 2.0 / (canonical.L + canonical.mu)
    q = tau * canonical.mu
    X = np.zeros((len(problems), f.size))
    before, t = X, 0.0
    radii: list[float] = []
    for k in range(1, steps + 1):
        t, beta = momentum(t, q, q) if fast else (0.0, 0.0)
        Z = X if k == 1 or beta == 0.0 else X + beta * (X - before)
        gradient = np.ascontiguousarray(f.gradient_of(f.pixels(Z), y)).view(np.float64).reshape(X.shape)
        before, X = X, Z - tau * gradient
        if k == 1:
            radii = [
                initial_radius(problem.canonical, X[j], _evidence(problem, Z[j], gradient[j], tau, 1, fast))
                for j, problem in enumerate(problems)
            ]
    solutions = []
    for j, problem in enumerate(problems):
        x, z = _row(X, j), _row(Z, j)
        evidence = _evidence(problem, z, _row(gradient, j), tau, steps, fast)
        proof = certify_step(problem.canonical, x, NO_IMAGE, evidence, "tightest", radii[j])
        state: FistaState | DescentState = (
            FistaState(x, _row(before, j), t, steps, NO_IMAGE, NO_IMAGE, evidence)
            if fast
            else DescentState(x, steps, NO_IMAGE, evidence)
        )
        solutions.append(Solution(x, proof, steps, Outcome.STEPS, solver, state, radii[j], problem))
    return solutions


def _evidence(problem: Composite, z: Array, gradient: Array, tau: float, k: int, fast: bool) -> Evidence:
    canonical = problem.canonical
    contraction = 1.0 - tau * canonical.mu if fast else GradientDescent().rate(canonical, 1)
    a_priori = rate(canonical.L / canonical.mu, k) if fast else contraction**k
    return Evidence(z, NO_IMAGE, gradient, tau, contraction, canonical.L, a_priori)


def _row(matrix: Array, j: int) -> Array:
    return frozen(matrix[j].copy())
