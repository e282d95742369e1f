"""The course of a search and its global certificate, as plain data of a report, and back from there as figures take
them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from suffice.arrays import Array
from suffice.globally.certificate import Landscape
from suffice.report.traces import Trace
from suffice.sklearn.scores import score_of

MOST_GAPS = 2000  # of a certificate's history

Data = dict[str, Any]


def course(search: Any) -> Data:
    """Every evaluation of a search and its incumbents; `evaluation` is the number of the best one."""
    check_is_fitted(search, "cv_results_")
    made = search.cv_results_
    names = searched(search)
    score = score_of(search.optimised_scoring_)
    evaluations = [
        {
            "number": k + 1,
            "purpose": str(made["purpose"][k]),
            "point": [made[f"penalty_{name}"][k] for name in names],
            "cost": score.offset - made["mean_test_score"][k],
            "interval": [score.offset - made[f"test_score_{end}"][k] for end in ("high", "low")],
            "asked": made["asked_error"][k],
            "achieved": made["proved_error"][k],
            "work": float(made["work"][k]),
        }
        for k in range(len(made["work"]))
    ]
    path = [search.result_.space.params(np.array(record.incumbent)) for record in search.result_.history]
    path = [point for k, point in enumerate(path) if k == 0 or point != path[k - 1]]
    return {
        "scoring": search.optimised_scoring_,
        "names": names,
        "evaluations": evaluations,
        "evaluation": search.best_index_ + 1,
        "path": [[point[name] for name in names] for point in path],
    }


def best(search: Any) -> Data:
    """What was found."""
    return {
        "params": search.best_params_,
        "penalties": search.best_penalties_,
        "l2_floor": search.l2_floor_,
        "score": search.best_score_,
        "interval": search.score_interval_,
        "message": search.result_.message,
        "refit": search.refit,
    }


def searched(search: Any) -> list[str]:
    """The names of the parameters searched."""
    return [key.removeprefix("penalty_") for key in search.cv_results_ if key.startswith("penalty_")]


def trace(data: Data) -> Trace:
    """A course as figures take it."""
    made = data["evaluations"]

    def column(key: str) -> Array:
        return np.array([math.inf if one[key] is None else one[key] for one in made], dtype=np.float64)

    ends = np.array([one["interval"] for one in made], dtype=np.float64)
    low, high = (np.where(np.isnan(end), none, end) for end, none in zip(ends.T, (-math.inf, math.inf), strict=True))
    return Trace(
        tuple(data["names"]),
        (True,) * len(data["names"]),
        np.array([one["point"] for one in made]),
        column("cost"),
        low,
        high,
        column("asked"),
        column("achieved"),
        column("work"),
        (np.array(data["path"]),) if data["path"] else (),
        np.array(made[data["evaluation"] - 1]["point"]),
        score_of(data["scoring"]).loss,
    )


def global_certificate(search: Any) -> Data:
    """Under "global", the proven surfaces of F over the space and how the gap was closed; nothing if no certificate was
    asked for."""
    made = getattr(search, "global_certificate_", None)
    if made is None:
        return {}
    drawn = made.landscape
    history = [[one.evaluations, one.gap] for one in made.history if math.isfinite(one.gap)]
    step = math.ceil(len(history) / MOST_GAPS) or 1
    found = {
        "epsilon": made.epsilon,
        "message": made.message,
        "evaluations": made.evaluations,
        "ranges": made.space.ranges,
        **{name: getattr(drawn, name) for name in ("names", "best", "lower", "upper", "cells", "line")},
        "history": [*history[:-1:step], *history[-1:]],
    }
    return {"global": found}


def landscape(found: Data) -> Landscape:
    """What pictures show of it."""
    line = np.array(found["line"], dtype=np.float64).reshape(-1, 3)
    line[:, 2] = np.where(np.isnan(line[:, 2]), math.inf, line[:, 2])
    cells = np.array(found["cells"], dtype=np.float64)
    return Landscape(tuple(found["names"]), np.array(found["best"]), found["lower"], found["upper"], cells, line)
