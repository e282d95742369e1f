r"""FISTA for strongly convex problems (Chambolle and Pock, Acta Numerica 2016, Algorithm 5).

With tau = 1/L, q = tau mu, t_0 = 0 and x^{-1} = x^0:

    t_{k+1} = (1 - q t_k^2 + sqrt((1 - q t_k^2)^2 + 4 t_k^2)) / 2
    beta    = (t_k - 1)(1 - q t_{k+1}) / (t_{k+1} (1 - q))
    z       = x^k + beta (x^k - x^{k-1})
    x^{k+1} = prox_{tau g}(z - tau grad f(z))

    ||x^k - x_hat||^2 <= (1 - kappa^{-1/2})^k kappa (1 + kappa^{-1/2}) ||x^0 - x_hat||^2.

Gradients are taken at z only: one product with X, one with X^T per iteration, and no image of x is ever needed.
(Proximal) gradient descent is the same with z = x^k and tau = 2/(L + mu):

    ||x^k - x_hat|| <= c^k ||x^0 - x_hat||,   c = (kappa - 1)/(kappa + 1).

A global L is often far too large: for logistic regression psi'' <= 1/4, but on confident samples it is nearly 0.
`AdaptiveFista` takes the step length that f's curvature between z and x^{k+1} allows: with M_k proven to satisfy
f(x) <= f(z) + <grad f(z), x - z> + M_k/2 ||x - z||^2, any tau_k <= 1/M_k will do, and with q_k = tau_k mu

    t_{k+1} = (1 - q_k t_k^2 + sqrt((1 - q_k t_k^2)^2 + 4 (q_k/q_{k+1}) t_k^2)) / 2

keeps the rate of the step lengths taken (Calatroni and Chambolle, SIAM J. Optim. 29, 2019). A step that was too long
is not made; it costs its products all the same and is counted. M_k needs the image of x^{k+1}; that of z is the same
combination of images as z is of points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

from suffice.arrays import EPS, Array, norm
from suffice.models.linear import CARRIED
from suffice.solvers.certificate import RECOMPUTED, Evidence
from suffice.solvers.problem import Canonical, lacks_constants


@dataclass(frozen=True)
class FistaState:
    """Images are the adaptive method's, and None in a state that comes from a file: the next step computes them."""

    x: Array
    previous: Array
    t: float
    k: int
    image: Array | None = field(default=None, metadata=RECOMPUTED)
    previous_image: Array | None = field(default=None, metadata=RECOMPUTED)
    evidence: Evidence | None = field(default=None, metadata=RECOMPUTED)
    tau: float = 0.0  # the adaptive method's step length to try next, the one taken last,
    taken: float = 0.0
    failed: bool = False  # and whether the last one tried was too long


def momentum(t: float, q: float = 0.0, q_next: float | None = None) -> tuple[float, float]:
    """(t_{k+1}, beta) from t_k; q_next is q where it is not given. For q -> 1 the step itself solves the problem and
    beta is void."""
    ratio, q_next = (1.0, q) if q_next is None else (q / q_next, q_next)
    a = 1.0 - q * t * t
    t_next = 0.5 * (a + math.sqrt(a * a + 4.0 * ratio * t * t))
    rest = 1.0 - q_next
    return t_next, (t - 1.0) * (1.0 - q_next * t_next) / (t_next * rest) if rest >= 1e-12 else 0.0


