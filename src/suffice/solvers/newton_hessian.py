r"""Prox-Newton for a smooth f that offers its Hessian as a matrix, with an l1 penalty or none.

A step minimises  <grad f(w), v - w> + 1/2 (v - w)^T H (v - w) + l1 ||v||_1  over the variables that are not at their
optimum, H = hess f(w) on these, and searches along v - w for a decrease, as `suffice.solvers.newton` does for linear
models. Certificates come from the gradient, by the duality gap: they need mu, but no L.

Where the rounding of the gradient is infinite f may have none: such a point is no start, and a step that leads there is
the last. So is one that gets no further than STUCK of its way, as happens next to such points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from suffice.arrays import Array, norm
from suffice.models.smooth import ImagedSmooth
from suffice.protocols import conforms
from suffice.solvers.certificate import Evidence
from suffice.solvers.line_search import search
from suffice.solvers.newton import NewtonState, looks_settled
from suffice.solvers.parts import Parts
from suffice.solvers.problem import Canonical
from suffice.solvers.quadratic import Indices, Matrix, minimise_model, on_these

STUCK = 1e-3


@runtime_checkable
class Curved(ImagedSmooth, Protocol):
    """A smooth term with its Hessian, at the point of an image, on these variables."""

    def hessian(self, image: Array, working: Indices) -> Array: ...


@dataclass(frozen=True)
class NewtonHessian:
    """Prox-Newton for a smooth f that offers its Hessian as a matrix; one step minimises one quadratic model."""

    name: str = "newton_whole"  # its first name, which journals hold

    def takes(self, problem: Canonical) -> str | None:
        parts = Parts.of(problem)
        if conforms(parts.term, Curved) and parts.l1 is not None:
            return None
        return (
            "needs a smooth term that offers its Hessian, with an l1 penalty or none, got "
            f"{type(parts.term).__name__} and {type(problem.g).__name__}: try 'fista_adaptive', or 'auto'"
        )

    def start(self, problem: Canonical, x: Array) -> NewtonState:
        image = problem.f.image(x)
        if math.isinf(problem.f.gradient_rounding(x, image)):
            x = np.zeros_like(x)
            image = problem.f.image(x)
        return NewtonState(x, image=image)

    def step(self, problem: Canonical, state: NewtonState) -> NewtonState:
        if state.ended:
            return state
        f, g = problem.f, problem.g
        parts = Parts.of(problem)
        assert isinstance(parts.term, Curved) and parts.l1 is not None
        here = state.evidence or self._evidence(problem, state.x, f.image(state.x))
        least = g.least_subgradient(here.z, here.z_gradient)
        working = np.flatnonzero((here.z != 0.0) | (least != 0.0))
        if not least.any():
            return replace(state, ended=True, image=here.z_image, evidence=here)
        target = here.z.copy()
        H = parts.term.hessian(here.z_image, working)
        H[np.diag_indices(len(H))] += on_these(parts.ridge, working)
        l1 = on_these(parts.l1, working)
        target[working] = minimise_model(Matrix(H), here.z_gradient[working], here.z[working], l1)
        found = search(problem, here, target)
        there = self._evidence(problem, found.x, found.image)
        before, after = norm(least), norm(g.least_subgradient(found.x, there.z_gradient))
        if found.blurred and not after < before:
            return replace(state, ended=True, image=here.z_image, evidence=here)
        stuck = norm(found.x - here.z) <= STUCK * norm(target - here.z)
        ended = stuck or (found.blurred and after > 0.9 * before) or math.isinf(there.rounding or 0.0)
        settled = looks_settled(here.z, found.x, before, after)
        return NewtonState(found.x, state.k + 1, ended=ended, image=found.image, evidence=there, settled=settled)

    def _evidence(self, problem: Canonical, x: Array, image: Array) -> Evidence:
        rounding = problem.f.gradient_rounding(x, image)
        return Evidence(x, image, problem.f.gradient_at(x, image), rounding=rounding)
