"""A fitted model in a file, or in the folder of a run, beside the table it was fitted to: what `suffice.certify` says.

A run's folder knows how its table was read and prepared, and that of any other model is read as tables are: the columns
are those that the model has names for (`feature_names_in_`), all but the target's where it has none.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from suffice.certifying import FitReport, certify
from suffice.report.formats import bound, interval
from suffice.tabular.entries import Array, TableError, listed, quoted
from suffice.tabular.model_file import blamed, load_file, model_file
from suffice.tabular.reading import read
from suffice.tabular.run import digest_of, load, read_settings
from suffice.tabular.table import Table
from suffice.tabular.targets import known_labels, plain


def certify_run(folder: Path, path: str, *, trust: bool = False) -> FitReport:
    """The report of a run's model on the table of the run."""
    settings = read_settings(folder)
    if digest_of(path) != settings.digest:
        raise TableError(f"{quoted(path)} is not the table that the model in {quoted(folder)} was fitted to")
    file = model_file(folder)
    model = load_file(file, trust=trust)
    problem, _ = load(replace(settings, data=path))
    if problem.groups is not None:
        return FitReport.nothing("groups of columns have penalties that the fitted model does not know")
    y = problem.y if problem.labels is None else np.array(problem.labels)[problem.y.astype(int)]
    with blamed(file):
        return certify(model.regressor_ if problem.log_target else model, problem.X, y, problem.weight)


def certify_file(file: Path, path: str, target: str, weights: str | None = None, *, trust: bool = False) -> FitReport:
    """The report of the model in a file on a table that holds its training data."""
    model, table = load_file(file, trust=trust), read(path)
    special = [target] if weights is None else [target, weights]
    with blamed(file):
        known = getattr(model, "feature_names_in_", None)
        names = [name for name in table.names if name not in special] if known is None else list(map(str, known))
    if missing := [name for name in (*names, *special) if name not in table.names]:
        raise TableError(f"{quoted(path)} has no {listed(missing)}: it has {listed(table.names)}")
    rows = ~table[target].missing
    weight = None if weights is None else np.asarray(table[weights].values, dtype=np.float64)[rows]
    X = table.frame(names)[rows]
    with blamed(file):
        return certify(model, X.to_numpy() if known is None else X, _targets(model, table, target, rows), weight)


def lines(found: FitReport) -> list[str]:
    """A report for a terminal; bounds are rounded to the side on which they hold."""
    if not found.told:
        return [found.message]
    least, most = bound(found.at_least, up=False, digits=3), bound(found.radius, up=True, digits=3)
    return [
        found.message,
        f"Distance     {least} to {most}, {bound(found.relative, up=True)} of the norm ({found.rule})",
        f"Intercept    within {bound(found.intercept_error, up=True)}",
        f"Predictions  within {bound(found.prediction_error, up=True)} on these rows",
        f"Score        {found.score:.7g}, the exact model's {interval(*found.score_interval)} ({found.scoring})",
    ]


def _targets(model: Any, table: Table, target: str, rows: Array) -> Array:
    """The target as the model knows it: numbers, or its own labels."""
    classes = getattr(model, "classes_", None)
    if classes is None:
        values = table[target].values[rows]
        try:
            return np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TableError(f"the target {quoted(target)} holds {quoted(values[0])}, no number") from error
    made = known_labels(table[target], classes)
    strange = np.flatnonzero(rows & np.array([label is None for label in made]))
    if len(strange):
        holds, there = quoted(table[target].values[strange[0]]), listed([str(plain(label)) for label in classes])
        raise TableError(f"the target {quoted(target)} holds {holds}, and the model knows {there}")
    return np.array([label for label in made if label is not None], dtype=np.asarray(classes).dtype)
