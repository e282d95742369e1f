r"""Verified solutions: the exact minimiser exhibited near w, on its signed support. No strong convexity is needed.

    Phi(w) = f(w) + sum_j l1_j |w_j|,        f(w) = sum_i a_i psi(x_i . w) + 1/2 sum_j l2_j w_j^2,        l2_j >= 0.

Let S hold the support of w, with signs sigma, and all j with l1_j = 0; an intercept that is not penalised is one more
column of S, of ones. On S, let H be the Hessian of f at w, u = grad f(w) + l1 sigma, and lambda = ||u||_{H^-1}, the
Newton decrement. Let |psi'''| <= M psi'' (logistic, Poisson and those of `suffice.models.families`: 1, squares: 0) and
kappa = M max_i ||x_i||_{H^-1}.

1. *Reduced minimiser.* On the way to w + h, psi'' of row i changes by no more than the factor e^(+-a), a = M |x_i . h|
   <= kappa ||h||_H, so that <grad f(w + h) - grad f(w), h> >= ||h||_H^2 (1 - e^-a)/a. If kappa lambda < 1, then f +
   <l1 sigma, .> has a minimiser w + h on S, and ||h||_H <= rho = -ln(1 - kappa lambda)/kappa (lambda for M = 0).
2. *Its place.* For any n,  h - n = -H^-1 (u + H n + r),  ||r||_{H^-1} <= rho (e^a - 1 - a)/a,  a = kappa rho. With n
   the Newton step as computed,  ||h - n||_H <= epsilon,  which is of second order in rho, and rounding.
3. *Signs.* sigma_j (w_j + n_j) > epsilon sqrt((H^-1)_jj) wherever l1_j > 0: the signs are those assumed.
4. *Zeros.* |grad_j f(w + h)| < l1_j for every j outside S. It differs from grad_j f(w) by at most e^a rho ||x_j||_C, C
   = diag(a_i psi''(w)), and from grad_j f(w) + x_j^T C X n by at most (epsilon + ||r||) ||x_j||_C.

Then (w + h, 0) satisfies the optimality conditions of the whole convex problem: it is its minimiser, and the only one.
It lies within  ||n|| + epsilon / sqrt(lambda_min(H))  of w, and a prediction t . w errs by at most  |t . n| + epsilon
||t||_{H^-1}.

Weights that must not be negative (`penalties.prox`) are the same with sigma_j = 1, also for l1_j = 0, and in 4
with  grad_j f(w + h) > -l1_j  for those that are zero.

Huber's psi and the squared hinge are piecewise quadratic, psi'' = 0 or c. Rows that may reach a kink within rho count
as 0 in H, which is then no more than the Hessian anywhere near: ||h||_H <= lambda, if lambda <= rho. Since these rows
pull by at most c a_i |x_i . h| more, ||r||_{H^-1} <= rho sum_i c a_i ||x_i||^2_{H^-1} over them.

Sums over rows are made where the rows are (`suffice.prove.verified_rows`): in main memory, on a device, or block by
block from a disk or on a cluster (`suffice.prove.verified_blocks`). What is bounded holds for any order of them.

Rounding. H has a factor that is good for proofs (`suffice.prove.signed_factor`). The margins' own rounding, delta_i,
moves u by X^T C delta, which is at most ||C^(1/2) delta|| in the norm of H^-1 whatever X is; that of sums is bounded
entry by entry. Both are part of lambda and of epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, host, lives_elsewhere, norm
from suffice.models.intercept import Intercepted
from suffice.models.linear import LossModel
from suffice.models.margin_losses import Bending, Kinked
from suffice.models.row_sums import RowSums
from suffice.penalties.prox import BoxL1, WeightedL1
from suffice.protocols import conforms
from suffice.prove.signed_factor import LEAST, Factor, Indices, SignedFactor
from suffice.prove.verified_blocks import InBlocks
from suffice.prove.verified_rows import InMemory, Rows
from suffice.rows.blocks import Blocked, Margins, one_thread
from suffice.rows.design import OF_FACTORS, Design, largest_matrix
from suffice.rows.rounding import TINY, U, gamma
from suffice.solvers.problem import Canonical, LinearParts

LARGEST_PRODUCT = 0.5  # of kappa lambda: beyond, nothing is claimed
CHEAP = 0.02  # of kappa lambda: below, a bound without the rows' own norms is as good
LITTLE = 0.01  # of rho: what the margins' rounding may add before it is bounded more sharply
TRIES = 4  # to find the rows that may reach a kink


@dataclass(frozen=True, eq=False)
class Verifiable:
    """Phi as it is verified: margins X w, or X w + b with a free b; l1 and l2 are one per column."""

    model: LossModel
    l1: Array
    l2: Array
    positive: npt.NDArray[np.bool_] | None = None  # weights that must not be negative

    @classmethod
    def of(cls, problem: Canonical, size: int) -> Verifiable | None:
        """None for anything but a linear model with a psi of known kind, and an l1 penalty or none."""
        g, positive = problem.g, None
        if isinstance(g, BoxL1) and g.one_sided:
            positive = np.broadcast_to(np.asarray(g.lower) == 0.0, size)
            problem = replace(problem, g=WeightedL1(np.broadcast_to(g.l1, size)))
        parts = LinearParts.of(problem)
        if parts is None or not conforms(parts.model.loss, Bending | Kinked):
            return None
        if isinstance(parts.model.design.X, Blocked) and not isinstance(parts.model, RowSums):
            return None  # a model that knows nothing of blocks
        l1, l2 = (np.broadcast_to(np.asarray(one, dtype=np.float64), size) for one in (parts.l1, parts.l2))
        return cls(parts.model, l1, l2, positive)

    @property
    def design(self) -> Design:
        return self.model.design

    @property
    def loss(self) -> Any:
        """Bending or Kinked."""
        return self.model.loss

    @property
    def intercept(self) -> Intercepted | None:
        """The model whose b is minimised out."""
        return self.model if isinstance(self.model, Intercepted) else None

    def rows(self, w: Array, image: Any, b: float, S: Indices) -> Rows:
        """What is asked of rows at w, S being the columns of H."""
        intercept = self.intercept is not None
        if isinstance(self.design.X, Blocked):
            return InBlocks(self.model, w, image, b, S, intercept)
        return InMemory(self.design, self.loss, host(self.model.y), w, host(image), b, S, intercept)

    def outward(self, gradient: Array, these: Any) -> Array:
        """How far entries of the gradient of f pull zeros away from 0: |.|, or downhill where that is allowed only."""
        sizes = np.abs(gradient)
        return sizes if self.positive is None else np.where(self.positive[these], -gradient, sizes)


@dataclass(frozen=True, eq=False)
class Verification:
    """The minimiser is w + h, h being 0 outside the support of `factor`, and ||h - step||_{R^T R} <= slack on it."""

    factor: Factor
    step: Array  # n, in units of the data, with the intercept's part
    slack: float
    radius: float  # a bound on ||h||, without the intercept
    rounding: float  # the part of it that no further iteration removes

    def against(self, v: Array, error: Array | float) -> float:
        """A bound on |v . (h - n)| for a vector v in units of the data, on the support and the intercept, whose
        entries err by `error`."""
        scale = self.factor.scale
        return self.slack * self.factor.norm_of(v * scale, error * scale)


@dataclass(frozen=True, eq=False)
class LinearVerification(Verification):
    """That of a model with one margin per row; an intercept's part of the step is the last."""

    factor: SignedFactor
    b: float = 0.0  # the intercept that `step` adds to

    def along(self, X: Any) -> tuple[Array, Array, Array]:
        """t . n of rows t of X, its rounding, and a bound on |t . (h - n)|, row by row."""
        along, rounding, norms = self.factor.over_rows(X, self.step / self.factor.scale)
        return along, rounding, self.slack * norms


