r"""Branch and bound: no parameters in a box are better than the best that are known by more than epsilon.

The box of the space is cut into cells. Each has a lower bound of F (`suffice.global_search.surfaces`), its own or that
of the cell which it was cut from; the least of them all, L, bounds F everywhere, and the least proven value at any
point that was evaluated, U, bounds min F from above:

    L  <=  min F  <=  U,        gap = (U - L)/U.

The cell with the least bound is looked at next: F is evaluated at its centre, which gives the cell a bound of its own
and may lower U; if that bound is not enough, the cell is cut in two. It ends when gap <= epsilon, and L, U and the gap
hold whenever it is stopped. Bounds are of third order in the size of a cell where no weight becomes or ceases to be
zero, of first order elsewhere: about (1/epsilon)^(m/3) cells with m parameters, and (1/epsilon)^(m-1) along kinks.

Cells are cut in the user's units: at the geometric mean of their ends, or at a CUT-th of the upper one where that is
more, since penalties that are small beside the data's curvature all look alike. Of one parameter, cells are also cut
where a weight is expected to become or to cease to be zero: a kink at an end costs nothing. A cell without an upper end
is bounded from w = 0 (all weights tend to it as l2 grows, and are 0 for l1 >= l1_max), and cut at ten times its lower
end.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from typing import Protocol

import numpy as np

from suffice.arrays import Array, positive, whole_number
from suffice.bilevel import BilevelProblem
from suffice.global_search.models import Fold, folds_of
from suffice.global_search.paths import Box
from suffice.global_search.rotation import in_rows, rotated
from suffice.global_search.surfaces import Surface, surface_of, unknown
from suffice.upper.evaluation import Evaluation

CUT = 16.0
NEAR = 4.0  # a cell of one parameter whose ends are no farther apart is cut where the support is expected to change,
TINIEST = 1e-4  # unless that is as near to an end as this, relative to its width
BEYOND = 10.0  # where a cell without an upper end is cut, times its lower end
SHARE = 0.02  # of epsilon: how well F is to be known at centres
MOST_STEPS = 150  # of a solve at a centre: what it has by then may serve as well, and is as good a start of a path
NARROWEST = 1e-9  # of its upper end: a cell this narrow is not cut any more


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
class Cell:
    """Parameters between `low` and `high`, in the user's units, and what is proven of F for all of them."""

    low: Array
    high: Array
    lower: float
    upper: float
    surface: Surface = field(repr=False)
    solved: bool = False  # whether F was evaluated at its own centre

    @property
    def box(self) -> Box:
        return Box(self.low, self.high)

    def holds(self, t: Array) -> bool:
        return bool(np.all((self.low <= t) & (t <= self.high)))

    def interval(self, t: Array) -> tuple[float, float]:
        """Where F is proven to lie at parameters t of the cell."""
        low, high = self.surface.interval(t)
        return max(low, self.lower), min(high, self.upper)


@dataclass(frozen=True)
class Progress:
    """What was proven after so many evaluations; `work` and `seconds` are those of all of them."""

    evaluations: int
    work: float
    seconds: float
    lower: float
    upper: float
    cells: int

    @property
    def gap(self) -> float:
        return relative(self.lower, self.upper)


def relative(lower: float, upper: float) -> float:
    """(U - L)/U; infinite as long as nothing is known."""
    if not math.isfinite(upper):
        return math.inf
    return max(upper - lower, 0.0) / upper if upper > 0.0 else 0.0


class Evaluate(Protocol):
    """Makes an evaluation of one of the problems, or takes it from a journal."""

    def __call__(
        self, problem: BilevelProblem, theta: Array, within: float, warm: Evaluation | None, /
    ) -> Evaluation: ...


