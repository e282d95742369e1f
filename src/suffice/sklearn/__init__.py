"""The front end for scikit-learn: `SufficeSearchCV` tunes the penalties of linear estimators, and the strength and the
kernel of kernel machines, by cross-validation; `ElasticNetGLM` is an estimator that fits to a proven accuracy.

    estimators, table, foreign, glm    what is known of estimators: one row each, read in both directions
    adapters, objectives, certify      from penalties to an estimator's words, and back: tuning and certifying
    folds, _structure, splits          rows, weights of them and a model as a lower-level problem
    _rows, _devices                    rows that stay where they are: in blocks, on a cluster, on a device
    penalties, _words, scores          what is searched, in whose words, and which score is optimised
    kernel_adapters, _kernel_*         machines whose kernel is tuned along with their strength
    _search, _penalty_search, _s*      the search from its first look to its last evaluation
    measures, report, _report_*, _page what people read of it
"""

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
