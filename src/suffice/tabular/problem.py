"""From a table to a problem: which column is what, and a pipeline that takes the table as it is.

What the target asks for is decided in `suffice.tabular.targets`, what becomes of every other column in
`suffice.tabular.columns`. Medians, means and levels are those of the training rows of each fold: all transformers are
scikit-learn's own and part of the pipeline that is tuned.

Groups of columns may have penalties of their own (`--groups`). Their file is JSON, either `{"blood": ["s1", "s2"],
"body": ["bmi"]}` or `{"s1": "blood", "s2": "blood", "bmi": "body"}`. Columns that it does not name form the group
`rest`. A column of categories or dates has one group for all that becomes of it.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from suffice.sklearn.adapters import find_adapter
from suffice.tabular import columns as rules
from suffice.tabular.entries import Array, TableError, listed, quoted
from suffice.tabular.parts import AnyTable
from suffice.tabular.preparation import preparation_of
from suffice.tabular.reading import open_table
from suffice.tabular.settings import MODELS, SIGNED, Settings, Task, estimator_of
from suffice.tabular.splitting import splits_of
from suffice.tabular.table import Recipe
from suffice.tabular.targets import ENTRIES, Target, as_counts, target_of
from suffice.tabular.targets import ROWS as ROWS_OF_LOOKS

DENSE = 40_000_000  # entries up to which the prepared table is a dense matrix; a search then takes some 3 GB
REST = "rest"
LARGEST = 1 << 22  # bytes of a file of groups
KNOWN: dict[str, tuple[Callable[[Array], Array], str]] = {
    "weights": (lambda x: x >= 0.0, "rows count as much as {} says, in training and in scores"),
    "exposure": (lambda x: x > 0.0, "the mean is proportional to {}, which has no coefficient"),
    "offset": (np.isfinite, "a known part of the linear predictor is {}, which has no coefficient"),
}  # what columns with a part of their own must hold


@dataclass(frozen=True, eq=False)
class TableProblem:
    """What a search is given."""

    X: Any  # a pandas DataFrame with the columns that are used, as they are
    y: Array
    task: Task
    model: str
    estimator: Pipeline
    space: dict[str, None]  # the penalties, over ranges that the data give
    cv: Any
    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    notes: tuple[str, ...]
    recipe: Recipe
    weight: Array | None = None
    labels: tuple[Any, Any] | None = None  # what 0 and 1 in y stand for, if the positive class was chosen
    log_target: bool = False  # whether y is the logarithm of the target
    groups: Mapping[str, ColumnsOf] | None = None

    def optimised(self, scoring: str | None) -> str:
        """The smooth score that is optimised if this one is asked for."""
        smooth = find_adapter(self.estimator[-1]).scorings
        return str(scoring if scoring in smooth else smooth[0])

    @property
    def weights(self) -> dict[str, Array]:
        """What `fit` is given besides."""
        return {} if self.weight is None else {"sample_weight": self.weight}

    @property
    def classes(self) -> int:
        return len(np.unique(self.y)) if self.task == "classification" else 0


def pose(table: AnyTable, settings: Settings, like: tuple[Sequence[str], Sequence[str]] | None = None) -> TableProblem:
    """The problem that a table poses; `TableError` if it poses none. `like` are the numeric and the categorical columns
    of one that is posed again with other rows."""
    groups = None if settings.groups is None else read_groups(settings.groups)
    _check_names(table, settings, *(groups or ()))
    notes = list(table.notes)
    target = target_of(table, settings, notes)
    rows, model = target.rows, target.model
    roles = {role: getattr(settings, role) for role in KNOWN if getattr(settings, role) is not None}
    special = {role: _known(table, name, role, target, settings, notes) for role, name in roles.items()}
    parts = [name for role, name in roles.items() if role != "weights"]
    unused = _unused(settings)
    used = [name for name in table.names if name not in unused]
    summaries = {one.name: one for one in table.summaries(used, rows) if one.origin not in unused}
    if like is None:
        numeric, levels = _used(table, target, summaries, settings, notes)
    else:
        numeric, levels = list(like[0]), {name: summaries[name].categories for name in like[1]}
    levels = dict(sorted(levels.items(), key=lambda column: column[1] != 2))  # as they are prepared
    if target.counts:
        some = _looked_at(rows, numeric, levels)
        look = table.frame([*numeric, *levels], some), target.y_of(some).astype(np.float64)
        before = preparation_of(numeric, levels, rules.WIDTH, dense=True)
        target = as_counts(target, settings.target, look, before, notes)
        model = target.model
    if settings.non_negative and model not in SIGNED:
        raise TableError(f"--non-negative goes with --model {', '.join(SIGNED)}, got {model}")
    most = rules.most_levels(levels, settings.max_levels, rules.WIDTH if table.joins_levels else math.inf, notes)
    dense = len(target.y) * (2 * len(numeric) + rules.columns_for(levels, most)) <= DENSE
    before = preparation_of(numeric, levels, most, parts, dense=dense)
    X, before = table.rows_for(before, numeric, [summaries[name] for name in levels], rows)
    known = {role: k for k, role in enumerate(role for role in roles if role != "weights")}
    pipeline = Pipeline([("prepare", before), ("model", estimator_of(model, known, settings.non_negative))])
    some = sample(rows, rules.ROWS)
    frame = table.frame([*parts, *numeric, *levels], some)
    notes += rules.telling(frame, target.y_of(some), target.task, set(levels))
    origins = {name: summaries[name].origin or name for name in (*numeric, *levels)}
    penalties, chosen = MODELS[model].penalties, _grouped(groups, origins)
    if chosen is not None:
        penalties = tuple(f"{name}_{group}" for name in penalties for group in chosen)
    cv = splits_of(table, target, settings, notes)
    needs = tuple(dict.fromkeys([*parts, *origins.values()]))
    recipe = Recipe(settings.target, needs, tuple(levels), table.reading.of((*needs, settings.target)))
    return TableProblem(
        X, target.y, target.task, model, pipeline, dict.fromkeys(penalties), cv, tuple(numeric), tuple(levels),
        tuple(notes), recipe, special.get("weights"), target.labels, target.log, chosen,
    )  # fmt: skip


def _used(
    table: AnyTable, target: Target, summaries: Mapping[str, rules.Summary], settings: Settings, notes: list[str]
) -> tuple[list[str], dict[str, int]]:
    """Numeric columns, and categorical ones with the number of their levels, after looks at held-out rows."""
    numeric, levels, doubtful, coded = rules.features(summaries, settings, notes)
    classes, looks = target.task == "classification", target.model != "cox"
    if doubtful and looks:
        wide = max(1 if one.kind == "numeric" else one.categories for one in doubtful)
        some = _looked_at(target.rows, numeric, levels, wide)
        look = table.frame([*numeric, *levels, *(one.name for one in doubtful)], some)
        notes += rules.decisive(look, target.y_of(some), classes, doubtful, numeric, levels)
    if not numeric and not levels:
        hint = f": --keep uses {listed([one.name for one in doubtful])}" if doubtful else ""
        raise TableError(f"there is no column to learn from besides the target{hint}")
    few = [one for one in coded if one.levels is not None and looks and table.joins_levels]
    for name in [quoted(one.name) for one in coded if one not in few and one.named_as_code]:
        notes.append(f"column {name} holds whole numbers: --categorical {name} if they are codes")
    if few:
        some = _looked_at(target.rows, numeric, levels, sum(one.categories for one in few))
        look = table.frame([*numeric, *levels], some)
        notes += rules.as_categories(look, target.y_of(some), classes, few, numeric, levels)
    return numeric, levels


def _looked_at(rows: Array, numeric: list[str], levels: Mapping[str, int], more: int = 0) -> Array:
    """Rows for a look at held-out ones with these columns, and `more` of them."""
    width = 2 * len(numeric) + sum(levels.values()) + more
    return sample(rows, min(ROWS_OF_LOOKS, max(200, ENTRIES // width)))


def sample(rows: Array, most: int) -> Array:
    """The numbers of some of the rows that are used."""
    used = np.flatnonzero(rows)
    return used if len(used) <= most else np.sort(np.random.default_rng(0).choice(used, most, replace=False))


def _unused(settings: Settings) -> set[str]:
    """Columns that no coefficient is for."""
    special = (settings.weights, settings.event, settings.exposure, settings.offset, settings.group_column)
    return {settings.target, *settings.drop, *(name for name in special if name is not None)}


def _check_names(table: AnyTable, settings: Settings, *more: str) -> None:
    """Whether there are the columns that the settings name, with entries that can be used so."""
    there = tuple(dict.fromkeys((*table.origins, *table.names)))
    time = () if settings.time_column is None else (settings.time_column,)
    if settings.target in (settings.group_column, *time):
        raise TableError(f"the target {quoted(settings.target)} cannot say how rows are held out, too")
    for name in (*_unused(settings), *time, *settings.keep, *settings.categorical, *more):
        if name in there:
            continue
        near = difflib.get_close_matches(name, there, n=3, cutoff=0.6)
        close = list(dict.fromkeys([*(other for other in there if other.lower() == name.lower()), *near]))
        hint = f"did you mean {' or '.join(map(quoted, close))}?" if close else f"there are {listed(table.origins)}"
        raise TableError(f"there is no column {quoted(name)}: {hint}")
    for name, use in ((settings.target, "predicted"), *((name, "categories") for name in settings.categorical)):
        if name not in table.names:
            raise TableError(f"column {quoted(name)} holds dates, which cannot be {use}")


def _known(table: AnyTable, name: str, role: str, target: Target, settings: Settings, notes: list[str]) -> Array:
    """A column that is weights, an exposure or an offset."""
    if name == settings.target:
        raise TableError(f"the target {quoted(name)} cannot be the {role}, too")
    column = table[name] if name in table.names else None  # which holds dates
    if column is None or column.kind not in ("numeric", "boolean"):
        raise TableError(f"the {role} {quoted(name)} {'are' if role == 'weights' else 'is'} not numbers")
    values, (good, note) = column.values[target.rows], KNOWN[role]
    bad = np.flatnonzero(~good(values))
    if len(bad):
        what = "missing" if np.isnan(values[bad[0]]) else f"{values[bad[0]]:g}"
        line = table.lines[target.rows][bad[0]]
        raise TableError(f"the {role.removesuffix('s')} {quoted(name)} is {what} in line {line}")
    if role == "weights" and not values.any():
        raise TableError(f"the weights {quoted(name)} are all zero")
    notes.append(note.format(quoted(name)))
    return values


# Groups of columns


def read_groups(path: str) -> dict[str, str]:
    """The group of every column that the file names."""
    with open_table(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise TableError(f"{quoted(path)} has more than {LARGEST:,} bytes")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise TableError(f"{quoted(path)} is not JSON: {error}") from error
    if not isinstance(found, dict) or not found:
        raise TableError(f"{quoted(path)} must hold a dictionary of groups to columns or of columns to groups")
    groups: dict[str, str] = {}
    for key, value in found.items():
        for name, group in ((name, key) for name in value) if isinstance(value, list) else ((key, value),):
            if not isinstance(name, str) or not isinstance(group, str) or not group.isidentifier() or group == "others":
                got = f"got {quoted(name)}: {quoted(group)}"
                raise TableError(f"{quoted(path)}: a column is named by text and its group by one word, {got}")
            if groups.setdefault(name, group) != group:
                raise TableError(f"{quoted(path)} has {quoted(name)} in two groups, {groups[name]} and {group}")
    return groups


def _grouped(groups: Mapping[str, str] | None, names: Mapping[str, str]) -> dict[str, ColumnsOf] | None:
    """Groups of the columns that are used, of which `names` has the columns of the file."""
    if groups is None:
        return None
    of = {name: groups.get(name, groups.get(origin, REST)) for name, origin in names.items()}
    used = [group for group in dict.fromkeys([*groups.values(), REST]) if group in of.values()]
    if len(used) < 2:
        raise TableError(f"--groups leaves one group only of the columns that are used, {quoted(used[0])}")
    return {group: ColumnsOf(tuple(name for name in of if of[name] == group), tuple(names)) for group in used}


@dataclass(frozen=True)
class ColumnsOf:
    """Selects, of the columns that a prepared table has, those that come from some of its columns: `age`,
    `missingindicator_age` and `city_Paris` come from age, age and city. Of several that fit, the longest does."""

    columns: tuple[str, ...]
    everything: tuple[str, ...]

    def __call__(self, names: list[str]) -> list[bool]:
        return [self._origin(name) in self.columns for name in names]

    def _origin(self, name: str) -> str:
        bare = name.removeprefix("missingindicator_")
        fit = (column for column in self.everything if column in (name, bare) or name.startswith(f"{column}_"))
        return max(fit, key=lambda column: (column == name, column == bare, len(column)))
