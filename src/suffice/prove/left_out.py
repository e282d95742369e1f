r"""All models without one row, or one group of rows, each proven, for little more than the price of one.

What is proven of points near these models is in `suffice.prove.left_out_bounds`, whose symbols these are. The first n
leads from w to where the quadratic model of Phi_g is least: Newton's step by the downdated factor, all g at once, or by
an active set where signs change. rho is of second order in that. Squares end there, exactly. Elsewhere, if q is too
large or slack_g more than is wanted, u is had anew at p, and so on. The few groups that w is too far from have factors
of their own, of Phi_g where they are.

The step is Cook's (1977) for squares, and approximate leave-one-out (Rad and Maleki 2020) elsewhere; here it comes with
a proof of what it leaves out. Supports that change: Okumura, Suzuki and Takeuchi 2015.
"""

from __future__ import annotations

import math
from collections.abc import Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array
from suffice.penalties.prox import soft
from suffice.prove.downdated import AtPoint, Groups, Left, OnColumns, WholeModel
from suffice.prove.factor import Indices
from suffice.prove.left_out_bounds import Gradients, Shown, shown
from suffice.rows.given import taken
from suffice.rows.gram import as_array, dense_rows
from suffice.rows.norms import row_norms
from suffice.rows.rounding import TINY, gamma

CORRECTIONS = 2  # of a step, whose model leaves out how l2 changes
PASSES = 12  # gradients for what is proven, but not to what is wanted
ROUNDS = 6  # gradients for what is not proven; in each columns may join
KEPT = 1 << 24  # numbers in factors' rows of single groups
NUMBERS = 1 << 20  # of rows times groups at a time
SETTLED = 1e-6  # of the gradient at the start: what a step may leave of it
FACES, AT_ONCE = 48, 8  # rounds of signs that change; and those in which all change that are wrong
WORTH = 0.5  # of what is off: what another pass has to leave at most


@dataclass(frozen=True, eq=False)
class Turn:
    """Models in coordinates x Q: what margins of exact ones may be further off, times ||x|| and besides."""

    Q: Array
    along: Array
    own: Array


@dataclass(eq=False)
class LeftOut:
    """Weights, a column for every group, and intercepts, near those without the group; `slack` times ||x|| of `norms`
    bounds how far x . w + b may be off. Infinite where nothing is proven."""

    model: WholeModel
    groups: Groups
    weights: Array
    b: Array
    slack: Array
    place: Indices  # which of `on` has a group's norms
    on: list[OnColumns]
    turn: Turn | None = None

    @property
    def proven(self) -> Any:
        return np.isfinite(self.slack)

    def weights_of(self, g: int) -> Array:
        """Proven or not."""
        w = self.weights[:, g]
        return w if self.turn is None else np.asarray(self.turn.Q @ w)

    @property
    def columns(self) -> Indices:
        """Those with a weight for any group."""
        return np.flatnonzero(self.weights.any(axis=1))

    def norms(self, X: Any) -> Array:
        """||x|| of rows of X for every group, rows x groups, at most."""
        each = np.array([one.of_new(X) for one in self.on]) if self.on else np.zeros((1, X.shape[0]))
        return np.asarray(each[self.place].T)

    def margins(self, X: Any, offset: Any = 0.0) -> tuple[Array, Array]:
        """x . w + b of rows of X by every group's model, and how far that may be from exact ones: rows x groups."""
        further: Any = 0.0
        if self.turn is not None:
            X = as_array(X)
            lengths = row_norms(X) * (1.0 + gamma(X.shape[1] + 16)) + 1e-150
            X, further = X @ self.turn.Q, lengths[:, None] * self.turn.along + self.turn.own
        columns = self.columns
        ((_, part),), weights = dense_rows(X, columns, X.shape[0]), self.weights[columns]
        with np.errstate(invalid="ignore"):
            m = part @ weights + self.b
            rounding = further + gamma(len(columns) + 6) * (np.abs(part) @ np.abs(weights) + np.abs(self.b)) + TINY
            return m + offset, self.slack * self.norms(X) + rounding + 4.0 * EPS * (np.abs(m) + np.abs(offset))

    def left(self) -> tuple[Array, Array]:
        """Margins of the rows that are left out, and how far they may be from exact ones: one for each of
        `groups.rows`."""
        model, rows, which, columns = self.model, self.groups.rows, self.groups.which, self.columns
        ((_, part),), weights = dense_rows(taken(model.design.X, rows), columns, len(rows)), self.weights[columns]
        offset = np.zeros(len(rows)) if model.offset is None else model.offset[rows]
        m = self.groups.along(part.T, weights) + self.b[which]
        size = self.groups.along(np.abs(part.T), np.abs(weights)) + np.abs(self.b[which])
        lengths = np.zeros(len(rows))
        for k, one in enumerate(self.on):
            here = self.place[which] == k
            lengths[here] = one.norms[rows[here]]
        with np.errstate(invalid="ignore"):
            error = self.slack[which] * lengths + gamma(len(columns) + 6) * size
            error = error if self.turn is None else error + 2.0 * self.turn.own[which]
        return m + offset, error + 4.0 * EPS * (np.abs(m) + np.abs(offset)) + TINY

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

    def variables(self, on: OnColumns, these: Indices) -> Array:
        """Weights on some columns and intercepts, scaled, of some of the groups."""
        there = np.vstack([self.weights[np.ix_(on.columns, these)], self.b[None, these]])[: len(on.factor)]
        return np.asarray(there / on.factor.scale[:, None])

    def off(self) -> Array:
        """How far margins of rows that are left out may be off, the farthest of every group."""
        found = np.zeros(len(self.groups))
        np.maximum.at(found, self.groups.which, self.left()[1])
        return found


