"""Where does a search end that begins at a sketch of F, or at a few looks, or that looks everywhere and goes on?

Random tables, dense, of 40 to 2,000 rows and 3 to 500 columns: independent or correlated columns, of one scale or of
many, few or many that matter, little noise or much; half of them with labels (log loss), half with numbers (squares).
Three searches of each by SufficeSearchCV over l1 and l2, five folds: its defaults; its defaults without sketches; a
tolerance of 1e-4, without sketches. Reported: how far the loss is above the least of the three, in percent and in
standard errors over folds, evaluations and CPU seconds.
"""

from __future__ import annotations

import time
import warnings
from typing import Any
from unittest import mock

import numpy as np
from common import parser, provenance, table, write_json, write_text
from sklearn.linear_model import ElasticNet, LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold

from suffice.sklearn import SufficeSearchCV, _starting_points
from suffice.sklearn._recorded import standard_error

SEARCHES = ("default", "without sketches", "tolerance 1e-4")


def problem(seed: int, wide: bool) -> tuple[Any, Any, Any, Any, str] | None:
    rng = np.random.default_rng(seed)
    N = int(10 ** rng.uniform(1.6, 2.4 if wide else 3.3))
    d = int(10 ** (rng.uniform(1.6, 2.7) if wide else rng.uniform(0.5, 2.2)))
    labels, Z, rho = rng.random() < 0.5, rng.standard_normal((N, d)), rng.choice([0.0, 0.5, 0.95])
    X = Z.copy()
    for j in range(1, d):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1.0 - rho**2) * Z[:, j]
    if rng.random() < 0.3:
        X *= 10 ** rng.uniform(-1, 1, d)
    matter = max(1, int(d * rng.choice([0.05, 0.3, 1.0])))
    w = np.zeros(d)
    w[rng.choice(d, matter, replace=False)] = rng.standard_normal(matter)
    m = (X - X.mean(axis=0)) @ w
    m *= rng.choice([0.3, 1.0, 3.0, 10.0]) / (m.std() + 1e-9)
    if not labels:
        return X, m + rng.standard_normal(N), ElasticNet(), KFold(5, shuffle=True, random_state=0), "squares"
    y = (rng.random(N) < 1.0 / (1.0 + np.exp(-m))).astype(int)
    if min(y.sum(), N - y.sum()) < 15:
        return None
    model = LogisticRegression(l1_ratio=0.5, solver="saga")
    return X, y, model, StratifiedKFold(5, shuffle=True, random_state=0), "log loss"


def searched(X: Any, y: Any, model: Any, cv: Any, kind: str, name: str) -> dict[str, float]:
    scoring = "neg_log_loss" if kind == "log loss" else "neg_mean_squared_error"
    given: dict[str, Any] = {"tolerance": 1e-4} if name == SEARCHES[2] else {}
    search = SufficeSearchCV(model, cv=cv, scoring=scoring, refit=False, **given)
    kept = _starting_points.sketches if name == SEARCHES[0] else lambda *_: None
    with mock.patch.object(_starting_points, "sketches", kept), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.process_time()
        search.fit(X, y)
        seconds = time.process_time() - began
    error = standard_error(search.result_.evaluation)
    return {"F": -search.best_score_, "seconds": seconds, "evaluations": len(search.cv_results_["work"]), "se": error}


def page(rows: list[dict[str, Any]], known: dict[str, Any]) -> str:
    lines = []
    for group in sorted({(row["kind"], row["shape"]) for row in rows}):
        own = [row for row in rows if (row["kind"], row["shape"]) == group]
        best = [min((row[name] for name in SEARCHES), key=lambda found: found["F"]) for row in own]
        for name in SEARCHES:
            over = [100.0 * (row[name]["F"] / least["F"] - 1.0) for row, least in zip(own, best, strict=True)]
            errors = [(row[name]["F"] - least["F"]) / least["se"] for row, least in zip(own, best, strict=True)]
            line = [f"{group[0]}, {group[1]}: {len(own)}", name, f"{np.median(over):.2g} %", f"{max(over):.2g} %"]
            line += [str(sum(one > 0.1 for one in over)), f"{max(errors):.2g}"]
            line += [f"{np.median([row[name][key] for row in own]):.2g}" for key in ("evaluations", "seconds")]
            lines.append(line)
    head = ["tables", "search", "above the least: median", "most", "by more than 0.1 %", "most, in se", "evaluations"]
    return "\n\n".join(
        ["# Where searches begin, and where they end", table([*head, "CPU seconds"], lines), f"Measured: {known}\n"]
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--seeds", type=int, default=70, help="of tables that are mostly tall (%(default)s)")
    arguments.add_argument("--wide", type=int, default=40, help="of tables that may be wide (%(default)s)")
    given = arguments.parse_args()
    rows: list[dict[str, Any]] = []
    for seed, wide in [(s, False) for s in range(given.seeds)] + [(s, True) for s in range(given.wide)]:
        made = problem(seed, wide)
        if made is None:
            continue
        shape = "more columns than rows" if 0.8 * made[0].shape[0] < made[0].shape[1] else "more rows than columns"
        rows.append({"seed": seed, "kind": made[4], "shape": shape})
        rows[-1] |= {name: searched(*made, name) for name in SEARCHES}
        print(rows[-1], flush=True)
    write_json(given.out / "sketches.json", {"rows": rows, "provenance": provenance("scikit-learn")})
    write_text(given.out / "sketches.md", page(rows, provenance("scikit-learn")))


if __name__ == "__main__":
    main()
