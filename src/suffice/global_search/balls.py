r"""How far minimisers are from a path, for all parameters of a box at once.

    Phi_t(w) = f(w) + (l2/2) ||w||^2 + l1 ||w||_1,      f(w) = sum_i a_i psi(x_i . w),      (l1, l2) = B (centre + t).

Let w~ = w~(t) be any path (`suffice.global_search.paths`), on columns P, clipped: a weight that would change its sign
is 0, which adds sigma_j k_j, 0 <= k_j <= k_j^max, to it. Let e be the part of grad f(w~) + l2 w~ that no subgradient of
l1 ||.||_1 at w~ cancels. Since that is monotone, the minimiser w~ + h of Phi_t on the columns P has

    <grad f(w~ + h) - grad f(w~), h> + l2 ||h||^2  <=  -<e, h>.

Let H = X^T diag(c) X + l2_low on P, c_i <= a_i psi'' for all margins that the path takes, l2_low the box's least l2.
The left side is at least ||h||_H^2 (1 - e^-s)/s with s = kappa ||h||_H, kappa = M max_i ||x_i||_{H^-1}, |psi'''| <= M
psi'' (`suffice.lower.verified`). So, with lambda >= ||e||_{H^-1} for all t of the box and kappa lambda < 1,

    ||h||_H  <=  rho = -ln(1 - kappa lambda)/kappa        (lambda for squares).

Rows that hardly bend, since their margins are far from 0, need not count in kappa: with c_i ||x_i||^2_{H^-1} summing to
q over these *light* rows, (1 - q) H is a bound without them, and lambda is divided by 1 - q.

If |grad_j f(w~ + h)| < l1 for all j outside P, then w~ + h is the minimiser of Phi_t, and the only one.

*lambda.* With margins m0 + s along the path, s = s1 + s2 of first and second order but for clips,

    e on S = u0 + E1 t + E2[t, t] + (B_2 t)(V[t, t] + sigma k) + (X^T C X + l2_centre) sigma k + X^T a zeta,

u0, E1 and E2 being zero but for rounding and for what w0 lacks of being a minimiser; zeta is what is left of psi'
(`suffice.global_search.expansions`): of third order. Norms by H^-1 of the polynomial are sums over its monomials. Some
rows count by their curvature, others by their norms:

    ||X^T a zeta||_{H^-1}  <=  (sum_i (a_i zeta_i)^2 / c_i)^(1/2)  +  sum_i a_i |zeta_i| ||x_i||_{H^-1},

and a clip of 1 costs no more than sqrt(||x_j||_E^2 + l2_low) + (l2_high - l2_low) sqrt((H^-1)_jj) + sum_i a_i psi''_max
|x_ij| ||x_i||_{H^-1}, where E = (a psi''_max)^2 / c on rows of the first kind, and the sum is over the others. On P
outside S, where w~ is 0, e_j = max(0, |p_j(t)| - l1) + (X^T a zeta)_j + .. with p_j the expansion of grad_j f; |p_j| -
l1 is largest, but for second-order terms, in a corner of the box.

*Outside P* the gradient moves by at most ||x_j||_E (sum_j k_j ||x_j||_E + ||c^(-1/2) a zeta|| + e^s rho) from p_j,
E being 0 on the others, where |x_ij| times what psi' changes by is added, row by row.

A change of variables (`suffice.global_search.rotation`) adds to the rounding of margins and to lambda, and takes
from H.

*Rounding.* Vectors X^T (a r) are known to gamma ||diag(a)^(1/2) x_j|| ||a^(1/2) r||, entry by entry, with what the
margins' own rounding does to r; that of the margins themselves is part of zeta. H has a factor that is good for proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, host, norm
from suffice.global_search.bends import bent
from suffice.global_search.expansions import bending, least_bend, least_secant, most_bend, second, slope_remainder, third
from suffice.global_search.models import Fold
from suffice.global_search.paths import Box, Indices, Path
from suffice.global_search.quadratics import pairs
from suffice.lower.signed_factor import SignedFactor
from suffice.terms.design import OF_FACTORS, largest_matrix
from suffice.terms.rounding import TINY, gamma

TRIES = 6  # to find P
DAMPINGS = 6  # to find how far margins move
LIGHT = 100.0  # rows with less than one over LIGHT times their number of H count by their norms
SAFE = 1.0 + 1e-10  # what sums of a few bounds are multiplied by for their rounding


@dataclass(frozen=True, eq=False)
class Ball:
    """Minimisers are w~ + h, h on the columns of `factor`, ||h|| <= rho by the factor's R^T R, for all t of the box."""

    factor: SignedFactor | None  # None where h is 0: no columns
    rho: float
    clips: Array  # k^max, on S and the intercept
    turned: Array  # on S: what e has at most where a weight may change its sign and is not clipped
    sizes: Array  # of the monomials t_k, t_k t_l
    slopes: float = math.inf  # (sum a psi'^2)^(1/2) of minimisers, at most


