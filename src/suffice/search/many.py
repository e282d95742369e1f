r"""The search over many parameters: quasi-Newton steps from gradients, verdicts from proven intervals.

With m in the thousands nobody can afford m + 1 points, nor a matrix of m^2 numbers. Where the objective tells the
gradient of F (one adjoint solve, whatever m is), one evaluation makes a model:

    F(u_k + s) ~ F_k + g_k . s + s . B s / 2,     B from the gradients at the latest incumbents (`search.secant`)

is minimised over the box of the parameters and the trust region |s_i| <= delta at once, which is a box, too: bounds are
met exactly, and delta means the same for any m, a share of every parameter's own range. Without any pairs B = sigma I,
sigma the least for which the model promises no more than F itself (F >= 0), and a typical parameter moves by delta.

Gradients err by an unknown amount, and may be nonsense. Nothing rests on them but where to look next: a step is
accepted on the proven intervals of F at both ends, made as accurate as its predicted decrease asks for, exactly as
in `suffice.search.trust_region`.

A step fails because F is curved or because it has a kink on the way, beyond which the gradient is another one; where
the support of weights changes it does. Between two points of a smooth function, to third order in their distance,

    F(u + s) - F(u) = (g(u) + g(u + s)) . s / 2.

Where that holds up to SMOOTH of  (g(u + s) - g(u)) . s,  the end of the step makes one more pair for B, and the radius
falls to where the parabola through F, its slope and F at the end has its minimum. Otherwise no direction will do that
is not one of descent on both sides of the kink. With g_i the gradients at the ends of the latest KINKS steps that have
failed from u_k, no farther away than REACH delta,

    g = the shortest vector of the convex hull of g_k and all g_i     (`suffice.search.secant`),     B = sigma I

take the place of g_k and B until a step succeeds, and the radius is no more than halved: each failure adds a gradient.
If g is 0 nothing is to be gained as far as these gradients reach, and the radius is halved at once.

It ends where a model with curvature, whose latest step has not failed, has no further step worth one: CONVERGED. Steps
that fail down to LAST of the final radius though the model promised a decrease are another matter: at that length a
gradient and F agree, unless F has a kink or the gradient is wrong. That is told as KINK, never as convergence.

The strategy holds CORRECTIONS + 1 points: memory is O(m CORRECTIONS), whatever the number of evaluations. For the same
reason records of the history have no theta if there are more than 1,000 parameters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.result import Purpose, Status
from suffice.search import limit, trust_region
from suffice.search.accuracy import FIRST_LOOK, by_policy, for_decision, for_model, too_rough
from suffice.search.by_derivatives import allowed
from suffice.search.judge import SHRINK, end_to_refine, ended, next_radius, refine, verdict_on
from suffice.search.secant import Secants, minimise, shortest
from suffice.search.state import Judged, Pending, Plan, Sample, Setting, Strategy, Trial, Verdict

FEW = 64  # parameters: beyond, m + 1 points cost more than they tell, and adjoint gradients one solve
CORRECTIONS = 30  # pairs that are remembered
SHORT_STEP = 0.5  # steps shorter than this many final radii are not worth an evaluation
CUT = 0.99  # of the radius: a step that long is as short as it is because of the radius
KINKS, REACH, SMOOTH = 10, 20.0, 0.1
LAST = 0.01  # of the final radius: as short as steps get after a failure, to tell a kink from strong curvature
ROUNDING = 1e-13  # of F: a decrease that is none
SHORTEST = 0.1  # of a failed step: the least that the next one may be
NO_GRADIENT = "there is no gradient"


def begin(u: Array, setting: Setting, seen: Sequence[Evaluation] = ()) -> Strategy:
    """Before the first evaluation: by gradients over more than FEW parameters, if the options allow it."""
    if len(u) <= FEW or not allowed(setting.options):
        return trust_region.begin(u, setting, seen)
    return GradientSearch(setting.options.initial_radius, setting.options.final_radius)


@dataclass(frozen=True)
class GradientSearch:
    """The strategy for many parameters. `points` are the latest incumbents, today's last; only that one has its
    solutions."""

    delta: float
    rho: float
    points: tuple[Sample, ...] = ()
    rejected: tuple[Sample, ...] = ()  # where the latest steps from the incumbent have led in vain, the latest last
    pending: Pending | None = None
    trial: Trial | None = None
    failed: bool = False  # whether the latest step has
    stuck: bool = False  # and whether it was as short as steps get
    status: Status = Status.RUNNING

    @property
    def current(self) -> Sample:
        """The incumbent, from the first evaluation on."""
        return self.points[-1]

    def decide(self, setting: Setting) -> GradientSearch:
        """Think until an evaluation is pending or the search has ended."""
        state = self
        while state.status is Status.RUNNING and state.pending is None:
            if not state.points:
                within = for_model(state.delta, None, setting.options)
                state = replace(state, pending=Pending(Purpose.FIRST, setting.ledger.start, within))
            elif state.trial is not None:
                state = replace(state, pending=end_to_refine(state.current, None, state.trial, setting))
            else:
                state = _step(state, setting)
        if self.pending is not None or state.pending is None:
            return state
        return replace(state, pending=replace(state.pending, derivatives=True))

    def absorb(self, point: Sample, setting: Setting) -> tuple[Strategy, Judged | None]:
        """Take in the point that was pending, judge what can be judged. A start without a gradient is a trust
        region's."""
        pending, state = self.pending, replace(self, pending=None)
        assert pending is not None
        sloped = slope_of(point.evaluation) is not None
        match pending.purpose:
            case Purpose.FIRST:
                if not sloped:
                    return trust_region.begin(point.u, setting).decide(setting).absorb(point, setting)
                state = replace(state, points=(point,))
            case Purpose.REFINE_INCUMBENT:
                state = replace(state, points=(*state.points[:-1], _with_slope(point, state.current)))
            case _ if point.evaluation.failure is not None or (pending.purpose is Purpose.STEP and not sloped):
                return _go_around(state, pending.plan, point, setting)
            case Purpose.REFINE_STEP:
                assert state.trial is not None
                state = replace(state, trial=Trial(_with_slope(point, state.trial.point), state.trial.plan))
            case _:
                assert pending.plan is not None
                state = replace(state, trial=Trial(point, pending.plan))
        return _conclude(state, state.trial, setting) if state.trial is not None else (state, None)


