"""The column to predict: which task it poses, and what of it can be learnt.

Text, true and false, two values, or at most ten different whole numbers of which none is too rare for the folds are
classes. Any other numbers are a regression. Whether whole numbers from 0 or 1 on are counts, for Poisson regression, a
look at held-out rows says (`suffice.tabular.comparing`); a note tells it, as it does of positive numbers that are
strongly skewed, whose logarithm may be easier to predict (`--log-target`).

On request, classes with fewer rows than `--min-class-size` become one class, `other`, or their rows are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.tabular.entries import Array, Column, quoted
from suffice.tabular.models import MODELS, POSITIVE, USUAL, Task
from suffice.tabular.parts import AnyTable
from suffice.tabular.settings import Settings, TargetSettings
from suffice.tabular.summaries import Summary
from suffice.tabular.table import TableError

CLASSES = 10  # whole numbers that are taken for classes without being asked
MOST_CLASSES = 100
OTHER = "other"
ZEROS = 0.1  # the share of zeros from which costs may be many zeros and some large numbers
SKEWED = 2.0  # the skewness of an exponential distribution


@dataclass(frozen=True, eq=False)
class Target:
    """The target as a model is fitted to it, for the rows that are used."""

    y: Array
    rows: Array  # a mask of the table's rows
    task: Task
    model: str
    counts: bool = False  # whether they may be counts, for Poisson regression
    labels: tuple[Any, Any] | None = None  # what 0 and 1 in y stand for, if the positive class was chosen
    log: bool = False  # whether y is the logarithm of the column

    def y_of(self, rows: Array) -> Array:
        """Of these rows, by their numbers in the table."""
        y: Array = self.y[np.cumsum(self.rows)[rows] - 1]
        return y


def target_of(table: AnyTable, settings: Settings, notes: list[str]) -> Target:
    """What there is to predict; `TableError` if it cannot be."""
    name = settings.target
    column = table[name]
    rows = known_rows(column, table, settings.skip_missing_target, notes)
    if settings.model == "cox":
        return Target(_times(table, settings, rows), rows, "regression", "cox")
    task = _task_of(Summary.of(name, column.kind, column.values[rows]), settings, notes)
    model = USUAL[task] if settings.model == "auto" else settings.model
    if settings.log_target and (task != "regression" or model in POSITIVE):
        raise TableError(f"--log-target is for regression with squares, the model is {MODELS[model].words}")
    if task == "regression" and (settings.positive is not None or settings.min_class_size):
        option = "--min-class-size" if settings.positive is None else "--positive"
        raise TableError(f"{option} is for classes, the target {quoted(name)} is a number to be predicted")
    if task == "regression":
        y = _number(column, model, settings, table.lines[rows], rows, notes)
        whole = column.kind == "numeric" and len(np.unique(y)) > 2 and bool((y == np.round(y)).all())
        counts = settings.model == "auto" and not settings.log_target and whole and 0.0 <= y.min() <= 1.0
        return Target(y, rows, task, model, counts, log=settings.log_target)
    y, rows = _rare(_labels(column, rows), rows, settings, notes)
    labels = None
    if settings.positive is not None:
        y, labels = _positive(y, settings.positive, notes)
    classes, counts = np.unique(y, return_counts=True)
    shown = classes if labels is None else [labels[int(label)] for label in classes]
    _check_classes(dict(zip(shown, counts.tolist(), strict=True)), model, settings, column.kind == "numeric")
    return Target(y, rows, task, model, labels=labels)


def known_rows(target: Column, table: AnyTable, skip: bool, notes: list[str]) -> Array:
    """The rows whose target is known."""
    name, missing = quoted(target.name), target.missing
    if target.kind == "other":
        raise TableError(f"the target {name} holds {target.what}, which is neither numbers nor text")
    if target.stray is not None:
        stray = target.stray
        kind, what = ("in percent", "percents") if target.form.percent else ("numeric", "numbers")
        raise TableError(
            f"the target {name} is {kind}, but line {stray.line} has {quoted(stray.entry)}"
            + (f", and {stray.count - 1} more entries are not {what} either" if stray.count > 1 else "")
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


def _task_of(target: Summary, wish: TargetSettings, notes: list[str]) -> Task:
    """Classification or regression."""
    name, model, count = quoted(target.name), wish.model, target.different
    if count == 1 and target.levels is not None:
        raise TableError(
            f"the target {name} has one value only, {quoted(plain(next(iter(target.levels))))}: nothing to learn"
        )
    found: Task
    if wish.task != "auto":
        found = "classification" if wish.task == "classification" else "regression"
    elif model != "auto":
        found = MODELS[model].task
    elif target.kind != "numeric" or count == 2 or wish.positive is not None or wish.min_class_size:
        found = "classification"
    elif target.whole and target.levels is not None and len(target.levels) <= CLASSES and not wish.log_target:
        rare = min(target.levels, key=target.levels.__getitem__)
        rows = target.levels[rare]
        found = "classification" if rows >= wish.cv else "regression"
        few = f"{plain(rare)} in {rows} row{'s' if rows > 1 else ''}"
        other = "classes, unless --task regression"
        if found == "regression":
            other = f"some of them rare ({few}): numbers, unless --task classification --min-class-size K"
        notes.append(f"the target {name} has {count} different whole numbers, {other}")
    else:
        found = "regression"
    if model != "auto" and MODELS[model].task != found:
        raise TableError(f"--model {model} is for {MODELS[model].task}, the task is {found}")
    if found == "regression" and target.kind == "text":
        one = quoted(next(iter(target.levels))) if target.levels else "many different ones"
        raise TableError(f"the target {name} is text, {one} for one: regression needs numbers")
    if (
        found == "classification"
        and not 0 < (count or 0) <= MOST_CLASSES
        and not (wish.min_class_size or wish.positive)
    ):
        hint = "; --task regression predicts the number" if target.kind == "numeric" else ""
        many = "many" if count is None else f"{count:,}"
        raise TableError(f"the target {name} has {many} different values: too many to be classes{hint}")
    return found


def _skewness(values: Array) -> float:
    spread = float(np.std(values))
    return float(np.mean(((values - np.mean(values)) / spread) ** 3)) if spread > 0.0 else 0.0


def _check_range(name: str, low: float, model: str, line: int) -> None:
    """Whether a model takes numbers from `low` on, which stands in this line."""
    if model in POSITIVE and (low < 0.0 or (model == "gamma" and low == 0.0)):
        needs = {
            "gamma": "Gamma regression needs positive numbers (tweedie takes zeros)",
            "tweedie": "Tweedie regression needs numbers from 0 on",
        }
        how, why = "negative" if low < 0.0 else "0", needs.get(model, "Poisson regression needs counts")
        raise TableError(f"the target {quoted(name)} is {how} in line {line}: {why}")


def _number(target: Column, model: str, wish: TargetSettings, lines: Array, rows: Array, notes: list[str]) -> Array:
    values, name = target.values[rows], quoted(target.name)
    if len(values) < 2 * wish.cv:
        raise TableError(f"the table has {len(values)} rows, too few for {wish.cv} folds")
    least = int(np.argmin(values))
    _check_range(target.name, float(values[least]), model, int(lines[least]))
    if wish.log_target:
        if values[least] <= 0:
            low = f"{values[least]:g} in line {lines[least]}"
            raise TableError(f"the target {name} is {low}: --log-target needs positive numbers")
        notes.append(f"the model is fitted to the logarithm of {name}: scores are those of the logarithm, predictions "
                     "come back in the target's own units")  # fmt: skip
        logarithms: Array = np.log(values)
        return logarithms
    if (
        model not in POSITIVE
        and (values > 0).all()
        and _skewness(values) > max(SKEWED, 2 * abs(_skewness(np.log(values))))
    ):
        ratio = float(values.max() / np.median(values))
        notes.append(f"the target {name} is strongly skewed (the largest is {ratio:,.0f} times the median): "
                     "--log-target may predict it better, or --model gamma")  # fmt: skip
    elif model not in POSITIVE and (values >= 0).all() and (values == 0).mean() > ZEROS and _skewness(values) > SKEWED:
        notes.append(f"the target {name} is never negative, often 0 and strongly skewed: --model tweedie may predict "
                     "it better")  # fmt: skip
    return values


def _times(table: AnyTable, settings: Settings, rows: Array) -> Array:
    """Times, negative where the event is not: censored."""
    assert settings.event is not None
    column, event = table[settings.target], table[settings.event]
    time = column.values[rows]
    if column.kind != "numeric" or not (time > 0).all():
        raise TableError(f"the times {quoted(settings.target)} must be positive numbers")
    happened = event.values[rows]
    if event.kind not in ("numeric", "boolean") or not np.isin(happened.astype(np.float64), (0.0, 1.0)).all():
        raise TableError(f"the event {quoted(settings.event)} must be 1 where it has happened and 0 where it has not")
    happened = happened.astype(bool)
    if int(happened.sum()) < 2 * settings.cv:
        raise TableError(f"there are {int(happened.sum())} events, too few for {settings.cv} folds")
    signed: Array = np.where(happened, time, -time)
    return signed


# Classes


def _labels(target: Column, rows: Array) -> Array:
    values = target.values[rows]
    if target.kind == "text":
        return values.astype(str)
    if target.kind == "boolean":
        return values.astype(bool)
    if (values == np.round(values)).all() and np.abs(values).max() < 2**53:
        return values.astype(np.int64)
    return values


def _rare(y: Array, rows: Array, wish: TargetSettings, notes: list[str]) -> tuple[Array, Array]:
    """Labels and rows without rare classes, if that is wanted."""
    classes, counts = np.unique(y, return_counts=True)
    few = counts < wish.min_class_size
    if not few.any():
        return y, rows
    if few.all():
        raise TableError(f"no class has {wish.min_class_size} rows: --min-class-size is too large")
    rare, total = np.isin(y, classes[few]), int(counts[few].sum())
    shown = ", ".join(quoted(plain(label), 30) for label in classes[few][:3])
    more = f" and {few.sum() - 3} more" if few.sum() > 3 else ""
    what = (
        f"{few.sum()} class{'es' if few.sum() > 1 else ''} with fewer than {wish.min_class_size} rows ({shown}{more})"
    )
    room = total + int(np.sum(y.astype(str)[~rare] == OTHER)) >= wish.min_class_size
    if wish.rare_classes == "join" and room:
        notes.append(f"{what}: joined into the class {quoted(OTHER)}, {total:,} rows")
        joined: Array = np.where(rare, OTHER, y.astype(str))
        return joined, rows
    why = "" if wish.rare_classes == "drop" else ", since together they have too few, too"
    notes.append(f"{what}: {total:,} row{'s' if total > 1 else ''} left out{why}")
    kept = rows.copy()
    kept[np.flatnonzero(rows)[rare]] = False
    return y[~rare], kept


def _positive(y: Array, positive: str, notes: list[str]) -> tuple[Array, tuple[Any, Any]]:
    """1 for the positive class and 0 for all others, and what they stand for."""
    classes = np.unique(y)
    named = [label for label in classes if str(plain(label)) == positive]
    if not named:
        known = ", ".join(quoted(plain(label), 30) for label in classes[:8])
        raise TableError(f"--positive {quoted(positive)} is not a class of the target: they are {known}")
    others = [label for label in classes if label != named[0]]
    negative = others[0] if len(others) == 1 else f"not {positive}"
    if len(others) > 1:
        notes.append(f"{quoted(positive)} against the {len(others)} other classes, called {quoted(negative)}")
    labels = (plain(negative), plain(named[0])) if len(others) == 1 else (str(negative), positive)
    return (y == named[0]).astype(np.int64), labels


def _check_classes(classes: Mapping[Any, int], model: str, wish: TargetSettings, numbers: bool) -> None:
    """Whether the classes, with their rows, can be learnt."""
    if len(classes) < 2:
        raise TableError("one class only is left of the target: nothing to learn")
    least = min(classes, key=classes.__getitem__)
    count = classes[least]
    if count < wish.cv:
        ways = [f"--cv {count}"] if count >= 2 else []
        ways.append(f"--min-class-size {wish.cv} joins rare classes (--rare-classes drop leaves them out)")
        ways += ["--task regression or --model poisson predicts the number"] if numbers else []
        raise TableError(
            f"the class {quoted(plain(least))} has {count} row{'s' if count > 1 else ''}, "
            f"fewer than the {wish.cv} folds: {', or '.join(ways)}"
        )
    if model == "svm" and len(classes) > 2:
        raise TableError(f"--model svm takes two classes, the target has {len(classes)}: use --model logistic")


def plain(value: Any) -> Any:
    """A label as people write it."""
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def known_labels(target: Column, classes: Any, rest: Any = None) -> list[Any]:
    """For every row, which of the classes of a model its entry means; `rest` where it is none, and None where it is
    missing."""
    known = {str(plain(label)): label for label in classes}
    values = [bool(value) for value in target.values] if target.kind == "boolean" else target.values
    pairs = zip(values, target.missing, strict=True)
    return [None if absent else known.get(str(plain(value)), rest) for value, absent in pairs]
