"""The front end for scikit-learn: `SufficeSearchCV` tunes the penalties of linear estimators, and the strength and the
kernel of kernel machines, by cross-validation; `ElasticNetGLM` is an estimator that fits to a proven accuracy."""

from suffice.sklearn import foreign, kernel_adapters, table  # noqa: F401 (make estimators known)
from suffice.sklearn._search import SufficeSearchCV
from suffice.sklearn.adapters import Adapter, Fold, register_adapter
from suffice.sklearn.glm import ElasticNetGLM
from suffice.sklearn.objectives import CannotTellError, Objective, register_objective

__all__ = [
    "Adapter",
    "CannotTellError",
    "ElasticNetGLM",
    "Fold",
    "Objective",
    "SufficeSearchCV",
    "register_adapter",
    "register_objective",
]
