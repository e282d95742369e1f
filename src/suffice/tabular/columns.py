"""From a table to a problem: which column is what, and a pipeline that takes the table as it is.

The target decides the task: text, true and false, two values, or at most ten different whole numbers are classes; any
other numbers are a regression. Every other column is used unless it is of no use:

- *numeric* (also true and false): missing entries become the median, a separate column marks where they were, and all
  of it is standardised;
- *categorical* (text, or by request): one column of zeros and ones per level, missing being a level, too. Beyond the
  30 most frequent levels the rest share one column, and so do levels that a fitted model has never seen;
- *left out*, with a note: columns with one value or none, columns in which nearly every row has a value of its own
  (text with more than 30 levels, more than half as many as rows; numbers that count the rows; whole numbers all
  different under a name such as id), dates and nested values.

Medians, means and levels are those of the training rows of each fold: all transformers are scikit-learn's own and part
of the pipeline that is tuned.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from suffice.sklearn.adapters import find_adapter
from suffice.tabular.entries import Array, Column
from suffice.tabular.table import Table, TableError, quoted

LEVELS = 30  # columns that a categorical column becomes at most
CLASSES = 10  # whole numbers that are taken for classes without being asked
MOST_CLASSES = 100
DENSE = 20_000_000  # entries up to which the prepared table is a dense matrix
IDENTIFIER = re.compile(r"(^|[_\s\-.:])(id|idx|index|uuid|key|rownum|row)$|[a-z]I[dD]$|^Unnamed: 0$", re.ASCII)

Task = Literal["classification", "regression"]

MODELS: dict[str, tuple[Task, str]] = {
    "logistic": ("classification", "logistic regression, l1 and l2 penalty"),
    "logistic-l1": ("classification", "logistic regression, l1 penalty"),
    "logistic-l2": ("classification", "logistic regression, l2 penalty"),
    "svm": ("classification", "linear support vector machine, l2 penalty, two classes"),
    "elastic-net": ("regression", "linear regression, l1 and l2 penalty"),
    "lasso": ("regression", "linear regression, l1 penalty"),
    "ridge": ("regression", "linear regression, l2 penalty"),
    "poisson": ("regression", "Poisson regression of counts, l2 penalty"),
}
USUAL: dict[Task, str] = {"classification": "logistic", "regression": "elastic-net"}


@dataclass(frozen=True, eq=False)
class Problem:
    """What a search is given."""

    X: Any  # a pandas DataFrame with the columns that are used, as they are
    y: Array
    task: Task
    model: str
    estimator: Pipeline
    space: dict[str, tuple[float, float]]
    cv: Any
    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    notes: tuple[str, ...]

    def optimised(self, scoring: str | None) -> str:
        """The smooth score that is optimised if this one is asked for."""
        smooth = find_adapter(self.estimator[-1]).scorings
        return scoring if scoring is not None and scoring in smooth else smooth[0]

    @property
    def classes(self) -> int:
        return len(np.unique(self.y)) if self.task == "classification" else 0


def pose(
    table: Table,
    target: str,
    *,
    task: str = "auto",
    model: str = "auto",
    folds: int = 5,
    seed: int = 0,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    categorical: Sequence[str] = (),
    skip_missing: bool = False,
) -> Problem:
    """The problem that a table poses; `TableError` if it poses none."""
    for name in (target, *drop, *keep, *categorical):
        _check_name(name, table)
    notes = list(table.notes)
    known = table[target]
    rows = _rows(known, table, skip_missing, notes)
    task_, labels = _task(known, task, model, rows, notes)
    model = USUAL[task_] if model == "auto" else model
    y = _target(known, task_, model, table, rows)
    if task_ == "classification":
        _check_classes(y, labels, folds, model)
    elif len(y) < 2 * folds:
        raise TableError(f"the table has {len(y)} rows, too few for {folds} folds")
    numeric, levels = _features(table, target, rows, set(drop), set(keep), set(categorical), notes)
    frame = table.frame([*numeric, *levels])
    X = frame if rows.all() else frame[rows].reset_index(drop=True)
    width = len(numeric) + sum(levels.values())
    before = _preparation(numeric, tuple(levels), dense=len(y) * width <= DENSE)
    estimator = Pipeline([("prepare", before), ("model", _estimator(model))])
    splitter = StratifiedKFold if task_ == "classification" else KFold
    return Problem(
        X, y, task_, model, estimator, _space(model, y), splitter(folds, shuffle=True, random_state=seed),
        tuple(numeric), tuple(levels), tuple(notes),
    )  # fmt: skip


def _check_name(name: str, table: Table) -> None:
    if name in table.names:
        return
    near = difflib.get_close_matches(name, table.names, n=3, cutoff=0.6)
    lower = [other for other in table.names if other.lower() == name.lower()]
    close = list(dict.fromkeys([*lower, *near]))
    hint = f"did you mean {' or '.join(map(quoted, close))}?" if close else f"there are {_list(table.names)}"
    raise TableError(f"there is no column {quoted(name)}: {hint}")


def _list(names: Sequence[str], most: int = 8) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(quoted, names[:most])) + rest


# The target


def _rows(target: Column, table: Table, skip: bool, notes: list[str]) -> Array:
    """The rows whose target is known."""
    name, missing = quoted(target.name), target.missing
    if target.kind == "other":
        raise TableError(f"the target {name} holds {target.what}, which is neither numbers nor text")
    if target.stray is not None:
        stray = target.stray
        raise TableError(
            f"the target {name} is numeric, but line {stray.line} has {quoted(stray.entry)}"
            + (f", and {stray.count - 1} more entries are not numbers either" if stray.count > 1 else "")
        )
    if target.infinite is not None:
        raise TableError(f"the target {name} is {target.infinite.entry} in line {target.infinite.line}")
    count = int(missing.sum())
    if count == len(missing):
        raise TableError(f"the target {name} has no values")
    if count and not skip:
        line = table.lines[np.flatnonzero(missing)[0]]
        raise TableError(
            f"the target {name} is missing in {count:,} of {len(missing):,} rows, first in line {line}; "
            "--skip-missing-target leaves these rows out"
        )
    if count:
        notes.append(f"{count:,} rows without a target are left out")
    known: Array = ~missing
    return known


def _task(target: Column, task: str, model: str, rows: Array, notes: list[str]) -> tuple[Task, Array]:
    """Classification or regression, and the different values of the target."""
    name = quoted(target.name)
    known = target.values[rows]
    values = np.unique(known.astype(str) if target.kind == "text" else known)
    if len(values) == 1:
        raise TableError(f"the target {name} has one value only, {quoted(_plain(values[0]))}: nothing to learn")
    whole = target.kind == "numeric" and bool((values == np.round(values)).all())
    found: Task
    if task != "auto":
        found = "classification" if task == "classification" else "regression"
    elif model != "auto":
        found = MODELS[model][0]
    elif target.kind != "numeric" or len(values) == 2:
        found = "classification"
    elif whole and len(values) <= CLASSES:
        found = "classification"
        notes.append(f"the target {name} has {len(values)} different whole numbers: classes, unless --task regression")
    else:
        found = "regression"
    if model != "auto" and MODELS[model][0] != found:
        raise TableError(f"--model {model} is for {MODELS[model][0]}, the task is {found}")
    if found == "regression" and target.kind == "text":
        raise TableError(f"the target {name} is text, {quoted(values[0])} for one: regression needs numbers")
    if found == "classification" and len(values) > MOST_CLASSES:
        raise TableError(f"the target {name} has {len(values):,} different values: too many to be classes")
    return found, values


def _target(target: Column, task: Task, model: str, table: Table, rows: Array) -> Array:
    values = target.values[rows]
    if target.kind == "text":
        return values.astype(str)
    if target.kind == "boolean" and task == "classification":
        return values.astype(bool)
    if task == "classification" and (values == np.round(values)).all() and np.abs(values).max() < 2**53:
        return values.astype(np.int64)
    if model == "poisson" and (values < 0).any():
        line = table.lines[rows][np.flatnonzero(values < 0)[0]]
        raise TableError(
            f"the target {quoted(target.name)} is negative in line {line}: Poisson regression needs counts"
        )
    return values


def _check_classes(y: Array, labels: Array, folds: int, model: str) -> None:
    classes, counts = np.unique(y, return_counts=True)
    least = int(np.argmin(counts))
    if counts[least] < folds:
        way = f"use --cv {counts[least]}, or " if counts[least] >= 2 else ""
        raise TableError(
            f"the class {quoted(_plain(classes[least]))} has {counts[least]} row{'s' if counts[least] > 1 else ''}, "
            f"fewer than the {folds} folds: {way}leave the class out or join it with another"
        )
    if model == "svm" and len(labels) > 2:
        raise TableError(f"--model svm takes two classes, the target has {len(labels)}: use --model logistic")


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


# The other columns


def _features(
    table: Table, target: str, rows: Array, drop: set[str], keep: set[str], categorical: set[str], notes: list[str]
) -> tuple[list[str], dict[str, int]]:
    """Numeric columns, and categorical ones with the number of columns that they become."""
    numeric: list[str] = []
    levels: dict[str, int] = {}
    for column in table.columns:
        if column.name == target or column.name in drop:
            continue
        reason = _useless(column, rows, column.name in keep or column.name in categorical)
        if reason:
            notes.append(f"column {quoted(column.name)} is left out: {reason}")
        elif column.kind == "text" or column.name in categorical:
            count = _distinct(column, rows)
            levels[column.name] = min(count + bool(column.missing[rows].any()), LEVELS)
            if count > LEVELS:
                notes.append(f"column {quoted(column.name)} has {count:,} levels: the rarest share one column")
        else:
            numeric.append(column.name)
    if not numeric and not levels:
        raise TableError("there is no column to learn from besides the target")
    return numeric, levels


def _useless(column: Column, rows: Array, keep: bool) -> str:
    """Why a column is left out; empty if it is not."""
    if column.kind == "other":
        return f"{column.what} is neither numbers nor text"
    missing = column.missing[rows]
    known = column.values[rows][~missing]
    if len(known) == 0:
        return "it has no values"
    count = _distinct(column, rows)
    if count == 1 and not missing.any():
        return "it has one value only"
    if keep:
        return ""
    if column.kind == "text" and count > LEVELS and count > 0.5 * len(known):
        return f"{count:,} different texts in {len(known):,} rows (--keep uses it)"
    if column.kind == "numeric" and count == len(known) > LEVELS and (known == np.round(known)).all():
        steps = np.diff(known)
        if (steps == 1.0).all() or (steps == -1.0).all():
            return "it counts the rows (--keep uses it)"
        if IDENTIFIER.search(column.name):
            return "it looks like an identifier (--keep uses it)"
    return ""


def _distinct(column: Column, rows: Array) -> int:
    known = column.values[rows & ~column.missing]
    return len(set(known.tolist())) if column.kind == "text" else len(np.unique(known))


def _preparation(numeric: Sequence[str], categorical: Sequence[str], *, dense: bool) -> ColumnTransformer:
    parts: list[tuple[str, Any, list[str]]] = []
    if numeric:
        impute = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
        parts.append(("numeric", make_pipeline(impute, StandardScaler()), list(numeric)))
    if categorical:
        encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=LEVELS, sparse_output=not dense)
        parts.append(("categorical", encoder, list(categorical)))
    return ColumnTransformer(parts, sparse_threshold=0.0 if dense else 1.0, verbose_feature_names_out=False)


# The model


def _estimator(model: str) -> Any:
    """The final fit is scikit-learn's: it is allowed the iterations that it needs."""
    match model:
        case "logistic":
            return LogisticRegression(l1_ratio=0.5, solver="saga", max_iter=5000)
        case "logistic-l1":
            return LogisticRegression(l1_ratio=1.0, solver="saga", max_iter=5000)
        case "logistic-l2":
            return LogisticRegression(max_iter=5000)
        case "svm":
            return LinearSVC(max_iter=10_000)
        case "elastic-net":
            return ElasticNet(max_iter=50_000)
        case "lasso":
            return Lasso(max_iter=50_000)
        case "ridge":
            return Ridge()
        case "poisson":
            return PoissonRegressor(max_iter=1000)
    raise ValueError(f"model must be one of {', '.join(MODELS)}, got {model!r}")


def _space(model: str, y: Array) -> dict[str, tuple[float, float]]:
    """Ranges of the penalties. l1 is in units of the target, and so is l2 for counts."""
    usual = (1e-6, 1e2)
    match model:
        case "logistic":
            return {"l1": usual, "l2": usual}
        case "logistic-l1":
            return {"l1": usual}
        case "elastic-net" | "lasso":
            scale = float(np.std(y)) or 1.0
            l1 = (1e-6 * scale, 1e1 * scale)
            return {"l1": l1} if model == "lasso" else {"l1": l1, "l2": usual}
        case "poisson":
            scale = float(np.mean(y)) or 1.0
            return {"l2": (1e-6 * scale, 1e2 * scale)}
    return {"l2": usual}
