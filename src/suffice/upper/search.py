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
from suffice.upper.geometry import farthest, first_points, improving_point, point_to_replace
from suffice.upper.interpolation import lagrange_gradients
from suffice.upper.judge import Verdict, judge, next_radius, next_rho
from suffice.upper.model import Model, fit, linear_basis, minimise, quadratic_basis
from suffice.upper.scaling import Scaling
from suffice.upper.sparsity import (
    Flags,
    Known,
    Supports,
    fit_sparse,
    independent,
    open_slopes,
    others,
    probe,
    refuted,
    some,
    supports,
)
from suffice.upper.warm import warm_start

SHORT_STEP = 0.5  # steps shorter than this many rho are not worth an evaluation (published implementation)
FAR = 1.0 + 1e-9  # halved radii put points at exactly twice the radius: rounding must not decide
REACH = 10.0  # old points further away (in trust radii) say nothing about the model
OUTLIER = 100.0  # nor do points where F is this many times larger
FORGET = 0.5  # how much an older step counts when the two models are compared
RECENT = 60  # how many of the latest old points a sparse model looks at
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
    promise: float = math.inf  # the decrease that the latest step promised
    pool: tuple[Point, ...] = ()
    records: tuple[Record, ...] = ()
    work: float = 0.0
    seconds: float = 0.0
    status: Status = Status.RUNNING
    sparsity: Supports | None = None  # the few parameters of every residual, as far as they have not been refuted
    checked: float = math.inf  # the rho at which that was tested last


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
    after, judged = _take_in(known, pending, point, setting)
    record = _record(state, after, pending, evaluation, judged, setting)
    after = replace(after, records=(*state.records, record))
    return replace(after, status=_budget(after, setting.options))


def _take_in(state: State, pending: Pending, point: Point, setting: Setting) -> tuple[State, _Judged | None]:
    match pending.purpose:
        case Purpose.FIRST:
            points = (*state.points, point)
            best = min(range(len(points)), key=lambda t: points[t].evaluation.cost)
            state = replace(state, first=state.first[1:], points=points, incumbent=best)
            return _look_for_sparsity(state, setting), None
        case Purpose.GEOMETRY:
            assert pending.replaces is not None
            current = state.points[state.incumbent].evaluation
            better = seen(point.evaluation, setting.options).interval[1] < seen(current, setting.options).interval[0]
            state = _place(_test_sparsity(state, point), point, pending.replaces)
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


# Deciding


def _ask_first(state: State, setting: Setting) -> State:
    known = state.points[0].evaluation if state.points else None
    within = for_model(state.delta, known, setting.options)
    return _ask(state, Purpose.FIRST, state.first[0], within)


def _step(state: State, setting: Setting) -> State:
    scaling, options = setting.scaling, setting.options
    current = state.points[state.incumbent]
    if state.sparsity is not None and state.checked == math.inf and len(state.records) > len(state.points):
        moves = some(state.sparsity, len(state.points) - 1, len(state.records))
        return _probe(replace(state, checked=state.rho), moves, state.delta, setting)
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
    if state.sparsity is not None:
        asked = _probe_sparsity(state, state.sparsity, setting, short)
        if asked is not None:
            return asked
    t, distance = farthest(points, state.incumbent)
    if state.sparsity is None and distance > FAR * max(2.0 * state.delta, 10.0 * state.rho):
        radius = max(min(0.1 * distance, state.delta), state.rho)
        gradients = lagrange_gradients(points, state.incumbent)
        u = improving_point(points, gradients, state.incumbent, t, radius, scaling.low, scaling.high)
        return _ask(state, Purpose.GEOMETRY, u, first_look(state.promise, radius, current, options), replaces=t)
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


def _models(state: State, setting: Setting) -> Sequence[Model]:
    """The competing models, the one to start with first; the paper's alone if it is asked for."""
    if state.sparsity is not None:
        return fit_sparse(state.sparsity, _known(state), state.delta)[:2]
    k, points = state.incumbent, np.array([point.u for point in state.points])
    linear = linear_basis(points, k)
    if setting.options.model == "linear":
        return [fit(linear, k, _stack(state.points, coarse=True), np.empty((0, 0)))]
    old = _useful(state, setting)
    coarse = is_coarse(state)
    residuals, old_residuals = _stack(state.points, coarse), _stack(old, coarse)
    bases = [linear]
    if old:
        bases.insert(0, quadratic_basis(linear, k, points[k], np.array([point.u for point in old])))
    return [fit(basis, k, residuals, old_residuals) for basis in bases]


