"""Every row left out: are the intervals true, what do they cost, and how does that grow?

- truth: hostile problems (rows twice, leverage near 1, columns that are constant but for a row, collinear ones, units
  far apart, weights of 0, separable classes, no l2; squares, logistic, Poisson, Gamma and Tweedie losses, with and
  without intercept, offset, l1; some with many more columns than rows), rows and groups of rows left out; intervals of
  the left-out rows and of three others against refits in extended precision. An interval that does not hold the truth
  is a false proof. One problem of PIPED is put through `leave_one_out` behind a `StandardScaler`, which every model
  fits to its own rows, with its offsets, weights and groups; there 1e-10 is allowed for the arithmetic of the scaler.
- price: real tables at tuned penalties (`SufficeSearchCV`, 5 folds). CPU time of all n left-out models over that of one
  certified fit of all rows from nothing (its data are checked already, which the left-out models do themselves), beside
  n refits by the same solver from the weights of all rows and n fits by scikit-learn's own estimator, both by the 20
  first rows (2 of scikit-learn's where columns outnumber rows); how many rows needed a fit of their own. The least of
  REPEATS, interleaved.
- several classes: models of a softmax without a row each are fitted one by one, from that without the last row.
- tuning: `SufficeSearchCV(cv="loo")` beside the same search by n folds (`cv` a list of them), CPU seconds and scores.
- ridge: leave-one-out of one ridge beside scikit-learn's `RidgeCV` with one alpha, which has a closed form, and a
  search by leave-one-out beside `RidgeCV` with its 3 alphas and with 100.
- growth: rows from 1,000 to 100,000 at 50 columns, logistic with both penalties, with the exponent that fits.

    python benchmarks/leave_one_out.py --intervals 100000
"""

from __future__ import annotations

import io
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from common import parser, provenance, table, write_json, write_text
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge, RidgeCV
from sklearn.model_selection import LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from table_sources import content, download

from suffice.prove.downdated import Groups, WholeModel
from suffice.prove.left_out_dual import left_out_models
from suffice.rows.design import Design
from suffice.sklearn import ElasticNetGLM, SufficeSearchCV
from suffice.sklearn._final_fit import solved
from suffice.sklearn._held_out_models import HeldOutModels
from suffice.sklearn.left_out import ACCURACY, LeftOutTask, leave_one_out
from tests.reference_left_out import SLOPES, hostile, refitted, solved_whole

PARTS = ("truth", "price", "growth")
BESIDE, REPEATS = 20, 5  # rows that are refitted for comparison
NEW = 3  # further rows whose predictions are checked
PIPED, WIDE = 4, 8  # one problem of so many is behind a scaler, or has many more columns than rows
FAMILIES = {"squares": "gaussian", "logistic": "binomial"}


