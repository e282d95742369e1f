r"""(Proximal) gradient descent:  x^{k+1} = prox_{tau g}(x^k - tau grad f(x^k)),  tau = 2/(L + mu).

||x^k - x_hat|| <= c^k ||x^0 - x_hat||,   c = (kappa - 1)/(kappa + 1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from suffice.arrays import EPS, Array
from suffice.imaging.batched_images import ImageStack
from suffice.solvers.certificate import RECOMPUTED, Evidence
from suffice.solvers.problem import Canonical, lacks_constants
from suffice.solvers.solution import Batch


@dataclass(frozen=True)
class DescentState:
    """The image is None in a state that comes from a file: the next step has to compute it."""

    x: Array
    k: int
    image: Array | None = field(default=None, metadata=RECOMPUTED)
    evidence: Evidence | None = field(default=None, metadata=RECOMPUTED)


@dataclass(frozen=True)
class GradientDescent:
    """The method with tau = 2/(L + mu)."""

    name: str = "gradient_descent"
    batches: ClassVar[tuple[type[Batch], ...]] = (ImageStack,)

    def takes(self, problem: Canonical) -> str | None:
        return lacks_constants(problem)

    def start(self, problem: Canonical, x: Array) -> DescentState:
        return DescentState(x, k=0, image=problem.f.image(x))

    def step(self, problem: Canonical, state: DescentState) -> DescentState:
        tau = self.length(problem)
        image = problem.f.image(state.x) if state.image is None else state.image
        gradient = problem.f.gradient_at(state.x, image)
        x = problem.g.prox(state.x - tau * gradient, tau)
        evidence = Evidence(
            state.x, image, gradient, tau, self.contraction(problem), problem.L, self.rate(problem, state.k + 1)
        )
        return DescentState(x, state.k + 1, problem.f.image(x), evidence)

    def length(self, problem: Canonical) -> float:
        """tau."""
        return 2.0 / (problem.L + problem.mu)

    def contraction(self, problem: Canonical) -> float:
        """c of `suffice.solvers.certificate`: the rate of one step, and the rounding of its length."""
        return min(self.rate(problem, 1) + 4.0 * EPS, 1.0)

    def rate(self, problem: Canonical, k: int) -> float:
        """||x^k - x_hat|| <= rate(k) ||x^0 - x_hat||."""
        return float(((problem.L - problem.mu) / (problem.L + problem.mu)) ** k)
