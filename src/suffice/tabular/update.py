"""`suffice update`: a run goes on with the rows of another day.

The run's table and the new file are joined, in the columns of the first; rows that are to go go by an id. Columns keep
the part in the model that they have, and their entries are read as before. What `suffice.sklearn.update` makes of these
rows takes the place of the old day in one step (`suffice.tabular.states`). An entry that cannot be read is missing,
with a note; a file in which more than STRANGE of a column cannot is another table, and refused. On a cluster a file
is a part: it comes to those that the run has, which are read where they are, or goes.

After a removal of rows all files of the folder are looked through for what is gone: the ids in their column, the rows
as they stood, and ids of LONG characters or more anywhere.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from sklearn.model_selection import check_cv

from suffice import files
from suffice.report import folder as places
from suffice.report.formats import duration
from suffice.sklearn.dealt_rows import Numbers, Rows, dealt, folds_of
from suffice.sklearn.update import Update, go_on
from suffice.tabular import live, states
from suffice.tabular.check import strange
from suffice.tabular.entries import Array, TableError, listed, plural, quoted
from suffice.tabular.parts import AnyTable, footers, of_files, on_cluster
from suffice.tabular.predict import read_recipe
from suffice.tabular.problem import TableProblem, pose
from suffice.tabular.reading import entries_of, read
from suffice.tabular.run import TunedTable, digest_of, execute, read_settings
from suffice.tabular.settings import Settings
from suffice.tabular.table import Reading, Recipe, Table
from suffice.tabular.targets import target_of

LOCK = "lock"
STRANGE = 0.5
LONG = 6
Entries = dict[str, list[str]]
Named = str | Path


@dataclass(frozen=True, eq=False)
class UpdatedRun:
    """What an update of a run has come to."""

    outcome: TunedTable
    update: Update
    notes: tuple[str, ...]  # on the new file
    erased: tuple[str, ...]  # what was looked for after a removal, and not found
    score: float | None  # before

    def plain(self) -> dict[str, Any]:
        """For machines."""
        told = {name: value for name, value in vars(self.update).items() if name not in ("before", "after")}
        told["gain"] = states.finite(told["gain"])
        about = {"message": self.update.message, "before": dict(self.update.before), "after": dict(self.update.after)}
        told |= {**about, "notes": list(self.notes), "erased": list(self.erased)}
        return {**self.outcome.plain(), "update": told}


def told(found: UpdatedRun) -> list[str]:
    """For a terminal."""
    outcome, made = found.outcome, found.update
    plain = outcome.plain()
    lines = [
        f"Rows     {made.added:,} added, {made.removed:,} removed: {made.rows:,} of the model",
        *map(live.noted, found.notes),
        f"Update   {made.message}",
        f"Score    {plain['score']:.4g} {plain['scoring']}"
        + (", of the same folds" if made.same_folds else ", of folds that time cuts anew")
        + ("" if found.score is None else f"; {found.score:.4g} before"),
        f"Saved    {outcome.model_file}",
    ]
    lines += [] if outcome.page is None else [f"Report   {outcome.page}"]
    return [*lines, *(f"Erased   {line}" for line in found.erased), f"Time     {duration(outcome.total_seconds)}"]


def update(
    folder: Path,
    path: Named | None,
    *,
    gone: Named | None = None,
    by: str | None = None,
    cluster: str | None = None,
    callback: Callable[[Any], object] | None = None,
    began: float | None = None,
) -> UpdatedRun:
    """Add the rows of a file to a run, and remove those whose entry in the column `by` stands in the file `gone`; of a
    run on a cluster, a file that is a part, and the part `gone`. `cluster`: the scheduler's address, if it has moved.
    `began` is when the clock started, by `time.monotonic()`; None: now."""
    began = monotonic() if began is None else began
    if path is None and gone is None:
        raise ValueError("give a file of rows to add, or --remove with a file of ids")
    read_settings(folder)  # there is a run
    lock = files.Lock.take(folder / LOCK)
    try:
        found = _updated(folder, path, gone, by, cluster, callback, began)
        found.outcome.total_seconds = monotonic() - began
        return found
    except (Exception, KeyboardInterrupt):
        states.forget(folder)
        raise
    finally:
        lock.release()


@dataclass(frozen=True, eq=False)
class Day:
    """The table of a new day, before it is learnt from; the fold of every row, used or not, None where time cuts."""

    table: AnyTable
    asked: Settings
    folds: tuple[Numbers, ...] | None
    added: int
    removed: int
    digest: str  # of the file that came
    more: dict[str, Any]  # of the state: how many rows there ever were, and how many each part has
    notes: tuple[str, ...] = ()
    erased: Callable[[], tuple[str, ...]] = tuple


def _updated(
    folder: Path, path: Named | None, gone: Named | None, by: str | None, cluster: str | None, callback: Any,
    began: float,
) -> UpdatedRun:  # fmt: skip
    settings, state = known_of(folder)
    history, recipe, draft = states.lines_of(folder), read_recipe(folder), states.begin(folder)
    with on_cluster(cluster or settings.cluster) if settings.files else nullcontext() as client:
        if settings.files:
            day = _parts(path, gone, by, settings, state, client)
        else:
            day = _rows(folder, draft, path, gone, by, settings, state, history, recipe)
        problem = pose(day.table, day.asked, (state["numeric"], state["categorical"]))
        _check_classes(problem, state)
        used = target_of(day.table, day.asked, []).rows
        weight = np.ones(len(problem.y)) if problem.weight is None else problem.weight
        held = None if day.folds is None else tuple(one[used] for one in day.folds)
        rows = Rows(problem.X, problem.y, weight, None, held, len(used))

        def fit(search: Any) -> None:
            search.cv = rows.splits or search.cv  # which the report takes
            go_on(search, rows, states.yesterday_of(state), day.added, day.removed)

        name = f"{history[0]['file']} after {plural(len(history), 'update')}"
        called = replace(day.asked, data=name, files=())  # by the report
        outcome = execute(called, problem, folder, callback=callback, fit=fit, into=draft, began=began)
    told = outcome.search.update_
    if outcome.failures:
        raise OSError(f"nothing has changed in {folder}: {outcome.failures[0]}")
    came = states.Came(Path(path or gone or "").name, day.digest, day.added, day.removed, told.message)
    more = {"folds": None if day.folds is None else [one.tolist() for one in day.folds]}
    states.remember(outcome, draft, came, history, {**more, **day.more})
    places.write(draft / places.COMMAND, day.asked.plain())
    states.commit(folder)
    return UpdatedRun(outcome, told, day.notes, day.erased(), history[-1]["score"])


def _rows(
    folder: Path, draft: Path, path: Named | None, gone: Named | None, by: str | None, settings: Settings,
    state: Mapping[str, Any], history: Sequence[dict[str, Any]], recipe: Recipe,
) -> Day:  # fmt: skip
    """Of one table, whose rows are in a file: that of the new day in the draft."""
    if (gone is None) != (by is None):
        raise ValueError("--remove FILE goes with --id COLUMN, in which rows to remove are looked for")
    digest = "" if path is None else _checked_digest(path, history)
    known = _entries(settings.data, recipe.reading)
    stays, ids = _staying(known, gone, by, recipe.reading)
    place = state.get("places", len(stays))
    left = {name: [column[i] for i in np.flatnonzero(stays)] for name, column in known.items()}
    new, notes = ({name: [] for name in known}, []) if path is None else _new_entries(path, known, recipe, settings)
    added, removed = len(next(iter(new.values()))), int((~stays).sum())
    whole = {name: left[name] + new[name] for name in known}
    files.replace_atomically(draft / states.ROWS, _written(whole, recipe.reading.delimiter))
    table = read(draft / states.ROWS, like=recipe.reading)
    asked = replace(settings, data=str(folder / states.ROWS), digest=digest_of(draft / states.ROWS))
    group, folds = settings.group_column, _folds(settings, recipe, state)
    groups = [] if group is None else [np.array(one[group]) for one in (left, new)]
    folds = None if folds is None else _dealt(folds, stays, place + np.arange(added), *groups)
    lost = {name: [column[i] for i in np.flatnonzero(~stays)] for name, column in known.items()}

    erased = tuple if by is None else partial(_looked_for, folder, by, ids, lost, recipe.reading)
    return Day(table, asked, folds, added, removed, digest, {"places": place + added}, tuple(notes), erased)


def _parts(
    path: Named | None, gone: Named | None, by: str | None, settings: Settings, state: Mapping[str, Any], client: Any
) -> Day:
    """Of parquet files on a cluster, of which one comes, or one goes."""
    if by is not None:
        raise ValueError("--id is for runs of one table: on a cluster --remove takes a part as a whole")
    paths, sizes = list(settings.files), list(state["sizes"])
    stays = np.ones(sum(sizes), dtype=bool)
    if gone is not None:
        if str(gone) not in paths:
            raise TableError(f"{quoted(gone)} is no part of the run: it has {listed(paths, 3)}")
        k = paths.index(str(gone))
        stays[sum(sizes[:k]) :][: sizes[k]] = False
        del paths[k], sizes[k]
    there = footers(paths)
    if changed := [one for one, (now, _), then in zip(paths, there, sizes, strict=True) if now != then]:
        raise TableError(f"{quoted(changed[0])} has changed since the run: its rows are not known any more")
    new = footers([] if path is None else [path])
    if same := [one for one, (_, known) in zip(paths, there, strict=True) if known in [digest for _, digest in new]]:
        raise TableError(f"{quoted(path)} was added already, as {quoted(same[0])}: nothing is done")
    paths += [] if path is None else [str(path)]
    if not paths:
        raise TableError(f"{quoted(gone)} is the only part of the run: nothing would be left")
    table, place, added = of_files(paths, client), state["places"], sum(rows for rows, _ in new)
    before = tuple(np.array(one, dtype=np.intp) for one in state["folds"])
    folds = _dealt(before, stays, place + np.arange(added))
    asked = replace(settings, data=paths[0], files=tuple(paths), digest=table.digest)
    more = {"places": place + added, "sizes": [rows for rows, _ in [*there, *new]]}
    return Day(table, asked, folds, added, int((~stays).sum()), "".join(one for _, one in new), more, table.notes)


def _dealt(before: tuple[Numbers, ...], stays: Array, new: Numbers, *groups: Array) -> tuple[Numbers, ...]:
    """The folds of rows that stay, and of new ones by their places or groups."""
    folds = dealt(tuple(one[stays] for one in before), new, *groups)
    if any(set(one) != set(old) for one, old in zip(folds, before, strict=True)):
        raise TableError(f"without the {int((~stays).sum()):,} rows a fold holds out none: tune what is left anew")
    return folds


# What the run has


def known_of(folder: Path) -> tuple[Settings, dict[str, Any]]:
    """The settings of a run, with the model that it has come to, and where it goes on from."""
    settings = read_settings(folder)
    state = places.read(folder / states.STATE, "penalties", "weights", "numeric", "model")
    if state is None:
        raise ValueError(f"{folder} does not say where to go on from: `suffice resume {folder}` ends its run")
    if settings.files:
        return replace(settings, model=state["model"], task=state["task"]), state
    if (folder / states.ROWS).exists():
        settings = replace(settings, data=str(folder / states.ROWS))
    elif settings.data == "DataFrame":
        raise ValueError(f"{folder} is the run of a DataFrame, whose rows are in no file: tune them as a file")
    if digest_of(settings.data) != settings.digest:
        raise TableError(f"{quoted(settings.data)} has changed since the run: its rows are not known any more")
    return replace(settings, model=state["model"], task=state["task"]), state


def _folds(settings: Settings, recipe: Recipe, state: Mapping[str, Any]) -> tuple[Numbers, ...] | None:
    """The fold of every row of the run's table, those that the model leaves out too; None where time cuts them."""
    if "folds" in state:
        known = state["folds"]
        return None if known is None else tuple(np.array(one, dtype=np.intp) for one in known)
    table = read(settings.data, like=recipe.reading)
    problem = pose(table, settings, (state["numeric"], state["categorical"]))
    y, used = problem.y, target_of(table, settings, []).rows
    splits = list(check_cv(problem.cv, y, classifier=problem.task == "classification").split(y, y))
    found = folds_of(splits, len(y))
    if found is None:
        return None
    whole = tuple(np.zeros(len(used), dtype=np.intp) for _ in found)  # of rows that are left out, any fold will do
    for numbers, of_used in zip(whole, found, strict=True):
        numbers[used] = of_used
    return whole


