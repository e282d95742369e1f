"""A global certificate on real tables: how many solves it takes, against a 100-point grid, which proves nothing.

- one penalty: Ridge, Lasso, l2 and l1 logistic regression with an intercept, standardised columns, 5 folds, penalties
  from 1e-6 to 1e2, a relative gap of 1e-3. Squares of labels: -1 and 1 (breast cancer, digits: even or odd, NCI60:
  renal or not, Khan: type 2 or not); wine: alcohol from the other columns for squares, the first two of its classes for
  the logistic loss; diabetes has no classes.
- two penalties: the elastic net, 1e-2 (digits 5e-2).
- truth: F at random penalties, by Newton's method to a decrement of 1e-9, against the proven lower and upper surfaces.
  Where it lies outside by more than 1e-7 of itself, F is evaluated with a proof of its own; outside again, and the
  surfaces were a false proof.
- scaling: looks against epsilon, with the exponent that fits; valleys: F with two local minima, built and real.
Evaluations are cells looked at: every fold solved at the centre, and bounds from there. The Lasso needs none for its
path, whose segments are counted instead; one or a few find the minimum. Every run ends after --seconds at the latest;
the gap that is proven by then counts. The grid ends after --grid-seconds: (n) are the points that it had by then, and
its best is of those. Times are of a busy machine, and say little. The Lasso on digits: one fold has two equal columns;
minimisers for l1 < 0.0063 are not unique, and there is no F to be bounded.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import Tied, parser, provenance, table, write_json, write_text
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge, lars_path
from sklearn.model_selection import check_cv
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from table_sources import unpacked

import suffice
from suffice import losses, problems
from suffice.globally.models import UnsupportedError, folds_of, minimised
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.penalties import PenaltySpace
from suffice.sklearn.splits import SearchData

LEVELS = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3)
RANGE = (1e-6, 1e2)
ONE, TWO = {"l1": RANGE}, {"l1": RANGE, "l2": RANGE}
MODELS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "ridge": (Ridge(), {"l2": RANGE}, "neg_mean_squared_error"),
    "lasso": (Lasso(), ONE, "neg_mean_squared_error"),
    "l2 logistic": (LogisticRegression(), {"l2": RANGE}, "neg_log_loss"),
    "l1 logistic": (LogisticRegression(l1_ratio=1.0, solver="saga"), ONE, "neg_log_loss"),
    "elastic net": (ElasticNet(), TWO, "neg_mean_squared_error"),
    "elastic-net logistic": (LogisticRegression(l1_ratio=0.5, solver="saga"), TWO, "neg_log_loss"),
}
DATA = ("diabetes", "wine", "breast cancer", "digits", "NCI60", "Khan")
TWO_PENALTIES = [("elastic net", "diabetes", 1e-2), ("elastic net", "wine", 1e-2)]
TWO_PENALTIES += [("elastic net", "breast cancer", 1e-2), ("elastic-net logistic", "breast cancer", 1e-2)]
TWO_PENALTIES += [("elastic-net logistic", "wine", 1e-2), ("elastic-net logistic", "digits", 5e-2)]


def load(name: str, logistic: bool, islp: Path) -> tuple[Any, Any] | None:
    """X and y; None where there is nothing to classify."""
    if name == "diabetes":
        return None if logistic else load_diabetes(return_X_y=True)
    if name == "wine":
        X, y = load_wine(return_X_y=True)
        return (X[y < 2], y[y < 2]) if logistic else (X[:, 1:], X[:, 0])
    if name == "breast cancer":
        X, y = load_breast_cancer(return_X_y=True)
    elif name == "digits":
        X, y = load_digits(return_X_y=True)
        y = y % 2
    elif name == "NCI60":
        X = np.load(islp / "NCI60data.npy")
        y = (pd.read_csv(islp / "NCI60labs.csv").iloc[:, -1].to_numpy() == "RENAL").astype(int)
    else:
        X = pd.concat([pd.read_csv(islp / f"Khan_x{part}.csv") for part in ("train", "test")]).to_numpy(dtype=float)
        y = pd.concat([pd.read_csv(islp / f"Khan_y{part}.csv") for part in ("train", "test")])["x"].to_numpy() == 2
    y = np.asarray(y, dtype=int)
    return X, (y if logistic else np.where(y > 0, 1.0, -1.0))


def problem_of(model: str, X: Any, y: Any) -> suffice.BilevelProblem:
    """The problem that SufficeSearchCV tunes."""
    estimator, ranges, scoring = MODELS[model]
    adapter = find_adapter(estimator)
    data = SearchData(make_pipeline(StandardScaler(), estimator), X, y, np.ones(len(y)))
    space = PenaltySpace.of(ranges, estimator, adapter, total=data.total)
    splits = check_cv(5, y, classifier="logistic" in model).split(X, y)
    folds = [data.split(train, test, "") for train, test in splits]
    return suffice.BilevelProblem(
        [fold.penalised(space.ratio) for fold in folds],
        [fold.loss(scoring, len(folds)) for fold in folds],
        space=space.space,
    )


def false_proofs(problem: suffice.BilevelProblem, made: suffice.GlobalCertificate, points: int, until: float) -> Any:
    """How many random penalties have an F outside the proven surfaces, and how many were looked at."""
    lower, upper = problem.space.bounds
    thetas = lower + np.random.default_rng(0).random((points, len(lower))) * (upper - lower)
    folds = folds_of(problem)
    weights = [np.zeros(fold.design.shape[1]) for fold in folds]
    false, seen = 0, 0
    began, done = time.monotonic(), 0
    while done < len(thetas) and time.monotonic() < until:
        chosen = thetas[done : done + 200]
        for theta in chosen[np.lexsort(chosen.T)][::-1]:  # neighbours one after the other, from large penalties down
            params = problem.space.params(theta)
            t = np.array(list(params.values()))
            weights = [
                minimised(one, *(float(x) for x in one.B @ t), w)[0] for one, w in zip(folds, weights, strict=True)
            ]
            F = sum(fold.cost(w) for fold, w in zip(folds, weights, strict=True))
            low, high = made.bounds_at(params)
            if not low * (1.0 - 1e-7) <= F <= high * (1.0 + 1e-7):
                least, most = problem.limited(5000).evaluate(theta, within=1e-6).interval
                false += most < low or least > high
            seen += 1
            if time.monotonic() > until:
                break
        done += 200
    return {"points": seen, "false": false, "seconds": time.monotonic() - began}


def run(model: str, name: str, epsilon: float, args: Any) -> dict[str, Any] | None:
    found = load(name, "logistic" in model, args.islp)
    if found is None:
        return None
    problem = problem_of(model, *found)
    try:
        folds_of(problem)
    except UnsupportedError as error:  # more columns than a Hessian has room for, and no l1
        print(model, name, error, flush=True)
        return None
    grid_began = time.monotonic()
    side = 100 if len(problem.space) == 1 else 10
    lower, upper = problem.space.bounds
    best_of_grid, warm, grid = np.inf, None, 0
    axes = np.meshgrid(*(np.linspace(low, high, side) for low, high in zip(lower, upper, strict=True)))
    for theta in np.column_stack([axis.ravel() for axis in axes]):
        if time.monotonic() - grid_began > args.grid_seconds:
            break
        warm = problem.limited(2000).evaluate_all([theta], within=1e-4, warm=[warm])[0]
        best_of_grid, grid = min(best_of_grid, warm.cost), grid + 1
    grid_seconds = time.monotonic() - grid_began
    options = suffice.GlobalOptions(max_evaluations=20_000, max_seconds=args.seconds)
    made = suffice.certify_global(problem, epsilon, options=options)
    truth = false_proofs(problem, made, args.points, time.monotonic() + args.truth_seconds)
    row = {
        "model": model, "data": name, "epsilon": epsilon, "gap": made.gap, "success": made.success,
        "lower": made.lower, "upper": made.upper, "params": made.params, "evaluations": made.evaluations,
        "work": made.work, "cells": len(made.cells), "seconds": made.seconds, "message": made.message,
        "grid": {"points": grid, "seconds": grid_seconds, "best": best_of_grid}, "truth": truth,
        "curve": [[one.evaluations, one.seconds, one.gap] for one in made.history],
    }  # fmt: skip
    print(model, name, f"gap {made.gap:.2e}", made.evaluations, f"{made.seconds:.0f} s", truth, flush=True)
    return row


def scaling(args: Any) -> list[dict[str, Any]]:
    """Evaluations against epsilon, each from a run of its own."""
    rows = []
    for model, name, steps in (
        ("ridge", "diabetes", (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)),
        ("elastic net", "diabetes", (0.3, 0.1, 0.03, 0.01)),
        ("elastic net", "wine", (0.3, 0.1, 0.03, 0.01)),
    ):
        found = load(name, "logistic" in model, args.islp)
        assert found is not None
        problem = problem_of(model, *found)
        for epsilon in steps:
            options = suffice.GlobalOptions(max_seconds=args.seconds)
            made = suffice.certify_global(problem, epsilon, options=options)
            rows.append({"model": model, "data": name, "epsilon": epsilon, "gap": made.gap, "success": made.success,
                         "evaluations": made.evaluations})  # fmt: skip
            print("scaling", rows[-1], flush=True)
    return rows


def exponent(counts: list[tuple[float, int]]) -> str:
    """By least squares: evaluations grow like (1/epsilon) to this power."""
    if len(counts) < 3:
        return "-"
    epsilons, evaluations = np.array(counts, dtype=float).T
    return f"{np.polyfit(-np.log(epsilons), np.log(evaluations), 1)[0]:.2f}"


def exact_truth(args: Any) -> list[dict[str, Any]]:
    """F of Ridge and the Lasso from formulas of others (a linear solve, scikit-learn's LARS) at random penalties."""
    rows = []
    for model in ("ridge", "lasso"):
        for name in ("diabetes", "wine", "breast cancer"):
            found = load(name, False, args.islp)
            assert found is not None
            problem = problem_of(model, *found)
            made = suffice.certify_global(problem, 1e-3, options=suffice.GlobalOptions(max_seconds=args.seconds))
            values = 10.0 ** np.random.default_rng(1).uniform(-6, 2, args.points)
            F = sum(_exact(fold, model, values) for fold in folds_of(problem))
            bounds = np.array([made.bounds_at({problem.space.names[0]: float(value)}) for value in values])
            false = int(np.sum((bounds[:, 0] * (1.0 - 1e-9) > F) | (bounds[:, 1] * (1.0 + 1e-9) < F)))
            rows.append({"model": model, "data": name, "points": len(values), "false": false, "gap": made.gap,
                         "least": float(F.min()), "lower": made.lower, "upper": made.upper})  # fmt: skip
            print("exact", rows[-1], flush=True)
    return rows


def _exact(fold: Any, model: str, values: Any) -> Any:
    X, y, held = fold.design.X, fold.model.y, fold.held
    if model == "ridge":
        _, s, V = np.linalg.svd(X / np.sqrt(len(y)), full_matrices=False)
        w = (V.T * ((V @ (X.T @ y / len(y)))[:, None] / (s[:, None] ** 2 + values)).T[:, None, :]).sum(axis=2)
    else:
        alphas, _, path = lars_path(X, y, method="lasso")
        w = np.array([np.interp(values, alphas[::-1], row[::-1]) for row in path]).T
    residuals = w @ held.design.X.T - held.y
    return held.share * (residuals**2 @ held.design.weights)


def built() -> dict[str, tuple[suffice.BilevelProblem, float]]:
    """Two features that are shrunk at penalties far apart, held-out rows that like each at its own; and a start."""
    X = np.diag([1.0, 10.0]) * np.sqrt(2.0)
    ridge = Tied(problems.ElasticNet(X, X.sum(axis=1)), 0.0, 1.0)
    of_ridge = losses.SquaredError([[2.12, -0.55], [0.19, 1.95], [1.09, -1.54]], [0.86, 1.54, 0.44])
    X = np.eye(2) * np.sqrt(2.0)
    lasso = Tied(problems.ElasticNet(X, X @ [1.0, 0.2]), 1.0, 0.0)
    of_lasso = losses.SquaredError([[0.69, -5.17], [1.54, -5.7], [-1.0, 1.33]], [-0.62, 0.82, -0.45])
    return {
        "ridge, built": (suffice.BilevelProblem([ridge], [of_ridge], space=suffice.Space(strength=(1e-4, 1e6))), 1e3),
        "lasso, built": (suffice.BilevelProblem([lasso], [of_lasso], space=suffice.Space(strength=(1e-4, 10.0))), 0.6),
    }


def valleys(args: Any) -> list[dict[str, Any]]:
    """F with two local minima: a local search from beyond the worse one ends there, and the certificate tells."""
    rows = []
    cases = built()
    for name, start in (("breast cancer", 0.06), ("diabetes", 1.5)):
        found = load(name, False, args.islp)
        assert found is not None
        cases[f"lasso, {name}"] = problem_of("lasso", *found), start
    for name, (problem, start) in cases.items():
        (parameter,) = problem.space.names
        near = suffice.Options(initial_radius=0.02 if "built" in name else 0.005, final_radius=1e-4)
        poor = suffice.tune(problem, {parameter: start}, options=near)
        options = suffice.GlobalOptions(max_seconds=args.seconds)
        made = suffice.certify_global(problem, 1e-4, known=poor, options=options)
        rows.append({"data": name, "start": start, "ended": poor.params[parameter], "found": poor.cost,
                     "best": made.params[parameter], "upper": made.upper, "lower": made.lower, "gap": made.gap,
                     "evaluations": made.evaluations})  # fmt: skip
        print("valleys", rows[-1], flush=True)
    return rows


def text(
    rows: list[dict[str, Any]],
    scaled: list[dict[str, Any]],
    deep: list[dict[str, Any]],
    exact: list[dict[str, Any]],
    known: dict[str, str],
) -> str:
    header = ["model, data", "asked", "proven gap", "evaluations", "seconds", "grid of 100, s", "grid's best over ours"]
    header += ["random penalties", "false"]
    lines = [
        [
            f"{row['model']}, {row['data']}", f"{row['epsilon']:g}", f"{row['gap']:.1e}", row["evaluations"],
            f"{row['seconds']:.0f}",
            f"{row['grid']['seconds']:.0f}" + ("" if row["grid"]["points"] == 100 else f" ({row['grid']['points']})"),
            f"{row['grid']['best'] / row['upper']:.4f}", row["truth"]["points"], row["truth"]["false"],
        ]
        for row in rows
    ]  # fmt: skip
    scaled_lines = [
        [
            f"{row['model']}, {row['data']}", f"{row['epsilon']:g}", f"{row['gap']:.1e}", row["evaluations"],
            exponent([(one["epsilon"], one["evaluations"]) for one in scaled
                      if (one["model"], one["data"]) == (row["model"], row["data"]) and one["success"]]),
        ]
        for row in scaled
    ]  # fmt: skip
    deep_lines = [
        [row["data"], f"{row['start']:g}", f"{row['ended']:.3g}", f"{row['found']:.6g}",
         f"{row['best']:.3g}", f"[{row['lower']:.6g}, {row['upper']:.6g}]", row["evaluations"]]
        for row in deep
    ]  # fmt: skip
    reached = sum(row["success"] for row in rows)
    parts = [
        "# Global certificates", __doc__ or "",
        f"{reached} of {len(rows)} gaps were reached; {sum(row['truth']['false'] for row in rows)} false proofs at "
        f"{sum(row['truth']['points'] for row in rows)} random penalties.",
        table(header, lines), "## Solves against epsilon",
        table(["model, data", "epsilon", "proven gap", "evaluations", "exponent"], scaled_lines),
        "## Evaluations until a gap was proven",
        "The exponent is that of 1/epsilon. In theory it is m/3 with m penalties, 1/3 and 2/3, where no weight comes "
        "or goes, and m - 1 at worst along kinks; what is looked at before anything is proven makes it smaller.",
        table(["model, data", *(f"{level:g}" for level in LEVELS), "exponent"], [_anytime(row) for row in rows]),
        "## Truth against formulas of others",
        table(
            ["model, data", "proven gap", "random penalties", "false"],
            [[f"{row['model']}, {row['data']}", f"{row['gap']:.1e}", row["points"], row["false"]] for row in exact],
        ),
        "## Two valleys: where a local search from a bad start ends, and where the minimum is proven to lie",
        table(["model, data", "start", "ended at", "F there", "best", "min F proven in", "evaluations"], deep_lines),
        ", ".join(f"{key} {value}" for key, value in known.items()),
    ]  # fmt: skip
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _anytime(row: dict[str, Any]) -> list[object]:
    """The evaluations after which each gap was proven, and the exponent that fits."""
    gaps = [(count, gap) for count, _, gap in row["curve"]]
    reached = [next((count for count, gap in gaps if gap is not None and gap <= level), None) for level in LEVELS]
    fitted = exponent([(level, count) for level, count in zip(LEVELS, reached, strict=True) if count is not None])
    return [f"{row['model']}, {row['data']}", *("-" if count is None else count for count in reached), fitted]


def main() -> None:
    args = parser(__doc__)
    args.add_argument("--islp", type=Path, help="folder with ISLP's data; out of its wheel without this")
    args.add_argument("--seconds", type=float, default=60.0)
    args.add_argument("--grid-seconds", type=float, default=60.0)
    args.add_argument("--points", type=int, default=10_000)
    args.add_argument("--truth-seconds", type=float, default=60.0)
    args.add_argument("--only", nargs="*", default=[], help="such as 'lasso, digits'")
    args.add_argument("--part", default="all", choices=["all", "one", "two", "scaling", "valleys", "exact", "join"])
    args.add_argument("--folders", type=Path, nargs="*", default=[], help="results of parts, to be joined")
    args = args.parse_args()
    warnings.simplefilter("ignore")
    args.islp = args.islp or unpacked("islp", "ISLP/data")
    wanted = []
    if args.part in ("all", "one"):
        wanted += [(model, name, 1e-3) for name in DATA for model in list(MODELS)[:4]]
    if args.part in ("all", "two"):
        wanted += TWO_PENALTIES
    rows, scaled, deep, exact, known = [], [], [], [], provenance("scikit-learn")
    if args.part == "join":
        for part in args.folders:
            for held in (json.loads(path.read_text()) for path in sorted(part.glob("global_certificate_*.json"))):
                mine = [(row["model"], row["data"]) for row in held["rows"]]  # a later folder has the last word
                rows = [row for row in rows if (row["model"], row["data"]) not in mine] + held["rows"]
                scaled = held.get("scaling") or scaled
                deep += held.get("valleys", [])
                exact += held.get("exact", [])
        order = [(model, name) for name in DATA for model in list(MODELS)[:4]] + [one[:2] for one in TWO_PENALTIES]
        rows.sort(key=lambda row: order.index((row["model"], row["data"])))
        known["parts"] = "measured on the way to this commit"
        args.part = "all"
        wanted = []
    for one in wanted:
        if not args.only or f"{one[0]}, {one[1]}" in args.only:
            row = run(*one, args)
            rows += [] if row is None else [row]
            write_json(args.out / f"global_certificate_{args.part}.json", {"rows": rows, "provenance": known})
    if args.part == "scaling" or (args.part == "all" and wanted):
        scaled = scaling(args)
    if args.part == "valleys" or (args.part == "all" and wanted):
        deep = valleys(args)
    if args.part == "exact" or (args.part == "all" and wanted):
        exact = exact_truth(args)
    stem = "global_certificate" if args.part == "all" else f"global_certificate_{args.part}"
    write_json(
        args.out / f"{stem}.json",
        {"rows": rows, "scaling": scaled, "valleys": deep, "exact": exact, "provenance": known},
    )
    write_text(args.out / f"{stem}.md", text(rows, scaled, deep, exact, known))


if __name__ == "__main__":
    main()
