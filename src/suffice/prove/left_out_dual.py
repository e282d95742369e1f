r"""Models without each row, or group of rows, where columns outnumber rows.

Ridges. With C = X X^T + l2 diag(1/a), and e_i the residual of row i by the minimiser without it,

    B (alpha, b) = (y, 0),    B = ( C  1 ; 1^T  0 ),    P = B^-1,    e_i = alpha_i / P_ii,

the border for an intercept only. That stays sharp as l2 vanishes, where leverages are next to 1. For any M near P let
R = I - B M, of a Frobenius norm of at most delta < 1, and t = (y, 0) - B alpha^ for any alpha^. Then

    |P_ii - M_ii|  <=  ||M_i|| ||R e_i|| / (1 - delta),        |alpha_i - alpha^_i|  <=  ||M_i|| ||t|| / (1 - delta).

C is off by no more than gamma (||x_i|| ||x_j||) and the rounding of its diagonal; the border may have any scale.

Other losses, with one l2 for all columns and next to no l1. Weights lie in the span of the rows: in n coordinates, rows
L = X Q, the models are those of `suffice.prove.left_out` on n columns. Let B be the orthonormal factor of Q nearest to
it, omega = ||Q^T Q - 1|| >= ||Q - B||, and e >= ||x_i - B l_i||, which is ||x_i - Q l_i|| + omega ||l_i|| at most. On
rows B l_i and without l1 the model without g is exactly  w~_g = B v_g  with an intercept b~_g and margins m~_i. With
the intercept minimised out, Phi_g is l2_g-strongly convex in w. Rows x_i move its margins at w~_g by no more than eps =
e ||v_g||, and so its intercept there, since psi' does not fall. With c >= psi'' and X_1 = max ||x_i|| a subgradient at
w~_g is no longer than what l2_g D_g below is, so that

    ||w_g - w~_g||  <=  D_g  =  ( sum_i a_i |psi'(m~_i)| e + 2 c eps X_1 + ||l1_g|| ) / l2_g,
    |b_g - b~_g|    <=  eta_g  =  X_1 D_g + eps,
    |x . w_g + b_g - (l . v_g + b~_g)|  <=  ||x|| D_g + eta_g + ||x - B l|| ||v_g||         for any x and l.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.models.margin_losses import Squared
from suffice.prove.downdated import NUMBERS, WIDE, Groups, WholeModel
from suffice.prove.left_out import LeftOut, Turn, leave_out
from suffice.rows.design import Design
from suffice.rows.gram import dense_rows
from suffice.rows.norms import row_norms
from suffice.rows.rounding import gamma

NEGLIGIBLE = 1e-3  # of the spread of margins: what leaving out l1 may cost


@dataclass(frozen=True, eq=False)
class WideRidge:
    """Margins of `Groups.rows`, what they may be off by, and how they move with l2; w is of all rows."""

    w: Array
    margins: Array
    errors: Array
    slopes: Array

    @classmethod
    def of(cls, model: WholeModel, w: Array, groups: Groups) -> WideRidge | None:
        """None for other models, and where l2 is not one number."""
        (n, d), a, l2 = model.design.X.shape, model.a, model.l2 * groups.share[0]
        alike = groups.single and groups.scales is None and np.ptp(groups.share) == 0.0 == np.ptp(l2)
        if not alike or not isinstance(model.loss, Squared) or not n < d <= NUMBERS // n:
            return None
        if model.l1.any() or not (l2[0] > 0.0 and a.min() > 0.0):
            return None
        ((_, X),) = dense_rows(model.design.X, np.arange(d), n)
        y = np.asarray(model.y if model.offset is None else model.y - model.offset)
        size, inverse = n + int(model.intercept), 1.0 / a
        B, y_0, rough = np.zeros((size, size)), np.zeros(size), np.zeros((size, size))
        lengths = row_norms(X) + 1e-140
        B[:n, :n], y_0[:n] = X @ X.T + np.diag(l2[0] * inverse), y
        rough[:n, :n] = gamma(2 * d + 16) * (np.outer(lengths, lengths) + np.diag(l2[0] * inverse))
        B[n:, :n] = math.sqrt(float(np.mean(np.diag(B)[:n])))
        B[:n, n:] = B[n:, :n].T
        rough += gamma(size + 8) * np.abs(B)
        try:
            M = np.linalg.inv(B)
        except np.linalg.LinAlgError:
            return None
        alpha, large = M @ y_0, (1.0 + gamma(4 * size * size + 64))
        R = np.abs(np.eye(size) - B @ M) * (1.0 + EPS) + rough @ np.abs(M) + EPS * np.eye(size)
        t = np.abs(y_0 - B @ alpha) * (1.0 + EPS) + rough @ np.abs(alpha)
        t[:n] += EPS * np.abs(y)
        delta = norm(R) * large
        P, alpha, kept = np.diag(M)[:n], alpha[:n], 1.0 - delta if delta < 0.5 else 0.0
        with np.errstate(all="ignore"):
            reach = row_norms(M)[:n] * large / kept
            of_P, of_alpha = reach * row_norms(R.T)[:n] * large, reach * norm(t) * large
            e = alpha / P
            errors = (of_alpha + np.abs(e) * of_P) / (P - of_P) * (1.0 + 32.0 * EPS)
            errors += 4.0 * EPS * (np.abs(model.y) + np.abs(e)) + 1e-300
            bent = (M[:n, :n] ** 2) @ inverse
            slopes = groups.share[0] * ((M[:n, :n] @ (inverse * alpha)) - e * bent) / P
        errors, rows = np.where((of_P < P) & np.isfinite(errors), errors, math.inf), groups.rows
        return cls(w, (model.y - e)[rows], errors[rows], slopes[rows])

    def left(self) -> tuple[Array, Array]:
        return self.margins, self.errors

    def weights_of(self, g: int) -> Array:
        """Where a model without a group may begin."""
        return self.w


def left_out_models(model: WholeModel, w: Array, b: float, groups: Groups, within: float = math.inf) -> LeftOut:
    """The models without each of the groups, from w and b near the minimiser of all rows, in the coordinates that suit
    them."""
    return _turned(model, w, b, groups, within) or leave_out(model, w, b, groups, within)


def _turned(model: WholeModel, w: Array, b: float, groups: Groups, within: float) -> LeftOut | None:
    """In those of the rows; None for other models, and where what is left out is not negligible."""
    (n, d), l2, c = model.design.X.shape, float(model.l2.min()), float(model.loss.curvature)
    alike = groups.scales is None and l2 == model.l2.max() and l2 > 0.0 and math.isfinite(c)
    if not alike or not WIDE * n < np.count_nonzero(w) or d > NUMBERS // n:
        return None
    ((_, X),) = dense_rows(model.design.X, np.arange(d), n)
    Q, R = np.linalg.qr(X.T)
    L, root, up = np.ascontiguousarray(R.T), math.sqrt(n) * 1.01, 1.0 + gamma(2 * d + 2 * n + 64)
    omega = (norm((Q.T @ Q - np.eye(n)).ravel()) + gamma(d + 16) * n * 1.01) * up
    longest, own = (float(row_norms(one).max()) * up + 1e-150 for one in (X, L))
    e = (float(row_norms(X - L @ Q.T).max()) + gamma(n + 8) * (longest + own * root) + own * omega) * up
    turned = replace(model, design=Design(L, model.design.weights), l1=np.zeros(n), l2=np.full(n, l2))
    made = leave_out(turned, Q.T @ w, b, groups, within)
    if not omega < 1e-6:
        return None
    with np.errstate(invalid="ignore"):
        sizes = (row_norms(made.weights.T) + made.slack / math.sqrt(l2)) * up
        m, h = made.margins(L, 0.0 if model.offset is None else model.offset[:, None])
        slopes = np.abs(model.loss.derivative(m, np.broadcast_to(model.y[:, None], m.shape))) + c * h
        subgradient = e * (model.a @ slopes) + 2.0 * c * e * sizes * longest + norm(model.l1) * groups.share
        D = subgradient / (l2 * groups.share) * up
        eta = (longest * D + e * sizes) * up
    if not np.max(eta, where=made.proven, initial=0.0) <= NEGLIGIBLE * float(np.std(model.design.margins(w))):
        return None
    return replace(made, turn=Turn(Q, (D + (omega + gamma(d + 4) * root) * sizes) * up, eta))
