"""What does spreading 64 lower-level problems over processes cost, what does it gain, and does it survive losing
workers?

64 logistic regressions with data of their own share two penalties. The same run is made one after the other in this
process, in 1, 2 and 4 processes, on a Dask cluster of 4 worker processes on this machine, and on that cluster while a
worker, chosen at random, is killed with SIGKILL every few seconds (its nanny starts a new one). Every run must end at
the same theta, F and history, to the bit. Times are those of one run each, workers' start included; the gain is bounded
by the number of cores.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from common import parser, provenance, table, target, write_json, write_text

import suffice
from suffice import journal, losses, problems
from suffice.executors import Dask, Processes

OPTIONS = suffice.Options(max_evaluations=20)
KILL_EVERY = (3.0, 6.0)  # seconds
ROWS, COLUMNS = 3000, 200  # of every problem: solves of tens of milliseconds


def build(executor: Any, rows: int = ROWS, d: int = COLUMNS) -> suffice.BilevelProblem:
    rng = np.random.default_rng(0)
    lower, upper = [], []
    for _ in range(64):
        X, X_val = rng.standard_normal((2, rows, d))
        w = rng.standard_normal(d) * (rng.random(d) < 0.3)
        lower.append(problems.ElasticNetLogistic(X, X @ w + rng.standard_normal(rows) > 0))
        upper.append(losses.Brier(X_val[:200], X_val[:200] @ w + rng.standard_normal(200) > 0))
    space = suffice.Space(l1=(1e-5, 1.0), l2=(1e-5, 1.0))
    return suffice.BilevelProblem(lower, upper, space=space, solver="fista_adaptive", executor=executor)


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    settings: dict[str, Any] = {"threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(n_workers=workers, silence_logs=50, **settings) as made, Client(made) as client:
        yield client


@contextmanager
def killer(client: Any, kills: list[int]) -> Iterator[None]:
    """A thread that kills a worker every few seconds."""
    ended, rng = threading.Event(), random.Random(0)

    def run() -> None:
        while not ended.wait(rng.uniform(*KILL_EVERY)):
            processes = [nanny.pid for nanny in list(client.cluster.workers.values()) if nanny.pid]
            if processes:
                victim = rng.choice(processes)
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                kills.append(victim)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def measured(executor: Any) -> tuple[suffice.Result, float, list[Any]]:
    with tempfile.TemporaryDirectory() as folder, build(executor) as problem:
        began = time.monotonic()
        result = suffice.tune(problem, {"l1": 0.1, "l2": 0.1}, options=OPTIONS, journal=folder)
        return result, time.monotonic() - began, list(journal.read(folder).events)


def main() -> None:
    options = parser(__doc__).parse_args()
    rows: list[dict[str, Any]] = []
    runs: dict[str, Callable[[], Any]] = {"serial": lambda: measured("serial")}
    runs |= {f"processes, {n}": lambda n=n: measured(Processes(n)) for n in (1, 2, 4)}
    for name, run in runs.items():
        rows.append({"where": name, "kills": 0} | dict(zip(("result", "seconds", "events"), run(), strict=True)))
        print(name, rows[-1]["seconds"], flush=True)
    with cluster(4) as client:
        for name in ("Dask, 4 workers", "Dask, 4 workers, killed at random"):
            kills: list[int] = []
            if "killed" in name:
                with killer(client, kills):
                    found = measured(Dask(client, attempts=100))
            else:
                found = measured(Dask(client))
            entry = dict(zip(("result", "seconds", "events"), found, strict=True))
            rows.append({"where": name, "kills": len(kills)} | entry)
            print(name, rows[-1]["seconds"], len(kills), flush=True)
    reference = rows[0]["result"]
    for row in rows:
        result = row.pop("result")
        row["same"] = result.theta.tobytes() == reference.theta.tobytes() and repr(result.history) == repr(
            reference.history
        )
        row["evaluations"], row["F"], row["events"] = result.evaluations, result.cost, len(row["events"])
    head = ["where", "seconds", "against serial", "workers killed", "events in the journal", "same bits"]
    shown = [
        [
            row["where"],
            f"{row['seconds']:.1f}",
            f"{rows[0]['seconds'] / row['seconds']:.2f}",
            row["kills"],
            row["events"],
            "yes" if row["same"] else "NO",
        ]
        for row in rows
    ]
    targets = [
        target(
            "share of runs with the serial result", sum(row["same"] for row in rows) / len(rows), 1.0, at_least=True
        ),
        target("workers killed", rows[-1]["kills"], 3, at_least=True, digits=0),
    ]
    made = provenance("distributed", "joblib")
    about = (
        f"{rows[0]['evaluations']} evaluations of 64 problems, {ROWS} x {COLUMNS} each; {os.cpu_count()} cores, shared "
        f"with other work (load {os.getloadavg()[1]:.1f}); commit {made['commit']}\n"
    )
    text = f"{table(head, shown)}\n\n{table(['target', 'measured', 'wanted', ''], targets)}\n"
    print(text)
    write_text(options.out / "cluster.md", f"# 64 problems over processes and a cluster\n\n{about}\n{text}")
    write_json(options.out / "cluster.json", {"provenance": made, "runs": rows})


if __name__ == "__main__":
    main()
