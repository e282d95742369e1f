r"""Models of F from derivatives: one evaluation with its Jacobian is enough for a step, and old ones tell of curvature.

At the incumbent r(s) ~ r + J s is a Gauss-Newton model; the paper's needs m+1 evaluations for the same. What it misses
is the curvature H_t of every residual. Old points y_i (relative to the incumbent) with residuals r_i, and slopes J_i
where those are known, tell of it:

    y_i.H_t y_i / 2  ~  v_i = r_i - r - J y_i,          H_t y_i  ~  z_i = J_i - J,

up to what a third derivative adds, which is of the size THIRD |y|^3 / 6 and THIRD |y|^2 / 2 if curvatures of size 1
change by THIRD over the distance 1 (the trust radius, or the distance of the nearest old point if that is larger). The
most plausible H_t (least squares with a prior: ||H||_F about 1) is linear in the data, with the same coefficients for
all residuals t. For an orthonormal basis of the symmetric matrices, with x_t the coordinates of H_t, A x_t ~ d_t the
equations above and D their variances,

    x_t = C d_t,        C = A^T (A A^T + D)^{-1}.

Near points are interpolated, values and slopes (Hermite), and far ones fill in what those leave open: after one step
the curvature along it is known, and after m steps all of it. With q(s) the coordinates of s s^T / 2, the model

    r(s) ~ r + J s + W^T C^T q(s),      rows of W: the v_i and z_i,

is a fixed combination of residual vectors, so that their Gram matrix is all that F(s) ~ ||r(s)||^2 needs.

Parameters are often logarithms, and residuals powers of what they are logarithms of, as in a penalty 1/l1: then
log |r_t| is what is nearly linear. So there is a second model of this kind, F(s) ~ sum_t r_t^2 exp(2 p_t(s)), with p_t
the same quadratics for log |r_t|. It follows an exponential wall down in a step or two, where r + J s, and a quadratic
as well, advance by one e-folding at a time.

And a parameter whose influence fades, as that of the logarithm of a ridge that hardly matters any more, is best seen as
e^(k_j s_j): residuals are nearly linear in what it is the logarithm of. In z_j = (e^(k_j s_j) - 1) / k_j, with slopes
J_i e^(-k_j y_j), the same least squares give a third model. k_j is what an old point tells, if columns j of J there and
here are parallel:  J_i = e^(k_j y_j) J.  It goes to the end of a fading parameter in one step. There z_j is taken in
units in which the parameter is as influential as others, so that old points are no farther than they matter.

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
from suffice.search.state import MOST_EQUATIONS

THIRD, NUGGET = 0.1, 1e-10
LARGEST = 300.0  # exponent
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
class SlopeModel:
    """F(s) ~ ||r + J s + W^T C^T q(s / unit)||^2; G is the Gram matrix of r, the columns of J, the rows of W."""

    G: Array
    C: Array  # one column per row of W
    unit: float

    @property
    def curved(self) -> bool:
        return self.C.size > 0

    def _change(self, s: Array) -> Array:
        """The coefficients of r(s) - r."""
        change = np.concatenate([[0.0], s])
        return np.concatenate([change, features(s / self.unit) @ self.C]) if self.curved else change

    def decrease(self, s: Array) -> float:
        """m(0) - m(s)."""
        change = self._change(s)
        return -float(change @ (2.0 * self.G[0] + self.G @ change))

    def value(self, s: Array) -> float:
        return float(self.G[0, 0]) - self.decrease(s)

    def derivatives(self, s: Array) -> tuple[Array, Array]:
        """Gradient and second derivatives at s."""
        m = len(s)
        pull = self.G[0] + self.G @ self._change(s)  # products of r(s) with all vectors
        T = np.hstack([np.zeros((m, 1)), np.eye(m)])
        if not self.curved:
            return 2.0 * pull[1 : m + 1], 2.0 * self.G[1 : m + 1, 1 : m + 1]
        T = np.hstack([T, feature_slopes(s / self.unit) @ self.C / self.unit])
        H = T @ self.G @ T.T + symmetric(self.C @ pull[m + 1 :], m) / self.unit**2
        return 2.0 * (T @ pull), 2.0 * H


@dataclass(frozen=True)
class PowerModel:
    """F(s) ~ sum_t r_t^2 exp(2 p_t(s)), p(s) = a s + W^T C^T q(s / unit): residuals that do not change their signs."""

    r: Array
    a: Array
    W: Array
    C: Array
    unit: float

    @property
    def curved(self) -> bool:
        return True

    def _exponents(self, s: Array) -> Array:
        bent = (features(s / self.unit) @ self.C) @ self.W if self.C.size else 0.0
        return np.minimum(self.a @ s + bent, LARGEST)

    def decrease(self, s: Array) -> float:
        """m(0) - m(s)."""
        return -float(self.r**2 @ np.expm1(2.0 * self._exponents(s)))

    def value(self, s: Array) -> float:
        return float(self.r @ self.r) - self.decrease(s)

    def derivatives(self, s: Array) -> tuple[Array, Array]:
        """Gradient and second derivatives at s."""
        pull = 2.0 * self.r**2 * np.exp(2.0 * self._exponents(s))
        if not self.C.size:
            return self.a.T @ pull, 2.0 * (self.a.T * pull) @ self.a
        T = self.a.T + feature_slopes(s / self.unit) @ self.C @ self.W / self.unit
        bent = symmetric(self.C @ (self.W @ pull), len(s)) / self.unit**2
        return T @ pull, 2.0 * (T * pull) @ T.T + bent


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
class WarpedModel:
    """F(s) ~ m(z(s)) for a model m in z."""

    inner: SlopeModel
    warp: Warp

    @property
    def curved(self) -> bool:
        return True

    def decrease(self, s: Array) -> float:
        """m(0) - m(s)."""
        return self.inner.decrease(self.warp.place(s))

    def value(self, s: Array) -> float:
        return self.inner.value(self.warp.place(s))

    def derivatives(self, s: Array) -> tuple[Array, Array]:
        """Gradient and second derivatives at s."""
        slope = self.warp.slope(s)
        g, H = self.inner.derivatives(self.warp.place(s))
        return slope * g, slope[:, None] * H * slope + np.diag(self.warp.k * slope * g)


Old = tuple[Array, Array, Array | None]  # the step to an old point, residuals and slopes (or None) there


def gauss_newton(r: Array, J: Array) -> SlopeModel:
    """The model of the incumbent alone."""
    R = np.vstack([r, J.T])
    return SlopeModel(R @ R.T, np.empty((0, 0)), 1.0)


def curved(r: Array, J: Array, old: Sequence[Old], delta: float) -> SlopeModel:
    """The model with curvature from old points."""
    W, C, unit = curvature(r, J, old, delta)
    if not C.size:
        return gauss_newton(r, J)
    R = np.vstack([r, J.T, W])
    return SlopeModel(R @ R.T, C, unit)


def power_law(r: Array, J: Array, old: Sequence[Old], delta: float) -> PowerModel | None:
    """The same for logarithms of residuals; None if one of them is 0. Old points where signs differ are left out."""
    if not r.all():
        return None
    logs: list[Old] = []
    for step, there, slope in old:
        if (there * r > 0.0).all():
            logs.append((step, np.log(there / r), None if slope is None else slope / there[:, None]))
    a = J / r[:, None]
    W, C, unit = curvature(np.zeros(len(r)), a, logs, delta)
    return PowerModel(r, a, W, C, unit)


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
    return WarpedModel(curved(r, J / warp.slope(np.zeros(len(k))), there, delta), warp)


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


def curvature(r: Array, J: Array, old: Sequence[Old], delta: float) -> tuple[Array, Array, float]:
    """W, C and the unit of lengths; empty matrices if no old point tells anything."""
    m = J.shape[1]
    ordered = sorted((point for point in old if norm(point[0]) > 0.0), key=lambda point: norm(point[0]))
    if not ordered:
        return np.empty((0, len(r))), np.empty((0, 0)), 1.0
    unit = max(delta, norm(ordered[0][0]))
    A: list[Array] = []
    D: list[Array] = []
    W: list[Array] = []
    equations = 0
    for step, there, slope in ordered:
        equations += 1 + (0 if slope is None else m)
        if A and equations > MOST_EQUATIONS:
            break
        distance = norm(step) / unit
        y = step / norm(step)
        A.append(features(y)[None, :])
        D.append(np.array([(THIRD * distance / 6.0) ** 2]))
        W.append((there - r - J @ step)[None, :] / distance**2)
        if slope is not None:
            A.append(feature_slopes(y))
            D.append(np.full(m, (THIRD * distance / 2.0) ** 2))
            W.append((slope - J).T * (unit / distance))
    rows = np.vstack(A)
    K = rows @ rows.T
    K[np.diag_indices_from(K)] += np.concatenate(D) + NUGGET
    # Far points have large diagonals, which a factor does not mind and `scipy.linalg.solve` would warn of.
    C: Array = scipy.linalg.cho_solve(scipy.linalg.cho_factor(K), rows).T
    return np.vstack(W), C, unit


def features(s: Array) -> Array:
    """The coordinates q of s s^T / 2 in an orthonormal basis of the symmetric matrices."""
    i, j = np.triu_indices(len(s))
    q: Array = np.where(i == j, 0.5, np.sqrt(0.5)) * s[i] * s[j]
    return q


def feature_slopes(s: Array) -> Array:
    """d q / d s, one row per component of s: H s is this times the coordinates of H."""
    m = len(s)
    i, j = np.triu_indices(m)
    rows = np.zeros((m, len(i)))
    columns = np.arange(len(i))
    share = np.where(i == j, 0.5, np.sqrt(0.5))
    np.add.at(rows, (i, columns), share * s[j])
    np.add.at(rows, (j, columns), share * s[i])
    return rows


def symmetric(x: Array, m: int) -> Array:
    """The symmetric matrix with the coordinates x."""
    i, j = np.triu_indices(m)
    H = np.zeros((m, m))
    H[i, j] = H[j, i] = np.where(i == j, 1.0, np.sqrt(0.5)) * x
    return H
