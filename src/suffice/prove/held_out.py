r"""Losses of margins on held-out data, and how far the error of the weights can move them.

    loss(w) = share sum_i v_i phi(m_i, y_i) = r(w)^2,        m_i = x_i . w + b(w).

Let ||w - w_hat|| <= R. If an intercept b is minimised out, the computed b is within S = S(R) of b(w_hat): B R + e, B =
max ||x_j|| over training rows and e the error of b (`suffice.models.intercept`), or what an enclosure proves
(`suffice.models.concomitant`); else S = 0. Margins move by d_i with |d_i| <= h_i = ||x_i|| R + S, and with |phi''| <= c
the loss moves by at most the least of

    first order    share ( ||X^T (v phi'(m))|| R + |sum_i v_i phi'(m_i)| S + (1/2) sum_i v_i phi''-bound d_i^2 ),
                   where the last sum is at most c (||diag(v)^(1/2) X|| R + S)^2, and at most sum_i v_i c_i h_i^2,
    per sample     phi(m_i) stays in the range it has on [m_i - h_i, m_i + h_i],
    Lipschitz      sqrt(loss) moves by share^(1/2) slope (||diag(v)^(1/2) X|| R + S).

The first is tight for a small radius, the second for a large one. All of them include the rounding of the margins:
|fl(x_i . w) - x_i . w| <= delta_i (`Design.margin_rounding`) adds to h_i, its norm to ||X|| R, and sum_i v_i
|phi'(m_i)| delta_i to the first order. Where a model nearly interpolates, nothing else is left of the error.

`Brier`, `LogLoss` and `SquaredError` of `suffice.losses` are sums over rows as they were given, v_i = 1. Folds of
`suffice.sklearn` have weights, and dense rows relative to the training mean, which changes b and nothing else, and
makes ||x_i|| and S as small as a shift can; what such sums round to counts in S.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from scipy.special import expit

from suffice.arrays import EPS, Array, host, norm
from suffice.models.margin_losses import LARGEST, slope_size
from suffice.protocols import conforms
from suffice.prove.verified import LinearVerification, Verification
from suffice.rows.design import Design
from suffice.rows.rounding import TINY, gamma, norm_rounding
from suffice.solvers.doubt import Doubt, Steep

# max over m of |d^2/dm^2 q^2| = |2 q^2 (1 - q)(2 - 3 q)| with q = 1 - sigm(m), at q = (15 - sqrt(33)) / 24, rounded up
BRIER_CURVATURE = 0.15406

SLOPE_ROUNDING = 64.0 * EPS  # of phi', relative to |phi'| + phi'' (1 + |m|): more than a few units of rounding
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
    steep: Callable[[Doubt], Steep] | None = None  #: the gradient of the loss, with what is proven of it

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


def error_of_moved(
    score: Phi, m: Array, y: Array, v: Array, share: float, residuals: Array, pulls: Array
) -> Callable[[float, Array, float], float]:
    """The error of r for margins that move by no more than h each and `far` in all, `first` to first order, as a
    function of these three; `pulls` are v phi'."""
    loss, rounding = float(residuals @ residuals), norm_rounding(residuals, share)
    steep = np.abs(pulls)

    def bound(first: float, h: Array, far: float) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            second = 0.5 * float(v @ (score.bend(m, h, y) * h * h))
            # phi changes by no less than |phi'| h - phi''-bound h^2 / 2 on one side of m: ranges that must be wider
            # than what the first order leaves are not looked at.
            if float(steep @ h) - second > first + second:
                ends = -math.inf, math.inf
            else:
                low, high = score.range(m, h, y)
                ends = float(v @ low), float(v @ high)
        return least_error(score, share, loss, first, second, ends, far) + rounding

    return bound


def least_error(
    score: Phi, share: float, loss: float, first: float, second: float, ends: tuple[float, float], far: float
) -> float:
    """The error of r, but for its own rounding, by the least of the three bounds: `first` and `second` order, sums of
    phi that stay within `ends`, and Lipschitz for margins that move by `far`."""
    low, high = ends
    if math.isfinite(score.curvature):
        second = min(second, 0.5 * score.curvature * far * far) if second == second else math.inf
    change = share * (first + second)
    low, high = (end if end == end else other for end, other in ((low, 0.0), (high, math.inf)))
    low = max(loss - change, share * low, 0.0) if change == change else share * low
    high = min(loss + change, share * high) if change == change else share * high
    lipschitz = math.sqrt(share) * score.slope * far
    return min(root_error(loss, low, high), lipschitz if lipschitz == lipschitz else math.inf)


