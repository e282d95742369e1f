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

*Several outputs.* Multinomial logistic regression with K classes is the same, with

    f(W, b) = sum_i a_i ( log sum_k exp(m_ik) - m_{i, y_i} ) + 1/2 sum_kj l2_kj W_kj^2,     m_i = W x_i + b.

The variables of S are the W_kj that are not 0 or have no l1, and b but for its last entry: softmax does not see a
constant added to all. In a direction that moves m_i by d_i, the derivative of v . H_i v, H_i = diag(p_i) - p_i p_i^T,
is the mean of (v - mean v)^2 (d_i - mean d_i), at most range(d_i) v . H_i v. So H_i changes by no more than the factor
e^(+-a), a = max_i range(d_i), in the order of matrices: this is all that steps 1 to 4 need, with kappa = max_i
max_{k, l} of ||row k - row l||_{H^-1} of the map B_i: h -> d_i, and C_ik = a_i p_ik (1 - p_ik), as e_k . H_i d <=
||e_k||_{H_i} ||d||_{H_i}. Without an l2 and an l1 a vector added to all classes' weights changes nothing: H is
singular, and nothing is verified.

Huber's psi and the squared hinge are piecewise quadratic, psi'' = 0 or c. Rows that may reach a kink within rho count
as 0 in H, which is then no more than the Hessian anywhere near: ||h||_H <= lambda, if lambda <= rho. Since these rows
pull by at most c a_i |x_i . h| more, ||r||_{H^-1} <= rho sum_i c a_i ||x_i||^2_{H^-1} over them.

Sums over rows are made where the rows are (`suffice.prove.verified_rows`): in main memory, on a device, or block by
block from a disk or on a cluster. What is bounded holds for any order of them.

Rounding. H has a factor that is good for proofs (`suffice.prove.factor`). The margins' own rounding, delta_i, moves u
by X^T C delta, which is at most ||C^(1/2) delta|| in the norm of H^-1 whatever X is, or (sum_i a_i delta_i . H_i
delta_i)^(1/2), and delta_i . H_i delta_i <= sum_k p_ik (delta_ik - delta_il)^2 for any l, such as the most probable
class; that of sums is bounded entry by entry. Both are part of lambda and of epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, norm
from suffice.models.linear import LossModel
from suffice.models.margin_losses import Bending, Kinked
from suffice.models.multinomial import Multinomial
from suffice.penalties.prox import BoxL1, Lasso
from suffice.protocols import conforms
from suffice.prove import verified_rows as asked
from suffice.prove.factor import LEAST, ProvenFactor, Variables
from suffice.prove.verified_rows import Piecewise, Question, State, VerifiedRows, Wider, entry_gammas
from suffice.rows.design import OF_FACTORS, Design, largest_matrix
from suffice.rows.margins import Margins
from suffice.rows.rounding import TINY, gamma
from suffice.solvers.problem import Canonical

LARGEST_PRODUCT = 0.5  # of kappa lambda: beyond, nothing is claimed
CHEAP = 0.02  # of kappa lambda: below, a bound without the rows' own norms is as good
TRIES = 4  # to find the rows that may reach a kink