@dataclass(frozen=True)
class Region:
    """What is known of f within rho of w, in norms by H."""

    up: float  # from norms by R^T R to norms by H
    eta: float  # H = (1 + eta)^(+-1) times the factor's
    of_u: float  # the error of u
    rho: float
    remainder: float  # ||r||
    pull: float  # on a column of unit ||.||_C, at most
    remainder_pull: float  # of r
    C: Any  # largest, for columns outside the support: as `Rows.C`


@dataclass(frozen=True)
class Place:
    """Where h is: ||h - n||_H <= epsilon, of which `arithmetic` is due to rounding; n is scaled."""

    n: Array
    epsilon: float
    arithmetic: float

    @classmethod
    def of(cls, factor: Factor, region: Region, u: Array) -> Place:
        """By step 2 of the module's text."""
        n, moved, left = factor.solve(u * factor.scale)
        up = 1.0 + gamma(4 * len(factor) + 64)
        arithmetic = (region.up * left + region.of_u) * up
        epsilon = (arithmetic + (1.0 + region.eta) * region.eta * moved + region.remainder) * up
        return cls(-n, epsilon, arithmetic)


def verify(model: Verifiable, w: Array, image: Any, gradient: Array) -> LinearVerification | None:
    """The proof that the minimiser is close to w, or None. `image` is X w, a product, and `gradient` that of f at w,
    by this image."""
    if isinstance(image, Margins) and not image.is_product:
        return None  # what was carried along straight lines errs by more
    b = 0.0 if model.intercept is None else model.intercept.b(image)
    # What the host has left to do for a device is small: many threads take longer for it than one.
    threads = one_thread() if lives_elsewhere(model.design.X) else nullcontext()
    with threads, np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _verify(model, w, image, gradient, b)


