r"""How far the minimiser is from a path, for all parameters of a box at once, on given columns P.

    Phi_t(w) = f(w) + (l2/2) ||w||^2 + l1 ||w||_1,      f(w) = sum_i a_i psi(x_i . w),      (l1, l2) = B (centre + t).

Let w~ = w~(t) be any path on P (`suffice.globally.paths`, `bends`), and e the part of grad f(w~) + l2 w~ that no
subgradient of l1 ||.||_1 at w~ cancels. Since that is monotone, the minimiser w~ + h of Phi_t on the columns P has, for
all tau between 0 and 1,

    <grad f(w~ + tau h) - grad f(w~), tau h> + l2 ||tau h||^2  <=  -<e, tau h>.

Margins of row i move by tau x_i . h. As long as that is no more than d_i, slopes psi' differ by no less than the least
secant c_i(d_i) over such a distance, from anywhere on the path, times it. So, with

    H = X^T diag(a c(d)) X + l2_low    on P,        lambda >= ||e||_{H^-1} for all t of the box,

||tau h||_H <= lambda, and margins move by no more than ||x_i||_{H^-1} lambda. If that is at most d_i for all rows, then
no tau reaches beyond d, and ||h||_H <= rho = lambda: d is found by trying. Rows count less the farther they may move,
each for itself, and l2 counts in full: where l2 > 0, some d always serves. For squares c = 1, whatever d is.

*lambda.* With l2 = l2_centre + B_2 t and the expansion along the path (`suffice.globally.along`),

    e on S = u0 + E1 t + E2[t, t] + sum_k kappa_k H_0 r_k + (B_2 t)(V[t, t] + .. + sigma k) + H_0 sigma k + X^T a zeta,

u0, E1 and E2 being zero but for rounding and for what w0 lacks of being a minimiser; H_0 r_k is as
`suffice.globally.bends` says. Norms by H^-1 of the polynomial are sums over its monomials. Some rows count by
their curvature C = a c, others by their norms:

    ||X^T a zeta||_{H^-1}  <=  (sum_i (a_i zeta_i)^2 / C_i)^(1/2)  +  sum_i a_i |zeta_i| ||x_i||_{H^-1},

and a clip of 1 costs no more than sqrt(||x_j||_E^2 + l2_low) + (l2_high - l2_low) sqrt((H^-1)_jj) + sum_i a_i psi''_max
|x_ij| ||x_i||_{H^-1}, where E = (a psi''_max)^2 / C on rows of the first kind, and the sum is over the others. On P
outside S, where w~ is 0, e_j = max(0, |p_j(t)| - l1) + (X^T a zeta)_j + ..

*Outside P* the gradient moves by at most ||x_j||_E (sum_j k_j ||x_j||_E + ||C^(-1/2) a zeta||) + ||x_j||_E' rho from
p_j, E' having psi''_max over all that margins may reach; E and E' are 0 on rows of the second kind, where |x_ij| times
what psi' changes by is added, row by row.

A change of variables (`suffice.globally.rotation`) adds to the rounding of margins and to lambda, and takes
from H. H has a factor that is good for proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.globally.along import SAFE, Expansion, MarginRanges
from suffice.globally.expansions import least_secant, most_bend
from suffice.globally.models import CertifiableFold
from suffice.globally.paths import Indices, Path, PenaltyBox
from suffice.globally.quadratics import pairs
from suffice.prove.factor import ProvenFactor, Variables
from suffice.prove.outputs import weighted_gram
from suffice.rows.design import largest_matrix

DAMPINGS = 6  # to find how far margins move
FAR = 8.0  # that margins move on average: what could be proven then would be of no use
LIGHT = 100.0  # rows with less than one over LIGHT times their number of H count by their norms


@dataclass(frozen=True, eq=False)
class Ball:
    """Minimisers are w~ + h, h on the columns of `factor`, ||h|| <= rho by the factor's R^T R, for all t of the box."""

    factor: ProvenFactor | None  # None where h is 0: no columns
    rho: float
    clips: Array  # k^max, on S and the intercept
    turned: Array  # on S: what e has at most where a weight may change its sign and is not clipped
    sizes: Array  # of the monomials t_k, t_k t_l
    slopes: float = math.inf  # (sum a psi'^2)^(1/2) of minimisers, at most


