"""A tuning run in its folder:

    command.json    what was asked for, and a digest of the table
    table.json      how the table was read, and what of it the model needs: `suffice.tabular.predict` reads others so
    journal.jsonl   every evaluation, on disk before the next one begins
    model.skops     the pipeline, fitted to all rows (model.joblib without skops); intervals.skops: models of the folds
    report.json     what was found, as plain data; report.html: the same, to look at
    history.json    what was found, in a line; state.json: where an update begins (`suffice.tabular.states`)

`--max-seconds` are for all of it, from the start of the process to the report: what is under way when they are over is
given up, but for the page itself. The same command in the same folder goes on where it was, and ends at the same bits:
what is in the journal is not made again. Budgets and the number of processes may differ; else it is refused.
"""

from __future__ import annotations

import difflib
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b, file_digest
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, cast

import numpy as np
from sklearn.base import clone
from sklearn.metrics import get_scorer, get_scorer_names

from suffice import files
from suffice.report import folder as places
from suffice.report.html import ShownPage
from suffice.result import Record, Result, Status
from suffice.signals import TimeOver, time_limit
from suffice.sklearn import SufficeSearchCV, coefficients
from suffice.sklearn.measures import compared_measures, shown
from suffice.sklearn.survival import checked_times
from suffice.tabular import intervals, states
from suffice.tabular.entries import TableError, quoted
from suffice.tabular.frames import table_for
from suffice.tabular.model_file import SAVED, as_note, one_line, save
from suffice.tabular.parts import AnyTable, check_settings, footers, of_files, on_cluster
from suffice.tabular.predict import finished, predicted, unseen
from suffice.tabular.problem import TableProblem, pose
from suffice.tabular.reading import open_table, read
from suffice.tabular.settings import MODELS, POSITIVE, AfterSearchError, Settings
from suffice.tabular.table import RECIPE

REPORT, PAGE = "report.json", "report.html"
FOR_THE_REPORT = (0.4, 10.0)  # of max_seconds, and seconds at most
REPORT_SHARE, REPORT_SECONDS = 0.1, 1.0  # a report's models end when so much of the search, or this, has followed it
PAGE_SECONDS = 1.0  # a report without models of its own may take so long beyond max_seconds
NEW_LEVELS = "Found unknown categories"  # which a fold has not seen: no worry
SAID = (NEW_LEVELS, "is optimised in its place", "certify_global=")  # what `conclude` tells
GRACE = 0.4  # seconds for what follows a search that was interrupted