def _verify(model: Verifiable, w: Array, image: Any, gradient: Array, b: float) -> LinearVerification | None:
    design, l1, N = model.design, model.l1, model.design.shape[0]
    signed = l1 > 0.0 if model.positive is None else (l1 > 0.0) | model.positive
    if model.positive is not None and np.any(model.positive & (w < 0.0)):
        return None
    S: Indices = np.flatnonzero((w != 0.0) | ~signed)
    size = len(S) + (model.intercept is not None)
    if size == 0 or size > largest_matrix(design) or size > N + np.count_nonzero(model.l2[S]):
        return None
    rows = model.rows(w, image, b, S)
    slopes = rows.slopes()
    if slopes is None:
        return None

    # u = grad f + l1 sigma on S, and how far its sums may be off, entry by entry
    sigma = np.where(signed[S], np.sign(w[S]), 0.0)
    of_sums = design.pull_gammas * design.column_norms * slopes.rough
    of_sums += 4.0 * EPS * (np.abs(gradient) + model.l2 * np.abs(w))
    of_sums += design.underflow
    u, error = gradient[S] + l1[S] * sigma, of_sums[S] + 4.0 * EPS * l1[S]
    if model.intercept is not None:
        u = np.append(u, slopes.total)
        error = np.append(error, gamma(N + OF_FACTORS) * slopes.size + design.underflow)

    found = _region(model, rows, u, error, model.l2[S])
    if found is None:
        return None
    factor, region = found
    place = Place.of(factor, region, u)
    bounds = signs_kept(factor, region, place, w[S], sigma, slice(len(S)))
    if bounds is None or not _zeros(model, rows, factor, region, gradient, of_sums, place):
        return None
    return LinearVerification(factor, place.n * factor.scale, region.up * place.epsilon, *bounds, b)


def signs_kept(
    factor: Factor, region: Region, place: Place, w: Array, sigma: Array, these: slice | npt.NDArray[np.bool_]
) -> tuple[float, float] | None:
    """Step 3 of the module's text for the weights w, which are `these` variables of the factor and have the signs
    sigma, 0 where they have no l1: a bound on ||h|| on them, and the part of it that is rounding. None where a sign may
    be wrong."""
    size, up = len(factor), region.up
    step = (place.n * factor.scale)[these]  # exact: a power of two
    single, whole = factor.spread(these)
    doubt = 4.0 * EPS * (np.abs(w) + np.abs(step)) + TINY
    if not np.all((sigma == 0.0) | (sigma * (w + step) - doubt > up * place.epsilon * single)):
        return None
    radius = norm(step) * (1.0 + gamma(size + 8)) + up * place.epsilon * whole + 8.0 * size * TINY
    return radius * (1.0 + 16.0 * EPS), min(up * place.arithmetic * whole, radius)


def _region(model: Verifiable, rows: Rows, u: Array, error: Array, l2: Array) -> tuple[SignedFactor, Region] | None:
    """Steps 1 and 2; how far margins are off is roughly bounded, if that is little beside the rest of u."""
    if not conforms(model.loss, Bending):
        return _kinked_region(model, rows, u, error, l2)
    M = model.loss.third
    factor = rows.factor(l2)
    if factor is None:
        return None

    def bend(useful: float) -> float:
        return M * rows.reach(factor, useful) if M > 0.0 else 0.0

    for sharp in (False, True):
        off = rows.off(sharp)
        if off is None:
            continue  # rates were cut off
        own, shaken = M * off[0] + 16.0 * U if M > 0.0 else 0.0, off[1]
        region = bent_region(factor, own, shaken, u, error, bend, rows.C)
        if region is not None and (sharp or max(shaken, own * region.rho) <= LITTLE * region.rho):
            return factor, region
    return None


