r"""A fixed number of FISTA steps for several linear models that share X, l1 and l2, such as one model per class.

Their steps have the same length and momentum, so that n problems are one iteration on matrices: one product of X
with n columns and one of X^T. Certificates are made at the end, column by column, as for a single problem.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suffice._array import Array, frozen
from suffice.lower.certificate import Evidence, certify_step
from suffice.lower.fista import FistaState, momentum, rate
from suffice.lower.solver import Outcome, Solution, initial_radius
from suffice.problem import Composite
from suffice.terms.prox import L1
from suffice.terms.smooth import LinearModel


def share_a_design(problems: Sequence[Composite]) -> bool:
    """Whether the problems differ in nothing but their targets y."""
    first = problems[0]
    if len(problems) < 2 or not isinstance(first.smooth, LinearModel) or not isinstance(first.prox, L1):
        return False
    return all(
        isinstance(problem.smooth, LinearModel)
        and problem.smooth.design is first.smooth.design
        and problem.smooth.loss == first.smooth.loss
        and problem.smooth.l2 == first.smooth.l2
        and problem.prox == first.prox
        and (problem.mu, problem.L) == (first.mu, first.L)
        for problem in problems
    )


def fista_together(problems: Sequence[Composite], steps: int) -> list[Solution]:
    """`solve(problem, steps=steps)` for every problem, from 0, for problems that `share_a_design`."""
    smooth, prox, canonical = problems[0].smooth, problems[0].prox, problems[0].canonical
    assert isinstance(smooth, LinearModel) and isinstance(prox, L1)
    design, loss, l2 = smooth.design, smooth.loss, smooth.l2
    Y = np.column_stack([problem.smooth.y for problem in problems])  # type: ignore[attr-defined]
    weights = design.weights[:, None]
    tau = 1.0 / canonical.L
    q = tau * canonical.mu
    W = np.zeros((design.shape[1], len(problems)))
    M = np.zeros(Y.shape)
    W_before, M_before, t = W, M, 0.0
    radii: list[float] = []
    for k in range(1, steps + 1):
        t, beta = momentum(t, q, q)
        Z = W if k == 1 else W + beta * (W - W_before)
        M_z = M if k == 1 else M + beta * (M - M_before)
        derivative = loss.derivative(M_z, Y)
        derivative *= weights
        gradient = design.adjoint(derivative) + l2 * Z
        W_before, M_before = W, M
        W = prox.prox(Z - tau * gradient, tau)
        M = design.margins(W)
        if k == 1:
            starts = [_evidence(Z, M_z, gradient, j, tau, q, canonical.L, 1) for j in range(len(problems))]
            radii = [
                initial_radius(problem.canonical, W[:, j], start)
                for j, (problem, start) in enumerate(zip(problems, starts, strict=True))
            ]
    solutions = []
    for j, problem in enumerate(problems):
        evidence = _evidence(Z, M_z, gradient, j, tau, q, canonical.L, steps)
        x, image = _column(W, j), _column(M, j)
        proof = certify_step(problem.canonical, x, image, evidence, "tightest", radii[j])
        state = FistaState(x, _column(W_before, j), t, steps, image, _column(M_before, j), evidence)
        solutions.append(Solution(x, proof, steps, Outcome.STEPS, "fista", state, radii[j], problem))
    return solutions


def _evidence(Z: Array, M: Array, gradient: Array, j: int, tau: float, q: float, L: float, k: int) -> Evidence:
    return Evidence(_column(Z, j), _column(M, j), _column(gradient, j), tau, 1.0 - q, L, rate(1.0 / q, k))


def _column(matrix: Array, j: int) -> Array:
    return frozen(np.ascontiguousarray(matrix[:, j]))
