"""The front end for scikit-learn: `SufficeSearchCV` tunes the penalties of linear estimators by cross-validation;
`ElasticNetGLM` is an estimator that fits to a proven accuracy.

    adapters, estimators, table, glm   what is known of estimators: one row each, from penalties to words and back
    certify                            how far a fitted estimator is from what it minimises
    folds, _structure, splits, target  rows, weights of them and a model as a lower-level problem
    penalties, scores                  what is searched, in whose words, and which score is optimised
    _search, _preparation              what is asked for, and what follows from it before a search
    _sketch, _starting_points          where to begin
    _penalty_search, _recorded         the search, its notes and its end
    _final_fit                         the final model, and what else is left behind
    left_out                           models without a row, or a group of rows
    report, _report_data, _page, measures             what people read of it
"""

from suffice.sklearn import table  # noqa: F401 (makes estimators known)
from suffice.sklearn._search import SufficeSearchCV
from suffice.sklearn.adapters import Adapter, CannotTellError, Fold, Objective, register_adapter, register_objective
from suffice.sklearn.glm import ElasticNetGLM

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
