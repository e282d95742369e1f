"""The front end for scikit-learn: `SufficeSearchCV` tunes the penalties of linear estimators by cross-validation."""

from suffice.sklearn._search import SufficeSearchCV
from suffice.sklearn.adapters import Adapter, Fold, register_adapter

__all__ = ["Adapter", "Fold", "SufficeSearchCV", "register_adapter"]
