"""A tuning run in its folder:

    command.json    what was asked for, and a digest of the table
    journal.jsonl   every evaluation, on disk before the next one begins
    model.skops     the pipeline, fitted to all rows; model.joblib where skops is not installed
    report.json     what was found, as plain data
    report.html     the same, to look at

The same command in the same folder goes on where it was, and ends at the same bits. Budgets and the number of processes
may differ; anything else is another run, and refused.
"""

from __future__ import annotations

import difflib
import io
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.model_selection import cross_val_score

from suffice import files
from suffice.options import Options
from suffice.report import folder as places
from suffice.result import Record
from suffice.sklearn import SufficeSearchCV
from suffice.tabular.columns import MODELS, Problem, pose
from suffice.tabular.table import TableError, open_table, quoted, read

REPORT, PAGE = "report.json", "report.html"
FINAL_RADIUS = 1e-3  # of the box of logarithms: steps of a hundredth of a decade
BUDGETS = ("max_evaluations", "max_seconds")
SAVED = ("model.skops", "model.joblib")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run was asked for."""

    data: str
    target: str
    task: str = "auto"
    model: str = "auto"
    cv: int = 5
    scoring: str | None = None
    max_evaluations: int = 200
    max_seconds: float | None = None
    seed: int = 0
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    skip_missing_target: bool = False
    digest: str = ""  # of the bytes of the table

    def __post_init__(self) -> None:
        for item in fields(self):
            value, kinds = getattr(self, item.name), _KINDS[item.name]
            if isinstance(value, bool) != (bool in kinds) or not isinstance(value, kinds):
                raise ValueError(f"{item.name} must be {kinds[0].__name__}, got {value!r}")
            if isinstance(value, tuple) and not all(isinstance(name, str) for name in value):
                raise ValueError(f"{item.name} must hold names of columns, got {value!r}")
        if self.task not in ("auto", "classification", "regression"):
            raise ValueError(f"task must be auto, classification or regression, got {self.task!r}")
        if self.model != "auto" and self.model not in MODELS:
            raise ValueError(f"model must be auto, {', '.join(MODELS)}, got {self.model!r}")
        if not 2 <= self.cv <= 1000:
            raise ValueError(f"cv must be between 2 and 1000, got {self.cv}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be between 0 and 2**32 - 1, got {self.seed}")
        _ = self.options

    @property
    def options(self) -> Options:
        seconds = math.inf if self.max_seconds is None else self.max_seconds
        return Options(max_evaluations=self.max_evaluations, max_seconds=seconds, final_radius=FINAL_RADIUS)

    def plain(self) -> dict[str, Any]:
        return {"command": "tune", **asdict(self)}

    @classmethod
    def from_plain(cls, plain: Any) -> Settings:
        """Settings from a file; ValueError if it holds anything else."""
        names = {item.name for item in fields(cls)}
        if not isinstance(plain, dict) or plain.get("command") != "tune" or set(plain) != {*names, "command"}:
            raise ValueError("it does not describe a run of `suffice tune`")
        lists = {name: tuple(value) for name, value in plain.items() if isinstance(value, list)}
        return cls(**{name: value for name, value in (plain | lists).items() if name != "command"})


_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("data", "target", "task", "model", "digest"), (str,)),
    **dict.fromkeys(("cv", "max_evaluations", "seed"), (int,)),
    **dict.fromkeys(("drop", "keep", "categorical"), (tuple,)),
    "scoring": (str, type(None)),
    "max_seconds": (float, int, type(None)),
    "skip_missing_target": (bool,),
}


@dataclass(frozen=True, eq=False)
class TunedTable:
    """What a run has found."""

    problem: Problem
    search: SufficeSearchCV
    notes: tuple[str, ...]
    folder: Path
    model_file: Path
    model_types: tuple[str, ...]  # what skops has to trust, besides the types it knows
    page: Path | None
    seconds: float
    baseline: float | None  # the score of a model that knows the target only

    @property
    def success(self) -> bool:
        """Whether the search has come to its end."""
        return bool(self.search.result_.success)

    @property
    def scoring(self) -> str:
        """What `score` is the mean of."""
        search = self.search
        return str(search.scoring if search.surrogate_ else search.optimised_scoring_)

    @property
    def evaluations(self) -> int:
        return len(self.search.cv_results_["work"])

    def plain(self) -> dict[str, Any]:
        """For machines."""
        search = self.search
        return {
            "status": search.result_.status.name.lower(),
            "message": search.result_.message,
            "success": self.success,
            "task": self.problem.task,
            "model": self.problem.model,
            "best_params": _words(search),
            "penalties": {name: float(value) for name, value in search.best_penalties_.items()},
            "scoring": self.scoring,
            "score": float(search.best_score_),
            "baseline": self.baseline,
            "optimised_scoring": search.optimised_scoring_,
            "interval": [float(end) if math.isfinite(end) else None for end in search.score_interval_],  # None: unknown
            "evaluations": self.evaluations,
            "work": float(np.sum(search.cv_results_["work"])),
            "seconds": round(self.seconds, 3),
            "folder": str(self.folder),
            "model_file": str(self.model_file),
            "model_types": list(self.model_types),
            "report": None if self.page is None else str(self.page),
            "notes": list(self.notes),
        }


def digest_of(path: str | os.PathLike[str]) -> str:
    """A digest of a file's bytes."""
    found = blake2b(digest_size=16)
    try:
        with open_table(path) as file:
            while chunk := file.read(1 << 20):
                found.update(chunk)
    except OSError as error:
        raise TableError(f"{quoted(path)} cannot be read: {error.strerror or error}") from error
    return found.hexdigest()


