r"""Smooth parts F(w, r) of lower-level problems in ball arithmetic (python-flint), for `tests.reference_exact`.

F is jointly convex; w has the length `width`, r, what is minimised out, the length `rest`. Each offers `value`,
`gradient` and `hessian` at (w, r), a `start`, the modulus `mu` of strong convexity in w, and `far`: bounds on
|r_hat - r|, which may be coarse.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx

EXACT = 2200  # bits, in which sums and small multiples of floats are exact
ZERO = arb(0)


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

    def __init__(self, X, y, a, psi, l2, intercepted=False, offset=None):
        counts = [i for i, weight in enumerate(a) if weight != 0]
        rows = [[arb(float(entry)) for entry in X[i]] + [arb(1)] * intercepted for i in counts]
        self.width, self.rest = len(X[0]), int(intercepted)
        self.X = arb_mat(len(rows), self.width + self.rest, [entry for row in rows for entry in row])
        self.XT = self.X.transpose()
        self.y, self.a, self.psi = [arb(float(y[i])) for i in counts], [arb(a[i]) for i in counts], psi
        self.l2 = [arb(float(part)) for part in np.broadcast_to(l2, self.width)] + [ZERO] * self.rest
        self.mu = min(self.l2[: self.width])
        self.start = [ZERO] * (self.width + self.rest)
        self.offset = [ZERO if offset is None else arb(float(offset[i])) for i in counts]

    def margins(self, x):
        return [m + o for m, o in zip((self.X * column(x)).entries(), self.offset, strict=True)]

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
        rows = zip(self.a, self.y, self.offset, strict=True)
        at_zero = total(a * (self.psi.value(o, y) - self.psi.infimum(y)) for a, y, o in rows)
        size = (2 * at_zero / self.mu).abs_upper().sqrt()  # of w_hat, since Phi(w_hat) <= Phi(0)
        rows, width = self.X.entries(), self.width + 1
        reach = max(norm(rows[i * width : i * width + self.width]) for i in range(len(self.y))) * size
        reach += max(abs(o) for o in self.offset)
        return [abs(x[-1]) + self.psi.largest_shift(self.a, self.y, reach)]


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
