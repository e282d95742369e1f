r"""Quantile regression: the pinball loss of t = y - m, smoothed by its Moreau envelope of width h.

    rho(t) = max(q t, (q - 1) t),        psi(t) = min_s rho(s) + (t - s)^2/(2 h)

           = q t - h q^2/2  for t >= h q,   (q - 1) t - h (1 - q)^2/2  for t <= -h (1 - q),   t^2/(2 h)  in between.

psi is piecewise quadratic, psi'' is 0 or 1/h, so that it is solved and verified like the other losses of that kind; and
it is a proven distance away from rho:

    0 <= rho - psi <= bias = h max(q, 1 - q)^2 / 2.

So the minimum of any objective with psi in place of rho is less by at most the bias, and weights that minimise it
minimise the objective with rho itself up to the bias. Weights of the two may be far from each other all the same: rho
alone has no curvature at all.
"""

from __future__ import annotations

from dataclasses import dataclass

from suffice.arrays import Array, namespace, positive
from suffice.models.margin_losses import Real


@dataclass(frozen=True)
class Quantile(Real):
    """psi for the quantile 0 < q < 1 and the width h > 0."""

    q: float = 0.5
    h: float = 1e-2

    def __post_init__(self) -> None:
        if not 0.0 < self.q < 1.0:
            raise ValueError(f"q must lie between 0 and 1, got {self.q!r}")
        positive(self.h, "h")

    @property
    def curvature(self) -> float:
        return 1.0 / self.h

    @property
    def bias(self) -> float:
        """The most by which psi is less than the pinball loss."""
        return 0.5 * self.h * max(self.q, 1.0 - self.q) ** 2

    def value(self, m: Array, y: Array) -> Array:
        xp, t = namespace(m), y - m
        slope = xp.clip(t / self.h, self.q - 1.0, self.q)
        result: Array = slope * (t - 0.5 * self.h * slope)
        return result

    def derivative(self, m: Array, y: Array) -> Array:
        result: Array = -namespace(m).clip((y - m) / self.h, self.q - 1.0, self.q)
        return result

    def curvature_between(self, m: Array, n: Array, y: Array) -> Array:
        xp = namespace(m)
        low, high = y - xp.maximum(m, n), y - xp.minimum(m, n)
        bent = (low <= self.h * self.q) & (high >= -self.h * (1.0 - self.q))
        result: Array = xp.astype(bent, m.dtype) / self.h
        return result

    def slope_size(self, m: Array, y: Array) -> Array:
        """What psi' is rounded relative to: (y - m)/h is that of a difference."""
        xp = namespace(m)
        result: Array = (xp.abs(y) + xp.abs(m)) / self.h + 1.0
        return result

    def kink_distance(self, m: Array, y: Array) -> Array:
        t = y - m
        result: Array = namespace(m).minimum(abs(t - self.h * self.q), abs(t + self.h * (1.0 - self.q)))
        return result