@dataclass(frozen=True, eq=False)
class CurvedRows:
    """Rows that count by their curvature C, and others, which count by their norms."""

    C: Array
    by_curvature: Any  # a mask
    E: Array  # (a psi''_max)^2 / C, or 0
    norms: Array  # ||x_i||_{H^-1}

    @classmethod
    def of(cls, fold: CertifiableFold, ranges: MarginRanges, C: Array, norms: Array) -> CurvedRows:
        a = fold.a
        by_curvature = (a == 0.0) | (C * norms**2 * LIGHT * len(a) > 1.0)
        by_curvature &= (C > 0.0) | (a == 0.0)
        square = np.divide(ranges.high**2, C, out=np.zeros_like(C), where=by_curvature & (a > 0.0))
        return cls(C, by_curvature, square, norms)

    def of_zeta(self, fold: CertifiableFold, ranges: MarginRanges) -> tuple[float, float]:
        """||X^T a zeta||_{H^-1}: by curvature, and by norms."""
        zeta = fold.a * ranges.zeta
        squares = np.divide(zeta**2, self.C, out=np.zeros_like(zeta), where=self.by_curvature & (self.C > 0.0))
        return math.sqrt(float(squares.sum())) * SAFE, float((zeta * self.norms)[~self.by_curvature].sum()) * SAFE


@dataclass(frozen=True, eq=False)
class Reached:
    """||h||_H <= rho by an H whose rows count with the curvatures of `rows`, if margins move no more than `moves`."""

    factor: ProvenFactor
    rows: CurvedRows
    rho: float
    moves: Array
    up: float
    missing: float  # share of H, by rotation
    clipped: float
    by_curvature: float

    @property
    def proven(self) -> bool:
        """Whether no margin moves more than it was to."""
        return bool(np.all((self.rows.norms * self.rho <= self.moves) | (self.rows.C == 0.0)))


