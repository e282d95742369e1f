r"""Branch and bound: no parameters in a box are better than the best that are known by more than epsilon.

The box of the space is cut into cells. Each has a lower bound of F (`suffice.globally.surfaces`), its own or that
of the cell which it was cut from; the least of them all, L, bounds F everywhere, and the least proven value at any
point that was evaluated, U, bounds min F from above:

    L  <=  min F  <=  U,        gap = (U - L)/U.

The cell with the least bound is looked at next: folds are solved at its centre, which gives the cell a bound of its
own; if that is not enough, the cell is cut. F is evaluated where that looks better than U. It ends when gap <= epsilon,
and L, U and the gap hold whenever it is stopped. Bounds are of third order in the size of a cell where no weight
becomes or ceases to be zero, and elsewhere of first order by what a kink does to held-out losses: about
(1/epsilon)^(m/3) cells with m parameters, (1/epsilon)^(m-1) along kinks. The Lasso alone needs no cells to be looked
at: all of its path is known (`suffice.globally.homotopy`).

One parameter is swept: from weights at c the widest c - r, c + r is looked for of which enough is proven, and what is
left on either side is a cell of its own, so that no look is lost on a cell too wide. r/c changes little from one to the
next: c is chosen for such an r to end at the cell's upper end. Enough is what cannot hold anything better, or what is
known to a ROUGH share of F; where that turns out too rough, to a TIGHT share of epsilon, from the same weights. Beside
c - r, c + r follow boxes as wide as r, each around weights that the path through those at c foretells, for as long as
enough is proven of them: a kink on one side does not end what is known on the other, and no problem is solved for them.

Two parameters are cut in the user's units: at the geometric mean of their ends, or at a CUT-th of the upper one where
that is more, since penalties that are small beside the data's curvature all look alike. A cell without an upper end is
bounded from w = 0 (all weights tend to it as l2 grows, and are 0 for l1 >= l1_max), and cut at ten times its lower end.

Nothing is proven of weights: `suffice.globally.surfaces` does that, whatever they are. A journal holds them, and what
F was evaluated to be; what follows from them is worked out again.
"""

from __future__ import annotations

import heapq
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array, frozen
from suffice.evaluation import Evaluation
from suffice.globally import homotopy
from suffice.globally.models import CertifiableFold, folds_of, minimised
from suffice.globally.paths import PenaltyBox, foreseen
from suffice.globally.surfaces import LossSurface, part_of, together, unknown
from suffice.journal.answers import Journal, request_key
from suffice.search.bilevel import BilevelProblem
from suffice.solvers.certificate import Certificate
from suffice.solvers.solution import Outcome, Solution

CUT = 16.0
BEYOND = 10.0  # where a cell without an upper end is cut, times its lower end
SHARE = 0.02  # of epsilon: how well F is to be known at centres
TIGHT = 0.1  # of epsilon: what a cell's slack may be, relative to F, for all to be known of it
INSIDE = 1e-3  # of the way from an end to the centre
ROUGH = 0.1  # of F: the slack of a cell that is looked at
SHRUNK, SHRINKS = 0.75, 12  # r from try to try, and how often
FARTHER, NEARER = 1.2, 1.0  # times the latest r/c: where tries begin, and what c counts on
BOXES = 16  # on either side of a look, at most, by weights that are foretold
NARROWEST = 1e-9  # of its upper end: a cell this narrow is not cut any more


