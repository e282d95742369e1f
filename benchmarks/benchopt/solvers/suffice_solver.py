r"""suffice, as a solver of benchmark_bilevel: least squares above, dynamic accuracy below.

The outer function h(x) = f(x, z(x)) is stationary where the squares of its slopes vanish, which is what the benchmark
measures. suffice minimises them:

    r(x) = grad h(x) = f_x + g_xz v,        g_zz v = -f_z        at z(x).

H, the Hessian g_zz of all samples, is made and factored once, at the first point, in float32, and again wherever steps
by it fail to halve a residual. The inner problem is solved by z <- z - H^-1 grad_z g until ||grad_z g|| / mu <= radius,
v by v <- v - H^-1 (g_zz v + f_z) until that residual is small: for quadratics one step each, and one look at what is
left. With C = g_xz, M the norm of f's Hessian and mu, the least eigenvalue of H, at the same point (right everywhere
for quadratics; for others what is called proven is not),

    ||r~ - r||  <=  M (1 + ||C|| / mu) radius + ||C|| ||residual of v|| / mu.

The Jacobian of r is that of quadratics with these Hessians, with Z = -H^-1 C^T what z(x) does:

    J = f_xx + f_xz Z + Z^T f_zx + Z^T f_zz Z.

Gradients and products are those of all samples, in float64. `gradients` counts those of g and of f, `products` those of
Hessians and cross derivatives with a vector, columns of the matrices above among them.
"""

import math

import jax
import numpy as np
from benchopt import BaseSolver
from benchopt.stopping_criterion import SufficientProgressCriterion
from scipy.linalg import cho_factor, cho_solve

import suffice

MOST = 50  # steps below
BATCH = 256  # samples at a time
DOUBT = 1e-3  # of float32's Hessians, relative to their norms, with room to spare


def mean_of(batches, n):
    """The mean over all samples of batches(start, size, *args)."""
    starts = np.arange(0, n - n % BATCH, BATCH)

    def mean(*args):
        total, left = 0.0, n % BATCH
        if len(starts):
            add = lambda sum, start: (jax.tree.map(lambda a, b: a + b, sum, batches(start, BATCH, *args)), None)  # noqa: E731
            first = jax.tree.map(lambda a: 0.0 * a, batches(0, BATCH, *args))
            total = jax.tree.map(lambda a: BATCH / n * a, jax.lax.scan(add, first, starts)[0])
        if left:
            rest = jax.tree.map(lambda a: left / n * a, batches(n - left, left, *args))
            total = jax.tree.map(lambda a, b: a + b, total, rest) if len(starts) else rest
        return total

    return jax.jit(mean)