@dataclass(frozen=True, eq=False)
class Expansion:
    """The expansion of margins and of grad f along the path: X A, and X^T (a r) for r = psi' and for all monomials."""

    X: Array  # on S, with the intercept's ones
    T: Array  # X A
    rough: Array  # |X| |A|
    K: Array  # (d, with the intercept last) x (1 + monomials)
    error: Array


@dataclass(frozen=True, eq=False)
class Ranges:
    """What margins and psi do in a box, row by row."""

    s: Array  # how far margins move, at most
    zeta: Array  # what is left of psi', at most
    low: Array  # c
    high: Array  # a psi''_max


@dataclass(frozen=True, eq=False)
class Found:
    """The ball for a box, None where nothing is proven, and where to cut it: nothing is proven by that."""

    ball: Ball | None
    path: Path  # with its bends
    free: tuple[float, float]  # as in `suffice.global_search.surfaces.Surface`
    relief: Array


def ball_of(fold: Fold, path: Path, box: Box) -> Found:
    """What is found for a box; an unbounded one needs a path that is constantly 0."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        known = _expansion(fold, path)
        sizes = _sizes(box.r if box.bounded else np.zeros(len(box.low)))
        relief, free = np.ones(len(box.low)), (-math.inf, math.inf)
        if box.bounded and len(relief) > 1:
            relief = _relief(fold, path, box, known)
        elif box.bounded and fold.sparse:
            free = _free(fold, path, box, known)
        if not np.isfinite(known.K).all():
            return Found(None, path, free, relief)
        if box.bounded and fold.sparse and path.A.any():
            path = _bent(fold, path, box, known, sizes)
            if len(path.limits):
                known, sizes = _expansion(fold, path), np.append(sizes, path.limits)
        return Found(_ball_of(fold, path, box, known, sizes), path, free, relief)


def _bent(fold: Fold, path: Path, box: Box, known: Expansion, sizes: Array) -> Path:
    leaving = _clips(fold, path, box, sizes)[0][: len(path.S)]
    sides = [_over(fold, box, known, sizes, sign) for sign in (1.0, -1.0)]
    doubt = 2.0 * (known.error[: fold.design.shape[1]] @ np.append(1.0, sizes))
    entering = np.maximum(np.maximum(*sides) + doubt, 0.0)
    entering[np.minimum(*sides) >= 0.0] = 0.0  # of either sign: not as a kink
    entering[path.S] = 0.0
    return bent(fold, path, box, leaving, entering, np.where(sides[0] > sides[1], -1.0, 1.0))


def _free(fold: Fold, path: Path, box: Box, known: Expansion) -> tuple[float, float]:
    """Around the centre, as far as no weight becomes or ceases to be zero along the path, of one parameter."""
    (centre,), s = box.centre, len(path.S)
    d = fold.design.shape[1]
    outside = np.ones(d, dtype=bool)
    outside[path.S] = False
    l1, slope = float(fold.B[0] @ box.centre), float(fold.B[0, 0])
    K = known.K[:d][outside]
    zero = [np.column_stack([path.w[path.S], path.A[:s]])]
    for sign in (1.0, -1.0):
        zero.append(sign * K - np.array([l1, slope, 0.0]))
    c, b, a = np.concatenate(zero).T
    root = np.sqrt(np.maximum(b * b - 4.0 * a * c, 0.0))
    q = -0.5 * (b + np.where(b >= 0.0, root, -root))
    t = np.concatenate([c / q, q / a])[np.tile(b * b >= 4.0 * a * c, 2)]
    t = t[np.isfinite(t)]
    return float(centre + np.max(t[t < 0.0], initial=-math.inf)), float(centre + np.min(t[t > 0.0], initial=math.inf))


def _sizes(r: Array) -> Array:
    """Of the monomials t_k and t_k t_l."""
    found: Array = np.append(r, [r[j] * r[k] for j, k in pairs(len(r))]) * (1.0 + 4.0 * EPS)
    return found


def _ball_of(fold: Fold, path: Path, box: Box, known: Expansion, sizes: Array) -> Ball | None:
    clips, turned = _clips(fold, path, box, sizes)
    ranges = _ranges(fold, path, known, sizes, clips, fold.least_l2(box.low))
    if not np.isfinite(ranges.zeta).all():
        return None
    excess = _excess(fold, box, known, sizes)
    inside = np.zeros(fold.design.shape[1], dtype=bool)
    inside[path.S] = True
    inside |= ~(excess < 0.0)
    for _ in range(TRIES):
        P: Indices = np.flatnonzero(inside)
        found = _on(fold, path, box, known, ranges, excess, P, Ball(None, 0.0, clips, turned, sizes))
        if found is None:
            return None
        ball, moved = found
        failing = ~inside & ~(excess + moved < 0.0)
        if not failing.any():
            return ball
        inside |= failing
    return None


def _relief(fold: Fold, path: Path, box: Box, known: Expansion) -> Array:
    """How much less lambda would be, about, with each side of the box halved: nothing is proven by it."""
    lengths = np.maximum(fold.design.column_norms, 1e-300)
    bend = np.maximum(second(fold.model.loss, path.m0, host(fold.model.y)), 1e-12)

    def strain(r: Array) -> float:
        sizes, c = _sizes(r), box.centre
        clips, turned = _clips(fold, path, Box(c - r, c + r), sizes)
        excess = np.maximum(_excess(fold, Box(c - r, c + r), known, sizes), 0.0)
        excess[path.S] = 0.0
        zeta = np.minimum(_ranges(fold, path, known, sizes, clips, fold.least_l2(c - r)).zeta, 1.0)
        part = clips[: len(path.S)] * lengths[path.S]
        left = l2_range * norm(known.T[:, len(r) :] @ sizes[len(r) :]) if (l2_range := float(fold.B[1] @ r)) else 0.0
        left /= float(fold.B[1] @ c) * math.sqrt(len(bend)) if left else 1.0
        return float(
            part.sum() + norm(excess / lengths) + norm(np.sqrt(host(fold.design.weights) / bend) * zeta) + left
        )

    r = box.r
    halved = [strain(np.where(np.arange(len(r)) == k, 0.5, 1.0) * r) for k in range(len(r))]
    return np.maximum(strain(r) - np.array(halved), 0.0)


def _clips(fold: Fold, path: Path, box: Box, sizes: Array) -> tuple[Array, Array]:
    """k^max on S and the intercept, 0 where it costs less to let the weight change its sign; and 2 l1 there."""
    reach = np.abs(path.A) @ sizes
    clips, turned, s = np.zeros(len(reach)), np.zeros(len(reach)), len(path.S)
    if fold.sparse and box.bounded:
        clips[:s] = np.maximum(reach[:s] * SAFE - np.abs(path.w[path.S]), 0.0)
        clips[path.own] = 0.0
        clips[path.base : s] = 0.0
        most = 2.0 * float(fold.B[0] @ box.high) * SAFE
        k = path.base
        turns = np.flatnonzero(most * path.spread[:k] < clips[:k] * path.stiffness[:k])
        clips[turns], turned[turns] = 0.0, most
    return clips, turned


def _ranges(fold: Fold, path: Path, known: Expansion, sizes: Array, clips: Array, l2_low: float) -> Ranges:
    loss, y, m0, m = fold.model.loss, host(fold.model.y), path.m0, fold.B.shape[1]
    a, few, X, T = host(fold.design.weights), gamma(len(path.S) + 8), known.X, known.T
    blur = few * (np.abs(X[:, : len(path.S)]) @ np.abs(path.w[path.S])) + 4.0 * EPS * (np.abs(m0) + abs(path.b)) + TINY
    along = blur + few * (known.rough @ sizes)  # how far margins along the path may be from what is computed
    if fold.rotation is not None:
        along += fold.rotation.margins(path.length(sizes), l2_low)
    s1 = np.abs(T[:, :m]) @ sizes[:m]
    s2 = np.abs(T[:, m:]) @ sizes[m:] + along
    s2 += np.abs(X) @ clips if clips.any() else 0.0
    s = (s1 + s2) * SAFE
    most = most_bend(loss, m0, s, y)
    zeta = slope_remainder(loss, m0, s, y) + 0.5 * np.abs(third(loss, m0, y)) * s2 * (2.0 * s1 + s2)
    zeta = (zeta + most * along + 4.0 * EPS * second(loss, m0, y) * s) * SAFE
    return Ranges(s, zeta, a * least_bend(loss, m0, s, y), a * most)


def _expansion(fold: Fold, path: Path) -> Expansion:
    design, loss, y, m0 = fold.design, fold.model.loss, host(fold.model.y), path.m0
    a, m, few = host(design.weights), fold.B.shape[1], gamma(len(path.S) + 8)
    X = fold.columns(design.X, path.S)
    T, rough = X @ path.A, np.abs(X) @ np.abs(path.A)  # of which a rounding is few
    bend, bent = second(loss, m0, y), third(loss, m0, y)
    R = np.empty((len(m0), 1 + T.shape[1]))
    error = np.empty_like(R)
    R[:, 0], error[:, 0] = loss.derivative(m0, y), 0.0
    R[:, 1:] = bend[:, None] * T
    error[:, 1:] = bend[:, None] * few * rough
    weight = np.abs(R)
    weight[:, 0] += bend
    for q, (j, k) in enumerate(pairs(m), start=1 + m):
        times = 1.0 if j < k else 0.5
        R[:, q] += times * bent * T[:, j] * T[:, k]
        weight[:, q] += times * np.abs(bent * T[:, j] * T[:, k])
        error[:, q] += few * np.abs(bent) * (rough[:, j] * np.abs(T[:, k]) + rough[:, k] * np.abs(T[:, j]))
    K = design.adjoint(a[:, None] * R)
    root = np.sqrt(a)[:, None]
    counts = np.array([gamma(float(count) + OF_FACTORS) for count in design.pull.roundings])
    lengths = np.sqrt(np.sum((root * weight) ** 2, axis=0)), np.sqrt(np.sum((root * error) ** 2, axis=0))
    off = (np.outer(counts, lengths[0]) + lengths[1]) * design.column_norms[:, None] * SAFE + design.underflow
    if fold.intercept:
        K = np.vstack([K, a @ R])
        off = np.vstack([off, (gamma(len(m0) + OF_FACTORS) * (a @ weight) + a @ error) * SAFE + design.underflow])
    return Expansion(X, T, rough, K, off)


def _excess(fold: Fold, box: Box, known: Expansion, sizes: Array) -> Array:
    """No less than |p_j(t)| - l1 anywhere in the box, of every column."""
    d = fold.design.shape[1]
    K, error = known.K[:d], known.error[:d]
    if not box.bounded:  # the path is constant, and l1 least at the lower end
        least: Array = np.abs(K[:, 0]) + error[:, 0] - float(fold.B[0] @ box.low) * (1.0 - 8.0 * EPS)
        return least
    return np.maximum(*(_over(fold, box, known, sizes, sign) for sign in (1.0, -1.0)))


def _over(fold: Fold, box: Box, known: Expansion, sizes: Array, sign: float) -> Array:
    """No less than sign p_j(t) - l1 anywhere in a bounded box, of every column."""
    d, m = fold.design.shape[1], fold.B.shape[1]
    K, error = known.K[:d], known.error[:d]
    found = np.full(d, -math.inf)
    for corner in product(*zip(-box.r, box.r, strict=True)):
        t = np.array(corner)
        l1 = fold.B[0] @ (box.centre + t)
        rounding = gamma(m + 4) * (np.abs(K[:, : 1 + m]) @ np.append(1.0, np.abs(t)))
        there = sign * (K[:, 0] + K[:, 1 : 1 + m] @ t) + rounding
        found = np.maximum(found, there - l1 + 8.0 * EPS * (fold.B[0] @ box.high))
    left: Array = np.abs(K[:, 1 + m :]) @ sizes[m:] + error @ np.append(1.0, sizes)
    return found + left * SAFE


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that count by their curvature C, and others, which count by their norms."""

    C: Array
    by_curvature: Any  # a mask
    E: Array  # (a psi''_max)^2 / C, or 0
    norms: Array  # ||x_i||_{H^-1}

    @classmethod
    def of(cls, fold: Fold, ranges: Ranges, C: Array, norms: Array) -> Rows:
        a = host(fold.design.weights)
        by_curvature = (a == 0.0) | (C * norms**2 * LIGHT * len(a) > 1.0)
        by_curvature &= (C > 0.0) | (a == 0.0)
        square = np.divide(ranges.high**2, C, out=np.zeros_like(C), where=by_curvature & (a > 0.0))
        return cls(C, by_curvature, square, norms)

    def of_zeta(self, fold: Fold, ranges: Ranges) -> tuple[float, float]:
        """||X^T a zeta||_{H^-1}: by curvature, and by norms."""
        zeta = host(fold.design.weights) * ranges.zeta
        squares = np.divide(zeta**2, self.C, out=np.zeros_like(zeta), where=self.by_curvature & (self.C > 0.0))
        return math.sqrt(float(squares.sum())) * SAFE, float((zeta * self.norms)[~self.by_curvature].sum()) * SAFE


