r"""Many solves at a time.

Problems go through one iteration on matrices where the solver offers that (`Batching`), each to its own accuracy; the
others one after the other. A problem leaves its batch when it is proven. Proofs are made in one place, `certify_step`;
it is asked about a problem as soon as an estimate of its radius, without rounding and for all problems at once, says
that it may succeed. What rounding forbids to prove that way is verified (`suffice.prove.verified`), one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from suffice.arrays import norm
from suffice.solvers.certificate import Certificate, tighter, verified
from suffice.solvers.solution import Ask, Batch, Outcome, Solution, Solver, out_of_reach, patience
from suffice.solvers.solver import begun, continues, find_solver, solve

WORTH = 1e-6  # of the weights: a larger radius that rounding leaves is worth a verification


def solve_each(asks: Sequence[Ask], solver: str | Solver) -> list[Solution]:
    """`solve` for every ask; those that can go together do."""
    kinds, groups = _kinds(find_solver(solver)), list[list[int]]()
    for j, ask in enumerate(asks):
        for numbers in groups:
            if _kind([asks[numbers[0]], ask], kinds) is not None:
                numbers.append(j)
                break
        else:
            groups.append([j])
    solutions: dict[int, Solution] = {}
    for numbers in groups:
        group = [asks[j] for j in numbers]
        kind = _kind(group, kinds)
        kind = kind if kind is not None and (len(group) > 1 or kind.alone) else None
        found = [_alone(ask, solver) for ask in group] if kind is None else _batched(group, solver, kind)
        solutions |= dict(zip(numbers, found, strict=True))
    return [solutions[j] for j in range(len(asks))]


def _kinds(method: Solver) -> tuple[type[Batch], ...]:
    """The batches that a solver offers: its own class, since one derived from it may have other steps."""
    kinds: tuple[type[Batch], ...] = vars(type(method)).get("batches", ())
    return kinds


def _kind(asks: Sequence[Ask], kinds: Sequence[type[Batch]]) -> type[Batch] | None:
    same = all(ask.steps == asks[0].steps for ask in asks)
    return next((kind for kind in kinds if same and kind.holds(asks)), None)


def _alone(ask: Ask, solver: str | Solver) -> Solution:
    limit = None if ask.steps is not None or ask.max_steps is None else int(ask.max_steps)
    asked: dict[str, Any] = {"within": ask.within, "steps": ask.steps, "warm": ask.warm, "enough": ask.enough}
    return solve(ask.problem, solver=solver, max_steps=limit, certificate=ask.certificate, **asked)


def _batched(asks: Sequence[Ask], solver: str | Solver, kind: type[Batch]) -> list[Solution]:
    method = find_solver(solver)
    starts = [_start(ask, solver, kind) for ask in asks]
    with np.errstate(over="ignore", invalid="ignore"):  # of problems that leave the range of floats: they end
        steps = asks[0].steps
        return _proven(asks, starts, method, kind) if steps is None else _fixed(starts, steps, method, kind)


def _start(ask: Ask, solver: str | Solver, kind: type[Batch]) -> Solution:
    """The solution that is to be continued, or a new one of no steps."""
    warm, problem = ask.warm, ask.problem
    if isinstance(warm, Solution) and continues(warm, problem, solver) and warm.state is not None:
        return replace(warm, problem=problem) if warm.problem is not problem else warm
    return begun(problem, solver, warm, "tightest", kind)


def _fixed(starts: list[Solution], steps: int, method: Any, kind: type[Batch]) -> list[Solution]:
    if steps == 0:
        return starts
    batch, taken = kind.of(method, starts), 0
    if any(start.steps == 0 for start in starts):
        batch, taken = batch.advanced(1), 1
        starts = _with_radii(batch, starts)
    batch = batch.advanced(steps - taken)
    return [batch.solution(j, replace(start, steps=start.steps + steps)) for j, start in enumerate(starts)]


def _with_radii(batch: Batch, starts: Sequence[Solution]) -> list[Solution]:
    """The starts, with what the first gradient of a new one proves about it."""
    return [
        start if start.steps > 0 else replace(start, initial_radius=batch.start_radius(j))
        for j, start in enumerate(starts)
    ]


def _proven(asks: Sequence[Ask], starts: list[Solution], method: Any, kind: type[Batch]) -> list[Solution]:
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
    batch, taken = kind.of(method, [starts[j] for j in left]) if left else None, 0
    while batch is not None:
        batch, taken = batch.advanced(1), taken + 1
        if taken == 1:
            starts = list(starts)
            for j, start in zip(left, _with_radii(batch, [starts[j] for j in left]), strict=True):
                starts[j] = start
        estimate = batch.estimates(np.array([starts[j].initial_radius for j in left]))
        better = estimate < 0.999 * best[left]
        best[left], best_at[left] = np.where(better, estimate, best[left]), np.where(better, taken, best_at[left])
        stuck = (taken - best_at[left] > patient[left]) | batch.ended()
        if not np.isfinite(estimate).all():
            stuck |= ~batch.finite()
        spent = taken >= limits[left]
        ripe = (estimate <= goal[left]) | stuck | spent
        for i in np.flatnonzero(ripe):
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
                goal[j] = min(least, batch.again * estimate[i])
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
