r"""Newton's method for quantile regression: the smoothed pinball loss, narrowed step by step.

psi'' of the smoothed loss (`suffice.models.quantile`) is 1/h within a band of width h around a row's target and 0
elsewhere. Far from the solution no row may lie in its band, and Newton's method has no curvature to go by. So the first
widths are those of the residuals themselves, each minimiser is the start for a width NARROWER times as large, and the
last width is that of the problem. Steps, states and certificates are those of `suffice.solvers.newton`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from suffice.arrays import Array
from suffice.models.linear import LossModel
from suffice.models.quantile import Quantile
from suffice.models.smooth import ImagedSmooth, Ridged
from suffice.solvers.newton import Newton, NewtonState
from suffice.solvers.parts import LinearParts
from suffice.solvers.problem import Canonical, Composite

NEWTON = Newton()
NARROWER, STEPS = 0.25, 8  # widths shrink by this factor, after so many steps at most
WIDE_ENOUGH = 16.0  # times the last width: where a start that is nearly a solution begins


@dataclass(frozen=True)
class NewtonNarrowing:
    """Newton's method with a start that is found by wider bands."""

    name: str = "newton_narrowing"

    def takes(self, problem: Canonical) -> str | None:
        parts = LinearParts.of(problem)
        if parts is None or not isinstance(parts.model.loss, Quantile):
            return "is for the smoothed pinball loss (suffice.models.quantile.Quantile): use 'auto'"
        return NEWTON.takes(problem)

    def start(self, problem: Canonical, x: Array) -> NewtonState:
        parts = LinearParts.of(problem)
        assert parts is not None and isinstance(parts.model.loss, Quantile)
        model, loss = parts.model, parts.model.loss
        h = WIDE_ENOUGH * loss.h  # a start that is another problem's solution needs no more
        if not x[np.asarray(parts.l1) > 0.0].any():
            h = max(float(np.median(np.abs(model.y - model.image(x)))), h)
        while h > loss.h:
            wide = _with(problem, replace(model, loss=Quantile(loss.q, h)))
            state = NEWTON.start(wide, x)
            for _ in range(STEPS):
                state = NEWTON.step(wide, state)
                if state.ended:
                    break
            x, h = state.x, NARROWER * h
        return NEWTON.start(problem, x)

    def step(self, problem: Canonical, state: NewtonState) -> NewtonState:
        return NEWTON.step(problem, state)


def _with(problem: Canonical, model: LossModel) -> Canonical:
    """The problem with another loss."""
    smooth: ImagedSmooth = Ridged(model, problem.f.ridge) if isinstance(problem.f, Ridged) else model
    return Composite(smooth, problem.g, mu=problem.mu, L=problem.L).canonical
