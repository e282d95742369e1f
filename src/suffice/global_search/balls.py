r"""How far minimisers are from a path, for all parameters of a box at once.

    Phi_t(w) = f(w) + (l2/2) ||w||^2 + l1 ||w||_1,        f(w) = sum_i a_i psi(x_i . w),        (l1, l2) = B (centre + t).

Let w~ = w~(t) be any path (`suffice.global_search.paths`), on columns P, clipped: a weight that would change its sign is
0, which adds sigma_j k_j, 0 <= k_j <= k_j^max, to it. Let e be the part of grad f(w~) + l2 w~ that no subgradient of
l1 ||.||_1 at w~ cancels. Since that is monotone, the minimiser w~ + h of Phi_t on the columns P has

    <grad f(w~ + h) - grad f(w~), h> + l2 ||h||^2  <=  -<e, h>.

Let H = X^T diag(c) X + l2_low on P, c_i <= a_i psi'' for all margins that the path takes, l2_low the least l2 of the box.
The left side is at least ||h||_H^2 (1 - e^-s)/s with s = kappa ||h||_H, kappa = M max_i ||x_i||_{H^-1}, |psi'''| <= M
psi'' (`suffice.lower.verified`). So, with lambda >= ||e||_{H^-1} for all t of the box and kappa lambda < 1,

    ||h||_H  <=  rho = -ln(1 - kappa lambda)/kappa        (lambda for squares).

If |grad_j f(w~ + h)| < l1 for all j outside P, then w~ + h is the minimiser of Phi_t, and the only one.

*lambda.* With margins m0 + s along the path, s = s1 + s2 of first and second order but for clips,

    e on S = u0 + E1 t + E2[t, t] + (B_2 t)(V[t, t] + sigma k) + (X^T C X + l2_centre) sigma k + X^T a zeta,

u0, E1 and E2 being zero but for rounding and for what w0 lacks of being a minimiser; zeta is what is left of psi'
(`suffice.global_search.expansions`): of third order. Their norms by H^-1 are sums over monomials of norms of vectors;
||X^T a zeta||_{H^-1} <= (sum_i (a_i zeta_i)^2 / c_i)^(1/2), and a clip of 1 costs no more than sqrt(H_jj) + (l2_high -
l2_low) sqrt((H^-1)_jj). On P outside S, where w~ is 0, e_j = max(0, |p_j(t)| - l1) + (X^T a zeta)_j + .. with p_j the
expansion of grad_j f; |p_j| - l1 is largest, but for second-order terms, in a corner of the box.

*Outside P* the gradient moves by at most ||x_j||_E (sum_j k_j ||x_j||_E + ||c^(-1/2) a zeta|| + e^s rho) from p_j,
E = (a psi''_max)^2 / c.

*Rounding.* Vectors X^T (a r) are known to gamma ||diag(a)^(1/2) x_j|| ||a^(1/2) r||, entry by entry, with what the
margins' own rounding does to r; that of the margins themselves is part of zeta. H has a factor that is good for proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from suffice.arrays import EPS, Array, host
from suffice.global_search.expansions import least_bend, most_bend, slope_remainder, third
from suffice.global_search.models import Fold
from suffice.global_search.paths import Box, Indices, Path
from suffice.global_search.quadratics import pairs
from suffice.lower.signed_factor import SignedFactor
from suffice.terms.design import OF_FACTORS, largest_matrix
from suffice.terms.margin_losses import Squared
from suffice.terms.rounding import TINY, gamma

TRIES = 6  # to find P
LARGEST_PRODUCT = 0.9  # of kappa lambda: beyond, nothing is claimed
SAFE = 1.0 + 1e-10  # what sums of a few bounds are multiplied by for their rounding


@dataclass(frozen=True, eq=False)
class Ball:
    """Minimisers are w~ + h, h on the columns of `factor`, ||h|| <= rho by the factor's R^T R, for all t of the box."""

    factor: SignedFactor | None  # None where h is 0: no columns
    rho: float
    clips: Array  # k^max, on S and the intercept
    sizes: Array  # of the monomials t_k, t_k t_l


@dataclass(frozen=True, eq=False)
class Pulls:
    """The expansion of grad f along the path: X^T (a r) for r = psi', then for all monomials, and its errors."""

    K: Array  # (d, with the intercept last) x (1 + monomials)
    error: Array
    zeta: Array  # a bound on that of every row
    low: Array  # c
    high: Array  # a psi''_max


