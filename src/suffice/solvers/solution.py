"""What a solve is asked for, what it gives, and what a method has to offer.

A solver is two functions, `start` and `step`, on immutable states that carry the evidence for a certificate. It may
say which problems it takes (`Selective`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from suffice.arrays import Array, frozen
from suffice.solvers.certificate import GIVEN_AGAIN, Certificate, Rule
from suffice.solvers.problem import Canonical, Composite


class Outcome(Enum):
    """How a solve ended; the value is its message."""

    REACHED = "the requested accuracy is proven"
    STEPS = "the requested number of steps was taken"
    MAX_STEPS = "max_steps was reached before the requested accuracy was proven"
    PRECISION = "the requested accuracy is finer than floating-point arithmetic can prove here"


class Solver(Protocol):
    """A lower-level method. A state is never modified; it has the current point `x`, its linear `image` where it is
    known or None, and the `evidence` for a certificate. `step` returns a new one, or the very state it was given if
    rounding is all that is left."""

    @property
    def name(self) -> str:
        """What it is called in results and journals."""

    def start(self, problem: Canonical, x: Array) -> Any:
        """The state before the first step, at x."""

    def step(self, problem: Canonical, state: Any) -> Any:
        """The state after one more step, with its evidence."""


@runtime_checkable
class Selective(Protocol):
    """A solver that is not for all problems."""

    def takes(self, problem: Canonical) -> str | None:
        """None, or why not: what the solver needs, what it got, and what to use instead."""


@dataclass(frozen=True)
class Solution:
    """x with its certificate. `steps` counts the solver's steps from the very start, continuations included."""

    x: Array
    certificate: Certificate
    steps: int
    outcome: Outcome
    solver: str | Solver = "fista"
    state: Any = field(default=None, repr=False)
    problem: Composite | None = field(default=None, repr=False, compare=False, metadata=GIVEN_AGAIN)
    error: float = field(default=math.inf, repr=False)  #: proven error of its loss, where that is less than by radius
    tangent: Array | None = field(default=None, repr=False, compare=False)  #: where its next derivative may start from

    @property
    def reached(self) -> bool:
        """Whether the solve did what it was asked to do."""
        return self.outcome in (Outcome.REACHED, Outcome.STEPS)

    def start_at(self, x: Array) -> Solution:
        """A start at x for the same solver. It is not a solution: nothing is proven about it."""
        return start_from(x, self.solver)


def start_from(x: Array, solver: str | Solver) -> Solution:
    """A start at x, of which nothing is proven."""
    return Solution(frozen(x), Certificate(math.inf, "none"), 0, Outcome.STEPS, solver)


@dataclass(frozen=True)
class Ask:
    """A solve that is wanted: the arguments of `solve`."""

    problem: Composite
    warm: Solution | Array | None = None
    within: float | None = None
    steps: int | None = None
    max_steps: float | None = None
    enough: Callable[[Solution], bool] | None = None
    certificate: Rule = "tightest"


def out_of_reach(proof: Certificate, within: float) -> bool:
    """Whether rounding alone is more than what is asked for, and hardly anything else is left of the radius."""
    return proof.rounding >= within and proof.radius <= 2.0 * proof.rounding


def patience(problem: Composite) -> float:
    """How many steps the radius may stand still before rounding is held to be all that is left."""
    return 100.0 + 20.0 * math.sqrt(problem.kappa)
