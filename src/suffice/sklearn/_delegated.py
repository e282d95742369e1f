"""Methods of a search that are those of its best estimator, where that has them."""

from __future__ import annotations

from typing import Any

from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from suffice.rows.given import here
from suffice.sklearn.penalties import split_pipeline


def survives(search: Any) -> bool:
    return getattr(split_pipeline(search.estimator)[0], "family", None) == "cox"


def of_the_best(name: str) -> Any:
    """The method of this name of `best_estimator_`, where that has one."""

    def has(search: Any) -> bool:
        if hasattr(search, "best_estimator_"):
            getattr(search.best_estimator_, name)
        elif search.refit is False:
            raise AttributeError(f"{type(search).__name__}(refit=False) has no {name}: there is no best_estimator_")
        else:
            getattr(search.estimator, name)
        return True

    def method(self: Any, X: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.best_estimator_, name)(here(X))

    method.__name__, method.__qualname__ = name, f"SufficeSearchCV.{name}"
    method.__doc__ = f"`best_estimator_.{name}`."
    return available_if(has)(method)
