r"""Many solves at a time.

Linear models that share an X of torch go through one iteration on matrices on its device, each to its own accuracy
(`suffice.cuda.newton_columns`); all others one after the other. A problem leaves its batch when it is proven. Proofs
are made in one place, `certify_step`; it is asked about a problem as soon as an estimate of its radius, without
rounding and for all problems at once, says that it may succeed. What rounding forbids to prove that way is verified
(`suffice.prove.verified`), one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from suffice.arrays import norm
from suffice.solvers.auto import Auto
from suffice.solvers.certificate import Certificate, tighter, verified
from suffice.solvers.newton import NewtonState
from suffice.solvers.solution import Ask, Outcome, Solution, Solver, out_of_reach, patience
from suffice.solvers.solver import begun, continues, find_solver, solve

WORTH = 1e-6  # of the weights: a larger radius that rounding leaves is worth a verification
AGAIN = 0.9  # the share of an estimated radius whose proof rounding has spoilt, at which the next proof is tried


def solve_each(asks: Sequence[Ask], solver: str | Solver) -> list[Solution]:
    """`solve` for every ask; those that can go together do."""
    solutions: dict[int, Solution] = {}
    for numbers in _groups(asks) if isinstance(find_solver(solver), Auto) else ():
        found = _batched([asks[j] for j in numbers], solver)
        solutions |= dict(zip(numbers, found, strict=True))
    return [solutions.get(j) or _alone(ask, solver) for j, ask in enumerate(asks)]


def _groups(asks: Sequence[Ask]) -> list[list[int]]:
    from suffice.cuda.newton_columns import NewtonBatch

    groups: list[list[int]] = []
    for j, ask in enumerate(asks):
        if NewtonBatch.holds([ask.problem]):
            for numbers in groups:
                first = asks[numbers[0]]
                if first.steps == ask.steps and NewtonBatch.holds([first.problem, ask.problem]):
                    numbers.append(j)
                    break
            else:
                groups.append([j])
    return groups


def _alone(ask: Ask, solver: str | Solver) -> Solution:
    limit = None if ask.steps is not None or ask.max_steps is None else int(ask.max_steps)
    given: dict[str, Any] = {name: getattr(ask, name) for name in ("within", "steps", "warm", "enough", "certificate")}
    return solve(ask.problem, solver=solver, max_steps=limit, **given)


def _batched(asks: Sequence[Ask], solver: str | Solver) -> list[Solution]:
    from suffice.cuda.newton_columns import NewtonBatch

    starts, steps = [_start(ask, solver) for ask in asks], asks[0].steps
    with np.errstate(over="ignore", invalid="ignore"):  # of problems that leave the range of floats: they end
        if steps is None:
            return _proven(asks, starts)
        batch = NewtonBatch.of(starts).advanced(steps)
        return [batch.solution(j, replace(start, steps=start.steps + steps)) for j, start in enumerate(starts)]


def _start(ask: Ask, solver: str | Solver) -> Solution:
    """The solution that is to be continued, or a new one of no steps."""
    warm, problem = ask.warm, ask.problem
    if isinstance(warm, Solution) and continues(warm, problem, solver) and isinstance(warm.state, NewtonState):
        return replace(warm, problem=problem)
    return begun(problem, solver, warm, "tightest", NewtonState)


def _proven(asks: Sequence[Ask], starts: Sequence[Solution]) -> list[Solution]:
    from suffice.cuda.newton_columns import NewtonBatch

    asked = np.array([float(ask.within or 0.0) for ask in asks])
    limits = np.array([math.inf if ask.max_steps is None else ask.max_steps for ask in asks])
    patient = np.array([patience(ask.problem) for ask in asks])
    goal, best, best_at = asked.copy(), np.full(len(asks), np.inf), np.zeros(len(asks))
    solutions: dict[int, Solution] = {}
    for j, start in enumerate(starts):
        outcome = _ended(start.certificate, asked[j], limits[j] == 0, False)
        if outcome is not None:
            solutions[j] = replace(start, outcome=outcome)
    left = [j for j in range(len(asks)) if j not in solutions]  # the numbers of the problems in the batch
    batch, taken = NewtonBatch.of([starts[j] for j in left]) if left else None, 0
    while batch is not None:
        batch, taken = batch.advanced(1), taken + 1
        estimate = batch.estimates()
        better = estimate < 0.999 * best[left]
        best[left], best_at[left] = np.where(better, estimate, best[left]), np.where(better, taken, best_at[left])
        stuck = (taken - best_at[left] > patient[left]) | batch.ended()
        spent = taken >= limits[left]
        for i in np.flatnonzero((estimate <= goal[left]) | stuck | spent):
            j = left[i]
            solution = batch.solution(int(i), replace(starts[j], steps=starts[j].steps + taken))
            proof = solution.certificate
            outcome = _ended(proof, asked[j], bool(spent[i]), bool(stuck[i]))
            if outcome is Outcome.PRECISION:
                solution, outcome = _verified(solution, asks[j], outcome)
            if outcome is not None:
                solutions[j] = replace(solution, outcome=outcome)
            else:  # rounding, which the estimate leaves out, spoils the proof: ask again when it would not
                least = asked[j] - proof.rounding if asked[j] > proof.rounding else proof.rounding
                goal[j] = min(least, AGAIN * estimate[i])
        kept = [i for i, j in enumerate(left) if j not in solutions]
        if len(kept) < len(left):
            left = [left[i] for i in kept]
            batch = batch.only(kept) if left else None
    return [solutions[j] for j in range(len(asks))]


def _verified(solution: Solution, ask: Ask, outcome: Outcome) -> tuple[Solution, Outcome]:
    """The solution with the proof of its signed support, if there is one, where rounding spoils all other rules: a
    verification costs more than all steps of a batch, and adds little to a radius that is small already."""
    evidence = getattr(solution.state, "evidence", None)
    if evidence is None or solution.certificate.radius <= WORTH * norm(solution.x):
        return solution, outcome
    proof = tighter(solution.certificate, verified(ask.problem.canonical, solution.x, evidence))
    solution = replace(solution, certificate=proof)
    enough = ask.enough is not None and proof.verification is not None and ask.enough(solution)
    return solution, Outcome.REACHED if enough or proof.radius <= float(ask.within or 0.0) else outcome


def _ended(proof: Certificate, within: float, spent: bool, stuck: bool) -> Outcome | None:
    if proof.radius <= within:
        return Outcome.REACHED
    if out_of_reach(proof, within) or stuck:
        return Outcome.PRECISION
    return Outcome.MAX_STEPS if spent else None
