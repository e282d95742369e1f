r"""Branch and bound: no parameters in a box are better than the best that are known by more than epsilon.

The box of the space is cut into cells. Each has a lower bound of F (`suffice.globally.surfaces`), its own or that
of the cell which it was cut from; the least of them all, L, bounds F everywhere, and the least proven value at any
point that was evaluated, U, bounds min F from above:

    L  <=  min F  <=  U,        gap = (U - L)/U.

The cell with the least bound is looked at next, or a few of the least at once: folds are solved at its centre
(`suffice.globally.centres`), which gives the cell a bound of its own; if that is not enough, the cell is cut. F is
evaluated where that looks better than U. It ends when gap <= epsilon, and L, U and the gap hold whenever it is stopped.
Bounds are of third order in the size of a cell where no weight becomes or ceases to be zero, and elsewhere of first
order by what a kink does to held-out losses: about (1/epsilon)^(m/3) cells with m parameters, (1/epsilon)^(m-1) along
kinks. The Lasso alone needs no cells to be looked at: all of its path is known (`suffice.globally.homotopy`).

Cells are cut in the user's units: at the geometric mean of their ends, or at a CUT-th of the upper one where that is
more, since penalties that are small beside the data's curvature all look alike. Of one parameter, cells are also cut
where a weight is expected to become or to cease to be zero: a kink at an end costs nothing. A cell without an upper end
is bounded from w = 0 (all weights tend to it as l2 grows, and are 0 for l1 >= l1_max), and cut at ten times its lower
end.
"""

from __future__ import annotations

import heapq
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, pairwise

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array, frozen, positive, whole_number
from suffice.evaluation import Evaluation
from suffice.globally.centres import CellAnswer, CellLook, CellWorker, minimised
from suffice.globally.homotopy import Paths, linear, paths
from suffice.globally.models import CertifiableFold, folds_of
from suffice.globally.paths import PenaltyBox
from suffice.globally.rotation import rotated
from suffice.globally.surfaces import LossSurface, together, unknown
from suffice.search.bilevel import BilevelProblem
from suffice.solvers.certificate import Certificate
from suffice.solvers.solution import Outcome, Solution

CUT = 16.0
NEAR = 4.0  # a cell of one parameter whose ends are no farther apart is cut where the support is expected to change,
TINIEST = 1e-4  # unless that is as near to an end as this, relative to its width
BEYOND = 10.0  # where a cell without an upper end is cut, times its lower end
SHARE = 0.02  # of epsilon: how well F is to be known at centres
TIGHT = 0.1  # of epsilon: what a cell's slack may be, relative to F, for all to be known of it
INSIDE = 1e-3  # of the way from an end to the centre
HOPELESS = 0.5  # of U: a cell with a lesser bound is cut in four or more
NARROWEST = 1e-9  # of its upper end: a cell this narrow is not cut any more


@dataclass(frozen=True, kw_only=True)
class GlobalOptions:
    """When `certify_global` stops without success: budgets, for all that it does. What is proven by then holds.

    `cells_at_once` are looked at together: more of them keep more workers of an executor busy, and a few cells are then
    looked at that need not have been. None is 8 with an executor and 1 without. The result depends on this number, not
    on the executor or its workers.
    """

    max_evaluations: int = 5000
    max_work: float = math.inf
    max_seconds: float = math.inf
    cells_at_once: int | None = None

    def __post_init__(self) -> None:
        whole_number(self.max_evaluations, "max_evaluations", least=1)
        positive(self.max_work, "max_work", infinite=True)
        positive(self.max_seconds, "max_seconds", infinite=True)
        if self.cells_at_once is not None:
            whole_number(self.cells_at_once, "cells_at_once", least=1)


@dataclass(frozen=True, eq=False)
class Cell:
    """Parameters between `low` and `high`, in the user's units, and what is proven of F for all of them."""

    low: Array
    high: Array
    lower: float
    upper: float
    surface: LossSurface = field(repr=False)
    solved: bool = False  # whether F was evaluated at its own centre

    @property
    def box(self) -> PenaltyBox:
        return PenaltyBox(self.low, self.high)

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


Starts = Sequence[Array] | None  # of every fold: where to solve from


