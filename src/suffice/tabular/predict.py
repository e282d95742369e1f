"""A fitted model at work: predictions for new files, which are read exactly as the training file was.

`table.json` in a run's folder is the recipe: the delimiter, the form of every column (`suffice.tabular.entries`) and
the columns that the model needs. An entry that does not fit its column's form is missing. A level that the model has
never seen counts as the rare ones that were joined or, where none were, as the average row. Either is told. A column
that is not there is an error. Rows keep their order.
"""

from __future__ import annotations

import copy
import csv
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline

from suffice.report import folder as places
from suffice.sklearn.measures import Predicted
from suffice.sklearn.survival import checked_times, survival_function
from suffice.sklearn.target import fitted_inside, fitted_target, wrapped
from suffice.tabular.entries import Array, TableError, listed, plural, quoted
from suffice.tabular.intervals import columns as of_intervals
from suffice.tabular.model_file import blamed, load_file, model_file
from suffice.tabular.preparation import RowsPreparation
from suffice.tabular.problem import TableProblem
from suffice.tabular.reading import entries_of, read_for
from suffice.tabular.settings import from_plain
from suffice.tabular.states import settle
from suffice.tabular.table import RECIPE, Recipe, Table
from suffice.tabular.targets import OTHER, known_labels, plain


def frame_for(model: Any, table: Table) -> Any:
    """The columns that a fitted model asks for."""
    names = [str(name) for name in fitted_inside(model).feature_names_in_]
    if missing := [name for name in names if name not in table.names]:
        raise TableError(f"the table cannot be read as the model needs it: there is no {listed(missing)}")
    return table.frame(names)


def _new_levels(model: Any, X: Any, categorical: tuple[str, ...]) -> Iterator[str]:
    """Notes on levels that a fitted model has never seen."""
    parts = fitted_inside(model)[:-1][0].named_transformers_
    encoders = [parts["binary"][0]] if "binary" in parts else []
    encoders += [parts["categorical"]] if "categorical" in parts else []
    columns = [(encoder, k) for encoder in encoders for k in range(len(encoder.categories_))]
    for name, (encoder, k) in zip(categorical, columns, strict=True):
        known, dropped = encoder.categories_[k], None if encoder.drop_idx_ is None else encoder.drop_idx_[k]
        as_what = "average ones" if encoder.infrequent_categories_[k] is None else "'other', as rare ones were"
        as_what = as_what if dropped is None else quoted(known[dropped])
        seen = {str(level) for level in known}
        if new := [str(value) for value in X[name] if str(value) not in seen]:
            which = ", ".join(quoted(level, 30) for level in list(dict.fromkeys(new))[:3])
            rows = f"{plural(len(new), 'row')} with levels that are new to the model ({which})"
            yield f"column {quoted(name)}: {rows}, taken for {as_what}"


def finished(model: Any, problem: TableProblem) -> Any:
    """The model that is delivered: for tables, with the labels of the file, and predictions in the target's own
    units."""
    if isinstance(model[0], RowsPreparation):
        model = Pipeline([("prepare", model[0].of_frames()), ("model", model[-1])])
    if problem.labels is not None:
        model = copy.deepcopy(model)
        model[-1].classes_ = np.array(problem.labels)  # 0 and 1 until now; predictions are taken from here
    if problem.log_target:
        whole = TransformedTargetRegressor(model, func=np.log, inverse_func=np.exp, check_inverse=False)
        return wrapped(fitted_target(whole, np.exp(problem.y)), model)
    return model


def unseen(
    path: str, target: str, problem: TableProblem, weights: str | None = None
) -> tuple[list[str], Callable[[Any], dict[str, float]]]:
    """Of a held-out table, read as the training table was: notes, and what measures a model on it, in the target's own
    units. Rows without a target are left out, and so are those of classes that were not there. Rows count as much as
    the column `weights` says, if the table has it."""
    table = read_for(problem.recipe, path, with_target=True)
    column = table[target]
    rows, y, weight = ~column.missing, column.values, np.ones(len(table))
    notes: list[str] = []
    if not rows.any():
        raise TableError(f"{quoted(path)}: the target {quoted(target)} has no values")
    if not rows.all():
        notes.append(f"{path}: {int((~rows).sum()):,} rows without a target are left out")
    if weights is not None and weights in table.names:
        weight = table[weights].values
        if weight.dtype == object or not (weight[rows] >= 0.0).all() or not weight[rows].any():
            bad = "are missing or negative in some rows, or all 0"
            raise TableError(f"{quoted(path)}: the weights {quoted(weights)} {bad}")
    elif weights is not None:
        notes.append(f"{path} has no weights {quoted(weights)}: all its rows count the same")
    if problem.task == "classification":
        labels = np.unique(problem.y) if problem.labels is None else np.array(problem.labels)
        rest = next((label for label in labels if str(label) == OTHER), None)
        if problem.labels is not None and str(problem.labels[0]) == f"not {problem.labels[1]}":
            rest = labels[0]
        y = np.array(known_labels(column, labels, rest), dtype=object)
        there = np.array([label is not None for label in y])
        if (count := int((rows & ~there).sum())) > 0:
            notes.append(f"{path}: {count:,} rows of classes that the model does not know are left out")
        if not there.any():
            raise TableError(f"{quoted(path)}: no class of {quoted(target)} is one that the model knows")
        y, rows = np.where(there, y, labels[0]).astype(labels.dtype), there

    def measured(model: Any) -> dict[str, float]:
        found = Predicted.of(model, frame_for(model, table)[rows], y[rows], weight[rows])
        return {"rows": float(rows.sum()), **found.measured()}

    return notes, measured


