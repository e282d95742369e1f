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

- `rate`          a priori: the solver's linear rate times a proven bound on ||x^0 - x_hat||;
- `subgradient`   the paper's  ||d||/mu,  d = grad f(x) - grad f(z) + (z - x)/tau  in dPhi(x);
- `minimum_norm`  ||u_min||/mu, u_min the shortest element of dPhi(x);
- `gap`           (gap) with z = x;
- `contraction`   x = prox_{tau g}(z - tau grad f(z)) is nearer to x_hat than z by a factor c: c times the gap radius
                  of z, or c/(1 - c) ||x - z||, whichever is smaller. No gradient at x is needed.
                  c = max(1 - tau mu, tau L - 1); where only f(x) <= f(z) + <grad f(z), x - z> + ||x - z||^2/(2 tau)
                  is known, c^2 = (1 - q)/(1 + q), q = tau mu.
- `tightest`      the default: the least of `contraction`, (gap) with the solver's z, and `rate`. Free of charge.
                  A user's own f goes without `rate`: the other two see the rounding of its gradient, which nobody
                  has bounded.

Rounding: a gradient that errs by at most e is the exact gradient of a problem whose minimiser lies within e/mu, so
every a-posteriori radius is increased by e/mu plus the rounding of the certificate's own arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from suffice._array import EPS, Array, norm, vector
from suffice.problem import Canonical, Composite
from suffice.terms.prox import Zero

Rule = Literal["tightest", "contraction", "gap", "minimum_norm", "subgradient", "rate"]
RULES: tuple[str, ...] = get_args(Rule)


@dataclass(frozen=True)
class Certificate:
    """`radius` is a proven bound on ||x - x_hat|| (the distance, never its square); `rule` says which proof gave it."""

    radius: float
    rule: str
    rounding: float = 0.0  #: the part of `radius` that is due to floating-point arithmetic: no iteration removes it


@dataclass(frozen=True)
class Evidence:
    """What a solver knows at x: the gradient at a point z, and how x came from it.

    With a step length tau, x = prox_{tau g}(z - tau grad f(z)) and ||x - x_hat|| <= contraction ||z - x_hat||;
    without one, x is z itself. `majoriser` is M of the module's text. `rate` bounds ||x - x_hat|| / ||x^0 - x_hat||
    a priori (infinite where nothing is known). `rounding` bounds the rounding of the gradient, for a solver that has
    a better bound than f's own. A batch of FISTA leaves z's image out: nothing needs it there.
    """

    z: Array
    z_image: Array
    z_gradient: Array
    tau: float | None = None
    contraction: float = 1.0
    majoriser: float = math.inf
    rate: float = math.inf
    rounding: float | None = None


def gap_radius(problem: Canonical, x: Array, z: Array, z_gradient: Array, M: float = math.inf) -> float:
    """The bound D/2 + R of the module's text, in exact arithmetic."""
    return _gap_radius(problem, x, problem.mu * z - z_gradient, 0.0 if x is z else norm(x - z), M)


def _gap_radius(problem: Canonical, x: Array, v: Array, moved: float, M: float) -> float:
    mu = problem.mu
    w_bar, B = problem.g.remainder(x, v, mu)
    D = norm(x - w_bar)
    R_squared = B / mu + 0.25 * D * D
    if moved > 0.0:
        R_squared += 0.5 * max(M / mu - 1.0, 0.0) * moved * moved
    return 0.5 * D + math.sqrt(R_squared)


def smooth_gap(mu: float, M: float, tau: float, size: float) -> float:
    """`gap_radius` of x = z - tau grad f(z) for g = 0, where every norm is a multiple of size = ||grad f(z)||."""
    D = abs(1.0 / mu - tau) * size
    moved = tau * size
    return 0.5 * D + math.sqrt(0.25 * D * D + 0.5 * max(M / mu - 1.0, 0.0) * moved * moved)