def truth(intervals: int, seed: int) -> dict[str, Any]:
    """Counts of intervals, and the largest distance of the truth over what was claimed."""
    rng = np.random.default_rng(seed)
    names = ("problems", "groups", "proven", "intervals", "false", "no truth", "behind a scaler", "wide")
    found = dict.fromkeys(names, 0)
    largest, cases = 0.0, []
    while found["intervals"] < intervals:
        problem = widened(hostile(rng), rng) if rng.integers(WIDE) == 0 else hostile(rng)
        kind, X, y, a, l1, l2, intercept, offset = problem
        groups = [np.array([i]) for i in range(len(y)) if a[i] < 1.0 - 1e-9]
        if rng.random() < 0.25:
            which = rng.permutation(len(y)) % max(len(y) // 3, 1)
            parts = (np.flatnonzero(which == g) for g in range(which.max() + 1))
            groups = [rows for rows in parts if a[rows].sum() < 1.0 - 1e-9]
        if not groups:
            continue
        if rng.integers(PIPED) == 0:
            ratios, proven = piped(problem, groups, rng)
            for name, count in (("problems", 1), ("groups", len(groups)), ("proven", proven)):
                found[name] += count
            found["intervals"] += len(ratios)
            found["behind a scaler"] += len(ratios)
            found["false"] += sum(bool(ratio > 1.0) for ratio in ratios)
            largest = max([largest, *map(float, ratios)])
            if max(ratios, default=0.0) > 1.0:
                cases.append([found["problems"], -1, kind])
            continue
        scales = np.exp(0.05 * rng.standard_normal((len(groups), X.shape[1]))) if rng.random() < 0.3 else None
        share = np.array([1.0 - a[rows].sum() for rows in groups]) if rng.random() < 0.7 else np.ones(len(groups))
        within = 10.0 ** rng.uniform(-9, 0) if rng.random() < 0.5 else np.inf
        try:
            w, b = solved_whole(problem)
        except ValueError:  # of all rows there is none
            continue
        w = w + (10.0 ** rng.uniform(-10, -3) * rng.standard_normal(len(w)) * (w != 0.0) if rng.random() < 0.5 else 0.0)
        model = WholeModel(Design(X, a), y, SLOPES[kind][0], l1, l2, intercept, offset if offset.any() else None)
        made = left_out_models(model, w, b, Groups.of(groups, share, scales), within)
        m, e = made.left()
        new = rng.standard_normal((NEW, X.shape[1]))
        of_new, error_of_new = made.margins(new)
        found["wide"] += len(groups) * (made.turn is not None)
        found["problems"] += 1
        found["groups"] += len(groups)
        for g in np.flatnonzero(made.proven):
            found["proven"] += 1
            keep, s, c = np.setdiff1d(np.arange(len(y)), groups[g]), 1.0 if scales is None else scales[g], share[g]
            near = np.append(made.weights_of(g), made.b[g])
            true = refitted(kind, X[keep], y[keep], a[keep], l1 * c * s, l2 * c * s * s, intercept, offset[keep], near)
            if true is None:
                found["no truth"] += 1
                continue
            rows = made.groups.rows[made.groups.which == g]
            here = np.flatnonzero(made.groups.which == g)
            ratios = [abs(true.margin(X[i], offset[i]) - m[q]) / e[q] for q, i in zip(here, rows, strict=True)]
            ratios += [abs(true.margin(new[q]) - of_new[q, g]) / error_of_new[q, g] for q in range(NEW)]
            found["intervals"] += len(ratios)
            found["false"] += sum(bool(ratio > 1.0) for ratio in ratios)
            largest = max(largest, float(max(ratios)))
            if max(ratios) > 1.0:
                cases.append([found["problems"], int(g), kind])
    return {**found, "largest ratio": largest, "cases": cases}


def widened(problem: tuple[Any, ...], rng: np.random.Generator) -> tuple[Any, ...]:
    """A few of its rows, with many more columns, one l2 and next to no l1."""
    kind, X, y, a, l1, l2, intercept, offset = problem
    n = min(len(y), int(rng.integers(4, 9)))
    if a[:n].sum() == 0.0 or (kind == "logistic" and len(np.unique(y[:n][a[:n] > 0.0])) < 2):
        a = np.ones(len(y))
    p, a = int(rng.integers(4 * n, 6 * n)), a[:n] / a[:n].sum()
    wide = X[:n] @ rng.standard_normal((X.shape[1], p)) if rng.random() < 0.3 else rng.standard_normal((n, p))
    wide = wide * 10.0 ** rng.uniform(-1, 1)
    l1 = np.full(p, 0.0 if rng.random() < 0.5 else 10.0 ** rng.uniform(-12, -6))
    return kind, wide, y[:n], a, l1, np.full(p, max(l2[0], 1e-6) * 10.0 ** rng.uniform(-2, 2)), intercept, offset[:n]


def piped(problem: tuple[Any, ...], groups: list[Any], rng: np.random.Generator) -> tuple[list[float], int]:
    """Distances over what was claimed, of rows left out by `leave_one_out` behind a scaler, and proven models."""
    kind, X, y, a, l1, l2, intercept, offset = problem
    given = np.column_stack([X, offset]) if offset.any() else X
    scaler, weight = StandardScaler(with_mean=bool(rng.random() < 0.7)), a * len(a)
    l1, l2 = float(l1[0]) / (np.sqrt(np.mean(X**2)) + 1e-12), float(l2[0]) / (np.mean(X**2) + 1e-12)
    model = ElasticNetGLM(FAMILIES.get(kind, kind), l1=l1, l2=l2, fit_intercept=intercept,
                          offset=X.shape[1] if offset.any() else None)  # fmt: skip
    pipeline, labels = make_pipeline(scaler, model), np.full(len(y), -1)
    for g, rows in enumerate(groups):
        labels[rows] = g
    if (labels < 0).any():  # a row that has all the weight
        return [], 0
    try:
        rows = leave_one_out(pipeline, given, y, sample_weight=weight, groups=labels)
    except ValueError:  # of all rows there is none
        return [], 0
    ratios, proven = [], 0
    for left in groups:
        if not np.isfinite(rows.error[left]).all():
            continue
        proven += 1
        keep = np.setdiff1d(np.arange(len(y)), left)
        try:
            fitted = clone(pipeline).fit(given[keep], y[keep], elasticnetglm__sample_weight=weight[keep])
        except ValueError:
            continue
        Z = fitted[0].transform(given)
        Z, o = (Z[:, :-1], Z[:, -1]) if offset.any() else (Z, np.zeros(len(Z)))
        near = np.append(np.ravel(fitted[1].coef_)[: Z.shape[1]], np.ravel(fitted[1].intercept_)[0])
        penalties = np.full(Z.shape[1], l1), np.full(Z.shape[1], l2)
        true = refitted(kind, Z[keep], y[keep], a[keep] / a[keep].sum(), *penalties, intercept, o[keep], near)
        if true is not None:
            off = [abs(float(true.margin(Z[i], o[i])) - rows.margin[i]) for i in left]
            ratios += [
                d / (rows.error[i] + 1e-10 * (1.0 + abs(rows.margin[i]))) for d, i in zip(off, left, strict=True)
            ]
    return ratios, proven


def _islp(name: str) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(content("islp", f"ISLP/data/{name}.csv")))


