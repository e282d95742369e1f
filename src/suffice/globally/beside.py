r"""Branch and bound beside local searches from many starts.

The starts supply U, the least proven value of F, branch and bound supplies L <= min F and bounds for cells
(`suffice.globally.branch`). It makes as many evaluations as the starts have made together, after every turn, and
goes by what it has found itself: it is the same whatever the starts find, so that a run that is taken up has it as it
was. Then

- all starts end once L >= (1 - epsilon) U: none can bring more than epsilon U;
- a start ends whose trust region meets no cell that could hold as much: it looks where there is nothing to be found. It
  might have left that place later, so that this is no proof that it would have found nothing. The best start is never
  ended so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from suffice.arrays import Array
from suffice.globally.answers import searching
from suffice.globally.branch import BranchAndBound
from suffice.globally.models import folds_of
from suffice.search.bilevel import BilevelProblem

FOLDER = "global"


class Beside:
    """Branch and bound for a relative gap of `epsilon`; it goes on inside `kept_in` only."""

    def __init__(self, problem: BilevelProblem, epsilon: float) -> None:
        folds_of(problem)  # what cannot be certified is refused
        self.problem, self.epsilon = problem, epsilon
        self._search: BranchAndBound | None = None

    @contextmanager
    def kept_in(self, folder: str | os.PathLike[str] | None) -> Iterator[None]:
        """Evaluations that are made inside are in a journal, if there is a folder."""
        with searching(self.problem, self.epsilon, None if folder is None else Path(folder) / FOLDER) as self._search:
            yield

    @property
    def search(self) -> BranchAndBound:
        assert self._search is not None
        return self._search

    def advance(self, evaluations: int) -> None:
        """Go on until so many have been made, or nothing is left to be done."""
        while self.search.evaluations < evaluations and not self.search.done:
            with self.search.undone_by_interrupts():
                self.search.step()

    def suffices(self, upper: float) -> bool:
        """Whether nothing is better than a value of F by more than epsilon."""
        return self.search.lower >= (1.0 - self.epsilon) * upper

    def ruled_out(self, low: Array, high: Array, upper: float) -> bool:
        """Whether nothing in a box of thetas is."""
        box_low, box_high = (np.array(list(self.problem.space.params(theta).values())) for theta in (low, high))
        limit = (1.0 - self.epsilon) * upper
        met = (cell for cell in self.search.cells if np.all(cell.low <= box_high) and np.all(box_low <= cell.high))
        return all(cell.lower >= limit for cell in met)
