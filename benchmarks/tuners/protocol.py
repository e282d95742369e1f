r"""One protocol for all tuners.

A *problem* is a bilevel problem with a box, a start and a budget. A *tuner* is a function of a `Run`, the only way to
train: it says how accurately to train at a theta, and gets residuals. Training is the same code for all
(`BilevelProblem.evaluate`, with one of two lower-level solvers, "fista" or "auto"), and starts from the solution at
the nearest theta that this run has trained at. A tuner that knows nothing of accuracy trains until F is proven to

    |F~ - F| <= 1e-4 F,            or 2,000 steps are made,

which is far below the 1 % and 0.1 % that count, and cheap where "exact" would not be.

A run is charged for every multiplication with X that it causes (`meter`), in units of one product with the X of one
lower-level problem, and for its seconds, its own thinking included; one process, one thread. After every evaluation
the theta that the tuner would return by then is written down. Its exact F, by weights proven to make it right to 1e-9,
is found when the run is over, and is nobody's work: that F over the work, or over the seconds, is what is compared.

Seeds. Seed 0 starts at the problem's own start, seed k > 0 at the k-th of a fixed list of starts: the paper's seven for
its problem, else uniform in the middle half of the box, which is logarithmic. Tuners that take a start get this one
(also those that sample: it is their first trial), the others just get the seed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import suffice
from benchmarks.tuners import meter

Vector = npt.NDArray[np.float64]

RELATIVE = 1e-4  # |F~ - F| <= this times F, where a tuner does not ask for an accuracy
MOST_STEPS = 2_000  # of the solver, in one evaluation
EXACT = 1e-9
THIN = 0.02  # a theta that is returned for less than this share of the work so far is not scored


@dataclass(frozen=True)
class Problem:
    """What is tuned. `make(solver)` builds it anew; `start` and `starts` are those of seeds 0, 1, ...; `products` is
    what a run may spend, `training` what one training from scratch costs at the optimum, the unit of profiles."""

    name: str
    about: str
    make: Callable[[str], suffice.BilevelProblem]
    start: tuple[float, ...]
    products: Mapping[str, float]  # the budget, by solver
    starts: tuple[tuple[float, ...], ...] = ()
    training: Mapping[str, float] = field(default_factory=dict)  # products of one training from scratch at the optimum
    solvers: tuple[str, ...] = ("fista", "auto")
    exact_solver: str = "auto"
    by_steps: bool = False  # there is no X: work is two for each step of the solver
    slopes: bool = True  # whether it offers derivatives

    def start_of(self, seed: int, bounds: tuple[Vector, Vector]) -> Vector:
        """Where the run with this seed starts."""
        listed = (self.start, *self.starts)
        if seed < len(listed):
            return np.array(listed[seed], dtype=np.float64)
        lower, upper = bounds
        rng = np.random.default_rng([seed, *self.name.encode()])
        return lower + (0.25 + 0.5 * rng.random(len(lower))) * (upper - lower)


class Spent(BaseException):
    """The budget is used up. Not an Exception: no tuner may mistake it for a failed evaluation."""


@dataclass(frozen=True)
class Limits:
    """When a run ends, at the latest: products with X, evaluations, seconds."""

    products: float
    evaluations: int = 1000
    seconds: float = math.inf


@dataclass
class Run:
    """A tuner on its way on a problem: what it may do, and what it has spent."""

    name: str
    problem: suffice.BilevelProblem
    limits: Limits
    start: Vector
    seed: int
    by_steps: bool = False
    relative: float = RELATIVE
    known: list[suffice.Evaluation] = field(default_factory=list)
    curve: list[tuple[float, float, float, int, Vector]] = field(default_factory=list)  # work, wall, cpu, number, theta
    evaluations: int = 0
    training_seconds: float = 0.0
    _best: float = math.inf
    _steps: float = 0.0

    def __post_init__(self) -> None:
        meter.install()
        self.lower, self.upper = (np.array(bound, dtype=np.float64) for bound in self.problem.space.bounds)
        self.problem = self.problem.limited(MOST_STEPS)
        self.unit = _unit(self.problem)
        self.problem.at(self.start)  # norms of X are nobody's work
        _ = [loss.at(np.zeros(lower.size)) for loss, lower in zip(self.problem.losses, self.problem.lower, strict=True)
             if hasattr(lower, "size")]  # fmt: skip
        self._before = meter.METER.total
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    @property
    def m(self) -> int:
        """The number of hyperparameters."""
        return len(self.lower)

    @property
    def products(self) -> float:
        """The work so far."""
        counted = (meter.METER.total - self._before) / self.unit
        return counted + 2.0 * self._steps if self.by_steps else counted

    @property
    def seconds(self) -> float:
        """Wall seconds so far."""
        return time.perf_counter() - self._wall

    def nearest(self, theta: Vector) -> suffice.Evaluation | None:
        """The trained models to start from: at the nearest theta, in units of the box."""
        width = self.upper - self.lower
        return min(self.known, key=lambda one: float(np.sum(((one.point - theta) / width) ** 2)), default=None)

    def train(
        self, theta: Any, relative: float | None = None, *, offer: bool = True, warm: bool = True
    ) -> suffice.Evaluation:
        """Residuals at theta with F right to `relative` of itself, if steps suffice. `offer`: what a tuner returns is
        the best theta that it has trained at."""
        theta = self.inside(theta)
        relative = self.relative if relative is None else relative
        near = self.nearest(theta) if warm else None
        within = 0.1 if not self.known else min(_accuracy(one, 10.0 * relative) for one in self.known[-3:])
        made = self.evaluate(theta, within=within, warm=near)
        while (wanted := _accuracy(made, relative)) < float(made.e.max(initial=0.0)):
            before = made
            made = self.evaluate(theta, within=wanted, warm=made)
            if float(made.e.max()) > wanted:  # MOST_STEPS, or rounding
                break
            assert before is not made
        if offer:
            self.offer(theta, made.cost)
        return made

    def evaluate(self, theta: Vector, *, within: float, warm: suffice.Evaluation | None) -> suffice.Evaluation:
        """One evaluation of the bilevel problem, charged."""
        began = time.process_time()
        made = self.problem.evaluate(theta, within=within, warm=warm)
        self.training_seconds += time.process_time() - began
        self.keep(made)
        return made

    def add_steps(self, steps: float) -> None:
        """Steps of a solver that were made elsewhere."""
        self._steps += steps

    def keep(self, made: suffice.Evaluation) -> None:
        """An evaluation: its steps count, and later ones may start there."""
        self.add_steps(made.work)
        if self.known and np.array_equal(self.known[-1].point, made.point):
            self.known.pop()
        self.known.append(made)

    def inside(self, theta: Any) -> Vector:
        """theta in the box, exactly."""
        return np.clip(np.asarray(theta, dtype=np.float64), self.lower, self.upper) + 0.0

    def cost(self, theta: Any) -> float:
        """F, for tuners that want nothing else."""
        return float(self.train(theta).cost)

    def residuals(self, theta: Any) -> Vector:
        """The residuals, one for each held-out row and term of J."""
        return np.array(self.train(theta).r)

    def offer(self, theta: Vector, value: float) -> None:
        """theta was trained at, and looks like this: the least value so far is what the tuner would return."""
        self.evaluations += 1
        if value < self._best:
            self._best = value
            self.returns(theta)
        self.check()

    def returns(self, theta: Any) -> None:
        """This is what the tuner would return from now on."""
        theta = self.inside(theta)
        if not self.curve or not np.array_equal(self.curve[-1][-1], theta):
            self.curve.append((self.products, self.seconds, self._cpu_so_far, self.evaluations, theta))

    def check(self) -> None:
        """End the run if its budget is spent."""
        if self.products >= self.limits.products or self.evaluations >= self.limits.evaluations:
            raise Spent
        if self.seconds >= self.limits.seconds:
            raise Spent

    @property
    def _cpu_so_far(self) -> float:
        return time.process_time() - self._cpu

    def ended(self) -> dict[str, Any]:
        """What it took in all."""
        cpu = self._cpu_so_far
        return {
            "products": self.products,
            "seconds": self.seconds,
            "cpu": cpu,
            "overhead": cpu - self.training_seconds,
            "evaluations": self.evaluations,
        }


def _unit(problem: suffice.BilevelProblem) -> float:
    """The entries of the X of one lower-level problem, on average."""
    owners = [lower if hasattr(lower, "design") else getattr(lower, "model", None) for lower in problem.lower]
    designs = [getattr(owner, "design", None) for owner in owners]
    sizes = [meter.entries(one.X) * getattr(lower, "classes_at_once", 1)
             for one, lower in zip(designs, problem.lower, strict=True) if one is not None]  # fmt: skip
    return float(np.mean(sizes)) if sizes else 1.0


def _accuracy(known: suffice.Evaluation, relative: float) -> float:
    """The error of every residual at which F errs by no more than `relative` of itself, roughly."""
    blocks = max(int(np.count_nonzero(known.e > 0.0)), 1)
    return 0.5 * relative * math.sqrt(max(known.cost, 1e-300) / blocks)


class Exact:
    """F of exactly trained models, found once for each theta."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem.make(problem.exact_solver)
        self.known: dict[bytes, tuple[float, float]] = {}
        self.last: suffice.Evaluation | None = None

    def at(self, theta: Vector) -> tuple[float, float]:
        """F and the proven bound of its relative error."""
        key = theta.tobytes()
        if key not in self.known:
            made = self.problem.evaluate(theta, within=1e-3, warm=self.last)
            for _ in range(4):
                wanted = 0.25 * _accuracy(made, EXACT)
                if float(made.e.max(initial=0.0)) <= wanted:
                    break
                made = self.problem.evaluate(theta, within=wanted, warm=made)
            low, high = made.interval
            self.last = made
            self.known[key] = made.cost, 0.5 * (high - low) / max(made.cost, 1e-300)
        return self.known[key]


def _thinned(curve: list[tuple[float, float, float, int, Vector]]) -> list[tuple[float, float, float, int, Vector]]:
    """Without those that were replaced before the work had grown by THIN."""
    return [one for one, after in zip(curve, [*curve[1:], None], strict=True)
            if after is None or after[0] > (1.0 + THIN) * one[0]]  # fmt: skip


Tuner = Callable[[Run], Any]


def play(problem: Problem, solver: str, tuner: Tuner, seed: int, exact: Exact, limits: Limits) -> dict[str, Any]:
    """One run, with the exact F of all that it would have returned."""
    made = problem.make(solver)
    lower, upper = (np.array(bound, dtype=np.float64) for bound in made.space.bounds)
    run = Run(problem.name, made, limits, problem.start_of(seed, (lower, upper)), seed, problem.by_steps)
    reason = "ended"
    try:
        returned = tuner(run)
        if returned is not None:
            run.returns(returned)
    except Spent:
        reason = "budget"
    end = run.ended()
    curve = []
    for products, seconds, cpu, number, theta in _thinned(run.curve):
        F, error = exact.at(theta)
        curve.append([products, seconds, cpu, number, F, error, theta.tolist()])
    return {"reason": reason, **end, "curve": curve}
