"""A tuning run in its folder:

    command.json    what was asked for, and a digest of the table
    table.json      how the table was read, and what of it the model needs: `suffice.tabular.predict` reads others so
    journal.jsonl   every evaluation, on disk before the next one begins
    model.skops     the pipeline, fitted to all rows; model.joblib where skops is not installed
    report.json     what was found, as plain data
    report.html     the same, to look at
    result.json     what was told at the end

`--max-seconds` are for all of it, the report included: what is under way when they are over is given up. A run that has
come to its end is not run again. The same command in the same folder goes on where it was, and ends at the same bits.
Budgets and the number of processes may differ; anything else is another run, and refused.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b, file_digest
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np

from suffice import files
from suffice.journal.fingerprint import versions
from suffice.report import folder as places
from suffice.result import Record, Status
from suffice.rows.given import check_dask_frame
from suffice.signals import TimeOver, time_limit
from suffice.sklearn import SufficeSearchCV
from suffice.sklearn.measures import compared_measures
from suffice.tabular.columns import TableProblem, pose
from suffice.tabular.entries import quoted
from suffice.tabular.measure import baseline, check_scoring
from suffice.tabular.model_file import SAVED, one_line, save
from suffice.tabular.outcome import TunedTable
from suffice.tabular.parts import AnyTable, check_settings, of_files, of_frame, on_cluster
from suffice.tabular.predict import finished, unseen
from suffice.tabular.settings import AfterSearchError, Settings
from suffice.tabular.table import RECIPE, TableError, open_table, read

REPORT, PAGE, RESULT = "report.json", "report.html", "result.json"
FOR_THE_REPORT = (0.4, 10.0)  # of max_seconds, and seconds at most
REPORT_SECONDS = 2.0  # a report's models take no longer than the search, or than this
GRACE = 0.4  # seconds for what follows a search that was interrupted


@contextmanager
def opened(settings: Settings) -> Iterator[AnyTable]:
    """The table of a run: the one in memory, or the one on a cluster, as long as it is needed."""
    if not settings.files:
        yield read(settings.data)
        return
    check_settings(settings)
    with on_cluster(settings.cluster) as client:
        yield of_files(settings.files, client)


def digest_of(path: str | os.PathLike[str]) -> str:
    """A digest of a file's bytes."""
    with open_table(path) as file:
        return file_digest(cast(Any, file), lambda: blake2b(digest_size=16)).hexdigest()


def load(settings: Settings, table: AnyTable | None = None) -> tuple[TableProblem, Settings]:
    """The problem that the table poses, and the settings with the table's digest."""
    problem = pose(read(settings.data) if table is None else table, settings)
    check_scoring(settings.scoring, problem)
    digest = (table.digest if table is not None else "") or digest_of(settings.data)
    if settings.digest and digest != settings.digest:
        raise TableError(f"{quoted(settings.table)} has changed since the run began: a new run needs another folder")
    return problem, replace(settings, digest=digest)


def claim(folder: Path, settings: Settings) -> None:
    """Make the folder this run's own; `TableError` if it is another's, or cannot be written."""
    known = places.read(folder / places.COMMAND)
    if known is not None:
        try:
            there = Settings.from_plain(known)
        except ValueError as error:
            raise TableError(f"{quoted(folder)} holds other files: choose another --out") from error
        if changed := settings.changes(there):
            what = ", ".join("the table" if name == "digest" else name for name in changed)
            raise TableError(f"{quoted(folder)} holds another run (it differs in {what}): choose another --out")
    elif folder.exists() and any(name in os.listdir(folder) for name in ("journal.jsonl", "study.json")):
        raise TableError(f"{quoted(folder)} holds other files: choose another --out")
    try:
        for name in (*SAVED, RECIPE, REPORT, PAGE, RESULT):  # found out before a long search
            files.present(folder / name)
        places.write(folder / places.COMMAND, settings.plain())
    except OSError as error:
        raise TableError(f"the folder {quoted(folder)} cannot be written: {error.strerror or error}") from error


