r"""suffice, as a solver of benchmark_bilevel: dynamic accuracy below, derivatives above.

The outer function h(x) = f(x, z(x)) may be negative, and suffice minimises squares: it gets

    r(x) = exp((h(x) - h(x_0)) / (2 S)),       F = r^2,       S = max(1, |h(x_0)|),

which falls where h does. The inner problem is solved by gradient descent with Nesterov's momentum until
||grad g|| / mu <= radius, with mu and L of its Hessian at the first inner point (right everywhere for quadratics; for
others what is called proven is not). Then |h~ - h| <= ||grad_z f|| radius + M radius^2 / 2, M the norm of f's Hessian.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from benchopt import BaseSolver
from benchopt.stopping_criterion import SufficientProgressCriterion

import suffice


class Inner:
    """The inner problem, all samples at once."""

    def __init__(self, f_inner, f_outer, z0, x0, n_inner, n_outer):
        g = lambda z, x: f_inner(z, x, start=0, batch_size=n_inner)  # noqa: E731 (symbols)
        f = lambda z, x: f_outer(z, x, start=0, batch_size=n_outer)  # noqa: E731
        self.slope = jax.jit(jax.grad(g))
        self.outer = jax.jit(jax.value_and_grad(f, argnums=(0, 1)))
        self.pull = jax.jit(lambda z, x, v: jax.vjp(lambda x: jax.grad(g)(z, x), x)[1](v)[0])
        self.hessian = jax.jit(jax.hessian(g))
        spectrum = np.linalg.eigvalsh(np.asarray(self.hessian(z0, x0)))
        self.mu, self.L = float(spectrum[0]), float(spectrum[-1])
        self.M = float(np.linalg.norm(np.asarray(jax.hessian(f)(z0, x0)), 2))
        self.z0 = z0

    def solve(self, x, z, enough):
        """z, its radius and the steps, once `enough(z, radius)`."""
        q = math.sqrt(self.mu / self.L)
        beta, before, steps = (1.0 - q) / (1.0 + q), z, 0
        while True:
            slope = np.asarray(self.slope(z, x))
            radius = float(np.linalg.norm(slope)) / self.mu
            if enough(z, radius) or steps >= 10_000:
                return z, radius, steps
            y = z + beta * (z - before)
            before, z, steps = z, y - np.asarray(self.slope(y, x)) / self.L, steps + 1


class Oracle:
    """r, its proven error and its derivative."""

    def __init__(self, inner, x0):
        self.inner, self.found = inner, None
        self.first = self._value(x0, inner.z0, lambda h: 1e-6 * max(1.0, abs(h)))[0]
        self.scale = max(1.0, abs(self.first))

    def _value(self, x, z, allowed):
        """h, the bound on its error, once that is at most allowed(h), z and the steps."""

        def error(z, radius):
            h, (slope, _) = self.inner.outer(z, x)
            return float(h), float(np.linalg.norm(np.asarray(slope))) * radius + 0.5 * self.inner.M * radius**2

        def enough(z, radius):
            h, e = error(z, radius)
            return e <= max(allowed(h), 1e-13 * max(1.0, abs(h)))

        z, radius, steps = self.inner.solve(x, z, enough)
        return *error(z, radius), z, steps

    def evaluate(self, theta, *, within, warm=None):
        start = self.inner.z0 if warm is None else warm.solutions[0]
        size = lambda h: math.exp(min((h - self.first) / (2.0 * self.scale), 300.0))  # noqa: E731 (r)
        allowed = lambda h: 2.0 * self.scale * math.log1p(within / size(h))  # noqa: E731
        h, error, z, steps = self._value(theta, start, allowed)
        r = size(h)
        slope_z, slope_x = map(np.asarray, self.inner.outer(z, theta)[1])
        v = np.linalg.solve(np.asarray(self.inner.hessian(z, theta)), slope_z)
        slope = slope_x - np.asarray(self.inner.pull(z, theta, jnp.asarray(v)))
        self.found = theta, z
        return suffice.Evaluation(theta, [r], [r * math.expm1(min(error / (2.0 * self.scale), 300.0))], work=steps,
                                  solutions=(z,), jacobian=(r / (2.0 * self.scale) * slope)[None, :])  # fmt: skip


class Solver(BaseSolver):
    name = "suffice"
    requirements = ["pip::suffice"]  # noqa: RUF012
    stopping_criterion = SufficientProgressCriterion(patience=20, strategy="callback")
    parameters = {"final_radius": [1e-6]}  # noqa: RUF012

    @staticmethod
    def get_next(stop_val):
        return stop_val + 1

    def set_objective(self, f_inner, f_outer, n_inner_samples, n_outer_samples, inner_var0, outer_var0):
        self.x0 = np.asarray(outer_var0, dtype=np.float64)
        self.inner = Inner(
            f_inner, f_outer, np.asarray(inner_var0, np.float64), self.x0, n_inner_samples, n_outer_samples
        )
        self.run_once(2)  # compiles

    def run(self, callback):
        self.inner_var, self.outer_var = self.inner.z0, self.x0
        if not callback():
            return
        oracle = Oracle(self.inner, self.x0)
        tuner = suffice.Tuner(self.x0, options=suffice.Options(max_evaluations=100_000, final_radius=self.final_radius))
        best = math.inf
        while not tuner.done:
            request = tuner.ask()
            made = oracle.evaluate(request.theta, within=request.within, warm=request.warm)
            tuner.tell(made)
            if made.cost < best:
                best, (self.outer_var, self.inner_var) = made.cost, oracle.found
            if not callback():
                return
        while callback():  # converged: nothing changes any more
            pass

    def get_result(self):
        return {"inner_var": self.inner_var, "outer_var": self.outer_var}
