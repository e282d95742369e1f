"""Ready-made lower-level problems, as functions of their parameters.

linear    models of one margin with l1 and l2, Cox's among them; penalties of groups of columns, or of weights
outputs   several classes, several targets
imaging   images by smoothed total variation
"""

from suffice.models.margin_losses import signs
from suffice.problems.imaging import Denoising, Reconstruction, SampledFourier
from suffice.problems.linear import (
    ElasticNet,
    ElasticNetBinomial,
    ElasticNetCox,
    ElasticNetGamma,
    ElasticNetHuber,
    ElasticNetLogistic,
    ElasticNetModel,
    ElasticNetNegativeBinomial,
    ElasticNetPoisson,
    ElasticNetTweedie,
    Grouped,
    LowerLevel,
)
from suffice.problems.outputs import ElasticNetMultinomial, MultiTaskElasticNet

__all__ = ["Denoising", "ElasticNet", "ElasticNetBinomial", "ElasticNetCox", "ElasticNetGamma", "ElasticNetHuber"]
__all__ += ["ElasticNetLogistic", "ElasticNetModel", "ElasticNetMultinomial", "ElasticNetNegativeBinomial"]
__all__ += ["ElasticNetPoisson", "ElasticNetTweedie", "Grouped", "LowerLevel", "MultiTaskElasticNet"]
__all__ += ["Reconstruction", "SampledFourier", "signs"]
