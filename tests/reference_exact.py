r"""Minimisers enclosed to forty digits and more, by ball arithmetic (python-flint).

Phi(w) = min_r F(w, r) + g(w): F is smooth, jointly convex and mu-strongly convex in w; r holds an intercept, a scale or
whatever else is minimised out, and is empty most of the time. g is a sum of convex piecewise linear functions of one
variable each (l1, weighted l1, box), or of norms of groups. A prox-Newton method in a few hundred bits finds (w, r),
its model minimised by an active-set method. None of that has to be trusted: with u in dPhi(w, r), evaluated in balls,
and |r_hat - r| <= B known beforehand from the data, however coarsely,

    mu/2 ||w - w_hat||^2  <=  ||u_w|| ||w - w_hat|| + sum_k |u_k| B_k                                     (enclosure)

bounds ||w - w_hat|| rigorously. Precision is doubled until that is 1e-40 of ||w||. Data are taken as the float64
numbers that a `Composite` holds, its weights a_i included, and are exact. Nothing of the package's arithmetic is used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from flint import arb, arb_mat

from suffice import terms
from suffice.arrays import host
from suffice.models.intercept import Intercepted
from suffice.models.multinomial import Multinomial
from suffice.models.smooth import Ridged
from suffice.rows.sums import Chosen
from tests import reference
from tests.reference_balls import (
    EXACT,
    ZERO,
    Huber,
    Linear,
    Logistic,
    Poisson,
    Softmax,
    Squared,
    SquaredHinge,
    column,
    norm,
    precision,
    total,
)
from tests.reference_families import family_of

PRECISIONS = (192, 448, 1024, 2304, 5000)  # bits
DIGITS = 40


class NotEnclosedError(ArithmeticError):
    """The minimiser was not found to the digits wanted."""


def dense(X: Any) -> Any:
    """Any design matrix as a NumPy array in float64."""
    if isinstance(X, terms.RowBlocks):
        X = np.concatenate([block for _, block in X.blocks()])
    return np.asarray(X.toarray() if sp.issparse(X) else host(X), dtype=np.float64)


# Terms g of w; variables r are free.


@dataclass(frozen=True)
class Kinked:
    """sum_j g_j(w_j), g_j linear between its kinks, with slopes that increase from -inf or a number to inf or one."""

    kinks: Sequence[Sequence[Any]]
    slopes: Sequence[Sequence[Any]]

    @classmethod
    def l1(cls, weights: Any) -> Kinked:
        weights = [arb(float(weight)) for weight in weights]
        return cls(
            [[ZERO] if weight > 0 else [] for weight in weights], [[-w, w] if w > 0 else [ZERO] for w in weights]
        )

    @classmethod
    def box(cls, lower: Any, upper: Any) -> Kinked:
        inf, kinks, slopes = arb("inf"), [], []
        for low, high in zip(lower, upper, strict=True):
            kinks.append([arb(float(bound)) for bound in sorted({low, high}) if math.isfinite(bound)])
            below, above = [-inf] * math.isfinite(low), [inf] * math.isfinite(high)
            slopes.append([*below, *[ZERO] * int(low < high), *above])
        return cls(kinks, slopes)

    def projected(self, x: Sequence[Any]) -> list[Any]:
        """x, with what is outside the domain moved to its boundary."""
        result = list(x)
        for j, (kinks, slopes) in enumerate(zip(self.kinks, self.slopes, strict=True)):
            if kinks and not slopes[0].is_finite():
                result[j] = max(result[j], kinks[0])
            if kinks and not slopes[-1].is_finite():
                result[j] = min(result[j], kinks[-1])
        return result

    def place(self, j: int, value: Any) -> tuple[int, bool]:
        """(number of the kink, True) at a kink, else (number of the piece, False)."""
        for k, kink in enumerate(self.kinks[j]):
            if value == kink:
                return k, True
            if value < kink:
                return k, False
        return len(self.kinks[j]), False

    def value(self, w: Any) -> Any:
        """g(w), relative to g at the first kinks."""
        result = ZERO
        for j, part in enumerate(w):
            kinks, slopes = self.kinks[j], self.slopes[j]
            k, at = self.place(j, part)
            if not at and not slopes[k].is_finite():
                return arb("inf")
            ends = [kinks[0], *kinks[1:k], part] if k > 0 else [part, *kinks[:1]]
            for n, (left, right) in enumerate(itertools.pairwise(ends)):
                result += (slopes[n + 1] if k > 0 else -slopes[0]) * (right - left) if right != left else ZERO
        return result

    def shortest(self, w: Any, gradient: Any) -> list[Any]:
        """The shortest element of gradient + dg(w), in balls."""
        u = []
        for j, part in enumerate(w):
            k, at = self.place(j, part)
            if at:
                low, high = gradient[j] + self.slopes[j][k], gradient[j] + self.slopes[j][k + 1]
                u.append(high.min(ZERO) + low.max(ZERO))
            else:
                u.append(gradient[j] + self.slopes[j][k])
        return u


@dataclass(frozen=True)
class Groups:
    """sum_G weight_G ||w_G||."""

    groups: Sequence[Any]
    weights: Sequence[Any]

    def shortest(self, w: Any, gradient: Any) -> list[Any]:
        u = list(gradient)
        for G, weight in zip(self.groups, self.weights, strict=True):
            size = norm([w[j] for j in G])
            pull = norm([gradient[j] for j in G])
            for j in G:
                if size > 0:
                    u[j] = gradient[j] + arb(float(weight)) * w[j] / size
                else:
                    u[j] = ZERO if pull <= arb(float(weight)) else gradient[j] * (1 - arb(float(weight)) / pull)
        return u


@dataclass(frozen=True)
class Enclosure:
    """||x - x_hat|| <= error for the exact numbers x."""

    x: list[Any] = field(repr=False)
    error: Any
    bits: int

    def distance(self, x: Any) -> Any:
        """A lower bound on ||x - x_hat||, tight to all digits of the enclosure."""
        with precision(self.bits):
            gap = norm([arb(float(part)) - exact for part, exact in zip(x, self.x, strict=True)])
            return max((gap - self.error).lower(), ZERO)

    def rounded(self) -> Any:
        """x_hat in float64."""
        return np.array([float(part) for part in self.x])

    def size(self) -> float:
        return float(norm(self.x).abs_upper())


def enclose(F: Any, g: Any, digits: int = DIGITS, start: Any = None) -> Enclosure:
    """The minimiser of F + g."""
    x = list(F.start if start is None else start)
    x = g.projected(x) if isinstance(g, Kinked) else x
    for bits in PRECISIONS:
        with precision(bits):
            try:
                x = _polished(F, g, x, bits) if isinstance(g, Groups) else _minimised(F, g, x, bits)
                error = _error(F, g, x)
            except ZeroDivisionError:  # a matrix that is singular to so many bits
                continue
            # Where the minimiser is 0 the gradient says what is small.
            pull = norm(F.gradient(x)[: F.width]) / F.mu * arb(10) ** -20
            size = max(norm(x[: F.width]).mid(), pull.mid())
            if error <= size * arb(10) ** -digits or (size == 0 and bits == PRECISIONS[-1]):
                return Enclosure(x[: F.width], error, bits)
    raise NotEnclosedError(f"no enclosure of {digits} digits")


def _error(F, g, x):
    """(enclosure) of the module's text, solved for ||w - w_hat||."""
    gradient = F.gradient(x)
    u = norm([part.abs_upper() for part in g.shortest(x[: F.width], gradient[: F.width])])
    rest = total(abs(part) * far for part, far in zip(gradient[F.width :], F.far(x), strict=True))
    return ((u + (u * u + 2 * F.mu * rest).abs_upper().sqrt()) / F.mu).abs_upper()