def load(settings: Settings) -> tuple[Problem, Settings]:
    """The problem that the table poses, and the settings with the table's digest."""
    problem = pose(
        read(settings.data),
        settings.target,
        task=settings.task,
        model=settings.model,
        folds=settings.cv,
        seed=settings.seed,
        drop=settings.drop,
        keep=settings.keep,
        categorical=settings.categorical,
        skip_missing=settings.skip_missing_target,
    )
    check_scoring(settings.scoring, problem)
    digest = digest_of(settings.data)
    if settings.digest and digest != settings.digest:
        raise TableError(f"{quoted(settings.data)} has changed since the run began: a new run needs another folder")
    return problem, replace(settings, digest=digest)


def claim(folder: Path, settings: Settings) -> None:
    """Make the folder this run's own; `TableError` if it is another's, or cannot be written."""
    known = places.read(folder / places.COMMAND)
    if known is not None:
        try:
            there = Settings.from_plain(known)
        except ValueError as error:
            raise TableError(f"{quoted(folder)} holds other files: choose another --out") from error
        changed = [
            item.name
            for item in fields(Settings)
            if item.name not in (*BUDGETS, "data") and getattr(there, item.name) != getattr(settings, item.name)
        ]
        if changed:
            what = ", ".join("the table" if name == "digest" else name for name in changed)
            raise TableError(f"{quoted(folder)} holds another run (it differs in {what}): choose another --out")
    elif folder.exists() and any(name in os.listdir(folder) for name in ("journal.jsonl", "study.json")):
        raise TableError(f"{quoted(folder)} holds other files: choose another --out")
    try:
        for name in (*SAVED, REPORT, PAGE):  # found out before a long search
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
    problem: Problem,
    folder: Path,
    *,
    jobs: int = 1,
    callback: Callable[[Record], object] | None = None,
    stage: Callable[[str], object] = lambda what: None,
) -> TunedTable:
    """Search, fit and write everything down. What ends the search early is reported by `search.result_`."""
    began = time.perf_counter()
    search = SufficeSearchCV(
        problem.estimator,
        problem.space,
        cv=problem.cv,
        scoring=settings.scoring,
        options=settings.options,
        n_jobs=jobs,
        journal=folder,
        callback=callback,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(problem.X, problem.y)
    seconds = time.perf_counter() - began
    stage("writing the report")
    notes = [*problem.notes, *_told(caught)]
    baseline = _baseline(search, problem)
    saved = save(search.best_estimator_, folder)
    outcome = TunedTable(problem, search, tuple(notes), folder, *saved, None, seconds, baseline)
    page, more = _report(outcome, settings)
    return replace(outcome, page=page, notes=(*notes, *more))


def _words(search: SufficeSearchCV) -> dict[str, float]:
    """The best parameters in scikit-learn's words, without the step of the pipeline."""
    return {name.partition("__")[2] or name: float(value) for name, value in search.best_params_.items()}


def _told(caught: list[warnings.WarningMessage]) -> list[str]:
    """What was warned of while tuning, once each; levels that a fold has not seen are nothing to worry about."""
    texts = [" ".join(str(item.message).split()) for item in caught if "unknown categories" not in str(item.message)]
    return list(dict.fromkeys(text if len(text) <= 200 else f"{text[:197]}..." for text in texts))


def _baseline(search: SufficeSearchCV, problem: Problem) -> float | None:
    """The score of a model that knows frequencies or the mean of the target only; None where it has none."""
    dummy, y = DummyRegressor(), problem.y
    scoring = search.scoring if search.surrogate_ else search.optimised_scoring_
    if problem.task == "classification":
        dummy = DummyClassifier()
        y = np.unique(y, return_inverse=True)[1] if not search.surrogate_ else y  # some scores know numbers only
    if scoring == "neg_squared_hinge":
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = float(np.mean(cross_val_score(dummy, problem.X, y, cv=search.cv, scoring=scoring)))
        except (ValueError, AttributeError, TypeError):  # a scorer that needs more than a dummy has
            return None
    return found if math.isfinite(found) else None


def check_scoring(scoring: str | None, problem: Problem) -> None:
    """Whether a score goes with the model and the target, found out on a few rows before a long search."""
    if scoring is None or problem.optimised(scoring) == scoring:
        return
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


def save(model: Any, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The fitted pipeline in a file: skops if there is one, else joblib. A kill leaves the old file or the new one.
    Also the types in it that skops does not trust by itself."""
    types: list[str] = []
    if find_spec("skops") is not None:
        import skops.io

        path, content = folder / SAVED[0], skops.io.dumps(model)
        types = skops.io.get_untrusted_types(data=content)
    else:
        import joblib

        buffer = io.BytesIO()
        joblib.dump(model, buffer)
        path, content = folder / SAVED[1], buffer.getvalue()
    files.replace_atomically(path, content)
    return path, tuple(types)


def _report(outcome: TunedTable, settings: Settings) -> tuple[Path | None, list[str]]:
    """report.json, and report.html where its figures can be drawn; with a note where they cannot."""
    from suffice.sklearn import report

    problem = outcome.problem
    about = {
        "title": f"{Path(settings.data).name}: {settings.target}",
        "table": settings.data,
        "target": settings.target,
        "task": problem.task,
        "model": f"{problem.model}: {MODELS[problem.model][1]}",
        "rows": len(problem.y),
        "numeric columns": list(problem.numeric),
        "categorical columns": list(problem.categorical),
        "notes": list(outcome.notes),
        "score of a model that knows the target only": outcome.baseline,
        "seconds": round(outcome.seconds, 1),
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = report.collect(outcome.search, problem.X, problem.y, about=about)
        places.write(outcome.folder / REPORT, data)
        return write_page(outcome.folder, data), []
    except ImportError as error:
        return None, [f"{PAGE} needs {error.name}: pip install 'suffice[plot]', then run `suffice report`"]
    except Exception as error:  # the model is there, and must not be lost for a figure
        return None, [f"the report could not be made: {type(error).__name__}: {' '.join(str(error).split())}"]


def write_page(folder: Path, data: Mapping[str, Any]) -> Path:
    """report.html from the data of report.json; ValueError if these are not what they should be."""
    from suffice.sklearn import report

    text = report.page(dict(data))
    files.replace_atomically(folder / PAGE, text.encode("utf-8"))
    return folder / PAGE
