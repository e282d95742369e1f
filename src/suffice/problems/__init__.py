"""Ready-made lower-level problems: linear models (`linear`) and images (`imaging`)."""

from suffice.problems.imaging import Denoising, Reconstruction, SampledFourier
from suffice.problems.linear import (
    ElasticNet,
    ElasticNetHuber,
    ElasticNetLogistic,
    ElasticNetModel,
    ElasticNetPoisson,
    LowerLevel,
)
from suffice.terms.labels import signs

__all__ = [
    "Denoising",
    "ElasticNet",
    "ElasticNetHuber",
    "ElasticNetLogistic",
    "ElasticNetModel",
    "ElasticNetPoisson",
    "LowerLevel",
    "Reconstruction",
    "SampledFourier",
    "signs",
]
