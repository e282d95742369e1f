r"""The search over many parameters: quasi-Newton steps from gradients, verdicts from proven intervals.

With m in the thousands nobody can afford m + 1 points, nor a matrix of m^2 numbers. Where the objective tells the
gradient of F (one adjoint solve, whatever m is), one evaluation makes a model:

    F(u_k + s) ~ F_k + g_k . s + s . B s / 2,     B from the gradients at the latest incumbents (below)

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

    g = the shortest vector of the convex hull of g_k and all g_i     (below),     B = sigma I

take the place of g_k and B until a step succeeds, and the radius is no more than halved: each failure adds a gradient.
If g is 0 nothing is to be gained as far as these gradients reach, and the radius is halved at once.

It ends where a model with curvature, whose latest step has not failed, has no further step worth one: CONVERGED. Steps
that fail down to LAST of the final radius though the model promised a decrease are another matter: at that length a
gradient and F agree, unless F has a kink or the gradient is wrong. That is told as KINK, never as convergence.

The strategy holds CORRECTIONS + 1 points: memory is O(m CORRECTIONS), whatever the number of evaluations. For the same
reason records of the history have no theta if there are more than 1,000 parameters.

A quadratic model of F from gradients alone, in memory O(m), and its minimiser in a box.

The gradients at c + 1 points give c pairs  s_i = u_{i+1} - u_i,  y_i = g_{i+1} - g_i.  BFGS updates of sigma I by these
pairs, the oldest first, are in compact form (Byrd, Nocedal and Schnabel, Math. Program. 63, 1994)

    B = sigma I - W M^-1 W^T,     W = [Y, sigma S],     M = [ -D   L^T          ]     L_ij = s_i . y_j  for i > j,
                                                           [  L   sigma S^T S  ]     D_ii = s_i . y_i,

with sigma = y.y / s.y of the latest pair. B is positive definite if all s_i . y_i > 0; pairs without are left out:
where F is concave the model has no minimiser of its own, and the trust region ends the step.

The model  q(s) = g.s + s.Bs/2  is minimised over  l <= s <= h,  the box of the parameters and that of the trust region
in one, by turns of

- a projected gradient step  s(t) = P(s - t r),  r = g + B s, with t halved until q falls by a share of r.(s - s(t)),
  which finds the variables that end on a bound;
- a Newton step on the others, F: B_FF^-1 = I/sigma + W_F (M - W_F^T W_F / sigma)^-1 W_F^T / sigma^2, projected and
  halved in the same way.

It ends where the projected gradient has fallen to TOLERANCE of its first length. A turn costs O(m c^2).

At a kink another vector takes the place of g: the shortest of the convex hull of the gradients around it. The negative
of it is the direction in which the largest of all g_i . d falls fastest; if it is 0 no d makes them all negative. (P.
Wolfe, A method of conjugate subgradients for minimizing nondifferentiable functions, 1975, has the use that is made of
it.) It is found by non-negative least squares:  ||sum_i l_i g_i||^2 + (1 - sum_i l_i)^2  over l >= 0, whose minimiser
for any one direction of l falls with the length of  sum_i l_i g_i / sum_i l_i.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.result import Purpose, Status
from suffice.search import trust_region
from suffice.search.accuracy import FIRST_LOOK, for_decision, for_model
from suffice.search.by_derivatives import allowed
from suffice.search.judge import SHRINK, askable, end_to_refine, ended, next_radius, verdict_on
from suffice.search.state import Judged, Pending, Plan, Sample, Setting, Strategy, Trial, Verdict

FEW = 64  # parameters: beyond, m + 1 points cost more than they tell, and adjoint gradients one solve
CORRECTIONS = 30  # pairs that are remembered
SHORT_STEP = 0.5  # steps shorter than this many final radii are not worth an evaluation
CUT = 0.99  # of the radius: a step that long is as short as it is because of the radius
KINKS, REACH, SMOOTH = 10, 20.0, 0.1
LAST = 0.01  # of the final radius: as short as steps get after a failure, to tell a kink from strong curvature
ROUNDING = 1e-13  # of F: a decrease that is none
SHORTEST = 0.1  # of a failed step: the least that the next one may be
CURVED = 1e-10  # of ||s|| ||y||: an s.y that is positive for certain
TOLERANCE = 1e-6
TURNS = 60
HALVINGS = 40
DECREASE = 1e-2


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
                return _go_around(state, pending.plan, point)
            case _:
                assert pending.plan is not None
                point = point if state.trial is None else _with_slope(point, state.trial.point)
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
    within = askable(for_decision(FIRST_LOOK[options.policy] * predicted, current.evaluation), setting)
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


def _go_around(state: GradientSearch, plan: Plan | None, point: Sample) -> tuple[GradientSearch, Judged]:
    """There are no finite residuals, or no gradient, at the pending point: it is no place to go to."""
    assert plan is not None
    delta = next_radius(-math.inf, plan.length, state.delta, LAST * state.rho)
    note = "there is no gradient" if point.evaluation.failure is None else ""
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


# The model


@dataclass(frozen=True, eq=False)
class Secants:
    """B by W and M; without any pairs sigma I."""

    sigma: float
    W: Array
    M: Array

    @classmethod
    def of(cls, sigma: float, pairs: Sequence[tuple[Array, Array]], m: int) -> Secants:
        """From (s, y), the oldest first. `sigma` counts where no pair tells of curvature."""
        with np.errstate(over="ignore", invalid="ignore"):
            good = [(s, y) for s, y in pairs if _curved(s, y)]
        if not good:
            return cls(sigma, np.empty((m, 0)), np.empty((0, 0)))
        S, Y = (np.array(part) for part in zip(*good, strict=True))
        SY = S @ Y.T
        sigma = float(Y[-1] @ Y[-1]) / float(SY[-1, -1])
        L = np.tril(SY, -1)
        M = np.block([[-np.diag(np.diag(SY)), L.T], [L, sigma * (S @ S.T)]])
        return cls(sigma, np.concatenate([Y, sigma * S]).T, M)

    @property
    def count(self) -> int:
        """How many pairs B has."""
        return len(self.M) // 2

    def times(self, v: Array) -> Array:
        """B v."""
        if not self.count:
            return self.sigma * v
        return self.sigma * v - self.W @ np.linalg.solve(self.M, self.W.T @ v)

    def newton(self, r: Array, free: npt.NDArray[np.bool_]) -> Array:
        """d with d = 0 where a variable is not free, and B_FF d_F = -r_F."""
        d = np.where(free, -r / self.sigma, 0.0)
        if self.count:
            W = self.W[free]
            inner = self.M - W.T @ W / self.sigma
            d[free] += W @ np.linalg.solve(inner, W.T @ d[free]) / self.sigma
        return d


def _curved(s: Array, y: Array) -> bool:
    product, sizes = float(s @ y), norm(s) * norm(y)
    return 0.0 < sizes < np.inf and product > CURVED * sizes


def minimise(g: Array, B: Secants, l: Array, h: Array) -> tuple[Array, float]:  # noqa: E741 (the symbol)
    """The minimiser s of q over l <= s <= h, where l <= 0 <= h, and the decrease -q(s) >= 0 that it promises."""
    s, Bs, first = np.zeros_like(g), np.zeros_like(g), 0.0
    for turn in range(TURNS):
        r = g + Bs
        size = norm(np.clip(s - r / B.sigma, l, h) - s)
        first = first or size
        if size <= TOLERANCE * first or size == 0.0:
            break
        before = s
        s, Bs = _search(s, Bs, -r / B.sigma, r, B, (l, h))
        r = g + Bs
        free = ((s > l) | (r < 0.0)) & ((s < h) | (r > 0.0))
        if B.count and free.any():
            s, Bs = _search(s, Bs, B.newton(r, free), r, B, (l, h))
        if turn and np.array_equal(before, s):
            break
    return s, max(-float(g @ s + 0.5 * (s @ Bs)), 0.0)


def _search(s: Array, Bs: Array, d: Array, r: Array, B: Secants, box: tuple[Array, Array]) -> tuple[Array, Array]:
    """The projection of s + t d with a t at which q, whose gradient at s is r, falls by a share of its slope."""
    t = 1.0
    for _ in range(HALVINGS):
        moved = np.clip(s + t * d, *box)
        step = moved - s
        image = B.times(step)
        slope = float(r @ step)
        if slope < 0.0 and slope + 0.5 * float(step @ image) <= DECREASE * slope:
            return moved, Bs + image
        t *= 0.5
    return s, Bs


def shortest(G: Array) -> Array:
    """The shortest vector of the convex hull of the rows of G."""
    A = np.vstack([G.T / (float(np.abs(G).max()) or 1.0), np.ones(len(G))])
    weights, _ = nnls(A, np.append(np.zeros(G.shape[1]), 1.0))
    return np.asarray((weights / weights.sum()) @ G)