def ball_of(fold: Fold, path: Path, box: Box) -> Ball | None:
    """The ball for a box, or None where nothing is proven. An unbounded box needs a path that is constantly 0."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _ball_of(fold, path, box)


def _ball_of(fold: Fold, path: Path, box: Box) -> Ball | None:
    r = box.r if box.bounded else np.zeros(len(box.low))
    sizes = np.append(r, [r[k] * r[l] for k, l in pairs(len(r))]) * (1.0 + 4.0 * EPS)
    reach = np.abs(path.A) @ sizes
    clips = np.zeros(len(reach))
    if fold.sparse:
        s = len(path.S)
        clips[:s] = np.maximum(reach[:s] - np.abs(path.w[path.S]), 0.0) * SAFE
        clips[:s] += (reach[:s] * 1e-13) * (clips[:s] > 0.0)
    pulls = _pulls(fold, path, sizes, clips)
    if not (np.isfinite(pulls.K).all() and np.all(pulls.low[fold.design.weights > 0.0] > 0.0)):
        return None
    excess = _excess(fold, path, box, pulls, sizes)
    d = fold.design.shape[1]
    inside = np.zeros(d, dtype=bool)
    inside[path.S] = True
    inside |= ~(excess < 0.0)
    for _ in range(TRIES):
        P: Indices = np.flatnonzero(inside)
        ball = _on(fold, path, box, pulls, excess, P, Ball(None, 0.0, clips, sizes))
        if ball is None:
            return None
        outside = ~inside
        if not outside.any():
            return ball[0]
        failing = outside & ~(excess + ball[1] * fold.column_norms(_spread(pulls)) * SAFE < 0.0)
        if not failing.any():
            return ball[0]
        inside |= failing
    return None


def _spread(pulls: Pulls) -> Array:
    """E of the module's text."""
    E: Array = np.divide(pulls.high**2, pulls.low, out=np.zeros_like(pulls.low), where=pulls.low > 0.0)
    return E


def _pulls(fold: Fold, path: Path, sizes: Array, clips: Array) -> Pulls:
    design, loss, y = fold.design, fold.model.loss, host(fold.model.y)
    a, m = host(design.weights), fold.B.shape[1]
    quads = pairs(m)
    X, m0 = fold.columns(design.X, path.S), path.m0
    few = gamma(len(path.S) + 8)
    T = X @ path.A
    rough = np.abs(X) @ np.abs(path.A)  # of which a rounding is few
    blur = few * (np.abs(X[:, : len(path.S)]) @ np.abs(path.w[path.S])) + 4.0 * EPS * (np.abs(m0) + abs(path.b)) + TINY
    along = blur + few * (rough @ sizes)  # how far margins along the path may be from what is computed
    s1 = np.abs(T[:, :m]) @ sizes[:m]
    s2 = np.abs(T[:, m:]) @ sizes[m:] + np.abs(X) @ clips + along
    s = (s1 + s2) * SAFE
    bend, bent = loss.second(m0, y), third(loss, m0, y)
    zeta = slope_remainder(loss, m0, s, y) + 0.5 * np.abs(bent) * s2 * (2.0 * s1 + s2)
    zeta = (zeta + most_bend(loss, m0, s, y) * along + 4.0 * EPS * bend * s) * SAFE

    R = np.empty((len(m0), 1 + T.shape[1]))
    error = np.empty_like(R)
    R[:, 0], error[:, 0] = loss.derivative(m0, y), 0.0
    R[:, 1:] = bend[:, None] * T
    error[:, 1:] = bend[:, None] * few * rough
    weight = np.abs(R) + 0.0
    weight[:, 0] += bend
    for q, (k, l) in enumerate(quads, start=1 + m):
        times = 1.0 if k < l else 0.5
        R[:, q] += times * bent * T[:, k] * T[:, l]
        weight[:, q] += times * np.abs(bent * T[:, k] * T[:, l])
        error[:, q] += few * np.abs(bent) * (rough[:, k] * np.abs(T[:, l]) + rough[:, l] * np.abs(T[:, k]))
    K = design.adjoint(a[:, None] * R)
    root = np.sqrt(a)[:, None]
    counts = np.array([gamma(float(count) + OF_FACTORS) for count in design.pull.roundings])
    lengths = np.sqrt(np.sum((root * weight) ** 2, axis=0)), np.sqrt(np.sum((root * error) ** 2, axis=0))
    off = (np.outer(counts, lengths[0]) + lengths[1]) * design.column_norms[:, None] * SAFE + design.underflow
    if fold.intercept:
        K = np.vstack([K, a @ R])
        off = np.vstack([off, (gamma(len(m0) + OF_FACTORS) * (a @ weight) + a @ error) * SAFE + design.underflow])
    return Pulls(K, off, zeta, a * least_bend(loss, m0, s, y), a * most_bend(loss, m0, s, y))


def _excess(fold: Fold, path: Path, box: Box, pulls: Pulls, sizes: Array) -> Array:
    """No less than |p_j(t)| - l1 anywhere in the box, of every column."""
    d, m = fold.design.shape[1], fold.B.shape[1]
    K, error = pulls.K[:d], pulls.error[:d]
    if not box.bounded:  # the path is constant, and l1 least at the lower end
        return np.abs(K[:, 0]) + error[:, 0] - fold.B[0] @ box.low * (1.0 - 8.0 * EPS)
    found = np.full(d, -math.inf)
    for corner in product(*zip(-box.r, box.r, strict=True)):
        t = np.array(corner)
        l1 = fold.B[0] @ (box.centre + t)
        size = np.abs(K[:, 0] + K[:, 1 : 1 + m] @ t) + gamma(m + 4) * (np.abs(K[:, : 1 + m]) @ np.append(1.0, np.abs(t)))
        found = np.maximum(found, size - l1 + 8.0 * EPS * (fold.B[0] @ box.high))
    left: Array = np.abs(K[:, 1 + m :]) @ sizes[m:] + error @ np.append(1.0, sizes)
    return found + left * SAFE


