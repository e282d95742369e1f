"""The problem of a search with a note of every evaluation: what the journal, the callback and `cv_results_` tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from suffice.arrays import Array, norm
from suffice.bilevel import BilevelProblem
from suffice.journal.answers import SearchJournal, request_key
from suffice.options import Policy
from suffice.result import Record
from suffice.signals import time_limit
from suffice.upper.evaluation import Evaluation


class RecordedProblem:
    """The problem, with a note of every evaluation; those that the journal holds are not made again."""

    def __init__(
        self,
        problem: BilevelProblem,
        journal: SearchJournal | None,
        begin: Callable[[], object] | None,
        tell: Callable[[Record, Evaluation], object] | None,
    ) -> None:
        self.problem, self.space, self.purpose = problem, problem.space, ""
        self.until = math.inf  # the time at which an evaluation under way is given up, unless it is the first
        self.journal, self.begin, self.tell = journal, begin, tell
        self.notes: list[tuple[str, float, Evaluation]] = []
        self._untold: list[tuple[int, bool]] = []  # numbers of evaluations, and whether they were made here and now

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        return self._noted("residual", theta, within, warm)

    def evaluate_weights(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        return self._noted("weights", theta, within, warm)

    def differentiate(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation with its derivatives, which take the place of what was noted."""
        with time_limit(self.until if self.notes else math.inf):
            told = self.problem.differentiate(evaluation)
        self.notes = [(purpose, within, told if made is evaluation else made) for purpose, within, made in self.notes]
        return told

    def look(
        self, theta: Array, *, within: float, warm: Evaluation | None = None, max_steps: int | None = None
    ) -> Evaluation:
        """An evaluation outside the trust-region search, told to the callback; each model is left unfinished after
        max_steps, if that is given."""
        made = self._noted("residual", theta, within, warm, max_steps)
        self._tell(self._record(within, made))
        return made

    def peek(self, theta: Array, *, within: float, warm: Evaluation, max_steps: int) -> Evaluation:
        """An evaluation outside the space, which is no part of the search: not noted, and told to nobody."""
        return self._made("residual", theta, within, warm, max_steps, None)[0]

    def tell_of_search(self, record: Record) -> None:
        """A record of the trust-region search, numbered among all evaluations."""
        self._tell(record)

    def _tell(self, record: Record) -> None:
        number, fresh = self._untold.pop(0)  # several starts make one evaluation each before their records come
        if self.tell is not None and fresh:
            work = float(sum(evaluation.work for _, _, evaluation in self.notes[:number]))
            self.tell(replace(record, number=number, total_work=work), self.notes[number - 1][2])

    @property
    def work(self) -> float:
        return float(sum(evaluation.work for _, _, evaluation in self.notes))

    @property
    def best(self) -> Evaluation:
        """The evaluation with the least proven upper bound."""
        made = [evaluation for _, _, evaluation in self.notes]
        return min(made, key=lambda one: one.interval[1] if one.failure is None else math.inf)

    def _noted(
        self, policy: Policy, theta: Array, within: float, warm: Evaluation | None, max_steps: int | None = None
    ) -> Evaluation:
        made, fresh = self._made(policy, theta, within, warm, max_steps, self.begin)
        self.notes.append((self.purpose, within, made))
        self._untold.append((len(self.notes), fresh))
        return made

    def _made(
        self,
        policy: Policy,
        theta: Array,
        within: float,
        warm: Evaluation | None,
        max_steps: int | None,
        begin: Callable[[], object] | None,
    ) -> tuple[Evaluation, bool]:
        """The evaluation, and whether it was made here and now."""
        warm = self._nearest(theta, warm)
        asked = policy if max_steps is None else f"{policy}, {max_steps} steps"
        key = "" if self.journal is None else request_key(asked, theta, within, warm)
        made = None if self.journal is None else self.journal.take(key)
        fresh = made is None
        if made is None:
            if begin is not None:
                begin()
            problem = self.problem if max_steps is None else self.problem.limited(max_steps)
            with time_limit(self.until if self.notes else math.inf):
                made = problem.evaluate_all([theta], within=within, warm=[warm], policy=policy)[0]
            if self.journal is not None:
                made = self.journal.keep(key, self.purpose, made)
        return made, fresh

    def _nearest(self, theta: Array, warm: Evaluation | None) -> Evaluation | None:
        """The nearest evaluation of all, first looks included; the latest of several at one place."""

        def distance(evaluation: Evaluation) -> float:
            return norm(evaluation.point - theta)

        known = [evaluation for _, _, evaluation in reversed(self.notes)]
        return min(([] if warm is None else [warm]) + known, key=distance, default=None)

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
            rho=math.nan,
            incumbent=tuple(best.point.tolist()),
            incumbent_cost=best.cost,
        )