class Phi(Protocol):
    """phi(m, y) >= 0 with |phi''| <= curvature; sqrt(phi) is slope-Lipschitz in m (infinite: unknown)."""

    @property
    def curvature(self) -> float: ...
    @property
    def slope(self) -> float: ...

    def residuals(self, m: Array, y: Array) -> Array:
        """Their squares are phi."""
        ...

    def derivative(self, m: Array, y: Array) -> Array: ...

    def range(self, m: Array, h: Array, y: Array) -> tuple[Array, Array]:
        """The least and the largest phi on [m - h, m + h]."""
        ...

    def bend(self, m: Array, h: Array, y: Array) -> Array:
        """A bound on |phi''| on [m - h, m + h]."""
        ...


@runtime_checkable
class SmoothPhi(Protocol):
    """A phi that knows how its residuals move."""

    def residual_slopes(self, m: Array, y: Array) -> Array:
        """d residuals / d m."""
        ...


class _EvenlyBent:
    """phi'' is bounded by the same number everywhere."""

    curvature: float

    def bend(self, m: Array, h: Array, y: Array) -> Array:
        return np.full(len(m), self.curvature)


@dataclass(frozen=True)
class BrierScore(_EvenlyBent):
    """phi = (sigm(m) - p)^2, p = (1 + y)/2, labels y in {-1, 1}."""

    curvature: float = BRIER_CURVATURE
    slope: float = 0.25

    def residuals(self, m: Array, y: Array) -> Array:
        result: Array = -y * expit(-y * m)
        return result

    def residual_slopes(self, m: Array, y: Array) -> Array:
        result: Array = expit(m) * expit(-m)
        return result

    def derivative(self, m: Array, y: Array) -> Array:
        q = expit(-y * m)
        result: Array = -2.0 * y * q * q * (1.0 - q)
        return result

    def range(self, m: Array, h: Array, y: Array) -> tuple[Array, Array]:
        ends = self.residuals(m - h, y) ** 2, self.residuals(m + h, y) ** 2
        return np.minimum(*ends), np.maximum(*ends)


@dataclass(frozen=True)
class LogScore(_EvenlyBent):
    """phi = log(1 + exp(-y m)), labels y in {-1, 1}."""

    curvature: float = 0.25
    slope: float = math.inf

    def residuals(self, m: Array, y: Array) -> Array:
        return np.sqrt(np.logaddexp(0.0, -y * m))

    def residual_slopes(self, m: Array, y: Array) -> Array:
        return 0.5 * self.derivative(m, y) / np.maximum(self.residuals(m, y), TINY)

    def derivative(self, m: Array, y: Array) -> Array:
        result: Array = -y * expit(-y * m)
        return result

    def range(self, m: Array, h: Array, y: Array) -> tuple[Array, Array]:
        ends = np.logaddexp(0.0, -y * (m - h)), np.logaddexp(0.0, -y * (m + h))
        return np.minimum(*ends), np.maximum(*ends)


@dataclass(frozen=True)
class SquaredScore(_EvenlyBent):
    """phi = (m - y)^2."""

    curvature: float = 2.0
    slope: float = 1.0

    def residuals(self, m: Array, y: Array) -> Array:
        return m - y

    def residual_slopes(self, m: Array, y: Array) -> Array:
        return np.ones_like(m)

    def derivative(self, m: Array, y: Array) -> Array:
        return 2.0 * (m - y)

    def range(self, m: Array, h: Array, y: Array) -> tuple[Array, Array]:
        size = np.abs(m - y)
        return np.maximum(size - h, 0.0) ** 2, (size + h) ** 2


@dataclass(frozen=True)
class HingeScore(_EvenlyBent):
    """phi = max(0, 1 - y m)^2, labels y in {-1, 1}: what LinearSVC minimises, on held-out data."""

    curvature: float = 2.0
    slope: float = 1.0

    def residuals(self, m: Array, y: Array) -> Array:
        return np.maximum(0.0, 1.0 - y * m)

    def residual_slopes(self, m: Array, y: Array) -> Array:
        return np.where(y * m < 1.0, -y, 0.0)

    def derivative(self, m: Array, y: Array) -> Array:
        return -2.0 * y * np.maximum(0.0, 1.0 - y * m)

    def range(self, m: Array, h: Array, y: Array) -> tuple[Array, Array]:
        return np.maximum(0.0, 1.0 - y * m - h) ** 2, np.maximum(0.0, 1.0 - y * m + h) ** 2


