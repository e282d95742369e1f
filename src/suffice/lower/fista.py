r"""FISTA for strongly convex problems (Chambolle and Pock, Acta Numerica 2016, Algorithm 5).

With tau = 1/L, q = tau mu, t_0 = 0 and x^{-1} = x^0:

    t_{k+1} = (1 - q t_k^2 + sqrt((1 - q t_k^2)^2 + 4 t_k^2)) / 2
    beta    = (t_k - 1)(1 - q t_{k+1}) / (t_{k+1} (1 - q))
    z       = x^k + beta (x^k - x^{k-1})
    x^{k+1} = prox_{tau g}(z - tau grad f(z))

    ||x^k - x_hat||^2 <= (1 - kappa^{-1/2})^k kappa (1 + kappa^{-1/2}) ||x^0 - x_hat||^2.

The image of z under f's linear map is the same combination of images: one product with X, one with X^T per iteration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from suffice._array import Array
from suffice.lower.certificate import Evidence
from suffice.problem import Canonical


@dataclass(frozen=True)
class FistaState:
    """Images are None in a state that comes from a file: the next step has to compute them."""

    x: Array
    previous: Array
    t: float
    k: int
    image: Array | None = None
    previous_image: Array | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True)
class Fista:
    name: str = "fista"

    def start(self, problem: Canonical, x: Array) -> FistaState:
        image = problem.f.image(x)
        return FistaState(x, x, t=0.0, k=0, image=image, previous_image=image)

    def step(self, problem: Canonical, state: FistaState) -> FistaState:
        tau = 1.0 / problem.L
        q = tau * problem.mu
        t, beta = momentum(state.t, q)
        image = problem.f.image(state.x) if state.image is None else state.image
        if state.k == 0 or beta == 0.0:
            z, z_image = state.x, image
        else:
            previous = problem.f.image(state.previous) if state.previous_image is None else state.previous_image
            z = state.x + beta * (state.x - state.previous)
            z_image = image + beta * (image - previous)
        z_gradient = problem.f.gradient_at(z, z_image)
        x = problem.g.prox(z - tau * z_gradient, tau)
        evidence = Evidence(z, z_image, z_gradient, tau, self.rate(problem, state.k + 1))
        return FistaState(x, state.x, t, state.k + 1, problem.f.image(x), image, evidence)

    def rate(self, problem: Canonical, k: int) -> float:
        """||x^k - x_hat|| <= rate(k) ||x^0 - x_hat||."""
        return rate(problem.L / problem.mu, k)


def momentum(t: float, q: float) -> tuple[float, float]:
    """(t_{k+1}, beta) from t_k. For q -> 1 the step itself solves the problem and beta is void."""
    a = 1.0 - q * t * t
    t_next = 0.5 * (a + math.sqrt(a * a + 4.0 * t * t))
    if 1.0 - q < 1e-12:
        return t_next, 0.0
    return t_next, (t - 1.0) * (1.0 - q * t_next) / (t_next * (1.0 - q))


def rate(kappa: float, k: int) -> float:
    """The a-priori factor of the module's text (on the distance, not its square)."""
    root = 1.0 / math.sqrt(kappa)
    return math.sqrt(max(1.0 - root, 0.0) ** k * kappa * (1.0 + root))
