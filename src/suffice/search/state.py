"""What a search knows, and what a strategy is: an upper-level method together with what it knows at the moment.

A strategy is immutable: `decide` thinks until an evaluation is pending or the search has ended, `absorb` takes the
evaluation in, and each returns the strategy as it is then. So an ask/tell interface, a checkpoint and a loop are the
same thing, and a search is a function of the answers to its requests. There are two: the trust region for few
parameters (`suffice.search.trust_region`), and quasi-Newton steps from gradients for many (`suffice.search.many`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol, Self

import numpy as np

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.lazy import cached_property
from suffice.options import Options
from suffice.result import Purpose, Record, Status

WARM_POOL = 20  # how many points keep solutions and Jacobians after they have left the model


@dataclass(frozen=True)
class Scaling:
    """Search coordinates u: a finite box becomes [0, 1]; with an infinite bound, theta0 is 0 and the unit max(1,
    |theta0|)."""

    lower: Array
    upper: Array
    origin: Array
    unit: Array

    @classmethod
    def of(cls, theta0: Array, bounds: Any) -> Scaling:
        """From `bounds` = (lower, upper), each a number, a vector or None; None for no bounds at all."""
        lower, upper = _bounds(bounds, len(theta0))
        with np.errstate(over="ignore"):
            width = upper - lower
        boxed = np.isfinite(width)  # a box too wide for its width to be a number is none
        theta0 = np.clip(theta0, lower, upper)
        open_size = float(np.max(np.abs(theta0[~boxed]), initial=1.0))
        unit = np.where(boxed, width, open_size)
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


class Verdict(Enum):
    """What became of a step."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    OPEN = "open"
    LIKELY = "accepted, not proven"  # by F~, where the oracle's limit leaves nothing better to go by
    UNLIKELY = "rejected, not proven"


@dataclass(frozen=True)
class Sample:
    """A point u with its evaluation."""

    u: Array
    evaluation: Evaluation
    futile: int = 0  # refinements in a row that have come to nothing


@dataclass(frozen=True)
class Plan:
    """A step of length `length` that promises the decrease `predicted`; `foreseen` is F there by each model."""

    predicted: float
    length: float
    foreseen: tuple[float, ...] = ()


@dataclass(frozen=True)
class Pending:
    """The evaluation that is being waited for. `replaces`: the point of the model whose place the new one takes.
    `derivatives`: they would be used if F is proven to be at most `below`."""

    purpose: Purpose
    u: Array
    within: float
    warm: Evaluation | None = None
    replaces: int | None = None
    refines: Sample | None = None
    plan: Plan | None = None  # of a step, or of the one that the refined point is an end of
    derivatives: bool = False
    below: float = math.inf


@dataclass(frozen=True)
class Trial:
    """A step under judgement."""

    point: Sample
    plan: Plan


@dataclass(frozen=True)
class Judged:
    """The verdict on a step."""

    verdict: Verdict
    predicted: float
    origin: Array
    target: Array
    note: str = ""


@dataclass(frozen=True)
class Ledger:
    """What was evaluated so far, whatever the strategy."""

    start: Array  # u of the first evaluation
    records: tuple[Record, ...] = ()
    work: float = 0.0
    seconds: float = 0.0
    best: Sample | None = None  # of all evaluated, the one with the least proven upper bound of F
    floors: tuple[float, ...] = ()  # the accuracies at which refinements have come to nothing since one has not


@dataclass(frozen=True)
class Setting:
    """What a strategy goes by, and does not change: the ledger is kept for it."""

    scaling: Scaling
    options: Options
    lower_bound: Callable[[Array], float] | None = None  # F(theta) is at least this, at no cost
    ledger: Ledger = Ledger(np.empty(0))

    @property
    def box(self) -> tuple[Array, Array]:
        """The bounds of u."""
        return self.scaling.low, self.scaling.high

    def rules_out(self, u: Array, current: Sample) -> bool:
        """Whether F at u is known beforehand to be no less than at the incumbent."""
        bound = self.lower_bound
        return bound is not None and bound(self.scaling.to_theta(u)) >= current.evaluation.interval[1]


class Strategy(Protocol):
    """An upper-level method with what it knows; immutable. Points are in the coordinates of `setting.scaling`."""

    @property
    def status(self) -> Status: ...

    @property
    def pending(self) -> Pending | None:
        """The evaluation that it waits for."""

    @property
    def points(self) -> Sequence[Sample]:
        """Those that its next step goes by; none before the first evaluation."""

    @property
    def current(self) -> Sample:
        """The incumbent, from the first evaluation on."""

    @property
    def delta(self) -> float:
        """How far from the incumbent it looks next."""

    def decide(self, setting: Setting) -> Strategy:
        """Think until an evaluation is pending or the search has ended."""

    def absorb(self, point: Sample, setting: Setting) -> tuple[Strategy, Judged | None]:
        """Take in the point that was pending, and tell the verdict on a step that was judged by it. A point may have no
        F (`point.evaluation.failure`); one that was to be refined, and could not, comes back as it was."""


