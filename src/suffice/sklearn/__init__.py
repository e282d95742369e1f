"""The front end for scikit-learn: `SufficeSearchCV` tunes the penalties of linear estimators by cross-validation."""

from suffice.sklearn._adapters import Adapter, Fold, register_adapter
from suffice.sklearn._search import SufficeSearchCV

__all__ = ["Adapter", "Fold", "SufficeSearchCV", "register_adapter"]
