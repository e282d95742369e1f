"""The search of `SufficeSearchCV` from its first look to its last, accurate evaluation.

First looks choose where to begin, `suffice.tune` searches from there, the edges near its end are looked at, and the
best point is evaluated once more to the accuracy asked for. Whatever ends this early, the best evaluation so far is
the answer, and `result` says why.

max_seconds are for all of it, from the moment when `began`: the search ends when SEARCHING of them have passed, the
last evaluation when REFINING have, and the rest is for the final fit. An evaluation under way is given up then.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from suffice.arrays import Array, outside_stacklevel, positive
from suffice.evaluation import Evaluation
from suffice.globally import GlobalOptions, UnsupportedError, certify_global
from suffice.globally.certificate import INTERRUPTED
from suffice.journal import JournalError
from suffice.options import Options
from suffice.report.formats import bound
from suffice.result import OracleError, Result, Status
from suffice.search.accuracy import FUTILE, for_decision
from suffice.search.bilevel import BilevelProblem
from suffice.search.edges import search_with_edges
from suffice.search.tune import tune
from suffice.signals import TimeOver
from suffice.sklearn._recorded import RecordedProblem, estimate, unproven
from suffice.sklearn._sketch import Sketch, sketches
from suffice.sklearn._starting_points import best_of_a_few, best_of_sketches
from suffice.sklearn.enough import Tolerance, standard_error, worth
from suffice.sklearn.penalties import PenaltySpace
from suffice.sklearn.splits import Split
from suffice.space import Space

ONE_SE_STEPS = 10
NEGLIGIBLE = 1e-9  # of the plainest model's loss: a loss proven to be less leaves nothing worth a search
BEYOND = 1e-3  # of the loss: how well it is to be known beyond an edge
LITTLE = 1e-4  # of the loss: what is not worth a warning
AT_EDGE = 0.02  # decades: a penalty this near to an end of its range lies on it
SEARCHING, REFINING = 0.7, 0.85  # shares of max_seconds
MOST_BEYOND = 3  # edges that are looked beyond
RIVALS = 3  # places that may be better than the best, and are evaluated as accurately
WIDENED = 4  # times that a range of ours is widened
PROVEN_BEYOND = 30  # evaluations for what all values beyond an edge could bring at most,
SHARE_BEYOND, SECONDS_BEYOND = 0.25, 1.0  # of the time that the search took, or so many seconds if that is more
ALIKE = 1e-10  # relative: how far other penalties may be from the best ones there
TELLING = 0.5  # of F: larger bounds tell nothing
SKETCHED = 0.125  # of initial_radius: where F was sketched, a search begins near its end
EDGE_STEPS = 1000  # of a solver for each model of a look at an edge: what takes more is not proven to be better


def check_tolerance(tolerance: object) -> None:
    if isinstance(tolerance, str) and tolerance != "statistical":
        raise ValueError(f"tolerance must be 'statistical' or a positive number, got {tolerance!r}")
    if not isinstance(tolerance, str):
        positive(tolerance, "tolerance")  # type: ignore[arg-type]


@dataclass(frozen=True)
class Beyond:
    """An edge of the space on which the best point lies, and F one decade beyond, if it was looked at."""

    name: str
    down: bool  # whether it is the lower end
    end: float
    made: Evaluation | None
    others: bool = False  # whether there are other parameters
    most: float | None = None  # the share of F by which any value beyond is better at most, the others as they are

    def told(self, best: Evaluation, words: str) -> str:
        """What a person should know; `words` are the best parameters in scikit-learn's."""
        which, way = ("lower", "smaller") if self.down else ("upper", "larger")
        text = f"the best {self.name} lies on the {which} edge of its space, {self.end:.4g}: "
        text += self._what_it_brings(best, way)
        if self.most is not None:
            alone = ", all else being equal," if self.others else ""
            text += f"; no {way} one at all is{alone} better by more than {bound(100.0 * self.most, up=True)} %"
        return f"{text} (best is {words})"

    def matters(self, best: Evaluation) -> bool:
        """Whether one decade beyond may be better by more than a little: that it is not has to be proven."""
        return self.made is None or self.made.interval[0] < (1.0 - LITTLE) * best.interval[1]

    def _what_it_brings(self, best: Evaluation, way: str) -> str:
        if self.made is None:
            return f"one that is {way} may be better"
        (a, b), (low, high) = best.interval, self.made.interval
        if high < a:
            advice = "; widen it" if high < (1.0 - BEYOND) * a else ""
            return f"one decade beyond, the loss is lower by {100.0 * (1.0 - high / a):.2g} % or more{advice}"
        if low > b:
            return f"one decade beyond, the loss is higher by {100.0 * (low / b - 1.0):.2g} % or more"
        most = max(high / a - 1.0, 1.0 - low / b) if a > 0.0 else math.inf
        return f"one decade beyond, the loss changes by less than {100.0 * most:.2g} %"


