r"""The method that is fastest for the problem at hand.

- A linear model with an l1 penalty or none: `newton`, as long as its support of s columns fits into bounded memory and
  a Hessian, N s^2 + 4 s^3 operations that run fast (N^2 s + 4 N^3 if N < s), costs less than the products that FISTA
  would need, about sqrt(kappa) times the entries of X, which run slowly: the factor between the two has been measured
  on problems from 40 x 10 to 10000 x 500 and 500 x 3000, dense and sparse. Where kappa is small FISTA is as fast from
  the beginning.
- Linear models with an X of torch, and an l2: `newton` for all that share X at a time, on X's device
  (`suffice.lower.newton_columns`).
- Everything else: `fista_adaptive`.

A solve whose support has grown too large goes on with FISTA from the point it has reached; so does one in which
Newton's method makes no progress any more though rounding would let it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from suffice.arrays import Array
from suffice.lower.fista import AdaptiveFista
from suffice.lower.momentum import FistaState
from suffice.lower.newton import PATIENCE, Newton, NewtonState, has_factors
from suffice.lower.newton_columns import NewtonBatch
from suffice.lower.parts import LinearParts
from suffice.lower.solution import Batch
from suffice.problem import Canonical
from suffice.terms.design import largest_matrix

NEWTON, FISTA = Newton(), AdaptiveFista()
EASY = 150.0  # kappa up to which FISTA is as fast
WORTH = 80.0  # operations of a Hessian for one entry of X and one unit of sqrt(kappa)


@dataclass(frozen=True)
class Auto:
    """`newton` or `fista_adaptive`; states are those of the method."""

    name: str = "auto"
    batches: ClassVar[tuple[type[Batch], ...]] = (NewtonBatch,)

    def takes(self, problem: Canonical) -> str | None:
        return None if FISTA.takes(problem) is None else NEWTON.takes(problem)

    def start(self, problem: Canonical, x: Array) -> NewtonState | FistaState:
        if FISTA.takes(problem) is not None or (problem.kappa > EASY and _is_for_newton(problem, x)):
            return NEWTON.start(problem, x)
        return FISTA.start(problem, x)

    def step(self, problem: Canonical, state: NewtonState | FistaState) -> NewtonState | FistaState:
        if isinstance(state, FistaState):
            return FISTA.step(problem, state)
        if FISTA.takes(problem) is None and (state.idle >= PATIENCE or not _is_for_newton(problem, state.x)):
            return FISTA.step(problem, FISTA.start(problem, state.x))
        return NEWTON.step(problem, state)


def _is_for_newton(problem: Canonical, x: Array) -> bool:
    terms = LinearParts.of(problem)
    if terms is None:
        return False
    design, s = terms.model.design, float(np.count_nonzero(x))
    entries = getattr(design.X, "nnz", math.prod(design.shape))
    side = min(s, design.shape[0]) if has_factors(design) else s  # of the matrices
    hessian = design.shape[0] * s * side + 4.0 * side**3
    return side <= largest_matrix(design) and hessian <= WORTH * math.sqrt(problem.kappa) * entries