def _minimised(F, g, x, bits):
    """Prox-Newton with a line search, until full steps no longer shorten."""
    free = Kinked([*g.kinks, *[[]] * F.rest], [*g.slopes, *[[ZERO]] * F.rest])
    noise, last = arb(2) ** (40 - bits), None
    for _ in range(300):
        gradient, H = [part.mid() for part in F.gradient(x)], F.hessian(x).mid()
        target = _model_minimiser(free, gradient, H, x, bits)
        step = [there - here for there, here in zip(target, x, strict=True)]
        length = norm(step).mid()
        if length <= noise * norm(x) or length == 0:
            return target
        before = (F.value(x) + free.value(x)).mid()
        gain = total(p * q for p, q in zip(gradient, step, strict=True)) + free.value(target) - free.value(x)
        if abs(gain) <= noise * abs(before):  # values can no longer tell
            if last is not None and length >= last / 2:
                return x
            x, last = target, length
            continue
        t = arb(1)
        for _ in range(200):
            trial = target if t == 1 else [(here + t * part).mid() for here, part in zip(x, step, strict=True)]
            if F.value(trial) + free.value(trial) <= before + t * gain / 10000:
                x = trial
                break
            t = t / 2
        else:
            return x
    return x


def _model_minimiser(g, c, H, x, bits):
    """argmin over v of <c, v - x> + (v - x) . H (v - x) / 2 + g(v), by an active-set method from x."""
    v, places = list(x), [g.place(j, part) for j, part in enumerate(x)]
    noise = arb(2) ** (-(bits * 3) // 4)
    for _ in range(60 * len(x)):
        moved = (H * column([a - b for a, b in zip(v, x, strict=True)])).entries()
        slope = [(a + b).mid() for a, b in zip(c, moved, strict=True)]
        free = [j for j, (_, at) in enumerate(places) if not at]
        if free:
            system = arb_mat(len(free), len(free), [H[i, j] for i in free for j in free])
            pulls = column([-(slope[j] + g.slopes[j][places[j][0]]) for j in free])
            step = [part.mid() for part in system.solve(pulls).entries()]
            t, blocking = arb(1), None
            for j, part in zip(free, step, strict=True):
                k, towards = places[j][0], 0 if part > 0 else -1
                if part == 0 or not 0 <= k + towards < len(g.kinks[j]):
                    continue
                ratio = ((g.kinks[j][k + towards] - v[j]) / part).mid()
                if ratio < t:
                    t, blocking = ratio, (j, k + towards)
            for j, part in zip(free, step, strict=True):
                v[j] = (v[j] + t * part).mid()
            if blocking is not None:
                j, k = blocking
                v[j], places[j] = g.kinks[j][k], (k, True)
                continue
            moved = (H * column([a - b for a, b in zip(v, x, strict=True)])).entries()
            slope = [(a + b).mid() for a, b in zip(c, moved, strict=True)]
        worst, released = ZERO, None
        for j, (k, at) in enumerate(places):
            if not at:
                continue
            low, high = g.slopes[j][k] + slope[j], g.slopes[j][k + 1] + slope[j]
            scale = abs(slope[j]) + abs(c[j])
            for violation, piece in ((low, k), (-high, k + 1)):
                if violation > noise * scale and violation > worst:
                    worst, released = violation.mid(), (j, piece)
        if released is None:
            return v
        places[released[0]] = (released[1], False)
    return v


def _polished(F, g, x, bits):
    """Newton's method on the groups that are not zero."""
    for _ in range(60):
        gradient = F.gradient(x)
        u = [part.mid() for part in g.shortest(x, gradient)]
        H = F.hessian(x).mid()
        zero = set()
        for G, weight in zip(g.groups, g.weights, strict=True):
            size = norm([x[j] for j in G]).mid()
            if size == 0:
                zero |= {int(j) for j in G}
                continue
            for i in G:
                for j in G:
                    H[i, j] += arb(float(weight)) / size * ((i == j) - x[i] * x[j] / (size * size))
        free = [j for j in range(len(x)) if j not in zero]
        if not free:
            return x
        system = arb_mat(len(free), len(free), [H[i, j].mid() for i in free for j in free])
        step = system.solve(column([-u[j] for j in free])).entries()
        for j, part in zip(free, step, strict=True):
            x[j] = (x[j] + part).mid()
        if norm(step) <= norm(x) * arb(2) ** (40 - bits):
            break
    return x


# The problems of the package, by what they state.


def stated(problem: Any) -> tuple[Any, Any]:
    """(F, g) of a `Composite` whose terms are the package's."""
    smooth: Any = problem.smooth
    ridge: Any = 0.0
    if isinstance(smooth, Ridged):
        ridge, smooth = smooth.ridge, smooth.term
    F: Any
    X, a = dense(smooth.design.X), smooth.design.weights
    a = [float(part) for part in (a.at(slice(0, len(X))) if isinstance(a, Chosen) else host(a))]
    g, of_prox = stated_term(problem.prox, problem.size)
    # Sums of two floats are made in balls: l2 + ridge is not a float.
    l2 = np.broadcast_to(smooth.l2, problem.size)
    if isinstance(smooth, Multinomial):
        F = Softmax(X, np.eye(smooth.classes)[np.asarray(smooth.y, dtype=int)], a, l2, smooth.intercept)
        ridges = F.l2
    else:
        offset = getattr(smooth, "offset", None)
        F = Linear(X, smooth.design.here(smooth.y), a, psi_of(smooth.loss), l2, isinstance(smooth, Intercepted), offset)
        ridges = F.l2
    with precision(EXACT):
        for j in range(F.width):
            ridges[j] += arb(float(np.broadcast_to(ridge, F.width)[j])) + arb(of_prox)
    F.mu = min(ridges[: F.width])
    return F, g


def stated_term(prox: Any, size: int) -> tuple[Any, float]:
    """g, and the ridge that an elastic net moves into F."""
    if isinstance(prox, terms.ElasticNet):
        return Kinked.l1([prox.l1] * size), prox.l2
    if isinstance(prox, terms.Zero):
        return Kinked.l1([0.0] * size), 0.0
    if isinstance(prox, terms.Box):
        return Kinked.box(np.broadcast_to(prox.lower, size), np.broadcast_to(prox.upper, size)), 0.0
    if isinstance(prox, terms.BoxL1):
        return bounded_l1(*(np.broadcast_to(one, size) for one in (prox.l1, prox.lower, prox.upper))), 0.0
    if isinstance(prox, terms.Group):
        return Groups([[int(j) for j in np.asarray(G)] for G in prox.groups], list(np.asarray(prox.weights))), 0.0
    return Kinked.l1(np.broadcast_to(prox.l1, size)), 0.0


def bounded_l1(l1: Any, lower: Any, upper: Any) -> Kinked:
    inf, kinks, slopes = arb("inf"), [], []
    for weight, low, high in zip(l1, lower, upper, strict=True):
        inner = [ZERO] if weight > 0 or low == 0 or high == 0 else []
        ends = [arb(float(end)) for end in (low, high) if math.isfinite(end) and end != 0]
        kinks.append(sorted([*inner, *ends], key=float))
        below, above = [-inf] * math.isfinite(low), [inf] * math.isfinite(high)
        w = arb(float(weight))
        middle = [-w] * int(low < 0 and weight > 0) + [w] * int(high > 0)
        slopes.append([*below, *(middle if weight > 0 else [ZERO]), *above])
    return Kinked(kinks, slopes)


def psi_of(loss: Any) -> Any:
    name, family = type(loss).__name__, family_of(loss)
    if family is not None:
        return family
    if name == "Huber":
        return Huber(loss.delta)
    return {"Squared": Squared, "Logistic": Logistic, "Poisson": Poisson, "SquaredHinge": SquaredHinge}[name]()


def truth(problem: Any, digits: int = DIGITS) -> Enclosure:
    """The minimiser of a `Composite` of the package's own terms."""
    F, g = stated(problem)
    return enclose(F, g, digits, _start_of_groups(problem) if isinstance(g, Groups) else None)


def _start_of_groups(problem: Any) -> list[Any]:
    """Which groups are zero, and about where the others are, in extended precision."""
    smooth, prox = problem.smooth, problem.prox
    psi = {"Squared": "squared", "Logistic": "logistic", "Huber": "huber"}[type(smooth.loss).__name__]
    f = reference.Margins(dense(smooth.design.X), host(smooth.y), host(smooth.design.weights), psi, smooth.l2)
    g = reference.GroupNorms(prox.groups, prox.weights)
    x, _ = reference.minimise(f, g, problem.mu, problem.L, problem.size)
    return [arb(float(part)) for part in x]
