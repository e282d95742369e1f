r"""Proven bounds on ||x - x_hat||, from gradients that a solver has anyway.

Phi = f + g with f L-smooth and mu-strongly convex; x_hat its minimiser. Let z be any point with a known gradient, x any
point with g(x) finite, v = mu z - grad f(z), w_bar = prox_{g/mu}(v/mu), and p = v - mu w_bar in dg(w_bar). Strong
convexity at z bounds Phi from below by a quadratic whose minimiser is w_bar; smoothness at z bounds f(x) from above.
Together,

    mu/2 ||x - x_hat||^2 + mu/2 ||x_hat - w_bar||^2  <=  G,
    G = B + mu/2 ||x - w_bar||^2 + (M - mu)/2 ||x - z||^2,        B = g(x) - g(w_bar) - <p, x - w_bar> >= 0.     (gap)

Every part of G is non-negative: nothing cancels. For x = z and g = l1 ||.||_1 this is the duality gap of the elastic
net, and sqrt(2 G / mu) its classical radius. The two squares on the left put x_hat into the ball around (x +
w_bar)/2 of radius R = sqrt(G/mu - D^2/4), D = ||x - w_bar||, so that in fact

    ||x - x_hat||  <=  D/2 + R  <=  sqrt(2 G / mu)  <=  ||u_min|| / mu  <=  ||d|| / mu.

The rules, each usable alone:

- `subgradient`   the paper's  ||d||/mu,  d = grad f(x) - grad f(z) + (z - x)/tau  in dPhi(x);
- `minimum_norm`  ||u_min||/mu, u_min the shortest element of dPhi(x);
- `gap`           (gap) with z = x;
- `contraction`   x = prox_{tau g}(z - tau grad f(z)) is nearer to x_hat than z by a factor c: c times the gap radius
                  of z, or c/(1 - c) ||x - z||, whichever is smaller. No gradient at x is needed.
                  c = max(1 - tau mu, tau L - 1); where only f(x) <= f(z) + <grad f(z), x - z> + ||x - z||^2/(2 tau)
                  is known, c^2 = (1 - q)/(1 + q), q = tau mu.
- `verified`      the minimiser itself, exhibited on the signed support of x (`suffice.prove.verified`): needs no mu,
                  but a linear or multinomial model, a factorisation, and an x whose signs are right;
- `free`          the lesser of `contraction` and (gap) with the solver's z, neither of which costs anything;
- `tightest`      the default: `free` and, where that is not enough and the signs of x have settled, `verified`,
                  whichever is smaller. Batches of problems go without the latter as long as rounding allows.

Rounding, with u = 2^-53. A gradient that errs by at most e is the exact gradient of a problem whose minimiser lies
within e/mu, so every a-posteriori radius is increased by e/mu. e holds

- the rounding of the gradient itself (`gradient_rounding` of f; see `suffice.rows.rounding`);
- that of v, at most u (2 mu ||z|| + ||grad f(z)||), which is not small where l1/mu is large;
- that of the formulas of g, a few u ||v||.

x is computed as well: a prox-gradient step is made with an error of at most delta = 8 u (||z|| + tau ||grad f(z)||),
since a prox does not expand (for a g other than l1 or a box the 8 depends on the dimension). It counts in full wherever
x is taken for the exact step: delta on top of `contraction`, delta/(1 - c) on top of ||x - z||/(1 - c), 3 delta/(tau
mu) on top of `subgradient`. (gap) holds for any x.

Where |grad_j f(0)| + e <= l1 for all j, 0 is the minimiser whatever the rounding was, and its radius is 0.

A radius is a number or infinite: where arithmetic overflows nothing is proven.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal, get_args

import numpy as np

from suffice.arrays import EPS, Array, norm, vector
from suffice.penalties.prox import Box, CertifiableProx, Lasso, Zero
from suffice.prove.verified import Verifiable, Verification, verify
from suffice.rows.rounding import TINY
from suffice.solvers.problem import Canonical, Composite

Rule = Literal["tightest", "free", "verified", "contraction", "gap", "minimum_norm", "subgradient"]
RULES: tuple[str, ...] = get_args(Rule)

# Metadata of a field, which must have a default: why it stays out of files and of what is sent to workers. Images A x
# and evidence are functions of the rest of a state and of the problem, at the price of a matrix product.
RECOMPUTED: Mapping[str, str] = {"left out": "the next step computes it again"}
GIVEN_AGAIN: Mapping[str, str] = {"left out": "it belongs to the user, who gives it again"}


def left_out(cls: type) -> tuple[str, ...]:
    """The fields of a dataclass that are declared so; one of which nothing is said is written."""
    return tuple(item.name for item in fields(cls) if "left out" in item.metadata)


@dataclass(frozen=True)
class Certificate:
    """How far a point x is from the exact minimiser x_hat, at most.

    `radius` is a proven bound on ||x - x_hat|| (the distance, never its square); `rule` says which proof gave it.
    `rounding` is the part of `radius` that is due to floating-point arithmetic, which no further iteration removes.
    """

    radius: float
    rule: str
    rounding: float = 0.0
    verification: Verification | None = field(default=None, repr=False, compare=False, metadata=RECOMPUTED)


@dataclass(frozen=True)
class Evidence:
    """What a solver knows at x: the gradient at a point z, and how x came from it.

    With a step length tau, x = prox_{tau g}(z - tau grad f(z)) and ||x - x_hat|| <= contraction ||z - x_hat||;
    without one, x is z itself. `majoriser` is an M with f(x) <= f(z) + <grad f(z), x - z> + M/2 ||x - z||^2.
    `rounding` bounds the rounding of the gradient, for a solver that has a better bound than f's own.
    """

    z: Array
    z_image: Array
    z_gradient: Array
    tau: float | None = None
    contraction: float = 1.0
    majoriser: float = math.inf
    rounding: float | None = None

    @classmethod
    def at(cls, problem: Canonical, x: Array) -> Evidence:
        """The gradient at x itself."""
        image = problem.f.image(x)
        return cls(x, image, problem.f.gradient_at(x, image))


def _gap_radius(problem: Canonical, x: Array, v: Array, moved: float = 0.0, M: float = math.inf) -> float:
    """D/2 + R of the module's text, in exact arithmetic; `moved` is ||x - z||."""
    mu = problem.mu
    w_bar, B = problem.g.remainder(x, v, mu)
    D = norm(x - w_bar)
    R = math.hypot(math.sqrt(B / mu), math.sqrt(len(x) * TINY / mu), 0.5 * D)
    if moved > 0.0:
        R = math.hypot(R, _root_excess(M, mu) * moved)
    return 0.5 * D + R


