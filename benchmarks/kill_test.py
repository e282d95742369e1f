"""Is anything lost when a run is killed? 100 runs, each killed with SIGKILL at a random moment, each resumed to its
end.

A run tunes two penalties of three logistic regressions with dynamic accuracy; its journal is written anew (compacted)
as often as can be, so that kills fall into that, too. Kills come by the clock, or by fault injection at the worst
places: within a write at a random byte, before the write is synchronised, before and after a new file takes the old
one's place.

After each kill the journal must hold every evaluation that was finished before it (as told by a log that the run's
callback keeps), and the resumed run must repeat none of them and end at the same theta, F and history, to the bit, as a
run that was never disturbed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from common import parser, provenance, table, target, write_json, write_text

import suffice
from suffice import files, journal, losses, problems

OPTIONS = suffice.Options(max_evaluations=40, final_radius=1e-4)
START = {"l1": 0.1, "l2": 0.1}
KINDS = ("clock", "within a write", "before a sync", "before a rename", "after a rename")


class Counting(suffice.BilevelProblem):
    """Counts the evaluations that are made."""

    calls = 0

    def evaluate(self, *arguments: Any, **options: Any) -> suffice.Evaluation:
        self.calls += 1
        return super().evaluate(*arguments, **options)


def build() -> Counting:
    rng = np.random.default_rng(0)
    lower, upper = [], []
    for _ in range(3):
        X, X_val = rng.standard_normal((2, 300, 40))
        w = rng.standard_normal(40) * (rng.random(40) < 0.3)
        lower.append(problems.ElasticNetLogistic(X, X @ w + rng.standard_normal(300) > 0))
        upper.append(losses.Brier(X_val, X_val @ w + rng.standard_normal(300) > 0))
    return Counting(lower, upper, space=suffice.Space(l1=(1e-5, 1.0), l2=(1e-5, 1.0)), solver="fista_adaptive")


def child(folder: Path, kind: str, when: int) -> None:
    """A run that dies: at the `when`-th byte, sync or rename, or when it is told to by the clock."""
    journal.answers.SLACK = 0
    write, sync, rename = files.write, files.sync, os.replace
    written = synced = renamed = 0

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def torn_write(file: int, data: bytes) -> None:
        nonlocal written
        if kind == "within a write" and written + len(data) > when:
            os.write(file, data[: when - written])
            die()
        written += len(data)
        write(file, data)

    def torn_sync(file: int) -> None:
        nonlocal synced
        synced += 1
        if kind == "before a sync" and synced > when:
            die()
        sync(file)

    def torn_rename(*names: Any) -> None:
        nonlocal renamed
        renamed += 1
        if kind == "before a rename" and renamed > when:
            die()
        rename(*names)
        if kind == "after a rename" and renamed > when:
            die()

    files.write, files.sync, os.replace = torn_write, torn_sync, torn_rename  # type: ignore[assignment]
    log = os.open(f"{folder}.finished", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    print("ready", flush=True)
    suffice.tune(build(), START, options=OPTIONS, journal=folder, callback=lambda record: os.write(log, b"."))


def trial(folder: Path, kind: str, rng: np.random.Generator, seconds: float, sizes: dict[str, int]) -> dict[str, Any]:
    when = int(rng.integers(sizes[kind])) if kind != "clock" else 0
    command = [sys.executable, __file__, "--child", str(folder), kind, str(when)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    if kind == "clock":
        time.sleep(rng.uniform(0.0, seconds))
        process.kill()
    killed = process.wait() == -signal.SIGKILL
    process.stdout.close()
    finished = Path(f"{folder}.finished").stat().st_size
    problem = build()
    if (folder / journal.FILE).exists():
        contents = journal.read(folder)
        known, torn = len(contents.history), contents.torn
        result = suffice.resume(folder, problem=problem)
    else:
        known = torn = 0
        result = suffice.tune(problem, START, options=OPTIONS, journal=folder)
    return {
        "kind": kind,
        "killed": killed,
        "known": known,
        "torn_bytes": torn,
        "lost": max(finished - known, 0),
        "repeated": problem.calls - (result.evaluations - known),
        "result": result,
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--trials", type=int, default=100, help="how many runs to kill (%(default)s)")
    arguments.add_argument("--child", nargs=3, help="used by the benchmark itself")
    options = arguments.parse_args()
    if options.child:
        child(Path(options.child[0]), options.child[1], int(options.child[2]))
        return
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        journal.answers.SLACK = 0
        counts, write, sync, rename = Counter[str](), files.write, files.sync, os.replace

        def counted(kind: str, do: Any, size: Any) -> Any:
            def call(*given: Any) -> None:
                counts[kind] += size(*given)
                do(*given)

            return call

        files.write = counted("within a write", write, lambda file, data: len(data))
        files.sync = counted("before a sync", sync, lambda file: 1)
        os.replace = counted("before a rename", rename, lambda *names: 1)  # type: ignore[assignment]
        began = time.monotonic()
        whole = suffice.tune(build(), START, options=OPTIONS, journal=folder / "whole")
        seconds = time.monotonic() - began
        files.write, files.sync, os.replace = write, sync, rename
        sizes = dict(counts) | {"after a rename": counts["before a rename"]}
        # "ready" comes before the problem is built: the clock may strike at any time from then to the end.
        rows = []
        for i in range(options.trials):
            kind = "clock" if i % 2 == 0 else KINDS[1 + (i // 2) % 4]
            row = trial(folder / f"run{i}", kind, rng, 1.1 * seconds, sizes)
            result = row.pop("result")
            row["same"] = (
                result.theta.tobytes() == whole.theta.tobytes()
                and result.cost == whole.cost
                and repr(result.history) == repr(whole.history)
            )
            rows.append(row)
            print(f"{i + 1:3d}  {kind:16s} known {row['known']:2d}  same {row['same']}", flush=True)
    summary = [
        [
            kind,
            len(of := [row for row in rows if row["kind"] == kind]),
            sum(row["killed"] for row in of),
            sum(row["torn_bytes"] > 0 for row in of),
            sum(row["lost"] for row in of),
            sum(row["repeated"] for row in of),
            sum(row["same"] for row in of),
        ]
        for kind in KINDS
    ]
    head = ["killed", "runs", "killed before their end", "torn record", "evaluations lost", "repeated", "same result"]
    targets = [
        target("finished evaluations lost", sum(row["lost"] for row in rows), 0, digits=0),
        target("finished evaluations repeated", sum(row["repeated"] for row in rows), 0, digits=0),
        target("share of identical results", sum(row["same"] for row in rows) / len(rows), 1.0, at_least=True),
    ]
    text = f"{table(head, summary)}\n\n{table(['target', 'measured', 'wanted', ''], targets)}\n"
    made = provenance()
    about = f"{whole.evaluations} evaluations in {seconds:.2f} s undisturbed; commit {made['commit']}, {made['date']}\n"
    print(text)
    write_text(options.out / "kill_test.md", f"# Runs killed and resumed\n\n{about}\n{text}")
    write_json(options.out / "kill_test.json", {"provenance": made, "seconds": seconds, "runs": rows})


if __name__ == "__main__":
    main()
