r"""A proven bound on the gradient of  F(theta) = sum_j loss_j(w_j(theta)) + ||J(theta)||^2  at one theta.

Let w^ be the exact minimiser of a lower-level problem, with its signed support S proven (`suffice.prove.verified`),
zeros strictly so. Then S and the signs are the same for all parameters p nearby, w^ is a smooth function of p there,
and with H the Hessian on S, K the cross derivatives (`suffice.solvers.sensitivity`), c = grad loss,

    d loss / dp  =  - K(w^)^T q^,        H(w^) q^ = c(w^)        on S, and an intercept that is minimised out.

At hand are w, Newton steps from where the search has left it, and q, the solution of H(w) q = c(w), both as
computed. All that is proven is how far they are from w^ and q^. The residual of q in the exact system is

    c(w^) - H(w^) q  =  [c(w^) - c(w)]  +  [c(w) - H(w) q]  +  [H(w) - H(w^)] q,

the middle one being that of the solver, factor or conjugate gradients, with its rounding.

- *By a factor.* The verification says  |w^_j - w_j| <= |n_j| + epsilon ||e_j||_{H^-1},  so that margins of rows move by
  delta_i, at most, their rounding included. With |psi'''| <= M psi'' and a = M max_i delta_i (for the softmax: the
  largest sum of two classes' delta_ik),  e^-a H <= H(w^) <= e^a H,  and

      ||[H - H(w^)] q||_{H^-1} <= (e^a - 1) ||q||_H,      |q^_j - q_j| <= e^a ||e_j||_{H^-1} ||c(w^) - H(w^) q||_{H^-1}.

  Huber's psi and the squared hinge have the same H at both if no row reaches a kink within delta_i; else F may have a
  kink, and nothing is proven.
- *By strong convexity*, for a smooth problem without a factor that is good for proofs (smoothed total variation):
  ||q^ - q|| <= ||c(w^) - H(w^) q|| / mu,  and H moves as `suffice.imaging.variation` says.

K(w^)^T q^ is then known to within `Doubt`s of both (`solvers.doubt`), slopes c of losses by phi'' times delta. J
is known exactly, and so is its Jacobian, if the user has given it; differences of J prove nothing.

With D = dp/dtheta, g the gradient as computed, and e its error, entry by entry, the gradient of F without its entries
that bounds hold back (those that point out of the box where theta touches it) is at most  ||P g|| + ||e||: P, the
projection on the directions that lead nowhere outside, does not expand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, host, norm
from suffice.evaluation import Evaluation
from suffice.imaging.variation import Variation
from suffice.losses import Loss
from suffice.penalties.prox import L1, WeightedL1, Zero
from suffice.problems import LowerLevel
from suffice.prove.factor import ProvenFactor, apart
from suffice.prove.outputs import PsiAt, images
from suffice.prove.verified import Verifiable, Verification
from suffice.prove.verified_rows import Question
from suffice.rows.memory import absolute_product
from suffice.rows.rounding import TINY, gamma
from suffice.rows.sums import Block, Most
from suffice.search.derivatives import AtSolution, Penalty, of_penalty
from suffice.solvers.certificate import Evidence, certify, verified
from suffice.solvers.doubt import Doubt, Enclosed
from suffice.solvers.problem import Composite
from suffice.solvers.sensitivity import Sensitive, Sensitivity, pulled_back, solve_together
from suffice.solvers.solution import Solution
from suffice.solvers.solver import solve
from suffice.space import Space

NEWTON_STEPS = 50  # of a solver that ends where rounding is all that is left
POLISHING = 6  # Newton steps of a smooth problem
ACCURACY = 1e-12  # of systems that are solved by conjugate gradients

Enclosure = tuple[Array, Array]  # a gradient, and how far it may be off, entry by entry


class GradientTask(AtSolution):
    """The gradient of the j-th loss with respect to theta, enclosed, near its solution."""


def stationarity(
    evaluation: Evaluation,
    lower: Sequence[LowerLevel],
    losses: Sequence[Loss],
    space: Space,
    penalty: Penalty | None,
    penalty_jacobian: Penalty | None,
    box: tuple[Array, Array],
    elsewhere: Callable[[Sequence[GradientTask]], Sequence[Any]] | None = None,
) -> float | None:
    """A bound on the projected gradient of F with respect to theta; None where nothing is proven. `elsewhere` is
    `gradient_of` for several tasks at a time."""
    if len(evaluation.solutions) != len(lower) or (penalty is not None and penalty_jacobian is None):
        return None
    theta, params = evaluation.point, space.params(evaluation.point)
    slopes, m = space.slopes(theta), len(theta)
    gradient, error, sizes = (np.zeros(m) for _ in range(3))
    if penalty is not None and penalty_jacobian is not None:
        J = np.atleast_1d(np.asarray(penalty(params), dtype=np.float64))
        dJ = of_penalty(penalty, penalty_jacobian, space, theta)
        gradient += 2.0 * (dJ.T @ J)
        sizes += 2.0 * (np.abs(dJ).T @ np.abs(J))
        error += gamma(len(J) + 16) * sizes
    if not all(map(_tells, lower, evaluation.solutions)):
        return None
    tasks = [GradientTask(j, params, one.x, slopes) for j, one in enumerate(evaluation.solutions)]
    here = (gradient_of(lower[task.j], losses[task.j], task) for task in tasks)  # no further than the first without one
    for found in here if elsewhere is None else elsewhere(tasks):
        if found is None:
            return None
        gradient, error, sizes = gradient + found[0], error + found[1], sizes + np.abs(found[0])
    return projected(gradient, error + gamma(len(lower) + 16) * sizes, theta, box)


def projected(gradient: Array, error: Array, theta: Array, box: tuple[Array, Array]) -> float | None:
    """The bound of the module's text for an enclosed gradient; None where it is infinite."""
    low, high = box
    kept = np.where(theta <= low, np.minimum(gradient, 0.0), gradient)
    kept = np.where(theta >= high, np.maximum(kept, 0.0), kept)
    bound = (norm(kept) + norm(error)) * (1.0 + gamma(len(theta) + 16)) + len(theta) * TINY
    return bound if bound < math.inf else None


