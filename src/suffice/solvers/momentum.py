r"""The formulas of FISTA that one problem and many at a time share; see `suffice.solvers.fista`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from suffice.arrays import EPS, Array, namespace, norm
from suffice.solvers.certificate import RECOMPUTED, Evidence


@dataclass(frozen=True)
class FistaState:
    """Images are the adaptive method's, and None in a state that comes from a file: the next step computes them."""

    x: Array
    previous: Array
    t: float
    k: int
    image: Array | None = field(default=None, metadata=RECOMPUTED)
    previous_image: Array | None = field(default=None, metadata=RECOMPUTED)
    evidence: Evidence | None = field(default=None, metadata=RECOMPUTED)
    tau: float = 0.0  # the adaptive method's step length to try next, the one taken last,
    taken: float = 0.0
    failed: bool = False  # and whether the last one tried was too long


def momentum(t: Any, q: Any = 0.0, q_next: Any = None) -> tuple[Any, Any]:
    """(t_{k+1}, beta) from t_k, for numbers or arrays of them; q_next is q where it is not given. For q -> 1 the step
    itself solves the problem and beta is void."""
    ratio, q_next = (1.0, q) if q_next is None else (q / q_next, q_next)
    a = 1.0 - q * t * t
    t_next = 0.5 * (a + (a * a + 4.0 * ratio * t * t) ** 0.5)
    rest, ahead = 1.0 - q_next, (t - 1.0) * (1.0 - q_next * t_next)
    if isinstance(rest, float):
        return t_next, ahead / (t_next * rest) if rest >= 1e-12 else 0.0
    xp, known = namespace(rest), rest >= 1e-12
    return t_next, xp.where(known, ahead / (t_next * xp.where(known, rest, 1.0)), 0.0)


def carried_size(x: Array, z: Array) -> float:
    """The image of z = x + beta (x - x') that is made of those of x and x', beta <= 1, errs by no more than a product
    with a vector of this length: (1 + beta) ||x|| + beta ||x'|| <= 3 ||x|| + ||z - x||."""
    return 3.0 * norm(x) + norm(z - x)


def contraction(q: float) -> float:
    """c of `suffice.solvers.certificate` for a step of length tau = q/mu <= 1/L."""
    return min(1.0 - q + 4.0 * EPS, 1.0)


def majorised_contraction(q: float) -> float:
    """c of `suffice.solvers.certificate` for a step of length tau = q/mu that is proven between two points only."""
    return math.sqrt((max(1.0 - q, 0.0) + 8.0 * EPS) / (1.0 + q))


def descended(z: Array, tau: float, gradient: Array) -> Array:
    """z - tau gradient, with one array made."""
    x = gradient * -tau
    x += z
    return x


def rate(kappa: float, k: int) -> float:
    """The a-priori bound of ||x^k - x_hat|| / ||x^0 - x_hat|| for FISTA with step 1/L (not of its square)."""
    root = 1.0 / math.sqrt(kappa)
    return math.sqrt(max(1.0 - root, 0.0) ** k * kappa * (1.0 + root))
