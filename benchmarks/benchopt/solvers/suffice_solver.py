r"""suffice, as a solver of benchmark_bilevel: least squares above, dynamic accuracy below.

The outer function h(x) = f(x, z(x)) is stationary where the squares of its slopes vanish, which is what the benchmark
measures. suffice minimises them without further derivatives,

    r(x) = grad h(x) = f_x + g_xz v,        g_zz v = -f_z        at z(x),

whose linear model is exact for quadratics as soon as it has m + 1 points. The inner problem is solved by gradient
descent with Nesterov's momentum until ||grad_z g|| / mu <= radius, v by conjugate gradients from the latest v until its
residual is small. With C = g_zx, M the norm of f's Hessian and mu, L the ends of g_zz's spectrum at the first point
(right everywhere for quadratics; for others what is called proven is not),

    ||r~ - r||  <=  M (1 + ||C|| / mu) radius + ||C|| ||residual of v|| / mu.

All samples are taken at a time, in float64.
"""

import math

import jax
import numpy as np
from benchopt import BaseSolver
from benchopt.stopping_criterion import SufficientProgressCriterion

import suffice

MOST = 10_000  # steps below


class Inner:
    """The inner problem, all samples at once; `gradients` and `products` with the Hessian are counted."""

    def __init__(self, f_inner, f_outer, z0, x0, n_inner, n_outer):
        g = lambda z, x: f_inner(z, x, start=0, batch_size=n_inner)  # noqa: E731 (symbols)
        f = lambda z, x: f_outer(z, x, start=0, batch_size=n_outer)  # noqa: E731
        self.slope = jax.jit(jax.grad(g))
        self.outer = jax.jit(jax.grad(f, argnums=(0, 1)))
        self.product = jax.jit(lambda z, x, v: jax.jvp(lambda z: jax.grad(g)(z, x), (z,), (v,))[1])
        self.pull = jax.jit(lambda z, x, v: jax.vjp(lambda x: jax.grad(g)(z, x), x)[1](v)[0])
        spectrum = np.linalg.eigvalsh(np.asarray(jax.hessian(g)(z0, x0)))
        self.mu, self.L = float(spectrum[0]), float(spectrum[-1])
        both = jax.hessian(f, argnums=(0, 1))(z0, x0)
        self.M = float(np.linalg.norm(np.block([[np.asarray(part) for part in row] for row in both]), 2))
        self.cross = float(np.linalg.norm(np.asarray(jax.jacobian(jax.grad(g), argnums=1)(z0, x0)), 2))
        self.z0, self.gradients, self.products = z0, 0, 0

    def solve(self, x, z, radius):
        """z within a radius, and the radius that it has."""
        q = math.sqrt(self.mu / self.L)
        beta, before = (1.0 - q) / (1.0 + q), z
        for _ in range(MOST):
            y = z + beta * (z - before)
            slope = np.asarray(self.slope(y, x))
            self.gradients += 1
            if (reached := float(np.linalg.norm(slope)) / self.mu) <= radius:
                return y, reached
            before, z = z, y - slope / self.L
        return y, reached

    def pulled(self, z, x, right, v, enough):
        """v with ||H v - right|| <= enough, and that norm, by conjugate gradients."""
        residual = right - np.asarray(self.product(z, x, v))
        step, size = residual, float(residual @ residual)
        self.products += 1
        for _ in range(MOST):
            if math.sqrt(size) <= enough:
                break
            moved = np.asarray(self.product(z, x, step))
            self.products += 1
            length = size / float(step @ moved)
            v, residual = v + length * step, residual - length * moved
            before, size = size, float(residual @ residual)
            step = residual + size / before * step
        return v, math.sqrt(size)

    def evaluate(self, theta, *, within, warm=None):
        z, v = (self.z0, np.zeros_like(self.z0)) if warm is None else warm.solutions
        loss = self.M * (1.0 + self.cross / self.mu)
        z, radius = self.solve(theta, z, 0.5 * within / loss)
        slope_z, slope_x = map(np.asarray, self.outer(z, theta))
        v, left = self.pulled(z, theta, -slope_z, v, 0.5 * within * self.mu / max(self.cross, 1e-300))
        r = slope_x + np.asarray(self.pull(z, theta, v))
        error = loss * radius + self.cross * left / self.mu
        return suffice.Evaluation(theta, r, np.full(len(r), error), work=self.gradients + self.products,
                                  solutions=(z, v))  # fmt: skip


class Solver(BaseSolver):
    name = "suffice"
    requirements = ["pip::suffice"]  # noqa: RUF012
    stopping_criterion = SufficientProgressCriterion(patience=20, strategy="callback")
    parameters = {"final_radius": [1e-6]}  # noqa: RUF012

    @staticmethod
    def get_next(stop_val):
        return stop_val + 1

    def set_objective(self, f_inner, f_outer, n_inner_samples, n_outer_samples, inner_var0, outer_var0):
        with jax.enable_x64(True):
            self.x0, z0 = np.asarray(outer_var0, dtype=np.float64), np.asarray(inner_var0, dtype=np.float64)
            self.inner = Inner(f_inner, f_outer, z0, self.x0, n_inner_samples, n_outer_samples)
        self.run_once(2)  # compiles

    def run(self, callback):
        self.inner_var, self.outer_var = self.inner.z0, self.x0
        if not callback():
            return
        self.inner.gradients = self.inner.products = 0
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
