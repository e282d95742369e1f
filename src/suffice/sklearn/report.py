"""The report of a search: what it found, how it got there, and what its model looks like.

`collect` gathers plain data from a fitted `SufficeSearchCV` and its data; `page` makes one web page from them that
needs nothing else. In between the data may lie in a file: `page` checks what it is given, and refuses nonsense.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import sklearn

from suffice.plots import Trace
from suffice.sklearn import _drawn

FORMAT = "suffice search 1"
LOSSES = {  # what F is, in words
    "neg_brier_score": "Brier score",
    "neg_log_loss": "log loss",
    "neg_mean_squared_error": "mean squared error",
    "r2": "1 - R²",
    "neg_mean_poisson_deviance": "mean Poisson deviance",
    "neg_squared_hinge": "mean squared hinge",
}

Data = dict[str, Any]


def collect(
    search: Any, X: Any, y: Any, *, about: Mapping[str, Any], sample_weight: Any = None, groups: Any = None
) -> Data:
    """What a report shows of a fitted `SufficeSearchCV`, as plain data fit for JSON.

    X, y, `sample_weight` and `groups` are what it was fitted to. `about` is a dictionary of plain values (text,
    numbers, lists of them) that the report shows as they are, such as the name of the file; its entry "title", if there
    is one, is the title. The folds are made again for held-out predictions; where they cannot be the same, because cv
    shuffles without a seed, `comparison.same_folds` is False and the page says so.
    """
    import suffice

    about = _plain(about, "about")
    task = _drawn.Task(search, X, y, sample_weight, groups)
    held = task.held_out()
    made = search.cv_results_
    names = [name for name in ("l1", "l2") if f"penalty_{name}" in made]
    offset = 1.0 if search.optimised_scoring_ == "r2" else 0.0
    evaluations = [
        {
            "number": k + 1,
            "purpose": str(made["purpose"][k]),
            "point": [float(made[f"penalty_{name}"][k]) for name in names],
            "cost": offset - float(made["mean_test_score"][k]),
            "interval": [offset - float(made["test_score_high"][k]), offset - float(made["test_score_low"][k])],
            "asked": _finite(made["asked_error"][k]),
            "achieved": _finite(made["proved_error"][k]),
            "work": float(made["work"][k]),
        }
        for k in range(len(made["work"]))
    ]
    path = [search.result_.space.params(np.array(record.incumbent)) for record in search.result_.history]
    path = [point for k, point in enumerate(path) if k == 0 or point != path[k - 1]]
    return {
        "format": FORMAT,
        "about": about,
        "versions": {"suffice": suffice.__version__, "scikit-learn": sklearn.__version__, "numpy": np.__version__},
        "estimator": type(task.final).__name__,
        "steps": [] if task.before is None else [type(step).__name__ for _, step in task.before.steps],
        "samples": len(task.y),
        "features": int(getattr(search, "n_features_in_", 0)),
        "folds": int(search.n_splits_),
        "scoring": search.optimised_scoring_,
        "asked_scoring": _drawn._scoring_name(search.scoring) if search.surrogate_ else None,
        "policy": search.result_.policy,
        "best": {
            "params": {str(name): float(value) for name, value in search.best_params_.items()},
            "penalties": {name: float(value) for name, value in search.best_penalties_.items()},
            "l2_floor": float(search.l2_floor_),
            "score": float(search.best_score_),
            "interval": [float(end) for end in search.score_interval_],
            "evaluation": int(search.best_index_) + 1,
            "message": search.result_.message,
            "refit": search.refit,
        },
        "names": names,
        "evaluations": evaluations,
        "path": [[float(point[name]) for name in names] for point in path],
        "comparison": _drawn.comparison(task, held),
        "regularisation": _drawn.regularisation_path(task),
        "calibration": _drawn.calibration(held, task.classes),
        "coefficients": _drawn.coefficients(task),
    }


def trace(data: Data) -> Trace:
    """The evaluations of collected data as figures take them."""
    made = data["evaluations"]
    low, high = np.array([one["interval"] for one in made]).T
    asked, achieved = (
        np.array([math.inf if one[key] is None else one[key] for one in made]) for key in ("asked", "achieved")
    )
    return Trace(
        tuple(data["names"]),
        (True,) * len(data["names"]),
        np.array([one["point"] for one in made]),
        np.array([one["cost"] for one in made]),
        low,
        high,
        asked,
        achieved,
        np.array([one["work"] for one in made]),
        (np.array(data["path"]),) if data["path"] else (),
        np.array(made[data["best"]["evaluation"] - 1]["point"]),
        LOSSES.get(data["scoring"], f"minus {data['scoring']}"),
    )


def page(data: Data) -> str:
    """The report as one web page; needs plotly and matplotlib, the extra `plot`. Data that are not what `collect`
    returned, perhaps by way of a file, raise ValueError."""
    from suffice.sklearn import _page

    return _page.page(data)


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


def _plain(value: Any, where: str, depth: int = 0) -> Any:
    """`value` if it is plain, with numbers of NumPy as Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return _finite(value)
    if depth < 4 and isinstance(value, list | tuple):
        return [_plain(entry, f"{where}[{k}]", depth + 1) for k, entry in enumerate(value)]
    if depth < 4 and isinstance(value, Mapping):
        return {str(key): _plain(entry, f"{where}[{key!r}]", depth + 1) for key, entry in value.items()}
    raise TypeError(f"{where} must be plain data (text, numbers, lists, dictionaries), got {value!r}")
