"""How do time and memory grow? Certified solves of synthetic problems with the default solver, from 0 to 1e-6.

Elastic-net logistic regression on normal features, labels from 20 columns with noise; l1 is a tenth of the penalty at
which all weights vanish, l2 a hundredth of that. One series each: rows N with 200 columns, columns d with 2000 rows,
problems n that share X (2000 x 100) in one evaluation to 1e-4, and one sparse X of 100,000 x 100,000 with 100 nonzeros
a row. All data are synthetic.

Times are CPU seconds of one thread, the least of three where a solve is short, and include what is computed once per X
(its norm). Memory is the peak that tracemalloc sees during such a solve, without X itself, over the size of X.
Exponents are least-squares slopes on logarithmic scales, over the larger half of the sizes too, since small problems
mostly measure Python. Many problems keep as many solutions, whose vectors of length N outgrow a small X.

Searches: SufficeSearchCV with its defaults over l1 and l2, of squares (`ElasticNet`) and of a logistic loss, with one
split (a fifth is held out) and with five folds, for N from 10^3 to 10^6 with 50 columns and for 10 to 20,000 columns
with 500 rows. Each is made in a process of its own, after a small one that loads the libraries. Memory is the largest
resident set during the search less that before it, over the size of X. The exponent in N is that of 10^4 rows and
more. `--only searches` measures these alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import scipy.sparse as sp

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from common import parser, provenance, table, target, write_json, write_text
from threadpoolctl import threadpool_limits

import suffice
from suffice.losses import Brier
from suffice.problems import ElasticNetLogistic
from suffice.rows.design import Design

ROWS = (1000, 3000, 10_000, 30_000, 60_000)
COLUMNS = (50, 150, 500, 1500, 5000)
PROBLEMS = (1, 3, 10, 30, 100)
WITHIN = 1e-6
SHORT = 2.0  # seconds, up to which a measurement is repeated


def labels(X: Any, rng: np.random.Generator, share: float = 1.0) -> np.ndarray[Any, Any]:
    w = np.zeros(X.shape[1])
    w[rng.choice(X.shape[1], 20, replace=False)] = rng.choice([-1.0, 1.0], 20)
    answer: np.ndarray[Any, Any] = X @ w * share + rng.standard_normal(X.shape[0]) > 0.0
    return answer


def penalties(X: Any, y: np.ndarray[Any, Any]) -> tuple[float, float]:
    largest = float(np.max(np.abs(X.T @ (y - 0.5)))) / len(y)  # from here on w = 0
    return 0.1 * largest, 1e-3 * largest


def size(X: Any) -> int:
    return X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sp.issparse(X) else X.nbytes


def measured(task: Callable[[], Any], X: Any) -> dict[str, float]:
    """Time and memory of a task, measured apart."""
    times: list[float] = []
    while len(times) < 3 and (not times or times[0] < SHORT):
        began = time.process_time()
        found = task()
        times.append(time.process_time() - began)
    tracemalloc.start()
    task()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"seconds": min(times), "peak": peak, "memory": peak / size(X), "MB of X": size(X) / 1e6, **found}


def solve(X: Any, y: np.ndarray[Any, Any]) -> dict[str, float]:
    l1, l2 = penalties(X, y)
    solution = suffice.solve(ElasticNetLogistic(Design.of(X), y).at(l1=l1, l2=l2), within=WITHIN)
    assert solution.reached
    return {"support": int(np.count_nonzero(solution.x)), "steps": solution.steps}


def dense(rows: int, columns: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns))
    y = labels(X, rng)
    return {"rows": rows, "columns": columns, **measured(lambda: solve(X, y), X)}


def many(n: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 100))
    ys = [labels(X, rng) for _ in range(n)]
    space = suffice.Space(l1=(1e-5, 1.0), l2=(1e-5, 1.0))
    theta = np.log10(penalties(X, ys[0]))

    def evaluate() -> dict[str, float]:
        design = Design.of(X)
        lower = [ElasticNetLogistic(design, y) for y in ys]
        found = suffice.BilevelProblem(lower, [Brier(X, y) for y in ys], space=space).evaluate(theta, within=1e-4)
        assert float(found.e.max()) <= 1e-4
        return {"steps": found.work}

    return {"problems": n, **measured(evaluate, X)}


def sparse(rows: int, columns: int, nonzeros: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    indices = rng.integers(0, columns, rows * nonzeros).astype(np.int32)
    entries = rng.standard_normal(rows * nonzeros)
    X = sp.csr_array((entries, indices, np.arange(rows + 1, dtype=np.int32) * nonzeros), shape=(rows, columns))
    X.sum_duplicates()
    y = labels(X, rng, share=30.0)
    return {"rows": rows, "columns": columns, "nonzeros a row": nonzeros, **measured(lambda: solve(X, y), X)}


def exponents(series: list[dict[str, float]], by: str, what: str) -> tuple[float, float]:
    """The slope over all sizes, and over the larger half."""
    x, y = (np.log([one[name] for one in series]) for name in (by, what))
    half = len(series) // 2
    return float(np.polyfit(x, y, 1)[0]), float(np.polyfit(x[half:], y[half:], 1)[0])


def draw(data: dict[str, list[dict[str, float]]], path: Any) -> None:
    figure, axes = plt.subplots(2, 3, figsize=(10, 5.6), layout="constrained", sharex="col")
    titles = {"rows": "rows N (d = 200)", "columns": "columns d (N = 2000)", "problems": "problems n (2000 x 100)"}
    for column, (by, series) in enumerate(data.items()):
        x = [one[by] for one in series]
        for row, (what, label) in enumerate((("seconds", "CPU seconds"), ("memory", "peak memory / size of X"))):
            axis, y = axes[row][column], [one[what] for one in series]
            axis.plot(x, y, "o-", color="#D55E00", linewidth=2.0)
            axis.set_xscale("log")
            axis.grid(alpha=0.3)
            if column == 0:
                axis.set_ylabel(label)
            if row == 0:
                slope = exponents(series, by, what)[1]
                guide = [y[-1] * (one / x[-1]) ** slope for one in x]
                axis.plot(x, guide, "--", color="#777777", linewidth=1.2, label=f"slope {slope:.2f} (larger half)")
                axis.set_yscale("log")
                axis.legend(frameon=False)
            else:
                axis.axhline(3.0, color="#0072B2", linestyle=":", label="three times X")
                axis.set_ylim(0.0, max(3.4, 1.1 * max(y)))
                axis.set_xlabel(titles[by])
                axis.legend(frameon=False)
    figure.suptitle("Certified solves of synthetic logistic regressions, default solver")
    figure.savefig(path, dpi=120)
    plt.close(figure)


SEARCHED_ROWS, SEARCHED_COLUMNS = (1_000, 10_000, 100_000, 1_000_000), (10, 100, 1_000, 5_000, 20_000)
KINDS = [(kind, folds) for kind in ("squares", "logistic") for folds in (1, 5)]


def searched(rows: int, columns: int, kind: str, folds: int) -> None:
    """In a process of its own: a search, told in one line."""
    from sklearn.linear_model import ElasticNet, LogisticRegression
    from sklearn.model_selection import KFold, ShuffleSplit

    from suffice.sklearn import SufficeSearchCV

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((rows, columns)), np.zeros(columns)
    relevant = min(20, columns)
    w[rng.choice(columns, relevant, replace=False)] = rng.choice([-1.0, 1.0], relevant) / np.sqrt(relevant)
    model: Any = ElasticNet()
    if kind == "squares":
        y = X @ w + rng.standard_normal(rows)
    else:
        y = X @ w + rng.logistic(size=rows) > 0.0
        model = LogisticRegression(penalty="elasticnet", solver="saga", l1_ratio=0.5)
    cv = KFold(5) if folds == 5 else ShuffleSplit(1, test_size=0.2, random_state=0)
    SufficeSearchCV(model, cv=cv).fit(X[:200, :50], y[:200])

    def resident(what: str) -> int:
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return 1024 * int(lines[what].split()[0])

    before, began = resident("VmRSS"), time.process_time()
    found = SufficeSearchCV(model, cv=cv).fit(X, y)
    seconds = time.process_time() - began
    print(json.dumps({
        "rows": rows, "columns": columns, "kind": kind, "folds": folds, "seconds": seconds,
        "memory": (resident("VmHWM") - before) / X.nbytes, "evaluations": len(found.cv_results_["params"]),
    }))  # fmt: skip


def searches() -> list[dict[str, Any]]:
    rows = []
    for kind, folds in KINDS:
        for N, d in [*((N, 50) for N in SEARCHED_ROWS), *((500, d) for d in SEARCHED_COLUMNS)]:
            code = f"import growth; growth.searched({N}, {d}, {kind!r}, {folds})"
            made = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent
            )
            rows.append(json.loads(made.stdout.splitlines()[-1]))
            print(*rows[-1].values(), flush=True)
    return rows


def told(rows: list[dict[str, Any]]) -> list[str]:
    """Tables of the searches, and what is wanted of them."""
    parts, targets = ["## Searches"], []
    for by, head in (("rows", "rows, 50 columns"), ("columns", "columns, 500 rows")):
        here = [one for one in rows if (one["columns"] == 50) == (by == "rows")]
        lines = []
        for size in sorted({one[by] for one in here}):
            of = {(one["kind"], one["folds"]): one for one in here if one[by] == size}
            lines.append([f"{size:,}", *(f"{of[k]['seconds']:.2f} ({of[k]['memory']:.1f})" for k in KINDS)])
        parts.append("CPU seconds (and memory over X):")
        parts.append(table([head, *(f"{kind}, {folds} fold{'s' * (folds > 1)}" for kind, folds in KINDS)], lines))
        for kind, folds in KINDS if by == "rows" else ():
            of_kind = [one for one in here if (one["kind"], one["folds"]) == (kind, folds) and one["rows"] >= 10_000]
            slope = np.polyfit(*(np.log([one[name] for one in of_kind]) for name in ("rows", "seconds")), 1)[0]
            targets.append(target(f"exponent in N, {kind}, {folds}", float(slope), 1.05, digits=2))
    large = {(one["kind"], one["folds"]): one for one in rows if one["rows"] == max(SEARCHED_ROWS)}
    ratio = large["squares", 5]["seconds"] / large["squares", 1]["seconds"]
    targets.append(target("five folds over one, squares, 10^6 rows", ratio, 2.0, digits=2))
    most = max(one["memory"] for one in large.values())
    targets.append(target("memory over X, 10^6 rows", most, 2.0, digits=1))
    return [*parts, table(["target", "measured", "wanted", ""], targets)]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--only", choices=["searches"])
    options = arguments.parse_args()
    path = options.out / "growth.json"
    if options.only:
        found = json.loads(path.read_text())
        found["searches"], found["searches made by"] = searches(), provenance()
        write_json(path, found)
        text = (options.out / "growth.md").read_text().split("## Searches")[0].rstrip()
        parts = [*told(found["searches"]), f"commit of the searches {found['searches made by']['commit']}"]
        write_text(options.out / "growth.md", "\n\n".join([text, *parts]) + "\n")
        return
    with threadpool_limits(1):
        data = {
            "rows": [dense(rows, 200) for rows in ROWS],
            "columns": [dense(2000, columns) for columns in COLUMNS],
            "problems": [many(n) for n in PROBLEMS],
        }
        large = sparse(100_000, 100_000, 100)
    head = ["size", "seconds", "peak / X", "MB of X", "steps", "weights"]
    parts = []
    for by, series in [*data.items(), ("sparse, rows", [large])]:
        rows = [
            [
                f"{one[by.split()[-1]]:.0f}",
                f"{one['seconds']:.2f}",
                f"{one['memory']:.2f}",
                f"{one['MB of X']:.1f}",
                f"{one['steps']:.0f}",
                one.get("support", ""),
            ]
            for one in series
        ]
        parts.append(table([by, *head[1:]], rows))
        if len(series) > 1:
            all_, half = exponents(series, by, "seconds")
            of_peak, of_peak_half = exponents(series, by, "peak")
            parts.append(
                f"Exponents over all sizes / over the larger half: time {all_:.2f} / {half:.2f}, "
                f"memory {of_peak:.2f} / {of_peak_half:.2f}."
            )
    most = max(one["memory"] for series in ("rows", "columns") for one in data[series])
    targets = [
        target("peak memory over X, one dense problem", most, 3.0),
        target("peak memory over X, sparse", large["memory"], 3.0),
    ]
    parts.append(table(["target", "measured", "wanted", ""], targets))
    of_searches = searches()
    text = "\n\n".join([*parts, *told(of_searches)]) + "\n"
    made = provenance()
    print(text)
    write_text(options.out / "growth.md", f"# Growth\n\ncommit {made['commit']}\n\n{text}")
    write_json(path, {"provenance": made, **data, "sparse": large, "searches": of_searches})
    draw(data, options.out / "growth.png")


if __name__ == "__main__":
    main()