def read_settings(folder: Path) -> Settings:
    """What a run was asked for; ValueError if the folder does not say."""
    known = places.read(folder / places.COMMAND)
    if known is None:
        raise ValueError(f"{folder} holds no run: there is no {places.COMMAND} in it")
    try:
        return Settings.from_plain(known)
    except ValueError as error:
        raise ValueError(f"{folder / places.COMMAND} cannot be used: {error}") from error


def execute(
    settings: Settings,
    problem: TableProblem,
    folder: Path,
    *,
    jobs: int = 1,
    callback: Callable[[Record], object] | None = None,
    stage: Callable[[str], object] = lambda what: None,
    began: float | None = None,
) -> TunedTable:
    """Search, fit and write everything down. What ends the search early is reported by `search.result_`. `began` is
    when the clock of max_seconds started, by `time.monotonic()`; None: now."""
    began = time.monotonic() if began is None else began
    clock = Clock(began, math.inf if settings.max_seconds is None else settings.max_seconds, not settings.no_report)
    held = None if settings.test is None else unseen(settings.test, settings.target, problem, settings.weights)
    places.write(folder / RECIPE, asdict(problem.recipe))
    search, caught = _searched(settings, problem, folder, clock.for_the_search(), jobs, callback)
    seconds = time.monotonic() - began
    until = clock.until
    if search.result_.status in (Status.INTERRUPTED, Status.TERMINATED):
        until = min(until, time.monotonic() + GRACE)
    model = finished(search.best_estimator_, problem)
    saved, failures = save(model, folder)
    notes = [*problem.notes, *_told(caught)]
    outcome = TunedTable(problem, search, tuple(notes), folder, *saved, seconds, failures=tuple(failures))
    inverse = np.exp if problem.log_target else None
    outcome = _afterwards(outcome, "measures", lambda: replace(outcome, measures=compared_measures(
        search.held_out_, search.baseline_, inverse=inverse, labels=problem.labels  # in the target's own units
    )))  # fmt: skip
    try:
        with time_limit(until):
            outcome = _afterwards(outcome, "baseline", lambda: replace(outcome, baseline=baseline(search, problem)))
            if held is not None:
                outcome = replace(outcome, notes=(*outcome.notes, *held.notes))
                outcome = _afterwards(outcome, "test", lambda: replace(outcome, test=held.measured(model)))
            if not settings.no_report:
                most = min(time.monotonic() + max(seconds, REPORT_SECONDS), until)
                outcome = _afterwards(outcome, "report", lambda: _report(outcome, settings, most, stage))
    except TimeOver:
        note = f"no time was left for all that follows the search: `suffice resume {folder}` makes up for it"
        outcome = replace(outcome, notes=(*outcome.notes, note))
    return replace(outcome, total_seconds=time.monotonic() - began)