@dataclass
class Search:
    """Branch and bound under way. Where folds are solved in the space of their rows (`suffice.global_search.rotation`),
    F itself is evaluated at centres that look better than all before."""

    problem: BilevelProblem
    epsilon: float
    evaluate: Evaluate
    folds: list[Fold] = field(init=False)
    solved: BilevelProblem = field(init=False)
    best: Evaluation | None = None
    evaluations: int = 0
    work: float = 0.0
    began: float = field(default_factory=time.monotonic)
    _heap: list[tuple[float, int, Cell, Evaluation | None]] = field(default_factory=list, init=False)
    _order: Iterator[int] = field(default_factory=count, init=False)

    def __post_init__(self) -> None:
        self.folds = [rotated(fold) for fold in folds_of(self.problem)]
        self.solved = in_rows(self.problem, self.folds).limited(min(self.problem.max_steps, MOST_STEPS))
        low, high = np.array(list(self.problem.space.ranges.values()), dtype=np.float64).T
        box = Box(low, high)
        self._push(
            Cell(low, high, 0.0, math.inf, unknown(box)),
            self.best if all(fold.rotation is None for fold in self.folds) else None,
        )

    @property
    def upper(self) -> float:
        """U."""
        return math.inf if self.best is None else self.best.interval[1]

    @property
    def lower(self) -> float:
        """L."""
        return min(self._heap[0][0], self.upper)

    @property
    def done(self) -> bool:
        return relative(self.lower, self.upper) <= self.epsilon or self._narrow(self._heap[0][2])

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Cells that together are the box, in order of their bounds."""
        return tuple(cell for _, _, cell, _ in sorted(self._heap, key=lambda item: item[:2]))

    @property
    def progress(self) -> Progress:
        seconds = time.monotonic() - self.began
        return Progress(self.evaluations, self.work, seconds, self.lower, self.upper, len(self._heap))

    @contextmanager
    def undone_by_interrupts(self) -> Iterator[None]:
        """Whatever is raised inside, the cells are those from before, so that they still make up the box."""
        before = list(self._heap)
        try:
            yield
        except BaseException:
            self._heap = before
            raise

    def note(self, evaluation: Evaluation) -> None:
        """An evaluation that was made, here or elsewhere."""
        if evaluation.failure is None and evaluation.interval[1] < self.upper:
            self.best = evaluation

    def step(self) -> None:
        """Look at the cell with the least bound."""
        _, _, cell, warm = heapq.heappop(self._heap)
        if cell.solved:
            for child in self._parts(cell):
                self._push(child, warm)
            return
        made = self._at_centre(cell, warm) if cell.box.bounded else None
        weights = [np.zeros(fold.design.shape[1]) for fold in self.folds]
        if made is not None:
            weights = [solution.x for solution in made.solutions]
        surface = surface_of(self.folds, weights, cell.box)
        lower, upper = surface.least(cell.box), surface.most(cell.box)
        own = surface if surface.slack < cell.surface.slack or lower > cell.lower else cell.surface
        own = replace(own, free=surface.free, relief=surface.relief)
        solved = Cell(cell.low, cell.high, max(lower, cell.lower), min(upper, cell.upper), own, True)
        self._push(solved, warm if made is None else made)

    def _push(self, cell: Cell, warm: Evaluation | None) -> None:
        heapq.heappush(self._heap, (cell.lower, next(self._order), cell, warm))

    def _at_centre(self, cell: Cell, warm: Evaluation | None) -> Evaluation:
        space = self.problem.space
        theta = space.theta(dict(zip(space.names, cell.box.centre.tolist(), strict=True)))
        size = self.upper if math.isfinite(self.upper) else 1.0
        within = SHARE * self.epsilon * math.sqrt(size / len(self.folds))
        made = self._evaluated(self.solved, theta, within, warm)
        if not any(fold.rotation is not None for fold in self.folds):
            self.note(made)
        elif made.failure is None and made.cost < (1.0 - SHARE * self.epsilon) * self.upper:
            self.note(self._evaluated(self.problem, theta, within, self.best))
        return made

    def _evaluated(self, problem: BilevelProblem, theta: Array, within: float, warm: Evaluation | None) -> Evaluation:
        made = self.evaluate(problem, theta, within, warm)
        self.evaluations, self.work = self.evaluations + 1, self.work + float(made.work)
        return made

    def _parts(self, cell: Cell) -> list[Cell]:
        k = self._side(cell)
        low, high = float(cell.low[k]), float(cell.high[k])
        if math.isinf(high):
            cuts = [BEYOND * low if low > 0.0 else 1.0]
        else:
            cuts = [cut for cut in cell.surface.free if low < cut < high] if high <= NEAR * low else []
            width = high - low
            if not any(TINIEST * width < cut - low < (1.0 - TINIEST) * width for cut in cuts):
                cuts = [max(math.sqrt(low * high), high / CUT)]
        parts = []
        for ends in pairwise([low, *cuts, high]):
            below, above = cell.low.copy(), cell.high.copy()
            below[k], above[k] = ends
            box = Box(below, above)
            lower, upper = cell.surface.least(box), cell.surface.most(box)
            parts.append(Cell(below, above, max(lower, cell.lower), min(upper, cell.upper), cell.surface))
        return parts

    def _side(self, cell: Cell) -> int:
        """Which side is cut: an infinite one first, then the one that moves predictions most."""
        if not cell.box.bounded:
            return int(np.argmax(np.isinf(cell.high)))
        relief = np.where(cell.high - cell.low > NARROWEST * cell.high, cell.surface.relief, -1.0)
        if np.all(relief[0] == relief):  # nothing is known of them
            relief = np.log(cell.high / np.maximum(cell.low, NARROWEST * cell.high))
        return int(np.argmax(relief))

    def _narrow(self, cell: Cell) -> bool:
        return cell.solved and cell.box.bounded and bool(np.all(cell.high - cell.low <= NARROWEST * cell.high))


def budget_spent(search: Search, options: GlobalOptions) -> str | None:
    """Which budget has run out, if any."""
    spent: dict[str, tuple[float, float]] = {
        "max_evaluations": (search.evaluations, options.max_evaluations),
        "max_work": (search.work, options.max_work),
        "max_seconds": (time.monotonic() - search.began, options.max_seconds),
    }
    return next((name for name, (used, most) in spent.items() if used >= most), None)