@dataclass(frozen=True, eq=False)
class Reached:
    """||h||_H <= rho by an H whose rows count with the curvatures of `rows`, if margins move no more than `moves`."""

    factor: SignedFactor
    rows: Rows
    rho: float
    moves: Array
    up: float
    missing: float  # share of H, by rotation
    clipped: float
    by_curvature: float

    @property
    def proven(self) -> bool:
        return bool(np.all(self.within))

    @property
    def within(self) -> Any:
        """Which margins move no more than they were to."""
        return (self.rows.norms * self.rho <= self.moves) | (self.rows.C == 0.0)


def _on(
    fold: Fold, path: Path, box: Box, known: Expansion, ranges: Ranges, excess: Array, P: Indices, plain: Ball
) -> tuple[Ball, Array] | None:
    """The ball on the columns P, and how far it lets the gradient of every column move from its expansion."""
    a, loss, y = host(fold.design.weights), fold.model.loss, host(fold.model.y)
    if len(P) + fold.intercept == 0:  # then the path is 0, and so are s and zeta, but for nothing
        return plain, fold.absolute(a * ranges.zeta) * SAFE
    moves = np.zeros(len(a))
    for _ in range(DAMPINGS):
        found = _damped(fold, path, box, known, ranges, excess, P, plain, moves)
        if found is None:
            return None
        if bending(loss) == 0.0 or found.proven:
            break
        reach = found.rows.norms * found.rho
        moves = np.maximum(moves, reach * (1.05 + np.minimum(reach, 1.0)))
    else:
        return None
    ball = replace(plain, factor=found.factor, rho=found.rho * found.up / math.sqrt(1.0 - found.missing))
    if bending(loss) == 0.0:  # psi' is as far from where it begins as margins are
        begun = np.abs(loss.derivative(path.m0, y)) + ranges.s
        slopes = (norm(np.sqrt(a) * begun) + found.rho / math.sqrt(1.0 - found.missing)) * SAFE
        ball = replace(ball, slopes=slopes)
    if len(P) == fold.design.shape[1]:
        return ball, np.zeros(len(P))
    return ball, _moved(fold, path, known, ranges, found, plain.clips)


