"""The search of `SufficeSearchCV` from its first look to its last, accurate evaluation.

First looks choose where to begin, `suffice.tune` searches from there, and the best point is evaluated once more to the
accuracy asked for.

max_seconds are for all of it, from the moment when `began`: the search ends when SEARCHING of them have passed, the
last evaluation when REFINING have, and the rest is for the final fit. An evaluation under way is given up then.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from suffice.arrays import Array, outside_stacklevel
from suffice.evaluation import Evaluation
from suffice.journal import JournalError
from suffice.options import Options
from suffice.report.formats import bound, interval
from suffice.result import OracleError, Result, Status
from suffice.search.accuracy import FUTILE
from suffice.search.tune import tune
from suffice.signals import TimeOver
from suffice.sklearn._recorded import RecordedProblem, Tolerance, standard_error, unproven, worth
from suffice.sklearn._starting_points import NEGLIGIBLE, starting_point
from suffice.sklearn.penalties import PenaltySpace
from suffice.sklearn.splits import Split

ONE_SE_STEPS = 10
SEARCHING, REFINING = 0.7, 0.85  # shares of max_seconds
AT_EDGE, NEAR = 0.02, 0.2  # decades: a penalty this near to an end of its range lies on it; slopes are alike
LITTLE = 1e-4  # of F: where it changes by less in a decade, it is level
CLOSE = 0.125  # of initial_radius: where F was sketched, a search begins near its end


@dataclass
class PenaltySearch:
    """One search; `one_se`: for the largest penalties whose loss is within one standard error of the best; `finds`
    finds a start, or None where the best that it has seen is the answer."""

    problem: RecordedProblem
    folds: list[Split]
    space: PenaltySpace
    options: Options
    initial: Mapping[str, float] | None
    tolerance: Tolerance
    one_se: bool
    began: float = field(default_factory=time.monotonic)
    finds: Callable[[PenaltySearch], Array | None] | None = None
    close: float = CLOSE  # of initial_radius, from the start that it finds
    left_out: str = ""  # what was not searched, and why
    settled: bool = False  # whether the first look is the last one
    result: Result = field(
        default_factory=lambda: Result(np.array([]), math.nan, (-math.inf, math.inf), Status.RUNNING, 0, 0.0, ())
    )

    def run(self) -> Evaluation:
        """The best evaluation. Whatever ends the search early, it is the best so far, and `result` says why."""
        problem = self.problem
        try:
            return self._all_of_it()
        except TimeOver:
            return self._ended(Status.MAX_SECONDS, self._refined(problem.best))
        except StopIteration:
            return self._ended(Status.STOPPED, problem.best)
        except KeyboardInterrupt:
            if not problem.notes:
                raise
            return self._ended(Status.INTERRUPTED, problem.best)
        except (JournalError, OracleError) as error:
            cause = error if isinstance(error, JournalError) else error.__cause__
            if not isinstance(cause, JournalError) or not problem.notes:
                raise
            warnings.warn(f"the search has ended early: {cause}", stacklevel=outside_stacklevel())
            return self._ended(Status.JOURNAL, problem.best, str(cause))

    def _ended(self, status: Status, best: Evaluation, detail: str = "") -> Evaluation:
        """The best evaluation of a search that something has ended."""
        if self.result.evaluation is None:
            self.result = replace(self.result, work=self.problem.work)
        self._found(best)  # before the first step it is one of the looks, which a result of `tune` knows nothing of
        self.result = replace(self.result, status=status, detail=detail)
        return best

    def _all_of_it(self) -> Evaluation:
        problem = self.problem
        problem.until = self._until(SEARCHING)
        given = None
        if self.finds is not None and (given := self.finds(self)) is None:
            best = self._refined(problem.best) if self.result.success else problem.best
            self._found(best)
            return best
        start, options = self._begun(given)
        problem.purpose = "search"
        # F is smooth along one penalty, whose models learn much from looks; with several, kinks lie between.
        seen = problem.evaluations if self.statistical and len(start) == 1 else []
        if self.settled:  # the sketch has found the best penalties, and one look has proven F there
            record, ended = problem.latest, problem.best.interval[1] <= options.target_cost
            self.result = replace(
                self.result, status=Status.TARGET if ended else Status.SUFFICES, evaluations=1, work=record.work,
                history=(record,), space=problem.space,
            )  # fmt: skip
        else:
            self.result = tune(problem, start, options=options, callback=problem.report, seen=seen)
        if self.result.status in (Status.STOPPED, Status.INTERRUPTED, Status.TERMINATED):
            if not problem.notes:
                raise KeyboardInterrupt
            return self._ended(self.result.status, problem.best)
        best = problem.best
        if self.result.status is Status.TARGET and unproven(best):  # what is proven is good enough
            best = problem.best_proven
        best = self._refined(best)
        self._found(best)
        if unproven(best) and best.interval[1] > options.target_cost:
            self.result = replace(self.result, status=Status.ACCURACY, detail=self._runner_up(best))
        elif self.result.status is Status.ACCURACY and not self.result.settled:
            detail = f"rounding forbids a better proof of the loss than {interval(*best.interval, 4)}"
            self.result = replace(self.result, detail=detail)
        elif self.result.status is Status.SUFFICES:
            share = bound(100.0 * options.enough / best.cost, up=True)
            self.result = replace(self.result, detail=f"less than {share} % left to gain, by the search's own estimate")
        elif self.result.status is Status.TARGET and options.target_cost > self.options.target_cost:
            detail = f"the loss is at most {options.target_cost:.2g}, a billionth of the plainest model's"
            self.result = replace(self.result, detail=detail)
        return self._within_one_se(best) if self.one_se else best

    def _begun(self, given: Array | None) -> tuple[Array, Options]:
        """Where to begin, and with which options."""
        problem, options = self.problem, self.options
        problem.purpose, statistical = "overview", self.statistical and options.enough == 0.0
        if given is not None:
            start, options = given, replace(options, initial_radius=self.close * options.initial_radius)
        elif self.initial is None:
            found = starting_point(problem, self.folds, self.space, statistical and options.policy == "residual")
            start, self.settled = found.theta, found.settled
            if found.sketched and self.statistical:
                options = replace(options, initial_radius=CLOSE * options.initial_radius)
            options = replace(options, target_cost=max(options.target_cost, NEGLIGIBLE * found.plainest))
        else:
            start = self.space.space.theta(self.initial)
            if statistical:
                problem.look(start, within=math.inf)
        there = (made.failure for made in problem.evaluations[::-1] if np.array_equal(made.point, start))
        if (failure := next(there, None)) is not None:
            raise ValueError(f"there is no loss at any of the first penalties: {failure}; scale X or y")
        if statistical:
            options = replace(options, enough=worth(problem.best, self.tolerance))
        left = max(problem.until - time.monotonic(), 1e-6)  # at least one evaluation is made
        return start, replace(options, max_seconds=min(options.max_seconds, left))

    @property
    def statistical(self) -> bool:
        """Whether the search ends where what is left is small against the standard error over folds."""
        return self.tolerance == "statistical"

    def _until(self, share: float) -> float:
        """When so much of max_seconds has passed."""
        return self.began + share * self.options.max_seconds

    def edge_warnings(self, best: Evaluation, words: str) -> Iterator[str]:
        """Of edges of ranges that better penalties may lie beyond: unless F is level there, as a derivative near by
        says, or what was seen a decade or more inside. `words` are the best parameters in scikit-learn's."""
        made, little = self.problem.evaluations, LITTLE * best.interval[1]
        near = [one for one in made if np.abs(one.point - best.point).max() <= NEAR]
        space, (lower, upper) = self.problem.space, self.problem.space.bounds
        for i, name in enumerate(space.names):
            down, up = best.point[i] <= lower[i] + AT_EDGE, best.point[i] >= upper[i] - AT_EDGE
            nothing = down and space.ranges[name][0] == 0.0  # no penalty: there is none beyond
            if name in self.space.ours or nothing or not (down or up):
                continue
            inside = [one.interval[0] for one in made if abs(one.point[i] - best.point[i]) >= 1.0]
            level = min(inside, default=math.inf) <= best.interval[1] + little
            if not level and all(one.slope is None for one in near):
                near = [self.problem.differentiate(best)]
            if not level and not any(one.slope is not None and abs(one.slope[i]) <= little for one in near):
                which, way = ("lower", "smaller") if down else ("upper", "larger")
                yield (
                    f"the best {name} lies on the {which} edge of its space, {space.ranges[name][not down]:.4g}: one "
                    f"that is {way} may be better, widen it (best is {words})"
                )

    def _runner_up(self, best: Evaluation) -> str:
        """What to know where the best model that was seen cannot be proven."""
        proven = self.problem.best_proven
        values = self.problem.space.params(proven.point)
        named = ", ".join(f"{name} = {value:.4g}" for name, value in values.items())
        proof = interval(*proven.interval, 4)
        return f"arithmetic cannot prove the best loss, {best.cost:.4g} as computed; proven is {proof} at {named}"

    def _found(self, best: Evaluation) -> None:
        """The result is about this evaluation."""
        self.result = replace(
            self.result, theta=best.point, cost=best.cost, interval=best.interval, evaluation=best,
            params=self.problem.space.params(best.point),
        )  # fmt: skip

    def moved(self, theta: Array, best: Evaluation) -> Evaluation:
        """The better of the best evaluation and one at theta, which is found to be better elsewhere."""
        self.problem.purpose = "global"
        within = 0.2 * worth(best, self.tolerance) / math.sqrt(best.cost * len(best.e))
        there = self._refined(self.problem.look(theta, within=within, warm=best))
        if there.interval[1] >= best.interval[1]:
            return best
        self._found(there)
        return there

    def _refined(self, evaluation: Evaluation) -> Evaluation:
        """The same point, until its loss is known to the tolerance, or as well as can be in the time that is left."""
        self.problem.purpose, self.problem.until = "final", self._until(REFINING)
        for _ in range(4):
            low, high = evaluation.interval
            wanted = worth(evaluation, self.tolerance)
            if high - low <= wanted or evaluation.cost == 0.0:
                break
            within = 0.2 * wanted / math.sqrt(evaluation.cost * len(evaluation.e))
            try:
                before, evaluation = evaluation, self.problem.look(evaluation.point, within=within, warm=evaluation)
            except TimeOver:
                self.result = replace(self.result, status=Status.MAX_SECONDS)
                break
            if evaluation.e.max() > FUTILE * before.e.max():  # rounding is all that is left
                return min(before, evaluation, key=lambda made: made.interval[1] - made.interval[0])
        return evaluation

    def _within_one_se(self, best: Evaluation) -> Evaluation:
        """The farthest point on the ray of larger penalties whose loss is within one standard error of the best."""
        limit, upper = best.cost + standard_error(best), self.problem.space.bounds[1]
        self.problem.purpose, within = "one standard error", 0.02 * math.sqrt(best.cost / len(best.e))
        low, high, chosen = 0.0, float(np.min(upper - best.point)), best
        trial = high
        for _ in range(ONE_SE_STEPS):
            try:
                made = self.problem.look(np.minimum(best.point + trial, upper), within=within, warm=chosen)
            except TimeOver:
                self.result = replace(self.result, status=Status.MAX_SECONDS)
                break
            low, high, chosen = (trial, high, made) if made.interval[1] <= limit else (low, trial, chosen)
            if low == high:
                break
            trial = 0.5 * (low + high)
        return self._refined(chosen)
