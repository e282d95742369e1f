r"""The trust-region search as a state machine.

`decide` thinks until it needs an evaluation and says which; `absorb` takes the evaluation in. Both are functions
from an immutable state to the next one, and nothing else changes it: an ask/tell interface, a checkpoint and a loop
are the same thing.

One iteration: fit the model through the m+1 points; take its minimiser s in ball and box; if s is short, improve the
geometry or reduce rho, without evaluating anything; if what is known of F beforehand (`lower_bound`) rules u_k + s
out, reduce the radius without evaluating either; else evaluate u_k + s as accurately as the verdict needs, refine
whichever end leaves the verdict open, move or stay, let the new point replace the one the model misses least, and
update the radius.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice._array import Array, norm
from suffice.options import Options
from suffice.result import Purpose, Record, Status
from suffice.upper.accuracy import (
    FIRST_LOOK,
    REFINEMENT,
    achieved,
    came_to_nothing,
    enough_to_tell,
    first_look,
    for_model,
    refinement,
    seen,
    too_rough,
)
from suffice.upper.evaluation import Evaluation
from suffice.upper.geometry import elsewhere, farthest, first_points, improving_point, point_to_replace
from suffice.upper.interpolation import lagrange_gradients
from suffice.upper.judge import Verdict, judge, next_radius, next_rho
from suffice.upper.model import Model, fit, linear_basis, minimise, quadratic_basis
from suffice.upper.scaling import Scaling
from suffice.upper.warm import warm_start

SHORT_STEP = 0.5  # steps shorter than this many rho are not worth an evaluation (published implementation)
FAR = 1.0 + 1e-9  # halved radii put points at exactly twice the radius: rounding must not decide
REACH = 10.0  # old points further away (in trust radii) say nothing about the model
OUTLIER = 100.0  # nor do points where F is this many times larger
FORGET = 0.5  # how much an older step counts when the two models are compared
WARM_POOL = 20  # how many points keep their solutions for warm starts after they have left the model


def pool_size(m: int) -> int:
    """How many points are remembered after they have left the model: enough for all curvature if m is small."""
    return min((m + 1) * (m + 2), 4 * m + 60)


@dataclass(frozen=True)
class Point:
    u: Array
    evaluation: Evaluation
    futile: int = 0  # refinements in a row that have come to nothing
    moved: float = math.inf  # how far the latest refinement has moved F~

    @property
    def exhausted(self) -> bool:
        """The oracle cannot evaluate it more accurately: it may miss once, but not twice."""
        return self.futile > 1


@dataclass(frozen=True)
class Pending:
    """The evaluation that is being waited for. `replaces`: the point of the model whose place the new one takes."""

    purpose: Purpose
    u: Array
    within: float
    warm: Evaluation | None
    replaces: int | None = None


@dataclass(frozen=True)
class Plan:
    """A step of length `length` that promises the decrease `predicted`; `foreseen` is F there by either model."""

    predicted: float
    length: float
    foreseen: tuple[float, float]


@dataclass(frozen=True)
class Trial:
    """A step under judgement."""

    point: Point
    plan: Plan


@dataclass(frozen=True)
class State:
    """Everything a search knows. `pool` holds the points that have left the model, the latest last."""

    delta: float
    rho: float
    first: tuple[Array, ...]
    points: tuple[Point, ...] = ()
    incumbent: int = 0
    pending: Pending | None = None
    plan: Plan | None = None  # the step that `pending` evaluates
    trial: Trial | None = None
    misses: tuple[float, float] = (0.0, 0.0)  # how badly the quadratic and the linear model foresaw recent steps
    after_failure: bool = False
    retries: int = 0  # how many points in a row, of those wanted for the model, had no finite residuals
    promise: float = math.inf  # the decrease that the latest step promised
    pool: tuple[Point, ...] = ()
    best: Point | None = None  # of all that were evaluated, the one with the least proven upper bound of F
    records: tuple[Record, ...] = ()
    work: float = 0.0
    seconds: float = 0.0
    status: Status = Status.RUNNING


def best_point(state: State) -> Point:
    """The result so far: the evaluated point with the least proven upper bound of F, the incumbent if it is as good.

    Without errors that is the least F seen. It need not be the incumbent, which moves only if a step decreases F by a
    share of what the model promised.
    """
    current = state.points[state.incumbent]
    best = state.best
    return current if best is None or current.evaluation.interval[1] <= best.evaluation.interval[1] else best


@dataclass(frozen=True)
class Setting:
    """What never changes during a search."""

    scaling: Scaling
    options: Options
    lower_bound: Callable[[Array], float] | None = None  # F(theta) is at least this, at no cost


def start(u0: Array, setting: Setting) -> State:
    """The state before the first evaluation."""
    scaling, options = setting.scaling, setting.options
    first = first_points(u0, options.initial_radius, scaling.low, scaling.high, options.seed)
    return State(options.initial_radius, options.initial_radius, tuple(first))


def decide(state: State, setting: Setting) -> State:
    """Think until an evaluation is pending or the search has ended."""
    while state.status is Status.RUNNING and state.pending is None:
        if state.first:
            state = _ask_first(state, setting)
        elif state.trial is not None:
            state = _settle(state, state.trial, setting)
        elif state.after_failure:
            state = _mend(replace(state, after_failure=False), setting)
        else:
            state = _step(state, setting)
    return state


def absorb(state: State, evaluation: Evaluation, setting: Setting, seconds: float = 0.0) -> State:
    """Take in the evaluation that was pending, judge what can be judged, record it."""
    pending = state.pending
    assert pending is not None
    point = Point(pending.u, evaluation)
    work = state.work + float(evaluation.work)
    known = replace(state, pending=None, work=work, seconds=state.seconds + seconds)
    if evaluation.failure is not None:
        after, judged = _go_around(known, pending, setting)
    else:
        if state.best is None or evaluation.interval[1] < state.best.evaluation.interval[1]:
            known = replace(known, best=point)
        after, judged = _take_in(known, pending, point, setting)
    record = _record(state, after, pending, evaluation, judged, setting)
    after = replace(after, records=(*state.records, record))
    return replace(after, status=_budget(after, setting.options))


def _take_in(state: State, pending: Pending, point: Point, setting: Setting) -> tuple[State, _Judged | None]:
    match pending.purpose:
        case Purpose.FIRST:
            points = (*state.points, point)
            best = min(range(len(points)), key=lambda t: points[t].evaluation.cost)
            return replace(state, first=state.first[1:], points=points, incumbent=best, retries=0), None
        case Purpose.GEOMETRY:
            assert pending.replaces is not None
            current = state.points[state.incumbent].evaluation
            better = seen(point.evaluation, setting.options).interval[1] < seen(current, setting.options).interval[0]
            state = _place(replace(state, retries=0), point, pending.replaces)
            return replace(state, incumbent=pending.replaces) if better else state, None
        case Purpose.REFINE_INCUMBENT | Purpose.REFINE_POINT:
            t = pending.replaces
            assert t is not None
            state = replace(
                state, points=_swapped(state.points, t, _refined(state.points[t], point, pending.within, setting))
            )
        case Purpose.REFINE_STEP:
            assert state.trial is not None
            state = replace(
                state, trial=replace(state.trial, point=_refined(state.trial.point, point, pending.within, setting))
            )
        case Purpose.STEP:
            assert state.plan is not None
            state = replace(state, trial=Trial(point, state.plan), plan=None)
    return _conclude(state, state.trial, setting) if state.trial is not None else (state, None)


def _go_around(state: State, pending: Pending, setting: Setting) -> tuple[State, _Judged | None]:
    """There are no finite residuals at the pending point: nothing of it enters a model."""
    match pending.purpose:
        case Purpose.FIRST:
            return replace(state, retries=state.retries + 1), None
        case Purpose.GEOMETRY:
            return replace(state, retries=state.retries + 1, after_failure=True), None
        case Purpose.REFINE_INCUMBENT | Purpose.REFINE_POINT:
            t = pending.replaces
            assert t is not None
            point = replace(state.points[t], futile=state.points[t].futile + 1)
            return replace(state, points=_swapped(state.points, t, point)), None
        case Purpose.REFINE_STEP:
            assert state.trial is not None
            plan, state = state.trial.plan, replace(state, trial=None)
        case Purpose.STEP:
            assert state.plan is not None
            plan, state = state.plan, replace(state, plan=None)
    delta = next_radius(-math.inf, plan.length, state.delta, state.rho, setting.options)
    judged = _Judged(Verdict.REJECTED, plan.predicted, state.points[state.incumbent].u, pending.u)
    return replace(state, delta=delta, after_failure=True), judged


# Deciding


def _ask_first(state: State, setting: Setting) -> State:
    if not state.points:
        return _ask(state, Purpose.FIRST, state.first[0], for_model(state.delta, None, setting.options))
    start = state.points[0]
    return _ask_near(
        state,
        setting,
        Purpose.FIRST,
        start.u,
        state.first[0],
        for_model(state.delta, start.evaluation, setting.options),
    )


def _step(state: State, setting: Setting) -> State:
    scaling, options = setting.scaling, setting.options
    current = state.points[state.incumbent]
    models = _models(state, setting)
    model = models[-1] if state.misses[-1] < state.misses[0] else models[0]
    s, predicted = minimise(model, state.delta, scaling.low - current.u, scaling.high - current.u)
    u, length = np.clip(current.u + s, scaling.low, scaling.high), norm(s)
    state = replace(state, promise=predicted if predicted > 0.0 else state.promise)
    if length < SHORT_STEP * state.rho or predicted <= 0.0:
        return _mend(replace(state, delta=max(options.shrink * state.delta, state.rho)), setting, short=True)
    if setting.lower_bound is not None and setting.lower_bound(scaling.to_theta(u)) >= current.evaluation.interval[1]:
        if state.delta > state.rho:
            return replace(state, delta=max(options.shrink * min(length, state.delta), state.rho))
        return _mend(state, setting, short=True)
    for t in (state.incumbent, *range(len(state.points))):
        point = state.points[t]
        error = seen(point.evaluation, options).error
        rough = too_rough(error, point.moved, predicted, t == state.incumbent)
        if rough and not point.exhausted:
            purpose = Purpose.REFINE_INCUMBENT if t == state.incumbent else Purpose.REFINE_POINT
            return _refine(state, purpose, point, FIRST_LOOK[options.policy] * predicted, setting, t)
    within = first_look(predicted, state.delta, current.evaluation, options)
    state = replace(state, plan=Plan(predicted, length, (models[0].value(s), models[-1].value(s))))
    return _ask(state, Purpose.STEP, u, within)


def _mend(state: State, setting: Setting, short: bool = False) -> State:
    """After a failed or short step: bring a far point near, refresh a stale one, or else reduce rho."""
    scaling, options = setting.scaling, setting.options
    points = np.array([point.u for point in state.points])
    current = state.points[state.incumbent].evaluation
    t, distance = farthest(points, state.incumbent)
    if distance > FAR * max(2.0 * state.delta, 10.0 * state.rho):
        radius = max(min(0.1 * distance, state.delta), state.rho)
        gradients = lagrange_gradients(points, state.incumbent)
        u = improving_point(points, gradients, state.incumbent, t, radius, scaling.low, scaling.high)
        within = first_look(state.promise, radius, current, options)
        return _ask_near(state, setting, Purpose.GEOMETRY, points[state.incumbent], u, within, replaces=t)
    limit = for_model(state.delta, current, options)
    # A short step stays short while delta falls to rho: what is needed there is asked for at once.
    goal = REFINEMENT * for_model(state.rho if short else state.delta, current, options)
    for t, point in enumerate(state.points):
        if achieved(point.evaluation, options) > limit and not point.exhausted:
            pending = Pending(Purpose.REFINE_POINT, point.u, goal, point.evaluation, t)
            return replace(state, pending=pending)
    if not short and state.delta > state.rho:
        return state
    if state.rho <= options.final_radius:
        known = seen(current, options).error <= 0.1 * current.cost or not state.points[state.incumbent].exhausted
        return replace(state, status=Status.CONVERGED if known else Status.ACCURACY)
    rho = next_rho(state.rho, options.final_radius)
    return replace(state, rho=rho, delta=max(0.5 * state.rho, rho))


def _settle(state: State, trial: Trial, setting: Setting) -> State:
    """The verdict is open: refine the end that leaves it so, as far as the distance to the threshold asks for."""
    options = setting.options
    current = state.points[state.incumbent]
    _, ratio = judge(current.evaluation, trial.point.evaluation, trial.plan.predicted, options)
    T = enough_to_tell(ratio, options) * trial.plan.predicted
    ends = [
        (current.evaluation.error, Purpose.REFINE_INCUMBENT, current, state.incumbent),
        (trial.point.evaluation.error, Purpose.REFINE_STEP, trial.point, None),
    ]
    for error, purpose, point, t in sorted(ends, key=lambda end: -end[0]):
        if error > T and not point.exhausted:
            return _refine(state, purpose, point, T, setting, t)
    return replace(state, status=Status.ACCURACY)


def _refine(state: State, purpose: Purpose, point: Point, T: float, setting: Setting, t: int | None) -> State:
    within = refinement(point.evaluation, T, setting.options)
    return replace(state, pending=Pending(purpose, point.u, within, point.evaluation, t))


def _ask(state: State, purpose: Purpose, u: Array, within: float, replaces: int | None = None) -> State:
    known = [(point.u, point.evaluation) for point in state.points]
    older = [(point.u, point.evaluation) for point in state.pool[-WARM_POOL:]]
    warm = warm_start(u, known, state.incumbent, older)
    return replace(state, pending=Pending(purpose, u, within, warm, replaces))


def _ask_near(
    state: State,
    setting: Setting,
    purpose: Purpose,
    centre: Array,
    u: Array,
    within: float,
    replaces: int | None = None,
) -> State:
    """Ask for a point of the model, or as often as there were no finite residuals, for another one on its line."""
    places = elsewhere(centre, u, setting.scaling.low, setting.scaling.high)
    if state.retries >= len(places):
        return replace(state, status=Status.NOT_FINITE)
    return _ask(state, purpose, places[state.retries], within, replaces)


def _models(state: State, setting: Setting) -> list[Model]:
    """The competing models, the one to start with first; the paper's alone if it is asked for."""
    k, current = state.incumbent, state.points[state.incumbent].evaluation
    points = np.array([point.u for point in state.points])
    linear = linear_basis(points, k)
    if setting.options.model == "linear":
        return [fit(linear, k, _stack(state.points, coarse=True), np.empty((0, 0)))]
    old = _useful(state, setting)
    coarse = len(current.e) >= 2 * len(points)
    residuals, old_residuals = _stack(state.points, coarse), _stack(old, coarse)
    bases = [linear]
    if old:
        bases.insert(0, quadratic_basis(linear, k, points[k], np.array([point.u for point in old])))
    return [fit(basis, k, residuals, old_residuals) for basis in bases]


