"""What a run of `suffice tune` has found: as plain data, and as a report says it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from suffice.result import Result
from suffice.sklearn import SufficeSearchCV
from suffice.tabular.columns import TableProblem
from suffice.tabular.models import MODELS, POSITIVE
from suffice.tabular.settings import Settings


@dataclass(frozen=True, eq=False)
class TunedTable:
    """What a run has found."""

    problem: TableProblem
    search: SufficeSearchCV
    notes: tuple[str, ...]
    folder: Path
    model_file: Path | None  # None: it could not be written
    model_types: tuple[str, ...]  # what skops has to trust, besides the types it knows
    seconds: float
    page: Path | None = None
    baseline: float | None = None  # the score of a model that knows the target only
    test: dict[str, float] | None = None  # measures of the model on a table that it has not seen
    measures: dict[str, Any] | None = None  # of the folds' held-out rows: `suffice.sklearn.measures`
    total_seconds: float = 0.0  # with the report
    failures: tuple[str, ...] = ()  # what went wrong after the search

    @property
    def success(self) -> bool:
        """Whether the search has come to its end."""
        return bool(self.search.result_.success)

    @property
    def result(self) -> Result:
        """Of the search."""
        return self.search.result_

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
            "best_params": {
                name.partition("__")[2] or name: float(value) for name, value in search.best_params_.items()
            },
            "penalties": {name: float(value) for name, value in search.best_penalties_.items()},
            "scoring": self.scoring,
            "score": float(search.best_score_),
            "baseline": self.baseline,
            "measures": self.measures,
            "optimised_scoring": search.optimised_scoring_,
            "global_gap": getattr(search, "global_gap_", None),
            "interval": [float(end) if math.isfinite(end) else None for end in search.score_interval_],  # None: unknown
            "evaluations": self.evaluations,
            "work": float(np.sum(search.cv_results_["work"])),
            "seconds": round(self.seconds, 3),
            "total_seconds": round(self.total_seconds, 3),
            "folder": str(self.folder),
            "model_file": None if self.model_file is None else str(self.model_file),
            "model_types": list(self.model_types),
            "report": None if self.page is None else str(self.page),
            "test": self.test,
            "failures": list(self.failures),
            "notes": list(self.notes),
        }

    def about(self, settings: Settings) -> dict[str, Any]:
        """What a report says of the run."""
        problem = self.problem
        target = f"logarithm of {settings.target}" if problem.log_target else settings.target
        found = {
            "title": f"{Path(settings.table).name}: {target}",
            "table": settings.table,
            "target": target,
            "task": problem.task,
            "model": f"{problem.model}: {MODELS[problem.model].words}",
            "rows": len(problem.y),
            "numeric columns": list(problem.numeric),
            "categorical columns": list(problem.categorical),
            "notes": list(self.notes),
            "score of a model that knows the target only": self.baseline,
            "seconds": round(self.seconds, 1),
            "units of coefficients": _units(problem),
            "load and predict": "\n".join(self.how_to_load()),
        }
        if problem.labels is not None or problem.classes == 2:
            found["more likely"] = str((problem.labels or np.unique(problem.y).tolist())[1])
        if problem.labels is not None:
            found["positive class"] = f"1 is {problem.labels[1]}, 0 is {problem.labels[0]}"
        if self.test is not None:
            found["held-out table"] = {"table": settings.test, **self.test}
        return found

    def how_to_load(self) -> list[str]:
        """How to predict with the model, as commands and code."""
        lines = [f"suffice predict {self.folder} new.csv    # at a shell: reads new files as this one was read"]
        if self.model_file is None:
            return lines
        name = str(self.model_file)
        if self.model_file.suffix == ".skops":
            code = [
                "import skops.io, suffice.tabular    # or in Python",
                f"model = skops.io.load({name!r}, trusted={list(self.model_types)})",
            ]
        else:
            why = (
                "runs code that the file contains: only if you trust it (skops, if installed, writes one to be checked)"
            )
            code = ["import joblib, suffice.tabular    # or in Python", f"model = joblib.load({name!r})    # {why}"]
        return [*lines, *code, 'model.predict(suffice.tabular.read("new.csv").frame())']


def _units(problem: TableProblem) -> str:
    """What a coefficient says, in words."""
    of_mean = "expected count" if problem.model in ("poisson", "negative-binomial") else "expected value"
    what = "log-odds" if problem.task == "classification" else "prediction"
    if problem.model in POSITIVE:
        what = f"logarithm of the {of_mean}"
    what = {"cox": "logarithm of the hazard", "svm": "decision value"}.get(problem.model, what)
    what = "prediction's logarithm" if problem.log_target else what
    return f"change of the {what} for one standard deviation of a numeric column, or where a category applies"
