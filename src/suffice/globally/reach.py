r"""How far the minimiser is from a path, for all parameters of a box at once.

    Phi_t(w) = f(w) + (l2/2) ||w||^2 + l1 ||w||_1,      f(w) = sum_i a_i psi(x_i . w),      (l1, l2) = B (centre + t).

*On given columns P.* Let w~ = w~(t) be any path on P (`suffice.globally.paths`), and e the part of grad f(w~) + l2 w~
that no subgradient of l1 ||.||_1 at w~ cancels. Since that is monotone, the minimiser w~ + h of Phi_t on the columns P
has, for all tau between 0 and 1,

    <grad f(w~ + tau h) - grad f(w~), tau h> + l2 ||tau h||^2  <=  -<e, tau h>.

Margins of row i move by tau x_i . h. As long as that is no more than d_i, slopes psi' differ by no less than the least
secant c_i(d_i) over such a distance, from anywhere on the path, times it. So, with

    H = X^T diag(a c(d)) X + l2_low    on P,        lambda >= ||e||_{H^-1} for all t of the box,

||tau h||_H <= lambda, and margins move by no more than ||x_i||_{H^-1} lambda. If that is at most d_i for all rows, then
no tau reaches beyond d, and ||h||_H <= rho = lambda: d is found by trying. Rows count less the farther they may move,
each for itself, and l2 counts in full: where l2 > 0, some d always serves. For squares c = 1, whatever d is.

*lambda.* With l2 = l2_centre + B_2 t and the expansion along the path,

    e on S = u0 + E1 t + E2[t, t] + (B_2 t)(V[t, t] + sigma k) + H_0 sigma k + X^T a zeta,

u0, E1 and E2 being zero but for rounding and for what w0 lacks of being a minimiser. Norms by H^-1 of the polynomial
are sums over its monomials. With C = a c,

    ||X^T a zeta||_{H^-1}  <=  ||C^(-1/2) a zeta||,

and a clip of 1 costs no more than sqrt(||x_j||_E^2 + l2_low) + (l2_high - l2_low) sqrt((H^-1)_jj), where E = (a
psi''_max)^2 / C. On P outside S, where w~ is 0, e_j = max(0, |p_j(t)| - l1) + (X^T a zeta)_j + ..

Rows whose C is hardly a float, margins being hundreds, are left out of these sums: whatever multiplies x_i there costs
its size times ||x_i||_{H^-1}, and moves the gradient of a column by its size times |x_ij|.

*Outside P* the gradient moves from p_j along the path by |x_j|^T (a zeta + a psi''_max |X| k) at most, and from the
path to the minimiser by x_j^T S X h, where S, of secants of psi', lies between C and B = a psi''_max over all that
margins may reach. That is at most ||x_j|| in the norm by B^2/C times rho; or, with S = C + (S - C),

    |x_j^T S X h|  <=  ( ||X_P^T C x_j||_{H^-1} + ||x_j||_{(B - C)^2 / C} ) rho,

which is less the less of x_j can be said with the columns P; it is made for columns that it may decide. If |grad_j f| <
l1 there for all j outside P, then the minimiser on P is that of Phi_t on all columns, and the only one. P begins with
the columns on which the path lives and those whose gradient may exceed l1 along it; columns for which that cannot be
told join P, and it is tried again.

H has a factor that is good for proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, norm
from suffice.globally.expansions import least_secant, most_bend
from suffice.globally.models import CertifiableFold
from suffice.globally.paths import (
    SAFE,
    Expansion,
    Indices,
    MarginRanges,
    Path,
    PenaltyBox,
    clips_of,
    excess_of,
    expansion_of,
    pairs,
    ranges_of,
    sizes_of,
)
from suffice.prove.factor import ProvenFactor, Variables
from suffice.prove.verified_rows import weighted_gram
from suffice.rows.design import largest_matrix
from suffice.rows.gram import as_array
from suffice.rows.rounding import TINY, gamma

TRIES = 6  # to find P
DAMPINGS = 6  # to find how far margins move
WIDER = 1.2  # times how far they moved on fewer columns
LONE = 1e-250  # C of rows that stand by themselves: beyond, squares underflow
COLUMNS = 512  # that are made dense at a time
FAR = 8.0  # that margins move on average: what could be proven then would be of no use


@dataclass(frozen=True, eq=False)
class Ball:
    """Minimisers are w~ + h, h on the columns of `factor`, ||h|| <= rho by the factor's R^T R, for all t of the box."""

    factor: ProvenFactor | None  # None where h is 0: no columns
    rho: float
    clips: Array  # k^max, on S and the intercept
    sizes: Array  # of the monomials t_k, t_k t_l