def slope_of(evaluation: Evaluation) -> Array | None:
    """The gradient of F with respect to theta, if there is one that is finite."""
    slope = evaluation.slope
    return slope if slope is not None and bool(np.isfinite(slope).all()) else None


# Deciding


def _step(state: GradientSearch, setting: Setting) -> GradientSearch:
    scaling, options = setting.scaling, setting.options
    current = state.current
    g, B = _model(state, setting)
    l, h = np.maximum(scaling.low - current.u, -state.delta), np.minimum(scaling.high - current.u, state.delta)  # noqa: E741
    s, predicted = minimise(g, B, l, h)
    length, F = float(np.max(np.abs(s))), current.evaluation.cost
    short = B.count > 0 and length < min(SHORT_STEP * state.rho, CUT * state.delta)
    if predicted <= ROUNDING * F and state.failed and not B.count:
        delta, stuck = max(SHRINK * state.delta, LAST * state.rho), state.delta <= LAST * state.rho
        return _ended(state, setting, Status.KINK) if stuck else replace(state, delta=delta)
    if predicted <= ROUNDING * F or (short and not state.failed):
        return _ended(state, setting, Status.CONVERGED)
    if state.stuck or (state.failed and length < LAST * state.rho):
        return _ended(state, setting, Status.KINK)
    u = np.clip(current.u + s, scaling.low, scaling.high)
    if setting.rules_out(u, current):
        return replace(state, delta=SHRINK * length, failed=True, stuck=length <= LAST * state.rho)
    error = by_policy(current.evaluation, options).error
    if too_rough(error, current.moved, predicted, True) and not limit.exhausted(current, setting):
        T = FIRST_LOOK[options.policy] * predicted
        return replace(state, pending=refine(Purpose.REFINE_INCUMBENT, current, T, setting, None))
    within = limit.askable(for_decision(FIRST_LOOK[options.policy] * predicted, current.evaluation), setting)
    plan = Plan(predicted, length)
    return replace(state, pending=Pending(Purpose.STEP, u, within, current.evaluation, plan=plan))


def _gradient(point: Sample, setting: Setting) -> Array:
    """The gradient of F with respect to u."""
    slope = slope_of(point.evaluation)
    assert slope is not None
    return slope * setting.scaling.unit


def _model(state: GradientSearch, setting: Setting) -> tuple[Array, Secants]:
    """g and B: from the gradients at the latest incumbents and at the end of the latest failed step, or where that has
    met a kink from those at the ends of all failed steps nearby."""
    current, m = state.current, len(state.current.u)
    g, failed = _gradient(current, setting), state.rejected
    if failed and _kinked(current, failed[-1], setting):
        scaling = setting.scaling
        near = [point for point in failed if float(np.max(np.abs(point.u - current.u))) <= REACH * state.delta]
        held = ((current.u <= scaling.low) & (g > 0.0)) | ((current.u >= scaling.high) & (g < 0.0))
        G = np.array([g, *(_gradient(point, setting) for point in near)])
        g = np.where(held, g, shortest(np.where(held, 0.0, G)))
        return g, Secants.of(_first_curvature(g, state), [], m)
    chain = [(point.u, _gradient(point, setting)) for point in state.points]
    pairs = [(v - u, b - a) for (u, a), (v, b) in itertools.pairwise(chain)]
    pairs += [(point.u - current.u, _gradient(point, setting) - g) for point in failed[-1:]]
    return g, Secants.of(_first_curvature(g, state), pairs[-CORRECTIONS:], m)


