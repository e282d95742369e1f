"""What training costs: multiplications with entries of X, whoever asks for them.

A product with X or X^T and k vectors is k times the stored entries of X. A Hessian of s columns and n rows is
n s (s + 1) / 2, the N x N matrix that takes its place where rows are fewer than columns N (N + 1) s / 2. Held-out rows
count like training rows, derivatives and verifications like steps of a solver. What does not touch X (factorisations,
a tuner's own arithmetic) is in the seconds. Norms of X, which are computed once before a run, are not counted.

`install()` patches the places in suffice where X is multiplied; it is meant for a benchmark's process and is never
undone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from suffice.models import cox, multinomial
from suffice.prove import factor, verified_rows
from suffice.rows import design, gram, memory
from suffice.solvers import quadratic


class Meter:
    """Multiplications so far, of this process."""

    def __init__(self) -> None:
        self.total = 0.0


METER = Meter()


def entries(X: Any) -> float:
    """The stored entries of a matrix."""
    return float(getattr(X, "nnz", math.prod(X.shape)))


def columns(V: Any) -> int:
    """How many vectors V holds."""
    return 1 if np.ndim(V) == 1 else math.prod(np.shape(V)[1:])


def install() -> None:
    """Count from now on; calling it again changes nothing."""
    if getattr(cox.CoxModel.hessian, "counted", False):  # the last of them
        return
    for adjoint in (memory.DenseAdjoint, memory.SparseAdjoint):
        _count(adjoint, "__call__", lambda self, r: entries(self.X) * columns(r))
    _count(design.Design, "margins", lambda self, w: entries(self.X) * columns(w))
    _count(memory.InMemory, "directions", lambda self, w: entries(self.X) * columns(w))

    _count(gram.Gram, "__call__", lambda job, block: _of_gram(np.count_nonzero(block["C"]), job.W))
    _count(verified_rows, "gram", lambda X, columns, scale, *_, **__: _of_gram(len(scale), columns))
    _count(factor.ProvenFactor, "_lengths", lambda self, rows: len(rows[0]) * len(self) * (len(self) + 1) / 2)

    N = lambda part: float(len(part.B))  # noqa: E731 (a symbol)
    _count(quadratic.Wide, "product", lambda self, v: 2.0 * self.B.size)
    _count(quadratic.Wide, "solver", lambda self, added=0.0: N(self) * (N(self) + 1) / 2 * self.B.shape[1])
    _count(quadratic.Wide, "on", lambda self, free: N(self) * len(free) * (len(free) + 1) / 2)
    _count(multinomial.Multinomial, "hessian", _of_softmax_hessian)
    _count(cox.CoxModel, "hessian", lambda self, m, W: self.design.shape[0] * len(W) * (len(W) + 1.0))


def _of_gram(rows: int, columns: Any) -> float:
    return rows * len(columns) * (len(columns) + 1) / 2


def _of_softmax_hessian(self: Any, image: Any, working: Any) -> float:
    return float(self.design.shape[0] * len(working) * (len(working) + 1) / 2)


def _count(owner: Any, name: str, cost: Callable[..., float]) -> None:
    original = getattr(owner, name)

    @wraps(original)
    def counting(*args: Any, **kwargs: Any) -> Any:
        METER.total += cost(*args, **kwargs)
        return original(*args, **kwargs)

    counting.counted = True  # type: ignore[attr-defined]
    setattr(owner, name, counting)