class Inner:
    """The inner problem, all samples at once."""

    def __init__(self, f_inner, f_outer, z0, x0, n_inner, n_outer):
        at = lambda f, start, size: lambda z, x: f(z, x, start=start, batch_size=size)  # noqa: E731
        slope = lambda start, size: jax.grad(at(f_inner, start, size))  # noqa: E731
        self.slope = mean_of(lambda i, k, z, x: slope(i, k)(z, x), n_inner)
        self.outer = mean_of(lambda i, k, z, x: jax.grad(at(f_outer, i, k), argnums=(0, 1))(z, x), n_outer)
        self.product = mean_of(lambda i, k, z, x, v: jax.jvp(lambda z: slope(i, k)(z, x), (z,), (v,))[1], n_inner)
        self.pull = mean_of(lambda i, k, z, x, v: jax.vjp(lambda x: slope(i, k)(z, x), x)[1](v)[0], n_inner)
        self.second = mean_of(
            lambda i, k, z, x: (jax.hessian(at(f_inner, i, k))(z, x), jax.jacfwd(slope(i, k), argnums=1)(z, x)), n_inner
        )
        self.second_outer = mean_of(lambda i, k, z, x: jax.hessian(at(f_outer, i, k), argnums=(0, 1))(z, x), n_outer)
        self.z0, self.x0, self.gradients, self.products = z0, x0, 0, 0

    def begin(self):
        """Hessians at the first point."""
        self.gradients = self.products = 0
        self.linearised(self.z0, self.x0)

    def linearised(self, z, x):
        z32, x32 = (np.asarray(one, dtype=np.float32) for one in (z, x))
        with jax.enable_x64(False):
            H, C = (np.asarray(part, dtype=np.float64) for part in self.second(z32, x32))
            (zz, zx), (_, xx) = jax.tree.map(lambda a: np.asarray(a, dtype=np.float64), self.second_outer(z32, x32))
        self.products += 2 * len(z) + 2 * len(x)
        spectrum = np.linalg.eigvalsh(H)
        self.mu = float(spectrum[0]) - DOUBT * float(spectrum[-1])
        self.cross = (1.0 + DOUBT) * float(np.linalg.norm(C, 2))
        self.M = (1.0 + DOUBT) * float(np.linalg.norm(np.block([[zz, zx], [zx.T, xx]]), 2))
        self.factor = cho_factor(H)
        Z = -cho_solve(self.factor, C)
        self.J = xx + zx.T @ Z + Z.T @ zx + Z.T @ zz @ Z

    def descended(self, residual, z, x, at, enough):
        """`at` moved by H^-1 until ||residual(at)|| <= enough, and that norm."""
        before = math.inf
        for _ in range(MOST):
            left = np.asarray(residual(at))
            size = float(np.linalg.norm(left))
            if size <= enough:
                break
            if size > 0.5 * before:
                self.linearised(z, x)
            before, at = size, at - cho_solve(self.factor, left)
        return at, size

    def evaluate(self, theta, *, within, warm=None):
        z, v = (self.z0, np.zeros_like(self.z0)) if warm is None else warm.solutions
        loss = self.M * (1.0 + self.cross / self.mu)

        def slope(z):
            self.gradients += 1
            return self.slope(z, theta)

        z, left = self.descended(slope, z, theta, z, 0.5 * within / loss * self.mu)
        slope_z, slope_x = map(np.asarray, self.outer(z, theta))

        def residual(v):
            self.products += 1
            return np.asarray(self.product(z, theta, v)) + slope_z

        v, off = self.descended(residual, z, theta, v, 0.5 * within * self.mu / max(self.cross, 1e-300))
        r = slope_x + np.asarray(self.pull(z, theta, v))
        self.gradients, self.products = self.gradients + 1, self.products + 1
        error = (loss * left + self.cross * off) / self.mu
        return suffice.Evaluation(theta, r, np.full(len(r), error), work=self.gradients + self.products,
                                  solutions=(z, v), jacobian=self.J)  # fmt: skip


class Solver(BaseSolver):
    name = "suffice"
    requirements = ["pip::suffice"]  # noqa: RUF012
    stopping_criterion = SufficientProgressCriterion(patience=20, strategy="callback")
    parameters = {"final_radius": [1e-6]}  # noqa: RUF012

    @staticmethod
    def get_next(stop_val):
        return stop_val + 1

    def set_objective(self, f_inner, f_outer, n_inner_samples, n_outer_samples, inner_var0, outer_var0):
        self.x0, z0 = np.asarray(outer_var0, dtype=np.float64), np.asarray(inner_var0, dtype=np.float64)
        self.inner = Inner(f_inner, f_outer, z0, self.x0, n_inner_samples, n_outer_samples)
        self.run_once(2)  # compiles

    def run(self, callback):
        self.inner_var, self.outer_var = self.inner.z0, self.x0
        if not callback():
            return
        self.inner.begin()
        tuner = suffice.Tuner(self.x0, options=suffice.Options(max_evaluations=100_000, final_radius=self.final_radius))
        best = math.inf
        while not tuner.done:
            request = tuner.ask()
            with jax.enable_x64(True):
                made = self.inner.evaluate(request.theta, within=request.within, warm=request.warm)
            tuner.tell(made)
            if made.cost < best:
                best, self.outer_var, self.inner_var = made.cost, request.theta, made.solutions[0]
            if not callback():
                return
        while callback():  # converged: nothing changes any more
            pass

    def get_result(self):
        return {"inner_var": self.inner_var, "outer_var": self.outer_var}