def _check_classes(problem: TableProblem, state: dict[str, Any]) -> None:
    if state["classes"] is None:
        return
    known, now = state["classes"], np.unique(problem.y).tolist()
    changed = [(one, "is new") for one in now if one not in known]
    for label, what in changed + [(one, "is gone") for one in known if one not in now]:
        raise TableError(f"the class {quoted(label)} of the target {what}: tune all rows anew, in another folder")


# Rows as they stand in files


def _entries(path: Named, like: Reading) -> Entries:
    names = read(path, like=like).origins
    return dict(zip(names, entries_of(path, names, like), strict=True))


def _checked_digest(path: Named, history: Sequence[dict[str, Any]]) -> str:
    """The digest of a new file; `TableError` if it has come before."""
    digest = digest_of(path)
    for line in history:
        if line["digest"] == digest:
            came = f"was added on {line['date']} already, as {quoted(line['file'])}"
            raise TableError(f"{quoted(path)} {came}: nothing is done")
    return digest


def _new_entries(path: Named, known: Entries, recipe: Recipe, settings: Settings) -> tuple[Entries, list[str]]:
    """The entries of a new file in the run's columns, and notes; `TableError` if it is another table."""
    table = read(path, like=recipe.reading)
    roles = (settings.weights, settings.event, settings.group_column, settings.time_column)
    needed = [*recipe.needs, recipe.target, *(name for name in roles if name is not None)]
    if missing := [name for name in dict.fromkeys(needed) if name not in table.origins]:
        raise TableError(
            f"{quoted(path)} lacks {listed(missing)}, which the model needs: it has {listed(table.origins)}"
        )
    for name in (*recipe.needs, recipe.target):
        _check_type(path, table, name, recipe)
    absent, more = [n for n in known if n not in table.origins], [n for n in table.origins if n not in known]
    notes = [*table.notes]
    notes += [f"{path} lacks {listed(absent)}, of no use to the model: empty there"] if absent else []
    notes += [f"{path} also has {listed(more)}, which the run has not: left out"] if more else []
    names = [name for name in known if name not in absent]
    found = dict(zip(names, entries_of(path, names, recipe.reading), strict=True))
    before = read(settings.data, like=recipe.reading)
    for column in (column for column in table.columns if column.name in before.names and not column.origin):
        if column.name in (*recipe.needs, recipe.target) and "other" not in (column.kind, before[column.name].kind):
            notes += strange(before[column.name], column, column.name in recipe.categorical)
    return {name: found.get(name, [""] * len(table)) for name in known}, notes


