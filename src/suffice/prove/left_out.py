r"""All models without one row, or one group of rows, each proven, for little more than the price of one.

Let w, with an intercept b, be near the minimiser of

    Phi(w, b) = sum_i a_i psi(x_i . w + b, y_i) + sum_j ( l2_j/2 w_j^2 + l1_j |w_j| ),        |psi'''| <= M psi'',

and Phi_g the same without the rows i in g, with penalties l1_gj and l2_gj of its own (what is left of the weights sums
to 1 - A_g, so that penalties of the mean over rows become (1 - A_g) l1 and (1 - A_g) l2). On a support S, intercept
included, with signs sigma, let H be the Hessian of Phi's smooth part at w and C_i = a_i psi''_i. Then

    H_g = H - sum_{i in g} C_i x_i x_i^T + diag(l2_g - l2)  >=  (1 - tau_g - delta_g) H,
    tau_g = largest eigenvalue of the matrix of C_i^(1/2) C_j^(1/2) x_i H^-1 x_j over g, no more than its trace,
    delta_g = the largest 1 - l2_gj / l2_j,

so that norms by H_g^-1 are no more than  omega_g = (1 - tau_g - delta_g)^(-1/2)  times those by H^-1: one factor of H
serves all g. At any point z, w for one, that moves no margin of the remaining rows by more than alpha_g / M,  H_g(z) =
e^(+-alpha_g) H_g  in the order of matrices. With u_g the gradient of Phi_g at z on S, n any vector, the minimiser on S
is z + h,

    ||h - n||_{H_g(z)}  <=  epsilon_g = ||u_g + H_g n||_{H_g(z)^-1} + e^(alpha/2) (e^alpha - 1) ||n||_{H_g} + r,
    r = rho (e^a - 1 - a)/a,  a = kappa rho,  rho = -ln(1 - kappa lambda)/kappa,
    lambda = e^(alpha/2) ||n||_{H_g} + ||u_g + H_g n||_{H_g(z)^-1}  >=  ||u_g||_{H_g(z)^-1},
    kappa = M max over the remaining rows of ||x_i||_{H_g(z)^-1},

by the steps of `suffice.prove.verified`. The first n is Newton's step by the downdated factor, all g at once; squares
(M = 0) end there, exactly. Elsewhere u_g is had anew at w + n where epsilon_g is more than is wanted, and so on. If all
signs of z + n on S are kept by more than epsilon_g allows them to move, and all other columns' gradients are less than
l1_gj, then z + h is the minimiser of Phi_g. Where this fails the columns concerned join S for these g alone: the
quadratic model's minimiser shows their new signs, and the same test follows. A factor on more columns than a support
bounds all norms on it: x_S^T (H_SS)^-1 x_S <= x^T H^-1 x for any x that agrees with x_S on S.

What comes of it: for every g a point and a slack with  |x . (w_g - point)| <= slack_g ||x||_{H^-1}  for every x.

Rounding enters as in `suffice.prove.verified`: margins err by delta_i, which moves u_g by no more than (sum_i C_i
delta_i^2)^(1/2) in norms by H_g^-1; sums are bounded entry by entry; H has a factor that is good for proofs.

For single rows the classical formula (Cook 1977) is the case of squares; for other losses it is approximate
leave-one-out (Rad and Maleki 2020), here with a proof of what it leaves out. Support changes: Okumura et al. 2015.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy.sparse as sp

from suffice.arrays import EPS, Array, norm
from suffice.lazy import cached_property
from suffice.models.margin_losses import LARGEST, slope_and_bend, slope_size
from suffice.penalties.prox import soft
from suffice.prove.factor import Indices, ProvenFactor, Variables
from suffice.prove.verified_rows import MarginRows, entry_gammas
from suffice.rows.design import OF_FACTORS, Design
from suffice.rows.given import taken
from suffice.rows.gram import as_array, dense_rows, gram
from suffice.rows.memory import absolute_product
from suffice.rows.norms import row_norms
from suffice.rows.rounding import TINY, gamma
from suffice.solvers.minimise import from_face_to_face
from suffice.solvers.quadratic import Matrix, NoFactorError

LARGEST_PRODUCT = 0.5  # of kappa lambda
CORRECTIONS = 2  # of a step, whose model leaves out how penalties change
PASSES = 4  # gradients at points moved to
KINKS = 6  # rounds in which columns may join
NUMBERS = 1 << 22  # of rows times groups at a time
GOAL = 1e-10  # of l1: how far from optimal a model may be left
WORTH = 0.5  # of epsilon: what another pass has to leave at most


@dataclass(frozen=True, eq=False)
class WholeModel:
    """Phi; `loss` is `Bending`, with targets y as it takes them. Rows are in main memory."""

    design: Design
    y: Array
    loss: Any
    l1: Array
    l2: Array
    intercept: bool
    offset: Array | None = None

    @property
    def a(self) -> Array:
        return np.asarray(self.design.weights)


@dataclass(frozen=True, eq=False)
class Groups:
    """Which rows are left out together, one or more, and what becomes of the penalties: l1 share_g, l2 share_g, times
    the column's `scales` and their squares where there are such (G x d)."""

    rows: Indices
    which: Indices  # the group of each of `rows`, ascending
    share: Array
    scales: Array | None = None

    @classmethod
    def of(cls, groups: Sequence[Any], share: Array, scales: Array | None = None) -> Groups:
        parts = [np.asarray(one, dtype=np.intp) for one in groups]
        which = np.repeat(np.arange(len(parts)), [len(one) for one in parts])
        return cls(np.concatenate(parts) if parts else np.zeros(0, dtype=np.intp), which, share, scales)

    def __len__(self) -> int:
        return len(self.share)

    def taken(self, these: Indices) -> Groups:
        """Some of the groups, in ascending order."""
        place = np.full(len(self), -1)
        place[these] = np.arange(len(these))
        inside = place[self.which] >= 0
        scales = None if self.scales is None else self.scales[these]
        return Groups(self.rows[inside], place[self.which[inside]], self.share[these], scales)

    @cached_property
    def single(self) -> bool:
        return len(self.rows) == len(self) and bool(np.all(self.which == np.arange(len(self))))

    @property
    def largest(self) -> int:
        """Rows of a group, at most."""
        return int(np.bincount(self.which, minlength=1).max())

    @cached_property
    def sums(self) -> Any:
        """The matrix that sums over the rows of each group."""
        entries = np.ones(len(self.rows)), (self.which, np.arange(len(self.rows)))
        return sp.csr_array(entries, shape=(len(self), len(self.rows)))

    def summed(self, X: Any, coefficients: Array) -> Array:
        """sum over the rows of each group of coefficients times rows of X, which are theirs: a column for each."""
        return np.asarray(as_array((self.sums @ sp.diags_array(coefficients)) @ X)).T

    def penalties(self, model: WholeModel, columns: Indices) -> tuple[Array, Array]:
        """l1_g and l2_g on these columns, one column for every group; that of an intercept is not among them."""
        scales = 1.0 if self.scales is None else self.scales[:, columns].T
        return model.l1[columns, None] * self.share * scales, model.l2[columns, None] * self.share * scales * scales


