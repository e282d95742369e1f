r"""Gradients of F to fifty digits, by another road: minimisers in a few hundred bits (python-flint), and central
differences of them. Nothing of the package's arithmetic, and no implicit differentiation, is used.

A lower-level problem is the smooth one on its signed support, which is taken from the package's solution; that it is
the right one is checked here by the optimality conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx

BITS = 500
STEP = 2.0**-120  # of a parameter, relative
ENOUGH = 1e-100  # of a gradient

Numbers = list[Any]


def exact(values: Any) -> Any:
    """Floats as numbers, in the same nesting."""
    return [exact(one) for one in values] if np.ndim(values) else arb(float(values))


def minimiser(derivatives: Callable[[Numbers], tuple[Numbers, list[Numbers]]], x: Numbers) -> Numbers:
    """By Newton's method, from close by."""
    for _ in range(60):
        gradient, H = derivatives(x)
        if max((abs(one) for one in gradient), default=arb(0)) < ENOUGH:
            return x
        step = arb_mat(H).solve(arb_mat([[one] for one in gradient]))
        x = [(one - step[j, 0]).mid() for j, one in enumerate(x)]
    raise ArithmeticError("no minimiser was found")


def gradient(F: Callable[[Numbers], Any], p: Sequence[float], slopes: Sequence[float]) -> np.ndarray:
    """dF/dp times slopes, by central differences."""
    result, p = [], exact(p)
    for i, slope in enumerate(slopes):
        h = arb(STEP) * (abs(p[i]) if abs(p[i]) > 0 else arb(1))
        ends = [F([one + sign * h if j == i else one for j, one in enumerate(p)]) for sign in (1, -1)]
        result.append(float((ends[0] - ends[1]) / (2 * h) * arb(float(slope))))
    return np.array(result)


