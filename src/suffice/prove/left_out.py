r"""All models without one row, or one group of rows, each proven, for little more than the price of one.

Let w, with an intercept, be near the minimiser of Phi (`suffice.prove.downdated`, whose symbols these are), and Phi_g
be Phi without the rows of g, with |psi'''| <= M psi''. Let E hold the support of w, and columns that may join it.

At any point z on E, w for one, that moves no margin of the remaining rows by more than alpha / M,  H_g(z) = e^(+-alpha)
H_g  in the order of matrices. Let u be the gradient of Phi_g's smooth part at z, n any vector on E, p = z + n, and v
the least of  u + H_g n + l1_g s  over subgradients s of ||.||_1 at p. With norms by H_g(z) and its inverse,

    a = kappa ||n||,    kappa = M max over the remaining rows of ||x_i||,
    ||gradient at p - (u + H_g n)||  <=  r = e^(alpha/2) (e^alpha - 1) ||n||_{H_g} + ||n|| (e^a - 1 - a)/a.

Subgradients of a convex function are monotone, whatever the signs of the minimiser w* of Phi_g on E are:

    <gradient at p + l1_g s, p - w*>  >=  <gradient at p - gradient at w*, p - w*>  >=  ||p - w*||^2 (1 - e^-d)/d

in norms by H_g(p) = e^(+-a) H_g(z), d = kappa e^(a/2) ||p - w*||. So if  kappa e^a (||v|| + r) = q < 1,

    ||p - w*||  <=  rho = -ln(1 - q) / (kappa e^(a/2))        (||v|| for squares, M = 0).

If the gradient at w* on all columns outside E, which differs from the model's by what these norms allow, is less than
l1_g, then w* is the minimiser of Phi_g, and  |x . (p - w*)| <= slack_g ||x||_{H^-1}  for every x. Columns that fail
this join E, for the groups that are not proven.

The first n leads from w to where the quadratic model of Phi_g is least: Newton's step by the downdated factor, all g at
once, or by an active set where signs change. rho is of second order in that. Squares end there, exactly. Elsewhere, if
q is too large or slack_g more than is wanted, u is had anew at p, and so on.

Rounding. Margins err by delta_i, which moves u by no more than (sum_i C_i delta_i^2)^(1/2) in norms by H_g^-1, and
psi'' by the factor e^(M delta_i); sums are bounded entry by entry.

The step is Cook's (1977) for squares, and approximate leave-one-out (Rad and Maleki 2020) elsewhere; here it comes with
a proof of what it leaves out. Supports that change: Okumura, Suzuki and Takeuchi 2015.
"""

from __future__ import annotations

import math
from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.models.margin_losses import LARGEST, slope_and_bend, slope_size
from suffice.penalties.prox import soft
from suffice.prove.downdated import AtPoint, Groups, Left, OnColumns, WholeModel
from suffice.prove.factor import Indices
from suffice.prove.verified_rows import entry_gammas
from suffice.rows.design import OF_FACTORS
from suffice.rows.given import taken
from suffice.rows.gram import dense_rows
from suffice.rows.norms import row_norms
from suffice.rows.rounding import TINY, gamma

