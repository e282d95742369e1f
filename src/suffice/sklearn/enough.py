"""When a search has found enough: what is left to gain is small against what folds tell of F at all."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from suffice.arrays import Array
from suffice.evaluation import Evaluation

Tolerance = float | Literal["statistical"]

SHARE = 0.01  # of the standard error over folds: what a search for a statistical tolerance leaves alone,
LARGEST = 2e-4  # and of the loss, where that is less


def fold_losses(evaluation: Evaluation) -> Array:
    """The loss of every fold; F is their mean."""
    return evaluation.coarse**2 * len(evaluation.coarse)


def standard_error(evaluation: Evaluation) -> float:
    """That of F over folds; 0 where there is one fold only."""
    losses = fold_losses(evaluation)
    return error_of_mean(losses) if len(losses) > 1 else 0.0


def error_of_mean(losses: Array) -> float:
    """The standard error of the mean of two or more."""
    unit = 2.0 ** (math.frexp(float(np.max(np.abs(losses))))[1] - 1)  # squares of losses may leave the range of floats
    return unit * float(np.std(losses / unit, ddof=1)) / math.sqrt(len(losses))


def worth(evaluation: Evaluation, tolerance: Tolerance) -> float:
    """How accurate F is to be: a share of it, or of its standard error over folds where that is less than LARGEST."""
    if tolerance != "statistical":
        return tolerance * evaluation.cost
    error = standard_error(evaluation)
    return min(SHARE * error if error > 0.0 else math.inf, LARGEST * evaluation.cost)