def _check_type(path: Named, table: Table, name: str, recipe: Recipe) -> None:
    """Whether entries can be read as they were."""
    columns = [one for one in table.columns if name in (one.origin, one.name)]
    form = recipe.reading.forms[name]
    for stray in (stray for column in columns for stray in column.strays if stray.what[1] == form.wrong[1]):
        if stray.count > STRANGE * len(table) or name == recipe.target:
            raise TableError(
                f"{quoted(path)}: column {quoted(name)} is {form.kind} in the run, and {stray.count:,} of "
                f"{len(table):,} entries are {stray.what[1]}, such as {quoted(stray.entry, 30)} (line {stray.line})"
            )


def _staying(known: Entries, gone: Named | None, by: str | None, like: Reading) -> tuple[Array, list[str]]:
    """Which rows stay, and the ids of those that do not."""
    count = len(next(iter(known.values())))
    if gone is None or by is None:
        return np.ones(count, dtype=bool), []
    if by not in known:
        raise TableError(f"there is no column {quoted(by)} in the run's table: it has {listed(list(known))}")
    there = _entries(gone, like)
    if by not in there:
        raise TableError(f"{quoted(gone)} has no column {quoted(by)}: it has {listed(list(there))}")
    ids = dict.fromkeys(there[by])
    if missing := [one for one in ids if one not in set(known[by])]:
        which = f"{quoted(by)} {listed(missing, 3)}"
        raise TableError(f"{quoted(gone)}: the run has no row with {which}: nothing is removed")
    stays: Array = np.array([one not in ids for one in known[by]], dtype=bool)
    if not stays.any():
        raise TableError(f"{quoted(gone)} has the ids of all {count:,} rows: nothing would be left")
    return stays, list(ids)


def _written(entries: Entries, delimiter: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(entries)
    writer.writerows(zip(*entries.values(), strict=True))
    return text.getvalue().encode("utf-8")


def _looked_for(folder: Path, by: str, ids: list[str], lost: Entries, like: Reading) -> tuple[str, ...]:
    """What was looked for in the run's folder, and is not there; OSError if it is."""
    names = sorted(path for path in folder.rglob("*") if path.is_file())
    there = set(_entries(str(folder / states.ROWS), like)[by]) & set(ids)
    records = _written(lost, like.delimiter).splitlines()[1:]
    marks = [one.encode() for one in ids if len(one) >= LONG]
    found = [str(by)] if there else []
    for path in names:
        content = path.read_bytes()
        found += [path.name] if any(one in content for one in (*records, *marks)) else []
    if found:
        raise OSError(f"what was removed is still in {listed(found)}: remove {folder} and tune again")
    shown = ", ".join(path.name for path in names)
    return (
        f"{plural(len(ids), 'id')} of {plural(len(records), 'row')} looked for in {shown}: none of them is there",
        f"in column {by!r} of {states.ROWS}; anywhere: rows as they stood, {len(marks)} ids of {LONG} letters or more",
    )