def tables() -> dict[str, tuple[Any, Any, Any]]:
    """Columns of variance 1, targets, and the estimator whose penalties are tuned."""
    download()
    logistic, net = LogisticRegression(l1_ratio=0.5, solver="saga"), ElasticNet()
    boston, caravan = _islp("Boston"), _islp("Caravan")
    digits = load_digits()
    three = np.isin(digits.target, (3, 8))
    nci = np.load(io.BytesIO(content("islp", "ISLP/data/NCI60data.npy")))
    khan, of_khan = (_islp(f"Khan_{name}") for name in ("xtrain", "ytrain"))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 50))
    y = X @ rng.standard_normal(50) + 3.0 * rng.standard_normal(2000) > 0.0
    found = {
        "breast cancer": (*load_breast_cancer(return_X_y=True), logistic),
        "diabetes": (*load_diabetes(return_X_y=True), net),
        "Caravan": (caravan.drop(columns="Purchase").to_numpy(float), caravan["Purchase"].to_numpy(), logistic),
        "Boston": (boston.drop(columns="medv").to_numpy(float), boston["medv"].to_numpy(), net),
        "digits, 3 or 8": (digits.data[three], digits.target[three], logistic),
        "simulated": (X, y, logistic),
        "NCI60, leukaemia": (nci, np.ravel(_islp("NCI60labs")) == "LEUKEMIA", logistic),
        "Khan, type 2": (khan.to_numpy(float)[:, 1:], of_khan.to_numpy(float)[:, -1] == 2.0, logistic),
    }
    return {
        name: (StandardScaler().fit_transform(X[:, X.std(axis=0) > 0.0]), y, estimator)
        for name, (X, y, estimator) in found.items()
    }


