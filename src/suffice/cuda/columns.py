r"""Many linear models that share X, where X is: column j of every matrix is model j.

    loss_j(M) = min_b sum_i a_ij psi(m_ij + b, y_ij),        b = 0 where no intercept is minimised out.

a_ij are the sample weights of model j, which may be another fold's than those of its neighbour. Intercepts are found as
in `suffice.models.intercept`, for all columns at a time: s(b) = sum_i a_i psi'(m_i + b) increases with b, and its zero
lies within max |m_i| of that for M = 0. Newton's steps go there inside a bracket that every s halves or better; where
|s| is no more than its rounding, or the bracket has closed, b stays. Such b make steps and derivatives. Proofs rest on
those of `suffice.models.intercept`, with their errors.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, host, like, namespace
from suffice.models.intercept import MOST_STEPS, Intercepted
from suffice.models.linear import LinearModel, LossModel
from suffice.models.margin_losses import MarginLoss, slope_and_bend
from suffice.rows.design import Design
from suffice.solvers.problem import Composite

ROUNDED = 4.0 * EPS  # of sum a (|psi'| + psi'' |m|): what a sum of slopes is rounded by, roughly
CLOSED = 4.0 * EPS  # of b: a bracket of this width


def are_alike(models: Sequence[Any]) -> bool:
    """Whether these are linear models of one X and one psi, without offsets, all of them with an intercept or none."""
    first = models[0]
    return type(first) in (LinearModel, Intercepted) and all(
        type(model) is type(first)
        and model.design.X is first.design.X
        and model.loss == first.loss
        and model.offset is None
        for model in models
    )


@dataclass(frozen=True)
class ColumnLosses:
    """psi of all rows with the columns' weights a and targets Y; `origins` are the intercepts for M = 0, None without
    intercepts. One column of weights stands for all where they are the same."""

    loss: MarginLoss
    a: Any
    Y: Any
    origins: Any = None

    @classmethod
    def of(cls, models: Sequence[LossModel]) -> ColumnLosses:
        """Those of models that are alike."""
        first, X = models[0], models[0].design.X

        def columns(vectors: list[Any]) -> Any:
            there = [like(vector, X) for vector in vectors]
            return namespace(there[0]).stack(there, axis=1)

        one = all(model.design is first.design for model in models)
        a = columns([model.design.weights for model in models[: 1 if one else None]])
        zeros = [model.at_zero for model in models if isinstance(model, Intercepted)]
        origins = like(np.array(zeros), X) if zeros else None
        return cls(first.loss, a, columns([model.y for model in models]), origins)

    def only(self, kept: list[int]) -> ColumnLosses:
        """Some of the columns."""
        a = self.a if self.a.shape[1] == 1 else self.a[:, kept]
        origins = None if self.origins is None else self.origins[kept]
        return replace(self, a=a, Y=self.Y[:, kept], origins=origins)

    def values(self, m: Any) -> Any:
        """The sum of psi of every column, for margins that are shifted."""
        return (self.loss.value(m, self.Y) * self.a).sum(0)

    def slopes(self, m: Any) -> Any:
        """a psi' of every row."""
        slopes = self.loss.derivative(m, self.Y)
        slopes *= self.a
        return slopes

    def curvature(self, m: Any) -> Any:
        """a psi'' of every row."""
        return self.loss.curvature_between(m, m, self.Y) * self.a

    def shifted(self, M: Any) -> Any:
        """Margins plus their intercepts."""
        return M if self.origins is None else M + self.intercepts(M)

    def intercepts(self, M: Any) -> Any:
        """b of every column at these margins."""
        torch, counts = importlib.import_module("torch"), self.a > 0.0
        low = self.origins - torch.where(counts, M, -torch.inf).amax(0)
        high = self.origins - torch.where(counts, M, torch.inf).amin(0)
        b, done = self.origins - (self.a * M).sum(0), torch.zeros_like(self.origins, dtype=torch.bool)
        for _ in range(MOST_STEPS):
            b = torch.where(done, b, torch.minimum(torch.maximum(b, low), high))
            m = M + b
            slopes, bends = (self.a * one for one in slope_and_bend(self.loss, m, self.Y))
            s, bend = slopes.sum(0), bends.sum(0)
            noise = ROUNDED * (slopes.abs() + bends * m.abs()).sum(0)
            done = done | (s.abs() <= noise) | (high - low <= CLOSED * (low.abs() + high.abs()))
            if bool(done.all()):
                break
            low, high = torch.where(s < 0.0, b, low), torch.where(s < 0.0, high, b)
            goal = b - s / bend
            inside = (low < goal) & (goal < high)
            b = torch.where(done, b, torch.where(inside, goal, 0.5 * (low + high)))
        return b


@dataclass(frozen=True)
class ColumnProblems:
    """What stays the same while columns move: X, and their losses, penalties and constants."""

    problems: tuple[Composite, ...]
    design: Design
    losses: ColumnLosses
    l1: Any
    l2: Any
    mu: Any

    @classmethod
    def of(cls, problems: Sequence[Composite]) -> ColumnProblems:
        models: list[Any] = [problem.smooth for problem in problems]
        penalties: list[Any] = [problem.prox for problem in problems]
        canonical, design = [problem.canonical for problem in problems], models[0].design
        numbers = [one.l1 for one in penalties], [one.l2 for one in models], [one.mu for one in canonical]
        columns = (like(np.array(one, dtype=np.float64), design.X) for one in numbers)
        return cls(tuple(problems), design, ColumnLosses.of(models), *columns)

    def only(self, kept: list[int]) -> ColumnProblems:
        """Some of the columns."""
        numbers = {name: getattr(self, name)[kept] for name in ("l1", "l2", "mu")}
        problems = tuple(self.problems[j] for j in kept)
        return replace(self, problems=problems, losses=self.losses.only(kept), **numbers)

    def gradients(self, W: Any, m: Any) -> Any:
        """Those of f, for margins that are shifted."""
        return self.design.pull(self.losses.slopes(m)) + self.l2 * W

    def gaps(self, Z: Any, G: Any) -> Any:
        """The radii of the gap at Z, where gradients are G, but for rounding (`suffice.solvers.certificate`)."""
        xp, V = namespace(Z), self.mu * Z - G
        p = xp.minimum(xp.maximum(V, -self.l1), self.l1)
        B = xp.sum(self.l1 * xp.abs(Z) - Z * p, axis=0)
        D_squared = xp.sum((Z - (V - p) / self.mu) ** 2, axis=0)
        return 0.5 * xp.sqrt(D_squared) + xp.sqrt(B / self.mu + 0.25 * D_squared)


def column(matrix: Any, j: int) -> Array:
    """Column j on the host, a copy that nobody writes to."""
    column = np.ascontiguousarray(host(matrix[:, j]))
    column = column.copy() if column.base is not None else column
    column.setflags(write=False)
    return column
