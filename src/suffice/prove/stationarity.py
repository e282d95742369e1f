r"""A proven bound on the gradient of  F(theta) = sum_j loss_j(w_j(theta)) + ||J(theta)||^2  at one theta.

Let w^ be the exact minimiser of a lower-level problem, with its signed support S proven (`suffice.prove.verified`),
zeros strictly so. Then S and the signs are the same for all parameters p nearby, w^ is a smooth function of p there,
and with H the Hessian on S, K the cross derivatives (`suffice.solvers.sensitivity`), c = grad loss,

    d loss / dp  =  - K(w^)^T q^,        H(w^) q^ = c(w^)        on S, and an intercept that is minimised out.

At hand are w, Newton steps from where the search has left it, and q, the solution of H(w) q = c(w) by a factor, both as
computed. All that is proven is how far they are from w^ and q^. The residual of q in the exact system is

    c(w^) - H(w^) q  =  [c(w^) - c(w)]  +  [c(w) - H(w) q]  +  [H(w) - H(w^)] q,

the middle one being that of the factor, with its rounding. The verification says  |w^_j - w_j| <= |n_j| + epsilon
||e_j||_{H^-1},  so that margins of rows move by delta_i, at most, their rounding included. With |psi'''| <= M psi'' and
a = M max_i delta_i (for the softmax: the largest sum of two classes' delta_ik),  e^-a H <= H(w^) <= e^a H,  and

    ||[H - H(w^)] q||_{H^-1} <= (e^a - 1) ||q||_H,      |q^_j - q_j| <= e^a ||e_j||_{H^-1} ||c(w^) - H(w^) q||_{H^-1}.

Huber's psi and the squared hinge have the same H at both if no row reaches a kink within delta_i; else F may have a
kink, and nothing is proven.

K(w^)^T q^ is then known to within the errors of both, slopes c of losses to within phi'' times delta. J is known
exactly, and so is its Jacobian, if the user has given it; differences of J prove nothing.

With D = dp/dtheta, g the gradient as computed, and e its error, entry by entry, the gradient of F without its entries
that bounds hold back (those that point out of the box where theta touches it) is at most  ||P g|| + ||e||: P, the
projection on the directions that lead nowhere outside, does not expand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, host, norm
from suffice.evaluation import Evaluation
from suffice.losses import Loss
from suffice.penalties.prox import L1, WeightedL1
from suffice.problems import LowerLevel
from suffice.prove.factor import ProvenFactor, Variables, apart
from suffice.prove.verified import Verifiable, Verification
from suffice.prove.verified_rows import PsiAt, Question, images
from suffice.rows.memory import absolute_product
from suffice.rows.rounding import TINY, gamma
from suffice.rows.sums import Block, Most
from suffice.search.derivatives import of_penalty
from suffice.solvers.certificate import Evidence, certify, verified
from suffice.solvers.problem import Composite
from suffice.solvers.sensitivity import Enclosed
from suffice.solvers.solution import Solution
from suffice.solvers.solver import solve

NEWTON_STEPS = 50  # of a solver that ends where rounding is all that is left
POLISHING = 6  # Newton steps that verifications come with

Enclosure = tuple[Array, Array]  # a vector, and how far it may be off, entry by entry


def stationarity(problem: Any, evaluation: Evaluation, box: tuple[Array, Array]) -> float | None:
    """A bound on the projected gradient of F of a `BilevelProblem` with respect to theta; None where nothing is
    proven."""
    lower, space, theta = problem.lower, problem.space, evaluation.point
    if len(evaluation.solutions) != len(lower) or (problem.penalty is not None and problem.penalty_jacobian is None):
        return None
    params, slopes, m = space.params(theta), space.slopes(theta), len(theta)
    gradient, error, sizes = (np.zeros(m) for _ in range(3))
    if problem.penalty is not None:
        J, dJ = problem.penalties(theta), of_penalty(problem, theta)
        gradient += 2.0 * (dJ.T @ J)
        sizes += 2.0 * (np.abs(dJ).T @ np.abs(J))
        error += gamma(len(J) + 16) * sizes
    for one, loss, solution in zip(lower, problem.losses, evaluation.solutions, strict=True):
        found = _gradient_of(one, loss, solution, params)
        if found is None:
            return None
        pull = -slopes * found[0]
        gradient, sizes = gradient + pull, sizes + np.abs(pull)
        error += np.abs(slopes) * found[1] * (1.0 + 8.0 * EPS) + 8.0 * EPS * np.abs(pull)
    return projected(gradient, error + gamma(len(lower) + 16) * sizes, theta, box)


def projected(gradient: Array, error: Array, theta: Array, box: tuple[Array, Array]) -> float | None:
    """The bound of the module's text for an enclosed gradient; None where it is infinite."""
    low, high = box
    kept = np.where(theta <= low, np.minimum(gradient, 0.0), gradient)
    kept = np.where(theta >= high, np.maximum(kept, 0.0), kept)
    bound = (norm(kept) + norm(error)) * (1.0 + gamma(len(theta) + 16)) + len(theta) * TINY
    return bound if bound < math.inf else None


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def _gradient_of(problem: LowerLevel, loss: Loss, solution: Any, params: Mapping[str, float]) -> Enclosure | None:
    """K^T q of one problem, at its parameters."""
    if not (isinstance(problem, Enclosed) and isinstance(solution, Solution)):
        return None
    methods = (getattr(type(problem), name) for name in ("at", "cross", "cross_doubt"))
    if len({method.__module__.partition(".")[0] for method in methods}) > 1:
        return None  # a class that was derived from one of ours may mean something else by its parameters
    adjoint = _adjoint(problem.at(**params), loss, solution.x)
    if adjoint is None:
        return None
    x, of_x, q, of_q = adjoint
    K = problem.cross(x, **params)
    if K is None:
        return None
    gradient, doubt = np.asarray(K.T @ q), problem.cross_doubt(x, q, of_x, of_q, **params)
    return (gradient, doubt) if np.isfinite(gradient).all() and np.isfinite(doubt).all() else None


