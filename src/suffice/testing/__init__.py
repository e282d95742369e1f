"""Conformance checks for what users bring: a problem, a solver, a loss, an objective, an adapter. One call each.

A proof is worth what its assumptions are worth. Each check looks for a counterexample to what the package relies on,
in random and in adversarial directions, and raises `ConformanceError` with the numbers if it finds one. Silence is
no proof, but a wrong mu, L, prox, gradient, error bound or certificate rarely survives.

numerics    problems, solvers, losses, objectives
adapters    what an adapter says of an estimator
"""

from suffice.testing.adapters import check_adapter
from suffice.testing.numerics import (
    ConformanceError,
    check_loss,
    check_objective,
    check_problem,
    check_solver,
    sample_problems,
)

__all__ = ["ConformanceError", "check_adapter", "check_loss", "check_objective", "check_problem", "check_solver"]
__all__ += ["sample_problems"]