LARGEST_PRODUCT = 0.5  # q: beyond, nothing is claimed
CORRECTIONS = 2  # of a step, whose model leaves out how l2 changes
PASSES = 12  # gradients for what is proven, but not to what is wanted
ROUNDS = 6  # gradients for what is not proven; in each columns may join
KEPT = 1 << 24  # numbers in factors' rows of single groups
NUMBERS = 1 << 20  # of rows times groups at a time
FEW = 8  # columns that join for one group at a time
FAR = 32  # rows whose moves are known one by one
FACES = 12  # rounds of signs that change
WORTH = 0.5  # of what is off: what another pass has to leave at most


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
    on, groups, p = left.on, left.groups, there + n
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
        kappa = third * longer * _farthest(left)
        a = third * _reach(left, n, longer * grow * moved) * (1.0 + 8.0 * EPS) if third > 0.0 else np.zeros(len(groups))
        a = np.where(a < 1.0, a, math.nan)
        remainder = grow * moved * a * (0.5 + a * (1.0 + a) / 6.0)
        longer, kappa = longer * np.exp(0.5 * a), kappa * np.exp(0.5 * a)
        decrement = (residual + chord + remainder) * np.exp(0.5 * a) * (1.0 + 16.0 * EPS)
        product = kappa * decrement
        product = np.where(product < LARGEST_PRODUCT, product, math.nan)
        rho = np.where(kappa > 0.0, -np.log1p(-product) / np.maximum(kappa, 1e-300), decrement)
        slack = rho * longer * (1.0 + 32.0 * EPS)
        slack = np.where(np.isfinite(slack) & (beta < 1.0), slack, math.inf)
        curved = chord + remainder + known.of_margins
        far = rho * np.exp(kappa * rho + 0.5 * a) + curved
        turned = np.expm1(beta + a + kappa * rho) * rho * np.exp(0.5 * (beta + a))
        same = (np.abs(p) > on.singles[:, None] * slack) | (left.l1 == 0.0)
        nearer = np.where(same.all(axis=0), residual + 2.0 * turned, math.inf)
        far, curved, nearer = (one * grow * (1.0 + gamma(len(on.at.m) + 32)) for one in (far, curved, nearer))
    these, doubtful = np.isfinite(slack), np.zeros(known.pulls.shape, dtype=np.bool_)
    doubtful[on.beside.columns] = _pulled(left, known, n, *(np.where(these, one, 0.0) for one in (far, curved, nearer)))
    return Shown(p, slack, doubtful)


def _farthest(left: Left) -> Array:
    """max ||x_i|| by H^-1 of the rows that remain and count, at most: of all of them, but for the farthest."""
    groups, lengths, order = left.groups, left.on.norms, left.on.order
    found = np.full(len(groups), lengths[order[0]])
    for g in np.unique(groups.which[groups.rows == order[0]]).tolist():
        found[g] = lengths[np.setdiff1d(order, groups.rows[groups.which == g])].max(initial=0.0)
    return found


def _reach(left: Left, n: Array, moved: Array) -> Array:
    """max |x_i . n_g| of the rows that remain and count, at most: the farthest FAR of them one by one, others by
    ||x_i|| times `moved`, a bound on ||n||."""
    on, groups = left.on, left.groups
    order = on.order[:FAR]
    rest = on.norms[on.order[FAR]] if len(on.order) > FAR else 0.0
    far = np.abs(on.rows[order] @ n)
    place = np.full(len(on.at.m), -1)
    place[order] = np.arange(len(order))
    inside = place[groups.rows] >= 0
    far[place[groups.rows[inside]], groups.which[inside]] = 0.0
    rounding = gamma(len(n) + 8) * on.lengths[order].max(initial=0.0) * row_norms(n.T)
    return np.maximum(far.max(axis=0, initial=0.0) + rounding, rest * moved)


