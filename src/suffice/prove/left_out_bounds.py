r"""What is proven of models without one row, or one group of rows, from points near them.

Let w, with an intercept, be near the minimiser of Phi (`suffice.prove.downdated`, whose symbols these are), and Phi_g
be Phi without the rows of g, with |psi'''| <= M psi''. Let E hold the support of w, and columns that may join it.

At any point z on E, w for one, that moves no margin of the remaining rows by more than alpha / M,  H_g(z) = e^(+-alpha)
H_g  in the order of matrices. Let u be the gradient of Phi_g's smooth part at z, n any vector on E, p = z + n, and v
the least of  u + H_g n + l1_g s  over subgradients s of ||.||_1 at p. With norms by H_g(z) and its inverse,

    a  >=  M max over the remaining rows of |x_i . n|,    kappa = M max over them of ||x_i||,
    ||gradient at p - (u + H_g n)||  <=  r = e^(alpha/2) (e^alpha - 1) ||n||_{H_g} + ||n|| (e^a - 1 - a)/a:

the FAR rows of the longest x_i are moved one by one, the others by no more than ||x_i|| ||n||. Subgradients of a convex
function are monotone, whatever the signs of the minimiser w* of Phi_g on E are:

    <gradient at p + l1_g s, p - w*>  >=  <gradient at p - gradient at w*, p - w*>  >=  ||p - w*||^2 (1 - e^-d)/d

in norms by H_g(p) = e^(+-a) H_g(z), d = kappa e^(a/2) ||p - w*||. So if  kappa e^a (||v|| + r) = q < 1,

    ||p - w*||  <=  rho = -ln(1 - q) / (kappa e^(a/2))        (||v|| for squares, M = 0).

If the gradient at w* on all columns outside E, which differs from the model's by what these norms allow, is less than
l1_g, then w* is the minimiser of Phi_g, and
|x . (p - w*)| <= slack_g ||x||_{H^-1}  for every x. Columns that fail this join E, for the groups that are not proven.

Rounding. Margins err by delta_i, which moves u by no more than (sum_i C_i delta_i^2)^(1/2) in norms by H_g^-1, and
psi'' by the factor e^(M delta_i); sums are bounded entry by entry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.models.margin_losses import LARGEST, slope_and_bend, slope_size
from suffice.penalties.prox import soft
from suffice.prove.downdated import Left
from suffice.prove.verified_rows import entry_gammas
from suffice.rows.design import OF_FACTORS
from suffice.rows.norms import row_norms
from suffice.rows.rounding import gamma

LARGEST_PRODUCT = 0.5  # q: beyond, nothing is claimed
FAR = 32  # rows whose moves are known one by one
FEW = 8  # columns that join for one group at a time


@dataclass(frozen=True, eq=False)
class Gradients:
    """What is known of Phi_g's smooth part, penalties left out, at z = w + point: X^T (a psi') over the remaining rows
    on all columns of X, and of the intercept, with what they may be off by; and how far margins have moved."""

    pulls: Array  # d x G
    of_pulls: Array
    sums: Array  # of the intercept
    of_sums: Array
    alpha: Array
    own: Array
    of_margins: Array  # what margins' errors are worth in norms by H_g^-1

    def on(self, left: Left, there: Array) -> Array:
        """That of the smooth part on the columns of `left`, with l2 and intercept."""
        pulls = np.vstack([self.pulls[left.on.columns], self.sums[None][: int(left.on.model.intercept)]])
        return np.asarray(pulls * left.on.factor.scale[:, None] + left.l2 * there)

    def error_on(self, left: Left) -> Array:
        """How far that may be off, l2 left out."""
        parts = np.vstack([self.of_pulls[left.on.columns], self.of_sums[None][: int(left.on.model.intercept)]])
        return np.asarray(parts * left.on.factor.scale[:, None])

    @classmethod
    def at_w(cls, left: Left) -> Gradients:
        """Those of all rows less those that are left out."""
        model, at, groups = left.on.model, left.on.at, left.groups
        a, rows, count = model.a, groups.rows, len(groups)
        pulled = a[rows] * at.slopes[rows]
        pulls = at.pull[:, None] - groups.summed(left.X, pulled)
        of_pulls = groups.summed(np.abs(left.X), np.abs(pulled) + a[rows] * at.sizes[rows])
        rough = norm(np.sqrt(a) * at.sizes) * (1.0 + gamma(len(a) + 8))
        whole = entry_gammas(model.design, 1) * model.design.column_norms * rough + model.design.underflow
        of_pulls *= gamma(groups.largest + OF_FACTORS + 16)
        of_pulls += (whole + 4.0 * EPS * np.abs(at.pull))[:, None]
        all_of, own = float(a @ at.slopes), np.full(count, left.on.own)
        sums = all_of - groups.sums @ pulled
        of_sums = gamma(len(a) + OF_FACTORS + 16) * (float(a @ at.sizes) + groups.sums @ np.abs(pulled))
        of_margins = norm(np.sqrt(at.C) * at.off) * (1.0 + gamma(len(a) + 8)) * math.exp(2.0 * left.on.own) + 1e-150
        zeros, margins = np.zeros(count), np.full(count, of_margins)
        return cls(pulls, of_pulls, sums, of_sums + 1e-200, zeros, own, margins)

    @classmethod
    def at(cls, left: Left, point: Array) -> Gradients:
        """Those at w + point, by one pass over the rows for all groups."""
        on, groups, model = left.on, left.groups, left.on.model
        a, N, counting, here = model.a, len(model.a), model.a > 0.0, (groups.rows, groups.which)
        moves = on.rows @ point
        m = on.at.m[:, None] + moves
        m[~counting] = moves[~counting] = m[here] = moves[here] = 0.0
        y = np.broadcast_to(model.y[:, None], m.shape)
        slopes, bends = slope_and_bend(model.loss, m, y)
        sizes = slope_size(model.loss, slopes, bends, m, y)
        own_blur = getattr(model.loss, "blur", None)
        blur = 0.0 if own_blur is None else own_blur(m, y).max(axis=0)
        reach = np.abs(moves, out=moves).max(axis=0)
        off = on.lengths[counting].max() * row_norms(point.T) * (1.0 + gamma(len(point) + 16))
        off = gamma(len(point) + 4) * off + 4.0 * EPS * (np.abs(on.at.m[counting]).max() + 2.0 * reach) + blur
        alpha = float(model.loss.third) * (reach + off)
        off = off + on.at.off.max(initial=0.0)
        own = float(model.loss.third) * off + 16.0 * EPS
        fine = np.isfinite(alpha) & (bends.max(axis=0) < LARGEST)
        pulled = a[:, None] * slopes
        pulled[here] = 0.0
        of_margins = off * np.sqrt(a @ bends) * np.exp(2.0 * own) * (1.0 + gamma(N + 16)) + 1e-150
        of_sums = gamma(N + OF_FACTORS) * (a @ sizes) * (1.0 + gamma(N + 8)) + 1e-200
        rough = np.sqrt(a @ sizes**2) * (1.0 + gamma(N + 8))
        entry = entry_gammas(model.design, 1) * model.design.column_norms
        of_pulls = entry[:, None] * rough + model.design.underflow
        alpha = np.where(fine, alpha, math.inf)
        return cls(model.design.adjoint(pulled), of_pulls, pulled.sum(axis=0), of_sums, alpha, own, of_margins)


@dataclass(frozen=True, eq=False)
class Shown:
    """What is proven of groups at p = z + n: the minimiser w* has ||w* - p|| <= epsilon, infinite where nothing is, and
    `slack` is that in norms by H^-1. `zero`: which columns beside these may not stay zero (d x G)."""

    p: Array
    slack: Array
    zero: Any

    @property
    def joining(self) -> Any:
        """Which columns these are for groups with few of them: bounds of others are too wide yet."""
        return self.zero[:, self.zero.sum(axis=0) <= FEW].any(axis=1)

    @property
    def kept(self) -> Any:
        return np.isfinite(self.slack) & ~self.zero.any(axis=0)


def shown(left: Left, known: Gradients, there: Array, n: Array) -> Shown:
    """What is proven at `there` + n, by gradients at z, which is `there`."""
    on, p = left.on, there + n
    raw = known.on(left, there)
    error = known.error_on(left) + 4.0 * EPS * (np.abs(raw) + left.l2 * np.abs(there) + left.l1)
    with np.errstate(over="ignore", invalid="ignore"):
        image, of_image = left.product(n), left.product_error(n)
        slope = raw + image
        error = error + of_image + 4.0 * EPS * (np.abs(raw) + np.abs(image))
        v = np.where(p != 0.0, slope + left.l1 * np.sign(p), soft(slope, left.l1))

        # ||v|| and ||n||, by H_g
        beta = known.alpha + known.own
        grow = np.exp(0.5 * beta)
        longer = left.omega * grow
        residual = on.factor.norms_of(v, error) * on.up * longer + known.of_margins
        square = np.einsum("ij,ij->j", n, image) + np.einsum("ij,ij->j", np.abs(n), of_image)
        square += gamma(len(n) + 8) * np.einsum("ij,ij->j", np.abs(n), np.abs(image))
        moved = np.sqrt(np.maximum(square, 0.0)) * (1.0 + 8.0 * EPS)
        chord = grow * np.expm1(beta) * moved
        third = float(on.model.loss.third)
        farthest, reach, rest = _farthest(left, n)
        kappa = third * longer * farthest
        a = third * np.maximum(reach, rest * longer * grow * moved) * (1.0 + 8.0 * EPS)
        a = np.where(a < 1.0, a, math.nan)
        remainder = grow * moved * a * (0.5 + a * (1.0 + a) / 6.0)
        longer, kappa = longer * np.exp(0.5 * a), kappa * np.exp(0.5 * a)
        decrement = (residual + chord + remainder) * np.exp(0.5 * a) * (1.0 + 16.0 * EPS)
        product = kappa * decrement
        product = np.where(product < LARGEST_PRODUCT, product, math.nan)
        rho = np.where(kappa > 0.0, -np.log1p(-product) / np.maximum(kappa, 1e-300), decrement)
        slack = rho * longer * (1.0 + 32.0 * EPS)
        slack = np.where(np.isfinite(slack) & (beta < 1.0), slack, math.inf)
        far = rho * np.exp(kappa * rho + 0.5 * a) + chord + remainder + known.of_margins
        far = far * grow * (1.0 + gamma(len(on.at.m) + 32))
    doubtful = np.zeros(known.pulls.shape, dtype=np.bool_)
    doubtful[on.beside[0]] = _pulled(left, known, n, np.where(np.isfinite(slack), far, 0.0))
    return Shown(p, slack, doubtful)


def _farthest(left: Left, n: Array) -> tuple[Array, Array, float]:
    """Over the rows that remain and count, at most: max ||x_i|| by H^-1; max |x_i . n_g| of the FAR farthest; and max
    ||x_i|| of the others."""
    on, groups = left.on, left.groups
    far, place = on.order[:FAR], np.full(len(on.at.m), -1)
    place[far] = np.arange(len(far))
    lengths, moves = np.repeat(on.norms[far][:, None], len(groups), axis=1), np.abs(on.rows[far] @ n)
    inside = place[groups.rows] >= 0
    for one in (lengths, moves):
        one[place[groups.rows[inside]], groups.which[inside]] = 0.0
    rounding = gamma(len(n) + 8) * on.lengths[far].max(initial=0.0) * row_norms(n.T)
    rest = float(on.norms[on.order[FAR]]) if len(on.order) > FAR else 0.0
    return np.maximum(lengths.max(axis=0, initial=0.0), rest), moves.max(axis=0, initial=0.0) + rounding, rest


def _pulled(left: Left, known: Gradients, n: Array, far: Array) -> Any:
    """Which of the columns beside these, whose weights are 0, may not stay so."""
    on, groups, C, (columns, across, lengths) = left.on, left.groups, left.on.at.C, left.on.beside
    # entries of a row are no more than lengths over C_i^(1/2)
    roots = np.sqrt(left.C) * groups.along(np.abs(left.taken), np.abs(n))
    error = np.sqrt(np.diag(on.H)) @ np.abs(n) * 1.01 + groups.sums @ roots
    error = gamma(len(C) + len(n) + groups.largest + 64) * error * (1.0 + gamma(len(groups.rows) + 16))
    reach = across @ n
    reach -= groups.summed(left.X[columns], left.C * left.along(n))
    reach += known.pulls[columns]
    np.abs(reach, out=reach)
    reach *= 1.0 + 16.0 * EPS
    reach += known.of_pulls[columns]
    limit, _ = groups.penalties(on.model, columns)
    with np.errstate(invalid="ignore"):
        reach += np.outer(lengths, far + error)
        return ~(reach < limit * (1.0 - 16.0 * EPS))