@dataclass
class BranchAndBound:
    """Branch and bound under way. F itself is evaluated, with a proof of its own, at centres that look better than all
    before."""

    problem: BilevelProblem
    epsilon: float
    evaluate: Callable[[Array, float, Evaluation | None], Evaluation]  # at theta, within, from a warm start
    look: Callable[[CellWorker, Sequence[CellLook]], Sequence[CellAnswer]]  # the answers to tasks
    folds: list[CertifiableFold] = field(init=False)
    worker: CellWorker = field(init=False)
    best: Evaluation | None = None
    evaluations: int = 0
    work: float = 0.0
    began: float = field(default_factory=time.monotonic)
    _heap: list[tuple[float, int, Cell, Starts]] = field(default_factory=list, init=False)
    _known: Paths | None = field(default=None, init=False)
    _order: Iterator[int] = field(default_factory=count, init=False)

    def __post_init__(self) -> None:
        self.folds = [rotated(fold) for fold in folds_of(self.problem)]
        self.worker = CellWorker(tuple(self.folds))
        low, high = np.array(list(self.problem.space.ranges.values()), dtype=np.float64).T
        if not linear(self.folds) or not math.isfinite(high[0]):
            self._push(Cell(low, high, 0.0, math.inf, unknown(PenaltyBox(low, high))), None)
            return
        self._known = paths(self.folds, float(low[0]), float(high[0]))
        self.work += self._known.segments
        for box, surface in self._known.cells(float(low[0]), float(high[0])):
            self._push(Cell(box.low, box.high, surface.least(box), surface.most(box), surface), None)

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
        cell = self._heap[0][2]
        return relative(self.lower, self.upper) <= self.epsilon or (cell.solved and bool(_narrow(cell).all()))

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

    def step(self, most: int = 1) -> None:
        """Look at the cells with the least bounds, at so many of them at most."""
        chosen: list[tuple[Cell, Starts]] = []
        while self._heap and len(chosen) < most and not (chosen and self._enough(self._heap[0][0])):
            _, _, cell, starts = heapq.heappop(self._heap)
            if cell.solved:
                for child in self._parts(cell):
                    self._push(child, starts)
                if not chosen:
                    return
            else:
                if starts is None and self._known is not None:
                    starts = self._known.weights(cell.box)
                if not chosen and cell.surface.slack <= TIGHT * self.epsilon * cell.lower:
                    self._settle(cell, starts)
                    return
                chosen.append((cell, starts))
        tasks = [
            CellLook(j, cell.low, cell.high, None if starts is None else starts[j])
            for cell, starts in chosen
            for j in range(len(self.folds))
        ]
        answers, n = self.look(self.worker, tasks), len(self.folds)
        for k, (cell, _) in enumerate(chosen):
            self._take(cell, answers[k * n : (k + 1) * n])

    def settle_for_any(self) -> None:
        """F somewhere in the box, where it was evaluated nowhere."""
        t = within_reach(self._heap[0][2].box).centre
        self._evaluated(t, [np.zeros(fold.design.shape[1]) for fold in self.folds])

    def _settle(self, cell: Cell, starts: Starts) -> None:
        """F where it is least in a cell of which all is known: no look at it could tell more. At an end, which is often
        a kink and hard to prove anything at, a little inside."""
        box = within_reach(cell.box)
        t = cell.surface.best(box)
        t += INSIDE * (box.centre - t)
        begun = [np.zeros(fold.design.shape[1]) for fold in self.folds] if starts is None else starts
        found = [
            minimised(fold, float(fold.B[0] @ t), float(fold.B[1] @ t), w)
            for fold, w in zip(self.folds, begun, strict=True)
        ]
        self.evaluations, self.work = self.evaluations + 1, self.work + sum(steps for _, steps in found)
        self._evaluated(t, [w for w, _ in found])
        self._push(replace(cell, solved=True), starts)

    def _take(self, cell: Cell, found: Sequence[CellAnswer]) -> None:
        """What was found in a cell."""
        self.evaluations, self.work = self.evaluations + 1, self.work + sum(one.steps for one in found)
        surface = together([one.part for one in found], cell.box)
        if cell.box.bounded and sum(one.cost for one in found) < (1.0 - SHARE * self.epsilon) * self.upper:
            self._evaluated(cell.box.centre, [one.w for one in found])
        lower, upper = surface.least(cell.box), surface.most(cell.box)
        own = surface if surface.slack < cell.surface.slack or lower > cell.lower else cell.surface
        own = replace(own, cut=surface.cut)
        solved = Cell(cell.low, cell.high, max(lower, cell.lower), min(upper, cell.upper), own, True)
        self._push(solved, tuple(one.w for one in found) if cell.box.bounded else None)

    def _enough(self, lower: float) -> bool:
        return relative(lower, self.upper) <= self.epsilon

    def _push(self, cell: Cell, starts: Starts) -> None:
        heapq.heappush(self._heap, (cell.lower, next(self._order), cell, starts))

    def _evaluated(self, t: Array, weights: Sequence[Array]) -> None:
        """F itself, at parameters t that look better than all before."""
        space = self.problem.space
        theta = space.theta(dict(zip(space.names, t.tolist(), strict=True)))
        size = self.upper if math.isfinite(self.upper) else 1.0
        within = SHARE * self.epsilon * math.sqrt(size / len(self.folds))
        warm = self.best
        if all(fold.rotation is None for fold in self.folds):
            starts = [Solution(frozen(w), Certificate(math.inf, "none"), 0, Outcome.STEPS) for w in weights]
            warm = Evaluation(theta, np.zeros(1), np.full(1, np.inf), solutions=starts)
        made = self.evaluate(theta, within, warm)
        self.work += float(made.work)
        self.note(made)

    def _parts(self, cell: Cell) -> list[Cell]:
        """The cell cut in two, or in more where next to nothing is proven of it."""
        k = self._side(cell)
        parts = self._cut(cell, k)
        if cell.box.bounded and len(cell.low) == 2 and cell.lower < HOPELESS * self.upper:
            left = np.maximum(cell.surface.cut.halvings, 1.0)
            left[k] -= 1.0
            for side in [*[k] * int(left[k]), *[1 - k] * int(left[1 - k])]:
                parts = [piece for part in parts for piece in self._cut(part, side)]
        return parts

    def _cut(self, cell: Cell, k: int) -> list[Cell]:
        low, high = float(cell.low[k]), float(cell.high[k])
        if math.isinf(high):
            cuts = [float(beyond(low))]
        else:
            cuts = [cut for cut in cell.surface.cut.free if low < cut < high] if high <= NEAR * low else []
            width = high - low
            if not any(TINIEST * width < cut - low < (1.0 - TINIEST) * width for cut in cuts):
                cuts = [max(math.sqrt(low) * math.sqrt(high), high / CUT)]
        parts = []
        for ends in pairwise([low, *cuts, high]):
            below, above = cell.low.copy(), cell.high.copy()
            below[k], above[k] = ends
            box = PenaltyBox(below, above)
            lower, upper = cell.surface.least(box), cell.surface.most(box)
            parts.append(Cell(below, above, max(lower, cell.lower), min(upper, cell.upper), cell.surface))
        return parts

    def _side(self, cell: Cell) -> int:
        """Which side is cut: an infinite one first, then the one that moves predictions most."""
        narrow = _narrow(cell)
        if np.any(np.isinf(cell.high) & ~narrow):
            return int(np.argmax(np.isinf(cell.high) & ~narrow))
        relief = np.where(narrow, -1.0, cell.surface.cut.relief)
        if np.all(relief[0] == relief):  # nothing is known of them
            relief = np.log(cell.high / np.maximum(cell.low, NARROWEST * cell.high))
        return int(np.argmax(relief))


def beyond(low: npt.ArrayLike) -> Array:
    """Where sides without an upper end are cut; infinite beyond the range of floats."""
    with np.errstate(over="ignore"):
        return np.where(np.asarray(low) > 0.0, BEYOND * np.asarray(low), 1.0)


def within_reach(box: PenaltyBox) -> PenaltyBox:
    """What is to be had of a box with floats, or all of a bounded one."""
    return PenaltyBox(box.low, np.where(np.isinf(box.high), np.minimum(beyond(box.low), sys.float_info.max), box.high))


def _narrow(cell: Cell) -> npt.NDArray[np.bool_]:
    """Which sides are not cut any more."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(cell.high), np.isinf(beyond(cell.low)), cell.high - cell.low <= NARROWEST * cell.high)


def budget_spent(search: BranchAndBound, options: GlobalOptions) -> str | None:
    """Which budget has run out, if any."""
    spent: dict[str, tuple[float, float]] = {
        "max_evaluations": (search.evaluations, options.max_evaluations),
        "max_work": (search.work, options.max_work),
        "max_seconds": (time.monotonic() - search.began, options.max_seconds),
    }
    return next((name for name, (used, most) in spent.items() if used >= most), None)