# The strategy at u, before the first evaluation; evaluations that were made before the search may help it.
Begin = Callable[[Array, Setting, Sequence[Evaluation]], Strategy]


@dataclass(frozen=True)
class Looks:
    """Where the trust region looks elsewhere than its model proposes (`suffice.search.looks`)."""

    places: tuple[Array, ...] = ()  # to be looked at, one after the other
    rounds: int = 0  # of looks across the box or at its bounds
    in_vain: bool = False  # whether the last look before the end has found nothing


@dataclass(frozen=True)
class Modelling:
    """How models are made."""

    misses: tuple[float, ...] = (0.0, 0.0)  # how badly each kind of model foresaw recent steps
    by_derivatives: bool = False  # `points` is the incumbent alone
    failures: int = 0  # of such models, less their successes
    tested: bool = False  # whether they have foreseen an evaluation that was made to test them


@dataclass(frozen=True)
class Iterate:
    """What the trust region knows. `pool` holds the points that have left the model, the latest last."""

    delta: float
    rho: float
    first: tuple[Array, ...] = ()  # points of the model that are still to be evaluated
    points: tuple[Sample, ...] = ()
    k: int = 0  # which of them is the incumbent
    pool: tuple[Sample, ...] = ()
    pending: Pending | None = None
    trial: Trial | None = None
    after_failure: bool = False
    retries: int = 0  # how many points in a row, of those wanted for the model, had no finite residuals
    looks: Looks = Looks()
    models: Modelling = Modelling()
    status: Status = Status.RUNNING

    @property
    def current(self) -> Sample:
        """The incumbent, from the first evaluation on."""
        return self.points[self.k]

    @property
    def places(self) -> Array:
        """The points of the model, as rows."""
        return np.array([point.u for point in self.points])

    def looking(self, **changes: Any) -> Self:
        """With other looks."""
        return replace(self, looks=replace(self.looks, **changes))

    def modelled(self, **changes: Any) -> Self:
        """With other models."""
        return replace(self, models=replace(self.models, **changes))

    def pooled(self, *left: Sample) -> Self:
        """With points that have left the model, or never were of it."""
        return replace(self, pool=pooled(self.pool, left))

    def placed(self, point: Sample, t: int) -> Self:
        """With a point that takes the t-th one's place."""
        return replace(self, points=(*self.points[:t], point, *self.points[t + 1 :]))


def pool_size(m: int) -> int:
    """How many points are remembered after they have left the model: enough for all curvature if m is small."""
    return min((m + 1) * (m + 2), 4 * m + 60)


def pooled(pool: Sequence[Sample], left: Sequence[Sample]) -> tuple[Sample, ...]:
    """The pool with the points that have left the model."""
    if not left:
        return tuple(pool)
    m = len(left[0].u)
    grown = [*pool, *left][-pool_size(m) :]
    for i, point in enumerate(grown):
        evaluation = point.evaluation
        if len(grown) - i > WARM_POOL and (evaluation.solutions or evaluation.J is not None):
            grown[i] = replace(point, evaluation=replace(evaluation, solutions=(), jacobian=None))
    return tuple(grown)


def remembered(u: Array, seen: Sequence[Evaluation], scaling: Scaling) -> tuple[Sample, ...]:
    """A pool of evaluations elsewhere than at u that were made before the search, the nearest last."""
    known = [Sample(scaling.to_u(one.point), one) for one in seen if one.failure is None]
    elsewhere = [point for point in known if not np.array_equal(point.u, u)]
    return pooled((), sorted(elsewhere, key=lambda point: -norm(point.u - u)))


def _bounds(bounds: Any, m: int) -> tuple[Array, Array]:
    """Numbers for each parameter, from one for all or from vectors."""
    try:
        lower, upper = (None, None) if bounds is None else bounds
    except (TypeError, ValueError) as error:
        raise ValueError(f"bounds must be a pair (lower, upper), got {bounds!r}") from error
    low, high = np.full(m, -np.inf), np.full(m, np.inf)
    for name, side, given in (("lower", low, lower), ("upper", high, upper)):
        try:
            array = side if given is None else np.array(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"bounds: {name} must be numeric, got {given!r}") from error
        if array.shape not in ((), (m,)):
            raise ValueError(f"bounds: {name} must be a number or have shape ({m},), got shape {array.shape}")
        if np.isnan(array).any():
            raise ValueError(f"bounds: {name} must not be NaN, got {given!r}")
        side[:] = array
    for i in np.flatnonzero(~(low < high)):
        raise ValueError(f"bounds must satisfy lower < upper, got lower[{i}]={low[i]!r}, upper[{i}]={high[i]!r}")
    return low, high