def leave_out(model: WholeModel, w: Array, b: float, groups: Groups, within: float = math.inf) -> LeftOut:
    """The models without each of the groups, from w and b near the minimiser of all rows: margins of the rows that are
    left out to `within`, where that takes a few gradients, and as they come otherwise."""
    G, weights = len(groups), np.repeat(w[:, None], len(groups), axis=1)
    found = LeftOut(model, groups, weights, np.full(G, b), np.full(G, math.inf), np.zeros(G, dtype=np.intp), [])
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
                more = OnColumns.of(model, at, np.union1d(on.columns, np.flatnonzero(doubtful)))
                if more is None:  # no minimiser of all rows on all of these is proven: groups need a few each
                    break
                on = more
            elif again is _moved and (~found.proven).sum() > WORTH * len(rest):
                break
            again = again if doubtful.any() else _moved  # from w once more, on more columns, or from where they are
        rest = np.flatnonzero(~found.proven)
        if on is not None and len(rest) * on.rows.size <= KEPT:
            for g in rest.tolist():
                _alone(found, on.columns, g)
        if within < math.inf:
            _nearer(found, within)
    return found


def sharpened(made: LeftOut, within: Any) -> LeftOut:
    """The same after further gradients for groups that are proven, but not to `within`, one number or one each."""
    copies = {name: getattr(made, name).copy() for name in ("weights", "b", "slack", "place", "on")}
    found = replace(made, **copies)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        _nearer(found, within)
    return found


def _parts(groups: Sized, size: int) -> list[Indices]:
    """The groups, or columns, as many at a time as there is room for, where each takes so many numbers."""
    most = max(NUMBERS // max(size, 1), 1)
    return [np.arange(first, min(first + most, len(groups))) for first in range(0, len(groups), most)]


def _stepped(found: LeftOut, on: OnColumns, these: Indices) -> Any:
    """A step from w for each of these groups, and what it proves; columns in doubt for any of them."""
    left = Left.of(on, found.groups.taken(these))
    known, there = Gradients.at_w(left), np.repeat(on.variables[:, None], len(these), axis=1)
    proof = shown(left, known, there, stepped(left, known, there, found.variables(on, these) - there))
    found.take(these, on, proof)
    return proof.joining


def _moved(found: LeftOut, on: OnColumns, these: Indices) -> Any:
    """The same from where these groups are."""
    left, there = Left.of(on, found.groups.taken(these)), found.variables(on, these)
    known = Gradients.at(left, there - on.variables[:, None])
    proof = shown(left, known, there, stepped(left, known, there))
    found.take(these, on, proof)
    return proof.joining


def _alone(found: LeftOut, columns: Indices, g: int) -> None:
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


def _nearer(found: LeftOut, within: Any) -> None:
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


def stepped(left: Left, known: Gradients, there: Array, guess: Array | None = None) -> Array:
    """To where the quadratic model of every group at `there` is least, without proof; `guess` may be that already, on
    fewer columns."""
    gradient, signs, n = known.on(left, there), np.sign(there), np.full(there.shape, math.nan)
    settled = np.zeros(there.shape[1], dtype=np.bool_)
    if guess is not None and guess.any():
        p, pull = there + guess, gradient + left.product(guess)
        off = np.where(p != 0.0, pull + left.l1 * np.sign(p), soft(pull, left.l1))
        settled = np.abs(off).max(axis=0) <= SETTLED * np.abs(gradient + left.l1 * signs).max(axis=0)
        n[:, settled] = guess[:, settled]
        signs = np.where(p != 0.0, np.sign(p), np.where(np.abs(pull) > left.l1, -np.sign(pull), 0.0))
    plain = np.flatnonzero(((there != 0.0) | (left.l1 == 0.0)).all(axis=0) & ~settled)
    part, slope = left.among(plain), (gradient + left.l1 * signs)[:, plain]
    step = -part.solve(slope)
    for _ in range(CORRECTIONS * left.changes):
        step = step - part.solve(slope + part.product(step))
    n[:, plain] = step
    kept = np.isfinite(n) & ((signs * (there + n) > 0.0) | (left.l1 == 0.0))
    turned = np.flatnonzero(~kept.all(axis=0) & ~settled)
    signs = np.where(kept | np.isnan(n), signs, 0.0)
    for some in _parts(turned, len(there) ** 2):
        these = turned[some]
        n[:, these] = _on_faces(left.among(these), gradient[:, these], there[:, these], signs[:, these])
    return np.where(np.isfinite(n).all(axis=0), n, 0.0)


def _on_faces(left: Left, slope: Array, v: Array, signs: Array) -> Array:
    """The same for groups whose signs change, beginning with `signs`: columns at 0 are left there, and others as their
    slopes pull, until all agree, which a few rounds of systems on each group's own columns nearly always are enough
    for; one at a time from then on (Murty 1974); NaN otherwise."""
    rest, found = np.arange(v.shape[1]), np.full(v.shape, math.nan)
    for turn in range(FACES):
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
        wrong = out | back
        done = ~wrong.any(axis=0)
        if turn >= AT_ONCE:  # all at once may go round in circles
            first = np.arange(len(wrong))[:, None] == wrong.argmax(axis=0)
            out, back = out & first, back & first
        found[:, rest[done]] = u[:, done]
        signs = np.where(out, 0.0, np.where(back, -np.sign(pull), signs))[:, ~done]
        rest = rest[~done]
    return found
