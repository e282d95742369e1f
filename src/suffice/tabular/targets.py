"""The column to predict: which task it poses, and what of it can be learnt.

Text, true and false, two values, or at most ten different whole numbers of which none is too rare for the folds are
classes. Any other numbers are a regression. Whether whole numbers from 0 or 1 on are counts, a look at held-out rows
says: of `ROWS` rows at most. They are for Poisson regression if its Poisson deviance is at most 0.99 times that of
ridge regression, and its squared error, at the penalty with the least deviance, at most 1.05 times. Whole thousands are
amounts. A note tells it, as it does of positive numbers that are strongly skewed, whose logarithm may be easier to
predict (`--log-target`).

On request, classes with fewer rows than `--min-class-size` become one class, `other`; where
these are too few, too, their rows are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.tabular.columns import Summary, by_squares, held_out, share_of_mean
from suffice.tabular.entries import Array, Column, TableError, listed, plural, quoted
from suffice.tabular.parts import AnyTable
from suffice.tabular.settings import MODELS, POSITIVE, USUAL, Settings, Task

CLASSES = 10  # whole numbers that are taken for classes without being asked
MOST_CLASSES = 100
OTHER = "other"
ZEROS = 0.1  # the share of zeros from which costs may be many zeros and some large numbers
SKEWED = 2.0  # the skewness of an exponential distribution
ROWS, ENTRIES = 2_000, 400_000  # of a look at held-out rows; 200 rows in any case
ROUNDED = 1000  # what divides all amounts that are no counts
TIES = (1.05, 0.99)


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
        return np.asarray(self.y[np.cumsum(self.rows)[rows] - 1])


def target_of(table: AnyTable, settings: Settings, notes: list[str]) -> Target:
    """What there is to predict; `TableError` if it cannot be."""
    name = settings.target
    column = table[name]
    rows = _known_rows(column, table, settings.skip_missing_target, notes)
    if settings.model == "cox":
        return Target(_times(table, settings, rows), rows, "regression", "cox")
    task = _task_of(Summary.of(column, column.values[rows]), settings, notes)
    model = USUAL[task] if settings.model == "auto" else settings.model
    if settings.log_target and (task != "regression" or model in POSITIVE):
        raise TableError(f"--log-target is for regression with squares, the model is {MODELS[model].words}")
    if task == "regression":
        if settings.positive is not None or settings.min_class_size:
            option = "--min-class-size" if settings.positive is None else "--positive"
            raise TableError(f"{option} is for classes, the target {quoted(name)} is a number to be predicted")
        y = _numbers(column, model, settings, table.lines[rows], rows, notes)
        whole = column.kind == "numeric" and len(np.unique(y)) > 2 and bool((y == np.round(y)).all())
        counts = settings.model == "auto" and not settings.log_target and whole and 0.0 <= y.min() <= 1.0
        counts = counts and bool((y % ROUNDED).any())
        return Target(y, rows, task, model, counts, log=settings.log_target)
    y, rows = _without_rare(_labels(column, rows), rows, settings, notes)
    labels = None
    if settings.positive is not None:
        y, labels = _positive(y, settings.positive, notes)
    classes, counts = np.unique(y, return_counts=True)
    shown = classes if labels is None else [labels[int(label)] for label in classes]
    _check_classes(dict(zip(shown, counts.tolist(), strict=True)), model, settings, column.kind == "numeric")
    return Target(y, rows, task, model, labels=labels)


def _known_rows(target: Column, table: AnyTable, skip: bool, notes: list[str]) -> Array:
    name, missing = quoted(target.name), target.missing
    if target.kind == "other":
        raise TableError(f"the target {name} holds {target.what}, which is neither numbers nor text")
    for stray in target.strays:
        kind, (_, what) = "in percent" if target.form.percent else "numeric", stray.what
        if what == target.form.wrong[1]:
            more = f", and {stray.count - 1} more entries are {what} either" if stray.count > 1 else ""
            raise TableError(f"the target {name} is {kind}, but line {stray.line} has {quoted(stray.entry)}{more}")
        if what:
            raise TableError(f"the target {name} is {stray.entry} in line {stray.line}")
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
    return np.logical_not(missing)


def _task_of(target: Summary, wish: Settings, notes: list[str]) -> Task:
    name, model, count, levels = quoted(target.name), wish.model, target.different, target.levels
    if count == 1 and levels is not None:
        raise TableError(f"the target {name} has one value only, {quoted(plain(next(iter(levels))))}: nothing to learn")
    found: Task = "regression"
    if wish.task != "auto":
        found = "classification" if wish.task == "classification" else "regression"
    elif model != "auto":
        found = MODELS[model].task
    elif target.kind != "numeric" or count == 2 or wish.positive is not None or wish.min_class_size:
        found = "classification"
    elif target.whole and levels is not None and len(levels) <= CLASSES and not wish.log_target:
        rare = min(levels, key=levels.__getitem__)
        other = "classes, unless --task regression"
        if levels[rare] >= wish.cv:
            found = "classification"
        else:
            few = f"{plain(rare)} in {plural(levels[rare], 'row')}"
            other = f"some of them rare ({few}): numbers, unless --task classification --min-class-size K"
        notes.append(f"the target {name} has {count} different whole numbers, {other}")
    if model != "auto" and MODELS[model].task != found:
        raise TableError(f"--model {model} is for {MODELS[model].task}, the task is {found}")
    if found == "regression" and target.kind == "text":
        one = quoted(next(iter(levels))) if levels else "many different ones"
        raise TableError(f"the target {name} is text, {one} for one: regression needs numbers")
    few_enough = 0 < (count or 0) <= MOST_CLASSES or wish.min_class_size or wish.positive
    if found == "classification" and not few_enough:
        hint = "; --task regression predicts the number" if target.kind == "numeric" else ""
        many = "many" if count is None else f"{count:,}"
        raise TableError(f"the target {name} has {many} different values: too many to be classes{hint}")
    return found


def _skewness(values: Array) -> float:
    spread = float(np.std(values))
    return float(np.mean(((values - np.mean(values)) / spread) ** 3)) if spread > 0.0 else 0.0


def _numbers(target: Column, model: str, wish: Settings, lines: Array, rows: Array, notes: list[str]) -> Array:
    """What a regression predicts, of these rows, which stand in these lines."""
    values, name = target.values[rows], quoted(target.name)
    if len(values) < 2 * wish.cv:
        raise TableError(f"the table has {len(values)} rows, too few for {wish.cv} folds")
    at = int(np.argmin(values))
    least, where = float(values[at]), f"in line {lines[at]}"
    if model in POSITIVE and (least < 0.0 or (model == "gamma" and least == 0.0)):
        needs = {
            "gamma": "Gamma regression needs positive numbers (tweedie takes zeros)",
            "tweedie": "Tweedie regression needs numbers from 0 on",
        }
        why = needs.get(model, "Poisson regression needs counts")
        raise TableError(f"the target {name} is {'negative' if least < 0.0 else '0'} {where}: {why}")
    if wish.log_target:
        if least <= 0.0:
            raise TableError(f"the target {name} is {least:g} {where}: --log-target needs positive numbers")
        notes.append(f"the model is fitted to the logarithm of {name}: scores are those of the logarithm, predictions "
                     "come back in the target's own units")  # fmt: skip
        return np.asarray(np.log(values))
    if model in POSITIVE or least < 0.0 or _skewness(values) <= SKEWED:
        return values
    if least > 0.0 and _skewness(values) > 2.0 * abs(_skewness(np.log(values))):
        ratio = float(values.max() / np.median(values))
        notes.append(f"the target {name} is strongly skewed (the largest is {ratio:,.0f} times the median): "
                     "--log-target may predict it better, or --model gamma")  # fmt: skip
    elif (values == 0.0).mean() > ZEROS:
        notes.append(f"the target {name} is never negative, often 0 and strongly skewed: --model tweedie may predict "
                     "it better")  # fmt: skip
    return values


def _times(table: AnyTable, settings: Settings, rows: Array) -> Array:
    """Times, negative where the event is not: censored."""
    assert settings.event is not None
    column, event = table[settings.target], table[settings.event]
    time, happened = column.values[rows], event.values[rows]
    if column.kind != "numeric":
        raise TableError(f"the times {quoted(settings.target)} must be positive numbers")
    if len(bad := np.flatnonzero(~(time > 0))):
        others = "1 row holds another, in" if len(bad) == 1 else f"{len(bad):,} rows hold others, first in"
        first = f"{others} line {table.lines[rows][bad[0]]}: {plain(time[bad[0]])}"
        only = "only the order of times matters to the model: half a unit may stand for 0, or be added to all"
        raise TableError(f"the times {quoted(settings.target)} must be positive numbers, {first} ({only})")
    if event.kind not in ("numeric", "boolean") or not np.isin(happened.astype(np.float64), (0.0, 1.0)).all():
        raise TableError(f"the event {quoted(settings.event)} must be 1 where it has happened and 0 where it has not")
    if happened.sum() < 2 * settings.cv:
        raise TableError(f"there are {happened.sum():.0f} events, too few for {settings.cv} folds")
    return np.where(happened.astype(bool), time, -time)


# Counts


def as_counts(target: Target, name: str, look: tuple[Any, Array], prepare: Any, notes: list[str]) -> Target:
    """The target with the model that predicts held-out rows better, of counts or of numbers; `look` are some rows with
    their targets, and `prepare` is the step before a model."""
    counted, squares, counts = counts_or_numbers(*look, prepare)
    model, other = ("poisson", "elastic-net") if counted else (target.model, "poisson")
    errors = f"{counts:.2g} of the mean's squared error by Poisson regression, {squares:.2g} by squares"
    chosen = f"{'Poisson' if counted else 'linear'} regression, unless --model {other}"
    notes.append(f"the target {quoted(name)} holds whole numbers, and held-out rows have {errors}: {chosen}")
    return replace(target, model=model)


def counts_or_numbers(frame: Any, y: Array, prepare: Any) -> tuple[bool, float, float]:
    """Whether Poisson regression is for these counts; and the squared errors of squares and of Poisson's, as a share of
    the mean's, each at the penalty that is best for its own loss, as a search would tune it."""
    from sklearn.linear_model import PoissonRegressor
    from sklearn.metrics import mean_poisson_deviance

    order = np.random.default_rng(0).permutation(len(y))
    X, y = prepare.fit_transform(frame)[order], y[order]
    models = [PoissonRegressor(alpha=y.mean() * penalty, max_iter=300) for penalty in 10.0 ** np.arange(-6.0, 3.0, 2.0)]
    made = by_squares(X, y), held_out(models, X, y)
    deviances = [[mean_poisson_deviance(y, np.maximum(one, 1e-10)) for one in of] for of in made]
    squares, counts = share_of_mean(made[0], y), share_of_mean([made[1][int(np.argmin(deviances[1]))]], y)
    return counts <= TIES[0] * squares and min(deviances[1]) <= TIES[1] * min(deviances[0]), squares, counts