def read_recipe(folder: Path) -> Recipe:
    """How tables are read for the model of a run's folder."""
    if not folder.exists():
        raise ValueError(f"there is no folder {folder}")
    settle(folder)
    found = places.read(folder / RECIPE)
    if found is None:
        raise ValueError(f"{folder} does not say how tables are read: there is no {RECIPE} in it (tune it again)")
    try:
        return cast(Recipe, from_plain(Recipe, found))
    except ValueError as error:
        raise ValueError(f"{folder / RECIPE} does not say how tables are read: {error}") from error


def times_of(text: str) -> list[float]:
    """The numbers of `--times 1,2,5`; ValueError if they are none."""
    try:
        return [float(time) for time in checked_times(text.split(","))]
    except ValueError as error:
        raise ValueError(f"--times takes numbers such as 1,2,5, none of them negative, got {text!r}") from error


def predict(
    folder: Path,
    path: str,
    *,
    carried: Sequence[str] = (),
    trust: bool = False,
    times: Sequence[float] = (),
    intervals: float | None = None,
) -> tuple[list[str], list[Any], list[str]]:
    """What the model of a run's folder says of a table: names and columns of classes with their probabilities, or of
    numbers, one for every row, after the columns that are `carried` along as they are in the file; and notes. Of Cox's
    model log hazards, and the probabilities of no event until `times`. `intervals` is a coverage, such as 0.9."""
    recipe, file = read_recipe(folder), model_file(folder)
    model = load_file(file, trust=trust)
    table = read_for(recipe, path)
    if missing := [name for name in carried if name not in table.origins]:
        none = f"{quoted(path)} has no column {listed(missing)} to carry along"
        raise TableError(f"{none}: it has {listed(table.origins)}")
    along = entries_of(path, carried, recipe.reading) if carried else []
    with blamed(file):
        names, columns, notes = predicted(model, recipe, table, times)
    if intervals is not None:
        named, ends, promise = of_intervals(folder, frame_for(model, table), intervals, trust=trust)
        names, columns, notes = [*names, *named], [*columns, *ends], [*notes, promise]
    return [*carried, *names], [*along, *columns], notes


def predicted(
    model: Any, recipe: Recipe, table: Table, times: Sequence[float] = ()
) -> tuple[list[str], list[Any], list[str]]:
    """What a model says of a table: names, columns and notes."""
    X = frame_for(model, table)
    notes = [*table.notes, *_new_levels(model, X, recipe.categorical)]
    survives = getattr(fitted_inside(model)[-1], "family", None) == "cox"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Found unknown categories")  # which the notes tell
        names = ["log hazard" if survives else f"predicted {recipe.target}"]
        columns = [np.asarray(model.predict(X))]
        if len(times):
            names += [f"survival at {plain(time)}" for time in times]
            columns += list(_survival(model, X, times, recipe.target, survives).T)
        if hasattr(model, "predict_proba"):
            names += [f"probability of {plain(label)}" for label in model.classes_]
            columns += list(model.predict_proba(X).T)
    return names, columns, notes


def _survival(model: Any, X: Any, times: Sequence[float], target: str, survives: bool) -> Array:
    """Probabilities of no event until then; `TableError` where the model cannot tell."""
    if not survives:
        raise TableError(f"--times is for a model of times until an event, and this one predicts {quoted(target)}")
    if not hasattr(model[-1], "baseline_times_"):
        raise TableError("--times needs a baseline hazard, which the model of an older version has not: tune it again")
    if (late := max(times)) > (last := float(model[-1].baseline_times_.max())):
        raise TableError(f"--times {late:g} is beyond {quoted(target)} {last:g}, the last that was watched in training")
    return survival_function(model, X, times)


def write(file: IO[str], names: list[str], columns: list[Any]) -> None:
    """A table of predictions, as CSV."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(map(plain, row) for row in zip(*columns, strict=True))