def ball_of(fold: CertifiableFold, path: Path, box: PenaltyBox) -> tuple[Ball | None, Array]:
    """The ball for a box, None where nothing is proven, and how much less slack there would be, about, with each side
    of the box halved, of which nothing is proven. An unbounded box needs a path that is constantly 0."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        known = expansion_of(fold, path)
        sizes, relief = sizes_of(box.r if box.bounded else np.zeros(len(box.low))), np.ones(len(box.low))
        if box.bounded and len(box.low) > 1:
            relief = _relief(fold, path, box, known)
        return _ball_of(fold, path, box, known, sizes) if np.isfinite(known.K).all() else None, relief


def _ball_of(fold: CertifiableFold, path: Path, box: PenaltyBox, known: Expansion, sizes: Array) -> Ball | None:
    clips = clips_of(fold, path, box, sizes)
    ranges = ranges_of(fold, path, known, sizes, clips)
    if not np.isfinite(ranges.zeta).all():
        return None
    excess = excess_of(fold, box, known, sizes)
    inside = ~(excess < 0.0)
    inside[path.S] = True
    reach = PathReach(fold, path, box, known, ranges, excess, Ball(None, 0.0, clips, sizes))
    moves = np.zeros(len(path.m0))
    for _ in range(TRIES):
        found = reach.on(np.flatnonzero(inside), moves)
        if found is None:
            return None
        ball, moved, moves = found
        failing = ~inside & ~(excess + moved < 0.0)
        if not failing.any():
            return ball
        inside |= failing
    return None


def _relief(fold: CertifiableFold, path: Path, box: PenaltyBox, known: Expansion) -> Array:
    lengths, c = np.maximum(fold.design.column_norms, 1e-300), box.centre
    bend = np.maximum(fold.loss.second(path.m0, fold.y), 1e-12)

    def strain(r: Array) -> float:
        """About lambda."""
        sizes, there = sizes_of(r), PenaltyBox(c - r, c + r)
        clips = clips_of(fold, path, there, sizes)
        excess = np.maximum(excess_of(fold, there, known, sizes), 0.0)
        excess[path.S] = 0.0
        zeta = np.minimum(ranges_of(fold, path, known, sizes, clips).zeta, 1.0)
        part = clips / np.maximum(path.spread, 1e-300)
        left = l2_range * norm(known.T[:, len(r) :] @ sizes[len(r) :]) if (l2_range := float(fold.B[1] @ r)) else 0.0
        left /= float(fold.B[1] @ c) * math.sqrt(len(bend)) if left else 1.0
        return float(part.sum() + norm(excess / lengths) + norm(np.sqrt(fold.a / bend) * zeta) + left)

    halved = [strain(half * box.r) for half in np.array([[0.5, 1.0], [1.0, 0.5]])]
    return np.maximum(strain(box.r) - np.array(halved), 0.0)


@dataclass(frozen=True, eq=False)
class Reached:
    """||h||_H <= rho by an H whose rows count with C, if margins move no more than `moves`."""

    factor: ProvenFactor
    C: Array
    lone: npt.NDArray[np.bool_]  # whether rows are left out of sums over C
    norms: Array  # ||x_i||_{H^-1}
    rho: float
    moves: Array
    up: float
    shifts: Array  # of psi', row by row: a zeta and clips


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

    def on(self, P: Indices, moves: Array) -> tuple[Ball, Array, Array] | None:
        """The ball on the columns P, how far it lets the gradient of every column move from its expansion, and margins
        of training rows; `moves` is where these begin to be tried."""
        fold, a = self.fold, self.fold.a
        if len(P) + fold.intercept == 0:  # then the path is 0, and so are s and zeta, but for nothing
            return self.plain, fold.absolute.T @ (a * self.ranges.zeta) * SAFE, moves
        residual = _residual(fold, self.path, self.box, self.known)
        for _ in range(DAMPINGS):
            found = self._damped(P, residual, moves)
            if found is None:
                return None
            reach = found.norms * found.rho
            if fold.loss.third == 0.0 or np.all((reach <= moves) | (found.C == 0.0)):  # none moves more than it was to
                break
            if not a @ np.minimum(reach, 100.0) <= FAR * a.sum():
                return None
            moves = np.maximum(moves, reach * (1.05 + np.minimum(reach, 1.0)))
        else:
            return None
        ball = replace(self.plain, factor=found.factor, rho=found.rho * found.up)
        return ball, np.zeros(len(P)) if len(P) == fold.design.shape[1] else self._moved(found), WIDER * reach

    def _moved(self, found: Reached) -> Array:
        """How far the gradient of every column is from its expansion, at most, at minimisers."""
        fold, C, factor = self.fold, found.C, found.factor
        far = self.ranges.s + np.maximum(found.moves, found.norms * found.rho * SAFE)  # rows with C = 0 move freely
        there = fold.a * most_bend(fold.loss, self.path.m0, far, fold.y)
        alone = np.where(found.lone, there * found.norms * found.rho, 0.0)
        along = fold.absolute.T @ (found.shifts + alone) * SAFE + fold.design.underflow
        after, rest = fold.design.column_norms, np.zeros(len(along))  # of squares, whose secants are 1
        if fold.loss.third > 0.0:
            more = np.maximum(there - C, 0.0) + 8.0 * EPS * there
            after, rest = (fold.column_norms(_over(E, C, found.lone)) for E in (there, more))
        moved = np.asarray(along + after * found.rho * SAFE)
        along = along + rest * found.rho * SAFE
        near = (self.excess + moved >= 0.0) & (self.excess + along < 0.0)
        near[factor.support] = False
        if not near.any():
            return moved
        X = fold.columns(fold.design.X, factor.support)
        for these in np.split(np.flatnonzero(near), range(COLUMNS, int(near.sum()), COLUMNS)):
            Y = C[:, None] * as_array(fold.design.X[:, these])
            sizes = np.abs(X).T @ np.abs(Y)
            doubt = (gamma(len(C) + 8) * sizes + TINY) * factor.scale[:, None]
            lengths = factor.norms_of(X.T @ Y * factor.scale[:, None], doubt)
            moved[these] = np.minimum(moved[these], along[these] + lengths * found.up * found.rho * SAFE)
        return moved

    def _damped(self, P: Indices, residual: Residual, moves: Array) -> Reached | None:
        """rho for margins that move by no more than `moves`."""
        fold, path, ranges, plain, design = self.fold, self.path, self.ranges, self.plain, self.fold.design
        a, loss, s = fold.a, fold.loss, len(path.S)
        size, bends = len(P) + fold.intercept, loss.third > 0.0
        l2_low = float(fold.B[1] @ self.box.low) * (1.0 - 1e-14)  # as low as rounding lets it be
        if size > max(largest_matrix(design), 1) or (l2_low == 0.0 and size > design.shape[0]):
            return None
        C = a * least_secant(loss, path.m0, ranges.s, moves, fold.y)
        gram = fold.gram
        on_P, l2 = Variables((P,), fold.intercept), np.append(np.full(len(P), l2_low), np.zeros(int(fold.intercept)))
        H, terms = weighted_gram(design.X, on_P, C) if gram is None else (gram[np.ix_(P, P)], len(a) + 12.0)
        factor = ProvenFactor.of(H, terms, len(a), on_P, l2)
        if factor is None:
            return None
        up = (1.0 + 8.0 * EPS) / math.sqrt(1.0 - factor.tau)
        at = np.searchsorted(P, path.S)
        at = np.append(at, len(P)) if fold.intercept else at
        norms = up * factor.norms(design.X)[:, 0] if bends else np.zeros(len(a))
        lone = (C < LONE) & bends
        E, shifts = _over(ranges.high, C, lone), a * ranges.zeta
        if plain.clips.any():
            shifts += ranges.high * (np.abs(self.known.X) @ plain.clips)
        columns = fold.column_norms(E) if bends else design.column_norms

        lam = _polynomial(factor, at, residual, plain.sizes) * up
        outside = np.zeros(size)
        outside[: len(P)] = np.maximum(self.excess[P], 0.0)
        outside[at] = 0.0
        if outside.any():
            lam += up * factor.norm_of(np.zeros(size), outside * factor.scale)
        lam += math.sqrt(float(_over(a * ranges.zeta, C, lone).sum())) * SAFE
        lam += float((shifts[lone] + TINY) @ norms[lone]) * SAFE
        if plain.clips.any():
            j = np.flatnonzero(plain.clips[:s])
            single = factor.spread(slice(len(P)))[0][at[j]]
            l2_range = 2.0 * float(fold.B[1] @ self.box.r)
            lam += float(plain.clips[j] @ (np.sqrt(columns[path.S[j]] ** 2 + l2_low) + l2_range * up * single)) * SAFE
        rho = lam * SAFE
        return Reached(factor, C, lone, norms, rho, moves, up, shifts) if rho >= 0.0 else None


def _over(sizes: Array, C: Array, lone: npt.NDArray[np.bool_]) -> Array:
    """No less than sizes^2 / C, row by row, what underflows included; 0 for lone rows, infinite where only C is 0."""
    beyond = np.where((sizes > 0.0) & ~lone, np.inf, 0.0)
    return np.divide((sizes + 1e-150) ** 2 * (sizes > 0.0), C, out=beyond, where=(C > 0.0) & ~lone)


Residual = tuple[Array, Array, Array, float]


def _polynomial(factor: ProvenFactor, at: Indices, residual: Residual, sizes: Array) -> float:
    """||u0 + E1 t + E2[t, t] + .. + (B_2 t)(V[t, t] + ..)||_{(R^T R)^-1} at most, on S and the intercept."""

    def norms_of(on_S: Array, error: Array) -> Array:
        V, doubt = np.zeros((len(factor), on_S.shape[1])), np.zeros((len(factor), on_S.shape[1]))
        V[at], doubt[at] = on_S, error
        return factor.norms_of(V * factor.scale[:, None], doubt * factor.scale[:, None])

    E, of_E, beyond, l2_range = residual
    size = float(np.append(1.0, sizes) @ norms_of(E, of_E))
    if l2_range > 0.0:
        m = len(sizes) - beyond.shape[1]
        size += l2_range * float(sizes[m:] @ norms_of(beyond, 4.0 * EPS * np.abs(beyond)))
    return size * SAFE


def _residual(fold: CertifiableFold, path: Path, box: PenaltyBox, known: Expansion) -> Residual:
    """u0, E1 and E2 of the module's text as columns with their errors, entry by entry; and what is multiplied by B_2 t,
    the path's coefficients of second order, and the largest |B_2 t|."""
    m = fold.B.shape[1]
    rows = np.append(path.S, fold.design.shape[1]) if fold.intercept else path.S
    E, doubt = known.K[rows].copy(), known.error[rows].copy()
    s = len(path.S)
    w, D = path.w[path.S], path.A[:s]
    beyond = path.A[:, m:].copy()
    beyond[s:] = 0.0
    if not box.bounded:  # w and A are 0, and so is all that penalties add
        return E, doubt, beyond, 0.0
    l1, l2 = fold.B @ box.centre
    added = np.zeros((s, E.shape[1]))
    size = np.zeros_like(added)
    terms = [(0, l1 * path.sigma), (0, l2 * w)]
    for k in range(m):
        terms += [(1 + k, fold.B[0, k] * path.sigma), (1 + k, fold.B[1, k] * w), (1 + k, l2 * D[:, k])]
    for q, (j, k) in enumerate(pairs(m), start=m):
        terms += [(1 + q, l2 * D[:, q]), (1 + q, fold.B[1, j] * D[:, k])]
        if j < k:
            terms.append((1 + q, fold.B[1, k] * D[:, j]))
    for column, term in terms:
        added[:, column] += term
        size[:, column] += np.abs(term)
    E[:s] += added
    doubt[:s] += 16.0 * EPS * (np.abs(E[:s]) + size)
    return E, doubt, beyond, float(fold.B[1] @ box.r)
