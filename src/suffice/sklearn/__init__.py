"""The front end for scikit-learn: `SufficeSearchCV` tunes the penalties of linear estimators by cross-validation."""

from suffice.sklearn._search import SufficeSearchCV
from suffice.sklearn.adapters import Adapter, Fold, register_adapter
from suffice.sklearn.objectives import CannotTellError, Objective, register_objective

__all__ = [
    "Adapter",
    "CannotTellError",
    "Fold",
    "Objective",
    "SufficeSearchCV",
    "register_adapter",
    "register_objective",
]
