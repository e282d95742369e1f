"""`certify_global`: how much better than the best known parameters any others in the space can be, at most."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from suffice.arrays import Array, positive, whole_number
from suffice.evaluation import Evaluation
from suffice.globally.branch import BranchAndBound, Cell, Progress, relative
from suffice.journal.answers import Journal
from suffice.journal.fingerprint import Fingerprint
from suffice.result import Result
from suffice.search.bilevel import BilevelProblem
from suffice.signals import termination
from suffice.space import Space

INTERRUPTED = "it was interrupted"
POINTS = 12  # of a cell, at which its surfaces are drawn


@dataclass(frozen=True, kw_only=True)
class GlobalOptions:
    """When `certify_global` stops without success: budgets, for all that it does. What is proven by then holds."""

    max_evaluations: int = 5000
    max_work: float = math.inf
    max_seconds: float = math.inf

    def __post_init__(self) -> None:
        whole_number(self.max_evaluations, "max_evaluations", least=1)
        positive(self.max_work, "max_work", infinite=True)
        positive(self.max_seconds, "max_seconds", infinite=True)


@dataclass(frozen=True, eq=False)
class Landscape:
    """What is proven of F over the space, as pictures show it: 0 and infinity are cut off. With one parameter the band
    in which F is proven to lie, with two every cell by its lower bound over the best known F."""

    names: tuple[str, ...]
    best: Array
    lower: float  # of F, everywhere
    upper: float  # the best known F
    cells: Array  # one a row: lower ends, upper ends, lower bound of F
    line: Array  # of one parameter: its values, and the lower and upper bounds of F there; else empty

    @property
    def gap(self) -> float:
        return relative(self.lower, self.upper)

    @property
    def gap_in_percent(self) -> str:
        """With two digits, rounded up: it is a bound."""
        percent = 100.0 * self.gap
        unit = 10.0 ** (math.floor(math.log10(percent)) - 1) if 0.0 < percent < math.inf else 1.0
        return f"{float(f'{math.ceil(percent / unit) * unit:.2g}'):g}" if math.isfinite(percent) else "inf"

    @property
    def ends(self) -> list[tuple[float, float]]:
        """From where to where each parameter is drawn."""
        m = len(self.names)
        return [(float(self.cells[:, k].min()), float(self.cells[:, m + k].max())) for k in range(m)]

    @property
    def excess(self) -> Array:
        """By how many percent each cell is proven to be worse than the best known F; negative if it may be better."""
        return np.asarray(100.0 * (self.cells[:, -1] / self.upper - 1.0))


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

    def __repr__(self) -> str:
        best = ", ".join(f"{name} = {value:.4g}" for name, value in self.params.items())
        share = f"none are better than {best} by more than {self.landscape.gap_in_percent} %"
        return f"<GlobalCertificate: {share}; {self.evaluations} evaluations, {self.message}>"

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

        def shown(low: float, high: float) -> tuple[float, float]:
            """Ends of a cell on a logarithmic scale."""
            high = float(high) if math.isfinite(high) else 10.0 * max(float(low), 0.1)
            return (float(low) if low > 0.0 else 1e-3 * high), high

        rows, line = [], []
        for cell in self.cells:
            lows, highs = zip(*map(shown, cell.low, cell.high), strict=True)
            rows.append([*lows, *highs, cell.lower])
        for cell in sorted(self.cells, key=lambda cell: float(cell.low[0])) if len(self.space) == 1 else ():
            for t in np.geomspace(*shown(float(cell.low[0]), float(cell.high[0])), POINTS):
                line.append((t, *cell.interval(np.clip(np.array([t]), cell.low, cell.high))))
        best = np.array([self.params[name] for name in self.space.names])
        lines = np.array(line).reshape(-1, 3)
        return Landscape(self.space.names, best, self.lower, self.upper, np.array(rows), lines)


def certify_global(
    problem: BilevelProblem,
    epsilon: float = 0.01,
    *,
    options: GlobalOptions | None = None,
    known: Result | Evaluation | None = None,
    journal: str | os.PathLike[str] | None = None,
    callback: Callable[[Progress], object] | None = None,
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
    """
    positive(epsilon, "epsilon")
    options = GlobalOptions() if options is None else options
    if not isinstance(options, GlobalOptions):
        raise TypeError(f"options must be suffice.GlobalOptions or None, got {options!r}")
    history: list[Progress] = []
    best = known.evaluation if isinstance(known, Result) else known
    with ExitStack() as stack:
        kept: Journal | None = None
        if journal is not None:
            parts = Fingerprint()
            parts.add("problem", problem)
            parts.add("epsilon", epsilon)
            kept = stack.enter_context(Journal(journal).continued(parts.parts))
        search = BranchAndBound(problem, epsilon, best, kept)
        message = _run(search, options, history, callback)
    if search.best is None:
        raise ValueError("F could not be evaluated anywhere in the space")
    last, space = search.progress, search.problem.space
    return GlobalCertificate(
        epsilon, last.lower, last.upper, space.params(search.best.point), search.best.point, search.best.interval,
        search.cells, tuple(history or [last]), last.evaluations, last.work, last.seconds, message, space,
    )  # fmt: skip


def _run(
    search: BranchAndBound,
    options: GlobalOptions,
    history: list[Progress],
    callback: Callable[[Progress], object] | None,
) -> str:
    """What has ended it."""
    while not search.done:
        for name in ("evaluations", "work", "seconds"):
            if getattr(search.progress, name) >= getattr(options, f"max_{name}"):
                return f"max_{name} was reached"
        before, looked = list(search.heap), search.evaluations
        try:
            with termination(KeyboardInterrupt):
                search.step()
        except KeyboardInterrupt:
            search.heap = before  # cells that make up the box
            return INTERRUPTED
        if search.evaluations > looked:
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
