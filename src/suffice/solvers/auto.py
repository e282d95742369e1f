r"""The method that is fastest for the problem at hand.

- A linear model with an l1 penalty or none: `newton`, as long as its support of s columns fits into bounded memory and
  a Hessian, N s^2 + 4 s^3 operations that run fast (N^2 s + 4 N^3 if N < s), costs less than the products that FISTA
  would need, about sqrt(kappa) times the entries of X, which run slowly: the factor between the two has been measured
  on problems from 40 x 10 to 10000 x 500 and 500 x 3000, dense and sparse. Where kappa is small FISTA is as fast from
  the beginning, unless X is read in blocks of rows: there passes count, and Newton's method takes fewer.
- Multinomial models, and Cox's up to MOST_WHOLE variables, with an l1 penalty or none: `newton`.
- Bounds on the weights, or groups of them: `newton` where by the same measure a Hessian of the variables that may move
  is worth its price.
- Where `fista_adaptive` cannot be used, since there is no L or no mu: `newton`. Everything else: `fista_adaptive`.

A solve whose support has grown too large goes on with FISTA from the point it has reached; so does one in which
Newton's method makes no progress any more though rounding would let it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from suffice.arrays import Array
from suffice.models.cox import CoxModel
from suffice.models.multinomial import Multinomial
from suffice.penalties.prox import Lasso
from suffice.rows.design import largest_matrix
from suffice.solvers.fista import AdaptiveFista, FistaState
from suffice.solvers.hessian import OfRows, entries, hessians_of
from suffice.solvers.newton import PATIENCE, Newton, NewtonState
from suffice.solvers.problem import Canonical

NEWTON, FISTA = Newton(), AdaptiveFista()
MOST_WHOLE = 3000  # variables of Cox's Hessian, which is one matrix
EASY = 10.0  # kappa up to which FISTA is as fast
WORTH = 80.0  # operations of a Hessian for one entry of X and one unit of sqrt(kappa)
FEWEST = 1000.0  # kappa that counts for rows in blocks, where every step of FISTA reads all of X again
LEAST = 100_000  # entries that a step of FISTA costs in any case


@dataclass(frozen=True)
class Auto:
    """`newton` or `fista_adaptive`; states are those of the method."""

    name: str = "auto"

    def takes(self, problem: Canonical) -> str | None:
        return None if FISTA.takes(problem) is None else NEWTON.takes(problem)

    def start(self, problem: Canonical, x: Array) -> NewtonState | FistaState:
        return NEWTON.start(problem, x) if _is_for_newton(problem, x) else FISTA.start(problem, x)

    def step(self, problem: Canonical, state: NewtonState | FistaState) -> NewtonState | FistaState:
        if isinstance(state, FistaState):
            return FISTA.step(problem, state)
        known = None if state.evidence is None else state.evidence.z_gradient
        stalls = state.idle >= PATIENCE and FISTA.takes(problem) is None and isinstance(hessians_of(problem), OfRows)
        if stalls or not _is_for_newton(problem, state.x, known):
            return FISTA.step(problem, FISTA.start(problem, state.x))
        return NEWTON.step(problem, state)


def _is_for_newton(problem: Canonical, x: Array, gradient: Array | None = None) -> bool:
    """Whether a Hessian of the variables that may move is worth its price, or there is no other way."""
    if NEWTON.takes(problem) is not None:
        return False
    if FISTA.takes(problem) is not None:
        return True
    term, g, hessians = problem.term, problem.g, hessians_of(problem)
    if isinstance(g, Lasso) and isinstance(term, Multinomial | CoxModel):
        return isinstance(term, Multinomial) or len(x) <= MOST_WHOLE
    design = getattr(term, "design", None)
    if design is None or problem.kappa <= (1.0 if design.rows.dear else EASY):
        return False
    if isinstance(g, Lasso):
        size = float(np.count_nonzero(x))
    else:
        least = g.least_subgradient(x, problem.f.gradient(x) if gradient is None else gradient)
        size = float(np.count_nonzero(g.whole((x != 0.0) | (least != 0.0))))  # type: ignore[attr-defined]
    side = min(size, design.shape[0]) if isinstance(hessians, OfRows) and hessians.has_factors else size
    price = design.shape[0] * size * side + 4.0 * side**3
    kappa = max(problem.kappa, FEWEST) if design.rows.dear else problem.kappa
    return side <= largest_matrix(design) and price <= WORTH * math.sqrt(kappa) * max(entries(design), LEAST)
