r"""The cross-validated loss F of elastic nets with squares, log loss or Poisson deviance, exact, by code of its own.

A fold's weights minimise  Phi(w, b) = mean_i psi(x_i . w + b, y_i) + (l2/2) ||w||^2 + l1 ||w||_1.  A step is Newton's
on the face of the weights that are not zero, and of zeros whose gradient says that they should not be (where Newton
would send one of these to the wrong side it stays zero). What would change its sign becomes zero, and steps are halved
until Phi decreases as it should; where it does not, the best of these is taken, or the least Phi on the straight line,
where a weight often becomes zero. It ends when Newton promises less than DECREMENT of Phi. Faces with more weights than
rows are solved by way of the rows. Where there is no l2 a tiny one stands in, so that there is one solution only; on
collinear columns that changes F by up to 1e-5 of it. Along a path, every solution is where the next begins.

F is the mean over folds of the mean held-out loss: (m - y)^2, log(1 + exp(-y m)), or the unit Poisson deviance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import scipy.linalg as la
from scipy.optimize import bisect, minimize, minimize_scalar
from scipy.special import expit, xlogy

DECREMENT = 1e-15
STEPS, HALVINGS = 300, 4
ENOUGH, ROUNDING = 0.1, 1e-14  # of what Newton promises, and of Phi
TINY = 1e-300
FLOOR, OF_L1 = 1e-13, 1e-9  # of the curvature, and of that times l1 / l1_max: the l2 that stands for none is the less
BY_ROWS = 1e-10  # of the curvature: with a smaller l2, solving by way of the rows loses too many digits
STEP = np.array([0.25, 0.5])  # decades of l1 and of l2 from one place of a map to the next
# The map is denser around so many places that are so good, and searches begin at so many of them, so many decades apart
DENSER, NEARLY, STARTS, APART = 30, 1.03, 4, 0.7


@dataclass(frozen=True)
class Psi:
    """A loss of margins: `value` is not negative, `held_out` times it is what F is made of."""

    value: Callable[[Any, Any], Any]
    first: Callable[[Any, Any], Any]
    second: Callable[[Any, Any], Any]
    held_out: float
    level: Callable[[Any], float]  # the margin that is best for all rows alike


def _deviance(m: Any, y: Any) -> Any:
    return xlogy(y, y) - y - y * m + np.exp(m)


LOSSES = {
    "squares": Psi(
        lambda m, y: 0.5 * (m - y) ** 2, lambda m, y: m - y, lambda m, y: np.ones_like(m), 2.0,
        lambda y: float(np.mean(y)),
    ),
    "logistic": Psi(
        lambda m, y: np.logaddexp(0.0, -y * m), lambda m, y: -y * expit(-y * m),
        lambda m, y: expit(m) * expit(-m), 1.0, lambda y: math.log(np.mean(y > 0) / np.mean(y < 0)),
    ),
    "Poisson": Psi(
        _deviance, lambda m, y: np.exp(m) - y, lambda m, y: np.exp(m), 2.0, lambda y: math.log(np.mean(y)),
    ),
}  # fmt: skip


@dataclass(eq=False)
class Fold:
    """Rows to learn from, (X, y), and rows held out, (T, z)."""

    X: Any
    y: Any
    T: Any
    z: Any
    psi: Psi

    @cached_property
    def start(self) -> tuple[Any, float]:
        return np.zeros(self.X.shape[1]), self.psi.level(self.y)

    @cached_property
    def l1_max(self) -> float:
        w, b = self.start
        return float(np.abs(self.X.T @ self.psi.first(b + self.X @ w, self.y)).max()) / len(self.y)

    @cached_property
    def curvature(self) -> float:
        """The largest of Phi without penalties, where all weights are zero."""
        _, b = self.start
        C = self.psi.second(np.full(len(self.y), b), self.y)
        centred = self.X - self.X.mean(axis=0)
        return float(np.linalg.norm(centred * np.sqrt(C / len(C))[:, None], 2)) ** 2

    def held_out(self, w: Any, b: float) -> float:
        with np.errstate(over="ignore"):
            return self.psi.held_out * float(np.mean(self.psi.value(self.T @ w + b, self.z)))

    def _newton(self, C: Any, S: Any, u: Any, of_b: float, l2: float) -> tuple[Any, float]:
        """The minimiser over weights in S and b of the quadratic with gradient (u, of_b) and the Hessian of C."""
        XS = self.X[:, S]
        total = float(C.sum())
        mean = C @ XS / total
        B = (XS - mean) * np.sqrt(C)[:, None]
        r = mean * of_b - u
        n, s = B.shape
        if s > n and l2 > BY_ROWS * self.curvature:
            K = B @ B.T
            K[np.diag_indices(n)] += l2
            factor = la.cho_factor(K, check_finite=False)

            def solve(r: Any) -> Any:
                return (r - B.T @ la.cho_solve(factor, B @ r, check_finite=False)) / l2

            d = solve(r)
            d = d + solve(r - l2 * d - B.T @ (B @ d))
        else:
            H = B.T @ B
            size = float(np.trace(H)) / max(s, 1) + l2
            for ridge in (0.0, 1e-15, 1e-13, 1e-11, 1e-9):
                H[np.diag_indices(s)] += l2 if ridge == 0.0 else ridge * size
                try:
                    d = la.cho_solve(la.cho_factor(H, check_finite=False), r, check_finite=False)
                    break
                except la.LinAlgError:
                    continue
            else:
                d = r / size
        return d, (-of_b - float((C @ XS) @ d)) / total

    def solve(self, l1: float, l2: float, start: tuple[Any, float] | None = None) -> tuple[Any, float, bool]:
        """Weights, intercept, and whether they are as good as arithmetic has them."""
        w, b = self.start if start is None else start
        X, y, psi, n = self.X, self.y, self.psi, len(self.y)

        def height(w: Any, m: Any) -> float:
            value = float(np.mean(psi.value(m, y))) + 0.5 * l2 * float(w @ w) + l1 * float(np.abs(w).sum())
            return value if math.isfinite(value) else math.inf

        with np.errstate(over="ignore", invalid="ignore"):
            m = X @ w + b
            phi = height(w, m)
            for _ in range(STEPS):
                p = psi.first(m, y) / n
                g, of_b, C = X.T @ p + l2 * w, float(p.sum()), psi.second(m, y) / n
                zero = w == 0.0
                over = np.where(zero, np.abs(g) - l1, 0.0)
                new = over > 1e-6 * l1
                most = max(10, int((~zero).sum()) // 2) if l1 > 0.0 else len(w)
                if new.sum() > most:
                    new[np.argsort(-over)[most:]] = False
                S = np.flatnonzero(~zero | new)
                sign = np.where(zero, -np.sign(g), np.sign(w))
                while True:
                    u = g[S] + l1 * sign[S]
                    d, e = self._newton(C, S, u, of_b, l2)
                    wrong = zero[S] & (d * sign[S] <= 0.0) if l1 > 0.0 else np.zeros(len(S), dtype=bool)
                    if not wrong.any():
                        break
                    S = S[~wrong]
                promised = -float(u @ d) - of_b * e
                if not promised > DECREMENT * phi + TINY:
                    return w, b, promised >= -1e-8 * phi
                step = np.zeros_like(w)
                step[S] = d
                found = self._along(w, b, m, step, e, sign, l1, l2, phi, promised, height)
                if found is None:  # rounding hides what is left
                    return w, b, promised <= 1e-9 * phi
                w, b, m, phi = found
        return w, b, False

    def _along(
        self, w: Any, b: float, m: Any, d: Any, e: float, sign: Any, l1: float, l2: float, phi: float, promised: float,
        height: Callable[[Any, Any], float],
    ) -> Any:  # fmt: skip
        """(w, b, margins, Phi) after a step that decreases Phi, or None."""
        found = []
        for t in 0.5 ** np.arange(HALVINGS):
            there = w + t * d
            if l1 > 0.0:
                there[there * sign < 0.0] = 0.0
            margins = self.X @ there + b + t * e
            found.append((height(there, margins), there, b + t * e, margins))
            if found[-1][0] < phi - ENOUGH * t * promised:
                break
        else:
            t, there = self._lowest(w, m, d, self.X @ d + e, l1, l2)
            margins = self.X @ there + b + t * e
            found.append((height(there, margins), there, b + t * e, margins))
        value, there, b, margins = min(found, key=lambda one: one[0])
        if value < phi or (value <= phi * (1.0 + ROUNDING) and np.sum(there == 0.0) > np.sum(w == 0.0)):
            return there, b, margins, value
        return None

    def _lowest(self, w: Any, m: Any, d: Any, md: Any, l1: float, l2: float) -> tuple[float, Any]:
        """Where Phi is least on the line from w to w + d: t and the weights, of which one may have become zero."""
        crossing = np.flatnonzero(w * d < 0.0)
        at = -w[crossing] / d[crossing]
        order = np.argsort(at)
        ends = np.array([0.0, *at[order], math.inf])
        ends = np.minimum(ends[: np.searchsorted(ends, 1.0) + 1], 1.0)

        def slope(t: float, i: int) -> float:
            """With signs as they are between the ends i and i + 1."""
            there = w + 0.5 * (ends[i] + ends[i + 1]) * d
            smooth = float(self.psi.first(m + t * md, self.y) @ md) / len(self.y) + l2 * float((w + t * d) @ d)
            return smooth + l1 * float(np.sign(there) @ d)

        low, high = 0, len(ends) - 2
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if not slope(ends[middle + 1], middle) < 0.0 else (middle + 1, high)
        start, end = float(ends[low]), float(ends[low + 1])
        if low > 0 and not slope(start, low) < 0.0:
            there = w + start * d
            there[crossing[order[low - 1]]] = 0.0
            return start, there
        t = start if not slope(start, low) < 0.0 else end
        if slope(start, low) < 0.0 < slope(end, low):
            t = float(bisect(slope, start, end, args=(low,), xtol=1e-6 * end))
        return t, w + t * d


Place = tuple[float, float]


@dataclass(eq=False)
class Folds:
    """F of all folds at any penalties; solutions are kept, and the nearest one is where the next begins."""

    folds: list[Fold]
    known: dict[Place, tuple[list[tuple[Any, float]], Any, bool]] = field(default_factory=dict)

    @classmethod
    def of(cls, X: Any, y: Any, splits: Sequence[tuple[Any, Any]], loss: str) -> Folds:
        return cls([Fold(X[a], y[a], X[b], y[b], LOSSES[loss]) for a, b in splits])

    @cached_property
    def l1_max(self) -> float:
        return max(fold.l1_max for fold in self.folds)

    @cached_property
    def curvature(self) -> float:
        return max(fold.curvature for fold in self.folds)

    def losses(self, l1: float, l2: float, near: Place | None = None) -> Any:
        """The held-out loss of every fold; begins at the solutions of `near`, or of the nearest penalties known."""
        place = l1, l2
        floor = self.curvature * min(FLOOR, OF_L1 * l1 / self.l1_max)
        if place not in self.known:
            near = min(self.known, key=lambda other: _apart(place, other), default=None) if near is None else near
            starts = [None] * len(self.folds) if near is None else self.known[near][0]
            made = [fold.solve(l1, max(l2, floor), start) for fold, start in zip(self.folds, starts, strict=True)]
            each = np.array([fold.held_out(w, b) for fold, (w, b, _) in zip(self.folds, made, strict=True)])
            self.known[place] = [(w, b) for w, b, _ in made], each, all(well for *_, well in made)
        return self.known[place][1]

    def descended(self, l1: float, l2: float) -> Any:
        """The same, by way of larger penalties."""
        near = None
        times = max(min(self.l1_max / max(l1, TINY), self.curvature / max(l2, TINY)), 1.0)
        for t in np.arange(math.log10(times), 0.0, -0.1):
            there = l1 * 10.0**t, l2 * 10.0**t
            self.losses(*there, near)
            near = there
        return self.losses(l1, l2, near)

    def mean(self, l1: float, l2: float, near: Place | None = None) -> float:
        """F, or infinity where a model has not come to its end: it may do better than an exact one."""
        value = float(np.mean(self.losses(l1, l2, near)))
        return value if math.isfinite(value) and self.known[l1, l2][2] else math.inf


def _apart(a: Place, b: Place) -> float:
    return sum(abs(math.log10(max(x, 1e-14) / max(y, 1e-14))) for x, y in zip(a, b, strict=True))


def best_of_one(
    folds: Folds, pair: Callable[[float], Place], decades: tuple[float, float], inside: tuple[float, float]
) -> dict[str, Any]:
    """The least F along a path and where; `pair(t)` are the penalties at t decades. From the upper end down, ten places
    a decade, then 25 a decade where F is within 5 % of its least, then golden section in the best four valleys; the
    same again of the part of the path that lies `inside`."""
    heights: dict[float, float] = {}
    near = None
    for t in np.arange(decades[1], decades[0] - 1e-9, -0.1).tolist():
        heights[t] = folds.mean(*pair(t), near)
        near = pair(t)
    good = [t for t in heights if heights[t] <= 1.05 * min(heights.values())]
    for t in good:
        for other in (t + np.arange(-0.08, 0.081, 0.04)).tolist():
            if decades[0] <= other <= decades[1]:
                heights[other] = folds.mean(*pair(other), pair(t))

    def least(low: float, high: float) -> tuple[float, Place]:
        ends = [t for t in (low, high) if decades[0] <= t <= decades[1]]
        ts = sorted({*ends, *(t for t in heights if low <= t <= high)})
        F = [folds.mean(*pair(t)) for t in ts]
        valleys = [i for i in range(len(ts)) if F[i] <= min(F[max(i - 1, 0)], F[min(i + 1, len(ts) - 1)])]
        best = min(zip(F, ts, strict=True))
        for i in sorted(valleys, key=F.__getitem__)[:4]:
            found = minimize_scalar(
                lambda t, i=i: folds.mean(*pair(t), pair(ts[i])), method="bounded",
                bounds=(ts[max(i - 1, 0)], ts[min(i + 1, len(ts) - 1)]), options={"xatol": 1e-3, "maxiter": 20},
            )  # fmt: skip
            best = min(best, (float(found.fun), float(found.x)))
        return best[0], pair(best[1])

    return _found(folds, least(*decades), least(max(decades[0], inside[0]), min(decades[1], inside[1])))


def _found(folds: Folds, anywhere: tuple[float, Place], inside: tuple[float, Place]) -> dict[str, Any]:
    anywhere = min(anywhere, inside)
    each = folds.losses(*anywhere[1])
    return {
        "F": anywhere[0], "at": anywhere[1], "se": float(np.std(each, ddof=1)) / math.sqrt(len(each)),
        "F inside": inside[0], "at inside": inside[1],
        "places": len(folds.known), "unfinished": sum(not well for *_, well in folds.known.values()),
    }  # fmt: skip


def best_of_two(folds: Folds, inside: tuple[float, float]) -> dict[str, Any]:
    """The least F over l1 and l2, and where: a map, lines of constant l2 along which l1 falls, from l1 alone to l2
    alone, and Nelder and Mead's search from its best valleys; the same again of l1 and l2 that both lie `inside`."""
    wide = (1e-8 * folds.l1_max, folds.l1_max), (1e-10 * folds.curvature, 1e2 * folds.curvature)
    below = (*np.arange(0.0, 4.1, STEP[0]), 5.0, 6.0, 8.0), (*np.arange(0.0, 10.1, STEP[1]), 12.0)
    lines = [
        sorted({*(float(high * 10.0**-t) for t in ts), *(end for end in inside if low < end < high)}, reverse=True)
        for (low, high), ts in zip(wide, below, strict=True)
    ]
    before: Place | None = None
    for l2 in lines[1]:
        near = before
        for l1 in lines[0]:
            folds.mean(l1, l2, near)
            near = l1, l2
        before = lines[0][0], l2

    def least(*ends: Place) -> tuple[float, Place]:
        low, high = np.log10(np.array(ends)).T

        def place(x: Any) -> Place:
            l1, l2 = 10.0 ** np.clip(x, low, high)
            return float(l1), float(l2)

        def seen() -> list[tuple[float, Place]]:
            """From the lowest up."""
            return sorted((folds.mean(*at), at) for at in folds.known if _apart(place(np.log10(at)), at) < 1e-9)

        def good() -> list[tuple[float, Place]]:
            (best, _), *_ = known = seen()
            return [(value, at) for value, at in known if value <= NEARLY * best]

        for _, at in good()[:DENSER]:
            for move in product((-0.5, 0.0, 0.5), repeat=2):
                folds.mean(*place(np.log10(at) + np.array(move) * STEP), at)
        starts: list[Place] = []
        for _, at in good():
            if all(_apart(at, other) > APART for other in starts):
                starts.append(at)
        for at in starts[:STARTS]:
            x = np.log10(at)
            steps = np.where(x + STEP > high, -0.6, 0.6) * STEP
            minimize(
                lambda x: folds.mean(*place(x)), x, method="Nelder-Mead",
                options={"initial_simplex": x + np.vstack([np.zeros(2), np.diag(steps)]), "maxfev": 60, "xatol": 2e-3},
            )  # fmt: skip
        return seen()[0]

    within = [(max(low, inside[0]), min(high, inside[1])) for low, high in wide]
    return _found(folds, least(*wide), least(*within))
