"""What looks like a mistake in a table: columns that give the target away.

A column tells the target by itself if one threshold per class (or its levels, 5 rows each at least on average)
separates 99.5 % of the rows, or if its correlation with the target is above 0.999. Such columns are mostly another form
of the target, or were written down after it was known; a model with them is of no use for rows that are new.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from suffice.tabular.entries import Array, quoted
from suffice.tabular.summaries import WARNING

ROWS, COLUMNS = 5_000, 2_000  # how many are looked at
SEPARATED, CORRELATED = 0.995, 0.999


def telling(X: Any, y: Array, task: str, categorical: set[str]) -> Iterator[str]:
    """Warnings of columns, of some rows, that tell the target by themselves."""
    if len(y) < 20:
        return
    target = np.unique(y, return_inverse=True)[1] if task == "classification" else y
    for name in list(X.columns)[:COLUMNS]:
        values = X[name].to_numpy()
        how = (_classes if task == "classification" else _numbers)(values, target, name in categorical)
        if how:
            yield (
                f"{WARNING}column {quoted(name)} {how}: if it is not known before the target is, "
                f"leave it out with --drop {quoted(name)}"
            )


def _codes(values: Array) -> Array:
    return np.unique([str(value) for value in values], return_inverse=True)[1]


def _classes(values: Array, codes: Array, categorical: bool) -> str:
    counts = np.bincount(codes)
    classes, most = len(counts), counts.max() / len(codes)
    if most > SEPARATED - 0.02:
        return ""
    if categorical:
        level = _codes(values)
        if level.max() + 1 > len(codes) / 5:
            return ""
        table = np.zeros((level.max() + 1, classes))
        np.add.at(table, (level, codes), 1.0)
        right = table.max(axis=1).sum() / len(codes)
    else:
        numbers = values.astype(float)
        known = ~np.isnan(numbers)
        one, target, share = numbers[known], codes[known], known.mean()
        if len(one) < 20 or (target == target[0]).all():
            return ""
        wrong = len(one) * (1.0 - (SEPARATED - most * (1.0 - share)) / share)
        if _changes(one, target) > classes - 1 + 2.0 * wrong + 1e-6:
            return ""
        tree = DecisionTreeClassifier(max_leaf_nodes=max(classes, 2), random_state=0).fit(one[:, None], target)
        right = float(tree.score(one[:, None], target)) * share + most * (1.0 - share)
    return f"tells the class of {100 * right:.1f} % of the rows by itself" if right >= SEPARATED else ""


def _changes(values: Array, codes: Array) -> int:
    """How often the class changes from row to row, rows in the order of their values: intervals that are one class each
    but for M rows have a change at each end of an interval and two for each of these rows, at most."""
    return int(np.count_nonzero(np.diff(codes[np.lexsort((codes, values))])))


def _numbers(values: Array, y: Array, categorical: bool) -> str:
    if categorical:
        level = _codes(values)
        count = np.bincount(level)
        if len(count) > len(y) / 5:
            return ""
        mean = np.bincount(level, weights=y) / count
        explained = 1.0 - np.sum((y - mean[level]) ** 2) / max(np.sum((y - y.mean()) ** 2), 1e-300)
        return f"explains {100 * explained:.2f} % of the target by itself" if explained > CORRELATED**2 else ""
    known = ~np.isnan(values.astype(float))
    x, target = values[known].astype(float), y[known]
    if known.mean() < 0.5 or len(x) < 20 or x.std() == 0.0 or target.std() == 0.0:
        return ""
    correlation = float(np.corrcoef(x, target)[0, 1])
    return f"has correlation {correlation:.5f} with the target" if abs(correlation) > CORRELATED else ""
