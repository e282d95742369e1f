"""The two halves of a lower-level problem: smooth terms f and terms g with a cheap prox."""

from suffice.terms.blocks import RowBlocks
from suffice.terms.prox import L1, Box, ElasticNet, Group, NonNegative, Prox, WeightedL1, Zero
from suffice.terms.smooth import HUBER, LOGISTIC, POISSON, SQUARED, Huber, LinearModel, MarginLoss, Poisson, Smooth

__all__ = [
    "HUBER",
    "L1",
    "LOGISTIC",
    "POISSON",
    "SQUARED",
    "Box",
    "ElasticNet",
    "Group",
    "Huber",
    "LinearModel",
    "MarginLoss",
    "NonNegative",
    "Poisson",
    "Prox",
    "RowBlocks",
    "Smooth",
    "WeightedL1",
    "Zero",
]