def _stack(points: Sequence[Point], coarse: bool) -> Array:
    return np.array([point.evaluation.coarse if coarse else point.evaluation.r for point in points])


def _useful(state: State, setting: Setting) -> list[Point]:
    current = state.points[state.incumbent]
    useful = []
    for point in state.pool:
        if point.evaluation.cost > OUTLIER * current.evaluation.cost:
            continue
        distance = norm(point.u - current.u)
        limit = for_model(max(distance, state.delta), current.evaluation, setting.options)
        if distance <= FAR * REACH * state.delta and achieved(point.evaluation, setting.options) <= limit:
            useful.append(point)
    return useful


# Absorbing


@dataclass(frozen=True)
class _Judged:
    verdict: Verdict
    predicted: float
    origin: Array
    target: Array


def _conclude(state: State, trial: Trial, setting: Setting) -> tuple[State, _Judged]:
    """Judge the step as far as the intervals allow, and if they do, act on the verdict."""
    current = state.points[state.incumbent]
    plan = trial.plan
    options = setting.options
    verdict, ratio = judge(current.evaluation, trial.point.evaluation, plan.predicted, options)
    if verdict is Verdict.OPEN:  # what is proven stands; the policy's own errors may dismiss a step, not accept it
        ends = seen(current.evaluation, options), seen(trial.point.evaluation, options)
        if judge(*ends, plan.predicted, options)[0] is Verdict.REJECTED:
            verdict = Verdict.REJECTED
    judged = _Judged(verdict, plan.predicted, current.u, trial.point.u)
    if verdict is Verdict.OPEN:
        return state, judged
    accepted = verdict is Verdict.ACCEPTED
    delta = next_radius(ratio if accepted else min(ratio, 0.0), plan.length, state.delta, state.rho, setting.options)
    points = np.array([point.u for point in state.points])
    gradients = lagrange_gradients(points, state.incumbent)
    t = point_to_replace(points, gradients, state.incumbent, trial.point.u, state.delta, accepted)
    state = _place(replace(state, trial=None, misses=_misses(state, trial)), trial.point, t)
    return replace(state, delta=delta, incumbent=t if accepted else state.incumbent, after_failure=not accepted), judged


