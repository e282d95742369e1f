"""Intervals of the predictions for new files, and sets of classes: CV+ by the models of a run's folds.

A run keeps these models, with what they say of the rows that they have not seen, in a file of its own beside the model
(`intervals.skops`): it needs neither the training table, which may be elsewhere when it predicts, nor another fit. The
jackknife+ would take a fit for every row, since medians and levels are those of the rows that a model has seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from suffice.sklearn.intervals import Conformal, check_coverage
from suffice.tabular.entries import TableError
from suffice.tabular.model_file import blamed, load_file, save
from suffice.tabular.problem import TableProblem
from suffice.tabular.targets import plain

KEPT = ("intervals.skops", "intervals.joblib")
APART = " | "  # classes of a set


def keep(search: Any, problem: TableProblem, folder: Path) -> Conformal | None:
    """Made of a search, and kept in its folder; None where there are no intervals."""
    if problem.model in ("cox", "svm"):
        return None
    try:
        found: Conformal = search._training.conformal(search, "cv+", "fixed")
    except (TypeError, ValueError):  # folds by time, rows in blocks
        return None
    if not found.folds:  # single rows
        return None
    classes = found.classes if problem.labels is None else np.array(problem.labels)
    (file, _), failures = save({**found.plain(), "classes": classes, "log": problem.log_target}, folder, KEPT)
    if file is None:
        raise OSError(failures[-1])
    return found


def columns(folder: Path, X: Any, coverage: float, *, trust: bool = False) -> tuple[list[str], list[Any], str]:
    """Names and columns of intervals, or of sets, for rows that the model's frame has, and what is promised."""
    check_coverage(coverage)
    file = next((folder / name for name in KEPT if (folder / name).exists()), None)
    if file is None:
        raise TableError(
            f"{folder} has no intervals: models of times until an event and decision values have none, nor have folds "
            "by time, or runs of an older version (tune it again)"
        )
    found = load_file(file, trust=trust)
    with blamed(file):
        made = Conformal.of_plain(found, np.exp if found["log"] else None)
        if made.classes is None:
            ends = made.intervals(X, coverage)
            return ["low", "high"], list(np.asarray(ends).T), ends.guarantee
        sets = made.sets(X, coverage)
        names = np.array([str(plain(one)) for one in made.classes], dtype=object)
        return ["set"], [np.array([APART.join(names[row]) for row in np.asarray(sets)], dtype=object)], sets.guarantee