def _what_is_known(best: Evaluation, enough: float) -> str:
    """What a search that ended with `enough` has proven, and what it has not."""
    (low, high), error = best.interval, standard_error(best)
    share = f", {100.0 * (high - low) / error:.2g} % of its standard error over folds ({error:.3g})" if error else ""
    return (
        f"the loss at the best penalties is proven to lie in an interval of width {high - low:.2g}{share}; that no "
        f"more than {enough:.2g} is left to gain near by is what the model says, not a proof"
    )


def _nothing_yet() -> Result:
    return Result(np.array([]), math.nan, (-math.inf, math.inf), Status.RUNNING, 0, 0.0, ())


@dataclass
class PenaltySearch:
    """One search; `one_se`: for the largest penalties whose loss is within one standard error of the best."""

    problem: RecordedProblem
    folds: list[Split]
    space: PenaltySpace
    options: Options
    initial: Mapping[str, float] | None
    tolerance: Tolerance
    one_se: bool
    began: float = field(default_factory=time.monotonic)
    result: Result = field(default_factory=_nothing_yet)
    edges: list[Beyond] = field(default_factory=list)

    def run(self) -> Evaluation:
        """The best evaluation. Whatever ends the search early, it is the best so far, and `result` says why."""
        problem = self.problem
        try:
            return self._all_of_it()
        except TimeOver:
            self.result = replace(self.result, work=problem.work, status=Status.MAX_SECONDS)
            best = self._refined(problem.best)
            self._found(best)
            return best
        except StopIteration:
            status, detail = Status.STOPPED, ""
        except KeyboardInterrupt:
            status, detail = Status.INTERRUPTED, ""
            if not problem.notes:
                raise
        except (JournalError, OracleError) as error:
            cause = error if isinstance(error, JournalError) else error.__cause__
            if not isinstance(cause, JournalError) or not problem.notes:
                raise
            status, detail = Status.JOURNAL, str(cause)
            warnings.warn(f"the search has ended early: {detail}", stacklevel=outside_stacklevel())
        best = problem.best
        if self.result.evaluation is None:
            self.result = replace(self.result, work=problem.work)
        if estimate(best) < self.result.interval[1]:
            self._found(best)
        self.result = replace(self.result, status=status, detail=detail)
        return best

    def _all_of_it(self) -> Evaluation:
        problem, options = self.problem, self.options
        problem.until = self._until(SEARCHING)
        sketch: Sketch | None = None
        if self.initial is not None:
            starts = [self.space.space.theta(self.initial)]
        else:
            problem.purpose = "first look"
            own = getattr(self.folds[0].adapter, "first_looks", None)
            kind = sketches(self.folds, problem.problem.losses, self.space)
            looks = self.statistical, options.derivatives != "never"
            if own is not None:
                starts = own(problem)
            elif kind is not None:
                starts, sketch = best_of_sketches(problem, self.folds, self.space, kind, *looks)
            else:
                starts = best_of_a_few(problem, self.folds, self.space, *looks)
            if sketch is not None and self.statistical:
                options = replace(options, initial_radius=SKETCHED * options.initial_radius)
            self._check_loss(starts[0])
            plainest = [made for _, _, made in problem.notes if np.array_equal(made.point, problem.notes[0][2].point)]
            nothing = NEGLIGIBLE * max(made.interval[0] for made in plainest)
            options = replace(options, target_cost=max(options.target_cost, nothing))

        if self.statistical and options.enough == 0.0:
            if not problem.notes:
                problem.purpose = "first look"
                problem.look(starts[0], within=math.inf)
            self._check_loss(starts[0])
            options = replace(options, enough=worth(problem.best, self.tolerance))

        def search(starts: Sequence[Array], options: Options) -> Result:
            problem.purpose, more = "search", list(starts[1:]) or None
            # F is smooth along one penalty, whose models learn much from looks; with several, kinks lie between.
            seen = [made for _, _, made in problem.notes] if self.statistical and len(starts[0]) == 1 else []
            tell = problem.tell_of_search
            self.result = tune(problem, starts[0], starts=more, options=options, callback=tell, seen=seen)
            return self.result

        left = max(problem.until - time.monotonic(), 1e-6)  # at least one evaluation is made
        options = replace(options, max_seconds=min(options.max_seconds, left))

        def look(theta: Array, within: float, warm: Evaluation) -> Evaluation:
            problem.purpose = "edge"
            return problem.look(theta, within=within, warm=warm, max_steps=EDGE_STEPS)

        looked_at = [made for _, _, made in problem.notes] if self.statistical else []
        if sketch is None or not self.statistical:
            self.result = search_with_edges(search, look, problem.space.bounds, starts, options, looked_at)
        else:  # which has seen the edges
            self.result = search(starts, options)
        for _ in range(WIDENED):
            left_over = self._left_of(options)
            ended = self.result.success or self.result.status is Status.ACCURACY
            there = self._beyond_our_edge() if ended and left_over is not None else None
            if there is None or left_over is None:
                break
            self.result = search([there], left_over)
        if self.result.status is Status.TARGET and options.target_cost > self.options.target_cost:
            detail = f"{options.target_cost:.2g}, a billionth of the plainest model's loss"
            self.result = replace(self.result, detail=detail)
        if self.result.status is Status.STOPPED:
            raise StopIteration
        if self.result.status in (Status.INTERRUPTED, Status.TERMINATED):
            if not problem.notes:
                raise KeyboardInterrupt
            return problem.best
        best = self._refined(problem.best)
        for _ in range(RIVALS):
            rival = problem.rival(best)
            if rival is None:
                break
            best = min(best, self._refined(rival), key=estimate)
        self._found(best)
        if unproven(best) and best.interval[1] > options.target_cost:
            self.result = replace(self.result, status=Status.ACCURACY, detail=self._runner_up(best))
        elif self.result.status is Status.SUFFICES:
            self.result = replace(self.result, detail=_what_is_known(best, options.enough))
        if self.one_se:
            return self._within_one_se(best)
        problem.purpose = "beyond"
        self._look_beyond(best)
        return best

    def _check_loss(self, start: Array) -> None:
        """Raise ValueError where the best that was looked at has no finite loss."""
        there = [made for _, _, made in self.problem.notes if np.array_equal(made.point, start)]
        failure = there[-1].failure if there else None
        if failure is not None:
            raise ValueError(f"there is no loss at any of the first penalties: {failure}; scale X or y")

    @property
    def statistical(self) -> bool:
        """Whether the search ends where what is left is small against the standard error over folds."""
        return self.tolerance == "statistical"

    def _until(self, share: float) -> float:
        """When so much of max_seconds has passed."""
        return self.began + share * self.options.max_seconds

    def _look_beyond(self, best: Evaluation) -> None:
        """What one more decade would bring, for every parameter that lies on an edge of its range; looked at only if
        the search has come to its end, or to that of its evaluations."""
        problem = self.problem
        affordable = self.result.success or self.result.status is Status.MAX_EVALUATIONS
        for there, name, down in self._beyond_edges(best):
            if name in self.space.ours:
                continue  # nothing lies beyond what the data can tell
            made = None
            if affordable and best.cost > 0.0 and len(self.edges) < MOST_BEYOND:
                with suppress(TimeOver):
                    made = self._peek(there, best)
            end = problem.space.ranges[name][0 if down else 1]
            edge = Beyond(name, down, end, made, others=len(problem.space) > 1)
            if made is not None and edge.matters(best):
                edge = replace(edge, most=self._at_most(edge, best))
            self.edges.append(edge)

    def _beyond_edges(self, best: Evaluation) -> Iterator[tuple[Array, str, bool]]:
        """A place one decade beyond every edge on which the best point lies, the parameter, and whether it is the lower
        one; nothing lies beyond no penalty."""
        (lower, upper), ranges = self.problem.space.bounds, self.problem.space.ranges
        for i, name in enumerate(self.problem.space.names):
            down = bool(best.point[i] <= lower[i] + AT_EDGE)
            if (down or best.point[i] >= upper[i] - AT_EDGE) and not (down and ranges[name][0] == 0.0):
                there = np.array(best.point)
                there[i] = lower[i] - 1.0 if down else upper[i] + 1.0
                yield there, name, down

    def _peek(self, there: Array, best: Evaluation) -> Evaluation:
        within = for_decision(BEYOND * best.cost, best)
        return self.problem.peek(there, within=within, warm=best, max_steps=EDGE_STEPS)

    def _beyond_our_edge(self) -> Array | None:
        """Where a search goes on beyond an edge that is ours, and better a decade beyond; the space is wider then."""
        best = min((made for _, _, made in self.problem.notes), key=lambda made: made.cost)
        for there, name, down in self._beyond_edges(best):
            if name in self.space.ours and estimate(self._peek(there, best)) < (1.0 - BEYOND) * best.cost:
                self.space = self.space.widened(name, down)
                self.problem.widen(self.space.space)
                return there
        return None

    def _left_of(self, options: Options) -> Options | None:
        """What the search and its looks at edges have left of the budgets, or None."""
        spent = [made for purpose, _, made in self.problem.notes if purpose in ("search", "edge")]
        evaluations = options.max_evaluations - len(spent)
        work = options.max_work - sum(made.work for made in spent)
        seconds = self.problem.until - time.monotonic()
        if evaluations < 1 or not work > 0.0 or not seconds > 0.0:
            return None
        seconds = min(options.max_seconds, seconds)
        return replace(options, max_evaluations=evaluations, max_work=work, max_seconds=seconds)

    def _at_most(self, edge: Beyond, best: Evaluation) -> float | None:
        """By what share of F any value beyond the edge is better at most, up to infinity or down to 0, with the others
        as they are; None where little can be proven in the time that is left for it."""
        problem, known = self.problem.problem, self.problem.space.params(best.point)
        ranges = {name: (value * (1.0 - ALIKE), value * (1.0 + ALIKE)) for name, value in known.items()}
        ranges[edge.name] = (0.0, edge.end) if edge.down else (edge.end, math.inf)
        now = time.monotonic()
        seconds = min(max(SHARE_BEYOND * (now - self.began), SECONDS_BEYOND), self._until(REFINING) - now)
        if seconds <= 0.0 or min(known.values()) <= 0.0 or not isinstance(problem, BilevelProblem):
            return None  # of kernel machines nothing is proven beyond
        budget = GlobalOptions(max_evaluations=PROVEN_BEYOND, max_seconds=seconds)
        try:
            proven = certify_global(problem.over(Space(**ranges)), BEYOND, options=budget, known=best)
        except UnsupportedError:
            return None
        if proven.message == INTERRUPTED:
            raise KeyboardInterrupt
        most = 1.0 - proven.lower / best.interval[1]
        return most if most < TELLING else None

    def _runner_up(self, best: Evaluation) -> str:
        """What to know where the best model that was seen cannot be proven."""
        proven = self.problem.best_proven
        (low, high), values = proven.interval, self.problem.space.params(proven.point)
        named = ", ".join(f"{name} = {value:.4g}" for name, value in values.items())
        return (
            f"the loss at the best penalties is {best.cost:.6g} as computed, but arithmetic cannot prove it; the best "
            f"that is proven lies in [{low:.6g}, {high:.6g}], at {named}"
        )

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
        limit = best.cost + standard_error(best)
        self.problem.purpose = "one standard error"
        upper = self.problem.space.bounds[1]
        low, high, chosen = 0.0, float(np.min(upper - best.point)), best
        trial = high
        for _ in range(ONE_SE_STEPS):
            there = np.minimum(best.point + trial, upper)
            within = 0.02 * math.sqrt(best.cost / len(best.e))
            try:
                evaluation = self.problem.look(there, within=within, warm=chosen)
            except TimeOver:
                self.result = replace(self.result, status=Status.MAX_SECONDS)
                break
            if evaluation.interval[1] <= limit:
                low, chosen = trial, evaluation
            else:
                high = trial
            if low == high:
                break
            trial = 0.5 * (low + high)
        return self._refined(chosen)
