"""The front end for scikit-learn: `SufficeSearchCV` tunes the penalties of linear estimators by cross-validation, and
`ElasticNetGLM` is one of them that fits to a proven accuracy."""

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
