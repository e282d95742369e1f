r"""Losses of many linear models that share an X of torch, where their margins are: column j of a matrix is model j.

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

from suffice.arrays import EPS, like
from suffice.models.intercept import MOST_STEPS, Intercepted
from suffice.models.linear import LinearModel, LossModel
from suffice.models.margin_losses import MarginLoss, slope_and_bend

ROUNDED = 4.0 * EPS  # of sum a (|psi'| + psi'' |m|): what a sum of slopes is rounded by, roughly
CLOSED = 4.0 * EPS  # of b: a bracket of this width


def are_alike(models: Sequence[Any]) -> bool:
    """Whether these are linear models of one X and one psi, all of them with an intercept or none."""
    first = models[0]
    return type(first) in (LinearModel, Intercepted) and all(
        type(model) is type(first) and model.design.X is first.design.X and model.loss == first.loss for model in models
    )


@dataclass(frozen=True)
class ColumnLosses:
    """psi of all rows with the columns' weights a and targets Y; `origins` are the intercepts for M = 0, None without
    intercepts. One column of weights stands for all where they are the same."""

    loss: MarginLoss
    a: Any
    Y: Any
    origins: Any

    @classmethod
    def of(cls, models: Sequence[LossModel]) -> ColumnLosses:
        """Those of models that are alike."""
        torch, first = _torch(), models[0]
        X = first.design.X

        def columns(vectors: list[Any]) -> Any:
            return torch.stack([like(vector, X) for vector in vectors], dim=1)

        one = all(model.design is first.design for model in models)
        a = columns([model.design.weights for model in models[: 1 if one else None]])
        zeros = [model.at_zero for model in models if isinstance(model, Intercepted)]
        origins = like(np.array(zeros), X) if zeros else None
        return cls(first.loss, a, columns([model.y for model in models]), origins)

    def only(self, kept: list[int]) -> ColumnLosses:
        """Some of the columns."""
        a = self.a if self.a.shape[1] == 1 else self.a[:, kept]
        return replace(self, a=a, Y=self.Y[:, kept], origins=None if self.origins is None else self.origins[kept])

    def values(self, m: Any) -> Any:
        """The sum of psi of every column, for margins that are shifted."""
        return (self.loss.value(m, self.Y) * self.a).sum(0)

    def slopes(self, m: Any) -> Any:
        """a psi' of every row."""
        return self.loss.derivative(m, self.Y) * self.a

    def curvature(self, m: Any) -> Any:
        """a psi'' of every row."""
        return self.loss.curvature_between(m, m, self.Y) * self.a

    def shifted(self, M: Any) -> Any:
        """Margins plus their intercepts."""
        return M if self.origins is None else M + self.intercepts(M)

    def intercepts(self, M: Any) -> Any:
        """b of every column at these margins."""
        torch, counts = _torch(), self.a > 0.0
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


def _torch() -> Any:
    return importlib.import_module("torch")
