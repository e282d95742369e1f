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

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from flint import arb, arb_mat, ctx

from suffice import terms
from suffice._array import host
from suffice.terms.concomitant import ConcomitantHuber
from suffice.terms.intercept import Intercepted
from suffice.terms.smooth import Ridged
from tests import reference

PRECISIONS = (192, 448, 1024, 2304, 5000)  # bits
EXACT = 2200  # bits, in which sums and small multiples of floats are exact
DIGITS = 40
ZERO = arb(0)


class NotEnclosedError(ArithmeticError):
    """The minimiser was not found to the digits wanted."""


@contextmanager
def precision(bits: int) -> Iterator[None]:
    before, ctx.prec = ctx.prec, bits
    try:
        yield
    finally:
        ctx.prec = before


def times(count: int, number: float) -> Any:
    """The exact product: the weight of so many equal rows."""
    with precision(EXACT):
        return count * arb(number)


def total(parts: Any) -> Any:
    return sum(parts, ZERO)


def norm(x: Any) -> Any:
    return total(part * part for part in x).sqrt() if any(not part.is_zero() for part in x) else ZERO


def column(x: Any) -> Any:
    return arb_mat(len(x), 1, x)


def dense(X: Any) -> Any:
    """Any design matrix as a NumPy array in float64."""
    if isinstance(X, terms.RowBlocks):
        X = np.concatenate([block for _, block in X.blocks()])
    return np.asarray(X.toarray() if sp.issparse(X) else host(X), dtype=np.float64)


# Losses psi(m, y): value, derivative, second derivative (any element of it at a kink), infimum over m.


class Squared:
    def value(self, m, y):
        return (m - y) * (m - y) / 2

    def slope(self, m, y):
        return m - y

    def bend(self, m, y):
        return arb(1)

    def infimum(self, y):
        return ZERO

    def largest_shift(self, a, y, reach):
        """|b| <= this for the b that minimises sum_i a_i psi(m_i + b, y_i), if |m_i| <= reach."""
        return reach + max((part.abs_upper() for part in y), default=ZERO)


class Logistic:
    def value(self, m, y):
        return (-(y * m)).exp().log1p()

    def slope(self, m, y):
        return -y / (1 + (y * m).exp())

    def bend(self, m, y):
        e = (-abs(m.mid())).exp()
        return e / ((1 + e) * (1 + e))

    def infimum(self, y):
        return ZERO

    def largest_shift(self, a, y, reach):
        shares = [total(weight for weight, label in zip(a, y, strict=True) if label == sign) for sign in (-1, 1)]
        return reach + max((2 / share).log().abs_upper() for share in shares)


class Huber:
    def __init__(self, delta):
        self.delta = arb(delta)

    def value(self, m, y):
        size = abs(m - y)
        return size * size / 2 if size <= self.delta else self.delta * (size - self.delta / 2)

    def slope(self, m, y):
        return (m - y).max(-self.delta).min(self.delta)

    def bend(self, m, y):
        return arb(1 if abs(m - y) <= self.delta else 0)

    def infimum(self, y):
        return ZERO


class SquaredHinge:
    def value(self, m, y):
        return (1 - y * m).max(ZERO) ** 2

    def slope(self, m, y):
        return -2 * y * (1 - y * m).max(ZERO)

    def bend(self, m, y):
        return arb(2 if 1 - y * m > 0 else 0)

    def infimum(self, y):
        return ZERO


class Poisson:
    def value(self, m, y):
        return m.exp() - y * m

    def slope(self, m, y):
        return m.exp() - y

    def bend(self, m, y):
        return m.exp()

    def infimum(self, y):
        return y - y * y.log() if y > 0 else ZERO

    def largest_shift(self, a, y, reach):
        return reach + total(weight * count for weight, count in zip(a, y, strict=True)).log().abs_upper()


# Smooth parts F(w, r).


