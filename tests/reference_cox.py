"""Cox's partial likelihood in ball arithmetic, by its definition, for `tests.reference_exact.enclose`."""

import numpy as np
from flint import arb, arb_mat

from tests.reference_balls import ZERO, total


class Cox:
    """1/S sum_t (s_t log sum_j c_tj exp(x_j . w) - a_t x_t . w) + l2 ||w||^2 / 2."""

    rest = 0

    def __init__(self, X, y, l2, *, efron=True, weight=None, strata=None, entry=None):
        N, self.width = X.shape
        a = np.ones(N) if weight is None else weight
        strata = np.zeros(N) if strata is None else strata
        entry = np.full(N, -np.inf) if entry is None else entry
        self.rows = [[arb(float(part)) for part in row] for row in X]
        self.l2 = self.mu = arb(float(l2))
        self.start = [ZERO] * self.width
        self.S = total(arb(float(part)) for part in a)
        self.terms = []  # (rows at risk, their c, s_t, a_t, t)
        for stratum in np.unique(strata):
            for time in np.unique(y[(y > 0) & (strata == stratum) & (a > 0)]):
                D = np.flatnonzero((y == time) & (strata == stratum) & (a > 0))
                R = np.flatnonzero((np.abs(y) >= time) & (entry < time) & (strata == stratum) & (a > 0))
                for number, t in enumerate(D):
                    c = [arb(float(a[j])) * (1 - arb(number) / len(D) if efron and j in D else arb(1)) for j in R]
                    s = total(arb(float(a[j])) for j in D) / len(D) if efron else arb(float(a[t]))
                    self.terms.append((R, c, s, arb(float(a[t])), t))

    def _margins(self, x):
        return [total(part * w for part, w in zip(row, x, strict=True)) for row in self.rows]

    def _chances(self, m, R, c):
        top = max((m[j].mid() for j in R), key=float)
        e = [part * (m[j] - top).exp() for j, part in zip(R, c, strict=True)]
        return [part / total(e) for part in e], total(e).log() + top

    def value(self, x):
        m = self._margins(x)
        loss = total(s * self._chances(m, R, c)[1] - a * m[t] for R, c, s, a, t in self.terms)
        return loss / self.S + self.l2 * total(part * part for part in x) / 2

    def gradient(self, x):
        m, pulls = self._margins(x), [ZERO] * len(self.rows)
        for R, c, s, a, t in self.terms:
            for j, p in zip(R, self._chances(m, R, c)[0], strict=True):
                pulls[j] += s * p
            pulls[t] -= a
        return [
            total(pull * row[k] for pull, row in zip(pulls, self.rows, strict=True)) / self.S + self.l2 * x[k]
            for k in range(self.width)
        ]

    def hessian(self, x):
        m, d = self._margins(x), self.width
        H = [[ZERO] * d for _ in range(d)]
        for R, c, s, _, _ in self.terms:
            p = [part.mid() for part in self._chances(m, R, c)[0]]
            mean = [total(q * self.rows[j][k] for j, q in zip(R, p, strict=True)) for k in range(d)]
            for k in range(d):
                for i in range(d):
                    both = total(q * self.rows[j][k] * self.rows[j][i] for j, q in zip(R, p, strict=True))
                    H[k][i] += s * (both - mean[k] * mean[i]) / self.S
        return arb_mat(d, d, [(H[k][i] + (self.l2 if k == i else ZERO)).mid() for k in range(d) for i in range(d)])

    def far(self, x):
        return []
