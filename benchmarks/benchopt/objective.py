"""Bilevel optimisation in the interface of benchopt's benchmark_bilevel: a stand-in for its objective, to run offline.

Solvers get f_inner(inner_var, outer_var, start=, batch_size=) and f_outer, means over samples, and give back both
variables. `value` is the squared gradient of the value function, `func` the value function itself, `inner_distance` the
squared distance of inner_var from the inner solution, as there.
"""

import jax
import numpy as np
from benchopt import BaseObjective

jax.config.update("jax_enable_x64", True)


class Objective(BaseObjective):
    name = "Bilevel optimisation"
    min_benchopt_version = "1.5"
    requirements = ["jax"]  # noqa: RUF012

    def set_data(self, f_inner, f_outer, metrics, n_inner, n_outer, dim_inner, dim_outer):
        self.f_inner, self.f_outer, self.metrics = f_inner, f_outer, metrics
        self.samples = n_inner, n_outer
        self.inner_var0, self.outer_var0 = np.zeros(dim_inner), -2.0 * np.ones(dim_outer)

    def get_one_result(self):
        return {"inner_var": self.inner_var0, "outer_var": self.outer_var0}

    def evaluate_result(self, inner_var, outer_var):
        return self.metrics(np.asarray(inner_var), np.asarray(outer_var))

    def get_objective(self):
        return {
            "f_inner": self.f_inner,
            "f_outer": self.f_outer,
            "n_inner_samples": self.samples[0],
            "n_outer_samples": self.samples[1],
            "inner_var0": self.inner_var0,
            "outer_var0": self.outer_var0,
        }