def certify_step(
    problem: Canonical, x: Array, image: Array | None, evidence: Evidence, rule: Rule, initial_radius: float
) -> Certificate:
    """The certificate of x by `rule`, given the solver's evidence and a proven bound on the start's distance.

    x's image is computed where a rule needs it and the solver has none."""
    z, tau, z_gradient = evidence.z, evidence.tau, evidence.z_gradient
    a_priori = evidence.rate * initial_radius if evidence.rate < math.inf else math.inf
    if rule == "rate":
        return _with_rounding(a_priori, "rate", 2.0 * _rounding(problem, z, evidence.z_image))
    if rule in ("gap", "minimum_norm", "subgradient"):
        image = problem.f.image(x) if image is None else image
        at_x = z_gradient if tau is None else problem.f.gradient_at(x, image)
        rounding = _rounding(problem, x, image, evidence.rounding if tau is None else None)
        if rule == "gap":
            return _with_rounding(gap_radius(problem, x, x, at_x), "gap", rounding)
        if rule == "minimum_norm":
            return _with_rounding(norm(problem.g.least_subgradient(x, at_x)) / problem.mu, rule, rounding)
        if tau is None:
            raise ValueError("certificate='subgradient' needs a solver whose last move was a prox-gradient step")
        d = at_x - z_gradient + (z - x) / tau
        step_rounding = 2.0 * EPS * (norm(z) + norm(x)) / (tau * problem.mu)
        return _with_rounding(norm(d) / problem.mu, rule, 2.0 * rounding + step_rounding)

    rounding = _rounding(problem, z, evidence.z_image, evidence.rounding)
    smooth = isinstance(problem.g, Zero)
    size = norm(z_gradient) if smooth else math.nan
    v = z_gradient if smooth else problem.mu * z - z_gradient
    at_z = size / problem.mu if smooth else _gap_radius(problem, z, v, 0.0, math.inf)
    if tau is None:
        return _with_rounding(at_z, "gap", rounding)
    c, moved = evidence.contraction, tau * size if smooth else norm(x - z)
    rounding += 8.0 * EPS * (norm(z) + moved if smooth else norm(x))
    nearer = min(c * at_z if c > 0.0 else 0.0, c * fixed_point_radius(moved, c))
    best = _with_rounding(nearer, "contraction", rounding)
    if rule == "tightest":
        M = evidence.majoriser
        gap = smooth_gap(problem.mu, M, tau, size) if smooth else _gap_radius(problem, x, v, moved, M)
        if gap < nearer:
            best = _with_rounding(gap, "gap", rounding)
        if a_priori < best.radius and problem.f.rounding_is_known:
            best = min(best, _with_rounding(a_priori, "rate", 2.0 * rounding), key=lambda proof: proof.radius)
    return best


def fixed_point_radius(moved: float, c: float) -> float:
    """||z - x_hat|| <= ||z - x|| / (1 - c) for a contraction by c that takes z to x, with the rounding of 1 - c."""
    gap = 1.0 - c
    return moved / gap * (1.0 + 4.0 * EPS / gap) if gap > 0.0 else math.inf


def certify(problem: Composite, x: Array) -> Certificate:
    """The tightest certificate of any x, wherever it came from: one gradient."""
    canonical = problem.canonical
    x = vector(x, "x")
    if problem.size is not None and x.shape != (problem.size,):
        raise ValueError(f"x must have shape ({problem.size},), got {x.shape}")
    image = canonical.f.image(x)
    gradient = canonical.f.gradient_at(x, image)
    return certify_step(canonical, x, image, Evidence(x, image, gradient), "tightest", math.inf)


def _rounding(problem: Canonical, x: Array, image: Array, known: float | None = None) -> float:
    """How far the gradient's rounding may move the minimiser, plus the rounding of the certificate itself."""
    error = problem.f.gradient_rounding(x, image) if known is None else known
    return error / problem.mu + 8.0 * EPS * norm(x)


def _with_rounding(radius: float, rule: str, rounding: float) -> Certificate:
    return Certificate(radius * (1.0 + 64.0 * EPS) + rounding, rule, rounding)