def _pulled(left: Left, known: Gradients, n: Array, far: Array, curved: Array, nearer: Array) -> Any:
    """Which of the columns beside these, whose weights are 0, may not stay so."""
    on, groups, C, columns, lengths = left.on, left.groups, left.on.at.C, left.on.beside.columns, left.on.beside.lengths
    if len(columns) == 0:
        return np.zeros((0, len(groups)), dtype=np.bool_)
    # entries of a row are no more than lengths over C_i^(1/2)
    roots = np.sqrt(left.C) * groups.along(np.abs(left.taken), np.abs(n))
    error = np.sqrt(np.diag(on.H)) @ np.abs(n) * 1.01 + groups.sums @ roots
    error = gamma(len(C) + len(n) + groups.largest + 64) * error * (1.0 + gamma(len(groups.rows) + 16))
    reach = on.beside.across @ n
    reach -= groups.summed(left.X[columns], left.C * left.along(n))
    reach += known.pulls[columns]
    np.abs(reach, out=reach)
    reach *= 1.0 + 16.0 * EPS
    reach += known.of_pulls[columns]
    limit, _ = groups.penalties(on.model, columns)
    with np.errstate(invalid="ignore"):
        moves = np.outer(lengths, nearer + error)
        moves += np.outer(on.beside.apart, curved * left.longest)
        np.minimum(moves, np.outer(lengths, far + error), out=moves)
        reach += moves
        return ~(reach < limit * (1.0 - 16.0 * EPS))


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

    def weights_of(self, g: int) -> Array:
        """On all columns, proven or not."""
        w = np.zeros(len(self.model.l1))
        w[self.columns] = self.weights[:, g]
        return w

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

    @classmethod
    def of(cls, made: LeftOut) -> _Found:
        found = cls(made.model, np.zeros(len(made.model.l1)), 0.0, made.groups)
        found.weights[made.columns] = made.weights
        found.b, found.slack, found.place, found.on = made.b.copy(), made.slack.copy(), made.place.copy(), [*made.on]
        return found

    def take(self, these: Indices, on: OnColumns, found: Shown) -> None:
        """What is proven, where it is sharper than before."""
        better = np.where(found.kept, found.slack < self.slack[these], ~self.proven[these])
        if not better.any():
            return
        g, there = these[better], found.p[:, better] * on.factor.scale[:, None]
        self.weights[:, g] = 0.0
        self.weights[np.ix_(on.columns, g)] = there[on.weights]
        self.b[g] = there[-1] if self.model.intercept else 0.0
        self.slack[g] = np.where(found.kept, found.slack, math.inf)[better]
        if self.proven[g].any():
            if on not in self.on:
                self.on.append(on)
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


def leave_out(model: WholeModel, w: Array, b: float, groups: Groups, within: float = math.inf) -> LeftOut:
    """The models without each of the groups, from w and b near the minimiser of all rows: margins of the rows that are
    left out to `within`, where that takes a few gradients, and as they come otherwise."""
    found = _Found(model, w, b, groups)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # NaN proves nothing
        at = AtPoint.of(model, w, b)
        support = np.flatnonzero((w != 0.0) | (model.l1 == 0.0))
        on = None if at is None or len(groups) == 0 else OnColumns.of(model, at, support)
        found.on = [] if on is None else [on]
        doubtful, again = np.zeros(len(w), dtype=np.bool_), _stepped
        for _ in range(ROUNDS):
            rest = np.flatnonzero(~found.proven)
            if at is None or on is None or len(rest) == 0:
                break
            doubtful[:] = False
            for part in _parts(groups.taken(rest), len(w) if again is _stepped else max(len(w), len(at.m))):
                doubtful |= again(found, on, rest[part])
            if doubtful.any():
                on = OnColumns.of(model, at, np.union1d(on.columns, np.flatnonzero(doubtful)))
            elif again is _moved and (~found.proven).sum() > WORTH * len(rest):
                break
            again = again if doubtful.any() else _moved  # from w once more, on more columns, or from where they are
        rest = np.flatnonzero(~found.proven)
        if on is not None and len(rest) * on.rows.size <= KEPT:
            for g in rest.tolist():
                _alone(found, on.columns, g)
        if within < math.inf:
            _nearer(found, within)
    return found.whole()


def sharpened(made: LeftOut, within: Any) -> LeftOut:
    """The same after further gradients for groups that are proven, but not to `within`, one number or one each."""
    found = _Found.of(made)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        _nearer(found, within)
    return found.whole()


