r"""The one inner loop: step, certify, stop as soon as the proof is there.

A step that cannot improve on a state any more returns it as it is (see `solvers.solution`). The loop works either
until the certificate's radius is at most `within`, or for a fixed number of `steps`, of which only the last is
certified. A solution keeps its solver's state, so that continuing it to a smaller radius costs the difference only and
gives, bit for bit, what a single run would have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np

from suffice.arrays import Array, frozen, positive, vector, whole_number
from suffice.imaging.newton_tv import NewtonTV
from suffice.penalties.prox import check_size
from suffice.protocols import conforms
from suffice.solvers.auto import Auto
from suffice.solvers.certificate import RULES, Certificate, Evidence, Rule, certify_step, tighter, verified
from suffice.solvers.fista import AdaptiveFista, Fista, GradientDescent
from suffice.solvers.newton import Newton
from suffice.solvers.problem import Canonical, Composite
from suffice.solvers.quadratic import NoFactorError
from suffice.solvers.solution import Outcome, Selective, Solution, Solver, out_of_reach, patience

SOLVERS: dict[str, Solver] = {
    solver.name: solver for solver in (Auto(), Fista(), AdaptiveFista(), GradientDescent(), Newton())
}
SPECIAL: dict[str, Solver] = {"newton_tv": NewtonTV()}  # for problems of one kind only

FIRST_TRY, LATER = 20, 1.5  # the first step of a first-order method that is verified; the next ones, times so much


def solve(
    problem: Composite,
    *,
    within: float | None = None,
    steps: int | None = None,
    solver: str | Solver = "auto",
    warm: Solution | Array | None = None,
    certificate: Rule = "tightest",
    max_steps: int | None = None,
    enough: Callable[[Solution], bool] | None = None,
) -> Solution:
    """Minimise f + g until the distance to the minimiser is proven to be at most `within`, or for `steps` steps.

    `solver` is a name ("auto", "newton", "fista_adaptive", "fista", "gradient_descent", "newton_tv") or a solver of
    your own. `certificate` is the rule that proves the distance; "tightest" is the best of those that are free of
    charge and of a verification of the signed support.

    `warm` is a starting point, or a solution: one of this very problem by this solver is continued (and returned as
    it is if it is accurate enough), any other lends its x as starting point. Without it the start is 0. `max_steps`
    limits the steps of this call; by default there is no limit but that of floating-point arithmetic. `enough` may end
    the solve earlier: it is asked about every solution that was verified. A request that was not met is reported by
    `solution.outcome`; the certificate is valid in any case.
    """
    if (within is None) == (steps is None):
        raise ValueError(f"give exactly one of within and steps, got within={within!r}, steps={steps!r}")
    if within is not None:
        positive(within, "within", zero=True)
    if steps is not None and max_steps is not None:
        raise ValueError(f"max_steps goes with within, not with steps, got steps={steps!r}, max_steps={max_steps!r}")
    name, limit = ("max_steps", max_steps) if steps is None else ("steps", steps)
    limit = None if limit is None else whole_number(limit, name, least=0)
    best, best_at, patient = math.inf, 0, patience(problem)
    state = None
    for taken, solution in enumerate(_iterate(problem, solver, warm, certificate, steps or 0, within or 0.0)):
        if within is not None:
            if solution.certificate.radius <= within:
                return replace(solution, outcome=Outcome.REACHED)
            if enough is not None and solution.certificate.verification is not None and enough(solution):
                return replace(solution, outcome=Outcome.REACHED)
            if solution.certificate.radius < 0.999 * best:
                best, best_at = solution.certificate.radius, taken
            # Either rounding forbids what is asked for and is all that is left of the radius, or the solver says so, or
            # the radius has stopped falling, as it does where a user's own terms are blurred by more rounding than we
            # know of.
            if out_of_reach(solution.certificate, within) or solution.state is state or taken - best_at > patient:
                return replace(solution, outcome=Outcome.PRECISION)
            state = solution.state
        if taken == limit:
            return replace(solution, outcome=Outcome.STEPS if within is None else Outcome.MAX_STEPS)
    raise AssertionError("the iteration has no end of its own")


def iterate(
    problem: Composite,
    *,
    solver: str | Solver = "fista",
    warm: Solution | Array | None = None,
    certificate: Rule = "tightest",
) -> Iterator[Solution]:
    """Every iterate with its certificate, without end: first the start, then one solution per step.

    A cold start's certificate comes from the first step's gradient, which is the gradient there.
    """
    return _iterate(problem, solver, warm, certificate, 0, 0.0)


def _iterate(
    problem: Composite,
    solver: str | Solver,
    warm: Solution | Array | None,
    certificate: Rule,
    certify_from: int,
    within: float,
) -> Iterator[Solution]:
    """`iterate`, with certificates from the step `certify_from` on only, and no more than `within` needs."""
    if certificate not in RULES:
        raise ValueError(f"certificate must be one of {', '.join(RULES)}, got {certificate!r}")
    method = find_solver(solver)
    canonical = problem.canonical
    if isinstance(warm, Solution) and continues(warm, problem, method):
        steps, state, proof = warm.steps, warm.state, warm.certificate
        if state is None:  # a state of the user's own that a file could not hold: start again from here
            state = method.start(canonical, warm.x)
        elif (
            certificate == "tightest"
            and proof.radius > within
            and proof.rule != "verified"
            and (_worth_verifying(state, steps) or out_of_reach(proof, within))
        ):
            proof = tighter(proof, verified(canonical, warm.x, state.evidence or Evidence.at(canonical, warm.x)))
        yield replace(warm, certificate=proof)
    else:
        start = begun(problem, solver, warm, certificate)
        steps, state, proof = 0, start.state, start.certificate
        yield start
        del start
    taken, pending = 0, False
    while True:
        made = _in_range(method.step, canonical, state)
        # Without new evidence the step was not made, and the proof stands. States hold margins, as long as X has rows:
        # one that is past is let go before the next one is made.
        pending = pending or made.evidence is not state.evidence
        state = made
        del made
        steps, taken = steps + 1, taken + 1
        if pending and taken >= certify_from:
            proof = certify_step(canonical, state.x, state.image, state.evidence, certificate)
            due = proof.radius > within and (_worth_verifying(state, steps) or out_of_reach(proof, within))
            if certificate == "tightest" and due:
                proof = tighter(proof, verified(canonical, state.x, state.evidence))
            pending = False
        _freeze(state)
        yield Solution(state.x, proof, steps, Outcome.STEPS, solver, state, problem)


def begun(
    problem: Composite,
    solver: str | Solver,
    warm: Solution | Array | None,
    rule: str,
    state_at: Callable[[Array], Any] | None = None,
) -> Solution:
    """A solve of no steps, from where `warm` is."""
    refuse(solver, problem)
    x = start_point(problem, warm)
    state = find_solver(solver).start(problem.canonical, x) if state_at is None else state_at(x)
    return Solution(state.x, Certificate(math.inf, rule), 0, Outcome.STEPS, solver, state, problem=problem)


def _worth_verifying(state: Any, steps: int) -> bool:
    """Whether a verification is worth its price. Newton's method says whether its signs look right; where steps are
    cheap, the steps 20, 30, 45, ... are verified, each half as far again, once there were as many as a verification
    costs. That depends on nothing but the state, so that a solution continued is the same as one made at once."""
    settled = getattr(state, "settled", None)
    if settled is not None:
        return bool(settled)
    s = np.count_nonzero(state.x)
    if steps < max(FIRST_TRY, s * s / len(state.x)):
        return False
    return steps == math.floor(FIRST_TRY * LATER ** round(math.log(steps / FIRST_TRY, LATER)))


def _in_range(step: Callable[[Canonical, Any], Any], problem: Canonical, state: Any) -> Any:
    """The state after a step; one that leaves the range of floats is not made. A user's own f that has no finite
    gradient is an error."""
    with np.errstate(over="ignore", invalid="ignore"), suppress(NoFactorError):
        made = step(problem, state)
        if math.isfinite(float(np.add.reduce(made.x))) or np.isfinite(made.x).all():
            return made
    if not problem.f.rounding_is_known:
        raise ArithmeticError("the gradient or the prox is not finite")
    return state


def _freeze(state: Any) -> None:
    """No array of a state can be written to from now on."""
    for part in (state, state.evidence):
        for value in vars(part).values() if hasattr(part, "__dict__") else ():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)


def continues(warm: Solution | None, problem: Composite, solver: str | Solver) -> bool:
    """Whether `warm` is a solution of this very problem by this solver, to be continued, or just a starting point."""
    if warm is None or warm.problem is None or not _same_solver(warm.solver, solver):
        return False
    try:
        return warm.problem == problem
    except ValueError:  # a user's terms that hold arrays and cannot be compared are not known to be the same
        return False


def _same_solver(one: str | Solver, other: str | Solver) -> bool:
    """Equal, or a solver of the user's own that has come back from a file as its name."""
    a, b = (SOLVERS.get(solver, solver) if isinstance(solver, str) else solver for solver in (one, other))
    return _name(a) == _name(b) if isinstance(a, str) or isinstance(b, str) else a == b


