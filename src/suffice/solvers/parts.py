r"""A problem taken apart, as methods that know its terms see it:

    f(x) = term(x) + 1/2 sum_i ridge_i x_i^2,        g(x) = sum_i l1_i |x_i|,

where an elastic net's ridge, or one per variable, has been added to the term that the user stated. For a linear model
(`suffice.models.linear`), with or without an intercept, ridge and the model's own l2 are one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from suffice.arrays import Array
from suffice.models.linear import LossModel
from suffice.models.smooth import ImagedSmooth, Ridged
from suffice.penalties.prox import L1, WeightedL1, Zero
from suffice.solvers.problem import Canonical


@dataclass(frozen=True)
class Parts:
    """f as a term and a ridge; `l1` is None where g is another penalty."""

    term: ImagedSmooth
    ridge: float | Array
    l1: float | Array | None

    @classmethod
    def of(cls, problem: Canonical) -> Parts:
        f, g = problem.f, problem.g
        term, ridge = (f.term, f.ridge) if isinstance(f, Ridged) else (f, 0.0)
        return cls(term, ridge, g.l1 if isinstance(g, L1 | WeightedL1) else 0.0 if isinstance(g, Zero) else None)


@dataclass(frozen=True)
class LinearParts:
    """A linear model with an l1 penalty or none."""

    model: LossModel
    l2: float | Array
    l1: float | Array

    @classmethod
    def of(cls, problem: Canonical) -> LinearParts | None:
        """None for anything else."""
        parts = Parts.of(problem)
        if not isinstance(parts.term, LossModel) or parts.l1 is None:
            return None
        return cls(parts.term, parts.term.l2 + parts.ridge, parts.l1)


def lacks_constants(problem: Canonical) -> str | None:
    """Why a method whose steps are proven by L and mu does not take the problem."""
    if problem.mu == 0.0:
        return "needs mu > 0, that is an l2 > 0: use solver='newton'"
    return "needs a finite L, and f has none: use solver='newton'" if math.isinf(problem.L) else None
