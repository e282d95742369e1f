"""Yesterday's model, today's rows: what an update costs, whether its models are exact, whether kills and alarms are as
they are said to be.

    work        updates by 0.1, 1, 10 and 100 % new rows beside a search from nothing over the same folds, on 12 tables
    sequences   random sequences of adding and removing: the last model beside one from nothing at high precision
    kills       SIGKILL at random moments of `suffice.tabular.update.update`: the folder is that of one day, whole
    alarms      files drawn from the rows of a table, and the same with a planted shift

    python benchmarks/update.py [--part work] [--out DIR]
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import parser, provenance, table, write_json, write_text
from sklearn.base import clone
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, PoissonRegressor, Ridge
from table_sources import SOURCES

from suffice.sklearn import SufficeSearchCV
from suffice.sklearn._final_fit import solved
from suffice.sklearn.dealt_rows import dealt
from suffice.sklearn.splits import SearchData
from suffice.tabular.check import check
from suffice.tabular.run import claim, execute, load
from suffice.tabular.settings import Settings
from suffice.tabular.states import lines_of
from suffice.tabular.update import update

TABLES = ("auto", "bikeshare", "boston", "carseats", "credit", "default", "hitters", "mpg", "orange juice", "penguins",
          "wage", "weekly")  # fmt: skip
SHARES = (0.001, 0.01, 0.1, 1.0)
WANTED = {0.001: 0.15, 0.01: 0.2, 0.1: 0.35, 1.0: 0.8}
FOLDS = 5
SMALL = ("penguins", "hitters", "mpg", "auto")  # rows, for files of 100 beside 300


class Dealt:
    """Folds by the hash that deals new rows, so that a search from nothing has the folds of an update."""

    def split(self, X: Any, y: Any = None, groups: Any = None) -> list[tuple[Any, Any]]:
        numbers = dealt((np.arange(FOLDS),), np.arange(len(X)))[0][FOLDS:]
        return [(np.flatnonzero(numbers != k), np.flatnonzero(numbers == k)) for k in range(FOLDS)]

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return FOLDS


# Work


def posed(name: str) -> Any:
    """The problem of a table, its rows in random order."""
    source = SOURCES[name]
    frame = source.frame().sample(frac=1.0, random_state=0).reset_index(drop=True)
    with tempfile.TemporaryDirectory() as folder:
        frame.to_csv(Path(folder) / "table.csv", index=False)
        skip = "--skip-missing-target" in source.options
        settings = Settings(data=str(Path(folder) / "table.csv"), target=source.target, skip_missing_target=skip)
        problem, _ = load(settings)
    return problem


def timed(step: Any) -> tuple[Any, float]:
    began = time.process_time()
    return step(), time.process_time() - began


def work_of(name: str) -> list[dict[str, Any]]:
    problem, rows = posed(name), []
    X, y, N = problem.X, problem.y, len(problem.y)
    given = {"space": problem.space, "cv": Dealt(), "scoring": problem.optimised(None)}
    cold, cold_seconds = timed(lambda: SufficeSearchCV(problem.estimator, **given).fit(X, y))
    steps = float(np.sum(cold.cv_results_["work"]))
    scores = [cold.cv_results_[f"split{k}_test_score"][cold.best_index_] for k in range(FOLDS)]
    error = float(np.std(scores, ddof=1)) / FOLDS**0.5
    for share in SHARES:
        n = N - max(round(N * share / (1.0 + share)), 1)
        search = SufficeSearchCV(problem.estimator, **given).fit(X[:n], y[:n])
        _, seconds = timed(lambda search=search, n=n: search.update(X[n:], y[n:]))
        made = search.update_
        rows.append({
            "table": name, "model": problem.model, "rows": N, "share": share, "steps": made.work, "cold steps": steps,
            "work": made.work / steps, "time": seconds / cold_seconds, "kept": made.kept, "gain": made.gain,
            "evaluations": len(search.cv_results_["work"]), "message": made.message,
            "behind": (cold.best_score_ - search.best_score_) / error,
        })  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
    return rows


# Sequences


def sequences(count: int) -> dict[str, Any]:
    """Random days of small tables: how far the last model is from the exact one, in units of its radius."""
    rng, false, ratios, kinds = np.random.default_rng(5), 0, [], {}
    models = {
        "ridge": Ridge(), "lasso": Lasso(), "elastic net": ElasticNet(), "logistic": LogisticRegression(),
        "poisson": PoissonRegressor(),
    }  # fmt: skip
    for kind, estimator in models.items():
        X = rng.normal(size=(120, 5))
        eta = X @ rng.normal(size=5)
        y = eta + rng.normal(size=120)
        y = (
            (y > 0).astype(float)
            if kind == "logistic"
            else rng.poisson(np.exp(0.3 * eta)) + 0.0
            if kind == "poisson"
            else y
        )
        begun = SufficeSearchCV(estimator, cv=4).fit(X[:60], y[:60])
        for _ in range(count // len(models)):
            search = copy.copy(begun)
            search._for_updates, pool = begun._for_updates, list(range(60, 120))
            here = list(range(60))
            for _ in range(int(rng.integers(2, 5))):
                add = [pool.pop() for _ in range(int(rng.integers(0, 9))) if pool]
                gone = rng.choice(len(here), int(rng.integers(0 if add else 1, 5)), replace=False)
                new = (X[add], y[add]) if add else (None, None)
                search.update(*new, remove=gone if len(gone) else None)
                here = [row for k, row in enumerate(here) if k not in set(gone.tolist())] + add
            distance, radius = against_cold(search, X[here], y[here])
            false += distance > search.coef_radius_ + radius
            ratios.append(distance / max(search.coef_radius_ + radius, 1e-300))
            kinds[kind] = kinds.get(kind, 0) + 1
    return {
        "sequences": len(ratios),
        "false": int(false),
        "largest share of the radius": float(max(ratios)),
        "of": kinds,
    }


def against_cold(search: Any, X: Any, y: Any) -> tuple[float, float]:
    """The distance of the coefficients from a model of these rows made from nothing, and what is proven of that."""
    penalties = search.best_penalties_
    if isinstance(search.estimator, Ridge):
        A, b = (X - X.mean(axis=0)).astype(np.longdouble), (y - y.mean()).astype(np.longdouble)
        H = A.T @ A + len(y) * penalties["l2"] * np.eye(X.shape[1])
        w = np.linalg.solve(H.astype(float), (A.T @ b).astype(float))
        for _ in range(3):  # refined in 80 bits
            w = w + np.linalg.solve(H.astype(float), (A.T @ b - H @ w).astype(float))
        return float(np.linalg.norm(search.coef_ - w)), 1e-14 * float(np.linalg.norm(w))
    split = SearchData(clone(search.estimator), X, y, np.ones(len(y))).whole()
    solution = solved(split.penalised().at(**penalties), split.solver, 1e-13)
    w = np.ravel(split.model.coefficients(solution.x)[0])
    return float(np.linalg.norm(np.ravel(search.coef_) - w)), solution.certificate.radius


# Kills


def kills(count: int) -> dict[str, Any]:
    """Children that update a run are killed at random moments."""
    rng, seen = np.random.default_rng(6), {"old": 0, "new": 0, "between": 0}
    frame = SOURCES["credit"].frame()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        frame[:300].to_csv(home / "base.csv", index=False)
        frame[300:320].to_csv(home / "new.csv", index=False)
        tuned(home, "Balance")
        shutil.copytree(home / "run", home / "new")
        began = time.monotonic()
        update(home / "new", str(home / "new.csv"))
        whole = time.monotonic() - began
        days = {"old": digest(home / "run"), "new": digest(home / "new")}
        for k in range(count):
            shutil.rmtree(home / "copy", ignore_errors=True)
            shutil.copytree(home / "run", home / "copy")
            child = os.fork()
            if child == 0:
                try:
                    update(home / "copy", str(home / "new.csv"))
                finally:
                    os._exit(0)
            # half of them near the end, where the files change
            time.sleep(whole * (rng.uniform(0.0, 1.2) if k % 2 else rng.uniform(0.7, 1.1)))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            lines_of(home / "copy")
            day = digest(home / "copy")
            seen[next((one for one, known in days.items() if same(day, known)), "between")] += 1
    return {"kills": count, **seen}


def digest(folder: Path) -> dict[str, Any]:
    """The files of a day; dates and times of it left out."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "lock"}
    history = [{**line, "date": ""} for line in lines_of(folder)]
    return {**files, "history.json": json.dumps(history), "command.json": len(files["command.json"]) > 0}


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two folders are of one day: the same files, models, rows and states."""
    return a.keys() == b.keys() and all(a[name] == b[name] for name in a if name not in ("command.json", "model.skops"))


def tuned(home: Path, target: str, **options: Any) -> None:
    settings = Settings(data=str(home / "base.csv"), target=target, no_report=True, **options)
    problem, settings = load(settings)
    claim(home / "run", settings)
    execute(settings, problem, home / "run")


# Alarms


def alarms(count: int) -> dict[str, Any]:
    """Files of 100 rows beside runs of 400 of the same table, and with one column changed."""
    rng, names = np.random.default_rng(7), [name for name in TABLES if name not in SMALL]
    found: dict[str, Any] = {"files": 0, "false": 0, "planted": {}, "tests": 0}
    for k in range(count):
        name = names[k % len(names)]
        source = SOURCES[name]
        frame = source.frame().sample(frac=1.0, random_state=k)[:500]
        cut = len(frame) - 100
        model = {"bikeshare": {"model": "ridge"}}.get(name, {})
        with tempfile.TemporaryDirectory() as where:
            home = Path(where)
            frame[:cut].to_csv(home / "base.csv", index=False)
            try:
                tuned(home, source.target, **model)
            except ValueError as error:
                print(name, error, flush=True)
                continue
            new = frame[cut:]
            new.to_csv(home / "new.csv", index=False)
            null = check(home / "run", str(home / "new.csv"))
            found["files"] += 1
            found["tests"] += len(null.findings)
            found["false"] += null.code == 1
            if null.code == 1:
                print(name, k, null.lines(), flush=True)
            kind, changed = planted(new, source.target, rng)
            changed.to_csv(home / "new.csv", index=False)
            hits, all_ = found["planted"].get(kind, (0, 0))
            found["planted"][kind] = (hits + (check(home / "run", str(home / "new.csv")).code == 1), all_ + 1)
    return found


def planted(frame: pd.DataFrame, target: str, rng: np.random.Generator) -> tuple[str, pd.DataFrame]:
    """A file with one column changed, and how."""
    numbers = {name: pd.to_numeric(frame[name], errors="coerce") for name in frame.columns if name != target}
    numeric = [name for name, one in numbers.items() if one.notna().all() and one.nunique() > 20]
    kind = ("half a standard deviation", "one standard deviation", "a fifth missing")[int(rng.integers(3))]
    name = str(rng.choice(numeric))
    made = frame.copy()
    if kind == "a fifth missing":
        made[name] = numbers[name].where(rng.uniform(size=len(frame)) > 0.2)
    else:
        made[name] = numbers[name] + (0.5 if kind.startswith("half") else 1.0) * numbers[name].std()
    return kind, made


# What is written

ABOUT = """
Medians over tables of the share of a search from nothing over the same folds: steps of the solver in all folds, and the
processor's time of `fit` with everything around it (the sketch that a search from nothing begins with is in the second
only). Behind: how far the score is below that of the search from nothing, in standard errors over folds.
"""


def page(found: dict[str, Any]) -> str:
    made = found["provenance"]
    text = ["# Yesterday's model, today's rows\n"]
    text += [f"`python benchmarks/update.py`, commit {made['commit']}, {made['date']}.\n"]
    if "work" in found:
        head = ("new rows", "steps", "processor's time", "wanted", "penalties kept", "of", "behind", "at most")
        text.append(table(head, [_middle(found["work"], share) for share in SHARES]))
        text.append(ABOUT)
        each = [
            (
                one["table"], one["model"], one["rows"], f"{100 * one['share']:g} %", f"{one['steps']:.0f}",
                f"{one['cold steps']:.0f}", f"{one['time']:.2f}", f"{one['behind']:.3f}", one["message"],
            )
            for one in found["work"]
        ]  # fmt: skip
        head = ("table", "model", "rows", "new", "steps", "from nothing", "time", "behind", "what it said")
        text.append(table(head, each) + "\n")
    for name in ("sequences", "kills", "alarms"):
        if name in found:
            text.append(f"{name.capitalize()}: {json.dumps(found[name])}\n")
    return "\n".join(text)


def _middle(found: list[dict[str, Any]], share: float) -> tuple[object, ...]:
    part = [one for one in found if one["share"] == share]
    work, seconds, behind = (float(np.median([one[key] for one in part])) for key in ("work", "time", "behind"))
    most, kept = max(one["behind"] for one in part), sum(one["kept"] for one in part)
    numbers = (f"{work:.2f}", f"{seconds:.2f}", WANTED[share], kept, len(part), f"{behind:.3f}", f"{most:.3f}")
    return (f"{100 * share:g} %", *numbers)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--part", choices=("work", "sequences", "kills", "alarms"), action="append")
    options.add_argument("--count", type=int, help="of sequences (1000), kills (40) or alarms (200)")
    given = options.parse_args()
    warnings.simplefilter("ignore")
    path = given.out / "update.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() and given.part else {}
    for part in given.part or ("work", "sequences", "kills", "alarms"):
        if part == "work":
            found[part] = [row for name in TABLES for row in work_of(name)]
        else:
            found[part] = {"sequences": sequences, "kills": kills, "alarms": alarms}[part](
                given.count or {"sequences": 1000, "kills": 40, "alarms": 200}[part]
            )
        found["provenance"] = provenance("scikit-learn")
        write_json(path, found)
        write_text(given.out / "update.md", page(found))
        print(part, "done", flush=True)


if __name__ == "__main__":
    main()
