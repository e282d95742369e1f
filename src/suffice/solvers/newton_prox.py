r"""Prox-Newton for structured penalties g (`suffice.penalties.structure`): bounds on the weights, groups of them.

A step minimises the model  q(v) = <grad f(x), v - x> + 1/2 (v - x)^T H (v - x) + g(v)  over the variables that may
move: those that are not zero, and of those at zero the ones that are farthest from their optimum, with the whole of
their groups. H = hess f(x) on these. q is minimised

- by FISTA with a restart, which finds out which variables are at a kink of g or at a bound, and then
- by Newton's method on the others, where g is smooth: its Hessian is 0, or that of the norms of groups. Steps are cut
  where a variable would cross a kink or a bound; it stays there, and the next step goes without it.

Then follows a search along v - x: by values of Phi as long as they can tell, by the length of the least subgradient
where rounding hides their differences. Certificates come from the gradient at x, by the duality gap: they need mu, but
no L; where `suffice.prove.verified` knows the structure (weights that must not be negative) not even mu.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, lives_elsewhere, norm
from suffice.models.intercept import Intercepted
from suffice.models.linear import LossModel
from suffice.penalties.prox import CertifiableProx
from suffice.protocols import conforms
from suffice.rows.blocks import Blocked
from suffice.rows.design import largest_matrix
from suffice.rows.gram import centred, gram
from suffice.solvers.certificate import Evidence
from suffice.solvers.newton import NewtonState, looks_settled
from suffice.solvers.newton_hessian import Curved
from suffice.solvers.parts import Parts
from suffice.solvers.problem import Canonical
from suffice.solvers.quadratic import Indices, on_these

INNER, SMOOTH = 1000, 30  # iterations of FISTA, and of Newton's method, on a model
CHECK_EVERY = 10
GOOD, BEST = 0.1, 1e-3  # by which they shorten the model's least subgradient
BLURRED = 1e-9  # of Phi: smaller differences of values need not be more than their rounding
MOST_TRIALS = 40
PATIENCE = 20
FIRST = 100  # variables that may leave zero in one step, where fewer have left it already
LEAST_RIDGE = 1e-14


@runtime_checkable
class Structured(CertifiableProx, Protocol):
    """A g that knows where it is smooth; see `suffice.penalties.structure`."""

    def fixed(self, x: Array) -> npt.NDArray[np.bool_]: ...
    def smooth_part(self, x: Array, free: Indices) -> tuple[Array, Array | None]: ...
    def on(self, working: Indices, size: int) -> Structured: ...
    def whole(self, working: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]: ...


@dataclass(frozen=True)
class NewtonProx:
    """Prox-Newton for linear models, or any f with a Hessian, with bounds on the weights or groups of them; one step
    minimises one model."""

    name: str = "newton_prox"

    def takes(self, problem: Canonical) -> str | None:
        term = Parts.of(problem).term
        known = conforms(term, Curved) or (
            isinstance(term, LossModel)
            and not isinstance(term.design.X, Blocked)
            and not lives_elsewhere(term.design.X)
        )
        if known and conforms(problem.g, Structured):
            return None
        return (
            "needs a smooth term with a Hessian, and bounds or groups (suffice.terms.BoxL1, SparseGroup), got "
            f"{type(term).__name__} and {type(problem.g).__name__}: try 'fista_adaptive', or 'auto'"
        )

    def start(self, problem: Canonical, x: Array) -> NewtonState:
        x = problem.g.prox(x, 0.0)  # into the domain of g
        with np.errstate(over="ignore", invalid="ignore"):
            image = problem.f.image(x)
            if not math.isfinite(_rounding(problem, x, image)):
                x = np.zeros_like(x)
                image = problem.f.image(x)
        return NewtonState(x, image=image)

    def step(self, problem: Canonical, state: NewtonState) -> NewtonState:
        if state.ended:
            return state
        g = problem.g
        assert isinstance(g, Structured)
        here = state.evidence or _evidence(problem, state.x, problem.f.image(state.x))
        least = g.least_subgradient(here.z, here.z_gradient)
        if not least.any():
            return replace(state, ended=True, image=here.z_image, evidence=here, settled=True)
        working = np.flatnonzero(g.whole((here.z != 0.0) | _entering(here.z, least)))
        H = hessian(problem, here, working)
        target = here.z.copy()
        part = g.on(working, len(here.z))
        target[working] = minimise(H, here.z_gradient[working], here.z[working], part, problem.L)
        return _searched(problem, state, here, target, norm(least))


def _entering(x: Array, least: Array) -> npt.NDArray[np.bool_]:
    """Which variables at zero may move: those that are farthest from their optimum, no more than FIRST of them or as
    many as move already. Others have their turn."""
    new = np.where(x == 0.0, np.abs(least), 0.0)
    most = max(FIRST, int(np.count_nonzero(x)))
    if np.count_nonzero(new) <= most:
        return new > 0.0
    entering: npt.NDArray[np.bool_] = new >= np.partition(new, -most)[-most]
    return entering


def _searched(problem: Canonical, state: NewtonState, here: Evidence, target: Array, before: float) -> NewtonState:
    """The state at a point on the way to `target` where Phi, or its least subgradient, is less."""
    f, g, x = problem.f, problem.g, here.z
    direction, t = target - x, 1.0
    value = f.value_at(x, here.z_image) + g.value(x)
    slope = float(here.z_gradient @ direction) + g.value(target) - g.value(x)
    noise = EPS * (8.0 + math.sqrt(math.prod(here.z_image.shape))) * abs(value)
    for _ in range(MOST_TRIALS):
        trial = target if t == 1.0 else g.prox(x + t * direction, 0.0)
        image = f.image(trial)
        change = f.value_at(trial, image) + g.value(trial) - value
        if abs(slope) > BLURRED * abs(value):
            if not change <= 1e-3 * t * slope + noise:
                t *= 0.5
                continue
            there = _evidence(problem, trial, image)
            after = norm(g.least_subgradient(trial, there.z_gradient))
        else:
            there = _evidence(problem, trial, image)
            after = norm(g.least_subgradient(trial, there.z_gradient))
            if not after < before:
                t *= 0.5
                if t < 0.2:
                    break
                continue
        shortest = min(state.shortest, after)
        idle = 0 if after < 0.999 * state.shortest else state.idle + 1
        settled = looks_settled(x, trial, before, after)
        return NewtonState(trial, state.k + 1, 0, None, idle >= PATIENCE, shortest, idle, 0, image, there, settled)
    return replace(state, ended=True, image=here.z_image, evidence=here, settled=True)


def _rounding(problem: Canonical, x: Array, image: Array) -> float:
    parts = Parts.of(problem)
    if isinstance(parts.term, LossModel):
        return parts.term.rounding_at(x, image) + 2.0 * EPS * float(np.max(parts.ridge)) * norm(x)
    return problem.f.gradient_rounding(x, image)


def _evidence(problem: Canonical, x: Array, image: Array) -> Evidence:
    return Evidence(x, image, problem.f.gradient_at(x, image), rounding=_rounding(problem, x, image))


def hessian(problem: Canonical, here: Evidence, working: Indices) -> Array:
    """hess f at a point, on these variables, as a matrix."""
    parts = Parts.of(problem)
    term, ridge = parts.term, on_these(parts.ridge, working)
    if isinstance(term, LossModel):
        design = term.design
        C, intercept = term.row_curvature(here.z_image), isinstance(term, Intercepted)
        rows = np.flatnonzero(C)
        H, _ = gram(design.X, working, np.sqrt(C[rows]), rows, intercept=intercept)
        H = centred(H) if intercept else H
        H[np.diag_indices(len(H))] += term.l2 + LEAST_RIDGE * design.frobenius_norm**2 / design.shape[1]
    else:
        assert isinstance(term, Curved)
        H = term.hessian(here.z_image, working)
    H[np.diag_indices(len(H))] += ridge
    return H


def fits(problem: Canonical, size: int) -> bool:
    """Whether a Hessian of all variables has room."""
    term: Any = Parts.of(problem).term
    design = getattr(term, "design", None)
    return design is None or size <= largest_matrix(design)


def minimise(H: Array, gradient: Array, x: Array, g: Structured, L: float = math.inf) -> Array:
    """v with q(v) less than q(x), near the minimiser of q; L is no less than ||H||."""
    start = norm(g.least_subgradient(x, gradient))
    v = _on_the_smooth_part(H, gradient, x, x, g)
    if v is not None and norm(g.least_subgradient(v, gradient + H @ (v - x))) <= BEST * start:
        return v
    M = L if math.isfinite(L) else _norm_bound(H)
    best, before, t, z = x, x, 1.0, x
    for iteration in range(1, INNER + 1):
        new = g.prox(z - (gradient + H @ (z - x)) / M, 1.0 / M)
        if float((z - new) @ (new - before)) > 0.0:
            t = 1.0
        t_next = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * t * t))
        z, before, t = new + (t - 1.0) / t_next * (new - before), new, t_next
        if iteration % CHECK_EVERY == 0:
            best = before
            left = norm(g.least_subgradient(best, gradient + H @ (best - x)))
            if left <= BEST * start:
                break
            if left <= GOOD * start or iteration % (10 * CHECK_EVERY) == 0:
                v = _on_the_smooth_part(H, gradient, x, best, g)
                if v is not None and norm(g.least_subgradient(v, gradient + H @ (v - x))) <= BEST * start:
                    return v
    return best


def _norm_bound(H: Array) -> float:
    """No less than ||H||, and hardly more: by a few squarings of the matrix."""
    sums = np.abs(H).sum(axis=1)
    bound = float(sums.max())
    if len(H) <= 1 or not 0.0 < bound < math.inf:
        return max(bound, 1e-300)
    S, exponent = H / bound, 1.0
    for _ in range(3):
        S, exponent = S @ S, 2.0 * exponent
    largest = float(np.abs(S).sum(axis=1).max())
    return bound * math.pow(largest, 1.0 / exponent) * (1.0 + 1e-6)


def _on_the_smooth_part(H: Array, gradient: Array, x: Array, v: Array, g: Structured) -> Array | None:
    """Newton's method on q from v, on the variables that are not at a kink or a bound; those that reach one stay."""
    for _ in range(SMOOTH):
        free = np.flatnonzero(~g.fixed(v))
        if len(free) == 0:
            return v
        slope, bend = g.smooth_part(v, free)
        u = (gradient + H @ (v - x))[free] + slope
        matrix = H[np.ix_(free, free)] if bend is None else H[np.ix_(free, free)] + bend
        try:
            step = -np.linalg.solve(matrix, u)
        except np.linalg.LinAlgError:
            return None
        moved = v.copy()
        moved[free] = v[free] + step
        moved = g.prox(moved, 0.0)  # back within bounds
        crossed = moved * v < 0.0
        moved = np.where(crossed, 0.0, moved)
        if norm(moved - v) <= 1e-13 * norm(v):
            return moved
        if bend is None and not crossed.any() and np.array_equal(moved[free], v[free] + step):
            return moved
        v = moved
    return v
