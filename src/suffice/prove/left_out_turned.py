r"""Models without one row, or one group of rows, where many more columns than rows have weights.

With one l2 for all columns and next to no l1, weights lie in the span of the rows: in n coordinates, rows L = X Q, the
models are those of `suffice.prove.left_out` on n columns. Let B be the orthonormal factor of Q nearest to it, omega =
||Q^T Q - 1|| >= ||Q - B||, and e_i = x_i - B l_i, of length at most  ||x_i - Q l_i|| + omega ||l_i||. On rows B l_i and
without l1 the model without g is exactly  w~_g = B v_g,  with an intercept b~_g, margins m~_i and ||w~_g|| = ||v_g||.

With the intercept minimised out, Phi_g is l2_g-strongly convex in w. Rows x_i move its margins at w~_g by no more than
eps = max_i ||e_i|| ||v_g||, so its intercept there by no more than that, since psi' does not fall. With c >= psi'', a
subgradient at w~_g then is no longer than what l2_g D_g below is, and

    ||w_g - w~_g||  <=  D_g  =  ( sum_i a_i (|psi'(m~_i)| ||e_i|| + 2 c eps ||x_i||) + ||l1_g|| ) / l2_g,
    |b_g - b~_g|    <=  eta_g  =  max_i ||x_i|| D_g + eps,                  i over the rows that remain,
    |x . w_g + b_g - (l . v_g + b~_g)|  <=  ||x|| D_g + eta_g + ||x - B l|| ||v_g||         for any x and l.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array
from suffice.prove.downdated import NUMBERS, WIDE, Groups, WholeModel
from suffice.prove.left_out import LeftOut, leave_out
from suffice.rows.design import Design
from suffice.rows.gram import dense_rows
from suffice.rows.norms import row_norms
from suffice.rows.rounding import gamma

NEGLIGIBLE = 1e-3  # of the spread of margins: what leaving out l1 may cost


@dataclass(frozen=True, eq=False)
class Turned:
    """`made` has the models in coordinates l = x Q."""

    made: LeftOut
    Q: Array
    omega: float
    lengths: Array  # ||x_i||
    errors: Array  # ||e_i||
    D: Array
    eta: Array
    sizes: Array  # ||v_g||

    @classmethod
    def of(cls, model: WholeModel, w: Array, b: float, groups: Groups, within: float = math.inf) -> Turned | None:
        """None for other models, and where what is left out is not negligible."""
        (n, d), l2 = model.design.X.shape, model.l2 * groups.share.min(initial=1.0)
        alike = groups.scales is None and np.ptp(l2) == 0.0 < l2[0] and math.isfinite(model.loss.curvature)
        if not alike or not WIDE * n < np.count_nonzero(w) <= d <= NUMBERS // n:
            return None
        ((_, X),) = dense_rows(model.design.X, np.arange(d), n)
        Q, R = np.linalg.qr(X.T)
        L, root = np.ascontiguousarray(R.T), math.sqrt(n) * (1.0 + 1e-6)
        omega = float(np.linalg.norm(Q.T @ Q - np.eye(n))) * 1.01 + gamma(d + 16) * n * 1.01
        lengths, own = (row_norms(one) * (1.0 + gamma(d + 16)) + 1e-150 for one in (X, L))
        off = row_norms(X - L @ Q.T) * (1.0 + gamma(d + 16)) + gamma(n + 8) * (lengths + own * root * 1.01)
        errors = off + own * omega
        turned = replace(model, design=Design(L, model.design.weights), l1=np.zeros(n), l2=np.full(n, model.l2[0]))
        made = leave_out(turned, Q.T @ w, b, groups, within)
        if not omega < 1e-6 or not made.on:
            return None
        with np.errstate(invalid="ignore"):
            least = math.sqrt(model.l2[0]) * (1.0 - 8.0 * EPS)
            sizes = np.linalg.norm(made.weights, axis=0) * (1.0 + gamma(n + 16)) + made.slack / least
            m, h = made.margins(L, 0.0 if model.offset is None else model.offset[:, None])
            y = np.broadcast_to(model.y[:, None], m.shape)
            c, eps = float(model.loss.curvature), errors.max() * sizes
            slopes = np.abs(model.loss.derivative(m, y)) * (1.0 + 8.0 * EPS) + c * (h + 8.0 * EPS)
            pulled = slopes * errors[:, None] + 2.0 * c * eps * lengths[:, None]
            l1 = float(np.linalg.norm(model.l1)) * groups.share
            D = (model.a @ pulled + l1) / (model.l2[0] * groups.share) * (1.0 + gamma(2 * n + d + 64))
            found = cls(made, Q, omega, lengths, errors, D, (lengths.max() * D + eps) * (1.0 + 8.0 * EPS), sizes)
            spread = float(np.std(model.design.margins(w)))
        return found if np.max(D, where=made.proven, initial=0.0) * lengths.max() <= NEGLIGIBLE * spread else None

    @property
    def groups(self) -> Groups:
        return self.made.groups

    @property
    def proven(self) -> Any:
        return self.made.proven

    def weights_of(self, g: int) -> Array:
        return np.asarray(self.Q @ self.made.weights_of(g))

    def margins(self, X: Any) -> tuple[Array, Array]:
        """x . w + b of rows of X by every group's model, and how far that may be from exact ones: rows x groups."""
        ((_, Z),) = dense_rows(X, np.arange(len(self.Q)), X.shape[0])
        m, h = self.made.margins(Z @ self.Q)
        root = math.sqrt(self.Q.shape[1]) * (1.0 + 1e-6)
        lengths = row_norms(Z) * (1.0 + gamma(len(self.Q) + 16)) + 1e-150
        each = self.D + (self.omega + gamma(len(self.Q) + 4) * root) * self.sizes
        return m, (h + lengths[:, None] * each + self.eta) * (1.0 + 8.0 * EPS)

    def left(self) -> tuple[Array, Array]:
        """Margins of the rows that are left out, and how far they may be from exact ones."""
        m, h = self.made.left()
        rows, which = self.groups.rows, self.groups.which
        further = self.lengths[rows] * self.D[which] + self.eta[which] + self.errors[rows] * self.sizes[which]
        return m, (h + further) * (1.0 + 8.0 * EPS)


def left_out_models(
    model: WholeModel, w: Array, b: float, groups: Groups, within: float = math.inf
) -> LeftOut | Turned:
    """The models without each of the groups, from w and b near the minimiser of all rows, in the coordinates that suit
    them."""
    return Turned.of(model, w, b, groups, within) or leave_out(model, w, b, groups, within)