@dataclass(frozen=True, eq=False)
class Verifiable:
    """Phi as it is verified: margins X w, or X w + b with a free b; l1 and l2 are K x d."""

    model: LossModel | Multinomial
    l1: Array
    l2: Array
    positive: npt.NDArray[np.bool_] | None = None  # weights that must not be negative

    @classmethod
    def of(cls, problem: Canonical, size: int) -> Verifiable | None:
        """None for anything but a linear model with a psi of known kind or a softmax, and an l1 penalty or none."""
        model, g, positive = problem.term, problem.g, None
        if isinstance(g, BoxL1) and g.one_sided:
            positive = np.broadcast_to(np.asarray(g.lower) == 0.0, size)
        elif not isinstance(g, Lasso):
            return None
        known = isinstance(model, LossModel) and conforms(model.loss, Bending | Kinked)
        if not (known or isinstance(model, Multinomial)):
            return None
        assert isinstance(model, LossModel | Multinomial)
        K = model.classes if isinstance(model, Multinomial) else 1
        l1, l2 = (
            np.broadcast_to(np.asarray(one, dtype=np.float64), size).reshape(K, -1)
            for one in (g.l1, model.l2 + problem.ridge)
        )
        return cls(model, l1, l2, None if positive is None else positive.reshape(K, -1))

    @property
    def design(self) -> Design:
        return self.model.design

    @property
    def outputs(self) -> int:
        return len(self.l1)

    @property
    def loss(self) -> Any:
        """Bending or Kinked; None for a softmax."""
        return None if isinstance(self.model, Multinomial) else self.model.loss

    @property
    def intercept(self) -> bool:
        """Whether there is a b, which is minimised out."""
        return self.model.intercept

    def b(self, image: Any) -> Array:
        """That of these margins, one for every output."""
        return np.broadcast_to(np.asarray(self.model.b(image), dtype=np.float64), (self.outputs,))

    @property
    def given(self) -> dict[str, Any]:
        """What goes with the rows."""
        return {"a": self.design.weights, "y": self.model.y, "norms": self.design.row_norms}

    def outward(self, gradient: Array) -> Array:
        """How far entries of the gradient of f pull zeros away from 0: |.|, or downhill where that is allowed only."""
        sizes = np.abs(gradient)
        return sizes if self.positive is None else np.where(self.positive, -gradient, sizes)


@dataclass(frozen=True, eq=False)
class Verification:
    """The minimiser is w + h, h being 0 outside the variables of `factor`, and ||h - step||_{R^T R} <= slack on them;
    an output's intercept is the last of its variables."""

    factor: ProvenFactor
    step: Array  # n, in units of the data, with the intercepts' part
    slack: float
    radius: float  # a bound on ||h||, without the intercepts
    rounding: float  # the part of it that no further iteration removes
    b: Array  # the intercepts that `step` adds to

    def against(self, v: Array, error: Array | float) -> float:
        """A bound on |v . (h - n)| for a vector v in units of the data, on the variables, whose entries err by
        `error`."""
        scale = self.factor.scale
        return self.slack * self.factor.norm_of(v * scale, error * scale)


@dataclass(frozen=True)
class Region:
    """What is known of f within rho of w, in norms by H."""

    factor: ProvenFactor
    up: float  # from norms by R^T R to norms by H
    eta: float  # H = (1 + eta)^(+-1) times the factor's
    of_u: float  # the error of u
    rho: float
    remainder: float  # ||r||
    pull: float  # on a column of unit ||.||_C, at most
    remainder_pull: float  # of r
    inside: State  # H_i of H
    outside: State  # H_i of columns outside the support, at most `grow` times as large
    grow: float
    steepest: Array  # max_i (H_i)_kk of these
    kept: Mapping[str, Any]  # what both need, numbers that stay with the rows


