"""The two halves of a lower-level problem: smooth terms f and terms g with a cheap prox."""

from suffice.terms.blocks import RowBlocks
from suffice.terms.linear import LinearModel
from suffice.terms.margin_losses import (
    HUBER,
    LOGISTIC,
    POISSON,
    SQUARED,
    SQUARED_HINGE,
    Huber,
    Logistic,
    MarginLoss,
    Poisson,
    Squared,
    SquaredHinge,
)
from suffice.terms.prox import L1, Box, ElasticNet, Group, NonNegative, Prox, WeightedL1, Zero
from suffice.terms.smooth import Smooth

__all__ = [
    "HUBER",
    "L1",
    "LOGISTIC",
    "POISSON",
    "SQUARED",
    "SQUARED_HINGE",
    "Box",
    "ElasticNet",
    "Group",
    "Huber",
    "LinearModel",
    "Logistic",
    "MarginLoss",
    "NonNegative",
    "Poisson",
    "Prox",
    "RowBlocks",
    "Smooth",
    "Squared",
    "SquaredHinge",
    "WeightedL1",
    "Zero",
]