@dataclass(frozen=True, eq=False)
class AtPoint:
    """All rows at w and b: margins and what they may be off by, psi' with its size, C, and X^T (a psi')."""

    w: Array
    b: float
    m: Array
    off: Array
    slopes: Array
    sizes: Array
    C: Array
    pull: Array

    @classmethod
    def of(cls, model: WholeModel, w: Array, b: float) -> AtPoint | None:
        """None where rates leave the range of floats."""
        design, y, a = model.design, model.y, model.a
        offset = np.zeros(len(a)) if model.offset is None else model.offset
        m = design.margins(w) + (b + offset)
        rows = MarginRows(model.loss, m[:, None], y[:, None])
        off = absolute_product(design.X, w) * gamma(int(np.count_nonzero(w)) + 4) + TINY * len(w)
        off = off + 4.0 * EPS * (np.abs(m) + abs(b) + np.abs(offset)) + np.ravel(rows.blur)
        off = np.where(a > 0.0, off, 0.0)
        if not rows.fine(a, off[:, None]):
            return None
        slopes, sizes, second = rows.slopes[:, 0], rows.sizes[:, 0], rows.second[:, 0]
        return cls(w, b, m, off, slopes, sizes, a * second, design.adjoint(a * slopes))


@dataclass(frozen=True, eq=False)
class OnColumns:
    """H at a point on some columns, intercept included, in scaled variables, with rows of X as they see them."""

    model: WholeModel
    at: AtPoint
    columns: Indices
    factor: ProvenFactor
    H: Array
    terms: float
    rows: Array  # X on these columns, scaled, with the intercept's ones

    @classmethod
    def of(cls, model: WholeModel, at: AtPoint, columns: Indices) -> OnColumns | None:
        counting = np.flatnonzero(at.C)
        X = model.design.X
        H, terms = gram(X, columns, np.sqrt(at.C[counting]), counting, intercept=model.intercept)
        l2, terms = np.append(model.l2[columns], [0.0] * model.intercept), terms + 12.0
        variables = Variables((columns,), model.intercept)
        factor = ProvenFactor.of(np.array(H, order="F"), terms, len(at.m), variables, l2)
        if factor is None:
            return None
        scale = factor.scale
        upper = np.triu(H + np.diag(l2)) * scale[:, None] * scale
        (_, rows), = dense_rows(X, columns, len(at.m))
        rows = np.column_stack([rows, np.ones(len(rows))]) if model.intercept else rows
        return cls(model, at, columns, factor, upper + np.triu(upper, 1).T, terms, rows * scale)

    @cached_property
    def variables(self) -> Array:
        """w and b, scaled."""
        return np.append(self.at.w[self.columns], [self.at.b] * self.model.intercept) / self.factor.scale

    @property
    def weights(self) -> slice:
        """Where the weights are among the variables."""
        return slice(0, len(self.columns))

    @cached_property
    def own(self) -> float:
        """By how much margins' errors change log H."""
        return float(self.model.loss.third) * float(self.at.off.max(initial=0.0)) + 16.0 * EPS

    @cached_property
    def up(self) -> float:
        """From norms by the factor to norms by H, either way."""
        return math.sqrt(math.exp(self.own) / (1.0 - self.factor.tau)) * (1.0 + 8.0 * EPS)

    @cached_property
    def white(self) -> Array:
        """Z^T x_i of every row, without proof."""
        return np.asarray(self.rows @ self.factor.Z)

    @cached_property
    def norms(self) -> Array:
        """||x_i|| of every row by the inverse of H, at most."""
        sizes = row_norms(self.rows) * (1.0 + gamma(len(self.factor) + 16))
        return (row_norms(self.white) + self.factor.slack * sizes) * self.factor.up * self.up + 1e-150

    @cached_property
    def singles(self) -> Array:
        """||e_j|| of the scaled variables by the inverse of H, at most."""
        return row_norms(self.factor.Z) * self.factor.up * self.up

    def of_new(self, X: Any) -> Array:
        """||x|| by the inverse of H of other rows, at most."""
        return self.factor.norms(X)[:, 0] * self.up