def _on(
    fold: Fold, path: Path, box: Box, pulls: Pulls, excess: Array, P: Indices, plain: Ball
) -> tuple[Ball, float] | None:
    """The ball on the columns P, and how far it lets the gradient move, per unit of ||x_j||_E."""
    design, m = fold.design, fold.B.shape[1]
    sizes, clips, s = plain.sizes, plain.clips, len(path.S)
    size = len(P) + fold.intercept
    positive = pulls.low > 0.0
    squares = np.divide((host(design.weights) * pulls.zeta) ** 2, pulls.low, out=np.zeros(len(pulls.low)), where=positive)
    of_zeta = math.sqrt(float(squares.sum())) * SAFE
    if size == 0:
        return plain, of_zeta
    l2_low = float(fold.B[1] @ box.low) * (1.0 - 8.0 * EPS)
    if size > max(largest_matrix(design), 1) or (l2_low == 0.0 and size > design.shape[0]):
        return None
    gram = design.gram if isinstance(fold.model.loss, Squared) and not fold.intercept else None  # c = a there
    factor = SignedFactor.of(design, P, pulls.low, np.full(len(P), l2_low), fold.intercept, gram)
    if factor is None:
        return None
    up = (1.0 + 8.0 * EPS) / math.sqrt(1.0 - factor.tau)
    at = np.searchsorted(P, path.S)
    at = np.append(at, len(P)) if fold.intercept else at
    rows = np.append(path.S, design.shape[1]) if fold.intercept else path.S

    def norm_of(on_S: Array, error: Array) -> float:
        """||v||_{H^-1} of a vector on S and the intercept."""
        v, doubt = np.zeros(size), np.zeros(size)
        v[at], doubt[at] = on_S, error
        return up * factor.norm_of(v * factor.scale, doubt * factor.scale)

    E, doubt, beyond = _residual(fold, path, box, pulls, rows)
    weights = np.append(1.0, sizes)
    lam = sum(weight * norm_of(E[:, q], doubt[:, q]) for q, weight in enumerate(weights))
    l2_range = float(fold.B[1] @ box.r) if box.bounded else 0.0
    if l2_range > 0.0:
        lam += l2_range * sum(sizes[q] * norm_of(beyond[:, q], 4.0 * EPS * np.abs(beyond[:, q])) for q in range(m, len(sizes)))
    outside = np.zeros(size)
    outside[: len(P)] = np.maximum(excess[P], 0.0)
    outside[at] = 0.0
    if outside.any():
        lam += up * factor.norm_of(np.zeros(size), outside * factor.scale)
    lam += of_zeta
    moved = of_zeta
    if clips.any():
        single, _ = factor.spread(slice(len(P)))
        j = np.flatnonzero(clips[:s])
        columns = fold.column_norms(_spread(pulls))[path.S[j]]
        diagonal = np.sqrt(columns**2 + l2_low)  # E >= c
        lam += float(clips[j] @ (diagonal + 2.0 * l2_range * up * single[at[j]])) * SAFE
        moved += float(clips[j] @ columns) * SAFE
    lam *= SAFE
    M = float(fold.model.loss.third)
    kappa = 0.0
    if M > 0.0:
        kappa = M * up * float(np.max(factor.norms(design, 0.01 / lam)[host(design.weights) > 0.0]))
    if not kappa * lam < LARGEST_PRODUCT:
        return None
    rho = (-math.log1p(-kappa * lam) / kappa if kappa * lam > 0.0 else lam) * SAFE
    moved += math.exp(kappa * rho) * rho * SAFE
    return replace(plain, factor=factor, rho=rho * up), moved


def _residual(fold: Fold, path: Path, box: Box, pulls: Pulls, rows: Indices) -> tuple[Array, Array, Array]:
    """u0, E1 and E2 of the module's text as columns with their errors, entry by entry; and the path's coefficients
    with 0 for the intercept."""
    m = fold.B.shape[1]
    E, doubt = pulls.K[rows].copy(), pulls.error[rows].copy()
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
    for q, (k, l) in enumerate(pairs(m), start=m):
        terms += [(1 + q, l2 * D[:, q]), (1 + q, fold.B[1, k] * D[:, l])]
        if k < l:
            terms.append((1 + q, fold.B[1, l] * D[:, k]))
    for column, term in terms:
        added[:, column] += term
        size[:, column] += np.abs(term)
    E[:s] += added
    doubt[:s] += 16.0 * EPS * (np.abs(E[:s]) + size)
    return E, doubt, beyond
