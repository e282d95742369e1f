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
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.result import Purpose, Status
from suffice.search import by_derivatives, limit, looks, noise
from suffice.search.accuracy import (
    FIRST_LOOK,
    REFINEMENT,
    achieved,
    first_look,
    for_decision,
    for_model,
    for_point,
    seen,
    too_rough,
)
from suffice.search.fitting import FAR, competing_models, influences, is_coarse, known_points, smoothed_model, stack
from suffice.search.geometry import (
    across,
    elsewhere,
    farthest,
    first_points,
    improving_point,
    point_to_replace,
    unseen,
)
from suffice.search.interpolation import lagrange_gradients
from suffice.search.judge import Verdict, next_radius, next_rho
from suffice.search.model import CostModel, fit, linear_basis, minimise, thrifty
from suffice.search.settle import end_to_refine, ended, refine, verdict_on
from suffice.search.sparsity import (
    Flags,
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
from suffice.search.state import (
    WARM_POOL,
    Judged,
    Pending,
    Plan,
    Point,
    Setting,
    State,
    Trial,
    placed,
    pooled,
    remembered,
    swapped,
)
from suffice.search.warm import warm_start

SHORT_STEP = 0.5  # steps shorter than this many rho are not worth an evaluation (published implementation)
FORGET = 0.5  # how much an older step counts when the two models are compared
LOOKS = 3  # how often a search may look along flat directions before it ends
CLOSE = 0.3  # of initial_radius: the largest rho at which a model tells what is left to gain


class TrustRegion(State):
    """The strategy for few parameters."""

    def decide(self, setting: Setting) -> TrustRegion:
        """Think until an evaluation is pending or the search has ended."""
        state = self
        while state.status is Status.RUNNING and state.pending is None:
            if state.first and not state.by_derivatives:
                state = _ask_first(state, setting)
            elif state.unseen:
                state = _ask_unseen(state, setting)
            elif state.nothing_unseen:
                state = _ended(state, setting)
            elif state.trial is not None:
                state = replace(state, pending=end_to_refine(state.current, state.incumbent, state.trial, setting))
            elif state.after_failure:
                state = _mend(replace(state, after_failure=False), setting)
            else:
                state = _step(state, setting)
        pending = state.pending
        if self.pending is not None or pending is None:
            return state
        # A look elsewhere is one at a value, unless it is better; and a test of derivatives goes without them.
        below = state.current.evaluation.interval[0] if pending.purpose is Purpose.UNSEEN else math.inf
        wanted = pending.purpose is not Purpose.TEST and by_derivatives.wanted(state, setting)
        return replace(state, pending=replace(pending, derivatives=wanted, below=below))

    def absorb(self, point: Point, setting: Setting) -> tuple[TrustRegion, Judged | None]:
        """Take in the point that was pending, judge what can be judged."""
        assert self.pending is not None
        take = _take_in if point.evaluation.failure is None else _go_around
        return take(replace(self, pending=None), self.pending, point, setting)


def begin(u: Array, setting: Setting, seen: Sequence[Evaluation] = ()) -> TrustRegion:
    """Before the first evaluation."""
    scaling, options = setting.scaling, setting.options
    first = first_points(u, options.initial_radius, scaling.low, scaling.high, options.seed)
    pool = remembered(u, seen, scaling)
    return TrustRegion(options.initial_radius, options.initial_radius, tuple(first), pool=pool)


def _take_in(state: TrustRegion, pending: Pending, point: Point, setting: Setting) -> tuple[TrustRegion, Judged | None]:
    match pending.purpose:
        case Purpose.FIRST:
            points = (*state.points, point)
            best = min(range(len(points)), key=lambda t: points[t].evaluation.cost)
            state = replace(state, first=state.first[1:], points=points, incumbent=best, retries=0)
            if len(points) == 1:
                state = by_derivatives.take_up(state, setting)
            return _look_for_sparsity(state, setting), None
        case Purpose.GEOMETRY:
            assert pending.replaces is not None
            current = state.current.evaluation
            better = seen(point.evaluation, setting.options).interval[1] < seen(current, setting.options).interval[0]
            state = placed(_test_sparsity(replace(state, retries=0), point), point, pending.replaces)
            return replace(state, incumbent=pending.replaces) if better else state, None
        case Purpose.UNSEEN:
            return _look(state, point, setting), None
        case Purpose.TEST:
            return by_derivatives.after_test(state, point, setting), None
        case Purpose.REFINE_INCUMBENT | Purpose.REFINE_POINT:
            assert pending.replaces is not None
            state = replace(state, points=swapped(state.points, pending.replaces, point))
        case Purpose.REFINE_STEP:
            assert state.trial is not None
            state = replace(state, trial=Trial(point, state.trial.plan))
        case Purpose.STEP:
            assert state.plan is not None
            state = replace(state, trial=Trial(point, state.plan), plan=None)
    return (state, None) if state.trial is None else _conclude(state, state.trial, setting)


def _go_around(
    state: TrustRegion, pending: Pending, point: Point, setting: Setting
) -> tuple[TrustRegion, Judged | None]:
    """There are no finite residuals at the pending point: nothing of it enters a model."""
    match pending.purpose:
        case Purpose.FIRST:
            return replace(state, retries=state.retries + 1), None
        case Purpose.GEOMETRY:
            return replace(state, retries=state.retries + 1, after_failure=True), None
        case Purpose.UNSEEN:
            return _seen_in_vain(state, setting), None
        case Purpose.TEST:
            return by_derivatives.give_up(state, setting), None
    plan = state.plan if state.trial is None else state.trial.plan
    assert plan is not None
    delta = next_radius(-math.inf, plan.length, state.delta, state.rho, setting.options)
    judged = Judged(Verdict.REJECTED, plan.predicted, state.current.u, point.u)
    state = replace(state, delta=delta, plan=None, trial=None, after_failure=True)
    return (by_derivatives.failed(state, plan, setting) if state.by_derivatives else state), judged


# Deciding


def _ask_first(state: TrustRegion, setting: Setting) -> TrustRegion:
    if not state.points:
        return _ask(state, Purpose.FIRST, state.first[0], _first_within(state, setting), setting)
    start = state.points[0]
    within = for_model(state.delta, start.evaluation, setting.options)
    return _ask_near(state, setting, Purpose.FIRST, start.u, state.first[0], within)


def _ask_unseen(state: TrustRegion, setting: Setting) -> TrustRegion:
    """A look elsewhere, as accurate as its distance is worth; none where F is known beforehand not to be less."""
    u, current = state.unseen[0], state.current
    if setting.rules_out(u, current):
        return _seen_in_vain(state, setting)
    share = min(looks.WORTH * norm(u - current.u) / setting.options.initial_radius, looks.MOST_WORTH)
    return _ask(state, Purpose.UNSEEN, u, for_decision(share * current.evaluation.cost, current.evaluation), setting)


def _first_within(state: TrustRegion, setting: Setting) -> float:
    """The accuracy of the very first evaluation, when nothing is known of F but what `lower_bound` tells."""
    bound, theta = setting.lower_bound, setting.scaling.to_theta(state.first[0])
    return for_model(state.delta, None, setting.options, 0.0 if bound is None else bound(theta))


def _step(state: TrustRegion, setting: Setting) -> TrustRegion:
    scaling, options = setting.scaling, setting.options
    current = state.current
    if state.sparsity is not None and state.checked == math.inf and len(setting.ledger.records) > len(state.points):
        moves = some(state.sparsity, len(state.points) - 1, len(setting.ledger.records))
        return _probe(replace(state, checked=state.rho), moves, state.delta, setting)
    places = across(current.u, scaling.low, scaling.high) if state.looked == 0 else []
    if places and _on_a_plateau(state, setting):
        return replace(state, unseen=tuple(places), looked=1)
    if state.by_derivatives and (limit.noisy(setting) or not by_derivatives.known(current.evaluation)):
        at_last = state.rho <= options.final_radius and options.noise is None
        return _ended(state, setting) if at_last else by_derivatives.give_up(state, setting)
    fitted = None
    models: Sequence[CostModel]
    if limit.noisy(setting):
        state, fitted = smoothed_model(state, setting)
        current, models = state.current, [fitted.model]
    elif state.by_derivatives:
        models = by_derivatives.competing(state, setting)
    else:
        models = competing_models(state, setting)
    models = [*models, *[models[-1]] * (len(state.misses) - len(models))][: len(state.misses)]
    model = models[min(range(len(models)), key=lambda i: state.misses[i])]
    room = scaling.low - current.u, scaling.high - current.u
    if state.by_derivatives:
        s, predicted = thrifty(model, state.delta, *room, by_derivatives.THRIFT)
    else:
        s, predicted = minimise(model, state.delta, *room)
    u, length = np.clip(current.u + s, scaling.low, scaling.high), norm(s)
    state = replace(state, promise=predicted if predicted > 0.0 else state.promise)
    if places and predicted <= looks.WORTH * current.evaluation.cost and looks.untouched(state, setting):
        return replace(state, unseen=tuple(places), looked=1)
    if fitted is not None and predicted <= fitted.doubt(s):
        return _restart(state, fitted, setting)
    short = predicted <= 0.0 or (length < SHORT_STEP * state.rho and not _last_to_a_bound(state, u, setting))
    if _suffices(state, predicted, short, setting):
        return replace(state, status=Status.SUFFICES)
    if short:
        return _mend(replace(state, delta=max(options.shrink * state.delta, state.rho)), setting, short=True)
    if setting.rules_out(u, current):
        if state.delta > state.rho:
            return replace(state, delta=max(options.shrink * min(length, state.delta), state.rho))
        return _mend(state, setting, short=True)
    shares = influences(state, u, options)
    for t in (state.incumbent, *range(len(state.points))):
        point = state.points[t]
        error = shares[t] * seen(point.evaluation, options).error
        rough = too_rough(error, point.moved, predicted, t == state.incumbent)
        if rough and not limit.exhausted(point, setting):
            purpose = Purpose.REFINE_INCUMBENT if t == state.incumbent else Purpose.REFINE_POINT
            T = FIRST_LOOK[options.policy] * predicted / shares[t]
            return replace(state, pending=refine(purpose, point, T, setting, t))
    within = first_look(predicted, state.delta, current.evaluation, options)
    foreseen = tuple(model.value(s) for model in models)
    plan = Plan(predicted, length, foreseen)
    if fitted is not None:
        plan = replace(plan, noise=fitted.eps, origin=fitted.smoothed[state.incumbent] + fitted.bias)
    state = replace(state, plan=plan)
    return _ask(state, Purpose.STEP, u, within, setting)


def _on_a_plateau(state: TrustRegion, setting: Setting) -> bool:
    """Whether nothing at all depends on theta as far as the first evaluations tell, by values or by derivatives; values
    that are errors for the most part tell nothing."""
    if setting.options.noise is not None or len(setting.ledger.records) > len(state.points):
        return False
    start = state.points[0].evaluation
    if any(point.evaluation.error > looks.WORTH * start.cost for point in state.points):
        return False
    if state.by_derivatives:
        return start.J is not None and not start.J.any()
    change = max(norm(point.evaluation.r - start.r) for point in state.points)
    return len(state.points) > 1 and change <= looks.ROUNDING * norm(start.r)


def _suffices(state: TrustRegion, predicted: float, short: bool, setting: Setting) -> bool:
    """Whether nothing worth an evaluation is promised on a radius small enough to tell: by this model, whose step is
    too short to be made, or by this one and the one of the latest step that was tried."""
    options = setting.options
    if not 0.0 < options.enough >= predicted or state.rho > CLOSE * options.initial_radius:
        return False
    promised = (record.predicted for record in reversed(setting.ledger.records) if record.predicted is not None)
    return short or next(promised, math.inf) <= options.enough


def _last_to_a_bound(state: TrustRegion, u: Array, setting: Setting) -> bool:
    """Whether a step, however short, meets a bound when nothing else is left to do: a point next to an optimal bound is
    not on it."""
    at, scaling = state.current.u, setting.scaling
    meets = ((u <= scaling.low) & (at > scaling.low)) | ((u >= scaling.high) & (at < scaling.high))
    return state.rho <= setting.options.final_radius and bool(meets.any())


def _mend(state: TrustRegion, setting: Setting, short: bool = False) -> TrustRegion:
    """After a failed or short step: bring a far point near, refresh a stale one, or else reduce rho."""
    scaling, options = setting.scaling, setting.options
    points = np.array([point.u for point in state.points])
    current = state.current.evaluation
    if state.sparsity is not None:
        asked = _probe_sparsity(state, state.sparsity, setting, short)
        if asked is not None:
            return asked
    t, distance = farthest(points, state.incumbent)
    if (
        not state.by_derivatives
        and state.sparsity is None
        and distance > FAR * max(2.0 * state.delta, 10.0 * state.rho)
    ):
        radius = max(min(0.1 * distance, state.delta), state.rho)
        gradients = lagrange_gradients(points, state.incumbent)
        u = improving_point(points, gradients, state.incumbent, t, radius, scaling.low, scaling.high)
        within = for_model(radius, current, options)
        return _ask_near(state, setting, Purpose.GEOMETRY, points[state.incumbent], u, within, replaces=t)
    distances = np.linalg.norm(points - points[state.incumbent], axis=1)
    for t, (point, distance) in enumerate(zip(state.points, distances.tolist(), strict=True)):
        needed = for_point(state.delta, distance, current, options)
        if achieved(point.evaluation, options) > needed and not limit.exhausted(point, setting):
            # A short step stays short while delta falls to rho: what is needed there is asked for at once.
            radius = state.rho if short else state.delta
            goal = REFINEMENT * for_point(radius, distance, current, options)
            within = limit.askable(goal, setting)
            pending = Pending(Purpose.REFINE_POINT, point.u, within, point.evaluation, t, refines=point)
            return replace(state, pending=pending)
    if not short and state.delta > state.rho:
        return state
    if state.rho <= options.final_radius and state.by_derivatives and not state.tested:
        return _test_derivatives(state, setting)
    if state.rho <= options.final_radius and limit.noisy(setting) and _unsure(state, setting):
        state, fitted = smoothed_model(state, setting)
        return _restart(state, fitted, setting)
    at_last, rho = state.rho <= options.final_radius, next_rho(state.rho, options.final_radius)
    places = _flat(state, setting) if at_last and state.looked < LOOKS and not limit.noisy(setting) else []
    near = rho < looks.NEAR * options.initial_radius
    if at_last or near:
        state, places = looks.nearby(state, setting, places, near)
    if places:
        return replace(state, unseen=tuple(places), looked=state.looked + at_last)
    if at_last:
        return _ended(state, setting)
    return replace(state, rho=rho, delta=max(0.5 * state.rho, rho))


def _flat(state: TrustRegion, setting: Setting) -> list[Array]:
    """Points along directions in which the model is flat."""
    k, scaling = state.incumbent, setting.scaling
    u, F = state.points[k].u, state.points[k].evaluation.cost
    if state.by_derivatives:
        squared = by_derivatives.squared(state, setting)
    else:
        points = np.array([point.u for point in state.points])
        model = fit(linear_basis(points, k), k, stack(state.points, coarse=False), np.empty((0, 0)))
        squared = 0.5 * model.derivatives(np.zeros(len(u)))[1]
    return unseen(u, squared, F, setting.options.initial_radius, scaling.low, scaling.high)


def _test_derivatives(state: TrustRegion, setting: Setting) -> TrustRegion:
    if limit.noisy(setting) or not by_derivatives.known(state.points[0].evaluation):
        return by_derivatives.give_up(state, setting)
    u, within = by_derivatives.test(state, setting)
    return _ask(state, Purpose.TEST, u, within, setting)


def _look(state: TrustRegion, point: Point, setting: Setting) -> TrustRegion:
    """A point elsewhere: if F is proven to be less there, the search goes on from it, with first points of its own if
    that is more than next to nothing. What is still on a plateau that the search wants to leave is nothing."""
    current = state.current
    gain = current.evaluation.interval[0] - point.evaluation.interval[1]
    still = looks.untouched(state, setting) and looks.same(point.evaluation, current.evaluation)
    if still or gain <= looks.ROUNDING * current.evaluation.cost:
        return _seen_in_vain(replace(state, pool=pooled(state.pool, [point])), setting)
    radius = min(setting.options.initial_radius, norm(point.u - current.u))
    if gain > looks.LITTLE * current.evaluation.cost or state.by_derivatives:
        return _begin_at(point, radius, state, setting)
    points = np.array([one.u for one in state.points])
    t = point_to_replace(points, lagrange_gradients(points, state.incumbent), state.incumbent, point.u, radius, True)
    return replace(placed(state, point, t), incumbent=t, delta=radius, unseen=())


def _begin_at(point: Point, radius: float, state: TrustRegion, setting: Setting) -> TrustRegion:
    scaling = setting.scaling
    first = first_points(point.u, radius, scaling.low, scaling.high, setting.options.seed)[1:]
    begun = replace(state, delta=radius, rho=radius, first=tuple(first), unseen=())
    if state.by_derivatives:
        begun = by_derivatives.begin(begun) if by_derivatives.known(point.evaluation) else by_derivatives.end(begun)
    return replace(begun, points=(point,), incumbent=0, pool=pooled(state.pool, list(state.points)))


def _seen_in_vain(state: TrustRegion, setting: Setting) -> TrustRegion:
    """A look has found nothing. After the last one before its end the search ends; from a plateau that it has begun on
    it goes on as from anywhere else."""
    at_the_end = state.rho <= setting.options.final_radius
    return replace(state, unseen=state.unseen[1:], nothing_unseen=at_the_end and len(state.unseen) == 1)


def _ended(state: TrustRegion, setting: Setting) -> TrustRegion:
    """The radius has come down: converged, if the accuracy was enough to say so."""
    return replace(state, status=ended(state.current, setting, Status.CONVERGED))


def _unsure(state: TrustRegion, setting: Setting) -> bool:
    """Whether noise may hide something worth a restart: F is neither negligible nor known to rounding."""
    best, options = setting.ledger.better(state.current).evaluation, setting.options
    known = options.noise is None and seen(best, options).error <= noise.ROUNDING * best.cost
    return best.cost > noise.NOTHING * setting.ledger.records[0].cost and not known


def _restart(state: TrustRegion, fitted: noise.Fit, setting: Setting) -> TrustRegion:
    """Look again from the incumbent, on a larger radius and along other directions."""
    scaling, options = setting.scaling, setting.options
    current = state.current
    reached = float(fitted.smoothed[state.incumbent])
    gain = max(noise.GAIN * fitted.eps, noise.NOTHING * setting.ledger.records[0].cost)
    in_vain = 0 if reached < state.mark - gain else state.in_vain + 1
    best = seen(setting.ledger.better(state.current).evaluation, options)
    if in_vain > noise.IN_VAIN or not _unsure(state, setting):
        progress = best.interval[1] < setting.ledger.records[0].interval[0]
        known = options.noise is not None or progress or best.error <= 0.1 * best.cost
        return replace(state, status=Status.NOISE if known else Status.ACCURACY)
    delta = noise.next_radius(state.delta, in_vain, options)
    seed = state.restarts + 1 + 1000 * (options.seed or 0)
    first = first_points(current.u, delta, scaling.low, scaling.high, seed)[1:]
    others = [point for t, point in enumerate(state.points) if t != state.incumbent]
    return replace(
        state,
        delta=delta,
        rho=delta,
        first=tuple(first),
        points=(current,),
        incumbent=0,
        pool=pooled(state.pool, others),
        restarts=state.restarts + 1,
        in_vain=in_vain,
        mark=reached,
    )


def _ask(
    state: TrustRegion, purpose: Purpose, u: Array, within: float, setting: Setting, replaces: int | None = None
) -> TrustRegion:
    known = [(point.u, point.evaluation) for point in state.points]
    older = [(point.u, point.evaluation) for point in state.pool[-WARM_POOL:]]
    warm = warm_start(u, known, state.incumbent, older)
    return replace(state, pending=Pending(purpose, u, limit.askable(within, setting), warm, replaces))


def _ask_near(
    state: TrustRegion,
    setting: Setting,
    purpose: Purpose,
    centre: Array,
    u: Array,
    within: float,
    replaces: int | None = None,
) -> TrustRegion:
    """Ask for a point of the model, or as often as there were no finite residuals, for another one on its line."""
    places = elsewhere(centre, u, setting.scaling.low, setting.scaling.high)
    if state.retries >= len(places):
        return replace(state, status=Status.NOT_FINITE)
    return _ask(state, purpose, places[state.retries], within, setting, replaces)


# Sparsity


def _look_for_sparsity(state: TrustRegion, setting: Setting) -> TrustRegion:
    if state.first or setting.options.model == "linear" or setting.options.noise is not None:
        return state
    if state.failures:  # supports are told by points around the start, and these are not
        return state
    points = np.array([point.u for point in state.points])
    return replace(state, sparsity=supports(points, stack(state.points, is_coarse(state))))


def _test_sparsity(state: TrustRegion, point: Point) -> TrustRegion:
    """Sparsity that a new evaluation refutes is forgotten."""
    S, current = state.sparsity, state.current
    if S is None:
        return state
    coarse = is_coarse(state)
    old, new = stack([current, point], coarse)
    blur = current.evaluation.e + point.evaluation.e if len(old) == len(current.evaluation.e) else 0.0
    if refuted(S, current.u, point.u, np.abs(new - old) > blur):
        return replace(state, sparsity=None, misses=(0.0, 0.0))
    return state


def _probe_sparsity(state: TrustRegion, S: Supports, setting: Setting, short: bool) -> TrustRegion | None:
    """After a failed or short step: settle slopes that are open, and before rho is reduced test the sparsity."""
    known, m = known_points(state, setting), len(state.points) - 1
    wanted = open_slopes(S, known, FAR * 2.0 * state.delta)
    if wanted.any():
        return _probe(state, independent(S, wanted), min(state.delta, 10.0 * state.rho), setting)
    if state.checked > state.rho and (short or state.delta <= state.rho):
        worst = int(np.argmax(fit_sparse(S, known, state.delta)[2]))
        return _probe(replace(state, checked=state.rho), others(S, worst, m), state.rho, setting)
    return None


def _probe(state: TrustRegion, moves: Flags, radius: float, setting: Setting) -> TrustRegion:
    scaling, k = setting.scaling, state.incumbent
    points = np.array([point.u for point in state.points])
    u = probe(points[k], moves, radius, scaling.low, scaling.high, len(setting.ledger.records))
    t = point_to_replace(points, lagrange_gradients(points, k), k, u, radius, False)
    within = for_model(radius, state.points[k].evaluation, setting.options)
    return _ask(state, Purpose.GEOMETRY, u, within, setting, t)


# Absorbing


def _conclude(state: TrustRegion, trial: Trial, setting: Setting) -> tuple[TrustRegion, Judged]:
    """Judge the step as far as the intervals allow, and if they do, act on the verdict."""
    current = state.current
    plan, options = trial.plan, setting.options
    verdict, ratio = verdict_on(current, trial, setting)
    judged = Judged(verdict, plan.predicted, current.u, trial.point.u)
    if verdict is Verdict.OPEN:
        return state, judged
    accepted = verdict in (Verdict.ACCEPTED, Verdict.LIKELY)
    if not accepted:
        ratio = min(ratio, options.eta2 if verdict is Verdict.UNLIKELY else 0.0)
    delta = next_radius(ratio, plan.length, state.delta, state.rho, setting.options)
    state = replace(state, trial=None, misses=_misses(state, trial))
    if state.by_derivatives:
        state = replace(state, delta=delta, after_failure=not accepted)
        return by_derivatives.after_step(state, trial, accepted, ratio > options.eta2, setting), judged
    points = np.array([point.u for point in state.points])
    gradients = lagrange_gradients(points, state.incumbent)
    t = point_to_replace(points, gradients, state.incumbent, trial.point.u, state.delta, accepted)
    state = placed(state, trial.point, t)
    return replace(state, delta=delta, incumbent=t if accepted else state.incumbent, after_failure=not accepted), judged


def _misses(state: TrustRegion, trial: Trial) -> tuple[float, ...]:
    return tuple(
        FORGET * miss + math.log(max(abs(foreseen - trial.point.evaluation.cost), 1e-300))
        for miss, foreseen in zip(state.misses, trial.plan.foreseen, strict=True)
    )
