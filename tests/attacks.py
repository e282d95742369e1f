"""Every certificate that the package gives of a problem, beside the truth.

A `Target` is a problem with its exact minimiser (`tests.reference_exact`); `tests.attack_targets` makes them.
`certificates` solves a target in every way there is and yields what was claimed and what is true. A claim is false if
its radius is below the distance, or not a number.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb

import suffice
from suffice.cuda.newton_columns import NewtonBatch
from suffice.solvers.certificate import RULES
from suffice.solvers.many import solve_each
from suffice.solvers.solution import Ask
from suffice.solvers.solver import iterate
from tests.reference_exact import Enclosure, truth

REFUSALS = (ValueError, ArithmeticError, TypeError, np.linalg.LinAlgError)
FIRST_ORDER = ("fista", "fista_adaptive", "gradient_descent")
LINEAR = (*FIRST_ORDER, "newton", "auto")


@dataclass(frozen=True)
class Target:
    """A problem, what it is called in tables, and how its minimiser is found."""

    name: str
    problem: suffice.Composite
    dtype: str = "float64"
    layout: str = "C"
    solvers: tuple[Any, ...] = LINEAR
    exactly: Callable[[], Enclosure] | None = None
    start: tuple[float, ...] = ()  # one more point to start from, and to be certified
    effort: float = 1.0  # share of the usual number of certificates, for large ones
    beside: tuple[Target, ...] = ()  # others that share its X, on a device: they are solved in one batch

    @cached_property
    def minimiser(self) -> Enclosure:
        return truth(self.problem) if self.exactly is None else self.exactly()

    @property
    def enclosed(self) -> bool:
        """Whether its minimiser is found to the digits wanted."""
        with suppress(*REFUSALS):
            return bool(self.minimiser.x)
        return False


@dataclass(frozen=True)
class Claim:
    """A certificate beside the truth; `distance` is a lower bound on the true distance, as a ball."""

    solver: str
    rule: str
    how: str
    radius: float
    distance: Any

    @property
    def ratio(self) -> float:
        """Distance over radius; above 1, or not a number, the certificate is false."""
        if math.isnan(self.radius):
            return math.nan
        if self.radius == 0.0:
            return math.inf if self.distance > 0 else 0.0
        return float(self.distance / arb(self.radius)) if math.isfinite(self.radius) else 0.0

    @property
    def false(self) -> bool:
        return math.isnan(self.radius) or bool(
            self.distance > (arb(self.radius) if math.isfinite(self.radius) else arb("inf"))
        )


def claim(target: Target, solver: Any, rule: str, how: str, x: Any, radius: float) -> Claim:
    name = solver if isinstance(solver, str) else solver.name
    return Claim(name, rule, how, radius, target.minimiser.distance(x))


def starts(target: Target, rng: np.random.Generator) -> dict[str, Any]:
    """Zero; the minimiser rounded to float64, where rounding is all there is; beside it; far away."""
    x_hat = target.minimiser.rounded()
    size = float(np.linalg.norm(x_hat)) or 1.0
    with np.errstate(all="ignore"):
        nudged = np.nextafter(x_hat, rng.choice([-np.inf, np.inf], len(x_hat)))
        near = x_hat * (1.0 + 10.0 ** rng.uniform(-15, -3) * rng.standard_normal(len(x_hat)))
        far = 10.0 ** rng.uniform(-1, 3) * size * rng.standard_normal(len(x_hat))
    points = {"zero": np.zeros(len(x_hat)), "rounded": x_hat, "nudged": nudged, "near": near, "far": far}
    if target.start:
        points["given"] = np.array(target.start)
    return {how: point for how, point in points.items() if np.isfinite(point).all()}


def certificates(target: Target, rng: np.random.Generator, *, steps: int = 24, ways: int = 12) -> Iterator[Claim | str]:
    """Claims; a refusal, which is no claim, is told by its message."""
    points = starts(target, rng)
    for how, x in points.items():
        yield from _told(_certified, target, how, x)
    combinations = [(solver, rule, how) for solver in target.solvers for rule in RULES for how in points]
    steps, ways = math.ceil(target.effort * steps), math.ceil(target.effort * ways)
    for number in rng.permutation(len(combinations))[:ways]:
        yield from _told(_path, target, *combinations[number], points, steps, rng)
    for solver in target.solvers:
        yield from _told(_solves, target, solver, math.ceil(200 * min(target.effort, 1.0)), rng)
    if target.beside:
        members = [target, *(one for one in target.beside if one.enclosed)]
        every = [points, *(starts(one, rng) for one in members[1:])]
        for how in points:
            yield from _told(_batch_steps, members, how, [one.get(how) for one in every], rng)
        yield from _told(_batch_solves, members, rng)


def _told(make: Callable[..., Iterator[Claim]], *arguments: Any) -> list[Claim | str]:
    found: list[Claim | str] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found.extend(make(*arguments))
        except REFUSALS as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def _certified(target: Target, how: str, x: Any) -> Iterator[Claim]:
    yield claim(target, "certify", "tightest", how, x, suffice.certify(target.problem, x).radius)


def _path(
    target: Target, solver: Any, rule: str, how: str, points: dict[str, Any], steps: int, rng: Any
) -> Iterator[Claim]:
    """Certificates along the way; every one at first, some later."""
    spacing = int(rng.choice([1, 1, 4]))
    for k, solution in enumerate(iterate(target.problem, solver=solver, warm=points[how], certificate=rule)):  # type: ignore[arg-type]
        if k > 0 and (k <= 6 or k % spacing == 0):
            yield claim(target, solver, rule, f"{how}, step {k}", solution.x, solution.certificate.radius)
        if k >= steps * spacing:
            return


def _solves(target: Target, solver: Any, most: int, rng: np.random.Generator) -> Iterator[Claim]:
    """A solve, the same continued to twice the digits, and a fixed number of steps."""
    size = target.minimiser.size() or 1.0
    within = size * 10.0 ** rng.uniform(-9, -1)
    warm = np.array(target.start) if target.start else None
    solution = suffice.solve(target.problem, within=within, solver=solver, warm=warm, max_steps=most)
    yield claim(target, solver, "tightest", "solved", solution.x, solution.certificate.radius)
    solution = suffice.solve(
        target.problem, within=within * within / size, solver=solver, warm=solution, max_steps=most
    )
    yield claim(target, solver, "tightest", "continued", solution.x, solution.certificate.radius)
    solution = suffice.solve(target.problem, steps=int(rng.integers(1, 30)), solver=solver)
    yield claim(target, solver, "tightest", "fixed steps", solution.x, solution.certificate.radius)


def _batch_steps(
    members: Sequence[Target], how: str, points: Sequence[Any], rng: np.random.Generator
) -> Iterator[Claim]:
    """Certificates of all models of a batch after some steps."""
    for steps in (1, 2, int(rng.integers(3, 20))):
        asks = [Ask(one.problem, warm, steps=steps) for one, warm in zip(members, points, strict=True)]
        yield from _of_batch(members, solve_each(asks, "auto"), f"{how}, step {steps}")


def _batch_solves(members: Sequence[Target], rng: np.random.Generator) -> Iterator[Claim]:
    """Each to its own accuracy, and the same continued to twice the digits."""
    sizes = [one.minimiser.size() or 1.0 for one in members]
    goals = [size * 10.0 ** rng.uniform(-9, -1) for size in sizes]
    asks = [Ask(one.problem, within=goal, max_steps=100) for one, goal in zip(members, goals, strict=True)]
    found = solve_each(asks, "auto")
    yield from _of_batch(members, found, "solved")
    finer = [within * within / size for within, size in zip(goals, sizes, strict=True)]
    asks = [replace(ask, warm=one, within=goal) for ask, one, goal in zip(asks, found, finer, strict=True)]
    yield from _of_batch(members, solve_each(asks, "auto"), "continued")


def _of_batch(members: Sequence[Target], found: Sequence[Any], how: str) -> Iterator[Claim]:
    assert NewtonBatch.holds([one.problem for one in members])
    for one, solution in zip(members, found, strict=True):
        yield claim(one, "batch", solution.certificate.rule, how, solution.x, solution.certificate.radius)