def precise(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose arithmetic has BITS."""

    def wrapped(*args: Any) -> Any:
        before, ctx.prec = ctx.prec, BITS
        try:
            return function(*args)
        finally:
            ctx.prec = before

    return wrapped


# psi', psi'' of margins, as functions of (m, y).


def _logistic(m: Any, y: Any) -> tuple[Any, Any]:
    q = 1 / (1 + (y * m).exp())
    return -y * q, q * (1 - q)


def _huber(m: Any, y: Any, delta: Any) -> tuple[Any, Any]:
    t = m - y
    return (t, arb(1)) if abs(t) < delta else (delta if t > 0 else -delta, arb(0))


PSI: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "squares": lambda m, y: (m - y, arb(1)),
    "logistic": _logistic,
    "poisson": lambda m, y: (m.exp() - y, m.exp()),
    "gamma": lambda m, y: (1 - y * (-m).exp(), y * (-m).exp()),
    "huber": lambda m, y: _huber(m, y, arb(0.4)),
    "hinge": lambda m, y: (-2 * y * (1 - y * m), arb(2)) if y * m < 1 else (arb(0), arb(0)),
}

PHI: dict[str, Callable[[Any, Any], Any]] = {
    "brier": lambda m, y: (1 / (1 + (y * m).exp())) ** 2,
    "log": lambda m, y: (1 + (-y * m).exp()).log(),
    "squares": lambda m, y: (m - y) ** 2,
    "poisson": lambda m, y: 2 * (m.exp() - y * m - (y - y * y.log() if y > 0 else 0)),
}


def products(X: list[Numbers], w: Numbers) -> Numbers:
    return [sum((x * one for x, one in zip(row, w, strict=True)), arb(0)) for row in X]


class LinearModel:
    """sum_i a_i psi(x_i . w) + sum_j l2_j w_j^2 / 2 + l1_j |w_j| near w; with a column of ones that is not penalised,
    if `intercept`."""

    def __init__(self, X: Any, y: Any, psi: str, w: Any, intercept: bool = False) -> None:
        X = np.column_stack([X, np.ones(len(X))]) if intercept else np.asarray(X)
        self.size, self.all, self.y, self.psi, self.intercept = len(w), X, exact(y), PSI[psi], intercept
        self.signs = np.append(np.sign(w), 0.0) if intercept else np.sign(w)
        self.start = exact(np.append(w, 0.0) if intercept else w)

    def solution(self, a: Numbers, l1: Numbers, l2: Numbers) -> Numbers:
        """All weights, and the intercept."""
        pad = [arb(0)] * self.intercept
        l1, l2 = [*l1, *pad], [*l2, *pad]
        S = [j for j in range(len(l1)) if self.signs[j] != 0.0 or l1[j] == 0]
        X, signs = exact(self.all[:, S]), exact(self.signs[S])

        def derivatives(w: Numbers) -> tuple[Numbers, list[Numbers]]:
            both = [self.psi(m, y) for m, y in zip(products(X, w), self.y, strict=True)]
            g = [l1[j] * signs[k] + l2[j] * w[k] for k, j in enumerate(S)]
            H = [[l2[j] if k == n else arb(0) for n in range(len(S))] for k, j in enumerate(S)]
            for weight, row, (slope, bend) in zip(a, X, both, strict=True):
                for k in range(len(S)):
                    g[k] += weight * slope * row[k]
                    for n in range(len(S)):
                        H[k][n] += weight * bend * row[k] * row[n]
            return g, H

        found = minimiser(derivatives, [self.start[j] for j in S]) if S else []
        w = [arb(0)] * len(l1)
        for k, j in enumerate(S):
            w[j] = found[k]
            assert self.signs[j] == 0.0 or found[k] * signs[k] > 0 or l1[j] == 0
        slopes = [self.psi(m, y)[0] for m, y in zip(products(exact(self.all), w), self.y, strict=True)]
        for j in set(range(len(l1))) - set(S):
            pull = sum((weight * s * x for weight, s, x in zip(a, slopes, exact(self.all[:, j]), strict=True)), arb(0))
            assert abs(pull) < l1[j]
        return w


def held_out(X: Any, y: Any, phi: str, w: Numbers, share: float = 1.0) -> Any:
    """share sum_i phi(x_i . w + b)."""
    X = np.column_stack([X, np.ones(len(X))]) if len(w) > np.shape(X)[1] else X
    rows = zip(products(exact(X), w), exact(y), strict=True)
    return arb(share) * sum((PHI[phi](m, one) for m, one in rows), arb(0))


def softmax(
    X: list[Numbers], Y: Any, a: Numbers, l2: Any, start: Any, intercept: bool = False, l1: Any = None
) -> list[Numbers]:
    """W, K x d (or K x (d + 1), of which the last column is not penalised and that of the last class 0); l1, l2 are one
    for all classes or a list, and with an l1 the signs and zeros of W are those of `start`."""
    K, d = np.shape(start)
    l2 = l2 if isinstance(l2, list) else [l2] * K
    l1 = l1 if isinstance(l1, list) or l1 is None else [l1] * K
    free = [(k, j) for k in range(K) for j in range(d) if not (intercept and j == d - 1 and k == K - 1)]
    free = [(k, j) for k, j in free if l1 is None or start[k][j] != 0 or (intercept and j == d - 1)]

    def derivatives(w: Numbers) -> tuple[Numbers, list[Numbers]]:
        W = [[arb(0)] * d for _ in range(K)]
        for (k, j), one in zip(free, w, strict=True):
            W[k][j] = one
        ridge = [arb(0) if intercept and j == d - 1 else l2[k] for k, j in free]
        g = [r * one for r, one in zip(ridge, w, strict=True)]
        if l1 is not None:
            g = [
                one if intercept and j == d - 1 else one + l1[k] * float(np.sign(start[k][j]))
                for one, (k, j) in zip(g, free, strict=True)
            ]
        H = [[r if i == n else arb(0) for n in range(len(free))] for i, r in enumerate(ridge)]
        for weight, row, label in zip(a, X, Y, strict=True):
            e = [products([one], row)[0].exp() for one in W]
            p = [one / sum(e, arb(0)) for one in e]
            for i, (k, j) in enumerate(free):
                g[i] += weight * (p[k] - int(label == k)) * row[j]
                for n, (c, m) in enumerate(free):
                    H[i][n] += weight * p[k] * (int(k == c) - p[c]) * row[j] * row[m]
        return g, H

    found = minimiser(derivatives, [arb(float(start[k][j])) for k, j in free])
    W = [[arb(0)] * d for _ in range(K)]
    for (k, j), one in zip(free, found, strict=True):
        W[k][j] = one
    return W


def cross_entropy(X: list[Numbers], Y: Any, W: list[Numbers]) -> Any:
    """The sum over rows."""
    total = arb(0)
    for row, label in zip(X, Y, strict=True):
        m = [products([one], row)[0] for one in W]
        total += sum((one.exp() for one in m), arb(0)).log() - m[label]
    return total


def denoised(y: Any, alpha: Any, eps_l2: Any, eps_tv: Any, start: Any) -> Numbers:
    """argmin ||x - y||^2 / 2 + alpha sum_i sqrt((x_i - x_{i-1})^2 + eps_tv^2) + eps_l2 ||x||^2 / 2, without an edge."""
    y, n = exact(y), len(y)

    def derivatives(x: Numbers) -> tuple[Numbers, list[Numbers]]:
        g = [(1 + eps_l2) * one - data for one, data in zip(x, y, strict=True)]
        H = [[1 + eps_l2 if i == j else arb(0) for j in range(n)] for i in range(n)]
        for i in range(1, n):
            d = x[i] - x[i - 1]
            eta = (d * d + eps_tv * eps_tv).sqrt()
            slope, bend = alpha * d / eta, alpha * eps_tv * eps_tv / eta**3
            g[i] += slope
            g[i - 1] -= slope
            for j, k, sign in ((i, i, 1), (i - 1, i - 1, 1), (i, i - 1, -1), (i - 1, i, -1)):
                H[j][k] += sign * bend
        return g, H

    return minimiser(derivatives, exact(start))