@dataclass(frozen=True, eq=False)
class Cell:
    """Parameters between `low` and `high`, in the user's units, and what is proven of F for all of them."""

    low: Array
    high: Array
    lower: float
    upper: float
    surface: LossSurface = field(repr=False)
    solved: bool = False  # whether F was evaluated at its own centre
    reach: float = 1.0  # r over c that was enough nearby

    @property
    def box(self) -> PenaltyBox:
        return PenaltyBox(self.low, self.high)

    @property
    def narrow(self) -> npt.NDArray[np.bool_]:
        """Which sides are not cut any more."""
        with np.errstate(invalid="ignore"):
            width = self.high - self.low
        return np.where(np.isinf(self.high), np.isinf(_beyond(self.low)), width <= NARROWEST * self.high)

    def holds(self, t: Array) -> bool:
        return bool(np.all((self.low <= t) & (t <= self.high)))

    def interval(self, t: Array) -> tuple[float, float]:
        """Where F is proven to lie at parameters t of the cell."""
        low, high = self.surface.interval(t)
        return max(low, self.lower), min(high, self.upper)

    def parts(self) -> Iterator[Cell]:
        """The cell in two: an infinite side is cut first, then the one that moves predictions most."""
        relief = np.where(self.narrow, -1.0, self.surface.relief)
        if not self.box.bounded:
            relief = np.where(self.narrow, -1.0, np.isinf(self.high))
        elif np.all(relief[0] == relief):  # nothing is known of them
            relief = np.log(self.high / np.maximum(self.low, NARROWEST * self.high))
        k = int(np.argmax(relief))
        low, high = float(self.low[k]), float(self.high[k])
        cut = float(_beyond(low)) if math.isinf(high) else max(math.sqrt(low) * math.sqrt(high), high / CUT)
        for ends in ((low, cut), (cut, high)):
            below, above = self.low.copy(), self.high.copy()
            below[k], above[k] = ends
            yield self.known_by(self.surface, PenaltyBox(below, above))

    def known_by(self, by: LossSurface, box: PenaltyBox, **changes: Any) -> Cell:
        """A box inside, with what a surface proves of it."""
        lower, upper = max(by.least(box), self.lower), min(by.most(box), self.upper)
        return replace(self, low=box.low, high=box.high, lower=lower, upper=upper, **{"solved": False, **changes})


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


Starts = Sequence[Array] | None  # of every fold: where to solve from; None: from 0


