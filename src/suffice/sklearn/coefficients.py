r"""The coefficient table of a search: in original units, per standard deviation, and what is proven of each.

With w_j the coefficient as the model sees its column, t_j the standard deviation of that column over the training rows
(as the model weighs them), and u_j what a scaler before the model has divided the column by (1 without one):

    coef = w_j / u_j,        coef_standardised = w_j t_j,        radius and se in the units of coef.

Scalers are those of scikit-learn that divide each column by a number, alone, in a pipeline or as a part of a
`ColumnTransformer`; a step that selects columns keeps their units, any other makes columns of its own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted

from suffice.arrays import EPS, Array
from suffice.sklearn._coefficient_proofs import MINUS, OPEN, PLUS, ZERO
from suffice.sklearn._report_data import feature_names, final_estimator, output_names
from suffice.sklearn.target import fitted_inside

ABOUT_SE = (
    "sandwich standard errors of the penalised estimate at this l2, for models without an l1 penalty: how much it "
    "varies between samples, not how far the ridge pulls it towards zero, nor what tuning adds"
)
MOST_ROWS = 500  # of what a report and --json hold

Data = dict[str, Any]


def columns_of(search: Any) -> Data:
    """The columns of the table, outputs one after the other; `output` is None where there is one only."""
    proofs, coef = _proofs(search), np.atleast_2d(np.asarray(final_estimator(search).coef_, dtype=np.float64))
    outputs, features = coef.shape
    units, kept = divided_by(search, features), np.flatnonzero(_features(search, features))
    names = np.array(feature_names(search, features), dtype=object)
    of = np.array(output_names(search, outputs), dtype=object)
    if outputs > 1 and not any(of):
        of = np.array([str(k) for k in range(outputs)], dtype=object)
    blur = np.where(units == 1.0, 0.0, 2.0 * EPS * np.abs(coef / units))  # of the division
    why_open = np.where(coef == 0.0, "its gradient is too near to l1", "it is too near to zero")
    found = {
        "name": np.tile(names[kept], outputs),
        "output": np.repeat(of, len(kept)) if outputs > 1 else None,
        "coef": coef / units,
        "coef_standardised": coef * proofs.spread,
        "proven": proofs.proven,
        "radius": proofs.radius / units * (1.0 + 4.0 * EPS) + blur,
        "se": proofs.se / units,
        "why": np.where(proofs.proven == OPEN, why_open, ""),
    }
    return {name: one if np.ndim(one) != 2 else one[:, kept].ravel() for name, one in found.items()}


def frame(search: Any) -> Any:
    """`search.coefficients()`."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("coefficients() returns a table of pandas: pip install pandas") from error
    from suffice.sklearn.influence import ranges

    found, left = columns_of(search), ranges(search)
    made = pd.DataFrame({name: one for name, one in found.items() if one is not None})
    kept = np.flatnonzero(_features(search, final_estimator(search).coef_.shape[-1]))
    for name in ("low", "high", "selected"):
        made[name] = np.nan if left is None else left[name][kept]
    made.attrs |= {"se": ABOUT_SE, "models": 0 if left is None else left["models"]}
    return made


def proven_of(search: Any) -> Any:
    """What is proven of each coefficient of the exact model."""
    return _proofs(search).proven.ravel()


def summary(search: Any) -> Data:
    """The same for JSON, the largest first, with counts of all."""
    found = columns_of(search)
    known = ~np.isnan(found["coef_standardised"])
    sizes: Array = np.abs(np.where(known, found["coef_standardised"], found["coef"]))
    order: Any = np.argsort(-sizes, kind="stable")[:MOST_ROWS]
    proven = found["proven"]
    return {
        "count": len(proven),
        "nonzero": int(np.count_nonzero(found["coef"])),
        **{name: int(np.isin(proven, these).sum()) for name, these in _KINDS.items()},
        "rows": {name: None if one is None else _plain(one[order]) for name, one in found.items()},
    }


def _plain(values: Array) -> list[Any]:
    """For JSON, which has no word for what is not finite."""
    return [None if isinstance(one, float) and not math.isfinite(one) else one for one in values.tolist()]


_KINDS = {"proven_signs": (PLUS, MINUS), "proven_zero": (ZERO,), "open": (OPEN,)}


def proven(found: Data) -> str:
    """What is proven, in words, of a `summary`."""
    words = {"proven_signs": "signs are proven", "proven_zero": "are proven to be zero", "open": "are open"}
    one = {"proven_signs": "sign is proven", "proven_zero": "is proven to be zero", "open": "is open"}
    told = ((found[name], one if found[name] == 1 else words, name) for name in words if found[name])
    return ", ".join(f"{count:,} {text[name]}" for count, text, name in told)


def _proofs(search: Any) -> Any:
    check_is_fitted(search, "best_penalties_")
    if not hasattr(search, "best_estimator_"):
        name = type(search).__name__
        raise AttributeError(f"{name}(refit={search.refit!r}) has no best_estimator_, and so no coefficients")
    return search._proofs


def _features(search: Any, count: int) -> Any:
    """Which columns have a coefficient: not offsets, exposures and the like."""
    columns = getattr(final_estimator(search), "_columns", None)
    return np.ones(count, dtype=np.bool_) if columns is None else np.isin(np.arange(count), columns.features)


def divided_by(search: Any, count: int) -> Array:
    """u of the module's text, for each of so many columns."""
    whole = fitted_inside(search.best_estimator_)
    found = None
    if isinstance(whole, Pipeline):
        for _, step in whole.steps[:-1]:
            found = _units_after(step, found)
    return np.ones(count) if found is None or len(found) != count else found


def _units_after(step: Any, before: Array | None) -> Array | None:
    """u of the columns that a fitted step puts out, from that of those it takes; None: all are 1, however many."""
    if isinstance(step, Pipeline):
        for _, one in step.steps:
            before = _units_after(one, before)
        return before
    if step is None or isinstance(step, str):  # "passthrough"
        return before
    if isinstance(step, StandardScaler | RobustScaler | MaxAbsScaler | MinMaxScaler):
        scale = 1.0 if step.scale_ is None else np.asarray(step.scale_, dtype=np.float64)
        scale = 1.0 / scale if isinstance(step, MinMaxScaler) else scale
        return np.broadcast_to(scale * (1.0 if before is None else before), (step.n_features_in_,))
    if hasattr(step, "get_support"):
        return None if before is None else before[step.get_support()]
    if isinstance(step, ColumnTransformer):
        whole = np.ones(max((place.stop for place in step.output_indices_.values()), default=0))
        for name, part, _ in step.transformers_:
            own = None if isinstance(part, str) else _units_after(part, None)
            if own is not None:
                whole[step.output_indices_[name]] = own
        return whole
    return None
