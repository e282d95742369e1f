r"""The method that is fastest for the problem at hand.

- A linear model with an l1 penalty or none: `newton`, as long as its support of s columns fits into bounded memory and
  a Hessian, N s^2 + 4 s^3 operations that run fast (N^2 s + 4 N^3 if N < s), costs less than the products that FISTA
  would need, about sqrt(kappa) times the entries of X, which run slowly: the factor between the two has been measured
  on problems from 40 x 10 to 10000 x 500 and 500 x 3000, dense and sparse. Where kappa is small FISTA is as fast from
  the beginning, unless X is read in blocks of rows: there passes count, and Newton's method takes fewer.
- A multinomial model with an l1 penalty or none: `newton_softmax`, whose systems are solved by products with X where a
  matrix would cost more. On 10 classes of 64 columns and 4 classes of 11,769 sparse ones it takes 11 products a step, 3
  steps a solve, at penalties over eight decades; FISTA takes hundreds, and finds the intercepts at each of them.
- Cox's model with an l1 penalty or none: Newton's method with its whole Hessian, up to MOST_WHOLE variables.
- Bounds on the weights, or groups of them: `newton_prox` where `fista_adaptive` cannot be used (there is no L, or no
  mu), or where by the same measure a Hessian of the variables that may move is worth its price.
- Linear models with an X of torch, and an l2: `newton` for all that share X at a time, on X's device
  (`suffice.cuda.newton_columns`).
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
from suffice.cuda.newton_columns import NewtonBatch
from suffice.models.cox import CoxModel
from suffice.rows.blocks import Blocked
from suffice.rows.design import largest_matrix
from suffice.solvers.fista import AdaptiveFista
from suffice.solvers.linear_hessian import has_factors
from suffice.solvers.momentum import FistaState
from suffice.solvers.newton import PATIENCE, Newton, NewtonState
from suffice.solvers.newton_hessian import NewtonHessian
from suffice.solvers.newton_prox import NewtonProx, Structured, fits
from suffice.solvers.newton_softmax import NewtonSoftmax, SoftmaxState
from suffice.solvers.parts import LinearParts, Parts
from suffice.solvers.problem import Canonical
from suffice.solvers.solution import Batch

NEWTON, FISTA, SOFTMAX = Newton(), AdaptiveFista(), NewtonSoftmax()
STRUCTURED, WHOLE = NewtonProx(), NewtonHessian()
MOST_WHOLE = 3000  # variables of a Hessian that is one matrix
EASY = 10.0  # kappa up to which FISTA is as fast
WORTH = 80.0  # operations of a Hessian for one entry of X and one unit of sqrt(kappa)
FEWEST = 1000.0  # kappa that counts for rows in blocks, where every step of FISTA reads all of X again
LEAST = 100_000  # entries that a step of FISTA costs in any case

AutoState = NewtonState | SoftmaxState | FistaState


@dataclass(frozen=True)
class Auto:
    """`newton`, `newton_softmax` or `fista_adaptive`; states are those of the method."""

    name: str = "auto"
    batches: ClassVar[tuple[type[Batch], ...]] = (NewtonBatch,)

    def takes(self, problem: Canonical) -> str | None:
        if any(method.takes(problem) is None for method in (FISTA, SOFTMAX, STRUCTURED)):
            return None
        return NEWTON.takes(problem)

    def start(self, problem: Canonical, x: Array) -> AutoState:
        if SOFTMAX.takes(problem) is None:
            return SOFTMAX.start(problem, x)
        if _is_cox(problem) and WHOLE.takes(problem) is None and len(x) <= MOST_WHOLE:
            return WHOLE.start(problem, x)
        if STRUCTURED.takes(problem) is None:
            worth = FISTA.takes(problem) is not None or (problem.kappa > EASY and _is_structured(problem, x))
            return STRUCTURED.start(problem, x) if worth else FISTA.start(problem, x)
        easy = 1.0 if _in_blocks(problem) else EASY
        if FISTA.takes(problem) is not None or (problem.kappa > easy and _is_for_newton(problem, x)):
            return NEWTON.start(problem, x)
        return FISTA.start(problem, x)

    def step(self, problem: Canonical, state: AutoState) -> AutoState:
        if isinstance(state, SoftmaxState):
            return SOFTMAX.step(problem, state)
        if isinstance(state, FistaState):
            return FISTA.step(problem, state)
        if _is_cox(problem) and WHOLE.takes(problem) is None:
            return WHOLE.step(problem, state)
        if STRUCTURED.takes(problem) is None:
            known = None if state.evidence is None else state.evidence.z_gradient
            if FISTA.takes(problem) is None and not _is_structured(problem, state.x, known):
                return FISTA.step(problem, FISTA.start(problem, state.x))
            return STRUCTURED.step(problem, state)
        if FISTA.takes(problem) is None and (state.idle >= PATIENCE or not _is_for_newton(problem, state.x)):
            return FISTA.step(problem, FISTA.start(problem, state.x))
        return NEWTON.step(problem, state)


def _is_for_newton(problem: Canonical, x: Array) -> bool:
    terms = LinearParts.of(problem)
    if terms is None:
        return False
    design, s = terms.model.design, float(np.count_nonzero(x))
    entries = max(getattr(design.X, "nnz", math.prod(design.shape)), LEAST)
    side = min(s, design.shape[0]) if has_factors(design) else s  # of the matrices
    hessian = design.shape[0] * s * side + 4.0 * side**3
    kappa = max(problem.kappa, FEWEST) if isinstance(design.X, Blocked) else problem.kappa
    return side <= largest_matrix(design) and hessian <= WORTH * math.sqrt(kappa) * entries


def _in_blocks(problem: Canonical) -> bool:
    terms = LinearParts.of(problem)
    return terms is not None and isinstance(terms.model.design.X, Blocked)


def _is_cox(problem: Canonical) -> bool:
    return isinstance(Parts.of(problem).term, CoxModel)


def _is_structured(problem: Canonical, x: Array, gradient: Array | None = None) -> bool:
    """Whether a Hessian of the variables that may move is worth its price."""
    design, g = getattr(Parts.of(problem).term, "design", None), problem.g
    if design is None or not isinstance(g, Structured):
        return False
    least = g.least_subgradient(x, problem.f.gradient(x) if gradient is None else gradient)
    size = float(np.count_nonzero(g.whole((x != 0.0) | (least != 0.0))))
    entries = getattr(design.X, "nnz", math.prod(design.shape))
    hessian: float = design.shape[0] * size**2 + 4.0 * size**3
    return fits(problem, int(size)) and hessian <= WORTH * math.sqrt(problem.kappa) * float(entries)
