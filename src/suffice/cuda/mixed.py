r"""FISTA in float32, proofs in float64, for linear models.

Products with X are what an iteration costs, and in float32 they move half the bytes. Only they, and vectors as long
as X has rows, are in float32: points stay in float64. A gradient g32 in float32 errs by some e, which nobody needs to
know. It proves nothing: the steps it leads to are guesses, and every now and then one is proven, with the gradient at
x in float64, by the gap certificate as in `suffice.solvers.certificate`.

A guess is worth a proof when the radius that g32 suggests is half of the last one proven, or after a while. With both
gradients at hand, float32 has done what it can when its error is no longer small against what is left to do,

    ||g32 - g|| > 0.1 ||x - prox_{tau g}(x - tau g)|| / tau,

and the method goes on in float64 from there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from suffice.arrays import Array, norm
from suffice.models.linear import LinearModel, majoriser_along
from suffice.solvers.certificate import RECOMPUTED, Evidence, fixed_point_radius, gap_radius
from suffice.solvers.fista import AdaptiveFista
from suffice.solvers.momentum import FistaState
from suffice.solvers.problem import Canonical, lacks_constants

FISTA = AdaptiveFista()
PROVE = 0.5  # of the last radius proven: where a guess is worth a proof
TRUST = 0.1  # the error of g32 relative to what is left to do, up to which it is good enough
PATIENCE = 1.5  # times 1/sqrt(tau mu) steps: after so many there is a proof in any case


@dataclass(frozen=True)
class MixedState:
    """`x` is the last point with a proof, `path` where the method is; `float32` says in which precision."""

    x: Array
    path: FistaState
    radius: float = math.inf  # proven at x, or suggested by the last gradient where nothing is
    since: int = 0  # steps since then
    float32: bool = True
    image: Any = field(default=None, metadata=RECOMPUTED)
    evidence: Evidence | None = field(default=None, metadata=RECOMPUTED)


@dataclass(frozen=True)
class Rounded:
    """f with products in float32; points and gradients are in float64. It is no linear model to others: screening would
    take it for exact."""

    model: LinearModel
    l2: float | Array

    def image(self, x: Array) -> Any:
        return self.model.design.margins(x.astype(np.float32))

    def gradient_at(self, x: Array, image: Any) -> Array:
        derivative = self.model.loss.derivative(image, self.model.y)
        derivative *= self.model.design.weights
        return self.model.design.adjoint(derivative) + self.l2 * x

    def majoriser(self, z: Array, z_image: Any, x: Array, x_image: Any) -> float:
        loss = self.model.loss
        curvature = loss.curvature_between(z_image, x_image, self.model.y)
        M = majoriser_along(self.model.design, loss.curvature, z, x, x_image - z_image, curvature)
        return M + float(np.max(self.l2))


@dataclass(frozen=True)
class MixedFista:
    """FISTA with products in float32 and proofs in float64, for linear models; it ends in float64 where float32 cannot
    help any more."""

    name: str = "fista_mixed"

    def takes(self, problem: Canonical) -> str | None:
        term = problem.term
        if not isinstance(term, LinearModel) or term.offset is not None:
            kind = type(term).__name__
            return f"needs a linear model (a suffice.terms.LinearModel), got {kind}: try 'fista_adaptive', or 'auto'"
        return lacks_constants(problem)

    def start(self, problem: Canonical, x: Array) -> MixedState:
        path = FistaState(x, x, t=0.0, k=0, tau=1.0 / problem.L)
        return MixedState(x, path, float32=rounded(problem) is not None)

    def step(self, problem: Canonical, state: MixedState) -> MixedState:
        if not state.float32:
            path = FISTA.step(problem, state.path)
            return MixedState(path.x, path, float32=False, image=path.image, evidence=path.evidence or state.evidence)
        f32 = rounded(problem)
        with np.errstate(over="ignore", invalid="ignore"):
            guess = FISTA.step(replace(problem, f=f32), state.path)
        since = state.since + 1
        suggested = _suggested(problem, guess) if guess.evidence is not state.path.evidence else math.inf
        due = suggested <= PROVE * state.radius or since > 10.0 + PATIENCE / math.sqrt(guess.tau * problem.mu)
        failed = math.isnan(suggested)  # beyond the range of float32
        if not (due or failed):
            return replace(state, path=guess, since=since)
        x, tau = (state.x, 1.0 / problem.L) if failed else (guess.x, guess.tau)
        image = problem.f.image(x)
        gradient = problem.f.gradient_at(x, image)
        radius, evidence = gap_radius(problem, x, x, gradient), Evidence(x, image, gradient)
        left = norm(x - problem.g.prox(x - tau * gradient, tau)) / tau
        if failed or norm(f32.gradient_at(x, f32.image(x)) - gradient) > TRUST * left:
            path = FistaState(x, x, t=0.0, k=0, image=image, previous_image=image, tau=tau)
            return MixedState(x, path, radius, 0, False, image, evidence)
        return MixedState(x, guess, radius, 0, True, image, evidence)


def rounded(problem: Canonical) -> Any:
    """f with products in float32, or None where its numbers are beyond the range."""
    term = problem.term
    assert isinstance(term, LinearModel)
    model = term.in_float32
    return None if model is None else Rounded(model, term.l2 + problem.ridge)


def _suggested(problem: Canonical, guess: FistaState) -> float:
    """The radius that the gradient in float32 would prove at x, if it were exact."""
    evidence = guess.evidence
    assert evidence is not None
    c, moved = evidence.contraction, norm(guess.x - evidence.z)
    return c * min(gap_radius(problem, evidence.z, evidence.z, evidence.z_gradient), fixed_point_radius(moved, c))
