"""The two halves of a lower-level problem: smooth terms f and terms g with a cheap prox."""

from suffice.terms.blocks import RowBlocks
from suffice.terms.prox import L1, Box, ElasticNet, Group, NonNegative, Prox, Zero
from suffice.terms.smooth import HUBER, LOGISTIC, SQUARED, Huber, LinearModel, MarginLoss, Smooth

__all__ = [
    "HUBER",
    "L1",
    "LOGISTIC",
    "SQUARED",
    "Box",
    "ElasticNet",
    "Group",
    "Huber",
    "LinearModel",
    "MarginLoss",
    "NonNegative",
    "Prox",
    "RowBlocks",
    "Smooth",
    "Zero",
]
