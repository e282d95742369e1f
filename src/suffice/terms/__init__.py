"""The two halves of a lower-level problem: smooth terms f and terms g with a cheap prox."""

from suffice.models.families import (
    BINOMIAL,
    GAMMA,
    POISSON,
    Binomial,
    Gamma,
    NegativeBinomial,
    Poisson,
    Tweedie,
    tweedie,
)
from suffice.models.linear import LinearModel
from suffice.models.margin_losses import (
    HUBER,
    LOGISTIC,
    SQUARED,
    SQUARED_HINGE,
    Huber,
    Logistic,
    MarginLoss,
    Squared,
    SquaredHinge,
)
from suffice.models.smooth import Smooth
from suffice.penalties.groups import Group, SparseGroup
from suffice.penalties.prox import L1, Box, BoxL1, ElasticNet, NonNegative, Positive, Prox, WeightedL1, Zero
from suffice.rows.blocks import RowBlocks
from suffice.rows.design import row_folds

__all__ = ["BINOMIAL", "GAMMA", "HUBER", "L1", "LOGISTIC", "POISSON", "SQUARED", "SQUARED_HINGE", "Binomial", "Box"]
__all__ += ["BoxL1", "ElasticNet", "Gamma", "Group", "Huber", "LinearModel", "Logistic", "MarginLoss"]
__all__ += ["NegativeBinomial", "NonNegative", "Poisson", "Positive", "Prox", "RowBlocks", "Smooth", "SparseGroup"]
__all__ += ["Squared", "SquaredHinge", "Tweedie", "WeightedL1", "Zero", "row_folds", "tweedie"]
