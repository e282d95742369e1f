"""Ready-made lower-level problems: linear models (`linear`), with many hyperparameters (`many`), images (`imaging`)."""

from suffice.models.labels import signs
from suffice.problems.families import (
    ElasticNetBinomial,
    ElasticNetGamma,
    ElasticNetNegativeBinomial,
    ElasticNetTweedie,
)
from suffice.problems.fused import FusedLasso
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
from suffice.problems.multinomial import ElasticNetMultinomial
from suffice.problems.survival import ElasticNetCox
from suffice.problems.targets import MultiTaskElasticNet

__all__ = [
    "Denoising",
    "ElasticNet",
    "ElasticNetBinomial",
    "ElasticNetCox",
    "ElasticNetGamma",
    "ElasticNetHuber",
    "ElasticNetLogistic",
    "ElasticNetModel",
    "ElasticNetMultinomial",
    "ElasticNetNegativeBinomial",
    "ElasticNetPoisson",
    "ElasticNetTweedie",
    "FusedLasso",
    "Grouped",
    "LowerLevel",
    "MultiTaskElasticNet",
    "Reconstruction",
    "SampleWeights",
    "SampledFourier",
    "signs",
]
