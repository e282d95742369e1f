"""Quadratics, by the recipe of benchmark_bilevel's simulated problems: the mean over samples of

    z.H z / 2 + x.P x / 2 + x.C z + c.z + d.x

for the inner and for the outer function, eigenvalues of the mean H and P between mu and 1, and ||C|| = 1 for the inner
one. With ||C|| = 1 for the outer one, too, the value function has no minimum here; it is 0.1. Its minimum is negative.
"""

import jax.numpy as jnp
import numpy as np
from benchopt import BaseDataset


def _definite(rng, d, low, high):
    """A symmetric matrix with eigenvalues from low to high."""
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return (Q * np.linspace(low, high, d)) @ Q.T


class Quadratic:
    """Samples differ by noise that averages out."""

    def __init__(self, rng, samples, p, d, mu, cross):
        C = rng.standard_normal((d, p))
        mean = _definite(rng, p, mu, 1.0), _definite(rng, d, mu, 1.0), cross * C / np.linalg.norm(C, 2)
        mean += rng.standard_normal(p), rng.standard_normal(d)
        self.parts = []
        for part in mean:
            noise = 0.1 * rng.standard_normal((samples, *part.shape))
            noise = noise + np.swapaxes(noise, 1, 2) if part.ndim == 2 and part.shape[0] == part.shape[1] else noise
            self.parts.append(jnp.asarray(part + noise - noise.mean(axis=0)))
        self.mean = [np.asarray(part.mean(axis=0)) for part in self.parts]

    def __call__(self, inner_var, outer_var, start=0, batch_size=1):
        H, P, C, c, d = (part[start : start + batch_size].mean(axis=0) for part in self.parts)
        z, x = inner_var, outer_var
        return 0.5 * z @ H @ z + 0.5 * x @ P @ x + x @ C @ z + c @ z + d @ x


class Dataset(BaseDataset):
    name = "simulated"
    parameters = {  # noqa: RUF012
        "dim_inner, dim_outer": [(5, 5), (20, 20), (100, 100)],
        "mu": [0.1],
        "random_state": [2442],
    }

    def get_data(self):
        rng, samples = np.random.default_rng(self.random_state), 256
        size = samples, self.dim_inner, self.dim_outer, self.mu
        inner, outer = Quadratic(rng, *size, cross=1.0), Quadratic(rng, *size, cross=0.1)
        H, _, C, c, _ = inner.mean
        K, P, D, k, e = outer.mean

        def metrics(inner_var, outer_var):
            z = np.linalg.solve(H, -c - outer_var @ C)
            slope = P @ outer_var + D @ z + e - C @ np.linalg.solve(H, K @ z + outer_var @ D + k)
            func = 0.5 * z @ K @ z + 0.5 * outer_var @ P @ outer_var + outer_var @ D @ z + k @ z + e @ outer_var
            return {"value": float(slope @ slope), "func": float(func),
                    "inner_distance": float(np.sum((z - inner_var) ** 2))}  # fmt: skip

        return {"f_inner": inner, "f_outer": outer, "metrics": metrics, "n_inner": samples, "n_outer": samples,
                "dim_inner": self.dim_inner, "dim_outer": self.dim_outer}  # fmt: skip