@dataclass(frozen=True, eq=False)
class PathReach:
    """What is known of a path in a box, before its columns P are chosen; `plain` is the ball of no columns."""

    fold: CertifiableFold
    path: Path
    box: PenaltyBox
    known: Expansion
    ranges: MarginRanges
    excess: Array
    plain: Ball

    def on(self, P: Indices) -> tuple[Ball, Array] | None:
        """The ball on the columns P, and how far it lets the gradient of every column move from its expansion."""
        fold, ranges, a, loss = self.fold, self.ranges, self.fold.a, self.fold.loss
        if len(P) + fold.intercept == 0:  # then the path is 0, and so are s and zeta, but for nothing
            return self.plain, fold.absolute(a * ranges.zeta) * SAFE
        moves, residual = np.zeros(len(a)), _residual(fold, self.path, self.box, self.known)
        for _ in range(DAMPINGS):
            found = self._damped(P, residual, moves)
            if found is None:
                return None
            if loss.third == 0.0 or found.proven:
                break
            reach = found.rows.norms * found.rho
            if a @ np.minimum(reach, 100.0) > FAR * a.sum():
                return None
            moves = np.maximum(moves, reach * (1.05 + np.minimum(reach, 1.0)))
        else:
            return None
        ball = replace(self.plain, factor=found.factor, rho=found.rho * found.up / math.sqrt(1.0 - found.missing))
        if loss.third == 0.0:  # psi' is as far from where it begins as margins are
            begun = np.abs(loss.derivative(self.path.m0, fold.y)) + ranges.s
            slopes = (norm(np.sqrt(a) * begun) + found.rho / math.sqrt(1.0 - found.missing)) * SAFE
            ball = replace(ball, slopes=slopes)
        return ball, np.zeros(len(P)) if len(P) == fold.design.shape[1] else self._moved(found)

    def _moved(self, found: Reached) -> Array:
        """How far the gradient of every column is from its expansion, at most, at minimisers."""
        fold, ranges, a, rows = self.fold, self.ranges, self.fold.a, found.rows
        if fold.loss.third == 0.0:
            return fold.design.column_norms * (found.clipped + found.by_curvature + found.rho) * SAFE
        there = most_bend(fold.loss, self.path.m0, ranges.s + found.moves, fold.y)
        square = np.divide((a * there) ** 2, rows.C, out=np.zeros_like(a), where=rows.by_curvature & (a > 0.0))
        moved = fold.column_norms(rows.E) * (found.clipped + found.by_curvature) + fold.column_norms(square) * found.rho
        if not rows.by_curvature.all():
            clip = np.abs(self.known.X) @ self.plain.clips
            reach = np.where(rows.C == 0.0, rows.norms * found.rho, found.moves)
            farther = most_bend(fold.loss, self.path.m0, ranges.s + reach, fold.y)
            there = np.where(rows.C == 0.0, farther, there)
            moved = moved + fold.absolute(np.where(rows.by_curvature, 0.0, a * (ranges.zeta + there * (reach + clip))))
        return moved * SAFE

    def _damped(self, P: Indices, residual: Residual, moves: Array) -> Reached | None:
        """rho for margins that move by no more than `moves`."""
        fold, path, ranges, plain, design = self.fold, self.path, self.ranges, self.plain, self.fold.design
        a, loss, s = fold.a, fold.loss, len(path.S)
        size, l2_low, bends = len(P) + fold.intercept, fold.least_l2(self.box.low), loss.third > 0.0
        if size > max(largest_matrix(design), 1) or (l2_low == 0.0 and size > design.shape[0]):
            return None
        C = a * least_secant(loss, path.m0, ranges.s, moves, fold.y) if bends else a
        gram = design.gram if not bends and not fold.intercept else None
        on_P, l2 = Variables((P,), fold.intercept), np.append(np.full(len(P), l2_low), np.zeros(int(fold.intercept)))
        H, terms = weighted_gram(design.X, on_P, C) if gram is None else (gram[np.ix_(P, P)], len(a) + 12.0)
        factor = ProvenFactor.of(H, terms, len(a), on_P, l2)
        if factor is None:
            return None
        up = (1.0 + 8.0 * EPS) / math.sqrt(1.0 - factor.tau)
        at = np.searchsorted(P, path.S)
        at = np.append(at, len(P)) if fold.intercept else at
        rows = CurvedRows(a, np.ones(len(a), dtype=bool), a, np.zeros(len(a)))  # squares: all of them by curvature
        if bends:
            rows = CurvedRows.of(fold, ranges, C, up * factor.norms(design.X)[:, 0])
        columns = fold.column_norms(rows.E) if bends else design.column_norms

        lam = _polynomial(factor, at, residual, plain.sizes) * up
        outside = np.zeros(size)
        outside[: len(P)] = np.maximum(self.excess[P], 0.0)
        outside[at] = 0.0
        outside[at[:s]] = plain.turned[:s]
        if outside.any():
            lam += up * factor.norm_of(np.zeros(size), outside * factor.scale)
        by_curvature, by_norms = rows.of_zeta(fold, ranges)
        lam += by_curvature + by_norms
        missing = 0.0
        if fold.rotation is not None:
            slopes = np.abs(loss.derivative(path.m0, fold.y)) + loss.curvature * ranges.s
            lam += fold.rotation.gradient(a, slopes, l2_low)
            missing = fold.rotation.nu(ranges.low, l2_low)
            if not missing < 0.1:
                return None
            rows = replace(rows, norms=(rows.norms + fold.rotation.rows_off(l2_low)) / math.sqrt(1.0 - missing))
        clipped = 0.0
        if plain.clips.any():
            j = np.flatnonzero(plain.clips[:s])
            single = factor.spread(slice(len(P)))[0][at[j]]
            l2_range = 2.0 * float(fold.B[1] @ self.box.r)
            clipped = float(plain.clips[j] @ columns[path.S[j]]) * SAFE
            lam += float(plain.clips[j] @ (np.sqrt(columns[path.S[j]] ** 2 + l2_low) + l2_range * up * single)) * SAFE
            others = np.where(rows.by_curvature, 0.0, ranges.high * rows.norms)
            lam += float(plain.clips[j] @ fold.absolute(others)[path.S[j]]) * SAFE
        rho = lam * SAFE / (1.0 - missing)
        return Reached(factor, rows, rho, moves, up, missing, clipped, by_curvature) if rho >= 0.0 else None


