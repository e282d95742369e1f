"""The report of a search: what it found, how it got there, and what its model looks like.

`collect` gathers plain data from a fitted `SufficeSearchCV` and its data; `page` makes one web page from them that
needs nothing else. In between the data may lie in a file, whose digest `suffice.report.folder` checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import sklearn

from suffice.sklearn import _page_sections, _report_data, coefficients
from suffice.sklearn._page import FORMAT, page

__all__ = ["collect", "page"]

Data = dict[str, Any]


def collect(
    search: Any,
    X: Any,
    y: Any,
    *,
    about: Mapping[str, Any],
    sample_weight: Any = None,
    groups: Any = None,
    inverse: Callable[[Any], Any] | None = None,
    labels: Sequence[Any] | None = None,
    until: float = math.inf,
    stage: Callable[[str], object] = lambda what: None,
) -> Data:
    """What a report shows of a fitted `SufficeSearchCV`, as plain data fit for JSON.

    X, y, `sample_weight` and `groups` are what it was fitted to. `about` is a dictionary of plain values (text,
    numbers, lists of them) that the report shows as they are, such as the name of the file; its entry "title", if there
    is one, is the title. The folds are made again for held-out predictions; where they cannot be the same, because cv
    shuffles without a seed, `measures.same_folds` is False and the page says so.

    `inverse` takes targets and predictions to the units that measures are to be in (np.exp, if y is a logarithm),
    `labels` are names for the classes. The models that figures need besides those of the search take at most half as
    many steps as the search did, and are left out when `time.monotonic()` has come to `until`; `stage` is told what is
    being done.
    """
    import suffice

    about = _plain(about, "about", 4)
    task = _report_data.FittedSearch(search, X, y, sample_weight, groups)
    stage("held-out rows")
    held = task.held_out()
    stage("models with scikit-learn's defaults")
    default = task.held_out_with_defaults(until)
    stage("the regularisation path")
    path = _report_data.regularisation_path(task, until)
    stage("figures")
    found = {
        "format": FORMAT,
        "about": about,
        "versions": {"suffice": suffice.__version__, "scikit-learn": sklearn.__version__, "numpy": np.__version__},
        "estimator": type(task.final).__name__,
        "steps": [] if task.before is None else [type(step).__name__ for _, step in task.before.steps],
        "samples": len(task.y),
        "features": getattr(search, "n_features_in_", 0),
        "folds": search.n_splits_,
        "asked_scoring": search.asked_scoring_ if search.surrogate_ else None,
        "policy": search.result_.policy,
        "best": _best(search),
        "scoring": search.optimised_scoring_,
        "search": asdict(_report_data.course(search)),
        "purposes": search.cv_results_["purpose"],
        "measures": _report_data.measures(task, held, default, inverse, labels),
        "regularisation": path,
        "calibration": _report_data.calibration(held, labels),
        "coefficients": _report_data.coefficients(search, task),
        "table": coefficients.summary(search) if hasattr(search, "best_estimator_") else None,
        "global": _global(getattr(search, "global_certificate_", None)),
        **_page_sections.collect(search),
    }
    return dict(_plain(found, "data", 8))


def _best(search: Any) -> Data:
    names = ("params", "penalties", "score")
    best = {name: getattr(search, f"best_{name}_") for name in names} | {"interval": search.optimised_interval_}
    return {**best, "l2_floor": search.l2_floor_, "message": search.result_.message, "refit": search.refit}


def _global(found: Any) -> Data | None:
    """What pictures show of a global certificate, where one was asked for."""
    if found is None:
        return None
    told = {name: getattr(found, name) for name in ("epsilon", "message", "evaluations")}
    return {**told, "ranges": found.space.ranges, "landscape": asdict(found.landscape)}


def _plain(value: Any, where: str, depth: int) -> Any:
    """`value` if it is plain, to this depth, with numbers and arrays of NumPy as Python's; None for what is not finite,
    for which JSON has no word."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, str):  # names of files may hold bytes that are not UTF-8
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth and isinstance(value, list | tuple):
        return [_plain(entry, f"{where}[{k}]", depth - 1) for k, entry in enumerate(value)]
    if depth and isinstance(value, Mapping):
        return {str(key): _plain(entry, f"{where}[{key!r}]", depth - 1) for key, entry in value.items()}
    raise TypeError(f"{where} must be plain data (text, numbers, lists, dictionaries), got {value!r}")
