"""Problems that go through one iteration on matrices, as `suffice.solvers.many.solve_each` sends them there."""

from suffice.cuda.newton_columns import NewtonBatch
from suffice.solvers.many import solve_each
from suffice.solvers.solution import Ask


def solve_together(problems, *, within):
    """Each to its own accuracy; ValueError where they are no batch."""
    if not NewtonBatch.holds(problems):
        raise ValueError("these are no batch")
    return solve_each([Ask(problem, within=one) for problem, one in zip(problems, within, strict=True)], "auto")
