r"""One fold of a linear model as a lower-level problem, in units of the mean over its samples:

    Phi(w) = sum_i a_i psi(x_i . w + b, y_i) + (l2/2) ||w||^2 + l1 ||w||_1,        a_i = s_i / sum(s).

Three kinds of intercept b:

- `none`:   b = 0;
- `free`:   not penalised. For squares it is eliminated by centring X and y, which is exact but for the rounding of the
  centred data; for any other psi, for sparse X, and where X is to be taken as it is, it is minimised out
  (`suffice.models.intercept`; for Huber's loss together with its scale, `suffice.models.concomitant`). It is never
  penalised "a little";
- `column`: a column of X like the others, constant and penalised: liblinear's.

l2 = 0 leaves no strong convexity. A solution is proven where the data supply the curvature (`suffice.prove.verified`),
which is so for nearly every pure l1 penalty; elsewhere nothing is. Huber's model with its scale, which cannot be
verified, and the multinomial, which has no single minimiser more often, are solved with l2 = FLOOR L in place of 0, L
the Lipschitz constant without penalties: what is tuned and certified is that elastic net. It moves the objective's
minimum by at most (l2/2) ||w||^2, w any minimiser without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from suffice.arrays import Array, frozen, host, like
from suffice.lazy import cached_property
from suffice.models.concomitant import ConcomitantHuber
from suffice.models.intercept import Intercepted
from suffice.models.linear import LinearModel
from suffice.models.margin_losses import Bending, Kinked, MarginLoss, Squared
from suffice.problems.linear import penalised
from suffice.protocols import conforms
from suffice.prove.held_out import HeldOut
from suffice.rows.design import Design
from suffice.sklearn.scores import SCORES
from suffice.solvers.newton_hessian import NewtonHessian
from suffice.solvers.problem import Composite

FLOOR = 1e-7
SMALL = 1 << 24  # bytes: a sparse matrix that takes no more than that as a dense one is solved faster as such

Intercept = Literal["none", "free", "column"]


@dataclass(frozen=True, eq=False)
class Shared:
    """Rows less `shift` that several folds have in common, or that live on a device; those that a fold holds out have a
    weight of 0 there."""

    X: Any
    shift: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.X.shape)


@dataclass(frozen=True)
class Concomitant:
    """Stands for Huber's loss with its scale minimised out."""

    epsilon: float