def _moved(fold: Fold, path: Path, known: Expansion, ranges: Ranges, found: Reached, clips: Array) -> Array:
    """How far the gradient of every column is from its expansion, at most, at minimisers."""
    a, loss, rows = host(fold.design.weights), fold.model.loss, found.rows
    if bending(loss) == 0.0:
        return fold.design.column_norms * (found.clipped + found.by_curvature + found.rho) * SAFE
    there = most_bend(loss, path.m0, ranges.s + found.moves, host(fold.model.y))
    square = np.divide((a * there) ** 2, rows.C, out=np.zeros_like(a), where=rows.by_curvature & (a > 0.0))
    moved = fold.column_norms(rows.E) * (found.clipped + found.by_curvature) + fold.column_norms(square) * found.rho
    if not rows.by_curvature.all():
        clip = np.abs(known.X) @ clips
        reach = np.where(rows.C == 0.0, rows.norms * found.rho, found.moves)
        there = np.where(rows.C == 0.0, most_bend(loss, path.m0, ranges.s + reach, host(fold.model.y)), there)
        moved = moved + fold.absolute(np.where(rows.by_curvature, 0.0, a * (ranges.zeta + there * (reach + clip))))
    return moved * SAFE


def _damped(
    fold: Fold,
    path: Path,
    box: Box,
    known: Expansion,
    ranges: Ranges,
    excess: Array,
    P: Indices,
    plain: Ball,
    moves: Array,
) -> Reached | None:
    """rho for margins that move by no more than `moves`."""
    design, a, loss = fold.design, host(fold.design.weights), fold.model.loss
    sizes, clips, s = plain.sizes, plain.clips, len(path.S)
    size, l2_low, bends = len(P) + fold.intercept, fold.least_l2(box.low), bending(loss) > 0.0
    if size > max(largest_matrix(design), 1) or (l2_low == 0.0 and size > design.shape[0]):
        return None
    C = a * least_secant(loss, path.m0, ranges.s, moves, host(fold.model.y)) if bends else a
    gram = design.gram if not bends and not fold.intercept else None
    factor = SignedFactor.of(design, P, C, np.full(len(P), l2_low), fold.intercept, gram)
    if factor is None:
        return None
    up = (1.0 + 8.0 * EPS) / math.sqrt(1.0 - factor.tau)
    at = np.searchsorted(P, path.S)
    at = np.append(at, len(P)) if fold.intercept else at
    rows = Rows(a, np.ones(len(a), dtype=bool), a, np.zeros(len(a)))  # squares: all of them by curvature
    if bends:
        rows = Rows.of(fold, ranges, C, up * factor.norms(design, 0.0))
    columns = fold.column_norms(rows.E) if bends else design.column_norms

    lam = _polynomial(fold, path, box, known, factor, at, sizes) * up
    outside = np.zeros(size)
    outside[: len(P)] = np.maximum(excess[P], 0.0)
    outside[at] = 0.0
    outside[at[:s]] = plain.turned[:s]
    if outside.any():
        lam += up * factor.norm_of(np.zeros(size), outside * factor.scale)
    by_curvature, by_norms = rows.of_zeta(fold, ranges)
    lam += by_curvature + by_norms
    missing = 0.0
    if fold.rotation is not None:
        slopes = np.abs(loss.derivative(path.m0, host(fold.model.y))) + loss.curvature * ranges.s
        lam += fold.rotation.gradient(a, slopes, l2_low)
        missing = fold.rotation.nu(ranges.low, l2_low)
        if not missing < 0.1:
            return None
        rows = replace(rows, norms=(rows.norms + fold.rotation.rows_off(l2_low)) / math.sqrt(1.0 - missing))
    clipped = 0.0
    if clips.any():
        j = np.flatnonzero(clips[:s])
        single = factor.spread(slice(len(P)))[0][at[j]]
        l2_range = 2.0 * float(fold.B[1] @ box.r)
        clipped = float(clips[j] @ columns[path.S[j]]) * SAFE
        lam += float(clips[j] @ (np.sqrt(columns[path.S[j]] ** 2 + l2_low) + l2_range * up * single)) * SAFE
        others = np.where(rows.by_curvature, 0.0, ranges.high * rows.norms)
        lam += float(clips[j] @ fold.absolute(others)[path.S[j]]) * SAFE
    rho = lam * SAFE / (1.0 - missing)
    return Reached(factor, rows, rho, moves, up, missing, clipped, by_curvature) if rho >= 0.0 else None


