"""Reference minimisers of small imaging problems in extended precision; nothing of the package is used to find them.

Images are flat real vectors, complex pixels as two neighbouring entries, and operators are explicit matrices on them.
Lagged diffusivity, which converges from anywhere, leads to the neighbourhood of the minimiser, Newton's method from
there to the end: gradients in long double, systems in double, which is iterative refinement.
"""

from dataclasses import dataclass

import numpy as np

from tests.reference import LONG, norm


def real_form(M):
    """A complex matrix on vectors of neighbouring real and imaginary parts."""
    M = np.asarray(M)
    out = np.zeros((2 * M.shape[0], 2 * M.shape[1]), dtype=LONG)
    out[::2, ::2] = out[1::2, 1::2] = M.real
    out[1::2, ::2], out[::2, 1::2] = M.imag, -M.imag
    return out


def fourier(n):
    """The unitary Fourier matrix, in extended precision."""
    angle = -2 * LONG(np.pi) * (np.outer(np.arange(n), np.arange(n)) % n).astype(LONG) / n
    pi_is_rounded = -2 * LONG("1.2246467991473531772e-16") * (np.outer(np.arange(n), np.arange(n)) % n).astype(LONG) / n
    angle = angle + pi_is_rounded
    return (np.cos(angle) + 1j * np.sin(angle)) / np.sqrt(LONG(n))


def difference_matrices(shape, boundary, complex_pixels):
    """One matrix per axis and part of a pixel: pixel i minus the one before it."""
    n = int(np.prod(shape))
    index = np.arange(n).reshape(shape)
    found = []
    for axis in range(len(shape)):
        D = np.zeros((n, n))
        for place in np.ndindex(*shape):
            i = index[place]
            if place[axis] > 0:
                before = list(place)
                before[axis] -= 1
                D[i, i], D[i, index[tuple(before)]] = 1.0, -1.0
            elif boundary == "zero":
                D[i, i] = 1.0
        found.append(D)
    if not complex_pixels:
        return [D.astype(LONG) for D in found]
    return [np.kron(D, part).astype(LONG) for D in found for part in ([[1.0, 0.0]], [[0.0, 1.0]])]


@dataclass
class Images:
    """1/2 ||A x - y||_w^2 + alpha sum sqrt(|D x|^2 + eps_tv^2) + eps_l2/2 ||x||^2, with explicit matrices."""

    A: np.ndarray
    y: np.ndarray
    w: np.ndarray
    D: list[np.ndarray]
    alpha: float
    eps_tv: float
    eps_l2: float

    def parts(self, x):
        d = [D @ x for D in self.D]
        return d, np.sqrt(sum(one * one for one in d) + LONG(self.eps_tv) ** 2)

    def value(self, x):
        x = np.asarray(x, dtype=LONG)
        misfit = self.A @ x - self.y
        return (
            np.sum(self.w * misfit**2) / 2
            + LONG(self.alpha) * np.sum(self.parts(x)[1])
            + LONG(self.eps_l2) * (x @ x) / 2
        )

    def gradient(self, x):
        x = np.asarray(x, dtype=LONG)
        d, eta = self.parts(x)
        variation = sum(D.T @ (one / eta) for D, one in zip(self.D, d, strict=True))
        return self.A.T @ (self.w * (self.A @ x - self.y)) + LONG(self.alpha) * variation + LONG(self.eps_l2) * x

    def hessian(self, x, lagged=False):
        d, eta = self.parts(np.asarray(x, dtype=LONG))
        d, eta = [one.astype(float) for one in d], eta.astype(float)
        A, D = self.A.astype(float), [one.astype(float) for one in self.D]
        H = A.T @ (self.w.astype(float)[:, None] * A) + self.eps_l2 * np.eye(A.shape[1])
        for r, Dr in enumerate(D):
            for t, Dt in enumerate(D):
                weight = float(r == t) / eta - (0.0 if lagged else d[r] * d[t] / eta**3)
                H += self.alpha * Dr.T @ (weight[:, None] * Dt)
        return H

    def minimiser(self, mu):
        """The minimiser and a bound of its error."""
        x = np.zeros(self.A.shape[1], dtype=LONG)
        for _ in range(600):
            g = self.gradient(x)
            if norm(g) <= 1e-17 * (norm(self.y) + 1):
                break
            newton = x - np.linalg.solve(self.hessian(x), g.astype(float))
            slow = x - np.linalg.solve(self.hessian(x, lagged=True), g.astype(float))
            x = newton if norm(self.gradient(newton)) < 0.5 * norm(g) else slow
        return x, float(norm(self.gradient(x))) / mu


def of(problem, smooth):
    """The reference of a problem of `suffice.problems.imaging` at the parameters of `smooth`."""
    shape, n = smooth.shape, int(np.prod(smooth.shape))
    complex_pixels = np.dtype(smooth.dtype).kind == "c"
    w = np.ones(smooth.y.size) if smooth.weights is None else smooth.weights.ravel()
    if smooth.operator is None:
        A, y = np.eye(smooth.size), smooth.y.ravel().view(float)
        w = np.repeat(w, 2) if complex_pixels else w
    else:
        if hasattr(smooth.operator, "operator"):
            M = np.array([smooth.operator.operator.matvec(unit) for unit in np.eye(n)]).T
        else:
            M = fourier(n) if len(shape) == 1 else np.kron(fourier(shape[0]), fourier(shape[1]))
        if complex_pixels:
            A = real_form(M)
        else:
            A = np.empty((2 * len(M), n), dtype=LONG) if np.iscomplexobj(M) else M
            if np.iscomplexobj(M):
                A[::2], A[1::2] = M.real, M.imag
        data = smooth.y.ravel()
        if len(A) == 2 * len(M):
            y, w = np.ascontiguousarray(data, dtype=complex).view(float), np.repeat(w, 2)
        else:
            y = data
    D = difference_matrices(shape, smooth.boundary, complex_pixels)
    numbers = (smooth.alpha, smooth.eps_tv, smooth.eps_l2)
    return Images(np.asarray(A, dtype=LONG), y.astype(LONG), w.astype(LONG), D, *numbers)