def timed(task: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """The least CPU seconds, and what it gave."""
    seconds, answer = [], None
    for _ in range(repeats):
        began = time.process_time()
        answer = task()
        seconds.append(time.process_time() - began)
    return min(seconds), answer


def price(name: str, X: Any, y: Any, estimator: Any) -> dict[str, Any]:
    search = SufficeSearchCV(estimator, cv=5).fit(X, y)
    task = LeftOutTask.of(search, X, y)
    whole = task.data.whole()
    problem = whole.model.at(**search.best_penalties_)
    fits, lefts = [], []
    for _ in range(REPEATS):
        fit, warm = timed(lambda: solved(problem, whole.solver, ACCURACY), 1)
        left, rows = timed(lambda: leave_one_out(search, X, y), 1)
        fits.append(fit)
        lefts.append(left)
    fit, left = min(fits), min(lefts)
    some, scoring = task.groups[:BESIDE], task.adapter.scorings[0]
    again, _ = timed(lambda: [task.refitted(one, warm.x, scoring) for one in some], 1)
    few = BESIDE if len(y) > X.shape[1] else 2
    theirs, _ = timed(lambda: [_theirs(search, X, y, i) for i in range(few)], 1)
    scale = len(y) / BESIDE
    return {
        "table": name, "rows": len(y), "columns": X.shape[1], "support": int(np.count_nonzero(warm.x)),
        "fit": fit, "left out": left, "fits": left / fit, "fitted anew": rows.refits, "open": len(rows.open),
        "refits": again * scale / fit, "scikit-learn": theirs * len(y) / few / fit,
        "interval": list(rows.score_interval),
    }  # fmt: skip


def several() -> list[dict[str, Any]]:
    found = []
    for name, (X, y) in (("iris", load_iris(return_X_y=True)), ("wine", load_wine(return_X_y=True))):
        search = SufficeSearchCV(LogisticRegression(), cv=5).fit(StandardScaler().fit_transform(X), y)
        data, whole = search._training.data, search._training.data.whole()
        fit, _ = timed(lambda s=search, w=whole: solved(w.model.at(**s.best_penalties_), w.solver, ACCURACY))
        each, _ = timed(lambda s=search, data=data: HeldOutModels.of_rows(data, s.best_penalties_), 1)
        found.append({"table": f"{name}, {len(y)} x {X.shape[1]}, 3 classes", "fit": fit, "each": each})
        print(found[-1])
    return found


def _theirs(search: Any, X: Any, y: Any, i: int) -> Any:
    keep = np.arange(len(y)) != i
    estimator = clone(search.estimator).set_params(**search.best_params_, max_iter=10_000)
    return estimator.fit(X[keep], y[keep])


def tuning(known: dict[str, tuple[Any, Any, Any]]) -> list[dict[str, Any]]:
    found = []
    for name, most in (("diabetes", 442), ("Boston", 506), ("breast cancer", 200)):
        X, y, estimator = known[name]
        X, y = X[:most], y[:most]
        for one in (estimator, *([Ridge()] if isinstance(estimator, ElasticNet) else [])):
            ours, left = timed(lambda X=X, y=y, one=one: SufficeSearchCV(one, cv="loo").fit(X, y))
            each = list(LeaveOneOut().split(X))
            folds, trained = timed(lambda X=X, y=y, one=one, each=each: SufficeSearchCV(one, cv=each).fit(X, y), 1)
            model = type(one).__name__
            found.append({"table": name, "rows": len(y), "model": model, "ours": ours, "n folds": folds,
                          "score": left.best_score_, "of n folds": trained.best_score_})  # fmt: skip
            print(found[-1])
    return found


def ridge() -> list[dict[str, Any]]:
    rng, found = np.random.default_rng(0), []
    X, W = rng.standard_normal((2000, 50)), rng.standard_normal((100, 500))
    noise, alphas = rng.standard_normal(2000), np.logspace(-6, 6, 100)
    tables = {
        "diabetes, 442 x 10": load_diabetes(return_X_y=True),
        "2,000 x 50": (X, X @ rng.standard_normal(50) + 3.0 * noise),
        "100 x 500": (W, W[:, :20] @ rng.standard_normal(20) + noise[:100]),
    }
    for name, (X, y) in tables.items():
        tasks: dict[str, Any] = {
            "one": lambda X=X, y=y: leave_one_out(Ridge(1.0), X, y),
            "RidgeCV, 1 alpha": lambda X=X, y=y: RidgeCV([1.0]).fit(X, y),
            "search": lambda X=X, y=y: SufficeSearchCV(Ridge(), cv="loo").fit(X, y),
            "RidgeCV, 3 alphas": lambda X=X, y=y: RidgeCV().fit(X, y),
            "RidgeCV, 100 alphas": lambda X=X, y=y: RidgeCV(alphas).fit(X, y),
        }
        seconds: dict[str, list[float]] = {key: [] for key in tasks}
        for _ in range(3):  # interleaved
            for key, task in tasks.items():
                seconds[key].append(timed(task, 1)[0])
        found.append({"table": name, **{key: min(values) for key, values in seconds.items()}})
        print(found[-1])
    return found


def growth() -> list[dict[str, float]]:
    rng, found = np.random.default_rng(0), []
    for n in (1000, 3000, 10_000, 30_000, 100_000):
        X = rng.standard_normal((n, 50))
        y = X @ rng.standard_normal(50) + 3.0 * rng.standard_normal(n) > 0.0
        model = LogisticRegression(C=10.0 / n / 0.002, l1_ratio=0.5, solver="saga")
        seconds, rows = timed(lambda X=X, y=y, model=model: leave_one_out(model, X, y), 1)
        found.append({"rows": n, "seconds": seconds, "fitted anew": rows.refits})
    return found


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--intervals", type=int, default=100_000, help="to hold against the truth (%(default)s)")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--part", default="all", choices=["all", *PARTS], help="others stay as they are")
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    path = given.out / "leave_one_out.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() and given.part != "all" else {}
    here = {part: provenance("scikit-learn") for part in PARTS if given.part in ("all", part)}
    result["provenance"] = {**result.get("provenance", {}), **here}
    if given.part in ("all", "truth"):
        result["truth"] = {"seed": given.seed, **truth(given.intervals, given.seed)}
        print(result["truth"])
    if given.part in ("all", "price"):
        result["price"] = []
        known = tables()
        for name, one in known.items():
            result["price"].append(price(name, *one))
            print(result["price"][-1], flush=True)
        result["several"], result["tuning"], result["ridge"] = several(), tuning(known), ridge()
    if given.part in ("all", "growth"):
        result["growth"] = growth()
        print(result["growth"])
    write_json(path, result)
    write_text(path.with_suffix(".md"), text(result))