def duality_gap(problem: Composite, x: Array, radius: float) -> float:
    """A bound on Phi(x) - Phi(x_hat) in exact arithmetic: G of (gap) with z = x or, without a mu, ||u_min|| radius."""
    canonical = problem.canonical
    if canonical.mu == 0.0:
        return norm(canonical.g.least_subgradient(x, canonical.f.gradient(x))) * radius
    w_bar, B = canonical.g.remainder(x, canonical.mu * x - canonical.f.gradient(x), canonical.mu)
    return float(B + 0.5 * canonical.mu * norm(x - w_bar) ** 2)


def _root_excess(M: float, mu: float) -> float:
    """sqrt((M - mu)/(2 mu)), with M as it was before it was rounded."""
    return math.sqrt(0.5 * max(M / mu * (1.0 + 4.0 * EPS) - 1.0, 0.0))


def _smooth_gap(mu: float, M: float, tau: float, size: float) -> float:
    """`_gap_radius` of x = z - tau grad f(z) for g = 0, where every norm is a multiple of size = ||grad f(z)||."""
    D = abs(1.0 / mu - tau) * size
    return 0.5 * D + math.hypot(0.5 * D, _root_excess(M, mu) * tau * size)


def certify_step(problem: Canonical, x: Array, image: Array | None, evidence: Evidence, rule: Rule) -> Certificate:
    """The certificate of x by `rule`, given the solver's evidence.

    x's image is computed where a rule needs it and the solver has none."""
    with np.errstate(over="ignore", invalid="ignore"):
        proof = _certify_step(problem, x, image, evidence, rule)
    return proof if proof.radius == proof.radius else Certificate(math.inf, proof.rule, math.inf)


def _certify_step(problem: Canonical, x: Array, image: Array | None, evidence: Evidence, rule: Rule) -> Certificate:
    z, tau, z_gradient = evidence.z, evidence.tau, evidence.z_gradient
    if rule == "verified":
        return verified(problem, x, evidence) or Certificate(math.inf, rule)
    if _zero_is_exact(problem, x, evidence):
        return Certificate(0.0, "gap" if rule in ("tightest", "free") else rule)
    if problem.mu == 0.0:
        return Certificate(math.inf, rule)
    if rule in ("gap", "minimum_norm", "subgradient"):
        image = problem.f.image(x) if image is None else image
        at_x = z_gradient if tau is None else problem.f.gradient_at(x, image)
        rounding = _rounding(problem, x, image, at_x, evidence.rounding if tau is None else None)
        if rule == "gap":
            return _with_rounding(_gap_radius(problem, x, problem.mu * x - at_x), "gap", rounding, x)
        if rule == "minimum_norm":
            return _with_rounding(norm(problem.g.least_subgradient(x, at_x)) / problem.mu, rule, rounding, x)
        if tau is None:
            raise ValueError("certificate='subgradient' needs a solver whose last move was a prox-gradient step")
        d = at_x - z_gradient + (z - x) / tau
        rounding += _rounding(problem, z, evidence.z_image, z_gradient, evidence.rounding)
        rounding += 3.0 * step_rounding(problem, evidence) / (tau * problem.mu)
        return _with_rounding(norm(d) / problem.mu, rule, rounding, x)

    rounding = _rounding(problem, z, evidence.z_image, z_gradient, evidence.rounding)
    smooth = isinstance(problem.g, Zero)
    size = norm(z_gradient) if smooth else math.nan
    v = z_gradient if smooth else problem.mu * z - z_gradient
    at_z = size / problem.mu if smooth else _gap_radius(problem, z, v)
    if tau is None:
        return _with_rounding(at_z, "gap", rounding, x)
    c, moved = evidence.contraction, tau * size if smooth else norm(x - z)
    delta = step_rounding(problem, evidence)
    rounding += 8.0 * EPS * norm(x) + delta
    nearer = min(c * at_z if c > 0.0 else 0.0, c * fixed_point_radius(moved + delta, c))
    best = _with_rounding(nearer, "contraction", rounding, x)
    if rule in ("tightest", "free"):
        M = evidence.majoriser
        gap = _smooth_gap(problem.mu, M, tau, size) if smooth else _gap_radius(problem, x, v, moved, M)
        if gap < nearer:
            best = _with_rounding(gap, "gap", rounding, x)
    return best


