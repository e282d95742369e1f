r"""Prox-Newton on a working set, for linear models with an l1 penalty:

    Phi(w) = sum_i a_i psi(x_i . w, y_i) + (l2/2) ||w||^2 + l1 ||w||_1.

A step minimises the model  q(v) = <grad f(w), v - w> + 1/2 (v - w)^T H (v - w) + l1 ||v||_1  over the columns W of the
working set (`suffice.solvers.quadratic`) and then searches along v - w (`suffice.solvers.line_search`). The working set
holds the support of w, always, and the zeros that violate optimality most.

- H = X_W^T C X_W + l2, C = diag(a_i psi''), is a sum over rows. While the working set still grows, a sample of the rows
  is enough: row i is taken with probability p_i ~ C_ii ||x_i||^2 and counts C_ii / p_i. Close to the solution all rows
  count, and H is used again as long as steps with it get on faster than the price of a fresh one allows. For least
  squares H is the same everywhere, and made once for all (`Design.gram`).
- H is a matrix of |W|^2 numbers, or of N^2 where there are fewer rows than columns in W; where neither fits into
  memory, products with X take its place.
- Steps in a row that get no farther than SHORT of their way were misled by psi'' at w: rows of Huber's loss with a
  large residual have none. The next one is tried again with the mean of psi'' on its way.

H is `suffice.solvers.linear_hessian`'s; where it is dear, a solve begins with one that was lent by a problem nearby.

Certificates come from the gradient at w, by the duality gap: they need mu, but no L. A state is a point, and where H
was taken: H itself is kept in memory, and is made again, bit for bit, where it is not known. A step that shortens
the least subgradient no more, with a fresh H of all rows, is the last; so is the last of PATIENCE steps in a row that
find none shorter than the shortest before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from suffice.arrays import EPS, Array, norm
from suffice.rows.blocks import Blocked
from suffice.rows.design import Design, largest_matrix
from suffice.solvers.certificate import Evidence
from suffice.solvers.fields import RECOMPUTED
from suffice.solvers.line_search import Found, search
from suffice.solvers.linear_hessian import (
    READ,
    Metric,
    has_factors,
    hessian_at,
    hessian_with,
    is_lent,
    is_single,
    known_hessian,
    price_of_passes,
    with_likely,
)
from suffice.solvers.parts import LinearParts
from suffice.solvers.problem import Canonical
from suffice.solvers.quadratic import Indices, NoFactorError, Quadratic, minimise_model, on_these

FIRST_WORKING_SET = 64
GROWTH = 1.5  # of the working set, relative to the support,
WIDE_GROWTH = 6.0  # and where the support has more columns than X has rows: a model's price is linear in columns then
FIRST_SHARE, LEAST_ROWS = 8, 500  # the first Hessian takes one row in so many, but no fewer than so many
FRESH = 0.02  # by which a step with a fresh H shortens the least subgradient near the solution, roughly
SHORT, HESITANT, TRIES = 0.3, 2, 8  # of the way, more often than so: tried again so many times
FALLEN = 10.0  # times shorter: a least subgradient after a step with the right signs
VERIFICATION = 4.0  # times N s^2: operations of a verification with s weights, about,
MADE_DENSE = 6.0  # and twice as many products with X where that is sparse, and has to be made dense
PATIENCE = 50  # steps without a shorter subgradient than before
UNCOVERED = 0.25  # of the least subgradient: what columns may have that a dear H does not have


@dataclass(frozen=True)
class NewtonState:
    """Image and evidence are None in a state that comes from a file: the next step has to compute them."""

    x: Array
    k: int = 0
    rows: int = 0  # for the next Hessian; 0 before the first
    metric: Metric | None = None  # the last Hessian
    ended: bool = False  # rounding is all that is left
    shortest: float = math.inf  # least subgradient so far,
    idle: int = 0  # and the steps since then
    short: int = 0  # steps in a row that were cut short
    image: Any = field(default=None, metadata=RECOMPUTED)
    evidence: Evidence | None = field(default=None, metadata=RECOMPUTED)
    settled: bool = False  # whether a verification is due: the signs look right, and steps have cost as much
    spent: float = 0.0  # operations of steps since the last one
    again: bool = True  # whether the next step is to use the last Hessian, too


@dataclass(frozen=True)
class Newton:
    """Prox-Newton on a working set, for linear models with an l1 penalty or none; one step minimises one model."""

    name: str = "newton"

    def takes(self, problem: Canonical) -> str | None:
        if LinearParts.of(problem) is not None:
            return None
        return (
            "needs a linear model (a suffice.terms.LinearModel) with an l1 penalty or none, got "
            f"{type(problem.f).__name__} and {type(problem.g).__name__}: try 'fista_adaptive', or 'auto'"
        )

    def start(self, problem: Canonical, x: Array) -> NewtonState:
        terms = LinearParts.of(problem)
        assert terms is not None
        with np.errstate(over="ignore", invalid="ignore"):
            image = problem.f.image(x)
            if math.isinf(problem.L) and not math.isfinite(terms.model.rounding_at(x, image)):
                x = np.zeros_like(x)  # where rates overflow nothing can be computed, and no step begins
                image = problem.f.image(x)
        return NewtonState(x, image=image)

    def step(self, problem: Canonical, state: NewtonState) -> NewtonState:
        if state.ended:
            return state
        terms = LinearParts.of(problem)
        assert terms is not None
        here = _at(problem, terms, state)
        least = problem.g.least_subgradient(here.z, here.z_gradient)
        if not least.any():
            return replace(state, ended=True, image=here.z_image, evidence=here, settled=True)
        working, complete = _working_set(terms, here.z, least)
        metric, fresh = state.metric if state.again else None, False
        if metric is None or not _covers(metric, working, least):
            rows, single = _rows(terms, state, len(working)), is_single(problem, terms.model.design)
            wider = with_likely(terms, working, here.z_gradient) if complete else working
            metric, fresh = Metric(here.z, wider, rows, single, is_lent(terms, len(wider))), True
        H = hessian_at(terms, metric, here.z_image if fresh else None)
        target = _target(terms, here, metric.working, H)
        found = search(problem, here, target)
        short = state.short + 1 if found.t <= SHORT else 0
        if short > HESITANT and not found.blurred:
            found = _steadier(problem, terms, here, metric, target, found)

        there = _evidence(problem, terms, found.x, found.image, found.gradient)
        before, after = norm(least), norm(problem.g.least_subgradient(found.x, there.z_gradient))
        N, s = terms.model.design.shape[0], len(metric.working)
        spent = state.spent + _price_of_step(terms.model.design, s) + (metric.rows * s**2 if fresh else 0.0)
        due = problem.mu == 0.0 or spent >= _price_of_verification(terms.model.design, found.x)
        settled = due and looks_settled(here.z, found.x, before, after)
        best_model = fresh and metric.rows == N
        if found.blurred and not after < before:
            settled = state.settled or best_model
            state = replace(state, rows=N, metric=_to_lend(metric), again=False, ended=best_model)
            return replace(state, image=here.z_image, evidence=here, settled=settled)
        shortest, idle = min(state.shortest, after), 0 if after < 0.999 * state.shortest else state.idle + 1
        ended = idle >= PATIENCE or (found.blurred and after > 0.9 * before and best_model and complete)
        settled = settled or ended
        proven = (found.image, there, settled, 0.0 if settled else spent)
        if found.blurred and after > 0.5 * before:
            last = _to_lend(metric)
            return NewtonState(found.x, state.k + 1, N, last, ended, shortest, idle, short, *proven, again=False)
        rows = min(4 * metric.rows, N) if complete or not _grows(terms, working) else metric.rows
        rows = N if 2 * rows > N else rows
        keep = found.whole and after <= _good_enough(terms.model.design, rows, len(metric.working)) * before
        if not (keep or fresh or state.k):  # it was lent, and this is too far away for it
            rows = 0
        kept = metric if keep else _to_lend(metric)
        return NewtonState(found.x, state.k + 1, rows, kept, ended, shortest, idle, short, *proven, again=keep)


def lent_to(problem: Canonical, state: NewtonState, metric: Metric) -> NewtonState:
    """A state whose next step takes the Hessian of a problem nearby, where such are lent."""
    terms = LinearParts.of(problem)
    fits = terms is not None and metric.anchor.shape == state.x.shape and is_lent(terms, len(metric.working))
    return replace(state, metric=metric, again=True) if fits else state


def _covers(metric: Metric, working: Indices, least: Array) -> bool:
    """Whether steps on the metric's columns will do: on all of the working set or, where H is dear, on what makes up
    most of the least subgradient."""
    outside = working[~np.isin(working, metric.working)]
    return len(outside) == 0 or (metric.lent and norm(least[outside]) <= UNCOVERED * norm(least))


def _to_lend(metric: Metric) -> Metric | None:
    """A Hessian that this solve does not use again; others may."""
    return metric if metric.lent else None


def _price_of_step(design: Design, columns: int) -> float:
    """That of a step without a fresh H, in operations on dense matrices: it factors H and makes two products with X."""
    return columns**3 + price_of_passes(design)


def _price_of_verification(design: Design, x: Array) -> float:
    dense = MADE_DENSE * price_of_passes(design) if sp.issparse(design.X) else 0.0
    return float(VERIFICATION * design.shape[0] * np.count_nonzero(x) ** 2 + dense)


def looks_settled(x: Array, new: Array, before: float, after: float) -> bool:
    """Whether a step from x to `new` tells of signs that are right; `before` and `after` are lengths of the least
    subgradient."""
    return FALLEN * after <= before or np.array_equal(np.sign(x), np.sign(new))


def _steadier(
    problem: Canonical, terms: LinearParts, here: Evidence, metric: Metric, target: Array, found: Found
) -> Found:
    """The best of steps with more and more of the curvature that they meet on their way, until one gets on."""
    C = terms.model.row_curvature(here.z_image)
    for _ in range(TRIES):
        larger = terms.model.steadier(C, here.z_image, problem.f.image(target))
        if larger is None:
            break
        C = larger
        try:
            target = _target(terms, here, metric.working, hessian_with(terms, metric, C))
        except NoFactorError:
            break
        other = search(problem, here, target)
        found = min(found, other, key=lambda one: one.change)
        if other.t > SHORT:
            break
    return found


def _target(terms: LinearParts, here: Evidence, W: Indices, H: Quadratic) -> Array:
    """The minimiser of q over these columns."""
    target = here.z.copy()
    target[W] = minimise_model(H, here.z_gradient[W], here.z[W], on_these(terms.l1, W))
    return target


def _good_enough(design: Design, rows: int, columns: int) -> float:
    """The factor by which a step with an old H has to shorten the least subgradient to be worth its price.

    A fresh H takes rows columns^2 operations more than a step without; in blocks of rows, a pass more than two of them.
    """
    if isinstance(design.X, Blocked):
        reading = READ * design.shape[1]
        return float(min(FRESH ** (2.0 * reading / (3.0 * reading + columns**2)), 0.6))
    price = _price_of_step(design, columns) / (rows * columns**2)
    return float(min(max(FRESH**price, 0.2), 0.6))


def _at(problem: Canonical, terms: LinearParts, state: NewtonState) -> Evidence:
    """x with its image and its gradient, computed where the state has none."""
    if state.evidence is not None:
        return state.evidence
    return _evidence(problem, terms, state.x, problem.f.image(state.x) if state.image is None else state.image)


def _evidence(problem: Canonical, terms: LinearParts, x: Array, image: Any, gradient: Array | None = None) -> Evidence:
    rounding = terms.model.rounding_at(x, image) + 2.0 * EPS * float(np.max(terms.l2)) * norm(x)
    return Evidence(x, image, problem.f.gradient_at(x, image) if gradient is None else gradient, rounding=rounding)


def _working_set(terms: LinearParts, x: Array, least: Array) -> tuple[Indices, bool]:
    """The columns to move, and whether they are all that are not at their optimum."""
    support = x != 0.0
    candidates = np.flatnonzero(support | (least != 0.0))
    s = np.count_nonzero(support)
    wide = s > terms.model.design.shape[0] and has_factors(terms.model.design)
    limit = max(FIRST_WORKING_SET, int((WIDE_GROWTH if wide else GROWTH) * s))
    most = largest_matrix(terms.model.design)
    if limit > most >= max(1.1 * s, FIRST_WORKING_SET) and not has_factors(terms.model.design):
        limit = most
    if len(candidates) <= limit or not np.any(terms.l1):
        return candidates, True
    pull = np.abs(least[candidates])
    pull[support[candidates]] = math.inf
    chosen = np.argpartition(pull, len(pull) - limit)[len(pull) - limit :]
    return np.sort(candidates[chosen]), False


def _grows(terms: LinearParts, working: Indices) -> bool:
    """Whether the next working set may be larger than this one."""
    return has_factors(terms.model.design) or len(working) != largest_matrix(terms.model.design)


def _rows(terms: LinearParts, state: NewtonState, columns: int) -> int:
    N = terms.model.design.shape[0]
    if known_hessian(terms) is not None:
        return N
    if isinstance(terms.model.design.X, Blocked) and columns**2 <= READ * terms.model.design.shape[1]:
        return N  # what a sample saves is less than what its rows take to be read
    rows = max(state.rows or N // FIRST_SHARE, 2 * columns, LEAST_ROWS)
    return N if 2 * rows > N else rows
