"""The front end for scikit-learn: `SufficeSearchCV` tunes the penalties of linear estimators by cross-validation;
`ElasticNetGLM` is an estimator that fits to a proven accuracy.

    adapters, estimators, table, glm   what is known of estimators: one row each, from penalties to words and back
    certify                            how far a fitted estimator is from what it minimises
    survival                           baseline hazards and survival curves of Cox's model, Kaplan and Meier's
    folds, _structure, splits, target  rows, weights of them and a model as a lower-level problem
    penalties, scores                  what is searched, in whose words, and which score is optimised
    _search, _preparation, _delegated  what is asked for, and what follows from it before a search
    _sketch, _quadratics, _starting_points, _l2_first   where to begin, and with which penalty
    _penalty_search, _recorded         the search, its notes and its end
    _final_fit                         the final model, and what else is left behind
    _coefficient_proofs, coefficients  what is proven of each coefficient, and the table of them
    relaxed_lasso                      less shrinkage, over the same folds
    update, dealt_rows                rows that come and go, and whether penalties are still good
    nested                             the honest score of tuning
    left_out, _left_out_search         models without a row, or a group of rows, and a search whose folds these are
    _held_out_models, intervals        models that have not seen rows, and intervals of predictions by them
    influence                          what each row does to coefficients and predictions
    report, _report_data, measures                    what people read of it
    _page, _page_sections                             and its page
"""

from suffice.sklearn import table  # noqa: F401 (makes estimators known)
from suffice.sklearn._search import SufficeSearchCV
from suffice.sklearn.adapters import Adapter, CannotTellError, Fold, Objective, register_adapter, register_objective
from suffice.sklearn.glm import ElasticNetGLM
from suffice.sklearn.nested import NestedScore, nested_score
from suffice.sklearn.relaxed_lasso import Relaxed, relaxed

__all__ = ["Adapter", "CannotTellError", "ElasticNetGLM", "Fold", "NestedScore", "Objective", "Relaxed"]
__all__ += ["SufficeSearchCV", "nested_score", "register_adapter", "register_objective", "relaxed"]
