"""Which rows are held out.

- *At random*, by default: every row in one of `--cv` folds, classes with their shares; with `--repeats` once more in
  another order.
- *By groups* (`--group-column`): rows with the same entry are held out together, so that a model is measured on groups
  that it has not seen. The column has no coefficient, which a new group could not use.
- *By time* (`--time-column`): rows in the order of their times are cut into one part more than there are folds, of
  about the same size. Fold k is trained on the first k parts and holds out the next, so that nothing of the future is
  known in training. Rows of the same time are never parted.

Splits that cannot be made, or in which a model would not know all classes, are told before the search.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import model_selection as by

from suffice.tabular.entries import Array, Column, TableError, plural, quoted
from suffice.tabular.parts import AnyTable
from suffice.tabular.settings import Settings
from suffice.tabular.table import Table
from suffice.tabular.targets import Target, plain

Splits = list[tuple[Array, Array]]


def splits_of(table: AnyTable, target: Target, settings: Settings, notes: list[str]) -> Any:
    """What `SufficeSearchCV` takes as `cv`."""
    stratified, folds, seed = target.task == "classification", settings.cv, settings.seed
    if settings.group_column is not None:
        groups = _groups(table, settings.group_column, target, folds)
        notes.append(f"rows of the same {quoted(settings.group_column)}, of {groups.max() + 1:,}, are held out "
                     "together; it has no coefficient")  # fmt: skip
        splitter = by.StratifiedGroupKFold if stratified else by.GroupKFold
        how: list[dict[str, Any]] = [{}]  # folds of groups that are not drawn at random are more alike in size
        if settings.repeats > 1:
            how = [{"shuffle": True, "random_state": (seed + k) % 2**32} for k in range(settings.repeats)]
        made = [pair for one in how for pair in splitter(folds, **one).split(groups, target.y, groups)]
        return _learnable(made, target, settings.group_column)
    if settings.time_column is not None:
        return _learnable(_by_time(table, settings.time_column, target, folds), target, settings.time_column)
    if settings.repeats > 1:
        repeated = by.RepeatedStratifiedKFold if stratified else by.RepeatedKFold
        return repeated(n_splits=folds, n_repeats=settings.repeats, random_state=seed)
    return (by.StratifiedKFold if stratified else by.KFold)(folds, shuffle=True, random_state=seed)


def _entries(table: AnyTable, name: str, role: str, target: Target) -> tuple[Column, Array]:
    """A column that says how rows are split, of dates their days, and its entries, none of which is missing."""
    assert isinstance(table, Table)  # not on a cluster
    column = next(one for one in table.columns if name in (one.origin, one.name))
    if column.kind == "other":
        raise TableError(f"the {role} column {quoted(name)} holds {column.what}, which is neither numbers nor text")
    absent = np.flatnonzero(column.missing & target.rows)
    if len(absent):
        first = f"first in line {table.lines[absent[0]]}"
        raise TableError(f"the {role} column {quoted(name)} is missing in {plural(len(absent), 'row')}, {first}")
    return column, column.values[target.rows]


def _groups(table: AnyTable, name: str, target: Target, folds: int) -> Array:
    column, values = _entries(table, name, "group", target)
    groups: Array = np.unique(values.astype(str) if column.kind == "text" else values, return_inverse=True)[1]
    if (count := int(groups.max()) + 1) < folds:
        hint = f": --cv {count}" if count > 1 else ""
        few = f"{plural(count, 'group')}, too few for {folds} folds{hint}"
        raise TableError(f"the group column {quoted(name)} has {few}")
    return groups


def _by_time(table: AnyTable, name: str, target: Target, folds: int) -> Splits:
    column, times = _entries(table, name, "time", target)
    if column.kind != "numeric":
        raise TableError(f"the time column {quoted(name)} is {column.kind}: neither dates nor numbers")
    order = np.argsort(times, kind="stable")
    begins = np.flatnonzero(np.diff(times[order]) > 0.0) + 1  # of every time but the first
    wanted = len(order) * np.arange(1, folds + 1) / (folds + 1)
    cuts = np.unique([begins[np.argmin(np.abs(begins - at))] for at in wanted]) if len(begins) else begins
    if len(cuts) < folds:
        hint = f": --cv {len(cuts)}" if len(cuts) > 1 else ""
        different = f"{plural(len(begins) + 1, 'time')}, of {len(order):,} rows"
        raise TableError(f"the time column {quoted(name)} has {different}: too few parts for {folds} folds{hint}")
    ends = [*cuts[1:], len(order)]
    return [(np.sort(order[:cut]), np.sort(order[cut:end])) for cut, end in zip(cuts, ends, strict=True)]


def _learnable(splits: Splits, target: Target, name: str) -> Splits:
    """These splits, if a model of each can be trained and measured."""
    kinds = np.unique(target.y) if target.task == "classification" else ()
    for k, (train, test) in enumerate(splits, 1):
        where = f"by {quoted(name)}, fold {k} of {len(splits)}"
        if len(absent := np.setdiff1d(kinds, target.y[train])):
            label = absent[0] if target.labels is None else target.labels[int(absent[0])]
            where += f" is trained on rows without the class {quoted(plain(label))}"
            raise TableError(f"{where}: fewer folds, --cv, or others")
        if target.model == "cox" and not ((target.y[train] > 0.0).any() and (target.y[test] > 0.0).any()):
            raise TableError(f"{where} has no event to be trained on, or held against: fewer folds, --cv, or others")
    return splits
