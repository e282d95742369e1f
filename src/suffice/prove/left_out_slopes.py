r"""How margins of left-out rows move with the penalties.

The minimiser w_g of Phi_g (`suffice.prove.left_out`) keeps its support and signs near by; on it, by the theorem of
implicit functions, with dl1_g and dl2_g the rates at which penalties of columns change,

    d w_g  =  - H_g^-1 ( dl1_g sign(w_g) + dl2_g w_g ),        d m_i  =  x_i . d w_g,    i in g.

The downdated Hessian of all rows, at their w, is H_g for squares. Elsewhere psi'' is that of w_g: the sums that make F'
cancel, and one group that moves the margins of others a little moves F' by much. The systems are solved by conjugate
gradients, all groups at once, with the downdated inverse for preconditioner: a pass over the rows for each step, STEPS
at most, and none where rows times groups are more than MOST and one group moves next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from suffice.arrays import Array
from suffice.models.margin_losses import slope_and_bend
from suffice.prove.downdated import Left, OnColumns, WholeModel
from suffice.prove.factor import Indices
from suffice.prove.left_out import CORRECTIONS, NUMBERS, LeftOut

STEPS, CLOSE = 12, 1e-3  # of conjugate gradients; of what is left of the preconditioned residual
MOST = 1 << 27  # rows times groups


def margin_slopes(made: LeftOut, l1: Array, l2: Array) -> Array:
    """d m of `made.groups.rows`, for penalties of columns that change at these rates."""
    rates, found = replace(made.model, l1=l1, l2=l2), np.full(len(made.groups.rows), math.nan)
    for k, on in enumerate(made.on):
        of_these = np.flatnonzero(made.place == k)
        most = max(NUMBERS // max(len(on.columns), len(on.at.m)), 1)
        for first in range(0, len(of_these), most):
            these = of_these[first : first + most]
            found[np.isin(made.groups.which, these)] = _on(made, on, these, rates)
    return found


def _on(made: LeftOut, on: OnColumns, these: Indices, rates: WholeModel) -> Array:
    """The same of groups whose support lies in some columns."""
    left, scale = Left.of(on, made.groups.taken(these)), on.factor.scale[:, None]
    W = made.variables(on, these) * scale
    B = np.zeros_like(W)
    dl1, dl2 = left.groups.penalties(rates, on.columns)
    B[on.weights] = scale[on.weights] * (dl1 * np.sign(W[on.weights]) + dl2 * W[on.weights])
    free = (W != 0.0) | (left.l1 == 0.0)
    N = -left.solve(B)
    for _ in range(CORRECTIONS):
        N = N - left.solve(left.product(N) + B)
    for g in np.flatnonzero(~free.all(axis=0)).tolist():
        kept = np.flatnonzero(free[:, g])
        N[:, g] = 0.0
        N[kept, g] = -np.linalg.solve(left.among(np.array([g])).dense(kept[None])[0], B[kept, g])
    if float(made.model.loss.third) > 0.0 and len(on.at.m) * len(made.groups) <= MOST:
        N = _solved(_products(left, W / scale), left.solve, free, -B, N)
    return left.along(N)


def _products(left: Left, V: Array) -> Callable[[Array], Array]:
    """N -> H_g N, with psi'' at V."""
    on, model, groups = left.on, left.on.model, left.groups
    m = on.at.m[:, None] + on.rows @ (V - on.variables[:, None])
    _, bends = slope_and_bend(model.loss, m, np.broadcast_to(model.y[:, None], m.shape))
    C = model.a[:, None] * bends
    C[groups.rows, groups.which] = 0.0
    return lambda N: np.asarray(on.rows.T @ (C * (on.rows @ N)) + left.l2 * N)


def _solved(
    product: Callable[[Array], Array], inverse: Callable[[Array], Array], free: Array, B: Array, N: Array
) -> Array:
    """H_g N = B on free entries, by conjugate gradients from N, column by column; where these fail, as it was."""
    start, R = N, np.where(free, B - product(N), 0.0)
    Z = np.where(free, inverse(R), 0.0)
    D, rz = Z, np.einsum("ij,ij->j", R, Z)
    goal = CLOSE**2 * np.abs(np.einsum("ij,ij->j", B, np.where(free, inverse(np.where(free, B, 0.0)), 0.0)))
    for _ in range(STEPS):
        if not (rz > goal).any():
            break
        Q = np.where(free, product(D), 0.0)
        along = np.einsum("ij,ij->j", D, Q)
        step = np.where((rz > goal) & (along > 0.0), rz / np.where(along > 0.0, along, 1.0), 0.0)
        N, R = N + step * D, R - step * Q
        Z = np.where(free, inverse(R), 0.0)
        before, rz = rz, np.einsum("ij,ij->j", R, Z)
        D = Z + np.where(before > 0.0, rz / np.where(before > 0.0, before, 1.0), 0.0) * D
    return np.where(np.isfinite(N).all(axis=0), N, start)
