"""What a search knows: immutable, so that a checkpoint, an ask/tell interface and a loop are the same thing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.options import Options
from suffice.result import Purpose, Record, Status
from suffice.search.judge import Verdict
from suffice.search.scaling import Scaling
from suffice.search.sparsity import Supports

MOST_EQUATIONS = 300  # of a model with derivatives, for the curvature
WARM_POOL = 20  # how many points keep their solutions for warm starts after they have left the model


@dataclass(frozen=True)
class Point:
    u: Array
    evaluation: Evaluation
    futile: int = 0  # refinements in a row that have come to nothing
    moved: float = math.inf  # how far the latest refinement has moved F~


@dataclass(frozen=True)
class Pending:
    """The evaluation that is being waited for. `replaces`: the point of the model whose place the new one takes.
    `derivatives`: they would be used if F is proven to be at most `below`."""

    purpose: Purpose
    u: Array
    within: float
    warm: Evaluation | None = None
    replaces: int | None = None
    refines: Point | None = None
    derivatives: bool = False
    below: float = math.inf


@dataclass(frozen=True)
class Plan:
    """A step of length `length` that promises the decrease `predicted`; `foreseen` is F there by each model."""

    predicted: float
    length: float
    foreseen: tuple[float, ...]
    noise: float = 0.0  # eps of `suffice.search.noise`: what noise alone makes of a difference of two F~
    origin: float = math.nan  # F~ where the step starts, averaged


@dataclass(frozen=True)
class Trial:
    """A step under judgement."""

    point: Point
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
    best: Point | None = None  # of all evaluated, the one with the least proven upper bound of F; None with noise
    floors: tuple[float, ...] = ()  # the accuracies at which refinements have come to nothing since one has not

    def better(self, current: Point) -> Point:
        """The result so far: the evaluated point with the least proven upper bound of F, the incumbent if it is as
        good.

        Without errors that is the least F seen. It need not be the incumbent, which moves only if a step decreases F by
        a share of what the model promised. With `Options(noise=...)` it is: the least F~ of many would be the luckiest.
        """
        best = self.best
        return current if best is None or current.evaluation.interval[1] <= best.evaluation.interval[1] else best


@dataclass(frozen=True)
class Setting:
    """What a strategy goes by, and does not change: the ledger is kept for it."""

    scaling: Scaling
    options: Options
    lower_bound: Callable[[Array], float] | None = None  # F(theta) is at least this, at no cost
    ledger: Ledger = Ledger(np.empty(0))

    def rules_out(self, u: Array, current: Point) -> bool:
        """Whether F at u is known beforehand to be no less than at the incumbent."""
        bound = self.lower_bound
        return bound is not None and bound(self.scaling.to_theta(u)) >= current.evaluation.interval[1]


@dataclass(frozen=True)
class State:
    """What the trust region knows. `pool` holds the points that have left the model, the latest last."""

    delta: float
    rho: float
    first: tuple[Array, ...]
    points: tuple[Point, ...] = ()
    incumbent: int = 0
    pending: Pending | None = None
    plan: Plan | None = None  # the step that `pending` evaluates
    trial: Trial | None = None
    misses: tuple[float, ...] = (0.0, 0.0)  # how badly the quadratic and the linear model foresaw recent steps
    after_failure: bool = False
    retries: int = 0  # how many points in a row, of those wanted for the model, had no finite residuals
    promise: float = math.inf  # the decrease that the latest step promised
    pool: tuple[Point, ...] = ()
    unseen: tuple[Array, ...] = ()  # points along flat directions that are looked at before the search ends
    looked: int = 0  # how often it has looked there
    around: float = math.inf  # F when it has looked around the latest time
    edged: float = math.inf  # and when it has looked at bounds
    nothing_unseen: bool = False  # and whether the latest look was in vain, so that the search ends
    restarts: int = 0
    in_vain: int = 0  # restarts in a row that have not decreased F
    mark: float = math.inf  # F at the incumbent at the latest restart, averaged
    sparsity: Supports | None = None  # the few parameters of every residual, as far as they have not been refuted
    checked: float = math.inf  # the rho at which that was tested last
    by_derivatives: bool = False  # models come from derivatives: `points` is the incumbent alone
    failures: int = 0  # of such models, less their successes
    tested: bool = False  # whether they have foreseen an evaluation that was made to test them
    status: Status = Status.RUNNING

    @property
    def current(self) -> Point:
        """The incumbent, from the first evaluation on."""
        return self.points[self.incumbent]


AnyState = TypeVar("AnyState", bound=State)


def pool_size(m: int) -> int:
    """How many points are remembered after they have left the model: enough for all curvature if m is small."""
    return min((m + 1) * (m + 2), 4 * m + 60)


def sloped_pool_size(m: int) -> int:
    """How many of them keep their Jacobians: as many as a model has equations for."""
    return max(MOST_EQUATIONS // (m + 1), 2)


def placed(state: AnyState, point: Point, t: int) -> AnyState:
    return replace(state, points=swapped(state.points, t, point), pool=pooled(state.pool, [state.points[t]]))


def pooled(pool: tuple[Point, ...], left: list[Point]) -> tuple[Point, ...]:
    """The pool with the points that have left the model."""
    m = len(left[0].u)
    grown = [*pool, *left][-pool_size(m) :]
    for i, point in enumerate(grown):
        age, evaluation = len(grown) - i, point.evaluation
        if age > WARM_POOL and evaluation.solutions:
            evaluation = replace(evaluation, solutions=())
        if age > sloped_pool_size(m) and evaluation.J is not None:
            evaluation = replace(evaluation, jacobian=None)
        if evaluation is not point.evaluation:
            grown[i] = replace(point, evaluation=evaluation)
    return tuple(grown)


def remembered(u: Array, seen: Sequence[Evaluation], scaling: Scaling) -> tuple[Point, ...]:
    """A pool of evaluations elsewhere than at u that were made before the search, the nearest last."""
    known = [Point(scaling.to_u(one.point), one) for one in seen if one.failure is None]
    elsewhere = [point for point in known if not np.array_equal(point.u, u)]
    elsewhere.sort(key=lambda point: -norm(point.u - u))
    return pooled((), elsewhere) if elsewhere else ()


def swapped(points: tuple[Point, ...], t: int, point: Point) -> tuple[Point, ...]:
    return (*points[:t], point, *points[t + 1 :])
