"""Models without some rows, refitted in extended precision: the truth that `suffice.prove.left_out` is held against.

The support and signs are those of a solution in float64; on it Newton's method goes on in numpy.longdouble (64 bits of
mantissa on x86) until nothing moves, and the conditions of optimality are checked there, zeros and signs with room to
spare. Where they are not met there is no truth: None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import suffice
from suffice import terms
from suffice.models.families import GAMMA, POISSON, Tweedie
from suffice.models.intercept import Intercepted
from suffice.models.linear import LinearModel
from suffice.models.margin_losses import LOGISTIC, SQUARED
from suffice.rows.design import Design
from suffice.solvers.problem import Composite

LONG = np.longdouble
SLOPES: dict[str, Any] = {
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


def solved_whole(problem: tuple[Any, ...]) -> tuple[Any, float]:
    """Weights and the intercept of all rows, by the package's own solver."""
    kind, X, y, a, l1, l2, intercept, offset = problem
    design, given = Design(X, a), offset if offset.any() else None
    model: Any = (Intercepted if intercept else LinearModel)(design, y, SLOPES[kind][0], float(l2[0]), given)
    penalty = terms.L1(float(l1[0])) if l1[0] > 0.0 else terms.Zero()
    whole = Composite(model, penalty, mu=float(l2[0]), L=model.L, size=X.shape[1])
    w = suffice.solve(whole, within=1e-9, max_steps=300).x
    return w, float(np.ravel(model.shift(model.image(w))[0])[0]) if intercept else 0.0


TROUBLES = ("plain", "duplicate", "leverage", "constant", "collinear", "sparse", "one-hot")


def hostile(rng: np.random.Generator) -> tuple[Any, ...]:
    """A problem made to break proofs: rows twice or with a leverage near 1, columns that are constant but for a row or
    nearly alike, units far apart, weights of 0, classes that are separable, no l2."""
    kind, n, p = str(rng.choice(list(SLOPES))), int(rng.integers(4, 40)), int(rng.integers(1, 12))
    X = rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-3, 3, p if rng.random() < 0.3 else 1)
    for trouble in rng.choice(TROUBLES, 2):
        if trouble == "duplicate":
            X[rng.integers(n)] = X[rng.integers(n)]
            if rng.random() < 0.3:
                X[n // 2 : 2 * (n // 2)] = X[: n // 2]
        elif trouble == "leverage":
            X[rng.integers(n)] *= 10.0 ** rng.uniform(0, 4)
        elif trouble == "constant":
            column = int(rng.integers(p))
            X[:, column] = 0.0
            X[rng.integers(n), column] = 1.0
        elif trouble == "collinear" and p > 1:
            X[:, 0] = X[:, 1] * (1.0 + 1e-8 * rng.standard_normal(n) * (rng.random() < 0.5))
        elif trouble == "sparse":
            X *= rng.random(X.shape) < 0.3
        elif trouble == "one-hot":
            X = np.eye(p)[rng.integers(0, p, n)]
    m = X @ (rng.standard_normal(p) * 10.0 ** rng.uniform(-1, 1) / (np.abs(X).max(axis=0) + 1e-3))
    y = _targets(kind, m, rng)
    a = np.ones(n) if rng.random() < 0.6 else rng.integers(0, 4, n).astype(float)
    if a.sum() == 0.0 or (kind == "logistic" and len(np.unique(y[a > 0.0])) < 2):
        a = np.ones(n)
    unit = float(np.mean(np.sum(X**2, axis=1))) / p + 1e-12
    l1 = np.full(p, 0.0 if rng.random() < 0.2 else 10.0 ** rng.uniform(-4, -0.3) * np.sqrt(unit))
    l2 = np.full(p, 0.0 if rng.random() < 0.25 else 10.0 ** rng.uniform(-6, 0) * unit)
    offset = rng.standard_normal(n) if rng.random() < 0.2 else np.zeros(n)
    return kind, X, y, a / a.sum(), l1, l2, bool(rng.random() < 0.7), offset


def _targets(kind: str, m: Any, rng: np.random.Generator) -> Any:
    n = len(m)
    if kind == "squares":
        return m + rng.standard_normal(n) * 10.0 ** rng.uniform(-4, 1)
    if kind == "logistic":
        y = np.where(m + rng.logistic(size=n) * (rng.random() < 0.7) > 0.0, 1.0, -1.0)
        if (y == y[0]).all():
            y[rng.integers(n)] *= -1.0
        return y
    mean = np.exp(np.clip(m, -5.0, 5.0))
    y = rng.poisson(mean).astype(float) if kind == "poisson" else rng.gamma(1.0, mean) + 1e-3
    if kind == "tweedie":
        y = y * (rng.random(n) < 0.7)
    if not (y > 0.0).any():
        y[0] = 1.0
    return y