def _misses(state: State, trial: Trial) -> tuple[float, float]:
    quadratic, linear = (
        FORGET * miss + math.log(max(abs(foreseen - trial.point.evaluation.cost), 1e-300))
        for miss, foreseen in zip(state.misses, trial.plan.foreseen, strict=True)
    )
    return quadratic, linear


def _place(state: State, point: Point, t: int) -> State:
    pool = [*state.pool, state.points[t]][-pool_size(len(point.u)) :]
    for i in range(max(len(pool) - WARM_POOL, 0)):
        if pool[i].evaluation.solutions:
            pool[i] = replace(pool[i], evaluation=replace(pool[i].evaluation, solutions=()))
    return replace(state, points=_swapped(state.points, t, point), pool=tuple(pool))


def _swapped(points: tuple[Point, ...], t: int, point: Point) -> tuple[Point, ...]:
    return (*points[:t], point, *points[t + 1 :])


def _refined(old: Point, new: Point, within: float, setting: Setting) -> Point:
    before, after, options = old.evaluation, new.evaluation, setting.options
    better = after if achieved(after, options) <= achieved(before, options) else before
    futile = old.futile + 1 if came_to_nothing(before, after, within, options) else 0
    return Point(old.u, better, futile, abs(after.cost - before.cost))


def _record(
    before: State, after: State, pending: Pending, evaluation: Evaluation, judged: _Judged | None, setting: Setting
) -> Record:
    def theta(u: Array) -> tuple[float, ...]:
        return tuple(setting.scaling.to_theta(u).tolist())

    best = after.points[after.incumbent]
    failure = evaluation.failure
    verdict: dict[str, Any] = {}
    if judged is not None:
        verdict = {
            "predicted": judged.predicted,
            "verdict": judged.verdict.value,
            "origin": theta(judged.origin),
            "target": theta(judged.target),
        }
    return Record(
        number=len(before.records) + 1,
        purpose=pending.purpose.value,
        theta=theta(pending.u),
        within=pending.within,
        errors=tuple(evaluation.e.tolist()) if failure is None else (math.inf,) * len(evaluation.e),
        distance=evaluation.distance if failure is None else None,
        cost=evaluation.cost if failure is None else math.inf,
        interval=evaluation.interval if failure is None else (0.0, math.inf),
        work=float(evaluation.work),
        total_work=after.work,
        delta=before.delta,
        rho=before.rho,
        incumbent=theta(best.u),
        incumbent_cost=best.evaluation.cost,
        note="" if failure is None else f"{failure}: {_CONSEQUENCES[pending.purpose]}",
        **verdict,
    )


_CONSEQUENCES = {
    Purpose.FIRST: "another point takes its place",
    Purpose.GEOMETRY: "another point takes its place",
    Purpose.STEP: "the step has failed",
    Purpose.REFINE_STEP: "the step has failed",
    Purpose.REFINE_INCUMBENT: "what was known is kept",
    Purpose.REFINE_POINT: "what was known is kept",
}


def _budget(state: State, options: Options) -> Status:
    if best_point(state).evaluation.interval[1] <= options.target_cost:
        return Status.TARGET
    if len(state.records) >= options.max_evaluations:
        return Status.MAX_EVALUATIONS
    if state.work >= options.max_work:
        return Status.MAX_WORK
    if state.seconds >= options.max_seconds:
        return Status.MAX_SECONDS
    return state.status