def _searched(
    settings: Settings, problem: TableProblem, folder: Path, seconds: float, jobs: int, callback: Any
) -> tuple[SufficeSearchCV, list[warnings.WarningMessage]]:
    """The search, come to its end, and what was warned of meanwhile."""
    search = SufficeSearchCV(
        problem.estimator,
        problem.space,
        cv=problem.cv,
        scoring=problem.optimised(None) if settings.scoring is None else settings.scoring,
        options=replace(settings.options, max_seconds=seconds),
        n_jobs=1 if settings.cluster else jobs,
        journal=folder,
        callback=callback,
        groups_of_features=problem.groups,
        certify_global=settings.certify_global,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            search.fit(problem.X, problem.y, **problem.weights_of(slice(None)))
        except Exception as error:
            if not hasattr(search, "best_penalties_"):
                raise
            raise AfterSearchError(
                f"the search is done, but its model could not be fitted: {one_line(error)}"
            ) from error
    return search, caught


@dataclass(frozen=True)
class Clock:
    """How max_seconds, from `began` on, are shared out."""

    began: float
    max_seconds: float
    report: bool = True

    @property
    def until(self) -> float:
        return self.began + self.max_seconds

    def for_the_search(self) -> float:
        """Seconds from now on; a little in any case, in which one evaluation is made."""
        share, most = FOR_THE_REPORT
        left = self.until - time.monotonic()
        return max(left - (min(share * left, most) if self.report and left < math.inf else 0.0), 0.01)


def write_result(outcome: TunedTable, lines: Sequence[str]) -> None:
    """Write down what is told at the end, so that a finished run need not be made again."""
    command = places.read(outcome.folder / places.COMMAND)  # whose answer it is: the file may be moved
    known = {"versions": versions(), "command": command, "found": outcome.plain(), "lines": list(lines)}
    places.write(outcome.folder / RESULT, known)


def finished_result(folder: Path, settings: Settings) -> dict[str, Any] | None:
    """What was written down of a run with these settings that came to its end with all that was asked for; None if it
    has to be made, or made again."""
    known, command = places.read(folder / RESULT), places.read(folder / places.COMMAND)
    if known is None or command is None or settings.test is not None:
        return None
    try:
        there = Settings.from_plain(command)
        found, lines = known["found"], [str(line) for line in known["lines"]]
        complete = found["success"] and not found["failures"] and known["versions"] == versions()
        complete = complete and known["command"] == command
        needed = [folder / Path(found["model_file"]).name, *([] if settings.no_report else [folder / PAGE])]
    except (KeyError, TypeError, ValueError):
        return None
    if not complete or there.test is not None or not all(file.exists() for file in needed):
        return None
    digest = of_files(settings.files, None).digest if settings.files else digest_of(settings.data)
    return None if there.changes(replace(settings, digest=digest)) else {"found": found, "lines": lines}


def _afterwards(outcome: TunedTable, what: str, step: Callable[[], TunedTable]) -> TunedTable:
    """One step of what follows the search. The model is there, and must not be lost if it fails."""
    try:
        return step()
    except Exception as error:
        return replace(outcome, failures=(*outcome.failures, f"the {what} could not be made: {one_line(error)}"))


def _told(caught: list[warnings.WarningMessage]) -> list[str]:
    """What was warned of while tuning, once each; levels that a fold has not seen are nothing to worry about."""
    texts = [" ".join(str(item.message).split()) for item in caught if "unknown categories" not in str(item.message)]
    return list(dict.fromkeys(text if len(text) <= 200 else f"{text[:197]}..." for text in texts))


def _report(outcome: TunedTable, settings: Settings, until: float, stage: Callable[[str], object]) -> TunedTable:
    """The outcome with report.json and report.html."""
    from suffice.sklearn import report

    problem = outcome.problem
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = report.collect(
            outcome.search,
            problem.X,
            problem.y,
            about=outcome.about(settings),
            sample_weight=problem.weight,
            inverse=np.exp if problem.log_target else None,
            labels=problem.labels,
            until=until,
            stage=lambda what: stage(f"report: {what}"),
        )
    places.write(outcome.folder / REPORT, data)
    return replace(outcome, page=write_page(outcome.folder, data))


def write_page(folder: Path, data: Mapping[str, Any]) -> Path:
    """report.html from the data of report.json; ValueError if these are not what they should be."""
    from suffice.sklearn import report

    text = report.page(dict(data))
    files.replace_atomically(folder / PAGE, text.encode("utf-8"))
    return folder / PAGE


def tune_frame(
    frame: Any,
    target: str,
    out: str | os.PathLike[str],
    *,
    client: Any = None,
    callback: Callable[[Record], object] | None = None,
    **how: Any,
) -> TunedTable:
    """`suffice tune --cluster`, for a `dask.dataframe` whose rows live on the cluster of `client`, or of the current
    `distributed.Client`.

    `target` names the column to predict, `out` is the run's folder: journal, model and report are there, `suffice
    predict` takes it, and the same call goes on where it was. `how` may be `task`, `model`, `cv`, `seed`, `drop`,
    `keep`, `weights`, `log_target`, `positive`, `test`, `max_evaluations`, `max_seconds` and `no_report`, as on the
    command line. The result has `result`, `plain()` and `model_file`.
    """
    check_dask_frame(frame)
    client = import_module("distributed").get_client() if client is None else client
    lists = {name: tuple(value) for name, value in how.items() if name in ("drop", "keep")}
    settings = Settings(data="dask.dataframe", target=target, **{**how, **lists})
    check_settings(settings)
    problem, settings = load(settings, of_frame(frame, client))
    claim(Path(out), settings)
    return execute(settings, problem, Path(out), callback=callback)
