"""Problems that go through one iteration on matrices, as `suffice.solvers.many.solve_each` sends them there."""

import numpy as np

from suffice.solvers.many import solve_each
from suffice.solvers.solution import Ask
from suffice.solvers.solver import find_solver


def solve_together(problems, *, within=None, steps=None, solver="fista", warm=None, max_steps=None):
    """Each to its own accuracy, or all by so many steps; ValueError where they are no batch of the solver."""
    none = [None] * len(problems)
    limits = none if max_steps is None else np.broadcast_to(max_steps, len(problems)).tolist()
    asks = [Ask(*one, steps, limit) for *one, limit in zip(problems, warm or none, within or none, limits, strict=True)]
    if not any(kind.holds(asks) for kind in vars(type(find_solver(solver))).get("batches", ())):
        raise ValueError(f"these are no batch of {solver!r}")
    return solve_each(asks, solver)