def _name(solver: str | Solver) -> str:
    return solver if isinstance(solver, str) else solver.name


def start_point(problem: Composite, warm: Solution | Array | None) -> Array:
    """Where a solve that does not continue another begins."""
    if isinstance(warm, Solution):
        x = warm.x
    elif warm is not None:
        x = vector(warm, "warm")
    elif problem.size is not None:
        x = np.zeros(problem.size)
    else:
        raise ValueError("the problem has no size: give a starting point as `warm`, or Composite(..., size=...)")
    if problem.size is not None and x.shape != (problem.size,):
        raise ValueError(f"warm must have shape ({problem.size},), got {x.shape}")
    if problem.size is None:
        check_size(problem.prox, x.size)
    return frozen(x)


class UnsuitedError(ValueError, TypeError):
    """A solver does not take a problem: mostly for the kind of its terms, hence a TypeError as well."""


def refusal(solver: str | Solver, problem: Composite) -> str | None:
    """Why the solver does not take this problem, or None if it does."""
    method = find_solver(solver)
    reason = cast("Selective", method).takes(problem.canonical) if conforms(method, Selective) else None
    return None if reason is None else f"solver={method.name!r} {reason}"


def refuse(solver: str | Solver, problem: Composite) -> None:
    """Raise UnsuitedError, with the solver's own reason, if it does not take this problem."""
    reason = refusal(solver, problem)
    if reason is not None:
        raise UnsuitedError(reason)


def find_solver(solver: str | Solver) -> Solver:
    """The solver of that name, or the solver itself."""
    if not isinstance(solver, str):
        if not all(callable(getattr(solver, method, None)) for method in ("start", "step")):
            raise TypeError(f"solver must offer start and step, {solver!r} does not")
        return solver
    known = SPECIAL | SOLVERS
    if solver not in known:
        raise ValueError(f"solver must be one of {', '.join(known)} or a Solver, got {solver!r}")
    return known[solver]
