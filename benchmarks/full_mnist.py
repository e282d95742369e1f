"""All of MNIST: 60,000 training and 10,000 test images, ten digits, two penalties, from theta0 = [1, 1].

The paper's problem at twelve times its size, X sparse, raw pixels; solver "auto", everything else by default. The ten
digits are solved by two threads; with --device cuda in one process, X dense on that device, twice,
since the first run also loads the device's libraries. --folder holds the four idx files (they do not come with the
package).
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import parser, provenance, table, target, write_json, write_text
from suffice_paper.idx import load_mnist_full
from suffice_paper.study import PRESETS, mnist_problem

import suffice


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--folder", type=Path, required=True, help="where the idx files are")
    arguments.add_argument("--max-evaluations", type=int, default=80)
    arguments.add_argument("--device", help="torch device that holds X; without it X is sparse, in main memory")
    options = arguments.parse_args()
    began = time.monotonic()
    size = replace(PRESETS["full"], train=60_000, test=10_000)
    problem = mnist_problem(size, load_mnist_full(options.folder), tuple(range(10)), "auto", options.device)
    built = time.monotonic() - began
    nbytes = problem.lower[0].design.X.nbytes if options.device else _sparse_bytes(problem.lower[0].design.X)  # type: ignore[attr-defined]
    rows: list[list[Any]] = []

    def show(record: suffice.Record) -> None:
        width = record.interval[1] - record.interval[0]
        rows.append([record.number, *record.theta, record.cost, width, record.work, time.monotonic() - began])
        print(*(f"{value:.6g}" for value in rows[-1]), record.purpose, flush=True)

    if options.device is None:
        problem = suffice.BilevelProblem(
            problem.lower, problem.losses, penalty=problem.penalty, space=problem.space, executor=ThreadPoolExecutor(2)
        )
    times = []
    for _ in range(1 if options.device is None else 2):
        rows.clear()
        began = time.monotonic()
        with problem:
            limit = suffice.Options(max_evaluations=options.max_evaluations)
            result = suffice.tune(problem, [1.0, 1.0], options=limit, callback=show)
        times.append(time.monotonic() - began)
    seconds = times[-1]
    low, high = result.interval
    found = {
        "seconds": seconds,
        **({} if options.device is None else {"seconds of the first run": times[0], "device": options.device}),
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
    targets = [target("seconds", seconds, 15.0 if options.device is None else 3.0, digits=1)]
    text = f"{table(['what', 'measured'], shown)}\n\n{table(['target', 'measured', 'wanted', ''], targets)}\n"
    made = provenance()
    print(text)
    name = "full_mnist" if options.device is None else f"full_mnist_{options.device}"
    write_text(options.out / f"{name}.md", f"# All of MNIST\n\ncommit {made['commit']}\n\n{text}")
    write_json(options.out / f"{name}.json", {"provenance": made, **found, "records": rows})


def _sparse_bytes(X: Any) -> int:
    return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)


if __name__ == "__main__":
    main()