def verify(model: Verifiable, w: Array, image: Any, gradient: Array) -> Verification | None:
    """The proof that the minimiser is close to w, or None. `image` is X w, a product, and `gradient` that of f at w,
    by this image."""
    if not image.is_product if isinstance(image, Margins) else model.design.rows.dear:
        return None  # what was carried along straight lines errs by more; or the model knows nothing of blocks
    with model.design.rows.few_threads(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _verify(model, w, image, gradient)


def _verify(model: Verifiable, w: Array, image: Any, gradient: Array) -> Verification | None:
    design, l1, l2, K = model.design, model.l1, model.l2, model.outputs
    W, gradient, N = w.reshape(K, -1), gradient.reshape(K, -1), design.shape[0]
    signed = l1 > 0.0 if model.positive is None else (l1 > 0.0) | model.positive
    if model.positive is not None and np.any(model.positive & (W < 0.0)):
        return None
    free = (W != 0.0) | ~signed
    variables = Variables.of(free, model.intercept)
    most = min(largest_matrix(design, K), N * max(K - 1, 1) + int(np.count_nonzero(l2[free])))
    if not 0 < len(variables) <= most:
        return None
    rows = VerifiedRows(design, model.loss, model.given, W, image, model.b(image), variables)
    facts = rows.facts()
    if facts is None:
        return None

    # u = grad f + l1 sigma on S, and how far its sums may be off, entry by entry
    rough, total, size, more = facts
    sigma = np.where(signed, np.sign(W), 0.0)
    of_sums = entry_gammas(design, K) * design.column_norms * rough[:, None]
    of_sums += 4.0 * EPS * (np.abs(gradient) + l2 * np.abs(W))
    of_sums += design.underflow
    of_intercepts = gamma(N + OF_FACTORS + (K + 8 if K > 1 else 0)) * size + design.underflow
    u = variables.gathered(gradient + l1 * sigma, total)
    error = variables.gathered(of_sums + 4.0 * EPS * l1, of_intercepts)

    region = (_kinked_region if rows.kinked else _bent_region)(rows, more, u, error, l2)
    if region is None:
        return None
    place = _place(region, u)
    bounds = _signs_kept(region, place, W[free], sigma[free])
    if bounds is None or not _zeros(model, rows, free, region, gradient, of_sums, place):
        return None
    factor = region.factor
    return Verification(factor, place[0] * factor.scale, region.up * place[1], *bounds, rows.b)


def _bent_region(rows: VerifiedRows, facts: Any, u: Array, error: Array, l2: Array) -> Region | None:
    """Steps 1 and 2, for margins that are `off`: by as much as changes H by no more than e^(+-own), and by `shaken` in
    its norm. u errs by `error`, entry by entry, besides."""
    off, shaken, steepest, terms, H = facts
    factor, third = rows.factor(H, terms, l2), 1.0 if rows.loss is None else rows.loss.third
    own = float(off) + 16.0 * EPS if third > 0.0 else 0.0
    if factor is None or not own < 1.0:
        return None
    eta = math.expm1(own)
    up = math.sqrt((1.0 + eta) / (1.0 - factor.tau)) * (1.0 + 8.0 * EPS)
    of_margins = math.exp(2.0 * own) * float(shaken) * rows.more + 1e-150
    of_u = up * factor.norm_of(np.zeros_like(u), error * factor.scale) + of_margins
    decrement = up * factor.norm_of(u * factor.scale) + of_u
    kappa = 0.0
    if third > 0.0:
        kappa = up * third * float(rows.ask(asked.reach, factor.travelling, CHEAP / decrement))
    if not kappa * decrement < LARGEST_PRODUCT:
        return None
    rho = (-math.log1p(-kappa * decrement) / kappa if kappa > 0.0 else decrement) * (1.0 + 16.0 * EPS)
    alpha = kappa * rho * (1.0 + 8.0 * EPS)
    remainder = rho * alpha * (0.5 + alpha * (1.0 + alpha) / 6.0)  # no less than (e^a - 1 - a)/a for a <= 1
    pull, of_r = math.exp(alpha) * rho + of_margins, remainder + of_margins + eta * rho
    grow = math.exp(own) * (1.0 + gamma(4 * rows.variables.outputs + 96))
    steepest = np.array(steepest, dtype=np.float64)
    return Region(factor, up, eta, of_u, rho, remainder, pull, of_r, rows.at, rows.at, grow, steepest, {})


def _kinked_region(rows: VerifiedRows, kinks: Any, u: Array, error: Array, l2: Array) -> Region | None:
    """The same where psi is piecewise quadratic: rows that may reach a kink are `heavy`, and do not count in H."""
    c, more = float(rows.loss.curvature), 1.0 + gamma(rows.design.shape[0] + 8)
    light, heavy, kept = Piecewise(c), Piecewise(c, heavy=True), {"kinks": kinks}
    kept["doubtful"] = rows.run(Wider(0.0), **kept)[0]
    for _ in range(TRIES):
        H, terms = rows.ask(asked.light_hessian, rows.variables, state=light, **kept)
        factor = rows.factor(H, terms, l2)
        if factor is None:
            return None
        up = math.sqrt(1.0 / (1.0 - factor.tau)) * (1.0 + 8.0 * EPS)
        job = Question(asked.pulls, light, (factor.travelling, up, c), keeps=True)
        lengths, (of_rest, of_heavy, squares) = rows.run(job, **kept)
        kept["lengths"] = lengths
        of_margins = (float(of_rest) + of_heavy + 1e-150) * more
        of_u = up * factor.norm_of(np.zeros_like(u), error * factor.scale) + of_margins
        decrement = up * factor.norm_of(u * factor.scale) + of_u
        rho = 1.01 * decrement
        if not rows.run(Wider(rho), **kept)[1]:
            break
        rho = 2.0 * decrement  # with rows left out of H there will be a larger one
        kept["doubtful"] = rows.run(Wider(rho), **kept)[0]
    else:
        return None
    squares, grow = squares * more, 1.0 + 32.0 * EPS
    direct = float(rows.ask(asked.blurred, state=heavy, **kept)) * grow * more + 1e-150
    pull = rho * math.sqrt(1.0 + squares) * (1.0 + 8.0 * EPS) + direct
    of_r = rho * math.sqrt(squares) * (1.0 + 8.0 * EPS) + direct
    return Region(factor, up, 0.0, of_u, rho, rho * squares, pull, of_r, light, heavy, grow, np.array([c]), kept)


Place = tuple[Array, float, float]  # n, scaled, and ||h - n||_H <= epsilon, of which a part is due to rounding


def _place(region: Region, u: Array) -> Place:
    """Step 2: where h is."""
    factor = region.factor
    n, moved, left = factor.solve(u * factor.scale)
    up = 1.0 + gamma(4 * len(factor) + 64)
    arithmetic = (region.up * left + region.of_u) * up
    return -n, (arithmetic + (1.0 + region.eta) * region.eta * moved + region.remainder) * up, arithmetic


def _signs_kept(region: Region, place: Place, w: Array, sigma: Array) -> tuple[float, float] | None:
    """Step 3 of the module's text for the weights w among the factor's variables, which have the signs sigma, 0 where
    they have no l1: a bound on ||h|| on them, and the part of it that is rounding. None where a sign may be wrong."""
    factor, up, (n, epsilon, arithmetic) = region.factor, region.up, place
    size, these = len(factor), factor.variables.weights
    step = (n * factor.scale)[these]  # exact: a power of two
    single, whole = factor.spread(these)
    doubt = 4.0 * EPS * (np.abs(w) + np.abs(step)) + TINY
    if not np.all((sigma == 0.0) | (sigma * (w + step) - doubt > up * epsilon * single)):
        return None
    radius = norm(step) * (1.0 + gamma(size + 8)) + up * epsilon * whole + 8.0 * size * TINY
    return radius * (1.0 + 16.0 * EPS), min(up * arithmetic * whole, radius)


def _zeros(
    model: Verifiable,
    rows: VerifiedRows,
    free: npt.NDArray[np.bool_],
    region: Region,
    gradient: Array,
    of_sums: Array,
    place: Place,
) -> bool:
    """Step 4: whether all weights outside the support are zero at the minimiser, by bounds that get sharper."""
    design, N, K = model.design, model.design.shape[0], model.outputs
    up, limit = 1.0 + gamma(N + K + 16), model.l1 * (1.0 - 4.0 * EPS)
    steepest = np.sqrt(region.grow * region.steepest)[:, None] * up
    slope = model.outward(gradient) + of_sums
    doubtful = ~free & ~(slope + region.pull * steepest * design.column_norms < limit)
    columns = np.flatnonzero(doubtful.any(axis=0))
    if len(columns) == 0:
        return True
    lengths = np.zeros_like(gradient)
    lengths[:, columns] = (
        np.sqrt(rows.ask(asked.squares, region.grow, columns, state=region.outside, **region.kept)) * up + LEAST
    )
    doubtful &= ~(slope + region.pull * lengths < limit)
    columns = np.flatnonzero(doubtful.any(axis=0))
    if len(columns) == 0:
        return True

    # The change to first order, of which the remainder is what n and r leave
    n, epsilon, _ = place
    change, error = (np.zeros_like(gradient) for _ in range(2))
    found = rows.ask(asked.changed, region.factor.travelling, n, columns, state=region.inside, **region.kept)
    change[:, columns], sizes, along, blur = found
    error[:, columns] = gamma(N + 4 * K + 24) * sizes * rows.more
    error += lengths * up * ((1.0 + region.eta) * blur + region.eta * along) * rows.more
    error += 4.0 * EPS * (np.abs(gradient) + np.abs(change)) + of_sums
    there = model.outward(gradient + change) + error + lengths * (epsilon + region.remainder_pull)
    return bool(np.all((there < limit) | ~doubtful))
