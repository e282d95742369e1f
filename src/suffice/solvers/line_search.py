r"""The search along a direction s of descent of Phi = f + g:  phi(t) = Phi(x + t s).

Values of Phi end the search as long as they can. But a difference of values below their own rounding tells nothing, and
that rounding may be that of parts far larger than Phi. The derivative of phi has no such trouble. It increases, so that

    phi(t) <= phi(0) + t phi'(t)      and      phi(t) <= phi(0) + t/2 (phi'(t/2) + phi'(t)):

where one of these is no more than phi(0) Phi decreases, whatever rounding has done to its values. Where neither is, t
is too long, and the next one is where the line through phi'(0) and phi'(t) is zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.models.linear import LossModel
from suffice.penalties.prox import Structured
from suffice.solvers.certificate import Evidence
from suffice.solvers.problem import Canonical

MOST_TRIALS = 60
BLURRED = 1e-6  # of Phi: smaller differences of values need not be more than their rounding


@dataclass(frozen=True)
class Found:
    """A point at the share t of the way, where Phi is less by so much, with what is known there, and whether the
    gradient's rounding hides the decrease."""

    x: Array
    image: Any
    gradient: Array | None
    t: float
    change: float
    blurred: bool


def search(problem: Canonical, here: Evidence, target: Array, image: Any = None) -> Found:
    """A point on the way to `target`, whose image may be known, where Phi is less (see the module's text), or x."""
    f, g, x = problem.f, cast("Structured", problem.g), here.z
    if not np.isfinite(target).all():
        return Found(x, here.z_image, here.z_gradient, 0.0, 0.0, True)
    direction, image = target - x, f.image(target) if image is None else image
    along = image - here.z_image
    with np.errstate(over="ignore", invalid="ignore"):
        value = f.value_at(x, here.z_image) + g.value(x)
        slope = min(float(here.z_gradient @ direction) + g.change(x, target), 0.0)
        noise = EPS * (8.0 + math.sqrt(math.prod(image.shape))) * abs(value)
        hidden = abs(slope) <= 4.0 * (here.rounding or 0.0) * norm(direction) < math.inf
        t = 1.0
        for _ in range(MOST_TRIALS):
            trial = target if t == 1.0 else x + t * direction
            there = image if t == 1.0 else here.z_image + t * along
            change = f.value_at(trial, there) + g.value(trial) - value
            clear = abs(slope) > BLURRED * abs(value) and change <= 1e-3 * t * slope + noise
            there = there if t == 1.0 else f.image(trial)
            if clear:
                return Found(trial, there, None, t, change, hidden)
            gradient = f.gradient_at(trial, there)
            end = float(gradient @ direction) + g.slope(trial, direction)
            if end <= 0.0 or end + _middle(problem, here, t, direction, along, there) < 0.0:
                return Found(trial, there, gradient, t, change, hidden)
            t *= min(max(slope / (slope - end), 0.5), 0.9) if slope < 0.0 and end < math.inf else 0.5
    return Found(x, here.z_image, here.z_gradient, 0.0, 0.0, True)


def _middle(problem: Canonical, here: Evidence, t: float, direction: Array, along: Any, there: Any) -> float:
    """phi'(t/2). For linear models it is had from margins, without a product with X; for blocks of rows it is that of
    a convex function that is phi at both ends, where an intercept goes straight from one of its values to the other: as
    good here."""
    x, term, g = here.z + 0.5 * t * direction, problem.term, cast("Structured", problem.g)
    if isinstance(term, LossModel):
        slope = term.slope_between(here.z_image, there) / t + float(((term.l2 + problem.ridge) * x) @ direction)
    else:
        slope = float(problem.f.gradient_at(x, here.z_image + 0.5 * t * along) @ direction)
    return slope + g.slope(x, direction)