def _polynomial(factor: ProvenFactor, at: Indices, residual: Residual, sizes: Array) -> float:
    """||u0 + E1 t + E2[t, t] + .. + (B_2 t)(V[t, t] + ..)||_{(R^T R)^-1} at most, on S and the intercept."""

    def norms_of(on_S: Array, error: Array) -> Array:
        V, doubt = np.zeros((len(factor), on_S.shape[1])), np.zeros((len(factor), on_S.shape[1]))
        V[at], doubt[at] = on_S, error
        return factor.norms_of(V * factor.scale[:, None], doubt * factor.scale[:, None])

    size = float(np.append(1.0, sizes) @ norms_of(residual.E, residual.doubt))
    if residual.l2_range > 0.0:
        beyond, m = residual.beyond, len(sizes) - residual.beyond.shape[1]
        size += residual.l2_range * float(sizes[m:] @ norms_of(beyond, 4.0 * EPS * np.abs(beyond)))
    return size * SAFE


@dataclass(frozen=True, eq=False)
class Residual:
    """u0, E1, E2 and H_0 r of the module's text as columns with their errors, entry by entry; and what is multiplied by
    B_2 t, |B_2 t| <= l2_range: the path's coefficients of second order, and of bends."""

    E: Array
    doubt: Array
    beyond: Array
    l2_range: float


def _residual(fold: CertifiableFold, path: Path, box: PenaltyBox, known: Expansion) -> Residual:
    m = fold.B.shape[1]
    rows = np.append(path.S, fold.design.shape[1]) if fold.intercept else path.S
    E, doubt = known.K[rows].copy(), known.error[rows].copy()
    s = len(path.S)
    w, D = path.w[path.S], path.A[:s]
    beyond = path.A[:, m:].copy()
    beyond[s:] = 0.0
    if not box.bounded:  # w and A are 0, and so is all that penalties add
        return Residual(E, doubt, beyond, 0.0)
    l1, l2 = fold.B @ box.centre
    added = np.zeros((s, E.shape[1]))
    size = np.zeros_like(added)
    terms = [(0, l1 * path.sigma), (0, l2 * w)]
    for k in range(m):
        terms += [(1 + k, fold.B[0, k] * path.sigma), (1 + k, fold.B[1, k] * w), (1 + k, l2 * D[:, k])]
    quads = m + len(pairs(m))
    terms += [(1 + q, l2 * D[:, q]) for q in range(quads, D.shape[1])]
    for q, (j, k) in enumerate(pairs(m), start=m):
        terms += [(1 + q, l2 * D[:, q]), (1 + q, fold.B[1, j] * D[:, k])]
        if j < k:
            terms.append((1 + q, fold.B[1, k] * D[:, j]))
    for column, term in terms:
        added[:, column] += term
        size[:, column] += np.abs(term)
    E[:s] += added
    doubt[:s] += 16.0 * EPS * (np.abs(E[:s]) + size)
    E[path.base : s, : 1 + quads] = 0.0  # what exceeds l1 there is what makes them enter
    most = 2.0 * float(fold.B[0] @ box.low) * (1.0 - 8.0 * EPS)
    for q, (j, h) in enumerate(zip(path.own, path.h, strict=True), start=quads):
        own = path.sigma[j] * E[j, 1 + q]
        free = most / path.limits[q - quads] if j < path.base else h
        left = max(own - free, -own, 0.0) if j < path.base else abs(own - free)
        doubt[j, 1 + q] += left + 8.0 * EPS * (abs(own) + abs(free))
        E[j, 1 + q] = 0.0
    return Residual(E, doubt, beyond, float(fold.B[1] @ box.r))
