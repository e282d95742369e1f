"""The problem of a search with a note of every evaluation: what the journal, the callback and `cv_results_` tell.

Without an l2 a solution need not be unique, and where it is not nothing can be verified. The first evaluation that ends
so is made again with the ridge that proves it and changes it least, and all that follow have that ridge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.journal.answers import Journal, request_key
from suffice.options import Policy
from suffice.result import Record
from suffice.search.bilevel import BilevelProblem
from suffice.signals import time_limit
from suffice.sklearn.penalties import RIDGES, Penalised
from suffice.solvers.solution import Outcome
from suffice.space import Space

TRIES = 3  # to prove an evaluation by a ridge,
WELL = 1e-4  # to this share of F
LOWER = 1.0 - 1e-4  # times F: what is worth another evaluation
ALMOST_ALL = 0.5  # of F: an interval that is wider tells nothing


class RecordedProblem:
    """The problem, with a note of every evaluation; those that the journal holds are not made again."""

    def __init__(
        self,
        problem: BilevelProblem,
        journal: Journal | None,
        begin: Callable[[], object] | None,
        tell: Callable[[Record, Evaluation], object] | None,
    ) -> None:
        self.problem, self.space, self.purpose = problem, problem.space, ""
        self.until = math.inf  # the time at which an evaluation under way is given up, unless it is the first
        self.journal, self.begin, self.tell = journal, begin, tell
        self.ridge, self._since, self._tries = 0.0, 0, TRIES  # what stands in for no l2, and the evaluations before
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
        self.report(self._record(within, made))
        return made

    def peek(self, theta: Array, *, within: float, warm: Evaluation, max_steps: int) -> Evaluation:
        """An evaluation outside the space, which is no part of the search: not noted, and told to nobody."""
        return self._made("residual", theta, within, warm, max_steps, None)[0]

    def widen(self, space: Space) -> None:
        """Go on over another space of the same parameters."""
        self.problem, self.space = self.problem.over(space), space

    def report(self, record: Record) -> None:
        """Tell of an evaluation, numbered among all."""
        number, fresh = self._untold.pop(0)  # several starts make one evaluation each before their records come
        if self.tell is not None and fresh:
            made = self.evaluations[:number]
            work = float(sum(evaluation.work for evaluation in made))
            self.tell(replace(record, number=number, total_work=work), made[-1])

    @property
    def evaluations(self) -> list[Evaluation]:
        """All evaluations, in their order."""
        return [evaluation for _, _, evaluation in self.notes]

    @property
    def work(self) -> float:
        return float(sum(evaluation.work for evaluation in self.evaluations))

    @property
    def best(self) -> Evaluation:
        """The evaluation with the least estimate of F."""
        return min(self.evaluations[self._since :] or self.evaluations, key=estimate)

    def rival(self, best: Evaluation) -> Evaluation | None:
        """What was seen to be lower than the best, but not accurately enough to tell."""
        latest = {made.point.tobytes(): made for made in self.evaluations[self._since :]}
        lower = [
            made for made in latest.values() if made.cost < LOWER * best.cost and made.interval[0] < best.interval[0]
        ]
        return min((made for made in lower if made.e.max() > best.e.max()), key=lambda made: made.cost, default=None)

    @property
    def best_proven(self) -> Evaluation:
        """The evaluation with the least proven upper bound."""
        return min(self.evaluations, key=lambda one: one.interval[1] if one.failure is None else math.inf)

    def _noted(
        self, policy: Policy, theta: Array, within: float, warm: Evaluation | None, max_steps: int | None = None
    ) -> Evaluation:
        made, fresh = self._made(policy, theta, within, warm, max_steps, self.begin)
        if self._tries and self.ridge == 0.0 and unproven(made) and self._is_flat(made):
            made, fresh = self._with_ridge(policy, made, within, max_steps, fresh)
        self.notes.append((self.purpose, within, made))
        self._untold.append((len(self.notes), fresh))
        return made

    def _is_flat(self, made: Evaluation) -> bool:
        """Whether a model without strong convexity has come to its end here."""
        ended = [solution.outcome is Outcome.PRECISION for solution in made.solutions]
        return any(ended) and any(mu == 0.0 for mu in self.curvatures(made.point))

    def curvatures(self, theta: Array) -> list[float]:
        """The strong convexity of every model, as far as it is known beforehand."""
        return [one.mu for one in self.problem.at(theta)] if isinstance(self.problem, BilevelProblem) else []

    def _with_ridge(
        self, policy: Policy, made: Evaluation, within: float, max_steps: int | None, fresh: bool
    ) -> tuple[Evaluation, bool]:
        """The evaluation with the ridge that proves it and changes it least, which stays; as it is where none does."""
        plain, self._tries = self.problem, self._tries - 1
        start = replace(made, solutions=[solution.start_at(solution.x) for solution in made.solutions])
        well = min(within, WELL * math.sqrt(made.cost / len(made.e)))
        found, least, work = (made, plain, 0.0), math.inf, made.work
        for ridge in RIDGES:
            lower = [replace(one, ridge=ridge) if isinstance(one, Penalised) else one for one in plain.lower]
            self.problem, self.ridge = plain.with_lower(lower), ridge
            again, fresh = self._made(policy, made.point, well, start, max_steps, None)
            work += again.work
            doubt = again.error + abs(again.cost - made.cost)
            if doubt < least:
                found, least = (again, self.problem, ridge), doubt
            if doubt <= WELL * made.cost:
                break
        made, self.problem, self.ridge = found
        self._since = len(self.notes) if self.ridge else self._since
        return replace(made, work=work), fresh

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
        asked = asked if self.ridge == 0.0 else f"{asked}, ridge {self.ridge:g}"
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
        known = ([] if warm is None else [warm]) + self.evaluations[::-1]
        return min(known, key=lambda evaluation: norm(evaluation.point - theta), default=None)

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


# scikit-learn's callbacks, from 1.9 on

try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin
    from sklearn.callback import with_callbacks as with_callbacks
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """scikit-learn has no callbacks."""

    def with_callbacks(method: Any) -> Any:
        """The method as it is."""
        return method


class CallbackTasks:
    """The search as tasks of scikit-learn's callbacks, where it has them and some are set; else nothing happens."""

    def __init__(self, search: Any, X: Any, y: Any) -> None:
        self.about = {"estimator": search, "X": X, "y": y}
        self.open: list[Any] = []  # evaluations that have begun
        self.root: Any = None
        if hasattr(search, "_skl_callbacks"):
            self.root = search._init_callback_context(max_subtasks=1 + bool(search.refit))
            self.root.call_on_fit_task_begin(**self.about)
            self.within = self._begun(self.root, task_name="search", max_subtasks=None)

    def _begun(self, context: Any, **task: Any) -> Any:
        made = context.subcontext(**task)
        made.call_on_fit_task_begin(**self.about)
        return made

    def begin_evaluation(self) -> None:
        if self.root is not None:
            self.open.append(self._begun(self.within, task_name="evaluation"))

    def end_evaluation(self, record: Record) -> None:
        if self.root is not None and self.open.pop(0).call_on_fit_task_end(**self.about, metadata={"record": record}):
            raise StopIteration

    def refit(self) -> None:
        if self.root is not None:
            self.within.call_on_fit_task_end(**self.about)
            self.within = self._begun(self.root, task_name="refit")

    def propagated(self, estimator: Any) -> Any:
        return nullcontext() if self.root is None else self.within.propagate_callback_context(estimator)

    def end(self) -> None:
        if self.root is not None:
            for task in (self.within, self.root):
                task.call_on_fit_task_end(**self.about)