class LinearFold:
    """A fold as a lower-level problem, for targets y that psi understands; `scaling` is the constant of the column.
    Dense rows with a free intercept are centred, unless the problem has to be that of X to the last bit; so are sparse
    rows that take no more than SMALL as dense ones. `Shared` rows are taken as they are."""

    def __init__(
        self,
        X: Any,
        y: Array,
        psi: MarginLoss | Concomitant,
        sample_weight: Array,
        intercept: Intercept,
        scaling: float = 1.0,
        centre: bool = True,
    ) -> None:
        self.psi, self.kind, self.scaling = psi, intercept, scaling
        shared = X if isinstance(X, Shared) else None
        X, centre = (X, centre) if shared is None else (shared.X, False)
        self.dense = not sp.issparse(X) or (centre and 8 * math.prod(X.shape) <= SMALL)
        self.centred = centre and intercept == "free" and self.dense
        X = self._as_array(X)
        self.total = float(sample_weight.sum())
        self.columns = int(X.shape[1])
        self.shift = self.rest = np.zeros(self.columns)
        self.y_shift = self.y_rest = 0.0
        a = sample_weight / self.total
        if self.centred:
            # A mean far from zero is rounded more coarsely than data vary around it: the rest is taken off next.
            self.shift = a @ X
            rows = np.ascontiguousarray(X - self.shift)
            self.rest = a @ rows
            rows -= self.rest
        else:
            rows = self._rows(X)
        if shared is not None:
            self.shift = shared.shift
        if isinstance(psi, Squared) and intercept == "free" and (self.centred or shared is not None):
            self.y_shift = float(a @ y)
            self.y_rest = float(a @ (y - self.y_shift))
        self.minimised_out = intercept == "free" and not (self.centred and isinstance(psi, Squared))
        self.design = Design.of(rows, sample_weight)
        if self.minimised_out:
            self.design = self.design.with_weights_here()
        self.y = like(frozen(self._targets(y)), self.design.weights)
        if self.minimised_out:
            model = self._model(0.0)
            _ = isinstance(model, Intercepted) and model.at_zero  # raises where there is no finite intercept

    def _as_array(self, X: Any) -> Any:
        """Sparse rows of a fold that is small as a dense one."""
        return X.toarray() if self.dense and sp.issparse(X) else X

    def _rows(self, X: Any) -> Any:
        """Rows as the fold sees them: relative to the training mean, or with the intercept's column."""
        if isinstance(X, Shared):
            return X.X
        X = self._as_array(X)
        if self.kind == "column":
            column = np.full((X.shape[0], 1), self.scaling)
            return sp.hstack([X, sp.csr_array(column)], format="csr") if sp.issparse(X) else np.hstack([X, column])
        if self.centred:
            rows = np.ascontiguousarray(X - self.shift)
            rows -= self.rest
            return rows
        return X

    def _targets(self, y: Array) -> Array:
        return y - self.y_shift - self.y_rest

    def _model(self, l2: float) -> LinearModel | Intercepted | ConcomitantHuber:
        if isinstance(self.psi, Concomitant):
            return ConcomitantHuber(self.design, self.y, self.psi.epsilon, self.minimised_out, l2)
        return (Intercepted if self.minimised_out else LinearModel)(self.design, self.y, self.psi, l2)

    @property
    def unpenalised(self) -> LinearModel | Intercepted | ConcomitantHuber:
        """The loss alone."""
        return self._model(0.0)

    @property
    def solver(self) -> str | NewtonHessian:
        return NewtonHessian() if isinstance(self.psi, Concomitant) else "auto"

    @property
    def plain(self) -> bool:
        """Whether there is nothing but a loss of margins and the two penalties."""
        return not isinstance(self.psi, Concomitant)

    @cached_property
    def l2_floor(self) -> float:
        """FLOOR L; where psi'' has no bound, L is that of w = 0."""
        curvature = 1.0 if isinstance(self.psi, Concomitant) else self.psi.curvature
        if math.isinf(curvature):
            model = self._model(0.0)
            C = model.row_curvature(model.image(np.zeros(self.design.shape[1])))  # type: ignore[union-attr]
            a = host(self.design.weights)
            curvature = float(np.max(C[a > 0.0] / a[a > 0.0]))
        return max(FLOOR * curvature * self.design.squared_norm, 1e-300)

    @property
    def l2_in_place_of_none(self) -> float:
        """What l2 = 0 is solved with: 0 itself, where that can be verified."""
        return 0.0 if conforms(self.psi, Bending | Kinked) else self.l2_floor

    @cached_property
    def l1_max(self) -> float:
        """The smallest l1 for which w = 0 is the solution."""
        return float(np.max(np.abs(self._model(0.0).gradient(np.zeros(self.design.shape[1])))))

    def at(self, *, l1: float | Array, l2: float | Array) -> Composite:
        """The problem at fixed penalties, one for all columns or one each."""
        return penalised(self._model, l1, l2, self.l2_in_place_of_none, self.design.shape[1])

    def held_out(self, X: Any, y: Array, sample_weight: Array, scoring: str, folds: int) -> HeldOut:
        """This fold's part of minus the mean score (r2: of 1 - r2) over `folds` folds."""
        score, v = SCORES[scoring], sample_weight / sample_weight.sum()
        assert score.phi is not None
        share = 1.0 / folds / score.unit(y, v)
        train = self._model(0.0) if self.minimised_out else None
        assert not isinstance(train, LinearModel)
        return HeldOut(Design.of(self._rows(X), sample_weight), self._targets(y), score.phi, share, train)

    def coefficients(self, w: Array) -> tuple[Array, float]:
        """w and the intercept of the data as they were given."""
        if self.kind == "column":
            return w[:-1], float(w[-1] * self.scaling)
        b = self.y_shift + self.y_rest
        model = self._model(0.0)
        if self.minimised_out and not isinstance(model, LinearModel):
            b += model.intercept(model.image(w))[0]
        return w, b - float(self.shift @ w) - float(self.rest @ w)

    def outliers(self, w: Array) -> tuple[float, npt.NDArray[np.bool_]]:
        """Huber's scale s at w, and which rows have residuals beyond epsilon s."""
        model = self._model(0.0)
        assert isinstance(model, ConcomitantHuber)
        image = model.image(w)
        b, s = model.scale(image)
        return s, np.abs(image + b - self.y) > model.epsilon * s