def _first_curvature(g: Array, state: GradientSearch) -> float:
    """The sigma of a model without pairs."""
    F, sigma = state.current.evaluation.cost, float(np.mean(np.abs(g))) / state.delta
    if F > 0.0:
        sigma = max(sigma, float(g @ g) / (2.0 * F))
    return sigma if sigma > 0.0 else 1.0


def _kinked(current: Sample, end: Sample, setting: Setting) -> bool:
    """Whether F between two points is not what a smooth function of these slopes would be."""
    s, first, last = end.u - current.u, _gradient(current, setting), _gradient(end, setting)
    rise = end.evaluation.cost - current.evaluation.cost
    return abs(rise - 0.5 * float((first + last) @ s)) > SMOOTH * abs(float((last - first) @ s))


def _ended(state: GradientSearch, setting: Setting, status: Status) -> GradientSearch:
    return replace(state, status=ended(state.current, setting, status))


# Absorbing


def _with_slope(refined: Sample, before: Sample) -> Sample:
    """A refined point, with the gradient it had where it has none any more."""
    if slope_of(refined.evaluation) is not None:
        return refined
    slope = slope_of(before.evaluation)
    return replace(refined, evaluation=replace(refined.evaluation, jacobian=None, gradient=slope))


def _go_around(
    state: GradientSearch, plan: Plan | None, point: Sample, setting: Setting
) -> tuple[GradientSearch, Judged]:
    """There are no finite residuals, or no gradient, at the pending point: it is no place to go to."""
    plan = plan if state.trial is None else state.trial.plan
    assert plan is not None
    delta = next_radius(-math.inf, plan.length, state.delta, LAST * state.rho)
    note = f"{NO_GRADIENT}: the step has failed" if point.evaluation.failure is None else ""
    judged = Judged(Verdict.REJECTED, plan.predicted, state.current.u, point.u, note)
    stuck = plan.length <= LAST * state.rho
    return replace(state, delta=delta, trial=None, failed=True, stuck=stuck), judged


def _conclude(state: GradientSearch, trial: Trial, setting: Setting) -> tuple[GradientSearch, Judged]:
    """Judge the step as far as the intervals allow, and if they do, act on the verdict."""
    current, plan = state.current, trial.plan
    verdict, ratio = verdict_on(current, trial, setting)
    judged = Judged(verdict, plan.predicted, current.u, trial.point.u)
    if verdict is Verdict.OPEN:
        return state, judged
    state = replace(state, trial=None)
    if verdict in (Verdict.ACCEPTED, Verdict.LIKELY):
        delta = next_radius(ratio, plan.length, state.delta, LAST * state.rho)
        points = (*(_light(point) for point in state.points[-CORRECTIONS:]), trial.point)
        return replace(state, delta=delta, points=points, rejected=(), failed=False), judged
    delta = next_radius(min(ratio, 0.0), plan.length, state.delta, LAST * state.rho)
    if not _kinked(current, trial.point, setting):
        delta = min(delta, _parabola(current, trial.point, setting) * plan.length)
    delta = max(delta, LAST * state.rho)
    stuck = plan.length <= LAST * state.rho
    rejected = (*state.rejected, _light(trial.point))[-KINKS:]
    state = replace(state, delta=delta, rejected=rejected, failed=True, stuck=stuck)
    if verdict is Verdict.UNLIKELY and plan.length <= state.rho:  # a gain that cannot be told from errors
        state = _ended(state, setting, Status.CONVERGED)
    return state, judged


def _parabola(current: Sample, end: Sample, setting: Setting) -> float:
    """Where the parabola through F and its slope at a step's start, and F at its end, is least; in steps."""
    slope = float(_gradient(current, setting) @ (end.u - current.u))
    rise = end.evaluation.cost - current.evaluation.cost - slope
    return max(-0.5 * slope / rise, SHORTEST) if rise > 0.0 and slope < 0.0 else SHRINK


def _light(point: Sample) -> Sample:
    """A point for what it tells of curvature: without its solutions, a gradient for its Jacobian."""
    made = point.evaluation
    if not made.solutions and made.J is None:
        return point
    return replace(point, evaluation=replace(made, solutions=(), jacobian=None, gradient=made.slope))