def text(result: dict[str, Any]) -> str:
    parts = ["# Every row left out", (__doc__ or "").rpartition("    python")[0].strip()]
    if "truth" in result:
        known = result["truth"]
        parts.append(
            f"**Truth** (seed {known['seed']}): {known['intervals']:,} intervals of {known['proven']:,} proven models "
            f"of {known['groups']:,}, {known['problems']:,} hostile problems: **{known['false']} false**. The largest "
            f"distance from the truth was {known['largest ratio']:.6f} of what was claimed. {known['no truth']:,} "
            f"models had no truth to the digits wanted; {known.get('behind a scaler', 0):,} intervals were behind a "
            f"scaler, {known.get('wide', 0):,} models of many more columns than rows."
        )
    if "price" in result:
        rows = [
            [
                f"{row['table']}, {row['rows']:,} x {row['columns']:,}", row["support"], f"{1e3 * row['fit']:.1f}",
                f"{row['fits']:.1f}", f"{row['refits']:.0f}", f"{row['scikit-learn']:.0f}", row["fitted anew"],
                row["open"],
            ]
            for row in result["price"]
        ]  # fmt: skip
        header = ["table", "support", "one fit, ms", "all left out, fits", "refits", "scikit-learn", "anew", "open"]
        parts += ["**Price**", table(header, rows)]
        rows = [
            [row["table"], f"{1e3 * row['fit']:.1f}", f"{row['each']:.2f}", f"{row['each'] / row['fit']:.0f}"]
            for row in result.get("several", [])
        ]
        parts += ["**Several classes**", table(["table", "one fit, ms", "all left out, CPU s", "fits"], rows)]
        rows = [
            [f"{row['table']}, {row['rows']} rows", row["model"], f"{row['ours']:.2f}", f"{row['n folds']:.1f}",
             f"{row['score']:.6g}", f"{row['of n folds']:.6g}"]
            for row in result["tuning"]
        ]  # fmt: skip
        header = ["table", "model", 'cv="loo", CPU s', "n folds", "score", "of n folds"]
        parts += ["**Tuning**", table(header, rows)]
        names = list(result["ridge"][0])[1:]
        rows = [[row["table"], *(f"{1e3 * row[name]:.1f}" for name in names)] for row in result["ridge"]]
        parts += ["**Ridge**, CPU ms", table(["table", *names], rows)]
    if "growth" in result:
        rows, n = result["growth"], np.log([row["rows"] for row in result["growth"]])
        slope = float(np.polyfit(n, np.log([row["seconds"] for row in rows]), 1)[0])
        parts += [
            "**Growth**",
            table(
                ["rows", "CPU s", "anew"], [[f"{r['rows']:,}", f"{r['seconds']:.2f}", r["fitted anew"]] for r in rows]
            ),
            f"Exponent {slope:.2f}.",
        ]
    for part, known in result["provenance"].items():
        parts.append(f"{part}: " + ", ".join(f"{name} {value}" for name, value in known.items()))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
