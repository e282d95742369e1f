"""The problem of a search with a note of every evaluation: what the journal, the callback and `cv_results_` tell; and
when a search has found enough: what is left to gain is small against what folds tell of F at all.

Without an l2 a solution need not be unique, and where it is not nothing can be verified. The first evaluation that ends
so is made again with the ridge that proves it and changes it least, and all that follow have that ridge, unless a
better one was proven without.

Models go on from those of the nearest evaluation. Of first looks with many weights a few are starts, the others need
not be in the journal: their weights are what makes it large.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.journal.answers import Journal, request_key
from suffice.options import Policy
from suffice.result import Record
from suffice.search.bilevel import BilevelProblem
from suffice.signals import time_limit
from suffice.sklearn.penalties import RIDGES, Penalised
from suffice.solvers.problem import Composite
from suffice.solvers.solution import Outcome

TRIES = 3  # to prove an evaluation by a ridge,
WELL = 1e-4  # to this share of F
ALMOST_ALL = 0.5  # of F: an interval that is wider tells nothing
SHARE = 0.01  # of the standard error over folds: what a search for a statistical tolerance leaves alone,
LARGEST = 2e-4  # and of the loss, where that is less
STARTS = 1 << 19  # bytes of weights of the first looks that are starts
Tolerance = float | Literal["statistical"]


class RecordedProblem:
    """The problem, with a note of every evaluation; those that the journal holds are not made again."""

    def __init__(
        self, problem: BilevelProblem, journal: Journal | None, tell: Callable[[Record, Evaluation], object] | None
    ) -> None:
        self.problem, self.space, self.purpose = problem, problem.space, ""
        self.until = math.inf  # the time at which an evaluation under way is given up, unless it is the first
        self.journal, self.tell = journal, tell
        self.ridge, self._since, self._tries = 0.0, 0, TRIES  # what stands in for no l2, and the evaluations before
        self.notes: list[tuple[str, float, Evaluation]] = []
        self.seconds: list[float] = []  # of every evaluation by the clock; not a number where the journal had it
        self._fresh = False  # whether the latest evaluation was made here and now
        self._gone: list[Evaluation] = []  # first looks that nothing starts from any more
        self.holds_all = False  # for scores of all of them
        self.earlier: list[Evaluation] = []  # of the journal, which notes of other coordinates stand for,
        self.derived: list[Evaluation] = []  # and those of which it needs the derivatives only
        self.standing: tuple[Evaluation, float] | None = None  # stays the best unless others gain more than that
        self._size = 8 * sum(one.size or 0 for one in self._models(self.space.bounds[1])) or 1  # bytes of their weights

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        return self._noted("residual", theta, within, warm)

    def evaluate_weights(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        return self._noted("weights", theta, within, warm)

    def differentiate(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation with its derivatives, which take the place of what was noted."""
        if evaluation.jacobian is not None or evaluation.gradient is not None:  # the journal had them
            return evaluation
        began = time.monotonic()
        with time_limit(self.until if self.notes else math.inf):
            told = self.problem.differentiate(evaluation)
        for k, (_, _, made) in enumerate(self.notes):
            self.seconds[k] += time.monotonic() - began if made is evaluation else 0.0
        self.notes = [(purpose, within, told if made is evaluation else made) for purpose, within, made in self.notes]
        return told

    def look(
        self, theta: Array, *, within: float, warm: Evaluation | None = None, max_steps: int | None = None
    ) -> Evaluation:
        """An evaluation outside the trust-region search, told to the callback; each model is left unfinished after
        max_steps, if that is given."""
        made = self._noted("residual", theta, within, warm, max_steps)
        self.report(self._record(within, made))
        return made

    def report(self, record: Record) -> None:
        """Tell of an evaluation, numbered among all."""
        if self.tell is not None and self._fresh:
            self.tell(replace(record, number=len(self.notes), total_work=self.work), self.notes[-1][-1])

    @property
    def evaluations(self) -> list[Evaluation]:
        """All evaluations, in their order."""
        return [evaluation for _, _, evaluation in self.notes]

    @property
    def work(self) -> float:
        return float(sum(evaluation.work for evaluation in self.evaluations))

    @property
    def best(self) -> Evaluation:
        """The evaluation with the least estimate of F, or the one that stands."""
        least = min(self.evaluations[self._since :] or self.evaluations, key=estimate)
        there, margin = self.standing or (least, 0.0)
        return there if estimate(there) - estimate(least) <= margin else least

    @property
    def best_proven(self) -> Evaluation:
        """The evaluation with the least proven upper bound."""
        return min(self.evaluations, key=lambda one: one.interval[1] if one.failure is None else math.inf)

    def _noted(
        self, policy: Policy, theta: Array, within: float, warm: Evaluation | None, max_steps: int | None = None
    ) -> Evaluation:
        began = time.monotonic()
        made = self._made(policy, theta, within, warm, max_steps)
        open_ = self._tries > 0 and self.ridge == 0.0 and unproven(made)
        ended = open_ and any(solution.outcome is Outcome.PRECISION for solution in made.solutions)
        if ended and 0.0 in self.curvatures(made.point):  # without strong convexity
            made = self._with_ridge(policy, made, within, max_steps)
        self.notes.append((self.purpose, within, made))
        self.seconds.append(time.monotonic() - began if self._fresh else math.nan)
        if self._tries == TRIES and not self.holds_all:  # proofs by a ridge go on from what is not noted
            self._let_go()
            if self.journal is not None:
                self.journal.compact([*self._starts(), *self.earlier], self.derived)
        return made

    def _let_go(self) -> None:
        """First looks are gone but for the latest, the best, those near it, and those of which nothing is proven."""
        best, latest = self.best, self.evaluations[-1]
        looks = [made for purpose, _, made in self.notes if purpose == "overview" and not _among(self._gone, made)]
        looks = [made for made in looks[::-1] if made is not best and made is not latest and not unproven(made)]
        looks.sort(key=lambda made: norm(made.point - best.point))
        self._gone += looks[max(STARTS // self._size, 1) :]

    def let_go_but(self, kept: Evaluation) -> None:
        """Nothing starts from any other evaluation made until now."""
        if not self.holds_all:
            self._gone = [made for made in self.evaluations if made is not kept]

    def _starts(self) -> list[Evaluation]:
        """The evaluations that others may start from, the latest first."""
        return [made for made in self.evaluations[::-1] if not _among(self._gone, made)]

    def curvatures(self, theta: Array) -> list[float]:
        """The strong convexity of every model, as far as it is known beforehand."""
        return [one.mu for one in self._models(theta)]

    def _models(self, theta: Array) -> list[Composite]:
        return self.problem.at(theta) if isinstance(self.problem, BilevelProblem) else []

    def _with_ridge(self, policy: Policy, made: Evaluation, within: float, max_steps: int | None) -> Evaluation:
        """The evaluation with the ridge that proves it and changes it least, which stays; as it is where none does."""
        plain, self._tries = self.problem, self._tries - 1
        start = replace(made, solutions=[solution.start_at(solution.x) for solution in made.solutions])
        well = min(within, WELL * math.sqrt(made.cost / len(made.e)))
        found, least, work = (made, plain, 0.0), math.inf, made.work
        for ridge in RIDGES:
            lower = [replace(one, ridge=ridge) if isinstance(one, Penalised) else one for one in plain.lower]
            self.problem, self.ridge = plain.with_lower(lower), ridge
            again = self._made(policy, made.point, well, start, max_steps)
            work += again.work
            doubt = again.error + abs(again.cost - made.cost)
            if doubt < least:
                found, least = (again, self.problem, ridge), doubt
            if doubt <= WELL * made.cost:
                break
        made, self.problem, self.ridge = found
        if self.ridge and self.notes and estimate(made) >= self.best.interval[1]:  # what is best needs none
            self.problem, self.ridge = plain, 0.0
        elif self.ridge:
            self._since = len(self.notes)
        return replace(made, work=work)

    def _made(
        self, policy: Policy, theta: Array, within: float, warm: Evaluation | None, max_steps: int | None
    ) -> Evaluation:
        warm = self._nearest(theta, warm)
        asked = policy if max_steps is None else f"{policy}, {max_steps} steps"
        asked = asked if self.ridge == 0.0 else f"{asked}, ridge {self.ridge:g}"
        key = "" if self.journal is None else request_key(asked, theta, within, warm)
        made = None if self.journal is None else self.journal.take(key)
        self._fresh = made is None
        if made is None:
            problem = self.problem if max_steps is None else self.problem.limited(max_steps)
            with time_limit(self.until if self.notes else math.inf):
                made = problem.evaluate_all([theta], within=within, warm=[warm], policy=policy)[0]
            if self.journal is not None:
                made = self.journal.keep(key, self.purpose, made)
        return made

    def _nearest(self, theta: Array, warm: Evaluation | None) -> Evaluation | None:
        """The nearest evaluation of all, first looks included; the latest of several at one place."""
        known = ([] if warm is None or _among(self._gone, warm) else [warm]) + self._starts()
        return min(known, key=lambda evaluation: norm(evaluation.point - theta), default=None)

    @property
    def latest(self) -> Record:
        """The record of the latest evaluation."""
        return self._record(*self.notes[-1][1:])

    def _record(self, within: float, made: Evaluation) -> Record:
        best = self.best
        return Record(
            number=len(self.notes),
            purpose=self.purpose,
            theta=tuple(made.point.tolist()),
            within=within,
            errors=tuple(made.e.tolist()),
            distance=made.distance,
            cost=made.cost,
            interval=made.interval,
            work=float(made.work),
            total_work=self.work,
            delta=math.nan,  # there is no trust region
            incumbent=tuple(best.point.tolist()),
            incumbent_cost=best.cost,
        )


def _among(several: list[Evaluation], one: Evaluation) -> bool:
    return any(one is other for other in several)


def unproven(evaluation: Evaluation) -> bool:
    """Whether next to nothing is known of F."""
    low, high = evaluation.interval
    return not high - low <= ALMOST_ALL * evaluation.cost


def _ended(evaluation: Evaluation) -> bool:
    """Whether every model is as near to its solution as arithmetic allows, or as was asked for."""
    known = (Outcome.PRECISION, Outcome.REACHED)
    return all(getattr(solution, "outcome", None) in known for solution in evaluation.solutions)


def estimate(evaluation: Evaluation) -> float:
    """F as far as can be told: the proven upper bound or, where models cannot be proven any better, what they show."""
    return evaluation.cost if unproven(evaluation) and _ended(evaluation) else evaluation.interval[1]


def fold_losses(evaluation: Evaluation) -> Array:
    """The loss of every fold; F is their mean."""
    return evaluation.coarse**2 * len(evaluation.coarse)


def standard_error(evaluation: Evaluation) -> float:
    """That of F over folds; 0 where there is one fold only."""
    losses = fold_losses(evaluation)
    return error_of_mean(losses) if len(losses) > 1 else 0.0


def error_of_mean(losses: Array) -> float:
    """The standard error of the mean of two or more."""
    unit = 2.0 ** (math.frexp(float(np.max(np.abs(losses))))[1] - 1)  # squares of losses may leave the range of floats
    return unit * float(np.std(losses / unit, ddof=1)) / math.sqrt(len(losses))


def worth(evaluation: Evaluation, tolerance: Tolerance) -> float:
    """How accurate F is to be: a share of it, or of its standard error over folds where that is less than LARGEST."""
    if tolerance != "statistical":
        return tolerance * evaluation.cost
    return least_worth(standard_error(evaluation), evaluation.cost)


def least_worth(error: float, cost: float) -> float:
    """The same by the standard error of F."""
    return min(SHARE * error if error > 0.0 else math.inf, LARGEST * cost)