def _polynomial(
    fold: Fold, path: Path, box: Box, known: Expansion, factor: SignedFactor, at: Indices, sizes: Array
) -> float:
    """||u0 + E1 t + E2[t, t] + (B_2 t) V[t, t]||_{(R^T R)^-1} at most, on S and the intercept."""
    m = fold.B.shape[1]

    def norm_of(on_S: Array, error: Array) -> float:
        v, doubt = np.zeros(len(factor)), np.zeros(len(factor))
        v[at], doubt[at] = on_S, error
        return factor.norm_of(v * factor.scale, doubt * factor.scale)

    rows = np.append(path.S, fold.design.shape[1]) if fold.intercept else path.S
    E, doubt, beyond = _residual(fold, path, box, known, rows)
    size = sum(weight * norm_of(E[:, q], doubt[:, q]) for q, weight in enumerate(np.append(1.0, sizes)))
    l2_range = float(fold.B[1] @ box.r) if box.bounded else 0.0
    if l2_range > 0.0:
        cubic = (sizes[q] * norm_of(beyond[:, q], 4.0 * EPS * np.abs(beyond[:, q])) for q in range(m, len(sizes)))
        size += l2_range * sum(cubic)
    return float(size)


def _residual(fold: Fold, path: Path, box: Box, known: Expansion, rows: Indices) -> tuple[Array, Array, Array]:
    """u0, E1 and E2 of the module's text as columns with their errors, entry by entry; and the path's coefficients
    with 0 for the intercept."""
    m = fold.B.shape[1]
    E, doubt = known.K[rows].copy(), known.error[rows].copy()
    s = len(path.S)
    w, D = path.w[path.S], path.A[:s]
    beyond = path.A.copy()
    beyond[s:] = 0.0
    if not box.bounded:  # w and A are 0, and so is all that penalties add
        return E, doubt, beyond
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
    return E, doubt, beyond
