r"""The Hessian of a model of all rows, and of what is left of it without one row, or one group of rows.

    Phi(w, b) = sum_i a_i psi(x_i . w + b + o_i, y_i) + sum_j ( l2_j/2 w_j^2 + l1_j |w_j| )

On some columns, intercept included, let H be the Hessian of Phi's smooth part at w, and C_i = a_i psi''_i. Without the
rows of g, and with penalties of its own (what is left of the weights sums to 1 - A_g, so that penalties of the mean
over rows become (1 - A_g) l1 and (1 - A_g) l2),

    H_g = H - sum_{i in g} C_i x_i x_i^T + diag(l2_g - l2)  >=  (1 - tau_g - delta_g) H,
    tau_g = the largest eigenvalue of C_i^(1/2) C_j^(1/2) x_i . H^-1 x_j over g, no more than its trace,
    delta_g = the largest 1 - l2_gj / l2_j,

so that norms by H_g^-1 are no more than  omega_g = (1 - tau_g - delta_g)^(-1/2)  times those by H^-1: one factor of H,
which is good for proofs (`suffice.prove.factor`), serves all g. Variables are scaled as it has them.

A factor on more columns than a support S bounds all norms on it:  x_S . (H_SS)^-1 x_S <= x . H^-1 x  for any x that
agrees with x_S on S, since it is the maximum of  2 x . v - v . H v  over v on S, or on all of the columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from suffice.arrays import EPS, Array, norm
from suffice.lazy import cached_property
from suffice.prove.factor import Indices, ProvenFactor, Variables
from suffice.prove.verified_rows import MarginRows
from suffice.rows.design import Design
from suffice.rows.given import taken
from suffice.rows.gram import as_array, dense_rows, gram
from suffice.rows.memory import absolute_product
from suffice.rows.norms import row_norms
from suffice.rows.rounding import TINY, gamma

NUMBERS = 1 << 22  # of rows times columns at a time
WIDE = 3  # columns over rows: of more, fits cost less than Hessians
LEAST_LEFT = 1e-6  # of H, in H_g: less, and nothing is proven by a downdate


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

    def summed(self, rows: Array, coefficients: Array) -> Array:
        """sum over the rows of each group of coefficients times these, columns that are theirs: a column for each."""
        each = rows * coefficients
        return each if self.single else np.ascontiguousarray((self.sums @ each.T).T)

    def along(self, rows: Array, N: Array) -> Array:
        """x_i . n_g of all rows i of g."""
        return np.asarray(np.einsum("ij,ij->j", rows, N if self.single else N[:, self.which]))

    def penalties(self, model: WholeModel, columns: Indices) -> tuple[Array, Array]:
        """l1_g and l2_g on these columns, one column for every group, or for all; that of an intercept is not there."""
        alike = self.scales is None and len(self) > 0 and np.all(self.share == self.share[0])
        share, scales = (
            self.share[:1] if alike else self.share,
            1.0 if self.scales is None else self.scales[:, columns].T,
        )
        return model.l1[columns, None] * share * scales, model.l2[columns, None] * share * scales * scales


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
    def of(cls, model: WholeModel, w: Array, b: float, without: Any = ()) -> AtPoint | None:
        """Of all rows but some; None where rates leave the range of floats."""
        design, y, a = model.design, model.y, model.a
        if len(without):
            a = a.copy()
            a[without] = 0.0
        offset = np.zeros(len(a)) if model.offset is None else model.offset
        m = design.margins(w) + (b + offset)
        rows = MarginRows(model.loss, m[:, None], y[:, None])
        off = absolute_product(design.X, w) * gamma(int(np.count_nonzero(w)) + 4) + TINY * len(w)
        off = off + 4.0 * EPS * (np.abs(m) + abs(b) + np.abs(offset)) + np.ravel(rows.blur)
        off = np.where(a > 0.0, off, 0.0)
        if not rows.fine(a, off[:, None]):
            return None
        slopes, sizes, second = (np.where(a > 0.0, one[:, 0], 0.0) for one in (rows.slopes, rows.sizes, rows.second))
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
    l2: Array  # in H

    @classmethod
    def of(cls, model: WholeModel, at: AtPoint, columns: Indices, l2: Array | None = None) -> OnColumns | None:
        """With the model's l2, or another on these columns."""
        variables = Variables((columns,), model.intercept)
        if not 0 < len(variables) <= WIDE * len(at.m):
            return None
        counting = np.flatnonzero(at.C)
        X = model.design.X
        H, terms = gram(X, columns, np.sqrt(at.C[counting]), counting, intercept=model.intercept)
        own = model.l2[columns] if l2 is None else l2
        l2, of_H = np.append(own, [0.0] * model.intercept), terms + 12.0
        factor = ProvenFactor.of(np.array(H, order="F"), of_H, len(at.m), variables, l2)
        if factor is None:
            return None
        scale = factor.scale
        upper = np.triu(H + np.diag(l2)) * scale[:, None] * scale
        ((_, part),) = dense_rows(X, columns, len(at.m))
        part = np.column_stack([part, np.ones(len(part))]) if model.intercept else part
        return cls(model, at, columns, factor, upper + np.triu(upper, 1).T, of_H, part * scale, own)

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
    def lengths(self) -> Array:
        """||x_i|| of every row, scaled, at most."""
        return np.asarray(row_norms(self.rows) * (1.0 + gamma(len(self.factor) + 16)))

    @cached_property
    def norms(self) -> Array:
        """||x_i|| of every row by the inverse of H, at most."""
        return (row_norms(self.white) + self.factor.slack * self.lengths) * self.factor.up * self.up + 1e-150

    @cached_property
    def order(self) -> Indices:
        """Rows that count, the farthest first."""
        counting = np.flatnonzero(self.model.a)
        return np.asarray(counting[np.argsort(-self.norms[counting], kind="stable")])

    @cached_property
    def singles(self) -> Array:
        """||e_j|| of the scaled variables by the inverse of H, at most."""
        return np.asarray(row_norms(self.factor.Z) * self.factor.up * self.up)

    @cached_property
    def beside(self) -> tuple[Indices, Array, Array]:
        """The columns j of X that are not among these, x_j^T C X, and ||x_j||_C at most."""
        columns, C, N = np.setdiff1d(np.arange(len(self.at.w)), self.columns), self.at.C, len(self.at.m)
        across, squares, most = np.zeros((len(columns), len(self.factor))), np.zeros(len(columns)), max(NUMBERS // N, 1)
        for first in range(0, len(columns), most):
            here = slice(first, first + most)
            ((_, X),) = dense_rows(self.model.design.X, columns[here], N)
            weighted = X * C[:, None]
            across[here], squares[here] = weighted.T @ self.rows, np.einsum("ij,ij->j", X, weighted)
        return columns, across, np.sqrt(squares) * (1.0 + gamma(N + 16)) + 1e-150

    def of_new(self, X: Any) -> Array:
        """||x|| by the inverse of H of other rows, at most."""
        return self.factor.norms(X)[:, 0] * self.up


@dataclass(frozen=True, eq=False)
class Left:
    """Groups as they are on some columns: what they take off H, and how far that can lengthen norms."""

    on: OnColumns
    groups: Groups
    l1: Array  # scaled, with the intercept's 0; a column for every group, or for all
    l2: Array
    more_l2: Array  # l2_g - l2
    omega: Array

    @classmethod
    def of(cls, on: OnColumns, groups: Groups) -> Left:
        model, scale = on.model, on.factor.scale[:, None]
        l1, l2 = groups.penalties(model, on.columns)
        none = np.zeros((int(model.intercept), l1.shape[1]))
        before = on.l2[:, None]
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
            omega = np.where(kept > LEAST_LEFT, 1.0 / np.sqrt(np.maximum(kept, LEAST_LEFT)), math.inf) * (
                1.0 + 8.0 * EPS
            )
        l1, l2, more = (np.vstack([one, none]) for one in (l1, l2, l2 - before))
        return cls(on, groups, l1 * scale, l2 * scale**2, more * scale**2, omega)

    @cached_property
    def taken(self) -> Array:
        """Rows of the groups, scaled, as columns."""
        return np.ascontiguousarray(self.on.rows[self.groups.rows].T)

    @cached_property
    def X(self) -> Array:  # noqa: N802 (the symbol)
        """The same of all columns of X, as they are."""
        X, rows = self.on.model.design.X, self.groups.rows
        return np.ascontiguousarray(as_array(taken(X, rows)).T)

    @cached_property
    def C(self) -> Array:  # noqa: N802 (the symbol)
        return self.on.at.C[self.groups.rows]

    def along(self, N: Array) -> Array:
        """x_i . n_g of all rows i of g."""
        return self.groups.along(self.taken, N)

    def product(self, N: Array) -> Array:
        """H_g n_g."""
        found = self.on.H @ N
        found -= self.groups.summed(self.taken, self.C * self.along(N))
        return np.asarray(found + self.more_l2 * N if self.changes else found)

    @cached_property
    def changes(self) -> bool:
        """Whether l2 of any group does."""
        return bool(self.more_l2.any())

    def product_error(self, N: Array) -> Array:
        """How far `product` may be off, entry by entry."""
        size, roots = len(N), np.sqrt(np.diag(self.on.H)) * (1.0 + 4.0 * EPS)
        whole = gamma(self.on.terms + size + 8) * roots[:, None] * (roots @ np.abs(N))
        sizes, rows = np.abs(N), np.abs(self.taken)
        doubt = self.groups.summed(rows, self.C * self.groups.along(rows, sizes))
        doubt += (self.l2 + np.abs(self.more_l2) if self.changes else self.l2) * sizes
        return np.asarray(whole + gamma(2 * size + 40) * doubt + 1e-200)

    def among(self, these: Indices) -> Left:
        """Some of the groups, in ascending order."""
        if len(these) == len(self.groups):
            return self
        l1, l2, more = (one if one.shape[1] == 1 else one[:, these] for one in (self.l1, self.l2, self.more_l2))
        return Left(self.on, self.groups.taken(these), l1, l2, more, self.omega[these])

    def dense(self, columns: Indices) -> Array:
        """H_g on columns of its own, a row of them for each group."""
        which, more = self.groups.which, np.take_along_axis(self.more_l2.T, columns, axis=1)
        found = self.on.H[columns[:, :, None], columns[:, None, :]] + more[:, :, None] * np.eye(columns.shape[1])
        rows = np.sqrt(self.C)[:, None] * self.on.rows[self.groups.rows[:, None], columns[which]]
        if self.groups.single:
            return np.asarray(found - rows[:, :, None] * rows[:, None, :])
        for g in range(len(found)):
            part = rows[which == g]
            found[g] -= part.T @ part
        return np.asarray(found)

    def solve(self, R: Array) -> Array:
        """Vectors that H_g takes near R, but for how l2 changes."""
        Z, white = self.on.factor.Z, np.ascontiguousarray(self.on.white[self.groups.rows].T)
        V = Z.T @ R
        along = self.groups.along(white, V)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.groups.single:
                coefficients = self.C * along / (1.0 - self.C * np.einsum("ij,ij->j", white, white))
            else:
                coefficients = np.empty(len(along))
                for g in range(R.shape[1]):
                    rows, C = self.groups.which == g, self.C[self.groups.which == g]
                    root = np.sqrt(C)
                    small = np.eye(len(C)) - root[:, None] * (white[:, rows].T @ white[:, rows]) * root
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
