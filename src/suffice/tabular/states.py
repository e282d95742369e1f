"""What a run's folder keeps from one day to the next, and how one day's files take the place of another's.

    history.json    a line for every model: date, rows, penalties, score, proof, coefficients, and the file that came
    state.json      where `suffice update` goes on from: weights of the folds' models, and which fold each row is in
    rows.csv        from the first update on: the rows of the model, which are the run's table then

An update puts all files of the new day into `next.tmp`, which becomes `next` in one step when it is whole. From then on
the new day is there, and whoever opens the run moves its files to where they belong, and removes what the old day has
left, journal included: `settle`. A kill before that step leaves the old day, a kill after it the new one.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from suffice import files
from suffice.report import folder as places
from suffice.sklearn import coefficients
from suffice.sklearn.update import Yesterday

HISTORY, STATE, ROWS = "history.json", "state.json", "rows.csv"
NEXT, DRAFT, MANIFEST = "next", "next.tmp", "files.json"
OLD = ("journal.", "global-", "model.", "report.", "intervals.")  # how files begin that the next day may not have
MOST = 200  # coefficients of a line


@dataclass(frozen=True)
class Came:
    """What a day has brought: a file, the digest of its bytes, and rows."""

    file: str
    digest: str
    added: int
    removed: int = 0
    message: str = ""


def remember(outcome: Any, into: Path, came: Came, before: Any = (), state: Any = None) -> None:
    """Write down the line of this model, and where an update begins; `state` is what else it has to know."""
    places.write(into / HISTORY, {"lines": [*before, line_of(outcome, came)]})
    search, problem = outcome.search, outcome.problem
    if search._for_updates is None:
        return
    known = Yesterday.of(search)
    places.write(into / STATE, {
        "penalties": dict(known.penalties),
        "weights": [one.tolist() for one in known.weights],
        "names": [None if one is None else list(one) for one in known.names],
        "cost": known.cost,
        "error": known.error,
        "numeric": list(problem.numeric),
        "categorical": list(problem.categorical),
        "model": problem.model,
        "task": problem.task,
        "classes": np.unique(problem.y).tolist() if problem.task == "classification" else None,
        **(state or {}),
    })  # fmt: skip


def yesterday_of(state: Mapping[str, Any]) -> Yesterday:
    """Where an update begins."""
    names = tuple(None if one is None else tuple(one) for one in state["names"])
    weights = tuple(np.array(one, dtype=np.float64) for one in state["weights"])
    return Yesterday(state["penalties"], weights, names, state["cost"], state["error"])


def line_of(outcome: Any, came: Came) -> dict[str, Any]:
    """A line of the history: plain data."""
    search, found = outcome.search, coefficients.columns_of(outcome.search)
    scores = [search.cv_results_[f"split{k}_test_score"][search.best_index_] for k in range(search.n_splits_)]
    size: Any = np.where(np.isnan(found["coef_standardised"]), found["coef"], found["coef_standardised"])
    order = np.argsort(-np.abs(size), kind="stable")[:MOST]
    outputs = [""] * len(size) if found["output"] is None else [f", {one}" for one in found["output"]]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "file": came.file,
        "digest": came.digest,
        "added": came.added,
        "removed": came.removed,
        "rows": len(outcome.problem.y),
        "penalties": {name: float(value) for name, value in search.best_penalties_.items()},
        "scoring": search.optimised_scoring_,
        "score": finite(np.mean(scores)),
        "standard_error": finite(np.std(scores, ddof=1) / math.sqrt(len(scores))) if len(scores) > 1 else None,
        "interval": [*map(finite, search.optimised_interval_)],
        "radius": finite(search.coef_radius_),
        "message": came.message or outcome.result.message,
        "folds": search.n_splits_,
        # per unit, and per standard deviation
        "coefficients": {f"{found['name'][k]}{outputs[k]}": [float(found["coef"][k]), float(size[k])] for k in order},
    }


def finite(number: Any) -> float | None:
    """As a float; None for what JSON has no word for."""
    return float(number) if math.isfinite(number) else None


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The history of a run, the oldest first; ValueError if it has none."""
    settle(folder)
    found = places.read(folder / HISTORY, "lines")
    if found is None:
        raise ValueError(
            f"{folder} has no history: no run of `suffice tune` has come to its end there with this version"
        )
    return list(found["lines"])


# One day in the place of another


def begin(folder: Path) -> Path:
    """An empty place for the files of a new day. The caller has the lock: what is there is that of a dead process."""
    forget(folder)
    (folder / DRAFT).mkdir()
    return folder / DRAFT


def forget(folder: Path) -> None:
    """Remove a new day that has not come."""
    shutil.rmtree(folder / DRAFT, ignore_errors=True)


def commit(folder: Path) -> None:
    """The new day is there: all files of its draft."""
    draft = folder / DRAFT
    places.write(draft / MANIFEST, {"names": sorted(path.name for path in draft.iterdir())})
    os.rename(draft, folder / NEXT)
    files.sync_folder(folder)
    settle(folder)


def settle(folder: Path) -> None:
    """Move the files of a new day to where they belong, if there is one. Several may do so at the same time."""
    new = folder / NEXT
    manifest = None if new.is_symlink() or not new.is_dir() else places.read(new / MANIFEST, "names")
    if manifest is not None:
        for path in new.iterdir():
            if path.name != MANIFEST:
                with suppress(FileNotFoundError):
                    os.replace(path, folder / path.name)
        for path in folder.iterdir():
            if path.name.startswith(OLD) and path.name not in manifest["names"]:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        files.sync_folder(folder)
        (new / MANIFEST).unlink(missing_ok=True)
    with suppress(OSError):
        new.rmdir()
