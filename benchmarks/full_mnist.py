"""All of MNIST: 60,000 training and 10,000 test images, ten digits, two penalties, from theta0 = [1, 1].

The paper's problem at twelve times its size, X sparse, raw pixels; solver "auto", everything else by default. The ten
digits are solved in two processes of one thread each. --folder holds the four idx files (they do not come with the
package).
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import parser, provenance, table, target, write_json, write_text

import suffice
from suffice.datasets import load_mnist_full
from suffice.executors import Processes
from suffice.reproduce.study import PRESETS, mnist_problem


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--folder", type=Path, required=True, help="where the idx files are")
    arguments.add_argument("--max-evaluations", type=int, default=80)
    options = arguments.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # for the worker processes
    began = time.monotonic()
    size = replace(PRESETS["full"], train=60_000, test=10_000)
    problem = mnist_problem(size, load_mnist_full(options.folder), tuple(range(10)), "auto")
    built = time.monotonic() - began
    X = problem.lower[0].design.X  # type: ignore[attr-defined]
    nbytes = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    rows: list[list[Any]] = []

    def show(record: suffice.Record) -> None:
        width = record.interval[1] - record.interval[0]
        rows.append([record.number, *record.theta, record.cost, width, record.work, time.monotonic() - began])
        print(*(f"{value:.6g}" for value in rows[-1]), record.purpose, flush=True)

    spread = suffice.BilevelProblem(
        problem.lower, problem.losses, penalty=problem.penalty, space=problem.space, executor=Processes(2)
    )
    began = time.monotonic()
    with spread:
        limit = suffice.Options(max_evaluations=options.max_evaluations)
        result = suffice.tune(spread, [1.0, 1.0], options=limit, callback=show)
    seconds = time.monotonic() - began
    low, high = result.interval
    found = {
        "seconds": seconds,
        "seconds to load and prepare": built,
        "evaluations": result.evaluations,
        "steps": result.work,
        "theta": result.theta.tolist(),
        "cost": result.cost,
        "interval": [low, high],
        "status": result.status.name,
        "MB of X": nbytes / 1e6,
    }
    shown = [
        [name, f"{value:.6g}" if isinstance(value, float) else str(value)]
        for name, value in found.items()
        if name != "interval"
    ]
    shown.append(["F is proven to lie in", f"[{low:.6f}, {high:.6f}]"])
    targets = [target("minutes", seconds / 60.0, 30.0, digits=1)]
    text = f"{table(['what', 'measured'], shown)}\n\n{table(['target', 'measured', 'wanted', ''], targets)}\n"
    made = provenance()
    print(text)
    write_text(options.out / "full_mnist.md", f"# All of MNIST\n\ncommit {made['commit']}\n\n{text}")
    write_json(options.out / "full_mnist.json", {"provenance": made, **found, "records": rows})


if __name__ == "__main__":
    main()
