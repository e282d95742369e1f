"""Does memory stay flat? One run of 10,000 evaluations, with a journal.

The oracle makes a point more accurate by a tenth at a time and attaches 16 KB to each evaluation, so that a run is long
and whatever is kept too long shows. Reported every thousand evaluations: bytes that Python holds (tracemalloc), the
size of the process, and the size of the journal. The history, one record per evaluation, is part of the result and
grows.

`--search ROWS COLUMNS` measures something else: what a search over five folds of a table of that size takes beside X
itself, at its peak and while it goes on, in units of X.
"""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
from common import parser, provenance, table, target, write_json, write_text
from sklearn.linear_model import ElasticNet, LogisticRegression
from sklearn.model_selection import KFold

import suffice
from suffice import journal
from suffice.sklearn import SufficeSearchCV


class Reluctant:
    def evaluate(
        self, theta: np.ndarray, *, within: float, warm: suffice.Evaluation | None = None
    ) -> suffice.Evaluation:
        known = warm is not None and np.array_equal(warm.point, theta)
        error = max(within, 0.899 * warm.e[0] if warm is not None and known else 1e14)
        residuals = [10.0 * (theta[1] - theta[0] ** 2), 1.0 - theta[0], 0.3]
        return suffice.Evaluation(theta, residuals, np.full(3, error), work=1, solutions=(np.full(2_000, theta[0]),))


def resident() -> int:
    """Bytes of this process in memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    return 0


def of_a_search(rows: int, columns: int, classes: bool) -> dict[str, float]:
    """What Python holds beside X at the end of an evaluation, and at most, in units of X."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns)) + 3.0
    m = (X[:, :20] - 3.0) @ np.full(min(20, columns), 0.3)
    y = rng.random(rows) < 1.0 / (1.0 + np.exp(-m)) if classes else m + 2.0 * rng.standard_normal(rows)
    estimator = LogisticRegression(l1_ratio=0.5, solver="saga") if classes else ElasticNet()
    held: list[int] = []
    tracemalloc.start()
    cv = KFold(5, shuffle=True, random_state=0)
    search = SufficeSearchCV(estimator, cv=cv, callback=lambda _: held.append(tracemalloc.get_traced_memory()[0]))
    search.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"held": max(held) / X.nbytes, "peak": peak / X.nbytes}


def searches(out: Path, rows: int, columns: int) -> None:
    found = {name: of_a_search(rows, columns, name == "logistic") for name in ("elastic net", "logistic")}
    shown = [[name, f"{one['held']:.2f}", f"{one['peak']:.2f}"] for name, one in found.items()]
    text = table(["model", "held, times X", "peak, times X"], shown)
    made = provenance()
    print(text)
    head = f"# Memory of a search over five folds, {rows} x {columns}, beside X\n\ncommit {made['commit']}"
    write_text(out / "memory_search.md", f"{head}\n\n{text}\n")
    write_json(out / "memory_search.json", {"provenance": made, "rows": rows, "columns": columns, "found": found})


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--search", nargs=2, type=int, metavar=("ROWS", "COLUMNS"), help="of a search over folds")
    options = arguments.parse_args()
    if options.search:
        return searches(options.out, *options.search)
    rows: list[list[float]] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / journal.FILE

        def look(record: suffice.Record) -> None:
            if record.number % 1000 == 0:
                python = tracemalloc.get_traced_memory()[0]
                rows.append([record.number, python, resident(), file.stat().st_size, time.monotonic() - began])

        tracemalloc.start()
        settings = suffice.Options(max_evaluations=10_000, final_radius=1e-12)
        result = suffice.tune(Reluctant(), [-1.2, 1.0], options=settings, journal=folder, callback=look)
        tracemalloc.stop()
    first, last = rows[0], rows[-1]
    growth = (last[1] - first[1]) / (last[0] - first[0])
    shown = [[f"{n:.0f}", *(f"{size / 1e6:.1f}" for size in sizes), f"{s:.0f}"] for n, *sizes, s in rows]
    targets = [
        target("evaluations", result.evaluations, 10_000, at_least=True, digits=0),
        target("bytes per evaluation (a record of the history is most of it; a solution has 16,000)", growth, 3000),
    ]
    head = ["evaluations", "Python, MB", "process, MB", "journal, MB", "seconds"]
    text = f"{table(head, shown)}\n\n{table(['target', 'measured', 'wanted', ''], targets)}\n"
    made = provenance()
    print(text)
    write_text(options.out / "memory.md", f"# Memory over 10,000 evaluations\n\ncommit {made['commit']}\n\n{text}")
    write_json(options.out / "memory.json", {"provenance": made, "rows": rows})


if __name__ == "__main__":
    main()
