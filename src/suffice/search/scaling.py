"""Search coordinates u: a finite box becomes [0, 1]; with an infinite bound, theta0 is 0 and the unit max(1,
|theta0|). A `scale` of the user's own takes the place of these units, box or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.lazy import cached_property


@dataclass(frozen=True)
class Scaling:
    lower: Array
    upper: Array
    origin: Array
    unit: Array

    @classmethod
    def of(cls, theta0: Array, bounds: Any, scale: Any = None) -> Scaling:
        """From `bounds` = (lower, upper), each a number, a vector or None; None for no bounds at all. `scale` is the
        unit of each parameter, or of all."""
        lower, upper = _bounds(bounds, len(theta0))
        with np.errstate(over="ignore"):
            width = upper - lower
        boxed = np.isfinite(width)  # a box too wide for its width to be a number is none
        theta0 = np.clip(theta0, lower, upper)
        open_size = float(np.max(np.abs(theta0[~boxed]), initial=1.0))
        unit = np.where(boxed, width, open_size) if scale is None else _scale(scale, len(theta0))
        return cls(lower, upper, np.where(boxed, lower, theta0), unit)

    @cached_property
    def low(self) -> Array:
        return (self.lower - self.origin) / self.unit

    @cached_property
    def high(self) -> Array:
        return (self.upper - self.origin) / self.unit

    def to_u(self, theta: Array) -> Array:
        return np.clip((theta - self.origin) / self.unit, self.low, self.high)

    def to_theta(self, u: Array) -> Array:
        """Inside the box exactly, and on a bound exactly where u is."""
        theta = np.clip(self.origin + self.unit * u, self.lower, self.upper)
        return np.where(u >= self.high, self.upper, np.where(u <= self.low, self.lower, theta))


def _scale(scale: Any, m: int) -> Array:
    unit = _each(scale, "scale", m)
    if not (np.isfinite(unit) & (unit > 0.0)).all():
        raise ValueError(f"scale must be positive and finite, got {scale!r}")
    return unit


def _bounds(bounds: Any, m: int) -> tuple[Array, Array]:
    try:
        lower, upper = (None, None) if bounds is None else bounds
    except (TypeError, ValueError) as error:
        raise ValueError(f"bounds must be a pair (lower, upper), got {bounds!r}") from error
    low = _each(-np.inf if lower is None else lower, "bounds: lower", m)
    high = _each(np.inf if upper is None else upper, "bounds: upper", m)
    for name, side, given in (("lower", low, lower), ("upper", high, upper)):
        if np.isnan(side).any():
            raise ValueError(f"bounds: {name} must not be NaN, got {given!r}")
    for i in np.flatnonzero(~(low < high)):
        raise ValueError(f"bounds must satisfy lower < upper, got lower[{i}]={low[i]!r}, upper[{i}]={high[i]!r}")
    return low, high


def _each(value: Any, name: str, m: int) -> Array:
    """A number for each parameter, from one for all or from a vector."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be numeric, got {value!r}") from error
    if array.shape not in ((), (m,)):
        raise ValueError(f"{name} must be a number or have shape ({m},), got shape {array.shape}")
    return np.array(np.broadcast_to(array, (m,)))
