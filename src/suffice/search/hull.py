r"""The shortest vector of a convex hull:  min ||sum_i lambda_i g_i||,  lambda_i >= 0,  sum_i lambda_i = 1.

The negative of it is the direction in which the largest of all g_i . d falls fastest; if it is 0 no d makes them all
negative. It is found by moving weight from the vector with the largest  g_i . v  that has some to the one with the
least, v the present sum, as far as ||v|| falls: until their difference is TOLERANCE of ||v||^2. (P. Wolfe, A method of
conjugate subgradients for minimizing nondifferentiable functions, 1975, has the use that is made of it.)
"""

from __future__ import annotations

import numpy as np

from suffice.arrays import Array

TOLERANCE = 1e-6
TURNS = 500


def shortest(G: Array) -> Array:
    """The shortest vector of the convex hull of the rows of G."""
    Q = G @ G.T
    weights = np.zeros(len(Q))
    weights[int(np.argmin(np.diag(Q)))] = 1.0
    for _ in range(TURNS):
        products = Q @ weights
        least = int(np.argmin(products))
        most = int(np.argmax(np.where(weights > 0.0, products, -np.inf)))
        gap = float(products[most] - products[least])
        if gap <= TOLERANCE * float(weights @ products):
            break
        curvature = float(Q[least, least] - 2.0 * Q[least, most] + Q[most, most])
        share = min(float(weights[most]), gap / curvature) if curvature > 0.0 else float(weights[most])
        weights[least] += share
        weights[most] -= share
    result: Array = weights @ G
    return result
