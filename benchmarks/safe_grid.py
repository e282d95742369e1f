"""Beside the prior art of global guarantees: the safe grid of Ndiaye, Le, Fercoq, Salmon and Takeuchi (ICML 2019).

Their code (github.com/EugeneNdiaye/safe_grid_search, built in its folder, --theirs) runs as it is, on the data of their
figures: penalties from lambda_max down to --low times that. 30 % of the rows are held out, columns have length 1, and
targets of squares are standardised, as there.

- elastic net with a fixed l2 = 0.5: their case of a guarantee for the validation error E = ||X'w - y'||, from duality
  gaps, as the lower level is strongly convex. They are told the least E, of which epsilon is a share (of E^2, as ours).
  For us the same l2 is a row more for every column.
- Lasso and l1 logistic regression: nothing follows there for held-out rows, since minimisers are not bounded by duality
  gaps. Their grid approximates the path to an epsilon share of the training loss at w = 0, a weaker statement; ours is
  about the validation loss.
- elastic net with a fixed ratio, l1 = l2: ours alone, as their code has none.

Evaluations are lower-level problems that were solved: points of their grid; looks of ours. The Lasso's path is solved
from kink to kink: an evaluation, and so many segments, each a linear solve. Seconds are processor time in one thread,
the least of --repeats; `>`: points after --seconds.
"""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import Tied, parser, provenance, table, write_json, write_text
from sklearn.datasets import load_breast_cancer, make_classification, make_regression, make_sparse_uncorrelated
from sklearn.model_selection import train_test_split

import suffice
from suffice import losses, problems

EPSILONS = (0.1, 0.01, 0.001)
SEED, MU = 414, 0.5


def regression(n: int, d: int) -> Any:
    return make_regression(n_samples=n, n_features=d, random_state=SEED)


DATA: dict[str, Callable[[], Any]] = {
    "make_regression, 100 x 500": lambda: regression(100, 500),
    "make_regression, 500 x 5000": lambda: regression(500, 5000),
    "make_sparse_uncorrelated, 30 x 50": lambda: make_sparse_uncorrelated(30, 50, random_state=SEED),
    "make_classification, 100 x 500": lambda: make_classification(100, 500, n_classes=2, random_state=SEED),
    "breast cancer, 569 x 30": lambda: load_breast_cancer(return_X_y=True),
}
LABELS = ("make_classification, 100 x 500", "breast cancer, 569 x 30")
SQUARES = [name for name in DATA if name != "make_classification, 100 x 500"]


def rows_of(name: str, squares: bool) -> Any:
    X, y = DATA[name]()
    X, y = np.asfortranarray(X / np.linalg.norm(X, axis=0)), np.asarray(y, dtype=float)
    if squares:
        y = (y - y.mean()) / y.std()
    return train_test_split(X, y, test_size=0.3, random_state=SEED)


def certified(problem: Any, held: Any, low: float, high: float, epsilon: float) -> dict[str, Any]:
    space = suffice.Space(strength=(low, high))
    made = suffice.certify_global(suffice.BilevelProblem([problem], [held], space=space), epsilon)
    assert made.success, made.message
    return {"evaluations": made.evaluations, "work": made.work, "gap": made.gap, "loss": made.upper}


def timed(fun: Callable[[], dict[str, Any]], repeats: int) -> dict[str, Any]:
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        made = fun()
        seconds.append(time.process_time() - began)
    return {**made, "seconds": min(seconds)}


def walked(module: Any, path: Callable[[], Any], args: Any) -> dict[str, Any]:
    """The points of a path of theirs, or those that it had when its time was over."""
    step, points, began = module.step_size, [1], time.process_time()

    def counted(*given: Any) -> Any:
        points[0] += 1
        if time.process_time() - began > args.seconds:
            raise TimeoutError
        return step(*given)

    module.step_size = counted
    try:
        path()
        return {"evaluations": points[0], "ended": True}
    except TimeoutError:
        return {"evaluations": points[0], "ended": False}
    finally:
        module.step_size = step


