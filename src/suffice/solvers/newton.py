r"""Prox-Newton on a working set:  Phi = f + g  for every smooth f that has a Hessian, and every g that knows where it
is smooth (an l1 penalty or none, bounds on the weights, groups of them).

A step minimises the model  q(v) = <grad f(w), v - w> + 1/2 (v - w)^T H (v - w) + g(v)  over the columns W of the
working set (`suffice.solvers.minimise`) and then searches along v - w (`suffice.solvers.line_search`). The working set
holds the support of w, always, and the zeros that violate optimality most, with the whole of their groups.

- H comes from `suffice.solvers.hessian`. Of a linear model it is a sum over rows. For least squares H is the same
  everywhere, and made once for all (`Design.gram`).
- It is a matrix of |W|^2 numbers, or of N^2 where there are fewer rows than columns in W; where neither fits into
  memory, or products with X cost less, as they may for several classes, these take its place. Their systems are solved
  no more accurately than steps deserve (Eisenstat and Walker, SIAM J. Sci. Comput. 17, 1996): up to FORCING times the
  square of the factor by which the step before has shortened the least subgradient.
- Steps in a row that get no farther than SHORT of their way were misled by psi'' at w: rows of Huber's loss with a
  large residual have none. The next one is tried again with the mean of psi'' on its way.

Certificates come from the gradient at w, by the duality gap: they need mu, but no L. A verification
(`suffice.prove.verified`) costs as much as many steps: it is made once they have cost as much.

A step that shortens the least subgradient no more is the last; so is the last of PATIENCE
steps in a row that find none shorter than the shortest before. Where the rounding of the gradient is infinite f may
have none: such a point is no start, and a step that leads there is the last, unless psi'' has bent on its way; so is
one that gets no further than STUCK of it, as happens next to such points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from suffice.arrays import Array, norm
from suffice.models.margin_losses import Quantile
from suffice.models.smooth import ImagedSmooth, Ridged
from suffice.penalties.prox import Indices, Lasso, Structured
from suffice.protocols import conforms
from suffice.solvers.certificate import RECOMPUTED, Evidence
from suffice.solvers.hessian import Hessians, OfRows, hessians_of
from suffice.solvers.line_search import Found, search
from suffice.solvers.minimise import minimise_model
from suffice.solvers.problem import Canonical, Composite, LinearParts
from suffice.solvers.quadratic import NoFactorError, Quadratic

SHORT, HESITANT, TRIES = 0.3, 2, 8  # of the way, more often than so: tried again so many times
FALLEN = 10.0  # times shorter: a least subgradient after a step with the right signs
BLURRED = 100.0  # times the rounding of a gradient: about as long is a subgradient that proves no more
PATIENCE = 50  # steps without a shorter subgradient than before
STUCK = 1e-3  # of the way: no step gets on from here
LOOSEST, TIGHTEST, FORCING = 0.25, 0.02, 0.9
NARROWER, STEPS = 0.25, 8  # widths of quantiles shrink by this factor, after so many steps at most
WIDE_ENOUGH = 16.0  # times the last width: where a start that is nearly a solution begins


@dataclass(frozen=True)
class NewtonState:
    """Image and evidence are None in a state that comes from a file: the next step has to compute them."""

    x: Array
    k: int = 0
    ended: bool = False  # rounding is all that is left
    shortest: float = math.inf  # least subgradient so far,
    idle: int = 0  # and the steps since then
    short: int = 0  # steps in a row that were cut short
    image: Any = field(default=None, metadata=RECOMPUTED)
    evidence: Evidence | None = field(default=None, metadata=RECOMPUTED)
    settled: bool = False  # whether a verification is due: the signs look right, and steps have cost as much
    spent: float = 0.0  # operations of steps since the last one
    tolerance: float = LOOSEST  # of the next system that is solved by products


@dataclass(frozen=True)
class Newton:
    """Prox-Newton on a working set; one step minimises one model."""

    name: str = "newton"

    def takes(self, problem: Canonical) -> str | None:
        if hessians_of(problem) is not None and conforms(problem.g, Structured):
            return None
        return (
            "needs a smooth term with a Hessian, such as a linear model (a suffice.terms.LinearModel), that has room, "
            "with an l1 penalty or none, bounds or groups (suffice.terms.BoxL1, SparseGroup), got "
            f"{type(problem.term).__name__} and {type(problem.g).__name__}: try 'fista_adaptive', or 'auto'"
        )

    def start(self, problem: Canonical, x: Array) -> NewtonState:
        hessians = _hessians(problem)
        x = x if isinstance(problem.g, Lasso) else problem.g.prox(x, 0.0)  # into the domain of g
        with np.errstate(over="ignore", invalid="ignore"):
            image = problem.f.image(x)
            if (hessians.bends or math.isinf(problem.L)) and not math.isfinite(hessians.rounding(x, image)):
                x = np.zeros_like(x)  # where rates overflow nothing can be computed, and no step begins
                image = problem.f.image(x)
        return NewtonState(x, image=image)

    def step(self, problem: Canonical, state: NewtonState) -> NewtonState:
        if state.ended:
            return state
        hessians, g = _hessians(problem), problem.g
        image = problem.f.image(state.x) if state.image is None else state.image
        here = hessians.evidence(state.x, image) if state.evidence is None else state.evidence
        least = g.least_subgradient(here.z, here.z_gradient)
        if not least.any():
            return replace(state, ended=True, image=here.z_image, evidence=replace(here), settled=True)
        working, complete = _working_set(hessians, here.z, least)
        H = hessians.at(here.z_image, working, state.tolerance)
        target = _target(problem, here, working, H)
        found = search(problem, here, target, problem.f.image(target))
        short = state.short + 1 if found.t <= SHORT else 0
        if short > HESITANT and not found.blurred and isinstance(hessians, OfRows):
            found = _steadier(problem, hessians, here, working, target, found)
        there = hessians.evidence(found.x, found.image, found.gradient)
        before, after = norm(least), norm(g.least_subgradient(found.x, there.z_gradient))
        if found.blurred and not after < before:
            return replace(state, ended=True, settled=True, image=here.z_image, evidence=replace(here))
        shortest, idle = min(state.shortest, after), 0 if after < 0.999 * state.shortest else state.idle + 1
        stuck = norm(found.x - here.z) <= STUCK * norm(target - here.z) or math.isinf(there.rounding or 0.0)
        ended = idle >= PATIENCE or (found.blurred and after > 0.9 * before and complete)
        ended = ended or (stuck and hessians.bends)
        spent = state.spent + hessians.price(H, len(working))
        near = after <= BLURRED * (there.rounding or 0.0)  # the gap will prove no more
        due = problem.mu == 0.0 or near or spent >= hessians.proof_price(found.x)
        # Without an l1 signs tell nothing: far from the solution they stay, and no verification succeeds.
        signs = not (isinstance(g, Lasso) and not np.any(g.l1)) and np.array_equal(np.sign(here.z), np.sign(found.x))
        settled = ended or (due and (FALLEN * after <= before or signs))
        return NewtonState(
            *(found.x, state.k + 1, ended, shortest, idle, short),
            *(found.image, there, settled, 0.0 if settled else spent),
            tolerance=min(max(FORCING * (after / before) ** 2, TIGHTEST), LOOSEST),
        )


@dataclass(frozen=True)
class NewtonNarrowing(Newton):
    """Newton's method for quantile regression: the smoothed pinball loss, narrowed step by step.

    psi'' of the smoothed loss is 1/h within a band of width h around a row's target and 0 elsewhere. Far from the
    solution no row may lie in its band, and Newton's method has no curvature to go by. So the first widths are those of
    the residuals themselves, each minimiser is the start for a width NARROWER times as large, and the last width is
    that of the problem."""

    name: str = "newton_narrowing"

    def takes(self, problem: Canonical) -> str | None:
        parts = LinearParts.of(problem)
        if parts is None or not isinstance(parts.model.loss, Quantile):
            return "is for the smoothed pinball loss (suffice.models.margin_losses.Quantile): use 'auto'"
        return None

    def start(self, problem: Canonical, x: Array) -> NewtonState:
        parts = LinearParts.of(problem)
        assert parts is not None and isinstance(parts.model.loss, Quantile)
        model, loss = parts.model, parts.model.loss
        h = WIDE_ENOUGH * loss.h  # a start that is another problem's solution needs no more
        if not x[np.asarray(parts.l1) > 0.0].any():
            h = max(float(np.median(np.abs(model.y - model.image(x)))), h)
        while h > loss.h:
            smooth: ImagedSmooth = replace(model, loss=Quantile(loss.q, h))
            smooth = Ridged(smooth, problem.f.ridge) if isinstance(problem.f, Ridged) else smooth
            wide = Composite(smooth, problem.g, mu=problem.mu, L=problem.L).canonical
            state = super().start(wide, x)
            for _ in range(STEPS):
                state = self.step(wide, state)
                if state.ended:
                    break
            x, h = state.x, NARROWER * h
        return super().start(problem, x)


def _hessians(problem: Canonical) -> Hessians:
    hessians = hessians_of(problem)
    assert hessians is not None
    return hessians


def _working_set(hessians: Hessians, x: Array, least: Array) -> tuple[Indices, bool]:
    """The columns to move, and whether they are all that are not at their optimum."""
    support, g = x != 0.0, hessians.problem.g
    moving, limit = support | (least != 0.0), hessians.limit(int(np.count_nonzero(support)))
    complete = int(np.count_nonzero(moving)) <= limit or (isinstance(g, Lasso) and not np.any(g.l1))
    if not complete:
        pull = np.where(support, math.inf, np.abs(least))
        moving = np.zeros(len(x), dtype=np.bool_)
        moving[np.argpartition(pull, len(pull) - limit)[len(pull) - limit :]] = True
    return np.flatnonzero(moving if isinstance(g, Lasso) else g.whole(moving)), complete  # type: ignore[attr-defined]


def _steadier(problem: Canonical, hessians: OfRows, here: Evidence, W: Indices, target: Array, found: Found) -> Found:
    """The best of steps with more and more of the curvature that they meet on their way, until one gets on."""
    model = hessians.term
    C = model.row_curvature(here.z_image)
    for _ in range(TRIES):
        larger = model.steadier(C, here.z_image, problem.f.image(target))
        if larger is None:
            break
        C = larger
        try:
            target = _target(problem, here, W, hessians.made(C, W))
        except NoFactorError:
            break
        other = search(problem, here, target)
        found = min(found, other, key=lambda one: one.change)
        if other.t > SHORT:
            break
    return found


def _target(problem: Canonical, here: Evidence, W: Indices, H: Quadratic) -> Array:
    """The minimiser of q over these columns."""
    target, g = here.z.copy(), cast("Structured", problem.g)
    target[W] = minimise_model(H, here.z_gradient[W], here.z[W], g.on(W, len(target)))
    return target
