"""The two halves of a lower-level problem: smooth terms f and terms g with a cheap prox."""

from suffice.terms.blocks import RowBlocks
from suffice.terms.design import row_folds
from suffice.terms.families import BINOMIAL, GAMMA, Binomial, Gamma, NegativeBinomial, Tweedie, tweedie
from suffice.terms.fused import Fused
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
from suffice.terms.structure import BoxL1, Positive, SparseGroup

__all__ = [
    "BINOMIAL",
    "GAMMA",
    "HUBER",
    "L1",
    "LOGISTIC",
    "POISSON",
    "SQUARED",
    "SQUARED_HINGE",
    "Binomial",
    "Box",
    "BoxL1",
    "ElasticNet",
    "Fused",
    "Gamma",
    "Group",
    "Huber",
    "LinearModel",
    "Logistic",
    "MarginLoss",
    "NegativeBinomial",
    "NonNegative",
    "Poisson",
    "Positive",
    "Prox",
    "RowBlocks",
    "Smooth",
    "SparseGroup",
    "Squared",
    "SquaredHinge",
    "Tweedie",
    "WeightedL1",
    "Zero",
    "row_folds",
    "tweedie",
]