def squares(name: str, mu: float, epsilon: float, args: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    theirs = importlib.import_module("safe_enet_path")
    X, V, y, v = rows_of(name, True)
    d = X.shape[1]
    largest = float(np.abs(X.T @ y).max())
    rows, targets = X, y
    if mu:
        rows, targets = np.vstack([X, np.sqrt(mu) * np.eye(d)]), np.append(y, np.zeros(d))
    lower = Tied(problems.ElasticNet(rows, targets), 1.0 / len(targets), 0.0)
    held = losses.SquaredError(V, v)
    ours = timed(lambda: certified(lower, held, args.low * largest, largest, epsilon), args.repeats)
    wanted = epsilon * 0.5 * float(y @ y)
    if mu:  # E - min E <= epsilon / 2 min E is E^2 - min E^2 <= epsilon min E^2, about
        share = (1.0 / np.sqrt(1.0 - epsilon) - 1.0) * np.sqrt(ours["loss"])
        wanted = 0.5 * mu * (share / np.linalg.norm(V, ord=2)) ** 2

    def path() -> None:
        nu = 1.0 / mu if mu else 1.0
        theirs.compute_path(X, y, wanted, mu, nu, (args.low * largest, largest), adaptive=True, large_step=True)

    return ours, timed(lambda: walked(theirs, path, args), 1 if mu and epsilon < 0.01 else args.repeats)


def logistic(name: str, epsilon: float, args: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    theirs = importlib.import_module("safe_logreg_path")
    X, V, y, v = rows_of(name, False)
    n = len(y)
    largest = float(np.abs(X.T @ (y - 0.5)).max())
    lower = Tied(problems.ElasticNetLogistic(X, y), 1.0 / n, 0.0)
    held = losses.LogLoss(V, v)
    ours = timed(lambda: certified(lower, held, args.low * largest, largest, epsilon), args.repeats)

    def path() -> None:
        theirs.compute_path(X, y, epsilon * n * np.log(2.0), (args.low * largest, largest))

    return ours, timed(lambda: walked(theirs, path, args), args.repeats)


def fixed_ratio(name: str, epsilon: float, args: Any) -> dict[str, Any]:
    X, V, y, v = rows_of(name, True)
    largest = float(np.abs(X.T @ y).max())
    lower = Tied(problems.ElasticNet(X, y), 1.0 / len(y), 1.0 / len(y))
    held = losses.SquaredError(V, v)
    return timed(lambda: certified(lower, held, args.low * largest, largest, epsilon), args.repeats)


def beyond(theirs: dict[str, Any]) -> str:
    return "" if theirs["ended"] else "> "


def text(rows: list[dict[str, Any]], known: dict[str, str]) -> str:
    header = ["model, data", "epsilon", "proven gap", "evaluations", "segments", "seconds", "grid's points"]
    header += ["its seconds", "points over evaluations", "the grid's guarantee"]
    lines = []
    for row in rows:
        ours, theirs = row["ours"], row["theirs"]
        on_path = row["model"].startswith(("lasso", "elastic net, l2"))
        lines.append([
            f"{row['model']}, {row['data']}", f"{row['epsilon']:g}", f"{ours['gap']:.1e}", ours["evaluations"],
            f"{ours['work']:.0f}" if on_path else "-", f"{ours['seconds']:.2f}",
            *(["-"] * 3 if theirs is None else [f"{beyond(theirs)}{theirs['evaluations']}", f"{theirs['seconds']:.2f}",
              f"{beyond(theirs)}{theirs['evaluations'] / max(ours['evaluations'], 1):.1f}"]), row["guarantee"],
        ])  # fmt: skip
    parts = ["# Global guarantees beside the safe grid", __doc__ or "", table(header, lines)]
    parts += [", ".join(f"{key} {value}" for key, value in known.items())]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def main() -> None:
    args = parser(__doc__)
    args.add_argument("--theirs", type=Path, required=True, help="folder of safe_grid_search, built")
    args.add_argument("--low", type=float, default=1e-3, help="least penalty, over lambda_max (%(default)s)")
    args.add_argument("--seconds", type=float, default=30.0, help="of a path of theirs, at most (%(default)s)")
    args.add_argument("--repeats", type=int, default=3)
    args = args.parse_args()
    sys.path.insert(0, str(args.theirs))
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    known = provenance("scikit-learn")

    def note(model: str, data: str, epsilon: float, ours: Any, theirs: Any, guarantee: str) -> None:
        rows.append({"model": model, "data": data, "epsilon": epsilon, "ours": ours, "theirs": theirs,
                     "guarantee": guarantee})  # fmt: skip
        print(rows[-1], flush=True)

    for epsilon in EPSILONS:
        for name in LABELS:
            note("l1 logistic", name, epsilon, *logistic(name, epsilon, args), "training loss")
        for name in SQUARES:
            if "5000" not in name:
                note("lasso", name, epsilon, *squares(name, 0.0, epsilon, args), "training loss")
                note("elastic net, l2 = 0.5", name, epsilon, *squares(name, MU, epsilon, args), "validation error")
                note("elastic net, l1 = l2", name, epsilon, fixed_ratio(name, epsilon, args), None, "-")
    rows.sort(key=lambda row: (row["model"], row["data"], -row["epsilon"]))
    write_json(args.out / "safe_grid.json", {"rows": rows, "provenance": known})
    write_text(args.out / "safe_grid.md", text(rows, known))


if __name__ == "__main__":
    main()
