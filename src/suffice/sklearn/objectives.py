r"""What a fitted estimator minimises, read from the estimator itself.

    sum_i a_i psi(x_i . w + b, y_i) + 1/2 sum_j l2_j w_j^2 + sum_j l1_j |w_j|,      a_i = s_i / N,  N = sum of all s_i,

s the sample weights times class weights; `suffice.sklearn.table` has the objectives of all estimators in these units. A
reader is known by the class itself, never by a class it is derived from: a class derived from Lasso may minimise
anything (MultiTaskLasso does). What a reader does not know for certain it refuses, by `CannotTellError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.models.margin_losses import MarginLoss
from suffice.sklearn.adapters import READ, misunderstood, name_of, takes_weights
from suffice.sklearn.folds import Concomitant, Intercept, LinearFold, Softmax

SCORING = {"Squared": "neg_mean_squared_error", "Logistic": "neg_log_loss", "SquaredHinge": "neg_squared_hinge"}
SCORING |= {"Poisson": "neg_mean_poisson_deviance", "Concomitant": "neg_mean_squared_error"}
SCORING |= {"Gamma": "neg_mean_gamma_deviance"}
SCORING |= {"Huber": "neg_mean_squared_error"}


class CannotTellError(Exception):
    """Nothing can be said about a fitted estimator; the message says why."""


@dataclass(frozen=True, eq=False)
class Objective:
    """What a fitted linear model minimises, and the coefficients that it has found.

    `psi` is the loss of a margin (`suffice.terms.MarginLoss`), or None for the multinomial one; `l1` and `l2`, one for
    all weights or one each, belong to losses that are weighted to sum to 1. `targets` are y as psi takes it (-1 and 1,
    or numbers of classes), `weights` the s_i. The intercept is "free", "none", or a penalised "column" of `scaling`.
    """

    psi: MarginLoss | Concomitant | None
    l1: float | Array
    l2: float | Array
    coef: Array
    intercept: Any
    targets: Array
    weights: Array
    kind: Intercept = "free"
    scaling: float = 1.0

    @property
    def scoring(self) -> str:
        """The score that it is about."""
        return "neg_log_loss" if self.psi is None else SCORING[type(self.psi).__name__]

    def fold(self, X: Any) -> LinearFold:
        """The problem on these rows, to the last bit."""
        psi = Softmax(len(self.coef)) if self.psi is None else self.psi
        return LinearFold(X, self.targets, psi, self.weights, self.kind, self.scaling, centre=False)


Reader = Callable[[Any, Any, Array], Objective]

_READERS: dict[str, Reader] = {}


def register_objective(estimator_class: type, reader: Reader) -> None:
    """Make fitted estimators of this class known to `suffice.certify`. `reader(estimator, y, sample_weight)` returns
    the `Objective` that the estimator has minimised, or raises `CannotTellError`. Classes derived from it are not
    meant: they may have another objective."""
    if not isinstance(estimator_class, type):
        raise TypeError(f"estimator_class must be a class, got {estimator_class!r}")
    if not callable(reader):
        raise TypeError(f"reader must be callable, got {reader!r}")
    _READERS[name_of(estimator_class)] = reader


def objective_of(estimator: Any, y: Any, sample_weight: Array) -> Objective:
    """What this fitted estimator has minimised; `CannotTellError` if that is not known."""
    name = name_of(type(estimator))
    if name not in _READERS:
        raise CannotTellError(f"the objective of {name} is not known (register_objective makes it so)")
    strange = misunderstood(estimator)
    refuse(strange is not None, str(strange))
    weighted = np.any(sample_weight != 1.0) and name in READ and not takes_weights(estimator)
    refuse(weighted, f"{name} was fitted without sample_weight, which its fit does not take: leave it out")
    return _READERS[name](estimator, y, sample_weight)


def refuse(condition: Any, reason: str) -> None:
    """Raise `CannotTellError` where the condition holds."""
    if condition:
        raise CannotTellError(reason)
