r"""Ridges without each row, where rows are fewer than columns.

With C = X X^T + l2 diag(1/a), and e_i the residual of row i by the minimiser without it,

    B (alpha, b) = (y, 0),    B = ( C  1 ; 1^T  0 ),    P = B^-1,    e_i = alpha_i / P_ii,

the border for an intercept only. That stays sharp as l2 vanishes, where leverages are next to 1. For any M near P let
R = I - B M, of a Frobenius norm of at most delta < 1, and t = (y, 0) - B alpha^ for any alpha^. Then

    |P_ii - M_ii|  <=  ||M_i|| ||R e_i|| / (1 - delta),        |alpha_i - alpha^_i|  <=  ||M_i|| ||t|| / (1 - delta).

C is off by no more than gamma (||x_i|| ||x_j||) and the rounding of its diagonal; the border may have any scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.models.margin_losses import Squared
from suffice.prove.downdated import Groups, WholeModel
from suffice.prove.left_out import NUMBERS
from suffice.rows.gram import dense_rows
from suffice.rows.norms import row_norms
from suffice.rows.rounding import gamma


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
