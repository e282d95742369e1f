r"""The method that is fastest for the problem at hand.

- A linear model with an l1 penalty or none: `newton`, unless kappa is so small that FISTA needs fewer products than
  Newton's Hessians cost, or the support does not fit into a working set of bounded memory.
- Everything else: `fista_adaptive`.

A solve that outgrows the working set goes on with FISTA from the point it has reached.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from suffice._array import Array
from suffice.lower.fista import AdaptiveFista, FistaState
from suffice.lower.newton import Newton, NewtonState, Terms, largest_working_set
from suffice.problem import Canonical

NEWTON, FISTA = Newton(), AdaptiveFista()
EASY = 100.0  # kappa up to which FISTA is as fast


@dataclass(frozen=True)
class Auto:
    """`newton` or `fista_adaptive`; states are those of the method."""

    name: str = "auto"

    def start(self, problem: Canonical, x: Array) -> NewtonState | FistaState:
        if not math.isfinite(problem.L) or (problem.L / problem.mu > EASY and _fits(problem, x)):
            return NEWTON.start(problem, x)
        return FISTA.start(problem, x)

    def step(self, problem: Canonical, state: NewtonState | FistaState) -> NewtonState | FistaState:
        if isinstance(state, FistaState):
            return FISTA.step(problem, state)
        if math.isfinite(problem.L) and not _fits(problem, state.x):
            return FISTA.step(problem, FISTA.start(problem, state.x))
        return NEWTON.step(problem, state)


def _fits(problem: Canonical, x: Array) -> bool:
    terms = Terms.of(problem)
    return terms is not None and int(np.count_nonzero(x)) <= largest_working_set(terms.model.design)