def _tells(problem: LowerLevel, solution: Any) -> bool:
    """Whether the problem says how it depends on its parameters."""
    return isinstance(problem, Sensitive) and isinstance(problem, Enclosed) and isinstance(solution, Solution)


def gradient_of(problem: LowerLevel, loss: Loss, task: GradientTask) -> Enclosure | None:
    """The gradient of one loss with respect to theta."""
    if not (isinstance(problem, Sensitive) and isinstance(problem, Enclosed)):
        return None
    params, slopes = task.params, task.slopes
    composite = problem.at(**params)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if isinstance(composite.canonical.f, Variation) and isinstance(composite.canonical.g, Zero):
            adjoint = _by_convexity(composite, composite.canonical.f, loss, task.x)
        else:
            adjoint = _by_factor(composite, loss, task.x)
        if adjoint is None:
            return None
        x, q, of_x, of_q = adjoint
        K = problem.cross(x, **params)
        doubt = None if K is None else problem.cross_doubt(x, q, of_x, of_q, **params)
        if doubt is None:
            return None
        gradient = pulled_back(K, slopes, q)
        error = np.abs(slopes) * doubt * (1.0 + 8.0 * EPS) + 8.0 * EPS * np.abs(gradient)
    return (gradient, error) if np.isfinite(gradient).all() and np.isfinite(error).all() else None


Adjoint = tuple[Array, Array, Doubt, Doubt]  # w, q, and how far both may be off


def _by_factor(problem: Composite, loss: Loss, x: Array) -> Adjoint | None:
    """Of a model whose support is verified."""
    canonical = problem.canonical
    model = Verifiable.of(canonical, len(x))
    if model is None or model.positive is not None or loss.at(x).steep is None:
        return None
    if not model.design.rows.at_hand:
        return None  # the verifications that this takes cost as much as a whole search
    found = _closer(problem, x)
    if found is None:
        solver = "newton" if model.outputs == 1 else "newton_softmax"
        x = solve(problem, within=0.0, solver=solver, warm=x, max_steps=NEWTON_STEPS).x
        if not x.any() and not model.intercept and isinstance(canonical.g, L1 | WeightedL1):
            nothing = np.zeros_like(x)
            exact = certify(problem, x).radius == 0.0  # every entry of the gradient is below l1, strictly
            return (x, nothing, Doubt.of(nothing), Doubt.of(nothing)) if exact else None
        found = _closer(problem, x)
    if found is None:
        return None
    x, known = found
    steep, factor, variables = loss.at(x).steep, known.factor, known.factor.variables
    if steep is None:
        return None
    single, _ = factor.spread(slice(None))
    near = (np.abs(known.step) + known.slack * single) * (1.0 + 8.0 * EPS)  # how far variables may be off
    free, weights, K = variables.free(len(x)), variables.weights, model.outputs
    shift = np.zeros(K)
    shift[[k for k in range(K) if variables.has_intercept(k)]] = near[~weights]
    of_x = Doubt.of(_on(free, near[weights]), shift, known.b)
    moved = _bending(model, known, x, canonical.f.image(x), of_x)
    if moved is None:
        return None
    c = steep(of_x)
    side = variables.gathered(c.weights.reshape(K, -1), np.zeros(K) + c.intercept)
    q, of_q = solved(factor, moved, side, variables.gathered(c.of_weights.reshape(K, -1), np.zeros(K) + c.of_intercept))
    return x, _on(free, q[weights]), of_x, Doubt.of(_on(free, of_q[weights]))