class Linear:
    """sum_i a_i psi(x_i . w + b, y_i) + sum_j l2_j w_j^2 / 2, b = 0 or minimised out. Equal rows are one, with the sum
    of their weights: a_i may be balls or rationals."""

    def __init__(self, X, y, a, psi, l2, intercepted=False):
        counts = [i for i, weight in enumerate(a) if weight != 0]
        rows = [[arb(float(entry)) for entry in X[i]] + [arb(1)] * intercepted for i in counts]
        self.width, self.rest = len(X[0]), int(intercepted)
        self.X = arb_mat(len(rows), self.width + self.rest, [entry for row in rows for entry in row])
        self.XT = self.X.transpose()
        self.y, self.a, self.psi = [arb(float(y[i])) for i in counts], [arb(a[i]) for i in counts], psi
        self.l2 = [arb(float(part)) for part in np.broadcast_to(l2, self.width)] + [ZERO] * self.rest
        self.mu = min(self.l2[: self.width])
        self.start = [ZERO] * (self.width + self.rest)

    def margins(self, x):
        return (self.X * column(x)).entries()

    def value(self, x):
        rows = zip(self.a, self.margins(x), self.y, strict=True)
        loss = total(a * self.psi.value(m, y) for a, m, y in rows)
        return loss + total(l2 * part * part for l2, part in zip(self.l2, x, strict=True)) / 2

    def gradient(self, x):
        rows = zip(self.a, self.margins(x), self.y, strict=True)
        pulls = (self.XT * column([a * self.psi.slope(m, y) for a, m, y in rows])).entries()
        return [pull + l2 * part for pull, l2, part in zip(pulls, self.l2, x, strict=True)]

    def hessian(self, x):
        rows = list(zip(self.a, self.margins(x), self.y, strict=True))
        bends, width = [(a * self.psi.bend(m, y)).mid() for a, m, y in rows], len(x)
        entries = self.X.entries()
        bent = [bends[i] * entries[i * width + j] for i in range(len(rows)) for j in range(width)]
        H = self.XT * arb_mat(len(rows), width, bent)
        for j, l2 in enumerate(self.l2):
            H[j, j] += l2
        return H

    def far(self, x):
        """B of the module's text."""
        if not self.rest:
            return []
        at_zero = total(
            a * (self.psi.value(ZERO, y) - self.psi.infimum(y)) for a, y in zip(self.a, self.y, strict=True)
        )
        size = (2 * at_zero / self.mu).abs_upper().sqrt()  # of w_hat, since Phi(w_hat) <= Phi(0)
        rows, width = self.X.entries(), self.width + 1
        reach = max(norm(rows[i * width : i * width + self.width]) for i in range(len(self.y))) * size
        return [abs(x[-1]) + self.psi.largest_shift(self.a, self.y, reach)]


class Concomitant:
    """s/2 + sum_i a_i s h((x_i . w + b - y_i)/s) + l2 ||w||^2 / 2, r = (b, s) or (s,)."""

    def __init__(self, X, y, a, epsilon, intercepted, l2):
        self.linear = Linear(X, y, a, Squared(), l2, intercepted)
        self.width, self.rest, self.epsilon = self.linear.width, 1 + int(intercepted), arb(float(epsilon))
        self.mu = self.linear.mu
        b = total(a * y for a, y in zip(self.linear.a, self.linear.y, strict=True)) if intercepted else ZERO
        spread = total(a * (y - b) ** 2 for a, y in zip(self.linear.a, self.linear.y, strict=True))
        self.start = [*[ZERO] * self.width, *[b.mid()] * int(intercepted), spread.sqrt().mid()]

    def scaled(self, x):
        return [(m - y) / x[-1] for m, y in zip(self.linear.margins(x[:-1]), self.linear.y, strict=True)]

    def value(self, x):
        s, epsilon = x[-1], self.epsilon
        if not s > self.start[-1] * arb(2) ** -100:  # the scale of data that are fitted exactly: there is no gradient
            return arb("inf")
        sizes = [abs(z) for z in self.scaled(x)]
        h = [z * z / 2 if z <= epsilon else epsilon * (z - epsilon / 2) for z in sizes]
        ridge = total(l2 * part * part for l2, part in zip(self.linear.l2, x[:-1], strict=True)) / 2
        return s / 2 + s * total(a * part for a, part in zip(self.linear.a, h, strict=True)) + ridge

    def gradient(self, x):
        p = [z.max(-self.epsilon).min(self.epsilon) for z in self.scaled(x)]
        pulls = (self.linear.XT * column([a * part for a, part in zip(self.linear.a, p, strict=True)])).entries()
        of_s = (1 - total(a * part * part for a, part in zip(self.linear.a, p, strict=True))) / 2
        return [pull + l2 * part for pull, l2, part in zip(pulls, self.linear.l2, x[:-1], strict=True)] + [of_s]

    def hessian(self, x):
        width, rows = len(x), self.linear.X.entries()
        bent, plain = [], []
        for i, z in enumerate(self.scaled(x)):
            row = [*rows[i * (width - 1) : (i + 1) * (width - 1)], -z.mid()]
            c = (self.linear.a[i] / x[-1]).mid() if abs(z) <= self.epsilon else ZERO
            plain += row
            bent += [c * entry for entry in row]
        N = len(self.linear.y)
        H = arb_mat(N, width, plain).transpose() * arb_mat(N, width, bent)
        for j, l2 in enumerate(self.linear.l2):
            H[j, j] += l2
        for j in range(self.width, width):  # few rows inside may leave b or s undetermined
            H[j, j] += arb(2) ** -60 / x[-1]
        return H

    def far(self, x):
        at_zero = self.value(self.start)
        size = (2 * at_zero / self.mu).abs_upper().sqrt()
        rows, width = self.linear.X.entries(), self.width + self.rest - 1
        reach = max(norm(rows[i * width : i * width + self.width]) for i in range(len(self.linear.y))) * size
        largest = reach + max(abs(y) for y in self.linear.y)
        return [abs(part) + 2 * largest for part in x[self.width :]]  # |b| <= largest, s <= the largest |t|


