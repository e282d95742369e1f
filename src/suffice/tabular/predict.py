"""A fitted model at work: predictions for new files, which are read exactly as the training file was.

`table.json` in a run's folder is the recipe: the delimiter, the form of every column (`suffice.tabular.entries`) and
the columns that the model needs. An entry that does not fit its column's form is missing. A level that the model has
never seen counts as the rare ones that were joined or, where none were, as the average row. Either is told. A column
that is not there is an error. Rows keep their order.
"""

from __future__ import annotations

import copy
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from suffice.report import folder as places
from suffice.sklearn.measures import Predicted
from suffice.tabular.entries import Array, TableError, listed, plural, quoted
from suffice.tabular.model_file import blamed, load_file, model_file
from suffice.tabular.preparation import RowsPreparation
from suffice.tabular.problem import TableProblem
from suffice.tabular.reading import read_for
from suffice.tabular.settings import from_plain
from suffice.tabular.table import RECIPE, Recipe, Table
from suffice.tabular.targets import OTHER, known_labels, plain


def _pipeline(model: Any) -> Any:
    return model.regressor_ if isinstance(model, TransformedTargetRegressor) else model


def _frame_for(model: Any, table: Table) -> Any:
    """The columns that a fitted model asks for."""
    names = [str(name) for name in _pipeline(model).feature_names_in_]
    if missing := [name for name in names if name not in table.names]:
        raise TableError(f"the table cannot be read as the model needs it: there is no {listed(missing)}")
    return table.frame(names)


def _new_levels(model: Any, X: Any, categorical: tuple[str, ...]) -> Iterator[str]:
    """Notes on levels that a fitted model has never seen."""
    encoder = _pipeline(model)[:-1][0].named_transformers_.get("categorical")
    joined = [] if encoder is None else encoder.infrequent_categories_
    for k, (name, known) in enumerate(zip(categorical, [] if encoder is None else encoder.categories_, strict=False)):
        as_what = "average ones" if joined[k] is None else "'other', as rare ones were"
        if encoder.drop_idx_ is not None and encoder.drop_idx_[k] is not None:
            as_what = quoted(known[encoder.drop_idx_[k]])
        seen = {str(level) for level in known}
        new = [str(value) for value in X[name] if str(value) not in seen]
        if new:
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
        whole.regressor_ = model
        whole.transformer_ = FunctionTransformer(np.log, np.exp, validate=True, check_inverse=False)
        whole.transformer_.fit(np.exp(problem.y)[:, None])
        whole._training_dim = 1
        return whole
    return model


# A table that was held out


@dataclass(frozen=True, eq=False)
class Unseen:
    """Rows that a model is measured on."""

    table: Table
    y: Array
    rows: Array
    notes: tuple[str, ...]
    weight: Array

    def measured(self, model: Any) -> dict[str, float]:
        """Measures that people know, in the target's own units."""
        X = _frame_for(model, self.table)[self.rows]
        return {"rows": float(len(self.y)), **Predicted.of(model, X, self.y, self.weight).measured()}


def unseen(path: str, target: str, problem: TableProblem, weights: str | None = None) -> Unseen:
    """A held-out table, as the training table was read; rows without a target are left out, and so are those of classes
    that were not there. Rows count as much as the column `weights` says, if the table has it."""
    table = read_for(problem.recipe, path, with_target=True)
    column = table[target]
    rows, y, notes, weight = ~column.missing, column.values, [], np.ones(len(table))
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
    return Unseen(table, y[rows], rows, tuple(notes), weight[rows])


# A run's model


def read_recipe(folder: Path) -> Recipe:
    """How tables are read for the model of a run's folder."""
    found = places.read(folder / RECIPE)
    if found is None:
        raise ValueError(f"{folder} does not say how tables are read: there is no {RECIPE} in it (tune it again)")
    try:
        return cast(Recipe, from_plain(Recipe, found))
    except ValueError as error:
        raise ValueError(f"{folder / RECIPE} does not say how tables are read: {error}") from error


@dataclass(frozen=True, eq=False)
class Predictions:
    """One row for every row of a table."""

    names: tuple[str, ...]
    columns: tuple[Array, ...]
    notes: tuple[str, ...]

    def write(self, file: IO[str]) -> None:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.names)
        writer.writerows(map(plain, row) for row in zip(*self.columns, strict=True))


def predict(folder: Path, path: str, *, trust: bool = False) -> Predictions:
    """What the model of a run's folder says of a table: classes with their probabilities, or numbers."""
    recipe, file = read_recipe(folder), model_file(folder)
    model = load_file(file, trust=trust)
    table = read_for(recipe, path)
    with blamed(file):
        X = _frame_for(model, table)
        notes = [*table.notes, *_new_levels(model, X, recipe.categorical)]
        names, columns = [f"predicted {recipe.target}"], [np.asarray(model.predict(X))]
        if hasattr(model, "predict_proba"):
            names += [f"probability of {plain(label)}" for label in model.classes_]
            columns += list(model.predict_proba(X).T)
    return Predictions(tuple(names), tuple(columns), tuple(notes))