def _closer(problem: Composite, x: Array) -> tuple[Array, Verification] | None:
    """A verified point, from x by the Newton steps that verifications come with; None if x cannot be verified."""
    found = _verified(problem, x)
    for _ in range(POLISHING):
        if found is None or found.radius <= 4.0 * found.rounding:
            break
        there, variables = x.copy(), found.factor.variables
        there[variables.free(len(x))] += found.step[variables.weights]
        closer = _verified(problem, there)
        if closer is None or not closer.radius < 0.5 * found.radius:
            break
        x, found = there, closer
    return None if found is None else (x, found)


def _verified(problem: Composite, x: Array) -> Verification | None:
    image = problem.canonical.f.image(x)
    evidence = Evidence(x, image, problem.canonical.f.gradient_at(x, image))
    proof = verified(problem.canonical, x, evidence)
    return None if proof is None else proof.verification


def _on(free: Any, values: Array) -> Array:
    """Values of free weights among all."""
    whole = np.zeros(len(free))
    whole[free] = values
    return whole


def bend(block: Block, rows: Any, each: Array, even: Array, b: Array) -> Most:
    """What moves of margins by no more than |x_i| . each_k + even_k do to log H_i at most, their rounding included;
    infinity where a row may reach a kink. a, y are given."""
    image, counts = images(block), host(block["a"]) > 0.0
    delta = absolute_product(block.X, each.T) * (1.0 + gamma(each.size + 16)) + even
    delta = delta + 8.0 * EPS * (np.abs(image) + np.abs(b)) + 4.0 * rows.blur + TINY * each.size
    if not rows.kinked:
        return Most(rows.third * apart(delta)[counts].max(initial=0.0))
    distance = rows.loss.kink_distance(rows.m, rows.y) - 8.0 * EPS * (np.abs(rows.m) + np.abs(rows.y) + 1.0)
    return Most(math.inf if np.any((distance <= delta)[counts]) else 0.0)


def _bending(model: Verifiable, known: Verification, x: Array, image: Any, of_x: Doubt) -> float | None:
    """a: H of the exact minimiser is the factor's times e^(+-a). None where a row may reach a kink, or a is large."""
    K = model.outputs
    each = (of_x.each + model.design.margin_rounding(x) * np.abs(x)).reshape(K, -1)
    job = Question(bend, PsiAt(model.loss, known.b), (each, of_x.intercept, known.b))
    moved = float(model.design.rows.run(job, [image], **model.given)) * (1.0 + 8.0 * EPS) + (K + 64.0) * EPS
    return moved if moved < 1.0 and known.whole else None


def solved(factor: ProvenFactor, bend: float, c: Array, of_c: Array) -> tuple[Array, Array]:
    """q, and how far it may be from q^, entry by entry: c errs by `of_c`, H by the factor e^(+-bend)."""
    n, moved, left = factor.solve(c * factor.scale)
    residual = factor.norm_of(np.zeros_like(c), of_c * factor.scale) + left + math.expm1(bend) * moved
    single, _ = factor.spread(slice(None))
    up = math.exp(bend) / (1.0 - factor.tau) * (1.0 + gamma(4 * len(factor) + 64))
    return n * factor.scale, up * residual * single + TINY


def _by_convexity(problem: Composite, f: Variation, loss: Loss, x: Array) -> Adjoint | None:
    """Of smoothed total variation."""
    if not f.rounding_is_known:
        return None
    x = _polished(problem, x)
    radius, at = certify(problem, x).radius, loss.at(x)
    if at.steep is None or not radius < math.inf:
        return None
    of_x = Doubt(np.full(len(x), radius), radius)
    c = at.steep(of_x)
    q = _system_solved(problem, x, c.weights)
    if q is None:
        return None
    left = c.weights - f.hessian_at(x)(q[:, None])[:, 0]
    residual = norm(left) + 4.0 * EPS * norm(c.weights) + c.size + f.hessian_doubt(x, q, radius)
    off = residual / problem.mu * (1.0 + gamma(len(x) + 32))
    return x, q, of_x, Doubt(np.full(len(x), off), off)


def _polished(problem: Composite, x: Array) -> Array:
    """x after Newton steps that shorten the gradient."""
    f = problem.canonical.f
    gradient = f.gradient(x)
    for _ in range(POLISHING):
        step = _system_solved(problem, x, gradient)
        if step is None:
            break
        there = x - step
        new = f.gradient(there)
        if not norm(new) < 0.5 * norm(gradient):
            break
        x, gradient = there, new
    return x


def _system_solved(problem: Composite, x: Array, side: Array) -> Array | None:
    """H^-1 of one right-hand side, as it is computed."""
    sensitivity = Sensitivity.of(problem, x)
    try:
        return (
            None
            if sensitivity is None
            else solve_together([sensitivity], [side[:, None]], [ACCURACY], [None])[0].value[:, 0]
        )
    except (ArithmeticError, np.linalg.LinAlgError):
        return None
