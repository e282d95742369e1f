"""Models without some rows, refitted in extended precision: the truth that `suffice.prove.left_out` is held against.

The support and signs are those of a solution in float64; on it Newton's method goes on in numpy.longdouble (64 bits of
mantissa on x86) until nothing moves, and the conditions of optimality are checked there, zeros and signs with room to
spare. Where they are not met there is no truth: None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.models.families import GAMMA, POISSON, Tweedie
from suffice.models.margin_losses import LOGISTIC, SQUARED

LONG = np.longdouble
SLOPES = {
    "squares": (SQUARED, lambda m, y: (m - y, np.ones_like(m))),
    "logistic": (LOGISTIC, lambda m, y: (-y / (1 + np.exp(y * m)), 1 / ((1 + np.exp(m)) * (1 + np.exp(-m))))),
    "poisson": (POISSON, lambda m, y: (np.exp(m) - y, np.exp(m))),
    "gamma": (GAMMA, lambda m, y: (1 - y * np.exp(-m), y * np.exp(-m))),
    "tweedie": (
        Tweedie(1.5),
        lambda m, y: (np.exp(m / 2) - y * np.exp(-m / 2), (np.exp(m / 2) + y * np.exp(-m / 2)) / 2),
    ),
}
NEWTON, SETTLED, ROOM = 60, 1e-17, 1e-9


@dataclass(frozen=True)
class Truth:
    """Weights and the intercept, in extended precision."""

    w: Any
    b: Any

    def margin(self, x: Any, offset: float = 0.0) -> Any:
        return x.astype(LONG) @ self.w + self.b + LONG(offset)


def refitted(
    kind: str, X: Any, y: Any, a: Any, l1: Any, l2: Any, intercept: bool, offset: Any, near: Any
) -> Truth | None:
    """The minimiser of sum_i a_i psi(x_i . w + b + o_i) + sum_j l2_j/2 w_j^2 + l1_j |w_j|, from `near`, weights and an
    intercept in float64; a need not sum to 1."""
    slope = SLOPES[kind][1]
    A = np.column_stack([X, np.ones(len(X))]) if intercept else np.array(X)
    A, y, a, o = (np.asarray(one, dtype=LONG) for one in (A, y, a, offset))
    l1, l2 = (np.append(one, [0.0] * intercept).astype(LONG) for one in (l1, l2))
    v = np.array(near[: A.shape[1]], dtype=LONG)
    with np.errstate(all="ignore"):
        for _ in range(4):  # of supports
            free = (v != 0) | (l1 == 0)
            signs = np.sign(v)
            if not _polished(v, A, y, a, l1, l2, o, free, signs, slope):
                return None
            g = A.T @ (a * slope(A @ v + o, y)[0]) + l2 * v
            wrong, out = free & (l1 > 0) & (signs * v <= 0), ~free & (np.abs(g) > l1)
            if not wrong.any() and not out.any():
                close = free & (l1 > 0) & (np.abs(v) < ROOM * (1 + np.abs(v).max()))
                tight = ~free & (np.abs(g) > l1 * (1 - ROOM))
                if close.any() or tight.any():
                    return None
                return Truth(v[: X.shape[1]], v[-1] if intercept else LONG(0))
            v[wrong] = 0
            v[out] = -1e-12 * np.sign(g[out])
    return None


def _polished(v: Any, A: Any, y: Any, a: Any, l1: Any, l2: Any, o: Any, free: Any, signs: Any, slope: Any) -> bool:
    """Newton's method on the free variables, in place; whether it has settled."""
    B = A[:, free]
    for _ in range(NEWTON):
        slopes, bends = slope(A @ v + o, y)
        g = B.T @ (a * slopes) + l2[free] * v[free] + l1[free] * signs[free]
        H = np.asarray(B.T @ ((a * bends)[:, None] * B) + np.diag(l2[free]), dtype=float)
        try:
            step = np.linalg.solve(H, np.asarray(g, dtype=float))
        except np.linalg.LinAlgError:
            return False
        if not np.isfinite(step).all():
            return False
        size = float(np.abs(step).max(initial=0.0))
        v[free] -= step.astype(LONG) * min(1.0, 1.0 / max(size, 1e-30))
        if size <= SETTLED * (1.0 + float(np.abs(v).max(initial=0.0))):
            return True
    return False