@dataclass(frozen=True)
class DevianceScore:
    """phi = 2 (psi(m, y) - min psi): the unit deviance of a family of `suffice.models.families`; phi'' = 2 psi''."""

    loss: Any
    curvature: float = math.inf
    slope: float = math.inf

    def _deviance(self, m: Array, y: Array) -> Array:
        deviance: Array = 2.0 * self.loss.excess(m, y)
        return deviance

    def residuals(self, m: Array, y: Array) -> Array:
        size: Array = np.sqrt(self._deviance(m, y))
        return np.where(m >= self.loss.best(y), size, -size)

    def residual_slopes(self, m: Array, y: Array) -> Array:
        residuals, root = self.residuals(m, y), np.sqrt(self.loss.second(self.loss.best(y), y))
        near = np.abs(residuals) <= 1e-6 * root  # there they are root (m - best), but for higher orders
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(near, root, 0.5 * self.derivative(m, y) / residuals)

    def derivative(self, m: Array, y: Array) -> Array:
        derivative: Array = 2.0 * self.loss.derivative(m, y)
        return derivative

    def range(self, m: Array, h: Array, y: Array) -> tuple[Array, Array]:
        ends = self._deviance(m - h, y), self._deviance(m + h, y)
        inside = np.abs(self.loss.best(y) - m) <= h
        return np.where(inside, 0.0, np.minimum(*ends)), np.maximum(*ends)

    def bend(self, m: Array, h: Array, y: Array) -> Array:
        bend: Array = 2.0 * self.loss.curvature_between(m - h, m + h, y)
        return np.where(bend < LARGEST, bend, math.inf)

    def blur(self, m: Array, y: Array) -> Array:
        """What the rounding of the best margin is worth, as an error of m."""
        best = self.loss.best(y)
        return 2.0 * EPS * (np.abs(m) + np.where(np.isfinite(best), 1.0 + np.abs(best), 0.0))


class MinimisedIntercept(Protocol):
    """A training problem whose intercept b is a function of w."""

    def image(self, x: Array) -> Array:
        """The margins of the training rows without b."""
        ...

    def intercept(self, image: Array) -> tuple[float, float]:
        """b, and a bound on its error."""
        ...

    def intercept_gradient(self, image: Array) -> Array:
        """d b / d w."""
        ...

    def shift_within(self, image: Array, radius: float) -> float:
        """S of the radius."""
        ...


