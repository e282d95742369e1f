"""Groups of features, each with penalties of its own.

`groups_of_features` maps names of groups to columns: names, numbers, a slice, a mask, or a function of the list of all
names that returns a mask. Columns in no group form the group `others`. They are the columns of X if every step of a
pipeline before the estimator keeps columns one to one, as scalers do, and those that the last step puts out
(`get_feature_names_out`) else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import OneToOneFeatureMixin

OTHERS = "others"

Indices = npt.NDArray[np.intp]


def check_groups(groups: Any) -> None:
    """Whether these are groups at all; which columns they mean is seen from data."""
    if not isinstance(groups, Mapping) or not groups:
        raise ValueError(f"groups_of_features must be a dictionary of groups to columns, got {groups!r}")
    for name in groups:
        if not isinstance(name, str) or not name or name == OTHERS:
            raise ValueError(f"a group must be named by a word other than {OTHERS!r}, got {name!r}")


def keeps_columns(before: Any) -> bool:
    """Whether all steps of a pipeline put out one column for each of their own."""
    steps = [] if before is None else [step for _, step in before.steps]
    return all(step is None or step == "passthrough" or isinstance(step, OneToOneFeatureMixin) for step in steps)


def names_out(before: Any, names_in: Any, count: int) -> list[str]:
    """The names of the columns that the estimator sees; `before` is fitted."""
    if keeps_columns(before):
        return [str(name) for name in (range(count) if names_in is None else names_in)]
    try:
        return [str(name) for name in before.get_feature_names_out()]
    except (AttributeError, ValueError) as error:
        raise ValueError(
            "groups_of_features needs steps that keep columns one to one or give their names by "
            f"get_feature_names_out, and these do not: {error}"
        ) from error


def group_of_columns(groups: Mapping[str, Any], names: list[str]) -> tuple[tuple[str, ...], Indices]:
    """All groups, `others` last if there are any, and the number of the group of every column."""
    of = np.full(len(names), -1)
    for number, (group, selection) in enumerate(groups.items()):
        columns = _columns(group, selection, names)
        taken = columns[of[columns] >= 0]
        if len(taken) or len(np.unique(columns)) < len(columns):
            twice = names[int(taken[0] if len(taken) else columns[0])]
            raise ValueError(f"groups_of_features[{group!r}] names the column {twice!r} a second time")
        of[columns] = number
    found = tuple(groups)
    if (of < 0).any():
        found, of = (*found, OTHERS), np.where(of < 0, len(found), of)
    return found, of


def _columns(group: str, selection: Any, names: list[str]) -> Indices:
    where = f"groups_of_features[{group!r}]"
    if callable(selection):
        selection = np.asarray(selection(names), dtype=bool)
    if isinstance(selection, slice):
        columns: Indices = np.arange(len(names))[selection]
    else:
        values = np.atleast_1d(np.asarray([selection] if isinstance(selection, str) else selection))
        if values.dtype.kind in "US" or values.dtype.kind == "O":
            missing = [str(name) for name in values if str(name) not in names]
            if missing:
                raise ValueError(
                    f"{where} names {missing[0]!r}, which is not a column: they are {', '.join(names[:20])}"
                )
            columns = np.array([names.index(str(name)) for name in values], dtype=np.intp)
        elif values.dtype.kind == "b":
            if values.shape != (len(names),):
                raise ValueError(f"{where} must be a mask of {len(names)} columns, got shape {values.shape}")
            columns = np.flatnonzero(values)
        elif values.dtype.kind in "iu" and values.ndim == 1:
            if ((values < 0) | (values >= len(names))).any():
                raise ValueError(f"{where} must hold numbers from 0 to {len(names) - 1}, got {selection!r}")
            columns = values.astype(np.intp)
        else:
            raise ValueError(f"{where} must be names, numbers, a slice or a mask of columns, got {selection!r}")
    if len(columns) == 0:
        raise ValueError(f"{where} holds no column")
    return columns
