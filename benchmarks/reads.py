"""How much of a table models take: passes and reads.

    passes    multiplications over N d: N d for every linear function that is multiplied with X or with its transpose,
              and n s (s + 1)/2 for a matrix X^T C X of n rows and s columns
    reads     entries of X that are read over N d: a product with several functions reads X once, and so does a job on
              rows (a survey, a gradient and what bounds its rounding)

Those of certified models count and those of sketches; steps that prepare rows (scikit-learn's) do not. Rows in main
memory only; of sparse ones zeros count, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from suffice.rows.design import Design
from suffice.rows.gram import DenseBlocks
from suffice.rows.memory import DenseAdjoint, InMemory, SparseAdjoint
from suffice.solvers.unproven import MarginProblem


@dataclass
class Taken:
    """Multiplications with X, and entries of it that are read."""

    products: float = 0.0
    entries: float = 0.0

    def add(self, X: Any, W: Any, reads: bool = True) -> None:
        """A product with a vector, or with several."""
        size = float(np.prod(X.shape))
        self.products += size * (1 if np.ndim(W) < 2 else min(W.shape))
        self.entries += size * reads

    def square(self, rows: int, columns: int) -> None:
        """A matrix X^T C X."""
        self.products += rows * columns * (columns + 1) / 2

    def shares(self, N: int, d: int) -> tuple[float, float]:
        """Passes and reads."""
        return self.products / (N * d), self.entries / (N * d)


class Counted(np.ndarray):
    """A matrix whose products are counted."""

    taken: Any = None

    def __array_finalize__(self, other: Any) -> None:
        self.taken = getattr(other, "taken", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        if ufunc is np.matmul and self.taken is not None:
            self.taken.add(self, next(one for one in inputs if one is not self))
        plain = [np.asarray(one) if isinstance(one, Counted) else one for one in inputs]
        return getattr(ufunc, method)(*plain, **more)


@contextmanager
def counted() -> Iterator[Taken]:
    """Count what is taken meanwhile."""
    taken = Taken()

    def through(of: type, name: str, count: Callable[..., None]) -> Any:
        real = getattr(of, name)

        def call(self: Any, *given: Any, **more: Any) -> Any:
            count(self, *given)
            return real(self, *given, **more)

        return patch.object(of, name, call)

    def block(self: DenseBlocks, rows: Any, *scale: Any) -> None:
        count = len(range(*rows.indices(self.X.shape[0])) if isinstance(rows, slice) else rows)
        taken.entries += count * len(self.columns)
        if scale:  # of a matrix X^T C X
            taken.square(count, len(self.columns))

    def run(self: InMemory, job: Any, *given: Any, real: Any = InMemory.run, **more: Any) -> Any:
        before = taken.entries
        found = real(self, job, *given, **more)
        taken.entries = min(taken.entries, before + float(np.prod(self.shape)))
        return found

    def made(self: Any, X: Any, *given: Any, real: Any = MarginProblem.__init__) -> None:
        if isinstance(X, np.ndarray):
            X = X.view(Counted)
            X.taken = taken
        real(self, X, *given)

    with ExitStack() as stack:
        for of, name, count in (
            (InMemory, "directions", lambda self, W: W.any() and taken.add(self.X, W)),
            (Design, "margins", lambda self, W: taken.add(self.X, W)),
            (DenseAdjoint, "__call__", lambda self, r: taken.add(self.X, r)),
            (SparseAdjoint, "__call__", lambda self, r: taken.add(self.X, r)),
            (DenseBlocks, "__call__", block),
            (MarginProblem, "_step", lambda self, W, C, *_: taken.square(len(C), len(W))),
        ):  # fmt: skip
            stack.enter_context(through(of, name, count))
        stack.enter_context(patch.object(InMemory, "run", run))
        stack.enter_context(patch.object(MarginProblem, "__init__", made))
        yield taken