# Sparsity


def _look_for_sparsity(state: State, setting: Setting) -> State:
    if state.first or setting.options.model == "linear":
        return state
    points = np.array([point.u for point in state.points])
    return replace(state, sparsity=supports(points, _stack(state.points, is_coarse(state))))


def _test_sparsity(state: State, point: Point) -> State:
    """Sparsity that a new evaluation refutes is forgotten."""
    S, current = state.sparsity, state.points[state.incumbent]
    if S is None:
        return state
    coarse = is_coarse(state)
    old, new = _stack([current, point], coarse)
    blur = current.evaluation.e + point.evaluation.e if len(old) == len(current.evaluation.e) else 0.0
    if refuted(S, current.u, point.u, np.abs(new - old) > blur):
        return replace(state, sparsity=None, misses=(0.0, 0.0))
    return state


def _probe_sparsity(state: State, S: Supports, setting: Setting, short: bool) -> State | None:
    """After a failed or short step: settle slopes that are open, and before rho is reduced test the sparsity."""
    known, m = _known(state), len(state.points) - 1
    wanted = open_slopes(S, known, FAR * 2.0 * state.delta)
    if wanted.any():
        return _probe(state, independent(S, wanted), min(state.delta, 10.0 * state.rho), setting)
    if state.checked > state.rho and (short or state.delta <= state.rho):
        worst = int(np.argmax(fit_sparse(S, known, state.delta)[2]))
        return _probe(replace(state, checked=state.rho), others(S, worst, m), state.rho, setting)
    return None


def _probe(state: State, moves: Flags, radius: float, setting: Setting) -> State:
    scaling, k = setting.scaling, state.incumbent
    points = np.array([point.u for point in state.points])
    u = probe(points[k], moves, radius, scaling.low, scaling.high, len(state.records))
    t = point_to_replace(points, lagrange_gradients(points, k), k, u, radius, False)
    within = first_look(state.promise, radius, state.points[k].evaluation, setting.options)
    return _ask(state, Purpose.GEOMETRY, u, within, replaces=t)


def _known(state: State) -> Known:
    known = [*state.points, *state.pool[-RECENT:]]
    moved = np.array([point.evaluation.point for point in known]) != np.array(state.records[0].theta)
    residuals = _stack(known, is_coarse(state))
    return Known(np.array([point.u for point in known]), residuals, moved, state.incumbent)


def is_coarse(state: State) -> bool:
    """Whether there are blocks enough for a model of their norms."""
    return len(state.points[state.incumbent].evaluation.e) >= 2 * len(state.points)


def _stack(points: Sequence[Point], coarse: bool) -> Array:
    return np.array([point.evaluation.coarse if coarse else point.evaluation.r for point in points])


def _useful(state: State, setting: Setting) -> list[Point]:
    current = state.points[state.incumbent]
    if not state.pool:
        return []
    useful = []
    distances = np.linalg.norm(np.array([point.u for point in state.pool]) - current.u, axis=1)
    for point, distance in zip(state.pool, distances.tolist(), strict=True):
        if distance > FAR * REACH * state.delta or point.evaluation.cost > OUTLIER * current.evaluation.cost:
            continue
        limit = for_model(max(distance, state.delta), current.evaluation, setting.options)
        if achieved(point.evaluation, setting.options) <= limit:
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
        errors=tuple(evaluation.e.tolist()),
        distance=evaluation.distance,
        cost=evaluation.cost,
        interval=evaluation.interval,
        work=float(evaluation.work),
        total_work=after.work,
        delta=before.delta,
        rho=before.rho,
        incumbent=theta(best.u),
        incumbent_cost=best.evaluation.cost,
        **verdict,
    )


def _budget(state: State, options: Options) -> Status:
    best = state.points[state.incumbent].evaluation
    if best.interval[1] <= options.target_cost:
        return Status.TARGET
    if len(state.records) >= options.max_evaluations:
        return Status.MAX_EVALUATIONS
    if state.work >= options.max_work:
        return Status.MAX_WORK
    if state.seconds >= options.max_seconds:
        return Status.MAX_SECONDS
    return state.status
