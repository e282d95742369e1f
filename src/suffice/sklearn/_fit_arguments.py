"""What `fit` is given: checked as scikit-learn checks it, and passed on by its rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, column_or_1d, validate_data

from suffice.arrays import Array
from suffice.models.cox import signed_times
from suffice.rows import given
from suffice.sklearn._rows import STEPS, prepares_rows
from suffice.sklearn._target import inside, transforms_target
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.penalties import split_pipeline

LARGEST_TARGET = 1e150  # the sum of squares of so many is finite


@dataclass(frozen=True)
class Routed:
    """Arguments of the final fit and of the splitter, and the sample weights among them."""

    fit: dict[str, Any]
    split: dict[str, Any]
    weight: Any


def routed(search: Any, params: dict[str, Any]) -> Routed:
    """Who gets what: by metadata routing where it is enabled, else `sample_weight` and `groups` by name."""
    estimator = inside(search.estimator)
    prefix = "" if not isinstance(estimator, Pipeline) else estimator.steps[-1][0] + "__"
    if get_config()["enable_metadata_routing"]:
        found = process_routing(search, "fit", **params)
        fit, split = dict(found.estimator.fit), dict(found.splitter.split)
        weights = [value for name, value in fit.items() if name.endswith("sample_weight")]
        return Routed(fit, split, weights[0] if weights else None)
    known = {"sample_weight", f"{prefix}sample_weight", "groups"}
    if unknown := set(params) - known:
        raise TypeError(f"fit takes {', '.join(sorted(known))}, got {', '.join(sorted(unknown))}")
    weight = params.get("sample_weight", params.get(f"{prefix}sample_weight"))
    fit = {} if weight is None else {f"{prefix}sample_weight": weight}
    return Routed(fit, {"groups": params.get("groups")}, weight)


def in_place(search: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """X where it is, if the models of a search take it there, and y on this machine."""
    return given.in_place(X, y, type(search).__name__, lambda: _why_here(search))


def _why_here(search: Any) -> str:
    """Why X has to be in main memory; nothing where rows are tuned in place."""
    final, before = split_pipeline(search.estimator)
    if not find_adapter(final).takes_blocks(final):
        return f"{final} needs it"
    if transforms_target(search.estimator):
        return "a transformed target needs it"
    if not prepares_rows(before):
        return f"steps before the estimator need it, but for {STEPS}"
    if search.device is not None:
        return f"device={search.device!r} needs it"
    return ""


def checked(search: Any, X: Any, y: Any, sample_weight: Any, several: bool = False) -> tuple[Any, Any, Array]:
    """X, y and the sample weights; a table stays one, so that steps before the estimator see its columns. `several`:
    whether y may have several columns."""
    if y is None:
        raise ValueError(f"This {type(search).__name__} estimator requires y to be passed, but the target y is None.")
    if getattr(getattr(y, "dtype", None), "names", None):
        y = signed_times(y)  # of survival: events and times
    labels = is_classifier(search.estimator)
    estimator = inside(search.estimator)
    y, sample_weight = given.here(y), given.here(sample_weight)
    shape = np.asarray(y).shape
    several = several and len(shape) == 2 and shape[1] > 1 and given.numbered(X)
    if not given.read_by_sklearn(X):
        X = given.checked_in_place(X, type(search).__name__)
        validate_data(search, X, skip_check_array=True)
        y = check_array(y, dtype=np.float64) if several else column_or_1d(y, warn=True)
        check_consistent_length(y, given.counted(X))
    elif isinstance(estimator, Pipeline) and len(estimator.steps) > 1:
        validate_data(search, X, skip_check_array=True)
        y = check_array(y, dtype=np.float64) if several else column_or_1d(y, warn=True)
    else:
        tables = hasattr(X, "columns")
        how = {"accept_sparse": ("csr", "csc"), "dtype": np.float64, "y_numeric": not labels, "multi_output": several}
        numbers, y = validate_data(search, X, y, **how)
        X = X if tables else numbers
    if labels:
        check_classification_targets(y)
    else:
        y = np.asarray(y, dtype=np.float64)
        largest = float(np.max(np.abs(y), initial=0.0))
        if largest > LARGEST_TARGET:
            raise ValueError(
                f"y must not hold numbers beyond {LARGEST_TARGET:g}, whose squares are no longer finite, got "
                f"{largest!r}: divide it by a constant"
            )
    X, y = given.indexed(X, y)
    weight = _check_sample_weight(
        sample_weight, np.broadcast_to(0.0, (len(y), 1)), dtype=np.float64, ensure_non_negative=True
    )
    return X, y, weight