def _adjoint(problem: Composite, loss: Loss, x: Array) -> tuple[Array, Array, Array, Array] | None:
    """w and q of a model whose support is verified, each with how far it may be off; x is close to w."""
    model = Verifiable.of(problem.canonical, len(x))
    if model is None or model.positive is not None or loss.at(x).steep is None:
        return None
    if not model.design.rows.at_hand:
        return None  # the verifications that this takes cost as much as a whole search
    found = _closer(problem, x)
    if found is None:
        x = solve(problem, within=0.0, solver="newton", warm=x, max_steps=NEWTON_STEPS).x
        if not x.any() and not model.intercept and isinstance(problem.canonical.g, L1 | WeightedL1):
            nothing = np.zeros_like(x)
            exact = certify(problem, x).radius == 0.0  # every entry of the gradient is below l1, strictly
            return (x, nothing, nothing, nothing) if exact else None
        found = _closer(problem, x)
    if found is None:
        return None
    x, known = found
    steep, factor, variables, K = loss.at(x).steep, known.factor, known.factor.variables, model.outputs
    assert steep is not None
    near = (np.abs(known.step) + known.slack * factor.spread(slice(None))[0]) * (1.0 + 8.0 * EPS)
    of_x, shift = _scattered(variables, near, len(x))
    bend = _bend_of(model, known, x, problem.canonical.f.image(x), of_x, shift)
    if bend is None:
        return None
    c, of_c, total, of_total = steep(of_x, shift, known.b)
    side, of_side = (
        variables.gathered(of_weights.reshape(K, -1), np.zeros(K) + of_intercepts)
        for of_weights, of_intercepts in ((c, total), (of_c, of_total))
    )
    q, of_q = (_scattered(variables, one, len(x))[0] for one in solved(factor, bend, side, of_side))
    return x, of_x, q, of_q


def _closer(problem: Composite, x: Array) -> tuple[Array, Verification] | None:
    """A verified point, from x by the Newton steps that verifications come with; None if x cannot be verified."""
    found = _verified(problem, x)
    for _ in range(POLISHING):
        if found is None or found.radius <= 4.0 * found.rounding:
            break
        there = x + _scattered(found.factor.variables, found.step, len(x))[0]
        closer = _verified(problem, there)
        if closer is None or not closer.radius < 0.5 * found.radius:
            break
        x, found = there, closer
    return None if found is None else (x, found)


def _verified(problem: Composite, x: Array) -> Verification | None:
    proof = verified(problem.canonical, x, Evidence.at(problem.canonical, x))
    return None if proof is None else proof.verification


def _scattered(variables: Variables, values: Array, size: int) -> tuple[Array, Array]:
    """Values of variables among all weights, output by output, and among all intercepts."""
    weights, intercepts = np.zeros((variables.outputs, size // variables.outputs)), np.zeros(variables.outputs)
    for k, (columns, place) in enumerate(zip(variables.columns, variables.places, strict=True)):
        weights[k, columns] = values[place][: len(columns)]
        intercepts[k] = values[place][len(columns) :].sum()
    return weights.ravel(), intercepts


def bending(block: Block, rows: Any, each: Array, even: Array, b: Array) -> Most:
    """What moves of margins by no more than |x_i| . each_k + even_k do to log H_i at most, their rounding included;
    infinity where a row may reach a kink. a, y are given."""
    image, counts = images(block), host(block["a"]) > 0.0
    delta = absolute_product(block.X, each.T) * (1.0 + gamma(each.size + 16)) + even
    delta = delta + 8.0 * EPS * (np.abs(image) + np.abs(b)) + 4.0 * rows.blur + TINY * each.size
    if not rows.kinked:
        return Most(rows.third * apart(delta)[counts].max(initial=0.0))
    distance = rows.loss.kink_distance(rows.m, rows.y) - 8.0 * EPS * (np.abs(rows.m) + np.abs(rows.y) + 1.0)
    return Most(math.inf if np.any((distance <= delta)[counts]) else 0.0)


def _bend_of(model: Verifiable, known: Verification, x: Array, image: Any, of_x: Array, shift: Array) -> float | None:
    """a: H of the exact minimiser is the factor's times e^(+-a). None where a row may reach a kink, or a is large."""
    K = model.outputs
    each = (of_x + model.design.margin_rounding(x) * np.abs(x)).reshape(K, -1)
    job = Question(bending, PsiAt(model.loss, known.b), (each, shift, known.b))
    moved = float(model.design.rows.run(job, [image], **model.given)) * (1.0 + 8.0 * EPS) + (K + 64.0) * EPS
    return moved if moved < 1.0 and known.whole else None


def solved(factor: ProvenFactor, bend: float, c: Array, of_c: Array) -> Enclosure:
    """q, and how far it may be from q^, entry by entry: c errs by `of_c`, H by the factor e^(+-bend)."""
    n, moved, left = factor.solve(c * factor.scale)
    residual = factor.norm_of(np.zeros_like(c), of_c * factor.scale) + left + math.expm1(bend) * moved
    up = math.exp(bend) / (1.0 - factor.tau) * (1.0 + gamma(4 * len(factor) + 64))
    return n * factor.scale, up * residual * factor.spread(slice(None))[0] + TINY