def _parts(groups: Sized, size: int) -> list[Indices]:
    """The groups, or columns, as many at a time as there is room for, where each takes so many numbers."""
    most = max(NUMBERS // max(size, 1), 1)
    return [np.arange(first, min(first + most, len(groups))) for first in range(0, len(groups), most)]


def _stepped(found: _Found, on: OnColumns, these: Indices) -> Any:
    """A step from w for each of these groups, and what it proves; columns in doubt for any of them."""
    left = Left.of(on, found.groups.taken(these))
    known, there = Gradients.at_w(left), np.repeat(on.variables[:, None], len(these), axis=1)
    proof = shown(left, known, there, stepped(left, known, there))
    found.take(these, on, proof)
    return proof.joining


def _moved(found: _Found, on: OnColumns, these: Indices) -> Any:
    """The same from where these groups are."""
    left = Left.of(on, found.groups.taken(these))
    there = np.vstack([found.weights[on.columns][:, these], found.b[None, these]])[: len(on.factor)]
    there = there / on.factor.scale[:, None]
    known = Gradients.at(left, there - on.variables[:, None])
    proof = shown(left, known, there, stepped(left, known, there))
    found.take(these, on, proof)
    return proof.joining


def _alone(found: _Found, columns: Indices, g: int) -> None:
    """The same of one group, by a factor of its own where it is."""
    model, these = found.model, np.array([g])
    alone = found.groups.taken(these)
    for _ in range(ROUNDS):
        at = AtPoint.of(model, found.weights[:, g], float(found.b[g]), alone.rows)
        l2 = alone.penalties(model, columns)[1][:, 0]
        on = None if at is None else OnColumns.of(model, at, columns, l2)
        if on is None:
            break
        doubtful = np.flatnonzero(_stepped(found, on, these))
        columns = np.union1d(columns, doubtful)
        if found.proven[g]:
            break


def _nearer(found: _Found, within: Any) -> None:
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
    gradient, signs, n = known.on(left, there), np.sign(there), np.full(there.shape, math.nan)
    plain = np.flatnonzero(((there != 0.0) | (left.l1 == 0.0)).all(axis=0))
    part, slope = left.among(plain), (gradient + left.l1 * signs)[:, plain]
    step = -part.solve(slope)
    for _ in range(CORRECTIONS * left.changes):
        step = step - part.solve(slope + part.product(step))
    n[:, plain] = step
    kept = np.isfinite(n) & ((signs * (there + n) > 0.0) | (left.l1 == 0.0))
    turned = np.flatnonzero(~kept.all(axis=0))
    signs = np.where(kept | np.isnan(n), signs, 0.0)
    for some in _parts(turned, len(there) ** 2):
        these = turned[some]
        n[:, these] = _on_faces(left.among(these), gradient[:, these], there[:, these], signs[:, these])
    return np.where(np.isfinite(n).all(axis=0), n, 0.0)


def _on_faces(left: Left, slope: Array, v: Array, signs: Array) -> Array:
    """The same for groups whose signs change, beginning with `signs`: columns at 0 are left there, and others as their
    slopes pull, until all agree, which a few rounds of systems on each group's own columns nearly always are enough
    for; NaN otherwise."""
    rest, found = np.arange(v.shape[1]), np.full(v.shape, math.nan)
    for _ in range(FACES):
        if len(rest) == 0:
            break
        part, at, pulled = left.among(rest), v[:, rest], slope[:, rest]
        on = (signs != 0.0) | (part.l1 == 0.0)
        columns = np.argsort(~on, axis=0, kind="stable")[: on.sum(axis=0).max(initial=0)]
        inside = np.take_along_axis(on, columns, axis=0).T
        H = np.where(inside[:, :, None] & inside[:, None, :], part.dense(columns.T), np.eye(len(columns)))
        u = np.where(on, 0.0, -at)
        side = np.where(on, pulled + part.product(u) + part.l1 * signs, 0.0)
        try:
            move = np.linalg.solve(H, np.take_along_axis(side, columns, axis=0).T[:, :, None])[:, :, 0].T
        except np.linalg.LinAlgError:
            break
        np.put_along_axis(u, columns, np.take_along_axis(u, columns, axis=0) - move, axis=0)
        pull = pulled + part.product(u)
        out, back = on & (signs * (at + u) < 0.0), ~on & (np.abs(pull) > part.l1)
        done = ~(out | back).any(axis=0)
        found[:, rest[done]] = u[:, done]
        signs = np.where(out, 0.0, np.where(back, -np.sign(pull), signs))[:, ~done]
        rest = rest[~done]
    return found