class Softmax:
    """sum_i a_i (log sum_k exp m_ik - m_{i, y_i}) + l2 ||W||^2 / 2, m_i = W x_i + b, b_K = 0; r = (b_1 .. b_{K-1})."""

    def __init__(self, X, onehot, a, l2, intercepted):
        counts = [i for i, weight in enumerate(a) if weight > 0]
        self.rows = [[arb(float(entry)) for entry in X[i]] for i in counts]
        self.labels = [int(np.argmax(onehot[i])) for i in counts]
        self.a = [arb(a[i]) for i in counts]
        self.K, self.d = onehot.shape[1], X.shape[1]
        self.width, self.rest = self.K * self.d, (self.K - 1) * int(intercepted)
        self.l2 = [arb(float(part)) for part in np.broadcast_to(l2, self.width)]
        self.mu = min(self.l2)
        self.start = [ZERO] * (self.width + self.rest)

    def margins(self, x):
        b = [*x[self.width :], ZERO] if self.rest else [ZERO] * self.K
        W = arb_mat(self.K, self.d, x[: self.width])
        X = arb_mat(len(self.rows), self.d, [entry for row in self.rows for entry in row])
        m = (X * W.transpose()).tolist()
        return [[part + shift for part, shift in zip(row, b, strict=True)] for row in m]

    def probabilities(self, x):
        result = []
        for row in self.margins(x):
            top = max(part.mid() for part in row)
            e = [(part - top).exp() for part in row]
            result.append([part / total(e) for part in e])
        return result

    def value(self, x):
        loss = ZERO
        for a, row, label in zip(self.a, self.margins(x), self.labels, strict=True):
            top = max(part.mid() for part in row)
            loss += a * (total((part - top).exp() for part in row).log() + top - row[label])
        return loss + total(l2 * part * part for l2, part in zip(self.l2, x, strict=False)) / 2

    def gradient(self, x):
        gaps = [
            [a * (part - (k == label)) for k, part in enumerate(row)]
            for a, row, label in zip(self.a, self.probabilities(x), self.labels, strict=True)
        ]
        result = [
            total(gap[k] * row[j] for gap, row in zip(gaps, self.rows, strict=True))
            + self.l2[k * self.d + j] * x[k * self.d + j]
            for k in range(self.K)
            for j in range(self.d)
        ]
        return result + [total(gap[k] for gap in gaps) for k in range(self.rest)]

    def hessian(self, x):
        n, K, d = self.width + self.rest, self.K, self.d
        H = arb_mat(n, n)
        rows = [[*row, arb(1)] for row in self.rows]
        p = [[part.mid() for part in row] for row in self.probabilities(x)]
        places = [[*range(k * d, (k + 1) * d), *([self.width + k] if k < self.rest else [])] for k in range(K)]
        for k in range(K):
            for j in range(k + 1):
                c = [a * q[k] * ((k == j) - q[j]) for a, q in zip(self.a, p, strict=True)]
                for s, here in enumerate(places[k]):
                    for t, there in enumerate(places[j]):
                        entry = total(part * row[s] * row[t] for part, row in zip(c, rows, strict=True)).mid()
                        H[here, there] = H[there, here] = entry
        for j, l2 in enumerate(self.l2):
            H[j, j] += l2
        return H

    def far(self, x):
        if not self.rest:
            return []
        size = (2 * total(self.a) * arb(self.K).log() / self.mu).abs_upper().sqrt()
        reach = max(norm(row) for row in self.rows) * size
        shares = [total(a for a, label in zip(self.a, self.labels, strict=True) if label == k) for k in range(self.K)]
        # No gap between two neighbouring b is wider than range(m) + log(K / least share): see the module on softmax.
        gap = 2 * reach + (self.K / min(shares)).log()
        return [abs(part) + (self.K - 1) * gap.abs_upper() for part in x[self.width :]]