@dataclass
class BranchAndBound:
    """Branch and bound under way. F itself is evaluated, with a proof of its own, at centres that look better than all
    before, and once before anything else if nothing is known."""

    problem: BilevelProblem
    epsilon: float
    best: Evaluation | None = None
    journal: Journal | None = None
    folds: list[CertifiableFold] = field(init=False)
    evaluations: int = 0
    work: float = 0.0
    began: float = field(default_factory=time.monotonic)
    heap: list[tuple[float, int, Cell, Starts]] = field(default_factory=list, init=False)
    _known: homotopy.Paths | None = field(default=None, init=False)
    _order: Iterator[int] = field(default_factory=count, init=False)

    def __post_init__(self) -> None:
        self.folds = folds_of(self.problem)
        low, high = np.array(list(self.problem.space.ranges.values()), dtype=np.float64).T
        box = PenaltyBox(low, high)
        whole = Cell(low, high, 0.0, math.inf, unknown(box))
        if homotopy.linear(self.folds) and box.bounded:
            self._known = homotopy.paths(self.folds, float(low[0]), float(high[0]))
            self.work += sum(map(len, self._known))
            for part, surface in homotopy.cells(self._known, float(low[0]), float(high[0])):
                self._push(whole.known_by(surface, part, surface=surface), None)
        else:
            self._push(whole, None)
        if self.best is None:
            self._evaluate(within_reach(box).centre, [np.zeros(fold.design.shape[1]) for fold in self.folds])

    @property
    def upper(self) -> float:
        """U."""
        return math.inf if self.best is None else self.best.interval[1]

    @property
    def lower(self) -> float:
        """L."""
        return min(self.heap[0][0], self.upper)

    @property
    def done(self) -> bool:
        cell = self.heap[0][2]
        return relative(self.lower, self.upper) <= self.epsilon or (cell.solved and bool(cell.narrow.all()))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Cells that together are the box, in order of their bounds."""
        return tuple(cell for _, _, cell, _ in sorted(self.heap, key=lambda item: item[:2]))

    @property
    def progress(self) -> Progress:
        seconds = time.monotonic() - self.began
        return Progress(self.evaluations, self.work, seconds, self.lower, self.upper, len(self.heap))

    def step(self) -> None:
        """Look at the cell with the least bound, or cut it where that was done."""
        _, _, cell, starts = heapq.heappop(self.heap)
        swept = len(cell.low) == 1 and cell.box.bounded and not cell.narrow[0]
        if cell.solved and swept and cell.surface.slack > TIGHT * self.epsilon * cell.lower:
            self._sweep(cell, starts)
            return
        if cell.solved:
            for part in cell.parts():
                self._push(part, starts)
            return
        if starts is None and self._known is not None:
            starts = homotopy.weights(self._known, cell.box)
        if cell.surface.slack <= TIGHT * self.epsilon * cell.lower:
            self._settle(cell, starts)
        elif swept:
            self._sweep(cell, starts)
        else:
            self._look(cell, starts)

    def _settle(self, cell: Cell, starts: Starts) -> None:
        """F where it is least in a cell of which all is known: no look at it could tell more. At an end, which is often
        a kink and hard to prove anything at, a little inside."""
        box = within_reach(cell.box)
        t = cell.surface.best(box)
        t += INSIDE * (box.centre - t)
        self._evaluate(t, self._minimised(t, starts))
        self._push(replace(cell, solved=True), starts)

    def _look(self, cell: Cell, starts: Starts) -> None:
        """What follows for a cell from weights at its centre."""
        box = cell.box
        found = self._minimised(box.centre if box.bounded else None, starts)
        surface = together([part_of(fold, w, box) for fold, w in zip(self.folds, found, strict=True)], box)
        if box.bounded:
            cost = sum(fold.cost(w) for fold, w in zip(self.folds, found, strict=True))
            if cost < (1.0 - SHARE * self.epsilon) * self.upper:
                self._evaluate(box.centre, found)
        better = surface.slack < cell.surface.slack or surface.least(box) > cell.lower
        own = replace(surface if better else cell.surface, relief=surface.relief)
        self._push(cell.known_by(surface, box, surface=own, solved=True), found if box.bounded else None)

    def _sweep(self, cell: Cell, starts: Starts) -> None:
        """What follows for a cell of one parameter from weights at c, and cells of what is left."""
        low, high = float(cell.low[0]), float(cell.high[0])
        c, found = float(cell.surface.centre[0]), starts
        if not cell.solved or found is None:
            c = max(high / (1.0 + NEARER * cell.reach), float(cell.box.centre[0]))
            found = self._minimised(np.array([c]), starts)
            if sum(map(CertifiableFold.cost, self.folds, found)) < (1.0 - SHARE * self.epsilon) * self.upper:
                self._evaluate(np.array([c]), found)
        near, surface, least, tight = cell.box, cell.surface, cell.lower, TIGHT * self.epsilon
        r = min(FARTHER * cell.reach * c, max(c - low, high - c), c)
        for _ in range(SHRINKS):
            ends = low if r >= c - low else c - r, high if r >= high - c else c + r  # c - (c - low) may not be low
            near = PenaltyBox(np.array([ends[0]]), np.array([ends[1]]))
            box = PenaltyBox(np.minimum(near.low, c - r), np.maximum(near.high, c + r))
            surface = together([part_of(fold, w, box) for fold, w in zip(self.folds, found, strict=True)], box)
            least = max(surface.least(near), cell.lower)
            enough = surface.slack <= (tight if cell.solved else max(ROUGH, tight)) * least
            if enough or least >= (1.0 - self.epsilon) * self.upper:
                break
            r = high - c if SHRUNK * r < high - c < r else SHRUNK * r
        known = surface.slack <= tight * least
        self._push(cell.known_by(surface, near, surface=surface, solved=not known, reach=r / c), found)
        for end, other, step in ((float(near.low[0]), low, -r), (float(near.high[0]), high, r)):
            if end != other:
                self._beside(cell, end, other, step, c, found)

    def _beside(self, cell: Cell, end: float, other: float, r: float, c: float, found: Sequence[Array]) -> None:
        """Cells from one end of what is known by weights at c to the other end of a cell: by weights that the path
        through them foretells, r at a time, for as long as enough follows from these, and what is left."""
        at, tight = np.array([c]), TIGHT * self.epsilon
        for _ in range(BOXES):
            to = other if abs(other - end) <= FARTHER * abs(r) else end + r
            box = PenaltyBox(np.array([min(end, to)]), np.array([max(end, to)]))
            told = [foreseen(fold, w, at, box.centre) for fold, w in zip(self.folds, found, strict=True)]
            surface = together([part_of(fold, w, box) for fold, w in zip(self.folds, told, strict=True)], box)
            least = max(surface.least(box), cell.lower)
            if not (surface.slack <= max(ROUGH, tight) * least or least >= (1.0 - self.epsilon) * self.upper):
                break
            self._push(cell.known_by(surface, box, surface=surface, reach=abs(r) / c), told)
            if to == other:
                return
            end = to
        left = PenaltyBox(np.array([min(end, other)]), np.array([max(end, other)]))
        self._push(cell.known_by(cell.surface, left, reach=abs(r) / c), found)

    def _minimised(self, t: Array | None, starts: Starts) -> list[Array]:
        """Weights of all folds at parameters t, zeros without any; it counts as an evaluation."""
        self.evaluations += 1
        begun = [np.zeros(fold.design.shape[1]) for fold in self.folds] if starts is None else list(starts)
        if t is None:
            return begun

        def make() -> tuple[Any, ...]:
            pairs = zip(self.folds, begun, strict=True)
            made = [minimised(fold, float(fold.B[0] @ t), float(fold.B[1] @ t), w) for fold, w in pairs]
            return tuple((steps, np.flatnonzero(w), w[w != 0.0]) for w, steps in made)

        key = blake2b(t.tobytes() + b"".join(w.tobytes() for w in begun), digest_size=12).hexdigest()
        found = []
        for w, (steps, S, values) in zip(begun, self._answered(key, "weights", tuple, make), strict=True):
            self.work += steps
            found.append(np.zeros_like(w))
            found[-1][S] = values
        return found

    def _evaluate(self, t: Array, weights: Sequence[Array]) -> None:
        """F itself, at parameters t that look better than all before."""
        space = self.problem.space
        theta = space.theta(dict(zip(space.names, t.tolist(), strict=True)))
        size = self.upper if math.isfinite(self.upper) else 1.0
        within = SHARE * self.epsilon * math.sqrt(size / len(self.folds))
        starts = [Solution(frozen(w), Certificate(math.inf, "none"), 0, Outcome.STEPS) for w in weights]
        warm = Evaluation(theta, np.zeros(1), np.full(1, np.inf), solutions=starts)
        key, evaluate = request_key("cell", theta, within, warm), self.problem.evaluate
        made = self._answered(key, "cell", Evaluation, lambda: evaluate(theta, within=within, warm=warm))
        self.work += float(made.work)
        if made.failure is None and made.interval[1] < self.upper:
            self.best = made

    def _answered(self, key: str, purpose: str, kind: type, make: Callable[[], Any]) -> Any:
        """What is made, or what the journal knows of it, if there is one."""
        if self.journal is None:
            return make()
        known = self.journal.take(key, kind)
        return self.journal.keep(key, purpose, make()) if known is None else known

    def _push(self, cell: Cell, starts: Starts) -> None:
        heapq.heappush(self.heap, (cell.lower, next(self._order), cell, starts))


def _beyond(low: npt.ArrayLike) -> Array:
    """Where sides without an upper end are cut; infinite beyond the range of floats."""
    with np.errstate(over="ignore"):
        return np.where(np.asarray(low) > 0.0, BEYOND * np.asarray(low), 1.0)


def within_reach(box: PenaltyBox) -> PenaltyBox:
    """What is to be had of a box with floats, or all of a bounded one."""
    ends = np.minimum(_beyond(box.low), sys.float_info.max)
    return PenaltyBox(box.low, np.where(np.isinf(box.high), ends, box.high))
