"""A linear model with its intercept minimised out, in extended precision: for `tests.reference.minimise`."""

import numpy as np

from tests.reference import LONG, Margins


class InterceptMargins(Margins):
    """min_b sum_i a_i psi(x_i . w + b, y_i) + (l2/2) ||w||^2."""

    def __init__(self, X, y, a, psi, l2):
        super().__init__(X, y, a, psi, l2)

    def intercept(self, w):
        """b by bisection, down to neighbouring numbers."""
        m = self.X @ np.asarray(w, dtype=LONG)
        low, high = LONG(-2000) - abs(m).max(), LONG(2000) + abs(m).max()
        while low < (middle := (low + high) / 2) < high:
            if (self.a * self._slope(m + middle)).sum() < 0:
                low = middle
            else:
                high = middle
        return low

    def _slope(self, m):
        if self.psi == "logistic":
            return -self.y / (1 + np.exp(np.minimum(self.y * m, 1e4)))
        if self.psi == "poisson":
            return np.exp(np.minimum(m, 1e4)) - self.y
        return m - self.y

    def value(self, w):
        return self._shifted(w).value(np.append(w, LONG(1))) - self.l2 / 2

    def gradient(self, w):
        return self._shifted(w).gradient(np.append(w, LONG(1)))[:-1]

    def hessian(self, w):
        H = self._shifted(w).hessian(np.append(w, LONG(1)))
        b = self.intercept(w)
        H -= float(self.l2) * np.eye(len(H))
        centred = H[:-1, :-1] - np.outer(H[:-1, -1], H[-1, :-1]) / H[-1, -1] if b != 0 else H[:-1, :-1]
        return centred + float(self.l2) * np.eye(len(centred))

    def _shifted(self, w):
        """The model with b as the weight 1 of a last column."""
        column = np.full((len(self.y), 1), self.intercept(w))
        model = Margins.__new__(Margins)
        model.X, model.y, model.a, model.psi, model.l2 = np.hstack([self.X, column]), self.y, self.a, self.psi, self.l2
        return model