class Quadratic:
    """x . A x / 2 - b . x + sum_j l2_j x_j^2 / 2, mu a lower bound of its curvature."""

    rest = 0

    def __init__(self, A, b, mu, l2=0.0):
        self.width = len(b)
        self.A = arb_mat(self.width, self.width, [arb(float(entry)) for entry in np.asarray(A).ravel()])
        with precision(EXACT):
            for j, part in enumerate(np.broadcast_to(l2, self.width)):
                self.A[j, j] += arb(float(part))
        self.b, self.mu = [arb(float(part)) for part in b], arb(float(mu)) / 2
        self.start = [ZERO] * self.width

    def value(self, x):
        image = (self.A * column(x)).entries()
        return total((part / 2 - b) * entry for part, b, entry in zip(image, self.b, x, strict=True))

    def gradient(self, x):
        return [part - b for part, b in zip((self.A * column(x)).entries(), self.b, strict=True)]

    def hessian(self, x):
        return arb_mat(self.A)

    def far(self, x):
        return []


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

    def place(self, j: int, value: Any) -> tuple[int, bool]:
        """(number of the kink, True) at a kink, else (number of the piece, False)."""
        for k, kink in enumerate(self.kinks[j]):
            if value == kink:
                return k, True
            if value < kink:
                return k, False
        return len(self.kinks[j]), False

    def value(self, w: Any) -> Any:
        result = ZERO
        for j, part in enumerate(w):
            kinks, slopes = self.kinks[j], self.slopes[j]
            if not kinks:
                continue
            base = kinks[0]
            k, _ = self.place(j, part)
            if not (slopes[k].is_finite() or part == kinks[min(k, len(kinks) - 1)]):
                return arb("inf")
            result += abs(slopes[-1]) * abs(part - base) if slopes[-1].is_finite() and len(kinks) == 1 else ZERO
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
    for bits in PRECISIONS:
        with precision(bits):
            try:
                x = _polished(F, g, x, bits) if isinstance(g, Groups) else _minimised(F, g, x, bits)
                error = _error(F, g, x)
            except ZeroDivisionError:  # a matrix that is singular to so many bits
                continue
            # Where the minimiser is 0 the gradient says what is small.
            pull = norm(F.gradient(x)[: F.width]) / F.mu * arb(10) ** -20
            if error <= max(norm(x[: F.width]).mid(), pull.mid()) * arb(10) ** -digits:
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
        zero: set[int] = set()
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
    smooth, ridge = problem.smooth, 0.0
    if isinstance(smooth, Ridged):
        smooth, ridge = smooth.term, smooth.ridge
    F: Any
    X, a = dense(smooth.design.X), [float(part) for part in host(smooth.design.weights)]
    g, of_prox = stated_term(problem.prox, problem.size)
    # Sums of two floats are made in balls: l2 + ridge is not a float.
    l2 = np.broadcast_to(smooth.l2, problem.size)
    if isinstance(smooth, ConcomitantHuber):
        F = Concomitant(X, smooth.y, a, smooth.epsilon, smooth.intercepted, l2)
        ridges = F.linear.l2
    elif hasattr(smooth, "onehot"):
        F = Softmax(X, smooth.onehot, a, l2, smooth.intercept)
        ridges = F.l2
    else:
        F = Linear(X, host(smooth.y), a, psi_of(smooth.loss), l2, isinstance(smooth, Intercepted))
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
    if isinstance(prox, terms.Group):
        return Groups([[int(j) for j in np.asarray(G)] for G in prox.groups], list(np.asarray(prox.weights))), 0.0
    return Kinked.l1(np.broadcast_to(prox.l1, size)), 0.0


def psi_of(loss: Any) -> Any:
    name = type(loss).__name__
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