def verified(problem: Canonical, x: Array, evidence: Evidence) -> Certificate | None:
    """The certificate of x by `verified`, or None."""
    model = Verifiable.of(problem, len(x))
    if model is None:
        return None
    if evidence.tau is not None:  # an image that was carried along errs by more than a product
        evidence = Evidence.at(problem, x)
    proof = verify(model, x, evidence.z_image, evidence.z_gradient)
    return None if proof is None else Certificate(proof.radius, "verified", proof.rounding, proof)


def tighter(proof: Certificate, other: Certificate | None) -> Certificate:
    """The one with the smaller radius; a verification is kept in any case, for what else it proves."""
    if other is None or other.radius <= proof.radius:
        return other or proof
    return replace(proof, verification=other.verification)


def _zero_is_exact(problem: Canonical, x: Array, evidence: Evidence) -> bool:
    """Whether every entry of the gradient at 0 is below l1 by more than it errs: then 0 is the minimiser itself."""
    if x.any() or evidence.z.any() or not isinstance(problem.g, Lasso) or not problem.f.rounding_is_known:
        return False
    e = evidence.rounding
    e = problem.f.gradient_rounding(evidence.z, evidence.z_image) if e is None else e
    return bool(np.all(np.abs(evidence.z_gradient) + e <= (1.0 - 4.0 * EPS) * problem.g.l1))


def step_rounding(problem: Canonical, evidence: Evidence) -> float:
    """A bound delta on the rounding of a step: how far x is from the exact prox-gradient step."""
    z, tau = evidence.z, evidence.tau or 0.0
    return _roundings_of(problem.g, len(z)) * EPS * (norm(z) + tau * norm(evidence.z_gradient))


def _roundings_of(g: CertifiableProx, size: int) -> float:
    """How many units of EPS the formulas of g err by, relative to what they are applied to."""
    own = getattr(g, "roundings", None)
    if own is not None:
        return float(own(size))
    return 4.0 if isinstance(g, Lasso | Box) else 4.0 + size


def fixed_point_radius(moved: float, c: float) -> float:
    """||z - x_hat|| <= ||z - x|| / (1 - c) for a contraction by c that takes z to x, with the rounding of 1 - c."""
    gap = 1.0 - c
    return moved / gap * (1.0 + 4.0 * EPS / gap) if gap > 0.0 else math.inf


def certify(problem: Composite, x: Array) -> Certificate:
    """The tightest certificate of a point x, wherever it came from, such as another library's answer.

    It costs one gradient of the problem's f at x and, for a linear model, a factorisation on the support of x. The
    radius is infinite where nothing can be proven in floating-point arithmetic.
    """
    canonical = problem.canonical
    x = vector(x, "x")
    if problem.size is not None and x.shape != (problem.size,):
        raise ValueError(f"x must have shape ({problem.size},), got {x.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        evidence = Evidence.at(canonical, x)
        proof = certify_step(canonical, x, evidence.z_image, evidence, "tightest")
        return proof if proof.radius == 0.0 else tighter(proof, verified(canonical, x, evidence))


def _rounding(problem: Canonical, z: Array, image: Array, gradient: Array, known: float | None = None) -> float:
    """How far the rounding of the gradient at z, and of v, may move the minimiser, plus that of the certificate."""
    size, steep = norm(z), norm(gradient)
    error = problem.f.gradient_rounding(z, image) if known is None else known
    error += _roundings_of(problem.g, len(z)) * EPS * (problem.mu * size + steep)
    error += 8.0 * len(z) * TINY
    if not problem.f.rounding_is_known:
        error += len(z) * EPS * steep
    return error / problem.mu + 8.0 * EPS * size


def _with_rounding(radius: float, rule: str, rounding: float, x: Array) -> Certificate:
    rounding += 8.0 * len(x) * TINY
    return Certificate(radius * (1.0 + (64.0 + len(x)) * EPS) + rounding, rule, rounding)