@dataclass(frozen=True, eq=False)
class HeldOut:
    """share sum_i v_i phi(x_i . w + b(w), y_i): `design` holds the held-out rows and v, `train` the problem that b(w)
    belongs to. With `counted` every row counts 1, v_i = 1, and neither rows nor targets were shifted."""

    design: Design
    y: Array
    score: Phi
    share: float = 1.0
    train: MinimisedIntercept | None = None
    counted: bool = False
    offset: Array | None = None  # of every row, a known part of its margin

    def fingerprint(self) -> dict[str, Any]:
        known = {"design": self.design, "y": self.y, "score": self.score, "share": self.share, "train": self.train}
        known |= {"counted": True} if self.counted else {}
        return known if self.offset is None else {**known, "offset": self.offset}

    def at(self, w: Array) -> LossAt:
        """The loss at w; the latest one is kept, which an evaluation asks for several times."""
        known: tuple[Array, LossAt] | None = self.__dict__.get("_latest")
        if known is None or not np.array_equal(known[0], w):
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite proves nothing
                known = np.array(w), self._at(w)
            object.__setattr__(self, "_latest", known)
        return known[1]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_latest"}

    def _at(self, w: Array) -> LossAt:
        design, score, y, train = self.design, self.score, self.y, self.train
        times = design.shape[0] if self.counted else 1  # v in units of the design's weights, which sum to 1
        v = np.ones(design.shape[0]) if self.counted else host(design.weights)
        m: Array = host(design.margins(w))
        m = m if self.offset is None else m + self.offset
        image, b = m, 0.0
        if train is not None:
            image = train.image(w)
            b = train.intercept(image)[0]
            m = m + b
        residuals = math.sqrt(self.share) * np.sqrt(v) * score.residuals(m, y)
        slopes = score.derivative(m, y)
        pulls = v * slopes
        weighted = math.sqrt(times) * norm(np.sqrt(v) * slopes)
        adjoint = design.adjoint(pulls)
        gradient = norm(adjoint) + design.pull_rounding * weighted
        pull = abs(float(pulls.sum())) + gamma(len(m)) * float(np.abs(pulls).sum())
        spectral, row_norms = math.sqrt(times * design.squared_norm), design.row_norms
        blur = design.margin_rounding(w) * norm(w) * row_norms  # of the margins
        if isinstance(score, DevianceScore):
            blur = blur + score.blur(m, y)
        blurred, spread = float(np.abs(pulls) @ blur), math.sqrt(times) * design.spread(w)
        of_sums = 0.0 if self.counted else 4.0 * EPS * float(np.abs(m).max(initial=0.0))

        bound = error_of_moved(score, m, y, v, self.share, residuals, pulls)

        def error(radius: float) -> float:
            # Products of floats overflow to infinity without complaint; 0 * infinity is NaN, and proves nothing.
            R = min(radius, sys.float_info.max)
            shift = of_sums + (0.0 if train is None else train.shift_within(image, R))
            with np.errstate(over="ignore", invalid="ignore"):
                h = row_norms * R + shift + blur
            far = spectral * R + math.sqrt(times) * shift + spread
            return bound(gradient * R + pull * shift + blurred, h, far)

        @np.errstate(over="ignore", invalid="ignore")
        def verified(proof: Verification) -> float:
            assert isinstance(proof, LinearVerification)
            along, rounded, doubt = proof.along(design.X)
            shift = of_sums + (0.0 if train is None else 4.0 * EPS * abs(b) + abs(b - proof.b))
            S = proof.factor.support
            entries = design.pull_gammas[S] * design.column_norms[S] * weighted * (1.0 + gamma(sum(design.shape)))
            vector = adjoint[S]
            if proof.factor.intercept:
                vector = np.append(vector, float(pulls.sum()))
                entries = np.append(entries, gamma(len(m)) * float(np.abs(pulls).sum()))
            first = abs(float(pulls @ along)) + gamma(len(m) + 4) * float(np.abs(pulls) @ np.abs(along))
            first += proof.against(vector, entries + design.underflow) + pull * shift + blurred
            first += float(np.abs(pulls) @ rounded)
            h = np.abs(along) + rounded + doubt + shift + blur
            far = math.sqrt(float(v @ (h * h))) * (1.0 + gamma(len(m) + 8))
            return bound(first, h, far)

        def steep(doubt: Doubt) -> Steep:
            """Slopes err by phi'' times what margins move, and by their own rounding."""
            up = 1.0 + gamma(sum(design.shape) + 16)
            shift = of_sums + (0.0 if train is None else doubt.intercept + 4.0 * EPS * abs(b))
            shift += 0.0 if doubt.b is None else abs(b - doubt.b)
            h = design.absolute_margins(doubt.each) * up + shift + blur
            h += 4.0 * EPS * np.abs(m)
            bend = score.bend(m, h, y)
            off = bend * h + SLOPE_ROUNDING * (np.abs(slopes) + bend * (1.0 + np.abs(m)))
            if isinstance(score, DevianceScore):
                off = off + SLOPE_ROUNDING * slope_size(score.loss, slopes, bend, m, y)
            columns = math.sqrt(times) * design.column_norms * norm(np.sqrt(v) * off)
            columns += design.pull_gammas * design.column_norms * weighted + times * design.underflow
            of_b = float(v @ off) + gamma(len(m) + 8) * float(np.abs(pulls).sum())
            value, total = self.share * adjoint, self.share * float(pulls.sum())
            of_value = self.share * columns * up + 4.0 * EPS * np.abs(value)
            size = norm(of_value) * up
            if train is None:
                return Steep(value, of_value, size)
            return Steep(value, of_value, size, total, self.share * of_b * up + 4.0 * EPS * abs(total))

        return LossAt(residuals, error, verified, self._linear(m, v, image), steep)

    def _linear(self, m: Array, v: Array, image: Array) -> Linear | None:
        if not conforms(self.score, SmoothPhi):
            return None
        design, train, score = self.design, self.train, cast("SmoothPhi", self.score)

        def slopes() -> Array:
            return math.sqrt(self.share) * np.sqrt(v) * score.residual_slopes(m, self.y)

        def forward(V: Array) -> Array:
            moved = host(design.margins(V))
            if train is not None:
                moved = moved + train.intercept_gradient(image) @ V
            return slopes()[:, None] * moved

        def adjoint(u: Array) -> Array:
            pulls = slopes() * u
            pulled = design.adjoint(pulls)
            return pulled if train is None else pulled + train.intercept_gradient(image) * float(pulls.sum())

        return Linear(forward, adjoint)
