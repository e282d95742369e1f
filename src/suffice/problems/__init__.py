"""Ready-made lower-level problems: linear models (`linear`), with many hyperparameters (`many`), images (`imaging`)."""

from suffice.problems.imaging import Denoising, Reconstruction, SampledFourier
from suffice.problems.linear import (
    ElasticNet,
    ElasticNetHuber,
    ElasticNetLogistic,
    ElasticNetModel,
    ElasticNetPoisson,
    LowerLevel,
)
from suffice.problems.many import Grouped, SampleWeights
from suffice.terms.labels import signs

__all__ = [
    "Denoising",
    "ElasticNet",
    "ElasticNetHuber",
    "ElasticNetLogistic",
    "ElasticNetModel",
    "ElasticNetPoisson",
    "Grouped",
    "LowerLevel",
    "Reconstruction",
    "SampleWeights",
    "SampledFourier",
    "signs",
]
