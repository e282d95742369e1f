"""`certify_global`: how much better than the best known parameters any others in the space can be, at most."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from suffice.arrays import Array, positive
from suffice.evaluation import Evaluation
from suffice.globally.answers import searching
from suffice.globally.branch import BranchAndBound, Cell, GlobalOptions, Progress, budget_spent, relative
from suffice.globally.landscape import Landscape
from suffice.result import Result
from suffice.search.bilevel import BilevelProblem
from suffice.signals import termination
from suffice.space import Space

AT_ONCE = 8  # cells that are looked at together where there is an executor
INTERRUPTED = "it was interrupted"


@dataclass(frozen=True, eq=False)
class GlobalCertificate:
    """What `certify_global` has proven: lower <= min F <= upper over the whole space.

    `gap` is (upper - lower)/upper: no parameters in the space are better than `params` by more than this share of F.
    `success` says whether it is at most `epsilon`; if not, `message` says what has ended the search, and `lower` and
    `gap` hold all the same. `params` are the best that were evaluated, by name, `interval` is where F is proven to lie
    there. `cells` make up the space: each has its ends `low` and `high` in the user's units and bounds `lower` and
    `upper` of F between them. `history` has the gap as it was closed, `evaluations` is the number of cells that
    were looked at, all folds together being one, and `work` that of solvers' steps and of segments of a Lasso's path.
    """

    epsilon: float
    lower: float
    upper: float
    params: dict[str, float]
    theta: Array
    interval: tuple[float, float]
    cells: tuple[Cell, ...] = field(repr=False)
    history: tuple[Progress, ...] = field(repr=False)
    evaluations: int
    work: float
    seconds: float
    message: str
    space: Space

    @classmethod
    def of(cls, search: BranchAndBound, history: tuple[Progress, ...], message: str) -> GlobalCertificate:
        """What a search has proven."""
        best, space, seconds = search.best, search.problem.space, search.progress.seconds
        if best is None:
            raise ValueError("F could not be evaluated anywhere in the space")
        return cls(
            search.epsilon, search.lower, search.upper, space.params(best.point), best.point, best.interval,
            search.cells, history, search.evaluations, search.work, seconds, message, space,
        )  # fmt: skip

    @property
    def gap(self) -> float:
        """(upper - lower)/upper."""
        return relative(self.lower, self.upper)

    @property
    def success(self) -> bool:
        """Whether the gap is at most epsilon."""
        return self.gap <= self.epsilon

    def bounds_at(self, params: Mapping[str, float]) -> tuple[float, float]:
        """Where F is proven to lie at these parameters of the space, by what is known of the cells."""
        t = np.array([float(params[name]) for name in self.space.names])
        found = [cell.interval(t) for cell in self.cells if cell.holds(t)]
        if not found:
            raise ValueError(f"the parameters lie outside the space {self.space!r}, got {dict(params)!r}")
        return max(low for low, _ in found), min(high for _, high in found)

    def plot(self, ax: Any = None) -> Any:
        """The proven lower and upper surfaces over the space, and which cells are ruled out (needs Matplotlib)."""
        from suffice import plots

        return plots.draw_landscape(self.landscape, ax)

    @property
    def landscape(self) -> Landscape:
        """What `plot` draws."""
        best = [self.params[name] for name in self.space.names]
        return Landscape.of(self.space.names, best, self.lower, self.upper, self.cells)


def certify_global(
    problem: BilevelProblem,
    epsilon: float = 0.01,
    *,
    options: GlobalOptions | None = None,
    known: Result | Evaluation | None = None,
    journal: str | os.PathLike[str] | None = None,
    callback: Callable[[Progress], object] | None = None,
    executor: Any = None,
) -> GlobalCertificate:
    """Prove how much better than the best known parameters any others in the problem's space can be.

    It is for problems whose lower levels are linear models with squared, logistic or Poisson loss and one or two
    penalties (`problems.ElasticNet` and its like, the folds of `SufficeSearchCV`), judged by a squared error, log loss,
    Brier score or Poisson deviance on held-out rows. Others are refused by a `TypeError` that names what works. Ranges
    may end in infinity, and begin at 0 where the data supply the curvature.

    Parameters
    ----------
    problem : BilevelProblem
        What to certify, over its `space`.
    epsilon : float, default 0.01
        The relative gap at which it ends with success.
    options : GlobalOptions, default None
        Budgets. Whenever they end it, what is proven so far is returned; F is evaluated once at least.
    known : Result or Evaluation, default None
        The end of a local search of the same problem, such as `suffice.tune` returns: an upper bound from the start.
    journal : folder, default None
        What was found in a cell is on disk there before the next one is looked at; another call with the same folder,
        problem and epsilon takes up what was interrupted.
    callback : callable, default None
        Given a `Progress` after every look: `gap`, `lower`, `upper`, `evaluations`, `cells`, `seconds`.
        StopIteration raised in it ends the search, and so do Ctrl-C and SIGTERM: what is proven by then is returned.
    executor : default None
        Where cells are looked at, several at once (`GlobalOptions.cells_at_once`): "processes", "dask", a
        concurrent.futures.Executor or one of `suffice.executors`. None: here. The result is the same, to the bit, for
        any of them and any number of workers, and holds in whatever order they answer.
    """
    positive(epsilon, "epsilon")
    options = GlobalOptions() if options is None else options
    if not isinstance(options, GlobalOptions):
        raise TypeError(f"options must be suffice.GlobalOptions or None, got {options!r}")
    evaluation = known.evaluation if isinstance(known, Result) else known
    at_once = options.cells_at_once or (1 if executor is None else AT_ONCE)
    with searching(problem, epsilon, journal, executor, evaluation) as search:
        history: list[Progress] = []
        message = _run(search, options, at_once, history, callback)
        if search.best is None:  # cells without an upper end are bounded without an evaluation
            search.settle_for_any()
        if not history:  # what was known before the first look is enough
            history.append(search.progress)
    return GlobalCertificate.of(search, tuple(history), message)


def _run(
    search: BranchAndBound,
    options: GlobalOptions,
    at_once: int,
    history: list[Progress],
    callback: Callable[[Progress], object] | None,
) -> str:
    while not search.done:
        spent = budget_spent(search, options)
        if spent is not None:
            return f"{spent} was reached"
        before = search.evaluations
        try:
            with termination(KeyboardInterrupt), search.undone_by_interrupts():
                search.step(min(at_once, options.max_evaluations - search.evaluations))
        except KeyboardInterrupt:
            if search.best is None:
                raise
            return INTERRUPTED
        if search.evaluations > before:
            history.append(search.progress)
            try:
                if callback is not None:
                    callback(history[-1])
            except StopIteration:
                return "the callback has ended it"
    if relative(search.lower, search.upper) <= search.epsilon:
        return f"no parameters in the space are better by more than {100.0 * search.epsilon:g} %"
    return (
        "the cell with the least bound is too narrow to be cut: rounding, or minimisers that are not unique (equal "
        "columns), forbid a smaller gap"
    )