@dataclass(eq=False, repr=False)
class TunedTable:
    """What a run has found: the search, and what has been made of it so far."""

    problem: TableProblem
    search: SufficeSearchCV
    notes: list[str]
    folder: Path
    model_file: Path | None  # None: it could not be written
    model_types: tuple[str, ...]  # what skops has to trust, besides the types it knows
    failures: list[str]  # what went wrong after the search
    seconds: float  # of search and final fit
    total_seconds: float = 0.0  # with all that comes before and after
    before: float = 0.0  # seconds
    page: Path | None = None
    model: Any = None  # what is delivered: the pipeline, with the target's own labels and units
    temporary: TemporaryDirectory[str] | None = None  # which ends with this
    test: dict[str, float] | None = None  # measures of the model on a table that it has not seen
    measures: dict[str, Any] | None = None  # of the folds' held-out rows: `suffice.sklearn.measures`

    def attempt(self, name: str, step: Callable[[], Any]) -> None:
        """Make one of these, after the search. The model is there, and must not be lost if it fails."""
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=NEW_LEVELS)
                setattr(self, name, step())
        except Exception as error:
            what = "report" if name == "page" else name
            self.failures.append(f"the {what} could not be made: {one_line(error)}")

    @property
    def result(self) -> Result:
        """Of the search."""
        return self.search.result_

    @property
    def report(self) -> ShownPage | None:
        """The report, if there is one: notebooks show it, and `save` writes it into a file."""
        return None if self.page is None else ShownPage(files.read_bounded(self.page, files.DATA).decode("utf-8"))

    def predict(self, frame: Any, times: Sequence[float] = ()) -> Any:
        """What the model says of the rows of a DataFrame, with the columns and numbers of `suffice predict`, as a
        pandas DataFrame; of Cox's model the probabilities of no event until `times`, too. A warning tells of levels
        that are new."""
        import pandas

        recipe, at = self.problem.recipe, [float(time) for time in checked_times(times)] if len(times) else ()
        names, columns, notes = predicted(self.model, recipe, table_for(recipe, frame), at)
        for note in notes:
            if note not in self.notes:  # of how it is read
                warnings.warn(note, stacklevel=2)
        return pandas.DataFrame(dict(zip(names, columns, strict=True)), index=getattr(frame, "index", None))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Everything, in a new folder, which `suffice predict` takes."""
        copytree(self.folder, folder, ignore=ignore_patterns("lock"))

    def __str__(self) -> str:
        from suffice.tabular import live

        return "\n".join([*map(live.noted, self.problem.notes), *live.conclude(self)])

    def __repr__(self) -> str:
        measured = "" if self.measures is None else f", {shown(self.measures['tuned'])}"
        return f"<TunedTable of {self.problem.recipe.target!r}: {self.problem.model}{measured}>"

    @property
    def unproven(self) -> str:
        """What `--certify-global` asked for and has not got; nothing if it has, or was not given."""
        found = getattr(self.search, "global_certificate_", None)
        if found is None or found.success:
            return ""
        proven = f"{found.landscape.gap_in_percent} %" if found.lower > 0.0 else "nothing"
        return f"--certify-global asked for {100.0 * found.epsilon:g} %, and {proven} is proven: {found.message}"

    def plain(self) -> dict[str, Any]:
        """For machines."""
        search, result = self.search, self.search.result_
        best = {name.partition("__")[2] or name: float(value) for name, value in search.best_params_.items()}
        return {
            "status": result.status.name.lower(),
            "message": result.message,
            "success": bool(result.success),
            "task": self.problem.task,
            "model": self.problem.model,
            "best_params": best,
            "penalties": {name: float(value) for name, value in search.best_penalties_.items()},
            "scoring": str(search.scoring if search.surrogate_ else search.optimised_scoring_),
            "score": float(search.best_score_),
            "measures": self.measures,
            "coefficients": coefficients.summary(search),
            "optimised_scoring": search.optimised_scoring_,
            "global_gap": getattr(search, "global_gap_", None),
            "interval": [*map(states.finite, search.score_interval_)],
            "optimised_interval": [*map(states.finite, search.optimised_interval_)],
            "evaluations": len(search.cv_results_["work"]),
            "work": float(np.sum(search.cv_results_["work"])),
            "seconds": round(self.seconds, 3),
            "total_seconds": round(self.total_seconds, 3),
            "folder": str(self.folder),
            "model_file": None if self.model_file is None else str(self.model_file),
            "model_types": list(self.model_types),
            "report": None if self.page is None else str(self.page),
            "test": self.test,
            "jobs": search.estimate_of_jobs_ or None,
            "failures": self.failures,
            "notes": self.notes,
        }

    def about(self, settings: Settings) -> dict[str, Any]:
        """What a report says of the run."""
        problem = self.problem
        target = f"logarithm of {settings.target}" if problem.log_target else settings.target
        target = target if settings.event is None else f"{target} until {settings.event}"
        found = {
            "title": f"{Path(settings.table).name}: {target}",
            "table": settings.table,
            "target": target,
            "task": "survival" if settings.event is not None else problem.task,
            "model": f"{problem.model}: {MODELS[problem.model].words}",
            "rows": len(problem.y),
            "held out": settings.folds,
            "numeric columns": list(problem.numeric),
            "categorical columns": list(problem.categorical),
            "notes": self.notes,
            "seconds": round(self.seconds, 1),
            "units of coefficients": _units(problem),
            "load and predict": "\n".join(self.how_to_load()),
        }
        if problem.labels is not None or problem.classes == 2:
            found["more likely"] = more_likely(problem)
        if problem.labels is not None:
            found["positive class"] = f"1 is {problem.labels[1]}, 0 is {problem.labels[0]}"
        if self.test is not None:
            found["held-out table"] = {"table": settings.test, **self.test}
        return found

    def how_to_load(self) -> list[str]:
        """How to predict with the model, as commands and code."""
        if self.temporary is not None:
            ways = {"predict(frame)": "the result of tune_table", "save('folder')": "for suffice predict"}
            return [f"tuned.{call}    # {what}" for call, what in ways.items()]
        y, times = self.problem.y, ""
        if self.problem.model == "cox":
            times = f" --times {np.median(y[y > 0.0]):g}"
        lines = [f"suffice predict {self.folder} new.csv{times}    # at a shell: reads new files as this one was read"]
        if self.model_file is None:
            return lines
        library, more = "skops.io", f", trusted={list(self.model_types)}"
        if self.model_file.suffix != ".skops":
            library, more = "joblib", ""
            lines.append("# a joblib file runs code that the file contains: only if you trust it (skops, if installed, "
                         "writes one to be checked)")  # fmt: skip
        return [
            *lines,
            f"import {library}, suffice.tabular    # or in Python",
            f"model = {library}.load({str(self.model_file)!r}{more})",
            'model.predict(suffice.tabular.read("new.csv").frame())',
        ]


def more_likely(problem: TableProblem) -> str:
    """The class of two that positive coefficients are for."""
    return str((problem.labels or np.unique(problem.y).tolist())[1])


def _units(problem: TableProblem) -> str:
    """What a coefficient says, in words."""
    what = "log-odds" if problem.task == "classification" else "prediction"
    if problem.model in POSITIVE:
        counts = problem.model in ("poisson", "negative-binomial")
        what = f"logarithm of the expected {'count' if counts else 'value'}"
    what = {"cox": "logarithm of the hazard", "svm": "decision value"}.get(problem.model, what)
    what = "prediction's logarithm" if problem.log_target else what
    return f"change of the {what} for one standard deviation of a number or a category of two, or where another applies"


# Before the search


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
    if settings.scoring is not None and problem.optimised(settings.scoring) != settings.scoring:
        _check_scoring(settings.scoring, problem)
    digest = (table.digest if table is not None else "") or digest_of(settings.data)
    if settings.digest and digest != settings.digest:
        raise TableError(f"{quoted(settings.table)} has changed since the run began: a new run needs another folder")
    return problem, replace(settings, digest=digest)


def _check_scoring(scoring: str, problem: TableProblem) -> None:
    """Whether a score goes with the model and the target, found out on a few rows before a long search."""
    known = get_scorer_names()
    if scoring not in known:
        near = difflib.get_close_matches(scoring, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "scikit-learn lists them by get_scorer_names()"
        raise TableError(f"there is no score {quoted(scoring)}: {hint}")
    if problem.task == "classification":
        rows = np.concatenate([np.flatnonzero(problem.y == label)[:20] for label in np.unique(problem.y)])
    else:
        rows = np.arange(min(200, len(problem.y)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fitted = clone(problem.estimator).fit(problem.X.iloc[rows], problem.y[rows])
            found = float(get_scorer(scoring)(fitted, problem.X.iloc[rows], problem.y[rows]))
        except (ValueError, AttributeError, TypeError) as error:
            raise TableError(f"the score {scoring} cannot be used here: {error}") from error
    if not math.isfinite(found):
        reasons = [str(item.message).splitlines() for item in caught if "scor" in str(item.message).lower()]
        raise TableError(f"the score {scoring} cannot be used here" + (f": {reasons[0][-1]}" if reasons else ""))


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
        for name in (*SAVED, RECIPE, REPORT, PAGE):  # found out before a long search
            files.present(folder / name)
        places.write(folder / places.COMMAND, settings.plain())
    except OSError as error:
        raise TableError(f"the folder {quoted(folder)} cannot be written: {error.strerror or error}") from error


def read_settings(folder: Path) -> Settings:
    """What a run was asked for; ValueError if the folder does not say."""
    states.settle(folder)
    known = places.read(folder / places.COMMAND)
    if known is None:
        raise ValueError(f"{folder} holds no run: there is no {places.COMMAND} in it")
    try:
        return Settings.from_plain(known)
    except ValueError as error:
        raise ValueError(f"{folder / places.COMMAND} cannot be used: {error}") from error


# The search, and what follows it


def execute(
    settings: Settings,
    problem: TableProblem,
    folder: Path,
    *,
    callback: Callable[[Record], object] | None = None,
    stage: Callable[[str], object] = lambda what: None,
    began: float | None = None,
    temporary: TemporaryDirectory[str] | None = None,
    fit: Callable[[SufficeSearchCV], object] | None = None,
    into: Path | None = None,
) -> TunedTable:
    """Search, fit and write everything down. What ends the search early is reported by `search.result_`. `began` is
    when the clock of max_seconds started; None: now. `temporary` is the folder, if it is one. `fit` fits the search in
    another way than from nothing, and `into` has the files until they are in `folder`."""
    into, searching = into or folder, monotonic()
    began = searching if began is None else began
    until = began + (math.inf if settings.max_seconds is None else settings.max_seconds)
    held = None if settings.test is None else unseen(settings.test, settings.target, problem, settings.weights)
    places.write(into / RECIPE, asdict(problem.recipe))
    for_the_search = seconds_for_the_search(until - monotonic(), report=not settings.no_report)
    search, caught = _searched(settings, problem, folder, for_the_search, callback, fit)
    searched = monotonic()
    seconds, page = searched - searching, PAGE_SECONDS
    if search.result_.status in (Status.INTERRUPTED, Status.TERMINATED):
        until, page = min(until, searched + GRACE), -math.inf
    model = finished(search.best_estimator_, problem)
    (file, types), failures = save(model, into)
    told = [as_note(str(item.message)) for item in caught]
    found = [text for text in told if not any(words in text for words in SAID)]
    notes = [*problem.notes, *([search.left_out_] if search.left_out_ else []), *dict.fromkeys(found)]
    outcome = TunedTable(
        problem, search, notes, folder, file and folder / file.name, types, failures, seconds, model=model,
        before=searching - began, temporary=temporary,
    )  # fmt: skip
    units: Any = {"inverse": np.exp if problem.log_target else None, "labels": problem.labels}  # its own
    outcome.attempt("measures", lambda: compared_measures(search.held_out_, search.baseline_, **units))
    try:
        with time_limit(max(until, monotonic() + page)):
            outcome.attempt("intervals", lambda: intervals.keep(search, problem, into))
            if held is not None:
                outcome.notes += held[0]
                outcome.attempt("test", lambda: held[1](model))
            if not settings.no_report:
                most = min(searched + max(REPORT_SHARE * seconds, REPORT_SECONDS), until)
                outcome.attempt("page", lambda: _report(outcome, settings, units, most, stage, into))
    except TimeOver:
        again = f"`suffice resume {folder}` makes up for it"
        outcome.notes.append(f"no time was left for all that follows the search: {again}")
    if fit is None:
        came = states.Came(settings.table, settings.digest, len(problem.y))
        states.remember(outcome, folder, came, state=_of_parts(settings, search))
    outcome.total_seconds = monotonic() - began
    return outcome


def _of_parts(settings: Settings, search: Any) -> dict[str, Any]:
    """What an update has to know of files that are only read: the fold of every row, and how many rows each has."""
    if not settings.files:
        return {}
    sizes = [rows for rows, _ in footers(settings.files)]
    return {"folds": [one.tolist() for one in search._for_updates.folds], "places": sum(sizes), "sizes": sizes}


def seconds_for_the_search(left: float, *, report: bool) -> float:
    """Of the seconds that are left of max_seconds; a little in any case, in which one evaluation is made."""
    share, most = FOR_THE_REPORT
    return max(left - (min(share * left, most) if report and left < math.inf else 0.0), 0.01)


def _searched(
    settings: Settings, problem: TableProblem, folder: Path, seconds: float, callback: Any, fit: Any
) -> tuple[SufficeSearchCV, list[warnings.WarningMessage]]:
    """The search, come to its end, and what was warned of meanwhile."""
    search = SufficeSearchCV(
        problem.estimator,
        problem.space,
        cv=problem.cv,
        scoring=problem.optimised(None) if settings.scoring is None else settings.scoring,
        options=replace(settings.options, max_seconds=seconds),
        n_jobs=1 if settings.cluster else settings.jobs or os.cpu_count(),
        journal=None if fit is not None else folder,
        callback=callback,
        groups_of_features=problem.groups,
        certify_global=settings.certify_global,
        refit="one_se" if settings.one_se else True,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            search.fit(problem.X, problem.y, **problem.weights) if fit is None else fit(search)
        except Exception as error:
            if not hasattr(search, "best_penalties_"):
                raise
            why = f"the search is done, but its model could not be fitted: {one_line(error)}"
            raise AfterSearchError(why) from error
    return search, caught


def _report(outcome: TunedTable, settings: Settings, units: Any, until: float, stage: Any, into: Path) -> Path:
    """report.json and report.html."""
    from suffice.sklearn import report

    problem = outcome.problem
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how = {"sample_weight": problem.weight, "until": until, "stage": lambda what: stage(f"report: {what}"), **units}
        data = report.collect(outcome.search, problem.X, problem.y, about=outcome.about(settings), **how)
    places.write(into / REPORT, data)
    return outcome.folder / write_page(into, data).name


def write_page(folder: Path, data: Mapping[str, Any]) -> Path:
    """report.html from the data of report.json; ValueError if these are not what they should be."""
    from suffice.sklearn import report

    files.replace_atomically(folder / PAGE, report.page(dict(data)).encode("utf-8"))
    return folder / PAGE
