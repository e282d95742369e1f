r"""Models of F from derivatives: one evaluation with its Jacobian is enough for a step, and old ones tell of curvature.

At the incumbent r(s) ~ r + J s is a Gauss-Newton model; the paper's needs m+1 evaluations for the same. What it misses
is the curvature H_t of every residual. Old points y_i (relative to the incumbent) with residuals r_i, and slopes J_i
where those are known, tell of it:

    y_i.H_t y_i / 2  ~  r_i - r - J y_i,          H_t y_i  ~  J_i - J,

up to what a third derivative adds, which is of the size THIRD |y|^3 / 6 and THIRD |y|^2 / 2 if curvatures of size 1
change by THIRD over the distance 1 (the trust radius, or the distance of the nearest old point if that is larger). The
most plausible H_t (least squares with a prior: ||H||_F about 1) is linear in the data, with the same coefficients for
all residuals t. Each equation is one on <H_t, A_u>, with A_u the symmetric part of z_u y_u^T: y_i y_i^T / 2 for a
value, e_j y_i^T for an entry of a slope. With D their variances, and what they say in the rows of W,

    H_t = sum_u A_u (K + D)^{-1}_uv W_vt,    K_uv = <A_u, A_v> = ((z_u.z_v) (y_u.y_v) + (z_u.y_v) (y_u.z_v)) / 2.

Near points are interpolated, values and slopes (Hermite), and far ones fill in what those leave open: after one step
the curvature along it is known, and after m steps all of it. The model

    r(s) ~ r + J s + W^T (K + D)^{-1} k(s),      k_u(s) = <A_u, s s^T / 2> = (z_u.s) (y_u.s) / 2,

is a combination of the columns of J and the rows of W (`suffice.search.model`), so that their Gram matrix is all that
F(s) ~ ||r(s)||^2 needs.

A parameter whose influence fades, as that of the logarithm of a ridge that hardly matters any more, is best seen as
e^(k_j s_j): residuals are nearly linear in what it is the logarithm of. In z_j = (e^(k_j s_j) - 1) / k_j, with slopes
J_i e^(-k_j y_j), the same least squares give a second model. k_j is what an old point tells, if columns j of J there
and here are parallel:  J_i = e^(k_j y_j) J.  It goes to the end of a fading parameter in one step. There z_j is taken
in units in which the parameter is as influential as others, so that old points are no farther than they matter.

Derivatives prove nothing: a step made by them is judged as any other. They may also be wrong, or of no use where F has
a kink: `suffice.search.by_derivatives` says what then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.search.model import Basis, CostModel, GramModel
from suffice.search.state import MOST_EQUATIONS

THIRD, NUGGET = 0.1, 1e-10
LARGEST_WARP = 50.0  # exponent of a single parameter
LEAST_UNIT = 1e-12
MOVED = 0.1  # of the largest change of a parameter: a change that tells of an exponent
PARALLEL = 0.99  # cosine of two columns of slopes
STEEPEST = 1e100


def usable(J: Array) -> bool:
    """Whether slopes are numbers whose squares are numbers."""
    return bool((np.abs(J) <= STEEPEST).all())


def slopes(evaluation: Evaluation, unit: Array, coarse: bool) -> Array | None:
    """d r / d u, or that of the norms of blocks; None if it is not known."""
    J = evaluation.J
    if J is None or not usable(J):
        return None
    J = J * unit
    if not coarse or evaluation.blocks is None:
        return J
    starts = np.concatenate(([0], np.cumsum(evaluation.blocks)[:-1]))
    sizes = np.abs(evaluation.coarse)
    pulled = np.add.reduceat(evaluation.r[:, None] * J, starts) / np.where(sizes > 0.0, sizes, 1.0)[:, None]
    return np.where((np.array(evaluation.blocks) == 1)[:, None], J[starts], pulled)


@dataclass(frozen=True)
class Warp:
    """z_j = c_j (e^(k_j s_j) - 1) / k_j, or s_j where k_j = 0."""

    k: Array
    c: Array

    def place(self, s: Array) -> Array:
        """z(s)."""
        z = np.expm1(np.clip(self.k * s, -LARGEST_WARP, LARGEST_WARP)) / np.where(self.k == 0.0, 1.0, self.k)
        return np.where(self.k == 0.0, s, self.c * z)

    def slope(self, s: Array) -> Array:
        """dz_j / ds_j."""
        return np.where(self.k == 0.0, 1.0, self.c * np.exp(np.clip(self.k * s, -LARGEST_WARP, LARGEST_WARP)))


@dataclass(frozen=True)
class WarpedModel(CostModel):
    """F(s) ~ m(z(s)) for a model m in z."""

    inner: CostModel
    warp: Warp
    F: float

    def decrease(self, s: Array) -> float:
        return self.inner.decrease(self.warp.place(s))

    def derivatives(self, s: Array) -> tuple[Array, Array]:
        slope = self.warp.slope(s)
        g, H = self.inner.derivatives(self.warp.place(s))
        return slope * g, slope[:, None] * H * slope + np.diag(self.warp.k * slope * g)


Old = tuple[Array, Array, Array | None]  # the step to an old point, residuals and slopes (or None) there


def curved(r: Array, J: Array, old: Sequence[Old], delta: float) -> GramModel:
    """The model with curvature from old points; of the incumbent alone, r + J s, if there are none."""
    basis, W = _quadratics(r, J, old, delta)
    R = np.vstack([J.T, W])
    return GramModel(basis, R @ R.T, R @ r, float(r @ r))


def fading(r: Array, J: Array, old: Sequence[Old], delta: float) -> WarpedModel | None:
    """The model in z; None where no old point tells of a k. A parameter that has faded has a unit of its own: one in
    which it is as influential as the others."""
    k, lengths = exponents(J, old), np.linalg.norm(J, axis=0)
    if not k.any():
        return None
    warp = Warp(k, np.clip(lengths / lengths.max(), LEAST_UNIT, 1.0))
    there = [
        (warp.place(step), values, None if slope is None else slope / warp.slope(step))
        for step, values, slope in old
        if np.abs(k * step).max() < LARGEST_WARP
    ]
    inner = curved(r, J / warp.slope(np.zeros(len(k))), there, delta)
    return WarpedModel(inner, warp, inner.F)


def exponents(J: Array, old: Sequence[Old]) -> Array:
    """k, from the nearest old point that has moved a parameter noticeably and whose column of slopes is parallel."""
    k = np.zeros(J.shape[1])
    lengths = np.linalg.norm(J, axis=0)
    for step, _, slope in sorted(old, key=lambda point: -norm(point[0])):  # the nearest has the last word
        if slope is None or not step.any():
            continue
        product, there = np.sum(J * slope, axis=0), np.linalg.norm(slope, axis=0)
        told = (np.abs(step) >= MOVED * np.abs(step).max()) & (product > PARALLEL * lengths * there) & (product > 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log(there / lengths) / step
        k = np.where(told & np.isfinite(found), found, k)
    return k


def _quadratics(r: Array, J: Array, old: Sequence[Old], delta: float) -> tuple[Basis, Array]:
    """The functions of s that go with the columns of J, which are s, and with the rows of W; and W."""
    m = J.shape[1]
    ordered = sorted((point for point in old if norm(point[0]) > 0.0), key=lambda point: norm(point[0]))
    unit = max(delta, norm(ordered[0][0])) if ordered else 1.0
    z: list[Array] = []
    y: list[Array] = []
    D: list[float] = []
    W: list[Array] = []
    for step, there, slope in ordered:
        if z and len(z) + 1 + (0 if slope is None else m) > MOST_EQUATIONS:
            break
        distance = norm(step) / unit
        direction = step / norm(step)
        z.append(direction)
        y.append(0.5 * direction)
        D.append((THIRD * distance / 6.0) ** 2)
        W.append((there - r - J @ step) / distance**2)
        if slope is not None:
            z.extend(np.eye(m))
            y.extend([direction] * m)
            D.extend([(THIRD * distance / 2.0) ** 2] * m)
            W.extend((slope - J).T * (unit / distance))
    if not z:
        return Basis(J[:0], J[:0], np.zeros(m), np.eye(m), np.empty((0, 0)), 1.0), np.empty((0, len(r)))
    Z, Y = np.array(z), np.array(y)
    K = 0.5 * ((Z @ Z.T) * (Y @ Y.T) + (Z @ Y.T) * (Y @ Z.T))
    K[np.diag_indices_from(K)] += np.array(D) + NUGGET
    # Far points have large diagonals, which a factor does not mind and `scipy.linalg.solve` would warn of.
    inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(K), np.eye(len(K)))
    g = np.hstack([unit * np.eye(m), np.zeros((m, len(K)))])
    Lam = np.hstack([np.zeros((len(K), m)), inverse])
    return Basis(Z, Y, np.zeros(m + len(K)), g, Lam, unit), np.array(W)
