"""From a table to a problem: which column is what, and a pipeline that takes the table as it is.

What the target asks for is decided in `suffice.tabular.targets`. Every other column is used unless it is of no use:

- *numeric* (also true and false): missing entries become the median, a separate column marks where they were, and all
  of it is standardised;
- *categorical* (text, or by request): one column of zeros and ones per level, missing being a level, too. With
  `--max-levels`, or where there are more than `WIDTH` levels in all, the rarest share one column, `other`, and so do
  levels that a fitted model has never seen. Otherwise even levels of one row have their own column, since the penalty
  deals with them better than joining does: joined below 2 (5) rows, R^2 of held-out rows falls from 0.81 to 0.80 (0.75)
  for 140 levels of very different size in 1500 rows, and from 0.73 to 0.68 (0.63) for 500. A new level then has the
  effect of none, that of the average row;
- *dates*: numbers and categories (`suffice.tabular.dates`);
- *left out*, with a note: columns with one value or none, and nested values; and those in which nearly every row has a
  value of its own (text with more than 30 levels, more than half as many as rows; numbers that count the rows; whole
  numbers all different under a name such as id), unless held-out rows say that they hold the answer
  (`suffice.tabular.comparing`).

What looks like a mistake of the table, row numbers and columns that give the target away, gets a warning
(`suffice.tabular.cautions`). Medians, means and levels are those of the training rows of each fold: all transformers
are scikit-learn's own and part of the pipeline that is tuned.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import Pipeline

from suffice.sklearn.adapters import find_adapter
from suffice.tabular import cautions, comparing
from suffice.tabular.entries import Array, listed, quoted
from suffice.tabular.groups import REST, ColumnsOf, read_groups
from suffice.tabular.models import MODELS, SIGNED, Task, estimator_of
from suffice.tabular.parts import AnyTable
from suffice.tabular.preparation import preparation_of
from suffice.tabular.settings import ColumnSettings, Settings
from suffice.tabular.summaries import FEW, ONE_VALUE, Summary
from suffice.tabular.table import Recipe, TableError
from suffice.tabular.targets import Target, target_of

LOG_LOSS = "neg_log_loss"
WIDTH = 5_000  # columns that categories may become in all; matrices of this size squared have 200 MB
DENSE = 40_000_000  # entries up to which the prepared table is a dense matrix; a search then takes some 3 GB
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
        if scoring is None:  # of probabilities the log loss, which people compare models by
            return LOG_LOSS if LOG_LOSS in smooth else smooth[0]
        return scoring if scoring in smooth else smooth[0]

    def weights_of(self, rows: Any) -> dict[str, Array]:
        """The weights of these rows as an argument of `fit` and of scorers; none where all count the same."""
        return {} if self.weight is None else {"sample_weight": self.weight[rows]}

    @property
    def classes(self) -> int:
        return len(np.unique(self.y)) if self.task == "classification" else 0


def pose(table: AnyTable, settings: Settings) -> TableProblem:
    """The problem that a table poses; `TableError` if it poses none."""
    target, parts = settings.target, {name: getattr(settings, name) for name in ("exposure", "offset")}
    known_parts = {role: name for role, name in parts.items() if name is not None}
    groups = None if settings.groups is None else read_groups(settings.groups)
    check_names(table.names, table.origins, settings, *(groups or ()))
    for name, use in ((target, "predicted"), *((name, "categories") for name in settings.categorical)):
        if name not in table.names:
            raise TableError(f"column {quoted(name)} holds dates, which cannot be {use}")
    notes = list(table.notes)
    known = target_of(table, settings, notes)
    rows = known.rows
    roles = {"weights": settings.weights, **known_parts}
    special = {
        role: _known(table, name, role, known, target, notes) for role, name in roles.items() if name is not None
    }
    unused = left_out(settings)
    used = [name for name in table.names if name not in unused]
    summaries = {one.name: one for one in table.summaries(used, rows) if one.origin not in unused}
    numeric, levels, doubtful = _features(summaries, settings, notes)
    known = _compared(table, settings, known, summaries, numeric, levels, doubtful, notes)
    if not numeric and not levels:
        hint = f": --keep uses {listed([*doubtful])}" if doubtful else ""
        raise TableError(f"there is no column to learn from besides the target{hint}")
    if settings.non_negative and known.model not in SIGNED:
        raise TableError(f"--non-negative goes with --model {', '.join(SIGNED)}, got {known.model}")
    most = _most_levels(levels, settings.max_levels, WIDTH if table.joins_levels else math.inf, notes)
    dense = len(known.y) * (2 * len(numeric) + _width(levels, most)) <= DENSE
    before = preparation_of(numeric, tuple(levels), most, tuple(known_parts.values()), dense=dense)
    X, before = table.rows_for(before, numeric, [summaries[name] for name in levels], rows)
    estimator = estimator_of(known.model, {role: k for k, role in enumerate(known_parts)}, settings.non_negative)
    used, some = [*known_parts.values(), *numeric, *levels], sample(rows, cautions.ROWS)
    notes += cautions.telling(table.frame(used, some), known.y_of(some), known.task, set(levels))
    origins = {name: summaries[name].origin or name for name in (*numeric, *levels)}
    names, chosen = MODELS[known.model].penalties, _grouped(groups, origins)
    if chosen is not None:
        names = tuple(f"{name}_{group}" for name in names for group in chosen)
    splitter = StratifiedKFold if known.task == "classification" else KFold
    cv = table.folds(splitter, settings.cv, settings.seed, notes)
    needs = tuple(dict.fromkeys([*known_parts.values(), *origins.values()]))
    recipe = Recipe(target, needs, tuple(levels), table.reading)
    return TableProblem(
        X, known.y, known.task, known.model, Pipeline([("prepare", before), ("model", estimator)]),
        dict.fromkeys(names), cv, tuple(numeric), tuple(levels), tuple(notes), recipe.needed(),
        special.get("weights"), known.labels, known.log, chosen,
    )  # fmt: skip


def sample(rows: Array, most: int) -> Array:
    """The numbers of some of the rows that are used."""
    used = np.flatnonzero(rows)
    return used if len(used) <= most else np.sort(np.random.default_rng(0).choice(used, most, replace=False))


def left_out(settings: Settings) -> set[str]:
    """Columns that no coefficient is for."""
    special = (settings.weights, settings.event, settings.exposure, settings.offset)
    return {settings.target, *settings.drop, *(name for name in special if name is not None)}


def check_names(names: Sequence[str], origins: Sequence[str], settings: Settings, *more: str) -> None:
    """Whether there are the columns that the settings name; `origins` are those of the file."""
    there = tuple(dict.fromkeys((*origins, *names)))
    for name in (*left_out(settings), *settings.keep, *settings.categorical, *more):
        if name in there:
            continue
        near = difflib.get_close_matches(name, there, n=3, cutoff=0.6)
        lower = [other for other in there if other.lower() == name.lower()]
        close = list(dict.fromkeys([*lower, *near]))
        hint = f"did you mean {' or '.join(map(quoted, close))}?" if close else f"there are {listed(origins)}"
        raise TableError(f"there is no column {quoted(name)}: {hint}")


def _known(table: AnyTable, name: str, role: str, target: Target, of: str, notes: list[str]) -> Array:
    """A column that is weights, an exposure or an offset."""
    if name == of:
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


def _grouped(groups: Mapping[str, str] | None, names: Mapping[str, str]) -> dict[str, ColumnsOf] | None:
    """Groups of the columns that are used, of which `names` has the columns of the file."""
    if groups is None:
        return None
    of = {name: groups.get(name, groups.get(origin, REST)) for name, origin in names.items()}
    found = list(dict.fromkeys([*groups.values(), *of.values()]))
    used = [group for group in found if group in of.values()]
    if len(used) < 2:
        raise TableError(f"--groups leaves one group only of the columns that are used, {quoted(used[0])}")
    everything = tuple(names)
    return {group: ColumnsOf(tuple(name for name in of if of[name] == group), everything) for group in used}


# The columns


def _features(
    columns: Mapping[str, Summary], wish: ColumnSettings, notes: list[str]
) -> tuple[list[str], dict[str, int], dict[str, str]]:
    """Numeric columns, categorical ones with the number of their levels, and those in which every row has a value of
    its own, with the reason to leave them out."""
    numeric: list[str] = []
    levels: dict[str, int] = {}
    doubtful: dict[str, str] = {}
    for name, column in columns.items():
        kept = bool({name, column.origin} & {*wish.keep}) or name in wish.categorical
        if no_use := column.useless:
            if not (column.origin and no_use == ONE_VALUE):  # a year that all dates share is nothing to tell of
                notes.append(f"column {quoted(name)} is left out: {no_use}")
        elif not (kept or column.origin) and (reason := column.identifying):
            doubtful[name] = reason
        elif column.kind == "text" or name in wish.categorical:
            levels[name] = column.categories
        else:
            if not (kept or column.origin) and column.caution:
                notes.append(column.caution)
            numeric.append(name)
    return numeric, levels, doubtful


def _compared(
    table: AnyTable,
    settings: Settings,
    target: Target,
    summaries: Mapping[str, Summary],
    numeric: list[str],
    levels: dict[str, int],
    doubtful: Mapping[str, str],
    notes: list[str],
) -> Target:
    """The target with the model that predicts held-out rows better, where a rule has chosen it; columns that hold the
    answer, and were to be left out, join the others."""
    coded = [name for name in numeric if table.joins_levels and _coded(summaries[name], settings)]
    if target.model == "cox" or not (doubtful or target.counts or coded):
        notes += [f"column {quoted(one)} is left out: {reason} (--keep uses it)" for one, reason in doubtful.items()]
        return target
    sizes = {name: summaries[name].categories for name in (*doubtful, *coded)}
    texts = {name for name in doubtful if summaries[name].kind == "text"}
    width = 2 * len(numeric) + sum(levels.values()) + sum(sizes[name] for name in (*texts, *coded))
    some = sample(target.rows, comparing.most_rows(width))
    look = comparing.SampledRows(
        table.frame([*numeric, *levels, *doubtful], some),
        target.y_of(some),
        target.task == "classification",
        lambda numbers, others: preparation_of(numbers, others, WIDTH, dense=True),
    )
    categorical = [*levels]
    notes += comparing.codes(look, numeric, categorical, coded)
    for one, used, note in comparing.columns(look, numeric, categorical, doubtful, texts):
        notes.append(note)
        if used:
            (categorical if one in texts else numeric).append(one)
    levels.update({name: sizes[name] for name in categorical if name not in levels})
    if not target.counts or not (numeric or levels):
        return target
    counted, squares, counts = comparing.family(look, numeric, categorical)
    model, other = ("poisson", "elastic-net") if counted else (target.model, "poisson")
    errors = f"{counts:.2g} of the mean's squared error by Poisson regression, {squares:.2g} by squares"
    notes.append(
        f"the target {quoted(settings.target)} holds whole numbers, and held-out rows have {errors}: "
        f"{'Poisson' if counted else 'linear'} regression, unless --model {other}"
    )
    return replace(target, model=model)


def _coded(column: Summary, wish: ColumnSettings) -> bool:
    """Whether numbers may be names of something, which a look can tell."""
    few = column.levels is not None and 3 <= len(column.levels) <= comparing.MOST_CODES
    return few and column.whole and column.name not in wish.keep and bool(comparing.CODED.search(column.name))


def _width(levels: Mapping[str, int], most: int) -> int:
    """Columns that categories become if each has this many levels of its own at most, and `other`."""
    return sum(min(count, most) + 1 for count in levels.values())


def _most_levels(levels: Mapping[str, int], wish: int | None, width: float, notes: list[str]) -> int:
    """How many levels of a categorical column may have a column of their own."""
    most = max([2, *levels.values()]) if wish is None else wish
    if _width(levels, most) > width:
        most = max(k for k in range(2, most + 1) if k == 2 or _width(levels, k) <= width)
    for name, count in levels.items():
        if FEW < count <= most:
            notes.append(f"column {quoted(name)} has {count:,} levels, each with a coefficient")
    if cut := [name for name, count in levels.items() if count > most]:
        why = "--max-levels" if most == wish else f"more than {width:,.0f} columns would be too many"
        notes.append(f"column{'s' if len(cut) > 1 else ''} {listed(cut, 3)}: beyond the {most:,} most frequent levels, "
                     f"all join 'other' ({why})")  # fmt: skip
    return most
