"""Ready-made lower-level problems: linear models (`linear`) and images (`imaging`)."""

from suffice.problems.imaging import Denoising, Reconstruction, SampledFourier
from suffice.problems.linear import ElasticNet, ElasticNetHuber, ElasticNetLogistic, LowerLevel, signs

__all__ = [
    "Denoising",
    "ElasticNet",
    "ElasticNetHuber",
    "ElasticNetLogistic",
    "LowerLevel",
    "Reconstruction",
    "SampledFourier",
    "signs",
]