@dataclass(frozen=True, eq=False)
class Left:
    """Groups as they are on some columns: what they take off H, and how far that can lengthen norms."""

    on: OnColumns
    groups: Groups
    l1: Array  # scaled, with the intercept's 0; a column for every group
    l2: Array
    more_l2: Array  # l2_g - l2
    omega: Array

    @classmethod
    def of(cls, on: OnColumns, groups: Groups) -> Left:
        model, scale, places = on.model, on.factor.scale[:, None], on.weights
        none = np.zeros((int(model.intercept), len(groups)))
        l1, l2 = groups.penalties(model, on.columns)
        before = model.l2[on.columns, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            less = np.where(before > 0.0, 1.0 - l2 / before, 0.0)
        delta = np.maximum(less.max(axis=0, initial=0.0), 0.0) + 8.0 * EPS
        rows = groups.rows
        tau = groups.sums @ (on.at.C[rows] * on.norms[rows] ** 2 * math.exp(on.own))
        if not groups.single:
            for g in np.flatnonzero(tau + delta > 0.25).tolist():
                tau[g] = min(tau[g], _largest(on, rows[groups.which == g]))
        kept = 1.0 - (tau + delta) * (1.0 + gamma(len(rows) + 32))
        with np.errstate(divide="ignore", invalid="ignore"):
            omega = np.where(kept > 1e-6, 1.0 / np.sqrt(np.maximum(kept, 1e-6)), math.inf) * (1.0 + 8.0 * EPS)
        l1, l2, more = (np.vstack([one, none]) for one in (l1, l2, l2 - before))
        return cls(on, groups, l1 * scale, l2 * scale**2, more * scale**2, omega)

    @cached_property
    def taken(self) -> Array:
        """Rows of the groups, scaled."""
        return self.on.rows[self.groups.rows]

    @cached_property
    def C(self) -> Array:  # noqa: N802 (the symbol)
        return self.on.at.C[self.groups.rows]

    def summed(self, coefficients: Array) -> Array:
        """sum over the rows of each group of coefficients times x_i: a column for every group."""
        return self.groups.summed(self.taken, coefficients)

    def along(self, N: Array) -> Array:
        """x_i . n_g of all rows i of g."""
        return np.einsum("ij,ji->i", self.taken, N[:, self.groups.which])

    def product(self, N: Array) -> Array:
        """H_g n_g."""
        return np.asarray(self.on.H @ N - self.summed(self.C * self.along(N)) + self.more_l2 * N)

    def product_error(self, N: Array) -> Array:
        """How far `product` may be off, entry by entry."""
        size, roots = len(N), np.sqrt(np.diag(self.on.H)) * (1.0 + 4.0 * EPS)
        whole = gamma(self.on.terms + size + 8) * roots[:, None] * (roots @ np.abs(N))
        along = self.C * np.einsum("ij,ji->i", np.abs(self.taken), np.abs(N[:, self.groups.which]))
        rest = self.groups.summed(np.abs(self.taken), along)
        doubt = gamma(2 * size + 40) * (rest + (self.l2 + np.abs(self.more_l2)) * np.abs(N))
        return np.asarray(whole + doubt + 1e-200)

    def gradient(self, known: Gradients, there: Array) -> Array:
        """That of the smooth part, penalties included, on these columns."""
        pulls = np.vstack([known.pulls[self.on.columns], known.sums[None][: int(self.on.model.intercept)]])
        return np.asarray(pulls * self.on.factor.scale[:, None] + self.l2 * there)

    def dense(self, g: int) -> Array:
        """H_g."""
        rows = self.groups.which == g
        part = np.sqrt(self.C[rows])[:, None] * self.taken[rows]
        return np.asarray(self.on.H - part.T @ part + np.diag(self.more_l2[:, g]))

    def solve(self, R: Array) -> Array:
        """Vectors that H_g takes near R, but for how l2 changes."""
        Z, white = self.on.factor.Z, self.on.white[self.groups.rows]
        V = Z.T @ R
        along = np.einsum("ij,ji->i", white, V[:, self.groups.which])
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.groups.single:
                coefficients = self.C * along / (1.0 - self.C * np.einsum("ij,ij->i", white, white))
            else:
                coefficients = np.empty(len(along))
                for g in range(R.shape[1]):
                    rows, C = self.groups.which == g, self.C[self.groups.which == g]
                    root = np.sqrt(C)
                    small = np.eye(len(C)) - root[:, None] * (white[rows] @ white[rows].T) * root
                    coefficients[rows] = root * np.linalg.lstsq(small, root * along[rows], rcond=None)[0]
            return np.asarray(Z @ (V + self.groups.summed(white, coefficients)))


def _largest(on: OnColumns, rows: Indices) -> float:
    """No less than the largest eigenvalue of C^(1/2) X H^-1 X^T C^(1/2) over some rows."""
    root, factor = np.sqrt(on.at.C[rows]), on.factor
    A = root[:, None] * on.white[rows]
    G = A @ A.T
    sizes = norm(root * row_norms(on.rows[rows])) * factor.slack
    largest = float(np.linalg.eigvalsh(G)[-1]) + gamma(4 * len(G) ** 2 + 2 * A.shape[1] + 64) * float(np.trace(G))
    return ((math.sqrt(max(largest, 0.0)) + sizes) * factor.up * on.up) ** 2 * math.exp(on.own)


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

    def taken(self, these: Indices) -> Gradients:
        """Those of some groups."""
        return Gradients(*(getattr(self, one.name)[..., these] for one in fields(self)))

    @classmethod
    def at_w(cls, left: Left) -> Gradients:
        """Those of all rows less those that are left out."""
        model, at, groups = left.on.model, left.on.at, left.groups
        a, rows, count = model.a, groups.rows, len(groups)
        pulled = a[rows] * at.slopes[rows]
        X = taken(model.design.X, rows)
        less = groups.summed(X, pulled)
        size = groups.summed(abs(X), np.abs(pulled) + a[rows] * at.sizes[rows])
        rough = norm(np.sqrt(a) * at.sizes) * (1.0 + gamma(len(a) + 8))
        whole = entry_gammas(model.design, 1) * model.design.column_norms * rough + model.design.underflow
        of_pulls = whole[:, None] + gamma(groups.largest + OF_FACTORS + 16) * size + 4.0 * EPS * np.abs(at.pull)[:, None]
        all_of, own = float(a @ at.slopes), np.full(count, left.on.own)
        sums = all_of - groups.sums @ pulled
        of_sums = gamma(len(a) + OF_FACTORS + 16) * (float(a @ at.sizes) + groups.sums @ np.abs(pulled))
        of_margins = _size(np.sqrt(at.C) * at.off) * math.exp(2.0 * left.on.own) + 1e-150
        zeros, margins = np.zeros(count), np.full(count, of_margins)
        return cls(at.pull[:, None] - less, of_pulls, sums, of_sums + 1e-200, zeros, own, margins)

    @classmethod
    def at(cls, left: Left, point: Array) -> Gradients:
        """Those at w + point, by one pass over the rows for all groups."""
        on, groups, model = left.on, left.groups, left.on.model
        a, N = model.a[:, None], len(model.a)
        moves, reach = on.rows @ point, np.abs(on.rows) @ np.abs(point)
        m = on.at.m[:, None] + moves
        y = np.broadcast_to(model.y[:, None], m.shape)
        slopes, bends = slope_and_bend(model.loss, m, y)
        sizes = slope_size(model.loss, slopes, bends, m, y)
        counts = np.broadcast_to(a > 0.0, m.shape).copy()
        counts[groups.rows, groups.which] = False
        weight = np.where(counts, a, 0.0)
        own_blur = getattr(model.loss, "blur", None)
        blur = 0.0 if own_blur is None else own_blur(m, y)
        rounding = gamma(len(point) + 4) * reach + 4.0 * EPS * (np.abs(m) + np.abs(moves)) + blur
        off = np.where(counts, on.at.off[:, None] + rounding, 0.0)
        third = float(model.loss.third)
        alpha = third * np.where(counts, np.abs(moves) + rounding, 0.0).max(axis=0)
        own = third * off.max(axis=0) + 16.0 * EPS
        fine = np.isfinite(np.where(counts, m, 0.0)).all(axis=0) & (np.where(counts, bends, 0.0) < LARGEST).all(axis=0)
        pulled = np.where(counts, a * slopes, 0.0)
        rough = np.sqrt(np.sum(weight * sizes**2, axis=0)) * (1.0 + gamma(N + 8))
        of_margins = np.sqrt(np.sum(weight * bends * off**2, axis=0)) * np.exp(2.0 * own) * (1.0 + gamma(N + 16)) + 1e-150
        entry = entry_gammas(model.design, 1) * model.design.column_norms
        of_pulls = entry[:, None] * rough + model.design.underflow
        of_sums = gamma(N + OF_FACTORS) * np.sum(weight * sizes, axis=0) + 1e-200
        alpha = np.where(fine, alpha, math.inf)
        return cls(model.design.adjoint(pulled), of_pulls, pulled.sum(axis=0), of_sums, alpha, own, of_margins)


def _size(v: Array) -> float:
    return norm(v) * (1.0 + gamma(len(v) + 8))


@dataclass(frozen=True, eq=False)
class Shown:
    """What is proven of groups at p = z + n: the minimiser w* has ||w* - p|| <= epsilon, infinite where nothing is, and
    `slack` is that in norms by H^-1. `zero`: which columns beside these may not stay zero (d x G)."""

    p: Array
    slack: Array
    zero: Array

    @property
    def kept(self) -> Any:
        return np.isfinite(self.slack) & ~self.zero.any(axis=0)


def shown(left: Left, known: Gradients, there: Array, n: Array) -> Shown:
    """What is proven at `there` + n, by gradients at z, which is `there`."""
    on, groups, p = left.on, left.groups, there + n
    factor, scale, model, some = on.factor, on.factor.scale[:, None], on.model, slice(int(on.model.intercept))
    raw = left.gradient(known, there)
    error = np.vstack([known.of_pulls[on.columns], known.of_sums[None][some]]) * scale
    error = error + 4.0 * EPS * (np.abs(raw) + left.l2 * np.abs(there) + left.l1)
    with np.errstate(over="ignore", invalid="ignore"):
        image, of_image = left.product(n), left.product_error(n)
        slope = raw + image
        error = error + of_image + 4.0 * EPS * (np.abs(raw) + np.abs(image))
        v = np.where(p != 0.0, slope + left.l1 * np.sign(p), soft(slope, left.l1))

        # ||v|| and ||n||, by H_g
        beta = known.alpha + known.own
        grow = np.exp(0.5 * beta)
        longer = left.omega * grow
        residual = factor.norms_of(v, error) * on.up * longer + known.of_margins
        square = np.einsum("ij,ij->j", n, image) + np.einsum("ij,ij->j", np.abs(n), of_image)
        square += gamma(len(n) + 8) * np.einsum("ij,ij->j", np.abs(n), np.abs(image))
        moved = np.sqrt(np.maximum(square, 0.0)) * (1.0 + 8.0 * EPS)
        chord = grow * np.expm1(beta) * moved
        kappa = float(model.loss.third) * longer * _farthest(left)
        a = kappa * grow * moved * (1.0 + 8.0 * EPS)
        a = np.where(a < 1.0, a, math.nan)
        remainder = grow * moved * a * (0.5 + a * (1.0 + a) / 6.0)
        longer, kappa = longer * np.exp(0.5 * a), kappa * np.exp(0.5 * a)
        decrement = (residual + chord + remainder) * np.exp(0.5 * a) * (1.0 + 16.0 * EPS)
        product = kappa * decrement
        product = np.where(product < LARGEST_PRODUCT, product, math.nan)
        rho = np.where(product > 0.0, -np.log1p(-product) / np.maximum(kappa, 1e-300), decrement)
        slack = rho * longer * (1.0 + 32.0 * EPS)
        slack = np.where(np.isfinite(slack) & (beta < 1.0), slack, math.inf)
        far = (rho * np.exp(product + a) + chord + remainder) * grow * (1.0 + gamma(len(on.at.m) + 32))
    doubtful = np.zeros(known.pulls.shape, dtype=np.bool_)
    outside = np.setdiff1d(np.arange(len(doubtful)), on.columns)
    most = max(NUMBERS // max(len(on.at.m), len(groups)), 1)
    for first in range(0, len(outside), most):
        columns = outside[first : first + most]
        doubtful[columns] = _pulled(left, known, n, columns, np.where(np.isfinite(slack), far, 0.0))
    return Shown(p, slack, doubtful)


def _farthest(left: Left) -> Array:
    """max ||x_i|| by H^-1 of the rows that remain and count, at most: of all of them, but for the farthest."""
    lengths = np.where(left.on.model.a > 0.0, left.on.norms, 0.0)
    groups, order = left.groups, np.argsort(-lengths, kind="stable")
    found = np.full(len(groups), lengths[order[0]])
    for g in np.unique(groups.which[groups.rows == order[0]]).tolist():
        rest = np.setdiff1d(order[: len(order)], groups.rows[groups.which == g])
        found[g] = lengths[rest].max(initial=0.0)
    return found


def _pulled(left: Left, known: Gradients, n: Array, columns: Indices, far: Array) -> Any:
    """Which of these columns, whose weights are 0, may not stay so."""
    on, groups, model = left.on, left.groups, left.on.model
    ((_, X),) = dense_rows(model.design.X, columns, len(on.at.m))
    C = on.at.C
    across = X.T @ (C[:, None] * on.rows)
    lengths = np.sqrt(np.einsum("ij,ij,i->j", X, X, C))[:, None] * (1.0 + gamma(len(C) + 16)) + 1e-150
    X = X[groups.rows]
    along = left.C * left.along(n)
    change = across @ n - groups.summed(X, along)
    sizes = left.C * np.einsum("ij,ji->i", np.abs(left.taken), np.abs(n[:, groups.which]))
    error = gamma(len(C) + len(n) + 48) * lengths * (np.sqrt(np.diag(on.H)) @ np.abs(n)) * 1.01
    error = error + gamma(len(n) + 48) * groups.summed(np.abs(X), sizes)
    raw = known.pulls[columns]
    limit, _ = groups.penalties(model, columns)
    reach = np.abs(raw + change) + known.of_pulls[columns] + error + 4.0 * EPS * (np.abs(raw) + np.abs(change))
    with np.errstate(invalid="ignore"):
        return ~(reach + far * lengths < limit * (1.0 - 4.0 * EPS))


# Which models there are in the end


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Weights on `columns`, a column for every group, and intercepts, near those without the group; `slack` times
    ||x|| of `norms` bounds how far x . w + b may be off. Infinite where nothing is proven."""

    model: WholeModel
    groups: Groups
    columns: Indices
    weights: Array
    b: Array
    slack: Array
    place: Indices  # which of `on` has a group's norms
    on: tuple[OnColumns, ...]

    @property
    def proven(self) -> Any:
        return np.isfinite(self.slack)

    def norms(self, X: Any) -> Array:
        """||x|| of rows of X for every group, rows x groups, at most."""
        each = np.array([one.of_new(X) for one in self.on]) if self.on else np.zeros((1, X.shape[0]))
        return np.asarray(each[self.place].T)

    def margins(self, X: Any, offset: Any = 0.0) -> tuple[Array, Array]:
        """x . w + b of rows of X by every group's model, and how far that may be from exact ones: rows x groups."""
        ((_, part),) = dense_rows(X, self.columns, X.shape[0])
        m = part @ self.weights + self.b
        rounding = gamma(len(self.columns) + 6) * (np.abs(part) @ np.abs(self.weights) + np.abs(self.b)) + TINY
        with np.errstate(invalid="ignore"):
            return m + offset, self.slack * self.norms(X) + rounding + 4.0 * EPS * (np.abs(m) + np.abs(offset))

    def left(self) -> tuple[Array, Array]:
        """Margins of the rows that are left out, and how far they may be from exact ones: one for each of
        `groups.rows`."""
        model, rows, which = self.model, self.groups.rows, self.groups.which
        ((_, part),) = dense_rows(taken(model.design.X, rows), self.columns, len(rows))
        offset = np.zeros(len(rows)) if model.offset is None else model.offset[rows]
        m = np.einsum("ij,ji->i", part, self.weights[:, which]) + self.b[which]
        size = np.einsum("ij,ji->i", np.abs(part), np.abs(self.weights[:, which])) + np.abs(self.b[which])
        lengths = np.zeros(len(rows))
        for k, one in enumerate(self.on):
            here = self.place[which] == k
            lengths[here] = one.norms[rows[here]]
        with np.errstate(invalid="ignore"):
            error = self.slack[which] * lengths + gamma(len(self.columns) + 6) * size
        return m + offset, error + 4.0 * EPS * (np.abs(m) + np.abs(offset)) + TINY


class _Found:
    """What has been proven so far, group by group."""

    def __init__(self, model: WholeModel, w: Array, b: float, groups: Groups) -> None:
        self.model, self.groups = model, groups
        self.weights = np.repeat(w[:, None], len(groups), axis=1)
        self.b, self.slack = np.full(len(groups), b), np.full(len(groups), math.inf)
        self.place, self.on = np.zeros(len(groups), dtype=np.intp), list[OnColumns]()

    def take(self, these: Indices, on: OnColumns, found: Shown) -> None:
        """What is proven, where it is sharper than before."""
        if on not in self.on:
            self.on.append(on)
        better = np.where(found.kept, found.slack < self.slack[these], ~self.proven[these])
        g, there = these[better], found.p[:, better] * on.factor.scale[:, None]
        self.weights[:, g] = 0.0
        self.weights[np.ix_(on.columns, g)] = there[on.weights]
        self.b[g] = there[-1] if self.model.intercept else 0.0
        self.slack[g] = np.where(found.kept, found.slack, math.inf)[better]
        self.place[g] = self.on.index(on)

    @property
    def proven(self) -> Any:
        return np.isfinite(self.slack)

    def off(self) -> Array:
        """How far margins of rows that are left out may be off, the farthest of every group."""
        _, error = self.whole().left()
        found = np.zeros(len(self.groups))
        np.maximum.at(found, self.groups.which, error)
        return found

    def whole(self) -> LeftOut:
        columns = np.flatnonzero(self.weights.any(axis=1))
        return LeftOut(
            self.model, self.groups, columns, self.weights[columns], self.b, self.slack, self.place, tuple(self.on)
        )


def leave_out(
    model: WholeModel, w: Array, b: float, groups: Groups, within: float = math.inf
) -> LeftOut:
    """The models without each of the groups, from w and b near the minimiser of all rows: margins of the rows that are
    left out to `within`, where that takes a few gradients, and as they come otherwise."""
    found = _Found(model, w, b, groups)
    with np.errstate(over="ignore", under="ignore"):
        at = AtPoint.of(model, w, b)
        support = np.flatnonzero((w != 0.0) | (model.l1 == 0.0))
        on = None if at is None else OnColumns.of(model, at, support)
        if on is None:
            return found.whole()
        doubtful = np.zeros(len(w), dtype=np.bool_)
        for part in _parts(groups, len(w)):
            doubtful |= _stepped(found, on, part)
        for _ in range(KINKS):
            rest = np.flatnonzero(~found.proven)
            if doubtful.any():
                on = OnColumns.of(model, at, np.union1d(on.columns, np.flatnonzero(doubtful)))
            if on is None or len(rest) == 0:
                break
            doubtful[:] = False
            for part in _parts(groups.taken(rest), max(len(w), len(at.m))):
                doubtful |= _moved(found, on, rest[part])
        _nearer(found, within)
    return found.whole()


def _parts(groups: Groups, size: int) -> list[Indices]:
    """The groups, as many at a time as matrices of so many rows have room for."""
    most = max(NUMBERS // max(size, 1), 1)
    return [np.arange(first, min(first + most, len(groups))) for first in range(0, len(groups), most)]


def _stepped(found: _Found, on: OnColumns, these: Indices) -> Any:
    """A step from w for each of these groups, and what it proves; columns in doubt for any of them."""
    left = Left.of(on, found.groups.taken(these))
    known, there = Gradients.at_w(left), np.repeat(on.variables[:, None], len(these), axis=1)
    proof = shown(left, known, there, stepped(left, known, there))
    found.take(these, on, proof)
    return proof.zero.any(axis=1)


def _moved(found: _Found, on: OnColumns, these: Indices) -> Any:
    """The same from where these groups are."""
    left = Left.of(on, found.groups.taken(these))
    there = np.vstack([found.weights[on.columns][:, these], found.b[None, these]])[: len(on.factor)]
    there = there / on.factor.scale[:, None]
    known = Gradients.at(left, there - on.variables[:, None])
    proof = shown(left, known, there, stepped(left, known, there))
    found.take(these, on, proof)
    return proof.zero.any(axis=1)


def _nearer(found: _Found, within: float) -> None:
    """Further gradients for groups that are proven, but not to `within`."""
    for _ in range(PASSES):
        off = found.off()
        wide = np.flatnonzero((off > within) & found.proven)
        for k, on in enumerate(found.on):
            here = wide[found.place[wide] == k]
            for part in _parts(found.groups.taken(here), len(on.at.m)):
                _moved(found, on, here[part])
        if not (found.off()[wide] < WORTH * off[wide]).any():
            break


def stepped(left: Left, known: Gradients, there: Array) -> Array:
    """To where the quadratic model of every group at `there` is least, without proof."""
    gradient, signs = left.gradient(known, there), np.sign(there)
    n = -left.solve(gradient + left.l1 * signs)
    for _ in range(CORRECTIONS):
        n = n - left.solve(gradient + left.product(n) + left.l1 * signs)
    kept = np.isfinite(n) & ((signs * (there + n) > 0.0) | (left.l1 == 0.0))
    for g in np.flatnonzero(~kept.all(axis=0)).tolist():
        v, l1, slope = there[:, g], left.l1[:, g], gradient[:, g]
        goal = GOAL * float(l1.max()) + 8.0 * EPS * norm(np.abs(slope) + l1)
        try:
            n[:, g] = from_face_to_face(v, Matrix(left.dense(g)), slope, v, l1, goal) - v
        except NoFactorError:
            n[:, g] = math.nan
    return np.where(np.isfinite(n).all(axis=0), n, 0.0)
