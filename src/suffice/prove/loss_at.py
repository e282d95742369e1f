"""A loss r(w)^2 at one w: its residuals, and how far their norm r may be from that of the exact minimiser."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

from suffice.arrays import Array, norm
from suffice.prove.verified import Verification

MOST_GUESSES = 12  # of a radius, before bisection takes over


@dataclass(frozen=True)
class Linear:
    """The derivative R = d residuals / d w at one w, as products."""

    forward: Callable[[Array], Array]  #: V -> R V, for a matrix V of one row per weight
    adjoint: Callable[[Array], Array]  #: u -> R^T u, for a vector u of one entry per residual


@dataclass(frozen=True)
class LossAt:
    """A loss at one w: its residuals, and the proven error of their norm r as a function of the radius."""

    residuals: Array
    error: Callable[[float], float]
    verified: Callable[[Verification], float] | None = None  #: the error that a verified solution leaves
    linear: Linear | None = None  #: how the residuals move with w, where that is known

    @property
    def residual(self) -> float:
        """r, the root of the loss."""
        return norm(self.residuals)

    def radius(self, within: float) -> float:
        """The largest radius, up to 1 %, whose error is at most `within`; 0 if there is none."""
        blur = self.error(0.0)
        if within <= blur:
            return 0.0
        low, high, at = 0.0, sys.float_info.max, 1.0
        known = {high: self.error(high)}
        if known[high] <= within:
            return math.inf
        for trial in itertools.count():
            known[at] = self.error(at)
            low, high = (at, high) if known[at] <= within else (low, at)
            if high <= 1.01 * low:
                return low
            if high < 1e-300:
                return 0.0
            if low == 0.0 or high == sys.float_info.max:
                reach = (within - blur) / (known[at] - blur) if known[at] > blur else math.inf
                far = min(1e3, math.sqrt(high / at))
                at *= min(max(reach, 1e-3), 0.5) if low == 0.0 else min(max(reach, 2.0), far)
            else:
                at = _between(low, high, known[low] - blur, known[high] - blur, within - blur, trial > MOST_GUESSES)
        raise AssertionError("the search has no end of its own")


def _between(low: float, high: float, e_low: float, e_high: float, e: float, halve: bool) -> float:
    """Where e lies on the power of the radius through both ends, up to half of a percent beyond, so that the next one
    lies at its other side; by bisection where that has come to nothing."""
    if halve or not 0.0 < e_low < e < e_high < math.inf:
        return math.sqrt(low) * math.sqrt(high)
    power = math.log(e_high / e_low) / math.log(high / low)
    guess = low * math.pow(e / e_low, 1.0 / power)
    if guess < 1.004 * low:
        return min(1.0099 * low, math.sqrt(low) * math.sqrt(high))
    return max(0.998 * guess, high / 1.0099) if guess > high / 1.004 else 0.998 * guess


def root_error(loss: float, low: float, high: float) -> float:
    """How far sqrt(loss) can be from the root of anything in [low, high]."""
    r = math.sqrt(loss)
    return max(r - math.sqrt(max(low, 0.0)), math.sqrt(max(high, 0.0)) - r, 0.0)
