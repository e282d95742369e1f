"""Gradient descent on the value function: so many inner steps from the latest inner point, then one outer step along
the implicit gradient, by a linear solve with the inner Hessian (AmIGO and HOAG without their schedules)."""

import jax
import numpy as np
from benchopt import BaseSolver
from benchopt.stopping_criterion import SufficientProgressCriterion


class Solver(BaseSolver):
    name = "implicit gradient"
    stopping_criterion = SufficientProgressCriterion(patience=20, strategy="callback")
    parameters = {"step_size": [0.05], "inner_steps": [10, 100]}  # noqa: RUF012

    @staticmethod
    def get_next(stop_val):
        return stop_val + 1

    def set_objective(self, f_inner, f_outer, n_inner_samples, n_outer_samples, inner_var0, outer_var0):
        g = lambda z, x: f_inner(z, x, start=0, batch_size=n_inner_samples)  # noqa: E731 (symbols)
        f = lambda z, x: f_outer(z, x, start=0, batch_size=n_outer_samples)  # noqa: E731
        self.slope, self.hessian = jax.jit(jax.grad(g)), jax.jit(jax.hessian(g))
        self.outer = jax.jit(jax.grad(f, argnums=(0, 1)))
        self.pull = jax.jit(lambda z, x, v: jax.vjp(lambda x: jax.grad(g)(z, x), x)[1](v)[0])
        self.z0, self.x0 = np.asarray(inner_var0), np.asarray(outer_var0)
        self.L = float(np.linalg.eigvalsh(np.asarray(self.hessian(self.z0, self.x0)))[-1])
        self.run_once(2)

    def run(self, callback):
        self.inner_var, self.outer_var = self.z0, self.x0
        while callback():
            z, x = self.inner_var, self.outer_var
            for _ in range(self.inner_steps):
                z = z - np.asarray(self.slope(z, x)) / self.L
            slope_z, slope_x = map(np.asarray, self.outer(z, x))
            v = np.linalg.solve(np.asarray(self.hessian(z, x)), slope_z)
            self.inner_var, self.outer_var = z, x - self.step_size * (slope_x - np.asarray(self.pull(z, x, v)))

    def get_result(self):
        return {"inner_var": self.inner_var, "outer_var": self.outer_var}
