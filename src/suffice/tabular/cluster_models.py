r"""The models of a table on a cluster, by the names of the command line, with intercepts that have no penalty.

    one margin        min over b of  sum_i a_i psi(x_i . w + b, y_i) + (l2/2) ||w||^2 + l1 ||w||_1
    several classes   the same with W x_i + b, and softmax (`suffice.problems.ElasticNetMultinomial`)

A `Training` is one of these, of the training rows of a fold: it knows its problem at given penalties, its loss on
held-out rows, and the coefficients and intercepts, one row for every output, that scikit-learn's estimator is given.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from suffice.arrays import Array
from suffice.models.families import GAMMA, NegativeBinomial, Tweedie
from suffice.models.margin_losses import LOGISTIC, POISSON, SQUARED, MarginLoss
from suffice.models.row_intercept import RowsIntercepted
from suffice.models.row_softmax import RowsMultinomial
from suffice.problems.linear import ElasticNetModel, LowerLevel, penalised
from suffice.problems.multinomial import ElasticNetMultinomial
from suffice.prove.held_out import DevianceScore, LogScore, Phi, SquaredScore
from suffice.prove.held_out_rows import HeldOutRows
from suffice.prove.held_out_softmax_rows import HeldOutSoftmaxRows
from suffice.rows.design import Design
from suffice.solvers.problem import Composite

LOSSES: dict[str, MarginLoss] = {
    "logistic": LOGISTIC,
    "logistic-l2": LOGISTIC,
    "elastic-net": SQUARED,
    "ridge": SQUARED,
    "poisson": POISSON,
    "gamma": GAMMA,
    "tweedie": Tweedie(1.5),
    "negative-binomial": NegativeBinomial(1.0),
}
OTHERS = {
    "logistic-l1": "what is proven there needs an l2, take logistic",
    "lasso": "what is proven there needs an l2, take elastic-net",
    "svm": "the intercept of its loss cannot be minimised out",
    "huber": "its scale depends on all residuals at once",
    "cox": "its rows depend on each other",
}  # why these models are not for a cluster
SCORES: dict[Any, Phi] = {LOGISTIC: LogScore(), SQUARED: SquaredScore()}


class Training(LowerLevel, Protocol):
    """A model of rows of a design."""

    @property
    def design(self) -> Design: ...

    @property
    def l1_max(self) -> float:
        """The smallest l1 for which nothing but intercepts is left."""
        ...

    @property
    def steepness(self) -> float:
        """The largest second derivative of its loss, or 1 where that has no bound."""
        ...

    def held_out(self, design: Design, share: float) -> HeldOutRows | HeldOutSoftmaxRows:
        """So many times the mean loss on other rows of the same matrix."""
        ...

    def fitted(self, w: Array) -> tuple[Array, Array]:
        """Coefficients, outputs x columns, and intercepts."""
        ...


def training(design: Design, y: Any, model: str, classes: int) -> Training:
    """The model of this name; `classes` is their number, 0 for numbers."""
    return ClassesFold(design, y) if classes > 2 else Fold(design, y, LOSSES[model])


class Fold(ElasticNetModel):
    """One margin for every row."""

    @property
    def steepness(self) -> float:
        return min(self.loss.curvature, 1.0)

    def _model(self, l2: float) -> RowsIntercepted:
        return RowsIntercepted(self.design, self.y, self.loss, l2)

    def at(self, *, l1: Any = 0.0, l2: Any) -> Composite:
        return penalised(self._model, l1, l2, 0.0, self.size)

    def held_out(self, design: Design, share: float) -> HeldOutRows:
        score = SCORES.get(self.loss) or DevianceScore(self.loss)
        return HeldOutRows(design, self.y, score, share, self._model(0.0))

    def fitted(self, w: Array) -> tuple[Array, Array]:
        model = self._model(0.0)
        return w[None, :].copy(), np.array([model.intercept(model.image(w))[0]])


class ClassesFold(ElasticNetMultinomial):
    """Several classes."""

    steepness = 0.5

    def __init__(self, design: Design, y: Any) -> None:
        super().__init__(design, y, intercept=True)

    def at(self, **params: float) -> Composite:
        return super().at(**{"l1": 0.0, **params})

    def _rows(self) -> RowsMultinomial:
        model = self.model()
        assert isinstance(model, RowsMultinomial)
        return model

    def held_out(self, design: Design, share: float) -> HeldOutSoftmaxRows:
        return HeldOutSoftmaxRows(design, self.onehot, "neg_log_loss", share, self._rows())

    def fitted(self, w: Array) -> tuple[Array, Array]:
        model = self._rows()
        return w.reshape(model.classes, -1).copy(), np.array(model.shift(model.image(w))[0])