@dataclass(frozen=True)
class Fista:
    """The method with tau = 1/L, as in the paper."""

    name: str = "fista"
    accelerated: ClassVar[bool] = True

    def takes(self, problem: Canonical) -> str | None:
        return lacks_constants(problem)

    def start(self, problem: Canonical, x: Array) -> FistaState:
        return FistaState(x, x, t=0.0, k=0)

    def length(self, problem: Canonical) -> float:
        """tau."""
        return 1.0 / problem.L

    def contraction(self, problem: Canonical) -> float:
        """c of `suffice.solvers.certificate`."""
        return min(1.0 - self.length(problem) * problem.mu + 4.0 * EPS, 1.0)

    def step(self, problem: Canonical, state: FistaState) -> FistaState:
        tau, t, z = self.length(problem), 0.0, state.x
        if self.accelerated:
            t, beta = momentum(state.t, tau * problem.mu)
            z = _extrapolated(state, beta)
        z_image = problem.f.image(z)
        z_gradient = problem.f.gradient_at(z, z_image)
        x = problem.g.prox(_descended(z, tau, z_gradient), tau)
        evidence = Evidence(z, z_image, z_gradient, tau, self.contraction(problem), problem.L)
        return FistaState(x, state.x, t, state.k + 1, evidence=evidence)


@dataclass(frozen=True)
class GradientDescent(Fista):
    """The method with tau = 2/(L + mu), and without momentum."""

    name: str = "gradient_descent"
    accelerated: ClassVar[bool] = False

    def length(self, problem: Canonical) -> float:
        return 2.0 / (problem.L + problem.mu)

    def contraction(self, problem: Canonical) -> float:
        """The rate of one step, and the rounding of its length."""
        return min((problem.L - problem.mu) / (problem.L + problem.mu) + 4.0 * EPS, 1.0)


@dataclass(frozen=True)
class AdaptiveFista:
    """The method with the step length that f's curvature along the way allows; the same as `Fista` where f has none
    to tell."""

    name: str = "fista_adaptive"
    grow: float = 1.08
    shrink: float = 0.5

    def takes(self, problem: Canonical) -> str | None:
        return lacks_constants(problem)

    def start(self, problem: Canonical, x: Array) -> FistaState:
        image = problem.f.image(x)
        return FistaState(x, x, t=0.0, k=0, image=image, previous_image=image, tau=1.0 / problem.L)

    def step(self, problem: Canonical, state: FistaState) -> FistaState:
        longest = 1.0 / problem.mu
        tau = min(state.tau * (self.grow if state.k > 0 and not state.failed else 1.0), longest)
        q = tau * problem.mu
        t, beta = momentum(state.t, state.taken * problem.mu if state.taken else q, q)
        image = problem.f.image(state.x) if state.image is None else state.image
        previous = state.previous_image
        if previous is None:
            previous = image if state.k == 0 else problem.f.image(state.previous)
        z, z_image = _extrapolated(state, beta), image + beta * (image - previous)
        # Of images of x and x' it errs by no more than a product with a vector of (1 + beta) ||x|| + beta ||x'||.
        if 3.0 * norm(state.x) + norm(z - state.x) > CARRIED * norm(z):  # z is much shorter than what it was made of
            z_image = problem.f.image(z)
        z_gradient = problem.f.gradient_at(z, z_image)
        x = problem.g.prox(_descended(z, tau, z_gradient), tau)
        x_image = problem.f.image(x)
        M = min(problem.f.majoriser(z, z_image, x, x_image), problem.L)
        if tau * M > 1.0 + 4.0 * EPS:
            # Not made: the point stays, with the proof it had.
            shorter = max(min(self.shrink * tau, 0.95 / M), 1.0 / problem.L)
            return replace(state, tau=shorter, failed=True, image=image, previous_image=previous)
        contraction = math.sqrt((max(1.0 - q, 0.0) + 8.0 * EPS) / (1.0 + q))
        evidence = Evidence(z, z_image, z_gradient, tau, contraction, 1.0 / tau)
        return FistaState(x, state.x, t, state.k + 1, x_image, image, evidence, tau, tau)


def _extrapolated(state: FistaState, beta: float) -> Array:
    """z; in place, since for an image of many pixels memory is what a step costs."""
    if state.k == 0 or beta == 0.0:
        return state.x
    z = state.x - state.previous
    z *= beta
    z += state.x
    return z


def _descended(z: Array, tau: float, gradient: Array) -> Array:
    """z - tau gradient, with one array made."""
    x = gradient * -tau
    x += z
    return x
