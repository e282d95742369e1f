"""Named parameters and the coordinates theta in which they are searched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from suffice.arrays import Array

LINEAR_END = 1e-8  # of the upper end: where a logarithmic scale that begins at 0 becomes linear
LEAST = {"log": math.nextafter(0.0, 1.0), "linear": -math.inf, "sqrt": 0.0}  # what a scale can take


class Space:
    """Parameters by name with their ranges: `Space(l1=(1e-8, 1e8), shift=(-1, 1))`.

    A range whose lower end is positive is searched on a logarithmic scale, theta = log10(parameter), any other on
    its own scale, theta = parameter. A third entry chooses: `c=(0.001, 0.99, "linear")`, "log", or "sqrt" for theta =
    sqrt(parameter), on which a penalty proportional to the parameter is the square of a linear residual. Upper ends may
    be infinite, and so may lower ends on a linear scale. A logarithmic scale may begin at 0, `l2=(0, 100, "log")`: it
    then has a linear end, theta = log10(parameter + unit), the unit being 1e-8 of the upper end, which must be finite.
    """

    def __init__(self, **ranges: tuple[float, float] | tuple[float, float, str]) -> None:
        if not ranges:
            raise ValueError("a Space needs at least one parameter, as name=(lower, upper)")
        self.ranges: dict[str, tuple[float, float]] = {}
        self.scales: dict[str, str] = {}
        for name, ends in ranges.items():
            try:
                lower, upper = (float(end) for end in ends[:2])
                extra = ends[2:]
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name} must be a pair (lower, upper) of numbers, got {ends!r}") from error
            if not lower < upper:
                raise ValueError(f"{name} must satisfy lower < upper, got {ends!r}")
            scale = extra[0] if extra else _usual(lower)
            if len(extra) > 1 or scale not in LEAST:
                raise ValueError(
                    f"{name} must be a pair (lower, upper), or end in a scale out of {', '.join(LEAST)}, got {ends!r}"
                )
            from_zero = scale == "log" and lower == 0.0 and math.isfinite(upper)
            if lower < LEAST[scale] and not from_zero:
                raise ValueError(f"{name} has a {scale} scale, its lower end cannot be {lower!r}")
            self.ranges[name], self.scales[name] = (lower, upper), scale

    def __repr__(self) -> str:
        given = ((*ends, self.scales[name]) for name, ends in self.ranges.items())
        shown = (one[:2] if one[2] == _usual(one[0]) else one for one in given)
        return f"Space({', '.join(f'{name}={ends!r}' for name, ends in zip(self.ranges, shown, strict=True))})"

    def __len__(self) -> int:
        return len(self.ranges)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, in the order of theta."""
        return tuple(self.ranges)

    def logarithmic(self, name: str) -> bool:
        """Whether this parameter is searched on a logarithmic scale, without a linear end."""
        return self.scales[name] == "log" and self.ranges[name][0] > 0.0

    def _unit(self, name: str) -> float:
        """What is added to a parameter before its logarithm is taken."""
        return 0.0 if self.ranges[name][0] > 0.0 else LINEAR_END * self.ranges[name][1]

    @property
    def bounds(self) -> tuple[Array, Array]:
        """The box of theta."""
        ends = [[self._theta(name, end) for end in ends] for name, ends in self.ranges.items()]
        lower, upper = np.array(ends).T
        return lower, upper

    def theta(self, params: Mapping[str, Any]) -> Array:
        """theta of parameters given by name, in the user's units; they need not lie inside their ranges."""
        missing, unknown = set(self.names) - set(params), set(params) - set(self.names)
        if missing or unknown:
            raise ValueError(f"parameters must be {', '.join(self.names)}, got {', '.join(map(str, params)) or 'none'}")
        for name, value in params.items():
            if not math.isfinite(value) or value < min(LEAST[self.scales[name]], self.ranges[name][0]):
                kind = {"log": "positive and finite", "sqrt": "non-negative and finite"}.get(
                    self.scales[name], "finite"
                )
                raise ValueError(f"{name} must be {kind}, got {value!r}")
        return np.array([self._theta(name, params[name]) for name in self.names])

    def params(self, theta: Array) -> dict[str, float]:
        """Parameters by name, in the user's units, never outside their ranges for a theta inside the box."""
        if len(theta) != len(self):
            raise ValueError(f"theta must have length {len(self)} ({', '.join(self.names)}), got {len(theta)}")
        params = {}
        for name, value in zip(self.names, np.asarray(theta, dtype=np.float64).tolist(), strict=True):
            lower, upper = self.ranges[name]
            inside = self._theta(name, lower) <= value <= self._theta(name, upper)
            if self.scales[name] == "log":
                unit = self._unit(name)
                params[name] = 10.0**value if unit == 0.0 else max(10.0**value - unit, 0.0)
            else:
                params[name] = value * value if self.scales[name] == "sqrt" else value
            if inside:  # 10^log10(end) may miss the end by rounding
                params[name] = min(max(params[name], lower), upper)
            if value == self._theta(name, lower):  # which may be 0, and has to be
                params[name] = lower
        return params

    def slopes(self, theta: Array) -> Array:
        """d parameter / d theta of every parameter, in the order of theta."""
        values = zip(self.scales.values(), np.asarray(theta, dtype=np.float64).tolist(), strict=True)
        slopes = (math.log(10.0) * 10.0**t if s == "log" else 2.0 * t if s == "sqrt" else 1.0 for s, t in values)
        return np.array(list(slopes))

    def _theta(self, name: str, value: float) -> float:
        if value == math.inf or self.scales[name] == "linear":
            return float(value)
        return math.log10(value + self._unit(name)) if self.scales[name] == "log" else math.sqrt(value)


def _usual(lower: float) -> str:
    return "log" if lower > 0 else "linear"
