"""Penalties of linear models by cross-validation: how long until each tool is within 0.1 % of the best loss?

Every tool gets the same standardised columns and the same five folds, in one thread, with its own defaults (four mixing
ratios where it takes a list, whose elastic nets have one penalty for a whole path). What counts is the exact
cross-validated loss, log loss or squared error, at the penalties that it returns: the folds' models are solved anew, to
proven errors (`exact`). The best of a table is the least of all these. A search that goes on from good to better,
ours, has come within 0.1 % when it has first proven that of penalties; other tools tell when they are done.

Times are those of the processor, of the call that tunes and refits and nothing else. Each run is a process of its own,
ended after --limit seconds. `--before SRC` measures another version of suffice as well (its `src` folder). The ablation
takes back one change at a time, by patches: the statistical tolerance, the choice of the solver, the dense form of
small sparse folds.

Rivals are those of scikit-learn, and glum where it is installed. adelie makes folds of its own, celer 0.7.4 does not
work with scikit-learn 1.9, and skglm's class for cross-validation takes one kind of penalty at a time. Data: tables of
the wheel ISLP (`table_sources`), of scikit-learn, and synthetic ones.
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import scipy.sparse as sp
from common import HERE, parser, provenance, table, write_json, write_text
from sklearn import datasets, linear_model
from sklearn.model_selection import KFold, StratifiedKFold
from table_sources import content

import suffice
from suffice.sklearn import SufficeSearchCV

RATIOS = [0.1, 0.5, 0.9, 1.0]
NEAR = 1.001  # times the least loss
WIDE = {"l1": (1e-13, 1e6), "l2": (1e-13, 1e6)}

Data = tuple[Any, Any, bool]  # X, y, and whether y holds two classes
Found = tuple[float, float]  # l1, l2 in units of the mean loss


def _islp(name: str) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(content("islp", f"ISLP/data/{name}.csv"))).dropna()


def _standardised(X: Any) -> Any:
    X = np.asarray(X, dtype=np.float64)
    spread = X.std(axis=0)
    return (X - X.mean(axis=0))[:, spread > 0.0] / spread[spread > 0.0]


def _frame(name: str, target: str, positive: str | None = None, drop: tuple[str, ...] = ()) -> Data:
    frame = _islp(name).drop(columns=list(drop))
    y = frame.pop(target)
    X = _standardised(pd.get_dummies(frame, drop_first=True))
    if positive is None:
        return X, y.to_numpy(dtype=float), False
    return X, (y == positive).to_numpy().astype(int), True


def _nci60() -> Data:
    X = np.load(io.BytesIO(content("islp", "ISLP/data/NCI60data.npy")))
    cells = _islp("NCI60labs").iloc[:, -1].to_numpy()
    return _standardised(X), np.isin(cells, ("MELANOMA", "RENAL", "CNS")).astype(float), False


def _khan() -> Data:
    X = pd.concat([_islp("Khan_xtrain"), _islp("Khan_xtest")]).iloc[:, 1:]
    y = np.concatenate([_islp("Khan_ytrain").iloc[:, -1], _islp("Khan_ytest").iloc[:, -1]])
    return _standardised(X), (y == 2).astype(int), True


def _digits() -> Data:
    X, y = datasets.load_digits(return_X_y=True)
    rows = np.isin(y, (3, 8))
    return _standardised(X[rows]), (y[rows] == 8).astype(int), True


def _synthetic(N: int, d: int, informative: int, classes: bool) -> Data:
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((N, d)), np.zeros(d)
    w[:informative] = rng.standard_normal(informative) * (0.5 if classes else 1.0)
    if classes:
        return X, (rng.random(N) < 1.0 / (1.0 + np.exp(-X @ w))).astype(int), True
    return X, X @ w + 5.0 * rng.standard_normal(N), False


def _one_hot(sparse: bool) -> Data:
    rng = np.random.default_rng(1)
    X = np.hstack([np.eye(10)[rng.integers(0, 10, 1278)] for _ in range(15)])
    y = X @ (0.5 * rng.standard_normal(150)) + rng.standard_normal(1278)
    return (sp.csr_array(X) if sparse else X), y, False


TABLES: dict[str, Callable[[], Data]] = {
    "breast cancer 569 x 30": lambda: (*_xy(datasets.load_breast_cancer), True),
    "Caravan 5822 x 85": lambda: _frame("Caravan", "Purchase", "Yes"),
    "synthetic 10000 x 300": lambda: _synthetic(10_000, 300, 20, True),
    "Hitters 263 x 19": lambda: _frame("Hitters", "Salary"),
    "diabetes 442 x 10": lambda: (*_xy(datasets.load_diabetes), False),
    "NCI60 64 x 6829": _nci60,
    "synthetic 5000 x 1000": lambda: _synthetic(5000, 1000, 30, False),
    "one-hot, dense 1278 x 150": lambda: _one_hot(False),
    "one-hot, sparse 1278 x 150": lambda: _one_hot(True),
    "Khan 83 x 2308": _khan,
    "digits 3 or 8, 357 x 60": _digits,
    "Boston 506 x 12": lambda: _frame("Boston", "medv"),
    "College 777 x 17": lambda: _frame("College", "Apps", drop=("Unnamed: 0", "Accept", "Enroll")),
    "OJ 1070 x 17": lambda: _frame("OJ", "Purchase", "CH"),
    "Default 10000 x 3": lambda: _frame("Default", "default", "Yes"),
}


def _xy(load: Callable[..., Any]) -> tuple[Any, Any]:
    X, y = load(return_X_y=True)
    return _standardised(X), y


def splits(X: Any, y: Any, classes: bool) -> list[Any]:
    kind = StratifiedKFold if classes else KFold
    return list(kind(5, shuffle=True, random_state=0).split(X, y))


def estimator(classes: bool) -> Any:
    return linear_model.LogisticRegression(l1_ratio=0.5, solver="saga") if classes else linear_model.ElasticNet()


def exact(data: Data, l1: float, l2: float) -> float:
    """The cross-validated loss of exactly trained models there, to six digits."""
    X, y, classes = data
    clipped = {"l1": min(max(l1, 1e-13), 1e6), "l2": min(max(l2, 1e-13), 1e6)}
    search = SufficeSearchCV(
        estimator(classes), WIDE, cv=splits(*data), scoring="neg_log_loss" if classes else "neg_mean_squared_error",
        refit=False, tolerance=1e-6, initial=clipped, options=suffice.Options(max_evaluations=1),
    )  # fmt: skip
    return -float(search.fit(X, y).best_score_)


# Tools: each tunes, and says what it has found.


def ours(data: Data, note: Callable[[float], None], **arguments: Any) -> Found:
    X, y, classes = data
    scoring = "neg_log_loss" if classes else "neg_mean_squared_error"
    search = SufficeSearchCV(
        estimator(classes), cv=splits(*data), scoring=scoring,
        callback=lambda record: note(record.interval[1]), **arguments,
    )  # fmt: skip
    found = search.fit(X, y).best_penalties_
    note.steps = int(np.sum(search.cv_results_["work"]))  # type: ignore[attr-defined]
    note.evaluations = len(search.cv_results_["work"])  # type: ignore[attr-defined]
    return found["l1"], found["l2"]


def _logistic_cv(data: Data, **arguments: Any) -> Found:
    X, y, _ = data
    model = linear_model.LogisticRegressionCV(
        cv=splits(*data), scoring="neg_log_loss", use_legacy_attributes=False, **arguments
    ).fit(X, y)
    ratio, penalty = float(model.l1_ratio_ or 0.0), 1.0 / (float(model.C_) * 0.8 * X.shape[0])
    return ratio * penalty, (1.0 - ratio) * penalty


def lbfgs(data: Data, note: Any) -> Found:
    return _logistic_cv(data, max_iter=1000, l1_ratios=(0.0,))


def saga(data: Data, note: Any) -> Found:
    return _logistic_cv(data, l1_ratios=RATIOS, solver="saga", max_iter=1000)


def ridge_cv(data: Data, note: Any) -> Found:
    X, y, _ = data
    model = linear_model.RidgeCV(np.logspace(-6, 6, 100), cv=splits(*data), scoring="neg_mean_squared_error").fit(X, y)
    return 0.0, float(model.alpha_) / (0.8 * X.shape[0])


def elastic_net_cv(data: Data, note: Any) -> Found:
    X, y, _ = data
    model = linear_model.ElasticNetCV(l1_ratio=RATIOS, cv=splits(*data)).fit(X, y)
    return float(model.alpha_ * model.l1_ratio_), float(model.alpha_ * (1.0 - model.l1_ratio_))


def glum(data: Data, note: Any) -> Found:
    from glum import GeneralizedLinearRegressorCV

    X, y, classes = data
    family = "binomial" if classes else "normal"
    model = GeneralizedLinearRegressorCV(family=family, l1_ratio=RATIOS, cv=splits(*data), n_jobs=1).fit(X, y)
    return float(model.alpha_ * model.l1_ratio_), float(model.alpha_ * (1.0 - model.l1_ratio_))


OURS = "suffice"
CLASSIFIERS = {"lbfgs, l2": lbfgs, "saga": saga, "glum": glum}
REGRESSORS = {"RidgeCV": ridge_cv, "ElasticNetCV": elastic_net_cv, "glum": glum}


def _patched(name: str) -> Any:
    """One change taken back."""
    from suffice.lower import auto
    from suffice.sklearn import folds

    if name == "without the choice of the solver":
        return mock.patch.multiple(auto, EASY=150.0, LEAST=0)
    if name == "without dense forms":
        return mock.patch.object(folds, "SMALL", 0)
    return nullcontext()


ABLATIONS = ("without the statistical tolerance", "without the choice of the solver", "without dense forms")


def one(table_name: str, tool: str) -> dict[str, Any]:
    """One run, in this process."""
    data = TABLES[table_name]()
    notes: list[tuple[float, float]] = []

    def note(upper: float) -> None:
        notes.append((time.process_time() - began, upper))

    warnings.simplefilter("ignore")
    own = tool in (OURS, "before", *ABLATIONS)
    arguments = {"tolerance": 1e-4} if tool == ABLATIONS[0] else {}
    run = (lambda: ours(data, note, **arguments)) if own else (lambda: (CLASSIFIERS | REGRESSORS)[tool](data, note))
    with _patched(tool) if tool in ABLATIONS else nullcontext():
        began = time.process_time()
        l1, l2 = run()
        seconds = time.process_time() - began
    counts = {name: getattr(note, name, None) for name in ("steps", "evaluations")}
    return {"seconds": seconds, "l1": l1, "l2": l2, "notes": notes, **counts}


def in_a_process(table_name: str, tool: str, limit: int, source: Path | None = None) -> dict[str, Any]:
    """The same in a process of its own, within so many seconds of the processor."""
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    if source is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(source), environment.get("PYTHONPATH", "")])
    command = [sys.executable, str(HERE / "cv_tools.py"), "--one", table_name, tool]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
    )  # fmt: skip
    if done.returncode == 0:
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found
    lines = done.stderr.strip().splitlines()
    return {"failed": f"more than {limit} s" if done.returncode < 0 else lines[-1][:120] if lines else "no answer"}


def measured(name: str, limit: int, before: Path | None, only: list[str] | None) -> dict[str, Any]:
    data = TABLES[name]()
    tools = [OURS, *(CLASSIFIERS if data[2] else REGRESSORS), *(["before"] if before else []), *ABLATIONS[:2]]
    tools += [ABLATIONS[2]] if sp.issparse(data[0]) else []
    runs = {}
    for tool in tools:
        if only and tool not in only:
            continue
        runs[tool] = found = in_a_process(name, tool, limit, before if tool == "before" else None)
        if "failed" not in found:
            found["loss"] = exact(data, found["l1"], found["l2"])
        print(name, tool, {key: found.get(key) for key in ("seconds", "loss", "steps", "failed")}, flush=True)
    best = min(found["loss"] for found in runs.values() if "loss" in found)
    for found in runs.values():
        found["until"] = _until(found, NEAR * best)
        found.pop("notes", None)
    return {"best": best, "runs": runs}


def _until(found: dict[str, Any], goal: float) -> float | None:
    """When penalties were first at hand whose loss is proven to be near the best; None for never."""
    if "loss" not in found:
        return None
    near = (seconds for seconds, upper in found["notes"] if upper <= goal)
    return next(near, found["seconds"] if found["loss"] <= goal else None)


def page(result: dict[str, Any]) -> str:
    def shown(found: dict[str, Any], best: float) -> str:
        if "failed" in found:
            return str(found["failed"])
        over = 100.0 * (found["loss"] / best - 1.0)
        until = "" if found["until"] is None else f", near after {found['until']:.2f}"
        return f"{found['seconds']:.2f} s, +{over:.2g} %{until}"

    rows, ablation, near, fastest = [], [], 0, 0
    for name, found in result["tables"].items():
        runs, best = found["runs"], found["best"]
        rivals = {tool: one for tool, one in runs.items() if tool not in (OURS, "before", *ABLATIONS)}
        near += runs[OURS]["until"] is not None
        others = [one["until"] for one in rivals.values() if one["until"] is not None]
        fastest += runs[OURS]["until"] is not None and runs[OURS]["until"] <= min(others, default=np.inf)
        counts = f"{runs[OURS].get('evaluations')}, {runs[OURS].get('steps')}"
        listed = "; ".join(f"{tool}: {shown(one, best)}" for tool, one in rivals.items())
        rows.append([name, f"{best:.6g}", shown(runs[OURS], best), counts, listed])
        changed = [shown(runs[tool], best) if tool in runs else "" for tool in ("before", OURS, *ABLATIONS)]
        ablation.append([name, *changed])
    return (
        "\n\n".join(
            [
                "# Tuning a table",
                "CPU seconds of the whole search, how far the exact cross-validated loss is above the least of all,\n"
                "and the time until penalties within 0.1 % of it were at hand. One thread, on a machine in use.",
                table(["table", "best loss", "suffice", "evaluations, steps", "others"], rows),
                f"Within 0.1 % of the best on {near} of {len(rows)}, first to get there on {fastest}. Of {len(TABLES)}"
                " tables these were measured, and of tools those that are shown; an empty cell was not measured.",
                "## What each change brought",
                table(["table", "before", "now", *ABLATIONS], ablation),
                f"Measured: {result['provenance']}",
            ]
        )
        + "\n"
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--tables", nargs="*", help="only those whose name begins so")
    arguments.add_argument("--tools", nargs="*", help="only these, and suffice")
    arguments.add_argument("--limit", type=int, default=120, help="CPU seconds of one run (%(default)s)")
    arguments.add_argument("--before", type=Path, help="the src folder of another version of suffice")
    arguments.add_argument("--one", nargs=2, metavar=("TABLE", "TOOL"), help="one run, in this process")
    given = arguments.parse_args()
    if given.one:
        print(json.dumps(one(*given.one)))
        return
    names = [name for name in TABLES if not given.tables or name.startswith(tuple(given.tables))]
    kept = given.out / "cv_tools.json"
    result: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() and given.tables else {"tables": {}}
    result["provenance"] = provenance("scikit-learn", "glum")
    only = None if given.tools is None else [OURS, *given.tools]
    for name in names:
        result["tables"][name] = measured(name, given.limit, given.before, only)
        result["tables"] = {name: result["tables"][name] for name in TABLES if name in result["tables"]}
        write_json(kept, result)
        write_text(given.out / "cv_tools.md", page(result))


if __name__ == "__main__":
    main()