# Classes


def _labels(target: Column, rows: Array) -> Array:
    values = target.values[rows]
    if target.kind == "text":
        return values.astype(str)
    if target.kind == "boolean":
        return values.astype(bool)
    whole = (values == np.round(values)).all() and np.abs(values).max() < 2**53
    return values.astype(np.int64) if whole else values


def _without_rare(y: Array, rows: Array, wish: Settings, notes: list[str]) -> tuple[Array, Array]:
    """Labels and rows without rare classes, if that is wanted."""
    classes, counts = np.unique(y, return_counts=True)
    few = counts < wish.min_class_size
    if not few.any():
        return y, rows
    if few.all():
        raise TableError(f"no class has {wish.min_class_size} rows: --min-class-size is too large")
    rare, total, number = np.isin(y, classes[few]), int(counts[few].sum()), int(few.sum())
    shown = listed([plain(label) for label in classes[few]], 3)
    what = f"{plural(number, 'class', 'classes')} with fewer than {wish.min_class_size} rows ({shown})"
    if total + int(np.sum(y.astype(str)[~rare] == OTHER)) >= wish.min_class_size:
        notes.append(f"{what}: joined into the class {quoted(OTHER)}, {total:,} rows")
        return np.where(rare, OTHER, y.astype(str)), rows
    notes.append(f"{what}: {plural(total, 'row')} left out, since together they have too few, too")
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
    labels = (plain(others[0]), plain(named[0])) if len(others) == 1 else (f"not {positive}", positive)
    if len(others) > 1:
        notes.append(f"{quoted(positive)} against the {len(others)} other classes, called {quoted(labels[0])}")
    return (y == named[0]).astype(np.int64), labels


def _check_classes(classes: Mapping[Any, int], model: str, wish: Settings, numbers: bool) -> None:
    """Whether the classes, with their rows, can be learnt."""
    if len(classes) < 2:
        raise TableError("one class only is left of the target: nothing to learn")
    least = min(classes, key=classes.__getitem__)
    count = classes[least]
    if count < wish.cv:
        ways = [f"--cv {count}"] if count >= 2 else []
        ways.append(f"--min-class-size {wish.cv} joins rare classes")
        ways += ["--task regression or --model poisson predicts the number"] if numbers else []
        few = f"has {plural(count, 'row')}, fewer than the {wish.cv} folds"
        raise TableError(f"the class {quoted(plain(least))} {few}: {', or '.join(ways)}")
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
