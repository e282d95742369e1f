"""Penalties of linear models by cross-validation: how long until each tool is within 0.1 % of the best loss?

Every tool gets the same standardised columns and the same five folds, in one thread, with its own defaults (four mixing
ratios where it takes a list, whose elastic nets have one penalty for a whole path). What counts is the exact
cross-validated loss at the penalties that it returns (`suffice_bench.tools`, which `suffice bench data.csv
--target y` uses for a table of one's own). The best of a table is the least of all these.

Times are those of the processor, of the call that tunes and refits and nothing else. Each run is a process of its own,
ended after --limit seconds. `--before SRC` measures another version of suffice as well (its `src` folder). The ablation
takes back one change at a time, by patches: the statistical tolerance, sketches, the choice of the solver, working sets
that grow at once where rows are few, the dense form of small sparse folds.

Rivals are those of scikit-learn, celer, skglm and glum; `--also PYTHON` names another interpreter for those that this
one cannot import. What cannot be imported, or fails, is said. adelie makes folds of its own, and glmnet's Python
package is not to be had. Data: tables of the wheel ISLP (`table_sources`), of scikit-learn, and synthetic ones.
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
from sklearn import datasets
from sklearn.feature_extraction.text import TfidfTransformer
from suffice_bench.tools import CLASSIFIERS, NEAR, OURS, RATIOS, REGRESSORS, Found, Tabled, exact_loss, ours
from table_sources import content


def _islp(name: str) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(content("islp", f"ISLP/data/{name}.csv"))).dropna()


def _standardised(X: Any) -> Any:
    X = np.asarray(X, dtype=np.float64)
    spread = X.std(axis=0)
    return (X - X.mean(axis=0))[:, spread > 0.0] / spread[spread > 0.0]


def _frame(name: str, target: str, positive: str | None = None, drop: tuple[str, ...] = ()) -> Tabled:
    frame = _islp(name).drop(columns=list(drop), errors="ignore")
    y = frame.pop(target)
    X = _standardised(pd.get_dummies(frame, drop_first=True))
    if positive is None:
        return Tabled(X, y.to_numpy(dtype=float), False)
    return Tabled(X, (y == positive).to_numpy().astype(int), True)


def _nci60() -> Tabled:
    X = np.load(io.BytesIO(content("islp", "ISLP/data/NCI60data.npy")))
    cells = _islp("NCI60labs").iloc[:, -1].to_numpy()
    return Tabled(_standardised(X), np.isin(cells, ("MELANOMA", "RENAL", "CNS")).astype(float), False)


def _khan() -> Tabled:
    X = pd.concat([_islp("Khan_xtrain"), _islp("Khan_xtest")]).iloc[:, 1:]
    y = np.concatenate([_islp("Khan_ytrain").iloc[:, -1], _islp("Khan_ytest").iloc[:, -1]])
    return Tabled(_standardised(X), (y == 2).astype(int), True)


def _digits() -> Tabled:
    X, y = datasets.load_digits(return_X_y=True)
    rows = np.isin(y, (3, 8))
    return Tabled(_standardised(X[rows]), (y[rows] == 8).astype(int), True)


def _synthetic(N: int, d: int, informative: int, classes: bool) -> Tabled:
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((N, d)), np.zeros(d)
    w[:informative] = rng.standard_normal(informative) * (0.5 if classes else 1.0)
    if classes:
        return Tabled(X, (rng.random(N) < 1.0 / (1.0 + np.exp(-X @ w))).astype(int), True)
    return Tabled(X, X @ w + 5.0 * rng.standard_normal(N), False)


def _ten_digits() -> Tabled:
    X, y = datasets.load_digits(return_X_y=True)
    return Tabled(_standardised(X), y, True, l2_alone=True)


def _words() -> Tabled:
    """Counts of words as texts have them, of four topics that share most words, as tf-idf."""
    rng, (N, d, K) = np.random.default_rng(0), (3750, 9470, 4)
    base = 1.0 / np.arange(1.0, d + 1.0)
    topics = [base * np.exp(rng.standard_normal(d)) for _ in range(K)]
    y = rng.integers(0, K, N)
    rows = []
    for k in y:
        mixed = 0.15 * topics[k] / topics[k].sum() + 0.85 * base / base.sum()
        rows.append(np.bincount(rng.choice(d, int(rng.lognormal(4.6, 0.6)) + 10, p=mixed / mixed.sum()), minlength=d))
    return Tabled(sp.csr_array(TfidfTransformer().fit_transform(np.array(rows))), y, True, l2_alone=True)


def _one_hot(sparse: bool) -> Tabled:
    rng = np.random.default_rng(1)
    X = np.hstack([np.eye(10)[rng.integers(0, 10, 1278)] for _ in range(15)])
    y = X @ (0.5 * rng.standard_normal(150)) + rng.standard_normal(1278)
    return Tabled(sp.csr_array(X) if sparse else X, y, False)


TABLES: dict[str, Callable[[], Tabled]] = {
    "breast cancer 569 x 30": lambda: Tabled(*_xy(datasets.load_breast_cancer), True),
    "Caravan 5822 x 85": lambda: _frame("Caravan", "Purchase", "Yes"),
    "synthetic 10000 x 300": lambda: _synthetic(10_000, 300, 20, True),
    "Hitters 263 x 19": lambda: _frame("Hitters", "Salary"),
    "diabetes 442 x 10": lambda: Tabled(*_xy(datasets.load_diabetes), False),
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
    "digits, 10 classes, 1797 x 61": _ten_digits,
    "tf-idf, 4 classes, 3750 x 9470": _words,
}


def _xy(load: Callable[..., Any]) -> tuple[Any, Any]:
    X, y = load(return_X_y=True)
    return _standardised(X), y


def glum(data: Tabled, note: Any) -> Found:
    from glum import GeneralizedLinearRegressorCV

    family = "binomial" if data.labels else "normal"
    model = GeneralizedLinearRegressorCV(family=family, l1_ratio=RATIOS, cv=data.splits, n_jobs=1)
    model.fit(data.X, data.y)
    return float(model.alpha_ * model.l1_ratio_), float(model.alpha_ * (1.0 - model.l1_ratio_))


def celer(data: Tabled, note: Any) -> Found:
    from celer import ElasticNetCV
    from sklearn.base import RegressorMixin

    class Mended(ElasticNetCV):  # type: ignore[misc]
        """celer 0.7.4 hands `n_alphas` on, which scikit-learn calls `alphas` since 1.9: the same path otherwise."""

        def __init__(self, l1_ratio: Any, alphas: int = 100, cv: Any = None, precompute: Any = "auto") -> None:
            super(RegressorMixin, self).__init__(eps=1e-3, alphas=alphas, cv=cv, max_iter=100, tol=1e-4)
            self.l1_ratio, self.precompute, self.prune, self.positive = l1_ratio, precompute, True, False
            self.max_epochs, self.p0 = 50_000, 10

    model = Mended(l1_ratio=RATIOS, cv=data.splits).fit(data.X, data.y)
    return float(model.alpha_ * model.l1_ratio_), float(model.alpha_ * (1.0 - model.l1_ratio_))


def skglm(data: Tabled, note: Any) -> Found:
    from skglm import GeneralizedLinearEstimatorCV
    from skglm.datafits import Logistic, Quadratic
    from skglm.penalties import L1_plus_L2
    from skglm.solvers import AndersonCD

    y = np.where(data.y == 1, 1.0, -1.0) if data.labels else data.y
    model = GeneralizedLinearEstimatorCV(
        Logistic() if data.labels else Quadratic(), L1_plus_L2(1.0, 0.5), AndersonCD(fit_intercept=True),
        l1_ratio=RATIOS, cv=5, random_state=0,  # which makes the same folds
    ).fit(data.X, y)  # fmt: skip
    return float(model.alpha_ * model.l1_ratio_), float(model.alpha_ * (1.0 - model.l1_ratio_))


TOOLS: dict[str, Callable[..., Found]] = {
    **CLASSIFIERS, **REGRESSORS, "glum": glum, "celer": celer, "skglm": skglm,
}  # fmt: skip
MODULES = {"glum": "glum", "celer": "celer", "skglm": "skglm"}


def rivals(data: Tabled) -> list[str]:
    if data.l2_alone:
        return ["lbfgs, l2"]
    own = [*(CLASSIFIERS if data.labels else REGRESSORS), "glum", "skglm"]
    return own if data.labels else [*own, "celer"]


ABLATIONS = (
    "without the statistical tolerance",
    "without sketches",
    "without the choice of the solver",
    "without wide working sets",
    "without dense forms",
)


def _patched(name: str) -> Any:
    """One change taken back."""
    from suffice.sklearn import _starting_points, folds
    from suffice.solvers import auto, newton

    if name == ABLATIONS[1]:
        return mock.patch.object(_starting_points, "sketches", lambda *_: None)
    if name == ABLATIONS[2]:
        return mock.patch.multiple(auto, EASY=150.0, LEAST=0)
    if name == ABLATIONS[3]:
        return mock.patch.object(newton, "WIDE_GROWTH", newton.GROWTH)
    if name == ABLATIONS[4]:
        return mock.patch.object(folds, "SMALL", 0)
    return nullcontext()


def ablations(data: Tabled) -> list[str]:
    rows, columns = data.X.shape
    wide, sparse = rows < columns, sp.issparse(data.X)
    return [*ABLATIONS[:3], *(ABLATIONS[3:4] if wide else []), *(ABLATIONS[4:] if sparse and not data.l2_alone else [])]


def one(table_name: str, tool: str) -> dict[str, Any]:
    """One run, in this process."""
    data = TABLES[table_name]()
    notes: list[tuple[float, float]] = []
    counts = {"evaluations": 0}

    def note(upper: float) -> None:
        notes.append((time.process_time() - began, upper))
        counts["evaluations"] += 1

    warnings.simplefilter("ignore")
    own = tool in (OURS, "before", *ABLATIONS)
    arguments = {"tolerance": 1e-4} if tool == ABLATIONS[0] else {}
    run = (lambda: ours(data, note, **arguments)) if own else (lambda: TOOLS[tool](data, note))
    with _patched(tool) if tool in ABLATIONS else nullcontext():
        began = time.process_time()
        l1, l2 = run()
        seconds = time.process_time() - began
    return {"seconds": seconds, "l1": l1, "l2": l2, "notes": notes, "evaluations": counts["evaluations"]}


def in_a_process(
    table_name: str, tool: str, limit: int, source: Path | None = None, python: str = sys.executable
) -> dict[str, Any]:
    """The same in a process of its own, within so many seconds of the processor."""
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment["NUMBA_NUM_THREADS"] = "1"
    if source is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(source), environment.get("PYTHONPATH", "")])
    command = [python, str(HERE / "cv_tools.py"), "--one", table_name, tool]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
    )  # fmt: skip
    if done.returncode == 0:
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found
    lines = done.stderr.strip().splitlines()
    return {"failed": f"more than {limit} s" if done.returncode < 0 else lines[-1][:120] if lines else "no answer"}


def imports(python: str, module: str) -> bool:
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0


def interpreter(tool: str, also: str | None) -> str | None:
    """The first that can import the tool."""
    known = [sys.executable, *([also] if also else [])]
    module = MODULES.get(tool)
    return next((python for python in known if module is None or imports(python, module)), None)


def measured(name: str, given: Any) -> dict[str, Any]:
    data, before = TABLES[name](), given.before
    tools = [OURS, *rivals(data), *(["before"] if before else []), *([] if given.no_ablation else ablations(data))]
    runs: dict[str, Any] = {}
    for tool in tools:
        if given.tools is not None and tool not in (OURS, *given.tools):
            continue
        python = interpreter(tool, given.also)
        if python is None:
            runs[tool] = {"failed": "not installed"}
            continue
        runs[tool] = found = in_a_process(name, tool, given.limit, before if tool == "before" else None, python)
        if "failed" not in found:
            found["loss"] = exact_loss(data, (found["l1"], found["l2"]))
        print(name, tool, {key: found.get(key) for key in ("seconds", "loss", "failed")}, flush=True)
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

    rows, ablation, near, fastest, slower = [], [], 0, 0, []
    for name, found in result["tables"].items():
        runs, best = found["runs"], found["best"]
        others = {tool: one for tool, one in runs.items() if tool not in (OURS, "before", *ABLATIONS)}
        mine, known = runs[OURS]["until"], [one["until"] for one in others.values() if one.get("until") is not None]
        near += mine is not None
        fastest += mine is not None and mine <= min(known, default=np.inf)
        if mine is not None and known and mine > 2.0 * min(known):
            slower.append(f"{name} ({mine / min(known):.1f} times)")
        listed = "; ".join(f"{tool}: {shown(one, best)}" for tool, one in others.items())
        rows.append([name, f"{best:.6g}", shown(runs[OURS], best), str(runs[OURS].get("evaluations")), listed])
        changed = [shown(runs[tool], best) if tool in runs else "" for tool in ("before", OURS, *ABLATIONS)]
        ablation.append([name, *changed])
    twice = f" More than twice as long as the fastest: {', '.join(slower)}." if slower else ""
    return (
        "\n\n".join(
            [
                "# Tuning a table",
                "CPU seconds of the whole search, how far the exact cross-validated loss is above the least of all,\n"
                "and the time until penalties within 0.1 % of it were at hand. One thread.",
                *([result["note"]] if "note" in result else []),
                table(["table", "best loss", "suffice", "evaluations", "others"], rows),
                f"Within 0.1 % of the best on {near} of {len(rows)}, first to get there on {fastest}.{twice} Of"
                f" {len(TABLES)} tables these were measured; an empty cell was not measured.",
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
    arguments.add_argument("--also", help="another interpreter, for tools that this one cannot import")
    arguments.add_argument("--no-ablation", action="store_true", help="without taking changes back")
    arguments.add_argument("--one", nargs=2, metavar=("TABLE", "TOOL"), help="one run, in this process")
    given = arguments.parse_args()
    if given.one:
        print(json.dumps(one(*given.one)))
        return
    names = [name for name in TABLES if not given.tables or name.startswith(tuple(given.tables))]
    kept = given.out / "cv_tools.json"
    result: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() and given.tables else {"tables": {}}
    result["provenance"] = provenance("scikit-learn", "celer", "skglm")
    for name in names:
        result["tables"][name] = measured(name, given)
        result["tables"] = {name: result["tables"][name] for name in TABLES if name in result["tables"]}
        write_json(kept, result)
        write_text(given.out / "cv_tools.md", page(result))


if __name__ == "__main__":
    main()
