"""Huber's regression with its scale and intercept minimised out, in extended precision."""

import numpy as np

from tests.reference import LONG


class ConcomitantMargins:
    """min over b and s of s/2 + sum_i a_i s h((x_i . w + b - y_i)/s) + (l2/2) ||w||^2, by bisection."""

    def __init__(self, X, y, a, epsilon, intercepted, l2):
        self.X, self.y, self.a = (np.asarray(part, dtype=LONG) for part in (X, y, a))
        self.epsilon, self.intercepted, self.l2 = LONG(epsilon), intercepted, LONG(l2)
        self.gradient_at_zero = self.gradient(np.zeros(self.X.shape[1], dtype=LONG))

    def intercept(self, t, s):
        if not self.intercepted:
            return LONG(0)
        # The sum is piecewise linear in b: the root lies between two of its kinks.
        kinks = np.sort(np.concatenate([-t - self.epsilon * s, -t + self.epsilon * s]))
        pulls = self.a @ np.clip((t[:, None] + kinks) / s, -self.epsilon, self.epsilon)
        k = int(np.argmax(pulls >= 0))
        return kinks[k - 1] - pulls[k - 1] * (kinks[k] - kinks[k - 1]) / (pulls[k] - pulls[k - 1])

    def scale(self, w):
        """(b, s)."""
        t = self.X @ np.asarray(w, dtype=LONG) - self.y
        low, high = LONG(1e-25), 2 * abs(t).max() + LONG(1e-20)
        while low < (middle := (low + high) / 2) < high:
            p = np.clip((t + self.intercept(t, middle)) / middle, -self.epsilon, self.epsilon)
            if self.a @ p**2 > 1:
                low = middle
            else:
                high = middle
        return self.intercept(t, low), low

    def value(self, w):
        b, s = self.scale(w)
        z = abs(self.X @ w + b - self.y) / s
        h = np.where(z <= self.epsilon, z**2 / 2, self.epsilon * z - self.epsilon**2 / 2)
        return s / 2 + self.a @ (s * h) + self.l2 / 2 * (w @ w)

    def gradient(self, w):
        b, s = self.scale(w)
        p = np.clip((self.X @ w + b - self.y) / s, -self.epsilon, self.epsilon)
        return self.X.T @ (self.a * p) + self.l2 * w

    def hessian(self, w):
        b, s = self.scale(w)
        z = (self.X @ w + b - self.y) / s
        C = (self.a * (abs(z) <= self.epsilon) / s).astype(float)
        X = self.X.astype(float)
        others = np.stack([np.ones(len(z)), -z.astype(float)], axis=1)[:, 0 if self.intercepted else 1 :]
        U, M = X.T @ (C[:, None] * others), others.T @ (C[:, None] * others)
        return X.T @ (C[:, None] * X) - U @ np.linalg.pinv(M) @ U.T + float(self.l2) * np.eye(X.shape[1])