def bent_region(
    factor: Factor, own: float, shaken: float, u: Array, error: Array, bend: Callable[[float], float], C: Any
) -> Region | None:
    """Steps 1 and 2 of the module's text. The factor's H, and C, belong to margins that are off: by as much as changes
    H by no more than e^(+-own), and by `shaken` in its norm. u errs by `error`, entry by entry, besides. `bend` gives
    M max_i ||x_i||_{(R^T R)^-1}, no sharper than useful."""
    if not own < 1.0:
        return None
    eta = math.expm1(own)
    up = math.sqrt((1.0 + eta) / (1.0 - factor.tau)) * (1.0 + 8.0 * EPS)
    of_margins = math.exp(2.0 * own) * shaken + 1e-150
    of_u = up * factor.norm_of(np.zeros_like(u), error * factor.scale) + of_margins
    decrement = up * factor.norm_of(u * factor.scale) + of_u
    kappa = up * bend(CHEAP / decrement)
    if not kappa * decrement < LARGEST_PRODUCT:
        return None
    rho = (-math.log1p(-kappa * decrement) / kappa if kappa > 0.0 else decrement) * (1.0 + 16.0 * EPS)
    alpha = kappa * rho * (1.0 + 8.0 * EPS)
    remainder = rho * alpha * (0.5 + alpha * (1.0 + alpha) / 6.0)  # no less than (e^a - 1 - a)/a for a <= 1
    largest = C * math.exp(own) * (1.0 + 32.0 * EPS) + TINY
    pull = math.exp(alpha) * rho + of_margins
    return Region(up, eta, of_u, rho, remainder, pull, remainder + of_margins + math.expm1(own) * rho, largest)


def _kinked_region(
    model: Verifiable, rows: Rows, u: Array, error: Array, l2: Array
) -> tuple[SignedFactor, Region] | None:
    kinks, more = rows.kinks(), 1.0 + gamma(model.design.shape[0] + 8)
    for _ in range(TRIES):
        factor = kinks.factor(l2)
        if factor is None:
            return None
        up = math.sqrt(1.0 / (1.0 - factor.tau)) * (1.0 + 8.0 * EPS)
        kinks, of_rest, of_heavy, squares = kinks.pulls(factor, up)
        of_margins = (of_rest + of_heavy + 1e-150) * more
        of_u = up * factor.norm_of(np.zeros_like(u), error * factor.scale) + of_margins
        decrement = up * factor.norm_of(u * factor.scale) + of_u
        rho = 1.01 * decrement
        if not kinks.reached(rho):
            break
        rho = 2.0 * decrement  # with rows left out of H there will be a larger one
        kinks = kinks.wider(rho)
    else:
        return None
    squares *= more
    root = math.sqrt(squares) * (1.0 + 8.0 * EPS)
    largest, direct = kinks.largest()
    direct = direct * more + 1e-150
    pull = rho * math.sqrt(1.0 + squares) * (1.0 + 8.0 * EPS) + direct
    return factor, Region(up, 0.0, of_u, rho, rho * squares, pull, rho * root + direct, largest)


def _zeros(
    model: Verifiable,
    rows: Rows,
    factor: SignedFactor,
    region: Region,
    gradient: Array,
    of_sums: Array,
    place_of_h: Place,
) -> bool:
    """Whether all weights outside the support are zero at the minimiser, by bounds that get sharper."""
    design, N = model.design, model.design.shape[0]
    up = 1.0 + gamma(N + 16)
    outside = np.ones(design.shape[1], dtype=bool)
    outside[factor.support] = False
    steepest = math.sqrt(rows.steepest(region.C)) * up
    slope, limit = model.outward(gradient, slice(None)) + of_sums, model.l1 * (1.0 - 4.0 * EPS)
    doubtful = np.flatnonzero(outside & ~(slope + region.pull * steepest * design.column_norms < limit))
    if len(doubtful) == 0:
        return True
    lengths = np.sqrt(rows.squares(doubtful, region.C)) * up + LEAST
    left = ~(slope[doubtful] + region.pull * lengths < limit[doubtful])
    if not left.any():
        return True
    doubtful, lengths = doubtful[left], lengths[left]
    found = rows.change(doubtful, factor, place_of_h.n)
    error = gamma(N + 16) * found.sizes
    error += lengths * up * (1.0 + region.eta) * found.blur
    error += lengths * up * region.eta * found.along
    error += 4.0 * EPS * (np.abs(gradient[doubtful]) + np.abs(found.change)) + of_sums[doubtful]
    there = model.outward(gradient[doubtful] + found.change, doubtful) + error
    there += lengths * (place_of_h.epsilon + region.remainder_pull)
    return bool(np.all(there < limit[doubtful]))
